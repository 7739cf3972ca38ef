//! Sets of mesh axes over which a value varies, is an unreduced sum, or has been reduced.
//!
//! The sets of a value are one tuple type, with a slot for each axis of the mesh, in mesh order, so
//! equal sets are equal types. A slot is [`Invariant`], the axis itself (the value varies over it),
//! [`UnreducedSum`] or [`ReducedSum`].
//! Outside of `shard_map` the sets of a value are `()`, or [`GlobalSets`] of a set.

mod operands;

pub use operands::{
    CompleteFor, CompleteSets, CompleteSlot, CompleteValue, Completeness, ConvertsAs, Dual, DualSlot,
    InexactConversion, OnlyReduced, PartialSum, PlainSets, PositionSets, PositionSlot, ReducedSlot,
    ScalarSets, ScalarSlot,
};

use crate::axis::{MeshAxis, MeshInfo, MeshType, Unsharded, first_mesh};
use crate::sealed::{Seal, Sealed, SealedOrDeclared};
use core::marker::PhantomData;

/// The slot of an axis over which the value is equal on every device.
pub struct Invariant;
/// The slot of an axis along which each device has a partial value: the value is their sum.
pub struct UnreducedSum<A>(PhantomData<fn() -> A>);
/// The slot of an axis along which devices have equal values, and unreduced cotangents.
pub struct ReducedSum<A>(PhantomData<fn() -> A>);
/// The sets of a value outside of `shard_map` that is unreduced or reduced over an axis.
pub struct GlobalSets<S>(PhantomData<fn() -> S>);

/// The state of an axis in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The value varies over the axis.
    Varying,
    /// The value is an unreduced sum over the axis.
    Unreduced,
    /// The value has been reduced over the axis.
    Reduced,
}
/// The state of a value along one mesh axis, as a type: [`Invariant`], the axis itself (the value
/// varies over it), [`UnreducedSum`] or [`ReducedSum`].
pub trait AxisSlot: SealedOrDeclared + 'static {
    /// The completeness: that of an unreduced sum over the axis, or of any other value.
    type Completeness: Completeness;
    /// The axis and its state. `None` if the value is equal along the axis.
    const STATE: Option<(&'static str, State)>;
    /// The mesh of the axis. `None` if the value is equal along the axis.
    const MESH: Option<MeshInfo> = None;
}
impl AxisSlot for Invariant {
    type Completeness = CompleteValue;
    const STATE: Option<(&'static str, State)> = None;
}
impl<A: MeshAxis> AxisSlot for A {
    type Completeness = CompleteValue;
    const STATE: Option<(&'static str, State)> = Some((A::NAME, State::Varying));
    const MESH: Option<MeshInfo> = Some(A::Mesh::INFO);
}
impl<A: MeshAxis> AxisSlot for UnreducedSum<A> {
    type Completeness = PartialSum;
    const STATE: Option<(&'static str, State)> = Some((A::NAME, State::Unreduced));
    const MESH: Option<MeshInfo> = Some(A::Mesh::INFO);
}
impl<A: MeshAxis> AxisSlot for ReducedSum<A> {
    type Completeness = CompleteValue;
    const STATE: Option<(&'static str, State)> = Some((A::NAME, State::Reduced));
    const MESH: Option<MeshInfo> = Some(A::Mesh::INFO);
}

/// A slot that may become varying: empty, or already varying.
pub trait VaryingSlot: AxisSlot {}
impl VaryingSlot for Invariant {}
impl<A: MeshAxis> VaryingSlot for A {}

/// The sets of a typed array, its third parameter.
///
/// They are `()` outside of `shard_map`, otherwise a tuple with one slot for each mesh axis.
pub trait Sets: Sealed + 'static {
    /// The completeness: that of an unreduced sum over some axis, or of any other value.
    type Completeness: Completeness;
    /// The state of each slot, in mesh order.
    const STATES: &'static [Option<(&'static str, State)>];
    /// The mesh of the axes. `None` if the value is equal along all axes.
    const MESH: Option<MeshInfo> = None;
}
impl Sets for () {
    type Completeness = CompleteValue;
    const STATES: &'static [Option<(&'static str, State)>] = &[];
}
impl<S: Sets> Sets for GlobalSets<S> {
    type Completeness = S::Completeness;
    const STATES: &'static [Option<(&'static str, State)>] = S::STATES;
    const MESH: Option<MeshInfo> = S::MESH;
}

