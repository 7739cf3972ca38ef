//! When each kernel and collective runs: two tracks, of kernels and of messages, each in the program's order. What waits for nothing
//! of the other track runs beside it.

use super::costs::{self, Work};
use super::machine::Machine;
use super::{Bound, Item, What};
use crate::diagnostic::Result;
use crate::partition::fused;
use crate::partition::{Collective, Collectives, Kind, Slot, SpmdProgram, Step};
use std::collections::{HashMap, HashSet};

/// What all programs inside one another share.
pub(super) struct Timing<'a> {
    machine: &'a Machine,
    /// By where they are: of each program around them the step, and which of the programs in that step.
    collectives: HashMap<&'a [(usize, usize)], &'a Collective>,
}

/// A program's items, of which those of loops are of their first step, and how long it takes.
#[derive(Default)]
pub(super) struct Timeline {
    pub(super) items: Vec<Item>,
    pub(super) repeats: Vec<Repeat>,
    pub(super) seconds: f64,
}

/// The steps of a loop behind its first one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    pub(super) steps: u64,
    pub(super) start: f64,
    pub(super) seconds: f64,
}

/// When the two tracks are free.
struct Tracks {
    kernels: f64,
    messages: f64,
    /// Whether they are two.
    both: bool,
}

impl Tracks {
    fn kernel(&mut self, ready: f64, seconds: f64) -> f64 {
        let free = if self.both { self.kernels } else { self.end() };
        let start = free.max(ready);
        self.kernels = start + seconds;
        start
    }
    fn message(&mut self, ready: f64, seconds: f64) -> f64 {
        let free = if self.both { self.messages } else { self.end() };
        let start = free.max(ready);
        self.messages = start + seconds;
        start
    }
    fn end(&self) -> f64 {
        self.kernels.max(self.messages)
    }
}

impl<'a> Timing<'a> {
    pub(super) fn new(machine: &'a Machine, all: &'a Collectives) -> Timing<'a> {
        let collectives = all.iter().map(|c| (&c.path[..], c)).collect();
        Timing { machine, collectives }
    }

    /// The timeline of a program that runs `times` times.
    pub(super) fn of(&self, p: &SpmdProgram, path: &[(usize, usize)], times: u64) -> Result<Timeline> {
        let tracks = Tracks { kernels: 0.0, messages: 0.0, both: self.machine.overlaps };
        let waits = vec![0.0f64; p.steps.len()];
        let (items, repeats, own) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = Walk { timing: self, p, path, times, tracks, items, repeats, own, waits };
        walk.steps()?;
        walk.hide();
        Ok(Timeline { items: walk.items, repeats: walk.repeats, seconds: walk.tracks.end() })
    }

    /// The seconds of a kernel, and what they go by.
    fn kernel(&self, work: &Work) -> (f64, Bound) {
        let m = self.machine;
        let products: f64 = work.products.iter().map(|(d, n)| n / m.product_rate(*d)).sum();
        let arithmetic = products + work.elementwise / m.elementwise;
        let memory = work.bytes / m.bandwidth;
        let most = arithmetic.max(memory);
        let bound = match () {
            () if m.start > most => Bound::Start,
            () if arithmetic >= memory => Bound::Arithmetic,
            () => Bound::Memory,
        };
        (most + m.start, bound)
    }
}

/// A walk over the steps of one program.
struct Walk<'a> {
    timing: &'a Timing<'a>,
    p: &'a SpmdProgram,
    path: &'a [(usize, usize)],
    times: u64,
    tracks: Tracks,
    items: Vec<Item>,
    repeats: Vec<Repeat>,
    /// Which of them are not of programs inside.
    own: Vec<usize>,
    /// What a step waits for besides the values that it reads: pieces from other devices.
    waits: Vec<f64>,
}

