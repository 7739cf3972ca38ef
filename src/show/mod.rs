//! What programs and arrays look like: in the terminal and as images.

mod picture;
mod svg;
mod table;

pub use picture::Picture;
