//! Matrix products on one thread.
//!
//! An element of a product of two matrices of floats is a sum in one order, whatever computes it: its terms are cut into panels of 512; the
//! terms of a panel are added in order, each by a fused multiply-add where the level has that (`cpu`), and the panels' sums in order. Large
//! products go to the `gemm` crate, a panel at a time, because of which neither its own cuts nor the machine's caches matter; tiny ones
//! are plain loops. A product with a vector has an order of its own, by its length and by what is contiguous.
//!
//! Products of complex numbers, as those of integers, have no panels: each element's terms are added in order.
//!
//! Which order that is depends on the whole product ([`Way`]), and not on the tile of it that a call computes.

mod crates;
#[cfg(target_arch = "x86_64")]
mod few;
#[cfg(test)]
mod tests;
mod vector;

use super::Buffer;
use super::cpu;
use crate::types::DType;
use num_complex::Complex;
use vector::{columns as columns_body, dots as dots_body};

/// Up to this many products a plain loop is faster than packing.
const TINY: usize = 4096;
/// So many terms are added before their sum is added to those before.
pub(crate) const PANEL: usize = 512;
/// Columns of a result that a loop keeps in registers.
const COLUMNS: usize = 32;

/// What the whole product is, of which a call computes a tile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// Of two matrices.
    Matrices,
    /// Of a matrix and a vector: one column.
    Column,
    /// Of a vector and a matrix: one row.
    Row,
}

impl Way {
    /// That of a result with so many rows and columns.
    pub fn of(rows: usize, columns: usize) -> Way {
        match (rows, columns) {
            (_, 1) => Way::Column,
            (1, _) => Way::Row,
            _ => Way::Matrices,
        }
    }
}

/// `dst = lhs·rhs`, or with `accumulate` `dst += lhs·rhs`: m×k by k×n, strides in elements of `dtype`.
///
/// `accumulate` adds the product as it would be by itself, rounded to `dtype`: so sums over blocks do not depend on who adds them.
/// Integers wrap.
///
/// Each element of a product of matrices of floats that is not added to anything is multiplied by `by`, in a rounding of its own; a product of more
/// than [`PANEL`] terms and all others have 1 there.
///
/// # Safety
/// All elements that sizes and strides name are within memory of the type and `dst`'s are distinct, writable, and none of an operand's.
///
/// # Panics
/// If `dtype` is neither an integer type nor float32, float64 or complex.
#[expect(clippy::too_many_arguments, reason = "the form in which every library has it")]
pub unsafe fn gemm(
    dtype: DType,
    way: Way,
    m: usize,
    k: usize,
    n: usize,
    dst: *mut u8,
    dst_rs: isize,
    dst_cs: isize,
    lhs: *const u8,
    lhs_rs: isize,
    lhs_cs: isize,
    rhs: *const u8,
    rhs_rs: isize,
    rhs_cs: isize,
    accumulate: bool,
    by: f64,
) {
    macro_rules! run {
        ($f:ident, $T:ty $(, $by:ident)?) => {{
            let c = Out { at: dst.cast::<$T>(), rs: dst_rs, cs: dst_cs };
            let a = Mat { at: lhs.cast::<$T>(), rs: lhs_rs, cs: lhs_cs };
            let b = Mat { at: rhs.cast::<$T>(), rs: rhs_rs, cs: rhs_cs };
            // SAFETY: the caller's
            unsafe { $f(way, Sizes { m, k, n }, c, a, b, accumulate $(, $by)?) }
        }};
    }
    match dtype {
        DType::F32 => run!(floats, f32, by),
        DType::F64 => run!(floats, f64, by),
        DType::C64 => run!(ints, Complex<f32>),
        DType::C128 => run!(ints, Complex<f64>),
        // (they wrap, so that a sign changes nothing)
        DType::I8 | DType::U8 => run!(ints, u8),
        DType::I16 | DType::U16 => run!(ints, u16),
        DType::I32 | DType::U32 => run!(ints, u32),
        DType::I64 | DType::U64 => run!(ints, u64),
        DType::F16 | DType::BF16 | DType::Bool | DType::Key => panic!("no products of {dtype}"),
    }
}

