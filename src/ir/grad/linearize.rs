//! Linearizes a program: splits its JVP into a forward program and a linear program.
//!
//! The forward program computes the primal results and the residuals, which are the primal values
//! that the linear program takes. The linear program maps residuals and input tangents to result
//! tangents.

use super::jvp::{Style, jvp};
use super::util::as_var;
use crate::core::{Axes, Result};
use crate::ir::ops::dot_general::DotGeneral;
use crate::ir::program::dce::{dce, has_effect, select, used_inputs};
use crate::ir::program::{CheckpointPolicy, Equation, Input, ManualCollective, Op, Program, Remat, Var};
use crate::ir::{ops::collective::Pcast, ops::elementwise::Convert, ops::sharding::Reshard};

/// A linearized program.
#[derive(Clone, Debug)]
pub(super) struct Linearized {
    /// The primal program.
    /// It takes the program's inputs and returns its results, then the residuals.
    pub(super) forward: Program,
    /// The linear program.
    /// It takes the residuals, then the tangents of the active inputs. It returns the tangents of
    /// the results for which `tangents` is set.
    pub(super) linear: Program,
    /// The number of residuals.
    pub(super) residuals: usize,
    /// Marks the results that have a tangent; the tangents of the others are zero.
    pub(super) tangents: Vec<bool>,
}

impl Linearized {
    /// Returns the number of primal results.
    fn num_results(&self) -> usize {
        self.forward.outputs.len() - self.residuals
    }
    /// Returns the residuals, as the forward program returns them.
    pub(super) fn residuals(&self) -> &[Input] {
        &self.forward.outputs[self.num_results()..]
    }
    /// Returns the source of each residual, and a forward program that returns only the extra ones.
    ///
    /// Residuals that are already inputs or results are not returned a second time.
    pub(super) fn residual_sources(&self) -> (Vec<ResidualSource>, Program) {
        let mut own = Vec::new();
        let (results, residuals) = self.forward.outputs.split_at(self.num_results());
        let found = residuals
            .iter()
            .map(|r| {
                let as_input = self.forward.inputs.iter().position(|v| Input::Var(*v) == *r);
                let as_output = || results.iter().position(|o| o == r);
                as_input
                    .map(ResidualSource::Input)
                    .or_else(|| as_output().map(ResidualSource::Output))
                    .unwrap_or_else(|| {
                        own.push(*r);
                        ResidualSource::Extra(own.len() - 1)
                    })
            })
            .collect();
        let outputs = results.iter().copied().chain(own).collect();
        (found, Program { outputs, ..self.forward.clone() })
    }
}

/// The source of a residual outside the forward program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResidualSource {
    /// The residual is this input of the program.
    Input(usize),
    /// The residual is this result of the program.
    Output(usize),
    /// The residual is returned in addition to the results, at this index among the extra values.
    Extra(usize),
}

/// Linearizes a program and saves all residuals.
pub(super) fn linearize(program: &Program, active: &[bool]) -> Result<Linearized> {
    linearize_with_policy(program, active, &CheckpointPolicy::SaveAll)
}

/// Linearizes a program and saves only the residuals that `keep` allows.
///
/// The linear program recomputes all other values that it reads.
pub(super) fn linearize_with_policy(
    program: &Program,
    active: &[bool],
    keep: &CheckpointPolicy,
) -> Result<Linearized> {
    split_joint(program, active, &vec![true; program.outputs.len()], keep, &Axes::none())
}

/// Linearizes a branch of a conditional whose selector varies over `axes`.
///
/// All residuals vary over these axes, because only the devices that take the branch compute them.
/// The linear program recomputes the values that do not: they depend on constants only.
pub(super) fn linearize_branch(program: &Program, active: &[bool], axes: &Axes) -> Result<Linearized> {
    let all = vec![true; program.outputs.len()];
    split_joint(program, active, &all, &CheckpointPolicy::SaveAll, axes)
}

