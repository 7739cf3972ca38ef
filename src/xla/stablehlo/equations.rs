//! Writes a program's equations in order; nested programs are written inline.

use super::writer::{Ssa, Writer};
use super::{Annotate, FaultResult, shardings::unmade_sum_axes, unsupported};
use crate::core::{ArrayType, Error, Result};
use crate::ir::program::{Control, CustomCall, Equation, Input, LoopNest, Op, Program};

impl Writer {
    /// Writes all equations of a program with these inputs, and returns its results.
    pub(super) fn body(&mut self, program: &Program, inputs: &[Ssa]) -> Result<Vec<Ssa>> {
        let mut env: Vec<Option<Ssa>> = vec![None; program.vars.len()];
        for (v, x) in program.inputs.iter().zip(inputs) {
            env[v.index()] = Some(x.clone());
        }
        for e in &program.equations {
            let ins = e.inputs.iter().map(|i| self.input(i, &env)).collect::<Result<Vec<_>>>()?;
            let outer = (self.location, self.scope.clone());
            self.location = e.location.or(outer.0);
            self.scope = e.scope.within(&outer.1);
            let outs = self.equation(program, e, &ins)?;
            let operands: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
            let sums = match &e.op {
                Op::Prim(p) => {
                    let results: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
                    let unmade = results.iter().any(|ty| !ty.spec.unreduced_axes().is_empty());
                    let product = |s: &LoopNest| s.compute.contracts();
                    unmade_sum_axes(
                        &operands,
                        &ins,
                        unmade && p.loop_nests(&operands, &results).iter().all(product),
                    )
                }
                // values that leave a `shard_map` unreduced have already been marked
                Op::Control(Control::ShardMap(_)) => outs.iter().flat_map(|x| x.unreduced.clone()).collect(),
                Op::Control(_) => Vec::new(),
            };
            for (v, x) in e.outputs.iter().zip(outs) {
                let info = &program.vars[v.index()];
                let said = self.annotated(x, &info.ty, info.placement.as_ref(), &sums);
                env[v.index()] = Some(said.map_err(|f| error_at(f, program, e))?);
            }
            (self.location, self.scope) = outer;
        }
        let outs = program.outputs.iter().map(|o| self.input(o, &env)).collect::<Result<Vec<_>>>()?;
        Ok(self.materialised(&outs))
    }
    fn input(&self, i: &Input, env: &[Option<Ssa>]) -> Result<Ssa> {
        match i {
            // a literal is written where it is used
            Input::Lit(l) => {
                Ok(Ssa { splat: Some(l.value), ..Ssa::named(String::new(), &l.dtype.array_type([])) })
            }
            Input::Var(v) => {
                env[v.index()].clone().ok_or_else(|| Error::internal("a value is read before it is made"))
            }
        }
    }
    fn equation(&mut self, program: &Program, e: &Equation, ins: &[Ssa]) -> Result<Vec<Ssa>> {
        let operands: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
        let results: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
        let whole = match &e.op {
            Op::Prim(p) => p.collective().is_some() || p.named_op(&operands).is_some(),
            Op::Control(_) => true,
        };
        let ins = &if whole { self.materialised(ins) } else { ins.to_vec() }[..];
        match &e.op {
            Op::Prim(p) => self.primitive(p, (&operands, &results), ins).map_err(|f| error_at(f, program, e)),
            Op::Control(Control::Jit { body, recomputes: true, .. }) => {
                // without a barrier, XLA finds the recomputed values in the forward pass
                let ins = self.optimization_barrier(ins);
                self.body(body, &ins)
            }
            Op::Control(
                Control::Jit { body, .. }
                | Control::AxisModes { body, .. }
                | Control::Custom(CustomCall { body, .. }),
            ) => self.body(body, ins),
            Op::Control(Control::Loop(l)) => self.for_loop(l, ins, &results),
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
                let heads = self.shard_map_heads(s, ins, &results).map_err(|f| error_at(f, program, e))?;
                self.shard_map(s, ins, &results, heads)
            }
            Op::Control(Control::Print { .. }) => {
                let fault = unsupported("prints have no StableHLO: no code of ours runs there")
                    .help("remove the print from the exported program, or return the value as a result");
                Err(error_at(fault, program, e))
            }
        }
    }
    fn primitive(
        &mut self,
        p: &crate::ir::program::Prim,
        (operands, results): (&[ArrayType], &[ArrayType]),
        ins: &[Ssa],
    ) -> FaultResult<Vec<Ssa>> {
        if let Some(c) = p.collective() {
            let mesh = results[0].mesh.clone().or_else(|| operands.first().and_then(|t| t.mesh.clone()));
            let mesh = mesh.ok_or_else(|| unsupported("a collective of values on no mesh"))?;
            return Ok(vec![self.collective(&c, &mesh, ins.first(), &results[0])?]);
        }
        let mut outs = match p.named_op(operands) {
            Some(known) => self.named_op(&known, results, ins)?,
            None => {
                let made = p.loop_nests(operands, results);
                made.iter().map(|s| self.loop_nest(s, ins)).collect::<FaultResult<Vec<_>>>()?
            }
        };
        if let Some(pin) = p.constraint() {
            let from = unmade_sum_axes(operands, ins, false);
            outs[0] = self.with_constraint(&outs[0].clone(), &pin, &results[0], &from)?;
        } else if let (Some(_), Annotate::Requested, Some(mesh)) =
            (p.out_sharding(), self.options.shardings, &results[0].mesh)
        {
            let open = self.open_dims(mesh, results[0].rank());
            let spec = results[0].spec.unreduced(crate::core::mesh::Axes::none());
            let at = self.spec(mesh, spec, &results[0], &open, super::shardings::UnevenPolicy::Open)?;
            outs[0] = self.constrained(&outs[0].clone(), mesh, &at);
        }
        Ok(outs)
    }
}

/// Attaches the user's source location and the operand types of an equation to a fault.
fn error_at(fault: crate::core::diagnostic::Fault, program: &Program, e: &Equation) -> Error {
    let name = match &e.op {
        Op::Prim(p) => p.name(),
        Op::Control(c) => c.name(),
    };
    let operands = e.inputs.iter().map(|i| program.input_type(i).to_string()).collect();
    Error::new(fault, name, operands, e.location)
}
