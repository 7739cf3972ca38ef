//! Functions of one element, of two, choices and conversions.

use super::rules::zip::{ZipOf, ZipRhs};
use super::sets::{AddOf, AddRhs, JoinOf, JoinRhs, Made, MulOf, MulRhs, Sets, WithNumber};
use super::shape::Shape;
use super::{SameElem, Typed, TypedArray};
use crate::array::{Array, Operand, Term};
use crate::types::Element;
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
    /// Elements that can be added and multiplied.
    Number: Element, "expected numbers, not `bool`", "convert the array first: `.convert::<f32>()`", f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64;
    /// Floating-point numbers.
    Float: Number, "expected floating-point numbers", "convert the array first: `.convert::<f32>()`", f16 bf16 f32 f64;
    /// Numbers with a sign.
    Signed: Number, "expected numbers with a sign", "convert the array first: `.convert::<f32>()`", f16 bf16 f32 f64 i8 i16 i32 i64;
    /// Whole numbers.
    Integer: Number, "expected whole numbers", "convert the array first: `.convert::<i32>()`", i8 i16 i32 i64 u8 u16 u32 u64;
    /// Whole numbers and `bool`.
    Bits: Element, "expected whole numbers or `bool`", "convert the array first: `.convert::<i32>()`", bool i8 i16 i32 i64 u8 u16 u32 u64;
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
        V: WithNumber,
    {
        Typed::of(self.array.clamp(Array::from(low), Array::from(high)))
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
            Typed::of(binary!(% self.array, b.as_untyped(), $dynamic))
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
    /// The sum: `a + b`.
    add add Number AddRhs Added;
    /// The difference: `a - b`.
    sub sub Number AddRhs Added;
    /// The product of elements: `a * b`.
    mul mul Number MulRhs Multiplied;
    /// The quotient: `a / b`.
    div div Number JoinRhs Joined;
    /// The remainder: `a % b`.
    rem rem Number JoinRhs Joined;
    /// To the power `b`.
    pow pow Float JoinRhs Joined;
    /// The angle of the point (b, self).
    atan2 atan2 Float JoinRhs Joined;
    /// √(self² + b²).
    hypot hypot Float JoinRhs Joined;
    /// self·ln b, and 0 where self is 0.
    xlogy xlogy Float JoinRhs Joined;
    /// The next number towards `b`.
    nextafter nextafter Float JoinRhs Joined;
    /// Bits that both have.
    bitand bitand Bits JoinRhs Joined;
    /// Bits that one has.
    bitor bitor Bits JoinRhs Joined;
    /// Bits that exactly one has.
    bitxor bitxor Bits JoinRhs Joined;
    /// The bits moved to the left.
    shift_left shift_left Integer JoinRhs Joined;
    /// The bits moved to the right, zeros coming in.
    shift_right_logical shift_right_logical Integer JoinRhs Joined;
    /// The bits moved to the right, the sign coming in.
    shift_right_arithmetic shift_right_arithmetic Integer JoinRhs Joined;
}

/// What the elements of a `Typed<T, S, V>` can be compared with: another array, or a number.
#[diagnostic::on_unimplemented(
    message = "elements of type `{T}` cannot be compared with `{Self}`",
    label = "expected an array of `{T}`, or a number of that type"
)]
pub trait Against<T, S, V> {
    /// The shape of the result.
    type Shape: Shape;
    /// Its sets of mesh axes.
    type Sets: Sets;
    /// As an operand.
    fn term(self) -> Term;
}
impl<T, S, V, R: TypedArray<Elem: SameElem<T>>> Against<T, S, V> for &R
where
    R::Shape: ZipRhs<S>,
    R::Sets: JoinRhs<V>,
{
    type Shape = <R::Shape as ZipRhs<S>>::Out;
    type Sets = <R::Sets as JoinRhs<V>>::Out;
    fn term(self) -> Term {
        Operand::term(self.as_untyped())
    }
}
impl<T, T2: Element + SameElem<T>, S, S2: Shape + ZipRhs<S>, V, V2: Sets + JoinRhs<V>> Against<T, S, V>
    for Typed<T2, S2, V2>
{
    type Shape = <S2 as ZipRhs<S>>::Out;
    type Sets = <V2 as JoinRhs<V>>::Out;
    fn term(self) -> Term {
        Operand::term(self)
    }
}
macro_rules! against { ($($t:ty)*) => { $(
    impl<S: Shape, V: WithNumber> Against<$t, S, V> for $t {
        type Shape = S;
        type Sets = V;
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
        pub fn $name<B: Against<T, S, V>>(&self, b: B) -> Typed<$out, B::Shape, B::Sets> {
            Typed::of(self.array.$name(b.term()))
        }
    )* }
} }
compared! {
    /// The greater of the two; NaN where either is.
    maximum T;
    /// The smaller of the two; NaN where either is.
    minimum T;
    /// Where the two are equal.
    eq bool;
    /// Where the two differ.
    ne bool;
    /// Where self is less.
    lt bool;
    /// Where self is less or equal.
    le bool;
    /// Where self is greater, than another array or than a number: `x.gt(0.0)`.
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
    /// Where self is greater or equal.
    ge bool;
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
