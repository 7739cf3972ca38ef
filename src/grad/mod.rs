//! Derivatives: programs to programs.
//!
//! Forward mode ([`jvp_program`]) repeats every equation and puts its tangent's beside it. Reverse mode ([`vjp_program`]) goes in two
//! steps. *Linearizing* does the same, but control operations become two, one for the values and one that is linear in the
//! tangents; what depends on no tangent is then the forward program, the rest the linear one, and what the latter reads of the
//! former are the residuals. *Transposing* turns the linear program round: cotangents of results come in, those of inputs go
//! out, and each equation's primitive says its transpose. A value that does not depend on what is differentiated has no tangent
//! and no cotangent at all (rather than zeros), also as a carry of a loop.
//!
//! The cotangent of a value has its type with the unreduced and the reduced set traded
//! ([`cotangent_type`](crate::ops::build::cotangent_type)); each is made to fit when an equation's transpose
//! hands it back ([`Builder::fit_cotangent`](crate::program::Builder::fit_cotangent)), so that the sum over devices that belongs to
//! an implicit cast, or the move that belongs to an implicit join, is done once and in one place.

mod branches;
mod custom;
mod linearize;
mod loops;
mod modes;
mod per_device;
mod push;
mod surgery;
mod transpose;

use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::program::dce::{chosen, dce};
use crate::program::{Builder, Phase, Program, Value};

/// A program with its tangents.
#[derive(Clone, Debug)]
pub struct Jvp {
    /// Inputs: those of the program, then a tangent for each active one. Results: those of the program, then a tangent for each
    /// that has one.
    pub program: Program,
    /// Which results have a tangent; the others' tangents are zero.
    pub tangents: Vec<bool>,
}

/// A program in two halves: what is computed forward, and how cotangents go back.
#[derive(Clone, Debug)]
pub struct Vjp {
    /// Inputs: those of the program. Results: those of the program, then the residuals.
    pub forward: Program,
    /// Inputs: the residuals, then a cotangent for each result that [`depends`](Vjp::depends). Results: the cotangents of the inputs
    /// asked for, zeros where nothing depends on one.
    pub backward: Program,
    /// How many residuals there are.
    pub residuals: usize,
    /// Which results depend on the inputs asked for (and were asked for): those that a cotangent is taken of.
    pub depends: Vec<bool>,
}

/// The program with tangents: `active` says which inputs have one. Inputs that are not floats cannot.
pub fn jvp_program(program: &Program, active: &[bool]) -> Result<Jvp> {
    let active = floats(program, active)?;
    let jvp = push::together(program, &active)?;
    Ok(Jvp { program: dce(&jvp.program), tangents: jvp.tangents })
}

/// The program for reverse mode: values and residuals forward, cotangents of the inputs `wrt` backward.
pub fn vjp_program(program: &Program, wrt: &[usize]) -> Result<Vjp> {
    vjp_program_of(program, wrt, &vec![true; program.outputs.len()])
}

/// The same for cotangents of these results only: the others are computed, but nothing is kept for them.
pub fn vjp_program_of(program: &Program, wrt: &[usize], results: &[bool]) -> Result<Vjp> {
    let active: Vec<bool> = (0..program.inputs.len()).map(|i| wrt.contains(&i)).collect();
    let active = floats(program, &active)?;
    let linear = linearize::linearize_for(program, &active, results)?;
    let is_tangent: Vec<bool> = (0..linear.linear.inputs.len()).map(|i| i >= linear.residuals).collect();
    let given = vec![true; linear.linear.outputs.len()];
    let back = transpose::transpose(&linear.linear, &is_tangent, &given, |_| transpose::Leave::Fitted)?;

    // the transpose has a result for each input that it reaches, in their order; the caller asked for others, and in its own
    let mut b = Builder::new();
    let ins: Vec<Value> =
        back.program.inputs.iter().map(|v| b.input(back.program.ty(*v).clone(), None)).collect();
    let mut reached = b.inline(&back.program, &ins).into_iter();
    let mut of_input: Vec<Option<Value>> = vec![None; program.inputs.len()];
    for (i, has) in (0..active.len()).filter(|i| active[*i]).zip(&back.reached) {
        of_input[i] = if *has { reached.next() } else { None };
    }
    let mut outs = Vec::with_capacity(wrt.len());
    b.during(Phase::Backward);
    for i in wrt {
        outs.push(match &of_input[*i] {
            Some(ct) => ct.clone(),
            None => b.zeros(&crate::ops::build::cotangent_type(program.ty(program.inputs[*i])))?,
        });
    }
    Ok(Vjp {
        forward: linear.forward,
        backward: dce(&b.finish(&outs)),
        residuals: linear.residuals,
        depends: linear.tangents,
    })
}

/// Refuses to differentiate by what is not a float.
fn floats(program: &Program, active: &[bool]) -> Result<Vec<bool>> {
    for v in chosen(&program.inputs, active) {
        let ty = program.ty(v);
        if !ty.dtype.is_float() {
            let message = format!("derivatives are taken by floats, but an argument is {ty}");
            return Err(Fault::new(ErrorKind::Dtype, message).help("convert it to float32 first").into());
        }
    }
    Ok(active.to_vec())
}
