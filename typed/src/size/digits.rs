//! Arithmetic of integers on their decimal digits.
//!
//! A number is a list of its digits, the ones digit first, without leading zeros: `Digit8<Digit2<
//! NoDigits>>` is 28, and [`NoDigits`] is 0. Every operation is an associated type of
//! [`DigitList`], so it is total, and rustc computes one digit of the result in two steps. A
//! difference below zero is [`BelowZero`], and a number of more than twelve digits has no type as a
//! size ([`TooLarge`]).

use super::{G, Impossible, K, M, NamedSize, Num, Size, WholeNumber};
use crate::sealed::{Seal, Sealed, SealedOrDeclared};
use core::fmt;
use core::marker::PhantomData;

/// A remainder.
pub struct R<const A: u8>;
/// A prime factor of the size of a mesh axis.
pub struct Prime<const P: u8>;
/// The list of no digits: 0.
pub struct NoDigits;
/// A difference of which the second number is the larger one.
pub struct BelowZero;
/// The size that a number of more than twelve digits, or one below zero, would have.
///
/// It is a size, so that an operation that gives it is rejected in one place: the operation needs a
/// [`WholeNumber`].
pub struct TooLarge;
impl Size for TooLarge {
    type Kind = Impossible;
    const VALUE: Option<usize> = None;
    fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too large")
    }
}
atmesh_typed_macros::digits!();

/// A group of three digits.
pub struct Group<const A: u16>;
/// The digits of a group.
pub trait GroupDigits: Sealed {
    /// The digits of a leading group: without leading zeros.
    type Leading: DigitList;
    /// The three digits, before the more significant digits `T`.
    type Before<T: DigitList>: DigitList;
}
atmesh_typed_macros::groups!();

/// The less significant groups of a number of which a group becomes known next.
pub trait GroupList: Sealed {
    /// The number, after its next group `A`, if its more significant digits are `T`.
    type Push<const A: u16, T: DigitList>;
}
/// No group.
pub struct NoGroups;
/// One group.
pub struct Groups1<const A: u16>;
/// Two groups.
pub struct Groups2<const A: u16, const B: u16>;
/// Three groups.
pub struct Groups3<const A: u16, const B: u16, const C: u16>;
impl GroupList for NoGroups {
    type Push<const A: u16, T: DigitList> = T::Groups1<A>;
}
impl<const B: u16> GroupList for Groups1<B> {
    type Push<const A: u16, T: DigitList> = T::Groups2<A, B>;
}
impl<const B: u16, const C: u16> GroupList for Groups2<B, C> {
    type Push<const A: u16, T: DigitList> = T::Groups3<A, B, C>;
}
impl<const B: u16, const C: u16, const E: u16> GroupList for Groups3<B, C, E> {
    type Push<const A: u16, T: DigitList> = T::Groups4<A, B, C, E>;
}

/// A size with a known value: a number or a named number.
pub trait Decimal: SealedOrDeclared {
    seal!();
    /// The digits of the value.
    type Digits: DigitList;
}
type TopGroup<const A: u16> = <Group<A> as GroupDigits>::Leading;
type LowGroup<const A: u16, T> = <Group<A> as GroupDigits>::Before<T>;
rules! { Digits:
    sealed [const A: u16] Num<A>: Decimal where [Group<A>: GroupDigits] = TopGroup<A>;
    sealed [const A: u16, const B: u16] K<A, B>: Decimal
        where [Group<A>: GroupDigits, Group<B>: GroupDigits] = LowGroup<B, TopGroup<A>>;
    sealed [const A: u16, const B: u16, const C: u16] M<A, B, C>: Decimal
        where [Group<A>: GroupDigits, Group<B>: GroupDigits, Group<C>: GroupDigits]
        = LowGroup<C, LowGroup<B, TopGroup<A>>>;
}
impl<const A: u16, const B: u16, const C: u16, const E: u16> Decimal for G<A, B, C, E>
where
    Group<A>: GroupDigits,
    Group<B>: GroupDigits,
    Group<C>: GroupDigits,
    Group<E>: GroupDigits,
{
    const SEAL: Seal = Seal;
    type Digits = LowGroup<E, LowGroup<C, LowGroup<B, TopGroup<A>>>>;
}
rules! { Digits: sealed [S: NamedSize<Number: Decimal>] S: Decimal = <S::Number as Decimal>::Digits; }