/// `dst += part`, m×n: strides in elements of `dtype`.
///
/// # Safety
/// All elements that sizes and strides name are within memory of the type, and no two of them are one.
///
/// # Panics
/// As [`gemm`].
pub(crate) unsafe fn plus(
    dtype: DType,
    (m, n): (usize, usize),
    dst: (*mut u8, isize, isize),
    part: (*mut u8, isize, isize),
) {
    macro_rules! run {
        ($T:ty) => {{
            let matrix = |x: (*mut u8, isize, isize)| Out { at: x.0.cast::<$T>(), rs: x.1, cs: x.2 };
            // SAFETY: the caller's
            unsafe { add(Sizes { m, k: 0, n }, matrix(dst), matrix(part)) }
        }};
    }
    match dtype {
        DType::F32 => run!(f32),
        DType::F64 => run!(f64),
        DType::C64 => run!(Complex<f32>),
        DType::C128 => run!(Complex<f64>),
        DType::I8 | DType::U8 => run!(u8),
        DType::I16 | DType::U16 => run!(u16),
        DType::I32 | DType::U32 => run!(u32),
        DType::I64 | DType::U64 => run!(u64),
        DType::F16 | DType::BF16 | DType::Bool | DType::Key => panic!("no products of {dtype}"),
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    m: usize,
    k: usize,
    n: usize,
}

/// An operand: where its first element is, and the distances between rows and columns.
#[derive(Clone, Copy)]
struct Mat<T> {
    at: *const T,
    rs: isize,
    cs: isize,
}
impl<T: Copy> Mat<T> {
    #[inline(always)]
    fn row(self, i: usize) -> *const T {
        self.at.wrapping_offset(i as isize * self.rs)
    }
    /// # Safety
    /// Row i and column j are of the matrix.
    #[inline(always)]
    unsafe fn get(self, i: usize, j: usize) -> T {
        // SAFETY: the caller's: the element is of the matrix
        unsafe { *self.row(i).offset(j as isize * self.cs) }
    }
    fn flip(self) -> Mat<T> {
        Mat { at: self.at, rs: self.cs, cs: self.rs }
    }
    /// From row i and column j on.
    fn from(self, i: usize, j: usize) -> Mat<T> {
        Mat { at: self.row(i).wrapping_offset(j as isize * self.cs), ..self }
    }
}
/// A result.
#[derive(Clone, Copy)]
struct Out<T> {
    at: *mut T,
    rs: isize,
    cs: isize,
}
impl<T: Num> Out<T> {
    /// # Safety
    /// Row i and column j are of the matrix, whose element is written if it is added to.
    #[inline(always)]
    unsafe fn put(self, i: usize, j: usize, x: T, accumulate: bool) {
        // SAFETY: the caller's: the element is of the matrix
        unsafe {
            let at = self.at.offset(i as isize * self.rs + j as isize * self.cs);
            *at = if accumulate { (*at).plus(x) } else { x };
        }
    }
    fn flip(self) -> Out<T> {
        Out { at: self.at, rs: self.cs, cs: self.rs }
    }
}

trait Num: Copy + 'static {
    const ZERO: Self;
    fn plus(self, x: Self) -> Self;
    /// `self·x + y`, fused from level 1 on.
    fn fma<const L: u8>(self, x: Self, y: Self) -> Self;
    /// A float multiplied.
    fn times(self, _: f64) -> Self {
        self
    }
    /// The sums of 16 rows, halved again and again.
    ///
    /// # Safety
    /// The processor has level `L`.
    #[inline(always)]
    unsafe fn halved<const L: u8>(rows: &[[Self; 16]; 16]) -> [Self; 16] {
        vector::halved(rows)
    }
}
macro_rules! ints {
    ($($T:ident)*) => { $(
        impl Num for $T {
            const ZERO: $T = 0;
            #[inline(always)]
            fn plus(self, x: $T) -> $T { self.wrapping_add(x) }
            #[inline(always)]
            fn fma<const L: u8>(self, x: $T, y: $T) -> $T { self.wrapping_mul(x).wrapping_add(y) }
        }
    )* };
}
ints!(i8 i16 i32 i64 u8 u16 u32 u64);
macro_rules! floats {
    ($T:ident $($more:item)?) => {
        impl Num for $T {
            const ZERO: $T = 0.0;
            #[inline(always)]
            fn plus(self, x: $T) -> $T { self + x }
            #[inline(always)]
            fn fma<const L: u8>(self, x: $T, y: $T) -> $T {
                if L > 0 { self.mul_add(x, y) } else { self * x + y }
            }
            #[inline(always)]
            fn times(self, x: f64) -> $T { self * x as $T }
            $($more)?
        }
    };
}
floats!(f64);
floats!(f32
    #[inline(always)]
    unsafe fn halved<const L: u8>(rows: &[[f32; 16]; 16]) -> [f32; 16] {
        #[cfg(target_arch = "x86_64")]
        if L == 2 {
            // SAFETY: level 2 is AVX-512, and the processor has it
            return unsafe { vector::halved_avx512(rows) };
        }
        vector::halved(rows)
    }
);

