//! Randomised laws: properties of all programs, kernels and sizes, tested on random instances.
//!
//! Each law runs for a short time in `cargo test`.
//! `LAWS_SEED=7 LAWS_SECONDS=600 cargo test --test laws` runs them longer, from another seed, and
//! `LAWS_CASES=2000` on that number of cases; `tests/soak.sh` runs all of them for a given number
//! of minutes. A failure prints its seed.

mod answers;
mod blocks;
mod count;
mod donated;
#[path = "../error_checks/mod.rs"]
mod error_checks;
mod exchanges;
mod holds;
mod kernels;
mod order;
mod programs;
mod rng;
mod sizes;
#[path = "../soak/mod.rs"]
mod soak;
mod states;
mod subnormals;
mod workers;

pub(crate) use rng::Rng;
use soak::share;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) fn set(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Runs a law on a part of `cases` (`soak::share`), on `LAWS_CASES` cases, or for
/// `LAWS_SECONDS` seconds.
/// Each case is identified by its seed.
/// `case` returns the faults.
pub(crate) fn law(cases: u64, case: impl Fn(u64) -> Vec<String>) {
    let first = set("LAWS_SEED").unwrap_or(1);
    let cases = set("LAWS_CASES").unwrap_or(share(cases));
    let end = set("LAWS_SECONDS").map(|s| Instant::now() + Duration::from_secs(s));
    let mut wrong = Vec::new();
    let mut seed = first;
    while end.map_or(seed < first + cases, |end| Instant::now() < end) {
        match catch_unwind(AssertUnwindSafe(|| case(seed))) {
            Ok(findings) => wrong.extend(findings.into_iter().map(|w| format!("seed {seed}: {w}"))),
            Err(_) => wrong.push(format!("seed {seed}: it panicked")),
        }
        if wrong.len() > 20 {
            break;
        }
        seed += 1;
    }
    if end.is_some() {
        eprintln!("seeds {first} to {seed}: {} are wrong", wrong.len());
    }
    assert!(wrong.is_empty(), "of seeds {first} to {seed} {} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Runs a law on programs that print: in a process that runs only the test `name`, and whose output
/// is discarded.
pub(crate) fn quiet_law(name: &str, cases: u64, case: impl Fn(u64) -> Vec<String>) {
    if std::env::var_os("LAWS_HERE").is_some() {
        return law(cases, case);
    }
    let mut run = Command::new(std::env::current_exe().expect("it runs"));
    run.args(["--exact", name, "--nocapture"]).env("LAWS_HERE", "1").stdout(Stdio::null());
    let done = run.output().expect("it runs again");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
