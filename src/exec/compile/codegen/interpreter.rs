//! The interpreter of tile programs, which the lock-step and threads engines share.

pub(crate) mod blocks;
mod scratch;

use super::tile_program::{Instruction, REGISTER_BYTES, TileProgram, TileSegment, TileStep};
use super::values::{MemAccess, POSITION_SLOT};
use crate::exec::compile::index::{LoopVec, MAX_LOOPS};
use crate::kernels;
pub(crate) use crate::kernels::MergeStack;
pub(crate) use scratch::{ACCUMULATOR_BYTES, Scratch, with_scratch};
use std::mem::MaybeUninit;

/// Writes `n` loop positions as int64: the address of `a`, then steps of `k[0]`.
///
/// # Safety
/// `d` points to space for `n` int64 elements, which may be uninitialized. `a` may be any pointer,
/// since it is never dereferenced.
pub(crate) unsafe fn write_positions(
    n: usize,
    d: *mut u8,
    a: *const u8,
    _: *const u8,
    _: *const u8,
    k: &[f64; 4],
) {
    let (from, step) = (a.addr() as i64, k[0] as i64);
    // SAFETY: `d` points to space for `n` int64 elements (caller contract).
    let d = unsafe { std::slice::from_raw_parts_mut(d.cast::<MaybeUninit<i64>>(), n) };
    for (i, d) in d.iter_mut().enumerate() {
        d.write(from.wrapping_add(i as i64 * step));
    }
}

/// Copies `n` elements of `k[0]` bytes, unless source and destination are the same memory.
///
/// A value may share the memory of its operand; the copy is needed if it does not.
///
/// # Safety
/// `a` points to `n` elements of `k[0]` bytes, and `d` to space for them. The two ranges are equal
/// or do not overlap.
pub(crate) unsafe fn copy_if_elsewhere(
    n: usize,
    d: *mut u8,
    a: *const u8,
    _: *const u8,
    _: *const u8,
    k: &[f64; 4],
) {
    if d.cast_const() != a {
        // SAFETY: both ranges have `n` elements of `k[0]` bytes and, as they are not equal, do not
        // overlap (caller contract).
        unsafe { std::ptr::copy_nonoverlapping(a, d, n * k[0] as usize) }
    }
}

/// Returns the address of a memory access at index `x`.
#[inline(always)]
pub(crate) fn address(m: &MemAccess, base: &[*mut u8], x: &LoopVec, rank: usize) -> *mut u8 {
    let o = x[..rank].iter().zip(&m.strides[..rank]).fold(m.offset, |o, (x, st)| o + x * st);
    let from = if m.slot == POSITION_SLOT { std::ptr::null_mut() } else { base[m.slot as usize] };
    from.wrapping_offset(o as isize)
}

/// Runs an instruction on `n` elements.
///
/// # Safety
/// The operands of the instruction in `table` satisfy the contract of its kernel for `n` elements.
#[inline(always)]
pub(crate) unsafe fn execute_instr(i: &Instruction, table: &[*mut u8], n: i64) {
    let at = |k: u16| table[k as usize];
    // SAFETY: the operands satisfy the contract of the kernel for `n` elements (caller contract).
    unsafe { (i.kernel)(n as usize, at(i.dst), at(i.srcs[0]), at(i.srcs[1]), at(i.srcs[2]), &i.consts) }
}

/// Runs steps on `n` elements.
///
/// # Safety
/// The operands of each step in `table` satisfy the contract of its kernel for `n` elements.
#[inline(always)]
pub(crate) unsafe fn execute_steps(code: &[TileStep], table: &[*mut u8], n: i64) {
    for step in code {
        // SAFETY: the caller upholds the contract for this step.
        unsafe { execute_step(step, table, n) }
    }
}

/// Runs a step on `n` elements.
///
/// # Safety
/// The operands of the step in `table` satisfy the contract of its kernel for `n` elements.
#[inline(always)]
unsafe fn execute_step(step: &TileStep, table: &[*mut u8], n: i64) {
    // SAFETY: the operands satisfy the contract of the step's kernel for `n` elements (caller
    // contract).
    unsafe {
        match step {
            TileStep::Instr(i) => execute_instr(i, table, n),
            TileStep::WeightedSum(i) => {
                let s = i.srcs.map(|k| table[k as usize].cast_const());
                (i.kernel)(n as usize, table[i.dst as usize], &s, &i.factors)
            }
        }
    }
}

/// Runs the code of a row, for tiles of at most `n` elements. Constants are written in the first
/// row only.
///
/// # Safety
/// The operands of each instruction in `table` satisfy the contract of its kernel for `n` elements.
#[inline(always)]
unsafe fn execute_row_code(s: &TileSegment, table: &[*mut u8], n: i64, first: bool) {
    for i in s.row_code.iter().filter(|i| first || i.srcs[0] != i.dst) {
        // SAFETY: the operands satisfy the contract of the kernel for `n` elements (caller contract).
        unsafe { execute_instr(i, table, n) }
    }
}

