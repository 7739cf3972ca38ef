//! Folds: sums and the like over the trailing loops, in one fixed order of addition.
//!
//! The order is by rank of the split; inside a rank by units, which are runs of 512 elements (of 8 bytes 256) where the innermost index
//! is reduced, across the rows of all reduced indices, or blocks of 128 rows where the innermost index is kept; units and ranks are each combined by a binary counter: a fixed tree for any
//! count. A long fold is cut into spans of 2^k units: these are whole subtrees, so that the result does not depend on the cut. Nor does it
//! depend on whether what is folded is in memory or computed on the way.

mod run;

use super::cells::{self, Ask};
use super::expr::fold_weight;
use super::flow::Fold;
use super::group::{Groups, Head};
use super::index::{Ix, MAX};
use super::kernel::ACCUMULATOR;
use super::rowwise::{Folding, RowWise};
use super::tiles::{REGISTER, TILE, Tiles};
use crate::diagnostic::{Error, Result};
use crate::program::sentence::Combine;
use crate::runtime::kernels::{self, Kernel, Rows, Rows8};
use crate::sorted;
use crate::types::DType;

/// Rows of a block.
const BLOCK: i64 = 128;

/// A fold that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct FoldKernel {
    /// Makes what is folded.
    pub(crate) pre: Tiles,
    /// Which dimensions of its space are folded.
    reduced: [bool; MAX],
    /// What it writes.
    pub(crate) out: u32,
    /// Bytes from one part of the result to the next.
    copy: i64,
    /// Bytes a step of each kept dimension.
    st: Ix,
    /// For each part of the result the boxes of its ranks that are not empty.
    copies: Vec<Vec<(Ix, Ix)>>,
    size: i64,
    neutral: f64,
    fold: Kernel,
    combine: Kernel,
    rows: Rows,
    /// Eight ranks of one row each.
    eight: Option<Rows8>,
    /// The innermost dimension is folded.
    row: bool,
    /// What is folded is in memory.
    direct: bool,
    /// Where each result is of one run of elements, made by one program: what runs it.
    plain: Option<Box<RowWise>>,
    /// How elements of which type are combined.
    of: (Combine, DType),
    /// Elements of a tile.
    tile: i64,
    /// Kept indices but for the innermost dimension.
    outer: i64,
    /// Tiles of the innermost dimension if it is kept.
    columns: i64,
    /// Whether results go past the caches.
    stream: bool,
    /// Spans of each rank's units that are folded apart, and their units: then `temp` holds their results.
    pub(crate) spans: i64,
    span: i64,
    /// Microseconds, roughly.
    pub(crate) cost: f64,
}

fn refuse(f: &Fold<'_>) -> Error {
    Error::internal(format!("no kernel combines by {:?} over {}", f.combine(), f.dtype))
}

