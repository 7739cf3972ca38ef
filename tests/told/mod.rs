//! What holds of every error that a test meets. The generators and the runner of the cases share it: `#[path]` names this file.

use atmesh::{Error, ErrorKind};

/// What is wrong with how an error is told: each of its diagnostics is of an operation on a line, and none is a fault of atmesh.
pub(crate) fn flaw(error: &Error) -> Option<String> {
    error.diagnostics().iter().find_map(|d| {
        let what = match d.fault.kind {
            ErrorKind::Internal => "it is a fault of atmesh",
            // made by the test itself: `Error::other` knows no line
            ErrorKind::Other if d.op.is_empty() => return None,
            _ if d.op.is_empty() => "it is of no operation",
            _ if d.place.is_none() => "it is of no line",
            _ => return None,
        };
        Some(format!("{what}: {error}"))
    })
}

/// The error, told as all are; a binary that gathers what is wrong takes `flaw` alone.
#[allow(dead_code)]
#[track_caller]
pub(crate) fn well(error: Error) -> Error {
    if let Some(flaw) = flaw(&error) {
        panic!("{flaw}");
    }
    error
}
