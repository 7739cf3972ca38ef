//! Regions: values that are placed otherwise only together.
//!
//! Auto mode places values by what their neighbours have. Where that makes devices exchange more than they must (attention over a
//! sequence that is sharded: every device wants all keys), one value placed otherwise saves nothing, as it is exchanged with its own
//! neighbours then. So values that elementwise steps and folds read in place of one another are one region (`linked`): dimensions that
//! such steps run over by one loop are split by the same axes. For each region the ways to split it are priced, with the steps that
//! make its values and read them, and others that read what those read; it takes the cheapest that moves less than what it has.
//!
//! Free are values whose types leave their placement open, and that only local steps of this program see: neither the user nor a loop
//! around says where they are. No way has a device hold much more of the region than before.

use super::choose::Chosen;
use super::linked::{Graph, Region, priced};
use super::place;
use crate::mesh::AxisType;
use crate::partition::draft::{Draft, Item};
use crate::partition::layout::DimLayout;
use crate::partition::price::prices::{Prices, digits, layouts, part, sizes};
use crate::partition::program::{Slot, Step, Stored, Why};
use crate::program::sentence::{Body, Source};
use crate::sharding::atoms::{Atom, Atoms, canonical, clash, of_axes, ways};
use crate::sorted;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A value with more readers is priced for those alone that belong to the region.
const READERS: usize = 8;
/// One part in so many of what a device holds of a region it may hold more than before: sums of what is placed otherwise may be whole then.
const MORE: usize = 16;
/// How often the regions of a program are gone through: what one does may be worth another's while.
const PASSES: usize = 2;

/// Places the regions of a draft; tells how what moved was placed before.
pub(crate) fn choose(d: &mut Draft) -> BTreeMap<Slot, Vec<DimLayout>> {
    let mut moved = BTreeMap::new();
    let axes = axes(d);
    if axes.is_empty() || d.free.is_empty() {
        return moved;
    }
    let graph = Graph::new(d);
    let together = graph.regions(d, true);
    // what a fold makes may be placed apart from what it reads
    let known: HashSet<&[Slot]> = together.iter().map(|r| &r.members[..]).collect();
    let mut apart = graph.regions(d, false);
    apart.retain(|r| !known.contains(&r.members[..]));
    let mut known = Known { found: HashMap::new(), rough: Prices::rough() };
    // whether any region of these is placed otherwise
    let mut pass = |regions: &[Region]| {
        let mut changed = false;
        // backwards; regions that are as far from the end know nothing of one another
        for alike in regions.chunk_by(|a, b| a.far == b.far) {
            let found: Vec<_> = alike.iter().map(|r| r.cheapest(d, &graph, &axes, &mut known)).collect();
            for (region, dims) in alike.iter().zip(found) {
                let Some(dims) = dims else { continue };
                changed = true;
                for (slot, dims) in region.members.iter().zip(dims) {
                    let before = std::mem::replace(&mut d.slots[*slot].layout.dims, dims);
                    moved.entry(*slot).or_insert(before);
                }
            }
        }
        changed
    };
    let _ = (0..PASSES).all(|_| pass(&together));
    pass(&apart);
    moved
}

/// The digits of the mesh's auto axes, one for each.
fn axes(d: &Draft) -> Vec<Atom> {
    let Some(mesh) = &d.mesh else { return Vec::new() };
    let auto = mesh.axis_names().iter().filter(|a| mesh.axis_type(**a) == Some(AxisType::Auto));
    auto.flat_map(|a| of_axes(mesh, [*a])).filter(|a| a.size > 1).collect()
}

/// A part of a draft: the steps around a region, with slots of their own.
struct Around {
    draft: Draft,
    /// For each member its slot here.
    members: Vec<Slot>,
    /// Which of the steps make or read a member.
    due: Vec<bool>,
}

/// The placements of a region's members.
type Placed = Vec<Vec<DimLayout>>;
/// For each loop of a region the axes that split it, major first.
type Split = Vec<Vec<Atom>>;

/// What regions were found to be best placed as, and the prices that they are searched by.
struct Known {
    found: HashMap<Vec<i64>, Option<Placed>>,
    rough: Prices,
}

