//! Reductions over the trailing loops, in one fixed order of addition.
//!
//! The order depends on shapes and shardings only. The elements of a shard are grouped into
//! *units*. If the innermost index is reduced, a unit is a run of 512 elements (256 elements of 8
//! bytes, 128 of 16), which may span several rows; otherwise it is a block of 128 rows. The results
//! of units are combined as by a binary counter, in a tree that depends only on their number, and
//! so are the results of shards.
//!
//! A long reduction is cut into *spans* of 2^k units, which are separate tasks. Spans are complete
//! subtrees, so the result does not depend on the cut. It does not depend on whether the input is
//! in memory or computed during the reduction either.

mod distances;
mod run;
mod short;
mod weighted;

use super::fusion::{FusionPlan, FusionRoot};
use super::index::{LoopVec, MAX_LOOPS};
use super::ir::{ReductionLoops, ShardBox};
use super::row_program::{RowProgram, RowReduction};
use crate::core::{DType, Error, Result};
use crate::exec::compile::codegen::interpreter::ACCUMULATOR_BYTES;
use crate::exec::compile::codegen::segments::{self, CodegenRequest};
use crate::exec::compile::codegen::tile_program::{MAX_TILE_ELEMENTS, REGISTER_BYTES, TileProgram};
use crate::exec::compile::codegen::values::reduction_ns_per_element;
use crate::ir::program::Reducer;
use crate::kernels::{self, CombineRows, CombineRows8, SliceKernel};
use crate::partition::fusion::space::reduction_order;

/// The number of rows of a unit, if the innermost index is kept.
const BLOCK_ROWS: i64 = 128;

/// A reduction that is bound to memory.
#[derive(Clone, Debug)]
pub(crate) struct ReductionKernel {
    /// The tile program that computes the input.
    pub(crate) input: TileProgram,
    /// True for each dimension of its space that is reduced.
    reduced: [bool; MAX_LOOPS],
    /// The slot of the result.
    pub(crate) out: u32,
    /// The bytes from one partial of the result to the next.
    partial_stride: i64,
    /// The bytes from one index of each kept dimension of the result to the next.
    out_strides: LoopVec,
    /// For each partial of the result, the boxes of its shards that are not empty.
    partials: Vec<Vec<(LoopVec, LoopVec)>>,
    /// The size of an element, in bytes.
    element_bytes: i64,
    /// The neutral element of the reducer, as bits.
    neutral: [f64; 2],
    /// The kernel that reduces elements to one.
    reduce: SliceKernel,
    /// The kernel that combines two tiles of results.
    combine: SliceKernel,
    /// The kernel that combines several rows.
    reduce_rows: CombineRows,
    /// The kernel for exactly eight shards of one row each; `None` if it does not apply.
    reduce_eight_rows: Option<CombineRows8>,
    /// The kernel for sums of products of rows; `None` if it does not apply.
    weighted_rows: Option<weighted::WeightedRows>,
    /// True if the innermost dimension is reduced.
    reduces_innermost: bool,
    /// True if the input is read from memory, without any computation.
    input_in_memory: bool,
    /// The row program that runs the reduction, if each result is one run of elements.
    row_program: Option<Box<RowProgram>>,
    /// The reduction a batch of results at a time, if each has few elements.
    short: Option<Box<short::ShortReduction>>,
    /// The reduction as one of distances, if it is one.
    distances: Option<Box<distances::Distances>>,
    /// The reducer and the element type.
    reducer: (Reducer, DType),
    /// The number of elements of a unit if the innermost dimension is reduced, otherwise of a tile.
    tile_elements: i64,
    /// The number of kept indices, without the innermost dimension.
    num_outer: i64,
    /// The number of tiles of the innermost dimension; 1 if it is reduced.
    num_columns: i64,
    /// True if results are stored past the caches.
    stream: bool,
    /// The number of spans of each shard, whose results are in scratch if there are two stages.
    num_spans: i64,
    /// The number of units of a span; `i64::MAX` if there is only one stage.
    span_units: i64,
    /// The approximate cost, in microseconds.
    cost_us: f64,
    /// The number of tasks; if there are two stages, that of the first.
    num_tasks: i64,
}

/// Returns the error for a reducer without a kernel.
fn missing_kernel(combine: Reducer, dtype: DType) -> Error {
    Error::internal(format!("no kernel combines by {combine:?} over {dtype}"))
}

