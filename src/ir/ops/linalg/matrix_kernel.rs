//! The row kernel that all matrix operations share.
//!
//! A row of an operand is one matrix, with two loops. The kernel copies each matrix, calls the
//! operation, and writes the results.

use super::{matrix_sizes, whole_matrix_factors};
use crate::core::types::{ArrayType, DType, Element, Scalar, Shape};
use crate::ir::program::factors::Factors;
use crate::ir::program::loop_nest::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, RowKernelCall, Source, StridedRange,
};
use crate::ir::program::{Primitive, RowInput, RowKernel, RowOutput, RowOutputs};
use atmesh_linalg::Real;
use half::{bf16, f16};
use ndarray::{ArrayViewD, ArrayViewMutD, Axis};
use std::fmt;
use std::hash::Hash;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The kind of elements that a result has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultKind {
    /// The operand's element type.
    Float,
    /// The element type int32, for indices.
    Int,
}

/// A result for one matrix, in row-major order.
pub(super) enum MatrixResult<T> {
    /// Elements of the operand's type.
    Floats(Vec<T>),
    /// Indices.
    Ints(Vec<usize>),
}

/// A primitive that maps matrices to matrices, vectors or scalars.
///
/// Sizes are `[m, n, k]`: the first operand has `m`×`n` matrices, and `k` is the size of that
/// dimension of the second operand's matrices that is not shared.
pub(super) trait MatrixOp: Primitive + Clone + Eq + Hash + fmt::Debug {
    /// Returns the number of operands.
    fn num_operands(&self) -> usize {
        1
    }
    /// Returns true if the first operand's matrices must be square.
    fn requires_square(&self) -> bool {
        true
    }
    /// Returns the dimension of the second operand's matrices whose size the first operand shares.
    fn shared_dim(&self) -> usize {
        0
    }
    /// Returns the element kinds and shapes of the results for one matrix.
    fn result_kinds(&self, sizes: [usize; 3]) -> Vec<(ResultKind, Shape)>;
    /// Returns the cost of one multiplication, in nanoseconds.
    ///
    /// An operation on a matrix of e elements is assumed to take e·√e multiplications.
    fn ns_per_mul(&self) -> f64;
    /// Computes the results for one matrix of each operand.
    fn compute<T: Real>(&self, operands: &[Vec<T>], sizes: [usize; 3]) -> Vec<MatrixResult<T>>;
    /// Returns the factors of the operation.
    fn loops(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        whole_matrix_factors(operands, results)
    }
}

/// Returns the loop nest of each result.
///
/// The loops within a row are the rows and columns of the first operand's matrices, then the
/// dimension of the second operand's matrices that is not shared.
pub(super) fn matrix_loop_nests<P: MatrixOp>(
    prim: &P,
    operands: &[ArrayType],
    results: &[ArrayType],
) -> Vec<LoopNest> {
    let batch = operands[0].rank() - 2;
    let row_kernel: Arc<dyn RowKernel> = Arc::new(MatrixRowKernel(prim.clone()));
    let one = |(result, y): (usize, &ArrayType)| {
        let rank = y.rank();
        let mut extents = y.shape.to_vec();
        extents.extend(matrix_sizes(&operands[0]));
        let mut matrices = vec![[rank, rank + 1]];
        if let [_, b] = operands {
            extents.push(matrix_sizes(b)[1 - prim.shared_dim()]);
            matrices.push(if prim.shared_dim() == 0 { [rank, rank + 2] } else { [rank + 2, rank] });
        }
        let read = |(k, ty): (usize, &ArrayType)| {
            let map = (0..batch).chain(matrices[k]).map(|l| AffineExpr::linear(0, l, 1)).collect();
            let piece =
                AccessPiece { source: Source::Value(k), ranges: StridedRange::full_box(&extents), map };
            Access { dtype: ty.dtype, pieces: vec![piece], fill: Scalar::zero(ty.dtype) }
        };
        let reads = operands.iter().enumerate().map(read).collect();
        let body = Compute::RowKernel(RowKernelCall {
            kernel: row_kernel.clone(),
            result_index: result,
            row_loops: (batch..rank).collect(),
        });
        LoopNest { extents, rank, dtype: y.dtype, accesses: reads, compute: body }
    };
    results.iter().enumerate().map(one).collect()
}

