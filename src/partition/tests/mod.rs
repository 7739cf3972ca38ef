//! Tests of per-device programs: execution on separate device memories against a plain evaluation.

mod fusion;
mod golden;
mod lifetimes;
mod manual;
mod oracle;
mod page;
mod plain;
mod random;

use std::cell::Cell;

thread_local! {
    static VERIFY: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if this thread checks every exact cost against the sum over all devices.
pub(super) fn verifies() -> bool {
    VERIFY.get()
}

pub(super) use page::watch;