/// Runs a segment on elements `a..e` of a row; `table` has the addresses of the operands at `a`.
///
/// # Safety
/// The contract of [`run`] holds for these elements. `table` starts with the registers, followed by
/// the addresses of the segment's memory operands at `a`.
#[inline(always)]
unsafe fn run_segment(
    t: &TileProgram,
    s: &TileSegment,
    table: &mut [*mut u8],
    (a, e): (i64, i64),
    first: bool,
) {
    let (regs, last) = (t.num_registers as usize, t.rank - 1);
    let (mut at, mut size) = (a, t.tile_elements);
    if e - a > t.tile_elements
        && let Some(m) = s.mems.last()
        && m.slot != POSITION_SLOT
    {
        // make the first tile shorter if that aligns the last access, which is a store
        let skew = (table[regs + s.mems.len() - 1] as usize & 63) as i64 / i64::from(m.element_bytes);
        size -= skew;
    }
    // SAFETY: `table` has the operands of elements `a..e`, which are within their slots (caller
    // contract); a register has space for a tile, and no call is for more elements.
    unsafe {
        execute_row_code(s, table, t.tile_elements.min(e - a), first);
        loop {
            let n = (e - at).min(size);
            execute_steps(&s.tile_code, table, n);
            at += n;
            if at >= e {
                break;
            }
            for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
                *p = p.wrapping_offset((n * m.strides[last]) as isize);
            }
            size = t.tile_elements;
        }
    }
}

/// Runs a segment on `many` rows, from index `x` on.
///
/// Addresses advance by strides from row to row, and constants are written once.
///
/// # Safety
/// The contract of [`run`] holds for these rows. `table` starts with the registers, followed by
/// space for two addresses for each memory operand of the segment.
unsafe fn run_segment_rows(
    t: &TileProgram,
    s: &TileSegment,
    base: &[*mut u8],
    (x, end): (&LoopVec, i64),
    many: i64,
    table: &mut [*mut u8],
) {
    let (regs, last, n) = (t.num_registers as usize, t.rank - 1, end - x[t.rank - 1]);
    if n <= t.tile_elements {
        for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
            *p = address(m, base, x, t.rank);
        }
        for row in 0..many {
            // SAFETY: the table has the operands of this row, which is one tile; the caller upholds
            // the contract of `run` for it.
            unsafe {
                execute_row_code(s, table, n, row == 0);
                execute_steps(&s.tile_code, table, n);
            }
            for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
                *p = p.wrapping_offset(m.strides[last - 1] as isize);
            }
        }
        return;
    }
    // the second table has the operands of the next row
    let begins = regs + s.mems.len();
    for (p, m) in table[begins..].iter_mut().zip(&s.mems) {
        *p = address(m, base, x, t.rank);
    }
    for row in 0..many {
        let (now, next) = table[regs..].split_at_mut(s.mems.len());
        for ((p, next), m) in now.iter_mut().zip(next).zip(&s.mems) {
            *p = *next;
            *next = next.wrapping_offset(m.strides[last - 1] as isize);
        }
        // SAFETY: the table has the operands of this row, for which the caller upholds the contract
        // of `run`.
        unsafe { run_segment(t, s, table, (x[last], end), row == 0) }
    }
}

/// Runs a tile program over the box `lo..hi` of its space.
///
/// # Safety
/// For each slot that the program uses, `base` points to memory that contains every element that
/// the program accesses in the box. No other thread writes an element that the box reads, or reads
/// or writes an element that it writes.
pub(crate) unsafe fn run(
    t: &TileProgram,
    base: &[*mut u8],
    lo: &LoopVec,
    hi: &LoopVec,
    scratch: &mut Scratch,
) {
    scratch.reserve(t.num_registers as usize, t.max_operands);
    let table = &mut scratch.table[..];
    // SAFETY: the caller upholds the contract for the box.
    unsafe {
        if t.rank == 1 {
            run_interval(t, base, (lo[0], hi[0]), table);
        } else {
            run_boxes(t, base, lo, hi, table);
        }
    }
    if t.stream {
        kernels::fence();
    }
}

/// Runs an interval of a program of one dimension. Small programs of this kind run very often, so
/// they take a short path.
///
/// # Safety
/// The contract of [`run`] holds for the interval.
#[inline(always)]
unsafe fn run_interval(t: &TileProgram, base: &[*mut u8], (lo, hi): (i64, i64), table: &mut [*mut u8]) {
    for s in t.boxes.iter().flat_map(|b| &b.segments) {
        let (a, e) = (s.lo.max(lo), s.hi.min(hi));
        if a < e {
            let mut x = [0; MAX_LOOPS];
            x[0] = a;
            for (p, m) in table[t.num_registers as usize..].iter_mut().zip(&s.mems) {
                *p = address(m, base, &x, 1);
            }
            // SAFETY: the interval is within the box, for which the caller upholds the contract.
            unsafe { run_segment(t, s, table, (a, e), true) }
        }
    }
}

