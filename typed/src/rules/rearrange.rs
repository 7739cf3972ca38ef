//! Rules of repeating, differencing and flattening dims, of diagonals, and of products of vectors.

use super::{dot::ContractDim, reshape_dims::UnshardedDim};
use crate::axis::Shard;
use crate::shape::{AxesOnce, DimType, Shape, Stretch, TDim};
use crate::size::{AddSize, Decimal, DifferenceNumber, MulSize, Num, Size, SplitsOver, WholeNumber};

rule_traits! {
    /// A dim whose elements can be repeated `K` times each. It keeps its sharding.
    message = "repeat: the elements of a dim `{Self}` cannot be repeated `{K}` times in types",
    label = "the dim's size and the count are numbers",
    note = "or state the result: `x.then::<T![..]>(|x| x.repeat(..))`",
    pub trait RepeatDim<K>: DimType, sealed => Out: DimType, "The dim of the result." {
        hidden sealed [Z: MulSize<K>, A: Shard, K] TDim<Z, A>: RepeatDim<K>
            where [Z::Out: SplitsOver<A>] = TDim<Z::Out, A>;
        sealed [K: Size] Stretch: RepeatDim<K> = TDim<K>;
    }
    /// An unsharded dim of which `K`-th differences can be taken.
    message = "diff: a dim `{Self}` has no differences of order `{K}` in types",
    label = "the dim is unsharded, and its size a number, at least the order",
    note = "along a sharded dim keep the size, with a value for the missing neighbour: `&x - x.shift(1, D0, 0.0)`",
    pub trait DiffDim<K>: UnshardedDim, sealed => Out: DimType, "The dim of the result." {
        hidden sealed [Z: Size + Decimal, K: Decimal] TDim<Z>: DiffDim<K>
            where [DifferenceNumber<Z, K>: WholeNumber] = TDim<DifferenceNumber<Z, K>>;
    }
    /// A shape of unsharded dims whose elements are counted at compile time.
    message = "ravel: the elements of `{Self}` cannot be counted when compiling",
    label = "its dims are unsharded, and their sizes numbers; up to four dims",
    note = "or state the result: `x.then::<T![..]>(|x| x.ravel())`",
    pub trait Raveled: Shape => Elements: Size, "The number of elements." {
        [] (): Raveled = Num<1>;
        [A: Size] (TDim<A>,): Raveled = A;
        hidden [A: MulSize<B>, B: Size] (TDim<A>, TDim<B>): Raveled = A::Out;
        hidden [A: MulSize<B, Out: MulSize<C>>, B: Size, C: Size] (TDim<A>, TDim<B>, TDim<C>): Raveled
            = <A::Out as MulSize<C>>::Out;
    }
}
#[diagnostic::do_not_recommend]
impl<A: MulSize<B, Out: MulSize<C, Out: MulSize<E>>>, B: Size, C: Size, E: Size> Raveled
    for (TDim<A>, TDim<B>, TDim<C>, TDim<E>)
{
    type Elements = <<A::Out as MulSize<C>>::Out as MulSize<E>>::Out;
}

/// Requires the shape `S`, with its sharding.
#[diagnostic::on_unimplemented(
    message = "the shapes `{S}` and `{Self}` must be the same here, sharding and all",
    label = "expected the shape `{S}`",
    note = "`reshard` one operand, or `broadcast_to` the shape of the other"
)]
pub trait SameShape<S> {}
impl<S> SameShape<S> for S {}

