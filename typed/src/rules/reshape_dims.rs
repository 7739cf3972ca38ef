//! Rules of transposing, squeezing, broadcasting and reshaping.

use super::{broadcast::ZipRhs, slice::SameType};
use crate::axis::{Shard, Unsharded};
use crate::sealed::Seal;
use crate::shape::{DimAccess, DimNumber, DimType, OtherDim, Shape, Stretch, TDim};
use crate::size::{CountOf, CountSizes, KnownSize, Num, ProductIs, SameElements, Size, SplitsOver};

/// A shape whose dims can be permuted into the order `P`: `(D1, D0)`.
#[diagnostic::on_unimplemented(
    message = "transpose: `{P}` does not permute the dims of `{Self}`",
    label = "name every dim of the array once: `x.transpose((D1, D0))`"
)]
pub trait Permute<P>: Shape {
    /// The shape of the result.
    type Out: Shape;
    /// The order, as dim numbers.
    const ORDER: &'static [usize];
}
macro_rules! permute {
    ($($d:ident $i:ident)*) => { permute!(@pairs ($($d,)*); [$($d $i)*] [] $($i)*); };
    (@pairs $me:ty; $all:tt [$($x:ident $y:ident)*] $a:ident $($r:ident)+) => {
        permute!(@pairs $me; $all [$($x $y)* $($a $r)+] $($r)+);
    };
    (@pairs $me:ty; [$($d:ident $i:ident)*] [$($x:ident $y:ident)*] $last:ident) => {
        impl<$($d: DimType,)* $($i: DimNumber),*> Permute<($($i,)*)> for $me
        where $($me: DimAccess<$i::D>,)* $($x::D: OtherDim<$y::D>),* {
            type Out = ($(<$me as DimAccess<$i::D>>::Dim,)*);
            const ORDER: &'static [usize] = &[$($i::NUMBER),*];
        }
    };
}
prefixes! { permute [A I] (B J) (C K) (E L) (F M) (G O) (H P) (T Q) }

rule_traits! {
    /// A dim of size 1, which `squeeze` can remove.
    message = "squeeze: dim `{Self}` cannot be taken away: its size is not 1",
    label = "`squeeze` takes dims of size 1",
    pub trait UnitDim: DimType {
        [] Stretch: UnitDim;
        [S: Shard] TDim<Num<1>, S>: UnitDim;
    }
    /// A size to which a dim can be broadcast without an operand that has it.
    message = "broadcast_to: the size `{Self}` is known only at run time, so an array must give it",
    label = "how large is `{Self}`?",
    note = "take the shape from an array `x` that has it: `.broadcast_like(&x)`",
    note = "elementwise operations repeat `~` and leading dims by themselves",
    note = "where every size is known when compiling, the bound is `{Self}: KnownSize`",
    pub trait StatedSize: Size {
        hidden [S: KnownSize] S: StatedSize;
    }
    /// A shape to which arrays of shape `S` can be broadcast.
    message = "broadcast_to: an array of shape `{S}` cannot be broadcast to `{Self}`",
    label = "its dims are the last dims of the new shape; `~` may become any unsharded dim, new dims are unsharded",
    pub trait BroadcastOf<S>: Shape {}
    /// A dim to which a dim `A` can be broadcast.
    message = "broadcast_to: a dim `{A}` cannot be broadcast to a dim `{Self}`",
    label = "`{A}` stays as it is, sharding and all; `~` may become any unsharded dim",
    pub trait BroadcastDim<A>: DimType {
        [Z: Size, S: Shard] TDim<Z, S>: BroadcastDim<TDim<Z, S>>;
        [Z: StatedSize] TDim<Z>: BroadcastDim<Stretch>;
        [] Stretch: BroadcastDim<Stretch>;
    }
    /// The shape of an array like which an array of shape `S` can be broadcast and sharded.
    message = "broadcast_like: an array of shape `{S}` cannot be broadcast to the shape `{Self}`",
    label = "its dims are the last dims of that shape, or `~`, and sharded alike or unsharded",
    note = "insert a dim that is repeated: `.expand_dims(D1)`; `reshard` a dim that is sharded otherwise: `.reshard(P![..])`",
    pub trait BroadcastLike<S>: Shape {
        hidden [S, R: ZipRhs<S, Out: SameType<R>> + Shape] R: BroadcastLike<S>;
    }
    /// An unsharded dim.
    message = "dim `{Self}` is sharded, and must be unsharded here",
    label = "expected an unsharded dim: one without `@axis`",
    note = "`reshard` first: `.reshard(P![..])` with `_` for this dim",
    note = "or state the result of the untyped operation: `x.then::<T![..]>(|x| ..)`, which is checked when it runs",
    pub trait UnshardedDim: DimType {
        [Z: Size] TDim<Z>: UnshardedDim;
        [] Stretch: UnshardedDim;
    }
    /// A shape of unsharded dims.
    message = "a dim of `{Self}` is sharded, and must be unsharded here",
    label = "reshaping keeps no sharding by itself: how the new dims are sharded is open",
    note = "`.split_dim(..)` and `.merge_dims(..)` keep the sharding of the first factor",
    note = "or state the result: `x.then::<T![f32; ..]>(|x| x.reshape_to(..))`, which is checked when it runs",
    pub trait UnshardedShape: Shape {}
}

