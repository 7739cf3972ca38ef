//! Defers reductions of partial results until they have been added to each other.
//!
//! Partial results are added on each device, and their sum is reduced once. The gradient of a value
//! that several products read then takes one all-reduce instead of one per product. Reductions that
//! a type requires (by explicit axes) are not deferred.

use super::free_step::{Candidate, FreeStep};
use super::scatter;
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

/// The additions of results that no other step reads.
///
/// They depend on the steps only, and not on layouts.
pub(super) struct Sums {
    /// For each step that is such a sum, the steps that make its two terms.
    terms: Vec<Option<[usize; 2]>>,
    /// For each step whose result is a term, the step that makes the other term.
    siblings: Vec<Option<usize>>,
}

impl Sums {
    pub(super) fn new(d: &Draft, entries: &[Candidate]) -> Sums {
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
        let mut sums = Sums { terms: vec![None; entries.len()], siblings: vec![None; entries.len()] };
        for (k, entry) in entries.iter().enumerate() {
            let Candidate::Free(open) = entry else { continue };
            if !may_stay_partial(d, open) || !is_sum(&open.nest) {
                continue;
            }
            let term = |read: usize| {
                let read = d.read_in_place(&open.nest, read);
                read.filter(|v| has_single_reader(d, &readers, *v, open.out)).and_then(|v| maker[v])
            };
            if let (Some(a), Some(b)) = (term(0), term(1)) {
                sums.terms[k] = Some([a, b]);
                (sums.siblings[a], sums.siblings[b]) = (Some(b), Some(a));
            }
        }
        sums
    }
    /// Returns, for each step, the partial layout in which its result could stay.
    ///
    /// `None` if it could not stay partial, or if its loops have no layout yet.
    pub(super) fn partial_layouts(
        &self,
        d: &Draft,
        entries: &[Candidate],
        loops: &[Vec<DimLayout>],
    ) -> Vec<Option<Layout>> {
        let mut could: Vec<Option<Layout>> = vec![None; entries.len()];
        for (k, entry) in entries.iter().enumerate() {
            let Candidate::Free(open) = entry else { continue };
            could[k] = match self.terms[k] {
                Some([a, b]) if could[a] == could[b] => could[a].clone(),
                Some(_) => None,
                None => partial_layout(d, open, &loops[k]),
            };
        }
        could
    }
    /// Returns the partial layout in which the other term of a sum could stay.
    pub(super) fn sibling_layout<'a>(&self, k: usize, could: &'a [Option<Layout>]) -> Option<&'a Layout> {
        could[self.siblings[k]?].as_ref()
    }
    /// Returns, for each step, the deferred reduction of its result, if any.
    pub(super) fn deferred(&self, could: &[Option<Layout>]) -> Vec<Option<DeferredReduction>> {
        let mut made: Vec<Option<DeferredReduction>> = vec![None; could.len()];
        for (k, terms) in self.terms.iter().enumerate() {
            let (Some(terms), Some(at)) = (terms, &could[k]) else { continue };
            for m in *terms {
                made[m] = Some(DeferredReduction { layout: at.clone(), stays_partial: true });
            }
            made[k] = Some(DeferredReduction { layout: at.clone(), stays_partial: false });
        }
        made
    }
}

/// Returns true if no type and no collective of the user requires the result of a step.
fn may_stay_partial(d: &Draft, open: &FreeStep) -> bool {
    d.slots[open.out].layout.partial.is_none()
        && open.inherited_partial.is_empty()
        && !open.step.info.constrained
        && open.step.info.user_collective.is_none()
}

/// Returns the partial layout in which loops of this layout compute a sum.
fn partial_layout(d: &Draft, open: &FreeStep, loops: &[DimLayout]) -> Option<Layout> {
    let s = &open.nest;
    let splits = loops.len() == s.extents.len() && open.fixed_loops.is_none();
    if !splits || !may_stay_partial(d, open) || s.partial_reducer() != Reducer::Add {
        return None;
    }
    // of a scatter, the value into which it adds must be zero
    if !s.compute.reduces() && !scatter::adds_to_zero(s) {
        return None;
    }
    let parts = in_device_order(loops[s.rank..].iter().flat_map(|l| l.sub_axes.iter().copied()).collect());
    let dims = loops[..s.rank].to_vec();
    (!parts.is_empty()).then_some(Layout { dims, partial: Some((Reducer::Add, parts)) })
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
