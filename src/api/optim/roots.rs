//! Roots and fixed points of functions of trees.

use super::gauss_newton::{LeastSquares, Problem};
use super::implicit::{Solved, implicit};
use super::solution::{
    CONVERGED, Leaves, NOT_FINITE, RUNNING, Solution, failed, float_leaves, max_abs, scalar_dtype, subtract,
};
use crate::api::array::Array;
use crate::api::trace::in_call;
use crate::api::transform::control::tree_of;
use crate::api::transform::while_loop;
use crate::api::tree::{Args, Output, Params, Path, Tree, collect, mismatch};
use crate::core::{DType, Result};
use crate::ir::program::CallSite;

/// The options of [`root`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, EndReason, RootOptions};
/// let f = |x: Array, ()| x.square() - 2.0;
/// let options = RootOptions::default().tolerance(1e-12).max_steps(20);
/// let found = optim::root(Array::from(1.0f64), (), options, f);
/// assert!((found.converged()?.item::<f64>()? - 2f64.sqrt()).abs() < 1e-12);
/// let cut = optim::root(Array::from(1.0f64), (), options.max_steps(1), f);
/// assert_eq!(cut.reason()?, EndReason::MaxSteps);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RootOptions {
    /// The maximum of the absolute elements of the function at the end. Defaults to 1e-6.
    pub tolerance: f64,
    /// The maximum number of steps. Defaults to 100.
    pub max_steps: u32,
}
impl Default for RootOptions {
    fn default() -> RootOptions {
        RootOptions { tolerance: 1e-6, max_steps: 100 }
    }
}
impl RootOptions {
    setters! {
        /// Sets the maximum of the absolute elements of the function at the end, 1e-6 by default.
        pub fn tolerance(tolerance: f64) = tolerance: tolerance;
        /// Sets the maximum number of steps, 100 by default. With 0 the starting point is returned.
        pub fn max_steps(steps: u32) = max_steps: steps;
    }
}

/// Finds a point at which all elements of a function are zero.
///
/// `f` takes a tree like `x0` and the arguments, both by value, and returns a tree of any
/// structure. The method is Levenberg-Marquardt of
/// [`least_squares`](crate::optim::least_squares()), which is Newton's method near the root:
/// products with the Jacobian, which is not in memory.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, RootOptions};
/// let f = |x: Array, a: Array| x.square() - a;
/// let found = optim::root(Array::from(1.0f32), 2.0f32, RootOptions::default(), f);
/// assert!((found.converged()?.item::<f32>()? - 2f32.sqrt()).abs() < 1e-5);
/// // the derivative of the square root
/// let g = grad(Array::from(4.0f64), |a| {
///     optim::root(Array::from(1.0f64), a, RootOptions::default(), f).x
/// });
/// assert!((g.item::<f64>()? - 0.25).abs() < 1e-6);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// A starting point that is not of floats is an error, which all arrays of the result carry. If
/// there is no root, [`Solution::reason`] says so.
#[track_caller]
#[doc(alias("newton", "fsolve", "scipy.optimize.root"))]
pub fn root<A: Args<Owned: Params>, T: Args<Owned: Params>, R: Output>(
    x0: A,
    args: T,
    options: RootOptions,
    f: impl Fn(A::Owned, T::Owned) -> R,
) -> Solution<A::Owned> {
    let call = CallSite::here("optim::root");
    let (x0, args) = (x0.into_tree(), args.into_tree());
    let residuals =
        |x: Leaves, given: Leaves| Ok(collect(&f(tree_of(&x0, x), tree_of(&args, given)).into_result()?));
    let solve = |start: Leaves, given: Leaves| -> Result<Solved> {
        let at = |x: Leaves| residuals(x, given.clone());
        let limits = LeastSquares::default().step_tolerance(1e-14).max_steps(options.max_steps);
        let mut problem = Problem::new(&at, limits, &start);
        problem.residual_tolerance = Some(options.tolerance);
        let found = problem.run(start)?;
        let value = max_abs(&found.residuals, scalar_dtype(&found.x));
        Ok((found.x, vec![value, found.error, found.steps, found.evaluations, found.status]))
    };
    in_call(call.location, || {
        let run = || {
            let start = float_leaves(&x0, call)?;
            Ok(solution(&x0, implicit(start, &collect(&args), &solve, &residuals)?))
        };
        run().unwrap_or_else(|e| failed(&x0, e))
    })
}

/// Returns the solution of a point and the scalars that describe the search.
fn solution<P: Params>(x0: &P, (x, scalars): Solved) -> Solution<P> {
    let mut scalars = scalars.into_iter();
    let mut next = || scalars.next().expect("a solver returns five scalars");
    let (value, error, steps) = (next(), next(), next());
    Solution { x: tree_of(x0, x), value, error, steps, evaluations: next(), status: next() }
}

