//! Collectives that device code calls on its [`Device`].
//!
//! Every device sends its message to the others, then receives theirs. Among 24 or more devices,
//! messages go up and down a tree instead. Reductions combine in one fixed tree over the order of
//! the devices, so that all devices get the same bits.

use super::device::{CollectiveInstance, Device, row_major_elements};
use crate::api::array::{AllToAll, AxisGroups, Permutation};
use crate::core::{Axes, DType, Element, Error, ErrorKind, Fault, Result, SourceLocation};
use crate::exec::runtime::deadlock::{CollectiveCall, Wait};
use crate::exec::runtime::mailbox::{EarlyMessages, Payload, Tag};
use crate::exec::runtime::{try_collect, try_to_vec, try_vec_with_capacity};
use crate::ir::program::Reducer;
use crate::kernels::pairwise_sum::pairwise_combine;
use ndarray::{Array as NdArray, ArrayRef, Dimension, IxDyn};
use std::ops::{Deref, Range};
use std::panic::Location;
use std::sync::Arc;

/// The message that one device sends in a collective.
pub(super) struct CollectiveMessage {
    /// The call, which receivers compare with their own.
    pub(super) call: Arc<CollectiveCall>,
    /// The elements that are sent.
    data: Payload,
}

/// The minimum number of devices for which messages go up and down a tree.
/// Each device then receives few messages, instead of one from every device.
const MIN_TREE_DEVICES: usize = if cfg!(shuttle) { 4 } else { 24 };
/// The maximum size, in bytes, of an operand that every device reduces in full. Of larger operands
/// each device reduces its share, and the shares are exchanged.
const MAX_UNSPLIT_BYTES: usize = 16 << 10;

/// A dimension split into `n` pieces: `outer` runs, each of `n` pieces of `inner` elements.
#[derive(Clone, Copy)]
struct DimSplit {
    outer: usize,
    inner: usize,
}
impl DimSplit {
    /// Splits dimension `dim` of `shape` into `n` pieces.
    fn new(shape: &[usize], dim: usize, n: usize) -> DimSplit {
        DimSplit {
            outer: shape[..dim].iter().product(),
            inner: shape[dim..].iter().product::<usize>() / n.max(1),
        }
    }
    fn extract<T: Copy>(self, x: &[T], k: usize, n: usize) -> Result<Vec<T>, Fault> {
        let mut piece = try_vec_with_capacity(self.outer * self.inner)?;
        for run in 0..self.outer {
            let from = (run * n + k) * self.inner;
            piece.extend_from_slice(&x[from..from + self.inner]);
        }
        Ok(piece)
    }
    fn concat<T: Copy, P: Deref<Target = Vec<T>>>(self, pieces: &[P]) -> Result<Vec<T>, Fault> {
        let mut full = try_vec_with_capacity(self.outer * self.inner * pieces.len())?;
        for run in 0..self.outer {
            for piece in pieces {
                full.extend_from_slice(&piece[run * self.inner..(run + 1) * self.inner]);
            }
        }
        Ok(full)
    }
}

pub(super) fn to_ndarray<T, D: Dimension>(shape: &[usize], data: Vec<T>) -> Result<NdArray<T, D>> {
    let array = NdArray::from_shape_vec(IxDyn(shape), data).map_err(Error::internal)?;
    array.into_dimensionality().map_err(Error::internal)
}

/// Combines the operands in the fixed tree.
fn combine<T: Element>(how: Reducer, partials: &[&[T]]) -> Result<Vec<T>, Fault> {
    let n = partials[0].len();
    let at: Vec<*const u8> = partials.iter().map(|p| p.as_ptr().cast()).collect();
    let mut sum = try_vec_with_capacity::<T>(n)?;
    // SAFETY: there is at least one operand, and each has `n` initialized elements (the devices'
    // calls were compared); `sum` is a separate vector with capacity `n`; and `pairwise_combine`
    // writes `n` elements if it returns true.
    unsafe {
        if pairwise_combine(how, T::DTYPE, &at, n, sum.as_mut_ptr().cast()) {
            sum.set_len(n);
        }
    }
    Ok(sum)
}

/// Returns the data of a message.
pub(super) fn message_data<V: Send + Sync + 'static>(message: &CollectiveMessage) -> Result<Arc<V>> {
    message.data.clone().downcast().map_err(|_| Error::internal("a message of another type"))
}

