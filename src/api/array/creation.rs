//! Creates arrays: constants, ranges, identity matrices and one-hot encodings.
//!
//! Creation functions take a type, `F32.array_type([4, 2]).on(&mesh, p!["X", _])`, or a bare shape,
//! which means float32 on no mesh. Outside of a trace the data is created eagerly; inside, a
//! primitive is recorded.

use super::operand::{self, Operand, Term};
use super::{Array, prims, sharding::placed_type};
use crate::api::trace::{ArrayOrLiteral, apply1, build, innermost, poison};
use crate::core::sharding::{check_divides, check_spec};
use crate::core::{
    ArrayType, Axes, AxisType, DType, Element, ErrorKind, Fault, Scalar, ScalarElement, Shape, Sharding,
    Spec, TypePart, types::with_dtype,
};
use crate::exec::runtime::{ArrayData, check_available, process_devices};
use crate::ir::program::{CallSite, Literal, Prim};
use crate::ir::{ops::collective::PcastTo, ops::elementwise::Binary};
use std::ops::Range;

/// Checks the requested type and returns its sharding; `None` if it is on no mesh.
fn requested_sharding(ty: &ArrayType) -> Result<Option<Sharding>, Fault> {
    check_requested_sharding(ty, innermost().is_none())
}

/// Checks the requested type and returns its sharding.
///
/// `now` is true if the data is created eagerly: then the mesh must have devices, and the data must
/// fit into memory.
pub(super) fn check_requested_sharding(ty: &ArrayType, now: bool) -> Result<Option<Sharding>, Fault> {
    ty.check_addressable()?;
    if now {
        if let Some(mesh) = ty.mesh.as_ref().filter(|m| m.is_abstract()) {
            return Err(super::sharding::abstract_mesh_error(mesh));
        }
        check_available(ty.nbytes())?;
    }
    match &ty.mesh {
        Some(mesh) => Sharding::try_new(mesh, ty.spec, &ty.shape).map(Some),
        None if ty.spec.is_replicated() => Ok(None),
        None => Err(fault!(Mesh, "{} names axes, but no mesh", ty.spec)
            .help("`F32.array_type([8, 2]).on(&mesh, p![..])`")),
    }
}

/// Returns `ty` without varying, unreduced and reduced axes: the type of a constant like it.
pub(crate) fn fresh_type(ty: &ArrayType) -> ArrayType {
    let spec = Spec::from_dims(ty.spec.dims().to_vec());
    ArrayType { spec, varying: Axes::none(), ..ty.clone() }
}

/// Returns `ty` with its spec restricted to explicit axes, which is all that types express.
fn explicit_type(ty: &ArrayType) -> ArrayType {
    let Some(mesh) = &ty.mesh else { return ty.clone() };
    let spec = ty.spec.padded(ty.rank()).filter_axes(|a| mesh.axis_type(a) == Some(AxisType::Explicit));
    ArrayType { spec, ..ty.clone() }
}

/// Creates an array with `make` from the explicit part of `ty`, then reshards it over auto axes.
///
/// Returns an array that carries the error if the type is invalid.
pub(crate) fn create_sharded(
    ty: ArrayType,
    call: CallSite<'_>,
    make: impl FnOnce(ArrayType) -> Array,
) -> Array {
    let sharding = ok_or_return!(requested_sharding(&ty), |fault| reject_type(fault, &ty, call));
    make(explicit_type(&ty)).put_auto_axes(sharding, call)
}

/// Applies a primitive that creates an array of the explicit part of `ty`, sharded over auto axes.
///
/// Eagerly this is one program, so that no device holds more than its block.
fn create_on_devices(
    ty: &ArrayType,
    sharding: Option<Sharding>,
    call: CallSite<'_>,
    prim: impl FnOnce(ArrayType) -> Prim,
) -> Array {
    let prim = prim(explicit_type(&fresh_type(ty)));
    match sharding.filter(|s| s.explicit() != s.spec || !s.spec.unreduced_axes().is_empty()) {
        Some(s) => {
            let made = build(&[], call, |b, _| {
                let made = b.apply_for(&prim, &[], call)?;
                b.apply_for(&prims::reshard(&s.mesh, s.spec), &made, call)
            });
            made.map_or_else(poison, |mut made| made.swap_remove(0))
        }
        None => apply1(prim, &[], call),
    }
}

