//! The primitive `broadcast_in_dim`, which adds dimensions and repeats dimensions of size 1.

use crate::core::{ArrayType, Axes, Fault, Result, Shape, Spec, util::small_sort};
use crate::ir::ops::dim_check::{check_dims, format_list, format_out_sharding, plain_view, shape_fault};
use crate::ir::ops::structural::StructuralOp;
use crate::ir::program::{
    Builder, Dim, DimMap, Factors, LoopNest, Priority, Value, VmapArgs, shifted_dims, typing::cotangent_type,
    with_inserted,
};
use std::sync::Arc;

/// The broadcast that maps each operand dimension to a result dimension: `broadcast_in_dim`.
///
/// The other dimensions of the result are new.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BroadcastInDim {
    /// The shape of the result.
    pub shape: Shape,
    /// The result dimension of each operand dimension.
    /// Operand dimensions of size 1 are repeated.
    pub broadcast_dimensions: Vec<usize>,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
}

impl StructuralOp for BroadcastInDim {
    const NAME: &'static str = "broadcast_in_dim";
    const PRIORITY: Priority = Priority::Broadcast;
    fn format_params(&self) -> String {
        let dims = format_list(&self.broadcast_dimensions);
        format!("shape={}, dims={dims}{}", self.shape, format_out_sharding(self.out_sharding))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        if self.broadcast_dimensions.len() != x.rank() {
            return Err(shape_fault(format!(
                "broadcast_dimensions has {} entries, but the operand has {} dimensions",
                self.broadcast_dimensions.len(),
                x.rank()
            ))
            .help("give one entry for each dimension of the operand"));
        }
        check_dims("broadcast dimension", &self.broadcast_dimensions, self.shape.rank())?;
        for (d, (&to, &n)) in self.broadcast_dimensions.iter().zip(&*x.shape).enumerate() {
            if n != 1 && n != self.shape[to] {
                let message = format!(
                    "dimension {d} has size {n}, which does not broadcast to size {}",
                    self.shape[to]
                );
                return Err(shape_fault(message)
                    .help("only dimensions of size 1 are repeated")
                    .highlight_dim(0, d));
            }
        }
        Ok(self.shape.clone())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let dims = self.broadcast_dimensions.iter().zip(&*x.shape).map(|(&to, &n)| {
            let stretched = n == 1 && self.shape[to] != 1;
            Dim::mapped(to, if stretched { DimMap::Broadcast } else { DimMap::Identity })
        });
        let operands = vec![dims.collect()];
        Factors {
            operands,
            results: vec![Dim::each(0..self.shape.rank())],
            ..Factors::from_sizes(&self.shape)
        }
    }
    fn requested_sharding(&self) -> Option<Spec> {
        self.out_sharding
    }
    fn with_requested_sharding(&self, out: Spec) -> Option<Self> {
        Some(Self { out_sharding: Some(out), ..self.clone() })
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        // the cotangent is summed over new and repeated dimensions; the others are then in the
        // order of the result
        let kept: Vec<usize> = (0..x.rank())
            .filter(|&d| x.shape[d] != 1 || self.shape[self.broadcast_dimensions[d]] == 1)
            .collect();
        let stays = |to: usize| kept.iter().any(|&d| self.broadcast_dimensions[d] == to);
        let summed: Vec<usize> = (0..self.shape.rank()).filter(|&to| !stays(to)).collect();
        let mut order: Vec<usize> = kept.clone();
        small_sort::sort_by_key(&mut order, |&d| self.broadcast_dimensions[d]);
        let expected = cotangent_type(x).spec;
        let mut y = ct.clone();
        if !summed.is_empty() {
            let entries = order.iter().map(|d| Axes::from(expected.dim(*d))).collect();
            y = b.reduce_sum_to(&y, &summed, x.mesh.as_ref().map(|_| expected.with_dims(entries)))?;
        }
        let permutation: Vec<usize> =
            kept.iter().map(|d| order.iter().position(|o| o == d).unwrap_or_default()).collect();
        y = b.transpose(&y, &permutation)?;
        let new: Vec<usize> = (0..x.rank()).filter(|d| !kept.contains(d)).collect();
        b.expand_dims(&y, &new)
    }
    fn view_nests(&self, x: &ArrayType, y: &ArrayType) -> Vec<LoopNest> {
        let loops = self.broadcast_dimensions.iter().zip(&*x.shape).map(|(&to, &n)| (n != 1).then_some(to));
        plain_view(y, &loops.collect::<Vec<_>>())
    }
    fn with_batch_dim(&self, batch: &VmapArgs<'_>) -> Self {
        let dims = with_inserted(&shifted_dims(&self.broadcast_dimensions), 0, 0);
        let (shape, out) = (batch.batch_dim.shape(&self.shape), batch.out_sharding(self.out_sharding, 0));
        BroadcastInDim { shape, broadcast_dimensions: dims, out_sharding: out }
    }
}

impl Builder {
    /// Broadcasts `x` to `shape`: dimension `i` becomes dimension `dims[i]`.
    pub fn broadcast_in_dim(
        &mut self,
        x: &Value,
        shape: impl Into<Shape>,
        dims: &[usize],
        out: Option<Spec>,
    ) -> Result<Value> {
        let shape = shape.into();
        if out.is_none() && x.ty.shape == shape && dims.iter().copied().eq(0..shape.rank()) {
            return Ok(x.clone());
        }
        let prim = BroadcastInDim { shape, broadcast_dimensions: dims.to_vec(), out_sharding: out };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        broadcast_along_rows: BroadcastInDim { shape: [3, 4].into(), broadcast_dimensions: vec![1], out_sharding: None }, ["float32[4@X]"] => "
            (a: float32[4@X]) {
              b: float32[3,4@X] = broadcast_in_dim[shape=[3,4], dims=[1]] a
              return b
            }
            tangents: (a: float32[4@X], b: float32[4@X]) {
              c: float32[3,4@X] = broadcast_in_dim[shape=[3,4], dims=[1]] a
              d: float32[3,4@X] = broadcast_in_dim[shape=[3,4], dims=[1]] b
              return c, d
            }
            cotangents: (a: float32[3,4@X]) {
              b: float32[4@X] = reduce_sum[axes=[0]] a
              return b
            }
        ";
        broadcast_to_a_smaller_size_is_rejected: BroadcastInDim { shape: [3].into(), broadcast_dimensions: vec![0], out_sharding: None }, ["float32[4]"] => "
            error: dimension 0 has size 4, which does not broadcast to size 3
            only dimensions of size 1 are repeated
        ";
    }
}
