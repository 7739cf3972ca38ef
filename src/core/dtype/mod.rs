//! Element types, scalars and shapes: properties of arrays that do not depend on placement.

mod class;
mod element_type;
mod scalar;
mod shape;

pub use class::DTypeClass;
pub(crate) use element_type::with_dtype;
pub use element_type::{DType, Element};
pub use scalar::Scalar;
pub(crate) use scalar::{ScalarElement, f64_to_f32_odd, i128_to_f64_odd};
pub use shape::Shape;
pub(crate) use shape::gcd;
