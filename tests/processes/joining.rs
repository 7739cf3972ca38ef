//! Joining, leaving, and what prevents them.

use crate::supervisor::{Process, free_port, start_all, variables, wait_all};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn one_process_starts_no_thread_and_opens_no_socket() {
    for variables in [vec![], variables(0, 1, 1), vec![("PMI_SIZE", "1".into()), ("PMI_RANK", "0".into())]] {
        let ended = Process::start("alone", &variables).wait(LIMIT);
        ended.assert_success();
        let counts = ended.stdout.lines().find_map(|line| line.strip_prefix("counts ")).unwrap();
        let (before, after) = counts.split_at(counts.len() / 2);
        assert_eq!(before.trim(), after.trim());
    }
}

#[test]
fn processes_start_and_end_without_traces() {
    let rounds = if std::env::var_os("ATMESH_SOAK").is_some() { 50 } else { 5 };
    for round in 0..rounds {
        let (port, start) = (free_port(), Instant::now());
        let all = wait_all(start_all("calls", 8, port, &[]), LIMIT);
        for ended in &all {
            ended.assert_success();
            assert!(ended.stdout.contains("done\n") && ended.stderr.is_empty(), "{ended:#?}");
        }
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "round {round}: port {port} is open");
        println!("round {round}: {:.3} s", start.elapsed().as_secs_f64());
    }
}

