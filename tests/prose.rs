//! Checks the language of documentation, comments and messages in the library's code, as CONTRIBUTING.md
//! describes it under "Writing": words that are avoided, the width of documentation, and first lines; and
//! that every item of the crate's root and of its prelude has an example.

mod lexer;

use lexer::{SourceFile, Token, TokenKind, attribute_end, item_end, library_sources};
use std::collections::BTreeSet;

const FOLDERS: [&str; 3] = ["src", "typed/src", "typed/macros/src"];

/// Words and phrases with a plainer alternative, in lower case.
const AVOIDED: &str = "told, lay, lays, laid, lies, behind, beside, so many, nobody, whoever, of its own, \
                       mend, mends, mended, mending, what is";

/// Uses that stay: the end of the file's path, a part of the line, and the reason. At most 20.
const ALLOWED: &[(&str, &str, &str)] = &[];

const MAX_ALLOWED: usize = 20;
const MAX_DOC_COLUMNS: usize = 100;
const MAX_REPORTED: usize = 100;

/// How the first line of an item's documentation does not begin. `Whether` is right for a `bool`.
const BAD_STARTS: [&str; 7] = ["the same", "what", "of", "as", "it", "those", "whether"];

struct Finding {
    line: usize,
    text: String,
}

#[test]
fn prose_follows_the_style_sheet() {
    assert!(ALLOWED.len() <= MAX_ALLOWED, "{} uses are allowed; the limit is {MAX_ALLOWED}", ALLOWED.len());
    let (mut report, mut used) = (Vec::new(), vec![false; ALLOWED.len()]);
    for file in library_sources(&FOLDERS) {
        let mut findings = avoided_words(&file);
        findings.extend(wide_docs(&file));
        findings.extend(first_lines(&file));
        findings.sort_by_key(|f| f.line);
        for finding in findings {
            let line = &file.lines[finding.line - 1];
            let allowed =
                ALLOWED.iter().position(|(path, part, _)| file.path.ends_with(path) && line.contains(part));
            match allowed {
                Some(i) => used[i] = true,
                None => report.push(format!("{}:{}: {}", file.path, finding.line, finding.text)),
            }
        }
    }
    for ((path, part, _), _) in ALLOWED.iter().zip(used).filter(|(_, used)| !used) {
        report.push(format!("{path}: the allowed use {part:?} does not occur"));
    }
    let count = report.len();
    report.truncate(MAX_REPORTED);
    assert!(count == 0, "{count} findings, of which {} are listed:\n{}", report.len(), report.join("\n"));
}

/// Finds the avoided words in comments and in messages. Code in backticks or fences does not count.
fn avoided_words(file: &SourceFile) -> Vec<Finding> {
    let finding = |(line, phrase): (usize, &str)| {
        let text = file.lines[line - 1].trim();
        Finding { line, text: format!("`{phrase}`: {text}") }
    };
    prose(file).iter().flat_map(|group| avoided_in(group)).map(finding).collect()
}

/// Returns the avoided words in lines of text, each with the number of its line.
fn avoided_in(group: &[(usize, String)]) -> Vec<(usize, &'static str)> {
    let words = words(group);
    let starts_at = |i: usize, phrase: &&str| {
        let parts = phrase.split(' ').collect::<Vec<_>>();
        let follows = words[i..].iter().skip(1).take(parts.len() - 1).all(|w| w.follows_space);
        follows && parts.iter().eq(words[i..].iter().take(parts.len()).map(|w| &w.text))
    };
    let phrase_at = |i: usize| AVOIDED.split(", ").find(|phrase| starts_at(i, phrase));
    (0..words.len()).filter_map(|i| Some((words[i].line, phrase_at(i)?))).collect()
}

