//! Fourier transforms of long lines whose length is a power of two: a line is a grid, row by row. Its columns are transformed, each element is
//! multiplied by a root of one, and rows are transformed; what comes out is a grid whose columns these are. Columns are taken eight at a
//! time, as many as a line of memory has, and what is between fits into a core's cache.

use num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlannerScalar};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// From this length on a line is a grid: as one it was slower below.
const LONG: usize = 1 << 16;
/// Columns that are taken together.
pub(super) const BESIDE: usize = 8;

/// A line as a grid: how its sides are transformed, and the roots of one that are needed.
pub(super) struct Grid<T> {
    /// Of columns, as many as a column has places; of rows.
    sides: [Arc<dyn Fft<T>>; 2],
    /// What comes between, column by column.
    turns: Vec<Complex<T>>,
    scale: T,
}

/// The places of a column and of a row, if a line of n is long and a power of two.
pub(super) fn sides(n: usize) -> Option<[usize; 2]> {
    let column = 1 << (n.max(1).ilog2() / 2);
    (!on_a_page!() && n >= LONG && n.is_power_of_two()).then_some([column, n / column])
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

impl<T: FftNum> Grid<T> {
    /// Of `turn(k, n)`: e^(−2πi·k/n), or e^(2πi·k/n) of the inverse; what comes out is multiplied by `scale`.
    pub(super) fn new(
        [column, row]: [usize; 2],
        turn: impl Fn(usize, usize) -> Complex<T>,
        way: FftDirection,
        scale: T,
    ) -> Grid<T> {
        let mut planner = FftPlannerScalar::new();
        let sides = [column, row].map(|n| planner.plan_fft(n, way));
        let places = (0..row).flat_map(|c| (0..column).map(move |k| (c, k)));
        Grid { sides, turns: places.map(|(c, k)| turn(c * k, column * row)).collect(), scale }
    }
    /// All of a line.
    pub(super) fn whole(&self, x: &[Complex<T>], y: &mut [MaybeUninit<Complex<T>>]) {
        let [column, row] = self.sizes();
        self.first(x, 0..row, y);
        self.then(0..column, Place::Same(y));
    }
    /// The places of a column, and of a row.
    fn sizes(&self) -> [usize; 2] {
        [self.sides[0].len(), self.sides[1].len()]
    }
    /// Transforms what is in a room, one behind the other.
    fn transform(&self, side: usize, room: &mut [Complex<T>], scratch: &mut Vec<Complex<T>>) {
        let of = &self.sides[side];
        scratch.resize(of.get_inplace_scratch_len(), Complex::new(T::zero(), T::zero()));
        of.process_with_scratch(room, scratch);
    }
    /// The first stage, of some columns of a line's grid, which it makes column by column: of a line, or of these columns of each row.
    pub(super) fn first(
        &self,
        x: &[Complex<T>],
        columns: Range<usize>,
        made: &mut [MaybeUninit<Complex<T>>],
    ) {
        let [n, _] = self.sizes();
        let width = x.len() / n;
        let start = if width == columns.len() { columns.start } else { 0 };
        let (mut room, mut scratch) = (room(n), Vec::new());
        for (c, made) in columns.step_by(BESIDE).zip(made.chunks_exact_mut(BESIDE * n)) {
            for (k, row) in x.chunks_exact(width).enumerate() {
                for (i, z) in row[c - start..][..BESIDE].iter().enumerate() {
                    room[i * n + k] = *z;
                }
            }
            self.transform(0, &mut room, &mut scratch);
            let turns = &self.turns[c * n..][..BESIDE * n];
            for ((made, z), w) in made.iter_mut().zip(&room).zip(turns) {
                made.write(z * w);
            }
        }
    }
    /// The second stage, of some columns of the grid that comes out.
    pub(super) fn then(&self, columns: Range<usize>, mut place: Place<'_, T>) {
        let [m, n] = self.sizes();
        let (mut room, mut scratch) = (room(n), Vec::new());
        for c in columns.clone().step_by(BESIDE) {
            match &place {
                Place::Same(all) => all.chunks_exact(m).enumerate().for_each(|(j, column)| {
                    for (i, z) in column[c..][..BESIDE].iter().enumerate() {
                        // SAFETY: the first stage wrote all of it, and of these columns nothing was written over since
                        room[i * n + j] = unsafe { z.assume_init() };
                    }
                }),
                Place::Apart(from, _) => {
                    let from = from.iter().flat_map(|room| room.chunks_exact(m));
                    for (j, column) in from.enumerate() {
                        for (i, z) in column[c..][..BESIDE].iter().enumerate() {
                            room[i * n + j] = *z;
                        }
                    }
                }
            }
            self.transform(1, &mut room, &mut scratch);
            let put = |j: usize, to: &mut [MaybeUninit<Complex<T>>]| {
                for (i, to) in to[..BESIDE].iter_mut().enumerate() {
                    to.write(room[i * n + j] * self.scale);
                }
            };
            match &mut place {
                Place::Same(to) => {
                    to.chunks_exact_mut(m).enumerate().for_each(|(j, row)| put(j, &mut row[c..]));
                }
                Place::Apart(_, rows) => {
                    let at = c - columns.start;
                    rows.iter_mut().enumerate().for_each(|(j, row)| put(j, &mut row[at..]));
                }
            }
        }
    }
}

/// Room for columns of n places that are taken together.
fn room<T: FftNum>(n: usize) -> Vec<Complex<T>> {
    vec![Complex::new(T::zero(), T::zero()); BESIDE * n]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole<T: FftNum + Into<f64>>(
        sides: [usize; 2],
        way: FftDirection,
        x: &[Complex<f64>],
    ) -> Vec<Complex<f64>> {
        let sign = if way == FftDirection::Forward { -1.0 } else { 1.0 };
        let number = |x: f64| T::from_f64(x).unwrap_or_else(T::zero);
        let of = |z: Complex<f64>| Complex { re: number(z.re), im: number(z.im) };
        let turn = |k: usize, n: usize| of(Complex::cis(sign * std::f64::consts::TAU * k as f64 / n as f64));
        let x: Vec<Complex<T>> = x.iter().map(|z| of(*z)).collect();
        let mut y = vec![MaybeUninit::uninit(); x.len()];
        Grid::new(sides, turn, way, T::one()).whole(&x, &mut y);
        // SAFETY: all are written
        y.iter().map(|z| unsafe { z.assume_init() }).map(|z| Complex::new(z.re.into(), z.im.into())).collect()
    }

    #[test]
    fn grids_are_transforms() {
        for sides in [[8, 8], [8, 16], [16, 32], [64, 64]] {
            let n = sides[0] * sides[1];
            let x: Vec<Complex<f64>> =
                (0..n).map(|i| Complex::new((i as f64 * 1.7).sin(), (i as f64 * 0.9 + 1.0).cos())).collect();
            for way in [FftDirection::Forward, FftDirection::Inverse] {
                let mut want = x.clone();
                FftPlannerScalar::new().plan_fft(n, way).process(&mut want);
                let greatest = want.iter().map(|w| w.norm()).fold(0.0, f64::max);
                let near = |y: &[Complex<f64>], most: f64| {
                    y.iter().zip(&want).all(|(y, w)| (y - w).norm() < most * greatest)
                };
                assert!(near(&whole::<f64>(sides, way, &x), 1e-15), "{sides:?}");
                assert!(near(&whole::<f32>(sides, way, &x), 5e-7), "{sides:?}");
            }
        }
    }
}
