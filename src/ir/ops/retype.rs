//! Infers the types of a program again, for inputs that vary over more manual axes.
//!
//! A conditional whose selector varies over manual axes is typed by this: devices along these axes
//! may take different branches, so what a branch reads and what it returns varies over them. The
//! equations keep their operations; a cast to varying of a value that varies already is left out.

use super::collective::{Pcast, PcastTo};
use crate::core::{ArrayType, Axes, DType, ErrorKind, Fault, Mesh, Result};
use crate::ir::program::{
    Builder, Control, CustomCall, DerivativeRule, Env, Equation, Loop, Op, Program, Value,
    typing::cotangent_type,
};
use std::sync::Arc;

/// Returns `ty` as a type that varies over these axes too, and is not reduced over them.
pub(crate) fn varying_over(ty: &ArrayType, axes: &Axes, mesh: &Mesh) -> ArrayType {
    if axes.is_subset_of(&ty.varying) {
        return ty.clone();
    }
    let own = ty.mesh.as_ref().unwrap_or(mesh);
    let varying = own.in_order(ty.varying.iter().chain(axes));
    let spec = ty.spec.reduced(ty.spec.reduced_axes().without(axes));
    ArrayType { mesh: Some(own.clone()), spec, varying, ..ty.clone() }
}

/// Returns `ty` changed as `from` was changed to `to`: it varies over the same additional axes.
fn changed_like(ty: &ArrayType, from: &ArrayType, to: &ArrayType) -> ArrayType {
    let more = to.varying.without(&from.varying);
    let Some(mesh) = &to.mesh else { return ty.clone() };
    varying_over(ty, &more, mesh)
}

/// Returns the program for inputs that are changed as the types `from` were changed to `to`.
fn retype_body(body: &Program, from: &[ArrayType], to: &[ArrayType]) -> Result<Program> {
    let types = body
        .inputs
        .iter()
        .zip(from.iter().zip(to))
        .map(|(v, (from, to))| changed_like(body.ty(*v), from, to));
    let (b, outs) = retyped(body, types)?;
    Ok(b.finish(&outs))
}

/// Records the program in a new builder, for inputs of these types.
fn retyped(body: &Program, types: impl Iterator<Item = ArrayType>) -> Result<(Builder, Vec<Value>)> {
    let mut b = Builder::new();
    if let Some(mesh) = &body.mesh {
        b.set_default_mesh(mesh);
    }
    let ins: Vec<Value> = types.map(|ty| b.input(ty, None)).collect();
    let outs = b.inline_retyped(body, &ins)?;
    Ok((b, outs))
}

/// Returns the program with results that vary over these axes too.
fn vary_outputs(body: Program, axes: &[Axes], mesh: &Mesh) -> Result<Program> {
    if body.output_types().iter().zip(axes).all(|(ty, axes)| axes.is_subset_of(&ty.varying)) {
        return Ok(body);
    }
    let types: Vec<ArrayType> = body.inputs.iter().map(|v| body.ty(*v).clone()).collect();
    let (mut b, mut outs) = retyped(&body, types.into_iter())?;
    for (out, axes) in outs.iter_mut().zip(axes) {
        *out = b.vary(out, mesh, axes)?;
    }
    Ok(b.finish(&outs))
}

/// Returns a branch of a conditional whose selector varies over `axes`.
///
/// All inputs and results vary over these axes.
pub(crate) fn varying_branch(branch: &Program, axes: &Axes, mesh: &Mesh) -> Result<Program> {
    let types = branch.inputs.iter().map(|v| varying_over(branch.ty(*v), axes, mesh));
    let (b, outs) = retyped(branch, types)?;
    let all = vec![axes.clone(); outs.len()];
    vary_outputs(b.finish(&outs), &all, mesh)
}

/// The types of an equation's operands and results before they changed.
struct RecordedTypes {
    operands: Vec<ArrayType>,
    results: Vec<ArrayType>,
}

