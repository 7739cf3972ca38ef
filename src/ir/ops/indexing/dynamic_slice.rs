//! The primitives `dynamic_slice` and `dynamic_update_slice`.
//!
//! They read or write a box that starts at runtime indices. The sizes of the box are static.

use super::{Gather, GatherDims, access, check_integer_indices, check_update_dtype};
use crate::core::{ArrayType, DType, Fault, Result, Scalar, Shape, Spec};
use crate::ir::ops::dim_check::{arity, format_list, format_out_sharding, shape_fault, view};
use crate::ir::ops::elementwise::{Binary, DTypeClass};
use crate::ir::ops::structural::out_sharding_rules;
use crate::ir::program::typing::{cotangent_type, not_linear_error};
use crate::ir::program::{
    Access, BatchedOp, Builder, Compute, Dim, DimMap, DynamicIndex, ExplicitRule, Factors, JvpArgs,
    Linearity, LoopNest, OperandBatching, OutOfBounds, Prim, Primitive, Priority, Reducer, Tangents,
    TransposeArgs, TypedOperand, Value, VmapArgs, shifted_dims, with_inserted,
};
use std::sync::Arc;

/// The read of a box of fixed sizes that starts at runtime indices (XLA's `dynamic_slice`).
///
/// The operands are the array and one start index for each of `dims`; in other dimensions the box
/// starts at 0. Start indices are clamped so that the box fits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DynamicSlice {
    /// The sizes of the box.
    pub sizes: Shape,
    /// The dimension of each start index.
    pub dims: Vec<usize>,
    /// The batch dimensions that have separate start indices.
    /// They are the dimensions of each start index that is not a scalar.
    pub batch_dims: Vec<usize>,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
}

/// The write of a box at runtime indices, or its combination with the old elements.
///
/// The operands are the array, the update, and one start index for each of `dims`. Start indices
/// are clamped so that the update fits. (XLA's `dynamic_update_slice` is the case without a
/// reducer.)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DynamicUpdateSlice {
    /// The dimension of each start index.
    pub dims: Vec<usize>,
    /// The batch dimensions that have separate start indices.
    pub batch_dims: Vec<usize>,
    /// The reducer that combines the update with the old elements.
    /// `None` replaces them.
    pub reducer: Option<Reducer>,
    /// The requested sharding of the result.
    /// If it is `None`, the sharding is inferred, and the operands must be sharded the same way.
    pub out_sharding: Option<Spec>,
}

/// Returns an error if the box does not fit, or if start indices do not match the dimensions.
fn check_box(
    name: &str,
    x: &ArrayType,
    sizes: &[usize],
    start_indices: &[TypedOperand],
    dims: &[usize],
    batch_dims: &[usize],
) -> Result<(), Fault> {
    if sizes.len() != x.rank() {
        return Err(shape_fault(format!(
            "{name} has {} sizes, but the array has {} dimensions",
            sizes.len(),
            x.rank()
        )));
    }
    if let Some(d) = dims.iter().chain(batch_dims).find(|d| **d >= x.rank()) {
        return Err(fault!(Shape, "there is no dimension {d} among {}", x.rank()));
    }
    if let Some(d) = (0..x.rank()).find(|d| sizes[*d] > x.shape[*d]) {
        let message = format!("{name} takes {} of dimension {d}, which has size {}", sizes[d], x.shape[d]);
        return Err(shape_fault(message).help(format!("take at most {}", x.shape[d])).highlight_dim(0, d));
    }
    // A dimension that is not read in full needs a start index.
    let still = |d: &usize| sizes[*d] != x.shape[*d] && !dims.contains(d);
    if let Some(d) = (0..x.rank()).find(still) {
        return Err(fault!(Shape, "there is no start index for dimension {d}").highlight_dim(0, d));
    }
    if let Some(d) = batch_dims.iter().find(|d| sizes[**d] != x.shape[**d]) {
        return Err(fault!(Shape, "dimension {d} is a batch dimension, and must be taken in full")
            .highlight_dim(0, *d));
    }
    let of_examples: Vec<usize> = batch_dims.iter().map(|d| x.shape[*d]).collect();
    for (k, o) in start_indices.iter().enumerate() {
        if o.ty.rank() > 0 && o.ty.shape[..] != of_examples {
            let message = format!("start index {k} has shape {}, and must be a scalar", o.ty.shape);
            return Err(shape_fault(message).help("give one start index for each dimension"));
        }
    }
    Ok(())
}

