//! Layouts: which part of a stored value is on which device.

use crate::program::sentence::Combine;
use crate::sharding::atoms::{Atom, Atoms, canonical, ways};

/// How one dimension (or loop) is laid out: rank r holds `[r·block − origin, (r+1)·block − origin)`, cut to the dimension; the first and the
/// last rank are stretched to the ends. A type means block ⌈N/n⌉ and origin 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DimLayout {
    /// The digits of the device position that make the rank, major first.
    pub atoms: Atoms,
    /// The size of a block.
    pub block: i64,
    /// How far blocks begin before multiples of `block`.
    pub origin: i64,
}

/// The placement of a stored value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// One for each dimension.
    pub dims: Vec<DimLayout>,
    /// Where the value is partial: how the parts combine, and the digits that tell them apart.
    pub partial: Option<(Combine, Atoms)>,
}

impl DimLayout {
    /// As a type means it: blocks of ⌈N/n⌉.
    pub fn new(size: usize, atoms: impl IntoIterator<Item = Atom>) -> DimLayout {
        let atoms = canonical(atoms);
        let block = (size.div_ceil(ways(&atoms)) as i64).max(1);
        DimLayout { atoms, block, origin: 0 }
    }
    /// How many ranks.
    pub fn ways(&self) -> usize {
        ways(&self.atoms)
    }
    /// The rank of a device position.
    pub fn rank(&self, position: usize) -> usize {
        self.atoms.iter().fold(0, |r, a| r * a.size + a.digit(position))
    }
    /// What a rank holds of a dimension of this size.
    pub fn range(&self, rank: usize, size: usize) -> (i64, i64) {
        let (r, n) = (rank as i64, size as i64);
        let lo = if rank == 0 { 0 } else { r * self.block - self.origin };
        let hi = if rank + 1 == self.ways() { n } else { (r + 1) * self.block - self.origin };
        (lo.clamp(0, n), hi.clamp(0, n))
    }
    /// The rank that holds an index.
    pub fn owner(&self, index: i64) -> usize {
        (index + self.origin).div_euclid(self.block).clamp(0, self.ways() as i64 - 1) as usize
    }
    /// The device position nearest to `position` that has this rank.
    pub fn place(&self, position: usize, rank: usize) -> usize {
        let (mut p, mut r) = (position as i64, rank);
        for a in self.atoms.iter().rev() {
            p += ((r % a.size) as i64 - a.digit(position) as i64) * a.stride as i64;
            r /= a.size;
        }
        p as usize
    }
}

impl Layout {
    /// Whether the parts of a partial value are the same, so that each device takes its own.
    pub(crate) fn has_same_parts(&self) -> bool {
        self.partial.as_ref().is_some_and(|p| p.0 == Combine::Same)
    }
}
