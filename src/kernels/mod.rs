//! Kernels: loops over slices, one for each instruction, element type and processor level.
//!
//! A compiled program is a list of such loops over short runs of elements. The instruction set of a
//! loop is chosen once, when the program is compiled. Kernels are `unsafe` to call: [`SliceKernel`]
//! and the other function types state the contracts, which their callers, the engines, uphold.

pub(crate) mod buffer;
#[allow(unreachable_pub, reason = "within the crate its names are what others use")]
pub(crate) mod cpu;
pub(crate) mod flush_mode;
#[allow(unreachable_pub, reason = "within the crate its names are what others use")]
pub(crate) mod gemm;
pub(crate) mod pairwise_sum;
pub(crate) mod row;
pub(crate) mod row_kernel;

mod complex;
mod convert;
mod copy;
mod elementwise;
mod fill;
mod float;
mod gather;
mod half_float;
mod index_filter;
mod int;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod math32;
mod math64;
mod reduce;
mod short_rows;
#[cfg(target_arch = "x86_64")]
mod simd_f32;
#[cfg(target_arch = "x86_64")]
mod simd_vec;
mod sorted_scatter;
#[cfg(test)]
mod tests;
mod vector_math;
pub(crate) mod weighted_rows;
mod weighted_sum;
mod window_lines;

pub use copy::{copy, copy_slice};
pub use elementwise::fence;
#[cfg(test)]
pub use fill::count;
pub use gather::{
    CACHE_LINE_BYTES, CombineElementsAt, CombineRowsAt, FindRows, FoundRows, IndexSpec, MAX_BATCH_ROWS,
    copy_rows_at, gather_elements, prefetch_l2,
};
pub use index_filter::{CombinePicked, IndexFilter, MAX_PICKED_ROWS, PickedRows};
pub use reduce::MergeStack;
pub use short_rows::{
    AddSquares, SpreadSteps, StridedMatrix, Unzip, add_squares_of, gather_at_of, spread_indices,
    spread_positions, unzip_of,
};
pub use sorted_scatter::{AddCursor, AddSorted, SortedUpdatesView};
pub use weighted_sum::{MAX_TERMS, MIN_TERMS as FEWEST_TERMS, TermFactors, WeightedSumKernel};
pub use window_lines::{WindowLine, WindowLineKernel, find_steps, place_at_steps};

#[cfg(test)]
use crate::core::types::Scalar;
use crate::core::{DType, Reducer, ScalarOp, types::with_dtype};
use cpu::IsaLevel;
use elementwise::KernelVariant;

/// A loop over `n` elements: `dst[i] = f(a[i], b[i], c[i]; k)`.
///
/// The caller upholds: each operand that the function reads points to `n` elements of its type,
/// contiguous and aligned to an element, or to one element if the function repeats it; `dst` has
/// space for `n` elements of the result's type, or for one if the function is a [`fold`], and
/// overlaps no operand unless the function allows it. Bools are bytes 0 and 1. Operands that the
/// function does not read may be any pointers.
pub type SliceKernel =
    unsafe fn(n: usize, dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, k: &[f64; 4]);

/// Combines `rows` rows of `n` elements into the row at `acc`.
///
/// The rows are `step` bytes apart from `src` on, and the row at `acc` is initialized. Sums of
/// floats combine eight rows at a time, in the tree order ((0+1)+(2+3))+((4+5)+(6+7)), and the
/// remaining rows one by one.
pub type CombineRows = unsafe fn(n: usize, acc: *mut u8, src: *const u8, rows: usize, step: isize);

/// Combines exactly eight rows of `n` elements into `dst`, as a tree.
///
/// The rows are `step` bytes apart from `src` on.
pub type CombineRows8 = unsafe fn(n: usize, dst: *mut u8, src: *const u8, step: isize);

fn variant(stream: bool) -> KernelVariant {
    KernelVariant { level: cpu::level(), stream }
}

