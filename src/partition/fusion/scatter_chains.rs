//! Scatters whose results are stored over the values from which they start.

use crate::partition::Slot;
use crate::partition::buffers::{AccessBox, BufferOp, BufferProgram, GatherScatterOp};
use std::collections::{HashMap, HashSet};

/// How the body of a loop updates a carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CarryUpdate {
    /// The new value is in another buffer.
    Moved,
    /// The new value is stored over the old one.
    InPlace,
    /// A scatter stores a part of the new value over the old one; the rest stays.
    Partial,
}

/// Chains of scatters, each of which is computed over the result of the one before.
#[derive(Debug, Default)]
pub(crate) struct ScatterChains {
    /// For each result of a chain but the last, the last result.
    last_of: HashMap<Slot, Slot>,
    /// For each last result of a chain, the first result.
    first_of: HashMap<Slot, Slot>,
}

impl ScatterChains {
    /// Builds chains from pairs, in program order: the second value is stored over the first.
    pub(crate) fn from_pairs(pairs: impl Iterator<Item = (Slot, Slot)>) -> ScatterChains {
        // each chain so far, by its last result
        let mut open: HashMap<Slot, Vec<Slot>> = HashMap::new();
        for (was, is) in pairs {
            let mut row = open.remove(&was).unwrap_or_else(|| vec![was]);
            row.push(is);
            open.insert(is, row);
        }
        let mut puts = ScatterChains::default();
        for (last, row) in open {
            puts.first_of.insert(last, row[0]);
            puts.last_of.extend(row.into_iter().filter(|s| *s != last).map(|s| (s, last)));
        }
        puts
    }
    /// Returns the value in whose memory this one is stored.
    pub(crate) fn last_value(&self, s: Slot) -> Slot {
        self.last_of.get(&s).copied().unwrap_or(s)
    }
    /// Returns true if the scatter that computes `is` starts from `was` in the same memory.
    ///
    /// Several scatters of the chain may come in between.
    pub(crate) fn is_in_place(&self, was: Slot, is: Slot) -> bool {
        was != is && self.last_value(was) == self.last_value(is)
    }
    /// Returns the first value that is stored in the memory of this one.
    pub(crate) fn first_value(&self, s: Slot) -> Slot {
        self.first_of.get(&s).copied().unwrap_or(s)
    }
}

/// Returns the scatters that may be computed over a result of another scatter.
/// Each is given by its operation, that result, and its own result.
pub(crate) fn chainable_scatters(flow: &BufferProgram<'_>) -> Vec<(usize, Slot, Slot)> {
    let mut made = HashSet::new();
    let mut list = Vec::new();
    for (k, item) in flow.ops.iter().enumerate() {
        let BufferOp::GatherScatter(s) = item else { continue };
        let fits =
            |was: &Slot| made.contains(was) && !flow.uses[*was].result && can_scatter_in_place(flow, s, *was);
        list.extend(s.scatter_init_value(flow).filter(fits).map(|was| (k, was, s.out)));
        if s.scatter.is_some() {
            made.insert(s.out);
        }
    }
    list
}

/// Returns true if a scatter may be computed over the value `from`, from which it starts.
pub(crate) fn can_scatter_in_place(flow: &BufferProgram<'_>, s: &GatherScatterOp, from: Slot) -> bool {
    let (was, is) = (&flow.values[from], &flow.values[s.out]);
    let own = usize::from(is.num_partials > 1);
    let same = |p: &AccessBox| {
        p.offset == 0 && (0..s.rank).all(|l| s.ext[l] == 1 || p.strides[l] == is.strides[l + own])
    };
    s.scatter_init_value(flow) == Some(from)
        && was.dtype.size() == is.dtype.size()
        && (was.num_partials, &was.partial_layout) == (is.num_partials, &is.partial_layout)
        && (is.num_partials == 1 || was.strides[0] == is.strides[0])
        && s.reads[0].boxes.iter().all(same)
}

/// Returns true if a scatter that starts from the value `from` computes the value `to`.
pub(crate) fn is_scatter_over(flow: &BufferProgram<'_>, from: Slot, to: Slot) -> bool {
    flow.ops.iter().any(|op| match op {
        BufferOp::GatherScatter(s) => s.out == to && s.scatter_init_value(flow) == Some(from),
        _ => false,
    })
}
