//! Kernels of whole rows: sorts, prefix sums, selections and Fourier transforms of 1-D slices, and
//! products of groups of rows.

pub(crate) mod fft;
pub(crate) mod merge_sort;
pub(crate) mod prefix_sum;
pub(crate) mod radix_sort;
pub(crate) mod ragged_dot;
pub(crate) mod sort_key;
pub(crate) mod top_k;

use ndarray::{ArrayView1, ArrayViewD, ArrayViewMut1, ArrayViewMutD, Axis};

/// Returns the rows of a view along its last dimension.
pub(crate) fn lanes<T>(x: ArrayViewD<'_, T>) -> Vec<ArrayView1<'_, T>> {
    let mut list = Vec::new();
    fn add<'a, T>(x: ArrayViewD<'a, T>, list: &mut Vec<ArrayView1<'a, T>>) {
        if x.ndim() > 1 {
            return (0..x.len_of(Axis(0))).for_each(|i| add(x.clone().index_axis_move(Axis(0), i), list));
        }
        list.extend(x.into_dimensionality());
    }
    add(x, &mut list);
    list
}

/// Returns the mutable rows of a view along its last dimension.
pub(crate) fn lanes_mut<T>(y: ArrayViewMutD<'_, T>) -> Vec<ArrayViewMut1<'_, T>> {
    let mut list = Vec::new();
    fn add<'a, T>(mut y: ArrayViewMutD<'a, T>, list: &mut Vec<ArrayViewMut1<'a, T>>) {
        if y.ndim() > 1 {
            while y.len_of(Axis(0)) > 0 {
                let (first, rest) = y.split_at(Axis(0), 1);
                add(first.index_axis_move(Axis(0), 0), list);
                y = rest;
            }
            return;
        }
        list.extend(y.into_dimensionality());
    }
    add(y, &mut list);
    list
}
