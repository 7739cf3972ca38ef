//! Laws over random programs, kernels and sizes: what holds of every program, found by a machine.
//!
//! Each law runs a short while in `cargo test`. `LAWS_SEED=7 LAWS_SECONDS=600 cargo test --test laws` runs it longer, from another
//! seed; `tests/soak.sh` runs all of them until the minutes are over. A failure names its seed.

mod answers;
mod holds;
mod kernels;
mod order;
mod programs;
mod rng;
mod sizes;
#[path = "../told/mod.rs"]
mod told;
mod workers;

pub(crate) use rng::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

pub(crate) fn set(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Runs a law on as many cases, or for `LAWS_SECONDS`; cases are told by their seeds. `case` returns what is wrong.
pub(crate) fn law(cases: u64, case: impl Fn(u64) -> Vec<String>) {
    let first = set("LAWS_SEED").unwrap_or(1);
    let end = set("LAWS_SECONDS").map(|s| Instant::now() + Duration::from_secs(s));
    let mut wrong = Vec::new();
    let mut seed = first;
    while end.map_or(seed < first + cases, |end| Instant::now() < end) {
        match catch_unwind(AssertUnwindSafe(|| case(seed))) {
            Ok(told) => wrong.extend(told.into_iter().map(|w| format!("seed {seed}: {w}"))),
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
