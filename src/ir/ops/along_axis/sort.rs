//! Sorts along a dimension, and the indices that sort it.

use super::{check_axis, check_one_shape, factors, row_loop_nest};
use crate::core::{ArrayType, DType, Fault, Result, Scalar, Shape, types::with_dtype};
use crate::ir::ops::elementwise::DTypeClass;
use crate::ir::ops::indexing::{Gather, GatherDims};
use crate::ir::program::{
    BatchedOp, Builder, ExplicitRule, Factors, JvpArgs, Linearity, LoopNest, NamedOp, OutOfBounds,
    ParallelRowKernel, Primitive, RowInput, RowKernel, RowOutput, RowOutputs, Tangents, TransposeArgs,
    TypedOperand, Value, VmapArgs, parallel_unless_wasm, typing::not_linear_error,
};
use crate::kernels::row::merge_sort::{IndexSortStages as ByPlaces, KeySortStages};
use crate::kernels::row::radix_sort;
use crate::kernels::row::sort_key::{KeyIndex, Ordered, fits_64_bits};
use crate::kernels::row::{lanes, lanes_mut};
use ndarray::{ArrayView1, ArrayViewMut1};
use std::cmp::Ordering;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A sort of several operands along a dimension, in ascending order: `sort{dimension, keys}`.
///
/// The operands have equal shapes, and the first `keys` of them are the sort keys; the first one is
/// the primary key. The sort is stable; NaN comes last; −0 and 0 are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    /// The dimension along which the operands are sorted.
    pub axis: usize,
    /// The number of operands that are keys.
    pub keys: usize,
}

/// The int32 indices that sort operands along a dimension: `argsort{dimension, keys}`.
///
/// They are the indices at which a sort of these operands finds its elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Argsort {
    /// The dimension along which the operands are sorted.
    pub axis: usize,
    /// The number of operands that are keys.
    pub keys: usize,
}

/// Returns an error if the operands or parameters are not valid for either primitive.
fn check(name: &str, operands: &[TypedOperand], axis: usize, keys: usize) -> Result<(), Fault> {
    if operands.is_empty() || !(1..=operands.len()).contains(&keys) {
        return Err(fault!(
            Shape,
            "{name} of {} operands by {keys} keys: keys are the first of one or more operands",
            operands.len()
        )
        .help("keys are counted from 1 to the number of operands"));
    }
    check_one_shape(operands)?;
    check_axis(axis, operands)?;
    (0..operands.len())
        .filter(|k| *k < keys || operands[*k].ty.dtype.is_complex())
        .try_for_each(|k| DTypeClass::Ordered.check(operands, k))
}

/// Returns factors that require the same sharding of all operands.
fn same_sharding(operands: &[ArrayType], axis: usize, results: usize) -> Factors {
    let mut f = factors(operands, axis, results);
    for l in (0..f.loops.len()).filter(|l| *l != axis && operands.len() > 1) {
        f.loops[l].explicit_rule = Some(ExplicitRule::MustMatch);
    }
    f
}

impl Primitive for Sort {
    described!(self, "sort", Linearity::None, format!("dimension={}, keys={}", self.axis, self.keys));
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        check("sort", operands, self.axis, self.keys)?;
        Ok(operands.iter().map(|o| (o.ty.dtype, o.ty.shape.clone())).collect())
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        same_sharding(operands, self.axis, operands.len())
    }
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        // the same row kernel returns the indices, so that both results are computed together
        let from = b.emit1(Arc::new(Argsort { axis: self.axis, keys: self.keys }), operands)?;
        tangents.iter().map(|t| t.as_ref().map(|t| b.pick_along(&from, t, self.axis)).transpose()).collect()
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Err(not_linear_error("sort"))
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::all_batched(Arc::new(Sort { axis: self.axis + 1, ..self.clone() }), false)
    }
    fn named_op(&self, _: &[ArrayType]) -> Option<NamedOp> {
        Some(NamedOp::Sort { axis: self.axis, num_keys: self.keys, indices: false })
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let row_kernel = Arc::new(SortKernel { num_keys: self.keys, num_operands: operands.len() });
        let one = |(k, y)| row_loop_nest(row_kernel.clone(), k, operands, self.axis, y);
        results.iter().enumerate().map(one).collect()
    }
}

