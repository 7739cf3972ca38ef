//! Programs that run one behind the other on a row, then on the next one. Their places in memory go on by steps, so that a row costs little beside
//! its instructions; and what reads memory, computes and stores takes turns so quickly that none waits for another.

mod together;

use super::expr::{Mem, POSITION};
use super::kernel::{self, Scratch};
use super::tiles::{Instr, REGISTER, Seg, Step, Tiles};
use crate::program::sentence::Combine;
use crate::runtime::kernels::{self, Folded, Kernel};
use crate::types::DType;
use std::ops::Range;

/// How a row becomes one element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folding {
    /// Folds a unit.
    pub(crate) fold: Kernel,
    /// How elements of which type are combined.
    pub(crate) of: (Combine, DType),
    /// Combines two elements.
    pub(crate) combine: Kernel,
    /// Elements of a unit.
    pub(crate) unit: i64,
    /// Where results are.
    pub(crate) out: u32,
    /// Bytes from one row's result to the next.
    pub(crate) step: i64,
    /// Bytes of a result.
    pub(crate) size: usize,
}

impl Folding {
    /// What folds in one loop: what the last instruction makes, which is gone then, or what is in memory; and whether it takes rows of any length.
    fn in_one_loop(
        &self,
        s: &Seg,
        regs: u16,
        places: &[Place],
        code: &mut Vec<Step>,
    ) -> (Option<Instr>, bool) {
        let of = |what: Folded| kernels::fold_row(what, self.of.0, self.of.1);
        // an element for each index, in memory
        let there = |x: u16| {
            let place = usize::from(x).checked_sub(usize::from(regs)).and_then(|x| places.get(x));
            place.is_some_and(|x| x.each == i64::from(x.size))
        };
        let (one, reads) = match (s.folded.and_then(of), code.last()) {
            (Some(f), Some(Step::One(i))) => {
                let one = Instr { f, ..*i };
                code.pop();
                (one, there(one.s[0]) && (s.folded != Some(Folded::Products) || there(one.s[1])))
            }
            _ => {
                let (Some(f), true) = (of(Folded::Plain), there(s.result)) else { return (None, false) };
                (Instr { f, d: s.result, s: [s.result; 3], k: [0.0; 4] }, true)
            }
        };
        (Some(one), reads && code.is_empty() && self.unit == kernels::UNIT as i64)
    }
}

/// An operand in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    slot: u32,
    /// Byte at row 0.
    off: i64,
    /// Bytes from one row to the next.
    row: i64,
    /// Whether there is room for the rows of a block only.
    strip: bool,
    /// Bytes from one element to the next.
    each: i64,
    size: u8,
}

/// One of the programs.
#[derive(Clone, Debug)]
struct Part {
    /// Elements of a row.
    n: i64,
    /// Whether each row is one element, the next one behind it.
    flat: bool,
    /// Elements of a tile.
    tile: i64,
    /// Run before the first row: constants.
    once: Vec<Instr>,
    /// Run once a row.
    row: Vec<Instr>,
    /// Run for each tile.
    code: Vec<Step>,
    /// Where its registers are.
    registers: Vec<u16>,
    /// Its operands in memory, behind its registers; a fold's result is the last.
    places: Vec<Place>,
    /// Where its operands are in the table.
    at: usize,
    /// Whether tiles are aligned to the last operand.
    aligned: bool,
    /// How it is folded, if it is, and the operand that is.
    fold: Option<(Folding, u16)>,
    /// In place of that operand: what makes and folds it.
    last: Option<Instr>,
    /// Whether that is of rows of any length.
    long: bool,
    /// Places that are set anew for each row, and how far the next row's are.
    moves: Vec<(u16, i64)>,
}

/// Programs that run one behind the other on each row.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowWise {
    parts: Vec<Part>,
    /// Which of them run together.
    stages: Vec<Range<usize>>,
    /// Registers of all programs: they share those whose values are of one tile, or of one row.
    registers: usize,
    /// Operands of all programs.
    operands: usize,
    /// Rows of a block: programs of one element a row run once for all of them.
    block: i64,
    stream: bool,
    /// What is read from far away, where a row of all that is used is more than is near, or where it pays anyway: slot, byte at row 0, bytes of a
    /// row. The next row is asked for during this one.
    far: Vec<(u32, i64, i64)>,
}

