//! From the expressions of a cell to instructions: registers, loads, stores.

use super::chain::{Links, chains};
use super::expr::{Do, Expr, Mem, Node, POSITION, weight};
use super::kernel;
use super::pairs::pairs;
use super::tiles::{Instr, Seg, Step, Sum, Tiles};
use crate::diagnostic::{Error, Result};
use crate::program::sentence::Fun;
use crate::runtime::kernels::{self, Along, Factors, Folded, Kernel, TERMS};
use crate::types::DType;
use smallvec::SmallVec;

pub(super) use super::tiles::TILE;

/// Marks an operand in memory until the number of registers is known.
const MEMORY: u16 = 0x8000;

fn refuse(what: impl std::fmt::Debug, from: DType, dtype: DType) -> Error {
    Error::internal(format!("no kernel for {what:?} from {from} to {dtype}"))
}

fn choose(what: Do, from: DType, dtype: DType, stream: bool) -> Result<Kernel> {
    let streaming = match what {
        _ if !stream => None,
        Do::Fun(f) => kernels::select_streaming(f, from, dtype),
        Do::Lin1 => kernels::lin_streaming(dtype, 1),
        Do::Lin2 => kernels::lin_streaming(dtype, 2),
        Do::Lin3 => kernels::lin_streaming(dtype, 3),
        Do::MulAdd => None,
    };
    let plain = || match what {
        Do::Fun(f) => kernels::select(f, from, dtype),
        Do::Lin1 => kernels::lin(dtype, 1),
        Do::Lin2 => kernels::lin(dtype, 2),
        Do::Lin3 => kernels::lin(dtype, 3),
        Do::MulAdd => kernels::mul_add(dtype),
    };
    streaming.or_else(plain).ok_or_else(|| refuse(what, from, dtype))
}

struct Emit {
    seg: Seg,
    free: Vec<u16>,
    regs: u16,
    weight: f64,
}

impl Emit {
    fn one(&mut self, i: Instr) {
        self.seg.code.push(Step::One(i));
    }
    fn mem(&mut self, m: Mem) -> u16 {
        let mems = &mut self.seg.mems;
        let i = mems.iter().position(|x| *x == m).unwrap_or_else(|| {
            mems.push(m);
            mems.len() - 1
        });
        MEMORY | i as u16
    }
    fn register(&mut self) -> u16 {
        self.free.pop().unwrap_or_else(|| {
            self.regs += 1;
            self.regs - 1
        })
    }
    fn copy(&mut self, d: u16, s: u16, dtype: DType, stream: bool) -> Result<()> {
        let f = choose(Do::Fun(Fun::Copy), dtype, dtype, stream)?;
        self.one(Instr { f, d, s: [s; 3], k: [0.0; 4] });
        self.weight += 0.02;
        Ok(())
    }
    fn sum(&mut self, sum: &Links, d: u16, dtype: DType, at: &[u16], stream: bool) -> Result<()> {
        let terms = &sum.terms;
        let f = kernels::chain(dtype, terms.len(), stream).ok_or_else(|| refuse("a sum", dtype, dtype))?;
        let term = |t: usize| terms.get(t).copied().unwrap_or(terms[0]);
        let (s, of) = (std::array::from_fn(|t| at[term(t).0 as usize]), std::array::from_fn(|t| term(t).1));
        self.seg.code.push(Step::Sum(Box::new(Sum { f, d, s, k: Factors { of, sum: sum.sum } })));
        self.weight += weight(Do::Lin3, dtype, dtype) * terms.len() as f64 / 3.0;
        Ok(())
    }
    fn row(&mut self, f: Kernel, s: Option<u16>, k: [f64; 4]) -> u16 {
        // pinned: never given back
        let d = self.regs;
        self.regs += 1;
        self.seg.row.push(Instr { f, d, s: [s.unwrap_or(d); 3], k });
        d
    }
}

/// Where the values of a cell are.
struct Found {
    /// The operand of each.
    at: Vec<u16>,
    /// What repeats it, of one element that is the same along the row and has not been repeated.
    one: Vec<Option<Kernel>>,
}

