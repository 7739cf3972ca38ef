//! Eigenvalues and eigenvectors of symmetric matrices.

use super::line::{Kind, Made, Matrix};
use super::{Part, of_matrices};
use crate::diagnostic::Result;
use crate::program::{Forward, Primitive, Tangents};
use crate::types::Shape;
use atmesh_linalg::Real;
use std::sync::Arc;

/// `eigh`: the eigenvalues of (a + aᵀ)/2, rising, and eigenvectors in the columns of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Eigh;

/// `eigvalsh`: the eigenvalues of [`Eigh`] alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Eigvalsh;

impl Primitive for Eigh {
    of_matrices!("eigh");
    fn params(&self) -> String {
        String::new()
    }
    /// ẇ is the diagonal of M = vᵀ ȧ v; v̇ = v · (M with each element divided by the difference of its eigenvalues).
    fn jvp(&self, Forward { b, tangents, outputs, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 2]) };
        let (w, v) = (&outputs[0], &outputs[1]);
        let t = b.symmetric(t)?;
        let moved = b.matmul(&t, v)?;
        let dw = b.sum_of_rows(v, &moved)?;
        let vt = b.turned(v)?;
        let m = b.matmul(&vt, &moved)?;
        let (columns, rows) = (b.columns_of(w)?, b.rows_of(w)?);
        let apart = b.sub(&columns, &rows)?;
        let apart = b.with_ones(&apart)?;
        let m = b.div(&m, &apart)?;
        let (below, above) = (b.part(&m, Part::BelowDiagonal)?, b.part(&m, Part::AboveDiagonal)?);
        let off = b.add(&below, &above)?;
        Ok(vec![Some(dw), Some(b.matmul(v, &off)?)])
    }
}

impl Primitive for Eigvalsh {
    of_matrices!("eigvalsh");
    fn params(&self) -> String {
        String::new()
    }
    /// As of [`Eigh`].
    fn jvp(&self, Forward { b, operands, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let v = b.emit(Arc::new(Eigh), operands)?.swap_remove(1);
        let moved = b.matmul(t, &v)?;
        Ok(vec![Some(b.sum_of_rows(&v, &moved)?)])
    }
}

impl Matrix for Eigh {
    fn made(&self, [n, ..]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, [n].into()), (Kind::Float, [n, n].into())]
    }
    fn rate(&self) -> f64 {
        3.0
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [n, ..]: [usize; 3]) -> Vec<Made<T>> {
        let (w, v) = T::eigh(&x[0], n);
        vec![Made::Floats(w), Made::Floats(v)]
    }
}

impl Matrix for Eigvalsh {
    fn made(&self, [n, ..]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, [n].into())]
    }
    fn rate(&self) -> f64 {
        1.0
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [n, ..]: [usize; 3]) -> Vec<Made<T>> {
        vec![Made::Floats(T::eigvalsh(&x[0], n))]
    }
}
