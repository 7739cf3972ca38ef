//! Computes equal reductions once, such as the mean of a batch and the one in its variance.

use crate::ir::program::loop_nest::Source;
use crate::partition::Slot;
use crate::partition::buffers::{
    BufferOp, BufferProgram, OperandAccess, ReductionLoops, ReductionOp, ShardBox,
};

/// The maximum number of operations before a reduction among which an equal one is searched.
const MAX_SEARCHED_OPS: usize = 256;

/// Removes reductions that an earlier operation computes. Their results become its result.
///
/// Uses must not have been counted. Results of the program are computed separately.
pub(super) fn merge_equal_reductions(flow: &mut BufferProgram<'_>) {
    let mut k = 0;
    while k < flow.ops.len() {
        match earlier_equal(flow, k) {
            Some((old, new)) => {
                flow.ops.remove(k);
                flow.values[old].alias = Some(new);
                flow.ops.iter_mut().skip(k).for_each(|op| replace(op, old, new));
            }
            None => k += 1,
        }
    }
}

/// Returns the result of reduction `k`, and that of an earlier operation that computes it.
fn earlier_equal(flow: &BufferProgram<'_>, k: usize) -> Option<(Slot, Slot)> {
    let BufferOp::Reduction(op) = &flow.ops[k] else { return None };
    let out = op.loops.out;
    if flow.outs.contains(&out) {
        return None;
    }
    let same = |op: &ReductionOp<'_>, other: &ReductionOp<'_>| {
        let (a, b) = (&op.loops, &other.loops);
        a.reads == b.reads
            && (a.dtype, a.num_loops, a.rank, a.ext) == (b.dtype, b.num_loops, b.rank, b.ext)
            && (op.reducer, &op.code) == (other.reducer, &other.code)
            && same_boxes(a, b)
    };
    let first = k.saturating_sub(MAX_SEARCHED_OPS);
    flow.ops[first..k].iter().rev().find_map(|other| match other {
        BufferOp::Reduction(other) if same(op, other) => {
            let (a, b) = (&flow.values[out], &flow.values[other.loops.out]);
            let alike = (a.dtype, &a.shape, a.num_partials) == (b.dtype, &b.shape, b.num_partials);
            alike.then_some((out, other.loops.out))
        }
        _ => None,
    })
}

/// Returns true if two reductions have the same shard boxes in each partial.
fn same_boxes(a: &ReductionLoops, b: &ReductionLoops) -> bool {
    let alike = |(a, b): (&Vec<ShardBox>, &Vec<ShardBox>)| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a.lo, a.hi) == (b.lo, b.hi))
    };
    a.partials.len() == b.partials.len() && a.partials.iter().zip(&b.partials).all(alike)
}

/// Lets an operation read value `new` instead of `old`, so that it can be fused with its producer.
fn replace(op: &mut BufferOp<'_>, old: Slot, new: Slot) {
    let reads: &mut [OperandAccess] = match op {
        BufferOp::Elementwise(m) => &mut m.reads,
        BufferOp::Reduction(ReductionOp { loops, .. }) | BufferOp::Contraction(loops) => &mut loops.reads,
        _ => return,
    };
    for p in reads.iter_mut().flat_map(|r| &mut r.boxes).filter(|p| p.source == Source::Value(old)) {
        p.source = Source::Value(new);
    }
}
