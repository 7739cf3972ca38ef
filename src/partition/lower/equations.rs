//! Lowers the equations of a program to local steps over stored values, in program order.

use crate::core::sharding::sub_axes::{from_axes, in_device_order};
use crate::core::{ArrayType, Axes, Axis, AxisType, DType, Mesh, Result, Shape, SubAxes};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Env, Equation, EquationContext, FromLiteral, Literal, LoopNest, Op,
    Prim, Program, Reducer, ScalarCode, Source, StridedRange, VarInfo, verify,
};
use crate::partition::collective::CollectiveKind;
use crate::partition::draft::{self, Draft, DraftStep};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, Step, StepOrigin, StoredValue};

/// The value of a variable in the draft.
#[derive(Clone, Debug)]
pub(crate) enum LoweredValue {
    /// A literal.
    Lit(Literal),
    /// A stored value.
    /// Its first dimensions are the hidden ones, for these manual axes in mesh order.
    Slot(Slot, Vec<Axis>),
}

impl FromLiteral for LoweredValue {
    fn from_literal(l: Literal) -> LoweredValue {
        LoweredValue::Lit(l)
    }
}

impl LoweredValue {
    /// Returns the manual axes that the value has hidden dimensions for.
    pub(crate) fn hidden(&self) -> &[Axis] {
        match self {
            LoweredValue::Lit(_) => &[],
            LoweredValue::Slot(_, hidden) => hidden,
        }
    }
}

/// The manual axes of the current region.
#[derive(Clone, Debug)]
pub(crate) struct ManualAxes {
    /// The mesh of the axes.
    pub(crate) mesh: Mesh,
    /// The axes, including those of surrounding regions.
    pub(crate) axes: Axes,
}

impl ManualAxes {
    /// Returns the sub-axes of a mesh axis.
    pub(crate) fn sub_axes(&self, axis: Axis) -> SubAxes {
        from_axes(&self.mesh, [axis])
    }
}

/// The state of lowering.
pub(crate) struct Lowering {
    /// The draft under construction.
    pub(crate) draft: Draft,
    /// The manual axes of the current region.
    /// `None` outside `shard_map`.
    pub(crate) manual: Option<ManualAxes>,
    /// The context of the current equation.
    /// What it does not have itself is that of the equation around it.
    pub(crate) context: EquationContext,
    /// The origin of the steps of the current equation.
    pub(crate) origin: StepOrigin,
    /// The backward pass of a checkpoint that the current equation belongs to; 0 if none.
    pub(crate) checkpoint: usize,
    /// The number of backward passes of checkpoints lowered so far.
    pub(crate) num_checkpoints: usize,
}

impl Lowering {
    /// Lowers all equations of a program on these inputs, and returns its results.
    pub(crate) fn run(&mut self, program: &Program, ins: Vec<LoweredValue>) -> Result<Vec<LoweredValue>> {
        let mut env = Env::new(program, ins);
        for e in &program.equations {
            let operands = env.get_all(&e.inputs);
            let inside = self.context.of(e);
            let around = std::mem::replace(&mut self.context, inside);
            let origin = self.origin_of(e.op.name());
            let origin_around = std::mem::replace(&mut self.origin, origin);
            let outs = match &e.op {
                Op::Prim(prim) => self.lower_primitive(program, e, prim, &operands)?,
                Op::Control(c) => self.lower_control(program, e, c, &operands)?,
            };
            self.as_typed(program, e, &outs).map_err(|wrong| verify::equation_error(program, e, wrong))?;
            env.bind(&e.outputs, outs);
            (self.context, self.origin) = (around, origin_around);
        }
        Ok(env.get_all(&program.outputs))
    }
    /// Returns the origin of a step of the current equation.
    fn origin_of(&self, op: &str) -> StepOrigin {
        StepOrigin {
            location: self.context.location,
            op: op.to_string(),
            phase: self.context.phase,
            scope: self.context.scope.clone(),
            checkpoint: self.checkpoint,
        }
    }

