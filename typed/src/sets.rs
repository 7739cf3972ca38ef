//! Sets of mesh axes: over which a value varies from device to device, is an unreduced sum, or has been reduced.
//!
//! A set has one slot for each axis of the mesh, in mesh order, so that one set has one spelling. A slot is [`No`], the axis itself (the
//! value varies over it), [`Unreduced`] or [`Reduced`]. Outside of `shard_map` a value has `()`, or [`Outside`] of a set.

use crate::axis::{MeshAxis, Whole};
use core::marker::PhantomData;

/// The slot of an axis over which the value is the same on every device.
pub struct No;
/// The slot of an axis along which each device has a summand: the value is their sum.
pub struct Unreduced<A>(PhantomData<fn() -> A>);
/// The slot of an axis along which devices have the same value, whose cotangent is unreduced.
pub struct Reduced<A>(PhantomData<fn() -> A>);
/// The sets of a value outside of `shard_map` that is unreduced or reduced over an axis.
pub struct Outside<S>(PhantomData<fn() -> S>);

/// What a slot says of its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The value varies over it.
    Varying,
    /// The value is a sum over it that has not been made.
    Unreduced,
    /// The value has been reduced over it.
    Reduced,
}
/// One slot.
pub trait Slot: 'static {
    /// The axis and what is said of it.
    const STATE: Option<(&'static str, State)>;
}
impl Slot for No {
    const STATE: Option<(&'static str, State)> = None;
}
impl<A: MeshAxis> Slot for A {
    const STATE: Option<(&'static str, State)> = Some((A::NAME, State::Varying));
}
impl<A: MeshAxis> Slot for Unreduced<A> {
    const STATE: Option<(&'static str, State)> = Some((A::NAME, State::Unreduced));
}
impl<A: MeshAxis> Slot for Reduced<A> {
    const STATE: Option<(&'static str, State)> = Some((A::NAME, State::Reduced));
}

/// A slot that may become varying: empty, or varying already.
pub trait VaryingSlot: Slot {}
impl VaryingSlot for No {}
impl<A: MeshAxis> VaryingSlot for A {}

/// The third parameter of a typed array: `()` outside of `shard_map`, else a set with a slot for each axis of the mesh.
pub trait Sets: 'static {
    /// What each slot says, in mesh order.
    const STATES: &'static [Option<(&'static str, State)>];
}
impl Sets for () {
    const STATES: &'static [Option<(&'static str, State)>] = &[];
}
impl<S: Sets> Sets for Outside<S> {
    const STATES: &'static [Option<(&'static str, State)>] = S::STATES;
}

/// A mesh axis whose slot can be set in `V`.
#[diagnostic::on_unimplemented(
    message = "`{V}` is not a set of axes of the mesh of `{Self}`",
    label = "inside another mesh's `shard_map`, or outside any",
    note = "collectives are for code of one device: call them on the arguments of a `shard_map` body over this mesh"
)]
pub trait AddAxis<V> {
    /// The set with the axis in it.
    type Out: Sets;
}
/// An axis with its slot set in `V`.
pub trait Member<V> {
    /// The set without it.
    type Removed: Sets;
}
/// An axis whose slot is [`No`] in `V`, and may become varying, [`Unreduced`] or [`Reduced`].
#[diagnostic::on_unimplemented(
    message = "a value with the sets `{V}` cannot be made to vary over mesh axis `{Self}`",
    label = "it varies over `{Self}` already, or is outside of a `shard_map` over its mesh"
)]
pub trait Mark<V> {
    /// The set where the value varies over the axis.
    type Varying: Sets;
    /// The set where the value is unreduced over the axis.
    type Unreduced: Sets;
    /// The set where the value is reduced over the axis.
    type Reduced: Sets;
}
/// The axis set `V` with the axes of a dim's sharding added.
pub trait AddTo<V> {
    /// The set.
    type Out: Sets;
}
type Plus<V, A> = <A as AddAxis<V>>::Out;
impl<V: Sets> AddTo<V> for Whole {
    type Out = V;
}
impl<V, A: MeshAxis + AddAxis<V>> AddTo<V> for A {
    type Out = Plus<V, A>;
}
impl<V, A: MeshAxis + AddAxis<V>> AddTo<V> for (A,) {
    type Out = Plus<V, A>;
}
impl<V, A: MeshAxis + AddAxis<V>, B: MeshAxis + AddAxis<Plus<V, A>>> AddTo<V> for (A, B) {
    type Out = Plus<Plus<V, A>, B>;
}
impl<
    V,
    A: MeshAxis + AddAxis<V>,
    B: MeshAxis + AddAxis<Plus<V, A>>,
    C: MeshAxis + AddAxis<Plus<Plus<V, A>, B>>,