macro_rules! complex {
    ($($T:ident)*) => { $(
        impl Num for Complex<$T> {
            const ZERO: Complex<$T> = Complex::new(0.0, 0.0);
            #[inline(always)]
            fn plus(self, x: Complex<$T>) -> Complex<$T> { self + x }
            #[inline(always)]
            fn fma<const L: u8>(self, x: Complex<$T>, y: Complex<$T>) -> Complex<$T> {
                let add = |a: $T, b: $T, c: $T| <$T as Num>::fma::<L>(a, b, c);
                Complex {
                    re: add(-self.im, x.im, add(self.re, x.re, y.re)),
                    im: add(self.im, x.re, add(self.re, x.im, y.im)),
                }
            }
        }
    )* };
}
complex!(f32 f64);

/// Each element's terms in order; rows of the result in runs of columns.
///
/// # Safety
/// As [`gemm`] says; the processor has level `L`.
#[inline(always)]
unsafe fn plain_body<T: Num, const L: u8>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
    // SAFETY: the caller's
    unsafe {
        for i in 0..s.m {
            for from in (0..s.n).step_by(COLUMNS) {
                let width = (s.n - from).min(COLUMNS);
                let mut sums = [T::ZERO; COLUMNS];
                for p in 0..s.k {
                    let x = a.get(i, p);
                    if b.cs == 1 && width == COLUMNS {
                        let row = std::slice::from_raw_parts(b.row(p).add(from), COLUMNS);
                        for j in 0..COLUMNS {
                            sums[j] = x.fma::<L>(row[j], sums[j]);
                        }
                    } else {
                        for (j, sum) in sums[..width].iter_mut().enumerate() {
                            *sum = x.fma::<L>(b.get(p, from + j), *sum);
                        }
                    }
                }
                for (j, sum) in sums[..width].iter().enumerate() {
                    c.put(i, from + j, *sum, accumulate);
                }
            }
        }
    }
}

cpu::for_each_isa! {
    mod plain<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) at L
        => plain_body::<T, L>(s, c, a, b, accumulate);
    mod dots<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) at L
        => dots_body::<T, L>(s, c, a, b, accumulate);
    mod columns<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) at L
        => columns_body::<T, L>(s, c, a, b, accumulate);
}

