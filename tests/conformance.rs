//! Runs the reference's cases on every engine: types, layouts, values and errors.

#[path = "conformance/runner/mod.rs"]
mod runner;
#[path = "soak/mod.rs"]
mod soak;

use atmesh::EngineKind;
use runner::{Depth, Lists};
use soak::runs_all;
use std::path::Path;

/// Checks `tests/conformance/NAME.jsonl` and asserts that every case passes. `Lockstep` checks the
/// types of all programs and runs a third of them; other engines run a sixth each, and skip the
/// others, whose types do not depend on the engine. In a soak each engine runs all of them, and in
/// `.ci/run examples` lock-step and the threads do, with optimizations.
fn all_pass(name: &str, engine: EngineKind) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let text = std::fs::read_to_string(folder.join(format!("{name}.jsonl"))).expect("the cases are there");
    let depth = |number: usize| match (engine, number % 6) {
        _ if runs_all() => Depth::Values,
        (EngineKind::Lockstep, 1 | 4) | (EngineKind::Threads, 0) | (EngineKind::Reference, 3) => {
            Depth::Values
        }
        (EngineKind::Lockstep, _) => Depth::Types,
        _ => Depth::Nothing,
    };
    let report = runner::run(name, &text, engine, &Lists::own(), depth);
    let is_first = engine == EngineKind::Lockstep;
    assert!(!is_first || report.total + report.unbuilt.len() > 0, "{name} has no cases");
    assert!(report.failed.is_empty(), "{}", report.print());
    // Cases that the reference rejects needlessly are not exceptions; see
    // `runner::Lists::accepted`.
    assert!(
        !is_first || report.excepted.len() * 100 <= report.total + report.excepted.len(),
        "{:?}",
        report.excepted
    );
}

// Each family runs on the two engines that execute programs, and families with distinct kernels
// also run on the reference engine (tests/properties.rs compares all three).
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
files! { three: seeds tutorial elementwise reductions dot_general reshape unreduced random own functions }
files! { two: broadcasting matmul einsum transpose broadcast_in_dim creation reshard convert x64 slicing concatenate control
unsupported grad derivatives shard_map smap collectives vma manual_grad algorithms programs auto
convolution dynamic_slice fft gather linalg segments sorting windows }

/// Every file of cases is in the lists above.
#[test]
fn every_file_runs() {
    let source = include_str!("conformance.rs");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    for entry in std::fs::read_dir(folder).expect("the cases are there") {
        let path = entry.expect("it is listed").path();
        let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        // The file of chosen shardings has no cases: tests/sharding/auto_mode.rs reads it.
        if path.extension().is_some_and(|e| e == "jsonl") && name != "auto_shardings" {
            let listed = source.lines().skip_while(|l| !l.starts_with("files! {"));
            let words: Vec<&str> = listed.flat_map(str::split_whitespace).collect();
            assert!(words.contains(&name.as_str()), "{name}.jsonl does not run");
        }
    }
}