impl Builder {
    /// Casts a value to varying over the axes over which it does not vary yet.
    pub(crate) fn vary(&mut self, x: &Value, mesh: &Mesh, axes: &Axes) -> Result<Value> {
        let lacks = axes.without(&x.ty.varying);
        let parts: Axes = lacks.iter().filter(|a| x.ty.spec.unreduced_axes().contains(*a)).collect();
        if !parts.is_empty() {
            let message = format!(
                "{} is unreduced over {parts}, over which devices may take different branches: each of its \
                 partial values belongs to all devices",
                x.ty
            );
            let help = format!("sum it first: `.psum({})`", parts.quoted());
            return Err(self.error(Fault::new(ErrorKind::Varying, message).help(help), "", &[]));
        }
        let (reduced, plain): (Vec<_>, Vec<_>) =
            lacks.iter().partition(|a| x.ty.spec.reduced_axes().contains(*a));
        let x = self.pcast(x, mesh, reduced, PcastTo::Varying)?;
        self.pcast(&x, mesh, plain, PcastTo::Varying)
    }

    /// Inlines the equations of `program` with inputs that may vary over more manual axes.
    ///
    /// The types of all results follow from those of the inputs.
    pub(crate) fn inline_retyped(&mut self, program: &Program, inputs: &[Value]) -> Result<Vec<Value>> {
        let mut env = Env::new(program, inputs.iter().cloned());
        let outer = self.context().clone();
        for e in &program.equations {
            self.set_context(outer.of(e));
            let ins = env.get_all(&e.inputs);
            let was = RecordedTypes {
                operands: e.inputs.iter().map(|i| program.input_type(i)).collect(),
                results: e.outputs.iter().map(|v| program.ty(*v).clone()).collect(),
            };
            let before = self.program().equations.len();
            let outs = if ins.iter().zip(&was.operands).all(|(v, ty)| v.ty == *ty) {
                self.push(e.op.clone(), &ins, was.results)
            } else {
                self.retype_equation(e, &ins, &was)?
            };
            if self.program().equations.len() > before {
                self.name_last(e.name.clone());
            }
            env.bind(&e.outputs, outs);
        }
        self.set_context(outer);
        Ok(env.get_all(&program.outputs))
    }

    fn retype_equation(&mut self, e: &Equation, ins: &[Value], was: &RecordedTypes) -> Result<Vec<Value>> {
        let control = match &e.op {
            Op::Prim(prim) => {
                return match prim.downcast_ref::<Pcast>() {
                    Some(Pcast { group, to: PcastTo::Varying }) if group.checked => {
                        Ok(vec![self.vary(&ins[0], &group.mesh, &group.axes)?])
                    }
                    _ => self.emit(prim.clone(), ins),
                };
            }
            Op::Control(control) => control,
        };
        match control {
            Control::Loop(l) => self.retype_loop(l, ins, was),
            Control::While { .. } => self.retype_while(control, ins, was),
            Control::Cond { branches } => self.retype_cond(branches, ins, was),
            Control::Print { .. } => Ok(self.control(control.clone(), ins, Vec::new())),
            Control::Jit { body, .. } | Control::AxisModes { body, .. } => {
                self.retype_call(control, body, ins, was)
            }
            Control::ShardMap(m) => self.retype_call(control, &m.body, ins, was),
            Control::Custom(call) => self.retype_custom(call, ins, was),
        }
    }

    /// Emits a call of one program with operands of other types.
    fn retype_call(
        &mut self,
        control: &Control,
        body: &Program,
        ins: &[Value],
        was: &RecordedTypes,
    ) -> Result<Vec<Value>> {
        let new = retype_body(body, &was.operands, &types_of(ins))?;
        let outs = body.output_types().into_iter().zip(new.output_types());
        let types =
            was.results.iter().zip(outs).map(|(ty, (from, to))| changed_like(ty, &from, &to)).collect();
        let mut control = control.clone();
        for body in control.bodies_mut() {
            *body = Arc::new(new.clone());
        }
        Ok(self.control(control, ins, types))
    }

