//! Schedules kernels and messages on two tracks.
//!
//! Kernels run in program order. A message starts when its data is there and its track is free. The
//! tracks overlap, if the machine allows it, unless one has to wait for the other.
//!
//! The steps of a loop overlap too, if the machine prefetches: what does not depend on the values
//! that the steps pass on, and ends in messages, is done one step ahead (software pipelining).
//! Messages that are ahead give way to those of the current step. The first steps are scheduled one
//! by one; all further steps take as long as the last but one of these.

use super::{EntryKind, PlanEntry, tracks::Tracks};
use crate::core::util::small_sort;
use crate::partition::{Slot, SpmdProgram, machine::Machine};
use std::ops::Range;

/// The number of steps of a loop that are scheduled one by one: the first, which waits for its
/// messages, two that are like all others, and the last, for whose messages the loop waits.
const SCHEDULED_STEPS: u64 = 4;

/// The schedule of a program; a loop contributes the entries of its first iteration.
#[derive(Clone, Default)]
pub(super) struct TaskSchedule {
    /// The kernels and collectives.
    pub(super) entries: Vec<PlanEntry>,
    /// The remaining iterations of loops.
    pub(super) loop_remainders: Vec<LoopRemainder>,
    /// The duration, in seconds.
    pub(super) seconds: f64,
}

/// All iterations of a loop after the first.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "json"), allow(dead_code, reason = "only trace events show them"))]
pub(super) struct LoopRemainder {
    /// The number of iterations.
    pub(super) steps: u64,
    /// The start time, in seconds.
    pub(super) start: f64,
    /// The duration, in seconds.
    pub(super) seconds: f64,
}

/// What a task occupies.
pub(super) enum Work {
    /// Nothing: the values are there.
    Nothing,
    /// The track of kernels, for these seconds.
    Kernel(f64),
    /// The track of messages, for these seconds.
    Message(f64),
    /// Nested programs, one after another. Without messages they occupy the track of kernels only.
    Nested { parts: Vec<TaskSchedule>, seconds: f64, has_messages: bool },
}

/// A step that takes time, or passes values on.
pub(super) struct Task {
    pub(super) work: Work,
    /// The entry of the plan, without times.
    pub(super) entry: Option<PlanEntry>,
    /// The values that it reads.
    pub(super) reads: Vec<Slot>,
    /// The steps whose fetched pieces it reads.
    pub(super) pieces: Vec<usize>,
    /// The values that it makes.
    pub(super) makes: Vec<Slot>,
    /// The steps that read the pieces that it fetches.
    pub(super) fetches_for: Vec<usize>,
}

/// The times at which the values of one run are there.
struct Ready {
    values: Vec<f64>,
    /// For each step, the time at which its pieces from other devices have arrived.
    pieces: Vec<f64>,
}

/// The time at which a loop does a task.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// One step ahead, before the current step: what the messages that are ahead need.
    Before,
    /// One step ahead, next to the current step: messages, and what needs them.
    Ahead,
    /// In its own step.
    Own,
}

/// Returns the stage of each task. What ends in messages, and depends neither on the carried values
/// nor on nested programs, is done one step ahead.
fn stages(p: &SpmdProgram, tasks: &[Task], carried: &[Slot]) -> Vec<Stage> {
    let new = || (vec![false; p.slots.len()], vec![false; p.steps.len()]);
    let waits = |task: &Task, (values, pieces): &(Vec<bool>, Vec<bool>)| {
        task.reads.iter().any(|s| values[*s]) || task.pieces.iter().any(|s| pieces[*s])
    };
    let pass_on = |task: &Task, (values, pieces): &mut (Vec<bool>, Vec<bool>)| {
        task.makes.iter().for_each(|s| values[*s] = true);
        task.fetches_for.iter().for_each(|s| pieces[*s] = true);
    };
    let (mut late, mut after_messages) = (new(), new());
    carried.iter().for_each(|s| late.0[*s] = true);
    let mut stages = Vec::with_capacity(tasks.len());
    for task in tasks {
        let is_message = matches!(task.work, Work::Message(_));
        stages.push(if waits(task, &late) || matches!(task.work, Work::Nested { .. }) {
            pass_on(task, &mut late);
            Stage::Own
        } else if is_message || waits(task, &after_messages) {
            pass_on(task, &mut after_messages);
            Stage::Ahead
        } else {
            Stage::Before
        });
    }
    // from the messages back to what they need
    let (mut values, mut pieces) = new();
    for (stage, task) in stages.iter_mut().zip(tasks).rev() {
        let needed = task.makes.iter().any(|s| values[*s]) || task.fetches_for.iter().any(|s| pieces[*s]);
        if *stage == Stage::Own || !(needed || matches!(task.work, Work::Message(_))) {
            *stage = Stage::Own;
            continue;
        }
        task.reads.iter().for_each(|s| values[*s] = true);
        task.pieces.iter().for_each(|s| pieces[*s] = true);
    }
    stages
}

