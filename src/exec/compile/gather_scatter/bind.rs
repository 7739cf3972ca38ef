//! Binds gathers and scatters to memory.

use super::{BoundIndex, BoundPartial, GatherScatterKernel, LoopBox, RowMethod, RowOwnership, ScatterTarget};
use crate::core::util::small_sort;
use crate::exec::compile::index::{LoopVec, MAX_LOOPS};
use crate::exec::compile::ir::{BufferProgram, GatherScatterOp, OperandAccess, ShardBox};
use crate::exec::{compile::codegen::values::scalar_bits, compile::task_kernel::TaskKernel};
use crate::ir::program::{OutOfBounds, Reducer, Source};
use crate::kernels;
use crate::partition::Slot;

/// A function from a value to the slot in whose memory it is.
type SlotFn<'a> = &'a dyn Fn(Slot) -> u32;

/// The slot, the offset and the strides of an operand, in bytes.
type OperandSource = (u32, i64, LoopVec);

/// Returns the source of an operand that is one value.
fn value_source(o: &OperandAccess, slot_index: SlotFn<'_>) -> OperandSource {
    let size = o.dtype.size() as i64;
    match o.boxes.first().map(|p| (p, p.source)) {
        Some((p, Source::Value(s))) => (slot_index(s), p.offset * size, p.strides.map(|s| s * size)),
        // without an operand, the value has no elements
        _ => (0, 0, [0; MAX_LOOPS]),
    }
}

/// The loops of a kernel, in its order.
struct KernelLoops {
    /// The loops, as numbered in the program.
    order: Vec<usize>,
    /// The number of query loops, which come first.
    num_queries: usize,
}

impl KernelLoops {
    /// Chooses the order: the loops on which an index depends (`asked`) come first, in program
    /// order; the others have the order of memory. `step` returns the bytes from one index of the
    /// result to the next.
    fn choose(
        s: &GatherScatterOp,
        asked: impl Fn(usize) -> bool,
        step: impl Fn(usize) -> i64,
    ) -> KernelLoops {
        // partials of a gather are distinguished by index, so its windows are query loops
        let masked = s.scatter.is_none() && s.partials.iter().any(|p| !p.boxes.is_empty());
        let window = |l: usize| s.indices.iter().any(|b| b.window == Some(l));
        // several updates of one element keep their order
        let again = |l: usize| s.scatter.is_some() && l >= s.rank && !window(l);
        let loops = (0..s.num_loops).filter(|l| s.ext[*l] != 1 && s.indices.iter().all(|b| b.loop_id != *l));
        let (mut order, mut rest): (Vec<usize>, Vec<usize>) =
            loops.partition(|l| asked(*l) || again(*l) || masked && window(*l));
        small_sort::sort_by_key(&mut rest, |l| std::cmp::Reverse(step(*l).abs()));
        // if there are no query loops, a large box gets one, so that it can be divided into tasks
        if order.is_empty()
            && s.scatter.is_none()
            && rest.len() > 1
            && rest.iter().map(|l| s.ext[*l]).product::<i64>() > 1 << 16
        {
            order.push(rest.remove(0));
        }
        let num_queries = order.len();
        order.extend(rest);
        KernelLoops { order, num_queries }
    }
    /// Returns one number for each loop; positions without a loop get `rest`.
    fn map(&self, of: impl Fn(usize) -> i64, rest: i64) -> LoopVec {
        let mut x = [rest; MAX_LOOPS];
        self.order.iter().enumerate().for_each(|(k, l)| x[k] = of(*l));
        x
    }
    /// Returns the position of a loop of the program.
    fn position(&self, l: usize) -> Option<usize> {
        self.order.iter().position(|x| *x == l)
    }
    /// Translates a box of a scatter; `None` if it is empty.
    fn scatter_box(&self, s: &GatherScatterOp, b: &ShardBox) -> Option<LoopBox> {
        if (s.rank..s.num_loops).any(|l| b.lo[l] >= b.hi[l]) {
            return None;
        }
        let lo = |l: usize| if l < s.rank { 0 } else { b.lo[l] };
        let hi = |l: usize| if l < s.rank { s.ext[l] } else { b.hi[l] };
        Some((self.map(lo, 0), self.map(hi, 1)))
    }
}

