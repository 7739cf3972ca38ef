//! Eigenvalues and eigenvectors of symmetric matrices.

use super::{MatrixRegion, matrix_op, matrix_op_rules};
use crate::core::Result;
use crate::ir::program::{JvpArgs, Primitive, Tangents};
use std::sync::Arc;

/// The eigenvalues and eigenvectors of (a + aᵀ)/2: `eigh`.
///
/// The eigenvalues are in ascending order. The eigenvectors are the columns of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Eigh;

/// The eigenvalues of [`Eigh`], without eigenvectors: `eigvalsh`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Eigvalsh;

impl Primitive for Eigh {
    matrix_op_rules!("eigh");
    /// With M = vᵀ ȧ v, returns ẇ = diag(M) and v̇ = v·(F∘M), where F_ij = 1/(w_j − w_i), F_ii = 0.
    fn jvp(&self, JvpArgs { builder: b, tangents, outputs, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 2]) };
        let (w, v) = (&outputs[0], &outputs[1]);
        let t = b.symmetrize(t)?;
        let moved = b.matmul(&t, v)?;
        let dw = b.dot_over_rows(v, &moved)?;
        let vt = b.matrix_transpose(v)?;
        let m = b.matmul(&vt, &moved)?;
        let (columns, rows) = (b.as_row(w)?, b.as_column(w)?);
        let apart = b.sub(&columns, &rows)?;
        let apart = b.with_unit_diagonal(&apart)?;
        let m = b.div(&m, &apart)?;
        let (below, above) = (
            b.keep_region(&m, MatrixRegion::BelowDiagonal)?,
            b.keep_region(&m, MatrixRegion::AboveDiagonal)?,
        );
        let off = b.add(&below, &above)?;
        Ok(vec![Some(dw), Some(b.matmul(v, &off)?)])
    }
}

impl Primitive for Eigvalsh {
    matrix_op_rules!("eigvalsh");
    /// Returns the eigenvalue tangents of [`Eigh`].
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let v = b.emit(Arc::new(Eigh), operands)?.swap_remove(1);
        let moved = b.matmul(t, &v)?;
        Ok(vec![Some(b.dot_over_rows(&v, &moved)?)])
    }
}

matrix_op! { Eigh, 3.0: |self, x, [n, ..]|
    vec![(Float, [n].into()), (Float, [n, n].into())] => {
        let (w, v) = T::eigh(&x[0], n);
        vec![Floats(w), Floats(v)]
    }
}

matrix_op! { Eigvalsh, 1.0: |self, x, [n, ..]|
    vec![(Float, [n].into())] => vec![Floats(T::eigvalsh(&x[0], n))]
}
