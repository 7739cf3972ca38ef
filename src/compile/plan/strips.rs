//! Programs of rows that stay in cache, and products beside them, as they run: a turn's rows of the values that nobody else reads are in strips.

use crate::compile::expr::Mem;
use crate::compile::fold::FoldKernel;
use crate::compile::index::MAX;
use crate::compile::kernel::{self, Scratch};
use crate::compile::product::{Along, ProductKernel};
use crate::compile::rowwise::RowWise;
use crate::compile::seek::SeekKernel;
use crate::compile::tiles::Tiles;
use crate::runtime::kernels::Place;
use crate::sorted;
use std::sync::Arc;

/// One of the programs of a node.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Tiles(Box<Tiles>),
    Fold(Arc<FoldKernel>),
    Take(Box<SeekKernel>),
    /// The last one: what it puts into is laid before the first turn.
    Put(Box<SeekKernel>),
}

impl Part {
    fn uses(&self, slot: u32) -> bool {
        match self {
            Part::Tiles(t) => mems(t).any(|m| m.slot == slot),
            Part::Fold(f) => f.out == slot || mems(&f.pre).any(|m| m.slot == slot),
            // (rows that are found or put have room of their own)
            Part::Take(_) | Part::Put(_) => true,
        }
    }
}

/// A value of which some rows are all that is in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strip {
    pub(super) slot: u32,
    /// Bytes of all.
    pub(super) bytes: i64,
    /// Bytes from one row to the next; none where there is room for one row only.
    pub(super) row: i64,
    /// Whether a product makes it before the programs run, and whether one reads it after them.
    pub(super) held: [bool; 2],
    /// Where it begins.
    pub(super) at: usize,
}

/// Places strips, and says the bytes of all: what no later program uses makes room for what later ones make, if it has as many bytes (where
/// it is `alike`) or enough. Programs of one `stage` run together: in it only what takes a value's place element by element, as `over` says of
/// the two, has its room.
pub(super) fn packed(
    values: &mut [Strip],
    parts: &[Part],
    alike: bool,
    stage: impl Fn(usize) -> usize,
    over: impl Fn(u32, u32) -> bool,
) -> usize {
    let span = |s: &Strip| {
        let uses = |p: &Part| p.uses(s.slot);
        let first = parts.iter().position(uses).filter(|_| !s.held[0]).unwrap_or(0);
        let last = parts.iter().rposition(uses).filter(|_| !s.held[1]).unwrap_or(parts.len());
        if alike { (first, last) } else { (stage(first), stage(last)) }
    };
    let spans: Vec<(usize, usize)> = values.iter().map(span).collect();
    let mut end = 0;
    // rooms: where each begins, its bytes, the program after which it is free, and what has it
    let mut rooms: Vec<(usize, usize, usize, u32)> = Vec::new();
    let mut order: Vec<usize> = (0..values.len()).collect();
    sorted::sort_by_key(&mut order, |v| spans[*v].0);
    for v in order {
        let (need, (first, last)) = ((values[v].bytes as usize).next_multiple_of(64), spans[v]);
        let slot = values[v].slot;
        let fits = |r: &&mut (usize, usize, usize, u32)| {
            let same = r.1 == need;
            r.2 < first && (same || !alike && r.1 > need) || r.2 == first && same && !alike && over(r.3, slot)
        };
        let free = rooms.iter_mut().filter(fits).min_by_key(|r| r.1);
        values[v].at = match free {
            Some(room) => {
                (room.2, room.3) = (last, slot);
                room.0
            }
            None => {
                rooms.push((end, need, last, slot));
                end += need;
                end - need
            }
        };
    }
    end
}

/// Programs that run one behind the other on some rows, then on the next ones.
#[derive(Clone, Debug)]
pub(crate) struct RowsKernel {
    pub(super) rows: i64,
    /// Rows of a turn.
    pub(super) turn: i64,
    pub(super) parts: Vec<Part>,
    /// Products that run before them on the same rows.
    pub(super) before: Vec<(Box<ProductKernel>, Along)>,
    /// Products that run after them.
    pub(super) after: Vec<(Box<ProductKernel>, Along)>,
    /// Values of which a turn's rows are all that is in memory.
    pub(super) strips: Vec<Strip>,
    /// Bytes of all strips.
    pub(super) bytes: usize,
    /// What runs them row by row, where that is possible.
    pub(super) wise: Option<RowWise>,
    /// Whether rows go in the order in which the put at the end sorts its updates: a task makes those of its rows of the result.
    pub(super) sorted: bool,
}

