//! Samples the messages that devices receive in a step.
//!
//! All devices are counted, or a sample if there are many. Equal steps are sampled once.

use crate::partition::program::{Slot, SpmdProgram};
use crate::partition::strided_box::{missing_volume, strided};
use crate::partition::{boxes::volume, cost::consumer::FetchQuery, tree_reduce};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The maximum number of devices that are all counted.
pub(super) const MAX_COUNTED_DEVICES: usize = 64;
/// The number of devices in a sample.
const SAMPLED_DEVICES: usize = 16;

/// The messages that a sample of devices receives in a step.
pub(crate) struct ReceiveSample {
    /// The number of messages received by all devices.
    pub(crate) messages: u64,
    /// True if all devices were counted.
    /// Otherwise the number is extrapolated from a sample.
    pub(crate) messages_exact: bool,
    /// The maximum number of devices that one sampled device receives from.
    pub(crate) max_senders: usize,
    /// From which devices each sampled device receives.
    /// For a sample of many devices it is computed on demand, as few classifications need it.
    receipts: OnceCell<Vec<Receipt>>,
}

/// From which devices one device receives in a fetch.
pub(crate) struct Receipt {
    /// The position of the device.
    pub(crate) device: usize,
    /// The positions of the devices that it receives from.
    pub(crate) senders: Vec<usize>,
}

impl ReceiveSample {
    fn new(messages: u64, messages_exact: bool, max_senders: usize) -> ReceiveSample {
        ReceiveSample { messages, messages_exact, max_senders, receipts: OnceCell::new() }
    }
    /// Returns from which devices the sampled devices receive in a fetch.
    pub(crate) fn receipts(&self, fetch: &FetchQuery) -> &[Receipt] {
        self.receipts.get_or_init(|| receipts(fetch))
    }
}

/// Finds from which devices the sampled devices receive in a fetch.
fn receipts(fetch: &FetchQuery) -> Vec<Receipt> {
    let of = |device: usize| {
        let senders = fetch.stored.layout.other_holders(device, &fetch.requested(device).0);
        Receipt { device, senders: senders.into_iter().collect() }
    };
    sampled_devices(fetch.devices).into_iter().map(of).collect()
}

/// Returns the number of elements that a device receives in a fetch.
pub(crate) fn received_elements(fetch: &FetchQuery, device: usize) -> i64 {
    let held = fetch.stored.layout.region(&fetch.stored.shape, device);
    missing_volume(&fetch.requested(device).0, &held).elements
}

/// Returns all of `n` devices, or an evenly spaced sample including the first and last.
fn sampled_devices(n: usize) -> Vec<usize> {
    if n <= MAX_COUNTED_DEVICES {
        (0..n).collect()
    } else {
        (0..SAMPLED_DEVICES).map(|k| k * (n - 1) / (SAMPLED_DEVICES - 1)).collect()
    }
}

/// Counts messages.
/// `of` returns the number of devices that a device receives from.
fn count_messages(n: usize, of: impl Fn(usize) -> usize) -> ReceiveSample {
    let devices = sampled_devices(n);
    let (all, most) = devices.iter().map(|d| of(*d)).fold((0, 0), |(all, most), m| (all + m, most.max(m)));
    ReceiveSample::new(all as u64 * n as u64 / devices.len().max(1) as u64, n <= MAX_COUNTED_DEVICES, most)
}

/// Samples how many devices each device receives from in a fetch.
pub(crate) fn fetch_sample(fetch: &FetchQuery) -> ReceiveSample {
    if fetch.devices > MAX_COUNTED_DEVICES {
        let of = |device| fetch.stored.layout.num_other_holders(device, &fetch.requested(device).0);
        return count_messages(fetch.devices, of);
    }
    let receipts = receipts(fetch);
    let sample = count_messages(fetch.devices, |device| receipts[device].senders.len());
    ReceiveSample { receipts: receipts.into(), ..sample }
}

/// Samples what devices receive in the steps of a program.
pub(crate) struct ReceiveSampler<'a> {
    p: &'a SpmdProgram,
    /// The samples of earlier steps by key.
    /// Repeated layers have equal steps.
    cache: RefCell<HashMap<Box<[i64]>, Rc<ReceiveSample>>>,
}

impl<'a> ReceiveSampler<'a> {
    pub(crate) fn new(p: &'a SpmdProgram) -> ReceiveSampler<'a> {
        ReceiveSampler { p, cache: RefCell::default() }
    }
    /// Returns the cached sample of steps with this key, or computes it.
    pub(crate) fn lookup(&self, key: Vec<i64>, look: impl FnOnce() -> ReceiveSample) -> Rc<ReceiveSample> {
        if let Some(known) = self.cache.borrow().get(&key[..]) {
            return known.clone();
        }
        let seen = Rc::new(look());
        self.cache.borrow_mut().insert(key.into(), seen.clone());
        seen
    }
    /// Samples how many devices each device reads from if `src` is reduced to `out`.
    pub(crate) fn reduce_sample(&self, src: Slot, out: Slot) -> ReceiveSample {
        let (p, n) = (self.p, self.p.devices);
        let (partials, stored) = (p.reduced_sub_axes(src, out), &p.slots[src]);
        count_messages(n, |device| {
            let requested = p.slots[out].layout.region(&stored.shape, device);
            // each of the other partial values has `holders` holders; the device itself may hold
            // one of them
            let holders = volume(&stored.layout.owner_ranks(&requested)) as usize;
            let boxes: Vec<_> = strided(&requested).into_iter().collect();
            let own = stored.layout.num_other_holders(device, &boxes);
            own + if volume(&requested) == 0 || p.slot_has_equal_partials(src) {
                0
            } else {
                holders * (partials.num_shards() - 1)
            }
        })
    }
    /// Counts the messages of small reductions that share one exchange.
    pub(crate) fn tree_sample(&self, together: &[usize]) -> ReceiveSample {
        let p = self.p;
        let (mut elements, mut even, mut messages) = (0, true, 0);
        for k in together {
            let Some((src, out, _)) = p.steps[*k].reduction() else { continue };
            let (stored, to) = (&p.slots[src], &p.slots[out].layout);
            let Some((route, more)) = tree_reduce::tree_reduction(stored, to) else { continue };
            elements += more as usize;
            even &= stored.shape.num_elements()
                == more as usize * to.dims.iter().map(|l| l.num_shards()).product::<usize>();
            messages =
                route.num_messages(elements) * (p.devices / p.reduced_sub_axes(src, out).num_shards()) as u64;
        }
        ReceiveSample::new(messages, even, 0)
    }
}
