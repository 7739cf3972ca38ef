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
    // exceptions are few, but for reshapes that the reference refuses although nothing moves: tests/reshapes.rs has them
    let others = report.excepted.iter().filter(|(_, why)| !why.starts_with("nothing moves")).count();
    assert!(others * 100 <= report.total + report.excepted.len(), "{:?}", report.excepted);
}

// Each family runs on the two engines that programs use; on the reference engine those whose kernels are of different kinds
// (tests/properties.rs compares all three).
macro_rules! files {
    ($engines:ident: $($name:ident)*) => {$(
        mod $name {
            use super::*;
            files! { @$engines $name }
        }
    )*};
    (@three $name:ident) => {
        files! { @two $name }
        #[test]
        fn reference() {
            all_pass(stringify!($name), EngineKind::Reference);
        }
    };
    (@two $name:ident) => {
        #[test]
        fn lockstep() {
            all_pass(stringify!($name), EngineKind::Lockstep);
        }
        #[test]
        fn threads() {
            all_pass(stringify!($name), EngineKind::Threads);
        }
    };
    (@nothing_runs $name:ident) => {
        #[test]
        fn all() {
            all_pass(stringify!($name), EngineKind::default());
        }
    };
}
files! { nothing_runs: types layout }
files! { three: seeds tutorial elementwise reductions dot_general reshape unreduced own }
files! { two: broadcasting matmul einsum transpose broadcast_in_dim creation reshard convert x64 slicing control manual_grad }

#[test]
fn exceptions_are_lines_of_file_id_and_reason() {
    let list = runner::exceptions("# a comment\n\nseeds seeds/0001 the reference contradicts itself\n");
    assert_eq!(list["seeds/0001"], "the reference contradicts itself");
}