impl Found {
    /// The operand that has an element for each index.
    fn all(&mut self, i: u32, e: &mut Emit) -> u16 {
        let i = i as usize;
        if let Some(f) = self.one[i].take() {
            self.at[i] = e.row(f, Some(self.at[i]), [0.0; 4]);
        }
        self.at[i]
    }
    /// The kernel of an instruction that takes one element where an operand is one, and its operands and constants in order.
    fn along(
        &self,
        what: Do,
        dtype: DType,
        mut args: [u32; 3],
        n: u8,
        mut k: [u64; 3],
        past: bool,
    ) -> Option<(Kernel, [u32; 3], [u64; 3])> {
        let one = |a: u32| self.one[a as usize].is_some();
        if !args[..n as usize].iter().any(|a| one(*a)) {
            return None;
        }
        let fun = match what {
            Do::Fun(Fun::Mul) => Along::Mul,
            Do::Fun(Fun::Div) => Along::Div,
            Do::Lin2 => Along::Lin2,
            Do::MulAdd => Along::MulAdd,
            _ => return None,
        };
        // products and sums are the same either way round
        if one(args[0]) && fun != Along::Div {
            args.swap(0, 1);
            if fun == Along::Lin2 {
                k.swap(0, 1);
            }
        }
        if one(args[0]) {
            return None;
        }
        let same = (1..n as usize).filter(|j| one(args[*j])).map(|j| 1u8 << j).sum();
        Some((kernels::along_one(fun, same, dtype, past)?, args, k))
    }
}

/// A slot that shares memory with an operand: it is written after all reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// What is written.
    pub(super) to: u32,
    /// In whose place, index by index, if it is not its own.
    pub(super) from: Option<u32>,
}

