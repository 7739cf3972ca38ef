//! Simulates more cores than the machine has: a program is split into tasks for `n` workers, each
//! task is measured alone, and the tasks are then scheduled on `n` simulated cores.
//!
//! Run it with `ATMESH_WORKERS=16 taskset -c 1 chrt -f 10 … -- --workers`: on one core no two tasks
//! share the caches, and under this scheduling class no task is interrupted by another. It prints
//! one line per program: the total seconds of all tasks, and the finishing time of the last core if
//! each core takes the next task as it becomes free, including the barriers, which cost `MEET`
//! each. The simulation ignores contention for caches and memory bandwidth.
use crate::Options;
use atmesh::Result;
use atmesh::plan::{Activity, Timeline};
use std::time::Instant;

/// The assumed cost of a barrier of 16 cores, in seconds.
const MEET: f64 = 2e-6;

/// Returns the seconds of each task, sorted ascending, for each interval between two barriers.
fn levels(t: &Timeline) -> Vec<Vec<f64>> {
    let mut levels: Vec<Vec<f64>> = Vec::new();
    for track in 0..t.tracks() {
        let mut level = 0;
        for s in t.spans().iter().filter(|s| s.track == track) {
            if levels.len() <= level {
                levels.push(Vec::new());
            }
            match s.activity {
                Activity::Wait => level += 1,
                _ => levels[level].push(s.seconds),
            }
        }
    }
    for level in &mut levels {
        level.sort_by(f64::total_cmp);
    }
    levels
}

/// Returns the time at which the last of `cores` cores finishes. The longest tasks come last, which
/// is the worst order.
fn together(tasks: &[f64], cores: usize) -> f64 {
    let mut free = vec![0.0; cores];
    for task in tasks {
        let next = (0..cores).min_by(|a, b| f64::total_cmp(&free[*a], &free[*b])).unwrap_or(0);
        free[next] += task;
    }
    free.into_iter().fold(0.0, f64::max)
}

/// Measures the minimum time of each task over some seconds, and prints the simulated schedule.
pub(crate) fn tell(o: &Options, name: &str, mut call: impl FnMut() -> Result<Timeline>) -> Result<()> {
    for _ in 0..2 {
        call()?;
    }
    let (mut least, mut cores) = (Vec::<Vec<f64>>::new(), 1);
    let (begin, mut runs) = (Instant::now(), 0);
    while runs < 5 || begin.elapsed().as_secs_f64() < o.seconds {
        let timeline = call()?;
        cores = timeline.tracks();
        let seen = levels(&timeline);
        if least.is_empty() {
            least.clone_from(&seen);
        }
        // The number of tasks is fixed by the compiled program; runs with missing marks are
        // ignored.
        if least.iter().map(Vec::len).eq(seen.iter().map(Vec::len)) {
            least.iter_mut().flatten().zip(seen.iter().flatten()).for_each(|(a, b)| *a = a.min(*b));
        }
        runs += 1;
    }
    let alone: f64 = least.iter().flatten().sum();
    let meet = MEET * least.len().saturating_sub(1) as f64;
    let last: f64 = least.iter().map(|tasks| together(tasks, cores)).sum::<f64>() + meet;
    println!(
        r#"{{"name": "{name}", "workers": {cores}, "alone": {alone:e}, "together": {last:e}, "of_ideal": {:.3}, "levels": {}}}"#,
        alone / (last * cores as f64),
        least.len()
    );
    Ok(())
}
