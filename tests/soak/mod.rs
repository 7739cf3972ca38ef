//! The part of slow tests that `cargo test` runs. `tests/soak.sh` sets `ATMESH_SOAK`, and then all
//! of their cases run.

/// Returns true if all cases run.
#[allow(dead_code)]
pub(crate) fn runs_all() -> bool {
    std::env::var_os("ATMESH_SOAK").is_some()
}

/// Returns how many of `cases` random cases run: a twelfth, or all in a soak.
#[allow(dead_code)]
pub(crate) fn share(cases: u64) -> u64 {
    if runs_all() { cases } else { cases.div_ceil(12) }
}

/// Returns the cases that run: all of them, or each `step`-th one from the first on.
#[allow(dead_code)]
pub(crate) fn part<T>(cases: impl IntoIterator<Item = T>, step: usize) -> impl Iterator<Item = T> {
    cases.into_iter().step_by(if runs_all() { 1 } else { step })
}
