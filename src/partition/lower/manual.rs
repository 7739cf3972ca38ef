//! Lowers manual mode, the body of a `shard_map`.
//!
//! A value has a hidden leading dimension for each mesh axis it varies over. Values are cut into
//! blocks where they enter the region, and joined where they leave it.

use crate::core::{Axes, Axis, DType, Result, Scalar, Spec, SubAxes, SubAxis};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, Equation, LoopNest, Program, Reducer, ScalarCode, ShardMapping,
    Source, StridedRange, VarInfo,
};
use crate::partition::draft;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::{LoweredValue, Lowering, ManualAxes};
use crate::partition::program::Slot;

/// Loops of a loop nest under construction.
pub(crate) struct LoopList {
    /// The size of each loop.
    pub(crate) extents: Vec<usize>,
    /// The number of loops that are dimensions of the result.
    pub(crate) rank: usize,
}

impl LoopList {
    /// Appends a loop and returns its index.
    pub(crate) fn add(&mut self, n: usize) -> usize {
        self.extents.push(n);
        self.extents.len() - 1
    }
}

/// The loops that join the blocks of devices to a global value.
struct JoinLoops {
    /// The loops over the result.
    loops: LoopList,
    /// The loop over each manual axis.
    at: Vec<(Axis, usize)>,
    /// The loop over each dimension of a block.
    dims: Vec<usize>,
    /// The shape of the global value, after hidden dimensions that remain.
    full: Vec<usize>,
}

impl Lowering {
    /// Lowers a `shard_map`: cuts the inputs into blocks, lowers the body, joins the results.
    pub(crate) fn lower_shard_map(
        &mut self,
        program: &Program,
        e: &Equation,
        m: &ShardMapping,
        operands: &[LoweredValue],
    ) -> Result<Vec<LoweredValue>> {
        let outer = self.manual.clone();
        let axes = m.mesh.in_order(m.axes.iter().chain(outer.iter().flat_map(|o| &o.axes)));
        self.manual = Some(ManualAxes { mesh: m.mesh.clone(), axes });
        let mut ins = Vec::new();
        for ((v, spec), var) in operands.iter().zip(&m.in_specs).zip(&m.body.inputs) {
            ins.push(self.cut_blocks(v, *spec, &m.axes, &m.body.vars[var.index()])?);
        }
        let outs = self.run(&m.body, ins)?;
        let mut joined = Vec::new();
        for (k, ((v, spec), var)) in outs.iter().zip(&m.out_specs).zip(&e.outputs).enumerate() {
            let dtype = m.body.input_type(&m.body.outputs[k]).dtype;
            let info = &program.vars[var.index()];
            joined.push(self.join_blocks(v, dtype, *spec, &m.axes, info, outer.as_ref())?);
        }
        self.manual = outer;
        Ok(joined)
    }

    /// Cuts a global value over the manual axes in `spec`, which become hidden dimensions.
    fn cut_blocks(
        &mut self,
        v: &LoweredValue,
        spec: Spec,
        axes: &Axes,
        info: &VarInfo,
    ) -> Result<LoweredValue> {
        let LoweredValue::Slot(slot, own) = v else { return Ok(v.clone()) };
        let named = spec.dims().iter().flat_map(Axes::iter).filter(|a| axes.contains(*a));
        let hidden = self.in_order(named.chain(own.iter().copied()));
        if hidden.len() == own.len() {
            return Ok(v.clone());
        }
        let from = self.draft.slots[*slot].clone();
        let layout = self.layout_of(info, &hidden);
        let sizes = self.axis_sizes(&hidden);
        let extents: Vec<usize> = sizes.iter().copied().chain(info.ty.shape.iter().copied()).collect();
        let at = |a: &Axis| hidden.iter().position(|b| a == b).unwrap_or(0);
        // only the leading dimension is cut, by axes in mesh order, so linear offsets do not change
        let lead: Vec<Axis> = spec.dim(0).iter().copied().filter(|a| axes.contains(*a)).collect();
        if own.is_empty() && lead == hidden {
            let s = draft::reshape_nest(*slot, from.dtype, &from.shape, &extents);
            return Ok(LoweredValue::Slot(self.emit(s, layout, false), hidden));
        }
        let mut map: Vec<AffineExpr> = own.iter().map(|a| AffineExpr::linear(0, at(a), 1)).collect();
        for (d, n) in info.ty.shape.iter().enumerate() {
            let mut m = AffineExpr::linear(0, hidden.len() + d, 1);
            let mut block = *n as i64;
            for a in spec.dim(d).iter().rev().filter(|a| axes.contains(**a)) {
                m.terms.push((at(a), block));
                block *= sizes[at(a)] as i64;
            }
            map.push(m);
        }
        let part =
            AccessPiece { source: Source::Value(*slot), ranges: StridedRange::full_box(&extents), map };
        let read = Access { dtype: info.ty.dtype, pieces: vec![part], fill: Scalar::zero(info.ty.dtype) };
        Ok(LoweredValue::Slot(self.emit(draft::map_nest(read, &extents), layout, false), hidden))
    }

