//! Rules of reads and updates at index arrays.

use super::broadcast::{MergeSplits, ZipRhs};
use super::{reshape_dims::UnshardedDim, slice::SameType};
use crate::axis::Shard;
use crate::sealed::Sealed;
use crate::shape::{AxesOnce, D, DimAccess, DimType, Insert, Shape, Stretch, TDim};
use crate::size::Size;

rule_traits! {
    /// The shape of indices into dim `I` of a shape `S`, in any sharding.
    ///
    /// In the result, the dims of the indices are where dim `I` was.
    message = "indices of shape `{Self}` cannot take elements of `{S}` along dim `{I}`",
    label = "the result has the dims of the array, with those of the indices in the place of dim `{I}`: up to eight dims",
    pub trait IndicesOf<S, I>: Shape => Out: Shape, "The shape of the result." {}
}
/// The shape of the elements at indices of shape `R` along dim `I` of `S`.
pub type TakeOf<S, R, I> = <R as IndicesOf<S, I>>::Out;

/// The shape of indices with which `take` determines the sharding of the result: they are
/// unsharded, and so is dim `I` of `S`.
#[diagnostic::on_unimplemented(
    message = "take: indices of shape `{Self}` cannot take elements of `{S}` along dim `{I}`",
    label = "expected unsharded indices, and an unsharded dim to take from"
)]
pub trait TakeRhs<S, I>: IndicesOf<S, I> {}
/// The shape of indices at which an array of shape `S` can be updated along dim `I`.
///
/// They are like those of `take`, except that one index may be along a sharded dim.
#[diagnostic::on_unimplemented(
    message = "at: indices of shape `{Self}` cannot select elements of `{S}` along dim `{I}`",
    label = "expected unsharded indices, and an unsharded dim"
)]
pub trait AtRhs<S, I>: IndicesOf<S, I> {}
rule_traits! {
    /// A dim of indices whose sharding is not open in the result.
    message = "take: dim `{Self}` of the indices is sharded, so how the result is sharded is open",
    label = "expected unsharded indices",
    note = "state the sharding of the result, with one entry for each of its dims: `table.take_to(&ids, D0, P![=, =, =])`, where `=` keeps the sharding that the operand's dim has",
    note = "also `x.take_along_axis_to(&ids, D1, P![=, _])`",
    pub trait IndexDim: DimType {
        hidden [Q: UnshardedDim] Q: IndexDim;
    }
    /// A dim of which every device holds all elements, so that it can look them up.
    message = "take: dim `{Self}` of the array is sharded, so each device holds only some of its elements",
    label = "expected an unsharded dim to take from",
    note = "state the sharding of the result, with one entry for each of its dims: `table.take_to(&ids, D0, P![_, =])`, or `x.take_along_axis_to(&ids, D1, P![=, _])`: each device looks up the elements that it holds, and the results are combined",
    note = "or `reshard` first",
    pub trait LookupDim: DimType {
        hidden [Q: UnshardedDim] Q: LookupDim;
    }
}

macro_rules! indices {
    ($($q:ident)*) => { indices!(@turn [$($q)*] [] $($q)*); };
    // the last dim takes the place of dim `I`, and the others are inserted before it
    (@turn $all:tt [$($down:ident)*] $q:ident $($r:ident)*) => { indices!(@turn $all [$q $($down)*] $($r)*); };
    (@turn $all:tt [$last:ident $($down:ident)*]) => {
        indices!(@fold $all [S::Put<$last>: Shape,] S::Put<$last>; $($down)*);
    };
    (@fold $all:tt [$($w:tt)*] $done:ty; $q:ident $($down:ident)*) => {
        indices!(@fold $all [$($w)* $done: Insert<I, $q>,] <$done as Insert<I, $q>>::Out; $($down)*);
    };
    (@fold [$($q:ident)*] [$($w:tt)*] $done:ty;) => {
        impl<S: DimAccess<I>, I, $($q: DimType),*> IndicesOf<S, I> for ($($q,)*)
        where
            $($w)*
        {
            type Out = $done;
        }
        impl<S: DimAccess<I, Dim: LookupDim>, I, $($q: IndexDim),*> TakeRhs<S, I> for ($($q,)*)
        where
            Self: IndicesOf<S, I>
        {
        }
        impl<S: DimAccess<I, Dim: LookupDim>, I, $($q: IndexDim),*> AtRhs<S, I> for ($($q,)*)
        where
            Self: IndicesOf<S, I>
        {
        }
    };
}
// one index takes one slice
impl<S: DimAccess<I>, I> IndicesOf<S, I> for () {
    type Out = S::Removed;
}
impl<S: DimAccess<I, Dim: LookupDim>, I> TakeRhs<S, I> for () {}
impl<S: DimAccess<I>, I> AtRhs<S, I> for () {}
prefixes! { indices [A] (B) (C) (E) (F) (G) (H) (J) }