/// Binds a gather or a scatter to memory.
/// `in_place` is true if the result overwrites the value that a scatter starts from.
pub(crate) fn bind(
    flow: &BufferProgram<'_>,
    s: &GatherScatterOp,
    slot_index: SlotFn<'_>,
    in_place: bool,
    workers: i64,
) -> GatherScatterKernel {
    let v = &flow.values[s.out];
    let size = v.dtype.size() as i64;
    let own = usize::from(v.num_partials > 1);
    let source = value_source(&s.reads[usize::from(s.scatter.is_some())], slot_index);
    let found: Vec<OperandSource> =
        s.indices.iter().map(|b| value_source(&s.reads[b.operand], slot_index)).collect();
    // an update loop of a scatter has the strides of its window in the result
    let step = |l: usize| {
        let window = s.indices.iter().find(|b| l >= s.rank && b.window == Some(l)).map(|b| b.loop_id);
        let d = if l < s.rank { Some(l) } else { window };
        d.map_or(0, |d| v.strides[d + own] * size)
    };
    // the window of a gather moves along the source
    let moved = |l: usize| {
        let windows = s.indices.iter().filter(|b| s.scatter.is_none() && b.window == Some(l));
        windows.map(|b| source.2[b.loop_id]).sum::<i64>()
    };
    let loops = KernelLoops::choose(s, |l| found.iter().any(|f| f.2[l] != 0), step);
    let ext = loops.map(|l| s.ext[l], 1);
    let elements: i64 = loops.order.iter().map(|l| s.ext[*l]).product();
    let count: i64 = ext[..loops.num_queries].iter().product();
    let whole = v.shape.num_elements() as f64 * size as f64;
    let init = if s.scatter.is_some() && !in_place { whole / 10.0 } else { 0.0 };
    let cost_us = ((elements * size) as f64 / 8.0 + 4.0 * count as f64 + init) / 1000.0;
    let most = if s.scatter.is_some() { workers } else { 4 * workers };
    let requested_tasks = if cost_us < 20.0 { 1 } else { ((cost_us / 20.0) as i64).clamp(1, most) };
    let mut kernel = GatherScatterKernel {
        out: slot_index(s.out),
        src_slot: source.0,
        src_offset: source.1,
        src_strides: loops.map(|l| source.2[l] + moved(l), 0),
        dst_strides: loops.map(step, 0),
        element_bytes: size as usize,
        num_loops: loops.order.len(),
        num_query_loops: loops.num_queries,
        ext,
        indices: bind_indices(flow, s, &found, &source.2, &loops),
        fill_bits: scalar_bits(v.dtype, s.reads[0].fill),
        absent_bits: scalar_bits(v.dtype, s.neutral),
        partials: bind_partials(flow, s, &loops),
        scatter: s.scatter.map(|combine| scatter_target(flow, s, combine, slot_index, &loops)),
        method: RowMethod::General,
        method_reason: "",
        num_tasks: 1,
        cost_us,
    };
    (kernel.method, kernel.method_reason) = RowMethod::choose(&kernel, v.dtype, s.scatter.flatten());
    kernel.limit_tasks(requested_tasks);
    kernel
}

