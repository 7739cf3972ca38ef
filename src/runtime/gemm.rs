//! Matrix products on one thread.
//!
//! Large float products go to the `gemm` crate; tiny ones, products with a vector and integers are plain loops. Which of these is
//! taken, and thus the order of every sum, depends on sizes and strides only.

#[cfg(test)]
mod tests;
mod vector;

use super::Buffer;
use super::cpu::{self, Level};
use crate::types::DType;
use half::{bf16, f16};
use vector::{columns as columns_body, dots as dots_body};

/// Up to this many products a plain loop is faster than packing.
const TINY: usize = 4096;
/// Up to this many terms the crate adds all of a sum before it touches the result.
const PANEL: usize = 512;
/// Columns of a result that a loop keeps in registers.
const COLUMNS: usize = 32;

/// `dst = lhs·rhs`, or with `accumulate` `dst += lhs·rhs`: m×k by k×n, strides in elements of `dtype`.
///
/// `accumulate` adds the product as it would be by itself, rounded to `dtype`: so sums over blocks do not depend on who adds them.
/// Integers wrap; 16-bit floats are multiplied and summed in float32 and rounded once.
///
/// # Safety
/// All elements that sizes and strides name are within memory of the type and `dst`'s are distinct, writable, and none of an operand's.
///
/// # Panics
/// If `dtype` is not a number type.
#[expect(clippy::too_many_arguments, reason = "the form in which every library has it")]
pub unsafe fn gemm(
    dtype: DType,
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
) {
    macro_rules! run {
        ($f:ident, $T:ty) => {{
            let c = Out { at: dst.cast::<$T>(), rs: dst_rs, cs: dst_cs };
            let a = Mat { at: lhs.cast::<$T>(), rs: lhs_rs, cs: lhs_cs };
            let b = Mat { at: rhs.cast::<$T>(), rs: rhs_rs, cs: rhs_cs };
            // SAFETY: the caller's
            unsafe { $f(Sizes { m, k, n }, c, a, b, accumulate) }
        }};
    }
    match dtype {
        DType::F32 => run!(floats, f32),
        DType::F64 => run!(floats, f64),
        DType::F16 => run!(halves, f16),
        DType::BF16 => run!(halves, bf16),
        DType::I8 => run!(loops, i8),
        DType::I16 => run!(loops, i16),
        DType::I32 => run!(loops, i32),
        DType::I64 => run!(loops, i64),
        DType::U8 => run!(loops, u8),
        DType::U16 => run!(loops, u16),
        DType::U32 => run!(loops, u32),
        DType::U64 => run!(loops, u64),
        DType::Bool | DType::Key => panic!("no products of {dtype}"),
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

macro_rules! levels {
    ($($name:ident = $body:ident;)*) => { $(
        /// # Safety
        /// As [`gemm`] says.
        unsafe fn $name<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
            #[cfg(target_arch = "x86_64")]
            {
                /// # Safety
                /// As [`gemm`] says; the processor has these features.
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
                unsafe fn avx512<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
                    // SAFETY: the caller's
                    unsafe { $body::<T, 2>(s, c, a, b, accumulate) }
                }
                /// # Safety
                /// As [`gemm`] says; the processor has these features.
                #[target_feature(enable = "avx2,fma,bmi2")]
                unsafe fn avx2<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
                    // SAFETY: the caller's
                    unsafe { $body::<T, 1>(s, c, a, b, accumulate) }
                }
                // SAFETY: the caller's; the processor has what the level says
                unsafe {
                    match cpu::level() {
                        Level::Avx512 => return avx512(s, c, a, b, accumulate),
                        Level::Avx2 => return avx2(s, c, a, b, accumulate),
                        Level::Base => {}
                    }
                }
            }
            // SAFETY: the caller's
            unsafe { $body::<T, { cfg!(target_arch = "aarch64") as u8 }>(s, c, a, b, accumulate) }
        }
    )* };
}
levels! { plain = plain_body; dots = dots_body; columns = columns_body; }

/// The loops: a vector on either side, else row by row.
///
/// # Safety
/// As [`gemm`] says.
unsafe fn loops<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
    // SAFETY: the caller's
    unsafe {
        if s.m == 1 && s.n != 1 {
            let flipped = Sizes { m: s.n, k: s.k, n: 1 };
            return loops(flipped, c.flip(), b.flip(), a.flip(), accumulate);
        }
        if s.n != 1 && b.cs != 1 && a.rs == 1 {
            // by columns of the result, which then are contiguous
            let flipped = Sizes { m: s.n, k: s.k, n: s.m };
            return plain(flipped, c.flip(), b.flip(), a.flip(), accumulate);
        }
        if s.n != 1 || s.k == 1 {
            return plain(s, c, a, b, accumulate);
        }
        // short rows are better taken column by column, where these are contiguous
        if a.cs == 1 && !(a.rs == 1 && s.k < 64) {
            if b.rs == 1 {
                return dots(s, c, a, b, accumulate);
            }
            let mut packed = Buffer::new(s.k * size_of::<T>());
            let x: *mut T = packed.as_mut_ptr().cast();
            for p in 0..s.k {
                x.add(p).write(b.get(p, 0));
            }
            return dots(s, c, a, Mat { at: x, rs: 1, cs: 1 }, accumulate);
        }
        if a.rs == 1 { columns(s, c, a, b, accumulate) } else { plain(s, c, a, b, accumulate) }
    }
}

