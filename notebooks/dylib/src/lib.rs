//! `atmesh` as a shared library, for the cells of notebooks.

pub use atmesh::*;
