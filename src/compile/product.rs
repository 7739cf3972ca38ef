//! Products: tiles of the result, for each the products of the ranks' blocks, added in the tree of sums, then what is computed from it.
//!
//! Tiles depend on shapes and on how many workers share them; no bit of the result depends on tiles. Operands go to the product with their
//! strides, transposed and sliced as they are.

use super::cells::{self, Ask};
use super::expr::bits;
use super::flow::{Fold, Operand};
use super::group::{Groups, Head};
use super::index::{Ix, MAX};
use super::kernel::{self, Scratch};
use super::tiles::Tiles;
use crate::diagnostic::Result;
use crate::partition::Slot;
use crate::program::sentence::{Arg, Fun, Source};
use crate::runtime::Buffer;
use crate::runtime::gemm::{PANEL, Way, gemm, plus};
use crate::runtime::workers;
use crate::types::DType;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

mod rows;
pub(crate) use rows::Along;

/// A matrix of a batch: strides in elements for each dimension of the product.
#[derive(Clone, Copy, Debug)]
struct Mat {
    slot: u32,
    off: i64,
    st: Ix,
}

/// One block of the summed index: offsets into both operands, and its loops, the last one of which is the product's own.
#[derive(Clone, Debug)]
struct Block {
    a: i64,
    b: i64,
    loops: SmallVec<[(i64, i64, i64); 2]>,
}

/// A product that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct ProductKernel {
    dtype: DType,
    a: Mat,
    b: Mat,
    c: Mat,
    /// Elements from a part of the result to the next.
    copy: i64,
    /// Dimensions of the result, joined where that is possible.
    ext: Ix,
    rank: usize,
    /// Which of them are the matrix's.
    m: Option<usize>,
    n: Option<usize>,
    /// Which way all of it goes, and so each tile.
    way: Way,
    /// Tiles.
    tm: i64,
    tn: i64,
    /// For each part of the result the blocks of its ranks.
    copies: Vec<Vec<Block>>,
    /// What each element is multiplied by, in a rounding of its own.
    by: f64,
    /// What is computed from a tile of the result.
    pub(crate) epilogue: Option<Tiles>,
    /// Microseconds, roughly.
    pub(crate) cost: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Class {
    Row,
    Column,
    Batch,
}

