//! Primitives of whole lines along one dimension: running sums and their kin, recurrences, sorts.
//!
//! Each is a function of lines ([`Line`]) and says along which dimension: the others pass, that one is needed whole.

mod best;
mod key;
mod order;
mod recurrence;
mod scan;
mod sort;

pub use best::TopK;
pub use recurrence::Recurrence;
pub use scan::{Running, Scan};
pub use sort::{Argsort, Sort};

use crate::diagnostic::{ErrorKind, Fault};
use crate::program::factors::{Dim, Factors};
use crate::program::sentence::{Affine, Body, Lines, Part, Read, Sentence, Source, Span};
use crate::program::{Line, Operand};
use crate::types::{ArrayType, Scalar};
use ndarray::{ArrayView1, ArrayViewD, ArrayViewMut1, ArrayViewMutD, Axis};
use std::sync::Arc;

/// Refuses a dimension that the operand does not have.
fn check_axis(axis: usize, operands: &[Operand]) -> Result<(), Fault> {
    let rank = operands[0].ty.rank();
    if axis < rank {
        return Ok(());
    }
    let fault =
        Fault::new(ErrorKind::Shape, format!("there is no dimension {axis} in an array of rank {rank}"));
    Err(match rank {
        0 => fault.help("a scalar has no dimensions: `.reshape([1])` gives it one"),
        _ => fault.help("dimensions are counted from 0"),
    })
}

/// Refuses operands of unlike shapes.
fn one_shape(operands: &[Operand]) -> Result<(), Fault> {
    let first = &operands[0].ty.shape;
    match operands.iter().position(|o| o.ty.shape != *first) {
        None => Ok(()),
        Some(k) => Err(Fault::new(
            ErrorKind::Shape,
            format!(
                "operand {} has shape {}, operand {} has {first}: they must be of one shape",
                operands[k].number(k),
                operands[k].ty.shape,
                operands[0].number(0),
            ),
        )
        .help(format!("repeat operand {}: `.broadcast_to({first})`", operands[k].number(k)))),
    }
}

/// A loop for each dimension, the same in all operands and results; the one along lines is needed whole.
fn factors(operands: &[ArrayType], axis: usize, results: usize) -> Factors {
    let mut f = Factors::over(&operands[0].shape);
    f.loops[axis].whole = true;
    let dims = Dim::each(0..operands[0].rank());
    f.operands = vec![dims.clone(); operands.len()];
    f.results = vec![dims; results];
    f
}

/// Result `k` of a function of the operands' lines along dimension `axis`.
fn sentence(
    of: Arc<dyn Line>,
    k: usize,
    operands: &[ArrayType],
    axis: usize,
    result: &ArrayType,
) -> Sentence {
    let rank = result.rank();
    let mut extents = result.shape.to_vec();
    extents.push(operands[0].shape[axis]);
    let map: Vec<Affine> = (0..rank).map(|d| Affine::of(0, if d == axis { rank } else { d }, 1)).collect();
    let read = |(k, ty): (usize, &ArrayType)| {
        let dtype = ty.dtype.storage();
        let part = Part { from: Source::Value(k), span: Span::whole(&extents), map: map.clone() };
        Read { dtype, parts: vec![part], fill: Scalar::zero(dtype) }
    };
    let reads = operands.iter().enumerate().map(read).collect();
    let body = Body::Lines(Lines { of, result: k, along: std::iter::once(axis).collect() });
    Sentence { extents, rank, dtype: result.dtype.storage(), reads, body }
}

/// The lines of a view, which run along its last dimension.
fn lanes<T>(x: ArrayViewD<'_, T>) -> Vec<ArrayView1<'_, T>> {
    let mut list = Vec::new();
    fn add<'a, T>(x: ArrayViewD<'a, T>, list: &mut Vec<ArrayView1<'a, T>>) {
        if x.ndim() > 1 {
            return (0..x.len_of(Axis(0))).for_each(|i| add(x.clone().index_axis_move(Axis(0), i), list));
        }
        list.extend(x.into_dimensionality());
    }
    add(x, &mut list);
    list
}

/// The same, to write.
fn lanes_mut<T>(y: ArrayViewMutD<'_, T>) -> Vec<ArrayViewMut1<'_, T>> {
    let mut list = Vec::new();
    fn add<'a, T>(mut y: ArrayViewMutD<'a, T>, list: &mut Vec<ArrayViewMut1<'a, T>>) {
        if y.ndim() > 1 {
            while y.len_of(Axis(0)) > 0 {
                let (first, rest) = y.split_at(Axis(0), 1);
                add(first.index_axis_move(Axis(0), 0), list);
                y = rest;
            }
            return;
        }
        list.extend(y.into_dimensionality());
    }
    add(y, &mut list);
    list
}
