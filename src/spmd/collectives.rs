//! Collectives of device code.
//!
//! Every device sends what the others need, then takes what it needs itself; all combine in one fixed tree over the devices'
//! order, so that results have the same bits on all of them, whoever computes them.

use super::device::{Device, Meeting, elements};
use crate::array::{Exchange, Permutation};
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::mesh::Axes;
use crate::program::sentence::Combine;
use crate::runtime::board::Wait;
use crate::runtime::network::{Body, Letter, Tag};
use crate::runtime::tree::tree;
use crate::types::{DType, Element, Shape};
use ndarray::{Array as NdArray, ArrayRef, Dimension, IxDyn};
use std::panic::Location;
use std::sync::Arc;

/// What must be the same on all devices of a collective; and where this one calls it.
#[derive(Clone, Debug)]
struct Call {
    op: &'static str,
    dtype: DType,
    shape: Shape,
    params: String,
    place: Place,
}
impl Call {
    fn same(&self, other: &Call) -> bool {
        (self.op, self.dtype, &self.shape, &self.params)
            == (other.op, other.dtype, &other.shape, &other.params)
    }
    fn text(&self, axes: &Axes) -> String {
        let params = if self.params.is_empty() { String::new() } else { format!(", {}", self.params) };
        format!("{}({}{}, over {axes}{params}) at {}", self.op, self.dtype, self.shape, self.place)
    }
}
/// What devices send in a collective.
struct Part {
    call: Arc<Call>,
    data: Body,
}

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
    fn part<T: Copy>(self, x: &[T], k: usize, n: usize) -> Vec<T> {
        let mut part = Vec::with_capacity(self.outer * self.inner);
        for run in 0..self.outer {
            let from = (run * n + k) * self.inner;
            part.extend_from_slice(&x[from..from + self.inner]);
        }
        part
    }
    fn join<T: Copy>(self, parts: &[Arc<Vec<T>>]) -> Vec<T> {
        let mut whole = Vec::with_capacity(self.outer * self.inner * parts.len());
        for run in 0..self.outer {
            for part in parts {
                whole.extend_from_slice(&part[run * self.inner..(run + 1) * self.inner]);
            }
        }
        whole
    }
}

fn array<T, D: Dimension>(shape: &[usize], data: Vec<T>) -> Result<NdArray<T, D>> {
    let array = NdArray::from_shape_vec(IxDyn(shape), data).map_err(Error::other)?;
    array.into_dimensionality().map_err(Error::other)
}

/// The parts combined in the fixed tree.
fn combine<T: Element>(how: Combine, parts: &[&[T]]) -> Vec<T> {
    let n = parts[0].len();
    let at: Vec<*const u8> = parts.iter().map(|p| p.as_ptr().cast()).collect();
    let mut sum = Vec::<T>::with_capacity(n);
    // SAFETY: the parts have n elements each (their calls were compared), and the tree writes n into the fresh vector
    unsafe {
        if tree(how, T::DTYPE, &at, n, sum.as_mut_ptr().cast()) {
            sum.set_len(n);
        }
    }
    sum
}

