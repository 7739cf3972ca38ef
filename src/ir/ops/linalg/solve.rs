//! Linear systems and inverses.

use super::{matrix_op, matrix_op_rules};
use crate::core::Result;
use crate::ir::program::typing::{cotangent_type, not_linear_error};
use crate::ir::program::{BatchedOp, JvpArgs, Primitive, Tangents, TransposeArgs};
use std::sync::Arc;

/// The solution x of a·x = b, or of aᵀ·x = b if `transposed` is true: `solve{transposed}`.
///
/// The operands are a and b. If a pivot of a is exactly 0, the result has infinities or
/// NaN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Solve {
    /// If true, the system is aᵀ·x = b.
    pub transposed: bool,
}

/// Computes inverses: `inv`.
///
/// If a pivot is exactly 0, the result has infinities or NaN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inv;

impl Primitive for Solve {
    matrix_op_rules!(@all "solve", |prim| BatchedOp::all_batched(prim, false));
    fn params(&self) -> String {
        format!("transposed={}", self.transposed)
    }
    /// Returns the solution for the right-hand side ḃ − ȧ·x.
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let by_a = match &tangents[0] {
            None => None,
            Some(t) => {
                let t = if self.transposed { b.matrix_transpose(t)? } else { t.clone() };
                let moved = b.matmul(&t, &outputs[0])?;
                Some(b.neg(&moved)?)
            }
        };
        let Some(t) = b.add_optional(tangents[1].clone(), by_a)? else { return Ok(vec![None]) };
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), &[operands[0].clone(), t])?)])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let Some(a) = &operands[0] else { return Err(not_linear_error("solve")) };
        let ct = b.emit1(Arc::new(Solve { transposed: !self.transposed }), &[a.clone(), ct.clone()])?;
        Ok(vec![None, Some(b.reshard_to(&ct, &cotangent_type(&types[1]))?)])
    }
}

impl Primitive for Inv {
    matrix_op_rules!("inv");
    /// Returns −y ȧ y.
    fn jvp(&self, JvpArgs { builder: b, tangents, outputs, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let y = &outputs[0];
        let moved = b.matmul(y, t)?;
        let moved = b.matmul(&moved, y)?;
        Ok(vec![Some(b.neg(&moved)?)])
    }
}

matrix_op! { Solve, 0.5, { const NUM_OPERANDS: usize = 2; }: |self, x, [n, _, k]|
    vec![(Float, [n, k].into())] => vec![Floats(T::solve(&x[0], n, self.transposed, &x[1], k))]
}

matrix_op! { Inv, 0.5: |self, x, [n, ..]|
    vec![(Float, [n, n].into())] => vec![Floats(T::inv(&x[0], n))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        solutions_of_a_split_batch: Solve { transposed: false }, ["float32[2@X,3,3]", "float32[2@X,3,1]"] => "
            (a: float32[2@X,3,3], b: float32[2@X,3,1]) {
              c: float32[2@X,3,1] = solve[transposed=false] a b
              return c
            }
            tangents: (a: float32[2@X,3,3], b: float32[2@X,3,1], c: float32[2@X,3,3], d: float32[2@X,3,1]) {
              e: float32[2@X,3,1] = solve[transposed=false] a b
              f: float32[2@X,3,1] = dot_general[contracting=([2], [1]), batch=([0], [0])] c e
              g: float32[2@X,3,1] = neg f
              h: float32[2@X,3,1] = add d g
              i: float32[2@X,3,1] = solve[transposed=false] a h
              return e, i
            }
            cotangents: (a: float32[2@X,3,3], b: float32[2@X,3,1], c: float32[2@X,3,1]) {
              d: float32[2@X,3,1] = solve[transposed=true] a c
              e: float32[2@X,3,1] = neg d
              f: float32[2@X,3,3] = dot_general[contracting=([2], [2]), batch=([0], [0])] e b
              return f, d
            }
        ";
        a_split_matrix_is_rejected: Inv, ["float32[4,2@X,2]"] => "
            error: dimension 1 of the operand, 2@X, must be unsharded here
            reshard it first: `.reshard(p![_, _, _])`
        ";
        batches_lie_alike: Solve { transposed: false }, ["float32[2@X,3,3]", "float32[2,3,1]"] => r#"
            error: dimension 0 of operand 0, 2@X, and dimension 0 of operand 1, 2, must be sharded the same way
            reshard operand 0: `.reshard(p![_, _, _])`
            reshard operand 1: `.reshard(p!["X", _, _])`
        "#;
    }
}
