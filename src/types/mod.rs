//! Types of arrays: element type, shape, sharding, and what varies over manual axes.

mod array_type;
mod parse;

pub use crate::elements::{DType, Element, Scalar, Shape};
pub(crate) use crate::elements::{Number, gcd, odd, odd_whole, with_dtype};
pub use array_type::ArrayType;
pub(crate) use array_type::{MOST_INDICES, too_many};
