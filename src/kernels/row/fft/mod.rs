//! Row kernels of Fourier transforms over one to three dimensions.
//!
//! Each lane of a vector has another transform, and computes it as a scalar program would. So a row
//! has the same bits at all processor levels, regardless of its memory layout and of how many rows
//! are transformed together. Lanes are rows, or the columns of the grid of one long row, whose
//! transform is that of its columns and then of its rows (`plan.rs`). A real row of even length is
//! transformed as a complex row of half the length.

mod butterfly;
mod lanes;
mod plan;
mod stages;
mod transform;
mod vector;

use self::plan::{FftPlan, turn_of};
use self::stages::FftStages;
use self::transform::FftJob;
use self::vector::FftFloat;
use crate::core::{DType, Element, Shape};
use crate::kernels::cpu::{self, IsaLevel};
use crate::kernels::row_kernel::{
    ParallelRowKernel, RowInput, RowKernel, RowOutput, RowOutputs, RowSharding, parallel_unless_wasm,
};
use num_complex::Complex;
use std::fmt;
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
    plans: Arc<PlansByPrecision>,
}

/// The plans for each precision, created on first use.
#[derive(Default)]
struct PlansByPrecision {
    single: OnceLock<Vec<DimPlan<f32>>>,
    double: OnceLock<Vec<DimPlan<f64>>>,
}

/// The transform along one dimension.
struct DimPlan<T> {
    kind: FftKind,
    /// The length on the real side.
    n: usize,
    plan: FftPlan<T>,
    /// The twiddle factors of a real transform.
    turns: Vec<[T; 2]>,
    /// The factor of the results.
    scale: T,
}

/// The memory of numbers, most of them complex. Strides are in floats.
#[derive(Clone, Copy)]
struct PartsMemory<T> {
    /// The real part of the first element of the first transform.
    base: *mut T,
    /// The distance from an element of a transform to the next.
    element: isize,
    /// The distance from a transform to the next.
    lane: isize,
    /// The distance from the real to the imaginary part; 0 if there is none.
    part: isize,
    /// The distance to what the next transforms read or write, in floats; 0 if unknown.
    ahead: isize,
}

/// An array of rows: its address, sizes, and strides in elements.
struct RowsArray<T> {
    base: *mut T,
    shape: Vec<usize>,
    strides: Vec<isize>,
    /// True if elements are complex.
    complex: bool,
}

impl<T> RowsArray<T> {
    /// Returns the memory of the transforms along a dimension, of which `lanes` runs over some.
    ///
    /// Pairs of reals are the elements of a real transform if `packed`.
    fn memory(&self, offset: isize, along: usize, lanes: Option<usize>, packed: bool) -> PartsMemory<T> {
        let (step, lane) = (self.strides[along], lanes.map_or(0, |d| self.strides[d]));
        let base = self.base.wrapping_offset(if self.complex { 2 * offset } else { offset });
        let ahead = 0;
        match (self.complex, packed) {
            (true, _) => PartsMemory { base, element: 2 * step, lane: 2 * lane, part: 1, ahead },
            (false, true) => PartsMemory { base, element: 2 * step, lane, part: step, ahead },
            (false, false) => PartsMemory { base, element: step, lane, part: 0, ahead },
        }
    }
}

/// Transforms a row in float64, for the plans of other transforms.
fn transform_f64(x: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    let plan = FftPlan::new(x.len(), |_| Vec::new());
    let mut y = x;
    let memory = PartsMemory::contiguous(y.as_mut_ptr());
    let job = FftJob {
        kind: FftKind::Forward,
        n: y.len(),
        plan: &plan,
        turns: &[],
        from: memory,
        to: memory,
        count: 1,
        scale: 1.0,
        stage: None,
    };
    // SAFETY: the vector has the elements of one transform; the level is that of this processor.
    unsafe { f64::run_job(cpu::level(), &job) }
    y
}

