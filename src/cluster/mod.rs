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
//! | `dispute`, `program_text` | two processes that differ: in which call, in which line of a program |
//! | `wire` | the messages |

mod connection;
mod dispute;
mod group;
mod join;
mod launcher;
mod options;
mod outbox;
#[cfg_attr(not(feature = "xla"), allow(dead_code, reason = "only the engine XLA compiles programs"))]
mod program_text;
mod progress;
mod roll_call;
mod server;
mod store;
mod wire;

#[cfg(feature = "xla")]
pub(crate) use group::{CallTerms, ProcessGroup, current_group};
pub(crate) use group::{Membership, join_group};
pub use options::Options;
#[cfg(feature = "xla")]
pub(crate) use program_text::fingerprint;
#[cfg(feature = "xla")]
pub(crate) use progress::CallGuard;
