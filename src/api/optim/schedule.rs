//! Schedules: rates as functions of the number of steps.

use crate::api::array::{Array, Operand, Term, default_dtype};
use crate::api::trace::{in_call, poison};
use crate::core::{DType, Error, Fault, Result};
use crate::ir::program::CallSite;
use std::f64::consts::PI;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A rate for each step: a number, or a function of the number of earlier steps.
///
/// The function takes the count as a float scalar, so that it is written like arithmetic on
/// numbers. Numbers convert to constant schedules.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::{self, Schedule};
/// let inverse_root = Schedule::new(|count| 0.1 / (count + 1.0).sqrt());
/// assert_eq!(inverse_root.at(0).item::<f32>()?, 0.1);
/// assert_eq!(inverse_root.at(3).item::<f32>()?, 0.05);
/// let opt = optim::sgd(inverse_root);
/// # let _ = opt;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone)]
pub struct Schedule(Kind);

#[derive(Clone)]
enum Kind {
    Constant(f64),
    Function(Arc<dyn Fn(&Array) -> Array + Send + Sync>),
    /// The error of the function that made the schedule.
    Invalid(Error),
}

/// Prints a constant, or that the schedule is a function.
impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Constant(x) => write!(f, "Schedule({x})"),
            Kind::Function(_) => f.write_str("Schedule(function of the count)"),
            Kind::Invalid(e) => write!(f, "Schedule({e})"),
        }
    }
}

conversions! { Schedule:
    [] f64 => |rate| Schedule(Kind::Constant(rate));
    [] f32 => |rate| Schedule(Kind::Constant(rate.into()));
    [] &Schedule => |schedule| schedule.clone();
}

impl Schedule {
    /// Creates a schedule from a function of the count, which is a float32 or float64 scalar.
    ///
    /// ```
    /// use atmesh::optim::{self, Schedule};
    /// let cycle = Schedule::new(|count| 0.5 - 0.5 * (count / 2.0 - (count / 2.0).floor()));
    /// let rates = [0, 1, 2, 3].map(|count| cycle.at(count).item::<f32>().unwrap_or(f32::NAN));
    /// assert_eq!(rates, [0.5, 0.25, 0.5, 0.25]);
    /// let opt = optim::sgd(cycle);
    /// # let _ = opt;
    /// ```
    pub fn new(f: impl Fn(&Array) -> Array + Send + Sync + 'static) -> Schedule {
        Schedule(Kind::Function(Arc::new(f)))
    }
    /// Returns the rate after `count` steps: float64 if the count is float64, otherwise float32.
    ///
    /// ```
    /// use atmesh::optim::linear_schedule;
    /// assert_eq!(linear_schedule(1.0, 0.0, 4).at(1).item::<f32>()?, 0.75);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn at(&self, count: impl Operand) -> Array {
        in_call(Location::caller(), || {
            let count = match count.term() {
                Term::Array(a) => a,
                Term::Number(x) => Array::full(default_dtype(x).array_type([]), x),
            };
            let float64 = count.type_ref().is_ok_and(|t| t.dtype == DType::F64);
            self.rate(&count, if float64 { DType::F64 } else { DType::F32 })
        })
    }
    /// Returns the rate after `count` steps as a scalar of a float type.
    pub(super) fn rate(&self, count: &Array, dtype: DType) -> Array {
        match &self.0 {
            Kind::Constant(x) => count.astype(dtype).full_like(*x),
            Kind::Function(f) => f(&count.astype(dtype)).astype(dtype),
            Kind::Invalid(e) => poison(e.clone()),
        }
    }
    /// Returns the number of a constant schedule.
    pub(super) fn constant(&self) -> Option<f64> {
        if let Kind::Constant(x) = self.0 { Some(x) } else { None }
    }
    /// Returns the error of the function that made the schedule.
    pub(super) fn validity(&self) -> Result<()> {
        if let Kind::Invalid(e) = &self.0 { Err(e.clone()) } else { Ok(()) }
    }
    /// Creates a schedule, or one that carries the error.
    fn checked(
        call: CallSite<'_>,
        fault: Option<Fault>,
        f: impl Fn(&Array) -> Array + Send + Sync + 'static,
    ) -> Schedule {
        match fault {
            Some(fault) => Schedule(Kind::Invalid(call.error(fault, Vec::new))),
            None => Schedule::new(f),
        }
    }
}