/// Less, and not by the order of a sum.
fn less(a: f64, b: f64) -> bool {
    a < b * (1.0 - 1e-9)
}

impl Region {
    /// The steps that are priced with it: those that make or read its values, and (false) those that read what they read, unless all
    /// devices hold that whole.
    fn steps(&self, d: &Draft, graph: &Graph) -> Vec<(usize, bool)> {
        let own = |v: &Slot| graph.maker[*v].into_iter().chain(graph.readers[*v].iter().copied());
        let mut steps: Vec<usize> = self.members.iter().flat_map(own).collect();
        sorted::sort(&mut steps);
        steps.dedup();
        let mut sources: Vec<Slot> = steps.iter().flat_map(|k| d.items[*k].step.inputs()).collect();
        sorted::sort(&mut sources);
        sources.dedup();
        let shared = sources.iter().filter(|s| {
            let split = d.slots[**s].layout.dims.iter().any(|l| !l.atoms.is_empty());
            split && graph.readers[**s].len() <= READERS
        });
        let others = shared.flat_map(|s| graph.readers[*s].iter().copied());
        let mut others: Vec<usize> = others.filter(|k| priced(d, &d.items[*k])).collect();
        sorted::sort(&mut others);
        others.dedup();
        others.retain(|k| steps.binary_search(k).is_err());
        let mut all: Vec<(usize, bool)> = steps.iter().map(|k| (*k, true)).collect();
        all.extend(others.into_iter().map(|k| (k, false)));
        sorted::sort(&mut all);
        all
    }

    fn around(&self, d: &Draft, graph: &Graph) -> Around {
        let mut local: HashMap<Slot, Slot> = HashMap::new();
        let mut draft = d.beside();
        draft.trips = d.trips;
        let mut due = Vec::new();
        for (k, own) in self.steps(d, graph) {
            let Step::Local { out, sentence, layout } = &d.items[k].step else { continue };
            let mut here = |slot: Slot| {
                *local.entry(slot).or_insert_with(|| {
                    draft.slots.push(d.slots[slot].clone());
                    if d.once.contains(&slot) {
                        draft.once.push(draft.slots.len() - 1);
                    }
                    draft.slots.len() - 1
                })
            };
            let mut sentence = sentence.clone();
            for p in sentence.reads.iter_mut().flat_map(|r| &mut r.parts) {
                if let Source::Value(slot) = &mut p.from {
                    *slot = here(*slot);
                }
            }
            let step = Step::Local { out: here(*out), sentence, layout: layout.clone() };
            let item = Item::new(step, Why::default());
            draft.items.push(Item { user: d.items[k].user.clone(), ..item });
            due.push(own);
        }
        let members = self.members.iter().map(|v| local[v]).collect();
        Around { draft, members, due }
    }

    /// The cheapest way to place it, if that is better than how it is.
    fn cheapest(&self, d: &mut Draft, graph: &Graph, axes: &[Atom], known: &mut Known) -> Option<Placed> {
        let mut around = self.around(d, graph);
        let key = around.key();
        if let Some(found) = known.found.get(&key) {
            return found.clone();
        }
        std::mem::swap(&mut around.draft.prices, &mut known.rough);
        let found = self.search(&mut around, axes);
        std::mem::swap(&mut around.draft.prices, &mut known.rough);
        // as it will be laid out: from the beginning, and at the prices that count
        std::mem::swap(&mut around.draft.prices, &mut d.prices);
        let found = found.filter(|way| {
            let now = around.now();
            let (before, after) = (around.price(&now, None).price, around.price(way, None).price);
            less(after.bytes, before.bytes) && less(after.all, before.all)
        });
        std::mem::swap(&mut around.draft.prices, &mut d.prices);
        known.found.insert(key, found.clone());
        found
    }

