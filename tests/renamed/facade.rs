//! A crate that exports atmesh to its users.
pub use atmesh as arrays;
