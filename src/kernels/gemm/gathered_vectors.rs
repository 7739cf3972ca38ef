//! The vector code of [`gathered`](super::gathered), for AVX-512 and AVX2.

use super::PANEL_TERMS;
use super::gathered_copies::{LaneRun, lane_runs, pack_lanes, write_sums};
use super::gathered_sides::{ProductSide, ProductTerms};
use crate::kernels::buffer::Buffer;
use crate::kernels::lanes::{Lanes, avx2_lanes, avx512_lanes};
use smallvec::SmallVec;

/// The number of terms of a chunk, unless a panel has more.
/// The copied lanes of a chunk occupy 32 KiB.
const CHUNK_TERMS: usize = 128;
/// The number of terms below which a turn is short.
const SHORT_TERMS: usize = 24;
/// The maximum number of rows that are computed from one copy of the lanes.
const BLOCK_ROWS: usize = 512;
/// The number of rows by which the tables of rows are longer than the rows.
/// Tiles at the end compute rows that are not used.
const SPARE_ROWS: usize = 12;

/// Where the sum of a panel goes.
#[derive(Clone, Copy)]
enum PanelTarget {
    /// It is the first panel of the first turn.
    Total,
    /// It is added to the total: a panel of the first turn, or a turn of one panel.
    AddToTotal,
    /// It is the first of several panels of another turn.
    Turn,
    /// It is added to the sum of its turn.
    AddToTurn,
    /// It is added to the sum of its turn, which is then added to the total.
    LastOfTurn,
}

/// A panel of terms.
#[derive(Clone, Copy)]
struct Panel {
    /// The offset of the first term in each side, in elements.
    at: [isize; 2],
    /// The number of terms.
    terms: usize,
    target: PanelTarget,
}

/// A chunk of panels, for a block of rows and a group of lanes.
struct Chunk<'a, T> {
    panels: &'a [Panel],
    /// The number of rows, and their offsets, of which there are [`SPARE_ROWS`] more.
    rows: (usize, &'a [isize]),
    /// The row side, and the stride of its terms.
    a: (*const T, isize),
    /// The first lane, and the stride of its terms.
    b: (*const T, isize),
    /// The totals and the sums of turns, row by row, with [`SPARE_ROWS`] more rows.
    sums: [*mut T; 2],
}

/// Returns the sums of a panel in `R` rows of `V` vectors, whose offsets are `rows`.
///
/// # Safety
/// The processor has the level of `L`, and the rows and lanes are in memory.
#[inline(always)]
unsafe fn panel_sums<L: Lanes, const R: usize, const V: usize>(
    c: &Chunk<'_, L::Element>,
    panel: &Panel,
    rows: &[isize; R],
) -> [[L; V]; R] {
    let mut left: [*const L::Element; R] =
        std::array::from_fn(|r| c.a.0.wrapping_offset(panel.at[0] + rows[r]));
    let mut right = c.b.0.wrapping_offset(panel.at[1]);
    // SAFETY: the elements are in memory, and the processor has the level (caller contract).
    unsafe {
        let mut acc = [[L::zero(); V]; R];
        for _ in 0..panel.terms {
            let lanes: [L; V] = std::array::from_fn(|v| L::load(right.wrapping_add(v * L::LEN)));
            for (left, acc) in left.iter_mut().zip(&mut acc) {
                let x = L::splat(**left);
                for (acc, y) in acc.iter_mut().zip(lanes) {
                    *acc = x.fma(y, *acc);
                }
                *left = left.wrapping_offset(c.a.1);
            }
            right = right.wrapping_offset(c.b.1);
        }
        acc
    }
}

