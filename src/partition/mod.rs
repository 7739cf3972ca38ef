//! From a placed program to one per-device program: regions, fetches, partial sums, and the report of what is communicated.

mod draft;
mod lay;
mod layout;
mod lower;
mod pieces;
mod price;
mod program;
pub mod reads;
pub mod region;
mod report;
mod told;

pub use lay::Localised;
pub use layout::{DimLayout, Layout};
pub use lower::localise;
pub use pieces::Piece;
pub use program::{Need, Printed, Slot, SpmdProgram, Step, Stored, Why};
pub use report::{Collective, Collectives, Kind};

#[cfg(test)]
mod tests;
