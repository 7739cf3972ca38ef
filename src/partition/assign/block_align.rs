//! Block alignment: chooses the block offsets of internal elementwise values.
//!
//! A type fixes the axes that shard a dimension. The offset of the blocks is free if an elementwise
//! step computes the value and the value is not visible outside the program. Values that are
//! computed from one another element by element form a group and share an offset; it is chosen so
//! that the least data is exchanged with operands and consumers outside the group.

use crate::core::util::small_sort;
use crate::ir::program::{AccessPiece, LoopNest, Source};
use crate::partition::program::{LocalStep, Slot};
use crate::partition::{cost::projection::Projections, draft::Draft, layout::DimLayout, work};

/// The maximum number of alignments of one group that are compared, those nearest to its own first.
const MAX_ALIGNMENTS: usize = 64;

/// The steps that compute and read each slot, and the groups of slots whose block offsets are free.
struct AlignmentGroups<'a> {
    /// The draft that is aligned.
    d: &'a Draft,
    /// The step that computes each slot.
    producer: Vec<Option<usize>>,
    /// The steps that read each slot.
    readers: Vec<Vec<usize>>,
    /// The union-find parent of each slot.
    group: Vec<Slot>,
    /// The accesses of many values.
    projections: Projections,
}

/// A layout that a dimension of a group should have so that reading `source` moves nothing.
struct AlignmentRequest {
    source: Slot,
    layout: DimLayout,
}

/// Aligns the blocks of all values whose offsets are free.
pub(crate) fn align_blocks(d: &mut Draft) {
    let n = d.slots.len();
    let (mut maker, mut readers) = (vec![None; n], vec![Vec::new(); n]);
    for (k, item) in d.steps.iter().enumerate() {
        for s in item.step.inputs() {
            if readers[s].last() != Some(&k) {
                readers[s].push(k);
            }
        }
        if let Some(made) = item.step.local() {
            maker[made.out] = Some(k);
        }
    }
    let mut outs = vec![false; n];
    d.outs.iter().for_each(|s| outs[*s] = true);
    let free: Vec<bool> = (0..n)
        .map(|v| {
            !outs[v]
                && maker[v].is_some_and(|k| can_shift(d, v, k))
                && readers[v].iter().all(|u| reads_boxes(d, *u))
        })
        .collect();
    let nests = d.steps.iter().enumerate().filter_map(|(k, item)| Some((k, item.step.loop_nest()?)));
    let projections = Projections::new(nests);
    let mut f = AlignmentGroups { d, producer: maker, readers, group: (0..n).collect(), projections };
    for v in (0..n).filter(|v| free[*v]) {
        let Some(s) = f.loop_nest(v) else { continue };
        let sources: Vec<Slot> = (0..s.accesses.len()).filter_map(|read| d.read_in_place(s, read)).collect();
        for src in sources.into_iter().filter(|s| free[*s] && d.slots[*s].layout == d.slots[v].layout) {
            let (a, b) = (f.root(src), f.root(v));
            f.group[a.max(b)] = a.min(b);
        }
    }
    let mut members: Vec<Vec<Slot>> = vec![Vec::new(); n];
    for v in (0..n).filter(|v| free[*v]) {
        members[f.root(v)].push(v);
    }
    let mut decided: Vec<bool> = free.iter().map(|f| !f).collect();
    let mut layouts: Vec<Vec<DimLayout>> = d.slots.iter().map(|s| s.layout.dims.clone()).collect();
    // start at the end of the program, so that consumers are decided before the groups they read;
    // groups at the same distance are independent
    let far = distances_to_end(d);
    let mut groups: Vec<(usize, &Vec<Slot>)> = (members.iter().filter(|group| !group.is_empty()))
        .map(|group| (group.iter().map(|v| far[*v]).min().unwrap_or(0), group))
        .collect();
    small_sort::sort_by_key(&mut groups, |g| g.0);
    for alike in groups.chunk_by(|a, b| a.0 == b.0) {
        let frames: Vec<Vec<DimLayout>> =
            alike.iter().map(|g| f.alignment(g.1, &layouts, &decided)).collect();
        for ((_, group), frame) in alike.iter().zip(frames) {
            for m in *group {
                layouts[*m].clone_from(&frame);
                decided[*m] = true;
            }
        }
    }
    for (slot, dims) in d.slots.iter_mut().zip(layouts) {
        slot.layout.dims = dims;
    }
}

/// Returns true if the step that computes a value works with any block offset.
///
/// The step must be elementwise, and neither its result nor its operands may be partial or
/// constrained. In manual mode each device computes its own block.
fn can_shift(d: &Draft, v: Slot, k: usize) -> bool {
    let Some(nest) = d.steps[k].step.loop_nest() else { return false };
    nest.compute.elementwise().is_some()
        && !d.steps[k].info.constrained
        && !d.steps[k].info.per_device
        && !d.is_copy(nest)
        && d.slots[v].layout.partial.is_none()
        && d.steps[k].step.inputs().iter().all(|s| d.slots[*s].layout.partial.is_none())
}

/// Returns, for each value, the number of steps in the longest chain that depends on it.
pub(super) fn distances_to_end(d: &Draft) -> Vec<usize> {
    let mut far = vec![0; d.slots.len()];
    for item in d.steps.iter().rev() {
        let here = 1 + item.step.outputs().into_iter().map(|s| far[s]).max().unwrap_or(0);
        item.step.inputs().into_iter().for_each(|s| far[s] = far[s].max(here));
    }
    far
}

/// Returns true if a step reads boxes that may start at any index.
fn reads_boxes(d: &Draft, k: usize) -> bool {
    d.steps[k].step.loop_nest().is_some_and(|s| s.compute.has_affine_accesses())
}

