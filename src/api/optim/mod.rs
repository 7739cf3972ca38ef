//! Optimizers, schedules and fits, with optax's names: functions of trees of arrays.
//!
//! An [`Optimizer`] is a chain of transforms of gradients. [`Optimizer::init`] makes its state, an
//! [`OptState`] that is sharded like the parameters; [`Optimizer::step`] returns the next
//! parameters and the next state. There is no hidden state: a step is a function, which runs
//! eagerly, under [`jit`](crate::jit()) with donation, and in loops.
//!
//! ```
//! use atmesh::prelude::*;
//! use atmesh::optim::{self, OptState};
//!
//! #[derive(Clone, Tree)]
//! struct Net {
//!     w: Array,
//!     b: Array,
//! }
//! let rate = optim::warmup_cosine_decay_schedule(0.0, 0.1, 5, 40, 0.0);
//! let opt = optim::chain([optim::clip_by_global_norm(1.0), optim::adamw(rate)]);
//!
//! let step = jit(|net: &Net, state: &OptState, x: &Array, y: &Array| {
//!     let (loss, g) = value_and_grad(net, |net| (x.dot(&net.w) + &net.b - y).square().mean(..));
//!     let (net, state) = opt.step(net, &g, state);
//!     (net, state, loss)
//! })
//! .donate([0, 1]);
//!
//! let mesh = Mesh::new([("data", 4)])?;
//! let x = Key::new(0).normal([32, 3]).put(&mesh, p!["data"]);
//! let y = x.sum(1);
//! let net = Net { w: Array::zeros([3]), b: Array::zeros([]) };
//! let mut net = tree::put(&net, &mesh, p![]);
//! let mut state = opt.init(&net)?;
//! let mut losses = Vec::new();
//! for _ in 0..40 {
//!     let loss;
//!     (net, state, loss) = step.call((net, state, &x, &y))?;
//!     losses.push(loss.item::<f32>()?);
//! }
//! assert!(losses[39] < 0.1 * losses[0]);
//! # Ok::<(), atmesh::Error>(())
//! ```
//!
//! | | |
//! |---|---|
//! | optimizers | [`sgd`], [`adam`], [`adamw`], [`lion`], [`rmsprop`], [`lamb`], [`adafactor`] |
//! | transforms | [`clip`], [`clip_by_global_norm`], [`add_decayed_weights`], [`trace`], [`ema`], [`scale_by_adam`], [`scale_by_schedule`], [`stateless`] and similar ones |
//! | of other optimizers | [`chain`], [`masked`], [`partition`], [`apply_if_finite`] |
//! | slots | [`Optimizer::slot_dtype`], [`Optimizer::shard_slots`] (ZeRO-1) |
//! | schedules | [`linear_schedule`], [`cosine_decay_schedule`], [`warmup_cosine_decay_schedule`], [`exponential_decay`], [`join_schedules`] and similar ones |
//! | fits | [`minimize`] (L-BFGS, nonlinear conjugate gradients), [`least_squares`], [`root`], [`fixed_point`] |
//! | gradients | [`accumulate`], [`LossScale`], [`all_finite`], [`global_norm`] |

mod accumulation;
mod cgls;
mod clipping;
mod descent;
mod factored;
mod gauss_newton;
mod implicit;
mod line_search;
mod mask;
mod optimizer;
mod params;
mod placement;
mod presets;
mod roots;
mod scaling;
mod schedule;
mod solution;
mod state;
mod wrappers;

pub use accumulation::{LossScale, accumulate};
pub use clipping::{
    add_decayed_weights, add_decayed_weights_with, all_finite, clip, clip_by_block_rms, clip_by_global_norm,
    global_norm, identity, incremental_update, set_to_zero, stateless, zero_nans,
};
pub use descent::{Lbfgs, Minimizer, NonlinearCg, minimize};
pub use factored::scale_by_factored_rms;
pub use gauss_newton::{LeastSquares, least_squares};
pub use mask::ParamMask;
pub use optimizer::{Optimizer, chain};
pub use params::apply_updates;
pub use presets::{
    Adafactor, Lion, Sgd, WeightDecay, adafactor, adafactor_with, adam, adam_with, adamw, adamw_with, lamb,
    lamb_with, lion, lion_with, rmsprop, rmsprop_with, sgd, sgd_with,
};
pub use roots::{FixedPoint, RootOptions, fixed_point, root};
pub use scaling::{
    Adam, RmsProp, ema, scale, scale_by_adam, scale_by_adam_with, scale_by_learning_rate, scale_by_lion,
    scale_by_param_block_rms, scale_by_rms, scale_by_rms_with, scale_by_schedule, scale_by_trust_ratio,
    trace,
};
pub use schedule::{
    ExponentialDecay, Schedule, constant_schedule, cosine_decay_schedule, exponential_decay,
    exponential_decay_with, join_schedules, linear_schedule, piecewise_constant_schedule,
    polynomial_schedule, warmup_cosine_decay_schedule, warmup_exponential_decay_schedule,
};
pub use solution::{EndReason, Solution};
pub use state::{Leaf, LeafSlot, OptState, Transform, UpdateStep};
pub use wrappers::{apply_if_finite, masked, partition};