impl Walk<'_> {
    fn steps(&mut self) -> Result<()> {
        let p = self.p;
        let stored = fused::stored(p);
        let mut makers: Vec<Option<usize>> = vec![None; p.slots.len()];
        for (k, step) in p.steps.iter().enumerate() {
            if let Some(l) = step.local() {
                makers[l.out] = Some(k);
            }
        }
        let fetches = p.steps.iter().filter_map(Step::fetches);
        let received: HashSet<Slot> = fetches.filter_map(|(s, needs)| fused::received(p, s, needs)).collect();
        let mut done = HashSet::new();
        let mut ready = vec![0.0f64; p.slots.len()];
        for (k, step) in p.steps.iter().enumerate() {
            let begin = step.inputs().iter().fold(self.waits[k], |t, s| t.max(ready[*s]));
            match step {
                Step::Local { out, sentence, .. } => {
                    if stored[*out] {
                        let work = costs::work(p, &makers, &stored, k, &mut done);
                        let begin = work.steps.iter().fold(0.0f64, |t, s| t.max(self.waits[*s]));
                        let begin = work.reads.iter().fold(begin, |t, s| t.max(ready[*s]));
                        // neither what has another name nor what is received where it is to be is computed
                        let there = sentence.body.renames() || received.contains(out);
                        ready[*out] = if there { begin } else { self.kernel(k, work, begin) };
                    }
                }
                Step::Fetch { needs, .. } => {
                    let end = self.message(k, begin)?;
                    for need in needs {
                        self.waits[need.reader] = self.waits[need.reader].max(end);
                    }
                }
                // small sums that are one exchange wait for one another
                Step::Reduce { out, .. } if p.is_small(k) => {
                    let together = p.together(k);
                    if together.is_empty() {
                        continue;
                    }
                    let begin = together.iter().flat_map(|k| p.steps[*k].inputs());
                    let begin = begin.fold(0.0f64, |t, s| t.max(ready[s]));
                    ready[*out] = self.message(k, begin)?;
                    let end = ready[*out];
                    together.iter().flat_map(|k| p.steps[*k].outputs()).for_each(|s| ready[s] = end);
                }
                Step::Reduce { out, .. } => ready[*out] = self.message(k, begin)?,
                // its results are its first carries
                Step::Loop { length: 0, out, .. } => out.iter().for_each(|s| ready[*s] = begin),
                Step::Loop { body, length, .. } => {
                    let body = self.nested(k, 0, body, *length as u64)?;
                    self.inside(vec![body], *length as u64, begin);
                }
                Step::While { cond, body, .. } => {
                    let one = vec![self.nested(k, 0, cond, 1)?, self.nested(k, 1, body, 1)?];
                    self.inside(one, 1, begin);
                }
                Step::Branch { branches, .. } => {
                    // the one that takes longest
                    let mut longest = Timeline::default();
                    for (n, branch) in branches.iter().enumerate() {
                        let took = self.nested(k, n, branch, 1)?;
                        longest = if took.seconds > longest.seconds { took } else { longest };
                    }
                    self.inside(vec![longest], 1, begin);
                }
                Step::Print { .. } => {}
            }
            if matches!(step, Step::Loop { length: 1.., .. } | Step::While { .. } | Step::Branch { .. }) {
                step.outputs().iter().for_each(|s| ready[*s] = self.tracks.end());
            }
        }
        Ok(())
    }

    /// A kernel that may begin then: when it ends.
    fn kernel(&mut self, k: usize, work: Work, begin: f64) -> f64 {
        let (seconds, bound) = self.timing.kernel(&work);
        let start = self.tracks.kernel(begin, seconds);
        // a product gives its name to what is computed with it
        let product = |s: &&usize| self.p.steps[**s].sentence().is_some_and(|s| s.body.contracts());
        let why = &self.p.whys[*work.steps.iter().find(product).unwrap_or(&k)];
        self.own.push(self.items.len());
        self.items.push(Item {
            what: What::Kernel,
            op: why.op.clone(),
            source: why.place,
            phase: why.phase,
            start,
            seconds,
            times: self.times,
            operations: work.elementwise + work.products.iter().map(|p| p.1).sum::<f64>(),
            products: work.products,
            bytes: work.bytes,
            bound,
            hidden: 0.0,
        });
        start + seconds
    }

    /// A program inside step `k`.
    fn nested(&self, k: usize, n: usize, program: &SpmdProgram, many: u64) -> Result<Timeline> {
        self.timing.of(program, &[self.path, &[(k, n)]].concat(), self.times.saturating_mul(many))
    }

    /// Programs inside a step, one after the other, `many` times: both tracks wait for them.
    fn inside(&mut self, runs: Vec<Timeline>, many: u64, ready: f64) {
        let start = self.tracks.end().max(ready);
        let mut one = 0.0;
        for run in runs {
            let at = start + one;
            self.items.extend(run.items.into_iter().map(|i| Item { start: i.start + at, ..i }));
            self.repeats.extend(run.repeats.into_iter().map(|r| Repeat { start: r.start + at, ..r }));
            one += run.seconds;
        }
        let end = start + one * many as f64;
        if many > 1 {
            self.repeats.push(Repeat { steps: many - 1, start: start + one, seconds: end - (start + one) });
        }
        (self.tracks.kernels, self.tracks.messages) = (end, end);
    }

    /// The collective of a step, if it is one: when it has ended.
    fn message(&mut self, k: usize, ready: f64) -> Result<f64> {
        let at = [self.path, &[(k, 0)]].concat();
        let Some(c) = self.timing.collectives.get(&at[..]) else { return Ok(ready) };
        let links = self.timing.machine.along(&c.axes, self.p.mesh.as_ref())?;
        // axis by axis, and the bytes over the slowest of them
        let waits: f64 = links.iter().map(|(l, n)| l.latency * rounds(c.kind, l.ring, *n)).sum();
        let moves = links.iter().map(|(l, n)| c.bytes as f64 / l.bandwidth * hops(c.kind, l.ring, *n));
        let moves = moves.fold(0.0, f64::max);
        let seconds = waits + moves;
        let start = self.tracks.message(ready, seconds);
        self.own.push(self.items.len());
        self.items.push(Item {
            what: What::Collective(c.kind, c.axes.clone()),
            op: c.op.clone(),
            source: c.source,
            phase: c.phase,
            start,
            seconds,
            times: self.times,
            operations: 0.0,
            products: Vec::new(),
            bytes: c.bytes as f64,
            bound: if waits > moves { Bound::Latency } else { Bound::Link },
            hidden: 0.0,
        });
        Ok(start + seconds)
    }

    /// Of each collective the seconds during which kernels run too. (Those of programs inside are theirs: both tracks wait for these programs.)
    fn hide(&mut self) {
        let (kernels, messages): (Vec<usize>, Vec<usize>) =
            self.own.iter().partition(|k| self.items[**k].what == What::Kernel);
        let runs = |i: &Item| (i.start, i.start + i.seconds);
        let kernels: Vec<(f64, f64)> = kernels.iter().map(|k| runs(&self.items[*k])).collect();
        for k in messages {
            let (from, to) = runs(&self.items[k]);
            let first = kernels.partition_point(|k| k.1 <= from);
            let beside = kernels[first..].iter().take_while(|k| k.0 < to);
            self.items[k].hidden = beside.fold(0.0, |t, k| t + k.1.min(to) - k.0.max(from));
        }
    }
}

/// How many messages follow one another.
fn rounds(kind: Kind, ring: bool, n: usize) -> f64 {
    let once = if ring { n.saturating_sub(1) as f64 } else { (n.max(1) as f64).log2().ceil() };
    match kind {
        Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll | Kind::Exchange => once,
        Kind::AllReduce => 2.0 * once,
        Kind::Permute | Kind::Halo => 1.0,
    }
}

/// How often a link carries each byte that a device receives: on a ring with links both ways a byte of an all-to-all travels a quarter of
/// the ring on average, over links that it shares.
fn hops(kind: Kind, ring: bool, n: usize) -> f64 {
    match kind {
        Kind::AllToAll | Kind::Exchange if ring => (n as f64 / 4.0).max(1.0),
        Kind::AllGather | Kind::ReduceScatter | Kind::AllReduce => 1.0,
        Kind::AllToAll | Kind::Exchange | Kind::Permute | Kind::Halo => 1.0,
    }
}