/// Prepares the product of a group. `same`: where its result is, if in the memory of another value. `over`: values that its epilogue
/// stores over what it reads.
pub(crate) fn bind(
    g: &Groups<'_, '_>,
    group: usize,
    base: u32,
    same: Option<Slot>,
    over: &[(Slot, Slot)],
) -> Result<ProductKernel> {
    let Head::Product(k) = g.list[group].head else { unreachable!("asked of products") };
    let f = g.fold(k);
    let v = &g.flow.values[f.out];
    let own = usize::from(v.copies > 1);
    let order: Vec<usize> = (0..f.rank).filter(|l| f.ext[*l] != 1).collect();
    let slot = same.unwrap_or(f.out);
    let mut c = Mat { slot: slot as u32 + base, off: 0, st: [0; MAX] };
    let mut a = operand(g, &f.reads[0], base, &order);
    let mut b = operand(g, &f.reads[1], base, &order);
    let mut ext = [1; MAX];
    for (e, &l) in order.iter().enumerate() {
        c.st[e] = v.strides[l + own];
        ext[e] = f.ext[l];
    }
    let mut rank = order.len();
    let members = !g.list[group].members.is_empty();
    let ask = Ask { order: &order, stream: false, same: same.map(|s| (f.out, s)), over, base };
    let mut epilogue = if members { Some(cells::tiles(g, group, &ask)?) } else { None };
    let class = |a: &Mat, b: &Mat, d: usize| match (a.st[d] != 0, b.st[d] != 0) {
        (true, false) => Class::Row,
        (false, true) => Class::Column,
        _ => Class::Batch,
    };
    // join dimensions of a kind
    for d in (0..rank.saturating_sub(1)).rev() {
        let e = ext[d + 1];
        let alike = [&a, &b, &c].iter().all(|x| x.st[d] == x.st[d + 1] * e);
        if class(&a, &b, d) != class(&a, &b, d + 1)
            || !alike
            || epilogue.as_ref().is_some_and(|t| !t.joinable(d))
        {
            continue;
        }
        if let Some(t) = &mut epilogue {
            t.join(d);
        }
        for x in [&mut a.st, &mut b.st, &mut c.st] {
            x.copy_within(d + 1.., d);
            x[MAX - 1] = 0;
        }
        ext[d + 1] *= ext[d];
        ext.copy_within(d + 1.., d);
        ext[MAX - 1] = 1;
        rank -= 1;
    }
    let largest = |k: Class| (0..rank).filter(|d| class(&a, &b, *d) == k).max_by_key(|d| ext[*d]);
    let (m, n) = (largest(Class::Row), largest(Class::Column));
    let every = |k: Class| (0..rank).filter(|d| class(&a, &b, *d) == k).map(|d| ext[d] as usize).product();
    let way = Way::of(every(Class::Row), every(Class::Column));
    let size = |d: Option<usize>| d.map_or(1, |d| ext[d]);
    let depth: i64 = (f.rank..f.n).map(|l| f.ext[l]).product();
    let all: i64 = ext[..rank].iter().product();
    let flops = 2.0 * all as f64 * depth as f64;
    let (mut tm, mut tn) = (size(m).max(1), size(n).max(1));
    let batch = all / (tm * tn).max(1);
    let tiles = |tm: i64, tn: i64| (size(m) + tm - 1) / tm * ((size(n) + tn - 1) / tn) * batch;
    let each = |tm: i64, tn: i64| 2.0 * (tm * tn) as f64 * depth as f64;
    // (sums that wait for others take memory of their own, a tile each)
    let large = |tm: i64, tn: i64| each(tm, tn) > 2.2e9 || tm * tn > 1 << 22;
    // at least two for each of few workers, so that one that is held up gives some to others, and as many for each; no more than that, since
    // each tile packs its operands
    let workers = workers::team().workers() as i64;
    let least = if workers == 1 { 1 } else { workers.max((2 * workers).min(8)) };
    let even = |tiles: i64| tiles >= least && 5 * tiles >= 4 * ((tiles + workers - 1) / workers * workers);
    // (long sums are worth a task also where few columns and rows share what is packed)
    let small = |tm: i64, tn: i64| tm.max(tn) <= if each(tm, tn) > 1.2e7 { 32 } else { 64 };
    while flops > 2e6 && !small(tm, tn) && (!even(tiles(tm, tn)) || large(tm, tn)) {
        if tm >= tn {
            tm = (tm + 1) / 2;
        } else {
            tn = (tn + 1) / 2;
        }
    }
    let copies: Vec<Vec<Block>> =
        f.copies.iter().map(|c| c.iter().filter_map(|r| block(f, &r.lo, &r.hi)).collect()).collect();
    let blocks: usize = copies.iter().map(Vec::len).sum();
    // operations a microsecond of one core
    let rate = if matches!(f.dtype, DType::F32) {
        110e3
    } else if f.dtype.is_float() {
        55e3
    } else if f.dtype.is_complex() {
        8e3
    } else {
        4e3
    };
    let cost = flops / rate
        + 0.1 * blocks as f64 * tiles(tm, tn) as f64
        + epilogue.as_ref().map_or(0.0, |t| t.weight * all as f64 / 1000.0);
    let copy = if own > 0 { v.strides[0] } else { 0 };
    let apart = on_a_page!() || way != Way::Matrices || !one_panel(&copies);
    let by = if apart { None } else { scale(g, group, same) };
    if by.is_some() {
        epilogue = None;
    }
    let by = by.unwrap_or(1.0);
    Ok(ProductKernel {
        dtype: f.dtype,
        a,
        b,
        c,
        copy,
        ext,
        rank,
        m,
        n,
        way,
        tm,
        tn,
        copies,
        by,
        epilogue,
        cost,
    })
}

