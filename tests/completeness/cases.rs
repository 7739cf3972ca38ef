//! Conformance cases: tracing them shows which primitives they use.

use super::runner;
use crate::soak::runs_all;
use atmesh::EngineKind;
use atmesh::ops::PRIMITIVES;
use atmesh::program::{Op, Program};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Collects the names of all primitives of a program and of its nested programs.
fn collect(program: &Program, names: &mut BTreeSet<&'static str>) {
    for e in &program.equations {
        match &e.op {
            Op::Prim(prim) => {
                names.insert(prim.name());
            }
            Op::Control(c) => c.bodies().into_iter().for_each(|body| collect(body, names)),
        }
    }
}

/// Returns the program cases of all files next to the runner, without the exceptions: the file of
/// our own cases, which has most primitives, and then the others in order of their names.
fn cases() -> Vec<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the cases are there")
        .map(|f| f.expect("it is listed").path())
        .collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "jsonl"));
    files.sort_by_key(|f| (f.file_stem() != Some("own".as_ref()), f.clone()));
    let exceptions = runner::Lists::own().exceptions;
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("it is text");
        for line in text.lines().filter(|l| !l.trim().is_empty()) {
            let case: Value = serde_json::from_str(line).expect("each line is a case");
            let listed = case["id"].as_str().is_some_and(|id| exceptions.contains_key(id));
            if case["kind"] == "program" && case["expect"].get("error").is_none() && !listed {
                cases.push(case);
            }
        }
    }
    cases
}

/// Each primitive occurs in the trace of a passing case: the types of all values, and the results,
/// are compared. When each was found, a fifteenth of the other cases is traced, or all in a soak.
#[test]
fn every_primitive_has_a_conformance_case() {
    let mut missing: BTreeSet<&str> = PRIMITIVES.iter().map(|e| e.name).collect();
    let listed = missing.clone();
    let mut unlisted: BTreeSet<&str> = BTreeSet::new();
    for (k, case) in cases().into_iter().enumerate() {
        if missing.is_empty() && k % 15 != 0 && !runs_all() {
            continue;
        }
        let mut names = BTreeSet::new();
        // The case is run only if its trace has a primitive that is still missing.
        let outcome = runner::one(&case, EngineKind::Lockstep, &mut |program| {
            collect(program, &mut names);
            names.iter().any(|n| missing.contains(n))
        });
        unlisted.extend(names.difference(&listed));
        if outcome.is_ok() {
            missing.retain(|n| !names.contains(n));
        }
    }
    assert!(missing.is_empty(), "no conformance case that passes uses {missing:?}: write some to own.py");
    assert!(unlisted.is_empty(), "{unlisted:?} are used, but not in the list of primitives");
}
