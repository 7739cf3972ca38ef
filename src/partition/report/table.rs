//! The table of a program's collectives, with the source location that caused each.

use crate::core::diagnostic::{LineLabels, terminal};
use crate::partition::collective::{Collective, Collectives};
use crate::partition::columns::{TableColumn, table_cells, text_table};
use std::fmt;

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
    /// `columns` is the width to wrap to, `None` for no wrapping.
    fn table(&self, columns: Option<usize>) -> String {
        let table = if self.list.is_empty() {
            String::new()
        } else {
            text_table(&self.columns(), &self.list, columns)
        };
        format!("{table}{}\n", self.summary_line())
    }
    /// Returns the cells of the table, after a row of heads, and for each column whether it is one
    /// of numbers.
    pub(crate) fn cells(&self) -> (Vec<Vec<String>>, Vec<bool>) {
        table_cells(&self.columns(), &self.list)
    }
    /// Returns the line below the table.
    pub(crate) fn summary_line(&self) -> String {
        let none = if self.list.is_empty() { "no collectives; " } else { "" };
        let bytes = format_estimate(self.peak_bytes(), !self.memory.estimated);
        format!("{none}peak memory: {bytes} bytes per device{}", format_bytes(self.peak_bytes()))
    }
    fn columns(&self) -> [TableColumn<'_, Collective>; 11] {
        let rows = &self.list;
        let bytes = |n: u64, exact: bool| format_estimate(n, exact) + &format_bytes(n);
        let lines = LineLabels::new();
        type Column<'a> = TableColumn<'a, Collective>;
        [
            Column::text("kind", |c| c.kind.to_string()),
            Column::text("axes", |c| c.axes.to_string()),
            Column::number("bytes/device", move |c| bytes(c.bytes_per_device, c.exact)),
            Column::number("bytes", move |c| bytes(c.total_bytes, c.exact)),
            Column::number("messages", |c| format_estimate(c.messages, c.messages_exact)),
            Column::number("times", format_count),
            Column::phase(rows, |c| Some(c.phase)),
            Column::text("operation", |c| c.op.clone()),
            Column::scope(rows, |c| &c.scope),
            Column::text("line", move |c| lines.label(c.location)),
            Column::text("reason", |c| c.reason.clone()),
        ]
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
    use crate::ir::program::Phase;
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
        let report =
            Collectives { list: vec![one()], peak_bytes: 2_000_000.into(), ..Collectives::default() };
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
