//! Rules that split sizes over mesh axes and gather them again.

use super::{
    Composite, DeviceShare, DividePrime, Impossible, MultiplyPrime, Named, NamedSize, Number, Open, R, Size,
    Symbol,
};
use crate::axis::{MeshAxis, RunTimeSize, Unsharded};
use crate::sealed::{Seal, Sealed, SealedOrDeclared};

rule_traits! {
    /// A size that splits into equal tiles, one for each device along `A`.
    message = "a dim of size `{Self}` cannot be sharded evenly over mesh axis `{A}`",
    label = "`{Self}` is not known to be a multiple of the size of `{A}`",
    note = "every device along a mesh axis holds an equal part of the dim, so the axis size must divide the dim: shard another dim, or `pad` this one first",
    note = "in a generic function, the bound of a size `B` is `B: SplitsOver<{A}>`",
    note = "numbers from 1000 on are printed in groups of three digits: `K<4, 96>` is 4,096",
    pub trait SplitsOver<A>: Size, sealed => Tile: Size, "The size of one device's tile." {}
    /// A size that can be multiplied by the size of `A`.
    message = "parts of size `{Self}` cannot be put together along mesh axis `{A}` in types",
    label = "the size of all parts together is not known",
    note = "`DeviceShare<Batch, X>` is the share of `Batch` along `X`: only along `X` do its parts make `Batch` again",
    pub trait GathersOver<A>: Size, sealed => Full: Size, "The size of all tiles together." {}
}
/// A size that splits along `A` into tiles that gather to the same size again.
///
/// A generic function with a `shard_map` needs this bound.
#[diagnostic::on_unimplemented(
    message = "a dim of size `{Self}` is not known to be cut evenly over mesh axis `{A}` and put together again",
    label = "`{Self}` goes through a `shard_map` over `{A}`",
    note = "in a generic function: `{Self}: Tiles<{A}>`"
)]
pub trait Tiles<A>: SplitsOver<A, Tile: GathersOver<A, Full = Self>> {}
#[diagnostic::do_not_recommend]
impl<S: SplitsOver<A, Tile: GathersOver<A, Full = S>>, A> Tiles<A> for S {}

/// The rule that splits sizes of a kind.
pub trait SplitImpl<S, A>: Sealed {
    seal!();
    /// The size of one device's tile.
    type Tile: Size;
    /// The remainder.
    type Rest;
}
/// The rule that gathers sizes of a kind.
pub trait GatherImpl<S, A>: Sealed {
    seal!();
    /// The size of all tiles together.
    type Full: Size;
}
/// Requires that all remainders are 0.
pub trait ZeroRemainders: Sealed {}
impl ZeroRemainders for () {}
impl ZeroRemainders for R<0> {}
impl<A: ZeroRemainders, B: ZeroRemainders> ZeroRemainders for (A, B) {}

type Tile<S, A> = <<S as Size>::Kind as SplitImpl<S, A>>::Tile;
type FullSize<S, A> = <<S as Size>::Kind as GatherImpl<S, A>>::Full;
rules! { Tile: sealed [S: Size] S: SplitsOver<Unsharded> = S; }
rules! { Full: sealed [S: Size] S: GathersOver<Unsharded> = S; }
// `Tile` is total: a dim that does not divide fails at `Rest: ZeroRemainders` and nowhere else.
// Tuples are written out: an impl that recurs through a parameter that may not be known yet
// overflows.
#[diagnostic::do_not_recommend]
impl<S: Size, A: MeshAxis> SplitsOver<A> for S
where
    S::Kind: SplitImpl<S, A, Rest: ZeroRemainders>,
{
    const SEAL: Seal = Seal;
    type Tile = Tile<S, A>;
}
#[diagnostic::do_not_recommend]
impl<S: Size, A: MeshAxis, B: MeshAxis> SplitsOver<(A, B)> for S
where
    S::Kind: SplitImpl<S, A, Rest: ZeroRemainders>,
    <Tile<S, A> as Size>::Kind: SplitImpl<Tile<S, A>, B, Rest: ZeroRemainders>,
{
    const SEAL: Seal = Seal;
    type Tile = Tile<Tile<S, A>, B>;
}
#[diagnostic::do_not_recommend]
impl<S: Size, A: MeshAxis, B: MeshAxis, C: MeshAxis> SplitsOver<(A, B, C)> for S
where
    S::Kind: SplitImpl<S, A, Rest: ZeroRemainders>,
    <Tile<S, A> as Size>::Kind: SplitImpl<Tile<S, A>, B, Rest: ZeroRemainders>,
    <Tile<Tile<S, A>, B> as Size>::Kind: SplitImpl<Tile<Tile<S, A>, B>, C, Rest: ZeroRemainders>,
{
    const SEAL: Seal = Seal;
    type Tile = Tile<Tile<Tile<S, A>, B>, C>;
}
rules! { Full:
    hidden sealed [S: Size, A: MeshAxis] S: GathersOver<A>
        where [S::Kind: GatherImpl<S, A>] = FullSize<S, A>;
}
#[diagnostic::do_not_recommend]
impl<S: Size, A: MeshAxis, B: MeshAxis> GathersOver<(A, B)> for S
where
    S::Kind: GatherImpl<S, B>,
    <FullSize<S, B> as Size>::Kind: GatherImpl<FullSize<S, B>, A>,
{
    const SEAL: Seal = Seal;
    type Full = FullSize<FullSize<S, B>, A>;
}
#[diagnostic::do_not_recommend]
impl<S: Size, A: MeshAxis, B: MeshAxis, C: MeshAxis> GathersOver<(A, B, C)> for S
where
    S::Kind: GatherImpl<S, C>,
    <FullSize<S, C> as Size>::Kind: GatherImpl<FullSize<S, C>, B>,
    <FullSize<FullSize<S, C>, B> as Size>::Kind: GatherImpl<FullSize<FullSize<S, C>, B>, A>,
{
    const SEAL: Seal = Seal;
    type Full = FullSize<FullSize<FullSize<S, C>, B>, A>;
}

