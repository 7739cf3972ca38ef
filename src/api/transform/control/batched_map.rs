//! `map` in batches: a loop over batches whose slices are computed simultaneously.

use super::{ReturnedTree, loops::map_at};
use crate::api::array::{Array, concat};
use crate::api::transform::vmap::{VmapOptions, vmap_at};
use crate::api::tree::{self, Args, Output, collect};
use crate::ir::program::CallSite;

/// The options of [`map_with`].
///
/// ```
/// use atmesh::prelude::*;
/// let xs = Array::arange(0..5);
/// let ys = map_with(&xs, |x| &x * &x, MapOptions::default().batch_size(2));
/// assert_eq!(ys.to_vec::<i32>()?, [0, 1, 4, 9, 16]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MapOptions {
    /// The number of slices that are computed simultaneously. Defaults to 1.
    pub batch_size: Option<usize>,
}

impl MapOptions {
    /// Sets the number of slices that are computed simultaneously.
    ///
    /// ```
    /// assert_eq!(atmesh::MapOptions::default().batch_size(8).batch_size, Some(8));
    /// ```
    pub fn batch_size(self, slices: usize) -> MapOptions {
        MapOptions { batch_size: Some(slices) }
    }
}

/// Runs [`map`](crate::map()) with options: in batches of several slices.
///
/// A loop runs over the batches, and [`vmap`](crate::vmap()) computes the slices of a batch. It
/// needs the memory of one batch. Slices that do not fill a batch are computed after the loop.
///
/// ```
/// use atmesh::prelude::*;
/// let xs = Array::from([1, 2, 3, 4, 5]);
/// let ys = map_with(&xs, |x| x * 10, MapOptions::default().batch_size(2));
/// assert_eq!(ys.to_vec::<i32>()?, [10, 20, 30, 40, 50]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn map_with<X: Args, R: Output>(xs: X, f: impl Fn(X::Owned) -> R, options: MapOptions) -> R::Tree {
    let (call, xs) = (CallSite::here("map_with"), xs.into_tree());
    let f = |x| f(x).into_result();
    let together = |xs: &X::Owned| vmap_at(&VmapOptions::default(), xs, &f, call);
    let n = collect(&xs).first().map_or(0, |x| x.dim_size(0));
    let size = match options.batch_size {
        None | Some(1) => return map_at(xs, &f, call),
        Some(0) => {
            let fault = fault!(Shape, "a batch has no slices");
            let error = call.error(fault.help("set a `batch_size` of at least 1"), Vec::new);
            return ReturnedTree::new().poisoned(&error);
        }
        Some(size) if size >= n => return together(&xs),
        Some(size) => size,
    };
    let whole = n - n % size;
    // slices `start..limit` of each array
    let part = |start: usize, limit: usize| {
        tree::map(&xs, |x| if x.dim_size(0) == n { x.slice_dim(0, start, limit, call) } else { x.clone() })
    };
    let batched = tree::map(&part(0, whole), |x| split_batches(x, whole / size, size));
    let batches = map_at(batched, &|batch| Ok(together(&batch)), call);
    let done: R::Tree = tree::map(&batches, |y| merge_batches(y, whole));
    if whole == n { done } else { tree::map2(&done, &together(&part(whole, n)), |a, b| concat([a, b], 0)) }
}

/// Splits the first dimension in two.
#[track_caller]
fn split_batches(x: &Array, count: usize, size: usize) -> Array {
    let rest = x.type_ref().map_or(&[][..], |ty| ty.shape.get(1..).unwrap_or(&[]));
    x.reshape([&[count, size], rest].concat())
}

/// Merges the first two dimensions into one of size `n`.
#[track_caller]
fn merge_batches(x: &Array, n: usize) -> Array {
    let rest = x.type_ref().map_or(&[][..], |ty| ty.shape.get(2..).unwrap_or(&[]));
    x.reshape([&[n], rest].concat())
}
