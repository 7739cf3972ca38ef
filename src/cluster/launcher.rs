//! Launchers: which process of how many this is, as the environment says.

use crate::core::Fault;

/// The environment variable with the rank and the number of processes: `1/4`.
pub(super) const PROCESS: &str = "ATMESH_PROCESS";
/// The environment variable with the address at which process 0 serves the store: `host:port`.
pub(super) const COORDINATOR: &str = "ATMESH_COORDINATOR";
/// The environment variable with the rank among the processes of a host.
pub(super) const LOCAL_PROCESS: &str = "ATMESH_LOCAL_PROCESS";

/// The first of the ports that are computed from the job, and their number.
const JOB_PORTS: (u32, u32) = (61_440, 4096);

/// The rank of this process, and where to join the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// The launcher, as messages name it.
    pub(super) launcher: &'static str,
    /// The rank of this process.
    pub(super) process: usize,
    /// The number of processes.
    pub(super) processes: usize,
    /// The rank among the processes on this host; `None` if the launcher does not say it.
    pub(super) local_process: Option<usize>,
    /// Whether the processes are on several hosts; `None` if the launcher does not say it.
    pub(super) several_hosts: Option<bool>,
    /// The address of process 0; `None` if it must be given.
    pub(super) coordinator: Option<String>,
    /// The job, which distinguishes runs of one program; empty if the launcher does not say it.
    pub(super) job: String,
}

/// The variables of the process: a lookup by name, and the id of its parent.
pub(super) struct Environment<'a> {
    pub(super) get: &'a dyn Fn(&str) -> Option<String>,
    pub(super) parent: u32,
}

impl Environment<'_> {
    /// Returns the value of a variable; an empty one counts as missing.
    fn text(&self, name: &str) -> Option<String> {
        (self.get)(name).map(|text| text.trim().to_string()).filter(|text| !text.is_empty())
    }
    /// Returns a variable that must be an integer, if it is there.
    pub(super) fn integer(&self, name: &str) -> Result<Option<usize>, Fault> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            fault!(
                Data,
                "the environment variable {name} is `{text}`, which is not a rank or a number of processes"
            )
            .help(format!("set `{PROCESS}=0/4` (rank and number of processes) yourself, and `{COORDINATOR}`"))
        })
    }
}

/// The variables in which an MPI launcher describes a process.
struct MpiVariables {
    launcher: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
    /// A variable that names the job.
    job: &'static str,
}
const OPEN_MPI: MpiVariables = MpiVariables {
    launcher: "Open MPI",
    rank: "OMPI_COMM_WORLD_RANK",
    size: "OMPI_COMM_WORLD_SIZE",
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    job: "PMIX_NAMESPACE",
};
const MPICH: MpiVariables = MpiVariables {
    launcher: "MPICH or Intel MPI",
    rank: "PMI_RANK",
    size: "PMI_SIZE",
    local_rank: "MPI_LOCALRANKID",
    local_size: "MPI_LOCALNRANKS",
    job: "PMI_JOBID",
};

/// Returns what the launcher of this process says; `None` if it was started without one.
///
/// The own variables come first, then SLURM steps, Open MPI, MPICH and Intel MPI, and torchrun.
pub(super) fn detect(env: &Environment<'_>) -> Result<Option<Launch>, Fault> {
    let found = match own(env)? {
        Some(launch) => Some(launch),
        None => match slurm(env)? {
            Some(launch) => Some(launch),
            None => match mpi(env, &OPEN_MPI)? {
                Some(launch) => Some(launch),
                None => match mpi(env, &MPICH)? {
                    Some(launch) => Some(launch),
                    None => torchrun(env)?,
                },
            },
        },
    };
    let Some(mut launch) = found else { return Ok(None) };
    if let Some(address) = env.text(COORDINATOR) {
        launch.coordinator = Some(address);
    }
    if let Some(local) = env.integer(LOCAL_PROCESS)? {
        launch.local_process = Some(local);
    }
    Ok(Some(launch))
}

/// Returns a rank that is less than the number of processes.
fn check_rank(rank: Option<usize>, size: usize, names: (&str, &str)) -> Result<usize, Fault> {
    let (rank_name, size_name) = names;
    let Some(rank) = rank else {
        return Err(fault!(
            Data,
            "{size_name} says that there are {size} processes, but {rank_name} does not say which one this is"
        )
        .help(format!(
            "set `{rank_name}` to a different rank from 0 to {} in each",
            size.saturating_sub(1)
        )));
    };
    if size == 0 {
        return Err(fault!(Data, "{size_name} says that there are 0 processes")
            .help(format!("set `{size_name}` to the number of processes")));
    }
    if rank >= size {
        return Err(fault!(Data, "{rank_name} is {rank}, but there are {size} processes ({size_name})")
            .help(format!("set `{rank_name}` to a rank from 0 to {}", size - 1)));
    }
    Ok(rank)
}

