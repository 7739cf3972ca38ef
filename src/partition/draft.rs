//! Drafts: a program's values and steps before anything is decided about where loops run.

use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::{Axes, Mesh};
use crate::partition::layout::Layout;
use crate::partition::price::prices::Prices;
use crate::partition::price::reader::{Fetch, Reader};
use crate::partition::price::work::PerByte;
use crate::partition::program::{Slot, SpmdProgram, Step, Stored, Why};
use crate::partition::report::{Collectives, Kind};
use crate::program::sentence::{Affine, Body, Code, Part, Read, Sentence, Source, Span};
use crate::sharding::atoms::ways;
use crate::types::{DType, Scalar, Shape};
use std::collections::BTreeMap;

/// A step list in which the loops of local steps are not laid out yet, partial values are read as if they were summed, and
/// nothing is fetched. Programs inside control steps are finished.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) devices: usize,
    pub(super) mesh: Option<Mesh>,
    pub(super) slots: Vec<Stored>,
    pub(super) items: Vec<Item>,
    pub(super) ins: Vec<Slot>,
    pub(super) outs: Vec<Slot>,
    /// Inputs that are the same in every run of the program (it is a loop's body).
    pub(super) once: Vec<Slot>,
    /// Values whose types leave their placement open, and whether nothing else says where they are.
    pub(super) free: BTreeMap<Slot, bool>,
    /// How often it is run for each of these.
    pub(super) trips: u64,
    /// What a byte costs.
    pub(super) per_byte: PerByte,
    /// What fetches move.
    pub(super) prices: Prices,
}

/// A step of a draft.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The step; the layout of a local step is empty, or that of its folded loops.
    pub(super) step: Step,
    pub(super) why: Why,
    /// The collective that the user asked for by this step.
    pub(super) user: Option<(Kind, Axes)>,
    /// Whether the result is to be stored in the layout that is asked for.
    pub(super) pinned: bool,
    /// Whether it makes its result where the user constrained a copy of it to be.
    pub(super) asked: bool,
    /// Who reads it, where its result is laid out for the sake of one reader that has no step of its own.
    pub(super) sake: Option<Why>,
    /// The loop out of which it is taken, being the same at each step.
    pub(super) before: Option<Why>,
    /// What the programs inside communicate, and how often each runs.
    pub(super) inside: Vec<(Collectives, u64)>,
    /// The views that a local step reads through.
    pub(super) through: Vec<Slot>,
}

impl Item {
    pub(super) fn new(step: Step, why: Why) -> Item {
        let (inside, through, [sake, before]) = (Vec::new(), Vec::new(), [None, None]);
        Item { step, why, user: None, pinned: false, asked: false, sake, before, inside, through }
    }
}

