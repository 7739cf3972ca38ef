//! Takes and puts of many rows, a batch at a time: where numbers have no windows, and a row is elements that follow one another.

use super::run::{Word, fill};
use super::{Part, Put, Rows, SeekKernel};
use crate::compile::index::{Ix, MAX};
use crate::program::sentence::Combine;
use crate::runtime::kernels::{self, BATCH, Find, Found, MixAt, OneAt, PICKS, Pick, Picked, PickedAt};
use crate::types::DType;

/// What batches are run by.
#[derive(Clone, Debug)]
pub(super) struct Quick {
    /// Each number's places.
    finds: Vec<Find>,
    /// How rows are combined; nothing: they are copied.
    mix: Option<MixAt>,
    /// How single elements are found and combined in one loop: by one number.
    one: Option<OneAt>,
    /// How a task of several picks the numbers of its rows: those of one that follow one another.
    pub(super) pick: Option<Pick>,
    /// How single elements are combined that were picked.
    picked: Option<PickedAt>,
}

impl Quick {
    /// For a kernel with queries, if it is of this kind.
    pub(super) fn of(k: &SeekKernel, dtype: DType, combine: Option<Combine>) -> Option<Quick> {
        // a page loads one way to do it
        if cfg!(target_family = "wasm") {
            return None;
        }
        let (q, size) = (k.queries, k.size as i64);
        let run = match k.n - q {
            0 => true,
            1 => k.src[q] == size && k.dst[q] == size,
            _ => false,
        };
        let masked = k.put.is_none() && k.parts.iter().any(|p| !p.boxes.is_empty());
        if q == 0 || !run || masked || k.numbers.iter().any(|m| m.window.is_some()) {
            return None;
        }
        let mix = match combine {
            Some(c) => Some(kernels::mix_at(c, dtype)?),
            None => None,
        };
        let one = match &k.numbers[..] {
            [m] if k.n == q => combine.and_then(|c| kernels::one_at(c, dtype, m.dtype)),
            _ => None,
        };
        let pick = match &k.numbers[..] {
            [m] if m.st[q - 1] == m.dtype.size() as i64 => kernels::pick(m.dtype),
            _ => None,
        };
        // (what is picked is counted in 32 bits)
        let rows = k.put.as_ref().map_or(0, |p| p.rows);
        let few = k.ext[q - 1].max(rows) < i64::from(i32::MAX);
        let picked = match combine {
            Some(c) if k.n == q && k.dst[q - 1] == 0 => kernels::picked_at(c, dtype),
            _ => None,
        };
        let finds = k.numbers.iter().map(|m| kernels::find_places(m.dtype)).collect();
        Some(Quick { finds, mix, one, pick: pick.filter(|_| few), picked })
    }
    /// Whether one task does it best: of single elements, if each of several had to look at all numbers one by one.
    pub(super) fn alone(&self) -> bool {
        self.one.is_some() && self.pick.is_none()
    }
}

/// A batch: how many queries, bytes to the rows of the result and of what is read of its first one without what is found, and, from there
/// on, bytes to the row that is found for each.
struct Batch<'a> {
    n: usize,
    to: i64,
    from: i64,
    found: &'a Found,
}

impl Batch<'_> {
    /// Calls back with the bytes to rows that are there, of what is found and of the other side, whose steps these are.
    #[inline(always)]
    fn rows(&self, steps: &Steps, f: &mut impl FnMut(&[i64], &[i64])) {
        let (at, there) = (&self.found.at[..self.n], &self.found.there[..self.n]);
        if there.iter().fold(true, |all, t| all & t) {
            return f(at, &steps[..self.n]);
        }
        let (mut found, mut other, mut some) = ([0; BATCH], [0; BATCH], 0);
        for k in 0..self.n {
            (found[some], other[some]) = (at[k], steps[k]);
            some += usize::from(there[k]);
        }
        f(&found[..some], &other[..some]);
    }
}

/// Bytes to the rows of a batch that are evenly apart.
type Steps = [i64; BATCH];

fn steps(each: i64) -> Steps {
    std::array::from_fn(|k| k as i64 * each)
}

