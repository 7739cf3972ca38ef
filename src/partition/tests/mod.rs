//! Tests: per-device programs run device by device, each reading only what it holds or fetched, against the plain evaluation.

mod golden;
mod manual;
mod oracle;
mod page;
mod random;

use std::cell::Cell;

thread_local! {
    static VERIFY: Cell<bool> = const { Cell::new(false) };
}

/// Whether every exact cost of this thread is compared with the sum over all devices.
pub(super) fn verifies() -> bool {
    VERIFY.get()
}

pub(super) use page::watch;
