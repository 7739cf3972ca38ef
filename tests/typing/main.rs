//! The primitives against the reference: types and errors by the builder, values by their loop
//! nests.

mod derive;
mod driver;
mod evaluate;
#[path = "../conformance/kinds.rs"]
mod kinds;
mod machine;
mod programs;
mod rules;
/// The scalar functions of the reference engine, with which loop nests are tested, too.
#[path = "../../src/exec/engine/reference/scalar.rs"]
mod scalar;
mod views;

use driver::{Outcome, check};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Runs the cases of a file (with `bodies`, those with nested programs); cases that need other
/// operations are counted.
fn run(path: &str, at_least: usize, bodies: bool) {
    let text = std::fs::read_to_string(path).unwrap();
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), BTreeMap::new());
    let exceptions = include_str!("../conformance/exceptions.txt");
    let accepted = include_str!("../conformance/accepted.txt");
    for line in text.lines().skip(1) {
        let case: Json = serde_json::from_str(line).unwrap();
        let listed = |list: &str, k: usize| list.lines().any(|l| l.split(' ').nth(k) == case["id"].as_str());
        if listed(exceptions, 1) || listed(accepted, 0) {
            continue;
        }
        match if bodies { programs::check(&case) } else { check(&case) } {
            Outcome::Passed => passed += 1,
            Outcome::Failed(why) => failed.push(format!("{}: {why}\n{}", case["id"], case["body"])),
            Outcome::Skipped(op) => *skipped.entry(op).or_insert(0) += 1,
        }
    }
    println!("{path}: {passed} passed, {} failed, skipped {skipped:?}", failed.len());
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n\n"));
    assert!(passed >= at_least, "only {passed} passed; skipped {skipped:?}");
}

/// Runs a file of this crate.
fn own(file: &str, at_least: usize) {
    run(&format!("{}/tests/conformance/{file}", env!("CARGO_MANIFEST_DIR")), at_least, false);
}

#[test]
fn elementwise() {
    own("elementwise.jsonl", 246);
}

#[test]
fn reductions() {
    own("reductions.jsonl", 117);
}

#[test]
fn dot_general() {
    own("dot_general.jsonl", 250);
}

/// The random bits equal the reference's exactly.
#[test]
fn random() {
    own("random.jsonl", 59);
}

#[test]
fn unreduced() {
    own("unreduced.jsonl", 172);
}

#[test]
fn shapes() {
    own("reshape.jsonl", 231);
    own("slicing.jsonl", 191);
}

/// Runs a file of this crate with nested programs.
fn nested(file: &str, at_least: usize) {
    run(&format!("{}/tests/conformance/{file}", env!("CARGO_MANIFEST_DIR")), at_least, true);
}

#[test]
fn collectives() {
    nested("collectives.jsonl", 243);
    nested("vma.jsonl", 149);
}

#[test]
fn per_device_code() {
    nested("shard_map.jsonl", 188);
    nested("smap.jsonl", 82);
}

#[test]
fn derivatives() {
    nested("grad.jsonl", 157);
}

#[test]
fn derivatives_of_per_device_code() {
    nested("manual_grad.jsonl", 240);
}

#[test]
fn control_flow() {
    nested("control.jsonl", 141);
}

/// Runs other files of cases by hand: `CASES=a.jsonl,b.jsonl cargo test --test typing elsewhere --
/// --nocapture`.
#[test]
fn elsewhere() {
    for path in std::env::var("CASES").unwrap_or_default().split(',').filter(|p| !p.is_empty()) {
        let _ = std::panic::catch_unwind(|| run(path, 0, std::env::var("BODIES").is_ok()));
    }
}
