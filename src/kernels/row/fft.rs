//! Row kernels of Fourier transforms over one to three dimensions.
//!
//! The plans use the portable code of `rustfft` on every processor, so a row has the same bits at
//! all processor levels, regardless of how many rows are transformed together. A real row of even
//! length is transformed as a complex row of half the length. A long complex row whose length is a
//! power of two uses the four-step algorithm of the module `four_step_fft`, which several workers
//! can share.

use super::four_step_fft::{self, FourStepFft, SecondStageIo};
use crate::core::{DType, Element, Shape};
use crate::kernels::row_kernel::{
    ParallelRowKernel, RowInput, RowKernel, RowOutput, RowOutputs, RowSharding, SecondPass,
    parallel_unless_wasm,
};
use ndarray::{ArrayViewD, ArrayViewMutD, Axis, Ix1, Ix2};
use num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlannerScalar};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The kind of Fourier transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// Complex to complex: y(k) = Σ x(j)·e^(−2πi·jk/n).
    Forward,
    /// Complex to complex: y(k) = Σ x(j)·e^(2πi·jk/n) / n.
    /// Each dimension has its divisor n, which is applied after the transform along it.
    Inverse,
    /// Real to complex: the first n/2 + 1 results of the last dimension.
    /// The others are their conjugates.
    Real,
    /// Complex to real: n results from n/2 + 1 elements of the last dimension.
    /// They are divided as for `Inverse`.
    InverseReal,
}
impl FftKind {
    /// Returns the name of the transform.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FftKind::Forward => "fft",
            FftKind::Inverse => "ifft",
            FftKind::Real => "rfft",
            FftKind::InverseReal => "irfft",
        }
    }
}

/// The sizes of a row of the operand and of the result.
pub(crate) struct RowSizes {
    pub(crate) ins: Vec<usize>,
    pub(crate) outs: Vec<usize>,
}

impl RowSizes {
    pub(crate) fn new(kind: FftKind, lengths: &[usize]) -> RowSizes {
        let mut half = lengths.to_vec();
        if let Some(n) = half.last_mut() {
            *n = *n / 2 + 1;
        }
        let real = || lengths.to_vec();
        match kind {
            FftKind::Forward | FftKind::Inverse => RowSizes { ins: real(), outs: real() },
            FftKind::Real => RowSizes { ins: real(), outs: half },
            FftKind::InverseReal => RowSizes { ins: half, outs: real() },
        }
    }
}

/// The row kernel of a Fourier transform.
pub(crate) struct FftKernel {
    kind: FftKind,
    lengths: Shape,
    /// True if long rows use the four-step algorithm.
    four_step: bool,
    plans: Arc<PlansByPrecision>,
}

/// The plans for each precision, created on first use.
#[derive(Default)]
struct PlansByPrecision {
    single: OnceLock<FftPlans<f32>>,
    double: OnceLock<FftPlans<f64>>,
}

