//! One program in several processes.
//!
//! The same program is started several times, by a launcher such as `mpirun` or `srun`, or by hand
//! in several shells. [`init`] joins the processes. A process that does not arrive, differs from
//! the others, or dies is named in the error of every other process.
//!
//! Launchers are found in this order: `ATMESH_PROCESS=1/4` (rank and number of processes) with
//! `ATMESH_COORDINATOR=host:port`; steps of SLURM; Open MPI; MPICH and Intel MPI; `torchrun`.
//! [`Options`] replaces what they say.
//!
//! # Arrays of several processes
//!
//! With the feature `xla` and a plugin for several processes (such as that of CUDA, which
//! `ATMESH_PJRT_PLUGIN` names), a [`Mesh`](crate::mesh::Mesh) has the devices of all processes, and
//! XLA runs the programs on it. Each process holds the blocks of its devices:
//!
//! ```
//! use atmesh::prelude::*;
//! let cluster = atmesh::distributed::init()?;
//! let mesh = Mesh::new([("data", cluster.devices())])?;
//! let sharding = Sharding::new(&mesh, p!["data"], &[64])?;
//! // `from_fn` calls this for the blocks of this process only
//! let rows = |r: &[std::ops::Range<usize>]| Array::arange(r[0].start as f32..r[0].end as f32);
//! let x = Array::from_fn([64], &sharding, rows)?;
//! let mean = jit(|x: &Array| x.mean(..)).call(&x)?;
//! println!("{mean}"); // it is on all devices, so that no process waits for another one
//! # assert_eq!(mean.item::<f32>()?, 31.5);
//! # Ok::<(), atmesh::Error>(())
//! ```
//!
//! All processes run the same program on the same meshes, in the same order. A process that
//! compiles another program, makes another call, or dies is an error in every process.
//!
//! These calls wait for the other processes:
//!
//! - operations, [`jit`](crate::jit) and [`grad`](crate::grad) of arrays on a mesh;
//! - [`process_allgather`](crate::Array::process_allgather), which brings an array to each process;
//! - reads, such as [`to_vec`](crate::Array::to_vec), [`item`](crate::Array::item) and
//!   [`allclose`](crate::Array::allclose), if this process does not hold all elements
//!   ([`is_local`](crate::Array::is_local)).
//!
//! These do not:
//!
//! - [`put`](crate::Array::put) of an array on no mesh, [`from_fn`](crate::Array::from_fn),
//!   [`from_shards`](crate::Array::from_shards) and
//!   [`from_process_local_data`](crate::Array::from_process_local_data);
//! - [`shards`](crate::Array::shards), and `println!("{x}")`, which prints the blocks of this
//!   process if it does not hold all elements;
//! - programs of arrays on no mesh, which each process runs alone, in lock-step.
//!
//! Values on no mesh that go into a program on a mesh must be equal in all processes. With the
//! environment variable `ATMESH_CHECK=1` the processes compare them, and the replicas of
//! `from_fn` and `from_shards`.
//!
//! What XLA does not run is an error, such as [`spmd`](crate::spmd::spmd), `debug_print!`, most
//! factorizations and uneven shardings. Each process runs them on an array that it holds whole:
//! `x.process_allgather()`.
//!
//! Without such a plugin, processes exchange bytes ([`Cluster::broadcast`]) and wait for each other
//! ([`Cluster::barrier`]); each computes on its own, with arrays on no mesh.

pub use crate::cluster::Options;

use crate::cluster::{Membership, join_group};
use crate::core::mesh::{ClusterDevices, check_no_mesh, set_cluster_devices};
use crate::core::{Error, Result, SourceLocation};
#[cfg(feature = "xla")]
use crate::exec::engine::check_default_engine;
use crate::exec::runtime::{compares_replicas, process_devices};
#[cfg(feature = "xla")]
use crate::xla::pjrt::{Client, PLUGIN};
use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

/// The location at which this process has joined a cluster.
static JOINED_AT: Mutex<Option<SourceLocation>> = Mutex::new(None);

