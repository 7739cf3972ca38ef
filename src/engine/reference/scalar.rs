//! Elementwise functions on single numbers, by the book: floats in float64, rounded once; integers in 128 bits, cut to their width.

// by the crate's own name, since the evaluator of `tests/typing` includes this file
use atmesh::program::sentence::{Combine, Fun};
use atmesh::types::{DType, Scalar};
use half::{bf16, f16};
use num_complex::Complex;

/// The number as one of this element type.
pub(super) fn cut(x: Scalar, dtype: DType) -> Scalar {
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

/// An integer modulo the width of the type.
fn wrap(i: i128, dtype: DType) -> i128 {
    let n = bits(dtype);
    let low = i & ((1i128 << n) - 1);
    if dtype.is_signed() && low >> (n - 1) == 1 { low - (1i128 << n) } else { low }
}

/// The bits of an element, as an unsigned number.
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
        d => cut(Scalar::Int(b as i128), d),
    }
}

/// A float or integer as another type: to integers cut towards zero, saturating, NaN as 0.
pub(super) fn convert(x: Scalar, dtype: DType) -> Scalar {
    match x {
        Scalar::Float(f) if dtype.is_integer() || dtype == DType::Key => {
            let n = bits(dtype.storage());
            let (lo, hi) = if dtype.is_signed() {
                (-(1i128 << (n - 1)), (1i128 << (n - 1)) - 1)
            } else {
                (0, (1i128 << n) - 1)
            };
            // `as` cuts and saturates, and takes NaN as 0
            Scalar::Int((f as i128).clamp(lo, hi))
        }
        x => cut(x, dtype),
    }
}

/// Whether the function compares.
fn compare(fun: Fun, a: Scalar, b: Scalar) -> Option<bool> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match (a, b) {
        (Scalar::Float(x), y) | (y, Scalar::Float(x)) if matches!((a, b), (Scalar::Float(_), _)) => {
            x.partial_cmp(&y.to_f64())
        }
        _ => Some(a.to_i128().cmp(&b.to_i128())),
    };
    Some(match fun {
        Fun::Eq => order == Some(Equal),
        Fun::Ne => order != Some(Equal),
        Fun::Lt => order == Some(Less),
        Fun::Le => matches!(order, Some(Less | Equal)),
        Fun::Gt => order == Some(Greater),
        Fun::Ge => matches!(order, Some(Greater | Equal)),
        _ => return None,
    })
}

