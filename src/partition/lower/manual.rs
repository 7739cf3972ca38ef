//! Manual mode: per-device values as stored values with a leading dimension for each axis that they vary over, cut out of the values around
//! the region and put together again.

use crate::diagnostic::Result;
use crate::mesh::{Axes, Axis};
use crate::partition::draft;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::{Lower, Manual, Val};
use crate::partition::program::{Slot, Why};
use crate::program::sentence::{Affine, Body, Code, Combine, Part, Read, Sentence, Source, Span};
use crate::program::{Equation, Program, ShardMapping, VarInfo};
use crate::sharding::Spec;
use crate::sharding::atoms::{Atom, Atoms};
use crate::types::{DType, Scalar};

/// An index of a value with its hidden dimensions as named loops: what a collective's read is written with.
pub(crate) struct Loops {
    pub(crate) extents: Vec<usize>,
    pub(crate) rank: usize,
}

impl Loops {
    pub(crate) fn add(&mut self, n: usize) -> usize {
        self.extents.push(n);
        self.extents.len() - 1
    }
}

impl Lower {
    /// Per-device code: inputs cut into blocks, the body, results put together.
    pub(crate) fn shard_map(
        &mut self,
        program: &Program,
        e: &Equation,
        m: &ShardMapping,
        operands: &[Val],
    ) -> Result<Vec<Val>> {
        let why = self.why(e, "shard_map");
        let outer = self.manual.clone();
        let axes = m.mesh.in_order(m.axes.iter().chain(outer.iter().flat_map(|o| &o.axes)));
        self.manual = Some(Manual { mesh: m.mesh.clone(), axes });
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
        // what varies over an axis that nothing names is said to be the same on all devices along it: each takes its own
        let mut same = false;
        if summed.is_empty() && already.is_empty() {
            let unnamed = |a: &&Axis| !at.iter().any(|x| x.0 == **a);
            let unnamed: Vec<Axis> = own.iter().filter(unnamed).copied().collect();
            same = !unnamed.is_empty();
            at.extend(unnamed.into_iter().map(|a| (a, loops.add(self.sizes(&[a])[0]))));
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
        let code = Code::copy(dtype);
        let body = match (same, summed.is_empty()) {
            (true, _) => Body::Fold { combine: Combine::Same, code },
            (false, true) => Body::Map(code),
            (false, false) => Body::Fold { combine: Combine::Add, code },
        };
        let s = Sentence { extents: loops.extents, rank: loops.rank, dtype, reads: vec![read], body };
        let slot = self.arranged(s, &parted, &whole, layout, slot, why);
        Ok(Val::Slot(slot, kept))
    }

    /// A sentence whose result has shape `parted`, reshaped to `whole` if that is another shape; without a step of its own where it
    /// only renames linear positions of `from`.
    pub(crate) fn arranged(
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
        let mid = if s.body.elementwise().is_some() && in_linear_order(&s, &source.shape) {
            from
        } else {
            let mid = split_layout(&layout, whole, parted);
            self.emit(s, mid, why, false)
        };
        let mid_shape = self.draft.slots[mid].shape.clone();
        let s = draft::reshape(mid, source.dtype, &mid_shape, whole);
        self.emit(s, layout, why, false)
    }
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
                    here.push(Atom { stride: a.stride * low, size: room });
                    atoms[0] = Atom { stride: a.stride, size: low };
                    room = 1;
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
