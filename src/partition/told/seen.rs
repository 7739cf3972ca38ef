//! What devices receive in a step: all of them, or of many some. Equal steps are looked at once.

use crate::partition::pieces::Piece;
use crate::partition::program::{Slot, SpmdProgram, Step};
use crate::partition::route;
use crate::sorted;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Up to this many devices messages are counted one by one, which takes as many steps as there are pairs of them.
const COUNTED: usize = 64;
/// How many devices are looked at beyond.
const SAMPLE: usize = 16;

/// What some devices receive in a step.
pub(crate) struct Seen {
    /// Messages of all devices.
    pub(crate) messages: u64,
    /// Whether they were counted one by one.
    pub(crate) counted: bool,
    /// The devices that were looked at, and what of a fetch is not theirs.
    pub(crate) devices: Vec<(usize, Vec<Piece>)>,
}

/// All of n, or from so many on some of them: the first, the last, and others between.
fn sample(n: usize) -> Vec<usize> {
    if n <= COUNTED { (0..n).collect() } else { (0..SAMPLE).map(|k| k * (n - 1) / (SAMPLE - 1)).collect() }
}

/// Looks at what devices receive in the steps of a program.
pub(crate) struct Looks<'a> {
    p: &'a SpmdProgram,
    /// What was seen of steps like these: layers repeat.
    seen: RefCell<HashMap<Box<[i64]>, Rc<Seen>>>,
}

impl<'a> Looks<'a> {
    pub(crate) fn at(p: &'a SpmdProgram) -> Looks<'a> {
        Looks { p, seen: RefCell::default() }
    }
    /// What was seen of steps with this key, or what `look` sees.
    pub(crate) fn seen(&self, key: Vec<i64>, look: impl FnOnce() -> Seen) -> Rc<Seen> {
        if let Some(known) = self.seen.borrow().get(&key[..]) {
            return known.clone();
        }
        let seen = Rc::new(look());
        self.seen.borrow_mut().insert(key.into(), seen.clone());
        seen
    }
    /// What devices receive in fetch `k`.
    pub(crate) fn fetched(&self, k: usize) -> Seen {
        let n = self.p.devices;
        let mut messages = 0;
        let look = |device: usize| {
            let mut pieces = self.p.pieces(k, device);
            pieces.retain(|x| x.from != device);
            messages += partners(&pieces) as u64;
            (device, pieces)
        };
        let devices: Vec<(usize, Vec<Piece>)> = sample(n).into_iter().map(look).collect();
        let messages = messages * n as u64 / devices.len().max(1) as u64;
        Seen { messages, counted: n <= COUNTED, devices }
    }
    /// What devices read of each other's parts where `src` is reduced to `out`.
    pub(crate) fn combined(&self, src: Slot, out: Slot) -> Seen {
        let (p, n) = (self.p, self.p.devices);
        let (parts, stored) = (p.parts_gone(src, out), &p.slots[src]);
        let mut messages = 0;
        let devices = sample(n);
        for &device in &devices {
            let wanted = p.slots[out].layout.region(&stored.shape, device);
            let own = parts.rank(device);
            let others = parts.ways() - 1;
            // from how many others it has what it wants of these parts
            let from = |list: &mut dyn Iterator<Item = usize>| {
                let mut pieces = Vec::new();
                for part in list {
                    let at = parts.place(device, part);
                    stored.layout.holders(&stored.shape, at, &wanted, |from, region| {
                        pieces.push(Piece { from, region });
                    });
                }
                pieces.retain(|x| x.from != device);
                partners(&pieces)
            };
            // those behind its own part are one further
            let some = sample(others);
            let theirs = from(&mut some.iter().map(|k| k + usize::from(*k >= own)));
            messages += (theirs * others / some.len().max(1) + from(&mut [own].into_iter())) as u64;
        }
        let messages = messages * n as u64 / devices.len().max(1) as u64;
        Seen { messages, counted: n <= COUNTED, devices: Vec::new() }
    }
    /// The letters of small sums that are one exchange.
    pub(crate) fn small(&self, together: &[usize]) -> Seen {
        let p = self.p;
        let (mut elements, mut even, mut letters) = (0, true, 0);
        for k in together {
            let Step::Reduce { src, out, .. } = &p.steps[*k] else { continue };
            let (stored, to) = (&p.slots[*src], &p.slots[*out].layout);
            let Some((route, more)) = route::small(stored, to) else { continue };
            elements += more as usize;
            even &= stored.shape.elements()
                == more as usize * to.dims.iter().map(|l| l.ways()).product::<usize>();
            letters = route.letters(elements) * (p.devices / p.parts_gone(*src, *out).ways()) as u64;
        }
        Seen { messages: letters, counted: even, devices: Vec::new() }
    }
}

/// How many devices these pieces come from.
pub(crate) fn partners(pieces: &[Piece]) -> usize {
    let mut from: Vec<usize> = pieces.iter().map(|x| x.from).collect();
    sorted::sort(&mut from);
    from.dedup();
    from.len()
}
