//! Runs transforms: side by side, one in each lane, or one after the other, with the columns of
//! each one's grid side by side. Both have the same bits.

use super::butterfly::{add, sub, times};
use super::lanes::{LaneSource, LaneTarget, place, swapped};
use super::plan::{ChirpPlan, FftPlan, GridPlan};
use super::vector::{ComplexParts, FftFloat, LaneVector};
use super::{FftKind, PartsMemory};
use std::ops::Range;

/// The maximum size of the vectors of transforms that run side by side because one alone would fill
/// its vectors by less than 6/7, in bytes. Larger ones are not in the cache.
const MAX_UNFILLED_BYTES: usize = 1 << 19;

/// Transforms of equal length.
///
/// Memory from `from` on is readable, and memory from `to` on is writable, for all elements of all
/// transforms. The two are equal or do not overlap.
pub(super) struct FftJob<'a, T> {
    pub(super) kind: FftKind,
    /// The length on the real side.
    pub(super) n: usize,
    /// The complex transform: of half the length, if the transform is real and its length is even.
    pub(super) plan: &'a FftPlan<T>,
    /// The twiddle factors of a real transform.
    pub(super) turns: &'a [[T; 2]],
    pub(super) from: PartsMemory<T>,
    pub(super) to: PartsMemory<T>,
    /// The number of transforms.
    pub(super) count: usize,
    /// The factor of the results.
    pub(super) scale: T,
    /// A stage of one long transform; `None` runs all transforms.
    pub(super) stage: Option<(GridStage, Range<usize>)>,
}

/// The stages of one long transform.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum GridStage {
    /// Transforms some columns of the operand's grid, and stores them one after the other.
    Columns,
    /// Transforms some rows, which are columns of the result's grid.
    Rows,
}

/// The buffers of a job.
struct FftBuffers<V: LaneVector> {
    /// Elements that are transformed in place.
    w: Vec<ComplexParts<V>>,
    /// A column of a grid.
    column: Vec<ComplexParts<V>>,
    /// Operands and results of transforms.
    x: Vec<ComplexParts<V>>,
    y: Vec<ComplexParts<V>>,
    /// The same of one transform, and its grid.
    row_x: Vec<ComplexParts<V::T>>,
    row_y: Vec<ComplexParts<V::T>>,
    grid: Vec<ComplexParts<V>>,
}

/// Returns the first column of a block, and the number of columns.
///
/// The last block overlaps the one before, if that makes it complete.
fn block<V: LaneVector>(first: usize, columns: &Range<usize>) -> (usize, usize) {
    let first = if columns.len() >= V::LANES { first.min(columns.end - V::LANES) } else { first };
    (first, V::LANES.min(columns.end - first))
}