/// Products of float32 or of float64, which `T` is.
///
/// # Safety
/// As [`gemm`] says.
unsafe fn floats<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
    // SAFETY: the caller's; scratch has m·n elements
    unsafe {
        // (of two terms the crate adds one after the other to what is there)
        if s.m * s.n * s.k <= TINY || s.k <= 2 || s.m == 1 || s.n == 1 {
            return loops(s, c, a, b, accumulate);
        }
        if accumulate && s.k > PANEL {
            // the crate would add panel by panel to what is there
            let mut scratch = Buffer::new(s.m * s.n * size_of::<T>());
            let by_rows = c.cs.abs() <= c.rs.abs();
            let (rs, cs) = if by_rows { (s.n as isize, 1) } else { (1, s.m as isize) };
            let part = Out { at: scratch.as_mut_ptr().cast(), rs, cs };
            call(s, part, a, b, false);
            let (outer, inner) = if by_rows { (s.m, s.n) } else { (s.n, s.m) };
            for i in 0..outer {
                for j in 0..inner {
                    let (i, j) = if by_rows { (i, j) } else { (j, i) };
                    c.put(i, j, *part.at.offset(i as isize * rs + j as isize * cs), true);
                }
            }
            return;
        }
        call(s, c, a, b, accumulate);
    }
}
/// A product of matrices by the `gemm` crate, whose vector code Miri does not know.
///
/// # Safety
/// As [`gemm`] says; `T` is float32 or float64.
unsafe fn call<T: Num>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
    if cfg!(miri) {
        // SAFETY: the caller's
        return unsafe { loops(s, c, a, b, accumulate) };
    }
    /// # Safety
    /// As `gemm`, for T = F.
    unsafe fn typed<F: 'static>(s: Sizes, c: Out<F>, a: Mat<F>, b: Mat<F>, read: bool, zero: F, one: [F; 2]) {
        let [one, again] = one;
        // SAFETY: the caller's
        unsafe {
            gemm::gemm(
                s.m,
                s.n,
                s.k,
                c.at,
                c.cs,
                c.rs,
                read,
                a.at,
                a.cs,
                a.rs,
                b.at,
                b.cs,
                b.rs,
                if read { one } else { zero },
                again,
                false,
                false,
                false,
                gemm::Parallelism::None,
            )
        }
    }
    macro_rules! cast {
        ($F:ty) => {{
            let c = Out { at: c.at.cast::<$F>(), rs: c.rs, cs: c.cs };
            let a = Mat { at: a.at.cast::<$F>(), rs: a.rs, cs: a.cs };
            let b = Mat { at: b.at.cast::<$F>(), rs: b.rs, cs: b.cs };
            // SAFETY: the caller's; of the two types that T may be, it is the one of this size
            unsafe { typed(s, c, a, b, accumulate, 0.0, [1.0, 1.0]) }
        }};
    }
    if size_of::<T>() == 4 { cast!(f32) } else { cast!(f64) }
}

/// 16-bit floats: packed as float32, multiplied there, rounded once, and then added.
///
/// # Safety
/// As [`gemm`] says.
unsafe fn halves<H: Widen>(s: Sizes, c: Out<H>, a: Mat<H>, b: Mat<H>, accumulate: bool) {
    // SAFETY: the caller's; the scratch buffers have as many elements as the matrices
    unsafe {
        let pack = |x: Mat<H>, rows: usize, cols: usize| {
            let mut wide = Buffer::new(rows * cols * 4);
            let to: *mut f32 = wide.as_mut_ptr().cast();
            for i in 0..rows {
                for j in 0..cols {
                    to.add(i * cols + j).write(x.get(i, j).widen());
                }
            }
            wide
        };
        let (wa, wb) = (pack(a, s.m, s.k), pack(b, s.k, s.n));
        let mut wc = Buffer::new(s.m * s.n * 4);
        let product: *mut f32 = wc.as_mut_ptr().cast();
        let matrix = |x: &Buffer, cols: usize| Mat { at: x.as_ptr().cast(), rs: cols as isize, cs: 1 };
        let out = Out { at: product, rs: s.n as isize, cs: 1 };
        floats::<f32>(s, out, matrix(&wa, s.k), matrix(&wb, s.n), false);
        for i in 0..s.m {
            for j in 0..s.n {
                c.put(i, j, H::round(*product.add(i * s.n + j)), accumulate);
            }
        }
    }
}
trait Widen: Num {
    fn widen(self) -> f32;
    fn round(x: f32) -> Self;
}
macro_rules! halves {
    ($($T:ident)*) => { $(
        impl Widen for $T {
            fn widen(self) -> f32 { self.to_f32() }
            fn round(x: f32) -> $T { $T::from_f32(x) }
        }
        impl Num for $T {
            const ZERO: $T = $T::ZERO;
            fn plus(self, x: $T) -> $T { $T::from_f32(self.to_f32() + x.to_f32()) }
            fn fma<const L: u8>(self, x: $T, y: $T) -> $T {
                $T::from_f32(self.to_f32() * x.to_f32() + y.to_f32())
            }
        }
    )* };
}
halves!(f16 bf16);
