//! Lowers the collectives of manual mode to accesses and reductions over hidden dimensions.
//!
//! Hidden dimensions are the leading dimensions of a stored value that stand for mesh axes.

use crate::core::{Axes, Axis, DType, Error, Result, Scalar, Shape, util::small_sort};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, Equation, LoopNest, ManualCollective, Program, Reducer,
    ScalarArg, ScalarCode, ScalarOp, Source, StridedRange, VarInfo,
};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::{LoweredValue, Lowering};
use crate::partition::program::Slot;
use crate::partition::{collective::CollectiveKind, draft, lower::manual::LoopList};

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
            ManualCollective::Permute { axes, .. } => (axes, CollectiveKind::Permute),
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
            ManualCollective::AllReduce { .. } | ManualCollective::AllGather { .. } => {
                self.in_order(own.iter().copied().filter(|a| !axes.contains(*a)))
            }
            _ => self.in_order(own.iter().copied().chain(axes.iter())),
        };
        let layout = self.layout_of(info, &hidden);
        let along: Vec<(Axis, usize)> = axes.iter().map(|a| (a, self.axis_sizes(&[a])[0])).collect();
        let mut r = CollectiveRead::new(&block, along, &hidden, self.axis_sizes(&hidden));
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
                let s = draft::map_nest(read, &r.loops.extents);
                let out = self.emit(s, layout, false);
                self.mark_user_collective(kind, axes);
                return LoweredValue::Slot(out, hidden);
            }
            ManualCollective::AxisIndex { .. } | ManualCollective::Pcast { .. } => {
                unreachable!("these read one device's values only")
            }
        };
        let folded = folded.map(|combine| (combine, self.with_sizes(axes.iter())));
        let (s, full) = r.into_nest(slot, dtype, own, folded);
        let parted = s.extents[..s.rank].to_vec();
        let before = self.draft.steps.len();
        let out = self.emit_reshaped(s, &parted, &full, layout, slot);
        if !matches!(c, ManualCollective::KeepShard { .. }) {
            for item in &mut self.draft.steps[before..] {
                item.info.user_collective = Some((kind, axes.clone()));
            }
        }
        LoweredValue::Slot(out, hidden)
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
        let mut r = CollectiveRead::new(&block, Vec::new(), &hidden, self.axis_sizes(&hidden));
        r.pass_all();
        let folded = (Reducer::Add, self.with_sizes(unreduced));
        let (s, _) = r.into_nest(slot, info.ty.dtype, &own, Some(folded));
        LoweredValue::Slot(self.emit(s, layout, false), hidden)
    }
}

/// The access of a collective under construction.
/// It consists of the loops of the result, and the index of each operand dimension.
struct CollectiveRead<'a> {
    /// The operand's dimensions without the hidden ones.
    block: &'a Shape,
    /// The axes of the participating devices, with their sizes, major first.
    meeting_axes: Vec<(Axis, usize)>,
    /// The loop of each hidden dimension of the result.
    result_loops: Vec<(Axis, usize)>,
    /// The loop at which each hidden dimension of the operand is read.
    /// Others are read at index 0.
    operand_loops: Vec<(Axis, usize)>,
    /// The loops.
    /// First come the hidden dimensions of the result, then its dimensions (in pieces if several
    /// loops form one), then the reduced axes.
    loops: LoopList,
    /// The shape of the result.
    result_shape: Vec<usize>,
    /// The index expression of each block dimension.
    map: Vec<AffineExpr>,
}

fn loop_of(loops: &[(Axis, usize)], axis: Axis) -> Option<usize> {
    loops.iter().find(|x| x.0 == axis).map(|x| x.1)
}

