//! Differentiates operations that call one program: `jit`, `checkpoint`, and regions of axis types.

use super::jvp::{PrimalsAndTangents, Style, jvp};
use super::linearize::{ResidualSource, linearize_with_policy};
use super::transpose::{CotangentExit, TransposedOp, transpose};
use crate::core::diagnostic::Result;
use crate::core::sharding::Spec;
use crate::core::types::ArrayType;
use crate::ir::program::dce::{retain_outputs, select};
use crate::ir::program::typing::cotangent_type;
use crate::ir::program::{Builder, CheckpointPolicy, Control, Program, Value};
use std::sync::Arc;

/// Returns a flag for each operand that is true if it has a tangent.
fn is_present(tangents: &[Option<Value>]) -> Vec<bool> {
    tangents.iter().map(Option::is_some).collect()
}

/// Distributes the tangents that exist over all results; the others are `None`.
pub(super) fn spread_tangents(has: &[bool], tangents: impl IntoIterator<Item = Value>) -> Vec<Option<Value>> {
    let mut tangents = tangents.into_iter();
    has.iter().map(|h| if *h { tangents.next() } else { None }).collect()
}

/// Returns the primals, followed by the tangents that exist.
pub(super) fn with_tangents(ins: &[Value], tangents: &[Option<Value>]) -> Vec<Value> {
    ins.iter().chain(tangents.iter().flatten()).cloned().collect()
}

/// Differentiates a call of a program, which may have a checkpoint policy.
pub(super) fn jvp_jit(
    b: &mut Builder,
    call: &Control,
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
    style: Style,
) -> Result<PrimalsAndTangents> {
    let Control::Jit { body, policy: keep, recomputes } = call else { unreachable!("called for calls only") };
    let active = is_present(tangents);
    let jit =
        |body: Program| Control::Jit { body: Arc::new(body), policy: keep.clone(), recomputes: *recomputes };
    match style {
        Style::Fused => {
            let jvp = jvp(body, &active, style)?;
            let all = [types, &select(types, &jvp.tangents)].concat();
            let mut outs = b.control(jit(jvp.program), &with_tangents(ins, tangents), all);
            let tans = spread_tangents(&jvp.tangents, outs.split_off(types.len()));
            Ok((outs, tans))
        }
        // the linear part recomputes the primals from the operands
        Style::Split if *keep == CheckpointPolicy::SaveNothing => {
            let outs = b.control(call.clone(), ins, types.to_vec());
            let (tangent_body, has) = tangent_program(body, &active)?;
            let tans = b.control(jit(tangent_body), &with_tangents(ins, tangents), select(types, &has));
            Ok((outs, spread_tangents(&has, tans)))
        }
        Style::Split => {
            let lin = linearize_with_policy(body, &active, keep)?;
            let (found, own) = lin.residual_sources();
            let own_types = own.output_types().split_off(types.len());
            let mut outs = b.control(jit(own), ins, [types, &own_types].concat());
            let kept = outs.split_off(types.len());
            let mut operands: Vec<Value> = found
                .iter()
                .map(|f| match f {
                    ResidualSource::Input(i) => ins[*i].clone(),
                    ResidualSource::Output(o) => outs[*o].clone(),
                    ResidualSource::Extra(k) => kept[*k].clone(),
                })
                .collect();
            operands.extend(tangents.iter().flatten().cloned());
            let tans = b.control(jit(lin.linear), &operands, select(types, &lin.tangents));
            Ok((outs, spread_tangents(&lin.tangents, tans)))
        }
    }
}

/// Returns the program that computes only tangents, and which results have one.
///
/// Its inputs are the program's inputs, followed by the tangents.
fn tangent_program(body: &Program, active: &[bool]) -> Result<(Program, Vec<bool>)> {
    let jvp = jvp(body, active, Style::Split)?;
    let n = body.outputs.len();
    let requested: Vec<bool> = (0..jvp.program.outputs.len()).map(|i| i >= n).collect();
    Ok((retain_outputs(&jvp.program, &requested), jvp.tangents))
}

/// Differentiates a region in which axes have other types.
///
/// The types inside the region are about placements over other axes, so residuals could not leave
/// it without being moved. The linear part therefore recomputes the primals, as for checkpoints.
pub(super) fn jvp_modes(
    b: &mut Builder,
    body: &Arc<Program>,
    out_specs: &[Option<Spec>],
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
    style: Style,
) -> Result<PrimalsAndTangents> {
    let active = is_present(tangents);
    let operands = with_tangents(ins, tangents);
    if style == Style::Fused {
        let jvp = jvp(body, &active, style)?;
        let specs = [out_specs, &select(out_specs, &jvp.tangents)].concat();
        let control = Control::AxisModes { body: Arc::new(jvp.program), out_specs: specs };
        let all = [types, &select(types, &jvp.tangents)].concat();
        let mut outs = b.control(control, &operands, all);
        let tans = spread_tangents(&jvp.tangents, outs.split_off(types.len()));
        return Ok((outs, tans));
    }
    let same = Control::AxisModes { body: body.clone(), out_specs: out_specs.to_vec() };
    let outs = b.control(same, ins, types.to_vec());
    let (tangent_body, has) = tangent_program(body, &active)?;
    let control = Control::AxisModes { body: Arc::new(tangent_body), out_specs: select(out_specs, &has) };
    let tans = b.control(control, &operands, select(types, &has));
    Ok((outs, spread_tangents(&has, tans)))
}

/// Returns the cotangent types of the linear operands that have a cotangent.
fn cotangent_result_types(turned: &TransposedOp<'_>, reached: &[bool]) -> Vec<ArrayType> {
    select(&select(&turned.types, &turned.is_linear()), reached).iter().map(cotangent_type).collect()
}

/// Transposes a call of a linear program.
///
/// If the policy does not save everything, the linear program begins with what it recomputes.
pub(super) fn transpose_jit(
    b: &mut Builder,
    call: &Control,
    turned: &TransposedOp<'_>,
) -> Result<Vec<Option<Value>>> {
    let Control::Jit { body, policy, recomputes } = call else { unreachable!("called for calls only") };
    let back = transpose(body, &turned.is_linear(), &turned.has_cotangent(), |i| {
        if turned.unreduced[i].is_empty() { CotangentExit::Unfitted } else { CotangentExit::Unreduced }
    })?;
    let operands = [turned.known_operands(), turned.cotangents()].concat();
    let types = back.program.output_types();
    let control = Control::Jit {
        body: Arc::new(back.program),
        policy: CheckpointPolicy::SaveAll,
        recomputes: *recomputes || *policy != CheckpointPolicy::SaveAll,
    };
    Ok(turned.spread_cotangents(&back.reached, b.control(control, &operands, types)))
}

/// Transposes a linear region in which axes have other types.
pub(super) fn transpose_modes(
    b: &mut Builder,
    body: &Arc<Program>,
    turned: &TransposedOp<'_>,
) -> Result<Vec<Option<Value>>> {
    let back = transpose(body, &turned.is_linear(), &turned.has_cotangent(), |_| CotangentExit::Fitted)?;
    let operands = [turned.known_operands(), turned.cotangents()].concat();
    let types = cotangent_result_types(turned, &back.reached);
    // Outside the region, each result is sharded like the cotangent of its operand.
    let out_specs = types.iter().map(|ty| ty.mesh.as_ref().map(|_| ty.spec)).collect();
    let control = Control::AxisModes { body: Arc::new(back.program), out_specs };
    Ok(turned.spread_cotangents(&back.reached, b.control(control, &operands, types)))
}
