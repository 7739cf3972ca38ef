//! Primitives of whole lines along one dimension: running sums and their kin, recurrences, sorts; Fourier transforms.
//!
//! Each is a function of lines ([`Line`]) and says along which dimension: the others pass, that one is needed whole.

mod best;
mod fourier;
mod grid;
mod key;
mod merge;
mod order;
mod radix;
mod recurrence;
mod scan;
mod sort;
mod transform;

pub use best::TopK;
pub use fourier::{Fft, Transform};
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

#[cfg(test)]
mod tests {
    use super::scan::{Along as Scans, Of};
    use super::transform::Along as Transforms;
    use super::{Running, Transform, best::Along as Best, sort::Along as Sorts};
    use crate::program::{In, Line, Made, Out, Outs};
    use crate::types::{DType, Element};
    use half::bf16;
    use num_complex::Complex;
    use std::ops::Range;

    /// As long as results are.
    fn results<T: Element>(of: &dyn Line, x: &[T]) -> (Vec<T>, Vec<i32>) {
        let made = of.shapes(&[(T::DTYPE, [x.len()].into())]).expect("it takes lines");
        let n = made[0].1.elements();
        (x[..n].to_vec(), vec![0; n])
    }
    /// The results that are asked for, whole.
    fn at_once<T: Element>(of: &dyn Line, x: &[T], asked: [bool; 2]) -> (Vec<T>, Vec<i32>) {
        let (mut y, mut from) = results(of, x);
        let n = [y.len()];
        let outs = [asked[0].then(|| Out::of(&n, &mut y)), asked[1].then(|| Out::of(&n, &mut from))];
        of.run(&[In::of(&[x.len()], x)], &mut Outs::new(outs));
        (y, from)
    }
    /// The same by so many runs.
    fn by_runs<T: Element>(of: &dyn Line, x: &[T], asked: [bool; 2], runs: usize) -> (Vec<T>, Vec<i32>) {
        let n = x.len();
        let stages = of.stages(&[T::DTYPE], n, &asked).expect("it is computed by runs");
        let cut = |n: usize| {
            let each = n.div_ceil(runs).next_multiple_of(stages.step());
            let place = |(lo, hi)| if stages.reverse() { n - hi..n - lo } else { lo..hi };
            (0..n).step_by(each).map(|lo| place((lo, (lo + each).min(n)))).collect::<Vec<_>>()
        };
        let (first, then) = match stages.made() {
            Made::Places => (cut(n), cut(n)),
            Made::All => (cut(n), std::iter::once(0..n).collect()),
            Made::Columns { first, then } => (cut(first), cut(then)),
        };
        let ins = [In::of(&[n], x)];
        let typed = |places: &Range<usize>| stages.room(places.len());
        // words of 128 bits have room for any element
        let mut rooms: Vec<Vec<u128>> = first.iter().map(|places| vec![0; typed(places).1]).collect();
        for (places, room) in first.iter().zip(&mut rooms) {
            let (dtype, n) = typed(places);
            // SAFETY: the room is as long, of wider elements
            let mut room = unsafe { Out::at(dtype, room.as_mut_ptr().cast(), vec![n], vec![1]) };
            stages.first(places.clone(), &ins, &mut room);
        }
        let rooms: Vec<In<'_>> = (first.iter().zip(&rooms))
            .map(|(places, room)| {
                let (dtype, n) = typed(places);
                // SAFETY: as above
                unsafe { In::at(dtype, room.as_ptr().cast(), vec![n], vec![1]) }
            })
            .collect();
        let (mut y, mut from) = results(of, x);
        for (r, places) in then.into_iter().enumerate() {
            let n = y.len();
            let (at, shape, strides) = match stages.made() {
                Made::Places => (places.start, vec![places.len()], vec![1]),
                Made::All => (0, vec![n], vec![1]),
                Made::Columns { then, .. } => (places.start, vec![n / then, places.len()], vec![then, 1]),
            };
            let one = |dtype, to: *mut u8, size: usize| {
                // SAFETY: they are within the result
                unsafe { Out::at(dtype, to.wrapping_add(at * size), shape.clone(), strides.clone()) }
            };
            let outs = [
                asked[0].then(|| one(T::DTYPE, y.as_mut_ptr().cast(), size_of::<T>())),
                asked[1].then(|| one(DType::I32, from.as_mut_ptr().cast(), size_of::<i32>())),
            ];
            stages.then(r, places, &ins, &rooms, &mut Outs::new(outs));
        }
        (y, from)
    }
    /// Numbers, some of them often; zeros of both signs and NaN among them.
    fn numbers(n: usize) -> Vec<f32> {
        let mut k = 1u32;
        let one = |_| {
            k = k.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match k >> 28 {
                0 => 0.0,
                1 => -0.0,
                2 => f32::NAN,
                3 => (k >> 20 & 3) as f32,
                _ => (k >> 8) as f32 / 4e6 - 2.0,
            }
        };
        (0..n).map(one).collect()
    }
    #[track_caller]
    fn same<T: Element>(of: &dyn Line, x: &[T], asked: [bool; 2], bits: fn(&T) -> u64) {
        let (want, places) = at_once(of, x, asked);
        let want: Vec<u64> = want.iter().map(bits).collect();
        for runs in [2, 3, 7] {
            let (y, from) = by_runs(of, x, asked, runs);
            assert_eq!(y.iter().map(bits).collect::<Vec<_>>(), want, "{of:?}, {runs} runs");
            assert_eq!(from, places, "{of:?}, {runs} runs");
        }
    }