/// The prose of a file: each run of comments on consecutive lines, and each message, as lines with their numbers.
fn prose(file: &SourceFile) -> Vec<Vec<(usize, String)>> {
    let mut groups: Vec<Vec<(usize, String)>> = Vec::new();
    let mut previous_end = None;
    for token in &file.tokens {
        let lines = token.text.lines().enumerate().map(|(i, text)| (token.line + i, text.to_string()));
        if token.is_comment() {
            match groups.last_mut() {
                Some(group) if previous_end.is_some_and(|end| token.line == end + 1) => group.extend(lines),
                _ => groups.push(lines.collect()),
            }
            previous_end = groups.last().and_then(|group| group.last()).map(|(line, _)| *line);
        } else {
            previous_end = None;
            // a string without a space is a name
            if token.kind == TokenKind::Str && token.text.contains(' ') {
                let text = message_text(&token.text);
                groups.push(text.lines().enumerate().map(|(i, t)| (token.line + i, t.into())).collect());
            }
        }
    }
    groups
}

/// The words of a string literal's text: escapes become spaces, and `{placeholders}` dots.
fn message_text(literal: &str) -> String {
    let is_raw = literal.trim_start_matches(['b', 'c']).starts_with('r');
    let (mut text, mut chars) = (String::new(), literal.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\\' if !is_raw => text.push(if chars.next() == Some('\n') { '\n' } else { ' ' }),
            '{' if chars.next_if_eq(&'{').is_none() => {
                text.push('.');
                text.extend(chars.by_ref().take_while(|c| *c != '}').filter(|c| *c == '\n'));
            }
            _ => text.push(c),
        }
    }
    text
}

struct ProseWord {
    text: String,
    line: usize,
    /// True if only white space separates this word from the one before it.
    follows_space: bool,
}

/// Splits prose into words in lower case, without code in backticks or fences.
fn words(group: &[(usize, String)]) -> Vec<ProseWord> {
    let (mut words, mut in_fence, mut in_code, mut separated) = (Vec::<ProseWord>::new(), false, false, true);
    for (line, text) in group {
        let text = comment_text(text);
        if text.trim_start().starts_with("```") {
            (in_fence, in_code, separated) = (!in_fence, false, true);
            continue;
        }
        if in_fence {
            continue;
        }
        let mut is_continued = false;
        for c in text.chars() {
            in_code ^= c == '`';
            if in_code || !(c.is_alphanumeric() || c == '_' || c == '\'' && is_continued) {
                separated |= !c.is_whitespace();
                is_continued = false;
            } else if is_continued {
                words.last_mut().unwrap().text.extend(c.to_lowercase());
            } else {
                let text = c.to_lowercase().collect();
                words.push(ProseWord { text, line: *line, follows_space: !separated });
                (is_continued, separated) = (true, false);
            }
        }
    }
    words
}

/// The text of a comment's line, without the comment's marks.
fn comment_text(line: &str) -> &str {
    let line = line.trim_start();
    let marks = ["///", "//!", "//", "/**", "/*!", "/*", "*/", "* "];
    marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line)
}

/// Finds documentation that is too wide. Addresses, rows of tables and code in fences are exempt.
fn wide_docs(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut in_fence, mut previous) = (false, 0);
    for token in file.tokens.iter().filter(|t| t.kind == TokenKind::Doc) {
        for (i, text) in token.text.lines().enumerate() {
            let line = token.line + i;
            let (text, columns) = (comment_text(text).trim_start(), file.lines[line - 1].chars().count());
            in_fence &= line <= previous + 1;
            let is_exempt = in_fence || text.starts_with('|') || text.contains("://");
            if columns > MAX_DOC_COLUMNS && !is_exempt {
                findings.push(Finding { line, text: format!("{columns} columns of documentation") });
            }
            in_fence ^= text.starts_with("```");
            previous = line;
        }
    }
    findings
}