/// The dim along which `take_along_axis` takes elements.
pub struct AlongDim<A>(core::marker::PhantomData<fn() -> A>);
rule_traits! {
    /// A pair of dims of one size, of the array and the indices of `take_along_axis`.
    message = "take_along_axis: dim `{Self}` of the array and dim `{D2}` of the indices are sharded over different mesh axes",
    label = "`{Self}` meets `{D2}`",
    note = "`reshard` one of them, or state the sharding of the result: `x.take_along_axis_to(&ids, D1, P![..])`",
    pub trait AlignSplits<D2>: Sealed => Out: DimType, "The dim of the result." {
        hidden [D: MergeSplits<D2>, D2] D: AlignSplits<D2> = D::Out;
    }
    /// A pair of dims, of the array and the indices of `take_along_axis`.
    message = "take_along_axis: dim `{Self}` of the array and dim `{D2}` of the indices do not go together",
    label = "`{Self}` meets `{D2}`",
    note = "array and indices have the same dims, except the one that is indexed; a `~`, which `expand_dims` and `keep(..)` give, takes the size of the other",
    pub trait AlignDim<D2>: Sealed => Out: DimType, "The dim of the result." {
        [Z: Size, S1, S2] TDim<Z, S1>: AlignDim<TDim<Z, S2>>
            where [TDim<Z, S1>: AlignSplits<TDim<Z, S2>>]
            = <TDim<Z, S1> as AlignSplits<TDim<Z, S2>>>::Out;
        hidden [Z: Size, S: Shard] TDim<Z, S>: AlignDim<Stretch> = TDim<Z, S>;
    }
}
// the dim of size 1 is read at index 0, so the indices are unsharded there
#[diagnostic::do_not_recommend]
impl<Z: Size> AlignDim<TDim<Z>> for Stretch {
    type Out = TDim<Z>;
}
rules! { Out:
    hidden [] Stretch: AlignDim<Stretch> = Stretch;
    [A: LookupDim, Q: IndexDim] AlongDim<A>: AlignDim<Q> = Q;
}
/// A pair of dims of `take_along_axis` with a stated result sharding.
#[diagnostic::on_unimplemented(
    message = "take_along_axis_to: dim `{Self}` of the array and dim `{D2}` of the indices do not go together",
    label = "`{Self}` meets `{D2}`",
    note = "array and indices have the same dims, except the one that is indexed; a `~`, which `expand_dims` and `keep(..)` give, takes the size of the other"
)]
pub trait AlignDimTo<D2>: Sealed {
    /// The dim of the result, whose sharding `=` in a spec keeps: the array's, or along the indexed
    /// dim that of the indices.
    type Out: DimType;
}
rules! { Out:
    [Z: Size, S1: Shard, S2: Shard] TDim<Z, S1>: AlignDimTo<TDim<Z, S2>> = TDim<Z, S1>;
    hidden [Z: Size, S: Shard] TDim<Z, S>: AlignDimTo<Stretch> = TDim<Z, S>;
    hidden [Z: Size, S: Shard] Stretch: AlignDimTo<TDim<Z, S>> = TDim<Z, S>;
    hidden [] Stretch: AlignDimTo<Stretch> = Stretch;
    hidden [A: DimType, Q: DimType] AlongDim<A>: AlignDimTo<Q> = Q;
}
rule_traits! {
    /// The shape of the indices of `take_along_axis` into a shape `S` along dim `I`.
    message = "take_along_axis: indices of shape `{Self}` do not fit `{S}`",
    label = "expected indices with as many dims as the array",
    note = "add dims of size 1: `.expand_dims(D1)`",
    pub trait AlignRhs<S, I>: Sealed => Out: Shape, "The shape of the result." {}
}
/// The shape of the indices of `take_along_axis_to` into a shape `S` along dim `I`.
#[diagnostic::on_unimplemented(
    message = "take_along_axis_to: indices of shape `{Self}` do not fit `{S}`",
    label = "expected indices with as many dims as the array",
    note = "add dims of size 1: `.expand_dims(D1)`"
)]
pub trait AlignToRhs<S, I>: Sealed {
    /// The shape of the result, before its sharding is stated.
    type Out: Shape;
}
/// The dims of indices, paired with those of an array whose indexed dim is marked.
pub trait AlignDims<M>: Sealed {
    /// The shape of the result.
    type Out: Shape;
}
/// The dims of indices like [`AlignDims`], with a stated result sharding.
pub trait AlignDimsTo<M>: Sealed {
    /// The shape of the result, before its sharding is stated.
    type Out: Shape;
}
macro_rules! align { ($($a:ident $b:ident)+) => {
    impl<$($a: AlignDim<$b>, $b),+> AlignDims<($($a,)+)> for ($($b,)+)
    where
        ($($a::Out,)+): AxesOnce + Shape,
    {
        type Out = ($($a::Out,)+);
    }
    impl<$($a: AlignDimTo<$b>, $b),+> AlignDimsTo<($($a,)+)> for ($($b,)+) {
        type Out = ($($a::Out,)+);
    }
    impl<$($a: DimType, $b,)+ I> AlignRhs<($($a,)+), I> for ($($b,)+)
    where
        ($($a,)+): DimAccess<I>,
        Self: AlignDims<MarkedShape<($($a,)+), I>>,
    {
        type Out = <Self as AlignDims<MarkedShape<($($a,)+), I>>>::Out;
    }
    impl<$($a: DimType, $b,)+ I> AlignToRhs<($($a,)+), I> for ($($b,)+)
    where
        ($($a,)+): DimAccess<I>,
        Self: AlignDimsTo<MarkedShape<($($a,)+), I>>,
    {
        type Out = <Self as AlignDimsTo<MarkedShape<($($a,)+), I>>>::Out;
    }
} }
prefixes! { align [A1 B1] (A2 B2) (A3 B3) (A4 B4) (A5 B5) (A6 B6) (A7 B7) (A8 B8) }
/// The shape `S` with its dim `I` marked as the one along which elements are taken.
type MarkedShape<S, I> = <S as DimAccess<I>>::Put<AlongDim<<S as DimAccess<I>>::Dim>>;

