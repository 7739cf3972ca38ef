//! Pieces of HTML, with the styles that notebooks of any theme show well.

use crate::core::util::text::escape;
use std::fmt::Write;

/// The style of text in a fixed-width font, whose lines are not wrapped.
const PREFORMATTED: &str = "margin: 0; font-family: monospace; white-space: pre; overflow-x: auto";

/// Text in a fixed-width font.
pub(super) fn preformatted(text: &str) -> String {
    format!("<pre style=\"{PREFORMATTED}\">{}</pre>\n", escape(text.trim_end()))
}

/// The text of an error, with a mark at its left.
pub(super) fn error(text: &str) -> String {
    let mark = "padding-left: 0.8em; border-left: 4px solid #d33";
    format!("<pre style=\"{PREFORMATTED}; {mark}\">{}</pre>\n", escape(text.trim_end()))
}

/// A line of code above a value, such as its type.
pub(super) fn caption(code: &str) -> String {
    format!("<div><code>{}</code></div>\n", escape(code))
}

/// A summary that unfolds to `content`, which is HTML.
pub(super) fn folded(summary: &str, content: &str) -> String {
    format!("<details><summary>{}</summary>\n{}\n</details>\n", escape(summary), content.trim_end())
}

/// A table whose first row is its head; `is_number` selects the columns that are aligned at the
/// right.
pub(super) fn table(rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> String {
    let mut html = String::from("<table>\n");
    for (r, row) in rows.iter().enumerate() {
        let tag = if r == 0 { "th" } else { "td" };
        html += "<tr>";
        for (c, cell) in row.iter().enumerate() {
            let side = if is_number(c) { "right" } else { "left" };
            let _ = write!(html, "<{tag} style=\"text-align: {side}\">{}</{tag}>", escape(cell));
        }
        html += "</tr>\n";
    }
    html + "</table>\n"
}
