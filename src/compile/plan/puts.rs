//! Puts that follow one another: what they make is in one memory.

use crate::compile::flow::{Flow, Item, Piece, Seek, Uses};
use crate::partition::Slot;
use std::collections::{HashMap, HashSet};

/// Puts of which only the next one reads what they make, and which that one is made over.
#[derive(Debug, Default)]
pub(super) struct Puts {
    /// What the last of them makes, by what the others make.
    last: HashMap<Slot, Slot>,
    /// What the first of them makes, by what the last makes.
    first: HashMap<Slot, Slot>,
}

impl Puts {
    pub(super) fn of(flow: &Flow<'_>) -> Puts {
        // a row by what its last put so far makes
        let mut open: HashMap<Slot, Vec<Slot>> = HashMap::new();
        let mut made = HashSet::new();
        for item in &flow.items {
            let Item::Seek(s) = item else { continue };
            if s.put.is_some() {
                made.insert(s.out);
            }
            let fits = |was: &Slot| {
                made.contains(was) && flow.uses[*was] == Uses::ONCE && put_in_place(flow, s, *was)
            };
            let Some(was) = s.over(flow).filter(fits) else { continue };
            let mut row = open.remove(&was).unwrap_or_else(|| vec![was]);
            row.push(s.out);
            open.insert(s.out, row);
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
    /// What is made first in the memory of this one.
    pub(super) fn first(&self, s: Slot) -> Slot {
        self.first.get(&s).copied().unwrap_or(s)
    }
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
