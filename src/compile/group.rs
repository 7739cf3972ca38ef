//! Passes 2 and 3, groups and stored values: which steps share one run over an index space, and what is in memory.
//!
//! Items are taken in order. A map joins the group of highest level that it reads in place, if everything else that it reads is
//! ready before that group; a fold takes over the elementwise groups that it alone reads. A group's level is the longest path to it, so
//! groups of one level are independent.

use super::flow::{Flow, Fold, Item, Map, Piece, Uses};
use super::index::{Ix, MAX};
use crate::partition::Slot;
use crate::program::sentence::Source;
use crate::sorted;
use smallvec::SmallVec;

/// What a group is around.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Head {
    /// Maps only.
    Elementwise,
    /// A product, then maps on its tiles.
    Product(usize),
    /// Maps, then a fold of their values.
    Fold(usize),
    /// Any other item, alone.
    Whole(usize),
}

/// A map of a group: the index of its loop d is that of the space's dimension `dims[d]`, less `shift[d]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Member {
    /// Which item.
    pub(crate) item: usize,
    /// The index of the space, less the member's.
    pub(crate) shift: Ix,
    /// The dimension of the space for each loop.
    pub(crate) dims: [u8; MAX],
}

/// Items that run together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// What it is around.
    pub(crate) head: Head,
    /// Its maps, in order.
    pub(crate) members: Vec<Member>,
    /// The longest path to it, from 1.
    pub(crate) level: u32,
    /// Whether another group took its members.
    pub(crate) absorbed: bool,
    /// Pieces of all reads: bounds the number of cells.
    pieces: usize,
}

/// Where a value is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Def {
    /// By which group.
    pub(crate) group: usize,
    /// By which item.
    pub(crate) item: usize,
    /// The index of the group's space, less the value's.
    shift: Ix,
    /// Dimensions; none where nothing can join.
    rank: Option<usize>,
}

/// A flow in groups.
#[derive(Debug)]
pub(crate) struct Groups<'f, 'p> {
    /// The items.
    pub(crate) flow: &'f Flow<'p>,
    /// The groups, those absorbed too.
    pub(crate) list: Vec<Group>,
    /// Where each value is made; inputs are not.
    pub(crate) def: Vec<Option<Def>>,
    /// The group that each item runs in.
    pub(crate) at: Vec<usize>,
    /// Whether a value is in memory.
    pub(crate) stored: Vec<bool>,
}

/// Most maps of a group.
const MEMBERS: usize = 40;
/// Most pieces of a group.
const PIECES: usize = 96;
/// Loops in order.
const SAME: [u8; MAX] = {
    let (mut s, mut d) = ([0; MAX], 0);
    while d < MAX {
        s[d] = d as u8;
        d += 1;
    }
    s
};

/// Groups a flow.
pub(crate) fn group<'f, 'p>(flow: &'f Flow<'p>) -> Groups<'f, 'p> {
    let n = flow.values.len();
    let at = Vec::with_capacity(flow.items.len());
    let mut g = Groups { flow, list: Vec::new(), def: vec![None; n], at, stored: vec![false; n] };
    let mut printed = 0;
    for k in 0..flow.items.len() {
        let group = g.place(k, &mut printed);
        g.at.push(group);
    }
    g.store();
    g
}

/// The sources of a map: each slot, with its shift if every read of it is in place.
type Sources = SmallVec<[(Slot, Option<Ix>); 4]>;

