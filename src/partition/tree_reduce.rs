//! Tree reduction: the schedule of reductions of fewer elements than there are partial values.
//!
//! If each of n devices asked all others for a scalar, there would be n·(n−1) messages and each
//! device would receive n−1 of them. Instead the elements of an exchange are numbered, and each is
//! summed on one owner device; consecutive elements have different owners. With n = 2^k·m partial
//! values (m odd), round b adds those that are 2^b apart, and a last round adds the m block sums.
//! The result returns along the same tree. The additions of a round are whole subtrees of the fixed
//! tree in which partial values are always combined, so the schedule does not change any bit of the
//! result. For each element of the result, all devices together receive 2·(n−1) elements. For a
//! result of V bytes, a device therefore receives 2·V·(n−1)/n bytes on average, the same as in a
//! ring.
//!
//! Consecutive small reductions over the same sub-axes form one exchange if their elements have the
//! same size.

use crate::core::sharding::sub_axes::{num_shards, subtract};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{SpmdProgram, StoredValue};
use crate::partition::{boxes::volume, cost::transfer::TransferCost};

/// The schedule of a tree reduction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TreeReduction {
    /// The number of partial values.
    num_partials: usize,
    /// The largest power of two that divides `num_partials`.
    power_of_two: usize,
}

/// A message of a tree reduction: one element, from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeMessage {
    /// The element, numbered across the values of the exchange.
    pub element: usize,
    /// The rank of the partial value whose device sends the element.
    pub from: usize,
    /// The rank of the partial value whose device receives the element.
    pub to: usize,
}

impl TreeReduction {
    fn new(num_partials: usize) -> TreeReduction {
        TreeReduction { num_partials, power_of_two: 1 << num_partials.trailing_zeros() }
    }
    fn num_rounds(self) -> u32 {
        self.power_of_two.trailing_zeros()
    }
    /// Returns the number of elements that the busiest device receives, the owner of the first
    /// element.
    pub(crate) fn max_received(self, elements: i64) -> i64 {
        if elements == 0 {
            return 0;
        }
        let up = |unit: i64| (elements + unit - 1) / unit;
        let added: i64 = (1..=self.num_rounds()).map(|b| up(1 << b)).sum();
        // the sums of the other blocks, and the results that this device does not own
        added + elements + (self.num_blocks() - 2) * up(self.num_partials as i64)
    }
    /// Returns the number of elements received by all the devices that compute one sum.
    pub(crate) fn total_received(self, elements: i64) -> i64 {
        2 * elements * (self.num_partials as i64 - 1)
    }
    /// Returns the number of messages among those devices.
    /// The elements that one device sends another in a round are one message.
    pub(crate) fn num_messages(self, elements: usize) -> u64 {
        let n = self.num_partials;
        let added: usize = (1..=self.num_rounds()).map(|b| n / (1 << b) * elements.min(1 << b)).sum();
        let owners = elements.min(n);
        2 * (added + (self.num_blocks() as usize - 1) * owners) as u64
    }
    fn num_blocks(self) -> i64 {
        (self.num_partials / self.power_of_two) as i64
    }
    /// Returns the messages of each round that sums an element.
    ///
    /// A receiver adds what it receives to what it has, in rank order. The same rounds in reverse
    /// order and direction distribute the sum.
    pub(crate) fn reduce_rounds(self, element: usize) -> Vec<Vec<TreeMessage>> {
        let (root, block) = (
            element % self.power_of_two,
            element / self.power_of_two % (self.num_partials / self.power_of_two),
        );
        let mut rounds = Vec::new();
        for b in 0..self.num_rounds() {
            let (step, apart) = (2 << b, 1 << b);
            let sends = (0..self.num_partials).filter(|r| (r ^ root) % step == apart);
            rounds.push(sends.map(|from| TreeMessage { element, from, to: from ^ apart }).collect());
        }
        let of_block = |k: usize| k * self.power_of_two + root;
        let others = (0..self.num_blocks() as usize).filter(|k| *k != block);
        rounds
            .push(others.map(|k| TreeMessage { element, from: of_block(k), to: of_block(block) }).collect());
        rounds.retain(|messages: &Vec<TreeMessage>| !messages.is_empty());
        rounds
    }
}

/// Returns the tree reduction of `from` to `to`, and its number of elements per device.
///
/// `None` if the layout changes otherwise, if there are at least as many elements as partial
/// values, or if there are only two partial values, since two devices simply exchange theirs.
pub(crate) fn tree_reduction(from: &StoredValue, to: &Layout) -> Option<(TreeReduction, i64)> {
    let partials = |l: &Layout| l.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
    let gone = subtract(&partials(&from.layout), &partials(to))?;
    let n = num_shards(&gone);
    if n < 3 || from.layout.has_equal_partials() || from.layout.dims != to.dims {
        return None;
    }
    let block = |(l, size): (&DimLayout, &usize)| {
        let ranks = [0, 1.min(l.num_shards() - 1), l.num_shards() - 1];
        ranks.map(|r| l.range(r, *size)).iter().map(|v| v.1 - v.0).max().unwrap_or(0)
    };
    let elements = to.dims.iter().zip(&from.shape[..]).map(block).fold(1, i64::saturating_mul);
    (elements < n as i64).then(|| (TreeReduction::new(n), elements))
}

