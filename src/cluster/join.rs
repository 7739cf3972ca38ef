//! Joining: process 0 starts to listen, and all processes connect to it.

use super::connection::StoreConnection;
use super::options::JoinPlan;
use super::progress::Progress;
use super::server::{ServerOptions, StoreServer};
use super::wire::{ClusterFault, FaultKind, Hello, ProcessInfo, SharedProperty, WireList};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

/// The connection of a process to the others, and the store if this is process 0.
pub(super) struct Joined {
    pub(super) connection: StoreConnection,
    pub(super) server: Option<StoreServer>,
    pub(super) progress: Arc<Progress>,
}

/// Joins the other processes of a plan. `properties` must be the same in all of them.
pub(super) fn join(plan: &JoinPlan, properties: &[(&str, String)]) -> Result<Joined, ClusterFault> {
    let property =
        |(name, value): &(&str, String)| SharedProperty { name: name.to_string(), value: value.clone() };
    let own = Hello {
        info: ProcessInfo {
            process: plan.process,
            host: host_name(),
            pid: std::process::id(),
            local_process: plan.local_process.unwrap_or(0),
            devices: plan.devices.unwrap_or(1),
        },
        processes: plan.processes,
        job: plan.job.clone(),
        properties: WireList(properties.iter().map(property).collect()),
    };
    let progress = Arc::new(Progress::default());
    let server = match plan.process {
        0 => Some(serve(plan, own.clone(), progress.clone())?),
        _ => None,
    };
    match StoreConnection::join(plan, own, progress.clone()) {
        Ok(connection) => Ok(Joined { connection, server, progress }),
        Err(fault) => {
            // the others learn the reason before the store ends
            if let Some(server) = server {
                server.finish();
            }
            Err(fault)
        }
    }
}

fn serve(plan: &JoinPlan, own: Hello, progress: Arc<Progress>) -> Result<StoreServer, ClusterFault> {
    let info = own.info.clone();
    let options = ServerOptions {
        own,
        progress,
        patience: plan.patience,
        join_timeout: plan.join_timeout,
        address: plan.coordinator.clone(),
    };
    let server = listen(&plan.coordinator).and_then(|listener| StoreServer::start(listener, options));
    server.map_err(|e| ClusterFault {
        kind: FaultKind::Join,
        message: match e.kind() {
            io::ErrorKind::AddrInUse => {
                format!("{info} cannot listen at {}: the port is in use", plan.coordinator)
            }
            _ => format!("{info} cannot listen at {}: {e}", plan.coordinator),
        },
        help: "choose a free port of the host of process 0: `ATMESH_COORDINATOR=host:port`".into(),
        process: None,
    })
}

/// Listens at an address of this host; at all of its addresses if the name is one of a gateway.
fn listen(address: &str) -> io::Result<TcpListener> {
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the name of its host is not known");
    let addresses: Vec<_> = address.to_socket_addrs()?.collect();
    for socket_address in &addresses {
        match TcpListener::bind(socket_address) {
            Ok(listener) => return Ok(listener),
            Err(e) => error = e,
        }
    }
    let port = addresses.first().map(|address| address.port());
    match (error.kind(), port) {
        (io::ErrorKind::AddrNotAvailable, Some(port)) => TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))),
        _ => Err(error),
    }
}

/// Returns the name of this host.
fn host_name() -> String {
    #[cfg(target_os = "linux")]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(target_os = "linux"))]
    let name = ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|n| std::env::var(n).ok()).unwrap_or_default();
    if name.is_empty() { "localhost".into() } else { name }
}
