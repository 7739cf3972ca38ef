//! Forward: every equation with its tangent's beside it.

use super::surgery::{input_types, inputs};
use super::{Jvp, branches, custom, loops, modes, per_device};
use crate::diagnostic::Result;
use crate::ops::custom::Custom;
use crate::program::{Builder, Control, Env, Equation, Forward, Known, Literal, Op, Program, Value, sound};

/// How control operations are differentiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Values and tangents in one operation.
    Together,
    /// One operation for the values, which also returns residuals, and one that is linear in the tangents.
    Apart,
}

/// Values and tangents.
pub(super) type Duals = (Vec<Value>, Vec<Option<Value>>);

/// The program with tangents of its active inputs, before anything unused is removed. Its inputs are the program's, then the
/// tangents.
pub(super) fn forward(program: &Program, active: &[bool], style: Style) -> Result<Jvp> {
    let mut b = Builder::new();
    if let Some(mesh) = &program.mesh {
        b.on(mesh);
    }
    let types = input_types(program);
    let primals = inputs(&mut b, types.iter().cloned());
    let mut tangents = Vec::with_capacity(types.len());
    for (ty, active) in types.into_iter().zip(active) {
        tangents.push(active.then(|| b.input(ty, None)));
    }
    let (mut outs, tangents) = push(&mut b, program, &primals, &tangents, style)?;
    let has = tangents.iter().map(Option::is_some).collect();
    outs.extend(tangents.into_iter().flatten());
    Ok(Jvp { program: b.finish(&outs), tangents: has })
}

/// The same in one program.
pub(super) fn together(program: &Program, active: &[bool]) -> Result<Jvp> {
    forward(program, active, Style::Together)
}

/// Repeats the program here with tangents.
pub(super) fn push(
    b: &mut Builder,
    program: &Program,
    primals: &[Value],
    tangents: &[Option<Value>],
    style: Style,
) -> Result<Duals> {
    let mut env = Env::new(program, primals.iter().cloned().zip(tangents.iter().cloned()));
    let (outer, phase) = (b.place(), b.phase());
    for e in &program.equations {
        b.at(e.place.or(outer)).during(e.phase.within(phase));
        let (ins, tans): Duals = env.all(&e.inputs).into_iter().unzip();
        let (outs, out_tangents) = equation(b, program, e, &ins, &tans, style)?;
        env.bind(&e.outputs, outs.into_iter().zip(out_tangents));
    }
    b.at(outer).during(phase);
    Ok(env.all(&program.outputs).into_iter().unzip())
}

/// A value and its tangent: a number has none.
impl Known for (Value, Option<Value>) {
    fn number(l: Literal) -> Self {
        (Value::number(l), None)
    }
}

fn equation(
    b: &mut Builder,
    program: &Program,
    e: &Equation,
    ins: &[Value],
    tangents: &[Option<Value>],
    style: Style,
) -> Result<Duals> {
    let types: Vec<_> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
    if tangents.iter().all(Option::is_none) || matches!(&e.op, Op::Control(c) if c.has_effect()) {
        let none = vec![None; types.len()];
        let outs = b.push(e.op.clone(), ins, types);
        b.name(e.name.clone());
        return Ok((outs, none));
    }
    match &e.op {
        Op::Prim(prim) => {
            let outs = b.push(e.op.clone(), ins, types);
            b.name(e.name.clone());
            let from = b.program().equations.len();
            let at = Forward { b, operands: ins, tangents, outputs: &outs };
            let mut tans = match (style, prim.downcast_ref::<Custom>()) {
                (Style::Together, Some(own)) => custom::forward(own, at)?,
                _ => prim.jvp(at)?,
            };
            sound::added(b, from, prim.as_ref())?;
            sound::tangents(b, prim.as_ref(), &tans, &outs)?;
            for (t, out) in tans.iter_mut().zip(&outs) {
                *t = match t.take() {
                    Some(t) if out.ty.dtype.is_inexact() => Some(b.fit(&t, &out.ty)?),
                    _ => None,
                };
            }
            Ok((outs, tans))
        }
        Op::Control(Control::Jit { body, keep }) => modes::jit(b, body, keep, ins, tangents, &types, style),
        Op::Control(Control::Modes { body, out_specs }) => {
            modes::modes(b, body, out_specs, ins, tangents, &types, style)
        }
        Op::Control(Control::Loop(l)) => loops::run(b, l, ins, tangents, &types, style),
        Op::Control(w @ Control::While { .. }) => loops::run_while(b, w, ins, tangents, &types, style),
        Op::Control(Control::Cond { branches }) => branches::cond(b, branches, ins, tangents, &types, style),
        Op::Control(Control::ShardMap(m)) => per_device::shard_map(b, m, ins, tangents, &types, style),
        Op::Control(Control::Print { .. }) => unreachable!("it has no results, so no tangents"),
    }
}
