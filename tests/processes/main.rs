//! Tests of several processes: each starts this test program again, several times, as processes of
//! one cluster.

#![cfg(unix)]

mod deaths;
mod joining;
mod roles;
mod strangers;
mod supervisor;

/// The program of a child process. In an ordinary run of the tests it does nothing.
#[test]
fn child() {
    if let Ok(role) = std::env::var(supervisor::ROLE) {
        std::process::exit(roles::run(&role));
    }
}
