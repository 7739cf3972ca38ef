//! Manual mode: per-device values as stored values with a leading dimension for each axis that they vary over, and collectives as
//! reads and folds over these dimensions.

use super::draft;
use super::lower::{Lower, Val};
use super::{DimLayout, Kind, Layout, Slot, Why};
use crate::diagnostic::{Error, Result};
use crate::mesh::{Axes, Axis, Mesh};
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Fun, Part, Read, Sentence, Source, Span};
use crate::program::{Collective, Equation, Program, ShardMapping, VarInfo};
use crate::sharding::Spec;
use crate::sharding::atoms::{Atoms, of_axes};
use crate::types::{DType, Scalar, Shape};

/// The manual axes around what is lowered.
#[derive(Clone, Debug)]
pub(super) struct Manual {
    pub(super) mesh: Mesh,
    pub(super) axes: Axes,
}

impl Manual {
    /// The digits of an axis.
    pub(super) fn atoms(&self, axis: Axis) -> Atoms {
        of_axes(&self.mesh, [axis])
    }
}

/// An index of a value with its hidden dimensions as named loops: what a collective's read is written with.
struct Loops {
    extents: Vec<usize>,
    rank: usize,
}

impl Loops {
    fn add(&mut self, n: usize) -> usize {
        self.extents.push(n);
        self.extents.len() - 1
    }
}

impl Lower {
    /// Per-device code: inputs cut into blocks, the body, results put together.
    pub(super) fn shard_map(
        &mut self,
        program: &Program,
        e: &Equation,
        m: &ShardMapping,
        operands: &[Val],
    ) -> Result<Vec<Val>> {
        let why = Why { place: e.place, op: "shard_map".into() };
        let mut axes: Vec<Axis> = m.axes.iter().collect();
        let outer = self.manual.clone();
        if let Some(o) = &outer {
            axes.extend(o.axes.iter().filter(|a| !m.axes.contains(*a)));
        }
        axes.sort_by_key(|a| m.mesh.find(*a));
        self.manual = Some(Manual { mesh: m.mesh.clone(), axes: axes.into() });
        let mut ins = Vec::new();
        for ((v, spec), var) in operands.iter().zip(&m.in_specs).zip(&m.body.inputs) {
            ins.push(self.cut(v, *spec, &m.axes, &m.body.vars[var.index()], &why)?);
        }
        let outs = self.run(&m.body, ins)?;
        let mut joined = Vec::new();
        for (k, ((v, spec), var)) in outs.iter().zip(&m.out_specs).zip(&e.outputs).enumerate() {
            let dtype = m.body.input_type(&m.body.outputs[k]).dtype;
            let info = &program.vars[var.index()];
            joined.push(self.join(v, dtype, *spec, &m.axes, info, outer.as_ref(), &why)?);
        }
        self.manual = outer;
        Ok(joined)
    }

    /// A global value cut over the manual axes that `spec` names: hidden dimensions in front.
    fn cut(&mut self, v: &Val, spec: Spec, axes: &Axes, info: &VarInfo, why: &Why) -> Result<Val> {
        let Val::Slot(slot, own) = v else { return Ok(v.clone()) };
        let named = spec.dims().iter().flat_map(Axes::iter).filter(|a| axes.contains(*a));
        let hidden = self.in_order(named.chain(own.iter().copied()));
        if hidden.len() == own.len() {
            return Ok(v.clone());
        }
        let from = self.draft.slots[*slot].clone();
        let layout = self.layout(info, &hidden);
        let sizes = self.sizes(&hidden);
        let extents: Vec<usize> = sizes.iter().copied().chain(info.ty.shape.iter().copied()).collect();
        let at = |a: &Axis| hidden.iter().position(|b| a == b).unwrap_or(0);
        // only the leading dimension is cut, by axes in mesh order: the same linear order
        let lead: Vec<Axis> = spec.dim(0).iter().copied().filter(|a| axes.contains(*a)).collect();
        if own.is_empty() && lead == hidden {
            let s = draft::reshape(*slot, from.dtype, &from.shape, &extents);
            return Ok(Val::Slot(self.emit(s, layout, why, false), hidden));
        }
        let mut map: Vec<Affine> = own.iter().map(|a| Affine::of(0, at(a), 1)).collect();
        for (d, n) in info.ty.shape.iter().enumerate() {
            let mut m = Affine::of(0, hidden.len() + d, 1);
            let mut block = *n as i64;
            for a in spec.dim(d).iter().rev().filter(|a| axes.contains(**a)) {
                m.terms.push((at(a), block));
                block *= sizes[at(a)] as i64;
            }
            map.push(m);
        }
        let part = Part { from: Source::Value(*slot), span: Span::whole(&extents), map };
        let read = Read { dtype: info.ty.dtype, parts: vec![part], fill: Scalar::zero(info.ty.dtype) };
        Ok(Val::Slot(self.emit(draft::mapped(read, &extents), layout, why, false), hidden))
    }

