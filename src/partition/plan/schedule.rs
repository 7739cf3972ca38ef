//! Schedules kernels and messages on two tracks, each in program order.
//!
//! The tracks overlap, if the machine allows it, unless one has to wait for the other. Both wait
//! for loops and branches.

use super::kernel_work::{self, KernelWork};
use super::machine::Machine;
use super::{Bound, EntryKind, PlanEntry};
use crate::core::diagnostic::Result;
use crate::partition::fused;
use crate::partition::{Collective, CollectiveKind, Collectives, Slot, SpmdProgram, Step};
use std::collections::{HashMap, HashSet};

/// The inputs that a program and its nested programs share.
pub(super) struct Timing<'a> {
    machine: &'a Machine,
    /// The collectives, by path.
    /// A path has an entry for each enclosing program: the step, and the index of the nested
    /// program in it.
    collectives: HashMap<&'a [(usize, usize)], &'a Collective>,
}

/// The schedule of a program; a loop contributes the entries of its first iteration.
#[derive(Default)]
pub(super) struct Schedule {
    /// The kernels and collectives.
    pub(super) entries: Vec<PlanEntry>,
    /// The remaining iterations of loops.
    pub(super) loop_remainders: Vec<LoopRemainder>,
    /// The duration, in seconds.
    pub(super) seconds: f64,
}

/// All iterations of a loop after the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopRemainder {
    /// The number of iterations.
    pub(super) steps: u64,
    /// The start time, in seconds.
    pub(super) start: f64,
    /// The duration, in seconds.
    pub(super) seconds: f64,
}

/// The times at which the two tracks become free, in seconds.
struct Tracks {
    /// The time at which the track of kernels becomes free.
    kernels: f64,
    /// The time at which the track of messages becomes free.
    messages: f64,
    /// True if the tracks may overlap.
    overlap: bool,
}

impl Tracks {
    fn kernel(&mut self, ready: f64, seconds: f64) -> f64 {
        let free = if self.overlap { self.kernels } else { self.end() };
        let start = free.max(ready);
        self.kernels = start + seconds;
        start
    }
    fn message(&mut self, ready: f64, seconds: f64) -> f64 {
        let free = if self.overlap { self.messages } else { self.end() };
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

    /// Returns the schedule of a program that runs `times` times.
    pub(super) fn schedule(&self, p: &SpmdProgram, path: &[(usize, usize)], times: u64) -> Result<Schedule> {
        let tracks = Tracks { kernels: 0.0, messages: 0.0, overlap: self.machine.overlaps };
        let waits = vec![0.0f64; p.steps.len()];
        let (items, repeats, own) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = Scheduler {
            timing: self,
            p,
            path,
            times,
            tracks,
            entries: items,
            loop_remainders: repeats,
            own_entries: own,
            fetched_at: waits,
        };
        walk.steps()?;
        walk.mark_overlapped();
        Ok(Schedule {
            entries: walk.entries,
            loop_remainders: walk.loop_remainders,
            seconds: walk.tracks.end(),
        })
    }

    /// Returns the seconds of a kernel, and the resource that determines them.
    fn kernel(&self, work: &KernelWork) -> (f64, Bound) {
        let m = self.machine;
        let products: f64 = work.matmul_flops.iter().map(|(d, n)| n / m.matmul_rate(*d)).sum();
        let arithmetic = products + work.other_flops / m.elementwise;
        let memory = work.bytes / m.bandwidth;
        let most = arithmetic.max(memory);
        let bound = match () {
            () if m.launch_overhead > most => Bound::LaunchOverhead,
            () if arithmetic >= memory => Bound::Arithmetic,
            () => Bound::Memory,
        };
        (most + m.launch_overhead, bound)
    }
}

/// The state of scheduling the steps of one program.
struct Scheduler<'a> {
    timing: &'a Timing<'a>,
    p: &'a SpmdProgram,
    path: &'a [(usize, usize)],
    times: u64,
    tracks: Tracks,
    entries: Vec<PlanEntry>,
    loop_remainders: Vec<LoopRemainder>,
    /// The indices of the entries that do not belong to nested programs.
    own_entries: Vec<usize>,
    /// For each step, the time at which its pieces from other devices have arrived.
    fetched_at: Vec<f64>,
}