/// The iteration space of a reduction, and the boxes of shards in it.
struct ReductionSpace {
    /// The tile program that computes the input.
    input: TileProgram,
    /// True for each dimension that is reduced.
    reduced: [bool; MAX_LOOPS],
    /// The bytes from one index of each kept dimension of the result to the next.
    out_strides: LoopVec,
    /// For each partial of the result, the boxes of its shards that are not empty.
    partials: Vec<Vec<(LoopVec, LoopVec)>>,
}

impl ReductionSpace {
    /// Returns the space of a group, with its loops in the order of memory.
    fn new(g: &FusionPlan<'_, '_>, group: usize, f: &ReductionLoops, base: u32) -> Result<ReductionSpace> {
        let order = reduction_order(f);
        let ask =
            CodegenRequest { order: &order, stream: false, alias: None, overwrites: &[], slot_base: base };
        let input = segments::tile_program(g, group, &ask)?;
        let v = &g.program.values[f.out];
        let own = usize::from(v.num_partials > 1);
        let (mut out_strides, mut reduced) = ([0; MAX_LOOPS], [false; MAX_LOOPS]);
        for (e, &l) in order.iter().enumerate() {
            if l < f.rank {
                out_strides[e] = v.strides[l + own] * v.dtype.size() as i64;
            } else {
                reduced[e] = true;
            }
        }
        let filled = |b: &&ShardBox| (f.rank..f.num_loops).all(|l| b.lo[l] < b.hi[l]);
        let pack = |b: &ShardBox| {
            let (mut lo, mut hi) = ([0; MAX_LOOPS], [1; MAX_LOOPS]);
            for (e, &l) in order.iter().enumerate() {
                (lo[e], hi[e]) = (b.lo[l], b.hi[l]);
            }
            (lo, hi)
        };
        let partials = f.partials.iter().map(|c| c.iter().filter(filled).map(pack).collect()).collect();
        Ok(ReductionSpace { input, reduced, out_strides, partials })
    }
    /// Merges adjacent dimensions that are both kept or both reduced.
    fn merge_dims(&mut self) {
        let ReductionSpace { input, reduced, out_strides: st, partials } = self;
        for d in (0..input.rank.saturating_sub(1)).rev() {
            let e = input.ext[d + 1];
            let is_full = partials.iter().flatten().all(|(lo, hi)| lo[d + 1] == 0 && hi[d + 1] == e);
            if reduced[d] != reduced[d + 1]
                || !is_full
                || !reduced[d] && st[d] != st[d + 1] * e
                || !input.can_collapse(d)
            {
                continue;
            }
            input.collapse_pair(d);
            st.copy_within(d + 1.., d);
            reduced.copy_within(d + 1.., d);
            for (lo, hi) in partials.iter_mut().flatten() {
                (lo[d + 1], hi[d + 1]) = (lo[d] * e, hi[d] * e);
                lo.copy_within(d + 1.., d);
                hi.copy_within(d + 1.., d);
            }
        }
    }
}

/// Binds the reduction of a group to memory.
pub(crate) fn bind(
    g: &FusionPlan<'_, '_>,
    group: usize,
    base: u32,
    in_loop: bool,
) -> Result<ReductionKernel> {
    let FusionRoot::Reduction(k) = g.groups[group].root else { unreachable!("the root is a reduction") };
    let f = g.reduction_loops(k);
    let v = &g.program.values[f.out];
    let size = v.dtype.size() as i64;
    let mut space = ReductionSpace::new(g, group, f, base)?;
    space.merge_dims();
    let ReductionSpace { input, reduced, out_strides, partials } = space;
    let (combine, dtype) = (g.reduction_op(k).reducer, f.dtype);
    let last = input.rank - 1;
    let row = reduced[last];
    let seg = input.boxes.first().and_then(|b| b.segments.first());
    let direct = seg.is_some_and(|s| s.tile_code.is_empty() && s.row_code.is_empty());
    let tile = match (row, direct) {
        (true, _) => (REGISTER_BYTES as i64 / size).min(MAX_TILE_ELEMENTS),
        // (eight rows are read at a time, two pages of each: the processor prefetches such streams)
        (false, true) => (ACCUMULATOR_BYTES as i64 / size).min(2048),
        (false, false) => input.tile_elements,
    };
    let mut n = ReductionKernel {
        reduced,
        out: f.out as u32 + base,
        partial_stride: if v.num_partials > 1 { v.strides[0] * size } else { 0 },
        out_strides,
        partials,
        element_bytes: size,
        neutral: kernels::neutral(combine, dtype).ok_or_else(|| missing_kernel(combine, dtype))?,
        reduce: kernels::fold(combine, dtype).ok_or_else(|| missing_kernel(combine, dtype))?,
        combine: kernels::combine(combine, dtype).ok_or_else(|| missing_kernel(combine, dtype))?,
        reduce_rows: kernels::combine_rows(combine, dtype).ok_or_else(|| missing_kernel(combine, dtype))?,
        reduce_eight_rows: None,
        weighted_rows: None,
        reduces_innermost: row,
        input_in_memory: direct,
        row_program: None,
        short: None,
        distances: None,
        reducer: (combine, dtype),
        tile_elements: tile,
        num_outer: (0..last).filter(|d| !reduced[*d]).map(|d| input.ext[d]).product(),
        num_columns: if row { 1 } else { (input.ext[last] + tile - 1) / tile },
        stream: false,
        num_spans: 1,
        span_units: i64::MAX,
        cost_us: 0.0,
        num_tasks: 1,
        input,
    };
    n.choose_eight_rows(!in_loop && v.shape.num_elements() as i64 * size >= 16 << 20);
    n.row_program = n.as_row_program();
    n.weighted_rows = n.choose_weighted_rows(g, group);
    let elements = n.input.elements();
    n.choose_spans(elements);
    n.distances = distances::bind(g, group, f, base, &n)?.map(Box::new);
    n.short = short::bind(g, group, f, base, &n)?.map(Box::new);
    n.cost_us = n.estimate_cost_us(elements);
    n.num_tasks = n.default_num_tasks();
    Ok(n)
}

