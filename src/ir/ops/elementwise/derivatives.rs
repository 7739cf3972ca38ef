//! The derivatives of elementwise functions of one operand.

use super::{Binary, Unary};
use crate::core::{ArrayType, Result};
use crate::ir::program::{Builder, Value};
use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI};

impl Unary {
    /// Returns the tangent of y = f(x) for the tangent `t` of x; `None` is zero.
    pub(super) fn tangent(self, b: &mut Builder, x: &Value, y: &Value, t: &Value) -> Result<Option<Value>> {
        let tangent = match self {
            Unary::Neg | Unary::Real | Unary::Imag | Unary::Conj => b.unary(self, t)?,
            Unary::Abs if x.ty.dtype.is_complex() => {
                let sign = b.unary(Unary::Sign, x)?;
                b.real_product(&sign, t)?
            }
            Unary::Sign if x.ty.dtype.is_complex() => b.sign_tangent(x, y, t)?,
            // The tangent is the imaginary part of t/x.
            Unary::Angle => {
                let q = b.div(t, x)?;
                b.unary(Unary::Imag, &q)?
            }
            Unary::Relu => {
                let (zero, none) = (b.constant_like(&x.ty, 0.0)?, b.zero_like(&t.ty)?);
                let above = b.binary(Binary::Gt, x, &zero)?;
                b.select(&above, t, &none)?
            }
            Unary::Log => b.div(t, x)?,
            Unary::Log1p => {
                let d = b.add_scalar(x, 1.0)?;
                b.div(t, &d)?
            }
            Unary::Sqrt => {
                let d = b.mul_scalar(y, 2.0)?;
                b.div(t, &d)?
            }
            Unary::Cbrt => {
                let d = b.mul_scalar(x, 3.0)?;
                let slope = b.div(y, &d)?;
                b.mul(t, &slope)?
            }
            Unary::Atan => {
                let q = b.square(x)?;
                let d = b.add_scalar(&q, 1.0)?;
                b.div(t, &d)?
            }
            Unary::Atanh => {
                let d = b.one_minus_square(x)?;
                b.div(t, &d)?
            }
            _ => match self.derivative(b, x, y)? {
                Some(slope) => b.mul(t, &slope)?,
                None => return Ok(None),
            },
        };
        Ok(Some(tangent))
    }

    /// Returns dy/dx; `None` if it is zero everywhere.
    fn derivative(self, b: &mut Builder, x: &Value, y: &Value) -> Result<Option<Value>> {
        Ok(Some(match self {
            Unary::Abs => b.unary(Unary::Sign, x)?,
            Unary::Exp => y.clone(),
            Unary::Exp2 => b.mul_scalar(y, LN_2)?,
            Unary::Expm1 => b.add_scalar(y, 1.0)?,
            Unary::Sin => b.cos(x)?,
            Unary::Cos => {
                let s = b.sin(x)?;
                b.neg(&s)?
            }
            Unary::Sinpi => {
                let c = b.unary(Unary::Cospi, x)?;
                b.mul_scalar(&c, PI)?
            }
            Unary::Cospi => {
                let s = b.unary(Unary::Sinpi, x)?;
                b.mul_scalar(&s, -PI)?
            }
            Unary::Tan => {
                let q = b.square(y)?;
                b.add_scalar(&q, 1.0)?
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
                let d = b.add_scalar(&q, 1.0)?;
                b.unary(Unary::Rsqrt, &d)?
            }
            Unary::Acosh => {
                let (below, above) = (b.add_scalar(x, -1.0)?, b.add_scalar(x, 1.0)?);
                let d = b.mul(&below, &above)?;
                b.unary(Unary::Rsqrt, &d)?
            }
            Unary::Rsqrt => {
                let r = b.div(y, x)?;
                b.mul_scalar(&r, -0.5)?
            }
            Unary::Logistic => {
                let rest = b.one_minus(y)?;
                b.mul(y, &rest)?
            }
            Unary::Erf => b.scaled_gaussian(x, -1.0, 2.0 / PI.sqrt())?,
            Unary::ErfInv => b.scaled_gaussian(y, 1.0, PI.sqrt() / 2.0)?,
            Unary::Square => b.mul_scalar(x, 2.0)?,
            Unary::Reciprocal => {
                let q = b.square(y)?;
                b.neg(&q)?
            }
            Unary::Silu => {
                // The derivative is s + y·(1 - s), where s is the logistic function of x.
                let s = b.unary(Unary::Logistic, x)?;
                let rest = b.one_minus(&s)?;
                let rest = b.mul(y, &rest)?;
                b.add(&s, &rest)?
            }
            Unary::Softplus => b.unary(Unary::Logistic, x)?,
            Unary::Gelu { approximate } => b.gelu_derivative(x, approximate)?,
            Unary::IntegerPow(0) => return Ok(None),
            Unary::IntegerPow(n) => {
                let p = b.unary(Unary::IntegerPow(n.saturating_sub(1)), x)?;
                b.mul_scalar(&p, f64::from(n))?
            }
            _ => return Ok(None),
        }))
    }
}

