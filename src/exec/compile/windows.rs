//! Kernels that find the steps of windows, or place elements there, a line at a time.

use super::index::{LoopVec, MAX_LOOPS};
use super::ir::{BufferProgram, WindowOp, WindowOpKind, WindowedDim};
use super::task_kernel::{KernelTask, SlotAccess, TaskKernel};
use crate::exec::compile::codegen::interpreter::Scratch;
use crate::kernels::{self, WindowLine, WindowLineKernel};
use crate::partition::Slot;
use smallvec::SmallVec;

/// The minimum number of elements of a task.
const MIN_TASK_ELEMENTS: i64 = 1 << 14;

/// Windows that are bound to memory. A line runs along the last dimension.
#[derive(Debug)]
pub(crate) struct WindowKernel {
    /// The kind of the operation.
    kind: WindowOpKind,
    /// The slot of the result.
    out: u32,
    /// The slots of the operands.
    reads: [u32; 2],
    /// The dimensions, except the last one.
    outer: Vec<WindowedDim>,
    /// For each of them, the windows and their steps at each element, if elements are placed.
    placed: Vec<Vec<PlacedWindows>>,
    /// The last dimension.
    last: WindowedDim,
    /// The steps of a line.
    lines: Vec<BoundLine>,
    /// True if the steps of a line are at all of its elements.
    is_covered: bool,
    /// The number of the first step.
    first_step: i64,
    /// The size of an element, in bytes.
    element_bytes: i64,
    /// The kernel of a line.
    kernel: WindowLineKernel,
    /// The number of lines of the result.
    num_rows: i64,
    /// The number of elements and windows.
    elements: i64,
    /// The number of tasks.
    num_tasks: i64,
}

/// The windows that cover an element of a dimension, each with its step there.
type PlacedWindows = SmallVec<[(i64, i64); 1]>;

/// The windows of a line that have a step at an element.
#[derive(Clone, Copy, Debug)]
struct BoundLine {
    /// The step, counted from the first one.
    line: WindowLine,
    /// The first of these windows.
    window: i64,
    /// The element of its step.
    element: i64,
}

/// Returns the steps of a line. Two that are next to one another go together, unless elements are
/// added.
fn bound_lines(w: &WindowedDim, adds: bool) -> Vec<BoundLine> {
    let mut lines: Vec<BoundLine> = Vec::new();
    for t in 0..w.taps {
        let first = w.offset + w.dilation * t;
        let lo = -first.min(0).div_euclid(w.stride);
        let hi = ((w.elements - first - 1).div_euclid(w.stride) + 1).clamp(0, w.windows);
        if lo < hi {
            let (n, step) = ((hi - lo) as usize, (w.step * t) as i32);
            let line = WindowLine { n, stride: w.stride as usize, step, next: None, adds };
            lines.push(BoundLine { line, window: lo, element: first + w.stride * lo });
        }
    }
    if adds {
        return lines;
    }
    lines.sort_by_key(|l| l.element);
    if let [a, b] = lines[..]
        && w.stride == 2
        && (a.window, a.line.n, a.element + 1) == (b.window, b.line.n, b.element)
    {
        return vec![BoundLine { line: WindowLine { next: Some(b.line.step), ..a.line }, ..a }];
    }
    lines
}

/// Returns the windows and their steps at each element of a dimension, in the order of the steps.
fn windows_at(w: &WindowedDim) -> Vec<PlacedWindows> {
    let mut at = vec![SmallVec::new(); w.elements as usize];
    for (t, j) in (0..w.taps).flat_map(|t| (0..w.windows).map(move |j| (t, j))) {
        let element = w.stride * j + w.dilation * t + w.offset;
        if let Some(at) = usize::try_from(element).ok().and_then(|e| at.get_mut(e)) {
            at.push((j, w.step * t));
        }
    }
    at
}

/// Binds an operation to memory.
pub(crate) fn bind(flow: &BufferProgram<'_>, op: &WindowOp, base: u32) -> WindowKernel {
    let slot = |s: Slot| flow.alias_root(s) as u32 + base;
    let (mut outer, places) = (op.dims.clone(), op.kind == WindowOpKind::Place);
    let one = WindowedDim { windows: 1, elements: 1, stride: 1, offset: 0, taps: 1, dilation: 0, step: 0 };
    let last = outer.pop().unwrap_or(one);
    let size = |w: &WindowedDim| if places { w.elements } else { w.windows };
    let num_rows: i64 = outer.iter().map(size).product();
    let elements = outer.iter().chain([&last]).map(|w| w.elements.max(w.windows)).product::<i64>();
    let overlap = |w: &WindowedDim| w.taps > 1 && (w.dilation.abs() > 1 || w.taps > w.stride);
    let adds = places && op.dims.iter().any(overlap);
    let lines = bound_lines(&last, adds);
    let steps = lines.iter().map(|l| l.line.n * if l.line.next.is_some() { 2 } else { 1 });
    WindowKernel {
        kind: op.kind,
        out: slot(op.out),
        reads: op.reads.map(slot),
        placed: if places { outer.iter().map(windows_at).collect() } else { Vec::new() },
        is_covered: !adds && steps.sum::<usize>() as i64 == last.elements,
        outer,
        last,
        lines,
        first_step: op.first_step,
        element_bytes: op.dtype.size() as i64,
        kernel: if places { kernels::place_at_steps(op.dtype) } else { kernels::find_steps(op.dtype) },
        num_rows,
        elements,
        num_tasks: (elements / MIN_TASK_ELEMENTS).clamp(1, num_rows.max(1)),
    }
}

