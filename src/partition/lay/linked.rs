//! Linked: which values elementwise steps and folds read in place of one another, and along which loops.

use super::frames::distances;
use crate::partition::draft::{Draft, Item};
use crate::partition::layout::DimLayout;
use crate::partition::program::{Slot, Step};
use crate::program::sentence::{Body, Read, Sentence, Source, Span};
use crate::sharding::atoms::whole_axes;
use crate::sorted;
use std::collections::BTreeMap;

/// Regions of more values are left as they are.
const MEMBERS: usize = 64;

/// Who makes and reads which value.
pub(super) struct Graph {
    pub(super) maker: Vec<Option<usize>>,
    pub(super) readers: Vec<Vec<usize>>,
    movable: Vec<bool>,
}

impl Graph {
    pub(super) fn new(d: &Draft) -> Graph {
        let n = d.slots.len();
        let mut g = Graph { maker: vec![None; n], readers: vec![Vec::new(); n], movable: vec![false; n] };
        for slot in d.free.iter().filter(|(_, free)| **free).map(|(slot, _)| *slot) {
            let stored = &d.slots[slot];
            let auto = |l: &DimLayout| d.mesh.as_ref().is_some_and(|m| whole_axes(m, &l.atoms).is_some());
            g.movable[slot] = stored.layout.partial.is_none()
                && stored.shape.iter().any(|n| *n > 1)
                && stored.layout.dims.iter().all(auto);
        }
        d.outs.iter().for_each(|s| g.movable[*s] = false);
        for (k, item) in d.items.iter().enumerate() {
            let priced = priced(d, item);
            for s in item.step.inputs() {
                if g.readers[s].last() != Some(&k) {
                    g.readers[s].push(k);
                }
                g.movable[s] &= priced;
            }
            for s in item.step.outputs() {
                g.maker[s] = Some(k);
                g.movable[s] &= priced && !item.pinned && item.user.is_none();
            }
        }
        (0..n).filter(|s| g.maker[*s].is_none()).for_each(|s| g.movable[s] = false);
        g
    }

    /// The regions, those nearest to the end of the program first: those of values that folds link too, or, `folds` being false, those of values
    /// that elementwise steps alone link.
    pub(super) fn regions(&self, d: &Draft, folds: bool) -> Vec<Region> {
        let n = d.slots.len();
        let mut dims = Joined::new(d.slots.iter().map(|s| s.shape.rank()));
        let mut root: Vec<usize> = (0..n).collect();
        for item in &d.items {
            let Step::Local { out, sentence, .. } = &item.step else { continue };
            let links = match sentence.body {
                Body::Product { .. } => false,
                Body::Fold { .. } => folds,
                _ => true,
            };
            if !self.movable[*out] || !links {
                continue;
            }
            let mut by_loop: Vec<Option<(Slot, usize)>> =
                (0..sentence.extents.len()).map(|l| (l < sentence.rank).then_some((*out, l))).collect();
            for read in &sentence.reads {
                let Some((src, along)) = in_place(d, sentence, read) else { continue };
                if !self.movable[src] || !along.iter().flatten().any(|l| *l < sentence.rank) {
                    continue;
                }
                join(&mut root, src, *out);
                for (dim, l) in along.into_iter().enumerate() {
                    let Some(l) = l else { continue };
                    match by_loop[l] {
                        Some(other) => dims.join(other, (src, dim)),
                        None => by_loop[l] = Some((src, dim)),
                    }
                }
            }
        }
        let mut members: BTreeMap<usize, Vec<Slot>> = BTreeMap::new();
        for v in (0..n).filter(|v| self.movable[*v]) {
            members.entry(find(&mut root, v)).or_default().push(v);
        }
        let far = distances(d);
        let mut regions: Vec<Region> = (members.into_values())
            .filter(|m| m.len() <= MEMBERS)
            .filter_map(|m| Region::new(d, m, &mut dims, &far))
            .collect();
        sorted::sort_by_key(&mut regions, |r| r.far);
        regions
    }
}