    /// Emits a call with a rule with operands of other types. A result varies over the axes over
    /// which the function or its rule makes it vary.
    fn retype_custom(&mut self, call: &CustomCall, ins: &[Value], was: &RecordedTypes) -> Result<Vec<Value>> {
        let to = types_of(ins);
        let Some(mesh) = to.iter().find_map(|ty| ty.mesh.clone()) else {
            return Ok(self.control(Control::Custom(call.clone()), ins, was.results.clone()));
        };
        let (n, m) = (call.arguments.len(), was.results.len());
        let inexact: Vec<usize> = (0..m).filter(|k| was.results[*k].dtype.is_inexact()).collect();
        // the result to which output j of the rule belongs; residuals belong to none
        let (rule, result_of): (Program, Vec<Option<usize>>) = match &call.rule {
            DerivativeRule::Jvp(rule) => {
                let takes = |all: &[ArrayType]| [&all[..n], &inexact_types(&all[..n]), &all[n..]].concat();
                let rule = retype_body(rule, &takes(&was.operands), &takes(&to))?;
                (rule, (0..m).chain(inexact.iter().copied()).map(Some).collect())
            }
            DerivativeRule::Vjp { forward: rule, .. } | DerivativeRule::Reversible(rule) => {
                let of = (0..rule.outputs.len()).map(|j| (j < m).then_some(j)).collect();
                (retype_body(rule, &was.operands, &to)?, of)
            }
        };
        let body = retype_body(&call.body, &was.operands, &to)?;
        let mut results = body.output_types();
        for (ty, of) in rule.output_types().iter().zip(&result_of) {
            if let Some(k) = *of {
                results[k] = varying_over(&results[k], &ty.varying, &mesh);
            }
        }
        let made = rule.output_types();
        let axes: Vec<Axes> = made
            .iter()
            .zip(&result_of)
            .map(|(ty, of)| of.map_or(&ty.varying, |k| &results[k].varying).clone())
            .collect();
        let body = Arc::new(vary_outputs(body, &axes[..m], &mesh)?);
        let rule = Arc::new(vary_outputs(rule, &axes, &mesh)?);
        let rule = match &call.rule {
            DerivativeRule::Reversible(_) => DerivativeRule::Reversible(rule),
            DerivativeRule::Jvp(_) => DerivativeRule::Jvp(rule),
            DerivativeRule::Vjp { forward, backward } => {
                let takes = |kept: &[ArrayType], results: &[ArrayType], operands: &[ArrayType]| {
                    let cotangents = inexact_types(results).iter().map(cotangent_type).collect();
                    [kept.to_vec(), cotangents, operands[n..].to_vec()].concat()
                };
                let before = takes(&forward.output_types()[m..], &was.results, &was.operands);
                let backward = retype_body(backward, &before, &takes(&made[m..], &results, &to))?;
                DerivativeRule::Vjp { forward: rule, backward: Arc::new(backward) }
            }
        };
        Ok(self.control(Control::Custom(CustomCall { body, rule, ..call.clone() }), ins, results))
    }

    /// Emits a loop with operands of other types. A carry varies over the axes over which its next
    /// value varies.
    fn retype_loop(&mut self, l: &Loop, ins: &[Value], was: &RecordedTypes) -> Result<Vec<Value>> {
        let index = DType::I32.array_type([]);
        let with_index = |types: &[ArrayType]| [std::slice::from_ref(&index), types].concat();
        let mut types = types_of(ins);
        let body = loop {
            let body = retype_body(&l.body, &with_index(&was.operands), &with_index(&types))?;
            let carries = &mut types[l.fixed..l.fixed + l.carry];
            if !grow_carries(carries, &body.output_types()) {
                break body;
            }
        };
        let carries = types[l.fixed..l.fixed + l.carry].to_vec();
        let (body, operands) = match carries.iter().chain(&types).find_map(|ty| ty.mesh.clone()) {
            Some(mesh) => {
                let axes: Vec<Axes> = carries.iter().map(|ty| ty.varying.clone()).collect();
                (vary_outputs(body, &axes, &mesh)?, self.vary_all(ins, &types, &mesh)?)
            }
            None => (body, ins.to_vec()),
        };
        let outs = l.body.output_types().into_iter().zip(body.output_types()).skip(l.carry);
        let stacked = was.results[l.carry..].iter().zip(outs);
        let stacked = stacked.map(|(ty, (from, to))| changed_like(ty, &from, &to));
        let results = carries.into_iter().chain(stacked).collect();
        Ok(self.control(Control::Loop(Loop { body: Arc::new(body), ..l.clone() }), &operands, results))
    }

