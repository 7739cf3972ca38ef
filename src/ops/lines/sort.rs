//! Sorting: lines in rising order, and where their elements come from.

use super::key::{Ordered, Placed, small};
use super::merge::{Keys, Places as ByPlaces};
use super::{check_axis, factors, lanes, lanes_mut, one_shape, radix, sentence};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::build::not_linear;
use crate::ops::elementwise::Takes;
use crate::ops::indexing::{Gather, Places};
use crate::program::factors::{Factors, Join, Linearity, Priority};
use crate::program::sentence::{Beyond, Sentence};
use crate::program::{
    Back, Batch, Batched, Builder, Familiar, Forward, In, Line, Operand, Out, Outs, Primitive, Stages,
    Tangents, Value, staged,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape, with_dtype};
use ndarray::{ArrayView1, ArrayViewMut1};
use std::cmp::Ordering;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// `sort{dimension, keys}` of operands of one shape: their lines in the rising order of the first `keys` operands, the first of these
/// first. Equal elements stay in order; NaN comes last; −0 and 0 are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    /// Along which dimension.
    pub axis: usize,
    /// How many operands are keys.
    pub keys: usize,
}

/// `argsort{dimension, keys}`: where the elements of a sort of the same operands come from, int32.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Argsort {
    /// Along which dimension.
    pub axis: usize,
    /// How many operands are keys.
    pub keys: usize,
}

/// What both refuse.
fn check(name: &str, operands: &[Operand], axis: usize, keys: usize) -> Result<(), Fault> {
    if operands.is_empty() || !(1..=operands.len()).contains(&keys) {
        let text = format!(
            "{name} of {} operands by {keys} keys: keys are the first of one or more operands",
            operands.len()
        );
        return Err(
            Fault::new(ErrorKind::Shape, text).help("keys are counted from 1 to the number of operands")
        );
    }
    one_shape(operands)?;
    check_axis(axis, operands)?;
    (0..operands.len())
        .filter(|k| *k < keys || operands[*k].ty.dtype.is_complex())
        .try_for_each(|k| Takes::Ordered.check(operands, k))
}

/// Operands of one sharding.
fn alike(operands: &[ArrayType], axis: usize, results: usize) -> Factors {
    let mut f = factors(operands, axis, results);
    for l in (0..f.loops.len()).filter(|l| *l != axis && operands.len() > 1) {
        f.loops[l].join = Some(Join::Equal);
    }
    f
}

