//! Optimizers by name: chains of the transforms of this module.

use super::clipping::{clip_by_block_rms, decayed, identity};
use super::factored::FactoredRms;
use super::mask::ParamMask;
use super::optimizer::{Optimizer, chain};
use super::scaling::{
    Adam, RmsProp, by_adam, by_lion, by_rms, by_schedule, ema_as, scale, scale_by_learning_rate,
    scale_by_param_block_rms, scale_by_trust_ratio, trace_as,
};
use super::schedule::Schedule;
use crate::core::{ArrayType, DType};
use crate::ir::program::CallSite;

/// The options of [`sgd_with`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{Sgd, sgd_with};
/// let options = Sgd::default().momentum(0.5).nesterov().accumulator_dtype(BF16);
/// let (opt, w) = (sgd_with(0.5, options), Array::from(1.0f32));
/// let (w, state) = opt.step(&w, &Array::from(2.0f32), &opt.init(&w)?);
/// assert_eq!(type_of(&state.slots["trace"][""]), "bfloat16[]");
/// // Nesterov's momentum looks ahead: the first update is 1.5 times that of the gradient
/// assert_eq!(w.item::<f32>()?, 1.0 - 0.5 * 1.5 * 2.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Sgd {
    /// The decay rate of the momentum. `None`, the default, has no momentum.
    pub momentum: Option<f64>,
    /// True for Nesterov's momentum. Defaults to false.
    pub nesterov: bool,
    /// The element type in which the momentum is stored. `None`, the default, is that of the
    /// arithmetic.
    pub accumulator_dtype: Option<DType>,
}
impl Sgd {
    setters! {
        /// Adds momentum with this decay rate; there is none by default.
        pub fn momentum(decay: f64) = momentum: Some(decay);
        /// Uses Nesterov's momentum; off by default.
        pub fn nesterov() = nesterov: true;
        /// Sets the element type of the stored momentum, by default that of the arithmetic.
        pub fn accumulator_dtype(dtype: DType) = accumulator_dtype: Some(dtype);
    }
}
/// Creates an optimizer that subtracts the gradient times the learning rate.
///
/// The rate is a number or a [`Schedule`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim;
/// let opt = optim::sgd(0.1);
/// let mut w = Array::from(1.0f32);
/// let mut state = opt.init(&w)?;
/// for _ in 0..50 {
///     let g = grad(&w, |w| (w - 3.0).square());
///     (w, state) = opt.step(&w, &g, &state);
/// }
/// assert!((w.item::<f32>()? - 3.0).abs() < 1e-3);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn sgd(learning_rate: impl Into<Schedule>) -> Optimizer {
    sgd_with(learning_rate, Sgd::default())
}
/// Creates [`sgd`] with momentum. Slot: `trace`.
///
/// ```
/// use atmesh::optim::{Sgd, sgd_with};
/// let opt = sgd_with(0.1, Sgd::default().momentum(0.9).nesterov());
/// # let _ = opt;
/// ```
pub fn sgd_with(learning_rate: impl Into<Schedule>, options: Sgd) -> Optimizer {
    let momentum = options.momentum.map(|m| trace_as(m, options.nesterov, options.accumulator_dtype));
    momentum.unwrap_or_else(identity).then(scale_by_learning_rate(learning_rate))
}

/// Creates Adam with the options that [`Adam`] documents. Slots: `mu` and `nu`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::adam(1e-3);
/// # let _ = opt;
/// ```
pub fn adam(learning_rate: impl Into<Schedule>) -> Optimizer {
    adam_with(learning_rate, Adam::default())
}
/// Creates [`adam`] with options.
///
/// ```
/// use atmesh::optim::{Adam, adam_with};
/// let opt = adam_with(1e-3, Adam::default().b2(0.95).nesterov()); // NAdam
/// # let _ = opt;
/// ```
#[track_caller]
#[doc(alias("nadam"))]
pub fn adam_with(learning_rate: impl Into<Schedule>, options: Adam) -> Optimizer {
    let call = CallSite::here("optim::adam");
    chain([by_adam(options, call), scale_by_learning_rate(learning_rate)])
}

