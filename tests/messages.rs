//! The messages of rustc for misuse of our traits: no file in `tests/ui` compiles, and the messages
//! contain the texts after its `//~`.
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

/// Returns the text on one line, without the characters that rustc draws.
fn plain(text: &str) -> String {
    text.split_whitespace().filter(|w| !matches!(*w, "|" | "=")).collect::<Vec<_>>().join(" ")
}

#[test]
fn messages_hold_our_words() {
    let library = library();
    let scratch = tempfile(&library);
    let mut cases: Vec<PathBuf> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(cases.len() >= 18);
    cases.retain(|case| {
        cfg!(feature = "typed") || !case.file_name().unwrap().to_string_lossy().starts_with("typed_")
    });
    let mut wrong = Vec::new();
    for case in &cases {
        let source = std::fs::read_to_string(case).unwrap();
        let out = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
            .args([
                "--edition=2024",
                "--crate-type=bin",
                "--emit=metadata",
                "--color=never",
                "--diagnostic-width=1000",
            ])
            .arg("-o")
            .arg(&scratch)
            .arg("-L")
            .arg(format!("dependency={}", library.parent().unwrap().display()))
            .arg("--extern")
            .arg(format!("atmesh={}", library.display()))
            .arg(case)
            .output()
            .unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        let name = case.file_name().unwrap().to_string_lossy();
        if out.status.success() {
            wrong.push(format!("{name} compiles"));
        }
        // Sizes are printed as decimal numbers, not as nested bits.
        if said.contains("UInt<") {
            wrong.push(format!("{name} prints a `typenum` integer:\n{said}"));
        }
        let expected: Vec<&str> = source.lines().filter_map(|l| l.strip_prefix("//~ ")).collect();
        assert!(!expected.is_empty(), "{name} expects nothing");
        for words in expected.iter().filter(|words| !plain(&said).contains(&plain(words))) {
            wrong.push(format!("{name}: expected {words:?} in\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Returns the path of a file next to the library, for rustc's output.
fn tempfile(library: &Path) -> PathBuf {
    library.with_file_name(format!("messages-{}.rmeta", std::process::id()))
}
