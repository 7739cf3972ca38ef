//! How long a step takes on a machine, what binds it, and which line is to blame: arithmetic on the per-device program, before
//! anything runs.
//!
//! A kernel takes the longer of the time of its operations and that of its bytes (the *roofline*: Williams, Waterman, Patterson,
//! CACM 52(4), 2009). A collective takes `rounds × latency + bytes / bandwidth`, with the bytes of the
//! [report](crate::Collectives). Kernels and messages are two tracks: each runs in the program's order, and what does not wait for the
//! other track runs beside it. Nothing here grows with the number of devices.
//!
//! What is assumed: which operations are one kernel, and so which values are in memory, is as in this crate's engines (`partition::fused`, by which
//! memory is told too); what a gather at run time reads and what an update writes is counted, not the whole array; a function such as `exp` counts as
//! ten operations; a ring takes `n − 1` rounds, a switch `log₂ n`; a collective over several axes moves its bytes over the slowest of them;
//! steps of a loop follow one another; of a `while_loop` one step is counted; of branches the longest.

mod costs;
mod machine;
mod page;
mod schedule;
mod sweep;
mod timeline;
mod told;

pub use machine::{Link, Machine};
pub use sweep::{Sweep, grids, sweep};
pub use timeline::{Beside, Compared, Doing, Span, Timeline};
pub(crate) use told::{quoted, scaled as amount};

use crate::diagnostic::{Place, Result};
use crate::elements::DType;
use crate::mesh::Axes;
use crate::partition::{Collectives, Kind, SpmdProgram};
use crate::program::Phase;
use schedule::{Repeat, Timing};

/// How long one call of a program takes on one machine: made by [`Lowered::plan`](crate::Lowered::plan).
///
/// It prints as a table of lines, the longest first.
///
/// ```
/// use atmesh::plan::{Link, Machine};
/// use atmesh::prelude::*;
///
/// let mesh = Mesh::without_devices([("data", 64)])?;
/// let x = BF16.of([64 * 4096, 8192]).on(&mesh, p!["data", _]);
/// let w = BF16.of([8192, 8192]).on(&mesh, p!["data", _]);
/// let layer = jit(|x: &Array, w: &Array| x.dot(w.reshard(p![_, _])));
///
/// let machine = Machine::h100().links(Link::NVLINK_4);
/// let plan = layer.lower((x, w))?.plan(&machine)?;
/// let product = 2.0 * 4096.0 * 8192.0 * 8192.0 / 989e12; // seconds
/// let gather = 2.0 * 8192.0 * 8192.0 * 63.0 / 64.0 / 450e9;
/// // (the blocks arrive where the product reads them)
/// assert!((plan.seconds() / (gather + product) - 1.0).abs() < 1e-9, "{plan}");
/// assert_eq!(plan.fits(), Some(true));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    machine: Machine,
    devices: usize,
    items: Vec<Item>,
    repeats: Vec<Repeat>,
    seconds: f64,
    peak_bytes: u64,
}

/// What a row of a plan is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// Computing on each device.
    Kernel,
    /// A collective, and its axes.
    Collective(Kind, Axes),
}

/// What the time of a row goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// Operations per second.
    Arithmetic,
    /// Bytes of memory per second.
    Memory,
    /// What a kernel takes before it does anything.
    Start,
    /// Bytes per second of a link.
    Link,
    /// The rounds of a collective, each with its latency.
    Latency,
}

impl Bound {
    /// Its name in words: `arithmetic`.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Arithmetic => "arithmetic",
            Bound::Memory => "memory",
            Bound::Start => "start of kernels",
            Bound::Link => "links",
            Bound::Latency => "latency",
        }
    }
}

