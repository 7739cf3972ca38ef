//! Placing: each local step with its loops laid out, and what becomes of results that are asked for elsewhere.
//!
//! First partial sums are settled where a reader is not linear in them; that looks at layouts only. Then the loops of all steps are
//! chosen together (`choose`). Last come the steps that bring a result from where it is made to where it is asked for.

use super::choose::{self, Chosen, Entry, Open};
use super::splits::splits;
use super::sums::{self, InParts};
use super::{parts, puts, views};
use crate::partition::draft::{self, Draft, Item};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::prices::Prices;
use crate::partition::program::{Slot, Step, Stored};
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Part, Read, Sentence, Source, Span};
use crate::sharding::atoms::{Atoms, sorted, ways, without};
use crate::types::Scalar;
use std::collections::HashMap;

/// A draft whose local steps are laid out.
pub(super) struct Placer {
    pub(super) d: Draft,
    entries: Vec<Entry>,
    /// Partial values that were summed for a reader that is not linear, and their sums.
    settled: Vec<Option<Slot>>,
    /// Values that are between the two halves of an all-reduce, and what they become.
    pub(super) halves: Vec<(Slot, Slot)>,
    /// Values that are asked for whole and that stay partial, and these.
    in_parts: HashMap<Slot, Slot>,
}

/// Lays out all local steps.
pub(super) fn place(d: Draft) -> Placer {
    let mut p = opened(d);
    let chosen = choose::choose(&p.d, &p.entries).loops;
    let in_parts = sums::added(&p.d, &p.entries, &chosen);
    let all = std::mem::take(&mut p.entries).into_iter().zip(chosen).zip(in_parts);
    for ((entry, loops), in_parts) in all {
        match (entry, in_parts) {
            (Entry::Done(item), _) => p.d.items.push(item),
            (Entry::Open(open), Some(sum)) => p.close_in_parts(open, loops, sum),
            (Entry::Open(open), None) => p.close(open, loops),
        }
    }
    p
}

/// What a draft costs with all local steps laid out, and their loops: near those of `from`, if any, where steps are as they were but
/// for those that are due.
pub(super) fn price(d: Draft, from: Option<(&[Vec<DimLayout>], &[bool])>) -> (Chosen, Prices) {
    let p = opened(d);
    let chosen = match from {
        Some((loops, due)) => choose::choose_near(&p.d, &p.entries, loops.to_vec(), due.to_vec()),
        None => choose::choose(&p.d, &p.entries),
    };
    (chosen, p.d.prices)
}

/// A draft's steps, partial operands settled where they must be.
fn opened(mut d: Draft) -> Placer {
    let items = std::mem::take(&mut d.items);
    let settled = vec![None; d.slots.len()];
    let mut p = Placer {
        d,
        entries: Vec::with_capacity(items.len()),
        settled,
        halves: Vec::new(),
        in_parts: HashMap::new(),
    };
    for item in items {
        match item.step {
            Step::Local { out, ref sentence, .. } => {
                let sentence = sentence.clone();
                p.open(item, out, sentence);
            }
            _ => p.entries.push(Entry::Done(item)),
        }
    }
    p
}

impl Placer {
    /// A local step, its partial operands settled where they must be.
    fn open(&mut self, item: Item, out: Slot, mut s: Sentence) {
        let own = self.d.slots[out].layout.clone();
        let wanted = own.partial.clone().map(|p| p.1).unwrap_or_default();
        let mut kept = Atoms::new();
        for k in 0..s.reads.len() {
            for src in s.reads[k].sources() {
                let Some((_, parts)) = self.d.slots[src].layout.partial.clone() else { continue };
                if s.takes_parts(k) && without(&wanted, &parts).is_some() {
                    kept = sorted(kept.into_iter().chain(parts).collect());
                    continue;
                }
                let copy =
                    s.copied().is_some() && s.reads[k].is_identity(&s.extents, &self.d.slots[src].shape);
                if copy && without(&parts, &wanted).is_some() {
                    let steps = self.reduced(src, out, item);
                    self.entries.extend(steps.into_iter().map(Entry::Done));
                    return;
                }
                let sum = match self.settled_for(&s, src, out) {
                    Some(layout) => {
                        let sum = self.slot(Stored { layout, ..self.d.slots[src].clone() });
                        let step = Step::Reduce { src, out: sum, combine: Combine::Add };
                        let steps = self.reduced(src, sum, Item::new(step, item.why.clone()));
                        self.entries.extend(steps.into_iter().map(Entry::Done));
                        kept = wanted.clone();
                        sum
                    }
                    None => self.settle(src, &item),
                };
                s.replace(src, sum);
            }
        }
        let missing = without(&wanted, &kept).unwrap_or_default();
        if !wanted.is_empty() && !puts::in_these(&self.d.slots, &s, &kept, &missing) {
            return self.whole(item, out, s);
        }
        if !missing.is_empty() && s.extents.len() == s.rank {
            s = s.in_parts(ways(&missing));
        }
        let known = if !wanted.is_empty() {
            let folded = match &item.step {
                Step::Local { layout, .. } if !layout.is_empty() => layout.clone(),
                _ => self.typed_parts(&s, &missing),
            };
            Some(own.dims.iter().cloned().chain(folded).collect())
        } else {
            s.body.renames().then(|| own.dims.clone())
        };
        self.entries.push(Entry::Open(Open { item, out, sentence: s, kept, known }));
    }

