//! The operations of scans as functions on whole groups.
//!
//! This code is compiled for each combination of type and operation. The rest of the module
//! `prefix_sum` calls it through function pointers, and is compiled only once for each type.

use super::{CumulativeOp, GROUP_ELEMENTS, NUM_ADJACENT_ROWS, ScanElement};

/// An operation on elements of type `W`, as functions on whole groups.
pub(crate) struct ScanOps<W> {
    /// The neutral element.
    pub(super) neutral: W,
    /// Combines two elements.
    pub(crate) combine: fn(W, W) -> W,
    /// Combines each element of consecutive groups with those before it.
    ///
    /// Returns the total of the block so far. The arguments are the groups, the number of elements
    /// in the last one, the total of the earlier groups of the block, and the total of the earlier
    /// blocks.
    pub(super) groups: GroupsFn<W>,
    /// Returns the total of the block so far, without the prefix combinations.
    pub(super) totals: fn(&[[W; GROUP_ELEMENTS]], usize, Option<W>) -> W,
    /// Combines elements as `groups` does, for one group of several adjacent rows.
    pub(super) adjacent: AdjacentRowsFn<W>,
}

type GroupsFn<W> = fn(&mut [[W; GROUP_ELEMENTS]], usize, Option<W>, Option<W>) -> W;
type AdjacentRowsFn<W> = fn(
    &mut [[W; NUM_ADJACENT_ROWS]; GROUP_ELEMENTS],
    usize,
    Option<[W; NUM_ADJACENT_ROWS]>,
    Option<[W; NUM_ADJACENT_ROWS]>,
) -> [W; NUM_ADJACENT_ROWS];

/// Builds the functions of an operation.
macro_rules! with {
    ($neutral:expr, $two:expr) => {
        ScanOps {
            neutral: $neutral,
            combine: $two,
            groups: |v, last, carry, before| groups(v, last, carry, before, $two),
            totals: |v, last, carry| totals(v, last, carry, $two),
            adjacent: |v, last, carry, before| {
                groups(std::slice::from_mut(v), last, carry, before, |a, b| combine_rows(a, b, $two))
            },
        }
    };
}

impl<W: ScanElement<Wide = W>> ScanOps<W> {
    /// Returns a minimum or maximum for types that have no other scans, such as bool.
    pub(super) fn extreme(kind: CumulativeOp) -> ScanOps<W> {
        match kind {
            CumulativeOp::Max => with!(W::MIN, W::larger),
            CumulativeOp::Min => with!(W::MAX, W::smaller),
            _ => unreachable!("bools were rejected"),
        }
    }
    /// Returns the operation for types without an order, such as complex numbers.
    pub(super) fn number(kind: CumulativeOp) -> ScanOps<W> {
        match kind {
            CumulativeOp::Sum => with!(W::ZERO, W::plus),
            CumulativeOp::Prod => with!(W::ONE, W::times),
            _ => unreachable!("complex numbers were rejected"),
        }
    }
    /// Returns the operation for ordered numbers, such as integers.
    pub(super) fn ordered(kind: CumulativeOp) -> ScanOps<W> {
        match kind {
            CumulativeOp::Sum | CumulativeOp::Prod => ScanOps::number(kind),
            CumulativeOp::Max | CumulativeOp::Min => ScanOps::extreme(kind),
            CumulativeOp::LogSumExp => unreachable!("integers were rejected"),
        }
    }
    /// Returns the operation for floats.
    pub(super) fn float(kind: CumulativeOp) -> ScanOps<W> {
        match kind {
            CumulativeOp::LogSumExp => with!(W::MIN, log_add),
            _ => ScanOps::ordered(kind),
        }
    }
}

/// Returns log(eᵃ + eᵇ).
fn log_add<W: ScanElement<Wide = W>>(a: W, b: W) -> W {
    let most = W::larger(a, b);
    let off = if a == b { 0.0 } else { W::smaller(a, b).to_f64() - most.to_f64() };
    W::plus(most, W::from_f64(off.exp().ln_1p()))
}

/// Computes [`ScanOps::groups`] for the operation `f`.
#[inline(always)]
fn groups<W: Copy>(
    v: &mut [[W; GROUP_ELEMENTS]],
    last: usize,
    carry: Option<W>,
    before: Option<W>,
    f: impl Fn(W, W) -> W + Copy,
) -> W {
    let (end, mut sum) = (v.len() - 1, carry);
    let mut total = v[0][0];
    for (k, v) in v.iter_mut().enumerate() {
        scan_group(v, f);
        if let Some(c) = sum {
            v.iter_mut().for_each(|x| *x = f(c, *x));
        }
        total = v[if k == end { last } else { GROUP_ELEMENTS } - 1];
        sum = Some(total);
        if let Some(b) = before {
            v.iter_mut().for_each(|x| *x = f(b, *x));
        }
    }
    total
}

/// Computes [`ScanOps::totals`] for the operation `f`.
#[inline(always)]
fn totals<W: Copy>(
    v: &[[W; GROUP_ELEMENTS]],
    last: usize,
    carry: Option<W>,
    f: impl Fn(W, W) -> W + Copy,
) -> W {
    let (end, mut sum) = (v.len() - 1, carry);
    let mut total = v[0][0];
    for (k, v) in v.iter().enumerate() {
        total = if k == end && last < GROUP_ELEMENTS {
            scan_partial_group(*v, last, f)
        } else {
            group_total(*v, f)
        };
        if let Some(c) = sum {
            total = f(c, total);
        }
        sum = Some(total);
    }
    total
}

/// Combines the elements of adjacent rows.
#[inline(always)]
pub(super) fn combine_rows<W: Copy>(
    mut a: [W; NUM_ADJACENT_ROWS],
    b: [W; NUM_ADJACENT_ROWS],
    f: impl Fn(W, W) -> W,
) -> [W; NUM_ADJACENT_ROWS] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = f(*a, b);
    }
    a
}

/// Combines each element of a group with those before it.
#[inline(always)]
fn scan_group<W: Copy>(v: &mut [W; GROUP_ELEMENTS], f: impl Fn(W, W) -> W) {
    for d in [1, 2, 4, 8] {
        let before = *v;
        for i in d..GROUP_ELEMENTS {
            v[i] = f(before[i - d], before[i]);
        }
    }
}

/// Returns element `last − 1` of the result of [`scan_group`].
fn scan_partial_group<W: Copy>(mut v: [W; GROUP_ELEMENTS], last: usize, f: impl Fn(W, W) -> W) -> W {
    scan_group(&mut v, f);
    v[last - 1]
}

/// Returns the last element of the result of [`scan_group`].
#[inline(always)]
fn group_total<W: Copy>(mut v: [W; GROUP_ELEMENTS], f: impl Fn(W, W) -> W) -> W {
    for n in [8, 4, 2, 1] {
        for i in 0..n {
            v[i] = f(v[2 * i], v[2 * i + 1]);
        }
    }
    v[0]
}
