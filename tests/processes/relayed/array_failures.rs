//! Programs on arrays whose processes die, stop or differ: each is an error in all of them.

use crate::supervisor::{Ended, Process, free_port, kill_one, now_ms, variables, wait_all};
use crate::{LIMIT, relay, start};
use atmesh::distributed::{Cluster, init};
use atmesh::prelude::*;
use std::time::{Duration, Instant};

/// Weights and a batch of data, and the mesh of all devices.
struct Task {
    cluster: Cluster,
    weights: Array,
    batch: Array,
}

fn task() -> Result<Task> {
    let cluster = init()?;
    let mesh = Mesh::new([("data", cluster.devices())])?;
    let weights = Key::new(1).normal([8]).put(&mesh, p![]);
    let batch = Key::new(2).normal([2 * cluster.devices(), 8]).put(&mesh, p!["data"]);
    println!("joined");
    Ok(Task { cluster, weights, batch })
}

fn step(weights: &Array, batch: &Array, rate: f64) -> Array {
    weights - rate * grad(weights, |w| batch.dot(&w).square().mean(..))
}

pub(crate) fn train_until_it_fails() -> Result<()> {
    let Task { cluster: _cluster, mut weights, batch } = task()?;
    let step = jit(|w: &Array, x: &Array| step(w, x, 0.01));
    loop {
        weights = step.call((&weights, &batch))?;
        weights.sum(..).item::<f32>()?;
        println!("stepped");
    }
}

/// Steps for some seconds; process 0 says when the last one is.
pub(crate) fn train_for_some_time() -> Result<()> {
    let Task { cluster, mut weights, batch } = task()?;
    let step = jit(|w: &Array, x: &Array| step(w, x, 0.01));
    let seconds: f64 = std::env::var("ATMESH_TEST_SECONDS").map_or(4.0, |s| s.parse().expect("seconds"));
    let start = Instant::now();
    while cluster.broadcast(&[u8::from(start.elapsed().as_secs_f64() < seconds)])? == [1] {
        weights = step.call((&weights, &batch))?;
    }
    assert!(weights.sum(..).item::<f32>()?.is_finite());
    println!("ended");
    Ok(())
}

pub(crate) fn compile_until_it_fails() -> Result<()> {
    let Task { cluster: _cluster, weights, batch } = task()?;
    for k in 0.. {
        let step = jit(|w: &Array, x: &Array| step(w, x, f64::from(k)));
        step.call((&weights, &batch)).map(drop)?;
        println!("stepped");
    }
    Ok(())
}

