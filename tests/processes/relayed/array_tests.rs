//! Tests of arrays in several processes, whose programs are in `arrays.rs` and `programs.rs`.

use super::supervisor::{Ended, Process, free_port, now_ms, variables, wait_all};
use super::{LIMIT, relay, start};

#[test]
fn arrays_are_those_of_one_process() {
    for (role, processes, devices) in
        [("layers", 4, 2), ("layers", 8, 1), ("own blocks", 2, 4), ("own blocks", 4, 2)]
    {
        let Some(all) = start(role, processes, devices) else { return };
        wait_all(all, LIMIT).iter().for_each(Ended::assert_success);
    }
}

#[test]
fn programs_are_those_of_one_process() {
    for role in ["control flow", "placements", "texts", "refusals"] {
        let Some(all) = start(role, 2, 2) else { return };
        wait_all(all, LIMIT).iter().for_each(Ended::assert_success);
    }
    for (processes, devices) in [(2, 2), (3, 2), (4, 1)] {
        let Some(all) = start("local parts", processes, devices) else { return };
        wait_all(all, LIMIT).iter().for_each(Ended::assert_success);
    }
}

#[test]
fn processes_run_programs_of_their_own() {
    let Some(all) = start("own programs", 2, 2) else { return };
    wait_all(all, LIMIT * 2).iter().for_each(Ended::assert_success);
}

#[test]
fn processes_compare_their_data_if_asked() {
    for what in ["argument", "placed", "replica"] {
        let (port, Some(more)) = (free_port(), relay()) else { return };
        let asked = vec![("ATMESH_CHECK", "1".to_string()), ("ATMESH_TEST_DATA", what.to_string())];
        let more = [more, asked].concat();
        let all: Vec<Process> = (0..3)
            .map(|k| Process::start("different data", &[variables(k, 3, port), more.clone()].concat()))
            .collect();
        all.iter().for_each(|process| process.wait_for("placed"));
        let started = now_ms();
        for ended in wait_all(all, LIMIT) {
            let (time, error) = ended.error();
            assert!(error.contains("differs"), "{error}");
            assert!(error.contains("programs.rs:"), "{error}");
            assert!(time.saturating_sub(started) < 3000, "{} ms: {error}", time - started);
        }
    }
}

#[test]
fn a_read_of_an_array_by_one_process_is_an_error_in_all() {
    let Some(all) = start("one read", 3, 1) else { return };
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(error.contains("processes made different calls"), "{error}");
    }
}

#[test]
fn a_cluster_that_is_dropped_too_early_is_an_error() {
    let Some(all) = start("dropped", 2, 1) else { return };
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        println!("{error}");
        assert!(error.contains("programs.rs:") && error.contains("has left the others"), "{error}");
    }
}

#[test]
fn another_engine_in_the_environment_is_an_error() {
    let (port, Some(more)) = (free_port(), relay()) else { return };
    let more = [more, vec![("ATMESH_ENGINE", "lockstep".to_string())]].concat();
    let all =
        (0..2).map(|k| Process::start("join", &[variables(k, 2, port), more.clone()].concat())).collect();
    for ended in wait_all(all, LIMIT) {
        let error = ended.error().1;
        assert!(error.contains("2 processes, and the engine lockstep runs in one"), "{error}");
        assert!(error.contains("ATMESH_ENGINE") && error.contains("main.rs:"), "{error}");
    }
}
