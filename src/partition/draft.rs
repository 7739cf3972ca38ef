//! Drafts: a program's stored values and steps before loops have layouts.

use crate::core::{
    Axes, DType, Error, ErrorKind, Fault, Mesh, Result, Scalar, Shape, sharding::sub_axes::num_shards,
};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, ScalarCode, Source, StridedRange,
};
use crate::partition::collective::{CollectiveKind, Collectives};
use crate::partition::cost::consumer::{Consumer, FetchQuery};
use crate::partition::program::{Slot, SpmdProgram, Step, StepOrigin, StoredValue};
use crate::partition::{cost::cache::CostCache, cost::compute::TransferPrices, layout::Layout};
use std::collections::BTreeMap;

/// The steps and values of a program before loops have layouts.
///
/// Partial values are read as if they were already summed, and there are no fetches yet. Programs
/// nested in control steps have already been through all passes.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The number of devices.
    pub(super) devices: usize,
    /// The mesh. `None` if the program has no mesh.
    pub(super) mesh: Option<Mesh>,
    /// The stored values.
    pub(super) slots: Vec<StoredValue>,
    /// The steps, in execution order.
    pub(super) steps: Vec<DraftStep>,
    /// The slots of the inputs.
    pub(super) ins: Vec<Slot>,
    /// The slots of the results.
    pub(super) outs: Vec<Slot>,
    /// The inputs that are the same in each iteration, if this is the body of a loop.
    pub(super) loop_invariant: Vec<Slot>,
    /// For each result of an equation, true if its placement is unconstrained.
    pub(super) unconstrained: BTreeMap<Slot, bool>,
    /// The trip count: iterations per evaluation of the loop-invariant inputs.
    pub(super) trip_count: u64,
    /// The cost of a byte, in elements computed.
    pub(super) per_byte: TransferPrices,
    /// A cache of the costs of fetches.
    pub(super) costs: CostCache,
}

/// The collective that the user called, with its axes; `None` if the step implements none.
pub(super) type CalledCollective = Option<(CollectiveKind, Axes)>;

/// A step of a draft, with its metadata.
#[derive(Clone, Debug)]
pub(super) struct DraftStep {
    /// The step.
    ///
    /// A local step has either no layout or only that of its reduction loops.
    pub(super) step: Step,
    /// The origin of the step.
    pub(super) origin: StepOrigin,
    /// The metadata that reports need.
    pub(super) info: StepInfo,
}

/// The metadata of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct StepInfo {
    /// The collective that the user called, if this step implements one.
    pub(super) user_collective: CalledCollective,
    /// True if the step is per-device code of manual mode: each device computes its own block.
    pub(super) per_device: bool,
    /// True if the user constrained the layout of the result.
    pub(super) constrained: bool,
    /// True if this step directly computes a copy whose layout the user constrained.
    pub(super) requested: bool,
    /// The origin of a consumer that was merged into this step and determines the layout of the
    /// result. `None` if no consumer was merged.
    pub(super) for_consumer: Option<StepOrigin>,
    /// The origin of the loop that this step was hoisted out of, if any.
    pub(super) hoisted_from: Option<StepOrigin>,
    /// The collectives of each nested program, with the number of times it runs.
    pub(super) nested_collectives: Vec<(Collectives, u64)>,
    /// The views that this local step reads through, each with the index of the access.
    pub(super) fused_views: Vec<(usize, Slot)>,
}

impl DraftStep {
    pub(super) fn new(step: Step, origin: StepOrigin) -> DraftStep {
        DraftStep { step, origin, info: StepInfo::default() }
    }
    /// Returns the step as one that reads through no views.
    pub(super) fn without_views(&self) -> DraftStep {
        let info = StepInfo { fused_views: Vec::new(), ..self.info.clone() };
        DraftStep { step: self.step.clone(), origin: self.origin.clone(), info }
    }
    /// Returns the kind of the exchange that the user called, if this step implements one.
    pub(super) fn exchange(&self) -> Option<CollectiveKind> {
        UserExchange::new(&self.info.user_collective, 0, &self.origin).map(|called| called.kind)
    }
    /// Returns the views through which an access of the step reads.
    pub(super) fn views_of(&self, access: usize) -> impl Iterator<Item = Slot> {
        self.info.fused_views.iter().filter(move |v| v.0 == access).map(|v| v.1)
    }
}