rule_traits! {
    /// A mesh axis that can be added to the set `V` as varying.
    message = "`{Self}` is not an axis of the mesh of this block, which varies over `{V}`",
    label = "expected an axis of the mesh whose `shard_map` this body belongs to",
    note = "mesh axes are types: `ppermute(X, ..)`, not `ppermute(\"X\", ..)`",
    note = "collectives are for code of one device: call them on the arguments of a `shard_map` body over the mesh of `{Self}`",
    pub trait AddAxis<V>: MeshAxis, sealed => Out: Sets, "The set with the axis added." {}
    /// A mesh axis that has a slot in the set `V`.
    pub trait SlotIn<V>: SealedOrDeclared, sealed => Slot: AxisSlot, "The slot." {}
    /// A mesh axis over which a value with the set `V` varies.
    pub trait Member<V>: MeshAxis, sealed => Removed: Sets, "The set without the axis." {}
    /// An axis along which a program for one device can communicate. No type implements this trait:
    /// it is the bound of the impls for sets outside of `shard_map`, and its message is theirs.
    message = "a collective over mesh axis `{Self}` is for the body of a `shard_map`, and this array is outside of any",
    label = "outside of a `shard_map`",
    note = "outside, operations work on the whole array: `x.sum(D0)` sums over a dim, sharded or not, and `x.reshard(P![..])` moves data or makes an unreduced sum",
    note = "in a body: `Pod.shard_map((x,), P![..], |(x,)| x.psum({Self}))`",
    pub trait InBody: MeshAxis {}
}
macro_rules! outside_of_bodies { ($([$($g:ident)?] $sets:ty;)*) => { $(
    impl<A: InBody $(, $g)?> Member<$sets> for A { const SEAL: Seal = Seal; type Removed = (); }
    impl<A: InBody $(, $g)?> AddAxis<$sets> for A { const SEAL: Seal = Seal; type Out = (); }
)* } }
outside_of_bodies! { [] (); [V] GlobalSets<V>; }
/// An axis whose slot in `V` is [`Invariant`].
///
/// The slot may become varying, [`UnreducedSum`] or [`ReducedSum`].
#[diagnostic::on_unimplemented(
    message = "a value with the sets `{V}` cannot be made to vary over mesh axis `{Self}`",
    label = "it varies over `{Self}` already, or is outside of a `shard_map` over its mesh"
)]
pub trait Mark<V>: SealedOrDeclared {
    seal!();
    /// The set with the axis varying.
    type Varying: Sets;
    /// The set with the axis unreduced.
    type Unreduced: Sets;
    /// The set with the axis reduced.
    type Reduced: Sets;
}
/// A sharding whose axes can be added to the set `V` as varying.
pub trait AddTo<V>: SealedOrDeclared {
    seal!();
    /// The set with the axes added.
    type Out: Sets;
}
type AddAxisOf<V, A> = <A as AddAxis<V>>::Out;
rules! { Out:
    sealed [V: Sets] Unsharded: AddTo<V> = V;
    sealed [V, A: AddAxis<V>] A: AddTo<V> = AddAxisOf<V, A>;
    sealed [V, A: AddAxis<V>] (A,): AddTo<V> = AddAxisOf<V, A>;
    sealed [V, A: AddAxis<V>, B: AddAxis<AddAxisOf<V, A>>] (A, B): AddTo<V>
        = AddAxisOf<AddAxisOf<V, A>, B>;
}
impl<V, A: AddAxis<V>, B: AddAxis<AddAxisOf<V, A>>, C: AddAxis<AddAxisOf<AddAxisOf<V, A>, B>>> AddTo<V>
    for (A, B, C)
{
    const SEAL: Seal = Seal;
    type Out = AddAxisOf<AddAxisOf<AddAxisOf<V, A>, B>, C>;
}
/// Axes that can be marked as unreduced or as reduced in the set `V`, as `U: X` and `R: X` write.
pub trait MarkIn<V>: Sealed {
    /// The set with the axes unreduced.
    type Unreduced: Sets;
    /// The set with the axes reduced.
    type Reduced: Sets;
}
impl<V: Sets> MarkIn<V> for () {
    type Unreduced = V;
    type Reduced = V;
}
impl<V, A: Mark<V>> MarkIn<V> for (A,) {
    type Unreduced = A::Unreduced;
    type Reduced = A::Reduced;
}
impl<V, A: Mark<V>, B: Mark<A::Unreduced> + Mark<A::Reduced>> MarkIn<V> for (A, B) {
    type Unreduced = <B as Mark<A::Unreduced>>::Unreduced;
    type Reduced = <B as Mark<A::Reduced>>::Reduced;
}
rule_traits! {
    /// A sharding whose axes can be marked as unreduced in the set `V`.
    pub trait UnreduceIn<V>: SealedOrDeclared, sealed => Out: Sets, "The set with the axes unreduced." {
        sealed [V: Sets] Unsharded: UnreduceIn<V> = V;
        sealed [V, A: MeshAxis + Mark<V>] A: UnreduceIn<V> = A::Unreduced;
        sealed [V, A: MeshAxis + Mark<V>, B: Mark<A::Unreduced>] (A, B): UnreduceIn<V> = B::Unreduced;
    }
}
impl<V, A: MeshAxis + Mark<V>, B: Mark<A::Unreduced>, C: Mark<B::Unreduced>> UnreduceIn<V> for (A, B, C) {
    const SEAL: Seal = Seal;
    type Out = C::Unreduced;
}

