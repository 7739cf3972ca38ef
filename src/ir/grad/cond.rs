//! Differentiates conditionals (`cond`, `switch`).
//!
//! In forward mode, each branch is replaced by its JVP. In reverse mode, each branch is linearized,
//! and the residuals of the branch that ran are passed to the linear conditional. All branches of
//! one conditional must return the same types, so missing tangents and residuals are filled with
//! zeros.
//!
//! If the selector varies over manual axes, all operands and results of the branches vary over
//! them. So the sum over devices that a cotangent needs comes after the conditional, where the cast
//! of the operand is transposed, and no branch communicates.

use super::call::{spread_tangents, with_tangents};
use super::jvp::{JvpOp, PrimalsAndTangents, Style, jvp};
use super::linearize::{Linearized, ResidualSource, linearize_branch};
use super::transpose::{CotangentExit, TransposedOp, transpose};
use super::util::{cotangent_types, extend_program, fill_missing_with_zeros, input_types, new_input};
use crate::core::{ArrayType, Result};
use crate::ir::program::{Builder, Control, Program, Tangents, Value, Var, dce::select};
use std::sync::Arc;

/// Returns a list of flags that are true if the flag is true in any of the lists.
fn union_flags(lists: impl Iterator<Item = Vec<bool>>) -> Vec<bool> {
    lists.reduce(|a, b| a.iter().zip(b).map(|(a, b)| *a || b).collect()).unwrap_or_default()
}

/// A conditional to differentiate: its branches, predicate, operands, tangents and result types.
struct CondArgs<'a> {
    /// The programs to choose from.
    branches: &'a [Arc<Program>],
    /// The predicate or branch index.
    predicate: &'a Value,
    /// The operands of the branches.
    ins: &'a [Value],
    /// The tangents of the operands; `None` is zero.
    tangents: &'a [Option<Value>],
    /// A flag for each operand that is true if it has a tangent.
    active: &'a [bool],
    /// The types of the results.
    types: &'a [ArrayType],
}

/// Differentiates a conditional. Its first operand, the predicate, has no tangent.
pub(super) fn jvp_cond(
    b: &mut Builder,
    branches: &[Arc<Program>],
    op: JvpOp<'_>,
) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, types, style } = op;
    let tangents = &tangents[1..];
    let active: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let choice = CondArgs { branches, predicate: &ins[0], ins: &ins[1..], tangents, active: &active, types };
    match style {
        Style::Fused => jvp_fused(b, &choice),
        Style::Split => jvp_split(b, &choice),
    }
}

/// Replaces each branch by its JVP.
fn jvp_fused(b: &mut Builder, choice: &CondArgs<'_>) -> Result<PrimalsAndTangents> {
    let CondArgs { branches, predicate: which, ins, tangents, active, types } = *choice;
    let jvps: Vec<_> = branches.iter().map(|p| jvp(p, active, Style::Fused)).collect::<Result<_>>()?;
    let has = union_flags(jvps.iter().map(|j| j.tangents.clone()));
    let all = [types, &select(types, &has)].concat();
    let mut programs = Vec::with_capacity(jvps.len());
    for jvp in jvps {
        let there =
            vec![true; types.len()].into_iter().chain(select(&jvp.tangents, &has)).collect::<Vec<_>>();
        programs.push(Arc::new(fill_missing_with_zeros(&jvp.program, &there, &all)?));
    }
    let operands = [std::slice::from_ref(which), &with_tangents(ins, tangents)].concat();
    let mut outs = b.control(Control::Cond { branches: programs }, &operands, all);
    let tans = spread_tangents(&has, outs.split_off(types.len()));
    Ok((outs, tans))
}

/// Assigns each residual of each branch to a slot, a result of the conditional.
///
/// Only one branch runs, so residuals of equal type in different branches share a slot.
fn assign_slots(residual_types: &[Vec<ArrayType>]) -> (Vec<ArrayType>, Vec<Vec<usize>>) {
    let mut all: Vec<ArrayType> = Vec::new();
    let slots = residual_types
        .iter()
        .map(|types| {
            let mut taken: Vec<usize> = Vec::new();
            for ty in types {
                let free = (0..all.len()).find(|s| all[*s] == *ty && !taken.contains(s));
                taken.push(free.unwrap_or_else(|| {
                    all.push(ty.clone());
                    all.len() - 1
                }));
            }
            taken
        })
        .collect();
    (all, slots)
}

