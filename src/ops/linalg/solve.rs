//! Solutions of linear systems, and inverses.

use super::line::{Kind, Made, Matrix};
use super::of_matrices;
use crate::diagnostic::Result;
use crate::ops::build::{cotangent_type, not_linear};
use crate::program::{Back, Batched, Forward, Primitive, Tangents};
use crate::types::Shape;
use atmesh_linalg::Real;
use std::sync::Arc;

/// `solve{transposed}` of a and b: x of a·x = b, or of aᵀ·x = b. Of singular matrices it is not finite.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Solve {
    /// Whether aᵀ takes the place of a.
    pub transposed: bool,
}

/// `inv`: inverses. Of singular matrices they are not finite.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inv;

impl Primitive for Solve {
    of_matrices!(@all "solve", |prim| Batched::alike(prim, false));
    fn params(&self) -> String {
        format!("transposed={}", self.transposed)
    }
    /// The solution for ḃ − ȧ·x.
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let by_a = match &tangents[0] {
            None => None,
            Some(t) => {
                let t = if self.transposed { b.turned(t)? } else { t.clone() };
                let moved = b.matmul(&t, &outputs[0])?;
                Some(b.neg(&moved)?)
            }
        };
        let Some(t) = b.sum_of(tangents[1].clone(), by_a)? else { return Ok(vec![None]) };
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), &[operands[0].clone(), t])?)])
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let Some(a) = &operands[0] else { return Err(not_linear("solve")) };
        let ct = b.emit1(Arc::new(Solve { transposed: !self.transposed }), &[a.clone(), ct.clone()])?;
        Ok(vec![None, Some(b.reshard_to(&ct, &cotangent_type(&types[1]))?)])
    }
}

impl Primitive for Inv {
    of_matrices!("inv");
    fn params(&self) -> String {
        String::new()
    }
    /// −y ȧ y
    fn jvp(&self, Forward { b, tangents, outputs, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let y = &outputs[0];
        let moved = b.matmul(y, t)?;
        let moved = b.matmul(&moved, y)?;
        Ok(vec![Some(b.neg(&moved)?)])
    }
}

impl Matrix for Solve {
    fn operands(&self) -> usize {
        2
    }
    fn made(&self, [n, _, k]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, [n, k].into())]
    }
    fn rate(&self) -> f64 {
        0.5
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [n, _, k]: [usize; 3]) -> Vec<Made<T>> {
        vec![Made::Floats(T::solve(&x[0], n, self.transposed, &x[1], k))]
    }
}

impl Matrix for Inv {
    fn made(&self, [n, ..]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, [n, n].into())]
    }
    fn rate(&self) -> f64 {
        0.5
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [n, ..]: [usize; 3]) -> Vec<Made<T>> {
        vec![Made::Floats(T::inv(&x[0], n))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

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
        a_split_matrix_is_refused: Inv, ["float32[4,2@X,2]"] => "
            refused: dimension 1 of the operand, 2@X, must be unsharded here
            reshard it first: `.reshard(p![_, _, _])`
        ";
        batches_lie_alike: Solve { transposed: false }, ["float32[2@X,3,3]", "float32[2,3,1]"] => r#"
            refused: dimension 0 of operand 0, 2@X, and dimension 0 of operand 1, 2, must be sharded the same way
            reshard operand 0: `.reshard(p![_, _, _])`
            reshard operand 1: `.reshard(p!["X", _, _])`
        "#;
    }
}
