//! Where the loops of local steps run: where the result is asked for, where the operands are, or in between, whichever is cheapest.
//!
//! What a step needs of a value may come anyway, because another step needs it: the price of a way to lay a step out is what it
//! moves beyond that. All steps choose at once, on what the others chose the round before; of the rounds the one counts that moves
//! least in all. So it is decided by who reads a value, and not by which of them comes first in the program.
//!
//! Prices are in elements computed: the steps of the busiest device's loops times the number of devices, and so many for each byte
//! that any device receives as the machine computes meanwhile ([`PerByte`]).

use super::parts::{moved, reduce_way};
use super::puts;
use super::splits::{combined, laid, splits};
use crate::partition::draft::{self, Draft, Item};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::prices;
use crate::partition::price::reader::{Reader, distinct};
use crate::partition::price::work::{Price, work};
use crate::partition::program::{Slot, Stored};
use crate::program::sentence::{Body, Lines, Read, Sentence, Source};
use crate::sharding::atoms::{Atoms, canonical, cut, sorted, ways};
use crate::sorted;

/// What a further step costs, in bytes: at equal bytes the way with fewer steps is taken.
const STEP: f64 = 1.0;
/// More ways to lay a step out than this are searched one loop at a time.
const SEARCH: usize = 64;
/// How often steps choose anew at most.
const ROUNDS: usize = 4;

/// A step of the draft, or one whose loops are to be laid out.
pub(super) enum Entry {
    Done(Item),
    Open(Open),
}

/// A local step whose loops are to be laid out.
pub(super) struct Open {
    pub(super) item: Item,
    pub(super) out: Slot,
    pub(super) sentence: Sentence,
    /// The digits over which its result is partial because operands are.
    pub(super) kept: Atoms,
    /// Its loops, where layouts leave no choice.
    pub(super) known: Option<Vec<DimLayout>>,
}

/// How all steps are laid out.
pub(super) struct Chosen {
    /// The loops of each entry's step; none for those that are done.
    pub(super) loops: Vec<Vec<DimLayout>>,
    pub(super) price: Price,
}

/// Lays out the loops of all steps.
pub(super) fn choose(d: &Draft, entries: &[Entry]) -> Chosen {
    let known = |e: &Entry| match e {
        Entry::Open(Open { known: Some(loops), .. }) => loops.clone(),
        _ => Vec::new(),
    };
    let first = Round::new(d, entries, entries.iter().map(known).collect());
    rounds(first, vec![true; entries.len()])
}

/// The same from where loops are laid out so, the steps that are `due` near that, the others as they are.
pub(super) fn choose_near(
    d: &Draft,
    entries: &[Entry],
    loops: Vec<Vec<DimLayout>>,
    due: Vec<bool>,
) -> Chosen {
    let mut first = Round::new(d, entries, loops);
    first.near = true;
    rounds(first, due)
}

/// Lays out the steps that are `due`, then those of whose operands others need something else than before, and so on.
fn rounds(mut round: Round, mut due: Vec<bool>) -> Chosen {
    let (entries, movable) = (round.entries, due.clone());
    let mut best = round.near.then(|| Chosen { price: round.price(), loops: round.loops.clone() });
    for _ in 0..if round.near { ROUNDS / 2 } else { ROUNDS } {
        let mut next = round.loops.clone();
        for (k, entry) in entries.iter().enumerate() {
            if let (Entry::Open(open @ Open { known: None, .. }), true) = (entry, due[k]) {
                next[k] = round.step(k, open);
            }
        }
        let after = Round { near: round.near, ..Round::new(round.d, entries, next) };
        due = after.unlike(&round, entries);
        due.iter_mut().zip(&movable).for_each(|(due, movable)| *due &= movable);
        let price = after.price();
        // sums of prices differ in their last bits by the order of steps
        if best.as_ref().is_none_or(|b| price.all < b.price.all * (1.0 - 1e-9)) {
            best = Some(Chosen { price, loops: after.loops.clone() });
        }
        if !due.contains(&true) {
            break;
        }
        round = after;
    }
    best.unwrap_or_else(|| Chosen { loops: Vec::new(), price: Price { bytes: 0.0, all: 0.0 } })
}

