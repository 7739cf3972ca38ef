//! Transforms that scale updates: by rates, moments and norms.

use super::optimizer::Optimizer;
use super::schedule::Schedule;
use super::state::{Leaf, LeafSlot, Transform, UpdateStep, compute_dtype};
use crate::api::array::Array;
use crate::core::{ArrayType, DType, Fault, Result};
use crate::ir::program::CallSite;

/// Returns a fault if a decay rate is not in the range from 0 to 1.
pub(super) fn check_decay(name: &str, rate: f64) -> Option<Fault> {
    (!(0.0..=1.0).contains(&rate)).then(|| {
        fault!(Data, "`{name}` is {rate}, but a decay rate is from 0 to 1")
            .help("0.9 keeps nine tenths of the average")
    })
}

/// Returns `decay * old + (1 - decay) * new`.
pub(super) fn moving_average(old: &Array, new: &Array, decay: f64) -> Array {
    (1.0 - decay) * new + decay * old
}
/// Returns `1 - decay^count`, the weight of the steps so far in a moving average that starts at 0.
pub(super) fn debias(count: &Array, decay: f64) -> Array {
    if decay == 0.0 { count.ones_like() } else { -(decay.ln() * count).expm1() }
}

struct Scale(f64);
impl Transform for Scale {
    fn update(&self, step: &mut UpdateStep) {
        step.map(|l| &l.update * self.0);
    }
}
/// Multiplies updates by a number.
///
/// ```
/// use atmesh::optim::{self, scale};
/// let opt = optim::scale_by_adam().then(scale(-1e-3));
/// # let _ = opt;
/// ```
pub fn scale(factor: f64) -> Optimizer {
    Optimizer::new(Scale(factor))
}

/// The factor of a rate: 1, or -1 for updates that descend.
struct ScaleBySchedule(Schedule, f64);
impl Transform for ScaleBySchedule {
    fn update(&self, step: &mut UpdateStep) {
        if let Some(rate) = self.0.constant() {
            return step.map(|l| &l.update * (rate * self.1));
        }
        let rates = step.by_dtype(|dtype| self.0.rate(&step.count, dtype) * self.1);
        step.map(|l| &l.update * &rates[&compute_dtype(l.ty.dtype)]);
    }
}
/// Multiplies updates by the value of a schedule, whose count is the number of earlier steps.
///
/// ```
/// use atmesh::optim::{self, cosine_decay_schedule};
/// let opt = optim::scale_by_schedule(cosine_decay_schedule(-0.1, 100, 0.0));
/// # let _ = opt;
/// ```
pub fn scale_by_schedule(schedule: impl Into<Schedule>) -> Optimizer {
    by_schedule(schedule.into(), 1.0)
}
/// Multiplies updates by minus the learning rate, so that they descend.
///
/// It is the last transform of [`sgd`](crate::optim::sgd) and of the other optimizers.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::scale_by_rms().then(optim::scale_by_learning_rate(1e-3));
/// # let _ = opt;
/// ```
pub fn scale_by_learning_rate(rate: impl Into<Schedule>) -> Optimizer {
    by_schedule(rate.into(), -1.0)
}
pub(super) fn by_schedule(schedule: Schedule, sign: f64) -> Optimizer {
    let wrong = schedule.validity().err();
    Optimizer::new(ScaleBySchedule(schedule, sign)).invalid_error(wrong)
}

