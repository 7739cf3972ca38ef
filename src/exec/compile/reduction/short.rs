//! Reductions of a few elements each, such as sums over a short last dimension or over windows.
//!
//! The elements of a batch of results are copied to columns: column `c` has the `c`-th element of
//! each result. The columns are then combined in the order that the other reductions have.

use super::{ReductionKernel, ReductionLoops};
use crate::core::Result;
use crate::exec::compile::codegen::flat_program::flat_tile_program;
use crate::exec::compile::codegen::flat_rows::{FlatRows, LONG_ROW, MIN_FLAT_ELEMENTS};
use crate::exec::compile::codegen::interpreter::{self, ACCUMULATOR_BYTES, Scratch};
use crate::exec::compile::codegen::segments::{self, CodegenRequest};
use crate::exec::compile::codegen::tile_program::TileProgram;
use crate::exec::compile::codegen::values::MemAccess;
use crate::exec::compile::fusion::FusionPlan;
use crate::exec::compile::index::MAX_LOOPS;
use crate::ir::program::Reducer;
use crate::kernels::{self, StridedMatrix, Unzip};
use crate::partition::fusion::space::reduction_memory_order;
use smallvec::SmallVec;

/// The maximum number of elements of a result.
const MAX_TERMS: i64 = 64;
/// The maximum number of elements of a result that a row program could reduce. Longer rows take
/// less time one by one: 0.31 against 0.40 ns an element at 18 of them.
const MAX_ROW_PROGRAM_TERMS: i64 = 16;
/// The minimum number of elements that are copied at a time.
const MIN_COPY: i64 = 8;
/// The length of rows of results from which a row scalar is better than an operand that repeats.
const LONG_RESULTS: i64 = 512;

/// Some of the dimensions of a batch.
#[derive(Clone, Copy, Debug)]
struct BatchLoop {
    /// The number of indices.
    size: i64,
    /// The elements from one index to the next in the input.
    step: i64,
    /// True if it is reduced.
    reduced: bool,
    /// True for the dimension along which batches are cut, perhaps merged with the next ones.
    is_chunk: bool,
}

/// How the elements of a batch are copied to columns.
#[derive(Clone, Debug)]
struct Columns {
    /// The kernel that copies.
    unzip: Unzip,
    /// The innermost kept dimension.
    kept: BatchLoop,
    /// The innermost reduced dimension; one index if there is none.
    reduced: BatchLoop,
    /// The offset of each other index in the input, among results, and among columns.
    others: Vec<[i64; 3]>,
    /// The elements from one index of the batch to the next, if `kept` is another dimension.
    chunk_step: Option<i64>,
    /// The number of results of an index of the batch.
    results: i64,
    /// The number of columns.
    terms: i64,
}

/// A reduction of a few elements to each result, a batch at a time.
#[derive(Clone, Debug)]
pub(super) struct ShortReduction {
    /// The program that computes flat rows; `None` if they are in memory.
    program: Option<TileProgram>,
    /// The first element in memory, for the dimensions outside of a batch.
    source: MemAccess,
    /// The dimensions outside of a batch.
    outer: SmallVec<[i64; 4]>,
    /// The bytes from one index of the result to the next, for each of them.
    out_strides: SmallVec<[i64; 4]>,
    /// The number of indices of the innermost of them in a flat row.
    chunk: i64,
    /// The number of its indices in a batch.
    batch: i64,
    /// The number of elements of each of these indices.
    inner: i64,
    /// How columns are made.
    columns: Columns,
}

