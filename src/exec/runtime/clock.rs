//! A monotonic clock for targets that have one.

/// Returns the nanoseconds since the first call, wrapping at `usize::MAX`.
///
/// The result is always 0 on targets without a clock.
pub(crate) fn nanoseconds() -> usize {
    #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
    {
        use std::sync::LazyLock;
        use std::time::Instant;
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_nanos() as usize
    }
    // `Instant::now` panics on this target
    #[cfg(all(target_family = "wasm", target_os = "unknown"))]
    0
}
