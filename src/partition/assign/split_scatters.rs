//! Separates scatters from the sums to which they add.
//!
//! The gradient of a table that is looked up and multiplied is the gradient of the product, to
//! which the updates of the lookup are added. If the updates are split over devices, both are
//! partial sums. The scatter makes a separate value, so that they can be added before one
//! reduction (`defer_reduction`).

use crate::core::Scalar;
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp, Source,
    StridedRange,
};
use crate::partition::draft::{Draft, DraftStep};
use crate::partition::program::{Slot, Step};

/// Replaces each scatter of split updates into a sum by a scatter into zeros and an addition.
pub(super) fn split_scatters(d: &mut Draft) {
    let mut readers = vec![0usize; d.slots.len()];
    let mut is_sum = vec![false; d.slots.len()];
    for item in &d.steps {
        item.step.inputs().into_iter().for_each(|s| readers[s] += 1);
        if let Step::Local { out, nest, .. } = &item.step {
            is_sum[*out] = nest.compute.reduces() && nest.partial_reducer() == Reducer::Add;
        }
    }
    d.outs.iter().for_each(|s| readers[*s] += 1);
    for item in std::mem::take(&mut d.steps) {
        let base = base_of(d, &item)
            .filter(|v| readers[*v] == 1 && is_sum[*v] && d.unconstrained.get(v) == Some(&true));
        match (base, &item.step) {
            (Some(base), Step::Local { out, nest, .. }) => {
                let (out, nest) = (*out, nest.clone());
                split(d, item, base, out, nest);
            }
            _ => d.steps.push(item),
        }
    }
}

/// Returns the value into which a step scatters updates that are split over devices.
fn base_of(d: &Draft, item: &DraftStep) -> Option<Slot> {
    let Step::Local { out, nest, .. } = &item.step else { return None };
    let scatters = matches!(nest.compute, Compute::Scatter { reducer: Some(Reducer::Add), .. });
    let free = !item.info.constrained && !item.info.per_device && item.info.user_collective.is_none();
    if !scatters || !free || d.slots[*out].layout.partial.is_some() {
        return None;
    }
    let [AccessPiece { source: Source::Value(base), ranges, map }] = &nest.accesses[0].pieces[..] else {
        return None;
    };
    let whole = *map == AffineExpr::identity(nest.rank) && *ranges == StridedRange::full_box(&nest.extents);
    let is_split = |p: &AccessPiece| {
        let Source::Value(slot) = p.source else { return false };
        let dims = d.slots[slot].layout.dims.iter().zip(&p.map);
        dims.into_iter().any(|(l, m)| l.num_shards() > 1 && m.terms.iter().any(|(k, _)| *k >= nest.rank))
    };
    (whole && nest.accesses[1].pieces.iter().any(is_split)).then_some(*base)
}

/// Emits a scatter into zeros, and its addition to the base.
fn split(d: &mut Draft, item: DraftStep, base: Slot, out: Slot, mut nest: LoopNest) {
    let (shape, dtype) = (nest.extents[..nest.rank].to_vec(), nest.dtype);
    let updates = d.add_slot(dtype, shape.clone().into(), d.slots[out].layout.clone());
    d.unconstrained.insert(updates, true);
    nest.accesses[0] = Access { dtype, pieces: Vec::new(), fill: Scalar::zero(dtype) };
    let read =
        |slot: Slot| Access::from_loops(slot, dtype, &shape, &(0..shape.len()).map(Some).collect::<Vec<_>>());
    let code = ScalarCode::single(ScalarOp::Add, dtype, dtype, &[ScalarArg::Access(0), ScalarArg::Access(1)]);
    let sum = LoopNest::map(shape.clone(), dtype, vec![read(base), read(updates)], code);
    let local = |out: Slot, nest: LoopNest| Step::Local { out, nest, layout: Vec::new() };
    let then = item.without_views();
    d.steps.push(DraftStep { step: local(updates, nest), ..item });
    d.steps.push(DraftStep { step: local(out, sum), ..then });
}
