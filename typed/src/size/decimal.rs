//! Multiplication and division of integers by small primes, in groups of three decimal digits.
//!
//! The number of steps grows only with the number of digits. Every function is total: the remainder
//! of a division is a separate result, so a size that does not divide fails at one place
//! ([`super::ZeroRemainders`]), with this crate's message.

use super::{K, M, Num, Size};

/// A decimal digit.
pub struct Digit<const A: u8>;
/// A remainder or a carry.
pub struct R<const A: u8>;
/// A prime factor of the size of a mesh axis.
pub struct Prime<const P: u8>;
/// A group of three digits.
pub struct L<const A: u16>;
/// The marker of a group whose digits are all 0.
pub struct Zero;
/// The marker of a group whose digits are not all 0.
pub struct Nonzero;

/// The three digits of a group.
pub trait Digits {
    /// The hundreds digit.
    type A;
    /// The tens digit.
    type B;
    /// The ones digit.
    type C;
    /// The marker [`Zero`] or [`Nonzero`].
    type Is;
}
/// A tuple of three digits that forms a group.
pub trait Limb {
    /// The group.
    type L;
}
macro_rules! limbs { ($([$n:literal $a:literal $b:literal $c:literal $is:ident])*) => { $(
    impl Digits for L<$n> { type A = Digit<$a>; type B = Digit<$b>; type C = Digit<$c>; type Is = $is; }
    impl Limb for (Digit<$a>, Digit<$b>, Digit<$c>) { type L = L<$n>; }
)* } }

/// One digit of a long division: divides `10 · In + Self` by the prime `P`.
pub trait DivStep<P, In> {
    /// The digit of the quotient.
    type Q;
    /// The remainder.
    type Out;
}
/// One digit of a multiplication: computes `P · Self + In`, where `In` is the carry.
pub trait MulStep<P, In> {
    /// The digit of the product.
    type Q;
    /// The carry.
    type Out;
}
macro_rules! steps { ($([$p:literal $r:literal $d:literal : $q:literal $s:literal | $m:literal $c:literal])*) => { $(
    impl DivStep<Prime<$p>, R<$r>> for Digit<$d> { type Q = Digit<$q>; type Out = R<$s>; }
    impl MulStep<Prime<$p>, R<$r>> for Digit<$d> { type Q = Digit<$m>; type Out = R<$c>; }
)* } }
atmesh_typed_macros::tables!(limbs steps);

/// One group of a long division: divides `1000 · In + Self` by the prime `P`.
///
/// `In` is the remainder of the more significant group.
pub trait LimbDiv<P, In> {
    /// The group of the quotient.
    type Q;
    /// The remainder.
    type Out;
}
/// One group of a multiplication: computes `P · Self + In`.
///
/// `In` is the carry of the less significant group.
pub trait LimbMul<P, In> {
    /// The group of the product.
    type Q;
    /// The carry.
    type Out;
}
type Dq<D, P, In> = <D as DivStep<P, In>>::Q;
type Dr<D, P, In> = <D as DivStep<P, In>>::Out;
type Mq<D, P, In> = <D as MulStep<P, In>>::Q;
type Mr<D, P, In> = <D as MulStep<P, In>>::Out;
// the remainders after the hundreds and after the tens; the carries after the ones and after the
// tens
type Left1<T, P, In> = Dr<<T as Digits>::A, P, In>;
type Left2<T, P, In> = Dr<<T as Digits>::B, P, Left1<T, P, In>>;
type Carry1<T, P, In> = Mr<<T as Digits>::C, P, In>;
type Carry2<T, P, In> = Mr<<T as Digits>::B, P, Carry1<T, P, In>>;
type Divided<T, P, In> = (
    Dq<<T as Digits>::A, P, In>,
    Dq<<T as Digits>::B, P, Left1<T, P, In>>,
    Dq<<T as Digits>::C, P, Left2<T, P, In>>,
);
type Multiplied<T, P, In> = (
    Mq<<T as Digits>::A, P, Carry2<T, P, In>>,
    Mq<<T as Digits>::B, P, Carry1<T, P, In>>,
    Mq<<T as Digits>::C, P, In>,
);
impl<P, In, T: Digits> LimbDiv<P, In> for T
where
    T::A: DivStep<P, In>,
    T::B: DivStep<P, Left1<T, P, In>>,
    T::C: DivStep<P, Left2<T, P, In>>,
    Divided<T, P, In>: Limb,
{
    type Q = <Divided<T, P, In> as Limb>::L;
    type Out = Dr<T::C, P, Left2<T, P, In>>;
}
impl<P, In, T: Digits> LimbMul<P, In> for T
where
    T::C: MulStep<P, In>,
    T::B: MulStep<P, Carry1<T, P, In>>,
    T::A: MulStep<P, Carry2<T, P, In>>,
    Multiplied<T, P, In>: Limb,
{
    type Q = <Multiplied<T, P, In> as Limb>::L;
    type Out = Mr<T::A, P, Carry2<T, P, In>>;
}