/// Bytes that are near.
const NEAR: i64 = 20 << 10;
/// Most rows of a block.
const BLOCK: i64 = 8;
/// Bytes from which on a value is far away.
const FAR: i64 = 1 << 20;

impl RowWise {
    /// Adds a program over so many rows, if it is one of one segment; what is in `strips` has room for one row. The fold's result is no strip.
    pub(crate) fn push(
        &mut self,
        t: &Tiles,
        rows: i64,
        fold: Option<Folding>,
        strip: impl Fn(u32) -> bool,
    ) -> bool {
        let [b] = &t.bands[..] else { return false };
        let [s] = &b.segs[..] else { return false };
        let (last, ext) = (t.rank - 1, t.ext);
        // rows are the outer dimension, or runs of the only one
        let (n, each) = match last {
            0 if fold.is_none() && ext[0] % rows == 0 => (ext[0] / rows, ext[0] / rows),
            0 if rows == 1 => (ext[0], 0),
            1 if ext[0] == rows => (ext[1], 1),
            _ => return false,
        };
        let whole = s.lo == 0 && s.hi == ext[last] && (last == 0 || b.lo[0] == 0 && b.hi[0] == rows);
        // (registers are numbered by 16 bits)
        let registers = self.parts.iter().map(|p| p.registers.len()).sum::<usize>() + usize::from(t.regs);
        if n == 0
            || registers > usize::from(u16::MAX)
            || !whole
            || fold.is_some_and(|f| f.unit > t.tile && !s.code.is_empty())
        {
            return false;
        }
        let place = |m: &Mem| {
            let strip = m.slot != POSITION && strip(m.slot);
            Place { slot: m.slot, off: m.off, row: m.st[0] * each, strip, each: m.st[last], size: m.size }
        };
        let mut places: Vec<Place> = s.mems.iter().map(place).collect();
        let aligned = fold.is_none() && n > t.tile && places.last().is_some_and(|p| p.slot != POSITION);
        let constant = |i: &&Instr| i.s[0] == i.d;
        let once: Vec<Instr> = s.row.iter().filter(constant).copied().collect();
        let mut registers: Vec<u16> = (0..t.regs).collect();
        for i in &once {
            // (numbered last, when it is known which are shared)
            registers[i.d as usize] = u16::MAX;
        }
        let mut code = s.code.clone();
        let (mut last_one, mut long) = (None, false);
        if let Some(f) = &fold {
            let strip = strip(f.out);
            places.push(Place { slot: f.out, off: 0, row: f.step, strip, each: 0, size: f.size as u8 });
            (last_one, long) = f.in_one_loop(s, t.regs, &places, &mut code);
        }
        self.parts.push(Part {
            n,
            flat: n == 1 && last == 0,
            tile: fold.map_or(t.tile, |f| f.unit),
            once,
            row: s.row.iter().filter(|i| !constant(i)).copied().collect(),
            code,
            registers,
            places,
            at: 0,
            aligned,
            fold: fold.map(|f| (f, s.result)),
            last: last_one,
            long,
            moves: Vec::new(),
        });
        self.stream |= t.stream;
        true
    }
    /// Numbers what its programs share, which are over so many rows.
    pub(crate) fn done(mut self, rows: i64) -> RowWise {
        self.registers = self.parts.iter().map(|p| p.registers.len()).max().unwrap_or(0);
        for p in &mut self.parts {
            for r in p.registers.iter_mut().filter(|r| **r == u16::MAX) {
                *r = self.registers as u16;
                self.registers += 1;
            }
        }
        self.gather();
        let mut near: Vec<(u32, i64)> = Vec::new();
        for p in &self.parts {
            let own = p.registers.len();
            let mut code = p.code.clone();
            let stored: Vec<u16> = code.iter_mut().filter_map(|c| c.operands().next().copied()).collect();
            for (k, x) in p.places.iter().enumerate().filter(|(_, x)| x.slot != POSITION) {
                let bytes = (p.n * x.each).abs();
                let stored = stored.contains(&((own + k) as u16));
                match near.iter_mut().find(|n| n.0 == x.slot) {
                    Some(n) => n.1 = n.1.max(bytes),
                    None => near.push((x.slot, bytes)),
                }
                let read = !stored && !x.strip && self.far.iter().all(|f| f.0 != x.slot);
                if read && bytes >= kernels::LINE as i64 && x.row == bytes && x.row * rows >= FAR {
                    self.far.push((x.slot, x.off, x.row));
                }
            }
        }
        let bytes = near.iter().map(|n| n.1).sum::<i64>();
        if bytes + (self.registers * REGISTER) as i64 <= NEAR && !kernels::asks_early() {
            self.far.clear();
        }
        // a program of one element a row waits for what was made before, and costs as much as one of eight; rows that wait in strips were measured
        // to need room beside them
        let waits = |x: &Place| x.strip && x.row >= kernels::LINE as i64;
        let room = if self.parts.iter().flat_map(|p| &p.places).any(waits) { NEAR / 2 } else { 2 * NEAR };
        self.block = 1;
        while self.parts.iter().any(|p| p.flat) && 2 * self.block * bytes <= room && self.block < BLOCK {
            self.block *= 2;
        }
        for p in &mut self.parts {
            // (of one row a strip is where it is)
            let strips = p.places.iter_mut().filter(|x| x.strip && self.block == 1);
            strips.for_each(|x| x.row = 0);
            let moves = |(_, x): &(usize, &Place)| x.row != 0 || x.each != 0 && p.n > p.tile;
            p.moves = p.places.iter().enumerate().filter(moves).map(|(k, x)| (k as u16, x.row)).collect();
            p.at = self.operands;
            self.operands += p.registers.len() + p.places.len();
        }
        self
    }
    /// Rows of a block: strips have room for them.
    pub(crate) fn block(&self) -> i64 {
        self.block
    }
    /// Runs the programs on these rows.
    ///
    /// # Safety
    /// As for [`kernel::run`]; what has room for a block's rows is this worker's.
    pub(crate) unsafe fn run(&self, a: i64, b: i64, base: &[*mut u8], s: &mut Scratch) {
        if on_a_page!() {
            // (none is made there)
            return;
        }
        s.fit(self.registers, self.registers + self.operands);
        let sums = s.accumulator(0);
        let (registers, now, begins) = s.tables(self.operands);
        for p in &self.parts {
            let own = p.registers.len();
            for (to, r) in now[p.at..].iter_mut().zip(&p.registers) {
                *to = registers[*r as usize];
            }
            for (to, x) in begins[p.at + own..].iter_mut().zip(&p.places) {
                let from = if x.slot == POSITION { std::ptr::null_mut() } else { base[x.slot as usize] };
                let first = if x.strip { 0 } else { a };
                *to = from.wrapping_offset((x.off + first * x.row) as isize);
            }
            let places = p.at + own..p.at + own + p.places.len();
            now[places.clone()].copy_from_slice(&begins[places]);
            for i in &p.once {
                // SAFETY: a register holds a tile
                unsafe { kernel::one(i, &now[p.at..], p.tile.min(if p.flat { self.block } else { p.n })) }
            }
        }
        // those of one element a row are over before what they could ask for
        let flat = |stage: &Range<usize>| self.parts[stage.start].flat;
        let askers = self.stages.iter().filter(|s| !flat(s)).count();
        let mut first = a;
        while first < b {
            let rows = self.block.min(b - first);
            let mut asker = 0;
            for stage in &self.stages {
                let (flat, parts) = (flat(stage), &self.parts[stage.clone()]);
                // the rows of a program, and their elements
                let (many, each) = if flat { (1, rows) } else { (rows, 1) };
                for r in first..first + many {
                    for (slot, off, row) in self.far.iter().filter(|_| !flat) {
                        let next = base[*slot as usize].wrapping_offset((off + (r + rows) * row) as isize);
                        let lines = *row as usize / kernels::LINE;
                        for line in lines * asker / askers..lines * (asker + 1) / askers {
                            kernels::ask_later(next.wrapping_add(line * kernels::LINE));
                        }
                    }
                    for p in parts {
                        let own = p.at + p.registers.len();
                        let (now, begins) = (&mut now[own..], &mut begins[own..]);
                        for (k, row) in &p.moves {
                            let from = &mut begins[*k as usize];
                            now[*k as usize] = *from;
                            *from = from.wrapping_offset((each * row) as isize);
                        }
                    }
                    // SAFETY: the caller's; the places of this row
                    unsafe {
                        match parts {
                            [p] => {
                                let n = if flat { rows } else { p.n };
                                let now = &mut now[p.at..p.at + p.registers.len() + p.places.len()];
                                for i in &p.row {
                                    kernel::one(i, now, p.tile.min(n));
                                }
                                p.tiles(n, now, sums);
                            }
                            _ => together::run(parts, now, sums),
                        }
                    }
                }
                asker += usize::from(!flat);
                for p in parts.iter().filter(|_| self.block > 1) {
                    let own = p.at + p.registers.len();
                    for (from, x) in begins[own..].iter_mut().zip(&p.places).filter(|(_, x)| x.strip) {
                        *from = from.wrapping_offset((-rows * x.row) as isize);
                    }
                }
            }
            first += rows;
        }
        if self.stream {
            kernels::fence();
        }
    }
}

