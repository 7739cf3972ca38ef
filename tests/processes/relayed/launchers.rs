//! A training program under launchers: `mpirun` of both MPIs, and the variables of SLURM and
//! torchrun set by hand. It prints the losses that one process has.

use crate::supervisor::{Ended, Process, free_port, variables, wait_all};
use crate::{LIMIT, built, relay};
use std::net::TcpStream;
use std::process::Command;

/// Returns the losses that the program prints in one process.
fn losses() -> String {
    let ended = Process::start_program(&built::example("processes"), &[], &[]).wait(LIMIT);
    ended.assert_success();
    assert_eq!(ended.stdout.matches("loss").count(), 5, "{ended:?}");
    ended.stdout
}

/// The programs of `ATMESH_MPIRUN` (separated by colons), or `mpirun`, start four processes.
#[test]
fn mpirun_starts_training() {
    let Some(relay) = relay() else { return };
    let losses = losses();
    let launchers = std::env::var("ATMESH_MPIRUN").unwrap_or_else(|_| "mpirun".into());
    for launcher in launchers.split(':') {
        let mut command = Command::new(launcher);
        // Open MPI refuses these by default; MPICH ignores the variables
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
            command.env(name, "1").env(format!("{name}_CONFIRM"), "1");
        }
        command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
        command.envs(relay.iter().map(|(name, value)| (name, value)));
        match command.args(["-n", "4"]).arg(built::example("processes")).output() {
            Ok(output) => {
                assert!(output.status.success(), "{launcher}: {output:?}");
                assert_eq!(String::from_utf8_lossy(&output.stdout), losses, "{launcher}");
            }
            Err(why) => println!("**** SKIPPED: {launcher} does not start: {why}"),
        }
    }
}

#[test]
fn variables_of_slurm_and_torchrun_start_training() {
    let Some(relay) = relay() else { return };
    let losses = losses();
    let slurm = |k: usize| {
        vec![
            ("SLURM_STEP_NODELIST", "node[7-8]".to_string()),
            ("SLURM_JOB_ID", std::process::id().to_string()),
            ("SLURM_STEP_ID", "1".into()),
            ("SLURM_NTASKS", "4".into()),
            ("SLURM_PROCID", k.to_string()),
            ("SLURM_LOCALID", k.to_string()),
            ("SLURM_STEP_NUM_NODES", "1".into()),
        ]
    };
    let port = free_port();
    let torchrun = |k: usize| {
        vec![
            ("RANK", k.to_string()),
            ("WORLD_SIZE", "4".into()),
            ("LOCAL_RANK", k.to_string()),
            ("MASTER_ADDR", "127.0.0.1".into()),
            ("MASTER_PORT", port.to_string()),
        ]
    };
    for variables in [&slurm as &dyn Fn(usize) -> Vec<(&'static str, String)>, &torchrun] {
        let start = |k| {
            let variables = [variables(k), relay.clone()].concat();
            Process::start_program(&built::example("processes"), &[], &variables)
        };
        let all = wait_all((0..4).map(start).collect(), LIMIT);
        all.iter().for_each(Ended::assert_success);
        assert_eq!(all[0].stdout, losses);
    }
}

/// Eight processes start and end again and again: they leave no process and no port.
#[test]
fn processes_start_and_end_on_the_relay() {
    let rounds = if std::env::var_os("ATMESH_SOAK").is_some() { 50 } else { 2 };
    for round in 0..rounds {
        let (Some(relay), port) = (relay(), free_port()) else { return };
        let start = |k| {
            let variables = [variables(k, 8, port), relay.clone()].concat();
            Process::start_program(&built::example("processes"), &["3"], &variables)
        };
        let all = wait_all((0..8).map(start).collect(), LIMIT);
        // a loaded machine may be reported as late
        all.iter().for_each(Ended::assert_success);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "round {round}: port {port} is open");
    }
}
