//! Nonlinear least squares: Levenberg-Marquardt and Gauss-Newton, without a Jacobian in memory.

use super::cgls::{LinearMap, default_products};
use super::solution::{
    CONVERGED, Leaves, NO_PROGRESS, NOT_FINITE, RUNNING, Solution, add_scaled, choose, failed, float_leaves,
    inner, max_abs, negate, scalar_dtype,
};
use crate::api::array::Array;
use crate::api::trace::in_call;
use crate::api::transform::control::tree_of;
use crate::api::transform::{jvp, vjp, while_loop};
use crate::api::tree::{Args, Output, Params, collect};
use crate::core::{DType, Error, Result};
use crate::ir::program::CallSite;

/// The options of [`least_squares`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, LeastSquares};
/// let options = LeastSquares::default().gradient_tolerance(1e-10).step_tolerance(1e-12);
/// let options = options.max_steps(20).max_products(8).gauss_newton();
/// let t = Array::from([0.0f64, 1.0, 2.0]);
/// let residuals = |(a, b): (Array, Array)| a + b * &t - (3.0 - 2.0 * &t);
/// let start = (Array::from(0.0f64), Array::from(0.0f64));
/// let line = optim::least_squares(start, options, residuals);
/// // one Gauss-Newton step solves a linear problem
/// assert_eq!(line.steps.item::<i32>()?, 1);
/// assert!((line.converged()?.1.item::<f64>()? + 2.0).abs() < 1e-9);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LeastSquares {
    /// True to damp steps (Levenberg-Marquardt), false for Gauss-Newton steps, which are halved
    /// until the residuals decrease. Defaults to true.
    pub damped: bool,
    /// The maximum of the absolute elements of the gradient at the end. Defaults to 1e-8.
    pub gradient_tolerance: f64,
    /// The size of a step, relative to that of the point, at which the search ends. Defaults to
    /// 1e-8.
    pub step_tolerance: f64,
    /// The maximum number of steps. Defaults to 100.
    pub max_steps: u32,
    /// The maximum number of products with the Jacobian and its transpose in a step. `None`, the
    /// default, is twice the number of parameters, and at most 200.
    pub max_products: Option<u32>,
}
impl Default for LeastSquares {
    fn default() -> LeastSquares {
        LeastSquares {
            damped: true,
            gradient_tolerance: 1e-8,
            step_tolerance: 1e-8,
            max_steps: 100,
            max_products: None,
        }
    }
}
impl LeastSquares {
    setters! {
        /// Takes Gauss-Newton steps, without damping. By default steps are damped.
        pub fn gauss_newton() = damped: false;
        /// Sets the maximum of the absolute elements of the gradient at the end, 1e-8 by default.
        pub fn gradient_tolerance(tolerance: f64) = gradient_tolerance: tolerance;
        /// Sets the relative size of a step at which the search ends, 1e-8 by default.
        pub fn step_tolerance(tolerance: f64) = step_tolerance: tolerance;
        /// Sets the maximum number of steps, 100 by default. With 0 the starting point is returned.
        pub fn max_steps(steps: u32) = max_steps: steps;
        /// Sets the maximum number of products with the Jacobian in a step, by default twice the
        /// number of parameters, and at most 200.
        pub fn max_products(products: u32) = max_products: Some(products);
    }
}

/// Finds the parameters with the least sum of squares of residuals.
///
/// `f` takes a tree like `x0` by value and returns a tree of residuals. Each step solves the linear
/// least squares problem of the Jacobian by conjugate gradients (CGLS), whose products with the
/// Jacobian are `jvp` and `vjp` of `f`: no Jacobian is in memory. The whole search is one program.
/// The `value` of the solution is a half of the sum of squares.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, LeastSquares};
/// let t = Array::from([0.0f64, 1.0, 2.0, 3.0]);
/// let y = 2.0 * (-0.5 * &t).exp();
/// let start = (Array::from(1.0f64), Array::from(0.1f64));
/// let residuals = |(a, b): (Array, Array)| a * (-b * &t).exp() - &y;
/// let (a, b) = optim::least_squares(start, LeastSquares::default(), residuals).converged()?;
/// assert!((a.item::<f64>()? - 2.0).abs() < 1e-6 && (b.item::<f64>()? - 0.5).abs() < 1e-6);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// A starting point or residuals that are not floats are errors, which all arrays of the result
/// carry.
#[track_caller]
#[doc(alias("levenberg_marquardt", "gauss_newton", "curve_fit", "scipy.optimize.least_squares"))]
pub fn least_squares<A: Args<Owned: Params>, R: Output>(
    x0: A,
    options: LeastSquares,
    f: impl Fn(A::Owned) -> R,
) -> Solution<A::Owned> {
    let (call, x0) = (CallSite::here("optim::least_squares"), x0.into_tree());
    let residuals = |x: Leaves| Ok(collect(&f(tree_of(&x0, x)).into_result()?));
    in_call(call.location, || {
        let run = || {
            let start = float_leaves(&x0, call)?;
            let found = Problem::new(&residuals, options, &start).run(start)?;
            Ok(found.solution(&x0))
        };
        run().unwrap_or_else(|e| failed(&x0, e))
    })
}

