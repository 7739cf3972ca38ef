//! Collectives of device code.
//!
//! Every device sends what the others need, then takes what it needs itself; all combine in one fixed tree over the devices'
//! order, so that results have the same bits on all of them, whoever computes them.

use super::device::{Device, Meeting, elements};
use crate::array::{Exchange, Permutation};
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::mesh::Axes;
use crate::program::sentence::Combine;
use crate::runtime::board::{Call, Wait};
use crate::runtime::network::{Body, Kept, Tag};
use crate::runtime::tree::tree;
use crate::runtime::{copied, listed, room};
use crate::types::{DType, Element};
use ndarray::{Array as NdArray, ArrayRef, Dimension, IxDyn};
use std::ops::{Deref, Range};
use std::panic::Location;
use std::sync::Arc;

/// What devices send in a collective.
struct Part {
    call: Arc<Call>,
    data: Body,
}

/// From so many devices on what each sends goes up a tree and down again: each hears from few, where otherwise each hears from all.
const MANY: usize = if cfg!(shuttle) { 4 } else { 24 };
/// From this size on each device combines its share only, and the shares are exchanged.
const LARGE: usize = 16 << 10;

/// The parts of a dimension: `outer` runs of `n` pieces of `inner` elements.
#[derive(Clone, Copy)]
struct Cut {
    outer: usize,
    inner: usize,
}
impl Cut {
    /// Of dimension `dim` into n parts.
    fn of(shape: &[usize], dim: usize, n: usize) -> Cut {
        Cut { outer: shape[..dim].iter().product(), inner: shape[dim..].iter().product::<usize>() / n.max(1) }
    }
    fn part<T: Copy>(self, x: &[T], k: usize, n: usize) -> Result<Vec<T>, Fault> {
        let mut part = room(self.outer * self.inner)?;
        for run in 0..self.outer {
            let from = (run * n + k) * self.inner;
            part.extend_from_slice(&x[from..from + self.inner]);
        }
        Ok(part)
    }
    fn join<T: Copy, P: Deref<Target = Vec<T>>>(self, parts: &[P]) -> Result<Vec<T>, Fault> {
        let mut whole = room(self.outer * self.inner * parts.len())?;
        for run in 0..self.outer {
            for part in parts {
                whole.extend_from_slice(&part[run * self.inner..(run + 1) * self.inner]);
            }
        }
        Ok(whole)
    }
}

fn array<T, D: Dimension>(shape: &[usize], data: Vec<T>) -> Result<NdArray<T, D>> {
    let array = NdArray::from_shape_vec(IxDyn(shape), data).map_err(Error::internal)?;
    array.into_dimensionality().map_err(Error::internal)
}

/// The parts combined in the fixed tree.
fn combine<T: Element>(how: Combine, parts: &[&[T]]) -> Result<Vec<T>, Fault> {
    let n = parts[0].len();
    let at: Vec<*const u8> = parts.iter().map(|p| p.as_ptr().cast()).collect();
    let mut sum = room::<T>(n)?;
    // SAFETY: the parts have n elements each (their calls were compared), and the tree writes n into the fresh vector
    unsafe {
        if tree(how, T::DTYPE, &at, n, sum.as_mut_ptr().cast()) {
            sum.set_len(n);
        }
    }
    Ok(sum)
}

/// What a letter of a collective brings.
fn open<V: Send + Sync + 'static>(part: &Part) -> Result<Arc<V>> {
    part.data.clone().downcast().map_err(|_| Error::internal("a part of another type"))
}