impl TaskKernel for WindowKernel {
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        visit(SlotAccess::write(self.out));
        self.reads.iter().for_each(|s| visit(SlotAccess::read(*s)));
    }
    fn num_tasks(&self) -> i64 {
        self.num_tasks
    }
    fn cost_us(&self) -> f64 {
        (self.elements as f64 * 0.5 + self.num_rows as f64 * 15.0) / 1000.0
    }
    fn limit_tasks(&mut self, most: i64) {
        self.num_tasks = most.min(self.num_rows).max(1);
    }
    unsafe fn run(&self, task: KernelTask, memory: &mut [*mut u8], _scratch: &mut Scratch) {
        let rows = task.share_of(self.num_rows);
        if rows.is_empty() {
            return;
        }
        let (mut x, mut k) = ([0; MAX_LOOPS], rows.start);
        let size = |d: usize| match self.kind {
            WindowOpKind::Find => self.outer[d].windows,
            WindowOpKind::Place => self.outer[d].elements,
        };
        for d in (0..self.outer.len()).rev() {
            (x[d], k) = (k % size(d), k / size(d));
        }
        for row in rows {
            // SAFETY: the row is one of the task, whose elements are in memory (caller contract).
            unsafe {
                match self.kind {
                    WindowOpKind::Find => self.find(row, &x, memory),
                    WindowOpKind::Place => self.place(row, &x, memory),
                }
            }
            for d in (0..self.outer.len()).rev() {
                x[d] += 1;
                if x[d] < size(d) {
                    break;
                }
                x[d] = 0;
            }
        }
    }
}

impl WindowKernel {
    /// Returns the line with this number of its first step.
    fn line_at(&self, l: &BoundLine, step: i64) -> WindowLine {
        let add = |first: i32| first.wrapping_add(step as i32);
        WindowLine { step: add(l.line.step), next: l.line.next.map(add), ..l.line }
    }
    /// Finds the steps of a line of windows, whose outer indices are `x`.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds for this line.
    unsafe fn find(&self, row: i64, x: &LoopVec, memory: &[*mut u8]) {
        let (w, size, outer) = (&self.last, self.element_bytes, &self.outer);
        let [elements, extremes] = self.reads.map(|s| memory[s as usize]);
        let at = |p: *mut u8, element: i64, bytes: i64| p.wrapping_offset((element * bytes) as isize);
        let (out, extremes) = (memory[self.out as usize], at(extremes, row * w.windows, size));
        let out = at(out, row * w.windows, 4);
        // SAFETY: the line has one int32 for each window.
        let steps = unsafe { std::slice::from_raw_parts_mut(out.cast(), w.windows as usize) };
        steps.fill(std::mem::MaybeUninit::new(i32::MAX));
        let mut taps = [0i64; MAX_LOOPS];
        loop {
            let (mut element, mut step, mut inside) = (0, self.first_step, true);
            for (d, w) in outer.iter().enumerate() {
                let position = w.stride * x[d] + w.dilation * taps[d] + w.offset;
                inside &= (0..w.elements).contains(&position);
                (element, step) = (element * w.elements + position, step + w.step * taps[d]);
            }
            for l in self.lines.iter().filter(|_| inside) {
                let a = at(extremes, l.window, size);
                let b = at(elements, element * w.elements + l.element, size);
                // SAFETY: these windows of the line have this step at an element.
                unsafe { (self.kernel)(&self.line_at(l, step), at(out, l.window, 4), a, b) }
            }
            let Some(d) = (0..outer.len()).rev().find(|d| taps[*d] + 1 < outer[*d].taps) else { return };
            taps[d] += 1;
            taps[d + 1..].fill(0);
        }
    }
    /// Places the elements of windows in a line of elements, whose outer indices are `x`.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds for this line.
    unsafe fn place(&self, row: i64, x: &LoopVec, memory: &[*mut u8]) {
        let (w, size) = (&self.last, self.element_bytes);
        let [steps, elements] = self.reads.map(|s| memory[s as usize]);
        let at = |p: *mut u8, element: i64, bytes: i64| p.wrapping_offset((element * bytes) as isize);
        let out = at(memory[self.out as usize], row * w.elements, size);
        let none = PlacedWindows::new();
        let windows_at = |d: usize| self.placed.get(d).map_or(&none, |at| &at[x[d] as usize]);
        let inside = (0..self.outer.len()).all(|d| !windows_at(d).is_empty());
        if !(inside && self.is_covered) {
            // SAFETY: the line has space for all elements; a float of zeros is 0.
            unsafe { out.write_bytes(0, (w.elements * size) as usize) }
        }
        if !inside {
            return;
        }
        let mut chosen = [0usize; MAX_LOOPS];
        loop {
            let (mut window, mut step) = (0, self.first_step);
            for (d, w) in self.outer.iter().enumerate() {
                let (j, t) = windows_at(d)[chosen[d]];
                (window, step) = (window * w.windows + j, step + t);
            }
            for l in &self.lines {
                let window = window * w.windows + l.window;
                let (a, b) = (at(steps, window, 4), at(elements, window, size));
                // SAFETY: these windows of the line have this step at an element.
                unsafe { (self.kernel)(&self.line_at(l, step), at(out, l.element, size), a, b) }
            }
            let Some(d) = (0..self.outer.len()).rev().find(|d| chosen[*d] + 1 < windows_at(*d).len()) else {
                return;
            };
            chosen[d] += 1;
            chosen[d + 1..].fill(0);
        }
    }
}
