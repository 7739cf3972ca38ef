//! Where the loops of a local step run: its result's layout, its operands', or in between, whichever moves least.

use crate::partition::draft;
use crate::partition::draft::{Draft, Item};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::cost::Cost;
use crate::partition::price::reader::{Reader, distinct};
use crate::partition::program::{Slot, Step, Stored};
use crate::partition::region::loop_box;
use crate::program::sentence::{Body, Combine, Sentence, Source};
use crate::sharding::atoms::{Atoms, canonical, ways, without};
use crate::sharding::atoms::{cut, primes, sorted};

/// A byte moved costs as much as this many elements computed… of one device's work.
const BYTE: f64 = 32.0;
/// More ways to lay a step out than this are searched one loop at a time.
const SEARCH: usize = 64;

/// A draft whose steps are laid out one after the other.
pub(crate) struct Placer {
    pub(crate) d: Draft,
    /// For each value, the reads (step, read) that bring something of it.
    brought: Vec<Vec<(usize, usize)>>,
    /// Partial values that were reduced for a reader that is not linear.
    settled: Vec<Option<Slot>>,
    /// Values that lie between the two halves of an all-reduce, and what they become.
    pub(crate) halves: Vec<(Slot, Slot)>,
}

/// A way to lay a step out.
#[derive(Clone, Debug)]
struct Way {
    loops: Vec<DimLayout>,
    price: f64,
}

impl Placer {
    pub(crate) fn new(d: Draft) -> Placer {
        let n = d.slots.len();
        Placer { d, brought: vec![Vec::new(); n], settled: vec![None; n], halves: Vec::new() }
    }

    /// Lays out the local step that makes `out`.
    pub(crate) fn place(&mut self, mut item: Item, out: Slot, mut s: Sentence) {
        let own = self.d.slots[out].layout.clone();
        let wanted = own.partial.clone().map(|p| p.1).unwrap_or_default();
        let mut kept = Atoms::new();
        for k in 0..s.reads.len() {
            for src in s.reads[k].sources() {
                let Some((_, parts)) = self.d.slots[src].layout.partial.clone() else { continue };
                if without(&wanted, &parts).is_some() {
                    kept = sorted(kept.into_iter().chain(parts).collect());
                    continue;
                }
                let copy =
                    s.copied().is_some() && s.reads[k].is_identity(&s.extents, &self.d.slots[src].shape);
                if copy && without(&parts, &wanted).is_some() {
                    self.reduce(src, out, item);
                    return;
                }
                let whole = self.settle(src, &item);
                s.replace(src, whole);
            }
        }
        let missing = without(&wanted, &kept).unwrap_or_default();
        if !missing.is_empty() && s.extents.len() == s.rank {
            s = s.in_parts(ways(&missing));
        }
        let loops = if !wanted.is_empty() {
            let folded = match &item.step {
                Step::Local { layout, .. } if !layout.is_empty() => layout.clone(),
                _ => self.typed_parts(&s, &missing),
            };
            own.dims.iter().cloned().chain(folded).collect()
        } else if matches!(s.body, Body::Map(_)) {
            self.elementwise(&s, &own)
        } else if matches!(s.body, Body::Reshape) {
            own.dims.clone()
        } else {
            self.folding(&s, &own, out, item.user.is_some())
        };
        let folded = loops[s.rank..].iter().flat_map(|l| l.atoms.iter().copied());
        let parts = sorted(folded.chain(kept).collect());
        let combine = combine(&s.body);
        let at = Layout {
            dims: loops[..s.rank].to_vec(),
            partial: (!parts.is_empty()).then_some((combine, parts)),
        };
        if at == own {
            item.step = Step::Local { out, sentence: s, layout: loops };
            self.push(item);
            return;
        }
        let Stored { dtype, shape, .. } = self.d.slots[out].clone();
        let tmp = self.slot(Stored { dtype, shape: shape.clone(), layout: at.clone() });
        let then = Item { through: Vec::new(), ..item.clone() };
        item.step = Step::Local { out: tmp, sentence: s, layout: loops };
        self.push(item);
        if at.partial.is_some() {
            self.reduce(tmp, out, then);
        } else {
            self.copy(tmp, out, then);
        }
    }

