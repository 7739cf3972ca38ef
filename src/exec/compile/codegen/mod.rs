//! Code generation: from fused elementwise operations to tile programs, and their interpreter.

mod cell;
pub(crate) mod emit;
pub(crate) mod flat_program;
pub(crate) mod flat_rows;
pub(crate) mod interpreter;
pub(crate) mod peephole;
pub(crate) mod segments;
pub(crate) mod tile_program;
pub(crate) mod values;
pub(crate) mod weighted_sum;
