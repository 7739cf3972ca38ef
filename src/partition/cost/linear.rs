//! Linear block ends: finds the device coordinates where the formula for a fetch's cost changes.
//!
//! The intervals that a device holds or needs start and end at linear functions ("lines") of its
//! coordinates.

use crate::core::sharding::sub_axes::SubAxes;
use crate::core::util::small_sort;
use crate::ir::program::loop_nest::Source;
use crate::partition::cost::consumer::Consumer;
use crate::partition::layout::DimLayout;
use crate::partition::program::{Slot, StoredValue};
use crate::partition::work;
use std::collections::BTreeSet;

/// A device coordinate, and the pieces on which the number of fetched elements is a polynomial.
pub(crate) struct DeviceCoordinate {
    /// The sub-axes that form the coordinate.
    pub(crate) layout: DimLayout,
    /// The first coordinate of each piece, then the end.
    pub(crate) nodes: Vec<i64>,
    /// The degree of the polynomial on each piece.
    pub(crate) degree: i64,
}

/// The ends of intervals in one dimension: linear functions of coordinates, and constants.
#[derive(Default)]
struct LinearGroup {
    /// The linear functions, as (coordinate, slope, offset).
    lines: Vec<(usize, f64, f64)>,
    /// The constants.
    constants: Vec<f64>,
}

/// The maximum number of separate runs of indices of one dimension.
const MAX_RUNS: usize = 64;