/// Binds a reduction as one of a few elements; `None` if another kernel is better.
pub(super) fn bind(
    g: &FusionPlan<'_, '_>,
    group: usize,
    f: &ReductionLoops,
    base: u32,
    kernel: &ReductionKernel,
) -> Result<Option<ShortReduction>> {
    if !kernels::HAS_FAST_PATHS || !kernel.is_short() || kernel.weighted_rows.is_some() {
        return Ok(None);
    }
    let order = reduction_memory_order(f);
    let ext: SmallVec<[i64; 4]> = order.iter().map(|l| f.ext[*l]).collect();
    let reduced: SmallVec<[bool; 4]> = order.iter().map(|l| *l >= f.rank).collect();
    let long = reduced.last().is_some_and(|r| !r) && ext.last().is_some_and(|n| *n >= LONG_ROW);
    let ask = CodegenRequest { order: &order, stream: false, alias: None, overwrites: &[], slot_base: base };
    let plain = segments::tile_program(g, group, &ask)?;
    let [b] = &plain.boxes[..] else { return Ok(None) };
    let ([s], false) = (&b.segments[..], long) else { return Ok(None) };
    let source = s.mems.first().copied().filter(|_| s.tile_code.is_empty() && s.row_code.is_empty());
    let limit =
        if source.is_some() { ACCUMULATOR_BYTES as i64 / kernel.element_bytes } else { plain.tile_elements };
    let Some(rows) = FlatRows::choose(&ext, 1, limit) else { return Ok(None) };
    let rows = FlatRows { step: 1, ..rows };
    if reduced[..=rows.dim].contains(&true) {
        return Ok(None);
    }
    let program = match source {
        Some(_) => None,
        None => match flat_tile_program(g, group, &ask, rows)? {
            Some(t) if kernel.prefers_flat(&t) => Some(t),
            _ => return Ok(None),
        },
    };
    let v = &g.program.values[f.out];
    let own = usize::from(v.num_partials > 1);
    let out: SmallVec<[i64; 4]> =
        order.iter().map(|l| if *l < f.rank { v.strides[l + own] } else { 0 }).collect();
    let steps = source.map(|m| m.strides.map(|s| s / kernel.element_bytes));
    let levels = levels(&ext, &reduced, rows, steps.as_ref().map(|s| &s[..]));
    let Some(columns) = Columns::new(&levels, kernel.element_bytes) else { return Ok(None) };
    let d = rows.dim;
    let mut step = 1;
    for e in (d..order.len()).rev().filter(|e| !reduced[*e]) {
        if out[e] != step {
            return Ok(None);
        }
        step *= ext[e];
    }
    let elements = ACCUMULATOR_BYTES as i64 / kernel.element_bytes;
    let batch = match program {
        Some(_) => elements / rows.row_len() * rows.chunk,
        None => elements / (columns.terms * columns.results),
    };
    let none = MemAccess { slot: 0, element_bytes: 1, offset: 0, strides: [0; MAX_LOOPS] };
    Ok((batch > 0).then(|| ShortReduction {
        program,
        source: source.unwrap_or(none),
        outer: ext[..=d].into(),
        out_strides: out[..=d].iter().map(|s| s * kernel.element_bytes).collect(),
        chunk: rows.chunk,
        batch,
        inner: rows.inner,
        columns,
    }))
}

/// Returns the dimensions of a batch, merged where their kind and their steps permit.
/// `steps` has those of the input in memory; a flat row is contiguous.
fn levels(ext: &[i64], reduced: &[bool], rows: FlatRows, steps: Option<&[i64]>) -> SmallVec<[BatchLoop; 4]> {
    let mut levels: SmallVec<[BatchLoop; 4]> = SmallVec::new();
    let mut dense = rows.inner;
    for e in rows.dim..ext.len() {
        let is_chunk = e == rows.dim;
        let size = if is_chunk { 1 } else { ext[e] };
        dense /= size;
        let level = BatchLoop { size, step: steps.map_or(dense, |s| s[e]), reduced: reduced[e], is_chunk };
        match levels.last_mut() {
            Some(l) if l.reduced == level.reduced && l.step == size * level.step => {
                *l = BatchLoop { size: l.size * size, is_chunk: l.is_chunk, ..level };
            }
            _ => levels.push(level),
        }
    }
    levels
}

