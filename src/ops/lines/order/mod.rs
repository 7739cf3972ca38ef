//! The order in which running sums are added up: fixed by the length of the line alone.
//!
//! A line is in blocks of 2¹⁶ elements, a block in groups of 16. Within a group what is 1, then 2, 4 and 8 places before is added to
//! each element; to that comes the sum of the block's groups before it, and to that the sum of the blocks before it. So a line gives
//! the same bits wherever it is in memory, next to others or not, whoever computes which part of it. 16-bit floats are added in float32, and each
//! result is rounded.

#[cfg(test)]
mod tests;
mod vector;
mod with;

pub(super) use with::With;

use super::scan::Running;
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
/// Elements that are taken from a line at a time.
const AT_ONCE: usize = 16 * GROUP;
/// Lines that are side by side in memory and are computed together.
const BESIDE: usize = 16;

/// Elements that run along lines.
pub(super) trait Lane: Element {
    /// What they are combined in.
    type Wide: Lane<Wide = Self::Wide>;
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
    /// How elements are combined, of a kind that they have.
    fn with(kind: Running) -> With<Self::Wide>;
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
macro_rules! lanes { ($($t:ty as $w:ty, $with:ident: [$($limits:expr),*], |$a:ident, $b:ident| $plus:expr, $times:expr, $new_most:expr, $new_least:expr;
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
        fn with(kind: Running) -> With<$w> {
            With::<$w>::$with(kind)
        }
        $($more)?
    }
)*} }
macro_rules! whole { ($($t:ty)*) => { lanes! {$(
    $t as $t, ordered: [0, 1, <$t>::MIN, <$t>::MAX], |a, b| a.wrapping_add(b), a.wrapping_mul(b), b > a, b < a; |x| x, x;
)*} } }
macro_rules! floats { ($($t:ty as $w:ty: |$x:ident| $wide:expr, $narrow:expr; $({ $more:item })?)*) => { lanes! {$(
    $t as $w, float: [-0.0, 1.0, <$w>::NEG_INFINITY, <$w>::INFINITY], |a, b| a + b, a * b, b > a || b.is_nan(), b < a || b.is_nan(); |$x| $wide, $narrow; $({ $more })?
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
    $t as $t, number: [Complex::new(-0.0, -0.0), Complex::ONE, Complex::new(f64::NEG_INFINITY as _, 0.0), Complex::new(f64::INFINITY as _, 0.0)],
        |a, b| a + b, a * b, (b.re, b.im) > (a.re, a.im), (b.re, b.im) < (a.re, a.im); |x| x, x;
)*} } }
complex! { Complex<f32> Complex<f64> }
lanes! { bool as bool, extreme: [false, true, false, true], |a, b| a | b, a & b, b & !a, a & !b; |x| x, x; }

/// Combines each element with all before it (with `reverse`: behind it) along the last dimension.
pub(super) fn scan<T: Lane>(
    x: ArrayViewD<'_, T>,
    mut y: ArrayViewMutD<'_, MaybeUninit<T>>,
    how: How,
    with: &With<T::Wide>,
) {
    let last = x.ndim() - 1;
    // lines side by side in both are computed together
    let beside = |d: &usize| x.strides()[*d] == 1 && y.strides()[*d] == 1 && x.shape()[*d] > 1;
    let beside = if on_a_page!() || x.strides()[last] == 1 { None } else { (0..last).find(beside) };
    match beside {
        Some(d) => {
            let (mut x, mut y) = (x, y);
            x.swap_axes(d, last - 1);
            y.swap_axes(d, last - 1);
            rows(x, y, how, with);
        }
        None => {
            for (x, y) in x.lanes(Axis(last)).into_iter().zip(y.lanes_mut(Axis(last))) {
                line(x, y, None, how, with);
            }
        }
    }
}

