//! Arrays: the handle, and what programs do with it.

mod collectives;
mod creation;
mod dims;
mod elementwise;
mod handle;
mod host;
mod index;
mod operand;
mod operators;
mod prims;
mod products;
mod reductions;
mod shapes;
mod sharding;

pub use collectives::{
    Exchange, Gather, Permutation, Split, axis_index, axis_size, ring, shift, split, stacked, tiled,
};
pub use creation::Countable;
pub(crate) use creation::made;
pub(crate) use dims::dim;
pub use dims::{Dims, keep};
pub use handle::Array;
pub(crate) use handle::{Repr, Traced};
pub use host::View;
pub use index::{At, Index, NewAxis, Pick, Rest};
pub use operand::{Operand, Term};
pub use products::{Contraction, ProductOptions, einsum, einsum_to, einsum_with};
pub use shapes::{concat, stack};
pub use sharding::Shard;
