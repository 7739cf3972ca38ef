//! The line search of `minimize`: a step along a direction that satisfies the strong Wolfe
//! conditions.

use super::solution::{Leaves, add_scaled, choose, inner};
use crate::api::array::Array;
use crate::api::transform::while_loop;
use crate::core::DType;

/// The share of the predicted decrease that a step must reach.
const SUFFICIENT: f64 = 1e-4;

/// A point, and the value and the gradient there.
#[derive(Clone, Debug, atmesh_derive::Tree)]
pub(super) struct Sample {
    pub(super) x: Leaves,
    pub(super) value: Array,
    pub(super) grad: Leaves,
}

/// One end of the interval that contains a step: its length, and the value and the slope there.
#[derive(Clone, Debug, atmesh_derive::Tree)]
struct IntervalEnd {
    at: Array,
    value: Array,
    slope: Array,
}

#[derive(Clone, Debug, atmesh_derive::Tree)]
struct SearchState {
    /// The length of the next trial.
    at: Array,
    low: IntervalEnd,
    high: IntervalEnd,
    /// The best sample: the one at `low`, or the accepted one.
    best: Sample,
    accepted: Array,
    trials: Array,
}

/// A line search.
pub(super) struct LineSearch<'a> {
    pub(super) evaluate: &'a dyn Fn(&Leaves) -> Sample,
    pub(super) dtype: DType,
    /// The factor by which the slope must decrease.
    pub(super) curvature: f64,
    pub(super) max_trials: u32,
}

/// The result of a line search.
pub(super) struct FoundStep {
    pub(super) sample: Sample,
    /// True if the value decreased.
    pub(super) progress: Array,
    pub(super) trials: Array,
}

impl LineSearch<'_> {
    /// Searches from `start` along `direction`, with a first trial of length `first`.
    ///
    /// The interval from `low` to `high` contains an accepted step: at `low` the value is small
    /// enough and the slope is negative, at `high` the value is too large or the slope is positive.
    /// `high` is infinite at first.
    pub(super) fn run(&self, start: &Sample, direction: &Leaves, first: &Array) -> FoundStep {
        let slope = inner(&start.grad, direction, self.dtype);
        let zero = slope.zeros_like();
        let low = IntervalEnd { at: zero.clone(), value: start.value.clone(), slope: slope.clone() };
        let high = IntervalEnd { at: zero.full_like(f64::INFINITY), ..low.clone() };
        let no = zero.gt(0.0);
        let trials = zero.astype(DType::I32);
        let init = SearchState { at: first.clone(), low, high, best: start.clone(), accepted: no, trials };
        let max = i64::from(self.max_trials);
        let found = while_loop(
            init,
            |s| !&s.accepted & s.trials.lt(max),
            |s: SearchState| self.trial(s, start, direction, &slope),
        );
        let progress = &found.accepted | found.low.at.gt(0.0);
        FoundStep { sample: found.best, progress, trials: found.trials }
    }
    fn trial(&self, s: SearchState, start: &Sample, direction: &Leaves, slope: &Array) -> SearchState {
        let sample = (self.evaluate)(&add_scaled(&start.x, &s.at, direction));
        let here = inner(&sample.grad, direction, self.dtype);
        let enough = sample.value.le(&start.value + SUFFICIENT * &s.at * slope);
        // near the minimum, rounding hides the decrease of the value, but not that of the slope
        let noise = if self.dtype == DType::F64 { 1e-15 } else { 1e-6 };
        let near = sample.value.le(&start.value + noise * start.value.abs());
        let flat = here.le((2.0 * SUFFICIENT - 1.0) * slope);
        let low_enough = enough | (near & flat);
        let too_short = here.lt(self.curvature * slope);
        let too_long = here.gt(-self.curvature * slope) | !low_enough.clone();
        let accepted = &low_enough & !&too_short & !&too_long & here.is_finite();
        let end = IntervalEnd { at: s.at.clone(), value: sample.value.clone(), slope: here };
        let pick = |c: &Array, a: &IntervalEnd, b: &IntervalEnd| IntervalEnd {
            at: c.select(&a.at, &b.at),
            value: c.select(&a.value, &b.value),
            slope: c.select(&a.slope, &b.slope),
        };
        let low = pick(&too_long, &s.low, &end);
        let high = pick(&too_long, &end, &s.high);
        let better = &accepted | !&too_long;
        let best = Sample {
            x: choose(&better, &sample.x, &s.best.x),
            value: better.select(&sample.value, &s.best.value),
            grad: choose(&better, &sample.grad, &s.best.grad),
        };
        let at = next_trial(&low, &high);
        SearchState { at, low, high, best, accepted, trials: s.trials + 1 }
    }
}

/// Returns the next trial: the minimum of the cubic through both ends, or twice the length if the
/// interval is infinite.
fn next_trial(low: &IntervalEnd, high: &IntervalEnd) -> Array {
    let width = &high.at - &low.at;
    let middle = &low.at + 0.5 * &width;
    let d1 = &low.slope + &high.slope - 3.0 * (&high.value - &low.value) / &width;
    let d2 = (d1.square() - &low.slope * &high.slope).sqrt();
    let cubic = &high.at - &width * (&high.slope + &d2 - &d1) / (&high.slope - &low.slope + 2.0 * &d2);
    let inside = cubic.gt(&low.at + 0.1 * &width) & cubic.lt(&high.at - 0.1 * &width);
    high.at.is_finite().select(inside.select(cubic, middle), 2.0 * low.at.maximum(1e-10))
}