impl Part {
    /// All tiles of a row of n elements, whose operands are in the table.
    ///
    /// # Safety
    /// As for [`RowWise::run`].
    #[inline(always)]
    unsafe fn tiles(&self, n: i64, now: &mut [*mut u8], sums: *mut u8) {
        let mut left = n;
        let Some((f, _)) = &self.fold else {
            let mut size = self.tile;
            if self.aligned
                && let (Some(p), Some(to)) = (self.places.last(), now.last())
            {
                size -= (to.addr() & 63) as i64 / i64::from(p.size);
            }
            loop {
                let n = left.min(size);
                // SAFETY: the caller's
                unsafe { kernel::execute(&self.code, now, n) }
                left -= n;
                if left == 0 {
                    return;
                }
                self.next(now, n);
                size = self.tile;
            }
        };
        let Some(dst) = now.last().copied() else { return };
        let k = [0.0; 4];
        // a line for each sum that waits
        let at = |k: usize| sums.wrapping_add(k * kernels::LINE);
        // SAFETY: the caller's; sums of 2⁶³ units are 64 lines
        unsafe {
            if left <= self.tile || self.long {
                return self.unit(now, left, dst);
            }
            let merge = |a, b| (f.combine)(1, at(a), at(a), at(b), at(b), &k);
            let mut tree = kernel::Tree::new(0);
            loop {
                let n = left.min(self.tile);
                self.unit(now, n, at(tree.depth));
                tree.pushed(merge);
                left -= n;
                if left == 0 {
                    break;
                }
                self.next(now, n);
            }
            tree.end(merge);
            std::ptr::copy_nonoverlapping(at(0), dst, f.size);
        }
    }
    /// A tile, folded.
    ///
    /// # Safety
    /// As for [`RowWise::run`].
    #[inline(always)]
    unsafe fn unit(&self, now: &[*mut u8], n: i64, to: *mut u8) {
        let k = [0.0; 4];
        // SAFETY: the caller's
        unsafe {
            kernel::execute(&self.code, now, n);
            match (&self.last, &self.fold) {
                (Some(i), _) => {
                    let [x, y, z] = i.s.map(|x| now[x as usize]);
                    (i.f)(n as usize, to, x, y, z, &i.k);
                }
                (None, Some((f, value))) => {
                    let x = now[*value as usize];
                    (f.fold)(n as usize, to, x, x, x, &k);
                }
                (None, None) => {}
            }
        }
    }
    /// The table's places, n elements on.
    #[inline(always)]
    fn next(&self, now: &mut [*mut u8], n: i64) {
        for (to, x) in now[self.registers.len()..].iter_mut().zip(&self.places) {
            *to = to.wrapping_offset((n * x.each) as isize);
        }
    }
}