> AddTo<V> for (A, B, C)
{
    type Out = Plus<Plus<Plus<V, A>, B>, C>;
}
/// The set `V` with axes marked as unreduced, or as reduced: what `U: X` and `R: X` write.
pub trait MarkIn<V> {
    /// With the axes unreduced.
    type Unreduced: Sets;
    /// With the axes reduced.
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

/// A set that varies over axis `A`.
#[diagnostic::on_unimplemented(
    message = "a sum over mesh axis `{A}` needs a value that varies over `{A}`; this one varies over `{Self}`",
    label = "every device along `{A}` already holds the same value",
    note = "`()` is outside of `shard_map`; `No` is an axis that the value does not vary over",
    note = "if each device's copy is to count as a value of its own, write `.pvary({A})` first"
)]
pub trait Varies<A> {
    /// The set without it.
    type Less: Sets;
}
#[diagnostic::do_not_recommend]
impl<V, A: Member<V>> Varies<A> for V {
    type Less = A::Removed;
}

/// Mesh axes that a value with the sets `V` varies over: `X`, `(X, Y)`.
#[diagnostic::on_unimplemented(
    message = "a sum over `{Self}` needs a value that varies over each of these mesh axes; this one varies over `{V}`",
    label = "name each axis once, of those over which devices hold different values: `X`, `(X, Y)`",
    note = "`()` is outside of `shard_map`; `No` is an axis that the value does not vary over"
)]
pub trait Over<V> {
    /// The set without them.
    type Less: Sets;
    /// Their names.
    const NAMES: &'static [&'static str];
}
#[diagnostic::do_not_recommend]
impl<V: Varies<A>, A: MeshAxis> Over<V> for A {
    type Less = V::Less;
    const NAMES: &'static [&'static str] = &[A::NAME];
}
impl<V: Varies<A, Less: Varies<B>>, A: MeshAxis, B: MeshAxis> Over<V> for (A, B) {
    type Less = <V::Less as Varies<B>>::Less;
    const NAMES: &'static [&'static str] = &[A::NAME, B::NAME];
}
impl<V: Varies<A, Less: Varies<B, Less: Varies<C>>>, A: MeshAxis, B: MeshAxis, C: MeshAxis> Over<V>
    for (A, B, C)
{
    type Less = <<V::Less as Varies<B>>::Less as Varies<C>>::Less;
    const NAMES: &'static [&'static str] = &[A::NAME, B::NAME, C::NAME];
}

/// Where two operands meet in one slot: both may vary; sums that have not been made may not meet anything.
#[diagnostic::on_unimplemented(
    message = "this operation cannot take operands that are `{Self}` and `{B}` over one mesh axis",
    label = "`{Self}` meets `{B}`",
    note = "`Unreduced<X>` is a sum over `X` that has not been made: make it with `reshard(P![..])`, which is an all-reduce or, with `X` on a dim, a reduce-scatter",
    note = "`No` is an axis over which the value is the same everywhere; two unreduced sums may be added, and one may be multiplied by a `Reduced` value"
)]
pub trait JoinSlot<B> {
    /// The slot of the result.
    type Out: Slot;
}
/// [`JoinSlot`] for sums and differences.
#[diagnostic::on_unimplemented(
    message = "a sum over a mesh axis that has not been made (`{Self}`) cannot be added to `{B}`",
    label = "`{Self}` meets `{B}`",
    note = "two unreduced sums over the same axes may be added; make the sum first otherwise: `.reshard(P![..])`"
)]
pub trait AddSlot<B> {
    /// The slot of the result.
    type Out: Slot;
}
/// [`JoinSlot`] for products of elements.
#[diagnostic::on_unimplemented(
    message = "a sum over a mesh axis that has not been made (`{Self}`) cannot be multiplied by `{B}`",
    label = "`{Self}` meets `{B}`",
    note = "an unreduced value may be multiplied by one that is `Reduced` over the same axis; make the sum first otherwise: `.reshard(P![..])`"
)]
pub trait MulSlot<B> {
    /// The slot of the result.
    type Out: Slot;
}
/// [`JoinSlot`] for products of matrices.
#[diagnostic::on_unimplemented(
    message = "a sum over a mesh axis that has not been made (`{Self}`, `{B}`) cannot be an operand of a product of matrices",
    label = "`{Self}` meets `{B}`",
    note = "make the sum first: `.reshard(P![..])`"
)]
pub trait ProductSlot<B> {
    /// The slot of the result.
    type Out: Slot;
}
macro_rules! join { ($($t:ident)*) => { $(
    impl $t<No> for No { type Out = No; }
    impl<A: MeshAxis> $t<A> for No { type Out = A; }
    #[diagnostic::do_not_recommend]
    impl<A: MeshAxis> $t<No> for A { type Out = A; }
    #[diagnostic::do_not_recommend]
    impl<A: MeshAxis> $t<A> for A { type Out = A; }
)* } }
join!(JoinSlot AddSlot MulSlot ProductSlot);
// of devices that differ, a reduced value is one that may differ
macro_rules! reduced_varying { ($($t:ident)*) => { $(
    #[diagnostic::do_not_recommend]
    impl<A: MeshAxis> $t<Reduced<A>> for A { type Out = A; }
    impl<A: MeshAxis> $t<A> for Reduced<A> { type Out = A; }
)* } }
reduced_varying!(JoinSlot AddSlot MulSlot ProductSlot);
macro_rules! reduced { ($($t:ident)*) => { $(
    impl<A: MeshAxis> $t<Reduced<A>> for Reduced<A> { type Out = Reduced<A>; }
)* } }
reduced!(JoinSlot AddSlot MulSlot);
impl<A: MeshAxis> AddSlot<Unreduced<A>> for Unreduced<A> {
    type Out = Unreduced<A>;
}
impl<A: MeshAxis> MulSlot<Reduced<A>> for Unreduced<A> {
    type Out = Unreduced<A>;
}
impl<A: MeshAxis> MulSlot<Unreduced<A>> for Reduced<A> {
    type Out = Unreduced<A>;
}
// a product takes a reduced operand as a plain one
impl<A: MeshAxis> ProductSlot<Reduced<A>> for No {
    type Out = No;
}
impl<A: MeshAxis> ProductSlot<No> for Reduced<A> {
    type Out = No;
}
impl<A: MeshAxis> ProductSlot<Reduced<A>> for Reduced<A> {
    type Out = No;
}