/// Binds the index operands, whose sources are `found`; `src_strides` are those of the source.
fn bind_indices(
    flow: &BufferProgram<'_>,
    s: &GatherScatterOp,
    found: &[OperandSource],
    src_strides: &LoopVec,
    loops: &KernelLoops,
) -> Vec<BoundIndex> {
    let v = &flow.values[s.out];
    let (size, own) = (v.dtype.size() as i64, usize::from(v.num_partials > 1));
    let numbered = s.indices.iter().enumerate().zip(found);
    let index = numbered.map(|((k, b), f)| BoundIndex {
        slot: f.0,
        dtype: s.reads[b.operand].dtype,
        offset: f.1,
        strides: loops.map(|l| f.2[l], 0),
        max_start: b.max_start,
        negative_offset: s.negative_offsets[k],
        clip: b.mode == OutOfBounds::Clip,
        target_stride: match s.scatter {
            Some(_) => v.strides[b.loop_id + own] * size,
            None => src_strides[b.loop_id],
        },
        loop_id: b.loop_id,
        window: b.window.and_then(|l| loops.position(l)),
    });
    index.collect()
}

/// Binds the partials of the result.
fn bind_partials(flow: &BufferProgram<'_>, s: &GatherScatterOp, loops: &KernelLoops) -> Vec<BoundPartial> {
    let v = &flow.values[s.out];
    let apart = if v.num_partials > 1 { v.strides[0] * v.dtype.size() as i64 } else { 0 };
    let width = |k: usize| s.reads.get(k).map_or(1, |o| o.dtype.size() as i64);
    let partial = s.partials.iter().enumerate().map(|(c, p)| BoundPartial {
        out_offset: c as i64 * apart,
        operand_offsets: std::array::from_fn(|k| p.operand_offsets[k] * width(k)),
        boxes: match s.scatter {
            None => p.boxes.iter().map(|b| (b.lo, b.hi)).collect(),
            Some(_) => p.boxes.iter().filter_map(|b| loops.scatter_box(s, b)).collect(),
        },
    });
    partial.collect()
}

/// Binds the target of a scatter.
fn scatter_target(
    flow: &BufferProgram<'_>,
    s: &GatherScatterOp,
    combine: Option<Reducer>,
    slot_index: SlotFn<'_>,
    loops: &KernelLoops,
) -> ScatterTarget {
    let v = &flow.values[s.out];
    let (size, own) = (v.dtype.size() as i64, usize::from(v.num_partials > 1));
    let (was, bits) = match s.reads[0].boxes.first().map(|p| p.source) {
        Some(Source::Value(_)) => (Some(value_source(&s.reads[0], slot_index)), 0),
        Some(Source::Const(c)) => (None, scalar_bits(v.dtype, c)),
        None => (None, scalar_bits(v.dtype, s.reads[0].fill)),
    };
    let first = (0..s.rank).find(|d| s.ext[*d] != 1);
    let rows = first.map_or(1, |d| s.ext[d]);
    let dims = first.unwrap_or(s.rank)..s.rank;
    let (mut ext, mut st, mut from) = ([1; MAX_LOOPS], [0; MAX_LOOPS], [0; MAX_LOOPS]);
    for (k, d) in dims.clone().enumerate() {
        (ext[k], st[k]) = (s.ext[d], v.strides[d + own] * size);
        from[k] = was.map_or(0, |w| w.2[d]);
    }
    if dims.is_empty() {
        // a scalar result is one row of one element
        (st[0], from[0]) = (size, size);
    }
    let rank = dims.len().max(1);
    let mut dense = was.is_some();
    let mut next = size;
    for k in (0..rank).rev() {
        dense &= ext[k] == 1 || st[k] == next && from[k] == next;
        next *= ext[k];
    }
    let own = match first {
        None => RowOwnership::One,
        Some(d) => match (s.indices.iter().position(|b| b.loop_id == d), loops.position(d)) {
            (Some(j), _) => RowOwnership::Indexed(j),
            (None, Some(l)) => RowOwnership::Loop(l),
            (None, None) => RowOwnership::One,
        },
    };
    let was = was.map(|w| (w.0, w.1, from));
    let combine = combine.and_then(|c| kernels::combine(c, v.dtype));
    ScatterTarget {
        init: was,
        init_bits: bits,
        rank,
        ext,
        strides: st,
        contiguous: dense,
        num_rows: rows,
        ownership: own,
        combine,
    }
}
