//! The primitive `gather`, which reads windows of an array at runtime indices.

use super::dimension_numbers::{DimRole, GatherDims};
use super::{Scatter, access};
use crate::core::{ArrayType, Axes, AxisType, DType, Fault, Result, Scalar, Shape, Spec};
use crate::ir::ops::dim_check::{arity, format_list, format_out_sharding, view};
use crate::ir::ops::structural::out_sharding_rules;
use crate::ir::program::{
    AffineExpr, BatchedOp, Compute, Dim, DimMap, ExplicitRule, Factors, JvpArgs, Linearity, LoopNest,
    OutOfBounds, Prim, Primitive, Reducer, Tangents, TransposeArgs, TypedOperand, VmapArgs,
    typing::cotangent_type, with_inserted,
};
use std::sync::Arc;

/// The windows of the array `x` at the index vectors `i`: `gather(x, i)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    /// The roles of the dimensions of array, indices and result.
    pub dims: GatherDims,
    /// The sizes of a window, one for each dimension of the array.
    pub slice_sizes: Shape,
    /// The value of elements of out-of-bounds windows.
    /// Unused if windows are clamped.
    pub fill: Scalar,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
}

/// Returns the fill value for out-of-bounds reads.
///
/// It is NaN, the minimum signed integer, the maximum unsigned integer, or true.
pub fn fill_value(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(true),
        d if d.is_inexact() => Scalar::Float(f64::NAN),
        d if d.is_signed() => Reducer::Max.neutral(d),
        d => Reducer::Min.neutral(d),
    }
}

impl Gather {
    /// Returns the gather for a batch of examples.
    pub(super) fn with_batch_dim(&self, batch: &VmapArgs<'_>) -> Gather {
        let (x, i) = (batch.mapped[0], batch.mapped[1]);
        let sizes = match (x, i) {
            (true, true) => with_inserted(&self.slice_sizes, 0, 1).into(),
            (true, false) => with_inserted(&self.slice_sizes, 0, batch.batch_dim.size).into(),
            (false, _) => self.slice_sizes.clone(),
        };
        // if all examples read one shared array, request that the result is sharded like the batch
        let one = (!x && !batch.batch_dim.axes.is_empty()).then(|| {
            let mesh = batch.batch_dim.mesh.as_ref();
            let explicit = |a| mesh.is_none_or(|m| m.axis_type(a) == Some(AxisType::Explicit));
            batch.results[0].spec.filter_axes(explicit)
        });
        let (at, out) =
            (self.dims.with_batch_dim(batch, x, i), batch.out_sharding(self.out_sharding.or(one), 0));
        Gather { dims: at, slice_sizes: sizes, out_sharding: out, ..self.clone() }
    }
    /// Returns the factors of the gather.
    fn loops(&self, x: &ArrayType, i: &ArrayType, y: &Shape) -> Factors {
        let mut f = Factors::from_sizes(y);
        let of_numbers = i.rank().saturating_sub(1);
        let queries = self.dims.batch_dims(of_numbers);
        let mut result = Dim::each(0..y.rank());
        let mut array = Vec::new();
        for (d, role) in self.dims.dim_roles(x.rank()).into_iter().enumerate() {
            let n = x.shape[d];
            array.push(Dim::identity(match role {
                DimRole::Batch(w) => w,
                DimRole::Offset(w) if self.slice_sizes[d] == n => w,
                DimRole::Offset(w) if !self.dims.start_index_map.contains(&d) => {
                    f.loops[w].size = n;
                    result[w] = Dim::mapped(w, DimMap::Dynamic);
                    w
                }
                DimRole::Offset(_) | DimRole::Collapsed => {
                    f.add_loop_with_rule(n, ExplicitRule::MustBeReplicated)
                }
            }));
        }
        for b in (0..of_numbers).filter(|b| self.dims.batching_dims.iter().all(|p| p.1 != *b)) {
            f.loops[queries[b]].explicit_rule = Some(ExplicitRule::MustBeReplicated);
        }
        let vector = f.add_loop(self.dims.start_index_map.len());
        f.loops[vector].need_replication = true;
        let numbers = queries[..of_numbers].iter().copied().chain([vector]);
        f.operands = vec![array, Dim::each(numbers)];
        f.results = vec![result];
        f
    }
}

