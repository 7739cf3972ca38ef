//! The processes of a program, as the other folders of this crate use them.

use super::connection::{MeetingResult, StoreConnection};
use super::join::{Joined, join};
use super::options::{JoinPlan, Options, resolve};
use super::progress::{CallGuard, Progress, show_location};
use super::server::StoreServer;
use super::wire::{ClusterFault, FaultKind, Meeting};
use crate::core::{Error, ErrorKind, Fault, Result, SourceLocation};
use std::borrow::Cow;
use std::fmt;
#[cfg(feature = "xla")]
use std::sync::OnceLock;
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "xla")]
use std::time::Duration;

/// The processes that run a program together, and the connection of this one to the others.
pub(crate) struct ProcessGroup {
    plan: JoinPlan,
    connection: StoreConnection,
    /// The store, on process 0, until it leaves.
    server: Mutex<Option<StoreServer>>,
    progress: Arc<Progress>,
    /// The number of calls in which all processes have taken part. It is locked during a call.
    num_meetings: Mutex<u64>,
}

/// The terms of a call, on which all processes must agree.
#[derive(Debug, Default)]
pub(crate) struct CallTerms {
    /// Bytes that must be equal.
    pub(crate) check: Vec<u8>,
    /// The text that explains a difference of `check`: the first line that differs is reported.
    pub(crate) text: Option<Arc<str>>,
    /// The reason why this process cannot go on with the call.
    pub(crate) failure: Option<String>,
}

/// The rank of this process, and its group if there is more than one process.
pub(crate) struct Membership {
    pub(crate) process: usize,
    pub(crate) processes: usize,
    pub(crate) local_process: usize,
    /// The number of devices of this process, if the options say it.
    pub(crate) devices: Option<usize>,
    pub(crate) group: Option<Arc<ProcessGroup>>,
}

/// The group of this process, once it has joined others.
#[cfg(feature = "xla")]
static CURRENT: OnceLock<Arc<ProcessGroup>> = OnceLock::new();

/// Returns the group of this process, if it has joined others.
#[cfg(feature = "xla")]
pub(crate) fn current_group() -> Option<Arc<ProcessGroup>> {
    CURRENT.get().cloned()
}

