//! The primitive `ragged_dot`: products of the rows of groups with one matrix per group.

use super::dim_check::{arity, format_out_sharding};
use super::dot_general::format_precision;
use super::elementwise::{DTypeClass, common_dtype};
use super::structural::out_sharding_rules;
use crate::core::{ArrayType, DType, Fault, Precision, Result, Shape, Spec};
use crate::ir::program::typing::{cotangent_type, not_linear_error};
use crate::ir::program::{
    Access, BatchedOp, Builder, Compute, Dim, ExplicitRule, Factors, JvpArgs, Linearity, LoopId, LoopNest,
    NamedOp, OperandBatching, Prim, Primitive, RowKernelCall, Tangents, TransposeArgs, TypedOperand, Value,
    VmapArgs,
};
use crate::kernels::row::ragged_dot::RaggedDotKernel;
use std::sync::Arc;

/// A sum of products over the rows of groups: `ragged_dot`.
///
/// The operands are rows `x`, a boolean mask that says which group has which row, and `y`. The
/// three are contracted, where each element of the mask counts as 0 or 1:
///
/// | | `x` | mask | `y` | result |
/// |---|---|---|---|---|
/// | [`PerRow`](RaggedDotMode::PerRow) | `[r, k]` | `[r, g]` | `[g, k, n]` | `[r, n]` |
/// | [`PerGroup`](RaggedDotMode::PerGroup) | `[r, k]` | `[r, g]` | `[r, n]` | `[g, k, n]` |
///
/// The second is the derivative of the first by `y`. All operands start with the batch dimensions,
/// and r is any number of dimensions. Elements that the mask excludes do not contribute, even if
/// they are infinite.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RaggedDot {
    /// The form of the product.
    pub mode: RaggedDotMode,
    /// The number of batch dimensions, which come first in all operands and in the result.
    pub num_batch_dims: usize,
    /// The number of dimensions of the rows.
    pub num_row_dims: usize,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
    /// The precision of float32 products on XLA's accelerators.
    pub precision: Precision,
}

/// The form of a [`RaggedDot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RaggedDotMode {
    /// The result has one row for each row of `x`: its product with the matrices of its groups.
    PerRow,
    /// The result has one matrix for each group: the sum of outer products of its rows.
    PerGroup,
}

/// The loops of the dimensions of a [`RaggedDot`].
struct RaggedLoops {
    /// The loops of `x`, the mask and `y`.
    operands: [Vec<LoopId>; 3],
    /// The number of dimensions of the result, whose loops come first.
    rank: usize,
}