/// The weight decay of [`adamw_with`], [`lion_with`], [`lamb_with`] and [`adafactor_with`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{Adam, WeightDecay, adamw_with};
/// let matrices = WeightDecay::new(0.5).mask(|_, ty| ty.rank() >= 2);
/// let opt = adamw_with(0.5, Adam::default(), matrices);
/// let net = (Array::ones([1, 2]), Array::ones([2]));
/// let ((w, b), _) = opt.step(&net, &tree::map(&net, |x| x.zeros_like()), &opt.init(&net)?);
/// // the gradient is zero: only the weight decay changes parameters, by 0.5 * 0.5
/// assert_eq!((w.to_vec::<f32>()?, b.to_vec::<f32>()?), (vec![0.75; 2], vec![1.0; 2]));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WeightDecay {
    /// The share of each parameter that is subtracted in a step, times the learning rate.
    pub rate: f64,
    /// The parameters that decay. Defaults to all.
    pub mask: ParamMask,
}
conversions! { WeightDecay: [] f64 => |rate| WeightDecay { rate, mask: ParamMask::all() }; }
impl WeightDecay {
    /// Creates the decay of all parameters. A number converts to it too.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::{WeightDecay, lion_with};
    /// let opt = lion_with(0.5, Default::default(), WeightDecay::new(0.25));
    /// let w = Array::from(1.0f32);
    /// let (w, _) = opt.step(&w, &w.zeros_like(), &opt.init(&w)?);
    /// assert_eq!(w.item::<f32>()?, 1.0 - 0.5 * 0.25);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn new(rate: f64) -> WeightDecay {
        rate.into()
    }
    /// Restricts the decay to the parameters for which a function of path and type returns true.
    ///
    /// ```
    /// use atmesh::optim::{Adam, WeightDecay, adamw_with};
    /// let matrices = WeightDecay::new(0.1).mask(|_, ty| ty.rank() >= 2);
    /// let opt = adamw_with(1e-3, Adam::default(), matrices);
    /// # let _ = opt;
    /// ```
    pub fn mask(self, mask: impl Fn(&str, &ArrayType) -> bool + Send + Sync + 'static) -> WeightDecay {
        WeightDecay { mask: ParamMask::new(mask), ..self }
    }
    fn transform(self) -> Optimizer {
        decayed(self.rate, self.mask)
    }
}

/// Creates AdamW: [`adam`] with a weight decay of 1e-4 of all parameters. Slots: `mu` and `nu`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::adamw(optim::warmup_cosine_decay_schedule(0.0, 1e-3, 100, 1000, 1e-5));
/// # let _ = opt;
/// ```
pub fn adamw(learning_rate: impl Into<Schedule>) -> Optimizer {
    adamw_with(learning_rate, Adam::default(), 1e-4)
}
/// Creates [`adamw`] with options, and a weight decay, which may have a mask.
///
/// ```
/// use atmesh::optim::{Adam, adamw_with};
/// let opt = adamw_with(1e-3, Adam::default().b2(0.99), 0.1);
/// # let _ = opt;
/// ```
#[track_caller]
pub fn adamw_with(
    learning_rate: impl Into<Schedule>,
    options: Adam,
    weight_decay: impl Into<WeightDecay>,
) -> Optimizer {
    let call = CallSite::here("optim::adamw");
    chain([by_adam(options, call), weight_decay.into().transform(), scale_by_learning_rate(learning_rate)])
}

/// The options of [`lion_with`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{Lion, lion_with};
/// let options = Lion::default().b1(0.8).b2(0.5).mu_dtype(BF16);
/// let (opt, w) = (lion_with(0.25, options, 0.0), Array::from([1.0f32, 2.0]));
/// let (w, state) = opt.step(&w, &Array::from([4.0f32, -8.0]), &opt.init(&w)?);
/// // updates are signs, and the kept average is `(1 - b2) * g`
/// assert_eq!(w.to_vec::<f32>()?, [0.75, 2.25]);
/// assert_eq!(type_of(&state.slots["mu"][""]), "bfloat16[2]");
/// assert_eq!(state.slots["mu"][""].astype(F32).to_vec::<f32>()?, [2.0, -4.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lion {
    /// The decay rate of the average whose signs are the updates. Defaults to 0.9.
    pub b1: f64,
    /// The decay rate of the average that is kept. Defaults to 0.99.
    pub b2: f64,
    /// The element type in which the average is stored. `None`, the default, is that of the
    /// arithmetic.
    pub mu_dtype: Option<DType>,
}
impl Default for Lion {
    fn default() -> Lion {
        Lion { b1: 0.9, b2: 0.99, mu_dtype: None }
    }
}
impl Lion {
    setters! {
        /// Sets the decay rate of the average whose signs are the updates, 0.9 by default.
        pub fn b1(decay: f64) = b1: decay;
        /// Sets the decay rate of the average that is kept, 0.99 by default.
        pub fn b2(decay: f64) = b2: decay;
        /// Sets the element type of the stored average, by default that of the arithmetic.
        pub fn mu_dtype(dtype: DType) = mu_dtype: Some(dtype);
    }
}
/// Creates Lion, with a weight decay of 1e-3 of all parameters. Slot: `mu`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::lion(1e-4);
/// # let _ = opt;
/// ```
pub fn lion(learning_rate: impl Into<Schedule>) -> Optimizer {
    lion_with(learning_rate, Lion::default(), 1e-3)
}
/// Creates [`lion`] with options, and a weight decay, which may have a mask.
///
/// ```
/// use atmesh::optim::{Lion, lion_with};
/// let opt = lion_with(1e-4, Lion::default().b2(0.95), 0.1);
/// # let _ = opt;
/// ```
#[track_caller]
pub fn lion_with(
    learning_rate: impl Into<Schedule>,
    options: Lion,
    weight_decay: impl Into<WeightDecay>,
) -> Optimizer {
    let call = CallSite::here("optim::lion");
    chain([
        by_lion(options.b1, options.b2, options.mu_dtype, call),
        weight_decay.into().transform(),
        scale_by_learning_rate(learning_rate),
    ])
}

