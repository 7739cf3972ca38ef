//! The route of small sums: what has fewer elements than there are parts goes by a tree to one device, and back.
//!
//! Asked of all parts by every device, a number on n devices is n·(n−1) letters, of which each device receives n−1. Here an exchange
//! numbers its elements, and each is summed on a device of its own, as far as there are devices: of n = 2^k·m parts (m odd), those that are
//! 2^b apart are added in round b, then those of the m blocks; the sum comes back the same way. What is added in a round are whole
//! subtrees of the one tree in which parts are combined, so the route changes no bits. All devices together receive 2·(n−1) elements for each
//! element: 2·V·(n−1)/n bytes for one on average, as by a ring.
//!
//! Small sums that follow one another over the same parts are one exchange: their elements have different owners.

use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::cost::Cost;
use crate::partition::program::{SpmdProgram, Step, Stored};
use crate::partition::region::volume;
use crate::sharding::atoms::{ways, without};

/// How the elements of an exchange go among so many parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Route {
    /// How many parts.
    parts: usize,
    /// The greatest power of two that divides them.
    low: usize,
}

/// An element of an exchange on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Which element: numbered through the values of the exchange.
    pub element: usize,
    /// The rank of the part whose device sends it.
    pub from: usize,
    /// The rank of the part whose device receives it.
    pub to: usize,
}

impl Route {
    fn of(parts: usize) -> Route {
        Route { parts, low: 1 << parts.trailing_zeros() }
    }
    fn rounds(self) -> u32 {
        self.low.trailing_zeros()
    }
    /// Elements that the busiest device receives: the owner of the first.
    pub(crate) fn busiest(self, elements: i64) -> i64 {
        if elements == 0 {
            return 0;
        }
        let up = |unit: i64| (elements + unit - 1) / unit;
        let added: i64 = (1..=self.rounds()).map(|b| up(1 << b)).sum();
        // from the other blocks, and the sums of which it is no owner
        added + elements + (self.blocks() - 2) * up(self.parts as i64)
    }
    /// Elements that all devices receive which make one sum.
    pub(crate) fn all(self, elements: i64) -> i64 {
        2 * elements * (self.parts as i64 - 1)
    }
    /// Letters of those devices, where what one sends another in a round is one.
    pub(crate) fn letters(self, elements: usize) -> u64 {
        let n = self.parts;
        let added: usize = (1..=self.rounds()).map(|b| n / (1 << b) * elements.min(1 << b)).sum();
        let owners = elements.min(n);
        2 * (added + (self.blocks() as usize - 1) * owners) as u64
    }
    fn blocks(self) -> i64 {
        (self.parts / self.low) as i64
    }
    /// How an element is summed up: the letters of each round. Who receives one adds it to what it has, in the order of ranks. The rounds
    /// the other way round bring the sum to all.
    pub(crate) fn added(self, element: usize) -> Vec<Vec<Letter>> {
        let (root, block) = (element % self.low, element / self.low % (self.parts / self.low));
        let mut rounds = Vec::new();
        for b in 0..self.rounds() {
            let (step, apart) = (2 << b, 1 << b);
            let sends = (0..self.parts).filter(|r| (r ^ root) % step == apart);
            rounds.push(sends.map(|from| Letter { element, from, to: from ^ apart }).collect());
        }
        let of_block = |k: usize| k * self.low + root;
        let others = (0..self.blocks() as usize).filter(|k| *k != block);
        rounds.push(others.map(|k| Letter { element, from: of_block(k), to: of_block(block) }).collect());
        rounds.retain(|letters: &Vec<Letter>| !letters.is_empty());
        rounds
    }
}

/// The route by which a partial value becomes whole where it is, and how many elements of it a device has: `None` if these are not fewer than
/// the parts. Of two parts each asks for the other.
pub(crate) fn small(from: &Stored, to: &Layout) -> Option<(Route, i64)> {
    let parts = |l: &Layout| l.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
    let gone = without(&parts(&from.layout), &parts(to))?;
    let n = ways(&gone);
    if n < 3 || from.layout.has_same_parts() || from.layout.dims != to.dims {
        return None;
    }
    let block = |(l, size): (&DimLayout, &usize)| {
        let ranks = [0, 1.min(l.ways() - 1), l.ways() - 1];
        ranks.map(|r| l.range(r, *size)).iter().map(|v| v.1 - v.0).max().unwrap_or(0)
    };
    let elements = to.dims.iter().zip(&from.shape[..]).map(block).fold(1, i64::saturating_mul);
    (elements < n as i64).then(|| (Route::of(n), elements))
}

/// What a small sum moves by itself.
pub(crate) fn cost(devices: usize, from: &Stored, to: &Layout) -> Option<Cost> {
    let (route, elements) = small(from, to)?;
    // each block of the value is summed by so many sets of devices
    let blocks: usize = to.dims.iter().map(DimLayout::ways).product();
    let sets = (devices / (route.parts * blocks).max(1)) as i64;
    let total = route.all(from.shape.elements() as i64).saturating_mul(sets);
    Some(Cost { max: route.busiest(elements), total, exact: true })
}

