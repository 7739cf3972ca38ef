//! The greatest elements of lines.

use super::key::{Ordered, Placed, small};
use super::radix::by_comparison;
use super::{check_axis, lanes, lanes_mut, sentence};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::build::not_linear;
use crate::ops::elementwise::Takes;
use crate::ops::view::arity;
use crate::program::factors::{Dim, Factors, Linearity, Priority};
use crate::program::sentence::{Combine, Sentence};
use crate::program::{
    Back, Batch, Batched, Cut, Familiar, Forward, In, Line, Made, Operand, Out, Outs, Primitive, Stages,
    Tangents, staged,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape, with_dtype};
use ndarray::{ArrayView1, ArrayViewMut1, Ix1, s};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// `top_k{k, axis}`: the k greatest elements along a dimension, the greatest first, and where they are, int32. Of equal elements the
/// first comes first; NaN is greater than all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopK {
    /// How many.
    pub k: usize,
    /// Along which dimension.
    pub axis: usize,
}

impl Primitive for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }
    fn params(&self) -> String {
        format!("k={}, axis={}", self.k, self.axis)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity("top_k", operands, 1)?[0];
        check_axis(self.axis, operands)?;
        Takes::Ordered.check(operands, 0)?;
        let n = x.shape[self.axis];
        if self.k > n {
            let text =
                format!("there are no {} greatest elements of {n} along dimension {}", self.k, self.axis);
            return Err(Fault::new(ErrorKind::Shape, text)
                .help(format!("ask for at most {n}"))
                .dim(0, self.axis));
        }
        let mut shape = x.shape.clone();
        shape.sizes_mut()[self.axis] = self.k;
        Ok(vec![(x.dtype, shape.clone()), (DType::I32, shape)])
    }
    /// As for all lines; but what comes out of one has a loop of its own.
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let x = &operands[0];
        let mut f = Factors::over(&x.shape);
        f.loops[self.axis].whole = true;
        let best = f.add(self.k);
        f.operands = vec![Dim::each(0..x.rank())];
        f.results = vec![Dim::each((0..x.rank()).map(|d| if d == self.axis { best } else { d })); 2];
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(&self, Forward { b, tangents, outputs, .. }: Forward<'_>) -> Result<Tangents> {
        let t = tangents[0].as_ref().map(|t| b.pick_along(&outputs[1], t, self.axis)).transpose()?;
        Ok(vec![t, None])
    }
    fn transpose(&self, _: Back<'_>) -> Result<Tangents> {
        Err(not_linear("top_k"))
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(TopK { axis: self.axis + 1, ..self.clone() }))
    }
    fn familiar(&self, _: &[ArrayType]) -> Option<Familiar> {
        Some(Familiar::Best { axis: self.axis, k: self.k })
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let line = Arc::new(Along { k: self.k });
        let one = |(k, y)| sentence(line.clone(), k, operands, self.axis, y);
        results.iter().enumerate().map(one).collect()
    }
}

/// The function of lines: the greatest elements, and their places.
#[derive(Debug)]
pub(super) struct Along {
    pub(super) k: usize,
}

impl Line for Along {
    fn key(&self) -> String {
        format!("top {}", self.k)
    }
    fn cost(&self, elements: usize) -> f64 {
        let k = self.k as f64;
        elements as f64 + 10.0 * k * (k + 1.0).log2()
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [(dtype, n)] if matches!(n[..], [n] if n >= self.k) && !dtype.is_complex() => {
                Ok(self.found(*dtype))
            }
            _ => Err(format!("the {} greatest are of one line that has as many", self.k)),
        }
    }
    fn cut(&self, operands: &[DType]) -> Cut {
        let of = Arc::new(Candidates { k: self.k });
        let neutral = Combine::Max.neutral(operands[0]);
        Cut::Best { k: self.k, block: Arc::new(Along { k: self.k }), of, neutral }
    }
    fn stages(&self, _: &[DType], elements: usize, _: &[bool]) -> Option<Arc<dyn Stages>> {
        (self.k <= elements / SHARE).then_some(Runs { k: self.k }).and_then(staged)
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        let (mut values, mut places) = (outs.take(0), outs.take(1));
        with_dtype!(ins[0].dtype(), real T => match small(<T as Ordered>::BITS, ins[0].shape().last().copied().unwrap_or(0)) {
            true => self.along::<T, u64>(&ins[0], &mut values, &mut places),
            false => self.along::<T, u128>(&ins[0], &mut values, &mut places),
        })
    }
}

