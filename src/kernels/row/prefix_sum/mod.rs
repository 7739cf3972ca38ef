//! Prefix sums in a fixed order of addition, which depends only on the length of the row.
//!
//! A row is divided into blocks of 2¹⁶ elements, and a block into groups of 16. Within a group,
//! there are four passes: each pass adds to every element the element 1, 2, 4 or 8 positions before
//! it. The sum of the earlier groups of the block is added to the result, and then the sum of the
//! earlier blocks. The bits of a row therefore do not depend on its layout in memory, on the other
//! rows, or on how workers share it. 16-bit floats are added in float32, and each result is
//! rounded.

mod scan_ops;
mod simd;
#[cfg(test)]
mod tests;

pub(crate) use scan_ops::ScanOps;

use super::{lanes, lanes_mut};
use crate::core::{Element, Scalar, ScalarElement};
use crate::kernels::cpu;
use half::{bf16, f16};
use ndarray::{
    ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut1, ArrayViewMut2, ArrayViewMutD, Axis, Ix2, s,
};
use num_complex::Complex;
use std::mem::MaybeUninit;

/// The kind of cumulative operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CumulativeOp {
    /// The sum so far.
    Sum,
    /// The product so far.
    Prod,
    /// The maximum so far; NaN from the first NaN on.
    Max,
    /// The minimum so far; NaN from the first NaN on.
    Min,
    /// The logarithm of the sum of the exponentials so far.
    LogSumExp,
}

/// The number of elements in a block.
pub(crate) const BLOCK_ELEMENTS: usize = 1 << 16;
/// The number of elements in a group.
const GROUP_ELEMENTS: usize = 16;
/// The number of elements that are loaded from a row at a time.
const CHUNK_ELEMENTS: usize = 16 * GROUP_ELEMENTS;
/// The number of rows that are computed together if they are adjacent in memory.
const NUM_ADJACENT_ROWS: usize = 16;

