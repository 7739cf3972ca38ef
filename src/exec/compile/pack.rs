//! Copies of strided boxes.

use super::element_word::{ElementWord, with_word};
use super::index::{LoopVec, MAX_LOOPS};
use super::ir::{BufferProgram, CopyBox};
use super::task_kernel::{KernelTask, SlotAccess, TaskKernel};
use super::{codegen::interpreter::Scratch, codegen::values::scalar_bits};
use crate::core::Scalar;
use crate::ir::program::Source;
use crate::partition::Slot;
use std::mem::MaybeUninit;
use std::ops::Range;

/// A copy of strided boxes.
#[derive(Clone, Debug)]
pub(crate) struct PackKernel {
    /// The slot of the result.
    pub(crate) out: u32,
    /// The number of elements of the result.
    pub(crate) elements: usize,
    /// The number of rows of the result: the size of its first dimension that has several indices.
    pub(crate) rows: i64,
    /// The number of tasks, each of which writes some of the rows.
    pub(crate) num_tasks: i64,
    /// The size of an element, in bytes.
    pub(crate) element_bytes: usize,
    /// The bits of elements that no box covers.
    pub(crate) fill: u128,
    /// The boxes.
    pub(crate) boxes: Vec<BoundCopyBox>,
}

/// A box to copy; offsets and strides are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct BoundCopyBox {
    /// The source.
    pub(crate) from: CopySource,
    /// The sizes of the box.
    pub(crate) ext: LoopVec,
    /// The offset and the strides in the source.
    pub(crate) src: (i64, LoopVec),
    /// The offset and the strides in the result.
    pub(crate) dst: (i64, LoopVec),
}

/// The source of a box: a slot, or the same bits everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopySource {
    /// A slot.
    Slot(u32),
    /// Equal bits for every element.
    Bits(u128),
}

/// Binds a copy of boxes to memory; elements in no box are `fill`.
pub(crate) fn bind(
    flow: &BufferProgram<'_>,
    out: Slot,
    fill: Scalar,
    boxes: &[CopyBox],
    base: u32,
) -> PackKernel {
    let slot = |s: Slot| flow.alias_root(s) as u32 + base;
    let v = &flow.values[out];
    let size = v.dtype.size() as i64;
    // (a box that covers nothing may have any offset)
    let scale = |(o, st): &(i64, LoopVec)| (o.saturating_mul(size), st.map(|s| s.saturating_mul(size)));
    let bound = |p: &CopyBox| BoundCopyBox {
        from: match p.from {
            Source::Value(s) => CopySource::Slot(slot(s)),
            Source::Const(c) => CopySource::Bits(scalar_bits(v.dtype, c)),
        },
        ext: p.ext,
        src: scale(&p.src),
        dst: scale(&p.dst),
    };
    let elements = v.shape.num_elements();
    let rows = v.shape.iter().find(|n| **n > 1).map_or(1, |n| *n as i64);
    PackKernel {
        out: slot(out),
        elements,
        rows,
        num_tasks: (elements as i64 >> 15).clamp(1, rows),
        element_bytes: size as usize,
        fill: scalar_bits(v.dtype, fill),
        boxes: boxes.iter().map(bound).collect(),
    }
}

impl TaskKernel for PackKernel {
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        visit(SlotAccess::write(self.out));
        for b in &self.boxes {
            if let CopySource::Slot(s) = b.from {
                visit(SlotAccess::read(s));
            }
        }
    }
    fn num_tasks(&self) -> i64 {
        self.num_tasks
    }
    fn cost_us(&self) -> f64 {
        self.elements as f64 * 1e-3
    }
    fn limit_tasks(&mut self, most: i64) {
        self.num_tasks = self.num_tasks.min(most);
    }
    unsafe fn run(&self, task: KernelTask, memory: &mut [*mut u8], _scratch: &mut Scratch) {
        // SAFETY: the task writes its rows only, and elements have the size of the word (caller
        // contract).
        unsafe { with_word!(self.element_bytes, T => self.copy_words::<T>(task.share_of(self.rows), memory)) }
    }
}

