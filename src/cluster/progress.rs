//! The current call of a process, for its heartbeat. A call only writes a few words of memory.

use super::wire::Position;
use crate::core::SourceLocation;
use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The calls of this process that involve other processes.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<CurrentCall>);

#[derive(Debug, Default)]
struct CurrentCall {
    calls: u64,
    is_inside: bool,
    /// The time at which the call began or ended; `None` before the first one.
    since: Option<Instant>,
    what: Cow<'static, str>,
    location: Option<SourceLocation>,
}

/// A call that ends when this guard is dropped.
#[derive(Debug)]
pub(crate) struct CallGuard<'a>(&'a Progress);

impl Progress {
    /// Begins a call.
    pub(super) fn begin(&self, what: Cow<'static, str>, location: SourceLocation) -> CallGuard<'_> {
        self.update(|call| {
            call.calls += 1;
            (call.what, call.location) = (what, Some(location));
            true
        });
        CallGuard(self)
    }
    fn update(&self, change: impl FnOnce(&mut CurrentCall) -> bool) {
        let mut call = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        call.is_inside = change(&mut call);
        call.since = Some(Instant::now());
    }
    pub(super) fn position(&self) -> Position {
        let call = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Position {
            calls: call.calls,
            is_inside: call.is_inside,
            since_ms: call.since.map_or(0, |since| since.elapsed().as_millis() as u64),
            what: call.what.to_string(),
            location: call.location.map(show_location).unwrap_or_default(),
        }
    }
}
impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.update(|_| false);
    }
}

/// Returns a location as messages between processes have it: `src/main.rs:20`.
pub(super) fn show_location(location: SourceLocation) -> String {
    format!("{}:{}", location.file(), location.line())
}