impl Draft {
    pub(super) fn new(devices: usize, mesh: Option<Mesh>, per_byte: TransferPrices) -> Draft {
        Draft { devices, mesh, per_byte, ..Draft::default() }
    }
    /// Returns the steps so far as a program, for printing.
    pub(super) fn to_program(&self) -> SpmdProgram {
        let steps = self.steps.iter().map(|s| (s.step.clone(), s.origin.clone()));
        let (steps, origins) = steps.unzip();
        SpmdProgram {
            devices: self.devices,
            mesh: self.mesh.clone(),
            slots: self.slots.clone(),
            ins: self.ins.clone(),
            outs: self.outs.clone(),
            steps,
            origins,
        }
    }
    /// Returns an empty draft for the same devices, with the same cost of a byte.
    pub(super) fn empty_like(&self) -> Draft {
        Draft::new(self.devices, self.mesh.clone(), self.per_byte.clone())
    }
    /// Clones the draft without its cache of costs.
    pub(super) fn clone_uncached(&self) -> Draft {
        Draft {
            mesh: self.mesh.clone(),
            per_byte: self.per_byte.clone(),
            slots: self.slots.clone(),
            steps: self.steps.clone(),
            ins: self.ins.clone(),
            outs: self.outs.clone(),
            loop_invariant: self.loop_invariant.clone(),
            unconstrained: self.unconstrained.clone(),
            costs: CostCache::default(),
            ..*self
        }
    }
    /// Adds a stored value and returns its slot.
    pub(super) fn add_slot(&mut self, dtype: DType, shape: Shape, layout: Layout) -> Slot {
        debug_assert_eq!(shape.rank(), layout.dims.len(), "a layout for each dimension");
        self.slots.push(StoredValue { dtype: dtype.storage(), shape, layout });
        self.slots.len() - 1
    }
    /// Adds a local step and returns the slot of its result.
    pub(super) fn add_local(&mut self, loop_nest: LoopNest, layout: Layout, why: &StepOrigin) -> Slot {
        let shape = Shape::from(&loop_nest.extents[..loop_nest.rank]);
        let out = self.add_slot(loop_nest.dtype, shape, layout);
        self.steps
            .push(DraftStep::new(Step::Local { out, nest: loop_nest, layout: Vec::new() }, why.clone()));
        out
    }
    /// Returns the slot of the value in this layout: the same slot if it has that layout, or a
    /// copy.
    pub(super) fn with_layout(&mut self, slot: Slot, layout: Layout, why: &StepOrigin) -> Slot {
        if self.slots[slot].layout == layout {
            return slot;
        }
        let StoredValue { dtype, shape, .. } = self.slots[slot].clone();
        self.add_local(copy_nest(slot, dtype, &shape), layout, why)
    }
    /// Returns how many elements all devices receive if these consumers fetch the value.
    pub(super) fn elements_moved(&self, slot: Slot, readers: &[Consumer]) -> i64 {
        self.costs.total(&self.fetch_by(slot, readers)).0
    }
    /// Returns the bytes that all devices receive if these consumers fetch the value, each by its
    /// price relative to the slowest mesh axis.
    pub(super) fn weighted_bytes(&self, slot: Slot, readers: &[Consumer]) -> f64 {
        let stored = &self.slots[slot];
        let weight = self.per_byte.fetch_weight(slot, stored, readers);
        self.elements_moved(slot, readers) as f64 * stored.dtype.size() as f64 * weight
    }
    /// Returns true if the consumer needs elements that its device may not hold.
    pub(super) fn needs_fetch(&self, slot: Slot, reader: Consumer) -> bool {
        let (total, exact) = self.costs.total(&self.fetch_by(slot, &[reader]));
        total > 0 || !exact
    }
    fn fetch_by<'a>(&'a self, slot: Slot, readers: &'a [Consumer<'a>]) -> FetchQuery<'a> {
        FetchQuery {
            devices: self.devices,
            slot,
            stored: &self.slots[slot],
            consumers: readers,
            num_partials: 1,
        }
    }
    /// Returns the value that an access reads at exactly the loop indices, if it reads only one.
    pub(super) fn read_in_place(&self, s: &LoopNest, read: usize) -> Option<Slot> {
        let [slot] = s.accesses[read].sources()[..] else { return None };
        s.accesses[read].is_identity(&s.extents, &self.slots[slot].shape).then_some(slot)
    }
    /// Returns true if the loop nest copies a value unchanged.
    pub(super) fn is_copy(&self, s: &LoopNest) -> bool {
        s.copied_operand().is_some_and(|slot| s.accesses[0].is_identity(&s.extents, &self.slots[slot].shape))
    }
    /// Returns an error if a device could hold or receive more than 2^62 bytes of one value.
    ///
    /// Later stages count in `usize` and `i64`; sums over all devices saturate.
    pub(crate) fn check_sizes(&self) -> Result<()> {
        const MAX_VALUE_BYTES: u128 = 1 << 62;
        let too_large = |s: &StoredValue| {
            let parts = s.layout.partial.as_ref().map_or(1, |p| num_shards(&p.1));
            // empty dimensions count as 1, because strides are computed for the other dimensions
            // too
            let sizes = s.shape.iter().filter(|n| **n != 0).map(|n| *n as u128);
            let factors = [s.dtype.size(), parts].map(|n| n as u128);
            factors.into_iter().chain(sizes).fold(1, u128::saturating_mul) > MAX_VALUE_BYTES
        };
        let Some(slot) = self.slots.iter().position(too_large) else { return Ok(()) };
        let StoredValue { dtype, shape, layout } = &self.slots[slot];
        let parts = match &layout.partial {
            Some((_, atoms)) => format!(" in {} partial values", num_shards(atoms)),
            None => String::new(),
        };
        let what = format!("{dtype}{shape}{parts} has more bytes than can be counted");
        let why = self.steps.iter().find(|i| i.step.outputs().contains(&slot)).map(|i| i.origin.clone());
        let StepOrigin { location: source_location, op, .. } = why.unwrap_or_default();
        Err(Error::new(Fault::new(ErrorKind::Shape, what), op, Vec::new(), source_location))
    }
    /// Returns the last step.
    pub(super) fn last_step(&mut self) -> Option<&mut DraftStep> {
        self.steps.last_mut()
    }
}