impl<T: FftFloat> FftJob<'_, T> {
    fn inverse(&self) -> bool {
        matches!(self.kind, FftKind::Inverse | FftKind::InverseReal)
    }
    fn even(&self) -> bool {
        self.n.is_multiple_of(2)
    }
    /// Returns the number of elements of the operand, on the side that is complex.
    fn half(&self) -> usize {
        self.n / 2 + 1
    }
    /// Returns the target of all results.
    fn target(&self, memory: PartsMemory<T>, width: usize) -> LaneTarget<T> {
        let count = if self.kind == FftKind::Real { self.half() } else { self.plan.n };
        let packed = self.kind == FftKind::Real && self.even();
        LaneTarget {
            memory,
            width,
            count,
            swap: self.inverse(),
            scale: self.scale,
            twiddles: std::ptr::null(),
            twiddle_strides: [0; 2],
            turns: if packed { self.turns.as_ptr() } else { std::ptr::null() },
        }
    }
    /// Returns the target of results that are only permuted.
    fn plain_target(&self, memory: PartsMemory<T>, width: usize, count: usize) -> LaneTarget<T> {
        let (scale, turns) = (T::nearest(1.0), std::ptr::null());
        LaneTarget { count, swap: false, scale, turns, ..self.target(memory, width) }
    }
    /// Computes the operand of the complex transform of a real inverse one, with swapped parts.
    #[inline(always)]
    fn unfold<V: LaneVector<T = T>>(
        &self,
        x: &mut [ComplexParts<V>],
        spread: &[u32],
        y: &mut [ComplexParts<V>],
    ) {
        let (n, m) = (self.n, self.plan.n);
        let zero = x[0][0].all(T::default());
        // these elements are their own conjugates, so they are real
        x[0][1] = zero;
        if !self.even() {
            for k in 0..n {
                let [re, im] = x[k.min(n - k)];
                y[place(spread, k)] = [if k <= n / 2 { im } else { zero.sub(im) }, re];
            }
            return;
        }
        x[m][1] = zero;
        for (k, [re, im]) in self.turns[..m].iter().enumerate() {
            let (z, w) = (x[k], [x[m - k][0], zero.sub(x[m - k][1])]);
            let (even, odd) = (add(z, w), times(sub(z, w), [*re, T::default() - *im]));
            y[place(spread, k)] = [even[1].add(odd[0]), even[0].sub(odd[1])];
        }
    }
    /// Runs as many transforms as there are lanes, or fewer, side by side.
    ///
    /// # Safety
    /// The contract of `run` holds, and the job has these transforms.
    #[inline(always)]
    unsafe fn run_block<V: LaneVector<T = T>>(
        &self,
        first: usize,
        width: usize,
        buffers: &mut FftBuffers<V>,
    ) {
        let (plan, chirp) = (self.plan, self.plan.as_chirp());
        let inner = chirp.map_or(plan, |chirp| &chirp.plan);
        let FftBuffers { w, column, x, y, .. } = buffers;
        debug_assert!(w.len() >= inner.num_vectors() && column.len() >= inner.column_vectors());
        debug_assert!(y.is_empty() || y.len() >= inner.num_vectors().max(plan.n));
        debug_assert!(self.kind != FftKind::InverseReal || x.len() >= self.half());
        let mut source = LaneSource::in_memory(
            PartsMemory { ahead: self.from.lane * V::LANES as isize, ..self.from.at(0, first) },
            width,
            self.inverse(),
        );
        // SAFETY: the memory is as the job says (caller contract). Buffers have space for all
        // elements of the transforms.
        unsafe {
            if self.kind == FftKind::InverseReal {
                source.swap = false;
                V::load_elements(&source, [0, 1, self.half()], &[], x.as_mut_ptr());
                self.unfold::<V>(x, &inner.spread, y);
                source = LaneSource::in_vectors(y.as_ptr());
            } else if chirp.is_some() || inner.grid().is_some() && source.first_elements(0, 1).is_none() {
                V::load_elements(&source, [0, 1, plan.n], &inner.spread, y.as_mut_ptr());
                source = LaneSource::in_vectors(y.as_ptr());
            }
            if let Some(chirp) = chirp {
                chirp.prepare(&inner.spread, y);
            }
            V::side_by_side(inner, &source, w.as_mut_ptr(), column.as_mut_ptr());
            let (mut made, mut order) = (w, &inner.order[..]);
            if let Some(chirp) = chirp {
                chirp.filter(made, order, &inner.spread, y);
                V::side_by_side(
                    inner,
                    &LaneSource::in_vectors(y.as_ptr()),
                    made.as_mut_ptr(),
                    column.as_mut_ptr(),
                );
                chirp.finish(made, order, y);
                (made, order) = (y, &[]);
            }
            V::store_elements(
                &self.target(
                    PartsMemory { ahead: self.to.lane * V::LANES as isize, ..self.to.at(0, first) },
                    width,
                ),
                made.as_ptr(),
                order,
            );
        }
    }
    /// Runs one transform, with the columns of its grid side by side.
    ///
    /// # Safety
    /// The contract of `run` holds, and the job has this transform.
    #[inline(always)]
    unsafe fn run_row<V: LaneVector<T = T>>(
        &self,
        grid: &GridPlan<T>,
        index: usize,
        buffers: &mut FftBuffers<V>,
    ) {
        let (plan, chirp) = (self.plan, self.plan.as_chirp());
        let (from, to) = (
            PartsMemory { ahead: self.from.lane, ..self.from.at(0, index) },
            PartsMemory { ahead: self.to.lane, ..self.to.at(0, index) },
        );
        let one_stage = chirp.is_none() && self.kind != FftKind::Real;
        let [columns, rows] = [0..grid.row.n, 0..grid.column.n];
        // SAFETY: the memory is as the job says (caller contract). Buffers have space for all
        // elements of a transform.
        unsafe {
            let (mut x, mut swap) = (from, self.inverse());
            if self.kind == FftKind::InverseReal {
                let source = LaneSource::<T>::in_memory(from, 1, false);
                T::load_elements(&source, [0, 1, self.half()], &[], buffers.row_x.as_mut_ptr());
                self.unfold::<T>(&mut buffers.row_x, &[], &mut buffers.row_y);
            } else if chirp.is_some() {
                let source = LaneSource::<T>::in_memory(from, 1, swap);
                T::load_elements(&source, [0, 1, plan.n], &[], buffers.row_y.as_mut_ptr());
            }
            if chirp.is_some() || self.kind == FftKind::InverseReal {
                (x, swap) = (PartsMemory::contiguous(buffers.row_y.as_mut_ptr()), false);
            }
            if let Some(chirp) = chirp {
                chirp.prepare(&[], &mut buffers.row_y);
            }
            let made = PartsMemory::contiguous(buffers.row_x.as_mut_ptr());
            let target = if one_stage { self.target(to, 0) } else { self.plain_target(made, 0, 0) };
            let width = grid.row.n as isize;
            let target_memory = target.memory;
            let rows_memory = PartsMemory {
                element: target_memory.element * rows.len() as isize,
                lane: target_memory.element,
                ..target_memory
            };
            let target = LaneTarget { memory: rows_memory, ..target };
            debug_assert!(buffers.grid.len() * V::LANES >= grid.column.n * grid.row.n);
            let scratch = buffers.grid.as_mut_ptr().cast();
            for pass in 0..=usize::from(chirp.is_some()) {
                if let (1, Some(chirp)) = (pass, chirp) {
                    chirp.filter(&buffers.row_x, &[], &[], &mut buffers.row_y);
                }
                let columns_memory = PartsMemory { element: x.element * width, lane: x.element, ..x };
                self.columns_stage::<V>(grid, columns_memory, swap, columns.clone(), scratch, buffers);
                Self::rows_stage::<V>(grid, rows.clone(), scratch, &target, buffers);
            }
            if one_stage {
                return;
            }
            let mut made = &buffers.row_x;
            if let Some(chirp) = chirp {
                chirp.finish(made, &[], &mut buffers.row_y);
                made = &buffers.row_y;
            }
            T::store_elements(&self.target(to, 1), made.as_ptr(), &[]);
        }
    }
    /// Transforms columns of a grid, and stores them one after the other.
    ///
    /// Elements of `x` are those of the first of these columns, and lanes are columns.
    ///
    /// # Safety
    /// The processor has the features of `V`. The columns are readable, and `made` has space for
    /// their transforms.
    #[inline(always)]
    unsafe fn columns_stage<V: LaneVector<T = T>>(
        &self,
        grid: &GridPlan<T>,
        x: PartsMemory<T>,
        swap: bool,
        columns: Range<usize>,
        made: *mut ComplexParts<T>,
        buffers: &mut FftBuffers<V>,
    ) {
        let n = grid.column.n;
        debug_assert!(buffers.w.len() >= grid.column.num_vectors());
        debug_assert!(buffers.column.len() >= grid.column.column_vectors());
        for j in columns.clone().step_by(V::LANES) {
            let (j, width) = block::<V>(j, &columns);
            debug_assert!(j + V::LANES <= grid.twiddle_stride);
            let source = LaneSource::in_memory(x.at(0, j - columns.start), width, swap);
            let made = PartsMemory::contiguous(made.wrapping_add((j - columns.start) * n));
            let target = LaneTarget {
                twiddles: grid.twiddles[j..].as_ptr(),
                twiddle_strides: [grid.twiddle_stride, grid.imaginary()],
                ..self.plain_target(PartsMemory { lane: 2 * n as isize, ..made }, width, n)
            };
            let (w, column) = (buffers.w.as_mut_ptr(), buffers.column.as_mut_ptr());
            // SAFETY: the operand is readable and the result is writable (caller contract). Rows of
            // twiddle factors are filled to complete vectors.
            unsafe {
                V::side_by_side(&grid.column, &source, w, column);
                V::store_elements(&target, w, &grid.column.order);
            }
        }
    }
    /// Transforms rows of a grid whose columns are in `made`.
    ///
    /// Elements of the target are those of the first of these rows, and lanes are rows.
    ///
    /// # Safety
    /// The processor has the features of `V`. The columns are readable, and the target is writable.
    #[inline(always)]
    unsafe fn rows_stage<V: LaneVector<T = T>>(
        grid: &GridPlan<T>,
        rows: Range<usize>,
        made: *mut ComplexParts<T>,
        target: &LaneTarget<T>,
        buffers: &mut FftBuffers<V>,
    ) {
        debug_assert!(rows.end <= grid.column.n && buffers.w.len() >= grid.row.num_vectors());
        debug_assert!(buffers.column.len() >= grid.row.column_vectors());
        for k in rows.clone().step_by(V::LANES) {
            let (k, width) = block::<V>(k, &rows);
            let element = 2 * grid.column.n as isize;
            let made = PartsMemory { element, lane: 2, ..PartsMemory::contiguous(made.wrapping_add(k)) };
            let source = LaneSource::in_memory(made, width, false);
            let memory = target.memory.at(0, k - rows.start);
            let target = LaneTarget { memory, width, count: grid.row.n, ..*target };
            let (w, column) = (buffers.w.as_mut_ptr(), buffers.column.as_mut_ptr());
            // SAFETY: the columns are readable and the result is writable (caller contract).
            unsafe {
                V::side_by_side(&grid.row, &source, w, column);
                V::store_elements(&target, w, &grid.row.order);
            }
        }
    }
    /// Returns true if transforms run side by side.
    fn runs_side_by_side(&self, lanes: usize) -> bool {
        let vectors = self.from.lane == 1 || self.from.lane == 2 && self.from.part == 1;
        let complex = matches!(self.kind, FftKind::Forward | FftKind::Inverse);
        // one at a time, transforms stay in the cache, but may not fill the vectors
        let fills = |grid: &GridPlan<T>| {
            let (a, b) = (grid.column.n, grid.row.n);
            let full = |n: usize| n.next_multiple_of(lanes);
            let is_large = a * b * lanes * size_of::<[T; 2]>() > MAX_UNFILLED_BYTES;
            is_large || 3 * (full(a) * b + a * full(b)) <= 7 * a * b
        };
        let rows = complex && !vectors && self.plan.as_chirp().is_none();
        let rows = rows && self.plan.grid().is_some_and(fills);
        let fast = self.plan.grid().is_none() || 2 * self.count > lanes && !rows;
        self.plan.runs_side_by_side() && fast && self.stage.is_none()
    }
    /// Returns buffers for the job.
    fn buffers<V: LaneVector<T = T>>(&self, zero: V) -> FftBuffers<V> {
        let (plan, chirp) = (self.plan, self.plan.as_chirp());
        let n = chirp.map_or(plan.n, |chirp| chirp.plan.n).max(self.half());
        let side_by_side = self.runs_side_by_side(V::LANES);
        let complex = matches!(self.kind, FftKind::Forward | FftKind::Inverse);
        let vectors = |n: usize| vec![[zero; 2]; n];
        let padded = plan.num_vectors().max(n);
        let vectors_of_side = |grid: &GridPlan<T>| grid.column.num_vectors().max(grid.row.num_vectors());
        let row = |needed: bool| vec![[T::default(); 2]; if needed { n } else { 0 }];
        let more = chirp.is_some() || !complex;
        let most = if side_by_side { padded } else { plan.grid().map_or(0, vectors_of_side) };
        let rows = !side_by_side && self.stage.is_none();
        let some = |needed: bool| vectors(if side_by_side && needed { padded } else { 0 });
        FftBuffers {
            w: vectors(most),
            column: vectors(plan.column_vectors()),
            x: some(self.kind == FftKind::InverseReal),
            y: some(more || plan.grid().is_some()),
            row_x: row(rows && more),
            row_y: row(rows && more),
            grid: vectors(if rows { n.div_ceil(V::LANES) } else { 0 }),
        }
    }
    /// Runs the job.
    ///
    /// # Safety
    /// The processor has the features of `V`, and the memory is accessible as `FftJob` says.
    #[inline(always)]
    pub(super) unsafe fn run<V: LaneVector<T = T>>(&self) {
        // SAFETY: the processor has the features (caller contract).
        let mut buffers = self.buffers(unsafe { V::splat(T::default()) });
        if self.runs_side_by_side(V::LANES) {
            for first in (0..self.count).step_by(V::LANES) {
                // transforms in place run once
                let in_place = self.from.base == self.to.base;
                let width = V::LANES.min(self.count - first);
                let (first, width) =
                    if in_place { (first, width) } else { block::<V>(first, &(0..self.count)) };
                // SAFETY: the job has these transforms (caller contract).
                unsafe { self.run_block::<V>(first, width, &mut buffers) }
            }
            return;
        }
        let Some(grid) = self.plan.grid() else { return };
        // SAFETY: the job has these transforms, or these parts of one (caller contract).
        unsafe {
            match &self.stage {
                None => {
                    for k in 0..self.count {
                        self.run_row::<V>(grid, k, &mut buffers);
                    }
                }
                Some((GridStage::Columns, columns)) => {
                    let made = self.to.base.cast();
                    self.columns_stage::<V>(
                        grid,
                        self.from,
                        self.inverse(),
                        columns.clone(),
                        made,
                        &mut buffers,
                    );
                }
                Some((GridStage::Rows, rows)) => {
                    let (made, target) = (self.from.base.cast(), self.target(self.to, 0));
                    Self::rows_stage::<V>(grid, rows.clone(), made, &target, &mut buffers);
                }
            }
        }
    }
}

