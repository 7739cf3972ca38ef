//! The processes that write or read files together.
//!
//! They do so if one of the arrays that are written, or of the models of those that are read, is on
//! the devices of several processes. Then all processes make the same call. Work that can fail is a
//! *step*: after it, each process learns whether it succeeded in all, so that all go on or all
//! return an error. If a process dies, the step is an error that names it.

use crate::api::array::Array;
#[cfg(feature = "xla")]
use crate::cluster::CallTerms;
use crate::core::{Error, Fault, Mesh, Result, SourceLocation};
use std::path::Path;
use std::sync::Arc;

/// The keys and values through which processes exchange the results of a step.
pub(crate) trait ExchangeStore: Send + Sync {
    /// Stores a value under a key.
    fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Fault>;
    /// Waits for the value of a key. It is an error if a process dies meanwhile.
    fn wait_for(&self, key: &[u8]) -> Result<Vec<u8>, Fault>;
    /// Returns the name of a process, for messages.
    fn name_of(&self, process: usize) -> String;
}

/// The processes that write or read files together, and the steps that they have taken.
pub(crate) struct FilePeers {
    /// The rank of this process.
    process: usize,
    processes: usize,
    /// `None` if this process is alone.
    exchange: Option<FileExchange>,
    /// The number of devices of each process of a test, whose processes are threads.
    #[cfg(test)]
    devices_each: Option<usize>,
}

/// The exchanges of one call.
struct FileExchange {
    store: Arc<dyn ExchangeStore>,
    /// The number of earlier calls for files, which is the same in all processes.
    call: u64,
    /// The number of exchanges so far.
    round: u64,
}

/// The reason why a step failed.
pub(crate) enum StepFailure<E> {
    /// This process failed.
    Own(E),
    /// Another process failed, or is gone.
    Other(Fault),
}
impl StepFailure<Fault> {
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            StepFailure::Own(fault) | StepFailure::Other(fault) => fault,
        }
    }
}
impl StepFailure<Error> {
    /// Returns the error; that of another process has this operation and location.
    pub(crate) fn into_error(self, op: &str, location: SourceLocation) -> Error {
        match self {
            StepFailure::Own(error) => error,
            StepFailure::Other(fault) => Error::new(fault, op, Vec::new(), Some(location)),
        }
    }
}

/// A failure as the other processes receive it.
pub(crate) trait StepError {
    fn text(&self) -> String;
}
impl StepError for Fault {
    fn text(&self) -> String {
        self.message.clone()
    }
}
impl StepError for Error {
    fn text(&self) -> String {
        let messages = self.diagnostics().iter().map(|d| d.fault.message.as_str());
        messages.collect::<Vec<_>>().join("; ")
    }
}

