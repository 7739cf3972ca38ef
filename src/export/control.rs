//! Loops and branches.

use super::text::{join, list, tensor};
use super::writer::{Ssa, Writer, names, types};
use crate::diagnostic::Result;
use crate::program::{Loop, Program};
use crate::types::{ArrayType, DType, Scalar};
use std::sync::Arc;

impl Writer {
    /// A loop while `cond` (one value) holds; regions see what is outside.
    pub(super) fn while_op(
        &mut self,
        carries: &[Ssa],
        cond: impl FnOnce(&mut Self, &[Ssa]) -> Result<Vec<Ssa>>,
        body: impl FnOnce(&mut Self, &[Ssa]) -> Result<Vec<Ssa>>,
    ) -> Result<Vec<Ssa>> {
        let shapes: Vec<_> = carries.iter().map(|c| (c.dtype, c.shape.clone())).collect();
        let now: Vec<Ssa> = carries.iter().map(|c| self.bound(c.dtype, &c.shape)).collect();
        let (head, outs) = self.results(&shapes);
        let binds = join(now.iter().zip(carries).map(|(n, c)| format!("{} = {}", n.name, c.name)));
        self.part(&format!("{head}stablehlo.while({binds}) : {}", types(carries)));
        self.part("cond {");
        self.inside(|w| -> Result<()> {
            let go = cond(w, &now)?;
            w.ret("stablehlo.return", &go);
            Ok(())
        })?;
        self.part("} do {");
        self.inside(|w| -> Result<()> {
            let next = body(w, &now)?;
            w.ret("stablehlo.return", &next);
            Ok(())
        })?;
        self.line("}");
        Ok(outs)
    }

    /// A loop of known length counts its steps; slices of arrays are taken and results stacked at the count.
    pub(super) fn counted(&mut self, l: &Loop, ins: &[Ssa], results: &[ArrayType]) -> Result<Vec<Ssa>> {
        let parts = l.parts(ins);
        let mut state = vec![self.int(DType::I32, 0, &[])];
        state.extend(parts.carry.iter().cloned());
        for ty in &results[l.carry..] {
            let d = ty.dtype.storage();
            let zero = self.constant(d, Scalar::zero(d), &ty.shape);
            let zero = Ssa { splat: None, ..zero };
            state.push(self.said(zero, ty, None, &[])?);
        }
        let outs = self.while_op(
            &state,
            |w, now| {
                let n = w.int(DType::I32, l.length as i64, &[]);
                Ok(vec![w.compare("LT", &now[0], &n)])
            },
            |w, now| {
                let at = if l.reverse {
                    let last = w.int(DType::I32, l.length as i64 - 1, &[]);
                    w.same("subtract", &[&last, &now[0]])
                } else {
                    now[0].clone()
                };
                let start = w.int(DType::I32, l.start, &[]);
                let mut inner = vec![w.same("add", &[&at, &start])];
                inner.extend(parts.fixed.iter().cloned());
                inner.extend(now[1..=l.carry].iter().cloned());
                let zero = w.int(DType::I32, 0, &[]);
                for x in &parts.xs {
                    let mut one = x.shape.clone();
                    one[0] = 1;
                    let starts = names(starts(&at, &zero, one.len()));
                    let text =
                        format!("stablehlo.dynamic_slice {}, {starts}, sizes = {}", x.name, list(&one));
                    let args: Vec<&Ssa> = std::iter::once(x).chain(one.iter().map(|_| &at)).collect();
                    let slice = w.typed(&text, &args, x.dtype, &one);
                    inner.push(w.reshape(&slice, &x.shape[1..]));
                }
                let outs = w.body(&l.body, &inner)?;
                let one = w.int(DType::I32, 1, &[]);
                let mut next = vec![w.same("add", &[&now[0], &one])];
                next.extend(outs[..l.carry].iter().cloned());
                for (all, x) in now[1 + l.carry..].iter().zip(&outs[l.carry..]) {
                    let mut slab = all.shape.clone();
                    slab[0] = 1;
                    let x = w.reshape(x, &slab);
                    let starts = names(starts(&at, &zero, slab.len()));
                    let text = format!("stablehlo.dynamic_update_slice {}, {}, {starts}", all.name, x.name);
                    let args: Vec<&Ssa> = [all, &x].into_iter().chain(slab.iter().map(|_| &at)).collect();
                    next.push(w.typed(&text, &args, all.dtype, &all.shape));
                }
                Ok(next)
            },
        )?;
        Ok(outs[1..].to_vec())
    }

    /// One of several programs, by a bool (0 is true's) or by a number, which is cut to those that there are.
    pub(super) fn cond(
        &mut self,
        branches: &[Arc<Program>],
        ins: &[Ssa],
        results: &[ArrayType],
    ) -> Result<Vec<Ssa>> {
        let shapes: Vec<_> = results.iter().map(|t| (t.dtype, t.shape.to_vec())).collect();
        let (mut which, op) = (ins[0].clone(), if ins[0].dtype == DType::Bool { "if" } else { "case" });
        if op == "case" {
            // StableHLO takes the last one for any number beyond
            let (zero, last) =
                (self.int(DType::I32, 0, &[]), self.int(DType::I32, branches.len() as i64 - 1, &[]));
            let text = format!("stablehlo.clamp {} : {}", names([&zero, &which, &last]), which.ty());
            which = self.op(text, DType::I32, &[]);
        }
        let (head, outs) = self.results(&shapes);
        self.part(&format!("{head}\"stablehlo.{op}\"({}) ({{", which.name));
        for (k, b) in branches.iter().enumerate() {
            if k > 0 {
                self.part("}, {");
            }
            self.inside(|w| -> Result<()> {
                let outs = w.body(b, &ins[1..])?;
                w.ret("stablehlo.return", &outs);
                Ok(())
            })?;
        }
        let results = join(shapes.iter().map(|(d, s)| tensor(*d, s)));
        self.line(&format!("}}) : ({}) -> ({results})", which.ty()));
        Ok(outs)
    }
}

/// The count along the first of so many dimensions.
fn starts<'a>(at: &'a Ssa, zero: &'a Ssa, rank: usize) -> impl Iterator<Item = &'a Ssa> {
    std::iter::once(at).chain(std::iter::repeat_n(zero, rank - 1))
}
