//! Lowering of operations with nested programs.

use crate::diagnostic::Result;
use crate::mesh::Axis;
use crate::partition::draft;
use crate::partition::draft::Item;
use crate::partition::lay::plan;
use crate::partition::lay::plan::Planned;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::{Lower, Val};
use crate::partition::lower::varying::varying;
use crate::partition::program::{Printed, Slot, Step, Stored, Why};
use crate::program::sentence::{Arg, Body, Code, Combine, Fun, Read, Sentence, Source};
use crate::program::{Control, Equation, Loop, Parts, Program, Var, VarInfo};
use crate::types::{DType, Shape};
use std::collections::HashMap;

/// A nested program's input: a number, or a stored value of its own.
pub(crate) enum Inner {
    Val(Val),
    Slot { dtype: DType, shape: Shape, layout: Layout, hidden: Vec<Axis> },
}

/// How often the body of a loop that ends by a condition is said to run, in the report: nobody knows.
const UNKNOWN_TRIPS: u64 = 1;
/// How often it is taken to run where layouts are chosen.
const USUAL_TRIPS: u64 = 16;

impl Lower {
    pub(crate) fn control(
        &mut self,
        program: &Program,
        e: &Equation,
        c: &Control,
        operands: &[Val],
    ) -> Result<Vec<Val>> {
        let why = self.why(e, c.name());
        match c {
            Control::Jit { body, .. } | Control::Modes { body, .. } => {
                let outs = self.run(body, operands.to_vec())?;
                let mut list = Vec::new();
                for (v, var) in outs.into_iter().zip(&e.outputs) {
                    list.push(self.placed(v, &program.vars[var.index()], &why));
                }
                Ok(list)
            }
            Control::ShardMap(m) => self.shard_map(program, e, m, operands),
            Control::Loop(l) => self.fixed_loop(program, e, l, operands, &why),
            Control::While { cond, body, cond_fixed, body_fixed } => {
                self.while_loop(program, e, (cond, *cond_fixed), (body, *body_fixed), operands, &why)
            }
            Control::Cond { branches } => self.branches(program, e, branches, operands, &why),
            Control::Print { template } => {
                let types = e.inputs.iter().map(|i| program.input_type(i).dtype);
                let values = (operands.iter().zip(types))
                    .map(|(v, dtype)| Printed {
                        slot: self.whole_slot(v, &why),
                        dtype,
                        hidden: v.hidden().into(),
                    })
                    .collect();
                let manual = self.manual.as_ref().map(|m| m.axes.clone()).unwrap_or_default();
                self.push(Step::Print { template: template.clone(), values, manual }, &why);
                Ok(Vec::new())
            }
        }
    }

    /// The value as this variable is placed.
    pub(crate) fn placed(&mut self, v: Val, info: &VarInfo, why: &Why) -> Val {
        let Val::Slot(slot, hidden) = v else { return v };
        let layout = self.layout(info, &hidden);
        Val::Slot(self.draft.laid(slot, layout, why), hidden)
    }

    /// A nested program of these inputs, lowered by `build` (which returns its output slots) and localised. The stored inputs in
    /// `once` are the same in each of its `trips`.
    pub(crate) fn nested(
        &self,
        ins: Vec<Inner>,
        (once, trips): (std::ops::Range<usize>, u64),
        build: impl FnOnce(&mut Lower, &[Val]) -> Result<Vec<Slot>>,
    ) -> Result<Planned> {
        let draft = self.draft.beside();
        let mut inner = Lower { draft, manual: self.manual.clone(), phase: self.phase };
        let mut vals = Vec::new();
        for i in ins {
            vals.push(match i {
                Inner::Val(v) => v,
                Inner::Slot { dtype, shape, layout, hidden } => {
                    let slot = inner.draft.slot(dtype, shape, layout);
                    inner.draft.ins.push(slot);
                    Val::Slot(slot, hidden)
                }
            });
        }
        inner.draft.once = inner.draft.ins[once].to_vec();
        inner.draft.trips = trips;
        inner.draft.outs = build(&mut inner, &vals)?;
        plan::plan(inner.draft)
    }