impl SpmdProgram {
    /// Whether a step is a small sum.
    pub(crate) fn is_small(&self, step: usize) -> bool {
        let Step::Reduce { src, out, .. } = &self.steps[step] else { return false };
        small(&self.slots[*src], &self.slots[*out].layout).is_some()
    }
    /// The steps that are one exchange with step `first`: the small sums that follow it, over the same parts and of elements of one size.
    /// None if it is no small sum, or if it follows one of these itself.
    pub(crate) fn together(&self, first: usize) -> Vec<usize> {
        let key = |k: usize| match &self.steps[k] {
            Step::Reduce { src, out, .. } if self.is_small(k) => {
                Some((self.parts_gone(*src, *out).atoms, self.slots[*out].dtype.size()))
            }
            _ => None,
        };
        let own = key(first);
        if own.is_none() || first > 0 && key(first - 1) == own {
            return Vec::new();
        }
        (first..self.steps.len()).take_while(|k| key(*k) == own).collect()
    }
    /// How the exchange of small sums that begins with step `first` is carried out on devices that share no memory: the letters of each
    /// round; none for other steps. Elements are numbered through the blocks that the device at `position` has of these sums, and letters go
    /// between ranks among the parts. In the first half of the rounds who receives an element adds it to what it has, in the order of ranks, in the second
    /// half it is the sum.
    pub fn rounds(&self, first: usize, position: usize) -> Vec<Vec<Letter>> {
        let mut rounds: Vec<Vec<Letter>> = Vec::new();
        let mut element = 0;
        for k in self.together(first) {
            let Step::Reduce { src, out, .. } = &self.steps[k] else { continue };
            let (from, to) = (&self.slots[*src], &self.slots[*out].layout);
            let Some((route, _)) = small(from, to) else { continue };
            for _ in 0..volume(&to.region(&from.shape, position)) {
                let there = route.added(element);
                let back = |l: &Letter| Letter { from: l.to, to: l.from, ..*l };
                let back: Vec<Vec<Letter>> =
                    there.iter().rev().map(|r| r.iter().map(back).collect()).collect();
                for (k, letters) in there.into_iter().chain(back).enumerate() {
                    if rounds.len() <= k {
                        rounds.push(Vec::new());
                    }
                    rounds[k].extend(letters);
                }
                element += 1;
            }
        }
        rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The one tree over these parts, as text: ((0+1)+(2+3))+4, and so on, as a binary counter goes.
    fn tree(parts: &[String]) -> String {
        let mut stack: Vec<(usize, String)> = Vec::new();
        let mut rest = parts.iter();
        loop {
            let alike = matches!(&stack[..], [.., a, b] if a.0 == b.0);
            if !alike && let Some(part) = rest.next() {
                stack.push((1, part.clone()));
                continue;
            }
            let Some((b, right)) = stack.pop() else { return String::new() };
            let Some((a, left)) = stack.pop() else { return right };
            stack.push((a + b, format!("({left}+{right})")));
        }
    }

    #[test]
    fn the_route_keeps_the_tree_and_moves_what_is_said() {
        for n in 3..=24 {
            let route = Route::of(n);
            let all: Vec<String> = (0..n).map(|k| k.to_string()).collect();
            for elements in 1..=2 * n {
                let mut received = vec![0; n];
                let mut letters: BTreeSet<(usize, usize, usize)> = BTreeSet::new();
                for e in 0..elements {
                    // of each rank what it has, and from which rank on
                    let mut has: Vec<(usize, String)> = all.iter().cloned().enumerate().collect();
                    let mut owner = 0;
                    for (round, list) in route.added(e).iter().enumerate() {
                        for l in list {
                            // the sum comes back
                            (received[l.to], received[l.from]) = (received[l.to] + 1, received[l.from] + 1);
                            letters.insert((round, l.from, l.to));
                        }
                        owner = list[0].to;
                        let receivers: BTreeSet<usize> = list.iter().map(|l| l.to).collect();
                        for to in receivers {
                            let from = list.iter().filter(|l| l.to == to).map(|l| l.from);
                            let mut parts: Vec<(usize, String)> =
                                from.chain([to]).map(|r| has[r].clone()).collect();
                            parts.sort();
                            let texts: Vec<String> = parts.iter().map(|p| p.1.clone()).collect();
                            has[to] = (parts[0].0, tree(&texts));
                        }
                    }
                    assert_eq!(has[owner].1, tree(&all), "{n} parts, element {e}");
                }
                assert_eq!(received.iter().max(), Some(&route.busiest(elements as i64)), "{n}, {elements}");
                assert_eq!(received.iter().sum::<i64>(), route.all(elements as i64), "{n}, {elements}");
                assert_eq!(2 * letters.len() as u64, route.letters(elements), "{n}, {elements}");
            }
        }
    }
}