/// The state of a search.
#[derive(Clone, Debug, atmesh_derive::Tree)]
pub(super) struct FitProgress {
    pub(super) x: Leaves,
    pub(super) residuals: Leaves,
    /// A half of the sum of squares.
    pub(super) cost: Array,
    /// The damping, and the factor by which it grows after the next rejected step.
    damping: Array,
    growth: Array,
    pub(super) error: Array,
    pub(super) steps: Array,
    pub(super) evaluations: Array,
    pub(super) status: Array,
}
impl FitProgress {
    pub(super) fn solution<P: Params>(self, x0: &P) -> Solution<P> {
        Solution {
            x: tree_of(x0, self.x),
            value: self.cost,
            error: self.error,
            steps: self.steps,
            evaluations: self.evaluations,
            status: self.status,
        }
    }
}

/// A nonlinear least squares problem.
pub(super) struct Problem<'a> {
    residuals: &'a dyn Fn(Leaves) -> Result<Leaves>,
    options: LeastSquares,
    dtype: DType,
    /// The maximum of the absolute residuals at which the search ends, for roots. `None` for fits.
    pub(super) residual_tolerance: Option<f64>,
}

impl<'a> Problem<'a> {
    pub(super) fn new(
        residuals: &'a dyn Fn(Leaves) -> Result<Leaves>,
        options: LeastSquares,
        start: &Leaves,
    ) -> Problem<'a> {
        Problem { residuals, options, dtype: scalar_dtype(start), residual_tolerance: None }
    }
    /// Returns a half of the sum of squares.
    fn cost(&self, residuals: &Leaves) -> Array {
        0.5 * inner(residuals, residuals, self.dtype)
    }
    pub(super) fn run(&self, start: Leaves) -> Result<FitProgress> {
        let residuals = (self.residuals)(start.clone())?;
        let cost = self.cost(&residuals);
        cost.ty()?;
        let count = cost.zeros_like().astype(DType::I32);
        let gradient = self.linearized(&start).1;
        let init = FitProgress {
            damping: self.first_damping(&start, &gradient),
            growth: cost.full_like(2.0),
            error: self.error(&gradient, &residuals),
            status: self.status(&cost, &gradient, &residuals, &cost.lt(0.0), &cost.lt(0.0)),
            x: start,
            residuals,
            cost,
            steps: count.clone(),
            evaluations: &count + 1,
        };
        let max = i64::from(self.options.max_steps);
        Ok(while_loop(init, |s| s.status.eq(RUNNING) & s.steps.lt(max), |s: FitProgress| self.step(s)))
    }
    /// Returns the residuals at a point and the gradient of the cost.
    fn linearized(&self, x: &Leaves) -> (Leaves, Leaves) {
        let (residuals, pull) = vjp(x, |x| (self.residuals)(x));
        let gradient = pull.call(&residuals);
        (residuals, gradient)
    }
    /// Returns the quantity that is compared with the tolerance.
    fn error(&self, gradient: &Leaves, residuals: &Leaves) -> Array {
        let over = if self.residual_tolerance.is_some() { residuals } else { gradient };
        max_abs(over, self.dtype)
    }
    fn status(
        &self,
        cost: &Array,
        gradient: &Leaves,
        residuals: &Leaves,
        small_step: &Array,
        stuck: &Array,
    ) -> Array {
        let error = self.error(gradient, residuals);
        let tolerance = self.residual_tolerance.unwrap_or(self.options.gradient_tolerance);
        let small = if self.residual_tolerance.is_some() { NO_PROGRESS } else { CONVERGED };
        let running = cost.zeros_like().astype(DType::I32);
        let status = stuck.select(running.full_like(NO_PROGRESS), &running);
        let status = small_step.select(running.full_like(small), status);
        let status = error.le(tolerance).select(running.full_like(CONVERGED), status);
        cost.is_finite().select(status, NOT_FINITE)
    }
    /// Returns the first damping: a small part of the curvature along the gradient.
    fn first_damping(&self, x: &Leaves, gradient: &Leaves) -> Array {
        let along = jvp(x, gradient, |x| (self.residuals)(x)).1;
        let curvature = inner(&along, &along, self.dtype) / inner(gradient, gradient, self.dtype);
        curvature.is_finite().select(1e-3 * &curvature, 1e-3)
    }
    fn step(&self, s: FitProgress) -> FitProgress {
        let gradient = self.linearized(&s.x).1;
        let zero = s.cost.zeros_like();
        let damping = if self.options.damped { s.damping.clone() } else { zero.clone() };
        let change = self.solve(&s.x, &negate(&s.residuals), &damping);
        let (x, residuals, cost, scale, tried) = if self.options.damped {
            let x = add_scaled(&s.x, &zero.ones_like(), &change);
            let residuals = (self.residuals)(x.clone()).unwrap_or_else(|e| poisoned(&s.residuals, e));
            let cost = self.cost(&residuals);
            (x, residuals, cost, zero.ones_like(), zero.ones_like().astype(DType::I32))
        } else {
            self.halved(&s, &change)
        };
        let better = cost.lt(&s.cost);
        // the decrease that the linear model predicts, by which the damping adapts (Nielsen)
        let model =
            0.5 * (&damping * inner(&change, &change, self.dtype) - inner(&change, &gradient, self.dtype));
        let gain = (&s.cost - &cost) / model;
        let shrink = (1.0 - (2.0 * gain - 1.0).powi(3)).maximum(1.0 / 3.0);
        let next_damping = better.select(&damping * shrink, &damping * &s.growth);
        let growth = better.select(2.0, &s.growth * 2.0);
        let size = (inner(&change, &change, self.dtype)).sqrt() * scale;
        let tolerance = self.options.step_tolerance;
        let small = size.le((inner(&s.x, &s.x, self.dtype).sqrt() + tolerance) * tolerance);
        let (x, residuals) = (choose(&better, &x, &s.x), choose(&better, &residuals, &s.residuals));
        let cost = better.select(cost, &s.cost);
        let gradient = self.linearized(&x).1;
        let stuck = if self.options.damped { zero.gt(0.0) } else { !&better };
        FitProgress {
            status: self.status(&cost, &gradient, &residuals, &small, &stuck),
            error: self.error(&gradient, &residuals),
            x,
            residuals,
            cost,
            damping: next_damping,
            growth,
            steps: s.steps + 1,
            evaluations: s.evaluations + tried,
        }
    }
    /// Halves a step until the cost decreases. Returns the point, its residuals and cost, the scale
    /// of the step and the number of evaluations.
    fn halved(&self, s: &FitProgress, change: &Leaves) -> (Leaves, Leaves, Array, Array, Array) {
        let one = s.cost.ones_like();
        let count = one.zeros_like().astype(DType::I32);
        let init = (s.x.clone(), s.residuals.clone(), s.cost.full_like(f64::INFINITY), one * 2.0, count);
        while_loop(
            init,
            |(_, _, cost, scale, _)| !cost.lt(&s.cost) & scale.gt(1e-9),
            |(_, _, _, scale, n)| {
                let scale = scale * 0.5;
                let x = add_scaled(&s.x, &scale, change);
                let residuals = (self.residuals)(x.clone())?;
                let cost = self.cost(&residuals);
                Ok((x, residuals, cost, scale, n + 1))
            },
        )
    }
    /// Solves the damped linear least squares problem of the Jacobian at `x`.
    fn solve(&self, x: &Leaves, target: &Leaves, damping: &Array) -> Leaves {
        let (_, pull) = vjp(x, |x| (self.residuals)(x));
        let map = LinearMap {
            apply: &|v| jvp(x, v, |x| (self.residuals)(x)).1,
            transpose: &|v| pull.call(v),
            dtype: self.dtype,
            max_products: self.options.max_products.unwrap_or_else(|| default_products(x)),
        };
        map.solve(target, damping)
    }
}

fn poisoned(like: &[Array], error: Error) -> Leaves {
    let wrong = crate::api::trace::poison(error);
    like.iter().map(|_| wrong.clone()).collect()
}
