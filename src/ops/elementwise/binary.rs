//! Functions of two operands.

use super::formula::Formula;
use super::{Takes, Unary, broadcast_shapes, factors, one_dtype, sentence};
use crate::diagnostic::{Fault, Result};
use crate::ops::build::not_linear;
use crate::ops::view::arity;
use crate::program::factors::{Factors, Linearity, Priority};
use crate::program::sentence::{Arg, Code, Fun, Sentence};
use crate::program::{Back, Forward};
use crate::program::{Batch, Batched};
use crate::program::{Builder, Input, Operand, Primitive, Tangents, Value};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// Makes the enum and its table: what is one instruction, then what is composed of several.
macro_rules! binary {
    (
        single { $($v:ident $name:literal $takes:ident;)* }
        composed { $($(#[$doc:meta])* $w:ident $word:literal $to:ident $of:ident;)* }
    ) => {
        /// An elementwise function of two operands of one element type, whose shapes broadcast.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "most names say it; the others are commented")]
        pub enum Binary { $($v,)* $($(#[$doc])* $w,)* }
        impl Binary {
            /// All of them.
            pub const ALL: &[Binary] = &[$(Binary::$v,)* $(Binary::$w,)*];
            /// Name and element types.
            fn row(self) -> (&'static str, Takes) {
                match self { $(Binary::$v => ($name, Takes::$takes),)* $(Binary::$w => ($word, Takes::$to),)* }
            }
            /// The instruction, or what it is composed of.
            fn code(self, from: DType, to: DType) -> Code {
                match self {
                    $(Binary::$v => Code::one(Fun::$v, from, to, &[Arg::Read(0), Arg::Read(1)]),)*
                    $(Binary::$w => {
                        let mut f = Formula::new(from);
                        let (x, y) = (f.x, f.read(1));
                        let value = $of(&mut f, x, y);
                        f.finish(value)
                    })*
                }
            }
        }
    };
}
binary! {
    single {
    Add "add" Number;
    Sub "sub" Number;
    Mul "mul" Number;
    Div "div" Number;
    Rem "rem" Real;
    Max "max" Plain;
    Min "min" Plain;
    Pow "pow" Number;
    Atan2 "atan2" Float;
    NextAfter "nextafter" Float;
    Complex "complex" Parts;
    Eq "eq" Plain;
    Ne "ne" Plain;
    Lt "lt" Ordered;
    Le "le" Ordered;
    Gt "gt" Ordered;
    Ge "ge" Ordered;
    And "and" Bits;
    Or "or" Bits;
    Xor "xor" Bits;
    ShiftLeft "shift_left" Integer;
    ShiftRightLogical "shift_right_logical" Integer;
    ShiftRightArithmetic "shift_right_arithmetic" Integer;
    }
    composed {
    /// √(x² + y²), without overflow on the way.
    Hypot "hypot" Float hypot;
    /// x·ln y, and 0 where x is 0.
    Xlogy "xlogy" Float xlogy;
    }
}

/// The greater one times √(1 + q²) of the quotient q, which is 1 where both are 0 or infinite.
fn hypot(f: &mut Formula, x: Arg, y: Arg) -> Arg {
    let (x, y, one) = (f.one(Fun::Abs, x), f.one(Fun::Abs, y), f.number(1.0));
    let (most, least) = (f.two(Fun::Max, x, y), f.two(Fun::Min, x, y));
    let q = f.two(Fun::Div, least, most);
    let q = f.where_equal([least, most], one, q);
    let q = f.two(Fun::Mul, q, q);
    let sum = f.two(Fun::Add, one, q);
    let root = f.one(Fun::Sqrt, sum);
    f.two(Fun::Mul, most, root)
}

fn xlogy(f: &mut Formula, x: Arg, y: Arg) -> Arg {
    let zero = f.number(0.0);
    let log = f.one(Fun::Log, y);
    let product = f.two(Fun::Mul, x, log);
    f.where_equal([x, zero], zero, product)
}

impl Binary {
    /// Whether it compares: the result is bool.
    pub fn compares(self) -> bool {
        matches!(self, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
    }

    /// The tangent along one operand, of any shape that broadcasts to the result's; `None` is zero.
    fn along(
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
            // by fewer numbers than there are quotients: what is summed for each is divided once
            (Binary::Div, _) if y.ty.shape.elements() < z.ty.shape.elements() => {
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
            // x - y·trunc(x/y)
            (Binary::Rem, _) => {
                let q = b.div(x, y)?;
                let (sign, size) = (b.unary(Unary::Sign, &q)?, b.unary(Unary::Abs, &q)?);
                let whole = b.unary(Unary::Floor, &size)?;
                let slope = b.mul(&sign, &whole)?;
                let slope = b.neg(&slope)?;
                b.mul(t, &slope)?
            }
            // equal operands share it
            (Binary::Max | Binary::Min, _) => {
                let (won, tied) = (b.binary(Binary::Eq, this, z)?, b.binary(Binary::Eq, other, z)?);
                let (zero, half, one) = (b.number(&z.ty, 0.0)?, b.number(&z.ty, 0.5)?, b.number(&z.ty, 1.0)?);
                let share = b.select(&tied, &half, &one)?;
                let share = b.select(&won, &share, &zero)?;
                b.mul(t, &share)?
            }
            (Binary::Pow, 0) => {
                let slope = match literal(y) {
                    Some(0.0) => return Ok(None),
                    Some(n) => {
                        let less = b.number(&x.ty, n - 1.0)?;
                        let p = b.binary(Binary::Pow, x, &less)?;
                        b.times(&p, n)?
                    }
                    // x⁰ is flat at 0 too, where y·x^(y-1) says 0·∞
                    None => {
                        let (zero, one) = (b.number(&y.ty, 0.0)?, b.number(&y.ty, 1.0)?);
                        let flat = b.eq(y, &zero)?;
                        let less = b.plus(y, -1.0)?;
                        let less = b.select(&flat, &one, &less)?;
                        let p = b.binary(Binary::Pow, x, &less)?;
                        b.mul(y, &p)?
                    }
                };
                b.mul(t, &slope)?
            }
            (Binary::Pow, _) => {
                let log = match literal(x) {
                    Some(0.0) => return Ok(None),
                    Some(base) if base > 0.0 || !z.ty.dtype.is_complex() => b.number(&z.ty, base.ln())?,
                    // the log of 1 in place of that of 0: there the power is 0
                    _ => {
                        let (zero, one) = (b.number(&x.ty, 0.0)?, b.number(&x.ty, 1.0)?);
                        let none = b.eq(x, &zero)?;
                        let safe = b.select(&none, &one, x)?;
                        b.log(&safe)?
                    }
                };
                let slope = b.mul(&log, z)?;
                b.mul(t, &slope)?
            }
            (Binary::Atan2, _) => {
                let square = |b: &mut Builder, x: &Value| match literal(x) {
                    Some(x) => b.number(&z.ty, x * x),
                    None => b.square(x),
                };
                let (p, q) = (square(b, x)?, square(b, y)?);
                let d = b.add(&p, &q)?;
                let slope = b.div(other, &d)?;
                let slope = if k == 0 { slope } else { b.neg(&slope)? };
                b.mul(t, &slope)?
            }
            // this/z, and 0 where all are
            (Binary::Hypot, _) => {
                let (zero, one) = (b.number(&z.ty, 0.0)?, b.number(&z.ty, 1.0)?);
                let none = b.eq(z, &zero)?;
                let over = b.select(&none, &one, z)?;
                let slope = b.div(this, &over)?;
                b.mul(t, &slope)?
            }
            (Binary::Xlogy, 0) => {
                let log = match literal(y) {
                    Some(y) => b.number(&z.ty, y.ln())?,
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

/// The number that a literal is.
fn literal(x: &Value) -> Option<f64> {
    match x.input {
        Input::Lit(l) => Some(l.value.to_f64()),
        Input::Var(_) => None,
    }
}

impl Primitive for Binary {
    fn name(&self) -> &'static str {
        self.row().0
    }
    fn params(&self) -> String {
        String::new()
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        arity(self.name(), operands, 2)?;
        let shape = broadcast_shapes(operands.iter().map(|o| &o.ty.shape[..]).enumerate())?;
        let dtype = one_dtype(operands, 0)?;
        self.row().1.check(operands, 0)?;
        let dtype = match self {
            Binary::Complex => dtype.complex().unwrap_or(dtype),
            _ if self.compares() => DType::Bool,
            _ => dtype,
        };
        Ok(vec![(dtype, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        factors(operands, &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        match self {
            Binary::Add | Binary::Sub | Binary::Complex => Linearity::Joint,
            Binary::Mul => Linearity::Product,
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
        let (x, y, z) = (&operands[0], &operands[1], &outputs[0]);
        // both tangents of a linear function: the function of them
        if let (Binary::Add | Binary::Sub | Binary::Complex, [Some(s), Some(t)]) = (self, tangents) {
            return Ok(vec![Some(b.binary(*self, s, t)?)]);
        }
        let mut sum = None;
        for (k, t) in tangents.iter().enumerate() {
            let Some(t) = t else { continue };
            let Some(part) = self.along(b, k, [x, y], z, t)? else { continue };
            let part = b.broadcast_like(&part, &z.ty)?;
            sum = b.sum_of(sum, Some(part))?;
        }
        Ok(vec![sum])
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let mut result = vec![None, None];
        for k in (0..2).filter(|k| operands[*k].is_none()) {
            let part = match (self, k, &operands[1 - k]) {
                (Binary::Add, ..) | (Binary::Sub, 0, _) => ct.clone(),
                (Binary::Sub, ..) => b.neg(ct)?,
                (Binary::Complex, 0, _) => b.unary(Unary::Real, ct)?,
                // i times a number has less its imaginary part for its real one
                (Binary::Complex, ..) => {
                    let im = b.unary(Unary::Imag, ct)?;
                    b.neg(&im)?
                }
                (Binary::Mul, _, Some(other)) => b.mul_by(ct, other)?,
                (Binary::Div, 0, Some(y)) if ct.ty.spec.unreduced_axes().is_empty() => b.div(ct, y)?,
                (Binary::Div, 0, Some(y)) => {
                    let over = b.unary(Unary::Reciprocal, y)?;
                    b.mul_by(ct, &over)?
                }
                _ => return Err(not_linear(self.name())),
            };
            result[k] = Some(b.unbroadcast(&part, &types[k])?);
        }
        Ok(result)
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let to = results[0].dtype.storage();
        vec![sentence(operands, &results[0], self.code(operands[0].dtype.storage(), to))]
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
        add_on_two_axes_is_refused: Binary::Add, ["float32[4@X]", "float32[4@Y]"] => r#"
            refused: dimension 0 of operand 0, 4@X, and dimension 0 of operand 1, 4@Y, must match, but are sharded differently
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
