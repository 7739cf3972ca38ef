//! Loops and choices: their programs as flows of their own.

use super::{Building, build};
use crate::compile::flow::{BranchItem, Carry, Item, LoopItem, Map, Operand, Piece, WhileItem};
use crate::compile::index::{MAX, NONE, extents};
use crate::diagnostic::{Error, Result};
use crate::partition::{DimLayout, Slot, SpmdProgram, Step};
use crate::program::sentence::{Arg, Code, Fun, Inst, Source};
use crate::types::{DType, Scalar};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

impl<'p> Building<'p, '_> {
    /// Where a loop has the slices of this value one behind the other: of a partial value, whose parts are laid out so, elsewhere.
    fn slices(&mut self, whole: Slot) -> Result<Slot> {
        let v = &self.flow.values[whole];
        if v.copies == 1 {
            return Ok(whole);
        }
        let (dtype, mut shape) = (v.dtype, v.shape.clone());
        shape.sizes_mut().swap(0, 1);
        let slices = self.value(dtype, shape, DimLayout { atoms: SmallVec::new(), block: 1, origin: 0 })?;
        self.readers[slices] = 1;
        Ok(slices)
    }
    /// `to` is `from` with the first two dimensions traded; nothing where they are one value.
    fn trade(&mut self, from: Slot, to: Slot) {
        if from == to {
            return;
        }
        let (v, o) = (&self.flow.values[from], &self.flow.values[to]);
        let (n, dtype) = (o.shape.rank(), o.dtype);
        let ext = extents(&o.shape);
        let (mut st, mut along) = ([0; MAX], [NONE; MAX]);
        for (d, stride) in v.strides.iter().take(n).enumerate() {
            let l = if d < 2 { 1 - d } else { d };
            (st[l], along[d]) = (*stride, l as u8);
        }
        let p = Piece {
            from: Source::Value(from),
            lo: [0; MAX],
            hi: ext,
            off: 0,
            st,
            along,
            shift: [0; MAX],
            rank: n,
        };
        let read = Operand { dtype, fill: Scalar::zero(dtype), pieces: smallvec![p] };
        let code = Cow::Owned(Code::copy(dtype));
        self.push(Item::Map(Map { out: to, n, ext, reads: vec![read], code, lead: 0 }));
    }

    pub(super) fn enter_loop(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } = step else {
            return Ok(());
        };
        let (nf, nc) = (fixed.len(), carry.len());
        let wanted = 1 + nf + nc + xs.len();
        if body.ins.len() != wanted || body.outs.len() != nc + ys.len() || out.len() != nc {
            return Err(Error::internal("a loop whose body does not fit its values"));
        }
        let mut flow = build(body, self.strides)?;
        let ins = flow.ins.clone();
        let mut item = LoopItem {
            step: ins[0],
            start: *start,
            length: *length,
            reverse: *reverse,
            fixed: fixed.iter().zip(&ins[1..]).map(|(o, i)| (*o + at, *i)).collect(),
            carry: Vec::new(),
            xs: xs.iter().zip(&ins[1 + nf + nc..]).map(|(o, i)| (*o + at, *i)).collect(),
            ys: Vec::new(),
            body: Box::default(),
        };
        for x in &mut item.xs {
            let slices = self.slices(x.0)?;
            self.trade(x.0, slices);
            x.0 = slices;
        }
        let mut outs = Vec::new();
        for k in 0..nc {
            let (first, from, to, last) = (carry[k] + at, ins[1 + nf + k], flow.outs[k], out[k] + at);
            if to == from || *length == 0 {
                // the same at every step
                item.fixed.push((first, from));
                self.flow.values[last].alias = Some(first);
            } else {
                outs.push(to);
                item.carry.push(Carry { first, from, to, last });
            }
        }
        outs.extend(&flow.outs[nc..]);
        flow.outs = outs;
        flow.distinct_outs(self.strides);
        for (c, to) in item.carry.iter_mut().zip(&flow.outs) {
            c.to = *to;
        }
        let stacked: Vec<Slot> = ys.iter().map(|y| self.slices(*y + at)).collect::<Result<_>>()?;
        item.ys = flow.outs[item.carry.len()..].iter().copied().zip(stacked.iter().copied()).collect();
        item.body = Box::new(flow);
        self.push(Item::Loop(item));
        for (from, y) in stacked.into_iter().zip(ys) {
            self.trade(from, *y + at);
        }
        Ok(())
    }
    pub(super) fn enter_while(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::While { cond, body, cond_fixed, body_fixed, carry, out } = step else { return Ok(()) };
        let (nc, cf, bf) = (carry.len(), cond_fixed.len(), body_fixed.len());
        if cond.ins.len() != cf + nc
            || body.ins.len() != bf + nc
            || body.outs.len() != nc
            || cond.outs.len() != 1
        {
            return Err(Error::internal("a loop whose condition or body does not fit its values"));
        }
        let mut c = build(cond, self.strides)?;
        c.distinct_outs(self.strides);
        let mut b = build(body, self.strides)?;
        b.distinct_outs(self.strides);
        let carry = (0..nc)
            .map(|k| Carry { first: carry[k] + at, from: b.ins[bf + k], to: b.outs[k], last: out[k] + at })
            .collect();
        let pairs = |o: &[Slot], i: &[Slot]| o.iter().zip(i).map(|(o, i)| (*o + at, *i)).collect();
        self.push(Item::While(WhileItem {
            cond_fixed: pairs(cond_fixed, &c.ins),
            cond_carry: c.ins[cf..].to_vec(),
            body_fixed: pairs(body_fixed, &b.ins),
            carry,
            cond: Box::new(c),
            body: Box::new(b),
        }));
        Ok(())
    }
    pub(super) fn enter_branch(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::Branch { which, branches, ins, out } = step else { return Ok(()) };
        let fits = |p: &SpmdProgram| p.ins.len() == ins.len() && p.outs.len() == out.len();
        if branches.is_empty() || !branches.iter().all(fits) {
            return Err(Error::internal("a choice whose branches do not fit its values"));
        }
        if self.flow.values[*which + at].shape.rank() > 0 {
            return self.select(step, at);
        }
        let mut arms = Vec::new();
        for p in branches {
            let mut f = build(p, self.strides)?;
            f.distinct_outs(self.strides);
            arms.push(f);
        }
        let shift = |v: &[Slot]| v.iter().map(|s| *s + at).collect();
        self.push(Item::Branch(BranchItem { which: *which + at, arms, ins: shift(ins), outs: shift(out) }));
        Ok(())
    }
    /// A choice that differs from device to device: all branches run, and each device takes the results of its own. They are pure.
    pub(super) fn select(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::Branch { which, branches, ins, out } = step else { return Ok(()) };
        let mut ends: Vec<Vec<Slot>> = Vec::new();
        for p in branches {
            let base = self.flow.values.len();
            self.slots(p)?;
            for (i, o) in p.ins.iter().zip(ins) {
                self.flow.values[base + i].alias = Some(*o + at);
            }
            for s in &p.steps {
                self.count(s, base);
            }
            for o in &p.outs {
                self.readers[base + o] += 1;
            }
            for s in &p.steps {
                self.step(s, base)?;
            }
            ends.push(p.outs.iter().map(|o| *o + base).collect());
        }
        let which = *which + at;
        let hidden = self.flow.values[which].shape.rank();
        let bool = self.flow.values[which].dtype == DType::Bool;
        let from = self.flow.values[which].dtype;
        for (k, o) in out.iter().enumerate() {
            let o = *o + at;
            let v = self.flow.values[o].clone();
            let (n, ext) = (v.shape.rank(), extents(&v.shape));
            // where each axis of the choice is among the result's dimensions
            let place = |l: usize| {
                let of = |s: Slot| self.flow.values[s].layout.map_or(&[][..], |l| &l.dims[..]);
                let atoms = &of(which).get(l)?.atoms;
                of(o).iter().position(|d| d.atoms == *atoms)
            };
            let lead: Vec<usize> = (0..hidden).filter_map(place).collect();
            if v.copies > 1 || lead.len() != hidden {
                return Err(Error::internal(
                    "a choice by device whose results do not vary as the choice does",
                ));
            }
            let all: Vec<usize> = (0..n).collect();
            let mut reads = vec![self.whole(which, from, &lead, &ext, n, 0)];
            for e in &ends {
                reads.push(self.whole(e[k], v.dtype, &all, &ext, n, 0));
            }
            let mut code = Code { insts: Vec::new() };
            let mut last = Arg::Read(ends.len());
            for b in (0..ends.len() - 1).rev() {
                let take = match bool {
                    true => Arg::Read(0),
                    // clamped: 0 takes everything below
                    false => code.push(
                        Fun::Le,
                        from,
                        DType::Bool,
                        &[Arg::Read(0), Arg::Const(Scalar::Int(b as i128))],
                    ),
                };
                last = code.push(Fun::Select, v.dtype, v.dtype, &[take, Arg::Read(b + 1), last]);
            }
            if code.insts.is_empty() {
                code.insts.push(Inst {
                    fun: Fun::Copy,
                    from: v.dtype,
                    dtype: v.dtype,
                    args: SmallVec::from_slice(&[last]),
                });
            }
            self.push(Item::Map(Map { out: o, n, ext, reads, code: Cow::Owned(code), lead: 0 }));
        }
        Ok(())
    }
}