impl<T: FftFloat> DimPlan<T> {
    fn new(kind: FftKind, n: usize) -> DimPlan<T> {
        let real = matches!(kind, FftKind::Real | FftKind::InverseReal);
        let scaled = matches!(kind, FftKind::Inverse | FftKind::InverseReal);
        let m = if real && n.is_multiple_of(2) { n / 2 } else { n };
        let turns = if real { (0..=n / 2).map(|k| turn_of(k, n)).collect() } else { Vec::new() };
        let scale = T::nearest(if scaled { 1.0 / n as f64 } else { 1.0 });
        DimPlan { kind, n, plan: FftPlan::new(m, transform_f64), turns, scale }
    }
    /// Transforms all rows along a dimension, with the vectors of a level.
    ///
    /// # Safety
    /// The processor has the level. The elements of `x` are readable and those of `y` are writable.
    /// The two are equal or do not overlap, and their sizes differ along the dimension only, as the
    /// kind says.
    unsafe fn run(&self, level: IsaLevel, x: &RowsArray<T>, y: &RowsArray<T>, along: usize) {
        if y.shape.contains(&0) {
            return;
        }
        let others = || (0..y.shape.len()).filter(|d| *d != along && y.shape[*d] > 1);
        let lanes = others().min_by_key(|d| y.strides[*d]);
        // dimensions that continue the lanes are one with them
        let (mut count, mut inner) = (lanes.map_or(1, |d| y.shape[d]), lanes);
        let mut outer: Vec<usize> = others().filter(|d| Some(*d) != lanes).collect();
        while let Some(d) = inner {
            let size = y.shape[d] as isize;
            let follows = |o: &usize| [x, y].iter().all(|a| a.strides[*o] == size * a.strides[d]);
            inner = outer.iter().position(follows).map(|k| outer.remove(k));
            count *= inner.map_or(1, |d| y.shape[d]);
        }
        let packed = self.n.is_multiple_of(2);
        let mut index = vec![0; outer.len()];
        loop {
            let offset = |a: &RowsArray<T>| {
                outer.iter().zip(&index).map(|(d, i)| *i as isize * a.strides[*d]).sum::<isize>()
            };
            let job = FftJob {
                kind: self.kind,
                n: self.n,
                plan: &self.plan,
                turns: &self.turns,
                from: x.memory(offset(x), along, lanes, packed),
                to: y.memory(offset(y), along, lanes, packed),
                count,
                scale: self.scale,
                stage: None,
            };
            // SAFETY: the job has rows of `x` and `y` (caller contract).
            unsafe { T::run_job(level, &job) }
            let Some(k) = (0..outer.len()).rev().find(|k| index[*k] + 1 < y.shape[outer[*k]]) else { return };
            index[k] += 1;
            index[k + 1..].fill(0);
        }
    }
}

impl FftKernel {
    pub(crate) fn new(kind: FftKind, lengths: &Shape) -> FftKernel {
        FftKernel { kind, lengths: lengths.clone(), plans: Arc::default() }
    }
    /// Returns the kind of transform along each dimension, in the order in which they run.
    fn dims(&self) -> Vec<(usize, FftKind)> {
        let last = self.lengths.rank() - 1;
        let outer = |kind| (0..last).rev().map(move |d| (d, kind));
        match self.kind {
            FftKind::Forward | FftKind::Inverse => {
                std::iter::once((last, self.kind)).chain(outer(self.kind)).collect()
            }
            FftKind::Real => std::iter::once((last, self.kind)).chain(outer(FftKind::Forward)).collect(),
            FftKind::InverseReal => outer(FftKind::Inverse).chain([(last, self.kind)]).collect(),
        }
    }
    /// Returns the plan of each dimension, in the order in which they run.
    fn new_plans<T: FftFloat>(&self) -> Vec<DimPlan<T>> {
        self.dims().into_iter().map(|(d, kind)| DimPlan::new(kind, self.lengths[d])).collect()
    }
    fn run_rows<T: FftFloat>(
        &self,
        plans: &OnceLock<Vec<DimPlan<T>>>,
        ins: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    ) where
        Complex<T>: Element,
    {
        let Some(mut y) = outs.take(0) else { return };
        let plans = plans.get_or_init(|| self.new_plans());
        let (mut x, y) = (input_rows::<T>(&ins[0]), output_rows::<T>(&mut y));
        let first = y.shape.len() - self.lengths.rank();
        // all but the last dimension of an inverse real transform run in a copy of the operand
        let mut copy: Vec<[T; 2]> = Vec::new();
        let copied = self.kind == FftKind::InverseReal && self.lengths.rank() > 1;
        if copied {
            let view = ins[0].view::<Complex<T>>();
            copy.extend(view.iter().map(|z| [z.re, z.im]));
            x.strides = vec![1; x.shape.len()];
            for d in (1..x.shape.len()).rev() {
                x.strides[d - 1] = x.strides[d] * x.shape[d] as isize;
            }
            x.base = copy.as_mut_ptr().cast();
        }
        for (k, ((d, _), plan)) in self.dims().into_iter().zip(plans).enumerate() {
            let last = k + 1 == plans.len();
            let (from, to) = match copied {
                true => (&x, if last { &y } else { &x }),
                false => (if k == 0 { &x } else { &y }, &y),
            };
            // SAFETY: the operand is readable and the result, or the copy of the operand, is
            // writable. Each dimension has the sizes that its kind says.
            unsafe { plan.run(cpu::level(), from, to, first + d) }
        }
    }
}

