//! Dims cut and joined: concat, split, slices, factors. Sums and products of sizes go by `typenum`, from number to number; sizes known
//! at run time only go through the checked door, `Typed::then`.

use super::moves::WholeDim;
use crate::axis::Shard;
use crate::shape::{Dim, DimType, Shape};
use crate::size::{IntoSize, IntoTypenum, Size, SplitsOver};
use core::ops::{Add, Mul, Sub};
use typenum::{Diff, Prod, Sum, Unsigned};

type Of<T> = <T as IntoTypenum>::Typenum;

/// A number plus a number.
#[diagnostic::on_unimplemented(
    message = "the sum of the sizes `{Self}` and `{B}` is not known when compiling",
    label = "expected two numbers",
    note = "for named sizes and those known at run time only state the result: `x.then::<T![..]>(|x| ..)`"
)]
pub trait Plus<B>: Size {
    /// The sum.
    type Out: Size;
}
#[diagnostic::do_not_recommend]
impl<A: Size + IntoTypenum, B: IntoTypenum> Plus<B> for A
where
    Of<A>: Add<Of<B>>,
    Sum<Of<A>, Of<B>>: IntoSize,
{
    type Out = <Sum<Of<A>, Of<B>> as IntoSize>::Size;
}
/// A number minus a number that is not greater.
#[diagnostic::on_unimplemented(
    message = "a slice from `{B}` to `{Self}` is not known to have a size",
    label = "expected two numbers, the lesser one first"
)]
pub trait Minus<B>: Size {
    /// The difference.
    type Out: Size;
}
#[diagnostic::do_not_recommend]
impl<A: Size + IntoTypenum, B: IntoTypenum> Minus<B> for A
where
    Of<A>: Sub<Of<B>>,
    Diff<Of<A>, Of<B>>: IntoSize,
{
    type Out = <Diff<Of<A>, Of<B>> as IntoSize>::Size;
}
/// A number up to `N`.
#[diagnostic::on_unimplemented(
    message = "a slice up to `{Self}` reaches beyond a dim of size `{N}`",
    label = "the end of a slice is at most the dim's size"
)]
pub trait UpTo<N> {}
#[diagnostic::do_not_recommend]
impl<A: IntoTypenum, N: IntoTypenum> UpTo<N> for A
where
    Of<N>: Sub<Of<A>>,
    Diff<Of<N>, Of<A>>: Unsigned,
{
}
/// A number that is `A` times `B`.
#[diagnostic::on_unimplemented(
    message = "a dim of size `{Self}` is not `{A}` times `{B}`",
    label = "the two factors multiply to the dim's size",
    note = "for named sizes and those known at run time only state the result: `x.then::<T![..]>(|x| ..)`"
)]
pub trait ProductIs<A, B>: Size {}
#[diagnostic::do_not_recommend]
impl<N: Size + IntoTypenum, A: IntoTypenum, B: IntoTypenum> ProductIs<A, B> for N where
    Of<A>: Mul<Of<B>, Output = Of<N>>
{
}
/// A number times a number.
#[diagnostic::on_unimplemented(
    message = "the product of the sizes `{Self}` and `{B}` is not known when compiling",
    label = "expected two numbers",
    note = "for named sizes and those known at run time only state the result: `x.then::<T![..]>(|x| ..)`"
)]
pub trait Times<B>: Size {
    /// The product.
    type Out: Size;
}
#[diagnostic::do_not_recommend]
impl<A: Size + IntoTypenum, B: IntoTypenum> Times<B> for A
where
    Of<A>: Mul<Of<B>>,
    Prod<Of<A>, Of<B>>: IntoSize,
{
    type Out = <Prod<Of<A>, Of<B>> as IntoSize>::Size;
}

/// Two dims joined: they are sharded alike, and the sum of their sizes is.
#[diagnostic::on_unimplemented(
    message = "concat: dims `{Self}` and `{D2}` cannot be joined",
    label = "joined dims have one sharding; `reshard` one operand"
)]
pub trait JoinDim<D2>: DimType {
    /// The dim of the result.
    type Out: DimType;
}
impl<A: Plus<B>, B: Size, S: Shard> JoinDim<Dim<B, S>> for Dim<A, S>
where
    A::Out: SplitsOver<S>,
{
    type Out = Dim<A::Out, S>;
}
/// Two dims made one: the first one keeps its sharding, the second one is whole.
#[diagnostic::on_unimplemented(
    message = "dims `{Self}` and `{D2}` cannot be merged into one",
    label = "the second one must be whole: `reshard` first"
)]
pub trait MergeDim<D2>: DimType {
    /// The dim of the result.
    type Out: DimType;
}
impl<A: Times<B>, B: Size, S: Shard> MergeDim<Dim<B>> for Dim<A, S>
where
    A::Out: SplitsOver<S>,
{
    type Out = Dim<A::Out, S>;
}
/// A dim cut into a first part of size `A` and a second one of size `B`.
#[diagnostic::on_unimplemented(
    message = "a dim `{Self}` cannot be split into parts of `{A}` and `{B}`",
    label = "the parts' sizes are numbers that add up to the dim's, and mesh axes divide each"
)]
pub trait CutDim<A, B>: DimType {
    /// The first part.
    type First: DimType;
    /// The second part.
    type Second: DimType;
}
#[diagnostic::do_not_recommend]
impl<N: Size, S: Shard, A: SplitsOver<S> + Plus<B, Out = N>, B: SplitsOver<S>> CutDim<A, B> for Dim<N, S> {
    type First = Dim<A, S>;
    type Second = Dim<B, S>;
}
/// A whole dim from `A` to `B`.
#[diagnostic::on_unimplemented(
    message = "dim `{Self}` cannot be sliced from `{A}` to `{B}` in types",
    label = "slices are of whole dims whose size is a number: `reshard` first",
    note = "or state the result: `x.then::<T![..]>(|x| x.slice(ix![..]))`"
)]
pub trait SliceDim<A, B>: WholeDim {
    /// The dim of the result.
    type Out: DimType;
}
impl<N: Size, A, B: Minus<A> + UpTo<N>> SliceDim<A, B> for Dim<N> {
    type Out = Dim<B::Out>;
}
/// The rest of a shape is the same: two shapes that differ in dim `I` only.
#[diagnostic::on_unimplemented(
    message = "concat: shapes `{S}` and `{Self}` differ in more than the joined dim",
    label = "all other dims are the same, sharding and all"
)]
pub trait SameBut<I, S>: Shape {}
impl<I, S: crate::shape::At<I>, R: crate::shape::At<I, Without = S::Without>> SameBut<I, S> for R {}
