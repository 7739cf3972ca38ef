//! HTML pages of plans and profiles.
//!
//! A page is a single file whose table is sorted by clicking on a column's name.

use crate::core::{SourceLocation, util::text::escape};
use std::fmt::Write;

/// One cell of a page's table.
enum PageCell {
    /// A text.
    Text(String),
    /// A source location, shown as a link; empty if `None`.
    Line(Option<SourceLocation>),
    /// A number to sort by, and its text.
    Figure(f64, String),
}

/// A column of a page's table: its name, and the cell of a row.
pub(crate) struct PageColumn<'a, R> {
    name: &'a str,
    cell: Box<dyn Fn(&R) -> PageCell + 'a>,
}
impl<'a, R> PageColumn<'a, R> {
    pub(crate) fn text(name: &'a str, text: impl Fn(&R) -> String + 'a) -> Self {
        PageColumn { name, cell: Box::new(move |r| PageCell::Text(text(r))) }
    }
    pub(super) fn line(name: &'a str, source: impl Fn(&R) -> Option<SourceLocation> + 'a) -> Self {
        PageColumn { name, cell: Box::new(move |r| PageCell::Line(source(r))) }
    }
    /// Returns a column of numbers, which are shown as `text` formats them.
    pub(crate) fn figure(
        name: &'a str,
        value: impl Fn(&R) -> f64 + 'a,
        text: impl Fn(f64) -> String + 'a,
    ) -> Self {
        PageColumn { name, cell: Box::new(move |r| PageCell::Figure(value(r), text(value(r)))) }
    }
}

/// Formats a source location as `file:line`; an empty string if `None`.
pub(super) fn location_text(source: Option<SourceLocation>) -> String {
    source.map(|p| format!("{}:{}", p.file(), p.line())).unwrap_or_default()
}

/// Returns an HTML page with figures and a table.
/// `source` is prepended to each file's name, so that source locations are links.
pub(crate) fn page<R>(
    title: &str,
    head: &[(&str, String)],
    columns: &[PageColumn<'_, R>],
    rows: &[R],
    source: &str,
) -> String {
    let mut page = String::from(PAGE_HEAD);
    let _ = write!(page, "<title>{0}</title>\n<h1>{0}</h1>\n<dl>", escape(title));
    for (name, figure) in head {
        let _ = writeln!(page, "<dt>{name}</dt><dd>{}</dd>", escape(figure));
    }
    page += "</dl>\n<table>\n<thead><tr>";
    for column in columns {
        let _ = write!(page, "<th><button>{}</button></th>", column.name);
    }
    page += "</tr></thead>\n<tbody>\n";
    for row in rows {
        page += "<tr>";
        for column in columns {
            let _ = match (column.cell)(row) {
                PageCell::Text(text) => write!(page, "<td>{}</td>", escape(&text)),
                PageCell::Line(None) => write!(page, "<td></td>"),
                PageCell::Line(Some(p)) => {
                    let file = escape(&format!("{source}{}#L{}", p.file(), p.line()));
                    write!(page, "<td><a href=\"{file}\">{}</a></td>", escape(&location_text(Some(p))))
                }
                PageCell::Figure(value, text) => {
                    write!(page, "<td data-v=\"{value:e}\">{}</td>", text.trim_end())
                }
            };
        }
        page += "</tr>\n";
    }
    page + "</tbody></table>\n" + SORT_SCRIPT
}

const PAGE_HEAD: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 96em; padding: 0 1em; color: #1b1b1b; background: #fff }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1.5em }
dt { color: #666 } dd { margin: 0 }
table { border-collapse: collapse; display: block; overflow-x: auto }
th, td { padding: .2em .8em .2em 0; text-align: left; white-space: nowrap }
td[data-v] { text-align: right; font-variant-numeric: tabular-nums }
tbody tr { border-top: 1px solid #ddd }
button { font: inherit; border: 0; background: none; padding: 0; cursor: pointer; font-weight: bold }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #1b1b1b } dt { color: #999 } a { color: #8bf } button { color: inherit } tbody tr { border-color: #444 } }
</style>
";

const SORT_SCRIPT: &str = "<script>
for (const [n, head] of [...document.querySelectorAll('th button')].entries()) {
  let down = false;
  head.onclick = () => {
    const body = document.querySelector('tbody');
    const of = row => { const cell = row.cells[n]; return cell.dataset.v === undefined ? cell.textContent : +cell.dataset.v; };
    const rows = [...body.rows].sort((a, b) => of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0);
    down = !down;
    body.replaceChildren(...(down ? rows.reverse() : rows));
  };
}
</script>
</html>
";