fn own(env: &Environment<'_>) -> Result<Option<Launch>, Fault> {
    let Some(text) = env.text(PROCESS) else { return Ok(None) };
    let numbers = text.split_once('/').and_then(|(rank, size)| {
        Some((rank.trim().parse::<usize>().ok()?, size.trim().parse::<usize>().ok()?))
    });
    let Some((rank, size)) = numbers else {
        return Err(fault!(Data, "{PROCESS} is `{text}`, but it has the form rank/number: `1/4`").help(
            format!("set `{PROCESS}=0/4` in the first of four processes, `{PROCESS}=1/4` in the second"),
        ));
    };
    let process = check_rank(Some(rank), size, (PROCESS, PROCESS))?;
    Ok(Some(Launch {
        launcher: PROCESS,
        process,
        processes: size,
        local_process: None,
        several_hosts: None,
        coordinator: None,
        job: env.text("ATMESH_JOB").unwrap_or_default(),
    }))
}

fn slurm(env: &Environment<'_>) -> Result<Option<Launch>, Fault> {
    // a batch script has the variables of its job, but only `srun` starts steps
    let Some(nodes) = env.text("SLURM_STEP_NODELIST") else { return Ok(None) };
    let size_name =
        if env.text("SLURM_STEP_NUM_TASKS").is_some() { "SLURM_STEP_NUM_TASKS" } else { "SLURM_NTASKS" };
    let Some(size) = env.integer(size_name)? else { return Ok(None) };
    // `mpirun` starts its daemons as a step, whose ranks are those of the daemons
    for variables in [&OPEN_MPI, &MPICH] {
        if env.integer(variables.size)?.is_some_and(|n| n != size) {
            return Ok(None);
        }
    }
    let process = check_rank(env.integer("SLURM_PROCID")?, size, ("SLURM_PROCID", size_name))?;
    let job = env.text("SLURM_JOB_ID").unwrap_or_default();
    let step = env.text("SLURM_STEP_ID").unwrap_or_default();
    let num_hosts = env.integer("SLURM_STEP_NUM_NODES")?;
    let port = job_port(&format!("{job}.{step}"));
    let host = if num_hosts == Some(1) { Some("127.0.0.1".to_string()) } else { first_host(&nodes) };
    Ok(Some(Launch {
        launcher: "SLURM",
        process,
        processes: size,
        local_process: env.integer("SLURM_LOCALID")?,
        several_hosts: num_hosts.map(|n| n > 1),
        coordinator: host.map(|host| format!("{host}:{port}")),
        job: format!("slurm {job}.{step}"),
    }))
}

fn mpi(env: &Environment<'_>, variables: &MpiVariables) -> Result<Option<Launch>, Fault> {
    let Some(size) = env.integer(variables.size)? else { return Ok(None) };
    let process = check_rank(env.integer(variables.rank)?, size, (variables.rank, variables.size))?;
    let local_size = env.integer(variables.local_size)?;
    // all processes of one host are children of one launcher
    let job = env.text(variables.job).unwrap_or_default();
    let port = job_port(&format!("{job} {}", env.parent));
    Ok(Some(Launch {
        launcher: variables.launcher,
        process,
        processes: size,
        local_process: env.integer(variables.local_rank)?,
        several_hosts: local_size.map(|n| n < size),
        coordinator: (local_size == Some(size)).then(|| format!("127.0.0.1:{port}")),
        job,
    }))
}

fn torchrun(env: &Environment<'_>) -> Result<Option<Launch>, Fault> {
    let (Some(size), Some(host)) = (env.text("WORLD_SIZE"), env.text("MASTER_ADDR")) else { return Ok(None) };
    let Some(size) = env.integer("WORLD_SIZE").map(|n| n.or(size.parse().ok()))? else { return Ok(None) };
    let process = check_rank(env.integer("RANK")?, size, ("RANK", "WORLD_SIZE"))?;
    // the launcher itself may listen at the port
    let is_taken =
        env.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|yes| yes.eq_ignore_ascii_case("true"));
    let port = env.integer("MASTER_PORT")?.map(|port| if is_taken { port % 65_535 + 1 } else { port });
    Ok(Some(Launch {
        launcher: "torchrun",
        process,
        processes: size,
        local_process: env.integer("LOCAL_RANK")?,
        several_hosts: env.integer("LOCAL_WORLD_SIZE")?.map(|n| n < size),
        coordinator: port.map(|port| format!("{host}:{port}")),
        job: env.text("TORCHELASTIC_RUN_ID").unwrap_or_default(),
    }))
}

/// Returns a port that all processes of a job compute alike.
fn job_port(job: &str) -> u32 {
    // FNV-1a, which does not change between versions of Rust
    let hash = job.bytes().fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
    JOB_PORTS.0 + hash % JOB_PORTS.1
}

