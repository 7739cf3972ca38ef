//! Minimization of functions of trees: L-BFGS and nonlinear conjugate gradients.

use super::line_search::{FoundStep, LineSearch, Sample};
use super::solution::{
    CONVERGED, Leaves, NO_PROGRESS, NOT_FINITE, RUNNING, Solution, add_scaled, choose, failed, float_leaves,
    inner, max_abs, negate, scalar_dtype, subtract,
};
use crate::api::array::Array;
use crate::api::trace::in_call;
use crate::api::transform::control::tree_of;
use crate::api::transform::{value_and_grad, while_loop};
use crate::api::tree::{Args, Output, Params};
use crate::core::{DType, Result};
use crate::ir::program::CallSite;

/// The options of L-BFGS: a quasi-Newton method that keeps the last steps.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, EndReason, Lbfgs};
/// let f = |x: Array| (Array::from([1.0f64, 30.0]) * (x - 1.0).square()).sum(..);
/// let start = Array::from([5.0f64, -2.0]);
/// let options = Lbfgs::default().memory(5).tolerance(1e-9).max_steps(30).max_line_search(20);
/// let found = optim::minimize(&start, options, f);
/// assert!(found.error.item::<f64>()? <= 1e-9 && found.steps.item::<i32>()? <= 30);
/// let cut = optim::minimize(&start, options.max_steps(1), f);
/// assert_eq!(cut.reason()?, EndReason::MaxSteps);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lbfgs {
    /// The number of steps whose changes are kept. Defaults to 10.
    pub memory: usize,
    /// The maximum of the absolute elements of the gradient at the end. Defaults to 1e-5.
    pub tolerance: f64,
    /// The maximum number of steps. Defaults to 200.
    pub max_steps: u32,
    /// The maximum number of evaluations in the line search of a step. Defaults to 30.
    pub max_line_search: u32,
}
impl Default for Lbfgs {
    fn default() -> Lbfgs {
        Lbfgs { memory: 10, tolerance: 1e-5, max_steps: 200, max_line_search: 30 }
    }
}
impl Lbfgs {
    setters! {
        /// Sets the number of steps whose changes are kept, 10 by default.
        pub fn memory(steps: usize) = memory: steps;
        /// Sets the maximum of the absolute elements of the gradient at the end, 1e-5 by default.
        pub fn tolerance(tolerance: f64) = tolerance: tolerance;
        /// Sets the maximum number of steps, 200 by default. With 0 the starting point is returned.
        pub fn max_steps(steps: u32) = max_steps: steps;
        /// Sets the maximum number of evaluations in the line search of a step, 30 by default.
        pub fn max_line_search(trials: u32) = max_line_search: trials;
    }
}

/// The options of nonlinear conjugate gradients, by Polak and Ribière.
///
/// The method keeps one direction, and so needs less memory than L-BFGS, and usually more steps.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, NonlinearCg};
/// let f = |x: Array| (Array::from([1.0f64, 30.0]) * (x - 1.0).square()).sum(..);
/// let options = NonlinearCg::default().tolerance(1e-8).max_steps(100).max_line_search(20);
/// let found = optim::minimize(Array::from([5.0f64, -2.0]), options, f);
/// assert!(found.error.item::<f64>()? <= 1e-8);
/// assert!(found.converged()?.to_vec::<f64>()?.iter().all(|x| (x - 1.0).abs() < 1e-7));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NonlinearCg {
    /// The maximum of the absolute elements of the gradient at the end. Defaults to 1e-5.
    pub tolerance: f64,
    /// The maximum number of steps. Defaults to 500.
    pub max_steps: u32,
    /// The maximum number of evaluations in the line search of a step. Defaults to 30.
    pub max_line_search: u32,
}
impl Default for NonlinearCg {
    fn default() -> NonlinearCg {
        NonlinearCg { tolerance: 1e-5, max_steps: 500, max_line_search: 30 }
    }
}
impl NonlinearCg {
    setters! {
        /// Sets the maximum of the absolute elements of the gradient at the end, 1e-5 by default.
        pub fn tolerance(tolerance: f64) = tolerance: tolerance;
        /// Sets the maximum number of steps, 500 by default. With 0 the starting point is returned.
        pub fn max_steps(steps: u32) = max_steps: steps;
        /// Sets the maximum number of evaluations in the line search of a step, 30 by default.
        pub fn max_line_search(trials: u32) = max_line_search: trials;
    }
}

/// The method of [`minimize`]: [`Lbfgs`] and [`NonlinearCg`] convert to it.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, Lbfgs, Minimizer, NonlinearCg};
/// let methods: [Minimizer; 2] = [Lbfgs::default().into(), NonlinearCg::default().into()];
/// for method in methods {
///     let x = optim::minimize(Array::from(3.0f64), method, |x| (x - 1.0).square()).converged()?;
///     assert!((x.item::<f64>()? - 1.0).abs() < 1e-5);
/// }
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Minimizer {
    /// L-BFGS.
    Lbfgs(Lbfgs),
    /// Nonlinear conjugate gradients.
    NonlinearCg(NonlinearCg),
}
conversions! { Minimizer:
    [] Lbfgs => |options| Minimizer::Lbfgs(options);
    [] NonlinearCg => |options| Minimizer::NonlinearCg(options);
}

