//! Collectives of per-device code, in bodies of `shard_map`.

use super::dims::dim;
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::mesh::{Axes, AxisType};
use crate::ops::collective::{Cast, Gathered};
use crate::ops::elementwise::Binary;
use crate::program::sentence::Combine;
use crate::program::{Call, Prim};
use crate::trace::{Setting, apply1, poison, setting};
use crate::types::DType;
use std::collections::HashSet;

/// How blocks are put together or cut: in a dimension, or as a new one. [`Gather::tiled`],
/// [`Gather::stacked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    dim: i32,
    tiled: bool,
    to: Gathered,
}

impl Gather {
    /// Blocks joined (or cut) along a dimension that they have.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.all_gather("X", Gather::tiled(0)));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [0, 1, 2, 3, 0, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn tiled(dim: i32) -> Gather {
        Gather { dim, tiled: true, to: Gathered::Varying }
    }
    /// Blocks along a dimension of their own, at this place of the result (or operand).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X", _], |x: &Array| x.all_gather("X", Gather::stacked(0)));
    /// assert_eq!(f.call(Array::arange(0..4))?.shape()?, [4, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn stacked(dim: i32) -> Gather {
        Gather { dim, tiled: false, to: Gathered::Varying }
    }
    /// The result is typed as equal on all devices along the axes.
    pub fn invarying(self) -> Gather {
        Gather { to: Gathered::Invarying, ..self }
    }
    /// The result is typed as reduced over the axes: equal, with an unreduced cotangent.
    pub fn reduced(self) -> Gather {
        Gather { to: Gathered::Reduced, ..self }
    }
}

/// How an all-to-all cuts and joins: `Exchange::split(0).concat(1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    split: i32,
    concat: i32,
    tiled: bool,
}
impl Exchange {
    /// An all-to-all that cuts this dimension: `Exchange::split(0).concat(1)`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let turned = |x: &Array| x.all_to_all("X", Exchange::split(1).concat(0));
    /// let f = shard_map(&mesh, p!["X"], p![_, "X"], turned);
    /// assert_eq!(type_of(f.call(Array::ones([4, 4]))?), "float32[4,4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn split(dim: i32) -> Split {
        Split { dim }
    }
    /// The dimension that is cut, the one along which pieces are put together, and whether they are joined there.
    pub(crate) fn parts(self) -> (i32, i32, bool) {
        (self.split, self.concat, self.tiled)
    }
}
/// The half of an [`Exchange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    dim: i32,
}
impl Split {
    /// The pieces are joined along a dimension.
    pub fn concat(self, dim: i32) -> Exchange {
        Exchange { split: self.dim, concat: dim, tiled: true }
    }
    /// The cut dimension, of the axes' size, goes; the pieces are stacked along a new dimension of the result.
    pub fn stack(self, dim: i32) -> Exchange {
        Exchange { split: self.dim, concat: dim, tiled: false }
    }
}

