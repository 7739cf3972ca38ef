//! Writes `ragged_dot`, which StableHLO lacks: products with all groups, of which a mask selects.
//!
//! Each row is multiplied with the matrix of each group, as XLA does where it has no kernel for
//! ragged products. The mask selects before the sum over groups, so infinite elements of other
//! groups have no effect.

use super::FaultResult;
use super::writer::{Ssa, Writer};
use crate::core::{DType, Precision, Scalar};
use crate::ir::program::{Access, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp};

/// The dimension groups of the operands of a `ragged_dot`.
#[derive(Clone, Copy)]
pub(super) struct RaggedDims {
    /// The number of batch dimensions.
    pub(super) batch: usize,
    /// The number of dimensions of the rows.
    pub(super) rows: usize,
}

impl Writer {
    /// Writes the product of each row with the matrix of its group.
    pub(super) fn ragged_dot_per_row(
        &mut self,
        [x, mask, y]: [&Ssa; 3],
        dims: RaggedDims,
        precision: Precision,
    ) -> FaultResult<Ssa> {
        let RaggedDims { batch, rows } = dims;
        let lead = batch + rows;
        let (groups, k, n) = (y.shape[batch], y.shape[batch + 1], y.shape[batch + 2]);
        // loops of the products: batch, rows, n, g, then k
        let extents = [&x.shape[..lead], &[n, groups, k]].concat();
        let of_y = (0..batch).chain([lead + 1, lead + 2, lead]);
        let accesses = vec![
            access(0, x.dtype, &extents, (0..lead).chain([lead + 2])),
            access(1, y.dtype, &extents, of_y),
        ];
        let all = self.contraction(extents, lead + 2, accesses, precision, [x, y])?;
        let extents = [&x.shape[..lead], &[n, groups]].concat();
        let accesses = vec![
            access(0, DType::Bool, &extents, (0..lead).chain([lead + 1])),
            access(1, x.dtype, &extents, 0..lead + 2),
        ];
        let (dtype, rank, code) = (x.dtype, lead + 1, select_code(x.dtype));
        let nest = LoopNest::reduce(extents, rank, dtype, accesses, Reducer::Add, code);
        self.loop_nest(&nest, &[mask.clone(), all])
    }
    /// Writes the sum over the rows of each group.
    pub(super) fn ragged_dot_per_group(
        &mut self,
        [x, mask, y]: [&Ssa; 3],
        dims: RaggedDims,
        precision: Precision,
    ) -> FaultResult<Ssa> {
        let RaggedDims { batch, rows } = dims;
        let lead = batch + rows;
        let groups = mask.shape[lead];
        let mut sides = Vec::new();
        for side in [x, y] {
            let extents = [&side.shape[..lead], &[groups, side.shape[lead]]].concat();
            let accesses = vec![
                access(0, DType::Bool, &extents, 0..lead + 1),
                access(1, side.dtype, &extents, (0..lead).chain([lead + 1])),
            ];
            let nest = LoopNest::map(extents, side.dtype, accesses, select_code(side.dtype));
            sides.push(self.loop_nest(&nest, &[mask.clone(), side.clone()])?);
        }
        // loops: batch, g, k, n, then rows
        let extents =
            [&x.shape[..batch], &[groups, x.shape[lead], y.shape[lead]], &x.shape[batch..lead]].concat();
        let of = |last: usize| (0..batch).chain(batch + 3..lead + 3).chain([batch, last]);
        let accesses =
            vec![access(0, x.dtype, &extents, of(batch + 1)), access(1, y.dtype, &extents, of(batch + 2))];
        self.contraction(extents, batch + 3, accesses, precision, [&sides[0], &sides[1]])
    }
    /// Writes a product that is summed over the loops from `rank` on.
    fn contraction(
        &mut self,
        extents: Vec<usize>,
        rank: usize,
        accesses: Vec<Access>,
        precision: Precision,
        operands: [&Ssa; 2],
    ) -> FaultResult<Ssa> {
        let dtype = operands[0].dtype;
        let compute = Compute::Contract { accum_dtype: super::writer::accum_dtype(dtype), precision };
        let nest = LoopNest { extents, rank, dtype, accesses, compute };
        self.loop_nest(&nest, &operands.map(Ssa::clone))
    }
}

/// Returns the access of an operand whose dimensions run over these loops.
fn access(operand: usize, dtype: DType, extents: &[usize], loops: impl Iterator<Item = usize>) -> Access {
    Access::from_loops(operand, dtype, extents, &loops.map(Some).collect::<Vec<_>>())
}

/// Returns code that is access 1 where access 0 is true, and 0 elsewhere.
fn select_code(dtype: DType) -> ScalarCode {
    let zero = ScalarArg::Const(Scalar::zero(dtype));
    ScalarCode::single(ScalarOp::Select, dtype, dtype, &[ScalarArg::Access(0), ScalarArg::Access(1), zero])
}
