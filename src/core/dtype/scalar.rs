//! Scalars: literals of programs and constants of kernels.

use super::{DType, Element};
use half::{bf16, f16};
use num_complex::Complex;
use std::fmt;

/// A single element, as a literal of a program or a constant of a kernel.
/// It is wide enough for every element type.
///
/// ```
/// use atmesh::{DType, Scalar};
/// assert_eq!(Scalar::zero(DType::F32).to_string(), "0.0");
/// assert_eq!(Scalar::Int(3).to_string(), "3");
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A bool.
    Bool(bool),
    /// An integer of any integer type.
    Int(i128),
    /// A float of any float type.
    Float(f64),
    /// The real and imaginary part of a complex number of any complex type.
    Complex(f64, f64),
}
impl Scalar {
    /// Returns the value 0 of this element type.
    pub fn zero(dtype: DType) -> Scalar {
        match dtype {
            DType::Bool => Scalar::Bool(false),
            d if d.is_inexact() => Scalar::Float(0.0),
            _ => Scalar::Int(0),
        }
    }
    /// Returns true if `x + x == x` in every element type: 0, infinities, NaN.
    /// A value that every device contributes to a sum must have this property.
    pub(crate) fn is_additively_idempotent(self) -> bool {
        let float = |f: f64| f == 0.0 || !f.is_finite();
        match self {
            Scalar::Bool(b) => !b,
            Scalar::Int(i) => i == 0,
            Scalar::Float(f) => float(f),
            Scalar::Complex(re, im) => float(re) && float(im),
        }
    }
    /// Returns the value 1 of this element type.
    pub fn one(dtype: DType) -> Scalar {
        match dtype {
            DType::Bool => Scalar::Bool(true),
            d if d.is_inexact() => Scalar::Float(1.0),
            _ => Scalar::Int(1),
        }
    }
    /// Returns true if the value is zero.
    pub(crate) fn is_zero(self) -> bool {
        self.to_c128() == Complex::ZERO
    }
    /// Converts to the nearest float64; a complex number gives its real part.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) | Scalar::Complex(f, _) => f,
        }
    }
    /// Converts to the nearest complex number of two float64 values.
    pub fn to_c128(self) -> Complex<f64> {
        match self {
            Scalar::Complex(re, im) => Complex::new(re, im),
            x => x.to_f64().into(),
        }
    }
    /// Converts to the nearest complex number of two float32 values.
    pub fn to_c64(self) -> Complex<f32> {
        match self {
            Scalar::Complex(re, im) => Complex::new(re as f32, im as f32),
            x => x.to_f32().into(),
        }
    }
    /// Converts to the nearest float32; a complex number gives its real part.
    pub fn to_f32(self) -> f32 {
        match self {
            Scalar::Int(i) => i as f32,
            x => x.to_f64() as f32,
        }
    }
    /// Converts to the nearest float16; a complex number gives its real part.
    pub fn to_f16(self) -> f16 {
        f16::from_f32(self.odd())
    }
    /// Converts to the nearest bfloat16; a complex number gives its real part.
    pub fn to_bf16(self) -> bf16 {
        bf16::from_f32(self.odd())
    }
    /// Converts to float32 by rounding to odd, like [`f64_to_f32_odd`].
    fn odd(self) -> f32 {
        match self {
            Scalar::Int(i) => {
                let exact = i as f64 as i128 == i;
                f64_to_f32_odd(if exact { i as f64 } else { i128_to_f64_odd(i) })
            }
            x => f64_to_f32_odd(x.to_f64()),
        }
    }
    /// Converts to an integer, truncating towards zero; a complex number gives its real part.
    ///
    /// Floats beyond the range of `i128` saturate, and NaN gives 0.
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
/// Rounds to float32 "to odd": towards zero, with the last bit set if the result is inexact.
/// Rounding the result again, to fewer bits, then gives the same as rounding `x` directly.
#[inline(always)]
pub(crate) fn f64_to_f32_odd(x: f64) -> f32 {
    let y = x as f32;
    if y as f64 == x || x.is_nan() {
        return y;
    }
    let away = (y as f64).abs() > x.abs();
    f32::from_bits((y.to_bits() - away as u32) | 1)
}
/// Rounds an integer that no float64 represents to float64 "to odd", like [`f64_to_f32_odd`].
#[cold]
pub(crate) fn i128_to_f64_odd(x: i128) -> f64 {
    let y = x as f64;
    let away = (y as i128).unsigned_abs() > x.unsigned_abs();
    f64::from_bits((y.to_bits() - u64::from(away)) | 1)
}
/// Scalars are equal if their bits are equal, so that literals can be used as keys of maps.
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

conversions! { Scalar:
    [] Complex<f64> => |x| Scalar::Complex(x.re, x.im);
    [] Complex<f32> => |x| Scalar::Complex(x.re.into(), x.im.into());
}

/// Conversion between elements and scalars.
pub(crate) trait ScalarElement: Element {
    /// Converts a scalar to this element type.
    fn from_scalar(x: Scalar) -> Self;
    /// Converts the element to a scalar.
    fn to_scalar(self) -> Scalar;
}
macro_rules! numbers { ($($t:ty: $x:ident => $e:expr, $y:ident => $s:expr;)*) => {$(
    impl ScalarElement for $t {
        fn from_scalar($x: Scalar) -> $t {
            $e
        }
        fn to_scalar(self) -> Scalar {
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
        // halfway between two bfloat16 values, up to bits that float32 cannot represent
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
        // an integer with more significant bits than float64 has
        let half = (1i128 << 63) + (1 << 55);
        assert_eq!(Scalar::Int(half).to_bf16().to_f64(), f64::powi(2.0, 63), "to even");
        assert_eq!(Scalar::Int(half + 1).to_bf16().to_f64(), f64::powi(2.0, 63) + f64::powi(2.0, 56));
        assert_eq!(Scalar::Int(-half - 1).to_bf16().to_f64(), -f64::powi(2.0, 63) - f64::powi(2.0, 56));
        assert_eq!(Scalar::Int(i128::from(u64::MAX)).to_bf16().to_f64(), f64::powi(2.0, 64));
        let half = (1i128 << 60) + (1 << 36);
        assert_eq!(Scalar::Int(half + 1).to_f32(), 2f32.powi(60) + 2f32.powi(37));
    }
}
