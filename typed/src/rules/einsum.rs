//! Rules of einsum with two operands. `einsum!` translates subscripts to the types of this module.

use super::dot::{BatchDimPair, ContractDim, ContractDimTo};
use super::reshard::Spec;
use crate::shape::{AxesOnce, D, DimAccess, DimType, Shape};

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

/// A dim of the result, picked from the operands.
pub trait Pick<L, R> {
    /// The dim.
    type Dim: DimType;
}
impl<L: DimAccess<D<I>>, R, const I: usize> Pick<L, R> for LeftDim<I> {
    type Dim = L::Dim;
}
impl<L, R: DimAccess<D<I>>, const I: usize> Pick<L, R> for RightDim<I> {
    type Dim = R::Dim;
}
impl<L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize> Pick<L, R> for PairedDim<I, J>
where
    L::Dim: BatchDimPair<R::Dim>,
{
    type Dim = <L::Dim as BatchDimPair<R::Dim>>::Out;
}
impl<L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize> Pick<L, R> for SwappedDim<I, J>
where
    L::Dim: BatchDimPair<R::Dim>,
    R::Dim: BatchDimPair<L::Dim>,
{
    type Dim = <R::Dim as BatchDimPair<L::Dim>>::Out;
}
/// A dim of the result, with a stated result sharding.
pub trait PickTo<L, R> {
    /// The dim, in any sharding.
    type Dim: DimType;
}
impl<L: DimAccess<D<I>>, R, const I: usize> PickTo<L, R> for LeftDim<I> {
    type Dim = L::Dim;
}
impl<L, R: DimAccess<D<I>>, const I: usize> PickTo<L, R> for RightDim<I> {
    type Dim = R::Dim;
}
impl<L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize> PickTo<L, R> for PairedDim<I, J>
where
    L::Dim: ContractDimTo<R::Dim>,
{
    type Dim = L::Dim;
}

/// The dims of the result.
pub trait Outs<L, R> {
    /// The shape of the result.
    type Out: Shape;
}
/// The dims of the result, sharded as `P` says.
pub trait OutsTo<L, R, P> {
    /// The shape of the result.
    type Out: Shape;
}
macro_rules! outs { ($($o:ident)*) => {
    impl<L, R, $($o: Pick<L, R>),*> Outs<L, R> for ($($o,)*) where ($($o::Dim,)*): AxesOnce + Shape { type Out = ($($o::Dim,)*); }
    impl<L, R, P: Spec<($($o::Dim,)*)>, $($o: PickTo<L, R>),*> OutsTo<L, R, P> for ($($o,)*) { type Out = P::Out; }
} }
outs!();
outs!(A);
outs!(A B);
outs!(A B C);
outs!(A B C E);
outs!(A B C E F);
outs!(A B C E F G);
outs!(A B C E F G H);
outs!(A B C E F G H I);

/// One pair of contracted dims.
pub trait Pair<L, R> {}
impl<L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize> Pair<L, R> for PairedDim<I, J> where
    L::Dim: ContractDim<R::Dim>
{
}
/// One pair of contracted dims, with a stated result sharding.
pub trait PairTo<L, R> {}
impl<L: DimAccess<D<I>>, R: DimAccess<D<J>>, const I: usize, const J: usize> PairTo<L, R> for PairedDim<I, J> where
    L::Dim: ContractDimTo<R::Dim>
{
}
/// The pairs of contracted dims.
pub trait ContractedPairs<L, R> {}
/// The pairs of contracted dims, with a stated result sharding.
pub trait ContractedPairsTo<L, R> {}
macro_rules! over { ($($c:ident)*) => {
    impl<L, R, $($c: Pair<L, R>),*> ContractedPairs<L, R> for ($($c,)*) {}
    impl<L, R, $($c: PairTo<L, R>),*> ContractedPairsTo<L, R> for ($($c,)*) {}
} }
over!();
over!(A);
over!(A B);
over!(A B C);
over!(A B C E);

/// The shape of the right operand of an einsum.
///
/// `L` is the shape of the left operand, `O` the result dims, and `C` the contracted pairs.
#[diagnostic::on_unimplemented(
    message = "einsum: shapes `{L}` and `{Self}` do not go together by these subscripts",
    label = "the subscripts do not fit the operands"
)]
pub trait EinsumRhs<L, O, C> {
    /// The shape of the result.
    type Out: Shape;
}
impl<L, R, O: Outs<L, R>, C: ContractedPairs<L, R>> EinsumRhs<L, O, C> for R {
    type Out = O::Out;
}
/// The rule of [`EinsumRhs`] with a result sharding `P`.
#[diagnostic::on_unimplemented(
    message = "einsum: shapes `{L}` and `{Self}` do not go together by these subscripts",
    label = "the subscripts do not fit the operands"
)]
pub trait EinsumToRhs<L, O, C, P> {
    /// The shape of the result.
    type Out: Shape;
}
impl<L, R, P, O: OutsTo<L, R, P>, C: ContractedPairsTo<L, R>> EinsumToRhs<L, O, C, P> for R {
    type Out = O::Out;
}
