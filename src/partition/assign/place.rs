//! Applies the chosen loop layouts to a draft.
//!
//! First, partial operands are summed if their consumer is not linear in them; this depends on
//! layouts only. Then the loops of all steps are assigned together (`loops`). Last, steps are added
//! that move each result from its loop layout to its requested layout.

use super::defer_reduction::{DeferredReduction, Sums};
use super::free_step::{Candidate, FreeStep};
use super::loops::{self, Assignment};
use super::{candidates::operand_splits, fuse_views, reduction, scatter};
use crate::core::sharding::sub_axes::{in_device_order, num_shards, subtract};
use crate::core::{Scalar, SubAxes};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, LoopNest, Reducer, ScalarArg, ScalarCode, Source, StridedRange,
};
use crate::partition::cost::cache::CostCache;
use crate::partition::draft::{self, Draft, DraftStep};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, Step, StoredValue};
use std::collections::HashMap;

/// A draft whose local steps are being given layouts.
pub(super) struct Placer {
    /// The draft, with the steps emitted so far.
    pub(super) d: Draft,
    /// The steps to emit.
    candidates: Vec<Candidate>,
    /// For each partial value that was summed for a non-linear consumer, the slot of the sum.
    summed_slots: Vec<Option<Slot>>,
    /// The two halves of all-reduces, as (intermediate value, result).
    pub(super) two_step_reductions: Vec<(Slot, Slot)>,
    /// Values that were requested full and stay partial, with their partial slots.
    deferred_slots: HashMap<Slot, Slot>,
}

/// Gives all local steps of a draft a layout.
pub(super) fn place(d: Draft) -> Placer {
    let mut p = collect_candidates(d);
    let chosen = loops::assign_loops(&p.d, &p.candidates).loops;
    let sums = Sums::new(&p.d, &p.candidates);
    let in_parts = sums.deferred(&sums.partial_layouts(&p.d, &p.candidates, &chosen));
    let all = std::mem::take(&mut p.candidates).into_iter().zip(chosen).zip(in_parts);
    for ((entry, loops), in_parts) in all {
        match (entry, in_parts) {
            (Candidate::Fixed(item), _) => p.d.steps.push(item),
            (Candidate::Free(open), Some(sum)) => p.emit_deferred(open, loops, sum),
            (Candidate::Free(open), None) => p.emit(open, loops),
        }
    }
    p
}

/// Returns the best loop layouts of a draft with their cost, and the cache of costs.
///
/// If `from` is given, steps marked there are improved locally from the layouts in it, and the
/// others keep theirs.
pub(super) fn assignment_cost(
    d: Draft,
    from: Option<(&[Vec<DimLayout>], &[bool])>,
) -> (Assignment, CostCache) {
    let p = collect_candidates(d);
    let chosen = match from {
        Some((loops, due)) => loops::refine_loops(&p.d, &p.candidates, loops.to_vec(), due.to_vec()),
        None => loops::assign_loops(&p.d, &p.candidates),
    };
    (chosen, p.d.costs)
}

/// Converts the steps of a draft to candidates, and sums partial operands where necessary.
fn collect_candidates(mut d: Draft) -> Placer {
    let items = std::mem::take(&mut d.steps);
    let settled = vec![None; d.slots.len()];
    let mut p = Placer {
        d,
        candidates: Vec::with_capacity(items.len()),
        summed_slots: settled,
        two_step_reductions: Vec::new(),
        deferred_slots: HashMap::new(),
    };
    for item in items {
        match item.step {
            Step::Local { out, nest: ref loop_nest, .. } => {
                let loop_nest = loop_nest.clone();
                p.add_candidate(item, out, loop_nest);
            }
            _ => p.candidates.push(Candidate::Fixed(item)),
        }
    }
    p
}

