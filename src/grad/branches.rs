//! Derivatives of a choice of programs.

use super::linearize::{Found, Linearized, linearize};
use super::modes::{placed, with_tangents};
use super::push::{Duals, Style, forward};
use super::surgery::{cotangent_types, extended, filled, input_types, new_input};
use super::transpose::{Leave, Turned, transpose};
use crate::diagnostic::Result;
use crate::program::dce::chosen;
use crate::program::{Builder, Control, Program, Value, Var};
use crate::types::ArrayType;
use std::sync::Arc;

fn union(lists: impl Iterator<Item = Vec<bool>>) -> Vec<bool> {
    lists.reduce(|a, b| a.iter().zip(b).map(|(a, b)| *a || b).collect()).unwrap_or_default()
}

/// A choice, its operands behind the number of the branch, and the types of its results.
struct Choice<'a> {
    branches: &'a [Arc<Program>],
    which: &'a Value,
    ins: &'a [Value],
    tangents: &'a [Option<Value>],
    active: &'a [bool],
    types: &'a [ArrayType],
}

pub(super) fn cond(
    b: &mut Builder,
    branches: &[Arc<Program>],
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
    style: Style,
) -> Result<Duals> {
    let tangents = &tangents[1..];
    let active: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let choice = Choice { branches, which: &ins[0], ins: &ins[1..], tangents, active: &active, types };
    match style {
        Style::Together => together(b, &choice),
        Style::Apart => apart(b, &choice),
    }
}

fn together(b: &mut Builder, choice: &Choice<'_>) -> Result<Duals> {
    let Choice { branches, which, ins, tangents, active, types } = *choice;
    let jvps: Vec<_> = branches.iter().map(|p| forward(p, active, Style::Together)).collect::<Result<_>>()?;
    let has = union(jvps.iter().map(|j| j.tangents.clone()));
    let all = [types, &chosen(types, &has)].concat();
    let mut programs = Vec::with_capacity(jvps.len());
    for jvp in jvps {
        let there =
            vec![true; types.len()].into_iter().chain(chosen(&jvp.tangents, &has)).collect::<Vec<_>>();
        programs.push(Arc::new(filled(&jvp.program, &there, &all)?));
    }
    let operands = [std::slice::from_ref(which), &with_tangents(ins, tangents)].concat();
    let mut outs = b.control(Control::Cond { branches: programs }, &operands, all);
    let tans = placed(&has, outs.split_off(types.len()));
    Ok((outs, tans))
}

/// Which slot each residual of each branch has: residuals of several branches share slots of their type, as one branch runs.
fn slots(own: &[Vec<ArrayType>]) -> (Vec<ArrayType>, Vec<Vec<usize>>) {
    let mut all: Vec<ArrayType> = Vec::new();
    let places = own
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
    (all, places)
}

fn apart(b: &mut Builder, choice: &Choice<'_>) -> Result<Duals> {
    let Choice { branches, which, ins, tangents, active, types } = *choice;
    let n = types.len();
    let lins: Vec<Linearized> = branches.iter().map(|p| linearize(p, active)).collect::<Result<_>>()?;
    let has = union(lins.iter().map(|l| l.tangents.clone()));
    let parts: Vec<(Vec<Found>, Program)> = lins.iter().map(Linearized::found).collect();
    let own: Vec<Vec<ArrayType>> = parts.iter().map(|p| p.1.output_types().split_off(n)).collect();
    let (slot_types, places) = slots(&own);

    // forward: results, then a value in each slot
    let mut forward = Vec::with_capacity(parts.len());
    for ((_, program), places) in parts.iter().zip(&places) {
        forward.push(Arc::new(extended(program, |b, _, mut outs| {
            let own = outs.split_off(n);
            for (s, ty) in slot_types.iter().enumerate() {
                outs.push(match places.iter().position(|p| *p == s) {
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

    // linear: operands that are residuals themselves, results likewise, the slots, then the tangents
    let mut shared: Vec<Found> = Vec::new();
    for f in parts.iter().flat_map(|p| &p.0) {
        if !matches!(f, Found::Own(_)) && !shared.contains(f) {
            shared.push(*f);
        }
    }
    let value = |f: &Found| match f {
        Found::Input(i) => ins[*i].clone(),
        Found::Output(o) => outs[*o].clone(),
        Found::Own(k) => kept[*k].clone(),
    };
    let operands: Vec<Value> = std::iter::once(which.clone())
        .chain(shared.iter().map(value))
        .chain(kept.iter().cloned())
        .chain(tangents.iter().flatten().cloned())
        .collect();
    let known_types: Vec<ArrayType> =
        operands[1..1 + shared.len() + kept.len()].iter().map(|v| v.ty.clone()).collect();
    let mut linear = Vec::with_capacity(lins.len());
    for ((lin, (found, _)), places) in lins.iter().zip(&parts).zip(&places) {
        let mut program = filled(&lin.linear, &chosen(&lin.tangents, &has), &chosen(types, &has))?;
        let (residuals, tans) = program.inputs.split_at(lin.residuals);
        let (residuals, tans) = (residuals.to_vec(), tans.to_vec());
        let mut new: Vec<Option<Var>> = vec![None; known_types.len()];
        for (f, v) in found.iter().zip(residuals) {
            let at = match f {
                Found::Own(k) => shared.len() + places[*k],
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
    let tans = b.control(Control::Cond { branches: linear }, &operands, chosen(types, &has));
    Ok((outs, placed(&has, tans)))
}

pub(super) fn turn(
    b: &mut Builder,
    branches: &[Arc<Program>],
    turned: &Turned<'_>,
) -> Result<Vec<Option<Value>>> {
    let is_linear = &turned.is_linear()[1..];
    let backs: Vec<_> = branches
        .iter()
        .map(|p| transpose(p, is_linear, &turned.given(), |_| Leave::Fitted))
        .collect::<Result<_>>()?;
    let reached = union(backs.iter().map(|t| t.reached.clone()));
    let linear_types = chosen(&turned.types[1..], is_linear);
    let types = cotangent_types(&chosen(&linear_types, &reached));
    let mut programs = Vec::with_capacity(backs.len());
    for back in &backs {
        programs.push(Arc::new(filled(&back.program, &chosen(&back.reached, &reached), &types)?));
    }
    debug_assert!(programs.windows(2).all(|w| input_types(&w[0]).len() == input_types(&w[1]).len()));
    let operands = [turned.known(), turned.cotangents()].concat();
    let outs = b.control(Control::Cond { branches: programs }, &operands, types);
    // the choice itself is known, so what was reached are linear operands behind it
    Ok(turned.spread(&reached, outs))
}
