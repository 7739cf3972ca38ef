//! Rules of `select`: operands broadcast like those of other elementwise operations, but a dim that
//! two operands have is sharded the same way in both.

use super::broadcast::ZipRhs;
use crate::axis::Shard;
use crate::sealed::Sealed;
use crate::shape::{DimType, Stretch, TDim};
use crate::size::Size;

/// A pair of dims of one size, in two operands of `select`.
#[diagnostic::on_unimplemented(
    message = "select: dim `{Self}` of one operand and dim `{D2}` of another are sharded differently",
    label = "`{Self}` meets `{D2}`",
    note = "the condition and both values are sharded the same way, except along `~` and dims that one of them lacks: `reshard` one operand, for instance `mask.reshard(P![..])`"
)]
pub trait AlikeDim<D2> {}
impl<D> AlikeDim<D> for D {}
rule_traits! {
    /// A pair of dims of two operands of `select`.
    message = "select: dim `{Self}` of one operand and dim `{D2}` of another have different sizes",
    label = "`{Self}` meets `{D2}`",
    note = "dims are paired from the last one backwards; a dim of size 1 is repeated only if its type says so: `~`, which is what `keep(..)` and `expand_dims` give",
    pub trait SelectDim<D2>: Sealed {
        [Z: Size, S1, S2] TDim<Z, S1>: SelectDim<TDim<Z, S2>> where [TDim<Z, S1>: AlikeDim<TDim<Z, S2>>];
        hidden [Z: Size, S: Shard] TDim<Z, S>: SelectDim<Stretch>;
        hidden [Z: Size, S: Shard] Stretch: SelectDim<TDim<Z, S>>;
        hidden [] Stretch: SelectDim<Stretch>;
    }
}

/// The shape of a value of `select`, next to a condition or another value of shape `L`.
#[diagnostic::on_unimplemented(
    message = "select: shapes `{L}` and `{Self}` do not go together",
    label = "ranks must be equal, or one operand's dims must be the last dims of the other"
)]
pub trait SelectRhs<L>: ZipRhs<L> {}
macro_rules! select {
    ([] [$($a:ident $b:ident)*]) => {
        impl<$($a: SelectDim<$b>, $b),*> SelectRhs<($($a,)*)> for ($($b,)*) where Self: ZipRhs<($($a,)*)> {}
    };
    ([$p0:ident $($p:ident)*] [$($a:ident $b:ident)*]) => {
        impl<$p0: DimType, $($p: DimType,)* $($a: SelectDim<$b>, $b),*> SelectRhs<($p0, $($p,)* $($a,)*)> for ($($b,)*)
        where Self: ZipRhs<($p0, $($p,)* $($a,)*)> {}
        impl<$p0: DimType, $($p: DimType,)* $($a: SelectDim<$b>, $b),*> SelectRhs<($($a,)*)> for ($p0, $($p,)* $($b,)*)
        where Self: ZipRhs<($($a,)*)> {}
        select!([$($p)*] [$($a $b)*]);
    };
}
dim_pairs!(select);
