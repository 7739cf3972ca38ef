//! A small lexer for Rust sources, for the tests that read the library's own code.
#![allow(dead_code, reason = "each of these tests uses another part")]

use std::fs;
use std::path::{Path, PathBuf};

/// The kind of a [`Token`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TokenKind {
    /// `///`, `//!`, `/** */` and `/*! */`.
    Doc,
    /// All other comments.
    Comment,
    /// Plain, raw, byte and C string literals.
    Str,
    Char,
    /// Identifiers, keywords, numbers and lifetimes.
    Word,
    /// One character of punctuation.
    Punct,
}

/// A token with its text as written, and the line on which it starts (from 1).
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Token {
    /// Returns true if this is the given word or punctuation character.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, TokenKind::Word | TokenKind::Punct) && self.text == text
    }

    pub(crate) fn is_comment(&self) -> bool {
        matches!(self.kind, TokenKind::Doc | TokenKind::Comment)
    }
}

/// A source file of the library: its tokens without the code under `#[cfg(test)]`.
pub(crate) struct SourceFile {
    /// The path from the root of the repository, with `/`.
    pub(crate) path: String,
    pub(crate) lines: Vec<String>,
    pub(crate) tokens: Vec<Token>,
}

impl SourceFile {
    pub(crate) fn new(path: String, text: &str) -> Self {
        Self::with_test_modules(path, text).0
    }

    /// Also returns the modules without a body that `text` declares under `#[cfg(test)]`.
    fn with_test_modules(path: String, text: &str) -> (Self, Vec<String>) {
        let (tokens, test_modules) = without_tests(lex(text));
        (SourceFile { path, lines: text.lines().map(str::to_string).collect(), tokens }, test_modules)
    }
}

/// The folder of the repository: that of the manifest, as cargo sets it for a running test.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Reads all sources below `folders`, except modules that are declared under `#[cfg(test)]`.
pub(crate) fn library_sources(folders: &[&str]) -> Vec<SourceFile> {
    let (root, mut paths) = (root(), Vec::new());
    for folder in folders {
        list_sources(&root.join(folder), &mut paths);
    }
    paths.sort();
    let (mut files, mut test_paths) = (Vec::new(), Vec::new());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let relative = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let (file, test_modules) = SourceFile::with_test_modules(relative, &text);
        test_paths.extend(test_modules.iter().map(|module| module_path(&path, module)));
        files.push((path, file));
    }
    let is_test =
        |path: &Path| test_paths.iter().any(|t| path.starts_with(t) || path == t.with_extension("rs"));
    files.into_iter().filter(|(path, _)| !is_test(path)).map(|(_, file)| file).collect()
}

fn list_sources(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list_sources(&path, paths);
        } else if path.extension().is_some_and(|e| e == "rs") {
            paths.push(path);
        }
    }
}

/// The path of a module that `file` declares, without `.rs`. `module` is a name, or a path from `#[path]`.
fn module_path(file: &Path, module: &str) -> PathBuf {
    let folder = file.parent().unwrap();
    let is_folder_root = file.file_name().is_some_and(|n| n == "mod.rs" || n == "lib.rs");
    match module.strip_suffix(".rs") {
        Some(path) => folder.join(path.strip_suffix("/mod").unwrap_or(path)),
        None if is_folder_root => folder.join(module),
        None => file.with_extension("").join(module),
    }
}

/// Splits a source into tokens. White space is dropped.
pub(crate) fn lex(source: &str) -> Vec<Token> {
    let (mut tokens, mut start, mut line) = (Vec::new(), 0, 1);
    while let Some(first) = source[start..].chars().next() {
        let rest = &source[start..];
        let (kind, len) = if first.is_whitespace() {
            line += usize::from(first == '\n');
            start += first.len_utf8();
            continue;
        } else if rest.starts_with("//") || rest.starts_with("/*") {
            (comment_kind(rest), comment_len(rest))
        } else if let Some(len) = string_len(rest) {
            (TokenKind::Str, len)
        } else if let Some(len) = char_len(rest) {
            (TokenKind::Char, len)
        } else if is_word_char(first) || first == '\'' {
            let prefix = if rest.starts_with("r#") { 2 } else { first.len_utf8() };
            (TokenKind::Word, prefix + prefix_len(&rest[prefix..], is_word_char))
        } else {
            (TokenKind::Punct, first.len_utf8())
        };
        let text = rest[..len].to_string();
        start += len;
        let newlines = text.matches('\n').count();
        tokens.push(Token { kind, text, line });
        line += newlines;
    }
    tokens
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the longest prefix whose characters all satisfy `accept`, in bytes.
fn prefix_len(text: &str, accept: impl Fn(char) -> bool) -> usize {
    text.find(|c| !accept(c)).unwrap_or(text.len())
}

fn comment_kind(rest: &str) -> TokenKind {
    let is_line_doc = rest.starts_with("///") && !rest.starts_with("////");
    let is_block_doc = rest.starts_with("/**") && !rest.starts_with("/***") && !rest.starts_with("/**/");
    let is_inner_doc = rest.starts_with("//!") || rest.starts_with("/*!");
    if is_line_doc || is_block_doc || is_inner_doc { TokenKind::Doc } else { TokenKind::Comment }
}

fn comment_len(rest: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    let (mut len, mut depth) = (2, 1);
    while depth > 0 && len < rest.len() {
        if rest[len..].starts_with("/*") {
            (depth, len) = (depth + 1, len + 2);
        } else if rest[len..].starts_with("*/") {
            (depth, len) = (depth - 1, len + 2);
        } else {
            len += rest[len..].chars().next().map_or(1, char::len_utf8);
        }
    }
    len
}

/// The length of the string literal at the start of `rest`, if there is one.
fn string_len(rest: &str) -> Option<usize> {
    if !rest.starts_with(['"', 'b', 'c', 'r']) {
        return None;
    }
    let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|p| {
        let hashes = if p.ends_with('r') { "#" } else { "" };
        rest.strip_prefix(p).is_some_and(|r| r.trim_start_matches(|c| hashes.contains(c)).starts_with('"'))
    })?;
    let hashes = prefix_len(&rest[prefix.len()..], |c| c == '#');
    let content = prefix.len() + hashes + 1;
    if prefix.ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(rest[content..].find(&end).map_or(rest.len(), |i| content + i + end.len()));
    }
    Some(escaped_len(rest, content, '"'))
}

