//! Conversion between sizes and `typenum` integers.
//!
//! The rules work on this crate's types for sizes ([`Num`], [`K`], [`M`]): rustc prints them
//! readably, and dividing one takes a number of steps proportional to its decimal digits.
//! [`IntoSize`] converts `typenum` integers to these types, and [`IntoTypenum`] converts them back.

use super::digits::{DigitList, NoDigits, SizeOfDigits};
use super::{G, K, M, NamedSize, Num, Size, WholeNumber};
use crate::sealed::{Sealed, SealedOrDeclared};
use core::ops::{Add, Mul};
use typenum::consts::U1000;
use typenum::{B0, B1, Prod, Sum, UInt, UTerm};

/// A type that stands for a size: a `typenum` integer, or a size itself.
pub trait IntoSize: SealedOrDeclared {
    /// The size: `<U4096 as IntoSize>::Size` is `N![4096]`.
    type Size: Size;
}
/// The decimal digits of a `typenum` integer.
pub trait BinaryDigits: Sealed {
    /// The digits.
    type Digits: DigitList;
}
rules! { Digits:
    [] UTerm: BinaryDigits = NoDigits;
    [U: BinaryDigits] UInt<U, B0>: BinaryDigits = <U::Digits as DigitList>::Times2Carry0;
    [U: BinaryDigits] UInt<U, B1>: BinaryDigits = <U::Digits as DigitList>::Times2Carry1;
}
rules! { Size: [] UTerm: IntoSize = Num<0>; }
impl<U, B> IntoSize for UInt<U, B>
where
    UInt<U, B>: BinaryDigits,
    SizeOfDigits<<UInt<U, B> as BinaryDigits>::Digits>: WholeNumber,
{
    type Size = SizeOfDigits<<UInt<U, B> as BinaryDigits>::Digits>;
}

rule_traits! {
    /// A size with a known value, as a `typenum` integer.
    message = "the size `{Self}` has no number that is known when compiling",
    label = "expected a number or a named number",
    pub trait IntoTypenum: SealedOrDeclared => Typenum: typenum::Unsigned, "The integer." {}
}
macro_rules! table { ($($n:literal $u:ident)*) => { $(
    impl IntoTypenum for Num<$n> { type Typenum = typenum::consts::$u; }
)* } }
atmesh_typed_macros::typenums!(table);

rules! { Typenum: [S: NamedSize<Number: IntoTypenum>] S: IntoTypenum = TypenumOf<S::Number>; }

/// The `typenum` integer of a size.
pub(crate) type TypenumOf<T> = <T as IntoTypenum>::Typenum;
impl<const A: u16, const B: u16> IntoTypenum for K<A, B>
where
    Num<A>: IntoTypenum<Typenum: Mul<U1000>>,
    Num<B>: IntoTypenum,
    Prod<TypenumOf<Num<A>>, U1000>: Add<TypenumOf<Num<B>>>,
    Sum<Prod<TypenumOf<Num<A>>, U1000>, TypenumOf<Num<B>>>: typenum::Unsigned,
{
    type Typenum = Sum<Prod<TypenumOf<Num<A>>, U1000>, TypenumOf<Num<B>>>;
}
impl<const A: u16, const B: u16, const C: u16> IntoTypenum for M<A, B, C>
where
    K<A, B>: IntoTypenum<Typenum: Mul<U1000>>,
    Num<C>: IntoTypenum,
    Prod<TypenumOf<K<A, B>>, U1000>: Add<TypenumOf<Num<C>>>,
    Sum<Prod<TypenumOf<K<A, B>>, U1000>, TypenumOf<Num<C>>>: typenum::Unsigned,
{
    type Typenum = Sum<Prod<TypenumOf<K<A, B>>, U1000>, TypenumOf<Num<C>>>;
}

impl<const A: u16, const B: u16, const C: u16, const E: u16> IntoTypenum for G<A, B, C, E>
where
    M<A, B, C>: IntoTypenum<Typenum: Mul<U1000>>,
    Num<E>: IntoTypenum,
    Prod<TypenumOf<M<A, B, C>>, U1000>: Add<TypenumOf<Num<E>>>,
    Sum<Prod<TypenumOf<M<A, B, C>>, U1000>, TypenumOf<Num<E>>>: typenum::Unsigned,
{
    type Typenum = Sum<Prod<TypenumOf<M<A, B, C>>, U1000>, TypenumOf<Num<E>>>;
}

/// The `typenum` integer of a named size.
pub type TypenumOfName<S> = TypenumOf<<S as NamedSize>::Number>;
