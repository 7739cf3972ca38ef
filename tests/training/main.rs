//! Training: layouts, layers, losses, optimizers, fits, and derivatives by the user's rules.

#[path = "../error_checks/mod.rs"]
mod error_checks;
#[path = "../soak/mod.rs"]
mod soak;

mod custom_rules;
mod fits;
mod layouts;
mod logical_axes;
mod manual_collectives;
mod nn;
mod optim;
mod ragged;
mod transformer;
mod trees;
