//! The Cholesky factorization.

use super::{MatrixRegion, matrix_op, matrix_op_rules};
use crate::core::{ArrayType, Result};
use crate::ir::program::{JvpArgs, NamedOp, Primitive, Tangents};

/// The lower triangular L with L·Lᵀ = (a + aᵀ)/2: `cholesky`.
///
/// The result is NaN for matrices that are not positive definite.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cholesky;

impl Primitive for Cholesky {
    matrix_op_rules!("cholesky");
    fn named_op(&self, _: &[ArrayType]) -> Option<NamedOp> {
        Some(NamedOp::Cholesky)
    }
    /// Returns L̇ = L·Φ(L⁻¹ ȧ L⁻ᵀ).
    ///
    /// Φ takes the lower triangle and halves the diagonal.
    fn jvp(&self, JvpArgs { builder: b, tangents, outputs, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let l = &outputs[0];
        let t = b.symmetrize(t)?;
        let (left, right) = (b.solve_lower(l, &t, false)?, true);
        let both = b.solve_lower(l, &left, right)?;
        let (below, on) = (
            b.keep_region(&both, MatrixRegion::BelowDiagonal)?,
            b.keep_region(&both, MatrixRegion::Diagonal)?,
        );
        let on = b.mul_scalar(&on, 0.5)?;
        let inner = b.add(&below, &on)?;
        Ok(vec![Some(b.matmul(l, &inner)?)])
    }
}

matrix_op! { Cholesky, 0.1: |self, x, [n, ..]|
    vec![(Float, [n, n].into())] => vec![Floats(T::cholesky(&x[0], n))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        a_split_batch_passes: Cholesky, ["float32[2@X,2,2]"] => "
            (a: float32[2@X,2,2]) {
              b: float32[2@X,2,2] = cholesky a
              return b
            }
            tangents: (a: float32[2@X,2,2], b: float32[2@X,2,2]) {
              c: float32[2@X,2,2] = cholesky a
              d: float32[2@X,2,2] = transpose[permutation=[0,2,1]] b
              e: float32[2@X,2,2] = add b d
              f: float32[2@X,2,2] = mul e 0.5
              g: float32[2@X,2,2] = triangular_solve[left_side=true, lower=true, transpose_a=false, unit_diagonal=false] c f
              h: float32[2@X,2,2] = triangular_solve[left_side=false, lower=true, transpose_a=true, unit_diagonal=false] c g
              i: int32[2@X,2,2] = iota[dimension=1, ty=i32[2@X,2,2], mesh=Mesh(X: 2, Y: 2)]
              j: int32[2@X,2,2] = iota[dimension=2, ty=i32[2@X,2,2], mesh=Mesh(X: 2, Y: 2)]
              k: bool[2@X,2,2] = gt i j
              l: float32[2@X,2,2] = select k h 0.0
              m: int32[2@X,2,2] = iota[dimension=1, ty=i32[2@X,2,2], mesh=Mesh(X: 2, Y: 2)]
              n: int32[2@X,2,2] = iota[dimension=2, ty=i32[2@X,2,2], mesh=Mesh(X: 2, Y: 2)]
              o: bool[2@X,2,2] = eq m n
              p: float32[2@X,2,2] = select o h 0.0
              q: float32[2@X,2,2] = mul p 0.5
              r: float32[2@X,2,2] = add l q
              s: float32[2@X,2,2] = dot_general[contracting=([2], [1]), batch=([0], [0])] c r
              return c, s
            }
            cotangents: (a: float32[2@X,2,2], b: bool[2@X,2,2], c: bool[2@X,2,2], d: float32[2@X,2,2]) {
              e: float32[2@X,2,2] = dot_general[contracting=([1], [1]), batch=([0], [0])] d a
              f: float32[2@X,2,2] = transpose[permutation=[0,2,1]] e
              g: float32[2@X,2,2] = mul f 0.5
              h: float32[2@X,2,2] = select c g 0.0
              i: float32[2@X,2,2] = select b f 0.0
              j: float32[2@X,2,2] = add h i
              k: float32[2@X,2,2] = triangular_solve[left_side=false, lower=true, transpose_a=false, unit_diagonal=false] a j
              l: float32[2@X,2,2] = triangular_solve[left_side=true, lower=true, transpose_a=true, unit_diagonal=false] a k
              m: float32[2@X,2,2] = mul l 0.5
              n: float32[2@X,2,2] = transpose[permutation=[0,2,1]] m
              o: float32[2@X,2,2] = add m n
              return o
            }
        ";
    }
}
