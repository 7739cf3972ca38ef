//! A program in two: its values and what the rest needs of them, and what is linear in the tangents.

use super::push::{Style, forward};
use super::surgery::var;
use crate::diagnostic::Result;
use crate::ops::sharding::Reshard;
use crate::program::dce::{chosen, dce, has_effect, used};
use crate::program::{Again, Equation, Input, Keep, Op, Program, Var};

/// A program taken apart at a point.
#[derive(Clone, Debug)]
pub(super) struct Linearized {
    /// Inputs: the program's. Results: the program's, then the residuals.
    pub(super) forward: Program,
    /// Inputs: the residuals, then the tangents of the active inputs. Results: the tangents of the results that have one.
    pub(super) linear: Program,
    /// How many residuals.
    pub(super) residuals: usize,
    /// Which results have a tangent.
    pub(super) tangents: Vec<bool>,
}

impl Linearized {
    /// How many results the program itself has.
    fn results(&self) -> usize {
        self.forward.outputs.len() - self.residuals
    }
    /// The residuals as the forward program returns them.
    pub(super) fn residuals(&self) -> &[Input] {
        &self.forward.outputs[self.results()..]
    }
    /// Where each residual is to be had, and the forward program that returns those only that nothing else gives.
    pub(super) fn found(&self) -> (Vec<Found>, Program) {
        let mut own = Vec::new();
        let (results, residuals) = self.forward.outputs.split_at(self.results());
        let found = residuals
            .iter()
            .map(|r| {
                let as_input = self.forward.inputs.iter().position(|v| Input::Var(*v) == *r);
                let as_output = || results.iter().position(|o| o == r);
                as_input.map(Found::Input).or_else(|| as_output().map(Found::Output)).unwrap_or_else(|| {
                    own.push(*r);
                    Found::Own(own.len() - 1)
                })
            })
            .collect();
        let outputs = results.iter().copied().chain(own).collect();
        (found, Program { outputs, ..self.forward.clone() })
    }
}

/// Where a residual is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is an input of the program.
    Input(usize),
    /// It is a result of the program.
    Output(usize),
    /// It is returned beside the results: its number among these.
    Own(usize),
}

/// Takes a program apart.
pub(super) fn linearize(program: &Program, active: &[bool]) -> Result<Linearized> {
    linearize_keeping(program, active, &Keep::All)
}

/// The same, with no residuals but what is to be kept: what else the linear part reads is computed there again.
pub(super) fn linearize_keeping(program: &Program, active: &[bool], keep: &Keep) -> Result<Linearized> {
    apart(program, active, &vec![true; program.outputs.len()], keep)
}

/// The same for the tangents of these results only.
pub(super) fn linearize_for(program: &Program, active: &[bool], wanted: &[bool]) -> Result<Linearized> {
    apart(program, active, wanted, &Keep::All)
}

