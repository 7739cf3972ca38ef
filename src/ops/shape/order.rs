//! Dimensions and positions in another order: transpose, rev.

use crate::diagnostic::{Fault, Result};
use crate::ops::moves::Move;
use crate::ops::view::{check_dims, list, part, plain_view, shape_fault, view};
use crate::program::sentence::{Affine, Sentence, Span};
use crate::program::{At, Batch, Builder, Dim, Factors, Priority, Value, behind, inserted};
use crate::types::{ArrayType, Scalar, Shape};
use std::sync::Arc;

/// Dimension i of the result is dimension `permutation[i]` of the operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transpose {
    /// Which dimension of the operand each dimension of the result is.
    pub permutation: Vec<usize>,
}

/// Dimensions from the last position to the first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rev {
    /// Which ones.
    pub dimensions: Vec<usize>,
}

impl Move for Transpose {
    const NAME: &'static str = "transpose";
    const PRIORITY: Priority = Priority::Alias;
    fn text(&self) -> String {
        format!("permutation={}", list(&self.permutation))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        if self.permutation.len() != x.rank() {
            return Err(shape_fault(format!(
                "the permutation {} has {} entries, but the operand has {} dimensions",
                list(&self.permutation),
                self.permutation.len(),
                x.rank()
            )));
        }
        check_dims("dimension", &self.permutation, x.rank())?;
        Ok(self.permutation.iter().map(|d| x.shape[*d]).collect())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let results = vec![Dim::each(self.permutation.iter().copied())];
        Factors { operands: vec![Dim::each(0..x.rank())], results, ..Factors::over(&x.shape) }
    }
    fn back(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        let mut inverse = vec![0; self.permutation.len()];
        for (i, d) in self.permutation.iter().enumerate() {
            inverse[*d] = i;
        }
        b.transpose(ct, &inverse)
    }
    fn reads(&self, _x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let mut loops = vec![None; self.permutation.len()];
        for (i, d) in self.permutation.iter().enumerate() {
            loops[*d] = Some(i);
        }
        plain_view(y, &loops)
    }
    fn for_examples(&self, _: &Batch<'_>) -> Self {
        Transpose { permutation: inserted(&behind(&self.permutation), 0, 0) }
    }
}

impl Move for Rev {
    const NAME: &'static str = "rev";
    const PRIORITY: Priority = Priority::Plain;
    fn text(&self) -> String {
        format!("dims={}", list(&self.dimensions))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        check_dims("dimension", &self.dimensions, x.rank())?;
        Ok(x.shape.clone())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let turned = x.shape.iter().enumerate().map(|(d, &n)| {
            let turned = At::Affine { scale: -1, offset: n as i64 - 1 };
            Dim::at(d, if self.dimensions.contains(&d) { turned } else { At::Same })
        });
        let operands = vec![turned.collect()];
        Factors { operands, results: vec![Dim::each(0..x.rank())], ..Factors::over(&x.shape) }
    }
    fn back(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        b.rev(ct, &self.dimensions)
    }
    fn reads(&self, x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let shape = &x.shape;
        let map = shape.iter().enumerate().map(|(d, &n)| {
            if self.dimensions.contains(&d) { Affine::of(n as i64 - 1, d, -1) } else { Affine::of(0, d, 1) }
        });
        let map = map.collect();
        view(y, vec![part(0, Span::whole(shape), map)], Scalar::zero(y.dtype.storage()))
    }
    fn for_examples(&self, _: &Batch<'_>) -> Self {
        Rev { dimensions: behind(&self.dimensions) }
    }
}

impl Builder {
    /// `x` with its dimensions in another order; itself where they stay.
    pub fn transpose(&mut self, x: &Value, permutation: &[usize]) -> Result<Value> {
        if permutation.len() == x.ty.rank() && permutation.iter().copied().eq(0..x.ty.rank()) {
            return Ok(x.clone());
        }
        let prim = Transpose { permutation: permutation.to_vec() };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
    /// `x` with these dimensions from the last position to the first.
    pub fn rev(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        if dims.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Rev { dimensions: dims.to_vec() }), std::slice::from_ref(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        transpose_takes_axes_along: Transpose { permutation: vec![1, 0] }, ["float32[4@X,2]"] => "
            (a: float32[4@X,2]) {
              b: float32[2,4@X] = transpose[permutation=[1,0]] a
              return b
            }
            tangents: (a: float32[4@X,2], b: float32[4@X,2]) {
              c: float32[2,4@X] = transpose[permutation=[1,0]] a
              d: float32[2,4@X] = transpose[permutation=[1,0]] b
              return c, d
            }
            cotangents: (a: float32[2,4@X]) {
              b: float32[4@X,2] = transpose[permutation=[1,0]] a
              return b
            }
        ";
        rev_of_one_dimension: Rev { dimensions: vec![1] }, ["float32[2@X,3]"] => "
            (a: float32[2@X,3]) {
              b: float32[2@X,3] = rev[dims=[1]] a
              return b
            }
            tangents: (a: float32[2@X,3], b: float32[2@X,3]) {
              c: float32[2@X,3] = rev[dims=[1]] a
              d: float32[2@X,3] = rev[dims=[1]] b
              return c, d
            }
            cotangents: (a: float32[2@X,3]) {
              b: float32[2@X,3] = rev[dims=[1]] a
              return b
            }
        ";
        transpose_by_no_permutation_is_refused: Transpose { permutation: vec![0, 0] }, ["float32[4,2]"] => "
            refused: dimension 0 is named twice
            name each dimension once
        ";
    }
}