/// How often a program runs, one run after another.
pub(super) struct Runs {
    /// The number of runs.
    pub(super) number: u64,
    /// The inputs that take the values of the results of the previous run, in order.
    pub(super) carry: Range<usize>,
    /// The number of times that all runs happen, because of loops around them.
    pub(super) times: u64,
}

/// Returns the schedule of all runs of a program with these tasks.
pub(super) fn schedule(p: &SpmdProgram, tasks: &[Task], machine: &Machine, runs: &Runs) -> TaskSchedule {
    let pipelined = machine.overlaps && machine.prefetches;
    let scheduled = if pipelined { runs.number.min(SCHEDULED_STEPS) as usize } else { 1 };
    let stages = match scheduled > 1 {
        true => stages(p, tasks, &p.ins[runs.carry.clone()]),
        false => vec![Stage::Own; tasks.len()],
    };
    let mut walk = Walk {
        tasks,
        stages: &stages,
        tracks: Tracks::new(machine.overlaps),
        periods: vec![vec![Vec::new(); tasks.len()]; scheduled],
    };
    let new = || Ready { values: vec![0.0; p.slots.len()], pieces: vec![0.0; p.steps.len()] };
    let mut now = new();
    walk.run(0, Stage::Before, &mut now, 0.0);
    walk.run(0, Stage::Ahead, &mut now, 0.0);
    for run in 0..scheduled {
        let mut next = new();
        let free = walk.tracks.kernels_end();
        let more = run + 1 < scheduled;
        if more {
            walk.run(run + 1, Stage::Before, &mut next, free);
        }
        walk.run(run, Stage::Own, &mut now, 0.0);
        if more {
            walk.run(run + 1, Stage::Ahead, &mut next, free);
        }
        for (into, from) in runs.carry.clone().zip(&p.outs) {
            next.values[p.ins[into]] = now.values[*from];
        }
        now = next;
    }
    walk.schedule(runs.number)
}

/// The runs of a program that are scheduled one by one.
struct Walk<'a> {
    tasks: &'a [Task],
    stages: &'a [Stage],
    tracks: Tracks,
    /// For each run and task, the periods in which it runs, in order.
    periods: Vec<Vec<Vec<(f64, f64)>>>,
}