/// Returns the array of an operand.
fn input_rows<T: FftFloat>(x: &RowInput<'_>) -> RowsArray<T>
where
    Complex<T>: Element,
{
    let complex = x.dtype().is_complex();
    if complex {
        let view = x.view::<Complex<T>>();
        let (shape, strides) = (view.shape().to_vec(), view.strides().to_vec());
        return RowsArray { base: view.as_ptr().cast_mut().cast(), shape, strides, complex };
    }
    let view = x.view::<T>();
    let (shape, strides) = (view.shape().to_vec(), view.strides().to_vec());
    RowsArray { base: view.as_ptr().cast_mut(), shape, strides, complex }
}

/// Returns the array of a result, all of whose elements the caller writes.
fn output_rows<T: FftFloat>(y: &mut RowOutput<'_>) -> RowsArray<T>
where
    Complex<T>: Element,
{
    let complex = y.dtype().is_complex();
    if complex {
        let mut view = y.uninit_view::<Complex<T>>();
        let (shape, strides) = (view.shape().to_vec(), view.strides().to_vec());
        return RowsArray { base: view.as_mut_ptr().cast(), shape, strides, complex };
    }
    let mut view = y.uninit_view::<T>();
    let (shape, strides) = (view.shape().to_vec(), view.strides().to_vec());
    RowsArray { base: view.as_mut_ptr().cast(), shape, strides, complex }
}

impl fmt::Debug for FftKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

impl RowKernel for FftKernel {
    fn key(&self) -> String {
        format!("{} of {}", self.kind.name(), self.lengths)
    }
    fn cost(&self, _: usize) -> f64 {
        let n = self.lengths.num_elements() as f64;
        5.0 + 0.15 * n * (n + 1.0).log2()
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
        if self.lengths.rank() == 1 {
            return RowSharding::NotSharded;
        }
        let stage = |(d, kind)| {
            let kernel: Arc<dyn RowKernel> = Arc::new(FftKernel::new(kind, &[self.lengths[d]].into()));
            (d, kernel)
        };
        let stages = self.dims().into_iter().map(stage).collect();
        RowSharding::Separable { stages }
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        match ins[0].dtype().real() {
            DType::F32 => self.run_rows(&self.plans.single, ins, outs),
            _ => self.run_rows(&self.plans.double, ins, outs),
        }
    }
    fn parallel(&self, operands: &[DType], _: usize, _: &[bool]) -> Option<Arc<dyn ParallelRowKernel>> {
        let ([n], FftKind::Forward | FftKind::Inverse) = (&self.lengths[..], self.kind) else { return None };
        parallel_unless_wasm(FftStages {
            kernel: FftKernel { kind: self.kind, lengths: self.lengths.clone(), plans: self.plans.clone() },
            dtype: operands[0],
            sides: plan::grid_sides(*n)?,
        })
    }
}

#[cfg(test)]
mod tests;
