//! The cost of computation, and the exchange rate between elements computed and bytes received.

use crate::ir::program::loop_nest::LoopNest;
use crate::partition::boxes::loop_box;
use crate::partition::layout::DimLayout;

/// The number of elements computed in the time in which one byte is received.
/// Finite and not negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ElementsPerByte(u64);

/// The maximum rate.
/// At this rate one byte outweighs all computation.
const MAX_ELEMENTS_PER_BYTE: f64 = 1e15;

/// The rate for an unknown machine: 32 elements per byte.
///
/// The value is a compromise and not a measurement: the rate is a few elements per byte for threads
/// of one processor, and hundreds to thousands for accelerators connected by links.
impl Default for ElementsPerByte {
    fn default() -> ElementsPerByte {
        ElementsPerByte::new(32.0)
    }
}

impl ElementsPerByte {
    /// Creates a rate from a number of elements, clamped to the valid range.
    /// NaN counts as 0.
    pub(crate) fn new(elements: f64) -> ElementsPerByte {
        ElementsPerByte(elements.clamp(0.0, MAX_ELEMENTS_PER_BYTE).max(0.0).to_bits())
    }
    /// Returns the number of elements per byte.
    pub(crate) fn elements(self) -> f64 {
        f64::from_bits(self.0)
    }
    /// Returns the cost of receiving `bytes` and computing `work` elements.
    pub(crate) fn cost(self, bytes: f64, work: f64) -> CostEstimate {
        CostEstimate { bytes, total: self.elements() * bytes + work }
    }
}

/// The cost of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostEstimate {
    /// The bytes that all devices receive.
    pub(crate) bytes: f64,
    /// The total cost, in elements: those computed, plus the bytes times the rate.
    pub(crate) total: f64,
}

/// Returns the number of elements that the busiest device computes.
pub(crate) fn computed_elements(s: &LoopNest, loops: &[DimLayout]) -> f64 {
    // a row is computed once, however many of its elements are read; a dynamically indexed loop
    // takes one step
    let steps = loop_box(loops, &s.extents, 0).into_iter().enumerate();
    let computed = steps.filter(|(l, _)| !s.is_dynamic_loop(*l) && !s.compute.row_loops().contains(l));
    computed.map(|(_, v)| (v.1 - v.0) as f64).product()
}
