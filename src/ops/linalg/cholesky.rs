//! Cholesky factors.

use super::line::{Kind, Made, Matrix};
use super::{Part, of_matrices};
use crate::diagnostic::Result;
use crate::program::{Familiar, Forward, Primitive, Tangents};
use crate::types::{ArrayType, Shape};
use atmesh_linalg::Real;

/// `cholesky`: L of (a + aᵀ)/2 = LLᵀ, zeros above the diagonal. Of matrices that are not positive definite it is NaN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cholesky;

impl Primitive for Cholesky {
    of_matrices!("cholesky");
    fn params(&self) -> String {
        String::new()
    }
    fn familiar(&self, _: &[ArrayType]) -> Option<Familiar> {
        Some(Familiar::Cholesky)
    }
    /// L · the lower triangle of L⁻¹ ȧ L⁻ᵀ, whose diagonal counts half.
    fn jvp(&self, Forward { b, tangents, outputs, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let l = &outputs[0];
        let t = b.symmetric(t)?;
        let (left, right) = (b.by_lower(l, &t, false)?, true);
        let both = b.by_lower(l, &left, right)?;
        let (below, on) = (b.part(&both, Part::BelowDiagonal)?, b.part(&both, Part::Diagonal)?);
        let on = b.times(&on, 0.5)?;
        let inner = b.add(&below, &on)?;
        Ok(vec![Some(b.matmul(l, &inner)?)])
    }
}

impl Matrix for Cholesky {
    fn made(&self, [n, ..]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, [n, n].into())]
    }
    fn rate(&self) -> f64 {
        0.1
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [n, ..]: [usize; 3]) -> Vec<Made<T>> {
        vec![Made::Floats(T::cholesky(&x[0], n))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

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