impl Device {
    fn refuse(&self, kind: ErrorKind, message: String, op: &str, place: Place) -> Error {
        Error::at(Fault::new(kind, message), op, Vec::new(), Some(place))
    }
    /// What all members give, in order.
    fn exchange<T: Element>(
        &self,
        at: &Meeting,
        round: u8,
        call: &Arc<Call>,
        mine: Arc<Vec<T>>,
    ) -> Result<Arc<Vec<Arc<Vec<T>>>>> {
        if at.group.size >= MANY {
            let join = |mut own: Vec<_>, others: &Vec<Arc<Vec<T>>>| {
                own.extend_from_slice(others);
                Ok(own)
            };
            return self.converge(at, round, call, vec![mine], join);
        }
        let (rank, size) = (at.group.rank, at.group.size);
        let tag = Tag::Group(at.group.axes.clone(), at.count, round);
        for k in (0..size).filter(|k| *k != rank) {
            self.post(at, k, &tag, call, mine.clone())?;
        }
        // calls are compared in the members' order, so that whoever finds a difference names the first member and the one that differs
        let mut first: Option<Arc<Call>> = None;
        let mut parts = Vec::with_capacity(size);
        for k in 0..size {
            if k == rank {
                first.get_or_insert_with(|| call.clone());
                parts.push(mine.clone());
                continue;
            }
            let part = self.part(at, k..size, &tag, call)?;
            if !call.same(&part.call) {
                return Err(match &first {
                    Some(first) => self.mismatch(at, (0, first), (k, &part.call)),
                    None => self.mismatch(at, (0, &part.call), (rank, call)),
                });
            }
            first.get_or_insert_with(|| part.call.clone());
            parts.push(open(&part)?);
        }
        Ok(Arc::new(parts))
    }
    /// What all members give, merged in the fixed tree over their order: member r takes what r + 1, r + 2, r + 4, … have merged, as far as
    /// these are its own, and gives it to the one that is its lowest bit before it. What the first has then goes back the same ways.
    fn converge<V: Send + Sync + 'static>(
        &self,
        at: &Meeting,
        round: u8,
        call: &Arc<Call>,
        mine: V,
        merge: impl Fn(V, &V) -> Result<V, Fault>,
    ) -> Result<Arc<V>> {
        let (rank, size) = (at.group.rank, at.group.size);
        let tag = |down| Tag::Group(at.group.axes.clone(), at.count, 2 * round + down);
        let (up, down) = (tag(0), tag(1));
        let mut all = mine;
        let mut far = 1;
        while rank & far == 0 && far < size {
            if rank + far < size {
                let part = self.part(at, rank + far..rank + far + 1, &up, call)?;
                if !call.same(&part.call) {
                    return Err(self.mismatch(at, (rank, call), (rank + far, &part.call)));
                }
                all = merge(all, &*open::<V>(&part)?)?;
            }
            far *= 2;
        }
        let mut all = Arc::new(all);
        if rank > 0 {
            let parent = rank - far;
            self.post(at, parent, &up, call, all)?;
            let part = self.part(at, parent..parent + 1, &down, call)?;
            all = open(&part)?;
        }
        while far > 1 {
            far /= 2;
            if rank + far < size {
                self.post(at, rank + far, &down, call, all.clone())?;
            }
        }
        Ok(all)
    }
    /// Sends something to member k.
    fn post(&self, at: &Meeting, k: usize, tag: &Tag, call: &Arc<Call>, data: Body) -> Result<()> {
        let part = Part { call: call.clone(), data };
        self.mail.borrow().send(at.group.member(k), tag.clone(), Arc::new(part))
    }
    /// What the first of these members sent; this device waits for the others too.
    fn part(&self, at: &Meeting, of: Range<usize>, tag: &Tag, call: &Arc<Call>) -> Result<Arc<Part>> {
        let wait = |early: &Kept| Wait {
            op: call.op,
            over: Some((at.group.axes.clone(), at.count)),
            missing: (of.clone().map(|k| at.group.member(k)))
                .filter(|m| *m != self.position() && !early.has(*m, tag))
                .collect(),
            place: Some(call.place),
        };
        let body = self.mail.borrow_mut().receive(at.group.member(of.start), tag, &wait)?;
        body.downcast().map_err(|_| Error::internal("a letter of another kind"))
    }
    /// The error of two members, by rank, that do not call the same.
    fn mismatch(&self, at: &Meeting, one: (usize, &Call), other: (usize, &Call)) -> Error {
        let mail = self.mail.borrow();
        let of = |(k, call)| (at.group.member(k), call);
        mail.network.stop(mail.network.board.differ(&at.group.axes, of(one), of(other)));
        // the first of those who see it speaks for all
        mail.verdict()
    }
    fn call(
        &self,
        op: &'static str,
        dtype: DType,
        shape: &[usize],
        params: String,
        place: Place,
    ) -> Arc<Call> {
        Arc::new(Call { op, dtype, shape: shape.into(), params, place })
    }
    fn reduce<T: Element>(
        &self,
        x: Vec<T>,
        shape: &[usize],
        axes: Axes,
        how: Combine,
        op: &'static str,
        place: Place,
    ) -> Result<Vec<T>> {
        if T::DTYPE == DType::Bool && how == Combine::Add {
            let message = "bools are not summed over devices".to_string();
            return Err(self.refuse(ErrorKind::Dtype, message, op, place));
        }
        let at = self.meet(axes, op, place)?;
        let n = at.group.size;
        let call = self.call(op, T::DTYPE, shape, String::new(), place);
        let len = x.len();
        let small = len * size_of::<T>() <= LARGE;
        if small && n >= MANY {
            let both = |own: Vec<T>, other: &Vec<T>| combine(how, &[&own, other]);
            return Ok(Arc::unwrap_or_clone(self.converge(&at, 0, &call, x, both)?));
        }
        let parts = self.exchange(&at, 0, &call, Arc::new(x))?;
        if small || n == 1 {
            return Ok(combine(how, &parts.iter().map(|p| p.as_slice()).collect::<Vec<_>>())?);
        }
        let (from, to) = (len * at.group.rank / n, len * (at.group.rank + 1) / n);
        let share = combine(how, &parts.iter().map(|p| &p[from..to]).collect::<Vec<_>>())?;
        let shares = self.exchange(&at, 1, &call, Arc::new(share))?;
        let mut whole = room(len)?;
        shares.iter().for_each(|s| whole.extend_from_slice(s));
        Ok(whole)
    }
    /// Waits until all devices along the axes are here.
    #[track_caller]
    pub fn barrier(&self, axes: impl Into<Axes>) -> Result<()> {
        let place = Location::caller();
        let at = self.meet(axes.into(), "barrier", place)?;
        let call = self.call("barrier", DType::Bool, &[0], String::new(), place);
        if at.group.size >= MANY {
            return self.converge(&at, 0, &call, (), |(), ()| Ok(())).map(|_| ());
        }
        self.exchange(&at, 0, &call, Arc::new(Vec::<bool>::new())).map(|_| ())
    }
    /// The sum of a number over the devices along the axes.
    #[track_caller]
    pub fn psum_scalar<T: Element>(&self, x: T, axes: impl Into<Axes>) -> Result<T> {
        let sum = self.reduce(vec![x], &[], axes.into(), Combine::Add, "psum_scalar", Location::caller())?;
        Ok(sum[0])
    }
    /// The blocks of all devices along the axes, joined along a dimension.
    ///
    #[cfg_attr(doc, doc = picture!("moves-gather"))]
    #[track_caller]
    pub fn all_gather<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<Axes>,
        dim: usize,
    ) -> Result<NdArray<T, D>> {
        let place = Location::caller();
        self.dim(x.shape(), dim, "all_gather", place)?;
        let at = self.meet(axes.into(), "all_gather", place)?;
        let call = self.call("all_gather", T::DTYPE, x.shape(), format!("dim {dim}"), place);
        let parts = self.exchange(&at, 0, &call, Arc::new(elements(x)?))?;
        let mut shape = x.shape().to_vec();
        let whole = Cut::of(&shape, dim, 1).join(&parts)?;
        shape[dim] *= parts.len();
        array(&shape, whole)
    }
    /// The sum over the devices along the axes, of which each keeps its part of a dimension.
    ///
    #[cfg_attr(doc, doc = picture!("moves-scatter"))]
    #[track_caller]
    pub fn psum_scatter<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<Axes>,
        dim: usize,
    ) -> Result<NdArray<T, D>> {
        let place = Location::caller();
        self.dim(x.shape(), dim, "psum_scatter", place)?;
        let at = self.meet(axes.into(), "psum_scatter", place)?;
        let mut shape = x.shape().to_vec();
        self.divides(&shape, dim, &at, "psum_scatter", place)?;
        if T::DTYPE == DType::Bool {
            let message = "bools are not summed over devices".to_string();
            return Err(self.refuse(ErrorKind::Dtype, message, "psum_scatter", place));
        }
        let call = self.call("psum_scatter", T::DTYPE, &shape, format!("dim {dim}"), place);
        let (n, rank) = (at.group.size, at.group.rank);
        let cut = Cut::of(&shape, dim, n);
        let all = self.exchange(&at, 0, &call, Arc::new(elements(x)?))?;
        let parts = all.iter().map(|x| cut.part(x, rank, n)).collect::<Result<Vec<Vec<T>>, Fault>>()?;
        shape[dim] /= n;
        array(&shape, combine(Combine::Add, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>())?)
    }
    /// One dimension cut, its parts sent to the devices along the axes, and what comes joined along another: `Exchange::split(0).concat(1)`.
    ///
    #[cfg_attr(doc, doc = picture!("moves-all-to-all"))]
    #[track_caller]
    pub fn all_to_all<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<Axes>,
        how: Exchange,
    ) -> Result<NdArray<T, D>> {
        let place = Location::caller();
        let (split, concat, tiled) = how.parts();
        let rank = x.ndim() as i32;
        let dim = |d: i32| usize::try_from(if d < 0 { d + rank } else { d }).unwrap_or(usize::MAX);
        let (split, concat) = (dim(split), dim(concat));
        self.dim(x.shape(), split, "all_to_all", place)?;
        self.dim(x.shape(), concat, "all_to_all", place)?;
        let at = self.meet(axes.into(), "all_to_all", place)?;
        let mut shape = x.shape().to_vec();
        let n = at.group.size;
        if tiled {
            self.divides(&shape, split, &at, "all_to_all", place)?;
        } else if shape[split] != n {
            let message = format!(
                "dimension {split} has size {}, but there are {n} devices over {}",
                shape[split], at.group.axes
            );
            return Err(self.refuse(ErrorKind::Shape, message, "all_to_all", place));
        }
        let params =
            format!("dim {split} cut, {} {concat}", if tiled { "joined along" } else { "stacked along" });
        let call = self.call("all_to_all", T::DTYPE, &shape, params, place);
        let cut = Cut::of(&shape, split, n);
        let all = self.exchange(&at, 0, &call, Arc::new(elements(x)?))?;
        let parts =
            all.iter().map(|x| cut.part(x, at.group.rank, n)).collect::<Result<Vec<Vec<T>>, Fault>>()?;
        shape[split] /= n;
        if !tiled {
            shape.remove(split);
            shape.insert(concat, 1);
        }
        let whole = Cut::of(&shape, concat, 1).join(&parts.iter().collect::<Vec<_>>())?;
        shape[concat] *= n;
        array(&shape, whole)
    }
    /// What the source of each pair sends to its target: `[(0, 1), (1, 0)]`, `Permutation::shift(1)`, `Permutation::ring(1)`. Zeros for a device that is not a target.
    ///
    #[cfg_attr(doc, doc = picture!("moves-permute"))]
    #[track_caller]
    pub fn ppermute<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<Axes>,
        pairs: impl Into<Permutation>,
    ) -> Result<NdArray<T, D>> {
        let place = Location::caller();
        let at = self.meet(axes.into(), "ppermute", place)?;
        let n = at.group.size;
        let pairs = pairs.into();
        if let Some(message) = pairs.wrong(n, &at.group.axes) {
            return Err(self.refuse(ErrorKind::Shape, message, "ppermute", place));
        }
        let call = self.call("ppermute", T::DTYPE, x.shape(), pairs.to_string(), place);
        let (axes, rank) = (at.group.axes.clone(), at.group.rank);
        self.mail.borrow().network.board.permutes(self.position(), (axes.clone(), at.count), call.clone());
        let tag = Tag::Group(axes, at.count, 0);
        let mine = Arc::new(elements(x)?);
        if let Some(to) = pairs.target(rank, n).filter(|to| *to != rank) {
            self.post(&at, to, &tag, &call, mine.clone())?;
        }
        let data = match pairs.source(rank, n) {
            None => listed(std::iter::repeat_n(zero(), mine.len()), mine.len())?,
            Some(from) if from == rank => copied(&mine)?,
            Some(from) => {
                let part = self.part(&at, from..from + 1, &tag, &call)?;
                if !call.same(&part.call) {
                    let (one, other) = ((from, &*part.call), (rank, &*call));
                    return Err(if one.0 < other.0 {
                        self.mismatch(&at, one, other)
                    } else {
                        self.mismatch(&at, other, one)
                    });
                }
                let data = open::<Vec<T>>(&part)?;
                drop(part);
                Arc::unwrap_or_clone(data)
            }
        };
        array(x.shape(), data)
    }
    fn dim(&self, shape: &[usize], dim: usize, op: &str, place: Place) -> Result<()> {
        if dim < shape.len() {
            return Ok(());
        }
        let message = format!("dimension {dim} of a block of {} dimensions", shape.len());
        Err(self.refuse(ErrorKind::Shape, message, op, place))
    }
    fn divides(&self, shape: &[usize], dim: usize, at: &Meeting, op: &str, place: Place) -> Result<()> {
        let n = at.group.size;
        if shape[dim].is_multiple_of(n) {
            return Ok(());
        }
        let message =
            format!("dimension {dim} of the block has size {}, which {n} does not divide", shape[dim]);
        Err(self.refuse(ErrorKind::Shape, message, op, place))
    }
}

macro_rules! reductions { ($($(#[$doc:meta])* $name:ident $combine:ident;)*) => {
    impl Device {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<T: Element, D: Dimension>(
            &self,
            x: &ArrayRef<T, D>,
            axes: impl Into<Axes>,
        ) -> Result<NdArray<T, D>> {
            let (axes, place) = (axes.into(), Location::caller());
            let all = self.reduce(elements(x)?, x.shape(), axes, Combine::$combine, stringify!($name), place)?;
            array(x.shape(), all)
        }
    )*}
} }
reductions! {
    /// The sum over the devices along the axes, the same bits on all of them.
    ///
    #[cfg_attr(doc, doc = picture!("moves-reduce"))]
    psum Add;
    /// The largest over the devices along the axes; NaN where any is NaN.
    pmax Max;
    /// The smallest over the devices along the axes; NaN where any is NaN.
    pmin Min;
}

fn zero<T: Element>() -> T {
    // SAFETY: element types are the crate's own, numbers and bool: all zero bytes are their zero
    unsafe { std::mem::zeroed() }
}
