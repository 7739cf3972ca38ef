//! Differentiates by rules of the user: custom operations, and calls with a rule.
//!
//! A rule for cotangents maps them backward. In reverse mode the linear program has a placeholder,
//! [`CustomLin`], whose transpose is the rule. Forward mode transposes the rule instead: it is
//! linear in the cotangents, so its transpose maps tangents forward. If the rule contains an
//! operation that has no transpose, this fails, and the error suggests reverse mode.
//!
//! A rule for tangents is linear in them, so its derivative with respect to the tangents, at zero,
//! is the rule itself. This derivative is taken like any other, in both modes; it has no tangent
//! where an argument has none, and control operations in the rule are split for reverse mode.

use super::Jvp;
use super::call::is_present;
use super::jvp::{JvpOp, PrimalsAndTangents, Style, inline_jvp, jvp};
use super::transpose::{CotangentExit, transpose};
use super::util::{extend_program, input_types};
use crate::core::{ArrayType, Error, ErrorKind, Fault, Result};
use crate::ir::ops::custom::{BackwardProgram, CustomLin, CustomPrim};
use crate::ir::program::dce::{dce, retain_outputs, select, used_inputs};
use crate::ir::program::typing::agree::{
    changed_at, first_difference, mark_difference, suggest_conversion, unify,
};
use crate::ir::program::{
    Builder, Control, CustomCall, DerivativeRule, Env, Equation, JvpArgs, Op, Program, Tangents, Value,
    typing::cotangent_type,
};
use std::sync::Arc;

/// Returns the tangents of the results of a custom operation in forward mode.
pub(super) fn jvp_custom(prim: &CustomPrim, args: JvpArgs<'_>) -> Result<Tangents> {
    let JvpArgs { builder: b, operands, tangents, outputs } = args;
    let float = |v: &&Value| v.ty.dtype.is_float();
    if !outputs.iter().any(|v| float(&v)) {
        return Ok(vec![None; outputs.len()]);
    }
    let active: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let back = prim.backward_program(b, operands, outputs, &active)?;
    let all: Vec<&Value> = operands.iter().chain(outputs).collect();
    let residuals: Vec<Value> = back.residuals.iter().map(|k| all[*k].clone()).collect();
    let given: Vec<Value> = tangents.iter().flatten().cloned().collect();
    let name = prim.declaration.name;
    let mut made = tangents_by_transpose(b, name, &back.program, &residuals, &given)?.into_iter();
    Ok(outputs.iter().map(|v| if float(&v) { made.next().flatten() } else { None }).collect())
}

/// Returns the tangents that the transpose of a backward program computes: one for each cotangent
/// that the program takes.
fn tangents_by_transpose(
    b: &mut Builder,
    name: &str,
    back: &Program,
    residuals: &[Value],
    tangents: &[Value],
) -> Result<Tangents> {
    let is_linear: Vec<bool> = (0..back.inputs.len()).map(|k| k >= residuals.len()).collect();
    let given = vec![true; back.outputs.len()];
    let turned = transpose(back, &is_linear, &given, &|_| CotangentExit::Fitted).map_err(|why| {
        let text = format!("the derivative of {name} goes backward only: its rule cannot be transposed");
        let message = why.diagnostics().first().map_or("", |d| &d.fault.message);
        let fault = Fault::new(ErrorKind::Unsupported, text)
            .help(format!("{message}: write the rule so that each operation is linear in the cotangents"))
            .help("or use `grad` or `vjp`");
        b.error(fault, name, residuals)
    })?;
    let mut inputs: Vec<Value> = residuals.to_vec();
    for t in tangents {
        let ty = turned.program.ty(turned.program.inputs[inputs.len()]).clone();
        inputs.push(b.fit_to_type(t, &ty)?);
    }
    let mut made = b.inline(&turned.program, &inputs).into_iter();
    Ok(turned.reached.iter().map(|reached| if *reached { made.next() } else { None }).collect())
}

/// Differentiates a call with a rule.
pub(super) fn jvp_call(b: &mut Builder, call: &CustomCall, op: JvpOp<'_>) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, style, .. } = op;
    match &call.rule {
        DerivativeRule::Reversible(program) => {
            let program = if style == Style::Split { program } else { &call.body };
            inline_jvp(b, program, ins, tangents, style)
        }
        DerivativeRule::Jvp(rule) => {
            check_captures(b, call, op)?;
            jvp_by_tangents(b, call, rule, op)
        }
        DerivativeRule::Vjp { forward, backward } => {
            check_captures(b, call, op)?;
            jvp_by_cotangents(b, call, (forward, backward), op)
        }
    }
}

