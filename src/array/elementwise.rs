//! Elementwise methods: functions of one number, of two, comparisons, choices, conversions.

use super::operand::{self, Operand, Term};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault, Spot};
use crate::mesh::{Axes, Axis, Mesh};
use crate::ops::elementwise::{Binary, Clamp, Unary, broadcast_shapes};
use crate::program::typing::advice::resharded;
use crate::program::{Call, Source};
use crate::sharding::Spec;
use crate::trace::{Arg, apply1, apply1_of};
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

impl Array {
    /// Applies an elementwise function of one operand.
    pub(crate) fn unary(&self, fun: Unary, call: Call<'_>) -> Array {
        apply1_of(&fun, &[self.into()], call)
    }
    /// Applies an elementwise function of two operands; a number takes the element type of the array.
    pub(crate) fn binary(fun: Binary, a: Term, b: Term, call: Call<'_>) -> Array {
        match operand::pair(a, b).or_else(|terms| operand::args(&terms, call)) {
            Ok(args) => apply1_of(&fun, &args, call),
            Err(refused) => refused,
        }
    }
}

impl Array {
    /// [`Array::binary`] of this one and another.
    pub(crate) fn with(&self, fun: Binary, b: impl Operand, call: Call<'_>) -> Array {
        Array::binary(fun, self.term(), b.term(), call)
    }
}

macro_rules! unary { ($($(#[$doc:meta])* $name:ident $fun:ident;)*) => {
    /// # Functions of each element
    ///
    /// The result has the type of the array.
    impl Array { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self) -> Array {
            self.unary(Unary::$fun, Call::here(stringify!($name)))
        }
    )* }
} }
unary! {
    /// −1, 0 or 1; of a complex number z/|z|, or 0.
    sign Sign;
    /// The absolute value, of floats and signed integers; of complex numbers the modulus, a float.
    abs Abs;
    /// Down to a whole number.
    floor Floor;
    /// Up to a whole number.
    ceil Ceil;
    /// To the nearest whole number, halves away from zero.
    round Round;
    /// eˣ.
    exp Exp;
    /// 2ˣ.
    exp2 Exp2;
    /// eˣ − 1, exact near 0.
    expm1 Expm1;
    /// The natural logarithm.
    log Log;
    /// log(1 + x), exact near 0.
    log1p Log1p;
    /// The sine.
    sin Sin;
    /// The cosine.
    cos Cos;
    /// The tangent.
    tan Tan;
    /// The inverse sine.
    asin Asin;
    /// The inverse cosine.
    acos Acos;
    /// The inverse tangent.
    atan Atan;
    /// The hyperbolic sine.
    sinh Sinh;
    /// The hyperbolic cosine.
    cosh Cosh;
    /// The hyperbolic tangent.
    tanh Tanh;
    /// The inverse hyperbolic sine.
    asinh Asinh;
    /// The inverse hyperbolic cosine.
    acosh Acosh;
    /// The inverse hyperbolic tangent.
    atanh Atanh;
    /// The square root.
    sqrt Sqrt;
    /// 1 / √x.
    rsqrt Rsqrt;
    /// The cube root.
    cbrt Cbrt;
    /// 1 / (1 + e⁻ˣ).
    #[doc(alias = "sigmoid")]
    logistic Logistic;
    /// The error function.
    erf Erf;
    /// The inverse of the error function.
    erf_inv ErfInv;
    /// Whether it is neither infinite nor NaN.
    is_finite IsFinite;
    /// x².
    square Square;
    /// 1 / x.
    reciprocal Reciprocal;
    /// max(x, 0), with slope 0 at 0.
    relu Relu;
    /// x · logistic(x).
    silu Silu;
    /// log(1 + eˣ).
    softplus Softplus;
    /// The same value, without a derivative.
    stop_gradient StopGradient;
}

macro_rules! binary { ($($(#[$doc:meta])* $name:ident $fun:ident;)*) => {
    /// # Functions of two elements
    ///
    /// Also the operators `+ - * / % & | ^ << >>`. Shapes broadcast from the right; dimensions of both are sharded the same way, or are unsharded in one.
    impl Array { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, b: impl Operand) -> Array {
            Array::binary(Binary::$fun, self.term(), b.term(), Call::here(stringify!($name)))
        }
    )* }
} }
binary! {
    /// The greater of the two; NaN where either is. Of two zeros 0, not −0.
    maximum Max;
    /// The smaller of the two; NaN where either is. Of two zeros −0, if one is.
    minimum Min;
    /// To the power `b`.
    pow Pow;
    /// The angle of the point (b, self).
    atan2 Atan2;
    /// The next number of the element type towards `b`.
    nextafter NextAfter;
    /// √(self² + b²), without overflow on the way; NaN where either is.
    hypot Hypot;
    /// self·ln b, and 0 where self is 0.
    xlogy Xlogy;
    /// Where the two are equal.
    eq Eq;
    /// Where the two differ.
    ne Ne;
    /// Where self is less.
    lt Lt;
    /// Where self is less or equal.
    le Le;
    /// Where self is greater.
    gt Gt;
    /// Where self is greater or equal.
    ge Ge;
    /// The bits moved to the left, zeros coming in.
    shift_left ShiftLeft;
    /// The bits moved to the right, zeros coming in.
    shift_right_logical ShiftRightLogical;
    /// The bits moved to the right, the sign coming in.
    shift_right_arithmetic ShiftRightArithmetic;
}

