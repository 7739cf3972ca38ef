//! What a running program prints, on its way to the thread that called it.
//!
//! Only that thread writes: it may hold the lock of stdout, and then any other would wait for it while it waits for them.

use super::sync::Mutex;
use super::sync::atomic::{AtomicBool, Ordering::SeqCst};
use super::wait::Signal;
use std::io::Write;
use std::sync::Arc;

/// The lines of one run.
#[derive(Debug, Default)]
pub(crate) struct Prints {
    lines: Mutex<Vec<String>>,
    some: AtomicBool,
    /// Wakes the caller where it sleeps while others run the program.
    bell: Option<Arc<Signal>>,
}

/// What a ring of the bell adds: the lower bits count devices that have not ended.
const RING: u32 = 1 << 24;

impl Prints {
    /// Of a run that takes place on threads of which the caller is none: it sleeps on the bell.
    pub(crate) fn with_bell(bell: Arc<Signal>) -> Prints {
        Prints { bell: Some(bell), ..Prints::default() }
    }
    /// How many devices have not ended, by the bell's number.
    pub(crate) fn running(bell: u32) -> u32 {
        bell % RING
    }
    /// Whether the caller is among those that run the program.
    pub(crate) fn caller_runs(&self) -> bool {
        self.bell.is_none()
    }
    /// A line to print.
    pub(crate) fn say(&self, line: String) {
        self.lines.lock().unwrap_or_else(|e| e.into_inner()).push(line);
        self.some.store(true, SeqCst);
        if let Some(bell) = &self.bell {
            bell.add(RING);
        }
    }
    /// Writes what was said, in order. For the caller's thread. That stdout is closed or full is not a fault of the program.
    pub(crate) fn write(&self) {
        if !self.some.load(SeqCst) || !self.some.swap(false, SeqCst) {
            return;
        }
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(|e| e.into_inner()));
        let mut out = std::io::stdout().lock();
        for line in lines {
            let _ = writeln!(out, "{line}");
        }
    }
}
