//! The interface of kernels that run as independent tasks.
//!
//! A kernel has one stage, or two with a barrier in between. The tasks of a stage are independent,
//! so that workers can run them in any order. The engines know kernels only through this trait;
//! each module of kernels has a function `bind` that creates them.

use super::codegen::interpreter::Scratch;
pub(crate) use super::codegen::values::SlotAccess;
use std::fmt::Debug;
use std::ops::Range;

/// The stage that a node of a plan runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum KernelStage {
    /// All of a kernel that has one stage.
    Only,
    /// The first of two stages, which fills this slot.
    First(u32),
    /// The second of two stages, which reads this slot.
    Second(u32),
}

/// One task of a stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelTask {
    /// The stage.
    pub(crate) stage: KernelStage,
    /// The number of this task.
    pub(crate) index: i64,
    /// The number of tasks among which the stage is divided.
    pub(crate) count: i64,
}

impl KernelTask {
    /// Returns the part of `n` units of work that belongs to this task.
    pub(crate) fn share_of(&self, n: i64) -> Range<i64> {
        n * self.index / self.count..n * (self.index + 1) / self.count
    }
}

/// The second stage of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecondStage {
    /// The name in reports.
    pub(crate) name: &'static str,
    /// The number of tasks.
    pub(crate) num_tasks: i64,
    /// The approximate cost, in microseconds.
    pub(crate) cost_us: f64,
    /// The size of the memory that the first stage fills for the second, in bytes.
    pub(crate) scratch_bytes: usize,
}

/// A kernel that is bound to memory and runs as independent tasks.
pub(crate) trait TaskKernel: Debug + Send + Sync {
    /// Calls `visit` with the slots that the kernel reads and writes; a slot may occur repeatedly.
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess));
    /// Returns the number of tasks; if there are two stages, that of the first.
    fn num_tasks(&self) -> i64;
    /// Returns the approximate cost, in microseconds; if there are two stages, that of the first.
    fn cost_us(&self) -> f64;
    /// Divides the kernel into at most `most` tasks, if it has one stage and can be divided anew.
    fn limit_tasks(&mut self, most: i64);
    /// Returns the second stage, if there is one.
    fn second_stage(&self) -> Option<SecondStage> {
        None
    }
    /// Returns the chosen implementation and the reason, for reports, if there are several.
    fn implementation(&self) -> Option<&'static str> {
        None
    }
    /// Returns the kernel with the operands that `memory` has now, if it has one stage and runs on
    /// so few elements that finding the operands takes as long.
    ///
    /// The slots of `moving` may have other addresses in each call.
    fn bind_call(&self, memory: &[*mut u8], moving: &[u32]) -> Option<Box<dyn BoundCall + '_>> {
        let _ = (memory, moving);
        None
    }
    /// Runs one task.
    ///
    /// # Safety
    /// For each slot that the kernel uses, `memory` points to memory that contains every element
    /// that the task accesses. No other thread writes an element that the task reads, or reads or
    /// writes an element that it writes. The slot of the stage, if it has one, points to
    /// `scratch_bytes` bytes, and the second stage starts after all tasks of the first have ended.
    /// `memory` belongs to this worker, and the task may change the entries of slots that no other
    /// kernel uses.
    unsafe fn run(&self, task: KernelTask, memory: &mut [*mut u8], scratch: &mut Scratch);
    /// Runs all tasks of a stage, one after another.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run) holds for all tasks.
    unsafe fn run_all(&self, stage: KernelStage, memory: &mut [*mut u8], scratch: &mut Scratch) {
        // SAFETY: a single task does all the work, and the caller upholds the contract for it.
        unsafe { self.run(KernelTask { stage, index: 0, count: 1 }, memory, scratch) }
    }
}

/// A kernel with the addresses of its operands.
///
/// A kernel finds its operands each time it runs, which takes longer than the work on a few
/// elements. In a loop body, most operands have the same address in each iteration.
pub(crate) trait BoundCall: Debug {
    /// Runs all tasks of the kernel.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run_all`] holds. In all slots of the kernel that are not
    /// moving, `memory` has the pointers that it had when the kernel was bound.
    unsafe fn run(&mut self, memory: &[*mut u8]);
}
