//! Sums that are added become one: where partial products are made and nothing but their sum is read, the parts are added on each device, and the
//! sum is combined once. So the gradient of what several products read takes one all-reduce, not one for each. What a type says is
//! summed (by explicit axes) is summed there.

use super::choose::Entry;
use super::puts;
use crate::partition::draft::Draft;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::Slot;
use crate::program::sentence::{Arg, Body, Code, Combine, Fun, Sentence};
use crate::sharding::atoms::sorted;

/// What is made partial though it is asked for whole.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InParts {
    /// Where it is made.
    pub(super) at: Layout,
    /// Whether it stays so: its one reader adds up the parts.
    pub(super) stays: bool,
}

/// Of each step whether its result is made partial for the sake of a sum.
pub(super) fn added(d: &Draft, entries: &[Entry], loops: &[Vec<DimLayout>]) -> Vec<Option<InParts>> {
    let mut readers = vec![0usize; d.slots.len()];
    let mut maker: Vec<Option<usize>> = vec![None; d.slots.len()];
    for (k, entry) in entries.iter().enumerate() {
        match entry {
            Entry::Done(item) => item.step.inputs().into_iter().for_each(|s| readers[s] += 1),
            Entry::Open(open) => {
                open.sentence.reads.iter().flat_map(|r| r.sources()).for_each(|s| readers[s] += 1);
                maker[open.out] = Some(k);
            }
        }
    }
    d.outs.iter().for_each(|s| readers[*s] += 1);
    // what could be left partial
    let mut could: Vec<Option<Layout>> = vec![None; entries.len()];
    let mut made: Vec<Option<InParts>> = vec![None; entries.len()];
    for (k, entry) in entries.iter().enumerate() {
        let Entry::Open(open) = entry else { continue };
        let (s, own) = (&open.sentence, &d.slots[open.out].layout);
        if own.partial.is_some() || !open.kept.is_empty() || open.item.pinned || open.item.user.is_some() {
            continue;
        }
        if adds(s) {
            let mut from: Vec<usize> = Vec::new();
            for read in 0..s.reads.len() {
                from.extend(
                    d.in_place(s, read).filter(|v| alone(d, &readers, *v, open.out)).and_then(|v| maker[v]),
                );
            }
            let at = from.first().and_then(|m| could[*m].clone());
            let (Some(at), true) = (at, from.len() == s.reads.len()) else { continue };
            if from.iter().all(|m| could[*m].as_ref() == Some(&at)) {
                for m in from {
                    made[m] = Some(InParts { at: at.clone(), stays: true });
                }
                could[k] = Some(at.clone());
                made[k] = Some(InParts { at, stays: false });
            }
        } else if matches!(s.body, Body::Fold { .. } | Body::Product { .. })
            && s.combine() == Combine::Add
            && open.known.is_none()
            && puts::base(s, own, &loops[k]).is_none()
        {
            let parts = sorted(loops[k][s.rank..].iter().flat_map(|l| l.atoms.iter().copied()).collect());
            let dims = loops[k][..s.rank].to_vec();
            could[k] = (!parts.is_empty()).then(|| Layout { dims, partial: Some((Combine::Add, parts)) });
        }
    }
    made
}

/// Whether a step is a sum or difference of what it reads.
fn adds(s: &Sentence) -> bool {
    let Some(Code { insts }) = s.body.elementwise() else { return false };
    let [inst] = &insts[..] else { return false };
    matches!(inst.fun, Fun::Add | Fun::Sub)
        && inst.args[..] == [Arg::Read(0), Arg::Read(1)]
        && s.reads.len() == 2
        && s.reads.iter().all(|r| r.dtype == s.dtype)
}

/// Whether no type says where a value is, and it has one reader, which makes one of the same element type.
fn alone(d: &Draft, readers: &[usize], v: Slot, out: Slot) -> bool {
    d.free.get(&v) == Some(&true) && readers[v] == 1 && d.slots[v].dtype == d.slots[out].dtype
}