/// Creates RMSProp with the options that [`RmsProp`] documents. Slot: `nu`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::rmsprop(1e-3);
/// # let _ = opt;
/// ```
pub fn rmsprop(learning_rate: impl Into<Schedule>) -> Optimizer {
    rmsprop_with(learning_rate, RmsProp::default())
}
/// Creates [`rmsprop`] with options. Slots: `nu`, `mu` if centered, and `trace` with momentum.
///
/// ```
/// use atmesh::optim::{RmsProp, rmsprop_with};
/// let opt = rmsprop_with(1e-3, RmsProp::default().centered().momentum(0.9));
/// # let _ = opt;
/// ```
#[track_caller]
pub fn rmsprop_with(learning_rate: impl Into<Schedule>, options: RmsProp) -> Optimizer {
    let momentum = options.momentum.map(|m| trace_as(m, options.nesterov, None));
    chain([
        by_rms(options, CallSite::here("optim::rmsprop")),
        scale_by_learning_rate(learning_rate),
        momentum.unwrap_or_else(identity),
    ])
}

/// Creates LAMB: Adam with `eps` 1e-6, scaled by the norm of each parameter. Slots: `mu` and `nu`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::lamb(1e-3);
/// # let _ = opt;
/// ```
pub fn lamb(learning_rate: impl Into<Schedule>) -> Optimizer {
    lamb_with(learning_rate, Adam::default().eps(1e-6), 0.0)
}
/// Creates [`lamb`] with options, and a weight decay, which may have a mask.
///
/// The `eps` of the options is used as it is: LAMB's is 1e-6.
///
/// ```
/// use atmesh::optim::{Adam, lamb_with};
/// let opt = lamb_with(1e-3, Adam::default().eps(1e-6), 0.01);
/// # let _ = opt;
/// ```
#[track_caller]
pub fn lamb_with(
    learning_rate: impl Into<Schedule>,
    options: Adam,
    weight_decay: impl Into<WeightDecay>,
) -> Optimizer {
    let call = CallSite::here("optim::lamb");
    chain([
        by_adam(options, call),
        weight_decay.into().transform(),
        scale_by_trust_ratio(),
        scale_by_learning_rate(learning_rate),
    ])
}

