//! From a placed program to one per-device program: regions, fetches, partial sums, and the report of what is communicated.

mod branches;
#[cfg(debug_assertions)]
mod check;
mod choose;
mod collective;
mod control;
mod cost;
mod draft;
mod fetch;
mod frames;
mod hoist;
mod layout;
mod lines;
mod lower;
mod manual;
mod names;
mod own;
mod plan;
mod prices;
mod print;
mod program;
pub mod reads;
pub mod region;
mod report;
mod varying;
mod views;

pub use fetch::Piece;
pub use layout::{DimLayout, Layout};
pub use program::{Need, Printed, Slot, SpmdProgram, Step, Stored, Why};
pub use report::{Collective, Collectives, Kind};

use crate::diagnostic::Result;
use crate::program::Program;

/// One per-device program, and what it communicates.
#[derive(Clone, Debug)]
pub struct Localised {
    /// The per-device program.
    pub program: SpmdProgram,
    /// Every collective, with its bytes, source line and reason.
    pub collectives: Collectives,
}

/// Localises a program in which every variable is placed.
pub fn localise(program: &Program) -> Result<Localised> {
    control::whole(program, control::devices(program))
}

#[cfg(test)]
mod tests;
