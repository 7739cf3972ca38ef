//! Lowering: equations become local steps over stored values, in the order of the program.

use crate::diagnostic::Result;
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::partition::draft;
use crate::partition::draft::{Draft, Item};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, Step, Stored, Why};
use crate::partition::report::Kind;
use crate::program::sentence::{Affine, Body, Code, Combine, Part, Read, Sentence, Source, Span};
use crate::program::{Env, Equation, Known, Literal, Op, Phase, Prim, Program, VarInfo, sound};
use crate::sharding::atoms::{Atoms, of_axes, sorted};
use crate::types::{ArrayType, DType, Shape};

/// What a variable is in the draft.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    /// A number.
    Lit(Literal),
    /// A stored value; its first dimensions are those of manual axes, in mesh order.
    Slot(Slot, Vec<Axis>),
}

impl Known for Val {
    fn number(l: Literal) -> Val {
        Val::Lit(l)
    }
}

impl Val {
    /// The manual axes that it has a dimension for.
    pub(crate) fn hidden(&self) -> &[Axis] {
        match self {
            Val::Lit(_) => &[],
            Val::Slot(_, hidden) => hidden,
        }
    }
}

/// The manual axes around what is lowered.
#[derive(Clone, Debug)]
pub(crate) struct Manual {
    pub(crate) mesh: Mesh,
    pub(crate) axes: Axes,
}

impl Manual {
    /// The digits of an axis.
    pub(crate) fn atoms(&self, axis: Axis) -> Atoms {
        of_axes(&self.mesh, [axis])
    }
}

/// A draft under construction, the manual axes around what is lowered, and in which phase of a derivative it is.
pub(crate) struct Lower {
    pub(crate) draft: Draft,
    pub(crate) manual: Option<Manual>,
    pub(crate) phase: Phase,
}

impl Lower {
    /// All equations of a program, on these inputs: what its results are.
    pub(crate) fn run(&mut self, program: &Program, ins: Vec<Val>) -> Result<Vec<Val>> {
        let mut env = Env::new(program, ins);
        for e in &program.equations {
            let operands = env.all(&e.inputs);
            let around = self.phase;
            self.phase = e.phase.within(around);
            let outs = match &e.op {
                Op::Prim(prim) => self.primitive(program, e, prim, &operands)?,
                Op::Control(c) => self.control(program, e, c, &operands)?,
            };
            self.as_typed(program, e, &outs).map_err(|wrong| sound::refuse(program, e, wrong))?;
            env.bind(&e.outputs, outs);
            self.phase = around;
        }
        Ok(env.all(&program.outputs))
    }
    /// Where a step of the equation that is lowered comes from.
    pub(crate) fn why(&self, e: &Equation, op: &str) -> Why {
        Why { place: e.place, op: op.to_string(), phase: self.phase }
    }

    /// Whether what an equation makes is stored as its types say.
    fn as_typed(&self, program: &Program, e: &Equation, outs: &[Val]) -> Result<(), String> {
        if outs.len() != e.outputs.len() {
            return Err(format!("it makes {} results of {}", outs.len(), e.outputs.len()));
        }
        // a part of a sum, or of a dimension, is no value of its own on each device
        let named = |ty: &ArrayType| {
            ty.spec.dims().iter().flat_map(Axes::iter).chain(ty.spec.unreduced_axes().iter())
        };
        for (val, var) in outs.iter().zip(&e.outputs) {
            let (Val::Slot(slot, hidden), ty) = (val, program.ty(*var)) else { continue };
            let Stored { dtype, shape, .. } = &self.draft.slots[*slot];
            if *dtype != ty.dtype.storage() || shape.get(hidden.len()..) != Some(&ty.shape[..]) {
                return Err(format!("it makes {dtype}{shape} where its type is {ty}"));
            }
            if let Some(axis) = hidden.iter().find(|a| named(ty).any(|b| b == **a)) {
                return Err(format!("what it makes varies over {axis}, and its type is {ty}"));
            }
        }
        Ok(())
    }