impl SeekKernel {
    /// Calls back for the batches of so many queries along the last loop, from x on. `ahead`: bytes to the rows that are found, without what
    /// their numbers say; `own`: of one number the places of interest.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn batches(
        &self,
        quick: &Quick,
        (x, run): (&Ix, i64),
        ahead: &Steps,
        own: Option<(usize, (i64, i64))>,
        base: &[*mut u8],
        f: &mut impl FnMut(Batch<'_>),
    ) {
        let last = self.queries - 1;
        let sum = |st: &Ix| (0..=last).map(|d| x[d] * st[d]).sum::<i64>();
        let (to, from) = (sum(&self.dst), sum(&self.src));
        let mut found = Found { at: [0; BATCH], there: [true; BATCH] };
        for first in (0..run).step_by(BATCH) {
            let n = (run - first).min(BATCH as i64) as usize;
            found.at = *ahead;
            found.there[..n].fill(true);
            for (j, (m, find)) in self.numbers.iter().zip(&quick.finds).enumerate() {
                let step = m.st[last];
                let at = base[m.slot as usize].wrapping_offset((m.off + sum(&m.st) + first * step) as isize);
                let own = own.filter(|o| o.0 == j).map_or((0, i64::MAX), |o| o.1);
                let reach = m.reach(own);
                // SAFETY: the caller's: there are numbers at all steps of the queries
                unsafe { find(n, at, step as isize, &reach, &mut found) }
            }
            let (to, from) = (to + first * self.dst[last], from + first * self.src[last]);
            f(Batch { n, to, from, found: &found });
        }
    }

    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn quick_take<T: Word>(
        &self,
        quick: &Quick,
        part: &Part,
        (a, e): (i64, i64),
        base: &[*mut u8],
    ) {
        let last = self.queries - 1;
        let row = if self.n > self.queries { self.ext[self.queries] } else { 1 };
        let out = base[self.out as usize].wrapping_offset(part.to as isize);
        let src = base[self.from as usize].wrapping_offset((self.off + part.ahead[0]) as isize);
        let (to, from) = (steps(self.dst[last]), steps(self.src[last]));
        let mut rows = |b: Batch<'_>| {
            let (out, src) = (out.wrapping_offset(b.to as isize), src.wrapping_offset(b.from as isize));
            for (k, there) in b.found.there[..b.n].iter().enumerate() {
                if !there {
                    let to = out.wrapping_offset(to[k] as isize);
                    // SAFETY: the caller's: the row is in the result
                    unsafe { fill(to, row, self.size as i64, T::of(self.fill)) }
                }
            }
            // SAFETY: the caller's: the rows are in their values
            b.rows(&to, &mut |from, to| unsafe { kernels::copy_at::<T>(row as usize, out, to, src, from) });
        };
        self.runs((&[0; MAX], &self.ext), (a, e), |x, run| {
            // SAFETY: the caller's
            unsafe { self.batches(quick, (x, run), &from, None, base, &mut rows) }
        });
    }

    /// The rows of a box, of which those from `lo` to before `hi` are this task's.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn quick_put<T: Word>(
        &self,
        quick: &Quick,
        p: &Put,
        (a, e): (&Ix, &Ix),
        (lo, hi): (i64, i64),
        [out, src]: [*mut u8; 2],
        base: &[*mut u8],
    ) {
        let (q, last) = (self.queries, self.queries - 1);
        let (begin, row) = if self.n > q { (a[q], e[q] - a[q]) } else { (0, 1) };
        let count: i64 = (0..q).map(|d| e[d] - a[d]).product();
        if row <= 0 {
            return;
        }
        // (where others own many of the elements, no branch foresees which)
        if let (Some(one), [m], true) = (quick.one, &self.numbers[..], (lo, hi) == (0, p.rows)) {
            let reach = m.reach((0, i64::MAX));
            return self.runs((a, e), (0, count), |x, run| {
                let at = |st: &Ix| (0..q).map(|d| x[d] * st[d]).sum::<i64>() as isize;
                let numbers = base[m.slot as usize].wrapping_offset(m.off as isize + at(&m.st));
                let (out, src) = (out.wrapping_offset(at(&self.dst)), src.wrapping_offset(at(&self.src)));
                let [step, to, from] = [m.st[last], self.dst[last], self.src[last]].map(|st| st as isize);
                // SAFETY: the caller's: there are numbers at all steps of the queries, and the elements are in their values, where this
                // task owns what is written
                unsafe { one(run as usize, (numbers, step), &reach, (out, to), (src, from)) }
            });
        }
        let own = if let Rows::Found(j) = p.own { Some((j, (lo, hi))) } else { None };
        let [out, src] = [out, src].map(|x| x.wrapping_offset((begin * self.size as i64) as isize));
        let (to, from) = (steps(self.dst[last]), steps(self.src[last]));
        let row = row as usize;
        if let (Some(pick), [m], Some((0, own))) = (quick.pick, &self.numbers[..], own) {
            let reach = m.reach(own);
            let mut picked = Picked::NONE;
            let (mut to, mut from) = ([0; PICKS], [0; PICKS]);
            return self.runs((a, e), (0, count), |x, run| {
                let at = |st: &Ix| (0..q).map(|d| x[d] * st[d]).sum::<i64>() as isize;
                let numbers = base[m.slot as usize].wrapping_offset(m.off as isize + at(&m.st)).cast();
                let (out, src) = (out.wrapping_offset(at(&self.dst)), src.wrapping_offset(at(&self.src)));
                let (mut k, run) = (0, run as usize);
                while k < run {
                    // SAFETY: the caller's: there are numbers at all steps of the queries
                    k = unsafe { pick(numbers, (k, run), &reach, &mut picked) };
                    if let Some(combine) = quick.picked {
                        let step = self.src[last] as isize;
                        // SAFETY: the caller's: the elements are in their values, and this task owns what is written
                        unsafe { combine(&picked, (out, m.unit as isize), (src, step)) }
                        continue;
                    }
                    for i in 0..picked.n {
                        let which = i64::from(picked.which[i]);
                        to[i] = which * self.dst[last] + i64::from(picked.place[i]) * m.unit;
                        from[i] = which * self.src[last];
                    }
                    let (to, from) = (&to[..picked.n], &from[..picked.n]);
                    // SAFETY: the caller's: the rows are in their values, and this task owns what is written
                    unsafe {
                        match quick.mix {
                            None => kernels::copy_at::<T>(row, out, to, src, from),
                            Some(mix) => mix(to.len(), row, out, to.as_ptr(), src, from.as_ptr()),
                        }
                    }
                }
            });
        }
        let mut rows = |b: Batch<'_>| {
            let (out, src) = (out.wrapping_offset(b.to as isize), src.wrapping_offset(b.from as isize));
            // SAFETY: the caller's: the rows are in their values, and this task owns what is written
            b.rows(&from, &mut |to, from| unsafe {
                match quick.mix {
                    None => kernels::copy_at::<T>(row, out, to, src, from),
                    Some(mix) => mix(to.len(), row, out, to.as_ptr(), src, from.as_ptr()),
                }
            });
        };
        self.runs((a, e), (0, count), |x, run| {
            // SAFETY: the caller's
            unsafe { self.batches(quick, (x, run), &to, own, base, &mut rows) }
        });
    }
}
