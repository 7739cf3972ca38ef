//! Dimensions of size 1, which come and go: squeeze, expand_dims.

use crate::diagnostic::{Fault, Result};
use crate::ops::moves::Move;
use crate::ops::view::{check_dims, list, plain_view, shape_fault};
use crate::program::sentence::Sentence;
use crate::program::{Batch, Builder, Dim, Factors, Priority, Value, behind};
use crate::types::{ArrayType, Shape};
use std::sync::Arc;

/// Drops dimensions of size 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Squeeze {
    /// Which ones.
    pub dimensions: Vec<usize>,
}

/// New dimensions of size 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExpandDims {
    /// Their positions in the result.
    pub dimensions: Vec<usize>,
}

impl Move for Squeeze {
    const NAME: &'static str = "squeeze";
    const PRIORITY: Priority = Priority::Alias;
    fn text(&self) -> String {
        format!("dims={}", list(&self.dimensions))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        check_dims("dimension", &self.dimensions, x.rank())?;
        if let Some(&d) = self.dimensions.iter().find(|d| x.shape[**d] != 1) {
            return Err(shape_fault(format!("dimension {d} has size {}, not 1", x.shape[d]))
                .help("only dimensions of size 1 can be dropped")
                .dim(0, d));
        }
        let kept = (0..x.rank()).filter(|d| !self.dimensions.contains(d));
        Ok(kept.map(|d| x.shape[d]).collect())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let results = vec![Dim::each((0..x.rank()).filter(|d| !self.dimensions.contains(d)))];
        Factors { operands: vec![Dim::each(0..x.rank())], results, ..Factors::over(&x.shape) }
    }
    fn back(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        b.expand_dims(ct, &self.dimensions)
    }
    fn reads(&self, x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let mut next = 0..;
        let loops: Vec<_> =
            (0..x.rank()).map(|d| if self.dimensions.contains(&d) { None } else { next.next() }).collect();
        plain_view(y, &loops)
    }
    fn for_examples(&self, _: &Batch<'_>) -> Self {
        Squeeze { dimensions: behind(&self.dimensions) }
    }
}

impl Move for ExpandDims {
    const NAME: &'static str = "expand_dims";
    const PRIORITY: Priority = Priority::Alias;
    fn text(&self) -> String {
        format!("dims={}", list(&self.dimensions))
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
        Factors { operands, results: vec![Dim::each(0..y.rank())], ..Factors::over(y) }
    }
    fn back(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        b.squeeze(ct, &self.dimensions)
    }
    fn reads(&self, _x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let loops: Vec<_> = (0..y.rank()).filter(|d| !self.dimensions.contains(d)).map(Some).collect();
        plain_view(y, &loops)
    }
    fn for_examples(&self, _: &Batch<'_>) -> Self {
        ExpandDims { dimensions: behind(&self.dimensions) }
    }
}

impl Builder {
    /// `x` without these dimensions of size 1.
    pub fn squeeze(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        if dims.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Squeeze { dimensions: dims.to_vec() }), std::slice::from_ref(x))
    }
    /// `x` with new dimensions of size 1, at these places of the result.
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
    use crate::ops::check::check_prim;

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
        squeeze_of_more_is_refused: Squeeze { dimensions: vec![0] }, ["float32[2,4]"] => "
            refused: dimension 0 has size 2, not 1
            only dimensions of size 1 can be dropped
        ";
    }
}
