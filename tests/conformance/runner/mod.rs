//! Runs conformance cases (`../FORMAT.md`) through the public API: the types of every value while tracing, the numbers, each device's
//! shard, or the refusal. Shared by the `conformance` example and the tests.

mod case;
mod check;
mod nested;
mod ops;

use atmesh::EngineKind;
use atmesh::program::Program;
use serde_json::Value;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What became of the cases of a file.
pub(crate) struct Report {
    /// The file's name without its ending.
    pub name: String,
    /// How many passed.
    pub passed: usize,
    /// How many there are, without the exceptions.
    pub total: usize,
    /// Those listed as exceptions: id and reason.
    pub excepted: Vec<(String, String)>,
    /// Those that failed: id and what differed.
    pub failed: Vec<(String, String)>,
}

/// Runs all cases of a file's text.
pub(crate) fn run(
    name: &str,
    text: &str,
    engine: EngineKind,
    exceptions: &BTreeMap<String, String>,
) -> Report {
    let mut report =
        Report { name: name.into(), passed: 0, total: 0, excepted: Vec::new(), failed: Vec::new() };
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let case: Value = match serde_json::from_str(line) {
            Ok(case) => case,
            Err(e) => {
                report.total += 1;
                report.failed.push(("(unreadable)".into(), e.to_string()));
                continue;
            }
        };
        if case.get("meta").is_some() {
            continue;
        }
        let id = case["id"].as_str().unwrap_or("(no id)").to_string();
        if let Some(reason) = exceptions.get(&id) {
            report.excepted.push((id, reason.clone()));
            continue;
        }
        report.total += 1;
        match one(&case, engine, &mut |_| true) {
            Ok(()) => report.passed += 1,
            Err(why) => report.failed.push((id, why)),
        }
    }
    report
}

/// Runs one case; a panic is a failure like others. Of a program that is accepted `seen` gets the trace, and says whether it is to run.
pub(crate) fn one(
    case: &Value,
    engine: EngineKind,
    seen: &mut dyn FnMut(&Program) -> bool,
) -> Result<(), String> {
    let run = || match case["kind"].as_str() {
        Some("program") => case::program(case, engine, seen),
        Some("layout") => case::layout(case),
        Some("type") => case::ty(case),
        other => Err(format!("unknown kind {other:?}")),
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// The exceptions: lines `file id reason`.
pub(crate) fn exceptions(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .filter_map(|l| {
            let mut words = l.splitn(3, ' ');
            let (_, id, reason) = (words.next()?, words.next()?, words.next()?);
            Some((id.to_string(), reason.to_string()))
        })
        .collect()
}

impl Report {
    /// The line of the file, and those of the cases that failed.
    pub(crate) fn print(&self) -> String {
        let mut s = format!("{} {}/{}", self.name, self.passed, self.total);
        if !self.excepted.is_empty() {
            s += &format!(" ({} excepted)", self.excepted.len());
        }
        s.push('\n');
        for (id, why) in &self.failed {
            s += &format!("  {id}: {why}\n");
        }
        s
    }
}
