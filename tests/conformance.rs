//! The reference's cases, on every engine: types, layouts, numbers, refusals.

#[path = "conformance/runner/mod.rs"]
mod runner;

use atmesh::EngineKind;
use std::path::Path;

/// Runs `tests/conformance/NAME.jsonl` and wants every case to pass.
fn all_pass(name: &str, engine: EngineKind) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let text = std::fs::read_to_string(folder.join(format!("{name}.jsonl"))).expect("the cases are there");
    let exceptions = runner::exceptions(include_str!("conformance/exceptions.txt"));
    let report = runner::run(name, &text, engine, &exceptions);
    assert!(report.total > 0, "{name} has no cases");
    assert!(report.failed.is_empty(), "{}", report.print());
    // exceptions are few
    assert!(report.excepted.len() * 100 <= report.total + report.excepted.len(), "{:?}", report.excepted);
}

macro_rules! files { ($($name:ident)*) => {$(
    mod $name {
        use super::*;
        #[test]
        fn lockstep() {
            all_pass(stringify!($name), EngineKind::Lockstep);
        }
        #[test]
        fn threads() {
            all_pass(stringify!($name), EngineKind::Threads);
        }
        #[test]
        fn reference() {
            all_pass(stringify!($name), EngineKind::Reference);
        }
    }
)*} }
files! { seeds tutorial }

#[test]
fn types() {
    all_pass("types", EngineKind::default());
}
#[test]
fn layout() {
    all_pass("layout", EngineKind::default());
}

#[test]
fn exceptions_are_lines_of_file_id_and_reason() {
    let list = runner::exceptions("# a comment\n\nseeds seeds/0001 the reference contradicts itself\n");
    assert_eq!(list["seeds/0001"], "the reference contradicts itself");
}
