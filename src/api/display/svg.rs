//! Renders pictures as SVG: a rectangle for each block, in the proportions of the array.
//!
//! The block of an unreduced array is striped in the colours of its summands.

use super::canvas::Canvas;
use super::picture::{BlockGrid, Picture};
use crate::core::util::text::{columns, escape};

const GAP_PX: f64 = 12.0;
const LINE_PX: f64 = 18.0;
/// The default length of the longer side of a slice, in pixels.
pub(super) const DEFAULT_SIDE_PX: f64 = 480.0;
/// The minimum width and height of a block, in pixels.
const MIN_BLOCK_PX: f64 = 14.0;
/// The width of a letter of a label, and the margin of a label in its block, in pixels.
const LETTER_PX: f64 = 7.5;
const MARGIN_PX: f64 = 4.0;
/// The height of a stripe of a sum, in pixels.
const STRIPE_PX: f64 = 8.0;

/// Returns the positions of the edges of the blocks along a side of this length.
fn edges(blocks: &[std::ops::Range<usize>], total: usize, length: f64) -> Vec<f64> {
    let mut at = vec![0.0];
    for b in blocks {
        let part = length * b.len() as f64 / total.max(1) as f64;
        at.push(at[at.len() - 1] + part.max(MIN_BLOCK_PX));
    }
    at
}

/// Returns the width and height of a slice; `side` is the longer of them.
/// They have the array's proportions, limited to a ratio of 4.
fn extent(grid: &BlockGrid, side: f64) -> (f64, f64) {
    let Some(rows) = grid.size.0 else { return (side, 2.0 * LINE_PX) };
    let ratio = (grid.size.1.max(1) as f64 / rows.max(1) as f64).clamp(0.25, 4.0);
    if ratio >= 1.0 { (side, side / ratio) } else { (side * ratio, side) }
}

pub(super) fn svg(picture: &Picture, side: f64) -> String {
    let (mut canvas, mut y, mut wide) = (Canvas::new(1), GAP_PX, 0.0_f64);
    for grid in &picture.grids {
        if !grid.title.is_empty() {
            wide = wide.max(width_of(&grid.title));
            canvas.text((GAP_PX, y + LINE_PX - 5.0), "start", "#222", "", &grid.title);
            y += LINE_PX;
        }
        let (width, height) = extent(grid, side);
        let columns = edges(&grid.columns, grid.size.1, width);
        let rows = edges(&grid.rows, grid.size.0.unwrap_or(1), height);
        for (r, row) in grid.rows.iter().enumerate() {
            for (c, column) in grid.columns.iter().enumerate() {
                let k = r * grid.columns.len() + c;
                let (fill, [x, ..]) = grid.cells[k].color();
                let (left, top) = (GAP_PX + columns[c], y + rows[r]);
                let (w, h) = (columns[c + 1] - columns[c], rows[r + 1] - rows[r]);
                let index = match grid.size.0 {
                    Some(_) => format!("[{}:{}, {}:{}]", row.start, row.end, column.start, column.end),
                    None => format!("[{}:{}]", column.start, column.end),
                };
                let full = grid.cells[k].label(false);
                canvas.body += &format!("<g><title>{}</title>", escape(&format!("{full} {index}")));
                canvas.rect((left, top), (w, h), fill, " stroke=\"#fff\"");
                // use the longest label that fits into the block; the title has the full one
                let fits = |label: &String| width_of(label) + MARGIN_PX <= w && h >= MIN_BLOCK_PX;
                let labels = [full, grid.cells[k].label(true), grid.cells[k].device_ids()];
                let label = labels.into_iter().find(fits);
                let terms = grid.cells[k].terms();
                if terms.len() > 1 {
                    stripes(&mut canvas, (left, top), (w, h), &terms);
                }
                if let Some(label) = label {
                    // the label has a background in the colour of the block, which hides the
                    // stripes
                    if terms.len() > 1 {
                        let wide = width_of(&label) + MARGIN_PX;
                        let at = (left + (w - wide) / 2.0, top + h / 2.0 - LINE_PX / 2.0);
                        canvas.rect(at, (wide, LINE_PX), fill, "");
                    }
                    let ink = if x == 0 { "#000" } else { "#fff" };
                    canvas.text((left + w / 2.0, top + h / 2.0 + 4.5), "middle", ink, "", &label);
                }
                canvas.body.push_str("</g>\n");
            }
        }
        wide = wide.max(columns[columns.len() - 1]);
        y += rows[rows.len() - 1] + GAP_PX;
    }
    for note in &picture.notes {
        wide = wide.max(width_of(note));
        canvas.text((GAP_PX, y + LINE_PX - 5.0), "start", "#222", "", note);
        y += LINE_PX;
    }
    canvas.finish((wide + 2.0 * GAP_PX, y + GAP_PX), 12.0, ">")
}

/// Draws the stripes of a block with several terms, in the colours of all terms but the first.
fn stripes(canvas: &mut Canvas, (left, top): (f64, f64), (w, h): (f64, f64), terms: &[[u8; 3]]) {
    for k in (0..(h / STRIPE_PX).ceil() as usize).filter(|k| k % terms.len() != 0) {
        let y = k as f64 * STRIPE_PX;
        canvas.rect((left, top + y), (w, STRIPE_PX.min(h - y)), terms[k % terms.len()], "");
    }
}

fn width_of(label: &str) -> f64 {
    columns(label) as f64 * LETTER_PX
}
