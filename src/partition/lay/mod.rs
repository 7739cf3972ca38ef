//! Laying out: what is stored, where blocks begin, where loops run, what is fetched.

#[cfg(debug_assertions)]
mod check;
mod choose;
mod fetch;
mod frames;
mod hoist;
mod invariant;
mod linked;
mod parts;
mod place;
pub(super) mod plan;
mod puts;
mod regions;
mod splits;
mod sums;
mod together;
mod views;

pub use plan::Localised;