/// Finds public items, and headers of modules, whose first line of documentation does not say what they are.
fn first_lines(file: &SourceFile) -> Vec<Finding> {
    let (tokens, mut findings) = (&file.tokens, Vec::new());
    let (mut public_trait_end, mut i) = (0, 0);
    while i < tokens.len() {
        let token = &tokens[i];
        if token.is("trait") && i > 0 && tokens[i - 1].is("pub") {
            public_trait_end = item_end(tokens, i);
        }
        if token.kind != TokenKind::Doc {
            i += 1;
            continue;
        }
        let is_header = is_inner_doc(token);
        let item_start = item_start(tokens, i);
        let attributes = &tokens[i..item_start];
        let (item, in_public_trait) = (&tokens[item_start..], i < public_trait_end);
        let is_public = match item {
            [first, second, ..] if first.is("pub") => !second.is("("),
            [first, ..] if first.is("macro_rules") => attributes.iter().any(|t| t.is("macro_export")),
            _ => in_public_trait,
        };
        let text =
            token.text.lines().map(comment_text).find(|t| !t.trim().is_empty()).unwrap_or("").trim_start();
        let start = words(&[(token.line, text.to_string())]);
        let begins =
            |bad: &&&str| bad.split(' ').eq(start.iter().take(bad.split(' ').count()).map(|w| &w.text));
        if let Some(bad) = BAD_STARTS.iter().find(begins).filter(|_| !text.starts_with('`'))
            && (is_header || is_public)
            && !(*bad == "whether" && is_bool(item))
        {
            findings.push(Finding { line: token.line, text: format!("begins with `{bad}`: {text}") });
        }
        i = item_start;
    }
    findings
}

fn is_inner_doc(token: &Token) -> bool {
    token.kind == TokenKind::Doc && token.text[2..].starts_with('!')
}

/// The index after the documentation and the attributes that start at `start`, of a module or of an item.
fn item_start(tokens: &[Token], start: usize) -> usize {
    let is_header = is_inner_doc(&tokens[start]);
    let mut i = start;
    loop {
        let end = attribute_end(tokens, i);
        let is_comment = tokens.get(i).is_some_and(|t| t.is_comment() && is_inner_doc(t) == is_header);
        if end == i && !is_comment {
            return i;
        }
        i = end.max(i + 1);
    }
}

/// Returns true for fields and constants of type `bool`, and for functions whose result is or has one.
fn is_bool(item: &[Token]) -> bool {
    let is_end = |t: &Token| ["{", "}", ";", "=", ","].iter().any(|end| t.is(end));
    let mut depth = 0;
    let mut end = 0;
    while end < item.len() && (depth > 0 || !is_end(&item[end])) {
        depth += i32::from(item[end].is("(")) - i32::from(item[end].is(")"));
        end += 1;
    }
    let signature = &item[..end];
    let is_function = signature.iter().any(|t| t.is("fn"));
    let result = signature
        .windows(2)
        .rposition(|w| if is_function { w[0].is("-") && w[1].is(">") } else { w[0].is(":") });
    result.is_some_and(|start| signature[start..].iter().any(|t| t.is("bool")))
}

#[test]
fn each_fault_is_found() {
    let wide = "x".repeat(MAX_DOC_COLUMNS);
    let source = format!(
        r#"//! It is a header.

/// The same, {wide}
/// | {wide} |
pub struct Part {{
    // this is of its
    // own, `beside` the rest; so, many
    pub(crate) field: bool,
    /// Whether it is open.
    pub open: bool,
    /// Whether it is closed.
    pub closed: Vec<u8>,
}}
/// What is not public.
#[cfg(test)]
mod tests {{
    // nobody
}}
pub trait Rule {{
    /// Reads it.
    #[doc(hidden)]
    /// Those of a rule.
    fn rule() {{ panic!("behind {{told}}", "told", 'x', r"lies \here"); }}
    /// Of a rule.
    fn second(a: [u8; 2]) -> bool;
}}
"#
    );
    let file = SourceFile::new("src/lib.rs".into(), &source);
    let list = |findings: Vec<Finding>| {
        let entry = |f: &Finding| format!("{} {}", f.line, f.text.split('`').nth(1).unwrap_or_default());
        findings.iter().map(entry).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(list(avoided_words(&file)), "6 of its own, 23 behind, 23 lies");
    assert_eq!(list(wide_docs(&file)), "3 ");
    assert_eq!(list(first_lines(&file)), "1 it, 3 the same, 11 whether, 24 of");
}

/// The names that `src/lib.rs` re-exports at the root and in the prelude, each with the path it is from.
/// Variants and other crates are left out, and what the documentation hides.
fn reexports(lib: &str) -> Vec<(String, String)> {
    let code: Vec<&str> = lib.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
    let code = code.join(" ");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("pub use ") {
        let hidden = code[..at].trim_end().ends_with("#[doc(hidden)]");
        let statement = code[at + "pub use ".len()..].split(';').next().unwrap_or_default();
        let (path, list) = match statement.split_once('{') {
            Some((path, list)) => (path.trim_end_matches("::"), list.trim_end_matches('}')),
            None => statement.rsplit_once("::").unwrap_or(("", statement)),
        };
        let is_variant = path.ends_with("DType") || path.ends_with("EngineKind");
        let folder = path.trim_start_matches("self::").trim_start_matches("crate::").replace("::", "/");
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names = names.filter(|name| !hidden && !is_variant && !path.is_empty() && *name != "self");
        found.extend(names.map(|name| (folder.trim_start_matches("crate").to_string(), name.to_string())));
    }
    found.retain(|(folder, _)| !folder.starts_with("num_complex"));
    found
}

/// Returns the names of items, macros and modules whose documentation has an example.
fn names_with_examples(files: &[SourceFile]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let header = file.lines.iter().take_while(|line| line.starts_with("//!"));
        if header.into_iter().any(|line| line.contains("```")) {
            let module = file.path.trim_end_matches(".rs").trim_end_matches("/mod");
            found.extend(module.rsplit('/').next().map(String::from));
        }
        let plain: Vec<&Token> = file.tokens.iter().filter(|token| !token.is_comment()).collect();
        let declares = ["fn", "struct", "enum", "trait", "type", "!"];
        for pair in plain.windows(2).filter(|pair| declares.iter().any(|kind| pair[0].is(kind))) {
            let above = file.lines[..pair[0].line - 1].iter().rev().map(|line| line.trim());
            let is_part = |line: &&str| !line.is_empty() && *line != "}" && !line.ends_with(';');
            let mut docs = above.take_while(is_part).filter(|line| line.starts_with("///"));
            if docs.any(|line| line.contains("```")) {
                found.insert(pair[1].text.clone());
            }
        }
    }
    found
}

