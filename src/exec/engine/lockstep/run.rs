//! Runs a compiled plan level by level, either inline on the caller's thread or on several workers.
//!
//! Workers take the tasks of a level from a shared counter, or have fixed shares of it, and wait
//! for one another at a barrier before the next level. Loops, while loops and branches are entered
//! by all workers.

use super::bound_body::{BodyNode, BoundBody, MIN_BOUND_ITERATIONS};
use super::initial_copy::copy_on_workers;
use crate::core::DType;
use crate::exec::compile::gather_scatter::read_index;
use crate::exec::compile::plan::{
    BranchKernel, CarryBuffers, ControlKernel, ExecutionPlan, LoopKernel, NodeKernel, PlanLevel, PlanNode,
    PrintKernel, WhileKernel,
};
use crate::exec::display::print::{PrintArgument, print_text};
use crate::exec::runtime::{ArrayData, Buffer};
use crate::exec::{
    compile::codegen::interpreter::Scratch, compile::task_kernel::KernelTask, runtime::clock::nanoseconds,
    runtime::print_queue::PrintQueue, runtime::sync::atomic::AtomicUsize,
    runtime::sync::atomic::Ordering::Relaxed, runtime::thread_pool::Worker,
};
use crate::kernels::{HAS_FAST_PATHS, flush_mode::FlushMode};
use std::sync::Arc;

/// The state of one worker that runs a plan.
pub(super) struct Runner<'a> {
    /// The worker, with its index and the barrier; `None` if the plan runs on a single thread.
    pub(super) worker: Option<&'a Worker<'a>>,
    /// The number of tasks taken so far, for each level. Never reset.
    /// Since every worker takes one task too many, round `t` of a level starts at
    /// `t · (tasks + workers)`. If this is empty, each worker has a fixed share of each level.
    pub(super) counters: &'a [AtomicUsize],
    /// The number of times that each level has run.
    pub(super) rounds: Vec<usize>,
    /// The queue of printed texts.
    pub(super) prints: &'a PrintQueue,
    /// The scratch memory of this thread.
    pub(super) scratch: &'a mut Scratch,
    /// The recorded marks; `None` if the run is not measured.
    pub(super) marks: Option<Vec<RunMark>>,
}

/// A record of when a worker ran a task of a node, or waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunMark {
    /// The id of the level and the index of the node; `None` if the worker waited at a barrier.
    pub(super) node: Option<(u32, u32)>,
    /// The start and end times in nanoseconds.
    pub(super) start_nanos: usize,
    pub(super) end_nanos: usize,
}

/// The maximum number of marks recorded for each worker.
pub(super) const MAX_MARKS: usize = 1 << 20;

/// The error of a run in which another worker panicked.
pub(super) struct WorkerPanicked;

type PlanResult = Result<(), WorkerPanicked>;

