//! Slices, and concatenation and splitting of several arrays.

use super::rules::join::{ConcatSets, ConcatShapes, SplitShapes};
use super::rules::slice::{SliceDim, StridedDim};
use super::shape::{DimAccess, DimNumber, Shape};
use super::shapes::{DimAt, ReplaceDim};
use super::{SameElem, Typed, TypedArray, sets::Sets, size::Size};
use crate::api::array::{Array, DimIndex};
use crate::core::Element;
use atmesh_typed::sealed::Sealed;

/// Typed arrays that can be concatenated along dim `I`: a tuple of two to eight references.
#[diagnostic::on_unimplemented(
    message = "concat: `{Self}` are not typed arrays that can be joined",
    label = "expected a tuple of two to eight references: `(&a, &b, &c)`",
    note = "all arrays have one element type and one rank; their other dims and their shardings are equal"
)]
pub trait ConcatOperands<I>: Sealed {
    /// The element type.
    type Elem: Element;
    /// The shape of the result.
    type Shape: Shape;
    /// The sets of the result.
    type Sets: Sets;
    /// Returns the untyped arrays.
    fn arrays(&self) -> Vec<&Array>;
}
/// The pieces into which dim `I` of an array can be split: a tuple of two to eight sizes.
#[diagnostic::on_unimplemented(
    message = "split: dim `{I}` of `{S}` cannot be split into pieces of `{Self}`",
    label = "expected a tuple of two to eight sizes: `(N![2], N![3], N![4])`"
)]
pub trait SplitPieces<T, S, V, I>: Sealed {
    /// The pieces, as a tuple.
    type Arrays;
    /// The sizes of the pieces.
    const SIZES: &'static [usize];
    /// Wraps the pieces.
    #[doc(hidden)]
    fn wrapped(pieces: impl FnMut() -> Array) -> Self::Arrays;
}
macro_rules! several { ($first:ident $zero:tt $($a:ident $n:tt)+) => {
    impl<I, $first: TypedArray, $($a: TypedArray<Elem: SameElem<$first::Elem>>),+> ConcatOperands<I> for (&$first, $(&$a),+)
    where
        ($first::Shape, $($a::Shape),+): ConcatShapes<I>,
        ($first::Sets, $($a::Sets),+): ConcatSets,
    {
        type Elem = $first::Elem;
        type Shape = <($first::Shape, $($a::Shape),+) as ConcatShapes<I>>::Out;
        type Sets = <($first::Sets, $($a::Sets),+) as ConcatSets>::Out;
        fn arrays(&self) -> Vec<&Array> {
            vec![self.$zero.as_untyped(), $(self.$n.as_untyped()),+]
        }
    }
} }
prefixes! { several [A 0 B 1] (C 2) (D 3) (E 4) (F 5) (G 6) (H 7) }
macro_rules! pieces { ($($a:ident $shape:ident)+) => {
    impl<T: Element, S: DimAccess<I>, V: Sets, I, $($a: Size, $shape: Shape),+> SplitPieces<T, S, V, I> for ($($a,)+)
    where
        ($($a,)+): SplitShapes<I, S, Out = ($($shape,)+)>,
    {
        type Arrays = ($(Typed<T, $shape, V>,)+);
        const SIZES: &'static [usize] = &[$(match $a::VALUE { Some(n) => n, None => 0 }),+];
        fn wrapped(mut pieces: impl FnMut() -> Array) -> Self::Arrays {
            ($(Typed::<T, $shape, V>::from_rule_result(pieces()),)+)
        }
    }
} }
prefixes! { pieces [A R1 B R2] (C R3) (D R4) (E R5) (F R6) (G R7) (H R8) }

/// Concatenates two to eight typed arrays along a dim: `concat((&a, &b, &c), D1)`.
///
/// Their other dims and their sharding are equal; the sharding divides the sum of the sizes.
///
/// ```
/// use atmesh::typed::{concat, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// let pod = Pod::mesh()?;
/// let (a, b) = (<T![f32; 4@X, 3]>::ones(&pod), <T![f32; 4@X, 2]>::zeros(&pod));
/// let y: T![f32; 4@X, 8] = concat((&a, &b, &a), D1);
/// assert_eq!(y.to_vec()?[..8], [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn concat<A: ConcatOperands<I::D>, I: DimNumber>(arrays: A, at: I) -> Typed<A::Elem, A::Shape, A::Sets> {
    let _ = at;
    Typed::from_rule_result(crate::api::array::concat(arrays.arrays(), I::NUMBER as i32))
}

