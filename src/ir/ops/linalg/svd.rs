//! The singular value decomposition.

use super::{MatrixRegion, matrix_op, matrix_op_rules, matrix_sizes};
use crate::core::{ErrorKind, Fault, Result};
use crate::ir::program::{Builder, JvpArgs, Primitive, Tangents, Value};
use std::sync::Arc;

/// The singular value decomposition of an m×n matrix: `svd{full_matrices}`.
///
/// The results are u, the singular values in descending order, and vᵀ. With `full_matrices`, u and
/// v are square. Otherwise they have min(m, n) columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Svd {
    /// If true, u and v are square.
    pub full_matrices: bool,
}

/// The singular values of [`Svd`], without vectors: `svdvals`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Svdvals;

impl Primitive for Svd {
    matrix_op_rules!("svd");
    fn params(&self) -> String {
        format!("full_matrices={}", self.full_matrices)
    }
    /// With M = uᵀ ȧ v, returns u̇ = u·(F∘(M s + s Mᵀ)), ṡ = diag(M), v̇ = v·(F∘(s M + Mᵀ s)).
    ///
    /// F_ij is 1/((s_j − s_i)(s_j + s_i)) and F_ii is 0. If the matrix is not square, the longer
    /// factor has a further term: the part of ȧ v s⁻¹ (or ȧᵀ u s⁻¹) outside its span.
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 3]) };
        let [m, n] = matrix_sizes(&t.ty);
        if self.full_matrices && m != n {
            let text = format!(
                "svd of {m}×{n} with full matrices has no derivative: the vectors beyond {} are free",
                m.min(n)
            );
            let fault = Fault::new(ErrorKind::Unsupported, text).help("leave it out: `.svd(false)`");
            return Err(b.error(fault, "svd", operands));
        }
        let (u, s, vt) = (&outputs[0], &outputs[1], &outputs[2]);
        let (ut, v) = (b.matrix_transpose(u)?, b.matrix_transpose(vt)?);
        let tv = b.matmul(t, &v)?;
        let ds = b.dot_over_rows(u, &tv)?;
        let inner = b.matmul(&ut, &tv)?;
        let (column, row) = (b.as_row(s)?, b.as_column(s)?);
        let (sum, apart) = (b.add(&column, &row)?, b.sub(&column, &row)?);
        let apart = b.mul(&sum, &apart)?;
        // the diagonal has no effect; ones avoid a division by 0
        let apart = b.with_unit_diagonal(&apart)?;
        let spun = |b: &mut Builder, by: &Value, of: &Value| -> Result<Value> {
            let scaled = b.mul(&inner, by)?;
            let turned = b.matrix_transpose(&scaled)?;
            let both = b.add(&scaled, &turned)?;
            let both = b.div(&both, &apart)?;
            let (below, above) = (
                b.keep_region(&both, MatrixRegion::BelowDiagonal)?,
                b.keep_region(&both, MatrixRegion::AboveDiagonal)?,
            );
            let off = b.add(&below, &above)?;
            b.matmul(of, &off)
        };
        let (mut du, mut dv) = (spun(b, &column, u)?, spun(b, &row, &v)?);
        if m > n {
            let within = b.matmul(u, &inner)?;
            let out = b.sub(&tv, &within)?;
            let out = b.div(&out, &column)?;
            du = b.add(&du, &out)?;
        }
        if n > m {
            let turned = b.matrix_transpose(t)?;
            let (tu, back) = (b.matmul(&turned, u)?, b.matrix_transpose(&inner)?);
            let within = b.matmul(&v, &back)?;
            let out = b.sub(&tu, &within)?;
            let out = b.div(&out, &column)?;
            dv = b.add(&dv, &out)?;
        }
        Ok(vec![Some(du), Some(ds), Some(b.matrix_transpose(&dv)?)])
    }
}

impl Primitive for Svdvals {
    matrix_op_rules!("svdvals");
    /// Returns the diagonal of uᵀ ȧ v.
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let factors = b.emit(Arc::new(Svd { full_matrices: false }), operands)?;
        let v = b.matrix_transpose(&factors[2])?;
        let moved = b.matmul(t, &v)?;
        Ok(vec![Some(b.dot_over_rows(&factors[0], &moved)?)])
    }
}

matrix_op! { Svd, 5.0, { const SQUARE: bool = false; }: |self, x, [m, n, _]|
    {
        let k = m.min(n);
        let (left, right) = if self.full_matrices { (m, n) } else { (k, k) };
        vec![(Float, [m, left].into()), (Float, [k].into()), (Float, [right, n].into())]
    } => {
        let (u, s, vt) = T::svd(&x[0], m, n, self.full_matrices);
        vec![Floats(u), Floats(s), Floats(vt)]
    }
}

matrix_op! { Svdvals, 1.5, { const SQUARE: bool = false; }: |self, x, [m, n, _]|
    vec![(Float, [m.min(n)].into())] => vec![Floats(T::svdvals(&x[0], m, n))]
}