rule_traits! {
    /// The shape of new values for a part of shape `P` of an array: one that broadcasts to `P`.
    message = "an update of shape `{Self}` does not fit into the part of shape `{P}`",
    label = "expected values of shape `{P}`, or a number",
    note = "in `x.at(&ids, D0).add(&values)` the values have the shape of `x.take(&ids, D0)`; they may lack leading dims, have `~`, or be unsharded",
    pub trait UpdateOf<P>: Sealed {
        hidden [P: Shape, U: ZipRhs<P, Out: SameType<P>>] U: UpdateOf<P>;
    }
    /// A shape with at least two dims: (stacks of) matrices.
    message = "an array of shape `{Self}` has no diagonal",
    label = "expected at least two dims",
    pub trait DiagonalShape: Shape {
        hidden [S: DimAccess<D<1>>] S: DiagonalShape;
    }
    /// A spec that shards dims, and leaves no sum unreduced: `P![X, _]`, without `; U: ..`.
    message = "`{Self}` is not a spec of the dims only",
    label = "expected `P![X, _]`, without `; U: ..` and `; R: ..`",
    pub trait DimsSpec: Sealed {}
}
macro_rules! plain { ($($($s:ident)*;)*) => { $( impl<$($s),*> DimsSpec for ($($s,)*) {} )* } }
plain! { ; A; A B; A B C; A B C E; A B C E F; A B C E F G; A B C E F G H; A B C E F G H I; }
