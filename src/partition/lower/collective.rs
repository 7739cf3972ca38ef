//! Lowers the collectives of manual mode to accesses and reductions over hidden dimensions.
//!
//! Hidden dimensions are the leading dimensions of a stored value that stand for mesh axes.

use crate::core::{Axes, Axis, DType, Error, Result, Shape, SubAxis};
use crate::ir::program::{
    Access, Equation, LoopNest, ManualCollective, Program, Reducer, ScalarArg, ScalarCode, ScalarOp, VarInfo,
};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::collective_read::{CollectiveRead, Digit, Members};
use crate::partition::lower::equations::{LoweredValue, Lowering};
use crate::partition::program::{Slot, Step};
use crate::partition::{collective::CollectiveKind, draft};

impl Lowering {
    /// Lowers a collective to an access or a reduction over hidden dimensions.
    pub(crate) fn lower_collective(
        &mut self,
        program: &Program,
        e: &Equation,
        c: &ManualCollective,
        operands: &[LoweredValue],
    ) -> Result<Vec<LoweredValue>> {
        // a variadic collective has one result per operand
        let mut outs = Vec::new();
        for (k, var) in e.outputs.iter().enumerate() {
            let info = &program.vars[var.index()];
            let v = operands.get(k).cloned();
            outs.push(self.lower_one_collective(info, c, v)?);
        }
        Ok(outs)
    }

    fn lower_one_collective(
        &mut self,
        info: &VarInfo,
        c: &ManualCollective,
        v: Option<LoweredValue>,
    ) -> Result<LoweredValue> {
        let (axes, kind) = match c {
            ManualCollective::AxisIndex { axes } => return Ok(self.axis_index(axes, info)),
            ManualCollective::Pcast { axes } => {
                return Ok(self.cast(axes, v.ok_or_else(|| self.no_operand())?, info));
            }
            ManualCollective::AllReduce { axes, .. } => (axes, CollectiveKind::AllReduce),
            ManualCollective::AllGather { axes, .. } => (axes, CollectiveKind::AllGather),
            ManualCollective::ReduceScatter { axes, .. } => (axes, CollectiveKind::ReduceScatter),
            ManualCollective::KeepShard { axes, .. } => (axes, CollectiveKind::ReduceScatter),
            ManualCollective::AllToAll { axes, .. } => (axes, CollectiveKind::AllToAll),
            ManualCollective::Permute { axes, .. } | ManualCollective::Broadcast { axes, .. } => {
                (axes, CollectiveKind::Permute)
            }
        };
        let v = v.ok_or_else(|| self.no_operand())?;
        Ok(self.lower_exchange(info, c, (axes, kind), &v))
    }

