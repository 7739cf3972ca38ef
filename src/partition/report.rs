//! What a program communicates, with the line that caused it.

use crate::diagnostic::Place;
use crate::mesh::Axes;

/// The kind of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Partial values summed, the result on all.
    AllReduce,
    /// Blocks joined, the result on all.
    AllGather,
    /// Partial values summed, each device keeping its part.
    ReduceScatter,
    /// One dimension cut, another joined.
    AllToAll,
    /// Whole blocks from device to device.
    Permute,
    /// The edges of neighbours' blocks.
    Halo,
    /// Any other exchange of regions.
    Exchange,
}

/// One collective of a program.
#[derive(Clone, Debug)]
pub struct Collective {
    /// What kind it is.
    pub kind: Kind,
    /// Over which axes (names as the mesh has them; a piece of an axis is named by the axis).
    pub axes: Axes,
    /// Bytes that the busiest device receives, each time it runs.
    pub bytes: u64,
    /// Bytes that all devices receive together, each time it runs.
    pub total_bytes: u64,
    /// Messages between devices, each time it runs, if every piece is sent by itself.
    pub messages: u64,
    /// How often it runs: the trip counts of the loops around it.
    pub times: u64,
    /// The operation that asked for it.
    pub op: String,
    /// The user's line.
    pub source: Option<Place>,
    /// Why it is needed.
    pub reason: String,
}

/// All collectives of a program, in order; and the most bytes that a device holds at once.
#[derive(Clone, Debug, Default)]
pub struct Collectives {
    pub(crate) list: Vec<Collective>,
    pub(crate) peak_bytes: u64,
}
