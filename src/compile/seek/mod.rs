//! Takes and puts at places known at run time, bound to memory: rows are found by numbers, and copied or combined.
//!
//! Loops on which a number depends come first, in their order: the queries; then those along which a row runs, as they are in memory.
//! The elements of a result meet their updates in the order of the loops, however the work is cut: a task of a put owns rows of the result,
//! and goes through all queries.

mod by_rows;
mod quick;
mod run;
mod single;

use super::flow::{Flow, Operand, RankBox, Seek};
use super::index::{Ix, MAX};
use super::kernel::Scratch;
use crate::partition::Slot;
use crate::program::sentence::{Beyond, Combine, Source};
use crate::runtime::kernels::{self, AddSorted, Kernel as Fun, Reach};
use crate::sorted;
use crate::types::DType;
use quick::Quick;
use run::Word;

/// A number that says where.
#[derive(Clone, Debug)]
struct Number {
    slot: u32,
    dtype: DType,
    /// Bytes to the first one, and from step to step of the kernel's loops.
    off: i64,
    st: Ix,
    most: i64,
    /// What is added where it is negative.
    #[cfg(not(target_family = "wasm"))]
    back: i64,
    clip: bool,
    /// Bytes from step to step of what it finds.
    unit: i64,
    /// The bound loop, as the sentence counts, and the window's, as the kernel does.
    index: usize,
    window: Option<usize>,
}

impl Number {
    /// Counted from the begin.
    #[inline(always)]
    fn counted(&self, n: i64) -> i64 {
        if n < 0 { n + self.back() } else { n }
    }
    /// Where it finds rows, of these.
    fn reach(&self, own: (i64, i64)) -> Reach {
        Reach { most: self.most, back: self.back(), clip: self.clip, unit: self.unit, own }
    }
    /// What is added to a negative one.
    #[inline(always)]
    fn back(&self) -> i64 {
        #[cfg(not(target_family = "wasm"))]
        return self.back;
        #[cfg(target_family = "wasm")]
        0
    }
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
    fill: u128,
    absent: u128,
    parts: Vec<Part>,
    put: Option<Put>,
    /// How rows go a batch at a time, where they can.
    quick: Option<Quick>,
    /// Whether it is of one row.
    single: bool,
    /// How a task makes each row once.
    sorted: Option<AddSorted>,
    pub(crate) chunks: i64,
    pub(crate) cost: f64,
}

