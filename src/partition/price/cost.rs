//! What a fetch moves, in a time that does not grow with the number of devices.
//!
//! Three ways, tried in order. *Aligned digits*: where everything divides, held and wanted blocks meet if digits of the device
//! position are equal. *Linear ends*: where every end of an interval is linear in one coordinate, the count is a polynomial
//! between the places where ends cross, and a few devices in each piece say all. *Irregular*: the digits that matter are
//! enumerated, or sampled where they are too many.

use crate::partition::layout::DimLayout;
use crate::partition::price::lines::{Variable, lines};
use crate::partition::price::reader::Reader;
use crate::partition::program::{Slot, Stored};
use crate::partition::reads::read_boxes;
use crate::partition::region::{beyond, loop_box, volume};
use crate::program::sentence::{Source, Span};
use crate::sharding::atoms::{Atom, Atoms, ways};
use crate::sharding::atoms::{clash, primes};
use std::collections::BTreeSet;

/// Elements received.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub(crate) struct Cost {
    /// The most on one device.
    pub(crate) max: i64,
    /// By all devices.
    pub(crate) total: i64,
    /// Whether the figures are exact.
    pub(crate) exact: bool,
}

/// How many combinations of irregular digits are looked at.
pub(crate) const SAMPLE: usize = 512;

/// What fetching `slot` for these readers moves; if `copies` parts of it are combined, all of them are asked. At most `most`
/// combinations of irregular digits are looked at.
pub(crate) fn cost(
    devices: usize,
    slot: Slot,
    stored: &Stored,
    readers: &[Reader],
    copies: i64,
    most: usize,
) -> Cost {
    let c = symbolic(devices, slot, stored, readers, copies, most);
    #[cfg(test)]
    if c.exact && crate::partition::tests::verifies() {
        let each: Vec<i64> = (0..devices).map(|d| received(slot, stored, readers, copies, d)).collect();
        let max = each.iter().copied().max().unwrap_or(0);
        assert_eq!((c.max, c.total), (max, each.iter().sum()), "{stored:?}\n{readers:?}");
    }
    c
}

fn symbolic(
    devices: usize,
    slot: Slot,
    stored: &Stored,
    readers: &[Reader],
    copies: i64,
    most: usize,
) -> Cost {
    let received = |device: usize| received(slot, stored, readers, copies, device);
    if let Some(c) = digits(devices, slot, stored, readers, copies) {
        return c;
    }
    let mut lists: Vec<Atoms> = Vec::new();
    for l in stored.layout.dims.iter().chain(readers.iter().flat_map(|r| r.layout)) {
        if !l.atoms.is_empty() && !lists.contains(&l.atoms) {
            lists.push(l.atoms.clone());
        }
    }
    let clean = lists.iter().enumerate().all(|(i, a)| lists[..i].iter().all(|b| !clash(a, b)));
    if clean && let Some(vars) = lines(slot, stored, readers, &lists) {
        let mut c = Cost { exact: true, ..Cost::default() };
        let spare = devices / lists.iter().map(|l| ways(l)).product::<usize>().max(1);
        c.total = (spare as i64).saturating_mul(sum(&vars, 0, &received, &mut c));
        return c;
    }
    let mut atoms: Atoms = lists.into_iter().flatten().collect();
    atoms.sort();
    atoms.dedup();
    let apart = atoms.iter().enumerate().all(|(i, a)| atoms[..i].iter().all(|b| !a.clashes(*b)));
    let all = DimLayout { atoms, block: 1, origin: 0 };
    let n = if apart { all.ways() } else { devices };
    let sample = n.min(most);
    let mut c = Cost { exact: sample == n, ..Cost::default() };
    for k in 0..sample {
        let r = k * n / sample;
        let x = received(if apart { all.place(0, r) } else { r });
        c.max = c.max.max(x);
        c.total = c.total.saturating_add(x);
    }
    let total = i128::from(c.total) * devices as i128 / sample.max(1) as i128;
    c.total = i64::try_from(total).unwrap_or(i64::MAX);
    c
}