/// Returns the kernel of a function, for these element types of its operands and of its results.
///
/// [`ScalarOp::Select`] reads bools at `a` and values at `b` and `c`; comparisons return bools;
/// [`ScalarOp::Threefry`] reads a key and a counter. Returns `None` if the function is not defined
/// for these types.
pub fn select(op: ScalarOp, operand_dtype: DType, dtype: DType) -> Option<SliceKernel> {
    select_at(op, operand_dtype, dtype, variant(false))
}
/// Returns the kernel of [`select`] with non-temporal stores, where they are faster.
///
/// [`fence`] makes the results visible to other threads.
pub fn select_streaming(op: ScalarOp, operand_dtype: DType, dtype: DType) -> Option<SliceKernel> {
    select_at(op, operand_dtype, dtype, variant(true))
}
fn select_at(fun: ScalarOp, from: DType, dtype: DType, h: KernelVariant) -> Option<SliceKernel> {
    let (from, dtype) = (from.storage(), dtype.storage());
    match fun {
        ScalarOp::Copy => return int::copy(dtype.size(), h),
        ScalarOp::Bitcast => {
            return if fun.info().supports_dtypes(from, dtype) { int::copy(dtype.size(), h) } else { None };
        }
        ScalarOp::Convert if from == dtype => return int::copy(dtype.size(), h),
        ScalarOp::Convert => return convert::convert(from, dtype, h),
        ScalarOp::Select => return int::choose(dtype.size(), h),
        ScalarOp::Div | ScalarOp::Rem if from == DType::I32 && HAS_FAST_PATHS => {
            return Some(int::divide_int32(fun, h));
        }
        ScalarOp::Threefry if from == DType::U64 => return Some(int::threefry(h)),
        ScalarOp::Complex => return complex::from_parts(from),
        #[cfg(target_arch = "x86_64")]
        ScalarOp::Exp if from == DType::F32 && h.level > IsaLevel::Base => return simd_f32::exp(h.level),
        _ => {}
    }
    with_dtype!(from, {
        Bool => int::select_bool(fun, h),
        Int T => <T as int::Int>::kernel(fun, h),
        Half T => half_float::select::<T>(fun, h),
        Float T => float::select::<T>(fun, h),
        Complex T => complex::select::<T>(fun, h),
    })
}

/// Returns the kernel of a sum of scaled operands, for float32 and float64.
///
/// With one, two or three terms it computes `k0·a + k1`, `k0·a + k1·b` or `(k0·a + k1·b) + k2·c`.
/// Each product and each sum is rounded, as if it had a separate kernel.
pub fn scaled_sum(dtype: DType, terms: usize) -> Option<SliceKernel> {
    scaled_sum_at(dtype, terms, variant(false))
}
/// Returns the kernel of [`scaled_sum`] with non-temporal stores.
pub fn scaled_sum_streaming(dtype: DType, terms: usize) -> Option<SliceKernel> {
    scaled_sum_at(dtype, terms, variant(true))
}
fn scaled_sum_at(dtype: DType, terms: usize, h: KernelVariant) -> Option<SliceKernel> {
    match dtype {
        DType::F32 => float::scaled_sum::<f32>(terms, h),
        DType::F64 => float::scaled_sum::<f64>(terms, h),
        _ => None,
    }
}

/// Returns the kernel of `a·b + c`, for float32 and float64.
/// The product and the sum are both rounded.
pub fn mul_add(dtype: DType) -> Option<SliceKernel> {
    match dtype {
        DType::F32 => Some(float::mul_add::<f32>(variant(false))),
        DType::F64 => Some(float::mul_add::<f64>(variant(false))),
        _ => None,
    }
}