/// Finds a minimum of a function of a tree, by its gradient.
///
/// `f` takes a tree like `x0` by value and returns a scalar loss. The whole search is one program:
/// a loop over steps, each with a line search that satisfies the strong Wolfe conditions. So it
/// runs eagerly, under [`jit`](crate::jit()), and on any mesh; the history of L-BFGS is sharded as
/// the parameters are.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, Lbfgs, NonlinearCg};
/// // the function of Rosenbrock, with its minimum at (1, 1)
/// let f = |(x, y): (Array, Array)| (1.0 - &x).square() + 100.0 * (y - x.square()).square();
/// let start = || (Array::from(-1.2f64), Array::from(1.0f64));
/// let found = optim::minimize(start(), Lbfgs::default(), f);
/// let (x, y) = found.clone().converged()?;
/// assert!((x.item::<f64>()? - 1.0).abs() < 1e-4 && (y.item::<f64>()? - 1.0).abs() < 1e-4);
/// assert!(found.steps.item::<i32>()? < 50);
/// assert!(optim::minimize(start(), NonlinearCg::default(), f).converged().is_ok());
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// A starting point that is not of floats and a loss that is not a scalar are errors, which all
/// arrays of the result carry. A function that is not finite ends the search: see
/// [`Solution::reason`].
#[track_caller]
#[doc(alias("lbfgs", "LBFGS", "bfgs", "fmin_cg", "scipy.optimize.minimize"))]
pub fn minimize<A: Args<Owned: Params>, R: Output<Tree = Array>>(
    x0: A,
    method: impl Into<Minimizer>,
    f: impl Fn(A::Owned) -> R,
) -> Solution<A::Owned> {
    let (call, x0) = (CallSite::here("optim::minimize"), x0.into_tree());
    let method = method.into();
    in_call(call.location, || {
        let run = || -> Result<Solution<A::Owned>> {
            let start = float_leaves(&x0, call)?;
            let dtype = scalar_dtype(&start);
            let evaluate = |x: &Leaves| {
                let loss = |x: Leaves| f(tree_of(&x0, x)).into_result();
                let (value, grad) = value_and_grad(x, loss);
                let grad = x.iter().zip(grad).map(|(x, g)| stored_like(&g, x)).collect();
                Sample { x: x.clone(), value: value.astype(dtype), grad }
            };
            let first = evaluate(&start);
            first.value.ty()?;
            let found = Search { evaluate: &evaluate, dtype, method }.run(first);
            let error = max_abs(&found.sample.grad, dtype);
            Ok(Solution {
                x: tree_of(&x0, found.sample.x),
                value: found.sample.value,
                error,
                steps: found.steps,
                evaluations: found.evaluations,
                status: found.status,
            })
        };
        run().unwrap_or_else(|e| failed(&x0, e))
    })
}

/// Gives a gradient the sharding of its parameter.
fn stored_like(g: &Array, x: &Array) -> Array {
    match (g.type_ref(), x.type_ref()) {
        (Ok(a), Ok(b)) if a.spec != b.spec => g.reshard(b.spec),
        _ => g.clone(),
    }
}

/// The changes of the last steps, newest first.
#[derive(Clone, Debug, atmesh_derive::Tree)]
struct History {
    steps: Vec<Leaves>,
    changes: Vec<Leaves>,
    /// The reciprocals of the inner products of steps and changes; 0 for those that are not used.
    rho: Vec<Array>,
    /// The scale of the first guess of the inverse Hessian.
    gamma: Array,
}

#[derive(Clone, Debug, atmesh_derive::Tree)]
struct SearchProgress {
    sample: Sample,
    direction: Leaves,
    /// The length of the first trial of the next line search.
    first: Array,
    history: History,
    steps: Array,
    evaluations: Array,
    status: Array,
}

struct Search<'a> {
    evaluate: &'a dyn Fn(&Leaves) -> Sample,
    dtype: DType,
    method: Minimizer,
}

