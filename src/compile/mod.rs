//! From a per-device program to something that runs: a file a pass.
//!
//! | pass | file | decides |
//! |---|---|---|
//! | 1 pieces | `flow`, `build`, `turn` | every read as boxes with one affine map each; products as their readers want them |
//! | 2 groups, 3 stored | `group` | which steps share one run over an index space, and what is in memory |
//! | 4 cells | `cells`, `expr`, `chain`, `pairs`, `emit`, `tiles` | one tile program for each cell of the space; sums of many terms in one instruction, and what reads a difference with it |
//! | 5 to 9 | `plan`, `arena`, `fold`, `product`, `seek` | aliases, levels, buffers, nodes bound to memory, which nodes share their rows, cost |
//!
//! Passes 1 to 4 know nothing of memory but the strides of values; `kernel` runs tile programs over boxes for any engine, `rowwise` several of them on a row.

pub(crate) mod arena;
pub(crate) mod build;
pub(crate) mod cells;
mod chain;
mod emit;
pub(crate) mod expr;
pub(crate) mod flow;
pub(crate) mod fold;
pub(crate) mod group;
pub(crate) mod index;
pub(crate) mod kernel;
pub(crate) mod lines;
mod pairs;
pub(crate) mod plan;
pub(crate) mod product;
pub(crate) mod rowwise;
pub(crate) mod seek;
pub(crate) mod tiles;
mod turn;

pub(crate) use plan::compile;
