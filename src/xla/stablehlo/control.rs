//! Writes loops and branches.

use super::syntax::{join, list, tensor};
use super::writer::{Ssa, Writer, names, types};
use crate::core::{ArrayType, DType, Result, Scalar};
use crate::ir::program::{Loop, Program};
use std::sync::Arc;

impl Writer {
    /// Writes a `while` loop that runs as long as `cond`, which returns one value, is true.
    /// Its regions may use values from outside of the loop.
    pub(super) fn while_op(
        &mut self,
        carries: &[Ssa],
        cond: impl FnOnce(&mut Self, &[Ssa]) -> Result<Vec<Ssa>>,
        body: impl FnOnce(&mut Self, &[Ssa]) -> Result<Vec<Ssa>>,
    ) -> Result<Vec<Ssa>> {
        let shapes: Vec<_> = carries.iter().map(|c| (c.dtype, c.shape.clone())).collect();
        let now: Vec<Ssa> = carries.iter().map(|c| self.new_value(c.dtype, &c.shape)).collect();
        let (head, outs) = self.results(&shapes);
        let binds = join(now.iter().zip(carries).map(|(n, c)| format!("{} = {}", n.name, c.name)));
        self.fragment(&format!("{head}stablehlo.while({binds}) : {}", types(carries)));
        self.fragment("cond {");
        self.indented(|w| -> Result<()> {
            let go = cond(w, &now)?;
            w.terminator("stablehlo.return", &go);
            Ok(())
        })?;
        self.fragment("} do {");
        self.indented(|w| -> Result<()> {
            let next = body(w, &now)?;
            w.terminator("stablehlo.return", &next);
            Ok(())
        })?;
        self.line("}");
        Ok(outs)
    }

    /// Writes a loop of known length as a `while` loop with a counter.
    /// In each iteration, slices of the scanned arrays are read at the counter, and stacked results
    /// are updated there.
    pub(super) fn for_loop(&mut self, l: &Loop, ins: &[Ssa], results: &[ArrayType]) -> Result<Vec<Ssa>> {
        let parts = l.split_operands(ins);
        let mut state = vec![self.int(DType::I32, 0, &[])];
        state.extend(parts.carry.iter().cloned());
        for ty in &results[l.carry..] {
            let d = ty.dtype.storage();
            let zero = self.constant(d, Scalar::zero(d), &ty.shape);
            let zero = Ssa { splat: None, ..zero };
            state.push(self.annotated(zero, ty, None, &[])?);
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
                    w.elementwise("subtract", &[&last, &now[0]])
                } else {
                    now[0].clone()
                };
                let start = w.int(DType::I32, l.start, &[]);
                let mut inner = vec![w.elementwise("add", &[&at, &start])];
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
                let mut next = vec![w.elementwise("add", &[&now[0], &one])];
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

    /// Writes a barrier, across which XLA moves and merges no operation, and returns its results.
    pub(super) fn optimization_barrier(&mut self, values: &[Ssa]) -> Vec<Ssa> {
        if values.is_empty() {
            return Vec::new();
        }
        let shapes: Vec<_> = values.iter().map(|v| (v.dtype, v.shape.clone())).collect();
        let (head, outs) = self.results(&shapes);
        self.line(&format!("{head}stablehlo.optimization_barrier {} : {}", names(values), types(values)));
        let with = |(out, v): (Ssa, &Ssa)| Ssa { unreduced: v.unreduced.clone(), ..out };
        outs.into_iter().zip(values).map(with).collect()
    }
    /// Writes a choice between several programs, by a bool or an integer.
    /// For a bool, branch 0 is that of true. An integer is clamped to the branches.
    pub(super) fn cond(
        &mut self,
        branches: &[Arc<Program>],
        ins: &[Ssa],
        results: &[ArrayType],
    ) -> Result<Vec<Ssa>> {
        let shapes: Vec<_> = results.iter().map(|t| (t.dtype, t.shape.to_vec())).collect();
        let (mut which, op) = (ins[0].clone(), if ins[0].dtype == DType::Bool { "if" } else { "case" });
        if op == "case" {
            // StableHLO takes the last branch for any index out of bounds, so clamp it first
            let (zero, last) =
                (self.int(DType::I32, 0, &[]), self.int(DType::I32, branches.len() as i64 - 1, &[]));
            let text = format!("stablehlo.clamp {} : {}", names([&zero, &which, &last]), which.ty());
            which = self.op(text, DType::I32, &[]);
        }
        let (head, outs) = self.results(&shapes);
        self.fragment(&format!("{head}\"stablehlo.{op}\"({}) ({{", which.name));
        for (k, b) in branches.iter().enumerate() {
            if k > 0 {
                self.fragment("}, {");
            }
            self.indented(|w| -> Result<()> {
                let outs = w.body(b, &ins[1..])?;
                w.terminator("stablehlo.return", &outs);
                Ok(())
            })?;
        }
        let results = join(shapes.iter().map(|(d, s)| tensor(*d, s)));
        self.line(&format!("}}) : ({}) -> ({results})", which.ty()));
        Ok(outs)
    }
}

/// Returns the start indices of a slice: `at` along the first dimension, and zero along the others.
fn starts<'a>(at: &'a Ssa, zero: &'a Ssa, rank: usize) -> impl Iterator<Item = &'a Ssa> {
    std::iter::once(at).chain(std::iter::repeat_n(zero, rank - 1))
}
