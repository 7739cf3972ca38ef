//! Matmuls as the access maps of their operands, and the rows of values that they access.

use super::plan::{FusionPlan, FusionRoot, RowDims};
use super::policy::rows_dominate;
use super::space::{GroupSpace, SpaceAccess};
use crate::core::types::DType;
use crate::core::util::small_sort;
use crate::ir::program::loop_nest::Source;
use crate::kernels::gemm::ProductKind;
use crate::partition::Slot;
use crate::partition::buffers::index::{LoopVec, MAX_LOOPS};
use crate::partition::buffers::{OperandAccess, ReductionLoops, ShardBox};
use smallvec::SmallVec;

/// An operand or the result of a matmul.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatmulOperand {
    /// The value.
    pub(crate) value: Slot,
    /// The offset, in elements.
    pub(crate) offset: i64,
    /// The strides of the result's dimensions, in elements.
    pub(crate) strides: LoopVec,
}

/// The dimensions of a matmul's result, merged where possible, and its operands.
#[derive(Clone, Debug)]
pub(crate) struct MatmulSpace {
    /// The element type of the accumulator.
    dtype: DType,
    /// The loops that become dimensions, before any are merged.
    pub(crate) order: Vec<usize>,
    /// The dimensions that are merged with the next one, in the order in which they are merged.
    pub(crate) merged: SmallVec<[usize; 4]>,
    /// The number of dimensions.
    pub(crate) rank: usize,
    /// The dimension sizes.
    pub(crate) ext: LoopVec,
    /// The left operand, the right operand and the result.
    pub(crate) operands: [MatmulOperand; 3],
    /// The dimension that is the rows of a matrix; `None` if there is one row only.
    pub(crate) row_dim: Option<usize>,
    /// The dimension that is the columns of a matrix, if there are several.
    pub(crate) column_dim: Option<usize>,
    /// The kind of the product.
    pub(crate) kind: ProductKind,
    /// The accesses of the operations on the result, over the merged dimensions.
    epilogue: Option<GroupSpace>,
    /// The number of contracted terms.
    pub(crate) depth: i64,
    /// For each partial of the result, the contracted terms of its shards in both operands.
    blocks: Vec<SmallVec<[[OperandTerms; 2]; 1]>>,
    /// The number of terms of all blocks.
    num_terms: i64,
}

/// The elements of an operand that a block of contracted terms reads.
#[derive(Clone, Copy, Debug)]
struct OperandTerms {
    /// The first element.
    first: i64,
    /// The distance from the first to the last element.
    distance: i64,
    /// True if a loop steps backward.
    steps_backward: bool,
}

/// The role of a dimension of the result.
#[derive(Clone, Copy, PartialEq, Debug)]
enum DimClass {
    /// Only the left operand has it.
    Row,
    /// Only the right operand has it.
    Column,
    /// Both operands have it, or neither.
    Batch,
}

/// Returns the class of dimension `d` of the result.
fn dim_class([a, b, _]: &[MatmulOperand; 3], d: usize) -> DimClass {
    match (a.strides[d] != 0, b.strides[d] != 0) {
        (true, false) => DimClass::Row,
        (false, true) => DimClass::Column,
        _ => DimClass::Batch,
    }
}

/// Returns the floating-point operations per microsecond of one core.
pub(crate) fn matmul_flops_per_us(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 110e3,
        _ if dtype.is_float() => 55e3,
        _ if dtype.is_complex() => 8e3,
        DType::I64 | DType::U64 => 8e3,
        _ => 40e3,
    }
}

