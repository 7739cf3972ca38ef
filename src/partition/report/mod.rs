//! Reports on programs: the kind, bytes, reason and provenance of each collective.

pub(crate) mod table;

pub(super) mod classify;
pub(crate) mod provenance;
mod reductions;
mod sampling;