/// Divides an integer by a prime.
pub trait DividePrime<P> {
    /// The quotient, rounded down.
    type Quotient: Size;
    /// The remainder.
    type Rest;
}
/// Multiplies an integer by a prime, and adds `In`.
pub trait MultiplyPrime<P, In = R<0>> {
    /// The product.
    type Product: Size;
}
type LimbQuotient<T, P, In> = <T as LimbDiv<P, In>>::Q;
type LimbRest<T, P, In> = <T as LimbDiv<P, In>>::Out;
impl<P, const C: u16> DividePrime<P> for Num<C>
where
    L<C>: LimbDiv<P, R<0>>,
    LimbQuotient<L<C>, P, R<0>>: AsN,
{
    type Quotient = <LimbQuotient<L<C>, P, R<0>> as AsN>::Out;
    type Rest = LimbRest<L<C>, P, R<0>>;
}
impl<P, const B: u16, const C: u16> DividePrime<P> for K<B, C>
where
    L<B>: LimbDiv<P, R<0>>,
    L<C>: LimbDiv<P, LimbRest<L<B>, P, R<0>>>,
    LimbQuotient<L<B>, P, R<0>>: AsK<LimbQuotient<L<C>, P, LimbRest<L<B>, P, R<0>>>>,
{
    type Quotient = <LimbQuotient<L<B>, P, R<0>> as AsK<LimbQuotient<L<C>, P, LimbRest<L<B>, P, R<0>>>>>::Out;
    type Rest = LimbRest<L<C>, P, LimbRest<L<B>, P, R<0>>>;
}
impl<P, const A: u16, const B: u16, const C: u16> DividePrime<P> for M<A, B, C>
where
    L<A>: LimbDiv<P, R<0>>,
    L<B>: LimbDiv<P, LimbRest<L<A>, P, R<0>>>,
    L<C>: LimbDiv<P, LimbRest<L<B>, P, LimbRest<L<A>, P, R<0>>>>,
    LimbQuotient<L<A>, P, R<0>>: AsM<
            LimbQuotient<L<B>, P, LimbRest<L<A>, P, R<0>>>,
            LimbQuotient<L<C>, P, LimbRest<L<B>, P, LimbRest<L<A>, P, R<0>>>>,
        >,
{
    type Quotient = <LimbQuotient<L<A>, P, R<0>> as AsM<
        LimbQuotient<L<B>, P, LimbRest<L<A>, P, R<0>>>,
        LimbQuotient<L<C>, P, LimbRest<L<B>, P, LimbRest<L<A>, P, R<0>>>>,
    >>::Out;
    type Rest = LimbRest<L<C>, P, LimbRest<L<B>, P, LimbRest<L<A>, P, R<0>>>>;
}

