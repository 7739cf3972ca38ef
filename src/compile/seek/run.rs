//! Running takes and puts: query by query, each with its row, whatever the loops are.

use super::{Box_, Part, Put, Rows, SeekKernel};
use crate::compile::index::{Ix, MAX};
use crate::runtime::kernels::Kernel as Fun;
use crate::types::DType;
use std::mem::MaybeUninit;

/// # Safety
/// `p` points to an integer of this type.
#[inline(always)]
pub(super) unsafe fn integer(p: *const u8, dtype: DType) -> i64 {
    // SAFETY: the caller's
    unsafe {
        match dtype {
            DType::I32 => i64::from(*p.cast::<i32>()),
            DType::I64 => *p.cast::<i64>(),
            DType::U32 => i64::from(*p.cast::<u32>()),
            DType::U64 => (*p.cast::<u64>()).min(i64::MAX as u64) as i64,
            DType::I16 => i64::from(*p.cast::<i16>()),
            DType::U16 => i64::from(*p.cast::<u16>()),
            DType::I8 => i64::from(*p.cast::<i8>()),
            _ => i64::from(*p),
        }
    }
}

/// Elements are moved as unsigned integers of their size.
pub(super) trait Word: Copy {
    fn of(bits: u128) -> Self;
}
macro_rules! words {
    ($($t:ty),*) => { $(impl Word for $t {
        fn of(bits: u128) -> $t { bits as $t }
    })* };
}
words!(u8, u16, u32, u64, u128);

/// What a query finds: its loops' steps, bytes to its row of what is written and of what is read, and each number's place; whether anything
/// is there.
struct Query<'a> {
    x: &'a Ix,
    to: i64,
    from: i64,
    places: &'a Ix,
    there: bool,
}

impl SeekKernel {
    /// Calls back for each query of a box, the steps `a..e` of it counted row by row. `owned` says of one number's place whether to go on.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn each(
        &self,
        (lo, hi): (&Ix, &Ix),
        (a, e): (i64, i64),
        base: &[*mut u8],
        owned: impl Fn(usize, i64) -> bool,
        mut f: impl FnMut(Query<'_>),
    ) {
        let q = self.queries;
        if a >= e {
            return;
        }
        if q == 0 {
            // SAFETY: the caller's
            return unsafe { self.run_of(lo, 1, base, &owned, &mut f) };
        }
        // SAFETY: the caller's
        self.runs((lo, hi), (a, e), |x, run| unsafe { self.run_of(x, run, base, &owned, &mut f) });
    }
    /// The steps `a..e` of the queries of a box, counted row by row, as runs along the last loop: where each begins, and how many.
    #[inline(always)]
    pub(super) fn runs(&self, (lo, hi): (&Ix, &Ix), (a, e): (i64, i64), mut f: impl FnMut(&Ix, i64)) {
        let (q, last) = (self.queries, self.queries - 1);
        let mut x = *lo;
        let (mut k, mut left) = (a, a);
        if a >= e {
            return;
        }
        for d in (0..q).rev() {
            let n = hi[d] - lo[d];
            x[d] = lo[d] + left % n;
            left /= n;
        }
        while k < e {
            let run = (hi[last] - x[last]).min(e - k);
            f(&x, run);
            k += run;
            x[last] = hi[last] - 1;
            for d in (0..q).rev() {
                x[d] += 1;
                if x[d] < hi[d] {
                    break;
                }
                x[d] = lo[d];
            }
        }
    }
    /// The same for so many queries along the last loop.
    ///
    /// # Safety
    /// As for `run`.
    #[inline(always)]
    unsafe fn run_of(
        &self,
        x: &Ix,
        run: i64,
        base: &[*mut u8],
        owned: &impl Fn(usize, i64) -> bool,
        f: &mut impl FnMut(Query<'_>),
    ) {
        let q = self.queries;
        let along = |st: &Ix| if q == 0 { 0 } else { st[q - 1] };
        let sum = |st: &Ix| (0..q).map(|d| x[d] * st[d]).sum::<i64>();
        let (to, from) = (sum(&self.dst), sum(&self.src));
        let mut at = [std::ptr::null::<u8>(); MAX];
        for (m, at) in self.numbers.iter().zip(&mut at) {
            *at = base[m.slot as usize].wrapping_offset((m.off + sum(&m.st)) as isize);
        }
        let (mut x, mut places) = (*x, [0; MAX]);
        'run: for i in 0..run {
            let mut there = true;
            for (j, m) in self.numbers.iter().enumerate() {
                // SAFETY: the caller's: there are numbers at all steps of the queries
                let n = unsafe { integer(at[j].wrapping_offset((i * along(&m.st)) as isize), m.dtype) };
                let n = m.counted(n);
                let place = n.min(m.most).max(0);
                if !owned(j, place) {
                    continue 'run;
                }
                there &= m.most >= 0 && (m.clip || place == n);
                places[j] = place;
            }
            f(Query {
                x: &x,
                to: to + i * along(&self.dst),
                from: from + i * along(&self.src),
                places: &places,
                there,
            });
            if q > 0 {
                x[q - 1] += 1;
            }
        }
    }

