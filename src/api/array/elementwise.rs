//! Elementwise functions, comparisons, selection and type conversion.
//!
//! Operands broadcast as in NumPy. Operands that are Rust numbers are weakly typed: they take
//! the element type of the array they are combined with.

use super::operand::{self, Operand, Term};
use super::{Array, prims};
use crate::api::trace::{ArrayOrLiteral, apply1, apply1_ref};
use crate::core::{ArrayType, Axes, Axis, DType, Fault, Mesh, Scalar, Shape, Spec, TypePart};
use crate::ir::ops::elementwise::{Binary, Clamp, Unary, broadcast_shapes};
use crate::ir::program::{CallSite, UserOperand, typing::suggest::reshard_operands_help};
use std::sync::Arc;

impl Array {
    /// Applies an elementwise function of one operand.
    pub(crate) fn unary(&self, fun: Unary, call: CallSite<'_>) -> Array {
        apply1_ref(&fun, &[self.into()], call)
    }
    /// Applies an elementwise function of two operands; a scalar takes the array's element type.
    pub(crate) fn binary(fun: Binary, a: Term, b: Term, call: CallSite<'_>) -> Array {
        match operand::binary_args(a, b).or_else(|terms| operand::resolve_args(&terms, call)) {
            Ok(args) => apply1_ref(&fun, &args, call),
            Err(poisoned) => poisoned,
        }
    }
}

impl Array {
    /// Applies an elementwise function to this array and `b`.
    pub(crate) fn binary_with(&self, fun: Binary, b: impl Operand, call: CallSite<'_>) -> Array {
        Array::binary(fun, self.term(), b.term(), call)
    }
}