/// Runs the box `lo..hi` of a program.
///
/// # Safety
/// The contract of [`run`] holds.
#[inline(always)]
unsafe fn run_boxes(t: &TileProgram, base: &[*mut u8], lo: &LoopVec, hi: &LoopVec, table: &mut [*mut u8]) {
    let (regs, last) = (t.num_registers as usize, t.rank - 1);
    for b in &t.boxes {
        let (mut x, mut end) = ([0i64; MAX_LOOPS], [0i64; MAX_LOOPS]);
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
        if let (Some(along), [s]) = (t.transposed_dim, &b.segments[..]) {
            (x[last], end[last]) = (s.lo.max(lo[last]), s.hi.min(hi[last]));
            // SAFETY: the box is within the program's, for which the caller upholds the contract.
            if unsafe { blocks::run_blocks(t, s, along, base, (&x, &end), table) } {
                continue;
            }
        }
        // the rows of a single segment run together
        let many = if last > 0 { end[last - 1] - start[last - 1] } else { 1 };
        let together = b.segments.len() == 1 && many > 1;
        loop {
            for s in &b.segments {
                let (a, e) = (s.lo.max(lo[last]), s.hi.min(hi[last]));
                if a >= e {
                    continue;
                }
                x[last] = a;
                // SAFETY: the rows are within the box, for which the caller upholds the contract.
                unsafe {
                    if together {
                        run_segment_rows(t, s, base, (&x, e), many, table);
                        continue;
                    }
                    for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
                        *p = address(m, base, &x, t.rank);
                    }
                    run_segment(t, s, table, (a, e), true);
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
}

/// Runs one tile, from index `x` on, of a program that stores nothing, and returns the address of
/// its value.
///
/// All of the space must be one segment.
///
/// # Safety
/// The contract of [`run`] holds for this tile, which has at most `tile_elements` elements, all in
/// one row, unless the program only returns the address of a memory operand. Memory has been
/// reserved for the program ([`Scratch::reserve`]).
#[inline(always)]
pub(crate) unsafe fn run_tile(
    t: &TileProgram,
    base: &[*mut u8],
    x: &LoopVec,
    n: i64,
    scratch: &mut Scratch,
) -> *mut u8 {
    // SAFETY: the caller upholds the contract.
    unsafe { run_flat_row(t, base, x, n, (n, true), scratch) }
}

/// Runs one tile as [`run_tile`] does, with row code for `row.0` elements.
///
/// Row code that does not depend on the row runs only if `row.1` is true.
///
/// # Safety
/// The contract of [`run_tile`] holds, and row code may run for `row.0` elements.
#[inline(always)]
pub(crate) unsafe fn run_flat_row(
    t: &TileProgram,
    base: &[*mut u8],
    x: &LoopVec,
    n: i64,
    row: (i64, bool),
    scratch: &mut Scratch,
) -> *mut u8 {
    let (s, regs) = (&t.boxes[0].segments[0], t.num_registers as usize);
    let table = &mut scratch.table[..];
    for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
        *p = address(m, base, x, t.rank);
    }
    // SAFETY: the table has the operands of this tile, which are valid for `n` elements, and those
    // of row code for `row.0` elements (caller contract).
    unsafe {
        execute_row_code(s, table, row.0, row.1);
        execute_steps(&s.tile_code, table, n);
    }
    table[s.result as usize]
}

/// Runs one tile as [`run_tile`] does, and stores its value at `to`.
///
/// There is at most one tile of elements, of `size` bytes each.
///
/// # Safety
/// The contract of [`run_tile`] holds. `to` points to space for `n` elements, and for a whole
/// register if its address is a multiple of `REGISTER_BYTES`. This space overlaps no operand and no
/// register.
pub(crate) unsafe fn run_tile_into(
    t: &TileProgram,
    base: &[*mut u8],
    x: &LoopVec,
    n: i64,
    size: i64,
    to: *mut u8,
    scratch: &mut Scratch,
) {
    let result = t.boxes[0].segments[0].result as usize;
    // compute the value in `to` instead of its register, if `to` is also large and aligned enough
    // for the intermediate values of that register
    let in_place = result < t.num_registers as usize && to.addr().is_multiple_of(REGISTER_BYTES);
    // SAFETY: the caller upholds the contract of `run_tile`. If `to` is aligned like a register, it
    // has space for one; otherwise it has space for `n` elements, which overlaps neither an operand
    // nor a register, so not the value either (caller contract).
    unsafe {
        if in_place {
            let register = std::mem::replace(&mut scratch.table[result], to);
            run_tile(t, base, x, n, scratch);
            scratch.table[result] = register;
        } else {
            let v = run_tile(t, base, x, n, scratch);
            std::ptr::copy_nonoverlapping(v, to, (n * size) as usize);
        }
    }
}
