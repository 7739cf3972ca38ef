//! Numbers of elements: the product of the numbers among sizes, and the names among them in order.

use super::digits::{Decimal, Digit1, DigitList, DigitsOf, NoDigits, SizeOfDigits};
use super::{Composite, Named, Number, Open, Size, SizeProduct, Symbol, WholeNumber};
use crate::sealed::{Sealed, SealedOrDeclared};
use core::marker::PhantomData;

/// A number of elements that depends on sizes known only at run time: `N` times the sizes `Y`.
///
/// `NamedCount<Num<6>, (Batch, (Seq, ()))>` is 6 · Batch · Seq.
pub struct NamedCount<N, Y>(PhantomData<(N, Y)>);
/// A number of elements that depends on a size `?`.
pub struct OpenCount;

/// A product of sizes while it is computed: the digits of its number, and its names.
pub struct Tally<L, Y>(PhantomData<(L, Y)>);
/// The rule that multiplies a product `T` by a size `Z` of a kind.
pub trait CountImpl<Z, T>: Sealed {
    /// The product.
    type Out: TallyCount;
}
/// A finished product.
pub trait TallyCount: Sealed {
    /// The number of elements: a number, [`NamedCount`], or [`OpenCount`].
    type Count;
}
rules! { Count:
    [L: DigitList] Tally<L, ()>: TallyCount = SizeOfDigits<L>;
    [L: DigitList, Z, Y] Tally<L, (Z, Y)>: TallyCount = NamedCount<SizeOfDigits<L>, (Z, Y)>;
    [] OpenCount: TallyCount = OpenCount;
}

// the product so far is on the left: the first one, of 1 and a size, takes a few steps only
macro_rules! numbers { ($($kind:ty)*) => { $(
    impl<Z: Decimal, L: DigitList, Y> CountImpl<Z, Tally<L, Y>> for $kind
    where
        Tally<L::Product<DigitsOf<Z>>, Y>: TallyCount,
    {
        type Out = Tally<L::Product<DigitsOf<Z>>, Y>;
    }
)* } }
numbers!(Number Named);
rules! { Out:
    [Z, L: DigitList, Y] Symbol: CountImpl<Z, Tally<L, Y>> = Tally<L, (Z, Y)>;
    [Z, L, Y] Open: CountImpl<Z, Tally<L, Y>> = OpenCount;
}
type Counted<Z, T> = <<Z as Size>::Kind as CountImpl<Z, T>>::Out;
rules! { Out:
    [A: Size, B: Size, L, Y] Composite: CountImpl<SizeProduct<A, B>, Tally<L, Y>>
        where [B::Kind: CountImpl<B, Tally<L, Y>>, A::Kind: CountImpl<A, Counted<B, Tally<L, Y>>>]
        = Counted<A, Counted<B, Tally<L, Y>>>;
}
macro_rules! open { ($($kind:ty)*) => { $(
    impl<Z> CountImpl<Z, OpenCount> for $kind {
        type Out = OpenCount;
    }
)* } }
open!(Number Named Symbol Composite Open);

rule_traits! {
    /// Sizes as nested pairs, `(A, (B, ()))`, whose product is known.
    message = "reshape: the product of the sizes `{Self}` is not known in a generic function",
    label = "a size of the shape is a type parameter",
    note = "give the function a bound with the shapes before and after: `where S![B, 6]: ReshapesTo<S![B, 2, 3]>`",
    note = "or use `.split_dim(..)` and `.merge_dims(..)`, which leave all other dims as they are",
    pub trait CountSizes: Sealed => Tally: TallyCount, "The product." {
        [] (): CountSizes = Tally<Digit1<NoDigits>, ()>;
        hidden [Z: Size, T: CountSizes] (Z, T): CountSizes
            where [Z::Kind: CountImpl<Z, T::Tally>] = Counted<Z, T::Tally>;
    }
}
/// The product of sizes: a number, [`NamedCount`], or [`OpenCount`].
pub type CountOf<Z> = <<Z as CountSizes>::Tally as TallyCount>::Count;

/// A number of elements, of a shape `S`, that equals the number `C` of elements of a shape `R`.
///
/// Both are equal if one depends on a size `?`: the arrays are compared when the operation runs.
#[diagnostic::on_unimplemented(
    message = "reshape: arrays of shape `{S}` and `{R}` have different numbers of elements",
    label = "`{Self}` elements cannot become `{C}` elements",
    note = "the product of the sizes stays the same; sizes that are known only at run time keep their order, so `transpose` first to exchange two",
    note = "numbers from 1000 on are printed in groups of three digits: `K<4, 96>` is 4,096"
)]
pub trait SameElements<S, R, C>: SealedOrDeclared {}
// rustc would list these impls instead of the notes
#[diagnostic::do_not_recommend]
impl<S, R, N: WholeNumber> SameElements<S, R, N> for N {}
#[diagnostic::do_not_recommend]
impl<S, R, N: WholeNumber, Y> SameElements<S, R, NamedCount<N, Y>> for NamedCount<N, Y> {}
#[diagnostic::do_not_recommend]
impl<S, R, N: WholeNumber> SameElements<S, R, OpenCount> for N {}
#[diagnostic::do_not_recommend]
impl<S, R, N: WholeNumber, Y> SameElements<S, R, OpenCount> for NamedCount<N, Y> {}
#[diagnostic::do_not_recommend]
impl<S, R, C> SameElements<S, R, C> for OpenCount {}
