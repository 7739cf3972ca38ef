//! A test harness for primitives, which the unit tests of each family use.
//!
//! A test compares the printed program of a primitive, its JVP and its VJP with an expected text.
//! It then compares the results of the lockstep engine with those of the reference engine.

use super::random::{RandomKeyData, RandomWrap};
use crate::core::{ArrayType, AxisType, Error, Mesh, Result};
use crate::ir::grad::{jvp_program, vjp_program};
use crate::ir::program::{Builder, Prim, Program, Value};
use crate::prelude::*;
use std::sync::Arc;

/// Defines one test for each entry `name: primitive, [operand types] => "expected text";`.
///
/// Operands are on a mesh of the explicit axes `X` and `Y` with 2 devices each or, after `of
/// Manual`, on a mesh of one manual axis `X` with 2 devices. A failing test prints the actual text.
macro_rules! check_prim {
    ($($name:ident: $prim:expr, [$($ty:literal),*] $(of $axes:ident)? => $want:literal;)*) => { $(
        #[test]
        fn $name() {
            let axes = [$($crate::mesh::AxisType::$axes,)? $crate::mesh::AxisType::Explicit][0];
            $crate::ops::test_util::check(std::sync::Arc::new($prim), axes, &[$($ty),*], $want);
        }
    )* };
}
pub(crate) use check_prim;

/// Builds a program of one primitive.
fn build_program(prim: &Prim, types: &[ArrayType]) -> Result<Program> {
    let mut b = Builder::new();
    let operands: Vec<Value> = types.iter().map(|ty| b.input(ty.clone(), None)).collect();
    let results = b.emit(prim.clone(), &operands)?;
    Ok(b.finish(&results))
}

/// Formats an error with its choices and help.
fn error_text(error: &Error) -> String {
    let d = &error.diagnostics()[0].fault;
    let choices = d.out_shardings.iter().map(|(what, out)| format!("{what}: {out}"));
    std::iter::once(d.message.clone()).chain(choices).chain(d.help.clone()).collect::<Vec<_>>().join("\n")
}

/// Returns the printed program of a primitive, its JVP, and its VJP for all float operands.
fn describe(prim: &Prim, types: &[ArrayType]) -> String {
    let program = match build_program(prim, types) {
        Ok(program) => program,
        Err(error) => return format!("error: {}", error_text(&error)),
    };
    let floats: Vec<bool> = types.iter().map(|ty| ty.dtype.is_float()).collect();
    let mut text = program.to_string();
    if floats.contains(&true) {
        match jvp_program(&program, &floats) {
            Ok(jvp) if jvp.tangents.contains(&true) => text += &format!("\ntangents: {}", jvp.program),
            Ok(_) => text += "\nno tangents",
            Err(error) => return format!("{text}\nno derivative: {}", error_text(&error)),
        }
        let wrt: Vec<usize> = (0..types.len()).filter(|k| floats[*k]).collect();
        match vjp_program(&program, &wrt) {
            Ok(vjp) if vjp.depends.contains(&true) => text += &format!("\ncotangents: {}", vjp.backward),
            Ok(_) => {}
            Err(error) => text += &format!("\nno cotangents: {}", error_text(&error)),
        }
    }
    text
}

/// Returns test data of both signs and moderate magnitude.
fn test_data(ty: &ArrayType, seed: usize) -> Array {
    let n: usize = ty.shape.iter().product();
    let numbers = |n: usize, shape: &[usize]| {
        let x: Vec<f32> = (0..n).map(|i| ((i * 7 + seed * 5) % 23) as f32 * 0.13 - 1.1).collect();
        Array::from(x).reshape(shape)
    };
    let x = match ty.dtype {
        DType::Key => {
            let words = (numbers(2 * n, &[&ty.shape[..], &[2]].concat()) * 9.0).abs().astype(U32);
            Array::apply(Arc::new(RandomWrap), &[(&words).into()]).swap_remove(0)
        }
        DType::Bool => numbers(n, &ty.shape).gt(0.2),
        d if d.is_complex() => {
            let both = numbers(2 * n, &[&ty.shape[..], &[2]].concat()).astype(d.real());
            let component = |k: i64| both.slice(ix![Ellipsis, k]);
            component(0).complex(component(1))
        }
        d if d.is_float() => numbers(n, &ty.shape).astype(d),
        d => (numbers(n, &ty.shape) * 9.0).abs().astype(d),
    };
    let Some(mesh) = &ty.mesh else { return x };
    x.put(mesh, ty.spec)
}

/// Returns all elements as `f64`; for complex numbers, all real parts and then all imaginary parts.
fn to_f64s(x: &Array) -> Vec<f64> {
    let x = match x.ty().expect("it ran").dtype {
        DType::Key => Array::apply(Arc::new(RandomKeyData), &[x.into()]).swap_remove(0),
        d if d.is_complex() => return [to_f64s(&x.real()), to_f64s(&x.imag())].concat(),
        _ => x.clone(),
    };
    x.astype(F64).to_vec().expect("they are numbers")
}

/// Asserts that the lockstep engine and the reference engine compute equal results.
fn assert_engines_agree(prim: &Prim, types: &[ArrayType]) {
    let xs: Vec<Array> = types.iter().enumerate().map(|(k, ty)| test_data(ty, k)).collect();
    let run = |engine| {
        let apply =
            |xs: &Vec<Array>| Array::apply(prim.clone(), &xs.iter().map(Into::into).collect::<Vec<_>>());
        jit(apply).engine(engine).call(&xs).unwrap_or_else(|e| panic!("{e}"))
    };
    let (got, want) = (run(EngineKind::Lockstep), run(EngineKind::Reference));
    for (got, want) in got.iter().zip(&want).map(|(a, b)| (to_f64s(a), to_f64s(b))) {
        let near = |a: &f64, b: &f64| a == b || (a - b).abs() <= 1e-6 * b.abs() || a.is_nan() && b.is_nan();
        let alike = got.len() == want.len() && got.iter().zip(&want).all(|(a, b)| near(a, b));
        assert!(alike, "{got:?}, and by the reference engine {want:?}");
    }
}

/// Splits a text into non-empty lines without their common indentation.
fn dedented_lines(text: &str) -> Vec<&str> {
    let text: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    let indent = text.iter().map(|l| l.len() - l.trim_start().len()).min().unwrap_or(0);
    text.into_iter().map(|l| &l[indent..]).collect()
}

/// Checks the printed rules of a primitive against `want`, then its results.
pub(crate) fn check(prim: Prim, axes: AxisType, types: &[&str], want: &str) {
    let both = [("X", 2, axes), ("Y", 2, axes)];
    let count = if axes == AxisType::Manual { 1 } else { 2 };
    let mesh = Mesh::with_types(both[..count].iter().copied()).expect("axes make a mesh");
    let types: Vec<ArrayType> =
        types.iter().map(|ty| ArrayType::parse(ty, &mesh).unwrap_or_else(|e| panic!("{e}"))).collect();
    let text = describe(&prim, &types);
    assert!(dedented_lines(&text) == dedented_lines(want), "{} is\n{text}\n", prim.name());
    if axes != AxisType::Manual && !text.starts_with("error: ") {
        assert_engines_agree(&prim, &types);
    }
}
