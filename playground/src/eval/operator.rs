//! Operators of numbers, comparisons and casts.

use crate::error::ErrorResponse;
use crate::syntax::NumType;
use crate::value::{Value, term};
use std::cmp::Ordering;

/// Evaluates `-x` or `!x`.
pub(crate) fn unary(op: char, x: &Value) -> Result<Value, ErrorResponse> {
    Ok(match (op, x.inner()) {
        ('-', Value::Array(x)) => Value::Array(-x),
        ('!', Value::Array(x)) => Value::Array(!x),
        ('-', Value::Int(n, ty)) => Value::Int(-n, *ty),
        ('-', Value::Float(x, ty)) => Value::Float(-x, *ty),
        ('!', Value::Bool(b)) => Value::Bool(!b),
        (_, other) => return Err(syntax_error!("`{op}` is not defined for {}", other.what())),
    })
}

/// Evaluates `a op b`.
#[track_caller]
pub(crate) fn binary(op: &str, a: &Value, b: &Value) -> Result<Value, ErrorResponse> {
    match op {
        "==" => return Ok(Value::Bool(equal(a, b))),
        "!=" => return Ok(Value::Bool(!equal(a, b))),
        "<" => return Ok(Value::Bool(compare(a, b)? == Ordering::Less)),
        "<=" => return Ok(Value::Bool(compare(a, b)? != Ordering::Greater)),
        ">" => return Ok(Value::Bool(compare(a, b)? == Ordering::Greater)),
        ">=" => return Ok(Value::Bool(compare(a, b)? != Ordering::Less)),
        _ => {}
    }
    match (a.inner(), b.inner()) {
        (Value::Array(_), _) | (_, Value::Array(_)) => arrays(op, a.inner(), b.inner()).map(Value::Array),
        (Value::Int(a, t), Value::Int(b, u)) => ints(op, *a, *b, if *t == NumType::Open { *u } else { *t }),
        (Value::Float(a, t), Value::Float(b, u)) => {
            floats(op, *a, *b, if *t == NumType::Open { *u } else { *t })
        }
        (Value::Int(a, NumType::Open), Value::Float(b, t)) => floats(op, *a as f64, *b, *t),
        (Value::Float(a, t), Value::Int(b, NumType::Open)) => floats(op, *a, *b as f64, *t),
        (Value::Bool(a), Value::Bool(b)) => Ok(Value::Bool(match op {
            "&" => a & b,
            "|" => a | b,
            "^" => a ^ b,
            _ => return Err(syntax_error!("`{op}` is not defined for bools")),
        })),
        (Value::Text(a), Value::Text(b)) if op == "+" => Ok(Value::text(format!("{a}{b}"))),
        (a, b) => Err(syntax_error!("`{op}` is not defined for {} and {}", a.what(), b.what())),
    }
}

/// Evaluates an operator of arrays.
#[track_caller]
fn arrays(op: &str, a: &Value, b: &Value) -> Result<atmesh::Array, ErrorResponse> {
    macro_rules! by {
        ($a:expr, $b:expr) => {
            match op {
                "+" => $a + $b,
                "-" => $a - $b,
                "*" => $a * $b,
                "/" => $a / $b,
                "%" => $a % $b,
                "&" => $a & $b,
                "|" => $a | $b,
                "^" => $a ^ $b,
                "<<" => $a << $b,
                _ => return Err(syntax_error!("`{op}` wants an array on its left")),
            }
        };
    }
    Ok(match (a, b) {
        (Value::Array(a), b) => {
            let b = term(b)?;
            if op == ">>" { a >> b } else { by!(a, b) }
        }
        (Value::Int(a, _), Value::Array(b)) => match i32::try_from(*a) {
            Ok(a) => by!(a, b),
            Err(_) => return Err(syntax_error!("{a} is too large a number here")),
        },
        (Value::Float(a, _), Value::Array(b)) => by!(*a, b),
        (a, b) => return Err(syntax_error!("`{op}` is not defined for {} and {}", a.what(), b.what())),
    })
}

