//! The types of atmesh's typed layer: sizes, mesh axes, shapes as tuples of dims, and the rules of shardings as traits, for rustc to check.
//!
//! Nothing here is a value: the arrays that have these types are `atmesh::typed::Typed`, over atmesh's own arrays. The two are
//! apart so that neither needs the other's compile time: this crate knows nothing of arrays, atmesh nothing of how sizes are divided.
//! Programs use it as `atmesh::typed`.

pub mod axis;
mod macros;
pub mod manual;
pub mod rules;
pub mod sets;
pub mod shape;
pub mod size;
mod text;

#[doc(hidden)]
pub use atmesh_typed_macros as notation;
pub use text::{print, text};
pub use typenum;