impl Placer {
    /// Adds a local step to the candidates.
    ///
    /// Partial operands that the step cannot read are summed first.
    fn add_candidate(&mut self, item: DraftStep, out: Slot, mut s: LoopNest) {
        let own = self.d.slots[out].layout.clone();
        let requested = own.partial.clone().map(|p| p.1).unwrap_or_default();
        let mut kept = SubAxes::new();
        for k in 0..s.accesses.len() {
            for src in s.accesses[k].sources() {
                let Some((_, partials)) = self.d.slots[src].layout.partial.clone() else { continue };
                if s.accepts_partial(k) && subtract(&requested, &partials).is_some() {
                    kept = in_device_order(kept.into_iter().chain(partials).collect());
                    continue;
                }
                let copy = s.copied_operand().is_some()
                    && s.accesses[k].is_identity(&s.extents, &self.d.slots[src].shape);
                if copy && subtract(&partials, &requested).is_some() {
                    let steps = self.reduce_steps(src, out, item);
                    self.candidates.extend(steps.into_iter().map(Candidate::Fixed));
                    return;
                }
                let sum = match self.permuted_sum_layout(&s, src, out) {
                    Some(layout) => {
                        let sum = self.add_slot(StoredValue { layout, ..self.d.slots[src].clone() });
                        let step = Step::Reduce { src, out: sum, combine: Reducer::Add };
                        let steps = self.reduce_steps(src, sum, DraftStep::new(step, item.origin.clone()));
                        self.candidates.extend(steps.into_iter().map(Candidate::Fixed));
                        kept = requested.clone();
                        sum
                    }
                    None => self.sum_once(src, &item),
                };
                s.replace_source(src, sum);
            }
        }
        let missing = subtract(&requested, &kept).unwrap_or_default();
        if !requested.is_empty() && !scatter::can_scatter_partial(&self.d.slots, &s, &kept, &missing) {
            return self.add_via_full_value(item, out, s);
        }
        if !missing.is_empty() && s.extents.len() == s.rank {
            s = s.into_partials(num_shards(&missing));
        }
        let given = match &item.step {
            Step::Local { layout, .. } if !layout.is_empty() => Some(layout.clone()),
            _ if !requested.is_empty() => Some(self.typed_reduction_loops(&s, &missing)),
            _ => None,
        };
        let known = match given {
            Some(folded) => Some(own.dims.iter().cloned().chain(folded).collect()),
            None => s.compute.is_alias().then(|| own.dims.clone()),
        };
        self.candidates.push(Candidate::Free(FreeStep {
            step: item,
            out,
            nest: s,
            inherited_partial: kept,
            fixed_loops: known,
        }));
    }

    /// Adds a step whose result is requested partial but cannot be computed as a partial value.
    ///
    /// The full result is computed, and becomes the first partial value; the others are zero.
    fn add_via_full_value(&mut self, item: DraftStep, out: Slot, s: LoopNest) {
        let own = self.d.slots[out].layout.clone();
        let stored = StoredValue { layout: Layout { partial: None, ..own }, ..self.d.slots[out].clone() };
        let (dtype, shape) = (stored.dtype, stored.shape.clone());
        let mid = self.add_slot(stored);
        let then = item.without_views();
        self.add_candidate(item, mid, s);
        self.add_candidate(then, out, draft::copy_nest(mid, dtype, &shape));
    }

    /// Emits a step with its loop layout, and moves its result into the requested layout.
    fn emit(&mut self, open: FreeStep, loops: Vec<DimLayout>) {
        let FreeStep { step: mut item, out, nest: loop_nest, inherited_partial: kept, .. } = open;
        let own = &self.d.slots[out].layout;
        let folded = loops[loop_nest.rank..].iter().flat_map(|l| l.sub_axes.iter().copied());
        let partials = in_device_order(folded.chain(kept).collect());
        // if the type requests a partial result, its reducer applies
        let combine = own.partial.as_ref().map_or_else(|| loop_nest.partial_reducer(), |p| p.0);
        let at = Layout {
            dims: loops[..loop_nest.rank].to_vec(),
            partial: (!partials.is_empty()).then_some((combine, partials)),
        };
        let divided =
            scatter::scatter_base_layout(&loop_nest, own, &loops).is_some() && own.partial.is_none();
        if at == *own {
            item.step = Step::Local { out, nest: loop_nest, layout: loops };
            self.d.steps.push(item);
            return;
        }
        let made = self.add_slot(StoredValue { layout: at.clone(), ..self.d.slots[out].clone() });
        if divided {
            return self.emit_partial_scatter(item, out, loop_nest, made, loops);
        }
        let then = item.without_views();
        item.step = Step::Local { out: made, nest: loop_nest, layout: loops };
        self.d.steps.push(item);
        let steps = match at.partial {
            Some(_) => self.reduce_steps(made, out, then),
            None => vec![self.copy_step(made, out, then)],
        };
        self.d.steps.extend(steps);
    }

