//! Prices: what a fetch moves, in a time that does not grow with the number of devices.

pub(super) mod cost;
mod lines;
pub(super) mod prices;
pub(super) mod reader;
