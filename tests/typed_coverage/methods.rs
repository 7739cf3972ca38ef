//! Reads the public methods of a type from the sources.

use crate::lexer::{SourceFile, Token, TokenKind, library_sources};
use std::collections::BTreeSet;

/// Returns the public methods of `owner` in these folders, those that macros write included.
pub(crate) fn of(owner: &str, folders: &[&str]) -> BTreeSet<String> {
    library_sources(folders).iter().flat_map(|file| in_file(owner, file)).collect()
}

fn in_file(owner: &str, file: &SourceFile) -> Vec<String> {
    let tokens: Vec<&Token> = file.tokens.iter().filter(|t| !t.is_comment()).collect();
    let (mut found, mut macros) = (Vec::new(), Vec::new());
    let mut i = 0;
    while i < tokens.len() {
        if tokens[i].is("macro_rules") {
            let (start, end) = (i + 3, group_end(&tokens, i + 3));
            let names = written_by_macro(owner, &tokens[start..end]);
            if names > 0 {
                macros.push((tokens[i + 2].text.clone(), names));
            }
            i = end;
        } else if tokens[i].is("impl") {
            let body = (i..tokens.len()).find(|k| tokens[*k].is("{")).unwrap_or(tokens.len() - 1);
            let end = group_end(&tokens, body);
            if is_of(owner, &tokens[i..body]) {
                found.extend(
                    public(&tokens[body..end]).filter(|t| t.kind == TokenKind::Word).map(|t| t.text.clone()),
                );
            }
            i = end;
        } else if let Some((_, names)) = macros.iter().find(|m| tokens[i].is(&m.0) && tokens[i + 1].is("!")) {
            let end = group_end(&tokens, i + 2);
            found.extend(entries(&tokens[i + 3..end - 1], *names));
            i = end;
        } else {
            i += 1;
        }
    }
    found
}

/// Returns true for the head of an inherent `impl` of this type.
fn is_of(owner: &str, head: &[&Token]) -> bool {
    let before_bounds = head.iter().take_while(|t| !t.is("where"));
    let words: Vec<&str> = before_bounds.map(|t| t.text.as_str()).collect();
    if words.contains(&"for") {
        return false;
    }
    let generics = match words.get(1) {
        Some(&"<") => {
            let mut depth = 0;
            words.iter().position(|w| {
                depth += i32::from(*w == "<") - i32::from(*w == ">");
                *w == ">" && depth == 0
            })
        }
        _ => Some(0),
    };
    generics.is_some_and(|end| words.get(end + 1) == Some(&owner))
}

/// Returns the names after `pub fn`; in macros, the token after `$` is a name, and `$` itself is
/// returned for it.
fn public<'a>(tokens: &'a [&'a Token]) -> impl Iterator<Item = &'a Token> {
    tokens.windows(3).filter(|w| w[0].is("pub") && w[1].is("fn")).map(|w| w[2])
}

/// Returns the number of method names that an invocation of a macro gives for each entry; 0 if the
/// macro writes no methods of this type.
fn written_by_macro(owner: &str, body: &[&Token]) -> usize {
    let writes = (0..body.len()).any(|i| {
        let end = (i..body.len()).find(|k| body[*k].is("{")).unwrap_or(i);
        body[i].is("impl") && is_of(owner, &body[i..end])
    });
    if writes { public(body).filter(|t| t.is("$")).count() } else { 0 }
}

/// Returns the first `count` names of each entry of a macro invocation: entries end with `;`, or
/// are single names where the invocation has a list after `:`.
fn entries(tokens: &[&Token], count: usize) -> Vec<String> {
    let mut found = Vec::new();
    for entry in tokens.split(|t| t.is(";")) {
        let mut words = Vec::new();
        let mut skip = 0usize;
        for (i, t) in entry.iter().enumerate() {
            if t.is("#") && entry.get(i + 1).is_some_and(|n| n.is("[")) {
                skip = group_end(entry, i + 1);
            }
            if i >= skip && t.kind == TokenKind::Word {
                words.push(t.text.as_str());
            }
        }
        let is_list = entry.iter().position(|t| t.is(":")).is_some_and(|at| at == 1 && entry.len() > 2);
        let names = if is_list && words.len() > 2 && is_class(words[0]) {
            &words[1..]
        } else {
            &words[..words.len().min(count)]
        };
        found.extend(names.iter().filter(|w| !is_class(w)).map(|w| w.to_string()));
    }
    found
}
fn is_class(word: &str) -> bool {
    word.starts_with(char::is_uppercase)
}

/// Returns the index after the group that starts at `open`.
fn group_end(tokens: &[&Token], open: usize) -> usize {
    let mut depth = 0;
    for (i, t) in tokens.iter().enumerate().skip(open) {
        if t.is("{") || t.is("(") || t.is("[") {
            depth += 1;
        } else if t.is("}") || t.is(")") || t.is("]") {
            depth -= 1;
            if depth == 0 {
                return i + 1;
            }
        }
    }
    tokens.len()
}