impl MatmulSpace {
    /// Returns the space of the matmul of a group.
    /// If the result is computed in the memory of another value, `same` is that value.
    pub(crate) fn new(g: &FusionPlan<'_, '_>, group: usize, same: Option<Slot>) -> MatmulSpace {
        let FusionRoot::Matmul(k) = g.groups[group].root else { unreachable!("the root is a matmul") };
        let f = g.reduction_loops(k);
        let v = &g.program.values[f.out];
        let own = usize::from(v.num_partials > 1);
        let order: Vec<usize> = (0..f.rank).filter(|l| f.ext[*l] != 1).collect();
        let mut c = MatmulOperand { value: same.unwrap_or(f.out), offset: 0, strides: [0; MAX_LOOPS] };
        let mut ext = [1; MAX_LOOPS];
        for (e, &l) in order.iter().enumerate() {
            c.strides[e] = v.strides[l + own];
            ext[e] = f.ext[l];
        }
        let [a, b] = [0, 1].map(|k| operand(g, &f.reads[k], &order));
        let has_epilogue = !g.groups[group].members.is_empty();
        let blocks = f.partials.iter().map(|c| c.iter().filter_map(|s| term_block(f, s)).collect());
        let terms = |s: &ShardBox| (f.rank..f.num_loops).map(|l| s.hi[l] - s.lo[l]).product::<i64>();
        let mut m = MatmulSpace {
            dtype: f.dtype,
            rank: order.len(),
            ext,
            operands: [a, b, c],
            merged: SmallVec::new(),
            row_dim: None,
            column_dim: None,
            kind: ProductKind::MatMat,
            epilogue: has_epilogue.then(|| GroupSpace::of_epilogue(g, group, &order, (f.out, c.value))),
            order,
            depth: (f.rank..f.num_loops).map(|l| f.ext[l]).product(),
            blocks: blocks.collect(),
            num_terms: f.filled_boxes().map(terms).sum(),
        };
        m.merge_dims();
        (m.row_dim, m.column_dim, m.kind) = m.choose_matrix();
        m
    }
    /// Merges adjacent dimensions of the same class.
    fn merge_dims(&mut self) {
        for d in (0..self.rank.saturating_sub(1)).rev() {
            let e = self.ext[d + 1];
            let alike = self.operands.iter().all(|x| x.strides[d] == x.strides[d + 1] * e);
            if dim_class(&self.operands, d) != dim_class(&self.operands, d + 1)
                || !alike
                || self.epilogue.as_ref().is_some_and(|t| !t.can_collapse(d))
            {
                continue;
            }
            if let Some(t) = &mut self.epilogue {
                t.collapse_pair(d);
            }
            for x in &mut self.operands {
                x.strides.copy_within(d + 1.., d);
                x.strides[MAX_LOOPS - 1] = 0;
            }
            self.ext[d + 1] *= self.ext[d];
            self.ext.copy_within(d + 1.., d);
            self.ext[MAX_LOOPS - 1] = 1;
            self.rank -= 1;
            self.merged.push(d);
        }
    }
    /// Returns the dimensions of rows and columns of the matrices, and the kind of the product.
    fn choose_matrix(&self) -> (Option<usize>, Option<usize>, ProductKind) {
        let of = |k: DimClass| (0..self.rank).filter(move |d| dim_class(&self.operands, *d) == k);
        let largest = |k: DimClass| of(k).max_by_key(|d| self.ext[*d]);
        let every = |k: DimClass| of(k).map(|d| self.ext[d] as usize).product();
        let kind = ProductKind::for_shape(every(DimClass::Row), every(DimClass::Column));
        (largest(DimClass::Row), largest(DimClass::Column), kind)
    }
    /// Returns the element type of the accumulator.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }
    /// Returns the number of elements of the result.
    pub(crate) fn elements(&self) -> i64 {
        self.ext[..self.rank].iter().product()
    }
    /// Returns the approximate time of the products on one core, in microseconds.
    pub(super) fn product_us(&self) -> f64 {
        2.0 * self.elements() as f64 * self.depth as f64 / matmul_flops_per_us(self.dtype)
    }
    /// Returns the values that the operations on the result access.
    pub(super) fn epilogue_values(&self) -> impl Iterator<Item = Slot> {
        self.epilogue.iter().flat_map(GroupSpace::values)
    }
    /// Returns the number of consecutive rows that are rows of one matrix.
    pub(super) fn rows_per_matrix(&self, along: &RowDims) -> i64 {
        along.dims.last().map_or(1, |d| self.ext[*d])
    }
    /// Returns the row dimensions if the matmul computes its result row by row.
    ///
    /// The result has `rows` rows of `row` elements. All other values of the matmul must have the
    /// same rows; `made` returns the size of a row of a value, in bytes.
    pub(super) fn produces_rows(
        &self,
        (rows, row): (i64, i64),
        made: impl Fn(Slot) -> Option<i64>,
    ) -> Option<RowDims> {
        let c = &self.operands[2];
        let along = rows_dominate(row, self.num_terms).then(|| self.row_dims(c, rows, row, &[]))??;
        let number = |d: usize| if along.dims.contains(&d) { c.strides[d] / row } else { 0 };
        let local = |m: &SpaceAccess| {
            let Some(bytes) = m.value.and_then(&made) else { return true };
            let inside = |d: &usize| !along.dims.contains(d);
            let last = |d: usize| m.strides[d] * (self.ext[d] - 1);
            let high: i64 = (0..self.rank).filter(inside).map(last).sum();
            let forward = (0..self.rank).all(|d| m.strides[d] >= 0) && m.offset >= 0;
            forward
                && along.dims.iter().all(|d| m.strides[*d] == number(*d) * bytes)
                && m.offset + high + m.element_bytes <= bytes
        };
        self.epilogue.iter().flat_map(|t| &t.accesses).all(local).then_some(along)
    }
    /// Returns the row dimensions if exactly one operand reads this value, row by row.
    pub(super) fn consumes_rows(&self, value: Slot, rows: i64, row: i64) -> Option<RowDims> {
        let k = match [0, 1].map(|k| self.operands[k].value == value) {
            [true, false] => 0,
            [false, true] => 1,
            _ => return None,
        };
        let x = &self.operands[k];
        let columns: i64 = (0..self.rank).filter(|d| x.strides[*d] == 0).map(|d| self.ext[d]).product();
        let blocks = || self.blocks.iter().flatten();
        if !rows_dominate(row, columns) || blocks().flatten().any(|b| b.steps_backward) {
            return None;
        }
        let terms: Vec<(i64, i64)> = blocks().map(|b| (b[k].first, b[k].distance)).collect();
        self.row_dims(x, rows, row, &terms)
    }
    /// Returns the dimensions that enumerate the rows of `x`, if each index stays within one row.
    /// `blocks` has the first element of each contraction block and the distance to its last one.
    fn row_dims(&self, x: &MatmulOperand, rows: i64, row: i64, blocks: &[(i64, i64)]) -> Option<RowDims> {
        if self.kind != ProductKind::MatMat || self.blocks.len() != 1 || x.offset < 0 || row == 0 {
            return None;
        }
        let used = || (0..self.rank).filter(|d| x.strides[*d] != 0);
        let mut dims: SmallVec<[usize; 4]> = used().filter(|d| x.strides[*d] >= row).collect();
        small_sort::sort_by_key(&mut dims, |d| std::cmp::Reverse(x.strides[*d]));
        let mut step = row;
        for d in dims.iter().rev() {
            if x.strides[*d] != step {
                return None;
            }
            step *= self.ext[*d];
        }
        let last = dims.last()?;
        let inside = || used().filter(|d| x.strides[*d] < row);
        let within: i64 = inside().map(|d| x.strides[d] * (self.ext[d] - 1)).sum();
        let first = blocks.iter().map(|b| b.0).min().unwrap_or(0);
        let most = blocks.iter().map(|b| b.0 + b.1).max().unwrap_or(0);
        let fine = step == row * rows
            && inside().all(|d| x.strides[d] > 0)
            && (Some(*last) == self.row_dim || Some(*last) == self.column_dim)
            && x.offset + first >= 0
            && x.offset + most + within < row;
        fine.then_some(RowDims { dims })
    }
}