/// Who sends to whom: pairs of source and target, [`Permutation::shift`], [`Permutation::ring`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation(Senders);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Senders {
    Pairs(Vec<(usize, usize)>),
    Shift(i64),
    Ring(i64),
}
impl<const N: usize> From<[(usize, usize); N]> for Permutation {
    fn from(pairs: [(usize, usize); N]) -> Permutation {
        Permutation(Senders::Pairs(pairs.into()))
    }
}
impl From<Vec<(usize, usize)>> for Permutation {
    fn from(pairs: Vec<(usize, usize)>) -> Permutation {
        Permutation(Senders::Pairs(pairs))
    }
}
impl std::fmt::Display for Permutation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Senders::Pairs(pairs) => write!(f, "{pairs:?}"),
            Senders::Shift(by) => write!(f, "Permutation::shift({by})"),
            Senders::Ring(by) => write!(f, "Permutation::ring({by})"),
        }
    }
}
impl Permutation {
    /// Each device sends to the one `by` places on; those at the end get zeros.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.ppermute("X", Permutation::shift(1)));
    /// assert_eq!(f.call(Array::arange(1..5))?.to_vec::<i32>()?, [0, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn shift(by: i64) -> Permutation {
        Permutation(Senders::Shift(by))
    }
    /// Each device sends to the one `by` places on, round and round.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.ppermute("X", Permutation::ring(1)));
    /// assert_eq!(f.call(Array::arange(1..5))?.to_vec::<i32>()?, [4, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn ring(by: i64) -> Permutation {
        Permutation(Senders::Ring(by))
    }
    /// The pairs among `n` devices.
    pub(crate) fn pairs(&self, n: usize) -> Vec<(usize, usize)> {
        match &self.0 {
            Senders::Pairs(pairs) => pairs.clone(),
            _ => (0..n).filter_map(|i| Some((i, self.target(i, n)?))).collect(),
        }
    }
    /// The first device among `n` to which `i` sends.
    pub(crate) fn target(&self, i: usize, n: usize) -> Option<usize> {
        match &self.0 {
            Senders::Pairs(pairs) => pairs.iter().find(|p| p.0 == i).map(|p| p.1),
            Senders::Shift(by) => i.checked_add_signed(isize::try_from(*by).ok()?).filter(|to| *to < n),
            Senders::Ring(by) => Some((i + by.rem_euclid((n as i64).max(1)) as usize) % n),
        }
    }
    /// The device among `n` that sends to `i`.
    pub(crate) fn source(&self, i: usize, n: usize) -> Option<usize> {
        match &self.0 {
            Senders::Pairs(pairs) => pairs.iter().find(|p| p.1 == i).map(|p| p.0),
            Senders::Shift(by) => Permutation(Senders::Shift(by.checked_neg()?)).target(i, n),
            Senders::Ring(by) => Some((i + n - by.rem_euclid((n as i64).max(1)) as usize) % n),
        }
    }
    /// The first of explicit pairs that cannot be among the `n` devices over these axes, and why.
    pub(crate) fn wrong(&self, n: usize, axes: &Axes) -> Option<String> {
        let Senders::Pairs(pairs) = &self.0 else { return None };
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

/// # Manual mode
///
/// Collectives of the devices along mesh axes, in code for one device: [`shard_map`](crate::shard_map()).
impl Array {
    /// Applies what `make` makes for the region that this is in.
    fn collective(
        &self,
        axes: impl Into<Axes>,
        call: Call<'_>,
        make: impl FnOnce(&Setting, &Axes) -> Prim,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let here = setting().or_else(|| ty.mesh.clone().map(|mesh| Setting { mesh, checked: true }));
        match here {
            Some(here) => apply1(make(&here, &axes.into()), &[self.into()], call),
            None => self.refuse(outside(call.op), call),
        }
    }
    /// The sum over the devices along the axes: the same on all of them. bool is summed as int32.
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
    #[doc(alias("all_reduce"))]
    #[track_caller]
    pub fn psum(&self, axes: impl Into<Axes>) -> Array {
        self.told(Call::here("psum"), |call| {
            let is_bool = self.type_ref().is_ok_and(|t| t.dtype == DType::Bool);
            let x = if is_bool { self.convert_at(DType::I32, call) } else { self.clone() };
            x.collective(axes, call, |at, axes| prims::preduce(at, Combine::Add, axes))
        })
    }
    /// The mean over the devices along the axes; of integers in float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p![], |x: &Array| x.pmean("X"));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pmean(&self, axes: impl Into<Axes>) -> Array {
        let axes = axes.into();
        self.told(Call::here("pmean"), |call| {
            let inexact = self.type_ref().is_ok_and(|t| t.dtype.is_inexact());
            let x = if inexact { self.clone() } else { self.convert_at(DType::F32, call) };
            let sum = x.collective(&axes, call, |at, axes| prims::preduce(at, Combine::Add, axes));
            // what is wrong with the axes was told
            if sum.type_ref().is_err() {
                return sum;
            }
            match size_of(&axes, call) {
                Ok(n) => sum.with(Binary::Div, n, call),
                Err(error) => poison(error),
            }
        })
    }
    /// The greatest over the devices along the axes.
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
    pub fn pmax(&self, axes: impl Into<Axes>) -> Array {
        let combine = self.extreme(true);
        self.collective(axes, Call::here("pmax"), |at, axes| prims::preduce(at, combine, axes))
    }
    /// The smallest over the devices along the axes.
    #[track_caller]
    pub fn pmin(&self, axes: impl Into<Axes>) -> Array {
        let combine = self.extreme(false);
        self.collective(axes, Call::here("pmin"), |at, axes| prims::preduce(at, combine, axes))
    }
    fn extreme(&self, greatest: bool) -> Combine {
        match (self.type_ref().is_ok_and(|t| t.dtype == DType::Bool), greatest) {
            (true, true) => Combine::Or,
            (true, false) => Combine::And,
            (false, true) => Combine::Max,
            (false, false) => Combine::Min,
        }
    }
    /// The blocks of all devices along the axes: `x.all_gather("X", Gather::tiled(0))`, `Gather::stacked(0)`, `Gather::tiled(1).invarying()`.
    ///
    #[cfg_attr(doc, doc = picture!("moves-gather"))]
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.all_gather("X", Gather::tiled(0)));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [0, 1, 2, 3, 0, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn all_gather(&self, axes: impl Into<Axes>, how: Gather) -> Array {
        let call = Call::here("all_gather");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dim(how.dim.into(), ty.rank() + usize::from(!how.tiled)) {
            Ok(d) => {
                self.collective(axes, call, |at, axes| prims::all_gather(at, axes, d, how.tiled, how.to))
            }
            Err(fault) => self.refuse(fault, call),
        }
    }
    /// The sum over the devices along the axes, of which each keeps its part of a dimension.
    ///
    #[cfg_attr(doc, doc = picture!("moves-scatter"))]
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.psum_scatter("X", Gather::tiled(0)));
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [2, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("reduce_scatter"))]
    #[track_caller]
    pub fn psum_scatter(&self, axes: impl Into<Axes>, how: Gather) -> Array {
        let call = Call::here("psum_scatter");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dim(how.dim.into(), ty.rank()) {
            Ok(d) => self.collective(axes, call, |at, axes| prims::psum_scatter(at, axes, d, how.tiled)),
            Err(fault) => self.refuse(fault, call),
        }
    }
    /// Each device gets its piece of a dimension from every device: `x.all_to_all("X", Exchange::split(0).concat(1))`.
    ///
    #[cfg_attr(doc, doc = picture!("moves-all-to-all"))]
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p![_, "X"], |x: &Array| x.all_to_all("X", Exchange::split(1).concat(0)));
    /// let x = Array::arange(0..4).reshape([2, 2]);
    /// assert_eq!(f.call(&x)?.to_vec::<i32>()?, x.to_vec::<i32>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn all_to_all(&self, axes: impl Into<Axes>, how: Exchange) -> Array {
        let call = Call::here("all_to_all");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let dims = dim(how.split.into(), ty.rank()).and_then(|s| Ok((s, dim(how.concat.into(), ty.rank())?)));
        match dims {
            Ok((s, c)) => {
                self.collective(axes, call, |at, axes| prims::all_to_all(at, axes, s, c, how.tiled))
            }
            Err(fault) => self.refuse(fault, call),
        }
    }
    /// The block of the device that sends to this one; zeros where none does. Pairs, [`Permutation::shift`] or [`Permutation::ring`].
    ///
    #[cfg_attr(doc, doc = picture!("moves-permute"))]
    ///
    #[cfg_attr(doc, doc = picture!("moves-shift"))]
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.ppermute("X", Permutation::shift(1)));
    /// assert_eq!(f.call(Array::from([1, 2, 3, 4]))?.to_vec::<i32>()?, [0, 0, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn ppermute(&self, axes: impl Into<Axes>, how: impl Into<Permutation>) -> Array {
        let how = how.into();
        self.collective(axes, Call::here("ppermute"), |at, axes| {
            let n = axes.iter().map(|a| at.mesh.extent(a)).product();
            prims::ppermute(at, axes, how.pairs(n))
        })
    }
    /// The same value, typed as varying over the axes.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p![], p!["X"], |x: &Array| x.pvary("X"));
    /// assert_eq!(f.call(Array::from([1, 2]))?.to_vec::<i32>()?, [1, 2, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pvary(&self, axes: impl Into<Axes>) -> Array {
        self.cast_at(axes, Cast::Varying, Call::here("pvary"))
    }
    /// The same value, typed otherwise over manual axes.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let f = shard_map(&mesh, p!["X"], p![; U: "X"], |x: &Array| x.sum(..).pcast("X", Cast::Unreduced));
    /// let x = f.call(Array::arange(0..4).put(&mesh, p!["X"]))?;
    /// assert_eq!((type_of(&x).to_string(), x.item::<i32>()?), ("int32[]{U:X}".into(), 6));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pcast(&self, axes: impl Into<Axes>, to: Cast) -> Array {
        self.cast_at(axes, to, Call::here("pcast"))
    }
    pub(super) fn cast_at(&self, axes: impl Into<Axes>, to: Cast, call: Call<'_>) -> Array {
        self.collective(axes, call, |at, axes| prims::pcast(at, axes, to))
    }
}

