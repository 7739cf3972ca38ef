//! The right operands of elementwise operations: typed arrays, and numbers.

use super::numbers::{AsNumber, Bits, Number, NumberOf};
use super::rules::broadcast::{ZipOf, ZipRhs};
use super::sets::{AddOf, AddRhs, CompleteSets, JoinOf, JoinRhs, MulOf, MulRhs, ScalarSets, Sets};
use super::shape::{DimInfo, Shape};
use super::{Typed, TypedArray, rules::select::SelectRhs};
use crate::api::array::{Operand, Term};
use crate::core::Element;
use atmesh_typed::sealed::{Seal, Sealed};

/// A right operand of an elementwise operation: a typed array, or a number.
///
/// Its element type, shape and sets are those of an array. For numbers they are types that fit
/// every left operand, so that the type of `x * 0.5` does not depend on the type of the literal.
#[diagnostic::on_unimplemented(
    message = "expected a typed array or a number, found `{Self}`",
    label = "not a typed array, nor a number",
    note = "an `Array` becomes a typed one by `x.typed::<T![f32; 8@X, 16]>()?`"
)]
pub trait RightOperand {
    #[doc(hidden)]
    const SEAL: Seal;
    /// The kind: [`ArrayOperand`] or [`NumberOperand`].
    type Kind;
    /// The element type of the array, or the type of the number.
    type Elem;
    /// The shape of the array, or [`NumberOperand`].
    type Shape;
    /// The sets of mesh axes of the array, or [`NumberOperand`].
    type Sets;
    /// The dims of the array; a number has none.
    const DIMS: &'static [DimInfo];
    /// Converts to an operand of the untyped operation.
    fn right_term(self) -> Term;
}
/// The kind of operands that are arrays.
pub struct ArrayOperand;
/// The kind of operands that are numbers, and their shape and sets.
pub struct NumberOperand;
impl Sealed for ArrayOperand {}
impl Sealed for NumberOperand {}
macro_rules! arrays { ($($t:ty)*) => { $(
    impl<T: Element, S: Shape, V: Sets> RightOperand for $t {
        const SEAL: Seal = Seal;
        type Kind = ArrayOperand;
        type Elem = T;
        type Shape = S;
        type Sets = V;
        const DIMS: &'static [DimInfo] = S::DIMS;
        fn right_term(self) -> Term {
            Operand::term(self)
        }
    }
)* } }
arrays!(Typed<T, S, V> &Typed<T, S, V>);
// `Element` proves that this impl and those of arrays do not overlap
#[diagnostic::do_not_recommend]
impl<N: Element + AsNumber> RightOperand for N {
    const SEAL: Seal = Seal;
    type Kind = NumberOperand;
    type Elem = N;
    type Shape = NumberOperand;
    type Sets = NumberOperand;
    const DIMS: &'static [DimInfo] = &[];
    fn right_term(self) -> Term {
        self.number()
    }
}

/// An array without dims as an operand that joins arrays of any shape, returned by
/// [`Typed::as_number`].
#[derive(Clone, Copy, Debug)]
pub struct ScalarOperand<'a, T, V>(&'a Typed<T, (), V>);
impl<T: Element, V: Sets> RightOperand for ScalarOperand<'_, T, V> {
    const SEAL: Seal = Seal;
    type Kind = ArrayOperand;
    type Elem = T;
    type Shape = NumberOperand;
    type Sets = V;
    const DIMS: &'static [DimInfo] = &[];
    fn right_term(self) -> Term {
        Operand::term(self.0)
    }
}
impl<T: Element, V: Sets> Typed<T, (), V> {
    /// Returns an operand that joins arrays of any shape, like a number.
    ///
    /// `x * s` works too. In a function that is generic in the shape of `x`, `x * s.as_number()`
    /// needs no bound, and the result has the shape of `x`.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// fn scaled<S: ElementwiseShape>(x: &Typed<f32, S>, by: &T![f32;]) -> Typed<f32, S> {
    ///     x * by.as_number()
    /// }
    /// let pod = Pod::mesh()?;
    /// let x = <T![f32; 4@X]>::ones(&pod);
    /// assert_eq!(scaled(&x, &Typed::full(&pod, 0.25)).to_vec()?, [0.25; 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn as_number(&self) -> ScalarOperand<'_, T, V> {
        ScalarOperand(self)
    }
}

/// The kind of an operand with elements `U` that joins an array of `T`.
#[diagnostic::on_unimplemented(
    message = "the element types differ: `{T}` on the left and `{U}` on the right",
    label = "expected an array of `{T}`",
    note = "convert one of them: `.convert::<{T}>()`"
)]
pub trait JoinsElem<T, U>: Sealed {}
impl<T> JoinsElem<T, T> for ArrayOperand {}
impl<T, N: NumberOf<T>> JoinsElem<T, N> for NumberOperand {}