    /// The queries `steps`, counted row by row.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn take<T: Word>(&self, part: &Part, steps: (i64, i64), base: &[*mut u8]) {
        if let (Some(quick), false) = (&self.quick, cfg!(target_family = "wasm")) {
            // SAFETY: the caller's
            return unsafe { self.quick_take::<T>(quick, part, steps, base) };
        }
        let out = base[self.out as usize].wrapping_offset(part.to as isize);
        let from = base[self.from as usize].wrapping_offset((self.off + part.ahead[0]) as isize);
        let row = |q: Query<'_>| {
            let holds = |(lo, hi): &Box_| {
                self.numbers.iter().zip(q.places).all(|(m, place)| {
                    let step = place + m.window.map_or(0, |w| q.x[w]);
                    // where there are no steps the first part says so
                    if m.most < 0 { lo[m.index] == 0 } else { (lo[m.index]..hi[m.index]).contains(&step) }
                })
            };
            let to = out.wrapping_offset(q.to as isize);
            let other = !part.boxes.is_empty() && !part.boxes.iter().any(holds);
            // SAFETY: the caller's: both rows are in their values
            unsafe {
                if other || !q.there {
                    let bits = T::of(if other { self.absent } else { self.fill });
                    self.rows((&[0; MAX], &self.ext), |d, _, n, st| {
                        fill(to.wrapping_offset(d), n, st.0, bits)
                    });
                } else {
                    let found: i64 = self.numbers.iter().zip(q.places).map(|(m, place)| place * m.unit).sum();
                    let from = from.wrapping_offset((q.from + found) as isize);
                    self.rows((&[0; MAX], &self.ext), |d, s, n, st| {
                        copy::<T>(to.wrapping_offset(d), from.wrapping_offset(s), n, st);
                    });
                }
            }
        };
        // SAFETY: the caller's
        unsafe { self.each((&[0; MAX], &self.ext), steps, base, |_, _| true, row) }
    }

    /// The rows `rows` of a part.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn put<T: Word>(&self, p: &Put, part: &Part, (lo, hi): (i64, i64), base: &[*mut u8]) {
        if lo >= hi {
            return;
        }
        let out = base[self.out as usize].wrapping_offset(part.to as isize);
        // SAFETY: the caller's
        unsafe { p.lay::<T>(out, part.ahead[0], (lo, hi), base) }
        let from = base[self.from as usize].wrapping_offset((self.off + part.ahead[1]) as isize);
        // rows of others are passed over at once
        let reach = |j: usize| self.numbers[j].window.map_or(0, |w| self.ext[w] - 1);
        let owned = |j: usize, place: i64| match p.own {
            Rows::Found(k) if k == j => place < hi && place + reach(j) >= lo,
            _ => true,
        };
        for (a, e) in &part.boxes {
            let (mut a, mut e) = (*a, *e);
            if let Rows::Loop(l) = p.own {
                (a[l], e[l]) = (lo, hi);
            }
            if let (Some(quick), false) = (&self.quick, cfg!(target_family = "wasm")) {
                // SAFETY: the caller's
                unsafe { self.quick_put::<T>(quick, p, (&a, &e), (lo, hi), [out, from], base) }
                continue;
            }
            let count: i64 = (0..self.queries).map(|d| e[d] - a[d]).product();
            let row = |q: Query<'_>| {
                let (mut a, mut e) = (a, e);
                if let Rows::Found(j) = p.own
                    && let Some(w) = self.numbers[j].window
                {
                    let place = q.places[j];
                    if w >= self.queries {
                        (a[w], e[w]) = (a[w].max(lo - place), e[w].min(hi - place));
                    } else if !(lo..hi).contains(&(place + q.x[w])) {
                        return;
                    }
                }
                if !q.there {
                    return;
                }
                let found: i64 = self.numbers.iter().zip(q.places).map(|(m, place)| place * m.unit).sum();
                let (to, from) =
                    (out.wrapping_offset((q.to + found) as isize), from.wrapping_offset(q.from as isize));
                // SAFETY: the caller's: both rows are in their values, and this task owns what is written
                unsafe {
                    match p.combine {
                        None => self.rows((&a, &e), |d, s, n, st| {
                            copy::<T>(to.wrapping_offset(d), from.wrapping_offset(s), n, st);
                        }),
                        Some(f) => self.rows((&a, &e), |d, s, n, st| {
                            combine::<T>(f, to.wrapping_offset(d), from.wrapping_offset(s), n, st);
                        }),
                    }
                }
            };
            // SAFETY: the caller's
            unsafe { self.each((&a, &e), (0, count), base, owned, row) }
        }
    }

    /// Calls back with every innermost run of a row: bytes to what is written and read, how many elements, and bytes from one to the next.
    #[inline(always)]
    fn rows(&self, (lo, hi): (&Ix, &Ix), mut f: impl FnMut(isize, isize, i64, (i64, i64))) {
        let (q, n) = (self.queries, self.n);
        if n == q {
            return f(0, 0, 1, (self.size as i64, self.size as i64));
        }
        if (q..n).any(|d| lo[d] >= hi[d]) {
            return;
        }
        let last = n - 1;
        let mut x = *lo;
        loop {
            let places = |st: &Ix| x[q..n].iter().zip(&st[q..n]).map(|(x, st)| x * st).sum::<i64>();
            let (d, s) = (places(&self.dst), places(&self.src));
            f(d as isize, s as isize, hi[last] - lo[last], (self.dst[last], self.src[last]));
            let mut d = last;
            loop {
                if d == q {
                    return;
                }
                d -= 1;
                x[d] += 1;
                if x[d] < hi[d] {
                    break;
                }
                x[d] = lo[d];
            }
        }
    }
}

