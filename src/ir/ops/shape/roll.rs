//! The primitive `roll`, which shifts elements cyclically.

use crate::core::{ArrayType, Fault, Result, Scalar, Shape};
use crate::ir::ops::dim_check::{access_piece, check_dims, shape_fault, view};
use crate::ir::ops::structural::StructuralOp;
use crate::ir::program::{
    AffineExpr, Builder, Dim, DimMap, Factors, LoopNest, Priority, StridedRange, Value, VmapArgs,
};
use std::sync::Arc;

/// A cyclic shift along a dimension: the element at `i` moves to `i + shift`, modulo the size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Roll {
    /// The number of positions, below the size of the dimension.
    pub shift: usize,
    /// The dimension.
    pub dimension: usize,
}

impl StructuralOp for Roll {
    const NAME: &'static str = "roll";
    const PRIORITY: Priority = Priority::Plain;
    fn format_params(&self) -> String {
        format!("shift={}, dim={}", self.shift, self.dimension)
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        check_dims("dimension", &[self.dimension], x.rank())?;
        let n = x.shape[self.dimension];
        if self.shift >= n.max(1) {
            let message =
                format!("a shift by {} along dimension {}, which has size {n}", self.shift, self.dimension);
            let fault = shape_fault(message).help("reduce the shift modulo the size");
            return Err(fault.highlight_dim(0, self.dimension));
        }
        Ok(x.shape.clone())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let shifted = DimMap::Affine { scale: 1, offset: -(self.shift as i64) };
        let map = |d: usize| if d == self.dimension { shifted } else { DimMap::Identity };
        let operands = vec![(0..x.rank()).map(|d| Dim::mapped(d, map(d))).collect()];
        Factors { operands, results: vec![Dim::each(0..x.rank())], ..Factors::from_sizes(&x.shape) }
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        let n = x.shape[self.dimension];
        let back = Roll { shift: (n - self.shift) % n.max(1), ..self.clone() };
        b.emit1(Arc::new(back), std::slice::from_ref(ct))
    }
    fn view_nests(&self, x: &ArrayType, y: &ArrayType) -> Vec<LoopNest> {
        let (n, shift) = (x.shape[self.dimension] as i64, self.shift as i64);
        // positions count from the start of a piece
        let piece = |range: (i64, i64), constant: i64| {
            let mut ranges = StridedRange::full_box(&x.shape);
            ranges[self.dimension] = StridedRange { lo: range.0, hi: range.1, step: 1 };
            let start = |d: usize| if d == self.dimension { constant } else { 0 };
            access_piece(0, ranges, (0..x.rank()).map(|d| AffineExpr::linear(start(d), d, 1)).collect())
        };
        let pieces = [((0, shift), n - shift), ((shift, n), 0)];
        let pieces = pieces.into_iter().filter(|(range, _)| range.0 < range.1);
        view(y, pieces.map(|(range, at)| piece(range, at)).collect(), Scalar::zero(y.dtype.storage()))
    }
    fn with_batch_dim(&self, _: &VmapArgs<'_>) -> Self {
        Roll { dimension: self.dimension + 1, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        roll_of_a_sharded_dimension: Roll { shift: 1, dimension: 0 }, ["float32[4@X,3]"] => "
            (a: float32[4@X,3]) {
              b: float32[4@X,3] = roll[shift=1, dim=0] a
              return b
            }
            tangents: (a: float32[4@X,3], b: float32[4@X,3]) {
              c: float32[4@X,3] = roll[shift=1, dim=0] a
              d: float32[4@X,3] = roll[shift=1, dim=0] b
              return c, d
            }
            cotangents: (a: float32[4@X,3]) {
              b: float32[4@X,3] = roll[shift=3, dim=0] a
              return b
            }
        ";
        roll_beyond_the_size_is_rejected: Roll { shift: 4, dimension: 0 }, ["float32[4@X,3]"] => "
            error: a shift by 4 along dimension 0, which has size 4
            reduce the shift modulo the size
        ";
    }
}