impl RaggedDot {
    /// Returns a product without batch dimensions.
    pub fn new(mode: RaggedDotMode) -> RaggedDot {
        let precision = Precision::default();
        RaggedDot { mode, num_batch_dims: 0, num_row_dims: 1, out_sharding: None, precision }
    }
    /// Returns the loops: batch, then the result's dimensions, then the summed dimensions.
    fn loops(&self) -> RaggedLoops {
        let (batch, rows) = (self.num_batch_dims, self.num_row_dims);
        let (row, group, inner, column, rank) = match self.mode {
            RaggedDotMode::PerRow => {
                let column = batch + rows;
                (batch, column + 1, column + 2, column, column + 1)
            }
            RaggedDotMode::PerGroup => (batch + 3, batch, batch + 1, batch + 2, batch + 3),
        };
        let of_rows = |last: LoopId| (0..batch).chain(row..row + rows).chain([last]).collect::<Vec<_>>();
        let y = match self.mode {
            RaggedDotMode::PerRow => (0..batch).chain([group, inner, column]).collect(),
            RaggedDotMode::PerGroup => of_rows(column),
        };
        RaggedLoops { operands: [of_rows(inner), of_rows(group), y], rank }
    }
    /// Returns the number of iterations of each loop.
    fn extents(&self, operands: &[ArrayType]) -> Vec<usize> {
        let loops = self.loops().operands;
        let num_loops = self.num_batch_dims + self.num_row_dims + 3;
        let mut extents = vec![0; num_loops];
        for (ty, loops) in operands.iter().zip(&loops) {
            ty.shape.iter().zip(loops).for_each(|(n, l)| extents[*l] = *n);
        }
        extents
    }
    /// Returns this product in another mode, without a requested sharding.
    fn in_mode(&self, mode: RaggedDotMode) -> RaggedDot {
        RaggedDot { mode, out_sharding: None, ..self.clone() }
    }
    /// Returns an error if the ranks or sizes of the operands do not fit.
    fn check(&self, operands: &[TypedOperand]) -> Result<(), Fault> {
        let loops = self.loops().operands;
        for (k, (o, loops)) in operands.iter().zip(&loops).enumerate() {
            if o.ty.rank() != loops.len() {
                let text = format!(
                    "operand {} has {} dimensions, and {} takes {}",
                    o.user_index(k),
                    o.ty.rank(),
                    self.name(),
                    loops.len()
                );
                return Err(Fault::new(crate::core::ErrorKind::Shape, text));
            }
        }
        let mut seen: Vec<Option<(usize, usize)>> = vec![None; self.num_batch_dims + self.num_row_dims + 3];
        for (k, d, l) in loops
            .iter()
            .enumerate()
            .flat_map(|(k, loops)| loops.iter().enumerate().map(move |(d, l)| (k, d, *l)))
        {
            let Some((j, e)) = seen[l] else {
                seen[l] = Some((k, d));
                continue;
            };
            let (one, two) = (&operands[j], &operands[k]);
            let (m, n) = (one.ty.shape[e], two.ty.shape[d]);
            if m != n {
                return Err(fault!(
                    Shape,
                    "{} has size {m}, {} size {n}: they must be equal",
                    one.describe_dim(j, e),
                    two.describe_dim(k, d)
                )
                .help("make them equal: `slice`, `pad`")
                .highlight_dim(j, e)
                .highlight_dim(k, d));
            }
        }
        Ok(())
    }
    /// Emits this product with exactly the sharding of the cotangent of an operand of type `of`.
    fn emit_cotangent(&self, b: &mut Builder, operands: [&Value; 3], of: &ArrayType) -> Result<Value> {
        let make = |out_sharding| Arc::new(RaggedDot { out_sharding, ..self.clone() }) as Prim;
        b.emit_with_sharding(&make, &operands.map(Value::clone), cotangent_type(of).spec)
    }
}