/// The row kernel of a matrix operation.
#[derive(Debug)]
struct MatrixRowKernel<P>(P);

impl<P: MatrixOp> MatrixRowKernel<P> {
    /// Returns the sizes `[m, n, k]` from the sizes of the loops within a row.
    fn sizes_from_rows(&self, along: &[usize]) -> Option<[usize; 3]> {
        match (self.0.num_operands(), along) {
            (1, [m, n]) => Some([*m, *n, 0]),
            (2, [m, n, k]) => Some([*m, *n, *k]),
            _ => None,
        }
    }
}

impl<P: MatrixOp> RowKernel for MatrixRowKernel<P> {
    fn key(&self) -> String {
        format!("{} {}", self.0.name(), self.0.params())
    }
    fn cost(&self, elements: usize) -> f64 {
        let n = elements as f64;
        let products = if self.0.num_operands() == 1 { n * n.sqrt() } else { n + n.cbrt().powi(2) };
        500.0 + self.0.ns_per_mul() * products
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        let wrong = || format!("{} does not take such matrices", self.0.name());
        let (dtype, along) = operands.first().ok_or_else(wrong)?;
        let sizes = self.sizes_from_rows(along).ok_or_else(wrong)?;
        let square = !self.0.requires_square() || sizes[0] == sizes[1];
        let alike = operands.iter().all(|o| o.0 == *dtype);
        if operands.len() != self.0.num_operands() || !dtype.is_float() || !alike || !square {
            return Err(wrong());
        }
        let one = |(kind, shape)| (if kind == ResultKind::Int { DType::I32 } else { *dtype }, shape);
        Ok(self.0.result_kinds(sizes).into_iter().map(one).collect())
    }
    /// Runs the operation on all matrices.
    ///
    /// 16-bit floats are computed in float32.
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        let loops = self.0.num_operands() + 1;
        let along = &ins[0].shape()[ins[0].shape().len() - loops..];
        let Some(sizes) = self.sizes_from_rows(along) else { return };
        if loops > 2 && along.contains(&0) {
            return;
        }
        let of = MatrixLoop {
            num_operands: self.0.num_operands(),
            shared_dim: self.0.shared_dim(),
            result_kinds: self.0.result_kinds(sizes),
        };
        let single = |x: &[Vec<f32>]| self.0.compute(x, sizes);
        match ins[0].dtype() {
            DType::F16 => of.run_all(ins, outs, f16::to_f32, f16::from_f32, &single),
            DType::BF16 => of.run_all(ins, outs, bf16::to_f32, bf16::from_f32, &single),
            DType::F32 => of.run_all(ins, outs, |x: f32| x, |x| x, &single),
            DType::F64 => of.run_all(ins, outs, |x: f64| x, |x| x, &|x| self.0.compute(x, sizes)),
            _ => unreachable!("matrices are of floats"),
        }
    }
}

/// The properties of an operation that the loop over matrices needs.
///
/// They are values instead of type parameters, so that the loop is compiled once per element type
/// and not once per operation.
struct MatrixLoop {
    /// The number of operands.
    num_operands: usize,
    /// The dimension of the second operand's matrices that both operands share.
    shared_dim: usize,
    /// The element kind and shape of each result for one matrix.
    result_kinds: Vec<(ResultKind, Shape)>,
}

/// A function that computes the results for one matrix of each operand.
type ComputeFn<'a, W> = &'a dyn Fn(&[Vec<W>]) -> Vec<MatrixResult<W>>;