    /// A step whose result is asked for partial, as it cannot be made: it is made whole, and the first part is the value.
    fn whole(&mut self, item: Item, out: Slot, s: Sentence) {
        let own = self.d.slots[out].layout.clone();
        let stored = Stored { layout: Layout { partial: None, ..own }, ..self.d.slots[out].clone() };
        let (dtype, shape) = (stored.dtype, stored.shape.clone());
        let mid = self.slot(stored);
        let then = Item { through: Vec::new(), ..item.clone() };
        self.open(item, mid, s);
        self.open(then, out, draft::copy(mid, dtype, &shape));
    }

    /// A step with its loops laid out, and the steps from there to where its result is asked for.
    fn close(&mut self, open: Open, loops: Vec<DimLayout>) {
        let Open { mut item, out, sentence, kept, .. } = open;
        let own = &self.d.slots[out].layout;
        let folded = loops[sentence.rank..].iter().flat_map(|l| l.atoms.iter().copied());
        let parts = sorted(folded.chain(kept).collect());
        // parts that the type asks for are added
        let combine = own.partial.as_ref().map_or_else(|| sentence.combine(), |p| p.0);
        let at = Layout {
            dims: loops[..sentence.rank].to_vec(),
            partial: (!parts.is_empty()).then_some((combine, parts)),
        };
        let divided = puts::base(&sentence, own, &loops).is_some() && own.partial.is_none();
        if at == *own {
            item.step = Step::Local { out, sentence, layout: loops };
            self.d.items.push(item);
            return;
        }
        let made = self.slot(Stored { layout: at.clone(), ..self.d.slots[out].clone() });
        if divided {
            return self.put_in_parts(item, out, sentence, made, loops);
        }
        let then = Item { through: Vec::new(), ..item.clone() };
        item.step = Step::Local { out: made, sentence, layout: loops };
        self.d.items.push(item);
        let steps = match at.partial {
            Some(_) => self.reduced(made, out, then),
            None => vec![self.copied(made, out, then)],
        };
        self.d.items.extend(steps);
    }

    /// A step whose partial result its one reader adds up: it stays partial, or it is that reader.
    fn close_in_parts(&mut self, open: Open, loops: Vec<DimLayout>, sum: InParts) {
        let Open { mut item, out, mut sentence, .. } = open;
        let made = self.slot(Stored { layout: sum.at.clone(), ..self.d.slots[out].clone() });
        let then = Item { through: Vec::new(), ..item.clone() };
        let elementwise = sentence.body.elementwise().is_some();
        if elementwise {
            for part in sentence.reads.iter_mut().flat_map(|r| &mut r.parts) {
                if let Source::Value(slot) = &mut part.from
                    && let Some(parts) = self.in_parts.get(slot)
                {
                    *slot = *parts;
                }
            }
        }
        let layout = if elementwise { sum.at.dims.clone() } else { loops };
        item.step = Step::Local { out: made, sentence, layout };
        self.d.items.push(item);
        if sum.stays {
            self.in_parts.insert(out, made);
        } else {
            let steps = self.reduced(made, out, then);
            self.d.items.extend(steps);
        }
    }