macro_rules! rhs { ($($(#[$doc:meta])* $rhs:ident $of:ident $slot:ident;)*) => { $(
    $(#[$doc])*
    #[diagnostic::on_unimplemented(
        message = "an array from inside of a `shard_map` meets one from outside, or one with other sets (`{V}` and `{Self}`)",
        label = "one operand is the block of one device, or an unreduced sum; the other is not",
        note = "pass an array of outside to `shard_map` as an argument",
        note = "`Outside<(Unreduced<X>, No)>` is a sum over `X` that has not been made: `.reshard(P![..])` makes it"
    )]
    pub trait $rhs<V> {
        /// The sets of the result.
        type Out: Sets;
    }
    impl $rhs<()> for () { type Out = (); }
    /// What the operation gives, of operands with these sets.
    pub type $of<V, W> = <W as $rhs<V>>::Out;
)* } }
rhs! {
    /// Sets of the right operand of an operation on elements.
    JoinRhs JoinOf JoinSlot;
    /// Sets of the right operand of a sum.
    AddRhs AddOf AddSlot;
    /// Sets of the right operand of a product of elements.
    MulRhs MulOf MulSlot;
    /// Sets of the right operand of a product of matrices.
    ProductRhs ProductOf ProductSlot;
}
macro_rules! outside { ($($rhs:ident)*) => { $(
    impl<V, W: $rhs<V>> $rhs<Outside<V>> for Outside<W> { type Out = Outside<W::Out>; }
)* } }
outside!(JoinRhs AddRhs MulRhs);
// outside, a product of matrices has plain operands or reduced ones, and is plain
impl<V, W: ProductRhs<V>> ProductRhs<Outside<V>> for Outside<W> {
    type Out = ();
}
impl<V: OnlyReduced> ProductRhs<Outside<V>> for () {
    type Out = ();
}
impl<W: OnlyReduced> ProductRhs<()> for Outside<W> {
    type Out = ();
}

