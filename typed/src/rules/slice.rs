//! Rules of concatenating, splitting, slicing, padding and merging dims.

use super::reshape_dims::UnshardedDim;
use crate::axis::{MeshAxis, Shard};
use crate::sealed::Seal;
use crate::shape::{DimAccess, DimType, Shape, Stretch, TDim};
use crate::size::{AddSize, DivideUp, MulSize, Num, Size, SizeAtMost, SizesAddTo, SplitsOver, SubSize};

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
rules! { Out:
    [A: AddSize<B>, B: Size, S: Shard] TDim<A, S>: JoinDim<TDim<B, S>>
        where [A::Out: SplitsOver<S>] = TDim<A::Out, S>;
}
/// A pair of dims that can be merged into one.
///
/// The merged dim is sharded over the axes of the first dim, then those of the second. Only the
/// second dim may be unsharded.
#[diagnostic::on_unimplemented(
    message = "dims `{Self}` and `{D2}` cannot be merged into one",
    label = "where the second one is sharded, the first one is too, over other axes; over three axes in all",
    note = "a generic function has a bound on the sizes: `A: MulSize<B, Out = C>, B: Size, C: Size`"
)]
pub trait MergeDim<D2>: DimType {
    /// The dim of the result.
    type Out: DimType;
}
rules! { Out:
    [A: MulSize<B>, B: Size, S: Shard] TDim<A, S>: MergeDim<TDim<B>>
        where [A::Out: SplitsOver<S>] = TDim<A::Out, S>;
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
    seal!();
    /// The first piece.
    type First: DimType;
    /// The second piece.
    type Second: DimType;
}
impl<Z: Size, S: Shard, A: SplitsOver<S>, B: SplitsOver<S>> CutDim<A, B> for TDim<Z, S>
where
    (A, B): SizesAddTo<Z>,
{
    const SEAL: Seal = Seal;
    type First = TDim<A, S>;
    type Second = TDim<B, S>;
}
/// A dim that can be sliced from `A` to `B`. It keeps its sharding, which divides the new size.
#[diagnostic::on_unimplemented(
    message = "dim `{Self}` cannot be sliced from `{A}` to `{B}` in types",
    label = "slices are of dims whose size is a number",
    note = "or state the result: `x.then::<T![..]>(|x| x.slice(ix![..]))`"
)]
pub trait SliceDim<A, B>: DimType {
    seal!();
    /// The dim of the result.
    type Out: DimType;
}
rules! { Out:
    sealed [Z: Size, S: Shard, A, B: SubSize<A> + SizeAtMost<Z>] TDim<Z, S>: SliceDim<A, B>
        where [B::Out: SplitsOver<S>] = TDim<B::Out, S>;
}
/// A dim of which every `K`-th element from `A` to `B` can be taken. It keeps its sharding, which
/// divides the new size.
#[diagnostic::on_unimplemented(
    message = "dim `{Self}` cannot be sliced from `{A}` to `{B}` in steps of `{K}` in types",
    label = "slices are of dims whose size is a number, and steps are numbers from 1 to 16",
    note = "or state the result: `x.then::<T![..]>(|x| x.slice(ix![..]))`"
)]
pub trait StridedDim<A, B, K>: DimType {
    seal!();
    /// The dim of the result.
    type Out: DimType;
}
impl<Z: Size, S: Shard, A, B: SubSize<A> + SizeAtMost<Z>, K: Size> StridedDim<A, B, K> for TDim<Z, S>
where
    B::Out: DivideUp<K, Out: SplitsOver<S>>,
{
    const SEAL: Seal = Seal;
    type Out = TDim<<B::Out as DivideUp<K>>::Out, S>;
}
/// A dim that can be padded by `A` elements before and `B` elements after. It keeps its sharding,
/// which divides the new size.
#[diagnostic::on_unimplemented(
    message = "pad: dim `{Self}` cannot be padded by `{A}` and `{B}` in types",
    label = "padded dims have a size that is a number",
    note = "or state the result: `x.then::<T![..]>(|x| x.pad(..))`"
)]
pub trait PadDim<A, B>: DimType {
    seal!();
    /// The dim of the result.
    type Out: DimType;
}
rules! { Out:
    sealed [Z: AddSize<A>, S: Shard, A, B] TDim<Z, S>: PadDim<A, B>
        where [Z::Out: AddSize<B, Out: SplitsOver<S>>] = TDim<<Z::Out as AddSize<B>>::Out, S>;
}
/// An unsharded dim that can be repeated `K` times.
#[diagnostic::on_unimplemented(
    message = "tile: dim `{Self}` cannot be repeated `{K}` times in types",
    label = "repeated dims are unsharded, and their sizes numbers: `reshard` first",
    note = "or state the result: `x.then::<T![..]>(|x| x.tile(..))`"
)]
pub trait TileDim<K>: UnshardedDim {
    seal!();
    /// The dim of the result.
    type Out: DimType;
}
rules! { Out:
    sealed [Z: MulSize<K>, K] TDim<Z>: TileDim<K> = TDim<Z::Out>;
    sealed [K: Size] Stretch: TileDim<K> = TDim<K>;
}
/// A dim of at least `K` elements, of which the `K` largest can be taken.
#[diagnostic::on_unimplemented(
    message = "top_k: a dim `{Self}` does not have the `{K}` elements that are to be taken",
    label = "the number of elements taken is at most the dim's size",
    note = "for sizes known at run time only state the result: `x.then::<T![..]>(|x| x.top_k(..).0)`"
)]
pub trait TopDim<K>: DimType {}
#[diagnostic::do_not_recommend]
impl<Z: Size, S: Shard, K: SizeAtMost<Z>> TopDim<K> for TDim<Z, S> {}
#[diagnostic::do_not_recommend]
impl<K: SizeAtMost<Num<1>>> TopDim<K> for Stretch {}
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