    /// Checks that the results of an equation are stored with the types of its variables.
    fn as_typed(&self, program: &Program, e: &Equation, outs: &[LoweredValue]) -> Result<(), String> {
        if outs.len() != e.outputs.len() {
            return Err(format!("it makes {} results of {}", outs.len(), e.outputs.len()));
        }
        // a value that varies over an axis cannot also be sharded or unreduced over it
        let named = |ty: &ArrayType| {
            ty.spec.dims().iter().flat_map(Axes::iter).chain(ty.spec.unreduced_axes().iter())
        };
        for (val, var) in outs.iter().zip(&e.outputs) {
            let (LoweredValue::Slot(slot, hidden), ty) = (val, program.ty(*var)) else { continue };
            let StoredValue { dtype, shape, .. } = &self.draft.slots[*slot];
            if *dtype != ty.dtype.storage() || shape.get(hidden.len()..) != Some(&ty.shape[..]) {
                return Err(format!("it makes {dtype}{shape} where its type is {ty}"));
            }
            if let Some(axis) = hidden.iter().find(|a| named(ty).any(|b| b == **a)) {
                return Err(format!("what it makes varies over {axis}, and its type is {ty}"));
            }
        }
        Ok(())
    }

    fn lower_primitive(
        &mut self,
        program: &Program,
        e: &Equation,
        prim: &Prim,
        operands: &[LoweredValue],
    ) -> Result<Vec<LoweredValue>> {
        let types: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
        let results: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
        if let Some(c) = prim.collective() {
            let within = self.manual.as_ref().map(|m| (&m.mesh, &m.axes));
            verify::collective(&c, within, &types, &results)
                .map_err(|wrong| verify::equation_error(program, e, wrong))?;
            return self.lower_collective(program, e, &c, operands);
        }
        let nests = prim.loop_nests(&types, &results);
        verify::loop_nests(&nests, &types, &results)
            .map_err(|wrong| verify::equation_error(program, e, wrong))?;
        let hidden = self.in_order(operands.iter().flat_map(|v| v.hidden().iter().copied()));
        let pinned = prim.constraint().is_some();
        if nests.iter().any(|s| s.compute.row_kernel().is_some()) {
            let own = |v: &crate::ir::program::Var| self.layout_of(&program.vars[v.index()], &hidden);
            let layouts: Vec<Layout> = e.outputs.iter().map(own).collect();
            let list: Vec<LoopNest> =
                nests.iter().map(|s| self.with_hidden_dims(s.clone(), operands, &hidden)).collect();
            if let Some(made) = self.lower_separable_rows(&list, &layouts) {
                made.iter().for_each(|slot| self.note_unconstrained(*slot, &results[0], pinned));
                let result = made.last().map(|slot| LoweredValue::Slot(*slot, hidden.clone()));
                return Ok(result.into_iter().collect());
            }
            if let Some(slots) = self.lower_two_phase(&list, &layouts) {
                return Ok(slots.into_iter().map(|slot| LoweredValue::Slot(slot, hidden.clone())).collect());
            }
        }
        let mut outs = Vec::new();
        for (s, var) in nests.into_iter().zip(&e.outputs) {
            let layout = self.layout_of(&program.vars[var.index()], &hidden);
            let parts = match operands {
                [LoweredValue::Slot(slot, _)] if pinned => self.lower_to_partial(*slot, &layout),
                _ => None,
            };
            let slot = match parts {
                Some(slot) => slot,
                None => {
                    let s = self.with_hidden_dims(s, operands, &hidden);
                    self.emit(s, layout, pinned)
                }
            };
            self.note_unconstrained(slot, program.ty(*var), pinned);
            outs.push(LoweredValue::Slot(slot, hidden.clone()));
        }
        Ok(outs)
    }

    /// Records whether the placement of a value is unconstrained.
    /// A placement is constrained by explicit or manual axes in the type, or by the user
    /// (`pinned`).
    fn note_unconstrained(&mut self, slot: Slot, ty: &ArrayType, pinned: bool) {
        let mesh = ty.mesh.as_ref().or(self.draft.mesh.as_ref());
        let auto = mesh.is_some_and(|m| m.axis_types().iter().all(|t| *t == AxisType::Auto));
        let open = auto && !pinned && self.manual.is_none();
        let free = self.draft.unconstrained.entry(slot).or_insert(open);
        *free &= open;
    }