    /// Lays the fixed inputs of a loop out as its body wants them, and makes before it what is the same at each step; the body's first one
    /// is its input `first`. The loop is that of `why`.
    pub(crate) fn adopt(&mut self, body: &Planned, first: usize, fixed: &mut Vec<Slot>, why: &Why) {
        let before = Some(why.clone());
        let p = &body.localised.program;
        // what the body's values are here
        let mut here: HashMap<Slot, Slot> =
            p.ins[first..].iter().copied().zip(fixed.iter().copied()).take(fixed.len()).collect();
        for item in &body.before {
            let Step::Local { out, sentence, .. } = &item.step else { continue };
            let mut sentence = sentence.clone();
            for part in sentence.reads.iter_mut().flat_map(|r| &mut r.parts) {
                if let Source::Value(slot) = &mut part.from
                    && let Some(outer) = here.get(slot)
                {
                    *slot = *outer;
                }
            }
            let Stored { dtype, shape, layout } = p.slots[*out].clone();
            let made = self.draft.slot(dtype, shape, layout);
            here.insert(*out, made);
            let step = Step::Local { out: made, sentence, layout: Vec::new() };
            let before = before.clone();
            self.draft.items.push(Item { step, before, through: Vec::new(), ..item.clone() });
        }
        let given = p.ins[first + fixed.len()..].iter().map_while(|s| here.get(s));
        fixed.extend(given.copied().collect::<Vec<_>>());
        for a in &body.adopted {
            let found = p.ins.iter().skip(first).position(|s| *s == a.slot);
            if let Some(outer) = found.and_then(|k| fixed.get_mut(k)) {
                let laid = self.draft.laid(*outer, p.slots[a.slot].layout.clone(), &a.why);
                if laid != *outer
                    && let Some(item) = self.draft.last()
                {
                    item.before.clone_from(&before);
                    item.asked = a.asked;
                }
                *outer = laid;
            }
        }
    }

    /// A fixed input of a nested program: numbers go inside as such.
    pub(crate) fn fixed(&self, v: &Val, slots: &mut Vec<Slot>) -> Inner {
        match v {
            Val::Lit(_) => Inner::Val(v.clone()),
            Val::Slot(slot, hidden) => {
                slots.push(*slot);
                let Stored { dtype, shape, layout } = self.draft.slots[*slot].clone();
                Inner::Slot { dtype, shape, layout, hidden: hidden.clone() }
            }
        }
    }

    /// How the carries of a loop are laid out, by its body's variables `own`, with hidden dimensions for what they come to vary over.
    fn carries(&self, body: &Program, own: &[Var], hidden: &[Vec<Axis>]) -> Vec<Stored> {
        let of = |(var, hidden): (&Var, &Vec<Axis>)| {
            let info = &body.vars[var.index()];
            let shape: Shape = self.sizes(hidden).into_iter().chain(info.ty.shape.iter().copied()).collect();
            Stored { dtype: info.ty.dtype.storage(), shape, layout: self.layout(info, hidden) }
        };
        own.iter().zip(hidden).map(of).collect()
    }

