//! A device's view of a run: where it is, and messages to others.

use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::mesh::{Axes, Axis, Mesh};
use crate::runtime::board::Wait;
use crate::runtime::network::{Body, Kept, Mailbox, Tag};
use crate::runtime::{copied, listed};
use crate::types::{DType, Element, Shape};
use ndarray::{Array as NdArray, ArrayRef, ArrayViewMut, Dimension, IxDyn};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

/// A device's view of the run: its coordinates, messages to other devices, collectives.
///
/// Collectives and `recv` wait for the other devices; `send` never waits. Where devices wait for one another in vain, call different
/// collectives, or one of them fails, all of them get an error, which says who waits where.
pub struct Device {
    mesh: Mesh,
    /// The axes that code may name.
    axes: Axes,
    position: usize,
    pub(super) mail: RefCell<Mailbox>,
    /// The groups of its collectives, and how many of each it called.
    groups: RefCell<Vec<(Arc<Group>, u64)>>,
}

/// The devices along some axes, this one among them.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) axes: Axes,
    /// How many they are.
    pub(super) size: usize,
    /// This one's place among them.
    pub(super) rank: usize,
    /// The position of the first.
    origin: usize,
    /// Size and stride of each axis.
    digits: SmallVec<[(usize, usize); 2]>,
}
impl Group {
    /// The position of member `rank`.
    pub(super) fn member(&self, mut rank: usize) -> usize {
        self.digits.iter().rev().fold(self.origin, |p, (size, stride)| {
            let p = p + rank % size * stride;
            rank /= size;
            p
        })
    }
}

/// One collective of a group.
pub(super) struct Meeting {
    pub(super) group: Arc<Group>,
    /// How many this device called before, with this one.
    pub(super) count: u64,
}

/// Another device, as [`Device::neighbor`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    position: usize,
}
impl Peer {
    /// Its position in the mesh, in row-major order.
    pub fn position(self) -> usize {
        self.position
    }
}