impl Groups<'_, '_> {
    /// The map of this item.
    pub(crate) fn map(&self, k: usize) -> &Map<'_> {
        match &self.flow.items[k] {
            Item::Map(m) => m,
            _ => unreachable!("members are maps"),
        }
    }
    /// The fold of this item.
    pub(crate) fn fold(&self, k: usize) -> &Fold<'_> {
        match &self.flow.items[k] {
            Item::Fold(f) => f,
            _ => unreachable!("the head is a fold"),
        }
    }
    /// The items of a group.
    pub(crate) fn items(&self, group: usize) -> impl Iterator<Item = usize> {
        let head = match self.list[group].head {
            Head::Fold(item) | Head::Whole(item) | Head::Product(item) => Some(item),
            Head::Elementwise => None,
        };
        self.list[group].members.iter().map(|m| m.item).chain(head)
    }
    /// Bytes of an element of what the fold of this group combines.
    pub(crate) fn fold_size(&self, group: usize) -> Option<i64> {
        let Head::Fold(k) = self.list[group].head else { return None };
        Some(self.fold(k).dtype.size() as i64)
    }
    /// The level at which a value is ready.
    pub(crate) fn level_of(&self, s: Slot) -> u32 {
        self.def[self.flow.root(s)].map_or(0, |d| self.list[d.group].level)
    }
    /// The level at which an item runs.
    pub(crate) fn level_at(&self, item: usize) -> u32 {
        self.list[self.at[item]].level
    }
    fn open(&mut self, head: Head, level: u32) -> usize {
        self.list.push(Group { head, members: Vec::new(), level, absorbed: false, pieces: 0 });
        self.list.len() - 1
    }
    fn next_level(&self, sources: impl IntoIterator<Item = Slot>) -> u32 {
        1 + sources.into_iter().map(|s| self.level_of(s)).max().unwrap_or(0)
    }
    /// Gives an item its group.
    fn place(&mut self, k: usize, printed: &mut u32) -> usize {
        match &self.flow.items[k] {
            Item::Map(m) => {
                let sources = self.sources(m);
                let pieces: usize = m.reads.iter().map(|r| r.pieces.len()).sum();
                let (g, shift) = self.join(m, &sources, pieces).unwrap_or_else(|| {
                    let level = self.next_level(sources.iter().map(|s| s.0));
                    (self.open(Head::Elementwise, level), [0; MAX])
                });
                self.list[g].members.push(Member { item: k, shift, dims: SAME });
                self.list[g].pieces += pieces;
                self.def[m.out] = Some(Def { group: g, item: k, shift, rank: Some(m.n) });
                g
            }
            Item::Fold(f) if f.code.is_none() => {
                let level = self.next_level(self.flow.items[k].sources());
                let g = self.open(Head::Product(k), level);
                let rank = (f.copies.len() == 1).then_some(f.rank);
                self.def[f.out] = Some(Def { group: g, item: k, shift: [0; MAX], rank });
                g
            }
            Item::Fold(f) => {
                let g = self.take_over(k, f);
                self.def[f.out] = Some(Def { group: g, item: k, shift: [0; MAX], rank: None });
                g
            }
            item => {
                let mut level = self.next_level(item.sources());
                if item.prints() {
                    level = level.max(*printed + 1);
                    *printed = level;
                }
                let g = self.open(Head::Whole(k), level);
                for o in item.results() {
                    self.def[o] = Some(Def { group: g, item: k, shift: [0; MAX], rank: None });
                }
                g
            }
        }
    }
    fn sources(&self, m: &Map<'_>) -> Sources {
        let mut v = Sources::new();
        for p in m.reads.iter().flat_map(|r| &r.pieces) {
            let Source::Value(s) = p.from else { continue };
            let root = self.flow.root(s);
            let unit = if root == s { p.unit(m.n) } else { None };
            match v.iter_mut().find(|x| x.0 == root) {
                Some(x) if x.1 != unit => x.1 = None,
                Some(_) => {}
                None => v.push((root, unit)),
            }
        }
        v
    }
    /// Whether all readers of s are maps of group g.
    fn inner(&self, s: Slot, g: usize) -> bool {
        let reads = |m: &&Member| {
            let of = |p: &Piece| matches!(p.from, Source::Value(x) if self.flow.root(x) == s);
            self.map(m.item).reads.iter().any(|r| r.pieces.iter().any(of))
        };
        let uses = self.flow.uses[s];
        !uses.result && uses.readers as usize == self.list[g].members.iter().filter(reads).count()
    }
    fn sizes(&self, s: Slot) -> &[usize] {
        &self.flow.values[s].shape
    }
    fn extents_are(&self, m: &Map<'_>, s: Slot) -> bool {
        let shape = self.sizes(s);
        m.n == shape.len() && m.ext[..m.n].iter().zip(shape).all(|(a, b)| *a == *b as i64)
    }
    /// The group a map joins and its shift there.
    fn join(&mut self, m: &Map<'_>, sources: &Sources, pieces: usize) -> Option<(usize, Ix)> {
        let head = |g: usize| self.list[g].head;
        let (s, t, d) = sources
            .iter()
            .filter_map(|(s, t)| Some((*s, (*t)?, self.def[*s]?)))
            .filter(|x| x.2.rank == Some(m.n))
            .filter(|x| matches!(head(x.2.group), Head::Elementwise | Head::Product(_)))
            .max_by_key(|x| (self.list[x.2.group].level, matches!(head(x.2.group), Head::Product(_))))?;
        let (g, level) = (d.group, self.list[d.group].level);
        let shift: Ix = std::array::from_fn(|i| t[i] + d.shift[i]);
        let room = |g: &Group, h: &Group| {
            g.members.len() + h.members.len() < MEMBERS && g.pieces + h.pieces + pieces <= PIECES
        };
        if self.list[g].members.len() >= MEMBERS || self.list[g].pieces + pieces > PIECES {
            return None;
        }
        if let Head::Product(_) = self.list[g].head
            && (shift != [0; MAX] || !self.extents_are(m, s))
        {
            return None;
        }
        let mut merge: SmallVec<[usize; 4]> = SmallVec::new();
        for (q, tq) in sources {
            let Some(dq) = self.def[*q] else { continue };
            if dq.group == g {
                let at = tq.as_ref()?;
                if (0..MAX).any(|i| at[i] + dq.shift[i] != shift[i]) {
                    return None;
                }
                continue;
            }
            let gq = &self.list[dq.group];
            let like = tq.is_some()
                && dq.rank == Some(m.n)
                && gq.head == Head::Elementwise
                && shift == [0; MAX]
                && gq.members.iter().all(|m| m.shift == [0; MAX])
                && self.extents_are(m, *q)
                && *tq == Some([0; MAX])
                && room(&self.list[g], gq);
            if gq.level == level {
                if !like {
                    return None;
                }
                merge.push(dq.group);
            } else if gq.level > level {
                return None;
            } else if like && self.flow.uses[*q] == Uses::ONCE {
                let internal = |m: &Member| {
                    let o = self.map(m.item).out;
                    o == *q || self.inner(o, dq.group)
                };
                if gq.members.iter().all(internal) {
                    merge.push(dq.group);
                }
            }
        }
        for h in merge {
            if !self.list[h].absorbed && room(&self.list[g], &self.list[h]) {
                self.absorb(h, g);
            } else if !self.list[h].absorbed && self.list[h].level == level {
                return None;
            }
        }
        Some((g, shift))
    }
    fn absorb(&mut self, h: usize, g: usize) {
        let members = std::mem::take(&mut self.list[h].members);
        self.list[h].absorbed = true;
        self.list[g].pieces += self.list[h].pieces;
        for m in &members {
            self.at[m.item] = g;
            let out = self.map(m.item).out;
            if let Some(d) = &mut self.def[out] {
                d.group = g;
            }
        }
        self.list[g].members.extend(members);
        sorted::sort_by_key(&mut self.list[g].members, |m| m.item);
    }
    /// A fold's group: with the maps of the groups that only it reads, each by one permutation of all its loops.
    fn take_over(&mut self, k: usize, f: &Fold<'_>) -> usize {
        let mut taken: SmallVec<[(usize, [u8; MAX]); 2]> = SmallVec::new();
        let mut level = 1;
        for s in self.flow.items[k].sources() {
            let root = self.flow.root(s);
            match self.takeable(f, s).filter(|t| !taken.iter().any(|x| x.0 == t.0)) {
                Some(t) if root == s => {
                    level = level.max(self.list[t.0].level);
                    taken.push(t);
                }
                _ => level = level.max(1 + self.level_of(s)),
            }
        }
        let g = self.open(Head::Fold(k), level);
        for (h, dims) in taken {
            for m in &mut self.list[h].members {
                m.dims = dims;
            }
            self.absorb(h, g);
        }
        g
    }
    fn takeable(&self, f: &Fold<'_>, s: Slot) -> Option<(usize, [u8; MAX])> {
        let d = self.def[s]?;
        let g = &self.list[d.group];
        if g.head != Head::Elementwise || g.members.len() > 12 || self.flow.uses[s] != Uses::ONCE {
            return None;
        }
        let mut dims = None;
        for p in f.reads.iter().flat_map(|r| &r.pieces).filter(|p| p.from == Source::Value(s)) {
            let own = p.permutation(f.n)?;
            if *dims.get_or_insert(own) != own {
                return None;
            }
        }
        let fine = |m: &Member| {
            let map = self.map(m.item);
            m.shift == [0; MAX]
                && self.extents_are(map, s)
                && (map.out == s || self.inner(map.out, d.group))
                && map.reads.iter().all(|r| r.simple(&map.ext, map.n))
        };
        (g.members.iter().all(fine)).then_some((d.group, dims?))
    }
    /// What is in memory: results, and what another group reads, or the own group at another place.
    fn store(&mut self) {
        let flow = self.flow;
        for s in &flow.outs {
            self.stored[flow.root(*s)] = true;
        }
        for item in &flow.items {
            match item {
                Item::Map(m) => {
                    let g = self.def[m.out].map(|d| d.group);
                    for (s, unit) in self.sources(m) {
                        let within = self.def[s].map(|d| d.group) == g && unit.is_some();
                        if !within {
                            self.stored[s] = true;
                        }
                    }
                }
                Item::Fold(f) => {
                    let g = self.def[f.out].map(|d| d.group);
                    for s in item.sources() {
                        let root = flow.root(s);
                        if root != s || self.def[s].map(|d| d.group) != g {
                            self.stored[root] = true;
                        }
                    }
                }
                _ => {
                    for s in item.sources() {
                        self.stored[flow.root(s)] = true;
                    }
                    for s in item.results() {
                        self.stored[s] = true;
                    }
                }
            }
        }
        for k in 0..self.list.len() {
            if let Head::Fold(item) = self.list[k].head {
                let out = self.fold(item).out;
                self.stored[out] = true;
            }
        }
    }
}