impl<T: FftFloat> ChirpPlan<T> {
    /// Multiplies operands by the chirp, and appends zeros.
    #[inline(always)]
    fn prepare<V: LaneVector<T = T>>(&self, spread: &[u32], y: &mut [ComplexParts<V>]) {
        for (k, t) in self.chirp.iter().enumerate() {
            let z = &mut y[place(spread, k)];
            *z = times(*z, *t);
        }
        let zero = [y[0][0].all(T::default()); 2];
        for k in self.chirp.len()..self.plan.n {
            y[place(spread, k)] = zero;
        }
    }
    /// Multiplies a transform by that of the filter, and swaps the parts for the transform back.
    #[inline(always)]
    fn filter<V: LaneVector<T = T>>(
        &self,
        w: &[ComplexParts<V>],
        order: &[u32],
        spread: &[u32],
        y: &mut [ComplexParts<V>],
    ) {
        for (k, t) in self.filter.iter().enumerate() {
            y[place(spread, k)] = swapped(times(w[place(order, k)], *t), true);
        }
    }
    /// Computes the results from the transform back.
    #[inline(always)]
    fn finish<V: LaneVector<T = T>>(&self, w: &[ComplexParts<V>], order: &[u32], y: &mut [ComplexParts<V>]) {
        for (k, (y, t)) in y.iter_mut().zip(&self.chirp).enumerate() {
            *y = times(swapped(w[place(order, k)], true), *t);
        }
    }
}