/// Integers, whose sums have no order, and complex numbers: a vector on either side, else row by row.
///
/// # Safety
/// As [`gemm`] says.
unsafe fn ints<T: Num>(_: Way, s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
    // SAFETY: the caller's
    unsafe {
        match Way::of(s.m, s.n) {
            Way::Matrices => in_order(s, c, a, b, accumulate),
            way => by_vector(way, s, c, a, b, accumulate),
        }
    }
}

/// Each element's terms in order.
///
/// # Safety
/// As [`gemm`] says.
unsafe fn in_order<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
    // SAFETY: the caller's
    unsafe {
        if b.cs != 1 && a.rs == 1 {
            // by columns of the result, which then are contiguous
            let flipped = Sizes { m: s.n, k: s.k, n: s.m };
            return plain::at::<T>(cpu::level())(flipped, c.flip(), b.flip(), a.flip(), accumulate);
        }
        plain::at::<T>(cpu::level())(s, c, a, b, accumulate)
    }
}

/// A product of which one side is a vector, as `way` says.
///
/// # Safety
/// As [`gemm`] says.
unsafe fn by_vector<T: Num>(way: Way, s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
    // SAFETY: the caller's
    unsafe {
        let (s, c, a, b) = match way {
            Way::Row => (Sizes { m: s.n, k: s.k, n: 1 }, c.flip(), b.flip(), a.flip()),
            _ => (s, c, a, b),
        };
        if s.k == 1 {
            return plain::at::<T>(cpu::level())(s, c, a, b, accumulate);
        }
        // short rows are better taken column by column, where these are contiguous
        if a.cs == 1 && !(a.rs == 1 && s.k < 64) {
            if b.rs == 1 {
                return dots::at::<T>(cpu::level())(s, c, a, b, accumulate);
            }
            let (_packed, x) = pack(b, s.k, 1);
            return dots::at::<T>(cpu::level())(s, c, a, Mat { at: x.at, rs: 1, cs: 1 }, accumulate);
        }
        if a.rs == 1 {
            columns::at::<T>(cpu::level())(s, c, a, b, accumulate)
        } else {
            plain::at::<T>(cpu::level())(s, c, a, b, accumulate)
        }
    }
}

/// A matrix copied row by row.
///
/// # Safety
/// It has so many rows and columns.
unsafe fn pack<T: Num>(x: Mat<T>, rows: usize, cols: usize) -> (Buffer, Mat<T>) {
    let mut packed = Buffer::within(rows * cols * size_of::<T>());
    let to: *mut T = packed.as_mut_ptr().cast();
    for i in 0..rows {
        for j in 0..cols {
            // SAFETY: the caller's; the copy has as many elements
            unsafe { to.add(i * cols + j).write(x.get(i, j)) }
        }
    }
    (packed, Mat { at: to, rs: cols as isize, cs: 1 })
}

/// Products of float32 or of float64, which `T` is.
///
/// # Safety
/// As [`gemm`] says.
unsafe fn floats<T: Num>(way: Way, s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool, by: f64) {
    debug_assert!(by == 1.0 || way == Way::Matrices && s.k <= PANEL && !accumulate);
    // SAFETY: the caller's; scratch has m·n elements
    unsafe {
        if way != Way::Matrices {
            return by_vector(way, s, c, a, b, accumulate);
        }
        if accumulate && s.k > PANEL {
            // the panels are added before their sum is
            let mut scratch = Buffer::within(s.m.saturating_mul(s.n).saturating_mul(size_of::<T>()));
            let by_rows = c.cs.abs() <= c.rs.abs();
            let (rs, cs) = if by_rows { (s.n as isize, 1) } else { (1, s.m as isize) };
            let part = Out { at: scratch.as_mut_ptr().cast(), rs, cs };
            floats(way, s, part, a, b, false, 1.0);
            return add(s, c, part);
        }
        panel(Sizes { k: s.k.min(PANEL), ..s }, c, a, b, accumulate, by);
        for from in (PANEL..s.k).step_by(PANEL) {
            let k = (s.k - from).min(PANEL);
            panel(Sizes { k, ..s }, c, a.from(0, from), b.from(from, 0), true, 1.0);
        }
    }
}

