//! What is told of a program: the names and figures of what it communicates.

pub(crate) mod chain;
pub(super) mod names;
mod seen;
mod sums;