impl FftKernel {
    pub(crate) fn new(kind: FftKind, lengths: &Shape) -> FftKernel {
        FftKernel { kind, lengths: lengths.clone(), four_step: true, plans: Arc::default() }
    }
    /// Creates the kernel of one dimension of a transform over several.
    ///
    /// It computes the same bits along this dimension as a kernel of all dimensions.
    fn of_one_dim(kind: FftKind, n: usize) -> FftKernel {
        FftKernel { four_step: false, ..FftKernel::new(kind, &[n].into()) }
    }
    fn new_plans<T: FftNum>(&self) -> FftPlans<T> {
        FftPlans::new(self.kind, &self.lengths, self.grid_sides())
    }
    /// Returns the lengths of a column and of a row of the grid.
    /// Returns `None` if the transform does not use the four-step algorithm.
    fn grid_sides(&self) -> Option<[usize; 2]> {
        match (self.kind, &self.lengths[..]) {
            (FftKind::Forward | FftKind::Inverse, [n]) if self.four_step => four_step_fft::grid_sides(*n),
            _ => None,
        }
    }
    fn run_rows<T: FftNum + Element>(
        &self,
        plans: &OnceLock<FftPlans<T>>,
        ins: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    ) where
        Complex<T>: Element,
    {
        let Some(mut y) = outs.take(0) else { return };
        let plans = plans.get_or_init(|| self.new_plans());
        let mut work = FftWorkspace { row: Vec::new(), scratch: Vec::new() };
        let mut reals = Vec::new();
        match self.kind {
            FftKind::Forward | FftKind::Inverse => {
                for_each_row(
                    ins[0].view::<Complex<T>>(),
                    y.uninit_view(),
                    self.lengths.rank(),
                    &mut |x, y| {
                        if let Some(grid) = plans.grid.as_ref() {
                            return run_four_step(grid, &x, y, &mut work.row);
                        }
                        read(&x, &mut work.row);
                        plans.transform_dims(&mut work, 0..self.lengths.rank());
                        write(y, work.row.iter().map(|z| z * plans.scale));
                    },
                );
            }
            FftKind::Real => {
                for_each_row(ins[0].view::<T>(), y.uninit_view(), self.lengths.rank(), &mut |x, y| {
                    read(&x, &mut reals);
                    work.row.clear();
                    reals.chunks_exact(plans.n).for_each(|row| plans.real_forward(row, &mut work));
                    plans.transform_dims(&mut work, 0..self.lengths.rank() - 1);
                    write(y, work.row.iter().copied());
                });
            }
            FftKind::InverseReal => {
                for_each_row(
                    ins[0].view::<Complex<T>>(),
                    y.uninit_view::<T>(),
                    self.lengths.rank(),
                    &mut |x, y| {
                        read(&x, &mut work.row);
                        plans.transform_dims(&mut work, 0..self.lengths.rank() - 1);
                        let mut made = Vec::with_capacity(self.lengths.num_elements());
                        let half = plans.n / 2 + 1;
                        let FftWorkspace { row: line, scratch: rest } = &mut work;
                        line.chunks_exact_mut(half).for_each(|row| plans.real_inverse(row, rest, &mut made));
                        write(y, made.iter().map(|x| *x * plans.scale));
                    },
                );
            }
        }
    }
}

impl fmt::Debug for FftKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

impl RowKernel for FftKernel {
    fn key(&self) -> String {
        let of = if self.four_step { "of" } else { "along one dimension, of" };
        format!("{} {of} {}", self.kind.name(), self.lengths)
    }
    fn cost(&self, _: usize) -> f64 {
        let n = self.lengths.num_elements() as f64;
        20.0 + 1.5 * n * (n + 1.0).log2()
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        let sides = RowSizes::new(self.kind, &self.lengths);
        let (real, complex) = match operands {
            [(d, shape)] if shape[..] == sides.ins[..] => (d.real(), d.complex()),
            _ => return Err(format!("{} does not take such rows", self.key())),
        };
        let takes = match self.kind {
            FftKind::Real => Some(real),
            _ => complex,
        };
        let makes = match self.kind {
            FftKind::InverseReal => Some(real),
            _ => complex,
        };
        match makes {
            Some(dtype) if takes == Some(operands[0].0) => Ok(vec![(dtype, sides.outs.into())]),
            _ => Err(format!("{} does not take rows of {}", self.key(), operands[0].0)),
        }
    }
    fn sharding(&self, _: &[DType]) -> RowSharding {
        let (last, kind) = (self.lengths.rank() - 1, self.kind);
        if last == 0 {
            return RowSharding::NotSharded;
        }
        let stage = |d: usize, kind| {
            let kernel: Arc<dyn RowKernel> = Arc::new(FftKernel::of_one_dim(kind, self.lengths[d]));
            (d, kernel)
        };
        let outer = |kind| (0..last).rev().map(move |d| stage(d, kind));
        let stages = match kind {
            FftKind::Forward | FftKind::Inverse => {
                std::iter::once(stage(last, kind)).chain(outer(kind)).collect()
            }
            FftKind::Real => std::iter::once(stage(last, kind)).chain(outer(FftKind::Forward)).collect(),
            FftKind::InverseReal => outer(FftKind::Inverse).chain([stage(last, kind)]).collect(),
        };
        RowSharding::Separable { stages }
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        match ins[0].dtype().real() {
            DType::F32 => self.run_rows(&self.plans.single, ins, outs),
            _ => self.run_rows(&self.plans.double, ins, outs),
        }
    }
    fn parallel(&self, operands: &[DType], _: usize, _: &[bool]) -> Option<Arc<dyn ParallelRowKernel>> {
        let sides = self.grid_sides()?;
        let (lengths, plans) = (self.lengths.clone(), self.plans.clone());
        parallel_unless_wasm(FftStages {
            kernel: FftKernel { lengths, plans, ..*self },
            dtype: operands[0],
            sides,
        })
    }
}

