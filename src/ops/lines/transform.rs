//! Fourier transforms of lines of one to three dimensions.
//!
//! Plans are those of the portable code of `rustfft`, on every processor: so a line has the same bits on all levels, and however many lines
//! come with it. What is real is transformed as half as many complex numbers. A long line is a [`grid`](super::grid), which several
//! workers may have parts of.

use super::fourier::Transform;
use super::grid::{self, Grid, Place};
use crate::program::{In, Line, Made, Out, Outs, Stages, staged};
use crate::types::{DType, Element, Shape};
use ndarray::{ArrayViewD, ArrayViewMutD, Axis, Ix1, Ix2};
use num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlannerScalar};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The sizes along a line of what goes in and of what comes out.
pub(super) struct Sides {
    pub(super) ins: Vec<usize>,
    pub(super) outs: Vec<usize>,
}

impl Sides {
    pub(super) fn of(kind: Transform, lengths: &[usize]) -> Sides {
        let mut half = lengths.to_vec();
        if let Some(n) = half.last_mut() {
            *n = *n / 2 + 1;
        }
        let real = || lengths.to_vec();
        match kind {
            Transform::Forward | Transform::Inverse => Sides { ins: real(), outs: real() },
            Transform::Real => Sides { ins: real(), outs: half },
            Transform::InverseReal => Sides { ins: half, outs: real() },
        }
    }
}

/// The function of lines.
pub(super) struct Along {
    kind: Transform,
    lengths: Shape,
    plans: Arc<Precise>,
}

/// Plans of each precision, made when they are first asked for.
#[derive(Default)]
struct Precise {
    single: OnceLock<Plans<f32>>,
    double: OnceLock<Plans<f64>>,
}

