//! The static types of atmesh's typed layer: sizes, axes, shapes, and sharding rules as traits.
//!
//! The crate has types only: the arrays of these types are `atmesh::typed::Typed`, which wraps
//! atmesh's dynamic arrays. The crates are separate to compile in parallel: this crate does not
//! know arrays, and atmesh does not know size arithmetic. Programs use this crate as
//! `atmesh::typed`.

pub mod axis;
mod macros;
pub mod manual;
pub mod region;
pub mod rules;
#[doc(hidden)]
pub mod sealed;
pub mod sets;
pub mod shape;
pub mod size;
mod text;

#[doc(hidden)]
pub use atmesh_typed_macros as notation;
pub use text::{print, text};
pub use typenum;
