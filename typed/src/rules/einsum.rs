//! Rules of einsum with two operands. `einsum!` translates subscripts to the types of this module.

use super::dot::{BatchDimPair, ContractDim, ContractDimTo};
use super::reshard::{EmptyOf, LeftUnreduced, Spec};
use crate::axis::MeshAxis;
use crate::sealed::{Seal, Sealed};
use crate::sets::{GlobalSets, MarkIn, Sets, UnreduceIn};
use crate::shape::{AxesOnce, D, DimAccess, DimType, Shape, TDim};

/// Dim `I` of the left operand, as a dim of the result.
pub struct LeftDim<const I: usize>;
/// Dim `I` of the right operand, as a dim of the result.
pub struct RightDim<const I: usize>;
/// Dim `I` of the left and dim `J` of the right operand, as one batch or contracted dim.
pub struct PairedDim<const I: usize, const J: usize>;
/// A batch dim like [`PairedDim`], of a product computed with exchanged operands.
///
/// The operands are exchanged if the dims are then in the order of the result. The batch dim has
/// the right operand's sharding.
pub struct SwappedDim<const I: usize, const J: usize>;

rule_traits! {
    /// A dim of the result, picked from the operands.
    pub trait Pick<L, R>: Sealed => Dim: DimType, "The dim." {
        [L: DimAccess<D<I>>, R, const I: usize] LeftDim<I>: Pick<L, R> = L::Dim;
        [L, R: DimAccess<D<I>>, const I: usize] RightDim<I>: Pick<L, R> = R::Dim;
        [L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize] PairedDim<I, J>: Pick<L, R>
            where [L::Dim: BatchDimPair<R::Dim>] = <L::Dim as BatchDimPair<R::Dim>>::Out;
        [L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize] SwappedDim<I, J>: Pick<L, R>
            where [L::Dim: BatchDimPair<R::Dim>, R::Dim: BatchDimPair<L::Dim>]
            = <R::Dim as BatchDimPair<L::Dim>>::Out;
    }
    /// A dim of the result, with a stated result sharding.
    pub trait PickTo<L, R>: Sealed => Dim: DimType, "The dim, in any sharding." {
        [L: DimAccess<D<I>>, R, const I: usize] LeftDim<I>: PickTo<L, R> = L::Dim;
        [L, R: DimAccess<D<I>>, const I: usize] RightDim<I>: PickTo<L, R> = R::Dim;
        [L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize] PairedDim<I, J>: PickTo<L, R>
            where [L::Dim: ContractDimTo<R::Dim>] = L::Dim;
    }
    /// The dims of the result.
    pub trait Outs<L, R>: Sealed => Out: Shape, "The shape of the result." {}
    /// The dims of the result, sharded as `P` says.
    pub trait OutsTo<L, R, P>: Sealed, sealed => Out: Shape, "The shape of the result." {}
}
macro_rules! outs { ($($o:ident)*) => {
    impl<L, R, $($o: Pick<L, R>),*> Outs<L, R> for ($($o,)*) where ($($o::Dim,)*): AxesOnce + Shape { type Out = ($($o::Dim,)*); }
    impl<L, R, P: Spec<($($o::Dim,)*)>, $($o: PickTo<L, R>),*> OutsTo<L, R, P> for ($($o,)*) { const SEAL: Seal = Seal; type Out = P::Out; }
} }
prefixes! { outs [] (A) (B) (C) (E) (F) (G) (H) (I) }

/// One pair of contracted dims.
pub trait Pair<L, R>: Sealed {}
impl<L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize> Pair<L, R> for PairedDim<I, J> where
    L::Dim: ContractDim<R::Dim>
{
}
/// One pair of contracted dims, with a stated result sharding.
pub trait PairTo<L, R>: Sealed {}
impl<L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize> PairTo<L, R> for PairedDim<I, J> where
    L::Dim: ContractDimTo<R::Dim>
{
}
/// The pairs of contracted dims.
pub trait ContractedPairs<L, R>: Sealed {}
/// The pairs of contracted dims, with a stated result sharding.
pub trait ContractedPairsTo<L, R>: Sealed {}
macro_rules! over { ($($c:ident)*) => {
    impl<L, R, $($c: Pair<L, R>),*> ContractedPairs<L, R> for ($($c,)*) {}
    impl<L, R, $($c: PairTo<L, R>),*> ContractedPairsTo<L, R> for ($($c,)*) {}
} }
prefixes! { over [] (A) (B) (C) (E) }

/// The shape of the right operand of an einsum.
///
/// `L` is the shape of the left operand, `O` the result dims, and `C` the contracted pairs.
#[diagnostic::on_unimplemented(
    message = "einsum: shapes `{L}` and `{Self}` do not go together by these subscripts",
    label = "the subscripts do not fit the operands"
)]
pub trait EinsumRhs<L, O, C> {
    seal!();
    /// The shape of the result.
    type Out: Shape;
}
rules! { Out: sealed [L, R, O: Outs<L, R>, C: ContractedPairs<L, R>] R: EinsumRhs<L, O, C> = O::Out; }
/// The rule of [`EinsumRhs`] with a result sharding `P`.
#[diagnostic::on_unimplemented(
    message = "einsum: shapes `{L}` and `{Self}` do not go together by these subscripts",
    label = "the subscripts do not fit the operands"
)]
pub trait EinsumToRhs<L, O, C, P> {
    seal!();
    /// The shape of the result.
    type Out: Shape;
}
impl<L, R, P, O: OutsTo<L, R, P>, C: ContractedPairsTo<L, R>> EinsumToRhs<L, O, C, P> for R {
    const SEAL: Seal = Seal;
    type Out = O::Out;
}

