//! Puts that follow one another: what they make is in one memory.

use crate::compile::flow::{Flow, Item, Piece, Seek};
use crate::partition::Slot;
use std::collections::{HashMap, HashSet};

/// Puts of which the next one is made over what they make.
#[derive(Debug, Default)]
pub(super) struct Puts {
    /// What the last of them makes, by what the others make.
    last: HashMap<Slot, Slot>,
    /// What the first of them makes, by what the last makes.
    first: HashMap<Slot, Slot>,
}

impl Puts {
    /// Rows of these puts, in order: what one makes is over what the next one makes, for these pairs.
    pub(super) fn of(pairs: impl Iterator<Item = (Slot, Slot)>) -> Puts {
        // a row by what its last put so far makes
        let mut open: HashMap<Slot, Vec<Slot>> = HashMap::new();
        for (was, is) in pairs {
            let mut row = open.remove(&was).unwrap_or_else(|| vec![was]);
            row.push(is);
            open.insert(is, row);
        }
        let mut puts = Puts::default();
        for (last, row) in open {
            puts.first.insert(last, row[0]);
            puts.last.extend(row.into_iter().filter(|s| *s != last).map(|s| (s, last)));
        }
        puts
    }
    /// The value in whose memory this one is.
    pub(super) fn last(&self, s: Slot) -> Slot {
        self.last.get(&s).copied().unwrap_or(s)
    }
    /// Whether the put that makes `is` is made over `was`, from which it begins; it may be another put that is.
    pub(super) fn over(&self, was: Slot, is: Slot) -> bool {
        was != is && self.last(was) == self.last(is)
    }
    /// What is made first in the memory of this one.
    pub(super) fn first(&self, s: Slot) -> Slot {
        self.first.get(&s).copied().unwrap_or(s)
    }
}

/// The puts that may be made over what another put makes, as far as memory goes: number of the item, that value, and its own.
pub(super) fn over_puts(flow: &Flow<'_>) -> Vec<(usize, Slot, Slot)> {
    let mut made = HashSet::new();
    let mut list = Vec::new();
    for (k, item) in flow.items.iter().enumerate() {
        let Item::Seek(s) = item else { continue };
        let fits = |was: &Slot| made.contains(was) && !flow.uses[*was].result && put_in_place(flow, s, *was);
        list.extend(s.over(flow).filter(fits).map(|was| (k, was, s.out)));
        if s.put.is_some() {
            made.insert(s.out);
        }
    }
    list
}

/// Whether a put may begin where its result is.
pub(super) fn put_in_place(flow: &Flow<'_>, s: &Seek, from: Slot) -> bool {
    let (was, is) = (&flow.values[from], &flow.values[s.out]);
    let own = usize::from(is.copies > 1);
    let same = |p: &Piece| p.off == 0 && (0..s.rank).all(|l| s.ext[l] == 1 || p.st[l] == is.strides[l + own]);
    s.over(flow) == Some(from)
        && was.dtype.size() == is.dtype.size()
        && (was.copies, &was.parts) == (is.copies, &is.parts)
        && (is.copies == 1 || was.strides[0] == is.strides[0])
        && s.reads[0].pieces.iter().all(same)
}
