//! The options of a process that joins others: its rank, the address of process 0, and timeouts.

use super::launcher::{COORDINATOR, Environment, LOCAL_PROCESS, Launch, PROCESS, detect};
use crate::core::Fault;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The environment variable with the number of devices of this process.
const DEVICES: &str = "ATMESH_DEVICES";
/// The environment variable with the patience, in seconds.
const PATIENCE: &str = "ATMESH_PATIENCE";
/// The environment variable with the time for joining, in seconds.
const JOIN_TIMEOUT: &str = "ATMESH_JOIN_TIMEOUT";
const DEFAULT_JOIN_TIMEOUT: Duration = Duration::from_secs(300);
/// The maximum number of processes.
const MAX_PROCESSES: usize = 1 << 16;

/// Options of [`init_with`](crate::distributed::init_with): what the environment does not say, or
/// says wrongly.
///
/// Each option that is not set is that of the environment.
///
/// ```
/// use atmesh::distributed::Options;
/// use std::time::Duration;
/// let options = Options::default().process(0, 4).coordinator("node1:5000");
/// let options = options.patience(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Options {
    process: Option<(usize, usize)>,
    coordinator: Option<String>,
    local_process: Option<usize>,
    devices: Option<usize>,
    patience: Option<Duration>,
    join_timeout: Option<Duration>,
}

impl Options {
    setters! {
        /// Sets the rank of this process and the number of processes. (`ATMESH_PROCESS=0/4`.)
        ///
        /// Defaults to the rank that the launcher says: SLURM, Open MPI, MPICH, Intel MPI or
        /// torchrun. Without a launcher there is one process.
        pub fn process(rank: usize, processes: usize) = process: Some((rank, processes));
        /// Sets the rank among the processes on this host. (`ATMESH_LOCAL_PROCESS=0`.)
        pub fn local_process(rank: usize) = local_process: Some(rank);
        /// Sets the number of devices of this process in the client of all processes.
        /// (`ATMESH_DEVICES=4`.) Defaults to 1.
        pub fn devices(n: usize) = devices: Some(n);
        /// Sets how long a process may be silent, or not arrive at a call, before this is an error.
        /// (`ATMESH_PATIENCE=60`, in seconds.)
        ///
        /// Without it, silence is only reported on stderr, and a closed connection is an error.
        pub fn patience(time: Duration) = patience: Some(time);
        /// Sets how long to wait until all processes have joined. Defaults to 300 seconds.
        /// (`ATMESH_JOIN_TIMEOUT=300`.)
        pub fn join_timeout(time: Duration) = join_timeout: Some(time);
    }
    /// Sets the address at which process 0 listens: `host:port`. (`ATMESH_COORDINATOR`.)
    ///
    /// It is the same in all processes. The launcher's defaults serve on one host; those of SLURM
    /// and torchrun also on several.
    pub fn coordinator(self, address: impl Into<String>) -> Options {
        Options { coordinator: Some(address.into()), ..self }
    }
    /// Returns the options with everything that the environment says.
    pub(super) fn resolve(&self, env: &Environment<'_>) -> Result<JoinPlan, Fault> {
        let found = match self.process {
            // the launcher's other variables still count if they describe the same process
            Some((process, processes)) => {
                let known = detect(env).ok().flatten();
                let known = known.filter(|l| (l.process, l.processes) == (process, processes));
                Some(known.unwrap_or(Launch {
                    launcher: "Options::process",
                    process,
                    processes,
                    local_process: None,
                    several_hosts: None,
                    coordinator: (env.get)(COORDINATOR),
                    job: String::new(),
                }))
            }
            None => detect(env)?,
        };
        let mut plan = JoinPlan {
            launcher: found.as_ref().map_or("none", |l| l.launcher),
            process: found.as_ref().map_or(0, |l| l.process),
            processes: found.as_ref().map_or(1, |l| l.processes),
            local_process: self.local_process.or(found.as_ref().and_then(|l| l.local_process)),
            coordinator: String::new(),
            job: found.as_ref().map(|l| l.job.clone()).unwrap_or_default(),
            devices: self.devices.map_or_else(|| env.integer(DEVICES), |n| Ok(Some(n)))?,
            patience: self.patience.map_or_else(|| seconds(env, PATIENCE), |time| Ok(Some(time)))?,
            join_timeout: self
                .join_timeout
                .map_or_else(|| seconds(env, JOIN_TIMEOUT), |time| Ok(Some(time)))?
                .unwrap_or(DEFAULT_JOIN_TIMEOUT),
        };
        plan.check()?;
        let several_hosts = found.as_ref().and_then(|l| l.several_hosts);
        let address = self.coordinator.clone().or(found.and_then(|l| l.coordinator));
        if plan.processes > 1 {
            plan.coordinator = check_address(address, &plan, several_hosts)?;
        }
        Ok(plan)
    }
}

