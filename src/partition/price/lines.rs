//! Linear ends: where the intervals that a fetch is made of begin and end, as lines over the devices' coordinates.

use crate::partition::layout::DimLayout;
use crate::partition::price::reader::Reader;
use crate::partition::program::{Slot, Stored};
use crate::program::sentence::Source;
use crate::sharding::atoms::Atoms;
use crate::sorted;
use std::collections::BTreeSet;

/// A coordinate of the devices, and where the count of elements changes its formula.
pub(crate) struct Variable {
    /// The digits that make it.
    pub(crate) along: DimLayout,
    /// The first coordinate of each piece, and the end.
    pub(crate) nodes: Vec<i64>,
    /// The degree of the polynomial within a piece.
    pub(crate) degree: i64,
}

/// Positions on one line of numbers: `slope·coordinate + offset` of variables, and constants.
#[derive(Default)]
struct Group {
    lines: Vec<(usize, f64, f64)>,
    constants: Vec<f64>,
}

/// How many runs of positions of one dimension are followed.
const RUNS: usize = 64;

/// All lines of a fetch, crossed with one another; `None` where an end is not linear in one coordinate.
pub(crate) fn lines(
    slot: Slot,
    stored: &Stored,
    readers: &[Reader],
    lists: &[Atoms],
) -> Option<Vec<Variable>> {
    let variable = |l: &DimLayout| lists.iter().position(|a| *a == l.atoms);
    let ends = |l: &DimLayout| {
        let (b, t) = (l.block as f64, l.origin as f64);
        [(b, -t), (b, b - t)]
    };
    let mut used = vec![BTreeSet::new(); lists.len()];
    let mut groups: Vec<Group> = Vec::new();
    for (j, (l, n)) in stored.layout.dims.iter().zip(&stored.shape[..]).enumerate() {
        let mut g = Group { lines: Vec::new(), constants: vec![0.0, *n as f64] };
        if let Some(v) = variable(l) {
            g.lines.extend(ends(l).map(|e| (v, e.0, e.1)));
            used[v].insert(j);
        }
        groups.push(g);
    }
    for r in readers {
        if !r.sentence.body.reads_by_position() {
            return None;
        }
        // where the reader's own blocks end
        for (l, n) in r.layout.iter().zip(&r.sentence.extents) {
            let Some(v) = variable(l) else { continue };
            let lines = ends(l).map(|e| (v, e.0, e.1)).to_vec();
            groups.push(Group { lines, constants: vec![0.0, *n as f64] });
        }
        for p in r.sentence.reads[r.read].parts.iter().filter(|p| p.from == Source::Value(slot)) {
            for (l, span) in p.span.iter().enumerate() {
                let lay = &r.layout[l];
                let Some(v) = variable(lay) else { continue };
                if span.step > 1 && lay.block % span.step != 0 {
                    return None;
                }
                let last = span.lo + span.step * span.len();
                let lines = ends(lay).map(|e| (v, e.0, e.1)).to_vec();
                let constants = [span.lo, span.hi, last].map(|x| x as f64).to_vec();
                groups.push(Group { lines, constants });
            }
            for (j, m) in p.map.iter().enumerate() {
                let is_split = |l: usize| !r.layout[l].atoms.is_empty();
                let terms = || m.terms.iter().filter(|t| t.1 != 0 && p.span[t.0].len() > 1);
                let mut split = terms().filter(|t| is_split(t.0));
                let moving = split.next();
                if split.next().is_some() {
                    return None;
                }
                // what the whole loops make: runs of positions, joined where they touch
                let mut rest: Vec<(i64, i64)> =
                    terms().filter(|t| !is_split(t.0)).map(|t| (t.1, p.span[t.0].len())).collect();
                sorted::sort_by_key(&mut rest, |t| t.0.abs());
                let mut runs = vec![(m.at, m.at + 1)];
                for (c, n) in rest {
                    if runs.len() == 1 && c.abs() <= runs[0].1 - runs[0].0 {
                        let far = c * (n - 1);
                        runs[0] = (runs[0].0 + far.min(0), runs[0].1 + far.max(0));
                    } else if runs.len() as i64 * n <= RUNS as i64 {
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
                    let (lay, span, c) = (&r.layout[*l], &p.span[*l], *c);
                    if !held.atoms.is_empty() && held.atoms != lay.atoms {
                        return None;
                    }
                    if c.abs() > hi - lo && held.ways() > 1 && held.block % c.abs() != 0 {
                        return None;
                    }
                    let to = |x: f64| c as f64 * (x - span.lo as f64) / span.step as f64;
                    let offsets = [lo, hi, lo - c, hi - c].map(|x| x as f64);
                    let stops = [
                        0,
                        r.sentence.extents[*l] as i64,
                        span.lo,
                        span.hi,
                        span.lo + span.step * span.len(),
                    ];
                    for o in offsets {
                        groups[j].constants.extend(stops.iter().map(|x| to(*x as f64) + o));
                    }
                    let Some(v) = variable(lay) else { continue };
                    used[v].insert(j);
                    for e in ends(lay) {
                        let (x0, x1) = (to(e.1), to(e.0 + e.1));
                        groups[j].lines.extend(offsets.map(|o| (v, x1 - x0, x0 + o)));
                    }
                }
            }
        }
    }
    // within one dimension all ends move with one coordinate
    let apart = |g: &Group| g.lines.windows(2).any(|w| w[0].0 != w[1].0);
    if groups[..stored.shape.rank()].iter().any(apart) {
        return None;
    }
    Some((0..lists.len()).map(|v| crossed(v, &lists[v], &groups, used[v].len().max(1))).collect())
}

/// The places along a coordinate where two lines, or a line and a constant, cross.
fn crossed(v: usize, atoms: &Atoms, groups: &[Group], degree: usize) -> Variable {
    let along = DimLayout { atoms: atoms.clone(), block: 1, origin: 0 };
    let n = along.ways() as i64;
    let mut nodes = BTreeSet::new();
    nodes.extend([0, 1.min(n), n - 1, n]);
    for g in groups {
        for (i, a) in g.lines.iter().enumerate().filter(|a| a.1.0 == v) {
            let others = g.lines[..i].iter().filter(|b| b.0 == v).map(|b| (b.1, b.2));
            for b in others.chain(g.constants.iter().map(|c| (0.0, *c))).filter(|b| b.0 != a.1) {
                let r = ((b.1 - a.2) / (a.1 - b.0)).floor() as i64;
                nodes.extend(Some(r + 1).filter(|r| (0..=n).contains(r)));
            }
        }
    }
    Variable { along, nodes: nodes.into_iter().collect(), degree: degree as i64 }
}
