//! Matrix products on one thread, with a fixed order of summation.
//!
//! Each element of a product of two float matrices is a sum in a fixed order, whichever code
//! computes it. Its terms are split into panels of 512. The terms of a panel are added in order,
//! each by a fused multiply-add if the level has one (see `cpu`), and the sums of the panels are
//! added in order. Large products use the `gemm` crate, one panel at a time, so that neither its
//! blocking nor the sizes of the machine's caches affect the result; tiny products are plain loops.
//! A product with a vector has a different order, which depends on its length and on which operand
//! is contiguous.
//!
//! Products of integers and of complex numbers have no panels: the terms of each element of complex
//! numbers are added in order, and those of integers in any order.
//!
//! The order depends on the shape of the complete product ([`ProductKind`]), not on the tile of it
//! that a call computes.

#[cfg(target_arch = "x86_64")]
mod few_rows;
pub(crate) mod gathered;
#[cfg(target_arch = "x86_64")]
mod gathered_copies;
mod gathered_sides;
#[cfg(target_arch = "x86_64")]
mod gathered_vectors;
mod gemm_crate;
mod gemv;
mod packed;
#[cfg(target_arch = "x86_64")]
mod small_k;
#[cfg(test)]
mod tests;

use super::buffer::Buffer;
use super::cpu::{self, up_to_level};
use crate::core::DType;
use gemv::{columns as columns_body, dots as dots_body};
use num_complex::Complex;

/// The maximum number of multiply-adds for which a plain loop is faster than packing.
const MAX_UNPACKED_MACS: usize = 4096;
/// The number of terms in a panel.
/// The sum of a panel is completed before it is added to those of earlier panels.
pub(crate) const PANEL_TERMS: usize = 512;
/// The number of columns of a result that a loop keeps in registers.
const TILE_COLUMNS: usize = 32;

/// The kind of the complete product, which determines the order of sums in each of its tiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProductKind {
    /// A product of two matrices.
    MatMat,
    /// A product of a matrix and a vector; the result is one column.
    MatVec,
    /// A product of a vector and a matrix; the result is one row.
    VecMat,
}

impl ProductKind {
    /// Returns the kind of a product whose result has this number of rows and columns.
    pub fn for_shape(rows: usize, columns: usize) -> ProductKind {
        match (rows, columns) {
            (_, 1) => ProductKind::MatVec,
            (1, _) => ProductKind::VecMat,
            _ => ProductKind::MatMat,
        }
    }
}

/// Computes `dst = lhs·rhs`, or `dst += lhs·rhs` with `accumulate`.
///
/// `lhs` is m×k, `rhs` is k×n and `dst` is m×n; strides are in elements of `dtype`. Integers wrap.
///
/// With `accumulate`, the product is rounded to `dtype` before it is added, so that a sum over
/// blocks does not depend on how the blocks are distributed over calls.
///
/// In products of float matrices, each element is then multiplied by `by`, with a separate
/// rounding. `by` must be 1 for all other products, with `accumulate`, and for more than
/// [`PANEL_TERMS`] terms.
///
/// # Safety
/// All elements that the sizes and strides address are within memory of type `dtype`. Those of the
/// operands are initialized. Those of `dst` are distinct and writable, are not elements of an
/// operand, and are initialized with `accumulate`.
///
/// # Panics
/// If `dtype` is not an integer type, float32, float64 or complex.
#[expect(clippy::too_many_arguments, reason = "the form in which every library has it")]
pub unsafe fn gemm(
    dtype: DType,
    way: ProductKind,
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
            let c = MatMut { ptr: dst.cast::<$T>(), rs: dst_rs, cs: dst_cs };
            let a = MatRef { ptr: lhs.cast::<$T>(), rs: lhs_rs, cs: lhs_cs };
            let b = MatRef { ptr: rhs.cast::<$T>(), rs: rhs_rs, cs: rhs_cs };
            // SAFETY: the caller of `gemm` upholds its contract, which is that of these functions
            // too.
            unsafe { $f(way, GemmProblem { s: GemmSizes { m, k, n }, c, a, b, accumulate } $(, $by)?) }
        }};
    }
    match dtype {
        DType::F32 => run!(floats, f32, by),
        DType::F64 => run!(floats, f64, by),
        DType::C64 => run!(unblocked, Complex<f32>),
        DType::C128 => run!(unblocked, Complex<f64>),
        // arithmetic wraps, so signed and unsigned integers give the same bits
        DType::I8 | DType::U8 => run!(integers, u8),
        DType::I16 | DType::U16 => run!(integers, u16),
        DType::I32 | DType::U32 => run!(integers, u32),
        DType::I64 | DType::U64 => run!(integers, u64),
        DType::F16 | DType::BF16 | DType::Bool | DType::Key => panic!("no products of {dtype}"),
    }
}

