//! The primitive `scatter`, which writes windows into an array at runtime indices.

use super::dimension_numbers::{DimRole, GatherDims};
use super::{Gather, access, check_update_dtype};
use crate::core::{ArrayType, DType, Fault, Result, Scalar, Shape, Spec};
use crate::ir::ops::dim_check::{arity, format_out_sharding, shape_fault};
use crate::ir::program::{
    Access, BatchedOp, Builder, Compute, Dim, ExplicitRule, Factors, JvpArgs, Linearity, LoopNest,
    OperandBatching, Prim, Primitive, Reducer, Tangents, TransposeArgs, TypedOperand, Value, VmapArgs,
    typing::cotangent_type,
};
use crate::ir::{ops::creation::Iota, ops::elementwise::DTypeClass, ops::structural::out_sharding_rules};
use std::sync::Arc;

/// The array `x` with the windows `u` written at the index vectors `i`: `scatter(x, u, i)`.
///
/// Windows that overlap are written in the row-major order of the index vectors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// The roles of the dimensions of array, indices and update.
    pub dims: GatherDims,
    /// The reducer that combines a window with the old elements.
    /// `None` replaces them.
    pub reducer: Option<Reducer>,
    /// The requested sharding of the result.
    /// If it is `None`, the sharding is inferred, and the operands must be sharded the same way.
    pub out_sharding: Option<Spec>,
}

impl Scatter {
    /// Returns the size of a window in each dimension of the array.
    fn window_sizes(&self, x: &ArrayType, u: &ArrayType) -> Shape {
        let size = |role| if let DimRole::Offset(w) = role { u.shape[w] } else { 1 };
        self.dims.dim_roles(x.rank()).into_iter().map(size).collect()
    }
    /// Emits the gather that reads `from` where this scatter writes.
    fn gather(&self, b: &mut Builder, from: &Value, like: &ArrayType, i: &Value) -> Result<Value> {
        let fill = Scalar::zero(from.ty.dtype);
        let take = Gather {
            dims: self.dims.clone(),
            slice_sizes: self.window_sizes(&from.ty, like),
            fill,
            out_sharding: None,
        };
        let make = |out| Arc::new(Gather { out_sharding: out, ..take.clone() }) as Prim;
        b.emit_with_sharding(&make, &[from.clone(), i.clone()], like.spec)
    }
    /// Emits a scatter with these dimension numbers and the given reducer.
    fn scatter_with(
        &self,
        b: &mut Builder,
        onto: &Value,
        u: &Value,
        i: &Value,
        reducer: Option<Reducer>,
    ) -> Result<Value> {
        let scatter = Scatter { reducer, out_sharding: None, ..self.clone() };
        let make = |out| Arc::new(Scatter { out_sharding: out, ..scatter.clone() }) as Prim;
        b.emit_with_sharding(&make, &[onto.clone(), u.clone(), i.clone()], onto.ty.spec)
    }
    /// Returns a mask that is true for update elements that no later window overwrites.
    ///
    /// Returns `None` if there is at most one window, since windows then cannot overlap.
    fn last_writer_mask(
        &self,
        b: &mut Builder,
        x: &ArrayType,
        u: &ArrayType,
        i: &Value,
    ) -> Result<Option<Value>> {
        let queries: Vec<usize> = (0..u.rank()).filter(|d| !self.dims.offset_dims.contains(d)).collect();
        if queries.iter().map(|d| u.shape[*d]).product::<usize>() <= 1 {
            return Ok(None);
        }
        let of = |ty: &ArrayType| ArrayType {
            dtype: DType::I32,
            spec: Spec::from_dims(ty.spec.dims().to_vec()),
            ..ty.clone()
        };
        let (mut number, mut stride): (Option<Value>, usize) = (None, 1);
        for d in queries.into_iter().rev() {
            let along = b.emit1(Arc::new(Iota { ty: of(u), dimension: d }), &[])?;
            let along = b.mul_scalar(&along, stride as f64)?;
            number = b.add_optional(number, Some(along))?;
            stride *= u.shape[d];
        }
        let Some(number) = number else { return Ok(None) };
        let none = b.full(&of(x), Scalar::Int(-1))?;
        let last = self.scatter_with(b, &none, &number, i, None)?;
        let last = self.gather(b, &last, &of(u), i)?;
        b.eq(&last, &number).map(Some)
    }
}