    fn slot(&mut self, s: Stored) -> Slot {
        self.brought.push(Vec::new());
        self.settled.push(None);
        self.d.slots.push(s);
        self.d.slots.len() - 1
    }

    fn copy(&mut self, src: Slot, out: Slot, item: Item) {
        let Stored { dtype, shape, layout } = self.d.slots[out].clone();
        let sentence = draft::copy(src, dtype, &shape);
        self.push(Item { step: Step::Local { out, sentence, layout: layout.dims }, ..item });
    }

    /// Adds a step, and notes what it brings.
    fn push(&mut self, item: Item) {
        let k = self.d.items.len();
        self.d.items.push(item);
        let Step::Local { sentence, layout, .. } = &self.d.items[k].step else { return };
        for read in 0..sentence.reads.len() {
            let r = Reader { sentence, read, layout };
            for src in sentence.reads[read].sources() {
                let c = self.d.price(src, &[r]);
                let known = |(k, read): &(usize, usize)| match &self.d.items[*k].step {
                    Step::Local { sentence, layout, .. } => r.same(&Reader { sentence, read: *read, layout }),
                    _ => false,
                };
                if (c.total > 0 || !c.exact) && !self.brought[src].iter().any(known) {
                    self.brought[src].push((k, read));
                }
            }
        }
    }

    /// A partial value reduced in place, once.
    fn settle(&mut self, src: Slot, item: &Item) -> Slot {
        if let Some(s) = self.settled[src] {
            return s;
        }
        let Stored { dtype, shape, layout } = self.d.slots[src].clone();
        let whole = self.slot(Stored { dtype, shape, layout: Layout { partial: None, ..layout } });
        let step = Step::Reduce { src, out: whole, combine: Combine::Add };
        self.reduce(src, whole, Item::new(step, item.why.clone()));
        self.settled[src] = Some(whole);
        whole
    }

    /// Parts to a value that is not in them: at once, or scattered along a dimension first and fetched from there.
    fn reduce(&mut self, src: Slot, out: Slot, item: Item) {
        let combine = self.d.slots[src].layout.partial.as_ref().map_or(Combine::Add, |p| p.0);
        let (_, middle) = self.reduce_way(&self.d.slots[src], &self.d.slots[out].layout);
        let Some(layout) = middle else {
            self.push(Item { step: Step::Reduce { src, out, combine }, ..item });
            return;
        };
        let Stored { dtype, shape, .. } = self.d.slots[src].clone();
        let mid = self.slot(Stored { dtype, shape, layout });
        self.halves.push((mid, out));
        self.push(Item { step: Step::Reduce { src, out: mid, combine }, ..item.clone() });
        self.copy(mid, out, item);
    }

    /// Bytes to combine the parts of a value into this layout, and the layout in between if that is cheaper.
    fn reduce_way(&self, from: &Stored, to: &Layout) -> (f64, Option<Layout>) {
        let bytes = from.dtype.size() as f64;
        let stay = to.partial.clone().map(|p| p.1).unwrap_or_default();
        let parts = from.layout.partial.clone().map(|p| p.1).unwrap_or_default();
        let gone = without(&parts, &stay).unwrap_or(parts);
        let copies = ways(&gone) as i64;
        let s = draft::copy(0, from.dtype, &from.shape);
        let to_reader = Reader { sentence: &s, read: 0, layout: &to.dims };
        let direct = self.moved(from, &to_reader, copies);
        let mut best = (direct, None);
        for d in 0..from.shape.rank() {
            let mut mid = Layout { dims: from.layout.dims.clone(), partial: to.partial.clone() };
            let atoms = mid.dims[d].atoms.iter().chain(&gone).copied();
            mid.dims[d] = DimLayout::new(from.shape[d], atoms);
            let scattered = self.moved(from, &Reader { layout: &mid.dims, ..to_reader }, copies);
            let there = Stored { layout: mid.clone(), ..from.clone() };
            let total = scattered + self.moved(&there, &to_reader, 1);
            // at equal bytes: fewer steps
            if total * (1.0 + 1e-9) < best.0 - 1.0 {
                best = (total, Some(mid));
            }
        }
        (best.0 * bytes, best.1)
    }

    fn moved(&self, from: &Stored, reader: &Reader, copies: i64) -> f64 {
        self.d.prices.of(self.d.devices, 0, from, &[*reader], copies).total as f64
    }

