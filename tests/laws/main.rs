//! Laws over random programs, kernels and sizes: what holds of every program, found by a machine.
//!
//! Each law runs a short while in `cargo test`. `LAWS_SEED=7 LAWS_SECONDS=600 cargo test --test laws` runs it longer, from another
//! seed; `tests/soak.sh` runs all of them until the minutes are over. A failure names its seed.

mod answers;
mod holds;
mod kernels;
mod order;
mod programs;
mod sizes;
#[path = "../told/mod.rs"]
mod told;
mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Numbers that follow from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            rng.number();
        }
        rng
    }
    pub(crate) fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// One of 0..n.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.number() >> 11) as usize % n.max(1)
    }
    /// One of these.
    pub(crate) fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
    /// Whether, once in n times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

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
