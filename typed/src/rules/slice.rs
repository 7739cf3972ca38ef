//! Rules of concatenating, splitting, slicing, padding and merging dims.
//!
//! Sums and products of sizes are computed by `typenum`. Sizes that are known only at run time need
//! the checked conversion `Typed::then`.

use super::reshape_dims::UnshardedDim;
use crate::axis::{MeshAxis, Shard};
use crate::shape::{DimAccess, DimType, Shape, Stretch, TDim};
use crate::size::{IntoSize, IntoTypenum, Size, SplitsOver, TypenumOf};
use core::ops::{Add, Mul, Sub};
use typenum::{Diff, Prod, Sum, Unsigned};

/// A size to which `B` can be added.
#[diagnostic::on_unimplemented(
    message = "the sum of the sizes `{Self}` and `{B}` is not known when compiling",
    label = "expected two numbers",
    note = "for named sizes and those known at run time only state the result: `x.then::<T![..]>(|x| ..)`"
)]
pub trait AddSize<B>: Size {
    /// The sum.
    type Out: Size;
}
#[diagnostic::do_not_recommend]
impl<A: Size + IntoTypenum, B: IntoTypenum> AddSize<B> for A
where
    TypenumOf<A>: Add<TypenumOf<B>>,
    Sum<TypenumOf<A>, TypenumOf<B>>: IntoSize,
{
    type Out = <Sum<TypenumOf<A>, TypenumOf<B>> as IntoSize>::Size;
}
/// A size from which `B`, which is not larger, can be subtracted.
#[diagnostic::on_unimplemented(
    message = "a slice from `{B}` to `{Self}` is not known to have a size",
    label = "expected two numbers, the lesser one first"
)]
pub trait SubSize<B>: Size {
    /// The difference.
    type Out: Size;
}
#[diagnostic::do_not_recommend]
impl<A: Size + IntoTypenum, B: IntoTypenum> SubSize<B> for A
where
    TypenumOf<A>: Sub<TypenumOf<B>>,
    Diff<TypenumOf<A>, TypenumOf<B>>: IntoSize,
{
    type Out = <Diff<TypenumOf<A>, TypenumOf<B>> as IntoSize>::Size;
}
/// A size that is at most `Z`.
#[diagnostic::on_unimplemented(
    message = "a slice up to `{Self}` reaches beyond a dim of size `{Z}`",
    label = "the end of a slice is at most the dim's size"
)]
pub trait SizeAtMost<Z> {}
#[diagnostic::do_not_recommend]
impl<A: IntoTypenum, Z: IntoTypenum> SizeAtMost<Z> for A
where
    TypenumOf<Z>: Sub<TypenumOf<A>>,
    Diff<TypenumOf<Z>, TypenumOf<A>>: Unsigned,
{
}
/// A size that is the product of `A` and `B`.
#[diagnostic::on_unimplemented(
    message = "a dim of size `{Self}` is not `{A}` times `{B}`",
    label = "the two factors multiply to the dim's size",
    note = "for named sizes and those known at run time only state the result: `x.then::<T![..]>(|x| ..)`"
)]
pub trait ProductIs<A, B>: Size {}
#[diagnostic::do_not_recommend]
impl<Z: Size + IntoTypenum, A: IntoTypenum, B: IntoTypenum> ProductIs<A, B> for Z where
    TypenumOf<A>: Mul<TypenumOf<B>, Output = TypenumOf<Z>>
{
}
/// A size that can be multiplied by `B`.
#[diagnostic::on_unimplemented(
    message = "the product of the sizes `{Self}` and `{B}` is not known when compiling",
    label = "expected two numbers",
    note = "for named sizes and those known at run time only state the result: `x.then::<T![..]>(|x| ..)`"
)]
pub trait MulSize<B>: Size {
    /// The product.
    type Out: Size;
}
#[diagnostic::do_not_recommend]
impl<A: Size + IntoTypenum, B: IntoTypenum> MulSize<B> for A
where
    TypenumOf<A>: Mul<TypenumOf<B>>,
    Prod<TypenumOf<A>, TypenumOf<B>>: IntoSize,
{
    type Out = <Prod<TypenumOf<A>, TypenumOf<B>> as IntoSize>::Size;
}

