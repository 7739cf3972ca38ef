//! Small operations on programs as values.

use crate::diagnostic::Result;
use crate::mesh::Axes;
use crate::ops::build::cotangent_type;
use crate::program::{Builder, Input, Program, Value, Var, VarInfo};
use crate::types::ArrayType;

/// The types of a program's inputs.
pub(super) fn input_types(program: &Program) -> Vec<ArrayType> {
    program.inputs.iter().map(|v| program.ty(*v).clone()).collect()
}

/// Inputs of these types.
pub(super) fn inputs(b: &mut Builder, types: impl IntoIterator<Item = ArrayType>) -> Vec<Value> {
    types.into_iter().map(|ty| b.input(ty, None)).collect()
}

/// A new input that nothing reads yet.
pub(super) fn new_input(program: &mut Program, ty: ArrayType) -> Var {
    let var = Var(program.vars.len() as u32);
    program.vars.push(VarInfo { ty, placement: None });
    var
}

/// A program of the same inputs whose results `f` makes of its inputs and results.
pub(super) fn extended(
    program: &Program,
    f: impl FnOnce(&mut Builder, &[Value], Vec<Value>) -> Result<Vec<Value>>,
) -> Result<Program> {
    let mut b = Builder::new();
    if let Some(mesh) = &program.mesh {
        b.on(mesh);
    }
    let ins = inputs(&mut b, input_types(program));
    let outs = b.inline(program, &ins);
    let outs = f(&mut b, &ins, outs)?;
    Ok(b.finish(&outs))
}

/// Adds zeros of these types where `has` is false: one result for each.
pub(super) fn filled(program: &Program, has: &[bool], types: &[ArrayType]) -> Result<Program> {
    if has.iter().all(|h| *h) {
        return Ok(program.clone());
    }
    extended(program, |b, _, outs| {
        let mut outs = outs.into_iter();
        let mut all = Vec::with_capacity(has.len());
        for (has, ty) in has.iter().zip(types) {
            let there = if *has { outs.next() } else { None };
            all.push(match there {
                Some(v) => v,
                None => b.zeros(ty)?,
            });
        }
        Ok(all)
    })
}

/// The type of values of this type stacked along a new leading dimension.
pub(super) fn stacked(ty: &ArrayType, length: usize) -> ArrayType {
    let mut shape = ty.shape.clone();
    shape.sizes_mut().insert(0, length);
    let mut dims = ty.spec.dims().to_vec();
    dims.insert(0, Axes::none());
    ArrayType { shape, spec: ty.spec.with_dims(dims), ..ty.clone() }
}

/// The variable, if it is one.
pub(super) fn var(input: &Input) -> Option<Var> {
    match input {
        Input::Var(v) => Some(*v),
        Input::Lit(_) => None,
    }
}

/// The cotangent types of these.
pub(super) fn cotangent_types(types: &[ArrayType]) -> Vec<ArrayType> {
    types.iter().map(cotangent_type).collect()
}
