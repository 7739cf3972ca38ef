//! Rules of reductions: reduced dims are removed, sharded or not, or kept with size 1.

use crate::shape::{D, DimAccess, EarlierDim, Shape, Stretch};
use core::ops::RangeFull;
use typenum::consts as numbers;

/// Dims that a reduction keeps, with size 1: `x.sum(keep(D1))`.
#[derive(Clone, Copy, Debug)]
pub struct Kept<I>(pub I);
/// Keeps the reduced dims, with size 1: `x.max(keep(D1))`.
pub fn keep<I>(dims: I) -> Kept<I> {
    Kept(dims)
}

/// The dims of shape `S` to reduce over: `D1`, `(D0, D2)`, `..`, or `keep(D1)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name dims of `{S}` to reduce over",
    label = "expected `D1`, `(D0, D1)` in rising order, `..` for all dims, or `keep(..)` of these",
    note = "dims are named by types, so numbers do not name them: `D0` is the first, and none counts from the end",
    note = "up to three dims are named together; `keep(D1)` keeps a reduced dim as `~`, which repeats",
    note = "`max` and `min` reduce one array: `x.maximum(0.0)` compares with a number or another array"
)]
pub trait ReduceDims<S> {
    /// The shape of the result.
    type Out: Shape;
    /// True if the dims are kept, with size 1.
    const KEEP: bool;
    /// Returns the dim numbers, for a shape of this rank.
    fn numbers(rank: usize) -> Vec<usize>;
}
type Drop1<S, I> = <S as DimAccess<I>>::Removed;
type Keep1<S, I> = <S as DimAccess<I>>::Put<Stretch>;

impl<S: DimAccess<D<I>>, const I: usize> ReduceDims<S> for D<I> {
    type Out = Drop1<S, D<I>>;
    const KEEP: bool = false;
    fn numbers(_: usize) -> Vec<usize> {
        vec![I]
    }
}
impl<S: DimAccess<D<I>>, const I: usize> ReduceDims<S> for Kept<D<I>>
where
    Keep1<S, D<I>>: Shape,
{
    type Out = Keep1<S, D<I>>;
    const KEEP: bool = true;
    fn numbers(_: usize) -> Vec<usize> {
        vec![I]
    }
}
macro_rules! integers { ($($u:ident $i:literal)*) => { $(
    // rustc's suggestions omit these: `typenum`'s integers print as nested bits
    #[diagnostic::do_not_recommend]
    impl<S: DimAccess<D<$i>>> ReduceDims<S> for numbers::$u {
        type Out = Drop1<S, D<$i>>;
        const KEEP: bool = false;
        fn numbers(_: usize) -> Vec<usize> { vec![$i] }
    }
)* } }
integers!(U0 0 U1 1 U2 2 U3 3 U4 4 U5 5 U6 6 U7 7);
// reduces the last dim first, so that the numbers of the dims before it do not change
impl<S: DimAccess<D<J>>, const I: usize, const J: usize> ReduceDims<S> for (D<I>, D<J>)
where
    D<I>: EarlierDim<D<J>>,
    Drop1<S, D<J>>: DimAccess<D<I>>,
{
    type Out = Drop1<Drop1<S, D<J>>, D<I>>;
    const KEEP: bool = false;
    fn numbers(_: usize) -> Vec<usize> {
        vec![I, J]
    }
}
impl<S: DimAccess<D<J>>, const I: usize, const J: usize> ReduceDims<S> for Kept<(D<I>, D<J>)>
where
    D<I>: EarlierDim<D<J>>,
    Keep1<S, D<J>>: DimAccess<D<I>>,
    Keep1<Keep1<S, D<J>>, D<I>>: Shape,
{
    type Out = Keep1<Keep1<S, D<J>>, D<I>>;
    const KEEP: bool = true;
    fn numbers(_: usize) -> Vec<usize> {
        vec![I, J]
    }
}
impl<S: DimAccess<D<K>>, const I: usize, const J: usize, const K: usize> ReduceDims<S>
    for Kept<(D<I>, D<J>, D<K>)>
where
    D<I>: EarlierDim<D<J>>,
    D<J>: EarlierDim<D<K>>,
    Keep1<S, D<K>>: DimAccess<D<J>>,
    Keep1<Keep1<S, D<K>>, D<J>>: DimAccess<D<I>>,
    Keep1<Keep1<Keep1<S, D<K>>, D<J>>, D<I>>: Shape,
{
    type Out = Keep1<Keep1<Keep1<S, D<K>>, D<J>>, D<I>>;
    const KEEP: bool = true;
    fn numbers(_: usize) -> Vec<usize> {
        vec![I, J, K]
    }
}
impl<S: DimAccess<D<K>>, const I: usize, const J: usize, const K: usize> ReduceDims<S> for (D<I>, D<J>, D<K>)
where
    D<I>: EarlierDim<D<J>>,
    D<J>: EarlierDim<D<K>>,
    Drop1<S, D<K>>: DimAccess<D<J>>,
    Drop1<Drop1<S, D<K>>, D<J>>: DimAccess<D<I>>,
{
    type Out = Drop1<Drop1<Drop1<S, D<K>>, D<J>>, D<I>>;
    const KEEP: bool = false;
    fn numbers(_: usize) -> Vec<usize> {
        vec![I, J, K]
    }
}
impl<S: Shape> ReduceDims<S> for RangeFull {
    type Out = ();
    const KEEP: bool = false;
    fn numbers(rank: usize) -> Vec<usize> {
        (0..rank).collect()
    }
}
impl<S: AllKept> ReduceDims<S> for Kept<RangeFull> {
    type Out = S::Out;
    const KEEP: bool = true;
    fn numbers(rank: usize) -> Vec<usize> {
        (0..rank).collect()
    }
}
/// A shape whose dims can all be kept at size 1.
#[diagnostic::on_unimplemented(
    message = "`keep(..)` of all dims is for shapes of up to eight dims, not `{Self}`",
    label = "not a shape of up to eight dims"
)]
pub trait AllKept: Shape {
    /// The shape of the result.
    type Out: Shape;
}
macro_rules! kept { ($($d:ident $one:ident)*) => {
    impl<$($d: crate::shape::DimType),*> AllKept for ($($d,)*) { type Out = ($($one,)*); }
} }
kept!();
kept!(A Stretch);
kept!(A Stretch B Stretch);
kept!(A Stretch B Stretch C Stretch);
kept!(A Stretch B Stretch C Stretch E Stretch);
kept!(A Stretch B Stretch C Stretch E Stretch F Stretch);
kept!(A Stretch B Stretch C Stretch E Stretch F Stretch G Stretch);
kept!(A Stretch B Stretch C Stretch E Stretch F Stretch G Stretch H Stretch);
kept!(A Stretch B Stretch C Stretch E Stretch F Stretch G Stretch H Stretch I Stretch);
