//! Terminal widths, and wrapping of text to them.

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

/// Wraps text at spaces to lines of at most `width` columns.
/// Code in backticks stays on one line, so that it can be copied. A word that is too long gets its
/// own line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for given in text.split('\n') {
        let (mut line, mut code) = (String::new(), false);
        let mut word = String::new();
        let mut end = |word: &mut String, line: &mut String| {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
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

#[cfg(test)]
mod tests {
    use super::wrap;

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
    }
}