impl Primitive for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }
    fn params(&self) -> String {
        format!("dimension={}, keys={}", self.axis, self.keys)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        check("sort", operands, self.axis, self.keys)?;
        Ok(operands.iter().map(|o| (o.ty.dtype, o.ty.shape.clone())).collect())
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        alike(operands, self.axis, operands.len())
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
    fn jvp(&self, Forward { b, operands, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        // the same sort says where elements come from: both are computed at once
        let from = b.emit1(Arc::new(Argsort { axis: self.axis, keys: self.keys }), operands)?;
        tangents.iter().map(|t| t.as_ref().map(|t| b.pick_along(&from, t, self.axis)).transpose()).collect()
    }
    fn transpose(&self, _: Back<'_>) -> Result<Tangents> {
        Err(not_linear("sort"))
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::alike(Arc::new(Sort { axis: self.axis + 1, ..self.clone() }), false)
    }
    fn familiar(&self, _: &[ArrayType]) -> Option<Familiar> {
        Some(Familiar::Sort { axis: self.axis, keys: self.keys, places: false })
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let line = Arc::new(Along { keys: self.keys, operands: operands.len() });
        let one = |(k, y)| sentence(line.clone(), k, operands, self.axis, y);
        results.iter().enumerate().map(one).collect()
    }
}

impl Primitive for Argsort {
    fn name(&self) -> &'static str {
        "argsort"
    }
    fn params(&self) -> String {
        format!("dimension={}, keys={}", self.axis, self.keys)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        check("argsort", operands, self.axis, self.keys)?;
        Ok(vec![(DType::I32, operands[0].ty.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        alike(operands, self.axis, 1)
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
    crate::ops::moves::no_derivative!("argsort");
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::alike(Arc::new(Argsort { axis: self.axis + 1, ..self.clone() }), false)
    }
    fn familiar(&self, _: &[ArrayType]) -> Option<Familiar> {
        Some(Familiar::Sort { axis: self.axis, keys: self.keys, places: true })
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let line = Arc::new(Along { keys: self.keys, operands: operands.len() });
        vec![sentence(line, operands.len(), operands, self.axis, &results[0])]
    }
}

impl Builder {
    /// The elements of x at these places along a dimension: of each line at places of its own, all of which are there.
    pub(in crate::ops) fn pick_along(&mut self, places: &Value, x: &Value, axis: usize) -> Result<Value> {
        let rank = x.ty.rank();
        let places = self.expand_dims(places, &[rank])?;
        let batching = (0..rank).filter(|d| *d != axis).map(|d| (d, d)).collect();
        let (of, collapsed) = (vec![axis], vec![axis]);
        let at = Places { of, collapsed, batching, windows: Vec::new(), beyond: Beyond::Clip };
        let (sizes, fill) = (vec![1; rank].into(), Scalar::zero(x.ty.dtype));
        self.emit1(Arc::new(Gather { at, sizes, fill, out: None }), &[x.clone(), places])
    }
}

/// The function of lines: the operands sorted, and behind them the places that elements come from.
#[derive(Debug)]
pub(super) struct Along {
    pub(super) keys: usize,
    pub(super) operands: usize,
}

impl Line for Along {
    fn key(&self) -> String {
        format!("sort of {} by {}", self.operands, self.keys)
    }
    fn cost(&self, elements: usize) -> f64 {
        let n = elements as f64;
        1.5 * n * (n + 1.0).log2().max(1.0)
    }
    fn stages(&self, operands: &[DType], elements: usize, asked: &[bool]) -> Option<Arc<dyn Stages>> {
        let bits = with_dtype!(operands[0], real T => <T as Ordered>::BITS);
        match asked {
            [true] | [true, false] if operands.len() == 1 => staged(Keys(operands[0])),
            _ if self.keys == 1 && small(bits, elements) => staged(ByPlaces(self.operands)),
            _ => None,
        }
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [x, ..]
                if operands.len() == self.operands
                    && x.1.len() == 1
                    && operands.iter().all(|o| o.1 == x.1 && !o.0.is_complex()) =>
            {
                Ok(operands.iter().cloned().chain([(DType::I32, x.1.clone())]).collect())
            }
            _ => Err(format!("a sort is of {} lines of one length", self.operands)),
        }
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        let mut made: Vec<Option<Out<'_>>> = (0..=self.operands).map(|k| outs.take(k)).collect();
        if let ([x], [Some(y), None]) = (ins, &mut made[..]) {
            return with_dtype!(x.dtype(), real T => alone::<T>(x, y));
        }
        let Some((from, riders)) = made.split_last_mut() else { return };
        let mut columns: Vec<Box<dyn Column + '_>> = Vec::with_capacity(ins.len());
        for (x, y) in ins.iter().zip(riders) {
            columns.push(with_dtype!(x.dtype(), real T => Typed::<T>::boxed(x, y)));
        }
        let mut from = from.as_mut().map(|from| lanes_mut(from.fresh::<i32>()));
        let mut order = Order::default();
        for line in 0..columns[0].lines() {
            order.find(&columns[..self.keys], line);
            columns.iter_mut().for_each(|c| c.put(line, &order.from));
            if let Some(from) = &mut from {
                for (y, place) in from[line].iter_mut().zip(&order.from) {
                    y.write(*place as i32);
                }
            }
        }
    }
}

/// Lines of one operand, sorted by themselves.
fn alone<T: Ordered>(x: &In<'_>, y: &mut Out<'_>) {
    let (mut keys, mut room, mut zeros) = (Vec::new(), Vec::new(), Vec::<T>::new());
    for (x, mut y) in lanes(x.view::<T>()).into_iter().zip(lanes_mut(y.fresh::<T>())) {
        keys.clear();
        keys.extend(x.iter().map(|x| x.key()));
        room.clone_from(&keys);
        radix::sort(&mut keys, &mut room, 0..T::BITS);
        y.iter_mut().zip(&keys).for_each(|(y, key)| {
            y.write(T::of_key(*key));
        });
        // zeros keep their signs, in order
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

/// Lines of an operand of any element type, and what becomes of them.
trait Column {
    /// How many.
    fn lines(&self) -> usize;
    /// How many bits keys have.
    fn bits(&self) -> u32;
    /// The keys of a line.
    fn keys(&self, line: usize, keys: &mut Vec<u64>);
    /// Writes the elements of a line in this order, if they are asked for.
    fn put(&mut self, line: usize, from: &[usize]);
}

struct Typed<'a, T> {
    x: Vec<ArrayView1<'a, T>>,
    y: Option<Vec<ArrayViewMut1<'a, MaybeUninit<T>>>>,
}

impl<'a, T: Ordered> Typed<'a, T> {
    fn boxed(x: &'a In<'_>, y: &'a mut Option<Out<'_>>) -> Box<dyn Column + 'a> {
        let y = y.as_mut().map(|y| lanes_mut(y.fresh::<T>()));
        Box::new(Typed { x: lanes(x.view::<T>()), y })
    }
}

impl<T: Ordered> Column for Typed<'_, T> {
    fn lines(&self) -> usize {
        self.x.len()
    }
    fn bits(&self) -> u32 {
        T::BITS
    }
    fn keys(&self, line: usize, keys: &mut Vec<u64>) {
        keys.clear();
        keys.extend(self.x[line].iter().map(|x| x.key().into()));
    }
    fn put(&mut self, line: usize, from: &[usize]) {
        let Some(y) = &mut self.y else { return };
        let x = &self.x[line];
        for (y, place) in y[line].iter_mut().zip(from) {
            y.write(x[*place]);
        }
    }
}

/// The order of a line; memory is used again for the next one.
#[derive(Default)]
struct Order {
    /// Where each element comes from.
    from: Vec<usize>,
    keys: Vec<Vec<u64>>,
    small: [Vec<u64>; 2],
    large: [Vec<u128>; 2],
}

impl Order {
    fn find(&mut self, columns: &[Box<dyn Column + '_>], line: usize) {
        self.keys.resize(columns.len(), Vec::new());
        for (column, keys) in columns.iter().zip(&mut self.keys) {
            column.keys(line, keys);
        }
        self.from.clear();
        let bits = columns[0].bits();
        match &self.keys[..] {
            [keys] if small(bits, keys.len()) => by_place(keys, bits, &mut self.small, &mut self.from),
            [keys] => by_place(keys, bits, &mut self.large, &mut self.from),
            keys => {
                self.from.extend(0..keys[0].len());
                let order = |a: &usize, b: &usize| {
                    keys.iter().map(|k| k[*a].cmp(&k[*b])).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
                };
                self.from.sort_by(order);
            }
        }
    }
}

fn by_place<P: Placed>(keys: &[u64], bits: u32, [placed, room]: &mut [Vec<P>; 2], from: &mut Vec<usize>) {
    placed.clear();
    placed.extend(keys.iter().enumerate().map(|(place, key)| P::new(*key, place)));
    room.clone_from(placed);
    radix::sort(placed, room, P::KEY..P::KEY + bits);
    from.extend(placed.iter().map(|p| p.place()));
}