/// A collective call in progress on one device.
pub(super) struct Exchange<'a> {
    device: &'a Device,
    pub(super) at: CollectiveInstance,
    pub(super) call: Arc<CollectiveCall>,
}

impl Exchange<'_> {
    /// Returns the data of all members, in order.
    fn gather_all<T: Element>(&self, round: u8, mine: Arc<Vec<T>>) -> Result<Arc<Vec<Arc<Vec<T>>>>> {
        if self.at.group.size >= MIN_TREE_DEVICES {
            let join = |mut own: Vec<_>, others: &Vec<Arc<Vec<T>>>| {
                own.extend_from_slice(others);
                Ok(own)
            };
            return self.tree_merge(round, vec![mine], join);
        }
        let (rank, size) = (self.at.group.rank, self.at.group.size);
        let tag = Tag::Collective(self.at.group.axes.clone(), self.at.sequence, round);
        for k in (0..size).filter(|k| *k != rank) {
            self.send(k, &tag, mine.clone())?;
        }
        // calls are compared in member order, so that every device that finds a difference names
        // the same two members
        let mut first: Option<Arc<CollectiveCall>> = None;
        let mut pieces = Vec::with_capacity(size);
        for k in 0..size {
            if k == rank {
                first.get_or_insert_with(|| self.call.clone());
                pieces.push(mine.clone());
                continue;
            }
            let message = self.receive(k..size, &tag)?;
            if !self.call.matches(&message.call) {
                return Err(match &first {
                    Some(first) => self.mismatch((0, first), (k, &message.call)),
                    None => self.mismatch((0, &message.call), (rank, &self.call)),
                });
            }
            first.get_or_insert_with(|| message.call.clone());
            pieces.push(message_data(&message)?);
        }
        Ok(Arc::new(pieces))
    }
    /// Merges the data of all members in a fixed tree, and returns the result on each of them.
    ///
    /// Member r merges the data of members r + 1, r + 2, r + 4, … as far as they are in its
    /// subtree, and sends the result to its parent, r without its lowest set bit. The root's result
    /// then goes down the same tree.
    fn tree_merge<V: Send + Sync + 'static>(
        &self,
        round: u8,
        mine: V,
        merge: impl Fn(V, &V) -> Result<V, Fault>,
    ) -> Result<Arc<V>> {
        let (rank, size) = (self.at.group.rank, self.at.group.size);
        let tag = |down| Tag::Collective(self.at.group.axes.clone(), self.at.sequence, 2 * round + down);
        let (up, down) = (tag(0), tag(1));
        let mut all = mine;
        let mut far = 1;
        while rank & far == 0 && far < size {
            if rank + far < size {
                let message = self.receive(rank + far..rank + far + 1, &up)?;
                if !self.call.matches(&message.call) {
                    return Err(self.mismatch((rank, &self.call), (rank + far, &message.call)));
                }
                all = merge(all, &*message_data::<V>(&message)?)?;
            }
            far *= 2;
        }
        let mut all = Arc::new(all);
        if rank > 0 {
            let parent = rank - far;
            self.send(parent, &up, all)?;
            let message = self.receive(parent..parent + 1, &down)?;
            all = message_data(&message)?;
        }
        while far > 1 {
            far /= 2;
            if rank + far < size {
                self.send(rank + far, &down, all.clone())?;
            }
        }
        Ok(all)
    }
    /// Sends data to member k.
    pub(super) fn send(&self, k: usize, tag: &Tag, data: Payload) -> Result<()> {
        let message = CollectiveMessage { call: self.call.clone(), data };
        self.device.mail.borrow().send(self.at.group.position_of(k), tag.clone(), Arc::new(message))
    }
    /// Receives the message of the first of these members. A deadlock report lists each of these
    /// members whose message is missing.
    pub(super) fn receive(&self, of: Range<usize>, tag: &Tag) -> Result<Arc<CollectiveMessage>> {
        let wait = |early: &EarlyMessages| Wait {
            op: self.call.op,
            collective: Some((self.at.group.axes.clone(), self.at.sequence)),
            missing: (of.clone().map(|k| self.at.group.position_of(k)))
                .filter(|m| *m != self.device.position() && !early.has(*m, tag))
                .collect(),
            location: Some(self.call.location),
        };
        let body = self.device.mail.borrow_mut().receive(self.at.group.position_of(of.start), tag, &wait)?;
        body.downcast().map_err(|_| Error::internal("a message of another kind"))
    }
    /// Aborts the run and returns the error for two members, given by index, that call different
    /// collectives.
    pub(super) fn mismatch(&self, one: (usize, &CollectiveCall), other: (usize, &CollectiveCall)) -> Error {
        let mail = self.device.mail.borrow();
        let of = |(k, call)| (self.at.group.position_of(k), call);
        mail.network.stop(mail.network.detector.mismatch_error(&self.at.group.axes, of(one), of(other)));
        // all devices report the error of the first device that aborted the run
        mail.verdict()
    }
}

