//! Fourier transforms of long lines whose length is a power of two: a line is a grid, row by row. Its columns are transformed, each element is
//! multiplied by a root of one, and rows are transformed; what comes out is a grid whose columns these are. Columns are taken eight at a
//! time, side by side in registers, and what lies between fits into a core's cache.
//!
//! Additions and products are those of the portable code at every level of processors, none of them fused: so are the bits.

use crate::runtime::cpu::Level;
use num_complex::Complex;
use rustfft::FftNum;
use std::mem::MaybeUninit;
use std::ops::Range;

/// From this length on a line is a grid: as one it was slower below.
const LONG: usize = 1 << 16;
/// Columns side by side.
pub(super) const BESIDE: usize = 8;

/// Eight numbers: their real parts, and their imaginary ones.
type Beside<T> = [[T; BESIDE]; 2];

/// A line as a grid, and the roots of one that are needed.
pub(super) struct Grid<T> {
    /// Of columns, as many as a column has places; of rows.
    sides: [Vec<Complex<T>>; 2],
    /// What comes between, eight columns at a time.
    turns: Vec<Beside<T>>,
    /// Whether it is the inverse, which is the transform of numbers whose parts are exchanged.
    back: bool,
    scale: T,
}

/// The places of a column and of a row, if a line of n is long and a power of two.
pub(super) fn sides(n: usize) -> Option<[usize; 2]> {
    let column = 1 << (n.max(1).ilog2() / 2);
    (!on_a_page!() && n >= LONG && n.is_power_of_two()).then_some([column, n / column])
}

impl<T: FftNum> Grid<T> {
    /// Of `turn(k, n)`: e^(−2πi·k/n).
    pub(super) fn new(
        [column, row]: [usize; 2],
        turn: impl Fn(usize, usize) -> Complex<T>,
        back: bool,
        scale: T,
    ) -> Grid<T> {
        let sides = [column, row].map(|n| (0..n).map(|k| turn(k, n)).collect());
        let beside = |c: usize, k: usize| {
            let z: [Complex<T>; BESIDE] = std::array::from_fn(|i| turn(k * (c + i), column * row));
            [z.map(|z| z.re), z.map(|z| z.im)]
        };
        let turns = (0..row).step_by(BESIDE).flat_map(|c| (0..column).map(move |k| (c, k)));
        Grid { sides, turns: turns.map(|(c, k)| beside(c, k)).collect(), back, scale }
    }
    /// All of a line.
    pub(super) fn whole(&self, x: &[Complex<T>], y: &mut [MaybeUninit<Complex<T>>], level: Level) {
        let [column, row] = self.sizes();
        First { grid: self, x, columns: 0..row, made: y }.at(level);
        Then { grid: self, columns: 0..column, place: Place::Same(y) }.at(level);
    }
    /// The places of a column, and of a row.
    fn sizes(&self) -> [usize; 2] {
        [self.sides[0].len(), self.sides[1].len()]
    }
}

/// The first stage, of some columns of a line's grid.
pub(super) struct First<'a, T> {
    pub(super) grid: &'a Grid<T>,
    /// A line, or of each row these columns.
    pub(super) x: &'a [Complex<T>],
    pub(super) columns: Range<usize>,
    /// Column by column; but of each eight columns and eight of their places the former are the second index.
    pub(super) made: &'a mut [MaybeUninit<Complex<T>>],
}

/// The second stage, of some columns of the grid that comes out.
pub(super) struct Then<'a, T> {
    pub(super) grid: &'a Grid<T>,
    pub(super) columns: Range<usize>,
    pub(super) place: Place<'a, T>,
}

/// Where what the first stage made is, and where results go.
pub(super) enum Place<'a, T> {
    /// In one place.
    ///
    /// What the first stage makes of all columns was written there.
    Same(&'a mut [MaybeUninit<Complex<T>>]),
    /// The former in rooms of some columns each; of results each row's columns.
    Apart(Vec<&'a [Complex<T>]>, Vec<&'a mut [MaybeUninit<Complex<T>>]>),
}

/// Work whose loops are compiled for each level of processors.
pub(super) trait Work: Sized {
    /// Always inlined, as all that it calls.
    fn work(self);
    /// Does it with what processors of a level have, which this one does.
    fn at(self, level: Level) {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma,bmi2")]
            fn avx2(work: impl Work) {
                work.work();
            }
            #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
            fn avx512(work: impl Work) {
                work.work();
            }
            match level {
                Level::Base => {}
                // SAFETY: the processor has the level
                Level::Avx2 => return unsafe { avx2(self) },
                // SAFETY: the processor has the level
                Level::Avx512 => return unsafe { avx512(self) },
            }
        }
        let _ = level;
        self.work();
    }
}