impl<'a> CollectiveRead<'a> {
    fn new(
        block: &'a Shape,
        meeting_axes: Vec<(Axis, usize)>,
        hidden: &[Axis],
        sizes: Vec<usize>,
    ) -> CollectiveRead<'a> {
        let result_loops: Vec<(Axis, usize)> = hidden.iter().enumerate().map(|(l, a)| (*a, l)).collect();
        let operand_loops =
            result_loops.iter().copied().filter(|x| meeting_axes.iter().all(|a| a.0 != x.0)).collect();
        let (result_shape, loops) = (sizes.clone(), LoopList { extents: sizes, rank: 0 });
        CollectiveRead {
            block,
            meeting_axes,
            result_loops,
            operand_loops,
            loops,
            result_shape,
            map: Vec::new(),
        }
    }
    /// Returns the number of participating devices.
    fn num_devices(&self) -> usize {
        self.meeting_axes.iter().map(|a| a.1).product()
    }
    /// Adds a dimension that the operand's block and the result share.
    fn pass_dim(&mut self, n: usize) {
        self.map.push(AffineExpr::linear(0, self.loops.add(n), 1));
        self.result_shape.push(n);
    }
    fn pass_all(&mut self) {
        for n in self.block.iter() {
            self.pass_dim(*n);
        }
    }
    /// Adds loops over the participating devices.
    fn add_device_loops(&mut self) {
        for (axis, n) in &self.meeting_axes {
            self.operand_loops.push((*axis, self.loops.add(*n)));
        }
    }
    /// Returns index `m` within the device's own piece as an index of the dimension.
    /// Pieces have length `step`.
    fn own_block_index(&self, mut m: AffineExpr, mut step: i64) -> AffineExpr {
        for (axis, n) in self.meeting_axes.iter().rev() {
            m.terms.push((loop_of(&self.result_loops, *axis).unwrap_or(0), step));
            step *= *n as i64;
        }
        m
    }
    /// Adds all dimensions.
    /// Each device reads its own piece of `dim`.
    fn split_dim(&mut self, dim: usize, tiled: bool) {
        for (d, &n) in self.block.iter().enumerate() {
            if d != dim {
                self.pass_dim(n);
            } else if tiled {
                let n = n / self.num_devices();
                let within = AffineExpr::linear(0, self.loops.add(n), 1);
                self.result_shape.push(n);
                self.map.push(self.own_block_index(within, n as i64));
            } else {
                self.map.push(self.own_block_index(AffineExpr::constant(0), 1));
            }
        }
    }
    /// Adds all dimensions, with the devices' blocks concatenated along `dim`.
    fn concat_dim(&mut self, dim: usize, tiled: bool) {
        for d in 0..=self.block.rank() {
            if d == dim {
                self.add_device_loops();
                if !tiled {
                    self.result_shape.push(self.num_devices());
                }
            }
            let Some(&n) = self.block.get(d) else { break };
            self.map.push(AffineExpr::linear(0, self.loops.add(n), 1));
            self.result_shape.push(if tiled && d == dim { n * self.num_devices() } else { n });
        }
    }
    /// Adds all dimensions of an all-to-all.
    /// Each device reads its piece of `split` from all devices, concatenated along `concat`.
    fn all_to_all(&mut self, split: usize, concat: usize, tiled: bool) {
        // the result's dimensions before concatenation: those of the operand, without `split` if it
        // is removed
        let mut at: Vec<Option<usize>> = vec![None; self.block.rank()];
        let rest: Vec<usize> = (0..self.block.rank()).filter(|d| tiled || *d != split).collect();
        for i in 0..=rest.len() {
            if i == concat {
                self.add_device_loops();
                if !tiled {
                    self.result_shape.push(self.num_devices());
                }
            }
            let Some(&d) = rest.get(i) else { break };
            let n = if tiled && d == split { self.block[d] / self.num_devices() } else { self.block[d] };
            at[d] = Some(self.loops.add(n));
            self.result_shape.push(if tiled && i == concat { n * self.num_devices() } else { n });
        }
        for (d, l) in at.iter().enumerate() {
            let within = l.map_or(AffineExpr::constant(0), |l| AffineExpr::linear(0, l, 1));
            let length = l.map_or(1, |l| self.loops.extents[l] as i64);
            self.map.push(if d == split { self.own_block_index(within, length) } else { within });
        }
    }
    /// Returns the loop nest, reduced over the given axes if any, and the shape of the result.
    fn into_nest(
        mut self,
        slot: Slot,
        dtype: DType,
        own: &[Axis],
        folded: Option<(Reducer, Vec<(Axis, usize)>)>,
    ) -> (LoopNest, Vec<usize>) {
        let rank = self.loops.extents.len();
        let code = ScalarCode::copy(dtype);
        let body = match folded {
            None => Compute::Map(code),
            Some((combine, axes)) => {
                for (axis, n) in axes {
                    self.operand_loops.push((axis, self.loops.add(n)));
                }
                Compute::Reduce { reducer: combine, code }
            }
        };
        let at = |a: &Axis| {
            loop_of(&self.operand_loops, *a).map_or(AffineExpr::constant(0), |l| AffineExpr::linear(0, l, 1))
        };
        let map = own.iter().map(at).chain(self.map).collect();
        let extents = self.loops.extents;
        let part = AccessPiece { source: Source::Value(slot), ranges: StridedRange::full_box(&extents), map };
        let reads = vec![Access { dtype, pieces: vec![part], fill: Scalar::zero(dtype) }];
        (LoopNest { extents, rank, dtype, accesses: reads, compute: body }, self.result_shape)
    }
    /// Returns the access of a permutation.
    /// It has one piece for each run of pairs with a constant difference.
    fn permuted_access(&self, slot: Slot, dtype: DType, own: &[Axis], pairs: &[(usize, usize)]) -> Access {
        let digits = |mut p: usize| {
            let mut d: Vec<usize> = self.meeting_axes.iter().rev().map(|(_, n)| (p % n, p /= n).0).collect();
            d.reverse();
            d
        };
        let minor = self.meeting_axes.last().map_or(1, |s| s.1);
        let mut pairs = pairs.to_vec();
        small_sort::sort_by_key(&mut pairs, |p| p.1);
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        for (s, t) in pairs {
            match runs.last_mut() {
                Some(r) if (r.0 + r.2, r.1 + r.2) == (s, t) && s % minor != 0 && t % minor != 0 => r.2 += 1,
                _ => runs.push((s, t, 1)),
            }
        }
        let part = |(source, target, n): (usize, usize, usize)| {
            let (s, t) = (digits(source), digits(target));
            let mut span = StridedRange::full_box(&self.loops.extents);
            let mut front: Vec<AffineExpr> = own
                .iter()
                .map(|a| {
                    loop_of(&self.result_loops, *a)
                        .map_or(AffineExpr::constant(0), |l| AffineExpr::linear(0, l, 1))
                })
                .collect();
            for (i, (a, _)) in self.meeting_axes.iter().enumerate() {
                let Some(l) = loop_of(&self.result_loops, *a) else { continue };
                let n = if i + 1 == self.meeting_axes.len() { n as i64 } else { 1 };
                span[l] = StridedRange { lo: t[i] as i64, hi: t[i] as i64 + n, step: 1 };
                if let Some(d) = own.iter().position(|b| b == a) {
                    front[d] = if n == 1 {
                        AffineExpr::constant(s[i] as i64)
                    } else {
                        AffineExpr::linear(s[i] as i64, l, 1)
                    };
                }
            }
            let map = front.into_iter().chain(self.map.iter().cloned()).collect();
            AccessPiece { source: Source::Value(slot), ranges: span, map }
        };
        Access { dtype, pieces: runs.into_iter().map(part).collect(), fill: Scalar::zero(dtype) }
    }
}
