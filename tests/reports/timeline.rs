//! Profiles of runs: every kernel on every device, with its source line, and the same results as
//! without profiling.

use crate::error_checks::Unquoted as _;
use atmesh::plan::{Activity, Link, Machine, Timeline};
use atmesh::prelude::*;
use atmesh::{EngineKind, Phase};

/// The line of the loop in [`step`].
const LOOP_LINE: u32 = line!() + 3;
fn step(x: &Array, w: &Array) -> (Array, Array) {
    let loss = |w: Array| {
        let h = fori_loop(0..3, x, |_, h: Array| h.dot(&w).tanh());
        h.square().mean(..)
    };
    value_and_grad(w, loss)
}

fn arguments() -> Result<(Array, Array)> {
    let mesh = Mesh::new([("X", 4)])?;
    let [a, b] = Key::new(5).split();
    Ok((a.normal([256, 64]).put(&mesh, p!["X"]), (b.normal([64, 64]) * 0.1).put(&mesh, p![])))
}

fn timed(engine: EngineKind) -> Result<(Vec<f32>, Timeline)> {
    let (x, w) = arguments()?;
    let compiled = jit(step).engine(engine).lower((&x, &w))?.compile()?;
    let plain = compiled.call((&x, &w))?;
    let ((loss, g), timeline) = compiled.profile((&x, &w))?;
    assert_eq!(loss.to_vec::<f32>()?, plain.0.to_vec::<f32>()?, "the same bits");
    assert_eq!(g.to_vec::<f32>()?, plain.1.to_vec::<f32>()?);
    Ok((g.to_vec()?, timeline))
}

#[test]
fn each_track_does_one_thing_at_a_time_within_the_call() -> Result<()> {
    for engine in [Threads, Lockstep] {
        let (_, t) = timed(engine)?;
        assert_eq!(t.engine(), engine.to_string());
        assert!(t.seconds() > 0.0 && !t.spans().is_empty());
        for track in 0..t.tracks() {
            let mut at = 0.0;
            for s in t.spans().iter().filter(|s| s.track == track) {
                assert!(s.start >= at - 1e-9 && s.seconds >= 0.0, "{t}");
                at = s.start + s.seconds;
            }
            assert!(at <= t.seconds() + 1e-9, "{at} of {}", t.seconds());
            let all = [Activity::Kernel, Activity::Combine, Activity::Wait].map(|d| t.busy(track, d));
            assert!(all.iter().sum::<f64>() <= t.seconds() + 1e-6, "{t}");
        }
    }
    Ok(())
}

#[test]
fn spans_have_operations_lines_and_phases() -> Result<()> {
    let (_, t) = timed(Threads)?;
    assert_eq!(t.tracks(), 4);
    // At least one product for each iteration of the loop: a small product is a single device's
    // task.
    let products = t.spans().iter().filter(|s| s.op == "dot_general" && s.activity == Activity::Kernel);
    assert!(products.filter(|s| s.phase == Some(Phase::Forward)).count() >= 3, "{t}");
    // Elementwise operations are shared among all workers.
    let shared = |track| t.spans().iter().any(|s| s.track == track && s.activity == Activity::Kernel);
    assert!((0..4).all(shared), "{t}");
    let lines: Vec<u32> =
        t.spans().iter().filter(|s| s.op == "dot_general").filter_map(|s| Some(s.source?.line())).collect();
    assert!(lines.iter().all(|l| *l == LOOP_LINE), "{lines:?}");
    assert!(t.spans().iter().any(|s| s.phase == Some(Phase::Backward)), "{t}");
    assert!(t.spans().iter().any(|s| s.activity == Activity::Wait), "devices wait for one another: {t}");
    // The gradient's sum over devices.
    assert!(
        t.spans().iter().any(|s| s.activity == Activity::Combine && s.phase == Some(Phase::Backward)),
        "{t}"
    );
    Ok(())
}

#[test]
fn a_timeline_goes_out_in_the_forms_of_a_plan() -> Result<()> {
    let (_, t) = timed(Threads)?;
    let text = t.to_string();
    assert!(
        text.starts_with("engine threads, 4 devices\n")
            && text.contains(&format!("tests/reports/timeline.rs:{LOOP_LINE}")),
        "{text}"
    );
    let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("it is JSON");
    let json = parsed(&t.to_json());
    assert_eq!(json["spans"].as_array().map(Vec::len), Some(t.spans().len()));
    assert_eq!(json["tracks"], 4);
    let events = t.to_perfetto();
    let list = parsed(&events);
    let drawn = list["traceEvents"].as_array().into_iter().flatten().filter(|e| e["ph"] == "X");
    assert_eq!(drawn.count(), t.spans().len());
    assert!(events.contains("\"args\":{\"name\":\"device 3\"}"), "{events}");
    let page = t.to_html("https://example.org/");
    assert!(
        page.contains(&format!(
            "<a href=\"https://example.org/tests/reports/timeline.rs#L{LOOP_LINE}\">tests/reports/timeline.rs:{LOOP_LINE}</a>"
        )),
        "{page}"
    );
    Ok(())
}

#[test]
fn what_was_planned_is_beside_what_was_measured() -> Result<()> {
    let (x, w) = arguments()?;
    let lowered = jit(step).engine(Threads).lower((&x, &w))?;
    let plan =
        lowered.plan(&Machine::new("host").flops(F32, 1e10).memory(1e9, 1e9).links(Link::switch(1e9)))?;
    let timeline = lowered.compile()?.profile((&x, &w))?.1;
    let both = timeline.compare(&plan);
    assert_eq!((both.planned, both.measured), (plan.seconds(), timeline.seconds()));
    let row = both.rows.iter().find(|r| r.op == "dot_general" && r.phase == Phase::Forward);
    let row = row.unwrap_or_else(|| panic!("{both}"));
    assert!(row.planned > 0.0 && row.measured > 0.0, "{both}");
    // The planned time is the sum over all rows.
    let planned: f64 = both.rows.iter().map(|r| r.planned).sum();
    assert!((planned / plan.seconds() - 1.0).abs() < 1e-6, "{planned} {}", plan.seconds());
    assert!(both.to_string().contains("one call"), "{both}");
    Ok(())
}

#[test]
fn an_engine_without_times_says_so() -> Result<()> {
    let (x, w) = arguments()?;
    let compiled = jit(step).engine(EngineKind::Reference).lower((&x, &w))?.compile()?;
    let error = compiled.profile((&x, &w)).expect_err("the reference keeps none").unquoted();
    assert!(error.contains("the engine reference records no times"), "{error}");
    Ok(())
}
