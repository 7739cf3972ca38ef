//! Collectives for per-device code: the array methods that `shard_map` bodies call.
//!
//! A collective combines or exchanges the blocks of the devices along one or more mesh axes. These
//! methods look up the axes in the enclosing `shard_map`, and record the primitives of
//! `ops::collective`.

use super::{Array, IndexOptions, dims::resolve_dim, prims};
use crate::api::trace::{Setting, apply1, poison, setting};
use crate::core::{Axes, Axis, AxisType, DType, Fault, Result};
use crate::ir::ops::collective::{AllGatherTo, PcastTo};
use crate::ir::ops::elementwise::Binary;
use crate::ir::program::{CallSite, DeviceGroups, Prim, Reducer};
use std::collections::HashSet;

/// The array dimension that a collective gathers into or scatters from.
///
/// [`CollectiveDim::tiled`] uses an existing dimension, [`CollectiveDim::stacked`] a dimension that
/// holds one block per device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias("scatter_dimension"))]
pub struct CollectiveDim {
    dim: i32,
    tiled: bool,
    result: AllGatherTo,
}

impl CollectiveDim {
    /// Concatenates (or splits) blocks along dimension `dim`, which every block has.
    ///
    /// This is JAX's `axis=dim, tiled=True`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"],
    ///     |x: &Array| x.all_gather("X", CollectiveDim::tiled(0)));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [0, 1, 2, 3, 0, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn tiled(dim: i32) -> CollectiveDim {
        CollectiveDim { dim, tiled: true, result: AllGatherTo::Varying }
    }
    /// Stacks blocks along a new dimension `dim` of the result (or removes it from the operand).
    ///
    /// This is JAX's `axis=dim, tiled=False`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X", _],
    ///     |x: &Array| x.all_gather("X", CollectiveDim::stacked(0)));
    /// assert_eq!(f.call(Array::arange(0..4))?.shape()?, [4, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn stacked(dim: i32) -> CollectiveDim {
        CollectiveDim { dim, tiled: false, result: AllGatherTo::Varying }
    }
    setters! {
        /// Gives the result of `all_gather` an invarying type: it is equal on all devices along the
        /// axes.
        pub fn invarying() = result: AllGatherTo::Invarying;
        /// Types the result of `all_gather` as reduced over the axes.
        ///
        /// A reduced value is equal on all devices along the axes, and its cotangent is unreduced
        /// over them.
        pub fn reduced() = result: AllGatherTo::Reduced;
    }
}

/// The split and concatenation dimensions of an all-to-all: `AllToAll::split(0).concat(1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias("split_axis", "concat_axis"))]
pub struct AllToAll {
    split: i32,
    concat: i32,
    tiled: bool,
}
impl AllToAll {
    /// Describes an all-to-all that splits dimension `dim` into one piece per device.
    ///
    /// Complete it with [`AllToAllSplit::concat`] or [`AllToAllSplit::stack`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let turned = |x: &Array| x.all_to_all("X", AllToAll::split(1).concat(0));
    /// let f = shard_map(&mesh, p!["X"], p![_, "X"], turned);
    /// assert_eq!(type_of(f.call(Array::ones([4, 4]))?), "float32[4,4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn split(dim: i32) -> AllToAllSplit {
        AllToAllSplit { dim }
    }
    /// Returns the split dimension, the concatenation dimension, and `true` if tiled.
    pub(crate) fn into_parts(self) -> (i32, i32, bool) {
        (self.split, self.concat, self.tiled)
    }
}
/// An [`AllToAll`] without its concatenation dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllToAllSplit {
    dim: i32,
}
impl AllToAllSplit {
    /// Concatenates the received pieces along dimension `dim`.
    pub fn concat(self, dim: i32) -> AllToAll {
        AllToAll { split: self.dim, concat: dim, tiled: true }
    }
    /// Stacks the received pieces along a new dimension `dim` of the result.
    ///
    /// The split dimension must have the size of the axes, and is removed.
    pub fn stack(self, dim: i32) -> AllToAll {
        AllToAll { split: self.dim, concat: dim, tiled: false }
    }
}

