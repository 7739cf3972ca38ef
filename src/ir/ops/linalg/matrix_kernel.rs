//! The row kernel that all matrix operations share.
//!
//! A row of an operand is one matrix, with two loops. The kernel copies each matrix, calls the
//! operation, and writes the results.

use super::compute::{ComputeMatrix, run_rows};
use super::{ResultKind, ResultKinds, matrix_sizes, missing_feature, whole_matrix_factors};
use crate::core::{ArrayType, DType, Scalar, Shape};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, Factors, LoopNest, Primitive, RowInput, RowKernel,
    RowKernelCall, RowOutputs, Source, StridedRange,
};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// A primitive that maps matrices to matrices, vectors or scalars.
///
/// Sizes are `[m, n, k]`: the first operand has `m`×`n` matrices, and `k` is the size of that
/// dimension of the second operand's matrices that is not shared.
pub(super) trait MatrixOp: Primitive + ComputeMatrix + Clone + Eq + Hash + fmt::Debug {
    /// The number of operands.
    const NUM_OPERANDS: usize = 1;
    /// True if the first operand's matrices must be square.
    const SQUARE: bool = true;
    /// The time of one multiplication, in nanoseconds.
    ///
    /// An operation on a matrix of e elements is assumed to take e·√e multiplications.
    const NS_PER_MUL: f64;
    /// Returns the dimension of the second operand's matrices whose size the first operand shares.
    fn shared_dim(&self) -> usize {
        0
    }
    /// Returns the element kinds and shapes of the results for one matrix.
    fn result_kinds(&self, sizes: [usize; 3]) -> ResultKinds;
    /// Returns the factors of the operation.
    fn loops(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        whole_matrix_factors(operands, results)
    }
}

/// Returns the loop nest of each result.
///
/// The loops within a row are the rows and columns of the first operand's matrices, then the
/// dimension of the second operand's matrices that is not shared.
pub(super) fn matrix_loop_nests<P: MatrixOp>(
    prim: &P,
    operands: &[ArrayType],
    results: &[ArrayType],
) -> Vec<LoopNest> {
    loop_nests_of(Arc::new(MatrixRowKernel(prim.clone())), prim.shared_dim(), operands, results)
}

/// Computes [`matrix_loop_nests`] of the operation that `row_kernel` runs.
fn loop_nests_of(
    row_kernel: Arc<dyn RowKernel>,
    shared_dim: usize,
    operands: &[ArrayType],
    results: &[ArrayType],
) -> Vec<LoopNest> {
    let batch = operands[0].rank() - 2;
    let one = |(result, y): (usize, &ArrayType)| {
        let rank = y.rank();
        let mut extents = y.shape.to_vec();
        extents.extend(matrix_sizes(&operands[0]));
        let mut matrices = vec![[rank, rank + 1]];
        if let [_, b] = operands {
            extents.push(matrix_sizes(b)[1 - shared_dim]);
            matrices.push(if shared_dim == 0 { [rank, rank + 2] } else { [rank + 2, rank] });
        }
        let read = |(k, ty): (usize, &ArrayType)| {
            let map = (0..batch).chain(matrices[k]).map(|l| AffineExpr::linear(0, l, 1)).collect();
            let piece =
                AccessPiece { source: Source::Value(k), ranges: StridedRange::full_box(&extents), map };
            Access { dtype: ty.dtype, pieces: vec![piece], fill: Scalar::zero(ty.dtype) }
        };
        let reads = operands.iter().enumerate().map(read).collect();
        let body = Compute::RowKernel(RowKernelCall {
            kernel: row_kernel.clone(),
            result_index: result,
            row_loops: (batch..rank).collect(),
        });
        LoopNest { extents, rank, dtype: y.dtype, accesses: reads, compute: body }
    };
    results.iter().enumerate().map(one).collect()
}

/// The row kernel of a matrix operation.
#[derive(Debug)]
struct MatrixRowKernel<P>(P);

impl<P: MatrixOp> MatrixRowKernel<P> {
    /// Returns the sizes `[m, n, k]` from the sizes of the loops within a row.
    fn sizes_from_rows(&self, along: &[usize]) -> Option<[usize; 3]> {
        match (P::NUM_OPERANDS, along) {
            (1, [m, n]) => Some([*m, *n, 0]),
            (2, [m, n, k]) => Some([*m, *n, *k]),
            _ => None,
        }
    }
}

impl<P: MatrixOp> RowKernel for MatrixRowKernel<P> {
    fn key(&self) -> String {
        format!("{} {}", self.0.name(), self.0.params())
    }
    fn cost(&self, elements: usize) -> f64 {
        let n = elements as f64;
        let products = if P::NUM_OPERANDS == 1 { n * n.sqrt() } else { n + n.cbrt().powi(2) };
        500.0 + P::NS_PER_MUL * products
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        if cfg!(not(feature = "linalg")) {
            return Err(missing_feature(self.0.name()).message);
        }
        let wrong = || format!("{} does not take such matrices", self.0.name());
        let (dtype, along) = operands.first().ok_or_else(wrong)?;
        let sizes = self.sizes_from_rows(along).ok_or_else(wrong)?;
        let square = !P::SQUARE || sizes[0] == sizes[1];
        let alike = operands.iter().all(|o| o.0 == *dtype);
        if operands.len() != P::NUM_OPERANDS || !dtype.is_float() || !alike || !square {
            return Err(wrong());
        }
        let one = |(kind, shape)| (if kind == ResultKind::Int { DType::I32 } else { *dtype }, shape);
        Ok(self.0.result_kinds(sizes).into_iter().map(one).collect())
    }
    /// Runs the operation on all matrices.
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        let loops = P::NUM_OPERANDS + 1;
        let along = &ins[0].shape()[ins[0].shape().len() - loops..];
        let Some(sizes) = self.sizes_from_rows(along) else { return };
        if loops > 2 && along.contains(&0) {
            return;
        }
        let operands = (P::NUM_OPERANDS, self.0.shared_dim());
        run_rows(&self.0, sizes, operands, self.0.result_kinds(sizes), ins, outs);
    }
}
