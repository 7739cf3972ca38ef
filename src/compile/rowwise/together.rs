//! Programs of a row that run together, tile by tile: what one makes the next ones read at once, and what none but they read has room for one
//! tile. A sum of products that nobody else reads takes their factors.
//!
//! Each program computes what it computes by itself, and folds add in the order in which they did: no bit depends on this.

use super::{Folding, Part, Place, RowWise};
use crate::compile::expr::POSITION;
use crate::compile::kernel::{self, ACCUMULATOR, Tree};
use crate::compile::tiles::{Instr, Step};
use crate::program::sentence::{Combine, Fun};
use crate::runtime::kernels::{self, Along, Folded, Kernel};
use crate::types::DType;
use std::ops::Range;

/// Most programs that run together.
const MOST: usize = 8;

/// Whether a place is of one element behind the other.
fn dense(x: &Place) -> bool {
    x.each == i64::from(x.size)
}

impl Part {
    fn operands(&self) -> usize {
        self.registers.len() + self.places.len()
    }
    /// How often the tiles' instructions write and read each place, in this order.
    fn uses(&self, place: usize) -> (usize, usize) {
        let at = (self.registers.len() + place) as u16;
        let (mut writes, mut reads) = (0, 0);
        for mut step in self.code.iter().cloned() {
            let mut all = step.operands();
            writes += usize::from(all.next().is_some_and(|d| *d == at));
            reads += usize::from(all.any(|s| *s == at));
        }
        (writes, reads)
    }
    /// Whether that place is where it leaves its sum.
    fn sum(&self, place: usize) -> bool {
        self.fold.is_some() && place + 1 == self.places.len()
    }
    fn writes(&self, place: usize) -> bool {
        self.sum(place) || self.uses(place).0 > 0
    }
    /// Whether it folds what is in memory.
    fn folds_only(&self) -> bool {
        let plain = |i: &Instr, f: &Folding| {
            i.s == [0; 3] && kernels::fold_row(Folded::Plain, f.of.0, f.of.1).is_some_and(|f| same(f, i.f))
        };
        let all = self.fold.as_ref().is_some_and(|(f, _)| self.last.as_ref().is_none_or(|i| plain(i, f)));
        all && self.code.is_empty() && self.registers.is_empty()
    }
}

/// Whether a program may run together with those before it.
fn joins(stage: &[Part], q: &Part) -> bool {
    let alike = |p: &Part| p.n == q.n && p.tile == q.tile && p.row.is_empty();
    if stage.len() == MOST || q.n == 1 || !q.row.is_empty() || !stage.iter().all(alike) {
        return false;
    }
    let mut reads = false;
    for (j, x) in q.places.iter().enumerate().filter(|(_, x)| x.slot != POSITION) {
        for (p, k, y) in stage.iter().flat_map(|p| p.places.iter().enumerate().map(move |(k, y)| (p, k, y))) {
            if x.slot != y.slot {
                continue;
            }
            if p.writes(k) {
                // each element where it was made, and no sum before all of it is there
                if p.sum(k) || q.writes(j) || x != y || !dense(x) {
                    return false;
                }
                reads = true;
            } else if q.writes(j) {
                return false;
            }
        }
        // a result may be in the place of an argument: then all go through it side by side
        let result = !x.strip && x.row != 0 && q.writes(j) && !q.sum(j);
        let beside = |y: &Place| y.strip || y.row == 0 || (y.off, y.row, y.each) == (x.off, x.row, x.each);
        let line = kernels::LINE as i64;
        if result
            && (x.row % line != 0
                || x.off % line != 0
                || !stage.iter().chain([q]).all(|p| p.places.iter().all(beside)))
        {
            return false;
        }
    }
    reads
}

