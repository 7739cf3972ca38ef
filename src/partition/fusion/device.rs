//! The program of one device, on which the memory of a device is predicted.
//!
//! Each value has the shape of the largest block that a device holds, and each loop runs over the
//! indices of one device. What a device receives is a separate value. An operand is read by the
//! same access map as before where loop and dimension are sharded the same way, so that fusion
//! decides as for a program on one device.

use crate::core::types::{DType, Scalar, Shape};
use crate::ir::program::loop_nest::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, Source, StridedRange,
};
use crate::partition::fetch_target::fetch_target;
use crate::partition::program::{FetchRequest, LocalStep, Slot, SpmdProgram, Step, StoredValue};
use crate::partition::{DimLayout, Layout};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// What the values of the program of one device stand for.
pub(crate) struct DeviceSlots<'p> {
    /// The program for all devices, whose slots come first.
    pub(crate) original: &'p SpmdProgram,
    /// The values that a device receives, each with the fetch step that brings it.
    pub(crate) received: Vec<(Slot, usize)>,
    /// The control steps with the slots of their nested programs, by their first result.
    pub(crate) nested: HashMap<Slot, (usize, Vec<DeviceSlots<'p>>)>,
}

impl<'p> DeviceSlots<'p> {
    /// Creates the description of a program without received values and nested programs.
    pub(crate) fn new(original: &'p SpmdProgram) -> DeviceSlots<'p> {
        DeviceSlots { original, received: Vec::new(), nested: HashMap::new() }
    }
    /// Returns the slots of a program that runs on one device as it is.
    fn of_one_device(p: &'p SpmdProgram) -> DeviceSlots<'p> {
        let mut slots = DeviceSlots::new(p);
        for (k, step) in p.steps.iter().enumerate() {
            let nested = step.nested_programs().into_iter().map(|n| DeviceSlots::of_one_device(n.program));
            slots.add_nested(k, step, nested.collect());
        }
        slots
    }
    fn add_nested(&mut self, k: usize, step: &Step, nested: Vec<DeviceSlots<'p>>) {
        if let (Some(first), false) = (step.outputs().first(), nested.is_empty()) {
            self.nested.insert(*first, (k, nested));
        }
    }
}

/// Returns the program of one device, whose first slots are those of the program, and what its
/// values stand for. A program for one device is returned unchanged.
pub(crate) fn device_program(p: &SpmdProgram) -> (Cow<'_, SpmdProgram>, DeviceSlots<'_>) {
    if p.devices == 1 {
        return (Cow::Borrowed(p), DeviceSlots::of_one_device(p));
    }
    let mut view = DeviceView {
        program: p,
        slots: DeviceSlots::new(p),
        received: HashMap::new(),
        direct: HashSet::new(),
        device: SpmdProgram {
            devices: 1,
            mesh: p.mesh.clone(),
            slots: p.slots.iter().map(|v| block_of(v.dtype, v.block_shape())).collect(),
            ins: p.ins.clone(),
            outs: p.outs.clone(),
            ..SpmdProgram::default()
        },
    };
    for k in 0..p.steps.len() {
        view.add_step(k);
    }
    (Cow::Owned(view.device), view.slots)
}

/// Returns a value that one device holds as a whole.
fn block_of(dtype: DType, shape: Shape) -> StoredValue {
    let dims = shape.iter().map(|n| DimLayout::new(*n, [])).collect();
    StoredValue { dtype, shape, layout: Layout { dims, partial: None } }
}

/// The program of one device so far.
struct DeviceView<'p> {
    /// The program for all devices.
    program: &'p SpmdProgram,
    slots: DeviceSlots<'p>,
    /// The received value that each access reads, by step, access and source.
    received: HashMap<(usize, usize, Slot), Slot>,
    /// The steps whose results are received directly.
    direct: HashSet<usize>,
    device: SpmdProgram,
}

impl DeviceView<'_> {
    /// Adds step `k` of the program.
    fn add_step(&mut self, k: usize) {
        let p = self.program;
        match &p.steps[k] {
            Step::Fetch { src, requests } => {
                if let Some(target) = fetch_target(p, *src, requests) {
                    self.direct.extend(requests.iter().map(|r| r.consumer_step));
                    self.slots.received.push((target, k));
                    return;
                }
                for r in requests {
                    self.receive(k, *src, r);
                }
            }
            Step::Local { out, .. } if self.direct.contains(&k) => {
                self.push_opaque(k, *out, &p.steps[k].inputs());
            }
            Step::Local { out, nest, layout } => {
                let nest = self.local_nest(k, LocalStep { out: *out, nest, layout });
                let layout = nest.extents.iter().map(|n| DimLayout::new(*n, [])).collect();
                self.push(k, Step::Local { out: *out, nest, layout });
            }
            Step::Print { .. } => self.push(k, p.steps[k].clone()),
            Step::Reduce { src, out, .. } => self.push_opaque(k, *out, &[*src]),
            step @ (Step::Loop { .. } | Step::While { .. } | Step::Branch { .. }) => {
                let (mut own, mut nested) = (step.clone(), Vec::new());
                for (to, from) in own.nested_programs_mut().into_iter().zip(step.nested_programs()) {
                    let (program, slots) = device_program(from.program);
                    *to = program.into_owned();
                    nested.push(slots);
                }
                self.slots.add_nested(k, step, nested);
                self.push(k, own);
            }
        }
    }
    fn push(&mut self, k: usize, step: Step) {
        self.device.steps.push(step);
        self.device.origins.push(self.program.origins.get(k).cloned().unwrap_or_default());
    }
    /// Adds a step that computes `out` from all of `inputs` and cannot be fused.
    fn push_opaque(&mut self, k: usize, out: Slot, inputs: &[Slot]) {
        let (dtype, extents) = (self.device.slots[out].dtype, self.device.slots[out].shape.to_vec());
        let access = |s: &Slot| Access {
            dtype,
            fill: Scalar::zero(dtype),
            pieces: vec![AccessPiece {
                source: Source::Value(*s),
                ranges: StridedRange::full_box(&extents),
                map: vec![AffineExpr::default(); self.device.slots[*s].shape.rank()],
            }],
        };
        let is_empty = |s: &Slot| self.device.slots[*s].shape.num_elements() == 0;
        let accesses = inputs.iter().filter(|s| !is_empty(s)).map(access).collect();
        let layout = extents.iter().map(|n| DimLayout::new(*n, [])).collect();
        let compute = Compute::Gather { indices: Vec::new() };
        let nest = LoopNest { rank: extents.len(), extents, dtype, accesses, compute };
        self.push(k, Step::Local { out, nest, layout });
    }
    /// Adds the value that a device receives for an access.
    fn receive(&mut self, k: usize, src: Slot, request: &FetchRequest) {
        let p = self.program;
        let Some(l) = p.steps[request.consumer_step].local() else { return };
        let mut pieces = l.nest.accesses.get(request.access).into_iter().flat_map(|a| &a.pieces);
        let Some(piece) = pieces.find(|q| q.source == Source::Value(src)) else { return };
        let (value, extents) = (&p.slots[src], local_extents(&l));
        let size = |(d, m): (usize, &AffineExpr)| match split_loop(&l, m) {
            Some(loop_dim) => extents[loop_dim],
            None => value.shape[d],
        };
        let shape = piece.map.iter().enumerate().map(size).collect();
        let slot = self.device.slots.len();
        self.device.slots.push(block_of(value.dtype, shape));
        self.received.insert((request.consumer_step, request.access, src), slot);
        self.slots.received.push((slot, k));
        self.push_opaque(k, slot, &[src]);
    }
    /// Returns the loop nest of step `k` over the indices of one device.
    fn local_nest(&self, k: usize, l: LocalStep<'_>) -> LoopNest {
        let extents = local_extents(&l);
        let mut nest = l.nest.clone();
        for (n, access) in nest.accesses.iter_mut().enumerate() {
            for piece in &mut access.pieces {
                self.localize(k, n, &l, &extents, piece);
            }
        }
        nest.extents = extents;
        nest
    }
    /// Changes a piece of access `n` of step `k` to the indices of one device.
    fn localize(&self, k: usize, n: usize, l: &LocalStep<'_>, extents: &[usize], piece: &mut AccessPiece) {
        let full: Vec<StridedRange> = piece.ranges.clone();
        for (d, range) in piece.ranges.iter_mut().enumerate().filter(|(d, _)| is_split(l, *d)) {
            let size = extents[d] as i64;
            range.lo = range.lo.min(size - 1).max(0);
            range.hi = range.hi.min(size).max((range.lo + 1).min(size));
        }
        let Source::Value(s) = piece.source else { return };
        let received = self.received.get(&(k, n, s)).copied();
        piece.source = Source::Value(received.unwrap_or(s));
        for (d, m) in piece.map.iter_mut().enumerate() {
            let value = &self.program.slots[s];
            let dim = &value.layout.dims[d];
            let Some(loop_dim) = split_loop(l, m) else {
                if received.is_none() && dim.num_shards() > 1 {
                    *m = AffineExpr::default();
                }
                continue;
            };
            let reads_index = m.constant == full[loop_dim].lo && full[loop_dim].step == 1;
            match received {
                Some(_) => m.constant = piece.ranges[loop_dim].lo,
                None if dim.num_shards() == 1 => {
                    // devices read different parts, so that this is not the index of the loop
                    let free = value.shape[d].saturating_sub(extents[loop_dim]) as i64;
                    m.constant = l.layout[loop_dim].block.min(free) + piece.ranges[loop_dim].lo;
                }
                None if reads_index && l.layout[loop_dim] == *dim => m.constant = piece.ranges[loop_dim].lo,
                None => *m = AffineExpr::default(),
            }
        }
    }
}

/// Returns true if devices run different indices of loop `d`.
fn is_split(l: &LocalStep<'_>, d: usize) -> bool {
    l.layout.get(d).is_some_and(|l| l.num_shards() > 1)
}

/// Returns the loop that an index expression follows with coefficient 1, if that loop is split.
fn split_loop(l: &LocalStep<'_>, m: &AffineExpr) -> Option<usize> {
    let [(d, 1)] = m.terms[..] else { return None };
    is_split(l, d).then_some(d)
}

/// Returns the maximum number of indices of each loop that a device runs.
fn local_extents(l: &LocalStep<'_>) -> Vec<usize> {
    let size = |(d, n): (usize, &usize)| l.layout.get(d).map_or(*n, |l| l.max_block(*n));
    l.nest.extents.iter().enumerate().map(size).collect()
}
