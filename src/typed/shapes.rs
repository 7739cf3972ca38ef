//! Shardings, and what moves, cuts and joins dims.

use super::rules::moves::{BroadcastOf, Factored, One, Permute, WholeShape, elements};
use super::rules::parts::{CutDim, JoinDim, MergeDim, SameBut, SliceDim};
use super::rules::respec::{ReshardSets, Spec};
use super::sets::{AddOf, AddRhs, Sets};
use super::shape::{At, D, DimNumber, Formed, Insert, Shape, Stretch};
use super::size::Size;
use super::{SameElem, Typed, TypedArray, door};
use crate::array::concat;
use crate::types::Element;

/// The shape with another dim `Q` at number `I`.
pub type Put<S, I, Q> = <S as At<I>>::Put<Q>;
/// Dim number `I`.
pub type Nth<S, I> = <S as At<I>>::Dim;
type Joined<S, R, I> = Put<S, I, <Nth<S, I> as JoinDim<Nth<R, I>>>::Out>;
type Without<S, I> = <S as At<I>>::Without;

fn sizes<S: Shape>(of: &crate::array::Array) -> Vec<usize> {
    // sizes of a stated shape that types do not know are those of the array
    let shape = of.shape().map(|s| s.to_vec()).unwrap_or_default();
    let size = |(d, info): (usize, &super::shape::DimInfo)| info.size.or(shape.get(d).copied()).unwrap_or(0);
    S::DIMS.iter().enumerate().map(size).collect()
}

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// The same value, sharded as `spec` says: an axis, `(X, Y)`, `_` or `=` (as it is) for each dim. The one way to make an unreduced sum.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let x = <T![f32; 8@X, 16]>::ones(&Pod::mesh()?);
    /// let y: T![f32; 8@X, 16@Y] = x.reshard(P![=, Y]);
    /// let z: T![f32; 8, 16@(X, Y)] = y.reshard(P![_, (X, Y)]);
    /// # let _ = z;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn reshard<P>(&self, spec: P) -> Typed<T, <P as Spec<S>>::Out, <P as ReshardSets<S, V>>::Out>
    where
        P: Spec<S> + ReshardSets<S, V>,
    {
        let _ = spec;
        Typed::of(self.array.reshard(door::spec::<<P as Spec<S>>::Out, <P as ReshardSets<S, V>>::Out>()))
    }
    /// The dims in another order: `x.transpose((D1, D0))`.
    #[track_caller]
    pub fn transpose<P>(&self, order: P) -> Typed<T, S::Out, V>
    where
        S: Permute<P>,
    {
        let _ = order;
        self.permuted::<P>()
    }
    /// [`Typed::transpose`] by type.
    #[doc(hidden)]
    #[track_caller]
    pub fn permuted<P>(&self) -> Typed<T, S::Out, V>
    where
        S: Permute<P>,
    {
        Typed::of(self.array.transpose(S::ORDER))
    }
    /// The transpose of a matrix.
    #[track_caller]
    pub fn t(&self) -> Typed<T, S::Out, V>
    where
        S: Permute<(D<1>, D<0>)>,
    {
        Typed::of(self.array.transpose(S::ORDER))
    }
    /// A new dim of size 1, which repeats in operations on elements: `~`.
    #[track_caller]
    pub fn expand_dims<I: DimNumber>(&self, at: I) -> Typed<T, <S as Insert<I::D, Stretch>>::Out, V>
    where
        S: Insert<I::D, Stretch>,
    {
        let _ = at;
        Typed::of(self.array.expand_dims(I::NUMBER))
    }
    /// Without a dim of size 1.
    #[track_caller]
    pub fn squeeze<I: DimNumber>(&self, at: I) -> Typed<T, Without<S, I::D>, V>
    where
        S: At<I::D>,
        Nth<S, I::D>: One,
    {
        let _ = at;
        Typed::of(self.array.squeeze(I::NUMBER))
    }
    /// Repeated to a longer shape: new leading dims, and `~` at any size: `x.broadcast_to::<S![4, 8]>()`.
    #[track_caller]
    pub fn broadcast_to<R: BroadcastOf<S>>(&self) -> Typed<T, R, V> {
        let shape = self.array.shape().map(|s| s.to_vec()).unwrap_or_default();
        let lead = R::DIMS.len() - shape.len();
        let size = |(d, info): (usize, &super::shape::DimInfo)| {
            info.size.or_else(|| d.checked_sub(lead).and_then(|d| shape.get(d).copied())).unwrap_or(1)
        };
        let to: Vec<usize> = R::DIMS.iter().enumerate().map(size).collect();
        Typed::of(self.array.broadcast_to(to))
    }
    /// Another shape of as many elements, of arrays with unsharded dims: `x.reshape::<S![2, 8]>()`. The count is compared when rustc builds the call.
    #[track_caller]
    pub fn reshape<R: WholeShape>(&self) -> Typed<T, R, V>
    where
        S: WholeShape,
    {
        const {
            if let (Some(from), Some(to)) = (elements::<S>(), elements::<R>()) {
                assert!(from == to, "reshape: the two shapes have different numbers of elements");
            }
        }
        Typed::of(self.array.reshape(sizes::<R>(&self.array)))
    }
    /// Cuts a dim into two factors, of which the first keeps the sharding: `x.split_dim::<N![32], N![128], _>(D1)`.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4, 12@X]>::ones(&Pod::mesh()?);
    /// let heads: T![f32; 4, 2@X, 6] = x.split_dim::<N![2], N![6], _>(D1);
    /// let back: T![f32; 4, 12@X] = heads.merge_dims(D1);
    /// # let _ = back;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn split_dim<A: Size, B: Size, I: DimNumber>(&self, at: I) -> Typed<T, Split<S, I::D, A, B>, V>
    where
        S: At<I::D>,
        Nth<S, I::D>: Factored<A, B>,
        Put<S, I::D, <Nth<S, I::D> as Factored<A, B>>::Minor>:
            Insert<I::D, <Nth<S, I::D> as Factored<A, B>>::Major>,
    {
        let _ = at;
        self.reshaped()
    }
    /// Makes one dim of this one and the next, which is unsharded.
    #[track_caller]
    pub fn merge_dims<I: DimNumber + Next>(&self, at: I) -> Typed<T, Merged<S, I>, V>
    where
        S: At<I::D> + At<I::Next>,
        Nth<S, I::D>: MergeDim<Nth<S, I::Next>>,
        Without<S, I::Next>: At<I::D>,
        Merged<S, I>: Shape,
    {
        let _ = at;
        self.reshaped()
    }
    #[track_caller]
    fn reshaped<R: Shape>(&self) -> Typed<T, R, V> {
        // factors and products are numbers; other sizes stay, but may stand at another place
        let shape = self.array.shape().map(|s| s.to_vec()).unwrap_or_default();
        let mut rest = shape.iter().enumerate().filter(|(d, _)| S::DIMS[*d].size.is_none()).map(|(_, n)| *n);
        let sizes: Vec<usize> = R::DIMS.iter().map(|i| i.size.or_else(|| rest.next()).unwrap_or(0)).collect();
        Typed::of(self.array.reshape_to(sizes, door::spec::<R, V>()))
    }
    /// The two joined along a dim, whose size is the sum of theirs; sharded the same way.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X, 3]>::ones(&Pod::mesh()?);
    /// let y: T![f32; 4@X, 6] = x.concat(&x, D1);
    /// let (a, b): (T![f32; 4@X, 2], T![f32; 4@X, 4]) = y.split::<N![2], N![4], _>(D1);
    /// let c: T![f32; 4@X, 3] = y.slice::<N![1], N![4], _>(D1);
    /// # let _ = (a, b, c);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn concat<R: TypedArray<Elem: SameElem<T>>, I: DimNumber>(
        &self,
        b: &R,
        at: I,
    ) -> Typed<T, Joined<S, R::Shape, I::D>, AddOf<V, R::Sets>>
    where
        R::Sets: AddRhs<V>,
        S: At<I::D>,
        R::Shape: At<I::D> + SameBut<I::D, S>,
        Nth<S, I::D>: JoinDim<Nth<R::Shape, I::D>>,
        Joined<S, R::Shape, I::D>: Shape,
    {
        let _ = at;
        Typed::of(concat([&self.array, b.as_untyped()], I::NUMBER as i32))
    }
    /// Two parts of a dim, whose sizes add up to it.
    #[track_caller]
    pub fn split<A: Size, B: Size, I: DimNumber>(&self, at: I) -> Parts<T, S, V, I::D, A, B>
    where
        S: At<I::D>,
        Nth<S, I::D>: CutDim<A, B>,
        Put<S, I::D, <Nth<S, I::D> as CutDim<A, B>>::First>: Shape,
        Put<S, I::D, <Nth<S, I::D> as CutDim<A, B>>::Second>: Shape,
    {
        let _ = at;
        let known = [A::VALUE.unwrap_or(0), B::VALUE.unwrap_or(0)];
        let mut parts = self.array.split(known, I::NUMBER as i32).into_iter();
        // an array that carries an error is its own part
        let mut next = || parts.next().unwrap_or_else(|| self.array.clone());
        (Typed::of(next()), Typed::of(next()))
    }
    /// From `A` up to `B` along an unsharded dim.
    #[track_caller]
    pub fn slice<A: Size, B: Size, I: DimNumber>(
        &self,
        at: I,
    ) -> Typed<T, Put<S, I::D, <Nth<S, I::D> as SliceDim<A, B>>::Out>, V>
    where
        S: At<I::D>,
        Nth<S, I::D>: SliceDim<A, B>,
        Put<S, I::D, <Nth<S, I::D> as SliceDim<A, B>>::Out>: Shape,
    {
        let _ = at;
        let whole = crate::array::Pick::range(None, None, None);
        let (from, to) = (A::VALUE.unwrap_or(0) as i64, B::VALUE.unwrap_or(0) as i64);
        let picks = (0..S::DIMS.len()).map(|d| match d == I::NUMBER {
            true => crate::array::Pick::range(Some(from), Some(to), None),
            false => whole.clone(),
        });
        Typed::of(self.array.slice(picks.collect::<Vec<_>>().into()))
    }
    /// The elements of a dim the other way round.
    #[track_caller]
    pub fn flip<I: DimNumber>(&self, at: I) -> Self
    where
        S: At<I::D>,
        V: super::sets::Made,
    {
        let _ = at;
        Typed::of(self.array.flip(I::NUMBER))
    }
    /// This shape is one that arrays can have: mesh axes divide the dims that they shard.
    pub fn well_formed(&self) -> &Self
    where
        S: Formed,
    {
        self
    }
}

/// The shape with dim `I` cut into `A` and `B`.
pub type Split<S, I, A, B> =
    <Put<S, I, <Nth<S, I> as Factored<A, B>>::Minor> as Insert<I, <Nth<S, I> as Factored<A, B>>::Major>>::Out;
/// The shape with dim `I` and the next one merged.
pub type Merged<S, I> = Put<
    Without<S, <I as Next>::Next>,
    <I as DimNumber>::D,
    <Nth<S, <I as DimNumber>::D> as MergeDim<Nth<S, <I as Next>::Next>>>::Out,
>;
/// Two parts of dim `I`.
pub type Parts<T, S, V, I, A, B> = (
    Typed<T, Put<S, I, <Nth<S, I> as CutDim<A, B>>::First>, V>,
    Typed<T, Put<S, I, <Nth<S, I> as CutDim<A, B>>::Second>, V>,
);
/// A dim number that has a next one.
pub trait Next {
    /// The next one.
    type Next;
}
macro_rules! next { ($($i:literal $j:literal)*) => { $( impl Next for D<$i> { type Next = D<$j>; } )* } }
next!(0 1 1 2 2 3 3 4 4 5 5 6 6 7);
