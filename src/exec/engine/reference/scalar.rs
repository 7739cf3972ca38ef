//! Elementwise functions of scalars, straight from their definitions.
//!
//! Floats are computed in float64 and rounded once; integers are computed in 128 bits and wrapped
//! to the width of their type.

// this path starts with `atmesh`, since `tests/typing` and `tests/derivatives` include this file
#[path = "complex_functions.rs"]
mod functions;

use atmesh::program::loop_nest::{Reducer, ScalarOp};
use atmesh::types::{DType, Scalar};
use half::{bf16, f16};
use num_complex::Complex;

/// Converts a scalar to an element type: floats are rounded and integers wrap.
pub(super) fn round_to_dtype(x: Scalar, dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(match x {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Float(f) => f != 0.0,
            Scalar::Complex(re, im) => re != 0.0 || im != 0.0,
        }),
        DType::C128 => x.to_c128().into(),
        DType::C64 => x.to_c64().into(),
        DType::F64 => Scalar::Float(x.to_f64()),
        DType::F32 => Scalar::Float(f64::from(x.to_f32())),
        DType::F16 => Scalar::Float(x.to_f16().to_f64()),
        DType::BF16 => Scalar::Float(x.to_bf16().to_f64()),
        _ => Scalar::Int(wrap(x.to_i128(), dtype)),
    }
}

fn bits(dtype: DType) -> u32 {
    dtype.size() as u32 * 8
}

/// Wraps an integer to the width of the type.
fn wrap(i: i128, dtype: DType) -> i128 {
    let n = bits(dtype);
    let low = i & ((1i128 << n) - 1);
    if dtype.is_signed() && low >> (n - 1) == 1 { low - (1i128 << n) } else { low }
}

/// Returns the bits of an element as an unsigned integer.
fn to_bits(x: Scalar, dtype: DType) -> u128 {
    match dtype {
        DType::C128 => u128::from(x.to_c128().re.to_bits()) | u128::from(x.to_c128().im.to_bits()) << 64,
        DType::C64 => u128::from(x.to_c64().re.to_bits()) | u128::from(x.to_c64().im.to_bits()) << 32,
        DType::F64 => x.to_f64().to_bits().into(),
        DType::F32 => x.to_f32().to_bits().into(),
        DType::F16 => x.to_f16().to_bits().into(),
        DType::BF16 => x.to_bf16().to_bits().into(),
        d => (x.to_i128() as u128) & ((1u128 << bits(d)) - 1),
    }
}
fn from_bits(b: u128, dtype: DType) -> Scalar {
    match dtype {
        DType::C128 => Scalar::Complex(f64::from_bits(b as u64), f64::from_bits((b >> 64) as u64)),
        DType::C64 => Complex::new(f32::from_bits(b as u32), f32::from_bits((b >> 32) as u32)).into(),
        DType::F64 => Scalar::Float(f64::from_bits(b as u64)),
        DType::F32 => Scalar::Float(f64::from(f32::from_bits(b as u32))),
        DType::F16 => Scalar::Float(f16::from_bits(b as u16).to_f64()),
        DType::BF16 => Scalar::Float(bf16::from_bits(b as u16).to_f64()),
        d => round_to_dtype(Scalar::Int(b as i128), d),
    }
}

/// Converts a float or integer to another type.
/// Floats are truncated towards zero when they become integers; the result saturates, and NaN
/// becomes 0.
pub(super) fn convert(x: Scalar, dtype: DType) -> Scalar {
    match x {
        Scalar::Float(f) if dtype.is_integer() || dtype == DType::Key => {
            let n = bits(dtype.storage());
            let (lo, hi) = if dtype.is_signed() {
                (-(1i128 << (n - 1)), (1i128 << (n - 1)) - 1)
            } else {
                (0, (1i128 << n) - 1)
            };
            // `as` truncates and saturates, and converts NaN to 0
            Scalar::Int((f as i128).clamp(lo, hi))
        }
        x => round_to_dtype(x, dtype),
    }
}

