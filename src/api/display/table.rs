//! Renders pictures as tables for the terminal.
//!
//! The boxes have the proportions that JAX's `visualize_array_sharding` uses.

use super::picture::{BlockGrid, Picture};
use crate::core::util::text;

/// The maximum width of a table in columns, and the maximum numbers of rows and slices drawn.
/// The rest is elided.
const MAX_COLUMNS: usize = 80;
const MAX_ROWS: usize = 16;
const MAX_SLICES: usize = 8;

/// The layout of the table for one slice.
struct TableLayout {
    /// The indices of the blocks drawn; `None` stands for the elided ones.
    rows: Vec<Option<usize>>,
    columns: Vec<Option<usize>>,
    widths: Vec<usize>,
    short: bool,
}

/// Returns the indices of the entries drawn: all, or the first ones and the last one with a gap.
fn elide(n: usize, most: usize) -> Vec<Option<usize>> {
    let most = most.max(2);
    if n <= most {
        (0..n).map(Some).collect()
    } else {
        (0..most - 1).map(Some).chain([None, Some(n - 1)]).collect()
    }
}

/// Returns the blanks to the left and right of a label in a cell with this width.
fn pads(requested: usize, label: usize) -> (usize, usize) {
    let spare = requested.saturating_sub(label + 2);
    (spare / 2, spare - spare / 2)
}

impl BlockGrid {
    fn label(&self, row: usize, column: usize, short: bool) -> String {
        self.cells[row * self.columns.len() + column].label(short)
    }
    /// Returns the width of a column in proportion to its block. The height of a text line is
    /// assumed to be 2.5 times the width of a character.
    fn wanted_width(&self, column: usize) -> usize {
        const MIN_CELL_COLUMNS: usize = 9;
        let aspect = match self.size {
            (None, n) => 1.0 / n.max(1) as f64,
            (Some(0), _) | (_, 0) => 1.0,
            (Some(m), n) => n as f64 / m as f64,
        };
        let part = self.columns[column].len() as f64 / self.size.1.max(1) as f64;
        let width = (part * (10.0 * aspect).floor() * 2.5) as usize;
        width.clamp(MIN_CELL_COLUMNS, MAX_COLUMNS)
    }
    /// Returns the number of lines above and below the label of a row.
    fn height(&self, row: usize) -> (usize, usize) {
        let Some(n) = self.size.0 else { return (0, 0) };
        let height = (self.rows[row].len() as f64 / n.max(1) as f64 * 10.0) as usize;
        let spare = height.saturating_sub(2);
        (spare / 2, spare - spare / 2)
    }
    fn layout(&self) -> TableLayout {
        let columns = self.columns.len();
        let rows = elide(self.rows.len(), MAX_ROWS);
        let shown: Vec<usize> = rows.iter().flatten().copied().collect();
        let widest = |column: usize, short: bool| {
            shown.iter().map(|r| text::columns(&self.label(*r, column, short))).max().unwrap_or(0)
        };
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + widths.len() + 1;
        let widths = |short: bool, cap: usize| -> Vec<usize> {
            (0..columns).map(|c| widest(c, short).max((self.wanted_width(c) - 2).min(cap))).collect()
        };
        let fit = MAX_COLUMNS.saturating_sub(columns + 1) / columns.max(1);
        let all = elide(columns, columns);
        for (short, cap) in [(false, MAX_COLUMNS), (true, MAX_COLUMNS), (false, fit), (true, fit)] {
            let widths = widths(short, cap);
            if total(&widths) <= MAX_COLUMNS {
                return TableLayout { rows, columns: all, widths, short };
            }
        }
        let widths = widths(true, 0);
        let label = widths.iter().copied().max().unwrap_or(0);
        let columns = elide(columns, (MAX_COLUMNS - 4) / (label + 1));
        let widths = columns.iter().map(|c| c.map_or(1, |c| widths[c])).collect();
        TableLayout { rows, columns, widths, short: true }
    }
    /// Returns the cells of a line with the labels of a row; blank if `row` is `None`.
    fn line(&self, l: &TableLayout, row: Option<usize>) -> Vec<String> {
        let cells = l.columns.iter().zip(&l.widths);
        cells
            .map(|(column, width)| {
                let label = match (row, column) {
                    (Some(row), Some(column)) => self.label(row, *column, l.short),
                    (Some(_), None) => "…".to_string(),
                    (None, _) => String::new(),
                };
                let n = text::columns(&label);
                let (left, right) = column.map_or((0, 0), |c| pads(self.wanted_width(c).min(width + 2), n));
                let left = left + width.saturating_sub(left + right + n) / 2;
                let right = width.saturating_sub(left + n);
                format!("{}{label}{}", " ".repeat(left), " ".repeat(right))
            })
            .collect()
    }
    /// Returns the cells of a line that stands for the elided rows.
    fn gap(&self, l: &TableLayout) -> Vec<String> {
        l.widths.iter().map(|w| format!("{:^w$}", "⋮")).collect()
    }
}

