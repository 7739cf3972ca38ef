//! Rows that stay in cache: a fold of rows or a take of them, what reads its results at the same rows, and so on, run as one node, some
//! rows at a time.
//!
//! Which groups these are is read from the places in memory that their programs name: each writes row r of a value into the r-th part of its memory,
//! and reads what the others wrote there only. So a node's tasks need no barrier between its groups, and a value that nobody else
//! reads has a strip of a worker's own, of a few rows. Every group computes what it computes by itself: no bit depends on this.

use super::puts::Puts;
use super::scores::Beside;
use super::strips::{Part, RowsKernel, Strip, all_mems, mems, packed};
use super::{Kernel, Memory, Node, What};
use crate::compile::flow::{Item, Piece};
use crate::compile::fold::FoldKernel;
use crate::compile::group::{Group, Groups, Head};
use crate::compile::index::MAX;
use crate::compile::product::{Along, ProductKernel};
use crate::compile::rowwise::RowWise;
use crate::compile::seek::{self, SeekKernel};
use crate::compile::tiles::Tiles;
use crate::partition::Slot;
use crate::program::sentence::Source;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Fewest rows that are worth it: tasks are made of whole rows.
const FEWEST: i64 = 16;
/// Bytes that the rows of a turn have in cache.
const TURN: i64 = 128 << 10;
/// Most bytes of one row.
const LONGEST: i64 = 256 << 10;

/// What a group reads is taken into a chain before it from at most so far away.
const PULLED: usize = 8;

/// A chain that grows: its rows, its first level, its groups in order, and what they make.
#[derive(Clone)]
pub(super) struct Grown {
    pub(super) rows: i64,
    pub(super) first: u32,
    pub(super) groups: Vec<usize>,
    pub(super) made: Vec<Slot>,
    /// The put that runs last, and makes nothing for the others.
    pub(super) put: Option<usize>,
}

/// Groups that are one node.
#[derive(Debug)]
pub(super) struct Chain {
    /// In the order in which they run.
    pub(super) groups: Vec<usize>,
    rows: i64,
    /// Values that have strips, and the bytes of a row.
    pub(super) strips: Vec<(Slot, i64)>,
    /// Bytes of a row of all that is read and made.
    bytes: i64,
    /// Its products, which are the first and the last of the groups.
    beside: Beside,
    /// Whether its rows may go in any order: there is nothing of a row but in strips, and where a take finds it.
    free: bool,
}

/// The takes among groups, as they are bound.
pub(super) fn takes(g: &Groups<'_, '_>, base: u32, puts: &Puts) -> Vec<Option<SeekKernel>> {
    let place = |s: Slot| puts.last(g.flow.root(s)) as u32 + base;
    let take = |group: &Group| match group.head {
        Head::Whole(item) => match &g.flow.items[item] {
            Item::Seek(s) if s.put.is_none() => Some(seek::bind(g.flow, s, &place, false, 1)),
            _ => None,
        },
        _ => None,
    };
    g.list.iter().map(take).collect()
}

/// The puts among groups that go through their updates row by row. Those that do not sort them, so that of several workers each would make all
/// updates to put its own, do it in one task: they are small, or there is one worker.
pub(super) fn puts(g: &Groups<'_, '_>, base: u32, puts: &Puts, workers: i64) -> Vec<Option<SeekKernel>> {
    let place = |s: Slot| puts.last(g.flow.root(s)) as u32 + base;
    let alone = |s: Slot| puts.last(s) == s && puts.first(s) == s;
    let put = |group: &Group| {
        if on_a_page!() {
            return None;
        }
        let Head::Whole(item) = group.head else { return None };
        let Item::Seek(s) = &g.flow.items[item] else { return None };
        let own = s.put.is_some() && s.over(g.flow).into_iter().chain([s.out]).all(alone);
        own.then(|| seek::bind(g.flow, s, &place, false, workers))
            .filter(|k| (k.chunks == 1 || k.sorts_updates()) && k.by_turns().is_some())
    };
    g.list.iter().map(put).collect()
}

/// What binds the product of a group.
type Bind<'b> = dyn Fn(&Groups<'_, '_>, usize) -> Option<ProductKernel> + 'b;

