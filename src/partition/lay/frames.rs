//! Frames: where the blocks of elementwise values begin that stay inside a program.
//!
//! A type fixes the axes of a dimension; where its blocks begin is free for a value that nobody outside sees. Values that read one
//! another in place share a frame, and it is placed where the group's other operands and readers are, whichever moves least.

use crate::partition::draft::Draft;
use crate::partition::layout::DimLayout;
use crate::partition::program::{Local, Slot};
use crate::program::sentence::{Part, Sentence, Source};
use crate::sorted;

/// Where the slots are used: their steps, their readers, and the groups of those whose frame is free.
struct Frames<'a> {
    d: &'a Draft,
    maker: Vec<Option<usize>>,
    readers: Vec<Vec<usize>>,
    group: Vec<Slot>,
}

/// A wish of a group's dimension: to be laid out so, for the sake of reading this source.
struct Wish {
    source: Slot,
    layout: DimLayout,
}

/// Sets the frames of all values that may be anywhere.
pub(crate) fn choose(d: &mut Draft) {
    let n = d.slots.len();
    let (mut maker, mut readers) = (vec![None; n], vec![Vec::new(); n]);
    for (k, item) in d.items.iter().enumerate() {
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
                && maker[v].is_some_and(|k| floats(d, v, k))
                && readers[v].iter().all(|u| reads_boxes(d, *u))
        })
        .collect();
    let mut f = Frames { d, maker, readers, group: (0..n).collect() };
    for v in (0..n).filter(|v| free[*v]) {
        let Some(s) = f.sentence(v) else { continue };
        let sources: Vec<Slot> = (0..s.reads.len()).filter_map(|read| d.in_place(s, read)).collect();
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
    // backwards: what reads a group is decided before it; groups that are as far from the end know nothing of one another
    let far = distances(d);
    let mut groups: Vec<(usize, &Vec<Slot>)> = (members.iter().filter(|group| !group.is_empty()))
        .map(|group| (group.iter().map(|v| far[*v]).min().unwrap_or(0), group))
        .collect();
    sorted::sort_by_key(&mut groups, |g| g.0);
    for alike in groups.chunk_by(|a, b| a.0 == b.0) {
        let frames: Vec<Vec<DimLayout>> = alike.iter().map(|g| f.frame(g.1, &layouts, &decided)).collect();
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

/// Whether a value's step lets its frame be anywhere: elementwise, and nothing partial.
fn floats(d: &Draft, v: Slot, k: usize) -> bool {
    let Some(sentence) = d.items[k].step.sentence() else { return false };
    sentence.body.elementwise().is_some()
        && !d.items[k].pinned
        && !d.is_copy(sentence)
        && d.slots[v].layout.partial.is_none()
        && d.items[k].step.inputs().iter().all(|s| d.slots[*s].layout.partial.is_none())
}

/// How many steps there are at most from each value to the end of the program.
pub(super) fn distances(d: &Draft) -> Vec<usize> {
    let mut far = vec![0; d.slots.len()];
    for item in d.items.iter().rev() {
        let here = 1 + item.step.outputs().into_iter().map(|s| far[s]).max().unwrap_or(0);
        item.step.inputs().into_iter().for_each(|s| far[s] = far[s].max(here));
    }
    far
}

/// Whether a step reads boxes, wherever they begin.
fn reads_boxes(d: &Draft, k: usize) -> bool {
    d.items[k].step.sentence().is_some_and(|s| s.body.reads_by_position())
}

impl Frames<'_> {
    fn root(&self, mut v: Slot) -> Slot {
        while self.group[v] != v {
            v = self.group[v];
        }
        v
    }
    fn sentence(&self, v: Slot) -> Option<&Sentence> {
        self.d.items[self.maker[v]?].step.sentence()
    }

    /// The frame of a group, by what is decided around it.
    fn frame(&self, group: &[Slot], layouts: &[Vec<DimLayout>], decided: &[bool]) -> Vec<DimLayout> {
        let stored = &self.d.slots[group[0]];
        let mut frame = stored.layout.dims.clone();
        if frame.iter().any(|l| !l.atoms.is_empty()) {
            let wishes = self.wishes(group, &stored.layout.dims, layouts, decided);
            for (dim, wishes) in wishes.iter().enumerate() {
                frame[dim] = best(&stored.layout.dims[dim], wishes, stored.shape[dim]);
            }
        }
        frame
    }

    /// For each dimension of a group, where its outer operands and readers would like it to be.
    fn wishes(
        &self,
        group: &[Slot],
        own: &[DimLayout],
        layouts: &[Vec<DimLayout>],
        decided: &[bool],
    ) -> Vec<Vec<Wish>> {
        let mut wishes: Vec<Vec<Wish>> = own.iter().map(|_| Vec::new()).collect();
        let inside = |s: Slot| !decided[s] && self.root(s) == self.root(group[0]);
        let mut steps: Vec<usize> = group.iter().filter_map(|v| self.maker[*v]).collect();
        let makers = steps.len();
        let outer = group.iter().flat_map(|v| self.readers[*v].iter().copied());
        steps.extend(outer.filter(|k| self.d.items[*k].step.local().is_some_and(|l| !inside(l.out))));
        sorted::sort(&mut steps[makers..]);
        steps.dedup();
        for k in steps {
            let Some(Local { out, sentence, .. }) = self.d.items[k].step.local() else { continue };
            // a product reads boxes that begin where its own do, as far as its loops are the result's
            let placed = sentence.body.elementwise().is_some() || sentence.body.contracts();
            if !placed || !inside(out) && !decided[out] {
                continue;
            }
            for p in sentence.reads.iter().flat_map(|r| &r.parts) {
                let Source::Value(s) = p.from else { continue };
                for (loop_, dim, shift) in unit(p).into_iter().filter(|u| u.0 < sentence.rank) {
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
                    if l.atoms == own[d].atoms && !l.atoms.is_empty() {
                        wishes[d].push(Wish { source: s, layout: DimLayout { origin, ..l.clone() } });
                    }
                }
            }
        }
        wishes
    }
}

/// Where a part reads a dimension step by step along a loop: (loop, dimension, position − index).
fn unit(p: &Part) -> Vec<(usize, usize, i64)> {
    let of = |(dim, m): (usize, &crate::program::sentence::Affine)| match m.terms[..] {
        [(l, 1)] if p.span[l].step == 1 => Some((l, dim, m.at - p.span[l].lo)),
        _ => None,
    };
    p.map.iter().enumerate().filter_map(of).collect()
}

/// The frame that needs the least from neighbours: for each source the furthest to the left and to the right.
fn best(own: &DimLayout, wishes: &[Wish], size: usize) -> DimLayout {
    let price = |c: &DimLayout| -> i64 {
        let mut halo: Vec<(Slot, i64, i64)> = Vec::new();
        for w in wishes {
            let k = halo.iter().position(|h| h.0 == w.source).unwrap_or_else(|| {
                halo.push((w.source, 0, 0));
                halo.len() - 1
            });
            let l = &w.layout;
            let shift = if l.block == c.block { l.origin - c.origin } else { size as i64 };
            halo[k] = (w.source, halo[k].1.max(shift), halo[k].2.max(-shift));
        }
        halo.iter().map(|h| h.1 + h.2).sum()
    };
    // the first and the last rank are stretched to the ends: not beyond two blocks
    let fits = |c: &&DimLayout| {
        [0, c.ways() - 1].iter().all(|r| {
            let (lo, hi) = c.range(*r, size);
            hi - lo <= 2 * own.block
        })
    };
    // of frames at one price the nearest to its own, whoever wishes it
    let near = |c: &DimLayout| (*c != *own, (c.origin - own.origin).abs(), c.origin, c.block);
    let mut seen: Vec<&DimLayout> = std::iter::once(own).chain(wishes.iter().map(|w| &w.layout)).collect();
    sorted::sort_by_key(&mut seen, |c| near(c));
    seen.dedup();
    seen.into_iter().filter(fits).min_by_key(|c| price(c)).unwrap_or(own).clone()
}
