//! Types of arrays: element type, shape, sharding, and the manual axes over which values vary.

mod array_type;
mod parse;
mod precision;

pub use crate::core::dtype::{DType, DTypeClass, Element, Scalar, Shape};
pub(crate) use crate::core::dtype::{ScalarElement, f64_to_f32_odd, gcd, i128_to_f64_odd, with_dtype};
pub use array_type::ArrayType;
pub(crate) use array_type::{MAX_INDICES, too_many_indices};
pub use precision::{Precision, default_matmul_precision, set_default_matmul_precision};