/// Computes a tile of `R` rows of `V` vectors, from row `i` on.
///
/// # Safety
/// The processor has the level of `L`. Rows, lanes and sums are in memory, as far as the tile
/// reaches.
#[inline(always)]
unsafe fn tile<L: Lanes, const R: usize, const V: usize>(c: &Chunk<'_, L::Element>, i: usize) {
    let mut rows = [0; R];
    rows.copy_from_slice(&c.rows.1[i..i + R]);
    for panel in c.panels {
        // SAFETY: the elements are in memory, and the processor has the level (caller contract).
        unsafe {
            let acc = panel_sums::<L, R, V>(c, panel, &rows);
            macro_rules! each {
                (|$total:ident, $turn:ident, $x:ident| $put:expr) => {
                    for (r, acc) in acc.iter().enumerate() {
                        for (v, $x) in acc.iter().enumerate() {
                            let at = ((i + r) * V + v) * L::LEN;
                            let [$total, $turn] = c.sums.map(|sums| sums.wrapping_add(at));
                            $put
                        }
                    }
                };
            }
            // (a loop for each target, because the compiler keeps `acc` in memory otherwise)
            match panel.target {
                PanelTarget::Total => each!(|total, _turn, x| x.store(total)),
                PanelTarget::AddToTotal => each!(|total, _turn, x| L::load(total).add(*x).store(total)),
                PanelTarget::Turn => each!(|_total, turn, x| x.store(turn)),
                PanelTarget::AddToTurn => each!(|_total, turn, x| L::load(turn).add(*x).store(turn)),
                PanelTarget::LastOfTurn => {
                    each!(|total, turn, x| L::load(total).add(L::load(turn).add(*x)).store(total))
                }
            }
        }
    }
}

/// Computes a tile of `R` rows of `V` vectors, from row `i` on, with its totals in registers.
///
/// This is faster if turns are short. Each of them is one panel.
///
/// # Safety
/// The caller upholds the contract of [`tile`].
#[inline(always)]
unsafe fn short_tile<L: Lanes, const R: usize, const V: usize>(c: &Chunk<'_, L::Element>, i: usize) {
    let mut rows = [0; R];
    rows.copy_from_slice(&c.rows.1[i..i + R]);
    let at = |r: usize, v: usize| c.sums[0].wrapping_add(((i + r) * V + v) * L::LEN);
    // SAFETY: the elements are in memory, and the processor has the level (caller contract).
    unsafe {
        let mut first = matches!(c.panels.first(), Some(Panel { target: PanelTarget::Total, .. }));
        let mut totals: [[L; V]; R] = match first {
            true => [[L::zero(); V]; R],
            false => std::array::from_fn(|r| std::array::from_fn(|v| L::load(at(r, v)))),
        };
        for panel in c.panels {
            let acc = panel_sums::<L, R, V>(c, panel, &rows);
            if std::mem::take(&mut first) {
                totals = acc;
                continue;
            }
            for (totals, acc) in totals.iter_mut().zip(acc) {
                for (total, x) in totals.iter_mut().zip(acc) {
                    *total = total.add(x);
                }
            }
        }
        for (r, totals) in totals.iter().enumerate() {
            for (v, total) in totals.iter().enumerate() {
                total.store(at(r, v));
            }
        }
    }
}

/// Computes all rows of a chunk, in tiles of `R` rows and, at the end, of `TAIL` rows.
///
/// # Safety
/// The caller upholds the contract of [`tile`] for all rows and [`SPARE_ROWS`] more.
#[inline(always)]
unsafe fn tiles<L: Lanes, const R: usize, const TAIL: usize, const V: usize>(c: &Chunk<'_, L::Element>) {
    let whole = c.rows.0 / R * R;
    // SAFETY: the last tile ends less than `TAIL` rows after the last row.
    unsafe {
        for i in (0..whole).step_by(R) {
            tile::<L, R, V>(c, i);
        }
        for i in (whole..c.rows.0).step_by(TAIL) {
            tile::<L, TAIL, V>(c, i);
        }
    }
}

/// Computes all rows of a chunk of short turns, as [`tiles`] does.
///
/// # Safety
/// The caller upholds the contract of [`tiles`].
#[inline(always)]
unsafe fn short_tiles<L: Lanes, const R: usize, const TAIL: usize, const V: usize>(
    c: &Chunk<'_, L::Element>,
) {
    let whole = c.rows.0 / R * R;
    // SAFETY: the last tile ends less than `TAIL` rows after the last row.
    unsafe {
        for i in (0..whole).step_by(R) {
            short_tile::<L, R, V>(c, i);
        }
        for i in (whole..c.rows.0).step_by(TAIL) {
            short_tile::<L, TAIL, V>(c, i);
        }
    }
}

