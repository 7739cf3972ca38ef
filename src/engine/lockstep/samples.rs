//! Per-device programs as the partitioner makes them, for tests and timings.

use crate::partition::{DimLayout, Layout, Slot, SpmdProgram, Step, Stored};
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Fun, Part, Read, Sentence, Source, Span};
use crate::sharding::{Atom, Atoms};
use crate::types::{DType, Scalar, Shape};
use smallvec::SmallVec;

pub(super) const F: DType = DType::F32;

/// A program under construction, all of one element type.
pub(super) struct Make {
    pub(super) p: SpmdProgram,
    pub(super) dtype: DType,
}

/// The digits of a dimension that is split n ways, whose neighbours to the right are split `right` ways in all.
fn atoms(n: usize, right: usize) -> Atoms {
    if n > 1 { SmallVec::from_slice(&[Atom { stride: right, size: n }]) } else { SmallVec::new() }
}
pub(super) fn layouts(shape: &[usize], ways: &[usize]) -> Vec<DimLayout> {
    let mut right = 1;
    let mut all: Vec<DimLayout> = shape
        .iter()
        .zip(ways)
        .rev()
        .map(|(n, w)| {
            let l = DimLayout::new(*n, atoms(*w, right));
            right *= w;
            l
        })
        .collect();
    all.reverse();
    all
}

