//! Operations on elements: dims are paired from the last one backwards.

use crate::axis::{Shard, Split};
use crate::shape::{AxesOnce, DimType, Shape, Stretch, TDim};
use crate::size::Size;

/// Two dims of one size, and how the result's dim is sharded.
#[diagnostic::on_unimplemented(
    message = "elementwise op: dim `{Self}` on the left and dim `{D2}` on the right are sharded over different mesh axes",
    label = "`{Self}` meets `{D2}`",
    note = "a dim must be sharded the same way in both operands, or be unsharded in one of them: `reshard` one operand, for instance `b.reshard(P![..])`",
    note = "axes of two meshes never go together, whatever their names: `put` both arrays on one mesh"
)]
pub trait MergeSplits<D2> {
    /// The dim of the result.
    type Out: DimType;
}
// rustc lists what else would do: the last one says enough
#[diagnostic::do_not_recommend]
impl<Z: Size> MergeSplits<TDim<Z>> for TDim<Z> {
    type Out = TDim<Z>;
}
#[diagnostic::do_not_recommend]
impl<Z: Size, S: Split> MergeSplits<TDim<Z, S>> for TDim<Z> {
    type Out = TDim<Z, S>;
}
#[diagnostic::do_not_recommend]
impl<Z: Size, S: Split> MergeSplits<TDim<Z>> for TDim<Z, S> {
    type Out = TDim<Z, S>;
}
impl<Z: Size, S: Split> MergeSplits<TDim<Z, S>> for TDim<Z, S> {
    type Out = TDim<Z, S>;
}

/// Two dims of operands, and the dim of the result.
#[diagnostic::on_unimplemented(
    message = "elementwise op: dim `{Self}` on the left and dim `{D2}` on the right have different sizes",
    label = "`{Self}` meets `{D2}`",
    note = "dims are paired from the last one backwards; a dim of size 1 is repeated only if its type says so: `~`, which is what `keep(..)` and `expand_dims` give",
    note = "numbers from 1000 on are printed in groups of three digits: `K<4, 96>` is 4,096"
)]
pub trait ZipDim<D2> {
    /// The dim of the result.
    type Out: DimType;
}
impl<Z: Size, S1, S2> ZipDim<TDim<Z, S2>> for TDim<Z, S1>
where
    TDim<Z, S1>: MergeSplits<TDim<Z, S2>>,
{
    type Out = <TDim<Z, S1> as MergeSplits<TDim<Z, S2>>>::Out;
}
#[diagnostic::do_not_recommend]
impl<Z: Size, S: Shard> ZipDim<Stretch> for TDim<Z, S> {
    type Out = TDim<Z, S>;
}
#[diagnostic::do_not_recommend]
impl<Z: Size, S: Shard> ZipDim<TDim<Z, S>> for Stretch {
    type Out = TDim<Z, S>;
}
#[diagnostic::do_not_recommend]
impl ZipDim<Stretch> for Stretch {
    type Out = Stretch;
}

/// The shape of the right operand of an operation on elements whose left one has shape `L`.
///
/// `Self` is the right operand: while rustc resolves `a.add(&b)` it looks for the rule before it has read `b`; with the unknown operand as
/// `Self` it waits, and the message is ours.
#[diagnostic::on_unimplemented(
    message = "elementwise op: shapes `{L}` and `{Self}` do not go together",
    label = "ranks must be equal, or one operand's dims must be the last dims of the other"
)]
pub trait ZipRhs<L> {
    /// The shape of the result.
    type Out: Shape;
}
/// The shape that an operation on elements of shapes `L` and `R` gives.
pub type ZipOf<L, R> = <R as ZipRhs<L>>::Out;

macro_rules! zip {
    // all numbers of leading dims that one operand has and the other has not
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
zip!([P1 P2 P3 P4 P5 P6 P7 P8] []);
zip!([P1 P2 P3 P4 P5 P6 P7] [A1 B1]);
zip!([P1 P2 P3 P4 P5 P6] [A1 B1 A2 B2]);
zip!([P1 P2 P3 P4 P5] [A1 B1 A2 B2 A3 B3]);
zip!([P1 P2 P3 P4] [A1 B1 A2 B2 A3 B3 A4 B4]);
zip!([P1 P2 P3] [A1 B1 A2 B2 A3 B3 A4 B4 A5 B5]);
zip!([P1 P2] [A1 B1 A2 B2 A3 B3 A4 B4 A5 B5 A6 B6]);
zip!([P1] [A1 B1 A2 B2 A3 B3 A4 B4 A5 B5 A6 B6 A7 B7]);
zip!([] [A1 B1 A2 B2 A3 B3 A4 B4 A5 B5 A6 B6 A7 B7 A8 B8]);
