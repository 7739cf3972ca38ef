//! Differentiates custom operations in forward mode, by transposing their VJP rules.
//!
//! A custom operation has only a rule that maps cotangents backward. The rule is linear in the
//! cotangents, so its transpose maps tangents forward. If the rule contains an operation that has
//! no transpose, this fails, and the error suggests reverse mode.

use super::transpose::{CotangentExit, transpose};
use crate::core::{ErrorKind, Fault, Result};
use crate::ir::ops::custom::CustomPrim;
use crate::ir::program::{JvpArgs, Tangents, Value};

/// Returns the tangents of the results.
///
/// The VJP rule is linear in the cotangents, so its transpose maps operand tangents to result
/// tangents.
pub(super) fn jvp_custom(prim: &CustomPrim, args: JvpArgs<'_>) -> Result<Tangents> {
    let JvpArgs { builder: b, operands, tangents, outputs } = args;
    let float = |v: &&Value| v.ty.dtype.is_float();
    if !outputs.iter().any(|v| float(&v)) {
        return Ok(vec![None; outputs.len()]);
    }
    let active: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let back = prim.backward_program(b, operands, outputs, &active)?;
    let is_linear: Vec<bool> = (0..back.program.inputs.len()).map(|k| k >= back.residuals.len()).collect();
    let given = vec![true; back.program.outputs.len()];
    let turned = transpose(&back.program, &is_linear, &given, &|_| CotangentExit::Fitted).map_err(|why| {
        let name = prim.declaration.name;
        let text = format!("the derivative of {name} goes backward only: its rule cannot be transposed");
        let message = why.diagnostics().first().map_or("", |d| &d.fault.message);
        let fault = Fault::new(ErrorKind::Unsupported, text)
            .help(format!("{message}: write the rule so that each operation is linear in the cotangents"))
            .help("or use `grad` or `vjp`");
        b.error(fault, name, operands)
    })?;
    let all: Vec<&Value> = operands.iter().chain(outputs).collect();
    let mut inputs: Vec<Value> = back.residuals.iter().map(|k| all[*k].clone()).collect();
    for t in tangents.iter().flatten() {
        let ty = turned.program.ty(turned.program.inputs[inputs.len()]).clone();
        inputs.push(b.fit_to_type(t, &ty)?);
    }
    let mut made = b.inline(&turned.program, &inputs).into_iter();
    let mut reached = turned.reached.iter().copied();
    let mut next = || if reached.next()? { made.next() } else { None };
    Ok(outputs.iter().map(|v| if float(&v) { next() } else { None }).collect())
}
