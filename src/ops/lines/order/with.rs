//! How elements are combined, group by group: all that is compiled for each type and each operation.

use super::super::scan::Running;
use super::{BESIDE, GROUP, Lane};

/// An operation on elements that are combined in `W`, as functions on whole groups.
pub(crate) struct With<W> {
    /// What changes nothing.
    pub(super) neutral: W,
    /// Two elements.
    pub(in crate::ops::lines) two: fn(W, W) -> W,
    /// Each element of groups that follow one another combined with those before it: of its group, of the block's groups before (the first option),
    /// of the blocks before (the second). The last group has so many elements. Says what the block adds up to so far.
    pub(super) groups: Groups<W>,
    /// What that would be, and nothing else.
    pub(super) totals: fn(&[[W; GROUP]], usize, Option<W>) -> W,
    /// The same of lines side by side, of one group of so many elements.
    pub(super) beside: Beside<W>,
}

type Groups<W> = fn(&mut [[W; GROUP]], usize, Option<W>, Option<W>) -> W;
type Beside<W> =
    fn(&mut [[W; BESIDE]; GROUP], usize, Option<[W; BESIDE]>, Option<[W; BESIDE]>) -> [W; BESIDE];

/// The functions of an operation. On WebAssembly a page loads few bytes rather than fast loops: the loops are one for each type.
macro_rules! with {
    ($W:ident, $neutral:expr, $two:expr) => {{
        #[cfg(not(target_family = "wasm"))]
        let with = With {
            neutral: $neutral,
            two: $two,
            groups: |v, last, carry, before| groups(v, last, carry, before, $two),
            totals: |v, last, carry| totals(v, last, carry, $two),
            beside: |v, last, carry, before| {
                groups(std::slice::from_mut(v), last, carry, before, |a, b| each(a, b, $two))
            },
        };
        #[cfg(target_family = "wasm")]
        let with = With {
            neutral: $neutral,
            two: $two,
            groups: |v, last, carry, before| groups(v, last, carry, before, $two as fn($W, $W) -> $W),
            totals: |v, last, carry| totals(v, last, carry, $two as fn($W, $W) -> $W),
            // (there lines that are side by side are one by one)
            beside: |_, _, _, _| unreachable!("no line is beside others"),
        };
        with
    }};
}

impl<W: Lane<Wide = W>> With<W> {
    /// Of bools.
    pub(super) fn extreme(kind: Running) -> With<W> {
        match kind {
            Running::Max => with!(W, W::LEAST, W::most),
            Running::Min => with!(W, W::MOST, W::least),
            _ => unreachable!("bools were refused"),
        }
    }
    /// Of complex numbers.
    pub(super) fn number(kind: Running) -> With<W> {
        match kind {
            Running::Sum => with!(W, W::ZERO, W::plus),
            Running::Prod => with!(W, W::ONE, W::times),
            _ => unreachable!("complex numbers were refused"),
        }
    }
    /// Of integers.
    pub(super) fn ordered(kind: Running) -> With<W> {
        match kind {
            Running::Sum | Running::Prod => With::number(kind),
            Running::Max | Running::Min => With::extreme(kind),
            Running::LogSumExp => unreachable!("integers were refused"),
        }
    }
    /// Of floats.
    pub(super) fn float(kind: Running) -> With<W> {
        match kind {
            Running::LogSumExp => with!(W, W::LEAST, log_add),
            _ => With::ordered(kind),
        }
    }
}

/// log(eᵃ + eᵇ).
fn log_add<W: Lane<Wide = W>>(a: W, b: W) -> W {
    let most = W::most(a, b);
    let off = if a == b { 0.0 } else { W::least(a, b).to_f64() - most.to_f64() };
    W::plus(most, W::of(off.exp().ln_1p()))
}

/// As [`With::groups`].
#[cfg_attr(not(target_family = "wasm"), inline(always))]
fn groups<W: Copy>(
    v: &mut [[W; GROUP]],
    last: usize,
    carry: Option<W>,
    before: Option<W>,
    f: impl Fn(W, W) -> W + Copy,
) -> W {
    let (end, mut sum) = (v.len() - 1, carry);
    let mut total = v[0][0];
    for (k, v) in v.iter_mut().enumerate() {
        within(v, f);
        if let Some(c) = sum {
            v.iter_mut().for_each(|x| *x = f(c, *x));
        }
        total = v[if k == end { last } else { GROUP } - 1];
        sum = Some(total);
        if let Some(b) = before {
            v.iter_mut().for_each(|x| *x = f(b, *x));
        }
    }
    total
}

/// As [`With::totals`].
#[cfg_attr(not(target_family = "wasm"), inline(always))]
fn totals<W: Copy>(v: &[[W; GROUP]], last: usize, carry: Option<W>, f: impl Fn(W, W) -> W + Copy) -> W {
    let (end, mut sum) = (v.len() - 1, carry);
    let mut total = v[0][0];
    for (k, v) in v.iter().enumerate() {
        total = if k == end && last < GROUP { partial(*v, last, f) } else { tree(*v, f) };
        if let Some(c) = sum {
            total = f(c, total);
        }
        sum = Some(total);
    }
    total
}

/// Lines side by side.
#[inline(always)]
pub(super) fn each<W: Copy>(mut a: [W; BESIDE], b: [W; BESIDE], f: impl Fn(W, W) -> W) -> [W; BESIDE] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = f(*a, b);
    }
    a
}

/// Each of a group combined with those before it.
#[inline(always)]
fn within<W: Copy>(v: &mut [W; GROUP], f: impl Fn(W, W) -> W) {
    for d in [1, 2, 4, 8] {
        let before = *v;
        for i in d..GROUP {
            v[i] = f(before[i - d], before[i]);
        }
    }
}

/// The last of so many, as [`within`] makes it.
fn partial<W: Copy>(mut v: [W; GROUP], last: usize, f: impl Fn(W, W) -> W) -> W {
    within(&mut v, f);
    v[last - 1]
}

/// The last of a whole group combined with those before it, as [`within`] makes it.
#[inline(always)]
fn tree<W: Copy>(mut v: [W; GROUP], f: impl Fn(W, W) -> W) -> W {
    for n in [8, 4, 2, 1] {
        for i in 0..n {
            v[i] = f(v[2 * i], v[2 * i + 1]);
        }
    }
    v[0]
}