/// Elements that a device receives.
fn received(slot: Slot, stored: &Stored, readers: &[Reader], copies: i64, device: usize) -> i64 {
    let mut wanted = Vec::new();
    for r in readers {
        let loops = loop_box(r.layout, &r.sentence.extents, device);
        read_boxes(r.sentence, r.read, slot, &stored.shape, &loops, &mut wanted);
    }
    let others = if copies > 1 {
        (copies - 1) * beyond(wanted.clone(), &mut Vec::new()).iter().map(|b| volume(b)).sum::<i64>()
    } else {
        0
    };
    let mut held = vec![stored.layout.region(&stored.shape, device)];
    others + beyond(wanted, &mut held).iter().map(|b| volume(b)).sum::<i64>()
}

/// The sum over all coordinates of a function that is a polynomial between nodes, by forward differences.
fn sum(vars: &[Variable], device: usize, f: &dyn Fn(usize) -> i64, c: &mut Cost) -> i64 {
    let Some((v, rest)) = vars.split_first() else {
        let x = f(device);
        c.max = c.max.max(x);
        return x;
    };
    let mut total = 0i64;
    for w in v.nodes.windows(2) {
        let m = w[1] - w[0];
        let mut at = |r: i64| sum(rest, v.along.place(device, r as usize), f, c);
        let mut d: Vec<i64> = (0..m.min(v.degree + 1)).map(|k| at(w[0] + k)).collect();
        if m > v.degree + 1 {
            // a polynomial may have its largest value at either end
            at(w[1] - 1);
        }
        let mut binomial = 1i128;
        for k in 0..d.len() as i64 {
            binomial = binomial * i128::from(m - k) / i128::from(k + 1);
            let term = binomial.saturating_mul(i128::from(d[0]));
            total = total.saturating_add(term.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64);
            d = d.windows(2).map(|p| p[1] - p[0]).collect();
        }
    }
    total
}

/// One factor of a space in which both what is held and what is wanted are boxes.
pub(crate) struct Factor {
    /// Its size.
    pub(crate) size: i64,
    /// The dimension of the stored value.
    pub(crate) dim: usize,
    /// The prime digits that split what is held.
    pub(crate) held: Atoms,
    /// The prime digits that split what is wanted.
    pub(crate) wanted: Atoms,
}

/// The factors of a read that takes all of a value; if `evenly`, only where both sides are split into equal blocks.
pub(crate) fn factored(slot: Slot, stored: &Stored, r: &Reader, evenly: bool) -> Option<Vec<Factor>> {
    let even = |l: &DimLayout, n: usize| {
        l.origin == 0 && n.is_multiple_of(l.ways()) && l.block as usize * l.ways() == n
    };
    let s = r.sentence;
    let all = stored.layout.dims.iter().zip(&stored.shape[..]).chain(r.layout.iter().zip(&s.extents));
    if evenly && !all.into_iter().all(|(l, n)| even(l, *n)) {
        return None;
    }
    let held: Vec<&Atoms> = stored.layout.dims.iter().map(|l| &l.atoms).collect();
    if !s.body.reads_by_position() {
        let sizes = refine(&stored.shape, &s.extents)?;
        let a = spread(&stored.shape, &held, &sizes)?;
        let b = spread(&s.extents, &r.layout.iter().map(|l| &l.atoms).collect::<Vec<_>>(), &sizes)?;
        let mut dims = Vec::new();
        for (d, n) in stored.shape.iter().enumerate() {
            let (mut left, mut k) = (*n, dims.len());
            if left == 1 && sizes.get(k) == Some(&1) {
                dims.push(d);
            }
            while left > 1 {
                left /= sizes[k];
                dims.push(d);
                k += 1;
            }
        }
        let each = sizes.iter().zip(a).zip(b).zip(dims);
        return Some(
            each.map(|(((n, held), wanted), dim)| Factor { size: *n as i64, dim, held, wanted }).collect(),
        );
    }
    let [part] = &s.reads[r.read].parts[..] else { return None };
    if part.from != Source::Value(slot) || !part.span.iter().zip(&s.extents).all(|(v, n)| *v == Span::all(*n))
    {
        return None;
    }
    let mut used = BTreeSet::new();
    let mut factors = Vec::new();
    for (dim, (m, n)) in part.map.iter().zip(&stored.shape[..]).enumerate() {
        if m.at != 0 {
            return None;
        }
        let mut terms: Vec<(usize, i64)> = m.terms.iter().copied().filter(|t| s.extents[t.0] > 1).collect();
        terms.sort_by_key(|t| std::cmp::Reverse(t.1));
        let mut step = *n as i64;
        let mut sizes = Vec::new();
        for (l, c) in &terms {
            let size = s.extents[*l];
            if !used.insert(*l) || c * size as i64 != step {
                return None;
            }
            step = *c;
            sizes.push(size);
        }
        if step != 1 {
            return None;
        }
        if sizes.is_empty() {
            continue;
        }
        // a dimension of one loop need not divide
        let pieces = match sizes[..] {
            [_] => vec![primes(held[dim])],
            _ => spread(&[*n], &[held[dim]], &sizes)?,
        };
        for ((l, _), own) in terms.iter().zip(pieces) {
            let wanted = primes(&r.layout[*l].atoms);
            factors.push(Factor { size: s.extents[*l] as i64, dim, held: own, wanted });
        }
    }
    Some(factors)
}

