//! The derivatives of the functions of one operand.

use super::{Binary, Unary};
use crate::diagnostic::Result;
use crate::program::{Builder, Value};
use crate::types::ArrayType;
use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI};

impl Unary {
    /// The tangent of y = f(x) along t; `None` is zero.
    pub(super) fn tangent(self, b: &mut Builder, x: &Value, y: &Value, t: &Value) -> Result<Option<Value>> {
        let tangent = match self {
            Unary::Neg | Unary::Real | Unary::Imag | Unary::Conj => b.unary(self, t)?,
            Unary::Abs if x.ty.dtype.is_complex() => {
                let sign = b.unary(Unary::Sign, x)?;
                b.real_product(&sign, t)?
            }
            Unary::Sign if x.ty.dtype.is_complex() => b.turn(x, y, t)?,
            // the imaginary part of t/x
            Unary::Angle => {
                let q = b.div(t, x)?;
                b.unary(Unary::Imag, &q)?
            }
            Unary::Relu => {
                let (zero, none) = (b.number(&x.ty, 0.0)?, b.zero_beside(&t.ty)?);
                let above = b.binary(Binary::Gt, x, &zero)?;
                b.select(&above, t, &none)?
            }
            Unary::Log => b.div(t, x)?,
            Unary::Log1p => {
                let d = b.plus(x, 1.0)?;
                b.div(t, &d)?
            }
            Unary::Sqrt => {
                let d = b.times(y, 2.0)?;
                b.div(t, &d)?
            }
            Unary::Cbrt => {
                let d = b.times(x, 3.0)?;
                let slope = b.div(y, &d)?;
                b.mul(t, &slope)?
            }
            Unary::Atan => {
                let q = b.square(x)?;
                let d = b.plus(&q, 1.0)?;
                b.div(t, &d)?
            }
            Unary::Atanh => {
                let d = b.one_minus_square(x)?;
                b.div(t, &d)?
            }
            _ => match self.slope(b, x, y)? {
                Some(slope) => b.mul(t, &slope)?,
                None => return Ok(None),
            },
        };
        Ok(Some(tangent))
    }

    /// dy/dx; `None` where it is zero everywhere.
    fn slope(self, b: &mut Builder, x: &Value, y: &Value) -> Result<Option<Value>> {
        Ok(Some(match self {
            Unary::Abs => b.unary(Unary::Sign, x)?,
            Unary::Exp => y.clone(),
            Unary::Exp2 => b.times(y, LN_2)?,
            Unary::Expm1 => b.plus(y, 1.0)?,
            Unary::Sin => b.cos(x)?,
            Unary::Cos => {
                let s = b.sin(x)?;
                b.neg(&s)?
            }
            Unary::Tan => {
                let q = b.square(y)?;
                b.plus(&q, 1.0)?
            }
            Unary::Asin => {
                let d = b.one_minus_square(x)?;
                b.unary(Unary::Rsqrt, &d)?
            }
            Unary::Acos => {
                let d = b.one_minus_square(x)?;
                let r = b.unary(Unary::Rsqrt, &d)?;
                b.neg(&r)?
            }
            Unary::Sinh => b.unary(Unary::Cosh, x)?,
            Unary::Cosh => b.unary(Unary::Sinh, x)?,
            Unary::Tanh => b.one_minus_square(y)?,
            Unary::Asinh => {
                let q = b.square(x)?;
                let d = b.plus(&q, 1.0)?;
                b.unary(Unary::Rsqrt, &d)?
            }
            Unary::Acosh => {
                let (below, above) = (b.plus(x, -1.0)?, b.plus(x, 1.0)?);
                let d = b.mul(&below, &above)?;
                b.unary(Unary::Rsqrt, &d)?
            }
            Unary::Rsqrt => {
                let r = b.div(y, x)?;
                b.times(&r, -0.5)?
            }
            Unary::Logistic => {
                let rest = b.one_minus(y)?;
                b.mul(y, &rest)?
            }
            Unary::Erf => b.bell(x, -1.0, 2.0 / PI.sqrt())?,
            Unary::ErfInv => b.bell(y, 1.0, PI.sqrt() / 2.0)?,
            Unary::Square => b.times(x, 2.0)?,
            Unary::Reciprocal => {
                let q = b.square(y)?;
                b.neg(&q)?
            }
            Unary::Silu => {
                // s + y(1 - s) where s is the logistic
                let s = b.unary(Unary::Logistic, x)?;
                let rest = b.one_minus(&s)?;
                let rest = b.mul(y, &rest)?;
                b.add(&s, &rest)?
            }
            Unary::Softplus => b.unary(Unary::Logistic, x)?,
            Unary::Gelu { approximate } => b.gelu_slope(x, approximate)?,
            Unary::IntegerPow(0) => return Ok(None),
            Unary::IntegerPow(n) => {
                let p = b.unary(Unary::IntegerPow(n.saturating_sub(1)), x)?;
                b.times(&p, f64::from(n))?
            }
            _ => return Ok(None),
        }))
    }
}