rule_traits! {
    /// A dim with three elements, for cross products.
    message = "cross: a dim `{Self}` does not have three elements",
    label = "a cross product is of vectors with three elements",
    pub trait ThreeDim: DimType {
        [A: Shard] TDim<Num<3>, A>: ThreeDim;
    }
    /// An unsharded vector.
    message = "`{Self}` is not the shape of an unsharded vector",
    label = "expected one dim, unsharded",
    note = "`reshard` it first: `.reshard(P![_])`; `.ravel()` makes an array of any rank a vector",
    pub trait UnshardedVector: Shape => Elements: Size, "The number of elements." {
        [Z: Size] (TDim<Z>,): UnshardedVector = Z;
    }
    /// The number of bounds of `Self` intervals: one more.
    message = "the number of bounds of `{Self}` bins is not known when compiling",
    label = "expected a number of bins: `x.histogram::<N![10]>(0.0..1.0)`",
    pub trait BinCount: Size => Bounds: Size, "The number of bounds." {
        hidden [K: AddSize<Num<1>>] K: BinCount = K::Out;
    }
    /// A vector, whose matrix with this diagonal `diag` builds, or a square matrix.
    message = "diag: `{Self}` is neither a vector nor a square matrix",
    label = "for stacks of square matrices use `.diagonal()`",
    pub trait DiagShape: Shape => Out: Shape, "The shape of the result." {
        [Z: Size, A: Shard] (TDim<Z, A>,): DiagShape = (TDim<Z>, TDim<Z, A>);
        [Z: Size, A: Shard, B: Shard] (TDim<Z, A>, TDim<Z, B>): DiagShape = (TDim<Z, B>,);
    }
    /// A matrix of observations, or one vector of them: rows are variables.
    message = "cov/corrcoef: `{Self}` is not an unsharded matrix of observations",
    label = "expected a row of observations for each variable, `[variables, observations]`, or one such row",
    note = "`reshard` it first: `.reshard(P![_, _])`",
    pub trait Observations: Shape => Out: Shape, "The shape of the result: [variables, variables]." {
        [Z: Size] (TDim<Z>,): Observations = ();
        [M: Size, Z: Size] (TDim<M>, TDim<Z>): Observations = (TDim<M>, TDim<M>);
    }
    /// The shape of the right operand of `outer`: both are vectors.
    message = "outer: shapes `{L}` and `{Self}` are not those of two vectors",
    label = "flatten other arrays first: `.ravel()`",
    pub trait OuterRhs<L>: Shape => Out: Shape, "The shape of the result." {
        [A: DimType, B: DimType] (B,): OuterRhs<(A,)> where [(A, B): AxesOnce] = (A, B);
    }
    /// The shape of the right operand of `inner`, whose last dim is contracted with that of `L`.
    message = "inner: shapes `{L}` and `{Self}` cannot be multiplied",
    label = "inner takes vectors and matrices, whose last dims are contracted; use `einsum!` for others",
    pub trait InnerRhs<L>: Shape => Out: Shape, "The shape of the result." {}
}
macro_rules! inner { ($([$($a:ident)*] [$($b:ident)*];)*) => { $(
    impl<$($a: DimType,)* $($b: DimType,)* K: ContractDim<K2>, K2: DimType> InnerRhs<($($a,)* K,)> for ($($b,)* K2,)
    where
        ($($a,)* $($b,)*): AxesOnce,
    {
        type Out = ($($a,)* $($b,)*);
    }
)* } }
inner! { [] []; [A] []; [] [B]; [A] [B]; }

rule_traits! {
    /// The shape of the right operand of `kron`, which is unsharded.
    message = "kron: shapes `{L}` and `{Self}` have no Kronecker product in types",
    label = "expected two vectors or two matrices; the right one is unsharded, and all sizes are numbers",
    note = "or state the result: `x.then::<T![..]>(|x| x.kron_to(..))`",
    pub trait KronRhs<L>: Shape => Out: Shape, "The shape of the result." {
        hidden [A: RepeatDim<K>, K: Size] (TDim<K>,): KronRhs<(A,)> = (A::Out,);
        hidden [A: RepeatDim<K>, K: Size, B: RepeatDim<J>, J: Size] (TDim<K>, TDim<J>): KronRhs<(A, B)>
            = (A::Out, B::Out);
    }
}