/// `dst += part`, m×n.
///
/// # Safety
/// Both have so many rows and columns, and do not overlap.
unsafe fn add<T: Num>(s: Sizes, c: Out<T>, part: Out<T>) {
    if s.m > 1 && (s.n == 1 || c.cs.abs() > c.rs.abs()) {
        // SAFETY: the caller's
        return unsafe { add(Sizes { m: s.n, n: s.m, ..s }, c.flip(), part.flip()) };
    }
    for i in 0..s.m {
        let row = |x: Out<T>| x.at.wrapping_offset(i as isize * x.rs);
        let (to, from) = (row(c), row(part));
        // SAFETY: the caller's
        unsafe {
            if c.cs == 1 && part.cs == 1 {
                let from = std::slice::from_raw_parts(from, s.n);
                for (to, from) in std::slice::from_raw_parts_mut(to, s.n).iter_mut().zip(from) {
                    *to = to.plus(*from);
                }
                continue;
            }
            for j in 0..s.n as isize {
                let to = to.offset(j * c.cs);
                *to = (*to).plus(*from.offset(j * part.cs));
            }
        }
    }
}

/// A product of at most [`PANEL`] terms, in order, multiplied.
///
/// # Safety
/// As [`gemm`] says; `T` is float32 or float64.
unsafe fn panel<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool, by: f64) {
    // SAFETY: the caller's
    unsafe {
        // (of two terms the crate adds one after the other to what is there; it has ways of its own for vectors)
        if s.m * s.n * s.k <= TINY || s.k <= 2 || s.m == 1 || s.n == 1 || !crates::usable() {
            in_order(s, c, a, b, accumulate);
            return times(s, c, by);
        }
        #[cfg(target_arch = "x86_64")]
        if size_of::<T>() == 4 && cpu::level() == cpu::Level::Avx512 {
            let cast = |c: Out<T>, a: Mat<T>, b: Mat<T>| {
                let side = |x: Mat<T>| Mat { at: x.at.cast::<f32>(), rs: x.rs, cs: x.cs };
                (Out { at: c.at.cast::<f32>(), rs: c.rs, cs: c.cs }, side(a), side(b))
            };
            if few::fits(s, c, b) {
                let (of, (c, a, b)) = (c, cast(c, a, b));
                few::product(s, c, a, b, accumulate);
                return times(s, of, by);
            }
            let flipped = Sizes { m: s.n, k: s.k, n: s.m };
            if few::fits(flipped, c.flip(), a.flip()) {
                let (of, (c, a, b)) = (c, cast(c.flip(), b.flip(), a.flip()));
                few::product(flipped, c, a, b, accumulate);
                return times(s, of, by);
            }
        }
        // (and where rows by columns make a few numbers it adds lane by lane)
        if a.cs == 1 && b.rs == 1 && s.m * s.n <= 256 {
            if s.n <= s.m {
                let (_packed, b) = pack(b, s.k, s.n);
                return crates::product(s, c, a, b, accumulate, by);
            }
            let (_packed, a) = pack(a.flip(), s.k, s.m);
            return crates::product(s, c, a.flip(), b, accumulate, by);
        }
        crates::product(s, c, a, b, accumulate, by)
    }
}

/// `dst *= by`, m×n.
///
/// # Safety
/// It has so many rows and columns, all of which are written.
unsafe fn times<T: Num>(s: Sizes, c: Out<T>, by: f64) {
    // (on a page nothing is asked for)
    if on_a_page!() || by == 1.0 {
        return;
    }
    for (i, j) in (0..s.m).flat_map(|i| (0..s.n).map(move |j| (i as isize, j as isize))) {
        // SAFETY: the caller's
        unsafe {
            let at = c.at.offset(i * c.rs + j * c.cs);
            *at = (*at).times(by);
        }
    }
}
