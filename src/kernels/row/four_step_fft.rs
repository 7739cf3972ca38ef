//! The four-step FFT of long rows whose length is a power of two.
//!
//! The row is viewed as a row-major grid. The grid's columns are transformed, each element is
//! multiplied by a root of unity (a twiddle factor), and the grid's rows are transformed. The
//! result is a grid with the transformed rows as its columns. Columns are processed eight at a
//! time (a cache line of complex64 elements), so that the working set fits in a core's cache.

use num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlannerScalar};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// The minimum length of a row for the four-step algorithm.
/// Shorter rows are faster with a plain FFT.
const MIN_GRID_ELEMENTS: usize = 1 << 16;
/// The number of columns that are processed together.
pub(crate) const BATCH_COLUMNS: usize = 8;

/// The four-step FFT of one length: plans for the grid's columns and rows, and twiddle factors.
pub(crate) struct FourStepFft<T> {
    /// The plan for the grid's columns and the plan for its rows.
    plans: [Arc<dyn Fft<T>>; 2],
    /// The twiddle factors, column by column.
    twiddles: Vec<Complex<T>>,
    scale: T,
}

/// Returns the lengths of a column and of a row of the grid.
/// Returns `None` unless `n` is a power of two and large enough.
pub(crate) fn grid_sides(n: usize) -> Option<[usize; 2]> {
    let column = 1 << (n.max(1).ilog2() / 2);
    (n >= MIN_GRID_ELEMENTS && n.is_power_of_two()).then_some([column, n / column])
}

/// The input of the second stage, and the destination of its results.
pub(crate) enum SecondStageIo<'a, T> {
    /// Memory that is both the input and the destination.
    ///
    /// The first stage has written its results of all columns there.
    InPlace(&'a mut [MaybeUninit<Complex<T>>]),
    /// Separate memory for input and output.
    /// The input is the results of the first stage, in scratch buffers of some columns each. The
    /// output is the destination columns of each row.
    Separate(Vec<&'a [Complex<T>]>, Vec<&'a mut [MaybeUninit<Complex<T>>]>),
}

