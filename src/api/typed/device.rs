//! The device that runs a `shard_map` body: what only code of one device may do.

use super::axis::{HasAxis, MeshAxis};
use super::creation::{Place, sizes};
use super::manual::{ShardMapArguments, ShardMapIn};
use super::region::{InvariantSets, ManualRegion};
use super::{Typed, random::BlockKey, sets::AddAxis, shape::BlockShape};
use crate::api::{array::Array, random::Key};
use crate::core::{ArrayType, DType};
use std::marker::PhantomData;

/// The argument of [`shard_map`](super::Manual::shard_map) that its body takes as a [`DeviceOf`].
///
/// ```
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2, Y: 4 } }
/// let ranks: T![i32; 8@X] = Pod.shard_map((ThisDevice,), P![X], |(device,)| {
///     let zeros: T![i32; 4; in Pod] = Typed::zeros(&device);
///     zeros + device.axis_index(X)
/// });
/// assert_eq!(ranks.to_vec()?, [0, 0, 0, 0, 1, 1, 1, 1]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ThisDevice;

/// The device that runs a [`shard_map`](super::Manual::shard_map) body over the region `R`.
///
/// It exists only in the body, where a [`ThisDevice`] among the arguments becomes one. Operations
/// that outside of a body have no meaning need it: the device's position, and the creation of
/// arrays that are equal on all devices.
#[derive(Debug)]
pub struct DeviceOf<R> {
    // neither `Send` nor `Sync`: with the bound `Sync` of bodies, no captured value can keep it
    marker: PhantomData<*const R>,
}
impl<R> atmesh_typed::sealed::Sealed for DeviceOf<R> {}
impl<R> Clone for DeviceOf<R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R> Copy for DeviceOf<R> {}

impl<R: ManualRegion> DeviceOf<R> {
    /// Returns the device's position along a mesh axis.
    ///
    /// The axis is one of the mesh, and in a `shard_map` over some axes one of these.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let x = <T![i32; 8@Y]>::zeros(&Pod::mesh()?);
    /// let y = Pod.shard_map((x, ThisDevice), P![Y], |(x, device)| {
    ///     let position: T![i32;; V: Y] = device.axis_index(Y);
    ///     x + position
    /// });
    /// assert_eq!(y.to_vec()?, [0, 0, 1, 1, 2, 2, 3, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn axis_index<A: MeshAxis + AddAxis<R::Empty>>(
        &self,
        axis: A,
    ) -> Typed<i32, (), <A as AddAxis<R::Empty>>::Out>
    where
        R: HasAxis<A>,
    {
        let _ = axis;
        Typed::from_rule_result(crate::api::array::axis_index(A::NAME))
    }
}
impl<R: ManualRegion<Empty: InvariantSets<V>>, S: BlockShape, V> Place<S, V> for DeviceOf<R> {
    fn array_type(&self, dtype: DType) -> ArrayType {
        dtype.array_type(sizes::<S>())
    }
}
impl<R: ManualRegion> ShardMapIn<R> for ThisDevice {
    type Local = DeviceOf<R>;
    fn arrays(self, _: &mut ShardMapArguments) {}
    fn blocks(_: &mut dyn Iterator<Item = Array>) -> DeviceOf<R> {
        DeviceOf { marker: PhantomData }
    }
}
/// Every device gets the same key.
impl<R: ManualRegion> ShardMapIn<R> for Key {
    type Local = BlockKey<R::Empty>;
    fn arrays(self, into: &mut ShardMapArguments) {
        into.push(self.array().clone());
    }
    #[track_caller]
    fn blocks(from: &mut dyn Iterator<Item = Array>) -> BlockKey<R::Empty> {
        BlockKey::new(Key::from_array(super::manual::next_block(from)))
    }
}