/// The groups of a flow as they are bound.
pub(super) struct Bound<'b> {
    /// Those of maps alone.
    pub(super) maps: &'b [Option<Node>],
    /// Folds.
    pub(super) folds: &'b [Option<(Arc<FoldKernel>, Option<u32>)>],
    /// Takes.
    pub(super) takes: &'b [Option<SeekKernel>],
    /// Puts that may end a chain.
    pub(super) puts: &'b [Option<SeekKernel>],
    /// Where products are, if in the memory of other values.
    pub(super) same: &'b [Option<Slot>],
    /// Binds a product.
    pub(super) product: &'b Bind<'b>,
    /// The flow's first slot.
    pub(super) base: usize,
    /// The places of slots.
    pub(super) places: &'b [Memory],
}

impl Bound<'_> {
    fn tiles(&self, k: usize) -> Option<&Tiles> {
        match (&self.maps[k], &self.folds[k]) {
            (Some(Node { kernel: Kernel::Tiles { tiles, .. }, .. }), _) => Some(tiles),
            (_, Some((f, _))) => f.by_rows().then_some(&f.pre),
            _ => None,
        }
    }
    /// What a group makes, if that is nobody else's memory.
    fn makes(&self, g: &Groups<'_, '_>, k: usize) -> Option<Vec<Slot>> {
        let own = |s: &Slot| matches!(self.places[self.base + s], Memory::Nowhere | Memory::Out(_));
        let makes: Vec<Slot> = match (g.list[k].head, &self.maps[k], &self.takes[k]) {
            (Head::Fold(item), ..) => vec![g.fold(item).out],
            (_, Some(node), _) => node.what.makes.iter().map(|m| m.0).collect(),
            (.., Some(take)) => vec![take.out() as usize - self.base],
            _ => return None,
        };
        makes.iter().all(own).then_some(makes)
    }
    /// Whether all that a group reads or writes of this value is, for its row r, in the r-th of so many rows.
    pub(super) fn local(&self, k: usize, s: Slot, rows: i64, row: i64) -> bool {
        if let Some(t) = &self.takes[k] {
            return t.by_rows() == Some(rows);
        }
        let Some(t) = self.tiles(k) else { return false };
        let inside = |st: &[i64; MAX], off: i64, size: i64| {
            let each = t.ext[0] / rows;
            let ext = |d: usize| if d == 0 { each } else { t.ext[d] };
            let far = |d: usize| st[d] * (ext(d) - 1);
            let low: i64 = off + (0..t.rank).map(|d| far(d).min(0)).sum::<i64>();
            let high: i64 = off + (0..t.rank).map(|d| far(d).max(0)).sum::<i64>();
            st[0] * each == row && low >= 0 && high + size <= row
        };
        let slot = (self.base + s) as u32;
        let written = self.folds[k].as_ref().filter(|(f, _)| f.out == slot);
        mems(t).filter(|m| m.slot == slot).all(|m| inside(&m.st, m.off, i64::from(m.size)))
            && written.is_none_or(|(f, _)| inside(f.steps(), 0, f.size()))
    }

    /// The chains of a flow. Their groups run at the level of the first one: that is given to them.
    pub(super) fn chains(&self, g: &mut Groups<'_, '_>, over: impl Fn(usize) -> bool) -> Vec<Chain> {
        let mut readers: HashMap<u32, Vec<usize>> = HashMap::new();
        let takes = (0..g.list.len()).filter(|k| self.takes[*k].is_some());
        let folds = (0..g.list.len()).filter(|k| matches!(&self.folds[*k], Some((f, _)) if f.by_rows()));
        // what is taken may be folded
        let seeds: Vec<usize> = takes.chain(folds).collect();
        if seeds.is_empty() {
            return Vec::new();
        }
        for k in 0..g.list.len() {
            let Some(t) = self.tiles(k) else { continue };
            for m in mems(t) {
                let list = readers.entry(m.slot).or_default();
                if list.last() != Some(&k) {
                    list.push(k);
                }
            }
        }
        for (k, put) in self.puts.iter().enumerate().filter(|_| !on_a_page!()) {
            if let Some(put) = put {
                readers.entry(put.from()).or_default().push(k);
            }
        }
        let (mut chains, mut taken) = (Vec::new(), vec![false; g.list.len()]);
        for seed in seeds {
            if taken[seed] {
                continue;
            }
            let Some(chain) = self.chain(g, seed, &readers, |k| taken[k] || over(k)) else { continue };
            let level = g.list[seed].level;
            for k in &chain.groups {
                g.list[*k].level = level;
                taken[*k] = true;
            }
            chains.push(chain);
        }
        chains
    }
    fn chain(
        &self,
        g: &Groups<'_, '_>,
        seed: usize,
        readers: &HashMap<u32, Vec<usize>>,
        not: impl Fn(usize) -> bool,
    ) -> Option<Chain> {
        let first = g.list[seed].level;
        // how many rows, and how many bytes of one the seed has in scratch
        let (rows, bytes) = match &self.takes[seed] {
            Some(take) => (take.by_rows()?, 0),
            None => {
                let t = self.tiles(seed)?;
                (t.ext[0], t.elements() / t.ext[0].max(1) * g.fold_size(seed)?)
            }
        };
        let empty = self.tiles(seed).is_some_and(|t| t.elements() == 0);
        if rows < FEWEST || empty || not(seed) {
            return None;
        }
        let mut grown = Grown { rows, first, groups: Vec::new(), made: Vec::new(), put: None };
        // by level: what a group reads of the chain has been looked at before
        let mut open = BTreeSet::new();
        open.insert((first, seed));
        while let Some((level, k)) = open.pop_first() {
            let from = grown.made.len();
            if k != seed && level <= first || !self.admit(g, k, &mut grown, &not, PULLED) {
                continue;
            }
            for s in &grown.made[from..] {
                let next = readers.get(&((self.base + s) as u32)).into_iter().flatten();
                open.extend(next.filter(|r| !grown.groups.contains(r)).map(|r| (g.list[*r].level, *r)));
            }
        }
        if grown.groups.len() + usize::from(grown.put.is_some()) < 2 {
            return None;
        }
        let many = |put: usize| self.puts[put].as_ref().is_some_and(|p| p.chunks > 1);
        let many = !on_a_page!() && grown.put.is_some_and(many);
        let without = many.then(|| Grown { put: None, ..grown.clone() });
        let beside = self.beside(g, &grown, &not);
        let whole = self.closed(g, grown, beside, bytes)?;
        match without {
            // a put in several tasks is not in the chain where its rows cannot go in the order that it wants
            Some(without) if !whole.free => {
                let beside = self.beside(g, &without, &not);
                if without.groups.len() < 2 { None } else { self.closed(g, without, beside, bytes) }
            }
            _ => Some(whole),
        }
    }
    /// What has grown as a chain, with products beside it; `bytes`: those of a row that are in scratch.
    fn closed(&self, g: &Groups<'_, '_>, grown: Grown, beside: Beside, mut bytes: i64) -> Option<Chain> {
        let Grown { rows, groups, mut made, put, .. } = grown;
        let groups: Vec<usize> = (beside.before.iter().map(|b| b.0))
            .chain(groups)
            .chain(put)
            .chain(beside.after.iter().map(|b| b.0))
            .collect();
        made.extend(&beside.made);
        let row = |s: Slot| super::schedule::bytes(g.flow, s) as i64 / rows;
        bytes += made.iter().map(|s| row(*s)).sum::<i64>();
        if bytes > LONGEST {
            return None;
        }
        let items = groups.iter().flat_map(|k| g.items(*k));
        let mut inner: HashMap<Slot, u32> = HashMap::new();
        for s in items.flat_map(|i| g.flow.items[i].sources()) {
            *inner.entry(g.flow.root(s)).or_default() += 1;
        }
        let private = |s: &Slot| {
            let uses = g.flow.uses[*s];
            !uses.result
                && self.places[self.base + s] == Memory::Nowhere
                && inner.get(s) == Some(&uses.readers)
        };
        let strips: Vec<(Slot, i64)> = made.iter().copied().filter(private).map(|s| (s, row(s))).collect();
        let in_strips = |slot: u32| strips.iter().any(|s| (self.base + s.0) as u32 == slot);
        let free = |k: &usize| match (&self.takes[*k], self.tiles(*k)) {
            (Some(take), _) => take.in_any_order(),
            (None, Some(t)) => all_mems(t).all(|m| m.st[0] == 0 || in_strips(m.slot)),
            (None, None) => true,
        };
        let products = !(beside.before.is_empty() && beside.after.is_empty());
        let free = !on_a_page!() && !products && strips.len() == made.len() && groups.iter().all(free);
        Some(Chain { groups, rows, strips, bytes, beside, free })
    }
    /// Takes a group into the chain, if it has the chain's rows, and what it reads is ready before or in the chain. What is neither is taken
    /// in before it, if that is possible: it need not read anything of the chain.
    fn admit(
        &self,
        g: &Groups<'_, '_>,
        k: usize,
        c: &mut Grown,
        not: &dyn Fn(usize) -> bool,
        deep: usize,
    ) -> bool {
        if c.groups.contains(&k) {
            return true;
        }
        if let Some(put) = self.puts[k].as_ref().filter(|_| !on_a_page!()) {
            // (what it makes is nobody's in the chain)
            if deep == PULLED && !not(k) && self.ends(g, k, put, c) {
                c.put = Some(k);
            }
            return false;
        }
        let Some(makes) = self.makes(g, k) else { return false };
        let size = |s: Slot| super::schedule::bytes(g.flow, s) as i64;
        let local = |s: &Slot| self.local(k, *s, c.rows, size(*s) / c.rows);
        if not(k) || !makes.iter().all(|s| size(*s) % c.rows == 0 && local(s)) {
            return false;
        }
        let Some(t) = self.tiles(k) else {
            // a take, with which the chain begins
            let begins = c.groups.is_empty() && self.takes[k].is_some();
            if begins {
                c.groups.push(k);
                c.made.extend(makes);
            }
            return begins;
        };
        if t.ext[0] % c.rows != 0 || t.elements() == 0 {
            return false;
        }
        let before = (c.groups.len(), c.made.len());
        for m in mems(t) {
            let s = m.slot as usize - self.base;
            if makes.contains(&s) || c.made.contains(&s) || g.level_of(s) < c.first {
                continue;
            }
            let by = g.def[g.flow.root(s)].map(|d| d.group);
            let pulled = deep > 0 && by.is_some_and(|by| by != k && self.admit(g, by, c, not, deep - 1));
            if !pulled || !c.made.contains(&s) {
                c.groups.truncate(before.0);
                c.made.truncate(before.1);
                return false;
            }
        }
        let fine = c
            .made
            .iter()
            .filter(|s| self.reads(k, **s))
            .all(|s| self.local(k, *s, c.rows, size(*s) / c.rows));
        if fine {
            c.groups.push(k);
            c.made.extend(makes);
        } else {
            c.groups.truncate(before.0);
            c.made.truncate(before.1);
        }
        fine
    }
    /// Whether a put may end the chain: row by row it puts what the chain makes, and all else that it reads is ready before.
    fn ends(&self, g: &Groups<'_, '_>, k: usize, put: &SeekKernel, c: &Grown) -> bool {
        let from = put.from() as usize - self.base;
        let Head::Whole(item) = g.list[k].head else { return false };
        let Item::Seek(s) = &g.flow.items[item] else { return false };
        let others = s.reads.iter().enumerate().filter(|(k, _)| *k != 1).flat_map(|(_, o)| &o.pieces);
        let ready = |p: &Piece| match p.from {
            Source::Value(s) => g.flow.root(s) != from && g.level_of(s) < c.first,
            Source::Const(_) => true,
        };
        c.put.is_none()
            && put.by_turns() == Some(c.rows)
            && c.made.contains(&from)
            && others.into_iter().all(ready)
    }
    pub(super) fn reads(&self, k: usize, s: Slot) -> bool {
        let slot = (self.base + s) as u32;
        self.tiles(k).is_some_and(|t| mems(t).any(|m| m.slot == slot))
    }
}