pub(crate) fn idle_until_it_fails() -> Result<()> {
    let Task { cluster, .. } = task()?;
    println!("stepped");
    loop {
        cluster.check()?;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Process 1 captures another learning rate, which is a constant of the program.
pub(crate) fn different_constants() -> Result<()> {
    let Task { cluster, weights, batch } = task()?;
    let rate = if cluster.process() == 1 { 0.02 } else { 0.01 };
    jit(|w: &Array, x: &Array| step(w, x, rate)).call((&weights, &batch)).map(drop)
}

/// Process 1 runs two compiled programs in another order.
pub(crate) fn another_order() -> Result<()> {
    let Task { cluster, weights, batch } = task()?;
    let slow = jit(|w: &Array, x: &Array| step(w, x, 0.01));
    let fast = jit(|w: &Array, x: &Array| step(w, x, 0.1));
    let mut both = [&slow, &fast];
    both.iter().try_for_each(|step| step.call((&weights, &batch)).map(drop))?;
    cluster.barrier("both are compiled")?;
    if cluster.process() == 1 {
        both.reverse();
    }
    both.iter().try_for_each(|step| step.call((&weights, &batch)).map(drop))?;
    cluster.barrier("the end")
}

/// Process 1 has one batch more than the others.
pub(crate) fn one_step_more() -> Result<()> {
    let Task { cluster, mut weights, batch } = task()?;
    let step = jit(|w: &Array, x: &Array| step(w, x, 0.01));
    for _ in 0..if cluster.process() == 1 { 4 } else { 3 } {
        weights = step.call((&weights, &batch))?;
    }
    weights.sum(..).item::<f32>()?;
    Ok(())
}

/// Process 1 reads an array whose blocks are on all processes, and the others do not.
pub(crate) fn one_read_more() -> Result<()> {
    let Task { cluster, batch, .. } = task()?;
    if cluster.process() == 1 {
        batch.to_vec::<f32>()?;
    }
    cluster.barrier("the end")
}

/// The processes leave one another because the `Cluster` is dropped at once.
pub(crate) fn the_cluster_is_dropped() -> Result<()> {
    let Task { weights, batch, .. } = task()?;
    jit(|w: &Array, x: &Array| step(w, x, 0.01)).call((&weights, &batch)).map(drop)
}

/// A program runs on the plugin before the processes join.
pub(crate) fn a_program_before_joining() -> Result<()> {
    let twice = jit(|x: &Array| x + x).engine(EngineKind::Xla).call(Array::ones([2]))?;
    assert_eq!(twice.to_vec::<f32>()?, [2.0; 2]);
    init().map(drop)
}

/// Returns the errors of processes with a role, which must come within 3 s.
fn errors(role: &str) -> Option<Vec<String>> {
    let all = start(role, 3, 1)?;
    all.iter().for_each(|process| process.wait_until_joined());
    let started = now_ms();
    let error = |ended: Ended| {
        let (time, text) = ended.error();
        println!("{role}: {} ms: {text}", time.saturating_sub(started));
        assert!(time.saturating_sub(started) < 3500, "{} ms: {text}", time - started);
        text.to_string()
    };
    Some(wait_all(all, LIMIT).into_iter().map(error).collect())
}

/// Checks that each error has all of these words, and two lines of this file.
fn check(role: &str, words: &[&str]) {
    for error in errors(role).unwrap_or_default() {
        for words in words.iter().chain(&["help: ", "process 1 ("]) {
            assert!(error.contains(words), "{role}: {words}: {error}");
        }
        assert!(error.matches("array_failures.rs:").count() >= 3, "{role}: {error}");
    }
}

#[test]
fn a_death_is_named_on_arrays() {
    let cases = [
        ("array loop", 0),
        ("array loop", 1),
        ("array loop", 3),
        ("array compile", 0),
        ("array compile", 3),
        ("array idle", 1),
    ];
    for (role, victim) in cases {
        let Some(all) = start(role, 4, 1) else { return };
        all.iter().for_each(|process| process.wait_for("stepped"));
        std::thread::sleep(Duration::from_millis(150));
        kill_one(role, all, victim, "array_failures.rs", LIMIT);
    }
}

#[test]
fn a_stopped_process_is_reported_once_and_training_ends_in_order() {
    let seconds = if std::env::var_os("ATMESH_SOAK").is_some() { 10 } else { 3 };
    let (port, Some(relay)) = (free_port(), relay()) else { return };
    let time = ("ATMESH_TEST_SECONDS", (seconds + 2).to_string());
    let start = |k| {
        Process::start("array steps", &[variables(k, 3, port), relay.clone(), vec![time.clone()]].concat())
    };
    let all: Vec<Process> = (0..3).map(start).collect();
    all.iter().for_each(|process| process.wait_for("joined"));
    all[1].signal("STOP");
    std::thread::sleep(Duration::from_secs(seconds));
    all[1].signal("CONT");
    let all = wait_all(all, LIMIT);
    all.iter().for_each(Ended::assert_success);
    let reports: Vec<&str> =
        all.iter().flat_map(|e| e.stderr.lines()).filter(|line| line.starts_with("atmesh: ")).collect();
    assert_eq!(reports.len(), 2, "{reports:#?}");
    assert!(
        reports[0].contains("process 1 (") && reports[0].contains("has been silent for 1."),
        "{reports:#?}"
    );
    assert!(reports[1].contains("sends again"), "{reports:#?}");
}

#[test]
fn patience_makes_a_stopped_process_an_error_on_arrays() {
    let (port, Some(relay)) = (free_port(), relay()) else { return };
    let patience = ("ATMESH_PATIENCE", "3".to_string());
    let start = |k| {
        Process::start("array loop", &[variables(k, 3, port), relay.clone(), vec![patience.clone()]].concat())
    };
    let mut all: Vec<Process> = (0..3).map(start).collect();
    all.iter().for_each(|process| process.wait_for("stepped"));
    let stopped = now_ms();
    all[1].signal("STOP");
    let victim = all.remove(1);
    for ended in wait_all(all, LIMIT) {
        let (time, error) = ended.error();
        assert!(error.contains("process 1 (") && error.contains("silent for"), "{error}");
        assert!(time - stopped < 4000, "{} ms: {error}", time - stopped);
    }
    victim.signal("CONT");
    let ended = victim.wait(LIMIT);
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
}

#[test]
fn programs_that_differ_are_an_error_in_all() {
    let differ = "processes compile different programs: process ";
    check("array rate", &[differ, "they first differ in line ", "stablehlo.constant"]);
    let calls = "processes made different calls: call ";
    check("array order", &[calls, " was program ", ", but program "]);
}

#[test]
fn a_step_or_a_read_of_one_process_is_an_error_in_all() {
    check("array one more", &["processes "]);
    check("array read", &["processes made different calls: ", "barrier `the end`"]);
}

#[test]
fn a_cluster_that_is_dropped_is_an_error_with_its_reason() {
    let Some(all) = start("array left", 2, 1) else { return };
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(error.contains("this process has left the others"), "{error}");
        assert!(error.contains("help: keep the `Cluster` until the end"), "{error}");
    }
}

#[test]
fn joining_after_a_program_is_an_error() {
    let Some(all) = start("program first", 2, 1) else { return };
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(error.contains("has run a program on XLA before") || error.contains("is gone"), "{error}");
        assert!(error.contains("array_failures.rs:") && error.contains("help: "), "{error}");
    }
}

#[test]
fn processes_that_compare_data_and_those_that_do_not_cannot_join() {
    let (port, Some(relay)) = (free_port(), relay()) else { return };
    let compare = |k: usize| vec![("ATMESH_CHECK", k.to_string())];
    let start = |k| Process::start("join", &[variables(k, 2, port), relay.clone(), compare(k)].concat());
    for ended in wait_all((0..2).map(start).collect(), LIMIT) {
        let error = ended.error().1;
        assert!(error.contains("has ATMESH_CHECK on, but process 0 ("), "{error}");
    }
}
