//! The primitives that change shapes.
//!
//! They are `broadcast_in_dim`, `reshape`, `transpose`, `squeeze`, `expand_dims` and `rev`. All are
//! structural: they move elements and compute nothing.

mod broadcast;
mod reshape;
mod squeeze;
mod transpose;

pub use broadcast::BroadcastInDim;
pub use reshape::Reshape;
pub use squeeze::{ExpandDims, Squeeze};
pub use transpose::{Rev, Transpose};
