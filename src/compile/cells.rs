//! Pass 4, cells: the index space of a group is cut wherever a read changes its piece or a map begins or ends. In a cell each
//! read is one affine operand or a constant, so that no tile needs a mask.

use super::emit::{self, Late};
use super::expr::{Expr, Mem, POSITION};
use super::flow::{Operand, Piece};
use super::group::{Groups, Head, Member};
use super::index::{Ix, MAX};
use super::tiles::{Band, Tiles};
use crate::diagnostic::Result;
use crate::partition::Slot;
use crate::program::sentence::{Arg, Code, Fun, Source};
use crate::types::{DType, Scalar};
use smallvec::SmallVec;

/// What is asked of a group's tile programs.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    /// The loops that become dimensions, outermost first; the others have one index.
    pub(crate) order: &'a [usize],
    /// Store past the caches.
    pub(crate) stream: bool,
    /// A value that lies in another one's memory: (what is read, where it lies).
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
    lo: Ix,
    /// The cell's first index.
    at: Ix,
    expr: Expr,
    memo: Vec<u32>,
}

/// The tile programs of a group over its space; those of a fold leave its value in `result`.
pub(crate) fn tiles(g: &Groups<'_, '_>, group: usize, ask: &Ask<'_>) -> Result<Tiles> {
    let (lo, hi, _) = space(g, group);
    let members = &g.list[group].members;
    let fold = if let Head::Fold(k) = g.list[group].head { Some(k) } else { None };
    let stores: SmallVec<[usize; 4]> = match fold {
        Some(_) => SmallVec::new(),
        None => (0..members.len()).filter(|m| g.stored[g.map(members[*m].item).out]).collect(),
    };
    let dummy = [MAX - 1];
    let dims: &[usize] = if ask.order.is_empty() { &dummy } else { ask.order };
    let nd = dims.len();
    let mut lo = lo;
    let mut hi = hi;
    if ask.order.is_empty() {
        (lo[MAX - 1], hi[MAX - 1]) = (0, 1);
    }
    // where the space is cut
    let mut cuts: SmallVec<[Vec<i64>; 4]> = dims.iter().map(|&d| vec![lo[d], hi[d]]).collect();
    {
        let mut cut = |e: usize, x: i64| {
            if x > lo[dims[e]] && x < hi[dims[e]] && !cuts[e].contains(&x) {
                cuts[e].push(x);
            }
        };
        for m in members {
            let map = g.map(m.item);
            let (a, b) = extent(g, m);
            for (e, &d) in dims.iter().enumerate() {
                cut(e, a[d]);
                cut(e, b[d]);
                let Some(l) = (0..map.n).find(|l| m.dims[*l] as usize == d) else { continue };
                for p in map.reads.iter().flat_map(|r| &r.pieces) {
                    cut(e, p.lo[l] + m.shift[l]);
                    cut(e, p.hi[l] + m.shift[l]);
                }
            }
        }
    }
    for c in &mut cuts {
        c.sort_unstable();
    }
    let mut t = Tiles {
        rank: nd,
        ext: [1; MAX],
        bands: Vec::new(),
        regs: 0,
        tile: emit::TILE,
        stream: ask.stream,
        weight: 0.0,
    };
    for (e, &d) in dims.iter().enumerate() {
        t.ext[e] = (hi[d] - lo[d]).max(0);
    }
    if t.elements() == 0 {
        return Ok(t);
    }
    let slot = |s: Slot| s as u32 + ask.base;
    let same = ask.same.map(|s| Late { to: slot(s.1), from: None });
    let over = ask.over.iter().map(|s| Late { to: slot(s.0), from: Some(slot(s.1)) });
    let late: SmallVec<[Late; 2]> = same.into_iter().chain(over).collect();
    let mut c = Cells { g, group, ask, lo, at: lo, expr: Expr::default(), memo: Vec::new() };
    let mut ix = [0usize; MAX];
    'bands: loop {
        let mut band = Band { lo: [0; MAX], hi: [1; MAX], segs: Vec::new() };
        for e in 0..nd - 1 {
            c.at[dims[e]] = cuts[e][ix[e]];
            (band.lo[e], band.hi[e]) = (cuts[e][ix[e]] - lo[dims[e]], cuts[e][ix[e] + 1] - lo[dims[e]]);
        }
        for w in cuts[nd - 1].windows(2) {
            c.at[dims[nd - 1]] = w[0];
            c.expr.nodes.clear();
            c.memo.clear();
            c.memo.resize(members.len(), u32::MAX);
            let mut roots: SmallVec<[(usize, Option<Mem>); 4]> = SmallVec::new();
            if let Some(k) = fold {
                let f = g.fold(k);
                let Some((_, code)) = &f.code else { continue };
                let identity = Member { item: k, shift: [0; MAX], dims: std::array::from_fn(|d| d as u8) };
                roots.push((c.code(code, &f.reads, &identity, f.n, 0), None));
            }
            for &m in &stores {
                let (a, b) = extent(g, &members[m]);
                if (0..MAX).all(|d| a[d] <= c.at[d] && c.at[d] < b[d] || d == MAX - 1 && ask.order.is_empty())
                {
                    let node = c.member(m);
                    roots.push((node, Some(c.target(&members[m]))));
                }
            }
            if roots.is_empty() {
                continue;
            }
            let (mut seg, weight, regs, tile) = emit::emit(&c.expr, &roots, nd - 1, &late, ask.stream)?;
            (seg.lo, seg.hi) = (w[0] - lo[dims[nd - 1]], w[1] - lo[dims[nd - 1]]);
            t.weight = t.weight.max(weight);
            t.regs = t.regs.max(regs);
            t.tile = t.tile.min(tile);
            band.segs.push(seg);
        }
        if !band.segs.is_empty() {
            t.push(band);
        }
        let mut e = nd - 1;
        loop {
            if e == 0 {
                break 'bands;
            }
            e -= 1;
            ix[e] += 1;
            if ix[e] + 1 < cuts[e].len() {
                break;
            }
            ix[e] = 0;
        }
    }
    emit::number(&mut t);
    Ok(t)
}

impl Cells<'_, '_, '_> {
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
        let inside = |p: &&Piece| {
            (0..n).all(|l| {
                let x = self.at[m.dims[l] as usize] - m.shift[l];
                p.lo[l] <= x && x < p.hi[l]
            })
        };
        let Some(p) = o.pieces.iter().find(inside) else { return self.expr.constant(o.dtype, o.fill) };
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
