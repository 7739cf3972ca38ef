//! What programs and arrays look like: as text, in the terminal and as images.

pub(crate) mod format;
mod picture;
pub(crate) mod print;
mod svg;
mod table;

pub use picture::Picture;