/// Mesh axes over which a value with the sets `V` varies: `X` or `(X, Y)`.
#[diagnostic::on_unimplemented(
    message = "a collective over `{Self}` needs a value that varies over each of these mesh axes; this one varies over `{V}`",
    label = "name each axis once, of those over which devices hold different values: `X`, `(X, Y)`",
    note = "`Invariant` is an axis along which every device already holds the same value: `.pvary(X)` first if each copy is to count as a separate value",
    note = "mesh axes are types: `psum(X)`, not `psum(\"X\")`"
)]
pub trait VaryingAxes<V>: SealedOrDeclared {
    seal!();
    /// The set without the axes.
    type Removed: Sets;
    /// The names of the axes.
    const NAMES: &'static [&'static str];
}
#[diagnostic::do_not_recommend]
impl<V, A: Member<V>> VaryingAxes<V> for A {
    const SEAL: Seal = Seal;
    type Removed = <A as Member<V>>::Removed;
    const NAMES: &'static [&'static str] = &[A::NAME];
}
type RemovedAxis<V, A> = <A as Member<V>>::Removed;
#[diagnostic::do_not_recommend]
impl<V, A: Member<V>, B: Member<RemovedAxis<V, A>>> VaryingAxes<V> for (A, B) {
    const SEAL: Seal = Seal;
    type Removed = RemovedAxis<RemovedAxis<V, A>, B>;
    const NAMES: &'static [&'static str] = &[A::NAME, B::NAME];
}
#[diagnostic::do_not_recommend]
impl<V, A: Member<V>, B: Member<RemovedAxis<V, A>>, C: Member<RemovedAxis<RemovedAxis<V, A>, B>>>
    VaryingAxes<V> for (A, B, C)
{
    const SEAL: Seal = Seal;
    type Removed = RemovedAxis<RemovedAxis<RemovedAxis<V, A>, B>, C>;
    const NAMES: &'static [&'static str] = &[A::NAME, B::NAME, C::NAME];
}

