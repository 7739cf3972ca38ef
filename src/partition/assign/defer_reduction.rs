//! Defers reductions of partial results until they have been added to each other.
//!
//! Partial results are added on each device, and their sum is reduced once. The gradient of a value
//! that several products read then takes one all-reduce instead of one per product. Reductions that
//! a type requires (by explicit axes) are not deferred.

use super::{loops::Candidate, scatter};
use crate::core::sharding::sub_axes::in_device_order;
use crate::ir::program::{LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::{draft::Draft, program::Slot};

/// A result that is requested full but computed as a partial value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DeferredReduction {
    /// The layout in which the result is computed.
    pub(super) layout: Layout,
    /// True if the result stays partial because its only consumer adds the partial values.
    /// Otherwise it is reduced.
    pub(super) stays_partial: bool,
}

/// Returns, for each step, the deferred reduction of its result, if any.
pub(super) fn find_deferred(
    d: &Draft,
    entries: &[Candidate],
    loops: &[Vec<DimLayout>],
) -> Vec<Option<DeferredReduction>> {
    let mut readers = vec![0usize; d.slots.len()];
    let mut maker: Vec<Option<usize>> = vec![None; d.slots.len()];
    for (k, entry) in entries.iter().enumerate() {
        match entry {
            Candidate::Fixed(item) => item.step.inputs().into_iter().for_each(|s| readers[s] += 1),
            Candidate::Free(open) => {
                open.nest.accesses.iter().flat_map(|r| r.sources()).for_each(|s| readers[s] += 1);
                maker[open.out] = Some(k);
            }
        }
    }
    d.outs.iter().for_each(|s| readers[*s] += 1);
    // the layouts of the results that could stay partial
    let mut could: Vec<Option<Layout>> = vec![None; entries.len()];
    let mut made: Vec<Option<DeferredReduction>> = vec![None; entries.len()];
    for (k, entry) in entries.iter().enumerate() {
        let Candidate::Free(open) = entry else { continue };
        let (s, own) = (&open.nest, &d.slots[open.out].layout);
        if own.partial.is_some()
            || !open.inherited_partial.is_empty()
            || open.step.info.constrained
            || open.step.info.user_collective.is_some()
        {
            continue;
        }
        if is_sum(s) {
            let mut from: Vec<usize> = Vec::new();
            for read in 0..s.accesses.len() {
                from.extend(
                    d.read_in_place(s, read)
                        .filter(|v| has_single_reader(d, &readers, *v, open.out))
                        .and_then(|v| maker[v]),
                );
            }
            let at = from.first().and_then(|m| could[*m].clone());
            let (Some(at), true) = (at, from.len() == s.accesses.len()) else { continue };
            if from.iter().all(|m| could[*m].as_ref() == Some(&at)) {
                for m in from {
                    made[m] = Some(DeferredReduction { layout: at.clone(), stays_partial: true });
                }
                could[k] = Some(at.clone());
                made[k] = Some(DeferredReduction { layout: at, stays_partial: false });
            }
        } else if s.compute.reduces()
            && s.partial_reducer() == Reducer::Add
            && open.fixed_loops.is_none()
            && scatter::scatter_base_layout(s, own, &loops[k]).is_none()
        {
            let parts =
                in_device_order(loops[k][s.rank..].iter().flat_map(|l| l.sub_axes.iter().copied()).collect());
            let dims = loops[k][..s.rank].to_vec();
            could[k] = (!parts.is_empty()).then(|| Layout { dims, partial: Some((Reducer::Add, parts)) });
        }
    }
    made
}

/// Returns true if a step is the sum or difference of its two operands.
fn is_sum(s: &LoopNest) -> bool {
    let Some(ScalarCode { insts }) = s.compute.elementwise() else { return false };
    let [inst] = &insts[..] else { return false };
    matches!(inst.op, ScalarOp::Add | ScalarOp::Sub)
        && inst.args[..] == [ScalarArg::Access(0), ScalarArg::Access(1)]
        && s.accesses.len() == 2
        && s.accesses.iter().all(|r| r.dtype == s.dtype)
}

/// Returns true if an unconstrained value has only one consumer, of the same element type.
fn has_single_reader(d: &Draft, readers: &[usize], v: Slot, out: Slot) -> bool {
    d.unconstrained.get(&v) == Some(&true) && readers[v] == 1 && d.slots[v].dtype == d.slots[out].dtype
}