/// The options of [`fixed_point`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, FixedPoint};
/// let half = |x: Array, ()| 0.5 * x;
/// let options = FixedPoint::default().tolerance(0.3).max_steps(10);
/// // 4, 2, 1, 0.5, 0.25: the last change is within the tolerance
/// let found = optim::fixed_point(Array::from(4.0f32), (), options, half);
/// assert_eq!((found.x.item::<f32>()?, found.steps.item::<i32>()?), (0.25, 4));
/// assert!(optim::fixed_point(4.0f32, (), options.max_steps(3), half).converged().is_err());
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FixedPoint {
    /// The maximum of the absolute change in a step at the end. Defaults to 1e-6.
    pub tolerance: f64,
    /// The maximum number of steps. Defaults to 1000.
    pub max_steps: u32,
}
impl Default for FixedPoint {
    fn default() -> FixedPoint {
        FixedPoint { tolerance: 1e-6, max_steps: 1000 }
    }
}
impl FixedPoint {
    setters! {
        /// Sets the maximum of the absolute change in a step at the end, 1e-6 by default.
        pub fn tolerance(tolerance: f64) = tolerance: tolerance;
        /// Sets the maximum number of steps, 1000 by default. 0 returns the starting point.
        pub fn max_steps(steps: u32) = max_steps: steps;
    }
}

#[derive(Clone, Debug, atmesh_derive::Tree)]
struct Iterate {
    x: Leaves,
    /// The maximum of the absolute change in the last step.
    change: Array,
    steps: Array,
    status: Array,
}

/// Finds a point that a function maps to itself, by applying the function again and again.
///
/// `f` takes a tree like `x0` and the arguments, both by value, and returns a tree like `x0`. The
/// iteration converges if `f` contracts near the point; otherwise [`root`] of `f(x) - x` may find
/// it. The derivative by the arguments is implicit, as that of [`root`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, FixedPoint};
/// let start = Array::from(1.0f32);
/// let found = optim::fixed_point(start, (), FixedPoint::default(), |x: Array, ()| x.cos());
/// assert!((found.converged()?.item::<f32>()? - 0.739085).abs() < 1e-5);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// A starting point that is not of floats, and a result of another structure, are errors, which all
/// arrays of the result carry.
#[track_caller]
#[doc(alias("FixedPointIteration", "scipy.optimize.fixed_point"))]
pub fn fixed_point<A: Args<Owned: Params>, T: Args<Owned: Params>, R: Output<Tree = A::Owned>>(
    x0: A,
    args: T,
    options: FixedPoint,
    f: impl Fn(A::Owned, T::Owned) -> R,
) -> Solution<A::Owned> {
    let call = CallSite::here("optim::fixed_point");
    let (x0, args) = (x0.into_tree(), args.into_tree());
    let next = |x: Leaves, given: Leaves| -> Result<Leaves> {
        let made = f(tree_of(&x0, x), tree_of(&args, given)).into_result()?;
        match x0.differs(&made, &mut Path::named()) {
            Some(how) => Err(mismatch("the point and the result of the function", &how, call)),
            None => Ok(collect(&made)),
        }
    };
    let residuals = |x: Leaves, given: Leaves| Ok(subtract(&next(x.clone(), given)?, &x));
    let solve = |start: Leaves, given: Leaves| -> Result<Solved> {
        let dtype = scalar_dtype(&start);
        let change = max_abs(&start, dtype).full_like(f64::INFINITY);
        let count = change.zeros_like().astype(DType::I32);
        let init = Iterate { x: start, change, steps: count.clone(), status: count };
        let max = i64::from(options.max_steps);
        let found = while_loop(
            init,
            |s| s.status.eq(RUNNING) & s.steps.lt(max),
            |s: Iterate| {
                let x = next(s.x.clone(), given.clone())?;
                let change = max_abs(&subtract(&x, &s.x), dtype);
                let status = change.le(options.tolerance).select(s.status.full_like(CONVERGED), &s.status);
                let status = change.is_finite().select(status, NOT_FINITE);
                Ok(Iterate { x, change, steps: s.steps + 1, status })
            },
        );
        let Iterate { x, change, steps, status } = found;
        Ok((x, vec![change.clone(), change, steps.clone(), steps, status]))
    };
    in_call(call.location, || {
        let run = || {
            let start = float_leaves(&x0, call)?;
            Ok(solution(&x0, implicit(start, &collect(&args), &solve, &residuals)?))
        };
        run().unwrap_or_else(|e| failed(&x0, e))
    })
}