    /// Joins blocks along the manual axes in `spec` to a global value.
    fn join_blocks(
        &mut self,
        v: &LoweredValue,
        dtype: DType,
        spec: Spec,
        axes: &Axes,
        info: &VarInfo,
        outer: Option<&ManualAxes>,
    ) -> Result<LoweredValue> {
        let named: Vec<Axis> =
            spec.dims().iter().flat_map(Axes::iter).filter(|a| axes.contains(*a)).collect();
        let (slot, own) = match v {
            LoweredValue::Lit(_) if named.is_empty() && spec.unreduced_axes().is_empty() => {
                return Ok(v.clone());
            }
            LoweredValue::Lit(_) => (self.as_slot(v), Vec::new()),
            LoweredValue::Slot(slot, own) => (*slot, own.clone()),
        };
        let kept: Vec<Axis> =
            own.iter().copied().filter(|a| outer.is_some_and(|o| o.axes.contains(*a))).collect();
        let from = self.draft.slots[slot].clone();
        let block = &from.shape[own.len()..];
        let JoinLoops { mut loops, mut at, dims, full } = self.join_loops(block, &kept, spec, axes);
        // unreduced results: the devices' values become the partial values
        let unreduced: Vec<Axis> = spec.unreduced_axes().iter().filter(|a| axes.contains(*a)).collect();
        let mut summed = Vec::new();
        let already = from.layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
        for a in unreduced {
            let sub_axes = self.manual.as_ref().map(|m| m.sub_axes(a)).unwrap_or_default();
            if sub_axes.iter().any(|x| already.iter().any(|y| x.overlaps(*y))) {
                continue;
            }
            let n = self.axis_sizes(&[a])[0];
            at.push((a, loops.add(n)));
            summed.push(a);
        }
        // a value that varies over an axis missing from the spec is declared equal along it: each
        // device uses its own copy
        let mut same = false;
        if summed.is_empty() && already.is_empty() {
            let unnamed = |a: &&Axis| !at.iter().any(|x| x.0 == **a);
            let unnamed: Vec<Axis> = own.iter().filter(unnamed).copied().collect();
            same = !unnamed.is_empty();
            at.extend(unnamed.into_iter().map(|a| (a, loops.add(self.axis_sizes(&[a])[0]))));
        }
        let position = |a: &Axis| match at.iter().find(|x| x.0 == *a) {
            Some(x) => AffineExpr::linear(0, x.1, 1),
            // the type says varying, but the value is equal on all devices
            None => AffineExpr::constant(0),
        };
        let map = own.iter().map(position).chain(dims.iter().map(|l| AffineExpr::linear(0, *l, 1))).collect();
        let part =
            AccessPiece { source: Source::Value(slot), ranges: StridedRange::full_box(&loops.extents), map };
        let read = Access { dtype, pieces: vec![part], fill: Scalar::zero(dtype) };
        let manual = std::mem::replace(&mut self.manual, outer.cloned());
        let layout = self.layout_of(info, &kept);
        self.manual = manual;
        let parted = loops.extents[..loops.rank].to_vec();
        let code = ScalarCode::copy(dtype);
        let body = match (same, summed.is_empty()) {
            (true, _) => Compute::Reduce { reducer: Reducer::AssumeEqual, code },
            (false, true) => Compute::Map(code),
            (false, false) => Compute::Reduce { reducer: Reducer::Add, code },
        };
        let s =
            LoopNest { extents: loops.extents, rank: loops.rank, dtype, accesses: vec![read], compute: body };
        let slot = self.emit_reshaped(s, &parted, &full, layout, slot);
        Ok(LoweredValue::Slot(slot, kept))
    }