/// Which chain each group is in, and where there.
pub(super) fn places(chains: &[Chain]) -> HashMap<usize, (usize, usize)> {
    let of = |(c, chain): (usize, &Chain)| {
        chain.groups.iter().enumerate().map(|(at, k)| (*k, (c, at))).collect::<Vec<_>>()
    };
    chains.iter().enumerate().flat_map(of).collect()
}

impl Chain {
    /// What runs these programs row by row; `strip`: what has room for one row.
    fn wise(&self, parts: &[Part], strip: impl Fn(u32) -> bool) -> Option<RowWise> {
        if on_a_page!() {
            return None;
        }
        let mut wise = RowWise::default();
        let all = parts.iter().all(|p| match p {
            Part::Tiles(t) => wise.push(t, self.rows, None, &strip),
            Part::Fold(f) => f.join(&mut wise, self.rows, &strip),
            Part::Take(_) | Part::Put(_) => false,
        });
        all.then(|| wise.done(self.rows))
    }
    /// The nodes of the chain's groups, in its order, as one.
    pub(super) fn node(&self, mut nodes: Vec<Node>, base: usize) -> Node {
        let cost: f64 = nodes.iter().map(|n| n.cost).sum();
        let gone = |s: &Slot| self.strips.iter().any(|x| x.0 == *s);
        // (what products make before is nobody else's)
        let others = &nodes[self.beside.before.len()..];
        let makes = others.iter().flat_map(|n| &n.what.makes).filter(|m| !gone(&m.0)).cloned().collect();
        let maps = nodes.iter().map(|n| n.what.maps).sum();
        let step = nodes.iter().rev().find_map(|n| n.what.step.clone());
        let product = |(n, (_, along)): (Node, &(usize, Along))| match n.kernel {
            Kernel::Product(p) => Some((p, along.clone())),
            _ => None,
        };
        let Beside { before, after, held, turn, .. } = &self.beside;
        let left = nodes.len() - before.len();
        let mut apart = |from: usize, list: &[(usize, Along)]| -> Vec<_> {
            // (on a page no product joins)
            let own = if on_a_page!() { Vec::new() } else { nodes.drain(from..from + list.len()).collect() };
            own.into_iter().zip(list).filter_map(product).collect()
        };
        let before = apart(0, before);
        let after = apart(left - after.len(), after);
        let parts = nodes.into_iter().filter_map(|n| match n.kernel {
            Kernel::Tiles { tiles, .. } => Some(Part::Tiles(tiles)),
            Kernel::Fold(f, _) => Some(Part::Fold(f)),
            Kernel::Seek(t) if t.by_turns().is_some() => Some(Part::Put(t)),
            Kernel::Seek(t) => Some(Part::Take(t)),
            _ => None,
        });
        let parts: Vec<Part> = parts.collect();
        let held = |slot: u32| held.contains(&(slot as usize - base));
        let products = !(on_a_page!() || before.is_empty() && after.is_empty());
        let wise = self.wise(&parts, |slot| gone(&(slot as usize - base)) && !held(slot));
        let turn = match wise {
            _ if products => *turn,
            Some(_) => self.rows,
            None => (TURN / self.bytes.max(1)).clamp(1, self.rows),
        };
        // row by row, a block of them is enough of what no product makes or reads
        let block = wise.as_ref().map(RowWise::block);
        let strip = |(s, row): &(Slot, i64)| {
            let slot = (base + s) as u32;
            let alone = block.filter(|_| !held(slot));
            let bytes = row * alone.unwrap_or(turn);
            let held = [self.beside.made.contains(s), after.iter().any(|p| p.0.operands().contains(&slot))];
            Strip { slot, bytes, row: if alone.is_some() { 0 } else { *row }, held, at: 0 }
        };
        let (mut few, mut strips): (Vec<Strip>, Vec<Strip>) =
            self.strips.iter().map(strip).partition(|s| s.row == 0);
        let of_rows = wise.as_ref().filter(|_| !on_a_page!());
        let stage = |part: usize| of_rows.map_or(part, |w| w.stage(part));
        let over = |was: u32, is: u32| of_rows.is_some_and(|w| w.takes_place(was, is));
        let below = packed(&mut few, &parts, false, stage, over);
        let all = packed(&mut strips, &parts, block.is_some(), stage, over);
        for s in &mut few {
            s.at += all;
        }
        strips.extend(few);
        let bytes = below + all;
        let sorted = self.free && matches!(parts.last(), Some(Part::Put(p)) if p.sorts_updates());
        let kernel = RowsKernel { rows: self.rows, turn, parts, before, after, strips, bytes, wise, sorted };
        let chunks = ((cost / 20.0) as i64).clamp(1, kernel.most().min(512));
        let name = if products { "products of rows" } else { "rows" };
        let what = What { name, makes, maps, step };
        Node { kernel: Kernel::Rows(Box::new(kernel)), chunks, cost, what }
    }
}
