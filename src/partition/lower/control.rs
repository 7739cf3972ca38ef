//! Lowers control equations: calls, loops and prints; `shard_map` and `cond` have separate modules.

use crate::core::{Axis, DType, Result, Shape};
use crate::ir::program::{
    Access, Control, CustomCall, Equation, Loop, LoopOperands, Program, Source, Var, VarInfo,
};
use crate::partition::assign::pipeline::{self, PlannedProgram};
use crate::partition::draft::{self, DraftStep};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::{LoweredValue, Lowering};
use crate::partition::lower::varying::varying_axes;
use crate::partition::program::{LocalStep, PrintOperand, Slot, Step, StoredValue};
use std::collections::HashMap;

/// An input of a nested program.
pub(crate) enum NestedInput {
    /// A literal, which is passed to the nested program as a literal.
    Value(LoweredValue),
    /// A stored value, with its type, layout and hidden dimensions.
    Slot { dtype: DType, shape: Shape, layout: Layout, hidden: Vec<Axis> },
}

impl Lowering {
    /// Lowers a control equation, and returns its results.
    pub(crate) fn lower_control(
        &mut self,
        program: &Program,
        e: &Equation,
        c: &Control,
        operands: &[LoweredValue],
    ) -> Result<Vec<LoweredValue>> {
        match c {
            Control::Jit { body, .. }
            | Control::AxisModes { body, .. }
            | Control::Custom(CustomCall { body, .. }) => {
                let around = self.checkpoint;
                if matches!(c, Control::Jit { recomputes: true, .. }) {
                    self.num_checkpoints += 1;
                    self.checkpoint = self.num_checkpoints;
                }
                let outs = self.run(body, operands.to_vec())?;
                self.checkpoint = around;
                let mut list = Vec::new();
                for (v, var) in outs.into_iter().zip(&e.outputs) {
                    list.push(self.with_placement(v, &program.vars[var.index()]));
                }
                Ok(list)
            }
            Control::ShardMap(m) => self.lower_shard_map(program, e, m, operands),
            Control::Loop(l) => self.lower_loop(program, e, l, operands),
            Control::While { cond, body, cond_fixed, body_fixed } => {
                self.lower_while(program, e, (cond, *cond_fixed), (body, *body_fixed), operands)
            }
            Control::Cond { branches } => self.lower_branches(program, e, branches, operands),
            Control::Print { template } => {
                let types = e.inputs.iter().map(|i| program.input_type(i).dtype);
                let values = (operands.iter().zip(types))
                    .map(|(v, dtype)| PrintOperand {
                        slot: self.full_slot(v),
                        dtype,
                        hidden: v.hidden().into(),
                    })
                    .collect();
                let manual = self.manual.as_ref().map(|m| m.axes.clone()).unwrap_or_default();
                self.push_step(Step::Print { template: template.clone(), values, manual });
                Ok(Vec::new())
            }
        }
    }

    /// Returns the value in the layout of a variable.
    pub(crate) fn with_placement(&mut self, v: LoweredValue, info: &VarInfo) -> LoweredValue {
        let LoweredValue::Slot(slot, hidden) = v else { return v };
        let layout = self.layout_of(info, &hidden);
        LoweredValue::Slot(self.draft.with_layout(slot, layout, &self.origin), hidden)
    }

    /// Lowers a nested program and runs the pass pipeline on it.
    ///
    /// `build` lowers it and returns its output slots. The stored inputs in the range `once` are
    /// the same in each of its `trips` iterations.
    pub(crate) fn lower_nested(
        &self,
        ins: Vec<NestedInput>,
        (once, trips): (std::ops::Range<usize>, u64),
        build: impl FnOnce(&mut Lowering, &[LoweredValue]) -> Result<Vec<Slot>>,
    ) -> Result<PlannedProgram> {
        let draft = self.draft.empty_like();
        // the steps of a nested program share nothing with the steps around it
        let (manual, context, origin) = (self.manual.clone(), self.context.clone(), self.origin.clone());
        let mut inner = Lowering { draft, manual, context, origin, checkpoint: 0, num_checkpoints: 0 };
        let mut vals = Vec::new();
        for i in ins {
            vals.push(match i {
                NestedInput::Value(v) => v,
                NestedInput::Slot { dtype, shape, layout, hidden } => {
                    let slot = inner.draft.add_slot(dtype, shape, layout);
                    inner.draft.ins.push(slot);
                    LoweredValue::Slot(slot, hidden)
                }
            });
        }
        inner.draft.loop_invariant = inner.draft.ins[once].to_vec();
        inner.draft.trip_count = trips;
        inner.draft.outs = build(&mut inner, &vals)?;
        pipeline::run_pipeline(inner.draft)
    }