macro_rules! broadcast {
    ([] [$($a:ident $b:ident)*]) => {
        impl<$($a: DimType, $b: BroadcastDim<$a>),*> BroadcastOf<($($a,)*)> for ($($b,)*) {}
        // the message of the shape is more helpful than that of the dim
        #[diagnostic::do_not_recommend]
        impl<$($a: UnshardedDim),*> UnshardedShape for ($($a,)*) {}
    };
    ([$p0:ident $($p:ident)*] [$($a:ident $b:ident)*]) => {
        impl<$p0: UnshardedDim<Size: StatedSize>, $($p: UnshardedDim<Size: StatedSize>,)* $($a: DimType, $b: BroadcastDim<$a>),*>
            BroadcastOf<($($a,)*)> for ($p0, $($p,)* $($b,)*) {}
        broadcast!([$($p)*] [$($a $b)*]);
    };
}
dim_pairs!(broadcast);

/// A shape of which the number of elements is known, perhaps as a product with names.
pub trait CountedShape: Shape {
    /// The number of elements.
    type Count;
}
/// A shape whose arrays can be reshaped to the shape `R`, which has the same number of elements.
///
/// It is the bound of a generic function that reshapes:
/// `where S![B, 6]: ReshapesTo<S![B, 2, 3]>`.
pub trait ReshapesTo<R>: Shape {}
impl<S: CountedShape, R: CountedShape> ReshapesTo<R> for S where S::Count: SameElements<S, R, R::Count> {}
macro_rules! nested_sizes {
    () => { () };
    ($d:ident $($more:ident)*) => { (<$d as DimType>::Size, nested_sizes!($($more)*)) };
}
macro_rules! counted { ($($($d:ident)*;)*) => { $(
    #[diagnostic::do_not_recommend]
    impl<$($d: DimType),*> CountedShape for ($($d,)*)
    where
        nested_sizes!($($d)*): CountSizes,
    {
        type Count = CountOf<nested_sizes!($($d)*)>;
    }
)* } }
counted! { ; A; A B; A B C; A B C E; A B C E F; A B C E F G; A B C E F G H; A B C E F G H I; }

/// A dim that splits into a major factor `A`, which keeps the sharding, and a minor factor `B`.
#[diagnostic::on_unimplemented(
    message = "split_dim: dim `{Self}` cannot be split into `{A}` times `{B}`",
    label = "the two factors multiply to the dim's size, and mesh axes that shard the dim divide the first"
)]
pub trait Factored<A, B>: DimType {
    seal!();
    /// The dim of the major factor.
    type Major: DimType;
    /// The dim of the minor factor.
    type Minor: DimType;
}
impl<Z: Size, S: Shard, A: SplitsOver<S>, B: Size> Factored<A, B> for TDim<Z, S>
where
    Z: ProductIs<A, B>,
{
    const SEAL: Seal = Seal;
    type Major = TDim<A, S>;
    type Minor = TDim<B, Unsharded>;
}
