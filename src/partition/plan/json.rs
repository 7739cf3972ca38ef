//! Plans and timelines as JSON and as trace events, and plans that are read from JSON.

use super::profile::{Span, Timeline};
use super::{EntryKind, Plan, PlanEntry, html::location_text};
use crate::core::{Result, util::small_sort};
use crate::partition::machine::{json_error, to_json_lines};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::panic::Location;

/// A plan as a file holds it: the figures of a [`Plan`], with source locations as text.
///
/// [`Plan::to_json`] writes it, and [`from_json`](SavedPlan::from_json) reads it, for example to
/// compare today's plan with an earlier one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedPlan {
    /// The name of the machine.
    pub machine: String,
    /// The number of devices.
    pub devices: usize,
    /// The seconds of one call.
    pub seconds: f64,
    /// The seconds of all kernels.
    #[serde(rename = "kernels")]
    pub kernel_seconds: f64,
    /// The seconds of all collectives.
    #[serde(rename = "collectives")]
    pub collective_seconds: f64,
    /// The seconds spent in collectives that no kernel overlaps.
    #[serde(rename = "exposed")]
    pub exposed_seconds: f64,
    /// The fraction of the peak matmul rate that the call reaches.
    pub utilisation: f64,
    /// The peak memory of a device, in bytes.
    pub peak_bytes: u64,
    /// The kernels and collectives, in program order.
    #[serde(rename = "items")]
    pub entries: Vec<SavedEntry>,
}

/// One kernel or collective of a [`SavedPlan`], with the figures of a [`PlanEntry`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedEntry {
    /// The kind: `kernel`, or a collective and its mesh axes, such as `all_gather over X`.
    #[serde(rename = "what")]
    pub kind: String,
    /// The name of the operation that caused the entry.
    #[serde(rename = "operation")]
    pub op: String,
    /// The source location of that operation, such as `src/main.rs:12`; empty if unknown.
    #[serde(rename = "line")]
    pub source: String,
    /// The named scopes around that operation; empty if there are none.
    pub scope: String,
    /// The phase, such as `forward`.
    pub phase: String,
    /// The start time, in seconds; inside a loop, that of the first iteration.
    pub start: f64,
    /// The duration of one run, in seconds.
    pub seconds: f64,
    /// The number of runs.
    #[serde(rename = "times")]
    pub count: u64,
    /// The number of operations, including those of matmuls.
    #[serde(rename = "operations")]
    pub flops: f64,
    /// The bytes of memory that a kernel reads and writes, or that a device receives.
    pub bytes: f64,
    /// The resource or overhead that determines the time, such as `memory`.
    pub bound: String,
    /// For a collective, the seconds during which kernels run too; 0 for a kernel.
    #[serde(rename = "hidden")]
    pub overlapped: f64,
}

impl SavedPlan {
    /// Reads a plan that [`Plan::to_json`] wrote.
    ///
    /// # Errors
    /// The text is not JSON, or a field is missing or has another type.
    ///
    /// ```
    /// use atmesh::plan::{Machine, SavedPlan};
    /// use atmesh::prelude::*;
    /// let lowered = jit(|x: &Array| x * 2.0).lower(F32.array_type([1000]))?;
    /// let plan = lowered.plan(&Machine::new("small").memory(1e6, 1e9))?;
    /// let earlier = SavedPlan::from_json(&plan.to_json())?;
    /// assert_eq!(earlier.seconds, plan.seconds());
    /// assert_eq!(earlier.entries.len(), plan.entries().len());
    /// assert_eq!(earlier.entries[0].bound, "memory");
    ///
    /// let error = SavedPlan::from_json(r#"{"machine": "small"}"#).unwrap_err().to_string();
    /// assert!(error.contains("missing field `devices`"), "{error}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn from_json(text: &str) -> Result<SavedPlan> {
        let location = Location::caller();
        serde_json::from_str(text).map_err(|why| json_error("Plan::from_json", "plan", &why, location))
    }
}

