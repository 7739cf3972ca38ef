//! The sets of operands that operations take, and of the results that follow from them.

use super::{AxisSlot, GlobalSets, Invariant, ReducedSum, Sets, UnreducedSum};
use crate::axis::MeshAxis;
use crate::sealed::Sealed;

/// Requires that no slot is an unreduced sum.
#[diagnostic::on_unimplemented(
    message = "this operation needs a value, not a sum that has not been made (`{Self}`)",
    label = "the value is unreduced",
    note = "only sums and linear operations may take an unreduced value; make the sum first: `.reshard(P![..])`"
)]
pub trait CompleteSets: Sets<Completeness = CompleteValue> {}
impl CompleteSets for () {}
impl<V: CompleteSets> CompleteSets for GlobalSets<V> {}
rule_traits! {
    /// Sets of a value that operation `Op` takes: [`CompleteSets`], with a message that names `Op`.
    message = "`{Op}` needs a value, not a sum over a mesh axis that has not been made: the array is `{Self}`",
    label = "this array is unreduced: each device has only its part of the sum",
    note = "make the sum first, by `reshard` to a plain spec: `x.reshard(P![_, _])`; `sum` and `+` of unreduced arrays need no such step",
    pub trait CompleteFor<Op>: CompleteSets {
        hidden [V: CompleteSets, Op] V: CompleteFor<Op>;
    }
    /// Requires a value that can be multiplied by a number.
    ///
    /// Outside of `shard_map` it is not unreduced. In a body it is not reduced, but may be
    /// unreduced.
    message = "a number cannot scale a value with the sets `{Self}`",
    label = "a number is the same on every device; the value is unreduced or, in a body of `shard_map`, reduced",
    note = "make the sum first: `.reshard(P![..])`",
    note = "or scale before the sum: multiply an operand of the product or of the sum by the number",
    pub trait ScalarSets: Sets {
        [] (): ScalarSets;
        hidden [V: CompleteSets] GlobalSets<V>: ScalarSets;
    }
    /// A slot of a value that can be multiplied by a number in a body.
    pub trait ScalarSlot: AxisSlot {
        [] Invariant: ScalarSlot;
        hidden [A: MeshAxis] A: ScalarSlot;
        [A: MeshAxis] UnreducedSum<A>: ScalarSlot;
    }
}
/// A slot that is not an unreduced sum.
#[diagnostic::on_unimplemented(
    message = "this operation needs a value, not a sum over a mesh axis that has not been made (`{Self}`)",
    label = "the value is unreduced",
    note = "only sums and linear operations may take an unreduced value; make the sum first: `.reshard(P![..])`"
)]
pub trait CompleteSlot: AxisSlot<Completeness = CompleteValue> {}
impl CompleteSlot for Invariant {}
#[diagnostic::do_not_recommend]
impl<A: MeshAxis> CompleteSlot for A {}
impl<A: MeshAxis> CompleteSlot for ReducedSum<A> {}
/// The sets of a value that is equal on every device: `()`, or empty slots only.
#[diagnostic::on_unimplemented(
    message = "a number is equal on every device, so it has no sets of mesh axes such as `{Self}`",
    label = "expected `T![f32;]`, or in a body of `shard_map` `T![f32;; in Pod]`",
    note = "in a body, `.pvary(X)` turns it into a value that varies over X"
)]
pub trait PlainSets: Sets {}
impl PlainSets for () {}
/// The completeness of a value: [`CompleteValue`], or [`PartialSum`] if it is an unreduced sum over
/// some axis.
pub trait Completeness: Sealed + 'static {
    /// The completeness of a value with a slot of this one and of `B`.
    type And<B: Completeness>: Completeness;
}
/// The completeness of a value that is not unreduced over any axis.
pub struct CompleteValue;
/// The completeness of a value that is an unreduced sum over some axis.
pub struct PartialSum;
impl Completeness for CompleteValue {
    type And<B: Completeness> = B;
}
impl Completeness for PartialSum {
    type And<B: Completeness> = PartialSum;
}
rule_traits! {
    /// The completeness of a value whose elements can be converted as `K` says.
    ///
    /// The conversions of the parts of an unreduced sum are parts of the converted sum only if both
    /// types are floating-point.
    message = "a sum over a mesh axis that has not been made cannot be converted to or from whole numbers or `bool`",
    label = "the value is unreduced",
    note = "a sum is rounded once, not each of its parts; make the sum first: `.reshard(P![..])`, in a body of `shard_map` `.psum(X)`",
    pub trait ConvertsAs<K>: Completeness {
        [K] CompleteValue: ConvertsAs<K>;
        hidden [K: InexactConversion] PartialSum: ConvertsAs<K>;
    }
    /// A conversion from a floating-point type to another one, implemented by the crate that knows
    /// the element types.
    pub trait InexactConversion: Sealed {}
    /// The sets of positions in a value with these sets, as `argmax` gives: they have no
    /// cotangents, so none of them is reduced.
    pub trait PositionSets: Sets => Out: Sets, "The sets of the positions." {
        [] (): PositionSets = ();
        [V: Sets] GlobalSets<V>: PositionSets = ();
    }
    /// The rule of [`PositionSets`] for one slot.
    pub trait PositionSlot: AxisSlot => Out: AxisSlot, "The slot of the positions." {
        [] Invariant: PositionSlot = Invariant;
        [A: MeshAxis] A: PositionSlot = A;
        [A: MeshAxis] ReducedSum<A>: PositionSlot = Invariant;
        [A: MeshAxis] UnreducedSum<A>: PositionSlot = Invariant;
    }
    /// Requires slots that are all reduced or empty.
    pub trait OnlyReduced: Sets {}
    /// A slot that is reduced or empty.
    message = "a sum over a mesh axis that has not been made (`{Self}`) cannot be an operand of a product of matrices",
    label = "the value is unreduced",
    note = "make the sum first: `.reshard(P![..])`",
    pub trait ReducedSlot: AxisSlot, sealed {
        sealed [] Invariant: ReducedSlot;
        sealed [A: MeshAxis] ReducedSum<A>: ReducedSlot;
    }
    /// The sets of cotangents: unreduced and reduced are exchanged.
    pub trait Dual: Sets => Cotangent: Sets, "The sets of the cotangent." {}
    /// The slot of cotangents.
    pub trait DualSlot: AxisSlot => Cotangent: AxisSlot, "The slot of the cotangent." {}
}
rules! { Cotangent:
    [] Invariant: DualSlot = Invariant;
    [A: MeshAxis] A: DualSlot = A;
    [A: MeshAxis] UnreducedSum<A>: DualSlot = ReducedSum<A>;
    [A: MeshAxis] ReducedSum<A>: DualSlot = UnreducedSum<A>;
    [] (): Dual = ();
    [S: Dual] GlobalSets<S>: Dual = GlobalSets<S::Cotangent>;
}

macro_rules! empty {
    ($a:ident) => {
        Invariant
    };
}
macro_rules! slots { ($($a:ident $b:ident)*) => {
    impl PlainSets for ($(empty!($a),)*) {}
    impl<$($a: CompleteSlot),*> CompleteSets for ($($a,)*) {}
    #[diagnostic::do_not_recommend]
    impl<$($a: ScalarSlot),*> ScalarSets for ($($a,)*) {}
    impl<$($a: PositionSlot),*> PositionSets for ($($a,)*) { type Out = ($($a::Out,)*); }
    impl<$($a: ReducedSlot),*> OnlyReduced for ($($a,)*) {}
    impl<$($a: DualSlot),*> Dual for ($($a,)*) { type Cotangent = ($($a::Cotangent,)*); }
} }
prefixes! { slots [A B] (C D) (E F) (G H) (I J) (K L) }
