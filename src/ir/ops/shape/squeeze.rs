//! The primitives `squeeze` and `expand_dims`, which remove and insert dimensions of size 1.

use crate::core::{ArrayType, Fault, Result, Shape};
use crate::ir::ops::dim_check::{check_dims, format_list, plain_view};
use crate::ir::ops::structural::StructuralOp;
use crate::ir::program::{Builder, Dim, Factors, LoopNest, Priority, Value, VmapArgs, shifted_dims};
use std::sync::Arc;

/// The removal of dimensions of size 1: `squeeze`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Squeeze {
    /// The dimensions to remove.
    pub dimensions: Vec<usize>,
}

/// The insertion of dimensions of size 1: `expand_dims`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExpandDims {
    /// The indices of the new dimensions in the result.
    pub dimensions: Vec<usize>,
}

impl StructuralOp for Squeeze {
    const NAME: &'static str = "squeeze";
    const PRIORITY: Priority = Priority::Alias;
    fn format_params(&self) -> String {
        format!("dims={}", format_list(&self.dimensions))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        check_dims("dimension", &self.dimensions, x.rank())?;
        if let Some(&d) = self.dimensions.iter().find(|d| x.shape[**d] != 1) {
            return Err(fault!(Shape, "dimension {d} has size {}, not 1", x.shape[d])
                .help("only dimensions of size 1 can be dropped")
                .highlight_dim(0, d));
        }
        let kept = (0..x.rank()).filter(|d| !self.dimensions.contains(d));
        Ok(kept.map(|d| x.shape[d]).collect())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let results = vec![Dim::each((0..x.rank()).filter(|d| !self.dimensions.contains(d)))];
        Factors { operands: vec![Dim::each(0..x.rank())], results, ..Factors::from_sizes(&x.shape) }
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        b.expand_dims(ct, &self.dimensions)
    }
    fn view_nests(&self, x: &ArrayType, y: &ArrayType) -> Vec<LoopNest> {
        let mut next = 0..;
        let loops: Vec<_> =
            (0..x.rank()).map(|d| if self.dimensions.contains(&d) { None } else { next.next() }).collect();
        plain_view(y, &loops)
    }
    fn with_batch_dim(&self, _: &VmapArgs<'_>) -> Self {
        Squeeze { dimensions: shifted_dims(&self.dimensions) }
    }
}

impl StructuralOp for ExpandDims {
    const NAME: &'static str = "expand_dims";
    const PRIORITY: Priority = Priority::Alias;
    fn format_params(&self) -> String {
        format!("dims={}", format_list(&self.dimensions))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        let rank = x.rank() + self.dimensions.len();
        check_dims("dimension", &self.dimensions, rank)?;
        let mut old = x.shape.iter().copied();
        let new = (0..rank).map(|d| if self.dimensions.contains(&d) { 1 } else { old.next().unwrap_or(1) });
        Ok(new.collect())
    }
    fn loops(&self, _x: &ArrayType, y: &Shape) -> Factors {
        let operands = vec![Dim::each((0..y.rank()).filter(|d| !self.dimensions.contains(d)))];
        Factors { operands, results: vec![Dim::each(0..y.rank())], ..Factors::from_sizes(y) }
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        b.squeeze(ct, &self.dimensions)
    }
    fn view_nests(&self, _x: &ArrayType, y: &ArrayType) -> Vec<LoopNest> {
        let loops: Vec<_> = (0..y.rank()).filter(|d| !self.dimensions.contains(d)).map(Some).collect();
        plain_view(y, &loops)
    }
    fn with_batch_dim(&self, _: &VmapArgs<'_>) -> Self {
        ExpandDims { dimensions: shifted_dims(&self.dimensions) }
    }
}

impl Builder {
    /// Removes dimensions of size 1 from `x`; returns `x` unchanged if there are none.
    pub fn squeeze(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        if dims.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Squeeze { dimensions: dims.to_vec() }), std::slice::from_ref(x))
    }
    /// Inserts dimensions of size 1 into `x`, at these indices of the result.
    pub fn expand_dims(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        if dims.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(ExpandDims { dimensions: dims.to_vec() }), std::slice::from_ref(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        squeeze_drops_ones: Squeeze { dimensions: vec![0] }, ["float32[1,4@X]"] => "
            (a: float32[1,4@X]) {
              b: float32[4@X] = squeeze[dims=[0]] a
              return b
            }
            tangents: (a: float32[1,4@X], b: float32[1,4@X]) {
              c: float32[4@X] = squeeze[dims=[0]] a
              d: float32[4@X] = squeeze[dims=[0]] b
              return c, d
            }
            cotangents: (a: float32[4@X]) {
              b: float32[1,4@X] = expand_dims[dims=[0]] a
              return b
            }
        ";
        expand_dims_adds_ones: ExpandDims { dimensions: vec![1] }, ["float32[4@X]"] => "
            (a: float32[4@X]) {
              b: float32[4@X,1] = expand_dims[dims=[1]] a
              return b
            }
            tangents: (a: float32[4@X], b: float32[4@X]) {
              c: float32[4@X,1] = expand_dims[dims=[1]] a
              d: float32[4@X,1] = expand_dims[dims=[1]] b
              return c, d
            }
            cotangents: (a: float32[4@X,1]) {
              b: float32[4@X] = squeeze[dims=[1]] a
              return b
            }
        ";
        squeeze_of_more_is_rejected: Squeeze { dimensions: vec![0] }, ["float32[2,4]"] => "
            error: dimension 0 has size 2, not 1
            only dimensions of size 1 can be dropped
        ";
    }
}
