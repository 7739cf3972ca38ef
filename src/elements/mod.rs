//! What an array is of, wherever it is placed: element types, numbers, shapes.

mod dtype;
mod scalar;
mod shape;

pub(crate) use dtype::with_dtype;
pub use dtype::{DType, Element};
pub use scalar::Scalar;
pub(crate) use scalar::{Number, odd, odd_whole};
pub use shape::Shape;
pub(crate) use shape::gcd;