impl Runner<'_> {
    fn barrier(&mut self) -> PlanResult {
        if self.index() == 0 && self.prints.caller_runs() {
            self.prints.flush();
        }
        let Some(m) = self.worker else { return Ok(()) };
        let from = self.now();
        let met = m.barrier();
        self.record_mark(None, from);
        if met { Ok(()) } else { Err(WorkerPanicked) }
    }
    /// Returns the current time in nanoseconds if marks are recorded, otherwise 0.
    fn now(&self) -> usize {
        if self.marks.is_some() { nanoseconds() } else { 0 }
    }
    /// Records a mark from `from` until now, if marks are recorded.
    fn record_mark(&mut self, node: Option<(usize, usize)>, from: usize) {
        if let Some(marks) = self.marks.as_mut().filter(|m| m.len() < MAX_MARKS) {
            let node = node.map(|(level, k)| (level as u32, k as u32));
            marks.push(RunMark { node, start_nanos: from, end_nanos: nanoseconds() });
        }
    }
    fn count(&self) -> usize {
        self.worker.map_or(1, Worker::count)
    }
    fn index(&self) -> usize {
        self.worker.map_or(0, Worker::index)
    }

    /// Runs all levels of a plan.
    ///
    /// # Safety
    /// `base` has one pointer for each slot, to memory of the size of the slot's value. Slots that
    /// a loop or branch of the plan sets before it runs its body may have any pointer. No other
    /// code writes memory that this plan reads, or accesses memory that it writes. All workers call
    /// this with equal tables, except for the slots of loop counters, which are separate for each
    /// worker.
    pub(super) unsafe fn run_plan(&mut self, p: &ExecutionPlan, base: &mut [*mut u8]) -> PlanResult {
        for (k, level) in p.levels.iter().enumerate() {
            // SAFETY: `base` is valid (caller contract); the nodes of one level are independent of
            // one another, and a barrier separates two levels
            unsafe {
                match &level.nodes[..] {
                    [PlanNode { kernel: NodeKernel::Control(k), .. }] => self.run_control(k, base)?,
                    nodes if self.count() == 1 => {
                        for (k, n) in nodes.iter().enumerate() {
                            let from = self.now();
                            self.run_node(n, None, base);
                            self.record_mark(Some((level.id, k)), from);
                        }
                    }
                    _ => {
                        self.run_share(level, p.in_loop, base);
                        if p.in_loop || k + 1 < p.levels.len() {
                            self.barrier()?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs this worker's share of the tasks of a level.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies, and all workers run this level. Its tasks are
    /// split by worker or claimed from a shared counter, so that each task runs once.
    unsafe fn run_share(&mut self, level: &PlanLevel, in_loop: bool, base: &mut [*mut u8]) {
        let (total, count) = (level.num_tasks as usize, self.count());
        // each worker runs the same tasks in every iteration, so that its cache holds their data
        let is_fixed = self.counters.is_empty() || in_loop && total <= count;
        let (mut own, mut start) = (total * self.index() / count..total * (self.index() + 1) / count, 0);
        if !is_fixed {
            start = self.rounds[level.id] * (total + count);
            self.rounds[level.id] += 1;
        }
        loop {
            let next = match is_fixed {
                true => own.next(),
                false => Some(self.counters[level.id].fetch_add(1, Relaxed) - start).filter(|i| *i < total),
            };
            let Some((k, n, task)) = next.and_then(|i| find_task(level, i as i64)) else { return };
            let from = self.now();
            // SAFETY: `base` is valid, all earlier levels have ended (caller contract), and only
            // this worker runs the task
            unsafe { self.run_node(n, Some(task), base) };
            self.record_mark(Some((level.id, k)), from);
        }
    }

    /// Runs a task of a node, or without `task` all of them.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies, all earlier levels have ended, and no other
    /// worker runs these tasks.
    unsafe fn run_node(&mut self, n: &PlanNode, task: Option<i64>, base: &mut [*mut u8]) {
        // SAFETY: `base` is valid (caller contract), and so are the slots of stages (guaranteed by
        // the planner)
        unsafe {
            match (&n.kernel, task) {
                (NodeKernel::Task(kernel, stage), Some(index)) => {
                    let task = KernelTask { stage: *stage, index, count: n.num_tasks };
                    kernel.run(task, base, self.scratch);
                }
                (NodeKernel::Task(kernel, stage), None) => kernel.run_all(*stage, base, self.scratch),
                (NodeKernel::Print(p), _) => {
                    self.prints.push(print(p, base));
                    if self.worker.is_none() {
                        self.prints.flush();
                    }
                }
                (NodeKernel::Control(_), _) => {}
            }
        }
    }

    /// Returns whether this run binds the bodies of loops: on one thread, and not measured.
    fn binds_bodies(&self) -> bool {
        HAS_FAST_PATHS && self.worker.is_none() && self.marks.is_none()
    }

    /// Runs a body that is bound to its operands.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies. In all slots that are not moving, `base` has
    /// the pointers that it had when the body was bound.
    #[inline]
    unsafe fn run_bound(&mut self, body: &mut BoundBody<'_>, base: &mut [*mut u8]) -> PlanResult {
        for node in &mut body.0 {
            // SAFETY: the caller upholds the contract, and the nodes run in the order of their levels.
            unsafe {
                match node {
                    BodyNode::Bound(call) => call.run(base),
                    BodyNode::Task(kernel, stage) => kernel.run_all(*stage, base, self.scratch),
                    BodyNode::Control(k) => self.run_control(k, base)?,
                }
            }
        }
        Ok(())
    }

    /// Runs a loop or branch, which all workers enter.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies.
    unsafe fn run_control(&mut self, k: &ControlKernel, base: &mut [*mut u8]) -> PlanResult {
        // SAFETY: `base` is valid (caller contract)
        unsafe {
            match k {
                ControlKernel::Loop(l) => self.run_loop(l, base),
                ControlKernel::While(w) => self.run_while(w, base),
                ControlKernel::Branch(b) => self.run_branch(b, base),
            }
        }
    }

    /// Sets the slots `body_out` of carries to the values that the first iteration reads.
    ///
    /// A value of which each iteration writes only a part is copied to the memory of the final
    /// value, where all iterations update it.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies, and all workers enter the loop.
    unsafe fn start_carries(&mut self, carry: &[CarryBuffers], base: &mut [*mut u8]) -> PlanResult {
        let mut copied = false;
        for c in carry {
            let (from, to) = (base[c.init as usize], base[c.result as usize]);
            base[c.body_out as usize] = from;
            if c.starts_from_copy && from != to {
                copied = true;
                base[c.body_out as usize] = to;
                // SAFETY: the two buffers have `c.bytes` bytes and do not overlap (guaranteed by the
                // planner), and each worker that enters the loop copies its share.
                unsafe { copy_on_workers(self.worker, to, from, c.bytes) }
            }
        }
        if copied { self.barrier() } else { Ok(()) }
    }

    /// Runs a loop of known length.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies.
    unsafe fn run_loop(&mut self, l: &LoopKernel, base: &mut [*mut u8]) -> PlanResult {
        for (outer, inner) in &l.fixed {
            base[*inner as usize] = base[*outer as usize];
        }
        let mut number = 0i32;
        let number = &raw mut number;
        base[l.iteration as usize] = number.cast();
        let binds = l.length >= MIN_BOUND_ITERATIONS && self.binds_bodies();
        let mut bound = None;
        // SAFETY: `base` is valid (caller contract), and all workers enter the loop
        unsafe { self.start_carries(&l.carry, base)? }
        for t in 0..l.length {
            let k = if l.reverse { l.length - 1 - t } else { t };
            // SAFETY: `number` is a local variable of this call, which outlives the iteration
            unsafe { number.write((l.start + k as i64) as i32) }
            for c in &l.carry {
                base[c.body_in as usize] = base[c.body_out as usize];
                // the buffers alternate, so that the last iteration writes to the buffer of the
                // result
                base[c.body_out as usize] = base[match c.alternate {
                    Some(other) if (l.length - 1 - t) % 2 == 1 => other,
                    _ => c.result,
                } as usize];
            }
            for (outer, inner, bytes) in &l.xs {
                base[*inner as usize] = base[*outer as usize].wrapping_add(k * bytes);
            }
            for (inner, outer, bytes) in &l.ys {
                base[*inner as usize] = base[*outer as usize].wrapping_add(k * bytes);
            }
            if t == 1 && binds {
                bound = BoundBody::bind_loop(l, base);
            }
            // SAFETY: `base` is valid (caller contract); only later iterations read the values
            // written in this one, and they start after all workers have finished it
            unsafe {
                match &mut bound {
                    Some(body) => self.run_bound(body, base)?,
                    None => self.run_plan(&l.body, base)?,
                }
            }
        }
        Ok(())
    }

    /// Runs a while loop.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies.
    unsafe fn run_while(&mut self, w: &WhileKernel, base: &mut [*mut u8]) -> PlanResult {
        for (outer, inner) in &w.fixed {
            base[*inner as usize] = base[*outer as usize];
        }
        // SAFETY: `base` is valid (caller contract), and all workers enter the loop
        unsafe { self.start_carries(&w.carry, base)? }
        let (binds, mut bound) = (self.binds_bodies(), None::<[BoundBody<'_>; 2]>);
        for t in 0usize.. {
            for (c, inner) in w.carry.iter().zip(&w.cond_carry) {
                base[*inner as usize] = base[c.body_out as usize];
            }
            // SAFETY: `base` is valid (caller contract); the condition has `test_elements` bools,
            // and they are written again only after a barrier
            let go = unsafe {
                match &mut bound {
                    Some([cond, _]) => self.run_bound(cond, base)?,
                    None => self.run_plan(&w.cond, base)?,
                }
                std::slice::from_raw_parts(base[w.test as usize], w.test_elements).iter().any(|b| *b != 0)
            };
            if !go {
                break;
            }
            if !w.body.has_barrier() {
                self.barrier()?;
            }
            for c in &w.carry {
                base[c.body_in as usize] = base[c.body_out as usize];
                base[c.body_out as usize] =
                    base[c.alternate.filter(|_| t % 2 == 1).unwrap_or(c.result) as usize];
            }
            // SAFETY: `base` is valid (caller contract)
            unsafe {
                match &mut bound {
                    Some([_, body]) => self.run_bound(body, base)?,
                    None => self.run_plan(&w.body, base)?,
                }
            }
            if t == MIN_BOUND_ITERATIONS && binds {
                bound = BoundBody::bind_while(w, base);
            }
        }
        self.barrier()?;
        if self.index() == 0 {
            for c in &w.carry {
                let (from, to) = (base[c.body_out as usize], base[c.result as usize]);
                if from != to {
                    // SAFETY: both pointers are to different buffers of `c.bytes` bytes (guaranteed
                    // by the planner)
                    unsafe { std::ptr::copy_nonoverlapping(from, to, c.bytes) }
                }
            }
        }
        self.barrier()
    }

    /// Runs the arm of a branch that its index selects.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies.
    unsafe fn run_branch(&mut self, b: &BranchKernel, base: &mut [*mut u8]) -> PlanResult {
        let p = base[b.selector as usize];
        // SAFETY: `base` is valid (caller contract), and the selector's slot holds a scalar of type
        // `b.dtype`
        let index = unsafe { read_index(p, b.dtype) };
        // (the first arm is that of `true`)
        let which = if b.dtype == DType::Bool { i64::from(index == 0) } else { index };
        let k = which.clamp(0, b.arms.len() as i64 - 1) as usize;
        // if an arm has no barrier, a worker could finish it and overwrite the index before all
        // workers have read it
        if !b.arms.iter().all(ExecutionPlan::has_barrier) {
            self.barrier()?;
        }
        for (outer, inner) in &b.wires[k] {
            base[*inner as usize] = base[*outer as usize];
        }
        // SAFETY: `base` has a valid pointer for each slot (caller contract), and the inputs of the
        // arm have just been set.
        unsafe { self.run_plan(&b.arms[k], base) }
    }
}

/// Returns the node of task `i` of a level, with its index, and the number of the task in the node.
/// The tasks of the nodes are numbered one node after the other.
fn find_task(level: &PlanLevel, mut i: i64) -> Option<(usize, &PlanNode, i64)> {
    for (k, n) in level.nodes.iter().enumerate() {
        if i < n.num_tasks {
            return Some((k, n, i));
        }
        i -= n.num_tasks;
    }
    None
}

/// Copies the values that are printed and returns the text.
///
/// # Safety
/// The contract of [`Runner::run_plan`] applies.
unsafe fn print(p: &PrintKernel, base: &[*mut u8]) -> String {
    let _mode = FlushMode::off();
    let values = (p.values.iter())
        .map(|v| {
            let bytes = v.shape.num_elements() * v.dtype.size();
            let mut copy = Buffer::allocate(bytes)?;
            // SAFETY: the slot points to a value of `bytes` bytes (caller contract)
            unsafe { std::ptr::copy_nonoverlapping(base[v.slot as usize], copy.as_mut_ptr(), bytes) };
            let slab = ArrayData::new(v.dtype.storage(), v.shape.clone(), 1, Arc::new(copy));
            Ok(PrintArgument { data: slab, dtype: v.dtype, leading_axes: v.hidden.clone() })
        })
        .collect();
    print_text(&p.template, values, &p.manual, p.mesh.as_ref())
}
