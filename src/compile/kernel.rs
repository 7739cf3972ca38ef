//! Running tile programs over boxes: what all engines share.

use super::expr::{Mem, POSITION};
use super::index::{Ix, MAX};
use super::tiles::{Instr, REGISTER, Seg, Step, Tiles};
use crate::runtime::kernels;
pub(crate) use crate::runtime::kernels::Tree;
use std::alloc::Layout;
use std::cell::RefCell;
use std::mem::MaybeUninit;

/// Bytes of an accumulator of a fold.
pub(crate) const ACCUMULATOR: usize = 8192;
/// How many accumulators: deeper than any tree of sums, and some rows.
pub(crate) const ACCUMULATORS: usize = 88;

/// A worker's registers, accumulators and table of operands.
#[derive(Debug)]
pub(crate) struct Scratch {
    memory: *mut u8,
    registers: usize,
    /// Registers of the programs that run.
    fitted: usize,
    table: Vec<*mut u8>,
    strips: Vec<CacheLine>,
}

/// What strips are made of.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct CacheLine(#[expect(dead_code, reason = "written and read by kernels")] [u8; 64]);

impl Scratch {
    const ALIGN: usize = 4096;
    fn layout(registers: usize) -> Layout {
        let bytes = registers * REGISTER + ACCUMULATORS * ACCUMULATOR;
        Layout::from_size_align(bytes, Self::ALIGN).expect("a few hundred KiB")
    }
    pub(crate) fn new() -> Scratch {
        Scratch {
            memory: std::ptr::null_mut(),
            registers: 0,
            fitted: 0,
            table: Vec::new(),
            strips: Vec::new(),
        }
    }
    /// Makes room for this many registers and operands.
    pub(crate) fn fit(&mut self, registers: usize, operands: usize) {
        // behind the operands there is room for where their rows begin
        if self.table.len() <= 2 * operands {
            self.table.resize(2 * operands + 1, std::ptr::null_mut());
        }
        if self.memory.is_null() || self.registers < registers {
            let n = registers.max(2 * self.registers).max(16);
            let layout = Self::layout(n);
            self.free();
            // SAFETY: the size is not 0
            self.memory = unsafe { std::alloc::alloc(layout) };
            if self.memory.is_null() {
                std::alloc::handle_alloc_error(layout);
            }
            self.registers = n;
        }
        self.fitted = registers;
        for r in 0..registers {
            self.table[r] = self.memory.wrapping_add(ACCUMULATORS * ACCUMULATOR + r * REGISTER);
        }
    }
    /// Room for values of some rows, of this many bytes. It begins in the middle of a page: large values begin at the begin of one, and
    /// where rows do too, softmax was measured to be 15 % slower (a load at the place of a store in another page may wait for it).
    pub(crate) fn strips(&mut self, bytes: usize) -> *mut u8 {
        let page = Self::ALIGN / size_of::<CacheLine>();
        let lines = bytes.div_ceil(size_of::<CacheLine>()) + page;
        if self.strips.len() < lines {
            self.strips.resize(lines, CacheLine([0; 64]));
        }
        let first: *mut u8 = self.strips.as_mut_ptr().cast();
        let ahead = (Self::ALIGN / 2).wrapping_sub(first.addr()) % Self::ALIGN;
        first.wrapping_add(ahead)
    }
    /// Registers, and two tables of operands.
    pub(super) fn tables(&mut self, operands: usize) -> (&[*mut u8], &mut [*mut u8], &mut [*mut u8]) {
        let (registers, tables) = self.table.split_at_mut(self.fitted);
        let (now, begins) = tables.split_at_mut(operands);
        (registers, now, begins)
    }
    fn free(&mut self) {
        if !self.memory.is_null() {
            // SAFETY: allocated with this layout, and used by nobody: new memory takes its place at once, or the scratch ends
            unsafe { std::alloc::dealloc(self.memory, Self::layout(self.registers)) };
        }
    }
    /// Accumulator k.
    pub(crate) fn accumulator(&self, k: usize) -> *mut u8 {
        assert!(k < ACCUMULATORS, "sums nest as deep as the logarithm of their length");
        self.memory.wrapping_add(k * ACCUMULATOR)
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        self.free();
    }
}

/// Runs `f` with this thread's scratch.
pub(crate) fn with_scratch<R>(f: impl FnOnce(&mut Scratch) -> R) -> R {
    thread_local! { static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new()); }
    match SCRATCH.try_with(|_| ()) {
        Ok(()) => SCRATCH.with(|s| f(&mut s.borrow_mut())),
        // the thread ends
        Err(_) => f(&mut Scratch::new()),
    }
}

