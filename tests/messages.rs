//! The messages of rustc for misuse of our traits: no file in `tests/ui` compiles, and the messages
//! contain the texts after its `//~`. A line `//~ fix: ..` stands for the line before it: the file
//! with that line compiles. Every file in `tests/ui_ok` compiles as it is.
//!
//! Only our own words are compared (`#[diagnostic::on_unimplemented]`, the derive's errors,
//! `#[must_use]`), one piece per line. How rustc formats messages, which other types it lists and
//! how it names ours differs between versions, so a comparison of complete outputs, as in
//! `trybuild`, would work for one version only. Nothing is downloaded, and the library is the one
//! that these tests are linked with.

#[path = "soak/mod.rs"]
mod soak;

use serde_json::Value;
use soak::runs_all;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the library that these tests are linked with: the newest one that is not newer than the
/// test binary.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = |path: &Path| path.metadata().unwrap().modified().unwrap();
    let linked = built(&tests);
    let files = std::fs::read_dir(tests.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let libraries = files.filter(|f| {
        let name = f.file_name().unwrap().to_string_lossy();
        name.starts_with("libatmesh-") && name.ends_with(".rlib") && built(f) <= linked
    });
    libraries.max_by_key(|f| built(f)).expect("the library is next to its tests")
}

/// Returns the programs of a folder in `tests`, without those of the typed layer if it is off.
fn programs(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.retain(|file| cfg!(feature = "typed") || !is_typed(file));
    files
}
fn name(file: &Path) -> String {
    file.file_name().unwrap().to_string_lossy().into_owned()
}
fn is_typed(file: &Path) -> bool {
    name(file).starts_with("typed_")
}

/// Returns rustc for a program that depends on `library` under the name `known_as`.
fn rustc(program: &Path, kind: &str, output: &Path, (known_as, library): (&str, &Path)) -> Command {
    let mut rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
    rustc
        .args(["--edition=2024", "--emit=metadata", "--color=never", "--diagnostic-width=1000"])
        .arg(format!("--crate-type={kind}"))
        .arg("-o")
        .arg(output)
        .arg("-L")
        .arg(format!("dependency={}", library.parent().unwrap().display()))
        .arg("--extern")
        .arg(format!("{known_as}={}", library.display()))
        .arg(program);
    rustc
}

/// What rustc says of a program.
#[derive(Default)]
struct Said {
    fails: bool,
    text: String,
}

