//! Prices: what a fetch moves, in a time that does not grow with the number of devices.

mod boxes;
pub(super) mod cost;
pub(super) mod factors;
mod lines;
pub(super) mod prices;
pub(super) mod reader;
pub(crate) mod work;
