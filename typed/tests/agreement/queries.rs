// Rules as types, and probes whether a rule holds, for the cases and the random programs.
pub use atmesh_typed::rules::einsum::{LeftDim, PairedDim, RightDim, SwappedDim};
pub use atmesh_typed::rules::reduce::Kept;
pub use atmesh_typed::sets::{GlobalSets, Invariant, ReducedSum, UnreducedSum};
pub use atmesh_typed::shape::D;
pub use atmesh_typed::{N, P, S, mesh};
pub use core::marker::PhantomData;

use atmesh_typed::axis::{MeshAxis, MeshType};
use atmesh_typed::manual::{GatherAt, GlobalShape, LocalShape, ScatterAt};
use atmesh_typed::rules::broadcast::{ZipOf, ZipRhs};
use atmesh_typed::rules::dot::{MatmulRhs, MatmulToRhs};
use atmesh_typed::rules::einsum::{EinsumRhs, EinsumSets, EinsumToRhs};
use atmesh_typed::rules::join::{ConcatSets, ConcatShapes, SplitShapes};
use atmesh_typed::rules::reduce::ReduceDims;
use atmesh_typed::rules::reshape_dims::{
    Factored, Permute, ReshapesTo, UnitDim, UnshardedDim, UnshardedShape,
};
use atmesh_typed::rules::reshard::{ProductSets, ReshardTo, Spec};
use atmesh_typed::rules::select::SelectRhs;
use atmesh_typed::rules::slice::{
    CutDim, EqualExceptDim, JoinDim, MergeDim, PadDim, SliceDim, StridedDim, TileDim, TopDim,
};
use atmesh_typed::rules::take::{
    AlignRhs, AlignToRhs, AtRhs, DiagonalShape, DimsSpec, IndicesOf, TakeOf, TakeRhs, UpdateOf,
};
use atmesh_typed::sets::{
    AddAxis, AddRhs, AddTo, CompleteSets, CoveredBy, JoinRhs, Mark, MulRhs, PositionSets, ProductRhs,
    ScalarSets, Sets, State, VaryingAxes,
};
use atmesh_typed::shape::{DimAccess, DimInfo, Insert, OtherDim, Push, Shape, Stretch, TDim};
use atmesh_typed::size::{Num, Size};