// integers: divided by the prime factors of the axis, or a share if the axis size is known only at
// run time
impl<S, A: MeshAxis> SplitImpl<S, A> for Number
where
    A::Factors: SplitBy<S, A>,
{
    const SEAL: Seal = Seal;
    type Tile = <A::Factors as SplitBy<S, A>>::Tile;
    type Rest = <A::Factors as SplitBy<S, A>>::Rest;
}
rules! { Full:
    sealed [S, A: MeshAxis] Number: GatherImpl<S, A>
        where [A::Factors: GatherBy<S, A>] = <A::Factors as GatherBy<S, A>>::Full;
}
/// The prime factors of an axis, as a divisor of a size.
pub trait SplitBy<S, A>: Sealed {
    /// The size of one device's tile.
    type Tile: Size;
    /// The remainder.
    type Rest;
}
/// The prime factors of an axis, as a multiplier of a size.
pub trait GatherBy<S, A>: Sealed {
    /// The size of all tiles together.
    type Full: Size;
}
/// The prime factors of a mesh axis: `(Prime<2>, (Prime<2>, ()))`, or [`RunTimeSize`].
pub trait PrimeFactors: Sealed + 'static {}
impl PrimeFactors for RunTimeSize {}
impl PrimeFactors for () {}
impl<P: 'static, F: PrimeFactors> PrimeFactors for (P, F) {}
impl<S: Size, A: MeshAxis> SplitBy<S, A> for RunTimeSize {
    type Tile = DeviceShare<S, A>;
    type Rest = ();
}
impl<S: DivideBy<()>, A> SplitBy<S, A> for () {
    type Tile = S::Quotient;
    type Rest = ();
}
impl<S: DivideBy<(P, F)>, A, P, F> SplitBy<S, A> for (P, F) {
    type Tile = S::Quotient;
    type Rest = S::Rest;
}
rules! { Full:
    [S: MultiplyBy<()>, A] (): GatherBy<S, A> = S::Product;
    [S: MultiplyBy<(P, F)>, A, P, F] (P, F): GatherBy<S, A> = S::Product;
}
/// An integer that can be divided by a list of primes.
pub trait DivideBy<F>: SealedOrDeclared {
    /// The quotient.
    type Quotient: Size;
    /// The remainders of all steps.
    type Rest;
}
/// An integer that can be multiplied by a list of primes.
pub trait MultiplyBy<F>: SealedOrDeclared {
    /// The product.
    type Product: Size;
}
impl<S: Size> DivideBy<()> for S {
    type Quotient = S;
    type Rest = ();
}
rules! { Product: [S: Size] S: MultiplyBy<()> = S; }
impl<S: Size + DividePrime<P>, P, F> DivideBy<(P, F)> for S
where
    S::Quotient: DivideBy<F>,
{
    type Quotient = <S::Quotient as DivideBy<F>>::Quotient;
    type Rest = (S::Rest, <S::Quotient as DivideBy<F>>::Rest);
}
rules! { Product:
    [S: Size + MultiplyPrime<P>, P, F] S: MultiplyBy<(P, F)>
        where [S::Product: MultiplyBy<F>] = <S::Product as MultiplyBy<F>>::Product;
}

// named sizes: the value must divide; the tile stays a share of the name
impl<S: NamedSize, A: MeshAxis> SplitImpl<S, A> for Named
where
    Number: SplitImpl<S::Number, A>,
{
    const SEAL: Seal = Seal;
    type Tile = DeviceShare<S, A>;
    type Rest = <Number as SplitImpl<S::Number, A>>::Rest;
}
// run-time sizes: checked when the program is traced
macro_rules! symbols { ($($kind:ty)*) => { $(
    impl<S: Size, A: MeshAxis> SplitImpl<S, A> for $kind {
        const SEAL: Seal = Seal;
        type Tile = DeviceShare<S, A>;
        type Rest = ();
    }
)* } }
symbols!(Symbol Composite Open Impossible);
rules! { Full: sealed [S: Size, A: MeshAxis] Symbol: GatherImpl<DeviceShare<S, A>, A> = S; }