fn at_least_one(steps: u64, name: &str) -> Option<Fault> {
    (steps == 0).then(|| {
        fault!(Data, "`{name}` is 0, so the schedule has no steps").help(format!("make `{name}` at least 1"))
    })
}

/// Creates a schedule that has the same value at every step.
///
/// ```
/// assert_eq!(atmesh::optim::constant_schedule(0.5).at(7).item::<f32>()?, 0.5);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn constant_schedule(value: f64) -> Schedule {
    value.into()
}

/// Creates a schedule that goes from `init` to `end` on a straight line in `steps` steps.
///
/// After `steps` steps it stays at `end`. With `steps` 0 it stays at `init`, as in optax.
///
/// ```
/// let s = atmesh::optim::linear_schedule(1.0, 0.5, 10);
/// assert_eq!((s.at(5).item::<f32>()?, s.at(99).item::<f32>()?), (0.75, 0.5));
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn linear_schedule(init: f64, end: f64, steps: u64) -> Schedule {
    polynomial_schedule(init, end, 1.0, steps)
}

/// Creates a schedule from `init` to `end` by a power of the share of steps that remain.
///
/// After `steps` steps it stays at `end`. With `steps` 0 it stays at `init`, as in optax.
///
/// ```
/// let s = atmesh::optim::polynomial_schedule(1.0, 0.0, 2.0, 4);
/// assert!((s.at(2).item::<f32>()? - 0.25).abs() < 1e-6);
/// assert_eq!(s.at(9).item::<f32>()?, 0.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn polynomial_schedule(init: f64, end: f64, power: f64, steps: u64) -> Schedule {
    if steps == 0 {
        return init.into();
    }
    Schedule::new(move |count| {
        let left = 1.0 - count.clamp(0.0, steps as f64) / steps as f64;
        let left = if power == 1.0 { left } else { left.pow(power) };
        (init - end) * left + end
    })
}

/// Creates a schedule from `init` to `alpha * init` by half a period of the cosine.
///
/// After `steps` steps it stays at `alpha * init`.
///
/// ```
/// let s = atmesh::optim::cosine_decay_schedule(2.0, 10, 0.1);
/// assert_eq!((s.at(0).item::<f32>()?, s.at(99).item::<f32>()?), (2.0, 0.2));
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// With `steps` 0 the schedule carries an error, which each use returns.
#[track_caller]
pub fn cosine_decay_schedule(init: f64, steps: u64, alpha: f64) -> Schedule {
    let call = CallSite::here("optim::cosine_decay_schedule");
    Schedule::checked(call, at_least_one(steps, "steps"), move |count| {
        init * cosine_decay(count, steps as f64, alpha)
    })
}
fn cosine_decay(count: &Array, steps: f64, alpha: f64) -> Array {
    let cosine = 0.5 * (1.0 + (PI * count.minimum(steps) / steps).cos());
    (1.0 - alpha) * cosine + alpha
}

