//! Lines that are sums: of dimensions that no result has each device takes the block that it holds, and what it makes is added to the others'.

use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::Lower;
use crate::partition::program::{Slot, Why};
use crate::program::sentence::{Affine, Body, Code, Combine, Part, Read, Sentence, Source, Span};
use crate::sharding::atoms::{Atoms, clash, common, ways, without};

/// Loops along a line that are cut: their numbers among those along a line, and by which digits.
type Cuts = Vec<(usize, DimLayout)>;

impl Lower {
    /// The results of lines that are sums over some of what is along them; `None` where none of it is split, or where it moves less to
    /// gather the operands.
    pub(super) fn sums(
        &mut self,
        list: &[Sentence],
        over: &[usize],
        layouts: &[Layout],
        why: &Why,
    ) -> Option<Vec<Slot>> {
        let cuts = self.cuts(&list[0], over);
        let all: Atoms = cuts.iter().flat_map(|(_, l)| l.atoms.clone()).collect();
        let parts = |l: &Layout| l.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
        if cuts.is_empty() || layouts.iter().any(|l| without(&all, &parts(l)).is_none()) {
            return None;
        }
        let unreduced = layouts.iter().any(|l| l.partial.is_some());
        if !unreduced && self.gathered(&list[0], &cuts) < summed(list, layouts, &all) {
            return None;
        }
        let blocks: Vec<Slot> =
            list.iter().zip(layouts).map(|(s, to)| self.of_blocks(s, to, &cuts, &all, why)).collect();
        let added = |((s, to), slot): ((&Sentence, &Layout), Slot)| {
            let rank = s.rank;
            let extents: Vec<usize> =
                s.extents[..rank].iter().copied().chain(cuts.iter().map(|(_, l)| l.ways())).collect();
            let loops: Vec<_> = (0..extents.len()).map(Some).collect();
            let reads = vec![Read::plain(slot, s.dtype, &extents, &loops)];
            let body = Body::Fold { combine: Combine::Add, code: Code::copy(s.dtype) };
            self.draft.local(Sentence { extents, rank, dtype: s.dtype, reads, body }, to.clone(), why)
        };
        Some(list.iter().zip(layouts).zip(blocks).map(added).collect())
    }

    /// By which digits operands are split along these loops, where blocks are of one size; digits that two loops have are the first one's.
    fn cuts(&self, s: &Sentence, over: &[usize]) -> Cuts {
        let mut cuts: Cuts = Vec::new();
        for &a in over {
            let (l, size) = (s.rank + a, s.extents[s.rank + a]);
            let held = s.reads.iter().flat_map(|r| &r.parts).find_map(|p| {
                let Source::Value(slot) = p.from else { return None };
                let d = p.map.iter().position(|m| *m == Affine::of(0, l, 1))?;
                let held = &self.draft.slots[slot].layout.dims[d];
                (held.ways() > 1).then(|| held.clone())
            });
            let Some(held) = held else { continue };
            let taken = |(_, other): &(usize, DimLayout)| clash(&other.atoms, &held.atoms);
            if size > 0 && size.is_multiple_of(held.ways()) && !cuts.iter().any(taken) {
                cuts.push((a, DimLayout::new(held.ways(), held.atoms)));
            }
        }
        cuts
    }
    /// Bytes that a device receives where operands are gathered along these loops.
    fn gathered(&self, s: &Sentence, cuts: &Cuts) -> usize {
        let one = |p: &Part| {
            let Source::Value(slot) = p.from else { return 0 };
            let stored = &self.draft.slots[slot];
            let along = |m: &Affine| cuts.iter().any(|(a, _)| *m == Affine::of(0, s.rank + a, 1));
            let dims = || stored.layout.dims.iter().zip(&p.map);
            let ways: usize = dims().filter(|(_, m)| along(m)).map(|(l, _)| l.ways()).product();
            let others: usize = dims().filter(|(_, m)| !along(m)).map(|(l, _)| l.ways()).product();
            let bytes = stored.shape.elements().saturating_mul(stored.dtype.size()) / others;
            bytes - bytes / ways
        };
        s.reads.iter().flat_map(|r| &r.parts).map(one).fold(0, usize::saturating_add)
    }

    /// The lines of each block: a dimension for the blocks of each loop is behind those of the result.
    fn of_blocks(&mut self, s: &Sentence, to: &Layout, cuts: &Cuts, all: &Atoms, why: &Why) -> Slot {
        let (rank, more) = (s.rank, cuts.len());
        let mut extents = s.extents.clone();
        for (a, l) in cuts {
            extents[rank + a] /= l.ways();
        }
        let each = extents.clone();
        extents.splice(rank..rank, cuts.iter().map(|(_, l)| l.ways()));
        let moved = |m: &Affine| {
            let mut terms = Vec::new();
            for &(l, c) in &m.terms {
                if let Some(k) = cuts.iter().position(|(a, _)| rank + a == l) {
                    terms.push((rank + k, c * each[l] as i64));
                }
                terms.push((if l < rank { l } else { l + more }, c));
            }
            Affine { at: m.at, terms: terms.into_iter().collect() }
        };
        let part = |p: &Part| {
            let map = p.map.iter().map(moved).collect();
            Part { from: p.from, span: Span::whole(&extents), map }
        };
        let reads = s.reads.iter().map(|r| Read { parts: r.parts.iter().map(part).collect(), ..r.clone() });
        let reads = reads.collect();
        // the digits of blocks are not the result's own
        let free = |(d, n): (&DimLayout, &usize)| match common(&d.atoms, all) {
            shared if shared.is_empty() => d.clone(),
            shared => DimLayout::new(*n, without(&d.atoms, &shared).unwrap_or_default()),
        };
        let dims = to.dims.iter().zip(&s.extents).map(free).chain(cuts.iter().map(|(_, l)| l.clone()));
        let dims = dims.collect();
        let made = Sentence {
            extents: extents.clone(),
            rank: rank + more,
            dtype: s.dtype,
            reads,
            body: s.body.clone(),
        };
        self.draft.local(made, Layout { dims, partial: None }, why)
    }
}

/// Bytes that a device receives where these results are summed over these digits: scattered, and gathered again where they are whole.
fn summed(list: &[Sentence], layouts: &[Layout], all: &Atoms) -> usize {
    let one = |(s, to): (&Sentence, &Layout)| {
        let held: Atoms = to.dims.iter().flat_map(|d| d.atoms.clone()).collect();
        let scattered = ways(&common(&held, all));
        let elements: usize = s.extents[..s.rank].iter().product();
        let bytes = elements.saturating_mul(s.dtype.size()) / (ways(&held) / scattered);
        let once = bytes - bytes / ways(all);
        if scattered == ways(all) { once } else { once.saturating_mul(2) }
    };
    list.iter().zip(layouts).map(one).fold(0, usize::saturating_add)
}
