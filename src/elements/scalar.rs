//! Single elements: literals of programs and constants of kernels.

use super::{DType, Element};
use half::{bf16, f16};
use num_complex::Complex;
use std::fmt;

/// A number as the user wrote it, or as a kernel holds it: wide enough for every element type.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number of any integer type.
    Int(i128),
    /// A number of any float type.
    Float(f64),
    /// A complex number of any type: its parts.
    Complex(f64, f64),
}
impl Scalar {
    /// Zero of this element type.
    pub fn zero(dtype: DType) -> Scalar {
        match dtype {
            DType::Bool => Scalar::Bool(false),
            d if d.is_inexact() => Scalar::Float(0.0),
            _ => Scalar::Int(0),
        }
    }
    /// Whether it is the sum of itself and itself, in every element type: 0, infinities, NaN. Where devices add their
    /// parts, what all of them hold must be so.
    pub(crate) fn adds_to_itself(self) -> bool {
        let float = |f: f64| f == 0.0 || !f.is_finite();
        match self {
            Scalar::Bool(b) => !b,
            Scalar::Int(i) => i == 0,
            Scalar::Float(f) => float(f),
            Scalar::Complex(re, im) => float(re) && float(im),
        }
    }
    /// One of this element type.
    pub fn one(dtype: DType) -> Scalar {
        match dtype {
            DType::Bool => Scalar::Bool(true),
            d if d.is_inexact() => Scalar::Float(1.0),
            _ => Scalar::Int(1),
        }
    }
    /// Whether it is nothing.
    pub(crate) fn is_zero(self) -> bool {
        self.to_c128() == Complex::ZERO
    }
    /// As a float; of a complex number its real part.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) | Scalar::Complex(f, _) => f,
        }
    }
    /// As a complex number.
    pub fn to_c128(self) -> Complex<f64> {
        match self {
            Scalar::Complex(re, im) => Complex::new(re, im),
            x => x.to_f64().into(),
        }
    }
    /// As the nearest complex number of two float32.
    pub fn to_c64(self) -> Complex<f32> {
        match self {
            Scalar::Complex(re, im) => Complex::new(re as f32, im as f32),
            x => x.to_f32().into(),
        }
    }
    /// As the nearest float32.
    pub fn to_f32(self) -> f32 {
        match self {
            Scalar::Int(i) => i as f32,
            x => x.to_f64() as f32,
        }
    }
    /// As the nearest float16.
    pub fn to_f16(self) -> f16 {
        f16::from_f32(self.odd())
    }
    /// As the nearest bfloat16.
    pub fn to_bf16(self) -> bf16 {
        bf16::from_f32(self.odd())
    }
    /// As [`odd`].
    fn odd(self) -> f32 {
        match self {
            Scalar::Int(i) => {
                let exact = i as f64 as i128 == i;
                odd(if exact { i as f64 } else { odd_whole(i) })
            }
            x => odd(x.to_f64()),
        }
    }
    /// As a whole number, cut towards zero.
    pub fn to_i128(self) -> i128 {
        match self {
            Scalar::Bool(b) => i128::from(b),
            Scalar::Int(i) => i,
            Scalar::Float(f) | Scalar::Complex(f, _) => f as i128,
        }
    }
    fn bits(self) -> (u8, u128) {
        match self {
            Scalar::Bool(b) => (0, u128::from(b)),
            Scalar::Int(i) => (1, i as u128),
            Scalar::Float(f) => (2, u128::from(f.to_bits())),
            Scalar::Complex(re, im) => (3, u128::from(re.to_bits()) << 64 | u128::from(im.to_bits())),
        }
    }
}
/// The nearest float32 towards zero, its last bit set where something was cut off: rounding it to fewer bits is as rounding x itself.
#[inline(always)]
pub(crate) fn odd(x: f64) -> f32 {
    let y = x as f32;
    if y as f64 == x || x.is_nan() {
        return y;
    }
    let away = (y as f64).abs() > x.abs();
    f32::from_bits((y.to_bits() - away as u32) | 1)
}
/// The nearest float64 towards zero of a whole number that is none, its last bit set, as in [`odd`].
#[cold]
pub(crate) fn odd_whole(x: i128) -> f64 {
    let y = x as f64;
    let away = (y as i128).unsigned_abs() > x.unsigned_abs();
    f64::from_bits((y.to_bits() - u64::from(away)) | 1)
}
/// Equal when the bits are: literals of programs must be a key.
impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.bits() == other.bits()
    }
}
impl Eq for Scalar {}
impl std::hash::Hash for Scalar {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(b) => write!(f, "{b}"),
            Scalar::Int(i) => write!(f, "{i}"),
            Scalar::Float(x) => write!(f, "{x:?}"),
            Scalar::Complex(re, im) => write!(f, "({re:?}{im:+?}i)"),
        }
    }
}
macro_rules! from { ($($t:ty => $v:ident $as:ty;)*) => {$(
    impl From<$t> for Scalar { fn from(x: $t) -> Scalar { Scalar::$v(x as $as) } }
)*} }
from! { i8 => Int i128; i16 => Int i128; i32 => Int i128; i64 => Int i128; u8 => Int i128; u16 => Int i128; u32 => Int i128;
u64 => Int i128; usize => Int i128; f32 => Float f64; f64 => Float f64; bool => Bool bool; }

