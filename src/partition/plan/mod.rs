//! Performance model: predicts how long a program takes on a machine, before anything runs.
//!
//! A [`Plan`] also says which resource bounds each kernel and collective, and which source line
//! caused it. It is computed from the SPMD program, in time that does not depend on the number of
//! devices.
//!
//! The model: a kernel takes its launch overhead plus the longer of two times, that of its
//! operations and that of its memory traffic (the *roofline*: Williams, Waterman, Patterson, CACM
//! 52(4), 2009). A collective takes `rounds × latency + bytes / bandwidth`, with the bytes of the
//! [report](crate::Collectives) and the bandwidth that its links reach together. The partitioner
//! compares collectives by the same prices ([`Jit::cost_model`](crate::Jit::cost_model)). Kernels
//! and messages form two tracks. Kernels run in program order; a message runs as soon as its data
//! is there. Unless the machine's communication blocks its kernels, the tracks overlap where
//! neither has to wait for the other. All times are estimates, in seconds.
//!
//! Assumptions:
//!
//! * The operations that form one kernel, and hence the values that are in memory, are those of the
//!   lock-step engine (`partition::fusion`, which the memory report uses too). Rows that this
//!   engine keeps in a processor's cache between kernels, such as attention scores, count as values
//!   in memory, so that the times are too long for machines with a fused attention kernel.
//! * A gather counts the elements that it reads and a scatter those that it writes, not the full
//!   array.
//! * A function such as `exp` counts as ten operations.
//! * Most collectives take `n − 1` rounds on a ring and `⌈log₂ n⌉` on a switch. An all-reduce takes
//!   twice as many, a permutation or a halo exchange one.
//! * A collective over several links uses all of them at once. The rings of a torus add up. Of a
//!   gather or a sum, slower links carry only what faster ones leave: of `n` devices in nodes of
//!   `k`, each receives `(n/k − 1) / (n − 1)` of its bytes from other nodes.
//! * In an all-to-all or an irregular exchange, each pair uses the slowest link between the two
//!   devices, and a ring of `n` devices carries each byte `n / 4` times (at least once), as bytes
//!   travel a quarter of it.
//! * Iterations of a loop run one after another, but what does not depend on the previous iteration
//!   and ends in messages is done one iteration ahead ([`Machine::prefetches`]). A `while_loop`
//!   counts as one iteration.
//! * A conditional takes as long as its longest branch.
//!
//! `tests/reports/facts.rs` compares plans with published figures.
//!
//! ```
//! use atmesh::{plan::{Link, Machine}, prelude::*};
//! let mesh = Mesh::without_devices([("X", 8)])?;
//! let x = F32.array_type([4096, 4096]).on(&mesh, p!["X"]);
//! let lowered = jit(|x: &Array| x.square().sum(0)).lower(x)?;
//! let plan = lowered.plan(&Machine::h100().links(Link::switch(50e9)))?;
//! assert!(plan.seconds() > 0.0);
//! # Ok::<(), atmesh::Error>(())
//! ```

pub(crate) mod html;
#[cfg(feature = "json")]
mod json;
mod kernel_work;
mod materialized;
mod profile;
mod render;
mod schedule;
mod sweep;
mod tracks;
mod walk;

#[cfg(feature = "json")]
pub use json::{SavedEntry, SavedPlan};
pub use profile::{Activity, Comparison, ComparisonRow, Span, Timeline};
pub use sweep::{Sweep, mesh_shapes, sweep};

use crate::core::{Axes, DType, Result, SourceLocation};
use crate::ir::program::{Phase, ScopePath};
pub use crate::partition::machine::{Link, Machine};
use crate::partition::{CollectiveKind, Collectives, SpmdProgram};
use schedule::Timing;
use walk::{LoopRemainder, TaskSchedule};

/// The predicted time of one call of a program, made by [`Lowered::plan`](crate::Lowered::plan).
///
/// It prints as a table of operations and source lines, the longest first.
///
/// ```
/// use atmesh::plan::{Link, Machine};
/// use atmesh::prelude::*;
///
/// let mesh = Mesh::without_devices([("data", 64)])?;
/// let x = BF16.array_type([64 * 4096, 8192]).on(&mesh, p!["data", _]);
/// let w = BF16.array_type([8192, 8192]).on(&mesh, p!["data", _]);
/// let layer = jit(|x: &Array, w: &Array| x.dot(w.reshard(p![_, _])));
///
/// let machine = Machine::h100().links(Link::NVLINK_4);
/// let plan = layer.lower((x, w))?.plan(&machine)?;
/// let product = 2.0 * 4096.0 * 8192.0 * 8192.0 / 989e12; // seconds
/// let gather = 2.0 * 8192.0 * 8192.0 * 63.0 / 64.0 / 450e9;
/// // the product reads the gathered blocks where they were received
/// assert!((plan.seconds() / (gather + product) - 1.0).abs() < 1e-9, "{plan}");
/// assert_eq!(plan.fits(), Some(true));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    machine: Machine,
    devices: usize,
    entries: Vec<PlanEntry>,
    #[cfg_attr(not(feature = "json"), allow(dead_code, reason = "only trace events show them"))]
    loop_remainders: Vec<LoopRemainder>,
    seconds: f64,
    peak_bytes: u64,
}

/// The kind of an entry of a plan.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EntryKind {
    /// Computation on each device.
    Kernel,
    /// A collective and its mesh axes.
    Collective(CollectiveKind, Axes),
}

