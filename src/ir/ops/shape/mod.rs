//! The primitives that change shapes.
//!
//! They are `broadcast_in_dim`, `reshape`, `transpose`, `squeeze`, `expand_dims`, `rev` and `roll`.
//! All are structural: they move elements and compute nothing.

mod broadcast;
mod reshape;
mod roll;
mod squeeze;
mod transpose;

pub use broadcast::BroadcastInDim;
pub use reshape::Reshape;
pub use roll::Roll;
pub use squeeze::{ExpandDims, Squeeze};
pub use transpose::{Rev, Transpose};