impl MatrixLoop {
    /// Runs `compute` on all matrices, converting elements from `T` to `W` and back.
    fn run_all<T: Element, W: Real>(
        &self,
        ins: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
        wide: impl Fn(T) -> W,
        narrow: impl Fn(W) -> T,
        compute: ComputeFn<'_, W>,
    ) {
        let operands: Vec<Vec<ArrayViewD<'_, T>>> = ins
            .iter()
            .enumerate()
            .map(|(k, x)| matrix_views(self.operand_view(k, x.view::<T>()), 2))
            .collect();
        let mut made: Vec<Option<RowOutput<'_>>> =
            (0..self.result_kinds.len()).map(|k| outs.take(k)).collect();
        let mut output_views: Vec<OutputViews<'_, T>> = (made.iter_mut().zip(&self.result_kinds))
            .map(|(y, (kind, shape))| match (y, kind) {
                (None, _) => OutputViews::None,
                (Some(y), ResultKind::Float) => {
                    OutputViews::Floats(matrix_views_mut(y.uninit_view::<T>(), shape.rank()))
                }
                (Some(y), ResultKind::Int) => {
                    OutputViews::Ints(matrix_views_mut(y.uninit_view::<i32>(), shape.rank()))
                }
            })
            .collect();
        let mut matrices: Vec<Vec<W>> = vec![Vec::new(); operands.len()];
        for row in 0..operands[0].len() {
            for (x, all) in matrices.iter_mut().zip(&operands) {
                x.clear();
                x.extend(all[row].iter().map(|x| wide(*x)));
            }
            for (output, made) in output_views.iter_mut().zip(compute(&matrices)) {
                match (output, made) {
                    (OutputViews::Floats(y), MatrixResult::Floats(made)) => {
                        write_converted(&mut y[row], made, &narrow)
                    }
                    (OutputViews::Ints(y), MatrixResult::Ints(made)) => {
                        write_converted(&mut y[row], made, |i| i as i32)
                    }
                    _ => {}
                }
            }
        }
    }
    /// Returns a view of operand `k` with only the loops that its matrices have, in order.
    fn operand_view<'a, T>(&self, k: usize, x: ArrayViewD<'a, T>) -> ArrayViewD<'a, T> {
        let last = x.ndim() - 1;
        match (self.num_operands, k, self.shared_dim) {
            (1, _, _) => x,
            (_, 0, _) => x.index_axis_move(Axis(last), 0),
            (_, _, 0) => x.index_axis_move(Axis(last - 1), 0),
            _ => {
                let mut x = x.index_axis_move(Axis(last - 1), 0);
                x.swap_axes(last - 2, last - 1);
                x
            }
        }
    }
}

/// The views of all matrices of a result, to be written.
enum OutputViews<'a, T> {
    /// The result is not used.
    None,
    /// Views of a result with the operand's element type.
    Floats(Vec<ArrayViewMutD<'a, MaybeUninit<T>>>),
    /// Views of a result of indices.
    Ints(Vec<ArrayViewMutD<'a, MaybeUninit<i32>>>),
}

/// Writes the elements of one matrix to its view.
fn write_converted<T, W>(y: &mut ArrayViewMutD<'_, MaybeUninit<T>>, made: Vec<W>, narrow: impl Fn(W) -> T) {
    for (y, x) in y.iter_mut().zip(made) {
        y.write(narrow(x));
    }
}

/// Splits a view into the views of its last `along` dimensions.
fn matrix_views<T>(x: ArrayViewD<'_, T>, along: usize) -> Vec<ArrayViewD<'_, T>> {
    let mut list = vec![x];
    while list.first().is_some_and(|x| x.ndim() > along) {
        let mut views = Vec::new();
        for x in list {
            views.extend((0..x.len_of(Axis(0))).map(|i| x.clone().index_axis_move(Axis(0), i)));
        }
        list = views;
    }
    list
}

/// Splits a mutable view into the views of its last `along` dimensions.
fn matrix_views_mut<T>(y: ArrayViewMutD<'_, T>, along: usize) -> Vec<ArrayViewMutD<'_, T>> {
    let mut list = vec![y];
    while list.first().is_some_and(|y| y.ndim() > along) {
        let mut views = Vec::new();
        for mut y in list {
            while y.len_of(Axis(0)) > 0 {
                let (first, rest) = y.split_at(Axis(0), 1);
                views.push(first.index_axis_move(Axis(0), 0));
                y = rest;
            }
        }
        list = views;
    }
    list
}