/// The functions that have kernels in which some operands are a single, broadcast element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BroadcastOp {
    /// The product `a·b`.
    Mul,
    /// The quotient `a / b`.
    Div,
    /// The scaled sum `k0·a + k1·b`.
    Lin2,
    /// The sum `a·b + c`, with the product rounded.
    MulAdd,
    /// The product `(k0·a + k1·b)·c`.
    LinMul,
    /// The exponential of `k0·a + k1·b`.
    ExpLin,
    /// The int32 index of an element that equals the extreme `b` or is NaN; `k0` for the others.
    /// The address of `c` is the index of the first element, and `k1` the step to the next one;
    /// `k2` is not 0 if `b` is a single element.
    ExtremeIndex,
}

/// True if kernels that only save time are compiled. They are left out of WebAssembly modules,
/// which a browser loads before it runs them; results have the same bits.
pub(crate) const HAS_FAST_PATHS: bool = !cfg!(target_family = "wasm");

/// Returns the kernel of a function in which some operands may be a single element, for float32
/// and, for [`BroadcastOp::ExtremeIndex`], float64.
///
/// Bit 1 of `same` is set if the second operand is a single element, bit 2 if the third is. The
/// results are those for an operand that repeats the element. With `stream`, stores are
/// non-temporal where that is faster.
pub fn broadcast_kernel(op: BroadcastOp, same: u8, dtype: DType, stream: bool) -> Option<SliceKernel> {
    match (op, dtype) {
        (BroadcastOp::ExtremeIndex, _) if !HAS_FAST_PATHS => None,
        (BroadcastOp::ExtremeIndex, DType::F32) => Some(float::extreme_index::<f32>(cpu::level())),
        (BroadcastOp::ExtremeIndex, DType::F64) => Some(float::extreme_index::<f64>(cpu::level())),
        (_, DType::F32) => float::broadcast_kernel(op, same, variant(stream)),
        _ => None,
    }
}

/// Returns the kernel of a sum of `terms` scaled operands, for float32 and float64.
///
/// The number of terms is limited to [`MAX_TERMS`]. With `stream`, stores are non-temporal where
/// that is faster.
pub fn weighted_sum(dtype: DType, terms: usize, stream: bool) -> Option<WeightedSumKernel> {
    weighted_sum::find(dtype, terms, variant(stream))
}

/// Returns the kernel that repeats the element at `a`, of 1, 2, 4, 8 or 16 bytes.
pub fn splat(size: usize) -> Option<SliceKernel> {
    fill::splat_of(size)
}
/// Returns the kernel that reads every `k[0]`-th element from `a` on.
///
/// `k[0]` is an integer number of elements, which may be negative; `size` is the size of an element
/// in bytes.
pub fn gather(size: usize) -> Option<SliceKernel> {
    fill::gather_of(size)
}
/// Copies a matrix of contiguous columns, `step` bytes apart from `a` on, into contiguous rows,
/// `row_bytes` apart from `d` on.
///
/// The caller upholds: the elements at `a` are initialized, and those at `d` are writable and do
/// not overlap them.
pub type TransposeBlock = unsafe fn((usize, usize), d: *mut u8, row_bytes: usize, a: *const u8, step: isize);

/// Returns the kernel that transposes a block of elements of `size` bytes.
pub fn transpose_block(size: usize) -> Option<TransposeBlock> {
    fill::transpose_of(size)
}
/// Returns the kernel that repeats a constant of `size` bytes.
///
/// The constant is in the low bits of `k[0]` (see [`constant`]). For elements of 16 bytes, the
/// second half is `k[1]`. The kernel reads no operand.
pub fn fill(size: usize) -> Option<SliceKernel> {
    fill::fill_of(size)
}

/// Returns true if row kernels should prefetch rows even when everything else they use is cached.
///
/// This was 1.35x faster for logsumexp on an AVX2 processor, and slightly slower on an AVX-512 one.
pub fn prefetches_early() -> bool {
    cfg!(target_arch = "x86_64") && cpu::level() == IsaLevel::Avx2
}

