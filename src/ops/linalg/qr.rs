//! Orthogonal factors.

use super::line::{Kind, Made, Matrix};
use super::{Part, of_matrices, sizes};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::program::{Forward, Primitive, Tangents};
use crate::types::Shape;
use atmesh_linalg::Real;

/// `qr{full_matrices}` of m×n: q, whose columns are orthonormal, and r, which is 0 below the diagonal: m×k and k×n, where k is m with
/// `full_matrices`, else the lesser of both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Qr {
    /// Whether q is square.
    pub full_matrices: bool,
}

impl Primitive for Qr {
    of_matrices!("qr");
    fn params(&self) -> String {
        format!("full_matrices={}", self.full_matrices)
    }
    /// With X = qᵀ ȧ r⁻¹ (of the first columns, as many as rows, where there are more) and the skew S that is X below the diagonal:
    /// q̇ = q(S − X) + ȧ r⁻¹, ṙ = qᵀ ȧ − S r.
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 2]) };
        let [m, n] = sizes(&t.ty);
        if self.full_matrices && m > n {
            let text = format!(
                "qr of {m}×{n} with full matrices has no derivative: the columns of q beyond {n} are free"
            );
            let fault = Fault::new(ErrorKind::Unsupported, text).help("leave them out: `.qr(false)`");
            return Err(b.refuse(fault, "qr", operands));
        }
        let (q, r) = (&outputs[0], &outputs[1]);
        let (mut first, mut square) = (t.clone(), r.clone());
        if n > m {
            let mut limit = t.ty.shape.to_vec();
            limit[t.ty.rank() - 1] = m;
            first = b.slice(&first, &vec![0; limit.len()], &limit)?;
            square = b.slice(&square, &vec![0; limit.len()], &limit)?;
        }
        let qt = b.turned(q)?;
        let by_r = b.by_upper(&square, &first)?;
        let x = b.matmul(&qt, &by_r)?;
        let below = b.part(&x, Part::BelowDiagonal)?;
        let above = b.turned(&below)?;
        let skew = b.sub(&below, &above)?;
        let (rest, moved) = (b.sub(&skew, &x)?, b.matmul(&qt, t)?);
        let (turned, scaled) = (b.matmul(q, &rest)?, b.matmul(&skew, r)?);
        Ok(vec![Some(b.add(&turned, &by_r)?), Some(b.sub(&moved, &scaled)?)])
    }
}

impl Matrix for Qr {
    fn square(&self) -> bool {
        false
    }
    fn made(&self, [m, n, _]: [usize; 3]) -> Vec<(Kind, Shape)> {
        let k = if self.full_matrices { m } else { m.min(n) };
        vec![(Kind::Float, [m, k].into()), (Kind::Float, [k, n].into())]
    }
    fn rate(&self) -> f64 {
        0.8
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [m, n, _]: [usize; 3]) -> Vec<Made<T>> {
        let (q, r) = T::qr(&x[0], m, n, self.full_matrices);
        vec![Made::Floats(q), Made::Floats(r)]
    }
}
