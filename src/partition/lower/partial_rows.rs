//! Lowers row kernels whose results are sums over the row, so that rows may stay split.
//!
//! Each device runs the kernel on the blocks it holds, and the partial results are added.

use crate::core::SubAxes;
use crate::core::sharding::sub_axes::{intersection, num_shards, overlap, subtract};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, Reducer, ScalarCode, Source, StridedRange,
};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::Lowering;
use crate::partition::program::Slot;

/// The split loops along a row, as (index among the loops along the row, layout).
type LoopSplits = Vec<(usize, DimLayout)>;

impl Lowering {
    /// Lowers row kernels that sum over some of the loops along the row, with partial results.
    ///
    /// `None` if none of these loops is split, or if gathering the operands moves less.
    pub(super) fn lower_partial_rows(
        &mut self,
        list: &[LoopNest],
        over: &[usize],
        layouts: &[Layout],
    ) -> Option<Vec<Slot>> {
        let cuts = self.loop_splits(&list[0], over);
        let all: SubAxes = cuts.iter().flat_map(|(_, l)| l.sub_axes.clone()).collect();
        let partials = |l: &Layout| l.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
        if cuts.is_empty() || layouts.iter().any(|l| subtract(&all, &partials(l)).is_none()) {
            return None;
        }
        let unreduced = layouts.iter().any(|l| l.partial.is_some());
        if !unreduced && self.gather_bytes(&list[0], &cuts) < reduction_bytes(list, layouts, &all) {
            return None;
        }
        let blocks: Vec<Slot> =
            list.iter().zip(layouts).map(|(s, to)| self.block_results(s, to, &cuts, &all)).collect();
        let added = |((s, to), slot): ((&LoopNest, &Layout), Slot)| {
            let rank = s.rank;
            let extents: Vec<usize> =
                s.extents[..rank].iter().copied().chain(cuts.iter().map(|(_, l)| l.num_shards())).collect();
            let loops: Vec<_> = (0..extents.len()).map(Some).collect();
            let reads = vec![Access::from_loops(slot, s.dtype, &extents, &loops)];
            let body = Compute::Reduce { reducer: Reducer::Add, code: ScalarCode::copy(s.dtype) };
            self.draft.add_local(
                LoopNest { extents, rank, dtype: s.dtype, accesses: reads, compute: body },
                to.clone(),
                &self.origin,
            )
        };
        Some(list.iter().zip(layouts).zip(blocks).map(added).collect())
    }

    /// Returns the evenly split loops among those in `over`.
    /// Sub-axes used by two loops go to the first.
    fn loop_splits(&self, s: &LoopNest, over: &[usize]) -> LoopSplits {
        let mut cuts: LoopSplits = Vec::new();
        for &a in over {
            let (l, size) = (s.rank + a, s.extents[s.rank + a]);
            let held = s.accesses.iter().flat_map(|r| &r.pieces).find_map(|p| {
                let Source::Value(slot) = p.source else { return None };
                let d = p.map.iter().position(|m| *m == AffineExpr::linear(0, l, 1))?;
                let held = &self.draft.slots[slot].layout.dims[d];
                (held.num_shards() > 1).then(|| held.clone())
            });
            let Some(held) = held else { continue };
            let taken = |(_, other): &(usize, DimLayout)| overlap(&other.sub_axes, &held.sub_axes);
            if size > 0 && size.is_multiple_of(held.num_shards()) && !cuts.iter().any(taken) {
                cuts.push((a, DimLayout::new(held.num_shards(), held.sub_axes)));
            }
        }
        cuts
    }
    /// Returns the bytes that a device receives if the operands are gathered along these loops.
    fn gather_bytes(&self, s: &LoopNest, cuts: &LoopSplits) -> usize {
        let one = |p: &AccessPiece| {
            let Source::Value(slot) = p.source else { return 0 };
            let stored = &self.draft.slots[slot];
            let along = |m: &AffineExpr| cuts.iter().any(|(a, _)| *m == AffineExpr::linear(0, s.rank + a, 1));
            let dims = || stored.layout.dims.iter().zip(&p.map);
            let num_shards: usize = dims().filter(|(_, m)| along(m)).map(|(l, _)| l.num_shards()).product();
            let others: usize = dims().filter(|(_, m)| !along(m)).map(|(l, _)| l.num_shards()).product();
            let bytes = stored.shape.num_elements().saturating_mul(stored.dtype.size()) / others;
            bytes - bytes / num_shards
        };
        s.accesses.iter().flat_map(|r| &r.pieces).map(one).fold(0, usize::saturating_add)
    }

    /// Computes the row kernel for each block.
    /// After the result's dimensions there is one over the blocks of each split loop.
    fn block_results(&mut self, s: &LoopNest, to: &Layout, cuts: &LoopSplits, all: &SubAxes) -> Slot {
        let (rank, more) = (s.rank, cuts.len());
        let mut extents = s.extents.clone();
        for (a, l) in cuts {
            extents[rank + a] /= l.num_shards();
        }
        let each = extents.clone();
        extents.splice(rank..rank, cuts.iter().map(|(_, l)| l.num_shards()));
        let moved = |m: &AffineExpr| {
            let mut terms = Vec::new();
            for &(l, c) in &m.terms {
                if let Some(k) = cuts.iter().position(|(a, _)| rank + a == l) {
                    terms.push((rank + k, c * each[l] as i64));
                }
                terms.push((if l < rank { l } else { l + more }, c));
            }
            AffineExpr { constant: m.constant, terms: terms.into_iter().collect() }
        };
        let part = |p: &AccessPiece| {
            let map = p.map.iter().map(moved).collect();
            AccessPiece { source: p.source, ranges: StridedRange::full_box(&extents), map }
        };
        let reads =
            s.accesses.iter().map(|r| Access { pieces: r.pieces.iter().map(part).collect(), ..r.clone() });
        let reads = reads.collect();
        // the sub-axes of blocks cannot also split the result
        let free = |(d, n): (&DimLayout, &usize)| match intersection(&d.sub_axes, all) {
            shared if shared.is_empty() => d.clone(),
            shared => DimLayout::new(*n, subtract(&d.sub_axes, &shared).unwrap_or_default()),
        };
        let dims = to.dims.iter().zip(&s.extents).map(free).chain(cuts.iter().map(|(_, l)| l.clone()));
        let dims = dims.collect();
        let made = LoopNest {
            extents: extents.clone(),
            rank: rank + more,
            dtype: s.dtype,
            accesses: reads,
            compute: s.compute.clone(),
        };
        self.draft.add_local(made, Layout { dims, partial: None }, &self.origin)
    }
}

/// Returns the bytes that a device receives if the results are reduced over these sub-axes.
///
/// Those that are full are reduce-scattered and gathered.
fn reduction_bytes(list: &[LoopNest], layouts: &[Layout], all: &SubAxes) -> usize {
    let one = |(s, to): (&LoopNest, &Layout)| {
        let held: SubAxes = to.dims.iter().flat_map(|d| d.sub_axes.clone()).collect();
        let scattered = num_shards(&intersection(&held, all));
        let elements: usize = s.extents[..s.rank].iter().product();
        let bytes = elements.saturating_mul(s.dtype.size()) / (num_shards(&held) / scattered);
        let once = bytes - bytes / num_shards(all);
        if scattered == num_shards(all) { once } else { once.saturating_mul(2) }
    };
    list.iter().zip(layouts).map(one).fold(0, usize::saturating_add)
}