/// Returns an error if a captured value has a tangent.
fn check_captures(b: &Builder, call: &CustomCall, op: JvpOp<'_>) -> Result<()> {
    let (n, name) = (call.arguments.len(), call.name());
    let Some(k) = (n..op.ins.len()).find(|k| op.tangents[*k].is_some()) else { return Ok(()) };
    let ty = &op.ins[k].ty;
    let message = "it captures a value by which it is differentiated, and its rule is for arguments only";
    let fault = Fault::new(ErrorKind::Unsupported, message)
        .help(format!("the captured value is {ty}: pass it as an argument, `{name}((&x, &w), |(x, w)| ..)`"))
        .help("or hold it constant: `.stop_gradient()`");
    Err(b.error(fault, name, &op.ins[..n]))
}

/// Marks the values that have tangents.
fn is_inexact(types: &[ArrayType]) -> Vec<bool> {
    types.iter().map(|ty| ty.dtype.is_inexact()).collect()
}

/// Gives the results that have tangents their tangents, in order.
fn spread_inexact(types: &[ArrayType], tangents: Tangents) -> Tangents {
    let mut tangents = tangents.into_iter();
    let next = |ty: &ArrayType| if ty.dtype.is_inexact() { tangents.next().flatten() } else { None };
    types.iter().map(next).collect()
}

/// Differentiates a call by its rule for tangents.
fn jvp_by_tangents(
    b: &mut Builder,
    call: &CustomCall,
    rule: &Program,
    op: JvpOp<'_>,
) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, types, style } = op;
    let (n, m) = (call.arguments.len(), types.len());
    let argument_types: Vec<ArrayType> = ins[..n].iter().map(|v| v.ty.clone()).collect();
    let active = select(&is_present(&tangents[..n]), &is_inexact(&argument_types));
    let (count, captures) = (active.len(), ins.len() - n);
    let flags = [&vec![false; n][..], &active, &vec![false; captures]].concat();
    let Jvp { program, tangents: has } = jvp(rule, &flags, style)?;
    // the results, and the derivatives of their tangents with respect to the tangents
    let of_tangents = has.iter().enumerate().filter(|(_, has)| **has).map(|(k, _)| k >= m);
    let requested: Vec<bool> = (0..rule.outputs.len()).map(|k| k < m).chain(of_tangents).collect();
    let mut program = retain_outputs(&program, &requested);
    let reads = used_inputs(&program)[n..n + count].contains(&true);
    if reads || has[..m].contains(&true) {
        let message = "the rule is not linear in the tangents";
        let fault = Fault::new(ErrorKind::Unsupported, message)
            .help("sum up the tangents of the arguments, each multiplied by values that do not depend on tangents")
            .help("the result itself must not depend on tangents");
        return Err(b.error(fault, call.name(), &ins[..n]));
    }
    program.inputs.drain(n..n + count);
    let given: Vec<Value> = ins.iter().chain(tangents[..n].iter().flatten()).cloned().collect();
    let mut outs = b.inline(&program, &given);
    let mut made = outs.split_off(m).into_iter();
    let made = has[m..].iter().map(|has| if *has { made.next() } else { None }).collect();
    Ok((outs, spread_inexact(types, made)))
}

/// Differentiates a call by its rule for cotangents: a forward and a backward program.
fn jvp_by_cotangents(
    b: &mut Builder,
    call: &CustomCall,
    (forward, backward): (&Program, &Program),
    op: JvpOp<'_>,
) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, types, style } = op;
    let n = call.arguments.len();
    check_cotangents(b, call, backward, &ins[..n])?;
    let backward = &fit_varying(backward, &ins[..n])?;
    let mut outs = b.inline(forward, ins);
    let residuals = outs.split_off(types.len());
    let result_types = select(types, &is_inexact(types));
    if result_types.is_empty() {
        return Ok((outs, vec![None; types.len()]));
    }
    let argument_types: Vec<ArrayType> = ins[..n].iter().map(|v| v.ty.clone()).collect();
    let requested = select(&is_present(&tangents[..n]), &is_inexact(&argument_types));
    let mut program = dce(&retain_outputs(backward, &requested));
    // the placeholder takes what it does not map first: the residuals and captured values
    let cotangents: Vec<_> =
        program.inputs.drain(residuals.len()..residuals.len() + result_types.len()).collect();
    let used = used_inputs(&program);
    let known: Vec<Value> = residuals.into_iter().chain(ins[n..].iter().cloned()).collect();
    let known = select(&known, &used);
    program.inputs = select(&program.inputs, &used).into_iter().chain(cotangents).collect();
    let given: Vec<Value> = tangents[..n].iter().flatten().cloned().collect();
    let made = match style {
        Style::Fused => tangents_by_transpose(b, call.name(), &program, &known, &given)?,
        Style::Split => {
            let residuals = (0..known.len()).collect();
            let backward = BackwardProgram { program: Arc::new(program), residuals };
            let placeholder = CustomLin { name: call.name(), backward, types: result_types };
            let made = b.emit(Arc::new(placeholder), &[known, given].concat())?;
            made.into_iter().map(Some).collect()
        }
    };
    Ok((outs, spread_inexact(types, made)))
}

