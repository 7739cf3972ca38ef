//! Rules of matrix products.

use super::reshard::Spec;
use crate::axis::{Shard, Split};
use crate::sealed::{Seal, Sealed};
use crate::shape::{AxesOnce, DimType, Shape, Stretch, TDim};
use crate::size::Size;

/// A pair of contracted dims.
#[diagnostic::on_unimplemented(
    message = "matmul/einsum: dims `{Self}` (left) and `{D2}` (right) have different sizes",
    label = "`{Self}` would be contracted with `{D2}`",
    note = "`matmul` and `dot` contract the last dim of the left operand with the last but one of the right; `einsum!` those with one letter that the result lacks",
    note = "give both dims one size, or turn an operand: `a.matmul(&b.t())`",
    note = "numbers from 1000 on are printed in groups of three digits: `K<4, 96>` is 4,096"
)]
pub trait ContractDim<D2>: Sealed {}
impl<Z: Size, S1, S2> ContractDim<TDim<Z, S2>> for TDim<Z, S1>
where
    TDim<Z, S1>: ContractTo<TDim<Z, S2>>,
    <TDim<Z, S1> as ContractTo<TDim<Z, S2>>>::Parts: Placed<TDim<Z, S1>>,
{
}
rule_traits! {
    /// A pair of contracted dims, with a stated result sharding.
    message = "matmul/einsum: dims `{Self}` (left) and `{D2}` (right) have different sizes",
    label = "`{Self}` would be contracted with `{D2}`",
    note = "`matmul` and `dot` contract the last dim of the left operand with the last but one of the right; `einsum!` those with one letter that the result lacks",
    note = "give both dims one size, or turn an operand: `a.matmul(&b.t())`",
    note = "numbers from 1000 on are printed in groups of three digits: `K<4, 96>` is 4,096",
    pub trait ContractDimTo<D2>: Sealed {
        [Z: Size, S1: Shard, S2: Shard] TDim<Z, S1>: ContractDimTo<TDim<Z, S2>>;
    }
    /// A pair of batch dims: dims of both operands and of the result.
    ///
    /// Their shardings must agree like those of contracted dims. The result has the left operand's
    /// dim.
    message = "einsum: batch dims `{Self}` (left) and `{D2}` (right) have different sizes",
    label = "batch dims `{Self}` and `{D2}`",
    note = "a letter that both operands and the result have stands for dims of one size: give them one size, or write another letter",
    pub trait BatchDimPair<D2>: Sealed => Out: DimType, "The dim of the result." {
        [Z: Size, S1: Shard, S2] TDim<Z, S1>: BatchDimPair<TDim<Z, S2>>
            where [TDim<Z, S1>: ContractTo<TDim<Z, S2>>] = TDim<Z, S1>;
    }
}

/// The agreement of two dims of one size: which of them are sharded.
#[diagnostic::on_unimplemented(
    message = "matmul/einsum: dims `{Self}` (left) and `{D2}` (right) are sharded over different mesh axes",
    label = "`{Self}` would be contracted with `{D2}`",
    note = "contracted dims must be sharded the same way, or one of them be unsharded: `reshard` one operand, for instance `b.reshard(P![..])`"
)]
pub trait ContractTo<D2>: Sealed {
    /// The sharded sides: [`OneSide`] or [`BothSides`].
    type Parts;
}
rules! { Parts:
    hidden [Z, S: Split] TDim<Z>: ContractTo<TDim<Z, S>> = OneSide;
    hidden [Z, S: Split] TDim<Z, S>: ContractTo<TDim<Z>> = OneSide;
    [Z, S: Shard] TDim<Z, S>: ContractTo<TDim<Z, S>> = S::Parts;
}
/// The marker of a pair of dims of which at most one is sharded.
pub struct OneSide;
/// The marker of a pair of dims that are sharded the same way: the product is a sum over devices.
pub struct BothSides;
rule_traits! {
    /// Requires that the result sharding is unambiguous.
    message = "matmul/einsum: both dims are `{D}`, so how to shard the result is ambiguous",
    label = "`{D}` would be contracted with `{D}`",
    note = "say how the result is sharded: `a.matmul_to(&b, P![_, _])` or `einsum!(\"..\", a, b, P![_, _])` adds the parts up on every device (all-reduce)",
    note = "an axis in place of a `_` leaves each device only its part of the sum (reduce-scatter)",
    pub trait Placed<D>: Sealed {
        [D] OneSide: Placed<D>;
    }
    /// A pair of leading dims of `matmul`.
    message = "matmul: leading dims `{Self}` (left) and `{D2}` (right) must be the same, size and sharding",
    label = "`{Self}` meets `{D2}`",
    note = "`reshard` one operand; or use `einsum!`, whose result takes the left operand's sharding",
    pub trait LeadingDim<D2>: Sealed => Out: DimType, "The dim of the result." {
        [Z: Size, S: Shard] TDim<Z, S>: LeadingDim<TDim<Z, S>> = TDim<Z, S>;
        hidden [Z: Size, S: Shard] TDim<Z, S>: LeadingDim<Stretch> = TDim<Z, S>;
        hidden [Z: Size, S: Shard] Stretch: LeadingDim<TDim<Z, S>> = TDim<Z, S>;
        hidden [] Stretch: LeadingDim<Stretch> = Stretch;
    }
    /// The shape of the right operand of `matmul`, for a left operand of shape `L`.
    message = "matmul: shapes `{L}` and `{Self}` cannot be multiplied",
    label = "matmul takes [.., M, K] by [.., K, N], where leading dims are equal or absent; [K] in place of either",
    pub trait MatmulRhs<L>: Sealed => Out: Shape, "The shape of the product." {}
}
/// The shape of the product of shapes `L` and `R`.
pub type MatmulOf<L, R> = <R as MatmulRhs<L>>::Out;
rule_traits! {
    /// The shape of the right operand of `matmul_to`.
    message = "matmul_to: shapes `{L}` and `{Self}` cannot be multiplied",
    label = "matmul takes [.., M, K] by [.., K, N], where leading dims are equal or absent; [K] in place of either",
    pub trait MatmulToRhs<L, P>: Sealed, sealed => Out: Shape, "The shape of the product." {}
}
/// The shape of the product of shapes `L` and `R`, sharded as `P` says.
pub type MatmulToOf<L, R, P> = <R as MatmulToRhs<L, P>>::Out;

