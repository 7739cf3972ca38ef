//! Parses specs as the page and programs write them.

use atmesh::Spec;

/// Parses a spec such as `p!["X", _]`, `"X", _` or `X, _`, with sets of axes after a semicolon.
pub(crate) fn spec(text: &str) -> Result<Spec, String> {
    let inner = text.trim();
    let inner = inner.strip_prefix("p!").map_or(inner, str::trim);
    let inner = inner.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(inner);
    let mut out = String::from("p![");
    let mut chars = inner.char_indices().peekable();
    while let Some((i, c)) = chars.next() {
        if !(c.is_alphanumeric() || c == '_') {
            if c == '"' {
                // copy a name in quotes unchanged
                let end = inner[i + 1..].find('"').map_or(inner.len(), |n| i + n + 2);
                out += &inner[i..end];
                while chars.peek().is_some_and(|(k, _)| *k < end) {
                    chars.next();
                }
            } else {
                out.push(c);
            }
            continue;
        }
        let mut end = i + c.len_utf8();
        while let Some((k, c)) = chars.next_if(|(_, c)| c.is_alphanumeric() || *c == '_') {
            end = k + c.len_utf8();
        }
        let word = &inner[i..end];
        let label = matches!(word, "U" | "R") && inner[end..].trim_start().starts_with(':');
        if label || word == "_" { out += word } else { out += &format!("\"{word}\"") }
    }
    out.push(']');
    // the first line is the error; an example of a spec follows as the help
    out.parse::<Spec>()
        .map_err(|e| e.diagnostics().first().map_or_else(String::new, |d| d.fault.message.clone()))
}
