//! Sums, differences and products of sizes.
//!
//! Numbers and named numbers are computed on their decimal digits. A product with a name that is
//! known only at run time is a [`SizeProduct`]; the other operations need numbers.

use super::count::{CountOf, CountSizes, SameElements};
use super::digits::{Decimal, DigitList, DigitsOf, SizeOfDigits, Stride};
use super::{Composite, Named, Number, Open, Size, Symbol, Unknown, WholeNumber};
use crate::sealed::{Seal, Sealed};
use core::fmt;
use core::marker::PhantomData;

rule_traits! {
    /// A size to which `B` can be added.
    message = "the sum of the sizes `{Self}` and `{B}` is not known when compiling",
    label = "expected two numbers, whose sum has at most twelve digits",
    note = "a generic function has the sum as a further parameter: `A: AddSize<B, Out = C>, B: Size, C: Size`",
    note = "for sizes that are known only at run time state the result: `x.then::<T![..]>(|x| ..)`",
    pub trait AddSize<B>: Size, sealed => Out: Size, "The sum." {}
}
type SumNumber<A, B> = SizeOfDigits<<DigitsOf<A> as DigitList>::Sum<DigitsOf<B>>>;
rules! { Out:
    hidden sealed [A: Size + Decimal, B: Decimal] A: AddSize<B>
        where [SumNumber<A, B>: WholeNumber] = SumNumber<A, B>;
}
rule_traits! {
    /// A size from which `B`, which is not larger, can be subtracted.
    message = "a slice from `{B}` to `{Self}` is not known to have a size",
    label = "expected two numbers, the lesser one first",
    note = "a generic function has the difference as a further parameter: `B: SubSize<A, Out = C>, A: Size, C: Size`",
    pub trait SubSize<B>: Size, sealed => Out: Size, "The difference." {}
}
/// The number `A` − `B`. [`TooLarge`](super::TooLarge) if it is below zero.
pub(crate) type DifferenceNumber<A, B> = SizeOfDigits<<DigitsOf<A> as DigitList>::Difference<DigitsOf<B>>>;
rules! { Out:
    hidden sealed [A: Size + Decimal, B: Decimal] A: SubSize<B>
        where [DifferenceNumber<A, B>: WholeNumber] = DifferenceNumber<A, B>;
}
/// A size that is at most `Z`.
#[diagnostic::on_unimplemented(
    message = "a slice up to `{Self}` reaches beyond a dim of size `{Z}`",
    label = "the end of a slice is at most the dim's size"
)]
pub trait SizeAtMost<Z> {}
#[diagnostic::do_not_recommend]
impl<A, Z: SubSize<A>> SizeAtMost<Z> for A {}

/// A product of sizes of which at least one is known only at run time. It prints as `Batch*4`.
pub struct SizeProduct<A, B>(PhantomData<fn() -> (A, B)>);
impl<A: Size, B: Size> Size for SizeProduct<A, B> {
    type Kind = Composite;
    const VALUE: Option<usize> = match (A::VALUE, B::VALUE) {
        (Some(a), Some(b)) => a.checked_mul(b),
        _ => None,
    };
    const IS_ANY: bool = A::IS_ANY || B::IS_ANY;
    fn show(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        A::show(f)?;
        f.write_str("*")?;
        B::show(f)
    }
}
rule_traits! {
    /// A size that can be multiplied by `B`.
    message = "the product of the sizes `{Self}` and `{B}` is not known when compiling",
    label = "expected two sizes that are not type parameters, and at most twelve digits",
    note = "a generic function has the product as a further parameter: `A: MulSize<B, Out = C>, B: Size, C: Size`",
    pub trait MulSize<B>: Size => Out: Size, "The product." {}
    /// The rule that multiplies sizes of a kind by sizes of the kind `K`.
    pub trait MulImpl<K, A, B>: Sealed, sealed => Out: Size, "The product." {}
}
rules! { Out:
    hidden [A: Size, B: Size] A: MulSize<B>
        where [A::Kind: MulImpl<B::Kind, A, B>] = <A::Kind as MulImpl<B::Kind, A, B>>::Out;
}
type ProductNumber<A, B> = SizeOfDigits<<DigitsOf<A> as DigitList>::Product<DigitsOf<B>>>;
macro_rules! products {
    (numbers: $($a:ident * $b:ident,)*) => { $(
        impl<A: Decimal, B: Decimal> MulImpl<$b, A, B> for $a
        where
            ProductNumber<A, B>: WholeNumber,
        {
            const SEAL: Seal = Seal;
            type Out = ProductNumber<A, B>;
        }
    )* };
    (names: $($a:ident * $b:ident,)*) => { $(
        impl<A: Size, B: Size> MulImpl<$b, A, B> for $a {
            const SEAL: Seal = Seal;
            type Out = SizeProduct<A, B>;
        }
    )* };
    (open: $($a:ident * $b:ident,)*) => { $(
        impl<A, B> MulImpl<$b, A, B> for $a {
            const SEAL: Seal = Seal;
            type Out = Unknown;
        }
    )* };
}
products!(numbers: Number * Number, Number * Named, Named * Number, Named * Named,);
products!(names: Number * Symbol, Number * Composite, Named * Symbol, Named * Composite,
    Symbol * Number, Symbol * Named, Symbol * Symbol, Symbol * Composite,
    Composite * Number, Composite * Named, Composite * Symbol, Composite * Composite,);
