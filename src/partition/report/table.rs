//! The table of a program's collectives, with the source location that caused each.

use crate::core::diagnostic::terminal;
use crate::core::util::text::{column_widths, columns, pad, wrap};
use crate::ir::program::Phase;
use crate::partition::collective::{Collective, Collectives};
use std::fmt;

/// The header of the column for the phase: forward, recomputed or backward.
pub(crate) const PHASE_COLUMN: &str = "phase";
/// The header of the column for the named scopes.
pub(crate) const SCOPE_COLUMN: &str = "scope";

/// Formats a count.
/// Estimates are marked with `≈`.
fn format_estimate(n: u64, exact: bool) -> String {
    format!("{}{n}", if exact { "" } else { "≈" })
}

/// Formats the number of executions.
fn format_count(c: &Collective) -> String {
    match (c.per_iteration, c.count) {
        (false, n) => n.to_string(),
        (true, 1) => "per iteration".into(),
        (true, n) => format!("{n} per iteration"),
    }
}

/// Formats a size in larger units, such as ` (621 MB)`.
/// Empty below 1 MB.
fn format_bytes(bytes: u64) -> String {
    let names = ["MB", "GB", "TB", "PB", "EB"];
    let (mut scaled, mut unit) = (bytes as f64 / 1e6, 0);
    while scaled >= 999.5 && unit + 1 < names.len() {
        (scaled, unit) = (scaled / 1e3, unit + 1);
    }
    let digits = if scaled < 9.995 { 2 } else { usize::from(scaled < 99.95) };
    if bytes < 1_000_000 { String::new() } else { format!(" ({scaled:.digits$} {})", names[unit]) }
}

impl Collectives {
    /// Prints the table to stdout.
    /// If that is a terminal, reasons are wrapped to its width.
    pub fn print(&self) {
        use std::io::Write;
        // a closed pipe is not an error
        let _ = writeln!(std::io::stdout(), "{}", self.table(terminal::stdout()).trim_end());
    }
    /// Returns the table.
    /// `width` is the width to wrap to, `None` for no wrapping.
    fn table(&self, width: Option<usize>) -> String {
        let peak = format!(
            "peak memory: {} bytes per device{}\n",
            format_estimate(self.peak_bytes, !self.estimated),
            format_bytes(self.peak_bytes)
        );
        if self.list.is_empty() {
            return format!("no collectives; {peak}");
        }
        // the phase column is omitted if all rows are forward
        let phases = self.list.iter().any(|c| c.phase != Phase::Forward);
        // and so is the scope column if no row is in a scope
        let scopes = self.list.iter().any(|c| c.scope.name().is_some());
        let row = |c: &Collective| {
            let line = c.location.map(|p| format!("{}:{}", p.file(), p.line())).unwrap_or_default();
            [
                c.kind.to_string(),
                c.axes.to_string(),
                format_estimate(c.bytes_per_device, c.exact) + &format_bytes(c.bytes_per_device),
                format_estimate(c.total_bytes, c.exact) + &format_bytes(c.total_bytes),
                format_estimate(c.messages, c.messages_exact),
                format_count(c),
                c.phase.name().into(),
                c.op.clone(),
                c.scope.to_string(),
                line,
                c.reason.clone(),
            ]
        };
        let head = [
            "kind",
            "axes",
            "bytes/device",
            "bytes",
            "messages",
            "times",
            PHASE_COLUMN,
            "operation",
            SCOPE_COLUMN,
            "line",
            "reason",
        ]
        .map(String::from);
        let rows: Vec<[String; 11]> = std::iter::once(head).chain(self.list.iter().map(row)).collect();
        let widths = column_widths(&rows);
        let shown = |k: &usize| (phases || *k != 6) && (scopes || *k != 8);
        let before: usize = (0..10).filter(shown).map(|k| widths[k] + 2).sum();
        let mut out = String::new();
        for r in &rows {
            let mut line = String::new();
            for (k, cell) in r.iter().enumerate().filter(|(k, _)| shown(k)) {
                // numbers are aligned at the right
                line += &match k {
                    10 => match width {
                        // wrap to the remaining width, or put the reason on separate lines if the
                        // terminal is narrow
                        Some(all) if all >= before + 24 => {
                            wrap(cell, all - before).join(&format!("\n{:before$}", ""))
                        }
                        Some(all) if all < before + columns(cell) => {
                            format!("\n    {}", wrap(cell, all.max(44) - 4).join("\n    "))
                        }
                        _ => cell.clone(),
                    },
                    _ => pad(cell, widths[k], (2..=5).contains(&k)) + "  ",
                };
            }
            for part in line.lines() {
                out += part.trim_end();
                out.push('\n');
            }
        }
        out + &peak
    }
}

/// Prints a table of the collectives, then the peak memory.
///
/// The columns are kind, axes, bytes per device, executions, operation, line and reason. A program
/// with derivatives has a column that says forward, recomputed or backward, and a program with
/// named scopes has a column for them.
impl fmt::Display for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::collective::{CollectiveKind, CollectiveRole};

    #[test]
    fn many_bytes_have_units() {
        let seen =
            [999_999, 1_000_000, 9_994_000, 9_996_000, 620_756_992, 999_600_000, 418_759_311_360, u64::MAX];
        let text: Vec<String> = seen.into_iter().map(format_bytes).collect();
        let expected = [
            "",
            " (1.00 MB)",
            " (9.99 MB)",
            " (10.0 MB)",
            " (621 MB)",
            " (1.00 GB)",
            " (419 GB)",
            " (18.4 EB)",
        ];
        assert_eq!(text, expected);
    }
    fn one() -> Collective {
        Collective {
            kind: CollectiveKind::AllReduce,
            axes: "X".into(),
            bytes_per_device: 8,
            total_bytes: 16,
            exact: true,
            messages: 2,
            messages_exact: true,
            count: 1,
            per_iteration: false,
            op: "dot_general".into(),
            location: None,
            scope: Default::default(),
            phase: Phase::Forward,
            requested: false,
            reason: "the contracting dimension is sharded over X: partial sums are added on all devices"
                .into(),
            role: CollectiveRole::Reduction,
            for_consumer: None,
            hoisted_from: None,
            path: vec![(0, 0)],
        }
    }
    /// Guards against rereading all rows for each cell of the table.
    #[test]
    fn the_report_of_very_many_collectives_is_printed() {
        let many = 100_000;
        let report = Collectives { list: vec![one(); many], ..Collectives::default() };
        assert_eq!(report.to_string().lines().count(), 1 + many + 1);
    }
    #[test]
    fn reasons_are_wrapped_to_a_terminal() {
        let report = Collectives { list: vec![one()], peak_bytes: 2_000_000, ..Collectives::default() };
        expect_test::expect![[r#"
            kind        axes  bytes/device  bytes  messages  times  operation    line  reason
            all_reduce  X                8     16         2      1  dot_general        the contracting dimension is sharded over X:
                                                                                       partial sums are added on all devices
            peak memory: 2000000 bytes per device (2.00 MB)
        "#]].assert_eq(&report.table(Some(120)));
        expect_test::expect![[r#"
            kind        axes  bytes/device  bytes  messages  times  operation    line
                reason
            all_reduce  X                8     16         2      1  dot_general
                the contracting dimension is sharded over X: partial
                sums are added on all devices
            peak memory: 2000000 bytes per device (2.00 MB)
        "#]]
        .assert_eq(&report.table(Some(60)));
        assert_eq!(report.table(None), report.to_string());
        assert_eq!(report.to_string().lines().count(), 3);
    }
}
