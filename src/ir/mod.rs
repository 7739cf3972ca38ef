//! The intermediate representation: programs, the primitives, and program transformations.

pub mod grad;
pub mod ops;
pub mod program;
pub mod vmap;