/// Prepares the fold of a group.
pub(crate) fn bind(g: &Groups<'_, '_>, group: usize, base: u32, in_loop: bool) -> Result<FoldKernel> {
    let Head::Fold(k) = g.list[group].head else { unreachable!("asked of folds") };
    let f = g.fold(k);
    let order = order(f);
    let ask = Ask { order: &order, stream: false, same: None, over: &[], base };
    let mut pre = cells::tiles(g, group, &ask)?;
    let v = &g.flow.values[f.out];
    let size = v.dtype.size() as i64;
    let own = usize::from(v.copies > 1);
    let (mut st, mut reduced) = ([0; MAX], [false; MAX]);
    for (e, &l) in order.iter().enumerate() {
        if l < f.rank {
            st[e] = v.strides[l + own] * size;
        } else {
            reduced[e] = true;
        }
    }
    let filled = |b: &super::flow::RankBox| (f.rank..f.n).all(|l| b.lo[l] < b.hi[l]);
    let pack = |b: &super::flow::RankBox| {
        let (mut lo, mut hi) = ([0; MAX], [1; MAX]);
        for (e, &l) in order.iter().enumerate() {
            (lo[e], hi[e]) = (b.lo[l], b.hi[l]);
        }
        (lo, hi)
    };
    let mut copies: Vec<Vec<(Ix, Ix)>> =
        f.copies.iter().map(|c| c.iter().filter(|b| filled(b)).map(pack).collect()).collect();
    // join dimensions of a kind
    for d in (0..pre.rank.saturating_sub(1)).rev() {
        let e = pre.ext[d + 1];
        let whole = copies.iter().flatten().all(|(lo, hi)| lo[d + 1] == 0 && hi[d + 1] == e);
        if reduced[d] != reduced[d + 1] || !whole || !reduced[d] && st[d] != st[d + 1] * e || !pre.joinable(d)
        {
            continue;
        }
        pre.join(d);
        st.copy_within(d + 1.., d);
        reduced.copy_within(d + 1.., d);
        for (lo, hi) in copies.iter_mut().flatten() {
            (lo[d + 1], hi[d + 1]) = (lo[d] * e, hi[d] * e);
            lo.copy_within(d + 1.., d);
            hi.copy_within(d + 1.., d);
        }
    }
    let (combine, dtype) = (f.combine(), f.dtype);
    let last = pre.rank - 1;
    let row = reduced[last];
    let seg = pre.bands.first().and_then(|b| b.segs.first());
    let direct = seg.is_some_and(|s| s.code.is_empty() && s.row.is_empty());
    let tile = match (row, direct) {
        (true, _) => (REGISTER as i64 / size).min(TILE),
        // (of eight rows that are read at a time each is followed for two pages: the processor foresees what is read next)
        (false, true) => (ACCUMULATOR as i64 / size).min(2048),
        (false, false) => pre.tile,
    };
    let outer: i64 = (0..last).filter(|d| !reduced[*d]).map(|d| pre.ext[d]).product();
    let columns = if row { 1 } else { (pre.ext[last] + tile - 1) / tile };
    let elements = pre.elements();
    let big = !in_loop && g.flow.values[f.out].shape.elements() as i64 * size >= 16 << 20;
    let mut n = FoldKernel {
        reduced,
        out: f.out as u32 + base,
        copy: v.strides[0] * size * own as i64,
        st,
        copies,
        size,
        neutral: kernels::neutral(combine, dtype).ok_or_else(|| refuse(f))?,
        fold: kernels::fold(combine, dtype).ok_or_else(|| refuse(f))?,
        combine: kernels::combine(combine, dtype).ok_or_else(|| refuse(f))?,
        rows: kernels::rows(combine, dtype).ok_or_else(|| refuse(f))?,
        eight: None,
        row,
        direct,
        plain: None,
        of: (combine, dtype),
        tile,
        outer,
        columns,
        stream: false,
        spans: 1,
        span: i64::MAX,
        cost: 0.0,
        pre,
    };
    let spaced = |c: &Vec<(Ix, Ix)>| n.reduced[..=last].iter().filter(|r| **r).count() == 1 && n.evenly(c);
    if !row && direct && n.st[last] == size && n.copies.iter().all(spaced) {
        n.eight = kernels::rows8(combine, dtype, big);
        if n.eight.is_some() {
            n.stream = big;
            n.tile = 16384;
            n.columns = (n.pre.ext[last] + n.tile - 1) / n.tile;
        }
    }
    n.plain = n.alone();
    let w = n.pre.weight + fold_weight(combine, dtype);
    let calls = (elements as f64 / n.tile as f64).max((n.outer * n.columns) as f64);
    n.cost = ((elements as f64 * w).max(elements as f64 * size as f64 / 60.0) + 25.0 * calls) / 1000.0;
    n.cut(elements);
    Ok(n)
}

/// The loops as dimensions, outermost first: by falling strides of what is read, those of one index left out.
fn order(f: &Fold<'_>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..f.n).filter(|l| f.ext[*l] != 1).collect();
    let step = |l: usize| f.reads.iter().flat_map(|r| &r.pieces).map(|p| p.st[l].abs()).max().unwrap_or(0);
    sorted::sort_by_key(&mut order, |l| std::cmp::Reverse(step(*l)));
    // a few elements a result are folded across results
    let run: i64 = order.iter().rev().take_while(|l| **l >= f.rank).map(|l| f.ext[*l]).product();
    if run > 1
        && run <= 48
        && let Some(k) = order.iter().rposition(|l| *l < f.rank)
        && f.ext[order[k]] >= 32
    {
        let l = order.remove(k);
        order.push(l);
    }
    order
}

