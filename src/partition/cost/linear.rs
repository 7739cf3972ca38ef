//! Linear block ends: finds the device coordinates where the formula for a fetch's cost changes.
//!
//! The intervals that a device holds or needs start and end at linear functions ("lines") of its
//! coordinates.

use crate::core::{SubAxes, util::small_sort};
use crate::ir::program::{AccessPiece, AffineExpr, Source};
use crate::partition::program::{Slot, StoredValue};
use crate::partition::{cost::consumer::Consumer, layout::DimLayout, work};
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
    let mut all = LinearEnds::new(stored, lists);
    readers.iter().try_for_each(|r| all.add_consumer(slot, r))?;
    let LinearEnds { used, groups, .. } = all;
    // within one dimension, all ends must depend on the same coordinate
    let apart = |g: &LinearGroup| g.lines.windows(2).any(|w| w[0].0 != w[1].0);
    if groups[..stored.shape.rank()].iter().any(apart) {
        return None;
    }
    Some((0..lists.len()).map(|v| with_crossings(v, &lists[v], &groups, used[v].len().max(1))).collect())
}

/// The ends of the blocks that a fetch reads, as they are collected.
struct LinearEnds<'a> {
    /// The fetched value.
    stored: &'a StoredValue,
    /// The coordinates.
    lists: &'a [SubAxes],
    /// For each coordinate, the dimensions of the value that depend on it.
    used: Vec<BTreeSet<usize>>,
    /// The ends: first those of each dimension of the value, then those of loops.
    groups: Vec<LinearGroup>,
}

impl<'a> LinearEnds<'a> {
    /// Creates the ends of the blocks in which the value is stored.
    fn new(stored: &'a StoredValue, lists: &'a [SubAxes]) -> LinearEnds<'a> {
        let used = vec![BTreeSet::new(); lists.len()];
        let mut all = LinearEnds { stored, lists, used, groups: Vec::new() };
        for (j, (l, n)) in stored.layout.dims.iter().zip(&stored.shape[..]).enumerate() {
            let mut g = LinearGroup { lines: Vec::new(), constants: vec![0.0, *n as f64] };
            if let Some(v) = all.coordinate(l) {
                g.lines.extend(block_ends(l).map(|e| (v, e.0, e.1)));
                all.used[v].insert(j);
            }
            all.groups.push(g);
        }
        all
    }

    /// Returns the coordinate that selects the block of this layout, if it is split.
    fn coordinate(&self, l: &DimLayout) -> Option<usize> {
        self.lists.iter().position(|a| *a == l.sub_axes)
    }

    /// Adds the ends of a consumer's blocks, and of what it reads of the value.
    /// Returns `None` if one of them is not linear in one coordinate.
    fn add_consumer(&mut self, slot: Slot, r: &Consumer) -> Option<()> {
        if !r.nest.compute.has_affine_accesses() {
            return None;
        }
        for (l, n) in r.layout.iter().zip(&r.nest.extents) {
            let Some(v) = self.coordinate(l) else { continue };
            let lines = block_ends(l).map(|e| (v, e.0, e.1)).to_vec();
            self.groups.push(LinearGroup { lines, constants: vec![0.0, *n as f64] });
        }
        for p in r.nest.accesses[r.access].pieces.iter().filter(|p| p.source == Source::Value(slot)) {
            for (l, span) in p.ranges.iter().enumerate() {
                let layout = &r.layout[l];
                let Some(v) = self.coordinate(layout) else { continue };
                if span.step > 1 && layout.block % span.step != 0 {
                    return None;
                }
                let last = span.lo + span.step * span.len();
                let lines = block_ends(layout).map(|e| (v, e.0, e.1)).to_vec();
                let constants = [span.lo, span.hi, last].map(|x| x as f64).to_vec();
                self.groups.push(LinearGroup { lines, constants });
            }
            (0..p.map.len()).try_for_each(|j| self.add_dim(r, p, j))?;
        }
        Some(())
    }

    /// Adds the ends of what a piece reads along dimension `j` of the value.
    fn add_dim(&mut self, r: &Consumer, p: &AccessPiece, j: usize) -> Option<()> {
        let (moving, runs) = index_runs(r, p, &p.map[j])?;
        let held = &self.stored.layout.dims[j];
        for (lo, hi) in runs {
            let Some((l, c)) = moving else {
                self.groups[j].constants.extend([lo, hi].map(|x| x as f64));
                continue;
            };
            let (layout, span) = (&r.layout[l], &p.ranges[l]);
            if !held.sub_axes.is_empty() && held.sub_axes != layout.sub_axes {
                return None;
            }
            if c.abs() > hi - lo && held.num_shards() > 1 && held.block % c.abs() != 0 {
                return None;
            }
            let to = |x: f64| c as f64 * (x - span.lo as f64) / span.step as f64;
            let offsets = [lo, hi, lo - c, hi - c].map(|x| x as f64);
            let stops = [0, r.nest.extents[l] as i64, span.lo, span.hi, span.lo + span.step * span.len()];
            for o in offsets {
                self.groups[j].constants.extend(stops.iter().map(|x| to(*x as f64) + o));
            }
            let Some(v) = self.coordinate(layout) else { continue };
            self.used[v].insert(j);
            for e in block_ends(layout) {
                let (x0, x1) = (to(e.1), to(e.0 + e.1));
                self.groups[j].lines.extend(offsets.map(|o| (v, x1 - x0, x0 + o)));
            }
        }
        Some(())
    }
}

/// Returns the first index and the end of a device's block, each as (slope, offset) of a linear
/// function of its coordinate.
fn block_ends(l: &DimLayout) -> [(f64, f64); 2] {
    let (b, t) = (l.block as f64, l.origin as f64);
    [(b, -t), (b, b - t)]
}

/// Returns the split loop that a position moves along, with its coefficient, and the runs of
/// indices that the unsplit loops form. Adjacent runs are joined.
///
/// `None` if the position moves along several split loops, or if there are too many runs.
#[expect(clippy::type_complexity, reason = "a loop with its coefficient, and runs")]
fn index_runs(
    r: &Consumer,
    p: &AccessPiece,
    m: &AffineExpr,
) -> Option<(Option<(usize, i64)>, Vec<(i64, i64)>)> {
    let is_split = |l: usize| !r.layout[l].sub_axes.is_empty();
    let terms = || m.terms.iter().filter(|t| t.1 != 0 && p.ranges[t.0].len() > 1);
    let mut split = terms().filter(|t| is_split(t.0));
    let moving = split.next().copied();
    if split.next().is_some() {
        return None;
    }
    let mut rest: Vec<(i64, i64)> =
        terms().filter(|t| !is_split(t.0)).map(|t| (t.1, p.ranges[t.0].len())).collect();
    small_sort::sort_by_key(&mut rest, |t| t.0.abs());
    let mut runs = vec![(m.constant, m.constant + 1)];
    for (c, n) in rest {
        if runs.len() == 1 && c.abs() <= runs[0].1 - runs[0].0 {
            let far = c * (n - 1);
            runs[0] = (runs[0].0 + far.min(0), runs[0].1 + far.max(0));
        } else if runs.len() as i64 * n <= MAX_RUNS as i64 {
            runs = (0..n).flat_map(|k| runs.iter().map(move |r| (r.0 + c * k, r.1 + c * k))).collect();
        } else {
            return None;
        }
    }
    Some((moving, runs))
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