/// Returns the coordinates with the pieces on which the count is a polynomial.
/// `None` if an end is not linear in one coordinate.
pub(crate) fn linear_ends(
    slot: Slot,
    stored: &StoredValue,
    readers: &[Consumer],
    lists: &[SubAxes],
) -> Option<Vec<DeviceCoordinate>> {
    let variable = |l: &DimLayout| lists.iter().position(|a| *a == l.sub_axes);
    let ends = |l: &DimLayout| {
        let (b, t) = (l.block as f64, l.origin as f64);
        [(b, -t), (b, b - t)]
    };
    let mut used = vec![BTreeSet::new(); lists.len()];
    let mut groups: Vec<LinearGroup> = Vec::new();
    for (j, (l, n)) in stored.layout.dims.iter().zip(&stored.shape[..]).enumerate() {
        let mut g = LinearGroup { lines: Vec::new(), constants: vec![0.0, *n as f64] };
        if let Some(v) = variable(l) {
            g.lines.extend(ends(l).map(|e| (v, e.0, e.1)));
            used[v].insert(j);
        }
        groups.push(g);
    }
    for r in readers {
        if !r.nest.compute.has_affine_accesses() {
            return None;
        }
        // the ends of the consumer's own blocks
        for (l, n) in r.layout.iter().zip(&r.nest.extents) {
            let Some(v) = variable(l) else { continue };
            let lines = ends(l).map(|e| (v, e.0, e.1)).to_vec();
            groups.push(LinearGroup { lines, constants: vec![0.0, *n as f64] });
        }
        for p in r.nest.accesses[r.access].pieces.iter().filter(|p| p.source == Source::Value(slot)) {
            for (l, span) in p.ranges.iter().enumerate() {
                let layout = &r.layout[l];
                let Some(v) = variable(layout) else { continue };
                if span.step > 1 && layout.block % span.step != 0 {
                    return None;
                }
                let last = span.lo + span.step * span.len();
                let lines = ends(layout).map(|e| (v, e.0, e.1)).to_vec();
                let constants = [span.lo, span.hi, last].map(|x| x as f64).to_vec();
                groups.push(LinearGroup { lines, constants });
            }
            for (j, m) in p.map.iter().enumerate() {
                let is_split = |l: usize| !r.layout[l].sub_axes.is_empty();
                let terms = || m.terms.iter().filter(|t| t.1 != 0 && p.ranges[t.0].len() > 1);
                let mut split = terms().filter(|t| is_split(t.0));
                let moving = split.next();
                if split.next().is_some() {
                    return None;
                }
                // unsplit loops form runs of indices, which are joined if adjacent
                let mut rest: Vec<(i64, i64)> =
                    terms().filter(|t| !is_split(t.0)).map(|t| (t.1, p.ranges[t.0].len())).collect();
                small_sort::sort_by_key(&mut rest, |t| t.0.abs());
                let mut runs = vec![(m.constant, m.constant + 1)];
                for (c, n) in rest {
                    if runs.len() == 1 && c.abs() <= runs[0].1 - runs[0].0 {
                        let far = c * (n - 1);
                        runs[0] = (runs[0].0 + far.min(0), runs[0].1 + far.max(0));
                    } else if runs.len() as i64 * n <= MAX_RUNS as i64 {
                        runs = (0..n)
                            .flat_map(|k| runs.iter().map(move |r| (r.0 + c * k, r.1 + c * k)))
                            .collect();
                    } else {
                        return None;
                    }
                }
                let held = &stored.layout.dims[j];
                for (lo, hi) in runs {
                    let Some((l, c)) = moving else {
                        groups[j].constants.extend([lo, hi].map(|x| x as f64));
                        continue;
                    };
                    let (layout, span, c) = (&r.layout[*l], &p.ranges[*l], *c);
                    if !held.sub_axes.is_empty() && held.sub_axes != layout.sub_axes {
                        return None;
                    }
                    if c.abs() > hi - lo && held.num_shards() > 1 && held.block % c.abs() != 0 {
                        return None;
                    }
                    let to = |x: f64| c as f64 * (x - span.lo as f64) / span.step as f64;
                    let offsets = [lo, hi, lo - c, hi - c].map(|x| x as f64);
                    let stops =
                        [0, r.nest.extents[*l] as i64, span.lo, span.hi, span.lo + span.step * span.len()];
                    for o in offsets {
                        groups[j].constants.extend(stops.iter().map(|x| to(*x as f64) + o));
                    }
                    let Some(v) = variable(layout) else { continue };
                    used[v].insert(j);
                    for e in ends(layout) {
                        let (x0, x1) = (to(e.1), to(e.0 + e.1));
                        groups[j].lines.extend(offsets.map(|o| (v, x1 - x0, x0 + o)));
                    }
                }
            }
        }
    }
    // within one dimension, all ends must depend on the same coordinate
    let apart = |g: &LinearGroup| g.lines.windows(2).any(|w| w[0].0 != w[1].0);
    if groups[..stored.shape.rank()].iter().any(apart) {
        return None;
    }
    Some((0..lists.len()).map(|v| with_crossings(v, &lists[v], &groups, used[v].len().max(1))).collect())
}

/// Returns a coordinate with the points where two lines, or a line and a constant, intersect.
fn with_crossings(
    v: usize,
    sub_axis_list: &SubAxes,
    groups: &[LinearGroup],
    degree: usize,
) -> DeviceCoordinate {
    let along = DimLayout { sub_axes: sub_axis_list.clone(), block: 1, origin: 0 };
    let n = along.num_shards() as i64;
    let mut nodes = BTreeSet::new();
    nodes.extend([0, 1.min(n), n - 1, n]);
    for g in groups {
        for (i, a) in g.lines.iter().enumerate().filter(|a| a.1.0 == v) {
            work::count(i + g.constants.len());
            let others = g.lines[..i].iter().filter(|b| b.0 == v).map(|b| (b.1, b.2));
            for b in others.chain(g.constants.iter().map(|c| (0.0, *c))).filter(|b| b.0 != a.1) {
                let r = ((b.1 - a.2) / (a.1 - b.0)).floor() as i64;
                nodes.extend(Some(r + 1).filter(|r| (0..=n).contains(r)));
            }
        }
    }
    DeviceCoordinate { layout: along, nodes: nodes.into_iter().collect(), degree: degree as i64 }
}