/// Whether each element is one sum of few terms, which the product makes at once.
fn one_panel(copies: &[Vec<Block>]) -> bool {
    let [blocks] = copies else { return false };
    matches!(&blocks[..], [b] if matches!(b.loops[..], [(k, ..)] if k <= PANEL as i64))
}

/// The number that all which is computed from the result multiplies it by, in its place.
fn scale(g: &Groups<'_, '_>, group: usize, same: Option<Slot>) -> Option<f64> {
    let (Head::Product(k), [member]) = (g.list[group].head, &g.list[group].members[..]) else { return None };
    let (f, m) = (g.fold(k), g.map(member.item));
    let ([inst], rank) = (&m.code.insts[..], f.rank) else { return None };
    let (from, to) = (&g.flow.values[f.out], &g.flow.values[m.out]);
    let in_place = same == Some(m.out) && m.n == rank && m.ext[..rank] == f.ext[..rank];
    let as_it_is = member.shift[..rank].iter().all(|s| *s == 0)
        && member.dims[..rank].iter().enumerate().all(|(d, to)| d == usize::from(*to))
        && from.copies == 1
        && to.strides == from.strides;
    let float = matches!(f.dtype, DType::F32 | DType::F64) && inst.from == f.dtype && inst.dtype == f.dtype;
    if inst.fun != Fun::Mul || !in_place || !as_it_is || !float {
        return None;
    }
    let read = |a: &Arg| match a {
        Arg::Read(r) => match &m.reads[*r].pieces[..] {
            [p] if p.covers(&m.ext, rank) => Some(p),
            _ => None,
        },
        Arg::Const(_) | Arg::Inst(_) | Arg::Index(_) => None,
    };
    let number = |a: &Arg| match (a, read(a).map(|p| p.from)) {
        (Arg::Const(c), _) => Some(bits(f.dtype, *c)),
        (_, Some(Source::Const(c))) => Some(bits(f.dtype, c)),
        _ => None,
    };
    let own = |a: &Arg| {
        read(a).is_some_and(|p| {
            p.from == Source::Value(f.out) && p.off == 0 && p.st[..rank] == from.strides[..rank]
        })
    };
    let by = match &inst.args[..] {
        [x, c] if own(x) => number(c),
        [c, x] if own(x) => number(c),
        _ => None,
    }?;
    let by =
        if f.dtype == DType::F32 { f64::from(f32::from_bits(by as u32)) } else { f64::from_bits(by as u64) };
    // (products that are multiplied by 0 are not computed by every library)
    (by != 0.0).then_some(by)
}

fn operand(g: &Groups<'_, '_>, o: &Operand, base: u32, order: &[usize]) -> Mat {
    let p = &o.pieces[0];
    let Source::Value(s) = p.from else { unreachable!("operands of products are values") };
    let mut st = [0; MAX];
    for (e, &l) in order.iter().enumerate() {
        st[e] = p.st[l];
    }
    Mat { slot: g.flow.root(s) as u32 + base, off: p.off, st }
}

/// A rank's box of the summed loops; none if it is empty.
fn block(f: &Fold<'_>, lo: &Ix, hi: &Ix) -> Option<Block> {
    let (p, q) = (&f.reads[0].pieces[0], &f.reads[1].pieces[0]);
    let mut b = Block { a: 0, b: 0, loops: SmallVec::new() };
    for l in f.rank..f.n {
        let len = hi[l] - lo[l];
        if len <= 0 {
            return None;
        }
        b.a += lo[l] * p.st[l];
        b.b += lo[l] * q.st[l];
        if len > 1 {
            match b.loops.last_mut() {
                Some(o) if o.1 == p.st[l] * len && o.2 == q.st[l] * len => *o = (o.0 * len, p.st[l], q.st[l]),
                _ => b.loops.push((len, p.st[l], q.st[l])),
            }
        }
    }
    // the longest loop is the product's own
    if let Some(k) = (0..b.loops.len()).max_by_key(|k| b.loops[*k].0) {
        let last = b.loops.len() - 1;
        b.loops.swap(k, last);
    } else {
        b.loops.push((1, 0, 0));
    }
    Some(b)
}

