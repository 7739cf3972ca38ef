//! The general implementation of gathers and scatters: query by query, for any loops.

use super::{BoundPartial, GatherScatterKernel, LoopBox, RowOwnership, ScatterTarget};
use crate::core::DType;
use crate::exec::compile::element_word::ElementWord;
use crate::exec::compile::index::{LoopVec, MAX_LOOPS};
use crate::kernels::SliceKernel as Fun;
use std::mem::MaybeUninit;

/// Reads an index, saturated to an int64.
///
/// # Safety
/// `p` points to an integer of type `dtype`.
#[inline(always)]
pub(crate) unsafe fn read_index(p: *const u8, dtype: DType) -> i64 {
    // SAFETY: `p` points to an integer of this type (caller contract).
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

/// A query, and the row that its indices select.
struct QueryHit<'a> {
    /// The loop indices.
    loops: &'a LoopVec,
    /// The offset of the row of the result, in bytes.
    out_offset: i64,
    /// The offset of the row of the source, in bytes.
    src_offset: i64,
    /// The start that each index selects.
    starts: &'a LoopVec,
    /// False if an index selects no row.
    in_bounds: bool,
}

impl GatherScatterKernel {
    /// Calls `f` for the queries `a..e` of a box, in row-major order.
    ///
    /// `owned` receives the number of an index operand and its start, and returns false to skip the
    /// query.
    ///
    /// # Safety
    /// The contract of `run` holds for these queries.
    #[inline(always)]
    unsafe fn for_each_query(
        &self,
        (lo, hi): (&LoopVec, &LoopVec),
        (a, e): (i64, i64),
        base: &[*mut u8],
        owned: impl Fn(usize, i64) -> bool,
        mut f: impl FnMut(QueryHit<'_>),
    ) {
        let q = self.num_query_loops;
        if a >= e {
            return;
        }
        // SAFETY: the caller upholds the contract for these queries.
        let mut each = |x: &LoopVec, run| unsafe { self.for_each_in_run(x, run, base, &owned, &mut f) };
        if q == 0 {
            // (there is a single query)
            each(lo, 1);
        } else {
            self.for_each_run((lo, hi), (a, e), each);
        }
    }
    /// Calls `f` for each run of queries along the last query loop, with the start and length of
    /// the run.
    ///
    /// The runs cover the queries `a..e` of a box, in row-major order.
    #[inline(always)]
    pub(super) fn for_each_run(
        &self,
        (lo, hi): (&LoopVec, &LoopVec),
        (a, e): (i64, i64),
        mut f: impl FnMut(&LoopVec, i64),
    ) {
        let (q, last) = (self.num_query_loops, self.num_query_loops - 1);
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
    /// Calls `f` for each of `run` queries along the last query loop, from `x` on.
    ///
    /// # Safety
    /// The contract of `run` holds for these queries.
    #[inline(always)]
    unsafe fn for_each_in_run(
        &self,
        x: &LoopVec,
        run: i64,
        base: &[*mut u8],
        owned: &impl Fn(usize, i64) -> bool,
        f: &mut impl FnMut(QueryHit<'_>),
    ) {
        let q = self.num_query_loops;
        let along = |st: &LoopVec| if q == 0 { 0 } else { st[q - 1] };
        let sum = |st: &LoopVec| (0..q).map(|d| x[d] * st[d]).sum::<i64>();
        let (to, from) = (sum(&self.dst_strides), sum(&self.src_strides));
        let mut at = [std::ptr::null::<u8>(); MAX_LOOPS];
        for (m, at) in self.indices.iter().zip(&mut at) {
            *at = base[m.slot as usize].wrapping_offset((m.offset + sum(&m.strides)) as isize);
        }
        let (mut x, mut places) = (*x, [0; MAX_LOOPS]);
        'run: for i in 0..run {
            let mut there = true;
            for (j, m) in self.indices.iter().enumerate() {
                // SAFETY: there are indices for all queries (caller contract).
                let n =
                    unsafe { read_index(at[j].wrapping_offset((i * along(&m.strides)) as isize), m.dtype) };
                let n = m.resolve_negative(n);
                let start = n.min(m.max_start).max(0);
                if !owned(j, start) {
                    continue 'run;
                }
                there &= m.max_start >= 0 && (m.clip || start == n);
                places[j] = start;
            }
            f(QueryHit {
                loops: &x,
                out_offset: to + i * along(&self.dst_strides),
                src_offset: from + i * along(&self.src_strides),
                starts: &places,
                in_bounds: there,
            });
            if q > 0 {
                x[q - 1] += 1;
            }
        }
    }

    /// Gathers a range of queries, in row-major order.
    ///
    /// # Safety
    /// The contract of `run` holds for these queries.
    #[inline(never)]
    pub(super) unsafe fn gather<T: ElementWord>(
        &self,
        part: &BoundPartial,
        steps: (i64, i64),
        base: &[*mut u8],
    ) {
        if let Some(quick) = self.batched() {
            // SAFETY: the caller upholds the contract for these queries.
            return unsafe { self.gather_batched::<T>(quick, part, steps, base) };
        }
        let out = base[self.out as usize].wrapping_offset(part.out_offset as isize);
        let from = base[self.src_slot as usize]
            .wrapping_offset((self.src_offset + part.operand_offsets[0]) as isize);
        let row = |q: QueryHit<'_>| {
            let holds = |(lo, hi): &LoopBox| {
                self.indices.iter().zip(q.starts).all(|(m, start)| {
                    let step = start + m.window.map_or(0, |w| q.loops[w]);
                    // if no start is valid, the first partial writes the fill
                    if m.max_start < 0 {
                        lo[m.loop_id] == 0
                    } else {
                        (lo[m.loop_id]..hi[m.loop_id]).contains(&step)
                    }
                })
            };
            let to = out.wrapping_offset(q.out_offset as isize);
            let other = !part.boxes.is_empty() && !part.boxes.iter().any(holds);
            // SAFETY: both rows are within their values, and only this task writes the result
            // (caller contract).
            unsafe {
                if other || !q.in_bounds {
                    let bits = T::from_bits(if other { self.absent_bits } else { self.fill_bits });
                    self.for_each_row_run((&[0; MAX_LOOPS], &self.ext), |d, _, n, st| {
                        fill(to.wrapping_offset(d), n, st.0, bits)
                    });
                } else {
                    let found: i64 =
                        self.indices.iter().zip(q.starts).map(|(m, start)| start * m.target_stride).sum();
                    let from = from.wrapping_offset((q.src_offset + found) as isize);
                    self.for_each_row_run((&[0; MAX_LOOPS], &self.ext), |d, s, n, st| {
                        copy::<T>(to.wrapping_offset(d), from.wrapping_offset(s), n, st);
                    });
                }
            }
        };
        // SAFETY: the contract of `run` holds for these queries (caller contract).
        unsafe { self.for_each_query((&[0; MAX_LOOPS], &self.ext), steps, base, |_, _| true, row) }
    }

    /// Computes the rows `lo..hi` of one partial of a scatter.
    ///
    /// # Safety
    /// The contract of `run` holds for these rows.
    #[inline(never)]
    pub(super) unsafe fn scatter<T: ElementWord>(
        &self,
        p: &ScatterTarget,
        part: &BoundPartial,
        (lo, hi): (i64, i64),
        base: &[*mut u8],
    ) {
        if lo >= hi {
            return;
        }
        let out = base[self.out as usize].wrapping_offset(part.out_offset as isize);
        // SAFETY: the rows are within the partial (caller contract).
        unsafe { p.write_init_rows::<T>(out, part.operand_offsets[0], (lo, hi), base) }
        let from = base[self.src_slot as usize]
            .wrapping_offset((self.src_offset + part.operand_offsets[1]) as isize);
        // skip queries whose rows other tasks own
        let reach = |j: usize| self.indices[j].window.map_or(0, |w| self.ext[w] - 1);
        let owned = |j: usize, start: i64| match p.ownership {
            RowOwnership::Indexed(k) if k == j => start < hi && start + reach(j) >= lo,
            _ => true,
        };
        for (a, e) in &part.boxes {
            let (mut a, mut e) = (*a, *e);
            if let RowOwnership::Loop(l) = p.ownership {
                (a[l], e[l]) = (lo, hi);
            }
            if let Some(quick) = self.batched() {
                // SAFETY: the caller upholds the contract for the updates of these rows.
                unsafe { self.scatter_batched::<T>(quick, p, (&a, &e), (lo, hi), [out, from], base) }
                continue;
            }
            let count: i64 = (0..self.num_query_loops).map(|d| e[d] - a[d]).product();
            let row = |q: QueryHit<'_>| {
                let (mut a, mut e) = (a, e);
                if let RowOwnership::Indexed(j) = p.ownership
                    && let Some(w) = self.indices[j].window
                {
                    let start = q.starts[j];
                    if w >= self.num_query_loops {
                        (a[w], e[w]) = (a[w].max(lo - start), e[w].min(hi - start));
                    } else if !(lo..hi).contains(&(start + q.loops[w])) {
                        return;
                    }
                }
                if !q.in_bounds {
                    return;
                }
                let found: i64 =
                    self.indices.iter().zip(q.starts).map(|(m, start)| start * m.target_stride).sum();
                let (to, from) = (
                    out.wrapping_offset((q.out_offset + found) as isize),
                    from.wrapping_offset(q.src_offset as isize),
                );
                // SAFETY: both rows are within their values, and only this task writes the result
                // (caller contract).
                unsafe {
                    match p.combine {
                        None => self.for_each_row_run((&a, &e), |d, s, n, st| {
                            copy::<T>(to.wrapping_offset(d), from.wrapping_offset(s), n, st);
                        }),
                        Some(f) => self.for_each_row_run((&a, &e), |d, s, n, st| {
                            combine::<T>(f, to.wrapping_offset(d), from.wrapping_offset(s), n, st);
                        }),
                    }
                }
            };
            // SAFETY: the caller upholds the contract for the updates of these rows.
            unsafe { self.for_each_query((&a, &e), (0, count), base, owned, row) }
        }
    }