impl RowWise {
    /// Finds which programs run together.
    pub(super) fn gather(&mut self) {
        self.stages.clear();
        let mut first = 0;
        for k in 1..=self.parts.len() {
            if k == self.parts.len() || !joins(&self.parts[first..k], &self.parts[k]) {
                self.stages.push(first..k);
                first = k;
            }
        }
        for stage in self.stages.clone().into_iter().filter(|s| s.len() > 1) {
            self.local(&stage);
            for f in stage.clone() {
                self.take_over(&stage, f);
            }
            for f in stage.skip(1) {
                self.square(f);
            }
        }
    }
    /// Which stage a program is in.
    pub(crate) fn stage(&self, part: usize) -> usize {
        self.stages.iter().position(|s| s.contains(&part)).unwrap_or(part)
    }
    /// Whether a value is read for the last time in the program that is the first to make another one, element by element, and no
    /// instruction reads it that writes the other or comes later: then the other may be where it was.
    pub(crate) fn takes_place(&self, was: u32, is: u32) -> bool {
        let place = |p: &Part, slot: u32| {
            let mut all = p.places.iter().enumerate().filter(|(_, x)| x.slot == slot);
            all.next().filter(|_| all.next().is_none()).map(|(k, x)| (k, *x))
        };
        let has = |p: &Part, slot: u32| p.places.iter().any(|x| x.slot == slot);
        let Some(by) = self.parts.iter().position(|p| has(p, is)) else { return false };
        let p = &self.parts[by];
        let (Some((a, x)), Some((b, y))) = (place(p, was), place(p, is)) else { return false };
        let own = p.registers.len();
        let (a, b) = ((own + a) as u16, (own + b) as u16);
        let mut made = false;
        for mut step in p.code.iter().cloned() {
            let mut all = step.operands();
            made |= all.next().is_some_and(|d| *d == b);
            if made && all.any(|s| *s == a) {
                return false;
            }
        }
        let alike = (x.off, x.row, x.each, x.size) == (y.off, y.row, y.each, y.size);
        made && alike && p.last.is_none() && !self.parts[by + 1..].iter().any(|p| has(p, was))
    }
    /// Whether no program but those of a stage has this slot.
    fn within(&self, stage: &Range<usize>, slot: u32) -> bool {
        let has = |p: &Part| p.places.iter().any(|x| x.slot == slot);
        !self.parts.iter().enumerate().any(|(k, p)| !stage.contains(&k) && has(p))
    }
    /// What only a stage's programs read has room for one tile.
    fn local(&mut self, stage: &Range<usize>) {
        let made = self.parts[stage.clone()].iter().flat_map(|p| {
            let strip = |(k, x): &(usize, &Place)| x.slot != POSITION && x.strip && p.uses(*k).0 > 0;
            p.places.iter().enumerate().filter(strip).map(|(_, x)| x.slot)
        });
        for slot in made.filter(|s| self.within(stage, *s)).collect::<Vec<u32>>() {
            for x in self.parts[stage.clone()].iter_mut().flat_map(|p| &mut p.places) {
                if x.slot == slot {
                    x.each = 0;
                }
            }
        }
    }
    /// A fold of what one instruction of the program before it makes for it alone computes that itself: products, or multiples.
    fn take_over(&mut self, stage: &Range<usize>, f: usize) {
        let fold = &self.parts[f];
        let row = |f: (Folding, u16)| kernels::fold_row(Folded::Products, f.0.of.0, f.0.of.1);
        let (Some(products), Some(made)) = (fold.fold.and_then(row), fold.places.first()) else { return };
        // (what only folds writes no registers)
        let folds = |p: &Part| p.fold.is_some() && p.code.is_empty();
        let Some(by) = (stage.start..f).rev().find(|k| !folds(&self.parts[*k])) else { return };
        let p = &self.parts[by];
        let own = p.registers.len();
        let Some(k) = p.places.iter().position(|x| x.slot == made.slot) else { return };
        let readers =
            self.parts[stage.clone()].iter().flat_map(|p| &p.places).filter(|x| x.slot == made.slot);
        if !fold.folds_only() || made.each != 0 || !made.strip || readers.count() != 2 || p.uses(k) != (1, 0)
        {
            return;
        }
        let to = (own + k) as u16;
        let makes = |step: &Step| step.clone().operands().next().is_some_and(|d| *d == to);
        let Some(at) = p.code.iter().position(makes) else { return };
        let Step::One(i) = &p.code[at] else { return };
        let mul = kernels::select(Fun::Mul, DType::F32, DType::F32);
        let lin = kernels::lin(DType::F32, 1);
        let nothing = (-0.0f64).to_bits();
        let (of, two) = match kernels::fold_scaled(Combine::Add, DType::F32) {
            _ if mul.is_some_and(|f| same(f, i.f)) => (products, [i.s[0], i.s[1]]),
            Some(f) if i.k[1].to_bits() == nothing && lin.is_some_and(|f| same(f, i.f)) => (f, [i.s[0]; 2]),
            _ => return,
        };
        let kept = |step: &Step| step.clone().operands().next().is_none_or(|d| !two.contains(d));
        if !p.code[at + 1..].iter().all(kept) {
            return;
        }
        let k = i.k;
        let (mut registers, mut places) = (Vec::new(), Vec::new());
        for x in two.map(usize::from) {
            if x < own {
                registers.push(p.registers[x]);
            } else {
                places.push(p.places[x - own]);
            }
        }
        let mut next = [0, registers.len() as u16];
        let [x, y] = two.map(|x| {
            let n = &mut next[usize::from(usize::from(x) >= own)];
            *n += 1;
            *n - 1
        });
        self.parts[by].code.remove(at);
        let fold = &mut self.parts[f];
        places.extend(fold.places.last().copied());
        (fold.registers, fold.places) = (registers, places);
        fold.last = Some(Instr { f: of, d: 0, s: [x, y, x], k });
    }
    /// A fold of squares makes what it squares, where that is a row less one of its numbers: the last that the program before it makes.
    fn square(&mut self, f: usize) {
        let (before, rest) = self.parts.split_at_mut(f);
        let (Some(p), Some(fold)) = (before.last_mut(), rest.first_mut()) else { return };
        let (Some(last), Some(out)) = (fold.last, fold.places.last().copied()) else { return };
        let products =
            kernels::fold_row(Folded::Products, Combine::Add, DType::F32).is_some_and(|f| same(f, last.f));
        let lin = kernels::along_one(Along::Lin2, 2, DType::F32, false);
        let (Some(Step::One(i)), Some(made)) =
            (p.code.last(), kernels::fold_squares(Combine::Add, DType::F32))
        else {
            return;
        };
        let place = |p: &Part, x: u16| usize::from(x).checked_sub(p.registers.len()).map(|x| p.places[x]);
        let (Some(a), Some(b), Some(d)) = (place(p, i.s[0]), place(p, i.s[1]), place(p, i.d)) else { return };
        let squares =
            products && fold.code.is_empty() && last.s[..2].iter().all(|x| place(fold, *x) == Some(d));
        if p.fold.is_some() || !squares || !lin.is_some_and(|f| same(f, i.f)) {
            return;
        }
        let last = Instr { f: made, d: 0, s: [0, 1, 2], k: i.k };
        (fold.registers, fold.places, fold.last) = (Vec::new(), vec![a, b, d, out], Some(last));
        p.code.pop();
    }
}