/// Creates a schedule that rises from `init` to `peak` on a line, and then falls to `end` by half a
/// period of the cosine.
///
/// `warmup` is the number of steps of the line, and `steps` that of both parts. After `steps` steps
/// it stays at `end`.
///
/// ```
/// let s = atmesh::optim::warmup_cosine_decay_schedule(0.0, 1.0, 10, 100, 0.1);
/// let at = |count: i32| s.at(count).item::<f32>();
/// assert_eq!((at(0)?, at(5)?, at(10)?, at(500)?), (0.0, 0.5, 1.0, 0.1));
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// If `steps` is not greater than `warmup`, the schedule carries an error, which each use returns.
#[track_caller]
pub fn warmup_cosine_decay_schedule(init: f64, peak: f64, warmup: u64, steps: u64, end: f64) -> Schedule {
    let call = CallSite::here("optim::warmup_cosine_decay_schedule");
    let fault = (steps <= warmup).then(|| {
        fault!(
            Data,
            "the schedule has {steps} steps, of which {warmup} are its warm-up: none are left to decay"
        )
        .help("`steps` counts the steps of the warm-up too")
    });
    let alpha = if peak == 0.0 { 0.0 } else { end / peak };
    let rise = linear_schedule(init, peak, warmup);
    Schedule::checked(call, fault, move |count| {
        let fall = peak * cosine_decay(&(count - warmup as f64), (steps - warmup) as f64, alpha);
        count.lt(warmup as f64).select(rise.at(count), fall)
    })
}

/// The options of [`exponential_decay_with`].
///
/// ```
/// use atmesh::optim::{ExponentialDecay, exponential_decay_with};
/// let options = ExponentialDecay::default().begin(4).staircase().end(0.1);
/// let s = exponential_decay_with(1.0, 2, 0.5, options);
/// let rates = [4, 5, 6, 7, 99].map(|count| s.at(count).item::<f32>().unwrap_or(f32::NAN));
/// assert_eq!(rates, [1.0, 1.0, 0.5, 0.5, 0.1]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ExponentialDecay {
    /// The number of steps before the decay starts. Defaults to 0.
    pub begin: u64,
    /// True to decay once every `steps` steps instead of at every step. Defaults to false.
    pub staircase: bool,
    /// The value at which the decay ends. `None`, the default, never ends it.
    pub end: Option<f64>,
}
impl ExponentialDecay {
    setters! {
        /// Sets the number of steps before the decay starts, 0 by default.
        pub fn begin(steps: u64) = begin: steps;
        /// Decays once every `steps` steps instead of at every step, the default.
        pub fn staircase() = staircase: true;
        /// Sets the value at which the decay ends, by default none. It is a lower bound, or an
        /// upper bound if the rate is greater than 1.
        pub fn end(value: f64) = end: Some(value);
    }
}

/// Creates a schedule that is multiplied by `rate` in each `steps` steps, smoothly.
///
/// It never ends; [`exponential_decay_with`] bounds it. With `steps` or `rate` 0 it stays at
/// `init`, as in optax.
///
/// ```
/// let s = atmesh::optim::exponential_decay(1.0, 10, 0.25);
/// assert!((s.at(5).item::<f32>()? - 0.5).abs() < 1e-6);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn exponential_decay(init: f64, steps: u64, rate: f64) -> Schedule {
    exponential_decay_with(init, steps, rate, ExponentialDecay::default())
}

/// Creates an [`exponential_decay`] with options.
///
/// ```
/// use atmesh::optim::{ExponentialDecay, exponential_decay_with};
/// let s = exponential_decay_with(1.0, 10, 0.5, ExponentialDecay::default().staircase().end(0.25));
/// assert_eq!((s.at(9).item::<f32>()?, s.at(99).item::<f32>()?), (1.0, 0.25));
/// assert!((s.at(10).item::<f32>()? - 0.5).abs() < 1e-6);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn exponential_decay_with(init: f64, steps: u64, rate: f64, options: ExponentialDecay) -> Schedule {
    if steps == 0 || rate == 0.0 {
        return init.into();
    }
    Schedule::new(move |count| {
        let since = count - options.begin as f64;
        let periods = &since / steps as f64;
        let periods = if options.staircase { periods.floor() } else { periods };
        let decayed = since.le(0.0).select(init, init * periods.full_like(rate).pow(&periods));
        match options.end {
            Some(end) if rate < 1.0 => decayed.maximum(end),
            Some(end) => decayed.minimum(end),
            None => decayed,
        }
    })
}

