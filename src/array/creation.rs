//! Arrays from nothing: zeros, ones, ranges, the identity.

use super::operand::{self, Operand, Term};
use super::sharding::placed;
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault, Spot};
use crate::mesh::{Axes, AxisType};
use crate::ops::collective::Cast;
use crate::ops::elementwise::Binary;
use crate::program::{Call, Literal};
use crate::runtime::{Slab, fits, listed};
use crate::sharding::{Sharding, Spec, check_divides, check_spec};
use crate::trace::{Arg, apply1, innermost, poison};
use crate::types::{ArrayType, DType, Element, Number, Scalar, Shape, with_dtype};
use std::ops::Range;

/// How a new array is to be sharded, checked: `None` on no mesh.
fn asked(ty: &ArrayType) -> Result<Option<Sharding>, Fault> {
    asked_for(ty, innermost().is_none())
}

/// The same; `now` says whether its numbers are made at once, not recorded.
fn asked_for(ty: &ArrayType, now: bool) -> Result<Option<Sharding>, Fault> {
    ty.addressable()?;
    if now {
        if let Some(mesh) = ty.mesh.as_ref().filter(|m| m.is_abstract()) {
            return Err(super::sharding::no_devices(mesh));
        }
        fits(ty.nbytes())?;
    }
    match &ty.mesh {
        Some(mesh) => Sharding::checked(mesh, ty.spec, &ty.shape).map(Some),
        None if ty.spec.is_whole() => Ok(None),
        None => Err(Fault::new(ErrorKind::Mesh, format!("{} names axes, but no mesh", ty.spec))
            .help("`F32.of([8, 2]).on(&mesh, p![..])`")),
    }
}

/// The type of a new value like one of this type: it varies over nothing, and its sets are empty.
pub(crate) fn plain(ty: &ArrayType) -> ArrayType {
    let spec = Spec::of(ty.spec.dims().to_vec());
    ArrayType { spec, varying: Axes::none(), ..ty.clone() }
}

/// The type asked for as far as types say it: over explicit axes.
fn explicit(ty: &ArrayType) -> ArrayType {
    let Some(mesh) = &ty.mesh else { return ty.clone() };
    let spec = ty.spec.padded(ty.rank()).only(|a| mesh.axis_type(a) == Some(AxisType::Explicit));
    ArrayType { spec, ..ty.clone() }
}

/// What `make` makes of a type over explicit axes, then moved where the type asks over auto axes.
pub(crate) fn made(ty: ArrayType, call: Call<'_>, make: impl FnOnce(ArrayType) -> Array) -> Array {
    match asked(&ty) {
        Ok(sharding) => make(explicit(&ty)).on(sharding, call),
        Err(fault) => refuse(fault, &ty, call),
    }
}

/// An array of which each element is the same number.
fn constant(dtype: DType, shape: &Shape, value: Scalar) -> Result<Slab, Fault> {
    with_dtype!(dtype, T => Slab::filled(shape.clone(), T::of_scalar(value)))
}

