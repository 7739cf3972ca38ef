//! Properties of every error that a test encounters. The generators and the case runner share this
//! file by `#[path]`.

use atmesh::{Error, ErrorKind};

/// The text of an error, for tests that search it.
#[allow(dead_code)]
pub(crate) trait Unquoted {
    /// Returns the printed error without the source lines that it quotes.
    ///
    /// A quoted line is the test's, which often has the words that the test searches for: a search
    /// of the whole text cannot fail then.
    fn unquoted(&self) -> String;
}

impl Unquoted for Error {
    fn unquoted(&self) -> String {
        let is_quoted = |line: &str| {
            let number = line.split_once(" |").map_or("", |(number, _)| number.trim());
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        };
        let printed = self.to_string();
        printed.lines().filter(|line| !is_quoted(line)).collect::<Vec<_>>().join("\n")
    }
}

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
