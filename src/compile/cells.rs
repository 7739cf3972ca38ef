//! Pass 4, cells: the index space of a group is cut wherever a read changes its piece or a map begins or ends. In a cell each
//! read is one affine operand or a constant, so that no tile needs a mask.

use super::emit::{self, Late};
use super::expr::{Expr, Mem, POSITION};
use super::flow::{Operand, Piece};
use super::group::{Groups, Head, Member};
use super::index::{Ix, MAX};
use super::tiles::{Band, Seg, Tiles};
use crate::diagnostic::Result;
use crate::partition::Slot;
use crate::program::sentence::{Arg, Code, Fun, Source};
use crate::sorted;
use crate::types::{DType, Scalar};
use smallvec::SmallVec;
use std::collections::HashMap;

/// What is asked of a group's tile programs.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    /// The loops that become dimensions, outermost first; the others have one index.
    pub(crate) order: &'a [usize],
    /// Store past the caches.
    pub(crate) stream: bool,
    /// A value that shares another one's memory: (what is read, where it is).
    pub(crate) same: Option<(Slot, Slot)>,
    /// Values that are stored over what the group reads: (value, over which one).
    pub(crate) over: &'a [(Slot, Slot)],
    /// Added to slot numbers.
    pub(crate) base: u32,
}

/// The box of a group's index space: what its stored maps cover, or the loops of its fold.
pub(crate) fn space(g: &Groups<'_, '_>, group: usize) -> (Ix, Ix, usize) {
    if let Head::Fold(k) = g.list[group].head {
        let f = g.fold(k);
        return ([0; MAX], f.ext, f.n);
    }
    let (mut lo, mut hi, mut n) = ([i64::MAX; MAX], [i64::MIN; MAX], 0);
    for m in g.list[group].members.iter().filter(|m| g.stored[g.map(m.item).out]) {
        let (a, b) = extent(g, m);
        n = g.map(m.item).n;
        for d in 0..MAX {
            (lo[d], hi[d]) = (lo[d].min(a[d]), hi[d].max(b[d]));
        }
    }
    if lo[0] == i64::MAX {
        return ([0; MAX], [0; MAX], 0);
    }
    (lo, hi, n)
}

/// The box of a member in the space of its group.
fn extent(g: &Groups<'_, '_>, m: &Member) -> (Ix, Ix) {
    let map = g.map(m.item);
    let (mut lo, mut hi) = ([0; MAX], [1; MAX]);
    for l in 0..map.n {
        let d = m.dims[l] as usize;
        (lo[d], hi[d]) = (m.shift[l], m.shift[l] + map.ext[l]);
    }
    (lo, hi)
}

struct Cells<'a, 'f, 'p> {
    g: &'a Groups<'f, 'p>,
    group: usize,
    ask: &'a Ask<'a>,
    /// The box of the space.
    lo: Ix,
    hi: Ix,
    /// The loops that become dimensions; one of one index if there are none.
    dims: &'a [usize],
    /// Which members are stored.
    stores: SmallVec<[usize; 4]>,
    /// The cell's first index.
    at: Ix,
    expr: Expr,
    memo: Vec<u32>,
    rows: HashMap<*const Operand, Option<Row>>,
}

/// The tile programs of a group over its space; those of a fold leave its value in `result`.
pub(crate) fn tiles(g: &Groups<'_, '_>, group: usize, ask: &Ask<'_>) -> Result<Tiles> {
    let mut c = Cells::new(g, group, ask);
    let inner = c.dims.len() - 1;
    let mut t = Tiles {
        rank: c.dims.len(),
        ext: [1; MAX],
        bands: Vec::new(),
        regs: 0,
        tile: emit::TILE,
        stream: ask.stream,
        weight: 0.0,
    };
    for (e, &d) in c.dims.iter().enumerate() {
        t.ext[e] = (c.hi[d] - c.lo[d]).max(0);
    }
    if t.elements() == 0 {
        return Ok(t);
    }
    let late = c.late();
    let cuts = c.cuts();
    for outer in boxes(&cuts[..inner]) {
        let mut band = Band { lo: [0; MAX], hi: [1; MAX], segs: Vec::new() };
        for (e, (from, to)) in outer.into_iter().enumerate() {
            let d = c.dims[e];
            c.at[d] = from;
            (band.lo[e], band.hi[e]) = (from - c.lo[d], to - c.lo[d]);
        }
        for w in cuts[inner].windows(2) {
            let d = c.dims[inner];
            c.at[d] = w[0];
            let Some((mut seg, weight, regs, tile)) = c.segment(&late)? else { continue };
            (seg.lo, seg.hi) = (w[0] - c.lo[d], w[1] - c.lo[d]);
            t.weight = t.weight.max(weight);
            t.regs = t.regs.max(regs);
            t.tile = t.tile.min(tile);
            band.segs.push(seg);
        }
        if !band.segs.is_empty() {
            t.push(band);
        }
    }
    emit::number(&mut t);
    Ok(t)
}