/// The shape `S` of which dim `I` is sliced from `A` to `B`.
pub type SliceOf<S, I, A, B> = ReplaceDim<S, I, <DimAt<S, I> as SliceDim<A, B>>::Out>;
/// The shape `S` of which dim `I` is sliced from `A` to `B` in steps of `K`.
pub type StridedSlice<S, I, A, B, K> = ReplaceDim<S, I, <DimAt<S, I> as StridedDim<A, B, K>>::Out>;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Splits a dim into two to eight pieces, whose sizes add up to it.
    ///
    /// All pieces have the sharding of the dim, which divides each of them.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X, 9]>::ones(&Pod::mesh()?);
    /// let (q, k, v) = x.split_into::<(N![2], N![3], N![4]), _>(D1);
    /// let q: T![f32; 4@X, 2] = q;
    /// let v: T![f32; 4@X, 4] = v;
    /// # let _ = (q, k, v);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn split_into<P: SplitPieces<T, S, V, I::D>, I: DimNumber>(&self, at: I) -> P::Arrays
    where
        S: DimAccess<I::D>,
    {
        let _ = at;
        let mut parts = self.array.split(P::SIZES, I::NUMBER as i32).into_iter();
        // an array that carries an error stands for all pieces
        P::wrapped(|| parts.next().unwrap_or_else(|| self.array.clone()))
    }
    forward! {
        /// Takes the elements from `A` up to, but not including, `B` along a dim.
        ///
        /// A sharded dim keeps its sharding, which divides the new size: devices exchange the
        /// elements that cross block edges.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let grid = <T![f64; 8@X, 5]>::iota(&Pod::mesh()?, D0);
        /// let interior: T![f64; 6@X, 3] =
        ///     grid.slice::<N![1], N![7], _>(D0).slice::<N![1], N![4], _>(D1);
        /// assert_eq!(interior.sum(D1).to_vec()?, [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn slice[A: Size, B: Size, I: DimNumber](&self, at: I)
            -> Typed<T, SliceOf<S, I::D, A, B>, V>
        where [S: DimAccess<I::D>, DimAt<S, I::D>: SliceDim<A, B>, SliceOf<S, I::D, A, B>: Shape]
            = sliced(&self.array, S::DIMS.len(), I::NUMBER, [A::VALUE, B::VALUE], None);
    }
    forward! {
        /// Takes every `K`-th element from `A` up to, but not including, `B` along a dim.
        ///
        /// `K` is a number from 1 to 16. A sharded dim keeps its sharding, which divides the new
        /// size.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![i32; 8@X]>::iota(&Pod::mesh()?, D0);
        /// let even: T![i32; 4@X] = x.slice_by::<N![0], N![8], N![2], _>(D0);
        /// assert_eq!(even.to_vec()?, [0, 2, 4, 6]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn slice_by[A: Size, B: Size, K: Size, I: DimNumber](&self, at: I)
            -> Typed<T, StridedSlice<S, I::D, A, B, K>, V>
        where [S: DimAccess<I::D, Dim: StridedDim<A, B, K>>, StridedSlice<S, I::D, A, B, K>: Shape]
            = sliced(&self.array, S::DIMS.len(), I::NUMBER, [A::VALUE, B::VALUE], step),
                with step = K::VALUE.map(|k| k as i64);
    }
}
/// Slices dim `at` of an array.
#[track_caller]
fn sliced(array: &Array, rank: usize, at: usize, ends: [Option<usize>; 2], step: Option<i64>) -> Array {
    let [from, to] = ends.map(|end| end.map(|n| n as i64));
    let picks = (0..rank)
        .map(|d| if d == at { DimIndex::range(from, to, step) } else { DimIndex::range(None, None, None) });
    array.slice(picks.collect::<Vec<_>>().into())
}
