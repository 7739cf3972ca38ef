//! Classes of element types, and numbers that join arrays.

use crate::api::array::Term;
use crate::core::{Element, Scalar, ScalarElement};
use half::{bf16, f16};

/// Floating-point element types.
///
/// In code that is generic in the element type, literals join arrays (`x * 0.5`), and sums have the
/// element type of the array.
#[diagnostic::on_unimplemented(
    message = "this operation is not defined for elements of type `{Self}`",
    label = "expected floating-point numbers",
    note = "convert the array first: `.convert::<f32>()`"
)]
pub trait Float: Signed + Summed<Sum = Self> {
    /// Returns the nearest number of this type.
    ///
    /// ```
    /// use atmesh::typed::{Float, bf16};
    /// fn half<T: Float>() -> T {
    ///     T::from_f64(0.5)
    /// }
    /// assert_eq!((half::<f32>(), half::<bf16>()), (0.5, bf16::from_f32(0.5)));
    /// ```
    fn from_f64(x: f64) -> Self;
}
macro_rules! floats { ($($t:ident $zero:expr, $one:expr;)*) => { $(
    impl Number for $t {
        const ZERO: Self = $zero;
        const ONE: Self = $one;
    }
    impl Float for $t {
        fn from_f64(x: f64) -> Self {
            Self::from_scalar(Scalar::Float(x))
        }
    }
)* } }
floats! { f16 f16::ZERO, f16::ONE; bf16 bf16::ZERO, bf16::ONE; f32 0.0, 1.0; f64 0.0, 1.0; }
macro_rules! integers { ($($t:ident)*) => { $(
    impl Number for $t {
        const ZERO: Self = 0;
        const ONE: Self = 1;
    }
)* } }
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! classes { ($($(#[$doc:meta])* $name:ident: $super:ident $({ $($items:tt)* })?, $what:literal, $note:literal, $($t:ident)*;)*) => { $(
    $(#[$doc])*
    #[diagnostic::on_unimplemented(
        message = "this operation is not defined for elements of type `{Self}`",
        label = $what,
        note = $note
    )]
    pub trait $name: $super + NumberOf<Self> { $($($items)*)? }
    classes!(@ $name [$($($items)*)?] $($t)*);
)* };
    // the constants of `Number` differ between types
    (@ $name:ident [] $($t:ident)*) => { $( impl $name for $t {} )* };
    (@ $name:ident [$($items:tt)+] $($t:ident)*) => {};
}
classes! {
    /// Element types that can be added and multiplied.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// fn next<T: Number, B: Size>(x: &T![T; B@X]) -> T![T; B@X] {
    ///     x + T::ONE
    /// }
    /// assert_eq!(next(&<T![u8; 2@X]>::ones(&Pod::mesh()?)).to_vec()?, [2, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    Number: Element {
        /// The number 0.
        const ZERO: Self;
        /// The number 1.
        const ONE: Self;
    }, "expected numbers, not `bool`", "convert the array first: `.convert::<f32>()`", f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64;
    /// Signed element types.
    Signed: Number, "expected numbers with a sign", "convert the array first: `.convert::<f32>()`", f16 bf16 f32 f64 i8 i16 i32 i64;
    /// Integer element types.
    Integer: Number, "expected whole numbers", "convert the array first: `.convert::<i32>()`", i8 i16 i32 i64 u8 u16 u32 u64;
    /// Integer element types and `bool`.
    Bits: Element, "expected whole numbers or `bool`", "convert the array first: `.convert::<i32>()`", bool i8 i16 i32 i64 u8 u16 u32 u64;
}

/// The element type of a sum: `bool` and narrow integers are summed in 32 bits.
#[diagnostic::on_unimplemented(
    message = "elements of type `{Self}` cannot be summed",
    label = "expected numbers or `bool`"
)]
pub trait Summed: Element {
    /// The element type of the sum.
    type Sum: Element;
}
macro_rules! summed { ($($t:ident $sum:ident),*) => { $( impl Summed for $t { type Sum = $sum; } )* } }
summed!(f16 f16, bf16 bf16, f32 f32, f64 f64, i8 i32, i16 i32, i32 i32, i64 i64, u8 u32, u16 u32, u32 u32, u64 u64, bool i32);

/// A number that takes the element type `T` of the array that it is combined with.
///
/// A number of any floating-point type, or an `i32`, joins arrays of any floating-point type. Other
/// arrays take numbers of their own element type.
///
/// ```
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2 } }
/// fn scaled<T: Float, B: Size>(x: &T![T; B@X], scale: T) -> T![T; B@X] {
///     x * scale * 0.5 + 1
/// }
/// let x = <T![bf16; 4@X]>::ones(&Pod::mesh()?);
/// assert_eq!(scaled(&x, bf16::from_f32(6.0)).convert::<f32>().to_vec()?, [4.0; 4]);
/// let n = <T![u8; 4@X]>::ones(&Pod::mesh()?) + 1;
/// assert_eq!(n.to_vec()?, [2; 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "expected a typed array of `{T}` or a number of type `{T}`, found `{Self}`",
    label = "an array of `{T}` cannot be combined with this",
    note = "arrays of floats take `2.0`, `2` and numbers of type `f32`, `f64`; arrays of integers take numbers of their own type: convert the array (`x.convert::<f32>()`) or the number (`n as f32`)",
    note = "an `Array` becomes a typed one by `x.typed::<T![f32; 8@X, 16]>()?`"
)]
pub trait NumberOf<T>: AsNumber {}
/// A number, as an operand of untyped operations.
pub trait AsNumber: Element {
    /// Converts to an operand.
    fn number(self) -> Term;
}
macro_rules! as_number { ($($n:ident)*) => { $(
    impl AsNumber for $n {
        fn number(self) -> Term {
            Term::Number(self.to_scalar())
        }
    }
)* } }
as_number!(f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool);
macro_rules! numbers { ($($n:ident [$($g:tt)*] $t:ty;)*) => { $( impl<$($g)*> NumberOf<$t> for $n {} )* } }
numbers! {
    f32 [T: Float] T; f64 [T: Float] T; i32 [T: Float] T; f16 [T: Float] T; bf16 [T: Float] T;
    i8 [] i8; i16 [] i16; i32 [] i32; i64 [] i64; u8 [] u8; u16 [] u16; u32 [] u32; u64 [] u64; bool [] bool;
}
