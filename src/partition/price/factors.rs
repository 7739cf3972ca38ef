//! Factors of a value's indices: where both what is held and what a reader wants are boxes of digits.

use crate::partition::layout::DimLayout;
use crate::partition::price::reader::Reader;
use crate::partition::program::{Slot, Stored};
use crate::program::sentence::{Source, Span};
use crate::sharding::atoms::{Atoms, primes};
use crate::sorted;
use std::collections::BTreeSet;

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
        sorted::sort_by_key(&mut terms, |t| std::cmp::Reverse(t.1));
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
    sorted::sort(&mut all);
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
