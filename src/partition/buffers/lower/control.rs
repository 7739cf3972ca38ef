//! Lowers loops and branches, whose bodies become nested programs.
//!
//! If the selector of a branch differs between devices, the bodies become part of the surrounding
//! program: all of them run, and each device selects its results.

use super::{ProgramLowering, lower};
use crate::core::diagnostic::{Error, Result};
use crate::core::types::{DType, Scalar};
use crate::ir::program::loop_nest::{ScalarArg, ScalarCode, ScalarInst, ScalarOp, Source};
use crate::partition::buffers::index::{MAX_LOOPS, NO_LOOP, extents};
use crate::partition::buffers::{
    AccessBox, BranchOp, BufferOp, Carry, ElementwiseOp, LoopOp, OperandAccess, WhileOp,
};
use crate::partition::{DimLayout, Slot, SpmdProgram, Step};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

impl<'p> ProgramLowering<'p> {
    /// Returns the value in which the slices of `whole` that a loop reads or writes are contiguous.
    ///
    /// If `whole` is partial, its leading dimension is over partials, so this is another value,
    /// with the first two dimensions swapped.
    fn slice_buffer(&mut self, full: Slot) -> Result<Slot> {
        let v = &self.program.values[full];
        if v.num_partials == 1 {
            return Ok(full);
        }
        let (dtype, mut shape) = (v.dtype, v.shape.clone());
        shape.sizes_mut().swap(0, 1);
        let slices =
            self.add_value(dtype, shape, DimLayout { sub_axes: SmallVec::new(), block: 1, origin: 0 })?;
        self.num_readers[slices] = 1;
        Ok(slices)
    }
    /// Copies `from` to `to` with the first two dimensions swapped, unless they are one value.
    fn swap_leading_dims(&mut self, from: Slot, to: Slot) {
        if from == to {
            return;
        }
        let (v, o) = (&self.program.values[from], &self.program.values[to]);
        let (n, dtype) = (o.shape.rank(), o.dtype);
        let ext = extents(&o.shape);
        let (mut st, mut along) = ([0; MAX_LOOPS], [NO_LOOP; MAX_LOOPS]);
        for (d, stride) in v.strides.iter().take(n).enumerate() {
            let l = if d < 2 { 1 - d } else { d };
            (st[l], along[d]) = (*stride, l as u8);
        }
        let p = AccessBox {
            source: Source::Value(from),
            lo: [0; MAX_LOOPS],
            hi: ext,
            offset: 0,
            strides: st,
            dim_loops: along,
            dim_shifts: [0; MAX_LOOPS],
            rank: n,
        };
        let read = OperandAccess { dtype, fill: Scalar::zero(dtype), boxes: smallvec![p] };
        let code = Cow::Owned(ScalarCode::copy(dtype));
        self.push(BufferOp::Elementwise(ElementwiseOp {
            out: to,
            num_loops: n,
            ext,
            reads: vec![read],
            code,
            code_loop_base: 0,
        }));
    }

