//! Pictures as SVG: a rectangle for each block, in the proportions of the array.

use super::picture::{Grid, Picture, color};
use std::fmt::Write;

const GAP: f64 = 12.0;
const LINE: f64 = 18.0;
/// The most that one slice takes, in either direction, and the least that a block does.
const SIDE: f64 = 480.0;
const LEAST: f64 = 14.0;
/// The width of a letter of labels.
const LETTER: f64 = 7.5;

/// Text as it stands in XML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// The edges of blocks along one side of this length.
fn edges(blocks: &[std::ops::Range<usize>], total: usize, length: f64) -> Vec<f64> {
    let mut at = vec![0.0];
    for b in blocks {
        let part = length * b.len() as f64 / total.max(1) as f64;
        at.push(at[at.len() - 1] + part.max(LEAST));
    }
    at
}

/// Width and height of a slice: the array's proportions, within reason.
fn extent(grid: &Grid) -> (f64, f64) {
    let Some(rows) = grid.size.0 else { return (SIDE, 2.0 * LINE) };
    let ratio = (grid.size.1.max(1) as f64 / rows.max(1) as f64).clamp(0.25, 4.0);
    if ratio >= 1.0 { (SIDE, SIDE / ratio) } else { (SIDE * ratio, SIDE) }
}

pub(super) fn svg(picture: &Picture) -> String {
    let (mut body, mut y, mut wide) = (String::new(), GAP, SIDE);
    for grid in &picture.grids {
        if !grid.title.is_empty() {
            text(&mut body, GAP, y + LINE - 5.0, "start", "#222", &grid.title);
            y += LINE;
        }
        let (width, height) = extent(grid);
        let columns = edges(&grid.columns, grid.size.1, width);
        let rows = edges(&grid.rows, grid.size.0.unwrap_or(1), height);
        for (r, row) in grid.rows.iter().enumerate() {
            for (c, column) in grid.columns.iter().enumerate() {
                let k = r * grid.columns.len() + c;
                let ([red, green, blue], [x, ..]) = color(k);
                let (left, top) = (GAP + columns[c], y + rows[r]);
                let (w, h) = (columns[c + 1] - columns[c], rows[r + 1] - rows[r]);
                let index = match grid.size.0 {
                    Some(_) => format!("[{}:{}, {}:{}]", row.start, row.end, column.start, column.end),
                    None => format!("[{}:{}]", column.start, column.end),
                };
                let full = grid.cells[k].label(false);
                let _ = write!(
                    body,
                    "<g><title>{}</title><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" \
                     fill=\"#{red:02x}{green:02x}{blue:02x}\" stroke=\"#fff\"/>",
                    escape(&format!("{full} {index}"))
                );
                // the longest label that the block has room for; none of it is lost: the title has it all
                let fits = |label: &String| label.chars().count() as f64 * LETTER <= w && h >= LEAST;
                if let Some(label) = [full, grid.cells[k].label(true)].into_iter().find(fits) {
                    let ink = if x == 0 { "#000" } else { "#fff" };
                    text(&mut body, left + w / 2.0, top + h / 2.0 + 4.5, "middle", ink, &label);
                }
                body.push_str("</g>\n");
            }
        }
        wide = wide.max(columns[columns.len() - 1]);
        y += rows[rows.len() - 1] + GAP;
    }
    for note in &picture.notes {
        text(&mut body, GAP, y + LINE - 5.0, "start", "#222", note);
        y += LINE;
    }
    let (width, height) = (wide + 2.0 * GAP, y + GAP);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, monospace\" font-size=\"12\">\n{body}</svg>\n"
    )
}

fn text(body: &mut String, x: f64, y: f64, anchor: &str, ink: &str, label: &str) {
    let label = escape(label);
    let _ = write!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{ink}\">{label}</text>"
    );
}