/// The digits of a size.
pub(crate) type DigitsOf<Z> = <Z as Decimal>::Digits;
/// The number that digits make. [`TooLarge`] if it has more than twelve, or is below zero.
pub(crate) type SizeOfDigits<L> = <L as DigitList>::Groups<NoGroups>;

/// A prime by which sizes are divided and multiplied.
pub trait Divisor: Sealed {
    /// The prime's digits.
    type Digits: DigitList;
    /// The digits of the number before the prime.
    type Previous: DigitList;
    /// The quotient and the remainder of a division by the prime.
    type Quotient<L: DigitList>: QuotientDigits;
}
macro_rules! divisors { ($($p:literal $digits:ty, $previous:ty, $quotient:ident;)*) => { $(
    impl Divisor for Prime<$p> {
        type Digits = $digits;
        type Previous = $previous;
        type Quotient<L: DigitList> = L::$quotient;
    }
)* } }
divisors! {
    2 Digit2<NoDigits>, Digit1<NoDigits>, Quotient2;
    3 Digit3<NoDigits>, Digit2<NoDigits>, Quotient3;
    5 Digit5<NoDigits>, Digit4<NoDigits>, Quotient5;
    7 Digit7<NoDigits>, Digit6<NoDigits>, Quotient7;
    11 Digit1<Digit1<NoDigits>>, Digit0<Digit1<NoDigits>>, Quotient11;
    13 Digit3<Digit1<NoDigits>>, Digit2<Digit1<NoDigits>>, Quotient13;
}

/// A number by which sizes are divided, rounding up.
pub trait Stride: Sealed {
    /// The quotient.
    type Quotient<L: DigitList>: DigitList;
}
impl Stride for Num<1> {
    type Quotient<L: DigitList> = L;
}
type QuotientUp<L, P> =
    <<P as Divisor>::Quotient<<L as DigitList>::Sum<<P as Divisor>::Previous>> as QuotientDigits>::Quotient;
// rounding up by a product is rounding up by each of its factors
macro_rules! strides { ($($n:literal = $p:literal * $rest:literal,)*) => { $(
    impl Stride for Num<$n> {
        type Quotient<L: DigitList> = <Num<$rest> as Stride>::Quotient<QuotientUp<L, Prime<$p>>>;
    }
)* } }
strides! {
    2 = 2 * 1, 3 = 3 * 1, 4 = 2 * 2, 5 = 5 * 1, 6 = 2 * 3, 7 = 7 * 1, 8 = 2 * 4, 9 = 3 * 3, 10 = 2 * 5,
    11 = 11 * 1, 12 = 2 * 6, 13 = 13 * 1, 14 = 2 * 7, 15 = 3 * 5, 16 = 2 * 8,
}

type QuotientBy<Z, P> = <P as Divisor>::Quotient<DigitsOf<Z>>;
type PrimeProduct<Z, P> = <<P as Divisor>::Digits as DigitList>::Product<DigitsOf<Z>>;
/// Divides an integer by a prime.
pub trait DividePrime<P>: SealedOrDeclared {
    seal!();
    /// The quotient, rounded down.
    type Quotient: Size;
    /// The remainder.
    type Rest;
}
/// Multiplies an integer by a prime.
pub trait MultiplyPrime<P>: SealedOrDeclared {
    seal!();
    /// The product.
    type Product: Size;
}
impl<Z: Decimal, P: Divisor> DividePrime<P> for Z
where
    SizeOfDigits<<QuotientBy<Z, P> as QuotientDigits>::Quotient>: WholeNumber,
{
    const SEAL: Seal = Seal;
    type Quotient = SizeOfDigits<<QuotientBy<Z, P> as QuotientDigits>::Quotient>;
    type Rest = <QuotientBy<Z, P> as QuotientDigits>::Rest;
}
rules! { Product:
    sealed [Z: Decimal, P: Divisor] Z: MultiplyPrime<P>
        where [SizeOfDigits<PrimeProduct<Z, P>>: WholeNumber] = SizeOfDigits<PrimeProduct<Z, P>>;
}