impl From<Complex<f64>> for Scalar {
    fn from(x: Complex<f64>) -> Scalar {
        Scalar::Complex(x.re, x.im)
    }
}
impl From<Complex<f32>> for Scalar {
    fn from(x: Complex<f32>) -> Scalar {
        Scalar::Complex(x.re.into(), x.im.into())
    }
}

/// Elements from scalars, and back.
pub(crate) trait Number: Element {
    /// The scalar as this element.
    fn of_scalar(x: Scalar) -> Self;
    /// The element as a scalar.
    fn scalar(self) -> Scalar;
}
macro_rules! numbers { ($($t:ty: $x:ident => $e:expr, $y:ident => $s:expr;)*) => {$(
    impl Number for $t {
        fn of_scalar($x: Scalar) -> $t {
            $e
        }
        fn scalar(self) -> Scalar {
            let $y = self;
            $s
        }
    }
)*} }
numbers! {
    bool: x => x.to_c128() != Complex::ZERO, y => y.into();
    i8: x => x.to_i128() as i8, y => y.into(); i16: x => x.to_i128() as i16, y => y.into();
    i32: x => x.to_i128() as i32, y => y.into(); i64: x => x.to_i128() as i64, y => y.into();
    u8: x => x.to_i128() as u8, y => y.into(); u16: x => x.to_i128() as u16, y => y.into();
    u32: x => x.to_i128() as u32, y => y.into(); u64: x => x.to_i128() as u64, y => y.into();
    f16: x => x.to_f16(), y => Scalar::Float(y.to_f64()); bf16: x => x.to_bf16(), y => Scalar::Float(y.to_f64());
    f32: x => x.to_f64() as f32, y => y.into(); f64: x => x.to_f64(), y => y.into();
    Complex<f32>: x => x.to_c64(), y => y.into(); Complex<f64>: x => x.to_c128(), y => y.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_are_rounded_once() {
        // halfway between two neighbours, but for bits that float32 has not
        let half = 1.0 + f64::powi(2.0, -8);
        let more = half + f64::powi(2.0, -50);
        assert_eq!(Scalar::Float(half).to_bf16().to_f64(), 1.0, "to even");
        assert_eq!(Scalar::Float(more).to_bf16().to_f64(), 1.0078125);
        assert_eq!(Scalar::Float(-more).to_bf16().to_f64(), -1.0078125);
        let half = 1.0 + f64::powi(2.0, -11);
        assert_eq!(Scalar::Float(half).to_f16().to_f64(), 1.0);
        assert_eq!(Scalar::Float(half + f64::powi(2.0, -40)).to_f16().to_f64(), 1.0 + f64::powi(2.0, -10));
        assert_eq!(Scalar::Float(1e300).to_f16(), f16::INFINITY);
        assert_eq!(Scalar::Float(f64::MIN_POSITIVE).to_f16().to_f64(), 0.0);
        assert!(Scalar::Float(f64::NAN).to_bf16().is_nan());
        // more bits than float64 has
        let half = (1i128 << 63) + (1 << 55);
        assert_eq!(Scalar::Int(half).to_bf16().to_f64(), f64::powi(2.0, 63), "to even");
        assert_eq!(Scalar::Int(half + 1).to_bf16().to_f64(), f64::powi(2.0, 63) + f64::powi(2.0, 56));
        assert_eq!(Scalar::Int(-half - 1).to_bf16().to_f64(), -f64::powi(2.0, 63) - f64::powi(2.0, 56));
        assert_eq!(Scalar::Int(i128::from(u64::MAX)).to_bf16().to_f64(), f64::powi(2.0, 64));
        let half = (1i128 << 60) + (1 << 36);
        assert_eq!(Scalar::Int(half + 1).to_f32(), 2f32.powi(60) + 2f32.powi(37));
    }
}
