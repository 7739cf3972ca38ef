//! Comparison of whole arrays: elementwise closeness, and equality as a host value.

use super::{Array, Operand, Term};
use crate::core::{DType, Error, ErrorKind, Fault, Result, Scalar, types::with_dtype};
use crate::ir::ops::elementwise::{Binary, Unary};
use crate::ir::program::CallSite;
use std::panic::Location;

/// # Closeness and equality
impl Array {
    forward! {
        /// Returns true where |self − b| ≤ 1e-8 + 1e-5·|b|, elementwise; shapes broadcast.
        ///
        /// Equal infinities are close; NaN is close to nothing. [`allclose`](Array::allclose)
        /// returns one host value for all elements.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([1.0f32, 2.0]);
        /// assert_eq!(x.isclose(Array::from([1.000001f32, 2.1])).to_vec::<bool>()?, [true, false]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn isclose(b: impl Operand) = isclose_at(b.term(), [1e-5, 1e-8]);
        /// Returns true where |self − b| ≤ atol + rtol·|b|, elementwise; shapes broadcast.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([1.0f32, 2.0]);
        /// assert_eq!(x.isclose_with(1.5, 0.0, 0.5).to_vec::<bool>()?, [true, true]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn isclose_with(b: impl Operand, rtol: f64, atol: f64)
            = isclose_at(b.term(), [rtol, atol]);
    }
    /// Implements [`Array::isclose`].
    fn isclose_at(&self, b: Term, [rtol, atol]: [f64; 2], call: CallSite<'_>) -> Array {
        // the first operation has the user's operands, so its errors name them
        let equal = self.binary_with(Binary::Eq, &b, call);
        let a = self.to_mean_dtype(call);
        let (b, size, finite) = match b {
            Term::Array(b) => {
                let b = b.to_mean_dtype(call);
                let size = b.unary(Unary::Abs, call);
                let finite = size.unary(Unary::IsFinite, call).term();
                let tolerance = size.binary_with(Binary::Mul, rtol, call);
                (b.term(), tolerance.binary_with(Binary::Add, atol, call).term(), finite)
            }
            Term::Number(x) => {
                let size = x.to_c128().norm();
                let finite = Term::Number(Scalar::Bool(size.is_finite()));
                (Term::Number(x), Term::Number(Scalar::Float(atol + rtol * size)), finite)
            }
        };
        let gap = a.binary_with(Binary::Sub, b, call).unary(Unary::Abs, call);
        let near = gap.binary_with(Binary::Le, size, call).binary_with(Binary::And, finite, call);
        equal.binary_with(Binary::Or, near, call)
    }
    /// Returns true if both arrays have one shape and equal elements; NaN equals nothing.
    ///
    /// This is a host value. Within a traced function, compare with
    /// [`eq`](Array::eq): `x.eq(&y).all(..)`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1, 2]);
    /// assert!(x.array_equal(&x)? && !x.array_equal(&Array::from([1, 2, 3]))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("equal", "array_equiv"))]
    #[track_caller]
    pub fn array_equal(&self, other: &Array) -> Result<bool> {
        let location = Location::caller();
        let (a, b) = (self.ty()?, other.ty()?);
        if a.dtype != b.dtype {
            let message = format!("the element types differ: {} and {}", a.dtype, b.dtype);
            let fault = Fault::new(ErrorKind::Dtype, message).help(match a.dtype {
                DType::Key => "compare the words of keys: `key.data()`".into(),
                dtype => format!("convert one: `.astype({dtype:?})`"),
            });
            return Err(Error::new(fault, "array_equal", vec![a.to_string(), b.to_string()], Some(location)));
        }
        let (x, y) = (self.host_data("array_equal", location)?, other.host_data("array_equal", location)?);
        let same = with_dtype!(a.dtype.storage(), T => x.elements::<T>() == y.elements::<T>());
        Ok(a.shape == b.shape && same)
    }
}
