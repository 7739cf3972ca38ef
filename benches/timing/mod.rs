//! Times of repeated calls, which the benchmarks share.

use atmesh::Result;
use std::time::Instant;

/// The times of calls, in seconds.
#[allow(dead_code, reason = "each benchmark prints some of them")]
pub(crate) struct CallTimes {
    /// The first call, which compiles.
    pub(crate) first: f64,
    pub(crate) min: f64,
    pub(crate) median: f64,
    /// The number of calls after the two that warm up.
    pub(crate) runs: usize,
}

/// The minimum and the maximum number of calls that are timed.
const MIN_RUNS: usize = 5;
const MAX_RUNS: usize = 200_000;

/// Runs two calls to warm up, then calls for some seconds. Dropping what a call returns is not
/// timed.
pub(crate) fn time_calls<T>(seconds: f64, mut f: impl FnMut() -> Result<T>) -> Result<CallTimes> {
    let start = Instant::now();
    drop(f()?);
    let first = start.elapsed().as_secs_f64();
    drop(f()?);
    let (mut runs, start) = (Vec::new(), Instant::now());
    while runs.len() < MIN_RUNS || (start.elapsed().as_secs_f64() < seconds && runs.len() < MAX_RUNS) {
        let t = Instant::now();
        let made = f()?;
        runs.push(t.elapsed().as_secs_f64());
        drop(made);
    }
    runs.sort_by(f64::total_cmp);
    Ok(CallTimes { first, min: runs[0], median: runs[runs.len() / 2], runs: runs.len() })
}

/// Returns true if an option `--only` selects this line, its group (the name up to a slash), or
/// everything.
#[allow(dead_code, reason = "not all benchmarks have groups")]
pub(crate) fn is_selected(only: &[String], name: &str) -> bool {
    let group = name.split('/').next().unwrap_or(name);
    only.is_empty() || only.iter().any(|n| n == name || n == group)
}
