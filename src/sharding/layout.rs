//! Which part of an array lies on which device.

use super::Sharding;
use std::ops::Range;

/// What one device holds: a box of the array, and how many devices before it hold the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where the part lies, in each dimension.
    pub index: Vec<Range<usize>>,
    /// How many devices before this one, in mesh order, hold the same part.
    pub replica: usize,
}

/// The block of each device, in mesh order.
///
/// A dimension of size N that is split n ways is held in blocks of ⌈N/n⌉; the last ones are shorter or empty.
pub fn blocks(sharding: &Sharding, shape: &[usize]) -> Vec<Block> {
    let mesh = &sharding.mesh;
    let mut seen = std::collections::HashMap::new();
    (0..mesh.size())
        .map(|position| {
            let c = mesh.coordinates(position);
            let coordinate = |a| mesh.find(a).map_or(0, |i| c[i]);
            let index: Vec<_> = shape
                .iter()
                .enumerate()
                .map(|(d, &n)| {
                    let axes = sharding.spec.dim(d);
                    let ways: usize = sharding.ways(axes.iter().copied());
                    // checked axes stay below `ways`; others, of a sharding made by hand, below what is counted
                    let rank = axes.iter().fold(0_usize, |r, a| {
                        r.saturating_mul(mesh.axis_size(*a)).saturating_add(coordinate(*a))
                    });
                    let block = n.div_ceil(ways);
                    let end = |blocks: usize| blocks.saturating_mul(block).min(n);
                    end(rank)..end(rank.saturating_add(1))
                })
                .collect();
            // copies along unreduced axes are different summands, not replicas
            let summand: Vec<_> = sharding.spec.unreduced_axes().iter().map(coordinate).collect();
            let count = seen.entry((index.clone(), summand)).or_insert(0);
            *count += 1;
            Block { index, replica: *count - 1 }
        })
        .collect()
}
