//! Gradients over several small batches, and scaled losses for float16.

use super::clipping::all_finite;
use crate::api::array::Array;
use crate::api::trace::in_call;
use crate::api::transform::control::{RecordedClosure, poisoned_tree, slice_type, tree_of};
use crate::api::transform::{check_errors, scan, value_and_grad};
use crate::api::tree::{self, Args, Output, Params, Tree, collect};
use crate::core::{ArrayType, Axes, DType, Result};
use crate::ir::program::{CallSite, typing::cotangent_type};

/// Returns the mean of a loss, and of its gradients, over batches that are stacked along the first
/// dimension of `xs`.
///
/// The batches run one after the other in a [`scan`](crate::scan()), so that the memory is that of
/// one batch. If the parameters are reduced over the mesh axes of the batches
/// (`w.reshard(p![; R: "data"])`), the gradients stay unreduced in the loop, and there is one
/// all-reduce for each parameter after the loop: in [`Optimizer::step`], which sums them.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// let mesh = Mesh::new([("data", 4)])?;
/// let w = Array::ones([8]).put(&mesh, p![]);
/// let xs = Key::new(0).normal([3, 16, 8]).put(&mesh, p![_, "data"]); // 3 batches of 16
/// let opt = optim::sgd(0.1);
/// let step = jit(|w: &Array, xs: &Array| {
///     let reduced = w.reshard(p![; R: "data"]);
///     let (loss, g) = optim::accumulate(&reduced, xs, |w, x| x.dot(&w).square().mean(..));
///     let (w, _) = opt.step(w, &g, &opt.init(w)?);
///     Ok((w, loss))
/// });
/// let lowered = step.lower((&w, &xs))?;
/// // the gradient is summed once, and the loss, one number, in each of the 3 batches
/// let counts: Vec<u64> = lowered.collectives().iter().map(|c| c.count).collect();
/// assert_eq!(counts.iter().filter(|n| **n == 1).count(), 1);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// If `xs` has no arrays or no batches, all results carry the error.
///
/// [`Optimizer::step`]: crate::optim::Optimizer::step
#[track_caller]
#[doc(alias("MultiSteps", "microbatch", "gradient_accumulation"))]
pub fn accumulate<P: Params, X: Args, R: Output<Tree = Array>>(
    params: &P,
    xs: X,
    f: impl Fn(P, X::Owned) -> R,
) -> (Array, P)
where
    X::Owned: Clone,
{
    let call = CallSite::here("optim::accumulate");
    let xs = xs.into_tree();
    let run = || -> Result<(Array, P)> {
        check_errors(params)?;
        check_errors(&xs)?;
        let n = batches(&xs, call)?;
        let zeros = tree::map(params, |w| match w.type_ref() {
            Ok(ty) => w.full_like_to(0.0, cotangent_type(ty).spec),
            Err(_) => w.clone(),
        });
        let one = |x: &X::Owned| {
            // an unreduced sum cannot be divided, so each of its terms is
            value_and_grad(params, |p| Ok(f(p, x.clone()).into_result()? / n as f64))
        };
        let init = (Array::zeros(loss_type(params, &xs, &|p, x| f(p, x).into_result(), call)?), zeros);
        let ((loss, grads), ()) = scan(init, &xs, |(loss, sum): (Array, P), x: X::Owned| {
            let (more, g) = one(&x);
            ((loss + more, tree::map2(&sum, &g, |a, b| a + b)), ())
        });
        Ok((loss, grads))
    };
    in_call(call.location, || {
        run().unwrap_or_else(|e| {
            let _ = crate::api::trace::poison(e.clone());
            (Array::poisoned(e.clone()), poisoned_tree(params, &e))
        })
    })
}

