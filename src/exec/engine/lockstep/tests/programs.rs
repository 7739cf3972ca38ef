//! Sample SPMD programs, as the partitioner would produce them, for tests and timings.

use crate::core::{DType, Precision, Scalar, Shape, SubAxes, SubAxis};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp, Source,
    StridedRange,
};
use crate::partition::{DimLayout, Layout, Slot, SpmdProgram, Step, StoredValue};
use smallvec::SmallVec;

pub(crate) const F32_DTYPE: DType = DType::F32;

/// A builder of SPMD programs for eight devices whose values have one element type.
pub(crate) struct SampleBuilder {
    pub(crate) p: SpmdProgram,
    pub(crate) dtype: DType,
}

/// Returns the sub-axes of a dimension with `n` shards.
/// `right` is the number of shards of all dimensions to its right.
fn sub_axes(n: usize, right: usize) -> SubAxes {
    if n > 1 { SmallVec::from_slice(&[SubAxis { stride: right, size: n }]) } else { SmallVec::new() }
}
pub(crate) fn layouts(shape: &[usize], num_shards: &[usize]) -> Vec<DimLayout> {
    let mut right = 1;
    let mut all: Vec<DimLayout> = shape
        .iter()
        .zip(num_shards)
        .rev()
        .map(|(n, w)| {
            let l = DimLayout::new(*n, sub_axes(*w, right));
            right *= w;
            l
        })
        .collect();
    all.reverse();
    all
}