/// Positions: n numbers from the address of `a` on, `k[0]` apart, as int64.
///
/// # Safety
/// `d` has n elements; `a` is not read.
pub(super) unsafe fn position(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, k: &[f64; 4]) {
    let (from, step) = (a.addr() as i64, k[0] as i64);
    // SAFETY: the caller's; what is written need not be initialised
    let d = unsafe { std::slice::from_raw_parts_mut(d.cast::<MaybeUninit<i64>>(), n) };
    for (i, d) in d.iter_mut().enumerate() {
        d.write(from.wrapping_add(i as i64 * step));
    }
}

/// Copies n elements of `k[0]` bytes, unless they are there: a value that shares the memory of its operand, where that could be had.
///
/// # Safety
/// `a` and `d` have n elements; they are the same or do not overlap.
pub(super) unsafe fn unless_there(
    n: usize,
    d: *mut u8,
    a: *const u8,
    _: *const u8,
    _: *const u8,
    k: &[f64; 4],
) {
    if d.cast_const() != a {
        // SAFETY: the caller's
        unsafe { std::ptr::copy_nonoverlapping(a, d, n * k[0] as usize) }
    }
}

/// Where a place in memory is at this index.
#[inline(always)]
pub(crate) fn address(m: &Mem, base: &[*mut u8], x: &Ix, rank: usize) -> *mut u8 {
    let o = x[..rank].iter().zip(&m.st[..rank]).fold(m.off, |o, (x, st)| o + x * st);
    let from = if m.slot == POSITION { std::ptr::null_mut() } else { base[m.slot as usize] };
    from.wrapping_offset(o as isize)
}

/// # Safety
/// The operands of the instruction are valid for n elements.
#[inline(always)]
pub(super) unsafe fn one(i: &Instr, table: &[*mut u8], n: i64) {
    let at = |k: u16| table[k as usize];
    // SAFETY: the caller's
    unsafe { (i.f)(n as usize, at(i.d), at(i.s[0]), at(i.s[1]), at(i.s[2]), &i.k) }
}

/// # Safety
/// The operands of the instructions are valid for n elements.
#[inline(always)]
pub(super) unsafe fn execute(code: &[Step], table: &[*mut u8], n: i64) {
    for step in code {
        // SAFETY: the caller's
        unsafe {
            match step {
                Step::One(i) => one(i, table, n),
                Step::Sum(i) => {
                    let s = i.s.map(|k| table[k as usize].cast_const());
                    (i.f)(n as usize, table[i.d as usize], &s, &i.k)
                }
            }
        }
    }
}

/// The instructions that run once a row: of constants in the first row only.
///
/// # Safety
/// As for [`execute`].
#[inline(always)]
unsafe fn begin_row(s: &Seg, table: &[*mut u8], n: i64, first: bool) {
    for i in &s.row {
        if first || i.s[0] != i.d {
            // SAFETY: the caller's
            unsafe { one(i, table, n) }
        }
    }
}

/// A segment's instructions on elements `a..e` of a row, whose first operands are in the table.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn segment(t: &Tiles, s: &Seg, table: &mut [*mut u8], (a, e): (i64, i64), first: bool) {
    let (regs, last) = (t.regs as usize, t.rank - 1);
    let (mut at, mut size) = (a, t.tile);
    if e - a > t.tile
        && let Some(m) = s.mems.last()
        && m.slot != POSITION
    {
        // the first tile is shorter where that aligns the last operand, a store
        let skew = (table[regs + s.mems.len() - 1] as usize & 63) as i64 / i64::from(m.size);
        size -= skew;
    }
    // SAFETY: the caller's: the box is in the space, whose operands are in their slots
    unsafe {
        begin_row(s, table, t.tile.min(e - a), first);
        loop {
            let n = (e - at).min(size);
            execute(&s.code, table, n);
            at += n;
            if at >= e {
                break;
            }
            for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
                *p = p.wrapping_offset((n * m.st[last]) as isize);
            }
            size = t.tile;
        }
    }
}

/// So many rows of one segment from index x on: their places go on by steps, and constants are written once.
///
/// # Safety
/// As for [`run`].
unsafe fn rows(t: &Tiles, s: &Seg, base: &[*mut u8], (x, end): (&Ix, i64), many: i64, table: &mut [*mut u8]) {
    let (regs, last) = (t.regs as usize, t.rank - 1);
    // behind the operands is where those of the next row begin
    let begins = regs + s.mems.len();
    for (p, m) in table[begins..].iter_mut().zip(&s.mems) {
        *p = address(m, base, x, t.rank);
    }
    for row in 0..many {
        let (now, next) = table[regs..].split_at_mut(s.mems.len());
        for ((p, next), m) in now.iter_mut().zip(next).zip(&s.mems) {
            *p = *next;
            *next = next.wrapping_offset(m.st[last - 1] as isize);
        }
        // SAFETY: the caller's
        unsafe { segment(t, s, table, (x[last], end), row == 0) }
    }
}

