//! A program's equations in order, nested programs in line.

use super::shardings::sums;
use super::writer::{Ssa, Writer};
use super::{Out, Shardings, unsupported};
use crate::diagnostic::{Error, Result};
use crate::program::sentence::Sentence;
use crate::program::{Control, Equation, Input, Op, Program};
use crate::types::ArrayType;

impl Writer {
    /// All equations on these inputs; the results.
    pub(super) fn body(&mut self, program: &Program, inputs: &[Ssa]) -> Result<Vec<Ssa>> {
        let mut env: Vec<Option<Ssa>> = vec![None; program.vars.len()];
        for (v, x) in program.inputs.iter().zip(inputs) {
            env[v.index()] = Some(x.clone());
        }
        for e in &program.equations {
            let ins = e.inputs.iter().map(|i| self.input(i, &env)).collect::<Result<Vec<_>>>()?;
            let outer = self.place;
            self.place = e.place.or(outer);
            let outs = self.equation(program, e, &ins)?;
            let operands: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
            let sums = match &e.op {
                Op::Prim(p) => {
                    let results: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
                    let unmade = results.iter().any(|ty| !ty.spec.unreduced_axes().is_empty());
                    let product = |s: &Sentence| s.body.contracts();
                    sums(&operands, &ins, unmade && p.sentences(&operands, &results).iter().all(product))
                }
                // what leaves a region as parts is known so already
                Op::Control(Control::ShardMap(_)) => outs.iter().flat_map(|x| x.unreduced.clone()).collect(),
                Op::Control(_) => Vec::new(),
            };
            for (v, x) in e.outputs.iter().zip(outs) {
                let info = &program.vars[v.index()];
                let said = self.said(x, &info.ty, info.placement.as_ref(), &sums);
                env[v.index()] = Some(said.map_err(|f| located(f, program, e))?);
            }
            self.place = outer;
        }
        let outs = program.outputs.iter().map(|o| self.input(o, &env)).collect::<Result<Vec<_>>>()?;
        Ok(self.written(&outs))
    }
    fn input(&self, i: &Input, env: &[Option<Ssa>]) -> Result<Ssa> {
        match i {
            // a number is written where it is read
            Input::Lit(l) => Ok(Ssa { splat: Some(l.value), ..Ssa::named(String::new(), &l.dtype.of([])) }),
            Input::Var(v) => {
                env[v.index()].clone().ok_or_else(|| Error::internal("a value is read before it is made"))
            }
        }
    }
    fn equation(&mut self, program: &Program, e: &Equation, ins: &[Ssa]) -> Result<Vec<Ssa>> {
        let operands: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
        let results: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
        let whole = match &e.op {
            Op::Prim(p) => p.collective().is_some() || p.familiar(&operands).is_some(),
            Op::Control(_) => true,
        };
        let ins = &if whole { self.written(ins) } else { ins.to_vec() }[..];
        match &e.op {
            Op::Prim(p) => self.primitive(p, (&operands, &results), ins).map_err(|f| located(f, program, e)),
            Op::Control(Control::Jit { body, .. } | Control::Modes { body, .. }) => self.body(body, ins),
            Op::Control(Control::Loop(l)) => self.counted(l, ins, &results),
            Op::Control(Control::While { cond, body, cond_fixed, body_fixed }) => {
                let (fixed, carries) = ins.split_at(cond_fixed + body_fixed);
                let (cf, bf) = fixed.split_at(*cond_fixed);
                self.while_op(
                    carries,
                    |w, now| w.body(cond, &[cf, now].concat()),
                    |w, now| w.body(body, &[bf, now].concat()),
                )
            }
            Op::Control(Control::Cond { branches }) => self.cond(branches, ins, &results),
            Op::Control(Control::ShardMap(s)) => {
                let heads = self.shard_map_heads(s, ins, &results).map_err(|f| located(f, program, e))?;
                self.shard_map(s, ins, &results, heads)
            }
            Op::Control(Control::Print { .. }) => {
                let fault = unsupported("prints have no StableHLO: no code of ours runs there")
                    .help("take the print out of what is exported, or return the value as a result");
                Err(located(fault, program, e))
            }
        }
    }
    fn primitive(
        &mut self,
        p: &crate::program::Prim,
        (operands, results): (&[ArrayType], &[ArrayType]),
        ins: &[Ssa],
    ) -> Out<Vec<Ssa>> {
        if let Some(c) = p.collective() {
            let mesh = results[0].mesh.clone().or_else(|| operands.first().and_then(|t| t.mesh.clone()));
            let mesh = mesh.ok_or_else(|| unsupported("a collective of values on no mesh"))?;
            return Ok(vec![self.collective(&c, &mesh, ins.first(), &results[0])?]);
        }
        let mut outs = match p.familiar(operands) {
            Some(known) => self.familiar(&known, results, ins)?,
            None => {
                let made = p.sentences(operands, results);
                made.iter().map(|s| self.sentence(s, ins)).collect::<Out<Vec<_>>>()?
            }
        };
        if let Some(pin) = p.pins() {
            let from = sums(operands, ins, false);
            outs[0] = self.pinned(&outs[0].clone(), &pin, &results[0], &from)?;
        } else if let (Some(_), Shardings::Asked, Some(mesh)) =
            (p.out(), self.options.shardings, &results[0].mesh)
        {
            let open = self.open(mesh, results[0].rank());
            let spec = results[0].spec.unreduced(crate::mesh::Axes::none());
            let at = self.spec(mesh, spec, &results[0], &open, super::shardings::Uneven::Open)?;
            outs[0] = self.constrained(&outs[0].clone(), &at);
        }
        Ok(outs)
    }
}

/// The refusal at the user's line.
fn located(fault: crate::diagnostic::Fault, program: &Program, e: &Equation) -> Error {
    let name = match &e.op {
        Op::Prim(p) => p.name(),
        Op::Control(c) => c.name(),
    };
    let operands = e.inputs.iter().map(|i| program.input_type(i).to_string()).collect();
    Error::at(fault, name, operands, e.place)
}
