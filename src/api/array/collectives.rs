//! Collectives for per-device code: the array methods that `shard_map` bodies call.
//!
//! A collective combines or exchanges the blocks of the devices along one or more mesh axes. These
//! methods look up the axes in the enclosing `shard_map`, and record the primitives of
//! `ops::collective`.

use super::{
    AllToAll, Array, AxisGroups, CollectiveDim, IndexOptions, Permutation, dims::resolve_dim, prims,
};
use crate::api::trace::{Setting, apply1, poison, setting};
use crate::core::{Axes, Axis, AxisType, DType, Fault, Result};
use crate::ir::ops::collective::PcastTo;
use crate::ir::ops::elementwise::Binary;
use crate::ir::program::{CallSite, DeviceGroups, Prim, Reducer};
use std::collections::HashSet;

/// # Manual mode
///
/// Collectives over mesh axes, for code that runs on one device: the bodies of
/// [`shard_map`](crate::shard_map()). Elsewhere they are an error (`ErrorKind::Mesh`).
impl Array {
    /// Applies the primitive that `make` builds from the setting of the enclosing manual region.
    fn collective(
        &self,
        over: AxisGroups,
        call: CallSite<'_>,
        make: impl FnOnce(&Setting, &AxisGroups) -> Prim,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let here =
            setting().or_else(|| ty.mesh.clone().map(|mesh| Setting { mesh, untracked: Axes::none() }));
        let here = here.ok_or_else(|| outside_shard_map(call.op));
        match here.and_then(|here| one_kind_of_region(here, over.axes())) {
            Ok(here) => apply1(make(&here, &over), &[self.into()], call),
            Err(fault) => self.reject(fault, call),
        }
    }
    /// Sums the blocks of the devices along `axes` (all-reduce); every device gets the sum.
    ///
    /// The result has the block's shape and is invarying over `axes`. Booleans are summed as int32.
    ///
    #[cfg_attr(doc, doc = picture!("moves-reduce"))]
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p![], |x: &Array| x.psum("X"));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [2, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("all_reduce", "Allreduce"))]
    #[track_caller]
    pub fn psum(&self, axes: impl Into<AxisGroups>) -> Array {
        self.with_call_site(CallSite::here("psum"), |call| {
            let is_bool = self.type_ref().is_ok_and(|t| t.dtype == DType::Bool);
            let x = if is_bool { self.convert_at(DType::I32, call) } else { self.clone() };
            x.collective(axes.into(), call, |at, over| prims::all_reduce(at, Reducer::Add, over))
        })
    }
    /// Averages the blocks of the devices along `axes`; every device gets the mean.
    ///
    /// Integers and booleans are averaged in float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p![], |x: &Array| x.pmean("X"));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pmean(&self, axes: impl Into<AxisGroups>) -> Array {
        let over = axes.into();
        self.with_call_site(CallSite::here("pmean"), |call| {
            let inexact = self.type_ref().is_ok_and(|t| t.dtype.is_inexact());
            let x = if inexact { self.clone() } else { self.convert_at(DType::F32, call) };
            let sum = x.collective(over.clone(), call, |at, over| prims::all_reduce(at, Reducer::Add, over));
            // an error about the axes is already reported
            if sum.type_ref().is_err() {
                return sum;
            }
            match over.groups() {
                Some(groups) if !groups.have_one_size() => {
                    let dtype = x.type_ref().map_or(DType::F32, |t| t.dtype);
                    sum.binary_with(Binary::Div, group_sizes(&over, groups, dtype, call), call)
                }
                _ => {
                    let n = ok_or_return!(group_size(&over, call), |error| poison(error));
                    sum.binary_with(Binary::Div, n, call)
                }
            }
        })
    }
    /// Computes the elementwise maximum of the blocks of the devices along `axes`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], (p![], p![]), |x: &Array| (x.pmax("X"), x.pmin("X")));
    /// let (most, least) = f.call(Array::from([1, 9, 3, 4]))?;
    /// assert_eq!((most.to_vec::<i32>()?, least.to_vec::<i32>()?), (vec![3, 9], vec![1, 4]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pmax(&self, axes: impl Into<AxisGroups>) -> Array {
        let combine = self.extreme_reducer(true);
        self.collective(axes.into(), CallSite::here("pmax"), |at, over| prims::all_reduce(at, combine, over))
    }
    /// Computes the elementwise minimum of the blocks of the devices along `axes`.
    #[track_caller]
    pub fn pmin(&self, axes: impl Into<AxisGroups>) -> Array {
        let combine = self.extreme_reducer(false);
        self.collective(axes.into(), CallSite::here("pmin"), |at, over| prims::all_reduce(at, combine, over))
    }
    /// Returns the reducer of `pmax` or `pmin`. For booleans the maximum is `or`, the minimum
    /// `and`.
    fn extreme_reducer(&self, greatest: bool) -> Reducer {
        match (self.type_ref().is_ok_and(|t| t.dtype == DType::Bool), greatest) {
            (true, true) => Reducer::Or,
            (true, false) => Reducer::And,
            (false, true) => Reducer::Max,
            (false, false) => Reducer::Min,
        }
    }
    /// Gathers the blocks of all devices along `axes`; every device gets the full array.
    ///
    /// `dim` says how the blocks are combined: `CollectiveDim::tiled(0)` concatenates them,
    /// `CollectiveDim::stacked(0)` stacks them. `CollectiveDim::tiled(0).invarying()` types the
    /// result as equal on all devices.
    ///
    #[cfg_attr(doc, doc = picture!("moves-gather"))]
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"],
    ///     |x: &Array| x.all_gather("X", CollectiveDim::tiled(0)));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [0, 1, 2, 3, 0, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("all_gather_into_tensor"))]
    #[track_caller]
    pub fn all_gather(&self, axes: impl Into<AxisGroups>, dim: CollectiveDim) -> Array {
        self.all_gather_at(axes.into(), dim, CallSite::here("all_gather"))
    }
    /// Implements [`Array::all_gather`].
    pub(super) fn all_gather_at(&self, axes: AxisGroups, dim: CollectiveDim, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let rank = ty.rank() + usize::from(!dim.tiled);
        let d = ok_or_return!(resolve_dim(dim.dim.into(), rank), |fault| self.reject(fault, call));
        self.collective(axes, call, |at, over| prims::all_gather(at, over, d, dim.tiled, dim.result))
    }
    /// Sums the blocks of the devices along `axes` and scatters the sum (reduce-scatter).
    ///
    /// With `CollectiveDim::tiled(d)` each device keeps an equal slice of dimension `d`; with
    /// `CollectiveDim::stacked(d)` dimension `d` has one entry per device and is removed.
    ///
    #[cfg_attr(doc, doc = picture!("moves-scatter"))]
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"],
    ///     |x: &Array| x.psum_scatter("X", CollectiveDim::tiled(0)));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [2, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("reduce_scatter", "reduce_scatter_tensor"))]
    #[track_caller]
    pub fn psum_scatter(&self, axes: impl Into<AxisGroups>, dim: CollectiveDim) -> Array {
        let call = CallSite::here("psum_scatter");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let d = ok_or_return!(resolve_dim(dim.dim.into(), ty.rank()), |fault| self.reject(fault, call));
        self.collective(axes.into(), call, |at, over| prims::psum_scatter(at, over, d, dim.tiled))
    }
    /// Sends a piece of each block to every device along `axes` (all-to-all).
    ///
    /// `split_concat` gives the dimension that is split, and the one along which the received
    /// pieces are concatenated: `x.all_to_all("X", AllToAll::split(0).concat(1))`.
    ///
    #[cfg_attr(doc, doc = picture!("moves-all-to-all"))]
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p![_, "X"],
    ///     |x: &Array| x.all_to_all("X", AllToAll::split(1).concat(0)));
    /// let x = Array::arange(0..4).reshape([2, 2]);
    /// assert_eq!(f.call(&x)?.to_vec::<i32>()?, x.to_vec::<i32>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("all_to_all_single"))]
    #[track_caller]
    pub fn all_to_all(&self, axes: impl Into<AxisGroups>, split_concat: AllToAll) -> Array {
        self.all_to_all_at(axes.into(), split_concat, CallSite::here("all_to_all"))
    }
    /// Implements [`Array::all_to_all`].
    pub(super) fn all_to_all_at(
        &self,
        axes: AxisGroups,
        split_concat: AllToAll,
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let dims = resolve_dim(split_concat.split.into(), ty.rank())
            .and_then(|s| Ok((s, resolve_dim(split_concat.concat.into(), ty.rank())?)));
        let (s, c) = ok_or_return!(dims, |fault| self.reject(fault, call));
        self.collective(axes, call, |at, over| prims::all_to_all(at, over, s, c, split_concat.tiled))
    }
    /// Sends each block to another device along `axes`; devices without a source receive zeros.
    ///
    /// `permutation` is a list of `(source, target)` pairs, [`Permutation::shift`] or
    /// [`Permutation::ring`].
    ///
    #[cfg_attr(doc, doc = picture!("moves-permute"))]
    ///
    #[cfg_attr(doc, doc = picture!("moves-shift"))]
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"],
    ///     |x: &Array| x.ppermute("X", Permutation::shift(1)));
    /// assert_eq!(f.call(Array::from([1, 2, 3, 4]))?.to_vec::<i32>()?, [0, 0, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("Sendrecv", "collective_permute", "MPI_Sendrecv"))]
    #[track_caller]
    pub fn ppermute(&self, axes: impl Into<Axes>, permutation: impl Into<Permutation>) -> Array {
        let how = permutation.into();
        self.collective(axes.into().into(), CallSite::here("ppermute"), |at, over| {
            let n = over.axes().iter().map(|a| at.mesh.extent(a)).product();
            prims::ppermute(at, over, how.pairs(n))
        })
    }
    /// Gives each device along `axes` the block of another one: device `i` gets that of device
    /// `permutation[i]`.
    ///
    /// `permutation` names each device once, in any order. [`ppermute`](Array::ppermute) takes the
    /// pairs instead, and may leave devices out.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.pshuffle("X", [3, 0, 1, 2]));
    /// assert_eq!(f.call(Array::from([1, 2, 3, 4]))?.to_vec::<i32>()?, [4, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pshuffle(&self, axes: impl Into<Axes>, permutation: impl Into<Vec<usize>>) -> Array {
        let (axes, permutation) = (axes.into(), permutation.into());
        let call = CallSite::here("pshuffle");
        // (an error about the axes is reported by the collective)
        if let Ok(n) = manual_axes_size(&axes, call)
            && let Some(fault) = no_permutation(&permutation, n, &axes)
        {
            return self.reject(fault, call);
        }
        let pairs: Vec<_> = permutation.into_iter().zip(0..).collect();
        self.collective(axes.into(), call, |at, over| prims::ppermute(at, over, pairs))
    }
    /// Gives every device along `axes` the block of device `source`.
    ///
    /// Devices are numbered along the axes, the first axis outermost. The result varies, although
    /// it is equal on all devices. Cotangents are summed onto the source.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.pbroadcast("X", 1));
    /// assert_eq!(f.call(Array::from([1, 2, 3, 4]))?.to_vec::<i32>()?, [3, 4, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("MPI_Bcast", "Bcast", "collective_broadcast"))]
    #[track_caller]
    pub fn pbroadcast(&self, axes: impl Into<Axes>, source: usize) -> Array {
        let call = CallSite::here("pbroadcast");
        self.collective(axes.into().into(), call, |at, over| prims::pbroadcast(at, over, source))
    }
    /// Swaps dimension `d` of the block with the devices along `axes`.
    ///
    /// The dimension must have the number of devices as its size. Device `i` gets index `i` along
    /// it from every device, in the devices' order.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X", _], p!["X", _], |x: &Array| x.pswapaxes("X", 1));
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// assert_eq!(f.call(&x)?.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pswapaxes(&self, axes: impl Into<AxisGroups>, d: i32) -> Array {
        self.all_to_all_at(axes.into(), AllToAll::split(d).stack(d), CallSite::here("pswapaxes"))
    }
    forward! {
        /// Types the value as varying over `axes`; no data moves.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let f = shard_map(&mesh, p![], p!["X"], |x: &Array| x.pvary("X"));
        /// assert_eq!(f.call(Array::from([1, 2]))?.to_vec::<i32>()?, [1, 2, 1, 2]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn pvary(axes: impl Into<Axes>) = cast_at(axes, PcastTo::Varying);
        /// Casts the state of the value over manual axes to varying, unreduced or reduced.
        ///
        /// The blocks do not change. [`PcastTo`] lists the casts that are allowed.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let f = shard_map(&mesh, p!["X"], p![; U: "X"],
        ///     |x: &Array| x.sum(..).pcast("X", atmesh::PcastTo::Unreduced));
        /// let x = f.call(Array::arange(0..4).put(&mesh, p!["X"]))?;
        /// assert_eq!((type_of(&x).to_string(), x.item::<i32>()?), ("int32[]{U:X}".into(), 6));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn pcast(axes: impl Into<Axes>, to: PcastTo) = cast_at(axes, to);
    }
    /// Applies [`Array::pcast`] for the given call.
    pub(super) fn cast_at(&self, axes: impl Into<Axes>, to: PcastTo, call: CallSite<'_>) -> Array {
        self.collective(axes.into().into(), call, |at, over| prims::pcast(at, over, to))
    }
}