impl Primitive for Scatter {
    fn name(&self) -> &'static str {
        match self.reducer {
            None => "scatter",
            Some(Reducer::Add) => "scatter_add",
            Some(Reducer::Mul) => "scatter_mul",
            Some(Reducer::Max) => "scatter_max",
            Some(Reducer::Min) => "scatter_min",
            Some(Reducer::And) => "scatter_and",
            Some(Reducer::Or) => "scatter_or",
            Some(Reducer::AssumeEqual) => "scatter_same",
        }
    }
    fn params(&self) -> String {
        format!("{}{}", self.dims.format_params(), format_out_sharding(self.out_sharding))
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let types = arity(self.name(), operands, 3)?;
        let (x, u, i) = (types[0], types[1], types[2]);
        check_update_dtype(x, u)?;
        if matches!(self.reducer, Some(Reducer::Max | Reducer::Min)) && x.dtype.is_complex() {
            DTypeClass::Ordered.check(operands, 0)?;
        }
        let rest = i.rank().saturating_sub(1);
        super::check_rank(
            self.name(),
            self.dims.offset_dims.len() + self.dims.collapsed_dims.len() + self.dims.batching_dims.len(),
            x,
        )?;
        if u.rank() != rest + self.dims.offset_dims.len()
            || self.dims.offset_dims.iter().any(|w| *w >= u.rank())
        {
            return Err(shape_fault(format!(
                "the update has {} dimensions, but the indices have {rest} and the windows {}",
                u.rank(),
                self.dims.offset_dims.len()
            )));
        }
        self.dims.check(self.name(), x, &operands[2], &self.window_sizes(x, u))?;
        let queries = self.dims.batch_dims(rest);
        if let Some((b, w)) = (0..rest).zip(queries).find(|(b, w)| i.shape[*b] != u.shape[*w]) {
            let message = format!(
                "the update has size {} in dimension {w}, but the indices have size {}",
                u.shape[w], i.shape[b]
            );
            return Err(shape_fault(message).highlight_dim(1, w));
        }
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let (x, u, i) = (&operands[0], &operands[1], &operands[2]);
        let mut f = Factors::from_sizes(&x.shape);
        let mut update: Vec<Option<usize>> = vec![None; u.rank()];
        for (d, role) in self.dims.dim_roles(x.rank()).into_iter().enumerate() {
            match role {
                DimRole::Batch(w) => update[w] = Some(d),
                DimRole::Offset(w) if u.shape[w] == x.shape[d] => {
                    f.loops[d].explicit_rule = Some(ExplicitRule::MustMatch);
                    update[w] = Some(d);
                }
                DimRole::Offset(w) => {
                    f.loops[d].explicit_rule = Some(ExplicitRule::MustBeReplicated);
                    let l = f.add_loop_with_rule(u.shape[w], ExplicitRule::MustBeReplicated);
                    f.loops[l].need_replication = true;
                    update[w] = Some(l);
                }
                DimRole::Collapsed => f.loops[d].explicit_rule = Some(ExplicitRule::MustBeReplicated),
            }
        }
        if self.out_sharding.is_some() {
            f.loops
                .iter_mut()
                .filter(|l| l.explicit_rule == Some(ExplicitRule::MustMatch))
                .for_each(|l| l.explicit_rule = None);
        }
        let unsharded = self.reducer != Some(Reducer::Add);
        let dims: Vec<usize> = (0..u.rank())
            .map(|w| {
                update[w].unwrap_or_else(|| {
                    let l = f.add_loop_with_rule(u.shape[w], ExplicitRule::MustBeReplicated);
                    f.loops[l].need_replication = unsharded;
                    l
                })
            })
            .collect();
        let vector = f.add_loop(self.dims.start_index_map.len());
        f.loops[vector].need_replication = true;
        let queries = &self.dims.batch_dims(i.rank() - 1);
        let numbers = queries.iter().map(|w| dims[*w]).chain([vector]).collect::<Vec<_>>();
        f.operands = vec![Dim::each(0..x.rank()), Dim::each(dims), Dim::each(numbers)];
        f.results = vec![Dim::each(0..x.rank())];
        f
    }
    fn linearity(&self) -> Linearity {
        match self.reducer {
            None | Some(Reducer::Add) => Linearity::Indexed(2),
            Some(_) => Linearity::None,
        }
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let (x, u, i, y) = (&operands[0], &operands[1], &operands[2], &outputs[0]);
        let mut t = Vec::with_capacity(2);
        for k in 0..2 {
            t.push(match &tangents[k] {
                Some(t) => t.clone(),
                None => b.zeros(&operands[k].ty)?,
            });
        }
        let add = Some(Reducer::Add);
        let zero = Value::literal(u.ty.dtype, Scalar::zero(u.ty.dtype));
        let tangent = match self.reducer {
            None | Some(Reducer::Add) => {
                b.emit1(Arc::new(self.clone()), &[t[0].clone(), t[1].clone(), i.clone()])?
            }
            Some(Reducer::Mul) => {
                let by_x = self.scatter_with(b, &t[0], u, i, self.reducer)?;
                // The derivative in each factor is the product of the other factors, which is 0 if
                // two factors are 0.
                let one = Value::literal(u.ty.dtype, Scalar::one(u.ty.dtype));
                let none = b.zeros(&y.ty)?;
                let is = b.eq(u, &zero)?;
                let count = b.select(&is, &one, &zero)?;
                let count = self.scatter_with(b, &none, &count, i, add)?;
                let count = self.gather(b, &count, &u.ty, i)?;
                let others = b.select(&is, &one, u)?;
                let product = self.scatter_with(b, x, &others, i, self.reducer)?;
                let product = self.gather(b, &product, &u.ty, i)?;
                let without = b.div(&product, &others)?;
                let least = b.select(&is, &one, &zero)?;
                let alone = b.eq(&count, &least)?;
                let slope = b.select(&alone, &without, &zero)?;
                let part = b.mul(&t[1], &slope)?;
                self.scatter_with(b, &by_x, &part, i, add)?
            }
            Some(Reducer::Max | Reducer::Min) => {
                // the elements that are equal to the extreme share the derivative; they are
                // compared in the sharding of the result
                let dims: Vec<usize> = (0..y.ty.rank()).collect();
                let x = &b.broadcast_in_dim_to(x, &y.ty.shape, &dims, y.ty.spec)?;
                t[0] = b.broadcast_in_dim_to(&t[0], &y.ty.shape, &dims, y.ty.spec)?;
                let at = self.gather(b, y, &u.ty, i)?;
                let (mine, theirs) = (b.eq(x, y)?, b.eq(u, &at)?);
                let one = Value::literal(u.ty.dtype, Scalar::one(u.ty.dtype));
                let own = b.select(&mine, &one, &zero)?;
                let each = b.select(&theirs, &one, &zero)?;
                let count = self.scatter_with(b, &own, &each, i, add)?;
                let count = b.max(&count, &one)?;
                let kept = b.select(&mine, &t[0], &zero)?;
                let part = b.select(&theirs, &t[1], &zero)?;
                let sum = self.scatter_with(b, &kept, &part, i, add)?;
                b.div(&sum, &count)?
            }
            Some(Reducer::And | Reducer::Or | Reducer::AssumeEqual) => return Ok(vec![None]),
        };
        Ok(vec![Some(tangent)])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let mut cts = vec![None; 3];
        let (Some(ct), Some(i)) = (&cotangents[0], &operands[2]) else { return Ok(cts) };
        let [x, u] = [0, 1].map(|k| cotangent_type(&types[k]));
        if let (Some(Reducer::Mul), Some(u)) = (self.reducer, &operands[1]) {
            // The factors are multiplied without the array, and an unreduced cotangent is
            // multiplied by their product.
            let ones = b.full(&types[0], Scalar::one(types[0].dtype))?;
            let by = self.scatter_with(b, &ones, u, i, self.reducer)?;
            cts[0] = Some(b.mul_cotangent(ct, &by)?);
            return Ok(cts);
        }
        let add = match self.reducer {
            None => false,
            Some(Reducer::Add) => true,
            Some(_) => return Err(crate::ir::program::typing::not_linear_error(self.name())),
        };
        if operands[0].is_none() {
            let ct = if add {
                ct.clone()
            } else {
                let hole = b.zeros_next_to(ct, &u)?;
                self.scatter_with(b, ct, &hole, i, None)?
            };
            cts[0] =
                Some(b.broadcast_in_dim_to(&ct, &x.shape, &(0..x.rank()).collect::<Vec<_>>(), x.spec)?);
        }
        if operands[1].is_none() {
            let part = self.gather(b, ct, &u, i)?;
            let stayed = if add { None } else { self.last_writer_mask(b, &types[0], &types[1], i)? };
            cts[1] = Some(match stayed {
                None => part,
                Some(stayed) => {
                    let zero = b.zero_like(&part.ty)?;
                    b.select(&stayed, &part, &zero)?
                }
            });
        }
        Ok(cts)
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let at = self.dims.with_batch_dim(batch, true, batch.mapped[2]);
        let prim =
            Scatter { dims: at, out_sharding: batch.out_sharding(self.out_sharding, 0), ..self.clone() };
        BatchedOp { operand_batching: OperandBatching::WithIndices(2), ..BatchedOp::new(Arc::new(prim)) }
    }
    fn loop_nests(&self, operands: &[ArrayType], _: &[ArrayType]) -> Vec<LoopNest> {
        let (x, u, i) = (&operands[0], &operands[1], &operands[2]);
        let mut extents = x.shape.to_vec();
        // The loop of each dimension of the update.
        let mut loops: Vec<Option<usize>> = vec![None; u.rank()];
        let roles = self.dims.dim_roles(x.rank());
        for (d, role) in roles.iter().enumerate() {
            if let DimRole::Batch(w) = role {
                loops[*w] = Some(d);
            }
        }
        let queries = &self.dims.batch_dims(i.rank() - 1);
        for w in queries {
            loops[*w].get_or_insert_with(|| (extents.push(u.shape[*w]), extents.len() - 1).1);
        }
        let (mut at, mut said) = (Vec::new(), Vec::new());
        for (d, role) in roles.into_iter().enumerate() {
            let (n, size) = (x.shape[d], if let DimRole::Offset(w) = role { u.shape[w] } else { 1 });
            let number = self.dims.index_component(d, n, size);
            let still = number.is_none() && size == n;
            let window = match role {
                DimRole::Batch(_) => continue,
                DimRole::Collapsed if still => continue,
                DimRole::Collapsed => None,
                DimRole::Offset(w) if still => {
                    loops[w] = Some(d);
                    continue;
                }
                DimRole::Offset(w) => {
                    loops[w] = Some(extents.len());
                    extents.push(size);
                    Some((extents.len() - 1, size))
                }
            };
            at.push(self.dims.dynamic_index(d, 2 + said.len(), n, window));
            said.push(number);
        }
        let dtype = x.dtype.storage();
        let over: Vec<usize> = loops.iter().flatten().copied().collect();
        let numbers: Vec<usize> = queries.iter().map(|w| loops[*w].unwrap_or(0)).collect();
        let mut reads = vec![access(0, dtype, &extents, 0..x.rank()), access(1, dtype, &extents, over)];
        reads.extend(said.into_iter().map(|j| match j {
            Some(j) => GatherDims::index_access(2, j, i, &extents, &numbers),
            // A window without a start index in this dimension starts at 0.
            None => Access { dtype: DType::I32, pieces: Vec::new(), fill: Scalar::Int(0) },
        }));
        vec![LoopNest {
            rank: x.rank(),
            extents,
            dtype,
            accesses: reads,
            compute: Compute::Scatter { indices: at, reducer: self.reducer },
        }]
    }
}
