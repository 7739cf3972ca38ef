//! The primitives `transpose`, which permutes dimensions, and `rev`, which reverses elements.

use crate::core::{ArrayType, Fault, Result, Scalar, Shape};
use crate::ir::ops::dim_check::{access_piece, check_dims, format_list, plain_view, shape_fault, view};
use crate::ir::ops::structural::StructuralOp;
use crate::ir::program::{
    AffineExpr, Builder, Dim, DimMap, Factors, LoopNest, Priority, StridedRange, Value, VmapArgs,
    shifted_dims, with_inserted,
};
use std::sync::Arc;

/// A permutation of dimensions: result dimension `i` is operand dimension `permutation[i]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transpose {
    /// The operand dimension of each result dimension.
    pub permutation: Vec<usize>,
}

/// The reversal of elements along some dimensions: `rev`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rev {
    /// The dimensions to reverse.
    pub dimensions: Vec<usize>,
}

impl StructuralOp for Transpose {
    const NAME: &'static str = "transpose";
    const PRIORITY: Priority = Priority::Alias;
    fn format_params(&self) -> String {
        format!("permutation={}", format_list(&self.permutation))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        if self.permutation.len() != x.rank() {
            return Err(shape_fault(format!(
                "the permutation {} has {} entries, but the operand has {} dimensions",
                format_list(&self.permutation),
                self.permutation.len(),
                x.rank()
            )));
        }
        check_dims("dimension", &self.permutation, x.rank())?;
        Ok(self.permutation.iter().map(|d| x.shape[*d]).collect())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let results = vec![Dim::each(self.permutation.iter().copied())];
        Factors { operands: vec![Dim::each(0..x.rank())], results, ..Factors::from_sizes(&x.shape) }
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        let mut inverse = vec![0; self.permutation.len()];
        for (i, d) in self.permutation.iter().enumerate() {
            inverse[*d] = i;
        }
        b.transpose(ct, &inverse)
    }
    fn view_nests(&self, _x: &ArrayType, y: &ArrayType) -> Vec<LoopNest> {
        let mut loops = vec![None; self.permutation.len()];
        for (i, d) in self.permutation.iter().enumerate() {
            loops[*d] = Some(i);
        }
        plain_view(y, &loops)
    }
    fn with_batch_dim(&self, _: &VmapArgs<'_>) -> Self {
        Transpose { permutation: with_inserted(&shifted_dims(&self.permutation), 0, 0) }
    }
}

impl StructuralOp for Rev {
    const NAME: &'static str = "rev";
    const PRIORITY: Priority = Priority::Plain;
    fn format_params(&self) -> String {
        format!("dims={}", format_list(&self.dimensions))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        check_dims("dimension", &self.dimensions, x.rank())?;
        Ok(x.shape.clone())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let turned = x.shape.iter().enumerate().map(|(d, &n)| {
            let turned = DimMap::Affine { scale: -1, offset: n as i64 - 1 };
            Dim::mapped(d, if self.dimensions.contains(&d) { turned } else { DimMap::Identity })
        });
        let operands = vec![turned.collect()];
        Factors { operands, results: vec![Dim::each(0..x.rank())], ..Factors::from_sizes(&x.shape) }
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        b.rev(ct, &self.dimensions)
    }
    fn view_nests(&self, x: &ArrayType, y: &ArrayType) -> Vec<LoopNest> {
        let shape = &x.shape;
        let map = shape.iter().enumerate().map(|(d, &n)| {
            if self.dimensions.contains(&d) {
                AffineExpr::linear(n as i64 - 1, d, -1)
            } else {
                AffineExpr::linear(0, d, 1)
            }
        });
        let map = map.collect();
        view(y, vec![access_piece(0, StridedRange::full_box(shape), map)], Scalar::zero(y.dtype.storage()))
    }
    fn with_batch_dim(&self, _: &VmapArgs<'_>) -> Self {
        Rev { dimensions: shifted_dims(&self.dimensions) }
    }
}

impl Builder {
    /// Permutes the dimensions of `x`; returns `x` unchanged for the identity.
    pub fn transpose(&mut self, x: &Value, permutation: &[usize]) -> Result<Value> {
        if permutation.len() == x.ty.rank() && permutation.iter().copied().eq(0..x.ty.rank()) {
            return Ok(x.clone());
        }
        let prim = Transpose { permutation: permutation.to_vec() };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
    /// Reverses `x` along some dimensions; returns `x` unchanged if there are none.
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
    use crate::ir::ops::test_util::check_prim;

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
        transpose_by_no_permutation_is_rejected: Transpose { permutation: vec![0, 0] }, ["float32[4,2]"] => "
            error: dimension 0 is named twice
            name each dimension once
        ";
    }
}