macro_rules! unary { ($head:literal; $($(#[$doc:meta])* $name:ident $fun:ident;)*) => {
    #[doc = $head]
    ///
    /// The result has the shape and sharding of the array, and its element type unless noted.
    impl Array { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self) -> Array {
            self.unary(Unary::$fun, CallSite::here(stringify!($name)))
        }
    )* }
} }
/// Defines the methods of the table of scalar functions.
macro_rules! scalar_methods {
    (
        []
        methods { $($(#[$doc:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* }
        $($rest:tt)*
    ) => { unary! { "# Elementwise functions of one operand"; $($(#[$doc])* $name $v;)* } };
}
crate::scalar_functions!(scalar_methods);
unary! {
    "# Further elementwise functions of one operand";
    /// Returns true for elements that are neither infinite nor NaN.
    is_finite IsFinite;
    /// Computes x².
    square Square;
    /// Computes the reciprocal, 1/x.
    reciprocal Reciprocal;
    /// Computes the rectified linear unit, max(x, 0), with derivative 0 at 0.
    relu Relu;
    /// Computes the SiLU (swish) activation, x · logistic(x).
    #[doc(alias = "swish")]
    silu Silu;
    /// Computes log(1 + eˣ).
    softplus Softplus;
    /// Returns the value unchanged, with derivative zero.
    stop_gradient StopGradient;
}

macro_rules! binary { ($($(#[$doc:meta])* $name:ident $fun:ident;)*) => {
    /// # Elementwise functions of two operands
    ///
    /// The operators `+ - * / % & | ^ << >>` are available too. `/` of integers truncates towards
    /// zero, and `%` has the sign of the left operand, as in Rust; NumPy's `//` and `%` are
    /// [`floor_divide`](Array::floor_divide) and [`remainder`](Array::remainder).
    ///
    /// Shapes broadcast as in NumPy. A dimension that both operands have must be sharded the same
    /// way in both, or be unsharded in one. Comparisons return booleans.
    impl Array { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, b: impl Operand) -> Array {
            Array::binary(Binary::$fun, self.term(), b.term(), CallSite::here(stringify!($name)))
        }
    )* }
} }
binary! {
    /// Returns the elementwise maximum; NaN if either operand is NaN. The maximum of 0 and −0 is 0.
    maximum Max;
    /// Returns the elementwise minimum; NaN if either operand is NaN. The minimum of 0 and −0 is
    /// −0.
    minimum Min;
    /// Raises this array to the power `b`.
    #[doc(alias = "power")]
    pow Pow;
    /// Computes the angle of the point (x, y) = (b, self), in radians from −π to π.
    atan2 Atan2;
    /// Returns the next representable value after this one in the direction of `b`.
    nextafter NextAfter;
    /// Computes √(self² + b²) without intermediate overflow; NaN if either operand is NaN.
    hypot Hypot;
    /// Computes self · ln b; 0 where self is 0.
    xlogy Xlogy;
    /// Returns true where the elements are equal.
    eq Eq;
    /// Returns true where the elements differ.
    ne Ne;
    /// Returns true where self < b.
    lt Lt;
    /// Returns true where self ≤ b.
    le Le;
    /// Returns true where self > b.
    gt Gt;
    /// Returns true where self ≥ b.
    ge Ge;
    /// Shifts bits to the left, filling with zeros.
    shift_left ShiftLeft;
    /// Shifts bits to the right, filling with zeros.
    shift_right_logical ShiftRightLogical;
    /// Shifts bits to the right, filling with the sign bit.
    shift_right_arithmetic ShiftRightArithmetic;
}

/// # Logical functions
///
/// Numbers are true if they are not 0. On booleans these are the operators `& | ^ !`.
impl Array {
    forward! {
        /// Returns true where both operands are true.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([1, 5, 9]);
        /// assert_eq!(x.gt(1).logical_and(x.lt(9)).to_vec::<bool>()?, [false, true, false]);
        /// assert_eq!((x.gt(1) & x.lt(9)).to_vec::<bool>()?, [false, true, false]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("and", "bitwise_and"))]
        pub fn logical_and(b: impl Operand) = logical(Binary::And, b.term());
        /// Returns true where at least one operand is true.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([1, 5, 9]);
        /// assert_eq!(x.lt(5).logical_or(x.gt(5)).to_vec::<bool>()?, [true, false, true]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("or", "bitwise_or"))]
        pub fn logical_or(b: impl Operand) = logical(Binary::Or, b.term());
        /// Returns true where exactly one operand is true.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([0, 1, 2]);
        /// assert_eq!(x.logical_xor(Array::from([0, 3, 0])).to_vec::<bool>()?, [false, false, true]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("xor", "bitwise_xor"))]
        pub fn logical_xor(b: impl Operand) = logical(Binary::Xor, b.term());
        /// Returns true where the operand is false.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([0, 1, 2]).logical_not().to_vec::<bool>()?, [true, false, false]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("not", "invert", "bitwise_not"))]
        pub fn logical_not() = logical_not_at();
    }
    /// Applies a bitwise function of two operands to their truth values.
    fn logical(&self, fun: Binary, b: Term, call: CallSite<'_>) -> Array {
        let b = match b {
            Term::Array(b) => Term::Array(b.astype_at(DType::Bool, call)),
            Term::Number(x) => Term::Number(Scalar::Bool(x.to_c128() != 0.0.into())),
        };
        self.astype_at(DType::Bool, call).binary_with(fun, b, call)
    }
    /// Implements [`Array::logical_not`].
    fn logical_not_at(&self, call: CallSite<'_>) -> Array {
        self.astype_at(DType::Bool, call).unary(Unary::Not, call)
    }
}

/// # Elementwise functions with parameters, conversion and selection
impl Array {
    forward! {
        /// Raises the array to a constant integer power.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert_eq!(Array::from([2.0f32, -4.0]).powi(-1).to_vec::<f32>()?, [0.5, -0.25]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn powi(y: i32) = unary(Unary::IntegerPow(y));
        /// Computes the GELU activation x · Φ(x), with the tanh approximation.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([-1.0f32, 0.0, 1.0]);
        /// assert!(x.gelu().allclose_with(&x.gelu_exact(), 0.0, 1e-3)?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn gelu() = unary(Unary::Gelu { approximate: true });
        /// Computes the GELU activation x · Φ(x) exactly, with the error function.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// assert!(Array::from(1.0).gelu_exact().allclose(&Array::from(0.8413447460685429))?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn gelu_exact() = unary(Unary::Gelu { approximate: false });
        /// Converts to another element type.
        ///
        /// Floats are truncated towards zero when converted to integers, integers wrap, and
        /// conversion to bool is `!= 0`. Real numbers convert to complex ones; the reverse is
        /// [`real`](Array::real).
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([-1.7f32, 0.0, 300.0]);
        /// assert_eq!(x.astype(I32).to_vec::<i32>()?, [-1, 0, 300]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("convert_element_type", "as_type", "cast", "to"))]
        pub fn astype(dtype: DType) = astype_at(dtype);
        /// Selects elementwise: `a` where this boolean array is true, `b` elsewhere.
        ///
        /// Operands of different shapes broadcast to their common shape, with the sharding that
        /// follows from the operands. Shardings that conflict are an error.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([-1, 2, -3]);
        /// assert_eq!(x.gt(0).select(&x, 0).to_vec::<i32>()?, [0, 2, 0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("where"))]
        pub fn select(a: impl Operand, b: impl Operand) = select_at(a.term(), b.term());
    }
    /// Clamps elements to the range from `low` to `high`.
    ///
    /// The bounds are scalars, or arrays of rank 0 or of this array's type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([-5, 1, 5]).clamp(0, 3).to_vec::<i32>()?, [0, 1, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "clip")]
    #[track_caller]
    pub fn clamp(&self, low: impl Operand, high: impl Operand) -> Array {
        let terms = [self.into(), low.term(), high.term()];
        let call = CallSite::here("clamp");
        // scalar bounds take the array's element type
        let mut args = ok_or_return!(operand::resolve_args(&terms, call));
        args.swap(0, 1);
        let sources = [1, 0, 2].map(|number| UserOperand { index: number, ty: None, dims: None });
        apply1(Arc::new(Clamp), &args, call.with_operands(&|| operand::describe_all(&terms), &sources))
    }
    /// Implements [`Array::astype`]: a no-op if the array has the type already.
    pub(crate) fn astype_at(&self, dtype: DType, call: CallSite<'_>) -> Array {
        match self.type_ref() {
            Ok(t) if t.dtype == dtype => self.clone(),
            _ => self.convert_at(dtype, call),
        }
    }
    /// Records a conversion to an element type.
    pub(crate) fn convert_at(&self, dtype: DType, call: CallSite<'_>) -> Array {
        apply1(prims::convert(dtype), &[self.into()], call)
    }
    /// Implements [`Array::select`].
    pub(crate) fn select_at(&self, a: Term, b: Term, call: CallSite<'_>) -> Array {
        let values = ok_or_return!(operand::resolve_args(&[a.clone(), b.clone()], call));
        let terms = [Term::Array(self.clone()), a, b];
        let types = terms.each_ref().map(|t| if let Term::Array(a) = t { a.type_ref().ok() } else { None });
        let arrays: Vec<(usize, &ArrayType)> =
            types.iter().enumerate().filter_map(|(k, ty)| Some((k, (*ty)?))).collect();
        let mut args = vec![ArrayOrLiteral::from(self)];
        args.extend(values);
        if arrays.windows(2).any(|w| w[0].1.shape != w[1].1.shape) {
            let (shape, like) =
                ok_or_return!(broadcast_type(&arrays), |fault| operand::reject(fault, &terms, call));
            for arg in &mut args {
                if let ArrayOrLiteral::Array(x) = arg {
                    *arg = x.broadcast_like(&shape, like.as_ref(), call).into();
                }
            }
            // the trailing dimensions correspond: errors refer to the user's operands
            let dims = types.map(|ty| -> Vec<usize> {
                let rank = ty.map_or(0, ArrayType::rank);
                (0..shape.rank()).map(|d| (d + rank).saturating_sub(shape.rank())).collect()
            });
            let source = |(number, ty)| UserOperand { index: number, ty, dims: Some(&dims[number]) };
            let sources: Vec<UserOperand<'_>> = types.into_iter().enumerate().map(source).collect();
            return apply1(
                prims::select(),
                &args,
                call.with_operands(&|| operand::describe_all(&terms), &sources),
            );
        }
        apply1(prims::select(), &args, call)
    }
    /// Broadcasts to `shape`, sharded as `like`.
    pub(crate) fn broadcast_like(
        &self,
        shape: &Shape,
        like: Option<&(Mesh, Spec)>,
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let there = like.is_none_or(|(_, spec)| spec.dims() == ty.spec.dims());
        // an axis over which the value is reduced may shard a dimension that the value lacks
        let named = |out: Spec, a: Axis| out.dims().iter().any(|d| d.contains(a));
        let own = |out: Spec| {
            let reduced: Axes = ty.spec.reduced_axes().iter().filter(|a| !named(out, *a)).collect();
            out.unreduced(ty.spec.unreduced_axes()).reduced(reduced)
        };
        if ty.shape == *shape {
            return match like {
                Some((mesh, spec)) if !there && ty.mesh.is_none() => self.put_at(mesh, *spec, call),
                Some((_, spec)) if !there => {
                    let dims: Vec<usize> = (0..shape.rank()).collect();
                    apply1(prims::broadcast(shape, &dims, Some(own(*spec))), &[self.into()], call)
                }
                _ => self.clone(),
            };
        }
        let first = shape.rank().saturating_sub(ty.rank());
        let dims: Vec<usize> = (first..first + ty.rank()).collect();
        match like {
            Some((mesh, spec)) if ty.mesh.is_none() => {
                let wide = apply1(prims::broadcast(shape, &dims, None), &[self.into()], call);
                wide.put_at(mesh, *spec, call)
            }
            like => apply1(prims::broadcast(shape, &dims, like.map(|l| own(l.1))), &[self.into()], call),
        }
    }
    /// Returns zero as a scalar of this array's element type.
    pub(crate) fn zero(&self) -> Scalar {
        Scalar::zero(self.type_ref().map_or(DType::F32, |t| t.dtype))
    }
    /// Returns a zero that can be combined with this array by `select`.
    ///
    /// This is a scalar, except for unreduced arrays, which need an array of zeros with the same
    /// unreduced axes.
    pub(crate) fn zero_operand(&self, call: CallSite<'_>) -> Term {
        match self.type_ref() {
            Ok(ty) if !ty.spec.unreduced_axes().is_empty() => {
                Term::Array(self.full_like_at(self.zero().term(), call))
            }
            _ => Term::Number(self.zero()),
        }
    }
}

/// Returns the specs that would match the other operands' sharding to operand `model`.
///
/// Dimensions are aligned at the end. Operands that match already are omitted. Returns `None` if
/// some operand cannot be sharded so.
fn matching_specs(types: &[(usize, &ArrayType)], model: usize) -> Option<Vec<(usize, Spec)>> {
    let as_one = types.iter().find(|t| t.0 == model)?.1;
    let mesh = as_one.mesh.as_ref()?;
    let mut list = Vec::new();
    for (k, ty) in types.iter().filter(|t| t.0 != model) {
        let met = |d: usize| {
            let e = (d + as_one.rank()).checked_sub(ty.rank())?;
            (as_one.shape[e] == ty.shape[d]).then(|| Axes::from(as_one.spec.dim(e)))
        };
        let taken: Vec<_> =
            (0..ty.rank()).filter_map(met).flat_map(|axes| axes.iter().collect::<Vec<_>>()).collect();
        let mut spec = ty.spec.padded(ty.rank());
        for d in 0..ty.rank() {
            let own = || ty.spec.dim(d).iter().copied().filter(|a| !taken.contains(a)).collect();
            let entry = met(d).unwrap_or_else(own);
            if !ty.shape[d].is_multiple_of(entry.iter().map(|a| mesh.extent(a)).product()) {
                return None;
            }
            spec = spec.with_dim(d, &entry);
        }
        if spec != ty.spec.padded(ty.rank()) {
            list.push((*k, spec));
        }
    }
    Some(list)
}

/// Returns the common shape of the operands, and their common mesh and sharding.
///
/// The sharding follows the rule of elementwise operations; `None` if nothing is sharded. Each
/// operand is given with the index that error messages use for it.
fn broadcast_type(types: &[(usize, &ArrayType)]) -> Result<(Shape, Option<(Mesh, Spec)>), Fault> {
    let shape = broadcast_shapes(types.iter().map(|(k, ty)| (*k, &*ty.shape)))?;
    let rank = shape.rank();
    let mut entries: Vec<Axes> = Vec::with_capacity(rank);
    for d in 0..rank {
        // the first operand that shards this dimension
        let mut split: Option<(usize, &ArrayType, usize)> = None;
        for (k, ty) in types {
            let Some(at) = (d + ty.rank()).checked_sub(rank).filter(|at| !ty.spec.dim(*at).is_empty()) else {
                continue;
            };
            match split {
                Some(first) if first.1.spec.dim(first.2) != ty.spec.dim(at) => {
                    let fault = super::errors::sharding_mismatch(first, (*k, ty, at));
                    let fixes = [*k, first.0].into_iter().filter_map(|model| matching_specs(types, model));
                    let help: Vec<String> = fixes.map(|list| reshard_operands_help(&list)).collect();
                    return Err(if help.is_empty() { fault } else { Fault { help, ..fault } });
                }
                Some(_) => {}
                None => split = Some((*k, ty, at)),
            }
        }
        entries.push(split.map_or_else(Axes::none, |(_, ty, at)| Axes::from(ty.spec.dim(at))));
    }
    let all: Vec<_> = entries.iter().flat_map(Axes::iter).collect();
    if let Some(twice) = (1..all.len()).find(|i| all[..*i].contains(&all[*i])) {
        let axis = all[twice];
        let mut fault = fault!(
            Sharding,
            "the result would name {axis} twice: two of its dimensions would be sharded over it"
        );
        for (k, ty) in types {
            for d in (0..ty.rank()).filter(|d| ty.spec.dim(*d).contains(&axis)) {
                let spec = ty.spec.padded(ty.rank()).with_dim(d, &Axes::none());
                fault = fault.help(format!("reshard operand {k}: `.reshard({spec})`")).highlight_dim(*k, d);
            }
        }
        return Err(fault);
    }
    for (k, ty) in types {
        let sets = [("unreduced", ty.spec.unreduced_axes()), ("reduced", ty.spec.reduced_axes())];
        // an axis over which an operand is reduced may shard a dimension that this operand lacks
        let repeated = |a: &Axis| {
            let has = |d: usize| (d + ty.rank()).checked_sub(rank).is_some_and(|at| ty.shape[at] == shape[d]);
            (0..rank).all(|d| !entries[d].contains(*a) || !has(d))
        };
        for (name, set) in sets {
            let split = |a: &Axis| all.contains(a) && (name == "unreduced" || !repeated(a));
            if let Some(axis) = set.iter().find(split) {
                let reduced = ty.spec.padded(ty.rank()).unreduced(Axes::none()).reduced(Axes::none());
                return Err(fault!(Sharding, "operand {k}, {ty}, is {name} over {axis}, over which a dimension of the result would be split")
                    .help(format!("reshard operand {k}: `.reshard({reduced})`"))
                    .highlight(*k, TypePart::Sets));
            }
        }
    }
    let mesh = types.iter().find_map(|t| t.1.mesh.clone()).filter(|_| entries.iter().any(|a| !a.is_empty()));
    Ok((shape, mesh.map(|mesh| (mesh, Spec::from_dims(entries)))))
}
