//! Lists the kernels and messages of a program with their times, and schedules them.

use super::kernel_work::{self, KernelWork};
use super::materialized::{MaterializedValues, materialized_values};
use super::walk::{self, Runs, Task, TaskSchedule, Work};
use super::{Bound, EntryKind, PlanEntry};
use crate::core::{Mesh, Result};
use crate::partition::machine::{LinkPrice, Machine, MeshLinks};
use crate::partition::{Collective, Collectives, Slot, SpmdProgram, Step, fetch_target::fetch_target};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The inputs that a program and its nested programs share.
pub(super) struct Timing<'a> {
    machine: &'a Machine,
    /// The mesh and its links.
    links: Option<(&'a Mesh, MeshLinks)>,
    /// The collectives, by path.
    /// A path has an entry for each enclosing program: the step, and the index of the nested
    /// program in it.
    collectives: HashMap<&'a [(usize, usize)], &'a Collective>,
}

impl<'a> Timing<'a> {
    pub(super) fn new(machine: &'a Machine, p: &'a SpmdProgram, all: &'a Collectives) -> Result<Timing<'a>> {
        let collectives = all.iter().map(|c| (&c.path[..], c)).collect();
        let links = p.mesh.as_ref().map(|m| machine.mesh_links(m).map(|links| (m, links))).transpose()?;
        Ok(Timing { machine, links, collectives })
    }

    /// Returns the schedule of a program that runs once.
    pub(super) fn schedule(&self, p: &SpmdProgram) -> Result<TaskSchedule> {
        self.runs(p, &[], &Runs { number: 1, carry: 0..0, times: 1 })
    }

    /// Returns the schedule of all runs of a program.
    fn runs(&self, p: &SpmdProgram, path: &[(usize, usize)], runs: &Runs) -> Result<TaskSchedule> {
        let times = runs.times.saturating_mul(runs.number);
        let tasks = Tasks { timing: self, p, path, times }.list()?;
        Ok(walk::schedule(p, &tasks, self.machine, runs))
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

/// A program whose tasks are listed.
struct Tasks<'a> {
    timing: &'a Timing<'a>,
    p: &'a SpmdProgram,
    path: &'a [(usize, usize)],
    /// The number of times that the program runs.
    times: u64,
}

impl Tasks<'_> {
    fn list(&self) -> Result<Vec<Task>> {
        let p = self.p;
        let MaterializedValues { stored, aliases } = materialized_values(p);
        let mut makers: Vec<Option<usize>> = vec![None; p.slots.len()];
        for (k, step) in p.steps.iter().enumerate() {
            if let Some(l) = step.local() {
                makers[l.out] = Some(k);
            }
        }
        let fetches = p.steps.iter().filter_map(Step::fetches);
        let received: HashSet<Slot> = fetches.filter_map(|(s, needs)| fetch_target(p, s, needs)).collect();
        let mut done = HashSet::new();
        let mut tasks = Vec::new();
        for (k, step) in p.steps.iter().enumerate() {
            let task = |work| Task {
                work,
                entry: None,
                reads: step.inputs(),
                pieces: vec![k],
                makes: step.outputs(),
                fetches_for: Vec::new(),
            };
            match step {
                Step::Local { out, nest: loop_nest, .. } => {
                    if !stored[*out] {
                        continue;
                    }
                    let work = kernel_work::work(p, &makers, &stored, k, &mut done);
                    // no kernel is needed for an alias, or for a value that is received in its
                    // final location
                    let there = loop_nest.compute.is_alias() || aliases[*out] || received.contains(out);
                    let (reads, pieces) = (work.reads.clone(), work.steps.clone());
                    let (work, entry) = if there { (Work::Nothing, None) } else { self.kernel(k, work) };
                    tasks.push(Task { entry, reads, pieces, ..task(work) });
                }
                Step::Fetch { requests: needs, .. } => {
                    let (work, entry) = self.message(k)?;
                    let fetches_for = needs.iter().map(|need| need.consumer_step).collect();
                    tasks.push(Task { entry, fetches_for, ..task(work) });
                }
                // small reductions that are combined into one exchange wait for one another
                Step::Reduce { .. } if p.is_tree_reduction(k) => {
                    let together = p.combined_reductions(k);
                    if together.is_empty() {
                        continue;
                    }
                    let (work, entry) = self.message(k)?;
                    let of = |which: fn(&Step) -> Vec<Slot>| {
                        together.iter().flat_map(|k| which(&p.steps[*k])).collect()
                    };
                    tasks.push(Task {
                        entry,
                        reads: of(Step::inputs),
                        makes: of(Step::outputs),
                        ..task(work)
                    });
                }
                Step::Reduce { .. } => {
                    let (work, entry) = self.message(k)?;
                    tasks.push(Task { entry, ..task(work) });
                }
                Step::Loop { .. } | Step::While { .. } | Step::Branch { .. } => {
                    tasks.push(task(self.control(k, step)?));
                }
                Step::Print { .. } => {}
            }
        }
        Ok(tasks)
    }

    /// Returns the work of a step with nested programs.
    fn control(&self, k: usize, step: &Step) -> Result<Work> {
        let nested = |n: usize, program: &SpmdProgram, number: u64, carry: Range<usize>| {
            let path = [self.path, &[(k, n)]].concat();
            self.timing.runs(program, &path, &Runs { number, carry, times: self.times })
        };
        Ok(match step {
            Step::Loop { body, length, fixed, carry, .. } if *length > 0 => {
                // the first input of a loop body is the iteration index
                let first = 1 + fixed.len();
                Work::nested(vec![nested(0, body, *length as u64, first..first + carry.len())?])
            }
            Step::While { cond, body, .. } => {
                Work::nested(vec![nested(0, cond, 1, 0..0)?, nested(1, body, 1, 0..0)?])
            }
            Step::Branch { branches, .. } => {
                // the branch that takes longest
                let mut longest = TaskSchedule::default();
                for (n, branch) in branches.iter().enumerate() {
                    let took = nested(n, branch, 1, 0..0)?;
                    longest = if took.seconds > longest.seconds { took } else { longest };
                }
                Work::nested(vec![longest])
            }
            // without iterations, the results are the initial carries
            Step::Loop { .. } => Work::Nothing,
            Step::Local { .. } | Step::Fetch { .. } | Step::Reduce { .. } | Step::Print { .. } => {
                Work::Nothing
            }
        })
    }

    /// Returns the work and the entry of a kernel that ends in step `k`.
    fn kernel(&self, k: usize, work: KernelWork) -> (Work, Option<PlanEntry>) {
        let (seconds, bound) = self.timing.kernel(&work);
        // name the kernel after its contraction, if it has one, rather than after the steps fused
        // into it
        let product = |s: &&usize| self.p.steps[**s].loop_nest().is_some_and(|s| s.compute.contracts());
        let why = &self.p.origins[*work.steps.iter().find(product).unwrap_or(&k)];
        let entry = PlanEntry {
            kind: EntryKind::Kernel,
            op: why.op.clone(),
            source: why.location,
            scope: why.scope.clone(),
            phase: why.phase,
            start: 0.0,
            seconds,
            count: self.times,
            flops: work.other_flops + work.matmul_flops.iter().map(|p| p.1).sum::<f64>(),
            matmul_flops: work.matmul_flops,
            bytes: work.bytes,
            bound,
            overlapped: 0.0,
        };
        (Work::Kernel(seconds), Some(entry))
    }

    /// Returns the work and the entry of a step's collective, if it has one.
    fn message(&self, k: usize) -> Result<(Work, Option<PlanEntry>)> {
        let at = [self.path, &[(k, 0)]].concat();
        let Some(c) = self.timing.collectives.get(&at[..]) else { return Ok((Work::Nothing, None)) };
        let price = match &self.timing.links {
            Some((mesh, links)) => self.timing.machine.price(links, mesh, c.kind, &c.axes)?,
            None => LinkPrice::FREE,
        };
        let moves = c.bytes_per_device as f64 / price.bytes_per_second;
        let seconds = price.latency + moves;
        let entry = PlanEntry {
            kind: EntryKind::Collective(c.kind, c.axes.clone()),
            op: c.op.clone(),
            source: c.location,
            scope: c.scope.clone(),
            phase: c.phase,
            start: 0.0,
            seconds,
            count: self.times,
            flops: 0.0,
            matmul_flops: Vec::new(),
            bytes: c.bytes_per_device as f64,
            bound: if price.latency > moves { Bound::Latency } else { Bound::Link },
            overlapped: 0.0,
        };
        Ok((Work::Message(seconds), Some(entry)))
    }
}