/// The kind of an operand of `+`, `-`, `*`, `/` or `%` with an array of `T`.
#[diagnostic::on_unimplemented(
    message = "`+`, `-`, `*`, `/` and `%` are not defined for arrays of `{T}`",
    label = "expected arrays of numbers",
    note = "convert first: `.convert::<i32>()`; arrays of `bool` have `&`, `|` and `^`"
)]
pub trait ArithmeticKind<T>: Sealed {}
/// The kind of an operand of `&`, `|` or `^` with an array of `T`.
#[diagnostic::on_unimplemented(
    message = "`&`, `|` and `^` are not defined for arrays of `{T}`",
    label = "expected arrays of `bool` or of whole numbers",
    note = "a comparison gives an array of `bool`, `x.gt(0.0)`; `.convert::<i32>()` gives whole numbers"
)]
pub trait BitwiseKind<T>: Sealed {}
macro_rules! kinds { ($($kind:ident $class:ident)*) => { $(
    #[diagnostic::do_not_recommend]
    impl<T: $class> $kind<T> for ArrayOperand {}
    #[diagnostic::do_not_recommend]
    impl<T: $class> $kind<T> for NumberOperand {}
)* } }
kinds!(ArithmeticKind Number BitwiseKind Bits);

impl<L: Shape> ZipRhs<L> for NumberOperand {
    type Out = L;
}
impl<L: Shape> SelectRhs<L> for NumberOperand {}
macro_rules! sets { ($($rhs:ident $sets:ident)*) => { $(
    impl<V: $sets> $rhs<V> for NumberOperand {
        type Out = V;
    }
)* } }
sets!(AddRhs CompleteSets MulRhs ScalarSets JoinRhs CompleteSets);

macro_rules! results { ($($(#[$doc:meta])* $name:ident $of:ident;)*) => { $(
    $(#[$doc])*
    pub type $name<T, S, V, R> = Typed<T, ZipOf<S, <R as RightOperand>::Shape>, $of<V, <R as RightOperand>::Sets>>;
)* } }
results! {
    /// The result of adding a `Typed<T, S, V>` and an `R`.
    AddResult AddOf;
    /// The result of multiplying the elements of a `Typed<T, S, V>` and an `R`.
    MulResult MulOf;
    /// The result of an elementwise operation other than `+`, `-` and `*` on a `Typed<T, S, V>` and
    /// an `R`.
    JoinResult JoinOf;
}

macro_rules! operands { ($($(#[$doc:meta])* $name:ident $kind:ident $rhs:ident $result:ident;)*) => { $(
    $(#[$doc])*
    // rustc prints this message instead of that of `NumberOf`, whose type is the same
    #[diagnostic::on_unimplemented(
        message = "expected a typed array of `{T}` or a number of type `{T}`, found `{Self}`",
        label = "an array of `{T}` cannot be combined with this",
        note = "arrays of floats take `2.0`, `2` and numbers of type `f32`, `f64`; arrays of integers take numbers of their own type: convert the array (`x.convert::<f32>()`) or the number (`n as f32`)",
        note = "an `Array` becomes a typed one by `x.typed::<T![f32; 8@X, 16]>()?`"
    )]
    pub trait $name<T, S, V>: RightOperand {
        /// The result.
        type Out: TypedArray;
    }
    impl<T: Element, S: Shape, V: Sets, R: RightOperand<Kind: JoinsElem<T, R::Elem> + $kind<T>>> $name<T, S, V> for R
    where
        R::Shape: ZipRhs<S>,
        R::Sets: $rhs<V>,
    {
        type Out = $result<T, S, V, R>;
    }
)* } }
operands! {
    /// A right operand of `+` or `-` with a `Typed<T, S, V>` on the left.
    AddOperand ArithmeticKind AddRhs AddResult;
    /// A right operand of `*` with a `Typed<T, S, V>` on the left.
    MulOperand ArithmeticKind MulRhs MulResult;
    /// A right operand of `/` or `%` with a `Typed<T, S, V>` on the left.
    DivOperand ArithmeticKind JoinRhs JoinResult;
    /// A right operand of `&`, `|` or `^` with a `Typed<T, S, V>` on the left.
    BitwiseOperand BitwiseKind JoinRhs JoinResult;
}

/// A number that may be on the left of an operator with an array of `T` on the right.
///
/// The lifetime has no meaning: rustc checks a bound with a parameter where an impl is used, and
/// prints this message there.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be on the left of an operator whose right side is an array of `{T}`",
    label = "expected a number of type `{T}`",
    note = "write `n as {T}`, or put the number on the right, where any type may be: `x * n`"
)]
pub trait LeftNumber<'a, T> {}

/// The shape or the sets of the result of an operator such as `+=`: those of the left side, `L`.
#[diagnostic::on_unimplemented(
    message = "an operator such as `+=` cannot change the type of its left side from `{L}` to `{Self}`",
    label = "the result is `{Self}`",
    note = "`x += y` keeps shape and sharding: reshard `y` first, or declare the result: `let x = &x + y`"
)]
pub trait AssignableTo<L> {}
impl<L> AssignableTo<L> for L {}