/// Returns the value of a variable that is a number of seconds.
fn seconds(env: &Environment<'_>, name: &str) -> Result<Option<Duration>, Fault> {
    let Some(text) = (env.get)(name).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    let time = text.trim().parse().ok().filter(|s: &f64| *s > 0.0);
    match time.and_then(|s| Duration::try_from_secs_f64(s).ok()) {
        Some(time) => Ok(Some(time)),
        None => Err(fault!(Data, "{name} is `{text}`, but it is a positive number of seconds")
            .help(format!("set `{name}=60`"))),
    }
}

/// The checked options of a process that joins others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JoinPlan {
    pub(super) launcher: &'static str,
    pub(super) process: usize,
    pub(super) processes: usize,
    pub(super) local_process: Option<usize>,
    /// The address of process 0; empty if there is one process.
    pub(super) coordinator: String,
    pub(super) job: String,
    pub(super) devices: Option<usize>,
    pub(super) patience: Option<Duration>,
    pub(super) join_timeout: Duration,
}

impl JoinPlan {
    fn check(&self) -> Result<(), Fault> {
        let (process, processes) = (self.process, self.processes);
        if processes == 0 || processes > MAX_PROCESSES {
            return Err(fault!(Data, "{processes} processes, but their number is from 1 to {MAX_PROCESSES}")
                .help("pass the number of processes: `Options::default().process(0, 4)`"));
        }
        if process >= processes {
            return Err(fault!(
                Data,
                "the rank of this process is {process}, but there are {processes} processes"
            )
            .help(format!("number the processes from 0 to {}", processes - 1)));
        }
        if self.local_process.is_some_and(|local| local >= processes) {
            return Err(fault!(
                Data,
                "the rank on this host is {}, but there are {processes} processes",
                self.local_process.unwrap_or(0)
            )
            .help(format!("set `{LOCAL_PROCESS}` to the rank among the processes of one host")));
        }
        if self.devices == Some(0) {
            return Err(fault!(Data, "a process has at least one device, but 0 are asked for")
                .help("leave out `Options::devices` to use the devices that the plugin has"));
        }
        Ok(())
    }
}

/// Returns the address of process 0 if it can be one.
fn check_address(
    address: Option<String>,
    plan: &JoinPlan,
    several_hosts: Option<bool>,
) -> Result<String, Fault> {
    let JoinPlan { launcher, processes, .. } = plan;
    let Some(address) = address else {
        let fault =
            fault!(Data, "there are {processes} processes, but {launcher} does not say where process 0 is");
        return Err(fault.help(format!(
            "name the host of process 0 and a free port of it in all processes: `{COORDINATOR}=node1:5000`"
        )));
    };
    let parts =
        address.rsplit_once(':').map(|(host, port)| (host.trim_matches(['[', ']']), port.parse::<u16>()));
    let Some((host, Ok(1..))) = parts.filter(|(host, _)| !host.is_empty()) else {
        return Err(fault!(Data, "the address of process 0 is `{address}`, but it has the form host:port")
            .help(format!("name a host and a port from 1 to 65535: `{COORDINATOR}=node1:5000`")));
    };
    if several_hosts == Some(true) && is_loopback(host) {
        return Err(fault!(
            Data,
            "the address of process 0 is `{address}`, which each host takes for itself, but {launcher} started \
             processes on several hosts"
        )
        .help(format!("name the host of process 0 as the others know it: `{COORDINATOR}=node1:5000`")));
    }
    Ok(address)
}