/// Returns the data of an array whose elements all equal `value`.
fn constant(dtype: DType, shape: &Shape, value: Scalar) -> Result<ArrayData, Fault> {
    with_dtype!(dtype, T => ArrayData::filled(shape.clone(), T::from_scalar(value)))
}

/// # Creating
impl Array {
    /// Returns an array of zeros, such as `Array::zeros(I32.array_type([4, 2]))`.
    ///
    /// A bare shape means float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(type_of(&Array::zeros([4, 2])), "float32[4,2]");
    /// assert_eq!(type_of(&Array::zeros(I32.array_type([4, 2]))), "int32[4,2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros(ty: impl Into<ArrayType>) -> Array {
        let ty = ty.into();
        let zero = Scalar::zero(ty.dtype);
        Array::full_at(ty, Term::Number(zero), CallSite::here("zeros"))
    }
    /// Returns an array of ones.
    ///
    /// A bare shape means float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// assert_eq!(type_of(Array::ones(I32.array_type([4, 2]).on(&mesh, p!["X", _]))),
    ///     "int32[4@X,2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn ones(ty: impl Into<ArrayType>) -> Array {
        let ty = ty.into();
        let one = Scalar::one(ty.dtype);
        Array::full_at(ty, Term::Number(one), CallSite::here("ones"))
    }
    /// Returns an array whose elements all equal `value`, a number or an array that broadcasts.
    ///
    /// A bare shape means float32. An array of another element type is converted.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::full(I32.array_type([3]), 7).to_vec::<i32>()?, [7, 7, 7]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn full(ty: impl Into<ArrayType>, value: impl Operand) -> Array {
        Array::full_at(ty.into(), value.term(), CallSite::here("full"))
    }
    /// Implements [`Array::full`].
    fn full_at(ty: ArrayType, value: Term, call: CallSite<'_>) -> Array {
        let sharding = ok_or_return!(requested_sharding(&ty), |fault| reject_type(fault, &ty, call));
        let value = match (value.arg(ty.dtype), &value) {
            (Ok(arg), _) => arg,
            (Err(fault), _) => return operand::reject(fault, &[value], call),
        };
        match (&value, innermost().is_none()) {
            (ArrayOrLiteral::Lit(l), true) if ty.mesh.is_some() && process_devices().is_some() => {
                create_on_devices(&ty, sharding, call, |ty| prims::full(ty, l.value))
            }
            (ArrayOrLiteral::Lit(Literal { value, .. }), true) => match constant(ty.dtype, &ty.shape, *value)
            {
                Ok(slab) => from_data(slab, ty.dtype, &ty.shape, sharding, call),
                Err(fault) => poison(call.error(fault, Vec::new)),
            },
            (ArrayOrLiteral::Lit(l), false) => {
                apply1(prims::full(explicit_type(&ty), l.value), &[], call).put_auto_axes(sharding, call)
            }
            (ArrayOrLiteral::Array(x), _) => {
                let wide = x.astype_at(ty.dtype, call).broadcast_like(&ty.shape, None, call);
                match sharding {
                    Some(s) => wide.put_at(&s.mesh, s.spec, call),
                    None => wide,
                }
            }
        }
    }
    /// Reshards over auto axes, if the requested sharding names axes that the type does not.
    fn put_auto_axes(self, sharding: Option<Sharding>, call: CallSite<'_>) -> Array {
        match sharding {
            Some(s) if s.explicit() != s.spec => self.put_at(&s.mesh, s.spec, call),
            _ => self,
        }
    }
    /// Returns the indices 0, 1, … along dimension `d`, constant along the other dimensions.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::iota(I32.array_type([2, 3]), 1).to_vec::<i32>()?, [0, 1, 2, 0, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn iota(ty: impl Into<ArrayType>, d: usize) -> Array {
        Array::iota_at(ty.into(), d, CallSite::here("iota"))
    }
    /// Implements [`Array::iota`].
    pub(super) fn iota_at(ty: ArrayType, d: usize, call: CallSite<'_>) -> Array {
        let sharding = ok_or_return!(
            requested_sharding(&ty).and_then(|s| super::dims::resolve_dim(d as i64, ty.rank()).map(|_| s)),
            |fault| reject_type(fault, &ty, call)
        );
        match process_devices() {
            Some(_) if innermost().is_none() && ty.mesh.is_some() => {
                create_on_devices(&ty, sharding, call, |ty| prims::iota(ty, d))
            }
            _ => apply1(prims::iota(explicit_type(&ty), d), &[], call).put_auto_axes(sharding, call),
        }
    }
    /// Returns the values of a range, in steps of 1, as a vector of the range's element type.
    ///
    /// `Array::arange(0..8)` is int32, `Array::arange(0.0..8.0f32)` is float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(2..5).to_vec::<i32>()?, [2, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn arange<T: Countable>(range: Range<T>) -> Array {
        let (n, call) = (T::count(&range), CallSite::here("arange"));
        let ty = T::DTYPE.array_type([n]);
        ok_or_return!(check_requested_sharding(&ty, true), |fault| reject_type(fault, &ty, call));
        Array::from((0..n).map(|i| T::nth(&range, i)).collect::<Vec<T>>())
    }
    /// Returns `start`, `start + step`, … as a vector of the given type, which must have rank 1.
    ///
    /// The type determines the length, the element type and the sharding.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange_of(I32.array_type([4]).on(&mesh, p!["X"]), 3, -2);
    /// assert_eq!((type_of(&x).to_string(), x.to_vec::<i32>()?),
    ///     ("int32[4@X]".into(), vec![3, 1, -1, -3]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn arange_of(ty: impl Into<ArrayType>, start: impl Operand, step: impl Operand) -> Array {
        let (ty, call) = (ty.into(), CallSite::here("arange_of"));
        ok_or_return!(check_vector(&ty, call));
        let steps = Array::iota_at(ty, 0, call).binary_with(Binary::Mul, step, call);
        steps.binary_with(Binary::Add, start, call)
    }
    /// Returns a matrix with ones on the `k`-th diagonal and zeros elsewhere.
    ///
    /// The type must have rank 2. Positive `k` are diagonals above the main one.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::eye(I32.array_type([2, 3]), 1).to_vec::<i32>()?, [0, 1, 0, 0, 0, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn eye(ty: impl Into<ArrayType>, k: i64) -> Array {
        Array::compare_with_diagonal(ty.into(), k, Binary::Eq, CallSite::here("eye"))
    }
    /// Returns zeros of this array's type and sharding, including unreduced and reduced axes.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..4).put(&mesh, p!["X"]);
    /// assert_eq!(type_of(x.zeros_like()), "int32[4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros_like(&self) -> Array {
        self.full_like_at(self.zero().term(), CallSite::here("zeros_like"))
    }
    /// Returns ones of this array's type and sharding.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([2.5, 3.5]).ones_like().to_vec::<f64>()?, [1.0, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn ones_like(&self) -> Array {
        let one = Scalar::one(self.type_ref().map_or(DType::F32, |t| t.dtype));
        self.full_like_at(one.term(), CallSite::here("ones_like"))
    }
    forward! {
        /// Returns an array of this array's type and sharding whose elements all equal `value`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::arange(0..4).put(&mesh, p!["X"]);
        /// assert_eq!(type_of(x.full_like(7)), "int32[4@X]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn full_like(value: impl Operand) = full_like_at(value.term());
        /// Encodes integers as one-hot float32 vectors along a new last dimension of size
        /// `classes`.
        ///
        /// Integers outside of `0..classes` give vectors of zeros. An unreduced array is an error.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([1, 5]).one_hot(3);
        /// assert_eq!(x.to_vec::<f32>()?, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn one_hot(classes: usize) = one_hot_at(classes, None);
        /// Computes [`Array::one_hot`] with the result sharded as `out`.
        ///
        /// Sharding the new dimension moves no data.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
        /// let x = Array::from([1, 5]).put(&mesh, p!["X"]);
        /// assert_eq!(type_of(x.one_hot(4)), "float32[2@X,4]");
        /// assert_eq!(type_of(x.one_hot_to(4, p!["X", "Y"])), "float32[2@X,4@Y]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn one_hot_to(classes: usize, out: Spec) = one_hot_at(classes, Some(out));
    }
    /// Implements [`Array::full_like`].
    pub(super) fn full_like_at(&self, value: Term, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        // only zeros may stay unreduced: the sum of zeros is zero
        let zero = matches!(value, Term::Number(x) if x.is_zero());
        let asked = if zero { ArrayType { spec: ty.spec, ..fresh_type(ty) } } else { fresh_type(ty) };
        match self.concrete_sharding() {
            Some(s) => {
                let spec = if zero { s.spec } else { Spec::from_dims(s.spec.dims().to_vec()) };
                Array::full_at(ArrayType { spec, ..asked }, value, call)
            }
            None if innermost().is_none() => Array::full_at(asked, value, call),
            // in a trace the type is complete, including manual axes
            None => match value.arg(ty.dtype) {
                Ok(ArrayOrLiteral::Lit(l)) => {
                    let new = apply1(prims::full(asked, l.value), &[], call);
                    if ty.varying.is_empty() { new } else { new.cast_at(&ty.varying, PcastTo::Varying, call) }
                }
                Ok(ArrayOrLiteral::Array(x)) => {
                    let like = asked.mesh.clone().map(|mesh| (mesh, asked.spec));
                    let new =
                        x.broadcast_like(&ty.shape, like.filter(|l| !l.1.is_replicated()).as_ref(), call);
                    let own = new.type_ref().map_or_else(|_| Axes::none(), |ty| ty.varying.clone());
                    let missing: Axes = ty.varying.iter().filter(|a| !own.contains(*a)).collect();
                    if missing.is_empty() { new } else { new.cast_at(&missing, PcastTo::Varying, call) }
                }
                Err(fault) => self.reject(fault, call),
            },
        }
    }
    /// Computes [`Array::full_like`] with the result sharded as `out`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    /// let x = Array::ones([4, 2]).put(&mesh, p!["X", _]);
    /// assert_eq!(type_of(x.full_like_to(0, p![_, "Y"])), "float32[4,2@Y]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn full_like_to(&self, value: impl Operand, out: Spec) -> Array {
        let call = CallSite::here("full_like_to");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let mesh = ok_or_return!(self.mesh_for(out, ty.rank()), |fault| self.reject(fault, call));
        let of = match mesh {
            Some(mesh) => fresh_type(ty).on(&mesh, out),
            None => ArrayType { mesh: None, spec: out, ..fresh_type(ty) },
        };
        let new = Array::full_at(of, value.term(), call);
        if ty.varying.is_empty() { new } else { new.cast_at(&ty.varying, PcastTo::Varying, call) }
    }
    /// Implements [`Array::one_hot`].
    fn one_hot_at(&self, classes: usize, out: Option<Spec>, call: CallSite<'_>) -> Array {
        self.with_resolved_out(out, call, |out| self.one_hot_over(classes, out, call))
    }
    /// Encodes as one-hot vectors; the sharding of the result is given in mesh axes.
    fn one_hot_over(&self, classes: usize, out: Option<Spec>, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let (rank, dtype) = (ty.rank(), ty.dtype);
        let (unreduced, reduced) = (ty.spec.unreduced_axes(), ty.spec.reduced_axes());
        if !unreduced.is_empty() {
            let message = format!("it is unreduced over {unreduced}: only its sum can be one-hot encoded");
            let summed = ty.spec.padded(rank).unreduced(Axes::none());
            let fault = Fault::new(ErrorKind::Sharding, message).highlight(0, TypePart::Sets);
            return self.reject(fault.help(format!("sum it first: `.reshard({summed})`")), call);
        }
        let mut shape = ty.shape.to_vec();
        shape.push(classes);
        let mut of = dtype.array_type(std::iter::repeat_n(1, rank).chain([classes]).collect::<Vec<_>>());
        let mut x = self.clone();
        if let Some(out) = out {
            let checked = self.mesh_for(out, rank + 1).and_then(|mesh| {
                let Some(mesh) = &mesh else { return Ok(()) };
                check_spec(mesh, out, rank + 1, &[AxisType::Explicit])?;
                check_divides(mesh, out, &shape)
            });
            if let Err(fault) = checked {
                return self.reject(fault, call);
            }
            // reshard the operand to the leading entries of `out`; the last entry is for the class
            // dimension
            let (lead, last) = out.dims().split_at(rank.min(out.dims().len()));
            x = self.reshard_at(Spec::from_dims(lead.to_vec()), call);
            let dims = vec![Axes::none(); rank].into_iter().chain(last.iter().cloned()).collect();
            of = ArrayType {
                mesh: x.type_ref().ok().and_then(|t| t.mesh.clone()),
                spec: Spec::from_dims(dims),
                ..of
            };
        } else if !reduced.is_empty() {
            of = ArrayType { mesh: ty.mesh.clone(), spec: Spec::replicated(rank + 1).reduced(reduced), ..of };
        }
        let index = create_sharded(of, call, |of| apply1(prims::iota(of, rank), &[], call));
        let hot =
            x.expand_dims_at(&[rank], call).binary_with(Binary::Eq, &index, call).astype_at(DType::F32, call);
        match out {
            Some(out) if hot.type_ref().is_ok_and(|t| t.spec != out.padded(rank + 1)) => {
                hot.reshard_at(out, call)
            }
            _ => hot,
        }
    }
}