    /// Blocks put together along the manual axes that `spec` names: a global value.
    #[expect(clippy::too_many_arguments, reason = "a boundary has two sides")]
    fn join(
        &mut self,
        v: &Val,
        dtype: DType,
        spec: Spec,
        axes: &Axes,
        info: &VarInfo,
        outer: Option<&Manual>,
        why: &Why,
    ) -> Result<Val> {
        let named: Vec<Axis> =
            spec.dims().iter().flat_map(Axes::iter).filter(|a| axes.contains(*a)).collect();
        let (slot, own) = match v {
            Val::Lit(_) if named.is_empty() && spec.unreduced_axes().is_empty() => return Ok(v.clone()),
            Val::Lit(_) => (self.as_slot(v, why), Vec::new()),
            Val::Slot(slot, own) => (*slot, own.clone()),
        };
        let kept: Vec<Axis> =
            own.iter().copied().filter(|a| outer.is_some_and(|o| o.axes.contains(*a))).collect();
        let from = self.draft.slots[slot].clone();
        let block = &from.shape[own.len()..];
        // loops: kept hidden dimensions, then for each dimension the axes that it is put together over and its block
        let mut loops = Loops { extents: Vec::new(), rank: 0 };
        let mut at: Vec<(Axis, usize)> = Vec::new();
        for a in &kept {
            let n = self.sizes(&[*a])[0];
            at.push((*a, loops.add(n)));
        }
        let mut dims = Vec::new();
        let mut whole: Vec<usize> = self.sizes(&kept);
        for (d, n) in block.iter().enumerate() {
            let mut size = *n;
            for a in spec.dim(d).iter().filter(|a| axes.contains(**a)) {
                let n = self.sizes(&[*a])[0];
                at.push((*a, loops.add(n)));
                size *= n;
            }
            dims.push(loops.add(*n));
            whole.push(size);
        }
        loops.rank = loops.extents.len();
        // unreduced results: the devices' values are the parts
        let unreduced: Vec<Axis> = spec.unreduced_axes().iter().filter(|a| axes.contains(*a)).collect();
        let mut summed = Vec::new();
        let already = from.layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
        for a in unreduced {
            let atoms = self.manual.as_ref().map(|m| m.atoms(a)).unwrap_or_default();
            if atoms.iter().any(|x| already.iter().any(|y| x.clashes(*y))) {
                continue;
            }
            let n = self.sizes(&[a])[0];
            at.push((a, loops.add(n)));
            summed.push(a);
        }
        let position = |a: &Axis| match at.iter().find(|x| x.0 == *a) {
            Some(x) => Affine::of(0, x.1, 1),
            // a value that is the same on all devices, whatever its type says
            None => Affine::constant(0),
        };
        let map = own.iter().map(position).chain(dims.iter().map(|l| Affine::of(0, *l, 1))).collect();
        let part = Part { from: Source::Value(slot), span: Span::whole(&loops.extents), map };
        let read = Read { dtype, parts: vec![part], fill: Scalar::zero(dtype) };
        let manual = std::mem::replace(&mut self.manual, outer.cloned());
        let layout = self.layout(info, &kept);
        self.manual = manual;
        let parted = loops.extents[..loops.rank].to_vec();
        let body = if summed.is_empty() {
            Body::Map(Code::copy(dtype))
        } else {
            Body::Fold { combine: Combine::Add, code: Code::copy(dtype) }
        };
        let s = Sentence { extents: loops.extents, rank: loops.rank, dtype, reads: vec![read], body };
        let slot = self.arranged(s, &parted, &whole, layout, slot, why);
        Ok(Val::Slot(slot, kept))
    }