    /// Lowers a collective in which devices read each other's values.
    fn lower_exchange(
        &mut self,
        info: &VarInfo,
        c: &ManualCollective,
        (axes, kind): (&Axes, CollectiveKind),
        v: &LoweredValue,
    ) -> LoweredValue {
        let dtype = info.ty.dtype;
        let mut slot = self.as_slot(v);
        let own: &[Axis] = v.hidden();
        let from = self.draft.slots[slot].clone();
        let block: Shape = Shape::from(&from.shape[own.len()..]);
        // if the operand is unreduced over the axes, reading its sum is all that the collective
        // does
        let is_parted = self.is_partial_over(&from.layout, axes);
        let hidden = match c {
            ManualCollective::AllReduce { groups: None, .. }
            | ManualCollective::AllGather { groups: None, .. } => {
                self.in_order(own.iter().copied().filter(|a| !axes.contains(*a)))
            }
            _ => self.in_order(own.iter().copied().chain(axes.iter())),
        };
        let layout = self.layout_of(info, &hidden);
        let members = Members::new(c, axes, &self.axis_sizes(axes.as_slice()));
        let hidden_dims = self.with_sizes(hidden.iter().copied());
        if let (ManualCollective::AllReduce { reducer, groups: Some(_), .. }, Members::Digits(_)) =
            (c, &members)
        {
            let (dims, called) = (&hidden_dims[..], (kind, axes.clone()));
            let out = self.reduce_in_groups((slot, own), (members, *reducer), (dims, layout), called);
            return LoweredValue::Slot(out, hidden);
        }
        let listed = matches!(members, Members::Lists(..)).then(|| members.count());
        let mut r = CollectiveRead::new(&block, members, &hidden_dims);
        let folded = match c {
            ManualCollective::AllReduce { reducer: combine, .. } => {
                r.pass_all();
                (!is_parted).then_some(*combine)
            }
            ManualCollective::ReduceScatter { dim, tiled, .. }
            | ManualCollective::KeepShard { dim, tiled, .. } => {
                if is_parted {
                    slot = self.scatter_partials(slot, own.len() + dim);
                    self.mark_user_collective(kind, axes);
                }
                r.split_dim(*dim, *tiled);
                let sums = !is_parted && matches!(c, ManualCollective::ReduceScatter { .. });
                sums.then_some(Reducer::Add)
            }
            ManualCollective::AllGather { dim, tiled, .. } => {
                r.concat_dim(*dim, *tiled);
                None
            }
            ManualCollective::AllToAll { split, concat, tiled, .. } => {
                r.all_to_all(*split, *concat, *tiled);
                None
            }
            ManualCollective::Permute { pairs, .. } => {
                r.pass_all();
                let read = r.permuted_access(slot, dtype, own, pairs);
                return LoweredValue::Slot(self.emit_sent(read, &r, layout, (kind, axes)), hidden);
            }
            ManualCollective::Broadcast { source, .. } => {
                r.pass_all();
                let read = r.broadcast_access(slot, dtype, own, *source);
                return LoweredValue::Slot(self.emit_sent(read, &r, layout, (kind, axes)), hidden);
            }
            ManualCollective::AxisIndex { .. } | ManualCollective::Pcast { .. } => {
                unreachable!("these read one device's values only")
            }
        };
        if let Some(combine) = folded {
            r.reduce_members(combine, self.in_order(axes.iter()));
        }
        let (s, full) = r.into_nest(slot, dtype, own);
        let parted = s.extents[..s.rank].to_vec();
        let before = self.draft.steps.len();
        let out = self.emit_reshaped(s, &parted, &full, layout, slot);
        // each device reduces the values of its listed group by itself
        if let (Some(count), Some(_), Some(step)) = (listed, folded, self.draft.last_step())
            && let Step::Local { layout, .. } = &mut step.step
        {
            *layout = vec![DimLayout::new(count, [])];
        }
        if !matches!(c, ManualCollective::KeepShard { .. }) {
            for item in &mut self.draft.steps[before..] {
                item.info.user_collective = Some((kind, axes.clone()));
            }
        }
        LoweredValue::Slot(out, hidden)
    }
    /// Emits the step in which devices receive full blocks.
    fn emit_sent(
        &mut self,
        read: Access,
        r: &CollectiveRead,
        layout: Layout,
        (kind, axes): (CollectiveKind, &Axes),
    ) -> Slot {
        let out = self.emit(draft::map_nest(read, &r.loops.extents), layout, false);
        self.mark_user_collective(kind, axes);
        out
    }
    /// Lowers a reduction within groups whose devices differ in some digits of the axes.
    ///
    /// The values are reduced over these digits, and every device takes the result of its group.
    fn reduce_in_groups(
        &mut self,
        (slot, own): (Slot, &[Axis]),
        (members, reducer): (Members, Reducer),
        (hidden, layout): (&[(Axis, usize)], Layout),
        called: (CollectiveKind, Axes),
    ) -> Slot {
        let from = self.draft.slots[slot].clone();
        let block = Shape::from(&from.shape[own.len()..]);
        let order = self.in_order(called.1.iter());
        let all: Vec<Digit> = hidden.iter().flat_map(|(a, n)| members.digits_of(*a, *n)).collect();
        let kept: Vec<Digit> = all.iter().copied().filter(|d| !members.digits().contains(d)).collect();
        let mut r = CollectiveRead::over_digits(&block, members, kept.clone());
        r.pass_all();
        r.reduce_members(reducer, order);
        let (s, _) = r.into_nest(slot, from.dtype, own);
        let sub_axis = |d: &Digit| {
            let stride = self.manual.as_ref().map_or(1, |m| m.mesh.stride_of(d.axis)) * d.stride;
            DimLayout::new(d.size, (d.size > 1).then_some(SubAxis { stride, size: d.size }))
        };
        let inner = layout.dims[hidden.len()..].iter().cloned();
        let dims: Vec<DimLayout> = kept.iter().map(sub_axis).chain(inner).collect();
        let reduced = self.emit(s, Layout { dims, partial: layout.partial.clone() }, false);
        self.mark_user_collective(called.0, &called.1);

        let parted: Vec<usize> = all.iter().map(|d| d.size).chain(block.iter().copied()).collect();
        let full: Vec<usize> = hidden.iter().map(|h| h.1).chain(block.iter().copied()).collect();
        let at = |d: &Digit| all.iter().position(|b| b == d);
        let loops: Vec<Option<usize>> =
            kept.iter().map(at).chain((all.len()..parted.len()).map(Some)).collect();
        let read = Access::from_loops(reduced, from.dtype, &parted, &loops);
        let s = draft::map_nest(read, &parted);
        self.emit_reshaped(s, &parted, &full, layout, reduced)
    }
    fn no_operand(&self) -> Error {
        Error::internal(format!("{} has no operand", self.origin.op))
    }
    /// Returns true if a value of this layout is unreduced over some of these manual axes.
    fn is_partial_over(&self, layout: &Layout, axes: &Axes) -> bool {
        let partials = layout.partial.as_ref().map_or(&[][..], |p| &p.1[..]);
        axes.iter().any(|a| {
            let sub_axes = self.manual.as_ref().map(|m| m.sub_axes(a)).unwrap_or_default();
            sub_axes.iter().any(|x| partials.iter().any(|y| x.overlaps(*y)))
        })
    }
    /// Returns the sum of the partial values of `slot`, split along dimension `dim`, so that each
    /// device holds exactly the elements that it keeps.
    fn scatter_partials(&mut self, slot: Slot, dim: usize) -> Slot {
        let from = &self.draft.slots[slot];
        let partials = from.layout.partial.as_ref().map_or(&[][..], |p| &p.1[..]);
        let l = &from.layout.dims[dim];
        let split = DimLayout::new(from.shape[dim], l.sub_axes.iter().chain(partials).copied());
        let mut layout = Layout { partial: None, ..from.layout.clone() };
        layout.dims[dim] = split;
        self.draft.with_layout(slot, layout, &self.origin)
    }
    /// Returns the axes in mesh order, with their sizes.
    fn with_sizes(&self, axes: impl IntoIterator<Item = Axis>) -> Vec<(Axis, usize)> {
        self.in_order(axes).into_iter().map(|a| (a, self.axis_sizes(&[a])[0])).collect()
    }