impl Columns {
    /// Returns the columns of these dimensions; `None` if too few elements are copied at a time.
    fn new(levels: &[BatchLoop], size: i64) -> Option<Columns> {
        let one = BatchLoop { size: 1, step: 0, reduced: true, is_chunk: false };
        let kept = *levels.iter().rfind(|l| !l.reduced)?;
        let reduced = levels.iter().rfind(|l| l.reduced).copied().unwrap_or(one);
        let product = |r: bool| levels.iter().filter(|l| l.reduced == r).map(|l| l.size).product::<i64>();
        let (mut others, mut results, mut terms) = (vec![[0; 3]], kept.size, reduced.size);
        let rest = levels.iter().rev().filter(|l| !(l.is_chunk && l.size == 1));
        let (mut kept_seen, mut reduced_seen) = (false, false);
        for l in rest {
            let seen = if l.reduced { &mut reduced_seen } else { &mut kept_seen };
            if !std::mem::replace(seen, true) {
                continue;
            }
            let (far, of) = if l.reduced { (&mut terms, 2) } else { (&mut results, 1) };
            let add = |i: i64, o: &[i64; 3]| {
                let mut o = *o;
                o[0] += i * l.step;
                o[of] += i * *far;
                o
            };
            others = (0..l.size)
                .flat_map(|i| others.iter().map(move |o| (i, o)))
                .map(|(i, o)| add(i, o))
                .collect();
            *far *= l.size;
        }
        let chunk = levels.first().filter(|l| l.is_chunk)?;
        let is_small = |l: &BatchLoop| (l.step * 16).abs() < i64::from(i32::MAX);
        let copied = if kept.is_chunk { MIN_COPY } else { kept.size } * reduced.size;
        let fits = copied >= MIN_COPY && others.len() <= MAX_TERMS as usize && is_small(&kept);
        (fits).then_some(Columns {
            unzip: kernels::unzip_of(size as usize)?,
            kept,
            reduced,
            others,
            chunk_step: (!kept.is_chunk).then_some(chunk.step * chunk.size),
            results: product(false),
            terms: product(true),
        })
    }
    /// Copies the elements of `many` indices at `from` to columns at `to`.
    ///
    /// # Safety
    /// `from` points to the elements of these indices, which are `size` bytes each, and `to` to
    /// space for all of them.
    unsafe fn copy(&self, many: i64, from: *const u8, to: *mut u8, size: i64) {
        let n = many * self.results;
        let (kept, repeat) = match self.chunk_step {
            Some(_) => (self.kept.size, many),
            None => (self.kept.size * many, 1),
        };
        let rows = StridedMatrix {
            rows: kept as usize,
            columns: self.reduced.size as usize,
            row_step: self.kept.step as isize,
            column_step: self.reduced.step as isize,
            to_step: n as usize,
        };
        for i in 0..repeat {
            for [source, result, column] in &self.others {
                let from =
                    from.wrapping_offset(((i * self.chunk_step.unwrap_or(0) + source) * size) as isize);
                let to = to.wrapping_offset(((column * n + i * self.results + result) * size) as isize);
                // SAFETY: the elements are those of one index, and the columns have `n` elements
                // each (caller contract).
                unsafe { (self.unzip)(&rows, to, from) }
            }
        }
    }
}

impl ReductionKernel {
    /// Returns true if each result is reduced from a few elements, and the order of addition does
    /// not round between them in another way than columns do.
    fn is_short(&self) -> bool {
        let (reducer, dtype) = self.reducer;
        let rounds = match reducer {
            Reducer::Add => dtype.size() == 2 && dtype.is_float(),
            // (a product with the complex number 1 changes infinities)
            Reducer::Mul => dtype.size() == 2 && dtype.is_float() || dtype.is_complex(),
            _ => false,
        };
        let most = if self.row_program.is_some() { MAX_ROW_PROGRAM_TERMS } else { MAX_TERMS };
        self.is_whole()
            && !(rounds && self.reduces_innermost)
            && self.num_reduced(&self.partials[0][0]) <= most
            && self.input.elements() >= MIN_FLAT_ELEMENTS
    }
    /// Returns true if this program of flat rows is better than the input with long rows.
    fn prefers_flat(&self, t: &TileProgram) -> bool {
        let s = &t.boxes[0].segments[0];
        let last = t.rank - 1;
        let repeats = s.mems.iter().any(|m| m.strides[last] < 0 && m.strides[..last].iter().any(|s| *s != 0));
        !repeats || self.reduces_innermost || self.input.ext[self.input.rank - 1] < LONG_RESULTS
    }
}

