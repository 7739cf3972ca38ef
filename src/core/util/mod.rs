//! Sorting of short lists.

pub(crate) mod small_sort;