/// Returns the index of this device along `axes`, the first axis outermost.
///
/// The result is an int32 scalar that varies over `axes`. It is an error outside of a `shard_map`
/// body.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x + axis_index("X"));
/// assert_eq!(f.call(Array::from([10, 10]))?.to_vec::<i32>()?, [10, 11]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn axis_index(axes: impl Into<Axes>) -> Array {
    axis_index_at(&axes.into(), CallSite::here("axis_index"))
}

/// Applies [`axis_index`] for the given call.
fn axis_index_at(axes: &Axes, call: CallSite<'_>) -> Array {
    let here = setting().ok_or_else(|| outside_shard_map(call.op));
    match here.and_then(|here| one_kind_of_region(here, axes)) {
        Ok(here) => apply1(prims::axis_index(&here, &axes.into()), &[], call),
        Err(fault) => poison(call.error(fault, Vec::new)),
    }
}

/// Returns the number of devices along `axes`, which is static.
///
/// It is an error outside of a `shard_map` body, and for axes that are not manual there.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let share = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| Ok(x / axis_size("X")?));
/// assert_eq!(share.call(Array::ones([4]))?.to_vec::<f32>()?, [0.5; 4]);
/// assert!(axis_size("X").is_err(), "no axis is manual here");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn axis_size(axes: impl Into<Axes>) -> Result<usize> {
    manual_axes_size(&axes.into(), CallSite::here("axis_size"))
}

