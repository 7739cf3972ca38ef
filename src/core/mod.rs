//! The vocabulary of all stages: axes, meshes, element types, shardings, array types and errors.

pub(crate) mod axes;
pub mod diagnostic;
pub(crate) mod dtype;
pub mod mesh;
pub(crate) mod scalar_op;
pub mod sharding;
pub mod types;
pub(crate) mod util;
