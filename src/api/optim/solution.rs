//! The results of fits, and arithmetic on lists of arrays that they share.

use crate::api::array::Array;
use crate::api::tree::{Params, Tree, collect, vdot_of, widened};
use crate::core::{DType, Error, Result};
use crate::ir::program::CallSite;

/// The result of [`minimize`](crate::optim::minimize),
/// [`least_squares`](crate::optim::least_squares), [`root`](crate::optim::root()) and
/// [`fixed_point`](crate::optim::fixed_point()).
///
/// It is a tree, so that a function which returns it can be `jit`ted.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, Lbfgs};
/// let fit = jit(|x: &Array| {
///     optim::minimize(x, Lbfgs::default(), |x| (&x - 2.0).square().sum(..) + 5.0)
/// });
/// let found = fit.call(&Array::from([0.0f64, 1.0]))?;
/// assert!((found.value.item::<f64>()? - 5.0).abs() < 1e-9 && found.error.item::<f64>()? < 1e-5);
/// assert!(found.evaluations.item::<i32>()? > found.steps.item::<i32>()?);
/// assert_eq!(type_of(&found.x), "float64[2]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, atmesh_derive::Tree)]
pub struct Solution<P> {
    /// The best point that was found.
    pub x: P,
    /// The value there: the loss, a half of the sum of squared residuals, or the maximum of the
    /// absolute residuals.
    pub value: Array,
    /// The quantity that is compared with the tolerance.
    pub error: Array,
    /// The number of steps: `int32[]`.
    pub steps: Array,
    /// The number of evaluations of the function, each with its derivatives: `int32[]`.
    pub evaluations: Array,
    /// The reason for the end, as a number: `int32[]`. [`Solution::reason`] reads it.
    pub status: Array,
}

/// The reason why a fit ended.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, EndReason, Lbfgs};
/// let from = Array::from(3.0f64);
/// let fit = |f: fn(Array) -> Array| optim::minimize(&from, Lbfgs::default(), f).reason();
/// assert_eq!(fit(|x| (x - 1.0).square())?, EndReason::Converged);
/// assert_eq!(fit(|x| -x)?, EndReason::MaxSteps); // it has no minimum
/// assert_eq!(fit(|x| (x - 4.0).sqrt())?, EndReason::NotFinite);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The fit took the maximum number of steps.
    MaxSteps,
    /// The error is within the tolerance.
    Converged,
    /// No further improvement was found. The point is the best within the precision of the floats,
    /// or the gradient is wrong.
    NoProgress,
    /// The function or its derivative is NaN or infinite at the starting point, or became so.
    NotFinite,
}

pub(super) const RUNNING: i32 = 0;
pub(super) const CONVERGED: i32 = 1;
pub(super) const NO_PROGRESS: i32 = 2;
pub(super) const NOT_FINITE: i32 = 3;

impl<P> Solution<P> {
    /// Returns the reason for the end.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::{self, EndReason, Lbfgs};
    /// let options = Lbfgs::default().max_steps(0);
    /// let found = optim::minimize(Array::from(3.0f64), options, |x| x.square());
    /// assert_eq!(found.reason()?, EndReason::MaxSteps);
    /// assert_eq!(found.x.item::<f64>()?, 3.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the error that the fit met, or an error inside of a traced function.
    #[track_caller]
    pub fn reason(&self) -> Result<EndReason> {
        Ok(match self.status.item::<i32>()? {
            RUNNING => EndReason::MaxSteps,
            CONVERGED => EndReason::Converged,
            NO_PROGRESS => EndReason::NoProgress,
            _ => EndReason::NotFinite,
        })
    }
    /// Returns the point, or an error if the fit did not converge.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::{self, Lbfgs};
    /// let far = optim::minimize(Array::from(3.0f64), Lbfgs::default(), |x| (x - 1.0).square());
    /// assert!((far.converged()?.item::<f64>()? - 1.0).abs() < 1e-6);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn converged(self) -> Result<P> {
        let call = CallSite::here("Solution::converged");
        let why = match self.reason()? {
            EndReason::Converged => return Ok(self.x),
            EndReason::MaxSteps => "it took the maximum number of steps",
            EndReason::NoProgress => "it found no further improvement",
            EndReason::NotFinite => "the function is not finite",
        };
        let (steps, error) =
            (self.steps.item::<i32>()?, widened(&self.error).astype(DType::F64).item::<f64>()?);
        let fault =
            fault!(Data, "the fit did not converge in {steps} steps: {why}, and the error is {error:e}")
                .help("`x` is the best point; raise the tolerance or the number of steps in the options");
        Err(call.error(fault, Vec::new))
    }
}