/// The source and target devices of a [`ppermute`](Array::ppermute).
///
/// It is an array or vector of `(source, target)` pairs such as `[(0, 1), (1, 0)]`, or made by
/// [`Permutation::shift`] or [`Permutation::ring`]. Devices are numbered along the axes, the first
/// axis outermost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation(PermutationKind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PermutationKind {
    Pairs(Vec<(usize, usize)>),
    Shift(i64),
    Ring(i64),
}
conversions! { Permutation:
    [const N: usize] [(usize, usize); N]
        => |pairs| Permutation(PermutationKind::Pairs(pairs.into()));
    [] Vec<(usize, usize)> => |pairs| Permutation(PermutationKind::Pairs(pairs));
}
impl std::fmt::Display for Permutation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            PermutationKind::Pairs(pairs) => write!(f, "{pairs:?}"),
            PermutationKind::Shift(by) => write!(f, "Permutation::shift({by})"),
            PermutationKind::Ring(by) => write!(f, "Permutation::ring({by})"),
        }
    }
}
impl Permutation {
    /// Sends each block from device i to device i + `by`; devices without a source receive zeros.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"],
    ///     |x: &Array| x.ppermute("X", Permutation::shift(1)));
    /// assert_eq!(f.call(Array::arange(1..5))?.to_vec::<i32>()?, [0, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn shift(by: i64) -> Permutation {
        Permutation(PermutationKind::Shift(by))
    }
    /// Sends each block from device i to device i + `by`, modulo the number of devices.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"],
    ///     |x: &Array| x.ppermute("X", Permutation::ring(1)));
    /// assert_eq!(f.call(Array::arange(1..5))?.to_vec::<i32>()?, [4, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn ring(by: i64) -> Permutation {
        Permutation(PermutationKind::Ring(by))
    }
    /// Returns the `(source, target)` pairs among `n` devices.
    pub(crate) fn pairs(&self, n: usize) -> Vec<(usize, usize)> {
        match &self.0 {
            PermutationKind::Pairs(pairs) => pairs.clone(),
            _ => (0..n).filter_map(|i| Some((i, self.target(i, n)?))).collect(),
        }
    }
    /// Returns the first of `n` devices to which device `i` sends.
    pub(crate) fn target(&self, i: usize, n: usize) -> Option<usize> {
        match &self.0 {
            PermutationKind::Pairs(pairs) => pairs.iter().find(|p| p.0 == i).map(|p| p.1),
            PermutationKind::Shift(by) => {
                i.checked_add_signed(isize::try_from(*by).ok()?).filter(|to| *to < n)
            }
            PermutationKind::Ring(by) => Some((i + by.rem_euclid((n as i64).max(1)) as usize) % n),
        }
    }
    /// Returns the device, among `n`, that sends to device `i`.
    pub(crate) fn source(&self, i: usize, n: usize) -> Option<usize> {
        match &self.0 {
            PermutationKind::Pairs(pairs) => pairs.iter().find(|p| p.1 == i).map(|p| p.0),
            PermutationKind::Shift(by) => Permutation(PermutationKind::Shift(by.checked_neg()?)).target(i, n),
            PermutationKind::Ring(by) => Some((i + n - by.rem_euclid((n as i64).max(1)) as usize) % n),
        }
    }
    /// Returns an error message for the first explicit pair that is invalid among `n` devices.
    ///
    /// A pair is invalid if it names a device outside of the axes, or repeats a source or target.
    pub(crate) fn invalid_pair(&self, n: usize, axes: &Axes) -> Option<String> {
        let PermutationKind::Pairs(pairs) = &self.0 else { return None };
        let (mut from, mut to) = (HashSet::new(), HashSet::new());
        pairs.iter().find_map(|(a, b)| {
            if *a >= n || *b >= n {
                Some(format!("the pair ({a}, {b}) is outside the {n} devices over {axes}"))
            } else if !from.insert(*a) || !to.insert(*b) {
                Some(format!("the pair ({a}, {b}) names a source or a target for the second time"))
            } else {
                None
            }
        })
    }
}

