//! Bits of elements, and comparison of arrays within tolerances.

use super::operands::{JoinResult, JoinsElem, RightOperand};
use super::sets::{CompleteFor, JoinRhs, Sets};
use super::{Float, SameElem, Typed, TypedArray, equal_sizes, op, rules::broadcast::ZipRhs, shape::Shape};
use crate::core::{Element, Result};
use half::{bf16, f16};

/// An element type whose bits can be read as elements of type `U`, of the same width.
#[diagnostic::on_unimplemented(
    message = "the bits of `{Self}` cannot be read as `{U}`",
    label = "expected two element types of the same width",
    note = "other widths add or remove a dim: `x.then::<T![..]>(|x| x.bitcast(..))`"
)]
pub trait SameWidth<U>: Element {}
macro_rules! widths { ($([$($t:ident)*])*) => { $( widths!(@ [$($t)*] $($t)*); )* };
    (@ $all:tt $($t:ident)*) => { $( widths!(% $t $all); )* };
    (% $t:ident [$($u:ident)*]) => { $( impl SameWidth<$u> for $t {} )* };
}
widths!([i8 u8] [i16 u16 f16 bf16] [i32 u32 f32] [i64 u64 f64]);

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Splits floats into mantissas and exponents. Shape and sharding do not change.
        ///
        /// See [`Array::frexp`](crate::Array::frexp).
        pub fn frexp(&self) -> (Self, Typed<i32, S, V>)
        where [T: Float, V: CompleteFor<op::frexp>]
            = self.array.frexp();
        /// Returns true where |a − b| ≤ `atol` + `rtol`·|b|. Dims pair up as in `a + b`.
        pub fn isclose_with[B: RightOperand<Kind: JoinsElem<T, B::Elem>>](&self, b: B, rtol: f64, atol: f64)
            -> JoinResult<bool, S, V, B>
        where [T: Float, B::Shape: ZipRhs<S>, B::Sets: JoinRhs<V>]
            = equal_sizes::right::<S, B>("isclose_with", &self.array, &b)
                => self.array.isclose_with(b, rtol, atol), with b = b.right_term();
        /// Reads the bits as elements of a type of the same width. Shape and sharding do not
        /// change.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let bits: T![u32; 4@X] = <T![f32; 4@X]>::ones(&Pod::mesh()?).bitcast::<u32>();
        /// assert_eq!(bits.to_vec()?, [1f32.to_bits(); 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn bitcast[U: Element](&self) -> Typed<U, S, V>
        where [T: SameWidth<U>, V: CompleteFor<op::bitcast>]
            = self.array.bitcast(U::DTYPE);
    }
    /// Returns true if the arrays have equal shapes and elements. Shardings may differ.
    #[track_caller]
    pub fn array_equal<R: TypedArray<Elem: SameElem<T>>>(&self, other: &R) -> Result<bool> {
        self.array.array_equal(other.as_untyped())
    }
    /// Returns true if |a − b| ≤ 1e-8 + 1e-5·|b| for all elements. Shardings may differ.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X]>::ones(&Pod::mesh()?);
    /// assert!(x.allclose(&(&x + 1e-6))? && !x.array_equal(&(&x + 1e-6))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn allclose<R: TypedArray<Elem: SameElem<T>>>(&self, other: &R) -> Result<bool> {
        self.array.allclose(other.as_untyped())
    }
    /// Returns true if |a − b| ≤ `atol` + `rtol`·|b| for all elements. Shardings may differ.
    #[track_caller]
    pub fn allclose_with<R: TypedArray<Elem: SameElem<T>>>(
        &self,
        other: &R,
        rtol: f64,
        atol: f64,
    ) -> Result<bool> {
        self.array.allclose_with(other.as_untyped(), rtol, atol)
    }
}