/// The options of [`scale_by_adam_with`] and [`adam_with`](crate::optim::adam_with).
///
/// ```
/// use atmesh::{Array, DType::BF16, optim::{Adam, adam_with}, type_of};
/// let adam = Adam::default().b1(0.8).b2(0.95).eps(1e-6).eps_root(1e-8).mu_dtype(BF16).nesterov();
/// let state = adam_with(1e-3, adam).init(&Array::ones([2]))?;
/// assert_eq!(type_of(&state.slots["mu"][""]), "bfloat16[2]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Adam {
    /// The decay rate of the average of gradients. Defaults to 0.9.
    pub b1: f64,
    /// The decay rate of the average of squared gradients. Defaults to 0.999.
    pub b2: f64,
    /// The term added to the denominator. Defaults to 1e-8.
    pub eps: f64,
    /// The term added under the square root of the denominator. Defaults to 0.
    pub eps_root: f64,
    /// The element type of the stored average of gradients. `None`, the default: the arithmetic's.
    pub mu_dtype: Option<DType>,
    /// True for Nesterov's momentum (NAdam). Defaults to false.
    pub nesterov: bool,
}
impl Default for Adam {
    fn default() -> Adam {
        Adam { b1: 0.9, b2: 0.999, eps: 1e-8, eps_root: 0.0, mu_dtype: None, nesterov: false }
    }
}
impl Adam {
    setters! {
        /// Sets the decay rate of the average of gradients, 0.9 by default.
        pub fn b1(decay: f64) = b1: decay;
        /// Sets the decay rate of the average of squared gradients, 0.999 by default.
        pub fn b2(decay: f64) = b2: decay;
        /// Sets the term added to the denominator, 1e-8 by default.
        pub fn eps(eps: f64) = eps: eps;
        /// Sets the term added under the square root of the denominator, 0 by default.
        pub fn eps_root(eps: f64) = eps_root: eps;
        /// Sets the element type of the stored average of gradients, by default the arithmetic's.
        pub fn mu_dtype(dtype: DType) = mu_dtype: Some(dtype);
        /// Uses Nesterov's momentum; off by default.
        pub fn nesterov() = nesterov: true;
    }
    pub(super) fn fault(&self) -> Option<Fault> {
        check_decay("b1", self.b1)
            .or_else(|| check_decay("b2", self.b2))
            .or_else(|| check_float(self.mu_dtype))
    }
}
/// Returns a fault if the element type of a slot is not a float.
pub(super) fn check_float(dtype: Option<DType>) -> Option<Fault> {
    let dtype = dtype.filter(|d| !d.is_float())?;
    Some(
        fault!(Dtype, "slots are floats, but {dtype} is not a float")
            .help("store them as BF16, F16, F32 or F64"),
    )
}

struct ScaleByAdam(Adam);
impl Transform for ScaleByAdam {
    fn slot_names(&self) -> Vec<String> {
        vec!["mu".into(), "nu".into()]
    }
    fn slots(&self, _: &str, _: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        Ok(vec![LeafSlot { dtype: self.0.mu_dtype, ..LeafSlot::new("mu") }, LeafSlot::new("nu")])
    }
    fn update(&self, step: &mut UpdateStep) {
        let Adam { b1, b2, eps, eps_root, nesterov, .. } = self.0;
        let [c1, c2] = [b1, b2].map(|b| step.by_dtype(|d| debias(&step.count_as(d, 1), b)));
        let c3 = step.by_dtype(|d| debias(&step.count_as(d, 2), b1));
        for leaf in &mut step.leaves {
            let dtype = compute_dtype(leaf.ty.dtype);
            let mu = moving_average(&leaf.slot("mu"), &leaf.update, b1);
            let nu = moving_average(&leaf.slot("nu"), &leaf.update.square(), b2);
            let mu_hat = if nesterov {
                b1 * (&mu / &c3[&dtype]) + (1.0 - b1) * (&leaf.update / &c1[&dtype])
            } else {
                &mu / &c1[&dtype]
            };
            let root = &nu / &c2[&dtype];
            let root = if eps_root == 0.0 { root.sqrt() } else { (root + eps_root).sqrt() };
            leaf.update = mu_hat / (root + eps);
            leaf.set_slot("mu", mu);
            leaf.set_slot("nu", nu);
        }
    }
}
/// Divides the average of gradients by the root of the average of their squares (Adam).
///
/// Slots: `mu` and `nu`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::scale_by_adam().then(optim::scale(-1e-3));
/// # let _ = opt;
/// ```
#[track_caller]
pub fn scale_by_adam() -> Optimizer {
    scale_by_adam_with(Adam::default())
}
/// Creates [`scale_by_adam`] with options.
///
/// ```
/// use atmesh::optim::{Adam, scale_by_adam_with};
/// let opt = scale_by_adam_with(Adam::default().b2(0.95));
/// # let _ = opt;
/// ```
#[track_caller]
pub fn scale_by_adam_with(options: Adam) -> Optimizer {
    by_adam(options, CallSite::here("optim::scale_by_adam"))
}
pub(super) fn by_adam(options: Adam, call: CallSite<'_>) -> Optimizer {
    Optimizer::new(ScaleByAdam(options)).invalid(options.fault(), call)
}