    /// Lowers a loop with a known trip count.
    pub(super) fn lower_loop(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } = step else {
            return Ok(());
        };
        let (nf, nc) = (fixed.len(), carry.len());
        let expected = 1 + nf + nc + xs.len();
        if body.ins.len() != expected || body.outs.len() != nc + ys.len() || out.len() != nc {
            return Err(Error::internal("a loop whose body does not match its operands or results"));
        }
        let mut flow = lower(body, self.program.half_matmuls)?;
        let ins = flow.ins.clone();
        let mut item = LoopOp {
            iteration: ins[0],
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
            let slices = self.slice_buffer(x.0)?;
            self.swap_leading_dims(x.0, slices);
            x.0 = slices;
        }
        let mut outs = Vec::new();
        for k in 0..nc {
            let (first, from, to, last) = (carry[k] + at, ins[1 + nf + k], flow.outs[k], out[k] + at);
            if to == from || *length == 0 {
                // the value is the same in every iteration
                item.fixed.push((first, from));
                self.program.values[last].alias = Some(first);
            } else {
                outs.push(to);
                item.carry.push(Carry { init: first, body_in: from, body_out: to, result: last });
            }
        }
        outs.extend(&flow.outs[nc..]);
        flow.outs = outs;
        flow.make_outs_distinct();
        for (c, to) in item.carry.iter_mut().zip(&flow.outs) {
            c.body_out = *to;
        }
        let stacked: Vec<Slot> = ys.iter().map(|y| self.slice_buffer(*y + at)).collect::<Result<_>>()?;
        item.ys = flow.outs[item.carry.len()..].iter().copied().zip(stacked.iter().copied()).collect();
        item.body = Box::new(flow);
        self.push(BufferOp::Loop(item));
        for (from, y) in stacked.into_iter().zip(ys) {
            self.swap_leading_dims(from, *y + at);
        }
        Ok(())
    }
    /// Lowers a loop that runs while a condition holds.
    pub(super) fn lower_while(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::While { cond, body, cond_fixed, body_fixed, carry, out } = step else { return Ok(()) };
        let (nc, cf, bf) = (carry.len(), cond_fixed.len(), body_fixed.len());
        if cond.ins.len() != cf + nc
            || body.ins.len() != bf + nc
            || body.outs.len() != nc
            || cond.outs.len() != 1
        {
            return Err(Error::internal(
                "a loop whose condition or body does not match its operands or results",
            ));
        }
        let mut c = lower(cond, self.program.half_matmuls)?;
        c.make_outs_distinct();
        let mut b = lower(body, self.program.half_matmuls)?;
        b.make_outs_distinct();
        let carry = (0..nc)
            .map(|k| Carry {
                init: carry[k] + at,
                body_in: b.ins[bf + k],
                body_out: b.outs[k],
                result: out[k] + at,
            })
            .collect();
        let pairs = |o: &[Slot], i: &[Slot]| o.iter().zip(i).map(|(o, i)| (*o + at, *i)).collect();
        self.push(BufferOp::While(WhileOp {
            cond_fixed: pairs(cond_fixed, &c.ins),
            cond_carry: c.ins[cf..].to_vec(),
            body_fixed: pairs(body_fixed, &b.ins),
            carry,
            cond: Box::new(c),
            body: Box::new(b),
        }));
        Ok(())
    }
    /// Lowers a branch.
    pub(super) fn lower_branch(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::Branch { selector: which, branches, ins, out } = step else { return Ok(()) };
        let fits = |p: &SpmdProgram| p.ins.len() == ins.len() && p.outs.len() == out.len();
        if branches.is_empty() || !branches.iter().all(fits) {
            return Err(Error::internal("a branch whose programs do not match its operands or results"));
        }
        if self.program.values[*which + at].shape.rank() > 0 {
            return self.lower_select(step, at);
        }
        let mut arms = Vec::new();
        for p in branches {
            let mut f = lower(p, self.program.half_matmuls)?;
            f.make_outs_distinct();
            arms.push(f);
        }
        let shift = |v: &[Slot]| v.iter().map(|s| *s + at).collect();
        self.push(BufferOp::Branch(BranchOp {
            selector: *which + at,
            arms,
            ins: shift(ins),
            outs: shift(out),
        }));
        Ok(())
    }
    /// Lowers a branch whose selector differs between devices.
    /// All programs run, which is safe because they are pure, and each device selects its results.
    pub(super) fn lower_select(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::Branch { selector: which, branches, ins, out } = step else { return Ok(()) };
        let mut ends: Vec<Vec<Slot>> = Vec::new();
        for p in branches {
            let base = self.program.values.len();
            self.add_slots(p)?;
            for (i, o) in p.ins.iter().zip(ins) {
                self.program.values[base + i].alias = Some(*o + at);
            }
            for s in &p.steps {
                self.count_readers(s, base);
            }
            for o in &p.outs {
                self.num_readers[base + o] += 1;
            }
            for s in &p.steps {
                self.lower_step(s, base)?;
            }
            ends.push(p.outs.iter().map(|o| *o + base).collect());
        }
        let which = *which + at;
        let hidden = self.program.values[which].shape.rank();
        let bool = self.program.values[which].dtype == DType::Bool;
        let from = self.program.values[which].dtype;
        for (k, o) in out.iter().enumerate() {
            let o = *o + at;
            let v = self.program.values[o].clone();
            let (n, ext) = (v.shape.rank(), extents(&v.shape));
            // the dimension of the result for each axis of the selector
            let position = |l: usize| {
                let of = |s: Slot| self.program.values[s].layout.map_or(&[][..], |l| &l.dims[..]);
                let sub_axes = &of(which).get(l)?.sub_axes;
                of(o).iter().position(|d| d.sub_axes == *sub_axes)
            };
            let lead: Vec<usize> = (0..hidden).filter_map(position).collect();
            if v.num_partials > 1 || lead.len() != hidden {
                return Err(Error::internal(
                    "a branch that varies over devices, with results that do not vary over the same axes",
                ));
            }
            let all: Vec<usize> = (0..n).collect();
            let mut reads = vec![self.full_access(which, from, &lead, &ext, n, 0)];
            for e in &ends {
                reads.push(self.full_access(e[k], v.dtype, &all, &ext, n, 0));
            }
            let mut code = ScalarCode { insts: Vec::new() };
            let mut last = ScalarArg::Access(ends.len());
            for b in (0..ends.len() - 1).rev() {
                let take = match bool {
                    true => ScalarArg::Access(0),
                    // the selector is clamped: program 0 is chosen by all values up to 0
                    false => code.push(
                        ScalarOp::Le,
                        from,
                        DType::Bool,
                        &[ScalarArg::Access(0), ScalarArg::Const(Scalar::Int(b as i128))],
                    ),
                };
                last = code.push(ScalarOp::Select, v.dtype, v.dtype, &[take, ScalarArg::Access(b + 1), last]);
            }
            if code.insts.is_empty() {
                code.insts.push(ScalarInst {
                    op: ScalarOp::Copy,
                    operand_dtype: v.dtype,
                    dtype: v.dtype,
                    args: SmallVec::from_slice(&[last]),
                });
            }
            self.push(BufferOp::Elementwise(ElementwiseOp {
                out: o,
                num_loops: n,
                ext,
                reads,
                code: Cow::Owned(code),
                code_loop_base: 0,
            }));
        }
        Ok(())
    }
}
