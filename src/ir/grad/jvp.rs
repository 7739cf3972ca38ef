//! Computes JVPs: adds after every equation the equations of its tangents.

use super::util::{input_types, inputs};
use super::{Jvp, call, cond, custom, loops, shard_map};
use crate::core::{ArrayType, Result};
use crate::ir::ops::custom::CustomPrim;
use crate::ir::program::{
    Builder, Control, Env, Equation, FromLiteral, JvpArgs, Literal, Op, Program, Tangents, Value, verify,
};

/// The form in which control operations are differentiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// One operation that computes primals and tangents.
    /// Used in forward mode.
    Fused,
    /// Two operations: one computes primals and residuals, and the other is linear in the tangents.
    Split,
}

/// An equation that is differentiated.
#[derive(Clone, Copy)]
pub(super) struct JvpOp<'a> {
    /// The operands.
    pub(super) ins: &'a [Value],
    /// The tangents of the operands; `None` for zero.
    pub(super) tangents: &'a [Option<Value>],
    /// The types of the results.
    pub(super) types: &'a [ArrayType],
    /// The form of the derivatives of programs in it.
    pub(super) style: Style,
}

/// Primals, and a tangent for each; `None` is zero.
pub(super) type PrimalsAndTangents = (Vec<Value>, Tangents);

/// Returns the JVP of a program, including unused equations.
///
/// Its inputs are the program's inputs, followed by the tangents of the active inputs.
pub(super) fn jvp(program: &Program, active: &[bool], style: Style) -> Result<Jvp> {
    let mut b = Builder::new();
    if let Some(mesh) = &program.mesh {
        b.set_default_mesh(mesh);
    }
    let types = input_types(program);
    let primals = inputs(&mut b, types.iter().cloned());
    let mut tangents = Vec::with_capacity(types.len());
    for (ty, active) in types.into_iter().zip(active) {
        tangents.push(active.then(|| b.input(ty, None)));
    }
    let (mut outs, tangents) = inline_jvp(&mut b, program, &primals, &tangents, style)?;
    let has = tangents.iter().map(Option::is_some).collect();
    outs.extend(tangents.into_iter().flatten());
    Ok(Jvp { program: b.finish(&outs), tangents: has })
}

/// Returns the JVP of a program for forward mode.
pub(super) fn jvp_fused(program: &Program, active: &[bool]) -> Result<Jvp> {
    jvp(program, active, Style::Fused)
}

/// Records the program in `b` for the given primals and tangents.
pub(super) fn inline_jvp(
    b: &mut Builder,
    program: &Program,
    primals: &[Value],
    tangents: &[Option<Value>],
    style: Style,
) -> Result<PrimalsAndTangents> {
    let mut env = Env::new(program, primals.iter().cloned().zip(tangents.iter().cloned()));
    let outer = b.context().clone();
    for e in &program.equations {
        b.set_context(outer.of(e));
        let (ins, tans): PrimalsAndTangents = env.get_all(&e.inputs).into_iter().unzip();
        let (outs, out_tangents) = jvp_equation(b, program, e, &ins, &tans, style)?;
        env.bind(&e.outputs, outs.into_iter().zip(out_tangents));
    }
    b.set_context(outer);
    Ok(env.get_all(&program.outputs).into_iter().unzip())
}

/// Pairs a primal with its tangent. A literal has no tangent.
impl FromLiteral for (Value, Option<Value>) {
    fn from_literal(l: Literal) -> Self {
        (Value::from_literal(l), None)
    }
}

/// Records an equation and the equations of its tangents.
fn jvp_equation(
    b: &mut Builder,
    program: &Program,
    e: &Equation,
    ins: &[Value],
    tangents: &[Option<Value>],
    style: Style,
) -> Result<PrimalsAndTangents> {
    let types: Vec<_> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
    if tangents.iter().all(Option::is_none) || matches!(&e.op, Op::Control(c) if c.has_effect()) {
        let none = vec![None; types.len()];
        let outs = b.push(e.op.clone(), ins, types);
        b.name_last(e.name.clone());
        return Ok((outs, none));
    }
    let op = JvpOp { ins, tangents, types: &types, style };
    match &e.op {
        Op::Prim(prim) => {
            let outs = b.push(e.op.clone(), ins, types);
            b.name_last(e.name.clone());
            let from = b.program().equations.len();
            let at = JvpArgs { builder: b, operands: ins, tangents, outputs: &outs };
            let mut tans = match (style, prim.downcast_ref::<CustomPrim>()) {
                (Style::Fused, Some(own)) => custom::jvp_custom(own, at)?,
                _ => prim.jvp(at)?,
            };
            verify::added_equations(b, from, prim.as_ref())?;
            verify::tangents(b, prim.as_ref(), &tans, &outs)?;
            for (t, out) in tans.iter_mut().zip(&outs) {
                *t = match t.take() {
                    Some(t) if out.ty.dtype.is_inexact() => Some(b.fit_to_type(&t, &out.ty)?),
                    _ => None,
                };
            }
            Ok((outs, tans))
        }
        Op::Control(call @ Control::Jit { .. }) => call::jvp_jit(b, call, op),
        Op::Control(Control::AxisModes { body, out_specs }) => call::jvp_modes(b, body, out_specs, op),
        Op::Control(Control::Loop(l)) => loops::jvp_loop(b, l, op),
        Op::Control(w @ Control::While { .. }) => loops::jvp_while(b, w, op),
        Op::Control(Control::Cond { branches }) => cond::jvp_cond(b, branches, op),
        Op::Control(Control::ShardMap(m)) => shard_map::jvp_shard_map(b, m, op),
        Op::Control(Control::Custom(call)) => custom::jvp_call(b, call, op),
        Op::Control(Control::Print { .. }) => unreachable!("it has no results, so no tangents"),
    }
}