impl Primitive for Argsort {
    described!(self, "argsort", Linearity::None, format!("dimension={}, keys={}", self.axis, self.keys));
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        check("argsort", operands, self.axis, self.keys)?;
        Ok(vec![(DType::I32, operands[0].ty.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        same_sharding(operands, self.axis, 1)
    }
    crate::ir::ops::structural::no_derivative!("argsort");
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::all_batched(Arc::new(Argsort { axis: self.axis + 1, ..self.clone() }), false)
    }
    fn named_op(&self, _: &[ArrayType]) -> Option<NamedOp> {
        Some(NamedOp::Sort { axis: self.axis, num_keys: self.keys, indices: true })
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let row_kernel = Arc::new(SortKernel { num_keys: self.keys, num_operands: operands.len() });
        vec![row_loop_nest(row_kernel, operands.len(), operands, self.axis, &results[0])]
    }
}

impl Builder {
    /// Gathers elements of `x` along a dimension, with separate indices for each row.
    ///
    /// All indices must be in bounds.
    pub(in crate::ir::ops) fn pick_along(&mut self, places: &Value, x: &Value, axis: usize) -> Result<Value> {
        let rank = x.ty.rank();
        let indices = self.expand_dims(places, &[rank])?;
        let batching = (0..rank).filter(|d| *d != axis).map(|d| (d, d)).collect();
        let (of, collapsed) = (vec![axis], vec![axis]);
        let at = GatherDims {
            start_index_map: of,
            collapsed_dims: collapsed,
            batching_dims: batching,
            offset_dims: Vec::new(),
            mode: OutOfBounds::Clip,
        };
        let (sizes, fill) = (vec![1; rank].into(), Scalar::zero(x.ty.dtype));
        self.emit1(
            Arc::new(Gather { dims: at, slice_sizes: sizes, fill, out_sharding: None }),
            &[x.clone(), indices],
        )
    }
}

/// The row kernel of a sort: its results are the sorted operands, followed by the original indices.
#[derive(Debug)]
pub(super) struct SortKernel {
    /// The number of leading operands that are keys.
    pub(super) num_keys: usize,
    /// The number of operands.
    pub(super) num_operands: usize,
}

impl RowKernel for SortKernel {
    fn key(&self) -> String {
        format!("sort of {} by {}", self.num_operands, self.num_keys)
    }
    fn cost(&self, elements: usize) -> f64 {
        let n = elements as f64;
        1.5 * n * (n + 1.0).log2().max(1.0)
    }
    fn parallel(
        &self,
        operands: &[DType],
        elements: usize,
        asked: &[bool],
    ) -> Option<Arc<dyn ParallelRowKernel>> {
        let bits = with_dtype!(operands[0], real T => <T as Ordered>::BITS);
        match asked {
            [true] | [true, false] if operands.len() == 1 => parallel_unless_wasm(KeySortStages(operands[0])),
            _ if self.num_keys == 1 && fits_64_bits(bits, elements) => {
                parallel_unless_wasm(ByPlaces(self.num_operands))
            }
            _ => None,
        }
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [x, ..]
                if operands.len() == self.num_operands
                    && x.1.len() == 1
                    && operands.iter().all(|o| o.1 == x.1 && !o.0.is_complex()) =>
            {
                Ok(operands.iter().cloned().chain([(DType::I32, x.1.clone())]).collect())
            }
            _ => Err(format!("a sort needs {} rows of equal length", self.num_operands)),
        }
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        let mut made: Vec<Option<RowOutput<'_>>> = (0..=self.num_operands).map(|k| outs.take(k)).collect();
        if let ([x], [Some(y), None]) = (ins, &mut made[..]) {
            return with_dtype!(x.dtype(), real T => sort_single::<T>(x, y));
        }
        let Some((from, riders)) = made.split_last_mut() else { return };
        let mut columns: Vec<Box<dyn Column + '_>> = Vec::with_capacity(ins.len());
        for (x, y) in ins.iter().zip(riders) {
            columns.push(with_dtype!(x.dtype(), real T => TypedColumn::<T>::boxed(x, y)));
        }
        let mut from = from.as_mut().map(|from| lanes_mut(from.uninit_view::<i32>()));
        let mut order = SortOrder::default();
        for row in 0..columns[0].num_rows() {
            order.find(&columns[..self.num_keys], row);
            columns.iter_mut().for_each(|c| c.write_row(row, &order.permutation));
            if let Some(from) = &mut from {
                for (y, index) in from[row].iter_mut().zip(&order.permutation) {
                    y.write(*index as i32);
                }
            }
        }
    }
}

