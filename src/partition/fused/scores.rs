//! Scores that are never all in memory: a product makes rows, folds reduce them, elementwise steps use them again, and at last a product may read
//! what has become of them. These kernels run one behind the other on some rows, as this crate's engines do (`compile/plan/scores`).

use crate::partition::program::{Local, Slot, SpmdProgram};
use crate::program::sentence::{Body, Part, Source, Span};
use std::collections::{BTreeSet, HashMap};

/// Most terms of a sum of such a product, fewest rows, and most bytes of one: as of this crate's engines.
const TERMS: i64 = 256;
const ROWS: i64 = 16;
const LONGEST: i64 = 16 << 10;

/// Deeper than so many steps behind its product no step joins.
const DEEP: u32 = 40;

/// Takes from what is in memory the rows that stay in cache: `readers` are the steps that read each value, `wanted` those that others than steps
/// of the device itself read.
pub(super) fn kept(p: &SpmdProgram, readers: &[Vec<usize>], wanted: &[bool], stored: &mut [bool]) {
    let order = Order::of(p, readers);
    for (k, step) in p.steps.iter().enumerate() {
        let Some(l) = step.local().filter(|l| l.sentence.body.contracts() && !wanted[l.out]) else {
            continue;
        };
        let Some((rows, row)) = rows(p, l.out).filter(|(_, row)| long(*row, beyond(&l))) else { continue };
        if rows < ROWS || row * p.slots[l.out].dtype.size() as i64 > LONGEST {
            continue;
        }
        let Some(c) = Chain::of(&order, k, l.out) else { continue };
        let inside = |s: &Slot| !wanted[*s] && readers[*s].iter().all(|k| c.steps.contains(k));
        if inside(&l.out) {
            c.made.iter().filter(|s| inside(s)).for_each(|s| stored[*s] = false);
        }
    }
}

/// What is computed of what.
struct Order<'p> {
    p: &'p SpmdProgram,
    readers: &'p [Vec<usize>],
    /// The step that makes each value.
    maker: Vec<Option<usize>>,
    /// The longest way to each value.
    depth: Vec<u32>,
}

impl<'p> Order<'p> {
    fn of(p: &'p SpmdProgram, readers: &'p [Vec<usize>]) -> Order<'p> {
        let (mut maker, mut depth) = (vec![None; p.slots.len()], vec![0; p.slots.len()]);
        for (k, step) in p.steps.iter().enumerate() {
            let at = 1 + step.inputs().iter().map(|s| depth[*s]).max().unwrap_or(0);
            step.outputs().iter().for_each(|s| (maker[*s], depth[*s]) = (Some(k), at));
        }
        Order { p, readers, maker, depth }
    }
    /// Whether a value is computed from this one.
    fn behind(&self, s: Slot, of: Slot, seen: &mut HashMap<Slot, bool>) -> bool {
        if self.depth[s] <= self.depth[of] {
            return false;
        }
        if let Some(known) = seen.get(&s) {
            return *known;
        }
        let inputs = self.maker[s].map(|k| self.p.steps[k].inputs()).unwrap_or_default();
        let found = inputs.iter().any(|i| *i == of || self.behind(*i, of, seen));
        seen.insert(s, found);
        found
    }
}

/// Whether rows are long beside the terms that make an element, or the elements that are made of a row.
fn long(row: i64, terms: i64) -> bool {
    terms <= TERMS && 2 * terms <= row
}

/// How many rows of a value a device has, and the elements of one.
fn rows(p: &SpmdProgram, s: Slot) -> Option<(i64, i64)> {
    let (row, outer) = p.slots[s].layout.dims.split_last()?;
    (!outer.is_empty()).then(|| (outer.iter().map(|d| d.block).product(), row.block))
}

/// The steps of a device's loops beyond the rank.
fn beyond(l: &Local<'_>) -> i64 {
    l.layout[l.sentence.rank..].iter().map(|d| d.block).product()
}

/// What runs on the rows of a product's result.
struct Chain {
    steps: Vec<usize>,
    /// What is made of rows, each of one.
    made: Vec<Slot>,
}

impl Chain {
    /// The chain behind a product, if a fold reduces its rows.
    fn of(order: &Order<'_>, first: usize, scores: Slot) -> Option<Chain> {
        let (p, from) = (order.p, order.depth[scores]);
        let mut c = Chain { steps: vec![first], made: vec![scores] };
        let (mut folds, outer) = (false, p.slots[scores].layout.dims.len() - 1);
        let mut seen = HashMap::new();
        // by depth: what a step reads of the chain has been looked at before
        let mut open = BTreeSet::new();
        let next = |open: &mut BTreeSet<(u32, usize)>, s: Slot| {
            let depth = |k: usize| p.steps[k].outputs().iter().map(|s| order.depth[*s]).max();
            open.extend(order.readers[s].iter().filter_map(|k| Some((depth(*k)?, *k))));
        };
        next(&mut open, scores);
        while let Some((depth, k)) = open.pop_first() {
            let late = |s: &Slot| !c.made.contains(s) && order.behind(*s, scores, &mut seen);
            if depth > from + DEEP || p.steps[k].inputs().iter().any(late) {
                continue;
            }
            let Some(role) = p.steps[k].local().and_then(|l| c.role(p, &l, outer)) else { continue };
            c.steps.push(k);
            if let Role::Rows { fold } = role {
                folds |= fold;
                for s in p.steps[k].outputs() {
                    c.made.push(s);
                    next(&mut open, s);
                }
            }
        }
        folds.then_some(c)
    }
    /// What a step does in the chain, whose values have so many dimensions that number rows.
    fn role(&self, p: &SpmdProgram, l: &Local<'_>, outer: usize) -> Option<Role> {
        let s = l.sentence;
        let own = |part: &&Part| matches!(part.from, Source::Value(v) if self.made.contains(&v));
        let mut parts = s.reads.iter().flat_map(|r| &r.parts).filter(own);
        let spans = Span::whole(&s.extents);
        let whole = |part: &Part, d: usize| part.span[d] == spans[d];
        match s.body {
            Body::Map(_) | Body::Fold { .. } => {
                let rows = |part: &Part| {
                    let mut numbered = part.map.iter().enumerate().take(outer);
                    numbered.all(|(d, m)| super::follows((d, m)) && whole(part, d))
                };
                let fold = matches!(s.body, Body::Fold { .. });
                (s.rank >= outer && parts.all(rows)).then_some(Role::Rows { fold })
            }
            Body::Product { .. } => {
                let part = parts.next().filter(|_| parts.next().is_none())?;
                let Source::Value(v) = part.from else { return None };
                let (_, row) = rows(p, v)?;
                let mut seen = Vec::new();
                for m in &part.map[..outer.min(part.map.len())] {
                    let [(d, 1)] = m.terms[..] else { return None };
                    if m.at != 0 || d >= s.rank || !whole(part, d) || seen.contains(&d) {
                        return None;
                    }
                    seen.push(d);
                }
                let own = |d: &usize| !part.map.iter().any(|m| m.terms.iter().any(|t| t.0 == *d));
                let columns = (0..s.rank).filter(own).map(|d| l.layout[d].block).product();
                long(row, columns).then_some(Role::Last)
            }
            Body::Lines(_) | Body::Take { .. } | Body::Put { .. } | Body::Reshape => None,
        }
    }
}

/// What a step does with rows.
enum Role {
    /// Of each row it makes a row, or of each row a number.
    Rows { fold: bool },
    /// A product over what has become of rows: it runs behind the others.
    Last,
}
