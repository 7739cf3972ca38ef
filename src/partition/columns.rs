//! Tables as text: the columns of reports, plans and timelines.

use crate::core::util::text::{column_widths, columns as width_of, pad, wrap};
use crate::ir::program::{Phase, ScopePath};

/// The header of the column for the phase: forward, recomputed or backward.
pub(super) const PHASE_COLUMN: &str = "phase";
/// The header of the column for the named scopes.
pub(super) const SCOPE_COLUMN: &str = "scope";

/// A column of a table whose rows are values of type `R`.
pub(super) struct TableColumn<'a, R> {
    head: &'a str,
    /// True if cells are aligned to the right, as numbers are.
    is_right: bool,
    /// Returns the text of a row's cell.
    cell: Box<dyn Fn(&R) -> String + 'a>,
    is_shown: bool,
}

impl<'a, R> TableColumn<'a, R> {
    /// Returns a column of texts, aligned to the left.
    pub(super) fn text(head: &'a str, cell: impl Fn(&R) -> String + 'a) -> Self {
        TableColumn { head, is_right: false, cell: Box::new(cell), is_shown: true }
    }
    /// Returns a column of numbers, aligned to the right.
    pub(super) fn number(head: &'a str, cell: impl Fn(&R) -> String + 'a) -> Self {
        TableColumn { is_right: true, ..Self::text(head, cell) }
    }
    /// Returns the column of phases, which is shown unless all rows are forward.
    pub(super) fn phase(rows: &[R], phase: impl Fn(&R) -> Option<Phase> + 'a) -> Self {
        let is_shown = rows.iter().any(|r| phase(r).unwrap_or_default() != Phase::Forward);
        let cell = move |r: &R| phase(r).map(Phase::name).unwrap_or_default().into();
        TableColumn { is_shown, ..Self::text(PHASE_COLUMN, cell) }
    }
    /// Returns the column of named scopes, which is shown if a row is in a scope.
    pub(super) fn scope(rows: &[R], scope: impl Fn(&R) -> &ScopePath + 'a) -> Self {
        let is_shown = rows.iter().any(|r| scope(r).name().is_some());
        TableColumn { is_shown, ..Self::text(SCOPE_COLUMN, move |r| scope(r).to_string()) }
    }
}

/// The minimum width to which the last column is wrapped next to the others, in columns of text.
const MIN_WRAPPED_WIDTH: usize = 24;

/// Returns the cells of the columns that are shown, after a row of their heads, and for each column
/// whether it is one of numbers.
pub(super) fn table_cells<R>(columns: &[TableColumn<'_, R>], rows: &[R]) -> (Vec<Vec<String>>, Vec<bool>) {
    let shown: Vec<_> = columns.iter().filter(|c| c.is_shown).collect();
    let head = shown.iter().map(|c| c.head.to_string()).collect();
    let cells = rows.iter().map(|r| shown.iter().map(|c| (c.cell)(r)).collect());
    (std::iter::once(head).chain(cells).collect(), shown.iter().map(|c| c.is_right).collect())
}

/// Formats a table. The last column is wrapped so that lines have at most `width` characters;
/// `None` for no wrapping.
pub(super) fn text_table<R>(columns: &[TableColumn<'_, R>], rows: &[R], width: Option<usize>) -> String {
    let (lines, is_right) = table_cells(columns, rows);
    let last = is_right.len().saturating_sub(1);
    let mut widths = column_widths(&lines);
    widths.truncate(last);
    let before: usize = widths.iter().map(|w| w + 2).sum();
    let mut out = String::new();
    for cells in &lines {
        let mut line = String::new();
        for ((is_right, cell), width) in is_right.iter().zip(cells).zip(&widths) {
            line += &pad(cell, *width, *is_right);
            line += "  ";
        }
        line += &cells.last().map(|cell| wrap_last(cell, before, width)).unwrap_or_default();
        for part in line.lines() {
            out += part.trim_end();
            out.push('\n');
        }
    }
    out
}

/// Wraps the last cell of a row to the width that the cells before it leave.
/// It gets lines of its row if the terminal is narrow.
fn wrap_last(cell: &str, before: usize, width: Option<usize>) -> String {
    match width {
        Some(all) if all >= before + MIN_WRAPPED_WIDTH => {
            wrap(cell, all - before).join(&format!("\n{:before$}", ""))
        }
        Some(all) if all < before + width_of(cell) => {
            format!("\n    {}", wrap(cell, all.max(44) - 4).join("\n    "))
        }
        _ => cell.into(),
    }
}
