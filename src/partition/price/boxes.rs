//! Boxes of digits: what readers fetch of a value where everything is split evenly.
//!
//! What a device holds, and what each reader wants of it, are the elements some of whose index's digits equal digits of the device's
//! position. So are the elements that several boxes share: on those devices on which digits that fix one place are equal, a system of equations
//! solved by union and find. The elements of any of the readers follow by inclusion and exclusion, in a time that grows with the number of
//! digits only.

use crate::partition::layout::DimLayout;
use crate::partition::price::factors::factored;
use crate::partition::price::reader::Fetch;
use crate::sharding::atoms::{Atom, primes};
use crate::sorted;
use std::collections::BTreeMap;

/// More readers that want different boxes are counted otherwise.
const READERS: usize = 6;

/// A digit of an index: of which dimension, and which.
type Place = (usize, Atom);
/// The elements of which these digits of the index equal digits of the device's position.
type Fixed = Vec<(Place, Atom)>;

/// What a fetch moves.
pub(super) struct Counted {
    /// By all devices; `None` where it cannot be counted.
    pub(super) total: Option<i64>,
    /// The most on one device, where that is plain.
    pub(super) max: Option<i64>,
}

/// Counts a fetch by its digits, if they say all of it.
pub(super) fn counted(f: &Fetch) -> Option<Counted> {
    let mut wanted: Vec<Fixed> = Vec::new();
    for r in f.readers {
        let mut own = Fixed::new();
        let factors = factored(f.slot, f.stored, r, true)?;
        let (mut dim, mut step) = (usize::MAX, 1);
        // minor digits first
        for x in factors.iter().rev() {
            if x.dim != dim {
                (dim, step) = (x.dim, 1);
            }
            own.extend(places(dim, step, x.size as usize, &x.wanted));
            step *= x.size as usize;
        }
        sorted::sort(&mut own);
        wanted.push(own);
    }
    let dims = f.stored.layout.dims.iter().zip(&f.stored.shape[..]).enumerate();
    let held = |(dim, (l, n)): (usize, (&DimLayout, &usize))| places(dim, 1, *n, &primes(&l.atoms));
    let mut held: Fixed = dims.flat_map(held).collect();
    sorted::sort(&mut held);
    let all: Vec<&(Place, Atom)> = wanted.iter().flatten().chain(&held).collect();
    let apart = |x: Atom, y: Atom| x == y || !x.clashes(y);
    for (i, (place, atom)) in all.iter().enumerate() {
        let others = all[..i].iter();
        if others.clone().any(|o| !apart(o.1, *atom) || o.0.0 == place.0 && !apart(o.0.1, place.1)) {
            return None;
        }
    }
    // who wants some of what another wants adds nothing
    sorted::sort_by_key(&mut wanted, Vec::len);
    let mut distinct: Vec<Fixed> = Vec::new();
    for own in wanted {
        if !distinct.iter().any(|more| within(&own, more)) {
            distinct.push(own);
        }
    }
    if distinct.len() > READERS {
        return None;
    }
    let elements = f.stored.shape.iter().fold(1i128, |n, d| n.saturating_mul(*d as i128));
    let devices = f.devices as i128;
    let (mut total, mut everywhere) = (0i128, true);
    for subset in 1u32..1 << distinct.len() {
        let chosen = || distinct.iter().enumerate().filter(|(k, _)| subset >> k & 1 == 1).map(|(_, own)| own);
        let (both, own) = (shared(chosen().chain([&held])), shared(chosen()));
        let count = |(parts, ways): (i128, i128)| (devices / ways) * (elements / parts);
        let n = i128::from(f.copies).saturating_mul(count(own)) - count(both);
        total += if subset.count_ones() % 2 == 1 { n } else { -n };
        everywhere &= both.1 == 1;
    }
    let max = match distinct.len() {
        // the same on each
        _ if everywhere => Some(total / devices),
        // on some device nothing of it is there
        1 => Some(i128::from(f.copies) * elements / shared([&distinct[0]]).0),
        _ => None,
    };
    let max = max.map(|m| i64::try_from(m).unwrap_or(i64::MAX));
    Some(Counted { total: i64::try_from(total).ok(), max })
}

/// The places of digits that split `size` neighbours of `step` elements each, major first.
fn places(dim: usize, step: usize, size: usize, digits: &[Atom]) -> Fixed {
    let mut left = size;
    let one = |a: &Atom| {
        left /= a.size;
        ((dim, Atom { stride: step * left, size: a.size }), *a)
    };
    digits.iter().map(one).collect()
}

/// Whether all elements of a box are in another, whatever the device.
fn within(own: &Fixed, other: &Fixed) -> bool {
    other.iter().all(|x| own.binary_search(x).is_ok())
}

/// Of what boxes share: one in how many elements it is, and on one in how many devices there is any.
fn shared<'a>(boxes: impl IntoIterator<Item = &'a Fixed>) -> (i128, i128) {
    let mut fixed: BTreeMap<Place, Atom> = BTreeMap::new();
    let mut equal: BTreeMap<Atom, Atom> = BTreeMap::new();
    let (mut parts, mut ways) = (1, 1);
    for (place, atom) in boxes.into_iter().flatten() {
        let Some(first) = fixed.get(place) else {
            fixed.insert(*place, *atom);
            parts *= atom.size as i128;
            continue;
        };
        let root = |mut a: Atom| {
            while let Some(b) = equal.get(&a) {
                a = *b;
            }
            a
        };
        let (a, b) = (root(*first), root(*atom));
        if a != b {
            equal.insert(a, b);
            ways *= a.size as i128;
        }
    }
    (parts, ways)
}
