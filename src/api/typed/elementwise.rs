//! Elementwise operations: unary, binary, comparison, selection and conversion.

use super::equal_sizes::{any_open, elementwise_dims};
use super::rules::broadcast::{ZipOf, ZipRhs};
use super::sets::{
    AddOf, AddRhs, CompleteFor, CompleteSets, JoinOf, JoinRhs, MulOf, MulRhs, ScalarSets, Sets,
};
use super::shape::{DimInfo, Shape};
use super::{SameElem, Typed, TypedArray, equal_sizes, op};
use crate::api::array::{Array, Operand, Term};
use crate::core::types::Element;
use crate::ir::program::CallSite;
use half::{bf16, f16};

macro_rules! classes { ($($(#[$doc:meta])* $name:ident: $super:ident, $what:literal, $note:literal, $($t:ident)*;)*) => { $(
    $(#[$doc])*
    #[diagnostic::on_unimplemented(
        message = "this operation is not defined for elements of type `{Self}`",
        label = $what,
        note = $note
    )]
    pub trait $name: $super {}
    $( impl $name for $t {} )*
)* } }
classes! {
    /// Element types that can be added and multiplied.
    Number: Element, "expected numbers, not `bool`", "convert the array first: `.convert::<f32>()`", f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64;
    /// Floating-point element types.
    Float: Number, "expected floating-point numbers", "convert the array first: `.convert::<f32>()`", f16 bf16 f32 f64;
    /// Signed element types.
    Signed: Number, "expected numbers with a sign", "convert the array first: `.convert::<f32>()`", f16 bf16 f32 f64 i8 i16 i32 i64;
    /// Integer element types.
    Integer: Number, "expected whole numbers", "convert the array first: `.convert::<i32>()`", i8 i16 i32 i64 u8 u16 u32 u64;
    /// Integer element types and `bool`.
    Bits: Element, "expected whole numbers or `bool`", "convert the array first: `.convert::<i32>()`", bool i8 i16 i32 i64 u8 u16 u32 u64;
}

/// The result of an elementwise operation other than `+`, `-` and `*` on a `Typed<T, S, V>` and
/// an `R`.
pub type JoinResult<T, S, V, R> =
    Typed<T, ZipOf<S, <R as TypedArray>::Shape>, JoinOf<V, <R as TypedArray>::Sets>>;
/// The result of adding a `Typed<T, S, V>` and an `R`.
pub type AddResult<T, S, V, R> =
    Typed<T, ZipOf<S, <R as TypedArray>::Shape>, AddOf<V, <R as TypedArray>::Sets>>;
/// The result of multiplying the elements of a `Typed<T, S, V>` and an `R`.
pub type MulResult<T, S, V, R> =
    Typed<T, ZipOf<S, <R as TypedArray>::Shape>, MulOf<V, <R as TypedArray>::Sets>>;

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
unary!(Float: floor ceil round exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
    sqrt rsqrt cbrt logistic erf erf_inv reciprocal relu silu softplus gelu gelu_exact);
unary!(Number: sign square);
unary!(Signed: abs);

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Returns the value unchanged, with a zero derivative.
    #[track_caller]
    pub fn stop_gradient(&self) -> Self
    where
        V: CompleteSets,
    {
        Typed::from_rule_result(self.array.stop_gradient())
    }
    /// Returns true for elements that are neither infinite nor NaN.
    #[track_caller]
    pub fn is_finite(&self) -> Typed<bool, S, V>
    where
        T: Float,
        V: CompleteSets,
    {
        Typed::from_rule_result(self.array.is_finite())
    }
    /// Raises each element to an integer power.
    #[track_caller]
    pub fn powi(&self, y: i32) -> Self
    where
        T: Number,
        V: CompleteSets,
    {
        Typed::from_rule_result(self.array.powi(y))
    }
    /// Converts to another element type, like [`Array::astype`](crate::Array::astype).
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x: T![i32; 4@X] = <T![f32; 4@X]>::ones(&Pod::mesh()?).convert::<i32>();
    /// # let _ = x;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn convert<U: Element>(&self) -> Typed<U, S, V> {
        Typed::from_rule_result(self.array.astype(U::DTYPE))
    }
    /// Clamps each element to `low..=high`.
    #[track_caller]
    pub fn clamp(&self, low: T, high: T) -> Self
    where
        T: Number,
        V: ScalarSets,
    {
        Typed::from_rule_result(self.array.clamp(Array::from(low), Array::from(high)))
    }
}