/// Emits a conditional for primals and residuals, and a linear one for tangents.
fn jvp_split(b: &mut Builder, choice: &CondArgs<'_>) -> Result<PrimalsAndTangents> {
    let CondArgs { branches, predicate: which, ins, tangents, active, types } = *choice;
    let n = types.len();
    let lins: Vec<Linearized> =
        (branches.iter()).map(|p| linearize_branch(p, active, &which.ty.varying)).collect::<Result<_>>()?;
    let has = union_flags(lins.iter().map(|l| l.tangents.clone()));
    let pieces: Vec<(Vec<ResidualSource>, Program)> = lins.iter().map(Linearized::residual_sources).collect();
    let own: Vec<Vec<ArrayType>> = pieces.iter().map(|p| p.1.output_types().split_off(n)).collect();
    let (slot_types, slots) = assign_slots(&own);

    // The forward branches return their results, followed by one value for each slot.
    let mut forward = Vec::with_capacity(pieces.len());
    for ((_, program), slots) in pieces.iter().zip(&slots) {
        forward.push(Arc::new(extend_program(program, |b, _, mut outs| {
            let own = outs.split_off(n);
            for (s, ty) in slot_types.iter().enumerate() {
                outs.push(match slots.iter().position(|p| *p == s) {
                    Some(k) => own[k].clone(),
                    None => b.zeros(ty)?,
                });
            }
            Ok(outs)
        })?));
    }
    let operands = [std::slice::from_ref(which), ins].concat();
    let mut outs = b.control(Control::Cond { branches: forward }, &operands, [types, &slot_types].concat());
    let kept = outs.split_off(n);

    // The linear branches take the operands and results that are residuals, the slots, and the
    // tangents.
    let mut shared: Vec<ResidualSource> = Vec::new();
    for f in pieces.iter().flat_map(|p| &p.0) {
        if !matches!(f, ResidualSource::Extra(_)) && !shared.contains(f) {
            shared.push(*f);
        }
    }
    let value = |f: &ResidualSource| match f {
        ResidualSource::Input(i) => ins[*i].clone(),
        ResidualSource::Output(o) => outs[*o].clone(),
        ResidualSource::Extra(k) => kept[*k].clone(),
    };
    let operands: Vec<Value> = std::iter::once(which.clone())
        .chain(shared.iter().map(value))
        .chain(kept.iter().cloned())
        .chain(tangents.iter().flatten().cloned())
        .collect();
    let known_types: Vec<ArrayType> =
        operands[1..1 + shared.len() + kept.len()].iter().map(|v| v.ty.clone()).collect();
    let mut linear = Vec::with_capacity(lins.len());
    for ((lin, (found, _)), slots) in lins.iter().zip(&pieces).zip(&slots) {
        let mut program =
            fill_missing_with_zeros(&lin.linear, &select(&lin.tangents, &has), &select(types, &has))?;
        let (residuals, tans) = program.inputs.split_at(lin.residuals);
        let (residuals, tans) = (residuals.to_vec(), tans.to_vec());
        let mut new: Vec<Option<Var>> = vec![None; known_types.len()];
        for (f, v) in found.iter().zip(residuals) {
            let at = match f {
                ResidualSource::Extra(k) => shared.len() + slots[*k],
                f => shared.iter().position(|s| s == f).unwrap_or_default(),
            };
            new[at] = Some(v);
        }
        let known = new.into_iter().zip(&known_types).map(|(v, ty)| (v, ty.clone())).collect::<Vec<_>>();
        let known: Vec<Var> =
            known.into_iter().map(|(v, ty)| v.unwrap_or_else(|| new_input(&mut program, ty))).collect();
        program.inputs = known.into_iter().chain(tans).collect();
        linear.push(Arc::new(program));
    }
    let tans = b.control(Control::Cond { branches: linear }, &operands, select(types, &has));
    Ok((outs, spread_tangents(&has, tans)))
}

/// Transposes a linear conditional by transposing each branch.
pub(super) fn transpose_cond(
    b: &mut Builder,
    branches: &[Arc<Program>],
    turned: &TransposedOp<'_>,
) -> Result<Tangents> {
    let is_linear = &turned.is_linear()[1..];
    let backs: Vec<_> = branches
        .iter()
        .map(|p| transpose(p, is_linear, &turned.has_cotangent(), &|_| CotangentExit::Fitted))
        .collect::<Result<_>>()?;
    let reached = union_flags(backs.iter().map(|t| t.reached.clone()));
    let linear_types = select(&turned.types[1..], is_linear);
    let types = cotangent_types(&select(&linear_types, &reached));
    let mut programs = Vec::with_capacity(backs.len());
    for back in &backs {
        programs.push(Arc::new(fill_missing_with_zeros(
            &back.program,
            &select(&back.reached, &reached),
            &types,
        )?));
    }
    debug_assert!(programs.windows(2).all(|w| input_types(&w[0]).len() == input_types(&w[1]).len()));
    let operands = [turned.known_operands(), turned.cotangents()].concat();
    let outs = b.control(Control::Cond { branches: programs }, &operands, types);
    // The predicate is not linear, so `reached` starts with the first operand after it.
    Ok(turned.spread_cotangents(&reached, outs))
}
