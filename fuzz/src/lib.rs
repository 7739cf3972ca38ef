//! What must hold of each reader for any input. The fuzz targets call these functions, and
//! `tests/readers.rs` includes them.

pub mod notation;
pub mod npy;
pub mod plugin_options;
pub mod safetensors;