/// Adds the m×n matrix `part` to `dst`; strides are in elements of `dtype`.
///
/// # Safety
/// All elements that the sizes and strides address are initialized and within memory of type
/// `dtype`. Those of `dst` are writable, and no two elements of the two matrices share memory.
///
/// # Panics
/// If `dtype` is not supported by [`gemm`].
pub(crate) unsafe fn add_partial(
    dtype: DType,
    (m, n): (usize, usize),
    dst: (*mut u8, isize, isize),
    part: (*mut u8, isize, isize),
) {
    macro_rules! run {
        ($T:ty) => {{
            let matrix = |x: (*mut u8, isize, isize)| MatMut { ptr: x.0.cast::<$T>(), rs: x.1, cs: x.2 };
            // SAFETY: the caller of `add_partial` upholds its contract, which is that of `add` too.
            unsafe { add(GemmSizes { m, k: 0, n }, matrix(dst), matrix(part)) }
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
struct GemmSizes {
    m: usize,
    k: usize,
    n: usize,
}

/// An operand: a pointer to its first element, and its row and column strides in elements.
#[derive(Clone, Copy)]
struct MatRef<T> {
    ptr: *const T,
    rs: isize,
    cs: isize,
}
impl<T: Copy> MatRef<T> {
    #[inline(always)]
    fn row(self, i: usize) -> *const T {
        self.ptr.wrapping_offset(i as isize * self.rs)
    }
    /// Reads an element.
    ///
    /// # Safety
    /// Row `i` and column `j` are within the matrix.
    #[inline(always)]
    unsafe fn get(self, i: usize, j: usize) -> T {
        // SAFETY: the element is within the matrix (caller contract).
        unsafe { *self.row(i).offset(j as isize * self.cs) }
    }
    fn transpose(self) -> MatRef<T> {
        MatRef { ptr: self.ptr, rs: self.cs, cs: self.rs }
    }
    /// Returns the submatrix that starts at row `i` and column `j`.
    fn offset(self, i: usize, j: usize) -> MatRef<T> {
        MatRef { ptr: self.row(i).wrapping_offset(j as isize * self.cs), ..self }
    }
}
/// A result: a pointer to its first element, and its row and column strides in elements.
#[derive(Clone, Copy)]
struct MatMut<T> {
    ptr: *mut T,
    rs: isize,
    cs: isize,
}
impl<T: GemmElement> MatMut<T> {
    /// Writes an element, or adds to it.
    ///
    /// # Safety
    /// Row `i` and column `j` are within the matrix. With `accumulate` the element is initialized.
    #[inline(always)]
    unsafe fn put(self, i: usize, j: usize, x: T, accumulate: bool) {
        // SAFETY: the element is within the matrix, and initialized if it is read (caller
        // contract).
        unsafe {
            let at = self.ptr.offset(i as isize * self.rs + j as isize * self.cs);
            *at = if accumulate { (*at).plus(x) } else { x };
        }
    }
    fn transpose(self) -> MatMut<T> {
        MatMut { ptr: self.ptr, rs: self.cs, cs: self.rs }
    }
}

/// A product: `c = a·b`, or `c += a·b` with `accumulate`.
#[derive(Clone, Copy)]
struct GemmProblem<T> {
    s: GemmSizes,
    c: MatMut<T>,
    a: MatRef<T>,
    b: MatRef<T>,
    accumulate: bool,
}
impl<T: GemmElement> GemmProblem<T> {
    /// Returns the same product of transposed matrices.
    fn transpose(self) -> GemmProblem<T> {
        let GemmProblem { s, c, a, b, .. } = self;
        let flipped = GemmSizes { m: s.n, k: s.k, n: s.m };
        GemmProblem { s: flipped, c: c.transpose(), a: b.transpose(), b: a.transpose(), ..self }
    }
}

trait GemmElement: Copy + 'static {
    const ZERO: Self;
    /// The widest level that loops are compiled for, as a number: 2 is AVX-512.
    const WIDEST: u8 = 1;
    fn plus(self, x: Self) -> Self;
    /// Returns `self·x + y`, fused at levels from 1 on.
    fn fma<const L: u8>(self, x: Self, y: Self) -> Self;
    /// Returns the product with a factor, for floats; other types ignore it.
    fn times(self, _: f64) -> Self {
        self
    }
    /// Returns the sum of each of 16 rows; the elements of a row are added pairwise in halves.
    ///
    /// # Safety
    /// The processor has level `L`.
    #[inline(always)]
    unsafe fn sum_lanes<const L: u8>(rows: &[[Self; 16]; 16]) -> [Self; 16] {
        gemv::sum_lanes(rows)
    }
}
macro_rules! ints {
    ($($T:ident $widest:literal)*) => { $(
        impl GemmElement for $T {
            const ZERO: $T = 0;
            const WIDEST: u8 = $widest;
            #[inline(always)]
            fn plus(self, x: $T) -> $T { self.wrapping_add(x) }
            #[inline(always)]
            fn fma<const L: u8>(self, x: $T, y: $T) -> $T { self.wrapping_mul(x).wrapping_add(y) }
        }
    )* };
}
// (only AVX-512 has an instruction that multiplies integers of 64 bits)
ints!(u8 1 u16 1 u32 1 u64 2);
macro_rules! floats {
    ($T:ident $($more:item)?) => {
        impl GemmElement for $T {
            const ZERO: $T = 0.0;
            const WIDEST: u8 = 2;
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
    unsafe fn sum_lanes<const L: u8>(rows: &[[f32; 16]; 16]) -> [f32; 16] {
        #[cfg(target_arch = "x86_64")]
        if L == 2 {
            // SAFETY: level 2 is AVX-512, which the processor has (caller contract).
            return unsafe { gemv::sum_lanes_avx512(rows) };
        }
        gemv::sum_lanes(rows)
    }
);

macro_rules! complex {
    ($($T:ident)*) => { $(
        impl GemmElement for Complex<$T> {
            const ZERO: Complex<$T> = Complex::new(0.0, 0.0);
            #[inline(always)]
            fn plus(self, x: Complex<$T>) -> Complex<$T> { self + x }
            #[inline(always)]
            fn fma<const L: u8>(self, x: Complex<$T>, y: Complex<$T>) -> Complex<$T> {
                let add = |a: $T, b: $T, c: $T| <$T as GemmElement>::fma::<L>(a, b, c);
                Complex {
                    re: add(-self.im, x.im, add(self.re, x.re, y.re)),
                    im: add(self.im, x.re, add(self.re, x.im, y.im)),
                }
            }
        }
    )* };
}
complex!(f32 f64);

/// Adds the terms of each element in order, for several columns of a row at a time.
///
/// # Safety
/// The caller upholds the contract of [`gemm`]; the processor has level `L`.
#[inline(always)]
unsafe fn plain_body<T: GemmElement, const L: u8>(p: GemmProblem<T>) {
    let GemmProblem { s, c, a, b, accumulate } = p;
    // SAFETY: all rows and columns below are within the matrices (caller contract), and a row of
    // `b` is read as a slice only where its columns are contiguous.
    unsafe {
        for i in 0..s.m {
            for from in (0..s.n).step_by(TILE_COLUMNS) {
                let width = (s.n - from).min(TILE_COLUMNS);
                let mut sums = [T::ZERO; TILE_COLUMNS];
                for p in 0..s.k {
                    let x = a.get(i, p);
                    if b.cs == 1 && width == TILE_COLUMNS {
                        let row = std::slice::from_raw_parts(b.row(p).add(from), TILE_COLUMNS);
                        for j in 0..TILE_COLUMNS {
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
    mod plain<T: GemmElement>(p: GemmProblem<T>) at L => plain_body::<T, L>(p);
    mod dots<T: GemmElement>(p: GemmProblem<T>) at L => dots_body::<T, L>(p);
    mod columns<T: GemmElement>(p: GemmProblem<T>) at L => columns_body::<T, L>(p);
}

/// Multiplies integers, whose sums do not depend on the order.
///
/// # Safety
/// The caller upholds the contract of [`gemm`].
unsafe fn integers<T: packed::Integer>(way: ProductKind, p: GemmProblem<T>) {
    // SAFETY: the caller upholds the contract of `gemm`, which is that of these functions too.
    unsafe { if packed::pays(p.s) { packed::product(p) } else { unblocked(way, p) } }
}

/// Multiplies complex numbers, or small matrices of integers.
///
/// # Safety
/// The caller upholds the contract of [`gemm`].
unsafe fn unblocked<T: GemmElement>(way: ProductKind, p: GemmProblem<T>) {
    // SAFETY: the caller upholds the contract of `gemm`, which is that of these functions too.
    unsafe {
        match way {
            ProductKind::MatMat => in_order(p),
            way => gemv(way, p),
        }
    }
}

/// Adds the terms of each element in order.
///
/// # Safety
/// The caller upholds the contract of [`gemm`].
unsafe fn in_order<T: GemmElement>(p: GemmProblem<T>) {
    // SAFETY: the caller upholds the contract of `gemm`, and the processor has the level that
    // `level` returns.
    unsafe {
        // transposed, the inner loop is contiguous
        let p = if p.b.cs != 1 && p.a.rs == 1 { p.transpose() } else { p };
        up_to_level!(plain::<T>, T::WIDEST, cpu::level())(p)
    }
}

/// Multiplies a matrix and a vector; `way` selects the side that is the vector.
///
/// # Safety
/// The caller upholds the contract of [`gemm`].
unsafe fn gemv<T: GemmElement>(way: ProductKind, p: GemmProblem<T>) {
    // SAFETY: the caller upholds the contract of `gemm`, and the processor has the level that
    // `level` returns; `pack` returns `k` contiguous elements, and each kernel gets the strides
    // that it needs.
    unsafe {
        let p = match way {
            ProductKind::VecMat => GemmProblem { s: GemmSizes { n: 1, ..p.transpose().s }, ..p.transpose() },
            _ => p,
        };
        let GemmProblem { s, a, b, .. } = p;
        if s.k == 1 {
            return up_to_level!(plain::<T>, T::WIDEST, cpu::level())(p);
        }
        // short rows are faster column by column if the columns are contiguous
        if a.cs == 1 && !(a.rs == 1 && s.k < 64) {
            if b.rs == 1 {
                return up_to_level!(dots::<T>, T::WIDEST, cpu::level())(p);
            }
            let (_packed, x) = pack(b, s.k, 1);
            let x = MatRef { ptr: x.ptr, rs: 1, cs: 1 };
            return up_to_level!(dots::<T>, T::WIDEST, cpu::level())(GemmProblem { b: x, ..p });
        }
        if a.rs == 1 {
            up_to_level!(columns::<T>, T::WIDEST, cpu::level())(p)
        } else {
            up_to_level!(plain::<T>, T::WIDEST, cpu::level())(p)
        }
    }
}

/// Copies a matrix into a new row-major buffer.
///
/// # Safety
/// `x` has `rows` rows and `cols` columns.
unsafe fn pack<T: GemmElement>(x: MatRef<T>, rows: usize, cols: usize) -> (Buffer, MatRef<T>) {
    let mut packed = Buffer::allocate_or_unwind(rows * cols * size_of::<T>());
    let to: *mut T = packed.as_mut_ptr().cast();
    for i in 0..rows {
        for j in 0..cols {
            // SAFETY: row `i` and column `j` are within `x` (caller contract), and the buffer has
            // `rows·cols` elements.
            unsafe { to.add(i * cols + j).write(x.get(i, j)) }
        }
    }
    (packed, MatRef { ptr: to, rs: cols as isize, cs: 1 })
}

/// Multiplies float32 or float64 operands; `T` is one of the two.
///
/// # Safety
/// The caller upholds the contract of [`gemm`].
unsafe fn floats<T: GemmElement>(way: ProductKind, p: GemmProblem<T>, by: f64) {
    let GemmProblem { s, c, a, b, accumulate } = p;
    debug_assert!(by == 1.0 || way == ProductKind::MatMat && s.k <= PANEL_TERMS && !accumulate);
    // SAFETY: the caller upholds the contract of `gemm`; the scratch matrix has m·n elements and is
    // not shared; the panels are within the operands.
    unsafe {
        if way != ProductKind::MatMat {
            return gemv(way, p);
        }
        if accumulate && s.k > PANEL_TERMS {
            // panels are added to a scratch matrix first, which is then added to `dst`
            let mut scratch =
                Buffer::allocate_or_unwind(s.m.saturating_mul(s.n).saturating_mul(size_of::<T>()));
            let by_rows = c.cs.abs() <= c.rs.abs();
            let (rs, cs) = if by_rows { (s.n as isize, 1) } else { (1, s.m as isize) };
            let part = MatMut { ptr: scratch.as_mut_ptr().cast(), rs, cs };
            floats(way, GemmProblem { c: part, accumulate: false, ..p }, 1.0);
            return add(s, c, part);
        }
        panel(GemmProblem { s: GemmSizes { k: s.k.min(PANEL_TERMS), ..s }, ..p }, by);
        for from in (PANEL_TERMS..s.k).step_by(PANEL_TERMS) {
            let k = (s.k - from).min(PANEL_TERMS);
            let (s, a, b) = (GemmSizes { k, ..s }, a.offset(0, from), b.offset(from, 0));
            panel(GemmProblem { s, c, a, b, accumulate: true }, 1.0);
        }
    }
}

/// Adds the m×n matrix `part` to `c`.
///
/// # Safety
/// Both matrices have `s.m` rows and `s.n` columns, all initialized, and do not overlap. `c` is
/// writable.
unsafe fn add<T: GemmElement>(s: GemmSizes, c: MatMut<T>, part: MatMut<T>) {
    if s.m > 1 && (s.n == 1 || c.cs.abs() > c.rs.abs()) {
        // SAFETY: the transposed matrices have `s.n` rows and `s.m` columns (caller contract).
        return unsafe { add(GemmSizes { m: s.n, n: s.m, ..s }, c.transpose(), part.transpose()) };
    }
    for i in 0..s.m {
        let row = |x: MatMut<T>| x.ptr.wrapping_offset(i as isize * x.rs);
        let (to, from) = (row(c), row(part));
        // SAFETY: the row and its `s.n` elements are within both matrices (caller contract), and
        // are read as slices only where they are contiguous.
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

/// Multiplies operands of at most [`PANEL_TERMS`] terms, in order, and scales the result by `by`.
///
/// # Safety
/// The caller upholds the contract of [`gemm`]; `T` is float32 or float64.
unsafe fn panel<T: GemmElement>(p: GemmProblem<T>, by: f64) {
    let GemmProblem { s, c, a, b, .. } = p;
    // SAFETY: the caller upholds the contract of `gemm`. The casts to float32 are of matrices whose
    // elements, of 4 bytes, are float32. Packed operands have the sizes that `pack` was given.
    unsafe {
        // the crate adds two terms to `dst` one after the other, and has separate code for vectors
        if s.m * s.n * s.k <= MAX_UNPACKED_MACS || s.k <= 2 || s.m == 1 || s.n == 1 || !gemm_crate::usable() {
            in_order(p);
            return scale(s, c, by);
        }
        #[cfg(target_arch = "x86_64")]
        if size_of::<T>() == 4 && cpu::level() == cpu::IsaLevel::Avx512 {
            let side = |x: MatRef<T>| MatRef { ptr: x.ptr.cast::<f32>(), rs: x.rs, cs: x.cs };
            let to = |c: MatMut<T>| MatMut { ptr: c.ptr.cast::<f32>(), rs: c.rs, cs: c.cs };
            let both = [p, p.transpose()];
            if let Some(p) = both.iter().find(|p| small_k::fits(p.s, p.c, p.b)) {
                small_k::product(p.s, to(p.c), side(p.a), side(p.b), p.accumulate);
                return scale(s, c, by);
            }
            if let Some(p) = both.iter().find(|p| few_rows::fits(p.s, p.c, p.b)) {
                few_rows::product(p.s, to(p.c), side(p.a), side(p.b), p.accumulate);
                return scale(s, c, by);
            }
        }
        // for a small product of contiguous rows with contiguous columns, the crate would add terms
        // lane by lane, in another order
        if a.cs == 1 && b.rs == 1 && s.m * s.n <= 256 {
            if s.n <= s.m {
                let (_packed, b) = pack(b, s.k, s.n);
                return gemm_crate::product(GemmProblem { b, ..p }, by);
            }
            let (_packed, a) = pack(a.transpose(), s.k, s.m);
            return gemm_crate::product(GemmProblem { a: a.transpose(), ..p }, by);
        }
        gemm_crate::product(p, by)
    }
}

/// Multiplies the m×n matrix `c` by `by`.
///
/// # Safety
/// `c` has `s.m` rows and `s.n` columns, all of which are initialized.
unsafe fn scale<T: GemmElement>(s: GemmSizes, c: MatMut<T>, by: f64) {
    if by == 1.0 {
        return;
    }
    for (i, j) in (0..s.m).flat_map(|i| (0..s.n).map(move |j| (i as isize, j as isize))) {
        // SAFETY: the element is within the matrix, and initialized (caller contract).
        unsafe {
            let at = c.ptr.offset(i * c.rs + j * c.cs);
            *at = (*at).times(by);
        }
    }
}