    /// A sentence whose result has shape `parted`, reshaped to `whole` if that is another shape; without a step of its own where it
    /// only renames linear positions of `from`.
    fn arranged(
        &mut self,
        s: Sentence,
        parted: &[usize],
        whole: &[usize],
        layout: Layout,
        from: Slot,
        why: &Why,
    ) -> Slot {
        if parted == whole {
            return self.emit(s, layout, why, false);
        }
        let source = self.draft.slots[from].clone();
        let mid = if matches!(s.body, Body::Map(_)) && in_linear_order(&s, &source.shape) {
            from
        } else {
            let mid = split_layout(&layout, whole, parted);
            self.emit(s, mid, why, false)
        };
        let mid_shape = self.draft.slots[mid].shape.clone();
        let s = draft::reshape(mid, source.dtype, &mid_shape, whole);
        self.emit(s, layout, why, false)
    }

    /// A collective: a read or a fold over hidden dimensions.
    pub(super) fn collective(
        &mut self,
        program: &Program,
        e: &Equation,
        c: &Collective,
        operands: &[Val],
        why: &Why,
    ) -> Result<Vec<Val>> {
        if self.manual.is_none() {
            return Err(Error::other(format!("{} stands outside manual mode", why.op)));
        }
        // variadic collectives: one result for each operand
        let mut outs = Vec::new();
        for (k, var) in e.outputs.iter().enumerate() {
            let info = &program.vars[var.index()];
            let v = operands.get(k).cloned();
            outs.push(self.one_collective(info, c, v, why)?);
        }
        Ok(outs)
    }

