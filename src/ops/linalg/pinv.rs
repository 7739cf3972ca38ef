//! Inverses of matrices that may have none.

use super::line::{Kind, Made, Matrix};
use super::of_matrices;
use crate::diagnostic::Result;
use crate::program::{Forward, Primitive, Tangents};
use crate::types::{Scalar, Shape};
use atmesh_linalg::Real;

/// `pinv{tolerance}` of m×n: the n×m matrix that is the inverse where there is one, after Moore and Penrose; singular values up to
/// `tolerance` times the greatest count as 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pinv {
    /// What counts as 0, against the greatest singular value.
    pub tolerance: Scalar,
}

impl Primitive for Pinv {
    of_matrices!("pinv");
    fn params(&self) -> String {
        format!("tolerance={}", self.tolerance)
    }
    /// Where the rank stays as it is: −p ȧ p + p pᵀ (ȧᵀ − ȧᵀ a p) + (ȧᵀ − p a ȧᵀ) pᵀ p.
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let (a, p) = (&operands[0], &outputs[0]);
        let (pt, tt) = (b.turned(p)?, b.turned(t)?);
        let pa = b.matmul(p, a)?;
        let ap = b.matmul(a, p)?;
        let moved = b.matmul(p, t)?;
        let moved = b.matmul(&moved, p)?;
        let within = b.matmul(&tt, &ap)?;
        let right = b.sub(&tt, &within)?;
        let (ppt, ptp) = (b.matmul(p, &pt)?, b.matmul(&pt, p)?);
        let right = b.matmul(&ppt, &right)?;
        let within = b.matmul(&pa, &tt)?;
        let left = b.sub(&tt, &within)?;
        let left = b.matmul(&left, &ptp)?;
        let sum = b.add(&right, &left)?;
        Ok(vec![Some(b.sub(&sum, &moved)?)])
    }
}

impl Matrix for Pinv {
    fn square(&self) -> bool {
        false
    }
    fn made(&self, [m, n, _]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, [n, m].into())]
    }
    fn rate(&self) -> f64 {
        6.0
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [m, n, _]: [usize; 3]) -> Vec<Made<T>> {
        vec![Made::Floats(T::pinv(&x[0], m, n, self.tolerance.to_f64()))]
    }
}