rule_traits! {
    /// The result slot of two operands.
    /// Both may vary; an unreduced sum cannot be combined with anything.
    message = "this operation cannot take operands that are `{Self}` and `{B}` over one mesh axis",
    label = "`{Self}` meets `{B}`",
    note = "`UnreducedSum<X>` is a sum over `X` that has not been made: make it with `reshard(P![..])`, which is an all-reduce or, with `X` on a dim, a reduce-scatter",
    note = "`Invariant` is an axis over which the value is the same everywhere; two unreduced sums may be added, and one may be multiplied by a `ReducedSum` value",
    pub trait JoinSlot<B>: SealedOrDeclared, sealed => Out: AxisSlot, "The slot of the result." {}
    /// The rule of [`JoinSlot`] for sums and differences.
    message = "a sum over a mesh axis that has not been made (`{Self}`) cannot be added to `{B}`",
    label = "`{Self}` meets `{B}`",
    note = "two unreduced sums over the same axes may be added; make the sum first otherwise: `.reshard(P![..])`",
    pub trait AddSlot<B>: SealedOrDeclared, sealed => Out: AxisSlot, "The slot of the result." {}
    /// The rule of [`JoinSlot`] for elementwise products.
    message = "a sum over a mesh axis that has not been made (`{Self}`) cannot be multiplied by `{B}`",
    label = "`{Self}` meets `{B}`",
    note = "an unreduced value may be multiplied by one that is `ReducedSum` over the same axis; make the sum first otherwise: `.reshard(P![..])`",
    pub trait MulSlot<B>: SealedOrDeclared, sealed => Out: AxisSlot, "The slot of the result." {}
    /// The rule of [`JoinSlot`] for matrix products.
    message = "a product of matrices cannot take operands that are `{Self}` and `{B}` over one mesh axis",
    label = "`{Self}` meets `{B}`",
    note = "in a body of `shard_map`, a `ReducedSum` value may be multiplied by a `ReducedSum` or an `UnreducedSum` one; make a sum first: `.psum(X)`",
    pub trait ProductSlot<B>: SealedOrDeclared, sealed => Out: AxisSlot, "The slot of the result." {}
}
macro_rules! join { ($($t:ident)*) => { $(
    impl $t<Invariant> for Invariant { const SEAL: Seal = Seal; type Out = Invariant; }
    impl<A: MeshAxis> $t<A> for Invariant { const SEAL: Seal = Seal; type Out = A; }
    #[diagnostic::do_not_recommend]
    impl<A: MeshAxis> $t<Invariant> for A { const SEAL: Seal = Seal; type Out = A; }
    #[diagnostic::do_not_recommend]
    impl<A: MeshAxis> $t<A> for A { const SEAL: Seal = Seal; type Out = A; }
)* } }
join!(JoinSlot AddSlot MulSlot ProductSlot);
// a reduced value is equal on all devices, so with a varying value the result varies
macro_rules! reduced_varying { ($($t:ident)*) => { $(
    #[diagnostic::do_not_recommend]
    impl<A: MeshAxis> $t<ReducedSum<A>> for A { const SEAL: Seal = Seal; type Out = A; }
    impl<A: MeshAxis> $t<A> for ReducedSum<A> { const SEAL: Seal = Seal; type Out = A; }
)* } }
reduced_varying!(JoinSlot AddSlot MulSlot ProductSlot);
macro_rules! reduced { ($($t:ident)*) => { $(
    impl<A: MeshAxis> $t<ReducedSum<A>> for ReducedSum<A> { const SEAL: Seal = Seal; type Out = ReducedSum<A>; }
)* } }
reduced!(JoinSlot AddSlot MulSlot ProductSlot);
rules! { Out: sealed [A: MeshAxis] UnreducedSum<A>: AddSlot<UnreducedSum<A>> = UnreducedSum<A>; }
macro_rules! factor { ($($t:ident)*) => { $(
    impl<A: MeshAxis> $t<ReducedSum<A>> for UnreducedSum<A> { const SEAL: Seal = Seal; type Out = UnreducedSum<A>; }
    impl<A: MeshAxis> $t<UnreducedSum<A>> for ReducedSum<A> { const SEAL: Seal = Seal; type Out = UnreducedSum<A>; }
)* } }
factor!(MulSlot ProductSlot);