impl Device {
    fn refuse(&self, kind: ErrorKind, message: String, op: &str, place: Place) -> Error {
        Error::at(Fault::new(kind, message), op, Vec::new(), Some(place))
    }
    /// Sends `make(k)` to member k and returns what all members sent to this one, in order.
    fn exchange<T: Element>(
        &self,
        at: &Meeting,
        round: u8,
        call: &Arc<Call>,
        make: impl Fn(usize) -> Arc<Vec<T>>,
    ) -> Result<Vec<Arc<Vec<T>>>> {
        let tag = Tag::Group(at.axes.clone(), at.count, round);
        for (k, member) in at.members.iter().enumerate().filter(|(k, _)| *k != at.rank) {
            let part = Part { call: call.clone(), data: make(k) };
            self.mail.borrow().send(*member, tag.clone(), Arc::new(part))?;
        }
        // calls are compared in the members' order, so that whoever finds a difference names the first member and the one that differs
        let mut first: Option<Arc<Call>> = None;
        let mut parts = Vec::with_capacity(at.members.len());
        for k in 0..at.members.len() {
            if k == at.rank {
                first.get_or_insert_with(|| call.clone());
                parts.push(make(k));
                continue;
            }
            let part = self.part(at, k, &tag, call)?;
            if !call.same(&part.call) {
                return Err(match &first {
                    Some(first) => self.mismatch(at, (0, first), (k, &part.call)),
                    None => self.mismatch(at, (0, &part.call), (at.rank, call)),
                });
            }
            first.get_or_insert_with(|| part.call.clone());
            parts.push(part.data.clone().downcast().map_err(|_| Error::other("a part of another type"))?);
        }
        Ok(parts)
    }
    /// What member k sent.
    fn part(&self, at: &Meeting, k: usize, tag: &Tag, call: &Arc<Call>) -> Result<Arc<Part>> {
        let wait = |early: &[Letter]| Wait {
            op: call.op,
            over: Some((at.axes.clone(), at.count)),
            missing: (at.members[k..].iter().copied())
                .filter(|m| *m != self.position() && !early.iter().any(|l| l.from == *m && l.tag == *tag))
                .collect(),
            place: Some(call.place),
        };
        let body = self.mail.borrow_mut().receive(at.members[k], tag, &wait)?;
        body.downcast().map_err(|_| Error::other("a letter of another kind"))
    }
    /// The error of two members, by rank, that do not call the same.
    fn mismatch(&self, at: &Meeting, one: (usize, &Call), other: (usize, &Call)) -> Error {
        let mail = self.mail.borrow();
        let name = |k: usize| mail.network.board.name(at.members[k]);
        let what = if one.1.op == other.1.op {
            "do not agree in a collective"
        } else {
            "called different collectives"
        };
        let says = |(k, call): (usize, &Call)| format!("{} calls {}", name(k), call.text(&at.axes));
        let message = format!("devices {what}:\n  {}\n  {}", says(one), says(other));
        let fault = Fault::new(ErrorKind::Mismatch, message)
            .help("every device of the axes calls the same collectives in the same order, with the same element type and shape");
        let error = Error::at(fault, one.1.op, Vec::new(), Some(one.1.place));
        mail.network.stop(error.related(other.1.place, format!("{} is here", name(other.0))));
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
        let n = at.members.len();
        let call = self.call(op, T::DTYPE, shape, String::new(), place);
        let (len, x) = (x.len(), Arc::new(x));
        let parts = self.exchange(&at, 0, &call, |_| x.clone())?;
        if len * size_of::<T>() <= LARGE || n == 1 {
            return Ok(combine(how, &parts.iter().map(|p| p.as_slice()).collect::<Vec<_>>()));
        }
        let (from, to) = (len * at.rank / n, len * (at.rank + 1) / n);
        let share = Arc::new(combine(how, &parts.iter().map(|p| &p[from..to]).collect::<Vec<_>>()));
        let shares = self.exchange(&at, 1, &call, |_| share.clone())?;
        let mut whole = Vec::with_capacity(len);
        shares.iter().for_each(|s| whole.extend_from_slice(s));
        Ok(whole)
    }
    /// Waits until all devices along the axes are here.
    #[track_caller]
    pub fn barrier(&self, axes: impl Into<Axes>) -> Result<()> {
        let place = Location::caller();
        let at = self.meet(axes.into(), "barrier", place)?;
        let call = self.call("barrier", DType::Bool, &[0], String::new(), place);
        let nothing = Arc::new(Vec::<bool>::new());
        self.exchange(&at, 0, &call, |_| nothing.clone()).map(|_| ())
    }
    /// The sum of a number over the devices along the axes.
    #[track_caller]
    pub fn psum_scalar<T: Element>(&self, x: T, axes: impl Into<Axes>) -> Result<T> {
        let sum = self.reduce(vec![x], &[], axes.into(), Combine::Add, "psum_scalar", Location::caller())?;
        Ok(sum[0])
    }
    /// The blocks of all devices along the axes, joined along a dimension.
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
        let mine = Arc::new(elements(x));
        let parts = self.exchange(&at, 0, &call, |_| mine.clone())?;
        let mut shape = x.shape().to_vec();
        let whole = Cut::of(&shape, dim, 1).join(&parts);
        shape[dim] *= parts.len();
        array(&shape, whole)
    }
    /// The sum over the devices along the axes, of which each keeps its part of a dimension.
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
        let n = at.members.len();
        let (cut, mine) = (Cut::of(&shape, dim, n), elements(x));
        let parts = self.exchange(&at, 0, &call, |k| Arc::new(cut.part(&mine, k, n)))?;
        shape[dim] /= n;
        array(&shape, combine(Combine::Add, &parts.iter().map(|p| p.as_slice()).collect::<Vec<_>>()))
    }
    /// One dimension cut, its parts sent to the devices along the axes, and what comes joined along another: `split(0).concat(1)`.
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
        let n = at.members.len();
        if tiled {
            self.divides(&shape, split, &at, "all_to_all", place)?;
        } else if shape[split] != n {
            let message = format!(
                "dimension {split} has size {}, but there are {n} devices over {}",
                shape[split], at.axes
            );
            return Err(self.refuse(ErrorKind::Shape, message, "all_to_all", place));
        }
        let params =
            format!("dim {split} cut, {} {concat}", if tiled { "joined along" } else { "stacked along" });
        let call = self.call("all_to_all", T::DTYPE, &shape, params, place);
        let (cut, mine) = (Cut::of(&shape, split, n), elements(x));
        let parts = self.exchange(&at, 0, &call, |k| Arc::new(cut.part(&mine, k, n)))?;
        shape[split] /= n;
        if !tiled {
            shape.remove(split);
            shape.insert(concat, 1);
        }
        let whole = Cut::of(&shape, concat, 1).join(&parts);
        shape[concat] *= n;
        array(&shape, whole)
    }
    /// What the source of each pair sends to its target: `[(0, 1), (1, 0)]`, `shift(1)`, `ring(1)`. Zeros for a device that is no target.
    #[track_caller]
    pub fn ppermute<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<Axes>,
        pairs: impl Into<Permutation>,
    ) -> Result<NdArray<T, D>> {
        let place = Location::caller();
        let at = self.meet(axes.into(), "ppermute", place)?;
        let n = at.members.len();
        let pairs = pairs.into().pairs(n);
        for (i, (from, to)) in pairs.iter().enumerate() {
            let message = if *from >= n || *to >= n {
                format!("the pair ({from}, {to}) is outside the {n} devices over {}", at.axes)
            } else if pairs[..i].iter().any(|p| p.0 == *from || p.1 == *to) {
                format!("the pair ({from}, {to}) names a source or a target for the second time")
            } else {
                continue;
            };
            return Err(self.refuse(ErrorKind::Shape, message, "ppermute", place));
        }
        let call = self.call("ppermute", T::DTYPE, x.shape(), format!("{pairs:?}"), place);
        let tag = Tag::Group(at.axes.clone(), at.count, 0);
        let mine = Arc::new(elements(x));
        for (_, to) in pairs.iter().filter(|p| p.0 == at.rank && p.1 != at.rank) {
            let part = Part { call: call.clone(), data: mine.clone() };
            self.mail.borrow().send(at.members[*to], tag.clone(), Arc::new(part))?;
        }
        let data = match pairs.iter().find(|p| p.1 == at.rank) {
            None => vec![zero(); mine.len()],
            Some((from, _)) if *from == at.rank => mine.to_vec(),
            Some((from, _)) => {
                let part = self.part(&at, *from, &tag, &call)?;
                if !call.same(&part.call) {
                    let (one, other) = ((*from, &*part.call), (at.rank, &*call));
                    return Err(if one.0 < other.0 {
                        self.mismatch(&at, one, other)
                    } else {
                        self.mismatch(&at, other, one)
                    });
                }
                let data: Arc<Vec<T>> =
                    part.data.clone().downcast().map_err(|_| Error::other("a part of another type"))?;
                drop(part);
                Arc::try_unwrap(data).unwrap_or_else(|p| p.to_vec())
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
        let n = at.members.len();
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
            let all = self.reduce(elements(x), x.shape(), axes, Combine::$combine, stringify!($name), place)?;
            array(x.shape(), all)
        }
    )*}
} }
reductions! {
    /// The sum over the devices along the axes, the same bits on all of them.
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
