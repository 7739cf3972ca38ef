//! The region of a `shard_map`: a mesh, and which of its axes are manual.

use crate::axis::{DistinctAxis, HasAxis, MeshAxis, MeshType, Shard, Unsharded};
use crate::sealed::{Seal, SealedOrDeclared};
use crate::sets::{
    AddAxis, AddRhs, AddTo, CompleteSets, CoveredBy, Invariant, JoinRhs, Member, MulRhs, ProductRhs,
    ScalarSets, Sets, SlotIn,
};
use core::marker::PhantomData;

/// The region of a `shard_map`: a mesh, of which all axes are manual, or a [`PartialRegion`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mesh",
    label = "not a mesh",
    note = "declare one: `mesh! {{ pub struct Pod {{ X: 2, Y: 4 }} }}`"
)]
pub trait ManualRegion: SealedOrDeclared + Copy + 'static {
    /// The mesh.
    type Mesh: MeshType;
    /// The sets of a value that is equal on every device.
    type Empty: Sets;
    /// Returns the names of the manual axes; `None` if all axes of the mesh are manual.
    fn manual_axes() -> Option<Vec<&'static str>>;
}
impl<M: MeshType> ManualRegion for M {
    type Mesh = M;
    type Empty = M::Empty;
    fn manual_axes() -> Option<Vec<&'static str>> {
        None
    }
}
/// A mesh `M`, of which the axes of the set `F` are manual: the value of `Pod.over(X)`.
pub struct PartialRegion<M, F>(PhantomData<fn() -> (M, F)>);
impl<M, F> PartialRegion<M, F> {
    /// The only value.
    pub const VALUE: Self = PartialRegion(PhantomData);
}
impl<M, F> Clone for PartialRegion<M, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M, F> Copy for PartialRegion<M, F> {}
impl<M: MeshType, F: Sets> ManualRegion for PartialRegion<M, F> {
    type Mesh = M;
    type Empty = M::Empty;
    fn manual_axes() -> Option<Vec<&'static str>> {
        Some(F::STATES.iter().flatten().map(|s| s.0).collect())
    }
}
#[diagnostic::do_not_recommend]
impl<A: Member<F>, M, F> HasAxis<A> for PartialRegion<M, F> {
    const SEAL: Seal = Seal;
}

/// Axes over which a `shard_map` is manual: `X`, or `(X, Y)`. `E` is the empty set of the mesh.
#[diagnostic::on_unimplemented(
    message = "a `shard_map` cannot be over `{Self}`",
    label = "expected axes of the mesh, each once, at most three: `X`, `(X, Y)`"
)]
pub trait RegionAxes<E>: AddTo<E> {}
impl<E, A: MeshAxis + AddAxis<E>> RegionAxes<E> for A {}
impl<E, A: MeshAxis + DistinctAxis<B>, B: MeshAxis> RegionAxes<E> for (A, B) where Self: AddTo<E> {}
impl<E, A, B, C> RegionAxes<E> for (A, B, C)
where
    Self: AddTo<E>,
    A: MeshAxis + DistinctAxis<B> + DistinctAxis<C>,
    B: MeshAxis + DistinctAxis<C>,
    C: MeshAxis,
{
}

/// A sharding, split into the axes of the set `F`, which are manual, and the other axes.
#[diagnostic::on_unimplemented(
    message = "a dim sharded over `{Self}` cannot be cut into blocks over the axes `{F}`",
    label = "the manual axes of a dim come before its other axes",
    note = "`reshard` it first, with the manual axes in front"
)]
pub trait CutShard<F>: Shard {
    /// The manual axes.
    type Manual: Shard;
    /// The axes that shard the dim in the body.
    type Rest: Shard;
}
impl<F> CutShard<F> for Unsharded {
    type Manual = Unsharded;
    type Rest = Unsharded;
}
impl<A: MeshAxis + SlotIn<F>, F> CutShard<F> for A
where
    A::Slot: CutSlots<A>,
{
    type Manual = <A::Slot as CutSlots<A>>::Manual;
    type Rest = <A::Slot as CutSlots<A>>::Rest;
}
impl<A: MeshAxis + SlotIn<F>, B: MeshAxis + SlotIn<F>, F> CutShard<F> for (A, B)
where
    (A::Slot, B::Slot): CutSlots<(A, B)>,
{
    type Manual = <(A::Slot, B::Slot) as CutSlots<(A, B)>>::Manual;
    type Rest = <(A::Slot, B::Slot) as CutSlots<(A, B)>>::Rest;
}
impl<A: MeshAxis + SlotIn<F>, B: MeshAxis + SlotIn<F>, C: MeshAxis + SlotIn<F>, F> CutShard<F> for (A, B, C)
where
    (A::Slot, B::Slot, C::Slot): CutSlots<(A, B, C)>,
{
    type Manual = <(A::Slot, B::Slot, C::Slot) as CutSlots<(A, B, C)>>::Manual;
    type Rest = <(A::Slot, B::Slot, C::Slot) as CutSlots<(A, B, C)>>::Rest;
}
/// The slots of the axes `S` in the set of manual axes: an axis is in it, or its slot is
/// [`Invariant`].
#[diagnostic::on_unimplemented(
    message = "a dim sharded over `{S}` cannot be cut into blocks: its manual axes are `{Self}`",
    label = "the manual axes of a dim come before its other axes",
    note = "`reshard` it first, with the manual axes in front"
)]
pub trait CutSlots<S>: SealedOrDeclared {
    seal!();
    /// The manual axes.
    type Manual: Shard;
    /// The other axes.
    type Rest: Shard;
}
macro_rules! cut_slots { ($([$($a:ident)+] $axes:ty: $slots:ty => $manual:ty, $rest:ty;)*) => { $(
    impl<$($a: MeshAxis),+> CutSlots<$axes> for $slots {
        const SEAL: Seal = Seal;
        type Manual = $manual;
        type Rest = $rest;
    }
)* } }
cut_slots! {
    [A] A: A => A, Unsharded;
    [A] A: Invariant => Unsharded, A;
    [A B] (A, B): (A, B) => (A, B), Unsharded;
    [A B] (A, B): (A, Invariant) => A, B;
    [A B] (A, B): (Invariant, Invariant) => Unsharded, (A, B);
    [A B C] (A, B, C): (A, B, C) => (A, B, C), Unsharded;
    [A B C] (A, B, C): (A, B, Invariant) => (A, B), C;
    [A B C] (A, B, C): (A, Invariant, Invariant) => A, (B, C);
    [A B C] (A, B, C): (Invariant, Invariant, Invariant) => Unsharded, (A, B, C);
}
rule_traits! {
    /// Axes of an out spec, with the axes `R` that shard the block's dim after them.
    message = "a dim cannot be sharded over `{Self}` and then `{R}`",
    label = "a dim is sharded over at most three axes",
    pub trait Leading<R>: Shard, sealed => Joined: Shard, "The axes of both." {
        sealed [R: Shard] Unsharded: Leading<R> = R;
    }
}
macro_rules! leading { ($([$($a:ident)+] $first:ty, $rest:ty => $joined:ty;)*) => { $(
    impl<$($a: MeshAxis),+> Leading<$rest> for $first {
        const SEAL: Seal = Seal;
        type Joined = $joined;
    }
)* } }
leading! {
    [A] A, Unsharded => A;
    [A B] A, B => (A, B);
    [A B C] A, (B, C) => (A, B, C);
    [A B] (A, B), Unsharded => (A, B);
    [A B C] (A, B), C => (A, B, C);
    [A B C] (A, B, C), Unsharded => (A, B, C);
}

