//! Sorting of short lists, and text for people.

pub(crate) mod small_sort;
pub(crate) mod text;
