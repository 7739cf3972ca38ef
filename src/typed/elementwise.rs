//! Functions of one element, of two, choices and conversions.

use super::rules::zip::{ZipOf, ZipRhs};
use super::sets::{AddOf, AddRhs, JoinOf, JoinRhs, Made, MulOf, MulRhs, Sets};
use super::shape::Shape;
use super::{SameElem, Typed, TypedArray};
use crate::types::Element;
use half::{bf16, f16};

macro_rules! classes { ($($(#[$doc:meta])* $name:ident: $super:ident, $what:literal, $($t:ident)*;)*) => { $(
    $(#[$doc])*
    #[diagnostic::on_unimplemented(
        message = "this operation is not defined for elements of type `{Self}`",
        label = $what,
        note = "convert the array first: `.convert::<f32>()`"
    )]
    pub trait $name: $super {}
    $( impl $name for $t {} )*
)* } }
classes! {
    /// Elements that can be added and multiplied.
    Number: Element, "expected numbers, not `bool`", f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64;
    /// Floating-point numbers.
    Float: Number, "expected floating-point numbers", f16 bf16 f32 f64;
    /// Numbers with a sign.
    Signed: Number, "expected numbers with a sign", f16 bf16 f32 f64 i8 i16 i32 i64;
    /// Whole numbers.
    Integer: Number, "expected whole numbers", i8 i16 i32 i64 u8 u16 u32 u64;
    /// Whole numbers and `bool`.
    Bits: Element, "expected whole numbers or `bool`", bool i8 i16 i32 i64 u8 u16 u32 u64;
}

/// What an operation on elements of a `Typed<T, S, V>` and an `R` gives.
pub type Joined<T, S, V, R> =
    Typed<T, ZipOf<S, <R as TypedArray>::Shape>, JoinOf<V, <R as TypedArray>::Sets>>;
/// What a sum of a `Typed<T, S, V>` and an `R` gives.
pub type Added<T, S, V, R> = Typed<T, ZipOf<S, <R as TypedArray>::Shape>, AddOf<V, <R as TypedArray>::Sets>>;
/// What a product of the elements of a `Typed<T, S, V>` and an `R` gives.
pub type Multiplied<T, S, V, R> =
    Typed<T, ZipOf<S, <R as TypedArray>::Shape>, MulOf<V, <R as TypedArray>::Sets>>;

macro_rules! unary { ($bound:ident: $($name:ident)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        #[doc = concat!("Of each element, as [`Array::", stringify!($name), "`](crate::Array::", stringify!($name), ").")]
        #[track_caller]
        pub fn $name(&self) -> Self
        where
            T: $bound,
            V: Made,
        {
            Typed::of(self.array.$name())
        }
    )* }
} }
unary!(Float: floor ceil round exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
    sqrt rsqrt cbrt logistic erf erf_inv reciprocal relu silu softplus gelu gelu_exact);
unary!(Number: sign square);
unary!(Signed: abs);

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// The same value, without a derivative.
    #[track_caller]
    pub fn stop_gradient(&self) -> Self
    where
        V: Made,
    {
        Typed::of(self.array.stop_gradient())
    }
    /// Whether each element is neither infinite nor NaN.
    #[track_caller]
    pub fn is_finite(&self) -> Typed<bool, S, V>
    where
        T: Float,
        V: Made,
    {
        Typed::of(self.array.is_finite())
    }
    /// Each element to a whole power.
    #[track_caller]
    pub fn powi(&self, y: i32) -> Self
    where
        T: Number,
        V: Made,
    {
        Typed::of(self.array.powi(y))
    }
    /// As another element type; as [`Array::astype`](crate::Array::astype).
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
        Typed::of(self.array.astype(U::DTYPE))
    }
    /// Between two numbers.
    #[track_caller]
    pub fn clamp(&self, low: T, high: T) -> Self
    where
        T: Number,
        V: super::sets::WithNumber,
    {
        Typed::of(self.array.clamp(crate::array::Array::from(low), crate::array::Array::from(high)))
    }
}

macro_rules! binary { ($($(#[$doc:meta])* $name:ident $dynamic:ident $bound:ident $rhs:ident $of:ident $out:ident;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<R: TypedArray<Elem: SameElem<T>>>(&self, b: &R) -> $of<binary!(@ $out T), S, V, R>
        where
            T: $bound,
            R::Shape: ZipRhs<S>,
            R::Sets: $rhs<V>,
        {
            Typed::of(binary!(% self.array, b.as_untyped(), $dynamic))
        }
    )* }
};
    (@ same $t:ident) => { $t };
    (@ truth $t:ident) => { bool };
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
    /// The sum: `a + b`.
    add add Number AddRhs Added same;
    /// The difference: `a - b`.
    sub sub Number AddRhs Added same;
    /// The product of elements: `a * b`.
    mul mul Number MulRhs Multiplied same;
    /// The quotient: `a / b`.
    div div Number JoinRhs Joined same;
    /// The remainder: `a % b`.
    rem rem Number JoinRhs Joined same;
    /// The greater of the two; NaN where either is.
    maximum maximum Element JoinRhs Joined same;
    /// The smaller of the two; NaN where either is.
    minimum minimum Element JoinRhs Joined same;
    /// To the power `b`.
    pow pow Float JoinRhs Joined same;
    /// The angle of the point (b, self).
    atan2 atan2 Float JoinRhs Joined same;
    /// √(self² + b²).
    hypot hypot Float JoinRhs Joined same;
    /// self·ln b, and 0 where self is 0.
    xlogy xlogy Float JoinRhs Joined same;
    /// The next number towards `b`.
    nextafter nextafter Float JoinRhs Joined same;
    /// Bits that both have.
    bitand bitand Bits JoinRhs Joined same;
    /// Bits that one has.
    bitor bitor Bits JoinRhs Joined same;
    /// Bits that exactly one has.
    bitxor bitxor Bits JoinRhs Joined same;
    /// The bits moved to the left.
    shift_left shift_left Integer JoinRhs Joined same;
    /// The bits moved to the right, zeros coming in.
    shift_right_logical shift_right_logical Integer JoinRhs Joined same;
    /// The bits moved to the right, the sign coming in.
    shift_right_arithmetic shift_right_arithmetic Integer JoinRhs Joined same;
    /// Where the two are equal.
    eq eq Element JoinRhs Joined truth;
    /// Where the two differ.
    ne ne Element JoinRhs Joined truth;
    /// Where self is less.
    lt lt Element JoinRhs Joined truth;
    /// Where self is less or equal.
    le le Element JoinRhs Joined truth;
    /// Where self is greater.
    gt gt Element JoinRhs Joined truth;
    /// Where self is greater or equal.
    ge ge Element JoinRhs Joined truth;
}

impl<S: Shape, V: Sets> Typed<bool, S, V> {
    /// `a` where self holds, else `b`; all of one shape, sharded the same way.
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
        Typed::of(self.array.select(&a.array, &b.array))
    }
}