/// Returns true if a host's name or address always means the machine itself.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip == IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

/// Returns the plan of this process.
pub(super) fn resolve(options: &Options) -> Result<JoinPlan, Fault> {
    #[cfg(unix)]
    let parent = std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    let parent = 0;
    let get = |name: &str| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
    options.resolve(&Environment { get: &get, parent })
}

/// Returns the help of an address at which process 0 does not answer.
pub(super) fn unreachable_help(address: &str) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    match is_loopback(host) {
        true => format!(
            "start process 0 (`{PROCESS}=0/…`); `{address}` is this machine: if process 0 is on another one, \
             set `{COORDINATOR}` to its name"
        ),
        false => format!("start process 0 (`{PROCESS}=0/…`) on {host}, and let its firewall accept the port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: &Options, variables: &[(&str, &str)]) -> Result<JoinPlan, String> {
        let get =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        options.resolve(&Environment { get: &get, parent: 1 }).map_err(|fault| fault.message)
    }

    #[test]
    fn options_replace_the_environment() {
        let env = [(PROCESS, "1/4"), (COORDINATOR, "node1:5000"), (PATIENCE, "2.5")];
        let found = plan(&Options::default(), &env).unwrap();
        assert_eq!((found.process, found.processes, &*found.coordinator), (1, 4, "node1:5000"));
        assert_eq!(
            (found.patience, found.join_timeout),
            (Some(Duration::from_millis(2500)), DEFAULT_JOIN_TIMEOUT)
        );
        let options =
            Options::default().process(0, 2).coordinator("[::1]:7").patience(Duration::from_secs(1));
        let set = plan(&options, &env).unwrap();
        assert_eq!((set.process, set.processes, &*set.coordinator), (0, 2, "[::1]:7"));
        assert_eq!(set.patience, Some(Duration::from_secs(1)));
        let alone = plan(&Options::default(), &[]).unwrap();
        assert_eq!((alone.process, alone.processes, &*alone.coordinator), (0, 1, ""));
    }

    #[test]
    fn invalid_options_are_errors() {
        let mpi = [
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
            (COORDINATOR, "localhost:80"),
        ];
        let options = Options::default();
        for (options, env, words) in [
            (options.clone().process(3, 3), &[][..], "the rank of this process is 3, but there are 3"),
            (options.clone().process(0, 0), &[], "0 processes, but their number is from 1"),
            (options.clone().process(0, 2), &[], "does not say where process 0 is"),
            (options.clone().process(0, 2).coordinator("node1"), &[], "has the form host:port"),
            (options.clone().process(0, 2).coordinator("node1:0"), &[], "has the form host:port"),
            (options.clone().process(0, 2).coordinator(":5"), &[], "has the form host:port"),
            (options.clone().devices(0), &[], "0 are asked for"),
            (options.clone().local_process(1), &[], "the rank on this host is 1"),
            (options.clone(), &mpi, "Open MPI started processes on several hosts"),
            (options.clone(), &[(PATIENCE, "soon")], "ATMESH_PATIENCE is `soon`"),
            (options.clone(), &[(JOIN_TIMEOUT, "-1")], "ATMESH_JOIN_TIMEOUT is `-1`"),
            (options.clone(), &[(PROCESS, "0/2")], "ATMESH_PROCESS does not say where process 0 is"),
        ] {
            let message = plan(&options, env).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn loopback_addresses_are_recognized() {
        for host in ["localhost", "127.0.0.1", "127.3.2.1", "::1", "[::1]", "0.0.0.0"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["node1", "10.0.0.1", "fe80::1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
