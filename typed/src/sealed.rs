//! The markers that keep the traits of typed arrays' types closed.
//!
//! An impl of one of these traits decides the type of a result, so a wrong impl would make arrays
//! that are not of their types. Outside of this crate only `mesh!` and `dim!` implement such a
//! trait. Three things see to that:
//! - a trait that only the library's types implement has the supertrait [`Sealed`];
//! - a trait that declared types implement too has the supertrait [`SealedOrDeclared`];
//! - a trait that could still be implemented for a declared type, or for one of the library's types
//!   with a declared type as a parameter, has a constant of the type [`Seal`].
//!
//! The markers and the constants are hidden from the documentation. A program that writes them by
//! hand answers for its types itself. No `unsafe` code depends on them.

use crate::axis::{RunTimeSize, Unsharded};
use crate::region::PartialRegion;
use crate::rules::dot::{BothSides, OneSide};
use crate::rules::einsum::{LeftDim, PairedDim, RightDim, SwappedDim};
use crate::rules::matrices::{FullMatrices, ThinMatrices};
use crate::rules::reshard::{KeptSharding, LeftUnreduced, MarkedReduced};
use crate::rules::windows::{FullWindows, SameWindows, ValidWindows};
use crate::rules::{reduce::Kept, take::AlongDim};
use crate::sets::{CompleteValue, GlobalSets, Invariant, PartialSum, ReducedSum, UnreducedSum};
use crate::shape::{D, NoDim, Stretch, TDim};
use crate::size::count::{NamedCount, OpenCount, Tally};
use crate::size::digits::{BelowZero, Group, Groups1, Groups2, Groups3, NoDigits, NoGroups, TooLarge};
use crate::size::{
    Composite, DeviceShare, G, Impossible, K, Limbs, M, Named, Num, Number, Open, Prime, R, SizeProduct,
    Symbol, Unknown, WithRim,
};
use core::ops::RangeFull;
use typenum::{UInt, UTerm};

/// A type of the library that is a part of a typed array's type, or an argument of its operations.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a part of a typed array's type: only the library's own types are",
    label = "the traits of shapes, specs and rules are sealed",
    note = "sizes are declared by `dim!`, meshes and their axes by `mesh!`; shapes and specs are written by `S![..]` and `P![..]`"
)]
pub trait Sealed {}
/// A type of the library, or one that `mesh!` or `dim!` declares.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a part of a typed array's type: it is not declared by `mesh!` or `dim!`",
    label = "the traits of sizes, meshes and axes are sealed",
    note = "declare a size by `dim!(pub Batch)` or `dim!(pub Hidden = 4096)`, and a mesh with its axes by `mesh! {{ pub struct Pod {{ X: 2, Y: 4 }} }}`"
)]
pub trait SealedOrDeclared {}
#[diagnostic::do_not_recommend]
impl<T: Sealed> SealedOrDeclared for T {}
/// The type of a constant that an impl of a sealed trait has.
pub struct Seal;

macro_rules! tuples { ($($($a:ident)*;)*) => { $(
    #[diagnostic::do_not_recommend]
    impl<$($a),*> Sealed for ($($a,)*) {}
)* } }
tuples! {
    ; A; A B; A B C; A B C E; A B C E F; A B C E F G; A B C E F G H; A B C E F G H I; A B C E F G H I J;
    A B C E F G H I J L; A B C E F G H I J L N; A B C E F G H I J L N O;
}
macro_rules! sealed { ($([$($g:tt)*] $t:ty;)*) => { $(
    #[diagnostic::do_not_recommend]
    impl<$($g)*> Sealed for $t {}
)* } }
sealed! {
    [T: Sealed] &T;
    [] RangeFull; [] UTerm; [U, B] UInt<U, B>;
    // dims and their numbers
    [S, A] TDim<S, A>; [] Stretch; [const I: usize] D<I>; [] NoDim; [I] Kept<I>; [A] AlongDim<A>;
    // shardings, specs and sets
    [] Unsharded; [] RunTimeSize; [] KeptSharding; [P, A] LeftUnreduced<P, A>; [P, A] MarkedReduced<P, A>;
    [] Invariant; [A] UnreducedSum<A>; [A] ReducedSum<A>; [S] GlobalSets<S>; [] CompleteValue; [] PartialSum; [M, F] PartialRegion<M, F>;
    // sizes and their kinds
    [const A: u16] Num<A>; [const A: u16, const B: u16] K<A, B>;
    [const A: u16, const B: u16, const C: u16] M<A, B, C>;
    [const A: u16, const B: u16, const C: u16, const E: u16] G<A, B, C, E>;
    [const N: u8, const A: u16, const B: u16, const C: u16, const E: u16] Limbs<N, A, B, C, E>;
    [] Unknown; [S, A] DeviceShare<S, A>; [Z, K] WithRim<Z, K>; [A, B] SizeProduct<A, B>; [] TooLarge;
    [] Number; [] Named; [] Symbol; [] Composite; [] Open; [] Impossible;
    // arithmetic
    [const A: u8] R<A>; [const P: u8] Prime<P>; [] NoDigits; [] BelowZero; [const A: u16] Group<A>;
    [] NoGroups; [const A: u16] Groups1<A>; [const A: u16, const B: u16] Groups2<A, B>;
    [const A: u16, const B: u16, const C: u16] Groups3<A, B, C>;
    [N, Y] NamedCount<N, Y>; [] OpenCount; [L, Y] Tally<L, Y>;
    // parts of rules
    [] OneSide; [] BothSides; [const I: usize] LeftDim<I>; [const I: usize] RightDim<I>;
    [const I: usize, const J: usize] PairedDim<I, J>; [const I: usize, const J: usize] SwappedDim<I, J>;
    [] FullMatrices; [] ThinMatrices; [] ValidWindows; [] SameWindows; [] FullWindows;
}
