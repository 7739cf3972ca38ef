//! The QR factorization.

use super::{MatrixRegion, matrix_op, matrix_op_rules, matrix_sizes};
use crate::core::{ErrorKind, Fault, Result};
use crate::ir::program::{JvpArgs, Primitive, Tangents};

/// The QR factorization of an m×n matrix: `qr{full_matrices}`.
///
/// The results are q (m×k), with orthonormal columns, and the upper triangular r (k×n). With
/// `full_matrices`, k is m; otherwise k is min(m, n).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Qr {
    /// If true, q is square.
    pub full_matrices: bool,
}

impl Primitive for Qr {
    matrix_op_rules!("qr");
    fn params(&self) -> String {
        format!("full_matrices={}", self.full_matrices)
    }
    /// With X = qᵀ ȧ r⁻¹, returns q̇ = q(S − X) + ȧ r⁻¹ and ṙ = qᵀ ȧ − S r.
    ///
    /// S is the skew-symmetric matrix that equals X below the diagonal. If there are more columns
    /// than rows, X is computed from the first m columns.
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 2]) };
        let [m, n] = matrix_sizes(&t.ty);
        if self.full_matrices && m > n {
            let text = format!(
                "qr of {m}×{n} with full matrices has no derivative: the columns of q beyond {n} are free"
            );
            let fault = Fault::new(ErrorKind::Unsupported, text).help("leave them out: `.qr(false)`");
            return Err(b.error(fault, "qr", operands));
        }
        let (q, r) = (&outputs[0], &outputs[1]);
        let (mut first, mut square) = (t.clone(), r.clone());
        if n > m {
            let mut limit = t.ty.shape.to_vec();
            limit[t.ty.rank() - 1] = m;
            first = b.slice(&first, &vec![0; limit.len()], &limit)?;
            square = b.slice(&square, &vec![0; limit.len()], &limit)?;
        }
        let qt = b.matrix_transpose(q)?;
        let by_r = b.solve_upper(&square, &first)?;
        let x = b.matmul(&qt, &by_r)?;
        let below = b.keep_region(&x, MatrixRegion::BelowDiagonal)?;
        let above = b.matrix_transpose(&below)?;
        let skew = b.sub(&below, &above)?;
        let (rest, moved) = (b.sub(&skew, &x)?, b.matmul(&qt, t)?);
        let (turned, scaled) = (b.matmul(q, &rest)?, b.matmul(&skew, r)?);
        Ok(vec![Some(b.add(&turned, &by_r)?), Some(b.sub(&moved, &scaled)?)])
    }
}

matrix_op! { Qr, 0.8, { const SQUARE: bool = false; }: |self, x, [m, n, _]|
    {
        let k = if self.full_matrices { m } else { m.min(n) };
        vec![(Float, [m, k].into()), (Float, [k, n].into())]
    } => {
        let (q, r) = T::qr(&x[0], m, n, self.full_matrices);
        vec![Floats(q), Floats(r)]
    }
}