/// Bytes of a tile that is so small that a buffer would cost more than it.
const SMALL: usize = 256;

impl ProductKernel {
    /// Where its result is.
    pub(crate) fn result(&self) -> u32 {
        self.c.slot
    }
    fn tiles(&self) -> (i64, i64, i64) {
        let size = |d: Option<usize>| d.map_or(1, |d| self.ext[d]);
        let matrix = |d: usize| Some(d) == self.m || Some(d) == self.n;
        let batch = (0..self.rank).filter(|d| !matrix(*d)).map(|d| self.ext[d]).product();
        (batch, (size(self.m) + self.tm - 1) / self.tm, (size(self.n) + self.tn - 1) / self.tn)
    }
    /// Into how many independent tasks it falls.
    pub(crate) fn chunks(&self) -> i64 {
        let (b, m, n) = self.tiles();
        let all = b * m * n;
        // small members of a batch go together; a product that costs next to nothing is one task
        let per = (20.0 * all as f64 / self.cost.max(1e-3)).ceil().max(1.0) as i64;
        let per = per.min(all.max(1));
        (all + per - 1) / per
    }
    /// # Safety
    /// As for [`kernel::run`].
    pub(crate) unsafe fn run(&self, chunk: i64, chunks: i64, base: &[*mut u8], s: &mut Scratch) {
        let (batch, rows, columns) = self.tiles();
        let all = batch * rows * columns;
        for t in all * chunk / chunks..all * (chunk + 1) / chunks {
            let (mut k, r, c) = (t / (rows * columns), t / columns % rows, t % columns);
            let (mut lo, mut hi) = ([0; MAX], [1; MAX]);
            for d in (0..self.rank).rev() {
                if Some(d) == self.m {
                    (lo[d], hi[d]) = (r * self.tm, ((r + 1) * self.tm).min(self.ext[d]));
                } else if Some(d) == self.n {
                    (lo[d], hi[d]) = (c * self.tn, ((c + 1) * self.tn).min(self.ext[d]));
                } else {
                    lo[d] = k % self.ext[d];
                    hi[d] = lo[d] + 1;
                    k /= self.ext[d];
                }
            }
            // SAFETY: the caller's; the tile is in the result
            unsafe { self.tile(&lo, &hi, base, s) }
        }
    }
    /// # Safety
    /// As for [`kernel::run`].
    unsafe fn tile(&self, lo: &Ix, hi: &Ix, base: &[*mut u8], s: &mut Scratch) {
        let size = self.dtype.size() as i64;
        let extent = |d: Option<usize>| d.map_or(1, |d| (hi[d] - lo[d]) as usize);
        let (m, n) = (extent(self.m), extent(self.n));
        let (rs, cs) = (step(&self.c, self.m), step(&self.c, self.n));
        let by_rows = m == 1 || cs.abs() <= rs.abs();
        let from = [&self.a, &self.b].map(|x| self.at(x, lo, 0, base));
        let (prs, pcs) = if by_rows { (n as isize, 1) } else { (1, m as isize) };
        // sums that wait for others: the first in the result, more where that is not enough
        let mut more: SmallVec<[Buffer; 4]> = SmallVec::new();
        let mut few = [[MaybeUninit::<u64>::uninit(); SMALL / 8]; 4];
        for (copy, blocks) in self.copies.iter().enumerate() {
            let dst = self.at(&self.c, lo, copy as i64 * self.copy, base);
            let bytes = m * n * size as usize;
            let mut place = |k: usize| {
                if k == 0 {
                    return (dst, rs, cs);
                }
                if bytes <= SMALL && k <= few.len() {
                    return (few[k - 1].as_mut_ptr().cast(), prs, pcs);
                }
                while more.len() < k {
                    more.push(Buffer::within(bytes));
                }
                (more[k - 1].as_mut_ptr(), prs, pcs)
            };
            let mut waiting = 0;
            for (k, b) in blocks.iter().enumerate() {
                let mut merges = (k + 1).trailing_zeros();
                // SAFETY: the caller's: operands and result are in their slots, and none overlaps the result
                unsafe {
                    if merges > 0 && b.loops.len() == 1 {
                        self.block(b, (m, n), place(waiting - 1), true, from);
                        merges -= 1;
                    } else {
                        self.block(b, (m, n), place(waiting), false, from);
                        waiting += 1;
                    }
                    for _ in 0..merges {
                        plus(self.dtype, (m, n), place(waiting - 2), place(waiting - 1));
                        waiting -= 1;
                    }
                }
            }
            for k in (1..waiting).rev() {
                // SAFETY: as above
                unsafe { plus(self.dtype, (m, n), place(k - 1), place(k)) }
            }
            if blocks.is_empty() {
                // a sum over nothing
                for i in 0..m as isize {
                    for j in 0..n as isize {
                        let off = (i * rs + j * cs) * size as isize;
                        // SAFETY: as above
                        unsafe { std::ptr::write_bytes(dst.wrapping_offset(off), 0, size as usize) }
                    }
                }
            }
        }
        if let Some(t) = &self.epilogue {
            // SAFETY: the caller's; the space of the epilogue is that of the result
            unsafe { kernel::run(t, base, lo, hi, s) }
        }
    }
    /// Where an operand's or the result's tile from `lo` on begins, and `more` elements behind.
    fn at(&self, x: &Mat, lo: &Ix, more: i64, base: &[*mut u8]) -> *mut u8 {
        let off: i64 = (0..self.rank).map(|d| lo[d] * x.st[d]).sum();
        let bytes = (x.off + off + more) * self.dtype.size() as i64;
        base[x.slot as usize].wrapping_offset(bytes as isize)
    }
    /// The product of a rank's blocks: an m×n tile of the operands that begin here.
    ///
    /// # Safety
    /// As for [`kernel::run`]; `dst` has such a tile, and overlaps no operand. With `accumulate` the block has one loop.
    #[inline]
    unsafe fn block(
        &self,
        b: &Block,
        (m, n): (usize, usize),
        (dst, rs, cs): (*mut u8, isize, isize),
        accumulate: bool,
        [x, y]: [*mut u8; 2],
    ) {
        let size = self.dtype.size() as i64;
        let Some(((k, ak, bk), outer)) = b.loops.split_last().map(|(l, o)| (*l, o)) else { return };
        let (ars, bcs) = (step(&self.a, self.m), step(&self.b, self.n));
        let (k, acs, brs) = (k as usize, ak as isize, bk as isize);
        let count: i64 = outer.iter().map(|o| o.0).product();
        for turn in 0..count {
            let (mut i, mut oa, mut ob) = (turn, b.a, b.b);
            for o in outer.iter().rev() {
                oa += i % o.0 * o.1;
                ob += i % o.0 * o.2;
                i /= o.0;
            }
            let (x, y) = (x.wrapping_offset((oa * size) as isize), y.wrapping_offset((ob * size) as isize));
            let more = accumulate || turn > 0;
            // SAFETY: the caller's
            unsafe {
                gemm(self.dtype, self.way, m, k, n, dst, rs, cs, x, ars, acs, y, brs, bcs, more, self.by);
            }
        }
    }
}

/// Elements from an index of this dimension to the next; none where it has one index.
fn step(x: &Mat, d: Option<usize>) -> isize {
    d.map_or(0, |d| x.st[d] as isize)
}
