//! Types of arrays: element type, shape, sharding, and what varies over manual axes.

mod array_type;
mod dtype;
mod parse;
mod scalar;
mod shape;

pub use array_type::ArrayType;
pub use dtype::{DType, Element};
pub use scalar::Scalar;
pub(crate) use scalar::odd;
pub use shape::Shape;
