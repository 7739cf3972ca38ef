//! Functions of one operand.

use super::formula::Formula;
use super::{Takes, factors, sentence};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::build::not_linear;
use crate::ops::view::arity;
use crate::program::factors::{Factors, Linearity, Priority};
use crate::program::sentence::{Arg, Code, Fun, Sentence};
use crate::program::{Back, Forward};
use crate::program::{Batch, Batched};
use crate::program::{Operand, Primitive, Tangents};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// Makes the enum and its table: what is one instruction, then what is composed of several.
macro_rules! unary {
    (
        single { $($v:ident $name:literal $takes:ident;)* }
        composed { $($w:ident $word:literal $to:ident;)* }
    ) => {
        /// An elementwise function of one operand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "most names say it; the others are commented")]
        pub enum Unary {
            $($v,)*
            $($w,)*
            /// x·½(1 + erf(x/√2)); `approximate`: by tanh.
            Gelu {
                approximate: bool,
            },
            /// x to a whole power.
            IntegerPow(i32),
        }
        impl Unary {
            /// All that have no parameters.
            pub const PLAIN: &[Unary] = &[$(Unary::$v,)* $(Unary::$w,)*];
            /// Name and element types.
            fn row(self) -> (&'static str, Takes) {
                match self {
                    $(Unary::$v => ($name, Takes::$takes),)*
                    $(Unary::$w => ($word, Takes::$to),)*
                    Unary::Gelu { .. } => ("gelu", Takes::Float),
                    Unary::IntegerPow(_) => ("integer_pow", Takes::Number),
                }
            }
            /// What is one instruction.
            fn fun(self) -> Option<Fun> {
                match self {
                    $(Unary::$v => Some(Fun::$v),)*
                    _ => None,
                }
            }
        }
    };
}
unary! {
    single {
    Neg "neg" Number;
    Sign "sign" Number;
    Abs "abs" Signed;
    Floor "floor" Float;
    Ceil "ceil" Float;
    Round "round" Float;
    Exp "exp" Inexact;
    Exp2 "exp2" Float;
    Expm1 "expm1" Float;
    Log "log" Inexact;
    Log1p "log1p" Float;
    Sin "sin" Inexact;
    Cos "cos" Inexact;
    Tan "tan" Inexact;
    Asin "asin" Float;
    Acos "acos" Float;
    Atan "atan" Float;
    Sinh "sinh" Inexact;
    Cosh "cosh" Inexact;
    Tanh "tanh" Inexact;
    Asinh "asinh" Float;
    Acosh "acosh" Float;
    Atanh "atanh" Float;
    Sqrt "sqrt" Inexact;
    Rsqrt "rsqrt" Inexact;
    Cbrt "cbrt" Float;
    Logistic "logistic" Float;
    Erf "erf" Float;
    ErfInv "erf_inv" Float;
    IsFinite "is_finite" Float;
    Real "real" Complex;
    Imag "imag" Complex;
    Conj "conj" Complex;
    Not "not" Bits;
    }
    composed {
    StopGradient "stop_gradient" Any;
    Square "square" Number;
    Reciprocal "reciprocal" Inexact;
    Angle "angle" Complex;
    Relu "relu" Real;
    Silu "silu" Float;
    Softplus "softplus" Float;
    }
}