/// One function on its operands. `from` is their element type, `dtype` the result's.
pub(super) fn apply(fun: Fun, from: DType, dtype: DType, args: &[Scalar]) -> Scalar {
    let from = from.storage();
    let a = args[0];
    match fun {
        Fun::Copy => return cut(a, dtype.storage()),
        Fun::Convert => return convert(a, dtype.storage()),
        Fun::Bitcast => return from_bits(to_bits(a, from), dtype.storage()),
        Fun::Select => return cut(if a.to_i128() != 0 { args[1] } else { args[2] }, dtype.storage()),
        Fun::Threefry => return Scalar::Int(threefry(a.to_i128() as u64, args[1].to_i128() as u64).into()),
        Fun::Complex => return cut(Scalar::Complex(a.to_f64(), args[1].to_f64()), dtype),
        Fun::IsFinite => return Scalar::Bool(a.to_f64().is_finite()),
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
    cut(out, dtype.storage())
}

/// A function of complex numbers.
fn complex(fun: Fun, dtype: DType, a: Complex<f64>, b: Complex<f64>) -> Scalar {
    let (one, nan) = (Complex::ONE, a.is_nan() || b.is_nan());
    let order = |x: Complex<f64>| (x.re, x.im);
    let out = match fun {
        Fun::Eq => return Scalar::Bool(a == b),
        Fun::Ne => return Scalar::Bool(a != b),
        Fun::Real => return cut(Scalar::Float(a.re), dtype),
        Fun::Imag => return cut(Scalar::Float(a.im), dtype),
        Fun::Abs => return cut(Scalar::Float(a.norm()), dtype),
        Fun::Conj => a.conj(),
        Fun::Neg => -a,
        Fun::Sign if a == Complex::ZERO => a,
        Fun::Sign => a / a.norm(),
        Fun::Exp => a.exp(),
        Fun::Log => a.ln(),
        Fun::Sqrt => a.sqrt(),
        Fun::Rsqrt => one / a.sqrt(),
        Fun::Sin => a.sin(),
        Fun::Cos => a.cos(),
        Fun::Tan => a.tan(),
        Fun::Sinh => a.sinh(),
        Fun::Cosh => a.cosh(),
        Fun::Tanh => a.tanh(),
        Fun::Add => a + b,
        Fun::Sub => a - b,
        Fun::Mul => a * b,
        Fun::Div => a / b,
        Fun::Pow if b == Complex::ZERO => one,
        Fun::Pow => a.powc(b),
        Fun::Max | Fun::Min if nan => {
            if a.is_nan() {
                a
            } else {
                b
            }
        }
        Fun::Max => {
            if order(a) > order(b) {
                a
            } else {
                b
            }
        }
        Fun::Min => {
            if order(a) < order(b) {
                a
            } else {
                b
            }
        }
        _ => a,
    };
    cut(out.into(), dtype)
}

fn logical(fun: Fun, a: bool, b: bool) -> bool {
    match fun {
        Fun::Not => !a,
        Fun::Add | Fun::Or | Fun::Max => a | b,
        Fun::Mul | Fun::And | Fun::Min => a & b,
        Fun::Xor | Fun::Sub => a ^ b,
        _ => a,
    }
}

fn integer(fun: Fun, d: DType, a: i128, b: i128) -> i128 {
    let n = i128::from(bits(d));
    let unsigned = |x: i128| x & ((1i128 << n) - 1);
    match fun {
        Fun::Neg => -a,
        Fun::Sign => a.signum(),
        Fun::Abs => a.abs(),
        Fun::Not => !a,
        Fun::Add => a + b,
        Fun::Sub => a - b,
        Fun::Mul => a.wrapping_mul(b),
        Fun::Div => {
            if b == 0 {
                -1
            } else {
                a / b
            }
        }
        Fun::Rem => {
            if b == 0 {
                a
            } else {
                a % b
            }
        }
        Fun::Max => a.max(b),
        Fun::Min => a.min(b),
        Fun::And => a & b,
        Fun::Or => a | b,
        Fun::Xor => a ^ b,
        Fun::Pow => power(a, b, d),
        Fun::ShiftLeft => {
            if (0..n).contains(&b) {
                a << b
            } else {
                0
            }
        }
        Fun::ShiftRightLogical => {
            if (0..n).contains(&b) {
                unsigned(a) >> b
            } else {
                0
            }
        }
        Fun::ShiftRightArithmetic => {
            // of unsigned types the top bit is a sign here
            let signed = if !d.is_signed() && a >> (n - 1) & 1 == 1 { a - (1i128 << n) } else { a };
            signed >> if (0..n).contains(&b) { b } else { n - 1 }
        }
        _ => a,
    }
}

/// Powers modulo the width; a negative exponent gives one over the power, cut towards zero.
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

fn float(fun: Fun, d: DType, a: f64, b: f64) -> f64 {
    let nan = |f: fn(f64, f64) -> f64| if a.is_nan() || b.is_nan() { f64::NAN } else { f(a, b) };
    match fun {
        Fun::Neg => -a,
        Fun::Sign => {
            if a == 0.0 || a.is_nan() {
                a
            } else {
                a.signum()
            }
        }
        Fun::Abs => a.abs(),
        Fun::Floor => a.floor(),
        Fun::Ceil => a.ceil(),
        Fun::Round => a.round(),
        Fun::Exp => a.exp(),
        Fun::Exp2 => a.exp2(),
        Fun::Expm1 => a.exp_m1(),
        Fun::Log => a.ln(),
        Fun::Log1p => a.ln_1p(),
        Fun::Sin => a.sin(),
        Fun::Cos => a.cos(),
        Fun::Tan => a.tan(),
        Fun::Asin => a.asin(),
        Fun::Acos => a.acos(),
        Fun::Atan => a.atan(),
        Fun::Sinh => a.sinh(),
        Fun::Cosh => a.cosh(),
        Fun::Tanh => a.tanh(),
        Fun::Asinh => libm::asinh(a),
        Fun::Acosh => libm::acosh(a),
        Fun::Atanh => libm::atanh(a),
        Fun::Sqrt => a.sqrt(),
        Fun::Rsqrt => 1.0 / a.sqrt(),
        Fun::Cbrt => a.cbrt(),
        Fun::Logistic => 1.0 / (1.0 + (-a).exp()),
        Fun::Erf => libm::erf(a),
        Fun::ErfInv => erf_inv(a),
        Fun::Add => a + b,
        Fun::Sub => a - b,
        Fun::Mul => a * b,
        Fun::Div => a / b,
        Fun::Rem => a % b,
        // of two zeros the positive one is the greater
        Fun::Max => nan(|a, b| if a > b || a == b && b.is_sign_negative() { a } else { b }),
        Fun::Min => nan(|a, b| if a < b || a == b && a.is_sign_negative() { a } else { b }),
        Fun::Pow => a.powf(b),
        Fun::Atan2 => a.atan2(b),
        Fun::NextAfter => next_after(a, b, d),
        _ => a,
    }
}

/// The neighbour of `a` towards `b` among the numbers of the type.
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
    // bits grow with the magnitude
    let bits = to_bits(Scalar::Float(a), d);
    let away = (a < b) == (a > 0.0);
    from_bits(if away { bits + 1 } else { bits - 1 }, d).to_f64()
}

