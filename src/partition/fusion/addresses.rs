//! Compares the indices and the addresses at which the members of a group read and store.

use super::plan::FusionMember;
use crate::partition::buffers::index::{LoopVec, MAX_LOOPS};

/// Returns true if the indices of member `a`, in dimensions of the group, are among those of `b`.
///
/// Loops are given by their sizes and their number.
pub(super) fn is_within(
    a: &FusionMember,
    a_loops: (&LoopVec, usize),
    b: &FusionMember,
    b_loops: (&LoopVec, usize),
) -> bool {
    let range = |m: &FusionMember, (ext, n): (&LoopVec, usize), d: usize| {
        let found = (0..n).find(|l| m.dims[*l] as usize == d);
        found.map_or((0, 1), |l| (m.shift[l], m.shift[l] + ext[l]))
    };
    (0..MAX_LOOPS).all(|d| {
        let (own, other) = (range(a, a_loops, d), range(b, b_loops, d));
        other.0 <= own.0 && own.1 <= other.1
    })
}

/// Returns true if member `a` reads, at each of its indices, the address at which `b` stores there.
///
/// An access is its offset, its strides and its loops; `ext` has the sizes of the loops of `a`.
pub(super) fn same_address(
    a: &FusionMember,
    (offset, strides, n): (i64, &LoopVec, usize),
    b: &FusionMember,
    (stored, rank): (&LoopVec, usize),
    ext: &LoopVec,
) -> bool {
    let step = |m: &FusionMember, strides: &LoopVec, n: usize, d: usize| {
        (0..n).filter(|l| m.dims[*l] as usize == d).map(|l| strides[l]).sum::<i64>()
    };
    let start =
        |m: &FusionMember, strides: &LoopVec, n: usize| (0..n).map(|l| strides[l] * m.shift[l]).sum::<i64>();
    let mut apart = offset - start(a, strides, n) + start(b, stored, rank);
    for d in 0..MAX_LOOPS {
        let (read, store) = (step(a, strides, n, d), step(b, stored, rank, d));
        if read != store {
            // the strides may differ along a dimension of one index
            let Some(l) = (0..n).find(|l| a.dims[*l] as usize == d && ext[*l] == 1) else { return false };
            apart += (read - store) * a.shift[l];
        }
    }
    apart == 0
}