/// Returns the result of a comparison; `None` if the function is not a comparison.
fn compare(fun: ScalarOp, a: Scalar, b: Scalar) -> Option<bool> {
    use std::cmp::Ordering::{self, Equal, Greater, Less};
    let holds: fn(Option<Ordering>) -> bool = match fun {
        ScalarOp::Eq => |order| order == Some(Equal),
        ScalarOp::Ne => |order| order != Some(Equal),
        ScalarOp::Lt => |order| order == Some(Less),
        ScalarOp::Le => |order| matches!(order, Some(Less | Equal)),
        ScalarOp::Gt => |order| order == Some(Greater),
        ScalarOp::Ge => |order| matches!(order, Some(Greater | Equal)),
        _ => return None,
    };
    let order = match (a, b) {
        (Scalar::Float(x), y) => x.partial_cmp(&y.to_f64()),
        _ => Some(a.to_i128().cmp(&b.to_i128())),
    };
    Some(holds(order))
}

/// Applies a function to its operands.
/// `from` is the element type of the operands, and `dtype` that of the result.
pub(super) fn apply(fun: ScalarOp, from: DType, dtype: DType, args: &[Scalar]) -> Scalar {
    let from = from.storage();
    let a = args[0];
    match fun {
        ScalarOp::Copy => return round_to_dtype(a, dtype.storage()),
        ScalarOp::Convert => return convert(a, dtype.storage()),
        ScalarOp::Bitcast => return from_bits(to_bits(a, from), dtype.storage()),
        ScalarOp::Select => {
            return round_to_dtype(if a.to_i128() != 0 { args[1] } else { args[2] }, dtype.storage());
        }
        ScalarOp::Threefry => {
            return Scalar::Int(threefry(a.to_i128() as u64, args[1].to_i128() as u64).into());
        }
        ScalarOp::Complex => return round_to_dtype(Scalar::Complex(a.to_f64(), args[1].to_f64()), dtype),
        ScalarOp::IsFinite => return Scalar::Bool(a.to_f64().is_finite()),
        ScalarOp::FlushSubnormals => return flush_subnormals(a, from),
        _ => {}
    }
    if from.is_complex() {
        return complex(fun, dtype, a.to_c128(), args.get(1).map_or(Complex::ZERO, |b| b.to_c128()));
    }
    if let Some(b) = args.get(1)
        && let Some(holds) = compare(fun, a, *b)
    {
        return Scalar::Bool(holds);
    }
    let b = args.get(1).copied().unwrap_or(Scalar::Int(0));
    let out = match from {
        DType::Bool => Scalar::Bool(logical(fun, a.to_i128() != 0, b.to_i128() != 0)),
        d if d.is_float() => Scalar::Float(float(fun, d, a.to_f64(), b.to_f64())),
        d => Scalar::Int(integer(fun, d, a.to_i128(), b.to_i128())),
    };
    round_to_dtype(out, dtype.storage())
}

/// Returns a scalar of an element type, with zeros of their signs instead of subnormal numbers.
///
/// The subnormal numbers of float16 are kept: it is computed as float32, where they are normal.
pub(super) fn flush_subnormals(x: Scalar, dtype: DType) -> Scalar {
    let least = match dtype.real() {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F32 | DType::BF16 => f32::MIN_POSITIVE.into(),
        _ => return x,
    };
    let flushed = |x: f64| if x.abs() < least { 0f64.copysign(x) } else { x };
    match x {
        Scalar::Float(x) => Scalar::Float(flushed(x)),
        Scalar::Complex(re, im) => Scalar::Complex(flushed(re), flushed(im)),
        x => x,
    }
}

/// Panics, because an oracle must not guess the result of a function that it does not have.
fn undefined(fun: ScalarOp, dtype: DType) -> ! {
    panic!("the reference engine has no function {fun:?} of {dtype}")
}

