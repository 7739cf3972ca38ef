//! Operations on arrays by family: values, errors, and the same bits on every engine and mesh.

#[path = "../error_checks/mod.rs"]
mod error_checks;
#[path = "../soak/mod.rs"]
mod soak;

mod arrays;
mod complex;
mod complex_special;
mod convolutions;
mod custom;
mod display;
mod element_types;
mod in_place;
mod indexing;
mod linalg;
mod lines;
mod misbehaving_kernels;
mod named;
mod numpy_names;
mod outer_products;
mod sharded_parts;
mod short_rows;
mod thresholds;
mod windows;
