//! The cost of computation, and the exchange rate between elements computed and bytes received.

use crate::core::SubAxis;
use crate::ir::program::LoopNest;
use crate::partition::program::{Slot, StoredValue};
use crate::partition::{
    boxes::loop_box, collective::CollectiveKind, cost::consumer::Consumer, cost::exchange::exchange_kind,
    layout::DimLayout, machine::MeshLinks,
};
use std::sync::Arc;

/// The prices of transfers: the elements computed in the time in which one byte is received, and
/// how the links of a machine differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TransferPrices {
    /// The number of elements for each byte, along the slowest axis. Finite and not negative.
    elements_per_byte: u64,
    /// The links of the mesh, unless every byte has the same price.
    links: Option<Arc<MeshLinks>>,
}

/// The maximum rate.
/// At this rate one byte outweighs all computation.
const MAX_ELEMENTS_PER_BYTE: f64 = 1e15;

/// The rate for an unknown machine: 32 elements per byte.
///
/// The value is a compromise and not a measurement: the rate is a few elements per byte for threads
/// of one processor, and hundreds to thousands for accelerators connected by links.
impl Default for TransferPrices {
    fn default() -> TransferPrices {
        TransferPrices::new(32.0)
    }
}

impl TransferPrices {
    /// Creates equal prices for all bytes from a number of elements, clamped to the valid range.
    /// NaN counts as 0.
    pub(crate) fn new(elements: f64) -> TransferPrices {
        let elements = elements.clamp(0.0, MAX_ELEMENTS_PER_BYTE).max(0.0);
        TransferPrices { elements_per_byte: elements.to_bits(), links: None }
    }
    /// Creates prices from links, and a number of elements for each byte along the slowest axis.
    pub(crate) fn over(elements: f64, links: MeshLinks) -> TransferPrices {
        let links = (!links.is_uniform()).then(|| Arc::new(links));
        TransferPrices { links, ..TransferPrices::new(elements) }
    }
    /// Returns the number of elements per byte, along the slowest axis.
    pub(crate) fn elements(&self) -> f64 {
        f64::from_bits(self.elements_per_byte)
    }
    /// Returns the price of a byte of a collective, relative to one along the slowest axis.
    pub(crate) fn weight(&self, kind: CollectiveKind, sub_axes: &[SubAxis]) -> f64 {
        let Some(links) = &self.links else { return 1.0 };
        let [slowest, rate] =
            [links.slowest_bytes_per_second(), links.price(kind, sub_axes).bytes_per_second];
        if slowest.is_finite() { slowest / rate } else { 1.0 }
    }
    /// Returns the price of a byte that these consumers fetch: that of the dearest consumer.
    pub(crate) fn fetch_weight(&self, slot: Slot, stored: &StoredValue, consumers: &[Consumer]) -> f64 {
        if self.links.is_none() {
            return 1.0;
        }
        let one = |r: &Consumer| {
            let (kind, sub_axes) = exchange_kind(slot, stored, r);
            (!sub_axes.is_empty()).then(|| self.weight(kind, &sub_axes))
        };
        consumers.iter().filter_map(one).reduce(f64::max).unwrap_or(1.0)
    }
    /// Returns the cost of receiving `bytes`, at the price of the slowest axis, and of computing
    /// `work` elements.
    pub(crate) fn cost(&self, bytes: f64, work: f64) -> CostEstimate {
        CostEstimate { bytes, total: self.elements() * bytes + work }
    }
}

/// The cost of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostEstimate {
    /// The bytes that all devices receive, each by its price relative to the slowest axis.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::diagnostic::Result;
    use crate::core::mesh::{Axis, Mesh};
    use crate::core::sharding::sub_axes::from_axes;
    use crate::partition::machine::{Link, Machine};

    /// The partitioner's prices are those of plans, relative to the slowest axis.
    #[test]
    fn a_byte_costs_what_its_links_take() -> Result<()> {
        let mesh = Mesh::without_devices([("out", 4), ("in", 8)])?;
        let weight = |m: &Machine, kind, axes: &[&str]| -> Result<f64> {
            let prices = TransferPrices::over(32.0, m.mesh_links(&mesh)?);
            Ok(prices.weight(kind, &from_axes(&mesh, axes.iter().map(|a| Axis::from(*a)))))
        };
        let nodes = Machine::new("nodes").nodes(8, Link::switch(450e9), Link::switch(50e9));
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a}, not {b}");
        near(weight(&nodes, CollectiveKind::AllGather, &["out"])?, 1.0);
        near(weight(&nodes, CollectiveKind::AllGather, &["in"])?, 50.0 / 450.0);
        near(
            weight(&nodes, CollectiveKind::AllReduce, &["out", "in"])?,
            f64::max(28.0 / 31.0 / 9.0, 3.0 / 31.0),
        );
        let ring = Machine::new("ring").links(Link::ring(1e9));
        near(weight(&ring, CollectiveKind::AllGather, &["in"])?, 1.0);
        near(weight(&ring, CollectiveKind::AllToAll, &["in"])?, 2.0);
        near(weight(&ring, CollectiveKind::AllGather, &["out", "in"])?, 0.5);
        // on one switch, all bytes cost the same, and the prices are those without a machine
        let switch = Machine::new("switch").links(Link::switch(1e9));
        assert_eq!(weight(&switch, CollectiveKind::AllToAll, &["out"])?.to_bits(), 1f64.to_bits());
        assert_eq!(TransferPrices::over(32.0, switch.mesh_links(&mesh)?), TransferPrices::default());
        Ok(())
    }
}
