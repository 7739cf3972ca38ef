//! Specs: shardings that a program states.

use crate::axis::{Distinct, MeshAxis, MeshType, Shard, Unsharded};
use crate::sealed::Sealed;
use crate::sets::{GlobalSets, MarkIn, Sets};
use crate::shape::{AxesOnce, DimType, Shape, Stretch, TDim};
use crate::size::{Size, SplitsOver};
use core::marker::PhantomData;

/// The entry of a spec that keeps a dim's sharding. The notation is `=`.
#[derive(Clone, Copy, Debug)]
pub struct KeptSharding;
/// A spec with axes over which the result is left unreduced: `P![_, _; U: X]`.
///
/// The variant of the same name is its only value, so the notation is both a type and a value.
#[derive(Clone, Copy, Debug)]
pub enum LeftUnreduced<P, A> {
    /// The spec.
    LeftUnreduced,
    #[doc(hidden)]
    NeverUnreduced(core::convert::Infallible, PhantomData<fn() -> (P, A)>),
}
/// A spec with axes over which the result is marked as reduced: `P![_, _; R: X]`.
#[derive(Clone, Copy, Debug)]
pub enum MarkedReduced<P, A> {
    /// The spec.
    MarkedReduced,
    #[doc(hidden)]
    NeverReduced(core::convert::Infallible, PhantomData<fn() -> (P, A)>),
}
mod values {
    pub use super::LeftUnreduced::*;
    pub use super::MarkedReduced::*;
}
// as types, the names resolve to the enums above; as values, to these variants
#[doc(hidden)]
pub use values::*;

rule_traits! {
    /// A dim that can be sharded as `S` says.
    pub trait RespecDim<S>: Sealed, sealed => Out: DimType, "The dim of the result." {
        sealed [Z: SplitsOver<S2>, S1, S2: Shard] TDim<Z, S1>: RespecDim<S2> = TDim<Z, S2>;
        hidden sealed [Z: Size, S1: Shard] TDim<Z, S1>: RespecDim<KeptSharding> = TDim<Z, S1>;
        hidden sealed [] Stretch: RespecDim<Unsharded> = Stretch;
        hidden sealed [] Stretch: RespecDim<KeptSharding> = Stretch;
    }
    /// A spec for arrays of shape `S`: one entry for each dim.
    message = "spec `{Self}` does not fit the dims of `{S}`",
    label = "a spec has one entry for every dim: an axis, `(X, Y)`, `=` for a dim as it is, or `_` for an unsharded dim",
    note = "write it as `P![X, _]`; `p![\"X\", _]` is for untyped arrays",
    pub trait Spec<S>: Sealed => Out: Shape, "The shape with the sharding of the spec." {}
}
macro_rules! respec { ($($d:ident $s:ident)*) => {
    impl<$($d: RespecDim<$s>, $s),*> Spec<($($d,)*)> for ($($s,)*)
    where ($($d::Out,)*): AxesOnce + Shape { type Out = ($($d::Out,)*); }
    impl<$($d: UnshardedOver<A>,)* A> UnshardedOver<A> for ($($d,)*) {}
} }
prefixes! { respec [] (A1 S1) (A2 S2) (A3 S3) (A4 S4) (A5 S5) (A6 S6) (A7 S7) (A8 S8) }
rules! { Out:
    [S, A, P: Spec<S>] LeftUnreduced<P, A>: Spec<S> = P::Out;
    [S, A, P: Spec<S>] MarkedReduced<P, A>: Spec<S> = P::Out;
}

/// A shape, or a dim, that is not sharded over the axes `A`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is sharded over mesh axis `{A}`, so it cannot be made unreduced or reduced over it",
    label = "a value is unreduced over axes that shard none of its dims",
    note = "`reshard` it to be unsharded along the axis first"
)]
pub trait UnshardedOver<A>: Sealed {}
impl<A> UnshardedOver<A> for Stretch {}
impl<Z, S: Distinct<A>, A: MeshAxis> UnshardedOver<A> for TDim<Z, S> {}
impl<Z, S: Distinct<A>, A: MeshAxis> UnshardedOver<(A,)> for TDim<Z, S> {}
impl<Z, S: Distinct<A> + Distinct<B>, A: MeshAxis, B: MeshAxis> UnshardedOver<(A, B)> for TDim<Z, S> {}

