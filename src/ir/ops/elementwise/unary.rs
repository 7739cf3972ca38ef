//! The elementwise functions of one operand.
//!
//! A function is one scalar instruction, or is composed of several instructions by a
//! [`CodeBuilder`].

use super::{DTypeClass, code_builder::CodeBuilder, factors, loop_nest};
use crate::core::{ArrayType, DType, Fault, Result, Shape};
use crate::ir::ops::dim_check::arity;
use crate::ir::program::{
    Factors, JvpArgs, Linearity, LoopNest, Primitive, ScalarArg, ScalarCode, ScalarOp, Tangents,
    TransposeArgs, TypedOperand, typing::not_linear_error,
};
use std::sync::Arc;

/// Defines the enum `Unary` and the methods that look up its variants.
///
/// The functions that are one scalar instruction come from the table of scalar functions, and
/// `composed` lists those that are several.
macro_rules! unary {
    (
        [composed { $($w:ident $word:literal $to:ident;)* }]
        methods { $($(#[$doc:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* }
        unary { $($(#[$note:meta])* $u:ident $term:ident $of:ident: $entry:expr;)* }
        $($rest:tt)*
    ) => {
        /// An elementwise function of one operand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "most names say it; the others are commented")]
        pub enum Unary {
            $($v,)*
            $($u,)*
            $($w,)*
            /// The value x·½(1 + erf(x/√2)), or its tanh approximation if `approximate` is true.
            Gelu {
                approximate: bool,
            },
            /// The value raised to an integer power.
            IntegerPow(i32),
        }
        impl Unary {
            /// All functions without parameters.
            pub const PLAIN: &[Unary] = &[$(Unary::$v,)* $(Unary::$u,)* $(Unary::$w,)*];
            /// Returns the name and the accepted element types of the function.
            fn row(self) -> (&'static str, DTypeClass) {
                match self {
                    $(Unary::$v => (stringify!($name), DTypeClass::$takes),)*
                    $(Unary::$u => (stringify!($term), DTypeClass::$of),)*
                    $(Unary::$w => ($word, DTypeClass::$to),)*
                    Unary::Gelu { .. } => ("gelu", DTypeClass::Float),
                    Unary::IntegerPow(_) => ("integer_pow", DTypeClass::Number),
                }
            }
            /// Returns the scalar instruction; `None` for a composed function.
            fn fun(self) -> Option<ScalarOp> {
                match self {
                    $(Unary::$v => Some(ScalarOp::$v),)*
                    $(Unary::$u => Some(ScalarOp::$u),)*
                    _ => None,
                }
            }
        }
    };
}
crate::scalar_functions! { unary composed {
    StopGradient "stop_gradient" Any;
    Square "square" Number;
    Reciprocal "reciprocal" Inexact;
    Angle "angle" Complex;
    Relu "relu" Real;
    Silu "silu" Float;
    Softplus "softplus" Float;
} }

impl Unary {
    /// Returns the element type of the result.
    fn result_dtype(self, dtype: DType) -> DType {
        match self.fun() {
            Some(op) => op.info().result.for_operand(dtype).unwrap_or(dtype),
            None if self == Unary::Angle => dtype.real(),
            None => dtype,
        }
    }
    /// Returns the scalar code.
    fn code(self, dtype: DType) -> ScalarCode {
        if let Some(fun) = self.fun() {
            return ScalarCode::single(fun, dtype, self.result_dtype(dtype), &[ScalarArg::Access(0)]);
        }
        let mut f = CodeBuilder::new(dtype);
        let x = f.x;
        let value = match self {
            Unary::Square => f.binary(ScalarOp::Mul, x, x),
            Unary::Reciprocal => {
                let one = f.constant(1.0);
                f.binary(ScalarOp::Div, one, x)
            }
            Unary::Angle => {
                let (re, im) = (f.complex_part(ScalarOp::Real), f.complex_part(ScalarOp::Imag));
                return f.finish_complex_parts(ScalarOp::Atan2, [im, re]);
            }
            Unary::Relu => {
                let zero = f.constant(0.0);
                f.binary(ScalarOp::Max, x, zero)
            }
            Unary::Silu => {
                let s = f.unary(ScalarOp::Logistic, x);
                f.binary(ScalarOp::Mul, x, s)
            }
            // The form max(x, 0) + log1p(exp(-|x|)) does not overflow.
            Unary::Softplus => {
                let abs = f.unary(ScalarOp::Abs, x);
                let neg = f.unary(ScalarOp::Neg, abs);
                let e = f.unary(ScalarOp::Exp, neg);
                let l = f.unary(ScalarOp::Log1p, e);
                let zero = f.constant(0.0);
                let m = f.binary(ScalarOp::Max, x, zero);
                f.binary(ScalarOp::Add, m, l)
            }
            Unary::Gelu { approximate } => {
                let inner = if approximate {
                    let cube = f.power(3);
                    let a = f.constant(0.044715);
                    let cube = f.binary(ScalarOp::Mul, cube, a);
                    let sum = f.binary(ScalarOp::Add, x, cube);
                    let c = f.constant((2.0 / std::f64::consts::PI).sqrt());
                    let u = f.binary(ScalarOp::Mul, sum, c);
                    f.unary(ScalarOp::Tanh, u)
                } else {
                    let c = f.constant(std::f64::consts::FRAC_1_SQRT_2);
                    let u = f.binary(ScalarOp::Mul, x, c);
                    f.unary(ScalarOp::Erf, u)
                };
                let one = f.constant(1.0);
                let sum = f.binary(ScalarOp::Add, inner, one);
                let half = f.constant(0.5);
                let h = f.binary(ScalarOp::Mul, x, half);
                f.binary(ScalarOp::Mul, h, sum)
            }
            Unary::IntegerPow(y) => {
                let p = f.power(y.unsigned_abs());
                if y < 0 {
                    let one = f.constant(1.0);
                    f.binary(ScalarOp::Div, one, p)
                } else {
                    p
                }
            }
            _ => f.unary(ScalarOp::Copy, x),
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
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity(self.name(), operands, 1)?[0];
        self.row().1.check(operands, 0)?;
        if matches!(self, Unary::IntegerPow(..0)) && !ty.dtype.is_inexact() {
            return Err(fault!(Dtype, "{} has no negative powers", ty.dtype));
        }
        Ok(vec![(self.result_dtype(ty.dtype), ty.shape.clone())])
    }
    elementwise_rules!();
    fn linearity(&self) -> Linearity {
        match self {
            Unary::Neg | Unary::StopGradient | Unary::Real | Unary::Imag | Unary::Conj => Linearity::Joint,
            _ => Linearity::None,
        }
    }
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        self.tangent(b, &operands[0], &outputs[0], t).map(|t| vec![t])
    }
    fn transpose(&self, TransposeArgs { builder: b, cotangents, .. }: TransposeArgs<'_>) -> Result<Tangents> {
        match (self, &cotangents[0]) {
            (Unary::Neg, Some(ct)) => Ok(vec![Some(b.neg(ct)?)]),
            // The pairing of a complex value with its cotangent is the real part of their product.
            (Unary::Real, Some(ct)) => Ok(vec![Some(b.complex(Some(ct), None, &ct.ty)?)]),
            (Unary::Imag, Some(ct)) => {
                let less = b.neg(ct)?;
                Ok(vec![Some(b.complex(None, Some(&less), &ct.ty)?)])
            }
            (Unary::Conj, Some(ct)) => Ok(vec![Some(b.unary(Unary::Conj, ct)?)]),
            (_, None) => Ok(vec![None]),
            _ => Err(not_linear_error(self.name())),
        }
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        vec![loop_nest(operands, &results[0], self.code(operands[0].dtype.storage()))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

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
        exp_of_a_sum_is_rejected: Unary::Exp, ["float32[4]{U:X}"] => "
            error: operand 0, float32[4]{U:X}, is unreduced over X: exp of a sum is not the sum of exp of its partial values
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
