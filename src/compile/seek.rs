//! Takes and puts at places known at run time, bound to memory: rows are found by numbers, and copied or combined.
//!
//! Loops on which a number depends come first, in their order: the queries; then those along which a row runs, as they are in memory.
//! The elements of a result meet their updates in the order of the loops, however the work is cut: a task of a put owns rows of the result,
//! and goes through all queries.

use super::flow::{Flow, Operand, RankBox, Seek};
use super::index::{Ix, MAX};
use crate::program::sentence::{Beyond, Combine, Source};
use crate::runtime::kernels::{self, Kernel as Fun};
use crate::types::DType;

/// A number that says where.
#[derive(Clone, Debug)]
struct Number {
    slot: u32,
    dtype: DType,
    /// Bytes to the first one, and from step to step of the kernel's loops.
    off: i64,
    st: Ix,
    most: i64,
    clip: bool,
    /// Bytes from step to step of what it finds.
    unit: i64,
    /// The bound loop, as the sentence counts, and the window's, as the kernel does.
    index: usize,
    window: Option<usize>,
}

/// A box of loops.
type Box_ = (Ix, Ix);

/// A part of the result: bytes to it, bytes to the parts of what it is made of, and boxes. Of a take these are of the sentence's loops,
/// of a put of the kernel's.
#[derive(Clone, Debug)]
struct Part {
    to: i64,
    ahead: [i64; 2],
    boxes: Vec<Box_>,
}

/// Which rows a task of a put owns: steps of the result's first dimension that has more than one.
#[derive(Clone, Copy, Debug)]
enum Rows {
    /// They are steps of a loop.
    Loop(usize),
    /// They are what this number finds.
    Found(usize),
    /// There is one.
    One,
}

/// A take or a put that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct SeekKernel {
    out: u32,
    /// What is taken, or put: its slot, the first byte, and bytes from step to step.
    from: u32,
    off: i64,
    src: Ix,
    dst: Ix,
    size: usize,
    /// The kernel's loops: queries first.
    n: usize,
    queries: usize,
    ext: Ix,
    numbers: Vec<Number>,
    /// Bits where nothing is there, and where another part has what is.
    fill: u64,
    absent: u64,
    parts: Vec<Part>,
    put: Option<Put>,
    pub(crate) chunks: i64,
    pub(crate) cost: f64,
}

/// What only a put has.
#[derive(Clone, Debug)]
struct Put {
    /// What was there: slot, first byte, bytes from step to step of each dimension; or these bits everywhere.
    was: Option<(u32, i64, Ix)>,
    bits: u64,
    /// The result's dimensions from the one whose steps are rows: how many, their sizes and bytes from step to step.
    rank: usize,
    ext: Ix,
    st: Ix,
    /// Whether these bytes follow one another, as those of what was there do.
    dense: bool,
    rows: i64,
    own: Rows,
    combine: Option<Fun>,
}

/// The slot of an operand that is one value, its first byte, and bytes from step to step.
fn source(flow: &Flow<'_>, o: &Operand, base: u32) -> (u32, i64, Ix) {
    let size = o.dtype.size() as i64;
    match o.pieces.first().map(|p| (p, p.from)) {
        Some((p, Source::Value(s))) => (flow.root(s) as u32 + base, p.off * size, p.st.map(|s| s * size)),
        // nothing is read: a value with no elements
        _ => (0, 0, [0; MAX]),
    }
}

/// The kernel's loops, in order, and how many of them are queries.
fn order(s: &Seek, asked: &dyn Fn(usize) -> bool, step: &dyn Fn(usize) -> i64) -> (Vec<usize>, usize) {
    // a part of what is taken is told by the step, so that windows are looked at one by one
    let masked = s.put.is_none() && s.parts.iter().any(|p| !p.boxes.is_empty());
    let window = |l: usize| s.at.iter().any(|b| b.window == Some(l));
    // several updates of one element come in their order
    let again = |l: usize| s.put.is_some() && l >= s.rank && !window(l);
    let loops = (0..s.n).filter(|l| s.ext[*l] != 1 && s.at.iter().all(|b| b.index != *l));
    let (mut order, mut rest): (Vec<usize>, Vec<usize>) =
        loops.partition(|l| asked(*l) || again(*l) || masked && window(*l));
    rest.sort_by_key(|l| std::cmp::Reverse(step(*l).abs()));
    // a large box has something to cut
    if order.is_empty()
        && s.put.is_none()
        && rest.len() > 1
        && rest.iter().map(|l| s.ext[*l]).product::<i64>() > 1 << 16
    {
        order.push(rest.remove(0));
    }
    let queries = order.len();
    order.extend(rest);
    (order, queries)
}

