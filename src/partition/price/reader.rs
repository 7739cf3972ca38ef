//! Who reads a value, and where.

use crate::partition::layout::DimLayout;
use crate::partition::program::{Slot, Stored};
use crate::program::sentence::Sentence;

/// A read of a stored value, and where its reader runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) sentence: &'a Sentence,
    pub(crate) read: usize,
    pub(crate) layout: &'a [DimLayout],
}

impl Reader<'_> {
    /// Whether another reader needs just the same boxes.
    pub(crate) fn same(&self, other: &Reader) -> bool {
        let by_position = |r: &Reader| r.sentence.body.reads_by_position();
        self.layout == other.layout
            && self.sentence.extents == other.sentence.extents
            && by_position(self) == by_position(other)
            && self.sentence.reads[self.read].parts == other.sentence.reads[other.read].parts
    }
}

/// A value, and who fetches it.
#[derive(Clone, Copy)]
pub(crate) struct Fetch<'a> {
    pub(crate) devices: usize,
    pub(crate) slot: Slot,
    pub(crate) stored: &'a Stored,
    pub(crate) readers: &'a [Reader<'a>],
    /// So many parts of it are combined: all of them are asked.
    pub(crate) copies: i64,
}

/// These readers without those that need what others need: layers repeat.
pub(crate) fn distinct<'a>(readers: impl IntoIterator<Item = Reader<'a>>) -> Vec<Reader<'a>> {
    let mut list: Vec<Reader> = Vec::new();
    for r in readers {
        if !list.iter().any(|x| x.same(&r)) {
            list.push(r);
        }
    }
    list
}
