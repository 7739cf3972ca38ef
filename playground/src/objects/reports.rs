//! Reports of collectives.

use crate::error::ErrorResponse;
use crate::syntax::NumType;
use crate::value::Value;
use atmesh::{Collective, Collectives};
use std::rc::Rc;

/// Returns the report of a lowered program.
pub(crate) fn report(value: &Value) -> Result<Rc<Collectives>, ErrorResponse> {
    match value.inner() {
        Value::Collectives(report) => Ok(report.clone()),
        Value::Lowered(lowered) => Ok(Rc::new(lowered.with(|l| l.collectives().clone())?)),
        other => Err(syntax_error!("a lowered program is expected, not {}", other.what())),
    }
}

pub(super) fn collective(c: &Collective) -> Value {
    let number = |n: u64| Value::Int(n.into(), NumType::U64);
    let line = c.location.map(|l| crate::lines::located(&format!("{}:{}", l.file(), l.line())));
    Value::record(
        "Collective",
        [
            ("kind", Value::text(c.kind)),
            ("axes", Value::text(&c.axes)),
            ("bytes_per_device", number(c.bytes_per_device)),
            ("total_bytes", number(c.total_bytes)),
            ("messages", number(c.messages)),
            ("count", number(c.count)),
            ("op", Value::text(&c.op)),
            ("reason", Value::text(&c.reason)),
            ("phase", Value::text(format!("{:?}", c.phase))),
            ("requested", Value::Bool(c.requested)),
            ("exact", Value::Bool(c.exact)),
            ("location", Value::option(line.map(Value::text))),
        ],
    )
}

/// Returns the collectives of a report, as structs.
pub(crate) fn collectives(report: &Collectives) -> Vec<Value> {
    report.iter().map(collective).collect()
}

/// Summarises the collectives of a program in one line, as the book's rules do.
pub(crate) fn communication(report: &Collectives) -> String {
    if report.is_empty() {
        return "no communication".into();
    }
    let summary = |c: &Collective| {
        let times = if c.count > 1 { format!(", {} times", c.count) } else { String::new() };
        format!("{} over {}, {} bytes per device{times}", c.kind, c.axes, c.bytes_per_device)
    };
    report.iter().map(summary).collect::<Vec<_>>().join("; ")
}

/// Checks `AllReduce("X") x 1, Halo("Y") x 2` against a report.
pub(crate) fn assert_collectives(report: &Collectives, wanted: &str) -> Result<(), ErrorResponse> {
    let mut total = 0;
    for part in wanted.split(" x ").collect::<Vec<_>>().windows(2) {
        let kind = part[0].trim_start_matches(|c: char| c.is_ascii_digit() || c == ',' || c.is_whitespace());
        let Some((kind, axes)) = kind.split_once('(') else { continue };
        let number = part[1].split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        let n: usize = number.parse().unwrap_or(0);
        let names: Vec<&str> =
            axes.trim_end_matches(')').split(',').map(|a| a.trim().trim_matches(['"', '(', ')'])).collect();
        let is_kind = |c: &&Collective| c.kind.name().replace('_', "") == kind.trim().to_lowercase();
        let over = |c: &&Collective| {
            let axes = c.axes.to_string();
            names.len() == c.axes.len() && names.iter().all(|n| axes.contains(n))
        };
        let found = report.iter().filter(is_kind).filter(over).count();
        if found != n {
            return Err(syntax_error!("{kind} over {}: expected {n}, found {found}", names.join(", ")));
        }
        total += n;
    }
    if total != report.len() {
        return Err(syntax_error!(
            "other collectives than expected:\n{}",
            crate::lines::located(&report.to_string())
        ));
    }
    Ok(())
}
