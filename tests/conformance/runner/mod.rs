//! Runs conformance cases (`../FORMAT.md`) through the public API: the types of every value while
//! tracing, the elements, each device's shard, or the error. The `conformance` example and the
//! tests share this module.

mod case;
mod check;
#[path = "../../error_checks/mod.rs"]
pub(crate) mod error_checks;
mod indexing;
#[path = "../kinds.rs"]
mod kinds;
mod linalg;
mod lines;
mod nested;
mod ops;

use atmesh::EngineKind;
use atmesh::program::Program;
use serde_json::Value;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reason why a case did not pass.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The case needs an operation that is not implemented.
    Unbuilt(String),
    /// The actual and the expected result differ.
    Differs(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Differs(why)
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Failure {
        Failure::Differs(why.into())
    }
}

/// The outcome of the cases of a file.
pub(crate) struct Report {
    /// The file's name without its extension.
    pub name: String,
    /// The number of cases that passed.
    pub passed: usize,
    /// The number of cases, without exceptions and without cases that need unimplemented
    /// operations.
    pub total: usize,
    /// The exceptions: id and reason.
    pub excepted: Vec<(String, String)>,
    /// The number of passed cases that the reference rejects needlessly.
    pub accepted: usize,
    /// The number of cases for each unimplemented operation, by name.
    pub unbuilt: BTreeMap<String, usize>,
    /// The failures: id and difference.
    pub failed: Vec<(String, String)>,
}

/// The cases that need not pass.
pub(crate) struct Lists {
    /// The exceptions, which are judged differently: the reason by id.
    pub exceptions: BTreeMap<String, String>,
    /// The cases that the reference rejects needlessly: the result's type by id.
    pub accepted: BTreeMap<String, String>,
    /// Unimplemented operations: the file that shows each, by name.
    pub unbuilt: BTreeMap<String, String>,
}

impl Lists {
    /// Returns the lists of this crate.
    pub(crate) fn own() -> Lists {
        Lists {
            exceptions: keyed(include_str!("../exceptions.txt"), |[_, id, reason]| (id, reason)),
            accepted: keyed(include_str!("../accepted.txt"), |[id, ty, _]| (id, ty)),
            unbuilt: keyed(include_str!("../unbuilt.txt"), |[what, file, _]| (what, file)),
        }
    }
}

/// Parses lines of two words and a text; comments are skipped.
fn keyed(text: &'static str, key: impl Fn([&str; 3]) -> (&str, &str)) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    let pairs = lines.map(|l| {
        let words: Vec<&str> = l.splitn(3, ' ').collect();
        let words = words.try_into().unwrap_or_else(|_| panic!("a line of three words: {l}"));
        let (key, value) = key(words);
        (key.to_string(), value.to_string())
    });
    pairs.collect()
}

/// How much of a case is checked.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Depth {
    /// The case is skipped.
    Nothing,
    /// The program is traced: its types, its layouts or its error are compared.
    Types,
    /// The program runs too, and its values are compared.
    Values,
}