/// Sorts the rows of a single operand.
// not inlined: its caller would have the code of all element types
#[inline(never)]
fn sort_single<T: Ordered>(x: &RowInput<'_>, y: &mut RowOutput<'_>) {
    let (mut keys, mut scratch, mut zeros) = (Vec::new(), Vec::new(), Vec::<T>::new());
    for (x, mut y) in lanes(x.view::<T>()).into_iter().zip(lanes_mut(y.uninit_view::<T>())) {
        keys.clear();
        keys.extend(x.iter().map(|x| x.key()));
        scratch.clone_from(&keys);
        radix_sort::sort(&mut keys, &mut scratch, 0..T::BITS);
        y.iter_mut().zip(&keys).for_each(|(y, key)| {
            y.write(T::from_key(*key));
        });
        // zeros keep their signs, in their original order
        if let Some(zero) = x.iter().find(|x| x.negative_zero()).map(|x| x.key()) {
            zeros.clear();
            zeros.extend(x.iter().filter(|x| x.key() == zero));
            let first = keys.partition_point(|key| *key < zero);
            y.iter_mut().skip(first).zip(&zeros).for_each(|(y, zero)| {
                y.write(*zero);
            });
        }
    }
}

/// The rows of an operand of any element type, and those of its result.
trait Column {
    /// Returns the number of rows.
    fn num_rows(&self) -> usize;
    /// Returns the number of bits in a key.
    fn bits(&self) -> u32;
    /// Writes the keys of a row to `keys`.
    fn write_keys(&self, row: usize, keys: &mut Vec<u64>);
    /// Writes the elements of a row in the order `from`, if the result is requested.
    fn write_row(&mut self, row: usize, from: &[usize]);
}

struct TypedColumn<'a, T> {
    /// The rows of the operand.
    operand_rows: Vec<ArrayView1<'a, T>>,
    /// The rows of the result; `None` if it is not requested.
    result_rows: Option<Vec<ArrayViewMut1<'a, MaybeUninit<T>>>>,
}

impl<'a, T: Ordered> TypedColumn<'a, T> {
    fn boxed(x: &'a RowInput<'_>, y: &'a mut Option<RowOutput<'_>>) -> Box<dyn Column + 'a> {
        let y = y.as_mut().map(|y| lanes_mut(y.uninit_view::<T>()));
        Box::new(TypedColumn { operand_rows: lanes(x.view::<T>()), result_rows: y })
    }
}

impl<T: Ordered> Column for TypedColumn<'_, T> {
    fn num_rows(&self) -> usize {
        self.operand_rows.len()
    }
    fn bits(&self) -> u32 {
        T::BITS
    }
    fn write_keys(&self, row: usize, keys: &mut Vec<u64>) {
        keys.clear();
        keys.extend(self.operand_rows[row].iter().map(|x| x.key().into()));
    }
    fn write_row(&mut self, row: usize, from: &[usize]) {
        let Some(y) = &mut self.result_rows else { return };
        let x = &self.operand_rows[row];
        for (y, index) in y[row].iter_mut().zip(from) {
            y.write(x[*index]);
        }
    }
}

/// The sorted order of a row. Its memory is reused for the next row.
#[derive(Default)]
struct SortOrder {
    /// The original index of each element, in sorted order.
    permutation: Vec<usize>,
    /// The keys of each operand that is a key.
    keys: Vec<Vec<u64>>,
    /// Buffers for keys with indices in 64 bits.
    packed_u64: [Vec<u64>; 2],
    /// Buffers for keys with indices in 128 bits.
    packed_u128: [Vec<u128>; 2],
}

impl SortOrder {
    fn find(&mut self, columns: &[Box<dyn Column + '_>], row: usize) {
        self.keys.resize(columns.len(), Vec::new());
        for (column, keys) in columns.iter().zip(&mut self.keys) {
            column.write_keys(row, keys);
        }
        self.permutation.clear();
        let bits = columns[0].bits();
        match &self.keys[..] {
            [keys] if fits_64_bits(bits, keys.len()) => {
                sort_with_indices(keys, bits, &mut self.packed_u64, &mut self.permutation)
            }
            [keys] => sort_with_indices(keys, bits, &mut self.packed_u128, &mut self.permutation),
            keys => {
                self.permutation.extend(0..keys[0].len());
                let order = |a: &usize, b: &usize| {
                    keys.iter().map(|k| k[*a].cmp(&k[*b])).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
                };
                self.permutation.sort_by(order);
            }
        }
    }
}

fn sort_with_indices<P: KeyIndex>(
    keys: &[u64],
    bits: u32,
    [placed, room]: &mut [Vec<P>; 2],
    from: &mut Vec<usize>,
) {
    placed.clear();
    placed.extend(keys.iter().enumerate().map(|(place, key)| P::new(*key, place)));
    room.clone_from(placed);
    radix_sort::sort(placed, room, P::KEY_SHIFT..P::KEY_SHIFT + bits);
    from.extend(placed.iter().map(|p| p.index()));
}