/// The memory of a product, and the lanes and rows that are computed.
struct Workspace<'a, T> {
    /// True if the totals are in registers.
    short: bool,
    /// The numbers of vectors and lanes of a group.
    vectors: usize,
    width: usize,
    /// The runs of the current lanes.
    runs: Vec<LaneRun>,
    /// True if the current lanes are contiguous and fill their vectors.
    contiguous: bool,
    /// The number of rows of the current block, and their offsets.
    rows: (usize, &'a [isize]),
    /// Memory for the copied lanes.
    packed: *mut T,
    /// The sums of a turn.
    turn: *mut T,
}

/// Computes a chunk of panels, whose lanes are copied first if they are not contiguous.
///
/// # Safety
/// The caller upholds the contract of [`product`], and the workspace has space for the chunk.
#[inline(always)]
unsafe fn run_chunk<L: Lanes>(
    w: &Workspace<'_, L::Element>,
    [a, b]: [*const L::Element; 2],
    terms: &ProductTerms,
    panels: &mut SmallVec<[Panel; 32]>,
    total: *mut L::Element,
) {
    let first = w.runs.first().map_or(0, |r| r.offset);
    let mut lanes = (b.wrapping_offset(first), terms.strides[1]);
    // SAFETY: the caller upholds the contract; tiles reach `SPARE_ROWS` rows further at most.
    unsafe {
        if !w.contiguous {
            let mut done = 0;
            for p in panels.iter_mut() {
                let from = (b.wrapping_offset(p.at[1]), terms.strides[1]);
                pack_lanes((w.packed.add(done * w.width), w.width), from, &w.runs, p.terms);
                p.at[1] = (done * w.width) as isize;
                done += p.terms;
            }
            lanes = (w.packed, w.width as isize);
        }
        let a = (a, terms.strides[0]);
        let c = Chunk { panels, rows: w.rows, a, b: lanes, sums: [total, w.turn] };
        // as many sums as there are registers: 32 of 64 bytes, or 16 of 32
        match (w.vectors, size_of::<L>()) {
            (1, 64) if w.short => short_tiles::<L, 12, 4, 1>(&c),
            (_, 64) if w.short => short_tiles::<L, 6, 2, 2>(&c),
            _ if w.short => short_tiles::<L, 6, 2, 1>(&c),
            (1, 64) => tiles::<L, 12, 4, 1>(&c),
            (2, 64) => tiles::<L, 12, 4, 2>(&c),
            (3, 64) => tiles::<L, 8, 2, 3>(&c),
            (_, 64) => tiles::<L, 6, 2, 4>(&c),
            (1, _) => tiles::<L, 8, 4, 1>(&c),
            _ => tiles::<L, 6, 2, 2>(&c),
        }
    }
    panels.clear();
}

/// Computes the sums of one block of terms.
///
/// # Safety
/// The caller upholds the contract of [`run_chunk`] for all terms.
#[inline(always)]
unsafe fn run_block<L: Lanes>(
    w: &Workspace<'_, L::Element>,
    sides: [*const L::Element; 2],
    b: &ProductTerms,
    total: *mut L::Element,
) {
    let count: usize = b.outer.iter().map(|o| o.0).product();
    let (mut panels, mut used) = (SmallVec::new(), 0);
    for turn in 0..count {
        let (mut i, mut at) = (turn, b.offsets);
        for (size, strides) in b.outer.iter().rev() {
            let k = (i % size) as isize;
            at = [at[0] + k * strides[0], at[1] + k * strides[1]];
            i /= size;
        }
        for from in (0..b.size).step_by(PANEL_TERMS) {
            let terms = PANEL_TERMS.min(b.size - from);
            if used > 0 && used + terms > CHUNK_TERMS {
                // SAFETY: the caller upholds the contract.
                unsafe { run_chunk::<L>(w, sides, b, &mut panels, total) }
                used = 0;
            }
            let target = match (turn, from, from + terms == b.size) {
                (0, 0, _) => PanelTarget::Total,
                (0, ..) | (_, 0, true) => PanelTarget::AddToTotal,
                (_, 0, false) => PanelTarget::Turn,
                (.., false) => PanelTarget::AddToTurn,
                (.., true) => PanelTarget::LastOfTurn,
            };
            let k = from as isize;
            panels.push(Panel { at: [at[0] + k * b.strides[0], at[1] + k * b.strides[1]], terms, target });
            used += terms;
        }
    }
    // SAFETY: the caller upholds the contract.
    unsafe { run_chunk::<L>(w, sides, b, &mut panels, total) }
}