/// A message between two devices.
pub(super) struct Message {
    dtype: DType,
    shape: Shape,
    place: Place,
    data: Body,
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
    /// The mesh on which the code runs.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }
    /// Its position in the mesh, in row-major order.
    pub fn position(&self) -> usize {
        self.position
    }
    /// `device 3 (x=1, y=1)`.
    fn name(&self) -> String {
        self.mail.borrow().network.board.name(self.position)
    }
    fn error(&self, fault: Fault, op: &str, place: Place) -> Error {
        Error::at(fault, op, Vec::new(), Some(place))
    }
    /// The devices along the axes, this one's rank among them, and how many axes are named.
    pub(super) fn meet(&self, axes: Axes, op: &str, place: Place) -> Result<Meeting> {
        let mut groups = self.groups.borrow_mut();
        let known = groups.iter().position(|(g, _)| g.axes == axes);
        let at = match known {
            Some(at) => at,
            None => {
                groups.push((Arc::new(self.group(axes).map_err(|f| self.error(f, op, place))?), 0));
                groups.len() - 1
            }
        };
        let (group, count) = &mut groups[at];
        *count += 1;
        Ok(Meeting { group: group.clone(), count: *count })
    }
    fn group(&self, axes: Axes) -> Result<Group, Fault> {
        let mut seen: Vec<Axis> = Vec::new();
        for axis in axes.iter() {
            if self.mesh.find(axis).is_none() {
                return Err(self.mesh.unknown(axis));
            }
            if !self.axes.contains(axis) {
                return Err(Fault::new(
                    ErrorKind::Mesh,
                    format!("this code runs over {}, not over {axis}", self.axes),
                )
                .help("name the axis in `.over(..)`"));
            }
            if seen.contains(&axis) {
                return Err(Fault::new(ErrorKind::Mesh, format!("{axes} names {axis} twice")));
            }
            seen.push(axis);
        }
        let digits: SmallVec<[_; 2]> =
            seen.iter().map(|a| (self.mesh.extent(*a), self.mesh.step(*a))).collect();
        let digit = |(size, stride): &(usize, usize)| self.position / stride % size;
        Ok(Group {
            axes,
            size: digits.iter().map(|d| d.0).product(),
            rank: digits.iter().fold(0, |r, d| r * d.0 + digit(d)),
            origin: self.position - digits.iter().map(|d| digit(d) * d.1).sum::<usize>(),
            digits,
        })
    }
    /// The devices along the axes; an error for an axis that the mesh or the code has not.
    fn look(&self, axes: impl Into<Axes>, op: &str, place: Place) -> Result<Group> {
        self.group(axes.into()).map_err(|fault| self.error(fault, op, place))
    }
    /// Its index along an axis, or along several as one, major first.
    #[track_caller]
    pub fn index(&self, axes: impl Into<Axes>) -> Result<usize> {
        Ok(self.look(axes, "index", Location::caller())?.rank)
    }
    /// How many devices there are along an axis, or along several.
    #[track_caller]
    pub fn size(&self, axes: impl Into<Axes>) -> Result<usize> {
        Ok(self.look(axes, "size", Location::caller())?.size)
    }
    /// The device that is `by` steps along the axes, if there is one: the line has ends.
    #[track_caller]
    pub fn neighbor(&self, axes: impl Into<Axes>, by: i64) -> Result<Option<Peer>> {
        let group = self.look(axes, "neighbor", Location::caller())?;
        let there = isize::try_from(by).ok().and_then(|by| group.rank.checked_add_signed(by));
        Ok(there.filter(|r| *r < group.size).map(|r| Peer { position: group.member(r) }))
    }
    /// The device that is `by` steps along the axes, round and round: `dev.ring("x", 1)` is the next one, and of the last the first.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("x", 2), ("y", 3)])?;
    /// let f = spmd(&mesh, (), p!["x", "y"], |dev: &Device| {
    ///     let me = atmesh::nd::array![[dev.position() as i32]];
    ///     dev.send(dev.ring("y", 1)?, &me)?;
    ///     dev.recv::<i32, atmesh::nd::Ix2>(dev.ring("y", -1)?)
    /// });
    /// assert_eq!(f.call(())?.to_vec::<i32>()?, [2, 0, 1, 5, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn ring(&self, axes: impl Into<Axes>, by: i64) -> Result<Peer> {
        let group = self.look(axes, "ring", Location::caller())?;
        let there = (group.rank + by.rem_euclid(group.size as i64) as usize) % group.size;
        Ok(Peer { position: group.member(there) })
    }
    /// The device at a position of the mesh, if there is one.
    pub fn peer(&self, position: usize) -> Option<Peer> {
        (position < self.mesh.size()).then_some(Peer { position })
    }
    /// Sends an array, a view or a slice to a device; never waits.
    #[track_caller]
    pub fn send<T: Element, D: Dimension>(&self, to: Peer, x: &ArrayRef<T, D>) -> Result<()> {
        let place = Location::caller();
        let data: Vec<T> = elements(x)?;
        let message = Message { dtype: T::DTYPE, shape: x.shape().into(), place, data: Arc::new(data) };
        self.mail.borrow().send(to.position, Tag::Peer, Arc::new(message))
    }
    fn next<T: Element>(&self, from: Peer, place: Place) -> Result<(Arc<Message>, Arc<Vec<T>>)> {
        let wait =
            |_: &Kept| Wait { op: "recv", over: None, missing: vec![from.position], place: Some(place) };
        let body = self.mail.borrow_mut().receive(from.position, &Tag::Peer, &wait)?;
        let message: Arc<Message> =
            body.downcast().map_err(|_| Error::internal("a letter of another kind"))?;
        match message.data.clone().downcast::<Vec<T>>() {
            Ok(data) => Ok((message, data)),
            Err(_) => {
                let what =
                    format!("a message of {}{} is received as {}", message.dtype, message.shape, T::DTYPE);
                Err(self.unlike(what, from, &message, place))
            }
        }
    }
    fn unlike(&self, what: String, from: Peer, message: &Message, place: Place) -> Error {
        let sender = self.mail.borrow().network.board.name(from.position);
        let fault = Fault::new(ErrorKind::Mismatch, format!("{what}: {sender} sent it"))
            .help("`send` and `recv` pair in order; both ends name one element type and shape");
        self.error(fault, "recv", place).related(message.place, "sent here")
    }
    /// The next message from a device: waits for it.
    #[track_caller]
    pub fn recv<T: Element, D: Dimension>(&self, from: Peer) -> Result<NdArray<T, D>> {
        let place = Location::caller();
        let (message, data) = self.next::<T>(from, place)?;
        let data = Arc::try_unwrap(data).unwrap_or_else(|d| d.to_vec());
        let array = NdArray::from_shape_vec(IxDyn(&message.shape), data).map_err(Error::internal)?;
        array.into_dimensionality::<D>().map_err(|_| {
            let what = format!(
                "a message of shape {} is received in {} dimensions",
                message.shape,
                D::NDIM.unwrap_or(0)
            );
            self.unlike(what, from, &message, place)
        })
    }
    /// The next message from a device, into a place of one's own such as `data.slice_mut(s![..1])`: waits for it.
    #[track_caller]
    pub fn recv_into<T: Element, D: Dimension>(
        &self,
        from: Peer,
        mut into: ArrayViewMut<T, D>,
    ) -> Result<()> {
        let place = Location::caller();
        let (message, data) = self.next::<T>(from, place)?;
        if *message.shape != *into.shape() {
            let what = format!(
                "a message of shape {} is received into {}",
                message.shape,
                Shape::from(into.shape())
            );
            return Err(self.unlike(what, from, &message, place));
        }
        for (to, x) in into.iter_mut().zip(data.iter()) {
            *to = *x;
        }
        Ok(())
    }
}

/// The elements in row-major order.
pub(super) fn elements<T: Element, D: Dimension>(x: &ArrayRef<T, D>) -> Result<Vec<T>, Fault> {
    x.as_slice().map_or_else(|| listed(x.iter().copied(), x.len()), copied)
}