impl Primitive for RaggedDot {
    described!(self, self.kernel_name(), Linearity::Contraction);
    fn params(&self) -> String {
        let (batch, rows) = (self.num_batch_dims, self.num_row_dims);
        let mut parts = Vec::new();
        if batch > 0 {
            parts.push(format!("batch_dims={batch}"));
        }
        if rows != 1 {
            parts.push(format!("row_dims={rows}"));
        }
        let text =
            parts.join(", ") + &format_out_sharding(self.out_sharding) + &format_precision(self.precision);
        text.trim_start_matches(", ").to_string()
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let types = arity(self.name(), operands, 3)?;
        self.check(operands)?;
        if types[1].dtype != DType::Bool {
            let text = format!("the mask of {} is {}: it must be bool", self.name(), types[1].dtype);
            return Err(Fault::new(crate::core::ErrorKind::Dtype, text));
        }
        let dtype = common_dtype(&[operands[0].clone(), operands[2].clone()], 0).map_err(|mut fault| {
            fault.highlights.iter_mut().filter(|h| h.0 == 1).for_each(|h| h.0 = 2);
            fault
        })?;
        DTypeClass::Number.check(operands, 0)?;
        let types: Vec<ArrayType> = types.into_iter().cloned().collect();
        Ok(vec![(dtype, self.extents(&types)[..self.loops().rank].into())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let RaggedLoops { operands: loops, rank } = self.loops();
        let mut f = Factors::default();
        for (l, n) in self.extents(operands).into_iter().enumerate() {
            match l < self.num_batch_dims {
                true => f.add_loop_with_rule(n, ExplicitRule::FirstWins),
                false => f.add_loop(n),
            };
        }
        f.operands = loops.into_iter().map(Dim::each).collect();
        f.results = vec![Dim::each(0..rank)];
        f
    }
    out_sharding_rules!();
    fn named_op(&self, _: &[ArrayType]) -> Option<NamedOp> {
        let RaggedDot { mode, num_batch_dims, num_row_dims, precision, .. } = *self;
        let per_group = mode == RaggedDotMode::PerGroup;
        Some(NamedOp::RaggedDot { per_group, num_batch_dims, num_row_dims, precision })
    }
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let (x, mask, y) = (&operands[0], &operands[1], &operands[2]);
        let mut term =
            |x: &Value, y: &Value| b.emit1(Arc::new(self.clone()), &[x.clone(), mask.clone(), y.clone()]);
        let by_x = tangents[0].as_ref().map(|t| term(t, y)).transpose()?;
        let by_y = tangents[2].as_ref().map(|t| term(x, t)).transpose()?;
        Ok(vec![b.add_optional(by_x, by_y)?])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None; 3]) };
        let (per_row, per_group) =
            (self.in_mode(RaggedDotMode::PerRow), self.in_mode(RaggedDotMode::PerGroup));
        match (self.mode, operands) {
            (RaggedDotMode::PerRow, [None, Some(mask), Some(y)]) => {
                let y = b.swap_last_dims(y)?;
                Ok(vec![Some(per_row.emit_cotangent(b, [ct, mask, &y], &types[0])?), None, None])
            }
            (RaggedDotMode::PerGroup, [None, Some(mask), Some(y)]) => {
                let ct = b.swap_last_dims(ct)?;
                Ok(vec![Some(per_row.emit_cotangent(b, [y, mask, &ct], &types[0])?), None, None])
            }
            (RaggedDotMode::PerRow, [Some(x), Some(mask), None]) => {
                Ok(vec![None, None, Some(per_group.emit_cotangent(b, [x, mask, ct], &types[2])?)])
            }
            (RaggedDotMode::PerGroup, [Some(x), Some(mask), None]) => {
                Ok(vec![None, None, Some(per_row.emit_cotangent(b, [x, mask, ct], &types[2])?)])
            }
            _ => Err(not_linear_error(self.kernel_name())),
        }
    }
    /// Examples that share the matrices are further rows.
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let shared = self.mode == RaggedDotMode::PerRow && self.num_batch_dims == 0 && !batch.mapped[2];
        let prim = RaggedDot {
            num_batch_dims: self.num_batch_dims + usize::from(!shared),
            num_row_dims: self.num_row_dims + usize::from(shared),
            out_sharding: batch.out_sharding(self.out_sharding, 0),
            ..self.clone()
        };
        let operand_batching = OperandBatching::WithIndices(if shared { 2 } else { 3 });
        BatchedOp { operand_batching, ..BatchedOp::new(Arc::new(prim)) }
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let RaggedLoops { operands: loops, rank } = self.loops();
        let extents = self.extents(operands);
        let read = |(k, loops): (usize, &Vec<LoopId>)| {
            let loops: Vec<_> = loops.iter().copied().map(Some).collect();
            Access::from_loops(k, operands[k].dtype, &extents, &loops)
        };
        let kernel = Arc::new(RaggedDotKernel {
            per_group: self.mode == RaggedDotMode::PerGroup,
            num_row_dims: self.num_row_dims,
            num_groups: operands[1].shape.last().copied().unwrap_or(1),
        });
        let call = RowKernelCall { kernel, result_index: 0, row_loops: Default::default() };
        vec![LoopNest {
            accesses: loops.iter().enumerate().map(read).collect(),
            extents,
            rank,
            dtype: results[0].dtype,
            compute: Compute::RowKernel(call),
        }]
    }
}

impl RaggedDot {
    /// Returns the name of the primitive, which is that of its mode.
    fn kernel_name(&self) -> &'static str {
        match self.mode {
            RaggedDotMode::PerRow => "ragged_dot",
            RaggedDotMode::PerGroup => "ragged_dot_per_group",
        }
    }
}

