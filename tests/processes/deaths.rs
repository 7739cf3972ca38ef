//! Processes that die, stop, differ or end early.

use crate::supervisor::{Ended, Process, free_port, kill_one, now_ms, start_all, variables, wait_all};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Kills process `victim` of four, and checks that each other one names it within 2 s, and ends.
fn check_kill(role: &str, victim: usize, ready: &str) {
    let all = start_all(role, 4, free_port(), &[]);
    all.iter().for_each(|process| process.wait_for(ready));
    std::thread::sleep(Duration::from_millis(100));
    for ended in kill_one(role, all, victim, "roles.rs", LIMIT) {
        assert_eq!(ended.status.code(), Some(3));
    }
}

#[test]
fn a_death_in_a_call_is_named_everywhere() {
    (0..4).for_each(|victim| check_kill("barriers", victim, "joined"));
}

#[test]
fn a_death_in_host_code_is_named_everywhere() {
    [0, 2, 3].into_iter().for_each(|victim| check_kill("idle", victim, "joined"));
}

#[test]
fn a_death_while_joining_is_named_everywhere() {
    for victim in [0, 1] {
        // process 3 does not start
        let port = free_port();
        let mut all: Vec<Process> = (0..3).map(|k| Process::start("join", &variables(k, 4, port))).collect();
        std::thread::sleep(Duration::from_millis(700));
        let victim_process = all.remove(victim);
        let name = format!("process {victim} (");
        let killed = now_ms();
        victim_process.kill();
        for ended in wait_all(all, LIMIT) {
            let (time, error) = ended.error();
            assert!(error.contains(&name) && error.contains("is gone"), "{error}");
            assert!(time.saturating_sub(killed) < 2000, "{error}");
        }
    }
}

/// Returns the lines of reports that the processes printed.
fn reports(all: &[Ended]) -> Vec<&str> {
    all.iter().flat_map(|ended| ended.stderr.lines()).filter(|line| line.starts_with("atmesh: ")).collect()
}

#[test]
fn a_stopped_process_is_reported_once_and_the_run_ends_in_order() {
    for victim in [0, 1, 3] {
        let seconds = if std::env::var_os("ATMESH_SOAK").is_some() { 10 } else { 4 };
        let run = [("ATMESH_TEST_SECONDS", if seconds == 10 { "12" } else { "6" })];
        let all = start_all("barriers", 4, free_port(), &run);
        all.iter().for_each(|process| process.wait_for("joined"));
        let pid = all[victim].pid();
        all[victim].signal("STOP");
        std::thread::sleep(Duration::from_secs(seconds));
        all[victim].signal("CONT");
        let all = wait_all(all, LIMIT);
        all.iter().for_each(Ended::assert_success);
        let reports = reports(&all);
        assert_eq!(reports.len(), 2, "{reports:#?}");
        assert!(reports[0].contains(&format!("process {victim} (")), "{reports:#?}");
        assert!(reports[0].contains(&format!("pid {pid}) has been silent for 1.")), "{reports:#?}");
        assert!(reports[1].contains("sends again"), "{reports:#?}");
    }
}

#[test]
fn patience_makes_a_stopped_process_an_error() {
    for victim in [0, 2] {
        let mut all = start_all("barriers", 3, free_port(), &[("ATMESH_PATIENCE", "3")]);
        all.iter().for_each(|process| process.wait_for("joined"));
        let stopped = now_ms();
        all[victim].signal("STOP");
        let victim_process = all.remove(victim);
        for ended in wait_all(all, LIMIT) {
            let (time, error) = ended.error();
            assert!(
                error.contains(&format!("process {victim} (")) && error.contains("silent for"),
                "{error}"
            );
            assert!((2900..4000).contains(&(time - stopped)), "{} ms: {error}", time - stopped);
        }
        // it learns that the others have given it up
        victim_process.signal("CONT");
        let ended = victim_process.wait(LIMIT);
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    }
}

#[test]
fn a_process_that_is_late_is_reported_once() {
    let all = wait_all(start_all("slow", 3, free_port(), &[]), LIMIT);
    all.iter().for_each(Ended::assert_success);
    let reports = reports(&all);
    assert_eq!(reports.len(), 1, "{reports:#?}");
    assert!(reports[0].contains("call 2 (barrier `second`, "), "{reports:#?}");
    assert!(reports[0].contains("s for process 1 ("), "{reports:#?}");
    // with patience it is an error in all
    for ended in wait_all(start_all("slow", 3, free_port(), &[("ATMESH_PATIENCE", "2")]), LIMIT) {
        let error = ended.error().1;
        assert!(error.contains("did not come to call 2 (barrier `second`, "), "{error}");
        assert!(error.contains("left call 1, barrier `first`, "), "{error}");
    }
}

#[test]
fn different_calls_are_an_error_in_all_with_both_lines() {
    for ended in wait_all(start_all("differ", 3, free_port(), &[]), LIMIT) {
        let error = ended.error().1;
        for words in ["processes made different calls", "barrier `other`", "barrier `usual`"] {
            assert!(error.contains(words), "{error}");
        }
        assert!(error.matches("roles.rs:").count() >= 3, "{error}");
    }
}

#[test]
fn a_process_that_ends_early_is_named() {
    let all = wait_all(start_all("early end", 3, free_port(), &[]), LIMIT);
    for ended in &all[..2] {
        let error = ended.error().1;
        assert!(
            error.contains("process 2 (") && error.contains("has ended, and does not come to"),
            "{error}"
        );
    }
    all[2].assert_success();
}

#[test]
fn a_process_that_panics_or_exits_is_named() {
    for (role, code) in [("panic", 101), ("exit", 5)] {
        let all = wait_all(start_all(role, 3, free_port(), &[]), LIMIT);
        for k in [0, 2] {
            let error = all[k].error().1;
            assert!(error.contains("process 1 (") && error.contains("is gone"), "{error}");
        }
        assert_eq!(all[1].status.code(), Some(code), "{:?}", all[1]);
    }
}