    fn one_collective(&mut self, info: &VarInfo, c: &Collective, v: Option<Val>, why: &Why) -> Result<Val> {
        let dtype = info.ty.dtype;
        if let Collective::AxisIndex { axes } = c {
            return Ok(self.axis_index(axes, info, why));
        }
        let Some(v) = v else { return Err(Error::other(format!("{} has no operand", why.op))) };
        if let Collective::Cast { axes } = c {
            return Ok(self.cast(axes, v, info, why));
        }
        let mut slot = self.as_slot(&v, why);
        let own: Vec<Axis> = v.hidden().to_vec();
        let from = self.draft.slots[slot].clone();
        let block: Shape = Shape::from(&from.shape[own.len()..]);
        let (axes, kind) = match c {
            Collective::Reduce { axes, .. } => (axes, Kind::AllReduce),
            Collective::AllGather { axes, .. } => (axes, Kind::AllGather),
            Collective::ReduceScatter { axes, .. } | Collective::OwnPart { axes, .. } => {
                (axes, Kind::ReduceScatter)
            }
            Collective::AllToAll { axes, .. } => (axes, Kind::AllToAll),
            Collective::Permute { axes, .. } => (axes, Kind::Permute),
            Collective::AxisIndex { .. } | Collective::Cast { .. } => unreachable!("handled above"),
        };
        // an unreduced value is in parts over the axes: taking it whole is all there is to do
        let parts = from.layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
        let is_parted = axes.iter().any(|a| {
            let atoms = self.manual.as_ref().map(|m| m.atoms(a)).unwrap_or_default();
            atoms.iter().any(|x| parts.iter().any(|y| x.clashes(*y)))
        });
        let stays = matches!(c, Collective::Reduce { .. } | Collective::AllGather { .. });
        let mut hidden: Vec<Axis> = own.iter().copied().filter(|a| !stays || !axes.contains(*a)).collect();
        if !stays {
            hidden.extend(axes.iter());
        }
        let hidden = self.in_order(hidden);
        let layout = self.layout(info, &hidden);
        // loops: hidden dimensions of the result, its dimensions, then the axes that are folded
        let mut loops = Loops { extents: self.sizes(&hidden), rank: 0 };
        let here: Vec<(Axis, usize)> = hidden.iter().enumerate().map(|(l, a)| (*a, l)).collect();
        let mut there: Vec<(Axis, usize)> = here.iter().copied().filter(|x| !axes.contains(x.0)).collect();
        let of = |list: &[(Axis, usize)], a: Axis| list.iter().find(|x| x.0 == a).map(|x| x.1);
        let mut whole = loops.extents.clone();
        let sizes: Vec<(Axis, usize)> = axes.iter().map(|a| (a, self.sizes(&[a])[0])).collect();
        let ways: usize = sizes.iter().map(|s| s.1).product();
        let mut map: Vec<Affine> = Vec::new();
        let mut body = Body::Map(Code::copy(dtype));
        match c {
            Collective::Reduce { combine, .. } => {
                map.extend(block.iter().map(|n| Affine::of(0, loops.add(*n), 1)));
                whole.extend(block.iter());
                loops.rank = loops.extents.len();
                if !is_parted {
                    for a in self.in_order(axes.iter()) {
                        let n = self.sizes(&[a])[0];
                        there.push((a, loops.add(n)));
                    }
                    body = Body::Fold { combine: *combine, code: Code::copy(dtype) };
                }
            }
            Collective::ReduceScatter { dim, tiled, .. } | Collective::OwnPart { dim, tiled, .. } => {
                if is_parted {
                    // the sum of the parts, split along the dimension: each device holds what it is to keep
                    let mut split = Layout { partial: None, ..from.layout.clone() };
                    let l = &mut split.dims[own.len() + dim];
                    *l = DimLayout::new(block[*dim], l.atoms.iter().chain(&parts).copied());
                    slot = self.draft.laid(slot, split, why);
                    self.asked(kind, axes);
                }
                for (d, n) in block.iter().enumerate() {
                    if d != *dim {
                        map.push(Affine::of(0, loops.add(*n), 1));
                        whole.push(*n);
                        continue;
                    }
                    let (mut m, mut step) = (Affine::constant(0), 1);
                    if *tiled {
                        let n = n / ways;
                        m = Affine::of(0, loops.add(n), 1);
                        whole.push(n);
                        step = n as i64;
                    }
                    for (a, n) in sizes.iter().rev() {
                        m.terms.push((of(&here, *a).unwrap_or(0), step));
                        step *= *n as i64;
                    }
                    map.push(m);
                }
                loops.rank = loops.extents.len();
                if !is_parted && matches!(c, Collective::ReduceScatter { .. }) {
                    for a in self.in_order(axes.iter()) {
                        let n = self.sizes(&[a])[0];
                        there.push((a, loops.add(n)));
                    }
                    body = Body::Fold { combine: Combine::Add, code: Code::copy(dtype) };
                }
            }
            Collective::AllGather { dim, tiled, .. } => {
                let mut at = vec![0; block.rank()];
                let mut gather = |loops: &mut Loops| {
                    sizes.iter().for_each(|(a, n)| there.push((*a, loops.add(*n))));
                };
                for (d, n) in block.iter().map(Some).chain([None]).enumerate() {
                    if d == *dim {
                        gather(&mut loops);
                        if !*tiled {
                            whole.push(ways);
                        }
                    }
                    if let Some(n) = n {
                        at[d] = loops.add(*n);
                        whole.push(if *tiled && d == *dim { n * ways } else { *n });
                    }
                }
                map.extend(at.iter().map(|l| Affine::of(0, *l, 1)));
                loops.rank = loops.extents.len();
            }
            Collective::AllToAll { split, concat, tiled, .. } => {
                // the dimensions of the result before any is joined: those of the operand without a split one that goes
                let mut at: Vec<Option<usize>> = vec![None; block.rank()];
                let rest: Vec<usize> = (0..block.rank()).filter(|d| *tiled || d != split).collect();
                for i in 0..=rest.len() {
                    if i == *concat && (*tiled || i <= rest.len()) {
                        sizes.iter().for_each(|(a, n)| there.push((*a, loops.add(*n))));
                        if !*tiled {
                            whole.push(ways);
                        }
                    }
                    let Some(d) = rest.get(i) else { continue };
                    let n = if *tiled && d == split { block[*d] / ways } else { block[*d] };
                    at[*d] = Some(loops.add(n));
                    whole.push(if *tiled && i == *concat { n * ways } else { n });
                }
                for (d, l) in at.iter().enumerate() {
                    let mut m = l.map_or(Affine::constant(0), |l| Affine::of(0, l, 1));
                    if d == *split {
                        let mut step = l.map_or(1, |l| loops.extents[l] as i64);
                        for (a, n) in sizes.iter().rev() {
                            m.terms.push((of(&here, *a).unwrap_or(0), step));
                            step *= *n as i64;
                        }
                    }
                    map.push(m);
                }
                loops.rank = loops.extents.len();
            }
            Collective::Permute { pairs, .. } => {
                map.extend(block.iter().map(|n| Affine::of(0, loops.add(*n), 1)));
                whole.extend(block.iter());
                loops.rank = loops.extents.len();
                let read = permuted(slot, dtype, &own, &here, &sizes, pairs, &map, &loops.extents);
                let s = draft::mapped(read, &loops.extents);
                let out = self.emit(s, layout, why, false);
                self.asked(kind, axes);
                return Ok(Val::Slot(out, hidden));
            }
            Collective::AxisIndex { .. } | Collective::Cast { .. } => unreachable!("handled above"),
        }
        let front = own.iter().map(|a| of(&there, *a).map_or(Affine::constant(0), |l| Affine::of(0, l, 1)));
        let map: Vec<Affine> = front.chain(map).collect();
        let span = Span::whole(&loops.extents);
        let part = Part { from: Source::Value(slot), span, map };
        let read = Read { dtype, parts: vec![part], fill: Scalar::zero(dtype) };
        let parted = loops.extents[..loops.rank].to_vec();
        let s = Sentence { extents: loops.extents, rank: loops.rank, dtype, reads: vec![read], body };
        let before = self.draft.items.len();
        let out = self.arranged(s, &parted, &whole, layout, slot, why);
        if !matches!(c, Collective::OwnPart { .. }) {
            for item in &mut self.draft.items[before..] {
                item.user = Some((kind, axes.clone()));
            }
        }
        Ok(Val::Slot(out, hidden))
    }