    /// Emits a `while` loop with operands of other types. A carry varies over the axes over which
    /// its next value or the condition varies.
    fn retype_while(&mut self, w: &Control, ins: &[Value], was: &RecordedTypes) -> Result<Vec<Value>> {
        let Control::While { cond, body, cond_fixed, body_fixed } = w else {
            unreachable!("called for while loops only")
        };
        let start = cond_fixed + body_fixed;
        let mut types = types_of(ins);
        let (test, step) = loop {
            let for_cond = |t: &[ArrayType]| [&t[..*cond_fixed], &t[start..]].concat();
            let for_body = |t: &[ArrayType]| t[*cond_fixed..].to_vec();
            let test = retype_body(cond, &for_cond(&was.operands), &for_cond(&types))?;
            let step = retype_body(body, &for_body(&was.operands), &for_body(&types))?;
            let holds = &test.output_types()[0];
            let next: Vec<ArrayType> =
                step.output_types().iter().map(|ty| changed_like(ty, ty, holds)).collect();
            if !grow_carries(&mut types[start..], &next) {
                break (test, step);
            }
        };
        let carries = types[start..].to_vec();
        let (step, operands) = match types.iter().find_map(|ty| ty.mesh.clone()) {
            Some(mesh) => {
                let axes: Vec<Axes> = carries.iter().map(|ty| ty.varying.clone()).collect();
                (vary_outputs(step, &axes, &mesh)?, self.vary_all(ins, &types, &mesh)?)
            }
            None => (step, ins.to_vec()),
        };
        let control = Control::While {
            cond: Arc::new(test),
            body: Arc::new(step),
            cond_fixed: *cond_fixed,
            body_fixed: *body_fixed,
        };
        Ok(self.control(control, &operands, carries))
    }

    /// Emits a conditional with operands of other types. All operands and results vary over the
    /// axes over which the selector varies.
    fn retype_cond(
        &mut self,
        branches: &[Arc<Program>],
        ins: &[Value],
        was: &RecordedTypes,
    ) -> Result<Vec<Value>> {
        let Some(mesh) = ins.iter().find_map(|v| v.ty.mesh.clone()) else {
            let control = Control::Cond { branches: branches.to_vec() };
            return Ok(self.control(control, ins, was.results.clone()));
        };
        let chosen_by = &ins[0].ty.varying;
        let mut operands = vec![ins[0].clone()];
        for v in &ins[1..] {
            operands.push(self.vary(v, &mesh, chosen_by)?);
        }
        let types = types_of(&operands[1..]);
        let new = branches.iter().map(|p| retype_body(p, &was.operands[1..], &types));
        let new: Vec<Program> = new.collect::<Result<_>>()?;
        let mut axes = vec![chosen_by.clone(); was.results.len()];
        for (k, axes) in axes.iter_mut().enumerate() {
            let each =
                new.iter().flat_map(|p| p.input_type(&p.outputs[k]).varying.iter().collect::<Vec<_>>());
            *axes = mesh.in_order(&axes.iter().chain(each).collect::<Axes>());
        }
        let new = new.into_iter().map(|p| Ok(Arc::new(vary_outputs(p, &axes, &mesh)?)));
        let branches: Vec<Arc<Program>> = new.collect::<Result<_>>()?;
        let types = branches.first().map(|p| p.output_types()).unwrap_or_default();
        Ok(self.control(Control::Cond { branches }, &operands, types))
    }

    /// Casts values to vary over the axes over which these types vary.
    fn vary_all(&mut self, values: &[Value], types: &[ArrayType], mesh: &Mesh) -> Result<Vec<Value>> {
        values.iter().zip(types).map(|(v, ty)| self.vary(v, mesh, &ty.varying)).collect()
    }
}

/// Returns the types that have tangents.
fn inexact_types(types: &[ArrayType]) -> Vec<ArrayType> {
    types.iter().filter(|ty| ty.dtype.is_inexact()).cloned().collect()
}

fn types_of(values: &[Value]) -> Vec<ArrayType> {
    values.iter().map(|v| v.ty.clone()).collect()
}

/// Makes carries vary over the axes over which their next values vary, and returns true if any
/// carry changed.
fn grow_carries(carries: &mut [ArrayType], next: &[ArrayType]) -> bool {
    let mut grown = false;
    for (carry, next) in carries.iter_mut().zip(next) {
        let more = changed_like(carry, carry, next);
        grown |= more != *carry;
        *carry = more;
    }
    grown
}
