//! The lines that a running program prints, queued for the thread that called it.
//!
//! Only the caller writes to stdout: it may hold the lock of stdout, and another thread that waited
//! for the lock would deadlock with the caller, which waits for that thread.

use super::sync::atomic::{AtomicBool, Ordering::SeqCst};
use super::{park::Signal, sync::Mutex};
use std::cell::RefCell;
use std::io::Write;
use std::sync::Arc;

thread_local! {
    /// The lines that this thread's programs printed, while they are captured.
    static CAPTURED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `f`, and returns what the programs that it runs print, instead of writing it to stdout.
///
/// This is the output of [`debug_print!`](crate::debug_print!). A page that has no stdout shows it,
/// and a test compares it.
///
/// ```
/// use atmesh::{prelude::*, runtime::capture_prints};
/// let f = jit(|x: &Array| {
///     debug_print!("x: {}", x);
///     x + 1
/// });
/// let (y, printed) = capture_prints(|| f.call(1));
/// assert_eq!((y?.item::<i32>()?, printed.as_str()), (2, "x: 1\n"));
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn capture_prints<R>(f: impl FnOnce() -> R) -> (R, String) {
    /// Restores the capture around this one, also after a panic.
    struct Restore(Option<Option<String>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(outer) = self.0.take() {
                CAPTURED.replace(outer);
            }
        }
    }
    let _restore = Restore(Some(CAPTURED.replace(Some(String::new()))));
    let value = f();
    (value, CAPTURED.take().unwrap_or_default())
}

/// The queue of printed lines of one run.
#[derive(Debug, Default)]
pub(crate) struct PrintQueue {
    lines: Mutex<Vec<String>>,
    non_empty: AtomicBool,
    /// The signal that wakes the caller while other threads run the program.
    wakeup: Option<Arc<Signal>>,
}

/// The amount that one wake-up adds to the signal, whose lower bits count the devices that still
/// run.
const WAKEUP_INCREMENT: u32 = 1 << 24;

impl PrintQueue {
    /// Creates the queue of a run that does not use the caller's thread; the caller sleeps on the
    /// given signal.
    pub(crate) fn with_wakeup(wakeup: Arc<Signal>) -> PrintQueue {
        PrintQueue { wakeup: Some(wakeup), ..PrintQueue::default() }
    }
    /// Returns the number of devices that have not ended, from the signal's value.
    pub(crate) fn num_running(signal_value: u32) -> u32 {
        signal_value % WAKEUP_INCREMENT
    }
    /// Returns true if the caller's thread runs the program too.
    pub(crate) fn caller_runs(&self) -> bool {
        self.wakeup.is_none()
    }
    /// Adds a line to print, and wakes the caller.
    pub(crate) fn push(&self, line: String) {
        self.lines.lock().unwrap_or_else(|e| e.into_inner()).push(line);
        self.non_empty.store(true, SeqCst);
        if let Some(wakeup) = &self.wakeup {
            wakeup.add(WAKEUP_INCREMENT);
        }
    }
    /// Writes all queued lines to stdout, or to the capture of this thread, in order. Must be
    /// called on the caller's thread.
    ///
    /// Errors of stdout, which may be closed or full, are ignored.
    pub(crate) fn flush(&self) {
        if !self.non_empty.load(SeqCst) || !self.non_empty.swap(false, SeqCst) {
            return;
        }
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(|e| e.into_inner()));
        let captured = CAPTURED.with_borrow_mut(|captured| {
            let Some(text) = captured else { return false };
            lines.iter().for_each(|line| *text += &format!("{line}\n"));
            true
        });
        if captured {
            return;
        }
        let mut out = std::io::stdout().lock();
        for line in lines {
            let _ = writeln!(out, "{line}");
        }
    }
}