impl DynamicSlice {
    /// Returns a gather of the boxes that all examples read from one shared array.
    ///
    /// The transpose of this gather scatters all cotangents into one array, instead of one array
    /// per example. Returns `None` if the array is batched, a start index is not a scalar, or an
    /// indexed dimension is sharded.
    fn as_gather(&self, batch: &VmapArgs<'_>) -> Option<Gather> {
        let (x, numbers) = batch.operands.split_first()?;
        let scalars = numbers.iter().all(|n| n.rank() == 0 && n.dtype == numbers[0].dtype);
        let parted = |d: &usize| self.sizes[*d] != x.shape[*d] && !x.spec.dim(*d).is_empty();
        if batch.mapped[0] || !scalars || self.dims.iter().any(parted) {
            return None;
        }
        let at = GatherDims {
            start_index_map: self.dims.clone(),
            offset_dims: (0..x.rank()).collect(),
            mode: OutOfBounds::Clip,
            ..GatherDims::default()
        };
        let one = Gather {
            dims: at,
            slice_sizes: self.sizes.clone(),
            fill: Scalar::zero(x.dtype),
            out_sharding: self.out_sharding,
        };
        Some(one.with_batch_dim(&VmapArgs { mapped: &[false, true], ..*batch }))
    }
}

/// Returns the factors of the start indices.
fn start_index_dims(start_indices: &[ArrayType], batch_dims: &[usize]) -> Vec<Vec<Dim>> {
    start_indices.iter().map(|i| Dim::each(batch_dims.iter().copied().take(i.rank()))).collect()
}

/// Returns the batch dimensions of the start indices after a batch dimension was added.
fn with_leading_batch_dim(batch_dims: &[usize], batch: &VmapArgs<'_>, first: usize) -> Vec<usize> {
    let own = batch.mapped[first..].contains(&true);
    own.then_some(0).into_iter().chain(shifted_dims(batch_dims)).collect()
}

