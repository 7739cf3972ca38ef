//! Transposes matmuls whose result is only read transposed.
//!
//! The gradient of a matmul is a matmul followed by a transpose. If an elementwise operation is the
//! only reader of a matmul, and reads it with its dimensions permuted, the loops of the matmul are
//! permuted instead. The reader can then be fused with the matmul's tiles, and needs no strided
//! pass over memory.

use crate::core::types::{Scalar, Shape};
use crate::ir::program::loop_nest::{ScalarArg, ScalarOp, Source};
use crate::partition::Slot;
use crate::partition::buffers::index::{MAX_LOOPS, extents, row_major_strides};
use crate::partition::buffers::{
    AccessBox, BufferOp, BufferProgram, BufferValue, ElementwiseOp, OperandAccess, UseCount,
};
use smallvec::smallvec;

/// Transposes each matmul whose only consumer reads its result transposed.
///
/// The uses of values must have been counted. If the consumer only copies, it is removed, and the
/// matmul computes its result.
pub(crate) fn transpose_matmuls(flow: &mut BufferProgram<'_>) {
    let mut made = vec![None; flow.values.len()];
    for (k, item) in flow.ops.iter().enumerate() {
        if let BufferOp::Contraction(f) = item {
            made[f.out] = Some(k);
        }
    }
    let mut gone = vec![false; flow.ops.len()];
    for (k, gone) in gone.iter_mut().enumerate() {
        for s in flow.ops[k].sources() {
            let Some(maker) = made.get(s).copied().flatten() else { continue };
            let BufferOp::Elementwise(m) = &flow.ops[k] else { continue };
            let Some(to) = transposed_loops(flow, m, s) else { continue };
            let out = m.out;
            let target =
                if is_plain_copy(flow, m) { out } else { add_transposed_value(flow, s, &to, m.num_loops) };
            if let BufferOp::Contraction(f) = &mut flow.ops[maker] {
                f.permute_result_loops(&to);
                f.out = target;
            }
            if target == out {
                (*gone, made[out]) = (true, Some(maker));
                break;
            }
            let read = full_access(&flow.values[target], target);
            if let BufferOp::Elementwise(m) = &mut flow.ops[k] {
                for r in m.reads.iter_mut().filter(|r| reads_value(r, s)) {
                    *r = read.clone();
                }
            }
        }
    }
    let mut gone = gone.into_iter();
    flow.ops.retain(|_| gone.next() != Some(true));
}

/// Returns true if the operand reads value `s`.
fn reads_value(o: &OperandAccess, s: Slot) -> bool {
    o.boxes.iter().any(|p| p.source == Source::Value(s))
}

/// Returns the loop of each dimension of `s`, if `m` is its only reader and reads it permuted.
fn transposed_loops(flow: &BufferProgram<'_>, m: &ElementwiseOp<'_>, s: Slot) -> Option<[u8; MAX_LOOPS]> {
    let v = &flow.values[s];
    if flow.alias_root(s) != s || flow.uses[s] != UseCount::ONCE || v.num_partials > 1 {
        return None;
    }
    let mut pieces = m.reads.iter().filter(|r| reads_value(r, s)).flat_map(|r| &r.boxes);
    let to = pieces.clone().next()?.permutation(m.num_loops)?;
    let is_full = |p: &AccessBox| p.source == Source::Value(s) && p.covers(&m.ext, m.num_loops);
    (pieces.all(|p| is_full(p) && p.permutation(m.num_loops) == Some(to))
        && (0..m.num_loops).any(|d| to[d] as usize != d))
    .then_some(to)
}

/// Returns true if an operation only copies a value of the same type that is not partial.
fn is_plain_copy(flow: &BufferProgram<'_>, m: &ElementwiseOp<'_>) -> bool {
    let ([r], [inst]) = (&m.reads[..], &m.code.insts[..]) else { return false };
    let v = &flow.values[m.out];
    inst.op == ScalarOp::Copy
        && inst.args[..] == [ScalarArg::Access(0)]
        && r.dtype == v.dtype
        && v.num_partials == 1
        && v.alias.is_none()
}

/// Adds a value that is `s` with dimension d moved to position `to[d]`.
fn add_transposed_value(flow: &mut BufferProgram<'_>, s: Slot, to: &[u8; MAX_LOOPS], n: usize) -> Slot {
    let old = &flow.values[s];
    let from = |e: usize| (0..n).find(|d| to[*d] as usize == e).map_or(1, |d| old.shape[d]);
    let shape: Shape = (0..n).map(from).collect();
    let k = flow.values.len();
    let new = BufferValue { strides: row_major_strides(&shape), shape, layout: None, ..old.clone() };
    flow.values.push(new);
    flow.uses.push(UseCount::ONCE);
    k
}

/// Returns an access that reads all of a value in order.
fn full_access(v: &BufferValue<'_>, slot: Slot) -> OperandAccess {
    let n = v.shape.rank();
    let mut p =
        AccessBox { strides: v.strides, ..AccessBox::broadcast(Source::Value(slot), &extents(&v.shape), n) };
    for d in 0..n {
        p.dim_loops[d] = d as u8;
    }
    OperandAccess { dtype: v.dtype, fill: Scalar::zero(v.dtype), boxes: smallvec![p] }
}
