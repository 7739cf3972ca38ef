//! Implements `vmap` for calls with a derivative rule: the function and its rule are batched alike.
//!
//! A result is batched if the function or its rule makes it so. Tangents and cotangents are batched
//! where their values are, so the cotangent of an argument that all examples share is the sum over
//! the examples.

use super::{
    BatchedValue, VmappedControl, batched_types, batched_values, inline_vmap, mapped, spread_over_batch,
    union_flags, values, vmap_program,
};
use crate::core::{ArrayType, Result};
use crate::ir::ops::reduce::Reduction;
use crate::ir::program::dce::select;
use crate::ir::program::{
    BatchDim, Builder, Control, CustomCall, DerivativeRule, Program, Value, typing::cotangent_type,
};
use std::sync::Arc;

/// Batches a call with a rule.
pub(super) fn vmap_custom(
    b: &mut Builder,
    call: &CustomCall,
    op: VmappedControl<'_>,
) -> Result<Vec<BatchedValue>> {
    let VmappedControl { operands, result_types, batch_dim } = op;
    let flags = mapped(operands);
    let (arguments, captures) = flags.split_at(call.arguments.len());
    let is_inexact = |types: &[ArrayType]| types.iter().map(|ty| ty.dtype.is_inexact()).collect::<Vec<_>>();
    let result_tangents = is_inexact(result_types);
    let argument_types: Vec<ArrayType> =
        call.body.inputs[..arguments.len()].iter().map(|v| call.body.ty(*v).clone()).collect();
    let argument_tangents = select(arguments, &is_inexact(&argument_types));
    let n = result_types.len();
    let mut has = vec![false; n];
    let (body, rule) = loop {
        let (body, of_body) = vmap_program(&call.body, &flags, &has, batch_dim)?;
        let mut next = of_body;
        let rule = match &call.rule {
            DerivativeRule::Reversible(program) => {
                let (program, of_rule) = vmap_program(program, &flags, &next, batch_dim)?;
                next = of_rule;
                DerivativeRule::Reversible(Arc::new(program))
            }
            DerivativeRule::Jvp(rule) => {
                let takes = [arguments, &argument_tangents, captures].concat();
                let wanted = [&next[..], &select(&next, &result_tangents)].concat();
                let (rule, of_rule) = vmap_program(rule, &takes, &wanted, batch_dim)?;
                let mut tangents = of_rule[n..].iter().copied();
                let of_tangents: Vec<bool> =
                    result_tangents.iter().map(|t| *t && tangents.next() == Some(true)).collect();
                next = union_flags(&of_rule[..n], &of_tangents);
                DerivativeRule::Jvp(Arc::new(rule))
            }
            DerivativeRule::Vjp { forward, backward } => {
                let wanted = [&next[..], &vec![false; forward.outputs.len() - n]].concat();
                let (forward, of_rule) = vmap_program(forward, &flags, &wanted, batch_dim)?;
                next = of_rule[..n].to_vec();
                let takes = [&of_rule[n..], &select(&next, &result_tangents), captures].concat();
                let of = select(&argument_types, &is_inexact(&argument_types));
                let backward = vmap_backward(backward, &takes, (&argument_tangents, &of), batch_dim)?;
                DerivativeRule::Vjp { forward: Arc::new(forward), backward: Arc::new(backward) }
            }
        };
        if next == has {
            break (Arc::new(body), rule);
        }
        has = next;
    };
    let control = Control::Custom(CustomCall { body, rule, ..call.clone() });
    let results = b.control(control, &values(operands), batched_types(result_types, &has, batch_dim));
    Ok(batched_values(results, &has))
}

/// Returns the batched program of a backward rule: a cotangent is batched exactly if its argument
/// is. `wanted` has a flag and the type of one example for each cotangent.
fn vmap_backward(
    program: &Program,
    takes: &[bool],
    wanted: (&[bool], &[ArrayType]),
    batch_dim: &BatchDim,
) -> Result<Program> {
    let mut b = Builder::new();
    if let Some(mesh) = program.mesh.as_ref().or(batch_dim.mesh.as_ref()) {
        b.set_default_mesh(mesh);
    }
    let input = |(v, mapped): (&crate::ir::program::Var, &bool)| {
        let ty = program.ty(*v);
        let ty = if *mapped { batch_dim.ty(ty) } else { ty.clone() };
        BatchedValue { value: b.input(ty, None), mapped: *mapped }
    };
    let items: Vec<BatchedValue> = program.inputs.iter().zip(takes).map(input).collect();
    let made = inline_vmap(&mut b, program, &items, batch_dim)?;
    let mut cotangents: Vec<Value> = Vec::with_capacity(made.len());
    for (ct, (wanted, of)) in made.iter().zip(wanted.0.iter().zip(wanted.1)) {
        cotangents.push(match (ct.mapped, wanted) {
            (_, true) => spread_over_batch(&mut b, ct, batch_dim)?,
            (false, false) => ct.value.clone(),
            (true, false) => {
                let sum = b.reduce(Reduction::Sum, &ct.value, &[0])?;
                // a cotangent that does not fit its argument is reported by the derivative
                let fits = sum.ty.shape == of.shape && sum.ty.dtype == of.dtype;
                if fits && sum.ty != cotangent_type(of) { b.fit_cotangent(&sum, of)? } else { sum }
            }
        });
    }
    Ok(b.finish(&cotangents))
}