/// A pair of dims that can be concatenated.
///
/// Both are sharded the same way, and so is the sum of their sizes.
#[diagnostic::on_unimplemented(
    message = "concat: dims `{Self}` and `{D2}` cannot be joined",
    label = "joined dims have one sharding; `reshard` one operand"
)]
pub trait JoinDim<D2>: DimType {
    /// The dim of the result.
    type Out: DimType;
}
impl<A: AddSize<B>, B: Size, S: Shard> JoinDim<TDim<B, S>> for TDim<A, S>
where
    A::Out: SplitsOver<S>,
{
    type Out = TDim<A::Out, S>;
}
/// A pair of dims that can be merged into one.
///
/// The merged dim is sharded over the axes of the first dim, then those of the second. Only the
/// second dim may be unsharded.
#[diagnostic::on_unimplemented(
    message = "dims `{Self}` and `{D2}` cannot be merged into one",
    label = "where the second one is sharded, the first one is too, over other axes; over three axes in all"
)]
pub trait MergeDim<D2>: DimType {
    /// The dim of the result.
    type Out: DimType;
}
impl<A: MulSize<B>, B: Size, S: Shard> MergeDim<TDim<B>> for TDim<A, S>
where
    A::Out: SplitsOver<S>,
{
    type Out = TDim<A::Out, S>;
}
macro_rules! strung { ($($($a:ident)+, $first:ty, $second:ty;)*) => { $(
    impl<A: MulSize<B>, B: Size, $($a: MeshAxis),+> MergeDim<TDim<B, $second>> for TDim<A, $first>
    where
        A::Out: SplitsOver<($($a,)+)>,
    {
        type Out = TDim<A::Out, ($($a,)+)>;
    }
)* } }
strung! { X Y, X, Y; X Y Z, X, (Y, Z); X Y Z, (X, Y), Z; }
/// A dim that splits into a first piece of size `A` and a second one of size `B`.
#[diagnostic::on_unimplemented(
    message = "a dim `{Self}` cannot be split into parts of `{A}` and `{B}`",
    label = "the parts' sizes are numbers that add up to the dim's, and mesh axes divide each"
)]
pub trait CutDim<A, B>: DimType {
    /// The first piece.
    type First: DimType;
    /// The second piece.
    type Second: DimType;
}
impl<Z: Size, S: Shard, A: SplitsOver<S> + AddSize<B, Out: PiecesOf<Z>>, B: SplitsOver<S>> CutDim<A, B>
    for TDim<Z, S>
{
    type First = TDim<A, S>;
    type Second = TDim<B, S>;
}
/// The size of all pieces together, which is the size `Z` of the dim that is split.
#[diagnostic::on_unimplemented(
    message = "split: the sizes of the pieces add up to `{Self}`, but the dim has size `{Z}`",
    label = "`{Self}` is not `{Z}`",
    note = "name the sizes of both pieces: `x.split::<N![2], N![6], _>(D0)` for a dim of 8"
)]
pub trait PiecesOf<Z> {}
impl<Z> PiecesOf<Z> for Z {}
/// An unsharded dim that can be sliced from `A` to `B`.
#[diagnostic::on_unimplemented(
    message = "dim `{Self}` cannot be sliced from `{A}` to `{B}` in types",
    label = "slices are of unsharded dims whose size is a number: `reshard` first",
    note = "or state the result: `x.then::<T![..]>(|x| x.slice(ix![..]))`"
)]
pub trait SliceDim<A, B>: UnshardedDim {
    /// The dim of the result.
    type Out: DimType;
}
impl<Z: Size, A, B: SubSize<A> + SizeAtMost<Z>> SliceDim<A, B> for TDim<Z> {
    type Out = TDim<B::Out>;
}
/// An unsharded dim that can be padded by `A` elements before and `B` elements after.
#[diagnostic::on_unimplemented(
    message = "pad: dim `{Self}` cannot be padded by `{A}` and `{B}` in types",
    label = "padded dims are unsharded, and their sizes numbers: `reshard` first",
    note = "or state the result: `x.then::<T![..]>(|x| x.pad(..))`"
)]
pub trait PadDim<A, B>: UnshardedDim {
    /// The dim of the result.
    type Out: DimType;
}
impl<Z: AddSize<A>, A, B> PadDim<A, B> for TDim<Z>
where
    Z::Out: AddSize<B>,
{
    type Out = TDim<<Z::Out as AddSize<B>>::Out>;
}
/// An unsharded dim that can be repeated `K` times.
#[diagnostic::on_unimplemented(
    message = "tile: dim `{Self}` cannot be repeated `{K}` times in types",
    label = "repeated dims are unsharded, and their sizes numbers: `reshard` first",
    note = "or state the result: `x.then::<T![..]>(|x| x.tile(..))`"
)]
pub trait TileDim<K>: UnshardedDim {
    /// The dim of the result.
    type Out: DimType;
}
impl<Z: MulSize<K>, K> TileDim<K> for TDim<Z> {
    type Out = TDim<Z::Out>;
}
impl<K: Size> TileDim<K> for Stretch {
    type Out = TDim<K>;
}
/// A shape that differs from `S` only in dim `I`.
#[diagnostic::on_unimplemented(
    message = "concat: shapes `{S}` and `{Self}` differ in more than the joined dim",
    label = "all other dims are the same, sharding and all",
    note = "`reshard` one operand to the other's sharding: `x.concat(&y.reshard(P![X, _]), D1)`"
)]
pub trait EqualExceptDim<I, S>: Shape {}
#[diagnostic::do_not_recommend]
impl<I, S: DimAccess<I>, R: DimAccess<I, Removed: SameType<S::Removed>>> EqualExceptDim<I, S> for R {}
/// A shape that arrays of shape `S` can be stacked with: the same shape.
#[diagnostic::on_unimplemented(
    message = "stack: shapes `{S}` and `{Self}` differ",
    label = "stacked arrays have one shape, sharding and all",
    note = "`reshard` one operand to the other's sharding: `x.stack(&y.reshard(P![X, _]), D0)`"
)]
pub trait StackRhs<S>: Shape {}
#[diagnostic::do_not_recommend]
impl<S: Shape> StackRhs<S> for S {}
/// Requires two types to be one. As a bound it gives this crate's message instead of E0271.
#[diagnostic::on_unimplemented(message = "expected `{T}`, found `{Self}`", label = "`{Self}` is not `{T}`")]
pub trait SameType<T> {}
impl<T> SameType<T> for T {}
