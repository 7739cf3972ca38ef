//! A device's view of a run: its coordinates, and messages to other devices.

use crate::api::array::AxisGroups;
use crate::core::{Axes, Axis, DType, Element, Error, Fault, Mesh, Result, Shape, SourceLocation};
use crate::exec::runtime::deadlock::Wait;
use crate::exec::runtime::mailbox::{EarlyMessages, Mailbox, Payload, Tag};
use crate::exec::runtime::{try_collect, try_to_vec};
use crate::ir::program::DeviceGroups;
use ndarray::{Array as NdArray, ArrayRef, ArrayViewMut, Dimension, IxDyn};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

/// A device's view of the run: its coordinates, messages to other devices, and collectives.
///
/// Collectives and `recv` wait for other devices; `send` never waits. If devices deadlock or call
/// different collectives, or if one of them fails, all devices get an error that says which device
/// waits where.
///
/// ```
/// use atmesh::{nd, prelude::*};
/// let mesh = Mesh::new([("X", 4)])?;
/// let f = spmd(&mesh, p!["X"], p!["X"], |device: &Device, x: nd::ArrayView1<i32>| {
///     let i = device.axis_index("X")? as i32;
///     Ok(x.mapv(|v| v * i))
/// });
/// assert_eq!(f.call(Array::from([1, 1, 1, 1]))?.to_vec::<i32>()?, [0, 1, 2, 3]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("comm", "communicator", "MPI_COMM_WORLD"))]
pub struct Device {
    mesh: Mesh,
    /// The axes that the code may name.
    axes: Axes,
    position: usize,
    pub(super) mail: RefCell<Mailbox>,
    /// The groups that this device ran collectives with, and the number of collectives in each.
    groups: RefCell<Vec<(Arc<DeviceGroup>, u64)>>,
}

/// The devices along some axes, including this one.
#[derive(Debug)]
pub(super) struct DeviceGroup {
    pub(super) axes: Axes,
    /// The number of devices in the group.
    pub(super) size: usize,
    /// The index of this device in the group.
    pub(super) rank: usize,
    /// The mesh position of the first device.
    origin: usize,
    /// The size and stride of each axis.
    sub_axes: SmallVec<[(usize, usize); 2]>,
    /// The index of each member along the axes. `None` if the members are all devices along them.
    members: Option<Vec<usize>>,
}
impl DeviceGroup {
    /// Returns the mesh position of the member with index `rank`.
    pub(super) fn position_of(&self, rank: usize) -> usize {
        let mut rank = self.members.as_ref().map_or(rank, |members| members[rank]);
        self.sub_axes.iter().rev().fold(self.origin, |p, (size, stride)| {
            let p = p + rank % size * stride;
            rank /= size;
            p
        })
    }
    /// Returns the group, among these groups of all devices along the axes, that has this device.
    fn within(&self, groups: &DeviceGroups) -> Result<DeviceGroup, Fault> {
        groups.check(self.size, &self.axes)?;
        let position = |group: &Vec<usize>| group.iter().position(|device| *device == self.rank);
        let own = groups.lists().iter().find_map(|group| Some((group, position(group)?)));
        let (members, rank) = own.ok_or_else(|| fault!(Mesh, "the groups {groups} leave out a device"))?;
        let (axes, sub_axes) = (self.axes.clone(), self.sub_axes.clone());
        let (size, origin, members) = (members.len(), self.origin, Some(members.clone()));
        Ok(DeviceGroup { axes, size, rank, origin, sub_axes, members })
    }
}

/// One collective call of a group.
pub(super) struct CollectiveInstance {
    pub(super) group: Arc<DeviceGroup>,
    /// The number of collectives that this device has called in the group, including this one.
    pub(super) sequence: u64,
    /// The groups of the call; `None` if all devices along its axes are one group.
    pub(super) groups: Option<DeviceGroups>,
    pub(super) op: &'static str,
    pub(super) location: SourceLocation,
}

/// Another device, as returned by [`Device::neighbor`].
///
/// ```
/// use atmesh::{nd, prelude::*};
/// let mesh = Mesh::new([("X", 2)])?;
/// let f = spmd(&mesh, p!["X"], p!["X"], |device: &Device, x: nd::ArrayView1<i32>| {
///     let right = device.neighbor("X", 1)?;
///     Ok(nd::Array1::from_elem(x.len(), right.map_or(-1, |peer| peer.position() as i32)))
/// });
/// assert_eq!(f.call(Array::from([0, 0]))?.to_vec::<i32>()?, [1, -1]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    position: usize,
}
impl Peer {
    /// Returns the device's position in the mesh, in row-major order.
    pub fn position(self) -> usize {
        self.position
    }
}