impl<T: FftNum> Work for First<'_, T> {
    #[inline(always)]
    fn work(self) {
        let First { grid, x, columns, made } = self;
        let [n, _] = grid.sizes();
        let width = x.len() / n;
        let start = if width == columns.len() { columns.start } else { 0 };
        let mut rooms = [room(n), room(n)];
        for (c, made) in columns.step_by(BESIDE).zip(made.chunks_exact_mut(BESIDE * n)) {
            for (v, row) in rooms[0].iter_mut().zip(x.chunks_exact(width)) {
                let row = &row[c - start..][..BESIDE];
                for i in 0..BESIDE {
                    (v[0][i], v[1][i]) =
                        if grid.back { (row[i].im, row[i].re) } else { (row[i].re, row[i].im) };
                }
            }
            let turns = &grid.turns[c / BESIDE * n..][..n];
            for (k, (v, w)) in transform(&grid.sides[0], &mut rooms).iter().zip(turns).enumerate() {
                let made = &mut made[k % BESIDE * n + k / BESIDE * BESIDE..][..BESIDE];
                for i in 0..BESIDE {
                    let re = v[0][i] * w[0][i] - v[1][i] * w[1][i];
                    let im = v[0][i] * w[1][i] + v[1][i] * w[0][i];
                    made[i].write(Complex { re, im });
                }
            }
        }
    }
}

impl<T: FftNum> Work for Then<'_, T> {
    #[inline(always)]
    fn work(self) {
        let Then { grid, columns, mut place } = self;
        let [m, n] = grid.sizes();
        let mut rooms = [room(n), room(n)];
        for c in columns.clone().step_by(BESIDE) {
            let eights = rooms[0].chunks_exact_mut(BESIDE);
            match &place {
                Place::Same(all) => eights.zip(all.chunks_exact(BESIDE * m)).for_each(|(v, from)| {
                    // SAFETY: the first stage wrote all of it, and what was written over since are results
                    eight(v, from, m, c, |z| unsafe { z.assume_init() });
                }),
                Place::Apart(from, _) => {
                    let from = from.iter().flat_map(|room| room.chunks_exact(BESIDE * m));
                    eights.zip(from).for_each(|(v, from)| eight(v, from, m, c, |z| z));
                }
            }
            let made = transform(&grid.sides[1], &mut rooms);
            match &mut place {
                Place::Same(to) => {
                    (made.iter().zip(to.chunks_exact_mut(m))).for_each(|(v, row)| put(v, &mut row[c..], grid))
                }
                Place::Apart(_, rows) => {
                    (made.iter().zip(rows)).for_each(|(v, row)| put(v, &mut row[c - columns.start..], grid))
                }
            }
        }
    }
}

fn room<T: FftNum>(n: usize) -> Vec<Beside<T>> {
    vec![[[T::zero(); BESIDE]; 2]; n]
}

/// Of eight columns of the first stage eight places from `c` on, as columns.
#[inline(always)]
fn eight<T: FftNum, Z: Copy>(
    v: &mut [Beside<T>],
    from: &[Z],
    m: usize,
    c: usize,
    number: impl Fn(Z) -> Complex<T>,
) {
    for (i, column) in from.chunks_exact(m).enumerate() {
        for (v, z) in v.iter_mut().zip(&column[c..c + BESIDE]) {
            let z = number(*z);
            (v[0][i], v[1][i]) = (z.re, z.im);
        }
    }
}

/// Eight results.
#[inline(always)]
fn put<T: FftNum>(v: &Beside<T>, to: &mut [MaybeUninit<Complex<T>>], grid: &Grid<T>) {
    for (i, to) in to[..BESIDE].iter_mut().enumerate() {
        let (re, im) = if grid.back { (v[1][i], v[0][i]) } else { (v[0][i], v[1][i]) };
        to.write(Complex { re: re * grid.scale, im: im * grid.scale });
    }
}

#[inline(always)]
fn each<T: FftNum>(a: &Beside<T>, b: &Beside<T>, f: impl Fn(T, T) -> T) -> Beside<T> {
    std::array::from_fn(|part| std::array::from_fn(|i| f(a[part][i], b[part][i])))
}
#[inline(always)]
fn plus<T: FftNum>(a: &Beside<T>, b: &Beside<T>) -> Beside<T> {
    each(a, b, |a, b| a + b)
}
#[inline(always)]
fn minus<T: FftNum>(a: &Beside<T>, b: &Beside<T>) -> Beside<T> {
    each(a, b, |a, b| a - b)
}
/// By −i.
#[inline(always)]
fn quarter<T: FftNum>([re, im]: Beside<T>) -> Beside<T> {
    [im, re.map(|re| -re)]
}
#[inline(always)]
fn times<T: FftNum>([re, im]: &Beside<T>, w: Complex<T>) -> Beside<T> {
    [
        std::array::from_fn(|i| re[i] * w.re - im[i] * w.im),
        std::array::from_fn(|i| re[i] * w.im + im[i] * w.re),
    ]
}

