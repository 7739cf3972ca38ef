//! Elementwise operations: unary, binary, comparison, selection and conversion.

use super::operands::{AddResult, JoinResult, JoinsElem, MulResult, RightOperand};
use super::rules::broadcast::{ZipOf, ZipRhs};
use super::rules::select::SelectRhs;
use super::sets::{AddRhs, CompleteFor, ConvertsAs, InexactConversion, JoinOf, JoinRhs, MulRhs, Sets};
use super::shape::Shape;
use super::{Bits, Float, Integer, Number, NumberOf, Signed, Typed, equal_sizes, op};
use crate::api::array::{Operand, Term};
use crate::core::Element;
use std::marker::PhantomData;

macro_rules! unary { ($bound:ident: $($name:ident)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        #[doc = concat!("Applies elementwise [`Array::", stringify!($name), "`](crate::Array::", stringify!($name), ").")]
        #[track_caller]
        pub fn $name(&self) -> Self
        where
            T: $bound,
            V: CompleteFor<op::$name>,
        {
            Typed::from_rule_result(self.array.$name())
        }
    )* }
} }
unary!(Float: reciprocal relu silu softplus gelu gelu_exact rint nan_to_num);
unary!(Number: square);

/// Defines the typed methods of the table of scalar functions, by the class of their operands.
macro_rules! typed_methods {
    (
        []
        methods { $($(#[$doc:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* }
        $($rest:tt)*
    ) => { $(typed_methods! { $takes $name })* };
    (Float $name:ident) => { unary!(Float: $name); };
    (Inexact $name:ident) => { unary!(Float: $name); };
    (Number $name:ident) => { unary!(Number: $name); };
    (Signed $name:ident) => { unary!(Signed: $name); };
}
crate::scalar_functions!(typed_methods);

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Returns true for elements that are neither infinite nor NaN.
        pub fn is_finite(&self) -> Typed<bool, S, V>
        where [T: Float, V: CompleteFor<op::is_finite>] = self.array.is_finite();
        /// Returns true for elements that are NaN.
        pub fn is_nan(&self) -> Typed<bool, S, V>
        where [T: Float, V: CompleteFor<op::is_nan>] = self.array.is_nan();
        /// Returns true for elements that are infinite.
        pub fn is_inf(&self) -> Typed<bool, S, V>
        where [T: Float, V: CompleteFor<op::is_inf>] = self.array.is_inf();
        /// Returns the value unchanged, with a zero derivative.
        pub fn stop_gradient(&self) -> Self = self.array.stop_gradient();
        /// Raises each element to an integer power.
        pub fn powi(&self, y: i32) -> Self
        where [T: Number, V: CompleteFor<op::powi>]
            = self.array.powi(y);
        /// Converts to another element type, like [`Array::astype`](crate::Array::astype).
        ///
        /// An unreduced sum is converted only between floating-point types.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x: T![i32; 4@X] = <T![f32; 4@X]>::ones(&Pod::mesh()?).convert::<i32>();
        /// # let _ = x;
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn convert[U: Element](&self) -> Typed<U, S, V>
        where [V::Completeness: ConvertsAs<Conversion<T, U>>]
            = self.array.astype(U::DTYPE);
        /// Clamps each element to `low..=high`, which are numbers: `x.clamp(-1.0, 1.0)`.
        pub fn clamp[A: NumberOf<T>, B: NumberOf<T>](&self, low: A, high: B) -> Self
        where [T: Number, V: CompleteFor<op::clamp>]
            = self.array.clamp(low.number(), high.number());
    }
}

/// A conversion of elements from `T` to `U`, for [`ConvertsAs`].
pub struct Conversion<T, U>(PhantomData<fn() -> (T, U)>);
impl<T, U> atmesh_typed::sealed::Sealed for Conversion<T, U> {}
impl<T: Float, U: Float> InexactConversion for Conversion<T, U> {}

macro_rules! binary { ($($(#[$doc:meta])* $name:ident $bound:ident $rhs:ident $of:ident;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<B: RightOperand<Kind: JoinsElem<T, B::Elem>>>(&self, b: B) -> $of<T, S, V, B>
        where
            T: $bound,
            B::Shape: ZipRhs<S>,
            B::Sets: $rhs<V>,
        {
            let b = b.right_term();
            Typed::from_rule_result(match equal_sizes::right::<S, B>(stringify!($name), &self.array, &b) {
                Ok(()) => binary!(% self.array, b, $name),
                Err(unequal) => unequal,
            })
        }
    )* }
};
    (% $a:expr, $b:expr, add) => { &$a + $b };
    (% $a:expr, $b:expr, sub) => { &$a - $b };
    (% $a:expr, $b:expr, mul) => { &$a * $b };
    (% $a:expr, $b:expr, div) => { &$a / $b };
    (% $a:expr, $b:expr, rem) => { &$a % $b };
    (% $a:expr, $b:expr, bitand) => { &$a & $b };
    (% $a:expr, $b:expr, bitor) => { &$a | $b };
    (% $a:expr, $b:expr, bitxor) => { &$a ^ $b };
    (% $a:expr, $b:expr, $name:ident) => { $a.$name($b) };
}
binary! {
    /// Adds elementwise: `a + b`.
    add Number AddRhs AddResult;
    /// Subtracts elementwise: `a - b`.
    sub Number AddRhs AddResult;
    /// Multiplies elementwise: `a * b`.
    mul Number MulRhs MulResult;
    /// Divides elementwise: `a / b`.
    div Number JoinRhs JoinResult;
    /// Computes the elementwise remainder: `a % b`.
    rem Number JoinRhs JoinResult;
    /// Divides elementwise and rounds down, like NumPy's `//`.
    floor_divide Number JoinRhs JoinResult;
    /// Computes the elementwise remainder with the sign of `b`, like NumPy's `%`.
    remainder Number JoinRhs JoinResult;
    /// Raises each element to the power `b`, an array or a number: `x.pow(0.5)`.
    pow Float JoinRhs JoinResult;
    /// Computes the angle of the point (b, self), in radians.
    atan2 Float JoinRhs JoinResult;
    /// Computes √(self² + b²) elementwise.
    hypot Float JoinRhs JoinResult;
    /// Computes self·ln b; the result is 0 where self is 0.
    xlogy Float JoinRhs JoinResult;
    /// Returns the next representable value towards `b`.
    nextafter Float JoinRhs JoinResult;
    /// Computes the bitwise AND.
    bitand Bits JoinRhs JoinResult;
    /// Computes the bitwise OR.
    bitor Bits JoinRhs JoinResult;
    /// Computes the bitwise XOR.
    bitxor Bits JoinRhs JoinResult;
    /// Shifts the bits left.
    shift_left Integer JoinRhs JoinResult;
    /// Shifts the bits right, filling with zeros.
    shift_right_logical Integer JoinRhs JoinResult;
    /// Shifts the bits right, filling with the sign bit.
    shift_right_arithmetic Integer JoinRhs JoinResult;
}

macro_rules! compared { ($($(#[$doc:meta])* $name:ident $out:ty;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<B: RightOperand<Kind: JoinsElem<T, B::Elem>>>(&self, b: B) -> JoinResult<$out, S, V, B>
        where
            B::Shape: ZipRhs<S>,
            B::Sets: JoinRhs<V>,
        {
            let b = b.right_term();
            Typed::from_rule_result(match equal_sizes::right::<S, B>(stringify!($name), &self.array, &b) {
                Ok(()) => self.array.$name(b),
                Err(unequal) => unequal,
            })
        }
    )* }
} }
compared! {
    /// Returns the elementwise maximum; NaN where either operand is NaN.
    maximum T;
    /// Returns the elementwise minimum; NaN where either operand is NaN.
    minimum T;
    /// Compares elementwise: true where the operands are equal.
    eq bool;
    /// Compares elementwise: true where the operands differ.
    ne bool;
    /// Compares elementwise: true where self is less.
    lt bool;
    /// Compares elementwise: true where self is less or equal.
    le bool;
    /// Compares elementwise: true where self is greater.
    /// The operand is an array or a scalar: `x.gt(0.0)`.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![i32; 4@X]>::iota(&Pod::mesh()?, D0);
    /// let large: T![bool; 4@X] = x.gt(1);
    /// assert_eq!(large.select(&x, &-&x).to_vec()?, [0, -1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    gt bool;
    /// Compares elementwise: true where self is greater or equal.
    ge bool;
    /// Compares elementwise: true where the operands are equal up to a tolerance.
    ///
    /// See [`Array::isclose`](crate::Array::isclose).
    isclose bool;
}

/// The element type of a condition: `bool`.
#[diagnostic::on_unimplemented(
    message = "select: the condition is an array of `bool`, not of `{Self}`",
    label = "expected an array of `bool`",
    note = "compare first: `x.gt(0.0).select(&a, &b)`"
)]
pub trait Condition: Element {}
impl Condition for bool {}
impl<C: Element, S: Shape, V: Sets> Typed<C, S, V> {
    forward! {
        /// Selects `a` where self is true, otherwise `b`.
        ///
        /// `a` and `b` are arrays or numbers. Their shapes and the condition's broadcast: a mask
        /// `[S, S]` selects among values `[B@X, S, S]`. A dim that two of them have is sharded the
        /// same way in both.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let pod = Pod::mesh()?;
        /// let x = <T![f32; 4@X, 2, 2]>::ones(&pod);
        /// let (row, column) = (<T![i32; 2, 2]>::iota(&pod, D0), <T![i32; 2, 2]>::iota(&pod, D1));
        /// let causal: T![f32; 4@X, 2, 2] = row.ge(&column).select(&x, -1e9);
        /// assert_eq!(causal.to_vec()?[..4], [1.0, -1e9, 1.0, 1.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn select[T: Element, A: RightOperand, B: RightOperand](&self, a: A, b: B)
            -> JoinResult<T, ZipOf<S, A::Shape>, JoinOf<V, A::Sets>, B>
        where [
            C: Condition,
            A::Kind: JoinsElem<T, A::Elem>,
            B::Kind: JoinsElem<T, B::Elem>,
            A::Shape: SelectRhs<S>,
            A::Sets: JoinRhs<V>,
            B::Shape: SelectRhs<ZipOf<S, A::Shape>>,
            B::Sets: JoinRhs<JoinOf<V, A::Sets>>,
        ]
            = equal_sizes::select::<S, A, B>(&self.array, &a, &b) => self.array.select(a, b),
                with (a, b) = (a.right_term(), b.right_term()),
                with a = match (&a, &b) {
                    // `select` of two numbers would not know the element type
                    (Term::Number(_), Term::Number(_)) => self.array.astype(T::DTYPE).full_like(a).term(),
                    (Term::Array(_), _) | (_, Term::Array(_)) => a,
                };
    }
}