impl PackKernel {
    /// Fills rows of the result with a constant, and copies the boxes into them as words of type
    /// `T`.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds for these rows, and `T` has the size of an
    /// element.
    unsafe fn copy_words<T: ElementWord>(&self, rows: Range<i64>, memory: &[*mut u8]) {
        let out = memory[self.out as usize];
        let size = size_of::<T>() as i64;
        let row = self.elements / self.rows.max(1) as usize;
        let row_bytes = (row as i64 * size).max(1);
        // SAFETY: the rows are in the result, whose elements have the size of `T` (caller
        // contract).
        let all = unsafe {
            let first = out.cast::<MaybeUninit<T>>().add(rows.start as usize * row);
            std::slice::from_raw_parts_mut(first, (rows.end - rows.start) as usize * row)
        };
        all.fill(MaybeUninit::new(T::from_bits(self.fill)));
        for part in &self.boxes {
            let (mut ext, mut src, mut dst) = (part.ext, part.src.0, part.dst.0);
            // the part of the box in these rows: at most one of its dimensions runs along rows
            let first = dst.div_euclid(row_bytes);
            let along = (0..MAX_LOOPS).find(|d| ext[*d] > 1 && part.dst.1[*d] >= row_bytes);
            if let Some(d) = along {
                let step = part.dst.1[d] / row_bytes;
                let from = ((rows.start - first + step - 1).div_euclid(step)).clamp(0, ext[d]);
                let to = ((rows.end - first + step - 1).div_euclid(step)).clamp(from, ext[d]);
                (src, dst, ext[d]) = (src + from * part.src.1[d], dst + from * part.dst.1[d], to - from);
            } else if !rows.contains(&first) {
                continue;
            }
            let last = (0..MAX_LOOPS).rev().find(|d| ext[*d] != 1).unwrap_or(MAX_LOOPS - 1);
            let (n, steps) = (ext[last] as usize, [part.src.1[last], part.dst.1[last]].map(|s| s as isize));
            ext[last] = ext[last].min(1);
            let lines: i64 = ext.iter().product();
            let mut x = [0; MAX_LOOPS];
            for _ in 0..lines {
                let at =
                    |off: i64, st: &LoopVec| (off + (0..last).map(|d| x[d] * st[d]).sum::<i64>()) as isize;
                let to = out.wrapping_offset(at(dst, &part.dst.1));
                // SAFETY: the box is within both values (guaranteed by `bind`), which have elements
                // of the size of `T` (caller contract).
                unsafe {
                    match part.from {
                        CopySource::Slot(s) => {
                            let from = memory[s as usize].wrapping_offset(at(src, &part.src.1));
                            copy_line::<T>(n, to, steps[1], from, steps[0]);
                        }
                        CopySource::Bits(b) => {
                            let word = T::from_bits(b);
                            copy_line::<T>(n, to, steps[1], (&raw const word).cast(), 0)
                        }
                    }
                }
                for d in (0..last).rev() {
                    x[d] += 1;
                    if x[d] < ext[d] {
                        break;
                    }
                    x[d] = 0;
                }
            }
        }
    }
}

/// Copies `n` words at distances in bytes.
///
/// # Safety
/// Both pointers are to `n` words at these distances, which do not overlap.
unsafe fn copy_line<T: ElementWord>(
    n: usize,
    to: *mut u8,
    to_step: isize,
    from: *const u8,
    from_step: isize,
) {
    let size = size_of::<T>() as isize;
    // SAFETY: the words are in memory and do not overlap (caller contract).
    unsafe {
        if to_step == size && from_step == size {
            return std::ptr::copy_nonoverlapping(from.cast::<T>(), to.cast(), n);
        }
        for i in 0..n as isize {
            to.wrapping_offset(i * to_step).cast::<T>().write(*from.wrapping_offset(i * from_step).cast());
        }
    }
}