struct Momentum {
    decay: f64,
    nesterov: bool,
    dtype: Option<DType>,
}
impl Transform for Momentum {
    fn slot_names(&self) -> Vec<String> {
        vec!["trace".into()]
    }
    fn slots(&self, _: &str, _: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        Ok(vec![LeafSlot { dtype: self.dtype, ..LeafSlot::new("trace") }])
    }
    fn update(&self, step: &mut UpdateStep) {
        for leaf in &mut step.leaves {
            let trace = &leaf.update + self.decay * leaf.slot("trace");
            leaf.update = if self.nesterov { &leaf.update + self.decay * &trace } else { trace.clone() };
            leaf.set_slot("trace", trace);
        }
    }
}
/// Replaces updates by their decayed sum (momentum).
///
/// Slot: `trace`. `nesterov` adds the gradient once more, ahead of the sum.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::trace(0.9, false).then(optim::scale(-0.1)); // `sgd` with momentum
/// # let _ = opt;
/// ```
pub fn trace(decay: f64, nesterov: bool) -> Optimizer {
    trace_as(decay, nesterov, None)
}
pub(super) fn trace_as(decay: f64, nesterov: bool, dtype: Option<DType>) -> Optimizer {
    Optimizer::new(Momentum { decay, nesterov, dtype })
}

struct Ema {
    decay: f64,
    debias: bool,
    dtype: Option<DType>,
}
impl Transform for Ema {
    fn slot_names(&self) -> Vec<String> {
        vec!["ema".into()]
    }
    fn slots(&self, _: &str, _: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        Ok(vec![LeafSlot { dtype: self.dtype, ..LeafSlot::new("ema") }])
    }
    fn update(&self, step: &mut UpdateStep) {
        let c = self.debias.then(|| step.by_dtype(|d| debias(&step.count_as(d, 1), self.decay)));
        for leaf in &mut step.leaves {
            let ema = moving_average(&leaf.slot("ema"), &leaf.update, self.decay);
            leaf.update = match &c {
                Some(c) => &ema / &c[&compute_dtype(leaf.ty.dtype)],
                None => ema.clone(),
            };
            leaf.set_slot("ema", ema);
        }
    }
}
/// Replaces updates by their exponential moving average.
///
/// Slot: `ema`. With `debias` the average of the first steps is divided by the sum of its weights.
/// For an average of the parameters, see [`incremental_update`](crate::optim::incremental_update).
///
/// ```
/// use atmesh::optim;
/// let opt = optim::ema(0.9, true).then(optim::scale(-0.1));
/// # let _ = opt;
/// ```
#[track_caller]
pub fn ema(decay: f64, debias: bool) -> Optimizer {
    ema_as(decay, debias, None, CallSite::here("optim::ema"))
}
pub(super) fn ema_as(decay: f64, debias: bool, dtype: Option<DType>, call: CallSite<'_>) -> Optimizer {
    let fault = check_decay("decay", decay).or_else(|| check_float(dtype));
    Optimizer::new(Ema { decay, debias, dtype }).invalid(fault, call)
}