/// Returns the kernel that combines `n ≥ 0` contiguous elements at `a` into one at `dst`.
///
/// Element i goes to lane i mod 64; then the lanes are combined in halves (0+32, 1+33, …; 0+16, …).
/// For `n = 0` the result is the neutral element. Returns `None` if the reducer is not defined for
/// the type.
pub fn fold(reducer: Reducer, dtype: DType) -> Option<SliceKernel> {
    reduce::find(reducer, dtype.storage(), variant(false)).map(|m| m.fold)
}
/// The number of float32 elements in a unit of a row reduction.
/// A [`MergeStack`] combines the results of a row's units.
pub const UNIT_ELEMENTS: usize = 512;
/// The values that a row reduction combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldInput {
    /// The elements at `a`.
    Elements,
    /// The products `a·b`, each rounded.
    Products,
    /// The exponentials of the elements at `a`.
    Exp,
    /// The results of [`BroadcastOp::ExpLin`].
    ExpLin,
}
/// Returns the [`fold`] of rows of any length, if there is a single loop for it.
///
/// The rows are folded in units of [`UNIT_ELEMENTS`] elements.
pub fn fold_row(input: FoldInput, reducer: Reducer, dtype: DType) -> Option<SliceKernel> {
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::F32 {
        let level = cpu::level();
        return match (input, reducer) {
            (FoldInput::Elements, Reducer::Add) => simd_f32::sum_row(level),
            (FoldInput::Elements, Reducer::Max) => simd_f32::max(level),
            (FoldInput::Elements, Reducer::Min) => simd_f32::min(level),
            (FoldInput::Products, Reducer::Add) => simd_f32::products(level),
            (FoldInput::Exp, Reducer::Add) => simd_f32::sum_exp(level),
            (FoldInput::ExpLin, Reducer::Add) => simd_f32::sum_exp_lin(level),
            _ => None,
        };
    }
    let _ = (input, reducer, dtype);
    None
}
/// Returns the [`fold`] of `k0·a`, each product rounded, if there is a single loop for it.
pub fn fold_scaled(reducer: Reducer, dtype: DType) -> Option<SliceKernel> {
    fused_fold(reducer, dtype, 0)
}
/// Returns the [`fold`] of the squares of `k0·a + k1·b`, if there is a single loop for it.
///
/// Each step is rounded, and `b` is a single element. The loop also stores the values that it
/// squares at `c`, which must have space for `n` elements that no other code accesses.
pub fn fold_squares(reducer: Reducer, dtype: DType) -> Option<SliceKernel> {
    fused_fold(reducer, dtype, 1)
}
fn fused_fold(combine: Reducer, dtype: DType, what: usize) -> Option<SliceKernel> {
    #[cfg(target_arch = "x86_64")]
    if (combine, dtype) == (Reducer::Add, DType::F32) {
        return [simd_f32::scaled, simd_f32::squares][what](cpu::level());
    }
    let _ = (combine, dtype, what);
    None
}
/// Returns the kernel of `a ∘ b`, element by element. `dst` may be `a`.
pub fn combine(combine: Reducer, dtype: DType) -> Option<SliceKernel> {
    reduce::find(combine, dtype.storage(), variant(false)).map(|m| m.mix)
}
/// Returns the kernel that combines rows at computed offsets.
pub fn combine_rows_at(reducer: Reducer, dtype: DType) -> Option<CombineRowsAt> {
    reduce::find(reducer, dtype.storage(), variant(false)).map(|m| m.mix_at)
}
/// Returns the kernel that combines single elements at indices of the given type.
pub fn combine_elements_at(reducer: Reducer, dtype: DType, index_dtype: DType) -> Option<CombineElementsAt> {
    reduce::find(reducer, dtype.storage(), variant(false)).and_then(|m| (m.one_at)(index_dtype))
}
/// Returns the kernel that combines single elements at filtered indices (see [`index_filter`]).
pub fn combine_picked(reducer: Reducer, dtype: DType) -> Option<CombinePicked> {
    reduce::find(reducer, dtype.storage(), variant(false)).map(|m| m.picked)
}
/// Returns the kernel that computes the row offsets of indices of this type.
pub fn find_rows(dtype: DType) -> FindRows {
    let level = cpu::level();
    match dtype {
        DType::I64 => gather::find::<i64>(level),
        DType::U32 => gather::find::<u32>(level),
        DType::U64 => gather::find::<u64>(level),
        DType::I16 => gather::find::<i16>(level),
        DType::U16 => gather::find::<u16>(level),
        DType::I8 => gather::find::<i8>(level),
        DType::I32 => gather::find::<i32>(level),
        _ => gather::find::<u8>(level),
    }
}
/// Returns the kernel that filters indices by owned rows, if the processor has one.
///
/// It processes a vector of indices at a time.
pub fn index_filter(dtype: DType) -> Option<IndexFilter> {
    index_filter::index_filter(dtype, cpu::level())
}
/// Returns the kernel that adds updates sorted by row, if the processor has one.
pub fn add_sorted() -> Option<AddSorted> {
    sorted_scatter::kernel_at(cpu::level())
}
/// Returns the kernel that combines rows into a row.
pub fn combine_rows(reducer: Reducer, dtype: DType) -> Option<CombineRows> {
    reduce::find(reducer, dtype.storage(), variant(false)).map(|m| m.rows)
}
/// Returns the kernel that combines eight rows into a new one, as a tree.
///
/// With `stream`, stores are non-temporal where that is faster.
pub fn combine_rows8(reducer: Reducer, dtype: DType, stream: bool) -> Option<CombineRows8> {
    reduce::find(reducer, dtype.storage(), variant(stream)).map(|m| m.rows8)
}
/// Returns the neutral element of a reducer as the first constants of [`fill`].
pub fn neutral(reducer: Reducer, dtype: DType) -> Option<[f64; 2]> {
    reduce::find(reducer, dtype.storage(), KernelVariant { level: IsaLevel::Base, stream: false })
        .map(|m| m.neutral.map(f64::from_bits))
}