impl Primitive for DynamicSlice {
    described!(self, "dynamic_slice", Linearity::Indexed(1));
    fn params(&self) -> String {
        let lead = if self.batch_dims.is_empty() {
            String::new()
        } else {
            format!(", lead={}", format_list(&self.batch_dims))
        };
        format!(
            "sizes={}, dims={}{lead}{}",
            format_list(&self.sizes),
            format_list(&self.dims),
            format_out_sharding(self.out_sharding)
        )
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1 + self.dims.len())?[0];
        check_integer_indices(operands, 1)?;
        check_box(self.name(), x, &self.sizes, &operands[1..], &self.dims, &self.batch_dims)?;
        Ok(vec![(x.dtype, self.sizes.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let x = &operands[0].shape;
        let at = |d| if self.sizes[d] == x[d] { DimMap::Identity } else { DimMap::Dynamic };
        let mut dims = vec![Dim::each(0..x.rank())];
        dims.extend(start_index_dims(&operands[1..], &self.batch_dims));
        let result = (0..x.rank()).map(|d| Dim::mapped(d, at(d))).collect();
        Factors { operands: dims, results: vec![result], ..Factors::from_sizes(x) }
    }
    fn priority(&self) -> Priority {
        Priority::DynamicSlice
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let args: Vec<Value> = std::iter::once(t).chain(&operands[1..]).cloned().collect();
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), &args)?)])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let mut cts = vec![None; types.len()];
        if let Some(ct) = &cotangents[0] {
            let expected = cotangent_type(&types[0]);
            let zeros = b.zeros_next_to(ct, &expected)?;
            let starts = operands[1..].iter().flatten().cloned();
            let args: Vec<Value> = [zeros, ct.clone()].into_iter().chain(starts).collect();
            let (dims, lead) = (self.dims.clone(), self.batch_dims.clone());
            let update = DynamicUpdateSlice {
                dims,
                batch_dims: lead,
                reducer: Some(Reducer::Add),
                out_sharding: None,
            };
            let make = |out| Arc::new(DynamicUpdateSlice { out_sharding: out, ..update.clone() }) as Prim;
            cts[0] = Some(b.emit_with_sharding(&make, &args, expected.spec)?);
        }
        Ok(cts)
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        if let Some(gather) = self.as_gather(batch) {
            return BatchedOp {
                operand_batching: OperandBatching::IndexVectors(1),
                ..BatchedOp::new(Arc::new(gather))
            };
        }
        let prim = DynamicSlice {
            sizes: with_inserted(&self.sizes, 0, batch.batch_dim.size).into(),
            dims: shifted_dims(&self.dims),
            batch_dims: with_leading_batch_dim(&self.batch_dims, batch, 1),
            out_sharding: batch.out_sharding(self.out_sharding, 0),
        };
        BatchedOp { operand_batching: OperandBatching::WithIndices(1), ..BatchedOp::new(Arc::new(prim)) }
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (x, y) = (&operands[0], &results[0]);
        let mut extents = y.shape.to_vec();
        let mut loops: Vec<usize> = (0..x.rank()).collect();
        // in dimensions that are read in full, the start index has no effect
        let (mut at, mut start_operands) = (Vec::new(), Vec::new());
        for (j, &d) in self.dims.iter().enumerate().filter(|(_, d)| x.shape[**d] != y.shape[**d]) {
            loops[d] = extents.len();
            extents.push(x.shape[d]);
            let most = x.shape[d].saturating_sub(y.shape[d]) as i64;
            start_operands.push(1 + j);
            let by = start_operands.len();
            at.push(DynamicIndex {
                loop_id: loops[d],
                operand: by,
                max_start: most,
                mode: OutOfBounds::Clip,
                window: Some(d),
            });
        }
        let dtype = y.dtype.storage();
        let mut reads = vec![access(0, dtype, &extents, loops)];
        if at.is_empty() {
            return view(y, reads.remove(0).pieces, Scalar::zero(dtype));
        }
        reads.extend(start_index_accesses(operands, start_operands, &extents, &self.batch_dims));
        vec![LoopNest {
            rank: y.rank(),
            extents,
            dtype,
            accesses: reads,
            compute: Compute::Gather { indices: at },
        }]
    }
}

impl DynamicUpdateSlice {
    /// Returns the elementwise function of a reducer that is not linear; `None` for linear ones.
    fn nonlinear_function(&self) -> Option<Binary> {
        match self.reducer? {
            Reducer::Add => None,
            Reducer::Mul => Some(Binary::Mul),
            Reducer::Max | Reducer::AssumeEqual => Some(Binary::Max),
            Reducer::Min => Some(Binary::Min),
            Reducer::And => Some(Binary::And),
            Reducer::Or => Some(Binary::Or),
        }
    }
    /// Emits the elements of `x` that an update of this type would replace.
    fn current_window(
        &self,
        b: &mut Builder,
        x: &Value,
        update: &ArrayType,
        starts: &[Value],
    ) -> Result<Value> {
        let args: Vec<Value> = std::iter::once(x).chain(starts).cloned().collect();
        let (dims, lead) = (self.dims.clone(), self.batch_dims.clone());
        let take = DynamicSlice { sizes: update.shape.clone(), dims, batch_dims: lead, out_sharding: None };
        let make = |out| Arc::new(DynamicSlice { out_sharding: out, ..take.clone() }) as Prim;
        b.emit_with_sharding(&make, &args, update.spec)
    }
}

