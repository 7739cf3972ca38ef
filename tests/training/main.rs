//! Training: logical axes and layouts, layers, losses, initializers and samplers, optimizers and fits.

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod fits;
mod layouts;
mod logical_axes;
mod nn;
mod optim;
mod trees;