impl Put {
    /// Lays the rows `lo..hi` of what was there, where the result is not there already.
    ///
    /// # Safety
    /// As for `run`.
    pub(super) unsafe fn lay<T: Word>(
        &self,
        out: *mut u8,
        ahead: i64,
        (lo, hi): (i64, i64),
        base: &[*mut u8],
    ) {
        let was = self.was.map(|(slot, off, _)| base[slot as usize].wrapping_offset((off + ahead) as isize));
        if was == Some(out) || self.ext[..self.rank].contains(&0) {
            return;
        }
        if let (true, Some(was)) = (self.dense, was) {
            let row = self.st[0];
            let (at, n) = ((lo * row) as isize, (hi - lo) * row / size_of::<T>() as i64);
            // SAFETY: the caller's: the rows follow one another in both
            return unsafe {
                copy::<T>(
                    out.wrapping_offset(at),
                    was.wrapping_offset(at),
                    n,
                    (size_of::<T>() as i64, size_of::<T>() as i64),
                )
            };
        }
        let src = self.was.map_or([0; MAX], |w| w.2);
        let last = self.rank - 1;
        let (a, e) = if last == 0 { (lo, hi) } else { (0, self.ext[last]) };
        let mut x = [0; MAX];
        (x[0], x[last]) = (lo, a);
        loop {
            let (mut d, mut s) = (0, 0);
            for k in 0..self.rank {
                d += x[k] * self.st[k];
                s += x[k] * src[k];
            }
            let to = out.wrapping_offset(d as isize);
            // SAFETY: the caller's: both rows are in their values
            unsafe {
                match was {
                    Some(was) => {
                        copy::<T>(to, was.wrapping_offset(s as isize), e - a, (self.st[last], src[last]))
                    }
                    None => fill(to, e - a, self.st[last], T::of(self.bits)),
                }
            }
            let mut d = last;
            loop {
                if d == 0 {
                    return;
                }
                d -= 1;
                x[d] += 1;
                if x[d] < if d == 0 { hi } else { self.ext[d] } {
                    break;
                }
                x[d] = 0;
            }
        }
    }
}

/// # Safety
/// There are n elements, `st` bytes apart; nobody else reads or writes them.
#[inline(always)]
pub(super) unsafe fn fill<T: Word>(to: *mut u8, n: i64, st: i64, x: T) {
    if st == size_of::<T>() as i64 {
        // SAFETY: the caller's: they follow one another
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<T>>(), n.max(0) as usize) };
        return to.fill(MaybeUninit::new(x));
    }
    for i in 0..n {
        // SAFETY: the caller's
        unsafe { *to.wrapping_offset((i * st) as isize).cast::<T>() = x }
    }
}

/// # Safety
/// There are n elements at both, so many bytes apart; nobody else reads or writes the first.
#[inline(always)]
pub(super) unsafe fn copy<T: Word>(to: *mut u8, from: *const u8, n: i64, (dst, src): (i64, i64)) {
    let size = size_of::<T>() as i64;
    // SAFETY: the caller's
    unsafe {
        if n == 1 {
            *to.cast::<T>() = *from.cast::<T>();
        } else if dst == size && src == size {
            std::ptr::copy_nonoverlapping(from.cast::<T>(), to.cast::<T>(), n as usize);
        } else {
            for i in 0..n {
                let (to, from) =
                    (to.wrapping_offset((i * dst) as isize), from.wrapping_offset((i * src) as isize));
                *to.cast::<T>() = *from.cast::<T>();
            }
        }
    }
}

/// # Safety
/// As for `copy`; `f` combines elements of this size.
#[inline(always)]
pub(super) unsafe fn combine<T: Word>(f: Fun, to: *mut u8, from: *const u8, n: i64, (dst, src): (i64, i64)) {
    let size = size_of::<T>() as i64;
    // SAFETY: the caller's; the result may be over the first operand
    unsafe {
        if dst == size && src == size {
            return f(n as usize, to, to, from, from, &[0.0; 4]);
        }
        for i in 0..n {
            let (to, from) =
                (to.wrapping_offset((i * dst) as isize), from.wrapping_offset((i * src) as isize));
            f(1, to, to, from, from, &[0.0; 4]);
        }
    }
}
