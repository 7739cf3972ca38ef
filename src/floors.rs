//! The floors of the house, as `lib.rs` states them: a folder uses those below it only. Read off the imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path from the root: `["partition", "lay", "choose"]`.
type Module = Vec<String>;

/// One use of a module by another.
struct Arrow {
    from: Module,
    /// The path as it is resolved: a module, or an item of one.
    to: Module,
    file: String,
    line: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Token {
    text: String,
    line: usize,
}

/// The words and signs of a source: no comments, no text within quotes.
fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut list, mut i, mut line) = (Vec::new(), 0, 1);
    while i < chars.len() {
        let start = i;
        let mut text = String::new();
        match at(i) {
            '/' if at(i + 1) == '/' => i += chars[i..].iter().take_while(|c| **c != '\n').count(),
            '/' if at(i + 1) == '*' => {
                i += 2;
                let mut depth = 1;
                while depth > 0 && i < chars.len() {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                }
            }
            'r' if at(i + 1) == '"' || at(i + 1) == '#' && (at(i + 2) == '"' || at(i + 2) == '#') => {
                let marks = chars[i + 1..].iter().take_while(|c| **c == '#').count();
                let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', marks)).collect();
                i += marks + 2;
                while i < chars.len() && !chars[i..].starts_with(&end) {
                    i += 1;
                }
                i += end.len();
            }
            '"' => {
                i += 1;
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
            }
            // a character; a lifetime has no second quote
            '\'' if at(i + 1) == '\\' => {
                i += 3 + chars[i + 3..].iter().take_while(|c| **c != '\'').count() + 1
            }
            '\'' if at(i + 2) == '\'' => i += 3,
            ':' if at(i + 1) == ':' => (text, i) = ("::".into(), i + 2),
            c if word(c) => {
                text = chars[i..].iter().take_while(|c| word(**c)).collect();
                i += text.chars().count();
            }
            c if c.is_whitespace() => i += 1,
            c => (text, i) = (c.into(), i + 1),
        }
        if !text.is_empty() {
            list.push(Token { text, line });
        }
        line += chars[start..i.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    list
}

/// Where the group that opens at `i` ends: behind its closing bracket.
fn group(list: &[Token], mut i: usize) -> usize {
    let mut depth = 0;
    loop {
        match list.get(i).map(|t| t.text.as_str()) {
            Some("(" | "[" | "{") => depth += 1,
            Some(")" | "]" | "}") => depth -= 1,
            Some(_) => {}
            None => return i,
        }
        i += 1;
        if depth == 0 {
            return i;
        }
    }
}

/// The source without what tests alone see; and the names of the modules of other files among that.
fn without_tests(list: Vec<Token>) -> (Vec<Token>, Vec<String>) {
    let text = |i: usize| list.get(i).map_or("", |t: &Token| t.text.as_str());
    let (mut kept, mut tests, mut i) = (Vec::new(), Vec::new(), 0);
    while i < list.len() {
        let end = if text(i) == "#" && text(i + 1) == "[" { group(&list, i + 1) } else { i };
        let words: Vec<&str> = list[i..end].iter().map(|t| t.text.as_str()).collect();
        if !(words.contains(&"cfg") && words.contains(&"test") && !words.join(" ").contains("not ( test")) {
            kept.push(list[i].clone());
            i += 1;
            continue;
        }
        // further attributes, then an item or a statement: to its semicolon, or to the end of its braces
        i = end;
        while text(i) == "#" {
            i = group(&list, i + 1);
        }
        let imports = (i..i + 5).take_while(|k| text(*k) != "{").any(|k| text(k) == "use");
        if let Some(k) = (i..i + 5).find(|k| text(*k) == "mod" && text(k + 2) == ";") {
            tests.push(text(k + 1).to_string());
        }
        while i < list.len() && text(i) != ";" {
            let braces = text(i) == "{";
            i = if matches!(text(i), "(" | "[" | "{") { group(&list, i) } else { i + 1 };
            if braces && !imports {
                break;
            }
        }
        i += usize::from(text(i) == ";");
    }
    (kept, tests)
}

/// The paths of a `use` tree that begins at `i`.
fn tree(list: &[Token], mut i: usize, before: &[String], found: &mut Vec<(Vec<String>, usize)>) -> usize {
    let mut path = before.to_vec();
    loop {
        match list.get(i).map(|t| t.text.as_str()) {
            Some("::") => i += 1,
            Some("{") => {
                i += 1;
                while list.get(i).is_some_and(|t| t.text != "}") {
                    i = tree(list, i, &path, found);
                    i += usize::from(list.get(i).is_some_and(|t| t.text == ","));
                }
                return i + 1;
            }
            Some("as") => i += 2,
            Some("," | "}" | ";") | None => {
                found.push((path, list.get(i.saturating_sub(1)).map_or(0, |t| t.line)));
                return i;
            }
            Some(word) => {
                path.push(word.to_string());
                i += 1;
            }
        }
    }
}

/// All modules of the crate but those of tests, with their sources.
fn modules(src: &Path) -> BTreeMap<Module, (PathBuf, Vec<Token>)> {
    let mut found = BTreeMap::new();
    let mut todo: Vec<(Module, PathBuf)> = vec![(Vec::new(), src.join("lib.rs"))];
    while let Some((module, file)) = todo.pop() {
        let source = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let (list, tests) = without_tests(tokens(&source));
        let folder = module.iter().fold(src.to_path_buf(), |p, m| p.join(m));
        for k in 0..list.len().saturating_sub(2) {
            if list[k].text != "mod" || list[k + 2].text != ";" || tests.contains(&list[k + 1].text) {
                continue;
            }
            let name = list[k + 1].text.clone();
            let (flat, deep) = (folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs"));
            let file = if deep.exists() { deep } else { flat };
            let module = module.iter().cloned().chain([name]).collect();
            todo.push((module, file));
        }
        found.insert(module, (file, list));
    }
    found
}

/// Every use of one module by another.
fn arrows(modules: &BTreeMap<Module, (PathBuf, Vec<Token>)>) -> Vec<Arrow> {
    let mut all = Vec::new();
    for (module, (file, list)) in modules {
        let mut paths: Vec<(Vec<String>, Module, usize)> = Vec::new();
        // modules written out in this file, and where each ends
        let mut inner: Vec<(String, usize)> = Vec::new();
        let mut i = 0;
        while i < list.len() {
            inner.retain(|m| m.1 > i);
            let here: Module = module.iter().chain(inner.iter().map(|m| &m.0)).cloned().collect();
            let text = |k: usize| list.get(k).map_or("", |t| t.text.as_str());
            if text(i) == "mod" && text(i + 2) == "{" {
                inner.push((text(i + 1).to_string(), group(list, i + 2)));
                i += 3;
            } else if text(i) == "use" && text(i + 1) != "<" {
                let mut found = Vec::new();
                i = tree(list, i + 1, &[], &mut found);
                paths.extend(found.into_iter().map(|(path, line)| (path, here.clone(), line)));
            } else if matches!(text(i), "crate" | "super")
                && text(i + 1) == "::"
                && (i == 0 || text(i - 1) != "$")
            {
                let mut path = vec![text(i).to_string()];
                let line = list[i].line;
                while text(i + 1) == "::" && text(i + 2).chars().all(|c| c.is_alphanumeric() || c == '_') {
                    path.push(text(i + 2).to_string());
                    i += 2;
                }
                i += 1;
                // macros are called by the crate's name, wherever they are written
                if text(i) != "!" {
                    paths.push((path, here, line));
                }
            } else {
                i += 1;
            }
        }
        for (path, mut to, line) in paths {
            let first = path[0].as_str();
            let child = || to.iter().chain([&path[0]]).cloned().collect::<Module>();
            let rest = match first {
                "crate" | "atmesh" => {
                    to.clear();
                    &path[1..]
                }
                "super" | "self" => {
                    let ups = path.iter().take_while(|p| *p == "super").count();
                    to.truncate(to.len().saturating_sub(ups));
                    &path[ups.max(1)..]
                }
                _ if modules.contains_key(&child()) => &path[..],
                _ => continue,
            };
            to.extend(rest.iter().filter(|p| *p != "self" && *p != "*").cloned());
            all.push(Arrow { from: module.clone(), to, file: file.display().to_string(), line });
        }
    }
    all
}

/// The first circle among these, if there is one.
fn circle(edges: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(
        at: &str,
        edges: &BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(k) = way.iter().position(|w| w == at) {
            return Some(way[k..].iter().map(String::as_str).chain([at]).map(String::from).collect());
        }
        if !done.insert(at.to_string()) {
            return None;
        }
        way.push(at.to_string());
        let found = edges.get(at).into_iter().flatten().find_map(|to| walk(to, edges, way, done));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    edges.keys().find_map(|at| walk(at, edges, &mut Vec::new(), &mut done))
}

/// The floors as the page of `lib.rs` lists them, from the top down: the folders in the first column of its table.
fn floors(lib: &str) -> Vec<String> {
    let table =
        lib.lines().skip_while(|l| !l.starts_with("//! # Folders")).filter(|l| l.starts_with("//! | `"));
    let named = |row: &str| -> Vec<String> {
        let first = row.trim_start_matches("//! |").split('|').next().unwrap_or("");
        first.split('`').skip(1).step_by(2).map(String::from).collect()
    };
    table.flat_map(named).collect()
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn a_folder_uses_those_below_it_only() {
    let modules = modules(&src());
    let floors = floors(&fs::read_to_string(src().join("lib.rs")).unwrap());
    let top: BTreeSet<&String> = modules.keys().filter(|m| m.len() == 1).map(|m| &m[0]).collect();
    assert_eq!(top, floors.iter().collect(), "lib.rs lists every folder once");
    let height = |m: &str| floors.iter().rev().position(|f| f == m);
    let mut wrong = Vec::new();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for a in arrows(&modules) {
        let (Some(from), Some(to)) = (a.from.first(), a.to.first()) else { continue };
        let Some(above) = height(to) else {
            wrong.push(format!("{}:{}: `{to}` of the root: import it from its owner", a.file, a.line));
            continue;
        };
        if from != to {
            edges.entry(from.clone()).or_default().insert(to.clone());
        }
        if height(from) < Some(above) {
            wrong.push(format!("{}:{}: {from} uses {to}, which is above it", a.file, a.line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(circle(&edges), None);
    assert!(edges.values().map(BTreeSet::len).sum::<usize>() > 100, "the imports were read: {edges:?}");
}

#[test]
fn no_circle_within_the_partitioner() {
    let modules = modules(&src());
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for a in arrows(&modules).iter().filter(|a| a.from.len() > 1 && a.from[0] == "partition") {
        let depth = (0..=a.to.len()).rev().find(|n| modules.contains_key(&a.to[..*n])).unwrap_or(0);
        let to = &a.to[..depth];
        if to.first().is_some_and(|t| t == "partition") && a.from != to {
            edges.entry(a.from.join("::")).or_default().insert(to.join("::"));
        }
    }
    assert_eq!(circle(&edges), None, "files import from one another");
    assert!(edges.len() > 20, "the imports were read: {edges:?}");
    // nor among its folders
    let folder = |m: &str| m.split("::").nth(1).unwrap_or("(root)").to_string();
    let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in edges.iter().flat_map(|(a, list)| list.iter().map(move |b| (folder(a), folder(b)))) {
        if from != to {
            folders.entry(from).or_default().insert(to);
        }
    }
    assert_eq!(circle(&folders), None, "folders import from one another");
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let source = r##"
        //! use crate::no;
        use crate::{a::{self, B as C}, super_x};
        #[cfg(test)]
        use crate::{hidden::X};
        const T: &str = "use crate::text;"; const C: char = '"'; const R: &str = r#"crate::raw"#;
        fn f<'a>(x: &'a str) -> super::y::Z { crate::w::v(); crate::p![] }
        #[cfg(all(test, not(shuttle)))]
        mod orders;
        #[cfg(not(test))]
        mod plain { use crate::seen; }
        #[cfg(test)]
        mod tests { use crate::hidden; }
        /* crate::also /* nested */ */
        mod inside { use super::super::far; }
    "##;
    let (list, tests) = without_tests(tokens(source));
    assert_eq!(tests, ["orders"]);
    let here = vec!["top".to_string(), "file".into()];
    let modules = [(here, (PathBuf::from("file.rs"), list))].into_iter().collect();
    let found: Vec<String> =
        arrows(&modules).iter().map(|a| format!("{} {}", a.line, a.to.join("::"))).collect();
    assert_eq!(found, ["3 a", "3 a::B", "3 super_x", "7 top::y::Z", "7 w::v", "11 seen", "15 top::far"]);
    let edges = |list: &[(&str, &str)]| {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        list.iter().for_each(|(a, b)| {
            edges.entry(a.to_string()).or_default().insert(b.to_string());
        });
        circle(&edges)
    };
    assert_eq!(edges(&[("a", "b"), ("a", "c"), ("b", "c")]), None);
    assert_eq!(edges(&[("a", "b"), ("b", "c"), ("c", "b")]), Some(["b", "c", "b"].map(String::from).into()));
}
