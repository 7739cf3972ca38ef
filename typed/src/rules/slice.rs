//! Rules of concatenating, splitting, slicing, padding and merging dims.

use super::reshape_dims::UnshardedDim;
use crate::axis::{MeshAxis, Shard};
use crate::sealed::Seal;
use crate::shape::{DimAccess, DimType, Shape, Stretch, TDim};
use crate::size::{AddSize, DivideUp, MulSize, Num, Size, SizeAtMost, SizesAddTo, SplitsOver, SubSize};

rule_traits! {
    /// A pair of dims that can be concatenated.
    ///
    /// Both are sharded the same way, and so is the sum of their sizes.
    message = "concat: dims `{Self}` and `{D2}` cannot be joined",
    label = "joined dims have one sharding; `reshard` one operand",
    pub trait JoinDim<D2>: DimType => Out: DimType, "The dim of the result." {
        [A: AddSize<B>, B: Size, S: Shard] TDim<A, S>: JoinDim<TDim<B, S>>
            where [A::Out: SplitsOver<S>] = TDim<A::Out, S>;
    }
    /// A pair of dims that can be merged into one.
    ///
    /// The merged dim is sharded over the axes of the first dim, then those of the second. Only the
    /// second dim may be unsharded.
    message = "dims `{Self}` and `{D2}` cannot be merged into one",
    label = "where the second one is sharded, the first one is too, over other axes; over three axes in all",
    note = "a generic function has a bound on the sizes: `A: MulSize<B, Out = C>, B: Size, C: Size`",
    pub trait MergeDim<D2>: DimType => Out: DimType, "The dim of the result." {
        [A: MulSize<B>, B: Size, S: Shard] TDim<A, S>: MergeDim<TDim<B>>
            where [A::Out: SplitsOver<S>] = TDim<A::Out, S>;
    }
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
rule_traits! {
    /// A dim that can be sliced from `A` to `B`. It keeps its sharding, which divides the new size.
    message = "dim `{Self}` cannot be sliced from `{A}` to `{B}` in types",
    label = "slices are of dims whose size is a number",
    note = "or state the result: `x.then::<T![..]>(|x| x.slice(ix![..]))`",
    pub trait SliceDim<A, B>: DimType, sealed => Out: DimType, "The dim of the result." {
        sealed [Z: Size, S: Shard, A, B: SubSize<A> + SizeAtMost<Z>] TDim<Z, S>: SliceDim<A, B>
            where [B::Out: SplitsOver<S>] = TDim<B::Out, S>;
    }
    /// A dim of which every `K`-th element from `A` to `B` can be taken. It keeps its sharding,
    /// which divides the new size.
    message = "dim `{Self}` cannot be sliced from `{A}` to `{B}` in steps of `{K}` in types",
    label = "slices are of dims whose size is a number, and steps are numbers from 1 to 16",
    note = "or state the result: `x.then::<T![..]>(|x| x.slice(ix![..]))`",
    pub trait StridedDim<A, B, K>: DimType, sealed => Out: DimType, "The dim of the result." {
        sealed [Z: Size, S: Shard, A, B: SubSize<A> + SizeAtMost<Z>, K: Size] TDim<Z, S>: StridedDim<A, B, K>
            where [B::Out: DivideUp<K, Out: SplitsOver<S>>] = TDim<<B::Out as DivideUp<K>>::Out, S>;
    }
    /// A dim that can be padded by `A` elements before and `B` elements after. It keeps its
    /// sharding, which divides the new size.
    message = "pad: dim `{Self}` cannot be padded by `{A}` and `{B}` in types",
    label = "padded dims have a size that is a number",
    note = "or state the result: `x.then::<T![..]>(|x| x.pad(..))`",
    pub trait PadDim<A, B>: DimType, sealed => Out: DimType, "The dim of the result." {
        sealed [Z: AddSize<A>, S: Shard, A, B] TDim<Z, S>: PadDim<A, B>
            where [Z::Out: AddSize<B, Out: SplitsOver<S>>] = TDim<<Z::Out as AddSize<B>>::Out, S>;
    }
    /// An unsharded dim that can be repeated `K` times.
    message = "tile: dim `{Self}` cannot be repeated `{K}` times in types",
    label = "repeated dims are unsharded, and their sizes numbers: `reshard` first",
    note = "or state the result: `x.then::<T![..]>(|x| x.tile(..))`",
    pub trait TileDim<K>: UnshardedDim, sealed => Out: DimType, "The dim of the result." {
        sealed [Z: MulSize<K>, K] TDim<Z>: TileDim<K> = TDim<Z::Out>;
        sealed [K: Size] Stretch: TileDim<K> = TDim<K>;
    }
    /// A dim of at least `K` elements, of which the `K` largest can be taken.
    message = "top_k: a dim `{Self}` does not have the `{K}` elements that are to be taken",
    label = "the number of elements taken is at most the dim's size",
    note = "for sizes known at run time only state the result: `x.then::<T![..]>(|x| x.top_k(..).0)`",
    pub trait TopDim<K>: DimType {
        hidden [Z: Size, S: Shard, K: SizeAtMost<Z>] TDim<Z, S>: TopDim<K>;
        hidden [K: SizeAtMost<Num<1>>] Stretch: TopDim<K>;
    }
    /// A shape that differs from `S` only in dim `I`.
    message = "concat: shapes `{S}` and `{Self}` differ in more than the joined dim",
    label = "all other dims are the same, sharding and all",
    note = "`reshard` one operand to the other's sharding: `x.concat(&y.reshard(P![X, _]), D1)`",
    pub trait EqualExceptDim<I, S>: Shape {
        hidden [I, S: DimAccess<I>, R: DimAccess<I, Removed: SameType<S::Removed>>] R: EqualExceptDim<I, S>;
    }
    /// A shape that arrays of shape `S` can be stacked with: the same shape.
    message = "stack: shapes `{S}` and `{Self}` differ",
    label = "stacked arrays have one shape, sharding and all",
    note = "`reshard` one operand to the other's sharding: `x.stack(&y.reshard(P![X, _]), D0)`",
    pub trait StackRhs<S>: Shape {
        hidden [S: Shape] S: StackRhs<S>;
    }
}
/// Requires two types to be one. As a bound it gives this crate's message instead of E0271.
#[diagnostic::on_unimplemented(message = "expected `{T}`, found `{Self}`", label = "`{Self}` is not `{T}`")]
pub trait SameType<T> {}
impl<T> SameType<T> for T {}
