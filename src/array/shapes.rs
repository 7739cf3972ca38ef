//! Shapes: reshape, transpose, broadcast, new and dropped dimensions, repeated and moved along themselves.

use super::dims::Dims;
use super::operand::{self, Operand, Term};
use super::{Array, prims, refusals};
use crate::diagnostic::{Error, ErrorKind, Fault, Spot, counted};
use crate::mesh::{Axes, Axis};
use crate::ops::elementwise::Binary;
use crate::program::Call;
use crate::sharding::Spec;
use crate::sorted;
use crate::trace::{Arg, Repr, apply1, innermost};
use crate::types::{ArrayType, DType, Shape};

/// # Shapes
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
        self.reshape_at(shape.into(), None, Call::here("reshape"))
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
        self.reshape_at(shape.into(), Some(out), Call::here("reshape_to"))
    }
    pub(crate) fn reshape_at(&self, shape: Shape, out: Option<Spec>, call: Call<'_>) -> Array {
        match self.type_ref() {
            Ok(t) if t.shape == shape && out.is_none() => self.clone(),
            Ok(t)
                if t.shape.elements() == shape.elements()
                    && out.is_none()
                    && self.is_here()
                    && t.dtype.of(&shape).addressable().is_ok() =>
            {
                self.relabelled(shape, call)
            }
            _ => {
                let twin = || format!("x.reshape_to({shape}, {{}})");
                let call = if out.is_none() { call.twin_by(&twin) } else { call };
                apply1(prims::reshape(&shape, out), &[self.into()], call)
            }
        }
    }
    /// Whether it is an array of numbers on no mesh, where no trace would record what is done with it.
    fn is_here(&self) -> bool {
        matches!(self.repr(), Repr::Concrete(c) if c.sharding.is_none()) && innermost().is_none()
    }
    /// The same memory, read with another shape.
    fn relabelled(&self, shape: Shape, call: Call<'_>) -> Array {
        let Repr::Concrete(c) = self.repr() else { return self.clone() };
        let same = c.slab(call.op, call.place).and_then(|slab| {
            let same = slab.reshaped(slab.dtype(), shape.clone(), 1);
            same.map_err(|fault| Error::at(fault, call.op, vec![c.ty.to_string()], Some(call.place)))
        });
        match same {
            Ok(same) => Array::concrete(same, c.ty.dtype.of(shape), None),
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
        self.reshape_at([n].into(), None, Call::here("ravel"))
    }
    /// Dimensions in another order: dimension k of the result is dimension `perm[k]`; `..` reverses them.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::zeros([2, 3, 4]).transpose([2, 0, 1]).shape()?, [4, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("moveaxis", "swapaxes", "permute_dims"))]
    #[track_caller]
    pub fn transpose(&self, perm: impl Into<Dims>) -> Array {
        self.transpose_at(perm.into(), Call::here("transpose"))
    }
    fn transpose_at(&self, dims: Dims, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
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
                    return self.refuse(Fault { help: vec![help], ..fault }, call);
                }
            }
        };
        apply1(prims::transpose(&perm), &[self.into()], call)
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
        self.transpose_at((..).into(), Call::here("t"))
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
        let (shape, call) = (shape.into(), Call::here("broadcast_to"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.rank() > shape.rank() {
            let fault = Fault::new(
                ErrorKind::Shape,
                format!("an array of rank {} does not broadcast to {shape}", ty.rank()),
            )
            .help("new dimensions come in front, none is dropped: reduce or `squeeze` first");
            return self.refuse(fault, call);
        }
        self.spread(&shape, None, call)
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
        let (shape, call) = (shape.into(), Call::here("broadcast_as"));
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
                let fault = Fault::new(ErrorKind::Sharding, message).mark(0, Spot::Sets);
                return self.refuse(fault.help(format!("reshard it first: `.reshard({before})`")), call);
            }
        }
        let wide = apply1(prims::broadcast(&shape, &dims, Some(out)), &[self.into()], call);
        let differs = |d: &usize| !ty.spec.dim(*d).is_empty() && ty.spec.dim(*d) != out.dim(first + d);
        match (0..ty.rank()).find(differs).filter(|_| wide.type_ref().is_ok()) {
            Some(d) => {
                let (from, to) = (Axes::from(ty.spec.dim(d)), Axes::from(out.dim(first + d)));
                let to = if to.is_empty() { "unsharded".into() } else { format!("sharded over {to}") };
                let fault = Fault::new(
                    ErrorKind::Sharding,
                    format!("dimension {d} is sharded over {from}, and asked to be {to} in the result"),
                );
                let entry = |d: usize| match ty.shape[d] == shape[first + d] {
                    _ if !differs(&d) => Axes::from(ty.spec.dim(d)),
                    true => Axes::from(out.dim(first + d)),
                    false => Axes::none(),
                };
                let before = ty.spec.with_dims((0..ty.rank()).map(entry).collect());
                self.refuse(fault.help(format!("reshard it first: `.reshard({before})`")).dim(0, d), call)
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
        apply1(prim, &[self.into()], Call::here("broadcast_in_dim"))
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
        apply1(prim, &[self.into()], Call::here("broadcast_in_dim_to"))
    }
    /// New dimensions of size 1 at these places of the result.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::zeros([4, 2]).expand_dims([0, -1]);
    /// assert_eq!((x.shape()?.to_vec(), x.squeeze(0).shape()?.to_vec()), (vec![1, 4, 2, 1], vec![4, 2, 1]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("unsqueeze", "newaxis"))]
    #[track_caller]
    pub fn expand_dims(&self, dims: impl Into<Dims>) -> Array {
        let (dims, call) = (dims.into(), Call::here("expand_dims"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dims.resolve_new(ty.rank()) {
            Ok(at) => self.new_dims(&at, call),
            Err(mut fault) => {
                fault.marks.clear();
                self.refuse(fault.help("new dimensions are counted in the result"), call)
            }
        }
    }
    /// New dimensions of size 1 at these places of the result, in ascending order.
    pub(crate) fn new_dims(&self, at: &[usize], call: Call<'_>) -> Array {
        apply1(prims::expand_dims(at), &[self.into()], call)
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
        let (dims, call) = (dims.into(), Call::here("squeeze"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if dims == Dims::from(..) {
            let ones: Vec<usize> = (0..ty.rank()).filter(|d| ty.shape[*d] == 1).collect();
            return self.without(&ones, call);
        }
        match dims.resolve(ty.rank()) {
            Ok(at) => self.without(&at, call),
            Err(fault) => self.refuse(fault, call),
        }
    }
    /// Without these dimensions of size 1.
    pub(crate) fn without(&self, dims: &[usize], call: Call<'_>) -> Array {
        if dims.is_empty() {
            return self.clone();
        }
        apply1(prims::squeeze(dims), &[self.into()], call)
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
        let (dims, call) = (dims.into(), Call::here("flip"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match dims.resolve(ty.rank()) {
            Ok(at) => apply1(prims::rev(&at), &[self.into()], call),
            Err(fault) => self.refuse(fault, call),
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
        let call = Call::here("pad");
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
            return self.refuse(fault, call);
        }
        self.pad_at(value.term(), &widths, call)
    }
    /// `value` around: as many widths as dimensions.
    pub(super) fn pad_at(&self, value: Term, widths: &[(i64, i64, usize)], call: Call<'_>) -> Array {
        let args = match operand::args(&[self.into(), value], call) {
            Ok(args) => args,
            Err(refused) => return refused,
        };
        match &args[1] {
            Arg::Lit(l) => apply1(prims::pad(widths, l.value), &args[..1], call),
            Arg::Array(value) => {
                if let Ok(v) = value.type_ref()
                    && v.rank() != 0
                {
                    let fault = Fault::new(ErrorKind::Shape, "what is put around must be one number")
                        .help("to put an array there: `concat`");
                    return operand::refuse(fault, &[self.into(), value.into()], call);
                }
                let padded = apply1(prims::pad(widths, self.zero()), &args[..1], call);
                let inside = apply1(prims::pad(widths, false.into()), &[self.trues(call).into()], call);
                inside.select_at(padded.term(), value.term(), call)
            }
        }
    }
    /// `true` everywhere, of this array's shape, sharded as it is.
    pub(super) fn trues(&self, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let ty = ArrayType { dtype: DType::Bool, ..super::creation::plain(ty) };
        apply1(prims::full(ty, true.into()), &[], call)
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
        let (reps, call) = (reps.as_ref(), Call::here("tile"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let rank = reps.len().max(ty.rank());
        let lead: Vec<usize> = (0..rank - ty.rank()).collect();
        let repeated = |d: usize| (d + reps.len()).checked_sub(ty.rank()).is_some_and(|k| reps[k] != 1);
        if let Some(d) = (0..ty.rank()).find(|d| repeated(*d) && !ty.spec.dim(*d).is_empty()) {
            return self.refuse(refusals::is_split(ty, d, " and cannot be repeated"), call);
        }
        let mut x = if lead.is_empty() { self.clone() } else { self.new_dims(&lead, call) };
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
        self.triangle(true, k, Call::here("tril"))
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
        let call = Call::here("tril_to");
        self.reshard_at(out, call).triangle(true, k, call)
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
        self.triangle(false, k, Call::here("triu"))
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
        let call = Call::here("triu_to");
        self.reshard_at(out, call).triangle(false, k, call)
    }
    /// Zeros above (`lower`) or below the k-th diagonal.
    fn triangle(&self, lower: bool, k: i64, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.rank() < 2 {
            let fault =
                Fault::new(ErrorKind::Shape, format!("an array of rank {} has no diagonal", ty.rank()))
                    .help("it takes (stacks of) matrices: `.reshape([n, m])`");
            return self.refuse(fault, call);
        }
        let of = ArrayType { dtype: DType::I32, ..super::creation::plain(ty) };
        let first = ty.rank() - 2;
        let index = |d| apply1(prims::iota(of.clone(), first + d), &[], call);
        let on = index(1).with(Binary::Sub, diagonal(k, &ty.shape[first..]), call);
        let mask = index(0).with(if lower { Binary::Ge } else { Binary::Le }, on, call);
        mask.select_at(self.term(), self.zero_beside(call), call)
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
        sorted::sort(&mut at);
        Ok(at)
    }
}
