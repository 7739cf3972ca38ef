//! Properties of every error that a test encounters. The generators and the case runner share this
//! file by `#[path]`.

use atmesh::{Error, ErrorKind};

/// Returns a fault in the presentation of an error: each of its diagnostics must name an operation
/// and a source line, and must not be an internal error of atmesh.
pub(crate) fn flaw(error: &Error) -> Option<String> {
    error.diagnostics().iter().find_map(|d| {
        let what = match d.fault.kind {
            ErrorKind::Internal => "it is a fault of atmesh",
            // Created by the test itself: `Error::other` has no line.
            ErrorKind::User if d.op.is_empty() => return None,
            _ if d.op.is_empty() => "it is of no operation",
            _ if d.location.is_none() => "it is of no line",
            _ => return None,
        };
        Some(format!("{what}: {error}"))
    })
}

/// Returns the error after checking its presentation; a test that collects faults uses `flaw`
/// alone.
#[allow(dead_code)]
#[track_caller]
pub(crate) fn well(error: Error) -> Error {
    if let Some(flaw) = flaw(&error) {
        panic!("{flaw}");
    }
    error
}
