//! Terminal widths.

use std::io::IsTerminal;

/// Returns the number of columns of stderr, if it is a terminal.
pub(crate) fn stderr() -> Option<usize> {
    let err = std::io::stderr();
    if err.is_terminal() { columns(terminal_size::terminal_size()) } else { None }
}
/// Returns the number of columns of stdout, if it is a terminal.
pub(crate) fn stdout() -> Option<usize> {
    let out = std::io::stdout();
    if out.is_terminal() { columns(terminal_size::terminal_size()) } else { None }
}
fn columns(found: Option<(terminal_size::Width, terminal_size::Height)>) -> Option<usize> {
    found.map(|(width, _)| usize::from(width.0))
}
