//! The programs of the book's pages, as the panels of `book/run.js` run them.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A program of a page: the lines that are shown, and the hidden ones around them.
struct Block {
    page: String,
    line: usize,
    info: String,
    before: String,
    shown: String,
    after: String,
    /// Whether the page has the hidden lines.
    hidden_in_page: bool,
    /// The file that it is a part of; none if it is written in the page.
    file: Option<PathBuf>,
    /// The output that the page shows below it.
    output: Option<String>,
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src")
}

/// Splits a file at an anchor: the text before, of and after it. An anchor that has several parts
/// is all of the text from the first to the last, as the panel shows it.
fn split(text: &str, anchor: &str) -> [String; 3] {
    let named = |line: &str, kind: &str| line.split_once(kind).map(|(_, name)| name.trim()) == Some(anchor);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|l| named(l, "ANCHOR:")).unwrap_or(lines.len());
    let last = lines.iter().rposition(|l| named(l, "ANCHOR_END:")).unwrap_or(lines.len());
    let joined = |part: &[&str]| {
        part.iter().filter(|l| !l.contains("ANCHOR")).map(|l| format!("{l}\n")).collect::<String>()
    };
    [joined(&lines[..first]), joined(&lines[first..last.max(first)]), joined(&lines[last.max(first)..])]
}

/// Returns the path and the anchor of a line `{{#include path:anchor}}`.
fn include(line: &str) -> Option<(&str, Option<&str>)> {
    let inner = line.trim().strip_prefix("{{#")?.strip_suffix("}}")?;
    let (_, target) = inner.split_once(' ')?;
    let target = target.trim();
    Some(target.split_once(':').map_or((target, None), |(path, anchor)| (path, Some(anchor.trim()))))
}

fn block(page: &str, line: usize, info: &str, lines: &[&str]) -> Block {
    let mut made = Block {
        page: page.into(),
        line,
        info: info.into(),
        before: String::new(),
        shown: String::new(),
        after: String::new(),
        hidden_in_page: true,
        file: None,
        output: None,
    };
    for text in lines {
        let Some((path, anchor)) = include(text) else {
            // lines of a doctest that start with `# ` are hidden
            match text.trim_start().strip_prefix('#').filter(|t| t.is_empty() || t.starts_with(' ')) {
                Some(hidden) if made.shown.is_empty() => made.before += &format!("{}\n", hidden.trim_start()),
                Some(hidden) => made.shown += &format!("{}\n", hidden.trim_start()),
                None => made.shown += &format!("{text}\n"),
            }
            continue;
        };
        let file = source().join(path);
        let whole = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{page}:{line}: {path}: {e}"));
        let [before, shown, after] = match anchor {
            Some(anchor) => split(&whole, anchor),
            None => [String::new(), split(&whole, "no such anchor").concat(), String::new()],
        };
        assert!(!shown.trim().is_empty(), "{page}:{line}: there is no part {anchor:?} of {path}");
        made.shown += &shown;
        made.file = Some(file);
        // `scripts/wholes` has what the page does not hide
        made.hidden_in_page = text.contains("rustdoc_include");
        // the lines around a part that the page completes are the page's own
        if lines.len() == 1 {
            (made.before, made.after) = (before, after);
        }
    }
    made
}

/// Returns the Rust blocks of a page, in order.
fn blocks_of(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(source().join(page)).expect("the page is there");
    let lines: Vec<&str> = text.lines().collect();
    let (mut list, mut at): (Vec<Block>, usize) = (Vec::new(), 0);
    while at < lines.len() {
        let Some(info) = lines[at].trim().strip_prefix("```").filter(|i| !i.is_empty()) else {
            at += 1;
            continue;
        };
        let end = (at + 1..lines.len()).find(|k| lines[*k].trim() == "```").unwrap_or(lines.len());
        if info.split(',').next() == Some("rust") {
            list.push(block(page, at + 1, info, &lines[at + 1..end]));
        } else if let (Some(last), [line]) = (list.last_mut(), &lines[at + 1..end])
            && let (Some((path, Some(anchor))), None) = (include(line), &last.output)
        {
            let golden = fs::read_to_string(source().join(path)).unwrap_or_default();
            last.output = Some(split(&golden, anchor)[1].clone());
        }
        at = end + 1;
    }
    list
}

