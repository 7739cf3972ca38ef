//! Axis names, and specs that say which axes split which dimension of an array.

mod axis;
mod spec;

pub use axis::{Axes, Axis, AxisType};
pub use spec::Spec;