impl Make {
    pub(super) fn new(dtype: DType) -> Make {
        Make { p: SpmdProgram { devices: 8, ..SpmdProgram::default() }, dtype }
    }
    pub(super) fn slot_of(&mut self, dtype: DType, shape: &[usize], ways: &[usize], parts: &[Atom]) -> Slot {
        let partial = (!parts.is_empty()).then(|| (Combine::Add, parts.iter().copied().collect()));
        let layout = Layout { dims: layouts(shape, ways), partial };
        self.p.slots.push(Stored { dtype, shape: shape.into(), layout });
        self.p.slots.len() - 1
    }
    pub(super) fn slot(&mut self, shape: &[usize], ways: &[usize]) -> Slot {
        self.slot_of(self.dtype, shape, ways, &[])
    }
    pub(super) fn input(&mut self, shape: &[usize], ways: &[usize]) -> Slot {
        let s = self.slot(shape, ways);
        self.p.ins.push(s);
        s
    }
    pub(super) fn shape(&self, s: Slot) -> Vec<usize> {
        self.p.slots[s].shape.to_vec()
    }
    pub(super) fn ways(&self, s: Slot) -> Vec<usize> {
        self.p.slots[s].layout.dims.iter().map(DimLayout::ways).collect()
    }
    /// A read over loops of these sizes: dimension d at the loop of `at[d]`, plus its offset.
    pub(super) fn read(&self, s: Slot, extents: &[usize], at: &[(Option<usize>, i64)]) -> Read {
        let map = at.iter().map(|(l, o)| l.map_or(Affine::constant(*o), |l| Affine::of(*o, l, 1))).collect();
        let span = Span::whole(extents);
        let dtype = self.p.slots[s].dtype;
        Read { dtype, parts: vec![Part { from: Source::Value(s), span, map }], fill: Scalar::zero(dtype) }
    }
    pub(super) fn id(&self, s: Slot) -> Read {
        let shape = self.shape(s);
        let at: Vec<_> = (0..shape.len()).map(|d| (Some(d), 0)).collect();
        self.read(s, &shape, &at)
    }
    pub(super) fn slice(&self, s: Slot, start: &[i64], n: &[usize]) -> Read {
        let at: Vec<_> = (0..n.len()).map(|d| (Some(d), start[d])).collect();
        self.read(s, n, &at)
    }
    pub(super) fn broadcast(&self, s: Slot, shape: &[usize]) -> Read {
        let own = self.shape(s);
        let lead = shape.len() - own.len();
        let at: Vec<_> = (0..own.len())
            .map(|d| (if own[d] == shape[d + lead] { Some(d + lead) } else { None }, 0))
            .collect();
        self.read(s, shape, &at)
    }
    /// s with the box at..at+|u| replaced by u.
    pub(super) fn update(&self, s: Slot, u: Slot, at: &[i64]) -> Read {
        let (n, m) = (self.shape(s), self.shape(u));
        let part = |from: Slot, span: Vec<Span>, zero: bool| {
            let map =
                span.iter().enumerate().map(|(d, x)| Affine::of(if zero { 0 } else { x.lo }, d, 1)).collect();
            Part { from: Source::Value(from), span, map }
        };
        let span = |lo: i64, hi: i64| Span { lo, hi, step: 1 };
        let inside = (0..n.len()).map(|d| span(at[d], at[d] + m[d] as i64)).collect();
        let mut parts = vec![part(u, inside, true)];
        let mut rest = Span::whole(&n);
        for d in 0..n.len() {
            for (a, b) in [(rest[d].lo, at[d]), (at[d] + m[d] as i64, rest[d].hi)] {
                if a < b {
                    let mut q = rest.clone();
                    q[d] = span(a, b);
                    parts.push(part(s, q, false));
                }
            }
            rest[d] = span(at[d], at[d] + m[d] as i64);
        }
        Read { dtype: self.dtype, parts, fill: Scalar::zero(self.dtype) }
    }
    pub(super) fn local(
        &mut self,
        shape: &[usize],
        ways: &[usize],
        reads: Vec<Read>,
        dtype: DType,
        code: Code,
    ) -> Slot {
        let out = self.slot_of(dtype, shape, ways, &[]);
        let sentence =
            Sentence { extents: shape.to_vec(), rank: shape.len(), dtype, reads, body: Body::Map(code) };
        self.p.steps.push(Step::Local { out, sentence, layout: layouts(shape, ways) });
        out
    }
    pub(super) fn map(&mut self, fun: Fun, shape: &[usize], ways: &[usize], reads: Vec<Read>) -> Slot {
        let args: Vec<Arg> = (0..reads.len()).map(Arg::Read).collect();
        let d = self.dtype;
        self.local(shape, ways, reads, d, Code::one(fun, d, d, &args))
    }
    pub(super) fn un(&mut self, fun: Fun, a: Slot) -> Slot {
        let (shape, ways, r) = (self.shape(a), self.ways(a), self.id(a));
        self.map(fun, &shape, &ways, vec![r])
    }
    pub(super) fn bin(&mut self, fun: Fun, a: Slot, b: Slot) -> Slot {
        let (shape, ways) = (self.shape(a), self.ways(a));
        let reads = vec![self.id(a), self.broadcast(b, &shape)];
        self.map(fun, &shape, &ways, reads)
    }
    /// m·x + c.
    pub(super) fn lin(&mut self, a: Read, shape: &[usize], ways: &[usize], m: f64, c: f64) -> Slot {
        let d = self.dtype;
        let number =
            |x: f64| Arg::Const(if d.is_float() { Scalar::Float(x) } else { Scalar::Int(x as i128) });
        let mut code = Code::one(Fun::Mul, d, d, &[Arg::Read(0), number(m)]);
        if c != 0.0 {
            code.push(Fun::Add, d, d, &[Arg::Inst(0), number(c)]);
        }
        self.local(shape, ways, vec![a], d, code)
    }
    pub(super) fn scale(&mut self, a: Slot, m: f64, c: f64) -> Slot {
        let (shape, ways, r) = (self.shape(a), self.ways(a), self.id(a));
        self.lin(r, &shape, &ways, m, c)
    }
    /// A fold or product; `ways` for all loops. If folded loops are split, a partial result is made and then reduced.
    pub(super) fn fold(
        &mut self,
        extents: &[usize],
        rank: usize,
        ways: &[usize],
        reads: Vec<Read>,
        body: Body,
    ) -> Slot {
        let layout = layouts(extents, ways);
        let parts: Atoms = layout[rank..].iter().flat_map(|l| l.atoms.iter().copied()).collect();
        let combine = match &body {
            Body::Fold { combine, .. } => *combine,
            _ => Combine::Add,
        };
        let dtype = self.dtype;
        let out = self.slot_of(dtype, &extents[..rank], &ways[..rank], &parts);
        self.p.slots[out].layout.dims = layout[..rank].to_vec();
        if let Some(p) = &mut self.p.slots[out].layout.partial {
            p.0 = combine;
        }
        let sentence = Sentence { extents: extents.to_vec(), rank, dtype, reads, body };
        self.p.steps.push(Step::Local { out, sentence, layout });
        if parts.is_empty() {
            return out;
        }
        let whole = self.slot_of(dtype, &extents[..rank], &vec![1; rank], &[]);
        self.p.steps.push(Step::Reduce { src: out, out: whole, combine });
        whole
    }
    /// Over dimension d, which is split `ways`.
    pub(super) fn sum(&mut self, a: Slot, d: usize, ways: usize) -> Slot {
        self.fold_over(a, &[d], ways, Combine::Add)
    }
    pub(super) fn fold_over(&mut self, a: Slot, dims: &[usize], ways: usize, combine: Combine) -> Slot {
        let shape = self.shape(a);
        let kept: Vec<usize> = (0..shape.len()).filter(|d| !dims.contains(d)).collect();
        let order: Vec<usize> = kept.iter().chain(dims).copied().collect();
        let extents: Vec<usize> = order.iter().map(|d| shape[*d]).collect();
        let at: Vec<_> = (0..shape.len()).map(|d| (order.iter().position(|x| *x == d), 0)).collect();
        let mut split = vec![1; shape.len()];
        split[kept.len()] = ways;
        let r = self.read(a, &extents, &at);
        let d = self.dtype;
        let code = Code::one(Fun::Copy, d, d, &[Arg::Read(0)]);
        self.fold(&extents, kept.len(), &split, vec![r], Body::Fold { combine, code })
    }
    /// a[i,k]·b[k,j]; ta, tb: stored the other way round.
    pub(super) fn dot(&mut self, a: Slot, ta: bool, b: Slot, tb: bool, ways: [usize; 3]) -> Slot {
        let (sa, sb) = (self.shape(a), self.shape(b));
        let (m, k) = if ta { (sa[1], sa[0]) } else { (sa[0], sa[1]) };
        let n = if tb { sb[0] } else { sb[1] };
        let at = |l: [usize; 2]| l.map(|l| (Some(l), 0));
        let ext = [m, n, k];
        let reads = vec![
            self.read(a, &ext, &at(if ta { [2, 0] } else { [0, 2] })),
            self.read(b, &ext, &at(if tb { [1, 2] } else { [2, 1] })),
        ];
        let accumulate = self.dtype;
        self.fold(&ext, 2, &ways, reads, Body::Product { accumulate })
    }
    pub(super) fn done(mut self, outs: &[Slot]) -> SpmdProgram {
        self.p.outs = outs.to_vec();
        self.p
    }
}