impl From<&Plan> for SavedPlan {
    fn from(plan: &Plan) -> SavedPlan {
        SavedPlan {
            machine: plan.machine.name().into(),
            devices: plan.devices,
            seconds: plan.seconds,
            kernel_seconds: plan.kernel_seconds(),
            collective_seconds: plan.collective_seconds(),
            exposed_seconds: plan.exposed_seconds(),
            utilisation: plan.utilisation(),
            peak_bytes: plan.peak_bytes,
            entries: plan.entries.iter().map(SavedEntry::from).collect(),
        }
    }
}

impl From<&PlanEntry> for SavedEntry {
    fn from(entry: &PlanEntry) -> SavedEntry {
        SavedEntry {
            kind: entry.kind.name(),
            op: entry.op.clone(),
            source: location_text(entry.source),
            scope: entry.scope.to_string(),
            phase: entry.phase.name().into(),
            start: entry.start,
            seconds: entry.seconds,
            count: entry.count,
            flops: entry.flops,
            bytes: entry.bytes,
            bound: entry.bound.name().into(),
            overlapped: entry.overlapped,
        }
    }
}

impl Plan {
    /// Returns the plan as JSON: the totals, then a list of kernels and collectives.
    ///
    /// The seconds, operations and bytes of an entry are those of one device. [`SavedPlan`] reads
    /// it.
    pub fn to_json(&self) -> String {
        to_json_lines(&SavedPlan::from(self))
    }

    /// Returns the plan as trace events for `ui.perfetto.dev`.
    ///
    /// There is a track of kernels and one of messages. Only the first iteration of a loop is
    /// drawn; a third track shows how many more there are, and how long they take.
    pub fn to_perfetto(&self) -> String {
        let device = format!("a device of {} × {}", self.devices, self.machine.name());
        let mut events = vec![
            TraceEvent::name("process_name", 0, device),
            TraceEvent::name("thread_name", 1, "kernels".into()),
            TraceEvent::name("thread_name", 2, "messages".into()),
            TraceEvent::name("thread_name", 3, "loops".into()),
        ];
        // viewers expect the events of a track in order, and messages may overtake one another
        let mut entries: Vec<&PlanEntry> = self.entries.iter().collect();
        small_sort::sort_by(&mut entries, |a, b| a.start.total_cmp(&b.start));
        events.extend(entries.into_iter().filter_map(|entry| {
            let track = if entry.kind == EntryKind::Kernel { 1 } else { 2 };
            let args = vec![
                ("what", entry.kind.name().into()),
                ("line", location_text(entry.source).into()),
                ("scope", entry.scope.name().unwrap_or_default().into()),
                ("phase", entry.phase.name().into()),
                ("times", entry.count.into()),
                ("bound", entry.bound.name().into()),
            ];
            TraceEvent::span(track, (entry.start, entry.seconds), entry.op.clone(), args)
        }));
        events.extend(self.loop_remainders.iter().filter_map(|r| {
            let steps = if r.steps == 1 { "1 more step".into() } else { format!("{} more steps", r.steps) };
            TraceEvent::span(3, (r.start, r.seconds), steps, Vec::new())
        }));
        trace(events)
    }
}

/// A timeline in JSON.
#[derive(Serialize)]
struct TimelineFields<'a> {
    engine: &'a str,
    tracks: usize,
    seconds: f64,
    spans: Vec<SpanFields<'a>>,
}

/// A span of a timeline in JSON.
#[derive(Serialize)]
struct SpanFields<'a> {
    track: usize,
    what: &'a str,
    operation: &'a str,
    line: String,
    scope: &'a str,
    phase: &'a str,
    kernel: &'a str,
    start: f64,
    seconds: f64,
}

