//! What devices receive in a step: all of them, or of many some. Equal steps are looked at once.

use crate::partition::pieces::Piece;
use crate::partition::program::{Need, Slot, SpmdProgram, Step};
use crate::partition::region::volume;
use crate::partition::route;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Up to this many devices those of each are counted.
const COUNTED: usize = 64;
/// How many devices are looked at beyond.
const SAMPLE: usize = 16;

/// What some devices receive in a step.
pub(crate) struct Seen {
    /// Messages of all devices.
    pub(crate) messages: u64,
    /// Whether those of each device were counted.
    pub(crate) counted: bool,
    /// From how many others the busiest of the devices that were looked at receives something.
    pub(crate) most: usize,
    /// The devices that were looked at, and what of a fetch is not theirs: there are as many boxes as devices that send something, and few names
    /// need them.
    pieces: OnceCell<Vec<(usize, Vec<Piece>)>>,
}

impl Seen {
    fn of(messages: u64, counted: bool, most: usize) -> Seen {
        Seen { messages, counted, most, pieces: OnceCell::new() }
    }
    /// The devices that were looked at in fetch `k` of a program, and what each receives.
    pub(crate) fn pieces(&self, p: &SpmdProgram, k: usize) -> &[(usize, Vec<Piece>)] {
        self.pieces.get_or_init(|| {
            let of = |device: usize| {
                let mut pieces = p.pieces(k, device);
                pieces.retain(|x| x.from != device);
                (device, pieces)
            };
            sample(p.devices).into_iter().map(of).collect()
        })
    }
}

/// All of n, or from so many on some of them: the first, the last, and others between.
fn sample(n: usize) -> Vec<usize> {
    if n <= COUNTED { (0..n).collect() } else { (0..SAMPLE).map(|k| k * (n - 1) / (SAMPLE - 1)).collect() }
}

/// Counts messages, where `of` says from how many others one of n devices receives something.
fn counted(n: usize, of: impl Fn(usize) -> usize) -> Seen {
    let devices = sample(n);
    let (all, most) = devices.iter().map(|d| of(*d)).fold((0, 0), |(all, most), m| (all + m, most.max(m)));
    Seen::of(all as u64 * n as u64 / devices.len().max(1) as u64, n <= COUNTED, most)
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
    /// From how many others devices receive what these readers need.
    pub(crate) fn fetched(&self, src: Slot, needs: &[Need]) -> Seen {
        let (n, layout) = (self.p.devices, &self.p.slots[src].layout);
        counted(n, |device| layout.others(device, &self.p.missing(src, needs, device)))
    }
    /// From how many others devices read where `src` is reduced to `out`.
    pub(crate) fn combined(&self, src: Slot, out: Slot) -> Seen {
        let (p, n) = (self.p, self.p.devices);
        let (parts, stored) = (p.parts_gone(src, out), &p.slots[src]);
        counted(n, |device| {
            let wanted = p.slots[out].layout.region(&stored.shape, device);
            // as many devices have something of it in each of the others' parts; one of its own part may be itself
            let holders = volume(&stored.layout.owners(&wanted)) as usize;
            let own = stored.layout.others(device, std::slice::from_ref(&wanted));
            own + if volume(&wanted) == 0 || p.own_part(src) { 0 } else { holders * (parts.ways() - 1) }
        })
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
        Seen::of(letters, even, 0)
    }
}
