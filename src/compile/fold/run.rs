//! Running folds.

use super::{BLOCK, FoldKernel};
use crate::compile::index::{Ix, MAX};
use crate::compile::kernel::{self, ACCUMULATOR, Scratch, Tree};
use crate::runtime::kernels;
use std::ops::Range;

/// Rows that [`kernels::rows`] takes together.
const ROWS: i64 = 8;

impl FoldKernel {
    /// The index of a tile of the result, its elements, and where it is written.
    fn locate(&self, task: i64, base: &[*mut u8]) -> (usize, Ix, i64, *mut u8) {
        let last = self.pre.rank - 1;
        let (rest, column) = (task / self.columns, task % self.columns);
        let (copy, mut k) = ((rest / self.outer) as usize, rest % self.outer);
        let mut x = [0; MAX];
        let mut off = copy as i64 * self.copy;
        for d in (0..last).rev().filter(|d| !self.reduced[*d]) {
            x[d] = k % self.pre.ext[d];
            k /= self.pre.ext[d];
            off += x[d] * self.st[d];
        }
        let mut n = 1;
        if !self.row {
            x[last] = column * self.tile;
            n = (self.pre.ext[last] - x[last]).min(self.tile);
            off += x[last] * self.st[last];
        }
        (copy, x, n, base[self.out as usize].wrapping_offset(off as isize))
    }
    /// # Safety
    /// As for [`kernel::run`]; `temp` has the bytes that are asked for.
    pub(crate) unsafe fn run(
        &self,
        chunk: i64,
        chunks: i64,
        base: &[*mut u8],
        temp: *mut u8,
        s: &mut Scratch,
    ) {
        s.fit(self.pre.regs as usize, self.pre.operands());
        if self.staged() {
            let (rest, span) = (chunk / self.spans, chunk % self.spans);
            let (task, rank) = (rest / self.ranks(), rest % self.ranks());
            let (copy, x, n, _) = self.locate(task, base);
            let Some(r) = self.copies[copy].get(rank as usize) else { return };
            let (a, b) = (span * self.span, ((span + 1) * self.span).min(self.units(r)));
            let to = temp.wrapping_offset((chunk * self.slot()) as isize);
            // SAFETY: the caller's
            unsafe {
                if a < b {
                    let d = self.part(&x, n, r, a, b, base, 0, s);
                    debug_assert_eq!(d, 0);
                    debug_assert!(n * self.size <= self.slot(), "a span's result is larger than its slot");
                    std::ptr::copy_nonoverlapping(s.accumulator(0), to, (n * self.size) as usize);
                }
            }
            return;
        }
        let tasks = self.tasks();
        // SAFETY: the caller's
        unsafe { self.results(tasks * chunk / chunks..tasks * (chunk + 1) / chunks, base, s) }
    }
    /// All results at indices `a..b` of the outermost dimension.
    ///
    /// # Safety
    /// As for [`kernel::run`]; it can run by rows.
    pub(crate) unsafe fn run_rows(&self, a: i64, b: i64, base: &[*mut u8], s: &mut Scratch) {
        debug_assert!(self.by_rows());
        let each = self.tasks() / self.pre.ext[0];
        // SAFETY: the caller's
        unsafe { self.results(a * each..b * each, base, s) }
    }
    /// These tiles of the result.
    ///
    /// # Safety
    /// As for [`FoldKernel::run`].
    unsafe fn results(&self, tasks: Range<i64>, base: &[*mut u8], s: &mut Scratch) {
        // SAFETY: the caller's
        unsafe {
            if let Some(plain) = self.plain.as_ref().filter(|_| !on_a_page!()) {
                return plain.run(tasks.start, tasks.end, base, s);
            }
            s.fit(self.pre.regs as usize, self.pre.operands());
            self.tiles(tasks, base, s);
        }
    }
    /// These tiles of the result, each at once.
    ///
    /// # Safety
    /// As for [`FoldKernel::run`]; the scratch fits.
    unsafe fn tiles(&self, tasks: Range<i64>, base: &[*mut u8], s: &mut Scratch) {
        for task in tasks {
            let (copy, mut x, n, dst) = self.locate(task, base);
            let ranks = &self.copies[copy];
            // SAFETY: the caller's; the result's tile has n elements
            unsafe {
                if let (Some(f), Some(d)) = (self.eight, self.reduced.iter().position(|r| *r)) {
                    x[d] = ranks[0].0[d];
                    let m = &self.pre.bands[0].segs[0].mems[0];
                    let step = (ranks[1].0[d] - ranks[0].0[d]) * m.st[d];
                    f(n as usize, dst, kernel::address(m, base, &x, self.pre.rank), step as isize);
                    continue;
                }
                if ranks.is_empty() {
                    self.fill(s.accumulator(0), n);
                    self.write(s.accumulator(0), dst, n);
                    continue;
                }
                if self.row
                    && let [r] = &ranks[..]
                    && self.units(r) == 1
                {
                    // one unit: no tree
                    let m = self.size_of(r);
                    let v = self.unit(base, &mut x, (&r.0, &r.1), 0, m, 0, s);
                    (self.fold)(m as usize, dst, v, v, v, &[0.0; 4]);
                    continue;
                }
                let mut tree = Tree::new(0);
                for r in ranks {
                    let d = self.part(&x, n, r, 0, self.units(r), base, tree.depth, s);
                    debug_assert_eq!(d, tree.depth);
                    tree.pushed(|a, b| self.merge(a, b, n, s));
                }
                tree.end(|a, b| self.merge(a, b, n, s));
                self.write(s.accumulator(0), dst, n);
            }
        }
        if self.stream {
            kernels::fence();
        }
    }
    /// The second stage: results of spans become those of the fold.
    ///
    /// # Safety
    /// As for [`FoldKernel::run`], which has run all chunks.
    pub(crate) unsafe fn end(
        &self,
        chunk: i64,
        chunks: i64,
        base: &[*mut u8],
        temp: *mut u8,
        s: &mut Scratch,
    ) {
        s.fit(self.pre.regs as usize, self.pre.operands());
        let tasks = self.tasks();
        for task in tasks * chunk / chunks..tasks * (chunk + 1) / chunks {
            let (copy, _, n, dst) = self.locate(task, base);
            // SAFETY: the caller's
            unsafe {
                if self.copies[copy].is_empty() {
                    self.fill(s.accumulator(0), n);
                    self.write(s.accumulator(0), dst, n);
                    continue;
                }
                let mut tree = Tree::new(0);
                for (k, r) in self.copies[copy].iter().enumerate() {
                    let mut inner = Tree::new(tree.depth);
                    let units = self.units(r);
                    for span in 0..(units + self.span - 1) / self.span {
                        let at = ((task * self.ranks() + k as i64) * self.spans + span) * self.slot();
                        let from = temp.wrapping_offset(at as isize);
                        std::ptr::copy_nonoverlapping(
                            from,
                            s.accumulator(inner.depth),
                            (n * self.size) as usize,
                        );
                        inner.pushed(|a, b| self.merge(a, b, n, s));
                    }
                    inner.end(|a, b| self.merge(a, b, n, s));
                    tree.pushed(|a, b| self.merge(a, b, n, s));
                }
                tree.end(|a, b| self.merge(a, b, n, s));
                self.write(s.accumulator(0), dst, n);
            }
        }
    }
    /// Sets the folded indices of dimensions below `dims` to the k-th of a rank's.
    #[inline(always)]
    fn place(&self, x: &mut Ix, (lo, hi): (&Ix, &Ix), mut k: i64, dims: usize) {
        for d in (0..dims).rev().filter(|d| self.reduced[*d]) {
            let e = hi[d] - lo[d];
            x[d] = lo[d] + k % e;
            k /= e;
        }
    }
    /// The m elements of a rank from the one of this number on, one behind the other: where they are, or in accumulator `at`.
    ///
    /// # Safety
    /// As for [`FoldKernel::run`].
    #[expect(clippy::too_many_arguments)]
    #[inline(always)]
    unsafe fn unit(
        &self,
        base: &[*mut u8],
        x: &mut Ix,
        rank: (&Ix, &Ix),
        from: i64,
        m: i64,
        at: usize,
        s: &mut Scratch,
    ) -> *mut u8 {
        let last = self.pre.rank - 1;
        let row = rank.1[last] - rank.0[last];
        let most = if self.direct { m } else { self.pre.tile };
        self.place(x, rank, from, last + 1);
        if from % row + m <= row && m <= most {
            // SAFETY: the caller's
            return unsafe { kernel::value(&self.pre, base, x, m, s) };
        }
        let to = s.accumulator(at);
        let mut done = 0;
        while done < m {
            self.place(x, rank, from + done, last + 1);
            let n = (m - done).min(row - (from + done) % row).min(most);
            let to = to.wrapping_offset((done * self.size) as isize);
            // SAFETY: the caller's; an accumulator holds a unit
            unsafe { kernel::value_to(&self.pre, base, x, n, self.size, to, s) };
            done += n;
        }
        to
    }
    /// A tile of the result, from an accumulator to its place.
    ///
    /// # Safety
    /// The result has these n elements.
    unsafe fn write(&self, from: *mut u8, dst: *mut u8, n: i64) {
        let step = self.st[self.pre.rank - 1];
        // SAFETY: the caller's
        unsafe {
            if self.row || n == 1 || step == self.size {
                return std::ptr::copy_nonoverlapping(from, dst, (n * self.size) as usize);
            }
            for i in 0..n {
                let (from, to) = (
                    from.wrapping_offset((i * self.size) as isize),
                    dst.wrapping_offset((i * step) as isize),
                );
                std::ptr::copy_nonoverlapping(from, to, self.size as usize);
            }
        }
    }
    /// # Safety
    /// `dst` has n elements.
    unsafe fn fill(&self, dst: *mut u8, n: i64) {
        let k = [self.neutral, 0.0, 0.0, 0.0];
        if let Some(f) = kernels::fill(self.size as usize) {
            // SAFETY: the caller's
            unsafe { f(n as usize, dst, dst, dst, dst, &k) }
        }
    }
    /// Accumulator a takes up accumulator b.
    fn merge(&self, a: usize, b: usize, n: i64, s: &Scratch) {
        let (a, b) = (s.accumulator(a), s.accumulator(b));
        // SAFETY: two accumulators, each of at least n elements
        unsafe { (self.combine)(n as usize, a, a, b, b, &[0.0; 4]) }
    }
    /// Units a..b of a rank, for the result's tile at x of n elements: into accumulator `depth`.
    ///
    /// # Safety
    /// As for [`FoldKernel::run`].
    #[expect(clippy::too_many_arguments)]
    unsafe fn part(
        &self,
        x: &Ix,
        n: i64,
        (lo, hi): &(Ix, Ix),
        a: i64,
        b: i64,
        base: &[*mut u8],
        depth: usize,
        s: &mut Scratch,
    ) -> usize {
        let last = self.pre.rank - 1;
        let mut x = *x;
        let mut tree = Tree::new(depth);
        if self.row {
            let all = self.size_of(&(*lo, *hi));
            for u in a..b {
                let (from, to) = (u * self.tile, s.accumulator(tree.depth));
                let m = (all - from).min(self.tile);
                // SAFETY: the caller's
                unsafe {
                    let v = self.unit(base, &mut x, (lo, hi), from, m, tree.depth + 1, s);
                    (self.fold)(m as usize, to, v, v, v, &[0.0; 4]);
                }
                tree.pushed(|a, b| self.merge(a, b, 1, s));
            }
            tree.end(|a, b| self.merge(a, b, 1, s));
            return depth;
        }
        let rows: i64 = (0..last).filter(|d| self.reduced[*d]).map(|d| hi[d] - lo[d]).product();
        let inner = (0..last).rev().find(|d| self.reduced[*d]);
        for u in a..b {
            let (mut r, end) = (u * BLOCK, ((u + 1) * BLOCK).min(rows));
            let to = s.accumulator(tree.depth);
            // SAFETY: the caller's
            unsafe {
                self.fill(to, n);
                while r < end {
                    self.place(&mut x, (lo, hi), r, last);
                    if let (true, Some(d)) = (self.direct, inner) {
                        // rows in one run, as many as are taken together
                        let run = (hi[d] - x[d]).min(end - r);
                        let run = if r + run == end { run } else { run / ROWS * ROWS };
                        if run > 0 {
                            let v = kernel::value(&self.pre, base, &x, n, s);
                            let step = self.pre.bands[0].segs[0].mems[0].st[d];
                            (self.rows)(n as usize, to, v, run as usize, step as isize);
                            r += run;
                            continue;
                        }
                    }
                    let now = (end - r).min(ROWS);
                    for k in 0..now {
                        self.place(&mut x, (lo, hi), r + k, last);
                        let row = s.accumulator(tree.depth + 1 + k as usize);
                        kernel::value_to(&self.pre, base, &x, n, self.size, row, s);
                    }
                    let rows = s.accumulator(tree.depth + 1);
                    (self.rows)(n as usize, to, rows, now as usize, ACCUMULATOR as isize);
                    r += now;
                }
            }
            tree.pushed(|a, b| self.merge(a, b, n, s));
        }
        tree.end(|a, b| self.merge(a, b, n, s));
        depth
    }
}