    /// A put whose updates are split: onto nothing, each device a part; the parts combined; and what was there.
    fn put_in_parts(
        &mut self,
        mut item: Item,
        out: Slot,
        mut s: Sentence,
        made: Slot,
        loops: Vec<DimLayout>,
    ) {
        let combine = s.combine();
        let neutral = combine.neutral(s.dtype);
        let nothing = s.everywhere(0) == Some(neutral);
        let empty = Read { dtype: s.dtype, parts: Vec::new(), fill: neutral };
        let mut was = std::mem::replace(&mut s.reads[0], empty);
        let (shape, dtype) = (s.extents[..s.rank].to_vec(), s.dtype);
        let then = Item { through: Vec::new(), ..item.clone() };
        item.step = Step::Local { out: made, sentence: s, layout: loops };
        self.d.items.push(item);
        if nothing {
            let steps = self.reduced(made, out, then);
            self.d.items.extend(steps);
            return;
        }
        let sum = self.slot(self.d.slots[out].clone());
        let steps = self.reduced(made, sum, then.clone());
        self.d.items.extend(steps);
        was.parts.iter_mut().for_each(|p| p.span.truncate(shape.len()));
        let part =
            Part { from: Source::Value(sum), span: Span::whole(&shape), map: Affine::identity(shape.len()) };
        let read = Read { dtype, parts: vec![part], fill: Scalar::zero(dtype) };
        let code = Code::one(combine.fun(), dtype, dtype, &[Arg::Read(0), Arg::Read(1)]);
        let rank = shape.len();
        let sentence =
            Sentence { extents: shape, rank, dtype, reads: vec![was, read], body: Body::Map(code) };
        let layout = self.d.slots[out].layout.dims.clone();
        self.d.items.push(Item { step: Step::Local { out, sentence, layout }, ..then });
    }

    fn slot(&mut self, s: Stored) -> Slot {
        self.settled.push(None);
        self.d.slots.push(s);
        self.d.slots.len() - 1
    }

    fn copied(&self, src: Slot, out: Slot, item: Item) -> Item {
        let Stored { dtype, shape, layout } = self.d.slots[out].clone();
        let sentence = draft::copy(src, dtype, &shape);
        Item { step: Step::Local { out, sentence, layout: layout.dims }, ..item }
    }

    /// Where a partial value is to be summed for a copy of it in another order of dimensions: where the copy is asked for, so that the sum
    /// is scattered and not made everywhere first. Parts that the copy is asked for in stay.
    fn settled_for(&self, s: &Sentence, src: Slot, out: Slot) -> Option<Layout> {
        let (from, own) = (&self.d.slots[src], &self.d.slots[out].layout);
        let to = s.copied().and_then(|_| views::permutation(s, &from.shape))?;
        let (stay, parts) = (own.partial.as_ref().map(|p| &p.1[..]), &from.layout.partial.as_ref()?.1);
        without(parts, stay.unwrap_or_default())?;
        Some(Layout {
            dims: to.into_iter().map(|l| own.dims[l].clone()).collect(),
            partial: own.partial.clone(),
        })
    }

    /// The sum of a partial value, where that is; made once.
    fn settle(&mut self, src: Slot, item: &Item) -> Slot {
        if let Some(s) = self.settled[src] {
            return s;
        }
        let Stored { dtype, shape, layout } = self.d.slots[src].clone();
        let sum = self.slot(Stored { dtype, shape, layout: Layout { partial: None, ..layout } });
        let step = Step::Reduce { src, out: sum, combine: Combine::Add };
        let steps = self.reduced(src, sum, Item::new(step, item.why.clone()));
        self.entries.extend(steps.into_iter().map(Entry::Done));
        self.settled[src] = Some(sum);
        sum
    }

    /// From parts to a value that is not in them: at once, or scattered along a dimension first and fetched from there.
    fn reduced(&mut self, src: Slot, out: Slot, item: Item) -> Vec<Item> {
        let combine = self.d.slots[src].layout.partial.as_ref().map_or(Combine::Add, |p| p.0);
        let (_, middle) = parts::reduce_way(&self.d, &self.d.slots[src], &self.d.slots[out].layout);
        let Some(layout) = middle else {
            return vec![Item { step: Step::Reduce { src, out, combine }, ..item }];
        };
        let mid = self.slot(Stored { layout, ..self.d.slots[src].clone() });
        self.halves.push((mid, out));
        let first = Item { step: Step::Reduce { src, out: mid, combine }, ..item.clone() };
        vec![first, self.copied(mid, out, item)]
    }

    /// How folded loops are split where the type says that the result is in these parts.
    fn typed_parts(&self, s: &Sentence, missing: &Atoms) -> Vec<DimLayout> {
        let mut left = missing.clone();
        let mut folded: Vec<DimLayout> = Vec::new();
        for l in s.rank..s.extents.len() {
            let among = |a: Atoms| a.into_iter().filter(|a| without(&left, &[*a]).is_some()).collect();
            let held = splits(&self.d, s, l).into_iter().map(among);
            let atoms: Atoms = held.max_by_key(|a: &Atoms| ways(a)).unwrap_or_default();
            left = without(&left, &atoms).unwrap_or_default();
            folded.push(DimLayout::new(s.extents[l], atoms));
        }
        if let (Some(first), false) = (folded.first_mut(), left.is_empty()) {
            // no operand says how it becomes partial: the first folded loop is split
            *first = DimLayout::new(s.extents[s.rank], first.atoms.iter().copied().chain(left));
        }
        folded
    }
}