impl Scheduler<'_> {
    fn steps(&mut self) -> Result<()> {
        let p = self.p;
        let stored = fused::materialized_slots(p);
        let mut makers: Vec<Option<usize>> = vec![None; p.slots.len()];
        for (k, step) in p.steps.iter().enumerate() {
            if let Some(l) = step.local() {
                makers[l.out] = Some(k);
            }
        }
        let fetches = p.steps.iter().filter_map(Step::fetches);
        let received: HashSet<Slot> =
            fetches.filter_map(|(s, needs)| fused::fetch_target(p, s, needs)).collect();
        let mut done = HashSet::new();
        let mut ready = vec![0.0f64; p.slots.len()];
        for (k, step) in p.steps.iter().enumerate() {
            let begin = step.inputs().iter().fold(self.fetched_at[k], |t, s| t.max(ready[*s]));
            match step {
                Step::Local { out, nest: loop_nest, .. } => {
                    if stored[*out] {
                        let work = kernel_work::work(p, &makers, &stored, k, &mut done);
                        let begin = work.steps.iter().fold(0.0f64, |t, s| t.max(self.fetched_at[*s]));
                        let begin = work.reads.iter().fold(begin, |t, s| t.max(ready[*s]));
                        // no kernel is needed for an alias, or for a value that is received in its
                        // final location
                        let there = loop_nest.compute.is_alias() || received.contains(out);
                        ready[*out] = if there { begin } else { self.kernel(k, work, begin) };
                    }
                }
                Step::Fetch { requests: needs, .. } => {
                    let end = self.message(k, begin)?;
                    for need in needs {
                        self.fetched_at[need.consumer_step] = self.fetched_at[need.consumer_step].max(end);
                    }
                }
                // small reductions that are combined into one exchange wait for one another
                Step::Reduce { out, .. } if p.is_tree_reduction(k) => {
                    let together = p.combined_reductions(k);
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
                // without iterations, the results are the initial carries
                Step::Loop { length: 0, out, .. } => out.iter().for_each(|s| ready[*s] = begin),
                Step::Loop { body, length, .. } => {
                    let body = self.nested(k, 0, body, *length as u64)?;
                    self.append_runs(vec![body], *length as u64, begin);
                }
                Step::While { cond, body, .. } => {
                    let one = vec![self.nested(k, 0, cond, 1)?, self.nested(k, 1, body, 1)?];
                    self.append_runs(one, 1, begin);
                }
                Step::Branch { branches, .. } => {
                    // the branch that takes longest
                    let mut longest = Schedule::default();
                    for (n, branch) in branches.iter().enumerate() {
                        let took = self.nested(k, n, branch, 1)?;
                        longest = if took.seconds > longest.seconds { took } else { longest };
                    }
                    self.append_runs(vec![longest], 1, begin);
                }
                Step::Print { .. } => {}
            }
            if matches!(step, Step::Loop { length: 1.., .. } | Step::While { .. } | Step::Branch { .. }) {
                step.outputs().iter().for_each(|s| ready[*s] = self.tracks.end());
            }
        }
        Ok(())
    }

    /// Schedules a kernel that can start at `begin`, and returns the time at which it ends.
    fn kernel(&mut self, k: usize, work: KernelWork, begin: f64) -> f64 {
        let (seconds, bound) = self.timing.kernel(&work);
        let start = self.tracks.kernel(begin, seconds);
        // name the kernel after its contraction, if it has one, rather than after the steps fused
        // into it
        let product = |s: &&usize| self.p.steps[**s].loop_nest().is_some_and(|s| s.compute.contracts());
        let why = &self.p.origins[*work.steps.iter().find(product).unwrap_or(&k)];
        self.own_entries.push(self.entries.len());
        self.entries.push(PlanEntry {
            kind: EntryKind::Kernel,
            op: why.op.clone(),
            source: why.location,
            phase: why.phase,
            start,
            seconds,
            count: self.times,
            flops: work.other_flops + work.matmul_flops.iter().map(|p| p.1).sum::<f64>(),
            matmul_flops: work.matmul_flops,
            bytes: work.bytes,
            bound,
            overlapped: 0.0,
        });
        start + seconds
    }

    /// Returns the schedule of a program nested in step `k`.
    fn nested(&self, k: usize, n: usize, program: &SpmdProgram, many: u64) -> Result<Schedule> {
        self.timing.schedule(program, &[self.path, &[(k, n)]].concat(), self.times.saturating_mul(many))
    }

    /// Appends the programs nested in a step, one after another, `many` times.
    /// Both tracks wait for them.
    fn append_runs(&mut self, runs: Vec<Schedule>, many: u64, ready: f64) {
        let start = self.tracks.end().max(ready);
        let mut one = 0.0;
        for run in runs {
            let at = start + one;
            self.entries.extend(run.entries.into_iter().map(|i| PlanEntry { start: i.start + at, ..i }));
            self.loop_remainders
                .extend(run.loop_remainders.into_iter().map(|r| LoopRemainder { start: r.start + at, ..r }));
            one += run.seconds;
        }
        let end = start + one * many as f64;
        if many > 1 {
            self.loop_remainders.push(LoopRemainder {
                steps: many - 1,
                start: start + one,
                seconds: end - (start + one),
            });
        }
        (self.tracks.kernels, self.tracks.messages) = (end, end);
    }

    /// Schedules the collective of a step, if it has one, and returns the time at which it ends.
    fn message(&mut self, k: usize, ready: f64) -> Result<f64> {
        let at = [self.path, &[(k, 0)]].concat();
        let Some(c) = self.timing.collectives.get(&at[..]) else { return Ok(ready) };
        let links = self.timing.machine.links_along(&c.axes, self.p.mesh.as_ref())?;
        // the latencies of the axes add up; the bytes move over the slowest link
        let waits: f64 = links.iter().map(|(l, n)| l.latency * rounds(c.kind, l.ring, *n)).sum();
        let moves =
            links.iter().map(|(l, n)| c.bytes_per_device as f64 / l.bandwidth * hops(c.kind, l.ring, *n));
        let moves = moves.fold(0.0, f64::max);
        let seconds = waits + moves;
        let start = self.tracks.message(ready, seconds);
        self.own_entries.push(self.entries.len());
        self.entries.push(PlanEntry {
            kind: EntryKind::Collective(c.kind, c.axes.clone()),
            op: c.op.clone(),
            source: c.location,
            phase: c.phase,
            start,
            seconds,
            count: self.times,
            flops: 0.0,
            matmul_flops: Vec::new(),
            bytes: c.bytes_per_device as f64,
            bound: if waits > moves { Bound::Latency } else { Bound::Link },
            overlapped: 0.0,
        });
        Ok(start + seconds)
    }

    /// Sets the overlapped seconds of each collective.
    /// Nested programs have done this for their entries, since both tracks wait for these programs.
    fn mark_overlapped(&mut self) {
        let (kernels, messages): (Vec<usize>, Vec<usize>) =
            self.own_entries.iter().partition(|k| self.entries[**k].kind == EntryKind::Kernel);
        let runs = |i: &PlanEntry| (i.start, i.start + i.seconds);
        let kernels: Vec<(f64, f64)> = kernels.iter().map(|k| runs(&self.entries[*k])).collect();
        for k in messages {
            let (from, to) = runs(&self.entries[k]);
            let first = kernels.partition_point(|k| k.1 <= from);
            let following = kernels[first..].iter().take_while(|k| k.0 < to);
            self.entries[k].overlapped = following.fold(0.0, |t, k| t + k.1.min(to) - k.0.max(from));
        }
    }
}

/// Returns the number of messages of a collective that follow one another.
fn rounds(kind: CollectiveKind, ring: bool, n: usize) -> f64 {
    let once = if ring { n.saturating_sub(1) as f64 } else { (n.max(1) as f64).log2().ceil() };
    match kind {
        CollectiveKind::AllGather
        | CollectiveKind::ReduceScatter
        | CollectiveKind::AllToAll
        | CollectiveKind::Exchange => once,
        CollectiveKind::AllReduce => 2.0 * once,
        CollectiveKind::Permute | CollectiveKind::Halo => 1.0,
    }
}

/// Returns how many times a link carries each byte that a device receives.
/// On a ring with links in both directions, a byte of an all-to-all travels a quarter of the ring
/// on average, over links that it shares.
fn hops(kind: CollectiveKind, ring: bool, n: usize) -> f64 {
    match kind {
        CollectiveKind::AllToAll | CollectiveKind::Exchange if ring => (n as f64 / 4.0).max(1.0),
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllReduce => 1.0,
        CollectiveKind::AllToAll
        | CollectiveKind::Exchange
        | CollectiveKind::Permute
        | CollectiveKind::Halo => 1.0,
    }
}
