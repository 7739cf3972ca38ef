//! The pseudoinverse.

use super::{matrix_op, matrix_op_rules};
use crate::core::{Result, Scalar};
use crate::ir::program::{JvpArgs, Primitive, Tangents};

/// The Moore-Penrose inverse, which is n×m for an m×n matrix: `pinv{tolerance}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pinv {
    /// The threshold for singular values, relative to the largest one.
    /// Singular values below it count as 0.
    pub tolerance: Scalar,
}

impl Primitive for Pinv {
    matrix_op_rules!("pinv");
    fn params(&self) -> String {
        format!("tolerance={}", self.tolerance)
    }
    /// Returns −p ȧ p + p pᵀ (ȧᵀ − ȧᵀ a p) + (ȧᵀ − p a ȧᵀ) pᵀ p, which holds for constant rank.
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let (a, p) = (&operands[0], &outputs[0]);
        let (pt, tt) = (b.matrix_transpose(p)?, b.matrix_transpose(t)?);
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

matrix_op! { Pinv, 6.0, { const SQUARE: bool = false; }: |self, x, [m, n, _]|
    vec![(Float, [n, m].into())] => vec![Floats(T::pinv(&x[0], m, n, self.tolerance.to_f64()))]
}