/// # More functions of each element
impl Array {
    /// x to a whole power.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([2.0f32, -4.0]).powi(-1).to_vec::<f32>()?, [0.5, -0.25]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn powi(&self, y: i32) -> Array {
        self.unary(Unary::IntegerPow(y), Call::here("powi"))
    }
    /// x · Φ(x), by the usual approximation with tanh.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([-1.0f32, 0.0, 1.0]);
    /// assert!(x.gelu().allclose_by(&x.gelu_exact(), 0.0, 1e-3)?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn gelu(&self) -> Array {
        self.unary(Unary::Gelu { approximate: true }, Call::here("gelu"))
    }
    /// x · Φ(x), by the error function.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert!(Array::from(1.0).gelu_exact().allclose(&Array::from(0.8413447460685429))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn gelu_exact(&self) -> Array {
        self.unary(Unary::Gelu { approximate: false }, Call::here("gelu_exact"))
    }
    /// Between `low` and `high`, which are numbers, scalars or of this array's type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([-5, 1, 5]).clamp(0, 3).to_vec::<i32>()?, [0, 1, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp(&self, low: impl Operand, high: impl Operand) -> Array {
        let terms = [self.into(), low.term(), high.term()];
        let call = Call::here("clamp");
        // bounds that are numbers take the array's element type
        let mut args = match operand::args(&terms, call) {
            Ok(args) => args,
            Err(refused) => return refused,
        };
        args.swap(0, 1);
        let sources = [1, 0, 2].map(|number| Source { number, ty: None, dims: None });
        apply1(Arc::new(Clamp), &args, call.on(&|| operand::described(&terms), &sources))
    }
    /// As another element type, real numbers also as complex ones (which have `.real()` for the way back): floats are cut towards zero, to bool is `!= 0`, integers wrap.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([-1.7f32, 0.0, 300.0]).astype(I32).to_vec::<i32>()?, [-1, 0, 300]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("convert_element_type"))]
    #[track_caller]
    pub fn astype(&self, dtype: DType) -> Array {
        self.astype_at(dtype, Call::here("astype"))
    }
    pub(crate) fn astype_at(&self, dtype: DType, call: Call<'_>) -> Array {
        match self.type_ref() {
            Ok(t) if t.dtype == dtype => self.clone(),
            _ => self.convert_at(dtype, call),
        }
    }
    pub(crate) fn convert_at(&self, dtype: DType, call: Call<'_>) -> Array {
        apply1(prims::convert(dtype), &[self.into()], call)
    }
    /// The bits as another element type of the same width.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from(1.0f32).bitcast(U32).item::<u32>()?, 0x3f80_0000);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> Array {
        apply1(prims::bitcast(dtype), &[self.into()], Call::here("bitcast"))
    }
    /// `a` where self holds, else `b`. Shapes that differ are broadcast to the common one, and to the sharding that they have in common.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([-1, 2, -3]);
    /// assert_eq!(x.gt(0).select(&x, 0).to_vec::<i32>()?, [0, 2, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("where"))]
    #[track_caller]
    pub fn select(&self, a: impl Operand, b: impl Operand) -> Array {
        self.select_at(a.term(), b.term(), Call::here("select"))
    }
    pub(crate) fn select_at(&self, a: Term, b: Term, call: Call<'_>) -> Array {
        let values = match operand::args(&[a.clone(), b.clone()], call) {
            Ok(args) => args,
            Err(refused) => return refused,
        };
        let terms = [Term::Array(self.clone()), a, b];
        let types = terms.each_ref().map(|t| if let Term::Array(a) = t { a.type_ref().ok() } else { None });
        let arrays: Vec<(usize, &ArrayType)> =
            types.iter().enumerate().filter_map(|(k, ty)| Some((k, (*ty)?))).collect();
        let mut args = vec![Arg::from(self)];
        args.extend(values);
        if arrays.windows(2).any(|w| w[0].1.shape != w[1].1.shape) {
            let (shape, like) = match common(&arrays) {
                Ok(found) => found,
                Err(fault) => return operand::refuse(fault, &terms, call),
            };
            for arg in &mut args {
                if let Arg::Array(x) = arg {
                    *arg = x.spread(&shape, like.as_ref(), call).into();
                }
            }
            // the last dimensions meet: what refuses is told of the user's operands
            let dims = types.map(|ty| -> Vec<usize> {
                let rank = ty.map_or(0, ArrayType::rank);
                (0..shape.rank()).map(|d| (d + rank).saturating_sub(shape.rank())).collect()
            });
            let source = |(number, ty)| Source { number, ty, dims: Some(&dims[number]) };
            let sources: Vec<Source<'_>> = types.into_iter().enumerate().map(source).collect();
            return apply1(prims::select(), &args, call.on(&|| operand::described(&terms), &sources));
        }
        apply1(prims::select(), &args, call)
    }
    /// Broadcast to `shape`, sharded as `like` says.
    pub(crate) fn spread(&self, shape: &Shape, like: Option<&(Mesh, Spec)>, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let there = like.is_none_or(|(_, spec)| spec.dims() == ty.spec.dims());
        // along a dimension that it has not, it is repeated in blocks over an axis over which it is reduced
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
    /// Zero as a number of any element type.
    pub(crate) fn zero(&self) -> Scalar {
        Scalar::zero(self.type_ref().map_or(DType::F32, |t| t.dtype))
    }
    /// A zero to choose beside it: the number, which joins all but unreduced values.
    pub(crate) fn zero_beside(&self, call: Call<'_>) -> Term {
        match self.type_ref() {
            Ok(ty) if !ty.spec.unreduced_axes().is_empty() => {
                Term::Array(self.full_like_at(self.zero().term(), call))
            }
            _ => Term::Number(self.zero()),
        }
    }
}

