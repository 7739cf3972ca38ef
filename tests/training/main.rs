//! Training: logical axes and layouts.

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod layouts;
mod logical_axes;
