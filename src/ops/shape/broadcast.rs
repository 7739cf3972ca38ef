//! Repeated dimensions: broadcast_in_dim.

use crate::diagnostic::{Fault, Result};
use crate::mesh::Axes;
use crate::ops::build::cotangent_type;
use crate::ops::moves::Move;
use crate::ops::view::{check_dims, list, plain_view, print_out, shape_fault};
use crate::program::sentence::Sentence;
use crate::program::{At, Batch, Builder, Dim, Factors, Priority, Value, behind, inserted};
use crate::sharding::Spec;
use crate::sorted;
use crate::types::{ArrayType, Shape};
use std::sync::Arc;

/// Dimension i of the operand becomes dimension `broadcast_dimensions[i]` of the result; the others are new.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BroadcastInDim {
    /// The result's shape.
    pub shape: Shape,
    /// Where each dimension of the operand goes; a dimension of size 1 is repeated.
    pub broadcast_dimensions: Vec<usize>,
    /// The sharding asked for.
    pub out: Option<Spec>,
}

impl Move for BroadcastInDim {
    const NAME: &'static str = "broadcast_in_dim";
    const PRIORITY: Priority = Priority::Broadcast;
    fn text(&self) -> String {
        let dims = list(&self.broadcast_dimensions);
        format!("shape={}, dims={dims}{}", self.shape, print_out(self.out))
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
                return Err(shape_fault(message).help("only dimensions of size 1 are repeated").dim(0, d));
            }
        }
        Ok(self.shape.clone())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let dims = self.broadcast_dimensions.iter().zip(&*x.shape).map(|(&to, &n)| {
            let stretched = n == 1 && self.shape[to] != 1;
            Dim::at(to, if stretched { At::Stretched } else { At::Same })
        });
        let operands = vec![dims.collect()];
        Factors { operands, results: vec![Dim::each(0..self.shape.rank())], ..Factors::over(&self.shape) }
    }
    fn asked(&self) -> Option<Spec> {
        self.out
    }
    fn asking(&self, out: Spec) -> Option<Self> {
        Some(Self { out: Some(out), ..self.clone() })
    }
    fn back(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        // new dimensions and repeated ones are summed; what is left is in the order of the result
        let kept: Vec<usize> = (0..x.rank())
            .filter(|&d| x.shape[d] != 1 || self.shape[self.broadcast_dimensions[d]] == 1)
            .collect();
        let stays = |to: usize| kept.iter().any(|&d| self.broadcast_dimensions[d] == to);
        let summed: Vec<usize> = (0..self.shape.rank()).filter(|&to| !stays(to)).collect();
        let mut order: Vec<usize> = kept.clone();
        sorted::sort_by_key(&mut order, |&d| self.broadcast_dimensions[d]);
        let want = cotangent_type(x).spec;
        let mut y = ct.clone();
        if !summed.is_empty() {
            let entries = order.iter().map(|d| Axes::from(want.dim(*d))).collect();
            y = b.reduce_sum_as(&y, &summed, x.mesh.as_ref().map(|_| want.with_dims(entries)))?;
        }
        let permutation: Vec<usize> =
            kept.iter().map(|d| order.iter().position(|o| o == d).unwrap_or_default()).collect();
        y = b.transpose(&y, &permutation)?;
        let new: Vec<usize> = (0..x.rank()).filter(|d| !kept.contains(d)).collect();
        b.expand_dims(&y, &new)
    }
    fn reads(&self, x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let loops = self.broadcast_dimensions.iter().zip(&*x.shape).map(|(&to, &n)| (n != 1).then_some(to));
        plain_view(y, &loops.collect::<Vec<_>>())
    }
    fn for_examples(&self, batch: &Batch<'_>) -> Self {
        let dims = inserted(&behind(&self.broadcast_dimensions), 0, 0);
        let (shape, out) = (batch.examples.shape(&self.shape), batch.out(self.out, 0));
        BroadcastInDim { shape, broadcast_dimensions: dims, out }
    }
}

impl Builder {
    /// `x` broadcast to `shape`: dimension i becomes dimension `dims[i]`.
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
        let prim = BroadcastInDim { shape, broadcast_dimensions: dims.to_vec(), out };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        broadcast_along_rows: BroadcastInDim { shape: [3, 4].into(), broadcast_dimensions: vec![1], out: None }, ["float32[4@X]"] => "
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
        broadcast_to_a_smaller_size_is_refused: BroadcastInDim { shape: [3].into(), broadcast_dimensions: vec![0], out: None }, ["float32[4]"] => "
            refused: dimension 0 has size 4, which does not broadcast to size 3
            only dimensions of size 1 are repeated
        ";
    }
}