    #[test]
    fn sorts_by_runs_are_sorts() {
        let x = numbers(3001);
        for asked in [[true, false], [false, true], [true, true]] {
            let of = Sorts { keys: 1, operands: 1 };
            same(&of, &x, asked, |x| x.to_bits().into());
            let small: Vec<i8> = x.iter().map(|x| *x as i8).collect();
            same(&of, &small, asked, |x| *x as u64);
            let halves: Vec<bf16> = x.iter().map(|x| bf16::from_f32(*x)).collect();
            same(&of, &halves, asked, |x| x.to_bits().into());
        }
        let long: Vec<i64> = x.iter().map(|x| (*x * 1e18) as i64).collect();
        let of = Sorts { keys: 1, operands: 1 };
        same(&of, &long, [true, false], |x| *x as u64);
        assert!(
            of.stages(&[DType::I64], 3001, &[true, true]).is_none(),
            "keys and places are of more than 64 bits"
        );
    }

    #[test]
    fn the_greatest_of_runs_are_the_greatest() {
        let x = numbers(30_001);
        for k in [0, 1, 7, 29] {
            let of = Best { k };
            for asked in [[true, false], [false, true], [true, true]] {
                same(&of, &x, asked, |x| x.to_bits().into());
                same(&of, &x.iter().map(|x| *x as i8).collect::<Vec<_>>(), asked, |x| *x as u64);
                same(&of, &x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), asked, |x| x.to_bits());
            }
        }
        assert!(Best { k: 30 }.stages(&[DType::F32], 30_001, &[true, true]).is_none(), "runs leave too many");
    }

    #[test]
    fn transforms_by_columns_are_transforms() {
        let x = numbers(2 << 17);
        let number = |x: &f32| if x.is_nan() { 0.5 } else { *x };
        for n in [1 << 16, 1 << 17] {
            let single: Vec<_> = x.chunks(2).map(|x| Complex::new(number(&x[0]), number(&x[1]))).collect();
            let double: Vec<Complex<f64>> =
                single.iter().map(|z| Complex::new(z.re.into(), z.im.into())).collect();
            for kind in [Transform::Forward, Transform::Inverse] {
                let of = Transforms::new(kind, &[n].into());
                let asked = [true, false];
                same(&of, &single[..n], asked, |z| {
                    u64::from(z.re.to_bits()) << 32 | u64::from(z.im.to_bits())
                });
                same(&of, &double[..n], asked, |z| z.re.to_bits() ^ z.im.to_bits().rotate_left(7));
            }
        }
    }

    #[test]
    fn running_sums_by_runs_are_running_sums() {
        let x: Vec<f32> = numbers(3 * super::order::BLOCK + 77).into_iter().map(|x| x.max(-3.0)).collect();
        for kind in [Running::Sum, Running::Max, Running::LogSumExp] {
            for reverse in [false, true] {
                same(&Scans { kind, reverse, of: Of::Line }, &x, [true, false], |x| x.to_bits().into());
            }
        }
        let halves: Vec<bf16> = x.iter().map(|x| bf16::from_f32(*x)).collect();
        same(&Scans { kind: Running::Prod, reverse: false, of: Of::Line }, &halves, [true, false], |x| {
            x.to_bits().into()
        });
    }
}