fn ints(op: &str, a: i128, b: i128, ty: NumType) -> Result<Value, ErrorResponse> {
    let made = match op {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "/" => a.checked_div(b),
        "%" => a.checked_rem(b),
        "&" => Some(a & b),
        "|" => Some(a | b),
        "^" => Some(a ^ b),
        "<<" => u32::try_from(b).ok().filter(|b| *b < 64).and_then(|b| a.checked_shl(b)),
        ">>" => u32::try_from(b).ok().and_then(|b| a.checked_shr(b)),
        _ => None,
    };
    let made = made.filter(|n| in_range(*n, ty));
    let out_of_range = || syntax_error!("`{a} {op} {b}` overflows its type");
    made.map(|n| Value::Int(n, ty)).ok_or_else(out_of_range)
}

/// Returns true if a type of integers has the number.
pub(crate) fn in_range(n: i128, ty: NumType) -> bool {
    match ty {
        NumType::I8 => i8::try_from(n).is_ok(),
        NumType::I16 => i16::try_from(n).is_ok(),
        NumType::I32 => i32::try_from(n).is_ok(),
        NumType::U8 => u8::try_from(n).is_ok(),
        NumType::U16 => u16::try_from(n).is_ok(),
        NumType::U32 => u32::try_from(n).is_ok(),
        NumType::U64 | NumType::Usize | NumType::Extent => u64::try_from(n).is_ok(),
        NumType::I128 => true,
        _ => i64::try_from(n).is_ok(),
    }
}

fn floats(op: &str, a: f64, b: f64, ty: NumType) -> Result<Value, ErrorResponse> {
    let made = match op {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "%" => a % b,
        _ => return Err(syntax_error!("`{op}` is not defined for floats")),
    };
    Ok(Value::Float(rounded(made, ty), ty))
}

/// Rounds a float to its type. One operation in f64, rounded to f32, is that of f32.
pub(crate) fn rounded(x: f64, ty: NumType) -> f64 {
    if ty == NumType::F32 { f64::from(x as f32) } else { x }
}

