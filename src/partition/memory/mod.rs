//! Peak memory: the maximum number of bytes that a device holds, and the operation and values
//! there (`account`).

mod account;

use crate::core::diagnostic::{LineLabels, SourceLocation};
use crate::core::util::small_sort;
use crate::ir::program::ScopePath;
use crate::partition::program::{SpmdProgram, StepOrigin};
use std::fmt;

/// The purpose of a value that a device holds.
///
/// ```
/// use atmesh::{MemoryClass, prelude::*};
/// let memory = jit(|x: &Array| x * 2.0).lower(F32.array_type([256]))?.memory();
/// assert_eq!(memory.bytes(MemoryClass::Argument), 1024);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MemoryClass {
    /// An argument, or an array that the function captured: weights, optimizer state, the batch.
    Argument,
    /// A result, or a value that becomes one.
    Result,
    /// An intermediate value: activations, and cotangents that are not returned.
    Intermediate,
    /// A block received from other devices, until its last consumer has run.
    Communication,
}

/// A value that a device holds at the peak.
///
/// ```
/// use atmesh::prelude::*;
/// let memory = jit(|x: &Array| x * 2.0).lower(F32.array_type([256]))?.memory();
/// let largest = &memory.entries[0];
/// assert_eq!((largest.bytes, largest.ty.as_str()), (1024, "f32[256]"));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryEntry {
    /// The purpose of the value.
    pub class: MemoryClass,
    /// The index of the argument or the result.
    /// Captured arrays come after the arguments. `None` for other values.
    pub index: Option<usize>,
    /// The path of the argument, such as `1.layers.w` or `captured 0`.
    /// Empty for other values.
    pub path: String,
    /// The type, with the axes that shard it, as per-device programs print it.
    pub ty: String,
    /// The size in bytes, on the device that holds the largest block.
    pub bytes: u64,
    /// The operation that computed the value, or that needed the communication.
    pub op: String,
    /// The source location of that operation.
    /// `None` if it is unknown.
    pub location: Option<SourceLocation>,
    /// The named scopes around that operation ([`named_scope`](crate::named_scope)).
    pub scope: ScopePath,
}

/// The memory that a device holds at the peak.
/// Returned by [`Lowered::memory`](crate::Lowered::memory); implements `Display`.
///
/// ```
/// use atmesh::prelude::*;
/// let memory = jit(|x: &Array| x * 2.0).lower(F32.array_type([256]))?.memory();
/// // the argument and the result
/// assert_eq!(memory.peak_bytes, 2 * 256 * 4);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Memory {
    /// The peak, in bytes per device.
    pub peak_bytes: u64,
    /// True if no figure is an estimate.
    pub exact: bool,
    /// The operation that runs at the peak.
    pub op: String,
    /// The source location of that operation.
    /// `None` if it is unknown.
    pub location: Option<SourceLocation>,
    /// The values held at the peak, largest first.
    pub entries: Vec<MemoryEntry>,
}

impl MemoryClass {
    /// All classes, in the order in which they are printed.
    pub const ALL: [MemoryClass; 4] =
        [MemoryClass::Argument, MemoryClass::Result, MemoryClass::Intermediate, MemoryClass::Communication];
    /// Returns the label of the class in reports.
    pub fn name(self) -> &'static str {
        match self {
            MemoryClass::Argument => "arguments",
            MemoryClass::Result => "results",
            MemoryClass::Intermediate => "intermediate values",
            MemoryClass::Communication => "communication",
        }
    }
}

impl Memory {
    /// Returns the bytes of one class at the peak.
    pub fn bytes(&self, class: MemoryClass) -> u64 {
        self.sum(|e| e.class == class)
    }
    /// Returns the bytes at the peak of arguments under a path, as in `under("0.layers")`.
    /// These are the arguments whose path is `path` or starts with it.
    pub fn under(&self, path: &str) -> u64 {
        let below =
            |p: &str| p.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.sum(|e| e.class == MemoryClass::Argument && below(&e.path))
    }
    fn sum(&self, counts: impl Fn(&MemoryEntry) -> bool) -> u64 {
        self.entries.iter().filter(|e| counts(e)).fold(0, |sum, e| sum.saturating_add(e.bytes))
    }
}

/// The number of values that `Display` prints.
const MAX_PRINTED_ENTRIES: usize = 10;

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = LineLabels::new();
        let line =
            |p: Option<SourceLocation>| p.map_or(String::new(), |p| format!(" {}", lines.label(Some(p))));
        let mark = if self.exact { "" } else { "≈" };
        writeln!(
            f,
            "peak memory: {mark}{} bytes per device, at {}{}",
            self.peak_bytes,
            self.op,
            line(self.location)
        )?;
        let width = self.peak_bytes.to_string().len();
        for class in MemoryClass::ALL {
            writeln!(f, "{:>width$}  {}", self.bytes(class), class.name())?;
        }
        writeln!(f, "the largest:")?;
        for e in self.entries.iter().take(MAX_PRINTED_ENTRIES) {
            let what = match (e.class, e.index) {
                (MemoryClass::Argument, _) if e.path.is_empty() => "the argument".to_string(),
                (MemoryClass::Argument, _) => format!("argument {}", e.path),
                (MemoryClass::Result, Some(k)) => format!("result {k} of {}", e.op),
                (MemoryClass::Communication, _) => format!("received for {}", e.op),
                (MemoryClass::Result | MemoryClass::Intermediate, _) => e.op.clone(),
            };
            let scope = e.scope.name().map(|s| format!(" in {s}")).unwrap_or_default();
            writeln!(f, "{:>width$}  {what}: {}{}{scope}", e.bytes, e.ty, line(e.location))?;
        }
        let rest = self.entries.len().saturating_sub(MAX_PRINTED_ENTRIES);
        if rest > 0 {
            writeln!(f, "and {rest} more")?;
        }
        Ok(())
    }
}

/// The data from which the memory of a program is computed, in addition to its steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepMemory {
    /// The bytes that each step brings to the busiest device.
    /// They are held until the last consumer of the fetched value has run.
    pub(crate) fetched_bytes: Vec<u64>,
    /// For each step, the data of its nested programs.
    nested: Vec<Vec<StepMemory>>,
    /// True if a figure is an estimate.
    pub(crate) estimated: bool,
}

impl StepMemory {
    /// Creates the data of a program.
    /// `fetched_bytes` has the bytes that each step fetches, `nested` the data of its nested
    /// programs.
    pub(crate) fn new(fetched_bytes: Vec<u64>, nested: Vec<Vec<StepMemory>>, exact: bool) -> StepMemory {
        let estimated = !exact || nested.iter().flatten().any(|n| n.estimated);
        StepMemory { fetched_bytes, nested, estimated }
    }

    /// Returns the peak in bytes per device.
    ///
    /// Inputs marked in `donated` are free after their last consumers.
    pub(crate) fn peak_bytes(&self, p: &SpmdProgram, donated: &[bool]) -> u64 {
        account::program_peak(self, p, donated, false).bytes
    }

    /// Returns the values held at the peak.
    /// The paths of arguments are left empty.
    pub(crate) fn memory(&self, p: &SpmdProgram, donated: &[bool]) -> Memory {
        let peak = account::program_peak(self, p, donated, true);
        let mut entries = peak.entries;
        small_sort::sort_by_key(&mut entries, |e| std::cmp::Reverse(e.bytes));
        let StepOrigin { op, location, .. } = peak.origin;
        Memory { peak_bytes: peak.bytes, exact: !self.estimated, op, location, entries }
    }
}