/// Aligned digits: what is held and wanted meets where digits are equal, a system of equations solved by union and find.
fn digits(devices: usize, slot: Slot, stored: &Stored, readers: &[Reader], copies: i64) -> Option<Cost> {
    let [reader] = readers else { return None };
    let factors = factored(slot, stored, reader, true)?;
    let all: BTreeSet<Atom> = factors.iter().flat_map(|f| f.held.iter().chain(&f.wanted)).copied().collect();
    let all: Vec<Atom> = all.into_iter().collect();
    if all.iter().enumerate().any(|(i, a)| all[..i].iter().any(|b| a.clashes(*b))) {
        return None;
    }
    let mut root: Vec<usize> = (0..all.len()).collect();
    let (mut matching, mut overlap, mut need) = (devices as i64, 1i64, 1i64);
    for f in &factors {
        for (x, y) in f.held.iter().zip(&f.wanted) {
            if x.size != y.size {
                return None;
            }
            let find = |a: &Atom| {
                let mut i = all.binary_search(a).unwrap_or(0);
                while root[i] != i {
                    i = root[i];
                }
                i
            };
            let (i, j) = (find(x), find(y));
            if i != j {
                root[i] = j;
                matching /= x.size as i64;
            }
        }
        overlap *= f.size / (ways(&f.held).max(ways(&f.wanted)) as i64);
        need *= f.size / ways(&f.wanted) as i64;
    }
    let all_match = matching == devices as i64;
    // each device's elements can be counted, those of all devices not always
    let each = i128::from(copies) * i128::from(need);
    let total = devices as i128 * each - i128::from(matching) * i128::from(overlap);
    Some(Cost {
        max: i64::try_from(each - if all_match { i128::from(overlap) } else { 0 }).unwrap_or(i64::MAX),
        total: i64::try_from(total).unwrap_or(i64::MAX),
        exact: i64::try_from(total).is_ok(),
    })
}

/// The common refinement of two shapes of one size, major to minor; `None` if a piece of one does not divide one of the other.
fn refine(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let cuts = |s: &[usize]| -> Vec<usize> {
        s.iter()
            .scan(1, |p, n| {
                *p *= n;
                Some(*p)
            })
            .collect()
    };
    let mut all: Vec<usize> = cuts(a).into_iter().chain(cuts(b)).collect();
    all.sort_unstable();
    all.dedup();
    let mut before = 1;
    all.iter()
        .map(|c| {
            let f = (before != 0 && c.is_multiple_of(before)).then(|| c / before);
            before = *c;
            f
        })
        .collect()
}

/// Hands the digits of each dimension out to its factors, major first; `None` where a block would be strided.
fn spread(shape: &[usize], atoms: &[&Atoms], sizes: &[usize]) -> Option<Vec<Atoms>> {
    let mut out: Vec<Atoms> = Vec::new();
    let mut k = 0;
    for (n, atoms) in shape.iter().zip(atoms) {
        let (mut left, mut atoms) = (*n, primes(atoms).into_iter().peekable());
        if left == 1 && sizes.get(k) == Some(&1) {
            out.push(Atoms::new());
            k += 1;
        }
        while left > 1 {
            let size = *sizes.get(k)?;
            let (mut room, mut here) = (size, Atoms::new());
            while let Some(a) = atoms.next_if(|a| room.is_multiple_of(a.size)) {
                room /= a.size;
                here.push(a);
            }
            if room > 1 && left > size && atoms.peek().is_some() {
                return None;
            }
            out.push(here);
            left /= size;
            k += 1;
        }
        if atoms.next().is_some() {
            return None;
        }
    }
    (out.len() == sizes.len()).then_some(out)
}