/// Returns true if two values are equal.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::List(a) | Value::Tuple(a), Value::List(b) | Value::Tuple(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b))
        }
        (Value::Struct(a), Value::Struct(b)) => {
            a.name == b.name && a.fields.iter().zip(&b.fields).all(|(a, b)| equal(&a.1, &b.1))
        }
        (Value::Option(a), Value::Option(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b),
            (a, b) => a.is_none() == b.is_none(),
        },
        (Value::Result(Ok(a)), Value::Result(Ok(b))) => equal(a, b),
        (Value::Range(a), Value::Range(b)) => equal(&a.0, &b.0) && equal(&a.1, &b.1) && a.2 == b.2,
        (Value::Unit, Value::Unit) => true,
        (Value::Text(a), Value::Text(b)) => a == b,
        (Value::Char(a), Value::Char(b)) => a == b,
        (Value::Mesh(a), Value::Mesh(b)) => a == b,
        (Value::Spec(a), Value::Spec(b)) => a == b,
        (Value::DType(a), Value::DType(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Type(a), Value::Text(b)) | (Value::Text(b), Value::Type(a)) => a.to_string() == **b,
        (Value::Sharding(a), Value::Sharding(b)) => a == b,
        (Value::Device(a), Value::Device(b)) => a == b,
        (Value::Path(a), Value::Path(b)) => last(a) == last(b),
        // a variant and its name: `CollectiveKind::AllReduce` and `all_reduce`
        (Value::Path(a), Value::Text(b)) | (Value::Text(b), Value::Path(a)) => {
            let letters = |t: &str| t.replace('_', "").to_lowercase();
            letters(last(a)) == letters(b)
        }
        _ => compare(a, b).is_ok_and(|o| o == Ordering::Equal),
    }
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Compares two numbers, texts or lists.
pub(crate) fn compare(a: &Value, b: &Value) -> Result<Ordering, ErrorResponse> {
    let number = |v: &Value| match v {
        Value::Int(n, ty) => Some((*n as f64, *ty)),
        Value::Float(x, ty) => Some((*x, *ty)),
        _ => None,
    };
    match (a, b) {
        (Value::Int(a, _), Value::Int(b, _)) => return Ok(a.cmp(b)),
        (Value::Text(a), Value::Text(b)) => return Ok(a.cmp(b)),
        (Value::Char(a), Value::Char(b)) => return Ok(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => return Ok(a.cmp(b)),
        (Value::List(a) | Value::Tuple(a), Value::List(b) | Value::Tuple(b)) => {
            for (a, b) in a.iter().zip(b.iter()) {
                match compare(a, b)? {
                    Ordering::Equal => {}
                    other => return Ok(other),
                }
            }
            return Ok(a.len().cmp(&b.len()));
        }
        _ => {}
    }
    let wrong = || syntax_error!("{} and {} cannot be compared", a.what(), b.what());
    let ((x, t), (y, u)) = number(a).zip(number(b)).ok_or_else(wrong)?;
    let single = t == NumType::F32 || u == NumType::F32;
    let round = |x: f64| if single { f64::from(x as f32) } else { x };
    round(x).partial_cmp(&round(y)).ok_or_else(|| syntax_error!("NaN cannot be compared"))
}

/// Evaluates `x as ty`.
pub(crate) fn cast(x: &Value, ty: &str) -> Result<Value, ErrorResponse> {
    let Some(ty) = NumType::named(ty) else {
        return Err(syntax_error!("a cast to `{ty}` is not read here: numbers are cast, like `n as f64`"));
    };
    let is_float = matches!(ty, NumType::F32 | NumType::F64);
    Ok(match x.inner() {
        Value::Int(n, _) if is_float => Value::Float(rounded(*n as f64, ty), ty),
        Value::Float(x, _) if is_float => Value::Float(rounded(*x, ty), ty),
        Value::Int(n, _) => Value::Int(wrapped(*n, ty), ty),
        Value::Float(x, _) => Value::Int(saturated(*x, ty), ty),
        Value::Bool(b) => Value::Int(i128::from(*b), ty),
        Value::Char(c) => Value::Int(i128::from(u32::from(*c)), ty),
        other => return Err(syntax_error!("{} cannot be cast to a number", other.what())),
    })
}

fn wrapped(n: i128, ty: NumType) -> i128 {
    match ty {
        NumType::I8 => (n as i8).into(),
        NumType::I16 => (n as i16).into(),
        NumType::I32 => (n as i32).into(),
        NumType::I64 => (n as i64).into(),
        NumType::U8 => (n as u8).into(),
        NumType::U16 => (n as u16).into(),
        NumType::U32 => (n as u32).into(),
        NumType::U64 | NumType::Usize | NumType::Extent => (n as u64).into(),
        _ => n,
    }
}

fn saturated(x: f64, ty: NumType) -> i128 {
    match ty {
        NumType::I8 => (x as i8).into(),
        NumType::I16 => (x as i16).into(),
        NumType::I32 => (x as i32).into(),
        NumType::I64 => (x as i64).into(),
        NumType::U8 => (x as u8).into(),
        NumType::U16 => (x as u16).into(),
        NumType::U32 => (x as u32).into(),
        NumType::U64 | NumType::Usize | NumType::Extent => (x as u64).into(),
        _ => x as i128,
    }
}

/// Gives a number the type of its `let`, if that is written.
pub(crate) fn typed(value: Value, ty: Option<&str>) -> Value {
    match (&value, ty.and_then(|t| NumType::named(t.trim_start_matches('&')))) {
        (Value::Int(n, NumType::Open), Some(ty)) => Value::Int(*n, ty),
        (Value::Float(x, NumType::Open), Some(ty)) => Value::Float(rounded(*x, ty), ty),
        _ => match (&value, ty) {
            // characters that are collected into a text
            (Value::List(list), Some("String" | "Box<str>")) => {
                Value::text(list.iter().map(crate::format::plain).collect::<String>())
            }
            _ => value,
        },
    }
}
