//! From a placed program to one per-device program, and the report of what it communicates.
//!
//! | pass | file | decides |
//! |---|---|---|
//! | 1 lower | `lower/` | equations as sentences over stored values: a draft. Programs inside loops and branches go through all passes by themselves |
//! | 2 views | `lay/views` | which values need not be stored: their readers read through them |
//! | 3 regions | `lay/regions` | where values are whose placement nobody asked for: those that move together, by price |
//! | 4 frames | `lay/frames` | where the blocks of elementwise values begin |
//! | 5 choose | `lay/choose` | where the loops of each step run, by price; how parts are combined, and which are added first (`lay/sums`) |
//! | 6 hoist | `lay/hoist` | which inputs of a loop's body had better be laid out otherwise, and what is made before the loop (`lay/invariant`); which small sums go together (`lay/together`) |
//! | 7 fetch | `lay/fetch` | what is fetched, and before which step |
//! | 8 told | `told/` | the names, bytes and lines of what is communicated |
//!
//! The passes work on a draft (`draft`); `price/` says what a way to lay a step out moves, in a time that does not grow with the number of
//! devices. What they share: `layout` (how a dimension is split), `region` (boxes of indices), `reads` (which boxes a step reads),
//! `program` (the result, which `print` writes), `fused` (which steps are one kernel), `memory` (what devices hold at the peak), `pieces` (which device has what of whom) and `route` (how small sums go
//! from device to device).
//!
//! # One `dot` on its way
//!
//! `x.dot(w.t())` on two devices, for `x: float32[8@X,6]` and `w: float32[2,6@X]`. Lowered, each equation is a step. What a value's
//! type says of its sharding is there, where loops run is not: `over []`.
//!
//! ```text
//! (%0: f32[8@X,6], %1: f32[2,6@X]) {
//!   %2: f32[6@X,2] = %1[j,i] over []  // transpose
//!   %3: f32[8@X,2] = sum of %0[i,k] · %2[k,j] over []  // dot_general
//!   return %3
//! }
//! ```
//!
//! A transpose is a view: the product reads through it, and nothing else reads it.
//!
//! ```text
//! (%0: f32[8@X,6], %1: f32[2,6@X]) {
//!   %3: f32[8@X,2] = sum of %0[i,k] · %1[j,k] over []  // dot_general
//!   return %3
//! }
//! ```
//!
//! Loop `k` could run where `w` is (and parts be summed), or loop `i` where `x` and the result are, with `w` brought to every device. The
//! second moves less: loops are `[8@X,2; 6]`, the folded one behind the semicolon.
//!
//! ```text
//! (%0: f32[8@X,6], %1: f32[2,6@X]) {
//!   %3: f32[8@X,2] = sum of %0[i,k] · %1[j,k] over [8@X,2; 6]  // dot_general
//!   return %3
//! }
//! ```
//!
//! Each device reads all of `%1` then, and holds half: a fetch goes before the first step that reads what its device does not hold.
//!
//! ```text
//! (%0: f32[8@X,6], %1: f32[2,6@X]) {
//!   fetch %1 for %3  // dot_general
//!   %3: f32[8@X,2] = sum of %0[i,k] · %1[j,k] over [8@X,2; 6]  // dot_general
//!   return %3
//! }
//! ```
//!
//! Digits that are held and not wanted, and none the other way: that is called
//!
//! ```text
//! all_gather over X: 24 bytes per device
//! ```

mod draft;
pub(crate) mod fused;
mod lay;
mod layout;
mod lower;
mod memory;
mod pieces;
mod price;
mod print;
mod program;
pub mod reads;
pub mod region;
mod report;
mod route;
mod told;

pub use lay::Localised;
pub use layout::{DimLayout, Layout};
pub use lower::localise;
pub(crate) use lower::localise_for;
pub use memory::{Memory, MemoryClass, MemoryEntry};
pub use pieces::Piece;
pub(crate) use price::work::PerByte;
pub use program::{Need, Printed, Slot, SpmdProgram, Step, Stored, Why};
pub(crate) use report::PHASE;
pub use report::{Collective, Collectives, Kind};
pub use route::Letter;
pub(crate) use told::chain;

#[cfg(test)]
mod tests;
