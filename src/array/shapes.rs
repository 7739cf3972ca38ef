//! Shapes: reshape, transpose, broadcast, new and dropped dimensions, repeated and moved along themselves.

use super::dims::{Dims, dim};
use super::joins::join;
use super::operand::{self, Operand};
use super::{Array, prims, refusals};
use crate::diagnostic::{ErrorKind, Fault, Place, counted};
use crate::mesh::Axes;
use crate::sharding::Spec;
use crate::trace::{Arg, Repr, apply1, innermost, told};
use crate::types::{ArrayType, DType, Shape};
use std::panic::Location;

impl Array {
    /// The same elements in row-major order with another shape.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(type_of(&Array::arange(0..8).reshape([4, 2])), "int32[4,2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Array {
        self.reshape_at(shape.into(), None, Location::caller())
    }
    /// [`Array::reshape`], sharded as `out` says.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([4, 2]).put(&mesh, p![_, "X"]);
    /// assert_eq!(type_of(x.reshape_to([8], p!["X"])), "float32[8@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn reshape_to(&self, shape: impl Into<Shape>, out: Spec) -> Array {
        self.reshape_at(shape.into(), Some(out), Location::caller())
    }
    pub(crate) fn reshape_at(&self, shape: Shape, out: Option<Spec>, place: Place) -> Array {
        match self.type_ref() {
            Ok(t) if t.shape == shape && out.is_none() => self.clone(),
            Ok(t)
                if t.shape.elements() == shape.elements()
                    && out.is_none()
                    && self.is_here()
                    && t.dtype.of(&shape).addressable().is_ok() =>
            {
                self.relabelled(shape, place)
            }
            _ => apply1(prims::reshape(&shape, out), &[self.into()], place),
        }
    }
    /// Whether it is an array of numbers that lies nowhere in particular, where no trace would record what is done with it.
    fn is_here(&self) -> bool {
        matches!(self.repr(), Repr::Concrete(c) if c.sharding.is_none()) && innermost().is_none()
    }
    /// The same memory, read with another shape.
    fn relabelled(&self, shape: Shape, place: Place) -> Array {
        let Repr::Concrete(c) = self.repr() else { return self.clone() };
        match c.slab("reshape", place) {
            Ok(slab) => {
                let same = slab.reshaped(slab.dtype(), shape.clone(), 1);
                Array::concrete(same, c.ty.dtype.of(shape), None)
            }
            Err(e) => Array::poisoned(e),
        }
    }
    /// As one dimension.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([4, 2]).ravel().shape()?, [8]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn ravel(&self) -> Array {
        let n = self.type_ref().map_or(0, |t| t.shape.elements());
        self.reshape([n])
    }
    /// Dimensions in another order: dimension k of the result is dimension `perm[k]`; `..` reverses them.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::zeros([2, 3, 4]).transpose([2, 0, 1]).shape()?, [4, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn transpose(&self, perm: impl Into<Dims>) -> Array {
        let place = Location::caller();
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let dims = perm.into();
        let perm = if dims == Dims::from(..) {
            (0..ty.rank()).rev().collect()
        } else {
            match dims.resolve(ty.rank()) {
                Ok(perm) if perm.len() == ty.rank() => perm,
                named => {
                    let (entries, rank) = (counted(dims.len(), "entry"), ty.rank());
                    let fault = named.err().unwrap_or_else(|| {
                        let message = format!("the permutation has {entries}, but the array has rank {rank}");
                        Fault::new(ErrorKind::Shape, message)
                    });
                    let all: Vec<usize> = (0..rank).rev().collect();
                    let help = format!("name each of its dimensions once, as `{all:?}` does");
                    return self.refuse("transpose", Fault { help: vec![help], ..fault }, place);
                }
            }
        };
        apply1(prims::transpose(&perm), &[self.into()], place)
    }
    /// The dimensions in reverse order.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([4, 2]).t().shape()?, [2, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn t(&self) -> Array {
        self.transpose(..)
    }
    /// Repeated along dimensions of size 1 and new leading ones, as numpy broadcasts.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2]).broadcast_to([2, 2]).to_vec::<i32>()?, [1, 2, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Array {
        let (shape, place) = (shape.into(), Location::caller());
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.rank() > shape.rank() {
            let fault = Fault::new(
                ErrorKind::Shape,
                format!("an array of rank {} does not broadcast to {shape}", ty.rank()),
            )
            .help("new dimensions come in front, none is dropped: reduce or `squeeze` first");
            return self.refuse("broadcast_to", fault, place);
        }
        let _told = told("broadcast_to");
        self.spread(&shape, None, place)
    }
    /// [`Array::broadcast_to`], sharded as `out` says: dimensions of this array that are sharded already stay so.
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
        let (shape, place) = (shape.into(), Location::caller());
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let first = shape.rank().saturating_sub(ty.rank());
        let dims: Vec<usize> = (first..first + ty.rank()).collect();
        let wide = apply1(prims::broadcast(&shape, &dims, Some(out)), &[self.into()], place);
        let differs = |d: &usize| !ty.spec.dim(*d).is_empty() && ty.spec.dim(*d) != out.dim(first + d);
        match (0..ty.rank()).find(differs).filter(|_| wide.type_ref().is_ok()) {
            Some(d) => {
                let (from, to) = (Axes::from(ty.spec.dim(d)), Axes::from(out.dim(first + d)));
                let to = if to.is_empty() { "whole".into() } else { format!("split over {to}") };
                let fault = Fault::new(
                    ErrorKind::Sharding,
                    format!("dimension {d} is split over {from}, and asked to be {to} in the result"),
                );
                self.refuse("broadcast_as", fault.help("reshard it first: `.reshard(..)`").dim(0, d), place)
            }
            None => wide,
        }
    }
    /// Elements of this array repeated so that its dimensions become `dims` of an array of this shape.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2]).broadcast_in_dim([2, 2], [0]).to_vec::<i32>()?, [1, 1, 2, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_in_dim(&self, shape: impl Into<Shape>, dims: impl Into<Vec<usize>>) -> Array {
        let prim = prims::broadcast(&shape.into(), &dims.into(), None);
        apply1(prim, &[self.into()], Location::caller())
    }
    /// [`Array::broadcast_in_dim`], sharded as `out` says.
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
        apply1(prim, &[self.into()], Location::caller())
    }
    /// New dimensions of size 1 at these places of the result.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::zeros([4, 2]).expand_dims([0, -1]);
    /// assert_eq!((x.shape()?.to_vec(), x.squeeze(0).shape()?.to_vec()), (vec![1, 4, 2, 1], vec![4, 2, 1]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn expand_dims(&self, dims: impl Into<Dims>) -> Array {
        let (dims, place) = (dims.into(), Location::caller());
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dims.resolve_new(ty.rank()) {
            Ok(at) => self.new_dims(&at, place),
            Err(mut fault) => {
                fault.marks.clear();
                self.refuse("expand_dims", fault.help("new dimensions are counted in the result"), place)
            }
        }
    }
    /// New dimensions of size 1 at these places of the result, in ascending order.
    pub(crate) fn new_dims(&self, at: &[usize], place: Place) -> Array {
        apply1(prims::expand_dims(at), &[self.into()], place)
    }
    /// Without these dimensions of size 1; `..` drops all of them.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([1, 4, 1]).squeeze(..).shape()?, [4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn squeeze(&self, dims: impl Into<Dims>) -> Array {
        let (dims, place) = (dims.into(), Location::caller());
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if dims == Dims::from(..) {
            let ones: Vec<usize> = (0..ty.rank()).filter(|d| ty.shape[*d] == 1).collect();
            return self.without(&ones, place);
        }
        match dims.resolve(ty.rank()) {
            Ok(at) => self.without(&at, place),
            Err(fault) => self.refuse("squeeze", fault, place),
        }
    }
    /// Without these dimensions of size 1.
    pub(crate) fn without(&self, dims: &[usize], place: Place) -> Array {
        if dims.is_empty() {
            return self.clone();
        }
        apply1(prims::squeeze(dims), &[self.into()], place)
    }
    /// In reverse order along dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..3).flip(0).to_vec::<i32>()?, [2, 1, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn flip(&self, dims: impl Into<Dims>) -> Array {
        let (dims, place) = (dims.into(), Location::caller());
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dims.resolve(ty.rank()) {
            Ok(at) => {
                let _told = told("flip");
                apply1(prims::rev(&at), &[self.into()], place)
            }
            Err(fault) => self.refuse("flip", fault, place),
        }
    }
    /// `value` around: for each dimension how many before, behind, and between elements. Negative numbers before and behind cut.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2, 3]).pad(0, [(1, -1, 1)]).to_vec::<i32>()?, [0, 1, 0, 2, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pad(&self, value: impl Operand, widths: impl IntoIterator<Item = (i64, i64, usize)>) -> Array {
        let place = Location::caller();
        let _told = told("pad");
        let widths: Vec<_> = widths.into_iter().collect();
        if let Ok(ty) = self.type_ref()
            && ty.rank() != widths.len()
        {
            let (given, rank) = (counted(widths.len(), "dimension"), ty.rank());
            let fault = Fault::new(
                ErrorKind::Shape,
                format!("there are widths for {given}, but the array has {rank}"),
            )
            .help("give (before, behind, between) for each dimension");
            return self.refuse("pad", fault, place);
        }
        let args = match operand::args("pad", &[self.into(), value.term()], place) {
            Ok(args) => args,
            Err(refused) => return refused,
        };
        match &args[1] {
            Arg::Lit(l) => apply1(prims::pad(&widths, l.value), &args[..1], place),
            Arg::Array(value) => {
                if let Ok(v) = value.type_ref()
                    && v.rank() != 0
                {
                    let fault = Fault::new(ErrorKind::Shape, "what is put around must be one number")
                        .help("to put an array there: `concat`");
                    return operand::refuse(fault, "pad", &[self.into(), value.into()], place);
                }
                let padded = apply1(prims::pad(&widths, self.zero()), &args[..1], place);
                let inside = apply1(prims::pad(&widths, false.into()), &[self.trues(place).into()], place);
                inside.select(&padded, value)
            }
        }
    }
    /// `true` everywhere, of this array's shape, lying as it does.
    pub(super) fn trues(&self, place: Place) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let ty = ArrayType { dtype: DType::Bool, ..super::creation::plain(ty) };
        apply1(prims::full(ty, true.into()), &[], place)
    }
    /// Repeated as a whole: dimension d is repeated `reps[d]` times (the last dimensions, where there are fewer; new leading ones,
    /// where there are more). A repeated dimension must not be sharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1, 2]).tile([3]).to_vec::<i32>()?, [1, 2, 1, 2, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn tile(&self, reps: impl AsRef<[usize]>) -> Array {
        let (reps, place) = (reps.as_ref(), Location::caller());
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let rank = reps.len().max(ty.rank());
        let lead: Vec<usize> = (0..rank - ty.rank()).collect();
        let mut x = if lead.is_empty() { self.clone() } else { self.new_dims(&lead, place) };
        for (k, n) in reps.iter().enumerate() {
            let d = k + rank - reps.len();
            let Ok(ty) = x.type_ref() else { return x };
            if *n == 1 {
                continue;
            }
            if !ty.spec.dim(d).is_empty() {
                let fault = refusals::is_split(ty, d, " and cannot be repeated");
                return x.refuse("tile", fault, place);
            }
            // [.., m, ..] → [.., n, m, ..] → [.., n·m, ..]
            let mut shape: Vec<usize> = ty.shape.to_vec();
            let m = shape[d];
            shape.insert(d, *n);
            let dims: Vec<usize> = (0..shape.len()).filter(|i| *i != d).collect();
            let many = apply1(prims::broadcast(&shape.clone().into(), &dims, None), &[(&x).into()], place);
            shape.splice(d..d + 2, [n.saturating_mul(m)]);
            x = many.reshape_at(shape.into(), None, place);
        }
        x
    }
    /// Moved along a dimension, what leaves at one end coming in at the other. The dimension must not be sharded explicitly.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).roll(1, 0).to_vec::<i32>()?, [3, 0, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn roll(&self, by: i64, d: i32) -> Array {
        let place = Location::caller();
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = match dim(d.into(), ty.rank()) {
            Ok(at) => at,
            Err(fault) => return self.refuse("roll", fault, place),
        };
        if !ty.spec.dim(at).is_empty() {
            let fault = refusals::is_split(ty, at, ": its elements would move between devices")
                .help("or move blocks by `ppermute` in `shard_map`");
            return self.refuse("roll", fault, place);
        }
        let n = ty.shape[at];
        let by = if n == 0 { 0 } else { by.rem_euclid(n as i64) as usize };
        if by == 0 {
            return self.clone();
        }
        let parts = [self.part(at, n - by, n, place), self.part(at, 0, n - by, place)];
        join(&parts, at, place)
    }
    /// Zeros above the k-th diagonal of the last two dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// assert_eq!((x.tril(0).to_vec::<i32>()?, x.triu(1).to_vec::<i32>()?), (vec![1, 0, 3, 4], vec![0, 2, 0, 0]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn tril(&self, k: i64) -> Array {
        self.triangle("tril", k)
    }
    /// [`Array::tril`], sharded as `out` says.
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
        let _told = told("tril");
        self.reshard_at(out, Location::caller()).tril(k)
    }
    /// Zeros below the k-th diagonal of the last two dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.triu(0).to_vec::<i32>()?, [1, 2, 0, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn triu(&self, k: i64) -> Array {
        self.triangle("triu", k)
    }
    /// [`Array::triu`], sharded as `out` says.
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
        let _told = told("triu");
        self.reshard_at(out, Location::caller()).triu(k)
    }
    #[track_caller]
    fn triangle(&self, op: &'static str, k: i64) -> Array {
        let place = Location::caller();
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.rank() < 2 {
            let fault =
                Fault::new(ErrorKind::Shape, format!("an array of rank {} has no diagonal", ty.rank()))
                    .help("it takes (stacks of) matrices: `.reshape([n, m])`");
            return self.refuse(op, fault, place);
        }
        let of = ArrayType { dtype: DType::I32, ..super::creation::plain(ty) };
        let first = ty.rank() - 2;
        let index = |d| apply1(prims::iota(of.clone(), first + d), &[], place);
        let on = index(1) - diagonal(k, &ty.shape[first..]);
        let mask = if op == "tril" { index(0).ge(on) } else { index(0).le(on) };
        mask.select(self, self.zero_beside())
    }
}

/// A diagonal of a matrix of this shape, counted from the main one: those further out are all alike.
pub(super) fn diagonal(k: i64, shape: &[usize]) -> i64 {
    let count = |d: usize| i64::try_from(shape[d]).unwrap_or(i64::MAX);
    k.clamp(-count(0), count(1))
}

impl Dims {
    /// Places of new dimensions in the result of adding them to an array of this rank, ascending.
    fn resolve_new(&self, rank: usize) -> Result<Vec<usize>, Fault> {
        let count = self.len();
        let mut at = self.resolve(rank + count)?;
        at.sort_unstable();
        Ok(at)
    }
}
