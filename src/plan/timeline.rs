//! What a run did when: measured, on each device or worker, and beside what was planned.

use super::page::{Cell, line, page, table};
use super::told::{quoted, scaled, when};
use super::{Plan, What};
use crate::diagnostic::Place;
use crate::partition::PHASE;
use crate::program::Phase;
use crate::sorted;
use std::fmt;

/// What a device or a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Doing {
    /// It computes. What it reads of other devices it reads in place, as part of this.
    Kernel,
    /// It combines the parts that devices have of a value.
    Combine,
    /// It waits for the others.
    Wait,
}

impl Doing {
    /// Its name in words: `kernel`.
    pub fn name(self) -> &'static str {
        match self {
            Doing::Kernel => "kernel",
            Doing::Combine => "combine parts",
            Doing::Wait => "wait",
        }
    }
}

/// A time in which one device or worker did one thing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Span {
    /// The device's number, or the worker's.
    pub track: usize,
    /// What it did.
    pub doing: Doing,
    /// The operation that asked for it.
    pub op: String,
    /// The user's line.
    pub source: Option<Place>,
    /// Whether derivatives put it there; none while it waits, which no operation of the program asked for.
    pub phase: Option<Phase>,
    /// The kernel, as the compiled program's report prints it.
    pub kernel: String,
    /// Seconds from the beginning of the call.
    pub start: f64,
    /// How many seconds.
    pub seconds: f64,
}

impl Span {
    /// What rows are of one thing.
    fn key(&self) -> (Doing, &str, Option<Place>, Option<Phase>) {
        (self.doing, &self.op, self.source, self.phase)
    }
    fn phase(&self) -> &'static str {
        self.phase.map_or("", Phase::name)
    }
}

/// What a run did when, made by [`Compiled::call_timed`](crate::Compiled::call_timed). A track is a device where each has a thread of its own
/// (the engine `threads`), else one of the workers that share the devices' programs (the engine `lockstep`).
///
/// It prints as a table of operations and lines, the longest first.
#[derive(Clone, Debug)]
pub struct Timeline {
    engine: &'static str,
    tracks: usize,
    seconds: f64,
    spans: Vec<Span>,
}

/// Spans of one operation and line.
struct Row<'a> {
    first: &'a Span,
    /// On the track that takes longest.
    busiest: f64,
    all: f64,
    runs: usize,
}

