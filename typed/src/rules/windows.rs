//! Rules of convolutions, pooling and window reductions: the sizes of dims that windows move over.
//!
//! Windows of `k` elements have n − k + 1 positions in a dim of size n. A stride `s` takes every
//! s-th of them, so their number is divided by `s`, rounding up. Where windows may extend beyond
//! the array the number of positions is n ([`SameWindows`]) or n + k − 1 ([`FullWindows`]).

use super::dot::{ContractDim, ContractDimTo};
use super::reshard::Spec;
use crate::axis::Shard;
use crate::sealed::{Seal, Sealed};
use crate::shape::{AxesOnce, DimType, Shape, TDim};
use crate::size::{AddSize, Decimal, DifferenceNumber, DivideBy, Num, Prime, Size, SplitsOver, WholeNumber};
use core::marker::PhantomData;

/// Windows that are inside the array: ⌊(n − k) / s⌋ + 1 of them.
#[derive(Clone, Copy, Debug)]
pub struct ValidWindows;
/// Windows that extend beyond the array so that there are ⌈n / s⌉ of them.
#[derive(Clone, Copy, Debug)]
pub struct SameWindows;
/// All windows that touch the array: n + k − 1 of them with stride 1.
#[derive(Clone, Copy, Debug)]
pub struct FullWindows;

/// The strides `S` and the padding `P` of windows: `Strides::<S![2, 2]>::same()`.
#[derive(Clone, Copy, Debug)]
pub struct Strides<S, P = ValidWindows>(PhantomData<fn() -> (S, P)>);
impl<S> Strides<S> {
    /// Returns windows with strides `S` that are inside the array.
    pub fn valid() -> Strides<S, ValidWindows> {
        Strides(PhantomData)
    }
    /// Returns windows with strides `S` that extend beyond the array evenly on both sides.
    pub fn same() -> Strides<S, SameWindows> {
        Strides(PhantomData)
    }
}
/// A padding: [`ValidWindows`] or [`SameWindows`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a padding of windows",
    label = "write `Strides::<S![..]>::valid()` or `Strides::<S![..]>::same()`"
)]
pub trait WindowPadding: Sealed + 'static {
    /// True for [`SameWindows`].
    const IS_SAME: bool;
}
impl WindowPadding for ValidWindows {
    const IS_SAME: bool = false;
}
impl WindowPadding for SameWindows {
    const IS_SAME: bool = true;
}

rule_traits! {
    /// A shape, as the shape of windows: it gives the strides of 1 for its rank.
    message = "`{Self}` is not the shape of windows",
    label = "write one size for each dim of the array, up to five: `S![1, 3]`",
    pub trait UnitStrides: Shape => Ones: Shape, "The strides." {}
    /// A window size that fits into a dim of size `Z`.
    message = "windows of `{Self}` elements do not fit into a dim of size `{Z}`",
    label = "the size of the dim is a number, at least that of the window; windows have up to 32 elements",
    note = "windows that extend beyond the array fit any dim: `Strides::<S![..]>::same()`",
    note = "for other sizes state the result: `x.then::<T![..]>(|x| ..)`, which is checked when it runs",
    pub trait FitsInto<Z>: Size, sealed => Positions: Size, "The number of positions: `Z` − `Self` + 1." {}
    /// A window size whose windows touch a dim of size `Z` at `Z` + `Self` − 1 positions.
    message = "the number of windows of `{Self}` elements that touch a dim of size `{Z}` is not known when compiling",
    label = "the size of the dim is a number; windows have up to 32 elements",
    pub trait Touches<Z>: Size, sealed => Positions: Size, "The number of positions." {}
}
rules! { Positions:
    sealed [Z: Size] Num<1>: FitsInto<Z> = Z;
    sealed [Z: Size] Num<1>: Touches<Z> = Z;
}
macro_rules! window_sizes { ($($k:literal $less:literal)*) => { $(
    #[diagnostic::do_not_recommend]
    impl<Z: Size + Decimal> FitsInto<Z> for Num<$k>
    where
        DifferenceNumber<Z, Num<$k>>: WholeNumber,
        DifferenceNumber<Z, Num<$less>>: WholeNumber,
    {
        const SEAL: Seal = Seal;
        type Positions = DifferenceNumber<Z, Num<$less>>;
    }
    #[diagnostic::do_not_recommend]
    impl<Z: AddSize<Num<$less>>> Touches<Z> for Num<$k> { const SEAL: Seal = Seal; type Positions = Z::Out; }
)* } }
window_sizes!(2 1 3 2 4 3 5 4 6 5 7 6 8 7 9 8 10 9 11 10 12 11 13 12 14 13 15 14 16 15 17 16 18 17 19 18
    20 19 21 20 22 21 23 22 24 23 25 24 26 25 27 26 28 27 29 28 30 29 31 30 32 31);

