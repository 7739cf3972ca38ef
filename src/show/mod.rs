//! What programs and arrays look like: as text, in the terminal and as images.

pub(crate) mod format;
mod moves;
mod picture;
pub(crate) mod print;
mod svg;
mod table;

pub use moves::Moves;
pub(crate) use moves::{Cell, Row, Stage};
pub use picture::Picture;
