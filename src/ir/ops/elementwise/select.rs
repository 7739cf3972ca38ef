//! The primitives `select` and `clamp`.
//!
//! Their operands have one shape and one sharding, or are scalars.

use super::{DTypeClass, common_dtype, factors, loop_nest};
use crate::core::{ArrayType, DType, ErrorKind, Fault, Result, Shape};
use crate::ir::ops::dim_check::arity;
use crate::ir::program::{
    BatchedOp, Builder, ExplicitRule, Factors, JvpArgs, Linearity, LoopNest, Primitive, Priority, ScalarArg,
    ScalarCode, ScalarOp, Tangents, TransposeArgs, TypedOperand, Value, VmapArgs, typing::not_linear_error,
};
use std::sync::Arc;

/// The elements of `x` where `which` is true and of `y` elsewhere: `select(which, x, y)`.
///
/// All operands have one shape and one sharding, but `which` may be a scalar, and `x` and `y` may
/// be literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Select;

/// The elements of `x`, limited to the range from `lo` to `hi`: `clamp(lo, x, hi)`.
///
/// Each limit is a scalar or has the type of `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clamp;

/// Returns the common shape of the operands, or an error if one does not have it.
///
/// Operands for which `scalar` returns true may also be scalars.
fn common_shape(
    operands: &[TypedOperand],
    model: usize,
    scalar: impl Fn(usize) -> bool,
) -> Result<Shape, Fault> {
    let shape = &operands[model].ty.shape;
    for (k, o) in operands.iter().enumerate() {
        if o.ty.shape != *shape && !(o.ty.rank() == 0 && scalar(k)) {
            let or = if scalar(k) { " or a scalar" } else { "" };
            return Err(fault!(
                Shape,
                "operand {} has shape {}, and must have that of operand {}, {shape}{or}",
                o.user_index(k),
                o.ty.shape,
                operands[model].user_index(model)
            )
            .help("`where_` broadcasts its operands to a common shape"));
        }
    }
    Ok(shape.clone())
}

impl Primitive for Select {
    described!(self, "select", Linearity::Select);
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        arity("select", operands, 3)?;
        // A literal takes the shape of the other operand.
        let model = (1..3).chain([0]).find(|k| !operands[*k].is_literal).unwrap_or(1);
        let shape = common_shape(operands, model, |k| k == 0 || operands[k].is_literal)?;
        let dtype = common_dtype(operands, 1)?;
        if operands[0].ty.dtype != DType::Bool {
            return Err(Fault::new(
                ErrorKind::Dtype,
                format!("the condition must be bool, but operand 0 is {}", operands[0].ty.dtype),
            )
            .help("compare it: `x.ne(0)`"));
        }
        Ok(vec![(dtype, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        factors(operands, &results[0].1).with_rule_for_all(ExplicitRule::MustMatch)
    }
    fn priority(&self) -> Priority {
        Priority::Elementwise
    }
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let mut branch = |t: &Option<Value>| t.clone().map_or_else(|| b.zero_like(&outputs[0].ty), Ok);
        Ok(vec![match &tangents[1..] {
            [None, None] => None,
            [x, y] => {
                let (x, y) = (branch(x)?, branch(y)?);
                Some(b.select(&operands[0], &x, &y)?)
            }
            _ => None,
        }])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None; 3]) };
        let Some(which) = &operands[0] else { return Err(not_linear_error("select")) };
        let zero = b.zero_like(&ct.ty)?;
        let mut result = vec![None; 3];
        if operands[1].is_none() {
            let part = b.select(which, ct, &zero)?;
            result[1] = Some(b.unbroadcast(&part, &types[1])?);
        }
        if operands[2].is_none() {
            let part = b.select(which, &zero, ct)?;
            result[2] = Some(b.unbroadcast(&part, &types[2])?);
        }
        Ok(result)
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let d = results[0].dtype.storage();
        let code = ScalarCode::single(
            ScalarOp::Select,
            d,
            d,
            &[ScalarArg::Access(0), ScalarArg::Access(1), ScalarArg::Access(2)],
        );
        vec![loop_nest(operands, &results[0], code)]
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::all_batched(Arc::new(*self), true)
    }
}