/// Reads of one value that need the same boxes of it, of which something is not held.
#[derive(PartialEq)]
struct Need {
    /// One of the reads: entry and number.
    of: (usize, usize),
    /// The entries that have such a read.
    by: Vec<usize>,
}

/// How all steps are laid out, and what is fetched for them.
struct Round<'a> {
    d: &'a Draft,
    entries: &'a [Entry],
    loops: Vec<Vec<DimLayout>>,
    /// Where puts of which each device makes a part read what was there.
    bases: Vec<Option<Vec<DimLayout>>>,
    /// For each value what is needed of it.
    needs: Vec<Vec<Need>>,
    /// Whether steps are laid out near how they are now, and not from the beginning.
    near: bool,
}

impl<'a> Round<'a> {
    fn new(d: &'a Draft, entries: &'a [Entry], loops: Vec<Vec<DimLayout>>) -> Round<'a> {
        let base = |(e, loops): (&Entry, &Vec<DimLayout>)| match e {
            Entry::Open(open) if open.known.is_none() && !loops.is_empty() => {
                puts::base(&open.sentence, &d.slots[open.out].layout, loops)
            }
            _ => None,
        };
        let bases = entries.iter().zip(&loops).map(base).collect();
        let mut round = Round { d, entries, loops, bases, needs: Vec::new(), near: false };
        let mut needs: Vec<Vec<Need>> = (0..d.slots.len()).map(|_| Vec::new()).collect();
        for (k, sentence) in round.sentences().filter(|(k, s)| round.is_laid(*k, s)) {
            for read in 0..sentence.reads.len() {
                let reader = Reader { sentence, read, layout: round.layout(k, read) };
                for src in sentence.reads[read].sources() {
                    let same = |n: &&mut Need| round.reader(n.of).is_some_and(|r| r.same(&reader));
                    if let Some(need) = needs[src].iter_mut().find(same) {
                        need.by.push(k);
                        continue;
                    }
                    if d.brings(src, reader) {
                        needs[src].push(Need { of: (k, read), by: vec![k] });
                    }
                }
            }
        }
        round.needs = needs;
        round
    }
    fn sentences(&self) -> impl Iterator<Item = (usize, &'a Sentence)> {
        self.entries.iter().enumerate().filter_map(|(k, e)| match e {
            Entry::Open(open) => Some((k, &open.sentence)),
            Entry::Done(_) => None,
        })
    }
    /// Whether a step's loops are laid out: that of a number has none.
    fn is_laid(&self, k: usize, s: &Sentence) -> bool {
        self.loops[k].len() == s.extents.len()
    }
    fn reader(&self, (k, read): (usize, usize)) -> Option<Reader<'_>> {
        let Entry::Open(open) = &self.entries[k] else { return None };
        Some(Reader { sentence: &open.sentence, read, layout: self.layout(k, read) })
    }
    /// Where a step's loops run for one of its reads.
    fn layout(&self, k: usize, read: usize) -> &[DimLayout] {
        self.bases[k].as_deref().filter(|_| read == 0).unwrap_or(&self.loops[k])
    }
    /// The reads of a value by steps other than this one.
    fn others(&self, src: Slot, but: usize) -> Vec<Reader<'_>> {
        let others = self.needs[src].iter().filter(|n| n.by.iter().any(|k| *k != but));
        others.filter_map(|n| self.reader(n.of)).collect()
    }
    /// The entries that have a choice and of whose operands others need something else than before.
    fn unlike(&self, before: &Round, entries: &[Entry]) -> Vec<bool> {
        let alike = |src: Slot, k: usize| {
            let (now, then) = (self.others(src, k), before.others(src, k));
            now.len() == then.len() && now.iter().all(|a| then.iter().any(|b| a.same(b)))
        };
        let due = |(k, entry): (usize, &Entry)| match entry {
            Entry::Open(Open { known: None, sentence, .. }) => {
                !sentence.reads.iter().flat_map(|r| r.sources()).all(|src| alike(src, k))
            }
            _ => false,
        };
        entries.iter().enumerate().map(due).collect()
    }
    /// What everything costs together.
    fn price(&self) -> Price {
        let (mut bytes, mut work) = (0.0, 0.0);
        for (src, needs) in self.needs.iter().enumerate().filter(|(_, needs)| !needs.is_empty()) {
            let readers: Vec<Reader> = needs.iter().filter_map(|n| self.reader(n.of)).collect();
            bytes += self.weight(src, self.d.moved(src, &readers));
        }
        for (k, s) in self.sentences().filter(|(k, s)| self.is_laid(*k, s)) {
            let Entry::Open(open) = &self.entries[k] else { continue };
            bytes += self.after(s, &self.loops[k], open.out);
            work += self.work(s, &self.loops[k]);
        }
        self.d.per_byte.price(bytes, work)
    }

    /// The cheapest way to lay out one step, the others as they are.
    fn step(&self, k: usize, open: &Open) -> Vec<DimLayout> {
        let own = &self.d.slots[open.out].layout;
        let known = |kind| self.d.prices.step(self.question(kind, k, open), || self.folding(k, open, own));
        match open.sentence.body {
            // that of one operand has no other way
            Body::Map(_) if open.sentence.reads.len() < 2 => own.dims.clone(),
            Body::Map(_) => self.d.prices.step(self.question(0, k, open), || self.elementwise(k, open, own)),
            Body::Fold { .. } => known(1),
            Body::Product { .. } => known(2),
            Body::Lines(_) | Body::Take { .. } | Body::Put { .. } => self.folding(k, open, own),
            Body::Reshape => own.dims.clone(),
        }
    }
    /// All that decides how a step of this kind is laid out, as numbers: layers repeat, and so do their steps.
    fn question(&self, kind: i64, k: usize, open: &Open) -> Vec<i64> {
        let (s, stored) = (&open.sentence, &self.d.slots[open.out]);
        let mut key = vec![kind, i64::from(self.near), i64::from(open.item.user.is_some()), s.rank as i64];
        key.extend([s.dtype.size() as i64, i64::from(stored.layout.partial.is_some()), s.combine() as i64]);
        prices::sizes(&mut key, &s.extents);
        prices::layouts(&mut key, &stored.layout.dims);
        if self.near {
            prices::layouts(&mut key, &self.loops[k]);
        }
        let mut sources: Vec<Slot> = Vec::new();
        for r in &s.reads {
            key.push(r.parts.len() as i64);
            for p in &r.parts {
                if let Source::Value(slot) = p.from {
                    let known = sources.iter().position(|s| *s == slot);
                    key.push(known.unwrap_or_else(|| {
                        sources.push(slot);
                        sources.len() - 1
                    }) as i64);
                } else {
                    key.push(-1);
                }
                prices::part(&mut key, p);
            }
        }
        for slot in sources {
            let stored = &self.d.slots[slot];
            key.extend([stored.dtype.size() as i64, i64::from(self.d.once.contains(&slot))]);
            prices::sizes(&mut key, &stored.shape);
            prices::layouts(&mut key, &stored.layout.dims);
            let others = self.others(slot, k);
            key.push(others.len() as i64);
            others.iter().for_each(|r| prices::reader(&mut key, slot, r));
        }
        key
    }

    /// Bytes that so many elements of a value weigh: what is the same in every run of a loop's body is fetched before the loop.
    fn weight(&self, src: Slot, elements: i64) -> f64 {
        let bytes = elements.max(0) as f64 * self.d.slots[src].dtype.size() as f64;
        if self.d.once.contains(&src) { bytes / self.d.trips.max(1) as f64 } else { bytes }
    }
    /// Bytes to bring the operands of step k in, beyond what others need of them.
    fn bring(&self, k: usize, open: &Open, layout: &[DimLayout]) -> f64 {
        let s = &open.sentence;
        let base = puts::base(s, &self.d.slots[open.out].layout, layout);
        let at = |read: usize| base.as_deref().filter(|_| read == 0).unwrap_or(layout);
        let mut seen: Vec<(Slot, usize)> = Vec::new();
        for (read, r) in s.reads.iter().enumerate() {
            seen.extend(r.sources().into_iter().map(|src| (src, read)));
        }
        sorted::sort(&mut seen);
        let mut bytes: Vec<f64> = Vec::new();
        for group in seen.chunk_by(|a, b| a.0 == b.0) {
            let src = group[0].0;
            let others = self.others(src, k);
            let here = group.iter().map(|(_, read)| Reader { sentence: s, read: *read, layout: at(*read) });
            let all = distinct(others.iter().copied().chain(here));
            if all.len() == others.len() {
                continue;
            }
            let before = if others.is_empty() { 0 } else { self.d.moved(src, &others) };
            let more = self.weight(src, self.d.moved(src, &all) - before);
            if more > 0.0 {
                bytes.push(more + STEP);
            }
        }
        // in one order, whichever numbers values have
        sorted::sort_by(&mut bytes, f64::total_cmp);
        bytes.iter().sum()
    }
    /// Bytes to bring the result of a step from where it is made to where it is asked for.
    fn after(&self, s: &Sentence, loops: &[DimLayout], out: Slot) -> f64 {
        let stored = &self.d.slots[out];
        if stored.layout.partial.is_some() {
            return 0.0;
        }
        let parts = sorted(loops[s.rank..].iter().flat_map(|l| l.atoms.iter().copied()).collect());
        let layout = Layout {
            dims: loops[..s.rank].to_vec(),
            partial: (!parts.is_empty()).then_some((s.combine(), parts)),
        };
        if layout == stored.layout {
            return 0.0;
        }
        reduce_way(self.d, &Stored { layout, ..stored.clone() }, &stored.layout).0 + STEP
    }
    /// Elements that the busiest device computes, times the devices.
    fn work(&self, s: &Sentence, loops: &[DimLayout]) -> f64 {
        work(s, loops) * self.d.devices as f64
    }

    /// Elementwise: where the result is asked for, or where an operand is.
    fn elementwise(&self, k: usize, open: &Open, own: &Layout) -> Vec<DimLayout> {
        let s = &open.sentence;
        let here = self.bring(k, open, &own.dims);
        if here == 0.0 {
            return own.dims.clone();
        }
        let mut ways: Vec<(f64, &[DimLayout])> = Vec::new();
        for r in &s.reads {
            let [src] = r.sources()[..] else { continue };
            let stored = &self.d.slots[src];
            let there = &stored.layout.dims;
            if *there == own.dims || !r.is_identity(&s.extents, &stored.shape) {
                continue;
            }
            let copy = draft::copy(0, s.dtype, &s.extents);
            let made = Stored { layout: Layout { dims: there.clone(), partial: None }, ..stored.clone() };
            let back = moved(self.d, &made, &Reader { sentence: &copy, read: 0, layout: &own.dims }, 1);
            ways.push((self.bring(k, open, there) + back * s.dtype.size() as f64 + STEP, there));
        }
        // of operands at one price the one that splits leading dimensions by major digits, whichever comes first
        let digits = |dims: &[DimLayout]| -> Vec<Atoms> { dims.iter().map(|l| l.atoms.clone()).collect() };
        sorted::sort_by(&mut ways, |a, b| a.0.total_cmp(&b.0).then_with(|| digits(b.1).cmp(&digits(a.1))));
        match ways.first() {
            Some((price, there)) if *price < here => there.to_vec(),
            _ => own.dims.clone(),
        }
    }

    /// Folds, products and lines: each loop unsplit, as the result, or as an operand; the cheapest combination. What the user asked for by
    /// name is done as it was asked for.
    fn folding(&self, k: usize, open: &Open, own: &Layout) -> Vec<DimLayout> {
        let s = &open.sentence;
        let options: Vec<Vec<Atoms>> = (0..s.extents.len()).map(|l| self.options(s, own, l)).collect();
        let price = |loops: &[DimLayout]| {
            let bytes = self.bring(k, open, loops) + self.after(s, loops, open.out);
            self.d.per_byte.price(bytes, self.work(s, loops))
        };
        let way = |pick: &[usize]| {
            let loops = combined(s, own, &options, pick);
            (price(&loops), loops)
        };
        let mut pick = vec![0; options.len()];
        let mut best = way(&pick);
        if open.item.user.is_some() {
            return best.1;
        }
        if self.near {
            let now = (price(&self.loops[k]), self.loops[k].clone());
            let nearest = if now.0.all < best.0.all { now } else { best };
            return self.exchanged(s, own, nearest, &price);
        }
        let combinations = options.iter().map(Vec::len).fold(1, usize::saturating_mul);
        if combinations <= SEARCH {
            for mut c in 1..combinations {
                for (p, o) in pick.iter_mut().zip(&options).rev() {
                    *p = c % o.len();
                    c /= o.len();
                }
                let other = way(&pick);
                if other.0.all < best.0.all {
                    best = other;
                }
            }
        } else {
            let mut stable = false;
            while !stable {
                stable = true;
                for l in 0..options.len() {
                    for o in 0..options[l].len() {
                        let before = std::mem::replace(&mut pick[l], o);
                        let other = way(&pick);
                        if other.0.all < best.0.all {
                            (best, stable) = (other, false);
                        } else {
                            pick[l] = before;
                        }
                    }
                }
            }
        }
        self.exchanged(s, own, best, &price)
    }

    /// A better way to lay out a product or a fold, if there is one in which a loop has digits that operands or the result have on other
    /// loops: what is held along one loop comes by an all-to-all along another. It moves no more, however much less is computed.
    fn exchanged(
        &self,
        s: &Sentence,
        own: &Layout,
        mut best: (Price, Vec<DimLayout>),
        price: &dyn Fn(&[DimLayout]) -> Price,
    ) -> Vec<DimLayout> {
        if !matches!(s.body, Body::Fold { .. } | Body::Product { .. }) {
            return best.1;
        }
        let read = s.reads.iter().flat_map(Read::sources).flat_map(|src| &self.d.slots[src].layout.dims);
        let mut digits: Vec<&Atoms> = own.dims.iter().chain(read).map(|l| &l.atoms).collect();
        sorted::sort(&mut digits);
        digits.dedup();
        digits.retain(|a| self.near || !a.is_empty());
        let mut stable = false;
        while !stable {
            stable = true;
            for l in 0..s.extents.len() {
                for a in digits.iter().filter(|a| s.extents[l] >= ways(a)) {
                    if best.1[l].atoms == **a {
                        continue;
                    }
                    let split = |k: usize| if k == l { (*a).clone() } else { cut(&best.1[k].atoms, a) };
                    let loops: Vec<DimLayout> =
                        (0..s.extents.len()).map(|k| laid(s, own, k, split(k))).collect();
                    let other = price(&loops);
                    let less = other.all < best.0.all * (1.0 - 1e-9);
                    if less && other.bytes <= best.0.bytes * (1.0 + 1e-9) {
                        (best, stable) = ((other, loops), false);
                    }
                }
            }
        }
        best.1
    }

    /// The ways to split a loop, the natural one first.
    fn options(&self, s: &Sentence, own: &Layout, l: usize) -> Vec<Atoms> {
        let result = (l < s.rank).then(|| own.dims[l].atoms.clone());
        let others = match &s.body {
            // a put is made where it is stored: updates come there, whole, or, if they are combined, each device's own in a part of it
            Body::Put { .. } if l < s.rank => Vec::new(),
            Body::Put { combine: None, .. } => Vec::new(),
            Body::Lines(lines) => self.lines(s, lines, own, l),
            _ => splits(self.d, s, l),
        };
        let mut unique: Vec<Atoms> = Vec::new();
        for a in result.into_iter().chain(others).chain([Atoms::new()]) {
            if !unique.contains(&a) {
                unique.push(a);
            }
        }
        unique
    }
}

impl Round<'_> {
    /// The ways to split a loop of lines beside the result's own: those along lines are not split; what splits lines where they are
    /// stored may split their number instead.
    fn lines(&self, s: &Sentence, lines: &Lines, own: &Layout, l: usize) -> Vec<Atoms> {
        if l >= s.rank || lines.along.contains(&l) {
            return Vec::new();
        }
        let mut list = splits(self.d, s, l);
        let before: Vec<Atoms> = list.iter().cloned().chain([own.dims[l].atoms.clone()]).collect();
        let operands = (s.rank..s.extents.len()).flat_map(|k| splits(self.d, s, k));
        let mut along: Vec<Atoms> =
            operands.chain(lines.along.iter().map(|k| own.dims[*k].atoms.clone())).collect();
        along.retain(|a| !a.is_empty());
        sorted::sort(&mut along);
        along.dedup();
        for (b, a) in before.iter().flat_map(|b| along.iter().map(move |a| (b, a))) {
            let more: Atoms = b.iter().copied().chain(cut(a, b)).collect();
            list.push(canonical(more));
        }
        list
    }
}
