//! A device's view of a run: where it is, and messages to others.

use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::mesh::{Axes, Axis, Mesh};
use crate::runtime::board::Wait;
use crate::runtime::network::{Body, Letter, Mailbox, Tag};
use crate::types::{DType, Element, Shape};
use ndarray::{Array as NdArray, ArrayRef, ArrayViewMut, Dimension, IxDyn};
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
    groups: RefCell<Vec<Group>>,
}

/// The devices along some axes, this one among them.
struct Group {
    axes: Axes,
    members: Arc<[usize]>,
    rank: usize,
    /// Collectives called so far.
    count: u64,
}

/// One collective of a group.
pub(super) struct Meeting {
    pub(super) axes: Axes,
    pub(super) members: Arc<[usize]>,
    pub(super) rank: usize,
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
        let known = groups.iter().position(|g| g.axes == axes);
        let at = match known {
            Some(at) => at,
            None => {
                groups.push(self.group(axes).map_err(|f| self.error(f, op, place))?);
                groups.len() - 1
            }
        };
        let group = &mut groups[at];
        group.count += 1;
        let (axes, members) = (group.axes.clone(), group.members.clone());
        Ok(Meeting { axes, members, rank: group.rank, count: group.count })
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
        let size: usize = seen.iter().map(|a| self.mesh.axis_size(*a)).product();
        let digit = |a: Axis| self.position / self.mesh.stride(a) % self.mesh.axis_size(a);
        let rank = seen.iter().fold(0, |r, a| r * self.mesh.axis_size(*a) + digit(*a));
        let origin = self.position - seen.iter().map(|a| digit(*a) * self.mesh.stride(*a)).sum::<usize>();
        let member = |mut rank: usize| {
            seen.iter().rev().fold(origin, |p, a| {
                let (size, stride) = (self.mesh.axis_size(*a), self.mesh.stride(*a));
                let p = p + rank % size * stride;
                rank /= size;
                p
            })
        };
        Ok(Group { members: (0..size).map(member).collect(), axes, rank, count: 0 })
    }
    /// A look at the devices along the axes. Unknown axes end the device's code: the error comes out of the run.
    fn look<R>(&self, axes: Axes, op: &str, place: Place, f: impl FnOnce(&Group) -> R) -> R {
        match self.group(axes) {
            Ok(group) => f(&group),
            Err(fault) => std::panic::resume_unwind(Box::new(self.error(fault, op, place))),
        }
    }
    /// Its index along an axis, or along several as one, major first.
    #[track_caller]
    pub fn index(&self, axes: impl Into<Axes>) -> usize {
        self.look(axes.into(), "index", Location::caller(), |g| g.rank)
    }
    /// How many devices there are along an axis, or along several.
    #[track_caller]
    pub fn size(&self, axes: impl Into<Axes>) -> usize {
        self.look(axes.into(), "size", Location::caller(), |g| g.members.len())
    }
    /// The device that is `by` steps along the axes, if there is one.
    #[track_caller]
    pub fn neighbor(&self, axes: impl Into<Axes>, by: i64) -> Option<Peer> {
        self.look(axes.into(), "neighbor", Location::caller(), |g| {
            let there = usize::try_from(i64::try_from(g.rank).ok()?.checked_add(by)?).ok()?;
            g.members.get(there).map(|p| Peer { position: *p })
        })
    }
    /// The device at a position of the mesh, if there is one.
    pub fn peer(&self, position: usize) -> Option<Peer> {
        (position < self.mesh.size()).then_some(Peer { position })
    }
    /// Sends an array, a view or a slice to a device; never waits.
    #[track_caller]
    pub fn send<T: Element, D: Dimension>(&self, to: Peer, x: &ArrayRef<T, D>) -> Result<()> {
        let place = Location::caller();
        let data: Vec<T> = elements(x);
        let message = Message { dtype: T::DTYPE, shape: x.shape().into(), place, data: Arc::new(data) };
        self.mail.borrow().send(to.position, Tag::Peer, Arc::new(message))
    }
    fn next<T: Element>(&self, from: Peer, place: Place) -> Result<(Arc<Message>, Arc<Vec<T>>)> {
        let wait =
            |_: &[Letter]| Wait { op: "recv", over: None, missing: vec![from.position], place: Some(place) };
        let body = self.mail.borrow_mut().receive(from.position, &Tag::Peer, &wait)?;
        let message: Arc<Message> = body.downcast().map_err(|_| Error::other("a letter of another kind"))?;
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
        let array = NdArray::from_shape_vec(IxDyn(&message.shape), data).map_err(Error::other)?;
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
pub(super) fn elements<T: Element, D: Dimension>(x: &ArrayRef<T, D>) -> Vec<T> {
    x.as_slice().map_or_else(|| x.iter().copied().collect(), <[T]>::to_vec)
}