impl SampleBuilder {
    pub(crate) fn new(dtype: DType) -> SampleBuilder {
        SampleBuilder { p: SpmdProgram { devices: 8, ..SpmdProgram::default() }, dtype }
    }
    pub(crate) fn slot_of(
        &mut self,
        dtype: DType,
        shape: &[usize],
        num_shards: &[usize],
        partials: &[SubAxis],
    ) -> Slot {
        let partial = (!partials.is_empty()).then(|| (Reducer::Add, partials.iter().copied().collect()));
        let layout = Layout { dims: layouts(shape, num_shards), partial };
        self.p.slots.push(StoredValue { dtype, shape: shape.into(), layout });
        self.p.slots.len() - 1
    }
    pub(crate) fn slot(&mut self, shape: &[usize], num_shards: &[usize]) -> Slot {
        self.slot_of(self.dtype, shape, num_shards, &[])
    }
    pub(crate) fn input(&mut self, shape: &[usize], num_shards: &[usize]) -> Slot {
        let s = self.slot(shape, num_shards);
        self.p.ins.push(s);
        s
    }
    pub(crate) fn shape(&self, s: Slot) -> Vec<usize> {
        self.p.slots[s].shape.to_vec()
    }
    pub(crate) fn num_shards(&self, s: Slot) -> Vec<usize> {
        self.p.slots[s].layout.dims.iter().map(DimLayout::num_shards).collect()
    }
    /// Returns an access over loops of these sizes.
    /// Dimension `d` is accessed at the loop `at[d].0`, if it has one, plus the offset `at[d].1`.
    pub(crate) fn read(&self, s: Slot, extents: &[usize], at: &[(Option<usize>, i64)]) -> Access {
        let map = at
            .iter()
            .map(|(l, o)| l.map_or(AffineExpr::constant(*o), |l| AffineExpr::linear(*o, l, 1)))
            .collect();
        let span = StridedRange::full_box(extents);
        let dtype = self.p.slots[s].dtype;
        Access {
            dtype,
            pieces: vec![AccessPiece { source: Source::Value(s), ranges: span, map }],
            fill: Scalar::zero(dtype),
        }
    }
    pub(crate) fn read_all(&self, s: Slot) -> Access {
        let shape = self.shape(s);
        let at: Vec<_> = (0..shape.len()).map(|d| (Some(d), 0)).collect();
        self.read(s, &shape, &at)
    }
    pub(crate) fn slice(&self, s: Slot, start: &[i64], n: &[usize]) -> Access {
        let at: Vec<_> = (0..n.len()).map(|d| (Some(d), start[d])).collect();
        self.read(s, n, &at)
    }
    pub(crate) fn broadcast(&self, s: Slot, shape: &[usize]) -> Access {
        let own = self.shape(s);
        let lead = shape.len() - own.len();
        let at: Vec<_> = (0..own.len())
            .map(|d| (if own[d] == shape[d + lead] { Some(d + lead) } else { None }, 0))
            .collect();
        self.read(s, shape, &at)
    }
    /// Returns an access to `s` in which the box of the size of `u` at `at` is replaced by `u`.
    pub(crate) fn update(&self, s: Slot, u: Slot, at: &[i64]) -> Access {
        let (n, m) = (self.shape(s), self.shape(u));
        let part = |from: Slot, span: Vec<StridedRange>, zero: bool| {
            let map = span
                .iter()
                .enumerate()
                .map(|(d, x)| AffineExpr::linear(if zero { 0 } else { x.lo }, d, 1))
                .collect();
            AccessPiece { source: Source::Value(from), ranges: span, map }
        };
        let span = |lo: i64, hi: i64| StridedRange { lo, hi, step: 1 };
        let inside = (0..n.len()).map(|d| span(at[d], at[d] + m[d] as i64)).collect();
        let mut parts = vec![part(u, inside, true)];
        let mut rest = StridedRange::full_box(&n);
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
        Access { dtype: self.dtype, pieces: parts, fill: Scalar::zero(self.dtype) }
    }
    pub(crate) fn local(
        &mut self,
        shape: &[usize],
        num_shards: &[usize],
        reads: Vec<Access>,
        dtype: DType,
        code: ScalarCode,
    ) -> Slot {
        let out = self.slot_of(dtype, shape, num_shards, &[]);
        let loop_nest = LoopNest {
            extents: shape.to_vec(),
            rank: shape.len(),
            dtype,
            accesses: reads,
            compute: Compute::Map(code),
        };
        self.p.steps.push(Step::Local { out, nest: loop_nest, layout: layouts(shape, num_shards) });
        out
    }
    pub(crate) fn map(
        &mut self,
        fun: ScalarOp,
        shape: &[usize],
        num_shards: &[usize],
        reads: Vec<Access>,
    ) -> Slot {
        let args: Vec<ScalarArg> = (0..reads.len()).map(ScalarArg::Access).collect();
        let d = self.dtype;
        self.local(shape, num_shards, reads, d, ScalarCode::single(fun, d, d, &args))
    }
    pub(crate) fn unary(&mut self, fun: ScalarOp, a: Slot) -> Slot {
        let (shape, num_shards, r) = (self.shape(a), self.num_shards(a), self.read_all(a));
        self.map(fun, &shape, &num_shards, vec![r])
    }
    pub(crate) fn binary(&mut self, fun: ScalarOp, a: Slot, b: Slot) -> Slot {
        let (shape, num_shards) = (self.shape(a), self.num_shards(a));
        let reads = vec![self.read_all(a), self.broadcast(b, &shape)];
        self.map(fun, &shape, &num_shards, reads)
    }
    /// Adds the map `m·x + c`.
    pub(crate) fn affine(
        &mut self,
        a: Access,
        shape: &[usize],
        num_shards: &[usize],
        m: f64,
        c: f64,
    ) -> Slot {
        let d = self.dtype;
        let number =
            |x: f64| ScalarArg::Const(if d.is_float() { Scalar::Float(x) } else { Scalar::Int(x as i128) });
        let mut code = ScalarCode::single(ScalarOp::Mul, d, d, &[ScalarArg::Access(0), number(m)]);
        if c != 0.0 {
            code.push(ScalarOp::Add, d, d, &[ScalarArg::Inst(0), number(c)]);
        }
        self.local(shape, num_shards, vec![a], d, code)
    }
    pub(crate) fn scale(&mut self, a: Slot, m: f64, c: f64) -> Slot {
        let (shape, num_shards, r) = (self.shape(a), self.num_shards(a), self.read_all(a));
        self.affine(r, &shape, &num_shards, m, c)
    }
    /// Adds a reduction or contraction; `ways` has the number of shards of each loop.
    /// If reduced loops are sharded, it adds a partial result and its reduction.
    pub(crate) fn fold(
        &mut self,
        extents: &[usize],
        rank: usize,
        num_shards: &[usize],
        reads: Vec<Access>,
        body: Compute,
    ) -> Slot {
        let layout = layouts(extents, num_shards);
        let partials: SubAxes = layout[rank..].iter().flat_map(|l| l.sub_axes.iter().copied()).collect();
        let combine = match &body {
            Compute::Reduce { reducer: combine, .. } => *combine,
            _ => Reducer::Add,
        };
        let dtype = self.dtype;
        let out = self.slot_of(dtype, &extents[..rank], &num_shards[..rank], &partials);
        self.p.slots[out].layout.dims = layout[..rank].to_vec();
        if let Some(p) = &mut self.p.slots[out].layout.partial {
            p.0 = combine;
        }
        let loop_nest = LoopNest { extents: extents.to_vec(), rank, dtype, accesses: reads, compute: body };
        self.p.steps.push(Step::Local { out, nest: loop_nest, layout });
        if partials.is_empty() {
            return out;
        }
        let full = self.slot_of(dtype, &extents[..rank], &vec![1; rank], &[]);
        self.p.steps.push(Step::Reduce { src: out, out: full, combine });
        full
    }
    /// Adds the sum over dimension `d`, which has `ways` shards.
    pub(crate) fn sum(&mut self, a: Slot, d: usize, num_shards: usize) -> Slot {
        self.fold_over(a, &[d], num_shards, Reducer::Add)
    }
    pub(crate) fn fold_over(&mut self, a: Slot, dims: &[usize], num_shards: usize, combine: Reducer) -> Slot {
        let shape = self.shape(a);
        let kept: Vec<usize> = (0..shape.len()).filter(|d| !dims.contains(d)).collect();
        let order: Vec<usize> = kept.iter().chain(dims).copied().collect();
        let extents: Vec<usize> = order.iter().map(|d| shape[*d]).collect();
        let at: Vec<_> = (0..shape.len()).map(|d| (order.iter().position(|x| *x == d), 0)).collect();
        let mut split = vec![1; shape.len()];
        split[kept.len()] = num_shards;
        let r = self.read(a, &extents, &at);
        let d = self.dtype;
        let code = ScalarCode::single(ScalarOp::Copy, d, d, &[ScalarArg::Access(0)]);
        self.fold(&extents, kept.len(), &split, vec![r], Compute::Reduce { reducer: combine, code })
    }
    /// Adds the product `a[i,k]·b[k,j]`; `ta` and `tb` say that an operand is stored transposed.
    pub(crate) fn dot(&mut self, a: Slot, ta: bool, b: Slot, tb: bool, num_shards: [usize; 3]) -> Slot {
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
        self.fold(
            &ext,
            2,
            &num_shards,
            reads,
            Compute::Contract { accum_dtype: accumulate, precision: Precision::Highest },
        )
    }
    pub(crate) fn finish(mut self, outs: &[Slot]) -> SpmdProgram {
        self.p.outs = outs.to_vec();
        self.p
    }
}