/// Returns a solution like `x` whose arrays carry the error.
pub(super) fn failed<P: Params>(x: &P, error: Error) -> Solution<P> {
    let wrong = crate::api::trace::poison(error);
    let w = || wrong.clone();
    let x = crate::api::tree::map(x, |_| wrong.clone());
    Solution { x, value: w(), error: w(), steps: w(), evaluations: w(), status: w() }
}

/// A point in the space of parameters, or a direction: the leaves of the tree.
pub(super) type Leaves = Vec<Array>;

/// Returns the element type in which scalars are computed: that of the widest leaf.
pub(super) fn scalar_dtype(x: &[Array]) -> DType {
    let wide = x.iter().any(|a| a.type_ref().is_ok_and(|ty| ty.dtype == DType::F64));
    if wide { DType::F64 } else { DType::F32 }
}
/// Returns `y + scale * x`, where `scale` is a scalar.
pub(super) fn add_scaled(y: &[Array], scale: &Array, x: &[Array]) -> Leaves {
    y.iter().zip(x).map(|(y, x)| y + scaled(scale, x)).collect()
}
/// Returns `scale * x`, in the element type of `x`.
fn scaled(scale: &Array, x: &Array) -> Array {
    x * scale.astype(x.type_ref().map_or(DType::F32, |ty| ty.dtype))
}
pub(super) fn subtract(a: &[Array], b: &[Array]) -> Leaves {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}
pub(super) fn negate(a: &[Array]) -> Leaves {
    a.iter().map(|a| -a).collect()
}
/// Returns the inner product as a scalar of this type.
pub(super) fn inner(a: &[Array], b: &[Array], dtype: DType) -> Array {
    vdot_of(a, b).astype(dtype)
}
/// Returns the maximum of the absolute elements as a scalar of this type.
pub(super) fn max_abs(a: &[Array], dtype: DType) -> Array {
    let max = |a: &Array| a.abs().max(..).astype(dtype);
    let not_empty = a.iter().filter(|a| a.type_ref().map_or(true, |ty| ty.shape.num_elements() > 0));
    let all = not_empty.map(max).reduce(|a, b| a.maximum(b));
    all.unwrap_or_else(|| Array::zeros(dtype.array_type([])))
}
/// Selects `a` where the condition holds, and `b` elsewhere, array by array.
pub(super) fn choose(condition: &Array, a: &[Array], b: &[Array]) -> Leaves {
    a.iter().zip(b).map(|(a, b)| condition.select(a, b)).collect()
}
/// Returns the leaves of a tree of floats, or an error.
pub(super) fn float_leaves<P: Tree>(x: &P, call: CallSite<'_>) -> Result<Leaves> {
    let all = collect(x);
    for a in &all {
        let ty = a.ty()?;
        if !ty.dtype.is_float() {
            let fault = fault!(Dtype, "the starting point has {ty}, but a fit varies floats")
                .help("convert it: `.astype(F32)`")
                .help("or capture it in the closure: captured arrays are constants");
            return Err(call.error(fault, || vec![ty.to_string()]));
        }
    }
    Ok(all)
}