fn same(f: Kernel, g: Kernel) -> bool {
    std::ptr::fn_addr_eq(f, g)
}

/// All tiles of a row of programs that run together.
///
/// # Safety
/// As for [`RowWise::run`]; the table has where their operands are in this row.
pub(super) unsafe fn run(parts: &[Part], now: &mut [*mut u8], sums: *mut u8) {
    let Some(Part { n, tile, .. }) = parts.first() else { return };
    let at = |p: usize, k: usize| sums.wrapping_add(p * ACCUMULATOR + k * kernels::LINE);
    let (mut left, tile) = (*n, *tile);
    let mut tree = Tree::new(0);
    // SAFETY: the caller's; sums of 2⁶³ units are as many lines as an accumulator has
    unsafe {
        loop {
            let n = left.min(tile);
            for (k, p) in parts.iter().enumerate() {
                let now = &now[p.at..];
                match &p.fold {
                    Some(_) => p.unit(now, n, at(k, tree.depth)),
                    None => kernel::execute(&p.code, now, n),
                }
            }
            tree.pushed(|a, b| merge(parts, at, a, b));
            left -= n;
            if left == 0 {
                break;
            }
            for p in parts {
                p.next(&mut now[p.at..p.at + p.operands()], n);
            }
        }
        tree.end(|a, b| merge(parts, at, a, b));
        for (k, p) in parts.iter().enumerate() {
            if let Some((f, _)) = &p.fold {
                std::ptr::copy_nonoverlapping(at(k, 0), now[p.at + p.operands() - 1], f.size);
            }
        }
    }
}

/// The sums of all programs that wait at a take up those at b.
///
/// # Safety
/// There are such sums.
#[inline(always)]
unsafe fn merge(parts: &[Part], at: impl Fn(usize, usize) -> *mut u8, a: usize, b: usize) {
    for (k, p) in parts.iter().enumerate() {
        if let Some((f, _)) = &p.fold {
            // SAFETY: the caller's
            unsafe { (f.combine)(1, at(k, a), at(k, a), at(k, b), at(k, b), &[0.0; 4]) }
        }
    }
}