/// Returns the pages of which `run.js` says that they have no panels.
fn pages_without_panels() -> &'static [String] {
    static PAGES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let script = fs::read_to_string(source().join("../run.js")).expect("the script is there");
        let (_, rest) = script.split_once("const WITHOUT_PANELS = [").expect("the script has the list");
        let (list, _) = rest.split_once(']').expect("the list ends");
        list.split(',').map(|name| name.trim().trim_matches('"').to_string()).collect()
    });
    &PAGES
}

fn pages() -> Vec<String> {
    let files = fs::read_dir(source()).expect("the book is there").filter_map(Result::ok);
    let mut names: Vec<String> = files.filter_map(|f| f.file_name().into_string().ok()).collect();
    names.retain(|n| n.ends_with(".md"));
    names.sort();
    names
}

impl Block {
    /// Returns true if `run.js` gives it a button.
    fn runs(&self) -> bool {
        let typed =
            ["T![", "S![", "P![", "N![", "dim!", "mesh!", "Typed", "typed::", "derive(Named", "spmd("];
        let judged_by_rustc = self.info.contains("compile_fail") || self.info.contains("no_run");
        let page = self.page.trim_end_matches(".md");
        let has_panels = !page.starts_with("train_") && !pages_without_panels().iter().any(|p| p == page);
        has_panels && !judged_by_rustc && !typed.iter().any(|t| self.shown.contains(t))
    }
    /// Returns true if `run.js` takes it as the key example of its page, if it is the first one.
    fn is_key(&self) -> bool {
        let native = [
            "spmd(",
            "custom_op(",
            "custom_vjp(",
            "custom_jvp(",
            "conv_with(",
            "max_pool(",
            "avg_pool(",
            "switch(",
            "while_loop_with(",
            "top_k(",
            "rfft(",
            "optim::accumulate",
            "optim::partition",
            "optim::minimize",
            "_with(rate",
            "_schedule",
            "Schedule::",
            "bincount(",
            "flatnonzero(",
            "categorical(",
            "permutation(",
            "from_shards(",
            "jvp(",
            "hessian(",
            "jacrev(",
            "dot_product_attention",
            "ConvOptions",
            "WhileOptions",
            "Machine::",
            "to_stablehlo",
            "temp_dir",
            "include_str!",
            "concat!",
            "ArrayView",
            "ndarray",
            "unsafe",
        ];
        // the page does not have what is hidden, if the part is included without it
        let before = if self.hidden_in_page { self.before.as_str() } else { "" };
        self.runs() && !native.iter().any(|n| self.shown.contains(n) || before.contains(n))
    }
    fn hides(&self) -> bool {
        !self.before.trim().is_empty() || !self.after.trim().is_empty()
    }
    fn run(&self, earlier: &[Block]) -> Value {
        let context: Vec<&str> =
            earlier.iter().filter(|b| !b.hides() && b.runs()).map(|b| b.shown.as_str()).collect();
        let question =
            json!({ "before": self.before, "source": self.shown, "after": self.after, "context": context });
        serde_json::from_str(&crate::answer(&question.to_string())).expect("an answer is JSON")
    }
    fn place(&self) -> String {
        format!("book/src/{}:{}", self.page, self.line)
    }
}