/// Returns the cost of a tree reduction that does not share its exchange.
pub(crate) fn tree_cost(devices: usize, from: &StoredValue, to: &Layout) -> Option<TransferCost> {
    let (route, elements) = tree_reduction(from, to)?;
    // each block is summed by `sets` groups of devices
    let blocks: usize = to.dims.iter().map(DimLayout::num_shards).product();
    let sets = (devices / (route.num_partials * blocks).max(1)) as i64;
    let total = route.total_received(from.shape.num_elements() as i64).saturating_mul(sets);
    Some(TransferCost { max: route.max_received(elements), total, exact: true })
}

impl SpmdProgram {
    /// Returns true if the step is a small reduction, which is executed as a tree.
    pub fn is_tree_reduction(&self, step: usize) -> bool {
        let Some((src, out, _)) = self.steps[step].reduction() else { return false };
        tree_reduction(&self.slots[src], &self.slots[out].layout).is_some()
    }
    /// Returns the steps of the exchange of small reductions that starts at step `first`.
    ///
    /// These are `first` and the small reductions directly after it, over the same sub-axes and
    /// with elements of the same size.
    ///
    /// Empty if `first` is not a small reduction, or if it belongs to an earlier exchange.
    pub(crate) fn combined_reductions(&self, first: usize) -> Vec<usize> {
        let key = |k: usize| {
            let (src, out, _) = self.steps[k].reduction().filter(|_| self.is_tree_reduction(k))?;
            Some((self.reduced_sub_axes(src, out).sub_axes, self.slots[out].dtype.size()))
        };
        let own = key(first);
        if own.is_none() || first > 0 && key(first - 1) == own {
            return Vec::new();
        }
        (first..self.steps.len()).take_while(|k| key(*k) == own).collect()
    }
    /// Returns the messages of each round of the exchange that starts at step `first`.
    ///
    /// It is an exchange of small reductions (tree reductions) between devices that do not share
    /// memory. Empty for other steps. Elements are numbered across the blocks of these reductions
    /// on the device at `position`; senders and receivers are ranks among the partial values. In
    /// the first half of the rounds a receiver adds the element to what it has, in rank order. In
    /// the second half it receives the sum.
    pub fn rounds(&self, first: usize, position: usize) -> Vec<Vec<TreeMessage>> {
        let mut rounds: Vec<Vec<TreeMessage>> = Vec::new();
        let mut element = 0;
        for k in self.combined_reductions(first) {
            let Some((src, out, _)) = self.steps[k].reduction() else { continue };
            let (from, to) = (&self.slots[src], &self.slots[out].layout);
            let Some((route, _)) = tree_reduction(from, to) else { continue };
            for _ in 0..volume(&to.region(&from.shape, position)) {
                let there = route.reduce_rounds(element);
                let back = |l: &TreeMessage| TreeMessage { from: l.to, to: l.from, ..*l };
                let back: Vec<Vec<TreeMessage>> =
                    there.iter().rev().map(|r| r.iter().map(back).collect()).collect();
                for (k, messages) in there.into_iter().chain(back).enumerate() {
                    if rounds.len() <= k {
                        rounds.push(Vec::new());
                    }
                    rounds[k].extend(messages);
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

    /// Prints the fixed tree over partial values: `((0+1)+(2+3))+4` for five of them.
    fn tree(partials: &[String]) -> String {
        let mut stack: Vec<(usize, String)> = Vec::new();
        let mut rest = partials.iter();
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
            let route = TreeReduction::new(n);
            let all: Vec<String> = (0..n).map(|k| k.to_string()).collect();
            for elements in 1..=2 * n {
                let mut received = vec![0; n];
                let mut messages: BTreeSet<(usize, usize, usize)> = BTreeSet::new();
                for e in 0..elements {
                    // for each rank: the first rank of its partial sum, and the partial sum
                    let mut has: Vec<(usize, String)> = all.iter().cloned().enumerate().collect();
                    let mut owner = 0;
                    for (round, list) in route.reduce_rounds(e).iter().enumerate() {
                        for l in list {
                            // the sum returns along the same edge
                            (received[l.to], received[l.from]) = (received[l.to] + 1, received[l.from] + 1);
                            messages.insert((round, l.from, l.to));
                        }
                        owner = list[0].to;
                        let receivers: BTreeSet<usize> = list.iter().map(|l| l.to).collect();
                        for to in receivers {
                            let from = list.iter().filter(|l| l.to == to).map(|l| l.from);
                            let mut partials: Vec<(usize, String)> =
                                from.chain([to]).map(|r| has[r].clone()).collect();
                            partials.sort();
                            let texts: Vec<String> = partials.iter().map(|p| p.1.clone()).collect();
                            has[to] = (partials[0].0, tree(&texts));
                        }
                    }
                    assert_eq!(has[owner].1, tree(&all), "{n} parts, element {e}");
                }
                assert_eq!(
                    received.iter().max(),
                    Some(&route.max_received(elements as i64)),
                    "{n}, {elements}"
                );
                assert_eq!(
                    received.iter().sum::<i64>(),
                    route.total_received(elements as i64),
                    "{n}, {elements}"
                );
                assert_eq!(2 * messages.len() as u64, route.num_messages(elements), "{n}, {elements}");
            }
        }
    }
}
