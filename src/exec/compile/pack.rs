//! Copies of strided boxes, which run on one thread.

use super::element_word::{ElementWord, with_word};
use super::index::{LoopVec, MAX_LOOPS};
use super::ir::{BufferProgram, CopyBox};
use super::task_kernel::{KernelTask, SlotAccess, TaskKernel};
use super::{codegen::interpreter::Scratch, codegen::values::scalar_bits};
use crate::core::Scalar;
use crate::ir::program::Source;
use crate::partition::Slot;
use std::mem::MaybeUninit;

/// A copy of strided boxes.
#[derive(Clone, Debug)]
pub(crate) struct PackKernel {
    /// The slot of the result.
    pub(crate) out: u32,
    /// The number of elements of the result.
    pub(crate) elements: usize,
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
    PackKernel {
        out: slot(out),
        elements: v.shape.num_elements(),
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
        1
    }
    fn cost_us(&self) -> f64 {
        self.elements as f64 * 1e-3
    }
    fn limit_tasks(&mut self, _most: i64) {}
    unsafe fn run(&self, _task: KernelTask, memory: &mut [*mut u8], _scratch: &mut Scratch) {
        // SAFETY: the only task writes the whole value (caller contract), and elements have the
        // size of the word.
        unsafe { with_word!(self.element_bytes, T => self.copy_words::<T>(memory)) }
    }
}

impl PackKernel {
    /// Fills the result with a constant, and copies the boxes into it as words of type `T`.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds, and `T` has the size of an element.
    unsafe fn copy_words<T: ElementWord>(&self, memory: &[*mut u8]) {
        let out = memory[self.out as usize];
        let at =
            |x: &LoopVec, (off, st): &(i64, LoopVec)| off + (0..MAX_LOOPS).map(|d| x[d] * st[d]).sum::<i64>();
        // SAFETY: the result has `elements` elements of the size of `T` (caller contract).
        let all = unsafe { std::slice::from_raw_parts_mut(out.cast(), self.elements) };
        all.fill(MaybeUninit::new(T::from_bits(self.fill)));
        for part in &self.boxes {
            let n: i64 = part.ext.iter().product();
            let mut x = [0; MAX_LOOPS];
            for _ in 0..n {
                // SAFETY: the box is within both values (guaranteed by `bind`), which have elements
                // of the size of `T` (caller contract).
                unsafe {
                    let to = out.wrapping_offset(at(&x, &part.dst) as isize).cast::<T>();
                    to.write(match part.from {
                        CopySource::Slot(s) => {
                            *memory[s as usize].wrapping_offset(at(&x, &part.src) as isize).cast::<T>()
                        }
                        CopySource::Bits(b) => T::from_bits(b),
                    });
                }
                for d in (0..MAX_LOOPS).rev() {
                    x[d] += 1;
                    if x[d] < part.ext[d] {
                        break;
                    }
                    x[d] = 0;
                }
            }
        }
    }
}
