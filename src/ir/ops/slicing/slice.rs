//! The primitive `slice`, which reads a box of an array with static bounds and strides.

use super::{Pad, check_length, mapped_factors};
use crate::core::{ArrayType, Fault, Result, Scalar, Shape, Spec};
use crate::ir::ops::dim_check::{access_piece, format_list, format_out_sharding, shape_fault, view};
use crate::ir::ops::structural::StructuralOp;
use crate::ir::program::{
    AffineExpr, Builder, DimMap, Factors, LoopNest, Priority, Remat, StridedRange, Value, VmapArgs,
    typing::cotangent_type, with_inserted,
};
use std::sync::Arc;

/// Reads the elements from `start` up to `limit`, in steps of `strides`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The first position in each dimension.
    pub start: Vec<usize>,
    /// The end in each dimension (exclusive).
    pub limit: Vec<usize>,
    /// The step in each dimension, at least 1.
    pub strides: Vec<usize>,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
}

impl Slice {
    /// Returns the size of dimension `d` of the result.
    fn size(&self, d: usize) -> usize {
        self.limit[d].saturating_sub(self.start[d]).div_ceil(self.strides[d])
    }
}

impl StructuralOp for Slice {
    const NAME: &'static str = "slice";
    const PRIORITY: Priority = Priority::Plain;
    fn format_params(&self) -> String {
        let strides = if self.strides.iter().all(|s| *s == 1) {
            String::new()
        } else {
            format!(", strides={}", format_list(&self.strides))
        };
        format!(
            "start={}, limit={}{strides}{}",
            format_list(&self.start),
            format_list(&self.limit),
            format_out_sharding(self.out_sharding)
        )
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        for (what, n) in
            [("start", self.start.len()), ("limit", self.limit.len()), ("strides", self.strides.len())]
        {
            check_length(what, n, x.rank())?;
        }
        for (d, &n) in x.shape.iter().enumerate() {
            let (start, limit) = (self.start[d], self.limit[d]);
            if limit > n || start > limit {
                return Err(shape_fault(format!(
                    "the slice {start}..{limit} is not within dimension {d} of size {n}"
                ))
                .help("give 0 <= start <= limit <= size")
                .highlight_dim(0, d));
            }
            if self.strides[d] == 0 {
                return Err(fault!(Shape, "the stride of dimension {d} is 0").help("strides are at least 1"));
            }
        }
        Ok((0..x.rank()).map(|d| self.size(d)).collect())
    }
    fn loops(&self, x: &ArrayType, y: &Shape) -> Factors {
        let from = &x.shape;
        mapped_factors(from, y, |d| {
            let all = self.size(d) == from[d];
            let (scale, offset) = (self.strides[d] as i64, self.start[d] as i64);
            (if all { DimMap::Identity } else { DimMap::Affine { scale, offset } }, DimMap::Identity)
        })
    }
    fn requested_sharding(&self) -> Option<Spec> {
        self.out_sharding
    }
    fn with_requested_sharding(&self, out: Spec) -> Option<Self> {
        Some(Self { out_sharding: Some(out), ..self.clone() })
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        let (mut high, mut interior) = (Vec::new(), Vec::new());
        for (d, &n) in x.shape.iter().enumerate() {
            // an empty slice does not cover any element, so the high padding fills the rest of the
            // dimension
            let covered = (self.size(d).max(1) - 1) * self.strides[d] + usize::from(self.size(d) > 0);
            high.push((n - covered) as i64 - self.start[d] as i64);
            interior.push(self.strides[d] - 1);
        }
        let low = self.start.iter().map(|s| *s as i64).collect();
        let pad = Pad { low, high, interior, value: Scalar::zero(x.dtype), out_sharding: None };
        let make = |out| Arc::new(Pad { out_sharding: out, ..pad.clone() }) as _;
        b.emit_with_sharding(&make, std::slice::from_ref(ct), cotangent_type(x).spec)
    }
    fn view_nests(&self, _x: &ArrayType, y: &ArrayType) -> Vec<LoopNest> {
        let map = (0..self.start.len())
            .map(|d| AffineExpr::linear(self.start[d] as i64, d, self.strides[d] as i64))
            .collect();
        view(y, vec![access_piece(0, StridedRange::full_box(&y.shape), map)], Scalar::zero(y.dtype.storage()))
    }
    /// Returns `IfOperandsSaved`: recomputing a slice needs its operand, which is larger.
    fn remat_policy(&self) -> Remat {
        Remat::IfOperandsSaved
    }
    fn with_batch_dim(&self, batch: &VmapArgs<'_>) -> Self {
        Slice {
            start: with_inserted(&self.start, 0, 0),
            limit: with_inserted(&self.limit, 0, batch.batch_dim.size),
            strides: with_inserted(&self.strides, 0, 1),
            out_sharding: batch.out_sharding(self.out_sharding, 0),
        }
    }
}

impl Builder {
    /// Emits `x[start..limit]` in each dimension.
    pub fn slice(&mut self, x: &Value, start: &[usize], limit: &[usize]) -> Result<Value> {
        if start.iter().all(|s| *s == 0) && limit == &*x.ty.shape {
            return Ok(x.clone());
        }
        let strides = vec![1; start.len()];
        let prim = Slice { start: start.to_vec(), limit: limit.to_vec(), strides, out_sharding: None };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
    /// Emits the box of a cotangent that belongs to a value of type `like`.
    ///
    /// The box starts at `start`.
    pub(super) fn slice_cotangent(&mut self, ct: &Value, start: &[usize], like: &ArrayType) -> Result<Value> {
        let limit: Vec<_> = start.iter().zip(&*like.shape).map(|(s, n)| s + n).collect();
        let make = |out| {
            let (start, strides) = (start.to_vec(), vec![1; start.len()]);
            Arc::new(Slice { start, limit: limit.clone(), strides, out_sharding: out }) as _
        };
        self.emit_with_sharding(&make, std::slice::from_ref(ct), cotangent_type(like).spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        slice_of_every_second: Slice { start: vec![1, 0], limit: vec![5, 2], strides: vec![2, 1], out_sharding: None }, ["float32[6,2@X]"] => "
            (a: float32[6,2@X]) {
              b: float32[2,2@X] = slice[start=[1,0], limit=[5,2], strides=[2,1]] a
              return b
            }
            tangents: (a: float32[6,2@X], b: float32[6,2@X]) {
              c: float32[2,2@X] = slice[start=[1,0], limit=[5,2], strides=[2,1]] a
              d: float32[2,2@X] = slice[start=[1,0], limit=[5,2], strides=[2,1]] b
              return c, d
            }
            cotangents: (a: float32[2,2@X]) {
              b: float32[6,2@X] = pad[low=[1,0], high=[2,0], interior=[1,0], value=0.0] a
              return b
            }
        ";
        slice_beyond_is_rejected: Slice { start: vec![0], limit: vec![5], strides: vec![1], out_sharding: None }, ["float32[4]"] => "
            error: the slice 0..5 is not within dimension 0 of size 4
            give 0 <= start <= limit <= size
        ";
    }
}