/// The sets of a value that is equal on every device: those of an array that a body creates.
#[diagnostic::on_unimplemented(
    message = "an array that is created in a `shard_map` body is equal on every device, not of the sets `{V}`",
    label = "`{Self}` is the sets of such an array: `T![f32; 4; in Pod]`",
    note = "an array that varies over an axis is made of it: `.pvary(X)`"
)]
pub trait InvariantSets<V>: Sets {}
impl<V: Sets> InvariantSets<V> for V {}

/// Sets of a value in a body that is not an unreduced sum: operations on two such values keep them.
pub trait BodySets:
    CompleteSets
    + ScalarSets
    + CoveredBy<Self>
    + JoinRhs<Self, Out = Self>
    + AddRhs<Self, Out = Self>
    + MulRhs<Self, Out = Self>
    + ProductRhs<Self, Out = Self>
    + Sized
{
}
impl<V> BodySets for V where
    V: CompleteSets
        + ScalarSets
        + CoveredBy<V>
        + JoinRhs<V, Out = V>
        + AddRhs<V, Out = V>
        + MulRhs<V, Out = V>
        + ProductRhs<V, Out = V>
{
}
/// Sets that give `W` in operations whose other operand has the sets `V`.
pub trait GivesWith<V, W>:
    JoinRhs<V, Out = W> + AddRhs<V, Out = W> + MulRhs<V, Out = W> + ProductRhs<V, Out = W>
{
}
impl<E, V, W> GivesWith<V, W> for E where
    E: JoinRhs<V, Out = W> + AddRhs<V, Out = W> + MulRhs<V, Out = W> + ProductRhs<V, Out = W>
{
}
type InvariantOf<M> = <M as MeshType>::Empty;
type VaryingOver<A, M> = <A as AddAxis<InvariantOf<M>>>::Out;
/// An axis of the mesh `M`, in code that is generic over meshes and has a `shard_map`.
///
/// Values in the body are equal along all axes, or vary over this one. `X::AXIS` is the axis as a
/// value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an axis of the mesh `{M}`",
    label = "expected an axis of `{M}`",
    note = "in a generic function: `M: MeshType, X: ManualAxis<M>`"
)]
pub trait ManualAxis<M: MeshType>:
    MeshAxis<Mesh = M>
    + MeshAxis<
        Mesh: HasAxis<Self>
                  + MeshType<
            Empty: BodySets
                       + GivesWith<VaryingOver<Self, M>, VaryingOver<Self, M>>
                       + CoveredBy<VaryingOver<Self, M>>,
        >,
    > + AddAxis<InvariantOf<M>, Out: BodySets + GivesWith<InvariantOf<M>, VaryingOver<Self, M>>>
    + Member<VaryingOver<Self, M>, Removed = InvariantOf<M>>
{
}
impl<A, M: MeshType> ManualAxis<M> for A
where
    A: MeshAxis<Mesh = M>
        + AddAxis<InvariantOf<M>, Out: BodySets + GivesWith<InvariantOf<M>, VaryingOver<A, M>>>
        + Member<VaryingOver<A, M>, Removed = InvariantOf<M>>,
    M: HasAxis<A>,
    InvariantOf<M>: BodySets + GivesWith<VaryingOver<A, M>, VaryingOver<A, M>> + CoveredBy<VaryingOver<A, M>>,
{
}
