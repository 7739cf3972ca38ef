//! Partial values: how the parts of a sum become the value, and what that moves.

use crate::partition::draft::{self, Draft};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::reader::Reader;
use crate::partition::program::Stored;
use crate::sharding::atoms::{ways, without};

/// Bytes that all devices receive to combine the parts of a value into this layout, and the layout in between if it is cheaper to
/// scatter the sum along a dimension first and to fetch it from there.
pub(super) fn reduce_way(d: &Draft, from: &Stored, to: &Layout) -> (f64, Option<Layout>) {
    let bytes = from.dtype.size() as f64;
    let stay = to.partial.clone().map(|p| p.1).unwrap_or_default();
    let parts = from.layout.partial.clone().map(|p| p.1).unwrap_or_default();
    let gone = without(&parts, &stay).unwrap_or(parts);
    let copies = ways(&gone) as i64;
    let s = draft::copy(0, from.dtype, &from.shape);
    let to_reader = Reader { sentence: &s, read: 0, layout: &to.dims };
    let direct = moved(d, from, &to_reader, copies);
    let mut best = (direct, None);
    for dim in 0..from.shape.rank() {
        let mut mid = Layout { dims: from.layout.dims.clone(), partial: to.partial.clone() };
        let atoms = mid.dims[dim].atoms.iter().chain(&gone).copied();
        mid.dims[dim] = DimLayout::new(from.shape[dim], atoms);
        let scattered = moved(d, from, &Reader { layout: &mid.dims, ..to_reader }, copies);
        let there = Stored { layout: mid.clone(), ..from.clone() };
        let total = scattered + moved(d, &there, &to_reader, 1);
        // at equal bytes: fewer steps
        if total * (1.0 + 1e-9) < best.0 - 1.0 {
            best = (total, Some(mid));
        }
    }
    (best.0 * bytes, best.1)
}

/// Elements that all devices receive for one reader of a value of which `copies` parts are combined.
pub(super) fn moved(d: &Draft, from: &Stored, reader: &Reader, copies: i64) -> f64 {
    d.prices.of(d.devices, 0, from, &[*reader], copies).total as f64
}