/// Binds a take or put to memory. `in_place`: the result is where a put begins.
pub(crate) fn bind(flow: &Flow<'_>, s: &Seek, base: u32, in_place: bool, workers: i64) -> SeekKernel {
    let v = &flow.values[s.out];
    let size = v.dtype.size() as i64;
    let own = usize::from(v.copies > 1);
    let (from, off, st) = source(flow, &s.reads[usize::from(s.put.is_some())], base);
    let found: Vec<_> = s.at.iter().map(|b| source(flow, &s.reads[b.by], base)).collect();
    // bytes of the result from step to step: of a put's update loops those of the window
    let step = |l: usize| {
        let window = s.at.iter().find(|b| l >= s.rank && b.window == Some(l)).map(|b| b.index);
        let d = if l < s.rank { Some(l) } else { window };
        d.map_or(0, |d| v.strides[d + own] * size)
    };
    let (order, queries) = order(s, &|l| found.iter().any(|f| f.2[l] != 0), &step);
    let at = |l: usize| order.iter().position(|x| *x == l);
    let in_order = |of: &dyn Fn(usize) -> i64, rest: i64| {
        let mut x = [rest; MAX];
        order.iter().enumerate().for_each(|(k, l)| x[k] = of(*l));
        x
    };
    let ext = in_order(&|l| s.ext[l], 1);
    let dst = in_order(&step, 0);
    let with = |l: usize| {
        s.at.iter().filter(|b| s.put.is_none() && b.window == Some(l)).map(|b| st[b.index]).sum::<i64>()
    };
    let src = in_order(&|l| st[l] + with(l), 0);
    let numbers = s.at.iter().zip(&found).map(|(b, f)| Number {
        slot: f.0,
        dtype: s.reads[b.by].dtype,
        off: f.1,
        st: in_order(&|l| f.2[l], 0),
        most: b.most,
        clip: b.beyond == Beyond::Clip,
        unit: if s.put.is_some() { v.strides[b.index + own] * size } else { st[b.index] },
        index: b.index,
        window: b.window.and_then(at),
    });
    let widths = s.reads.iter().map(|o| o.dtype.size() as i64);
    let widths: Vec<i64> = widths.take(2).collect();
    let parts = s.parts.iter().enumerate().map(|(c, p)| Part {
        to: c as i64 * v.strides[0] * size * own as i64,
        ahead: std::array::from_fn(|k| p.ahead[k] * widths.get(k).copied().unwrap_or(1)),
        boxes: match s.put {
            None => p.boxes.iter().map(|b| (b.lo, b.hi)).collect(),
            Some(_) => p.boxes.iter().filter_map(|b| steps(s, b, &in_order)).collect(),
        },
    });
    let put = s.put.map(|combine| put(flow, s, combine, base, &at));
    let elements: i64 = order.iter().map(|l| s.ext[*l]).product();
    let count: i64 = ext[..queries].iter().product();
    let whole = v.shape.elements() as f64 * size as f64;
    let laid = if s.put.is_some() && !in_place { whole / 10.0 } else { 0.0 };
    let cost = ((elements * size) as f64 / 8.0 + 4.0 * count as f64 + laid) / 1000.0;
    let tasks = if s.put.is_some() { workers } else { 4 * workers };
    let want = if cost < 20.0 { 1 } else { ((cost / 20.0) as i64).clamp(1, tasks) };
    let mut kernel = SeekKernel {
        out: flow.root(s.out) as u32 + base,
        from,
        off,
        src,
        dst,
        size: size as usize,
        n: order.len(),
        queries,
        ext,
        numbers: numbers.collect(),
        fill: super::expr::bits(v.dtype, s.reads[0].fill),
        absent: super::expr::bits(v.dtype, s.neutral),
        parts: parts.collect(),
        put,
        chunks: 1,
        cost,
    };
    kernel.spread(want);
    kernel
}

/// What each loop has, in the order of the kernel's loops; and what those have that are none of the sentence's.
type InOrder<'a> = &'a dyn Fn(&dyn Fn(usize) -> i64, i64) -> Ix;

/// A box of a put's loops as one of the kernel's; none where it has no steps.
fn steps(s: &Seek, b: &RankBox, in_order: InOrder<'_>) -> Option<Box_> {
    if (s.rank..s.n).any(|l| b.lo[l] >= b.hi[l]) {
        return None;
    }
    let lo = |l: usize| if l < s.rank { 0 } else { b.lo[l] };
    let hi = |l: usize| if l < s.rank { s.ext[l] } else { b.hi[l] };
    Some((in_order(&lo, 0), in_order(&hi, 1)))
}