products!(open: Number * Open, Named * Open, Symbol * Open, Composite * Open,
    Open * Number, Open * Named, Open * Symbol, Open * Composite, Open * Open,);

rule_traits! {
    /// A size that can be divided by `K`. The quotient is rounded up.
    message = "the size `{Self}` cannot be divided by `{K}` in types",
    label = "expected a number, and a divisor from 1 to 16",
    pub trait DivideUp<K>: Size, sealed => Out: Size, "The quotient." {}
}
type QuotientNumber<Z, K> = SizeOfDigits<<K as Stride>::Quotient<DigitsOf<Z>>>;
rules! { Out:
    hidden sealed [Z: Size + Decimal, K: Stride] Z: DivideUp<K>
        where [QuotientNumber<Z, K>: WholeNumber] = QuotientNumber<Z, K>;
}
/// A size that is the product of `A` and `B`.
#[diagnostic::on_unimplemented(
    message = "a dim of size `{Self}` is not `{A}` times `{B}`",
    label = "the two factors multiply to the dim's size",
    note = "a generic function has a bound: `D: ProductIs<H, K>`",
    note = "for sizes that are known only at run time state the result: `x.then::<T![..]>(|x| ..)`"
)]
pub trait ProductIs<A, B>: Size {}
#[diagnostic::do_not_recommend]
impl<Z: Size, A, B> ProductIs<A, B> for Z
where
    (Z, ()): CountSizes,
    (A, (B, ())): CountSizes,
    CountOf<(Z, ())>: SameElements<Z, (A, B), CountOf<(A, (B, ()))>>,
{
}

/// Sizes that can be added: a tuple of two to eight.
pub trait SizeSum: Sealed {
    /// The sum.
    type Out: Size;
}
/// The size of all pieces together, which is the size `Z` of the dim that is split.
#[diagnostic::on_unimplemented(
    message = "split: the sizes of the pieces add up to `{Self}`, but the dim has size `{Z}`",
    label = "`{Self}` is not `{Z}`",
    note = "name the sizes of all pieces: `x.split::<N![2], N![6], _>(D0)` for a dim of 8"
)]
pub trait PiecesOf<Z> {}
impl<Z> PiecesOf<Z> for Z {}
/// Sizes whose sum is `Z`: `(N![2], N![3], N![4])` for `N![9]`.
pub trait SizesAddTo<Z> {}
impl<Z, P: SizeSum<Out: PiecesOf<Z>>> SizesAddTo<Z> for P {}
rules! { Out: [A: AddSize<B>, B] (A, B): SizeSum = A::Out; }
macro_rules! sums { ($($($piece:ident)+;)*) => { $(
    impl<$($piece,)+ Z> SizeSum for ($($piece,)+ Z)
    where
        ($($piece,)+): SizeSum<Out: AddSize<Z>>,
    {
        type Out = <<($($piece,)+) as SizeSum>::Out as AddSize<Z>>::Out;
    }
)* } }
sums! { A B; A B C; A B C E; A B C E F; A B C E F G; A B C E F G H; }