/// Joins the other processes of this program, as the launcher describes them.
///
/// Without a launcher there is one process: `init` starts no thread and opens no socket. A program
/// calls it once, before the first mesh, and keeps the [`Cluster`] until its end.
///
/// Process 0 serves a small store over TCP, to which all processes connect. While processes are
/// missing, process 0 reports them on stderr every 5 seconds.
///
/// ```
/// let cluster = atmesh::distributed::init()?;
/// println!("process {} of {}", cluster.process(), cluster.processes());
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// The environment does not describe a process, the address of process 0 is in use or is not
/// reached, the processes differ in their number or version, two have the same rank, some do not
/// join in time, or this process has joined already. If there are several processes: this one has
/// made a mesh before. If also `ATMESH_PJRT_PLUGIN` is set (feature `xla`): the plugin does not
/// show the devices of all processes, or `ATMESH_ENGINE` names another engine than `xla`.
#[doc(alias("initialize", "init_process_group", "mpirun", "multi_host", "MPI_Init", "torchrun"))]
#[track_caller]
pub fn init() -> Result<Cluster> {
    init_at(&Options::default(), Location::caller())
}

/// Joins the other processes like [`init`], with options that replace those of the environment.
///
/// ```no_run
/// use atmesh::distributed::{Options, init_with};
/// let cluster = init_with(Options::default().process(1, 4).coordinator("node1:5000"))?;
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// As for [`init`].
#[track_caller]
pub fn init_with(options: Options) -> Result<Cluster> {
    init_at(&options, Location::caller())
}

fn init_at(options: &Options, location: SourceLocation) -> Result<Cluster> {
    let mut joined_at = JOINED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(first) = *joined_at {
        let fault = fault!(Data, "this process has joined its cluster already")
            .help("call `distributed::init` once, and pass the `Cluster` on");
        let error = Error::new(fault, "distributed::init", Vec::new(), Some(location));
        return Err(error.related(first, "it joined here"));
    }
    let membership = join_group(options, shared_properties, location)?;
    let several = membership.processes > 1;
    let mesh_error = |first| {
        let fault = fault!(Mesh, "this process has made a mesh before it joins the others")
            .help("call `distributed::init` before the first `Mesh`");
        let error = Error::new(fault, "distributed::init", Vec::new(), Some(location));
        error.related(first, "the mesh is made here")
    };
    #[cfg_attr(not(feature = "xla"), expect(unused_mut, reason = "only the engine xla has a client"))]
    let mut cluster = Cluster {
        membership,
        #[cfg(feature = "xla")]
        client: None,
    };
    if several {
        check_no_mesh().map_err(mesh_error)?;
        #[cfg(feature = "xla")]
        cluster.create_client().map_err(|e| e.with_location("distributed::init", location))?;
        let devices = ClusterDevices {
            process: cluster.process(),
            counts: cluster.device_counts(),
            run_programs: process_devices().is_some(),
        };
        set_cluster_devices(devices).map_err(mesh_error)?;
    }
    *joined_at = Some(location);
    Ok(cluster)
}

/// Returns the properties that all processes must have in common.
fn shared_properties() -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("atmesh", env!("CARGO_PKG_VERSION").to_string()),
        // its calls wait for all processes
        ("ATMESH_CHECK", if compares_replicas() { "on" } else { "off" }.to_string()),
        #[cfg(feature = "xla")]
        ("the PJRT C API", crate::xla::pjrt::plugin_version()?),
    ])
}

/// The processes that run this program together. [`init`] returns it.
///
/// When it is dropped, this process leaves in order; process 0 leaves last. A process that ends
/// otherwise counts as gone, and every other process receives an error that names it.
pub struct Cluster {
    membership: Membership,
    #[cfg(feature = "xla")]
    client: Option<Client>,
}

