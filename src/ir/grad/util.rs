//! Provides helpers that build and edit programs for the derivative transformations.

use crate::core::{ArrayType, Axes, Result};
use crate::ir::program::{Builder, Input, Program, Value, Var, VarInfo, typing::cotangent_type};

/// Returns the types of a program's inputs.
pub(super) fn input_types(program: &Program) -> Vec<ArrayType> {
    program.inputs.iter().map(|v| program.ty(*v).clone()).collect()
}

/// Adds inputs of the given types to a program under construction.
pub(super) fn inputs(b: &mut Builder, types: impl IntoIterator<Item = ArrayType>) -> Vec<Value> {
    types.into_iter().map(|ty| b.input(ty, None)).collect()
}

/// Adds a variable of type `ty`, which nothing uses yet, to a program; it becomes an input.
pub(super) fn new_input(program: &mut Program, ty: ArrayType) -> Var {
    let var = Var(program.vars.len() as u32);
    program.vars.push(VarInfo { ty, placement: None });
    var
}

/// Returns a program with the same inputs whose results are computed by `f`.
///
/// `f` gets the values of the program's inputs and results.
pub(super) fn extend_program(
    program: &Program,
    f: impl FnOnce(&mut Builder, &[Value], Vec<Value>) -> Result<Vec<Value>>,
) -> Result<Program> {
    let mut b = Builder::new();
    if let Some(mesh) = &program.mesh {
        b.set_default_mesh(mesh);
    }
    let ins = inputs(&mut b, input_types(program));
    let outs = b.inline(program, &ins);
    let outs = f(&mut b, &ins, outs)?;
    Ok(b.finish(&outs))
}

/// Returns a program with one result for each type; results are zeros if `has` is false.
pub(super) fn fill_missing_with_zeros(
    program: &Program,
    has: &[bool],
    types: &[ArrayType],
) -> Result<Program> {
    if has.iter().all(|h| *h) {
        return Ok(program.clone());
    }
    extend_program(program, |b, _, outs| {
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

/// Returns the type of `length` values of type `ty`, stacked along a new first dimension.
pub(super) fn stacked_type(ty: &ArrayType, length: usize) -> ArrayType {
    let mut shape = ty.shape.clone();
    shape.sizes_mut().insert(0, length);
    let mut dims = ty.spec.dims().to_vec();
    dims.insert(0, Axes::none());
    ArrayType { shape, spec: ty.spec.with_dims(dims), ..ty.clone() }
}

/// Returns the variable of an input; `None` for a literal.
pub(super) fn as_var(input: &Input) -> Option<Var> {
    match input {
        Input::Var(v) => Some(*v),
        Input::Lit(_) => None,
    }
}

/// Returns the cotangent types of the given types.
pub(super) fn cotangent_types(types: &[ArrayType]) -> Vec<ArrayType> {
    types.iter().map(cotangent_type).collect()
}

/// Returns the number of flags that are set.
pub(super) fn count_set(flags: &[bool]) -> usize {
    flags.iter().filter(|f| **f).count()
}