/// Linearizes a program with respect to the marked results only.
pub(super) fn linearize_for(program: &Program, active: &[bool], wanted: &[bool]) -> Result<Linearized> {
    split_joint(program, active, wanted, &CheckpointPolicy::SaveAll, &Axes::none())
}

/// Splits the JVP of a program into a forward and a linear program.
fn split_joint(
    program: &Program,
    active: &[bool],
    requested: &[bool],
    keep: &CheckpointPolicy,
    residuals_vary_over: &Axes,
) -> Result<Linearized> {
    let joint = jvp(program, active, Style::Split)?;
    let requested_tangents = select(requested, &joint.tangents);
    let tangents: Vec<bool> = joint.tangents.iter().zip(requested).map(|(t, w)| *t && *w).collect();
    let joint = joint.program;
    let (primals, tans) = joint.inputs.split_at(program.inputs.len());
    let (values, out_tangents) = joint.outputs.split_at(program.outputs.len());
    let out_tangents = &select(out_tangents, &requested_tangents)[..];

    // Every equation that depends on a tangent is linear in the tangents.
    let mut depends = vec![false; joint.vars.len()];
    tans.iter().for_each(|v| depends[v.index()] = true);
    for e in &joint.equations {
        if e.inputs.iter().filter_map(as_var).any(|v| depends[v.index()]) {
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

    // the linear program recomputes the primal values that it reads if they are cheap or if the
    // policy does not save them
    let mut needs = vec![false; joint.vars.len()];
    let reads = live.iter().flat_map(|e| &e.inputs).chain(out_tangents).filter_map(as_var);
    reads.filter(|v| !depends[v.index()]).for_each(|v| needs[v.index()] = true);
    let gathered = gathered_values(&joint);
    let mut again: Vec<Equation> = Vec::new();
    for e in joint.equations.iter().rev().filter(|e| !is_linear(e)) {
        let again_here = |e: &Equation, needs: &[bool]| {
            let varies = |v: &Var| residuals_vary_over.is_subset_of(&joint.ty(*v).varying);
            is_cheap_to_recompute(e, primals, needs, &joint)
                || !is_saved(e, keep, &gathered)
                || !e.outputs.iter().all(varies)
        };
        if e.outputs.iter().any(|v| needs[v.index()]) && again_here(e, &needs) {
            e.outputs.iter().for_each(|v| needs[v.index()] = false);
            e.inputs.iter().filter_map(as_var).for_each(|v| needs[v.index()] = true);
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
    debug_assert!(used_inputs(&linear)[..residuals.len()].iter().all(|u| *u));
    let known = joint.equations.iter().filter(|e| !is_linear(e)).cloned().collect();
    let outputs = values.iter().copied().chain(residuals.iter().copied().map(Input::Var)).collect();
    let forward = with(primals.to_vec(), known, outputs);
    Ok(Linearized { forward: dce(&forward), linear: dce(&linear), residuals: residuals.len(), tangents })
}

/// Returns the equations that the outputs depend on.
fn live_equations(equations: &[Equation], outputs: &[Input], vars: usize) -> Vec<Equation> {
    let mut live = vec![false; vars];
    outputs.iter().filter_map(as_var).for_each(|v| live[v.index()] = true);
    let mut kept: Vec<Equation> = Vec::new();
    for e in equations.iter().rev().filter(|e| !e.outputs.is_empty()) {
        if e.outputs.iter().any(|v| live[v.index()]) {
            e.inputs.iter().filter_map(as_var).for_each(|v| live[v.index()] = true);
            kept.push(e.clone());
        }
    }
    kept.reverse();
    kept
}

/// Returns true if the policy saves the results of an equation that the linear program reads.
///
/// `gathered` marks the values that are gathered.
fn is_saved(e: &Equation, keep: &CheckpointPolicy, gathered: &[bool]) -> bool {
    match keep {
        CheckpointPolicy::SaveAll => true,
        // An equation with side effects runs only once.
        _ if has_effect(e) => true,
        CheckpointPolicy::SaveNothing => false,
        CheckpointPolicy::SaveNamed(names) => {
            e.name.as_ref().is_some_and(|n| names.iter().any(|m| **m == **n))
        }
        CheckpointPolicy::SaveDots => dot_of(e).is_some(),
        CheckpointPolicy::SaveDotsWithoutBatchDims => dot_of(e).is_some_and(|dot| dot.batch[0].is_empty()),
        CheckpointPolicy::SaveAllButGathers => !e.outputs.iter().any(|v| gathered[v.index()]),
    }
}

/// Returns the matrix product of an equation, `None` for other operations.
fn dot_of(e: &Equation) -> Option<&DotGeneral> {
    let Op::Prim(prim) = &e.op else { return None };
    prim.downcast_ref()
}

/// Returns, for each variable, whether it is a gathered value, or a gathered value that was only
/// cast or converted since.
fn gathered_values(program: &Program) -> Vec<bool> {
    let mut gathered = vec![false; program.vars.len()];
    for e in &program.equations {
        let of_gathered = e.inputs.iter().filter_map(as_var).any(|v| gathered[v.index()]);
        if is_gather(e, program) || of_gathered && is_conversion(e) {
            e.outputs.iter().for_each(|v| gathered[v.index()] = true);
        }
    }
    gathered
}

/// Returns true if the result has the elements of the only operand, in another element type or with
/// another varying state.
fn is_conversion(e: &Equation) -> bool {
    let Op::Prim(prim) = &e.op else { return false };
    prim.downcast_ref::<Convert>().is_some() || prim.downcast_ref::<Pcast>().is_some()
}

/// Returns true if the equation is an `all_gather`, or a reshard after which an axis no longer
/// splits any dimension.
fn is_gather(e: &Equation, program: &Program) -> bool {
    let (Op::Prim(prim), [Input::Var(from)], [to]) = (&e.op, &e.inputs[..], &e.outputs[..]) else {
        return false;
    };
    if let Some(ManualCollective::AllGather { .. }) = prim.collective() {
        return true;
    }
    let (from, to) = (program.ty(*from), program.ty(*to));
    let lost = |d: usize| from.spec.dim(d).iter().any(|a| !to.spec.dims().iter().any(|e| e.contains(*a)));
    prim.downcast_ref::<Reshard>().is_some() && (0..from.rank()).any(lost)
}

/// Returns true if an equation is cheaper to recompute than to save.
///
/// This holds for equations that do not depend on variables, for reshards that change only the
/// reduced axes of a saved value, and if the primitive's remat rule says so.
fn is_cheap_to_recompute(e: &Equation, inputs: &[Var], needs: &[bool], program: &Program) -> bool {
    let Op::Prim(prim) = &e.op else { return false };
    if e.inputs.iter().filter_map(as_var).next().is_none() {
        return true;
    }
    let at_hand = |v: Var| inputs.contains(&v) || needs[v.index()];
    if changes_reduced_axes_only(e, program) {
        return e.inputs.iter().filter_map(as_var).all(at_hand);
    }
    match prim.remat() {
        Remat::Never => false,
        Remat::IfOperandsSaved => e.inputs.iter().filter_map(as_var).all(at_hand),
        Remat::Always => true,
    }
}

/// Returns true if the equation is a reshard whose operand has the blocks of the result, so that
/// nothing is moved or added.
fn changes_reduced_axes_only(e: &Equation, program: &Program) -> bool {
    let (Op::Prim(prim), [Input::Var(from)], [to]) = (&e.op, &e.inputs[..], &e.outputs[..]) else {
        return false;
    };
    let (from, to) = (program.ty(*from).spec, program.ty(*to).spec);
    prim.downcast_ref::<Reshard>().is_some()
        && from.dims() == to.dims()
        && from.unreduced_axes() == to.unreduced_axes()
}
