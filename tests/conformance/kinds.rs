//! Names of error kinds in the case files, which keep the names of the reference implementation.

use atmesh::ErrorKind;

/// Returns the name that case files use for a kind of error.
pub(crate) fn case_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Varying => "vma",
        ErrorKind::Aborted => "stopped",
        ErrorKind::User => "other",
        kind => kind.name(),
    }
}
