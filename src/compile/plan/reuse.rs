//! Memory that is written again: donated arguments become results, second places of carries, or room for values in between; carries
//! of loops are updated in place.
//!
//! A value may share the memory of another one if all that reads the other has run before the group that makes it, or is a map of this
//! very group that reads the other at the index where the value is stored. Such a group stores late: each tile is read before it is
//! written. A put is made in the place of what it begins from, if it reads nothing else there: of a row of puts
//! all are made in the place of the last. Groups that read the other value at the same time are made to run earlier, if they do not wait for the maker.

use super::puts::{Puts, over_puts, put_in_place};
use super::schedule::bytes;
use super::{Gift, OutPlan, Use};
use crate::compile::arena::Spare;
use crate::compile::flow::{Carry, Flow, Item, Piece};
use crate::compile::group::{self, Group, Groups, Head};
use crate::partition::Slot;
use crate::program::sentence::Source;
use crate::sorted;
use smallvec::SmallVec;
use std::collections::HashMap;

/// From this size on a carry is updated in place also where that asks for late stores or for one more level: two slabs would cost
/// more in caches than these do in time.
const IN_PLACE: usize = 1 << 18;

/// What shares the memory of something else.
#[derive(Debug, Default)]
pub(super) struct Reuse {
    /// For each group the values that it stores over what it reads: (value, over which one).
    pub(super) over: Vec<SmallVec<[(Slot, Slot); 1]>>,
    /// Donated arguments.
    pub(super) gifts: Vec<Gift>,
    /// Values that are in donated arguments: (value, gift).
    pub(super) lie: Vec<(Slot, usize)>,
    /// Carries that alternate with a donated argument: (item, carry, gift).
    pub(super) others: Vec<(usize, usize, usize)>,
    /// Puts that share their memory.
    pub(super) puts: Puts,
    /// Gifts that are room for other values: (gift, its room).
    pub(super) spare: Vec<(usize, Spare)>,
}

/// A value in the memory of another one.
struct Fit {
    /// The group that makes it.
    maker: usize,
    /// Whether that group reads the other one.
    over: bool,
    /// Whether that makes the group store late.
    late: bool,
    /// The groups that have to run before.
    before: SmallVec<[usize; 4]>,
}

/// Which groups run before which.
struct Order<'g, 'f, 'p> {
    g: &'g mut Groups<'f, 'p>,
    /// For each group those that run later.
    later: Vec<Vec<usize>>,
    /// Whether that says more than the levels do.
    changed: bool,
}