/// # Creating
impl Array {
    /// Zeros of a type: a bare shape is float32. `Array::zeros(I32.of([4, 2]).on(&mesh, p!["X", _]))`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(type_of(&Array::zeros([4, 2])), "float32[4,2]");
    /// assert_eq!(type_of(&Array::zeros(I32.of([4, 2]))), "int32[4,2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros(ty: impl Into<ArrayType>) -> Array {
        let ty = ty.into();
        let zero = Scalar::zero(ty.dtype);
        Array::full_at(ty, Term::Number(zero), Call::here("zeros"))
    }
    /// Ones of a type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// assert_eq!(type_of(Array::ones(I32.of([4, 2]).on(&mesh, p!["X", _]))), "int32[4@X,2]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn ones(ty: impl Into<ArrayType>) -> Array {
        let ty = ty.into();
        let one = Scalar::one(ty.dtype);
        Array::full_at(ty, Term::Number(one), Call::here("ones"))
    }
    /// The same number everywhere.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::full(I32.of([3]), 7).to_vec::<i32>()?, [7, 7, 7]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn full(ty: impl Into<ArrayType>, value: impl Operand) -> Array {
        Array::full_at(ty.into(), value.term(), Call::here("full"))
    }
    fn full_at(ty: ArrayType, value: Term, call: Call<'_>) -> Array {
        let sharding = match asked(&ty) {
            Ok(sharding) => sharding,
            Err(fault) => return refuse(fault, &ty, call),
        };
        let value = match (value.arg(ty.dtype), &value) {
            (Ok(arg), _) => arg,
            (Err(fault), _) => return operand::refuse(fault, &[value], call),
        };
        match (&value, innermost().is_none()) {
            (Arg::Lit(Literal { value, .. }), true) => match constant(ty.dtype, &ty.shape, *value) {
                Ok(slab) => at_once(slab, ty.dtype, &ty.shape, sharding, call),
                Err(fault) => poison(call.error(fault, Vec::new)),
            },
            (Arg::Lit(l), false) => apply1(prims::full(explicit(&ty), l.value), &[], call).on(sharding, call),
            (Arg::Array(x), _) => {
                let wide = x.spread(&ty.shape, None, call);
                match sharding {
                    Some(s) => wide.put_at(&s.mesh, s.spec, call),
                    None => wide,
                }
            }
        }
    }
    /// Moved where explicit types do not say: over auto axes.
    fn on(self, sharding: Option<Sharding>, call: Call<'_>) -> Array {
        match sharding {
            Some(s) if s.explicit() != s.spec => self.put_at(&s.mesh, s.spec, call),
            _ => self,
        }
    }
    /// 0, 1, … along dimension `d`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::iota(I32.of([2, 3]), 1).to_vec::<i32>()?, [0, 1, 2, 0, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn iota(ty: impl Into<ArrayType>, d: usize) -> Array {
        Array::iota_at(ty.into(), d, Call::here("iota"))
    }
    pub(super) fn iota_at(ty: ArrayType, d: usize, call: Call<'_>) -> Array {
        let sharding = match asked(&ty).and_then(|s| super::dims::dim(d as i64, ty.rank()).map(|_| s)) {
            Ok(sharding) => sharding,
            Err(fault) => return refuse(fault, &ty, call),
        };
        apply1(prims::iota(explicit(&ty), d), &[], call).on(sharding, call)
    }
    /// The whole numbers of a range, of its element type: `Array::arange(0..8)` is int32, `arange(0.0..8.0f32)` float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(2..5).to_vec::<i32>()?, [2, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn arange<T: Countable>(range: Range<T>) -> Array {
        let (n, call) = (T::count(&range), Call::here("arange"));
        let ty = T::DTYPE.of([n]);
        match asked_for(&ty, true) {
            Ok(_) => Array::from((0..n).map(|i| T::nth(&range, i)).collect::<Vec<T>>()),
            Err(fault) => refuse(fault, &ty, call),
        }
    }
    /// `start`, `start + step`, … of a type of rank 1, which says how many, of which element type and how they are sharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange_of(I32.of([4]).on(&mesh, p!["X"]), 3, -2);
    /// assert_eq!((type_of(&x).to_string(), x.to_vec::<i32>()?), ("int32[4@X]".into(), vec![3, 1, -1, -3]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn arange_of(ty: impl Into<ArrayType>, start: impl Operand, step: impl Operand) -> Array {
        let (ty, call) = (ty.into(), Call::here("arange_of"));
        match row(&ty, call) {
            Ok(()) => {
                let steps = Array::iota_at(ty, 0, call).with(Binary::Mul, step, call);
                steps.with(Binary::Add, start, call)
            }
            Err(refused) => refused,
        }
    }
    /// 1 on the k-th diagonal, 0 elsewhere; the sizes of the type are rows and columns.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::eye(I32.of([2, 3]), 1).to_vec::<i32>()?, [0, 1, 0, 0, 0, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn eye(ty: impl Into<ArrayType>, k: i64) -> Array {
        Array::by_diagonal(ty.into(), k, Binary::Eq, Call::here("eye"))
    }
    /// `num` numbers from `start` to `stop` at equal distances, float32; with `endpoint` the last one is `stop`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::linspace(0.0, 1.0, 5, true).to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace(start: f64, stop: f64, num: usize, endpoint: bool) -> Array {
        Array::linspace_at([num].into(), start, stop, endpoint, Call::here("linspace"))
    }
    /// [`Array::linspace`] of a type of rank 1, which says how many numbers, of which element type and how they are sharded. Whole numbers are
    /// rounded down.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::linspace_of(F64.of([4]).on(&mesh, p!["X"]), 0.0, 1.0, false);
    /// assert_eq!((type_of(&x).to_string(), x.to_vec::<f64>()?), ("float64[4@X]".into(), vec![0.0, 0.25, 0.5, 0.75]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace_of(ty: impl Into<ArrayType>, start: f64, stop: f64, endpoint: bool) -> Array {
        Array::linspace_at(ty.into(), start, stop, endpoint, Call::here("linspace_of"))
    }
    fn linspace_at(ty: ArrayType, start: f64, stop: f64, endpoint: bool, call: Call<'_>) -> Array {
        if let Err(refused) = row(&ty, call) {
            return refused;
        }
        let sharding = match asked_for(&ty, true) {
            Ok(sharding) => sharding,
            Err(fault) => return refuse(fault, &ty, call),
        };
        let num = ty.shape[0];
        let steps = if endpoint { num.saturating_sub(1) } else { num };
        let at = |i: usize| {
            let t = if steps == 0 { 0.0 } else { i as f64 / steps as f64 };
            let x = start * (1.0 - t) + stop * t;
            Scalar::Float(if ty.dtype.is_inexact() { x } else { x.floor() })
        };
        let slab = with_dtype!(ty.dtype, T => {
            let numbers = listed((0..num).map(|i| T::of_scalar(at(i))), num);
            numbers.and_then(|numbers| Slab::from_elements(ty.shape.clone(), &numbers))
        });
        match slab {
            Ok(slab) => at_once(slab, ty.dtype, &ty.shape, sharding, call),
            Err(fault) => refuse(fault, &ty, call),
        }
    }
    /// Zeros of this array's type, sharded as it is; unreduced and reduced as it is.
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
        self.full_like_at(self.zero().term(), Call::here("zeros_like"))
    }
    /// Ones of this array's type, sharded as it is.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([2.5, 3.5]).ones_like().to_vec::<f64>()?, [1.0, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn ones_like(&self) -> Array {
        let one = Scalar::one(self.type_ref().map_or(DType::F32, |t| t.dtype));
        self.full_like_at(one.term(), Call::here("ones_like"))
    }
    /// The same number everywhere, of this array's type, sharded as it is.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..4).put(&mesh, p!["X"]);
    /// assert_eq!(type_of(x.full_like(7)), "int32[4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn full_like(&self, value: impl Operand) -> Array {
        self.full_like_at(value.term(), Call::here("full_like"))
    }
    pub(super) fn full_like_at(&self, value: Term, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        // only zeros are parts of themselves
        let zero = matches!(value, Term::Number(x) if x.is_zero());
        let asked = if zero { ArrayType { spec: ty.spec, ..plain(ty) } } else { plain(ty) };
        match self.placed() {
            Some(s) => {
                let spec = if zero { s.spec } else { Spec::of(s.spec.dims().to_vec()) };
                Array::full_at(ArrayType { spec, ..asked }, value, call)
            }
            None if innermost().is_none() => Array::full_at(asked, value, call),
            // in a trace the type says all, also of manual axes
            None => match value.arg(ty.dtype) {
                Ok(Arg::Lit(l)) => {
                    let new = apply1(prims::full(asked, l.value), &[], call);
                    if ty.varying.is_empty() { new } else { new.cast_at(&ty.varying, Cast::Varying, call) }
                }
                Ok(Arg::Array(x)) => x.spread(&ty.shape, None, call),
                Err(fault) => self.refuse(fault, call),
            },
        }
    }
    /// [`Array::full_like`], sharded as `out` says.
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
        let call = Call::here("full_like_to");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let mesh = match self.mesh_of(out, ty.rank()) {
            Ok(mesh) => mesh,
            Err(fault) => return self.refuse(fault, call),
        };
        let new = Array::full_at(ArrayType { mesh, spec: out, ..plain(ty) }, value.term(), call);
        if ty.varying.is_empty() { new } else { new.cast_at(&ty.varying, Cast::Varying, call) }
    }
    /// A new last dimension: 1 at the place that the element says, 0 elsewhere, float32. Numbers out of range make zeros.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1, 5]).one_hot(3);
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn one_hot(&self, classes: usize) -> Array {
        self.one_hot_at(classes, None, Call::here("one_hot"))
    }
    /// [`Array::one_hot`], sharded as `out` says. To split the new dimension moves nothing.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    /// let x = Array::from([1, 5]).put(&mesh, p!["X"]);
    /// assert_eq!(type_of(x.one_hot(4)), "float32[2@X,4]");
    /// assert_eq!(type_of(x.one_hot_to(4, p!["X", "Y"])), "float32[2@X,4@Y]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn one_hot_to(&self, classes: usize, out: Spec) -> Array {
        self.one_hot_at(classes, Some(out), Call::here("one_hot_to"))
    }
    fn one_hot_at(&self, classes: usize, out: Option<Spec>, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let (rank, dtype) = (ty.rank(), ty.dtype);
        let (unreduced, reduced) = (ty.spec.unreduced_axes(), ty.spec.reduced_axes());
        if !unreduced.is_empty() {
            let message =
                format!("it is unreduced over {unreduced}: only its sums have a place among the classes");
            let summed = ty.spec.padded(rank).unreduced(Axes::none());
            let fault = Fault::new(ErrorKind::Sharding, message).mark(0, Spot::Sets);
            return self.refuse(fault.help(format!("sum it first: `.reshard({summed})`")), call);
        }
        let mut shape = ty.shape.to_vec();
        shape.push(classes);
        let mut of = dtype.of(std::iter::repeat_n(1, rank).chain([classes]).collect::<Vec<_>>());
        let mut x = self.clone();
        if let Some(out) = out {
            let checked = self.mesh_of(out, rank + 1).and_then(|mesh| {
                let Some(mesh) = &mesh else { return Ok(()) };
                check_spec(mesh, out, rank + 1, &[AxisType::Explicit])?;
                check_divides(mesh, out, &shape)
            });
            if let Err(fault) = checked {
                return self.refuse(fault, call);
            }
            // the operand as the result's other dimensions, the classes as its last one
            let (lead, last) = out.dims().split_at(rank.min(out.dims().len()));
            x = self.reshard_at(Spec::of(lead.to_vec()), call);
            let dims = vec![Axes::none(); rank].into_iter().chain(last.iter().cloned()).collect();
            of = ArrayType {
                mesh: x.type_ref().ok().and_then(|t| t.mesh.clone()),
                spec: Spec::of(dims),
                ..of
            };
        } else if !reduced.is_empty() {
            of = ArrayType { mesh: ty.mesh.clone(), spec: Spec::whole(rank + 1).reduced(reduced), ..of };
        }
        let index = made(of, call, |of| apply1(prims::iota(of, rank), &[], call));
        let hot = x.new_dims(&[rank], call).with(Binary::Eq, &index, call).astype_at(DType::F32, call);
        match out {
            Some(out) if hot.type_ref().is_ok_and(|t| t.spec != out.padded(rank + 1)) => {
                hot.reshard_at(out, call)
            }
            _ => hot,
        }
    }
}