/// The resource or overhead that determines an entry's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// The operations per second of a device.
    Arithmetic,
    /// The memory bandwidth of a device.
    Memory,
    /// The launch overhead of a kernel.
    LaunchOverhead,
    /// The bandwidth of a link.
    Link,
    /// The latency of the rounds of a collective.
    Latency,
}

impl Bound {
    /// Returns the name in words, such as `launch overhead`.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Arithmetic => "arithmetic",
            Bound::Memory => "memory",
            Bound::LaunchOverhead => "launch overhead",
            Bound::Link => "links",
            Bound::Latency => "latency",
        }
    }
}

/// One kernel or collective of a plan.
///
/// Times are in seconds for a single run; all figures are those of the busiest device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanEntry {
    /// The kind of the entry.
    pub kind: EntryKind,
    /// The name of the operation that caused the entry.
    pub op: String,
    /// The source location of that operation in the user's code, if known.
    pub source: Option<SourceLocation>,
    /// The named scopes around that operation ([`named_scope`](crate::named_scope)).
    pub scope: ScopePath,
    /// The phase: forward, or added by autodiff (backward or recomputed).
    pub phase: Phase,
    /// The start time, in seconds; inside a loop, that of the first iteration.
    pub start: f64,
    /// The duration of one run, in seconds.
    pub seconds: f64,
    /// The number of runs.
    pub count: u64,
    /// The number of operations, including those of matmuls.
    pub flops: f64,
    /// The number of operations of matmuls, by the element type of the operands.
    pub matmul_flops: Vec<(DType, f64)>,
    /// The bytes of memory that a kernel reads and writes, or that a device receives.
    pub bytes: f64,
    /// The resource or overhead that determines the time.
    pub bound: Bound,
    /// For a collective, the seconds during which kernels run too; 0 for a kernel.
    pub overlapped: f64,
}

impl PlanEntry {
    /// Returns the exposed seconds of all runs: those that nothing else overlaps.
    fn exposed(&self) -> f64 {
        (self.seconds - self.overlapped) * self.count as f64
    }
}

impl Plan {
    /// Plans a program on a machine.
    ///
    /// # Errors
    /// A rate, size or latency of the machine is invalid, or the machine has no link along a mesh
    /// axis over which data moves.
    pub(crate) fn new(p: &SpmdProgram, all: &Collectives, machine: &Machine) -> Result<Plan> {
        machine.check()?;
        let line = Timing::new(machine, p, all)?.schedule(p)?;
        let (machine, peak_bytes) = (machine.clone(), all.peak_bytes());
        let TaskSchedule { entries: items, loop_remainders: repeats, seconds } = line;
        Ok(Plan {
            machine,
            devices: p.devices,
            entries: items,
            loop_remainders: repeats,
            seconds,
            peak_bytes,
        })
    }
    /// Returns the kernels and collectives, in program order.
    pub fn entries(&self) -> &[PlanEntry] {
        &self.entries
    }
    /// Returns the seconds of one call.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
    /// Returns the seconds of all kernels.
    pub fn kernel_seconds(&self) -> f64 {
        self.sum(|i| i.kind == EntryKind::Kernel, |i| i.seconds * i.count as f64)
    }
    /// Returns the seconds of all collectives, exposed or not.
    pub fn collective_seconds(&self) -> f64 {
        self.sum(|i| i.kind != EntryKind::Kernel, |i| i.seconds * i.count as f64)
    }
    /// Returns the exposed communication: seconds spent in collectives that no kernel overlaps.
    pub fn exposed_seconds(&self) -> f64 {
        self.sum(|i| i.kind != EntryKind::Kernel, PlanEntry::exposed)
    }
    /// Returns the number of matmul operations of one device.
    pub fn matmul_flops(&self) -> f64 {
        self.sum(|_| true, |i| i.matmul_flops.iter().fold(0.0, |t, p| t + p.1) * i.count as f64)
    }
    /// Returns the fraction of the peak matmul rate that the call reaches, from 0 to 1.
    ///
    /// This is the *model FLOP utilisation* if the program recomputes nothing. It is 0 if there are
    /// no matmuls.
    pub fn utilisation(&self) -> f64 {
        let ideal = |i: &PlanEntry| {
            let one = i.matmul_flops.iter().fold(0.0, |t, (d, n)| t + n / self.machine.matmul_rate(*d));
            one * i.count as f64
        };
        if self.seconds > 0.0 { self.sum(|_| true, ideal) / self.seconds } else { 0.0 }
    }
    /// Returns the resource that bounds the largest share of the time, and that share.
    ///
    /// Returns `None` for a program that takes no time.
    pub fn bound(&self) -> Option<(Bound, f64)> {
        let all = [Bound::Arithmetic, Bound::Memory, Bound::LaunchOverhead, Bound::Link, Bound::Latency];
        let of = |b: Bound| (b, self.sum(|i| i.bound == b, PlanEntry::exposed) / self.seconds);
        all.map(of).into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| self.seconds > 0.0)
    }
    /// Returns the peak memory of a device, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }
    /// Returns true if the peak memory fits into a device's memory, less the reserve.
    ///
    /// The reserve is a tenth of the memory, unless [`Machine::memory_reserve`] sets another share.
    /// Returns `None` if the machine does not state its memory.
    pub fn fits(&self) -> Option<bool> {
        self.machine.usable_memory().map(|bytes| self.peak_bytes as f64 <= bytes)
    }
    fn sum(&self, which: impl Fn(&PlanEntry) -> bool, of: impl Fn(&PlanEntry) -> f64) -> f64 {
        self.entries.iter().filter(|i| which(i)).fold(0.0, |t, i| t + of(i))
    }
}