    /// Bytes to bring all operands in, beyond what earlier readers of the same values bring.
    fn bring(&self, s: &Sentence, layout: &[DimLayout]) -> f64 {
        let mut total = 0.0;
        let mut seen: Vec<(Slot, usize)> = Vec::new();
        for read in 0..s.reads.len() {
            for src in s.reads[read].sources() {
                seen.push((src, read));
            }
        }
        seen.sort_unstable();
        for group in seen.chunk_by(|a, b| a.0 == b.0) {
            let src = group[0].0;
            let stored = &self.d.slots[src];
            let mut readers: Vec<Reader> = Vec::new();
            for (k, read) in &self.brought[src] {
                if let Step::Local { sentence, layout, .. } = &self.d.items[*k].step {
                    readers.push(Reader { sentence, read: *read, layout });
                }
            }
            let here = group.iter().map(|(_, read)| Reader { sentence: s, read: *read, layout });
            let all = distinct(readers.iter().copied().chain(here));
            if all.len() == readers.len() {
                // nothing that earlier readers don't need
                continue;
            }
            let before = if readers.is_empty() { Cost::default() } else { self.cost(src, &readers) };
            let after = self.cost(src, &all);
            let mut more = (after.total - before.total).max(0) as f64 * stored.dtype.size() as f64;
            if self.d.once.contains(&src) {
                // fetched before the loop
                more /= self.d.trips.max(1) as f64;
            }
            // at equal bytes: fewer steps
            total += more + if more > 0.0 { 1.0 } else { 0.0 };
        }
        total
    }

    fn cost(&self, src: Slot, readers: &[Reader]) -> Cost {
        self.d.price(src, readers)
    }

    /// Elementwise: where the result lies, or where an operand does.
    fn elementwise(&self, s: &Sentence, own: &Layout) -> Vec<DimLayout> {
        let here = self.bring(s, &own.dims);
        let mut best = (here, own.dims.clone());
        if here == 0.0 || s.reads.len() < 2 {
            return best.1;
        }
        let result = s.dtype.size() as f64;
        for k in 0..s.reads.len() {
            let [src] = s.reads[k].sources()[..] else { continue };
            let stored = &self.d.slots[src];
            let there = &stored.layout.dims;
            if *there == own.dims || !s.reads[k].is_identity(&s.extents, &stored.shape) {
                continue;
            }
            let copy = draft::copy(0, s.dtype, &s.extents);
            let tmp = Stored { layout: Layout { dims: there.clone(), partial: None }, ..stored.clone() };
            let back = self.moved(&tmp, &Reader { sentence: &copy, read: 0, layout: &own.dims }, 1);
            let c = self.bring(s, there) + back * result + 1.0;
            if c < best.0 {
                best = (c, there.clone());
            }
        }
        best.1
    }

    /// How folded loops are split where the type says that the result is in these parts.
    fn typed_parts(&self, s: &Sentence, missing: &Atoms) -> Vec<DimLayout> {
        let mut left = missing.clone();
        let mut folded: Vec<DimLayout> = Vec::new();
        for l in s.rank..s.extents.len() {
            let among = |a: Atoms| a.into_iter().filter(|a| without(&left, &[*a]).is_some()).collect();
            let held = self.splits(s, l).into_iter().map(among);
            let atoms: Atoms = held.max_by_key(|a: &Atoms| ways(a)).unwrap_or_default();
            left = without(&left, &atoms).unwrap_or_default();
            folded.push(DimLayout::new(s.extents[l], atoms));
        }
        if let (Some(first), false) = (folded.first_mut(), left.is_empty()) {
            // no operand says how it comes in parts: the first folded loop is split
            *first = DimLayout::new(s.extents[s.rank], first.atoms.iter().copied().chain(left));
        }
        folded
    }

