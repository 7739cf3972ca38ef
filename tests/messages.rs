//! The messages of rustc for misuse of our traits: no file in `tests/ui` compiles, and the messages
//! contain the texts after its `//~`. A line `//~ fix: ..` stands for the line before it: the file
//! with that line compiles. Every file in `tests/ui_ok` compiles as it is.
//!
//! Only our own words are compared (`#[diagnostic::on_unimplemented]`, the derive's errors,
//! `#[must_use]`), one piece per line. How rustc formats messages, which other types it lists and
//! how it names ours differs between versions, so a comparison of complete outputs, as in
//! `trybuild`, would work for one version only. Nothing is downloaded, and the library is the one
//! that these tests are linked with.

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

/// rustc with the library, writing to a scratch file of one test.
struct Compiler {
    library: PathBuf,
    scratch: PathBuf,
}
impl Compiler {
    fn new(test: &str) -> Self {
        let library = library();
        let scratch = library.with_file_name(format!("messages-{test}-{}", std::process::id()));
        Compiler { library, scratch }
    }
    /// Compiles a program. Returns whether it succeeds, and what rustc prints.
    fn compile(&self, program: &Path) -> (bool, String) {
        let output = self.scratch.with_extension("rmeta");
        let out = rustc(program, "bin", &output, ("atmesh", &self.library)).output().unwrap();
        (out.status.success(), String::from_utf8(out.stderr).unwrap())
    }
    /// Compiles a source text.
    fn compile_text(&self, source: &str) -> (bool, String) {
        let program = self.scratch.with_extension("rs");
        std::fs::write(&program, source).unwrap();
        self.compile(&program)
    }
}

/// Returns the text on one line, without the characters that rustc draws.
fn plain(text: &str) -> String {
    text.split_whitespace().filter(|w| !matches!(*w, "|" | "=")).collect::<Vec<_>>().join(" ")
}

const FIX: &str = "//~ fix: ";

#[test]
fn messages_hold_our_words() {
    let compiler = Compiler::new("wrong");
    let cases = programs("ui");
    assert!(cases.len() >= 18);
    let mut wrong = Vec::new();
    for case in &cases {
        let source = std::fs::read_to_string(case).unwrap();
        let (compiles, said) = compiler.compile(case);
        let name = name(case);
        if compiles {
            wrong.push(format!("{name} compiles"));
        }
        // Sizes are printed as decimal numbers, not as nested bits.
        if said.contains("UInt<") {
            wrong.push(format!("{name} prints a `typenum` integer:\n{said}"));
        }
        // rustc prints the path of a type whose name another public item of the crate has, too.
        for path in ["atmesh::typed::sets::", "atmesh::typed::prelude::Unsharded"] {
            if said.contains(path) {
                wrong.push(format!("{name} prints the path {path}:\n{said}"));
            }
        }
        let lines = source.lines().filter(|l| !l.starts_with(FIX));
        let expected: Vec<&str> = lines.filter_map(|l| l.strip_prefix("//~ ")).collect();
        assert!(!expected.is_empty(), "{name} expects nothing");
        // Types that differ and methods that do not exist are rustc's words, which name no rule of
        // sharding. A file for which they are right says so.
        for code in ["error[E0271]", "error[E0599]"] {
            if is_typed(case) && said.contains(code) && !expected.iter().any(|e| e.contains(code)) {
                wrong.push(format!("{name} says {code}:\n{said}"));
            }
        }
        for words in expected.iter().filter(|words| !plain(&said).contains(&plain(words))) {
            wrong.push(format!("{name}: expected {words:?} in\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn fixes_compile() {
    let compiler = Compiler::new("right");
    let mut wrong = Vec::new();
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
            let (compiles, said) = compiler.compile_text(&fixed.join("\n"));
            if !compiles {
                wrong.push(format!("the fix of {} does not compile:\n{said}", name(&case)));
            }
        }
    }
    for case in programs("ui_ok") {
        let (compiles, said) = compiler.compile(&case);
        if !compiles {
            wrong.push(format!("{} does not compile:\n{said}", name(&case)));
        }
    }
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
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in programs("../book/src").iter().filter(|page| name(page).starts_with("typed")) {
        let text = std::fs::read_to_string(page).unwrap();
        let mut program = None;
        for block in text.split("```").skip(1).step_by(2) {
            let (language, block) = block.split_once('\n').unwrap();
            let before = program.take();
            match (language, before) {
                ("rust,compile_fail", _) => program = Some(shown_program(block)),
                ("text", Some(program)) => {
                    // rustc prints a path where a name alone is not unique
                    let paths = ["main::", "atmesh::typed::prelude::"];
                    let said = plain(&compiler.compile_text(&program).1);
                    let said = paths.iter().fold(said, |said, path| said.replace(path, ""));
                    let lines = block.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('|'));
                    for line in lines.filter(|l| !holds(&said, &plain(l))) {
                        wrong.push(format!("{}: expected {line:?} in\n{said}", name(page)));
                    }
                    count += 1;
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count > 20, "only {count} messages are shown");
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
