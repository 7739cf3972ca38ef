//! Figures in the book's prose come from programs: each occurs in a program, or in an output, that
//! its page shows.

use super::at;
use std::collections::BTreeSet;
use std::path::Path;

/// Pages that programs write, and figures that no program of their page computes, with the reason.
const GENERATED: [&str; 2] = ["all_shardings.md", "primitives.md"];
const EXCEPTIONS: [(&str, &str, &str); 35] = [
    ("SUMMARY.md", "65536", "the title of a page"),
    ("auto.md", "11264", "asserted in tests/bytes_moved"),
    ("auto.md", "4940", "a ratio of two data sheets"),
    ("beyond.md", "2026", "a date"),
    ("devices.md", "1.9", "a measured time"),
    ("devices.md", "1.4", "a measured time"),
    ("devices.md", "2048", "the size of a measurement"),
    ("first.md", "1.95", "the version of Rust"),
    ("follow.md", "65536", "the example of the planning page"),
    ("gpu.md", "139.1", "a measured time"),
    ("gpu.md", "134.0", "a measured time"),
    ("gpu.md", "41.8", "a measured time"),
    ("gpu.md", "39.3", "a measured time"),
    ("gpu.md", "25.6", "a measured time"),
    ("gpu.md", "20.1", "a measured time"),
    ("gpu.md", "1024", "the size of a measurement"),
    ("gpu.md", "1240", "a number of programs"),
    ("install.md", "1.95", "the version of Rust"),
    ("lines.md", "1001", "a size that the text varies"),
    ("lines.md", "1008", "a size that the text varies"),
    ("mixed.md", "3584", "the reader's expectation"),
    ("mixed.md", "2688", "the sum of two rows of the report"),
    ("optimizers.md", "4096", "the size in a question"),
    ("planning.md", "1536", "a published figure: tests/reports/facts.rs"),
    ("planning.md", "19780", "printed on the page on costs"),
    ("playground.md", "65536", "a limit of the playground"),
    ("random.md", "80000", "a number of samples in a question"),
    ("same_bits.md", "1.2", "the smallest normal float32"),
    ("same_bits.md", "2.2", "the smallest normal float64"),
    ("sources.md", "1024", "quoted from a source"),
    ("typed.md", "1000", "a size that the text varies"),
    ("typed_compared.md", "0.1", "a version of another library"),
    ("typed_compared.md", "1.95", "a version of Rust"),
    ("typed_compared.md", "3.11", "a version of another library"),
    ("whole.md", "0.001", "a tolerance in words"),
];

/// Replaces includes by the parts of files that they name.
fn with_includes(page: &str, folder: &Path) -> String {
    let page = page.replace("{{#rustdoc_include ", "{{#include ");
    let mut parts = page.split("{{#include ");
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (include, rest) = part.split_once("}}").unwrap_or((part, ""));
        let (path, anchor) = include.split_once(':').map_or((include, None), |(p, a)| (p, Some(a)));
        let file = std::fs::read_to_string(folder.join(path)).expect("an included file can be read");
        let shown = |line: &&str| anchor.is_none_or(|a| !line.trim_end().ends_with(&format!("ANCHOR: {a}")));
        let lines = file.lines().skip_while(shown);
        let ends = |line: &&str| anchor.is_none_or(|a| !line.trim_end().ends_with(&format!("_END: {a}")));
        text.extend(lines.take_while(ends).flat_map(|line| [line, "\n"]));
        if anchor.is_none() {
            text += &file;
        }
        text += rest;
    }
    text
}

/// Returns the numbers of a text, without separators of thousands.
fn numbers(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let digit = |i: usize| chars.get(i).is_some_and(char::is_ascii_digit);
    let (mut found, mut i) = (Vec::new(), 0);
    while i < chars.len() {
        let inside_word = i > 0 && (chars[i - 1].is_alphanumeric() || "._".contains(chars[i - 1]));
        if !digit(i) || inside_word {
            i += 1;
            continue;
        }
        let mut number = String::new();
        while digit(i) || (",._".contains(*chars.get(i).unwrap_or(&' ')) && digit(i + 1)) {
            if !",_".contains(chars[i]) {
                number.push(chars[i]);
            }
            i += 1;
        }
        found.push(number);
    }
    found
}

/// Returns false for small integers, which count things that the page shows, and for versions.
fn is_figure(number: &str) -> bool {
    let dots = number.matches('.').count();
    dots == 1 || (dots == 0 && number.len() > 3)
}

/// Returns the text outside of code, and the code.
fn prose_and_code(text: &str) -> (String, String) {
    let (mut prose, mut code) = (String::new(), String::new());
    for (i, block) in text.split("```").enumerate() {
        if i % 2 == 1 {
            code += block;
            continue;
        }
        for (i, part) in block.split('`').enumerate() {
            if i % 2 == 0 { prose += part } else { code += &format!(" {part} ") }
        }
    }
    (prose, code)
}

#[test]
fn figures_in_prose_come_from_programs() {
    let folder = at("book/src");
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for entry in std::fs::read_dir(&folder).expect("the book has pages") {
        let path = entry.expect("a page").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".md") || GENERATED.contains(&name.as_str()) {
            continue;
        }
        let page = std::fs::read_to_string(&path).expect("a page can be read");
        let (prose, code) = prose_and_code(&with_includes(&page, &folder));
        // addresses are not prose
        let prose: String =
            prose.split("](").map(|part| part.split_once(')').map_or(part, |p| p.1)).collect();
        let computed: BTreeSet<String> = numbers(&code).into_iter().collect();
        for number in numbers(&prose).into_iter().filter(|n| is_figure(n)) {
            let exception = EXCEPTIONS.iter().find(|(page, n, _)| *page == name && *n == number);
            match exception {
                Some(exception) => drop(used.insert(exception)),
                None if computed.contains(&number) => {}
                None => wrong.push(format!("{name}: {number}")),
            }
        }
    }
    assert!(wrong.is_empty(), "no program shown on the page computes: {wrong:#?}");
    let unused: Vec<_> = EXCEPTIONS.iter().filter(|exception| !used.contains(exception)).collect();
    assert!(unused.is_empty(), "exceptions that do not occur: {unused:?}");
}

#[test]
fn numbers_are_read_with_separators() {
    assert_eq!(numbers("2,198 rows, 0.5 ms; v1.2, X4 and 65_536."), ["2198", "0.5", "65536"]);
    let (prose, code) = prose_and_code("a `b`\n```text\nc\n```\nd");
    assert!(prose.contains('a') && prose.contains('d') && code.contains('b') && code.contains('c'));
}
