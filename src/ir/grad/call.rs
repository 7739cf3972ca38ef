//! Differentiates operations that call one program: `jit`, `checkpoint`, and regions of axis types.

use super::Jvp;
use super::jvp::{JvpOp, PrimalsAndTangents, Style, jvp};
use super::linearize::{ResidualSource, linearize_with_policy};
use super::transpose::{CotangentExit, TransposedOp, transpose};
use crate::core::{ArrayType, Result, Spec};
use crate::ir::program::dce::{retain_outputs, select};
use crate::ir::program::{
    Builder, CheckpointPolicy, Control, Program, Tangents, Value, typing::cotangent_type,
};
use std::sync::Arc;

/// Returns a flag for each operand that is true if it has a tangent.
pub(super) fn is_present(tangents: &[Option<Value>]) -> Vec<bool> {
    tangents.iter().map(Option::is_some).collect()
}

/// Distributes the tangents that exist over all results; the others are `None`.
pub(super) fn spread_tangents(has: &[bool], tangents: impl IntoIterator<Item = Value>) -> Tangents {
    let mut tangents = tangents.into_iter();
    has.iter().map(|h| if *h { tangents.next() } else { None }).collect()
}

/// Returns the primals, followed by the tangents that exist.
pub(super) fn with_tangents(ins: &[Value], tangents: &[Option<Value>]) -> Vec<Value> {
    ins.iter().chain(tangents.iter().flatten()).cloned().collect()
}

/// Differentiates a call of a program, which may have a checkpoint policy.
pub(super) fn jvp_jit(b: &mut Builder, call: &Control, op: JvpOp<'_>) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, types, style } = op;
    let Control::Jit { body, policy: keep, recomputes } = call else { unreachable!("called for calls only") };
    let active = is_present(tangents);
    let jit =
        |body: Program| Control::Jit { body: Arc::new(body), policy: keep.clone(), recomputes: *recomputes };
    match style {
        Style::Fused => jvp_fused(b, body, op, |body, _| jit(body)),
        Style::Split if *keep == CheckpointPolicy::SaveNothing => {
            let outs = b.control(call.clone(), ins, types.to_vec());
            Ok((outs, recomputed_tangents(b, body, op, |body, _| jit(body))?))
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
    op: JvpOp<'_>,
) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, types, style, .. } = op;
    let modes = |body: Program, out_specs| Control::AxisModes { body: Arc::new(body), out_specs };
    match style {
        Style::Fused => {
            jvp_fused(b, body, op, |body, has| modes(body, [out_specs, &select(out_specs, has)].concat()))
        }
        Style::Split => {
            let same = Control::AxisModes { body: body.clone(), out_specs: out_specs.to_vec() };
            let outs = b.control(same, ins, types.to_vec());
            let tans = recomputed_tangents(b, body, op, |body, has| modes(body, select(out_specs, has)))?;
            Ok((outs, tans))
        }
    }
}

/// Emits one control operation for primals and tangents.
///
/// `control` makes it of the differentiated body and the flags of the results that have a tangent.
pub(super) fn jvp_fused(
    b: &mut Builder,
    body: &Program,
    op: JvpOp<'_>,
    control: impl FnOnce(Program, &[bool]) -> Control,
) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, types, .. } = op;
    let Jvp { program, tangents: has } = jvp(body, &is_present(tangents), Style::Fused)?;
    let all = [types, &select(types, &has)].concat();
    let mut outs = b.control(control(program, &has), &with_tangents(ins, tangents), all);
    let tans = spread_tangents(&has, outs.split_off(types.len()));
    Ok((outs, tans))
}

/// Emits a control operation that recomputes the primals from the operands, and returns the
/// tangents of the results. `control` is that of [`jvp_fused`].
fn recomputed_tangents(
    b: &mut Builder,
    body: &Program,
    op: JvpOp<'_>,
    control: impl FnOnce(Program, &[bool]) -> Control,
) -> Result<Tangents> {
    let JvpOp { ins, tangents, types, .. } = op;
    let (tangent_body, has) = tangent_program(body, &is_present(tangents))?;
    let control = control(tangent_body, &has);
    let tans = b.control(control, &with_tangents(ins, tangents), select(types, &has));
    Ok(spread_tangents(&has, tans))
}

/// Returns the cotangent types of the linear operands that have a cotangent.
fn cotangent_result_types(turned: &TransposedOp<'_>, reached: &[bool]) -> Vec<ArrayType> {
    select(&select(&turned.types, &turned.is_linear()), reached).iter().map(cotangent_type).collect()
}

/// Transposes a call of a linear program.
///
/// If the policy does not save everything, the linear program begins with what it recomputes.
pub(super) fn transpose_jit(b: &mut Builder, call: &Control, turned: &TransposedOp<'_>) -> Result<Tangents> {
    let Control::Jit { body, policy, recomputes } = call else { unreachable!("called for calls only") };
    let back = transpose(body, &turned.is_linear(), &turned.has_cotangent(), &|i| {
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
) -> Result<Tangents> {
    let back = transpose(body, &turned.is_linear(), &turned.has_cotangent(), &|_| CotangentExit::Fitted)?;
    let operands = [turned.known_operands(), turned.cotangents()].concat();
    let types = cotangent_result_types(turned, &back.reached);
    // Outside the region, each result is sharded like the cotangent of its operand.
    let out_specs = types.iter().map(|ty| ty.mesh.as_ref().map(|_| ty.spec)).collect();
    let control = Control::AxisModes { body: Arc::new(back.program), out_specs };
    Ok(turned.spread_cotangents(&back.reached, b.control(control, &operands, types)))
}