rule_traits! {
    /// A pair of contracted dims that are sharded the same way, and the set `V` with their axes
    /// unreduced.
    message = "einsum: dims `{Self}` (left) and `{D2}` (right) are not sharded the same way, so their product cannot be left unreduced",
    label = "`{Self}` would be contracted with `{D2}`",
    note = "with `; U: X` in the spec, the dims that are contracted over X are sharded over X in both operands: `reshard` one of them, or leave out `; U: X`",
    pub trait PartialDim<D2, V>: Sealed, sealed => Out: Sets, "The set with the axes unreduced." {
        hidden sealed [Z, S: UnreduceIn<V>, V] TDim<Z, S>: PartialDim<TDim<Z, S>, V> = S::Out;
    }
    /// One pair of contracted dims of a product that is left unreduced.
    pub trait PartialPair<L, R, V>: Sealed => Out: Sets, "The set `V` with the axes of the pair unreduced." {}
}
impl<L: DimAccess<D<I>>, R: DimAccess<D<J>>, V, const I: usize, const J: usize> PartialPair<L, R, V>
    for PairedDim<I, J>
where
    L::Dim: PartialDim<R::Dim, V>,
{
    type Out = <L::Dim as PartialDim<R::Dim, V>>::Out;
}
/// The pairs of contracted dims of a product that is left unreduced.
pub trait PartialPairs<L, R, V>: Sealed {
    /// The set `V` with the axes of all pairs unreduced.
    type Out: Sets;
}
rules! { Out:
    [L, R, V: Sets] (): PartialPairs<L, R, V> = V;
    [L, R, V, A: PartialPair<L, R, V>] (A,): PartialPairs<L, R, V> = A::Out;
    [L, R, V, A: PartialPair<L, R, V>, B: PartialPair<L, R, A::Out>] (A, B): PartialPairs<L, R, V>
        = B::Out;
}
impl<L, R, V, A: PartialPair<L, R, V>, B: PartialPair<L, R, A::Out>, C: PartialPair<L, R, B::Out>>
    PartialPairs<L, R, V> for (A, B, C)
{
    type Out = C::Out;
}
impl<
    L,
    R,
    V,
    A: PartialPair<L, R, V>,
    B: PartialPair<L, R, A::Out>,
    C: PartialPair<L, R, B::Out>,
    E: PartialPair<L, R, C::Out>,
> PartialPairs<L, R, V> for (A, B, C, E)
{
    type Out = E::Out;
}
/// The set of the axes over which the contracted pairs sum, which a spec leaves unreduced: `V`.
#[diagnostic::on_unimplemented(
    message = "einsum: the spec leaves the axes of `{V}` unreduced, but the contracted dims sum over the axes of `{Self}`",
    label = "after `U:` come exactly the axes that shard contracted dims of both operands",
    note = "`einsum!(\"mk,kn->mn\", a, b, P![_, _; U: X])` is for `a` of `[M, K@X]` and `b` of `[K@X, N]`"
)]
pub trait SummedOver<V> {}
impl<V> SummedOver<V> for V {}

rule_traits! {
    /// The sets of an einsum of shapes `L` and `R` with a stated result sharding.
    ///
    /// They are plain, or unreduced over the axes that shard contracted dims of both operands. `C`
    /// is the contracted pairs, `V` the sets that the operands' sets combine to.
    message = "einsum: an einsum of values with the sets `{V}` cannot leave its sum to this spec",
    label = "a product is left unreduced outside of `shard_map`, and then has plain operands",
    note = "in a body of `shard_map`, leave out `; U: X`: the product varies over `X`, and `.psum(X)` makes the sum",
    pub trait EinsumSets<L, R, C, V>: Sealed => Out: Sets, "The sets of the result." {}
}
macro_rules! stated { ($($s:ident)*) => {
    #[diagnostic::do_not_recommend]
    impl<L, R, C, V: Sets, $($s),*> EinsumSets<L, R, C, V> for ($($s,)*) { type Out = V; }
} }
prefixes! { stated [] (S1) (S2) (S3) (S4) (S5) (S6) (S7) (S8) }
type UnreducedOver<A, M> = <A as MarkIn<EmptyOf<M>>>::Unreduced;
impl<L, R, C: PartialPairs<L, R, EmptyOf<A>>, P, A: MeshAxis> EinsumSets<L, R, C, ()>
    for LeftUnreduced<P, (A,)>
where
    (A,): MarkIn<EmptyOf<A>>,
    C::Out: SummedOver<UnreducedOver<(A,), A>>,
{
    type Out = GlobalSets<UnreducedOver<(A,), A>>;
}
impl<L, R, C: PartialPairs<L, R, EmptyOf<A>>, P, A: MeshAxis, B> EinsumSets<L, R, C, ()>
    for LeftUnreduced<P, (A, B)>
where
    (A, B): MarkIn<EmptyOf<A>>,
    C::Out: SummedOver<UnreducedOver<(A, B), A>>,
{
    type Out = GlobalSets<UnreducedOver<(A, B), A>>;
}