/// Whether a step's loops are laid out by price, whatever its operands' placements are.
pub(super) fn priced(d: &Draft, item: &Item) -> bool {
    let Step::Local { out, sentence, .. } = &item.step else { return false };
    let whole = |s: &Slot| d.slots[*s].layout.partial.is_none();
    matches!(sentence.body, Body::Map(_) | Body::Fold { .. } | Body::Product { .. } | Body::Lines(_))
        && whole(out)
        && item.step.inputs().iter().all(whole)
}

/// For a read of one value all of whose dimensions are read from end to end, each along a loop: the value, and the loops.
fn in_place(d: &Draft, s: &Sentence, read: &Read) -> Option<(Slot, Vec<Option<usize>>)> {
    let [part] = &read.parts[..] else { return None };
    let Source::Value(src) = part.from else { return None };
    let shape = &d.slots[src].shape;
    let whole = part.span.iter().zip(&s.extents).all(|(v, n)| *v == Span::all(*n));
    let along = part.map.iter().zip(&shape[..]).map(|(m, n)| match m.terms[..] {
        _ if *n == 1 => Some(None),
        [(l, 1)] if m.at == 0 && s.extents[l] == *n => Some(Some(l)),
        _ => None,
    });
    let along: Vec<Option<usize>> = along.collect::<Option<_>>()?;
    whole.then_some((src, along))
}

/// Values that are placed together.
pub(super) struct Region {
    pub(super) members: Vec<Slot>,
    /// For each member the loops that its dimensions are along: those of the whole region. None along a dimension of one element, and
    /// where a value has two dimensions along one loop.
    pub(super) along: Vec<Vec<Option<usize>>>,
    /// How many loops.
    pub(super) loops: usize,
    /// How far from the end of the program.
    pub(super) far: usize,
}

impl Region {
    fn new(d: &Draft, members: Vec<Slot>, dims: &mut Joined, far: &[usize]) -> Option<Region> {
        let mut loops: Vec<usize> = Vec::new();
        let mut along = Vec::with_capacity(members.len());
        let mut twice: Vec<usize> = Vec::new();
        for slot in &members {
            let mut own: Vec<Option<usize>> = Vec::new();
            for (dim, n) in d.slots[*slot].shape.iter().enumerate() {
                let l = dims.of((*slot, dim));
                let k = loops.iter().position(|x| *x == l).unwrap_or_else(|| {
                    loops.push(l);
                    loops.len() - 1
                });
                if own.contains(&Some(k)) {
                    twice.push(k);
                }
                own.push((*n > 1).then_some(k));
            }
            along.push(own);
        }
        let far = members.iter().map(|v| far[*v]).min()?;
        for l in along.iter_mut().flatten() {
            *l = l.filter(|l| !twice.contains(l));
        }
        Some(Region { members, along, loops: loops.len(), far })
    }
}

fn find(root: &mut [usize], mut v: usize) -> usize {
    while root[v] != v {
        root[v] = root[root[v]];
        v = root[v];
    }
    v
}
fn join(root: &mut [usize], a: usize, b: usize) {
    let (a, b) = (find(root, a), find(root, b));
    root[a.max(b)] = a.min(b);
}

/// Dimensions of values, joined where one loop runs over them.
struct Joined {
    first: Vec<usize>,
    root: Vec<usize>,
}

impl Joined {
    fn new(ranks: impl Iterator<Item = usize>) -> Joined {
        let mut all = 0;
        let mut first = Vec::new();
        for rank in ranks {
            first.push(all);
            all += rank;
        }
        Joined { first, root: (0..all).collect() }
    }
    fn join(&mut self, a: (Slot, usize), b: (Slot, usize)) {
        let (a, b) = (self.first[a.0] + a.1, self.first[b.0] + b.1);
        join(&mut self.root, a, b);
    }
    fn of(&mut self, (slot, dim): (Slot, usize)) -> usize {
        find(&mut self.root, self.first[slot] + dim)
    }
}