rule_traits! {
    /// A stride that takes every `Self`-th of `Z` positions.
    message = "every `{Self}`-th of `{Z}` windows cannot be counted when compiling",
    label = "a stride is a number from 1 to 16; with a stride above 1 the size of the dim is a number",
    pub trait StrideOver<Z>: Size, sealed => Count: Size, "The number of windows: `Z` / `Self`, rounded up." {
        sealed [Z: Size] Num<1>: StrideOver<Z> = Z;
    }
}
macro_rules! strides { ($($s:literal $less:literal [$($p:literal)*];)*) => { $(
    #[diagnostic::do_not_recommend]
    impl<Z: AddSize<Num<$less>>> StrideOver<Z> for Num<$s>
    where
        Z::Out: DivideBy<strides!(@ $($p)*)>,
    {
        const SEAL: Seal = Seal;
        type Count = <Z::Out as DivideBy<strides!(@ $($p)*)>>::Quotient;
    }
)* };
    (@) => { () };
    (@ $p:literal $($rest:literal)*) => { (Prime<$p>, strides!(@ $($rest)*)) };
}
strides! {
    2 1 [2]; 3 2 [3]; 4 3 [2 2]; 5 4 [5]; 6 5 [2 3]; 7 6 [7]; 8 7 [2 2 2]; 9 8 [3 3]; 10 9 [2 5]; 11 10 [11];
    12 11 [2 2 3]; 13 12 [13]; 14 13 [2 7]; 15 14 [3 5]; 16 15 [2 2 2 2];
}

rule_traits! {
    /// A dim that windows `K` move over with stride `S`, padded as `P` says. It keeps its sharding.
    message = "windows `{K}` do not move over a dim `{Self}` with stride `{S}`",
    label = "windows and strides are unsharded sizes: `S![3, 3]`",
    note = "the window's own dims are unsharded: `reshard` the filter",
    pub trait WindowDim<K, S, P>: DimType => Out: DimType, "The dim of the result." {}
}
impl<Z: Size, A: Shard, K: FitsInto<Z>, S: StrideOver<K::Positions>> WindowDim<TDim<K>, TDim<S>, ValidWindows>
    for TDim<Z, A>
where
    S::Count: SplitsOver<A>,
{
    type Out = TDim<S::Count, A>;
}
impl<Z: Size, A: Shard, K: Size, S: StrideOver<Z>> WindowDim<TDim<K>, TDim<S>, SameWindows> for TDim<Z, A>
where
    S::Count: SplitsOver<A>,
{
    type Out = TDim<S::Count, A>;
}
rules! { Out:
    [Z: Size, A: Shard, K: Touches<Z>] TDim<Z, A>: WindowDim<TDim<K>, TDim<Num<1>>, FullWindows>
        where [K::Positions: SplitsOver<A>] = TDim<K::Positions, A>;
}