    /// Emits a step whose reduction is deferred: a term of a sum, or the sum itself, which is then
    /// reduced.
    fn emit_deferred(&mut self, open: FreeStep, loops: Vec<DimLayout>, sum: DeferredReduction) {
        let FreeStep { step: mut item, out, nest: mut loop_nest, .. } = open;
        let made = self.add_slot(StoredValue { layout: sum.layout.clone(), ..self.d.slots[out].clone() });
        let then = item.without_views();
        let elementwise = loop_nest.compute.elementwise().is_some();
        if elementwise {
            for part in loop_nest.accesses.iter_mut().flat_map(|r| &mut r.pieces) {
                if let Source::Value(slot) = &mut part.source
                    && let Some(partials) = self.deferred_slots.get(slot)
                {
                    *slot = *partials;
                }
            }
        }
        let layout = if elementwise { sum.layout.dims.clone() } else { loops };
        if scatter::adds_to_zero(&loop_nest) {
            let (dtype, fill) = (loop_nest.dtype, loop_nest.partial_reducer().neutral(loop_nest.dtype));
            loop_nest.accesses[0] = Access { dtype, pieces: Vec::new(), fill };
        }
        item.step = Step::Local { out: made, nest: loop_nest, layout };
        self.d.steps.push(item);
        if sum.stays_partial {
            self.deferred_slots.insert(out, made);
        } else {
            let steps = self.reduce_steps(made, out, then);
            self.d.steps.extend(steps);
        }
    }

    /// Emits a scatter whose updates are split.
    ///
    /// Each device scatters its updates into an empty value; the partial results are combined, then
    /// combined with the original value.
    fn emit_partial_scatter(
        &mut self,
        mut item: DraftStep,
        out: Slot,
        mut s: LoopNest,
        made: Slot,
        loops: Vec<DimLayout>,
    ) {
        let combine = s.partial_reducer();
        let neutral = combine.neutral(s.dtype);
        let nothing = s.constant_value(0) == Some(neutral);
        let empty = Access { dtype: s.dtype, pieces: Vec::new(), fill: neutral };
        let mut was = std::mem::replace(&mut s.accesses[0], empty);
        let (shape, dtype) = (s.extents[..s.rank].to_vec(), s.dtype);
        let then = item.without_views();
        item.step = Step::Local { out: made, nest: s, layout: loops };
        self.d.steps.push(item);
        if nothing {
            let steps = self.reduce_steps(made, out, then);
            self.d.steps.extend(steps);
            return;
        }
        let sum = self.add_slot(self.d.slots[out].clone());
        let steps = self.reduce_steps(made, sum, then.clone());
        self.d.steps.extend(steps);
        was.pieces.iter_mut().for_each(|p| p.ranges.truncate(shape.len()));
        let part = AccessPiece {
            source: Source::Value(sum),
            ranges: StridedRange::full_box(&shape),
            map: AffineExpr::identity(shape.len()),
        };
        let read = Access { dtype, pieces: vec![part], fill: Scalar::zero(dtype) };
        let code = ScalarCode::single(
            combine.scalar_op(),
            dtype,
            dtype,
            &[ScalarArg::Access(0), ScalarArg::Access(1)],
        );
        let loop_nest = LoopNest::map(shape, dtype, vec![was, read], code);
        let layout = self.d.slots[out].layout.dims.clone();
        self.d.steps.push(DraftStep { step: Step::Local { out, nest: loop_nest, layout }, ..then });
    }

    fn add_slot(&mut self, s: StoredValue) -> Slot {
        self.summed_slots.push(None);
        self.d.slots.push(s);
        self.d.slots.len() - 1
    }