impl Builder {
    /// Emits a complex number from two parts of type `part`; a missing part is 0.
    pub(super) fn complex(
        &mut self,
        re: Option<&Value>,
        im: Option<&Value>,
        part: &ArrayType,
    ) -> Result<Value> {
        let none = self.zero_like(part)?;
        self.binary(Binary::Complex, re.unwrap_or(&none), im.unwrap_or(&none))
    }
    /// Emits the real part of z̄·t.
    fn real_product(&mut self, z: &Value, t: &Value) -> Result<Value> {
        let z = self.unary(Unary::Conj, z)?;
        let product = self.mul(t, &z)?;
        self.unary(Unary::Real, &product)
    }
    /// Returns the tangent of y = x/|x|, which is 0 at x = 0.
    ///
    /// The tangent is the component of `t` perpendicular to x, divided by |x|.
    fn sign_tangent(&mut self, x: &Value, y: &Value, t: &Value) -> Result<Value> {
        let along = self.real_product(y, t)?;
        let along = self.complex(Some(&along), None, &along.ty)?;
        let along = self.mul(&along, y)?;
        let across = self.sub(t, &along)?;
        let size = self.unary(Unary::Abs, x)?;
        let (zero, one) = (self.constant_like(&size.ty, 0.0)?, self.constant_like(&size.ty, 1.0)?);
        let none = self.eq(&size, &zero)?;
        let over = self.select(&none, &one, &size)?;
        let over = self.complex(Some(&over), None, &over.ty)?;
        let slope = self.div(&across, &over)?;
        let nothing = self.zero_like(&slope.ty)?;
        self.select(&none, &nothing, &slope)
    }
    /// Emits `1 - x`.
    fn one_minus(&mut self, x: &Value) -> Result<Value> {
        let one = self.constant_like(&x.ty, 1.0)?;
        self.sub(&one, x)
    }
    /// Emits `1 - x²`.
    fn one_minus_square(&mut self, x: &Value) -> Result<Value> {
        let q = self.square(x)?;
        self.one_minus(&q)
    }
    /// Emits `scale·exp(sign·x²)`.
    fn scaled_gaussian(&mut self, x: &Value, sign: f64, scale: f64) -> Result<Value> {
        let q = self.square(x)?;
        let q = if sign < 0.0 { self.neg(&q)? } else { q };
        let e = self.exp(&q)?;
        self.mul_scalar(&e, scale)
    }
    /// Emits the derivative of GELU.
    fn gelu_derivative(&mut self, x: &Value, approximate: bool) -> Result<Value> {
        let (inner, dense) = if approximate {
            // With u = c(x + ax³), the derivative is ½(1 + tanh u) + ½x(1 - tanh² u)·c(1 + 3ax²).
            let (a, c) = (0.044715, (2.0 / PI).sqrt());
            let q = self.square(x)?;
            let grown = self.mul_scalar(&q, a * c)?;
            let grown = self.add_scalar(&grown, c)?;
            let u = self.mul(x, &grown)?;
            let th = self.unary(Unary::Tanh, &u)?;
            let du = self.mul_scalar(&q, 3.0 * a * c)?;
            let du = self.add_scalar(&du, c)?;
            let rest = self.one_minus_square(&th)?;
            let rest = self.mul(&rest, &du)?;
            (th, self.mul_scalar(&rest, 0.5)?)
        } else {
            // The derivative is ½(1 + erf(x/√2)) + x·exp(-x²/2)/√(2π).
            let u = self.mul_scalar(x, FRAC_1_SQRT_2)?;
            (self.unary(Unary::Erf, &u)?, self.scaled_gaussian(&u, -1.0, 1.0 / (2.0 * PI).sqrt())?)
        };
        let half = self.mul_scalar(&inner, 0.5)?;
        let half = self.add_scalar(&half, 0.5)?;
        let rest = self.mul(x, &dense)?;
        self.add(&half, &rest)
    }
}