/// All boxes between these cuts, the last dimension fastest.
fn boxes(cuts: &[Vec<i64>]) -> impl Iterator<Item = SmallVec<[(i64, i64); 4]>> {
    let all: usize = cuts.iter().map(|c| c.len() - 1).product();
    (0..all).map(move |mut k| {
        let mut cell = SmallVec::from_elem((0, 0), cuts.len());
        for (side, c) in cell.iter_mut().zip(cuts).rev() {
            let x = k % (c.len() - 1);
            k /= c.len() - 1;
            *side = (c[x], c[x + 1]);
        }
        cell
    })
}

/// The many pieces of an operand, one behind the other along a loop.
struct Row {
    along: usize,
    /// Their numbers, and where each begins.
    order: Vec<(i64, u32)>,
}

/// Fewer pieces than this are looked at one by one.
const FEW: usize = 8;

impl Row {
    /// That of these pieces, if there is a loop of which no two of them share an index.
    fn of(pieces: &[Piece], n: usize) -> Option<Row> {
        (0..n).find_map(|along| {
            let mut order: Vec<_> = pieces.iter().zip(0..).map(|(p, k)| (p.lo[along], k)).collect();
            sorted::sort(&mut order);
            let apart = |w: &[(i64, u32)]| pieces[w[0].1 as usize].hi[along] <= w[1].0;
            order.windows(2).all(apart).then_some(Row { along, order })
        })
    }
    /// The piece that alone may hold this index.
    fn piece(&self, x: i64) -> Option<usize> {
        let behind = self.order.partition_point(|p| p.0 <= x);
        Some(self.order[behind.checked_sub(1)?].1 as usize)
    }
}