impl Builder {
    /// Emits `x` with its last two dimensions exchanged.
    fn swap_last_dims(&mut self, x: &Value) -> Result<Value> {
        let mut order: Vec<usize> = (0..x.ty.rank()).collect();
        order.swap(x.ty.rank() - 2, x.ty.rank() - 1);
        self.transpose(x, &order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        rows_keep_their_sharding: RaggedDot::new(RaggedDotMode::PerRow), ["float32[4@X,2]", "bool[4@X,2]", "float32[2,2,6@Y]"] => r#"
            (a: float32[4@X,2], b: bool[4@X,2], c: float32[2,2,6@Y]) {
              d: float32[4@X,6@Y] = ragged_dot a b c
              return d
            }
            tangents: (a: float32[4@X,2], b: bool[4@X,2], c: float32[2,2,6@Y], d: float32[4@X,2], e: float32[2,2,6@Y]) {
              f: float32[4@X,6@Y] = ragged_dot a b c
              g: float32[4@X,6@Y] = ragged_dot d b c
              h: float32[4@X,6@Y] = ragged_dot a b e
              i: float32[4@X,6@Y] = add g h
              return f, i
            }
            cotangents: (a: float32[4@X,2], b: bool[4@X,2], c: float32[2,2,6@Y], d: float32[4@X,6@Y]) {
              e: float32[2,2,6@Y] = ragged_dot_per_group[out=p![_, _, "Y"]] a b d
              f: float32[2,6@Y,2] = transpose[permutation=[0,2,1]] c
              g: float32[4@X,2] = ragged_dot[out=p!["X", _]] d b f
              return g, e
            }
        "#;
        matrices_of_groups: RaggedDot::new(RaggedDotMode::PerGroup), ["float32[4,2@X]", "bool[4,2]", "float32[4,6@Y]"] => r#"
            (a: float32[4,2@X], b: bool[4,2], c: float32[4,6@Y]) {
              d: float32[2,2@X,6@Y] = ragged_dot_per_group a b c
              return d
            }
            tangents: (a: float32[4,2@X], b: bool[4,2], c: float32[4,6@Y], d: float32[4,2@X], e: float32[4,6@Y]) {
              f: float32[2,2@X,6@Y] = ragged_dot_per_group a b c
              g: float32[2,2@X,6@Y] = ragged_dot_per_group d b c
              h: float32[2,2@X,6@Y] = ragged_dot_per_group a b e
              i: float32[2,2@X,6@Y] = add g h
              return f, i
            }
            cotangents: (a: float32[4,2@X], b: bool[4,2], c: float32[4,6@Y], d: float32[2,2@X,6@Y]) {
              e: float32[4,6@Y] = ragged_dot[out=p![_, "Y"]] a b d
              f: float32[2,6@Y,2@X] = transpose[permutation=[0,2,1]] d
              g: float32[4,2@X] = ragged_dot[out=p![_, "X"]] c b f
              return g, e
            }
        "#;
        a_sum_over_rows_is_ambiguous: RaggedDot::new(RaggedDotMode::PerGroup), ["float32[4@X,2]", "bool[4@X,2]", "float32[4@X,6]"] => r#"
            error: dimension 0 of operand 0, 4@X, and dimension 0 of operand 1, 4@X, are contracted: the result could be summed over X, summed and scattered, or left unreduced
            all-reduced: p![_, _, _]
            scattered: p!["X", _, _]
            left unreduced, to be summed later: p![_, _, _; U: "X"]
        "#;
        a_sum_over_groups_is_ambiguous: RaggedDot::new(RaggedDotMode::PerRow), ["float32[4,2]", "bool[4,2@X]", "float32[2@X,2,6]"] => r#"
            error: dimension 1 of operand 1, 2@X, and dimension 0 of operand 2, 2@X, are contracted: the result could be summed over X, summed and scattered, or left unreduced
            all-reduced: p![_, _]
            scattered: p!["X", _]
            left unreduced, to be summed later: p![_, _; U: "X"]
        "#;
        masks_are_bools: RaggedDot::new(RaggedDotMode::PerRow), ["float32[4,2]", "int32[4,2]", "float32[2,2,6]"] => r#"
            error: the mask of ragged_dot is int32: it must be bool
        "#;
    }
}