/// Checks the cases of a file's text as far as `depth` says, by the number of their line. Exceptions
/// are always run.
pub(crate) fn run(
    name: &str,
    text: &str,
    engine: EngineKind,
    lists: &Lists,
    depth: impl Fn(usize) -> Depth,
) -> Report {
    let mut report = Report {
        name: name.into(),
        passed: 0,
        total: 0,
        excepted: Vec::new(),
        accepted: 0,
        unbuilt: BTreeMap::new(),
        failed: Vec::new(),
    };
    let mut skips = false;
    for (number, line) in text.lines().filter(|l| !l.trim().is_empty()).enumerate() {
        let case: Value = match serde_json::from_str(line) {
            Ok(case) => case,
            Err(e) => {
                report.total += 1;
                report.failed.push(("(unreadable)".into(), format!("{e}")));
                continue;
            }
        };
        if case.get("meta").is_some() {
            continue;
        }
        let id = case["id"].as_str().unwrap_or("(no id)").to_string();
        let is_listed = lists.exceptions.contains_key(&id) || lists.accepted.contains_key(&id);
        let depth = if is_listed { Depth::Values } else { depth(number) };
        if depth == Depth::Nothing {
            skips = true;
            continue;
        }
        let outcome = one(&case, engine, &mut |_| depth == Depth::Values);
        if let Some(reason) = lists.exceptions.get(&id) {
            if outcome.is_ok() {
                report.failed.push((id.clone(), format!("passes, but is listed as an exception: {reason}")));
            }
            report.excepted.push((id, reason.clone()));
            continue;
        }
        let outcome = match lists.accepted.get(&id) {
            Some(_) if outcome.is_ok() => Err("passes, but is listed as accepted without need".into()),
            Some(ty) => {
                accepted(&case, engine, ty).inspect(|()| report.accepted += 1).map_err(Failure::Differs)
            }
            None => outcome,
        };
        match outcome {
            Err(Failure::Unbuilt(what)) if lists.unbuilt.contains_key(&what) => {
                *report.unbuilt.entry(what).or_default() += 1;
                continue;
            }
            Err(Failure::Unbuilt(what)) => {
                report.failed.push((id, format!("needs {what}, which is not built")))
            }
            Err(Failure::Differs(why)) => report.failed.push((id, why)),
            Ok(()) => report.passed += 1,
        }
        report.total += 1;
    }
    // An operation that is implemented must be removed from the list.
    let is_stale =
        |what: &String, file: &String| !skips && *file == name && !report.unbuilt.contains_key(what);
    for (what, _) in lists.unbuilt.iter().filter(|(what, file)| is_stale(what, file)) {
        report.failed.push((what.clone(), format!("is listed as not built, but no case of {name} needs it")));
    }
    report
}

/// Runs one case; a panic counts as a failure. `seen` receives the trace of an accepted program,
/// and returns whether to execute it.
pub(crate) fn one(
    case: &Value,
    engine: EngineKind,
    seen: &mut dyn FnMut(&Program) -> bool,
) -> Result<(), Failure> {
    let run = || match case["kind"].as_str() {
        Some("program") => case::program(case, engine, seen),
        Some("residuals") => case::residuals(case),
        Some("layout") => Ok(case::layout(case)?),
        Some("type") => Ok(case::ty(case)?),
        Some(other) => Err(Failure::Unbuilt(other.into())),
        None => Err("a case without kind".into()),
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(format!("panicked: {}", text.unwrap_or_default()).into())
    })
}

/// Runs a case that the reference rejects needlessly: its results have these types, separated by
/// `;`, and the bits of the same program on unsharded operands.
fn accepted(case: &Value, engine: EngineKind, types: &str) -> Result<(), String> {
    let mut alone = case.clone();
    for arg in alone["args"].as_array_mut().into_iter().flatten() {
        arg["type"] = check::unsharded(arg["type"].as_str().unwrap_or("")).into();
        arg.as_object_mut().and_then(|arg| arg.remove("spec"));
    }
    let run = || {
        let (got, want) = (case::results(case, engine)?, case::results(&alone, engine)?);
        check::same_bits(&got, &want)?;
        let found: Vec<String> = got.iter().map(|x| atmesh::type_of(x).to_string()).collect();
        let found = found.join(";");
        if found == types { Ok(()) } else { Err(format!("the result has type {found}, wanted {types}")) }
    };
    let panicked = |_| Err("panicked".to_string());
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked)
}

impl Report {
    /// Formats the summary of the file, and its failures.
    pub(crate) fn print(&self) -> String {
        let mut s = format!("{} {}/{}", self.name, self.passed, self.total);
        if !self.excepted.is_empty() {
            s += &format!(" ({} excepted)", self.excepted.len());
        }
        if self.accepted > 0 {
            s += &format!(" ({} accepted that the reference rejects)", self.accepted);
        }
        if !self.unbuilt.is_empty() {
            let names: Vec<String> = self.unbuilt.iter().map(|(what, n)| format!("{what} {n}")).collect();
            s += &format!(" (not built: {})", names.join(", "));
        }
        s.push('\n');
        for (id, why) in &self.failed {
            s += &format!("  {id}: {why}\n");
        }
        s
    }
}
