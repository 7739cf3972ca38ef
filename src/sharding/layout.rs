//! Which part of an array is on which device.

use super::Sharding;
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::MOST_DEVICES;
use std::ops::Range;
use std::panic::Location;

/// What one device holds: a box of the array, and how many devices before it hold the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The position of the part, in each dimension.
    pub index: Vec<Range<usize>>,
    /// How many devices before this one, in mesh order, hold the same part.
    pub replica: usize,
}

/// The block of each device, in mesh order.
///
/// A dimension of size N that is split n ways is held in blocks of ⌈N/n⌉; the last ones are shorter or empty.
///
/// Of a mesh of more devices than a process may have (2^20) there is no such list: an error.
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
    let (mesh, place) = (&sharding.mesh, Location::caller());
    if mesh.size() > MOST_DEVICES {
        let message = format!(
            "a list of the blocks of {} devices is asked for, at most {MOST_DEVICES} are listed",
            mesh.size()
        );
        return Err(Error::at(Fault::new(ErrorKind::Mesh, message), "blocks", Vec::new(), Some(place)));
    }
    Ok(blocks_of(sharding, shape))
}

/// The same for a mesh of devices.
pub(crate) fn blocks_of(sharding: &Sharding, shape: &[usize]) -> Vec<Block> {
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
                    let ways: usize = sharding.ways(axes.iter().copied());
                    let rank = mesh.rank_along(axes.iter().copied(), &c);
                    let block = n.div_ceil(ways);
                    let end = |blocks: usize| blocks.saturating_mul(block).min(n);
                    end(rank)..end(rank.saturating_add(1))
                })
                .collect();
            // copies along unreduced axes are different summands, not replicas
            let summand = mesh.rank_along(sharding.spec.unreduced_axes(), &c);
            let count = seen.entry((index.clone(), summand)).or_insert(0);
            *count += 1;
            Block { index, replica: *count - 1 }
        })
        .collect()
}