    fn primitive(
        &mut self,
        program: &Program,
        e: &Equation,
        prim: &Prim,
        operands: &[Val],
    ) -> Result<Vec<Val>> {
        let why = self.why(e, prim.name());
        let types: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
        let results: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
        if let Some(c) = prim.collective() {
            let within = self.manual.as_ref().map(|m| (&m.mesh, &m.axes));
            sound::collective(&c, within, &types, &results)
                .map_err(|wrong| sound::refuse(program, e, wrong))?;
            return self.collective(program, e, &c, operands, &why);
        }
        let sentences = prim.sentences(&types, &results);
        sound::sentences(&sentences, &types, &results).map_err(|wrong| sound::refuse(program, e, wrong))?;
        let hidden = self.in_order(operands.iter().flat_map(|v| v.hidden().iter().copied()));
        let pinned = prim.pins().is_some();
        if sentences.iter().any(|s| matches!(s.body, Body::Lines(_))) {
            let own = |v: &crate::program::Var| self.layout(&program.vars[v.index()], &hidden);
            let layouts: Vec<Layout> = e.outputs.iter().map(own).collect();
            let list: Vec<Sentence> =
                sentences.iter().map(|s| self.batched(s.clone(), operands, &hidden)).collect();
            if let Some(slots) = self.phases(&list, &layouts, &why) {
                return Ok(slots.into_iter().map(|slot| Val::Slot(slot, hidden.clone())).collect());
            }
        }
        let mut outs = Vec::new();
        for (s, var) in sentences.into_iter().zip(&e.outputs) {
            let layout = self.layout(&program.vars[var.index()], &hidden);
            let parts = match operands {
                [Val::Slot(slot, _)] if pinned => self.own_parts(*slot, &layout, &why),
                _ => None,
            };
            let slot = match parts {
                Some(slot) => slot,
                None => {
                    let s = self.batched(s, operands, &hidden);
                    self.emit(s, layout, &why, pinned)
                }
            };
            self.left_open(slot, program.ty(*var), pinned);
            outs.push(Val::Slot(slot, hidden.clone()));
        }
        Ok(outs)
    }

    /// Notes whether anything says where a value is: its type by explicit or manual axes, or the user (`pinned`).
    fn left_open(&mut self, slot: Slot, ty: &ArrayType, pinned: bool) {
        let mesh = ty.mesh.as_ref().or(self.draft.mesh.as_ref());
        let auto = mesh.is_some_and(|m| m.axis_types().iter().all(|t| *t == AxisType::Auto));
        let open = auto && !pinned && self.manual.is_none();
        let free = self.draft.free.entry(slot).or_insert(open);
        *free &= open;
    }

    /// A sentence over operands made one over slots: loops for hidden dimensions in front, literals as constants.
    pub(crate) fn batched(&self, s: Sentence, operands: &[Val], hidden: &[Axis]) -> Sentence {
        let (h, sizes) = (hidden.len(), self.sizes(hidden));
        let extents: Vec<usize> = sizes.iter().copied().chain(s.extents).collect();
        // read as a number by all that reads it
        if let Some(value) = s.body.elementwise().and_then(Code::number) {
            return constant(Literal { value, dtype: s.dtype }, s.dtype, &extents);
        }
        let lead = sizes.iter().map(|n| Span::all(*n));
        let first = s.reads.first().and_then(|r| r.parts.first()).map(|p| p.from);
        if let (Body::Reshape, Some(Source::Value(k))) = (&s.body, first) {
            match &operands[k] {
                Val::Slot(slot, _) => {
                    let from = &self.draft.slots[*slot];
                    return draft::reshape(*slot, s.dtype, &from.shape, &extents);
                }
                Val::Lit(l) => return constant(*l, s.dtype, &extents),
            }
        }
        let part = |p: Part| {
            let span: Vec<Span> = lead.clone().chain(p.span).collect();
            let moved =
                |m: Affine| Affine { at: m.at, terms: m.terms.iter().map(|t| (t.0 + h, t.1)).collect() };
            match p.from {
                Source::Const(_) => Part { span, map: Vec::new(), ..p },
                Source::Value(k) => match &operands[k] {
                    Val::Lit(l) => Part { from: Source::Const(l.value), span, map: Vec::new() },
                    Val::Slot(slot, own) => {
                        let at = |a: &Axis| hidden.iter().position(|b| a == b).unwrap_or(0);
                        let front = own.iter().map(|a| Affine::of(0, at(a), 1));
                        let map = front.chain(p.map.into_iter().map(moved)).collect();
                        Part { from: Source::Value(*slot), span, map }
                    }
                },
            }
        };
        let reads = (s.reads.into_iter())
            .map(|r| Read { parts: r.parts.into_iter().map(part).collect(), ..r })
            .collect();
        let mut body = s.body;
        body.rename(|l| l + h);
        Sentence { extents, rank: s.rank + h, dtype: s.dtype, reads, body }
    }

    /// A local step for the sentence; where it is a stored value itself, laid out so, that value.
    pub(crate) fn emit(&mut self, s: Sentence, layout: Layout, why: &Why, pinned: bool) -> Slot {
        if let (Some(slot), true) = (s.copied(), s.body.elementwise().is_some()) {
            let from = &self.draft.slots[slot];
            if from.layout == layout
                && from.dtype == s.dtype.storage()
                && s.reads[0].is_identity(&s.extents, &from.shape)
            {
                return slot;
            }
        }
        let out = self.draft.local(s, layout, why);
        if let Some(item) = self.draft.last() {
            item.pinned = pinned;
        }
        out
    }

