//! Output of plans: a text table and an HTML page.

use super::html::{PageColumn, location_text, page};
use super::{EntryKind, Plan, PlanEntry};
use crate::core::{LineLabels, util::small_sort, util::text::scaled};
use crate::partition::columns::{PHASE_COLUMN, SCOPE_COLUMN, TableColumn, text_table};
use std::fmt;

impl EntryKind {
    pub(super) fn name(&self) -> String {
        match self {
            EntryKind::Kernel => "kernel".into(),
            EntryKind::Collective(kind, axes) => format!("{kind} over {axes}"),
        }
    }
}

/// A row of the table: the entries of one operation and source line with the same kind and bound.
struct PlanRow<'a> {
    first: &'a PlanEntry,
    seconds: f64,
    exposed: f64,
    count: u64,
    flops: f64,
    bytes: f64,
}

impl Plan {
    /// Returns the rows, the longest first.
    fn rows(&self) -> Vec<PlanRow<'_>> {
        let mut rows: Vec<PlanRow> = Vec::new();
        let mut found = std::collections::HashMap::new();
        for i in &self.entries {
            let times = i.count as f64;
            let key = (i.kind.name(), &i.op, location_text(i.source), i.bound, i.phase, &i.scope);
            let at = *found.entry(key).or_insert(rows.len());
            if at == rows.len() {
                rows.push(PlanRow { first: i, seconds: 0.0, exposed: 0.0, count: 0, flops: 0.0, bytes: 0.0 });
            }
            let row = &mut rows[at];
            row.seconds += i.seconds * times;
            row.exposed += i.exposed();
            row.count = row.count.saturating_add(i.count);
            row.flops += i.flops * times;
            row.bytes += i.bytes * times;
        }
        // compare as float32, so that rows whose times differ only by rounding stay in program
        // order
        let by = |of: fn(&PlanRow) -> f64| {
            move |a: &PlanRow, b: &PlanRow| (of(b) as f32).total_cmp(&(of(a) as f32))
        };
        small_sort::sort_by(&mut rows, |a, b| by(|r| r.exposed)(a, b).then(by(|r| r.seconds)(a, b)));
        rows
    }
    fn share(&self, seconds: f64) -> f64 {
        if self.seconds > 0.0 { 100.0 * seconds / self.seconds } else { 0.0 }
    }
    /// Returns the figures above the table, each with its name.
    fn head(&self) -> Vec<(&'static str, String)> {
        let mut head = vec![("one call", scaled(self.seconds, "s"))];
        head.push(("kernels", scaled(self.kernel_seconds(), "s")));
        let exposed = scaled(self.exposed_seconds(), "s");
        head.push((
            "collectives",
            format!("{}, of which {exposed} are not hidden", scaled(self.collective_seconds(), "s")),
        ));
        head.push(("utilisation", format!("{:.1} % of the matmul rate", 100.0 * self.utilisation())));
        if let Some((bound, share)) = self.bound() {
            head.push(("bound by", format!("{} ({:.0} % of the time)", bound.name(), 100.0 * share)));
        }
        let held = scaled(self.peak_bytes as f64, "B");
        let memory = self.machine.usable_memory().map(|bytes| {
            let fits = if self.fits() == Some(true) { "it fits" } else { "it does not fit" };
            format!(" of {} usable per device: {fits}", scaled(bytes, "B"))
        });
        head.push(("memory", held + &memory.unwrap_or_else(|| " per device".into())));
        head
    }

    /// Returns the plan as an HTML page: one file, whose table is sorted by clicking on a column.
    ///
    /// `source` is prepended to the name of each source file, so that source locations are links.
    /// It may be a folder, or the address of a site that shows the files.
    pub fn to_html(&self, source: &str) -> String {
        let seconds = |x: f64| scaled(x, "s");
        type Column<'a, 'r> = PageColumn<'a, PlanRow<'r>>;
        let columns = [
            Column::line("line", |r| r.first.source),
            Column::text("operation", |r| r.first.op.clone()),
            Column::text(SCOPE_COLUMN, |r| r.first.scope.to_string()),
            Column::text("what", |r| r.first.kind.name()),
            Column::text(PHASE_COLUMN, |r| r.first.phase.name().into()),
            Column::text("bound by", |r| r.first.bound.name().into()),
            Column::figure("seconds", |r| r.seconds, seconds),
            Column::figure("not hidden", |r| r.exposed, seconds),
            Column::figure("share %", |r| r.exposed, |x| format!("{:.1}", self.share(x))),
            Column::figure("times", |r| r.count as f64, |n| (n as u64).to_string()),
            Column::figure("operations", |r| r.flops, |x| scaled(x, "")),
            Column::figure("bytes", |r| r.bytes, |x| scaled(x, "B")),
        ];
        let title = format!("{} × {}", self.devices, self.machine.name());
        page(&title, &self.head(), &columns, &self.rows(), source)
    }
}

/// The maximum number of rows printed.
const MAX_ROWS: usize = 16;

/// Prints the totals, then the rows that take longest.
/// The columns are: time, exposed time, share, count, bound, phase, kind, operation, named scopes
/// (if there are any) and source line.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} × {}", self.devices, self.machine.name())?;
        for (name, figure) in self.head() {
            writeln!(f, "  {name:<12} {figure}")?;
        }
        let all = self.rows();
        if all.is_empty() {
            return Ok(());
        }
        let lines = LineLabels::new();
        type Column<'a, 'r> = TableColumn<'a, PlanRow<'r>>;
        let columns = [
            Column::number("time", |r| scaled(r.seconds, "s")),
            Column::number("not hidden", |r| scaled(r.exposed, "s")),
            Column::number("share", |r| format!("{:.1} %", self.share(r.exposed))),
            Column::number("times", |r| r.count.to_string()),
            Column::text("bound by", |r| r.first.bound.name().into()),
            Column::phase(&all, |r| Some(r.first.phase)),
            Column::text("what", |r| r.first.kind.name()),
            Column::text("operation", |r| r.first.op.clone()),
            Column::scope(&all, |r| &r.first.scope),
            Column::text("line", |r| lines.label(r.first.source)),
        ];
        f.write_str(&text_table(&columns, &all[..all.len().min(MAX_ROWS)], None))?;
        if all.len() > MAX_ROWS {
            let rest = all[MAX_ROWS..].iter().fold(0.0, |t, r| t + r.exposed);
            writeln!(f, "and {} shorter ones: {}", all.len() - MAX_ROWS, scaled(rest, "s"))?;
        }
        Ok(())
    }
}
