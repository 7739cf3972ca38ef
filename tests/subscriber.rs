//! The events for a subscriber of the crate `tracing`: a span for each stage, and an event for each
//! piece of a profiled run.

use atmesh::plan::Timeline;
use atmesh::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The fields by name, as text.
#[derive(Clone, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.into());
    }
}

/// All recorded spans and events.
#[derive(Default)]
struct Recorded {
    /// The spans, with their ids.
    spans: Vec<(u64, &'static str, Fields)>,
    open: Vec<u64>,
    /// The steps in order: `+lower`, `-lower`, and the names of events.
    steps: Vec<String>,
    /// The events, each with its enclosing span.
    events: Vec<(Option<&'static str>, Fields)>,
}

impl Recorded {
    fn name(&self, number: u64) -> &'static str {
        self.spans.iter().find(|s| s.0 == number).unwrap().1
    }
}

thread_local! {
    /// The recording of this thread; `None` if it does not record.
    static RECORDED: RefCell<Option<Recorded>> = const { RefCell::new(None) };
}

fn listening(f: impl FnOnce(&mut Recorded)) {
    RECORDED.with_borrow_mut(|recorded| recorded.as_mut().map(f));
}

/// The subscriber of the process. One per thread would work only with one test at a time: whether a
/// call site has a subscriber is cached for all threads, and may be queried on a thread that has
/// none.
struct Collects;

impl Subscriber for Collects {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target() == "atmesh"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        assert_eq!(*span.metadata().level(), Level::DEBUG);
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let mut fields = Fields::default();
        span.record(&mut fields);
        listening(|recorded| recorded.spans.push((number, span.metadata().name(), fields)));
        Id::from_u64(number)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        assert_eq!(*event.metadata().level(), Level::TRACE);
        let mut fields = Fields::default();
        event.record(&mut fields);
        listening(|recorded| {
            let within = recorded.open.last().map(|number| recorded.name(*number));
            recorded.steps.push(event.metadata().name().into());
            recorded.events.push((within, fields));
        });
    }
    fn enter(&self, id: &Id) {
        listening(|recorded| {
            recorded.steps.push(format!("+{}", recorded.name(id.into_u64())));
            recorded.open.push(id.into_u64());
        });
    }
    fn exit(&self, id: &Id) {
        listening(|recorded| {
            let last = recorded.open.pop();
            assert_eq!(last, Some(id.into_u64()), "spans end in the order in which they are nested");
            recorded.steps.push(format!("-{}", recorded.name(id.into_u64())));
        });
    }
}

/// Runs a function and returns the events that it emits on this thread.
fn recorded<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, Recorded)> {
    RECORDED.set(Some(Recorded::default()));
    let made = f()?;
    let recorded = RECORDED.take().unwrap();
    assert!(recorded.open.is_empty());
    Ok((made, recorded))
}

fn arguments() -> Result<(Array, Array)> {
    static SUBSCRIBES: Once = Once::new();
    SUBSCRIBES.call_once(|| tracing::subscriber::set_global_default(Collects).unwrap());
    let mesh = Mesh::new([("X", 4)])?;
    let (x, w) = (Array::ones([64, 32]).put(&mesh, p!["X"]), Array::ones([32, 32]).put(&mesh, p![]));
    x.to_vec::<f32>()?;
    w.to_vec::<f32>()?;
    Ok((x, w))
}

#[test]
fn each_stage_is_a_span() -> Result<()> {
    let (x, w) = arguments()?;
    let layer = jit(|x: &Array, w: &Array| x.dot(w).tanh()).engine(Threads);
    let (_, first) = recorded(|| layer.call((&x, &w)))?;
    let stages = ["+trace", "-trace", "+lower", "-lower", "+compile", "-compile", "+call", "-call"];
    assert_eq!(first.steps, stages);
    let fields = |name: &str| &first.spans.iter().find(|s| s.1 == name).unwrap().2.0;
    assert!(fields("trace")["location"].contains("tests/subscriber.rs:"), "{:?}", fields("trace"));
    assert_eq!(fields("compile")["engine"], "threads");
    assert_eq!(fields("call")["engine"], "threads");
    assert_eq!(fields("call")["location"], fields("trace")["location"]);
    // A program that was compiled before only runs.
    let (_, again) = recorded(|| layer.call((&x, &w)))?;
    assert_eq!(again.steps, ["+call", "-call"]);
    // Stage by stage, the spans are the same.
    let by_hand = jit(|x: &Array, w: &Array| x.dot(w).tanh()).engine(Threads);
    let (_, by_hand) = recorded(|| by_hand.trace((&x, &w))?.lower()?.compile()?.call((&x, &w)))?;
    assert_eq!(by_hand.steps, stages);
    // A stage that fails ends its span.
    let (error, failed) = recorded(|| Ok(jit(|x: &Array, w: &Array| x + w).call((&x, &w)).is_err()))?;
    assert!(error);
    assert_eq!(failed.steps, ["+trace", "-trace"]);
    Ok(())
}

#[test]
fn each_piece_of_a_measured_run_is_an_event_of_its_call() -> Result<()> {
    let (x, w) = arguments()?;
    let step = |x: &Array, w: &Array| grad(w, |w| x.dot(&w).tanh().square().sum(..));
    for engine in [Threads, Lockstep] {
        let compiled = jit(step).engine(engine).lower((&x, &w))?.compile()?;
        let ((_, timeline), recorded): ((Array, Timeline), Recorded) =
            recorded(|| compiled.profile((&x, &w)))?;
        let n = timeline.spans().len();
        let mut steps = vec!["+call"];
        steps.resize(n + 1, "measured");
        steps.push("-call");
        assert_eq!(recorded.steps, steps);
        // The events have the fields of the timeline, in its order.
        for ((within, Fields(f)), s) in recorded.events.iter().zip(timeline.spans()) {
            assert_eq!(*within, Some("call"));
            assert_eq!((f["track"].as_str(), f["kind"].as_str()), (&*s.track.to_string(), s.activity.name()));
            assert_eq!((&f["op"], &f["kernel"]), (&s.op, &s.kernel));
            assert_eq!(f.get("location"), s.source.map(|p| p.to_string()).as_ref());
            assert_eq!(f.get("phase").map(String::as_str), s.phase.map(|p| p.name()));
            let ns = |name: &str| f[name].parse::<u64>().unwrap() as f64 * 1e-9;
            assert!((ns("start_ns") - s.start).abs() < 1e-8, "{f:?}");
            assert!((ns("end_ns") - s.start - s.seconds).abs() < 1e-8, "{f:?}");
        }
        // All fields are filled in somewhere: lines and both phases occur.
        let some = |name: &str, value: &str| {
            recorded.events.iter().any(|(_, f)| f.0.get(name).is_some_and(|v| v.contains(value)))
        };
        assert!(some("location", "tests/subscriber.rs:") && some("op", "dot_general"), "{timeline}");
        assert!(some("phase", "forward") && some("phase", "backward"), "{timeline}");
    }
    Ok(())
}
