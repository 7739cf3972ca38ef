//! What is computed, and what a byte costs beside it.

use crate::partition::layout::DimLayout;
use crate::partition::region::loop_box;
use crate::program::sentence::Sentence;

/// How many elements are computed at the cost of one byte received: a number, 0 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PerByte(u64);

/// More than this is no other choice: one byte outweighs all that is computed.
const MOST: f64 = 1e15;

/// Where no machine is named. Between the machines that programs are planned for (threads of one processor: a few; accelerators on
/// links: hundreds to thousands) it is a choice, not a measurement: so large that an exchange of a byte is worth saving wherever some tens of
/// elements are computed for it.
impl Default for PerByte {
    fn default() -> PerByte {
        PerByte::new(32.0)
    }
}

impl PerByte {
    /// So many elements; what is no number counts as none.
    pub(crate) fn new(elements: f64) -> PerByte {
        PerByte(elements.clamp(0.0, MOST).max(0.0).to_bits())
    }
    /// How many.
    pub(crate) fn elements(self) -> f64 {
        f64::from_bits(self.0)
    }
    /// What these bytes cost, with all that is computed.
    pub(crate) fn price(self, bytes: f64, work: f64) -> Price {
        Price { bytes, all: self.elements() * bytes + work }
    }
}

/// What a program costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Price {
    /// Bytes that all devices receive.
    pub(crate) bytes: f64,
    /// These and the elements that are computed, in elements.
    pub(crate) all: f64,
}

/// Elements that the busiest device computes.
pub(crate) fn work(s: &Sentence, loops: &[DimLayout]) -> f64 {
    // a line is computed once, however much of what comes out of it is kept; a bound loop has one step
    let steps = loop_box(loops, &s.extents, 0).into_iter().enumerate();
    let computed = steps.filter(|(l, _)| !s.binds(*l) && !s.body.along().contains(l));
    computed.map(|(_, v)| (v.1 - v.0) as f64).product()
}