impl<'g, 'f, 'p> Order<'g, 'f, 'p> {
    fn of(g: &'g mut Groups<'f, 'p>) -> Self {
        let flow = g.flow;
        let mut later = vec![Vec::new(); g.list.len()];
        let mut printed = None;
        for (item, own) in flow.items.iter().zip(&g.at) {
            let made = item.sources().into_iter().filter_map(|s| Some(g.def[flow.root(s)]?.group));
            // prints keep their order
            let before = printed.filter(|_| item.prints());
            for k in made.chain(before).filter(|k| k != own) {
                if later[k].last() != Some(own) {
                    later[k].push(*own);
                }
            }
            if item.prints() {
                printed = Some(*own);
            }
        }
        Order { g, later, changed: false }
    }
    /// Whether group `a` runs before group `b`, or is it.
    fn reaches(&self, a: usize, b: usize) -> bool {
        let (mut open, mut seen) = (vec![a], vec![false; self.later.len()]);
        while let Some(k) = open.pop() {
            if k == b {
                return true;
            }
            if !std::mem::replace(&mut seen[k], true) {
                open.extend(&self.later[k]);
            }
        }
        false
    }
    /// Which items read each of these values.
    fn readers(&self, of: &[Slot]) -> Vec<Vec<usize>> {
        let flow = self.g.flow;
        // (a value may be asked for twice)
        let mut readers: HashMap<Slot, Vec<usize>> = of.iter().map(|s| (*s, Vec::new())).collect();
        for (i, item) in flow.items.iter().enumerate() {
            for s in item.sources() {
                if let Some(list) = readers.get_mut(&flow.root(s))
                    && list.last() != Some(&i)
                {
                    list.push(i);
                }
            }
        }
        of.iter().map(|s| readers[s].clone()).collect()
    }
    /// How `to` may share the memory of `from`, which these items read.
    fn fit(&self, from: Slot, to: Slot, readers: &[usize]) -> Option<Fit> {
        let maker = self.g.def[to]?.group;
        let inside = |i: &&usize| self.g.at[**i] == maker;
        if readers.iter().filter(inside).any(|i| !self.in_place(*i, from, to)) {
            return None;
        }
        let over = readers.iter().any(|i| self.g.at[*i] == maker);
        // a put has read nothing of what it writes over
        let late = readers.iter().filter(inside).any(|i| !matches!(self.g.flow.items[*i], Item::Seek(_)));
        self.behind(maker, readers).map(|before| Fit { maker, over, late, before })
    }
    /// The groups of these items without `maker`, if none of them waits for it.
    fn behind(&self, maker: usize, readers: &[usize]) -> Option<SmallVec<[usize; 4]>> {
        let mut before: SmallVec<[usize; 4]> =
            readers.iter().map(|i| self.g.at[*i]).filter(|r| *r != maker).collect();
        sorted::sort(&mut before);
        before.dedup();
        before.iter().all(|r| !self.reaches(maker, *r)).then_some(before)
    }
    /// Puts that are made over what others make: takes of this run before.
    fn puts(&mut self) -> Puts {
        let flow = self.g.flow;
        let mut list = over_puts(flow);
        let slots: Vec<Slot> = list.iter().map(|x| x.1).collect();
        let mut readers = self.readers(&slots).into_iter();
        list.retain(|(k, was, is)| {
            let readers = readers.next().unwrap_or_default();
            // takes and puts are told where it is
            if readers.iter().any(|i| !matches!(flow.items[*i], Item::Seek(_))) {
                return false;
            }
            let fit = self.fit(*was, *is, &readers);
            let Some(fit) = fit.filter(|f| bytes(flow, *is) >= IN_PLACE || self.free(f)) else {
                return false;
            };
            debug_assert_eq!(fit.maker, self.g.at[*k], "it makes its value itself");
            self.put(&fit.before, fit.maker);
            true
        });
        Puts::of(list.into_iter().map(|(_, was, is)| (was, is)))
    }
    /// Whether an item of the group that makes `to` reads `from` only at the index where `to` is stored.
    fn in_place(&self, item: usize, from: Slot, to: Slot) -> bool {
        let (g, flow) = (&self.g, self.g.flow);
        let Some(made) = g.def[to] else { return false };
        if let Item::Seek(s) = &flow.items[item] {
            return s.out == to && put_in_place(flow, s, from);
        }
        let group: &Group = &g.list[made.group];
        let member = |k: usize| group.members.iter().find(|m| m.item == k);
        let (Some(reads), Some(makes)) = (member(item), member(made.item)) else { return false };
        let (a, b) = (g.map(reads.item), g.map(makes.item));
        let (was, is) = (&flow.values[from], &flow.values[to]);
        let same = |p: &Piece| match p.from {
            Source::Value(s) if flow.root(s) == from => {
                p.off == 0 && (0..a.n).all(|l| a.ext[l] == 1 || p.st[l] == is.strides[l])
            }
            _ => true,
        };
        matches!(group.head, Head::Elementwise | Head::Product(_))
            && was.dtype.size() == is.dtype.size()
            && (reads.shift, reads.dims, a.n, a.ext) == (makes.shift, makes.dims, b.n, b.ext)
            && a.reads.iter().flat_map(|r| &r.pieces).all(same)
    }
    /// Whether this asks for nothing that costs time.
    fn free(&self, fit: &Fit) -> bool {
        let level = |k: usize| self.g.list[k].level;
        !fit.late && fit.before.iter().all(|r| level(*r) < level(fit.maker))
    }
    /// These groups run before that one.
    fn put(&mut self, before: &[usize], maker: usize) {
        for r in before {
            self.changed |= self.g.list[*r].level >= self.g.list[maker].level;
            self.later[*r].push(maker);
        }
    }
    /// Gives each group the level that the order asks for.
    fn settle(&mut self) {
        if !self.changed {
            return;
        }
        let mut waits = vec![0; self.later.len()];
        self.later.iter().flatten().for_each(|k| waits[*k] += 1);
        let mut open: Vec<usize> = (0..waits.len()).filter(|k| waits[*k] == 0).collect();
        while let Some(k) = open.pop() {
            for &l in &self.later[k] {
                self.g.list[l].level = self.g.list[l].level.max(self.g.list[k].level + 1);
                waits[l] -= 1;
                if waits[l] == 0 {
                    open.push(l);
                }
            }
        }
    }
}

/// Which carries a body updates in place; and, for each of its groups, the values that it then stores over what it reads.
pub(super) fn carries(g: &mut Groups<'_, '_>, list: &[Carry]) -> (Vec<bool>, Reuse) {
    let (flow, n) = (g.flow, g.list.len());
    let mut reuse = Reuse { over: vec![SmallVec::new(); n], ..Reuse::default() };
    let mut order = Order::of(g);
    let from: Vec<Slot> = list.iter().map(|c| c.from).collect();
    let (readers, puts) = (order.readers(&from), order.puts());
    let mut alone = Vec::with_capacity(list.len());
    for (c, readers) in list.iter().zip(&readers) {
        let to = puts.first(flow.root(c.to));
        let fit = order.fit(c.from, to, readers).filter(|f| bytes(flow, to) >= IN_PLACE || order.free(f));
        alone.push(fit.is_some());
        if let Some(fit) = fit {
            order.put(&fit.before, fit.maker);
            if fit.over {
                reuse.over[fit.maker].push((to, c.from));
            }
        }
    }
    order.settle();
    reuse.puts = puts;
    (alone, reuse)
}