#[test]
fn mpi_and_slurm_variables_join() {
    let slurm = |k: usize| {
        vec![
            ("SLURM_STEP_NODELIST", "node7".to_string()),
            ("SLURM_JOB_ID", std::process::id().to_string()),
            ("SLURM_STEP_ID", "0".into()),
            ("SLURM_NTASKS", "3".into()),
            ("SLURM_PROCID", k.to_string()),
            ("SLURM_LOCALID", k.to_string()),
            ("SLURM_STEP_NUM_NODES", "1".into()),
        ]
    };
    // the processes have one parent, as those of `mpirun`
    let mpi = |k: usize| {
        vec![
            ("OMPI_COMM_WORLD_RANK", k.to_string()),
            ("OMPI_COMM_WORLD_SIZE", "3".into()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", k.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "3".into()),
        ]
    };
    for environment in [&slurm as &dyn Fn(usize) -> Vec<(&'static str, String)>, &mpi] {
        let all: Vec<Process> = (0..3).map(|k| Process::start("calls", &environment(k))).collect();
        wait_all(all, LIMIT).iter().for_each(|ended| ended.assert_success());
    }
}

/// The programs of `ATMESH_MPIRUN` (separated by colons), or `mpirun`, start processes that join.
#[test]
fn mpirun_starts_processes_that_join() {
    let launchers = std::env::var("ATMESH_MPIRUN").unwrap_or_else(|_| "mpirun".into());
    for launcher in launchers.split(':') {
        let mut command = std::process::Command::new(launcher);
        // Open MPI refuses these by default; MPICH ignores the variables
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT"] {
            command.env(name, "1");
        }
        command
            .env("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        command.env(crate::supervisor::ROLE, "calls").args(["-n", "3"]);
        let program = std::env::current_exe().unwrap();
        match command.arg(program).args(["child", "--exact", "--nocapture"]).output() {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{output:?}");
                assert_eq!(text.matches("done").count(), 3, "{text}");
                assert!(
                    text.contains("process 2 of 3 (Open MPI)") || text.contains("process 2 of 3 (MPICH"),
                    "{text}"
                );
            }
            Err(why) => println!("**** SKIPPED: {launcher} does not start: {why}"),
        }
    }
}

/// Runs processes with these variables, and returns the error of each.
fn errors(all: &[Vec<(&'static str, String)>]) -> Vec<String> {
    let all: Vec<Process> = all.iter().map(|variables| Process::start("join", variables)).collect();
    wait_all(all, LIMIT).iter().map(|ended| ended.error().1.to_string()).collect()
}
fn with(
    mut variables: Vec<(&'static str, String)>,
    name: &'static str,
    value: &str,
) -> Vec<(&'static str, String)> {
    variables.push((name, value.into()));
    variables
}

#[test]
fn a_mesh_without_a_plugin_of_several_processes_is_an_error() {
    for ended in wait_all(start_all("mesh", 2, free_port(), &[]), LIMIT) {
        let error = ended.error().1;
        assert!(
            error.contains("there are 2 processes, and the engine that runs programs on meshes"),
            "{error}"
        );
        assert!(error.contains("roles.rs:") && error.contains("ATMESH_PJRT_PLUGIN"), "{error}");
    }
}

#[test]
fn two_processes_of_one_rank_are_an_error_in_all() {
    let port = free_port();
    let found = errors(&[variables(0, 3, port), variables(1, 3, port), variables(1, 3, port)]);
    for error in found {
        assert!(error.contains("two processes have rank 1: process 1 ("), "{error}");
        assert!(error.contains("help: start each process with another rank"), "{error}");
    }
}

#[test]
fn different_numbers_of_processes_are_an_error_in_all() {
    let port = free_port();
    for error in errors(&[variables(0, 2, port), variables(1, 4, port)]) {
        assert!(error.contains("is one of 4 processes, but process 0 ("), "{error}");
    }
}

#[test]
fn a_process_that_does_not_come_is_reported_and_then_an_error() {
    let port = free_port();
    let start = |k| Process::start("join", &with(variables(k, 4, port), "ATMESH_JOIN_TIMEOUT", "6"));
    let all = wait_all(vec![start(0), start(2)], LIMIT);
    for ended in &all {
        let error = ended.error().1;
        assert!(error.contains("processes 1 and 3 of 4 have not joined within 6.0 s"), "{error}");
        assert!(error.contains("roles.rs:"), "{error}");
    }
    let report = &all[0].stderr;
    assert!(
        report.starts_with("atmesh: processes 1 and 3 of 4 have not joined after 5.0 s (process 0 ("),
        "{report}"
    );
    assert_eq!(report.lines().count(), 1, "{report}");
    assert_eq!(all[1].stderr, "");
}

#[test]
fn a_coordinator_that_is_not_there_is_reported_and_then_an_error() {
    let ended =
        Process::start("join", &with(variables(1, 2, free_port()), "ATMESH_JOIN_TIMEOUT", "6")).wait(LIMIT);
    let error = ended.error().1;
    assert!(
        error.contains("found no process 0 at 127.0.0.1:") && error.contains("within 6.0 s: "),
        "{error}"
    );
    assert!(error.contains("is this machine: if process 0 is on another one"), "{error}");
    assert!(ended.stderr.contains("waits for process 0 at 127.0.0.1:"), "{ended:?}");
    let unknown = with(variables(1, 2, 1), "ATMESH_COORDINATOR", "no-such-host.invalid:5000");
    let error = &errors(&[with(unknown, "ATMESH_JOIN_TIMEOUT", "1")])[0];
    assert!(error.contains("found no process 0 at no-such-host.invalid:5000"), "{error}");
}

#[test]
fn a_port_in_use_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = &errors(&[variables(0, 2, port)])[0];
    assert!(error.contains(&format!("cannot listen at 127.0.0.1:{port}: the port is in use")), "{error}");
    // another program answers
    let answering = std::thread::spawn(move || {
        use std::io::Write as _;
        let (mut stream, _) = taken.accept().unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").unwrap();
        std::thread::sleep(Duration::from_secs(2));
    });
    let error = &errors(&[variables(1, 2, port)])[0];
    assert!(error.contains("is not served by process 0: another program answers"), "{error}");
    answering.join().unwrap();
}

#[test]
fn a_wrong_environment_is_an_error() {
    let coordinator = ("ATMESH_COORDINATOR", "127.0.0.1:1".to_string());
    let several_hosts = vec![
        ("PMI_RANK", "0".to_string()),
        ("PMI_SIZE", "2".into()),
        ("MPI_LOCALNRANKS", "1".into()),
        coordinator.clone(),
    ];
    for (variables, words) in [
        (vec![("ATMESH_PROCESS", "4/4".to_string()), coordinator.clone()], "but there are 4 processes"),
        (vec![("ATMESH_PROCESS", "1".to_string()), coordinator.clone()], "it has the form rank/number"),
        (vec![("ATMESH_PROCESS", "1/2".to_string())], "does not say where process 0 is"),
        (vec![("OMPI_COMM_WORLD_SIZE", "2".to_string())], "OMPI_COMM_WORLD_RANK does not say which one"),
        (several_hosts, "which each host takes for itself"),
    ] {
        let error = &errors(&[variables])[0];
        assert!(error.contains(words) && error.contains("help: ") && error.contains("roles.rs:"), "{error}");
    }
}

#[test]
fn joining_twice_is_an_error_with_both_locations() {
    for variables in [vec![], variables(0, 1, 1)] {
        let ended = Process::start("twice", &variables).wait(LIMIT);
        let error = ended.error().1;
        assert!(error.contains("has joined its cluster already"), "{error}");
        for words in ["roles.rs:", "let cluster = init()?;", "it joined here", "init().map(drop)"] {
            assert!(error.contains(words), "{error}");
        }
    }
}