    /// Converts a loop nest over operands to one over slots.
    /// It adds loops for hidden dimensions, and replaces literals by constants.
    pub(crate) fn with_hidden_dims(
        &self,
        s: LoopNest,
        operands: &[LoweredValue],
        hidden: &[Axis],
    ) -> LoopNest {
        let (h, sizes) = (hidden.len(), self.axis_sizes(hidden));
        let extents: Vec<usize> = sizes.iter().copied().chain(s.extents).collect();
        // a constant nest becomes a literal, which every consumer recognises as a constant
        if let Some(value) = s.compute.elementwise().and_then(ScalarCode::as_constant) {
            return constant_nest(Literal { value, dtype: s.dtype }, s.dtype, &extents);
        }
        let lead = sizes.iter().map(|n| StridedRange::full(*n));
        let first = s.accesses.first().and_then(|r| r.pieces.first()).map(|p| p.source);
        if s.compute.is_alias()
            && let Some(Source::Value(k)) = first
        {
            match &operands[k] {
                LoweredValue::Slot(slot, _) => {
                    let from = &self.draft.slots[*slot];
                    return draft::reshape_nest(*slot, s.dtype, &from.shape, &extents);
                }
                LoweredValue::Lit(l) => return constant_nest(*l, s.dtype, &extents),
            }
        }
        let part = |p: AccessPiece| {
            let span: Vec<StridedRange> = lead.clone().chain(p.ranges).collect();
            let moved = |m: AffineExpr| AffineExpr {
                constant: m.constant,
                terms: m.terms.iter().map(|t| (t.0 + h, t.1)).collect(),
            };
            match p.source {
                Source::Const(_) => AccessPiece { ranges: span, map: Vec::new(), ..p },
                Source::Value(k) => match &operands[k] {
                    LoweredValue::Lit(l) => {
                        AccessPiece { source: Source::Const(l.value), ranges: span, map: Vec::new() }
                    }
                    LoweredValue::Slot(slot, own) => {
                        let at = |a: &Axis| hidden.iter().position(|b| a == b).unwrap_or(0);
                        let front = own.iter().map(|a| AffineExpr::linear(0, at(a), 1));
                        let map = front.chain(p.map.into_iter().map(moved)).collect();
                        AccessPiece { source: Source::Value(*slot), ranges: span, map }
                    }
                },
            }
        };
        let reads = (s.accesses.into_iter())
            .map(|r| Access { pieces: r.pieces.into_iter().map(part).collect(), ..r })
            .collect();
        let mut body = s.compute;
        body.rename_loops(|l| l + h);
        LoopNest { extents, rank: s.rank + h, dtype: s.dtype, accesses: reads, compute: body }
    }

    /// Emits a local step for a loop nest.
    /// Returns the source instead if the nest copies a value that has this layout.
    pub(crate) fn emit(&mut self, s: LoopNest, layout: Layout, pinned: bool) -> Slot {
        if let (Some(slot), true) = (s.copied_operand(), s.compute.elementwise().is_some()) {
            let from = &self.draft.slots[slot];
            if from.layout == layout
                && from.dtype == s.dtype.storage()
                && s.accesses[0].is_identity(&s.extents, &from.shape)
            {
                return slot;
            }
        }
        let out = self.draft.add_local(s, layout, &self.origin);
        if let Some(item) = self.draft.last_step() {
            item.info.constrained = pinned;
            item.info.per_device = self.manual.is_some();
        }
        out
    }

    /// Marks the last step as a collective that the user called.
    pub(crate) fn mark_user_collective(&mut self, kind: CollectiveKind, axes: &Axes) {
        if let Some(item) = self.draft.last_step() {
            item.info.user_collective = Some((kind, axes.clone()));
        }
    }

    /// Emits a step that is not local.
    pub(crate) fn push_step(&mut self, step: Step) -> Option<&mut DraftStep> {
        self.draft.steps.push(DraftStep::new(step, self.origin.clone()));
        self.draft.last_step()
    }

