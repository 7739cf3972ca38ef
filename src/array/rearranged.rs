//! Dimensions moved, elements moved along them and repeated, differences of neighbours, coordinates of grids.

use super::creation::plain;
use super::dims::{Dims, dim};
use super::joins::join;
use super::{Array, Operand, Term, operand, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::Axes;
use crate::ops::elementwise::Binary;
use crate::program::Call;
use crate::trace::{apply1, carried, poison};
use crate::types::{ArrayType, DType, Shape};
use std::borrow::Borrow;

/// # Repeating, turning, shifting
impl Array {
    /// Two dimensions in each other's place.
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
        let call = Call::here("swapaxes");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dim(a.into(), ty.rank()).and_then(|a| Ok((a, dim(b.into(), ty.rank())?))) {
            Ok((a, b)) => {
                let mut perm: Vec<usize> = (0..ty.rank()).collect();
                perm.swap(a, b);
                apply1(prims::transpose(&perm), &[self.into()], call)
            }
            Err(fault) => self.refuse(fault, call),
        }
    }
    /// Dimensions `from`, moved to the places `to` of the result; the others keep their order.
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
        let (from, to, call) = (from.into(), to.into(), Call::here("moveaxis"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let rank = ty.rank();
        let (from, to) = match from.resolve(rank).and_then(|from| Ok((from, to.resolve(rank)?))) {
            Ok(both) => both,
            Err(fault) => return self.refuse(fault, call),
        };
        if from.len() != to.len() {
            let message = format!("it moves {} dimensions to {} places", from.len(), to.len());
            let help = "give a place for each dimension that is moved";
            return self.refuse(Fault::new(ErrorKind::Shape, message).help(help), call);
        }
        let mut rest = (0..rank).filter(|d| !from.contains(d));
        let place = |k: usize| to.iter().position(|t| *t == k).map(|at| from[at]);
        let perm: Vec<usize> = (0..rank).filter_map(|k| place(k).or_else(|| rest.next())).collect();
        apply1(prims::transpose(&perm), &[self.into()], call)
    }
    /// Each element along a dimension `n` times, one behind the other. The dimension stays sharded as it is.
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
        let call = Call::here("repeat");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = match dim(d.into(), ty.rank()) {
            Ok(at) => at,
            Err(fault) => return self.refuse(fault, call),
        };
        // [.., m, ..] → [.., m, n, ..] → [.., m·n, ..]
        let mut shape: Vec<usize> = ty.shape.to_vec();
        shape.insert(at + 1, n);
        let dims: Vec<usize> = (0..shape.len()).filter(|e| *e != at + 1).collect();
        let merged = shape[at].saturating_mul(n);
        self.told(call, |call| {
            let many = apply1(prims::broadcast(&shape.clone().into(), &dims, None), &[self.into()], call);
            shape.splice(at..at + 2, [merged]);
            many.reshape_at(shape.into(), None, call)
        })
    }
    /// Moved along a dimension, what leaves at one end coming in at the other. A sharded dimension stays so: devices exchange what crosses
    /// from block to block.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).roll(1, 0).to_vec::<i32>()?, [3, 0, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn roll(&self, by: i64, d: i32) -> Array {
        let call = Call::here("roll");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = match dim(d.into(), ty.rank()) {
            Ok(at) => at,
            Err(fault) => return self.refuse(fault, call),
        };
        let n = ty.shape[at];
        let by = if n == 0 { 0 } else { by.rem_euclid(n as i64) as usize };
        if by == 0 {
            return self.clone();
        }
        if !ty.spec.dim(at).is_empty() {
            return self.told(call, |call| self.roll_blocks(by, at, call));
        }
        let parts = [self.part(at, n - by, n, call), self.part(at, 0, n - by, call)];
        join(&parts, at, call)
    }
    /// Rolled along a sharded dimension: what comes from before, and at the beginning what comes from the end.
    fn roll_blocks(&self, by: usize, d: usize, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let (n, by) = (ty.shape[d] as i64, by as i64);
        let moved = |by: i64| {
            let mut widths = vec![(0, 0, 0); ty.rank()];
            widths[d] = (by, -by, 0);
            apply1(prims::pad(&widths, self.zero()), &[self.into()], call)
        };
        let index = ArrayType { dtype: DType::I32, ..plain(ty) };
        let first = apply1(prims::iota(index, d), &[], call).with(Binary::Lt, by, call);
        first.select_at(moved(by - n).term(), moved(by).term(), call)
    }
    /// Moved along a dimension by `by` places, towards its beginning where that is negative; `fill` comes in. The size and the sharding stay: of
    /// a sharded dimension devices exchange what crosses from block to block. So a stencil reads its neighbours.
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
        let (fill, call) = (fill.term(), Call::here("shift"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = match dim(d.into(), ty.rank()) {
            Ok(at) => at,
            Err(fault) => return self.refuse(fault, call),
        };
        let n = i64::try_from(ty.shape[at]).unwrap_or(i64::MAX);
        let by = by.clamp(-n, n);
        let mut widths = vec![(0, 0, 0); ty.rank()];
        widths[at] = (by, -by, 0);
        self.told(call, |call| self.pad_at(fill, &widths, call))
    }
    /// The differences of neighbours along a dimension: each element from the next one, `n` times over.
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
        let call = Call::here("diff");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = match dim(d.into(), ty.rank()) {
            Ok(at) => at,
            Err(fault) => return self.refuse(fault, call),
        };
        let size = ty.shape[at];
        let axes = Axes::from(ty.spec.dim(at));
        let ways: usize = ty.mesh.iter().flat_map(|m| axes.iter().map(|a| m.extent(a))).product();
        if n > 0 && ways > 1 {
            let message = format!(
                "dimension {at} is sharded over {axes}: {} differences are not divisible into {ways} equal parts",
                size.saturating_sub(n)
            );
            let fault = Fault::new(ErrorKind::Sharding, message).dim(0, at);
            let help = format!(
                "keep the size, with a number in place of the missing neighbour: `&x - x.shift(1, {at}, 0)`"
            );
            return self.refuse(fault.help(help), call);
        }
        self.told(call, |call| {
            let minus = if ty.dtype == DType::Bool { Binary::Ne } else { Binary::Sub };
            (0..n.min(size)).fold(self.clone(), |x, k| {
                let left = size - k;
                x.part(at, 1, left, call).with(minus, x.part(at, 0, left - 1, call), call)
            })
        })
    }
    /// For each dimension of an array of this shape the positions along it (int32), one array behind the other.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::indices([2, 2]).to_vec::<i32>()?, [0, 0, 1, 1, 0, 1, 0, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn indices(shape: impl Into<Shape>) -> Array {
        let (shape, call) = (shape.into(), Call::here("indices"));
        let rank = shape.rank();
        let ty = DType::I32.of(std::iter::once(rank).chain(shape.iter().copied()).collect::<Vec<_>>());
        if let Err(fault) = ty.addressable() {
            return super::creation::refuse(fault, &ty, call);
        }
        if rank == 0 {
            return Array::zeros(ty);
        }
        let one = DType::I32.of(std::iter::once(1).chain(shape.iter().copied()).collect::<Vec<_>>());
        let rows: Vec<Array> = (0..rank).map(|d| Array::iota_at(one.clone(), d + 1, call)).collect();
        join(&rows, 0, call)
    }
}