impl Device {
    pub(super) fn exchange(
        &self,
        at: CollectiveInstance,
        dtype: DType,
        shape: &[usize],
        params: String,
    ) -> Exchange<'_> {
        let params = match &at.groups {
            None => params,
            Some(groups) if params.is_empty() => format!("groups {groups}"),
            Some(groups) => format!("{params}, groups {groups}"),
        };
        let call = CollectiveCall { op: at.op, dtype, shape: shape.into(), params, location: at.location };
        Exchange { device: self, at, call: Arc::new(call) }
    }
    fn all_reduce<T: Element>(
        &self,
        x: Vec<T>,
        shape: &[usize],
        over: AxisGroups,
        how: Reducer,
        op: &'static str,
        location: SourceLocation,
    ) -> Result<Vec<T>> {
        if T::DTYPE == DType::Bool && how == Reducer::Add {
            let fault = fault!(Dtype, "bools are not summed over devices");
            return Err(self.error(fault, op, location));
        }
        let at = self.begin_collective(over, op, location)?;
        let n = at.group.size;
        let exchange = self.exchange(at, T::DTYPE, shape, String::new());
        let len = x.len();
        let small = len * size_of::<T>() <= MAX_UNSPLIT_BYTES;
        if small && n >= MIN_TREE_DEVICES {
            let both = |own: Vec<T>, other: &Vec<T>| combine(how, &[&own, other]);
            return Ok(Arc::unwrap_or_clone(exchange.tree_merge(0, x, both)?));
        }
        let partials = exchange.gather_all(0, Arc::new(x))?;
        if small || n == 1 {
            return Ok(combine(how, &partials.iter().map(|p| p.as_slice()).collect::<Vec<_>>())?);
        }
        let rank = exchange.at.group.rank;
        let (from, to) = (len * rank / n, len * (rank + 1) / n);
        let share = combine(how, &partials.iter().map(|p| &p[from..to]).collect::<Vec<_>>())?;
        let shares = exchange.gather_all(1, Arc::new(share))?;
        let mut full = try_vec_with_capacity(len)?;
        shares.iter().for_each(|s| full.extend_from_slice(s));
        Ok(full)
    }
    /// Waits until all devices along the axes have called this method.
    #[doc(alias = "MPI_Barrier")]
    #[track_caller]
    pub fn barrier(&self, axes: impl Into<Axes>) -> Result<()> {
        let location = Location::caller();
        let at = self.begin_collective(axes.into().into(), "barrier", location)?;
        let exchange = self.exchange(at, DType::Bool, &[0], String::new());
        if exchange.at.group.size >= MIN_TREE_DEVICES {
            return exchange.tree_merge(0, (), |(), ()| Ok(())).map(|_| ());
        }
        exchange.gather_all(0, Arc::new(Vec::<bool>::new())).map(|_| ())
    }
    /// Returns the sum of a scalar over the devices along the axes.
    #[doc(alias("Allreduce", "MPI_Allreduce"))]
    #[track_caller]
    pub fn psum_scalar<T: Element>(&self, x: T, axes: impl Into<AxisGroups>) -> Result<T> {
        let sum =
            self.all_reduce(vec![x], &[], axes.into(), Reducer::Add, "psum_scalar", Location::caller())?;
        Ok(sum[0])
    }
    /// Returns the blocks of all devices along the axes, concatenated along dimension `dim`.
    ///
    #[doc(alias("MPI_Allgather", "Allgather"))]
    #[cfg_attr(doc, doc = picture!("moves-gather"))]
    #[track_caller]
    pub fn all_gather<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<AxisGroups>,
        dim: usize,
    ) -> Result<NdArray<T, D>> {
        let location = Location::caller();
        self.check_dim(x.shape(), dim, "all_gather", location)?;
        let at = self.begin_collective(axes.into(), "all_gather", location)?;
        let exchange = self.exchange(at, T::DTYPE, x.shape(), format!("dim {dim}"));
        let pieces = exchange.gather_all(0, Arc::new(row_major_elements(x)?))?;
        let mut shape = x.shape().to_vec();
        let full = DimSplit::new(&shape, dim, 1).concat(&pieces)?;
        shape[dim] *= pieces.len();
        to_ndarray(&shape, full)
    }
    /// Sums over the devices along the axes, and returns this device's block along dimension `dim`.
    ///
    #[doc(alias("MPI_Reduce_scatter_block", "Reduce_scatter_block"))]
    #[cfg_attr(doc, doc = picture!("moves-scatter"))]
    #[track_caller]
    pub fn psum_scatter<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<AxisGroups>,
        dim: usize,
    ) -> Result<NdArray<T, D>> {
        let location = Location::caller();
        self.check_dim(x.shape(), dim, "psum_scatter", location)?;
        let at = self.begin_collective(axes.into(), "psum_scatter", location)?;
        let mut shape = x.shape().to_vec();
        self.check_divides(&shape, dim, &at)?;
        if T::DTYPE == DType::Bool {
            let fault = fault!(Dtype, "bools are not summed over devices");
            return Err(self.error(fault, "psum_scatter", location));
        }
        let (n, rank) = (at.group.size, at.group.rank);
        let exchange = self.exchange(at, T::DTYPE, &shape, format!("dim {dim}"));
        let cut = DimSplit::new(&shape, dim, n);
        let all = exchange.gather_all(0, Arc::new(row_major_elements(x)?))?;
        let pieces = all.iter().map(|x| cut.extract(x, rank, n)).collect::<Result<Vec<Vec<T>>, Fault>>()?;
        shape[dim] /= n;
        to_ndarray(&shape, combine(Reducer::Add, &pieces.iter().map(Vec::as_slice).collect::<Vec<_>>())?)
    }
    /// Splits one dimension, sends a piece to each device, and concatenates the received pieces.
    ///
    /// The devices are those along the axes. `split_concat` gives both dimensions, such as
    /// `AllToAll::split(0).concat(1)`.
    ///
    #[doc(alias("MPI_Alltoall", "Alltoall"))]
    #[cfg_attr(doc, doc = picture!("moves-all-to-all"))]
    #[track_caller]
    pub fn all_to_all<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<AxisGroups>,
        split_concat: AllToAll,
    ) -> Result<NdArray<T, D>> {
        self.exchange_pieces(x, axes.into(), split_concat, "all_to_all", Location::caller())
    }
    /// Exchanges the pieces of blocks, for the given call.
    pub(super) fn exchange_pieces<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        over: AxisGroups,
        split_concat: AllToAll,
        op: &'static str,
        location: SourceLocation,
    ) -> Result<NdArray<T, D>> {
        let (split, concat, tiled) = split_concat.into_parts();
        let dim = |d: i32| usize::try_from(if d < 0 { d + x.ndim() as i32 } else { d }).unwrap_or(usize::MAX);
        let (split, concat) = (dim(split), dim(concat));
        self.check_dim(x.shape(), split, op, location)?;
        self.check_dim(x.shape(), concat, op, location)?;
        let at = self.begin_collective(over, op, location)?;
        let mut shape = x.shape().to_vec();
        let n = at.group.size;
        if tiled {
            self.check_divides(&shape, split, &at)?;
        } else if shape[split] != n {
            let (size, axes) = (shape[split], &at.group.axes);
            let fault =
                fault!(Shape, "dimension {split} has size {size}, but there are {n} devices over {axes}");
            return Err(self.error(fault, op, location));
        }
        let params =
            format!("dim {split} cut, {} {concat}", if tiled { "joined along" } else { "stacked along" });
        let rank = at.group.rank;
        let exchange = self.exchange(at, T::DTYPE, &shape, params);
        let cut = DimSplit::new(&shape, split, n);
        let all = exchange.gather_all(0, Arc::new(row_major_elements(x)?))?;
        let pieces = all.iter().map(|x| cut.extract(x, rank, n)).collect::<Result<Vec<Vec<T>>, Fault>>()?;
        shape[split] /= n;
        if !tiled {
            shape.remove(split);
            shape.insert(concat, 1);
        }
        let full = DimSplit::new(&shape, concat, 1).concat(&pieces.iter().collect::<Vec<_>>())?;
        shape[concat] *= n;
        to_ndarray(&shape, full)
    }
    /// Sends a block along pairs (source, target), and returns the block received.
    ///
    /// Examples: `[(0, 1), (1, 0)]`, `Permutation::shift(1)`, `Permutation::ring(1)`. Returns zeros
    /// on a device that is not a target.
    ///
    #[doc(alias("Sendrecv", "MPI_Sendrecv"))]
    #[cfg_attr(doc, doc = picture!("moves-permute"))]
    #[track_caller]
    pub fn ppermute<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<Axes>,
        pairs: impl Into<Permutation>,
    ) -> Result<NdArray<T, D>> {
        self.permute(x, axes.into(), pairs.into(), "ppermute", Location::caller())
    }
    /// Sends a block along pairs (source, target), for the given call.
    pub(super) fn permute<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: Axes,
        pairs: Permutation,
        op: &'static str,
        location: SourceLocation,
    ) -> Result<NdArray<T, D>> {
        let at = self.begin_collective(axes.into(), op, location)?;
        let n = at.group.size;
        if let Some(message) = pairs.invalid_pair(n, &at.group.axes) {
            return Err(self.error(Fault::new(ErrorKind::Shape, message), op, location));
        }
        let (axes, rank, sequence) = (at.group.axes.clone(), at.group.rank, at.sequence);
        let exchange = self.exchange(at, T::DTYPE, x.shape(), pairs.to_string());
        let call = &exchange.call;
        self.mail.borrow().network.detector.record_permutation(
            self.position(),
            (axes.clone(), sequence),
            call.clone(),
        );
        let tag = Tag::Collective(axes, sequence, 0);
        let mine = Arc::new(row_major_elements(x)?);
        if let Some(to) = pairs.target(rank, n).filter(|to| *to != rank) {
            exchange.send(to, &tag, mine.clone())?;
        }
        let data = match pairs.source(rank, n) {
            None => try_collect(std::iter::repeat_n(zero(), mine.len()), mine.len())?,
            Some(from) if from == rank => try_to_vec(&mine)?,
            Some(from) => {
                let part = exchange.receive(from..from + 1, &tag)?;
                if !call.matches(&part.call) {
                    let (one, other) = ((from, &*part.call), (rank, &**call));
                    let (one, other) = if from < rank { (one, other) } else { (other, one) };
                    return Err(exchange.mismatch(one, other));
                }
                let data = message_data::<Vec<T>>(&part)?;
                drop(part);
                Arc::unwrap_or_clone(data)
            }
        };
        to_ndarray(x.shape(), data)
    }
    fn check_dim(&self, shape: &[usize], dim: usize, op: &str, location: SourceLocation) -> Result<()> {
        if dim < shape.len() {
            return Ok(());
        }
        Err(self.error(
            fault!(Shape, "dimension {dim} of a block of {} dimensions", shape.len()),
            op,
            location,
        ))
    }
    fn check_divides(&self, shape: &[usize], dim: usize, at: &CollectiveInstance) -> Result<()> {
        let n = at.group.size;
        if shape[dim].is_multiple_of(n) {
            return Ok(());
        }
        let size = shape[dim];
        let fault = fault!(Shape, "dimension {dim} of the block has size {size}, which {n} does not divide");
        Err(self.error(fault, at.op, at.location))
    }
}

macro_rules! reductions { ($($(#[$doc:meta])* $name:ident $combine:ident;)*) => {
    impl Device {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<T: Element, D: Dimension>(
            &self,
            x: &ArrayRef<T, D>,
            axes: impl Into<AxisGroups>,
        ) -> Result<NdArray<T, D>> {
            let (over, place) = (axes.into(), Location::caller());
            let all = self.all_reduce(row_major_elements(x)?, x.shape(), over, Reducer::$combine, stringify!($name), place)?;
            to_ndarray(x.shape(), all)
        }
    )*}
} }
reductions! {
    /// Returns the sum over the devices along the axes, with the same bits on all of them.
    ///
    #[cfg_attr(doc, doc = picture!("moves-reduce"))]
    psum Add;
    /// Returns the maximum over the devices along the axes; NaN if any operand is NaN.
    pmax Max;
    /// Returns the minimum over the devices along the axes; NaN if any operand is NaN.
    pmin Min;
}

pub(super) fn zero<T: Element>() -> T {
    // SAFETY: `Element` is sealed: all element types are numbers or bool, for which zero bytes are
    // a valid value.
    unsafe { std::mem::zeroed() }
}