impl Unary {
    /// The element type of the result.
    fn makes(self, dtype: DType) -> DType {
        match self {
            Unary::IsFinite => DType::Bool,
            Unary::Abs | Unary::Real | Unary::Imag | Unary::Angle => dtype.real(),
            _ => dtype,
        }
    }
    fn code(self, dtype: DType) -> Code {
        if let Some(fun) = self.fun() {
            return Code::one(fun, dtype, self.makes(dtype), &[Arg::Read(0)]);
        }
        let mut f = Formula::new(dtype);
        let x = f.x;
        let value = match self {
            Unary::Square => f.two(Fun::Mul, x, x),
            Unary::Reciprocal => {
                let one = f.number(1.0);
                f.two(Fun::Div, one, x)
            }
            Unary::Angle => {
                let (re, im) = (f.part(Fun::Real), f.part(Fun::Imag));
                return f.of_parts(Fun::Atan2, [im, re]);
            }
            Unary::Relu => {
                let zero = f.number(0.0);
                f.two(Fun::Max, x, zero)
            }
            Unary::Silu => {
                let s = f.one(Fun::Logistic, x);
                f.two(Fun::Mul, x, s)
            }
            // max(x, 0) + log1p(exp(-|x|)): no overflow
            Unary::Softplus => {
                let abs = f.one(Fun::Abs, x);
                let neg = f.one(Fun::Neg, abs);
                let e = f.one(Fun::Exp, neg);
                let l = f.one(Fun::Log1p, e);
                let zero = f.number(0.0);
                let m = f.two(Fun::Max, x, zero);
                f.two(Fun::Add, m, l)
            }
            Unary::Gelu { approximate } => {
                let inner = if approximate {
                    let cube = f.power(3);
                    let a = f.number(0.044715);
                    let cube = f.two(Fun::Mul, cube, a);
                    let sum = f.two(Fun::Add, x, cube);
                    let c = f.number((2.0 / std::f64::consts::PI).sqrt());
                    let u = f.two(Fun::Mul, sum, c);
                    f.one(Fun::Tanh, u)
                } else {
                    let c = f.number(std::f64::consts::FRAC_1_SQRT_2);
                    let u = f.two(Fun::Mul, x, c);
                    f.one(Fun::Erf, u)
                };
                let one = f.number(1.0);
                let sum = f.two(Fun::Add, inner, one);
                let half = f.number(0.5);
                let h = f.two(Fun::Mul, x, half);
                f.two(Fun::Mul, h, sum)
            }
            Unary::IntegerPow(y) => {
                let p = f.power(y.unsigned_abs());
                if y < 0 {
                    let one = f.number(1.0);
                    f.two(Fun::Div, one, p)
                } else {
                    p
                }
            }
            _ => f.one(Fun::Copy, x),
        };
        f.finish(value)
    }
}

impl Primitive for Unary {
    fn name(&self) -> &'static str {
        self.row().0
    }
    fn params(&self) -> String {
        match self {
            Unary::Gelu { approximate } => format!("approximate={approximate}"),
            Unary::IntegerPow(y) => format!("y={y}"),
            _ => String::new(),
        }
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity(self.name(), operands, 1)?[0];
        self.row().1.check(operands, 0)?;
        if matches!(self, Unary::IntegerPow(..0)) && !ty.dtype.is_inexact() {
            return Err(Fault::new(ErrorKind::Dtype, format!("{} has no negative powers", ty.dtype)));
        }
        Ok(vec![(self.makes(ty.dtype), ty.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        factors(operands, &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        match self {
            Unary::Neg | Unary::StopGradient | Unary::Real | Unary::Imag | Unary::Conj => Linearity::Joint,
            _ => Linearity::None,
        }
    }
    fn priority(&self) -> Priority {
        Priority::Elementwise
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        self.tangent(b, &operands[0], &outputs[0], t).map(|t| vec![t])
    }
    fn transpose(&self, Back { b, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        match (self, &cotangents[0]) {
            (Unary::Neg, Some(ct)) => Ok(vec![Some(b.neg(ct)?)]),
            // of the sum of products with a cotangent the real part counts
            (Unary::Real, Some(ct)) => Ok(vec![Some(b.complex(Some(ct), None, &ct.ty)?)]),
            (Unary::Imag, Some(ct)) => {
                let less = b.neg(ct)?;
                Ok(vec![Some(b.complex(None, Some(&less), &ct.ty)?)])
            }
            (Unary::Conj, Some(ct)) => Ok(vec![Some(b.unary(Unary::Conj, ct)?)]),
            (_, None) => Ok(vec![None]),
            _ => Err(not_linear(self.name())),
        }
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        vec![sentence(operands, &results[0], self.code(operands[0].dtype.storage()))]
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::broadcasting(Arc::new(*self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        tanh_keeps_its_sharding: Unary::Tanh, ["float32[4@X,2]"] => "
            (a: float32[4@X,2]) {
              b: float32[4@X,2] = tanh a
              return b
            }
            tangents: (a: float32[4@X,2], b: float32[4@X,2]) {
              c: float32[4@X,2] = tanh a
              d: float32[4@X,2] = square c
              e: float32[4@X,2] = sub 1.0 d
              f: float32[4@X,2] = mul b e
              return c, f
            }
            cotangents: (a: float32[4@X,2], b: float32[4@X,2]) {
              c: float32[4@X,2] = mul b a
              return c
            }
        ";
        exp_of_a_sum_is_refused: Unary::Exp, ["float32[4]{U:X}"] => "
            refused: operand 0, float32[4]{U:X}, is unreduced over X: exp of a sum is not the sum of exp of its parts
            sum it first: `.reshard(p![_])`
        ";
        floor_has_no_slope: Unary::Floor, ["float32[4]"] => "
            (a: float32[4]) {
              b: float32[4] = floor a
              return b
            }
            no tangents
        ";
    }
}