/// Renders a picture: its slices with `draw`, each under its title, and then the notes.
fn render(picture: &Picture, draw: impl Fn(&BlockGrid) -> String) -> String {
    let mut text = String::new();
    for k in elide(picture.grids.len(), MAX_SLICES) {
        let Some(k) = k else {
            text += &format!("… {} more slices\n", picture.grids.len() - MAX_SLICES);
            continue;
        };
        let grid = &picture.grids[k];
        if !grid.title.is_empty() {
            text += &format!("{}\n", grid.title);
        }
        text += &draw(grid);
    }
    picture.notes.iter().for_each(|n| text += &format!("{n}\n"));
    text
}

pub(super) fn plain(picture: &Picture) -> String {
    render(picture, |grid| {
        let l = grid.layout();
        let rule = |left: &str, cross: &str, right: &str| {
            let lines: Vec<_> = l.widths.iter().map(|w| "─".repeat(*w)).collect();
            format!("{left}{}{right}\n", lines.join(cross))
        };
        let line = |cells: Vec<String>| format!("│{}│\n", cells.join("│"));
        let mut text = rule("┌", "┬", "┐");
        for (i, row) in l.rows.iter().enumerate() {
            if i > 0 {
                text += &rule("├", "┼", "┤");
            }
            let Some(row) = *row else {
                text += &line(grid.gap(&l));
                continue;
            };
            let (above, below) = grid.height(row);
            text += &line(grid.line(&l, None)).repeat(above);
            text += &line(grid.line(&l, Some(row)));
            text += &line(grid.line(&l, None)).repeat(below);
        }
        text + &rule("└", "┴", "┘")
    })
}

pub(super) fn colored(picture: &Picture) -> String {
    render(picture, |grid| {
        let l = grid.layout();
        let paint = |cells: Vec<String>, row: Option<usize>| {
            let cells = l.columns.iter().zip(cells).map(|(column, text)| match (row, column) {
                (Some(row), Some(column)) => {
                    let cell = &grid.cells[row * grid.columns.len() + column];
                    let ([r, g, b], [x, y, z]) = cell.color();
                    format!("\x1b[38;2;{x};{y};{z};48;2;{r};{g};{b}m {text} \x1b[0m")
                }
                _ => format!(" {text} "),
            });
            cells.collect::<String>() + "\n"
        };
        let mut text = String::new();
        for row in &l.rows {
            let Some(row) = *row else {
                text += &paint(grid.gap(&l), None);
                continue;
            };
            let (above, below) = grid.height(row);
            let blank = paint(grid.line(&l, None), Some(row));
            text += &blank.repeat(above + 1);
            text += &paint(grid.line(&l, Some(row)), Some(row));
            text += &blank.repeat(below + 1);
        }
        text
    })
}