    /// Applies what the body of a loop needs to the program around it.
    ///
    /// Its loop-invariant inputs get the layouts that the body needs, and hoisted steps are emitted
    /// before the loop. `first` is the index of the body's first loop-invariant input, `why` the
    /// origin of the loop.
    pub(crate) fn adopt_inputs(&mut self, body: &PlannedProgram, first: usize, fixed: &mut Vec<Slot>) {
        let before = Some(self.origin.clone());
        let p = &body.partitioned.program;
        // maps slots of the body to slots of the program around it
        let mut here: HashMap<Slot, Slot> =
            p.ins[first..].iter().copied().zip(fixed.iter().copied()).take(fixed.len()).collect();
        for item in &body.hoisted {
            let Some(LocalStep { out, nest, .. }) = item.step.local() else { continue };
            let mut loop_nest = nest.clone();
            for part in loop_nest.accesses.iter_mut().flat_map(|r| &mut r.pieces) {
                if let Source::Value(slot) = &mut part.source
                    && let Some(outer) = here.get(slot)
                {
                    *slot = *outer;
                }
            }
            let StoredValue { dtype, shape, layout } = p.slots[out].clone();
            let made = self.draft.add_slot(dtype, shape, layout);
            here.insert(out, made);
            let step = Step::Local { out: made, nest: loop_nest, layout: Vec::new() };
            let mut copy = DraftStep { step, ..item.without_views() };
            copy.info.hoisted_from.clone_from(&before);
            self.draft.steps.push(copy);
        }
        let given = p.ins[first + fixed.len()..].iter().map_while(|s| here.get(s));
        fixed.extend(given.copied().collect::<Vec<_>>());
        for a in &body.adopted {
            let found = p.ins.iter().skip(first).position(|s| *s == a.slot);
            if let Some(outer) = found.and_then(|k| fixed.get_mut(k)) {
                let placed = self.draft.with_layout(*outer, p.slots[a.slot].layout.clone(), &a.origin);
                if placed != *outer
                    && let Some(item) = self.draft.last_step()
                {
                    item.info.hoisted_from.clone_from(&before);
                    item.info.requested = a.requested;
                }
                *outer = placed;
            }
        }
    }

    /// Returns a value as a loop-invariant input of a nested program.
    /// Literals are passed unchanged.
    pub(crate) fn nested_input(&self, v: &LoweredValue, slots: &mut Vec<Slot>) -> NestedInput {
        match v {
            LoweredValue::Lit(_) => NestedInput::Value(v.clone()),
            LoweredValue::Slot(slot, hidden) => {
                slots.push(*slot);
                let StoredValue { dtype, shape, layout } = self.draft.slots[*slot].clone();
                NestedInput::Slot { dtype, shape, layout, hidden: hidden.clone() }
            }
        }
    }

    /// Returns the types and layouts of a loop's carries.
    /// `own` are the body's variables, `hidden` the axes that each of them varies over.
    pub(crate) fn carry_values(&self, body: &Program, own: &[Var], hidden: &[Vec<Axis>]) -> Vec<StoredValue> {
        let of = |(var, hidden): (&Var, &Vec<Axis>)| {
            let info = &body.vars[var.index()];
            let shape: Shape =
                self.axis_sizes(hidden).into_iter().chain(info.ty.shape.iter().copied()).collect();
            StoredValue { dtype: info.ty.dtype.storage(), shape, layout: self.layout_of(info, hidden) }
        };
        own.iter().zip(hidden).map(of).collect()
    }