fn put(
    flow: &Flow<'_>,
    s: &Seek,
    combine: Option<Combine>,
    base: u32,
    at: &dyn Fn(usize) -> Option<usize>,
) -> Put {
    let v = &flow.values[s.out];
    let (size, own) = (v.dtype.size() as i64, usize::from(v.copies > 1));
    let (was, bits) = match s.reads[0].pieces.first().map(|p| p.from) {
        Some(Source::Value(_)) => (Some(source(flow, &s.reads[0], base)), 0),
        Some(Source::Const(c)) => (None, super::expr::bits(v.dtype, c)),
        None => (None, super::expr::bits(v.dtype, s.reads[0].fill)),
    };
    let first = (0..s.rank).find(|d| s.ext[*d] != 1);
    let rows = first.map_or(1, |d| s.ext[d]);
    let dims = first.unwrap_or(s.rank)..s.rank;
    let (mut ext, mut st, mut from) = ([1; MAX], [0; MAX], [0; MAX]);
    for (k, d) in dims.clone().enumerate() {
        (ext[k], st[k]) = (s.ext[d], v.strides[d + own] * size);
        from[k] = was.map_or(0, |w| w.2[d]);
    }
    if dims.is_empty() {
        // one element is one row
        (st[0], from[0]) = (size, size);
    }
    let rank = dims.len().max(1);
    let mut dense = was.is_some();
    let mut next = size;
    for k in (0..rank).rev() {
        dense &= ext[k] == 1 || st[k] == next && from[k] == next;
        next *= ext[k];
    }
    let own = match first {
        None => Rows::One,
        Some(d) => match (s.at.iter().position(|b| b.index == d), at(d)) {
            (Some(j), _) => Rows::Found(j),
            (None, Some(l)) => Rows::Loop(l),
            (None, None) => Rows::One,
        },
    };
    let was = was.map(|w| (w.0, w.1, from));
    let combine = combine.and_then(|c| kernels::combine(c, v.dtype));
    Put { was, bits, rank, ext, st, dense, rows, own, combine }
}

/// # Safety
/// `p` points to an integer of this type.
#[inline(always)]
unsafe fn integer(p: *const u8, dtype: DType) -> i64 {
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
trait Word: Copy {
    fn of(bits: u64) -> Self;
}
macro_rules! words {
    ($($t:ty),*) => { $(impl Word for $t {
        fn of(bits: u64) -> $t { bits as $t }
    })* };
}
words!(u8, u16, u32, u64);

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
    /// Cuts it into at most so many tasks.
    pub(crate) fn spread(&mut self, tasks: i64) -> i64 {
        let most = match &self.put {
            Some(Put { own: Rows::One, .. }) => 1,
            Some(p) => p.rows.max(1),
            None => self.ext[..self.queries].iter().product::<i64>().max(1),
        };
        self.chunks = tasks.min(most);
        self.chunks
    }
    /// Task i of so many.
    ///
    /// # Safety
    /// `base` has this kernel's values, as they were bound; nobody else writes what is read, and nobody else reads or writes what this task
    /// writes.
    pub(crate) unsafe fn run(&self, i: i64, chunks: i64, base: &[*mut u8]) {
        // SAFETY: the caller's
        unsafe {
            match self.size {
                1 => self.go::<u8>(i, chunks, base),
                2 => self.go::<u16>(i, chunks, base),
                4 => self.go::<u32>(i, chunks, base),
                _ => self.go::<u64>(i, chunks, base),
            }
        }
    }
    unsafe fn go<T: Word>(&self, i: i64, chunks: i64, base: &[*mut u8]) {
        for part in &self.parts {
            // SAFETY: the caller's
            unsafe {
                match &self.put {
                    Some(p) => self.put::<T>(p, part, (p.rows * i / chunks, p.rows * (i + 1) / chunks), base),
                    None => self.take::<T>(part, i, chunks, base),
                }
            }
        }
    }

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
        let Some(last) = q.checked_sub(1) else {
            // SAFETY: the caller's
            return unsafe { self.run_of(lo, 1, base, &owned, &mut f) };
        };
        let mut x = *lo;
        let (mut k, mut left) = (a, a);
        for d in (0..q).rev() {
            let n = hi[d] - lo[d];
            x[d] = lo[d] + left % n;
            left /= n;
        }
        while k < e {
            let run = (hi[last] - x[last]).min(e - k);
            // SAFETY: the caller's
            unsafe { self.run_of(&x, run, base, &owned, &mut f) }
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

    /// # Safety
    /// As for `run`.
    unsafe fn take<T: Word>(&self, part: &Part, i: i64, chunks: i64, base: &[*mut u8]) {
        let q: i64 = self.ext[..self.queries].iter().product();
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
        unsafe {
            self.each((&[0; MAX], &self.ext), (q * i / chunks, q * (i + 1) / chunks), base, |_, _| true, row)
        }
    }

    /// The rows `rows` of a part.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn put<T: Word>(&self, p: &Put, part: &Part, (lo, hi): (i64, i64), base: &[*mut u8]) {
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
    unsafe fn lay<T: Word>(&self, out: *mut u8, ahead: i64, (lo, hi): (i64, i64), base: &[*mut u8]) {
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
unsafe fn fill<T: Word>(to: *mut u8, n: i64, st: i64, x: T) {
    for i in 0..n {
        // SAFETY: the caller's
        unsafe { *to.wrapping_offset((i * st) as isize).cast::<T>() = x }
    }
}

/// # Safety
/// There are n elements at both, so many bytes apart; nobody else reads or writes the first.
#[inline(always)]
unsafe fn copy<T: Word>(to: *mut u8, from: *const u8, n: i64, (dst, src): (i64, i64)) {
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
unsafe fn combine<T: Word>(f: Fun, to: *mut u8, from: *const u8, n: i64, (dst, src): (i64, i64)) {
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
