//! Types of arrays: element type, shape, sharding, and the manual axes over which values vary.
//!
//! ```
//! use atmesh::types::{ArrayType, DType};
//! let ty: ArrayType = DType::F32.array_type([4, 2]);
//! assert_eq!((ty.to_string().as_str(), ty.nbytes()), ("float32[4,2]", 32));
//! ```

mod array_type;
mod parse;
mod precision;

pub use crate::core::dtype::{DType, DTypeClass, Element, Scalar, Shape};
pub(crate) use crate::core::dtype::{ScalarElement, f64_to_f32_odd, gcd, i128_to_f64_odd, with_dtype};
pub use array_type::ArrayType;
pub(crate) use array_type::{MAX_INDICES, too_many_indices};
pub use precision::{Precision, default_matmul_precision, set_default_matmul_precision};