/// Which of the first two vectors [`meshgrid`] lays along the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Grid {
    /// The second: the first one runs along columns, as x does in a picture.
    #[default]
    Xy,
    /// The first: the k-th one runs along dimension k.
    Ij,
}

/// Vectors as the coordinates of a grid: for each an array of the grid's shape, the same along all dimensions but its own.
///
/// ```
/// use atmesh::array::{Grid, meshgrid};
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let (x, y) = (Array::arange(0..3), Array::arange(0..2).put(&mesh, p!["X"]));
/// let [xs, ys] = &meshgrid([&x, &y], Grid::Xy)[..] else { unreachable!() };
/// assert_eq!(xs.to_vec::<i32>()?, [0, 1, 2, 0, 1, 2]);
/// assert_eq!((ys.to_vec::<i32>()?, type_of(ys).to_string()), (vec![0, 0, 0, 1, 1, 1], "int32[2@X,3]".into()));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn meshgrid<A: Borrow<Array>>(vectors: impl IntoIterator<Item = A>, grid: Grid) -> Vec<Array> {
    let call = Call::here("meshgrid");
    let vectors: Vec<Array> = vectors.into_iter().map(|a| a.borrow().clone()).collect();
    let terms: Vec<Term> = vectors.iter().map(Term::from).collect();
    let failed = |array: Array| vec![array; vectors.len()];
    if let Some(error) = carried(vectors.iter()) {
        return failed(poison(error));
    }
    let types = || vectors.iter().filter_map(|v| v.type_ref().ok());
    if let Some((k, ty)) = types().enumerate().find(|(_, ty)| ty.rank() != 1) {
        let fault = Fault::new(ErrorKind::Shape, format!("operand {k} is {ty}: a grid is made of vectors"));
        return failed(operand::refuse(fault.help("ravel it first: `.ravel()`"), &terms, call));
    }
    let rank = vectors.len();
    // the dimension of the k-th vector
    let along = |k: usize| if grid == Grid::Xy && k < 2 && rank > 1 { 1 - k } else { k };
    let mut shape = vec![0; rank];
    types().enumerate().for_each(|(k, ty)| shape[along(k)] = ty.shape[0]);
    let shape: Shape = shape.into();
    let spread = |(k, x): (usize, &Array)| {
        x.told(call, |call| apply1(prims::broadcast(&shape, &[along(k)], None), &[x.into()], call))
    };
    vectors.iter().enumerate().map(spread).collect()
}