impl Builder {
    /// The complex number of two parts, of which one may be 0, beside a part of this type.
    pub(super) fn complex(
        &mut self,
        re: Option<&Value>,
        im: Option<&Value>,
        part: &ArrayType,
    ) -> Result<Value> {
        let none = self.zero_beside(part)?;
        self.binary(Binary::Complex, re.unwrap_or(&none), im.unwrap_or(&none))
    }
    /// The real part of z̄·t.
    fn real_product(&mut self, z: &Value, t: &Value) -> Result<Value> {
        let z = self.unary(Unary::Conj, z)?;
        let product = self.mul(t, &z)?;
        self.unary(Unary::Real, &product)
    }
    /// The tangent of y = x/|x|: what of t is across x, over its modulus; 0 at 0.
    fn turn(&mut self, x: &Value, y: &Value, t: &Value) -> Result<Value> {
        let along = self.real_product(y, t)?;
        let along = self.complex(Some(&along), None, &along.ty)?;
        let along = self.mul(&along, y)?;
        let across = self.sub(t, &along)?;
        let size = self.unary(Unary::Abs, x)?;
        let (zero, one) = (self.number(&size.ty, 0.0)?, self.number(&size.ty, 1.0)?);
        let none = self.eq(&size, &zero)?;
        let over = self.select(&none, &one, &size)?;
        let over = self.complex(Some(&over), None, &over.ty)?;
        let slope = self.div(&across, &over)?;
        let nothing = self.zero_beside(&slope.ty)?;
        self.select(&none, &nothing, &slope)
    }
    fn one_minus(&mut self, x: &Value) -> Result<Value> {
        let one = self.number(&x.ty, 1.0)?;
        self.sub(&one, x)
    }
    fn one_minus_square(&mut self, x: &Value) -> Result<Value> {
        let q = self.square(x)?;
        self.one_minus(&q)
    }
    /// scale·exp(sign·x²)
    fn bell(&mut self, x: &Value, sign: f64, scale: f64) -> Result<Value> {
        let q = self.square(x)?;
        let q = if sign < 0.0 { self.neg(&q)? } else { q };
        let e = self.exp(&q)?;
        self.times(&e, scale)
    }
    fn gelu_slope(&mut self, x: &Value, approximate: bool) -> Result<Value> {
        let (inner, dense) = if approximate {
            // with u = c(x + ax³): ½(1 + tanh u) + ½x(1 - tanh² u)·c(1 + 3ax²)
            let (a, c) = (0.044715, (2.0 / PI).sqrt());
            let q = self.square(x)?;
            let grown = self.times(&q, a * c)?;
            let grown = self.plus(&grown, c)?;
            let u = self.mul(x, &grown)?;
            let th = self.unary(Unary::Tanh, &u)?;
            let du = self.times(&q, 3.0 * a * c)?;
            let du = self.plus(&du, c)?;
            let rest = self.one_minus_square(&th)?;
            let rest = self.mul(&rest, &du)?;
            (th, self.times(&rest, 0.5)?)
        } else {
            // ½(1 + erf(x/√2)) + x·exp(-x²/2)/√(2π)
            let u = self.times(x, FRAC_1_SQRT_2)?;
            (self.unary(Unary::Erf, &u)?, self.bell(&u, -1.0, 1.0 / (2.0 * PI).sqrt())?)
        };
        let half = self.times(&inner, 0.5)?;
        let half = self.plus(&half, 0.5)?;
        let rest = self.mul(x, &dense)?;
        self.add(&half, &rest)
    }
}