/// Instructions for these values: each stored at its place, or left where `result` says. Returns the segment, its weight, its registers
/// and the elements of its tiles.
pub(super) fn emit(
    expr: &Expr,
    roots: &[(usize, Option<Mem>)],
    last: usize,
    late: &[Late],
    stream: bool,
) -> Result<(Seg, f64, u16, i64)> {
    let n = expr.nodes.len();
    let mut uses = vec![0u32; n];
    for r in roots {
        uses[r.0] += 1;
    }
    for i in (0..n).rev() {
        if let (Node::Op { n, args, .. }, true) = (&expr.nodes[i].0, uses[i] > 0) {
            for a in &args[..*n as usize] {
                uses[*a as usize] += 1;
            }
        }
    }
    let (sums, mut gone) = chains(expr, &uses);
    let pairs = pairs(expr, &uses, last, &mut gone);
    let mut e = Emit {
        seg: Seg {
            lo: 0,
            hi: 0,
            row: Vec::new(),
            code: Vec::new(),
            mems: Vec::new(),
            result: 0,
            folded: None,
        },
        free: Vec::new(),
        regs: 0,
        weight: 0.0,
    };
    let mut found = Found { at: vec![u16::MAX; n], one: vec![None; n] };
    let mut widest = 4;
    let is_late = |m: &Mem| late.iter().any(|l| l.to == m.slot);
    for i in 0..n {
        if uses[i] == 0 || gone[i] {
            continue;
        }
        let (node, dtype) = expr.nodes[i];
        widest = widest.max(dtype.size());
        let store = roots.iter().find_map(|r| r.1.filter(|m| r.0 == i && !is_late(m)));
        let direct = store.filter(|_| uses[i] == 1);
        let size = dtype.size();
        let none = || refuse("a load", dtype, dtype);
        match node {
            Node::Const(b) => {
                let k = [f64::from_bits(b as u64), f64::from_bits((b >> 64) as u64), 0.0, 0.0];
                let f = kernels::fill(size).ok_or_else(none)?;
                found.at[i] = match direct {
                    Some(m) => {
                        let d = e.mem(m);
                        e.one(Instr { f, d, s: [d; 3], k });
                        d
                    }
                    None => e.row(f, None, k),
                };
            }
            Node::Mem(m) if m.st[last] == i64::from(m.size) => found.at[i] = e.mem(m),
            Node::Mem(m) if m.st[last] == 0 => {
                found.at[i] = e.mem(m);
                found.one[i] = Some(kernels::splat(size).ok_or_else(none)?);
                // what may be written over is read before
                if late.iter().any(|l| l.to == m.slot || l.from == Some(m.slot)) {
                    found.all(i as u32, &mut e);
                }
            }
            Node::Mem(m) => {
                let (f, s) = (kernels::gather(size).ok_or_else(none)?, e.mem(m));
                let d = match direct {
                    Some(m) => e.mem(m),
                    None => e.register(),
                };
                let step = (m.st[last] / i64::from(m.size)) as f64;
                e.one(Instr { f, d, s: [s; 3], k: [step, 0.0, 0.0, 0.0] });
                e.weight += 0.5;
                found.at[i] = d;
            }
            Node::Position(m) => {
                let s = e.mem(Mem { slot: POSITION, ..m });
                let d = match direct {
                    Some(m) => e.mem(m),
                    None => e.register(),
                };
                e.one(Instr { f: kernel::position, d, s: [s; 3], k: [m.st[last] as f64, 0.0, 0.0, 0.0] });
                e.weight += 0.05;
                found.at[i] = d;
            }
            Node::Op { what, from, n, args, k } => {
                widest = widest.max(from.size());
                let d = match store {
                    Some(m) => e.mem(m),
                    None => e.register(),
                };
                let past = stream && direct.is_some();
                let read: SmallVec<[u32; TERMS]> = match (&sums[i], pairs[i]) {
                    (_, Some(p)) => {
                        for (_, a) in
                            p.args[..p.n as usize].iter().enumerate().filter(|(j, _)| p.same >> j & 1 == 0)
                        {
                            found.all(*a, &mut e);
                        }
                        // (of what has been repeated the first element is read)
                        let f = kernels::along_one(p.fun, p.same, dtype, past)
                            .ok_or_else(|| refuse(p.fun, dtype, dtype))?;
                        let (s, [p0, p1, p2]) =
                            (p.args.map(|a| found.at[a as usize]), p.k.map(f64::from_bits));
                        e.one(Instr { f, d, s, k: [p0, p1, p2, 0.0] });
                        if p.fun == Along::ExpLin && roots == [(i, None)] {
                            e.seg.folded = Some(Folded::ExpLin);
                        }
                        e.weight += weight(Do::Lin2, dtype, dtype) + weight(what, from, dtype);
                        p.args[..p.n as usize].into()
                    }
                    (Some(sum), None) => {
                        sum.terms.iter().for_each(|t| _ = found.all(t.0, &mut e));
                        e.sum(sum, d, dtype, &found.at, past)?;
                        sum.terms.iter().map(|t| t.0).collect()
                    }
                    (None, None) => {
                        let (f, args, k) = match found.along(what, dtype, args, n, k, past) {
                            Some(along) => along,
                            None => {
                                args[..n as usize].iter().for_each(|a| _ = found.all(*a, &mut e));
                                if roots == [(i, None)] {
                                    e.seg.folded = match what {
                                        Do::Fun(Fun::Mul) => Some(Folded::Products),
                                        Do::Fun(Fun::Exp) => Some(Folded::Exp),
                                        _ => None,
                                    };
                                }
                                (choose(what, from, dtype, past)?, args, k)
                            }
                        };
                        let (s, [p, q, r]) = (args.map(|a| found.at[a as usize]), k.map(f64::from_bits));
                        e.one(Instr { f, d, s, k: [p, q, r, 0.0] });
                        e.weight += weight(what, from, dtype);
                        args[..n as usize].into()
                    }
                };
                found.at[i] = d;
                let pinned = |r: u16, seg: &Seg| seg.row.iter().any(|x| x.d == r);
                for a in read {
                    let a = a as usize;
                    uses[a] -= 1;
                    if uses[a] == 0 && found.at[a] & MEMORY == 0 && !pinned(found.at[a], &e.seg) {
                        e.free.push(found.at[a]);
                    }
                }
            }
        }
    }
    for (r, _) in roots {
        found.all(*r as u32, &mut e);
    }
    let at = found.at;
    for (r, m) in roots {
        match m {
            None => e.seg.result = at[*r],
            Some(m) if is_late(m) => {}
            Some(m) => {
                let d = e.mem(*m);
                if at[*r] != d {
                    e.copy(d, at[*r], expr.nodes[*r].1, stream)?;
                }
            }
        }
    }
    // what late stores find in memory that another one may write is read before the first of them
    let mut stores: SmallVec<[(u16, usize, Mem); 2]> = SmallVec::new();
    for (r, m) in roots.iter().filter_map(|(r, m)| Some((*r, m.filter(is_late)?))) {
        let own = |x: &Mem| x.slot == m.slot || late.iter().any(|l| l.to == m.slot && l.from == Some(x.slot));
        let mut s = at[r];
        if s & MEMORY != 0 && !own(&e.seg.mems[usize::from(s & !MEMORY)]) {
            let d = e.register();
            e.copy(d, s, expr.nodes[r].1, false)?;
            s = d;
        }
        stores.push((s, r, m));
    }
    for (s, r, m) in stores {
        let d = e.mem(m);
        let dtype = expr.nodes[r].1;
        match s & MEMORY != 0 {
            _ if s == d => {}
            true => {
                let k = [dtype.size() as f64, 0.0, 0.0, 0.0];
                e.one(Instr { f: kernel::unless_there, d, s: [s; 3], k });
                e.weight += 0.02;
            }
            false => e.copy(d, s, dtype, false)?,
        }
    }
    // a late store goes last, so that its pointer is the one that tiles are aligned to
    Ok((e.seg, e.weight, e.regs, TILE * 4 / widest as i64))
}

/// Gives operands in memory their numbers, behind the registers.
pub(super) fn number(t: &mut Tiles) {
    let regs = t.regs;
    let fix = |x: &mut u16| {
        if *x & MEMORY != 0 {
            *x = (*x & !MEMORY) + regs;
        }
    };
    for s in t.bands.iter_mut().flat_map(|b| &mut b.segs) {
        for i in &mut s.row {
            fix(&mut i.d);
            i.s.iter_mut().for_each(fix);
        }
        s.code.iter_mut().flat_map(Step::operands).for_each(fix);
        fix(&mut s.result);
    }
}