    /// The digits by which operands are split along a loop.
    fn splits(&self, s: &Sentence, l: usize) -> Vec<Atoms> {
        let mut list = Vec::new();
        for p in s.reads.iter().flat_map(|r| &r.parts) {
            let Source::Value(src) = p.from else { continue };
            for (dim, m) in p.map.iter().enumerate() {
                let held = &self.d.slots[src].layout.dims[dim];
                if held.atoms.is_empty() {
                    continue;
                }
                match m.terms[..] {
                    [(k, _)] if k == l => list.push(held.atoms.clone()),
                    // one of several loops along a dimension: the major ones take its digits first
                    _ if m.terms.iter().any(|t| t.0 == l) => {
                        let mut terms = m.terms.to_vec();
                        terms.sort_by_key(|t| std::cmp::Reverse(t.1.abs()));
                        let mut digits = primes(&held.atoms).into_iter().peekable();
                        for (k, _) in terms {
                            let (mut room, mut here) = (s.extents[k], Atoms::new());
                            while let Some(a) = digits.next_if(|a| room.is_multiple_of(a.size)) {
                                room /= a.size;
                                here.push(a);
                            }
                            if k == l && !here.is_empty() {
                                list.push(canonical(here));
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        list.sort();
        list.dedup();
        list
    }

    /// Folds and products: for each loop unsplit, as the result, or as an operand; the cheapest combination. What the user `asked`
    /// for by name is done as it was asked for.
    fn folding(&self, s: &Sentence, own: &Layout, out: Slot, asked: bool) -> Vec<DimLayout> {
        let n = s.extents.len();
        let mut options: Vec<Vec<Atoms>> = Vec::new();
        for l in 0..n {
            // the first option is the natural one
            let mut list: Vec<Atoms> = Vec::new();
            let splits = self.splits(s, l);
            if l < s.rank {
                list.push(own.dims[l].atoms.clone());
                list.extend(splits);
            } else {
                list.extend(splits);
            }
            list.push(Atoms::new());
            let mut unique: Vec<Atoms> = Vec::new();
            list.into_iter().for_each(|a| {
                if !unique.contains(&a) {
                    unique.push(a);
                }
            });
            options.push(unique);
        }
        let mut pick = vec![0; n];
        let mut best = self.way(s, own, out, &options, &pick);
        if asked {
            return best.loops;
        }
        let combinations: usize = options.iter().map(Vec::len).product();
        if combinations <= SEARCH {
            for mut c in 1..combinations {
                for (p, o) in pick.iter_mut().zip(&options).rev() {
                    *p = c % o.len();
                    c /= o.len();
                }
                let way = self.way(s, own, out, &options, &pick);
                if way.price < best.price {
                    best = way;
                }
            }
            return best.loops;
        }
        let mut stable = false;
        while !stable {
            stable = true;
            for l in 0..n {
                for o in 0..options[l].len() {
                    let before = std::mem::replace(&mut pick[l], o);
                    let way = self.way(s, own, out, &options, &pick);
                    if way.price < best.price {
                        (best, stable) = (way, false);
                    } else {
                        pick[l] = before;
                    }
                }
            }
        }
        best.loops
    }

    /// One combination of splits, with its price in elements of work: folded loops take their digits first.
    fn way(&self, s: &Sentence, own: &Layout, out: Slot, options: &[Vec<Atoms>], pick: &[usize]) -> Way {
        let mut used = Atoms::new();
        let mut loops: Vec<DimLayout> = Vec::new();
        for l in (0..s.extents.len()).rev() {
            let atoms = cut(&options[l][pick[l]], &used);
            used.extend(atoms.iter().copied());
            // the result's own frame, where it is split as it is stored
            let framed = l < s.rank && atoms == own.dims[l].atoms;
            loops.push(if framed { own.dims[l].clone() } else { DimLayout::new(s.extents[l], atoms) });
        }
        loops.reverse();
        let parts = sorted(loops[s.rank..].iter().flat_map(|l| l.atoms.iter().copied()).collect());
        let stored = &self.d.slots[out];
        let layout = Layout {
            dims: loops[..s.rank].to_vec(),
            partial: (!parts.is_empty()).then_some((combine(&s.body), parts)),
        };
        let after = if layout == *own {
            0.0
        } else {
            self.reduce_way(&Stored { layout, ..stored.clone() }, own).0 + 1.0
        };
        let work: f64 = loop_box(&loops, &s.extents, 0).iter().map(|v| (v.1 - v.0) as f64).product();
        let price = BYTE * (self.bring(s, &loops) + after) + work * self.d.devices as f64;
        Way { loops, price }
    }
}

/// How the parts of a step's result combine.
fn combine(body: &Body) -> Combine {
    match body {
        Body::Fold { combine, .. } => *combine,
        _ => Combine::Add,
    }
}