    /// Lowers a loop with a known trip count, and returns its results.
    pub(crate) fn lower_loop(
        &mut self,
        program: &Program,
        e: &Equation,
        l: &Loop,
        operands: &[LoweredValue],
    ) -> Result<Vec<LoweredValue>> {
        let hidden = self.loop_carry_axes(l, operands);
        let LoopOperands { fixed, carry, xs } = l.split_operands(operands);
        let (_, own) = l.split_body_inputs(&l.body.inputs);
        let carries = self.carry_values(&l.body, &own.carry, &hidden);
        let scalar = Layout { dims: Vec::new(), partial: None };
        let mut ins = vec![NestedInput::Slot {
            dtype: DType::I32,
            shape: Shape::scalar(),
            layout: scalar,
            hidden: Vec::new(),
        }];
        let mut fixed_slots = Vec::new();
        ins.extend(fixed.iter().map(|v| self.nested_input(v, &mut fixed_slots)));
        let mut carry_slots = Vec::new();
        for ((v, stored), hidden) in carry.iter().zip(&carries).zip(&hidden) {
            carry_slots.push(self.store_as(v, stored.dtype, hidden, &stored.layout));
            ins.push(stored.clone().into_nested_input(hidden));
        }
        let mut x_slots = Vec::new();
        for (v, var) in xs.iter().zip(&own.xs) {
            let (slot, slice) = self.sliced_input(v, &l.body.vars[var.index()], l.length);
            x_slots.push(slot);
            ins.push(slice);
        }
        let mut stacked: Vec<(StoredValue, Vec<Axis>)> = Vec::new();
        let once = (1..1 + fixed_slots.len(), l.length as u64);
        let body = self.lower_nested(ins, once, |inner, vals| {
            let outs = inner.run(&l.body, vals.to_vec())?;
            let (next, ys) = outs.split_at(l.carry);
            let mut slots = inner.store_carries(next, &carries, &hidden);
            for v in ys {
                let slot = inner.as_slot(v);
                stacked.push((inner.draft.slots[slot].clone(), v.hidden().to_vec()));
                slots.push(slot);
            }
            Ok(slots)
        })?;
        self.adopt_inputs(&body, 1, &mut fixed_slots);
        let body = body.partitioned;
        let out: Vec<Slot> =
            carries.iter().map(|c| self.draft.add_slot(c.dtype, c.shape.clone(), c.layout.clone())).collect();
        let ys: Vec<Slot> = (stacked.iter())
            .map(|(y, _)| {
                let shape = std::iter::once(l.length).chain(y.shape.iter().copied()).collect();
                self.draft.add_slot(y.dtype, shape, with_leading_dim(&y.layout, l.length))
            })
            .collect();
        let step = Step::Loop {
            body: Box::new(body.program),
            start: l.start,
            length: l.length,
            reverse: l.reverse,
            fixed: fixed_slots,
            carry: carry_slots,
            xs: x_slots,
            out: out.clone(),
            ys: ys.clone(),
        };
        if let Some(item) = self.push_step(step) {
            item.info.nested_collectives.push((body.collectives, l.length as u64));
        }
        let mut list: Vec<LoweredValue> =
            out.into_iter().zip(hidden).map(|(s, h)| LoweredValue::Slot(s, h)).collect();
        for (slot, (_, hidden)) in ys.into_iter().zip(stacked) {
            list.push(self.move_hidden_first(slot, hidden));
        }
        let mut placed = Vec::new();
        for (v, var) in list.into_iter().zip(&e.outputs) {
            placed.push(self.with_placement(v, &program.vars[var.index()]));
        }
        Ok(placed)
    }

    /// Returns the axes that the carries of a loop vary over.
    /// They grow to a fixed point.
    fn loop_carry_axes(&self, l: &Loop, operands: &[LoweredValue]) -> Vec<Vec<Axis>> {
        let axes: Vec<Vec<Axis>> = operands.iter().map(|v| v.hidden().to_vec()).collect();
        let mut given = l.split_operands(&axes);
        loop {
            let outs = varying_axes(&l.body, given.clone().into_body_inputs(Vec::new()));
            if !self.extend_hidden(&mut given.carry, &outs) {
                return given.carry;
            }
        }
    }