    fn search(&self, around: &mut Around, axes: &[Atom]) -> Option<Placed> {
        let here = &around.draft.slots;
        let used = |a: &&Atom| here.iter().flat_map(|s| &s.layout.dims).any(|l| clash(&l.atoms, &[**a]));
        let axes: Vec<Atom> = axes.iter().filter(used).copied().collect();
        let now = around.now();
        let stored: Vec<Stored> = around.members.iter().map(|s| here[*s].clone()).collect();
        let held = |p: &Placed| -> usize {
            let bytes = stored.iter().zip(p).map(|(s, dims)| {
                let mut s = s.clone();
                s.layout.dims.clone_from(dims);
                s.block_bytes()
            });
            bytes.fold(0, usize::saturating_add)
        };
        // who makes a line has all of it: it may be held where it is made
        let made: Placed =
            around.members.iter().zip(&now).map(|(s, dims)| around.as_made(*s, dims)).collect();
        let most = held(&made) + held(&now) / MORE;
        let before = around.price(&now, None);
        if before.price.bytes == 0.0 {
            return None;
        }
        // of ways at one price the one that splits leading dimensions by major digits
        let canonical = |p: &Placed| -> Vec<(Vec<usize>, Vec<Atoms>)> {
            let of = |(s, dims): (&Stored, &Vec<DimLayout>)| {
                (s.shape.to_vec(), dims.iter().map(|l| l.atoms.clone()).collect())
            };
            let mut list: Vec<_> = stored.iter().zip(p).map(of).collect();
            sorted::sort(&mut list);
            list.reverse();
            list
        };
        let mut best: Option<(f64, Placed, Split)> = None;
        let mut seen: Vec<Split> = Vec::new();
        let mut from = self.as_it_is(&stored, &axes);
        loop {
            let mut next: Option<(f64, Placed, Split)> = None;
            for split in std::iter::once(from.clone()).chain(near(&from, &axes)) {
                if seen.contains(&split) {
                    continue;
                }
                seen.push(split.clone());
                let Some(way) = self.placed(&stored, &split) else { continue };
                if way == now || held(&way) > most {
                    continue;
                }
                let after = around.price(&way, Some(&before.loops)).price;
                if !less(after.bytes, before.price.bytes) || !less(after.all, before.price.all) {
                    continue;
                }
                let better = next.as_ref().or(best.as_ref()).is_none_or(|(price, than, _)| {
                    let alike = !less(after.all, *price) && !less(*price, after.all);
                    if alike { canonical(&way) > canonical(than) } else { after.all < *price }
                });
                if better {
                    next = Some((after.all, way, split));
                }
            }
            let Some(next) = next else { break };
            from.clone_from(&next.2);
            best = Some(next);
        }
        best.map(|b| b.1)
    }

    /// How its loops are split now, by the largest of its values.
    fn as_it_is(&self, stored: &[Stored], axes: &[Atom]) -> Split {
        let mut split: Split = vec![Vec::new(); self.loops];
        let size = |s: &Stored| s.shape.iter().product::<usize>();
        let digits = |s: &Stored| -> Vec<Atoms> { s.layout.dims.iter().map(|l| l.atoms.clone()).collect() };
        let mut order: Vec<usize> = (0..stored.len()).collect();
        sorted::sort_by_key(&mut order, |k| std::cmp::Reverse((size(&stored[*k]), digits(&stored[*k]))));
        for k in order {
            for (l, held) in self.along[k].iter().zip(&stored[k].layout.dims) {
                let Some(l) = l.filter(|l| split[*l].is_empty()) else { continue };
                let free = |a: &&Atom| !split.iter().any(|s| s.contains(a)) && clash(&held.atoms, &[**a]);
                let mut more: Vec<Atom> = axes.iter().filter(free).copied().collect();
                // within a digit of several axes the one of the larger stride is major
                let at = |a: &Atom| held.atoms.iter().position(|h| h.clashes(*a));
                sorted::sort_by_key(&mut more, |a| (at(a), std::cmp::Reverse(a.stride)));
                split[l] = more;
            }
        }
        split
    }

    /// The placements of its members where its loops are split so, if blocks are even.
    fn placed(&self, stored: &[Stored], split: &Split) -> Option<Placed> {
        let of = |(s, along): (&Stored, &Vec<Option<usize>>)| -> Option<Vec<DimLayout>> {
            let dims = along.iter().zip(&s.shape[..]).map(|(l, n)| {
                let atoms = l.map_or(Atoms::new(), |l| canonical(split[l].iter().copied()));
                n.is_multiple_of(ways(&atoms)).then(|| DimLayout::new(*n, atoms))
            });
            dims.collect()
        };
        stored.iter().zip(&self.along).map(of).collect()
    }
}