/// Returns the words of an output, without the locations, carets and source lines of errors.
fn words(output: &str) -> String {
    let lines = output.lines().filter(|l| {
        let source = l.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        !source.starts_with('|')
    });
    let location = |w: &&str| !(w.contains(".rs:") || w.contains("main.rs") || *w == "hidden");
    lines
        .map(|l| l.split_whitespace().filter(location).collect::<Vec<_>>().join(" ") + "\n")
        .collect::<String>()
        .replace("\n\n", "\n")
}

/// The key example of each page runs, and those whose output the page shows print it: those of each
/// third page, in a soak all of them.
#[test]
fn the_key_example_of_each_page_runs() {
    let (mut count, mut equal) = (0, 0);
    let step = if std::env::var_os("ATMESH_SOAK").is_some() { 1 } else { 3 };
    for page in pages().iter().step_by(step) {
        let all = blocks_of(page);
        let marked = all.iter().position(|b| b.runs() && b.info.split(',').any(|i| i == "key"));
        let Some(k) = marked.or_else(|| all.iter().position(Block::is_key)) else { continue };
        let answer = all[k].run(&all[..k]);
        let error = answer["error"]["text"].as_str().unwrap_or_default();
        assert!(error.is_empty(), "{}: {error}", all[k].place());
        count += 1;
        if let Some(output) = &all[k].output {
            let same = words(output).trim() == words(answer["printed"].as_str().unwrap_or_default()).trim();
            equal += usize::from(same);
        }
    }
    assert!(count * step >= 50, "only {count} pages have a key example");
    assert!(equal * step >= 30, "only {equal} key examples print what their pages show");
}

/// Blocks run, or are refused with what to write: every fortieth one, in a soak all of them.
#[test]
fn blocks_run_or_say_what_to_write() {
    let soak = std::env::var_os("ATMESH_SOAK").is_some();
    let (mut number, mut run, mut accepted) = (0, 0, 0);
    for page in pages() {
        let all = blocks_of(&page);
        for (k, block) in all.iter().enumerate().filter(|(_, b)| b.runs()) {
            number += 1;
            // this one takes long in a build without optimizations
            if !(soak || number % 40 == 0) || ["devices.md", "network.md"].contains(&page.as_str()) {
                continue;
            }
            run += 1;
            let answer = block.run(&all[..k]);
            let error = answer["error"]["text"].as_str().unwrap_or_default();
            assert!(!error.contains("internal"), "{}: {error}", block.place());
            let helps = answer["error"]["helps"].as_array().map_or(0, Vec::len);
            let refused = error.starts_with("error[refused]");
            assert!(!refused || helps > 0, "{} does not say what to write: {error}", block.place());
            accepted += usize::from(error.is_empty());
        }
    }
    println!("{accepted} of {run} blocks run");
    assert!(accepted * 100 >= run * 60, "{accepted} of {run} blocks run");
}

/// The pages with lines that no test compiles, and what the page says of them.
const NOT_COMPILED: [(&str, &str); 3] = [
    ("same_bits.md", "an excerpt: the step is that of the reader"),
    ("typed_compared.md", "programs of other libraries"),
    ("typed_rules.md", "the line that all programs of the page begin with"),
];

/// Each program of a page is part of one that a test compiles and runs, or the page says why not.
#[test]
fn no_program_is_shown_without_a_whole() {
    let library = fs::read_to_string(source().join("../../src/lib.rs")).expect("the library is there");
    for page in pages() {
        let is_doctest = library.contains(&format!("book/src/{page}"));
        for block in blocks_of(&page) {
            let compiled = match &block.file {
                Some(file) => {
                    let path = file.to_string_lossy().into_owned();
                    ["/examples/", "/tests/", "/benches/", "/fuzz/", "/playground/"]
                        .iter()
                        .any(|f| path.contains(f))
                }
                None => is_doctest && !block.info.contains("ignore"),
            };
            let excused = NOT_COMPILED.iter().any(|(p, _)| *p == page) && block.info.contains("ignore");
            assert!(compiled || excused, "{}: no test compiles this program", block.place());
        }
    }
}