/// Transforms what is in the first room, by roots of one, as many as there are numbers. In steps of four, or two at last: what a step reads in one
/// room it writes to the other, in the order in which results come out.
#[inline(always)]
fn transform<'a, T: FftNum>(turns: &[Complex<T>], rooms: &'a mut [Vec<Beside<T>>; 2]) -> &'a [Beside<T>] {
    let n = turns.len();
    let [from, to] = rooms;
    let (mut from, mut to) = (&mut from[..n], &mut to[..n]);
    let mut done = 1;
    while done < n {
        let left = n / done;
        if left == 2 {
            let (a, b) = from.split_at(done);
            let (sums, differences) = to.split_at_mut(done);
            for (k, (a, b)) in a.iter().zip(b).enumerate() {
                (sums[k], differences[k]) = (plus(a, b), minus(a, b));
            }
            done *= 2;
        } else {
            let quarters: [&[Beside<T>]; 4] = std::array::from_fn(|q| &from[q * n / 4..][..n / 4]);
            for (p, to) in to.chunks_exact_mut(4 * done).enumerate() {
                let [a, b, c, d] = quarters.map(|q| &q[p * done..][..done]);
                let [w1, w2, w3] = [1, 2, 3].map(|k| turns[k * p * done]);
                let (y0, to) = to.split_at_mut(done);
                let (y1, to) = to.split_at_mut(done);
                let (y2, y3) = to.split_at_mut(done);
                let y3 = &mut y3[..done];
                for k in 0..done {
                    let (even, odd) = (plus(&a[k], &c[k]), plus(&b[k], &d[k]));
                    let (turned, other) = (minus(&a[k], &c[k]), quarter(minus(&b[k], &d[k])));
                    y0[k] = plus(&even, &odd);
                    y1[k] = times(&plus(&turned, &other), w1);
                    y2[k] = times(&minus(&even, &odd), w2);
                    y3[k] = times(&minus(&turned, &other), w3);
                }
            }
            done *= 4;
        }
        std::mem::swap(&mut from, &mut to);
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn<T: FftNum>(k: usize, n: usize) -> Complex<T> {
        let z = Complex::cis(-std::f64::consts::TAU * k as f64 / n as f64);
        let number = |x: f64| T::from_f64(x).unwrap_or_else(T::zero);
        Complex { re: number(z.re), im: number(z.im) }
    }
    fn whole<T: FftNum + Into<f64>>(
        sides: [usize; 2],
        back: bool,
        x: &[Complex<f64>],
        level: Level,
    ) -> Vec<Complex<f64>> {
        let number = |x: f64| T::from_f64(x).unwrap_or_else(T::zero);
        let x: Vec<Complex<T>> = x.iter().map(|z| Complex { re: number(z.re), im: number(z.im) }).collect();
        let mut y = vec![MaybeUninit::uninit(); x.len()];
        Grid::new(sides, turn, back, T::one()).whole(&x, &mut y, level);
        // SAFETY: all are written
        y.iter().map(|z| unsafe { z.assume_init() }).map(|z| Complex::new(z.re.into(), z.im.into())).collect()
    }

    #[test]
    fn grids_are_transforms_with_the_same_bits_at_all_levels() {
        let mut planner = rustfft::FftPlanner::new();
        for sides in [[8, 8], [8, 16], [16, 32], [64, 64]] {
            let n = sides[0] * sides[1];
            let x: Vec<Complex<f64>> =
                (0..n).map(|i| Complex::new((i as f64 * 1.7).sin(), (i as f64 * 0.9 + 1.0).cos())).collect();
            for back in [false, true] {
                let mut want = x.clone();
                match back {
                    false => planner.plan_fft_forward(n).process(&mut want),
                    true => planner.plan_fft_inverse(n).process(&mut want),
                }
                let (y, z) =
                    (whole::<f64>(sides, back, &x, Level::Base), whole::<f32>(sides, back, &x, Level::Base));
                let greatest = want.iter().map(|w| w.norm()).fold(0.0, f64::max);
                let near = |y: &[Complex<f64>], most: f64| {
                    y.iter().zip(&want).all(|(y, w)| (y - w).norm() < most * greatest)
                };
                assert!(near(&y, 1e-15) && near(&z, 5e-7), "{sides:?}");
                for level in Level::available() {
                    assert_eq!(whole::<f64>(sides, back, &x, level), y);
                    assert_eq!(whole::<f32>(sides, back, &x, level), z);
                }
            }
        }
    }
}
