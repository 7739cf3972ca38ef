//! Lowering: turns equations into the steps of a draft.
//!
//! The bodies of loops and branches become nested programs, which are lowered and run through the
//! pass pipeline when the equation that contains them is lowered. The bodies of calls and
//! `shard_map`s become part of the surrounding draft.

mod branches;
mod collective;
mod collective_read;
mod control;
mod equations;
mod loop_sums;
mod manual;
mod partial_rows;
mod program;
mod separable_rows;
mod to_partial;
mod two_phase;
mod varying;
mod while_loops;

pub use program::partition;
pub(crate) use program::partition_for;
