//! Forward mode through a user's operation: its rule turned round.

use super::transpose::{Leave, transpose};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::custom::Custom;
use crate::program::{Forward, Tangents, Value};

/// The tangents of the results, from those of the operands: what the rule makes of cotangents is linear in them.
pub(super) fn forward(own: &Custom, at: Forward<'_>) -> Result<Tangents> {
    let Forward { b, operands, tangents, outputs } = at;
    let float = |v: &&Value| v.ty.dtype.is_float();
    if !outputs.iter().any(|v| float(&v)) {
        return Ok(vec![None; outputs.len()]);
    }
    let active: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let back = own.backward(b, operands, outputs, &active)?;
    let is_linear: Vec<bool> = (0..back.program.inputs.len()).map(|k| k >= back.reads.len()).collect();
    let given = vec![true; back.program.outputs.len()];
    let turned = transpose(&back.program, &is_linear, &given, |_| Leave::Fitted).map_err(|why| {
        let name = own.of.name;
        let text = format!("the derivative of {name} goes backward only: its rule cannot be turned round");
        let said = why.diagnostics().first().map_or("", |d| &d.fault.message);
        let fault = Fault::new(ErrorKind::Unsupported, text)
            .help(format!("{said}: write the rule so that each operation is linear in the cotangents"))
            .help("or use `grad` or `vjp`");
        b.refuse(fault, name, operands)
    })?;
    let all: Vec<&Value> = operands.iter().chain(outputs).collect();
    let mut inputs: Vec<Value> = back.reads.iter().map(|k| all[*k].clone()).collect();
    for t in tangents.iter().flatten() {
        let ty = turned.program.ty(turned.program.inputs[inputs.len()]).clone();
        inputs.push(b.fit(t, &ty)?);
    }
    let mut made = b.inline(&turned.program, &inputs).into_iter();
    let mut reached = turned.reached.iter().copied();
    let mut next = || if reached.next()? { made.next() } else { None };
    Ok(outputs.iter().map(|v| if float(&v) { next() } else { None }).collect())
}