/// Computes a product; blocks of terms are added in the tree of a binary counter.
///
/// # Safety
/// All terms of all rows and lanes are in memory, and initialized. All elements of the result at
/// `to` are writable, and are not elements of an operand. The processor has the level of `L`.
#[inline(always)]
unsafe fn product<L: Lanes>(
    to: *mut L::Element,
    rows: &ProductSide<'_>,
    lanes: &ProductSide<'_>,
    blocks: &[ProductTerms],
) {
    let short = blocks.iter().all(|b| b.size < SHORT_TERMS);
    let most = if size_of::<L>() == 64 { 4 } else { 2 } / if short { 2 } else { 1 };
    let all = lanes.offsets.len().div_ceil(L::LEN);
    let vectors = all.div_ceil(all.div_ceil(most).max(1));
    let width = vectors * L::LEN;
    let depth = (usize::BITS - blocks.len().leading_zeros()) as usize + 1;
    let sums = (rows.offsets.len().min(BLOCK_ROWS) + SPARE_ROWS) * width;
    let terms = blocks.iter().map(|b| b.size.min(PANEL_TERMS)).max().unwrap_or(0).max(CHUNK_TERMS);
    let mut memory =
        Buffer::allocate_or_unwind(((depth + 1) * sums + terms * width) * size_of::<L::Element>());
    let totals: *mut L::Element = memory.as_mut_ptr().cast();
    let level = |k: usize| totals.wrapping_add(k * sums);
    let sides = [rows.base.cast(), lanes.base.cast()];
    let mut table = Vec::with_capacity(BLOCK_ROWS + SPARE_ROWS);
    for first in (0..lanes.offsets.len()).step_by(width) {
        let now = first..lanes.offsets.len().min(first + width);
        for (offsets, result) in rows.offsets.chunks(BLOCK_ROWS).zip(rows.result_offsets.chunks(BLOCK_ROWS)) {
            table.clear();
            table.extend_from_slice(offsets);
            table.extend([offsets[offsets.len() - 1]; SPARE_ROWS]);
            let runs = lane_runs(&lanes.offsets[now.clone()]);
            let contiguous = now.len() == width && matches!(&runs[..], [LaneRun { step: 1, .. }]);
            let rows = (offsets.len(), &table[..]);
            let packed = level(depth + 1);
            let w = Workspace { short, vectors, width, runs, contiguous, rows, packed, turn: level(depth) };
            let mut waiting = 0;
            for (k, block) in blocks.iter().enumerate() {
                let last = k + 1 == blocks.len();
                // SAFETY: the caller upholds the contract; the sums of up to `depth` blocks wait,
                // each in its own memory.
                unsafe {
                    run_block::<L>(&w, sides, block, level(waiting));
                    let merges = if last { waiting } else { (k + 1).trailing_zeros() as usize };
                    for _ in 0..merges {
                        waiting -= 1;
                        let (sum, other) = (level(waiting), level(waiting + 1));
                        (0..offsets.len() * width).for_each(|i| *sum.add(i) = *sum.add(i) + *other.add(i));
                    }
                }
                waiting += 1;
            }
            // SAFETY: there are sums of all rows and lanes; the caller upholds the contract for the
            // result.
            unsafe { write_sums(to, result, &lanes.result_offsets[now.clone()], (totals, width)) }
        }
    }
}

macro_rules! at_level {
    ($name:ident $lanes:ident $features:literal) => {
        /// Computes a product of elements of `size` bytes at this level.
        ///
        /// # Safety
        /// The caller upholds the contract of [`gathered`](super::gathered::gathered), and the
        /// processor has the level.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(
            size: usize,
            to: *mut u8,
            rows: &ProductSide<'_>,
            lanes: &ProductSide<'_>,
            blocks: &[ProductTerms],
        ) {
            // SAFETY: the caller upholds the contract.
            unsafe {
                match size {
                    4 => product::<$lanes::F32>(to.cast(), rows, lanes, blocks),
                    _ => product::<$lanes::F64>(to.cast(), rows, lanes, blocks),
                }
            }
        }
    };
}
at_level!(avx512 avx512_lanes "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2");
at_level!(avx2 avx2_lanes "avx2,fma,bmi2");
