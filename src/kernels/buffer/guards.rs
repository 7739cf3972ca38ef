//! Guards: bytes between values of one buffer, whose accesses AddressSanitizer reports.

/// Guards that are active until they are dropped. Without AddressSanitizer, they do nothing.
pub(crate) struct Guards(Vec<(*mut u8, usize)>);

impl Guards {
    /// Activates guards: each is a start address and a size in bytes.
    ///
    /// # Safety
    /// The bytes are allocated, and nothing accesses them until the guards are dropped.
    pub(crate) unsafe fn new(guards: impl Iterator<Item = (*mut u8, usize)>) -> Guards {
        let guards: Vec<_> = guards.collect();
        for (start, bytes) in &guards {
            // SAFETY: the bytes are allocated, and are not accessed meanwhile (caller contract).
            unsafe { poison(*start, *bytes) }
        }
        Guards(guards)
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        for (start, bytes) in &self.0 {
            // SAFETY: the bytes are still allocated (caller contract of `new`).
            unsafe { unpoison(*start, *bytes) }
        }
    }
}

#[cfg(sanitized = "address")]
use address_sanitizer::{__asan_poison_memory_region as poison, __asan_unpoison_memory_region as unpoison};
#[cfg(not(sanitized = "address"))]
use no_sanitizer::{poison, unpoison};

/// The interface of AddressSanitizer (`sanitizer/asan_interface.h`).
#[cfg(sanitized = "address")]
mod address_sanitizer {
    unsafe extern "C" {
        pub(super) fn __asan_poison_memory_region(start: *const u8, bytes: usize);
        pub(super) fn __asan_unpoison_memory_region(start: *const u8, bytes: usize);
    }
}

/// Functions that do nothing.
#[cfg(not(sanitized = "address"))]
mod no_sanitizer {
    pub(super) unsafe fn poison(_: *const u8, _: usize) {}
    pub(super) unsafe fn unpoison(_: *const u8, _: usize) {}
}