impl Timeline {
    pub(crate) fn new(engine: &'static str, tracks: usize, seconds: f64, spans: Vec<Span>) -> Timeline {
        Timeline { engine, tracks, seconds, spans }
    }
    /// The engine's name.
    pub fn engine(&self) -> &'static str {
        self.engine
    }
    /// How many devices or workers there are.
    pub fn tracks(&self) -> usize {
        self.tracks
    }
    /// The seconds of the call.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
    /// What was done, track by track, in order. Of each track the first 2²⁰ spans are kept.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
    /// The seconds that a track was at this.
    pub fn busy(&self, track: usize, doing: Doing) -> f64 {
        let of = self.spans.iter().filter(|s| (s.track, s.doing) == (track, doing));
        of.fold(0.0, |t, s| t + s.seconds)
    }
    fn track(&self) -> &'static str {
        if self.engine == "threads" { "device" } else { "worker" }
    }
    fn rows(&self) -> Vec<Row<'_>> {
        let mut rows: Vec<(Row, Vec<f64>)> = Vec::new();
        let mut found = std::collections::HashMap::new();
        for s in &self.spans {
            let at = *found.entry(s.key()).or_insert(rows.len());
            if at == rows.len() {
                rows.push((Row { first: s, busiest: 0.0, all: 0.0, runs: 0 }, vec![0.0; self.tracks]));
            }
            let (row, each) = &mut rows[at];
            (row.all, row.runs) = (row.all + s.seconds, row.runs + 1);
            if let Some(t) = each.get_mut(s.track) {
                *t += s.seconds;
            }
        }
        let most = |each: Vec<f64>| each.into_iter().fold(0.0, f64::max);
        let mut rows: Vec<Row> =
            rows.into_iter().map(|(row, each)| Row { busiest: most(each), ..row }).collect();
        sorted::sort_by(&mut rows, |a, b| b.busiest.total_cmp(&a.busiest));
        rows
    }
    fn title(&self) -> String {
        let s = if self.tracks == 1 { "" } else { "s" };
        format!("engine {}, {} {}{s}", self.engine, self.tracks, self.track())
    }
    fn head(&self) -> Vec<(&'static str, String)> {
        let most = |doing| (0..self.tracks).map(|t| self.busy(t, doing)).fold(0.0, f64::max);
        let mut head = vec![("one call", scaled(self.seconds, "s"))];
        for (name, doing) in
            [("kernels", Doing::Kernel), ("combining", Doing::Combine), ("waiting", Doing::Wait)]
        {
            head.push((name, format!("{} at most", scaled(most(doing), "s"))));
        }
        head
    }

    /// Tells subscribers of the crate `tracing` of each span, as an event.
    #[cfg(feature = "tracing")]
    pub(crate) fn tell(&self) {
        let ns = |seconds: f64| (seconds * 1e9).round() as u64;
        for s in &self.spans {
            ::tracing::event!(
                name: "measured",
                target: "atmesh",
                ::tracing::Level::TRACE,
                track = s.track,
                what = s.doing.name(),
                op = s.op.as_str(),
                place = s.source.map(::tracing::field::display),
                phase = s.phase.map(Phase::name),
                kernel = s.kernel.as_str(),
                begin_ns = ns(s.start),
                end_ns = ns(s.start + s.seconds),
            );
        }
    }

    /// The timeline as JSON: the figures, then a list of spans.
    pub fn to_json(&self) -> String {
        let span = |s: &Span| {
            format!(
                "\n  {{\"track\": {}, \"what\": {}, \"operation\": {}, \"line\": {}, \"phase\": {}, \"kernel\": {}, \"start\": {:e}, \"seconds\": {:e}}}",
                s.track,
                quoted(s.doing.name()),
                quoted(&s.op),
                quoted(&line(s.source)),
                quoted(s.phase()),
                quoted(&s.kernel),
                s.start,
                s.seconds,
            )
        };
        format!(
            "{{\"engine\": {}, \"tracks\": {}, \"seconds\": {:e}, \"spans\": [{}\n]}}\n",
            quoted(self.engine),
            self.tracks,
            self.seconds,
            self.spans.iter().map(span).collect::<Vec<_>>().join(",")
        )
    }
    /// The timeline as trace events, which the page `ui.perfetto.dev` shows: a track for each device or worker.
    pub fn to_perfetto(&self) -> String {
        let event = |s: &Span| {
            let when = when(s.start, s.seconds)?;
            Some(format!(
                "\n{{\"ph\": \"X\", \"pid\": 1, \"tid\": {}, {when}, \"name\": {}, \"args\": {{\"what\": {}, \"line\": {}, \"phase\": {}, \"kernel\": {}}}}}",
                s.track + 1,
                quoted(&s.op),
                quoted(s.doing.name()),
                quoted(&line(s.source)),
                quoted(s.phase()),
                quoted(&s.kernel),
            ))
        };
        let name = |what: &str, track: usize, name: &str| {
            format!(
                "\n{{\"ph\": \"M\", \"pid\": 1, \"tid\": {track}, \"name\": \"{what}\", \"args\": {{\"name\": {}}}}}",
                quoted(name)
            )
        };
        let tracks = (0..self.tracks).map(|t| name("thread_name", t + 1, &format!("{} {t}", self.track())));
        let events = std::iter::once(name("process_name", 0, &self.title())).chain(tracks);
        let events: Vec<String> = events.chain(self.spans.iter().filter_map(event)).collect();
        format!("{{\"traceEvents\": [{}\n]}}\n", events.join(","))
    }
    /// The timeline as a page, as [`Plan::to_html`] makes one.
    pub fn to_html(&self, source: &str) -> String {
        let figure = |value: f64| Cell::Figure(value, scaled(value, "s"));
        let row = |r: Row<'_>| {
            vec![
                Cell::Line(r.first.source),
                Cell::Text(r.first.op.clone()),
                Cell::Text(r.first.doing.name().into()),
                Cell::Text(r.first.phase().into()),
                figure(r.busiest),
                figure(r.all),
                Cell::Figure(r.runs as f64, r.runs.to_string()),
            ]
        };
        let busiest = format!("busiest {}", self.track());
        let columns = ["line", "operation", "what", PHASE, &busiest, "all together", "runs"];
        page(&self.title(), &self.head(), &columns, self.rows().into_iter().map(row).collect(), source)
    }

    /// What was measured beside what a plan says, for each operation and line; the longest measured first. A plan is of one device, and so is what is
    /// measured on a track of the engine `threads`; a worker of the engine `lockstep` runs the programs of several devices.
    pub fn beside(&self, plan: &Plan) -> Beside {
        let mut rows: Vec<Compared> = Vec::new();
        let mut at = |op: &str, source: Option<Place>, phase: Phase| {
            let known = rows.iter().position(|r| (&*r.op, r.source, r.phase) == (op, source, phase));
            known.unwrap_or_else(|| {
                rows.push(Compared { op: op.into(), source, phase, planned: 0.0, measured: 0.0 });
                rows.len() - 1
            })
        };
        let mut add: Vec<(usize, f64, f64)> = Vec::new();
        for r in self.rows().iter().filter(|r| r.first.doing != Doing::Wait) {
            let phase = r.first.phase.unwrap_or_default();
            add.push((at(&r.first.op, r.first.source, phase), 0.0, r.busiest));
        }
        for i in plan.items() {
            // what a collective brings is read in place: its time is that of who reads it
            let hides = if i.what == What::Kernel { 0.0 } else { i.hidden };
            add.push((at(&i.op, i.source, i.phase), (i.seconds - hides) * i.times as f64, 0.0));
        }
        for (k, planned, measured) in add {
            (rows[k].planned, rows[k].measured) = (rows[k].planned + planned, rows[k].measured + measured);
        }
        sorted::sort_by(&mut rows, |a, b| b.measured.total_cmp(&a.measured));
        Beside { planned: plan.seconds(), measured: self.seconds, rows }
    }
}