impl<'a> From<&'a Span> for SpanFields<'a> {
    fn from(s: &'a Span) -> SpanFields<'a> {
        SpanFields {
            track: s.track,
            what: s.activity.name(),
            operation: &s.op,
            line: location_text(s.source),
            scope: s.scope.name().unwrap_or_default(),
            phase: s.phase_name(),
            kernel: &s.kernel,
            start: s.start,
            seconds: s.seconds,
        }
    }
}

impl Timeline {
    /// Returns the profile as JSON: the totals, then a list of spans.
    pub fn to_json(&self) -> String {
        to_json_lines(&TimelineFields {
            engine: self.engine(),
            tracks: self.tracks(),
            seconds: self.seconds(),
            spans: self.spans().iter().map(SpanFields::from).collect(),
        })
    }

    /// Returns the profile as trace events for `ui.perfetto.dev`.
    ///
    /// There is a track for each device or worker.
    pub fn to_perfetto(&self) -> String {
        let track = |t| TraceEvent::name("thread_name", t + 1, format!("{} {t}", self.track_name()));
        let mut events = vec![TraceEvent::name("process_name", 0, self.title())];
        events.extend((0..self.tracks()).map(track));
        events.extend(self.spans().iter().filter_map(|s| {
            let args = vec![
                ("what", s.activity.name().into()),
                ("line", location_text(s.source).into()),
                ("scope", s.scope.name().unwrap_or_default().into()),
                ("phase", s.phase_name().into()),
                ("kernel", s.kernel.clone().into()),
            ];
            TraceEvent::span(s.track + 1, (s.start, s.seconds), s.op.clone(), args)
        }));
        trace(events)
    }
}

/// An event of the Trace Event Format, which `ui.perfetto.dev` reads.
#[derive(Serialize)]
struct TraceEvent {
    ph: &'static str,
    pid: u8,
    tid: usize,
    /// The start, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    /// The duration, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    name: String,
    #[serde(serialize_with = "write_args")]
    args: Vec<(&'static str, Value)>,
}

/// Writes the details of an event as an object.
fn write_args<S: Serializer>(args: &[(&'static str, Value)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(args.iter().map(|(name, value)| (name, value)))
}

impl TraceEvent {
    /// Returns the event that names a process or a track.
    fn name(what: &str, tid: usize, name: String) -> TraceEvent {
        let args = vec![("name", name.into())];
        TraceEvent { ph: "M", pid: 1, tid, ts: None, dur: None, name: what.into(), args }
    }
    /// Returns the event of a period (its start and its seconds); `None` if it is too short.
    fn span(
        tid: usize,
        (start, seconds): (f64, f64),
        name: String,
        args: Vec<(&'static str, Value)>,
    ) -> Option<TraceEvent> {
        let (ts, dur) = event_times(start, seconds)?;
        Some(TraceEvent { ph: "X", pid: 1, tid, ts: Some(ts), dur: Some(dur), name, args })
    }
}

/// Returns a trace: one text with all events.
fn trace(events: Vec<TraceEvent>) -> String {
    /// The object that contains the events.
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct TraceFile {
        trace_events: Vec<TraceEvent>,
    }
    serde_json::to_string(&TraceFile { trace_events: events }).unwrap_or_default() + "\n"
}

/// Returns the start and duration of a trace event in microseconds.
/// The start and the end are whole numbers of nanoseconds, and the sum of start and duration, as
/// floating-point numbers, does not exceed the end. Successive events of a track therefore do not
/// overlap, however they are read. Returns `None` for less than a nanosecond, because viewers
/// disagree about where an event without duration ends.
fn event_times(start: f64, seconds: f64) -> Option<(f64, f64)> {
    let nanos = |at: f64| (at * 1e9).round();
    let (from, to) = (nanos(start), nanos(start + seconds));
    let (ts, end, mut dur) = (from / 1e3, to / 1e3, (to - from) / 1e3);
    while ts + dur > end {
        dur = dur.next_down();
    }
    (from < to).then_some((ts, dur))
}
