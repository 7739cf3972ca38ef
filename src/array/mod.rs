//! Arrays: the handle, and what programs do with it.

mod collectives;
mod creation;
mod diagonals;
mod dims;
mod einsum;
mod elementwise;

mod host;
mod index;
mod joins;
mod lines;
mod local;
pub(crate) mod npy;
mod operand;
mod operators;
mod parts;
mod pooling;
mod prims;
mod products;
mod rearranged;
mod reductions;
mod refusals;
mod shapes;
mod sharding;
mod statistics;
mod vectors;
mod windows;

pub use crate::trace::Array;
pub use collectives::{Exchange, Gather, Permutation, Split, axis_index, axis_size};
pub use creation::Countable;
pub(crate) use creation::made;
pub use dims::Dims;
pub(crate) use dims::dim;
pub use einsum::{einsum, einsum_to, einsum_with};
pub use host::View;
pub use index::{Index, NewAxis, Pick, Rest};
pub use joins::{concat, stack};
pub use lines::sort_together;
pub(crate) use operand::holds;
pub use operand::{Operand, Term};
pub use parts::At;
pub use pooling::WindowOptions;
pub use products::{Contraction, ProductOptions};
pub use rearranged::{Grid, meshgrid};
pub use sharding::Shard;
pub use windows::{ConvOptions, Padding};