/// A measured run beside its plan, made by [`Timeline::beside`]. It prints.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Beside {
    /// The plan's seconds of one call.
    pub planned: f64,
    /// The measured seconds of one call.
    pub measured: f64,
    /// Operation by operation.
    pub rows: Vec<Compared>,
}

/// One operation and line of a [`Beside`]. Seconds of one call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compared {
    /// The operation.
    pub op: String,
    /// The user's line.
    pub source: Option<Place>,
    /// Whether derivatives put it there.
    pub phase: Phase,
    /// As planned, for one device: what hides behind kernels is left out.
    pub planned: f64,
    /// As measured, on the track that takes longest.
    pub measured: f64,
}

/// How many rows are printed.
const MOST_ROWS: usize = 16;

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title())?;
        for (name, figure) in self.head() {
            writeln!(f, "  {name:<12} {figure}")?;
        }
        let all = self.rows();
        let head = [
            &format!("busiest {}", self.track()),
            "all together",
            "runs",
            "what",
            PHASE,
            "operation",
            "line",
        ];
        let mut rows = vec![head.map(String::from).to_vec()];
        for r in all.iter().take(MOST_ROWS) {
            rows.push(vec![
                scaled(r.busiest, "s"),
                scaled(r.all, "s"),
                r.runs.to_string(),
                r.first.doing.name().into(),
                r.first.phase().into(),
                r.first.op.clone(),
                line(r.first.source),
            ]);
        }
        if all.iter().all(|r| r.first.phase.unwrap_or_default() == Phase::Forward) {
            rows.iter_mut().for_each(|r| drop(r.remove(4)));
        }
        f.write_str(&table(&rows, 3))?;
        match all.len().saturating_sub(MOST_ROWS) {
            0 => Ok(()),
            more => writeln!(f, "and {more} shorter ones"),
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = |planned: f64, measured: f64| {
            if planned > 0.0 { format!("{:.2}", measured / planned) } else { "–".into() }
        };
        let head = ["planned", "measured", "ratio", PHASE, "operation", "line"];
        let row = |planned, measured, phase: &str, op: &str, source| {
            let figures = [scaled(planned, "s"), scaled(measured, "s"), ratio(planned, measured)];
            figures.into_iter().chain([phase.into(), op.into(), line(source)]).collect::<Vec<String>>()
        };
        let mut rows = vec![head.map(String::from).to_vec()];
        rows.push(row(self.planned, self.measured, "", "one call", None));
        let each = self.rows.iter().take(MOST_ROWS);
        rows.extend(each.map(|r| row(r.planned, r.measured, r.phase.name(), &r.op, r.source)));
        if self.rows.iter().all(|r| r.phase == Phase::Forward) {
            rows.iter_mut().for_each(|r| drop(r.remove(3)));
        }
        f.write_str(&table(&rows, 3))
    }
}