/// What is one move away: an axis somewhere else among the digits of a loop, or of none; two axes exchanged.
fn near(split: &Split, axes: &[Atom]) -> Vec<Split> {
    let mut all = Vec::new();
    for (i, a) in axes.iter().enumerate() {
        let mut base = split.clone();
        base.iter_mut().for_each(|l| l.retain(|x| x != a));
        for l in 0..base.len() {
            let mut more = base.clone();
            more[l].push(*a);
            all.push(more);
        }
        all.push(base);
        for b in &axes[..i] {
            let mut other = split.clone();
            for x in other.iter_mut().flatten() {
                *x = if x == a {
                    *b
                } else if x == b {
                    *a
                } else {
                    *x
                };
            }
            all.push(other);
        }
    }
    all
}

impl Around {
    fn now(&self) -> Placed {
        self.members.iter().map(|s| self.draft.slots[*s].layout.dims.clone()).collect()
    }
    /// A member's placement where it is made: lines are whole.
    fn as_made(&self, member: Slot, dims: &[DimLayout]) -> Vec<DimLayout> {
        let lines = self.draft.items.iter().find_map(|i| match &i.step {
            Step::Local { out, sentence, .. } if *out == member => Some(sentence.body.along()),
            _ => None,
        });
        let whole = |k: usize, l: &DimLayout| match lines.is_some_and(|along| along.contains(&k)) {
            true => DimLayout { atoms: Atoms::new(), ..l.clone() },
            false => l.clone(),
        };
        dims.iter().enumerate().map(|(k, l)| whole(k, l)).collect()
    }
    /// What everything costs with the region placed so, and how steps are laid out then.
    fn price(&mut self, placed: &Placed, from: Option<&[Vec<DimLayout>]>) -> Chosen {
        let prices = std::mem::take(&mut self.draft.prices);
        let (slots, items) = (self.draft.slots.clone(), self.draft.items.clone());
        let mut draft = Draft { slots, items, prices, once: self.draft.once.clone(), ..Draft::default() };
        (draft.devices, draft.trips, draft.per_byte) =
            (self.draft.devices, self.draft.trips, self.draft.per_byte);
        for (slot, dims) in self.members.iter().zip(placed) {
            draft.slots[*slot].layout.dims.clone_from(dims);
        }
        let (chosen, prices) = place::price(draft, from.map(|loops| (loops, &self.due[..])));
        self.draft.prices = prices;
        chosen
    }

    /// All that the search depends on, as numbers: layers repeat, and so do their regions.
    fn key(&self) -> Vec<i64> {
        let mut key = Vec::new();
        sizes(&mut key, &self.members);
        sizes(&mut key, &self.draft.once);
        key.push(self.draft.slots.len() as i64);
        for s in &self.draft.slots {
            key.push(s.dtype.size() as i64);
            sizes(&mut key, &s.shape);
            layouts(&mut key, &s.layout.dims);
            let partial = s.layout.partial.as_ref();
            digits(&mut key, partial.map_or(&[], |p| &p.1[..]));
        }
        for (item, due) in self.draft.items.iter().zip(&self.due) {
            let Step::Local { out, sentence: s, layout } = &item.step else { continue };
            let body = match s.body {
                Body::Map(_) => 0,
                Body::Fold { .. } => 1,
                _ => 2,
            };
            sizes(&mut key, s.body.along());
            key.extend([
                *out as i64,
                body,
                s.rank as i64,
                s.dtype.size() as i64,
                i64::from(item.user.is_some()),
                i64::from(*due),
            ]);
            sizes(&mut key, &s.extents);
            layouts(&mut key, layout);
            key.push(s.reads.len() as i64);
            for r in &s.reads {
                key.push(r.parts.len() as i64);
                for p in &r.parts {
                    key.push(if let Source::Value(slot) = p.from { slot as i64 } else { -1 });
                    part(&mut key, p);
                }
            }
        }
        key
    }
}
