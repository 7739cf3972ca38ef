//! The stages of one long row, which several workers share.

use super::plan::TWIDDLE_ALIGNMENT;
use super::transform::{FftJob, GridStage};
use super::vector::FftFloat;
use super::{DimPlan, FftKernel, PartsMemory, RowsArray, input_rows, output_rows};
use crate::core::{DType, Element};
use crate::kernels::cpu;
use crate::kernels::row_kernel::{ParallelRowKernel, RowInput, RowOutput, RowOutputs, SecondPass};
use num_complex::Complex;
use std::ops::Range;
use std::sync::OnceLock;

/// The parallel kernel of a long row: workers share the columns and the rows of its grid.
#[derive(Debug)]
pub(super) struct FftStages {
    pub(super) kernel: FftKernel,
    pub(super) dtype: DType,
    /// The lengths of a column and of a row of the grid.
    pub(super) sides: [usize; 2],
}

impl FftStages {
    /// Runs a stage on some columns of the operand's grid, or of the result's grid.
    ///
    /// # Safety
    /// `from` and `to` are the operand and the result of the stage, as `FftJob` says.
    unsafe fn run_stage<T: FftFloat>(
        &self,
        plans: &OnceLock<Vec<DimPlan<T>>>,
        stage: (GridStage, Range<usize>),
        from: PartsMemory<T>,
        to: PartsMemory<T>,
    ) {
        let dim = &plans.get_or_init(|| self.kernel.new_plans())[0];
        let job = FftJob {
            kind: dim.kind,
            n: dim.n,
            plan: &dim.plan,
            turns: &[],
            from,
            to,
            count: 1,
            scale: dim.scale,
            stage: Some(stage),
        };
        // SAFETY: as the contract of this function; the level is that of this processor.
        unsafe { T::run_job(cpu::level(), &job) }
    }
    fn first_stage<T: FftFloat>(
        &self,
        plans: &OnceLock<Vec<DimPlan<T>>>,
        columns: Range<usize>,
        x: &RowInput<'_>,
        made: &mut RowOutput<'_>,
    ) where
        Complex<T>: Element,
    {
        let (x, made) = (input_rows::<T>(x), output_rows::<T>(made));
        let step = 2 * x.strides[0];
        let from = PartsMemory {
            base: x.base.wrapping_offset(columns.start as isize * step),
            element: step * self.sides[1] as isize,
            lane: step,
            part: 1,
            ahead: 0,
        };
        // SAFETY: the operand is a row of the grid's elements, and the scratch buffer has space for
        // these columns.
        unsafe {
            self.run_stage(
                plans,
                (GridStage::Columns, columns),
                from,
                PartsMemory::contiguous(made.base.cast()),
            )
        }
    }
    fn second_stage<T: FftFloat>(
        &self,
        plans: &OnceLock<Vec<DimPlan<T>>>,
        columns: Range<usize>,
        scratch_buffers: &[RowInput<'_>],
        y: &mut RowOutput<'_>,
    ) where
        Complex<T>: Element,
    {
        let y = output_rows::<T>(y);
        // the scratch buffers are usually adjacent
        let pieces: Vec<RowsArray<T>> = scratch_buffers.iter().map(input_rows).collect();
        let adjacent = |p: &[RowsArray<T>]| p[0].base.wrapping_add(2 * p[0].shape[0]) == p[1].base;
        let mut copy: Vec<Complex<T>> = Vec::new();
        let mut made = pieces[0].base;
        if !pieces.windows(2).all(adjacent) {
            scratch_buffers.iter().for_each(|r| copy.extend(r.view::<Complex<T>>()));
            made = copy.as_mut_ptr().cast();
        }
        let [element, lane] = [2 * y.strides[0], 2 * y.strides[1]];
        let to = PartsMemory { base: y.base, element, lane, part: 1, ahead: 0 };
        // SAFETY: the scratch buffers have all columns of the grid, and the result has space for
        // these columns.
        unsafe { self.run_stage(plans, (GridStage::Rows, columns), PartsMemory::contiguous(made.cast()), to) }
    }
}

impl ParallelRowKernel for FftStages {
    fn second_pass(&self) -> SecondPass {
        SecondPass::Columns { operand_columns: self.sides[1], result_columns: self.sides[0] }
    }
    fn alignment(&self) -> usize {
        TWIDDLE_ALIGNMENT
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
