//! Two small data structures: sorting of short lists, and a fast hasher.

pub(crate) mod fast_hash;
pub(crate) mod small_sort;