/// Refuses a type that is not of rank 1.
fn row(ty: &ArrayType, call: Call<'_>) -> Result<(), Array> {
    if ty.rank() == 1 {
        return Ok(());
    }
    let fault = Fault::new(
        ErrorKind::Shape,
        format!("`{}` makes arrays of rank 1, not of rank {}", call.op, ty.rank()),
    )
    .help("reshape it: `.reshape([…])`");
    Err(refuse(fault, ty, call))
}

/// The array that carries the refusal of a type.
pub(super) fn refuse(fault: Fault, ty: &ArrayType, call: Call<'_>) -> Array {
    poison(call.error(fault, || vec![ty.to_string()]))
}

/// An array of numbers with this sharding.
fn at_once(slab: Slab, dtype: DType, shape: &Shape, sharding: Option<Sharding>, call: Call<'_>) -> Array {
    match sharding {
        None => Array::concrete(slab, dtype.of(shape), None),
        Some(s) if s.spec.unreduced_axes().is_empty() => {
            let ty = placed(dtype, shape, &s);
            Array::concrete(slab, ty, Some(s))
        }
        Some(s) => Array::concrete(slab, dtype.of(shape), None).put_at(&s.mesh, s.spec, call),
    }
}

/// Element types that ranges count in.
pub trait Countable: Element {
    /// How many numbers the range has; where they are more than can be counted, the greatest number.
    fn count(range: &Range<Self>) -> usize;
    /// Its `i`-th number.
    fn nth(range: &Range<Self>, i: usize) -> Self;
}
macro_rules! countable { ($($t:ty)*) => {$(
    impl Countable for $t {
        fn count(range: &Range<$t>) -> usize {
            let n = i128::from(range.end) - i128::from(range.start);
            usize::try_from(n.max(0)).unwrap_or(usize::MAX)
        }
        fn nth(range: &Range<$t>, i: usize) -> $t {
            // of the range, so of the type; a step of i may not be
            range.start.wrapping_add(i as $t)
        }
    }
)*} }
countable!(i8 i16 i32 i64 u8 u16 u32 u64);
macro_rules! floats { ($($t:ty)*) => {$(
    impl Countable for $t {
        fn count(range: &Range<$t>) -> usize {
            // of NaN none; beyond what is counted the greatest number
            (range.end - range.start).ceil() as usize
        }
        fn nth(range: &Range<$t>, i: usize) -> $t {
            range.start + i as $t
        }
    }
)*} }
floats!(f32 f64);
