//! Time, where the system has a clock.

/// Nanoseconds since this was first asked, modulo what a `usize` holds; always 0 where the standard library has no clock.
pub(crate) fn nanoseconds() -> usize {
    #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
    {
        use std::sync::LazyLock;
        use std::time::Instant;
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_nanos() as usize
    }
    // there `Instant::now` panics
    #[cfg(all(target_family = "wasm", target_os = "unknown"))]
    0
}