impl Primitive for Clamp {
    described!(self, "clamp", Linearity::None);
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        arity("clamp", operands, 3)?;
        let shape = common_shape(operands, 1, |k| k != 1)?;
        let dtype = common_dtype(operands, 0)?;
        DTypeClass::Ordered.check(operands, 1)?;
        Ok(vec![(dtype, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        factors(operands, &results[0].1).with_rule_for_all(ExplicitRule::MustMatch)
    }
    fn priority(&self) -> Priority {
        Priority::Elementwise
    }
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        use super::Binary::{Gt, Lt};
        let (lo, x, hi, z) = (&operands[0], &operands[1], &operands[2], &outputs[0]);
        let mut sum = None;
        for (k, t) in tangents.iter().enumerate() {
            let Some(t) = t else { continue };
            let rules = match k {
                0 => vec![(Gt, lo, x), (Lt, lo, hi)],
                1 => vec![(Gt, x, lo), (Lt, x, hi)],
                _ => vec![(Lt, hi, x)],
            };
            let mut rules = rules.into_iter();
            // If two operands have different reduced axes, they are compared after both are
            // broadcast to the result.
            let compared = |b: &mut Builder, (cmp, p, q): (super::Binary, &Value, &Value)| {
                let literal = p.is_literal() || q.is_literal();
                if literal || p.ty.spec.reduced_axes().same_set(q.ty.spec.reduced_axes()) {
                    return b.binary(cmp, p, q);
                }
                let (p, q) = (b.broadcast_like(p, &z.ty)?, b.broadcast_like(q, &z.ty)?);
                b.binary(cmp, &p, &q)
            };
            let Some(first) = rules.next() else { continue };
            let mut active = compared(b, first)?;
            for rule in rules {
                let more = compared(b, rule)?;
                active = b.binary(super::Binary::And, &active, &more)?;
            }
            let t = b.broadcast_like(t, &z.ty)?;
            let zero = b.zero_like(&t.ty)?;
            let part = b.select(&active, &t, &zero)?;
            sum = b.add_optional(sum, Some(part))?;
        }
        Ok(vec![sum])
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Err(not_linear_error("clamp"))
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let d = results[0].dtype.storage();
        let mut code = ScalarCode::single(ScalarOp::Max, d, d, &[ScalarArg::Access(1), ScalarArg::Access(0)]);
        code.push(ScalarOp::Min, d, d, &[ScalarArg::Inst(0), ScalarArg::Access(2)]);
        vec![loop_nest(operands, &results[0], code)]
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::all_batched(Arc::new(*self), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        select_chooses: Select, ["bool[4@X]", "float32[4@X]", "float32[4@X]"] => "
            (a: bool[4@X], b: float32[4@X], c: float32[4@X]) {
              d: float32[4@X] = select a b c
              return d
            }
            tangents: (a: bool[4@X], b: float32[4@X], c: float32[4@X], d: float32[4@X], e: float32[4@X]) {
              f: float32[4@X] = select a b c
              g: float32[4@X] = select a d e
              return f, g
            }
            cotangents: (a: bool[4@X], b: float32[4@X]) {
              c: float32[4@X] = select a b 0.0
              d: float32[4@X] = select a 0.0 b
              return c, d
            }
        ";
        select_of_two_shardings_is_rejected: Select, ["bool[4@X]", "float32[4@X]", "float32[4]"] => r#"
            error: dimension 0 of operand 1, 4@X, and dimension 0 of operand 2, 4, must be sharded the same way
            reshard operand 0 by `.reshard(p![_])` and operand 1 by `.reshard(p![_])`
            reshard operand 2: `.reshard(p!["X"])`
        "#;
        clamp_within_numbers: Clamp, ["float32[]", "float32[4@X]", "float32[]"] => r#"
            (a: float32[], b: float32[4@X], c: float32[]) {
              d: float32[4@X] = clamp a b c
              return d
            }
            tangents: (a: float32[], b: float32[4@X], c: float32[], d: float32[], e: float32[4@X], f: float32[]) {
              g: float32[4@X] = clamp a b c
              h: bool[4@X] = gt a b
              i: bool[] = lt a c
              j: bool[4@X] = and h i
              k: float32[4@X] = broadcast_in_dim[shape=[4], dims=[], out=p!["X"]] d
              l: float32[4@X] = select j k 0.0
              m: bool[4@X] = gt b a
              n: bool[4@X] = lt b c
              o: bool[4@X] = and m n
              p: float32[4@X] = select o e 0.0
              q: float32[4@X] = add l p
              r: bool[4@X] = lt c b
              s: float32[4@X] = broadcast_in_dim[shape=[4], dims=[], out=p!["X"]] f
              t: float32[4@X] = select r s 0.0
              u: float32[4@X] = add q t
              return g, u
            }
            cotangents: (a: bool[4@X], b: bool[4@X], c: bool[4@X], d: float32[4@X]) {
              e: float32[4@X] = select c d 0.0
              f: float32[] = reduce_sum[axes=[0]] e
              g: float32[4@X] = select b d 0.0
              h: float32[4@X] = select a d 0.0
              i: float32[] = reduce_sum[axes=[0]] h
              return i, g, f
            }
        "#;
        select_wants_one_type: Select, ["bool[4]", "float32[4]", "int32[4]"] => "
            error: operand 1 is float32, operand 2 is int32: they must be of one element type
            convert operand 2: `.astype(F32)`
        ";
    }
}
