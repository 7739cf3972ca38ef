//! Pictures as SVG: a rectangle for each block, in the proportions of the array, striped where it is a sum of several devices' blocks.

use super::picture::{Grid, Picture};
use std::fmt::Write;

const GAP: f64 = 12.0;
const LINE: f64 = 18.0;
/// The most that one slice takes, in either direction, where nothing else is asked for.
pub(super) const SIDE: f64 = 480.0;
/// The least that a block does.
const LEAST: f64 = 14.0;
/// The width of a letter of labels, and the room that they leave in a block.
const LETTER: f64 = 7.5;
const MARGIN: f64 = 4.0;
/// The height of a stripe of a sum.
const STRIPE: f64 = 8.0;

/// Text as XML needs it.
pub(super) fn escape(text: &str) -> String {
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

/// Width and height of a slice: the array's proportions, within reason; `side` is the longer one.
fn extent(grid: &Grid, side: f64) -> (f64, f64) {
    let Some(rows) = grid.size.0 else { return (side, 2.0 * LINE) };
    let ratio = (grid.size.1.max(1) as f64 / rows.max(1) as f64).clamp(0.25, 4.0);
    if ratio >= 1.0 { (side, side / ratio) } else { (side * ratio, side) }
}

pub(super) fn svg(picture: &Picture, side: f64) -> String {
    let (mut body, mut y, mut wide) = (String::new(), GAP, 0.0_f64);
    for grid in &picture.grids {
        if !grid.title.is_empty() {
            wide = wide.max(width_of(&grid.title));
            text(&mut body, GAP, y + LINE - 5.0, "start", "#222", &grid.title);
            y += LINE;
        }
        let (width, height) = extent(grid, side);
        let columns = edges(&grid.columns, grid.size.1, width);
        let rows = edges(&grid.rows, grid.size.0.unwrap_or(1), height);
        for (r, row) in grid.rows.iter().enumerate() {
            for (c, column) in grid.columns.iter().enumerate() {
                let k = r * grid.columns.len() + c;
                let ([red, green, blue], [x, ..]) = grid.cells[k].color();
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
                     fill=\"{}\" stroke=\"#fff\"/>",
                    escape(&format!("{full} {index}")),
                    hex([red, green, blue])
                );
                // the longest label that the block has room for; none of it is lost: the title has it all
                let fits = |label: &String| width_of(label) + MARGIN <= w && h >= LEAST;
                let labels = [full, grid.cells[k].label(true), grid.cells[k].numbers()];
                let label = labels.into_iter().find(fits);
                let terms = grid.cells[k].terms();
                if terms.len() > 1 {
                    stripes(&mut body, (left, top), (w, h), &terms);
                }
                if let Some(label) = label {
                    // on stripes it has a ground of its own
                    if terms.len() > 1 {
                        let wide = width_of(&label) + MARGIN;
                        let (x, y) = (left + (w - wide) / 2.0, top + h / 2.0 - LINE / 2.0);
                        let _ = write!(
                            body,
                            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{LINE:.1}\" fill=\"{}\"/>",
                            hex([red, green, blue])
                        );
                    }
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
        wide = wide.max(width_of(note));
        text(&mut body, GAP, y + LINE - 5.0, "start", "#222", note);
        y += LINE;
    }
    let (width, height) = (wide + 2.0 * GAP, y + GAP);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, monospace\" font-size=\"12\">\n{body}</svg>\n"
    )
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A block that several terms make up: between stripes of its first one's colour, those of the others.
fn stripes(body: &mut String, (left, top): (f64, f64), (w, h): (f64, f64), terms: &[[u8; 3]]) {
    for k in (0..(h / STRIPE).ceil() as usize).filter(|k| k % terms.len() != 0) {
        let y = k as f64 * STRIPE;
        let _ = write!(
            body,
            "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{w:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
            top + y,
            STRIPE.min(h - y),
            hex(terms[k % terms.len()])
        );
    }
}

fn width_of(label: &str) -> f64 {
    label.chars().count() as f64 * LETTER
}

fn text(body: &mut String, x: f64, y: f64, anchor: &str, ink: &str, label: &str) {
    let label = escape(label);
    let _ = write!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{ink}\">{label}</text>"
    );
}