    fn copy_step(&self, src: Slot, out: Slot, item: DraftStep) -> DraftStep {
        let StoredValue { dtype, shape, layout } = self.d.slots[out].clone();
        let loop_nest = draft::copy_nest(src, dtype, &shape);
        DraftStep { step: Step::Local { out, nest: loop_nest, layout: layout.dims }, ..item }
    }

    /// Returns the layout in which to sum a partial value that a permuting copy reads.
    ///
    /// It is the layout of the copy, so that the sum is scattered instead of computed on every
    /// device. The result stays partial over the sub-axes that the copy requests.
    fn permuted_sum_layout(&self, s: &LoopNest, src: Slot, out: Slot) -> Option<Layout> {
        let (from, own) = (&self.d.slots[src], &self.d.slots[out].layout);
        let to = s.copied_operand().and_then(|_| fuse_views::copy_permutation(s, &from.shape))?;
        let (stay, partials) = (own.partial.as_ref().map(|p| &p.1[..]), &from.layout.partial.as_ref()?.1);
        subtract(partials, stay.unwrap_or_default())?;
        Some(Layout {
            dims: to.into_iter().map(|l| own.dims[l].clone()).collect(),
            partial: own.partial.clone(),
        })
    }

    /// Returns the sum of a partial value, in its own layout.
    /// It is emitted once.
    fn sum_once(&mut self, src: Slot, item: &DraftStep) -> Slot {
        if let Some(s) = self.summed_slots[src] {
            return s;
        }
        let StoredValue { dtype, shape, layout } = self.d.slots[src].clone();
        let sum = self.add_slot(StoredValue { dtype, shape, layout: Layout { partial: None, ..layout } });
        let step = Step::Reduce { src, out: sum, combine: Reducer::Add };
        let steps = self.reduce_steps(src, sum, DraftStep::new(step, item.origin.clone()));
        self.candidates.extend(steps.into_iter().map(Candidate::Fixed));
        self.summed_slots[src] = Some(sum);
        sum
    }

    /// Returns the steps that reduce a partial value to slot `out`.
    /// This is one reduction, or a reduce-scatter and a copy that fetches.
    fn reduce_steps(&mut self, src: Slot, out: Slot, item: DraftStep) -> Vec<DraftStep> {
        let combine = self.d.slots[src].layout.partial.as_ref().map_or(Reducer::Add, |p| p.0);
        let (_, middle) = reduction::reduction_plan(&self.d, &self.d.slots[src], &self.d.slots[out].layout);
        let Some(layout) = middle else {
            return vec![DraftStep { step: Step::Reduce { src, out, combine }, ..item }];
        };
        let mid = self.add_slot(StoredValue { layout, ..self.d.slots[src].clone() });
        self.two_step_reductions.push((mid, out));
        let first = DraftStep { step: Step::Reduce { src, out: mid, combine }, ..item.clone() };
        vec![first, self.copy_step(mid, out, item)]
    }

    /// Returns the layout of reduction loops whose result a type requests partial.
    /// The result must become partial over the sub-axes `missing`.
    fn typed_reduction_loops(&self, s: &LoopNest, missing: &SubAxes) -> Vec<DimLayout> {
        let mut left = missing.clone();
        let mut folded: Vec<DimLayout> = Vec::new();
        for l in s.rank..s.extents.len() {
            let among = |a: SubAxes| a.into_iter().filter(|a| subtract(&left, &[*a]).is_some()).collect();
            let held = operand_splits(&self.d, s, l).into_iter().map(among);
            let sub_axes: SubAxes = held.max_by_key(|a: &SubAxes| num_shards(a)).unwrap_or_default();
            left = subtract(&left, &sub_axes).unwrap_or_default();
            folded.push(DimLayout::new(s.extents[l], sub_axes));
        }
        if let (Some(first), false) = (folded.first_mut(), left.is_empty()) {
            // no operand determines how it becomes partial: split the first reduction loop
            *first = DimLayout::new(s.extents[s.rank], first.sub_axes.iter().copied().chain(left));
        }
        folded
    }
}
