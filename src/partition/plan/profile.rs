//! Profiles: timelines of the devices or workers in a measured run, and comparisons with a plan.

use super::html::{PageColumn, page};
use super::{EntryKind, Plan};
use crate::core::{LineLabels, SourceLocation, util::small_sort, util::text::scaled};
use crate::ir::program::{Phase, ScopePath};
use crate::partition::columns::{PHASE_COLUMN, SCOPE_COLUMN, TableColumn, text_table};
use std::fmt;

/// The activity of a device or a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// Computing, including the reads of other devices' data, which happen in place.
    Kernel,
    /// Combining the partial values of several devices.
    Combine,
    /// Waiting for other devices or workers.
    Wait,
}

impl Activity {
    /// Returns the name in words, such as `combine partial values`.
    pub fn name(self) -> &'static str {
        match self {
            Activity::Kernel => "kernel",
            Activity::Combine => "combine partial values",
            Activity::Wait => "wait",
        }
    }
}

/// A period in which one device or worker performed one activity.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Span {
    /// The index of the device or worker.
    pub track: usize,
    /// The activity.
    pub activity: Activity,
    /// The name of the operation that caused it.
    pub op: String,
    /// The source location of that operation in the user's code, if known.
    pub source: Option<SourceLocation>,
    /// The named scopes around that operation ([`named_scope`](crate::named_scope)).
    pub scope: ScopePath,
    /// The phase: forward, or added by autodiff; `None` while waiting.
    pub phase: Option<Phase>,
    /// The kernel, as printed in the listing of the compiled program.
    pub kernel: String,
    /// The start time, in seconds since the start of the call.
    pub start: f64,
    /// The duration, in seconds.
    pub seconds: f64,
}

impl Span {
    /// Returns the fields by which spans are grouped into rows.
    fn key(&self) -> (Activity, &str, Option<SourceLocation>, &ScopePath, Option<Phase>) {
        (self.activity, &self.op, self.source, &self.scope, self.phase)
    }
    pub(super) fn phase_name(&self) -> &'static str {
        self.phase.map_or("", Phase::name)
    }
}

/// The profile of a run, made by [`Compiled::profile`](crate::Compiled::profile).
///
/// With the engine `threads` a track is a device, and with `lockstep` it is a worker, which runs
/// tasks of all devices.
///
/// It prints as a table of operations and source lines, the longest first.
#[derive(Clone, Debug)]
pub struct Timeline {
    engine: &'static str,
    tracks: usize,
    seconds: f64,
    spans: Vec<Span>,
}

/// The spans with the same activity, operation, source location, scope and phase.
struct TimelineRow<'a> {
    first: &'a Span,
    /// The seconds on the track on which they take longest.
    busiest: f64,
    total: f64,
    runs: usize,
}