    /// Calls `f` for each innermost run of a row: its offsets, its length, and its strides.
    /// Offsets and strides are in bytes, of the result first and of the source second.
    #[inline(always)]
    fn for_each_row_run(
        &self,
        (lo, hi): (&LoopVec, &LoopVec),
        mut f: impl FnMut(isize, isize, i64, (i64, i64)),
    ) {
        let (q, n) = (self.num_query_loops, self.num_loops);
        if n == q {
            return f(0, 0, 1, (self.element_bytes as i64, self.element_bytes as i64));
        }
        if (q..n).any(|d| lo[d] >= hi[d]) {
            return;
        }
        let last = n - 1;
        let mut x = *lo;
        loop {
            let places = |st: &LoopVec| x[q..n].iter().zip(&st[q..n]).map(|(x, st)| x * st).sum::<i64>();
            let (d, s) = (places(&self.dst_strides), places(&self.src_strides));
            f(d as isize, s as isize, hi[last] - lo[last], (self.dst_strides[last], self.src_strides[last]));
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

impl ScatterTarget {
    /// Writes the rows `lo..hi` of the initial value, unless the result is stored over it.
    ///
    /// # Safety
    /// The contract of `run` holds for these rows.
    pub(super) unsafe fn write_init_rows<T: ElementWord>(
        &self,
        out: *mut u8,
        ahead: i64,
        (lo, hi): (i64, i64),
        base: &[*mut u8],
    ) {
        let was = self.init.map(|(slot, off, _)| base[slot as usize].wrapping_offset((off + ahead) as isize));
        if was == Some(out) || self.ext[..self.rank].contains(&0) {
            return;
        }
        if let (true, Some(was)) = (self.contiguous, was) {
            let row = self.strides[0];
            let (at, n) = ((lo * row) as isize, (hi - lo) * row / size_of::<T>() as i64);
            // SAFETY: the rows are contiguous in both values, and within them (caller contract).
            return unsafe {
                copy::<T>(
                    out.wrapping_offset(at),
                    was.wrapping_offset(at),
                    n,
                    (size_of::<T>() as i64, size_of::<T>() as i64),
                )
            };
        }
        let src = self.init.map_or([0; MAX_LOOPS], |w| w.2);
        let last = self.rank - 1;
        let (a, e) = if last == 0 { (lo, hi) } else { (0, self.ext[last]) };
        let mut x = [0; MAX_LOOPS];
        (x[0], x[last]) = (lo, a);
        loop {
            let (mut d, mut s) = (0, 0);
            for k in 0..self.rank {
                d += x[k] * self.strides[k];
                s += x[k] * src[k];
            }
            let to = out.wrapping_offset(d as isize);
            // SAFETY: both rows are within their values (caller contract).
            unsafe {
                match was {
                    Some(was) => {
                        copy::<T>(to, was.wrapping_offset(s as isize), e - a, (self.strides[last], src[last]))
                    }
                    None => fill(to, e - a, self.strides[last], T::from_bits(self.init_bits)),
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

/// Fills `n` elements, `st` bytes apart, with `x`.
///
/// # Safety
/// `to` points to space for `n` such elements, which no other thread reads or writes.
#[inline(always)]
pub(super) unsafe fn fill<T: ElementWord>(to: *mut u8, n: i64, st: i64, x: T) {
    // SAFETY: `to` has writable space for `n` elements (caller contract), which are contiguous if
    // `st` is their size.
    unsafe {
        if st == size_of::<T>() as i64 {
            let to = std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<T>>(), n.max(0) as usize);
            return to.fill(MaybeUninit::new(x));
        }
        for i in 0..n {
            *to.wrapping_offset((i * st) as isize).cast::<T>() = x;
        }
    }
}

/// Copies `n` elements, which are `dst` and `src` bytes apart.
///
/// # Safety
/// `from` points to `n` such elements, and `to` to space for `n`, which does not overlap them. No
/// other thread reads or writes this space.
#[inline(always)]
pub(super) unsafe fn copy<T: ElementWord>(to: *mut u8, from: *const u8, n: i64, (dst, src): (i64, i64)) {
    let size = size_of::<T>() as i64;
    // SAFETY: source and destination have `n` such elements each, and do not overlap (caller
    // contract).
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

/// Combines `n` elements with those at `to`.
///
/// # Safety
/// The contract of [`copy`] holds, the elements at `to` are initialized, and `f` combines elements
/// of the size of `T`.
#[inline(always)]
pub(super) unsafe fn combine<T: ElementWord>(
    f: Fun,
    to: *mut u8,
    from: *const u8,
    n: i64,
    (dst, src): (i64, i64),
) {
    let size = size_of::<T>() as i64;
    // SAFETY: both have `n` such initialized elements, which do not overlap (caller contract), and
    // the result of `f` may overwrite its first operand (`kernels::combine`).
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
