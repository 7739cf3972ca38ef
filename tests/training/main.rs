//! Training: optimizers, schedules and fits.

mod fits;
mod optim;
mod trees;