/// The devices that take part in a collective: all along mesh axes, or groups of them.
///
/// Axes alone, as in `x.psum("X")`, are one group of all devices along them. [`AxisGroups::new`]
/// divides these devices into groups, each of which communicates by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisGroups {
    axes: Axes,
    groups: Option<DeviceGroups>,
}
impl AxisGroups {
    /// Divides the devices along `axes` into groups (JAX: `axis_index_groups`).
    ///
    /// Devices are numbered along the axes, the first axis outermost. Each device is in exactly one
    /// group, and blocks are exchanged in the order of a group's list. Groups of different sizes
    /// are for reductions (`psum`, `pmean`, `pmax`, `pmin`). The results differ from group to
    /// group, so they vary over the axes.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::AxisGroups;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let pairs = AxisGroups::new("X", [[0, 1], [2, 3]]);
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.psum(&pairs));
    /// assert_eq!(f.call(Array::from([1, 2, 3, 4]))?.to_vec::<i32>()?, [3, 3, 7, 7]);
    ///
    /// // groups of different sizes, and of devices that are not neighbours
    /// let mixed = AxisGroups::new("X", [vec![0, 3, 1], vec![2]]);
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.pmax(&mixed));
    /// assert_eq!(f.call(Array::from([1, 2, 3, 4]))?.to_vec::<i32>()?, [4, 4, 3, 4]);
    ///
    /// let half = AxisGroups::new("X", [[0, 1]]);
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.psum(&half));
    /// let error = f.call(Array::from([1, 2, 3, 4])).unwrap_err().to_string();
    /// assert!(error.contains("the groups [[0,1]] leave out device 2 of 4 along X"));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("axis_index_groups", "replica_groups", "MPI_Comm_split"))]
    pub fn new<G: Into<Vec<usize>>>(
        axes: impl Into<Axes>,
        groups: impl IntoIterator<Item = G>,
    ) -> AxisGroups {
        let groups = DeviceGroups::new(groups.into_iter().map(Into::into).collect());
        AxisGroups { axes: axes.into(), groups: Some(groups) }
    }
    /// Returns the axes.
    pub(crate) fn axes(&self) -> &Axes {
        &self.axes
    }
    /// Returns the groups; `None` if all devices along the axes are one group.
    pub(crate) fn groups(&self) -> Option<&DeviceGroups> {
        self.groups.as_ref()
    }
}
impl From<&AxisGroups> for AxisGroups {
    fn from(groups: &AxisGroups) -> AxisGroups {
        groups.clone()
    }
}
/// One group of all devices along the axes.
impl<A: Into<Axes>> From<A> for AxisGroups {
    fn from(axes: A) -> AxisGroups {
        AxisGroups { axes: axes.into(), groups: None }
    }
}

/// # Manual mode
///
/// Collectives over mesh axes, for code that runs on one device: the bodies of
/// [`shard_map`](crate::shard_map()). Elsewhere they are an error (`ErrorKind::Mesh`).
impl Array {
    /// Applies the primitive that `make` builds from the setting of the enclosing manual region.
    fn collective(
        &self,
        over: impl Into<AxisGroups>,
        call: CallSite<'_>,
        make: impl FnOnce(&Setting, &AxisGroups) -> Prim,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let here =
            setting().or_else(|| ty.mesh.clone().map(|mesh| Setting { mesh, untracked: Axes::none() }));
        let over = over.into();
        let here = here.ok_or_else(|| outside_shard_map(call.op));
        match here.and_then(|here| one_kind_of_region(here, &over.axes)) {
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
            x.collective(axes, call, |at, over| prims::all_reduce(at, Reducer::Add, over))
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
            let sum = x.collective(&over, call, |at, over| prims::all_reduce(at, Reducer::Add, over));
            // an error about the axes is already reported
            if sum.type_ref().is_err() {
                return sum;
            }
            match &over.groups {
                Some(groups) if !groups.have_one_size() => {
                    let dtype = x.type_ref().map_or(DType::F32, |t| t.dtype);
                    sum.binary_with(Binary::Div, group_sizes(&over, groups, dtype, call), call)
                }
                Some(groups) => sum.binary_with(Binary::Div, groups.max_size(), call),
                None => {
                    let n = ok_or_return!(manual_axes_size(&over.axes, call), |error| poison(error));
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
        self.collective(axes, CallSite::here("pmax"), |at, over| prims::all_reduce(at, combine, over))
    }
    /// Computes the elementwise minimum of the blocks of the devices along `axes`.
    #[track_caller]
    pub fn pmin(&self, axes: impl Into<AxisGroups>) -> Array {
        let combine = self.extreme_reducer(false);
        self.collective(axes, CallSite::here("pmin"), |at, over| prims::all_reduce(at, combine, over))
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
        let call = CallSite::here("all_gather");
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
        self.collective(axes, call, |at, over| prims::psum_scatter(at, over, d, dim.tiled))
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
        let call = CallSite::here("all_to_all");
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
        self.collective(axes.into(), CallSite::here("ppermute"), |at, over| {
            let n = over.axes.iter().map(|a| at.mesh.extent(a)).product();
            prims::ppermute(at, over, how.pairs(n))
        })
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
        self.collective(axes.into(), call, |at, over| prims::pcast(at, over, to))
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

/// Returns the number of devices of this device's group, which varies, as a value of this type.
fn group_sizes(over: &AxisGroups, groups: &DeviceGroups, dtype: DType, call: CallSite<'_>) -> Array {
    let mut sizes = vec![1.0f32; groups.lists().iter().map(Vec::len).sum()];
    for group in groups.lists() {
        group.iter().for_each(|device| sizes[*device] = group.len() as f32);
    }
    let sizes = Array::from(sizes).convert_at(dtype, call);
    sizes.take_at(&axis_index_at(&over.axes, call), 0, IndexOptions::default(), call)
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
