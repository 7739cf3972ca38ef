//! Rules of concatenating more than two arrays, and of splitting one into more than two.

use super::slice::{EqualExceptDim, JoinDim};
use crate::axis::Shard;
use crate::sealed::Sealed;
use crate::sets::{AddRhs, Sets};
use crate::shape::{DimAccess, DimType, Shape, TDim};
use crate::size::{Size, SizesAddTo, SplitsOver};

type DimAt<S, I> = <S as DimAccess<I>>::Dim;
type ReplaceDim<S, I, Q> = <S as DimAccess<I>>::Put<Q>;

/// Shapes, as a tuple, whose arrays can be concatenated along dim `I`.
pub trait ConcatShapes<I>: Sealed {
    /// The shape of the result.
    type Out: Shape;
}
impl<I, S: DimAccess<I>, R: DimAccess<I> + EqualExceptDim<I, S>> ConcatShapes<I> for (S, R)
where
    DimAt<S, I>: JoinDim<DimAt<R, I>>,
    ReplaceDim<S, I, <DimAt<S, I> as JoinDim<DimAt<R, I>>>::Out>: Shape,
{
    type Out = ReplaceDim<S, I, <DimAt<S, I> as JoinDim<DimAt<R, I>>>::Out>;
}
/// The sets of arrays, as a tuple, that can be concatenated.
pub trait ConcatSets: Sealed {
    /// The sets of the result.
    type Out: Sets;
}
rules! { Out: [V, W: AddRhs<V>] (V, W): ConcatSets = W::Out; }
/// A dim that can be split into pieces of the sizes `P`, a tuple. Each keeps the sharding.
#[diagnostic::on_unimplemented(
    message = "a dim `{Self}` cannot be split into pieces of `{P}`",
    label = "the pieces' sizes are numbers that add up to the dim's, and mesh axes divide each"
)]
pub trait CutDims<P>: DimType {}
/// Sizes of the pieces, as a tuple, into which dim `I` of the shape `S` can be split.
pub trait SplitShapes<I, S>: Sealed {
    /// The shapes of the pieces.
    type Out;
}
macro_rules! several { ($($($a:ident)+;)*) => { $(
    impl<I, $($a,)+ R> ConcatShapes<I> for ($($a,)+ R)
    where
        ($($a,)+): ConcatShapes<I>,
        (<($($a,)+) as ConcatShapes<I>>::Out, R): ConcatShapes<I>,
    {
        type Out = <(<($($a,)+) as ConcatShapes<I>>::Out, R) as ConcatShapes<I>>::Out;
    }
    impl<$($a,)+ W> ConcatSets for ($($a,)+ W)
    where
        ($($a,)+): ConcatSets,
        W: AddRhs<<($($a,)+) as ConcatSets>::Out>,
    {
        type Out = <W as AddRhs<<($($a,)+) as ConcatSets>::Out>>::Out;
    }
)* } }
several! { A B; A B C; A B C E; A B C E F; A B C E F G; A B C E F G H; }
macro_rules! pieces { ($($($a:ident)+;)*) => { $(
    impl<Z: Size, W: Shard, $($a: SplitsOver<W>),+> CutDims<($($a,)+)> for TDim<Z, W> where ($($a,)+): SizesAddTo<Z> {}
    impl<I, S: DimAccess<I>, $($a: Size),+> SplitShapes<I, S> for ($($a,)+)
    where
        DimAt<S, I>: CutDims<($($a,)+)>,
    {
        type Out = ($(ReplaceDim<S, I, TDim<$a, <DimAt<S, I> as DimType>::Shard>>,)+);
    }
)* } }
pieces! { A B; A B C; A B C E; A B C E F; A B C E F G; A B C E F G H; A B C E F G H J; }