/// Applies a function to complex numbers.
fn complex(fun: ScalarOp, dtype: DType, a: Complex<f64>, b: Complex<f64>) -> Scalar {
    let nan = a.is_nan() || b.is_nan();
    let order = |x: Complex<f64>| (x.re, x.im);
    let out = match fun {
        ScalarOp::Eq => return Scalar::Bool(a == b),
        ScalarOp::Ne => return Scalar::Bool(a != b),
        ScalarOp::Real => return round_to_dtype(Scalar::Float(a.re), dtype),
        ScalarOp::Imag => return round_to_dtype(Scalar::Float(a.im), dtype),
        ScalarOp::Abs => return round_to_dtype(Scalar::Float(a.norm()), dtype),
        ScalarOp::Conj => a.conj(),
        ScalarOp::Neg => -a,
        ScalarOp::Sign => functions::sign(a),
        ScalarOp::Exp => functions::exp(a),
        ScalarOp::Log => functions::log(a),
        ScalarOp::Sqrt => functions::sqrt(a),
        ScalarOp::Rsqrt => functions::div(Complex::ONE, functions::sqrt(a)),
        ScalarOp::Sin => functions::turned(functions::sinh, a),
        ScalarOp::Cos => functions::cosh(Complex::new(-a.im, a.re)),
        ScalarOp::Tan => functions::turned(functions::tanh, a),
        ScalarOp::Sinh => functions::sinh(a),
        ScalarOp::Cosh => functions::cosh(a),
        ScalarOp::Tanh => functions::tanh(a),
        ScalarOp::Add => a + b,
        ScalarOp::Sub => a - b,
        ScalarOp::Mul => a * b,
        ScalarOp::Div => functions::div(a, b),
        ScalarOp::Pow => functions::pow(a, b),
        ScalarOp::Max | ScalarOp::Min if nan => [a, b][usize::from(!a.is_nan())],
        ScalarOp::Max => [b, a][usize::from(order(a) > order(b))],
        ScalarOp::Min => [b, a][usize::from(order(a) < order(b))],
        _ => undefined(fun, DType::C128),
    };
    round_to_dtype(out.into(), dtype)
}

fn logical(fun: ScalarOp, a: bool, b: bool) -> bool {
    match fun {
        ScalarOp::Not => !a,
        ScalarOp::Add | ScalarOp::Or | ScalarOp::Max => a | b,
        ScalarOp::Mul | ScalarOp::And | ScalarOp::Min => a & b,
        ScalarOp::Xor | ScalarOp::Sub => a ^ b,
        _ => undefined(fun, DType::Bool),
    }
}

fn integer(fun: ScalarOp, d: DType, a: i128, b: i128) -> i128 {
    let n = i128::from(bits(d));
    let unsigned = |x: i128| x & ((1i128 << n) - 1);
    match fun {
        ScalarOp::Neg => -a,
        ScalarOp::Sign => a.signum(),
        ScalarOp::Abs => a.abs(),
        ScalarOp::Not => !a,
        ScalarOp::Add => a + b,
        ScalarOp::Sub => a - b,
        ScalarOp::Mul => a.wrapping_mul(b),
        ScalarOp::Div => {
            if b == 0 {
                -1
            } else {
                a / b
            }
        }
        ScalarOp::Rem => {
            if b == 0 {
                a
            } else {
                a % b
            }
        }
        ScalarOp::Max => a.max(b),
        ScalarOp::Min => a.min(b),
        ScalarOp::And => a & b,
        ScalarOp::Or => a | b,
        ScalarOp::Xor => a ^ b,
        ScalarOp::Pow => power(a, b, d),
        ScalarOp::ShiftLeft => {
            if (0..n).contains(&b) {
                a << b
            } else {
                0
            }
        }
        ScalarOp::ShiftRightLogical => {
            if (0..n).contains(&b) {
                unsigned(a) >> b
            } else {
                0
            }
        }
        ScalarOp::ShiftRightArithmetic => {
            // the top bit of an unsigned integer is treated as its sign
            let signed = if !d.is_signed() && a >> (n - 1) & 1 == 1 { a - (1i128 << n) } else { a };
            signed >> if (0..n).contains(&b) { b } else { n - 1 }
        }
        _ => undefined(fun, d),
    }
}

/// Returns a power modulo the width of the type.
/// A negative exponent gives the reciprocal of the power, truncated towards zero.
fn power(a: i128, b: i128, d: DType) -> i128 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 => {
                if b % 2 == 0 {
                    1
                } else {
                    -1
                }
            }
            _ => 0,
        };
    }
    let (mut base, mut rest, mut out) = (a, b, 1i128);
    while rest > 0 {
        if rest & 1 == 1 {
            out = wrap(out.wrapping_mul(base), d);
        }
        base = wrap(base.wrapping_mul(base), d);
        rest >>= 1;
    }
    out
}

fn float(fun: ScalarOp, d: DType, a: f64, b: f64) -> f64 {
    match fun {
        ScalarOp::NextAfter => next_after(a, b, d),
        _ => fun.info().exact_value(a, b).unwrap_or_else(|| undefined(fun, d)),
    }
}

