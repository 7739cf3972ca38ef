//! The ways to split loops: by the digits that operands and results have along them.

use crate::partition::draft::Draft;
use crate::partition::layout::{DimLayout, Layout};
use crate::program::sentence::{Sentence, Source};
use crate::sharding::atoms::{Atoms, canonical, cut, primes};
use crate::sorted;

/// The loops split by one option each: folded loops take their digits first.
pub(super) fn combined(s: &Sentence, own: &Layout, options: &[Vec<Atoms>], pick: &[usize]) -> Vec<DimLayout> {
    let mut used = Atoms::new();
    let mut loops: Vec<DimLayout> = Vec::new();
    for l in (0..s.extents.len()).rev() {
        let atoms = cut(&options[l][pick[l]], &used);
        used.extend(atoms.iter().copied());
        loops.push(laid(s, own, l, atoms));
    }
    loops.reverse();
    loops
}

/// A loop split by these digits: in the result's own frame, where it is split as that is stored.
pub(super) fn laid(s: &Sentence, own: &Layout, l: usize, atoms: Atoms) -> DimLayout {
    let framed = l < s.rank && atoms == own.dims[l].atoms;
    if framed { own.dims[l].clone() } else { DimLayout::new(s.extents[l], atoms) }
}

/// The digits by which operands are split along a loop, each once, in order.
pub(super) fn splits(d: &Draft, s: &Sentence, l: usize) -> Vec<Atoms> {
    let mut list = Vec::new();
    for p in s.reads.iter().flat_map(|r| &r.parts) {
        let Source::Value(src) = p.from else { continue };
        for (dim, m) in p.map.iter().enumerate() {
            let held = &d.slots[src].layout.dims[dim];
            if held.atoms.is_empty() {
                continue;
            }
            match m.terms[..] {
                [(k, _)] if k == l => list.push(held.atoms.clone()),
                // one of several loops along a dimension: the major ones take its digits first
                _ if m.terms.iter().any(|t| t.0 == l) => {
                    let mut terms = m.terms.to_vec();
                    sorted::sort_by_key(&mut terms, |t| std::cmp::Reverse(t.1.abs()));
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
    sorted::sort(&mut list);
    list.dedup();
    list
}