/// This device's place along the axes, counted with the first one outermost: int32, varying over them. In a body of `shard_map`.
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
    let (axes, call) = (axes.into(), Call::here("axis_index"));
    match setting() {
        Some(here) => apply1(prims::axis_index(&here, &axes), &[], call),
        None => poison(call.error(outside(call.op), Vec::new)),
    }
}

/// How many devices there are along the axes: a number, since meshes are static. In a body of `shard_map`; elsewhere, and for an axis that is not
/// manual there, an error.
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
    size_of(&axes.into(), Call::here("axis_size"))
}

fn size_of(axes: &Axes, call: Call<'_>) -> Result<usize> {
    let refuse = |fault| call.error(fault, Vec::new);
    let here = setting().ok_or_else(|| refuse(outside(call.op)))?;
    let mut sizes = 1;
    for axis in axes.iter() {
        match here.mesh.axis_type(axis) {
            Some(AxisType::Manual) => sizes *= here.mesh.extent(axis),
            Some(_) => {
                let fault = Fault::new(ErrorKind::Mesh, format!("{axis} is not manual here"));
                let elsewhere = format!("elsewhere: `mesh.axis_size({:?})?`", axis.name());
                return Err(refuse(fault.help("`shard_map` makes it so").help(elsewhere)));
            }
            None => return Err(refuse(here.mesh.unknown(axis))),
        }
    }
    Ok(sizes)
}

fn outside(op: &str) -> Fault {
    Fault::new(ErrorKind::Mesh, format!("`{op}` outside of a `shard_map` body: there are no manual axes"))
        .help("call it in the closure of `shard_map`")
}