impl Timeline {
    pub(crate) fn new(engine: &'static str, tracks: usize, seconds: f64, spans: Vec<Span>) -> Timeline {
        Timeline { engine, tracks, seconds, spans }
    }
    /// Returns the name of the engine that ran the program: `threads` or `lockstep`.
    pub fn engine(&self) -> &'static str {
        self.engine
    }
    /// Returns the number of devices or workers.
    pub fn tracks(&self) -> usize {
        self.tracks
    }
    /// Returns the duration of the call, in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
    /// Returns all spans, grouped by track and ordered by time.
    ///
    /// A track keeps its first 2²⁰ spans.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
    /// Returns the seconds that a track spent on an activity.
    pub fn busy(&self, track: usize, activity: Activity) -> f64 {
        let of = self.spans.iter().filter(|s| (s.track, s.activity) == (track, activity));
        of.fold(0.0, |t, s| t + s.seconds)
    }
    pub(super) fn track_name(&self) -> &'static str {
        if self.engine == "threads" { "device" } else { "worker" }
    }
    fn rows(&self) -> Vec<TimelineRow<'_>> {
        let mut rows: Vec<(TimelineRow, Vec<f64>)> = Vec::new();
        let mut found = std::collections::HashMap::new();
        for s in &self.spans {
            let at = *found.entry(s.key()).or_insert(rows.len());
            if at == rows.len() {
                rows.push((
                    TimelineRow { first: s, busiest: 0.0, total: 0.0, runs: 0 },
                    vec![0.0; self.tracks],
                ));
            }
            let (row, each) = &mut rows[at];
            (row.total, row.runs) = (row.total + s.seconds, row.runs + 1);
            if let Some(t) = each.get_mut(s.track) {
                *t += s.seconds;
            }
        }
        let most = |each: Vec<f64>| each.into_iter().fold(0.0, f64::max);
        let mut rows: Vec<TimelineRow> =
            rows.into_iter().map(|(row, each)| TimelineRow { busiest: most(each), ..row }).collect();
        small_sort::sort_by(&mut rows, |a, b| b.busiest.total_cmp(&a.busiest));
        rows
    }
    pub(super) fn title(&self) -> String {
        let s = if self.tracks == 1 { "" } else { "s" };
        format!("engine {}, {} {}{s}", self.engine, self.tracks, self.track_name())
    }
    fn head(&self) -> Vec<(&'static str, String)> {
        let most = |doing| (0..self.tracks).map(|t| self.busy(t, doing)).fold(0.0, f64::max);
        let mut head = vec![("one call", scaled(self.seconds, "s"))];
        for (name, doing) in
            [("kernels", Activity::Kernel), ("combining", Activity::Combine), ("waiting", Activity::Wait)]
        {
            head.push((name, format!("{} at most", scaled(most(doing), "s"))));
        }
        head
    }

    /// Emits an event for each span to the subscribers of the crate `tracing`.
    #[cfg(feature = "tracing")]
    pub(crate) fn emit_events(&self) {
        let ns = |seconds: f64| (seconds * 1e9).round() as u64;
        for s in &self.spans {
            ::tracing::event!(
                name: "measured",
                target: "atmesh",
                ::tracing::Level::TRACE,
                track = s.track,
                kind = s.activity.name(),
                op = s.op.as_str(),
                location = s.source.map(::tracing::field::display),
                scope = s.scope.name(),
                phase = s.phase.map(Phase::name),
                kernel = s.kernel.as_str(),
                start_ns = ns(s.start),
                end_ns = ns(s.start + s.seconds),
            );
        }
    }

    /// Returns the profile as an HTML page, in the form of [`Plan::to_html`].
    pub fn to_html(&self, source: &str) -> String {
        let busiest = format!("busiest {}", self.track_name());
        let seconds = |x: f64| scaled(x, "s");
        type Column<'a, 'r> = PageColumn<'a, TimelineRow<'r>>;
        let columns = [
            Column::line("line", |r| r.first.source),
            Column::text("operation", |r| r.first.op.clone()),
            Column::text(SCOPE_COLUMN, |r| r.first.scope.to_string()),
            Column::text("what", |r| r.first.activity.name().into()),
            Column::text(PHASE_COLUMN, |r| r.first.phase_name().into()),
            Column::figure(&busiest, |r| r.busiest, seconds),
            Column::figure("all together", |r| r.total, seconds),
            Column::figure("runs", |r| r.runs as f64, |n| (n as u64).to_string()),
        ];
        page(&self.title(), &self.head(), &columns, &self.rows(), source)
    }

    /// Compares the measured times with a plan, for each operation and source line.
    ///
    /// The operation with the longest measured time comes first. A plan is for one device, as is a
    /// track of the engine `threads`; a worker of the engine `lockstep` runs tasks of several
    /// devices.
    pub fn compare(&self, plan: &Plan) -> Comparison {
        let mut rows: Vec<ComparisonRow> = Vec::new();
        let mut at = |op: &str, source: Option<SourceLocation>, scope: &ScopePath, phase: Phase| {
            let key = (op, source, scope, phase);
            let known = rows.iter().position(|r| (&*r.op, r.source, &r.scope, r.phase) == key);
            known.unwrap_or_else(|| {
                let (op, scope) = (op.into(), scope.clone());
                rows.push(ComparisonRow { op, source, scope, phase, planned: 0.0, measured: 0.0 });
                rows.len() - 1
            })
        };
        let mut add: Vec<(usize, f64, f64)> = Vec::new();
        for r in self.rows().iter().filter(|r| r.first.activity != Activity::Wait) {
            let phase = r.first.phase.unwrap_or_default();
            add.push((at(&r.first.op, r.first.source, &r.first.scope, phase), 0.0, r.busiest));
        }
        for i in plan.entries() {
            // data from other devices is read in place: the overlapped time counts for the reading
            // kernel
            let hides = if i.kind == EntryKind::Kernel { 0.0 } else { i.overlapped };
            add.push((at(&i.op, i.source, &i.scope, i.phase), (i.seconds - hides) * i.count as f64, 0.0));
        }
        for (k, planned, measured) in add {
            (rows[k].planned, rows[k].measured) = (rows[k].planned + planned, rows[k].measured + measured);
        }
        small_sort::sort_by(&mut rows, |a, b| b.measured.total_cmp(&a.measured));
        Comparison { planned: plan.seconds(), measured: self.seconds, rows }
    }
}