impl FoldKernel {
    /// Whether these are eight ranks of one row each, evenly apart.
    fn evenly(&self, ranks: &[(Ix, Ix)]) -> bool {
        let Some(d) = self.reduced.iter().position(|r| *r) else { return false };
        ranks.len() == 8
            && ranks.iter().enumerate().all(|(k, (lo, hi))| {
                hi[d] == lo[d] + 1 && lo[d] - ranks[0].0[d] == k as i64 * (ranks[1].0[d] - ranks[0].0[d])
            })
    }
    /// What runs it, if each of its results, as many as rows, is of one run of elements, made by one program.
    fn alone(&self) -> Option<Box<RowWise>> {
        let last = self.pre.rank - 1;
        let rows = if last > 0 { self.pre.ext[0] } else { 1 };
        let [c] = &self.copies[..] else { return None };
        let [(lo, hi)] = &c[..] else { return None };
        let whole = lo[last] == 0 && hi[last] == self.pre.ext[last];
        let plain = !on_a_page!() && self.row && last <= 1 && !self.reduced[..last].contains(&true) && whole;
        let mut alone = RowWise::default();
        let fits = plain && alone.push(&self.pre, rows, Some(self.folding()), |_| false);
        fits.then(|| Box::new(alone.done(rows)))
    }
    fn folding(&self) -> Folding {
        let step = if self.pre.rank > 1 { self.st[0] } else { 0 };
        let Self { fold, of, combine, tile: unit, out, size, .. } = *self;
        Folding { fold, of, combine, unit, out, step, size: size as usize }
    }
    /// Adds it to the programs of so many rows, if each has one result of one run of elements; what is in `strips` has room for one row.
    pub(crate) fn join(&self, programs: &mut RowWise, rows: i64, strip: impl Fn(u32) -> bool) -> bool {
        self.plain.is_some() && programs.push(&self.pre, rows, Some(self.folding()), strip)
    }
    /// Whether its outermost dimension is of results, each of which is made at once: then it can run on some of its indices.
    pub(crate) fn by_rows(&self) -> bool {
        let alone = self.copies.len() == 1 && self.eight.is_none() && !self.staged();
        alone && self.pre.rank > 1 && !self.reduced[0]
    }
    /// Bytes a step of each kept dimension of what it writes.
    pub(crate) fn steps(&self) -> &Ix {
        &self.st
    }
    /// Bytes of an element.
    pub(crate) fn size(&self) -> i64 {
        self.size
    }
    /// How many indices of a rank are folded.
    fn size_of(&self, (lo, hi): &(Ix, Ix)) -> i64 {
        (0..self.pre.rank).filter(|d| self.reduced[*d]).map(|d| hi[d] - lo[d]).product()
    }
    /// Units of a rank: runs of elements, or blocks of rows.
    fn units(&self, rank: &(Ix, Ix)) -> i64 {
        let unit = if self.row { self.tile } else { BLOCK };
        (self.size_of(rank) + unit - 1) / unit
    }
    /// Cuts long ranks where there are few results.
    fn cut(&mut self, elements: i64) {
        let tasks = self.outer * self.columns * self.copies.len() as i64;
        let units = self.copies.iter().flatten().map(|r| self.units(r)).max().unwrap_or(0);
        if elements < 1 << 18 || tasks >= 16 || self.eight.is_some() || units < 2 {
            return;
        }
        let ranks = self.copies.iter().map(Vec::len).max().unwrap_or(1) as i64;
        let per = elements / (tasks * ranks * units).max(1);
        // a span is about 64 Ki elements
        let mut span = 1;
        while span * per < 1 << 16 && span < units {
            span *= 2;
        }
        self.span = span;
        self.spans = (units + span - 1) / span;
        if self.spans == 1 && ranks == 1 {
            self.span = i64::MAX;
        }
    }
    /// Cuts it so that there is a task for each of `n` threads, if it has that many results: which elements are added in which
    /// order does not depend on the tiles of kept indices.
    pub(crate) fn spread(&mut self, n: i64) -> i64 {
        if self.staged() {
            return self.chunks();
        }
        if !self.row && self.tasks() < n {
            let width = self.pre.ext[self.pre.rank - 1];
            let tasks = (self.outer * self.copies.len() as i64).max(1);
            let per = (n + tasks - 1) / tasks;
            self.tile = ((width + per - 1) / per).clamp(1, self.tile);
            self.columns = (width + self.tile - 1) / self.tile;
        }
        self.tasks().clamp(1, n)
    }
    /// Whether it runs in two stages: spans, then their results.
    pub(crate) fn staged(&self) -> bool {
        self.span != i64::MAX
    }
    fn ranks(&self) -> i64 {
        self.copies.iter().map(Vec::len).max().unwrap_or(0) as i64
    }
    /// Tiles of the result.
    fn tasks(&self) -> i64 {
        self.outer * self.columns * self.copies.len() as i64
    }
    /// Bytes of the results of spans.
    pub(crate) fn temp(&self) -> usize {
        if !self.staged() {
            return 0;
        }
        (self.tasks() * self.ranks() * self.spans) as usize * self.slot() as usize
    }
    /// Bytes of one span's result: a tile of elements, or one element, at least 8 bytes for its alignment.
    fn slot(&self) -> i64 {
        if self.row { self.size.max(8) } else { self.tile * self.size }
    }
    /// Into how many independent tasks it falls: of the first stage if it has two.
    pub(crate) fn chunks(&self) -> i64 {
        if self.staged() {
            return self.tasks() * self.ranks() * self.spans;
        }
        let elements = self.pre.elements();
        match self.row {
            true => (elements >> 16).clamp(1, self.tasks().max(1)),
            false => {
                let most = self.tasks().max(1);
                // tiles are large enough but where the fold is short
                (elements >> 14).clamp(1, most)
            }
        }
    }
    /// Tasks of the second stage.
    pub(crate) fn ends(&self) -> i64 {
        (self.tasks() / 64).clamp(1, 64)
    }
}