/// Returns the next representable value of the type after `a` in the direction of `b`.
fn next_after(a: f64, b: f64, d: DType) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    if a == b {
        return b;
    }
    if a == 0.0 {
        let least = from_bits(1, d).to_f64();
        return if b > 0.0 { least } else { -least };
    }
    // the bits, taken as an integer, grow with the magnitude
    let bits = to_bits(Scalar::Float(a), d);
    let away = (a < b) == (a > 0.0);
    from_bits(if away { bits + 1 } else { bits - 1 }, d).to_f64()
}

/// Computes Threefry 2x32 with 20 rounds.
/// The first 32-bit word of the key and that of the result are their low halves; the first word of
/// the counter is its high half.
fn threefry(key: u64, counter: u64) -> u64 {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let (k0, k1) = (key as u32, (key >> 32) as u32);
    let keys = [k0, k1, k0 ^ k1 ^ 0x1BD1_1BDA];
    let (mut x, mut y) = (((counter >> 32) as u32).wrapping_add(k0), (counter as u32).wrapping_add(k1));
    for group in 0..5 {
        for r in ROTATIONS[group % 2] {
            x = x.wrapping_add(y);
            y = y.rotate_left(r) ^ x;
        }
        x = x.wrapping_add(keys[(group + 1) % 3]);
        y = y.wrapping_add(keys[(group + 2) % 3]).wrapping_add(group as u32 + 1);
    }
    u64::from(x) | u64::from(y) << 32
}

/// Returns the neutral element of a reducer.
pub(super) fn neutral(combine: Reducer, dtype: DType) -> Scalar {
    combine.neutral(dtype)
}

/// Combines two values with a reducer.
/// The result of floats has type float64 (complex128 for complex numbers); the caller rounds it at
/// the end.
pub(super) fn combine(combine: Reducer, dtype: DType, a: Scalar, b: Scalar) -> Scalar {
    let wide = match dtype {
        d if d.is_float() => DType::F64,
        d if d.is_complex() => DType::C128,
        d => d,
    };
    apply(combine.scalar_op(), wide, wide, &[a, b])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_shift() {
        let int = |i: i128| Scalar::Int(i);
        assert_eq!(apply(ScalarOp::Add, DType::I8, DType::I8, &[int(127), int(1)]), int(-128));
        assert_eq!(apply(ScalarOp::Sub, DType::U8, DType::U8, &[int(0), int(1)]), int(255));
        assert_eq!(apply(ScalarOp::ShiftRightLogical, DType::I32, DType::I32, &[int(-1), int(28)]), int(15));
        assert_eq!(apply(ScalarOp::Div, DType::I32, DType::I32, &[int(-7), int(2)]), int(-3));
        assert_eq!(apply(ScalarOp::Bitcast, DType::F32, DType::U32, &[Scalar::Float(1.0)]), int(0x3f80_0000));
        assert_eq!(apply(ScalarOp::Convert, DType::F32, DType::I8, &[Scalar::Float(1e9)]), int(127));
    }

    #[test]
    fn threefry_of_zero_is_the_published_value() {
        let out = threefry(0, 0);
        assert_eq!((out as u32, (out >> 32) as u32), (0x6b20_0159, 0x99ba_4efe));
        let out = threefry(u64::from_le_bytes([0x3d, 0xc3, 0x84, 0x13, 0x7d, 0x33, 0x55, 0x1e]), 0);
        assert_ne!(out, 0);
    }

    #[test]
    fn erf_inv_inverts() {
        for y in [-0.999, -0.3, 0.0, 1e-9, 0.5, 0.99999] {
            let x = ScalarOp::ErfInv.info().exact_value(y, 0.0).expect("it is defined on floats");
            assert!((libm::erf(x) - y).abs() < 1e-15, "{y}");
        }
    }

    /// Each function is defined on all element types that its row has: `undefined` panics.
    #[test]
    fn every_function_is_defined() {
        for op in ScalarOp::ALL {
            for (from, to) in DType::all().flat_map(|from| DType::all().map(move |to| (from, to))) {
                if op.info().supports_dtypes(from, to) {
                    apply(*op, from, to, &vec![Scalar::one(from.storage()); op.info().arity]);
                }
            }
        }
    }
}