    fn axis_index(&mut self, axes: &Axes, info: &VarInfo, why: &Why) -> Val {
        let hidden = self.in_order(axes.iter());
        let extents = self.sizes(&hidden);
        let (mut code, mut sum, mut step) = (Code { insts: Vec::new() }, None, 1i64);
        for a in axes.iter().rev() {
            let at = Arg::Index(hidden.iter().position(|b| *b == a).unwrap_or(0));
            let i64s = DType::I64;
            let term =
                if step == 1 { at } else { code.push(Fun::Mul, i64s, i64s, &[at, Arg::Const(step.into())]) };
            sum = Some(sum.map_or(term, |s| code.push(Fun::Add, i64s, i64s, &[s, term])));
            step *= self.sizes(&[a])[0] as i64;
        }
        let sum = sum.unwrap_or(Arg::Const(0.into()));
        code.push(Fun::Convert, DType::I64, info.ty.dtype, &[sum]);
        let rank = extents.len();
        let s = Sentence { extents, rank, dtype: info.ty.dtype, reads: Vec::new(), body: Body::Map(code) };
        let layout = self.layout(info, &hidden);
        Val::Slot(self.emit(s, layout, why, false), hidden)
    }

    /// Varying to unreduced: each device's value becomes a part. Every other cast changes the type alone.
    fn cast(&mut self, axes: &[Axis], v: Val, info: &VarInfo, why: &Why) -> Val {
        let unreduced: Vec<Axis> =
            axes.iter().copied().filter(|a| info.ty.spec.unreduced_axes().contains(*a)).collect();
        if unreduced.is_empty() {
            return v;
        }
        let slot = self.as_slot(&v, why);
        let own = v.hidden().to_vec();
        let hidden: Vec<Axis> = own.iter().copied().filter(|a| !unreduced.contains(a)).collect();
        let layout = self.layout(info, &hidden);
        let mut loops = Loops { extents: self.sizes(&hidden), rank: 0 };
        let block = self.draft.slots[slot].shape[own.len()..].to_vec();
        let dims: Vec<Affine> = block.iter().map(|n| Affine::of(0, loops.add(*n), 1)).collect();
        loops.rank = loops.extents.len();
        let mut at: Vec<(Axis, usize)> = hidden.iter().enumerate().map(|(l, a)| (*a, l)).collect();
        for a in self.in_order(unreduced) {
            let n = self.sizes(&[a])[0];
            at.push((a, loops.add(n)));
        }
        let front = own
            .iter()
            .map(|a| at.iter().find(|x| x.0 == *a).map_or(Affine::constant(0), |x| Affine::of(0, x.1, 1)));
        let dtype = info.ty.dtype;
        let part = Part {
            from: Source::Value(slot),
            span: Span::whole(&loops.extents),
            map: front.chain(dims).collect(),
        };
        let reads = vec![Read { dtype, parts: vec![part], fill: Scalar::zero(dtype) }];
        let body = Body::Fold { combine: Combine::Add, code: Code::copy(dtype) };
        let s = Sentence { extents: loops.extents, rank: loops.rank, dtype, reads, body };
        Val::Slot(self.emit(s, layout, why, false), hidden)
    }
}

