//! Arguments of collectives: their devices, dimensions and permutations.

use crate::core::Axes;
use crate::ir::ops::collective::AllGatherTo;
use crate::ir::program::DeviceGroups;
use std::collections::HashSet;

/// The array dimension that a collective gathers into or scatters from.
///
/// [`CollectiveDim::tiled`] uses an existing dimension, [`CollectiveDim::stacked`] a dimension that
/// holds one block per device.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
///     let all = x.all_gather("X", CollectiveDim::tiled(0)); // the same on each device
///     all.psum_scatter("X", CollectiveDim::tiled(0)) // a half of the sum on each device
/// });
/// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [0, 2, 4, 6]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias("scatter_dimension"))]
pub struct CollectiveDim {
    pub(super) dim: i32,
    pub(super) tiled: bool,
    pub(super) result: AllGatherTo,
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
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let all = CollectiveDim::tiled(0).invarying();
        /// // the result is equal on all devices, so its spec has no axis
        /// let f = shard_map(&mesh, p!["X"], p![], |x: &Array| x.all_gather("X", all));
        /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [0, 1, 2, 3]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn invarying() = result: AllGatherTo::Invarying;
        /// Types the result of `all_gather` as reduced over the axes.
        ///
        /// A reduced value is equal on all devices along the axes, and its cotangent is unreduced
        /// over them.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let f = shard_map(&mesh, p!["X"], p!["X"], |w: &Array| {
        ///     let all = w.all_gather("X", CollectiveDim::tiled(0).reduced());
        ///     assert_eq!(type_of(&all), "float32[4]{R:X}");
        ///     all * (axis_index("X") + 1).astype(F32)
        /// });
        /// // the gradient adds up the cotangents of both devices
        /// let g = grad(Array::ones([4]).put(&mesh, p!["X"]), |w| f.call(&w).map(|y| y.sum(..)));
        /// assert_eq!(g.to_vec::<f32>()?, [3.0; 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn reduced() = result: AllGatherTo::Reduced;
    }
}

/// The split and concatenation dimensions of an all-to-all: `AllToAll::split(0).concat(1)`.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let exchange = AllToAll::split(1).concat(0);
/// let f = shard_map(&mesh, p!["X"], p![_, "X"], |x: &Array| x.all_to_all("X", exchange));
/// // device 0 has the first row of two, then the first two columns of four
/// let y = f.call(Array::arange(0..8).reshape([2, 4]))?;
/// assert_eq!(y.shards()?[0].data.to_vec::<i32>()?, [0, 1, 4, 5]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias("split_axis", "concat_axis"))]
pub struct AllToAll {
    pub(super) split: i32,
    pub(super) concat: i32,
    pub(super) tiled: bool,
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
///
/// ```
/// use atmesh::prelude::*;
/// let columns = AllToAll::split(1); // one group of columns for each device
/// assert_ne!(columns.concat(0), columns.stack(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllToAllSplit {
    dim: i32,
}
impl AllToAllSplit {
    /// Concatenates the received pieces along dimension `dim`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let exchange = AllToAll::split(0).concat(0);
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.all_to_all("X", exchange));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [0, 2, 1, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn concat(self, dim: i32) -> AllToAll {
        AllToAll { split: self.dim, concat: dim, tiled: true }
    }
    /// Stacks the received pieces along a new dimension `dim` of the result.
    ///
    /// The split dimension must have the size of the axes, and is removed.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let exchange = AllToAll::split(0).stack(1);
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.all_to_all("X", exchange));
    /// // blocks of [2, 3] become [3, 2]: one column from each device
    /// assert_eq!(type_of(f.call(Array::ones([4, 3]))?), "float32[6@X,2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn stack(self, dim: i32) -> AllToAll {
        AllToAll { split: self.dim, concat: dim, tiled: false }
    }
}

/// The source and target devices of a [`ppermute`](crate::Array::ppermute).
///
/// It is an array or vector of `(source, target)` pairs such as `[(0, 1), (1, 0)]`, or made by
/// [`Permutation::shift`] or [`Permutation::ring`]. Devices are numbered along the axes, the first
/// axis outermost.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let swap = Permutation::from([(0, 1), (1, 0)]);
/// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.ppermute("X", swap.clone()));
/// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [2, 3, 0, 1]);
/// # Ok::<(), atmesh::Error>(())
/// ```
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
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::AxisGroups;
/// let mesh = Mesh::new([("X", 4)])?;
/// let pairs = AxisGroups::new("X", [[0, 1], [2, 3]]);
/// let f = shard_map(&mesh, p!["X"], (p![], p!["X"]), |x: &Array| (x.pmax("X"), x.pmax(&pairs)));
/// let (all, each) = f.call(Array::from([1, 2, 3, 4]))?;
/// assert_eq!(all.to_vec::<i32>()?, [4]);
/// assert_eq!(each.to_vec::<i32>()?, [2, 2, 4, 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
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