/// Runs the programs over the box `lo..hi` of the space.
///
/// # Safety
/// `base` has, for each slot that is used, memory as large as the strides say; nobody else writes what the box reads or
/// writes, nor reads what it writes.
pub(crate) unsafe fn run(t: &Tiles, base: &[*mut u8], lo: &Ix, hi: &Ix, scratch: &mut Scratch) {
    scratch.fit(t.regs as usize, t.operands());
    let (regs, last) = (t.regs as usize, t.rank - 1);
    let table = &mut scratch.table[..];
    if last == 0 && !on_a_page!() {
        // small programs of one dimension are run very often: the least that there is to do
        for s in t.bands.iter().flat_map(|b| &b.segs) {
            let (a, e) = (s.lo.max(lo[0]), s.hi.min(hi[0]));
            if a < e {
                let mut x = [0; MAX];
                x[0] = a;
                for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
                    *p = address(m, base, &x, 1);
                }
                // SAFETY: the caller's
                unsafe { segment(t, s, table, (a, e), true) }
            }
        }
        if t.stream {
            kernels::fence();
        }
        return;
    }
    for b in &t.bands {
        let (mut x, mut end) = ([0i64; MAX], [0i64; MAX]);
        let mut empty = false;
        for d in 0..last {
            x[d] = b.lo[d].max(lo[d]);
            end[d] = b.hi[d].min(hi[d]);
            empty |= x[d] >= end[d];
        }
        if empty {
            continue;
        }
        let start = x;
        // the rows of one segment run together, where they are more than one
        let many = if last > 0 { end[last - 1] - start[last - 1] } else { 1 };
        let together = b.segs.len() == 1 && many > 1 && !on_a_page!();
        loop {
            for s in &b.segs {
                let (a, e) = (s.lo.max(lo[last]), s.hi.min(hi[last]));
                if a >= e {
                    continue;
                }
                x[last] = a;
                // SAFETY: the caller's
                unsafe {
                    if together {
                        rows(t, s, base, (&x, e), many, table);
                        continue;
                    }
                    for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
                        *p = address(m, base, &x, t.rank);
                    }
                    segment(t, s, table, (a, e), true);
                }
            }
            let mut d = if together { last - 1 } else { last };
            loop {
                if d == 0 {
                    break;
                }
                d -= 1;
                x[d] += 1;
                if x[d] < end[d] {
                    d = usize::MAX;
                    break;
                }
                x[d] = start[d];
            }
            if d != usize::MAX {
                break;
            }
        }
    }
    if t.stream {
        kernels::fence();
    }
}

/// One tile of programs that store nothing, from index x on; returns where its value is. All of the space is one segment.
///
/// # Safety
/// As for [`run`]; the scratch fits the programs.
#[inline(always)]
pub(crate) unsafe fn value(t: &Tiles, base: &[*mut u8], x: &Ix, n: i64, scratch: &mut Scratch) -> *mut u8 {
    let (s, regs) = (&t.bands[0].segs[0], t.regs as usize);
    let table = &mut scratch.table[..];
    for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
        *p = address(m, base, x, t.rank);
    }
    // SAFETY: the caller's
    unsafe {
        s.row.iter().for_each(|i| one(i, table, n));
        execute(&s.code, table, n);
    }
    table[s.result as usize]
}

/// As [`value`], of at most a tile whose elements have `size` bytes: put at `to`.
///
/// # Safety
/// As for [`value`]; there is room at `to`, which is not an operand: that of a register where it is aligned as that is.
pub(crate) unsafe fn value_to(
    t: &Tiles,
    base: &[*mut u8],
    x: &Ix,
    n: i64,
    size: i64,
    to: *mut u8,
    scratch: &mut Scratch,
) {
    let result = t.bands[0].segs[0].result as usize;
    // made there instead of in its register, which may hold other values on the way: where there is a register's room
    if result < t.regs as usize && to.addr().is_multiple_of(REGISTER) {
        let register = std::mem::replace(&mut scratch.table[result], to);
        // SAFETY: the caller's
        unsafe { value(t, base, x, n, scratch) };
        scratch.table[result] = register;
        return;
    }
    // SAFETY: the caller's
    unsafe {
        let v = value(t, base, x, n, scratch);
        std::ptr::copy_nonoverlapping(v, to, (n * size) as usize);
    }
}
