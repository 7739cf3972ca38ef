//! Random orders.

use super::Key;
use crate::array::{Array, dim, sort_together};
use crate::ops::indexing::{Gather, Places};
use crate::program::Call;
use crate::program::sentence::Beyond;
use crate::trace::apply1;
use crate::types::{DType, Scalar, Shape};
use std::sync::Arc;

impl Key {
    /// What is along a dimension of `x` in a random order: of a matrix the rows (0) or the columns (1). Every order is equally likely.
    /// The dimension is unsharded, others may be sharded any way; the type is that of `x`.
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
        let call = Call::here("permutation");
        let Ok(ty) = x.ty() else { return x.clone() };
        let axis = match dim(d.into(), ty.rank()) {
            Ok(axis) => axis,
            Err(fault) => return x.refuse(fault, call),
        };
        let n = ty.shape[axis];
        if ty.rank() == 1 {
            return self.shuffled(x.clone(), n);
        }
        let order = self.shuffled(Array::iota(DType::I32.of([n]), 0), n);
        let mut sizes: Shape = ty.shape.clone();
        sizes.sizes_mut()[axis] = 1;
        let (at, fill) = (Places::rows(ty.rank(), axis, 1, Beyond::Clip), Scalar::zero(ty.dtype));
        let rows = Gather { at, sizes, fill, out: None };
        apply1(Arc::new(rows), &[x.into(), (&order.reshape([n, 1])).into()], call)
    }
    /// The n elements of a vector in the order of random bits, so many times that bits which are equal matter to none.
    fn shuffled(&self, mut x: Array, n: usize) -> Array {
        let rounds = (3.0 * (n.max(1) as f64).ln() / f64::from(u32::MAX).ln()).ceil() as usize;
        let mut key = self.clone();
        for _ in 0..rounds {
            let [next, sub] = key.split();
            key = next;
            x = sort_together([&sub.bits([n]), &x], 1, 0).swap_remove(1);
        }
        x
    }
}