macro_rules! rhs { ($($(#[$doc:meta])* $rhs:ident $of:ident $slot:ident;)*) => { $(
    $(#[$doc])*
    #[diagnostic::on_unimplemented(
        message = "the operands vary, or are unreduced or reduced, over other mesh axes: `{V}` on the left and `{Self}` on the right",
        label = "`{V}` meets `{Self}`",
        note = "`()` is a plain array outside of `shard_map`; `GlobalSets<..>` is one that is `UnreducedSum` or `ReducedSum` over an axis; other tuples are blocks in a body",
        note = "outside: `.reshard(P![..])` makes an unreduced sum, and a reduced array plain; `.reshard(P![..; R: X])` makes a plain array reduced",
        note = "a block does not meet an array of outside: pass the array to `shard_map` as an argument"
    )]
    pub trait $rhs<V>: Sealed {
        /// The sets of the result.
        type Out: Sets;
    }
    impl $rhs<()> for () { type Out = (); }
    /// The sets of the result, for operands with the sets `V` and `W`.
    pub type $of<V, W> = <W as $rhs<V>>::Out;
)* } }
rhs! {
    /// The sets of the right operand of an elementwise operation.
    JoinRhs JoinOf JoinSlot;
    /// The sets of the right operand of a sum.
    AddRhs AddOf AddSlot;
    /// The sets of the right operand of an elementwise product.
    MulRhs MulOf MulSlot;
    /// The sets of the right operand of a matrix product.
    ProductRhs ProductOf ProductSlot;
}
macro_rules! outside { ($($rhs:ident)*) => { $(
    impl<V, W: $rhs<V>> $rhs<GlobalSets<V>> for GlobalSets<W> { type Out = GlobalSets<W::Out>; }
)* } }
outside!(JoinRhs AddRhs MulRhs);
// outside of `shard_map`, a matrix product takes plain or reduced operands, and its result is plain
impl<V: OnlyReduced, W: OnlyReduced> ProductRhs<GlobalSets<V>> for GlobalSets<W> {
    type Out = ();
}
rules! { Out:
    [V: OnlyReduced] (): ProductRhs<GlobalSets<V>> = ();
    [W: OnlyReduced] GlobalSets<W>: ProductRhs<()> = ();
}

rule_traits! {
    /// Sets (`Self`) of a value that may leave a `shard_map` whose out spec names the axes of `V`.
    ///
    /// `V` must contain every axis over which the value varies.
    message = "the body of a `shard_map` returns an array that is no block of its mesh: its sets are `{Self}`",
    label = "an array of outside, of another mesh, or an unreduced one",
    note = "pass arrays of outside to `shard_map` as arguments, and return what the body computes from its blocks",
    pub trait CoveredBy<V>: Sealed {}
    /// The slot of a value that may leave a `shard_map`: empty, or an axis that the out spec names.
    message = "this output still varies over mesh axis `{Self}`, which its out spec does not mention",
    label = "devices along `{Self}` hold different values, so there is no one global value",
    note = "reduce it first (`.psum({Self})`), or name `{Self}` in the out spec of a dim, which puts the parts side by side",
    pub trait Mentioned<B>: SealedOrDeclared, sealed {
        sealed [B] Invariant: Mentioned<B>;
        sealed [A: MeshAxis] A: Mentioned<A>;
    }
}

/// The completeness of a value with these slots.
macro_rules! completeness {
    ($a:ident) => { $a::Completeness };
    ($a:ident $($b:ident)+) => { <$a::Completeness as Completeness>::And<completeness!($($b)+)> };
}
macro_rules! sets { ($($a:ident $b:ident)*) => {
    impl<$($a: AxisSlot),*> Sets for ($($a,)*) {
        type Completeness = completeness!($($a)*);
        const STATES: &'static [Option<(&'static str, State)>] = &[$($a::STATE),*];
        const MESH: Option<MeshInfo> = first_mesh(&[$($a::MESH),*]);
    }
    sets!(@ JoinRhs JoinSlot; $($a $b)*);
    sets!(@ AddRhs AddSlot; $($a $b)*);
    sets!(@ MulRhs MulSlot; $($a $b)*);
    sets!(@ ProductRhs ProductSlot; $($a $b)*);
    impl<$($a: Mentioned<$b>, $b),*> CoveredBy<($($b,)*)> for ($($a,)*) {}
};
(@ $rhs:ident $slot:ident; $($a:ident $b:ident)*) => {
    impl<$($a: $slot<$b>, $b),*> $rhs<($($a,)*)> for ($($b,)*) { type Out = ($($a::Out,)*); }
} }
prefixes! { sets [A B] (C D) (E F) (G H) (I J) (K L) }
