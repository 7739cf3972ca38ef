//! Rules of reductions: reduced dims are removed, sharded or not, or kept with size 1.

use crate::sealed::Sealed;
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

/// The dims of shape `S` to reduce over: `D1`, several in rising order, as `(D0, D2)`, `..`, or
/// `keep` of one of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name dims of `{S}` to reduce over",
    label = "expected `D1`, several in rising order, as `(D0, D1)`, `..` for all dims, or `keep(..)` of these",
    note = "dims are named by types, so numbers do not name them: `D0` is the first, and none counts from the end",
    note = "`keep(D1)` keeps a reduced dim as `~`, which repeats",
    note = "`max` and `min` reduce one array: `x.maximum(0.0)` compares with a number or another array"
)]
pub trait ReduceDims<S>: Sealed {
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
    #[diagnostic::do_not_recommend]
    impl<S> ArgDims<S> for numbers::$u where Self: ReduceDims<S> {}
)* } }
integers!(U0 0 U1 1 U2 2 U3 3 U4 4 U5 5 U6 6 U7 7);
// The last dim is reduced first, so that the numbers of the dims before it do not change.
// `[$done]` is the shape so far, `$kept` the one in which reduced dims are kept.
macro_rules! several {
    ($($i:ident)+; $last:ident $($before:ident)*) => {
        several!(@order [$($i)+] [] $($i)+; [S: DimAccess<D<$last>>] [] Drop1<S, D<$last>>; Keep1<S, D<$last>>; $($before)*);
    };
    (@order $all:tt [$($x:ident $y:ident,)*] $a:ident $b:ident $($r:ident)*; $($rest:tt)*) => {
        several!(@order $all [$($x $y,)* $a $b,] $b $($r)*; $($rest)*);
    };
    (@order $all:tt $pairs:tt $a:ident; [$($s:tt)*] $bounds:tt $($rest:tt)*) => {
        several!(@fold $all $pairs [$($s)*] [] [] $($rest)*);
    };
    (@fold $all:tt $pairs:tt $s:tt [$($d:tt)*] [$($k:tt)*] $done:ty; $kept:ty; $next:ident $($before:ident)*) => {
        several!(@fold $all $pairs $s [$($d)* $done: DimAccess<D<$next>>,] [$($k)* $kept: DimAccess<D<$next>>,]
            Drop1<$done, D<$next>>; Keep1<$kept, D<$next>>; $($before)*);
    };
    (@fold [$($i:ident)+] [$($x:ident $y:ident,)*] [$($s:tt)*] [$($d:tt)*] [$($k:tt)*] $done:ty; $kept:ty;) => {
        impl<$($s)*, $(const $i: usize),+> ReduceDims<S> for ($(D<$i>,)+)
        where
            $(D<$x>: EarlierDim<D<$y>>,)*
            $($d)*
        {
            type Out = $done;
            const KEEP: bool = false;
            fn numbers(_: usize) -> Vec<usize> {
                vec![$($i),+]
            }
        }
        impl<$($s)*, $(const $i: usize),+> ReduceDims<S> for Kept<($(D<$i>,)+)>
        where
            $(D<$x>: EarlierDim<D<$y>>,)*
            $($k)*
            $kept: Shape,
        {
            type Out = $kept;
            const KEEP: bool = true;
            fn numbers(_: usize) -> Vec<usize> {
                vec![$($i),+]
            }
        }
    };
}
several!(I; I);
several!(I J; J I);
several!(I J K; K J I);
several!(I J K L; L K J I);
several!(I J K L M; M L K J I);
several!(I J K L M O; O M L K J I);
several!(I J K L M O P; P O M L K J I);
several!(I J K L M O P Q; Q P O M L K J I);
/// The dims of `argmax` and `argmin`: one dim, or all.
#[diagnostic::on_unimplemented(
    message = "argmax/argmin: `{Self}` is not one dim of `{S}`, nor all of them",
    label = "expected `D1`, `..` for all dims, or `keep(..)` of these",
    note = "for the index among several dims, `reshape` them into one"
)]
pub trait ArgDims<S>: ReduceDims<S> {}
#[diagnostic::do_not_recommend]
impl<S, const I: usize> ArgDims<S> for D<I> where Self: ReduceDims<S> {}
#[diagnostic::do_not_recommend]
impl<S, const I: usize> ArgDims<S> for Kept<D<I>> where Self: ReduceDims<S> {}
impl<S: Shape> ArgDims<S> for RangeFull {}
#[diagnostic::do_not_recommend]
impl<S> ArgDims<S> for Kept<RangeFull> where Self: ReduceDims<S> {}
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
rule_traits! {
    /// A shape whose dims can all be kept at size 1.
    message = "`keep(..)` of all dims is for shapes of up to eight dims, not `{Self}`",
    label = "not a shape of up to eight dims",
    pub trait AllKept: Shape => Out: Shape, "The shape of the result." {}
}
macro_rules! kept { ($($d:ident $one:ident)*) => {
    impl<$($d: crate::shape::DimType),*> AllKept for ($($d,)*) { type Out = ($($one,)*); }
} }
prefixes! { kept [] (A Stretch) (B Stretch) (C Stretch) (E Stretch) (F Stretch) (G Stretch) (H Stretch) (I Stretch) }
