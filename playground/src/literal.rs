//! Arrays of literals: `Array::from([[1.0f32, 2.0], [3.0, 4.0]])`.

use crate::error::ErrorResponse;
use crate::syntax::NumType;
use crate::value::Value;
use atmesh::{Array, DType, nd};

/// Returns the array of a number, or of nested lists of numbers.
pub(crate) fn array(value: &Value) -> Result<Array, ErrorResponse> {
    if let Value::Array(x) = value.inner() {
        return Ok(x.clone());
    }
    let (mut shape, mut numbers) = (Vec::new(), Vec::new());
    flatten(value.inner(), 0, &mut shape, &mut numbers)?;
    let typed = numbers.iter().map(|n| n.ty()).find(|t| *t != NumType::Open);
    let is_float = numbers.iter().any(|n| matches!(n, Number::Float(..)));
    let ty = typed.unwrap_or(if is_float { NumType::F64 } else { NumType::I32 });
    if numbers.iter().any(|n| matches!(n, Number::Bool(_))) {
        return build(shape, numbers.iter().map(|n| matches!(n, Number::Bool(true))).collect());
    }
    let ints = || numbers.iter().map(Number::int);
    // narrow types are converted by the crate, which has that code anyway
    let narrow =
        |dtype: DType| build(shape.clone(), ints().map(|n| n as i64).collect()).map(|x| x.astype(dtype));
    match ty {
        NumType::F32 => build(shape, numbers.iter().map(|n| n.float() as f32).collect()),
        NumType::F64 | NumType::Open => build(shape, numbers.iter().map(Number::float).collect()),
        NumType::I32 => build(shape, ints().map(|n| n as i32).collect()),
        NumType::I64 | NumType::I128 => build(shape, ints().map(|n| n as i64).collect()),
        NumType::I8 => narrow(DType::I8),
        NumType::I16 => narrow(DType::I16),
        NumType::U8 => narrow(DType::U8),
        NumType::U16 => narrow(DType::U16),
        NumType::U32 => narrow(DType::U32),
        NumType::U64 | NumType::Usize | NumType::Extent => narrow(DType::U64),
    }
}

fn build<T: atmesh::Element>(shape: Vec<usize>, numbers: Vec<T>) -> Result<Array, ErrorResponse> {
    let made = nd::ArrayD::from_shape_vec(shape, numbers);
    made.map(Array::from).map_err(|e| syntax_error!("these numbers have no shape: {e}"))
}

enum Number {
    Bool(bool),
    Int(i128, NumType),
    Float(f64, NumType),
}
impl Number {
    fn ty(&self) -> NumType {
        match self {
            Number::Bool(_) => NumType::Open,
            Number::Int(_, ty) | Number::Float(_, ty) => *ty,
        }
    }
    fn float(&self) -> f64 {
        match self {
            Number::Bool(b) => f64::from(u8::from(*b)),
            Number::Int(n, _) => *n as f64,
            Number::Float(x, _) => *x,
        }
    }
    fn int(&self) -> i128 {
        match self {
            Number::Bool(b) => i128::from(*b),
            Number::Int(n, _) => *n,
            Number::Float(x, _) => *x as i128,
        }
    }
}

fn flatten(
    value: &Value,
    depth: usize,
    shape: &mut Vec<usize>,
    out: &mut Vec<Number>,
) -> Result<(), ErrorResponse> {
    match value {
        Value::List(list) => {
            if shape.len() == depth {
                shape.push(list.len());
            }
            if shape[depth] != list.len() {
                return Err(syntax_error!(
                    "the rows have different lengths: {} and {}",
                    shape[depth],
                    list.len()
                ));
            }
            list.iter().try_for_each(|v| flatten(v, depth + 1, shape, out))
        }
        Value::Range(_) => flatten(&Value::list(crate::library::iterate(value)?), depth, shape, out),
        Value::Int(n, ty) => push(out, Number::Int(*n, *ty)),
        Value::Float(x, ty) => push(out, Number::Float(*x, *ty)),
        Value::Bool(b) => push(out, Number::Bool(*b)),
        other => Err(syntax_error!("an array is made of numbers, not {}", other.what())),
    }
}

fn push(out: &mut Vec<Number>, number: Number) -> Result<(), ErrorResponse> {
    out.push(number);
    Ok(())
}
