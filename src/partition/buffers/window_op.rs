//! Operations on the steps of windows, by which the derivative of an extreme is computed.

use crate::core::types::DType;
use crate::partition::Slot;

/// The kind of a [`WindowOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowOpKind {
    /// The result has, for each window, the first step at which the element of value 0 equals that
    /// of value 1 or is a NaN, or `i32::MAX`.
    Find,
    /// The result has 0, to which the element of value 1 of each window is added at the step that
    /// value 0 has. If an element is in several windows, these are added in their order.
    Place,
}

impl WindowOpKind {
    /// Returns the name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WindowOpKind::Find => "steps of windows",
            WindowOpKind::Place => "elements at steps",
        }
    }
}

/// The steps of windows: found, or used to place an element of each window.
#[derive(Clone, Debug)]
pub(crate) struct WindowOp {
    /// The value that it computes.
    pub(crate) out: Slot,
    /// The kind of the operation.
    pub(crate) kind: WindowOpKind,
    /// The values that it reads.
    pub(crate) reads: [Slot; 2],
    /// The type of the elements.
    pub(crate) dtype: DType,
    /// The dimensions.
    pub(crate) dims: Vec<WindowedDim>,
    /// The number of the step that is the first one along all dimensions.
    pub(crate) first_step: i64,
}

/// A dimension of windows: step t of window j is at element `stride·j + dilation·t + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WindowedDim {
    /// The number of windows.
    pub(crate) windows: i64,
    /// The number of elements. Steps may be at other positions.
    pub(crate) elements: i64,
    /// The elements from one window to the next.
    pub(crate) stride: i64,
    /// The element of the first step of the first window.
    pub(crate) offset: i64,
    /// The number of steps.
    pub(crate) taps: i64,
    /// The elements from one step to the next.
    pub(crate) dilation: i64,
    /// By how much the number of a step grows from one step to the next.
    pub(crate) step: i64,
}
