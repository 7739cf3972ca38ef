//! Clients of several processes: their options, their devices, and the state of the processes.

use super::client_options::{ClientOptions, OptionValue};
use super::raw_client::RawClient;
use super::{Client, KeyValueStore, PLUGIN, api, load_api, op_error, plugin_path};
use crate::cluster::{CallGuard, CallTerms, Membership, ProcessGroup, fingerprint};
use crate::core::diagnostic::pluralize;
use crate::core::{Error, ErrorKind, Fault, Result, SourceLocation};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl KeyValueStore for ProcessGroup {
    fn get(&self, key: &[u8], wait: Duration) -> Result<Option<Vec<u8>>, String> {
        ProcessGroup::get(self, key, wait)
    }
    fn set(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        ProcessGroup::set(self, key, value)
    }
}

/// A compilation in messages, and its end, at which processes report whether it failed.
const COMPILATION: &str = "the compilation of a program";
const COMPILED: &str = "the end of the compilation of a program";
/// The time that a failed call waits for its reason.
const REASON_TIMEOUT: Duration = Duration::from_millis(500);

impl Client {
    /// Returns a client with the devices of all processes, of the plugin that the environment
    /// names.
    ///
    /// All processes call it at the same time, and it returns in all of them or in none.
    ///
    /// # Errors
    /// As for [`from_env`](Client::from_env); also if the plugin does not show the devices of all
    /// processes.
    pub(crate) fn for_cluster(cluster: &Membership, group: &Arc<ProcessGroup>) -> Result<Client> {
        let op = "pjrt::Client";
        let path = plugin_path()?;
        let options = ClientOptions::from_env()?;
        // SAFETY: the environment of the process names the library; the user who sets the variable
        // guarantees that it is a PJRT plugin that is sound to load
        let api = unsafe { load_api(&path) }.map_err(|fault| op_error(op, fault))?;
        let made = create(&api, &options, cluster, group.clone()).map_err(|words| {
            // plugins do not all repeat the reason of a failed callback
            if let Some(fault) = group.fault() {
                return op_error(op, fault);
            }
            let fault = fault!(
                Device,
                "{} has no client of {} processes: {words}",
                path.display(),
                cluster.processes
            );
            op_error(
                op,
                fault
                    .help(format!("{PLUGIN} must name a plugin for several processes, such as that of CUDA")),
            )
        })?;
        check_processes(&made, &path, cluster).map_err(|fault| op_error(op, fault))?;
        let client = Client {
            inner: Arc::new(made),
            path: path.into(),
            run_lock: Arc::default(),
            group: Some(group.clone()),
            gathers: Arc::default(),
        };
        client.update_processes(None);
        // the group outlives the client, whose callbacks hold it
        let (inner, next) = (Arc::downgrade(&client.inner), (cluster.process + 1) % cluster.processes);
        group.on_fault(move |gone, message| {
            if let Some(inner) = inner.upgrade() {
                // also if no process is gone, collectives must end
                let _ = inner.update_processes(Some((gone.unwrap_or(next), message)));
            }
        });
        Ok(client)
    }
    /// Reports to the plugin that all processes are connected.
    ///
    /// After a later report that one is gone, the plugin ends the collectives that wait for it.
    /// Plugins without the function end them after their own timeouts.
    fn update_processes(&self, gone: Option<(usize, &str)>) {
        let _ = self.inner.update_processes(gone);
    }
    /// Compiles a module after all processes have agreed that it is the same. If one of them cannot
    /// compile it, then it is an error in all. Returns its name in messages.
    ///
    /// Source locations may differ.
    pub(super) fn compile_together<T>(
        &self,
        text: &str,
        options: &[u8],
        location: SourceLocation,
        compile: impl FnOnce() -> Result<T>,
    ) -> Result<(T, String)> {
        let Some(group) = &self.group else { return Ok((compile()?, String::new())) };
        let fingerprint = fingerprint(text, options);
        let call = group.begin_call(COMPILATION, location);
        let terms = CallTerms {
            check: fingerprint.to_le_bytes().to_vec(),
            text: Some(text.into()),
            ..CallTerms::default()
        };
        group.agree(COMPILATION, terms, location)?;
        let compiled = compile();
        let failure = compiled.as_ref().err().map(first_message);
        let failure = group.agree(COMPILED, CallTerms { failure, ..CallTerms::default() }, location);
        drop(call);
        match (compiled, failure) {
            // the reason of a death comes before the words of the plugin
            (Err(error), Err(reason)) => Err(Error::combine([reason, error])),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(_), Ok(Some(failure))) => {
                let fault = fault!(Device, "another process cannot compile this program: {failure}");
                Err(Error::new(fault, "pjrt::Client::compile", Vec::new(), Some(location)))
            }
            (Ok(compiled), Ok(None)) => Ok((compiled, format!("program {fingerprint:016x}"))),
        }
    }
    /// Returns an error if processes pass different bytes for `what`. All of them call it.
    pub(crate) fn check_equal(&self, what: &str, bytes: &[u8], location: SourceLocation) -> Result<()> {
        self.group.as_ref().map_or(Ok(()), |group| group.meet(what, bytes, (None, &[]), location).map(drop))
    }
    /// Returns the bytes of the process `root`. All processes call it.
    pub(crate) fn broadcast(
        &self,
        what: &str,
        (root, bytes): (usize, &[u8]),
        location: SourceLocation,
    ) -> Result<Vec<u8>> {
        match &self.group {
            Some(group) => group.meet(what, &[], (Some(root), bytes), location),
            None => Ok(bytes.to_vec()),
        }
    }
    /// Begins a run, which other processes may wait for; an error if the processes cannot go on.
    pub(super) fn begin_run(&self, program: &str, location: SourceLocation) -> Result<Option<CallGuard<'_>>> {
        let Some(group) = &self.group else { return Ok(None) };
        match group.fault() {
            Some(fault) => Err(Error::new(fault, "distributed", Vec::new(), Some(location))),
            None => Ok(Some(group.begin_call(program.to_string(), location))),
        }
    }
    /// Adds the reason to a failure of the plugin if it is that of another process. If no reason is
    /// known, the others learn of this failure.
    pub(super) fn explain(&self, error: Error, op: &str, location: SourceLocation) -> Error {
        let Some(group) = &self.group else { return error };
        // the plugin may notice a death before the store reports it
        let end = Instant::now() + REASON_TIMEOUT;
        loop {
            if let Some(fault) = group.fault() {
                let reason = Error::new(fault, "distributed", Vec::new(), Some(location));
                return Error::combine([reason, error]);
            }
            if Instant::now() > end {
                // they wait in a call that this process does not complete
                let (file, line) = (location.file(), location.line());
                group.report_failure(&format!("{} ({file}:{line})", first_message(&error)));
                return error.with_location(op, location);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    /// Returns the indices of the devices of this process.
    pub fn own_devices(&self) -> &[usize] {
        &self.inner.own
    }
    /// Returns the rank of the process that owns the device with index `device`; `None` if there is
    /// no such device.
    pub fn process_of(&self, device: usize) -> Option<usize> {
        self.inner.devices.get(device).map(|device| device.process)
    }
}

/// Returns the message of the first diagnostic of an error.
fn first_message(error: &Error) -> String {
    error.diagnostics().first().map(|d| d.fault.message.clone()).unwrap_or_default()
}

/// Creates the client, with the options of plugins for CPUs or of those for GPUs.
fn create(
    api: &Arc<api::Api>,
    options: &ClientOptions,
    cluster: &Membership,
    group: Arc<ProcessGroup>,
) -> Result<RawClient, String> {
    let store: Arc<dyn KeyValueStore> = group;
    let int = |n: usize| OptionValue::Int(i64::try_from(n).unwrap_or(i64::MAX));
    let all = options.clone().with("num_nodes", int(cluster.processes)).with("node_id", int(cluster.process));
    let for_cpus = all.clone().with("cpu_device_count", int(cluster.devices.unwrap_or(1)));
    // other plugins reject the option because of its name, before they wait for other processes
    RawClient::new(api, &for_cpus, Some(&store)).or_else(|first| {
        if !first.contains("cpu_device_count") {
            return Err(first);
        }
        let is_set = |name: &str| options.iter().any(|(known, _)| known == name);
        let mut for_gpus = all;
        if !is_set("visible_devices") {
            let n = cluster.devices.unwrap_or(1);
            let own =
                (cluster.local_process * n..(cluster.local_process + 1) * n).map(|k| k as i64).collect();
            for_gpus = for_gpus.with("visible_devices", OptionValue::IntList(own));
        }
        if !is_set("abort_collectives_on_failure") {
            for_gpus = for_gpus.with("abort_collectives_on_failure", OptionValue::Bool(true));
        }
        RawClient::new(api, &for_gpus, Some(&store))
    })
}

/// Checks that the client has devices of all processes, and that this process owns its own.
fn check_processes(made: &RawClient, path: &Path, cluster: &Membership) -> Result<(), Fault> {
    let mut counts = vec![0; cluster.processes];
    for device in &made.devices {
        if let Some(count) = counts.get_mut(device.process) {
            *count += 1;
        }
    }
    let own = made.own.iter().all(|k| made.devices[*k].process == cluster.process);
    if counts.contains(&0) || made.own.len() != counts[cluster.process] || !own {
        let shown = counts.iter().filter(|n| **n > 0).count();
        return Err(Fault::new(
            ErrorKind::Unsupported,
            format!(
                "{} shows {} of {}, but there are {} processes",
                path.display(),
                pluralize(made.devices.len(), "device"),
                if shown == 1 { "1 process".to_string() } else { format!("{shown} processes") },
                cluster.processes
            ),
        )
        .help(format!(
            "{PLUGIN} must name a plugin for several processes, such as that of CUDA; those for CPUs are not"
        )));
    }
    Ok(())
}

/// Returns the version of the interface of the plugin that the environment names; `none` without
/// one.
pub(crate) fn plugin_version() -> Result<String> {
    let Ok(path) = plugin_path() else { return Ok("none".into()) };
    // SAFETY: as in `for_cluster`, the environment names a plugin that is sound to load
    let api = unsafe { load_api(&path) }.map_err(|fault| op_error("pjrt::Client", fault))?;
    Ok(format!("{}.{}", api.version.0, api.version.1))
}