#[test]
fn items_of_the_root_and_the_prelude_have_examples() {
    let files = library_sources(&["src", "derive/src"]);
    let lib = files.iter().find(|file| file.path == "src/lib.rs").expect("the crate has a root");
    let items = reexports(&lib.lines.join("\n"));
    assert!(items.len() > 200, "{} items", items.len());
    let with_examples = names_with_examples(&files);
    let missing: BTreeSet<&String> =
        items.iter().map(|(_, name)| name).filter(|name| !with_examples.contains(*name)).collect();
    assert!(missing.is_empty(), "add an example to the documentation of {missing:?}");
}

/// The text of notebooks follows the style sheet. Each has objectives, exercises and a summary, and its
/// outputs are those of one run from the first cell to the last one, without an error.
#[test]
fn notebooks_are_complete() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("notebooks");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("there is a folder of notebooks") {
        let path = entry.expect("the folder is readable").path();
        if path.extension().is_none_or(|extension| extension != "ipynb") {
            continue;
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(&path).expect("notebooks are readable");
        let notebook: serde_json::Value = serde_json::from_str(&text).expect("notebooks are JSON");
        let cells = notebook["cells"].as_array().expect("a notebook has cells");
        let (mut number, mut prose) = (0, String::new());
        for cell in cells {
            let lines = cell["source"].as_array().expect("the source of a cell is a list of lines");
            let source: String = lines.iter().filter_map(|line| line.as_str()).collect();
            if cell["cell_type"] == "markdown" {
                let lines = source.lines().enumerate().map(|(n, line)| (n + 1, line.to_string()));
                let avoided = avoided_in(&lines.collect::<Vec<_>>());
                assert!(avoided.is_empty(), "{name}: {avoided:?} in\n{source}");
                prose += &format!("{source}\n");
                continue;
            }
            number += 1;
            assert_eq!(cell["execution_count"], number, "{name}: run `scripts/notebooks --bless`");
            let outputs = cell["outputs"].as_array().expect("a cell has outputs");
            assert!(outputs.iter().all(|o| o["output_type"] != "error"), "{name}: {source}");
        }
        for part in
            ["# ", "After it you can\n\n* ", "## Exercises", "<summary>Answer</summary>", "## Summary"]
        {
            assert!(prose.contains(part), "{name} has no {part:?}");
        }
        assert!(number > 10, "{name} has {number} cells");
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["collectives.ipynb", "heat.ipynb", "sharded_computation.ipynb"]);
}
