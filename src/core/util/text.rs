//! Text for people: widths on a screen, padding, wrapping, tables, units, and escapes.

use std::iter::repeat_n;
use unicode_width::UnicodeWidthStr;

/// Returns the number of columns that a text takes in a fixed-width font.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Pads a text to a number of columns: at its end, or at its start if `right` is set.
pub(crate) fn pad(text: &str, width: usize, right: bool) -> String {
    let blanks = repeat_n(' ', width.saturating_sub(columns(text)));
    if right { blanks.chain(text.chars()).collect() } else { text.chars().chain(blanks).collect() }
}

/// Returns the width of each column of a table: that of its widest cell.
pub(crate) fn column_widths<R: AsRef<[String]>>(rows: &[R]) -> Vec<usize> {
    let number = rows.iter().map(|r| r.as_ref().len()).max().unwrap_or(0);
    let cells = |k: usize| rows.iter().filter_map(move |r| r.as_ref().get(k));
    (0..number).map(|k| cells(k).map(|cell| columns(cell)).max().unwrap_or(0)).collect()
}

/// Formats rows as a table, two spaces between columns; `is_number` selects the columns that are
/// aligned at the right.
pub(crate) fn table<R: AsRef<[String]>>(rows: &[R], is_number: impl Fn(usize) -> bool) -> String {
    let widths = column_widths(rows);
    let mut text = String::new();
    for row in rows {
        let cells = row.as_ref().iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells.map(|(k, (cell, width))| pad(cell, *width, is_number(k))).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Wraps text at spaces to lines of at most `width` columns.
/// Code in backticks stays on one line, so that it can be copied. A word that is too long gets its
/// own line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for given in text.split('\n') {
        let (mut line, mut code) = (String::new(), false);
        let mut word = String::new();
        let mut end = |word: &mut String, line: &mut String| {
            if !line.is_empty() && columns(line) + 1 + columns(word) > width {
                lines.push(std::mem::take(line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            word.clear();
        };
        for c in given.chars() {
            code ^= c == '`';
            if c == ' ' && !code {
                end(&mut word, &mut line);
            } else {
                word.push(c);
            }
        }
        end(&mut word, &mut line);
        lines.push(line);
    }
    lines
}

/// Escapes text for XML and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats a value with an SI prefix, such as `1.23 ms`.
pub(crate) fn scaled(x: f64, unit: &str) -> String {
    let units = [
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
    ];
    // bytes and operations are integers, so they get no prefixes below 1
    let least = if unit == "s" { 1e-9 } else { 1.0 };
    let fits = |u: &&(f64, &str)| u.0 >= least && x.abs() >= u.0 && !(unit == "s" && u.0 > 1.0);
    let Some((by, name)) = units.iter().find(fits) else { return format!("0 {unit}") };
    format!("{:.3} {name}{unit}", x / by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_spaces_and_code_stays_whole() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(
            wrap("write `x.reshard(p![_, \"Y\"])` first", 12),
            ["write", "`x.reshard(p![_, \"Y\"])`", "first"]
        );
        assert_eq!(wrap("größe é\nb", 5), ["größe", "é", "b"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
        // each of these letters takes two columns
        assert_eq!(wrap("設備 設備", 8), ["設備", "設備"]);
    }

    #[test]
    fn columns_are_aligned_in_any_script() {
        let rows = [["axis", "size"], ["設備", "8"], ["größe", "16"]].map(|r| r.map(String::from));
        assert_eq!(table(&rows, |k| k == 1), "axis   size\n設備      8\ngröße    16\n");
    }
}