/// Returns the number of devices of each group.
pub(super) fn group_size(over: &AxisGroups, call: CallSite<'_>) -> Result<usize> {
    let all = manual_axes_size(over.axes(), call)?;
    Ok(over.groups().map_or(all, DeviceGroups::max_size))
}

/// Returns the number of devices of this device's group, which varies, as a value of this type.
fn group_sizes(over: &AxisGroups, groups: &DeviceGroups, dtype: DType, call: CallSite<'_>) -> Array {
    let mut sizes = vec![1.0f32; groups.lists().iter().map(Vec::len).sum()];
    for group in groups.lists() {
        group.iter().for_each(|device| sizes[*device] = group.len() as f32);
    }
    let sizes = Array::from(sizes).convert_at(dtype, call);
    sizes.take_at(&axis_index_at(over.axes(), call), 0, IndexOptions::default(), call)
}

/// Returns the error for indices that are not those of `n` devices in some order.
fn no_permutation(indices: &[usize], n: usize, axes: &Axes) -> Option<Fault> {
    let mut seen = HashSet::new();
    if indices.len() == n && indices.iter().all(|i| *i < n && seen.insert(*i)) {
        return None;
    }
    let fault = fault!(Mesh, "{indices:?} is not a permutation of the {n} devices along {axes}");
    Some(fault.help("name each device once, or the pairs that communicate: `ppermute`"))
}