impl ReductionKernel {
    /// Chooses the kernel for eight shards of one row each, if it applies.
    /// With `stream`, results are stored past the caches.
    fn choose_eight_rows(&mut self, stream: bool) {
        let last = self.input.rank - 1;
        let spaced = |c: &Vec<(LoopVec, LoopVec)>| {
            self.reduced[..=last].iter().filter(|r| **r).count() == 1 && self.is_eight_even_rows(c)
        };
        if self.reduces_innermost
            || !self.input_in_memory
            || self.out_strides[last] != self.element_bytes
            || !self.partials.iter().all(spaced)
        {
            return;
        }
        let (combine, dtype) = self.reducer;
        self.reduce_eight_rows = kernels::combine_rows8(combine, dtype, stream);
        if self.reduce_eight_rows.is_some() {
            self.stream = stream;
            self.tile_elements = 16384;
            self.num_columns = (self.input.ext[last] + self.tile_elements - 1) / self.tile_elements;
        }
    }
    /// Returns the approximate cost, in microseconds.
    fn estimate_cost_us(&self, elements: i64) -> f64 {
        let (combine, dtype) = self.reducer;
        let w = self.input.ns_per_element + reduction_ns_per_element(combine, dtype);
        let n = elements as f64;
        let calls = match (&self.distances, &self.short) {
            (None, None) => (n / self.tile_elements as f64).max((self.num_outer * self.num_columns) as f64),
            // (for a batch of results)
            _ => n / self.tile_elements as f64,
        };
        ((n * w).max(n * self.element_bytes as f64 / 60.0) + 25.0 * calls) / 1000.0
    }
    /// Returns true if these are eight shards of one row each, at equal distances.
    fn is_eight_even_rows(&self, ranks: &[(LoopVec, LoopVec)]) -> bool {
        let Some(d) = self.reduced.iter().position(|r| *r) else { return false };
        ranks.len() == 8
            && ranks.iter().enumerate().all(|(k, (lo, hi))| {
                hi[d] == lo[d] + 1 && lo[d] - ranks[0].0[d] == k as i64 * (ranks[1].0[d] - ranks[0].0[d])
            })
    }
    /// Returns the row program of the reduction, if each result is one run of elements.
    fn as_row_program(&self) -> Option<Box<RowProgram>> {
        let last = self.input.rank - 1;
        let rows = if last > 0 { self.input.ext[0] } else { 1 };
        let [c] = &self.partials[..] else { return None };
        let [(lo, hi)] = &c[..] else { return None };
        let is_full = lo[last] == 0 && hi[last] == self.input.ext[last];
        let plain = self.reduces_innermost && last <= 1 && !self.reduced[..last].contains(&true) && is_full;
        let mut alone = RowProgram::default();
        let fits = plain && alone.push_stage(&self.input, rows, Some(self.row_reduction()), |_| false);
        fits.then(|| Box::new(alone.finish(rows)))
    }
    /// Returns the reduction as the end of a stage of a row program.
    fn row_reduction(&self) -> RowReduction {
        let step = if self.input.rank > 1 { self.out_strides[0] } else { 0 };
        let Self {
            reduce: fold, reducer: of, combine, tile_elements: unit, out, element_bytes: size, ..
        } = *self;
        RowReduction {
            reduce: fold,
            reducer: of,
            combine,
            unit_elements: unit,
            out,
            out_stride: step,
            result_bytes: size as usize,
        }
    }
    /// Adds the reduction to a row program; returns false if rows do not have one result each.
    /// `strip` says which slots are scratch with space for one row.
    pub(crate) fn push_onto(
        &self,
        programs: &mut RowProgram,
        rows: i64,
        is_scratch: impl Fn(u32) -> bool,
    ) -> bool {
        self.row_program.is_some()
            && programs.push_stage(&self.input, rows, Some(self.row_reduction()), is_scratch)
    }
    /// Returns true if the reduction can run on a range of indices of its outermost dimension.
    ///
    /// That dimension must be kept, and each result must be computed in one stage.
    pub(crate) fn can_run_by_rows(&self) -> bool {
        let alone = self.partials.len() == 1 && self.reduce_eight_rows.is_none() && !self.has_second_stage();
        alone && self.input.rank > 1 && !self.reduced[0]
    }
    /// Returns the number of reduced indices of a shard.
    fn num_reduced(&self, (lo, hi): &(LoopVec, LoopVec)) -> i64 {
        (0..self.input.rank).filter(|d| self.reduced[*d]).map(|d| hi[d] - lo[d]).product()
    }
    /// Returns the number of units of a shard.
    fn num_units(&self, rank: &(LoopVec, LoopVec)) -> i64 {
        let unit = if self.reduces_innermost { self.tile_elements } else { BLOCK_ROWS };
        (self.num_reduced(rank) + unit - 1) / unit
    }
    /// Cuts long shards into spans if there are few results.
    fn choose_spans(&mut self, elements: i64) {
        let tasks = self.num_outer * self.num_columns * self.partials.len() as i64;
        let units = self.partials.iter().flatten().map(|r| self.num_units(r)).max().unwrap_or(0);
        if elements < 1 << 18 || tasks >= 16 || self.reduce_eight_rows.is_some() || units < 2 {
            return;
        }
        let ranks = self.partials.iter().map(Vec::len).max().unwrap_or(1) as i64;
        let per = elements / (tasks * ranks * units).max(1);
        // a span has about 65,536 elements
        let mut span = 1;
        while span * per < 1 << 16 && span < units {
            span *= 2;
        }
        self.span_units = span;
        self.num_spans = (units + span - 1) / span;
        if self.num_spans == 1 && ranks == 1 {
            self.span_units = i64::MAX;
        }
    }
    /// Returns true if the reduction runs in two stages: first spans, then their results.
    fn has_second_stage(&self) -> bool {
        self.span_units != i64::MAX
    }
    /// Returns the maximum number of shards of a partial.
    fn max_shards(&self) -> i64 {
        self.partials.iter().map(Vec::len).max().unwrap_or(0) as i64
    }
    /// Returns the number of tiles of the result.
    fn num_result_tiles(&self) -> i64 {
        self.num_outer * self.num_columns * self.partials.len() as i64
    }
    /// Returns the size of the results of all spans, in bytes.
    fn span_bytes(&self) -> usize {
        (self.num_result_tiles() * self.max_shards() * self.num_spans) as usize
            * self.span_slot_bytes() as usize
    }
    /// Returns the bytes from the result of one span to that of the next: a tile of elements, or
    /// one element, which takes at least 8 bytes so that every result is aligned.
    fn span_slot_bytes(&self) -> i64 {
        if self.reduces_innermost {
            self.element_bytes.max(8)
        } else {
            self.tile_elements * self.element_bytes
        }
    }
    /// Returns the number of tasks that balances the work.
    fn default_num_tasks(&self) -> i64 {
        if self.has_second_stage() {
            return self.num_result_tiles() * self.max_shards() * self.num_spans;
        }
        let elements = self.input.elements();
        if let Some(distances) = &self.distances {
            return (elements >> 20).clamp(1, distances.num_units());
        }
        if let Some(short) = &self.short {
            return (elements >> 16).clamp(1, short.num_positions());
        }
        match self.reduces_innermost {
            true => (elements >> 16).clamp(1, self.num_result_tiles().max(1)),
            false => {
                let most = self.num_result_tiles().max(1);
                // tiles are large enough to be tasks, unless the reduction is short
                (elements >> 14).clamp(1, most)
            }
        }
    }
}
