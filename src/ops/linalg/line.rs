//! A primitive of matrices as a function of lines over two dimensions.

use super::{sizes, whole};
use crate::program::factors::Factors;
use crate::program::sentence::{Affine, Body, Lines, Part, Read, Sentence, Source, Span};
use crate::program::{In, Line, Out, Outs, Primitive};
use crate::types::{ArrayType, DType, Element, Scalar, Shape};
use atmesh_linalg::Real;
use half::{bf16, f16};
use ndarray::{ArrayViewD, ArrayViewMutD, Axis};
use std::fmt;
use std::hash::Hash;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// What a result's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As the operand's.
    Float,
    /// int32
    Int,
}

/// A result of one matrix, row by row.
pub(super) enum Made<T> {
    Floats(Vec<T>),
    Ints(Vec<usize>),
}

/// A primitive of matrices. Sizes are those of the matrices of the first operand, and of the second one's other dimension.
pub(super) trait Matrix: Primitive + Clone + Eq + Hash + fmt::Debug {
    /// How many operands.
    fn operands(&self) -> usize {
        1
    }
    /// Whether the first operand's matrices are square.
    fn square(&self) -> bool {
        true
    }
    /// Of the second operand's matrices, the dimension that has the size of the first one's.
    fn shared(&self) -> usize {
        0
    }
    /// Its results of such matrices.
    fn made(&self, sizes: [usize; 3]) -> Vec<(Kind, Shape)>;
    /// Nanoseconds of a multiplication, of which there are as many as elements times the root of them.
    fn rate(&self) -> f64;
    /// Its results.
    fn compute<T: Real>(&self, operands: &[Vec<T>], sizes: [usize; 3]) -> Vec<Made<T>>;
    /// Its factors.
    fn loops(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        whole(operands, results)
    }
}

/// What each result is. Loops along matrices: their rows and columns, then the other dimension of the second operand's.
pub(super) fn sentences<P: Matrix>(of: &P, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
    let batch = operands[0].rank() - 2;
    let line: Arc<dyn Line> = Arc::new(OfMatrices(of.clone()));
    let one = |(result, y): (usize, &ArrayType)| {
        let rank = y.rank();
        let mut extents = y.shape.to_vec();
        extents.extend(sizes(&operands[0]));
        let mut matrices = vec![[rank, rank + 1]];
        if let [_, b] = operands {
            extents.push(sizes(b)[1 - of.shared()]);
            matrices.push(if of.shared() == 0 { [rank, rank + 2] } else { [rank + 2, rank] });
        }
        let read = |(k, ty): (usize, &ArrayType)| {
            let map = (0..batch).chain(matrices[k]).map(|l| Affine::of(0, l, 1)).collect();
            let part = Part { from: Source::Value(k), span: Span::whole(&extents), map };
            Read { dtype: ty.dtype, parts: vec![part], fill: Scalar::zero(ty.dtype) }
        };
        let reads = operands.iter().enumerate().map(read).collect();
        let body = Body::Lines(Lines { of: line.clone(), result, along: (batch..rank).collect() });
        Sentence { extents, rank, dtype: y.dtype, reads, body }
    };
    results.iter().enumerate().map(one).collect()
}

/// The function of matrices.
#[derive(Debug)]
struct OfMatrices<P>(P);

impl<P: Matrix> OfMatrices<P> {
    fn sizes(&self, along: &[usize]) -> Option<[usize; 3]> {
        match (self.0.operands(), along) {
            (1, [m, n]) => Some([*m, *n, 0]),
            (2, [m, n, k]) => Some([*m, *n, *k]),
            _ => None,
        }
    }
}

impl<P: Matrix> Line for OfMatrices<P> {
    fn key(&self) -> String {
        format!("{} {}", self.0.name(), self.0.params())
    }
    fn cost(&self, elements: usize) -> f64 {
        let n = elements as f64;
        let products = if self.0.operands() == 1 { n * n.sqrt() } else { n + n.cbrt().powi(2) };
        500.0 + self.0.rate() * products
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        let wrong = || format!("{} does not take such matrices", self.0.name());
        let (dtype, along) = operands.first().ok_or_else(wrong)?;
        let sizes = self.sizes(along).ok_or_else(wrong)?;
        let square = !self.0.square() || sizes[0] == sizes[1];
        let alike = operands.iter().all(|o| o.0 == *dtype);
        if operands.len() != self.0.operands() || !dtype.is_float() || !alike || !square {
            return Err(wrong());
        }
        let one = |(kind, shape)| (if kind == Kind::Int { DType::I32 } else { *dtype }, shape);
        Ok(self.0.made(sizes).into_iter().map(one).collect())
    }
    /// Of 16-bit floats in float32.
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        let loops = self.0.operands() + 1;
        let along = &ins[0].shape()[ins[0].shape().len() - loops..];
        let Some(sizes) = self.sizes(along) else { return };
        if loops > 2 && along.contains(&0) {
            return;
        }
        let of = Of { operands: self.0.operands(), shared: self.0.shared(), made: self.0.made(sizes) };
        let single = |x: &[Vec<f32>]| self.0.compute(x, sizes);
        match ins[0].dtype() {
            DType::F16 => of.each(ins, outs, f16::to_f32, f16::from_f32, &single),
            DType::BF16 => of.each(ins, outs, bf16::to_f32, bf16::from_f32, &single),
            DType::F32 => of.each(ins, outs, |x: f32| x, |x| x, &single),
            DType::F64 => of.each(ins, outs, |x: f64| x, |x| x, &|x| self.0.compute(x, sizes)),
            _ => unreachable!("matrices are of floats"),
        }
    }
}