/// The shape of the right operand of `dot`.
#[diagnostic::on_unimplemented(
    message = "dot: shapes `{L}` and `{Self}` cannot be multiplied",
    label = "dot takes arrays of rank 1 and 2",
    note = "use `matmul` for stacks of matrices, or `einsum!`"
)]
pub trait DotRhs<L>: MatmulRhs<L> {}
/// The shape of the right operand of `dot_to`.
#[diagnostic::on_unimplemented(
    message = "dot_to: shapes `{L}` and `{Self}` cannot be multiplied",
    label = "dot takes arrays of rank 1 and 2",
    note = "use `matmul_to` for stacks of matrices, or `einsum!`"
)]
pub trait DotToRhs<L, P>: MatmulToRhs<L, P> {}
macro_rules! dot { ($([$($l:ident)*] [$($r:ident)*];)*) => { $(
    impl<P, $($l: DimType,)* $($r: DimType),*> DotToRhs<($($l,)*), P> for ($($r,)*) where ($($r,)*): MatmulToRhs<($($l,)*), P> {}
    impl<$($l: DimType,)* $($r: DimType),*> DotRhs<($($l,)*)> for ($($r,)*) where ($($r,)*): MatmulRhs<($($l,)*)> {}
)* } }
dot! { [A] [B]; [A] [B C]; [A B] [C]; [A B] [C E]; }

macro_rules! one {
    ([$($g:tt)*] $l:ty, $r:ty, $out:ty, $k1:ident $k2:ident) => {
        impl<$($g)* $k1: ContractDim<$k2>, $k2> MatmulRhs<$l> for $r where $out: AxesOnce + Shape { type Out = $out; }
        impl<$($g)* $k1: ContractDimTo<$k2>, $k2, P: Spec<$out>> MatmulToRhs<$l, P> for $r { const SEAL: Seal = Seal; type Out = P::Out; }
    };
}
one!([] (K1,), (K2,), (), K1 K2);
macro_rules! vectors { ($([$($l:ident)*])*) => { $(
    one!([$($l: DimType,)* Z: DimType,] (K1,), ($($l,)* K2, Z,), ($($l,)* Z,), K1 K2);
    one!([$($l: DimType,)* M: DimType,] ($($l,)* M, K1,), (K2,), ($($l,)* M,), K1 K2);
)* } }
vectors!([] [A] [A B] [A B C] [A B C E] [A B C E F] [A B C E F G]);
macro_rules! matmul {
    ([] [$($a:ident $b:ident)*]) => {
        one!([$($a: LeadingDim<$b>, $b,)* M: DimType, Z: DimType,]
            ($($a,)* M, K1,), ($($b,)* K2, Z,), ($($a::Out,)* M, Z,), K1 K2);
    };
    ([$p0:ident $($p:ident)*] [$($a:ident $b:ident)*]) => {
        one!([$p0: DimType, $($p: DimType,)* $($a: LeadingDim<$b>, $b,)* M: DimType, Z: DimType,]
            ($p0, $($p,)* $($a,)* M, K1,), ($($b,)* K2, Z,), ($p0, $($p,)* $($a::Out,)* M, Z,), K1 K2);
        one!([$p0: DimType, $($p: DimType,)* $($a: LeadingDim<$b>, $b,)* M: DimType, Z: DimType,]
            ($($a,)* M, K1,), ($p0, $($p,)* $($b,)* K2, Z,), ($p0, $($p,)* $($a::Out,)* M, Z,), K1 K2);
        matmul!([$($p)*] [$($a $b)*]);
    };
}
dim_pairs! { matmul [P1 P2 P3 P4 P5 P6] [] (A1 B1) (A2 B2) (A3 B3) (A4 B4) (A5 B5) (A6 B6) }