impl<'a, 'f, 'p> Cells<'a, 'f, 'p> {
    fn new(g: &'a Groups<'f, 'p>, group: usize, ask: &'a Ask<'a>) -> Self {
        let (lo, hi, _) = space(g, group);
        let members = &g.list[group].members;
        let stores = match g.list[group].head {
            Head::Fold(_) => SmallVec::new(),
            _ => (0..members.len()).filter(|m| g.stored[g.map(members[*m].item).out]).collect(),
        };
        let dims: &[usize] = if ask.order.is_empty() { &[MAX - 1] } else { ask.order };
        let (expr, memo, rows) = (Expr::default(), Vec::new(), HashMap::new());
        Cells { g, group, ask, lo, hi, dims, stores, at: lo, expr, memo, rows }
    }
    /// Slots that are written where something else is.
    fn late(&self) -> SmallVec<[Late; 2]> {
        let slot = |s: Slot| s as u32 + self.ask.base;
        let same = self.ask.same.map(|s| Late { to: slot(s.1), from: None });
        let over = self.ask.over.iter().map(|s| Late { to: slot(s.0), from: Some(slot(s.1)) });
        same.into_iter().chain(over).collect()
    }
    /// Where the space is cut: at its ends, and wherever a member or a piece of what it reads begins or ends.
    fn cuts(&self) -> Vec<Vec<i64>> {
        let mut cuts: Vec<Vec<i64>> = self.dims.iter().map(|&d| vec![self.lo[d], self.hi[d]]).collect();
        for m in &self.g.list[self.group].members {
            let map = self.g.map(m.item);
            let (a, b) = extent(self.g, m);
            for (cuts, &d) in cuts.iter_mut().zip(self.dims) {
                cuts.extend([a[d], b[d]]);
                let Some(l) = (0..map.n).find(|l| m.dims[*l] as usize == d) else { continue };
                for p in map.reads.iter().flat_map(|r| &r.pieces) {
                    cuts.extend([p.lo[l] + m.shift[l], p.hi[l] + m.shift[l]]);
                }
            }
        }
        for (cuts, &d) in cuts.iter_mut().zip(self.dims) {
            cuts.retain(|x| (self.lo[d]..=self.hi[d]).contains(x));
            sorted::sort(cuts);
            cuts.dedup();
        }
        cuts
    }
    /// The program of the cell at `at`, its weight, its registers and the elements of its tiles; none if nothing is made there.
    fn segment(&mut self, late: &[Late]) -> Result<Option<(Seg, f64, u16, i64)>> {
        let g = self.g;
        let group = &g.list[self.group];
        self.expr.clear();
        self.memo.clear();
        self.memo.resize(group.members.len(), u32::MAX);
        let mut roots: SmallVec<[(usize, Option<Mem>); 4]> = SmallVec::new();
        if let Head::Fold(k) = group.head {
            let f = g.fold(k);
            let Some((_, code)) = &f.code else { return Ok(None) };
            let identity = Member { item: k, shift: [0; MAX], dims: std::array::from_fn(|d| d as u8) };
            roots.push((self.code(code, &f.reads, &identity, f.n, 0), None));
        }
        for m in self.stores.clone() {
            let (a, b) = extent(g, &group.members[m]);
            if (0..MAX).all(|d| a[d] <= self.at[d] && self.at[d] < b[d]) {
                let node = self.member(m);
                roots.push((node, Some(self.target(&group.members[m]))));
            }
        }
        if roots.is_empty() {
            return Ok(None);
        }
        emit::emit(&self.expr, &roots, self.dims.len() - 1, late, self.ask.stream).map(Some)
    }
    /// A place, from elements off + Σ loop · st of a value, as a member sees it.
    fn place(&self, slot: u32, size: usize, off: i64, st: &Ix, m: &Member, n: usize) -> Mem {
        let (mut o, mut wide) = (off, [0; MAX]);
        for l in 0..n {
            o -= st[l] * m.shift[l];
            wide[m.dims[l] as usize] += st[l];
        }
        o += self.lo.iter().zip(&wide).map(|(lo, w)| lo * w).sum::<i64>();
        let mut packed = [0; MAX];
        for (e, d) in self.ask.order.iter().enumerate() {
            packed[e] = wide[*d] * size as i64;
        }
        Mem { slot, size: size as u8, off: o * size as i64, st: packed }
    }
    fn memory(&mut self, s: Slot, dtype: DType, off: i64, st: &Ix, m: &Member, n: usize) -> usize {
        let root = self.g.flow.root(s);
        let slot = match self.ask.same {
            Some((from, to)) if from == root => to,
            _ => root,
        };
        let mem = self.place(slot as u32 + self.ask.base, dtype.size(), off, st, m, n);
        self.expr.memory(dtype, mem)
    }
    /// Where a member is stored.
    fn target(&self, m: &Member) -> Mem {
        let map = self.g.map(m.item);
        let v = &self.g.flow.values[map.out];
        self.place(map.out as u32 + self.ask.base, v.dtype.size(), 0, &v.strides, m, map.n)
    }
    /// The value of a member in this cell.
    fn member(&mut self, k: usize) -> usize {
        if self.memo[k] != u32::MAX {
            return self.memo[k] as usize;
        }
        let g = self.g;
        let m = &g.list[self.group].members[k];
        let map = g.map(m.item);
        let node = self.code(&map.code, &map.reads, m, map.n, map.lead);
        self.memo[k] = node as u32;
        node
    }
    fn operand(&mut self, o: &Operand, m: &Member, n: usize) -> usize {
        let at = |l: usize| self.at[m.dims[l] as usize] - m.shift[l];
        let inside = |p: &&Piece| (0..n).all(|l| p.lo[l] <= at(l) && at(l) < p.hi[l]);
        let row = match o.pieces.len() {
            ..FEW => &None,
            _ => self.rows.entry(o).or_insert_with(|| Row::of(&o.pieces, n)),
        };
        let found = match row {
            Some(row) => row.piece(at(row.along)).map(|k| &o.pieces[k]).filter(inside),
            None => o.pieces.iter().find(inside),
        };
        let Some(p) = found else { return self.expr.constant(o.dtype, o.fill) };
        let s = match p.from {
            Source::Const(c) => return self.expr.constant(o.dtype, c),
            Source::Value(s) => s,
        };
        // made in this group, and read in place
        if let Some(d) = self.g.def[s]
            && d.group == self.group
            && let Ok(k) = self.g.list[self.group].members.binary_search_by_key(&d.item, |m| m.item)
        {
            return self.member(k);
        }
        self.memory(s, o.dtype, p.off, &p.st, m, n)
    }
    fn code(&mut self, code: &Code, reads: &[Operand], m: &Member, n: usize, lead: usize) -> usize {
        let mut nodes: SmallVec<[usize; 8]> = SmallVec::with_capacity(code.insts.len());
        for i in &code.insts {
            let from = i.from.storage();
            let mut args: SmallVec<[usize; 3]> = SmallVec::new();
            for (j, a) in i.args.iter().enumerate() {
                args.push(match *a {
                    Arg::Read(r) => self.operand(&reads[r], m, n),
                    Arg::Inst(k) => nodes[k],
                    Arg::Const(c) => {
                        let bool = i.fun == Fun::Select && j == 0;
                        self.expr.constant(if bool { DType::Bool } else { from }, c)
                    }
                    Arg::Index(l) => {
                        let mut st = [0; MAX];
                        st[l + lead] = 1;
                        let mem = self.place(POSITION, 1, 0, &st, m, n);
                        let at = self.expr.position(mem);
                        let as_it_is =
                            matches!(i.fun, Fun::Copy | Fun::Convert | Fun::Bitcast) || from == DType::I64;
                        if as_it_is { at } else { self.expr.fun(Fun::Convert, DType::I64, from, &[at]) }
                    }
                });
            }
            // a copy of the index as another type than int64 is a conversion
            let (mut fun, mut from) = (i.fun, from);
            if matches!(i.args.first(), Some(Arg::Index(_))) && matches!(fun, Fun::Copy | Fun::Convert) {
                (fun, from) = (Fun::Convert, DType::I64);
            }
            nodes.push(self.expr.fun(fun, from, i.dtype.storage(), &args));
        }
        nodes.last().copied().unwrap_or_else(|| self.expr.constant(DType::F32, Scalar::Float(0.0)))
    }
}