/// Returns the type of the loss of one batch.
fn loss_type<P: Params, X: Tree>(
    params: &P,
    xs: &X,
    f: &dyn Fn(P, X) -> Result<Array>,
    call: CallSite<'_>,
) -> Result<ArrayType> {
    let slice = |a: &Array| a.type_ref().map_or_else(|_| DType::F32.array_type([]), slice_type);
    let types: Vec<ArrayType> = collect(xs).iter().map(slice).collect();
    let piece = RecordedClosure::record(call, &types, |leaves| f(params.clone(), tree_of(xs, leaves)))?;
    Ok(piece.program.output_types().swap_remove(0))
}

/// Returns the number of batches: the size of the first dimension.
fn batches<X: Tree>(xs: &X, call: CallSite<'_>) -> Result<usize> {
    let n = collect(xs).first().and_then(|x| x.type_ref().ok()?.shape.first().copied());
    let fault = match n {
        Some(0) => fault!(Shape, "there are no batches: the first dimension has size 0")
            .help("stack at least one batch along the first dimension"),
        Some(n) => return Ok(n),
        None => fault!(Shape, "no array says how many batches there are")
            .help("stack the batches along the first dimension of each array"),
    };
    Err(call.error(fault, Vec::new))
}

/// The scale of a loss whose gradients are float16, which adapts to overflows.
///
/// Gradients of float16 underflow if the loss is not scaled, and overflow if the scale is too
/// large. The scale is divided by `factor` after a step whose gradients are not finite, and
/// multiplied by it after `period` finite steps in a row.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, LossScale, OptState};
/// let opt = optim::sgd(0.1);
/// let step = jit(|w: &Array, state: &OptState, scale: &LossScale, x: &Array| {
///     let (_, g) = value_and_grad(w, |w| scale.scale(&(x.astype(F16) * w.astype(F16)).sum(..)));
///     let g = scale.unscale(&g);
///     let finite = optim::all_finite(&g);
///     let (new, next) = opt.step(w, &g, state);
///     let kept = tree::select(&finite, &(new, next), &(w.clone(), state.clone()));
///     (kept, scale.adjust(&finite))
/// });
/// let (w, scale) = (Array::ones([2]), LossScale::new(1024.0));
/// let state = opt.init(&w)?;
/// let ((w, state), scale) = step.call((&w, &state, &scale, Array::from([1.0f32, 2.0])))?;
/// assert_eq!(w.to_vec::<f32>()?, [0.9, 0.8]);
/// // an overflow leaves the parameters and the state as they are, and halves the scale
/// let ((w, state), scale) = step.call((&w, &state, &scale, Array::from([1e6f32, 2.0])))?;
/// assert_eq!(w.to_vec::<f32>()?, [0.9, 0.8]);
/// assert_eq!((state.count.item::<i32>()?, scale.scale.item::<f32>()?), (1, 512.0));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("DynamicLossScale", "GradScaler"))]
#[derive(Clone, Debug, atmesh_derive::Tree)]
pub struct LossScale {
    /// The scale: `float32[]`.
    pub scale: Array,
    /// The number of finite steps since the scale changed: `int32[]`.
    pub good_steps: Array,
    /// The number of finite steps after which the scale grows. Defaults to 2000.
    #[tree(skip)]
    pub period: u32,
    /// The factor by which the scale grows and shrinks. Defaults to 2.
    #[tree(skip)]
    pub factor: f64,
    /// The minimum of the scale. Defaults to 1.
    #[tree(skip)]
    pub min_scale: f64,
}