    fn axis_index(&mut self, axes: &Axes, info: &VarInfo) -> LoweredValue {
        let hidden = self.in_order(axes.iter());
        let extents = self.axis_sizes(&hidden);
        let (mut code, mut sum, mut step) = (ScalarCode { insts: Vec::new() }, None, 1i64);
        for a in axes.iter().rev() {
            let at = ScalarArg::Index(hidden.iter().position(|b| *b == a).unwrap_or(0));
            let i64s = DType::I64;
            let term = if step == 1 {
                at
            } else {
                code.push(ScalarOp::Mul, i64s, i64s, &[at, ScalarArg::Const(step.into())])
            };
            sum = Some(sum.map_or(term, |s| code.push(ScalarOp::Add, i64s, i64s, &[s, term])));
            step *= self.axis_sizes(&[a])[0] as i64;
        }
        let sum = sum.unwrap_or(ScalarArg::Const(0.into()));
        code.push(ScalarOp::Convert, DType::I64, info.ty.dtype, &[sum]);
        let s = LoopNest::map(extents, info.ty.dtype, Vec::new(), code);
        let layout = self.layout_of(info, &hidden);
        LoweredValue::Slot(self.emit(s, layout, false), hidden)
    }

    /// Lowers a cast.
    /// From varying to unreduced, each device's value becomes a partial value; other casts only
    /// change the type.
    fn cast(&mut self, axes: &[Axis], v: LoweredValue, info: &VarInfo) -> LoweredValue {
        let unreduced: Vec<Axis> =
            axes.iter().copied().filter(|a| info.ty.spec.unreduced_axes().contains(*a)).collect();
        if unreduced.is_empty() {
            return v;
        }
        let slot = self.as_slot(&v);
        let own = v.hidden().to_vec();
        let hidden: Vec<Axis> = own.iter().copied().filter(|a| !unreduced.contains(a)).collect();
        let layout = self.layout_of(info, &hidden);
        let block = Shape::from(&self.draft.slots[slot].shape[own.len()..]);
        let members = Members::all(&self.with_sizes(unreduced));
        let mut r = CollectiveRead::new(&block, members, &self.with_sizes(hidden.iter().copied()));
        r.pass_all();
        r.reduce_members(Reducer::Add, self.in_order(axes.iter().copied()));
        let (s, _) = r.into_nest(slot, info.ty.dtype, &own);
        LoweredValue::Slot(self.emit(s, layout, false), hidden)
    }
}