impl Along {
    pub(super) fn new(kind: Transform, lengths: &Shape) -> Along {
        Along { kind, lengths: lengths.clone(), plans: Arc::default() }
    }
    fn lines<T: FftNum + Element>(&self, plans: &OnceLock<Plans<T>>, ins: &[In<'_>], outs: &mut Outs<'_>)
    where
        Complex<T>: Element,
    {
        let Some(mut y) = outs.take(0) else { return };
        let plans = plans.get_or_init(|| Plans::new(self.kind, &self.lengths));
        let mut work = Work { line: Vec::new(), rest: Vec::new() };
        let mut reals = Vec::new();
        match self.kind {
            Transform::Forward | Transform::Inverse => {
                each(ins[0].view::<Complex<T>>(), y.fresh(), self.lengths.rank(), &mut |x, y| {
                    if let Some(grid) = plans.grid.as_ref().filter(|_| !on_a_page!()) {
                        return long(grid, &x, y, &mut work.line);
                    }
                    read(&x, &mut work.line);
                    plans.along(&mut work, 0..self.lengths.rank());
                    write(y, work.line.iter().map(|z| z * plans.scale));
                });
            }
            Transform::Real => {
                each(ins[0].view::<T>(), y.fresh(), self.lengths.rank(), &mut |x, y| {
                    read(&x, &mut reals);
                    work.line.clear();
                    reals.chunks_exact(plans.n).for_each(|row| plans.half(row, &mut work));
                    plans.along(&mut work, 0..self.lengths.rank() - 1);
                    write(y, work.line.iter().copied());
                });
            }
            Transform::InverseReal => {
                each(ins[0].view::<Complex<T>>(), y.fresh::<T>(), self.lengths.rank(), &mut |x, y| {
                    read(&x, &mut work.line);
                    plans.along(&mut work, 0..self.lengths.rank() - 1);
                    let mut made = Vec::with_capacity(self.lengths.elements());
                    let half = plans.n / 2 + 1;
                    let Work { line, rest } = &mut work;
                    line.chunks_exact_mut(half).for_each(|row| plans.whole(row, rest, &mut made));
                    write(y, made.iter().map(|x| *x * plans.scale));
                });
            }
        }
    }
}

impl fmt::Debug for Along {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

impl Line for Along {
    fn key(&self) -> String {
        let name = match self.kind {
            Transform::Forward => "fft",
            Transform::Inverse => "ifft",
            Transform::Real => "rfft",
            Transform::InverseReal => "irfft",
        };
        format!("{name} of {}", self.lengths)
    }
    fn cost(&self, _: usize) -> f64 {
        let n = self.lengths.elements() as f64;
        20.0 + 1.5 * n * (n + 1.0).log2()
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        let sides = Sides::of(self.kind, &self.lengths);
        let (real, complex) = match operands {
            [(d, shape)] if shape[..] == sides.ins[..] => (d.real(), d.complex()),
            _ => return Err(format!("{} takes no such lines", self.key())),
        };
        let takes = match self.kind {
            Transform::Real => Some(real),
            _ => complex,
        };
        let makes = match self.kind {
            Transform::InverseReal => Some(real),
            _ => complex,
        };
        match makes {
            Some(dtype) if takes == Some(operands[0].0) => Ok(vec![(dtype, sides.outs.into())]),
            _ => Err(format!("{} takes no lines of {}", self.key(), operands[0].0)),
        }
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        match ins[0].dtype().real() {
            DType::F32 => self.lines(&self.plans.single, ins, outs),
            _ => self.lines(&self.plans.double, ins, outs),
        }
    }
    fn stages(&self, operands: &[DType], _: usize, _: &[bool]) -> Option<Arc<dyn Stages>> {
        let sides = sides(self.kind, &self.lengths)?;
        let (kind, lengths, plans) = (self.kind, self.lengths.clone(), self.plans.clone());
        staged(Columns { of: Along { kind, lengths, plans }, dtype: operands[0], sides })
    }
}

/// The places of a column and of a row of the grid that a line is.
fn sides(kind: Transform, lengths: &[usize]) -> Option<[usize; 2]> {
    match (kind, lengths) {
        (Transform::Forward | Transform::Inverse, [n]) => grid::sides(*n),
        _ => None,
    }
}

/// A line that is a grid.
fn long<T: FftNum>(
    grid: &Grid<T>,
    x: &ArrayViewD<'_, Complex<T>>,
    mut y: Fresh<'_, Complex<T>>,
    line: &mut Vec<Complex<T>>,
) {
    let x = match x.as_slice() {
        Some(x) => x,
        None => {
            read(x, line);
            line
        }
    };
    if let Some(y) = y.as_slice_mut() {
        return grid.whole(x, y);
    }
    let mut made = vec![MaybeUninit::uninit(); x.len()];
    grid.whole(x, &mut made);
    y.iter_mut().zip(made).for_each(|(y, made)| *y = made);
}

/// A long line by columns of its grid.
#[derive(Debug)]
struct Columns {
    of: Along,
    dtype: DType,
    sides: [usize; 2],
}

impl Columns {
    fn first_of<T: FftNum + Element>(
        &self,
        plans: &OnceLock<Plans<T>>,
        columns: Range<usize>,
        x: &In<'_>,
        made: &mut Out<'_>,
    ) where
        Complex<T>: Element,
    {
        let plans = plans.get_or_init(|| Plans::new(self.of.kind, &self.of.lengths));
        let (Some(grid), Ok(x)) = (&plans.grid, x.view::<Complex<T>>().into_dimensionality::<Ix1>()) else {
            return;
        };
        let mut made = made.fresh::<Complex<T>>();
        let Some(made) = made.as_slice_mut() else { return };
        let row = self.sides[1];
        let some = |k: usize| columns.clone().map(move |c| x[k * row + c]);
        match x.as_slice() {
            Some(x) => grid.first(x, columns, made),
            None => {
                let x: Vec<_> = (0..self.sides[0]).flat_map(some).collect();
                grid.first(&x, columns.clone(), made);
            }
        }
    }
    fn then_of<T: FftNum + Element>(
        &self,
        plans: &OnceLock<Plans<T>>,
        columns: Range<usize>,
        rooms: &[In<'_>],
        y: &mut Out<'_>,
    ) where
        Complex<T>: Element,
    {
        let plans = plans.get_or_init(|| Plans::new(self.of.kind, &self.of.lengths));
        let (Some(grid), Ok(mut y)) = (&plans.grid, y.fresh::<Complex<T>>().into_dimensionality::<Ix2>())
        else {
            return;
        };
        let rooms: Vec<&[Complex<T>]> =
            rooms.iter().filter_map(|r| r.view::<Complex<T>>().to_slice()).collect();
        if y.strides()[1] == 1 {
            let rows = y.outer_iter_mut().filter_map(|row| row.into_slice()).collect();
            return grid.then(columns, Place::Apart(rooms, rows));
        }
        let mut made = vec![MaybeUninit::uninit(); y.len()];
        let rows = made.chunks_exact_mut(columns.len()).collect();
        grid.then(columns, Place::Apart(rooms, rows));
        y.iter_mut().zip(made).for_each(|(y, made)| *y = made);
    }
}

impl Stages for Columns {
    fn made(&self) -> Made {
        Made::Columns { first: self.sides[1], then: self.sides[0] }
    }
    fn step(&self) -> usize {
        grid::BESIDE
    }
    fn room(&self, places: usize) -> (DType, usize) {
        (self.dtype, places * self.sides[0])
    }
    fn first(&self, places: Range<usize>, ins: &[In<'_>], room: &mut Out<'_>) {
        let plans = &self.of.plans;
        match self.dtype.real() {
            DType::F32 => self.first_of(&plans.single, places, &ins[0], room),
            _ => self.first_of(&plans.double, places, &ins[0], room),
        }
    }
    fn then(&self, _: usize, places: Range<usize>, _: &[In<'_>], rooms: &[In<'_>], outs: &mut Outs<'_>) {
        let (Some(mut y), plans) = (outs.take(0), &self.of.plans) else { return };
        match self.dtype.real() {
            DType::F32 => self.then_of(&plans.single, places, rooms, &mut y),
            _ => self.then_of(&plans.double, places, rooms, &mut y),
        }
    }
}

/// A place for lines.
type Fresh<'a, B> = ArrayViewMutD<'a, MaybeUninit<B>>;

/// Calls `f` with each line, whose dimensions are the last so many.
fn each<A: Copy, B>(
    x: ArrayViewD<'_, A>,
    mut y: Fresh<'_, B>,
    dims: usize,
    f: &mut dyn FnMut(ArrayViewD<'_, A>, Fresh<'_, B>),
) {
    if x.ndim() == dims {
        return f(x, y);
    }
    for (x, y) in x.axis_iter(Axis(0)).zip(y.axis_iter_mut(Axis(0))) {
        each(x, y, dims, f);
    }
}

/// The elements of a line.
fn read<A: Copy>(x: &ArrayViewD<'_, A>, to: &mut Vec<A>) {
    to.clear();
    match x.as_slice() {
        Some(x) => to.extend_from_slice(x),
        None => to.extend(x.iter()),
    }
}

fn write<B>(mut y: Fresh<'_, B>, made: impl Iterator<Item = B>) {
    let put = |(y, made): (&mut MaybeUninit<B>, B)| {
        y.write(made);
    };
    match y.as_slice_mut() {
        Some(y) => y.iter_mut().zip(made).for_each(put),
        None => y.iter_mut().zip(made).for_each(put),
    }
}

/// A line under way, and what plans need besides.
struct Work<T> {
    line: Vec<Complex<T>>,
    rest: Vec<Complex<T>>,
}

/// How to transform along one dimension.
struct Plan<T> {
    of: Arc<dyn Fft<T>>,
    /// Elements from one place along it to the next, and the length of the dimension in the line.
    step: usize,
    n: usize,
}

/// What is computed before any line comes.
struct Plans<T> {
    /// For a long line, which needs nothing else.
    grid: Option<Grid<T>>,
    dims: Vec<Plan<T>>,
    /// The length of the last dimension's real side, and its transform as half as many complex numbers (as as many, if it is odd).
    n: usize,
    real: Arc<dyn Fft<T>>,
    /// e^(∓2πi·k/n) for k up to n/2.
    turns: Vec<Complex<T>>,
    scale: T,
}

impl<T: FftNum> Plans<T> {
    fn new(kind: Transform, lengths: &[usize]) -> Plans<T> {
        let mut planner = FftPlannerScalar::new();
        let (way, sign) = match kind {
            Transform::Forward | Transform::Real => (FftDirection::Forward, -1.0),
            Transform::Inverse | Transform::InverseReal => (FftDirection::Inverse, 1.0),
        };
        let halves = matches!(kind, Transform::Real | Transform::InverseReal);
        let n = lengths.last().copied().unwrap_or(1);
        let mut sizes = lengths.to_vec();
        if let (true, Some(last)) = (halves, sizes.last_mut()) {
            *last = n / 2 + 1;
        }
        let grid = sides(kind, lengths);
        let dims = (0..if grid.is_some() { 0 } else { lengths.len() })
            .map(|d| Plan {
                of: planner.plan_fft(lengths[d], way),
                step: sizes[d + 1..].iter().product(),
                n: sizes[d],
            })
            .collect();
        let real = match halves {
            true => planner.plan_fft(if n.is_multiple_of(2) { n / 2 } else { n }, way),
            false => planner.plan_fft(1, way),
        };
        let number = |x: f64| T::from_f64(x).unwrap_or_else(T::zero);
        let turn = |k: usize, n: usize| {
            // quarters are exact, so that what is real comes out as such
            let (sin, cos) = match (4 * k).is_multiple_of(n).then(|| 4 * k / n) {
                Some(0) => (0.0, 1.0),
                Some(1) => (sign, 0.0),
                Some(2) => (0.0, -1.0),
                _ => libm::sincos(sign * std::f64::consts::TAU * k as f64 / n as f64),
            };
            Complex { re: number(cos), im: number(sin) }
        };
        let turns = if halves { (0..=n / 2).map(|k| turn(k, n)).collect() } else { Vec::new() };
        let all: usize = lengths.iter().product();
        let inverse = matches!(kind, Transform::Inverse | Transform::InverseReal);
        let scale = if inverse { number(1.0 / all as f64) } else { T::one() };
        let grid = grid.map(|sides| Grid::new(sides, turn, way, scale));
        Plans { grid, dims, n, real, turns, scale }
    }
    /// Transforms along these dimensions of the line, the last one first.
    fn along(&self, work: &mut Work<T>, dims: std::ops::Range<usize>) {
        let Work { line, rest } = work;
        for Plan { of, step, n } in self.dims[dims].iter().rev() {
            room(rest, of.get_inplace_scratch_len() + n);
            let (one, rest) = rest.split_at_mut(*n);
            if *step == 1 {
                of.process_with_scratch(line, &mut rest[..of.get_inplace_scratch_len()]);
                continue;
            }
            for from in (0..line.len()).step_by(step * n) {
                for from in from..from + step {
                    (0..*n).for_each(|k| one[k] = line[from + k * step]);
                    of.process_with_scratch(one, &mut rest[..of.get_inplace_scratch_len()]);
                    (0..*n).for_each(|k| line[from + k * step] = one[k]);
                }
            }
        }
    }
    /// The next row of real numbers transformed: n/2 + 1 more of the line.
    fn half(&self, x: &[T], Work { line, rest }: &mut Work<T>) {
        let (n, scratch) = (self.n, self.real.get_inplace_scratch_len());
        let even = n.is_multiple_of(2);
        let m = if even { n / 2 } else { n };
        room(rest, scratch + m);
        let (row, rest) = rest.split_at_mut(m);
        match even {
            true => {
                row.iter_mut().zip(x.chunks_exact(2)).for_each(|(z, x)| *z = Complex { re: x[0], im: x[1] })
            }
            false => row.iter_mut().zip(x).for_each(|(z, x)| *z = Complex { re: *x, im: T::zero() }),
        }
        self.real.process_with_scratch(row, &mut rest[..scratch]);
        if !even {
            return line.extend_from_slice(&row[..n / 2 + 1]);
        }
        // of the numbers at even and at odd places the transforms, put together
        let two = T::one() + T::one();
        line.extend((0..=m).map(|k| {
            let (z, w) = (row[k % m], row[(m - k) % m].conj());
            let (even, odd) = ((z + w) / two, (z - w) / two);
            even + Complex { re: odd.im, im: -odd.re } * self.turns[k]
        }));
    }
    /// The real row whose transform's first half this is, not yet divided by n.
    fn whole(&self, half: &mut [Complex<T>], rest: &mut Vec<Complex<T>>, made: &mut Vec<T>) {
        let (n, scratch) = (self.n, self.real.get_inplace_scratch_len());
        let even = n.is_multiple_of(2);
        let m = if even { n / 2 } else { n };
        // these are their own conjugates
        half[0].im = T::zero();
        if even {
            half[m].im = T::zero();
        }
        room(rest, scratch + m);
        let (row, rest) = rest.split_at_mut(m);
        for (k, z) in row.iter_mut().enumerate() {
            *z = match even {
                true => {
                    let (x, w) = (half[k], half[m - k].conj());
                    let odd = (x - w) * self.turns[k];
                    x + w + Complex { re: -odd.im, im: odd.re }
                }
                false if k <= n / 2 => half[k],
                false => half[n - k].conj(),
            };
        }
        self.real.process_with_scratch(row, &mut rest[..scratch]);
        match even {
            true => made.extend(row.iter().flat_map(|z| [z.re, z.im])),
            false => made.extend(row.iter().map(|z| z.re)),
        }
    }
}

/// Room for so many.
fn room<T: FftNum>(rest: &mut Vec<Complex<T>>, n: usize) {
    if rest.len() < n {
        rest.resize(n, Complex { re: T::zero(), im: T::zero() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Out;

    /// By definition.
    fn slow(x: &[Complex<f64>], sign: f64) -> Vec<Complex<f64>> {
        let n = x.len();
        let term = |j: usize, k: usize| {
            x[j] * Complex::cis(sign * std::f64::consts::TAU * (j * k % n) as f64 / n as f64)
        };
        (0..n).map(|k| (0..n).map(|j| term(j, k)).sum()).collect()
    }
    fn numbers(n: usize) -> Vec<Complex<f64>> {
        (0..n).map(|i| Complex::new((i as f64 * 1.7).sin(), (i as f64 * 0.9 + 1.0).cos())).collect()
    }
    fn near(a: Complex<f64>, b: Complex<f64>) -> bool {
        (a - b).norm() < 1e-9 * (1.0 + b.norm())
    }
    fn run<A: Element, B: Element>(kind: Transform, n: usize, x: &[A], y: &mut [B]) {
        let line = Along::new(kind, &[n].into());
        let sides = Sides::of(kind, &[n]);
        let lines = x.len() / sides.ins[0];
        let out = Out::of(&[lines, sides.outs[0]], y);
        Line::run(&line, &[In::of(&[lines, sides.ins[0]], x)], &mut Outs::new([Some(out)]));
    }

    #[test]
    fn all_lengths_are_those_of_the_definition() {
        for n in 1..40 {
            let x = numbers(n);
            let mut y = vec![Complex::new(0.0, 0.0); n];
            run(Transform::Forward, n, &x, &mut y);
            let want = slow(&x, -1.0);
            assert!(y.iter().zip(&want).all(|(a, b)| near(*a, *b)), "{n}");
            let mut back = vec![Complex::new(0.0, 0.0); n];
            run(Transform::Inverse, n, &y, &mut back);
            assert!(back.iter().zip(&x).all(|(a, b)| near(*a, *b)), "{n}");
            let real: Vec<f64> = x.iter().map(|z| z.re).collect();
            let mut half = vec![Complex::new(0.0, 0.0); n / 2 + 1];
            run(Transform::Real, n, &real, &mut half);
            let want = slow(&real.iter().map(|x| Complex::from(*x)).collect::<Vec<_>>(), -1.0);
            assert!(half.iter().zip(&want).all(|(a, b)| near(*a, *b)), "{n}: {half:?} {want:?}");
            // what does not count
            half[0].im = 7.0;
            if n % 2 == 0 {
                half[n / 2].im = 5.0;
            }
            let mut again = vec![0.0; n];
            run(Transform::InverseReal, n, &half, &mut again);
            assert!(again.iter().zip(&real).all(|(a, b)| (a - b).abs() < 1e-9), "{n}");
        }
    }

    #[test]
    fn a_line_has_the_same_bits_whatever_comes_with_it() {
        for n in [1, 2, 8, 12, 31, 64, 100] {
            let x: Vec<Complex<f32>> =
                numbers(7 * n).iter().map(|z| Complex::new(z.re as f32, z.im as f32)).collect();
            let mut all = vec![Complex::new(0f32, 0.0); 7 * n];
            run(Transform::Forward, n, &x, &mut all);
            for (x, y) in x.chunks(n).zip(all.chunks(n)) {
                let mut one = vec![Complex::new(0f32, 0.0); n];
                run(Transform::Forward, n, x, &mut one);
                assert_eq!(one, y);
            }
        }
    }
}