    /// Returns the loops that join blocks along the manual axes in `spec`: hidden dimensions that
    /// remain, then for each dimension the axes that it is joined over, and its block.
    fn join_loops(&self, block: &[usize], kept: &[Axis], spec: Spec, axes: &Axes) -> JoinLoops {
        let mut loops = LoopList { extents: Vec::new(), rank: 0 };
        let mut full = self.axis_sizes(kept);
        let mut at: Vec<(Axis, usize)> = kept.iter().zip(&full).map(|(a, n)| (*a, loops.add(*n))).collect();
        let mut dims = Vec::new();
        for (d, n) in block.iter().enumerate() {
            let mut size = *n;
            for a in spec.dim(d).iter().filter(|a| axes.contains(**a)) {
                let n = self.axis_sizes(&[*a])[0];
                at.push((*a, loops.add(n)));
                size *= n;
            }
            dims.push(loops.add(*n));
            full.push(size);
        }
        loops.rank = loops.extents.len();
        JoinLoops { loops, at, dims, full }
    }

    /// Emits a loop nest with a result of shape `parted`, and reshapes it to `whole`.
    ///
    /// If the nest only renames linear offsets of `from`, no step is emitted for it.
    pub(crate) fn emit_reshaped(
        &mut self,
        s: LoopNest,
        parted: &[usize],
        full: &[usize],
        layout: Layout,
        from: Slot,
    ) -> Slot {
        if parted == full {
            return self.emit(s, layout, false);
        }
        let source = self.draft.slots[from].clone();
        let mid = if s.compute.elementwise().is_some() && reads_in_linear_order(&s, &source.shape) {
            from
        } else {
            let mid = split_layout(&layout, full, parted);
            self.emit(s, mid, false)
        };
        let mid_shape = self.draft.slots[mid].shape.clone();
        let s = draft::reshape_nest(mid, source.dtype, &mid_shape, full);
        self.emit(s, layout, false)
    }
}

/// Returns true if a copying loop nest reads all of a value of this shape in linear order.
fn reads_in_linear_order(s: &LoopNest, shape: &[usize]) -> bool {
    let [part] = &s.accesses[0].pieces[..] else { return false };
    let mut expected = 0;
    let plain = part.map.iter().zip(shape).all(|(m, n)| {
        if *n == 1 {
            return m.constant == 0;
        }
        let [(l, 1)] = m.terms[..] else { return false };
        while s.extents.get(expected) == Some(&1) && l != expected {
            expected += 1;
        }
        expected += 1;
        m.constant == 0 && l + 1 == expected && s.extents[l] == *n
    });
    plain && s.extents.iter().product::<usize>() == shape.iter().product::<usize>()
}

/// Returns the layout of a value after some of its dimensions were split into pieces.
/// Major pieces take sub-axes first.
fn split_layout(layout: &Layout, full: &[usize], parted: &[usize]) -> Layout {
    let mut dims = Vec::new();
    let mut k = 0;
    for (l, n) in layout.dims.iter().zip(full) {
        let mut sub_axes = l.sub_axes.iter().copied().collect::<std::collections::VecDeque<_>>();
        let mut left = *n;
        while let Some(size) = parted.get(k).copied() {
            let mut remaining = size;
            let mut here = SubAxes::new();
            while let Some(a) = sub_axes.front().copied() {
                if remaining.is_multiple_of(a.size) {
                    remaining /= a.size;
                    here.push(a);
                    sub_axes.pop_front();
                } else if a.size.is_multiple_of(remaining) && remaining > 1 {
                    // the major part of the sub-axis fills this piece
                    let low = a.size / remaining;
                    here.push(SubAxis { stride: a.stride * low, size: remaining });
                    sub_axes[0] = SubAxis { stride: a.stride, size: low };
                    remaining = 1;
                } else {
                    break;
                }
            }
            dims.push(DimLayout::new(size, here));
            k += 1;
            left /= size.max(1);
            if left <= 1 || size == 0 {
                break;
            }
        }
    }
    for size in &parted[k.min(parted.len())..] {
        dims.push(DimLayout::new(*size, []));
    }
    Layout { dims, partial: layout.partial.clone() }
}
