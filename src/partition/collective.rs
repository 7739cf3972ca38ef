//! The collectives of a program: their kinds, sizes and causes.

use crate::core::{Axes, SourceLocation};
use crate::ir::program::{Phase, ScopePath};
use crate::partition::memory::StepMemory;
use crate::partition::program::{SpmdProgram, StepOrigin};
use std::fmt;
use std::sync::OnceLock;

/// The kind of a collective.
///
/// ```
/// use atmesh::{CollectiveKind, prelude::*};
/// let mesh = Mesh::without_devices([("X", 4)])?;
/// let x = F32.array_type([8]).on(&mesh, p!["X"]);
/// let lowered = jit(|x: &Array| x.reshard(p![])).lower(x)?;
/// assert_eq!(lowered.collectives().count(CollectiveKind::AllGather, "X"), 1);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CollectiveKind {
    /// Combines partial values; every device receives the result.
    AllReduce,
    /// Joins blocks; every device receives the result.
    AllGather,
    /// Combines partial values; each device keeps its block of the result.
    ReduceScatter,
    /// Splits one dimension and joins another.
    AllToAll,
    /// Sends full blocks from device to device.
    Permute,
    /// Sends the edges of blocks to neighbours.
    Halo,
    /// Any other exchange of blocks.
    Exchange,
}

/// The role of a collective in its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectiveRole {
    /// Brings operands.
    /// The index is that of the first access it serves.
    Operand(usize),
    /// Combines the partial values of the result.
    Reduction,
    /// Moves the result into the requested layout.
    Result,
}

/// A collective of a program.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::without_devices([("X", 4)])?;
/// let x = F32.array_type([8, 2]).on(&mesh, p!["X"]);
/// let lowered = jit(|x: &Array| x.sum(0)).lower(x)?;
/// let sum = lowered.collectives().iter().next().expect("the rows are sharded");
/// assert_eq!((sum.op.as_str(), sum.axes.to_string().as_str(), sum.count), ("reduce_sum", "X", 1));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Collective {
    /// The kind.
    pub kind: CollectiveKind,
    /// The mesh axes it runs over.
    /// A sub-axis is named by its axis.
    ///
    /// If a dimension that other axes shard is not evenly divisible, messages may also cross those
    /// axes: a device's rows of the dimension can then belong to a neighbour's block.
    pub axes: Axes,
    /// The bytes that the busiest device receives, per execution.
    pub bytes_per_device: u64,
    /// The bytes that all devices together receive, per execution.
    pub total_bytes: u64,
    /// True if the byte counts are exact.
    /// Otherwise they were estimated from a sample of the devices, and are printed with `≈`.
    pub exact: bool,
    /// The number of messages between devices per execution, if every block is sent separately.
    pub messages: u64,
    /// True if all messages were counted.
    /// Otherwise the number was estimated from a sample of the devices, and is printed with `≈`.
    pub messages_exact: bool,
    /// The number of executions: the product of the trip counts of the surrounding loops. A `while`
    /// loop, whose trip count is unknown, counts as one iteration.
    pub count: u64,
    /// True if the collective is in a `while` loop: `count` is the number of executions for one
    /// iteration of the loop (of each, if such loops are nested).
    pub per_iteration: bool,
    /// The operation that needed the collective.
    pub op: String,
    /// The source location.
    /// `None` if it is unknown.
    ///
    /// If a function of the user's program moves data, this is the location inside that function,
    /// or that of its caller if it is `#[track_caller]`.
    pub location: Option<SourceLocation>,
    /// The named scopes around the operation ([`named_scope`](crate::named_scope)).
    pub scope: ScopePath,
    /// The phase of differentiation that added the collective.
    pub phase: Phase,
    /// True if the program requested it.
    ///
    /// Requests are `reshard`, `constrain`, and collectives in per-device code. Otherwise an
    /// operation needs data that its device does not hold.
    pub requested: bool,
    /// The reason why it is needed.
    pub reason: String,
    /// The role in its operation.
    pub(crate) role: CollectiveRole,
    /// The origin of the consumer that determines the placement of the operation's result.
    pub(crate) for_consumer: Option<StepOrigin>,
    /// The origin of the loop that it was hoisted out of, if any.
    pub(crate) hoisted_from: Option<StepOrigin>,
    /// The position in the program.
    /// For each surrounding program, the step and the index of the program nested in it; last, the
    /// step of the collective.
    pub(crate) path: Vec<(usize, usize)>,
}

/// The collectives of a program, in order, and its peak memory.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::without_devices([("X", 4)])?;
/// let x = F32.array_type([8, 2]).on(&mesh, p!["X"]);
/// let lowered = jit(|x: &Array| x.sum(0)).lower(x)?;
/// let report = lowered.collectives();
/// println!("{report}"); // a table with bytes, source lines and reasons
/// assert_eq!(report.len(), 1);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[doc(alias("CommDebugMode"))]
pub struct Collectives {
    /// The collectives, in program order.
    pub(crate) list: Vec<Collective>,
    /// The peak memory per device, in bytes.
    /// It is computed when the collectives are asked for ([`with_peak`](Collectives::with_peak)).
    pub(crate) peak_bytes: OnceLock<u64>,
    /// The data from which the peak is computed.
    pub(crate) memory: StepMemory,
}

