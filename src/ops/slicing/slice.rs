//! A part of an array, every so many positions: slice.

use super::{Pad, moved, same_length};
use crate::diagnostic::{Fault, Result};
use crate::ops::build::cotangent_type;
use crate::ops::moves::Move;
use crate::ops::view::{list, part, print_out, shape_fault, view};
use crate::program::sentence::{Affine, Sentence, Span};
use crate::program::{Again, At, Batch, Builder, Factors, Priority, Value, inserted};
use crate::sharding::Spec;
use crate::types::{ArrayType, Scalar, Shape};
use std::sync::Arc;

/// Every `strides`-th position from `start` to below `limit`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// First position in each dimension.
    pub start: Vec<usize>,
    /// End in each dimension (not included).
    pub limit: Vec<usize>,
    /// Steps in each dimension.
    pub strides: Vec<usize>,
    /// The sharding asked for.
    pub out: Option<Spec>,
}

impl Slice {
    fn size(&self, d: usize) -> usize {
        self.limit[d].saturating_sub(self.start[d]).div_ceil(self.strides[d])
    }
}

impl Move for Slice {
    const NAME: &'static str = "slice";
    const PRIORITY: Priority = Priority::Plain;
    fn text(&self) -> String {
        let strides = if self.strides.iter().all(|s| *s == 1) {
            String::new()
        } else {
            format!(", strides={}", list(&self.strides))
        };
        format!("start={}, limit={}{strides}{}", list(&self.start), list(&self.limit), print_out(self.out))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        for (what, n) in
            [("start", self.start.len()), ("limit", self.limit.len()), ("strides", self.strides.len())]
        {
            same_length(what, n, x.rank())?;
        }
        for (d, &n) in x.shape.iter().enumerate() {
            let (start, limit) = (self.start[d], self.limit[d]);
            if limit > n || start > limit {
                return Err(shape_fault(format!(
                    "the slice {start}..{limit} is not within dimension {d} of size {n}"
                ))
                .help("give 0 <= start <= limit <= size")
                .dim(0, d));
            }
            if self.strides[d] == 0 {
                return Err(
                    shape_fault(format!("the stride of dimension {d} is 0")).help("strides are at least 1")
                );
            }
        }
        Ok((0..x.rank()).map(|d| self.size(d)).collect())
    }
    fn loops(&self, x: &ArrayType, y: &Shape) -> Factors {
        let from = &x.shape;
        moved(from, y, |d| {
            let all = self.size(d) == from[d];
            let (scale, offset) = (self.strides[d] as i64, self.start[d] as i64);
            (if all { At::Same } else { At::Affine { scale, offset } }, At::Same)
        })
    }
    fn asked(&self) -> Option<Spec> {
        self.out
    }
    fn asking(&self, out: Spec) -> Option<Self> {
        Some(Self { out: Some(out), ..self.clone() })
    }
    fn back(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        let (mut high, mut interior) = (Vec::new(), Vec::new());
        for (d, &n) in x.shape.iter().enumerate() {
            // an empty slice leaves the whole dimension to what is behind it
            let covered = (self.size(d).max(1) - 1) * self.strides[d] + usize::from(self.size(d) > 0);
            high.push((n - covered) as i64 - self.start[d] as i64);
            interior.push(self.strides[d] - 1);
        }
        let low = self.start.iter().map(|s| *s as i64).collect();
        let pad = Pad { low, high, interior, value: Scalar::zero(x.dtype), out: None };
        let make = |out| Arc::new(Pad { out, ..pad.clone() }) as _;
        b.emit_as(make, std::slice::from_ref(ct), cotangent_type(x).spec)
    }
    fn reads(&self, _x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let map = (0..self.start.len())
            .map(|d| Affine::of(self.start[d] as i64, d, self.strides[d] as i64))
            .collect();
        view(y, vec![part(0, Span::whole(&y.shape), map)], Scalar::zero(y.dtype.storage()))
    }
    /// It holds fewer elements than its operand, but keeps that alive.
    fn recomputed(&self) -> Again {
        Again::AtHand
    }
    fn for_examples(&self, batch: &Batch<'_>) -> Self {
        Slice {
            start: inserted(&self.start, 0, 0),
            limit: inserted(&self.limit, 0, batch.examples.size),
            strides: inserted(&self.strides, 0, 1),
            out: batch.out(self.out, 0),
        }
    }
}

impl Builder {
    /// `x[start..limit]` in each dimension.
    pub fn slice(&mut self, x: &Value, start: &[usize], limit: &[usize]) -> Result<Value> {
        if start.iter().all(|s| *s == 0) && limit == &*x.ty.shape {
            return Ok(x.clone());
        }
        let strides = vec![1; start.len()];
        let prim = Slice { start: start.to_vec(), limit: limit.to_vec(), strides, out: None };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
    /// The box of a cotangent from `start` on that is the cotangent of a value of type `like`.
    pub(super) fn box_of(&mut self, ct: &Value, start: &[usize], like: &ArrayType) -> Result<Value> {
        let limit: Vec<_> = start.iter().zip(&*like.shape).map(|(s, n)| s + n).collect();
        let make = |out| {
            let (start, strides) = (start.to_vec(), vec![1; start.len()]);
            Arc::new(Slice { start, limit: limit.clone(), strides, out }) as _
        };
        self.emit_as(make, std::slice::from_ref(ct), cotangent_type(like).spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        slice_of_every_second: Slice { start: vec![1, 0], limit: vec![5, 2], strides: vec![2, 1], out: None }, ["float32[6,2@X]"] => "
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
        slice_beyond_is_refused: Slice { start: vec![0], limit: vec![5], strides: vec![1], out: None }, ["float32[4]"] => "
            refused: the slice 0..5 is not within dimension 0 of size 4
            give 0 <= start <= limit <= size
        ";
    }
}
