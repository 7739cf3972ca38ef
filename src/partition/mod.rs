//! The SPMD partitioner: turns a placed program into a per-device program.
//!
//! Its results are the program and a report of the collectives that it runs.
//!
//! A *draft* (`draft`) is a list of steps whose loops have no layout yet. The passes below fill it
//! in, in this order:
//!
//! | pass | file | decision |
//! |---|---|---|
//! | 1 lower | `lower/` | Writes equations as loop nests over stored values. Carries that a loop only adds up stay partial (`lower/loop_sums`). Programs nested in loops and branches go through all passes on their own |
//! | 2 views | `assign/fuse_views` | Which structural operations need no storage, because their consumers read through them |
//! | 3 regions | `assign/region_search` | The placement of values that no type constrains, chosen by cost for groups of values that move together |
//! | 4 alignment | `assign/block_align` | The offsets of the blocks of elementwise values |
//! | 5 loops | `assign/loops` | The layout of each step's loops, by cost; how partial values are combined, and which are added first (`assign/defer_reduction`) |
//! | 6 hoist | `assign/hoist_inputs` | Which inputs of a loop body get another layout, and which values are computed before the loop (`assign/licm`); which small reductions share an exchange (`assign/combine_collectives`) |
//! | 7 fetch | `assign/insert_fetches` | Which values are fetched, and before which step |
//! | 8 report | `report/` | The name, bytes and source location of each collective |
//!
//! `cost/` computes how many elements a candidate layout would move, in time that does not depend
//! on the number of devices. What a step reads is a few strided boxes (`strided_box`), which are
//! products of progressions (`progression`), and are measured without listing their elements. The
//! other modules are `layout` (how a dimension is split), `boxes` (boxes of indices), `access` and
//! `reshape_boxes` (the strided boxes that a step reads), `work` (a count of boxes and candidates
//! for tests), `program` (the result, printed by `print`), `collective` (the record of each
//! collective), `columns` (tables as text), `buffers` (the per-device program as operations over
//! buffers), `fusion` (which of these operations run as one kernel, and which values are in
//! memory), `fetch_target` (copies into which fetched data is received), `memory` (peak memory per
//! device), `transfers` (the blocks that a device receives, and from which device), `tree_reduce`
//! (the messages of small reductions), `propagate` (sharding propagation, which runs before
//! lowering) and `plan` (the performance model). Both partitioner and model price collectives by
//! `machine`.
//!
//! # Example: one `dot`, pass by pass
//!
//! The program is `x.dot(w.t())` on two devices, with `x: float32[8@X,6]` and `w: float32[2,6@X]`.
//! Lowering turns each equation into a step. The sharding of each value is known from its type,
//! but the layout of the loops is not: `over []`.
//!
//! ```text
//! (%0: f32[8@X,6], %1: f32[2,6@X]) {
//!   %2: f32[6@X,2] = %1[j,i] over []  // transpose
//!   %3: f32[8@X,2] = sum of %0[i,k] · %2[k,j] over []  // dot_general
//!   return %3
//! }
//! ```
//!
//! A transpose is a view: the product is its only consumer and reads through it.
//!
//! ```text
//! (%0: f32[8@X,6], %1: f32[2,6@X]) {
//!   %3: f32[8@X,2] = sum of %0[i,k] · %1[j,k] over []  // dot_general
//!   return %3
//! }
//! ```
//!
//! Two layouts are possible. Loop `k` can be split as `w` is, and the partial sums added; or loop
//! `i` can be split as `x` and the result are, and `w` sent to all devices. The second moves less.
//! The loops become `[8@X,2; 6]`, with the contracted loop after the semicolon.
//!
//! ```text
//! (%0: f32[8@X,6], %1: f32[2,6@X]) {
//!   %3: f32[8@X,2] = sum of %0[i,k] · %1[j,k] over [8@X,2; 6]  // dot_general
//!   return %3
//! }
//! ```
//!
//! Each device now reads all of `%1` but holds half of it. A fetch is inserted before the first
//! step that reads elements its device does not hold.
//!
//! ```text
//! (%0: f32[8@X,6], %1: f32[2,6@X]) {
//!   fetch %1 for %3  // dot_general
//!   %3: f32[8@X,2] = sum of %0[i,k] · %1[j,k] over [8@X,2; 6]  // dot_general
//!   return %3
//! }
//! ```
//!
//! `%1` is split over X, and the loops that read it are not split along it. An exchange that only
//! removes a split is an all-gather:
//!
//! ```text
//! all_gather over X: 24 bytes per device
//! ```

pub mod plan;
#[doc(hidden)]
pub mod propagate;

#[doc(hidden)]
pub mod access;
mod assign;
#[doc(hidden)]
pub mod boxes;
pub(crate) mod buffers;
mod collective;
mod columns;
mod cost;
mod draft;
pub(crate) mod fetch_target;
pub(crate) mod fusion;
mod layout;
mod lower;
pub(crate) mod machine;
mod memory;
mod nested;
pub(crate) mod print;
mod program;
mod progression;
mod report;
mod reshape_boxes;
mod strided_box;
mod transfers;
mod tree_reduce;
mod work;

pub use crate::partition::collective::{Collective, CollectiveKind, Collectives};
#[doc(hidden)]
pub use assign::Partitioned;
pub(crate) use cost::compute::TransferPrices;
pub use layout::{DimLayout, Layout};
#[doc(hidden)]
pub use lower::partition;
pub(crate) use lower::partition_for;
pub use memory::{Memory, MemoryClass, MemoryEntry};
pub use program::{FetchRequest, PrintOperand, Slot, SpmdProgram, Step, StepOrigin, StoredValue};
pub(crate) use report::provenance;
pub use transfers::Transfer;
#[doc(hidden)]
pub use tree_reduce::TreeMessage;
#[doc(hidden)]
pub use work::take_work;

#[cfg(test)]
mod tests;
