//! Processes that differ or fail on modules: each is an error in all of them, with both lines.

use crate::supervisor::{Ended, Process, free_port, now_ms, variables, wait_all};
use crate::{LIMIT, client, psum, relay, run, start};
use atmesh::Result;
use atmesh::distributed::init;

/// Process 1 compiles another program, at another line.
pub(crate) fn different_programs() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    println!("joined");
    match cluster.process() {
        1 => client.compile(&psum(n, 3), n)?,
        _ => client.compile(&psum(n, 4), n)?,
    };
    Ok(())
}

/// Process 1 compiles the same programs in another order.
pub(crate) fn another_order() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    println!("joined");
    let sizes = if cluster.process() == 1 { [2, 1] } else { [1, 2] };
    sizes.iter().try_for_each(|size| client.compile(&psum(n, *size), n).map(drop))
}

/// Process 1 runs two programs, whose blocks have the same types, in another order.
pub(crate) fn another_order_of_runs() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    let sum = client.compile(&psum(n, 4), n)?;
    let double = client.compile(&psum(n, 4).replace("stablehlo.add", "stablehlo.maximum"), n)?;
    println!("joined");
    let order = if cluster.process() == 1 { [&double, &sum] } else { [&sum, &double] };
    for module in order {
        run(module, client, |d| vec![d as f32; 4])?;
    }
    loop {
        cluster.barrier("the end of the order")?;
    }
}

/// The same program, compiled at different lines, is one program.
pub(crate) fn different_lines() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    let text = |line: usize| {
        let end = "sdy.return %s : tensor<4xf32>";
        psum(n, 4).replace(end, &format!("{end} loc(\"main.rs\":{line}:1)"))
    };
    let sum = match cluster.process() {
        1 => client.compile(&text(20), n)?,
        _ => client.compile(&text(31), n)?,
    };
    let total: f32 = (0..n).map(|d| d as f32).sum();
    assert_eq!(run(&sum, client, |d| vec![d as f32; 4])?, vec![vec![total; 4]; client.own_devices().len()]);
    cluster.barrier("the end")
}

/// The relay does not compile a module in a process with the variable `ATMESH_RELAY_FAILS`. No
/// process can run the module, and all of them can go on.
pub(crate) fn one_compilation_fails() -> Result<()> {
    let cluster = init()?;
    let (client, n) = (client(&cluster), client(&cluster).devices());
    println!("joined");
    let error = client.compile(&psum(n, 4), n).unwrap_err();
    println!("failed at {}: {error}", now_ms());
    cluster.barrier("after the failure")?;
    println!("went on");
    Ok(())
}

/// Returns the errors of processes with a role, which must come within 3 s.
fn errors(role: &str) -> Option<Vec<String>> {
    let all = start(role, 3, 1)?;
    all.iter().for_each(|process| process.wait_until_joined());
    let started = now_ms();
    let error = |ended: Ended| {
        let (time, text) = ended.error();
        assert!(time.saturating_sub(started) < 3000, "{} ms: {text}", time - started);
        text.to_string()
    };
    Some(wait_all(all, LIMIT).into_iter().map(error).collect())
}

#[test]
fn different_programs_are_an_error_in_all_with_the_first_line() {
    for role in ["differ", "order"] {
        for error in errors(role).unwrap_or_default() {
            for words in [
                "processes compile different programs: process ",
                "they first differ in line 3:",
                "process 1, tests/processes/relayed/failures.rs:",
                "tensor<",
                "help: make the same calls in the same order in all processes",
            ] {
                assert!(error.contains(words), "{words}: {error}");
            }
            assert!(error.matches("failures.rs:").count() >= 5, "{error}");
        }
    }
}

#[test]
fn another_order_of_runs_is_an_error_in_all() {
    for error in errors("run order").unwrap_or_default() {
        for words in ["processes made different calls: call 3 was program ", ", but program ", "process 1 ("]
        {
            assert!(error.contains(words), "{words}: {error}");
        }
        assert!(error.matches("failures.rs:").count() >= 3, "{error}");
    }
}

#[test]
fn programs_may_differ_in_their_lines() {
    let Some(all) = start("lines", 3, 1) else { return };
    wait_all(all, LIMIT).iter().for_each(Ended::assert_success);
}

#[test]
fn a_compilation_that_fails_in_one_process_is_an_error_in_all() {
    for victim in [0, 2] {
        let (port, Some(relay)) = (free_port(), relay()) else { return };
        let failing =
            |k| if k == victim { vec![("ATMESH_RELAY_FAILS", "compile".to_string())] } else { vec![] };
        let start = |k| {
            Process::start("compile failure", &[variables(k, 3, port), relay.clone(), failing(k)].concat())
        };
        let all: Vec<Process> = (0..3).map(start).collect();
        all.iter().for_each(|process| process.wait_for("joined"));
        let started = now_ms();
        for (k, ended) in wait_all(all, LIMIT).iter().enumerate() {
            let (time, error) = ended.error();
            assert!(error.contains("RESOURCE_EXHAUSTED") && error.contains("failures.rs:"), "{error}");
            let names = format!("another process cannot compile this program: process {victim} (");
            assert!(k == victim || error.contains(&names), "{error}");
            assert!(time - started < 3000, "{} ms: {error}", time - started);
            assert!(ended.stdout.contains("went on"), "{ended:#?}");
            ended.assert_success();
        }
    }
}