pub(crate) fn collective(kind: &str, n: usize) -> SpmdProgram {
    let mut m = SampleBuilder::new(F32_DTYPE);
    let o = match kind {
        "psum" | "psum_scatter" => {
            let x = m.input(&[8, n], &[8, 1]);
            m.sum(x, 0, 8)
        }
        "all_gather" => {
            let x = m.input(&[n], &[8]);
            let r = m.broadcast(x, &[8, n]);
            m.map(ScalarOp::Copy, &[8, n], &[8, 1], vec![r])
        }
        "all_to_all" => {
            let x = m.input(&[8, 8, n / 8], &[8, 1, 1]);
            let shape = [8, 8, n / 8];
            let r = m.read(x, &shape, &[(Some(1), 0), (Some(0), 0), (Some(2), 0)]);
            m.map(ScalarOp::Copy, &shape, &[8, 1, 1], vec![r])
        }
        _ => {
            let x = m.input(&[8, n], &[8, 1]);
            let part = |lo: i64, hi: i64, from: i64| AccessPiece {
                source: Source::Value(x),
                ranges: vec![StridedRange { lo, hi, step: 1 }, StridedRange::full(n)],
                map: vec![AffineExpr::linear(from, 0, 1), AffineExpr::linear(0, 1, 1)],
            };
            let r = Access {
                dtype: F32_DTYPE,
                pieces: vec![part(1, 8, 0), part(0, 1, 7)],
                fill: Scalar::zero(F32_DTYPE),
            };
            m.map(ScalarOp::Copy, &[8, n], &[8, 1], vec![r])
        }
    };
    m.finish(&[o])
}
pub(crate) fn elementwise(n: usize) -> SpmdProgram {
    let mut m = SampleBuilder::new(F32_DTYPE);
    let x = m.input(&[n, n], &[8, 1]);
    let s = m.unary(ScalarOp::Sin, x);
    let o = m.scale(s, 2.0, 1.0);
    m.finish(&[o])
}
pub(crate) fn reduce(n: usize, dims: &[usize]) -> SpmdProgram {
    let mut m = SampleBuilder::new(F32_DTYPE);
    let x = m.input(&[n, n], &[8, 1]);
    let o = m.fold_over(x, dims, if dims.contains(&0) { 8 } else { 1 }, Reducer::Add);
    m.finish(&[o])
}
pub(crate) fn matmul(n: usize, kind: &str) -> SpmdProgram {
    let mut m = SampleBuilder::new(F32_DTYPE);
    let num_shards = match kind {
        "none_contracted" => [4, 2, 1],
        "both_contracted" => [1, 1, 4],
        "same_axis" => [4, 1, 1],
        _ => [1, 1, 1],
    };
    let (a, b) = (
        m.input(&[n, n], &[num_shards[0], num_shards[2]]),
        m.input(&[n, n], &[num_shards[2], num_shards[1]]),
    );
    let o = m.dot(a, false, b, false, num_shards);
    m.finish(&[o])
}
pub(crate) fn seed_layer() -> SpmdProgram {
    let mut m = SampleBuilder::new(F32_DTYPE);
    let (x, w, b) = (m.input(&[32], &[8]), m.input(&[32, 4], &[1, 1]), m.input(&[4], &[1]));
    let ext = [4, 32];
    let reads = vec![m.read(x, &ext, &[(Some(1), 0)]), m.read(w, &ext, &[(Some(1), 0), (Some(0), 0)])];
    let h = m.fold(
        &ext,
        1,
        &[1, 8],
        reads,
        Compute::Contract { accum_dtype: F32_DTYPE, precision: Precision::Highest },
    );
    let t = m.binary(ScalarOp::Add, h, b);
    let o = m.unary(ScalarOp::Logistic, t);
    m.finish(&[o])
}
pub(crate) fn logistic_step(lr: f64) -> SpmdProgram {
    let (n, d) = (1024, 32);
    let mut m = SampleBuilder::new(F32_DTYPE);
    let (w, b) = (m.input(&[d, 1], &[1, 1]), m.input(&[1], &[1]));
    let (x, y) = (m.input(&[n, d], &[8, 1]), m.input(&[n, 1], &[8, 1]));
    let h = m.dot(x, false, w, false, [8, 1, 1]);
    let t = m.binary(ScalarOp::Add, h, b);
    let s = m.unary(ScalarOp::Logistic, t);
    let e = m.binary(ScalarOp::Sub, s, y);
    let e = m.scale(e, 2.0 / n as f64, 0.0);
    let om = m.scale(s, -1.0, 1.0);
    let ds = m.binary(ScalarOp::Mul, s, om);
    let g = m.binary(ScalarOp::Mul, e, ds);
    let dw = m.dot(x, true, g, false, [1, 1, 8]);
    let db = m.sum(g, 0, 8);
    let (sw, sb) = (m.scale(dw, lr, 0.0), m.scale(db, lr, 0.0));
    let (ow, ob) = (m.binary(ScalarOp::Sub, w, sw), m.binary(ScalarOp::Sub, b, sb));
    m.finish(&[ow, ob])
}
pub(crate) fn mlp(kind: &str, n: usize, d: usize, h: usize, lr: f64) -> SpmdProgram {
    let mut m = SampleBuilder::new(F32_DTYPE);
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
        let (shape, num_shards, r) = (zero.shape.to_vec(), m.num_shards(u), m.read_all(u));
        let code = ScalarCode::single(
            ScalarOp::Max,
            F32_DTYPE,
            F32_DTYPE,
            &[ScalarArg::Access(0), ScalarArg::Const(Scalar::Float(0.0))],
        );
        m.local(&shape, &num_shards, vec![r], F32_DTYPE, code)
    };
    let o = m.dot(a, false, w2, false, [bd, 1, hd]);
    let e = m.binary(ScalarOp::Sub, o, y);
    let e = m.scale(e, 2.0 / (n * d) as f64, 0.0);
    let da = m.dot(e, false, w2, true, [bd, hd, 1]);
    let du = {
        let (shape, num_shards) = (m.shape(u), m.num_shards(u));
        let reads = vec![m.read_all(u), m.read_all(da)];
        let zero = ScalarArg::Const(Scalar::Float(0.0));
        let mut code =
            ScalarCode::single(ScalarOp::Gt, F32_DTYPE, DType::Bool, &[ScalarArg::Access(0), zero]);
        code.push(ScalarOp::Select, F32_DTYPE, F32_DTYPE, &[ScalarArg::Inst(0), ScalarArg::Access(1), zero]);
        m.local(&shape, &num_shards, reads, F32_DTYPE, code)
    };
    let g2 = m.dot(a, true, e, false, [hd, 1, bd]);
    let g1 = m.dot(x, true, du, false, [1, hd, bd]);
    let (s1, s2) = (m.scale(g1, lr, 0.0), m.scale(g2, lr, 0.0));
    let (o1, o2) = (m.binary(ScalarOp::Sub, w1, s1), m.binary(ScalarOp::Sub, w2, s2));
    m.finish(&[o1, o2])
}
/// Returns a program with a loop: `length` iterations of a body with one carry.
pub(crate) fn in_loop(
    shape: &[usize],
    num_shards: &[usize],
    length: usize,
    body: impl Fn(&mut SampleBuilder, Slot) -> Slot,
) -> SpmdProgram {
    let mut b = SampleBuilder::new(F32_DTYPE);
    let t = b.slot_of(DType::I32, &[], &[], &[]);
    b.p.ins.push(t);
    let x = b.input(shape, num_shards);
    let o = body(&mut b, x);
    let body = Box::new(b.finish(&[o]));
    let mut m = SampleBuilder::new(F32_DTYPE);
    let x = m.input(shape, num_shards);
    let out = m.slot(shape, num_shards);
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
    m.finish(&[out])
}
pub(crate) fn heat1d(n: usize, steps: usize) -> SpmdProgram {
    in_loop(&[n], &[8], steps, |m, x| {
        let k = [n - 2];
        let term = |m: &mut SampleBuilder, c: f64, at: i64| {
            let r = m.slice(x, &[at], &k);
            m.affine(r, &k, &[8], c, 0.0)
        };
        let (c, l, r) = (term(m, 0.5, 1), term(m, 0.25, 0), term(m, 0.25, 2));
        let s = m.binary(ScalarOp::Add, c, l);
        let u = m.binary(ScalarOp::Add, s, r);
        let r = m.update(x, u, &[1]);
        m.map(ScalarOp::Copy, &[n], &[8], vec![r])
    })
}
pub(crate) fn heat2d(n: usize, steps: usize) -> SpmdProgram {
    in_loop(&[n, n], &[4, 2], steps, |m, x| {
        let k = [n - 2, n - 2];
        let w = [4, 2];
        let at = |m: &SampleBuilder, i: i64, j: i64| m.slice(x, &[i, j], &k);
        let reads = vec![at(m, 0, 1), at(m, 2, 1)];
        let mut s = m.map(ScalarOp::Add, &k, &w, reads);
        for (i, j) in [(1, 0), (1, 2)] {
            let reads = vec![m.read_all(s), at(m, i, j)];
            s = m.map(ScalarOp::Add, &k, &w, reads);
        }
        let c = at(m, 1, 1);
        let c4 = m.affine(c.clone(), &k, &w, 4.0, 0.0);
        let s = m.binary(ScalarOp::Sub, s, c4);
        let s = m.scale(s, 0.1, 0.0);
        let reads = vec![c, m.read_all(s)];
        let s = m.map(ScalarOp::Add, &k, &w, reads);
        let r = m.update(x, s, &[1, 1]);
        m.map(ScalarOp::Copy, &[n, n], &w, vec![r])
    })
}
/// Returns a chain of about `n` steps: sums, broadcasts, products and elementwise maps.
pub(crate) fn long_chain(n: usize) -> SpmdProgram {
    let mut m = SampleBuilder::new(F32_DTYPE);
    let (x, w) = (m.input(&[64, 64], &[8, 1]), m.input(&[64, 64], &[1, 1]));
    let mut h = x;
    while m.p.steps.len() < n {
        let s = m.sum(h, 1, 1);
        let mean = m.scale(s, 1.0 / 64.0, 0.0);
        let reads = vec![m.read_all(h), m.read(mean, &[64, 64], &[(Some(0), 0)])];
        let c = m.map(ScalarOp::Sub, &[64, 64], &[8, 1], reads);
        let c2 = m.binary(ScalarOp::Mul, c, c);
        let d = m.dot(c2, false, w, false, [8, 1, 1]);
        let r = m.unary(ScalarOp::Abs, d);
        let t = m.binary(ScalarOp::Add, r, h);
        h = m.unary(ScalarOp::Logistic, t);
    }
    m.finish(&[h])
}
/// Returns the elements as float64, whatever their type.
pub(crate) fn to_f64s(s: &crate::exec::runtime::ArrayData) -> Vec<f64> {
    crate::core::types::with_dtype!(s.dtype(), T => s.elements::<T>().iter().map(|x| crate::core::types::Element::to_f64(*x)).collect())
}
/// Returns an array of pseudo-random elements.
pub(crate) fn sample_data(
    dtype: DType,
    shape: &Shape,
    copies: usize,
    seed: usize,
) -> crate::exec::runtime::ArrayData {
    use crate::exec::runtime::{ArrayData, Buffer};
    let n = shape.num_elements() * copies;
    let at = |i: usize| (i.wrapping_mul(2654435761).wrapping_add(seed * 97) >> 7) % 1000;
    let mut b = Buffer::allocate(n * dtype.size()).unwrap();
    macro_rules! put {
        ($t:ty, $f:expr) => {{
            let p = b.as_mut_ptr().cast::<$t>();
            for i in 0..n {
                // SAFETY: the buffer has `n` elements of type `$t`
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
    ArrayData::new(dtype, shape.clone(), copies, std::sync::Arc::new(b))
}
