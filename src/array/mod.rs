//! Arrays: the handle, and what programs do with it.

// methods of arrays in the order in which one meets them, which is the order of their documentation
mod creation;

mod sharding;

mod host;

pub(crate) mod npy;

#[cfg(feature = "dlpack")]
mod dlpack;

mod elementwise;

mod complex;

mod reductions;

mod statistics;

mod shapes;

mod rearranged;

mod joins;

mod diagonals;

mod products;

mod vectors;

mod parts;

mod indexing;

mod segments;

mod search;

mod scattered;

mod lines;

mod fourier;

#[cfg(feature = "linalg")]
mod linalg;

mod windows;

mod pooling;

mod collectives;

mod operand;

// what these are made of
mod dims;
mod einsum;
mod index;
mod local;
mod operators;
mod prims;
mod refusals;

pub use crate::ops::indexing::Places;
pub use crate::program::sentence::Beyond;
pub use crate::trace::Array;
pub use collectives::{Exchange, Gather, Permutation, Split, axis_index, axis_size};
pub use creation::Countable;
pub(crate) use creation::made;
pub use dims::Dims;
pub(crate) use dims::dim;
pub use einsum::{einsum, einsum_to, einsum_with};
pub use host::View;
pub use index::{Index, NewAxis, Pick, Rest};
pub use indexing::{IndexOptions, Mode};
pub use joins::{concat, stack};
#[cfg(feature = "linalg")]
pub use linalg::TriangularOptions;
pub use lines::sort_together;
pub(crate) use operand::holds;
pub use operand::{Operand, Term};
pub use parts::At;
pub use pooling::WindowOptions;
pub use products::{Contraction, ProductOptions};
pub use rearranged::{Grid, meshgrid};
pub use sharding::Shard;
pub use windows::{ConvOptions, Padding};
