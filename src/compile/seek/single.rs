//! Takes and puts of one row of elements that follow one another: what a step of a loop reads or writes of a cache. Nothing is counted.

use super::run::{Word, combine, copy, fill, integer};
use super::{Part, Put, SeekKernel};

impl SeekKernel {
    /// Whether it is of this kind: there is no query, and numbers have no windows.
    pub(super) fn is_single(&self) -> bool {
        let size = self.size as i64;
        let run = match self.n {
            0 => true,
            1 => self.src[0] == size && self.dst[0] == size,
            _ => false,
        };
        let masked = self.put.is_none() && self.parts.iter().any(|p| !p.boxes.is_empty());
        self.queries == 0 && run && !masked && self.numbers.iter().all(|m| m.window.is_none())
    }
    /// All of it. It is apart from what counts rows: a step of a loop is over before that would have begun.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(never)]
    pub(super) unsafe fn single_row(&self, base: &[*mut u8]) {
        // SAFETY: the caller's
        unsafe {
            match self.size {
                1 => self.single_of::<u8>(base),
                2 => self.single_of::<u16>(base),
                4 => self.single_of::<u32>(base),
                8 => self.single_of::<u64>(base),
                _ => self.single_of::<u128>(base),
            }
        }
    }
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn single_of<T: Word>(&self, base: &[*mut u8]) {
        for part in &self.parts {
            // SAFETY: the caller's
            unsafe {
                match &self.put {
                    Some(p) => self.single_put::<T>(p, part, base),
                    None => self.single_take::<T>(part, base),
                }
            }
        }
    }
    /// Bytes to the row that its numbers find; nothing: it is not there.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn found(&self, base: &[*mut u8]) -> Option<isize> {
        let mut found = 0;
        for m in &self.numbers {
            // SAFETY: the caller's: there is the number
            let n = unsafe { integer(base[m.slot as usize].wrapping_offset(m.off as isize), m.dtype) };
            let n = m.counted(n);
            let place = n.min(m.most).max(0);
            if m.most < 0 || !(m.clip || place == n) {
                return None;
            }
            found += place * m.unit;
        }
        Some(found as isize)
    }
    /// # Safety
    /// As for `run`.
    unsafe fn single_take<T: Word>(&self, part: &Part, base: &[*mut u8]) {
        let out = base[self.out as usize].wrapping_offset(part.to as isize);
        let from = base[self.from as usize].wrapping_offset((self.off + part.ahead[0]) as isize);
        let (row, size) = (if self.n > 0 { self.ext[0] } else { 1 }, self.size as i64);
        // SAFETY: the caller's: both rows are in their values
        unsafe {
            match self.found(base) {
                Some(found) => copy::<T>(out, from.wrapping_offset(found), row, (size, size)),
                None => fill(out, row, size, T::of(self.fill)),
            }
        }
    }
    /// All rows of a part.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn single_put<T: Word>(&self, p: &Put, part: &Part, base: &[*mut u8]) {
        let out = base[self.out as usize].wrapping_offset(part.to as isize);
        let from = base[self.from as usize].wrapping_offset((self.off + part.ahead[1]) as isize);
        let size = self.size as i64;
        // SAFETY: the caller's: both rows are in their values, and this task owns what is written
        unsafe {
            p.lay::<T>(out, part.ahead[0], (0, p.rows), base);
            let Some(found) = self.found(base) else { return };
            for (a, e) in &part.boxes {
                let (begin, row) = if self.n > 0 { (a[0], e[0] - a[0]) } else { (0, 1) };
                if row <= 0 {
                    continue;
                }
                let (to, from) = (
                    out.wrapping_offset(found + (begin * size) as isize),
                    from.wrapping_offset((begin * size) as isize),
                );
                match p.combine {
                    None => copy::<T>(to, from, row, (size, size)),
                    Some(f) => combine::<T>(f, to, from, row, (size, size)),
                }
            }
        }
    }
}