impl ShortReduction {
    /// Returns the number of indices outside of a batch.
    pub(super) fn num_positions(&self) -> i64 {
        self.outer.iter().product()
    }
    /// Computes the results at positions `a..b`.
    ///
    /// # Safety
    /// The contract of `TaskKernel::run` holds for these results of `kernel`.
    pub(super) unsafe fn run(
        &self,
        kernel: &ReductionKernel,
        (mut a, b): (i64, i64),
        base: &[*mut u8],
        s: &mut Scratch,
    ) {
        if !kernels::HAS_FAST_PATHS {
            unreachable!("`bind` returns no such reduction")
        }
        let (registers, operands) =
            self.program.as_ref().map_or((0, 0), |t| (t.num_registers as usize, t.max_operands));
        s.reserve(registers, operands);
        let (size, d) = (kernel.element_bytes, self.outer.len() - 1);
        let many = self.batch.min(b - a) * self.columns.results;
        // SAFETY: accumulators have space for a batch (`bind`), and the caller upholds the contract
        // for its elements.
        unsafe {
            kernel.fill_neutral(s.accumulator(2), many);
            let mut first = true;
            while a < b {
                let (mut x, mut k) = ([0; MAX_LOOPS], a);
                let mut to = base[kernel.out as usize];
                for e in (0..=d).rev() {
                    (x[e], k) = (k % self.outer[e], k / self.outer[e]);
                    to = to.wrapping_offset((x[e] * self.out_strides[e]) as isize);
                }
                let many = self.batch.min(self.outer[d] - x[d]).min(b - a);
                let from = match &self.program {
                    None => interpreter::address(&self.source, base, &x, d + 1),
                    Some(t) => {
                        let mut from = s.accumulator(0);
                        for i in (0..many).step_by(self.chunk as usize) {
                            let n = self.chunk.min(many - i) * self.inner;
                            let v = interpreter::run_flat_row(t, base, &x, n, (t.ext[t.rank - 1], first), s);
                            first = false;
                            if many <= self.chunk {
                                from = v;
                                break;
                            }
                            let to = from.wrapping_offset((i * self.inner * size) as isize);
                            std::ptr::copy_nonoverlapping(v, to, (n * size) as usize);
                            x[d] += self.chunk;
                        }
                        from
                    }
                };
                self.columns.copy(many, from, s.accumulator(1), size);
                self.combine(kernel, many * self.columns.results, to, s);
                a += many;
            }
        }
    }
    /// Combines columns of `n` elements to results at `to`.
    ///
    /// # Safety
    /// The columns are in accumulator 1, and accumulator 2 has `n` neutral elements. `to` points to
    /// space for `n` results.
    unsafe fn combine(&self, kernel: &ReductionKernel, n: i64, to: *mut u8, s: &Scratch) {
        let (columns, terms) = (s.accumulator(1), self.columns.terms);
        let column = n * kernel.element_bytes;
        // SAFETY: columns `0..terms` have `n` elements each (caller contract).
        unsafe {
            if !kernel.reduces_innermost {
                kernel.fill_neutral(to, n);
                return (kernel.reduce_rows)(n as usize, to, columns, terms as usize, column as isize);
            }
            // as lanes are combined: the second half of the columns with the first
            for half in [32, 16, 8, 4, 2, 1].into_iter().filter(|h| *h < terms) {
                // (after the first of them, `half` pairs are left, or all that there are)
                let many = n * half.min(terms - half);
                let high = columns.wrapping_offset((half * column) as isize);
                (kernel.combine)(many as usize, columns, columns, high, high, &[0.0; 4]);
            }
            (kernel.combine)(n as usize, to, s.accumulator(2), columns, columns, &[0.0; 4]);
        }
    }
}
