//! The collectives of manual mode, as reads and folds over the hidden dimensions of stored values.

use crate::diagnostic::{Error, Result};
use crate::mesh::{Axes, Axis};
use crate::partition::draft;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::{Lower, Val};
use crate::partition::lower::manual::Loops;
use crate::partition::program::{Slot, Why};
use crate::partition::report::Kind;
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Fun, Part, Read, Sentence, Source, Span};
use crate::program::{Collective, Equation, Program, VarInfo};
use crate::sorted;
use crate::types::{DType, Scalar, Shape};

impl Lower {
    /// A collective: a read or a fold over hidden dimensions.
    pub(crate) fn collective(
        &mut self,
        program: &Program,
        e: &Equation,
        c: &Collective,
        operands: &[Val],
        why: &Why,
    ) -> Result<Vec<Val>> {
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
        let Some(v) = v else { return Err(Error::internal(format!("{} has no operand", why.op))) };
        let (axes, kind) = match c {
            Collective::Reduce { axes, .. } => (axes, Kind::AllReduce),
            Collective::AllGather { axes, .. } => (axes, Kind::AllGather),
            Collective::ReduceScatter { axes, .. } | Collective::OwnPart { axes, .. } => {
                (axes, Kind::ReduceScatter)
            }
            Collective::AllToAll { axes, .. } => (axes, Kind::AllToAll),
            Collective::Permute { axes, .. } => (axes, Kind::Permute),
            Collective::Cast { axes } => return Ok(self.cast(axes, v, info, why)),
            Collective::AxisIndex { .. } => unreachable!("handled above"),
        };
        let mut slot = self.as_slot(&v, why);
        let own: Vec<Axis> = v.hidden().to_vec();
        let from = self.draft.slots[slot].clone();
        let block: Shape = Shape::from(&from.shape[own.len()..]);
        // an unreduced value is partial over the axes: taking it complete is all there is to do
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
        let along: Vec<(Axis, usize)> = axes.iter().map(|a| (a, self.sizes(&[a])[0])).collect();
        let mut r = Reading::new(&block, along, &hidden, self.sizes(&hidden));
        let folded = match c {
            Collective::Reduce { combine, .. } => {
                r.pass_all();
                (!is_parted).then_some(*combine)
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
                r.cut(*dim, *tiled);
                let sums = !is_parted && matches!(c, Collective::ReduceScatter { .. });
                sums.then_some(Combine::Add)
            }
            Collective::AllGather { dim, tiled, .. } => {
                r.join(*dim, *tiled);
                None
            }
            Collective::AllToAll { split, concat, tiled, .. } => {
                r.exchange(*split, *concat, *tiled);
                None
            }
            Collective::Permute { pairs, .. } => {
                r.pass_all();
                let read = r.permuted(slot, dtype, &own, pairs);
                let s = draft::mapped(read, &r.loops.extents);
                let out = self.emit(s, layout, why, false);
                self.asked(kind, axes);
                return Ok(Val::Slot(out, hidden));
            }
            Collective::AxisIndex { .. } | Collective::Cast { .. } => unreachable!("handled above"),
        };
        let folded = folded.map(|combine| (combine, self.with_sizes(axes.iter())));
        let (s, whole) = r.sentence(slot, dtype, &own, folded);
        let parted = s.extents[..s.rank].to_vec();
        let before = self.draft.items.len();
        let out = self.arranged(s, &parted, &whole, layout, slot, why);
        if !matches!(c, Collective::OwnPart { .. }) {
            for item in &mut self.draft.items[before..] {
                item.user = Some((kind, axes.clone()));
            }
        }
        Ok(Val::Slot(out, hidden))
    }
    /// The axes in the mesh's order, with their sizes.
    fn with_sizes(&self, axes: impl IntoIterator<Item = Axis>) -> Vec<(Axis, usize)> {
        self.in_order(axes).into_iter().map(|a| (a, self.sizes(&[a])[0])).collect()
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
        let block = Shape::from(&self.draft.slots[slot].shape[own.len()..]);
        let mut r = Reading::new(&block, Vec::new(), &hidden, self.sizes(&hidden));
        r.pass_all();
        let folded = (Combine::Add, self.with_sizes(unreduced));
        let (s, _) = r.sentence(slot, info.ty.dtype, &own, Some(folded));
        Val::Slot(self.emit(s, layout, why, false), hidden)
    }
}