impl Cluster {
    /// Returns the rank of this process: 0 for the first one.
    #[doc(alias("process_index", "get_rank", "MPI_Comm_rank"))]
    pub fn process(&self) -> usize {
        self.membership.process
    }
    /// Returns the number of processes.
    #[doc(alias("process_count", "world_size", "MPI_Comm_size"))]
    pub fn processes(&self) -> usize {
        self.membership.processes
    }
    /// Returns the rank among the processes on this host, which selects the devices of a host.
    pub fn local_process(&self) -> usize {
        self.membership.local_process
    }
    /// Returns the number of devices of all processes, which is the size of their meshes.
    ///
    /// Without a plugin it is the sum of what the options of the processes say, 1 by default.
    /// Meshes of one process may have any size.
    ///
    /// ```
    /// use atmesh::distributed::{Options, init_with};
    /// let cluster = init_with(Options::default().devices(8))?;
    /// assert_eq!((cluster.devices(), cluster.local_devices()), (8, 8));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn devices(&self) -> usize {
        #[cfg(feature = "xla")]
        if let Some(client) = &self.client {
            return client.devices();
        }
        match &self.membership.group {
            Some(group) => group.devices().iter().sum(),
            None => self.local_devices(),
        }
    }
    /// Creates the client of all processes, if the environment names a plugin.
    #[cfg(feature = "xla")]
    fn create_client(&mut self) -> Result<()> {
        let Some(group) = self.membership.group.as_ref().filter(|_| std::env::var_os(PLUGIN).is_some())
        else {
            return Ok(());
        };
        let made = check_default_engine(self.membership.processes)
            .and_then(|()| crate::xla::engine::check_no_client())
            .and_then(|()| Client::for_cluster(&self.membership, group))
            .inspect_err(|_| group.leave(Some("it has no client of the plugin".into())))?;
        let owners: Vec<Option<usize>> = (0..made.devices()).map(|device| made.process_of(device)).collect();
        if !owners.is_sorted() {
            let fault = fault!(Device, "the plugin does not list its devices process by process: {owners:?}");
            return Err(fault.help("this is not supported: use another version of the plugin").into());
        }
        crate::xla::engine::register();
        crate::xla::engine::use_cluster_client(&made, self.membership.processes);
        self.client = Some(made);
        Ok(())
    }
    /// Returns the number of devices of each process.
    fn device_counts(&self) -> Vec<usize> {
        #[cfg(feature = "xla")]
        if let Some(client) = &self.client {
            let mut counts = vec![0; self.processes()];
            let owners = (0..client.devices()).filter_map(|device| client.process_of(device));
            owners.for_each(|process| counts[process] += 1);
            return counts;
        }
        self.membership.group.as_ref().map_or_else(|| vec![self.local_devices()], |group| group.devices())
    }
    /// Returns the number of devices of this process.
    pub fn local_devices(&self) -> usize {
        #[cfg(feature = "xla")]
        if let Some(client) = &self.client {
            return client.own_devices().len();
        }
        self.membership.devices.unwrap_or(1)
    }
    /// Returns the client that has the devices of all processes. (Feature `xla`.)
    ///
    /// `None` if there is one process, or if `ATMESH_PJRT_PLUGIN` is not set. It runs the programs
    /// of arrays on meshes, and StableHLO modules on blocks of bytes.
    #[cfg(feature = "xla")]
    pub fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }
    /// Waits until all processes have come to this barrier.
    ///
    /// The names are compared: a process at another barrier, or in another call, is an error.
    ///
    /// ```
    /// let cluster = atmesh::distributed::init()?;
    /// cluster.barrier("all files are written")?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// A process is gone, has ended, or is in another call.
    #[doc(alias("sync_global_devices", "MPI_Barrier"))]
    #[track_caller]
    pub fn barrier(&self, name: &str) -> Result<()> {
        let Some(group) = &self.membership.group else { return Ok(()) };
        group.meet(&format!("barrier `{name}`"), &[], (None, &[]), Location::caller()).map(drop)
    }
    /// Returns the bytes of process 0, in every process. The others pass any bytes.
    ///
    /// ```
    /// let cluster = atmesh::distributed::init()?;
    /// let seed = if cluster.process() == 0 { vec![42] } else { Vec::new() };
    /// assert_eq!(cluster.broadcast(&seed)?, [42]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// A process is gone, has ended, or is in another call; or there are more than 63 MiB.
    #[doc(alias("broadcast_one_to_all", "MPI_Bcast"))]
    #[track_caller]
    pub fn broadcast(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        match &self.membership.group {
            Some(group) => group.meet("broadcast", &[], (Some(0), bytes), Location::caller()),
            None => Ok(bytes.to_vec()),
        }
    }
    /// Returns an error if the cluster cannot go on, such as after the death of a process.
    ///
    /// It sends no message. Loops of host code call it to end with the other processes.
    ///
    /// ```
    /// let cluster = atmesh::distributed::init()?;
    /// for _ in 0..3 {
    ///     // … a part of the work …
    ///     cluster.check()?;
    /// }
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// A process is gone, or processes have made different calls.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        match self.membership.group.as_ref().and_then(|group| group.fault()) {
            Some(fault) => Err(Error::new(fault, "Cluster::check", Vec::new(), Some(Location::caller()))),
            None => Ok(()),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // a plugin may exchange a last word with the other processes
        #[cfg(feature = "xla")]
        drop(self.client.take());
        if let Some(group) = &self.membership.group {
            group.leave(None);
        }
    }
}
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.membership.group {
            Some(group) => fmt::Debug::fmt(group, f),
            None => f.write_str("process 0 of 1"),
        }
    }
}
