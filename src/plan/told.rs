//! A plan for people and for programs: a table, JSON, a page, and a timeline.

use super::page::{Cell, line, page, table};
use super::schedule::Repeat;
use super::{Item, Plan, What};
use crate::partition::PHASE;
use crate::program::Phase;
use crate::sorted;
use std::fmt;

/// A text as JSON has it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => out += &format!("\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out + "\""
}

/// A number with a unit of a thousand: `1.23 ms`.
pub(crate) fn scaled(x: f64, unit: &str) -> String {
    let units = [
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "µ"),
        (1e-9, "n"),
    ];
    // numbers of bytes and operations have no fractions
    let least = if unit == "s" { 1e-9 } else { 1.0 };
    let fits = |u: &&(f64, &str)| u.0 >= least && x.abs() >= u.0 && !(unit == "s" && u.0 > 1.0);
    match units.iter().find(fits) {
        Some((by, name)) => format!("{:.3} {name}{unit}", x / by),
        None => format!("0 {unit}"),
    }
}

impl What {
    fn name(&self) -> String {
        match self {
            What::Kernel => "kernel".into(),
            What::Collective(kind, axes) => format!("{kind} over {axes}"),
        }
    }
}

/// Rows of one operation and line that are of a kind, together.
struct Row<'a> {
    first: &'a Item,
    seconds: f64,
    shown: f64,
    times: u64,
    operations: f64,
    bytes: f64,
}

impl Plan {
    /// Its rows, the longest first.
    fn rows(&self) -> Vec<Row<'_>> {
        let mut rows: Vec<Row> = Vec::new();
        let mut found = std::collections::HashMap::new();
        for i in &self.items {
            let times = i.times as f64;
            let key = (i.what.name(), &i.op, line(i.source), i.bound, i.phase);
            let at = *found.entry(key).or_insert(rows.len());
            if at == rows.len() {
                rows.push(Row { first: i, seconds: 0.0, shown: 0.0, times: 0, operations: 0.0, bytes: 0.0 });
            }
            let row = &mut rows[at];
            row.seconds += i.seconds * times;
            row.shown += i.shown();
            row.times = row.times.saturating_add(i.times);
            row.operations += i.operations * times;
            row.bytes += i.bytes * times;
        }
        // what differs in the last places only stays in the program's order
        let by = |of: fn(&Row) -> f64| move |a: &Row, b: &Row| (of(b) as f32).total_cmp(&(of(a) as f32));
        sorted::sort_by(&mut rows, |a, b| by(|r| r.shown)(a, b).then(by(|r| r.seconds)(a, b)));
        rows
    }
    fn share(&self, seconds: f64) -> f64 {
        if self.seconds > 0.0 { 100.0 * seconds / self.seconds } else { 0.0 }
    }
    /// The figures above the table, each with its name.
    fn head(&self) -> Vec<(&'static str, String)> {
        let mut head = vec![("one call", scaled(self.seconds, "s"))];
        head.push(("kernels", scaled(self.kernel_seconds(), "s")));
        let exposed = scaled(self.exposed_seconds(), "s");
        head.push((
            "collectives",
            format!("{}, of which {exposed} are not hidden", scaled(self.collective_seconds(), "s")),
        ));
        head.push(("utilisation", format!("{:.1} % of the rate of products", 100.0 * self.utilisation())));
        if let Some((bound, share)) = self.bound() {
            head.push(("bound by", format!("{} ({:.0} % of the time)", bound.name(), 100.0 * share)));
        }
        let held = scaled(self.peak_bytes as f64, "B");
        let memory = self.machine.memory.map(|bytes| {
            let fits = if self.fits() == Some(true) { "it fits" } else { "it does not fit" };
            format!(" of {} per device: {fits}", scaled(bytes, "B"))
        });
        head.push(("memory", held + &memory.unwrap_or_else(|| " per device".into())));
        head
    }

    /// The plan as JSON: the figures, then a list of items with seconds, operations and bytes per device.
    pub fn to_json(&self) -> String {
        let item = |i: &Item| {
            format!(
                "\n  {{\"what\": {}, \"operation\": {}, \"line\": {}, \"phase\": {}, \"start\": {:e}, \"seconds\": {:e}, \"times\": {}, \"operations\": {:e}, \"bytes\": {:e}, \"bound\": {}, \"hidden\": {:e}}}",
                quoted(&i.what.name()),
                quoted(&i.op),
                quoted(&line(i.source)),
                quoted(i.phase.name()),
                i.start,
                i.seconds,
                i.times,
                i.operations,
                i.bytes,
                quoted(i.bound.name()),
                i.hidden,
            )
        };
        format!(
            "{{\"machine\": {}, \"devices\": {}, \"seconds\": {:e}, \"kernels\": {:e}, \"collectives\": {:e}, \"exposed\": {:e}, \"utilisation\": {:e}, \"peak_bytes\": {}, \"items\": [{}\n]}}\n",
            quoted(self.machine.name()),
            self.devices,
            self.seconds,
            self.kernel_seconds(),
            self.collective_seconds(),
            self.exposed_seconds(),
            self.utilisation(),
            self.peak_bytes,
            self.items.iter().map(item).collect::<Vec<_>>().join(",")
        )
    }

    /// The timeline as trace events, which the page `ui.perfetto.dev` shows: a track of kernels and one of messages. Of a loop the first step is drawn;
    /// a third track says how many more there are, and how long they take.
    pub fn to_perfetto(&self) -> String {
        let event = |i: &Item| {
            let track = if i.what == What::Kernel { 1 } else { 2 };
            let when = when(i.start, i.seconds)?;
            Some(format!(
                "\n{{\"ph\": \"X\", \"pid\": 1, \"tid\": {track}, {when}, \"name\": {}, \"args\": {{\"what\": {}, \"line\": {}, \"phase\": {}, \"times\": {}, \"bound\": {}}}}}",
                quoted(&i.op),
                quoted(&i.what.name()),
                quoted(&line(i.source)),
                quoted(i.phase.name()),
                i.times,
                quoted(i.bound.name()),
            ))
        };
        let name = |what: &str, track: u32, name: &str| {
            format!(
                "\n{{\"ph\": \"M\", \"pid\": 1, \"tid\": {track}, \"name\": \"{what}\", \"args\": {{\"name\": {}}}}}",
                quoted(name)
            )
        };
        let device = format!("a device of {} × {}", self.devices, self.machine.name());
        let named = [
            name("process_name", 0, &device),
            name("thread_name", 1, "kernels"),
            name("thread_name", 2, "messages"),
            name("thread_name", 3, "loops"),
        ];
        let more = |r: &Repeat| {
            let steps = if r.steps == 1 { "1 more step".into() } else { format!("{} more steps", r.steps) };
            let when = when(r.start, r.seconds)?;
            Some(format!("\n{{\"ph\": \"X\", \"pid\": 1, \"tid\": 3, {when}, \"name\": \"{steps}\"}}"))
        };
        let drawn = self.items.iter().filter_map(event).chain(self.repeats.iter().filter_map(more));
        let events: Vec<String> = named.into_iter().chain(drawn).collect();
        format!("{{\"traceEvents\": [{}\n]}}\n", events.join(","))
    }

    /// The plan as a page: one file with a table that sorts by a click on a column's name. `source` goes before each file's name, so that lines are
    /// links: a folder, or the address at which a site shows the files.
    pub fn to_html(&self, source: &str) -> String {
        let figure = |value: f64, unit| Cell::Figure(value, scaled(value, unit));
        let row = |r: Row<'_>| {
            vec![
                Cell::Line(r.first.source),
                Cell::Text(r.first.op.clone()),
                Cell::Text(r.first.what.name()),
                Cell::Text(r.first.phase.name().into()),
                Cell::Text(r.first.bound.name().into()),
                figure(r.seconds, "s"),
                figure(r.shown, "s"),
                Cell::Figure(r.shown, format!("{:.1}", self.share(r.shown))),
                Cell::Figure(r.times as f64, r.times.to_string()),
                figure(r.operations, ""),
                figure(r.bytes, "B"),
            ]
        };
        let title = format!("{} × {}", self.devices, self.machine.name());
        let columns = [
            "line",
            "operation",
            "what",
            PHASE,
            "bound by",
            "seconds",
            "not hidden",
            "share %",
            "times",
            "operations",
            "bytes",
        ];
        page(&title, &self.head(), &columns, self.rows().into_iter().map(row).collect(), source)
    }
}