impl Search<'_> {
    fn run(&self, start: Sample) -> SearchProgress {
        let (tolerance, max_steps) = match self.method {
            Minimizer::Lbfgs(o) => (o.tolerance, o.max_steps),
            Minimizer::NonlinearCg(o) => (o.tolerance, o.max_steps),
        };
        let memory = if let Minimizer::Lbfgs(o) = self.method { o.memory } else { 0 };
        let zero = start.value.zeros_like();
        let none: Leaves = start.grad.iter().map(|g| g.zeros_like()).collect();
        let history = History {
            steps: vec![none.clone(); memory],
            changes: vec![none; memory],
            rho: vec![zero.clone(); memory],
            gamma: zero.ones_like(),
        };
        let norm = inner(&start.grad, &start.grad, self.dtype).sqrt();
        let count = zero.astype(DType::I32);
        let init = SearchProgress {
            direction: negate(&start.grad),
            first: (1.0 / norm.maximum(1e-30)).minimum(1.0),
            history,
            steps: count.clone(),
            evaluations: &count + 1,
            status: self.status(&start, &zero.ge(0.0), tolerance),
            sample: start,
        };
        let max = i64::from(max_steps);
        while_loop(
            init,
            |s| s.status.eq(RUNNING) & s.steps.lt(max),
            |s: SearchProgress| self.step(s, tolerance),
        )
    }
    /// Returns the status at a point; `progress` says whether the last line search was successful.
    fn status(&self, at: &Sample, progress: &Array, tolerance: f64) -> Array {
        let error = max_abs(&at.grad, self.dtype);
        let finite = error.is_finite() & at.value.is_finite();
        let running = error.zeros_like().astype(DType::I32);
        let status = progress.select(&running, NO_PROGRESS);
        let status = error.le(tolerance).select(running.full_like(CONVERGED), status);
        finite.select(status, NOT_FINITE)
    }
    fn step(&self, s: SearchProgress, tolerance: f64) -> SearchProgress {
        let (curvature, max_trials) = match self.method {
            Minimizer::Lbfgs(o) => (0.9, o.max_line_search),
            Minimizer::NonlinearCg(o) => (0.1, o.max_line_search),
        };
        let search = LineSearch { evaluate: self.evaluate, dtype: self.dtype, curvature, max_trials };
        let FoundStep { sample, progress, trials } = search.run(&s.sample, &s.direction, &s.first);
        let (history, wanted) = match self.method {
            Minimizer::Lbfgs(_) => self.quasi_newton(&s, &sample),
            Minimizer::NonlinearCg(_) => (s.history.clone(), self.conjugate(&s, &sample)),
        };
        // a direction that does not descend is replaced by the gradient
        let slope = inner(&sample.grad, &wanted, self.dtype);
        let descends = slope.lt(0.0);
        let direction = choose(&descends, &wanted, &negate(&sample.grad));
        let norm = inner(&sample.grad, &sample.grad, self.dtype);
        let careful = (1.0 / norm.sqrt().maximum(1e-30)).minimum(1.0);
        let first = match self.method {
            Minimizer::Lbfgs(_) => descends.select(1.0, careful),
            Minimizer::NonlinearCg(_) => {
                // the decrease is expected to be that of the last step
                let guess = 2.02 * (&sample.value - &s.sample.value) / &slope;
                (descends & guess.gt(0.0)).select(guess.minimum(1.0), careful)
            }
        };
        SearchProgress {
            status: self.status(&sample, &progress, tolerance),
            sample,
            direction,
            first,
            history,
            steps: s.steps + 1,
            evaluations: s.evaluations + trials,
        }
    }
    /// Returns the history with the last step, and the direction of L-BFGS, by the two loops of
    /// Nocedal.
    fn quasi_newton(&self, s: &SearchProgress, at: &Sample) -> (History, Leaves) {
        let (step, change) = (subtract(&at.x, &s.sample.x), subtract(&at.grad, &s.sample.grad));
        let product = inner(&step, &change, self.dtype);
        let squares = inner(&change, &change, self.dtype);
        let valid = product.gt(1e-12 * &squares) & product.is_finite();
        let history = History {
            rho: newest_of(valid.select(1.0 / &product, 0.0), &s.history.rho),
            gamma: valid.select(&product / &squares, &s.history.gamma),
            steps: newest_of(step, &s.history.steps),
            changes: newest_of(change, &s.history.changes),
        };
        let mut q = at.grad.clone();
        let mut alphas = Vec::new();
        for (i, rho) in history.rho.iter().enumerate() {
            let alpha = rho * inner(&history.steps[i], &q, self.dtype);
            q = add_scaled(&q, &-&alpha, &history.changes[i]);
            alphas.push(alpha);
        }
        let zeros: Leaves = q.iter().map(|q| q.zeros_like()).collect();
        let mut q = add_scaled(&zeros, &history.gamma, &q);
        for (i, rho) in history.rho.iter().enumerate().rev() {
            let beta = rho * inner(&history.changes[i], &q, self.dtype);
            q = add_scaled(&q, &(&alphas[i] - beta), &history.steps[i]);
        }
        (history, negate(&q))
    }
    /// Returns the direction of Polak and Ribière.
    fn conjugate(&self, s: &SearchProgress, at: &Sample) -> Leaves {
        let change = subtract(&at.grad, &s.sample.grad);
        let squares = inner(&s.sample.grad, &s.sample.grad, self.dtype);
        let beta = (inner(&at.grad, &change, self.dtype) / squares).maximum(0.0);
        let beta = beta.is_finite().select(&beta, 0.0);
        add_scaled(&negate(&at.grad), &beta, &s.direction)
    }
}

/// Puts the newest entry in front, and drops the oldest.
fn newest_of<T: Clone>(new: T, old: &[T]) -> Vec<T> {
    std::iter::once(new).chain(old.iter().cloned()).take(old.len()).collect()
}
