//! More cores than there are, by simulation: a program's tasks, cut for so many workers and measured one at a time, are laid out on as many cores.
//!
//! `ATMESH_WORKERS=16 taskset -c 1 chrt -f 10 … -- --workers`: on one core no two tasks share the caches, and by that way of scheduling none is
//! interrupted by another. A line a program: the seconds of all tasks, and those of the core that ends last when each takes the next task as it
//! becomes free, with the barriers, each counted as `MEET`. Not in it: what cores lose that share memory and caches.
use crate::Options;
use atmesh::Result;
use atmesh::plan::{Doing, Timeline};
use std::time::Instant;

/// Seconds until 16 cores have met.
const MEET: f64 = 2e-6;

/// Between two barriers: the seconds of each task, in rising order.
fn levels(t: &Timeline) -> Vec<Vec<f64>> {
    let mut levels: Vec<Vec<f64>> = Vec::new();
    for track in 0..t.tracks() {
        let mut level = 0;
        for s in t.spans().iter().filter(|s| s.track == track) {
            if levels.len() <= level {
                levels.push(Vec::new());
            }
            match s.doing {
                Doing::Wait => level += 1,
                _ => levels[level].push(s.seconds),
            }
        }
    }
    for level in &mut levels {
        level.sort_by(f64::total_cmp);
    }
    levels
}

/// When the last of so many cores ends; the longest tasks come last, which is the worst order.
fn together(tasks: &[f64], cores: usize) -> f64 {
    let mut free = vec![0.0; cores];
    for task in tasks {
        let next = (0..cores).min_by(|a, b| f64::total_cmp(&free[*a], &free[*b])).unwrap_or(0);
        free[next] += task;
    }
    free.into_iter().fold(0.0, f64::max)
}

/// Of each task the least time that is seen in some seconds.
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
        // tasks are counted as the program is cut; a run of which marks are missing is left out
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