#[cfg(test)]
/// Returns a scalar as an element of this type, in the first bytes of the result.
///
/// Values outside an integer type's range wrap.
pub fn bytes(dtype: DType, value: Scalar) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |b: &[u8]| bytes[..b.len()].copy_from_slice(b);
    match dtype {
        DType::Bool => put(&[match value {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Float(f) => f != 0.0,
            Scalar::Complex(re, im) => re != 0.0 || im != 0.0,
        } as u8]),
        DType::F16 => put(&value.to_f16().to_ne_bytes()),
        DType::BF16 => put(&value.to_bf16().to_ne_bytes()),
        DType::F32 => put(&value.to_f32().to_ne_bytes()),
        DType::F64 => put(&value.to_f64().to_ne_bytes()),
        d => match d.size() {
            1 => put(&(value.to_i128() as u8).to_ne_bytes()),
            2 => put(&(value.to_i128() as u16).to_ne_bytes()),
            4 => put(&(value.to_i128() as u32).to_ne_bytes()),
            _ => put(&(value.to_i128() as u64).to_ne_bytes()),
        },
    }
    bytes
}
#[cfg(test)]
/// Returns a scalar as an argument of [`fill`].
pub fn constant(dtype: DType, value: Scalar) -> f64 {
    let b = bytes(dtype, value);
    // the element is in the low bits of the float, regardless of the machine's byte order
    f64::from_bits(match dtype.size() {
        1 => b[0] as u64,
        2 => u16::from_ne_bytes([b[0], b[1]]) as u64,
        4 => u32::from_ne_bytes([b[0], b[1], b[2], b[3]]) as u64,
        _ => u64::from_ne_bytes(b),
    })
}