/// A spec that `reshard` takes, for an array of shape `S` and sets `V`.
#[diagnostic::on_unimplemented(
    message = "reshard: spec `{Self}` does not fit an array of shape `{S}` and sets `{V}`",
    label = "a spec has one entry for every dim: an axis, `(X, Y)`, `=` for a dim as it is, or `_` for an unsharded dim",
    note = "write it as `P![X, _]`; `p![\"X\", _]` is for untyped arrays",
    note = "an array that is unreduced or reduced goes to a plain spec first"
)]
pub trait ReshardTo<S, V>: Sealed {
    /// The shape of the result.
    type Shape: Shape;
    /// The sets of the result.
    type Sets: Sets;
}
/// The sets of a value outside of `shard_map`.
#[diagnostic::on_unimplemented(
    message = "reshard: a block of one device, with the sets `{Self}`, cannot be resharded",
    label = "`reshard` is for values outside of `shard_map`",
    note = "inside of `shard_map` collectives move data: `psum`, `all_gather`, `psum_scatter`, `all_to_all`, `ppermute`"
)]
pub trait OutsideSets: Sets {}
impl OutsideSets for () {}
impl<V: Sets> OutsideSets for GlobalSets<V> {}
macro_rules! plain { ($($s:ident)*) => {
    impl<S, V: OutsideSets, $($s),*> ReshardTo<S, V> for ($($s,)*)
    where
        ($($s,)*): Spec<S>,
    {
        type Shape = <($($s,)*) as Spec<S>>::Out;
        type Sets = ();
    }
} }
prefixes! { plain [] (S1) (S2) (S3) (S4) (S5) (S6) (S7) (S8) }
/// The empty set of axes of the mesh of axis `A`.
pub(super) type EmptyOf<A> = <<A as MeshAxis>::Mesh as MeshType>::Empty;
macro_rules! marked { ($([$($a:ident)*] $axes:ty;)*) => { $(
    marked!(@ LeftUnreduced Unreduced [$($a)*] $axes);
    marked!(@ MarkedReduced Reduced [$($a)*] $axes);
)* };
    (@ $spec:ident $mark:ident [$($a:ident)*] $axes:ty) => {
        impl<S: UnshardedOver<$axes>, P: Spec<S>, A: MeshAxis $(, $a)*> ReshardTo<S, ()> for $spec<P, $axes>
        where
            $axes: MarkIn<EmptyOf<A>>,
        {
            type Shape = P::Out;
            type Sets = GlobalSets<<$axes as MarkIn<EmptyOf<A>>>::$mark>;
        }
    };
}
marked! { [] (A,); [B] (A, B); }

rule_traits! {
    /// The sets of a product of shapes `L` and `R`, with a stated result sharding.
    ///
    /// They are plain, or unreduced over the axes that shard both contracted dims. `V` is the sets
    /// that the operands' sets combine to.
    message = "the product of `{L}` and `{R}` cannot be left unreduced so",
    label = "the unreduced axes are exactly those by which both contracted dims are sharded, alike",
    note = "`a.matmul_to(&b, P![_, _; U: X])` is for `a` of `[M, K@X]` and `b` of `[K@X, N]`",
    pub trait ProductSets<L, R, V>: Sealed => Out: Sets, "The sets of the result." {}
}
macro_rules! product { ($($s:ident)*) => {
    #[diagnostic::do_not_recommend]
    impl<L, R, V: Sets, $($s),*> ProductSets<L, R, V> for ($($s,)*) { type Out = V; }
} }
prefixes! { product [] (S1) (S2) (S3) (S4) (S5) (S6) (S7) (S8) }
macro_rules! unreduced { ($([$($l:ident)*] [$($r:ident)*] [$($n:ident)*];)*) => { $(
    unreduced!(@ [A] A, (A,); [$($l)*] [$($r)*] [$($n)*]);
    unreduced!(@ [A B] (A, B), (A, B); [$($l)*] [$($r)*] [$($n)*]);
)* };
    (@ [$($axis:ident)*] $split:ty, $list:ty; [$($l:ident)*] [$($r:ident)*] [$($n:ident)*]) => {
        // the notes are shorter than rustc's list of these impls
        #[diagnostic::do_not_recommend]
        impl<P, Z: Size, $($axis: MeshAxis,)* $($l: DimType,)* $($r: DimType,)* $($n: DimType),*>
            ProductSets<($($l,)* TDim<Z, $split>,), ($($r,)* TDim<Z, $split>, $($n,)*), ()> for LeftUnreduced<P, $list>
        where
            $list: MarkIn<EmptyOf<A>>,
        {
            type Out = GlobalSets<<$list as MarkIn<EmptyOf<A>>>::Unreduced>;
        }
    };
}
// matrices, stacks of matrices on the left or on both sides, and vectors
unreduced! { [] [] []; [M] [] []; [] [] [K]; [M] [] [K]; [L1 M] [] [K]; [L1 M] [R1] [K]; [L1 L2 M] [] [K]; [L1 L2 M] [R1 R2] [K]; }