/// Checks that a type has rank 1; returns an array that carries the error otherwise.
pub(super) fn check_vector(ty: &ArrayType, call: CallSite<'_>) -> Result<(), Array> {
    if ty.rank() == 1 {
        return Ok(());
    }
    let fault = fault!(Shape, "`{}` makes arrays of rank 1, not of rank {}", call.op, ty.rank())
        .help("reshape it: `.reshape([…])`");
    Err(reject_type(fault, ty, call))
}

/// Returns an array that carries an error about the requested type.
pub(super) fn reject_type(fault: Fault, ty: &ArrayType, call: CallSite<'_>) -> Array {
    poison(call.error(fault, || vec![ty.to_string()]))
}

/// Wraps data as a concrete array with this sharding.
pub(super) fn from_data(
    slab: ArrayData,
    dtype: DType,
    shape: &Shape,
    sharding: Option<Sharding>,
    call: CallSite<'_>,
) -> Array {
    match sharding {
        None => Array::concrete(slab, dtype.array_type(shape), None),
        Some(s) if s.spec.unreduced_axes().is_empty() => {
            let ty = placed_type(dtype, shape, &s);
            Array::concrete(slab, ty, Some(s))
        }
        Some(s) => Array::concrete(slab, dtype.array_type(shape), None).put_at(&s.mesh, s.spec, call),
    }
}

