//! The results of matrix operations, computed by the crate `atmesh_linalg`, one matrix at a time.
//!
//! The row kernel copies each matrix, calls the operation, and writes the results.

use super::{ResultKind, ResultKinds};
use crate::core::{DType, Element};
use crate::ir::program::{RowInput, RowOutput, RowOutputs};
use atmesh_linalg::Real;
use half::{bf16, f16};
use ndarray::{ArrayViewD, ArrayViewMutD, Axis};
use std::mem::MaybeUninit;

/// A result for one matrix, in row-major order.
pub(super) enum MatrixResult<T> {
    /// Elements of the operand's type.
    Floats(Vec<T>),
    /// Indices.
    Ints(Vec<usize>),
}

/// An operation whose results for one matrix can be computed.
pub(super) trait ComputeMatrix {
    /// Computes the results for one matrix of each operand. Sizes are those of `MatrixOp`.
    fn compute<T: Real>(&self, operands: &[Vec<T>], sizes: [usize; 3]) -> Vec<MatrixResult<T>>;
}

/// Runs an operation on all matrices of its operands. 16-bit floats are computed in float32.
///
/// The second operand's matrices share dimension `shared_dim` with those of the first.
pub(super) fn run_rows<P: ComputeMatrix>(
    op: &P,
    sizes: [usize; 3],
    (num_operands, shared_dim): (usize, usize),
    result_kinds: ResultKinds,
    ins: &[RowInput<'_>],
    outs: &mut RowOutputs<'_>,
) {
    let of = MatrixLoop { num_operands, shared_dim, result_kinds };
    let single = |x: &[Vec<f32>]| op.compute(x, sizes);
    match ins[0].dtype() {
        DType::F16 => of.run_all(ins, outs, f16::to_f32, f16::from_f32, &single),
        DType::BF16 => of.run_all(ins, outs, bf16::to_f32, bf16::from_f32, &single),
        DType::F32 => of.run_all(ins, outs, |x: f32| x, |x| x, &single),
        DType::F64 => of.run_all(ins, outs, |x: f64| x, |x| x, &|x| op.compute(x, sizes)),
        _ => unreachable!("matrices are of floats"),
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
    result_kinds: ResultKinds,
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
                read_converted(&all[row], x, &wide);
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

/// Appends the elements of one matrix, in row-major order.
fn read_converted<T: Copy, W>(x: &ArrayViewD<'_, T>, to: &mut Vec<W>, wide: impl Fn(T) -> W) {
    match x.as_slice() {
        Some(x) => to.extend(x.iter().map(|x| wide(*x))),
        None => x.rows().into_iter().for_each(|x| to.extend(x.iter().map(|x| wide(*x)))),
    }
}

/// Writes the elements of one matrix to its view.
fn write_converted<T, W: Copy>(
    y: &mut ArrayViewMutD<'_, MaybeUninit<T>>,
    made: Vec<W>,
    narrow: impl Fn(W) -> T,
) {
    let write = |y: &mut MaybeUninit<T>, x: &W| {
        y.write(narrow(*x));
    };
    if let Some(y) = y.as_slice_mut() {
        return y.iter_mut().zip(&made).for_each(|(y, x)| write(y, x));
    }
    let columns = y.shape().last().map_or(1, |n| *n);
    for (mut y, made) in y.rows_mut().into_iter().zip(made.chunks_exact(columns.max(1))) {
        y.iter_mut().zip(made).for_each(|(y, x)| write(y, x));
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