impl FilePeers {
    /// Returns the peers of a process that writes or reads by itself.
    pub(crate) fn single_process() -> FilePeers {
        FilePeers {
            process: 0,
            processes: 1,
            exchange: None,
            #[cfg(test)]
            devices_each: None,
        }
    }
    /// Returns the processes that hold parts of these arrays. If there are several, they meet in
    /// this call: another call, path, or list of types in one of them is an error in all.
    pub(crate) fn of_arrays(
        arrays: &[Array],
        op: &str,
        path: &Path,
        location: SourceLocation,
    ) -> Result<FilePeers> {
        let is_shared = |array: &Array| array.concrete_sharding().is_some_and(|s| s.mesh.processes() > 1);
        if !arrays.iter().any(is_shared) {
            return Ok(FilePeers::single_process());
        }
        let mut types = String::new();
        for array in arrays {
            types += &format!("{}\n", array.type_ref().map_err(Error::clone)?);
        }
        FilePeers::meet(op, path, &types, location)
    }
    /// Returns the processes that have devices of a mesh, which meet if there are several.
    pub(crate) fn of_mesh(mesh: &Mesh, op: &str, path: &Path, location: SourceLocation) -> Result<FilePeers> {
        match mesh.processes() > 1 {
            true => FilePeers::meet(op, path, &mesh.to_string(), location),
            false => Ok(FilePeers::single_process()),
        }
    }
    #[cfg(feature = "xla")]
    fn meet(op: &str, path: &Path, types: &str, location: SourceLocation) -> Result<FilePeers> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NUM_CALLS: AtomicU64 = AtomicU64::new(0);
        let Some(group) = crate::cluster::current_group() else { return Ok(FilePeers::single_process()) };
        let what = format!("{op} of {}", path.display());
        let call = group.begin_call(what.clone(), location);
        let terms = CallTerms { check: types.into(), text: Some(types.into()), failure: None };
        let met = group.agree(&what, terms, location);
        drop(call);
        met?;
        let (process, processes) = (group.process(), group.processes());
        let exchange =
            FileExchange { store: group, call: NUM_CALLS.fetch_add(1, Ordering::Relaxed), round: 0 };
        Ok(FilePeers {
            process,
            processes,
            exchange: Some(exchange),
            #[cfg(test)]
            devices_each: None,
        })
    }
    #[cfg(not(feature = "xla"))]
    fn meet(_: &str, _: &Path, _: &str, _: SourceLocation) -> Result<FilePeers> {
        // without XLA, each process has its own arrays
        Ok(FilePeers::single_process())
    }
    /// Returns true if no other process takes part.
    pub(crate) fn is_alone(&self) -> bool {
        self.processes == 1
    }
    /// Returns true for the process that creates, completes and renames files.
    pub(crate) fn is_first(&self) -> bool {
        self.process == 0
    }
    /// Returns true if this process does a task, of which each process does every n-th.
    #[cfg(feature = "safetensors")]
    pub(crate) fn has_turn(&self, task: usize) -> bool {
        task % self.processes == self.process
    }
    /// Returns true if this process has the device at a position of the mesh.
    pub(crate) fn has_device(&self, mesh: &Mesh, position: usize) -> bool {
        #[cfg(test)]
        if let Some(each) = self.devices_each {
            return position / each == self.process;
        }
        self.is_alone() || mesh.devices().get(position).is_some_and(|d| d.process() == self.process)
    }
    /// Ends a step with the bytes that each process gives; returns those of all, in their order.
    pub(crate) fn gather<E: StepError>(
        &mut self,
        own: Result<Vec<u8>, E>,
    ) -> Result<Vec<Vec<u8>>, StepFailure<E>> {
        let all = self.exchange(own.as_deref().map_err(StepError::text));
        own.map_err(StepFailure::Own)?;
        all.map_err(StepFailure::Other)
    }
    /// Ends a step: returns its result if it succeeded in all processes.
    pub(crate) fn agree<T, E: StepError>(&mut self, own: Result<T, E>) -> Result<T, StepFailure<E>> {
        let all = self.exchange(own.as_ref().map(|_| &[][..]).map_err(StepError::text));
        let own = own.map_err(StepFailure::Own)?;
        all.map_err(StepFailure::Other).map(|_| own)
    }
    /// Gives the bytes of this process, or the text of its error, to all processes.
    fn exchange(&mut self, own: Result<&[u8], String>) -> Result<Vec<Vec<u8>>, Fault> {
        let Some(exchange) = &mut self.exchange else {
            return Ok(own.into_iter().map(<[u8]>::to_vec).collect());
        };
        let message = match own {
            Ok(bytes) => [&[0], bytes].concat(),
            Err(text) => [&[1], text.as_bytes()].concat(),
        };
        let all = exchange.all_to_all(self.process, self.processes, &message)?;
        if let Some(process) = all.iter().position(|message| message.first() != Some(&0)) {
            let text = String::from_utf8_lossy(all[process].get(1..).unwrap_or_default());
            let fault = fault!(Data, "{}: {text}", exchange.store.name_of(process));
            return Err(fault.help("look at the output of that process"));
        }
        Ok(all.into_iter().map(|message| message[1..].to_vec()).collect())
    }
    /// Does a step that only process 0 does, and returns its bytes.
    pub(crate) fn step_of_first<E: StepError>(
        &mut self,
        work: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, StepFailure<E>> {
        let own = if self.is_first() { work() } else { Ok(Vec::new()) };
        Ok(self.gather(own)?.into_iter().next().unwrap_or_default())
    }
}

