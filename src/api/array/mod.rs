//! The public methods of [`Array`], by topic, and the types of their arguments.
//!
//! A method checks its arguments, resolves dimensions and indices, broadcasts and converts
//! operands, and applies a primitive of `ops` through `trace`: eagerly, or recorded into the
//! current trace. Ill-typed calls return an array that carries the error, with the user's operands
//! and source line. The array handle itself is defined in `trace`.
//!
//! Methods whose names end in `_at` implement public ones for a given call site. A method that is
//! composed of others passes them its own call site, so that errors name the method that the user
//! called.

/// Writes public methods that pass their arguments and their own call site to a function `…_at`.
///
/// The text after `or` is the form of the call that states the result's sharding, for errors.
macro_rules! forward { ($(
    $(#[$doc:meta])*
    pub fn $name:ident($($arg:ident: $ty:ty),*) = $at:ident($($value:expr),*) $(, or $form:literal)?;
)*) => {$(
    $(#[$doc])*
    #[track_caller]
    pub fn $name(&self, $($arg: $ty),*) -> Array {
        self.$at($($value,)* CallSite::here(stringify!($name))$(.with_explicit_form($form))?)
    }
)*} }

// The order of these modules is the order of the methods in the documentation.
mod creation;

mod spaced;

mod sharding;

mod assembly;
mod shards;

mod storage;

mod host;

pub(crate) mod files;

#[cfg(feature = "dlpack")]
mod dlpack;

mod elementwise;

mod rounding;

mod comparison;

mod bits;

mod complex;

mod reductions;

mod extremes;

mod statistics;

mod shapes;

mod ragged;
mod rearrange;

mod pad_mode;

mod concat;

mod diagonals;

mod calculus;

mod products;

mod ragged_rows;

mod tensordot;

mod at;

mod take;

mod segments;

mod search;

mod gather_scatter;

mod sort_scan;

mod fourier;

mod linalg;

mod matrix_functions;

mod windows;

mod pooling;

mod collective_options;
mod collectives;

mod operand;

// Helper modules.
mod contraction;
mod dims;
mod einsum;
mod errors;
mod index_expr;
mod index_macro;
mod local_update;
mod operators;
mod prims;
mod text;

pub use crate::api::trace::Array;
pub use crate::ir::ops::indexing::GatherDims;
pub use crate::ir::program::loop_nest::OutOfBounds;
pub use at::IndexUpdate;
pub use calculus::ConvolveMode;
pub use collective_options::{AllToAll, AllToAllSplit, AxisGroups, CollectiveDim, Permutation};
pub use collectives::{axis_index, axis_size};
pub use concat::{concat, stack};
pub use contraction::Contraction;
pub use creation::Countable;
pub(crate) use creation::create_sharded;
pub use dims::Dims;
pub(crate) use dims::resolve_dim;
pub use einsum::{einsum, einsum_to, einsum_with};
pub use host::HostView;
pub use index_expr::{DimIndex, Ellipsis, Index, NewAxis};
pub use index_macro::{RangeBound, RangeStart};
pub use linalg::TriangularOptions;
#[cfg(feature = "typed")]
pub(crate) use operand::reject;
pub use operand::{Operand, Term};
pub(crate) use operand::{convert_weak, default_dtype, fits_dtype};
pub use operators::LeftOperand;
pub use pad_mode::PadMode;
pub use pooling::WindowOptions;
pub use products::DotOptions;
pub use ragged_rows::RaggedRows;
pub use rearrange::{GridIndexing, meshgrid};
pub use shards::Shard;
pub use sort_scan::sort_by_keys;
pub use take::{IndexMode, IndexOptions};
pub use windows::{ConvOptions, Padding};