impl AlignmentGroups<'_> {
    fn root(&self, mut v: Slot) -> Slot {
        while self.group[v] != v {
            v = self.group[v];
        }
        v
    }
    fn loop_nest(&self, v: Slot) -> Option<&LoopNest> {
        self.d.steps[self.producer[v]?].step.loop_nest()
    }

    /// Returns the layout of a group, given the layouts of other groups that are already decided.
    fn alignment(&self, group: &[Slot], layouts: &[Vec<DimLayout>], decided: &[bool]) -> Vec<DimLayout> {
        let stored = &self.d.slots[group[0]];
        let mut frame = stored.layout.dims.clone();
        if frame.iter().any(|l| !l.sub_axes.is_empty()) {
            let wishes = self.requests(group, &stored.layout.dims, layouts, decided);
            for (dim, wishes) in wishes.iter().enumerate() {
                frame[dim] = best_alignment(&stored.layout.dims[dim], wishes, stored.shape[dim]);
            }
        }
        frame
    }

    /// Returns the layouts requested for each dimension of a group.
    /// Requests come from operands and consumers outside the group.
    fn requests(
        &self,
        group: &[Slot],
        own: &[DimLayout],
        layouts: &[Vec<DimLayout>],
        decided: &[bool],
    ) -> Vec<Vec<AlignmentRequest>> {
        let mut wishes: Vec<Vec<AlignmentRequest>> = own.iter().map(|_| Vec::new()).collect();
        let inside = |s: Slot| !decided[s] && self.root(s) == self.root(group[0]);
        let mut steps: Vec<usize> = group.iter().filter_map(|v| self.producer[*v]).collect();
        let makers = steps.len();
        let outer = group.iter().flat_map(|v| self.readers[*v].iter().copied());
        steps.extend(outer.filter(|k| self.d.steps[*k].step.local().is_some_and(|l| !inside(l.out))));
        small_sort::sort(&mut steps[makers..]);
        steps.dedup();
        for k in steps {
            let Some(LocalStep { out, nest: loop_nest, .. }) = self.d.steps[k].step.local() else { continue };
            // a contraction reads boxes aligned with its own, along loops that are dimensions of
            // the result
            let placed = loop_nest.compute.elementwise().is_some() || loop_nest.compute.contracts();
            if !placed || !inside(out) && !decided[out] {
                continue;
            }
            let pieces = match inside(out) {
                true => loop_nest.accesses.iter().flat_map(|r| &r.pieces).collect(),
                false => self.projections.pieces(k, loop_nest, group),
            };
            for p in pieces {
                let Source::Value(s) = p.source else { continue };
                for (loop_, dim, shift) in unit_stride_dims(p).into_iter().filter(|u| u.0 < loop_nest.rank) {
                    let (d, l, origin) = match (inside(out), inside(s)) {
                        (true, false) if decided[s] => {
                            let l = &layouts[s][dim];
                            (loop_, l, l.origin + shift)
                        }
                        (false, true) => {
                            let l = &layouts[out][loop_];
                            (dim, l, l.origin - shift)
                        }
                        _ => continue,
                    };
                    if l.sub_axes == own[d].sub_axes && !l.sub_axes.is_empty() {
                        wishes[d]
                            .push(AlignmentRequest { source: s, layout: DimLayout { origin, ..l.clone() } });
                    }
                }
            }
        }
        wishes
    }
}

/// Returns the dimensions that a piece reads with stride 1: (loop, dimension, offset).
/// The offset is the index minus the loop index.
fn unit_stride_dims(p: &AccessPiece) -> Vec<(usize, usize, i64)> {
    let of = |(dim, m): (usize, &crate::ir::program::loop_nest::AffineExpr)| match m.terms[..] {
        [(l, 1)] if p.ranges[l].step == 1 => Some((l, dim, m.constant - p.ranges[l].lo)),
        _ => None,
    };
    p.map.iter().enumerate().filter_map(of).collect()
}

/// Returns the layout with the smallest halos, summed over sources.
/// A halo is the widest overhang to the left and right.
fn best_alignment(own: &DimLayout, wishes: &[AlignmentRequest], size: usize) -> DimLayout {
    let mut by_source: Vec<&AlignmentRequest> = wishes.iter().collect();
    small_sort::sort_by_key(&mut by_source, |w| w.source);
    let price = |c: &DimLayout| -> i64 {
        let halo = |list: &[&AlignmentRequest]| {
            let shift = |l: &DimLayout| if l.block == c.block { l.origin - c.origin } else { size as i64 };
            let widest = |(a, b): (i64, i64), s: i64| (a.max(s), b.max(-s));
            let (left, right) = list.iter().map(|w| shift(&w.layout)).fold((0, 0), widest);
            left + right
        };
        work::count(wishes.len());
        by_source.chunk_by(|a, b| a.source == b.source).map(halo).sum()
    };
    // the first and last blocks extend to the ends of the dimension: allow at most two blocks
    let fits = |c: &&DimLayout| {
        [0, c.num_shards() - 1].iter().all(|r| {
            let (lo, hi) = c.range(*r, size);
            hi - lo <= 2 * own.block
        })
    };
    // ties go to the layout nearest to the group's own, whatever the order of requests
    let near = |c: &DimLayout| (*c != *own, (c.origin - own.origin).abs(), c.origin, c.block);
    let mut seen: Vec<&DimLayout> = std::iter::once(own).chain(wishes.iter().map(|w| &w.layout)).collect();
    small_sort::sort_by_key(&mut seen, |c| near(c));
    seen.dedup();
    seen.into_iter().filter(fits).take(MAX_ALIGNMENTS).min_by_key(|c| price(c)).unwrap_or(own).clone()
}
