//! Halos in `shard_map` bodies: blocks with a rim of elements that the neighbours hold.

use super::rules::halo::{HaloDim, RimDim, WithinRim};
use super::sets::{AddTo, CompleteFor, Sets};
use super::shape::{DimAccess, DimNumber, Shape};
use super::shapes::{DimAt, ReplaceDim};
use super::size::{KnownSize, Size};
use super::{Number, Typed, axis::Shard, manual::shard_axes, op};
use crate::api::array::{Array, Permutation, axis_index, axis_size, concat};
use crate::core::{Axes, Element, Error, ErrorKind, Fault};
use crate::ir::program::CallSite;
use std::panic::Location;

/// The elements of a rim at the edges of the mesh, where a device has no neighbour.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum HaloEdge<T> {
    /// Zeros.
    Zero,
    /// This value.
    Fill(T),
    /// The elements of the device at the other end.
    Periodic,
}

/// The shape `S` with a rim of `K` elements on both sides of dim `I`.
pub type HaloShape<S, I, K> = ReplaceDim<S, I, <DimAt<S, I> as HaloDim<K>>::Out>;
/// The shape `S` without the rim of dim `I`.
pub type CenterShape<S, I> = ReplaceDim<S, I, <DimAt<S, I> as RimDim>::Block>;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Returns the block with `K` elements of each neighbour along a mesh axis, in a
        /// `shard_map` body.
        ///
        /// The dim of size n becomes one of n + 2·`K`, whose type is
        /// [`WithRim`](crate::api::typed::size::WithRim) for every n, so that generic functions
        /// need only the bound of `shard_map`. [`Typed::before`], [`Typed::center`] and
        /// [`Typed::after`] return blocks of the dim without the rim. Devices at the edge of the
        /// mesh get zeros there.
        ///
        /// `axes` is the axis that shards the dim, or several, major first. The result varies over
        /// them. A rim is at most as wide as a block. The halo of a second dim includes the
        /// corners.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Grid { X: 2 } }
        ///
        /// fn laplace<N: Tiles<X>, M: Size>(u: T![f32; N@X, M]) -> T![f32; N@X, M] {
        ///     Grid.shard_map((u,), P![X, _], |(u,)| {
        ///         let rim = u.halo::<N![1], _, _>(D0, X);
        ///         rim.before::<N![1], _>(D0) + rim.after::<N![1], _>(D0) - u * 2.0
        ///     })
        /// }
        ///
        /// let u = <T![f32; 6@X, 1]>::iota(&Grid::mesh()?, D0);
        /// assert_eq!(laplace(u).to_vec()?, [1.0, 0.0, 0.0, 0.0, 0.0, -6.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn halo[K: KnownSize, I: DimNumber, A: Shard + AddTo<V>](&self, at: I, axes: A)
            -> Typed<T, HaloShape<S, I::D, K>, A::Out>
        where [
            T: Number,
            S: DimAccess<I::D, Dim: HaloDim<K>>,
            HaloShape<S, I::D, K>: Shape,
            V: CompleteFor<op::halo>,
        ]
            = exchange(&self.array, K::VALUE.unwrap_or(0), I::NUMBER, shard_axes::<A>(), HaloEdge::<T>::Zero);
        /// Runs [`Typed::halo`] with other elements at the edges of the mesh.
        ///
        /// ```
        /// use atmesh::typed::{HaloEdge, prelude::*};
        /// mesh! { struct Grid { X: 2 } }
        /// let u = <T![i32; 4@X]>::iota(&Grid::mesh()?, D0);
        /// let left: T![i32; 4@X] = Grid.shard_map((u,), P![X], |(u,)| {
        ///     u.halo_with::<N![1], _, _>(D0, X, HaloEdge::Periodic).before::<N![1], _>(D0)
        /// });
        /// assert_eq!(left.to_vec()?, [3, 0, 1, 2]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn halo_with[K: KnownSize, I: DimNumber, A: Shard + AddTo<V>]
            (&self, at: I, axes: A, edge: HaloEdge<T>)
            -> Typed<T, HaloShape<S, I::D, K>, A::Out>
        where [
            T: Number,
            S: DimAccess<I::D, Dim: HaloDim<K>>,
            HaloShape<S, I::D, K>: Shape,
            V: CompleteFor<op::halo_with>,
        ]
            = exchange(&self.array, K::VALUE.unwrap_or(0), I::NUMBER, shard_axes::<A>(), edge);
        /// Returns the block of a dim with a rim: the elements at their own positions.
        pub fn center[I: DimNumber](&self, at: I) -> Typed<T, CenterShape<S, I::D>, V>
        where [S: DimAccess<I::D>, DimAt<S, I::D>: RimDim, CenterShape<S, I::D>: Shape]
            = block_at::<DimAt<S, I::D>>(&self.array, I::NUMBER, 0);
        /// Returns the elements `B` positions before those of the block: for each element its
        /// neighbour towards the start.
        ///
        /// `B` is at most the width of the rim. The dim has the size of the block.
        pub fn before[B, I: DimNumber](&self, at: I) -> Typed<T, CenterShape<S, I::D>, V>
        where [
            S: DimAccess<I::D, Dim: RimDim>,
            B: WithinRim<<DimAt<S, I::D> as RimDim>::Width>,
            CenterShape<S, I::D>: Shape,
        ]
            = block_at::<DimAt<S, I::D>>(&self.array, I::NUMBER, -(B::VALUE.unwrap_or(0) as i64));
        /// Returns the elements `B` positions after those of the block: for each element its
        /// neighbour towards the end.
        ///
        /// `B` is at most the width of the rim. The dim has the size of the block.
        pub fn after[B, I: DimNumber](&self, at: I) -> Typed<T, CenterShape<S, I::D>, V>
        where [
            S: DimAccess<I::D, Dim: RimDim>,
            B: WithinRim<<DimAt<S, I::D> as RimDim>::Width>,
            CenterShape<S, I::D>: Shape,
        ]
            = block_at::<DimAt<S, I::D>>(&self.array, I::NUMBER, B::VALUE.unwrap_or(0) as i64);
    }
}

