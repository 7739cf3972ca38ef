//! Checks that the sanitizers of `scripts/sanitize` see the memory of arrays: each test makes one
//! error on purpose, in a child process, and expects the report.
#![cfg(any(sanitized = "address", sanitized = "thread"))]

use atmesh::prelude::*;
use std::process::Command;

/// Marks a child process.
const CHILD: &str = "ATMESH_SANITIZED_CHILD";

/// An address that threads share although no lock protects it.
#[cfg(sanitized = "thread")]
struct Shared(*mut f32);
// SAFETY: no one relies on it: the test makes a data race on purpose.
#[cfg(sanitized = "thread")]
unsafe impl Sync for Shared {}

/// Runs `error` on the address and length of a new array, in a child process; returns what the child
/// prints to stderr.
fn report_of(test: &str, error: impl Fn(*const f32, usize)) -> String {
    if std::env::var_os(CHILD).is_some() {
        let x = jit(|x: &Array| x + 1.0).call(&Array::ones([25])).unwrap();
        let view = x.view::<f32>().unwrap();
        error(view.array().as_ptr(), 25);
        std::process::exit(0);
    }
    let mut run = Command::new(std::env::current_exe().unwrap());
    let done = run.args(["--exact", test, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let printed = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success(), "the error is not reported:\n{printed}");
    printed
}

/// An array of 100 bytes ends after 100 bytes, although memory is pooled in larger blocks.
#[cfg(sanitized = "address")]
#[test]
fn a_read_past_the_end_of_an_array_is_reported() {
    let printed = report_of("a_read_past_the_end_of_an_array_is_reported", |start, len| {
        // SAFETY: this is the error that the sanitizer must report.
        let past = unsafe { start.wrapping_add(len).read_volatile() };
        println!("{past}");
    });
    assert!(printed.contains("heap-buffer-overflow"), "{printed}");
}

#[cfg(sanitized = "thread")]
#[test]
fn writes_of_two_threads_to_one_element_are_reported() {
    let printed = report_of("writes_of_two_threads_to_one_element_are_reported", |start, _| {
        let shared = &Shared(start.cast_mut());
        // both threads run before either writes
        let begun = &std::sync::Barrier::new(2);
        let write = |x: f32| {
            let Shared(at) = shared;
            begun.wait();
            // SAFETY: the address is valid; the race is the error that the sanitizer must report.
            unsafe { at.write_volatile(x) }
        };
        std::thread::scope(|s| {
            s.spawn(|| write(1.0));
            s.spawn(|| write(2.0));
        });
    });
    assert!(printed.contains("data race"), "{printed}");
}
