//! Element types: conversion of values and of bits.

use super::{Unary, factors, sentence};
use crate::diagnostic::{ErrorKind, Fault, Result, Spot};
use crate::mesh::Axes;
use crate::ops::moves::no_derivative;
use crate::ops::view::arity;
use crate::program::factors::{Factors, Linearity, Priority};
use crate::program::sentence::{Arg, Code, Fun, Sentence};
use crate::program::{Back, Forward};
use crate::program::{Batch, Batched};
use crate::program::{Operand, Primitive, Tangents, typing};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// `convert_element_type{dtype}`: floats are cut towards zero, integers wrap, to bool is `!= 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convert {
    /// The element type of the result.
    pub dtype: DType,
}

/// `bitcast_convert_type{dtype}`: the same bits as another element type of the same width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bitcast {
    /// The element type of the result.
    pub dtype: DType,
}

fn code(fun: Fun, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
    let (from, to) = (operands[0].dtype.storage(), results[0].dtype.storage());
    let fun = if from == to { Fun::Copy } else { fun };
    vec![sentence(operands, &results[0], Code::one(fun, from, to, &[Arg::Read(0)]))]
}

impl Primitive for Convert {
    fn name(&self) -> &'static str {
        "convert_element_type"
    }
    fn params(&self) -> String {
        format!("dtype={}", self.dtype)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity(self.name(), operands, 1)?[0];
        if (ty.dtype == DType::Key) != (self.dtype == DType::Key) {
            return Err(Fault::new(
                ErrorKind::Dtype,
                format!("{} is not converted to {}", ty.dtype, self.dtype),
            )
            .help("the words of a key: `key.data()`"));
        }
        if ty.dtype.is_complex() && !self.dtype.is_complex() {
            let text = format!("{} is not converted to {}: a part would be lost", ty.dtype, self.dtype);
            return Err(Fault::new(ErrorKind::Dtype, text)
                .help("take a part of it: `.real()` or `.imag()`, or its modulus: `.abs()`"));
        }
        Ok(vec![(self.dtype, ty.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        factors(operands, &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        // a sum of cut floats is not the cut sum
        if self.dtype.is_inexact() { Linearity::Joint } else { Linearity::None }
    }
    /// Of parts only floats convert to floats: sums of whole numbers wrap in one width, and not or elsewhere in another.
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let types = typing::by_factors(self, operands)?;
        let x = &operands[0].ty;
        if x.dtype.is_inexact() || types[0].spec.unreduced_axes().is_empty() {
            return Ok(types);
        }
        let (u, name, to) = (x.spec.unreduced_axes(), self.name(), self.dtype);
        Err(Fault::new(
            ErrorKind::Sharding,
            format!(
                "the operand, {x}, is unreduced over {u}, and {name} from {} to {to} is not linear in it",
                x.dtype
            ),
        )
        .help(format!("sum it first: `.reshard({})`", x.spec.unreduced(Axes::none())))
        .mark(0, Spot::Sets))
    }
    fn priority(&self) -> Priority {
        Priority::Elementwise
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(&self, Forward { b, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        Ok(vec![match &tangents[0] {
            Some(t) if self.dtype.is_inexact() && t.ty.dtype.is_inexact() => Some(b.convert(t, self.dtype)?),
            _ => None,
        }])
    }
    fn transpose(&self, Back { b, types, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        Ok(vec![match &cotangents[0] {
            Some(ct) if ct.ty.dtype.is_complex() && !types[0].dtype.is_complex() => {
                let re = b.unary(Unary::Real, ct)?;
                Some(b.convert(&re, types[0].dtype)?)
            }
            Some(ct) => Some(b.convert(ct, types[0].dtype)?),
            None => None,
        }])
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (from, to) = (operands[0].dtype.storage(), results[0].dtype);
        if !to.is_complex() || from.is_complex() {
            return code(Fun::Convert, operands, results);
        }
        // the real part, and no imaginary one
        let mut insts = Code { insts: Vec::new() };
        let re = insts.push(Fun::Convert, from, to.real(), &[Arg::Read(0)]);
        insts.push(Fun::Complex, to.real(), to, &[re, Arg::Const(Scalar::Float(0.0))]);
        vec![sentence(operands, &results[0], insts)]
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::broadcasting(Arc::new(*self))
    }
}

impl Primitive for Bitcast {
    fn name(&self) -> &'static str {
        "bitcast_convert_type"
    }
    fn params(&self) -> String {
        format!("dtype={}", self.dtype)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity(self.name(), operands, 1)?[0];
        let (from, to) = (ty.dtype, self.dtype);
        if from.size() != to.size() {
            return Err(Fault::new(
                ErrorKind::Shape,
                format!(
                    "{from} has {} bytes, {to} has {}: bits are kept one for one",
                    from.size(),
                    to.size()
                ),
            )
            .help("take an element type of as many bytes, or convert the numbers: `.astype(…)`")
            .mark(0, Spot::Dtype));
        }
        if from != to && (!from.is_number() || !to.is_number()) {
            return Err(Fault::new(ErrorKind::Dtype, format!("the bits of {from} are not those of {to}"))
                .help("convert the values: `x.astype(…)`"));
        }
        if from == DType::Bool {
            return Err(Fault::new(ErrorKind::Dtype, "the bits of bool are not to be seen")
                .help("convert the values: `x.astype(U8)`"));
        }
        Ok(vec![(to, ty.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        factors(operands, &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn priority(&self) -> Priority {
        Priority::Elementwise
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    no_derivative!("bitcast_convert_type");
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        code(Fun::Bitcast, operands, results)
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
        bitcast_to_wider_is_refused: Bitcast { dtype: DType::I64 }, ["float32[4]"] => "
            refused: float32 has 4 bytes, int64 has 8: bits are kept one for one
            take an element type of as many bytes, or convert the numbers: `.astype(…)`
        ";
    }
}