/// What only a put has.
#[derive(Clone, Debug)]
struct Put {
    /// What was there: slot, first byte, bytes from step to step of each dimension; or these bits everywhere.
    was: Option<(u32, i64, Ix)>,
    bits: u128,
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

/// The slot in whose memory a value is.
type Place<'a> = &'a dyn Fn(Slot) -> u32;

/// The slot of an operand that is one value, its first byte, and bytes from step to step.
fn source(o: &Operand, place: Place<'_>) -> (u32, i64, Ix) {
    let size = o.dtype.size() as i64;
    match o.pieces.first().map(|p| (p, p.from)) {
        Some((p, Source::Value(s))) => (place(s), p.off * size, p.st.map(|s| s * size)),
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
    sorted::sort_by_key(&mut rest, |l| std::cmp::Reverse(step(*l).abs()));
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
pub(crate) fn bind(flow: &Flow<'_>, s: &Seek, place: Place<'_>, in_place: bool, workers: i64) -> SeekKernel {
    let v = &flow.values[s.out];
    let size = v.dtype.size() as i64;
    let own = usize::from(v.copies > 1);
    let (from, off, st) = source(&s.reads[usize::from(s.put.is_some())], place);
    let found: Vec<_> = s.at.iter().map(|b| source(&s.reads[b.by], place)).collect();
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
    let numbers = s.at.iter().enumerate().zip(&found).map(|((_k, b), f)| Number {
        slot: f.0,
        dtype: s.reads[b.by].dtype,
        off: f.1,
        st: in_order(&|l| f.2[l], 0),
        most: b.most,
        #[cfg(not(target_family = "wasm"))]
        back: s.back[_k],
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
    let put = s.put.map(|combine| put(flow, s, combine, place, &at));
    let elements: i64 = order.iter().map(|l| s.ext[*l]).product();
    let count: i64 = ext[..queries].iter().product();
    let whole = v.shape.elements() as f64 * size as f64;
    let laid = if s.put.is_some() && !in_place { whole / 10.0 } else { 0.0 };
    let cost = ((elements * size) as f64 / 8.0 + 4.0 * count as f64 + laid) / 1000.0;
    let tasks = if s.put.is_some() { workers } else { 4 * workers };
    let want = if cost < 20.0 { 1 } else { ((cost / 20.0) as i64).clamp(1, tasks) };
    let mut kernel = SeekKernel {
        out: place(s.out),
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
        quick: None,
        single: false,
        sorted: None,
        chunks: 1,
        cost,
    };
    kernel.quick = Quick::of(&kernel, v.dtype, s.put.flatten());
    kernel.single = kernel.is_single();
    if !on_a_page!() {
        kernel.sorted = kernel.sorts(v.dtype, s.put.flatten());
    }
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
    place: Place<'_>,
    at: &dyn Fn(usize) -> Option<usize>,
) -> Put {
    let v = &flow.values[s.out];
    let (size, own) = (v.dtype.size() as i64, usize::from(v.copies > 1));
    let (was, bits) = match s.reads[0].pieces.first().map(|p| p.from) {
        Some(Source::Value(_)) => (Some(source(&s.reads[0], place)), 0),
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

impl SeekKernel {
    /// Cuts it into at most so many tasks.
    pub(crate) fn spread(&mut self, tasks: i64) -> i64 {
        let most = match &self.put {
            Some(Put { own: Rows::One, .. }) => 1,
            // one task puts single elements in less time than each of several takes to look at all numbers
            Some(Put { own: Rows::Found(_), .. })
                if !on_a_page!() && self.quick.as_ref().is_some_and(Quick::alone) =>
            {
                1
            }
            Some(p) => p.rows.max(1),
            None => self.ext[..self.queries].iter().product::<i64>().max(1),
        };
        self.chunks = tasks.min(most);
        self.chunks
    }
    /// How many rows its result has, where it makes one after the other from the queries in their order: a take, each of whose rows is found
    /// by numbers.
    pub(crate) fn by_rows(&self) -> Option<i64> {
        let row = if self.n > 1 { self.ext[1] * self.size as i64 } else { self.size as i64 };
        let alone = matches!(&self.parts[..], [Part { to: 0, .. }]) && self.quick.is_some();
        (self.put.is_none() && self.queries == 1 && alone && self.dst[0] == row).then_some(self.ext[0])
    }
    /// How many updates it has, where it is a put that may go through them some at a time, in their order: each is a row of what is put. On a
    /// page none does.
    pub(crate) fn by_turns(&self) -> Option<i64> {
        let row = if self.n > 1 { self.ext[1] * self.size as i64 } else { self.size as i64 };
        let whole =
            |(lo, hi): &Box_| lo[..self.n].iter().all(|x| *x == 0) && hi[..self.n] == self.ext[..self.n];
        let alone = matches!(&self.parts[..], [Part { to: 0, ahead: [_, 0], boxes }] if matches!(&boxes[..], [b] if whole(b)));
        let fits = self.put.is_some() && self.quick.is_some() && self.queries == 1 && alone;
        (fits && self.off == 0 && self.src[0] == row && !on_a_page!()).then_some(self.ext[0])
    }
    /// The slot of what it takes or puts.
    pub(crate) fn from(&self) -> u32 {
        self.from
    }
    /// The slot of what it makes.
    pub(crate) fn out(&self) -> u32 {
        self.out
    }
    /// Task i of so many.
    ///
    /// # Safety
    /// `base` has this kernel's values, as they were bound; nobody else writes what is read, and nobody else reads or writes what this task
    /// writes.
    pub(crate) unsafe fn run(&self, i: i64, chunks: i64, base: &[*mut u8], scratch: &mut Scratch) {
        if self.single && chunks == 1 && !on_a_page!() {
            // SAFETY: the caller's
            return unsafe { self.single_row(base) };
        }
        let all = match &self.put {
            Some(p) => p.rows,
            None => self.ext[..self.queries].iter().product(),
        };
        let rows = (all * i / chunks, all * (i + 1) / chunks);
        // SAFETY: the caller's
        unsafe {
            if self.sorted.is_some() && !on_a_page!() {
                self.sorted_put(rows, base, scratch);
            } else {
                self.run_rows(rows, base);
            }
        }
    }
    /// The queries `rows` of a take, as [`SeekKernel::by_rows`] counts them; of a put these rows of its result.
    ///
    /// # Safety
    /// As for `run`.
    pub(crate) unsafe fn run_rows(&self, rows: (i64, i64), base: &[*mut u8]) {
        // SAFETY: the caller's
        unsafe {
            match self.size {
                1 => self.go::<u8>(rows, base),
                2 => self.go::<u16>(rows, base),
                4 => self.go::<u32>(rows, base),
                8 => self.go::<u64>(rows, base),
                _ => self.go::<u128>(rows, base),
            }
        }
    }
    /// Lays what a put begins from.
    ///
    /// # Safety
    /// As for `run`.
    pub(crate) unsafe fn begin(&self, base: &[*mut u8]) {
        // SAFETY: the caller's
        unsafe { self.turn(None, base) }
    }
    /// The updates `some` of a put, as [`SeekKernel::by_turns`] counts them.
    ///
    /// # Safety
    /// As for `run`; it has begun.
    pub(crate) unsafe fn put_some(&self, some: (i64, i64), base: &[*mut u8]) {
        // SAFETY: the caller's
        unsafe { self.turn(Some(some), base) }
    }
    unsafe fn turn(&self, some: Option<(i64, i64)>, base: &[*mut u8]) {
        // SAFETY: the caller's
        unsafe {
            match self.size {
                1 => self.some::<u8>(some, base),
                2 => self.some::<u16>(some, base),
                4 => self.some::<u32>(some, base),
                8 => self.some::<u64>(some, base),
                _ => self.some::<u128>(some, base),
            }
        }
    }
    /// These updates of a put that goes through them in turns; without any, what it begins from.
    unsafe fn some<T: Word>(&self, some: Option<(i64, i64)>, base: &[*mut u8]) {
        let (Some(p), Some(quick), [part], false) = (&self.put, &self.quick, &self.parts[..], on_a_page!())
        else {
            return;
        };
        let out = base[self.out as usize].wrapping_offset(part.to as isize);
        let Some((a, e)) = some else {
            // SAFETY: the caller's
            return unsafe { p.lay::<T>(out, part.ahead[0], (0, p.rows), base) };
        };
        let from = base[self.from as usize].wrapping_offset((self.off + part.ahead[1]) as isize);
        let (mut lo, mut hi) = ([0; MAX], self.ext);
        (lo[0], hi[0]) = (a, e);
        // SAFETY: the caller's
        unsafe { self.quick_put::<T>(quick, p, (&lo, &hi), (0, p.rows), [out, from], base) }
    }
    unsafe fn go<T: Word>(&self, rows: (i64, i64), base: &[*mut u8]) {
        for part in &self.parts {
            // SAFETY: the caller's
            unsafe {
                match &self.put {
                    Some(p) => self.put::<T>(p, part, rows, base),
                    None => self.take::<T>(part, rows, base),
                }
            }
        }
    }
}
