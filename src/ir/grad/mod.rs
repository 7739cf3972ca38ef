//! Transforms programs into programs that compute their derivatives (automatic differentiation).
//!
//! Forward mode ([`jvp_program`]) adds after every equation the equations of its tangents.
//!
//! Reverse mode ([`vjp_program`]) has two steps. *Linearizing* computes the JVP, with each control
//! operation split into two: one for the primals, and one that is linear in the tangents. The
//! equations that do not depend on tangents form the forward program, the others form the linear
//! program, and the primal values that the linear program reads are the residuals, except for
//! cheap ones, which the linear program recomputes. *Transposing* runs the linear program
//! backward: from cotangents of the results to cotangents of the inputs, with the transpose rule
//! of each primitive. A value that does not depend on the differentiated inputs has no tangent and
//! no cotangent, not even zeros; this also holds for loop carries.
//!
//! The type of a cotangent is the type of its primal with the unreduced and reduced sets swapped
//! ([`cotangent_type`](crate::ir::program::typing::cotangent_type)). Each cotangent that a
//! transpose rule returns is converted to this type
//! ([`Builder::fit_cotangent`](crate::ir::program::Builder::fit_cotangent)). Only this conversion
//! inserts the sum over devices for an implicit cast, and the reshard for an implicit join of
//! shardings. Contributions to one cotangent that are partial values over explicit axes are added
//! before they are converted (`unreduced`).

mod backward_loop;
mod call;
mod cond;
mod custom;
mod jvp;
mod linearize;
mod loops;
mod shard_map;
mod transpose;
mod unreduced;
mod util;

use crate::core::{ErrorKind, Fault, Result};
use crate::ir::program::dce::{dce, select};
use crate::ir::program::{Builder, Phase, Program, Tangents, Value};

/// A program that computes primals and tangents.
#[derive(Clone, Debug)]
pub struct Jvp {
    /// The JVP program.
    /// It takes the program's inputs, then a tangent for each active input. It returns the
    /// program's results, then a tangent for each result for which `tangents` is set.
    pub program: Program,
    /// Marks the results that have a tangent; the tangents of the others are zero.
    pub tangents: Vec<bool>,
}

/// A program split into a forward part and a backward part that are connected by residuals.
#[derive(Clone, Debug)]
pub struct Vjp {
    /// The primal program.
    /// It takes the program's inputs and returns its results, then the residuals.
    pub forward: Program,
    /// The program that computes cotangents.
    /// It takes the residuals, then a cotangent for each result that [`depends`](Vjp::depends). It
    /// returns the cotangents of the requested inputs, which are zeros if no result depends on an
    /// input.
    pub backward: Program,
    /// The number of residuals.
    pub residuals: usize,
    /// Marks the requested results that depend on the requested inputs; these take a cotangent.
    pub depends: Vec<bool>,
}

/// Returns the JVP of a program.
///
/// `active` marks the inputs with a tangent, which must be floats.
pub fn jvp_program(program: &Program, active: &[bool]) -> Result<Jvp> {
    let active = check_float_inputs(program, active)?;
    let jvp = jvp::jvp_fused(program, &active)?;
    Ok(Jvp { program: dce(&jvp.program), tangents: jvp.tangents })
}

/// Returns the VJP of a program with respect to the inputs with the indices `wrt`.
pub fn vjp_program(program: &Program, wrt: &[usize]) -> Result<Vjp> {
    vjp_program_for_results(program, wrt, &vec![true; program.outputs.len()])
}

/// Returns the VJP for cotangents of the marked results; other results need no residuals.
pub fn vjp_program_for_results(program: &Program, wrt: &[usize], results: &[bool]) -> Result<Vjp> {
    let active: Vec<bool> = (0..program.inputs.len()).map(|i| wrt.contains(&i)).collect();
    let active = check_float_inputs(program, &active)?;
    let linear = linearize::linearize_for(program, &active, results)?;
    let is_tangent: Vec<bool> = (0..linear.linear.inputs.len()).map(|i| i >= linear.residuals).collect();
    let given = vec![true; linear.linear.outputs.len()];
    let back =
        transpose::transpose(&linear.linear, &is_tangent, &given, &|_| transpose::CotangentExit::Fitted)?;

    // the transpose returns a result for each input that has a cotangent, in order; the caller
    // expects a result for each entry of `wrt`, in the order of `wrt`
    let mut b = Builder::new();
    let ins: Vec<Value> =
        back.program.inputs.iter().map(|v| b.input(back.program.ty(*v).clone(), None)).collect();
    let mut reached = b.inline(&back.program, &ins).into_iter();
    let mut of_input: Tangents = vec![None; program.inputs.len()];
    for (i, has) in (0..active.len()).filter(|i| active[*i]).zip(&back.reached) {
        of_input[i] = if *has { reached.next() } else { None };
    }
    let mut outs = Vec::with_capacity(wrt.len());
    b.set_phase(Phase::Backward);
    for i in wrt {
        outs.push(match &of_input[*i] {
            Some(ct) => ct.clone(),
            None => b.zeros(&crate::ir::program::typing::cotangent_type(program.ty(program.inputs[*i])))?,
        });
    }
    Ok(Vjp {
        forward: linear.forward,
        backward: dce(&b.finish(&outs)),
        residuals: linear.residuals,
        depends: linear.tangents,
    })
}

/// A program split into a forward part and a linear part that are connected by residuals.
#[derive(Clone, Debug)]
pub struct Linearization {
    /// The primal program.
    /// It takes the program's inputs and returns its results, then the residuals.
    pub forward: Program,
    /// The program that computes tangents.
    /// It takes the residuals, then the tangents of the active inputs. It returns the tangents of
    /// the results for which `tangents` is set.
    pub linear: Program,
    /// Marks the results that have a tangent; the tangents of the others are zero.
    pub tangents: Vec<bool>,
}

/// Returns the derivative of a program as a linear program, for the `active` inputs.
pub fn linearize_program(program: &Program, active: &[bool]) -> Result<Linearization> {
    let active = check_float_inputs(program, active)?;
    let linearize::Linearized { forward, linear, tangents, .. } = linearize::linearize(program, &active)?;
    Ok(Linearization { forward, linear: custom::runnable(&linear)?, tangents })
}

/// Returns an error if an active input is not a float.
fn check_float_inputs(program: &Program, active: &[bool]) -> Result<Vec<bool>> {
    for v in select(&program.inputs, active) {
        let ty = program.ty(v);
        if !ty.dtype.is_float() {
            let message = format!("derivatives are taken by floats, but an argument is {ty}");
            return Err(Fault::new(ErrorKind::Dtype, message).help("convert it to float32 first").into());
        }
    }
    Ok(active.to_vec())
}