    /// Marks the last step as a collective that the user asked for.
    pub(crate) fn asked(&mut self, kind: Kind, axes: &Axes) {
        if let Some(item) = self.draft.last() {
            item.user = Some((kind, axes.clone()));
        }
    }

    /// A step that is not local.
    pub(crate) fn push(&mut self, step: Step, why: &Why) -> Option<&mut Item> {
        self.draft.items.push(Item::new(step, why.clone()));
        self.draft.last()
    }

    /// The value stored with these hidden dimensions, laid out so.
    pub(crate) fn stored(
        &mut self,
        v: &Val,
        dtype: DType,
        hidden: &[Axis],
        layout: &Layout,
        why: &Why,
    ) -> Slot {
        let slot = match v {
            Val::Slot(slot, own) if own == hidden => *slot,
            Val::Slot(slot, own) => {
                let Stored { dtype, shape, .. } = self.draft.slots[*slot].clone();
                let inner = Shape::from(&shape[own.len()..]);
                let loops: Vec<_> = (0..inner.rank()).map(Some).collect();
                let s = draft::mapped(Read::plain(0, dtype, &inner, &loops), &inner);
                let s = self.batched(s, std::slice::from_ref(v), hidden);
                return self.draft.local(s, layout.clone(), why);
            }
            Val::Lit(l) => {
                let s = constant(*l, dtype, &self.sizes(hidden));
                return self.draft.local(s, layout.clone(), why);
            }
        };
        self.draft.laid(slot, layout.clone(), why)
    }

    /// The value stored as it is: a number becomes a stored scalar.
    pub(crate) fn as_slot(&mut self, v: &Val, why: &Why) -> Slot {
        match v {
            Val::Slot(slot, _) => *slot,
            Val::Lit(l) => self.stored(v, l.dtype, &[], &Layout { dims: Vec::new(), partial: None }, why),
        }
    }

    /// The same, of a partial value their sum.
    pub(crate) fn whole_slot(&mut self, v: &Val, why: &Why) -> Slot {
        let slot = self.as_slot(v, why);
        let layout = Layout { partial: None, ..self.draft.slots[slot].layout.clone() };
        self.draft.laid(slot, layout, why)
    }

    /// How a variable is laid out, its hidden dimensions first.
    pub(crate) fn layout(&self, info: &VarInfo, hidden: &[Axis]) -> Layout {
        let front = hidden.iter().map(|a| {
            let atoms = self.manual.as_ref().map(|m| m.atoms(*a)).unwrap_or_default();
            DimLayout::new(atoms.iter().map(|a| a.size).product(), atoms)
        });
        let mut partial = Atoms::new();
        let placement = info.placement.as_ref();
        let dims = info.ty.shape.iter().enumerate().map(|(d, n)| {
            let atoms = placement.and_then(|p| p.dims.get(d)).cloned().unwrap_or_default();
            DimLayout::new(*n, atoms)
        });
        if let Some(p) = placement {
            partial.extend(p.partial.iter().copied());
        }
        if let Some(m) = &self.manual {
            for a in info.ty.spec.unreduced_axes().iter().filter(|a| m.axes.contains(*a)) {
                partial.extend(m.atoms(a));
            }
        }
        let partial = sorted(partial);
        Layout {
            dims: front.chain(dims).collect(),
            partial: (!partial.is_empty()).then_some((Combine::Add, partial)),
        }
    }

    /// The sizes of manual axes.
    pub(crate) fn sizes(&self, axes: &[Axis]) -> Vec<usize> {
        axes.iter().map(|a| self.manual.as_ref().map_or(1, |m| m.mesh.extent(*a))).collect()
    }

    /// Manual axes in mesh order, each once.
    pub(crate) fn in_order(&self, axes: impl IntoIterator<Item = Axis>) -> Vec<Axis> {
        match &self.manual {
            Some(m) => m.mesh.in_order(axes).iter().collect(),
            None => axes.into_iter().collect(),
        }
    }
}

/// The sentence of a number, everywhere.
pub(crate) fn constant(l: Literal, dtype: DType, extents: &[usize]) -> Sentence {
    let part = Part { from: Source::Const(l.value), span: Span::whole(extents), map: Vec::new() };
    let read = Read { dtype: l.dtype, parts: vec![part], fill: l.value };
    let mut s = draft::mapped(read, extents);
    s.dtype = dtype;
    s
}