/// How the other operands are sharded where their last dimensions meet those of this one, of those that differ; `None` where one cannot.
fn like(types: &[(usize, &ArrayType)], model: usize) -> Option<Vec<(usize, Spec)>> {
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

/// The shape that these operands (by number) broadcast to, and the mesh and sharding that the elementwise rule gives (`None` where nothing
/// is sharded).
fn common(types: &[(usize, &ArrayType)]) -> Result<(Shape, Option<(Mesh, Spec)>), Fault> {
    let shape = broadcast_shapes(types.iter().map(|(k, ty)| (*k, &*ty.shape)))?;
    let rank = shape.rank();
    let mut entries: Vec<Axes> = Vec::with_capacity(rank);
    for d in 0..rank {
        // who splits this dimension first
        let mut split: Option<(usize, &ArrayType, usize)> = None;
        for (k, ty) in types {
            let Some(at) = (d + ty.rank()).checked_sub(rank).filter(|at| !ty.spec.dim(*at).is_empty()) else {
                continue;
            };
            match split {
                Some(first) if first.1.spec.dim(first.2) != ty.spec.dim(at) => {
                    let fault = super::refusals::split_alike(first, (*k, ty, at));
                    let mends = [*k, first.0].into_iter().filter_map(|model| like(types, model));
                    let help: Vec<String> = mends.map(|list| resharded(&list)).collect();
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
        let mut fault = Fault::new(
            ErrorKind::Sharding,
            format!("the result would name {axis} twice: two of its dimensions would be sharded over it"),
        );
        for (k, ty) in types {
            for d in (0..ty.rank()).filter(|d| ty.spec.dim(*d).contains(&axis)) {
                let spec = ty.spec.padded(ty.rank()).with_dim(d, &Axes::none());
                fault = fault.help(format!("reshard operand {k}: `.reshard({spec})`")).dim(*k, d);
            }
        }
        return Err(fault);
    }
    for (k, ty) in types {
        let sets = [("unreduced", ty.spec.unreduced_axes()), ("reduced", ty.spec.reduced_axes())];
        // along a dimension that it has not, what is reduced over an axis is repeated in blocks
        let repeated = |a: &Axis| {
            let has = |d: usize| (d + ty.rank()).checked_sub(rank).is_some_and(|at| ty.shape[at] == shape[d]);
            (0..rank).all(|d| !entries[d].contains(*a) || !has(d))
        };
        for (name, set) in sets {
            let split = |a: &Axis| all.contains(a) && (name == "unreduced" || !repeated(a));
            if let Some(axis) = set.iter().find(split) {
                let whole = ty.spec.padded(ty.rank()).unreduced(Axes::none()).reduced(Axes::none());
                let message = format!(
                    "operand {k}, {ty}, is {name} over {axis}, over which a dimension of the result would be split"
                );
                return Err(Fault::new(ErrorKind::Sharding, message)
                    .help(format!("reshard operand {k}: `.reshard({whole})`"))
                    .mark(*k, Spot::Sets));
            }
        }
    }
    let mesh = types.iter().find_map(|t| t.1.mesh.clone()).filter(|_| entries.iter().any(|a| !a.is_empty()));
    Ok((shape, mesh.map(|mesh| (mesh, Spec::of(entries)))))
}