/// The options of [`adafactor_with`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{Adafactor, adafactor_with};
/// let options = Adafactor::default().min_dim_size_to_factor(2).momentum(0.9).dtype_momentum(BF16);
/// let state = adafactor_with(0.5, options).init(&Array::ones([2, 3]))?;
/// assert_eq!(tree::paths(&state.slots), ["ema.", "v_col.", "v_row."]);
/// assert_eq!(type_of(&state.slots["ema"][""]), "bfloat16[2,3]");
/// let options = Adafactor::default().multiply_by_parameter_scale(false).weight_decay(0.25);
/// let (opt, w) = (adafactor_with(0.5, options.clipping_threshold(None)), Array::from(1.0f32));
/// let (w, _) = opt.step(&w, &Array::from(2.0f32), &opt.init(&w)?);
/// assert!((w.item::<f32>()? - (1.0 - 0.5 - 0.25)).abs() < 1e-6);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Adafactor {
    /// The minimum size of the two largest dimensions of a parameter whose moments are factored.
    /// Defaults to 128.
    pub min_dim_size_to_factor: usize,
    /// The exponent of the decay of second moments. Defaults to 0.8.
    pub decay_rate: f64,
    /// The number of the step at which the decay starts, for fine-tuning. Defaults to 0.
    pub decay_offset: i32,
    /// True to multiply updates by the root mean square of the parameters. Defaults to true.
    pub multiply_by_parameter_scale: bool,
    /// The maximum of the root mean square of an update. `None` does not clip. Defaults to 1.
    pub clipping_threshold: Option<f64>,
    /// The decay rate of the momentum. `None`, the default, has no momentum.
    pub momentum: Option<f64>,
    /// The element type in which the momentum is stored. `None`, the default, is that of the
    /// arithmetic.
    pub dtype_momentum: Option<DType>,
    /// The decay of parameters, not multiplied by the learning rate. `None`, the default, has none.
    pub weight_decay: Option<WeightDecay>,
    /// The term added to squared gradients. Defaults to 1e-30.
    pub eps: f64,
    /// True to factor second moments. Defaults to true.
    pub factored: bool,
}
impl Default for Adafactor {
    fn default() -> Adafactor {
        Adafactor {
            min_dim_size_to_factor: 128,
            decay_rate: 0.8,
            decay_offset: 0,
            multiply_by_parameter_scale: true,
            clipping_threshold: Some(1.0),
            momentum: None,
            dtype_momentum: None,
            weight_decay: None,
            eps: 1e-30,
            factored: true,
        }
    }
}
impl Adafactor {
    setters! {
        /// Sets the minimum size of dimensions whose moments are factored, 128 by default.
        pub fn min_dim_size_to_factor(size: usize) = min_dim_size_to_factor: size;
        /// Sets the exponent of the decay of second moments, 0.8 by default.
        pub fn decay_rate(exponent: f64) = decay_rate: exponent;
        /// Sets the number of the step at which the decay starts, 0 by default.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// use atmesh::optim::{Adafactor, adafactor_with};
        /// let opt = adafactor_with(0.5, Adafactor::default().decay_offset(100));
        /// let w = Array::from(1.0f32);
        /// let mut state = opt.init(&w)?;
        /// state.count = Array::from(100); // such as that of an earlier training run
        /// let (_, state) = opt.step(&w, &Array::from(2.0f32), &state);
        /// // step 100 counts as the first one: the second moment is the squared gradient
        /// assert_eq!(state.slots["v"][""].item::<f32>()?, 4.0);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn decay_offset(step: i32) = decay_offset: step;
        /// Sets whether updates are multiplied by the root mean square of the parameters, true by
        /// default.
        pub fn multiply_by_parameter_scale(multiply: bool) = multiply_by_parameter_scale: multiply;
        /// Sets the maximum of the root mean square of an update, 1 by default.
        pub fn clipping_threshold(threshold: Option<f64>) = clipping_threshold: threshold;
        /// Adds momentum with this decay rate; there is none by default.
        pub fn momentum(decay: f64) = momentum: Some(decay);
        /// Sets the element type of the stored momentum, by default that of the arithmetic.
        pub fn dtype_momentum(dtype: DType) = dtype_momentum: Some(dtype);
        /// Adds a decay of parameters, without the learning rate; there is none by default.
        pub fn weight_decay(decay: impl Into<WeightDecay>) = weight_decay: Some(decay.into());
        /// Sets the term added to squared gradients, 1e-30 by default.
        pub fn eps(eps: f64) = eps: eps;
        /// Sets whether second moments are factored, true by default.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// use atmesh::optim::{Adafactor, adafactor_with};
        /// let opt = adafactor_with(0.5, Adafactor::default().factored(false));
        /// let slots = opt.init(&Array::ones([256, 512]))?.slots;
        /// assert_eq!(type_of(&slots["v"][""]), "float32[256,512]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn factored(factored: bool) = factored: factored;
    }
}
/// Creates Adafactor. Slots: `v_row` and `v_col` of large matrices, and `v` of other parameters.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::adafactor(1e-2);
/// # let _ = opt;
/// ```
pub fn adafactor(learning_rate: impl Into<Schedule>) -> Optimizer {
    adafactor_with(learning_rate, Adafactor::default())
}
/// Creates [`adafactor`] with options. Another slot is `ema`, with momentum.
///
/// ```
/// use atmesh::optim::{Adafactor, adafactor_with};
/// let opt = adafactor_with(1e-2, Adafactor::default().momentum(0.9).weight_decay(1e-4));
/// # let _ = opt;
/// ```
#[track_caller]
pub fn adafactor_with(learning_rate: impl Into<Schedule>, options: Adafactor) -> Optimizer {
    let call = CallSite::here("optim::adafactor");
    let Adafactor { factored, decay_rate, decay_offset, min_dim_size_to_factor: min_dim_size, eps, .. } =
        options;
    let or_identity = |o: Option<Optimizer>| o.unwrap_or_else(identity);
    let scaled = options.multiply_by_parameter_scale.then(|| scale_by_param_block_rms(1e-3));
    chain([
        Optimizer::new(FactoredRms { factored, decay_rate, decay_offset, min_dim_size, eps }),
        or_identity(options.clipping_threshold.map(clip_by_block_rms)),
        by_schedule(learning_rate.into(), 1.0),
        or_identity(scaled),
        or_identity(options.momentum.map(|m| ema_as(m, false, options.dtype_momentum, call))),
        or_identity(options.weight_decay.map(WeightDecay::transform)),
        scale(-1.0),
    ])
}