/// Returns the loop nest that copies a stored value.
pub(super) fn copy_nest(slot: Slot, dtype: DType, shape: &[usize]) -> LoopNest {
    let loops: Vec<_> = (0..shape.len()).map(Some).collect();
    map_nest(Access::from_loops(slot, dtype, shape, &loops), shape)
}

/// Returns the loop nest whose result is one access.
pub(super) fn map_nest(read: Access, extents: &[usize]) -> LoopNest {
    let dtype = read.dtype;
    LoopNest::map(extents.to_vec(), dtype, vec![read], ScalarCode::copy(dtype))
}

/// Returns the loop nest of a reshape.
pub(super) fn reshape_nest(slot: Slot, dtype: DType, from: &[usize], to: &[usize]) -> LoopNest {
    let span = StridedRange::full_box(to);
    // a reshape has no affine map: this map only records that the full value is read
    let map = vec![AffineExpr::default(); from.len()];
    let part = AccessPiece { source: Source::Value(slot), ranges: span, map };
    LoopNest {
        extents: to.to_vec(),
        rank: to.len(),
        dtype,
        accesses: vec![Access { dtype, pieces: vec![part], fill: Scalar::zero(dtype) }],
        compute: Compute::Reshape,
    }
}

/// A view that consumers read through instead of storing it.
#[derive(Clone, Debug)]
pub(super) struct FusedView {
    /// The step of the view before its removal.
    pub(super) step: DraftStep,
    /// The composed access that replaces reads of the view.
    pub(super) access: Access,
    /// The sizes of the view's loops.
    pub(super) extents: Vec<usize>,
}

/// An exchange that the user called: an all-gather, an all-to-all or a permute.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserExchange<'a> {
    pub(super) kind: CollectiveKind,
    pub(super) axes: &'a Axes,
    /// The slot of its result.
    pub(super) out: Slot,
    pub(super) origin: &'a StepOrigin,
}

impl<'a> UserExchange<'a> {
    /// Returns the exchange of a step with this collective, `None` if it does not exchange.
    fn new(called: &'a CalledCollective, out: Slot, origin: &'a StepOrigin) -> Option<UserExchange<'a>> {
        use CollectiveKind::{AllGather, AllToAll, Permute};
        let (kind, axes) = called.as_ref()?;
        matches!(kind, AllGather | AllToAll | Permute).then_some(UserExchange {
            kind: *kind,
            axes,
            out,
            origin,
        })
    }
    /// Returns the exchange that makes a step need `src`, if any: the step's own, or that of a view
    /// through which it reads `src`.
    ///
    /// `own` is the step's collective, result and origin; `views` are the views that one of its
    /// accesses reads through.
    pub(super) fn find(
        own: (&'a CalledCollective, Slot, &'a StepOrigin),
        mut views: impl Iterator<Item = Slot>,
        fused_views: &'a [Option<FusedView>],
        src: Slot,
    ) -> Option<UserExchange<'a>> {
        let of_view = |slot: Slot| {
            let view = fused_views.get(slot)?.as_ref()?;
            let called = UserExchange::new(&view.step.info.user_collective, slot, &view.step.origin);
            called.filter(|_| view.access.sources().contains(&src))
        };
        UserExchange::new(own.0, own.1, own.2).or_else(|| views.find_map(of_view))
    }
}

impl Draft {
    /// Returns the finished program, and the metadata of each step.
    pub(super) fn finish(self) -> (SpmdProgram, Vec<StepInfo>) {
        let Draft { devices, mesh, slots, steps, ins, outs, .. } = self;
        let mut p = SpmdProgram { devices, mesh, slots, ins, outs, ..SpmdProgram::default() };
        let mut infos = Vec::with_capacity(steps.len());
        for DraftStep { step, origin, info } in steps {
            p.steps.push(step);
            p.origins.push(origin);
            infos.push(info);
        }
        (p, infos)
    }
}