/// What becomes of the memory of donated inputs. `outs` has the results that are arguments, or blocks of them.
pub(super) fn donated(g: &mut Groups<'_, '_>, donated: &[bool], outs: &[Option<OutPlan>]) -> Reuse {
    let (flow, n) = (g.flow, g.list.len());
    let mut reuse = Reuse { over: vec![SmallVec::new(); n], ..Reuse::default() };
    let returned = |i: usize| {
        let is = |o: &OutPlan| matches!(o, OutPlan::Arg(a) | OutPlan::View { arg: a, .. } if *a == i);
        outs.iter().flatten().any(is)
    };
    let given = donated.iter().enumerate().filter(|(_, d)| **d).map(|(i, _)| i);
    let mut args: Vec<usize> =
        given.filter(|i| flow.ins.get(*i).is_some_and(|s| bytes(flow, *s) > 0) && !returned(*i)).collect();
    args.dedup_by_key(|i| flow.ins[*i]);
    if args.is_empty() && over_puts(flow).is_empty() {
        return reuse;
    }
    let slots: Vec<Slot> = args.iter().map(|i| flow.ins[*i]).collect();
    let mut order = Order::of(g);
    let (readers, puts) = (order.readers(&slots), order.puts());
    let mut taken = vec![false; args.len()];
    let gift = |k: usize, purpose: Use| Gift { arg: args[k], bytes: bytes(flow, slots[k]), purpose };
    // carries first: a loop needs a second place otherwise
    for (item, what) in flow.items.iter().enumerate() {
        for (c, carry, over) in given_carries(flow, what) {
            let Some(k) = slots.iter().position(|s| *s == flow.root(carry.first)) else { continue };
            let Some(before) = order.behind(order.g.at[item], &readers[k]).filter(|_| !taken[k]) else {
                continue;
            };
            order.put(&before, order.g.at[item]);
            taken[k] = true;
            reuse.gifts.push(gift(k, Use::Carry));
            match over {
                true => reuse.lie.push((carry.last, reuse.gifts.len() - 1)),
                false => reuse.others.push((item, c, reuse.gifts.len() - 1)),
            }
        }
    }
    // then results that are stored over what their group reads, then those that come later than all that reads the argument
    for over in [true, false] {
        for (o, out) in flow.outs.iter().zip(outs) {
            let o = flow.root(*o);
            if out.is_some() || reuse.lie.iter().any(|x| x.0 == o) {
                continue;
            }
            let begun = puts.first(o);
            let Some(maker) = order.g.def[begun].map(|d| d.group) else { continue };
            let fits = |k: usize| {
                let reads = readers[k].iter().any(|i| order.g.at[*i] == maker);
                let fit = if reads == over { order.fit(slots[k], begun, &readers[k]) } else { None };
                Some((k, fit?))
            };
            let size = bytes(flow, o);
            let free = (0..args.len()).filter(|k| !taken[*k] && bytes(flow, slots[*k]) == size);
            let Some((k, fit)) = free.into_iter().find_map(fits) else { continue };
            order.put(&fit.before, fit.maker);
            taken[k] = true;
            if fit.over {
                reuse.over[fit.maker].push((begun, slots[k]));
            }
            reuse.gifts.push(gift(k, Use::Result));
            reuse.lie.push((o, reuse.gifts.len() - 1));
        }
    }
    order.settle();
    reuse.puts = puts;
    // what is left is room for others once it has been read
    for k in (0..args.len()).filter(|k| !taken[*k]) {
        let after = readers[k].iter().map(|i| order.g.list[order.g.at[*i]].level).max().unwrap_or(0);
        reuse.gifts.push(gift(k, Use::Room));
        reuse.spare.push((reuse.gifts.len() - 1, Spare { size: bytes(flow, slots[k]), after }));
    }
    reuse
}

/// The carries of an item whose first value nothing else of the item reads, with their numbers: and whether the last one may be where the
/// first one does; else the second place may.
fn given_carries<'i>(flow: &Flow<'_>, item: &'i Item<'_>) -> Vec<(usize, &'i Carry, bool)> {
    let (list, body, fixed, steps) = match item {
        Item::Loop(l) => {
            (&l.carry, &l.body, l.fixed.iter().chain(&l.xs).map(|p| p.0).collect::<Vec<_>>(), Some(l.length))
        }
        Item::While(w) => {
            (&w.carry, &w.body, w.cond_fixed.iter().chain(&w.body_fixed).map(|p| p.0).collect(), None)
        }
        _ => return Vec::new(),
    };
    let (alone, _) = carries(&mut group::group(body), list);
    let first = |c: &Carry| flow.root(c.first);
    let once = |c: &Carry| {
        let times = list.iter().filter(|d| first(d) == first(c)).count();
        times == 1 && fixed.iter().all(|s| flow.root(*s) != first(c))
    };
    let each = list.iter().enumerate().filter(|(_, c)| once(c));
    each.filter_map(|(k, c)| {
        // step t writes the last value's place where as many steps follow as are even
        let over = alone[k] || steps.is_some_and(|n| n % 2 == 0);
        (over || steps != Some(1)).then_some((k, c, over))
    })
    .collect()
}