/// The read of a collective while it is written: the loops of its result, and at which of them each dimension of the operand is read.
struct Reading<'a> {
    /// The operand's dimensions but for the hidden ones.
    block: &'a Shape,
    /// The axes along which the devices meet, with their sizes, major first.
    along: Vec<(Axis, usize)>,
    /// The loops of the result's hidden dimensions.
    here: Vec<(Axis, usize)>,
    /// The loops at which the operand's hidden dimensions are read; others at 0.
    there: Vec<(Axis, usize)>,
    /// Hidden dimensions of the result, its dimensions (in pieces where several loops make one), then the axes that are folded.
    loops: Loops,
    /// The result's shape.
    whole: Vec<usize>,
    /// Where each dimension of the block is read.
    map: Vec<Affine>,
}

fn loop_of(loops: &[(Axis, usize)], axis: Axis) -> Option<usize> {
    loops.iter().find(|x| x.0 == axis).map(|x| x.1)
}

impl<'a> Reading<'a> {
    fn new(block: &'a Shape, along: Vec<(Axis, usize)>, hidden: &[Axis], sizes: Vec<usize>) -> Reading<'a> {
        let here: Vec<(Axis, usize)> = hidden.iter().enumerate().map(|(l, a)| (*a, l)).collect();
        let there = here.iter().copied().filter(|x| along.iter().all(|a| a.0 != x.0)).collect();
        let (whole, loops) = (sizes.clone(), Loops { extents: sizes, rank: 0 });
        Reading { block, along, here, there, loops, whole, map: Vec::new() }
    }
    /// How many devices meet.
    fn ways(&self) -> usize {
        self.along.iter().map(|a| a.1).product()
    }
    /// The next dimension of the block is the next one of the result.
    fn pass(&mut self, n: usize) {
        self.map.push(Affine::of(0, self.loops.add(n), 1));
        self.whole.push(n);
    }
    fn pass_all(&mut self) {
        for n in self.block.iter() {
            self.pass(*n);
        }
    }
    /// The next loops run over the devices that meet.
    fn meet(&mut self) {
        for (axis, n) in &self.along {
            self.there.push((*axis, self.loops.add(*n)));
        }
    }
    /// The position `m` within the device's own one of parts that are `step` long.
    fn own(&self, mut m: Affine, mut step: i64) -> Affine {
        for (axis, n) in self.along.iter().rev() {
            m.terms.push((loop_of(&self.here, *axis).unwrap_or(0), step));
            step *= *n as i64;
        }
        m
    }
    /// Of dimension `dim` each device has its part.
    fn cut(&mut self, dim: usize, tiled: bool) {
        for (d, &n) in self.block.iter().enumerate() {
            if d != dim {
                self.pass(n);
            } else if tiled {
                let n = n / self.ways();
                let within = Affine::of(0, self.loops.add(n), 1);
                self.whole.push(n);
                self.map.push(self.own(within, n as i64));
            } else {
                self.map.push(self.own(Affine::constant(0), 1));
            }
        }
    }
    /// The devices' blocks one after the other along `dim`.
    fn join(&mut self, dim: usize, tiled: bool) {
        for d in 0..=self.block.rank() {
            if d == dim {
                self.meet();
                if !tiled {
                    self.whole.push(self.ways());
                }
            }
            let Some(&n) = self.block.get(d) else { break };
            self.map.push(Affine::of(0, self.loops.add(n), 1));
            self.whole.push(if tiled && d == dim { n * self.ways() } else { n });
        }
    }
    /// Of dimension `split` each device gets its part from all, one after the other along `concat`.
    fn exchange(&mut self, split: usize, concat: usize, tiled: bool) {
        // the dimensions of the result before any is joined: those of the operand without a split one that goes
        let mut at: Vec<Option<usize>> = vec![None; self.block.rank()];
        let rest: Vec<usize> = (0..self.block.rank()).filter(|d| tiled || *d != split).collect();
        for i in 0..=rest.len() {
            if i == concat {
                self.meet();
                if !tiled {
                    self.whole.push(self.ways());
                }
            }
            let Some(&d) = rest.get(i) else { break };
            let n = if tiled && d == split { self.block[d] / self.ways() } else { self.block[d] };
            at[d] = Some(self.loops.add(n));
            self.whole.push(if tiled && i == concat { n * self.ways() } else { n });
        }
        for (d, l) in at.iter().enumerate() {
            let within = l.map_or(Affine::constant(0), |l| Affine::of(0, l, 1));
            let length = l.map_or(1, |l| self.loops.extents[l] as i64);
            self.map.push(if d == split { self.own(within, length) } else { within });
        }
    }
    /// The sentence of the result, folded over these axes if any, and the result's shape.
    fn sentence(
        mut self,
        slot: Slot,
        dtype: DType,
        own: &[Axis],
        folded: Option<(Combine, Vec<(Axis, usize)>)>,
    ) -> (Sentence, Vec<usize>) {
        let rank = self.loops.extents.len();
        let code = Code::copy(dtype);
        let body = match folded {
            None => Body::Map(code),
            Some((combine, axes)) => {
                for (axis, n) in axes {
                    self.there.push((axis, self.loops.add(n)));
                }
                Body::Fold { combine, code }
            }
        };
        let at = |a: &Axis| loop_of(&self.there, *a).map_or(Affine::constant(0), |l| Affine::of(0, l, 1));
        let map = own.iter().map(at).chain(self.map).collect();
        let extents = self.loops.extents;
        let part = Part { from: Source::Value(slot), span: Span::whole(&extents), map };
        let reads = vec![Read { dtype, parts: vec![part], fill: Scalar::zero(dtype) }];
        (Sentence { extents, rank, dtype, reads, body }, self.whole)
    }
    /// The read of a permutation: one part for each run of pairs with one difference.
    fn permuted(&self, slot: Slot, dtype: DType, own: &[Axis], pairs: &[(usize, usize)]) -> Read {
        let digits = |mut p: usize| {
            let mut d: Vec<usize> = self.along.iter().rev().map(|(_, n)| (p % n, p /= n).0).collect();
            d.reverse();
            d
        };
        let minor = self.along.last().map_or(1, |s| s.1);
        let mut pairs = pairs.to_vec();
        sorted::sort_by_key(&mut pairs, |p| p.1);
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        for (s, t) in pairs {
            match runs.last_mut() {
                Some(r) if (r.0 + r.2, r.1 + r.2) == (s, t) && s % minor != 0 && t % minor != 0 => r.2 += 1,
                _ => runs.push((s, t, 1)),
            }
        }
        let part = |(source, target, n): (usize, usize, usize)| {
            let (s, t) = (digits(source), digits(target));
            let mut span = Span::whole(&self.loops.extents);
            let mut front: Vec<Affine> = own
                .iter()
                .map(|a| loop_of(&self.here, *a).map_or(Affine::constant(0), |l| Affine::of(0, l, 1)))
                .collect();
            for (i, (a, _)) in self.along.iter().enumerate() {
                let Some(l) = loop_of(&self.here, *a) else { continue };
                let n = if i + 1 == self.along.len() { n as i64 } else { 1 };
                span[l] = Span { lo: t[i] as i64, hi: t[i] as i64 + n, step: 1 };
                if let Some(d) = own.iter().position(|b| b == a) {
                    front[d] =
                        if n == 1 { Affine::constant(s[i] as i64) } else { Affine::of(s[i] as i64, l, 1) };
                }
            }
            let map = front.into_iter().chain(self.map.iter().cloned()).collect();
            Part { from: Source::Value(slot), span, map }
        };
        Read { dtype, parts: runs.into_iter().map(part).collect(), fill: Scalar::zero(dtype) }
    }
}