/// What is asked of a primitive once for all matrices, so that the loop over them is compiled once for each element type.
struct Of {
    operands: usize,
    shared: usize,
    made: Vec<(Kind, Shape)>,
}

/// Results of one matrix, by its operands.
type Compute<'a, W> = &'a dyn Fn(&[Vec<W>]) -> Vec<Made<W>>;

impl Of {
    fn each<T: Element, W: Real>(
        &self,
        ins: &[In<'_>],
        outs: &mut Outs<'_>,
        wide: impl Fn(T) -> W,
        narrow: impl Fn(W) -> T,
        compute: Compute<'_, W>,
    ) {
        let operands: Vec<Vec<ArrayViewD<'_, T>>> =
            ins.iter().enumerate().map(|(k, x)| blocks(self.own(k, x.view::<T>()), 2)).collect();
        let mut made: Vec<Option<Out<'_>>> = (0..self.made.len()).map(|k| outs.take(k)).collect();
        let mut rooms: Vec<Room<'_, T>> = (made.iter_mut().zip(&self.made))
            .map(|(y, (kind, shape))| match (y, kind) {
                (None, _) => Room::None,
                (Some(y), Kind::Float) => Room::Floats(blocks_mut(y.fresh::<T>(), shape.rank())),
                (Some(y), Kind::Int) => Room::Ints(blocks_mut(y.fresh::<i32>(), shape.rank())),
            })
            .collect();
        let mut matrices: Vec<Vec<W>> = vec![Vec::new(); operands.len()];
        for line in 0..operands[0].len() {
            for (x, all) in matrices.iter_mut().zip(&operands) {
                x.clear();
                x.extend(all[line].iter().map(|x| wide(*x)));
            }
            for (room, made) in rooms.iter_mut().zip(compute(&matrices)) {
                match (room, made) {
                    (Room::Floats(y), Made::Floats(made)) => write(&mut y[line], made, &narrow),
                    (Room::Ints(y), Made::Ints(made)) => write(&mut y[line], made, |i| i as i32),
                    _ => {}
                }
            }
        }
    }
    /// Of the loops along lines those that operand k has, in the order of its dimensions.
    fn own<'a, T>(&self, k: usize, x: ArrayViewD<'a, T>) -> ArrayViewD<'a, T> {
        let last = x.ndim() - 1;
        match (self.operands, k, self.shared) {
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

/// Where a result of each matrix goes.
enum Room<'a, T> {
    None,
    Floats(Vec<ArrayViewMutD<'a, MaybeUninit<T>>>),
    Ints(Vec<ArrayViewMutD<'a, MaybeUninit<i32>>>),
}

fn write<T, W>(y: &mut ArrayViewMutD<'_, MaybeUninit<T>>, made: Vec<W>, narrow: impl Fn(W) -> T) {
    for (y, x) in y.iter_mut().zip(made) {
        y.write(narrow(x));
    }
}

/// The parts of a view over its last `along` dimensions.
fn blocks<T>(x: ArrayViewD<'_, T>, along: usize) -> Vec<ArrayViewD<'_, T>> {
    let mut list = vec![x];
    while list.first().is_some_and(|x| x.ndim() > along) {
        let mut parts = Vec::new();
        for x in list {
            parts.extend((0..x.len_of(Axis(0))).map(|i| x.clone().index_axis_move(Axis(0), i)));
        }
        list = parts;
    }
    list
}

/// The same, to write.
fn blocks_mut<T>(y: ArrayViewMutD<'_, T>, along: usize) -> Vec<ArrayViewMutD<'_, T>> {
    let mut list = vec![y];
    while list.first().is_some_and(|y| y.ndim() > along) {
        let mut parts = Vec::new();
        for mut y in list {
            while y.len_of(Axis(0)) > 0 {
                let (first, rest) = y.split_at(Axis(0), 1);
                parts.push(first.index_axis_move(Axis(0), 0));
                y = rest;
            }
        }
        list = parts;
    }
    list
}