    pub(crate) fn fixed_loop(
        &mut self,
        program: &Program,
        e: &Equation,
        l: &Loop,
        operands: &[Val],
        why: &Why,
    ) -> Result<Vec<Val>> {
        let Parts { fixed, carry, xs } = l.parts(operands);
        let (_, own) = l.step_parts(&l.body.inputs);
        // what carries come to vary over: grows until it is stable
        let mut hidden: Vec<Vec<Axis>> = carry.iter().map(|v| v.hidden().to_vec()).collect();
        loop {
            let ins = std::iter::once(Vec::new())
                .chain(fixed.iter().map(|v| v.hidden().to_vec()))
                .chain(hidden.iter().cloned())
                .chain(xs.iter().map(|v| v.hidden().to_vec()));
            let outs = varying(&l.body, ins.collect());
            if !self.grow(&mut hidden, &outs) {
                break;
            }
        }
        let carries = self.carries(&l.body, &own.carry, &hidden);
        let scalar = Layout { dims: Vec::new(), partial: None };
        let mut ins = vec![Inner::Slot {
            dtype: DType::I32,
            shape: Shape::scalar(),
            layout: scalar,
            hidden: Vec::new(),
        }];
        let mut fixed_slots = Vec::new();
        ins.extend(fixed.iter().map(|v| self.fixed(v, &mut fixed_slots)));
        let mut carry_slots = Vec::new();
        for ((v, stored), hidden) in carry.iter().zip(&carries).zip(&hidden) {
            carry_slots.push(self.stored(v, stored.dtype, hidden, &stored.layout, why));
            ins.push(stored.clone().inner(hidden));
        }
        let mut x_slots = Vec::new();
        for (v, var) in xs.iter().zip(&own.xs) {
            let info = &l.body.vars[var.index()];
            let hidden = v.hidden().to_vec();
            let slice = self.layout(info, &hidden);
            let shape: Shape = self.sizes(&hidden).into_iter().chain(info.ty.shape.iter().copied()).collect();
            x_slots.push(self.leading(v, l.length, &slice, why));
            ins.push(Inner::Slot { dtype: info.ty.dtype, shape, layout: slice, hidden });
        }
        let mut stacked: Vec<(Stored, Vec<Axis>)> = Vec::new();
        let once = (1..1 + fixed_slots.len(), l.length as u64);
        let body = self.nested(ins, once, |inner, vals| {
            let outs = inner.run(&l.body, vals.to_vec())?;
            let (next, ys) = outs.split_at(l.carry);
            let mut slots = inner.carried(next, &carries, &hidden, why);
            for v in ys {
                let slot = inner.as_slot(v, why);
                stacked.push((inner.draft.slots[slot].clone(), v.hidden().to_vec()));
                slots.push(slot);
            }
            Ok(slots)
        })?;
        self.adopt(&body, 1, &mut fixed_slots, why);
        let body = body.localised;
        let out: Vec<Slot> =
            carries.iter().map(|c| self.draft.slot(c.dtype, c.shape.clone(), c.layout.clone())).collect();
        let ys: Vec<Slot> = (stacked.iter())
            .map(|(y, _)| {
                let shape = std::iter::once(l.length).chain(y.shape.iter().copied()).collect();
                self.draft.slot(y.dtype, shape, with_leading(&y.layout, l.length))
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
        if let Some(item) = self.push(step, why) {
            item.inside.push((body.collectives, l.length as u64));
        }
        let mut list: Vec<Val> = out.into_iter().zip(hidden).map(|(s, h)| Val::Slot(s, h)).collect();
        for (slot, (_, hidden)) in ys.into_iter().zip(stacked) {
            list.push(self.behind(slot, hidden, why));
        }
        let mut placed = Vec::new();
        for (v, var) in list.into_iter().zip(&e.outputs) {
            placed.push(self.placed(v, &program.vars[var.index()], why));
        }
        Ok(placed)
    }

    /// Adds to the hidden dimensions of carries what the results vary over; whether any was new.
    pub(crate) fn grow(&self, hidden: &mut [Vec<Axis>], outs: &[Vec<Axis>]) -> bool {
        let mut grown = false;
        for (h, o) in hidden.iter_mut().zip(outs) {
            if o.iter().any(|a| !h.contains(a)) {
                *h = self.in_order(h.iter().chain(o).copied());
                grown = true;
            }
        }
        grown
    }

    /// The next carries, stored as the carries are. No slot twice, and none that is an input at another place.
    pub(crate) fn carried(
        &mut self,
        next: &[Val],
        carries: &[Stored],
        hidden: &[Vec<Axis>],
        why: &Why,
    ) -> Vec<Slot> {
        let each = next.iter().zip(carries).zip(hidden);
        each.map(|((v, c), h)| self.stored(v, c.dtype, h, &c.layout, why)).collect()
    }

    /// An array that a loop runs over, its leading dimension in front of the hidden ones and unsharded.
    fn leading(&mut self, v: &Val, length: usize, slice: &Layout, why: &Why) -> Slot {
        let slot = self.as_slot(v, why);
        let h = v.hidden().len();
        let layout = with_leading(slice, length);
        if h == 0 {
            return self.draft.laid(slot, layout, why);
        }
        let Stored { dtype, shape, .. } = self.draft.slots[slot].clone();
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
        self.draft.local(draft::mapped(Read::plain(slot, dtype, &extents, &loops), &extents), layout, why)
    }

    /// A stacked result with its hidden dimensions in front again.
    fn behind(&mut self, slot: Slot, hidden: Vec<Axis>, why: &Why) -> Val {
        let h = hidden.len();
        if h == 0 {
            return Val::Slot(slot, hidden);
        }
        let Stored { dtype, shape, mut layout } = self.draft.slots[slot].clone();
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
        let s = draft::mapped(Read::plain(slot, dtype, &extents, &loops), &extents);
        Val::Slot(self.draft.local(s, layout, why), hidden)
    }

    fn while_loop(
        &mut self,
        program: &Program,
        e: &Equation,
        (cond, cond_fixed): (&Program, usize),
        (body, body_fixed): (&Program, usize),
        operands: &[Val],
        why: &Why,
    ) -> Result<Vec<Val>> {
        let (for_cond, rest) = operands.split_at(cond_fixed);
        let (for_body, carry) = rest.split_at(body_fixed);
        let axes_of = |vals: &[Val]| vals.iter().map(|v| v.hidden().to_vec()).collect::<Vec<_>>();
        let mut hidden = axes_of(carry);
        let test = loop {
            let test = varying(cond, [axes_of(for_cond), hidden.clone()].concat()).swap_remove(0);
            let mut outs = varying(body, [axes_of(for_body), hidden.clone()].concat());
            // where devices end at different steps, what they carry differs
            outs.iter_mut().for_each(|o| o.extend(&test));
            if !self.grow(&mut hidden, &outs) {
                break test;
            }
        };
        let carries = self.carries(body, &body.inputs[body_fixed..], &hidden);
        let mut carry_slots = Vec::new();
        for ((v, stored), hidden) in carry.iter().zip(&carries).zip(&hidden) {
            carry_slots.push(self.stored(v, stored.dtype, hidden, &stored.layout, why));
        }
        let carry_ins = || carries.iter().zip(&hidden).map(|(s, h)| s.clone().inner(h));
        let whole = Layout { dims: Vec::new(), partial: None };
        // the condition: true while it holds on any device
        let mut cond_slots = Vec::new();
        let mut ins: Vec<Inner> = for_cond.iter().map(|v| self.fixed(v, &mut cond_slots)).collect();
        ins.extend(carry_ins());
        let test_program = self.nested(ins, (0..cond_slots.len(), USUAL_TRIPS), |inner, vals| {
            let outs = inner.run(cond, vals.to_vec())?;
            Ok(vec![inner.any(&outs[0], &whole, why)])
        })?;
        self.adopt(&test_program, 0, &mut cond_slots, why);
        let test_program = test_program.localised;
        let mut body_slots = Vec::new();
        let mut ins: Vec<Inner> = for_body.iter().map(|v| self.fixed(v, &mut body_slots)).collect();
        let again = if test.is_empty() {
            0
        } else {
            ins.extend(for_cond.iter().map(|v| self.fixed(v, &mut body_slots)));
            for_cond.len()
        };
        ins.extend(carry_ins());
        // where devices end at different steps, each keeps its carries once its own condition fails
        let stepped = self.nested(ins, (0..body_slots.len(), USUAL_TRIPS), |inner, vals| {
            let (fixed, rest) = vals.split_at(body_fixed);
            let (for_cond, carry) = rest.split_at(again);
            let next = inner.run(body, [fixed, carry].concat())?;
            let mut slots = inner.carried(&next, &carries, &hidden, why);
            if !test.is_empty() {
                let holds = inner.run(cond, [for_cond, carry].concat())?.swap_remove(0);
                for (k, slot) in slots.iter_mut().enumerate() {
                    let now = Val::Slot(*slot, hidden[k].clone());
                    let block = &carries[k].shape[hidden[k].len()..];
                    let choice = [&holds, &now, &carry[k]];
                    *slot =
                        inner.select(choice, block, carries[k].dtype, &hidden[k], &carries[k].layout, why);
                }
            }
            Ok(slots)
        })?;
        self.adopt(&stepped, 0, &mut body_slots, why);
        let stepped = stepped.localised;
        let out: Vec<Slot> =
            carries.iter().map(|c| self.draft.slot(c.dtype, c.shape.clone(), c.layout.clone())).collect();
        let step = Step::While {
            cond: Box::new(test_program.program),
            body: Box::new(stepped.program),
            cond_fixed: cond_slots,
            body_fixed: body_slots,
            carry: carry_slots,
            out: out.clone(),
        };
        if let Some(item) = self.push(step, why) {
            item.inside.push((test_program.collectives, UNKNOWN_TRIPS));
            item.inside.push((stepped.collectives, UNKNOWN_TRIPS));
        }
        let mut placed = Vec::new();
        for ((slot, hidden), var) in out.into_iter().zip(hidden).zip(&e.outputs) {
            placed.push(self.placed(Val::Slot(slot, hidden), &program.vars[var.index()], why));
        }
        Ok(placed)
    }

    /// `choice[1]` where `choice[0]` holds, else `choice[2]`; stored with these hidden dimensions.
    pub(crate) fn select(
        &mut self,
        choice: [&Val; 3],
        block: &[usize],
        dtype: DType,
        hidden: &[Axis],
        layout: &Layout,
        why: &Why,
    ) -> Slot {
        let all: Vec<_> = (0..block.len()).map(Some).collect();
        let reads = vec![
            Read::plain(0, DType::Bool, block, &[]),
            Read::plain(1, dtype, block, &all),
            Read::plain(2, dtype, block, &all),
        ];
        let code = Code::one(Fun::Select, dtype, dtype, &[Arg::Read(0), Arg::Read(1), Arg::Read(2)]);
        let s = Sentence { extents: block.to_vec(), rank: block.len(), dtype, reads, body: Body::Map(code) };
        let operands: Vec<Val> = choice.into_iter().cloned().collect();
        let s = self.batched(s, &operands, hidden);
        self.emit(s, layout.clone(), why, false)
    }

    /// Whether a bool holds on any device.
    fn any(&mut self, v: &Val, whole: &Layout, why: &Why) -> Slot {
        let slot = self.as_slot(v, why);
        let extents = self.sizes(v.hidden());
        if extents.is_empty() {
            return self.draft.laid(slot, whole.clone(), why);
        }
        let all: Vec<_> = (0..extents.len()).map(Some).collect();
        let reads = vec![Read::plain(slot, DType::Bool, &extents, &all)];
        let body = Body::Fold { combine: Combine::Or, code: Code::copy(DType::Bool) };
        let s = Sentence { extents, rank: 0, dtype: DType::Bool, reads, body };
        self.emit(s, whole.clone(), why, false)
    }
}

impl Stored {
    fn inner(self, hidden: &[Axis]) -> Inner {
        let Stored { dtype, shape, layout } = self;
        Inner::Slot { dtype, shape, layout, hidden: hidden.to_vec() }
    }
}

/// The layout of an array whose slices along a new leading dimension are laid out so.
fn with_leading(slice: &Layout, length: usize) -> Layout {
    let dims = std::iter::once(DimLayout::new(length, [])).chain(slice.dims.iter().cloned()).collect();
    Layout { dims, partial: slice.partial.clone() }
}