/// The options of [`scale_by_rms_with`] and [`rmsprop_with`](crate::optim::rmsprop_with).
///
/// ```
/// use atmesh::{Array, optim::{RmsProp, rmsprop_with}};
/// let options = RmsProp::default().decay(0.5).initial_scale(4.0).eps_in_sqrt(false).eps(2.0);
/// let (opt, w) = (rmsprop_with(1.0, options), Array::from(3.0f32));
/// let (w, _) = opt.step(&w, &Array::from(2.0f32), &opt.init(&w)?);
/// assert_eq!(w.item::<f32>()?, 2.5); // 3 - 2 / (sqrt((4 + 2 * 2) / 2) + 2)
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RmsProp {
    /// The decay rate of the average of squares. Defaults to 0.9.
    pub decay: f64,
    /// The term added to the denominator. Defaults to 1e-8.
    pub eps: f64,
    /// True to add `eps` under the square root, false to add it to the root as PyTorch does.
    /// Defaults to true.
    pub eps_in_sqrt: bool,
    /// The value of the average of squares before the first step. Defaults to 0.
    pub initial_scale: f64,
    /// True to divide by an estimate of the variance instead of the square. Defaults to false.
    pub centered: bool,
    /// True to divide averages by the sum of their weights. Defaults to false.
    pub bias_correction: bool,
    /// The decay rate of the momentum that [`rmsprop_with`](crate::optim::rmsprop_with) adds.
    /// `None`, the default, adds none.
    pub momentum: Option<f64>,
    /// True for Nesterov's momentum. Defaults to false.
    pub nesterov: bool,
}
impl Default for RmsProp {
    fn default() -> RmsProp {
        RmsProp {
            decay: 0.9,
            eps: 1e-8,
            eps_in_sqrt: true,
            initial_scale: 0.0,
            centered: false,
            bias_correction: false,
            momentum: None,
            nesterov: false,
        }
    }
}
impl RmsProp {
    setters! {
        /// Sets the decay rate of the average of squares, 0.9 by default.
        pub fn decay(decay: f64) = decay: decay;
        /// Sets the term added to the denominator, 1e-8 by default.
        pub fn eps(eps: f64) = eps: eps;
        /// Sets whether `eps` is added under the square root, true by default.
        pub fn eps_in_sqrt(inside: bool) = eps_in_sqrt: inside;
        /// Sets the value of the average of squares before the first step, 0 by default.
        pub fn initial_scale(scale: f64) = initial_scale: scale;
        /// Divides by an estimate of the variance instead of the square; off by default.
        pub fn centered() = centered: true;
        /// Divides averages by the sum of their weights; off by default.
        pub fn bias_correction() = bias_correction: true;
        /// Adds momentum with this decay rate; there is none by default.
        pub fn momentum(decay: f64) = momentum: Some(decay);
        /// Uses Nesterov's momentum; off by default.
        pub fn nesterov() = nesterov: true;
    }
}

struct ScaleByRms(RmsProp);
impl Transform for ScaleByRms {
    fn slot_names(&self) -> Vec<String> {
        if self.0.centered { vec!["mu".into(), "nu".into()] } else { vec!["nu".into()] }
    }
    fn slots(&self, _: &str, _: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        let nu = LeafSlot::new("nu").fill(self.0.initial_scale);
        Ok(if self.0.centered { vec![LeafSlot::new("mu"), nu] } else { vec![nu] })
    }
    fn update(&self, step: &mut UpdateStep) {
        let options = self.0;
        let correction = options.bias_correction;
        let c = correction.then(|| step.by_dtype(|d| debias(&step.count_as(d, 1), options.decay)));
        for leaf in &mut step.leaves {
            let dtype = compute_dtype(leaf.ty.dtype);
            let corrected = |x: &Array| c.as_ref().map_or_else(|| x.clone(), |c| x / &c[&dtype]);
            let nu = moving_average(&leaf.slot("nu"), &leaf.update.square(), options.decay);
            let mut variance = corrected(&nu);
            if options.centered {
                let mu = moving_average(&leaf.slot("mu"), &leaf.update, options.decay);
                // rounding can make it negative
                variance = (variance - corrected(&mu).square()).maximum(0.0);
                leaf.set_slot("mu", mu);
            }
            leaf.update = if options.eps_in_sqrt {
                (variance + options.eps).rsqrt() * &leaf.update
            } else {
                &leaf.update / (variance.sqrt() + options.eps)
            };
            leaf.set_slot("nu", nu);
        }
    }
}
/// Divides updates by the root of the average of their squares.
///
/// Slot: `nu`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::scale_by_rms().then(optim::scale(-1e-3));
/// # let _ = opt;
/// ```
#[track_caller]
pub fn scale_by_rms() -> Optimizer {
    scale_by_rms_with(RmsProp::default())
}
/// Creates [`scale_by_rms`] with options; those of the momentum have no effect.
///
/// Slots: `nu`, and `mu` if the options are centered (optax's `scale_by_stddev`).
///
/// ```
/// use atmesh::optim::{RmsProp, scale_by_rms_with};
/// let opt = scale_by_rms_with(RmsProp::default().centered());
/// # let _ = opt;
/// ```
#[track_caller]
#[doc(alias("scale_by_stddev"))]
pub fn scale_by_rms_with(options: RmsProp) -> Optimizer {
    by_rms(options, CallSite::here("optim::scale_by_rms"))
}
pub(super) fn by_rms(options: RmsProp, call: CallSite<'_>) -> Optimizer {
    Optimizer::new(ScaleByRms(options)).invalid(check_decay("decay", options.decay), call)
}