/// One kernel or collective of a plan. Times are in seconds, each time it runs; figures are of the busiest device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Item {
    /// What it is.
    pub what: What,
    /// The operation that asked for it.
    pub op: String,
    /// The user's line.
    pub source: Option<Place>,
    /// Whether derivatives put it there: on the way back, or forward once more.
    pub phase: Phase,
    /// When it begins; in a loop, in the first step.
    pub start: f64,
    /// How long it takes.
    pub seconds: f64,
    /// How often it runs.
    pub times: u64,
    /// Operations, of products and others.
    pub operations: f64,
    /// Those of products, by the element type of the operands.
    pub products: Vec<(DType, f64)>,
    /// Bytes of memory that a kernel reads and writes, or that a device receives.
    pub bytes: f64,
    /// What its time goes by.
    pub bound: Bound,
    /// Of a collective the seconds during which kernels run too.
    pub hidden: f64,
}

impl Item {
    /// The seconds of all its runs that nothing else hides.
    fn shown(&self) -> f64 {
        (self.seconds - self.hidden) * self.times as f64
    }
}

impl Plan {
    /// The plan of a program on a machine.
    ///
    /// # Errors
    /// A figure of the machine that is none, or a mesh axis over which something moves and along which it has no link.
    pub(crate) fn new(p: &SpmdProgram, all: &Collectives, machine: &Machine) -> Result<Plan> {
        machine.check()?;
        let line = Timing::new(machine, all).of(p, &[], 1)?;
        let (machine, peak_bytes) = (machine.clone(), all.peak_bytes());
        let schedule::Timeline { items, repeats, seconds } = line;
        Ok(Plan { machine, devices: p.devices, items, repeats, seconds, peak_bytes })
    }
    /// Kernels and collectives, in the order of the program.
    pub fn items(&self) -> &[Item] {
        &self.items
    }
    /// The seconds of one call.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }
    /// The seconds of kernels.
    pub fn kernel_seconds(&self) -> f64 {
        self.sum(|i| i.what == What::Kernel, |i| i.seconds * i.times as f64)
    }
    /// The seconds of collectives, hidden or not.
    pub fn collective_seconds(&self) -> f64 {
        self.sum(|i| i.what != What::Kernel, |i| i.seconds * i.times as f64)
    }
    /// The seconds of collectives beside which no kernel runs.
    pub fn exposed_seconds(&self) -> f64 {
        self.sum(|i| i.what != What::Kernel, Item::shown)
    }
    /// The operations of one device's products.
    pub fn product_operations(&self) -> f64 {
        self.sum(|_| true, |i| i.products.iter().fold(0.0, |t, p| t + p.1) * i.times as f64)
    }
    /// The share of the machine's rate of products that the call reaches, from 0 to 1 (*model FLOP utilisation*, if the program computes nothing twice).
    /// It is 0 where there are no products.
    pub fn utilisation(&self) -> f64 {
        let ideal = |i: &Item| {
            let one = i.products.iter().fold(0.0, |t, (d, n)| t + n / self.machine.product_rate(*d));
            one * i.times as f64
        };
        if self.seconds > 0.0 { self.sum(|_| true, ideal) / self.seconds } else { 0.0 }
    }
    /// What the largest share of the time goes by, and that share; nothing for a program that takes no time.
    pub fn bound(&self) -> Option<(Bound, f64)> {
        let all = [Bound::Arithmetic, Bound::Memory, Bound::Start, Bound::Link, Bound::Latency];
        let of = |b: Bound| (b, self.sum(|i| i.bound == b, Item::shown) / self.seconds);
        all.map(of).into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| self.seconds > 0.0)
    }
    /// The most bytes that a device holds at once.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }
    /// Whether that is in the device's memory; nothing if the machine does not say how much it has.
    pub fn fits(&self) -> Option<bool> {
        self.machine.memory.map(|bytes| self.peak_bytes as f64 <= bytes)
    }
    fn sum(&self, which: impl Fn(&Item) -> bool, of: impl Fn(&Item) -> f64) -> f64 {
        self.items.iter().filter(|i| which(i)).fold(0.0, |t, i| t + of(i))
    }
}
