//! Products of integer matrices by blocks.
//!
//! Both operands are copied into the order in which the inner loop reads them, and a tile of the
//! result is added up in registers. Sums of integers wrap, so they do not depend on the blocks.

// an index runs over several small arrays at the same time, which are registers
#![allow(clippy::needless_range_loop)]

use super::{Buffer, GemmElement, GemmProblem, GemmSizes, MatRef};
use crate::kernels::{
    self,
    cpu::{self, for_each_isa, up_to_level},
};

/// The number of rows of a tile.
const TILE_ROWS: usize = 6;
/// The size of a row of a tile, in bytes: two vectors of AVX2.
const TILE_ROW_BYTES: usize = 64;
/// The maximum number of terms that are packed at a time.
const BLOCK_TERMS: usize = 256;
/// The maximum size of a packed right operand, in bytes.
const BLOCK_BYTES: usize = 512 << 10;
/// The minimum number of rows and of terms for which packing pays.
const MIN_SIZE: usize = 4;

/// Integers, and the type that their products are computed in.
pub(super) trait Integer: GemmElement {
    /// A type at least as wide; there is no vector instruction that multiplies bytes.
    type Wide: GemmElement;
    /// Converts an element.
    fn widen(self) -> Self::Wide;
    /// Converts a sum, modulo the width of this type.
    fn wrap(sum: Self::Wide) -> Self;
}
macro_rules! integers {
    ($($T:ident in $Wide:ident)*) => { $( impl Integer for $T {
        type Wide = $Wide;
        #[inline(always)]
        fn widen(self) -> $Wide { self.into() }
        #[inline(always)]
        fn wrap(sum: $Wide) -> $T { sum as $T }
    } )* };
}
integers! { u8 in u16 u16 in u16 u32 in u32 u64 in u64 }

/// Returns true if this is faster than plain loops.
pub(super) fn pays(s: GemmSizes) -> bool {
    kernels::HAS_FAST_PATHS && s.m.min(s.n).min(s.k) >= MIN_SIZE && s.m * s.n * s.k > super::MAX_UNPACKED_MACS
}

/// Multiplies two matrices.
///
/// # Safety
/// The caller upholds the contract of [`gemm`](super::gemm).
pub(super) unsafe fn product<T: Integer>(p: GemmProblem<T>) {
    let p = if p.c.cs.abs() > p.c.rs.abs() { p.transpose() } else { p };
    // SAFETY: the caller upholds the contract of `gemm`, and the processor has the level that
    // `level` returns.
    unsafe { up_to_level!(blocks::<T>, <T as GemmElement>::WIDEST, cpu::level())(p) }
}

for_each_isa! {
    mod blocks<T: Integer>(p: GemmProblem<T>) at L => product_body::<T, L>(p);
}

/// Multiplies two matrices, in tiles whose rows have [`TILE_ROW_BYTES`].
///
/// # Safety
/// The caller upholds the contract of [`gemm`](super::gemm); the processor has level `L`.
#[inline(always)]
unsafe fn product_body<T: Integer, const L: u8>(p: GemmProblem<T>) {
    // SAFETY: the caller upholds the contract of `by_tiles`.
    unsafe {
        match const { TILE_ROW_BYTES / size_of::<T::Wide>() } {
            32 => by_tiles::<T, L, 32>(p),
            16 => by_tiles::<T, L, 16>(p),
            _ => by_tiles::<T, L, 8>(p),
        }
    }
}

/// Multiplies two matrices, in tiles of [`TILE_ROWS`] rows and `N` columns.
///
/// # Safety
/// The caller upholds the contract of [`gemm`](super::gemm); the processor has level `L`.
#[inline(always)]
unsafe fn by_tiles<T: Integer, const L: u8, const N: usize>(p: GemmProblem<T>) {
    let GemmProblem { s, c, a, b, accumulate } = p;
    let most = BLOCK_BYTES / size_of::<T::Wide>() / BLOCK_TERMS / N * N;
    let block_columns = most.min(s.n.div_ceil(N) * N);
    let terms = BLOCK_TERMS.min(s.k);
    let bytes = (block_columns + TILE_ROWS) * terms * size_of::<T::Wide>();
    let mut packed = Buffer::allocate_or_unwind(bytes);
    let columns = packed.as_mut_ptr().cast::<T::Wide>();
    let rows = columns.wrapping_add(block_columns * terms);
    for first in (0..s.n).step_by(block_columns) {
        let width = block_columns.min(s.n - first);
        for from in (0..s.k).step_by(BLOCK_TERMS) {
            let k = BLOCK_TERMS.min(s.k - from);
            // SAFETY: the blocks are within the operands (caller contract), and `packed` has space
            // for `terms` times `block_columns` elements of one and `TILE_ROWS` of the other.
            // Elements of a tile that are not in the result are not stored.
            unsafe {
                for j in (0..width).step_by(N) {
                    let b = b.offset(from, first + j);
                    pack::<T, N>(b, k, width - j, columns.add(j * k));
                }
                for i in (0..s.m).step_by(TILE_ROWS) {
                    let height = TILE_ROWS.min(s.m - i);
                    pack::<T, TILE_ROWS>(a.offset(i, from).transpose(), k, height, rows);
                    for j in (0..width).step_by(N) {
                        let sums = tile::<T::Wide, L, N>(k, rows, columns.add(j * k));
                        for (r, row) in sums[..height].iter().enumerate() {
                            for (t, sum) in row.iter().enumerate().take(width - j) {
                                c.put(i + r, first + j + t, T::wrap(*sum), accumulate || from > 0);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Copies the first `N` columns of `x` row by row, and fills those after the first `width` with 0.
///
/// # Safety
/// `x` has `k` rows and `width` columns; `to` points to space for `k·N` elements.
#[inline(always)]
unsafe fn pack<T: Integer, const N: usize>(x: MatRef<T>, k: usize, width: usize, to: *mut T::Wide) {
    for p in 0..k {
        // SAFETY: row `p` is within `x`, and is read as an array only where its `N` columns are
        // contiguous; `to` has space for it (caller contract).
        unsafe {
            let to = to.add(p * N).cast::<[T::Wide; N]>();
            let mut row = [T::Wide::ZERO; N];
            if x.cs == 1 && width >= N {
                let from = &*x.row(p).cast::<[T; N]>();
                for j in 0..N {
                    row[j] = from[j].widen();
                }
            } else {
                for (j, to) in row.iter_mut().enumerate().take(width) {
                    *to = x.get(p, j).widen();
                }
            }
            to.write(row);
        }
    }
}

/// Multiplies packed rows by packed columns.
///
/// # Safety
/// `a` points to `k` initialized groups of [`TILE_ROWS`] elements, and `b` to `k` of `N` elements.
#[inline(always)]
unsafe fn tile<W: GemmElement, const L: u8, const N: usize>(
    k: usize,
    a: *const W,
    b: *const W,
) -> [[W; N]; TILE_ROWS] {
    let mut sums = [[W::ZERO; N]; TILE_ROWS];
    for p in 0..k {
        // SAFETY: group `p` is within the packed operands (caller contract).
        let (x, y) =
            unsafe { (&*a.add(p * TILE_ROWS).cast::<[W; TILE_ROWS]>(), &*b.add(p * N).cast::<[W; N]>()) };
        for r in 0..TILE_ROWS {
            for j in 0..N {
                sums[r][j] = x[r].fma::<L>(y[j], sums[r][j]);
            }
        }
    }
    sums
}
