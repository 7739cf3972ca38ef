//! Tile programs: straight-line instructions over tiles of at most 512 elements, for each box of an index space.

use super::expr::Mem;
use super::index::{Ix, MAX};
use crate::runtime::kernels::{Chain, Factors, Folded, Kernel, TERMS};

/// Most elements of a tile.
pub(crate) const TILE: i64 = 512;
/// Bytes of a register: a tile of elements of 4 bytes, or half a tile of 8.
pub(crate) const REGISTER: usize = 2048;

/// One instruction on a tile. Operands are numbers: registers first, then the segment's places in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instr {
    /// What runs.
    pub(crate) f: Kernel,
    /// What it writes.
    pub(crate) d: u16,
    /// What it reads.
    pub(crate) s: [u16; 3],
    /// Its constants.
    pub(crate) k: [f64; 4],
}

impl PartialEq for Instr {
    fn eq(&self, o: &Instr) -> bool {
        let bits = |k: &[f64; 4]| k.map(f64::to_bits);
        std::ptr::fn_addr_eq(self.f, o.f) && self.d == o.d && self.s == o.s && bits(&self.k) == bits(&o.k)
    }
}

/// A sum of many scaled operands on a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum {
    /// What runs.
    pub(crate) f: Chain,
    /// What it writes.
    pub(crate) d: u16,
    /// What it reads: as many as it has terms, and the first of them again.
    pub(crate) s: [u16; TERMS],
    /// Its constants.
    pub(crate) k: Factors,
}

impl PartialEq for Sum {
    fn eq(&self, o: &Sum) -> bool {
        let bits = |k: &Factors| (k.of.map(f64::to_bits), k.sum.to_bits());
        std::ptr::fn_addr_eq(self.f, o.f) && self.d == o.d && self.s == o.s && bits(&self.k) == bits(&o.k)
    }
}

/// What runs for each tile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Of up to three operands.
    One(Instr),
    /// Of many.
    Sum(Box<Sum>),
}

impl Step {
    /// All operands.
    pub(crate) fn operands(&mut self) -> impl Iterator<Item = &mut u16> {
        let (d, s) = match self {
            Step::One(i) => (&mut i.d, &mut i.s[..]),
            Step::Sum(i) => (&mut i.d, &mut i.s[..]),
        };
        std::iter::once(d).chain(s)
    }
}

/// An interval of the innermost index.
#[derive(Clone, Debug)]
pub(crate) struct Seg {
    /// Where it begins.
    pub(crate) lo: i64,
    /// Where it ends.
    pub(crate) hi: i64,
    /// Run once a row: constants and what is the same along the row.
    pub(crate) row: Vec<Instr>,
    /// Run for each tile.
    pub(crate) code: Vec<Step>,
    /// Places in memory.
    pub(crate) mems: Vec<Mem>,
    /// The operand that holds the value of a cell that stores nothing.
    pub(crate) result: u16,
    /// What the last instruction computes, if that is the value and there may be folds of it.
    pub(crate) folded: Option<Folded>,
}

impl Seg {
    fn same(&self, o: &Seg) -> bool {
        self.code == o.code && self.row == o.row && self.mems == o.mems && self.result == o.result
    }
}

/// A box of the outer indices in which the segments are the same.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    /// Where it begins.
    pub(crate) lo: Ix,
    /// Where it ends.
    pub(crate) hi: Ix,
    /// Its segments, in order.
    pub(crate) segs: Vec<Seg>,
}

/// The tile programs of an index space that begins at 0.
#[derive(Clone, Debug)]
pub(crate) struct Tiles {
    /// How many dimensions, at least 1.
    pub(crate) rank: usize,
    /// Their sizes.
    pub(crate) ext: Ix,
    /// What runs where.
    pub(crate) bands: Vec<Band>,
    /// Registers in use: operands from here on are in memory.
    pub(crate) regs: u16,
    /// Elements of a tile.
    pub(crate) tile: i64,
    /// Whether results go past the caches: a fence is due.
    pub(crate) stream: bool,
    /// Nanoseconds an element, roughly.
    pub(crate) weight: f64,
}

impl Tiles {
    /// How many elements.
    pub(crate) fn elements(&self) -> i64 {
        self.ext[..self.rank].iter().product()
    }
    /// Most operands of a segment.
    pub(crate) fn operands(&self) -> usize {
        let most = self.bands.iter().flat_map(|b| &b.segs).map(|s| s.mems.len()).max();
        self.regs as usize + most.unwrap_or(0)
    }
    /// Adds a band, joined with earlier ones where the segments agree.
    pub(crate) fn push(&mut self, mut b: Band) {
        let mut segs: Vec<Seg> = Vec::with_capacity(b.segs.len());
        for s in b.segs {
            match segs.last_mut() {
                Some(p) if p.hi == s.lo && p.same(&s) => p.hi = s.hi,
                _ => segs.push(s),
            }
        }
        b.segs = segs;
        let outer = self.rank - 1;
        loop {
            let alike = |p: &Band| {
                let mut differ = (0..outer).filter(|&d| p.lo[d] != b.lo[d] || p.hi[d] != b.hi[d]);
                let (Some(d), None) = (differ.next(), differ.next()) else { return false };
                let same = |x: &Seg, y: &Seg| x.lo == y.lo && x.hi == y.hi && x.same(y);
                p.hi[d] == b.lo[d]
                    && p.segs.len() == b.segs.len()
                    && p.segs.iter().zip(&b.segs).all(|(x, y)| same(x, y))
            };
            let Some(h) = self.bands.iter().rposition(alike) else { break };
            b.lo = self.bands.remove(h).lo;
        }
        self.bands.push(b);
    }
    /// Whether dimensions d and d + 1 are one to every operand.
    pub(crate) fn joinable(&self, d: usize) -> bool {
        let (a, b, last) = (d, d + 1, self.rank - 1);
        let eb = self.ext[b];
        let full = |bd: &Band| match b == last {
            true => bd.segs.len() == 1 && bd.segs[0].lo == 0 && bd.segs[0].hi == eb,
            false => bd.lo[b] == 0 && bd.hi[b] == eb,
        };
        let alike = |x: &Mem| x.st[a] == x.st[b] * eb;
        eb > 0 && self.bands.iter().all(|bd| full(bd) && bd.segs.iter().all(|s| s.mems.iter().all(alike)))
    }
    /// Joins dimensions d and d + 1.
    pub(crate) fn join(&mut self, d: usize) {
        let (a, b, last) = (d, d + 1, self.rank - 1);
        let (ea, eb) = (self.ext[a], self.ext[b]);
        for bd in &mut self.bands {
            if b == last
                && let Some(s) = bd.segs.first_mut()
            {
                (s.lo, s.hi) = (bd.lo[a] * eb, bd.hi[a] * eb);
            }
            if b != last {
                (bd.lo[b], bd.hi[b]) = (bd.lo[a] * eb, bd.hi[a] * eb);
            }
            for x in bd.segs.iter_mut().flat_map(|s| &mut s.mems) {
                x.st.copy_within(b.., a);
                x.st[MAX - 1] = 0;
            }
            for v in [&mut bd.lo, &mut bd.hi] {
                v.copy_within(b.., a);
            }
        }
        self.ext[b] = ea * eb;
        self.ext.copy_within(b.., a);
        self.ext[MAX - 1] = 1;
        self.rank -= 1;
    }
    /// Joins all that can be joined.
    pub(crate) fn collapse(&mut self) {
        for d in (0..self.rank.saturating_sub(1)).rev() {
            if self.joinable(d) {
                self.join(d);
            }
        }
    }
}
