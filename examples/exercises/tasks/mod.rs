//! The exercises: what each asks for, and the signs of common mistakes.

mod arrays;
mod modes;
mod programs;
mod scale;

use crate::answers::Answers;
use crate::grader::Grade;
use atmesh::prelude::*;

/// A task, and the check of its answer.
pub(crate) struct Exercise {
    /// The part of the book.
    pub(crate) part: &'static str,
    /// The name of the function.
    pub(crate) name: &'static str,
    /// The page of the book that teaches it.
    pub(crate) chapter: &'static str,
    /// The task, in two sentences.
    pub(crate) task: &'static str,
    pub(crate) grade: fn(&Answers) -> Result<Grade>,
}

impl Exercise {
    /// The name of the file with the function, in the folders `start` and `answers`.
    pub(crate) fn file(&self) -> &'static str {
        match self.part {
            "arrays" | "communication" => "arrays.rs",
            "explicit" | "unreduced" | "auto" | "manual" => "modes.rs",
            "programs" | "derivatives" | "loops" | "random" | "vmap" => "programs.rs",
            _ => "scale.rs",
        }
    }
}

/// Returns all exercises, in the order of their numbers.
pub(crate) fn all() -> Vec<Exercise> {
    [arrays::exercises(), modes::exercises(), programs::exercises(), scale::exercises()]
        .into_iter()
        .flatten()
        .collect()
}

/// Eight devices on an explicit axis.
fn line() -> Result<Mesh> {
    Mesh::new([("X", 8)])
}

/// Eight devices on an auto axis.
fn auto_line() -> Result<Mesh> {
    Mesh::auto([("X", 8)])
}

/// Two rows of four devices.
fn grid() -> Result<Mesh> {
    Mesh::new([("X", 2), ("Y", 4)])
}

/// Random elements, other ones for each number.
fn normal<const RANK: usize>(number: u64, shape: [usize; RANK]) -> Array {
    Key::new(number).normal(shape)
}
