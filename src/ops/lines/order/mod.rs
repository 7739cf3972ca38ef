//! The order in which running sums are added up: fixed by the length of the line alone.
//!
//! A line is in blocks of 2¹⁶ elements, a block in groups of 16. Within a group what is 1, then 2, 4 and 8 places before is added to
//! each element; to that comes the sum of the block's groups before it, and to that the sum of the blocks before it. So a line gives
//! the same bits wherever it is in memory, next to others or not, whoever computes which part of it. 16-bit floats are added in float32, and each
//! result is rounded.

#[cfg(test)]
mod tests;
mod vector;

use super::{lanes, lanes_mut};
use crate::types::{Element, Number, Scalar};
use half::{bf16, f16};
use ndarray::{
    ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut1, ArrayViewMut2, ArrayViewMutD, Axis, Ix2, s,
};
use num_complex::Complex;
use std::mem::MaybeUninit;

/// Elements of a block.
pub(super) const BLOCK: usize = 1 << 16;
/// Elements of a group.
const GROUP: usize = 16;
/// Lines that are side by side in memory and are computed together.
const BESIDE: usize = 16;

/// Elements that run along lines.
pub(super) trait Lane: Element {
    /// What they are combined in.
    type Wide: Element;
    /// Added, it changes nothing.
    const ZERO: Self::Wide;
    const ONE: Self::Wide;
    const LEAST: Self::Wide;
    const MOST: Self::Wide;
    /// The nearest one.
    fn of(x: f64) -> Self::Wide;
    fn wide(self) -> Self::Wide;
    fn narrow(x: Self::Wide) -> Self;
    fn plus(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn times(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// NaN where either is.
    fn most(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// NaN where either is.
    fn least(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// As [`vector::sums`], where that knows elements of this type.
    fn sums(
        _: &[Self],
        _: Option<&mut [MaybeUninit<Self>]>,
        _: Option<Self::Wide>,
        _: How,
        _: usize,
    ) -> Option<Self::Wide> {
        None
    }
}

/// How a line runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// From the end.
    pub(super) reverse: bool,
    /// By sums.
    pub(super) sum: bool,
}
macro_rules! lanes { ($($t:ty as $w:ty: [$($limits:expr),*], |$a:ident, $b:ident| $plus:expr, $times:expr, $new_most:expr, $new_least:expr;
    |$x:ident| $wide:expr, $narrow:expr; $({ $more:item })?)*) => {$(
    impl Lane for $t {
        type Wide = $w;
        const ZERO: $w = [$($limits),*][0];
        const ONE: $w = [$($limits),*][1];
        const LEAST: $w = [$($limits),*][2];
        const MOST: $w = [$($limits),*][3];
        #[inline(always)]
        fn of(x: f64) -> $w {
            <$w as Number>::of_scalar(Scalar::Float(x))
        }
        #[inline(always)]
        fn wide(self) -> $w {
            let $x = self;
            $wide
        }
        #[inline(always)]
        fn narrow($x: $w) -> $t {
            $narrow
        }
        #[inline(always)]
        fn plus($a: $w, $b: $w) -> $w {
            $plus
        }
        #[inline(always)]
        fn times($a: $w, $b: $w) -> $w {
            $times
        }
        #[inline(always)]
        fn most($a: $w, $b: $w) -> $w {
            if $new_most { $b } else { $a }
        }
        #[inline(always)]
        fn least($a: $w, $b: $w) -> $w {
            if $new_least { $b } else { $a }
        }
        $($more)?
    }
)*} }
macro_rules! whole { ($($t:ty)*) => { lanes! {$(
    $t as $t: [0, 1, <$t>::MIN, <$t>::MAX], |a, b| a.wrapping_add(b), a.wrapping_mul(b), b > a, b < a; |x| x, x;
)*} } }
macro_rules! floats { ($($t:ty as $w:ty: |$x:ident| $wide:expr, $narrow:expr; $({ $more:item })?)*) => { lanes! {$(
    $t as $w: [-0.0, 1.0, <$w>::NEG_INFINITY, <$w>::INFINITY], |a, b| a + b, a * b, b > a || b.is_nan(), b < a || b.is_nan(); |$x| $wide, $narrow; $({ $more })?
)*} } }
whole! { i8 i16 i32 i64 u8 u16 u32 u64 }
floats! {
    f32 as f32: |x| x, x;
        {
            fn sums(x: &[f32], y: Option<&mut [MaybeUninit<f32>]>, before: Option<f32>, how: How, line: usize) -> Option<f32> {
                if how.sum { vector::sums(x, y, before, how.reverse, line) } else { None }
            }
        }
    f64 as f64: |x| x, x;
    f16 as f32: |x| x.to_f32(), f16::from_f32(x);
    bf16 as f32: |x| x.to_f32(), bf16::from_f32(x);
}
macro_rules! complex { ($($t:ty)*) => { lanes! {$(
    $t as $t: [Complex::new(-0.0, -0.0), Complex::ONE, Complex::new(f64::NEG_INFINITY as _, 0.0), Complex::new(f64::INFINITY as _, 0.0)],
        |a, b| a + b, a * b, (b.re, b.im) > (a.re, a.im), (b.re, b.im) < (a.re, a.im); |x| x, x;
)*} } }
complex! { Complex<f32> Complex<f64> }
lanes! { bool as bool: [false, true, false, true], |a, b| a | b, a & b, b & !a, a & !b; |x| x, x; }

/// Combines each element with all before it (with `reverse`: behind it) along the last dimension.
pub(super) fn scan<T: Lane>(
    x: ArrayViewD<'_, T>,
    mut y: ArrayViewMutD<'_, MaybeUninit<T>>,
    how: How,
    f: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
) {
    let last = x.ndim() - 1;
    // lines side by side in both are computed together
    let beside = |d: &usize| x.strides()[*d] == 1 && y.strides()[*d] == 1 && x.shape()[*d] > 1;
    let beside = if x.strides()[last] == 1 { None } else { (0..last).find(beside) };
    match beside {
        Some(d) => {
            let (mut x, mut y) = (x, y);
            x.swap_axes(d, last - 1);
            y.swap_axes(d, last - 1);
            rows(x, y, &mut |x, y| columns(x, y, how, f));
        }
        None => {
            for (x, y) in x.lanes(Axis(last)).into_iter().zip(y.lanes_mut(Axis(last))) {
                line(x, y, None, how, f);
            }
        }
    }
}

/// What each line adds up to; of all dimensions `y` has those over lines.
pub(super) fn totals<T: Lane>(
    x: ArrayViewD<'_, T>,
    mut y: ArrayViewMutD<'_, MaybeUninit<T::Wide>>,
    how: How,
    f: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
) {
    for (x, y) in lanes(x).into_iter().zip(&mut y) {
        let mut sum: Option<T::Wide> = None;
        each_block(&x, how, f, |t| sum = Some(sum.map_or(t, |s| f(s, t))));
        if let Some(sum) = sum {
            y.write(sum);
        }
    }
}

/// What each block of a line adds up to.
pub(super) fn blocks_of<T: Lane>(
    x: ArrayView1<'_, T>,
    y: ArrayViewMut1<'_, MaybeUninit<T::Wide>>,
    how: How,
    f: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
) {
    let mut y = y.into_iter();
    each_block(&x, how, f, |t| {
        y.next().map(|y| y.write(t));
    });
}

/// Calls back with what each block of a line adds up to, in order.
fn each_block<T: Lane>(
    x: &ArrayView1<'_, T>,
    how: How,
    f: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
    mut put: impl FnMut(T::Wide),
) {
    let n = x.len();
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        let block = x.slice(if how.reverse { s![n - end..n - start] } else { s![start..end] });
        let m = block.len();
        let whole = m / GROUP * GROUP;
        // whole groups need no running sums, only the last one of each: a tree over it
        let quick = block.as_slice().and_then(|x| {
            let x = if how.reverse { &x[m - whole..] } else { &x[..whole] };
            T::sums(x, None, None, how, 0)
        });
        let mut carry = quick;
        for i in (0..m).step_by(GROUP).skip(if quick.is_some() { whole / GROUP } else { 0 }) {
            let w = GROUP.min(m - i);
            let v = taken(&block, i, w, how.reverse);
            let last = if w == GROUP { tree(v, f) } else { within(v, f)[w - 1] };
            carry = Some(carry.map_or(last, |c| f(c, last)));
        }
        if let Some(carry) = carry {
            put(carry);
        }
    }
}

/// Each element replaced by what those before it add up to.
pub(super) fn before<W: Copy>(
    x: ArrayViewD<'_, W>,
    y: ArrayViewMutD<'_, MaybeUninit<W>>,
    reverse: bool,
    neutral: W,
    f: impl Fn(W, W) -> W,
) {
    for (x, mut y) in lanes(x).into_iter().zip(lanes_mut(y)) {
        let mut sum: Option<W> = None;
        let mut one = |i: usize| {
            y[i].write(sum.unwrap_or(neutral));
            sum = Some(sum.map_or(x[i], |s| f(s, x[i])));
        };
        match reverse {
            false => (0..x.len()).for_each(&mut one),
            true => (0..x.len()).rev().for_each(&mut one),
        }
    }
}

/// As [`scan`], behind what came before: of each line the first of `before`.
pub(super) fn on<T: Lane>(
    x: ArrayViewD<'_, T>,
    before: ArrayViewD<'_, T::Wide>,
    y: ArrayViewMutD<'_, MaybeUninit<T>>,
    how: How,
    f: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
) {
    for ((x, before), y) in lanes(x).into_iter().zip(lanes(before)).zip(lanes_mut(y)) {
        line(x, y, before.first().copied(), how, f);
    }
}

/// Calls `f` with the last two dimensions, at each index of those before.
fn rows<T, U>(
    x: ArrayViewD<'_, T>,
    mut y: ArrayViewMutD<'_, U>,
    f: &mut impl FnMut(ArrayView2<'_, T>, ArrayViewMut2<'_, U>),
) {
    if x.ndim() > 2 {
        return x.outer_iter().zip(y.outer_iter_mut()).for_each(|(x, y)| rows(x, y, f));
    }
    if let (Ok(x), Ok(y)) = (x.into_dimensionality::<Ix2>(), y.into_dimensionality::<Ix2>()) {
        f(x, y);
    }
}

/// One line, behind what came before it.
pub(super) fn line<T: Lane>(
    x: ArrayView1<'_, T>,
    mut y: ArrayViewMut1<'_, MaybeUninit<T>>,
    before: Option<T::Wide>,
    how: How,
    f: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
) {
    let (n, bytes) = (x.len(), x.len() * size_of::<T>());
    if let (Some(x), Some(y)) = (x.as_slice(), y.as_slice_mut()) {
        // of how many places from the i-th on, where they are
        let at = |i: usize, m: usize| if how.reverse { n - i - m..n - i } else { i..i + m };
        let y = std::cell::RefCell::new(y);
        let quick = |i: usize, m: usize, before: Option<T::Wide>| {
            T::sums(&x[at(i, m)], Some(&mut y.borrow_mut()[at(i, m)]), before, how, bytes)
        };
        let load = |i: usize, m: usize| match how.reverse {
            false => group(&x[at(i, m)], |x| x.wide()),
            true => from_end(&x[at(i, m)], |x| x.wide()),
        };
        let store = |i: usize, m: usize, mut v: [T::Wide; GROUP]| {
            if how.reverse {
                v[..m].reverse();
            }
            for (y, v) in y.borrow_mut()[at(i, m)].iter_mut().zip(v) {
                y.write(T::narrow(v));
            }
        };
        return blocks(n, before, quick, load, store, f);
    }
    let at = |i: usize| if how.reverse { n - 1 - i } else { i };
    let load = |i: usize, m: usize| taken(&x, i, m, how.reverse);
    let store = |i: usize, m: usize, v: [T::Wide; GROUP]| {
        for (j, v) in v.into_iter().take(m).enumerate() {
            y[at(i + j)].write(T::narrow(v));
        }
    };
    blocks(n, before, |_, _, _| None, load, store, f);
}

/// A group of m elements from the i-th on, counted from the end with `reverse`; of fewer than a group the last one fills it up.
fn taken<T: Lane>(x: &ArrayView1<'_, T>, i: usize, m: usize, reverse: bool) -> [T::Wide; GROUP] {
    std::array::from_fn(|j| {
        let k = i + j.min(m - 1);
        x[if reverse { x.len() - 1 - k } else { k }].wide()
    })
}

/// A group of these elements; of fewer than a group the last one fills it up.
#[inline(always)]
fn group<T: Copy, W>(x: &[T], f: impl Fn(T) -> W) -> [W; GROUP] {
    match <&[T; GROUP]>::try_from(x) {
        Ok(x) => x.map(f),
        Err(_) => std::array::from_fn(|j| f(x[j.min(x.len() - 1)])),
    }
}

/// The same from the end.
#[inline(always)]
fn from_end<T: Copy, W: Copy>(x: &[T], f: impl Fn(T) -> W) -> [W; GROUP] {
    match <&[T; GROUP]>::try_from(x) {
        Ok(x) => {
            let mut v = x.map(f);
            v.reverse();
            v
        }
        Err(_) => std::array::from_fn(|j| f(x[x.len() - 1 - j.min(x.len() - 1)])),
    }
}

/// Lines that are side by side in memory: the first dimension runs over them, the second along.
fn columns<T: Lane>(
    x: ArrayView2<'_, T>,
    mut y: ArrayViewMut2<'_, MaybeUninit<T>>,
    how: How,
    f: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
) {
    let (lines, n) = x.dim();
    let whole = lines / BESIDE * BESIDE;
    let at = |i: usize| if how.reverse { n - 1 - i } else { i };
    for c in (0..whole).step_by(BESIDE) {
        let x = x.slice(s![c..c + BESIDE, ..]);
        let mut y = y.slice_mut(s![c..c + BESIDE, ..]);
        let row = |i: usize| -> [T::Wide; BESIDE] {
            match x.column(at(i)).as_slice().and_then(|x| <&[T; BESIDE]>::try_from(x).ok()) {
                Some(x) => x.map(T::wide),
                None => std::array::from_fn(|c| x[[c, at(i)]].wide()),
            }
        };
        let load = |i: usize, m: usize| std::array::from_fn(|j| row(i + j.min(m - 1)));
        let store = |i: usize, m: usize, v: [[T::Wide; BESIDE]; GROUP]| {
            for (j, v) in v.into_iter().take(m).enumerate() {
                y.column_mut(at(i + j)).iter_mut().zip(v).for_each(|(y, v)| {
                    y.write(T::narrow(v));
                });
            }
        };
        let each = |a: [T::Wide; BESIDE], b: [T::Wide; BESIDE]| std::array::from_fn(|c| f(a[c], b[c]));
        blocks(n, None, |_, _, _| None, load, store, each);
    }
    for c in whole..lines {
        line::<T>(x.index_axis(Axis(0), c), y.index_axis_mut(Axis(0), c), None, how, f);
    }
}

/// The tree, behind what came before: `load` gives a group of m elements from i on, `store` takes what they become. `quick` may do both for the m
/// elements of whole groups of a block, from i on, behind what came before it, and says what they add up to.
#[inline(always)]
fn blocks<W: Copy>(
    n: usize,
    mut before: Option<W>,
    quick: impl Fn(usize, usize, Option<W>) -> Option<W>,
    load: impl Fn(usize, usize) -> [W; GROUP],
    mut store: impl FnMut(usize, usize, [W; GROUP]),
    f: impl Fn(W, W) -> W + Copy,
) {
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        // of the block's groups before
        let whole = (end - start) / GROUP;
        let mut carry: Option<W> = quick(start, whole * GROUP, before);
        for i in (start..end).step_by(GROUP).skip(if carry.is_some() { whole } else { 0 }) {
            let m = GROUP.min(end - i);
            let mut v = within(load(i, m), f);
            if let Some(c) = carry {
                v = v.map(|x| f(c, x));
            }
            carry = Some(v[m - 1]);
            if let Some(b) = before {
                v = v.map(|x| f(b, x));
            }
            store(i, m, v);
        }
        before = match (before, carry) {
            (Some(b), Some(c)) => Some(f(b, c)),
            (b, c) => b.or(c),
        };
    }
}

/// Each of a group combined with those before it.
#[inline(always)]
fn within<W: Copy>(mut v: [W; GROUP], f: impl Fn(W, W) -> W) -> [W; GROUP] {
    let mut d = 1;
    while d < GROUP {
        let before = v;
        for i in d..GROUP {
            v[i] = f(before[i - d], before[i]);
        }
        d *= 2;
    }
    v
}

/// The last of a whole group combined with those before it, as [`within`] makes it.
#[inline(always)]
fn tree<W: Copy>(v: [W; GROUP], f: impl Fn(W, W) -> W) -> W {
    let a: [W; 8] = std::array::from_fn(|i| f(v[2 * i], v[2 * i + 1]));
    let b: [W; 4] = std::array::from_fn(|i| f(a[2 * i], a[2 * i + 1]));
    f(f(b[0], b[1]), f(b[2], b[3]))
}