/// Returns the accesses of the start indices, which are the listed operands.
fn start_index_accesses<'a>(
    operands: &'a [ArrayType],
    index_operands: Vec<usize>,
    extents: &'a [usize],
    batch_dims: &'a [usize],
) -> impl Iterator<Item = Access> + 'a {
    let number = |k: usize| (k, &operands[k]);
    let each = index_operands.into_iter().map(number);
    each.map(move |(k, i)| access(k, i.dtype, extents, batch_dims.iter().copied().take(i.rank())))
}

impl Primitive for DynamicUpdateSlice {
    fn name(&self) -> &'static str {
        "dynamic_update_slice"
    }
    fn params(&self) -> String {
        let lead = if self.batch_dims.is_empty() {
            String::new()
        } else {
            format!(", lead={}", format_list(&self.batch_dims))
        };
        let combine = match self.reducer {
            None => "",
            Some(Reducer::Add) => ", add",
            Some(Reducer::Mul) => ", mul",
            Some(Reducer::Max) => ", max",
            Some(Reducer::Min) => ", min",
            Some(Reducer::And) => ", and",
            Some(Reducer::Or) => ", or",
            Some(Reducer::AssumeEqual) => ", same",
        };
        format!("dims={}{lead}{combine}{}", format_list(&self.dims), format_out_sharding(self.out_sharding))
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let types = arity(self.name(), operands, 2 + self.dims.len())?;
        let (x, u) = (types[0], types[1]);
        check_update_dtype(x, u)?;
        check_integer_indices(operands, 2)?;
        match self.reducer {
            None => {}
            Some(Reducer::Add | Reducer::Mul) => DTypeClass::Number.check(operands, 0)?,
            Some(_) => DTypeClass::Ordered.check(operands, 0)?,
        }
        if u.rank() != x.rank() {
            let message = format!("the update has {} dimensions, but the array has {}", u.rank(), x.rank());
            return Err(shape_fault(message).help("give them one rank: `.expand_dims(…)`, `.reshape(…)`"));
        }
        check_box(self.name(), x, &u.shape, &operands[2..], &self.dims, &self.batch_dims)?;
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let (x, u) = (&operands[0].shape, &operands[1].shape);
        let at = |d| if u[d] == x[d] { DimMap::Identity } else { DimMap::Dynamic };
        let mut dims = vec![Dim::each(0..x.rank()), (0..x.rank()).map(|d| Dim::mapped(d, at(d))).collect()];
        dims.extend(start_index_dims(&operands[2..], &self.batch_dims));
        let mut f =
            Factors { operands: dims, results: vec![Dim::each(0..x.rank())], ..Factors::from_sizes(x) };
        if self.out_sharding.is_none() {
            // Start indices with batch dimensions may be unsharded where the batch is sharded.
            for l in (0..x.rank()).filter(|l| !self.batch_dims.contains(l)) {
                f.loops[l].explicit_rule = Some(ExplicitRule::MustMatch);
            }
        }
        f
    }
    fn linearity(&self) -> Linearity {
        match self.reducer {
            None | Some(Reducer::Add) => Linearity::Indexed(2),
            Some(_) => Linearity::None,
        }
    }
    fn priority(&self) -> Priority {
        Priority::DynamicSlice
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let mut args = operands.to_vec();
        for k in 0..2 {
            args[k] = match &tangents[k] {
                Some(t) => t.clone(),
                None => b.zeros(&operands[k].ty)?,
            };
        }
        let Some(fun) = self.nonlinear_function() else {
            return Ok(vec![Some(b.emit1(Arc::new(self.clone()), &args)?)]);
        };
        // The tangent of the function replaces the update. It is computed from the old elements and
        // the update.
        let mut there = |x: &Value| self.current_window(b, x, &operands[1].ty, &operands[2..]);
        let (old, now, of_old) = (there(&operands[0])?, there(&outputs[0])?, there(&args[0])?);
        let at = [old, operands[1].clone()];
        let of = [Some(of_old), tangents[1].clone()];
        let t = fun.jvp(JvpArgs { builder: b, operands: &at, tangents: &of, outputs: &[now] })?;
        let Some(t) = t.into_iter().next().flatten() else { return Ok(vec![None]) };
        args[1] = b.fit_to_type(&t, &operands[1].ty)?;
        let set = DynamicUpdateSlice { reducer: None, ..self.clone() };
        Ok(vec![Some(b.emit1(Arc::new(set), &args)?)])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let mut cts = vec![None; types.len()];
        let Some(ct) = &cotangents[0] else { return Ok(cts) };
        if self.nonlinear_function().is_some() {
            return Err(not_linear_error("dynamic_update_slice"));
        }
        let add = self.reducer.is_some();
        let starts: Vec<Value> = operands[2..].iter().flatten().cloned().collect();
        if operands[0].is_none() && add {
            let (ct, x) = (ct.clone(), cotangent_type(&types[0]));
            cts[0] =
                Some(b.broadcast_in_dim_to(&ct, &x.shape, &(0..x.rank()).collect::<Vec<_>>(), x.spec)?);
        } else if operands[0].is_none() {
            let hole = b.zeros_next_to(ct, &cotangent_type(&types[1]))?;
            let args: Vec<Value> = [ct.clone(), hole].into_iter().chain(starts.iter().cloned()).collect();
            let make = |out| Arc::new(DynamicUpdateSlice { out_sharding: out, ..self.clone() }) as Prim;
            cts[0] = Some(b.emit_with_sharding(&make, &args, cotangent_type(&types[0]).spec)?);
        }
        if operands[1].is_none() {
            cts[1] = Some(self.current_window(b, ct, &cotangent_type(&types[1]), &starts)?);
        }
        Ok(cts)
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let prim = DynamicUpdateSlice {
            dims: shifted_dims(&self.dims),
            batch_dims: with_leading_batch_dim(&self.batch_dims, batch, 2),
            reducer: self.reducer,
            out_sharding: batch.out_sharding(self.out_sharding, 0),
        };
        BatchedOp { operand_batching: OperandBatching::WithIndices(2), ..BatchedOp::new(Arc::new(prim)) }
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (x, u) = (&operands[0], &operands[1]);
        let dtype = x.dtype.storage();
        let mut extents = x.shape.to_vec();
        let mut loops: Vec<usize> = (0..x.rank()).collect();
        let (mut at, mut start_operands) = (Vec::new(), Vec::new());
        for (j, &d) in self.dims.iter().enumerate().filter(|(_, d)| x.shape[**d] != u.shape[**d]) {
            loops[d] = extents.len();
            extents.push(u.shape[d]);
            let most = (x.shape[d] - u.shape[d]) as i64;
            start_operands.push(2 + j);
            let by = 1 + start_operands.len();
            at.push(DynamicIndex {
                loop_id: d,
                operand: by,
                max_start: most,
                mode: OutOfBounds::Clip,
                window: Some(loops[d]),
            });
        }
        let update = access(1, dtype, &extents, loops);
        if at.is_empty() && self.reducer.is_none() {
            return view(&results[0], update.pieces, Scalar::zero(dtype));
        }
        let mut reads = vec![access(0, dtype, &extents, 0..x.rank()), update];
        reads.extend(start_index_accesses(operands, start_operands, &extents, &self.batch_dims));
        let body = Compute::Scatter { indices: at, reducer: self.reducer };
        vec![LoopNest { rank: x.rank(), extents, dtype, accesses: reads, compute: body }]
    }
}
