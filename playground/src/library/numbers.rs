//! Methods and constants of numbers.

use crate::error::ErrorResponse;
use crate::eval::operator::{in_range, rounded};
use crate::syntax::NumType;
use crate::value::Value;

/// Returns a constant of the standard library.
pub(crate) fn constant(name: &str) -> Option<Value> {
    let bare = format!("f64::consts::{name}");
    let is_bare = matches!(name, "PI" | "TAU" | "E");
    let mut parts = if is_bare { bare.rsplit("::") } else { name.rsplit("::") };
    let (last, of) = (parts.next()?, parts.next()?);
    let ty = match of {
        "consts" => NumType::named(parts.next()?)?,
        other => NumType::named(other)?,
    };
    let float = |x: f64| Some(Value::Float(rounded(x, ty), ty));
    let single = ty == NumType::F32;
    if matches!(ty, NumType::F32 | NumType::F64) {
        return match last {
            "PI" => float(std::f64::consts::PI),
            "TAU" => float(std::f64::consts::TAU),
            "E" => float(std::f64::consts::E),
            "LN_2" => float(std::f64::consts::LN_2),
            "SQRT_2" => float(std::f64::consts::SQRT_2),
            "MAX" => float(if single { f32::MAX.into() } else { f64::MAX }),
            "MIN" => float(if single { f32::MIN.into() } else { f64::MIN }),
            "EPSILON" => float(if single { f32::EPSILON.into() } else { f64::EPSILON }),
            "MIN_POSITIVE" => float(if single { f32::MIN_POSITIVE.into() } else { f64::MIN_POSITIVE }),
            "INFINITY" => float(f64::INFINITY),
            "NEG_INFINITY" => float(f64::NEG_INFINITY),
            "NAN" => float(f64::NAN),
            _ => None,
        };
    }
    let (min, max) = bounds(ty);
    match last {
        "MAX" => Some(Value::Int(max, ty)),
        "MIN" => Some(Value::Int(min, ty)),
        _ => None,
    }
}

fn bounds(ty: NumType) -> (i128, i128) {
    match ty {
        NumType::I8 => (i8::MIN.into(), i8::MAX.into()),
        NumType::I16 => (i16::MIN.into(), i16::MAX.into()),
        NumType::I64 => (i64::MIN.into(), i64::MAX.into()),
        NumType::U8 => (0, u8::MAX.into()),
        NumType::U16 => (0, u16::MAX.into()),
        NumType::U32 => (0, u32::MAX.into()),
        NumType::U64 | NumType::Usize | NumType::Extent => (0, u64::MAX.into()),
        _ => (i32::MIN.into(), i32::MAX.into()),
    }
}

/// Evaluates a method of a number.
pub(super) fn method(of: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, ErrorResponse> {
    match of {
        Value::Int(n, ty) => int(*n, *ty, name, args),
        Value::Float(x, ty) => Ok(float(*x, *ty, name, args)?.map(|x| match x {
            Value::Float(x, _) => Value::Float(rounded(x, *ty), *ty),
            other => other,
        })),
        _ => Ok(None),
    }
}

fn int(n: i128, ty: NumType, name: &str, args: &[Value]) -> Result<Option<Value>, ErrorResponse> {
    let other = || args.first().map_or(Ok(0), super::integer);
    let made = match name {
        "min" => n.min(other()?),
        "max" => n.max(other()?),
        "abs" => n.abs(),
        "signum" => n.signum(),
        "pow" => {
            let power = u32::try_from(other()?).unwrap_or(u32::MAX);
            n.checked_pow(power).ok_or_else(|| syntax_error!("`{n}.pow({power})` overflows"))?
        }
        "isqrt" => n.isqrt(),
        "ilog2" if n > 0 => n.ilog2().into(),
        "div_ceil" if other()? > 0 => (n + other()? - 1).div_euclid(other()?),
        "rem_euclid" if other()? != 0 => n.rem_euclid(other()?),
        "div_euclid" if other()? != 0 => n.div_euclid(other()?),
        "abs_diff" => (n - other()?).abs(),
        "saturating_sub" => (n - other()?).max(bounds(ty).0),
        "saturating_add" => (n + other()?).min(bounds(ty).1),
        "wrapping_sub" => match ty {
            NumType::U64 | NumType::Usize | NumType::Extent => {
                ((n as u64).wrapping_sub(other()? as u64)).into()
            }
            _ => (n as i32).wrapping_sub(other()? as i32).into(),
        },
        "wrapping_mul" | "wrapping_add" if matches!(ty, NumType::U32 | NumType::U64) => {
            let full = if name == "wrapping_mul" { n.wrapping_mul(other()?) } else { n + other()? };
            if ty == NumType::U32 { (full as u32).into() } else { (full as u64).into() }
        }
        "next_multiple_of" if other()? > 0 => (n + other()? - 1).div_euclid(other()?) * other()?,
        "next_power_of_two" => i128::from(u64::try_from(n).unwrap_or(0).next_power_of_two()),
        "clamp" => match args {
            [lo, hi] => n.max(super::integer(lo)?).min(super::integer(hi)?),
            _ => return Ok(None),
        },
        "checked_sub" => {
            return Ok(Some(Value::option(
                Some(n - other()?).filter(|n| in_range(*n, ty)).map(|n| Value::Int(n, ty)),
            )));
        }
        "is_multiple_of" => return Ok(Some(Value::Bool(n % other()?.max(1) == 0))),
        "is_power_of_two" => return Ok(Some(Value::Bool(n > 0 && n & (n - 1) == 0))),
        "count_ones" => n.count_ones().into(),
        _ => return Ok(None),
    };
    Ok(Some(Value::Int(made, ty)))
}

fn float(x: f64, ty: NumType, name: &str, args: &[Value]) -> Result<Option<Value>, ErrorResponse> {
    let other = || match args.first() {
        Some(Value::Float(y, _)) => Ok(*y),
        Some(Value::Int(n, _)) => Ok(*n as f64),
        _ => Err(syntax_error!("`{name}` wants a number")),
    };
    let made = match name {
        "min" => x.min(other()?),
        "max" => x.max(other()?),
        "powf" => x.powf(other()?),
        "powi" => x.powi(other()? as i32),
        "atan2" => x.atan2(other()?),
        "hypot" => x.hypot(other()?),
        "mul_add" | "clamp" => match args {
            [Value::Float(a, _), Value::Float(b, _)] if name == "clamp" => x.max(*a).min(*b),
            [Value::Float(a, _), Value::Float(b, _)] => x.mul_add(*a, *b),
            _ => return Ok(None),
        },
        "rem_euclid" => x.rem_euclid(other()?),
        "abs" => x.abs(),
        "sqrt" => x.sqrt(),
        "cbrt" => x.cbrt(),
        "exp" => x.exp(),
        "ln" => x.ln(),
        "log2" => x.log2(),
        "log10" => x.log10(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "tanh" => x.tanh(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "round" => x.round(),
        "trunc" => x.trunc(),
        "recip" => x.recip(),
        "signum" => x.signum(),
        "to_bits" if ty == NumType::F32 => {
            return Ok(Some(Value::Int((x as f32).to_bits().into(), NumType::U32)));
        }
        "to_bits" => return Ok(Some(Value::Int(x.to_bits().into(), NumType::U64))),
        "is_nan" => return Ok(Some(Value::Bool(x.is_nan()))),
        "is_finite" => return Ok(Some(Value::Bool(x.is_finite()))),
        _ => return Ok(None),
    };
    Ok(Some(Value::Float(made, ty)))
}
