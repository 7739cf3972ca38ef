//! Rearrangement of arrays: moving dimensions, repeating and shifting elements, building grids.
//!
//! A shift is implemented as padding with one positive and one negative width, so that along a
//! sharded dimension devices exchange only the elements that cross shard boundaries.

use super::dims::{Dims, resolve_dim};
use super::take::{IndexMode, IndexOptions};
use super::{Array, Operand, Term, concat::concat_at, errors, operand, prims};
use crate::api::trace::{apply1, carried_errors, poison};
use crate::core::{Axes, DType, ErrorKind, Fault, Shape};
use crate::ir::{ops::along_axis::CumulativeOp, ops::elementwise::Binary, program::CallSite};
use std::borrow::Borrow;

/// # Repeating, reordering and shifting
impl Array {
    /// Swaps two dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::zeros([2, 3, 4]).put(&mesh, p!["X"]);
    /// assert_eq!(type_of(x.swapaxes(0, -1)), "float32[4,3,2@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn swapaxes(&self, a: i32, b: i32) -> Array {
        let call = CallSite::here("swapaxes");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let (a, b) = ok_or_return!(
            resolve_dim(a.into(), ty.rank()).and_then(|a| Ok((a, resolve_dim(b.into(), ty.rank())?))),
            |fault| self.reject(fault, call)
        );
        let mut perm: Vec<usize> = (0..ty.rank()).collect();
        perm.swap(a, b);
        apply1(prims::transpose(&perm), &[self.into()], call)
    }
    /// Moves the dimensions `from` to the positions `to`; the others keep their order.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::zeros([2, 3, 4]);
    /// assert_eq!(x.moveaxis(0, -1).shape()?, [3, 4, 2]);
    /// assert_eq!(x.moveaxis([0, 1], [1, 2]).shape()?, [4, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn moveaxis(&self, from: impl Into<Dims>, to: impl Into<Dims>) -> Array {
        let (from, to, call) = (from.into(), to.into(), CallSite::here("moveaxis"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let rank = ty.rank();
        let from = ok_or_return!(from.resolve(rank), |fault| self.reject(fault, call));
        let to = ok_or_return!(to.resolve(rank), |fault| self.reject(fault, call));
        if from.len() != to.len() {
            let message = format!("it moves {} dimensions to {} positions", from.len(), to.len());
            let help = "give a position for each dimension that is moved";
            return self.reject(Fault::new(ErrorKind::Shape, message).help(help), call);
        }
        let mut rest = (0..rank).filter(|d| !from.contains(d));
        let place = |k: usize| to.iter().position(|t| *t == k).map(|at| from[at]);
        let perm: Vec<usize> = (0..rank).filter_map(|k| place(k).or_else(|| rest.next())).collect();
        apply1(prims::transpose(&perm), &[self.into()], call)
    }
    /// Repeats each element along dimension `d` `n` times; the dimension keeps its sharding.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::from([1, 2]).put(&mesh, p!["X"]);
    /// assert_eq!(x.repeat(3, 0).to_vec::<i32>()?, [1, 1, 1, 2, 2, 2]);
    /// assert_eq!(type_of(x.repeat(3, 0)), "int32[6@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn repeat(&self, n: usize, d: i32) -> Array {
        let call = CallSite::here("repeat");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| self.reject(fault, call));
        // [.., m, ..] → [.., m, n, ..] → [.., m·n, ..]
        let mut shape: Vec<usize> = ty.shape.to_vec();
        shape.insert(at + 1, n);
        let dims: Vec<usize> = (0..shape.len()).filter(|e| *e != at + 1).collect();
        let merged = shape[at].saturating_mul(n);
        self.with_call_site(call, |call| {
            let many = apply1(prims::broadcast(&shape.clone().into(), &dims, None), &[self.into()], call);
            shape.splice(at..at + 2, [merged]);
            many.reshape_at(shape.into(), None, call)
        })
    }
    /// Repeats element k along dimension `d` `counts[k]` times, to a total size of `total`.
    ///
    /// `counts` is a vector of non-negative integers, one for each element. Its values need not be
    /// known when the program is traced, but their sum is: if it is less than `total`, the last
    /// element is repeated further, and if it is more, the rest is dropped. The counts and the
    /// dimension must be unsharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([7, 8, 9]);
    /// let counts = Array::from([2, 0, 3]);
    /// assert_eq!(x.repeat_by(&counts, 5, 0).to_vec::<i32>()?, [7, 7, 9, 9, 9]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("repeat", "repeat_interleave", "total_repeat_length"))]
    #[track_caller]
    pub fn repeat_by(&self, counts: &Array, total: usize, d: i32) -> Array {
        let call = CallSite::here("repeat_by");
        let [ty, ct] = ok_or_return!(operand::types([self, counts]));
        let terms = [Term::from(self), Term::from(counts)];
        let reject = |fault| operand::reject(fault, &terms, call);
        let at = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| reject(fault));
        if !ct.dtype.is_integer() || ct.shape[..] != [ty.shape[at]] {
            let message = format!("the counts are {ct}, but dimension {at} has size {}", ty.shape[at]);
            let kind = if ct.dtype.is_integer() { ErrorKind::Shape } else { ErrorKind::Dtype };
            let help = format!("give a vector of {} integers", ty.shape[at]);
            return reject(Fault::new(kind, message).help(help).highlight_dim(0, at));
        }
        let sharded =
            [(0, ty, at, " and cannot be repeated by counts"), (1, ct, 0, ", but counts are unsharded")];
        let first = sharded.into_iter().find(|(_, of, d, _)| !of.spec.dim(*d).is_empty());
        if let Some((k, of, d, why)) = first {
            let fault = errors::sharded_dim(of, d, why);
            return reject(Fault { highlights: Vec::new(), ..fault }.highlight_dim(k, d));
        }
        let wide = matches!(ct.dtype, DType::U32 | DType::I64 | DType::U64) || i32::try_from(total).is_err();
        let positions = if wide { DType::I64 } else { DType::I32 }.array_type([total]);
        if let Err(fault) = positions.check_addressable() {
            return reject(fault);
        }
        // element k ends before position `ends[k]`
        let counts = counts.astype_at(positions.dtype, call);
        let ends = apply1(prims::scan(CumulativeOp::Sum, 0, false), &[counts.into()], call);
        let number = ends.searchsorted_at(&Array::iota_at(positions, 0, call), true, call);
        let options = IndexOptions::default().mode(IndexMode::Clip);
        self.take_at(&number, d, options, call)
    }
    /// Shifts elements cyclically by `by` positions along dimension `d`.
    ///
    /// Elements that leave at one end enter at the other. The dimension keeps its sharding: devices
    /// exchange the elements that cross shard boundaries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).roll(1, 0).to_vec::<i32>()?, [3, 0, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn roll(&self, by: i64, d: i32) -> Array {
        let call = CallSite::here("roll");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| self.reject(fault, call));
        self.roll_at(by, at, call)
    }
    /// Implements [`Array::roll`].
    pub(super) fn roll_at(&self, by: i64, at: usize, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let n = ty.shape[at];
        let by = if n == 0 { 0 } else { by.rem_euclid(n as i64) as usize };
        if by == 0 {
            return self.clone();
        }
        if !ty.spec.dim(at).is_empty() {
            // slices of a sharded dimension have no explicit types
            return apply1(prims::roll(by, at), &[self.into()], call);
        }
        let parts = [self.slice_dim(at, n - by, n, call), self.slice_dim(at, 0, n - by, call)];
        concat_at(&parts, at, call)
    }
    /// Shifts elements by `by` positions along dimension `d`, filling with `fill`.
    ///
    /// Negative `by` shifts towards the start. Size and sharding stay the same: devices exchange
    /// the elements that cross shard boundaries. Stencils read their neighbours this way.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::from([1, 2, 3, 4]).put(&mesh, p!["X"]);
    /// assert_eq!(x.shift(1, 0, 0).to_vec::<i32>()?, [0, 1, 2, 3]);
    /// assert_eq!((x.shift(-1, 0, 9) - &x).to_vec::<i32>()?, [1, 1, 1, 5]);
    /// assert_eq!(type_of(x.shift(1, 0, 0)), "int32[4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn shift(&self, by: i64, d: i32, fill: impl Operand) -> Array {
        let (fill, call) = (fill.term(), CallSite::here("shift"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| self.reject(fault, call));
        let n = i64::try_from(ty.shape[at]).unwrap_or(i64::MAX);
        let by = by.clamp(-n, n);
        let mut widths = vec![(0, 0, 0); ty.rank()];
        widths[at] = (by, -by, 0);
        self.with_call_site(call, |call| self.pad_at(fill, &widths, call))
    }
    /// Computes the `n`-th differences of neighbouring elements along dimension `d`.
    ///
    /// The size of the dimension shrinks by `n`. It is an error if the dimension is sharded: use
    /// [`shift`](Array::shift).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1, 4, 9, 16]);
    /// assert_eq!(x.diff(1, 0).to_vec::<i32>()?, [3, 5, 7]);
    /// assert_eq!(x.diff(2, 0).to_vec::<i32>()?, [2, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn diff(&self, n: usize, d: i32) -> Array {
        let call = CallSite::here("diff");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| self.reject(fault, call));
        let size = ty.shape[at];
        let axes = Axes::from(ty.spec.dim(at));
        let ways: usize = ty.mesh.iter().flat_map(|m| axes.iter().map(|a| m.extent(a))).product();
        if n > 0 && ways > 1 {
            let fault = fault!(Sharding, "dimension {at} is sharded over {axes}: {} differences are not divisible into {ways} equal parts",
                size.saturating_sub(n)).highlight_dim(0, at);
            let help = format!(
                "keep the size, with a fill value for the missing neighbour: `&x - x.shift(1, {at}, 0)`"
            );
            return self.reject(fault.help(help), call);
        }
        self.with_call_site(call, |call| {
            let minus = if ty.dtype == DType::Bool { Binary::Ne } else { Binary::Sub };
            (0..n.min(size)).fold(self.clone(), |x, k| {
                let left = size - k;
                x.slice_dim(at, 1, left, call).binary_with(minus, x.slice_dim(at, 0, left - 1, call), call)
            })
        })
    }
    /// Returns the int32 index of each position of an array of this shape, per dimension.
    ///
    /// The result has shape `[rank, …shape]`: entry k along dimension 0 holds the indices along
    /// dimension k.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::indices([2, 2]).to_vec::<i32>()?, [0, 0, 1, 1, 0, 1, 0, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn indices(shape: impl Into<Shape>) -> Array {
        let (shape, call) = (shape.into(), CallSite::here("indices"));
        let rank = shape.rank();
        let ty =
            DType::I32.array_type(std::iter::once(rank).chain(shape.iter().copied()).collect::<Vec<_>>());
        if let Err(fault) = ty.check_addressable() {
            return super::creation::reject_type(fault, &ty, call);
        }
        if rank == 0 {
            return Array::zeros(ty);
        }
        let one = DType::I32.array_type(std::iter::once(1).chain(shape.iter().copied()).collect::<Vec<_>>());
        let rows: Vec<Array> = (0..rank).map(|d| Array::iota_at(one.clone(), d + 1, call)).collect();
        concat_at(&rows, 0, call)
    }
}

