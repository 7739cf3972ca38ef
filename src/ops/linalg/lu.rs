//! Factors with pivots.

use super::line::{Kind, Made, Matrix};
use super::triangular::TriangularSolve;
use super::{Part, of_matrices, sizes};
use crate::diagnostic::Result;
use crate::program::{Builder, Forward, Primitive, Tangents, Value};
use crate::types::Shape;
use atmesh_linalg::Real;
use std::sync::Arc;

/// `lu`: L below the diagonal, where its own elements are 1, and U, in one matrix; pivots, int32 (row i was exchanged with row
/// `pivots[i]`); and which row of the operand is row i of LU, int32.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lu;

impl Primitive for Lu {
    of_matrices!("lu");
    fn params(&self) -> String {
        String::new()
    }
    /// L̇ = L · what is below the diagonal of L⁻¹ ȧ U⁻¹, U̇ = the rest of it · U. Where one of them is no square it is completed with the unit
    /// matrix.
    fn jvp(&self, Forward { b, tangents, outputs, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 3]) };
        let [m, n] = sizes(&t.ty);
        let t = b.in_order(&outputs[2], t)?;
        let lu = &outputs[0];
        let below = b.part(lu, Part::BelowDiagonal)?;
        let (l, u) = (b.sized(&below, m, m)?, b.part(lu, Part::Upper)?);
        let l = b.with_ones(&l)?;
        let mut u = b.sized(&u, n, n)?;
        if n > m {
            u = b.ones_from(&u, m)?;
        }
        let by_l = TriangularSolve { left_side: true, lower: true, transpose_a: false, unit_diagonal: true };
        let inner = b.emit1(Arc::new(by_l), &[l.clone(), t])?;
        let inner = b.by_upper(&u, &inner)?;
        let (below, rest) = (b.part(&inner, Part::BelowDiagonal)?, b.part(&inner, Part::Upper)?);
        let (dl, du) = (b.matmul(&l, &below)?, b.matmul(&rest, &u)?);
        Ok(vec![Some(b.add(&dl, &du)?), None, None])
    }
}

impl Builder {
    /// The rows of matrices in this order.
    fn in_order(&mut self, rows: &Value, x: &Value) -> Result<Value> {
        let rows = self.rows_of(rows)?;
        let like = crate::types::ArrayType { dtype: rows.ty.dtype, ..x.ty.clone() };
        let rows = self.broadcast_like(&rows, &like)?;
        self.pick_along(&rows, x, x.ty.rank() - 2)
    }
    /// The first rows and columns of matrices, or zeros behind them.
    fn sized(&mut self, x: &Value, m: usize, n: usize) -> Result<Value> {
        let [rows, columns] = sizes(&x.ty);
        let (rank, mut high) = (x.ty.rank(), vec![0; x.ty.rank()]);
        high[rank - 2] = m as i64 - rows as i64;
        high[rank - 1] = n as i64 - columns as i64;
        match high.iter().all(|n| *n == 0) {
            true => Ok(x.clone()),
            false => self.pad(x, &vec![0; rank], &high),
        }
    }
    /// The matrices with 1 on the diagonal from row m on.
    fn ones_from(&mut self, x: &Value, m: usize) -> Result<Value> {
        let all = self.with_ones(x)?;
        let [n, _] = sizes(&x.ty);
        let kept = self.sized(x, m, n)?;
        let rank = x.ty.rank();
        let (mut start, limit) = (vec![0; rank], x.ty.shape.to_vec());
        start[rank - 2] = m;
        let new = self.slice(&all, &start, &limit)?;
        self.concatenate(&[kept, new], rank - 2)
    }
}

impl Matrix for Lu {
    fn square(&self) -> bool {
        false
    }
    fn made(&self, [m, n, _]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, [m, n].into()), (Kind::Int, [m.min(n)].into()), (Kind::Int, [m].into())]
    }
    fn rate(&self) -> f64 {
        0.2
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [m, n, _]: [usize; 3]) -> Vec<Made<T>> {
        let lu = T::lu(&x[0], m, n);
        vec![Made::Floats(lu.factors), Made::Ints(lu.pivots), Made::Ints(lu.rows)]
    }
}