/// The length of the character literal at the start of `rest`, if there is one: a lifetime is not.
fn char_len(rest: &str) -> Option<usize> {
    let quote = usize::from(rest.starts_with('b'));
    let mut content = rest[quote..].strip_prefix('\'')?.chars();
    let is_char = content.next()? == '\\' || content.next() == Some('\'');
    is_char.then(|| escaped_len(rest, quote + 1, '\''))
}

/// The length up to the first `end` from `start` that no backslash escapes, with it.
fn escaped_len(rest: &str, start: usize, end: char) -> usize {
    let mut chars = rest[start..].char_indices();
    while let Some((i, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == end {
            return start + i + 1;
        }
    }
    rest.len()
}

/// Removes the items under `#[cfg(test)]` with their documentation. Also returns the modules without a body
/// among them.
fn without_tests(tokens: Vec<Token>) -> (Vec<Token>, Vec<String>) {
    let (mut is_kept, mut modules, mut i) = (vec![true; tokens.len()], Vec::new(), 0);
    while i < tokens.len() {
        let end = attribute_end(&tokens, i);
        if end == i || !is_test_cfg(&tokens[i..end]) {
            i += 1;
            continue;
        }
        if tokens[i + 1].is("!") {
            return (Vec::new(), modules);
        }
        let docs = tokens[..i].iter().rev().take_while(|t| t.text.starts_with("///")).count();
        let start = i - docs;
        i = item_end(&tokens, end);
        is_kept[start..i].fill(false);
        let item = &tokens[end..i];
        if item.last().is_some_and(|t| t.is(";")) && item.iter().any(|t| t.is("mod")) {
            let path = item.iter().find(|t| t.kind == TokenKind::Str).map(|t| t.text.trim_matches('"'));
            modules.push(path.unwrap_or(&item[item.len() - 2].text).to_string());
        }
    }
    let kept = tokens.into_iter().zip(is_kept).filter_map(|(token, kept)| kept.then_some(token));
    (kept.collect(), modules)
}

/// The index after the attribute that starts at `start`; `start` if none starts there.
pub(crate) fn attribute_end(tokens: &[Token], start: usize) -> usize {
    let is = |i: usize, text: &str| tokens.get(i).is_some_and(|t| t.is(text));
    let bracket = start + 1 + usize::from(is(start + 1, "!"));
    if !is(start, "#") || !is(bracket, "[") {
        return start;
    }
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(bracket) {
        depth += usize::from(token.is("["));
        depth -= usize::from(token.is("]"));
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// Returns true for `cfg(test)` and `cfg(all(test, ..))`.
fn is_test_cfg(attribute: &[Token]) -> bool {
    let text: String = attribute.iter().map(|t| t.text.as_str()).collect();
    let text = text.trim_start_matches(['#', '!', '[']);
    text == "cfg(test)]" || text.starts_with("cfg(all(test,")
}

/// The index after the item, field or statement that starts at `start`, which may have more attributes.
pub(crate) fn item_end(tokens: &[Token], mut start: usize) -> usize {
    loop {
        let end = attribute_end(tokens, start);
        if end == start && !tokens.get(start).is_some_and(Token::is_comment) {
            break;
        }
        start = end.max(start + 1);
    }
    let keywords =
        ["fn", "mod", "struct", "enum", "impl", "trait", "type", "use", "const", "static", "extern"];
    // after `pub(in path) unsafe` or the like, a keyword is among the first tokens; in a field it is not
    let is_item = tokens.iter().skip(start).take(6).any(|t| keywords.iter().any(|k| t.is(k)));
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(start) {
        if ["(", "[", "{"].iter().any(|b| token.is(b)) {
            depth += 1;
        } else if [")", "]", "}"].iter().any(|b| token.is(b)) {
            if depth == 0 {
                return i;
            }
            depth -= 1;
            if depth == 0 && token.is("}") {
                return i + 1;
            }
        } else if depth == 0 && (token.is(";") || token.is(",") && !is_item) {
            return i + 1;
        }
    }
    tokens.len()
}