/// Returns the block of dim `at`, whose type with the rim is `Q`, shifted by `by` positions into
/// its rim.
#[track_caller]
fn block_at<Q: RimDim>(array: &Array, at: usize, by: i64) -> Array {
    let width = Q::Width::VALUE.unwrap_or(0);
    let size = array.shape().map_or(2 * width, |shape| shape[at]).saturating_sub(2 * width);
    let start = width.saturating_add_signed(by as isize);
    array.slice_dim(at, start, start + size, CallSite::here("halo"))
}

/// Returns `x` with `width` elements of the neighbours along `axes` on both sides of dim `d`.
#[track_caller]
fn exchange<T: Element>(x: &Array, width: usize, d: usize, axes: Axes, edge: HaloEdge<T>) -> Array {
    let (Ok(ty), call) = (x.type_ref(), CallSite::here("halo")) else { return x.clone() };
    let n = ty.shape[d];
    if width > n {
        let why =
            format!("a rim of {width} elements is wider than a block, whose dimension {d} has size {n}");
        let fault = Fault::new(ErrorKind::Shape, why).highlight_dim(0, d);
        let fault = fault.help("shard the dimension over fewer devices, so that blocks are at least as wide");
        let error = Error::new(fault, "halo", vec![ty.to_string()], Some(Location::caller()));
        return crate::api::trace::poison(error);
    }
    let [first, last] = [x.slice_dim(d, 0, width, call), x.slice_dim(d, n - width, n, call)];
    let [up, down] = match edge {
        HaloEdge::Periodic => [Permutation::ring(1), Permutation::ring(-1)],
        _ => [Permutation::shift(1), Permutation::shift(-1)],
    };
    let (mut before, mut after) = (last.ppermute(axes.clone(), up), first.ppermute(axes.clone(), down));
    if let HaloEdge::Fill(value) = edge {
        let index = axis_index(axes.clone());
        let end = axis_size(axes).map_or(0, |n| n as i64 - 1);
        before = index.eq(0).select(Array::from(value), before);
        after = index.eq(end).select(Array::from(value), after);
    }
    concat([&before, x, &after], d as i32)
}