impl<T: FftNum> FourStepFft<T> {
    /// Creates the plans and twiddle factors, and multiplies results by `scale`.
    ///
    /// `turn(k, n)` is e^(−2πi·k/n), or e^(2πi·k/n) for the inverse.
    pub(crate) fn new(
        [column, row]: [usize; 2],
        turn: impl Fn(usize, usize) -> Complex<T>,
        way: FftDirection,
        scale: T,
    ) -> FourStepFft<T> {
        let mut planner = FftPlannerScalar::new();
        let plans = [column, row].map(|n| planner.plan_fft(n, way));
        let places = (0..row).flat_map(|c| (0..column).map(move |k| (c, k)));
        FourStepFft { plans, twiddles: places.map(|(c, k)| turn(c * k, column * row)).collect(), scale }
    }
    /// Transforms a row with both stages.
    pub(crate) fn run(&self, x: &[Complex<T>], y: &mut [MaybeUninit<Complex<T>>]) {
        let [column, row] = self.sizes();
        self.first_stage(x, 0..row, y);
        self.second_stage(0..column, SecondStageIo::InPlace(y));
    }
    /// Returns the lengths of a column and of a row of the grid.
    fn sizes(&self) -> [usize; 2] {
        [self.plans[0].len(), self.plans[1].len()]
    }
    /// Transforms contiguous columns (side 0) or rows (side 1) in a buffer, one after the other.
    fn transform(&self, side: usize, buffer: &mut [Complex<T>], scratch: &mut Vec<Complex<T>>) {
        let of = &self.plans[side];
        scratch.resize(of.get_inplace_scratch_len(), Complex::new(T::zero(), T::zero()));
        of.process_with_scratch(buffer, scratch);
    }
    /// Runs the first stage for some columns of the grid, and writes the results column by column.
    ///
    /// `x` is the whole row, or only these columns of each row of the grid.
    pub(crate) fn first_stage(
        &self,
        x: &[Complex<T>],
        columns: Range<usize>,
        made: &mut [MaybeUninit<Complex<T>>],
    ) {
        let [n, _] = self.sizes();
        let width = x.len() / n;
        let start = if width == columns.len() { columns.start } else { 0 };
        let (mut buffer, mut scratch) = (zeros(n), Vec::new());
        for (c, made) in columns.step_by(BATCH_COLUMNS).zip(made.chunks_exact_mut(BATCH_COLUMNS * n)) {
            for (k, row) in x.chunks_exact(width).enumerate() {
                for (i, z) in row[c - start..][..BATCH_COLUMNS].iter().enumerate() {
                    buffer[i * n + k] = *z;
                }
            }
            self.transform(0, &mut buffer, &mut scratch);
            let turns = &self.twiddles[c * n..][..BATCH_COLUMNS * n];
            for ((made, z), w) in made.iter_mut().zip(&buffer).zip(turns) {
                made.write(z * w);
            }
        }
    }
    /// Runs the second stage for some columns of the resulting grid.
    pub(crate) fn second_stage(&self, columns: Range<usize>, mut place: SecondStageIo<'_, T>) {
        let [m, n] = self.sizes();
        let (mut buffer, mut scratch) = (zeros(n), Vec::new());
        for c in columns.clone().step_by(BATCH_COLUMNS) {
            match &place {
                SecondStageIo::InPlace(all) => all.chunks_exact(m).enumerate().for_each(|(j, column)| {
                    for (i, z) in column[c..][..BATCH_COLUMNS].iter().enumerate() {
                        // SAFETY: the first stage has initialized every element, and this stage has
                        // so far written to other columns only.
                        buffer[i * n + j] = unsafe { z.assume_init() };
                    }
                }),
                SecondStageIo::Separate(from, _) => {
                    let from = from.iter().flat_map(|block| block.chunks_exact(m));
                    for (j, column) in from.enumerate() {
                        for (i, z) in column[c..][..BATCH_COLUMNS].iter().enumerate() {
                            buffer[i * n + j] = *z;
                        }
                    }
                }
            }
            self.transform(1, &mut buffer, &mut scratch);
            let put = |j: usize, to: &mut [MaybeUninit<Complex<T>>]| {
                for (i, to) in to[..BATCH_COLUMNS].iter_mut().enumerate() {
                    to.write(buffer[i * n + j] * self.scale);
                }
            };
            match &mut place {
                SecondStageIo::InPlace(to) => {
                    to.chunks_exact_mut(m).enumerate().for_each(|(j, row)| put(j, &mut row[c..]));
                }
                SecondStageIo::Separate(_, rows) => {
                    let at = c - columns.start;
                    rows.iter_mut().enumerate().for_each(|(j, row)| put(j, &mut row[at..]));
                }
            }
        }
    }
}

/// Returns zeros for `BATCH_COLUMNS` columns of `n` elements.
fn zeros<T: FftNum>(n: usize) -> Vec<Complex<T>> {
    vec![Complex::new(T::zero(), T::zero()); BATCH_COLUMNS * n]
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
        FourStepFft::new(sides, turn, way, T::one()).run(&x, &mut y);
        // SAFETY: the transform has written all elements.
        y.iter().map(|z| unsafe { z.assume_init() }).map(|z| Complex::new(z.re.into(), z.im.into())).collect()
    }

    #[test]
    fn grids_are_transforms() {
        for sides in [[8, 8], [8, 16], [16, 32], [64, 64]] {
            let n = sides[0] * sides[1];
            let x: Vec<Complex<f64>> =
                (0..n).map(|i| Complex::new((i as f64 * 1.7).sin(), (i as f64 * 0.9 + 1.0).cos())).collect();
            for way in [FftDirection::Forward, FftDirection::Inverse] {
                let mut expected = x.clone();
                FftPlannerScalar::new().plan_fft(n, way).process(&mut expected);
                let greatest = expected.iter().map(|w| w.norm()).fold(0.0, f64::max);
                let near = |y: &[Complex<f64>], most: f64| {
                    y.iter().zip(&expected).all(|(y, w)| (y - w).norm() < most * greatest)
                };
                assert!(near(&whole::<f64>(sides, way, &x), 1e-15), "{sides:?}");
                assert!(near(&whole::<f32>(sides, way, &x), 5e-7), "{sides:?}");
            }
        }
    }
}
