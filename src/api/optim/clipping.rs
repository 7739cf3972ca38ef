//! Transforms that bound updates, and those that replace them.

use super::mask::ParamMask;
use super::optimizer::Optimizer;
use super::scaling::root_mean_square;
use super::state::{Leaf, Transform, UpdateStep, compute_dtype};
use crate::api::array::Array;
use crate::api::tree::{self, Tree};
use crate::core::{ArrayType, DType};

/// A transform of each leaf without state.
struct Stateless<F>(F);
impl<F: Fn(&Leaf) -> Array + Send + Sync> Transform for Stateless<F> {
    fn update(&self, step: &mut UpdateStep) {
        step.map(&self.0);
    }
}
/// Creates an optimizer that replaces the update of each leaf by the result of a function.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// let signs = optim::stateless(|leaf| leaf.update.sign());
/// let opt = signs.then(optim::scale(-0.5));
/// let w = Array::from([1.0f32, 2.0]);
/// let (w, _) = opt.step(&w, &Array::from([3.0f32, -4.0]), &opt.init(&w)?);
/// assert_eq!(w.to_vec::<f32>()?, [0.5, 2.5]);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn stateless(f: impl Fn(&Leaf) -> Array + Send + Sync + 'static) -> Optimizer {
    Optimizer::new(Stateless(f))
}

/// Creates an optimizer that leaves updates as they are.
///
/// ```
/// let opt = atmesh::optim::identity();
/// # let _ = opt;
/// ```
pub fn identity() -> Optimizer {
    Optimizer::default()
}

/// Replaces updates by zeros, so that parameters stay as they are: frozen parameters of
/// [`partition`](crate::optim::partition()).
///
/// ```
/// use atmesh::optim;
/// let opt = optim::partition([("*.lora_*", optim::adam(1e-3)), ("*", optim::set_to_zero())]);
/// # let _ = opt;
/// ```
#[doc(alias("freeze"))]
pub fn set_to_zero() -> Optimizer {
    stateless(|leaf| leaf.update.zeros_like())
}

/// Replaces NaN in updates by 0.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::zero_nans().then(optim::sgd(0.1));
/// # let _ = opt;
/// ```
pub fn zero_nans() -> Optimizer {
    stateless(|leaf| leaf.update.is_nan().select(0.0, &leaf.update))
}

/// Clamps each element of the updates to the range from `-max_delta` to `max_delta`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::clip(1.0).then(optim::sgd(0.1));
/// # let _ = opt;
/// ```
pub fn clip(max_delta: f64) -> Optimizer {
    stateless(move |leaf| leaf.update.clamp(-max_delta, max_delta))
}

/// Divides the updates of each parameter so that the root of their mean square is at most
/// `threshold`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::clip_by_block_rms(1.0).then(optim::sgd(0.1));
/// # let _ = opt;
/// ```
pub fn clip_by_block_rms(threshold: f64) -> Optimizer {
    stateless(move |leaf| {
        let ratio = root_mean_square(&leaf.update) / threshold;
        &leaf.update / ratio.maximum(1.0)
    })
}

struct ClipByGlobalNorm(f64);
impl Transform for ClipByGlobalNorm {
    fn update(&self, step: &mut UpdateStep) {
        let norm = tree::norm(&step.updates());
        let norms = step.by_dtype(|d| norm.astype(d));
        step.map(|l| {
            let norm = &norms[&compute_dtype(l.ty.dtype)];
            norm.lt(self.0).select(&l.update, &l.update / norm * self.0)
        });
    }
}
/// Scales all updates so that their norm, that of [`global_norm`], is at most `max_norm`.
///
/// If a gradient is NaN, all updates are.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// let opt = optim::clip_by_global_norm(1.0).then(optim::sgd(1.0));
/// let w = (Array::from(0.0f32), Array::from(0.0f32));
/// let ((x, y), _) = opt.step(&w, &(Array::from(3.0f32), Array::from(4.0f32)), &opt.init(&w)?);
/// assert!((x.item::<f32>()? + 0.6).abs() < 1e-6 && (y.item::<f32>()? + 0.8).abs() < 1e-6);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn clip_by_global_norm(max_norm: f64) -> Optimizer {
    Optimizer::new(ClipByGlobalNorm(max_norm))
}

struct AddDecayedWeights(f64, ParamMask);
impl Transform for AddDecayedWeights {
    fn update(&self, step: &mut UpdateStep) {
        let AddDecayedWeights(decay, mask) = self;
        step.map(|l| match mask.contains(&l.path, &l.ty) {
            true => &l.update + *decay * &l.param,
            false => l.update.clone(),
        });
    }
}
/// Adds `weight_decay` times the parameter to the update of each parameter.
///
/// [`add_decayed_weights_with`] excludes parameters.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::add_decayed_weights(0.01).then(optim::sgd(0.1));
/// # let _ = opt;
/// ```
pub fn add_decayed_weights(weight_decay: f64) -> Optimizer {
    decayed(weight_decay, ParamMask::all())
}
/// Adds `weight_decay` times the parameter to the updates of the parameters that the mask contains.
///
/// The mask is a function of the path and the type, such as one that calls
/// [`ParamMask::contains`].
///
/// ```
/// use atmesh::optim;
/// let matrices = optim::add_decayed_weights_with(0.01, |_, ty| ty.rank() >= 2);
/// # let _ = matrices;
/// ```
pub fn add_decayed_weights_with(
    weight_decay: f64,
    mask: impl Fn(&str, &ArrayType) -> bool + Send + Sync + 'static,
) -> Optimizer {
    decayed(weight_decay, ParamMask::new(mask))
}
pub(super) fn decayed(weight_decay: f64, mask: ParamMask) -> Optimizer {
    Optimizer::new(AddDecayedWeights(weight_decay, mask))
}

/// Returns the Euclidean norm of all arrays of a tree: [`tree::norm`](crate::tree::norm) under
/// optax's name.
///
/// ```
/// use atmesh::prelude::*;
/// assert_eq!(atmesh::optim::global_norm(&Array::from([3.0f32, 4.0])).item::<f32>()?, 5.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn global_norm<T: Tree>(tree: &T) -> Array {
    tree::norm(tree)
}

/// Returns whether all floats of a tree are finite, as one boolean.
///
/// It is true for a tree without floats.
///
/// ```
/// use atmesh::prelude::*;
/// let t = (Array::from([1.0f32, f32::NAN]), Array::from(7));
/// assert!(!atmesh::optim::all_finite(&t).item::<bool>()?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn all_finite<T: Tree>(tree: &T) -> Array {
    let floats = |a: &Array| a.type_ref().is_ok_and(|ty| ty.dtype != DType::Key && ty.dtype.is_inexact());
    tree::fold(tree, true, |all, a| if floats(a) { all & a.is_finite().all(..) } else { all })
}

/// Moves `old` towards `new`: `step_size * new + (1 - step_size) * old`.
///
/// An average of the parameters (Polyak) is updated so after each step.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::incremental_update;
/// let average = incremental_update(&Array::from(3.0f32), &Array::from(1.0f32), 0.25);
/// assert_eq!(average.item::<f32>()?, 1.5);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
#[doc(alias("polyak", "ema_params"))]
pub fn incremental_update<T: Tree>(new: &T, old: &T, step_size: f64) -> T {
    tree::map2(new, old, |new, old| step_size * new + (1.0 - step_size) * old)
}
