//! Training: logical axes and layouts, layers, losses, initializers and samplers.

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod layouts;
mod logical_axes;
mod nn;