    /// Returns the value stored with these hidden dimensions, in this layout.
    pub(crate) fn store_as(
        &mut self,
        v: &LoweredValue,
        dtype: DType,
        hidden: &[Axis],
        layout: &Layout,
    ) -> Slot {
        let slot = match v {
            LoweredValue::Slot(slot, own) if own == hidden => *slot,
            LoweredValue::Slot(slot, own) => {
                let StoredValue { dtype, shape, .. } = self.draft.slots[*slot].clone();
                let inner = Shape::from(&shape[own.len()..]);
                let loops: Vec<_> = (0..inner.rank()).map(Some).collect();
                let s = draft::map_nest(Access::from_loops(0, dtype, &inner, &loops), &inner);
                let s = self.with_hidden_dims(s, std::slice::from_ref(v), hidden);
                return self.draft.add_local(s, layout.clone(), &self.origin);
            }
            LoweredValue::Lit(l) => {
                let s = constant_nest(*l, dtype, &self.axis_sizes(hidden));
                return self.draft.add_local(s, layout.clone(), &self.origin);
            }
        };
        self.draft.with_layout(slot, layout.clone(), &self.origin)
    }

    /// Returns the slot of a value.
    /// A literal becomes a stored scalar.
    pub(crate) fn as_slot(&mut self, v: &LoweredValue) -> Slot {
        match v {
            LoweredValue::Slot(slot, _) => *slot,
            LoweredValue::Lit(l) => {
                self.store_as(v, l.dtype, &[], &Layout { dims: Vec::new(), partial: None })
            }
        }
    }

    /// Returns the slot of a value, summed if it is partial.
    pub(crate) fn full_slot(&mut self, v: &LoweredValue) -> Slot {
        let slot = self.as_slot(v);
        let layout = Layout { partial: None, ..self.draft.slots[slot].layout.clone() };
        self.draft.with_layout(slot, layout, &self.origin)
    }

    /// Returns the layout of a variable, with its hidden dimensions first.
    pub(crate) fn layout_of(&self, info: &VarInfo, hidden: &[Axis]) -> Layout {
        let front = hidden.iter().map(|a| {
            let sub_axes = self.manual.as_ref().map(|m| m.sub_axes(*a)).unwrap_or_default();
            DimLayout::new(sub_axes.iter().map(|a| a.size).product(), sub_axes)
        });
        let mut partial = SubAxes::new();
        let placement = info.placement.as_ref();
        let dims = info.ty.shape.iter().enumerate().map(|(d, n)| {
            let sub_axes = placement.and_then(|p| p.dims.get(d)).cloned().unwrap_or_default();
            DimLayout::new(*n, sub_axes)
        });
        if let Some(p) = placement {
            partial.extend(p.partial.iter().copied());
        }
        if let Some(m) = &self.manual {
            for a in info.ty.spec.unreduced_axes().iter().filter(|a| m.axes.contains(*a)) {
                partial.extend(m.sub_axes(a));
            }
        }
        let partial = in_device_order(partial);
        Layout {
            dims: front.chain(dims).collect(),
            partial: (!partial.is_empty()).then_some((Reducer::Add, partial)),
        }
    }

    /// Returns the sizes of manual axes.
    pub(crate) fn axis_sizes(&self, axes: &[Axis]) -> Vec<usize> {
        axes.iter().map(|a| self.manual.as_ref().map_or(1, |m| m.mesh.extent(*a))).collect()
    }

    /// Returns manual axes in mesh order, without duplicates.
    pub(crate) fn in_order(&self, axes: impl IntoIterator<Item = Axis>) -> Vec<Axis> {
        let Some(m) = &self.manual else { return axes.into_iter().collect() };
        m.mesh.in_order(axes).iter().collect()
    }
}

/// Returns the loop nest whose result is a literal at all indices.
pub(crate) fn constant_nest(l: Literal, dtype: DType, extents: &[usize]) -> LoopNest {
    let part = AccessPiece {
        source: Source::Const(l.value),
        ranges: StridedRange::full_box(extents),
        map: Vec::new(),
    };
    let read = Access { dtype: l.dtype, pieces: vec![part], fill: l.value };
    let mut s = draft::map_nest(read, extents);
    s.dtype = dtype;
    s
}