/// A rule applied to operands.
pub trait Rule {
    type S: Shape;
    type V: Sets;
}
/// The type that a rule produces. `None` if the rule does not hold.
pub type Found = Option<(&'static [DimInfo], &'static [Option<(&'static str, State)>])>;
/// Formats the type as `type_of` prints it after the element type.
pub fn text(found: Found) -> Option<String> {
    found.map(|(dims, states)| atmesh_typed::print(dims, states))
}
pub struct Probe<Q>(pub PhantomData<Q>);
impl<Q: Rule> Probe<Q> {
    pub const FOUND: Found = Some((Q::S::DIMS, Q::V::STATES));
}
/// The fallback for a rule that does not hold.
///
/// The inherent constant, which needs the rule, takes precedence over this trait's constant.
pub trait Otherwise {
    const FOUND: Found = None;
}
impl<Q> Otherwise for Probe<Q> {}

macro_rules! rules { ($([$($g:tt)*] $name:ident<$($p:ident),*>: $s:ty, $v:ty $(, where [$($w:tt)*])?;)*) => { $(
    pub struct $name<$($p),*>(PhantomData<($($p,)*)>);
    impl<$($g)*> Rule for $name<$($p),*> $(where $($w)*)? { type S = $s; type V = $v; }
)* } }
type Nth<S, I> = <S as DimAccess<I>>::Dim;
type Put<S, I, Q> = <S as DimAccess<I>>::Put<Q>;
rules! {
    [S: Shape, V: CompleteSets] Unary<S, V>: S, V;
    [S: Shape, V: Sets] Any<S, V>: S, V;
    [L, LV, R: ZipRhs<L>, RV: JoinRhs<LV>] Join<L, LV, R, RV>: R::Out, RV::Out;
    [L, LV, R: ZipRhs<L>, RV: AddRhs<LV>] Add<L, LV, R, RV>: R::Out, RV::Out;
    [L, LV, R: ZipRhs<L>, RV: MulRhs<LV>] Mul<L, LV, R, RV>: R::Out, RV::Out;
    [S, V: CompleteSets, I: ReduceDims<S>] Reduce<S, V, I>: I::Out, V;
    [S, V: Sets, I: ReduceDims<S>] ReduceSum<S, V, I>: I::Out, V;
    [S, V: CompleteSets + PositionSets, I: ReduceDims<S>] Position<S, V, I>: I::Out, <V as PositionSets>::Out;
    [S: Shape, V: CompleteSets, I: ReduceDims<S>] Softmax<S, V, I>: S, V;
    [S: Permute<P>, V: Sets, P] Move<S, V, P>: S::Out, V;
    [S: Insert<I, Stretch>, V: Sets, I] Expand<S, V, I>: S::Out, V;
    [S: DimAccess<I>, V: Sets, I] Squeeze<S, V, I>: S::Removed, V, where [S::Dim: UnitDim];
    [S, V, P: ReshardTo<S, V>] Reshard<S, V, P>: <P as ReshardTo<S, V>>::Shape, <P as ReshardTo<S, V>>::Sets;
    [L, LV, R: MatmulRhs<L>, RV: ProductRhs<LV>] Matmul<L, LV, R, RV>: R::Out, RV::Out;
    [L, LV, R: MatmulToRhs<L, P>, RV: ProductRhs<LV>, P: ProductSets<L, R, RV::Out>] MatmulTo<L, LV, R, RV, P>: <R as MatmulToRhs<L, P>>::Out, P::Out;
    [L, LV, R: EinsumRhs<L, O, C>, RV: ProductRhs<LV>, O, C] Einsum<L, LV, R, RV, O, C>: R::Out, RV::Out;
    [L, LV, R: EinsumToRhs<L, O, C, P>, RV: ProductRhs<LV>, O, C, P: EinsumSets<L, R, C, RV::Out>] EinsumTo<L, LV, R, RV, O, C, P>: R::Out, P::Out;
    [S: DimAccess<I>, V: Sets, R: DimAccess<I> + EqualExceptDim<I, S>, W: AddRhs<V>, I] Concat<S, V, R, W, I>: Put<S, I, <Nth<S, I> as JoinDim<Nth<R, I>>>::Out>, W::Out,
        where [Nth<S, I>: JoinDim<Nth<R, I>>, Put<S, I, <Nth<S, I> as JoinDim<Nth<R, I>>>::Out>: Shape];
    [S: DimAccess<I>, V: Sets, I, A, B] Cut<S, V, I, A, B>: Put<S, I, <Nth<S, I> as CutDim<A, B>>::First>, V,
        where [Nth<S, I>: CutDim<A, B>, Put<S, I, <Nth<S, I> as CutDim<A, B>>::First>: Shape];
    [S: DimAccess<I>, V: Sets, I, A, B] Sliced<S, V, I, A, B>: Put<S, I, <Nth<S, I> as SliceDim<A, B>>::Out>, V,
        where [Nth<S, I>: SliceDim<A, B>, Put<S, I, <Nth<S, I> as SliceDim<A, B>>::Out>: Shape];
    [S: DimAccess<I>, V: Sets, I, A, B, K] Strided<S, V, I, A, B, K>: Put<S, I, <Nth<S, I> as StridedDim<A, B, K>>::Out>, V,
        where [Nth<S, I>: StridedDim<A, B, K>, Put<S, I, <Nth<S, I> as StridedDim<A, B, K>>::Out>: Shape];
    [S: ConcatShapes<I>, V: ConcatSets, I] ConcatAll<S, V, I>: S::Out, V::Out;
    [S, V: Sets, I, P: SplitShapes<I, S>] CutAll<S, V, I, P>: <P::Out as FirstShape>::Shape, V, where [P::Out: FirstShape];
    [S: UnshardedShape + ReshapesTo<R>, V: Sets, R: UnshardedShape] Reshaped<S, V, R>: R, V;
    [S: DimAccess<I>, V: Sets, I, A, B] Factor<S, V, I, A, B>: <Put<S, I, <Nth<S, I> as Factored<A, B>>::Minor> as Insert<I, <Nth<S, I> as Factored<A, B>>::Major>>::Out, V,
        where [Nth<S, I>: Factored<A, B>, Put<S, I, <Nth<S, I> as Factored<A, B>>::Minor>: Insert<I, <Nth<S, I> as Factored<A, B>>::Major>];
    [S: DimAccess<I> + DimAccess<J>, V: Sets, I, J] Merge<S, V, I, J>: Put<<S as DimAccess<J>>::Removed, I, <Nth<S, I> as MergeDim<Nth<S, J>>>::Out>, V,
        where [Nth<S, I>: MergeDim<Nth<S, J>>, <S as DimAccess<J>>::Removed: DimAccess<I>, Put<<S as DimAccess<J>>::Removed, I, <Nth<S, I> as MergeDim<Nth<S, J>>>::Out>: Shape];
    [S: DimAccess<I>, V: CompleteSets, I] Along<S, V, I>: S, V, where [S::Dim: UnshardedDim];
    [S: DimAccess<I>, V: Sets, I] AlongSum<S, V, I>: S, V, where [S::Dim: UnshardedDim];
    [S: DimAccess<I>, V: Sets, I] Roll<S, V, I>: S, V;
    [S: DimAccess<I>, V: CompleteSets, I, K: Size] TopK<S, V, I, K>: Put<S, I, TDim<K>>, V, where [S::Dim: UnshardedDim + TopDim<K>, Put<S, I, TDim<K>>: Shape];
    [S: DimAccess<I>, V: CompleteSets, I, A, B] Padded<S, V, I, A, B>: Put<S, I, <Nth<S, I> as PadDim<A, B>>::Out>, V,
        where [Nth<S, I>: PadDim<A, B>, Put<S, I, <Nth<S, I> as PadDim<A, B>>::Out>: Shape];
    [S: DimAccess<I>, V: Sets, I, K] Tiled<S, V, I, K>: Put<S, I, <Nth<S, I> as TileDim<K>>::Out>, V,
        where [Nth<S, I>: TileDim<K>, Put<S, I, <Nth<S, I> as TileDim<K>>::Out>: Shape];
    [S: DimAccess<I>, V, R: TakeRhs<S, I>, W: JoinRhs<V>, I] Take<S, V, R, W, I>: TakeOf<S, R, I>, W::Out;
    [S: DimAccess<I>, V, R: IndicesOf<S, I>, W: JoinRhs<V>, I, P: Spec<TakeOf<S, R, I>> + DimsSpec] TakeTo<S, V, R, W, I, P>: P::Out, W::Out;
    [S: DimAccess<I>, V, R: AlignRhs<S, I>, W: JoinRhs<V>, I] TakeAlong<S, V, R, W, I>: R::Out, W::Out;
    [S: DimAccess<I>, V, R: AlignToRhs<S, I>, W: JoinRhs<V>, I, P: Spec<R::Out> + DimsSpec] TakeAlongTo<S, V, R, W, I, P>: P::Out, W::Out;
    [S: DimAccess<I>, V: CompleteSets, R: AtRhs<S, I>, W: JoinRhs<V>, I, U: UpdateOf<TakeOf<S, R, I>>, X: JoinRhs<W::Out>] Update<S, V, R, W, I, U, X>: S, X::Out;
    [S: Push<TDim<K>>, V: CompleteSets, K: Size] OneHot<S, V, K>: S::Out, V;
    [S: DiagonalShape, V: CompleteSets] Triangle<S, V>: S, V;
    [S: Shape, V: CompleteSets, A: VaryingAxes<V>] Psum<S, V, A>: S, A::Removed;
    [S: GatherAt<A, I>, V: CompleteSets, A: AddTo<V>, I] AllGather<S, V, A, I>: S::Out, A::Out;
    [S: ScatterAt<A, I>, V: CompleteSets, A: VaryingAxes<V>, I] PsumScatter<S, V, A, I>: S::Out, V;
    [S: ScatterAt<A, I>, V: CompleteSets, A: AddTo<V>, I: OtherDim<J>, J] AllToAll<S, V, A, I, J>: <S::Out as GatherAt<A, J>>::Out, A::Out, where [S::Out: GatherAt<A, J>];
    [S: Shape, V: CompleteSets, A: AddAxis<V>] Pvary<S, V, A>: S, A::Out;
    [S: Shape, V: Sets, A: Mark<V>] Pcast<S, V, A>: S, A::Varying;
    [S: Shape, V: ScalarSets] Number<S, V>: S, V;
    [A: MeshAxis + AddAxis<<<A as MeshAxis>::Mesh as MeshType>::Empty>] Index<A>: (), A::Out;
}
/// The first one of the shapes of the pieces of a split.
pub trait FirstShape {
    type Shape: Shape;
}
macro_rules! first { ($($($s:ident)+;)*) => { $(
    impl<A: Shape, $($s),+> FirstShape for (A, $($s),+) { type Shape = A; }
)* } }
first! { B; B C; B C D; B C D E; B C D E F; B C D E F G; B C D E F G H; }
/// The rule of `select`: the condition and both values broadcast.
pub struct Select<C, CV, A, AV, B, BV>(PhantomData<(C, CV, A, AV, B, BV)>);
impl<C, CV, A: SelectRhs<C>, AV: JoinRhs<CV>, B: SelectRhs<A::Out>, BV: JoinRhs<AV::Out>> Rule
    for Select<C, CV, A, AV, B, BV>
{
    type S = ZipOf<A::Out, B>;
    type V = BV::Out;
}
/// The rule of `stack`: both operands have one shape and sharding.
pub struct Stack<A, AV, B, BV, I>(PhantomData<(A, AV, B, BV, I)>);
impl<S: Insert<I, TDim<Num<2>>>, V, W: AddRhs<V>, I> Rule for Stack<S, V, S, W, I> {
    type S = S::Out;
    type V = W::Out;
}
/// The rule of a `shard_map` argument over the mesh `M`.
pub struct LocalOn<S, V, M>(PhantomData<(S, V, M)>);
impl<S: LocalShape<M>, M: MeshType> Rule for LocalOn<S, (), M> {
    type S = S::Local;
    type V = S::Vary;
}
pub struct GlobalOn<S, V, P, M>(PhantomData<(S, V, P, M)>);
impl<S: GlobalShape<P, M>, V: CoveredBy<S::Mentions>, P, M: MeshType> Rule for GlobalOn<S, V, P, M> {
    type S = S::Global;
    type V = ();
}
/// The shape of an einsum operand with one dim summed away.
pub type Summed<S, I> = <S as DimAccess<I>>::Removed;
