//! Arrays: the handle, and what programs do with it.

mod handle;

pub use handle::Array;
pub(crate) use handle::{Concrete, Repr};