pub(super) fn collective(kind: &str, n: usize) -> SpmdProgram {
    let mut m = Make::new(F);
    let o = match kind {
        "psum" | "psum_scatter" => {
            let x = m.input(&[8, n], &[8, 1]);
            m.sum(x, 0, 8)
        }
        "all_gather" => {
            let x = m.input(&[n], &[8]);
            let r = m.broadcast(x, &[8, n]);
            m.map(Fun::Copy, &[8, n], &[8, 1], vec![r])
        }
        "all_to_all" => {
            let x = m.input(&[8, 8, n / 8], &[8, 1, 1]);
            let shape = [8, 8, n / 8];
            let r = m.read(x, &shape, &[(Some(1), 0), (Some(0), 0), (Some(2), 0)]);
            m.map(Fun::Copy, &shape, &[8, 1, 1], vec![r])
        }
        _ => {
            let x = m.input(&[8, n], &[8, 1]);
            let part = |lo: i64, hi: i64, from: i64| Part {
                from: Source::Value(x),
                span: vec![Span { lo, hi, step: 1 }, Span::all(n)],
                map: vec![Affine::of(from, 0, 1), Affine::of(0, 1, 1)],
            };
            let r = Read { dtype: F, parts: vec![part(1, 8, 0), part(0, 1, 7)], fill: Scalar::zero(F) };
            m.map(Fun::Copy, &[8, n], &[8, 1], vec![r])
        }
    };
    m.done(&[o])
}
pub(super) fn elementwise(n: usize) -> SpmdProgram {
    let mut m = Make::new(F);
    let x = m.input(&[n, n], &[8, 1]);
    let s = m.un(Fun::Sin, x);
    let o = m.scale(s, 2.0, 1.0);
    m.done(&[o])
}
pub(super) fn reduce(n: usize, dims: &[usize]) -> SpmdProgram {
    let mut m = Make::new(F);
    let x = m.input(&[n, n], &[8, 1]);
    let o = m.fold_over(x, dims, if dims.contains(&0) { 8 } else { 1 }, Combine::Add);
    m.done(&[o])
}
pub(super) fn matmul(n: usize, kind: &str) -> SpmdProgram {
    let mut m = Make::new(F);
    let ways = match kind {
        "none_contracted" => [4, 2, 1],
        "both_contracted" => [1, 1, 4],
        "same_axis" => [4, 1, 1],
        _ => [1, 1, 1],
    };
    let (a, b) = (m.input(&[n, n], &[ways[0], ways[2]]), m.input(&[n, n], &[ways[2], ways[1]]));
    let o = m.dot(a, false, b, false, ways);
    m.done(&[o])
}
pub(super) fn seed_layer() -> SpmdProgram {
    let mut m = Make::new(F);
    let (x, w, b) = (m.input(&[32], &[8]), m.input(&[32, 4], &[1, 1]), m.input(&[4], &[1]));
    let ext = [4, 32];
    let reads = vec![m.read(x, &ext, &[(Some(1), 0)]), m.read(w, &ext, &[(Some(1), 0), (Some(0), 0)])];
    let h = m.fold(&ext, 1, &[1, 8], reads, Body::Product { accumulate: F });
    let t = m.bin(Fun::Add, h, b);
    let o = m.un(Fun::Logistic, t);
    m.done(&[o])
}
pub(super) fn logistic_step(lr: f64) -> SpmdProgram {
    let (n, d) = (1024, 32);
    let mut m = Make::new(F);
    let (w, b) = (m.input(&[d, 1], &[1, 1]), m.input(&[1], &[1]));
    let (x, y) = (m.input(&[n, d], &[8, 1]), m.input(&[n, 1], &[8, 1]));
    let h = m.dot(x, false, w, false, [8, 1, 1]);
    let t = m.bin(Fun::Add, h, b);
    let s = m.un(Fun::Logistic, t);
    let e = m.bin(Fun::Sub, s, y);
    let e = m.scale(e, 2.0 / n as f64, 0.0);
    let om = m.scale(s, -1.0, 1.0);
    let ds = m.bin(Fun::Mul, s, om);
    let g = m.bin(Fun::Mul, e, ds);
    let dw = m.dot(x, true, g, false, [1, 1, 8]);
    let db = m.sum(g, 0, 8);
    let (sw, sb) = (m.scale(dw, lr, 0.0), m.scale(db, lr, 0.0));
    let (ow, ob) = (m.bin(Fun::Sub, w, sw), m.bin(Fun::Sub, b, sb));
    m.done(&[ow, ob])
}
pub(super) fn mlp(kind: &str, n: usize, d: usize, h: usize, lr: f64) -> SpmdProgram {
    let mut m = Make::new(F);
    let (bd, hd) = match kind {
        "tp" => (1, 8),
        "dp_tp" => (4, 2),
        _ => (8, 1),
    };
    let (w1, w2) = (m.input(&[d, h], &[1, hd]), m.input(&[h, d], &[hd, 1]));
    let (x, y) = (m.input(&[n, d], &[bd, 1]), m.input(&[n, d], &[bd, 1]));
    let u = m.dot(x, false, w1, false, [bd, hd, 1]);
    let zero = m.p.slots[u].clone();
    let a = {
        let (shape, ways, r) = (zero.shape.to_vec(), m.ways(u), m.id(u));
        let code = Code::one(Fun::Max, F, F, &[Arg::Read(0), Arg::Const(Scalar::Float(0.0))]);
        m.local(&shape, &ways, vec![r], F, code)
    };
    let o = m.dot(a, false, w2, false, [bd, 1, hd]);
    let e = m.bin(Fun::Sub, o, y);
    let e = m.scale(e, 2.0 / (n * d) as f64, 0.0);
    let da = m.dot(e, false, w2, true, [bd, hd, 1]);
    let du = {
        let (shape, ways) = (m.shape(u), m.ways(u));
        let reads = vec![m.id(u), m.id(da)];
        let zero = Arg::Const(Scalar::Float(0.0));
        let mut code = Code::one(Fun::Gt, F, DType::Bool, &[Arg::Read(0), zero]);
        code.push(Fun::Select, F, F, &[Arg::Inst(0), Arg::Read(1), zero]);
        m.local(&shape, &ways, reads, F, code)
    };
    let g2 = m.dot(a, true, e, false, [hd, 1, bd]);
    let g1 = m.dot(x, true, du, false, [1, hd, bd]);
    let (s1, s2) = (m.scale(g1, lr, 0.0), m.scale(g2, lr, 0.0));
    let (o1, o2) = (m.bin(Fun::Sub, w1, s1), m.bin(Fun::Sub, w2, s2));
    m.done(&[o1, o2])
}
/// `length` steps of a body with one carry.
pub(super) fn in_loop(
    shape: &[usize],
    ways: &[usize],
    length: usize,
    body: impl Fn(&mut Make, Slot) -> Slot,
) -> SpmdProgram {
    let mut b = Make::new(F);
    let t = b.slot_of(DType::I32, &[], &[], &[]);
    b.p.ins.push(t);
    let x = b.input(shape, ways);
    let o = body(&mut b, x);
    let body = Box::new(b.done(&[o]));
    let mut m = Make::new(F);
    let x = m.input(shape, ways);
    let out = m.slot(shape, ways);
    m.p.steps.push(Step::Loop {
        body,
        start: 0,
        length,
        reverse: false,
        fixed: vec![],
        carry: vec![x],
        xs: vec![],
        out: vec![out],
        ys: vec![],
    });
    m.done(&[out])
}
pub(super) fn heat1d(n: usize, steps: usize) -> SpmdProgram {
    in_loop(&[n], &[8], steps, |m, x| {
        let k = [n - 2];
        let term = |m: &mut Make, c: f64, at: i64| {
            let r = m.slice(x, &[at], &k);
            m.lin(r, &k, &[8], c, 0.0)
        };
        let (c, l, r) = (term(m, 0.5, 1), term(m, 0.25, 0), term(m, 0.25, 2));
        let s = m.bin(Fun::Add, c, l);
        let u = m.bin(Fun::Add, s, r);
        let r = m.update(x, u, &[1]);
        m.map(Fun::Copy, &[n], &[8], vec![r])
    })
}
pub(super) fn heat2d(n: usize, steps: usize) -> SpmdProgram {
    in_loop(&[n, n], &[4, 2], steps, |m, x| {
        let k = [n - 2, n - 2];
        let w = [4, 2];
        let at = |m: &Make, i: i64, j: i64| m.slice(x, &[i, j], &k);
        let reads = vec![at(m, 0, 1), at(m, 2, 1)];
        let mut s = m.map(Fun::Add, &k, &w, reads);
        for (i, j) in [(1, 0), (1, 2)] {
            let reads = vec![m.id(s), at(m, i, j)];
            s = m.map(Fun::Add, &k, &w, reads);
        }
        let c = at(m, 1, 1);
        let c4 = m.lin(c.clone(), &k, &w, 4.0, 0.0);
        let s = m.bin(Fun::Sub, s, c4);
        let s = m.scale(s, 0.1, 0.0);
        let reads = vec![c, m.id(s)];
        let s = m.map(Fun::Add, &k, &w, reads);
        let r = m.update(x, s, &[1, 1]);
        m.map(Fun::Copy, &[n, n], &w, vec![r])
    })
}
/// A long chain of sums, broadcasts, products and maps: about n steps.
pub(super) fn long(n: usize) -> SpmdProgram {
    let mut m = Make::new(F);
    let (x, w) = (m.input(&[64, 64], &[8, 1]), m.input(&[64, 64], &[1, 1]));
    let mut h = x;
    while m.p.steps.len() < n {
        let s = m.sum(h, 1, 1);
        let mean = m.scale(s, 1.0 / 64.0, 0.0);
        let reads = vec![m.id(h), m.read(mean, &[64, 64], &[(Some(0), 0)])];
        let c = m.map(Fun::Sub, &[64, 64], &[8, 1], reads);
        let c2 = m.bin(Fun::Mul, c, c);
        let d = m.dot(c2, false, w, false, [8, 1, 1]);
        let r = m.un(Fun::Abs, d);
        let t = m.bin(Fun::Add, r, h);
        h = m.un(Fun::Logistic, t);
    }
    m.done(&[h])
}
/// Elements as f64, whatever the type.
pub(super) fn numbers(s: &crate::runtime::Slab) -> Vec<f64> {
    crate::types::with_dtype!(s.dtype(), T => s.elements::<T>().iter().map(|x| crate::types::Element::to_f64(*x)).collect())
}
/// A slab of this kind with some numbers in it.
pub(super) fn noise(dtype: DType, shape: &Shape, copies: usize, seed: usize) -> crate::runtime::Slab {
    use crate::runtime::{Buffer, Slab};
    let n = shape.elements() * copies;
    let at = |i: usize| (i.wrapping_mul(2654435761).wrapping_add(seed * 97) >> 7) % 1000;
    let mut b = Buffer::asked(n * dtype.size()).unwrap();
    macro_rules! put {
        ($t:ty, $f:expr) => {{
            let p = b.as_mut_ptr().cast::<$t>();
            for i in 0..n {
                // SAFETY: the buffer has n elements of this type
                unsafe { p.add(i).write($f(at(i))) }
            }
        }};
    }
    match dtype {
        DType::F32 => put!(f32, |x: usize| x as f32 / 500.0 - 1.0),
        DType::F64 => put!(f64, |x: usize| x as f64 / 500.0 - 1.0),
        DType::F16 => put!(half::f16, |x: usize| half::f16::from_f64(x as f64 / 500.0 - 1.0)),
        DType::BF16 => put!(half::bf16, |x: usize| half::bf16::from_f64(x as f64 / 500.0 - 1.0)),
        DType::Bool => put!(bool, |x: usize| x.is_multiple_of(3)),
        DType::I8 | DType::U8 => put!(u8, |x: usize| x as u8),
        DType::I16 | DType::U16 => put!(u16, |x: usize| (x as u16).wrapping_mul(77)),
        DType::I32 | DType::U32 => put!(u32, |x: usize| (x as u32).wrapping_sub(500)),
        _ => put!(u64, |x: usize| (x as u64).wrapping_sub(500)),
    }
    Slab::new(dtype, shape.clone(), copies, std::sync::Arc::new(b))
}