/// Compares the cotangents that a backward rule returns with the types of the arguments.
///
/// A cotangent may vary over fewer axes than its argument, and may be unplaced if its argument is
/// replicated.
fn check_cotangents(b: &Builder, call: &CustomCall, backward: &Program, arguments: &[Value]) -> Result<()> {
    let named = call.arguments.iter().zip(arguments).filter(|(_, v)| v.ty.dtype.is_inexact());
    let mut errors: Vec<Error> = Vec::new();
    for (k, (is, (name, argument))) in backward.output_types().into_iter().zip(named).enumerate() {
        let expected = cotangent_type(&argument.ty);
        let mut fitted = is.clone();
        if fitted.varying.is_subset_of(&expected.varying) && fitted.varying != expected.varying {
            fitted.varying = expected.varying.clone();
            fitted.mesh = fitted.mesh.or_else(|| expected.mesh.clone());
        }
        if unify(&fitted, &expected).is_some() {
            continue;
        }
        let kind = first_difference(&fitted, &expected);
        let of = if argument.ty == expected { String::new() } else { format!(", which is {}", argument.ty) };
        let message =
            format!("the backward rule returns {is} as the cotangent of {name}{of}: it must be {expected}");
        let fault = Fault::new(kind, message);
        let more = fitted.varying.without(&expected.varying);
        let fault = if kind == ErrorKind::Varying && !more.is_empty() {
            fault.help(format!("sum it over the devices, which share {name}: `.psum({})`", more.quoted()))
        } else {
            suggest_conversion(fault, &fitted, &expected)
        };
        let fault = mark_difference(fault, 0, &fitted, &expected);
        let error = Error::new(fault, call.name(), vec![is.to_string(), expected.to_string()], b.location());
        errors.push(match changed_at(backward, k, kind) {
            Some(line) => error.related(line, format!("becomes {is} here")),
            None => error,
        });
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::combine(errors)) }
}

/// Returns the backward rule with cotangents that vary over the axes over which the arguments vary.
fn fit_varying(backward: &Program, arguments: &[Value]) -> Result<Program> {
    let inexact = arguments.iter().filter(|v| v.ty.dtype.is_inexact());
    let expected: Vec<ArrayType> = inexact.map(|v| cotangent_type(&v.ty)).collect();
    if backward.output_types().iter().zip(&expected).all(|(is, ty)| is.varying == ty.varying) {
        return Ok(backward.clone());
    }
    extend_program(backward, |b, _, cotangents| {
        cotangents.iter().zip(&expected).map(|(ct, ty)| b.fit_to_type(ct, ty)).collect()
    })
}

/// Returns a linear program that can run forward: each placeholder of a backward rule is replaced
/// by the transpose of the rule.
pub(super) fn runnable(program: &Program) -> Result<Program> {
    let mut b = Builder::new();
    if let Some(mesh) = &program.mesh {
        b.set_default_mesh(mesh);
    }
    let ins: Vec<Value> = input_types(program).into_iter().map(|ty| b.input(ty, None)).collect();
    let mut env = Env::new(program, ins);
    let outer = b.context().clone();
    for e in &program.equations {
        b.set_context(outer.of(e));
        let operands: Vec<Value> = env.get_all(&e.inputs);
        env.bind(&e.outputs, runnable_equation(&mut b, program, e, &operands)?);
    }
    b.set_context(outer);
    Ok(b.finish(&env.get_all(&program.outputs)))
}

fn runnable_equation(
    b: &mut Builder,
    program: &Program,
    e: &Equation,
    operands: &[Value],
) -> Result<Vec<Value>> {
    let types: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
    let placeholder = match &e.op {
        Op::Prim(prim) => prim.downcast_ref::<CustomLin>(),
        Op::Control(control) => {
            let mut control: Control = control.clone();
            for body in control.bodies_mut() {
                *body = Arc::new(runnable(body)?);
            }
            return Ok(b.push(Op::Control(control), operands, types));
        }
    };
    let Some(CustomLin { name, backward, types: result_types }) = placeholder else {
        return Ok(b.push(e.op.clone(), operands, types));
    };
    let (residuals, tangents) = operands.split_at(backward.residuals.len());
    let made = tangents_by_transpose(b, name, &backward.program, residuals, tangents)?;
    made.into_iter().zip(result_types).map(|(t, ty)| t.map_or_else(|| b.zeros(ty), Ok)).collect()
}
