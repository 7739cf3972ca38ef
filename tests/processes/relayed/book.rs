//! The outputs on the book's page "Several processes": those of the example `processes`.
//!
//! They are in `tests/golden/processes`. Names of hosts, ids of processes, ports and times are
//! replaced by fixed ones. `ATMESH_BLESS=1` writes the files again.

use crate::supervisor::{Ended, Process, free_port, now_ms, variables, wait_all};
use crate::{LIMIT, built, relay};
use std::time::Duration;

/// Starts the example in `n` processes.
fn start(n: usize, argument: &str, more: &[(&'static str, &str)]) -> Option<Vec<Process>> {
    let (relay, port) = (relay()?, free_port());
    let program = built::example("processes");
    let more: Vec<_> = more.iter().map(|(name, value)| (*name, value.to_string())).collect();
    let arguments: Vec<&str> = if argument.is_empty() { vec![] } else { vec![argument] };
    let start = |k| {
        let variables = [variables(k, n, port), relay.clone(), more.clone()].concat();
        Process::start_program(&program, &arguments, &variables)
    };
    Some((0..n).map(start).collect())
}

/// Replaces what differs between runs: `(HOST, pid 123)` by `(node1, pid 1000 + rank)`, ports by
/// 5000, fingerprints, and the numbers of calls and seconds that `times` allows.
fn normalized(text: &str, pids: &[u32], changes: &[(&str, &str)]) -> String {
    let mut text = text.to_string();
    for (rank, pid) in pids.iter().enumerate() {
        while let Some(end) = text.find(&format!(", pid {pid})")) {
            let start = text[..end].rfind('(').expect("the host is in parentheses");
            let close = end + format!(", pid {pid})").len();
            text.replace_range(start..close, &format!("(node1, pid {})", 1000 + rank));
        }
    }
    for (before, fixed) in [("127.0.0.1:", "5000"), ("program ", "3f6a0c5e9d21b784")].iter().chain(changes) {
        text = with_fixed_number(&text, before, fixed);
    }
    text
}

/// Replaces the digits (or hexadecimal digits, if they are 16) after each occurrence of `before`.
fn with_fixed_number(text: &str, before: &str, fixed: &str) -> String {
    let mut parts = text.split(before);
    let mut result = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let is_digit =
            |c: char| if fixed.len() == 16 { c.is_ascii_hexdigit() } else { c.is_ascii_digit() || c == '.' };
        let rest = part.trim_start_matches(is_digit);
        let number = &part[..part.len() - rest.len()];
        let is_replaced = !number.is_empty() && (fixed.len() != 16 || number.len() == 16);
        result += before;
        result += if is_replaced { fixed } else { number };
        result += rest;
    }
    result
}

/// Replaces the position of a process between two calls by that in a call.
fn in_call(text: &str) -> String {
    text.replace("left call 57", "is in call 57").replace(", and has not begun the next", "")
}

/// Compares an output with `tests/golden/NAME.txt`.
fn compare(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("ATMESH_BLESS").is_some() {
        std::fs::write(&path, text).expect("the file can be written");
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(text == golden, "{path} differs (ATMESH_BLESS=1 writes it):\n{text}");
}

/// Waits until heartbeats report that the processes take steps.
fn wait_for_steps(process: &Process) {
    process.wait_for("step 100");
    std::thread::sleep(Duration::from_millis(300));
}

fn pids(all: &[Process]) -> Vec<u32> {
    all.iter().map(Process::pid).collect()
}

/// Returns what a process printed as its error.
fn error(ended: &Ended) -> &str {
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    ended.stderr.strip_prefix("Error: ").unwrap_or(&ended.stderr)
}

#[test]
fn the_example_prints_the_same_losses_in_any_number_of_processes() {
    let Some(all) = start(4, "", &[]) else { return };
    let all = wait_all(all, LIMIT);
    all.iter().for_each(Ended::assert_success);
    compare("processes", &all[0].stdout);
    assert!(all[1..].iter().all(|ended| ended.stdout.is_empty()), "{all:?}");
    let one = Process::start_program(&built::example("processes"), &[], &[]).wait(LIMIT);
    assert_eq!(one.stdout, all[0].stdout);
}

#[test]
fn mistakes_of_one_process_are_the_errors_of_the_book() {
    for (name, check) in [("rate", "0"), ("read", "0"), ("seed", "1")] {
        // of two, so that the error names the same processes each time
        let Some(all) = start(2, name, &[("ATMESH_CHECK", check)]) else { return };
        let pids = pids(&all);
        let all = wait_all(all, LIMIT);
        let text = normalized(error(&all[1]), &pids, &[]);
        assert!(text.contains("process 1 (node1, pid 1001)"), "process 1 is not named: {text}");
        compare(&format!("processes/{name}"), &text);
    }
}

#[test]
fn a_death_is_the_error_of_the_book() {
    let Some(mut all) = start(4, "1000000", &[]) else { return };
    wait_for_steps(&all[0]);
    let pids = pids(&all);
    let killed = now_ms();
    all.remove(2).kill();
    let all = wait_all(all, LIMIT);
    assert!(now_ms() - killed < 4000);
    let text = normalized(error(&all[0]), &pids, &[("call ", "57")]);
    // the words of the plugin follow, if it was in a call
    let (first, _) = text.split_once("\n\n").unwrap_or((text.trim_end(), ""));
    compare("processes/killed", &format!("{}\n", in_call(first)));
}

#[test]
fn a_stopped_process_is_the_report_of_the_book() {
    let Some(all) = start(4, "1200", &[]) else { return };
    wait_for_steps(&all[0]);
    let pids = pids(&all);
    all[1].signal("STOP");
    std::thread::sleep(Duration::from_millis(2500));
    all[1].signal("CONT");
    let all = wait_all(all, LIMIT);
    all.iter().for_each(Ended::assert_success);
    let text = normalized(&all[0].stderr, &pids, &[("call ", "57"), ("for ", "1.2")]);
    compare("processes/stopped", &in_call(&text));
}

#[test]
fn a_missing_process_is_the_error_of_the_book() {
    let (port, Some(relay)) = (free_port(), relay()) else { return };
    let mut variables = [variables(0, 4, port), relay].concat();
    variables.retain(|(name, _)| *name != "ATMESH_JOIN_TIMEOUT");
    variables.push(("ATMESH_JOIN_TIMEOUT", "6".into()));
    let process = Process::start_program(&built::example("processes"), &[], &variables);
    let pids = vec![process.pid()];
    let ended = process.wait(LIMIT);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    compare("processes/missing", &normalized(&ended.stderr, &pids, &[("after ", "5.0")]));
}
