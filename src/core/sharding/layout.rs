//! The block of an array that each device holds.

use super::Sharding;
use crate::core::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::core::mesh::MAX_DEVICES;
use std::ops::Range;
use std::panic::Location;

/// The block of an array that one device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The index range in each dimension.
    pub index: Vec<Range<usize>>,
    /// The number of devices before this one, in mesh order, that hold the same block.
    pub replica: usize,
}

/// Returns the block of each device, in mesh order.
///
/// A dimension of size N split n ways has blocks of ⌈N/n⌉; the last ones are shorter or empty.
///
/// Returns an error if the mesh has more devices than a process may have (2^20).
///
/// ```
/// use atmesh::{prelude::*, sharding::blocks};
/// let mesh = Mesh::auto([("X", 2)])?;
/// let blocks = blocks(&Sharding::new(&mesh, p!["X"], &[5])?, &[5])?;
/// assert_eq!((&blocks[0].index, &blocks[1].index), (&vec![0..3], &vec![3..5]));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn blocks(sharding: &Sharding, shape: &[usize]) -> Result<Vec<Block>> {
    let (mesh, location) = (&sharding.mesh, Location::caller());
    if mesh.size() > MAX_DEVICES {
        let message = format!(
            "a list of the blocks of {} devices is asked for, at most {MAX_DEVICES} are listed",
            mesh.size()
        );
        return Err(Error::new(Fault::new(ErrorKind::Mesh, message), "blocks", Vec::new(), Some(location)));
    }
    Ok(blocks_unchecked(sharding, shape))
}

/// Returns the index ranges of the box that these blocks fill. If they do not fill one, the error
/// has the distinct blocks.
pub(super) fn enclosing_box(
    mut blocks: Vec<Vec<Range<usize>>>,
    rank: usize,
) -> Result<Vec<Range<usize>>, Vec<Vec<Range<usize>>>> {
    let key = |block: &Vec<Range<usize>>| block.iter().map(|r| (r.start, r.end)).collect::<Vec<_>>();
    blocks.sort_by_key(key);
    blocks.dedup();
    // the blocks are those of a grid: they fill a box if they are all pairs of neighbouring ranges
    let mut boxed = Vec::new();
    let mut pairs = 1;
    for d in 0..rank {
        let mut ranges: Vec<&Range<usize>> = blocks.iter().map(|block| &block[d]).collect();
        ranges.sort_by_key(|r| (r.start, r.end));
        ranges.dedup();
        pairs *= ranges.len();
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Err(blocks) };
        if ranges.windows(2).any(|pair| pair[0].end != pair[1].start) {
            return Err(blocks);
        }
        boxed.push(first.start..last.end);
    }
    if pairs == blocks.len() { Ok(boxed) } else { Err(blocks) }
}

/// Returns the block of each device, in mesh order, for a mesh of at most 2^20 devices.
pub(crate) fn blocks_unchecked(sharding: &Sharding, shape: &[usize]) -> Vec<Block> {
    let mesh = &sharding.mesh;
    let mut seen = std::collections::HashMap::new();
    (0..mesh.size())
        .map(|position| {
            let c = mesh.coordinates(position);
            let index: Vec<_> = shape
                .iter()
                .enumerate()
                .map(|(d, &n)| {
                    let axes = sharding.spec.dim(d);
                    let num_shards: usize = sharding.num_shards(axes.iter().copied());
                    let rank = mesh.rank_along(axes.iter().copied(), &c);
                    let block = n.div_ceil(num_shards);
                    let end = |blocks: usize| blocks.saturating_mul(block).min(n);
                    end(rank)..end(rank.saturating_add(1))
                })
                .collect();
            // devices along unreduced axes hold different partial values, not replicas
            let summand = mesh.rank_along(sharding.spec.unreduced_axes(), &c);
            let count = seen.entry((index.clone(), summand)).or_insert(0);
            *count += 1;
            Block { index, replica: *count - 1 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fill_a_box_or_not() {
        let held = |blocks: &[[(usize, usize); 2]]| {
            let ranges = |b: &[(usize, usize); 2]| b.iter().map(|(from, to)| *from..*to).collect();
            enclosing_box(blocks.iter().map(ranges).collect(), 2)
        };
        assert_eq!(held(&[[(2, 4), (0, 3)], [(4, 6), (0, 3)], [(2, 4), (0, 3)]]), Ok(vec![2..6, 0..3]));
        let grid = [[(0, 2), (0, 3)], [(0, 2), (3, 6)], [(2, 4), (3, 6)], [(2, 4), (0, 3)]];
        assert_eq!(held(&grid), Ok(vec![0..4, 0..6]));
        assert_eq!(held(&grid[..3]).unwrap_err().len(), 3); // an L
        assert_eq!(held(&[grid[0], grid[2]]).unwrap_err().len(), 2); // a diagonal
        assert!(held(&[[(0, 2), (0, 3)], [(4, 6), (0, 3)]]).is_err()); // rows between them
        assert!(held(&[]).is_err());
        assert_eq!(enclosing_box(vec![vec![]], 0), Ok(vec![]));
    }
}
