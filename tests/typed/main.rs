//! The typed layer: programs, derivatives, device code, sizes that are known at run time, and random
//! programs, compared with the untyped layer and with rustc.

#![cfg(feature = "typed")]

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod compiled;
mod device;
mod grad;
mod layers;
mod model;
mod numbers_and_indices;
mod random;
mod sets;
mod sizes;
mod sizes_random;
mod structs;