impl FileExchange {
    /// Gives a message to all processes, and returns those of all.
    fn all_to_all(
        &mut self,
        process: usize,
        processes: usize,
        message: &[u8],
    ) -> Result<Vec<Vec<u8>>, Fault> {
        let (call, round) = (self.call, self.round);
        self.round += 1;
        let key = |process: usize| format!("files/{call}/{round}/{process}").into_bytes();
        self.store.set(&key(process), message)?;
        (0..processes).map(|other| self.store.wait_for(&key(other))).collect()
    }
}

#[cfg(feature = "xla")]
impl ExchangeStore for crate::cluster::ProcessGroup {
    fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.store_value(key, value)
    }
    fn wait_for(&self, key: &[u8]) -> Result<Vec<u8>, Fault> {
        self.wait_for_value(key)
    }
    fn name_of(&self, process: usize) -> String {
        self.name_of(process)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::{Condvar, Mutex};

    /// A store for processes that are threads of a test.
    #[derive(Default)]
    struct MapStore {
        values: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
        changed: Condvar,
    }
    impl ExchangeStore for MapStore {
        fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
            self.values.lock().unwrap().insert(key.to_vec(), value.to_vec());
            self.changed.notify_all();
            Ok(())
        }
        fn wait_for(&self, key: &[u8]) -> Result<Vec<u8>, Fault> {
            let values = self.values.lock().unwrap();
            let values = self.changed.wait_while(values, |values| !values.contains_key(key)).unwrap();
            Ok(values[key].clone())
        }
        fn name_of(&self, process: usize) -> String {
            format!("process {process}")
        }
    }

    /// Runs `f` in threads that have the roles of processes with `each` devices, and returns their
    /// results.
    pub(crate) fn with_processes<R: Send>(
        processes: usize,
        each: usize,
        f: impl Fn(FilePeers) -> R + Sync,
    ) -> Vec<R> {
        let store: Arc<dyn ExchangeStore> = Arc::new(MapStore::default());
        let peers = |process| FilePeers {
            process,
            processes,
            exchange: Some(FileExchange { store: store.clone(), call: 0, round: 0 }),
            devices_each: Some(each),
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..processes).map(peers).collect();
            let threads: Vec<_> = threads.into_iter().map(|peers| scope.spawn(|| f(peers))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn a_step_that_fails_in_one_process_fails_in_all() {
        let failing = |process: usize| {
            move |mut peers: FilePeers| -> Result<(), String> {
                let all = peers.gather(Ok::<_, Fault>(vec![peers.process as u8, 7])).map_err(text)?;
                assert_eq!(all, [[0, 7], [1, 7], [2, 7]]);
                assert_eq!(peers.step_of_first(|| Ok::<_, Fault>(vec![5])).map_err(text)?, [5]);
                let own = match peers.process == process {
                    true => Err(fault!(Data, "the disk is full")),
                    false => Ok(()),
                };
                peers.agree(own).map_err(text)
            }
        };
        fn text(failure: StepFailure<Fault>) -> String {
            failure.into_fault().message
        }
        for process in 0..3 {
            for (k, result) in with_processes(3, 1, failing(process)).into_iter().enumerate() {
                let expected = match k == process {
                    true => "the disk is full".to_string(),
                    false => format!("process {process}: the disk is full"),
                };
                assert_eq!(result, Err(expected));
            }
        }
        assert!(with_processes(3, 1, failing(9)).iter().all(Result::is_ok));
    }
}