/// The element types of prefix sums.
pub(crate) trait ScanElement: Element {
    /// The type in which elements are combined.
    type Wide: ScanElement<Wide = Self::Wide>;
    /// The neutral element of addition.
    const ZERO: Self::Wide;
    const ONE: Self::Wide;
    const MIN: Self::Wide;
    const MAX: Self::Wide;
    /// Returns the nearest value of the type.
    fn from_f64(x: f64) -> Self::Wide;
    fn wide(self) -> Self::Wide;
    fn narrow(x: Self::Wide) -> Self;
    fn plus(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn times(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// Returns the larger value, or NaN if either is NaN.
    fn larger(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// Returns the smaller value, or NaN if either is NaN.
    fn smaller(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// Returns the functions of an operation that is defined for the type.
    fn ops_for(kind: CumulativeOp) -> ScanOps<Self::Wide>;
    /// Computes [`simd::sums`], if it is defined for the type.
    fn simd_sums(
        _: &[Self],
        _: Option<&mut [MaybeUninit<Self>]>,
        _: Option<Self::Wide>,
        _: ScanMode,
        _: usize,
    ) -> Option<Self::Wide> {
        None
    }
}

/// The direction and the kind of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanMode {
    /// True if the scan runs from the end.
    pub(crate) reverse: bool,
    /// True if the scan is a sum, for which there is vector code.
    pub(crate) sum: bool,
}
macro_rules! lanes { ($($t:ty as $w:ty, $with:ident: [$($limits:expr),*], |$a:ident, $b:ident| $plus:expr, $times:expr, $new_most:expr, $new_least:expr;
    |$x:ident| $wide:expr, $narrow:expr; $({ $more:item })?)*) => {$(
    impl ScanElement for $t {
        type Wide = $w;
        const ZERO: $w = [$($limits),*][0];
        const ONE: $w = [$($limits),*][1];
        const MIN: $w = [$($limits),*][2];
        const MAX: $w = [$($limits),*][3];
        #[inline(always)]
        fn from_f64(x: f64) -> $w {
            <$w as ScalarElement>::from_scalar(Scalar::Float(x))
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
        fn larger($a: $w, $b: $w) -> $w {
            if $new_most { $b } else { $a }
        }
        #[inline(always)]
        fn smaller($a: $w, $b: $w) -> $w {
            if $new_least { $b } else { $a }
        }
        fn ops_for(kind: CumulativeOp) -> ScanOps<$w> {
            ScanOps::<$w>::$with(kind)
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
            fn simd_sums(x: &[f32], y: Option<&mut [MaybeUninit<f32>]>, before: Option<f32>, how: ScanMode, line: usize) -> Option<f32> {
                if how.sum { simd::sums(cpu::level(), x, y, before, how.reverse, line) } else { None }
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

/// Combines each element with all elements before it along the last dimension.
/// With `reverse`, it combines each element with all elements after it.
pub(crate) fn scan<T: ScanElement>(
    x: ArrayViewD<'_, T>,
    mut y: ArrayViewMutD<'_, MaybeUninit<T>>,
    how: ScanMode,
    with: &ScanOps<T::Wide>,
) {
    let last = x.ndim() - 1;
    // rows that are adjacent in both arrays are computed together
    let is_adjacent = |d: &usize| x.strides()[*d] == 1 && y.strides()[*d] == 1 && x.shape()[*d] > 1;
    let adjacent = if x.strides()[last] == 1 { None } else { (0..last).find(is_adjacent) };
    match adjacent {
        Some(d) => {
            let (mut x, mut y) = (x, y);
            x.swap_axes(d, last - 1);
            y.swap_axes(d, last - 1);
            scan_adjacent(x, y, how, with);
        }
        None => {
            for (x, y) in x.lanes(Axis(last)).into_iter().zip(y.lanes_mut(Axis(last))) {
                scan_row(x, y, None, how, with);
            }
        }
    }
}

/// Writes the total of each row. The dimensions of `y` are those of `x` except the last one.
pub(crate) fn totals<T: ScanElement>(
    x: ArrayViewD<'_, T>,
    mut y: ArrayViewMutD<'_, MaybeUninit<T::Wide>>,
    how: ScanMode,
    with: &ScanOps<T::Wide>,
) {
    for (x, y) in lanes(x).into_iter().zip(&mut y) {
        let mut sum: Option<T::Wide> = None;
        for_each_block_total(x, how, with, &mut |t| sum = Some(sum.map_or(t, |s| (with.combine)(s, t))));
        if let Some(sum) = sum {
            y.write(sum);
        }
    }
}

/// Writes the total of each block of a row.
pub(crate) fn block_totals<T: ScanElement>(
    x: ArrayView1<'_, T>,
    y: ArrayViewMut1<'_, MaybeUninit<T::Wide>>,
    how: ScanMode,
    with: &ScanOps<T::Wide>,
) {
    let mut y = y.into_iter();
    for_each_block_total(x, how, with, &mut |t| {
        y.next().map(|y| y.write(t));
    });
}

/// Calls `put` with the total of each block of a row, in order.
fn for_each_block_total<T: ScanElement>(
    x: ArrayView1<'_, T>,
    how: ScanMode,
    with: &ScanOps<T::Wide>,
    put: &mut dyn FnMut(T::Wide),
) {
    let mut buffer = GroupBuffer::default();
    for start in (0..x.len()).step_by(BLOCK_ELEMENTS) {
        let block = part(x, start, BLOCK_ELEMENTS.min(x.len() - start), how.reverse);
        let m = block.len();
        let whole = m / GROUP_ELEMENTS * GROUP_ELEMENTS;
        // full groups need no prefix sums, only their total, which is a tree reduction
        let quick =
            part(block, 0, whole, how.reverse).as_slice().and_then(|x| T::simd_sums(x, None, None, how, 0));
        let mut carry = quick;
        for i in (if quick.is_some() { whole } else { 0 }..m).step_by(CHUNK_ELEMENTS) {
            let (v, last) = buffer.load(part(block, i, CHUNK_ELEMENTS.min(m - i), how.reverse), how.reverse);
            carry = Some((with.totals)(v, last, carry));
        }
        if let Some(carry) = carry {
            put(carry);
        }
    }
}

/// Returns the `m` elements from index `i` on, in memory order.
/// With `reverse`, `i` counts from the end.
fn part<T>(x: ArrayView1<'_, T>, i: usize, m: usize, reverse: bool) -> ArrayView1<'_, T> {
    let n = x.len();
    x.slice_move(if reverse { s![n - i - m..n - i] } else { s![i..i + m] })
}

/// A buffer of a few groups, which a row is copied into before its elements are combined.
struct GroupBuffer<W>([[W; GROUP_ELEMENTS]; CHUNK_ELEMENTS / GROUP_ELEMENTS]);

impl<W: ScanElement<Wide = W>> Default for GroupBuffer<W> {
    fn default() -> Self {
        GroupBuffer([[W::ZERO; GROUP_ELEMENTS]; CHUNK_ELEMENTS / GROUP_ELEMENTS])
    }
}

impl<W: ScanElement<Wide = W>> GroupBuffer<W> {
    /// Loads elements into groups.
    ///
    /// Returns the groups, and the number of elements in the last group, which is padded with its
    /// last element.
    fn load<T: ScanElement<Wide = W>>(
        &mut self,
        x: ArrayView1<'_, T>,
        reverse: bool,
    ) -> (&mut [[W; GROUP_ELEMENTS]], usize) {
        let m = x.len();
        let buffer = &mut self.0.as_flattened_mut()[..m.next_multiple_of(GROUP_ELEMENTS)];
        let put = |(v, x): (&mut W, &T)| *v = x.wide();
        match (x.as_slice(), reverse) {
            (Some(x), false) => buffer.iter_mut().zip(x).for_each(put),
            (Some(x), true) => buffer.iter_mut().zip(x.iter().rev()).for_each(put),
            (None, false) => buffer.iter_mut().zip(x).for_each(put),
            (None, true) => buffer.iter_mut().zip(x.into_iter().rev()).for_each(put),
        }
        let last = buffer[m - 1];
        buffer[m..].fill(last);
        (&mut self.0[..m.div_ceil(GROUP_ELEMENTS)], (m - 1) % GROUP_ELEMENTS + 1)
    }
    /// Stores the elements of the buffer.
    fn store<T: ScanElement<Wide = W>>(&self, mut y: ArrayViewMut1<'_, MaybeUninit<T>>, reverse: bool) {
        let buffer = &self.0.as_flattened()[..y.len()];
        let put = |(y, v): (&mut MaybeUninit<T>, &W)| {
            y.write(T::narrow(*v));
        };
        match (y.as_slice_mut(), reverse) {
            (Some(y), false) => y.iter_mut().zip(buffer).for_each(put),
            (Some(y), true) => y.iter_mut().rev().zip(buffer).for_each(put),
            (None, false) => y.iter_mut().zip(buffer).for_each(put),
            (None, true) => y.iter_mut().rev().zip(buffer).for_each(put),
        }
    }
}

/// Replaces each element by the combination of all elements before it.
pub(crate) fn exclusive_scan<W: ScanElement<Wide = W>>(
    x: ArrayViewD<'_, W>,
    y: ArrayViewMutD<'_, MaybeUninit<W>>,
    reverse: bool,
    with: &ScanOps<W>,
) {
    for (x, mut y) in lanes(x).into_iter().zip(lanes_mut(y)) {
        let mut sum: Option<W> = None;
        for k in 0..x.len() {
            let i = if reverse { x.len() - 1 - k } else { k };
            y[i].write(sum.unwrap_or(with.neutral));
            sum = Some(sum.map_or(x[i], |s| (with.combine)(s, x[i])));
        }
    }
}

/// Computes [`scan`] continued from an initial value for each row.
/// The initial value is the first element of the row of `before`.
pub(crate) fn scan_after<T: ScanElement>(
    x: ArrayViewD<'_, T>,
    before: ArrayViewD<'_, T::Wide>,
    y: ArrayViewMutD<'_, MaybeUninit<T>>,
    how: ScanMode,
    with: &ScanOps<T::Wide>,
) {
    for ((x, before), y) in lanes(x).into_iter().zip(lanes(before)).zip(lanes_mut(y)) {
        scan_row(x, y, before.first().copied(), how, with);
    }
}

/// Scans rows that are adjacent in memory.
/// The last dimension runs along the rows, the one before it across them.
fn scan_adjacent<T: ScanElement>(
    x: ArrayViewD<'_, T>,
    mut y: ArrayViewMutD<'_, MaybeUninit<T>>,
    how: ScanMode,
    with: &ScanOps<T::Wide>,
) {
    if x.ndim() > 2 {
        return x.outer_iter().zip(y.outer_iter_mut()).for_each(|(x, y)| scan_adjacent(x, y, how, with));
    }
    if let (Ok(x), Ok(y)) = (x.into_dimensionality::<Ix2>(), y.into_dimensionality::<Ix2>()) {
        scan_columns(x, y, how, with);
    }
}

/// Scans one row, continued from the value `before`.
pub(crate) fn scan_row<T: ScanElement>(
    x: ArrayView1<'_, T>,
    mut y: ArrayViewMut1<'_, MaybeUninit<T>>,
    mut before: Option<T::Wide>,
    how: ScanMode,
    with: &ScanOps<T::Wide>,
) {
    let (n, bytes) = (x.len(), x.len() * size_of::<T>());
    let mut buffer = GroupBuffer::default();
    for start in (0..n).step_by(BLOCK_ELEMENTS) {
        let end = n.min(start + BLOCK_ELEMENTS);
        let whole = (end - start) / GROUP_ELEMENTS * GROUP_ELEMENTS;
        // the total of the earlier groups of the block
        let mut carry: Option<T::Wide> = None;
        let at = |i: usize, m: usize| if how.reverse { n - i - m..n - i } else { i..i + m };
        if let (Some(x), Some(y)) = (x.as_slice(), y.as_slice_mut()) {
            carry = T::simd_sums(&x[at(start, whole)], Some(&mut y[at(start, whole)]), before, how, bytes);
        }
        for i in (start + if carry.is_some() { whole } else { 0 }..end).step_by(CHUNK_ELEMENTS) {
            let m = CHUNK_ELEMENTS.min(end - i);
            let (v, last) = buffer.load(part(x, i, m, how.reverse), how.reverse);
            carry = Some((with.groups)(v, last, carry, before));
            buffer.store(y.slice_mut(s![at(i, m)]), how.reverse);
        }
        before = match (before, carry) {
            (Some(b), Some(c)) => Some((with.combine)(b, c)),
            (b, c) => b.or(c),
        };
    }
}

/// Scans rows that are adjacent in memory.
/// The first dimension runs across the rows, the second along them.
fn scan_columns<T: ScanElement>(
    x: ArrayView2<'_, T>,
    mut y: ArrayViewMut2<'_, MaybeUninit<T>>,
    how: ScanMode,
    with: &ScanOps<T::Wide>,
) {
    let (num_rows, n) = x.dim();
    let whole = num_rows / NUM_ADJACENT_ROWS * NUM_ADJACENT_ROWS;
    let at = |i: usize| if how.reverse { n - 1 - i } else { i };
    let mut v = [[T::Wide::ZERO; NUM_ADJACENT_ROWS]; GROUP_ELEMENTS];
    for c in (0..whole).step_by(NUM_ADJACENT_ROWS) {
        let x = x.slice(s![c..c + NUM_ADJACENT_ROWS, ..]);
        let mut y = y.slice_mut(s![c..c + NUM_ADJACENT_ROWS, ..]);
        let mut before = None;
        for start in (0..n).step_by(BLOCK_ELEMENTS) {
            let end = n.min(start + BLOCK_ELEMENTS);
            let mut carry = None;
            for i in (start..end).step_by(GROUP_ELEMENTS) {
                let m = GROUP_ELEMENTS.min(end - i);
                for (j, v) in v.iter_mut().enumerate() {
                    let x = x.index_axis(Axis(1), at(i + j.min(m - 1)));
                    match x.as_slice() {
                        Some(x) => v.iter_mut().zip(x).for_each(|(v, x)| *v = x.wide()),
                        None => v.iter_mut().zip(x).for_each(|(v, x)| *v = x.wide()),
                    }
                }
                carry = Some((with.adjacent)(&mut v, m, carry, before));
                for (j, v) in v[..m].iter().enumerate() {
                    y.index_axis_mut(Axis(1), at(i + j)).iter_mut().zip(v).for_each(|(y, v)| {
                        y.write(T::narrow(*v));
                    });
                }
            }
            before = match (before, carry) {
                (Some(b), Some(c)) => Some(scan_ops::combine_rows(b, c, with.combine)),
                (b, c) => b.or(c),
            };
        }
    }
    for c in whole..num_rows {
        scan_row::<T>(x.index_axis(Axis(0), c), y.index_axis_mut(Axis(0), c), None, how, with);
    }
}
