//! The primitive `top_k`: the largest elements along a dimension.

use super::{check_axis, row_loop_nest};
use crate::core::{ArrayType, DType, ErrorKind, Fault, Result, Shape};
use crate::ir::program::{
    BatchedOp, Dim, Factors, JvpArgs, Linearity, LoopNest, NamedOp, Primitive, Tangents, TransposeArgs,
    TypedOperand, VmapArgs, typing::not_linear_error,
};
use crate::ir::{ops::dim_check::arity, ops::elementwise::DTypeClass};
use crate::kernels::row::top_k::TopKKernel;
use std::sync::Arc;

/// The `k` largest elements along a dimension, and their int32 indices: `top_k{k, axis}`.
///
/// Elements are in descending order. Ties go to the smaller index; NaN is greater than all numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopK {
    /// The number of elements to return.
    pub k: usize,
    /// The dimension along which elements are compared.
    pub axis: usize,
}

impl Primitive for TopK {
    described!(self, "top_k", Linearity::None, format!("k={}, axis={}", self.k, self.axis));
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity("top_k", operands, 1)?[0];
        check_axis(self.axis, operands)?;
        DTypeClass::Ordered.check(operands, 0)?;
        let n = x.shape[self.axis];
        if self.k > n {
            let text =
                format!("there are no {} greatest elements of {n} along dimension {}", self.k, self.axis);
            return Err(Fault::new(ErrorKind::Shape, text)
                .help(format!("ask for at most {n}"))
                .highlight_dim(0, self.axis));
        }
        let mut shape = x.shape.clone();
        shape.sizes_mut()[self.axis] = self.k;
        Ok(vec![(x.dtype, shape.clone()), (DType::I32, shape)])
    }
    /// Returns the factors of a row kernel, with a separate loop for the `k` results of a row.
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let x = &operands[0];
        let mut f = Factors::from_sizes(&x.shape);
        f.loops[self.axis].need_replication = true;
        let best = f.add_loop(self.k);
        f.operands = vec![Dim::each(0..x.rank())];
        f.results = vec![Dim::each((0..x.rank()).map(|d| if d == self.axis { best } else { d })); 2];
        f
    }
    fn jvp(&self, JvpArgs { builder: b, tangents, outputs, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let t = tangents[0].as_ref().map(|t| b.pick_along(&outputs[1], t, self.axis)).transpose()?;
        Ok(vec![t, None])
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Err(not_linear_error("top_k"))
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(TopK { axis: self.axis + 1, ..self.clone() }))
    }
    fn named_op(&self, _: &[ArrayType]) -> Option<NamedOp> {
        Some(NamedOp::TopK { axis: self.axis, k: self.k })
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let row_kernel = Arc::new(TopKKernel { k: self.k });
        let one = |(k, y)| row_loop_nest(row_kernel.clone(), k, operands, self.axis, y);
        results.iter().enumerate().map(one).collect()
    }
}