impl Along {
    /// The elements and their places.
    fn found(&self, dtype: DType) -> Vec<(DType, Shape)> {
        [dtype, DType::I32].map(|dtype| (dtype, Shape::from([self.k]))).to_vec()
    }
    fn along<T: Ordered, P: Placed>(
        &self,
        x: &In<'_>,
        values: &mut Option<Out<'_>>,
        places: &mut Option<Out<'_>>,
    ) {
        let mut values = values.as_mut().map(|y| lanes_mut(y.fresh::<T>()));
        let mut places = places.as_mut().map(|y| lanes_mut(y.fresh::<i32>()));
        let mut best: Vec<P> = Vec::new();
        for (line, x) in lanes(x.view::<T>()).into_iter().enumerate() {
            greatest(self.k, &x, &mut best);
            put(
                &x,
                &best,
                values.as_mut().map(|y| y[line].view_mut()),
                places.as_mut().map(|y| y[line].view_mut()),
            );
        }
    }
}

/// An element and its place: the greatest have the least of these.
#[inline(always)]
fn placed<T: Ordered, P: Placed>((place, x): (usize, &T)) -> P {
    P::new((u64::MAX >> (64 - T::BITS)) - x.key().into(), place)
}

/// The k greatest elements of a line.
fn greatest<T: Ordered, P: Placed>(k: usize, x: &ArrayView1<'_, T>, best: &mut Vec<P>) {
    match x.as_slice().filter(|_| !on_a_page!()) {
        Some(x) => by_blocks(k, x, placed, best),
        None => least(k, x.iter().enumerate().map(placed), best),
    }
}

/// Writes elements of a line and their places.
fn put<T: Ordered, P: Placed>(
    x: &ArrayView1<'_, T>,
    best: &[P],
    values: Option<ArrayViewMut1<'_, MaybeUninit<T>>>,
    places: Option<ArrayViewMut1<'_, MaybeUninit<i32>>>,
) {
    if let Some(y) = values {
        y.into_iter().zip(best).for_each(|(y, p)| {
            y.write(x[p.place()]);
        });
    }
    if let Some(y) = places {
        y.into_iter().zip(best).for_each(|(y, p)| {
            y.write(p.place() as i32);
        });
    }
}

/// Of so many elements there is one of the greatest, or fewer, where several workers look for them: what their runs leave is for one of them.
const SHARE: usize = 1024;

/// A long line by runs: of each the places of its greatest elements, then the greatest of these.
#[derive(Debug)]
struct Runs {
    k: usize,
}

/// The places of the greatest elements of a run, as many as there is room for.
fn run<T: Ordered, P: Placed>(x: &In<'_>, places: Range<usize>, room: &mut Out<'_>) {
    let Ok(x) = x.view::<T>().into_dimensionality::<Ix1>() else { return };
    let mut best: Vec<P> = Vec::new();
    greatest(room.shape()[0], &x.slice(s![places.clone()]), &mut best);
    for (to, p) in room.fresh::<i32>().iter_mut().zip(&best) {
        to.write((places.start + p.place()) as i32);
    }
}

impl Stages for Runs {
    fn made(&self) -> Made {
        Made::All
    }
    fn room(&self, places: usize) -> (DType, usize) {
        (DType::I32, self.k.min(places))
    }
    fn first(&self, places: Range<usize>, ins: &[In<'_>], room: &mut Out<'_>) {
        with_dtype!(ins[0].dtype(), real T => match small(<T as Ordered>::BITS, places.len()) {
            true => run::<T, u64>(&ins[0], places, room),
            false => run::<T, u128>(&ins[0], places, room),
        });
    }
    fn then(&self, _: usize, _: Range<usize>, ins: &[In<'_>], rooms: &[In<'_>], outs: &mut Outs<'_>) {
        let (mut values, mut places) = (outs.take(0), outs.take(1));
        with_dtype!(ins[0].dtype(), real T => {
            let Ok(x) = ins[0].view::<T>().into_dimensionality::<Ix1>() else { return };
            let at = rooms.iter().flat_map(|r| r.view::<i32>()).map(|at| *at as usize);
            let mut best: Vec<u128> = Vec::new();
            least(self.k, at.map(|at| placed((at, &x[at]))), &mut best);
            let values = values.as_mut().and_then(|y| y.fresh().into_dimensionality().ok());
            let places = places.as_mut().and_then(|y| y.fresh().into_dimensionality().ok());
            put(&x, &best, values, places);
        });
    }
}

/// The greatest of the candidates that blocks of a line have, which are stored block by block, and their places in the line.
#[derive(Debug)]
struct Candidates {
    k: usize,
}

impl Line for Candidates {
    fn key(&self) -> String {
        format!("top {} of candidates", self.k)
    }
    fn cost(&self, elements: usize) -> f64 {
        2.0 * elements as f64
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [(dtype, n), (DType::I32, places)]
                if n == places && n.iter().product::<usize>() >= self.k && !dtype.is_complex() =>
            {
                Ok(Along { k: self.k }.found(*dtype))
            }
            _ => Err(format!("the {} greatest are of candidates and their places", self.k)),
        }
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        let (mut values, mut places) = (outs.take(0), outs.take(1));
        with_dtype!(ins[0].dtype(), real T => self.along::<T>(ins, &mut values, &mut places))
    }
}