type LimbProduct<T, P, In> = <T as LimbMul<P, In>>::Q;
type LimbCarry<T, P, In> = <T as LimbMul<P, In>>::Out;
/// Converts a carry to a group.
pub trait CarryLimb {
    /// The group.
    type L;
}
macro_rules! carry { ($($n:literal)*) => { $(impl CarryLimb for R<$n> { type L = L<$n>; })* } }
carry!(0 1 2 3 4 5 6 7 8 9 10 11 12);
type CarryGroup<T, P, In> = <LimbCarry<T, P, In> as CarryLimb>::L;
impl<P, In, const C: u16> MultiplyPrime<P, In> for Num<C>
where
    L<C>: LimbMul<P, In>,
    LimbCarry<L<C>, P, In>: CarryLimb,
    CarryGroup<L<C>, P, In>: AsK<LimbProduct<L<C>, P, In>>,
{
    type Product = <CarryGroup<L<C>, P, In> as AsK<LimbProduct<L<C>, P, In>>>::Out;
}
impl<P, In, const B: u16, const C: u16> MultiplyPrime<P, In> for K<B, C>
where
    L<C>: LimbMul<P, In>,
    L<B>: LimbMul<P, LimbCarry<L<C>, P, In>>,
    LimbCarry<L<B>, P, LimbCarry<L<C>, P, In>>: CarryLimb,
    CarryGroup<L<B>, P, LimbCarry<L<C>, P, In>>:
        AsM<LimbProduct<L<B>, P, LimbCarry<L<C>, P, In>>, LimbProduct<L<C>, P, In>>,
{
    type Product = <CarryGroup<L<B>, P, LimbCarry<L<C>, P, In>> as AsM<
        LimbProduct<L<B>, P, LimbCarry<L<C>, P, In>>,
        LimbProduct<L<C>, P, In>,
    >>::Out;
}
impl<P, In, const A: u16, const B: u16, const C: u16> MultiplyPrime<P, In> for M<A, B, C>
where
    L<C>: LimbMul<P, In>,
    L<B>: LimbMul<P, LimbCarry<L<C>, P, In>>,
    L<A>: LimbMul<P, LimbCarry<L<B>, P, LimbCarry<L<C>, P, In>>, Out = R<0>>,
    LimbProduct<L<A>, P, LimbCarry<L<B>, P, LimbCarry<L<C>, P, In>>>:
        AsM<LimbProduct<L<B>, P, LimbCarry<L<C>, P, In>>, LimbProduct<L<C>, P, In>>,
{
    type Product = <LimbProduct<L<A>, P, LimbCarry<L<B>, P, LimbCarry<L<C>, P, In>>> as AsM<
        LimbProduct<L<B>, P, LimbCarry<L<C>, P, In>>,
        LimbProduct<L<C>, P, In>,
    >>::Out;
}

// these conversions drop leading groups of zeros
/// Converts one group to an integer.
pub trait AsN {
    /// The integer.
    type Out: Size;
}
/// Converts two groups of three digits, `Self` and the less significant `C`, to an integer.
pub trait AsK<C> {
    /// The integer.
    type Out: Size;
}
/// Converts three groups to an integer; `B` and `C` are the less significant ones.
pub trait AsM<B, C> {
    /// The integer.
    type Out: Size;
}
/// Implements [`AsK`] by the marker of the first group.
pub trait LeadingK<B, C> {
    /// The integer.
    type Out: Size;
}
/// Implements [`AsM`] by the marker of the first group.
pub trait LeadingM<A, B, C> {
    /// The integer.
    type Out: Size;
}
impl<const C: u16> AsN for L<C> {
    type Out = Num<C>;
}
impl<B: Digits, C> AsK<C> for B
where
    B::Is: LeadingK<B, C>,
{
    type Out = <B::Is as LeadingK<B, C>>::Out;
}
impl<A: Digits, B, C> AsM<B, C> for A
where
    A::Is: LeadingM<A, B, C>,
{
    type Out = <A::Is as LeadingM<A, B, C>>::Out;
}
impl<B, C: AsN> LeadingK<B, C> for Zero {
    type Out = C::Out;
}
impl<const B: u16, const C: u16> LeadingK<L<B>, L<C>> for Nonzero {
    type Out = K<B, C>;
}
impl<A, B: AsK<C>, C> LeadingM<A, B, C> for Zero {
    type Out = B::Out;
}
impl<const A: u16, const B: u16, const C: u16> LeadingM<L<A>, L<B>, L<C>> for Nonzero {
    type Out = M<A, B, C>;
}