impl RowsKernel {
    /// How many tasks it may have.
    pub(crate) fn most(&self) -> i64 {
        match self.parts.last() {
            Some(Part::Put(p)) if self.sorted => p.chunks,
            // the rows that a put finds are of one task
            Some(Part::Put(_)) => 1,
            _ => self.wholes(),
        }
    }
    /// Tasks are of so many rows, or of a multiple.
    fn whole(&self) -> i64 {
        if self.before.is_empty() && self.after.is_empty() { 1 } else { self.turn }
    }
    /// How many tasks that makes.
    fn wholes(&self) -> i64 {
        (self.rows + self.whole() - 1) / self.whole()
    }
    /// Task i of so many.
    ///
    /// # Safety
    /// As for [`kernel::run`]; the slots of strips are this worker's to set.
    pub(crate) unsafe fn run(&self, i: i64, chunks: i64, base: &mut [*mut u8], scratch: &mut Scratch) {
        if let (true, Some(Part::Put(p)), false) = (self.sorted, self.parts.last(), on_a_page!()) {
            // SAFETY: the caller's
            return unsafe { self.in_order(p, p.rows_of(i, chunks), base, scratch) };
        }
        let (whole, most) = (self.whole(), self.wholes());
        let (mut a, end) = (most * i / chunks * whole, (most * (i + 1) / chunks * whole).min(self.rows));
        let room = scratch.strips(self.bytes);
        if let Some(Part::Put(p)) = self.parts.last() {
            // SAFETY: the caller's
            unsafe { p.begin(base) }
        }
        while a < end {
            let b = (a + self.turn).min(end);
            self.lay(a, room, base);
            // SAFETY: the caller's; the products make and read these rows only
            unsafe { product_rows(&self.before, (a, b), base, scratch) }
            if let Some(wise) = self.wise.as_ref().filter(|_| !on_a_page!()) {
                // SAFETY: the caller's
                unsafe { wise.run(a, b, base, scratch) }
            }
            for part in self.parts.iter().filter(|_| self.wise.is_none()) {
                // SAFETY: the caller's; the programs name what is in these rows only
                unsafe {
                    match part {
                        Part::Take(t) => t.run_rows((a, b), base),
                        Part::Put(p) => p.put_some((a, b), base),
                        _ => self.some(part, (a, b), base, scratch),
                    }
                }
            }
            // SAFETY: as above
            unsafe { product_rows(&self.after, (a, b), base, scratch) }
            a = b;
        }
    }
    /// Says where strips are, of which row a is the first.
    fn lay(&self, a: i64, room: *mut u8, base: &mut [*mut u8]) {
        for s in &self.strips {
            base[s.slot as usize] = room.wrapping_add(s.at).wrapping_offset((-a * s.row) as isize);
        }
    }
    /// Rows of a program that is no take and no put.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn some(&self, part: &Part, (a, b): (i64, i64), base: &mut [*mut u8], scratch: &mut Scratch) {
        // SAFETY: the caller's
        unsafe {
            match part {
                Part::Tiles(t) => {
                    let (mut lo, mut hi, each) = ([0; MAX], t.ext, t.ext[0] / self.rows);
                    (lo[0], hi[0]) = (a * each, b * each);
                    kernel::run(t, base, &lo, &hi, scratch);
                }
                Part::Fold(f) => {
                    let each = f.pre.ext[0] / self.rows;
                    f.run_rows(a * each, b * each, base, scratch);
                }
                Part::Take(_) | Part::Put(_) => {}
            }
        }
    }
    /// The rows whose updates are of these rows of the result, in the order of the result.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn in_order(&self, p: &SeekKernel, rows: (i64, i64), base: &mut [*mut u8], scratch: &mut Scratch) {
        // SAFETY: the caller's
        let n = unsafe { p.updates(rows, base) };
        // a turn's numbers, and the order, are behind the strips
        let (numbers, order) = (self.bytes, self.bytes + self.turn as usize * size_of::<u32>());
        let room = scratch.strips(order + SeekKernel::order_bytes(rows, n));
        // SAFETY: the caller's; the memory is this worker's
        let order = unsafe { p.order(rows, n, base, room.wrapping_add(order)) };
        let (n, mut a, mut at) = (order.which.len(), 0, Place::default());
        loop {
            let b = (a + self.turn as usize).min(n);
            let turn = (a as i64, b as i64);
            self.lay(turn.0, room, base);
            let puts = base[p.from() as usize].wrapping_add(a * p.row_bytes());
            for part in self.parts.iter().filter(|_| a < b) {
                // SAFETY: the caller's; the programs name what is in these rows only, but for numbers, which are those of this turn's rows
                unsafe {
                    match part {
                        Part::Take(t) => {
                            t.take_of(turn, &order.which[a..b], room.wrapping_add(numbers), base);
                        }
                        Part::Put(_) => {}
                        _ => self.some(part, turn, base, scratch),
                    }
                }
            }
            // SAFETY: the caller's
            at = unsafe { p.add_sorted(&order, at, a..b, Some(puts), base) };
            a = b;
            if a == n {
                return;
            }
        }
    }
}

/// Runs products on these rows.
///
/// # Safety
/// As for [`kernel::run`].
unsafe fn product_rows(
    list: &[(Box<ProductKernel>, Along)],
    rows: (i64, i64),
    base: &[*mut u8],
    scratch: &mut Scratch,
) {
    for (p, along) in list.iter().filter(|_| !on_a_page!()) {
        // SAFETY: the caller's
        unsafe { p.run_rows(along, rows, base, scratch) }
    }
}

/// The places in memory of tile programs.
pub(super) fn mems(t: &Tiles) -> impl Iterator<Item = &Mem> {
    all_mems(t).filter(|m| m.slot != crate::compile::expr::POSITION)
}
/// The same with the positions themselves, as if they were in memory.
pub(super) fn all_mems(t: &Tiles) -> impl Iterator<Item = &Mem> {
    t.bands.iter().flat_map(|b| &b.segs).flat_map(|s| &s.mems)
}
