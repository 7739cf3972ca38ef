//! The user-facing API: arrays, function transformations, per-device code and pictures.
//!
//! The API builds programs of the IR. The module `trace` records operations on arrays, or runs them
//! eagerly; the methods of arrays and the transformations are built on it.

pub mod array;
pub mod display;
pub mod random;
pub mod shard_map;
pub mod spmd;
pub mod trace;
pub mod transform;
pub mod tree;
#[cfg(feature = "typed")]
pub mod typed;