impl Draft {
    pub(super) fn new(devices: usize, mesh: Option<Mesh>, per_byte: PerByte) -> Draft {
        Draft { devices, mesh, per_byte, ..Draft::default() }
    }
    /// One without steps on the same devices, at the same price of bytes.
    pub(super) fn beside(&self) -> Draft {
        Draft::new(self.devices, self.mesh.clone(), self.per_byte)
    }
    /// The same once more, without what is known of prices.
    pub(super) fn again(&self) -> Draft {
        Draft {
            mesh: self.mesh.clone(),
            slots: self.slots.clone(),
            items: self.items.clone(),
            ins: self.ins.clone(),
            outs: self.outs.clone(),
            once: self.once.clone(),
            free: self.free.clone(),
            prices: Prices::default(),
            ..*self
        }
    }
    /// One more stored value.
    pub(super) fn slot(&mut self, dtype: DType, shape: Shape, layout: Layout) -> Slot {
        debug_assert_eq!(shape.rank(), layout.dims.len(), "a layout for each dimension");
        self.slots.push(Stored { dtype: dtype.storage(), shape, layout });
        self.slots.len() - 1
    }
    /// One more local step; its result.
    pub(super) fn local(&mut self, sentence: Sentence, layout: Layout, why: &Why) -> Slot {
        let shape = Shape::from(&sentence.extents[..sentence.rank]);
        let out = self.slot(sentence.dtype, shape, layout);
        self.items.push(Item::new(Step::Local { out, sentence, layout: Vec::new() }, why.clone()));
        out
    }
    /// The value as it is, laid out so: itself if it is already.
    pub(super) fn laid(&mut self, slot: Slot, layout: Layout, why: &Why) -> Slot {
        if self.slots[slot].layout == layout {
            return slot;
        }
        let Stored { dtype, shape, .. } = self.slots[slot].clone();
        self.local(copy(slot, dtype, &shape), layout, why)
    }
    /// Elements that all devices receive when a value is fetched for these readers.
    pub(super) fn moved(&self, slot: Slot, readers: &[Reader]) -> i64 {
        self.prices.total(&self.asks(slot, readers)).0
    }
    /// Whether a reader needs some of a value that its device may not hold.
    pub(super) fn brings(&self, slot: Slot, reader: Reader) -> bool {
        let (total, exact) = self.prices.total(&self.asks(slot, &[reader]));
        total > 0 || !exact
    }
    fn asks<'a>(&'a self, slot: Slot, readers: &'a [Reader<'a>]) -> Fetch<'a> {
        Fetch { devices: self.devices, slot, stored: &self.slots[slot], readers, copies: 1 }
    }
    /// The value that a local step reads in place, if it reads one at its own indices.
    pub(super) fn in_place(&self, s: &Sentence, read: usize) -> Option<Slot> {
        let [slot] = s.reads[read].sources()[..] else { return None };
        s.reads[read].is_identity(&s.extents, &self.slots[slot].shape).then_some(slot)
    }
    /// Whether a step is a copy of a value as it is.
    pub(super) fn is_copy(&self, s: &Sentence) -> bool {
        s.copied().is_some_and(|slot| s.reads[0].is_identity(&s.extents, &self.slots[slot].shape))
    }
    /// Refuses values of which one device could hold or receive more bytes than can be counted: later stages count in `usize` and `i64`, and
    /// sums over all devices end at the greatest number.
    pub(crate) fn countable(&self) -> Result<()> {
        const MOST: u128 = 1 << 62;
        let too_large = |s: &Stored| {
            let parts = s.layout.partial.as_ref().map_or(1, |p| ways(&p.1));
            // strides are counted also where another dimension is empty
            let sizes = s.shape.iter().filter(|n| **n != 0).map(|n| *n as u128);
            let factors = [s.dtype.size(), parts].map(|n| n as u128);
            factors.into_iter().chain(sizes).fold(1, u128::saturating_mul) > MOST
        };
        let Some(slot) = self.slots.iter().position(too_large) else { return Ok(()) };
        let Stored { dtype, shape, layout } = &self.slots[slot];
        let parts = match &layout.partial {
            Some((_, atoms)) => format!(" in {} parts", ways(atoms)),
            None => String::new(),
        };
        let what = format!("{dtype}{shape}{parts} is of more bytes than can be counted");
        let why = self.items.iter().find(|i| i.step.outputs().contains(&slot)).map(|i| i.why.clone());
        let Why { place, op, .. } = why.unwrap_or_default();
        Err(Error::at(Fault::new(ErrorKind::Shape, what), op, Vec::new(), place))
    }
    /// The last step's item.
    pub(super) fn last(&mut self) -> Option<&mut Item> {
        self.items.last_mut()
    }
}

/// The sentence that is a stored value itself.
pub(super) fn copy(slot: Slot, dtype: DType, shape: &[usize]) -> Sentence {
    let loops: Vec<_> = (0..shape.len()).map(Some).collect();
    mapped(Read::plain(slot, dtype, shape, &loops), shape)
}

/// The sentence that is a read itself.
pub(super) fn mapped(read: Read, extents: &[usize]) -> Sentence {
    let dtype = read.dtype;
    Sentence {
        extents: extents.to_vec(),
        rank: extents.len(),
        dtype,
        reads: vec![read],
        body: Body::Map(Code::copy(dtype)),
    }
}

/// The sentence of a reshape.
pub(super) fn reshape(slot: Slot, dtype: DType, from: &[usize], to: &[usize]) -> Sentence {
    let span = Span::whole(to);
    // a reshape has no affine map: only that it reads all of the value counts
    let map = vec![Affine::default(); from.len()];
    let part = Part { from: Source::Value(slot), span, map };
    Sentence {
        extents: to.to_vec(),
        rank: to.len(),
        dtype,
        reads: vec![Read { dtype, parts: vec![part], fill: Scalar::zero(dtype) }],
        body: Body::Reshape,
    }
}

/// What was read through on the way to a value.
#[derive(Clone, Debug)]
pub(super) struct Via {
    /// The item of the view, as it was.
    pub(super) item: Item,
    /// What it reads now.
    pub(super) read: Read,
    pub(super) extents: Vec<usize>,
}

/// What is known of a finished step beside itself.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) user: Option<(Kind, Axes)>,
    pub(super) pinned: bool,
    pub(super) asked: bool,
    pub(super) sake: Option<Why>,
    pub(super) before: Option<Why>,
    pub(super) inside: Vec<(Collectives, u64)>,
    pub(super) through: Vec<Slot>,
}

impl Draft {
    /// The program, and a note for each step.
    pub(super) fn finish(self) -> (SpmdProgram, Vec<Note>) {
        let Draft { devices, mesh, slots, items, ins, outs, .. } = self;
        let mut p = SpmdProgram { devices, mesh, slots, ins, outs, ..SpmdProgram::default() };
        let mut notes = Vec::with_capacity(items.len());
        for Item { step, why, user, pinned, asked, sake, before, inside, through } in items {
            p.steps.push(step);
            p.whys.push(why);
            notes.push(Note { user, pinned, asked, sake, before, inside, through });
        }
        (p, notes)
    }
}
