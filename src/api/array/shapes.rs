//! Shape changes: reshape, transpose, broadcast, pad and tile.
//!
//! Reshaping an eager array on no mesh reuses its data; all other methods apply a primitive.

use super::operand::{self, Operand, Term};
use super::{Array, dims::Dims, errors, prims};
use crate::api::trace::{ArrayOrLiteral, Repr, apply1, innermost};
use crate::core::{
    ArrayType, Axes, Axis, DType, Error, ErrorKind, Fault, Shape, Spec, TypePart, diagnostic::pluralize,
    util::small_sort,
};
use crate::ir::{ops::elementwise::Binary, program::CallSite};

/// # Shapes
impl Array {
    forward! {
        /// Reshapes the array, keeping the elements in row-major order.
        ///
        /// The number of elements must not change. If the sharding of the result cannot be derived
        /// from the operand's without moving data, it is an error: use [`Array::reshape_to`].
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(type_of(&Array::arange(0..8).reshape([4, 2])), "int32[4,2]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn reshape(shape: impl Into<Shape>) = reshape_at(shape.into(), None);
        /// Computes [`Array::reshape`] with the result sharded as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::ones([4, 2]).put(&mesh, p![_, "X"]);
        /// assert_eq!(type_of(x.reshape_to([8], p!["X"])), "float32[8@X]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn reshape_to(shape: impl Into<Shape>, out: Spec) = reshape_at(shape.into(), Some(out));
        /// Permutes the dimensions: dimension k of the result is dimension `perm[k]`.
        ///
        /// `..` reverses the dimensions.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::zeros([2, 3, 4]).transpose([2, 0, 1]).shape()?, [4, 2, 3]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("moveaxis", "swapaxes", "permute_dims"))]
        pub fn transpose(perm: impl Into<Dims>) = transpose_at(perm.into());
        /// Reverses the order of the dimensions.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::ones([4, 2]).t().shape()?, [2, 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn t() = transpose_at((..).into());
        /// Sets the elements above the `k`-th diagonal of the last two dimensions to zero.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1, 2], [3, 4]]);
        /// assert_eq!((x.tril(0).to_vec::<i32>()?, x.triu(1).to_vec::<i32>()?),
        ///     (vec![1, 0, 3, 4], vec![0, 2, 0, 0]));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn tril(k: i64) = triangle(true, k);
        /// Sets the elements below the `k`-th diagonal of the last two dimensions to zero.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1, 2], [3, 4]]);
        /// assert_eq!(x.triu(0).to_vec::<i32>()?, [1, 2, 0, 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn triu(k: i64) = triangle(false, k);
    }
    /// Implements [`Array::reshape`].
    pub(crate) fn reshape_at(&self, shape: Shape, out: Option<Spec>, call: CallSite<'_>) -> Array {
        match self.type_ref() {
            Ok(t) if t.shape == shape && out.is_none() => self.clone(),
            Ok(t)
                if t.shape.num_elements() == shape.num_elements()
                    && out.is_none()
                    && self.is_eager_unplaced()
                    && t.dtype.array_type(&shape).check_addressable().is_ok() =>
            {
                self.reshape_data(shape, call)
            }
            _ => {
                let explicit_form = || format!("x.reshape_to({shape}, {{}})");
                let call = if out.is_none() { call.with_explicit_form_fn(&explicit_form) } else { call };
                apply1(prims::reshape(&shape, out), &[self.into()], call)
            }
        }
    }
    /// Returns true if the array is concrete and on no mesh, and no trace is active.
    fn is_eager_unplaced(&self) -> bool {
        matches!(self.repr(), Repr::Concrete(c) if c.sharding.is_none()) && innermost().is_none()
    }
    /// Returns the same data under another shape, without copying.
    fn reshape_data(&self, shape: Shape, call: CallSite<'_>) -> Array {
        let Repr::Concrete(c) = self.repr() else { return self.clone() };
        let same = c.array_data(call.op, call.location).and_then(|slab| {
            let same = slab.reshaped(slab.dtype(), shape.clone(), 1);
            same.map_err(|fault| Error::new(fault, call.op, vec![c.ty.to_string()], Some(call.location)))
        });
        let same = ok_or_return!(same, |e| Array::poisoned(e));
        Array::concrete(same, c.ty.dtype.array_type(shape), None)
    }
    /// Flattens the array to one dimension, in row-major order.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([4, 2]).ravel().shape()?, [8]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "flatten")]
    #[track_caller]
    pub fn ravel(&self) -> Array {
        let n = self.type_ref().map_or(0, |t| t.shape.num_elements());
        self.reshape_at([n].into(), None, CallSite::here("ravel"))
    }
    /// Implements [`Array::transpose`].
    fn transpose_at(&self, dims: Dims, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let perm = if dims == Dims::from(..) {
            (0..ty.rank()).rev().collect()
        } else {
            match dims.resolve(ty.rank()) {
                Ok(perm) if perm.len() == ty.rank() => perm,
                named => {
                    let (entries, rank) = (pluralize(dims.len(), "entry"), ty.rank());
                    let fault = named.err().unwrap_or_else(|| {
                        fault!(Shape, "the permutation has {entries}, but the array has rank {rank}")
                    });
                    let all: Vec<usize> = (0..rank).rev().collect();
                    let help = format!("name each of its dimensions once, as `{all:?}` does");
                    return self.reject(Fault { help: vec![help], ..fault }, call);
                }
            }
        };
        apply1(prims::transpose(&perm), &[self.into()], call)
    }
    /// Broadcasts to `shape` as in NumPy: repeats dimensions of size 1 and adds leading ones.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2]).broadcast_to([2, 2]).to_vec::<i32>()?, [1, 2, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Array {
        let (shape, call) = (shape.into(), CallSite::here("broadcast_to"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.rank() > shape.rank() {
            let fault = fault!(Shape, "an array of rank {} does not broadcast to {shape}", ty.rank())
                .help("new dimensions come in front, none is dropped: reduce or `squeeze` first");
            return self.reject(fault, call);
        }
        self.broadcast_like(&shape, None, call)
    }
    /// Computes [`Array::broadcast_to`] with the result sharded as `out`.
    ///
    /// Dimensions of this array that are sharded already must keep their sharding.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    /// let x = Array::arange(0..4).put(&mesh, p!["X"]);
    /// assert_eq!(type_of(x.broadcast_as([2, 4], p!["Y", "X"])), "int32[2@Y,4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_as(&self, shape: impl Into<Shape>, out: Spec) -> Array {
        let (shape, call) = (shape.into(), CallSite::here("broadcast_as"));
        self.with_resolved_out(Some(out), call, |out| {
            self.broadcast_over(shape, out.unwrap_or(Spec::replicated(0)), call)
        })
    }
    /// Broadcasts to a shape; the sharding of the result is given in mesh axes.
    fn broadcast_over(&self, shape: Shape, out: Spec, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let first = shape.rank().saturating_sub(ty.rank());
        let dims: Vec<usize> = (first..first + ty.rank()).collect();
        let taken = |a: Axis| (0..shape.rank()).any(|d| out.dim(d).contains(&a));
        let sets = [("unreduced", ty.spec.unreduced_axes()), ("reduced", ty.spec.reduced_axes())];
        for (name, set) in sets {
            if let Some(axis) = set.iter().find(|a| taken(*a)) {
                let rest = |set: &Axes| -> Axes { set.iter().filter(|a| !taken(*a)).collect() };
                let before = ty.spec.padded(ty.rank());
                let before = before.unreduced(rest(sets[0].1)).reduced(rest(sets[1].1));
                let message =
                    format!("it is {name} over {axis}, over which the result is asked to be sharded");
                let fault = Fault::new(ErrorKind::Sharding, message).highlight(0, TypePart::Sets);
                return self.reject(fault.help(format!("reshard it first: `.reshard({before})`")), call);
            }
        }
        let wide = apply1(prims::broadcast(&shape, &dims, Some(out)), &[self.into()], call);
        let differs = |d: &usize| !ty.spec.dim(*d).is_empty() && ty.spec.dim(*d) != out.dim(first + d);
        let Some(d) = (0..ty.rank()).find(differs).filter(|_| wide.type_ref().is_ok()) else { return wide };
        let (from, to) = (Axes::from(ty.spec.dim(d)), Axes::from(out.dim(first + d)));
        let to = if to.is_empty() { "unsharded".into() } else { format!("sharded over {to}") };
        let fault =
            fault!(Sharding, "dimension {d} is sharded over {from}, and asked to be {to} in the result");
        let entry = |d: usize| match ty.shape[d] == shape[first + d] {
            _ if !differs(&d) => Axes::from(ty.spec.dim(d)),
            true => Axes::from(out.dim(first + d)),
            false => Axes::none(),
        };
        let before = ty.spec.with_dims((0..ty.rank()).map(entry).collect());
        self.reject(fault.help(format!("reshard it first: `.reshard({before})`")).highlight_dim(0, d), call)
    }
    /// Broadcasts so that dimension k of this array becomes dimension `dims[k]` of the result.
    ///
    /// The result has the given shape; other dimensions are repeated.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2]).broadcast_in_dim([2, 2], [0]).to_vec::<i32>()?,
    ///     [1, 1, 2, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_in_dim(&self, shape: impl Into<Shape>, dims: impl Into<Vec<usize>>) -> Array {
        let prim = prims::broadcast(&shape.into(), &dims.into(), None);
        apply1(prim, &[self.into()], CallSite::here("broadcast_in_dim"))
    }
    /// Computes [`Array::broadcast_in_dim`] with the result sharded as `out`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::from([1, 2]).put(&mesh, p![]);
    /// assert_eq!(type_of(x.broadcast_in_dim_to([2, 4], [0], p![_, "X"])), "int32[2,4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_in_dim_to(
        &self,
        shape: impl Into<Shape>,
        dims: impl Into<Vec<usize>>,
        out: Spec,
    ) -> Array {
        let prim = prims::broadcast(&shape.into(), &dims.into(), Some(out));
        apply1(prim, &[self.into()], CallSite::here("broadcast_in_dim_to"))
    }
    /// Inserts dimensions of size 1 at these positions of the result.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::zeros([4, 2]).expand_dims([0, -1]);
    /// assert_eq!((x.shape()?.to_vec(), x.squeeze(0).shape()?.to_vec()),
    ///     (vec![1, 4, 2, 1], vec![4, 2, 1]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("unsqueeze", "newaxis"))]
    #[track_caller]
    pub fn expand_dims(&self, dims: impl Into<Dims>) -> Array {
        let (dims, call) = (dims.into(), CallSite::here("expand_dims"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dims.resolve_new_dims(ty.rank()) {
            Ok(at) => self.expand_dims_at(&at, call),
            Err(mut fault) => {
                fault.highlights.clear();
                self.reject(fault.help("give the positions of the new dimensions in the result"), call)
            }
        }
    }
    /// Inserts dimensions of size 1 at these positions of the result, in ascending order.
    pub(crate) fn expand_dims_at(&self, at: &[usize], call: CallSite<'_>) -> Array {
        apply1(prims::expand_dims(at), &[self.into()], call)
    }
    /// Removes these dimensions, which must have size 1; `..` removes all dimensions of size 1.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([1, 4, 1]).squeeze(..).shape()?, [4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn squeeze(&self, dims: impl Into<Dims>) -> Array {
        let (dims, call) = (dims.into(), CallSite::here("squeeze"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if dims == Dims::from(..) {
            let ones: Vec<usize> = (0..ty.rank()).filter(|d| ty.shape[*d] == 1).collect();
            return self.squeeze_at(&ones, call);
        }
        let at = ok_or_return!(dims.resolve(ty.rank()), |fault| self.reject(fault, call));
        self.squeeze_at(&at, call)
    }
    /// Removes these dimensions, which must have size 1.
    pub(crate) fn squeeze_at(&self, dims: &[usize], call: CallSite<'_>) -> Array {
        if dims.is_empty() { self.clone() } else { apply1(prims::squeeze(dims), &[self.into()], call) }
    }
    /// Reverses the order of the elements along dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..3).flip(0).to_vec::<i32>()?, [2, 1, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn flip(&self, dims: impl Into<Dims>) -> Array {
        let (dims, call) = (dims.into(), CallSite::here("flip"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = ok_or_return!(dims.resolve(ty.rank()), |fault| self.reject(fault, call));
        apply1(prims::rev(&at), &[self.into()], call)
    }
    /// Pads with `value`: `widths` has (low, high, interior) padding for each dimension.
    ///
    /// Low and high padding precede and follow the elements, interior padding goes between them.
    /// Negative low and high padding removes elements.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2, 3]).pad(0, [(1, -1, 1)]).to_vec::<i32>()?, [0, 1, 0, 2, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pad(&self, value: impl Operand, widths: impl IntoIterator<Item = (i64, i64, usize)>) -> Array {
        let call = CallSite::here("pad");
        let widths: Vec<_> = widths.into_iter().collect();
        if let Ok(ty) = self.type_ref()
            && ty.rank() != widths.len()
        {
            let (given, rank) = (pluralize(widths.len(), "dimension"), ty.rank());
            let fault = fault!(Shape, "there are widths for {given}, but the array has {rank}")
                .help("give (before, after, between) for each dimension");
            return self.reject(fault, call);
        }
        self.pad_at(value.term(), &widths, call)
    }
    /// Implements [`Array::pad`], given one width per dimension.
    pub(super) fn pad_at(&self, value: Term, widths: &[(i64, i64, usize)], call: CallSite<'_>) -> Array {
        let args = ok_or_return!(operand::resolve_args(&[self.into(), value], call));
        match &args[1] {
            ArrayOrLiteral::Lit(l) => apply1(prims::pad(widths, l.value), &args[..1], call),
            ArrayOrLiteral::Array(value) => {
                if let Ok(v) = value.type_ref()
                    && v.rank() != 0
                {
                    let fault = fault!(Shape, "the padding value must be a scalar")
                        .help("to pad with an array, use `concat`");
                    return operand::reject(fault, &[self.into(), value.into()], call);
                }
                let padded = apply1(prims::pad(widths, self.zero()), &args[..1], call);
                let inside = apply1(prims::pad(widths, false.into()), &[self.full_true(call).into()], call);
                inside.select_at(padded.term(), value.term(), call)
            }
        }
    }
    /// Returns an array of `true` of this array's shape and sharding.
    pub(super) fn full_true(&self, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let ty = ArrayType { dtype: DType::Bool, ..super::creation::fresh_type(ty) };
        apply1(prims::full(ty, true.into()), &[], call)
    }
    /// Repeats the whole array `reps[d]` times along each dimension d.
    ///
    /// If `reps` is shorter than the rank, it applies to the last dimensions; if it is longer,
    /// leading dimensions are added. A repeated dimension must be unsharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2]).tile([3]).to_vec::<i32>()?, [1, 2, 1, 2, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn tile(&self, reps: impl AsRef<[usize]>) -> Array {
        let (reps, call) = (reps.as_ref(), CallSite::here("tile"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let rank = reps.len().max(ty.rank());
        let lead: Vec<usize> = (0..rank - ty.rank()).collect();
        let repeated = |d: usize| (d + reps.len()).checked_sub(ty.rank()).is_some_and(|k| reps[k] != 1);
        if let Some(d) = (0..ty.rank()).find(|d| repeated(*d) && !ty.spec.dim(*d).is_empty()) {
            return self.reject(errors::sharded_dim(ty, d, " and cannot be repeated"), call);
        }
        let mut x = if lead.is_empty() { self.clone() } else { self.expand_dims_at(&lead, call) };
        for (k, n) in reps.iter().enumerate() {
            let d = k + rank - reps.len();
            let Ok(ty) = x.type_ref() else { return x };
            if *n == 1 {
                continue;
            }
            // [.., m, ..] → [.., n, m, ..] → [.., n·m, ..]
            let mut shape: Vec<usize> = ty.shape.to_vec();
            let m = shape[d];
            shape.insert(d, *n);
            let dims: Vec<usize> = (0..shape.len()).filter(|i| *i != d).collect();
            let many = apply1(prims::broadcast(&shape.clone().into(), &dims, None), &[(&x).into()], call);
            shape.splice(d..d + 2, [n.saturating_mul(m)]);
            x = many.reshape_at(shape.into(), None, call);
        }
        x
    }
    /// Computes [`Array::tril`] with the result sharded as `out`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::from([[1, 2], [3, 4]]).put(&mesh, p![]);
    /// assert_eq!(type_of(x.tril_to(0, p!["X"])), "int32[2@X,2]");
    /// assert_eq!(type_of(x.triu_to(0, p![_, "X"])), "int32[2,2@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn tril_to(&self, k: i64, out: Spec) -> Array {
        let call = CallSite::here("tril_to");
        self.reshard_at(out, call).triangle(true, k, call)
    }
    /// Computes [`Array::triu`] with the result sharded as `out`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::from([[1, 2], [3, 4]]).put(&mesh, p![]);
    /// assert_eq!(type_of(x.triu_to(0, p![_, "X"])), "int32[2,2@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn triu_to(&self, k: i64, out: Spec) -> Array {
        let call = CallSite::here("triu_to");
        self.reshard_at(out, call).triangle(false, k, call)
    }
    /// Sets the elements above (`lower`) or below the `k`-th diagonal to zero.
    fn triangle(&self, lower: bool, k: i64, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.rank() < 2 {
            let fault = fault!(Shape, "an array of rank {} has no diagonal", ty.rank())
                .help("it takes (stacks of) matrices: `.reshape([n, m])`");
            return self.reject(fault, call);
        }
        let of = ArrayType { dtype: DType::I32, ..super::creation::fresh_type(ty) };
        let first = ty.rank() - 2;
        let index = |d| apply1(prims::iota(of.clone(), first + d), &[], call);
        let on = index(1).binary_with(Binary::Sub, clamp_diagonal(k, &ty.shape[first..]), call);
        let mask = index(0).binary_with(if lower { Binary::Ge } else { Binary::Le }, on, call);
        mask.select_at(self.term(), self.zero_operand(call), call)
    }
}

/// Clamps the index of a diagonal to the range of a matrix of this shape.
///
/// All diagonals outside of the matrix are equivalent.
pub(super) fn clamp_diagonal(k: i64, shape: &[usize]) -> i64 {
    let count = |d: usize| i64::try_from(shape[d]).unwrap_or(i64::MAX);
    k.clamp(-count(0), count(1))
}

impl Dims {
    /// Resolves the positions of new dimensions in the result, ascending.
    ///
    /// The result has the rank of the array plus the number of new dimensions.
    fn resolve_new_dims(&self, rank: usize) -> Result<Vec<usize>, Fault> {
        let count = self.len();
        let mut at = self.resolve(rank + count)?;
        small_sort::sort(&mut at);
        Ok(at)
    }
}