impl Walk<'_> {
    /// Schedules the tasks of a stage of a run, from a time on.
    fn run(&mut self, run: usize, stage: Stage, ready: &mut Ready, from: f64) {
        for (k, task) in self.tasks.iter().enumerate().filter(|(k, _)| self.stages[*k] == stage) {
            let begin = task.reads.iter().fold(from, |t, s| t.max(ready.values[*s]));
            let begin = task.pieces.iter().fold(begin, |t, s| t.max(ready.pieces[*s]));
            let one = |start: f64| vec![(start, start + task.work.seconds())];
            let periods = match task.work {
                Work::Nothing => one(begin),
                Work::Kernel(seconds) => one(self.tracks.kernel(begin, seconds)),
                Work::Message(seconds) if stage == Stage::Ahead => self.tracks.fill(begin, seconds),
                Work::Message(seconds) => one(self.tracks.message(begin, seconds)),
                Work::Nested { seconds, has_messages: true, .. } => one(self.tracks.both(begin, seconds)),
                Work::Nested { seconds, has_messages: false, .. } => one(self.tracks.kernel(begin, seconds)),
            };
            let end = periods.last().map_or(begin, |p| p.1);
            task.makes.iter().for_each(|s| ready.values[*s] = end);
            task.fetches_for.iter().for_each(|s| ready.pieces[*s] = ready.pieces[*s].max(end));
            self.periods[run][k] = periods;
        }
    }
    /// Returns, for each run and task, the seconds of a message during which kernels run.
    fn overlapped(&self) -> Vec<Vec<f64>> {
        let all = self.periods.iter().flat_map(|run| run.iter().enumerate());
        let on_kernels = all.filter(|(k, _)| self.tasks[*k].work.is_on_kernels());
        let mut kernels: Vec<(f64, f64)> = on_kernels.flat_map(|(_, periods)| periods).copied().collect();
        small_sort::sort_by(&mut kernels, |a, b| a.0.total_cmp(&b.0));
        let during = |(from, to): &(f64, f64)| {
            let first = kernels.partition_point(|k| k.1 <= *from);
            let following = kernels[first..].iter().take_while(|k| k.0 < *to);
            following.fold(0.0, |t, k| t + k.1.min(*to) - k.0.max(*from))
        };
        let one = |(k, periods): (usize, &Vec<(f64, f64)>)| match self.tasks[k].work {
            Work::Message(_) => periods.iter().map(during).sum(),
            Work::Nothing | Work::Kernel(_) | Work::Nested { .. } => 0.0,
        };
        self.periods.iter().map(|run| run.iter().enumerate().map(one).collect()).collect()
    }
    /// Returns the schedule of this number of runs.
    fn schedule(self, number: u64) -> TaskSchedule {
        let overlapped = self.overlapped();
        let scheduled = self.periods.len();
        let further = (number - scheduled as u64) as f64;
        // all further runs are like this one
        let typical = &overlapped[scheduled.saturating_sub(2)];
        let exposed = self.tasks.iter().zip(typical).map(|(t, hidden)| t.work.seconds() - hidden);
        let end = self.tracks.end();
        let one = if scheduled == 1 { end } else { exposed.sum() };
        let mut schedule = TaskSchedule { seconds: end + one * further, ..TaskSchedule::default() };
        let mut first_end = 0.0f64;
        for (k, task) in self.tasks.iter().enumerate() {
            let (start, end) = match self.periods[0][k][..] {
                [first, .., last] => (first.0, last.1),
                [one] => one,
                [] => (0.0, 0.0),
            };
            first_end = first_end.max(end);
            let hidden: f64 = overlapped.iter().map(|run| run[k]).sum();
            let mean = (hidden + typical[k] * further) / number as f64;
            if let Some(entry) = &task.entry {
                schedule.entries.push(PlanEntry { start, overlapped: mean, ..entry.clone() });
            }
            if let Work::Nested { parts, .. } = &task.work {
                schedule.append(parts, start);
            }
        }
        if number > 1 {
            let seconds = schedule.seconds - first_end;
            let all = LoopRemainder { steps: number - 1, start: first_end, seconds };
            schedule.loop_remainders.push(all);
        }
        schedule
    }
}

impl Work {
    fn seconds(&self) -> f64 {
        match self {
            Work::Nothing => 0.0,
            Work::Kernel(seconds) | Work::Message(seconds) | Work::Nested { seconds, .. } => *seconds,
        }
    }
    fn is_on_kernels(&self) -> bool {
        matches!(self, Work::Kernel(_) | Work::Nested { has_messages: false, .. })
    }
    /// Returns the work of programs that run one after another.
    pub(super) fn nested(parts: Vec<TaskSchedule>) -> Work {
        let seconds = parts.iter().map(|s| s.seconds).sum();
        let has_messages = parts.iter().flat_map(|s| &s.entries).any(|e| e.kind != EntryKind::Kernel);
        Work::Nested { parts, seconds, has_messages }
    }
}

impl TaskSchedule {
    /// Appends the entries of programs that run one after another from a time on.
    fn append(&mut self, parts: &[TaskSchedule], start: f64) {
        let mut at = start;
        for part in parts {
            let entries = part.entries.iter().cloned();
            self.entries.extend(entries.map(|e| PlanEntry { start: e.start + at, ..e }));
            let rest = part.loop_remainders.iter();
            self.loop_remainders.extend(rest.map(|r| LoopRemainder { start: r.start + at, ..*r }));
            at += part.seconds;
        }
    }
}