/// The inverse of erf: by bisection, since it is monotone, then Newton.
fn erf_inv(y: f64) -> f64 {
    if y.is_nan() || y.abs() > 1.0 {
        return f64::NAN;
    }
    if y.abs() == 1.0 {
        return f64::INFINITY.copysign(y);
    }
    let (mut lo, mut hi) = (-6.5f64, 6.5f64);
    for _ in 0..60 {
        let mid = 0.5 * (lo + hi);
        if libm::erf(mid) < y {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    let x = 0.5 * (lo + hi);
    // near 0 bisection has few digits left; one step of Newton gives all of them
    let slope = 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp();
    if slope > 1e-12 { x - (libm::erf(x) - y) / slope } else { x }
}

/// Threefry 2x32, 20 rounds. The low half of a key is its first word; the high half of a counter is its first word; the low half
/// of the result is its first word.
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

/// What folding nothing gives.
pub(super) fn neutral(combine: Combine, dtype: DType) -> Scalar {
    combine.neutral(dtype)
}

/// Two folded values in one. Floats stay in float64: whoever folds rounds at the end.
pub(super) fn combined(combine: Combine, dtype: DType, a: Scalar, b: Scalar) -> Scalar {
    let wide = match dtype {
        d if d.is_float() => DType::F64,
        d if d.is_complex() => DType::C128,
        d => d,
    };
    apply(combine.fun(), wide, wide, &[a, b])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_shift() {
        let int = |i: i128| Scalar::Int(i);
        assert_eq!(apply(Fun::Add, DType::I8, DType::I8, &[int(127), int(1)]), int(-128));
        assert_eq!(apply(Fun::Sub, DType::U8, DType::U8, &[int(0), int(1)]), int(255));
        assert_eq!(apply(Fun::ShiftRightLogical, DType::I32, DType::I32, &[int(-1), int(28)]), int(15));
        assert_eq!(apply(Fun::Div, DType::I32, DType::I32, &[int(-7), int(2)]), int(-3));
        assert_eq!(apply(Fun::Bitcast, DType::F32, DType::U32, &[Scalar::Float(1.0)]), int(0x3f80_0000));
        assert_eq!(apply(Fun::Convert, DType::F32, DType::I8, &[Scalar::Float(1e9)]), int(127));
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
            assert!((libm::erf(erf_inv(y)) - y).abs() < 1e-15, "{y}");
        }
    }
}