/// A message from one device to another.
pub(super) struct PeerMessage {
    dtype: DType,
    shape: Shape,
    location: SourceLocation,
    data: Payload,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Device {
    pub(super) fn new(mesh: &Mesh, axes: &Axes, mail: Mailbox) -> Device {
        let position = mail.device;
        let (mail, groups) = (RefCell::new(mail), RefCell::new(Vec::new()));
        Device { mesh: mesh.clone(), axes: axes.clone(), position, mail, groups }
    }
    /// Returns the mesh on which the code runs.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }
    /// Returns the device's position in the mesh, in row-major order.
    pub fn position(&self) -> usize {
        self.position
    }
    /// Returns the device's name: `device 3 (x=1, y=1)`.
    fn name(&self) -> String {
        self.mail.borrow().network.detector.name(self.position)
    }
    pub(super) fn error(&self, fault: Fault, op: &str, location: SourceLocation) -> Error {
        Error::new(fault, op, Vec::new(), Some(location))
    }
    /// Starts a collective of the devices along the axes, and assigns its sequence number.
    pub(super) fn begin_collective(
        &self,
        over: AxisGroups,
        op: &'static str,
        location: SourceLocation,
    ) -> Result<CollectiveInstance> {
        let (axes, within) = (over.axes().clone(), over.groups().cloned());
        let mut groups = self.groups.borrow_mut();
        let known = groups.iter().position(|(g, _)| g.axes == axes);
        let at = match known {
            Some(at) => at,
            None => {
                groups.push((Arc::new(self.device_group(axes).map_err(|f| self.error(f, op, location))?), 0));
                groups.len() - 1
            }
        };
        let (group, count) = &mut groups[at];
        *count += 1;
        let group = match &within {
            None => group.clone(),
            Some(within) => Arc::new(group.within(within).map_err(|f| self.error(f, op, location))?),
        };
        Ok(CollectiveInstance { group, sequence: *count, groups: within, op, location })
    }
    fn device_group(&self, axes: Axes) -> Result<DeviceGroup, Fault> {
        let mut seen: Vec<Axis> = Vec::new();
        for axis in axes.iter() {
            if self.mesh.find(axis).is_none() {
                return Err(self.mesh.unknown_axis(axis));
            }
            if !self.axes.contains(axis) {
                return Err(fault!(Mesh, "this code runs over {}, not over {axis}", self.axes)
                    .help("name the axis in `.over(..)`"));
            }
            if seen.contains(&axis) {
                return Err(fault!(Mesh, "{axes} names {axis} twice"));
            }
            seen.push(axis);
        }
        let digits: SmallVec<[_; 2]> =
            seen.iter().map(|a| (self.mesh.extent(*a), self.mesh.stride_of(*a))).collect();
        let sub_axis_index = |(size, stride): &(usize, usize)| self.position / stride % size;
        Ok(DeviceGroup {
            axes,
            size: digits.iter().map(|d| d.0).product(),
            rank: digits.iter().fold(0, |r, d| r * d.0 + sub_axis_index(d)),
            origin: self.position - digits.iter().map(|d| sub_axis_index(d) * d.1).sum::<usize>(),
            sub_axes: digits,
            members: None,
        })
    }
    /// Returns the devices along the axes. It is an error if the mesh lacks an axis or the code
    /// does not run over it.
    fn group_along(&self, axes: impl Into<Axes>, op: &str, location: SourceLocation) -> Result<DeviceGroup> {
        self.device_group(axes.into()).map_err(|fault| self.error(fault, op, location))
    }
    /// Returns the device's index along an axis, or its row-major index along several.
    #[doc(alias("MPI_Comm_rank", "Comm_rank", "rank"))]
    #[track_caller]
    pub fn axis_index(&self, axes: impl Into<Axes>) -> Result<usize> {
        Ok(self.group_along(axes, "axis_index", Location::caller())?.rank)
    }
    /// Returns the number of devices along one or several axes.
    #[doc(alias("MPI_Comm_size", "Comm_size"))]
    #[track_caller]
    pub fn axis_size(&self, axes: impl Into<Axes>) -> Result<usize> {
        Ok(self.group_along(axes, "axis_size", Location::caller())?.size)
    }
    /// Returns the device `by` steps along the axes, or `None` beyond the ends (not periodic).
    #[track_caller]
    pub fn neighbor(&self, axes: impl Into<Axes>, by: i64) -> Result<Option<Peer>> {
        let group = self.group_along(axes, "neighbor", Location::caller())?;
        let there = isize::try_from(by).ok().and_then(|by| group.rank.checked_add_signed(by));
        Ok(there.filter(|r| *r < group.size).map(|r| Peer { position: group.position_of(r) }))
    }
    /// Returns the device `by` steps along the axes, wrapping around at the ends (periodic).
    ///
    /// `dev.neighbor_periodic("x", 1)` is the next device; for the last one it is the first.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("x", 2), ("y", 3)])?;
    /// let f = spmd(&mesh, (), p!["x", "y"], |dev: &Device| {
    ///     let me = atmesh::nd::array![[dev.position() as i32]];
    ///     dev.send(dev.neighbor_periodic("y", 1)?, &me)?;
    ///     dev.recv::<i32, atmesh::nd::Ix2>(dev.neighbor_periodic("y", -1)?)
    /// });
    /// assert_eq!(f.call(())?.to_vec::<i32>()?, [2, 0, 1, 5, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    #[doc(alias("MPI_Cart_shift"))]
    pub fn neighbor_periodic(&self, axes: impl Into<Axes>, by: i64) -> Result<Peer> {
        let group = self.group_along(axes, "neighbor_periodic", Location::caller())?;
        let there = (group.rank + by.rem_euclid(group.size as i64) as usize) % group.size;
        Ok(Peer { position: group.position_of(there) })
    }
    /// Returns the device at a position of the mesh; `None` if the position is too large.
    pub fn peer(&self, position: usize) -> Option<Peer> {
        (position < self.mesh.size()).then_some(Peer { position })
    }
    /// Sends an array, a view or a slice to a device, without waiting.
    #[doc(alias = "MPI_Send")]
    #[track_caller]
    pub fn send<T: Element, D: Dimension>(&self, to: Peer, x: &ArrayRef<T, D>) -> Result<()> {
        let place = Location::caller();
        let data: Vec<T> = row_major_elements(x)?;
        let message =
            PeerMessage { dtype: T::DTYPE, shape: x.shape().into(), location: place, data: Arc::new(data) };
        self.mail.borrow().send(to.position, Tag::Peer, Arc::new(message))
    }
    fn receive_message<T: Element>(
        &self,
        from: Peer,
        location: SourceLocation,
    ) -> Result<(Arc<PeerMessage>, Arc<Vec<T>>)> {
        let wait = |_: &EarlyMessages| Wait {
            op: "recv",
            collective: None,
            missing: vec![from.position],
            location: Some(location),
        };
        let body = self.mail.borrow_mut().receive(from.position, &Tag::Peer, &wait)?;
        let message: Arc<PeerMessage> =
            body.downcast().map_err(|_| Error::internal("a message of another kind"))?;
        match message.data.clone().downcast::<Vec<T>>() {
            Ok(data) => Ok((message, data)),
            Err(_) => {
                let what =
                    format!("a message of {}{} is received as {}", message.dtype, message.shape, T::DTYPE);
                Err(self.message_mismatch(what, from, &message, location))
            }
        }
    }
    fn message_mismatch(
        &self,
        what: String,
        from: Peer,
        message: &PeerMessage,
        location: SourceLocation,
    ) -> Error {
        let sender = self.mail.borrow().network.detector.name(from.position);
        let fault = fault!(CollectiveMismatch, "{what}: {sender} sent it")
            .help("`send` and `recv` pair in order; both ends must use one element type and shape");
        self.error(fault, "recv", location).related(message.location, "sent here")
    }
    /// Receives the next message from a device, waiting for it. It is an error if element type or
    /// rank differ.
    #[doc(alias = "MPI_Recv")]
    #[track_caller]
    pub fn recv<T: Element, D: Dimension>(&self, from: Peer) -> Result<NdArray<T, D>> {
        let location = Location::caller();
        let (message, data) = self.receive_message::<T>(from, location)?;
        let data = Arc::try_unwrap(data).unwrap_or_else(|d| d.to_vec());
        let array = NdArray::from_shape_vec(IxDyn(&message.shape), data).map_err(Error::internal)?;
        array.into_dimensionality::<D>().map_err(|_| {
            let what = format!(
                "a message of shape {} is received in {} dimensions",
                message.shape,
                D::NDIM.unwrap_or(0)
            );
            self.message_mismatch(what, from, &message, location)
        })
    }
    /// Receives the next message from a device into a view, waiting for it. The view is, for
    /// example, `data.slice_mut(s![..1])`. It is an error if element type or shape differ.
    #[track_caller]
    pub fn recv_into<T: Element, D: Dimension>(
        &self,
        from: Peer,
        mut into: ArrayViewMut<T, D>,
    ) -> Result<()> {
        let location = Location::caller();
        let (message, data) = self.receive_message::<T>(from, location)?;
        if *message.shape != *into.shape() {
            let what = format!(
                "a message of shape {} is received into {}",
                message.shape,
                Shape::from(into.shape())
            );
            return Err(self.message_mismatch(what, from, &message, location));
        }
        for (to, x) in into.iter_mut().zip(data.iter()) {
            *to = *x;
        }
        Ok(())
    }
}

/// Returns the elements in row-major order.
pub(super) fn row_major_elements<T: Element, D: Dimension>(x: &ArrayRef<T, D>) -> Result<Vec<T>, Fault> {
    x.as_slice().map_or_else(|| try_collect(x.iter().copied(), x.len()), try_to_vec)
}