/// The indexing convention of [`meshgrid`] (NumPy's `indexing`).
///
/// ```
/// use atmesh::prelude::*;
/// let (x, y) = (Array::from([1, 2, 3]), Array::from([4, 5]));
/// let grid = meshgrid([&x, &y], GridIndexing::Ij);
/// assert_eq!(grid[0].shape()?, [3, 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum GridIndexing {
    /// Cartesian (`xy`) indexing: the first vector varies along dimension 1, the second along 0.
    #[default]
    Xy,
    /// Matrix (`ij`) indexing: the k-th vector varies along dimension k.
    Ij,
}

/// Returns coordinate arrays of the grid that vectors span, one array per vector.
///
/// All results have the grid's shape. Each is constant along all dimensions except that of its
/// vector, where it keeps the vector's sharding.
///
/// ```
/// use atmesh::array::{GridIndexing, meshgrid};
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let (x, y) = (Array::arange(0..3), Array::arange(0..2).put(&mesh, p!["X"]));
/// let [xs, ys] = &meshgrid([&x, &y], GridIndexing::Xy)[..] else { unreachable!() };
/// assert_eq!(xs.to_vec::<i32>()?, [0, 1, 2, 0, 1, 2]);
/// assert_eq!((ys.to_vec::<i32>()?, type_of(ys).to_string()),
///     (vec![0, 0, 0, 1, 1, 1], "int32[2@X,3]".into()));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn meshgrid<A: Borrow<Array>>(vectors: impl IntoIterator<Item = A>, grid: GridIndexing) -> Vec<Array> {
    let call = CallSite::here("meshgrid");
    let vectors: Vec<Array> = vectors.into_iter().map(|a| a.borrow().clone()).collect();
    let terms: Vec<Term> = vectors.iter().map(Term::from).collect();
    let failed = |array: Array| vec![array; vectors.len()];
    if let Some(error) = carried_errors(vectors.iter()) {
        return failed(poison(error));
    }
    let types = || vectors.iter().filter_map(|v| v.type_ref().ok());
    if let Some((k, ty)) = types().enumerate().find(|(_, ty)| ty.rank() != 1) {
        let fault = fault!(Shape, "operand {k} is {ty}: a grid is made of vectors");
        return failed(operand::reject(fault.help("ravel it first: `.ravel()`"), &terms, call));
    }
    let rank = vectors.len();
    // the dimension of the k-th vector
    let along = |k: usize| if grid == GridIndexing::Xy && k < 2 && rank > 1 { 1 - k } else { k };
    let mut shape = vec![0; rank];
    types().enumerate().for_each(|(k, ty)| shape[along(k)] = ty.shape[0]);
    let shape: Shape = shape.into();
    let spread = |(k, x): (usize, &Array)| {
        x.with_call_site(call, |call| apply1(prims::broadcast(&shape, &[along(k)], None), &[x.into()], call))
    };
    vectors.iter().enumerate().map(spread).collect()
}