/// Transforms a row with the four-step algorithm.
fn run_four_step<T: FftNum>(
    grid: &FourStepFft<T>,
    x: &ArrayViewD<'_, Complex<T>>,
    mut y: UninitRow<'_, Complex<T>>,
    row: &mut Vec<Complex<T>>,
) {
    let x = match x.as_slice() {
        Some(x) => x,
        None => {
            read(x, row);
            row
        }
    };
    if let Some(y) = y.as_slice_mut() {
        return grid.run(x, y);
    }
    let mut made = vec![MaybeUninit::uninit(); x.len()];
    grid.run(x, &mut made);
    y.iter_mut().zip(made).for_each(|(y, made)| *y = made);
}

/// The parallel kernel of a long row: workers share the columns of its grid.
#[derive(Debug)]
struct FftStages {
    kernel: FftKernel,
    dtype: DType,
    sides: [usize; 2],
}

impl FftStages {
    fn first_stage<T: FftNum + Element>(
        &self,
        plans: &OnceLock<FftPlans<T>>,
        columns: Range<usize>,
        x: &RowInput<'_>,
        made: &mut RowOutput<'_>,
    ) where
        Complex<T>: Element,
    {
        let plans = plans.get_or_init(|| self.kernel.new_plans());
        let (Some(grid), Ok(x)) = (&plans.grid, x.view::<Complex<T>>().into_dimensionality::<Ix1>()) else {
            return;
        };
        let mut made = made.uninit_view::<Complex<T>>();
        let Some(made) = made.as_slice_mut() else { return };
        let row = self.sides[1];
        let some = |k: usize| columns.clone().map(move |c| x[k * row + c]);
        match x.as_slice() {
            Some(x) => grid.first_stage(x, columns, made),
            None => {
                let x: Vec<_> = (0..self.sides[0]).flat_map(some).collect();
                grid.first_stage(&x, columns.clone(), made);
            }
        }
    }
    fn second_stage<T: FftNum + Element>(
        &self,
        plans: &OnceLock<FftPlans<T>>,
        columns: Range<usize>,
        scratch_buffers: &[RowInput<'_>],
        y: &mut RowOutput<'_>,
    ) where
        Complex<T>: Element,
    {
        let plans = plans.get_or_init(|| self.kernel.new_plans());
        let (Some(grid), Ok(mut y)) =
            (&plans.grid, y.uninit_view::<Complex<T>>().into_dimensionality::<Ix2>())
        else {
            return;
        };
        let scratch_buffers: Vec<&[Complex<T>]> =
            scratch_buffers.iter().filter_map(|r| r.view::<Complex<T>>().to_slice()).collect();
        if y.strides()[1] == 1 {
            let rows = y.outer_iter_mut().filter_map(|row| row.into_slice()).collect();
            return grid.second_stage(columns, SecondStageIo::Separate(scratch_buffers, rows));
        }
        let mut made = vec![MaybeUninit::uninit(); y.len()];
        let rows = made.chunks_exact_mut(columns.len()).collect();
        grid.second_stage(columns, SecondStageIo::Separate(scratch_buffers, rows));
        y.iter_mut().zip(made).for_each(|(y, made)| *y = made);
    }
}

impl ParallelRowKernel for FftStages {
    fn second_pass(&self) -> SecondPass {
        SecondPass::Columns { operand_columns: self.sides[1], result_columns: self.sides[0] }
    }
    fn alignment(&self) -> usize {
        four_step_fft::BATCH_COLUMNS
    }
    fn scratch(&self, num_positions: usize) -> (DType, usize) {
        (self.dtype, num_positions * self.sides[0])
    }
    fn run_first_pass(&self, positions: Range<usize>, ins: &[RowInput<'_>], scratch: &mut RowOutput<'_>) {
        let plans = &self.kernel.plans;
        match self.dtype.real() {
            DType::F32 => self.first_stage(&plans.single, positions, &ins[0], scratch),
            _ => self.first_stage(&plans.double, positions, &ins[0], scratch),
        }
    }
    fn run_second_pass(
        &self,
        _: usize,
        positions: Range<usize>,
        _: &[RowInput<'_>],
        scratch: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    ) {
        let (Some(mut y), plans) = (outs.take(0), &self.kernel.plans) else { return };
        match self.dtype.real() {
            DType::F32 => self.second_stage(&plans.single, positions, scratch, &mut y),
            _ => self.second_stage(&plans.double, positions, scratch, &mut y),
        }
    }
}

/// A view of an uninitialized row, or of several rows.
type UninitRow<'a, B> = ArrayViewMutD<'a, MaybeUninit<B>>;

/// Calls `f` with each row; a row consists of the last `dims` dimensions.
fn for_each_row<A: Copy, B>(
    x: ArrayViewD<'_, A>,
    mut y: UninitRow<'_, B>,
    dims: usize,
    f: &mut dyn FnMut(ArrayViewD<'_, A>, UninitRow<'_, B>),
) {
    if x.ndim() == dims {
        return f(x, y);
    }
    for (x, y) in x.axis_iter(Axis(0)).zip(y.axis_iter_mut(Axis(0))) {
        for_each_row(x, y, dims, f);
    }
}

/// Copies the elements of a row to `to`.
fn read<A: Copy>(x: &ArrayViewD<'_, A>, to: &mut Vec<A>) {
    to.clear();
    let Some(x) = x.as_slice() else { return to.extend(x.iter()) };
    to.extend_from_slice(x)
}

fn write<B>(mut y: UninitRow<'_, B>, made: impl Iterator<Item = B>) {
    let put = |(y, made): (&mut MaybeUninit<B>, B)| {
        y.write(made);
    };
    let Some(y) = y.as_slice_mut() else { return y.iter_mut().zip(made).for_each(put) };
    y.iter_mut().zip(made).for_each(put)
}

/// The buffers of a transform.
/// They are the row that is transformed in place, and scratch space for the plans.
struct FftWorkspace<T> {
    row: Vec<Complex<T>>,
    scratch: Vec<Complex<T>>,
}

/// The transform along one dimension.
struct DimPlan<T> {
    fft: Arc<dyn Fft<T>>,
    /// The stride of the dimension in elements, and its length in the row.
    stride: usize,
    n: usize,
    /// The factor of the results.
    scale: T,
}

/// The plans and constants of a transform, which do not depend on the data.
struct FftPlans<T> {
    /// The four-step FFT of a long row, which uses none of the other plans.
    grid: Option<FourStepFft<T>>,
    dims: Vec<DimPlan<T>>,
    /// The length of the last dimension on the real side, and its complex transform.
    /// The transform has half the length if the length is even.
    n: usize,
    real: Arc<dyn Fft<T>>,
    /// The twiddle factors e^(∓2πi·k/n) for `k` up to n/2.
    twiddles: Vec<Complex<T>>,
    /// The factor of the transform along the dimension that comes last.
    scale: T,
}

impl<T: FftNum> FftPlans<T> {
    /// Creates the plans; `grid` has the sides of the grid of the four-step algorithm.
    fn new(kind: FftKind, lengths: &[usize], grid: Option<[usize; 2]>) -> FftPlans<T> {
        let mut planner = FftPlannerScalar::new();
        let (way, sign) = match kind {
            FftKind::Forward | FftKind::Real => (FftDirection::Forward, -1.0),
            FftKind::Inverse | FftKind::InverseReal => (FftDirection::Inverse, 1.0),
        };
        let halves = matches!(kind, FftKind::Real | FftKind::InverseReal);
        let n = lengths.last().copied().unwrap_or(1);
        let mut sizes = lengths.to_vec();
        if let (true, Some(last)) = (halves, sizes.last_mut()) {
            *last = n / 2 + 1;
        }
        let number = |x: f64| T::from_f64(x).unwrap_or_else(T::zero);
        let inverse = matches!(kind, FftKind::Inverse | FftKind::InverseReal);
        let scale = |n: usize| if inverse { number(1.0 / n as f64) } else { T::one() };
        // results are written with the factor of the dimension that is transformed last
        let at_end = if halves { lengths.len().saturating_sub(1) } else { 0 };
        let dims = (0..if grid.is_some() { 0 } else { lengths.len() })
            .map(|d| DimPlan {
                fft: planner.plan_fft(lengths[d], way),
                stride: sizes[d + 1..].iter().product(),
                n: sizes[d],
                scale: if d == at_end { T::one() } else { scale(lengths[d]) },
            })
            .collect();
        let real = match halves {
            true => planner.plan_fft(if n.is_multiple_of(2) { n / 2 } else { n }, way),
            false => planner.plan_fft(1, way),
        };
        let turn = |k: usize, n: usize| {
            // multiples of a quarter turn are exact, so that real results are exactly real
            let (sin, cos) = match (4 * k).is_multiple_of(n).then(|| 4 * k / n) {
                Some(0) => (0.0, 1.0),
                Some(1) => (sign, 0.0),
                Some(2) => (0.0, -1.0),
                _ => libm::sincos(sign * std::f64::consts::TAU * k as f64 / n as f64),
            };
            Complex { re: number(cos), im: number(sin) }
        };
        let twiddles = if halves { (0..=n / 2).map(|k| turn(k, n)).collect() } else { Vec::new() };
        let scale = scale(lengths.get(at_end).copied().unwrap_or(1));
        let grid = grid.map(|sides| FourStepFft::new(sides, turn, way, scale));
        FftPlans { grid, dims, n, real, twiddles, scale }
    }
    /// Transforms the row along these dimensions, the last one first.
    fn transform_dims(&self, work: &mut FftWorkspace<T>, dims: std::ops::Range<usize>) {
        let FftWorkspace { row: line, scratch: rest } = work;
        for DimPlan { fft: of, stride: step, n, scale } in self.dims[dims].iter().rev() {
            reserve_scratch(rest, of.get_inplace_scratch_len() + n);
            let (one, rest) = rest.split_at_mut(*n);
            if *step == 1 {
                of.process_with_scratch(line, &mut rest[..of.get_inplace_scratch_len()]);
                if *scale != T::one() {
                    line.iter_mut().for_each(|z| *z = *z * *scale);
                }
                continue;
            }
            for from in (0..line.len()).step_by(step * n) {
                for from in from..from + step {
                    (0..*n).for_each(|k| one[k] = line[from + k * step]);
                    of.process_with_scratch(one, &mut rest[..of.get_inplace_scratch_len()]);
                    (0..*n).for_each(|k| line[from + k * step] = one[k] * *scale);
                }
            }
        }
    }
    /// Transforms a row of real numbers, and appends the n/2 + 1 results to the buffer.
    fn real_forward(&self, x: &[T], FftWorkspace { row: line, scratch: rest }: &mut FftWorkspace<T>) {
        let (n, scratch) = (self.n, self.real.get_inplace_scratch_len());
        let even = n.is_multiple_of(2);
        let m = if even { n / 2 } else { n };
        reserve_scratch(rest, scratch + m);
        let (row, rest) = rest.split_at_mut(m);
        if even {
            row.iter_mut().zip(x.chunks_exact(2)).for_each(|(z, x)| *z = Complex { re: x[0], im: x[1] })
        } else {
            row.iter_mut().zip(x).for_each(|(z, x)| *z = Complex { re: *x, im: T::zero() })
        }
        self.real.process_with_scratch(row, &mut rest[..scratch]);
        if !even {
            return line.extend_from_slice(&row[..n / 2 + 1]);
        }
        // combine the transforms of the even and of the odd elements
        let two = T::one() + T::one();
        line.extend((0..=m).map(|k| {
            let (z, w) = (row[k % m], row[(m - k) % m].conj());
            let (even, odd) = ((z + w) / two, (z - w) / two);
            even + Complex { re: odd.im, im: -odd.re } * self.twiddles[k]
        }));
    }
    /// Computes the real row whose transform starts with `half`, and appends it to `made`.
    /// The row is not yet divided by n.
    fn real_inverse(&self, half: &mut [Complex<T>], rest: &mut Vec<Complex<T>>, made: &mut Vec<T>) {
        let (n, scratch) = (self.n, self.real.get_inplace_scratch_len());
        let even = n.is_multiple_of(2);
        let m = if even { n / 2 } else { n };
        // these elements are their own conjugates, so they are real
        half[0].im = T::zero();
        if even {
            half[m].im = T::zero();
        }
        reserve_scratch(rest, scratch + m);
        let (row, rest) = rest.split_at_mut(m);
        for (k, z) in row.iter_mut().enumerate() {
            *z = match even {
                true => {
                    let (x, w) = (half[k], half[m - k].conj());
                    let odd = (x - w) * self.twiddles[k];
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

/// Grows the scratch buffer to at least `n` elements.
fn reserve_scratch<T: FftNum>(rest: &mut Vec<Complex<T>>, n: usize) {
    if rest.len() < n {
        rest.resize(n, Complex { re: T::zero(), im: T::zero() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::row_kernel::RowOutput;

    /// Computes the transform by its definition.
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
    fn run<A: Element, B: Element>(kind: FftKind, n: usize, x: &[A], y: &mut [B]) {
        let row_kernel = FftKernel::new(kind, &[n].into());
        let sides = RowSizes::new(kind, &[n]);
        let num_rows = x.len() / sides.ins[0];
        let out = RowOutput::from_slice(&[num_rows, sides.outs[0]], y);
        RowKernel::run(
            &row_kernel,
            &[RowInput::from_slice(&[num_rows, sides.ins[0]], x)],
            &mut RowOutputs::new([Some(out)]),
        );
    }

    #[test]
    fn all_lengths_are_those_of_the_definition() {
        for n in 1..40 {
            let x = numbers(n);
            let mut y = vec![Complex::new(0.0, 0.0); n];
            run(FftKind::Forward, n, &x, &mut y);
            let want = slow(&x, -1.0);
            assert!(y.iter().zip(&want).all(|(a, b)| near(*a, *b)), "{n}");
            let mut back = vec![Complex::new(0.0, 0.0); n];
            run(FftKind::Inverse, n, &y, &mut back);
            assert!(back.iter().zip(&x).all(|(a, b)| near(*a, *b)), "{n}");
            let real: Vec<f64> = x.iter().map(|z| z.re).collect();
            let mut half = vec![Complex::new(0.0, 0.0); n / 2 + 1];
            run(FftKind::Real, n, &real, &mut half);
            let want = slow(&real.iter().map(|x| Complex::from(*x)).collect::<Vec<_>>(), -1.0);
            assert!(half.iter().zip(&want).all(|(a, b)| near(*a, *b)), "{n}: {half:?} {want:?}");
            // imaginary parts that must be ignored
            half[0].im = 7.0;
            if n % 2 == 0 {
                half[n / 2].im = 5.0;
            }
            let mut again = vec![0.0; n];
            run(FftKind::InverseReal, n, &half, &mut again);
            assert!(again.iter().zip(&real).all(|(a, b)| (a - b).abs() < 1e-9), "{n}");
        }
    }

    #[test]
    fn a_row_has_the_same_bits_whatever_comes_with_it() {
        for n in [1, 2, 8, 12, 31, 64, 100] {
            let x: Vec<Complex<f32>> =
                numbers(7 * n).iter().map(|z| Complex::new(z.re as f32, z.im as f32)).collect();
            let mut all = vec![Complex::new(0f32, 0.0); 7 * n];
            run(FftKind::Forward, n, &x, &mut all);
            for (x, y) in x.chunks(n).zip(all.chunks(n)) {
                let mut one = vec![Complex::new(0f32, 0.0); n];
                run(FftKind::Forward, n, x, &mut one);
                assert_eq!(one, y);
            }
        }
    }
}
