//! Shardings: rules of types, placements in auto mode, and the bytes that programs move.

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod auto_mode;
mod checkpoints;
mod collectives_of_rows;
mod communication;
mod cost_model;
mod explicit_mode;
mod gradient_sums;
mod loop_sums;
mod lowering_work;
mod megatron;
mod modes;
mod open_dims;
mod reshapes;
mod reshards;
#[path = "../soak/mod.rs"]
mod soak;
mod stencils_and_steps;
mod types_and_layouts;
mod unchecked;
