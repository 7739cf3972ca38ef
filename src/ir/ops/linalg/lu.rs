//! The LU factorization with partial pivoting.

use super::triangular::TriangularSolve;
use super::{MatrixRegion, matrix_op, matrix_op_rules, matrix_sizes};
use crate::core::Result;
use crate::ir::program::{Builder, JvpArgs, Primitive, Tangents, Value};
use std::sync::Arc;

/// The LU factorization of matrices with row pivoting: `lu`.
///
/// The results are:
/// - L and U in one matrix. L is below the diagonal, and its diagonal of ones is not stored.
/// - The pivots, int32: row i was swapped with row `pivots[i]`.
/// - The permutation, int32: the row of the operand that is row i of L·U.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lu;

impl Primitive for Lu {
    matrix_op_rules!("lu");
    /// With M = L⁻¹ ȧ U⁻¹, returns L̇ = L·tril(M, −1) and U̇ = triu(M)·U.
    ///
    /// A factor that is not square is extended with the identity matrix.
    fn jvp(&self, JvpArgs { builder: b, tangents, outputs, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 3]) };
        let [m, n] = matrix_sizes(&t.ty);
        let t = b.permute_rows(&outputs[2], t)?;
        let lu = &outputs[0];
        let below = b.keep_region(lu, MatrixRegion::BelowDiagonal)?;
        let (l, u) = (b.resize_matrices(&below, m, m)?, b.keep_region(lu, MatrixRegion::Upper)?);
        let l = b.with_unit_diagonal(&l)?;
        let mut u = b.resize_matrices(&u, n, n)?;
        if n > m {
            u = b.unit_diagonal_from_row(&u, m)?;
        }
        let by_l = TriangularSolve { left_side: true, lower: true, transpose_a: false, unit_diagonal: true };
        let inner = b.emit1(Arc::new(by_l), &[l.clone(), t])?;
        let inner = b.solve_upper(&u, &inner)?;
        let (below, rest) = (
            b.keep_region(&inner, MatrixRegion::BelowDiagonal)?,
            b.keep_region(&inner, MatrixRegion::Upper)?,
        );
        let (dl, du) = (b.matmul(&l, &below)?, b.matmul(&rest, &u)?);
        Ok(vec![Some(b.add(&dl, &du)?), None, None])
    }
}

impl Builder {
    /// Returns the rows of matrices in the order given by `rows`.
    fn permute_rows(&mut self, rows: &Value, x: &Value) -> Result<Value> {
        let rows = self.as_column(rows)?;
        let like = crate::core::types::ArrayType { dtype: rows.ty.dtype, ..x.ty.clone() };
        let rows = self.broadcast_like(&rows, &like)?;
        self.pick_along(&rows, x, x.ty.rank() - 2)
    }
    /// Truncates matrices to `m`×`n`, or extends them with zeros.
    fn resize_matrices(&mut self, x: &Value, m: usize, n: usize) -> Result<Value> {
        let [rows, columns] = matrix_sizes(&x.ty);
        let (rank, mut high) = (x.ty.rank(), vec![0; x.ty.rank()]);
        high[rank - 2] = m as i64 - rows as i64;
        high[rank - 1] = n as i64 - columns as i64;
        if high.iter().all(|n| *n == 0) { Ok(x.clone()) } else { self.pad(x, &vec![0; rank], &high) }
    }
    /// Returns the matrices with 1 on the diagonal from row `m` on.
    fn unit_diagonal_from_row(&mut self, x: &Value, m: usize) -> Result<Value> {
        let all = self.with_unit_diagonal(x)?;
        let [n, _] = matrix_sizes(&x.ty);
        let kept = self.resize_matrices(x, m, n)?;
        let rank = x.ty.rank();
        let (mut start, limit) = (vec![0; rank], x.ty.shape.to_vec());
        start[rank - 2] = m;
        let new = self.slice(&all, &start, &limit)?;
        self.concatenate(&[kept, new], rank - 2)
    }
}

matrix_op! { Lu, 0.2, { const SQUARE: bool = false; }: |self, x, [m, n, _]|
    vec![(Float, [m, n].into()), (Int, [m.min(n)].into()), (Int, [m].into())] => {
        let lu = T::lu(&x[0], m, n);
        vec![Floats(lu.factors), Ints(lu.pivots), Ints(lu.rows)]
    }
}