impl CollectiveKind {
    /// Returns the name of the kind, such as `all_reduce`.
    pub fn name(self) -> &'static str {
        match self {
            CollectiveKind::AllReduce => "all_reduce",
            CollectiveKind::AllGather => "all_gather",
            CollectiveKind::ReduceScatter => "reduce_scatter",
            CollectiveKind::AllToAll => "all_to_all",
            CollectiveKind::Permute => "permute",
            CollectiveKind::Halo => "halo",
            CollectiveKind::Exchange => "exchange",
        }
    }
}
impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Collective {
    /// Adds what the second half of an all-reduce moves to the first half.
    pub(crate) fn add_second_half(&mut self, half: &Collective) {
        self.bytes_per_device = self.bytes_per_device.saturating_add(half.bytes_per_device);
        self.total_bytes = self.total_bytes.saturating_add(half.total_bytes);
        self.messages += half.messages;
        self.exact &= half.exact;
        self.messages_exact &= half.messages_exact;
        self.axes.extend_unique(&half.axes);
    }
    /// Returns the position in the per-device program.
    ///
    /// For each surrounding program, it has the step and the index of the program nested in that
    /// step; last, it has the step of the collective and 0.
    #[doc(hidden)]
    pub fn path(&self) -> &[(usize, usize)] {
        &self.path
    }
}

impl<'a> IntoIterator for &'a Collectives {
    type Item = &'a Collective;
    type IntoIter = std::slice::Iter<'a, Collective>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}
impl Collectives {
    /// Returns an iterator over the collectives, in program order.
    /// A collective in a loop body is listed once, with its number of executions.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Collective> {
        self.list.iter()
    }
    /// Returns the number of collectives.
    /// A collective in a loop body counts once.
    pub fn len(&self) -> usize {
        self.list.len()
    }
    /// Returns true if the program does not communicate.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// Returns the number of collectives of a kind over the given axes.
    /// A collective in a loop body counts once.
    pub fn count(&self, kind: CollectiveKind, axes: impl Into<Axes>) -> usize {
        let axes = axes.into();
        self.list.iter().filter(|c| c.kind == kind && same_axes(&c.axes, &axes)).count()
    }
    /// Returns the bytes that the busiest device of each collective receives, over all executions.
    /// A `while` loop counts as one iteration.
    pub fn bytes(&self) -> u64 {
        self.list.iter().fold(0, |sum, c| sum.saturating_add(c.bytes_per_device.saturating_mul(c.count)))
    }
    /// Returns the bytes that all devices receive, over all executions.
    /// A `while` loop counts as one iteration.
    pub fn total_bytes(&self) -> u64 {
        self.list.iter().fold(0, |sum, c| sum.saturating_add(c.total_bytes.saturating_mul(c.count)))
    }
    /// Returns the peak memory per device, in bytes.
    ///
    /// It counts the blocks of live values and fetched data, and arguments and results from the
    /// beginning to the end. It is printed with `≈` if it is an estimate.
    /// [`Lowered::memory`](crate::Lowered::memory) describes it and lists the values held at the
    /// peak.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.get().copied().unwrap_or(0)
    }
    /// Returns the collectives as those of a `while` loop.
    pub(crate) fn per_iteration(mut self) -> Collectives {
        self.list.iter_mut().for_each(|c| c.per_iteration = true);
        self
    }
    /// Computes the peak memory of the program, unless it is known.
    /// Inputs marked in `donated` are free after their last consumers.
    pub(crate) fn with_peak(&self, p: &SpmdProgram, donated: &[bool]) -> &Collectives {
        self.peak_bytes.get_or_init(|| self.memory.peak_bytes(p, donated));
        self
    }
    /// Panics unless the program has exactly these collectives.
    ///
    /// Each entry is a kind, a set of axes in any order, and the number of such collectives. The
    /// message lists the collectives found.
    #[track_caller]
    pub fn assert(&self, expected: &[(CollectiveKind, Axes, usize)]) {
        let mut wrong = Vec::new();
        let mut seen: Vec<(CollectiveKind, &Axes)> = Vec::new();
        for (kind, axes, n) in expected {
            let found = self.count(*kind, axes);
            if found != *n {
                wrong.push(format!("{kind} over {axes}: expected {n}, found {found}"));
            }
            seen.push((*kind, axes));
        }
        for c in &self.list {
            if !seen.iter().any(|(k, a)| *k == c.kind && same_axes(a, &c.axes)) {
                let n = self.count(c.kind, &c.axes);
                wrong.push(format!("{} over {}: expected none, found {n}", c.kind, c.axes));
                seen.push((c.kind, &c.axes));
            }
        }
        assert!(wrong.is_empty(), "other collectives than expected:\n  {}\n{self}", wrong.join("\n  "));
    }
}

/// Returns true if two lists contain the same axes.
fn same_axes(a: &Axes, b: &Axes) -> bool {
    a.len() == b.len() && a.iter().all(|x| b.contains(x))
}