struct ScaleByLion {
    b1: f64,
    b2: f64,
    mu_dtype: Option<DType>,
}
impl Transform for ScaleByLion {
    fn slot_names(&self) -> Vec<String> {
        vec!["mu".into()]
    }
    fn slots(&self, _: &str, _: &ArrayType) -> Result<Vec<LeafSlot>, Fault> {
        Ok(vec![LeafSlot { dtype: self.mu_dtype, ..LeafSlot::new("mu") }])
    }
    fn update(&self, step: &mut UpdateStep) {
        for leaf in &mut step.leaves {
            let mu = leaf.slot("mu");
            let new = moving_average(&mu, &leaf.update, self.b2);
            leaf.update = moving_average(&mu, &leaf.update, self.b1).sign();
            leaf.set_slot("mu", new);
        }
    }
}
/// Replaces updates by the signs of an average of them (Lion).
///
/// `b1` is the decay rate of the average whose signs are taken, `b2` that of the average that is
/// kept. Slot: `mu`.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::scale_by_lion(0.9, 0.99).then(optim::scale(-1e-4));
/// # let _ = opt;
/// ```
#[track_caller]
pub fn scale_by_lion(b1: f64, b2: f64) -> Optimizer {
    by_lion(b1, b2, None, CallSite::here("optim::scale_by_lion"))
}
pub(super) fn by_lion(b1: f64, b2: f64, mu_dtype: Option<DType>, call: CallSite<'_>) -> Optimizer {
    let fault = check_decay("b1", b1).or_else(|| check_decay("b2", b2)).or_else(|| check_float(mu_dtype));
    Optimizer::new(ScaleByLion { b1, b2, mu_dtype }).invalid(fault, call)
}

/// Returns the Euclidean norm of an array.
fn norm(x: &Array) -> Array {
    x.square().sum(..).sqrt()
}

struct ScaleByTrustRatio;
impl Transform for ScaleByTrustRatio {
    fn update(&self, step: &mut UpdateStep) {
        step.map(|l| {
            let (p, u) = (norm(&l.param), norm(&l.update));
            let ratio = (p.eq(0.0) | u.eq(0.0)).select(1.0, &p / &u);
            &l.update * ratio
        });
    }
}
/// Multiplies the update of each parameter by the norm of the parameter, and divides it by its own
/// norm (LAMB, LARS).
///
/// The ratio is 1 if one of the norms is 0.
///
/// ```
/// use atmesh::optim;
/// let opt = optim::chain([optim::scale_by_trust_ratio(), optim::sgd(1e-2)]);
/// # let _ = opt;
/// ```
pub fn scale_by_trust_ratio() -> Optimizer {
    Optimizer::new(ScaleByTrustRatio)
}

/// Returns the root of the mean of squares of an array.
pub(super) fn root_mean_square(x: &Array) -> Array {
    x.square().mean(..).sqrt()
}

struct ScaleByParamBlockRms(f64);
impl Transform for ScaleByParamBlockRms {
    fn update(&self, step: &mut UpdateStep) {
        step.map(|l: &Leaf| &l.update * root_mean_square(&l.param).maximum(self.0));
    }
}
/// Multiplies the update of each parameter by the root of the mean square of the parameter, or by
/// `min_scale` if that is greater (Adafactor).
///
/// ```
/// use atmesh::optim;
/// let opt = optim::scale_by_param_block_rms(1e-3).then(optim::scale(-1.0));
/// # let _ = opt;
/// ```
pub fn scale_by_param_block_rms(min_scale: f64) -> Optimizer {
    Optimizer::new(ScaleByParamBlockRms(min_scale))
}
