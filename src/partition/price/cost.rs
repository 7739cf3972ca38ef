//! What a fetch moves, in a time that does not grow with the number of devices.
//!
//! Three ways, tried in order. *Aligned digits* (`boxes`): where everything divides, held and wanted blocks meet if digits of the device
//! position are equal. *Linear ends*: where every end of an interval is linear in one coordinate, the count is a polynomial
//! between the places where ends cross, and a few devices in each piece say all. *Irregular*: the digits that matter are
//! enumerated, or sampled where they are too many.

use crate::partition::layout::DimLayout;
use crate::partition::price::boxes::{Counted, counted};
use crate::partition::price::lines::{Variable, lines};
use crate::partition::price::reader::Fetch;
use crate::partition::reads::read_boxes;
use crate::partition::region::{beyond, loop_box, volume};
use crate::sharding::atoms::{Atoms, clash, ways};
use crate::sorted;

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

impl Fetch<'_> {
    /// What it moves; at most `most` combinations of irregular digits are looked at.
    pub(crate) fn cost(&self, most: usize) -> Cost {
        let c = self.symbolic(most);
        #[cfg(test)]
        if c.exact && crate::partition::tests::verifies() {
            let each: Vec<i64> = (0..self.devices).map(|d| self.received(d)).collect();
            let max = each.iter().copied().max().unwrap_or(0);
            let (stored, readers) = (self.stored, self.readers);
            assert_eq!((c.max, c.total), (max, each.iter().sum()), "{stored:?}\n{readers:?}");
        }
        c
    }
    /// What all devices receive together, and whether that is exact. It is known more often than what the busiest device receives.
    pub(crate) fn total(&self, most: usize) -> (i64, bool) {
        match counted(self) {
            Some(Counted { total: Some(total), .. }) => {
                #[cfg(test)]
                if crate::partition::tests::verifies() {
                    let sum: i64 = (0..self.devices).map(|d| self.received(d)).sum();
                    assert_eq!(total, sum, "{:?}\n{:?}", self.stored, self.readers);
                }
                (total, true)
            }
            _ => {
                let c = self.cost(most);
                (c.total, c.exact)
            }
        }
    }

    fn symbolic(&self, most: usize) -> Cost {
        let Fetch { devices, stored, readers, .. } = *self;
        let counted = counted(self);
        if let Some(Counted { total, max: Some(max) }) = counted {
            return Cost { max, total: total.unwrap_or(i64::MAX), exact: total.is_some() };
        }
        let mut lists: Vec<Atoms> = Vec::new();
        for l in stored.layout.dims.iter().chain(readers.iter().flat_map(|r| r.layout)) {
            if !l.atoms.is_empty() && !lists.contains(&l.atoms) {
                lists.push(l.atoms.clone());
            }
        }
        let clean = lists.iter().enumerate().all(|(i, a)| lists[..i].iter().all(|b| !clash(a, b)));
        if clean && let Some(vars) = lines(self.slot, stored, readers, &lists) {
            let mut c = Cost { exact: true, ..Cost::default() };
            let spare = devices / lists.iter().map(|l| ways(l)).product::<usize>().max(1);
            c.total = (spare as i64).saturating_mul(sum(&vars, 0, &|d| self.received(d), &mut c));
            return c;
        }
        let mut atoms: Atoms = lists.into_iter().flatten().collect();
        sorted::sort(&mut atoms);
        atoms.dedup();
        let apart = atoms.iter().enumerate().all(|(i, a)| atoms[..i].iter().all(|b| !a.clashes(*b)));
        let all = DimLayout { atoms, block: 1, origin: 0 };
        let n = if apart { all.ways() } else { devices };
        let sample = n.min(most);
        let mut c = Cost { exact: sample == n, ..Cost::default() };
        for k in 0..sample {
            let r = k * n / sample;
            let x = self.received(if apart { all.place(0, r) } else { r });
            c.max = c.max.max(x);
            c.total = c.total.saturating_add(x);
        }
        let total = i128::from(c.total) * devices as i128 / sample.max(1) as i128;
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        c.total = counted.and_then(|c| c.total).unwrap_or(total);
        c
    }

    /// Elements that a device receives.
    fn received(&self, device: usize) -> i64 {
        let Fetch { slot, stored, readers, copies, .. } = *self;
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