/// No sum that has not been made.
#[diagnostic::on_unimplemented(
    message = "this operation needs a value, not a sum that has not been made (`{Self}`)",
    label = "the value is unreduced",
    note = "only sums and what is linear may take an unreduced value; make the sum first: `.reshard(P![..])`"
)]
pub trait Made: Sets {}
impl Made for () {}
impl<V: Made> Made for Outside<V> {}
/// A value that a number may join: no sum that has not been made and, in a body of `shard_map`, nothing reduced.
#[diagnostic::on_unimplemented(
    message = "a number cannot join a value with the sets `{Self}`",
    label = "a number is the same on every device; the value is unreduced or, in a body of `shard_map`, reduced",
    note = "make the sum first: `.reshard(P![..])`"
)]
pub trait WithNumber: Made {}
impl WithNumber for () {}
impl<V: Made> WithNumber for Outside<V> {}
/// A slot of such a value, in a body.
pub trait WithNumberSlot: MadeSlot {}
impl WithNumberSlot for No {}
#[diagnostic::do_not_recommend]
impl<A: MeshAxis> WithNumberSlot for A {}
/// A slot without a sum that has not been made.
#[diagnostic::on_unimplemented(
    message = "this operation needs a value, not a sum over a mesh axis that has not been made (`{Self}`)",
    label = "the value is unreduced",
    note = "only sums and what is linear may take an unreduced value; make the sum first: `.reshard(P![..])`"
)]
pub trait MadeSlot: Slot {}
impl MadeSlot for No {}
#[diagnostic::do_not_recommend]
impl<A: MeshAxis> MadeSlot for A {}
impl<A: MeshAxis> MadeSlot for Reduced<A> {}
/// Only reduced slots, and empty ones.
pub trait OnlyReduced: Sets {}
/// One slot that is reduced or empty.
#[diagnostic::on_unimplemented(
    message = "a sum over a mesh axis that has not been made (`{Self}`) cannot be an operand of a product of matrices",
    label = "the value is unreduced",
    note = "make the sum first: `.reshard(P![..])`"
)]
pub trait ReducedSlot: Slot {}
impl ReducedSlot for No {}
impl<A: MeshAxis> ReducedSlot for Reduced<A> {}
/// The sets of cotangents: unreduced for reduced, and the other way round.
pub trait Dual: Sets {
    /// The cotangent's sets.
    type Cotangent: Sets;
}
/// The slot of cotangents.
pub trait DualSlot: Slot {
    /// The cotangent's slot.
    type Cotangent: Slot;
}
impl DualSlot for No {
    type Cotangent = No;
}
impl<A: MeshAxis> DualSlot for A {
    type Cotangent = A;
}
impl<A: MeshAxis> DualSlot for Unreduced<A> {
    type Cotangent = Reduced<A>;
}
impl<A: MeshAxis> DualSlot for Reduced<A> {
    type Cotangent = Unreduced<A>;
}
impl Dual for () {
    type Cotangent = ();
}
impl<S: Dual> Dual for Outside<S> {
    type Cotangent = Outside<S::Cotangent>;
}

/// The sets of what leaves a `shard_map` by an out spec: every axis over which it varies is in the spec.
pub trait CoveredBy<V> {}
/// One slot of an output: nothing, or an axis that the out spec has.
#[diagnostic::on_unimplemented(
    message = "this output still varies over mesh axis `{Self}`, which its out spec does not mention",
    label = "devices along `{Self}` hold different values, so there is no one global value",
    note = "reduce it first (`.psum({Self})`), or name `{Self}` in the out spec of a dim, which puts the parts side by side"
)]
pub trait Mentioned<B> {}
impl<B> Mentioned<B> for No {}
impl<A: MeshAxis> Mentioned<A> for A {}

macro_rules! sets { ($($a:ident $b:ident),*) => {
    impl<$($a: Slot),*> Sets for ($($a,)*) {
        const STATES: &'static [Option<(&'static str, State)>] = &[$($a::STATE),*];
    }
    sets!(@ JoinRhs JoinSlot; $($a $b),*);
    sets!(@ AddRhs AddSlot; $($a $b),*);
    sets!(@ MulRhs MulSlot; $($a $b),*);
    sets!(@ ProductRhs ProductSlot; $($a $b),*);
    impl<$($a: Mentioned<$b>, $b),*> CoveredBy<($($b,)*)> for ($($a,)*) {}
    impl<$($a: MadeSlot),*> Made for ($($a,)*) {}
    impl<$($a: WithNumberSlot),*> WithNumber for ($($a,)*) {}
    impl<$($a: ReducedSlot),*> OnlyReduced for ($($a,)*) {}
    impl<$($a: DualSlot),*> Dual for ($($a,)*) { type Cotangent = ($($a::Cotangent,)*); }
};
(@ $rhs:ident $slot:ident; $($a:ident $b:ident),*) => {
    impl<$($a: $slot<$b>, $b),*> $rhs<($($a,)*)> for ($($b,)*) { type Out = ($($a::Out,)*); }
} }
sets!(A B);
sets!(A B, C D);
sets!(A B, C D, E F);
sets!(A B, C D, E F, G H);
sets!(A B, C D, E F, G H, I J);
sets!(A B, C D, E F, G H, I J, K L);
