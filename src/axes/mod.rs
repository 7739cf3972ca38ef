//! The words of shardings: names of axes, and specs that say which axes split which dimension.

mod axis;
mod spec;

pub use axis::{Axes, Axis, AxisType};
pub use spec::Spec;