/// Returns the number of devices along manual axes.
fn manual_axes_size(axes: &Axes, call: CallSite<'_>) -> Result<usize> {
    let reject = |fault| call.error(fault, Vec::new);
    let here = setting().ok_or_else(|| reject(outside_shard_map(call.op)))?;
    let mut sizes = 1;
    for axis in axes.iter() {
        match here.mesh.axis_type(axis) {
            Some(AxisType::Manual) => sizes *= here.mesh.extent(axis),
            Some(_) => {
                let fault = fault!(Mesh, "{axis} is not manual here");
                let elsewhere = format!("elsewhere: `mesh.axis_size({:?})?`", axis.name());
                return Err(reject(fault.help("`shard_map` makes it so").help(elsewhere)));
            }
            None => return Err(reject(here.mesh.unknown_axis(axis))),
        }
    }
    Ok(sizes)
}

/// Returns the setting, or an error if only some of the axes belong to unchecked regions.
///
/// Types track the values that vary over the other axes, so the result would have a state over some
/// of the axes of one collective only.
fn one_kind_of_region(here: Setting, axes: &Axes) -> Result<Setting, Fault> {
    let (untracked, tracked): (Vec<Axis>, Vec<Axis>) = axes.iter().partition(|a| here.untracked.contains(*a));
    if untracked.is_empty() || tracked.is_empty() {
        return Ok(here);
    }
    let (untracked, tracked) = (Axes::from(untracked), Axes::from(tracked));
    Err(fault!(Varying, "{tracked} belongs to a checked region and {untracked} to an unchecked one")
        .help(format!("name them one after the other: {}, then {}", tracked.quoted(), untracked.quoted()))
        .help("or make both regions checked, or both `.unchecked()`"))
}

/// Returns the error for a collective that is called outside of a `shard_map` body.
fn outside_shard_map(op: &str) -> Fault {
    fault!(Mesh, "`{op}` outside of a `shard_map` body: there are no manual axes")
        .help("call it in the closure of `shard_map`")
}