/// Returns an operand with its strides along the dimensions `order`.
fn operand(g: &FusionPlan<'_, '_>, o: &OperandAccess, order: &[usize]) -> MatmulOperand {
    let p = &o.boxes[0];
    let Source::Value(s) = p.source else { unreachable!("operands of a matmul are values") };
    let mut strides = [0; MAX_LOOPS];
    for (e, &l) in order.iter().enumerate() {
        strides[e] = p.strides[l];
    }
    MatmulOperand { value: g.program.alias_root(s), offset: p.offset, strides }
}

/// Returns the terms of a shard in both operands; `None` if there are no terms.
fn term_block(f: &ReductionLoops, s: &ShardBox) -> Option<[OperandTerms; 2]> {
    let loops = || f.rank..f.num_loops;
    if loops().any(|l| s.hi[l] <= s.lo[l]) {
        return None;
    }
    Some([0, 1].map(|k| {
        let strides = &f.reads[k].boxes[0].strides;
        OperandTerms {
            first: loops().map(|l| s.lo[l] * strides[l]).sum(),
            distance: loops().map(|l| (s.hi[l] - s.lo[l] - 1) * strides[l]).sum(),
            steps_backward: loops().any(|l| s.hi[l] - s.lo[l] > 1 && strides[l] < 0),
        }
    }))
}