macro_rules! binary { ($($(#[$doc:meta])* $name:ident $dynamic:ident $bound:ident $rhs:ident $of:ident;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<R: TypedArray<Elem: SameElem<T>>>(&self, b: &R) -> $of<T, S, V, R>
        where
            T: $bound,
            R::Shape: ZipRhs<S>,
            R::Sets: $rhs<V>,
        {
            let b = b.as_untyped();
            Typed::from_rule_result(
                match equal_sizes::elementwise::<S, R::Shape>(stringify!($name), &self.array, b) {
                    Ok(()) => binary!(% self.array, b, $dynamic),
                    Err(unequal) => unequal,
                },
            )
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
    add add Number AddRhs AddResult;
    /// Subtracts elementwise: `a - b`.
    sub sub Number AddRhs AddResult;
    /// Multiplies elementwise: `a * b`.
    mul mul Number MulRhs MulResult;
    /// Divides elementwise: `a / b`.
    div div Number JoinRhs JoinResult;
    /// Computes the elementwise remainder: `a % b`.
    rem rem Number JoinRhs JoinResult;
    /// Raises each element to the power `b`.
    pow pow Float JoinRhs JoinResult;
    /// Computes the angle of the point (b, self), in radians.
    atan2 atan2 Float JoinRhs JoinResult;
    /// Computes √(self² + b²) elementwise.
    hypot hypot Float JoinRhs JoinResult;
    /// Computes self·ln b; the result is 0 where self is 0.
    xlogy xlogy Float JoinRhs JoinResult;
    /// Returns the next representable value towards `b`.
    nextafter nextafter Float JoinRhs JoinResult;
    /// Computes the bitwise AND.
    bitand bitand Bits JoinRhs JoinResult;
    /// Computes the bitwise OR.
    bitor bitor Bits JoinRhs JoinResult;
    /// Computes the bitwise XOR.
    bitxor bitxor Bits JoinRhs JoinResult;
    /// Shifts the bits left.
    shift_left shift_left Integer JoinRhs JoinResult;
    /// Shifts the bits right, filling with zeros.
    shift_right_logical shift_right_logical Integer JoinRhs JoinResult;
    /// Shifts the bits right, filling with the sign bit.
    shift_right_arithmetic shift_right_arithmetic Integer JoinRhs JoinResult;
}

/// An operand that elements of a `Typed<T, S, V>` can be compared with: an array or a scalar.
#[diagnostic::on_unimplemented(
    message = "elements of type `{T}` cannot be compared with `{Self}`",
    label = "expected an array of `{T}`, or a number of that type"
)]
pub trait BroadcastWith<T, S, V> {
    /// The shape of the result.
    type Shape: Shape;
    /// The sets of mesh axes of the result.
    type Sets: Sets;
    /// The dims of an array; a scalar has none.
    const DIMS: &'static [DimInfo];
    /// Converts to an operand.
    fn term(self) -> Term;
}
impl<T, S, V, R: TypedArray<Elem: SameElem<T>>> BroadcastWith<T, S, V> for &R
where
    R::Shape: ZipRhs<S>,
    R::Sets: JoinRhs<V>,
{
    type Shape = <R::Shape as ZipRhs<S>>::Out;
    type Sets = <R::Sets as JoinRhs<V>>::Out;
    const DIMS: &'static [DimInfo] = R::Shape::DIMS;
    fn term(self) -> Term {
        Operand::term(self.as_untyped())
    }
}
impl<T, T2: Element + SameElem<T>, S, S2: Shape + ZipRhs<S>, V, V2: Sets + JoinRhs<V>> BroadcastWith<T, S, V>
    for Typed<T2, S2, V2>
{
    type Shape = <S2 as ZipRhs<S>>::Out;
    type Sets = <V2 as JoinRhs<V>>::Out;
    const DIMS: &'static [DimInfo] = S2::DIMS;
    fn term(self) -> Term {
        Operand::term(self)
    }
}
macro_rules! against { ($($t:ty)*) => { $(
    impl<S: Shape, V: ScalarSets> BroadcastWith<$t, S, V> for $t {
        type Shape = S;
        type Sets = V;
        const DIMS: &'static [DimInfo] = &[];
        fn term(self) -> Term {
            Operand::term(Array::from(self))
        }
    }
)* } }
against!(f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool);

macro_rules! compared { ($($(#[$doc:meta])* $name:ident $out:ty;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<B: BroadcastWith<T, S, V>>(&self, b: B) -> Typed<$out, B::Shape, B::Sets> {
            let b = b.term();
            if const { any_open(S::DIMS) && any_open(B::DIMS) }
                && let Term::Array(b) = &b
                && let Err(unequal) = elementwise_dims(
                    CallSite::here(stringify!($name)),
                    (S::DIMS, &self.array),
                    (B::DIMS, b),
                )
            {
                return Typed::from_rule_result(unequal);
            }
            Typed::from_rule_result(self.array.$name(b))
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
}

impl<S: Shape, V: Sets> Typed<bool, S, V> {
    /// Selects `a` where self is true, otherwise `b`. All three have one shape and sharding.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X]>::ones(&Pod::mesh()?);
    /// let y: T![f32; 4@X] = x.gt(&x).select(&x, &(&x * 2.0));
    /// assert_eq!(y.to_vec()?, [2.0; 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn select<T: Element, W: Sets, Z: AddRhs<W>>(
        &self,
        a: &Typed<T, S, W>,
        b: &Typed<T, S, Z>,
    ) -> Typed<T, S, JoinOf<V, Z::Out>>
    where
        Z::Out: JoinRhs<V>,
    {
        Typed::from_rule_result(match equal_sizes::alike::<S>("select", &[&self.array, &a.array, &b.array]) {
            Ok(()) => self.array.select(&a.array, &b.array),
            Err(unequal) => unequal,
        })
    }
}