fn apart(program: &Program, active: &[bool], wanted: &[bool], keep: &Keep) -> Result<Linearized> {
    let joint = forward(program, active, Style::Apart)?;
    let wanted_tangents = chosen(wanted, &joint.tangents);
    let tangents: Vec<bool> = joint.tangents.iter().zip(wanted).map(|(t, w)| *t && *w).collect();
    let joint = joint.program;
    let (primals, tans) = joint.inputs.split_at(program.inputs.len());
    let (values, out_tangents) = joint.outputs.split_at(program.outputs.len());
    let out_tangents = &chosen(out_tangents, &wanted_tangents)[..];

    // what depends on a tangent is linear in them
    let mut depends = vec![false; joint.vars.len()];
    tans.iter().for_each(|v| depends[v.index()] = true);
    for e in &joint.equations {
        if e.inputs.iter().filter_map(var).any(|v| depends[v.index()]) {
            e.outputs.iter().for_each(|v| depends[v.index()] = true);
        }
    }
    let is_linear = |e: &Equation| e.outputs.iter().any(|v| depends[v.index()]);
    let with = |inputs: Vec<Var>, equations: Vec<Equation>, outputs: Vec<Input>| Program {
        inputs,
        equations,
        outputs,
        ..joint.clone()
    };
    let linear_only: Vec<Equation> = joint.equations.iter().filter(|e| is_linear(e)).cloned().collect();
    let live = live_equations(&linear_only, out_tangents, joint.vars.len());

    // what the linear part reads, where it is cheap computed there again
    let mut needs = vec![false; joint.vars.len()];
    let reads = live.iter().flat_map(|e| &e.inputs).chain(out_tangents).filter_map(var);
    reads.filter(|v| !depends[v.index()]).for_each(|v| needs[v.index()] = true);
    let mut again: Vec<Equation> = Vec::new();
    for e in joint.equations.iter().rev().filter(|e| !is_linear(e)) {
        let again_here = |e: &Equation, needs: &[bool]| is_cheap(e, primals, needs) || !kept(e, &joint, keep);
        if e.outputs.iter().any(|v| needs[v.index()]) && again_here(e, &needs) {
            e.outputs.iter().for_each(|v| needs[v.index()] = false);
            e.inputs.iter().filter_map(var).for_each(|v| needs[v.index()] = true);
            again.push(e.clone());
        }
    }
    again.reverse();
    let again_makes: Vec<Var> = again.iter().flat_map(|e| e.outputs.iter().copied()).collect();
    let residuals: Vec<Var> = (0..joint.vars.len() as u32)
        .map(Var)
        .filter(|v| needs[v.index()] && !again_makes.contains(v))
        .collect();

    let inputs = residuals.iter().chain(tans).copied().collect();
    let equations = again.into_iter().chain(live).collect();
    let linear = with(inputs, equations, out_tangents.to_vec());
    debug_assert!(used(&linear)[..residuals.len()].iter().all(|u| *u));
    let known = joint.equations.iter().filter(|e| !is_linear(e)).cloned().collect();
    let outputs = values.iter().copied().chain(residuals.iter().copied().map(Input::Var)).collect();
    let forward = with(primals.to_vec(), known, outputs);
    Ok(Linearized { forward: dce(&forward), linear: dce(&linear), residuals: residuals.len(), tangents })
}

/// The equations that the outputs need.
fn live_equations(equations: &[Equation], outputs: &[Input], vars: usize) -> Vec<Equation> {
    let mut live = vec![false; vars];
    outputs.iter().filter_map(var).for_each(|v| live[v.index()] = true);
    let mut kept: Vec<Equation> = Vec::new();
    for e in equations.iter().rev().filter(|e| !e.outputs.is_empty()) {
        if e.outputs.iter().any(|v| live[v.index()]) {
            e.inputs.iter().filter_map(var).for_each(|v| live[v.index()] = true);
            kept.push(e.clone());
        }
    }
    kept.reverse();
    kept
}

/// Whether the results of an equation are kept if the way back reads them.
fn kept(e: &Equation, program: &Program, keep: &Keep) -> bool {
    match keep {
        Keep::All => true,
        // what does more than compute is done once
        _ if has_effect(e) => true,
        Keep::Nothing => false,
        Keep::Named(names) => e.name.as_ref().is_some_and(|n| names.iter().any(|m| **m == **n)),
        Keep::AllButGathers => !gathers(e, program),
    }
}

/// Whether an equation moves a value so that a dimension is less split than before.
fn gathers(e: &Equation, program: &Program) -> bool {
    let (Op::Prim(prim), [Input::Var(from)], [to]) = (&e.op, &e.inputs[..], &e.outputs[..]) else {
        return false;
    };
    let (from, to) = (program.ty(*from), program.ty(*to));
    let lost = |d: usize| from.spec.dim(d).iter().any(|a| !to.spec.dims().iter().any(|e| e.contains(*a)));
    prim.downcast_ref::<Reshard>().is_some() && (0..from.rank()).any(lost)
}

/// Whether it is better computed again than kept: what depends on no variable, and what the primitive says.
fn is_cheap(e: &Equation, inputs: &[Var], needs: &[bool]) -> bool {
    let Op::Prim(prim) = &e.op else { return false };
    if e.inputs.iter().filter_map(var).next().is_none() {
        return true;
    }
    let at_hand = |v: Var| inputs.contains(&v) || needs[v.index()];
    match prim.again() {
        Again::Never => false,
        Again::AtHand => e.inputs.iter().filter_map(var).all(at_hand),
        Again::Always => true,
    }
}