    /// Returns an array with its leading dimension as a loop slices it, and the body's input for
    /// one slice.
    fn sliced_input(&mut self, v: &LoweredValue, slice: &VarInfo, length: usize) -> (Slot, NestedInput) {
        let hidden = v.hidden().to_vec();
        let layout = self.layout_of(slice, &hidden);
        let shape = self.axis_sizes(&hidden).into_iter().chain(slice.ty.shape.iter().copied()).collect();
        let slot = self.move_dim_first(v, length, &layout);
        (slot, NestedInput::Slot { dtype: slice.ty.dtype, shape, layout, hidden })
    }

    /// Adds the axes that results vary over to those of the carries.
    /// Returns true if any of them was new.
    pub(crate) fn extend_hidden(&self, hidden: &mut [Vec<Axis>], outs: &[Vec<Axis>]) -> bool {
        let mut grown = false;
        for (h, o) in hidden.iter_mut().zip(outs) {
            if o.iter().any(|a| !h.contains(a)) {
                *h = self.in_order(h.iter().chain(o).copied());
                grown = true;
            }
        }
        grown
    }

    /// Returns the slots of the next carries, stored like the carries.
    pub(crate) fn store_carries(
        &mut self,
        next: &[LoweredValue],
        carries: &[StoredValue],
        hidden: &[Vec<Axis>],
    ) -> Vec<Slot> {
        let each = next.iter().zip(carries).zip(hidden);
        each.map(|((v, c), h)| self.store_as(v, c.dtype, h, &c.layout)).collect()
    }

    /// Moves the leading dimension of an array that a loop slices before the hidden ones.
    /// This dimension is unsharded.
    fn move_dim_first(&mut self, v: &LoweredValue, length: usize, slice: &Layout) -> Slot {
        let slot = self.as_slot(v);
        let h = v.hidden().len();
        let layout = with_leading_dim(slice, length);
        if h == 0 {
            return self.draft.with_layout(slot, layout, &self.origin);
        }
        let StoredValue { dtype, shape, .. } = self.draft.slots[slot].clone();
        let extents: Vec<usize> = std::iter::once(shape[h])
            .chain(shape[..h].iter().copied())
            .chain(shape[h + 1..].iter().copied())
            .collect();
        let loops: Vec<_> = (0..shape.rank())
            .map(|d| {
                Some(if d < h {
                    d + 1
                } else if d == h {
                    0
                } else {
                    d
                })
            })
            .collect();
        self.draft.add_local(
            draft::map_nest(Access::from_loops(slot, dtype, &extents, &loops), &extents),
            layout,
            &self.origin,
        )
    }

    /// Moves the hidden dimensions of a stacked result to the front again.
    fn move_hidden_first(&mut self, slot: Slot, hidden: Vec<Axis>) -> LoweredValue {
        let h = hidden.len();
        if h == 0 {
            return LoweredValue::Slot(slot, hidden);
        }
        let StoredValue { dtype, shape, mut layout } = self.draft.slots[slot].clone();
        let extents: Vec<usize> =
            shape[1..=h].iter().copied().chain([shape[0]]).chain(shape[h + 1..].iter().copied()).collect();
        let loops: Vec<_> = (0..shape.rank())
            .map(|d| {
                Some(if d == 0 {
                    h
                } else if d <= h {
                    d - 1
                } else {
                    d
                })
            })
            .collect();
        layout.dims[..=h].rotate_left(1);
        let s = draft::map_nest(Access::from_loops(slot, dtype, &extents, &loops), &extents);
        LoweredValue::Slot(self.draft.add_local(s, layout, &self.origin), hidden)
    }
}

impl StoredValue {
    /// Converts the value to an input of a nested program.
    pub(crate) fn into_nested_input(self, hidden: &[Axis]) -> NestedInput {
        let StoredValue { dtype, shape, layout } = self;
        NestedInput::Slot { dtype, shape, layout, hidden: hidden.to_vec() }
    }
}

/// Returns the layout of an array stacked from slices in the given layout.
/// The new leading dimension is unsharded.
fn with_leading_dim(slice: &Layout, length: usize) -> Layout {
    let dims = std::iter::once(DimLayout::new(length, [])).chain(slice.dims.iter().cloned()).collect();
    Layout { dims, partial: slice.partial.clone() }
}
