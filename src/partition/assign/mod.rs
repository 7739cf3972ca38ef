//! Layout assignment: decides what to store, where blocks start, and how loops are split.
//! It also inserts the fetches that follow from these decisions.

mod block_align;
mod candidates;
mod combine_collectives;
mod defer_reduction;
mod free_step;
mod fuse_views;
mod hoist_inputs;
mod insert_fetches;
mod licm;
mod loops;
pub(super) mod pipeline;
mod place;
mod reads;
mod reduction;
mod region_graph;
mod region_search;
mod scatter;
mod split_scatters;
#[cfg(debug_assertions)]
mod verify;

pub use pipeline::Partitioned;
