//! Products beside rows that stay in cache: one that makes the rows, as scores of attention, and those that read what was made of them. They
//! run on the rows of a turn, before and after the programs of the rows, so that rows which nobody else reads are never all in memory.

use super::Memory;
use super::rows::{Bound, Grown};
use super::schedule::bytes;
use crate::compile::group::{Groups, Head};
use crate::compile::product::{Along, ProductKernel};
use crate::partition::Slot;
use std::collections::HashMap;

/// Bytes that the rows of a turn have in cache, those of one value.
const NEAR: i64 = 512 << 10;
/// Most bytes.
const MOST: i64 = 1 << 20;
/// Fewest rows of a turn, so that what a product packs is used by many.
const FEWEST: i64 = 64;
/// Fewest turns: less cannot be shared out.
const TURNS: i64 = 8;
/// Microseconds that are not worth to be shared out.
const LITTLE: f64 = 20.0;

/// What products add to a chain.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Groups that run before, and their way along the rows.
    pub(super) before: Vec<(usize, Along)>,
    /// Those that run after.
    pub(super) after: Vec<(usize, Along)>,
    /// What those before make.
    pub(super) made: Vec<Slot>,
    /// What products make and read: a turn's rows are in memory.
    pub(super) held: Vec<Slot>,
    /// Rows of a turn.
    pub(super) turn: i64,
}

impl Bound<'_> {
    /// The products that join a chain.
    pub(super) fn beside(&self, g: &Groups<'_, '_>, c: &Grown, not: &dyn Fn(usize) -> bool) -> Beside {
        let mut all = Beside::default();
        if on_a_page!() || c.put.is_some() {
            return all;
        }
        let (mut beside, mut cost, mut widest) = (1, 0.0, 1);
        let mut seen = |all: &mut Beside, p: &ProductKernel, along: &Along, s: Slot| {
            beside = p.beside(along);
            cost += p.cost;
            widest = widest.max(bytes(g.flow, s) as i64 / c.rows);
            all.held.push(s);
        };
        for (k, group) in g.list.iter().enumerate() {
            let Head::Product(item) = group.head else { continue };
            let reads = |s: &&Slot| g.flow.items[item].sources().iter().any(|x| g.flow.root(*x) == **s);
            let Some(s) = c.made.iter().find(reads).filter(|_| !not(k)) else { continue };
            if let Some((p, along)) = self.after(g, k, *s, c) {
                seen(&mut all, &p, &along, *s);
                all.after.push((k, along));
            }
        }
        for (k, group) in g.list.iter().enumerate() {
            if matches!(group.head, Head::Product(_)) && group.level < c.first && !not(k) {
                let Some((p, along, made)) = self.before(g, k, c) else { continue };
                for s in &made {
                    seen(&mut all, &p, &along, *s);
                }
                all.before.push((k, along));
                all.made.extend(made);
            }
        }
        all.turn = turn(c.rows, beside, widest);
        let shared = cost < LITTLE || c.rows / all.turn >= TURNS;
        if all.turn * widest > MOST || !shared { Beside::default() } else { all }
    }
    /// A product that reads a value of the chain row by row, and nothing else that is not ready before it.
    fn after(&self, g: &Groups<'_, '_>, k: usize, s: Slot, c: &Grown) -> Option<(ProductKernel, Along)> {
        let own = |s: &Slot| matches!(self.places[self.base + s], Memory::Nowhere | Memory::Out(_));
        if !self.product_makes(g, k).iter().all(own) {
            return None;
        }
        let p = (self.product)(g, k)?;
        let slot = (self.base + s) as u32;
        let along = p.reads_rows(slot, c.rows, g.flow.values[s].shape.elements() as i64 / c.rows)?;
        let makes = self.product_makes(g, k);
        let ready = |x: u32| {
            let s = x as usize - self.base;
            makes.contains(&s) || g.level_of(s) < c.first
        };
        let known = |x: u32| x == crate::compile::expr::POSITION || ready(x);
        let ready = p.operands().into_iter().filter(|x| *x != slot).all(ready);
        (ready && p.reads().all(|m| known(m.slot))).then_some((p, along))
    }
    /// A product that makes, row by row, what the chain alone reads.
    fn before(&self, g: &Groups<'_, '_>, k: usize, c: &Grown) -> Option<(ProductKernel, Along, Vec<Slot>)> {
        let made = self.product_makes(g, k);
        let wanted = |s: &Slot| c.groups.iter().any(|k| self.reads(*k, *s));
        if !made.iter().any(wanted) {
            return None;
        }
        let mut inner: HashMap<Slot, u32> = HashMap::new();
        for k in c.groups.iter().chain([&k]) {
            for s in g.items(*k).flat_map(|i| g.flow.items[i].sources()) {
                *inner.entry(g.flow.root(s)).or_default() += 1;
            }
        }
        let size = |s: Slot| bytes(g.flow, s) as i64;
        let private = |s: &Slot| {
            let uses = g.flow.uses[*s];
            let alone = !uses.result && inner.get(s).copied().unwrap_or(0) == uses.readers;
            alone && self.places[self.base + s] == Memory::Nowhere && size(*s) % c.rows == 0
        };
        let local =
            |k: &usize, s: &Slot| !self.reads(*k, *s) || self.local(*k, *s, c.rows, size(*s) / c.rows);
        if !made.iter().all(|s| private(s) && c.groups.iter().all(|k| local(k, s))) {
            return None;
        }
        let p = (self.product)(g, k)?;
        let row = |x: u32| {
            let s = (x as usize).checked_sub(self.base).filter(|s| made.contains(s))?;
            Some(size(s) / c.rows)
        };
        let slot = p.result();
        let elements = g.flow.values[slot as usize - self.base].shape.elements() as i64;
        let along = p.makes_rows(slot, (c.rows, elements / c.rows), row)?;
        Some((p, along, made))
    }
    /// What a product and its maps make that has room.
    fn product_makes(&self, g: &Groups<'_, '_>, k: usize) -> Vec<Slot> {
        let Head::Product(item) = g.list[k].head else { return Vec::new() };
        let maps = g.list[k].members.iter().map(|m| g.map(m.item).out).filter(|s| g.stored[*s]);
        let own = self.same[k].is_none().then(|| g.fold(item).out);
        own.into_iter().chain(maps).collect()
    }
}

/// Rows of a turn, of which so many are beside one another in a matrix, and whose rows have at most so many bytes.
fn turn(rows: i64, beside: i64, bytes: i64) -> i64 {
    let most = (NEAR / bytes).min(rows / (2 * TURNS)).max(FEWEST);
    if beside <= most {
        return (most / beside * beside).min(rows);
    }
    let parts = (beside + most - 1) / most;
    let even = (parts..2 * parts).find(|p| beside % p == 0);
    even.map_or(most, |p| beside / p)
}