/// Creates a schedule that rises from `init` to `peak` on a line, and then decays exponentially.
///
/// `warmup` is the number of steps of the line. After it, the value is multiplied by `rate` once
/// every `steps` steps, as by [`exponential_decay_with`].
///
/// ```
/// use atmesh::optim::{ExponentialDecay, warmup_exponential_decay_schedule};
/// let s = warmup_exponential_decay_schedule(0.0, 1.0, 4, 8, 0.5, ExponentialDecay::default());
/// assert_eq!((s.at(2).item::<f32>()?, s.at(4).item::<f32>()?), (0.5, 1.0));
/// assert!((s.at(12).item::<f32>()? - 0.5).abs() < 1e-6);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn warmup_exponential_decay_schedule(
    init: f64,
    peak: f64,
    warmup: u64,
    steps: u64,
    rate: f64,
    options: ExponentialDecay,
) -> Schedule {
    let rise = linear_schedule(init, peak, warmup);
    let fall = exponential_decay_with(peak, steps, rate, options);
    Schedule::new(move |count| count.lt(warmup as f64).select(rise.at(count), fall.at(count - warmup as f64)))
}

/// Creates a schedule that starts at `init`, and is multiplied by a scale from each boundary on.
///
/// After the last boundary it stays at its value.
///
/// ```
/// let s = atmesh::optim::piecewise_constant_schedule(1.0, [(10, 0.5), (20, 0.1)]);
/// let at = |count: i32| s.at(count).item::<f32>();
/// assert_eq!((at(9)?, at(10)?, at(20)?), (1.0, 0.5, 0.05));
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn piecewise_constant_schedule(init: f64, scales: impl IntoIterator<Item = (u64, f64)>) -> Schedule {
    let scales: Vec<(u64, f64)> = scales.into_iter().collect();
    Schedule::new(move |count| {
        scales.iter().fold(count.full_like(init), |value, (from, scale)| {
            count.ge(*from as f64).select(&value * *scale, &value)
        })
    })
}

/// Joins schedules: each one takes over at its boundary, and counts from there.
///
/// There is one boundary less than schedules, in increasing order. After the last boundary the last
/// schedule continues.
///
/// ```
/// use atmesh::optim::{constant_schedule, join_schedules, linear_schedule};
/// let s = join_schedules([linear_schedule(0.0, 1.0, 4), constant_schedule(0.5)], [4]);
/// let at = |count: i32| s.at(count).item::<f32>();
/// assert_eq!((at(2)?, at(4)?, at(100)?), (0.5, 0.5, 0.5));
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// If the boundaries do not fit, or a schedule carries an error, the result carries an error, which
/// each use returns.
#[track_caller]
pub fn join_schedules(
    schedules: impl IntoIterator<Item = Schedule>,
    boundaries: impl IntoIterator<Item = u64>,
) -> Schedule {
    let call = CallSite::here("optim::join_schedules");
    let all: Vec<Schedule> = schedules.into_iter().collect();
    let from: Vec<u64> = boundaries.into_iter().collect();
    if let Some(Err(e)) = all.iter().map(Schedule::validity).find(Result::is_err) {
        return Schedule(Kind::Invalid(e));
    }
    let fault = if all.len() != from.len() + 1 {
        let (s, b) = (all.len(), from.len());
        Some(
            fault!(Data, "{s} schedules cannot be joined at {b} boundaries")
                .help("give one boundary less than schedules: the count at which each next one starts"),
        )
    } else if from.windows(2).any(|w| w[0] > w[1]) {
        Some(
            fault!(Data, "the boundaries {from:?} do not increase").help("sort the schedules and boundaries"),
        )
    } else {
        None
    };
    Schedule::checked(call, fault, move |count| {
        let later = from.iter().zip(&all[1..]);
        later.fold(all[0].at(count), |value, (from, next)| {
            count.lt(*from as f64).select(value, next.at(count - *from as f64))
        })
    })
}