/// How many rows are printed.
const MOST_ROWS: usize = 16;

/// The figures, then the rows that take longest: time, share, how often, what binds it, what it is, operation and line.
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
        let head = ["time", "not hidden", "share", "times", "bound by", PHASE, "what", "operation", "line"];
        let mut rows = vec![head.map(String::from).to_vec()];
        for r in all.iter().take(MOST_ROWS) {
            rows.push(vec![
                scaled(r.seconds, "s"),
                scaled(r.shown, "s"),
                format!("{:.1} %", self.share(r.shown)),
                r.times.to_string(),
                r.first.bound.name().into(),
                r.first.phase.name().into(),
                r.first.what.name(),
                r.first.op.clone(),
                line(r.first.source),
            ]);
        }
        if all.iter().all(|r| r.first.phase == Phase::Forward) {
            rows.iter_mut().for_each(|r| drop(r.remove(5)));
        }
        f.write_str(&table(&rows, 4))?;
        if all.len() > MOST_ROWS {
            let rest = all[MOST_ROWS..].iter().fold(0.0, |t, r| t + r.shown);
            writeln!(f, "and {} shorter ones: {}", all.len() - MOST_ROWS, scaled(rest, "s"))?;
        }
        Ok(())
    }
}

/// When a trace event is, in microseconds. Its start and its end are each a whole number of nanoseconds, and its start and its duration, added up as
/// floating-point numbers, are not behind its end: events that follow one another on a track do not overlap, in whatever way they are read. What takes
/// less than a nanosecond is no event: viewers disagree on where one ends that takes no time.
pub(super) fn when(start: f64, seconds: f64) -> Option<String> {
    let nanos = |at: f64| (at * 1e9).round();
    let (from, to) = (nanos(start), nanos(start + seconds));
    let (ts, end, mut dur) = (from / 1e3, to / 1e3, (to - from) / 1e3);
    while ts + dur > end {
        dur = dur.next_down();
    }
    (from < to).then(|| format!("\"ts\": {ts}, \"dur\": {dur}"))
}
