//! The calls of a process, for its heartbeat. A call only writes a few words of memory.

use super::wire::{CallMark, CallRecord, Position, WireList};
use crate::core::SourceLocation;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The number of calls that a process remembers.
const MAX_REMEMBERED_CALLS: usize = 1024;
/// The number of marks: the last multiple of 1, 2, 4, … calls has one.
///
/// So processes that are less than 2^k calls apart have a mark of the same call, as soon as they
/// have passed a multiple of 2^k.
const NUM_MARKS: usize = 16;

/// The calls of this process that involve other processes.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<CallHistory>);

#[derive(Debug, Default)]
struct CallHistory {
    calls: u64,
    is_inside: bool,
    /// The time at which the last call began or ended; `None` before the first one.
    since: Option<Instant>,
    /// The last calls.
    last: VecDeque<(Cow<'static, str>, SourceLocation)>,
    /// The hash of the operations of all calls.
    hash: u64,
    marks: [Option<(u64, u64)>; NUM_MARKS],
}

/// A call that ends when this guard is dropped.
#[derive(Debug)]
pub(crate) struct CallGuard<'a>(&'a Progress);

impl Progress {
    fn lock(&self) -> MutexGuard<'_, CallHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Begins a call.
    pub(super) fn begin(&self, what: Cow<'static, str>, location: SourceLocation) -> CallGuard<'_> {
        let mut history = self.lock();
        history.calls += 1;
        history.hash = fnv(fnv(history.hash, what.as_bytes()), b"\n");
        let (number, hash) = (history.calls, history.hash);
        for k in 0..=(number.trailing_zeros() as usize).min(NUM_MARKS - 1) {
            history.marks[k] = Some((number, hash));
        }
        if history.last.len() == MAX_REMEMBERED_CALLS {
            history.last.pop_front();
        }
        history.last.push_back((what, location));
        (history.is_inside, history.since) = (true, Some(Instant::now()));
        CallGuard(self)
    }
    pub(super) fn position(&self) -> Position {
        let history = self.lock();
        let last = history.last.back();
        let mut marks: Vec<CallMark> = history
            .marks
            .iter()
            .flatten()
            .map(|(number, hash)| CallMark { number: *number, hash: *hash })
            .collect();
        marks.dedup();
        Position {
            calls: history.calls,
            is_inside: history.is_inside,
            since_ms: history.since.map_or(0, |since| since.elapsed().as_millis() as u64),
            what: last.map(|(what, _)| what.to_string()).unwrap_or_default(),
            location: last.map(|(_, location)| show_location(location)).unwrap_or_default(),
            marks: WireList(marks),
        }
    }
    /// Returns the mark of all calls so far.
    pub(super) fn mark(&self) -> CallMark {
        let history = self.lock();
        CallMark { number: history.calls, hash: history.hash }
    }
    /// Returns the last calls, in order.
    pub(super) fn last_calls(&self) -> Vec<CallRecord> {
        let history = self.lock();
        let first = history.calls + 1 - history.last.len() as u64;
        let record = |(number, (what, location)): (u64, &(Cow<'static, str>, SourceLocation))| CallRecord {
            number,
            what: what.to_string(),
            location: show_location(location),
        };
        (first..).zip(&history.last).map(record).collect()
    }
}
impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut history = self.0.lock();
        (history.is_inside, history.since) = (false, Some(Instant::now()));
    }
}

/// The start value of [`fnv`].
pub(super) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds bytes to a hash (FNV-1a), which is the same in all builds.
pub(super) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns a location as messages between processes have it: `src/main.rs:20`.
pub(super) fn show_location(location: SourceLocation) -> String {
    format!("{}:{}", location.file(), location.line())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::Location;

    fn after(calls: &[&'static str]) -> Progress {
        let progress = Progress::default();
        calls.iter().for_each(|what| drop(progress.begin((*what).into(), Location::caller())));
        progress
    }

    #[test]
    fn marks_depend_on_the_order_of_calls() {
        let mark = |calls: &[&'static str]| after(calls).position().marks.0[0].clone();
        assert_eq!(mark(&["a", "b", "c"]), mark(&["a", "b", "c"]));
        assert_ne!(mark(&["a", "b", "c"]), mark(&["b", "a", "c"]));
        let numbers = |n: usize| -> Vec<u64> {
            after(&vec!["a"; n]).position().marks.0.iter().map(|mark| mark.number).collect()
        };
        assert_eq!(numbers(0), [0u64; 0]);
        assert_eq!(numbers(13), [13, 12, 8]);
        assert_eq!(numbers(1000), [1000, 992, 960, 896, 768, 512]);
    }

    #[test]
    fn the_last_calls_are_remembered() {
        assert_eq!(after(&[]).last_calls(), []);
        let all = after(&vec!["a"; 2000]).last_calls();
        assert_eq!((all.len(), all[0].number, all[1023].number), (1024, 977, 2000));
        assert!(all[0].location.contains("progress.rs:"), "{all:?}");
    }
}