rule_traits! {
    /// A shape that windows of shape `W` move over: one window size and one stride for each dim.
    message = "windows of shape `{W}` with strides `{St}` do not move over `{Self}`",
    label = "give one window size for each dim, `1` where a window is one element, and as many strides",
    pub trait WindowShape<W, St, P>: Shape => Out: Shape, "The shape of the result." {}
    /// A shape whose last dims windows of shape `W` move over.
    message = "pooling: windows of shape `{W}` with strides `{St}` do not move over the last dims of `{Self}`",
    label = "give a window size for each of the last dims, and as many strides; up to three dims",
    pub trait PoolShape<W, St, P>: Shape => Out: Shape, "The shape of the result." {}
}
macro_rules! windows { ($($d:ident $k:ident $s:ident)*) => {
    impl<$($d: DimType),*> UnitStrides for ($($d,)*) { type Ones = ($(windows!(@ $d),)*); }
    impl<P, $($d: WindowDim<$k, $s, P>, $k, $s),*> WindowShape<($($k,)*), ($($s,)*), P> for ($($d,)*) {
        type Out = ($($d::Out,)*);
    }
};
    (@ $d:ident) => { TDim<Num<1>> };
}
prefixes! { windows [A K1 S1] (B K2 S2) (C K3 S3) (E K4 S4) (F K5 S5) }
macro_rules! pools { ([$($l:ident)*] $($d:ident $k:ident $s:ident)*) => {
    impl<P, $($l: DimType,)* $($d: WindowDim<$k, $s, P>, $k, $s),*> PoolShape<($($k,)*), ($($s,)*), P>
        for ($($l,)* $($d,)*)
    {
        type Out = ($($l,)* $($d::Out,)*);
    }
} }
pools!([] A K1 S1);
pools!([L1] A K1 S1);
pools!([L1 L2] A K1 S1);
pools!([L1 L2 L3] A K1 S1);
pools!([] A K1 S1 B K2 S2);
pools!([L1] A K1 S1 B K2 S2);
pools!([L1 L2] A K1 S1 B K2 S2);
pools!([L1 L2 L3] A K1 S1 B K2 S2);
pools!([] A K1 S1 B K2 S2 C K3 S3);
pools!([L1] A K1 S1 B K2 S2 C K3 S3);
pools!([L1 L2] A K1 S1 B K2 S2 C K3 S3);

/// The shape of the filter of a convolution of arrays of shape `L`.
///
/// The array has dims batch, features and spatial ones, the filter output features, features and
/// spatial ones. The strides `St` are a shape, or `()` for strides of 1.
#[diagnostic::on_unimplemented(
    message = "conv: a filter of shape `{Self}` does not fit an array of shape `{L}`",
    label = "the array is [batch, features, ..], the filter [output features, features, ..], with one to three spatial dims",
    note = "strides have one entry for each spatial dim: `Strides::<S![2, 2]>::same()`",
    note = "an array without spatial dims is multiplied: `x.matmul(&w.t())`"
)]
pub trait ConvRhs<L, St, P>: Shape {
    /// The shape of the result: [batch, output features, ..].
    type Out: Shape;
}
rule_traits! {
    /// The rule of [`ConvRhs`] with a stated result sharding `Q`.
    message = "conv_to: a filter of shape `{Self}` does not fit an array of shape `{L}`",
    label = "the array is [batch, features, ..], the filter [output features, features, ..], with one to three spatial dims",
    pub trait ConvToRhs<L, Q>: Shape, sealed => Out: Shape, "The shape of the result." {}
}
type Ones = TDim<Num<1>>;
macro_rules! conv { ($($d:ident $k:ident $s:ident $one:ident)*) => {
    impl<P, B: DimType, C: ContractDim<I>, O: DimType, I: DimType, $($d: WindowDim<$k, $s, P>, $k: DimType, $s),*>
        ConvRhs<(B, C, $($d,)*), ($($s,)*), P> for (O, I, $($k,)*)
    where
        (B, O, $($d::Out,)*): AxesOnce + Shape,
    {
        type Out = (B, O, $($d::Out,)*);
    }
    impl<P, B: DimType, C: ContractDim<I>, O: DimType, I: DimType, $($d: WindowDim<$k, $one, P>, $k: DimType),*>
        ConvRhs<(B, C, $($d,)*), (), P> for (O, I, $($k,)*)
    where
        (B, O, $($d::Out,)*): AxesOnce + Shape,
    {
        type Out = (B, O, $($d::Out,)*);
    }
    impl<Q, B: DimType, C: ContractDimTo<I>, O: DimType, I: DimType, $($d: WindowDim<$k, $one, ValidWindows>, $k: DimType),*>
        ConvToRhs<(B, C, $($d,)*), Q> for (O, I, $($k,)*)
    where
        Q: Spec<(B, O, $($d::Out,)*)>,
    {
        const SEAL: Seal = Seal;
        type Out = Q::Out;
    }
} }
conv!(Z1 K1 S1 Ones);
conv!(Z1 K1 S1 Ones Z2 K2 S2 Ones);
conv!(Z1 K1 S1 Ones Z2 K2 S2 Ones Z3 K3 S3 Ones);