/// An element type of the ranges that [`Array::arange`] takes.
pub trait Countable: Element {
    /// Returns the length of the range, saturating at `usize::MAX`.
    fn count(range: &Range<Self>) -> usize;
    /// Returns the `i`-th value of the range.
    fn nth(range: &Range<Self>, i: usize) -> Self;
}
macro_rules! countable { ($($t:ty)*) => {$(
    impl Countable for $t {
        fn count(range: &Range<$t>) -> usize {
            let n = i128::from(range.end) - i128::from(range.start);
            usize::try_from(n.max(0)).unwrap_or(usize::MAX)
        }
        fn nth(range: &Range<$t>, i: usize) -> $t {
            // wrapping is exact: the result is in the range, although `i` may not fit into the type
            range.start.wrapping_add(i as $t)
        }
    }
)*} }
countable!(i8 i16 i32 i64 u8 u16 u32 u64);
macro_rules! floats { ($($t:ty)*) => {$(
    impl Countable for $t {
        fn count(range: &Range<$t>) -> usize {
            // the cast gives 0 for NaN and saturates
            (range.end - range.start).ceil() as usize
        }
        fn nth(range: &Range<$t>, i: usize) -> $t {
            range.start + i as $t
        }
    }
)*} }
floats!(f32 f64);