impl Primitive for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }
    fn params(&self) -> String {
        let fill = match self.dims.mode {
            OutOfBounds::Clip => String::new(),
            OutOfBounds::Drop => format!(", fill={}", self.fill),
        };
        format!(
            "{}, sizes={}{fill}{}",
            self.dims.format_params(),
            format_list(&self.slice_sizes),
            format_out_sharding(self.out_sharding)
        )
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 2)?[0];
        super::check_rank(self.name(), self.slice_sizes.len(), x)?;
        self.dims.check(self.name(), x, &operands[1], &self.slice_sizes)?;
        let numbers = &operands[1].ty.shape;
        let mut shape = vec![0; numbers.len() - 1 + self.dims.offset_dims.len()];
        let queries = self.dims.batch_dims(numbers.len() - 1);
        numbers[..numbers.len() - 1].iter().zip(queries).for_each(|(n, w)| shape[w] = *n);
        for (d, role) in self.dims.dim_roles(x.rank()).into_iter().enumerate() {
            if let DimRole::Offset(w) = role {
                shape[w] = self.slice_sizes[d];
            }
        }
        Ok(vec![(x.dtype, shape.into())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        self.loops(&operands[0], &operands[1], &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        let nothing = self.dims.mode == OutOfBounds::Drop;
        if nothing && !self.fill.is_additively_idempotent() {
            Linearity::IndexedWithFill(1)
        } else {
            Linearity::Indexed(1)
        }
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let prim = Gather { fill: Scalar::zero(t.ty.dtype), ..self.clone() };
        Ok(vec![Some(b.emit1(Arc::new(prim), &[t.clone(), operands[1].clone()])?)])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let (Some(ct), Some(i)) = (&cotangents[0], &operands[1]) else { return Ok(vec![None, None]) };
        let expected = cotangent_type(&types[0]);
        // of a table that is reduced over the axes of split indices, the sum over the indices makes
        // the cotangent unreduced, and the zeros are not
        let unreduced: Axes = (expected.spec.unreduced_axes().iter())
            .filter(|a| ct.ty.spec.unreduced_axes().contains(*a))
            .collect();
        let onto = ArrayType { spec: expected.spec.unreduced(unreduced), ..expected.clone() };
        let zeros = b.zeros_next_to(ct, &onto)?;
        let scatter = Scatter { dims: self.dims.clone(), reducer: Some(Reducer::Add), out_sharding: None };
        let make = |out| Arc::new(Scatter { out_sharding: out, ..scatter.clone() }) as Prim;
        Ok(vec![Some(b.emit_with_sharding(&make, &[zeros, ct.clone(), i.clone()], expected.spec)?), None])
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(self.with_batch_dim(batch)))
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (x, i, y) = (&operands[0], &operands[1], &results[0]);
        let mut extents = y.shape.to_vec();
        let (mut map, mut at, mut said) = (Vec::new(), Vec::new(), Vec::new());
        for (d, role) in self.dims.dim_roles(x.rank()).into_iter().enumerate() {
            let (n, size) = (x.shape[d], self.slice_sizes[d]);
            let window = match role {
                DimRole::Batch(w) | DimRole::Offset(w) => Some((w, size)),
                DimRole::Collapsed => None,
            };
            map.push(match (role, self.dims.index_component(d, n, size)) {
                (DimRole::Batch(w), _) | (DimRole::Offset(w), None) => AffineExpr::linear(0, w, 1),
                (DimRole::Collapsed, None) => AffineExpr::constant(0),
                (DimRole::Offset(_) | DimRole::Collapsed, Some(j)) => {
                    let index = extents.len();
                    extents.push(n);
                    at.push(self.dims.dynamic_index(index, 1 + said.len(), n, window));
                    said.push(j);
                    AffineExpr::linear(0, index, 1)
                }
            });
        }
        let dtype = y.dtype.storage();
        let mut from = access(0, dtype, &extents, []);
        from.fill = self.fill;
        from.pieces.iter_mut().for_each(|p| p.map.clone_from(&map));
        if at.is_empty() {
            return view(y, from.pieces, from.fill);
        }
        let queries = &self.dims.batch_dims(i.rank() - 1);
        let mut reads = vec![from];
        reads.extend(said.into_iter().map(|j| GatherDims::index_access(1, j, i, &extents, queries)));
        vec![LoopNest {
            rank: y.rank(),
            extents,
            dtype,
            accesses: reads,
            compute: Compute::Gather { indices: at },
        }]
    }
}
