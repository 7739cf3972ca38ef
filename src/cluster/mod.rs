//! One program in several processes: joining, and the consequences when one of them dies.
//!
//! `atmesh::distributed` is the public part. It knows nothing of devices or arrays.
//!
//! | file | contents |
//! |---|---|
//! | `launcher`, `options` | the rank of this process, and the address of process 0 |
//! | `join`, `group` | joining, and the calls of the other folders |
//! | `connection`, `progress` | the threads of a process: one reads, one writes and sends heartbeats |
//! | `server`, `outbox` | the sockets of the store, which process 0 serves |
//! | `store`, `roll_call` | the state of the store: values, meetings, and who is silent or missing |
//! | `wire` | the messages |

mod connection;
mod group;
mod join;
mod launcher;
mod options;
mod outbox;
mod progress;
mod roll_call;
mod server;
mod store;
mod wire;

#[cfg(feature = "xla")]
pub(crate) use group::ProcessGroup;
pub(crate) use group::{Membership, join_group};
pub use options::Options;
#[cfg(feature = "xla")]
pub(crate) use progress::CallGuard;
