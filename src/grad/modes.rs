//! Derivatives of programs that are one equation: jit, checkpoint, and programs in which axes are of another type.

use super::linearize::{Found, linearize_keeping};
use super::push::{Duals, Style, forward};
use super::transpose::{Leave, Turned, transpose};
use crate::diagnostic::Result;
use crate::ops::build::cotangent_type;
use crate::program::dce::{chosen, keep};
use crate::program::{Builder, Control, Keep, Program, Value};
use crate::sharding::Spec;
use crate::types::ArrayType;
use std::sync::Arc;

fn present(tangents: &[Option<Value>]) -> Vec<bool> {
    tangents.iter().map(Option::is_some).collect()
}

/// Tangents at their places.
pub(super) fn placed(has: &[bool], tangents: impl IntoIterator<Item = Value>) -> Vec<Option<Value>> {
    let mut tangents = tangents.into_iter();
    has.iter().map(|h| if *h { tangents.next() } else { None }).collect()
}

/// The values, then the tangents that there are.
pub(super) fn with_tangents(ins: &[Value], tangents: &[Option<Value>]) -> Vec<Value> {
    ins.iter().chain(tangents.iter().flatten()).cloned().collect()
}

pub(super) fn jit(
    b: &mut Builder,
    body: &Arc<Program>,
    keep: &Keep,
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
    style: Style,
) -> Result<Duals> {
    let active = present(tangents);
    let jit = |body: Program| Control::Jit { body: Arc::new(body), keep: keep.clone() };
    match style {
        Style::Together => {
            let jvp = forward(body, &active, style)?;
            let all = [types, &chosen(types, &jvp.tangents)].concat();
            let mut outs = b.control(jit(jvp.program), &with_tangents(ins, tangents), all);
            let tans = placed(&jvp.tangents, outs.split_off(types.len()));
            Ok((outs, tans))
        }
        // the linear half computes the values once more, from the operands
        Style::Apart if *keep == Keep::Nothing => {
            let outs =
                b.control(Control::Jit { body: body.clone(), keep: keep.clone() }, ins, types.to_vec());
            let (tangent_body, has) = tangents_only(body, &active)?;
            let tans = b.control(jit(tangent_body), &with_tangents(ins, tangents), chosen(types, &has));
            Ok((outs, placed(&has, tans)))
        }
        Style::Apart => {
            let lin = linearize_keeping(body, &active, keep)?;
            let (found, own) = lin.found();
            let own_types = own.output_types().split_off(types.len());
            let mut outs = b.control(jit(own), ins, [types, &own_types].concat());
            let kept = outs.split_off(types.len());
            let mut operands: Vec<Value> = found
                .iter()
                .map(|f| match f {
                    Found::Input(i) => ins[*i].clone(),
                    Found::Output(o) => outs[*o].clone(),
                    Found::Own(k) => kept[*k].clone(),
                })
                .collect();
            operands.extend(tangents.iter().flatten().cloned());
            let tans = b.control(jit(lin.linear), &operands, chosen(types, &lin.tangents));
            Ok((outs, placed(&lin.tangents, tans)))
        }
    }
}

/// The program's tangents alone: inputs are its own, then the tangents; and which results have one.
fn tangents_only(body: &Program, active: &[bool]) -> Result<(Program, Vec<bool>)> {
    let jvp = forward(body, active, Style::Apart)?;
    let n = body.outputs.len();
    let wanted: Vec<bool> = (0..jvp.program.outputs.len()).map(|i| i >= n).collect();
    Ok((keep(&jvp.program, &wanted), jvp.tangents))
}

/// Inside, types say less (or more) of where values are placed, so residuals could not leave without being moved: as with checkpoints the linear
/// half computes the values once more.
pub(super) fn modes(
    b: &mut Builder,
    body: &Arc<Program>,
    out_specs: &[Option<Spec>],
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
    style: Style,
) -> Result<Duals> {
    let active = present(tangents);
    let operands = with_tangents(ins, tangents);
    if style == Style::Together {
        let jvp = forward(body, &active, style)?;
        let specs = [out_specs, &chosen(out_specs, &jvp.tangents)].concat();
        let control = Control::Modes { body: Arc::new(jvp.program), out_specs: specs };
        let all = [types, &chosen(types, &jvp.tangents)].concat();
        let mut outs = b.control(control, &operands, all);
        let tans = placed(&jvp.tangents, outs.split_off(types.len()));
        return Ok((outs, tans));
    }
    let same = Control::Modes { body: body.clone(), out_specs: out_specs.to_vec() };
    let outs = b.control(same, ins, types.to_vec());
    let (tangent_body, has) = tangents_only(body, &active)?;
    let control = Control::Modes { body: Arc::new(tangent_body), out_specs: chosen(out_specs, &has) };
    let tans = b.control(control, &operands, chosen(types, &has));
    Ok((outs, placed(&has, tans)))
}

/// The cotangent types of the linear operands that were reached.
fn results(turned: &Turned<'_>, reached: &[bool]) -> Vec<ArrayType> {
    chosen(&chosen(&turned.types, &turned.is_linear()), reached).iter().map(cotangent_type).collect()
}

pub(super) fn turn_jit(
    b: &mut Builder,
    body: &Arc<Program>,
    turned: &Turned<'_>,
) -> Result<Vec<Option<Value>>> {
    let back = transpose(body, &turned.is_linear(), &turned.given(), |_| Leave::AsTheyAre)?;
    let operands = [turned.known(), turned.cotangents()].concat();
    let types = back.program.output_types();
    let control = Control::Jit { body: Arc::new(back.program), keep: Keep::All };
    Ok(turned.spread(&back.reached, b.control(control, &operands, types)))
}

pub(super) fn turn_modes(
    b: &mut Builder,
    body: &Arc<Program>,
    turned: &Turned<'_>,
) -> Result<Vec<Option<Value>>> {
    let back = transpose(body, &turned.is_linear(), &turned.given(), |_| Leave::Fitted)?;
    let operands = [turned.known(), turned.cotangents()].concat();
    let types = results(turned, &back.reached);
    // each is sharded outside like the cotangent of its operand
    let out_specs = types.iter().map(|ty| ty.mesh.as_ref().map(|_| ty.spec)).collect();
    let control = Control::Modes { body: Arc::new(back.program), out_specs };
    Ok(turned.spread(&back.reached, b.control(control, &operands, types)))
}
