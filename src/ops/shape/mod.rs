//! Shapes: broadcast_in_dim, reshape, transpose, squeeze, expand_dims, rev.

mod broadcast;
mod order;
mod reshape;
mod unit;

pub use broadcast::BroadcastInDim;
pub use order::{Rev, Transpose};
pub use reshape::Reshape;
pub use unit::{ExpandDims, Squeeze};
