//! Random permutations of arrays.
//!
//! A vector is shuffled by sorting it by random bits. An array of higher rank is permuted by
//! gathering its slices in the order of a shuffled vector of indices.

use super::Key;
use crate::api::array::{Array, resolve_dim, sort_by_keys};
use crate::api::trace::apply1;
use crate::core::{DType, Scalar, Shape};
use crate::ir::ops::indexing::{Gather, GatherDims};
use crate::ir::program::{CallSite, OutOfBounds};
use std::sync::Arc;

impl Key {
    /// Shuffles `x` along dimension `d`; every permutation is equally likely.
    ///
    /// Whole slices move: of a matrix, the rows (`d = 0`) or the columns (`d = 1`). The result has
    /// the type of `x`. Dimension `d` must be unsharded; other dimensions may be sharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).permutation(&Array::arange(0..8), 0);
    /// assert_eq!(x.sort(0).to_vec::<i32>()?, [0, 1, 2, 3, 4, 5, 6, 7]);
    /// let rows = Key::new(1).permutation(&Array::arange(0..6).reshape([3, 2]), 0);
    /// assert_eq!(rows.sum(1).sort(0).to_vec::<i32>()?, [1, 5, 9]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "shuffle")]
    #[track_caller]
    pub fn permutation(&self, x: &Array, d: i32) -> Array {
        let call = CallSite::here("permutation");
        let Ok(ty) = x.ty() else { return x.clone() };
        let axis = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| x.reject(fault, call));
        let n = ty.shape[axis];
        if ty.rank() == 1 {
            return self.shuffle_vector(x.clone(), n);
        }
        let order = self.shuffle_vector(Array::iota(DType::I32.array_type([n]), 0), n);
        let mut sizes: Shape = ty.shape.clone();
        sizes.sizes_mut()[axis] = 1;
        let (at, fill) = (GatherDims::rows(ty.rank(), axis, 1, OutOfBounds::Clip), Scalar::zero(ty.dtype));
        let rows = Gather { dims: at, slice_sizes: sizes, fill, out_sharding: None };
        apply1(Arc::new(rows), &[x.into(), (&order.reshape([n, 1])).into()], call)
    }
    /// Shuffles a vector of n elements by sorting it by random keys.
    ///
    /// Equal random keys would bias the order, so the sort is repeated with new keys until their
    /// effect is negligible.
    fn shuffle_vector(&self, mut x: Array, n: usize) -> Array {
        let rounds = (3.0 * (n.max(1) as f64).ln() / f64::from(u32::MAX).ln()).ceil() as usize;
        let mut key = self.clone();
        for _ in 0..rounds {
            let [next, sub] = key.split();
            key = next;
            x = sort_by_keys([&sub.bits([n]), &x], 1, 0).swap_remove(1);
        }
        x
    }
}