/// Joins the other processes. `properties` must be the same in all of them.
///
/// `properties` is called only if there are several processes.
pub(crate) fn join_group(
    options: &Options,
    properties: impl FnOnce() -> Result<Vec<(&'static str, String)>>,
    location: SourceLocation,
) -> Result<Membership> {
    let at = |fault: Fault| Error::new(fault, "distributed::init", Vec::new(), Some(location));
    let plan = resolve(options).map_err(at)?;
    let JoinPlan { process, processes, devices, .. } = plan;
    let local_process = plan.local_process.unwrap_or(0);
    let group = match processes {
        1 => None,
        _ => {
            let Joined { connection, server, progress } =
                join(&plan, &properties()?).map_err(|fault| at(user_fault(&fault)))?;
            let (server, num_meetings) = (Mutex::new(server), Mutex::new(0));
            let group = Arc::new(ProcessGroup { plan, connection, server, progress, num_meetings });
            #[cfg(feature = "xla")]
            let _ = CURRENT.set(group.clone());
            Some(group)
        }
    };
    Ok(Membership { process, processes, local_process, devices, group })
}

/// Returns a fault of the cluster as an error that a user reads.
fn user_fault(fault: &ClusterFault) -> Fault {
    let kind = match fault.kind {
        FaultKind::Process => ErrorKind::Device,
        FaultKind::Mismatch => ErrorKind::CollectiveMismatch,
        FaultKind::Join => ErrorKind::Data,
    };
    let made = Fault::new(kind, fault.message.clone());
    if fault.help.is_empty() { made } else { made.help(fault.help.clone()) }
}

impl ProcessGroup {
    /// Returns the fault that prevents the group from going on, if there is one.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.connection.fault().map(|fault| user_fault(&fault))
    }
    /// Calls `hook` with the process that is gone and the message, when the group fails.
    #[cfg(feature = "xla")]
    pub(crate) fn on_fault(&self, hook: impl FnOnce(Option<usize>, &str) + Send + 'static) {
        self.connection.on_fault(move |fault| hook(fault.process, &fault.message));
    }
    /// Stores a value under a key, for all processes. An error is a message.
    #[cfg(feature = "xla")]
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.connection.set(key, value).map_err(|fault| fault.message)
    }
    /// Returns the value of a key. Waits up to `wait` for one; `None` if none is stored by then.
    #[cfg(feature = "xla")]
    pub(crate) fn get(&self, key: &[u8], wait: Duration) -> Result<Option<Vec<u8>>, String> {
        self.connection.get(key, wait).map_err(|fault| fault.message)
    }
    /// Stores a value under a key, for all processes.
    #[cfg(feature = "xla")]
    pub(crate) fn store_value(&self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.connection.set(key, value).map_err(|fault| user_fault(&fault))
    }
    /// Waits for the value of a key. It is an error if the group fails meanwhile.
    #[cfg(feature = "xla")]
    pub(crate) fn wait_for_value(&self, key: &[u8]) -> Result<Vec<u8>, Fault> {
        loop {
            // (each wait has an end)
            let found = self.connection.get(key, Duration::from_secs(3600));
            if let Some(value) = found.map_err(|fault| user_fault(&fault))? {
                return Ok(value);
            }
        }
    }
    /// Returns the rank of this process.
    #[cfg(feature = "xla")]
    pub(crate) fn process(&self) -> usize {
        self.plan.process
    }
    /// Returns the number of processes.
    #[cfg(feature = "xla")]
    pub(crate) fn processes(&self) -> usize {
        self.plan.processes
    }
    /// Returns the name of a process: its rank, host and id.
    #[cfg(feature = "xla")]
    pub(crate) fn name_of(&self, process: usize) -> String {
        self.connection.members().get(process).map_or_else(|| format!("process {process}"), |p| p.to_string())
    }
    /// Reports a failure of this process in a call of all processes, which ends the group.
    #[cfg(feature = "xla")]
    pub(crate) fn report_failure(&self, message: &str) {
        self.connection.report_failure(message);
    }
    /// Begins a call that other processes may wait for, so that reports name it.
    pub(crate) fn begin_call(
        &self,
        what: impl Into<Cow<'static, str>>,
        location: SourceLocation,
    ) -> CallGuard<'_> {
        self.progress.begin(what.into(), location)
    }
    /// Returns the number of devices of each process, as it said when it joined.
    pub(crate) fn devices(&self) -> Vec<usize> {
        self.connection.members().iter().map(|info| info.devices).collect()
    }
    /// Takes part in a call of all processes, which pass equal bytes as `check`. Returns the bytes
    /// of the process `root`.
    pub(crate) fn meet(
        &self,
        what: &str,
        check: &[u8],
        (root, payload): (Option<usize>, &[u8]),
        location: SourceLocation,
    ) -> Result<Vec<u8>> {
        let call = self.begin_call(what.to_string(), location);
        let own = if root == Some(self.plan.process) { payload.to_vec() } else { Vec::new() };
        let terms = CallTerms { check: check.to_vec(), ..CallTerms::default() };
        let met = self.arrive(what, (root, own), terms, location);
        drop(call);
        met.map(|met| met.payload)
    }
    /// Waits for all processes in a call that this process has begun, and compares the terms.
    /// Returns the failure of a process as a message that names it.
    #[cfg(feature = "xla")]
    pub(crate) fn agree(
        &self,
        what: &str,
        terms: CallTerms,
        location: SourceLocation,
    ) -> Result<Option<String>> {
        self.arrive(what, (None, Vec::new()), terms, location).map(|met| met.failure)
    }
    fn arrive(
        &self,
        what: &str,
        (root, payload): (Option<usize>, Vec<u8>),
        terms: CallTerms,
        location: SourceLocation,
    ) -> Result<MeetingResult> {
        let CallTerms { check, text, failure } = terms;
        let mut num_meetings = self.num_meetings.lock().unwrap_or_else(PoisonError::into_inner);
        *num_meetings += 1;
        let meeting = Meeting {
            number: *num_meetings,
            what: what.to_string(),
            location: show_location(location),
            mark: self.progress.mark(),
            check,
            has_text: text.is_some(),
            failure,
            root,
            payload,
        };
        let met = self.connection.meet(meeting, text);
        met.map_err(|fault| {
            // the message may begin with what differs
            let op = if fault.message.starts_with(what) { "distributed" } else { what };
            Error::new(user_fault(&fault), op, Vec::new(), Some(location))
        })
    }
    /// Leaves in order, or because of a failure, of which the others receive the reason.
    /// Process 0 waits for the others.
    pub(crate) fn leave(&self, failure: Option<String>) {
        let panic = std::thread::panicking().then(|| "it panicked".to_string());
        self.connection.goodbye(failure.or(panic));
        if let Some(server) = self.server.lock().unwrap_or_else(PoisonError::into_inner).take() {
            server.finish();
        }
    }
}
impl fmt::Debug for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JoinPlan { process, processes, launcher, .. } = &self.plan;
        write!(f, "process {process} of {processes} ({launcher})")?;
        self.connection.members().iter().try_for_each(|info| write!(f, "\n  {info}"))
    }
}
