//! Rules of elementwise operations: dims are aligned at the last one.

use super::select::SelectRhs;
use crate::axis::{Shard, Split};
use crate::sealed::Sealed;
use crate::shape::{AxesOnce, DimType, Shape, Stretch, TDim};
use crate::size::Size;

rule_traits! {
    /// A pair of dims of one size, and the sharding of the result's dim.
    message = "elementwise op: dim `{Self}` on the left and dim `{D2}` on the right are sharded over different mesh axes",
    label = "`{Self}` meets `{D2}`",
    note = "a dim must be sharded the same way in both operands, or be unsharded in one of them: `reshard` one operand, for instance `b.reshard(P![..])`",
    note = "axes of two meshes never go together, whatever their names: `put` both arrays on one mesh",
    pub trait MergeSplits<D2>: Sealed => Out: DimType, "The dim of the result." {}
}
// rustc lists candidate impls: the last one is enough
#[diagnostic::do_not_recommend]
impl<Z: Size, S: Split> MergeSplits<TDim<Z, S>> for TDim<Z> {
    type Out = TDim<Z, S>;
}
rules! { Out:
    hidden [Z: Size, S: Split] TDim<Z, S>: MergeSplits<TDim<Z>> = TDim<Z, S>;
    [Z: Size, S: Shard] TDim<Z, S>: MergeSplits<TDim<Z, S>> = TDim<Z, S>;
}

rule_traits! {
    /// A pair of dims of the operands, and the dim of the result.
    message = "elementwise op: dim `{Self}` on the left and dim `{D2}` on the right have different sizes",
    label = "`{Self}` meets `{D2}`",
    note = "dims are paired from the last one backwards: give both dims one size, or insert a dim that repeats, `b.expand_dims(D1)`, to pair the others",
    note = "a dim of size 1 is repeated only if its type says so: `~`, which is what `keep(..)` and `expand_dims` give",
    note = "numbers from 1000 on are printed in groups of three digits: `K<4, 96>` is 4,096",
    pub trait ZipDim<D2>: Sealed => Out: DimType, "The dim of the result." {
        [Z: Size, S1, S2] TDim<Z, S1>: ZipDim<TDim<Z, S2>>
            where [TDim<Z, S1>: MergeSplits<TDim<Z, S2>>]
            = <TDim<Z, S1> as MergeSplits<TDim<Z, S2>>>::Out;
        hidden [Z: Size, S: Shard] TDim<Z, S>: ZipDim<Stretch> = TDim<Z, S>;
        hidden [Z: Size, S: Shard] Stretch: ZipDim<TDim<Z, S>> = TDim<Z, S>;
        hidden [] Stretch: ZipDim<Stretch> = Stretch;
    }
    /// The shape of the right operand of an elementwise operation, for a left operand of shape `L`.
    ///
    /// `Self` is the right operand. While rustc resolves `a.add(&b)` it looks for the rule before
    /// it knows the type of `b`. With the unknown operand as `Self` it waits, and shows this
    /// trait's message.
    message = "elementwise op: shapes `{L}` and `{Self}` do not go together",
    label = "ranks must be equal, or one operand's dims must be the last dims of the other",
    pub trait ZipRhs<L>: Sealed => Out: Shape, "The shape of the result." {}
}
/// The shape of the result of an elementwise operation on shapes `L` and `R`.
pub type ZipOf<L, R> = <R as ZipRhs<L>>::Out;

macro_rules! zip {
    // all counts of leading dims that only one operand has
    ([] [$($a:ident $b:ident)*]) => {
        impl<$($a: ZipDim<$b>, $b),*> ZipRhs<($($a,)*)> for ($($b,)*)
        where ($($a::Out,)*): AxesOnce + Shape { type Out = ($($a::Out,)*); }
    };
    ([$p0:ident $($p:ident)*] [$($a:ident $b:ident)*]) => {
        impl<$p0: DimType, $($p: DimType,)* $($a: ZipDim<$b>, $b),*> ZipRhs<($p0, $($p,)* $($a,)*)> for ($($b,)*)
        where ($p0, $($p,)* $($a::Out,)*): AxesOnce + Shape { type Out = ($p0, $($p,)* $($a::Out,)*); }
        impl<$p0: DimType, $($p: DimType,)* $($a: ZipDim<$b>, $b),*> ZipRhs<($($a,)*)> for ($p0, $($p,)* $($b,)*)
        where ($p0, $($p,)* $($a::Out,)*): AxesOnce + Shape { type Out = ($p0, $($p,)* $($a::Out,)*); }
        zip!([$($p)*] [$($a $b)*]);
    };
}
dim_pairs!(zip);

/// A shape whose arrays can be combined elementwise with arrays of this shape and of rank 0,
/// whatever the rank and the sharding: the bound of functions generic over shapes.
///
/// An array of rank 0 is the left operand, `rate * &x`, or a number, `x * rate.as_number()`.
pub trait ElementwiseShape:
    ZipRhs<Self, Out = Self> + ZipRhs<(), Out = Self> + SelectRhs<Self> + Shape + Sized
{
}
impl<S: Shape + ZipRhs<S, Out = S> + ZipRhs<(), Out = S> + SelectRhs<S>> ElementwiseShape for S {}