/// rustc with the library, writing to scratch files of one test.
struct Compiler {
    library: PathBuf,
    scratch: PathBuf,
}
impl Compiler {
    fn new(test: &str) -> Self {
        let library = library();
        let scratch = library.with_file_name(format!("messages-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).unwrap();
        Compiler { library, scratch }
    }
    /// Stores a source text. Returns its path.
    fn program(&self, name: &str, source: &str) -> PathBuf {
        let path = self.scratch.join(name).with_extension("rs");
        std::fs::write(&path, source).unwrap();
        path
    }
    fn rustc(&self, program: &Path) -> Command {
        rustc(program, "bin", &self.scratch.join("output.rmeta"), ("atmesh", &self.library))
    }
    /// Compiles a program.
    fn alone(&self, program: &Path) -> Said {
        let out = self.rustc(program).output().unwrap();
        Said { fails: !out.status.success(), text: String::from_utf8(out.stderr).unwrap() }
    }
    /// Compiles programs as modules of one program, since rustc takes most of its time to start and to
    /// read the library. Returns whether it succeeds, and what rustc says of each program.
    fn together(&self, programs: &[PathBuf]) -> (bool, BTreeMap<PathBuf, Said>) {
        let modules: BTreeMap<&str, String> =
            programs.iter().enumerate().map(|(k, p)| (p.to_str().unwrap(), format!("module_{k}"))).collect();
        let source: String = modules.iter().map(|(p, m)| format!("#[path = {p:?}]\nmod {m};\n")).collect();
        let all = self.program("all", &(source + "fn main() {}\n"));
        let out = self.rustc(&all).arg("--error-format=json").output().unwrap();
        let mut said: BTreeMap<PathBuf, Said> = BTreeMap::new();
        for line in String::from_utf8(out.stderr).unwrap().lines() {
            let message: Value = serde_json::from_str(line).expect("each line is a message");
            let spans = message["spans"].as_array().expect("a message has spans");
            let files: BTreeSet<&str> = spans.iter().flat_map(files_of_span).collect();
            for (file, module) in files.iter().filter_map(|file| Some((file, modules.get(file)?))) {
                let said = said.entry(file.into()).or_default();
                said.fails |= message["level"] == "error";
                let text = message["rendered"].as_str().expect("it is printed");
                said.text += &text.replace(&format!("{module}::"), "");
            }
        }
        (out.status.success(), said)
    }
    /// Compiles programs, and calls `faults` with each and what rustc says. Programs that have faults
    /// together are compiled together again, because errors of one kind hide others of the whole program;
    /// then each is compiled alone, and these faults are returned. In a soak, all are compiled alone.
    fn faults(&self, programs: Vec<PathBuf>, faults: impl Fn(&Path, &Said) -> Vec<String>) -> Vec<String> {
        let mut left = programs;
        while !runs_all() && left.len() > 1 {
            let (_, mut said) = self.together(&left);
            let before = left.len();
            left.retain(|p| !faults(p, &said.remove(p).unwrap_or_default()).is_empty());
            if left.len() == before {
                break;
            }
        }
        left.iter().flat_map(|p| faults(p, &self.alone(p))).collect()
    }
}
impl Drop for Compiler {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// Returns the file of a span, and those of the macro calls that it is from.
fn files_of_span(span: &Value) -> Vec<&str> {
    let spans = std::iter::successors(Some(span), |&span: &&Value| span["expansion"].get("span"));
    spans.filter_map(|s| s["file_name"].as_str()).collect()
}

/// Returns the text on one line, without the characters that rustc draws.
fn plain(text: &str) -> String {
    text.split_whitespace().filter(|w| !matches!(*w, "|" | "=")).collect::<Vec<_>>().join(" ")
}

const FIX: &str = "//~ fix: ";

/// Returns what is wrong with the messages for a program of `tests/ui`.
fn faults_of_messages(case: &Path, said: &Said) -> Vec<String> {
    let source = std::fs::read_to_string(case).unwrap();
    let (name, text) = (name(case), &said.text);
    let mut wrong = Vec::new();
    if !said.fails {
        wrong.push(format!("{name} compiles"));
    }
    // Sizes are printed as decimal numbers, not as nested bits.
    if text.contains("UInt<") {
        wrong.push(format!("{name} prints a `typenum` integer:\n{text}"));
    }
    // rustc prints the path of a type whose name another public item of the crate has, too.
    for path in ["atmesh::typed::sets::", "atmesh::typed::prelude::Unsharded"] {
        if text.contains(path) {
            wrong.push(format!("{name} prints the path {path}:\n{text}"));
        }
    }
    let lines = source.lines().filter(|l| !l.starts_with(FIX));
    let expected: Vec<&str> = lines.filter_map(|l| l.strip_prefix("//~ ")).collect();
    assert!(!expected.is_empty(), "{name} expects nothing");
    // Types that differ and methods that do not exist are rustc's words, which name no rule of
    // sharding. A file for which they are right says so.
    for code in ["error[E0271]", "error[E0599]"] {
        if is_typed(case) && text.contains(code) && !expected.iter().any(|e| e.contains(code)) {
            wrong.push(format!("{name} says {code}:\n{text}"));
        }
    }
    for words in expected.iter().filter(|words| !plain(text).contains(&plain(words))) {
        wrong.push(format!("{name}: expected {words:?} in\n{text}"));
    }
    wrong
}

#[test]
fn messages_hold_our_words() {
    let cases = programs("ui");
    assert!(cases.len() >= 18);
    let wrong = Compiler::new("wrong").faults(cases, faults_of_messages);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn fixes_compile() {
    let compiler = Compiler::new("right");
    let mut cases = programs("ui_ok");
    for case in programs("ui") {
        let source = std::fs::read_to_string(&case).unwrap();
        let mut fixed: Vec<&str> = Vec::new();
        for line in source.lines() {
            match line.trim_start().strip_prefix(FIX) {
                Some(fix) => *fixed.last_mut().expect("a fix follows the wrong line") = fix,
                None => fixed.push(line),
            }
        }
        if fixed.len() < source.lines().count() {
            cases.push(compiler.program(&format!("fix of {}", name(&case)), &fixed.join("\n")));
        }
    }
    assert!(!cases.is_empty());
    if !runs_all() && compiler.together(&cases).0 {
        return;
    }
    let fault = |case: &PathBuf| {
        let said = compiler.alone(case);
        said.fails.then(|| format!("{} does not compile:\n{}", name(case), said.text))
    };
    let wrong: Vec<String> = cases.iter().filter_map(fault).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Returns the program of a page as rustdoc would compile it.
#[cfg(feature = "typed")]
fn shown_program(text: &str) -> String {
    let lines = text.lines().map(|l| l.strip_prefix("# ").unwrap_or(l));
    format!("fn main() {{\n{}\n}}\n", lines.collect::<Vec<_>>().join("\n"))
}

/// Returns true if the text has the parts of a line, which `..` separates, one after the other.
#[cfg(feature = "typed")]
fn holds(text: &str, line: &str) -> bool {
    let part = |rest: &str, part: &str| rest.find(part).map(|at| at + part.len());
    line.split("..").try_fold(text, |rest, p| part(rest, p).map(|end| &rest[end..])).is_some()
}

/// A message that follows a wrong program in the book is what rustc says about this program.
/// Lines that show source are not compared.
#[test]
#[cfg(feature = "typed")]
fn the_book_shows_messages_as_they_are() {
    let compiler = Compiler::new("book");
    let mut shown: BTreeMap<PathBuf, String> = BTreeMap::new();
    for page in programs("../book/src").iter().filter(|page| name(page).starts_with("typed")) {
        let text = std::fs::read_to_string(page).unwrap();
        let mut program = None;
        for block in text.split("```").skip(1).step_by(2) {
            let (language, block) = block.split_once('\n').unwrap();
            let before = program.take();
            match (language, before) {
                ("rust,compile_fail", _) => program = Some(shown_program(block)),
                ("text", Some(program)) => {
                    let name = format!("{:02} of {}", shown.len(), name(page));
                    shown.insert(compiler.program(&name, &program), block.into());
                }
                _ => {}
            }
        }
    }
    assert!(shown.len() > 20, "only {} messages are shown", shown.len());
    let faults = |program: &Path, said: &Said| {
        // rustc prints a path where a name alone is not unique
        let paths = ["main::", "atmesh::typed::prelude::"];
        let said = paths.iter().fold(plain(&said.text), |said, path| said.replace(path, ""));
        let lines = shown[program].lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('|'));
        let missing = lines.filter(|l| !holds(&said, &plain(l)));
        missing.map(|line| format!("{}: expected {line:?} in\n{said}", name(program))).collect()
    };
    let wrong = compiler.faults(shown.keys().cloned().collect(), faults);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The macros and the derives work in crates that know atmesh by another name.
#[test]
#[cfg(feature = "typed")]
fn crates_know_atmesh_by_any_name() {
    let library = library();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/renamed");
    let compile = |program: &str, output: &Path, known: (&str, &Path)| {
        let out = rustc(&folder.join(program), "lib", output, known).output().unwrap();
        assert!(out.status.success(), "{program}:\n{}", String::from_utf8(out.stderr).unwrap());
    };
    let scratch = library.with_file_name(format!("renamed-{}.rmeta", std::process::id()));
    compile("renamed.rs", &scratch, ("other", &library));
    let facade = library.with_file_name(format!("libfacade_{}.rmeta", std::process::id()));
    compile("facade.rs", &facade, ("atmesh", &library));
    compile("through_a_facade.rs", &scratch, ("facade", &facade));
    for made in [scratch, facade] {
        std::fs::remove_file(made).unwrap();
    }
}