/// Returns the first host of a list such as `node[01-04,07],login`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let prefix = &list[..end];
    if !list[end..].starts_with('[') {
        return Some(prefix.to_string()).filter(|host| !host.is_empty());
    }
    let inner = list[end + 1..].split(']').next()?;
    let number = inner.split([',', '-']).next()?;
    // text after the bracket is part of the name: `rack[1-2]n`
    let suffix = list[end..].split_once(']')?.1.split(',').next()?;
    Some(format!("{prefix}{number}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Result<Option<Launch>, String> {
        let get =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        detect(&Environment { get: &get, parent: 77 }).map_err(|fault| fault.message)
    }
    /// Returns rank, size, local rank and address.
    fn summary(variables: &[(&str, &str)]) -> (&'static str, usize, usize, Option<usize>, Option<String>) {
        let l = launch(variables).unwrap().unwrap();
        (l.launcher, l.process, l.processes, l.local_process, l.coordinator)
    }

    const SLURM_STEP: [(&str, &str); 7] = [
        ("SLURM_STEP_NODELIST", "gpu[03-04],login"),
        ("SLURM_JOB_ID", "9001"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_PROCID", "3"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_STEP_NUM_NODES", "2"),
    ];

    #[test]
    fn each_launcher_is_found() {
        assert_eq!(launch(&[]), Ok(None));
        let own = [(PROCESS, " 1/4 "), (COORDINATOR, "node1:5000"), (LOCAL_PROCESS, "0")];
        assert_eq!(summary(&own), (PROCESS, 1, 4, Some(0), Some("node1:5000".into())));
        let port = job_port("9001.0");
        assert_eq!(summary(&SLURM_STEP), ("SLURM", 3, 4, Some(1), Some(format!("gpu03:{port}"))));
        let open_mpi = [
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("PMIX_NAMESPACE", "job"),
        ];
        let port = job_port("job 77");
        assert_eq!(summary(&open_mpi), ("Open MPI", 2, 4, Some(2), Some(format!("127.0.0.1:{port}"))));
        let mpich =
            [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "1"), ("MPI_LOCALRANKID", "0")];
        // on several hosts, nothing says where process 0 is
        assert_eq!(summary(&mpich), ("MPICH or Intel MPI", 0, 2, Some(0), None));
        let torch = [
            ("RANK", "1"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", "29500"),
        ];
        assert_eq!(summary(&torch), ("torchrun", 1, 2, Some(1), Some("127.0.0.1:29500".into())));
        let agent = [&torch[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(summary(&agent).4, Some("127.0.0.1:29501".into()));
        // other programs use this name too
        assert_eq!(launch(&[("RANK", "captain")]), Ok(None));
    }

    #[test]
    fn the_first_launcher_decides() {
        let own = [&SLURM_STEP[..], &[(PROCESS, "0/2"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")]].concat();
        assert_eq!(summary(&own).0, PROCESS);
        let srun_pmi = [&SLURM_STEP[..], &[("PMI_RANK", "3"), ("PMI_SIZE", "4")]].concat();
        assert_eq!(summary(&srun_pmi).0, "SLURM");
        // `mpirun` in a SLURM job: the step has one task for each host
        let in_job = [
            &SLURM_STEP[..],
            &[("OMPI_COMM_WORLD_RANK", "7"), ("OMPI_COMM_WORLD_SIZE", "8"), (COORDINATOR, "gpu03:1")],
        ]
        .concat();
        assert_eq!(summary(&in_job), ("Open MPI", 7, 8, None, Some("gpu03:1".into())));
        // a batch script, outside of a step
        assert_eq!(launch(&[("SLURM_JOB_ID", "1"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")]), Ok(None));
    }

    #[test]
    fn wrong_ranks_are_errors() {
        for (variables, words) in [
            (&[(PROCESS, "4/4")][..], "ATMESH_PROCESS is 4, but there are 4 processes"),
            (&[(PROCESS, "2")], "ATMESH_PROCESS is `2`, but it has the form rank/number"),
            (&[(PROCESS, "-1/2")], "the form rank/number"),
            (&[(PROCESS, "0/0")], "there are 0 processes"),
            (&[("PMI_SIZE", "2")], "but PMI_RANK does not say which one this is"),
            (&[("PMI_SIZE", "2"), ("PMI_RANK", "two")], "PMI_RANK is `two`, which is not a rank"),
            (&[("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "2")], "but there are 2 processes"),
        ] {
            let message = launch(variables).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn the_first_host_of_a_list_is_found() {
        for (list, host) in [
            ("node7", "node7"),
            ("node[01-04,07],login", "node01"),
            ("a,b", "a"),
            ("rack[3,5]n,x", "rack3n"),
            ("n[9]", "n9"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(host));
        }
        assert_eq!(first_host(""), None);
    }
}