impl LossScale {
    /// Creates a scale that starts at this value, on no mesh: `tree::put(&scale, &mesh, p![])`
    /// places it.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::LossScale;
    /// let scale = LossScale::new(1024.0).period(2).factor(4.0).min_scale(512.0);
    /// let grown = scale.adjust(&Array::from(true)).adjust(&Array::from(true));
    /// assert_eq!(grown.scale.item::<f32>()?, 4096.0);
    /// // 1024 / 4 is less than the minimum
    /// assert_eq!(scale.adjust(&Array::from(false)).scale.item::<f32>()?, 512.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn new(initial: f64) -> LossScale {
        LossScale {
            scale: Array::full(DType::F32.array_type([]), initial),
            good_steps: Array::from(0),
            period: 2000,
            factor: 2.0,
            min_scale: 1.0,
        }
    }
    setters! {
        /// Sets the number of finite steps after which the scale grows, 2000 by default.
        pub fn period(steps: u32) = period: steps;
        /// Sets the factor by which the scale grows and shrinks, 2 by default.
        pub fn factor(factor: f64) = factor: factor;
        /// Sets the minimum of the scale, 1 by default.
        pub fn min_scale(min: f64) = min_scale: min;
    }
    /// Multiplies a loss by the scale. A 16-bit loss becomes float32 first.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::LossScale;
    /// let scaled = LossScale::new(1e6).scale(&Array::from(0.5f32).astype(F16));
    /// // 500,000 is greater than the maximum of float16
    /// assert_eq!(type_of(&scaled), "float32[]");
    /// assert_eq!(scaled.item::<f32>()?, 5e5);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn scale(&self, loss: &Array) -> Array {
        let call = CallSite::here("LossScale::scale");
        in_call(call.location, || {
            let loss = tree::widened(loss);
            let dtype = loss.type_ref().map_or(DType::F32, |ty| ty.dtype);
            &loss * self.scale.astype(dtype)
        })
    }
    /// Divides gradients by the scale. 16-bit gradients become float32 first, and unreduced ones
    /// are summed.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::LossScale;
    /// let g = (Array::from([1.0f32, 2.0]).astype(F16), Array::from(256.0f64));
    /// let (a, b) = LossScale::new(1024.0).unscale(&g);
    /// assert_eq!(type_of((&a, &b)), "(float32[2], float64[])");
    /// assert_eq!(a.to_vec::<f32>()?, [1.0 / 1024.0, 2.0 / 1024.0]);
    /// assert_eq!(b.item::<f64>()?, 0.25);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn unscale<P: Tree>(&self, grads: &P) -> P {
        let call = CallSite::here("LossScale::unscale");
        in_call(call.location, || {
            tree::map(grads, |g| {
                let g = tree::widened(g);
                let Ok(ty) = g.ty() else { return g };
                let summed = match ty.spec.unreduced_axes().is_empty() {
                    true => g,
                    false => g.reshard(ty.spec.unreduced(Axes::none())),
                };
                summed / self.scale.astype(ty.dtype)
            })
        })
    }
    /// Returns the scale of the next step. `finite` is a boolean scalar: whether the gradients of
    /// this step were finite, as [`all_finite`] returns.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::LossScale;
    /// let overflowed = LossScale::new(1024.0).adjust(&Array::from(false));
    /// assert_eq!(overflowed.scale.item::<f32>()?, 512.0);
    /// // one finite step is counted; the scale grows after 2000 of them
    /// let next = overflowed.adjust(&Array::from(true));
    /// assert_eq!((next.scale.item::<f32>()?, next.good_steps.item::<i32>()?), (512.0, 1));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn adjust(&self, finite: &Array) -> LossScale {
        let call = CallSite::here("LossScale::adjust");
        in_call(call.location, || {
            let grows = self.good_steps.ge(i64::from(self.period) - 1);
            let larger = &self.scale * self.factor;
            let larger = larger.is_finite().select(&larger, &self.scale);
            let smaller = (&self.scale / self.factor).maximum(self.min_scale);
            let scale = finite.select(grows.select(larger, &self.scale), smaller);
            let good_steps = (finite & !grows).select(&self.good_steps + 1, 0);
            LossScale { scale, good_steps, ..self.clone() }
        })
    }
    /// Returns whether gradients are finite: [`all_finite`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::LossScale;
    /// let scale = LossScale::new(1024.0);
    /// let (g, overflowed) = (Array::from([1.0f32, 2.0]), Array::from(f32::INFINITY));
    /// assert!(scale.is_finite(&g).item::<bool>()?);
    /// assert!(!scale.is_finite(&(g, overflowed)).item::<bool>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn is_finite<P: Tree>(&self, grads: &P) -> Array {
        all_finite(grads)
    }
}
