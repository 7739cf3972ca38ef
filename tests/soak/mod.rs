//! The part of slow tests that `cargo test` runs. `tests/soak.sh` sets `ATMESH_SOAK`, and then all
//! of their cases run.

/// Returns true if all cases run.
pub(crate) fn runs_all() -> bool {
    std::env::var_os("ATMESH_SOAK").is_some()
}

/// Returns the cases that run: all of them, or each `step`-th one from the first on.
#[allow(dead_code)]
pub(crate) fn part<T>(cases: impl IntoIterator<Item = T>, step: usize) -> impl Iterator<Item = T> {
    cases.into_iter().step_by(if runs_all() { 1 } else { step })
}