/// The read of a permutation: one part for each run of pairs with one difference.
#[expect(clippy::too_many_arguments, reason = "what a permutation is made of")]
fn permuted(
    slot: Slot,
    dtype: DType,
    own: &[Axis],
    here: &[(Axis, usize)],
    sizes: &[(Axis, usize)],
    pairs: &[(usize, usize)],
    dims: &[Affine],
    extents: &[usize],
) -> Read {
    let digits = |mut p: usize| {
        let mut d: Vec<usize> = sizes.iter().rev().map(|(_, n)| (p % n, p /= n).0).collect();
        d.reverse();
        d
    };
    let minor = sizes.last().map_or(1, |s| s.1);
    let mut pairs = pairs.to_vec();
    pairs.sort_by_key(|p| p.1);
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for (s, t) in pairs {
        match runs.last_mut() {
            Some(r) if (r.0 + r.2, r.1 + r.2) == (s, t) && s % minor != 0 && t % minor != 0 => r.2 += 1,
            _ => runs.push((s, t, 1)),
        }
    }
    let part = |(source, target, n): (usize, usize, usize)| {
        let (s, t) = (digits(source), digits(target));
        let mut span = Span::whole(extents);
        let mut front: Vec<Affine> = own
            .iter()
            .map(|a| here.iter().find(|x| x.0 == *a).map_or(Affine::constant(0), |x| Affine::of(0, x.1, 1)))
            .collect();
        for (i, (a, _)) in sizes.iter().enumerate() {
            let Some((_, l)) = here.iter().find(|x| x.0 == *a) else { continue };
            let n = if i + 1 == sizes.len() { n as i64 } else { 1 };
            span[*l] = Span { lo: t[i] as i64, hi: t[i] as i64 + n, step: 1 };
            if let Some(d) = own.iter().position(|b| b == a) {
                front[d] =
                    if n == 1 { Affine::constant(s[i] as i64) } else { Affine::of(s[i] as i64, *l, 1) };
            }
        }
        let map = front.into_iter().chain(dims.iter().cloned()).collect();
        Part { from: Source::Value(slot), span, map }
    };
    Read { dtype, parts: runs.into_iter().map(part).collect(), fill: Scalar::zero(dtype) }
}

/// Whether a copying sentence reads all of a value of this shape in its own linear order.
fn in_linear_order(s: &Sentence, shape: &[usize]) -> bool {
    let [part] = &s.reads[0].parts[..] else { return false };
    let mut wanted = 0;
    let plain = part.map.iter().zip(shape).all(|(m, n)| {
        if *n == 1 {
            return m.at == 0;
        }
        let [(l, 1)] = m.terms[..] else { return false };
        while s.extents.get(wanted) == Some(&1) && l != wanted {
            wanted += 1;
        }
        wanted += 1;
        m.at == 0 && l + 1 == wanted && s.extents[l] == *n
    });
    plain && s.extents.iter().product::<usize>() == shape.iter().product::<usize>()
}

/// A layout of a shape as one of the same value with some dimensions parted: the digits go to the major pieces.
fn split_layout(layout: &Layout, whole: &[usize], parted: &[usize]) -> Layout {
    let mut dims = Vec::new();
    let mut k = 0;
    for (l, n) in layout.dims.iter().zip(whole) {
        let mut atoms = l.atoms.iter().copied().collect::<std::collections::VecDeque<_>>();
        let mut left = *n;
        while let Some(size) = parted.get(k).copied() {
            let mut room = size;
            let mut here = Atoms::new();
            while let Some(a) = atoms.front().copied() {
                if room.is_multiple_of(a.size) {
                    room /= a.size;
                    here.push(a);
                    atoms.pop_front();
                } else if a.size.is_multiple_of(room) && room > 1 {
                    // the upper part of the digit fills this piece
                    let low = a.size / room;
                    here.push(crate::sharding::Atom { stride: a.stride * low, size: room });
                    atoms[0] = crate::sharding::Atom { stride: a.stride, size: low };
                    room = 1;
                } else {
                    break;
                }
            }
            dims.push(super::DimLayout::new(size, here));
            k += 1;
            left /= size.max(1);
            if left <= 1 || size == 0 {
                break;
            }
        }
    }
    for size in &parted[k.min(parted.len())..] {
        dims.push(super::DimLayout::new(*size, []));
    }
    Layout { dims, partial: layout.partial.clone() }
}