/// What each line adds up to; of all dimensions `y` has those over lines.
pub(super) fn totals<T: Lane>(
    x: ArrayViewD<'_, T>,
    mut y: ArrayViewMutD<'_, MaybeUninit<T::Wide>>,
    how: How,
    with: &With<T::Wide>,
) {
    for (x, y) in lanes(x).into_iter().zip(&mut y) {
        let mut sum: Option<T::Wide> = None;
        each_block(x, how, with, &mut |t| sum = Some(sum.map_or(t, |s| (with.two)(s, t))));
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
    with: &With<T::Wide>,
) {
    let mut y = y.into_iter();
    each_block(x, how, with, &mut |t| {
        y.next().map(|y| y.write(t));
    });
}

/// Calls back with what each block of a line adds up to, in order.
fn each_block<T: Lane>(x: ArrayView1<'_, T>, how: How, with: &With<T::Wide>, put: &mut dyn FnMut(T::Wide)) {
    let mut room = Room::default();
    for start in (0..x.len()).step_by(BLOCK) {
        let block = part(x, start, BLOCK.min(x.len() - start), how.reverse);
        let m = block.len();
        let whole = m / GROUP * GROUP;
        // whole groups need no running sums, only the last one of each: a tree over it
        let quick =
            part(block, 0, whole, how.reverse).as_slice().and_then(|x| T::sums(x, None, None, how, 0));
        let mut carry = quick;
        for i in (if quick.is_some() { whole } else { 0 }..m).step_by(AT_ONCE) {
            let (v, last) = room.filled(part(block, i, AT_ONCE.min(m - i), how.reverse), how.reverse);
            carry = Some((with.totals)(v, last, carry));
        }
        if let Some(carry) = carry {
            put(carry);
        }
    }
}

/// m elements from the i-th on, counted from the end with `reverse`, as they are in memory.
fn part<T>(x: ArrayView1<'_, T>, i: usize, m: usize, reverse: bool) -> ArrayView1<'_, T> {
    let n = x.len();
    x.slice_move(if reverse { s![n - i - m..n - i] } else { s![i..i + m] })
}

/// Elements of a few groups on their way from a line and back.
struct Room<W>([[W; GROUP]; AT_ONCE / GROUP]);

impl<W: Lane<Wide = W>> Default for Room<W> {
    fn default() -> Self {
        Room([[W::ZERO; GROUP]; AT_ONCE / GROUP])
    }
}

impl<W: Lane<Wide = W>> Room<W> {
    /// The groups of these elements, and how many the last one has: the last element fills it up.
    fn filled<T: Lane<Wide = W>>(
        &mut self,
        x: ArrayView1<'_, T>,
        reverse: bool,
    ) -> (&mut [[W; GROUP]], usize) {
        let m = x.len();
        let room = &mut self.0.as_flattened_mut()[..m.next_multiple_of(GROUP)];
        let put = |(v, x): (&mut W, &T)| *v = x.wide();
        match (x.as_slice(), reverse) {
            (Some(x), false) => room.iter_mut().zip(x).for_each(put),
            (Some(x), true) => room.iter_mut().zip(x.iter().rev()).for_each(put),
            (None, false) => room.iter_mut().zip(x).for_each(put),
            (None, true) => room.iter_mut().zip(x.into_iter().rev()).for_each(put),
        }
        let last = room[m - 1];
        room[m..].fill(last);
        (&mut self.0[..m.div_ceil(GROUP)], (m - 1) % GROUP + 1)
    }
    /// Writes the elements where they belong.
    fn emptied<T: Lane<Wide = W>>(&self, mut y: ArrayViewMut1<'_, MaybeUninit<T>>, reverse: bool) {
        let room = &self.0.as_flattened()[..y.len()];
        let put = |(y, v): (&mut MaybeUninit<T>, &W)| {
            y.write(T::narrow(*v));
        };
        match (y.as_slice_mut(), reverse) {
            (Some(y), false) => y.iter_mut().zip(room).for_each(put),
            (Some(y), true) => y.iter_mut().rev().zip(room).for_each(put),
            (None, false) => y.iter_mut().zip(room).for_each(put),
            (None, true) => y.iter_mut().rev().zip(room).for_each(put),
        }
    }
}

/// Each element replaced by what those before it add up to.
pub(super) fn before<W: Lane<Wide = W>>(
    x: ArrayViewD<'_, W>,
    y: ArrayViewMutD<'_, MaybeUninit<W>>,
    reverse: bool,
    with: &With<W>,
) {
    for (x, mut y) in lanes(x).into_iter().zip(lanes_mut(y)) {
        let mut sum: Option<W> = None;
        for k in 0..x.len() {
            let i = if reverse { x.len() - 1 - k } else { k };
            y[i].write(sum.unwrap_or(with.neutral));
            sum = Some(sum.map_or(x[i], |s| (with.two)(s, x[i])));
        }
    }
}

/// As [`scan`], behind what came before: of each line the first of `before`.
pub(super) fn on<T: Lane>(
    x: ArrayViewD<'_, T>,
    before: ArrayViewD<'_, T::Wide>,
    y: ArrayViewMutD<'_, MaybeUninit<T>>,
    how: How,
    with: &With<T::Wide>,
) {
    for ((x, before), y) in lanes(x).into_iter().zip(lanes(before)).zip(lanes_mut(y)) {
        line(x, y, before.first().copied(), how, with);
    }
}

/// Lines that are side by side in memory: the last dimension runs along, that before it over them.
fn rows<T: Lane>(
    x: ArrayViewD<'_, T>,
    mut y: ArrayViewMutD<'_, MaybeUninit<T>>,
    how: How,
    with: &With<T::Wide>,
) {
    if x.ndim() > 2 {
        return x.outer_iter().zip(y.outer_iter_mut()).for_each(|(x, y)| rows(x, y, how, with));
    }
    if let (Ok(x), Ok(y)) = (x.into_dimensionality::<Ix2>(), y.into_dimensionality::<Ix2>()) {
        columns(x, y, how, with);
    }
}

/// One line, behind what came before it.
pub(super) fn line<T: Lane>(
    x: ArrayView1<'_, T>,
    mut y: ArrayViewMut1<'_, MaybeUninit<T>>,
    mut before: Option<T::Wide>,
    how: How,
    with: &With<T::Wide>,
) {
    let (n, bytes) = (x.len(), x.len() * size_of::<T>());
    let mut room = Room::default();
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        let whole = (end - start) / GROUP * GROUP;
        // of the block's groups before
        let mut carry: Option<T::Wide> = None;
        let at = |i: usize, m: usize| if how.reverse { n - i - m..n - i } else { i..i + m };
        if let (Some(x), Some(y)) = (x.as_slice(), y.as_slice_mut()) {
            carry = T::sums(&x[at(start, whole)], Some(&mut y[at(start, whole)]), before, how, bytes);
        }
        for i in (start + if carry.is_some() { whole } else { 0 }..end).step_by(AT_ONCE) {
            let m = AT_ONCE.min(end - i);
            let (v, last) = room.filled(part(x, i, m, how.reverse), how.reverse);
            carry = Some((with.groups)(v, last, carry, before));
            room.emptied(y.slice_mut(s![at(i, m)]), how.reverse);
        }
        before = match (before, carry) {
            (Some(b), Some(c)) => Some((with.two)(b, c)),
            (b, c) => b.or(c),
        };
    }
}

/// Lines that are side by side in memory: the first dimension runs over them, the second along.
fn columns<T: Lane>(
    x: ArrayView2<'_, T>,
    mut y: ArrayViewMut2<'_, MaybeUninit<T>>,
    how: How,
    with: &With<T::Wide>,
) {
    let (lines, n) = x.dim();
    let whole = lines / BESIDE * BESIDE;
    let at = |i: usize| if how.reverse { n - 1 - i } else { i };
    let mut v = [[T::Wide::ZERO; BESIDE]; GROUP];
    for c in (0..whole).step_by(BESIDE) {
        let x = x.slice(s![c..c + BESIDE, ..]);
        let mut y = y.slice_mut(s![c..c + BESIDE, ..]);
        let mut before = None;
        for start in (0..n).step_by(BLOCK) {
            let end = n.min(start + BLOCK);
            let mut carry = None;
            for i in (start..end).step_by(GROUP) {
                let m = GROUP.min(end - i);
                for (j, v) in v.iter_mut().enumerate() {
                    let x = x.index_axis(Axis(1), at(i + j.min(m - 1)));
                    match x.as_slice() {
                        Some(x) => v.iter_mut().zip(x).for_each(|(v, x)| *v = x.wide()),
                        None => v.iter_mut().zip(x).for_each(|(v, x)| *v = x.wide()),
                    }
                }
                carry = Some((with.beside)(&mut v, m, carry, before));
                for (j, v) in v[..m].iter().enumerate() {
                    y.index_axis_mut(Axis(1), at(i + j)).iter_mut().zip(v).for_each(|(y, v)| {
                        y.write(T::narrow(*v));
                    });
                }
            }
            before = match (before, carry) {
                (Some(b), Some(c)) => Some(with::each(b, c, with.two)),
                (b, c) => b.or(c),
            };
        }
    }
    for c in whole..lines {
        line::<T>(x.index_axis(Axis(0), c), y.index_axis_mut(Axis(0), c), None, how, with);
    }
}
