//! The cost model: how many elements fetches move, and what that costs relative to computation.
//!
//! The time to evaluate the model does not depend on the number of devices.

mod aligned;
pub(super) mod cache;
pub(crate) mod compute;
pub(super) mod consumer;
pub(super) mod exchange;
pub(super) mod factorize;
mod linear;
pub(super) mod projection;
pub(super) mod transfer;
