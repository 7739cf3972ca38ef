//! Conversions of element types, by value (`Convert`) and by bits (`Bitcast`).

use super::{Unary, factors, loop_nest};
use crate::core::{ArrayType, Axes, DType, ErrorKind, Fault, Result, Scalar, Shape, TypePart};
use crate::ir::program::{
    Factors, JvpArgs, Linearity, LoopNest, Primitive, ScalarArg, ScalarCode, ScalarOp, Tangents,
    TransposeArgs, TypedOperand, typing,
};
use crate::ir::{ops::dim_check::arity, ops::structural::no_derivative};
use std::sync::Arc;

/// The conversion of values to another element type: `convert_element_type{dtype}`.
///
/// Floats are truncated towards zero, integers wrap, and a bool is true where the value is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convert {
    /// The element type of the result.
    pub dtype: DType,
}

/// The reinterpretation of bits as another type of the same width: `bitcast_convert_type{dtype}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bitcast {
    /// The element type of the result.
    pub dtype: DType,
}

/// Returns the loop nest of a conversion; a copy if the storage types are equal.
fn conversion_nest(fun: ScalarOp, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
    let (from, to) = (operands[0].dtype.storage(), results[0].dtype.storage());
    let fun = if from == to { ScalarOp::Copy } else { fun };
    vec![loop_nest(operands, &results[0], ScalarCode::single(fun, from, to, &[ScalarArg::Access(0)]))]
}

impl Primitive for Convert {
    fn name(&self) -> &'static str {
        "convert_element_type"
    }
    fn params(&self) -> String {
        format!("dtype={}", self.dtype)
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity(self.name(), operands, 1)?[0];
        if (ty.dtype == DType::Key) != (self.dtype == DType::Key) {
            return Err(fault!(Dtype, "{} is not converted to {}", ty.dtype, self.dtype)
                .help("the words of a key: `key.data()`"));
        }
        if ty.dtype.is_complex() && !self.dtype.is_complex() {
            let text = format!("{} is not converted to {}: a part would be lost", ty.dtype, self.dtype);
            return Err(Fault::new(ErrorKind::Dtype, text)
                .help("take a part of it: `.real()` or `.imag()`, or its modulus: `.abs()`"));
        }
        Ok(vec![(self.dtype, ty.shape.clone())])
    }
    elementwise_rules!();
    fn linearity(&self) -> Linearity {
        // Truncation is not linear: a sum of truncated floats is not the truncated sum.
        if self.dtype.is_inexact() { Linearity::Joint } else { Linearity::None }
    }
    /// Infers the type from the factors, and rejects unreduced integers and bools.
    ///
    /// Sums of integers wrap at the width of their type, so converting partial values to another
    /// width would change the sum.
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let types = typing::by_factors(self, operands)?;
        let x = &operands[0].ty;
        if x.dtype.is_inexact() || types[0].spec.unreduced_axes().is_empty() {
            return Ok(types);
        }
        let (u, name, to) = (x.spec.unreduced_axes(), self.name(), self.dtype);
        Err(fault!(
            Sharding,
            "the operand, {x}, is unreduced over {u}, and {name} from {} to {to} is not linear in it",
            x.dtype
        )
        .help(format!("sum it first: `.reshard({})`", x.spec.unreduced(Axes::none())))
        .highlight(0, TypePart::Sets))
    }
    fn jvp(&self, JvpArgs { builder: b, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        Ok(vec![match &tangents[0] {
            Some(t) if self.dtype.is_inexact() && t.ty.dtype.is_inexact() => Some(b.convert(t, self.dtype)?),
            _ => None,
        }])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, types, cotangents, .. } = args;
        Ok(vec![match &cotangents[0] {
            Some(ct) if ct.ty.dtype.is_complex() && !types[0].dtype.is_complex() => {
                let re = b.unary(Unary::Real, ct)?;
                Some(b.convert(&re, types[0].dtype)?)
            }
            Some(ct) => Some(b.convert(ct, types[0].dtype)?),
            None => None,
        }])
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (from, to) = (operands[0].dtype.storage(), results[0].dtype);
        if !to.is_complex() || from.is_complex() {
            return conversion_nest(ScalarOp::Convert, operands, results);
        }
        // The operand becomes the real part. The imaginary part is 0.
        let mut insts = ScalarCode { insts: Vec::new() };
        let re = insts.push(ScalarOp::Convert, from, to.real(), &[ScalarArg::Access(0)]);
        insts.push(ScalarOp::Complex, to.real(), to, &[re, ScalarArg::Const(Scalar::Float(0.0))]);
        vec![loop_nest(operands, &results[0], insts)]
    }
}

impl Primitive for Bitcast {
    described!(self, "bitcast_convert_type", Linearity::None, format!("dtype={}", self.dtype));
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity(self.name(), operands, 1)?[0];
        let (from, to) = (ty.dtype, self.dtype);
        if from.size() != to.size() {
            return Err(fault!(
                Shape,
                "a bitcast needs types of equal width: {from} has {} bytes, {to} has {}",
                from.size(),
                to.size()
            )
            .help("use an element type of the same width, or convert the values: `.astype(…)`")
            .highlight(0, TypePart::Dtype));
        }
        if from != to && (!from.is_number() || !to.is_number()) {
            return Err(fault!(Dtype, "the bits of {from} are not those of {to}")
                .help("convert the values: `x.astype(…)`"));
        }
        if from == DType::Bool {
            return Err(fault!(Dtype, "the bits of a bool cannot be reinterpreted")
                .help("convert the values: `x.astype(U8)`"));
        }
        Ok(vec![(to, ty.shape.clone())])
    }
    elementwise_rules!();
    no_derivative!("bitcast_convert_type");
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        conversion_nest(ScalarOp::Bitcast, operands, results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        convert_to_wider: Convert { dtype: DType::F64 }, ["float32[4@X]"] => "
            (a: float32[4@X]) {
              b: float64[4@X] = convert_element_type[dtype=float64] a
              return b
            }
            tangents: (a: float32[4@X], b: float32[4@X]) {
              c: float64[4@X] = convert_element_type[dtype=float64] a
              d: float64[4@X] = convert_element_type[dtype=float64] b
              return c, d
            }
            cotangents: (a: float64[4@X]) {
              b: float32[4@X] = convert_element_type[dtype=float32] a
              return b
            }
        ";
        bitcast_to_as_wide: Bitcast { dtype: DType::I32 }, ["float32[4@X]"] => "
            (a: float32[4@X]) {
              b: int32[4@X] = bitcast_convert_type[dtype=int32] a
              return b
            }
            no tangents
        ";
        bitcast_to_wider_is_rejected: Bitcast { dtype: DType::I64 }, ["float32[4]"] => "
            error: a bitcast needs types of equal width: float32 has 4 bytes, int64 has 8
            use an element type of the same width, or convert the values: `.astype(…)`
        ";
    }
}