impl Candidates {
    fn along<T: Ordered>(&self, ins: &[In<'_>], values: &mut Option<Out<'_>>, places: &mut Option<Out<'_>>) {
        let mut values = values.as_mut().map(|y| lanes_mut(y.fresh::<T>()));
        let mut places = places.as_mut().map(|y| lanes_mut(y.fresh::<i32>()));
        let (x, at) = (lanes(ins[0].view::<T>()), lanes(ins[1].view::<i32>()));
        // a line runs over blocks, then over the candidates of one
        let [.., blocks, _] = *ins[0].shape() else { return };
        let most = u64::MAX >> (64 - T::BITS);
        let mut best: Vec<u128> = Vec::new();
        for (line, (x, at)) in x.chunks(blocks).zip(at.chunks(blocks)).enumerate() {
            let all = |i: usize| (i / x[0].len(), i % x[0].len());
            let of = |i: usize| x[all(i).0][all(i).1];
            let placed = (0..blocks * x[0].len()).map(|i| u128::new(most - of(i).key().into(), i));
            least(self.k, placed, &mut best);
            if let Some(y) = &mut values {
                y[line].iter_mut().zip(&best).for_each(|(y, p)| {
                    y.write(of(p.place()));
                });
            }
            if let Some(y) = &mut places {
                y[line].iter_mut().zip(&best).for_each(|(y, p)| {
                    let (block, candidate) = all(p.place());
                    y.write(at[block][candidate]);
                });
            }
        }
    }
}

/// The k least of these, in order. Most are compared with one bound only.
fn least<P: Ord + Copy>(k: usize, all: impl Iterator<Item = P>, list: &mut Vec<P>) {
    list.clear();
    if k == 0 {
        return;
    }
    let mut bound: Option<P> = None;
    for x in all {
        if bound.is_none_or(|b| x <= b) {
            bound = take(k, x, list).or(bound);
        }
    }
    by_comparison(list);
    list.truncate(k);
}

/// The same of a line that is one run. Elements are compared with the bound some at a time, without a branch: most of them are none of these.
fn by_blocks<T: Ordered, P: Placed + Ord>(
    k: usize,
    x: &[T],
    placed: impl Fn((usize, &T)) -> P,
    list: &mut Vec<P>,
) {
    const BLOCK: usize = 64;
    list.clear();
    if k == 0 {
        return;
    }
    let mut bound: Option<T::Key> = None;
    for (n, block) in x.chunks(BLOCK).enumerate() {
        // an element that equals the bound's is behind it
        let greater = |bound: T::Key| block.iter().fold(0, |any, x| any | u32::from(x.key() > bound)) != 0;
        if bound.is_some_and(|bound| !greater(bound)) {
            continue;
        }
        for (i, element) in block.iter().enumerate() {
            if bound.is_none_or(|bound| element.key() > bound) {
                let p = placed((n * BLOCK + i, element));
                bound = take(k, p, list).map(|p| x[p.place()].key()).or(bound);
            }
        }
    }
    by_comparison(list);
    list.truncate(k);
}

/// Puts another one to the least; where there are many, leaves the k least of them and returns the last of these, beyond which none counts.
fn take<P: Ord + Copy>(k: usize, x: P, list: &mut Vec<P>) -> Option<P> {
    list.push(x);
    (list.len() == 2 * k + 16).then(|| {
        let bound = kth(list, k);
        list.truncate(k);
        bound
    })
}

/// The k-th least, behind those that are not greater.
fn kth<P: Ord + Copy>(list: &mut [P], k: usize) -> P {
    if on_a_page!() {
        by_comparison(list);
        return list[k - 1];
    }
    *list.select_nth_unstable(k - 1).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_are_those_that_a_sort_puts_first() {
        for (n, k) in [(0, 0), (5, 2), (100, 1), (1000, 7), (1000, 300), (300, 300)] {
            let all: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54).collect();
            let (mut list, mut sorted) = (Vec::new(), all.clone());
            sorted.sort_unstable();
            least(k, all.into_iter(), &mut list);
            assert_eq!(list, sorted[..k]);
        }
    }
    #[test]
    fn blocks_of_a_line_have_the_greatest_that_its_elements_have() {
        let zeros = [0.0, -0.0, f32::NAN, f32::NEG_INFINITY];
        for (n, k) in [(5, 2), (100, 1), (1000, 7), (1000, 300), (5000, 10)] {
            let x: Vec<f32> = (0..n as u32)
                .map(|i| match i.wrapping_mul(0x9E37_79B9) >> 22 {
                    j @ 0..4 => zeros[j as usize],
                    j => j as f32 - 500.0,
                })
                .collect();
            let (mut by_one, mut blocks) = (Vec::<u64>::new(), Vec::new());
            least(k, x.iter().enumerate().map(placed), &mut by_one);
            by_blocks(k, &x, placed, &mut blocks);
            assert_eq!(by_one, blocks);
        }
    }
}
