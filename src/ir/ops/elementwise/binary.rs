//! The elementwise functions of two operands, and their derivatives.
//!
//! Operands broadcast against each other. A function is one scalar instruction, or is composed of
//! several instructions by a [`CodeBuilder`].

use super::{
    DTypeClass, Unary, broadcast_shapes, code_builder::CodeBuilder, common_dtype, factors, loop_nest,
};
use crate::core::{ArrayType, DType, Fault, Result, ResultDType, Shape};
use crate::ir::ops::dim_check::arity;
use crate::ir::program::{
    Builder, Factors, Input, JvpArgs, Linearity, LoopNest, Primitive, ScalarArg, ScalarCode, ScalarOp,
    Tangents, TransposeArgs, TypedOperand, Value, typing::not_linear_error,
};
use std::sync::Arc;

/// Defines the enum `Binary` and the methods that look up its variants.
///
/// The functions that are one scalar instruction come from the table of scalar functions, and
/// `composed` lists those that are several.
macro_rules! binary {
    (
        [composed { $($(#[$doc:meta])* $w:ident $word:literal $to:ident $of:ident;)* }]
        methods { $($methods:tt)* }
        unary { $($unary:tt)* }
        binary { $($(#[$note:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* }
        $($rest:tt)*
    ) => {
        /// An elementwise function of two operands of one element type, whose shapes broadcast.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Binary { $($(#[$note])* $v,)* $($(#[$doc])* $w,)* }
        impl Binary {
            /// All functions of two operands.
            pub const ALL: &[Binary] = &[$(Binary::$v,)* $(Binary::$w,)*];
            /// Returns the name and the accepted element types of the function.
            fn row(self) -> (&'static str, DTypeClass) {
                match self {
                    $(Binary::$v => (stringify!($name), DTypeClass::$takes),)*
                    $(Binary::$w => ($word, DTypeClass::$to),)*
                }
            }
            /// Returns the scalar instruction; `None` for a composed function.
            fn fun(self) -> Option<ScalarOp> {
                match self {
                    $(Binary::$v => Some(ScalarOp::$v),)*
                    $(Binary::$w => None,)*
                }
            }
            /// Returns the scalar code: one instruction, or several for a composed function.
            fn code(self, from: DType, to: DType) -> ScalarCode {
                if let Some(op) = self.fun() {
                    return ScalarCode::single(op, from, to, &[ScalarArg::Access(0), ScalarArg::Access(1)]);
                }
                let mut f = CodeBuilder::new(from);
                let (x, y) = (f.x, f.operand(1));
                let value = match self {
                    $(Binary::$w => $of(&mut f, x, y),)*
                    _ => x,
                };
                f.finish(value)
            }
        }
    };
}
crate::scalar_functions! { binary composed {
    /// The value √(x² + y²), without intermediate overflow.
    Hypot "hypot" Float hypot;
    /// The value x·ln y, or 0 if x is 0.
    Xlogy "xlogy" Float xlogy;
} }

/// Returns code for m·√(1 + q²), with the larger magnitude m and the quotient q of both.
///
/// The quotient is taken as 1 if both magnitudes are 0 or infinite.
fn hypot(f: &mut CodeBuilder, x: ScalarArg, y: ScalarArg) -> ScalarArg {
    let (x, y, one) = (f.unary(ScalarOp::Abs, x), f.unary(ScalarOp::Abs, y), f.constant(1.0));
    let (most, least) = (f.binary(ScalarOp::Max, x, y), f.binary(ScalarOp::Min, x, y));
    let q = f.binary(ScalarOp::Div, least, most);
    let q = f.select_equal([least, most], one, q);
    let q = f.binary(ScalarOp::Mul, q, q);
    let sum = f.binary(ScalarOp::Add, one, q);
    let root = f.unary(ScalarOp::Sqrt, sum);
    f.binary(ScalarOp::Mul, most, root)
}

/// Returns code for x·ln y, which is 0 where x is 0.
fn xlogy(f: &mut CodeBuilder, x: ScalarArg, y: ScalarArg) -> ScalarArg {
    let zero = f.constant(0.0);
    let log = f.unary(ScalarOp::Log, y);
    let product = f.binary(ScalarOp::Mul, x, log);
    f.select_equal([x, zero], zero, product)
}

impl Binary {
    /// Returns true for comparisons, whose result is bool.
    pub fn is_comparison(self) -> bool {
        self.fun().is_some_and(|op| op.info().result == ResultDType::Bool)
    }

    /// Returns 1 where the maximum or minimum `z` is `this`, and 0 where it is `other`.
    /// Where operands are equal, each gets half of the derivative.
    fn winner_share(self, b: &mut Builder, [this, other]: [&Value; 2], z: &Value) -> Result<Value> {
        let number = |x: f64| Value::literal(z.ty.dtype, x);
        if z.ty.dtype.is_complex() {
            let (won, tied) = (b.binary(Binary::Eq, this, z)?, b.binary(Binary::Eq, other, z)?);
            let share = b.select(&tied, &number(0.5), &number(1.0))?;
            return b.select(&won, &share, &number(0.0));
        }
        // without the result, no engine computes it again where it needs the share
        let wins = if self == Binary::Max { Binary::Gt } else { Binary::Lt };
        let (won, tied) = (b.binary(wins, this, other)?, b.binary(Binary::Eq, this, other)?);
        let share = b.select(&tied, &number(0.5), &number(0.0))?;
        b.select(&won, &number(1.0), &share)
    }

    /// Returns the tangent of the result along operand `k`; `None` is zero.
    ///
    /// The tangent may have any shape that broadcasts to the shape of the result.
    fn operand_tangent(
        self,
        b: &mut Builder,
        k: usize,
        [x, y]: [&Value; 2],
        z: &Value,
        t: &Value,
    ) -> Result<Option<Value>> {
        let (this, other) = if k == 0 { (x, y) } else { (y, x) };
        Ok(Some(match (self, k) {
            (Binary::Add | Binary::Sub | Binary::NextAfter, 0) | (Binary::Add, _) => t.clone(),
            (Binary::Sub, _) => b.neg(t)?,
            (Binary::Complex, 0) => b.complex(Some(t), None, &t.ty)?,
            (Binary::Complex, _) => b.complex(None, Some(t), &t.ty)?,
            (Binary::Mul, _) => b.mul(t, other)?,
            (Binary::Div, 0) => b.div(t, y)?,
            // If `y` has fewer elements than the quotient, dividing the tangent by `y` is cheaper.
            (Binary::Div, _) if y.ty.shape.num_elements() < z.ty.shape.num_elements() => {
                let less = b.div(t, y)?;
                let less = b.neg(&less)?;
                b.mul(&less, z)?
            }
            (Binary::Div, _) => {
                let slope = b.div(z, y)?;
                let slope = b.neg(&slope)?;
                b.mul(t, &slope)?
            }
            (Binary::Rem, 0) => t.clone(),
            (Binary::Rem, _) => {
                let slope = divisor_slope(b, x, y)?;
                b.mul(t, &slope)?
            }
            (Binary::Max | Binary::Min, _) => {
                let share = self.winner_share(b, [this, other], z)?;
                b.mul(t, &share)?
            }
            (Binary::Pow, _) => {
                let slope = if k == 0 { base_slope(b, x, y)? } else { exponent_slope(b, x, z)? };
                let Some(slope) = slope else { return Ok(None) };
                b.mul(t, &slope)?
            }
            (Binary::Atan2, _) => {
                let square = |b: &mut Builder, x: &Value| match literal_value(x) {
                    Some(x) => b.constant_like(&z.ty, x * x),
                    None => b.square(x),
                };
                let (p, q) = (square(b, x)?, square(b, y)?);
                let d = b.add(&p, &q)?;
                let slope = b.div(other, &d)?;
                let slope = if k == 0 { slope } else { b.neg(&slope)? };
                b.mul(t, &slope)?
            }
            // The derivative is this/z, or 0 where z is 0.
            (Binary::Hypot, _) => {
                let (zero, one) = (b.constant_like(&z.ty, 0.0)?, b.constant_like(&z.ty, 1.0)?);
                let none = b.eq(z, &zero)?;
                let over = b.select(&none, &one, z)?;
                let slope = b.div(this, &over)?;
                b.mul(t, &slope)?
            }
            (Binary::Xlogy, 0) => {
                let log = match literal_value(y) {
                    Some(y) => b.constant_like(&z.ty, y.ln())?,
                    None => b.log(y)?,
                };
                b.mul(t, &log)?
            }
            (Binary::Xlogy, _) => {
                let slope = b.div(x, y)?;
                b.mul(t, &slope)?
            }
            _ => return Ok(None),
        }))
    }
}

/// Returns the derivative of the remainder along y: it is x - y·trunc(x/y).
fn divisor_slope(b: &mut Builder, x: &Value, y: &Value) -> Result<Value> {
    let q = b.div(x, y)?;
    let (sign, size) = (b.unary(Unary::Sign, &q)?, b.unary(Unary::Abs, &q)?);
    let floor = b.unary(Unary::Floor, &size)?;
    let slope = b.mul(&sign, &floor)?;
    b.neg(&slope)
}

/// Returns the derivative of x^y along x; `None` is zero.
fn base_slope(b: &mut Builder, x: &Value, y: &Value) -> Result<Option<Value>> {
    Ok(Some(match literal_value(y) {
        Some(0.0) => return Ok(None),
        Some(n) => {
            let less = b.constant_like(&x.ty, n - 1.0)?;
            let p = b.binary(Binary::Pow, x, &less)?;
            b.mul_scalar(&p, n)?
        }
        // The derivative of x⁰ is 0, also at x = 0, where y·x^(y-1) would be 0·∞.
        None => {
            let (zero, one) = (b.constant_like(&y.ty, 0.0)?, b.constant_like(&y.ty, 1.0)?);
            let flat = b.eq(y, &zero)?;
            let less = b.add_scalar(y, -1.0)?;
            let less = b.select(&flat, &one, &less)?;
            let p = b.binary(Binary::Pow, x, &less)?;
            b.mul(y, &p)?
        }
    }))
}

/// Returns the derivative of z = x^y along y; `None` is zero.
fn exponent_slope(b: &mut Builder, x: &Value, z: &Value) -> Result<Option<Value>> {
    let log = match literal_value(x) {
        Some(0.0) => return Ok(None),
        Some(base) if base > 0.0 || !z.ty.dtype.is_complex() => b.constant_like(&z.ty, base.ln())?,
        // The power is 0 where the base is 0, so ln 1 replaces ln 0.
        _ => {
            let (zero, one) = (b.constant_like(&x.ty, 0.0)?, b.constant_like(&x.ty, 1.0)?);
            let none = b.eq(x, &zero)?;
            let safe = b.select(&none, &one, x)?;
            b.log(&safe)?
        }
    };
    b.mul(&log, z).map(Some)
}

/// Returns the value of a literal as `f64`; `None` for a variable.
fn literal_value(x: &Value) -> Option<f64> {
    match x.input {
        Input::Lit(l) => Some(l.value.to_f64()),
        Input::Var(_) => None,
    }
}

impl Primitive for Binary {
    fn name(&self) -> &'static str {
        self.row().0
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        arity(self.name(), operands, 2)?;
        let shape = broadcast_shapes(operands.iter().map(|o| &o.ty.shape[..]).enumerate())?;
        let dtype = common_dtype(operands, 0)?;
        self.row().1.check(operands, 0)?;
        let dtype = self.fun().and_then(|op| op.info().result.for_operand(dtype)).unwrap_or(dtype);
        Ok(vec![(dtype, shape)])
    }
    elementwise_rules!();
    fn linearity(&self) -> Linearity {
        match self {
            Binary::Add | Binary::Sub | Binary::Complex => Linearity::Joint,
            Binary::Mul => Linearity::Product,
            Binary::Div => Linearity::Quotient,
            _ => Linearity::None,
        }
    }
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let (x, y, z) = (&operands[0], &operands[1], &outputs[0]);
        // A linear function with both tangents is applied to the tangents once.
        if let (Binary::Add | Binary::Sub | Binary::Complex, [Some(s), Some(t)]) = (self, tangents) {
            return Ok(vec![Some(b.binary(*self, s, t)?)]);
        }
        let mut sum = None;
        for (k, t) in tangents.iter().enumerate() {
            let Some(t) = t else { continue };
            let Some(term) = self.operand_tangent(b, k, [x, y], z, t)? else { continue };
            let term = b.broadcast_like(&term, &z.ty)?;
            sum = b.add_optional(sum, Some(term))?;
        }
        Ok(vec![sum])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let mut result = vec![None, None];
        for k in (0..2).filter(|k| operands[*k].is_none()) {
            let part = match (self, k, &operands[1 - k]) {
                (Binary::Add, ..) | (Binary::Sub, 0, _) => ct.clone(),
                (Binary::Sub, ..) => b.neg(ct)?,
                (Binary::Complex, 0, _) => b.unary(Unary::Real, ct)?,
                // Multiplying by i moves the negated imaginary part to the real part.
                (Binary::Complex, ..) => {
                    let im = b.unary(Unary::Imag, ct)?;
                    b.neg(&im)?
                }
                (Binary::Mul, _, Some(other)) => b.mul_cotangent(ct, other)?,
                (Binary::Div, 0, Some(y)) if !Builder::is_unreduced_outside(&ct.ty) => b.div(ct, y)?,
                (Binary::Div, 0, Some(y)) => {
                    let over = b.unary(Unary::Reciprocal, y)?;
                    b.mul_cotangent(ct, &over)?
                }
                _ => return Err(not_linear_error(self.name())),
            };
            result[k] = Some(b.unbroadcast(&part, &types[k])?);
        }
        Ok(result)
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let to = results[0].dtype.storage();
        vec![loop_nest(operands, &results[0], self.code(operands[0].dtype.storage(), to))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        mul_joins_shardings: Binary::Mul, ["float32[4@X,2]", "float32[4,2@Y]"] => r#"
            (a: float32[4@X,2], b: float32[4,2@Y]) {
              c: float32[4@X,2@Y] = mul a b
              return c
            }
            tangents: (a: float32[4@X,2], b: float32[4,2@Y], c: float32[4@X,2], d: float32[4,2@Y]) {
              e: float32[4@X,2@Y] = mul a b
              f: float32[4@X,2@Y] = mul c b
              g: float32[4@X,2@Y] = mul d a
              h: float32[4@X,2@Y] = add f g
              return e, h
            }
            cotangents: (a: float32[4@X,2], b: float32[4,2@Y], c: float32[4@X,2@Y]) {
              d: float32[4@X,2@Y] = mul c a
              e: float32[4,2@Y] = broadcast_in_dim[shape=[4,2], dims=[0,1], out=p![_, "Y"]] d
              f: float32[4@X,2@Y] = mul c b
              g: float32[4@X,2] = broadcast_in_dim[shape=[4,2], dims=[0,1], out=p!["X", _]] f
              return g, e
            }
        "#;
        add_on_two_axes_is_rejected: Binary::Add, ["float32[4@X]", "float32[4@Y]"] => r#"
            error: dimension 0 of operand 0, 4@X, and dimension 0 of operand 1, 4@Y, must match, but are sharded differently
            reshard operand 0: `.reshard(p!["Y"])`
            reshard operand 1: `.reshard(p!["X"])`
        "#;
        lt_gives_bools: Binary::Lt, ["int32[4@X]", "int32[4@X]"] => "
            (a: int32[4@X], b: int32[4@X]) {
              c: bool[4@X] = lt a b
              return c
            }
        ";
    }
}
