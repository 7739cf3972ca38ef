//! The primitives, a file for each family, each with all its rules.
//!
//! Adding one touches its family's file and [`PRIMITIVES`]. A rule that is missing does not compile; what stands in the list is
//! tested for completeness and appears in the tables of the book.

pub mod build;
pub mod creation;
pub mod elementwise;
mod pending;
pub mod product;
pub mod random;
pub mod reduce;

use crate::program::Prim;
use crate::types::ArrayType;

/// One line of the list of primitives.
pub struct Entry {
    /// Its name, as programs print it.
    pub name: &'static str,
    /// The family it belongs to: the file that it stands in.
    pub family: &'static str,
    /// An instance, and types of operands that it takes.
    pub example: fn() -> (Prim, Vec<ArrayType>),
}

/// All primitives, by family.
pub const PRIMITIVES: &[Entry] = &[
    // elementwise

    // reduce

    // product

    // creation

    // random

    // shape

    // slicing

    // sharding

    // collective
];
