//! Singular values and vectors.

use super::line::{Kind, Made, Matrix};
use super::{Part, of_matrices, sizes};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::program::{Builder, Forward, Primitive, Tangents, Value};
use crate::types::Shape;
use atmesh_linalg::Real;
use std::sync::Arc;

/// `svd{full_matrices}` of m×n: u, the singular values, falling, and vᵀ; u and v are square with `full_matrices`, else they have as many
/// columns as there are singular values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Svd {
    /// Whether u and v are square.
    pub full_matrices: bool,
}

/// `svdvals`: the singular values of [`Svd`] alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Svdvals;

impl Primitive for Svd {
    of_matrices!("svd");
    fn params(&self) -> String {
        format!("full_matrices={}", self.full_matrices)
    }
    /// With M = uᵀ ȧ v and F = 1/((s_j − s_i)(s_j + s_i)): u̇ = u·(F·(M s + s Mᵀ)), v̇ = v·(F·(s M + Mᵀ s)), and of the longer ones what ȧ
    /// moves out of their span, divided by s.
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 3]) };
        let [m, n] = sizes(&t.ty);
        if self.full_matrices && m != n {
            let text = format!(
                "svd of {m}×{n} with full matrices has no derivative: what is beyond {} is free",
                m.min(n)
            );
            let fault = Fault::new(ErrorKind::Unsupported, text).help("leave it out: `.svd(false)`");
            return Err(b.refuse(fault, "svd", operands));
        }
        let (u, s, vt) = (&outputs[0], &outputs[1], &outputs[2]);
        let (ut, v) = (b.turned(u)?, b.turned(vt)?);
        let tv = b.matmul(t, &v)?;
        let ds = b.sum_of_rows(u, &tv)?;
        let inner = b.matmul(&ut, &tv)?;
        let (column, row) = (b.columns_of(s)?, b.rows_of(s)?);
        let (sum, apart) = (b.add(&column, &row)?, b.sub(&column, &row)?);
        let apart = b.mul(&sum, &apart)?;
        // the diagonal counts for nothing
        let apart = b.with_ones(&apart)?;
        let spun = |b: &mut Builder, by: &Value, of: &Value| -> Result<Value> {
            let scaled = b.mul(&inner, by)?;
            let turned = b.turned(&scaled)?;
            let both = b.add(&scaled, &turned)?;
            let both = b.div(&both, &apart)?;
            let (below, above) = (b.part(&both, Part::BelowDiagonal)?, b.part(&both, Part::AboveDiagonal)?);
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
            let turned = b.turned(t)?;
            let (tu, back) = (b.matmul(&turned, u)?, b.turned(&inner)?);
            let within = b.matmul(&v, &back)?;
            let out = b.sub(&tu, &within)?;
            let out = b.div(&out, &column)?;
            dv = b.add(&dv, &out)?;
        }
        Ok(vec![Some(du), Some(ds), Some(b.turned(&dv)?)])
    }
}

impl Primitive for Svdvals {
    of_matrices!("svdvals");
    fn params(&self) -> String {
        String::new()
    }
    /// The diagonal of uᵀ ȧ v.
    fn jvp(&self, Forward { b, operands, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let parts = b.emit(Arc::new(Svd { full_matrices: false }), operands)?;
        let v = b.turned(&parts[2])?;
        let moved = b.matmul(t, &v)?;
        Ok(vec![Some(b.sum_of_rows(&parts[0], &moved)?)])
    }
}

impl Matrix for Svd {
    fn square(&self) -> bool {
        false
    }
    fn made(&self, [m, n, _]: [usize; 3]) -> Vec<(Kind, Shape)> {
        let k = m.min(n);
        let (left, right) = if self.full_matrices { (m, n) } else { (k, k) };
        vec![(Kind::Float, [m, left].into()), (Kind::Float, [k].into()), (Kind::Float, [right, n].into())]
    }
    fn rate(&self) -> f64 {
        5.0
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [m, n, _]: [usize; 3]) -> Vec<Made<T>> {
        let (u, s, vt) = T::svd(&x[0], m, n, self.full_matrices);
        vec![Made::Floats(u), Made::Floats(s), Made::Floats(vt)]
    }
}

impl Matrix for Svdvals {
    fn square(&self) -> bool {
        false
    }
    fn made(&self, [m, n, _]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, [m.min(n)].into())]
    }
    fn rate(&self) -> f64 {
        1.5
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [m, n, _]: [usize; 3]) -> Vec<Made<T>> {
        vec![Made::Floats(T::svdvals(&x[0], m, n))]
    }
}