/// A comparison of a measured run with its plan, made by [`Timeline::compare`].
///
/// It prints as a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Comparison {
    /// The planned seconds of one call.
    pub planned: f64,
    /// The measured seconds of one call.
    pub measured: f64,
    /// A row for each operation, source location, scope and phase.
    pub rows: Vec<ComparisonRow>,
}

/// A row of a [`Comparison`]: one operation and source line. Times are seconds of one call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ComparisonRow {
    /// The name of the operation.
    pub op: String,
    /// The source location in the user's code, if known.
    pub source: Option<SourceLocation>,
    /// The named scopes around the operation ([`named_scope`](crate::named_scope)).
    pub scope: ScopePath,
    /// The phase: forward, or added by autodiff (backward or recomputed).
    pub phase: Phase,
    /// The planned seconds of one device, without overlapped communication.
    pub planned: f64,
    /// The measured seconds on the track on which the operation takes longest.
    pub measured: f64,
}

/// The maximum number of rows printed.
const MAX_ROWS: usize = 16;

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title())?;
        for (name, figure) in self.head() {
            writeln!(f, "  {name:<12} {figure}")?;
        }
        let all = self.rows();
        let busiest = format!("busiest {}", self.track_name());
        let lines = LineLabels::new();
        type Column<'a, 'r> = TableColumn<'a, TimelineRow<'r>>;
        let columns = [
            Column::number(&busiest, |r| scaled(r.busiest, "s")),
            Column::number("all together", |r| scaled(r.total, "s")),
            Column::number("runs", |r| r.runs.to_string()),
            Column::text("what", |r| r.first.activity.name().into()),
            Column::phase(&all, |r| r.first.phase),
            Column::text("operation", |r| r.first.op.clone()),
            Column::scope(&all, |r| &r.first.scope),
            Column::text("line", |r| lines.label(r.first.source)),
        ];
        f.write_str(&text_table(&columns, &all[..all.len().min(MAX_ROWS)], None))?;
        match all.len().saturating_sub(MAX_ROWS) {
            0 => Ok(()),
            more => writeln!(f, "and {more} shorter ones"),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = |r: &ComparisonRow| {
            if r.planned > 0.0 { format!("{:.2}", r.measured / r.planned) } else { "–".into() }
        };
        let whole = ComparisonRow {
            op: "one call".into(),
            source: None,
            scope: ScopePath::default(),
            phase: Phase::Forward,
            planned: self.planned,
            measured: self.measured,
        };
        // The row of the whole call has no phase.
        let rows: Vec<(&ComparisonRow, Option<Phase>)> =
            std::iter::once((&whole, None)).chain(self.rows.iter().map(|r| (r, Some(r.phase)))).collect();
        let lines = LineLabels::new();
        type Column<'a, 'r> = TableColumn<'a, (&'r ComparisonRow, Option<Phase>)>;
        let columns = [
            Column::number("planned", |(r, _)| scaled(r.planned, "s")),
            Column::number("measured", |(r, _)| scaled(r.measured, "s")),
            Column::number("ratio", |(r, _)| ratio(r)),
            Column::phase(&rows, |(_, phase)| *phase),
            Column::text("operation", |(r, _)| r.op.clone()),
            Column::scope(&rows, |(r, _)| &r.scope),
            Column::text("line", |(r, _)| lines.label(r.source)),
        ];
        f.write_str(&text_table(&columns, &rows[..rows.len().min(MAX_ROWS + 1)], None))
    }
}
