//! Array values as text.

pub(crate) mod format;
pub(crate) mod print;
