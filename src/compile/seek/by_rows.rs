//! Puts that add rows to a large result: a task sorts the updates of its rows, and then makes each row once.
//!
//! Else a row is copied, and later read and written again for each update, from memory.

use super::{Part, Rows, SeekKernel};
use crate::compile::kernel::Scratch;
use crate::program::sentence::Combine;
use crate::runtime::kernels::{self, AddSorted, Picked, Place, Sorted};
use crate::types::DType;

/// Bytes of a result that is worth it: less of it stays in cache.
const LARGE: i64 = 4 << 20;
/// Elements of a row that is worth it.
const WIDE: i64 = 16;

/// The updates of some rows, sorted by row.
pub(crate) struct Order<'a> {
    /// These rows of the result.
    rows: (i64, i64),
    /// For each of them how many updates there are up to its last one.
    ends: &'a [u32],
    /// Which updates these are.
    pub(crate) which: &'a [u32],
}

impl SeekKernel {
    /// How updates are sorted, if that is worth it: they are rows of float32 that follow one another, each found by one number, and are added to
    /// those of a result that is dense.
    pub(super) fn sorts(&self, dtype: DType, combine: Option<Combine>) -> Option<AddSorted> {
        let p = self.put.as_ref()?;
        let [m] = &self.numbers[..] else { return None };
        let (row, bytes) = (self.ext[1], self.ext[1] * self.size as i64);
        let dense = p.ext[1..p.rank].iter().product::<i64>() == row
            && (p.st[0], m.unit, self.dst[0]) == (bytes, bytes, 0)
            && (p.was.is_none() || p.dense);
        let fits = (dtype, combine) == (DType::F32, Some(Combine::Add))
            && self.n == 2
            && self.by_turns().is_some()
            && matches!(p.own, Rows::Found(0))
            && self.quick.as_ref()?.pick.is_some()
            && dense;
        let worth = row >= WIDE && p.rows * bytes >= LARGE && self.ext[0] >= p.rows / 2;
        if fits && worth { kernels::add_sorted() } else { None }
    }
    /// Whether it does so.
    pub(crate) fn sorts_updates(&self) -> bool {
        self.sorted.is_some() && !on_a_page!()
    }
    /// The rows of the result that task i of so many makes.
    pub(crate) fn rows_of(&self, i: i64, chunks: i64) -> (i64, i64) {
        let rows = self.put.as_ref().map_or(0, |p| p.rows);
        (rows * i / chunks, rows * (i + 1) / chunks)
    }
    /// Bytes of a row of what is put.
    pub(crate) fn row_bytes(&self) -> usize {
        self.ext[1] as usize * self.size
    }
    /// Whether rows of a take may be made in any order: by one number of 32 bits, which says all of where a row is.
    pub(crate) fn in_any_order(&self) -> bool {
        matches!(&self.numbers[..], [m] if m.dtype == DType::I32 && m.st[0] == 4) && self.src[0] == 0
    }
    /// Makes rows `a..b` of a take as if its numbers were in another order, in which these are theirs; `room` has room for as many.
    ///
    /// # Safety
    /// As for `run`; nobody else uses the room.
    pub(crate) unsafe fn take_of(
        &self,
        (a, b): (i64, i64),
        these: &[u32],
        room: *mut u8,
        base: &mut [*mut u8],
    ) {
        let [m] = &self.numbers[..] else { return };
        let (slot, off, to) = (m.slot as usize, m.off as isize, room.cast::<i32>());
        let numbers = base[slot].wrapping_offset(off).cast::<i32>();
        for (k, which) in these.iter().enumerate() {
            // SAFETY: the caller's: there is such a number, and room for as many
            unsafe { *to.wrapping_add(k) = *numbers.wrapping_add(*which as usize) }
        }
        let kept = std::mem::replace(&mut base[slot], room.wrapping_offset(-off - a as isize * 4));
        // SAFETY: the caller's: numbers a to b are there now
        unsafe { self.run_rows((a, b), base) }
        base[slot] = kept;
    }
    /// Calls back with the numbers of these rows, some at a time.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn picks(&self, rows: (i64, i64), base: &[*mut u8], mut f: impl FnMut(&Picked)) {
        let (Some(pick), [m]) = (self.quick.as_ref().and_then(|q| q.pick), &self.numbers[..]) else { return };
        let reach = m.reach(rows);
        let numbers = base[m.slot as usize].wrapping_offset(m.off as isize).cast_const().cast();
        let (mut k, n, mut picked) = (0, self.ext[0] as usize, Picked::NONE);
        while k < n {
            // SAFETY: the caller's: there are so many numbers
            k = unsafe { pick(numbers, (k, n), &reach, &mut picked) };
            f(&picked);
        }
    }
    /// How many updates these rows have, at most: some megabytes are less than it takes to count them.
    ///
    /// # Safety
    /// As for `run`.
    pub(crate) unsafe fn updates(&self, rows: (i64, i64), base: &[*mut u8]) -> usize {
        if self.ext[0] <= 1 << 20 {
            return self.ext[0] as usize;
        }
        let mut n = 0;
        // SAFETY: the caller's
        unsafe { self.picks(rows, base, |p| n += p.n) }
        n
    }
    /// Bytes that sorting needs for so many updates of these rows.
    pub(crate) fn order_bytes((lo, hi): (i64, i64), n: usize) -> usize {
        (hi - lo + 1) as usize * size_of::<u32>() + n * size_of::<u32>()
    }
    /// Sorts the updates of these rows, of which there are at most n, in memory of so many bytes.
    ///
    /// # Safety
    /// As for `run`; nobody else uses the memory, which begins at a multiple of 4 bytes.
    pub(crate) unsafe fn order<'a>(
        &self,
        (lo, hi): (i64, i64),
        n: usize,
        base: &[*mut u8],
        memory: *mut u8,
    ) -> Order<'a> {
        let rows = (hi - lo) as usize;
        let first: *mut u32 = memory.cast();
        // SAFETY: the caller's: so much memory, all of it zeros or numbers of an earlier order
        let (at, which) = unsafe {
            let at = std::slice::from_raw_parts_mut(first, rows + 1);
            (at, std::slice::from_raw_parts_mut(first.add(rows + 1), n))
        };
        at.fill(0);
        // SAFETY: the caller's
        unsafe {
            self.picks((lo, hi), base, |p| {
                p.place[..p.n].iter().for_each(|place| at[(i64::from(*place) - lo) as usize + 1] += 1);
            });
        }
        let mut sum = 0;
        for at in at.iter_mut() {
            sum += *at;
            *at = sum;
        }
        // from where its updates begin each row comes to where they end
        // SAFETY: the caller's
        unsafe {
            self.picks((lo, hi), base, |p| {
                for (place, k) in p.place[..p.n].iter().zip(&p.which) {
                    let at = &mut at[(i64::from(*place) - lo) as usize];
                    which[*at as usize] = *k;
                    *at += 1;
                }
            });
        }
        Order { rows: (lo, hi), ends: &at[..rows], which: &which[..sum as usize] }
    }
    /// Adds these of the sorted updates, from there on: those of a turn follow one another at `turn`, without one they are where they are.
    ///
    /// # Safety
    /// As for `run`.
    pub(crate) unsafe fn add_sorted(
        &self,
        order: &Order<'_>,
        at: Place,
        some: std::ops::Range<usize>,
        turn: Option<*const u8>,
        base: &[*mut u8],
    ) -> Place {
        let (Some(p), Some(add), [part]) = (&self.put, self.sorted, &self.parts[..]) else { return at };
        let Part { to, ahead, .. } = part;
        let begin = (order.rows.0 * p.st[0]) as isize;
        let out = base[self.out as usize].wrapping_offset(*to as isize + begin);
        let was = p.was.map_or(std::ptr::null_mut(), |(slot, off, _)| {
            base[slot as usize].wrapping_offset((off + ahead[0]) as isize + begin)
        });
        let which = if turn.is_some() { None } else { Some(order.which) };
        let src =
            turn.unwrap_or_else(|| base[self.from as usize].wrapping_offset((self.off + ahead[1]) as isize));
        let s = Sorted { ends: order.ends, which, row: self.ext[1] as usize };
        let from = (was.cast_const().cast(), f32::from_bits(p.bits as u32));
        // SAFETY: the caller's: the rows are in their values, and this task owns what is written
        unsafe { add(&s, at, some, src.cast(), from, out.cast()) }
    }
    /// The rows `rows` of the result.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn sorted_put(&self, rows: (i64, i64), base: &[*mut u8], scratch: &mut Scratch) {
        // SAFETY: the caller's
        unsafe {
            let n = self.updates(rows, base);
            let order = self.order(rows, n, base, scratch.strips(Self::order_bytes(rows, n)));
            self.add_sorted(&order, Place::default(), 0..order.which.len(), None, base);
        }
    }
}
