//! Whole lines through a function, bound to memory. Tasks are cut along the longest loop over lines; a few long lines, of which workers
//! could not have one each, by runs of their places, if the function knows how.

use super::flow::{Flow, LinesItem, LinesOut, Operand};
use crate::program::sentence::Source;
use crate::program::{In, Line, Made, Out, Outs, Stages, line};
use crate::types::DType;
use std::ops::Range;
use std::sync::Arc;

/// Microseconds of work that are worth a task of their own.
const TASK: f64 = 20.0;

/// Microseconds from which a line is long.
const LONG: f64 = 200.0;

/// An aligned place at which nothing is read.
const NOWHERE: *mut u8 = std::ptr::without_provenance_mut(64);

/// Where lines are: elements of a slot, by loops over lines, then along one.
#[derive(Clone, Debug)]
struct View {
    slot: u32,
    dtype: DType,
    /// Bytes from the slot's beginning.
    off: i64,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// Lines that are ready to run.
#[derive(Clone, Debug)]
pub(crate) struct LinesKernel {
    of: Arc<dyn Line>,
    ins: Vec<View>,
    outs: Vec<Option<View>>,
    /// The loop over lines that is cut into tasks.
    cut: Option<usize>,
    /// Whether nothing is to be made.
    empty: bool,
    /// How lines are computed by several workers each.
    runs: Option<Runs>,
    /// How many tasks.
    pub(crate) chunks: i64,
    /// Microseconds, roughly.
    pub(crate) cost: f64,
}

/// Lines computed in two stages, of which tasks have runs of places.
#[derive(Clone, Debug)]
struct Runs {
    stages: Arc<dyn Stages>,
    lines: usize,
    /// Places of a line.
    places: usize,
    first: Stage,
    then: Stage,
    /// Bytes of what the first stage leaves of a run.
    room: usize,
}

/// How a line is cut into runs.
#[derive(Clone, Copy, Debug)]
struct Stage {
    /// Places, or columns.
    all: usize,
    /// Those of a run but for the last one.
    each: usize,
    /// Runs.
    count: usize,
}

impl Stage {
    /// In at most so many runs, which begin at multiples of `step`.
    fn new(all: usize, runs: usize, step: usize) -> Stage {
        let each = all.div_ceil(runs).next_multiple_of(step.max(1));
        Stage { all, each, count: all.div_ceil(each) }
    }
    /// What run r has.
    fn run(&self, r: usize, reverse: bool) -> Range<usize> {
        let (lo, hi) = (r * self.each, ((r + 1) * self.each).min(self.all));
        if reverse { self.all - hi..self.all - lo } else { lo..hi }
    }
}

/// Prepares lines for so many workers.
pub(crate) fn bind(flow: &Flow<'_>, l: &LinesItem, base: u32, workers: i64) -> LinesKernel {
    let slot = |s: usize| flow.root(s) as u32 + base;
    let shape: Vec<usize> = l.ext[..l.n].iter().map(|e| *e as usize).collect();
    let ins = l.reads.iter().map(|o: &Operand| {
        let p = &o.pieces[0];
        let Source::Value(s) = p.from else { unreachable!("operands were settled") };
        let strides = p.st[..l.n].iter().map(|s| *s as usize).collect();
        let off = p.off * o.dtype.size() as i64;
        View { slot: slot(s), dtype: o.dtype, off, shape: shape.clone(), strides }
    });
    let mut outs: Vec<Option<View>> = Vec::new();
    for LinesOut { result, out, dims } in &l.outs {
        let v = &flow.values[*out];
        let shape = dims.iter().map(|d| v.shape[*d]).collect();
        let strides = dims.iter().map(|d| v.strides[*d] as usize).collect();
        outs.resize(outs.len().max(result + 1), None);
        outs[*result] = Some(View { slot: slot(*out), dtype: v.dtype, off: 0, shape, strides });
    }
    let cut = (0..l.over).filter(|k| l.ext[*k] > 1).max_by_key(|k| (l.ext[*k], std::cmp::Reverse(*k)));
    let lines: i64 = l.ext[..l.over].iter().product();
    let each: usize = shape[l.over..].iter().product();
    let cost = lines as f64 * l.of.cost(each) / 1000.0;
    let want = ((cost / TASK) as i64).clamp(1, 4 * workers);
    let empty = outs.iter().flatten().all(|o| o.shape.contains(&0));
    let ins: Vec<View> = ins.collect();
    let runs = if empty || l.n - l.over != 1 || cost < LONG * lines as f64 || lines >= workers {
        None
    } else {
        Runs::of(&l.of, &ins, &outs, lines as usize, workers as usize)
    };
    let mut kernel = LinesKernel { of: l.of.clone(), ins, outs, cut, empty, runs, chunks: 1, cost };
    kernel.spread(want);
    kernel
}

impl Runs {
    /// The runs of so many lines for so many workers, if the function has stages, and results the places that these make.
    fn of(
        of: &Arc<dyn Line>,
        ins: &[View],
        outs: &[Option<View>],
        lines: usize,
        workers: usize,
    ) -> Option<Runs> {
        let places = *ins.first()?.shape.last()?;
        let asked: Vec<bool> = outs.iter().map(Option::is_some).collect();
        let mut outs = outs.iter().flatten();
        if outs.clone().any(|o| o.shape.len() != ins[0].shape.len()) {
            return None;
        }
        let dtypes: Vec<DType> = ins.iter().map(|v| v.dtype).collect();
        let stages = of.stages(&dtypes, places, &asked)?;
        let made = stages.made();
        if made != Made::All && outs.any(|o| o.shape.last() != Some(&places)) {
            return None;
        }
        let cut = |all: usize| Stage::new(all, workers.div_ceil(lines), stages.step());
        let (first, then) = match made {
            Made::Places => (cut(places), cut(places)),
            Made::All => (cut(places), Stage::new(places, 1, 1)),
            Made::Columns { first, then } => (cut(first), cut(then)),
        };
        let (dtype, elements) = stages.room(first.each);
        let room = (elements * dtype.size()).next_multiple_of(64);
        (first.count > 1).then_some(Runs { stages, lines, places, first, then, room })
    }
    /// The line of a task, and its run in a stage.
    fn task(&self, i: i64, stage: Stage) -> (usize, usize, Range<usize>) {
        let (line, run) = (i as usize / stage.count, i as usize % stage.count);
        (line, run, stage.run(run, self.stages.reverse()))
    }
}

impl View {
    /// Where line number k is, counted row by row.
    fn line(&self, mut k: usize, base: &[*mut u8]) -> *mut u8 {
        let mut at = 0;
        for d in (0..self.shape.len() - 1).rev() {
            at += k % self.shape[d] * self.strides[d];
            k /= self.shape[d];
        }
        let bytes = self.off + (at * self.dtype.size()) as i64;
        base[self.slot as usize].wrapping_offset(bytes as isize)
    }
    /// Elements from one place of a line to the next.
    fn step(&self) -> usize {
        self.strides.last().copied().unwrap_or(1)
    }
}

impl LinesKernel {
    /// Cuts it into at most so many tasks.
    pub(crate) fn spread(&mut self, most: i64) -> i64 {
        let lines = self.cut.map_or(1, |k| self.ins.first().map_or(1, |v| v.shape[k] as i64));
        self.chunks = most.min(lines).max(1);
        if let Some(r) = &self.runs {
            self.chunks = (r.lines * r.first.count) as i64;
        }
        self.chunks
    }
    /// How lines are computed in two stages, the first of `chunks` tasks. (One thread, as a page has, needs none.)
    fn runs(&self) -> Option<&Runs> {
        self.runs.as_ref().filter(|_| !on_a_page!())
    }
    /// Of how many tasks the second stage is, if there is one.
    pub(crate) fn ends(&self) -> Option<i64> {
        self.runs().map(|r| (r.lines * r.then.count) as i64)
    }
    /// Bytes that the first stage fills for the second.
    pub(crate) fn temp(&self) -> usize {
        self.runs().map_or(0, |r| (r.lines * r.first.count).saturating_mul(r.room))
    }
    /// Microseconds of the second stage, roughly.
    pub(crate) fn end_cost(&self) -> f64 {
        let Some(r) = self.runs() else { return 0.0 };
        match r.stages.made() {
            Made::Places | Made::Columns { .. } => 0.5 * self.cost,
            Made::All => {
                let left = r.first.count * r.stages.room(r.first.each).1;
                r.lines as f64 * self.of.cost(left) / 1000.0
            }
        }
    }
    /// What the first stage leaves of a line's run.
    ///
    /// # Safety
    /// `temp` has the bytes that are asked for; nobody else reads or writes what a task fills.
    unsafe fn room(r: &Runs, line: usize, run: usize, temp: *mut u8) -> (DType, *mut u8, Vec<usize>) {
        let (dtype, elements) = r.stages.room(r.first.run(run, r.stages.reverse()).len());
        (dtype, temp.wrapping_add((line * r.first.count + run) * r.room), vec![elements])
    }
    /// The operands of a line.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn whole(&self, r: &Runs, line: usize, base: &[*mut u8]) -> Vec<In<'_>> {
        let one = |v: &View| {
            // SAFETY: the plan's maps stay within the values that they read, which nobody writes meanwhile
            unsafe { In::at(v.dtype, v.line(line, base), vec![r.places], vec![v.step()]) }
        };
        self.ins.iter().map(one).collect()
    }
    /// Task i of the first stage.
    ///
    /// # Safety
    /// As for `run`; `temp` has the bytes that are asked for.
    pub(crate) unsafe fn first(&self, i: i64, base: &[*mut u8], temp: *mut u8) {
        let Some(r) = self.runs() else { return };
        let (line, run, places) = r.task(i, r.first);
        // SAFETY: the caller's; each task has a room of its own
        let (ins, mut room) = unsafe {
            let (dtype, at, shape) = Self::room(r, line, run, temp);
            (self.whole(r, line, base), Out::at(dtype, at, shape, vec![1]))
        };
        line::caught(self.of.as_ref(), || r.stages.first(places.clone(), &ins, &mut room));
    }
    /// Task i of the second stage, behind all tasks of the first.
    ///
    /// # Safety
    /// As for `first`.
    pub(crate) unsafe fn then(&self, i: i64, base: &[*mut u8], temp: *mut u8) {
        let Some(r) = self.runs() else { return };
        let (line, run, places) = r.task(i, r.then);
        // SAFETY: the caller's
        let ins = unsafe { self.whole(r, line, base) };
        let room = |run: usize| {
            // SAFETY: the caller's: the first stage filled it, and nobody writes it any more
            unsafe {
                let (dtype, at, shape) = Self::room(r, line, run, temp);
                In::at(dtype, at, shape, vec![1])
            }
        };
        let rooms: Vec<In<'_>> = (0..r.first.count).map(room).collect();
        let outs = self.outs.iter().map(|v| {
            let v = v.as_ref()?;
            let (n, m, step) = (v.shape[v.shape.len() - 1], places.len(), v.step());
            let (from, shape, strides) = match r.stages.made() {
                Made::Places => (places.start, vec![m], vec![step]),
                Made::All => (0, vec![n], vec![step]),
                Made::Columns { then, .. } => (places.start, vec![n / then, m], vec![then * step, step]),
            };
            let at = v.line(line, base).wrapping_add(from * step * v.dtype.size());
            // SAFETY: a value of its own for each result, of which each task has places of its own
            Some(unsafe { Out::at(v.dtype, at, shape, strides) })
        });
        let mut outs = Outs::new(outs);
        line::caught(self.of.as_ref(), || r.stages.then(run, places.clone(), &ins, &rooms, &mut outs));
    }
    /// Task i of so many.
    ///
    /// # Safety
    /// As for a plan: `base` has the values, and nobody else writes what is read, or reads or writes what is written.
    pub(crate) unsafe fn run(&self, i: i64, chunks: i64, base: &[*mut u8]) {
        if self.empty {
            return;
        }
        let part = |v: &View| {
            let (mut at, mut shape) = (v.off, v.shape.clone());
            if let Some(k) = self.cut {
                let n = shape[k] as i64;
                let (lo, hi) = (n * i / chunks, n * (i + 1) / chunks);
                at += lo * (v.strides[k] * v.dtype.size()) as i64;
                shape[k] = (hi - lo) as usize;
            }
            // what has no elements is nowhere
            let start = if shape.contains(&0) { NOWHERE } else { base[v.slot as usize] };
            (start.wrapping_offset(at as isize), shape)
        };
        let ins: Vec<In<'_>> = (self.ins.iter())
            .map(|v| {
                let (at, shape) = part(v);
                // SAFETY: the plan's maps stay within the values that they read, which nobody writes meanwhile
                unsafe { In::at(v.dtype, at, shape, v.strides.clone()) }
            })
            .collect();
        let outs = self.outs.iter().map(|v| {
            let v = v.as_ref()?;
            let (at, shape) = part(v);
            // SAFETY: a value of its own for each result, dense, of which each task has lines of its own
            Some(unsafe { Out::at(v.dtype, at, shape, v.strides.clone()) })
        });
        line::run(self.of.as_ref(), &ins, &mut Outs::new(outs));
    }
}
