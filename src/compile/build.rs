//! From a per-device program to a flow.

use super::flow::{
    BranchItem, Carry, Flow, Fold, Item, LoopItem, Map, Operand, PackPart, Piece, RankBox, Strides, Uses,
    Value, WhileItem,
};
use super::index::{Ix, MAX, NONE, fits};
use crate::diagnostic::Result;
use crate::mesh::Mesh;
use crate::partition::{DimLayout, Slot, SpmdProgram, Step};
use crate::program::sentence::{Arg, Body, Code, Combine, Fun, Inst, Read, Sentence, Source, Span};
use crate::types::{DType, Scalar, Shape};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

/// Builds a flow.
struct Building<'p, 's> {
    flow: Flow<'p>,
    strides: &'s Strides<'s>,
    mesh: Option<&'p Mesh>,
    /// Readers among the program's steps.
    readers: Vec<u32>,
    /// Which item makes a value.
    maker: Vec<u32>,
    /// The same value in a wider type, for those that were narrowed at the end.
    wide: Vec<(Slot, Slot)>,
}

/// The items of a program.
pub(crate) fn build<'p>(p: &'p SpmdProgram, strides: &Strides<'_>) -> Result<Flow<'p>> {
    let mut b = Building {
        flow: Flow { values: Vec::with_capacity(p.slots.len()), ..Flow::default() },
        strides,
        mesh: p.mesh.as_ref(),
        readers: vec![0; p.slots.len()],
        maker: vec![u32::MAX; p.slots.len()],
        wide: Vec::new(),
    };
    b.slots(p)?;
    for s in &p.steps {
        b.count(s, 0);
    }
    for o in &p.outs {
        b.readers[*o] += 1;
    }
    b.flow.ins = p.ins.clone();
    b.flow.outs = p.outs.clone();
    for s in &p.steps {
        b.step(s, 0)?;
    }
    b.finish();
    Ok(b.flow)
}

impl<'p> Building<'p, '_> {
    fn slots(&mut self, p: &'p SpmdProgram) -> Result<()> {
        for s in &p.slots {
            let parts = match &s.layout.partial {
                Some((_, atoms)) => DimLayout { atoms: atoms.clone(), block: 1, origin: 0 },
                None => DimLayout { atoms: SmallVec::new(), block: 1, origin: 0 },
            };
            let k = self.value(s.dtype.storage(), s.shape.clone(), parts)?;
            self.flow.values[k].layout = Some(&s.layout);
        }
        Ok(())
    }
    fn value(&mut self, dtype: DType, shape: Shape, parts: DimLayout) -> Result<Slot> {
        let copies = parts.ways();
        let shape =
            if copies > 1 { std::iter::once(copies).chain(shape.iter().copied()).collect() } else { shape };
        fits(shape.rank())?;
        let k = self.flow.values.len();
        let strides = (self.strides)(k, &shape);
        self.flow.values.push(Value { dtype, shape, copies, parts, strides, alias: None, layout: None });
        if self.readers.len() <= k {
            self.readers.resize(k + 1, 0);
            self.maker.resize(k + 1, u32::MAX);
        }
        Ok(k)
    }
    fn push(&mut self, item: Item<'p>) {
        for r in item.results() {
            self.maker[r] = self.flow.items.len() as u32;
        }
        self.flow.items.push(item);
    }
    /// Readers, to know what may be fused. `at`: the first slot of the program that the step belongs to.
    fn count(&mut self, step: &Step, at: Slot) {
        let mut one = |s: Slot| self.readers[at + s] += 1;
        match step {
            Step::Fetch { .. } => {}
            Step::Local { sentence, .. } => {
                let mut seen: SmallVec<[Slot; 4]> = SmallVec::new();
                for p in sentence.reads.iter().flat_map(|r| &r.parts) {
                    if let Source::Value(s) = p.from
                        && !seen.contains(&s)
                    {
                        seen.push(s);
                        one(s);
                    }
                }
            }
            Step::Reduce { src, .. } => one(*src),
            Step::Loop { fixed, carry, xs, .. } => fixed.iter().chain(carry).chain(xs).for_each(|s| one(*s)),
            Step::While { cond_fixed, body_fixed, carry, .. } => {
                cond_fixed.iter().chain(body_fixed).chain(carry).for_each(|s| one(*s));
            }
            Step::Branch { which, ins, .. } => {
                one(*which);
                ins.iter().for_each(|s| one(*s));
            }
            Step::Print { values, .. } => values.iter().for_each(|v| one(v.0)),
        }
    }
    fn step(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        match step {
            Step::Fetch { .. } => Ok(()),
            Step::Local { out, sentence, layout } => self.local(*out + at, sentence, layout, at),
            Step::Reduce { src, out, combine } => self.reduce(*src + at, *out + at, *combine),
            Step::Loop { .. } => self.enter_loop(step, at),
            Step::While { .. } => self.enter_while(step, at),
            Step::Branch { .. } => self.enter_branch(step, at),
            Step::Print { template, values, manual } => {
                let values = values.iter().map(|(slot, hidden)| (slot + at, hidden.clone())).collect();
                self.push(Item::Print { template, values, manual, mesh: self.mesh });
                Ok(())
            }
        }
    }

    fn local(&mut self, out: Slot, s: &'p Sentence, layout: &[DimLayout], at: Slot) -> Result<()> {
        match &s.body {
            Body::Reshape => {
                let Some(Source::Value(src)) = s.reads.first().and_then(|r| r.parts.first()).map(|p| p.from)
                else {
                    // nothing is read: an empty value, or a constant
                    return self.map(out, s, Cow::Owned(Code::copy(s.dtype)), at);
                };
                self.flow.values[out].alias = Some(src + at);
                Ok(())
            }
            Body::Map(code) => self.map(out, s, Cow::Borrowed(code), at),
            Body::Fold { combine, code } => {
                let narrow = matches!(s.dtype, DType::F16 | DType::BF16);
                let rounds = narrow && matches!(combine, Combine::Add | Combine::Mul);
                let (dtype, code) = if rounds {
                    let mut code = code.clone();
                    let last = Arg::Inst(code.insts.len() - 1);
                    code.push(Fun::Convert, s.dtype, DType::F32, &[last]);
                    (DType::F32, Cow::Owned(code))
                } else {
                    (s.dtype, Cow::Borrowed(code))
                };
                self.fold(out, s, layout, Some((*combine, code)), dtype, at)
            }
            Body::Product { accumulate } => {
                let dtype = match accumulate {
                    DType::F16 | DType::BF16 => DType::F32,
                    DType::Bool => DType::U8,
                    d => *d,
                };
                self.fold(out, s, layout, None, dtype, at)
            }
        }
    }

    fn map(&mut self, out: Slot, s: &'p Sentence, code: Cow<'p, Code>, at: Slot) -> Result<()> {
        let v = &self.flow.values[out];
        let lead = usize::from(v.copies > 1);
        let n = v.shape.rank();
        let mut ext = [1; MAX];
        for (e, x) in ext.iter_mut().zip(v.shape.iter()) {
            *e = *x as i64;
        }
        let mut reads = Vec::with_capacity(s.reads.len());
        for r in &s.reads {
            reads.push(self.operand(r, &ext, n, lead, Some(out), at)?);
        }
        let map = Map { out, n, ext, reads, code, lead };
        match self.copied(&map) {
            Some(src) => self.flow.values[out].alias = Some(src),
            None => self.push(Item::Map(map)),
        }
        Ok(())
    }

    /// The value that a map copies as it is: what gathers replicas, say. Both are one in shared memory.
    fn copied(&self, m: &Map<'_>) -> Option<Slot> {
        let ([read], [inst]) = (&m.reads[..], &m.code.insts[..]) else { return None };
        let [p] = &read.pieces[..] else { return None };
        let Source::Value(src) = p.from else { return None };
        let (v, o) = (&self.flow.values[src], &self.flow.values[m.out]);
        let same = inst.fun == Fun::Copy
            && inst.args[..] == [Arg::Read(0)]
            && v.dtype == o.dtype
            && self.alike(src, m.out)
            && p.off == 0
            && p.st == v.strides
            && p.covers(&m.ext, m.n);
        same.then_some(src)
    }
    /// Whether two values have one shape, and none is in parts.
    fn alike(&self, a: Slot, b: Slot) -> bool {
        let (a, b) = (&self.flow.values[a], &self.flow.values[b]);
        a.shape == b.shape && a.strides == b.strides && a.copies == 1 && b.copies == 1
    }

    /// A read in loops `lead..n`; loop 0 is that over the parts of `out` if `lead` is 1.
    fn operand(
        &mut self,
        r: &Read,
        ext: &Ix,
        n: usize,
        lead: usize,
        out: Option<Slot>,
        at: Slot,
    ) -> Result<Operand> {
        if r.parts.iter().any(|p| p.span.iter().any(|s| s.step != 1 && s.len() > 1)) {
            return self.pack(r, ext, n, lead, out, at);
        }
        let mut pieces = SmallVec::with_capacity(r.parts.len());
        for part in &r.parts {
            if part.span.iter().any(Span::is_empty) {
                continue;
            }
            let (mut lo, mut hi) = ([0; MAX], *ext);
            for (l, s) in part.span.iter().enumerate() {
                (lo[lead + l], hi[lead + l]) =
                    (s.lo.max(0), s.hi.min(s.lo + (s.len() - 1) * s.step + 1).min(ext[lead + l]));
            }
            let mut p = Piece {
                from: part.from,
                lo,
                hi,
                off: 0,
                st: [0; MAX],
                along: [NONE; MAX],
                shift: [0; MAX],
                rank: 0,
            };
            let Source::Value(k) = part.from else {
                pieces.push(p);
                continue;
            };
            // a value that is another one, shape and all, is read as that one: its reader may join its maker
            let mut k = k + at;
            while let Some(a) = self.flow.values[k].alias.filter(|a| self.alike(*a, k)) {
                k = a;
            }
            let v = &self.flow.values[k];
            p.from = Source::Value(k);
            p.rank = v.shape.rank();
            let own = usize::from(v.copies > 1);
            for (d, a) in part.map.iter().enumerate() {
                let (d, mut pos) = (d + own, a.at);
                for (l, c) in &a.terms {
                    // k = index − lo
                    pos -= c * part.span[*l].lo;
                    p.st[lead + l] += c * v.strides[d];
                }
                p.off += pos * v.strides[d];
                if let [(l, 1)] = a.terms[..] {
                    (p.along[d], p.shift[d]) = ((lead + l) as u8, pos);
                }
            }
            if own == 0 {
                pieces.push(p);
                continue;
            }
            match out.map(|o| &self.flow.values[o].parts) {
                None => pieces.push(p), // the part is chosen by rank
                Some(_) if lead == 0 => {
                    return Err(crate::Error::other("a value in parts is read as if it were whole"));
                }
                Some(parts) if *parts == v.parts => {
                    p.st[0] += v.strides[0];
                    p.along[0] = 0;
                    pieces.push(p);
                }
                Some(parts) => {
                    for c in 0..parts.ways() {
                        let q = v.parts.rank(parts.place(0, c)) as i64 * v.strides[0];
                        let mut p = Piece { off: p.off + q, ..p.clone() };
                        (p.lo[0], p.hi[0]) = (c as i64, c as i64 + 1);
                        pieces.push(p);
                    }
                }
            }
        }
        Ok(Operand { dtype: r.dtype.storage(), fill: r.fill, pieces })
    }

    /// A read with steps as a value of its own, over the loops it depends on.
    fn pack(
        &mut self,
        r: &Read,
        ext: &Ix,
        n: usize,
        lead: usize,
        out: Option<Slot>,
        at: Slot,
    ) -> Result<Operand> {
        let depends = |l: usize| {
            r.parts.iter().any(|p| {
                let s = p.span[l];
                s.lo > 0
                    || s.hi < ext[lead + l]
                    || s.step != 1
                    || p.map.iter().any(|a| a.terms.iter().any(|t| t.0 == l))
            })
        };
        let used: Vec<usize> = (0..n - lead).filter(|l| depends(*l)).collect();
        let parts = out.map(|o| self.flow.values[o].parts.clone()).filter(|_| lead > 0);
        let empty = DimLayout { atoms: SmallVec::new(), block: 1, origin: 0 };
        let dtype = r.dtype.storage();
        let shape = used.iter().map(|l| ext[lead + l] as usize).collect();
        let tmp = self.value(dtype, shape, parts.clone().unwrap_or(empty))?;
        let to = self.flow.values[tmp].clone();
        let mut list = Vec::new();
        for c in 0..to.copies {
            for p in r.parts.iter().filter(|p| !p.span.iter().any(Span::is_empty)) {
                let (mut e, mut src, mut dst) = ([1; MAX], (0, [0; MAX]), (0, [0; MAX]));
                if to.copies > 1 {
                    dst.0 += c as i64 * to.strides[0];
                }
                for (j, l) in used.iter().enumerate() {
                    let (s, w) = (p.span[*l], to.strides[j + lead]);
                    e[j] = s.len();
                    dst.0 += s.lo * w;
                    dst.1[j] = s.step * w;
                }
                let mut from = p.from;
                if let Source::Value(k) = p.from {
                    let v = &self.flow.values[k + at];
                    from = Source::Value(k + at);
                    let own = usize::from(v.copies > 1);
                    if own > 0
                        && let Some(parts) = &parts
                    {
                        src.0 += v.parts.rank(parts.place(0, c)) as i64 * v.strides[0];
                    }
                    for (d, a) in p.map.iter().enumerate() {
                        src.0 += a.at * v.strides[d + own];
                        for (l, k) in &a.terms {
                            if let Some(j) = used.iter().position(|u| u == l) {
                                src.1[j] += k * v.strides[d + own];
                            }
                        }
                    }
                }
                list.push(PackPart { from, ext: e, src, dst });
            }
        }
        self.push(Item::Pack { out: tmp, fill: r.fill, parts: list });
        Ok(self.whole(tmp, dtype, &used, ext, n, lead))
    }

    /// Value `tmp`, whose dimensions are these loops, as an operand.
    fn whole(&self, tmp: Slot, dtype: DType, used: &[usize], ext: &Ix, n: usize, lead: usize) -> Operand {
        let v = &self.flow.values[tmp];
        let mut p = Piece {
            from: Source::Value(tmp),
            lo: [0; MAX],
            hi: *ext,
            off: 0,
            st: [0; MAX],
            along: [NONE; MAX],
            shift: [0; MAX],
            rank: v.shape.rank(),
        };
        let own = usize::from(v.copies > 1);
        if own > 0 {
            (p.st[0], p.along[0]) = (v.strides[0], 0);
        }
        for (d, l) in used.iter().enumerate() {
            (p.st[lead + l], p.along[d + own]) = (v.strides[d + own], (lead + l) as u8);
        }
        debug_assert!(used.iter().all(|l| lead + l < n));
        Operand { dtype, fill: Scalar::zero(dtype), pieces: smallvec![p] }
    }

    /// An operand as a plain value of element type `to`, over the loops it depends on.
    fn settle(&mut self, o: Operand, ext: &Ix, n: usize, to: DType) -> Result<Operand> {
        let depends = |l: usize| {
            o.pieces
                .iter()
                .any(|p| p.lo[l] > 0 || p.hi[l] < ext[l] || p.st[l] != 0 || p.along.contains(&(l as u8)))
        };
        let used: Vec<usize> = (0..n).filter(|l| depends(*l)).collect();
        let shape = used.iter().map(|l| ext[*l] as usize).collect();
        let tmp = self.value(to, shape, DimLayout { atoms: SmallVec::new(), block: 1, origin: 0 })?;
        let mut e = [1; MAX];
        for (d, l) in used.iter().enumerate() {
            e[d] = ext[*l];
        }
        let pieces = o.pieces.iter().map(|p| {
            let mut q = Piece { lo: [0; MAX], hi: e, st: [0; MAX], along: [NONE; MAX], ..p.clone() };
            for (d, l) in used.iter().enumerate() {
                (q.lo[d], q.hi[d], q.st[d]) = (p.lo[*l], p.hi[*l], p.st[*l]);
            }
            for d in 0..p.rank {
                if let Some(k) = used.iter().position(|l| *l == p.along[d] as usize) {
                    q.along[d] = k as u8;
                }
            }
            q
        });
        let read = Operand { dtype: o.dtype, fill: o.fill, pieces: pieces.collect() };
        let fun = if o.dtype == to { Fun::Copy } else { Fun::Convert };
        let code = Code::one(fun, o.dtype, to, &[Arg::Read(0)]);
        self.push(Item::Map(Map {
            out: tmp,
            n: used.len(),
            ext: e,
            reads: vec![read],
            code: Cow::Owned(code),
            lead: 0,
        }));
        Ok(self.whole(tmp, to, &used, ext, n, 0))
    }

    /// A fold, or a product if there is no code, computed in `dtype`.
    fn fold(
        &mut self,
        out: Slot,
        s: &'p Sentence,
        layout: &[DimLayout],
        code: Option<(Combine, Cow<'p, Code>)>,
        dtype: DType,
        at: Slot,
    ) -> Result<()> {
        let n = s.extents.len();
        fits(n)?;
        let mut ext = [1; MAX];
        for (e, x) in ext.iter_mut().zip(&s.extents) {
            *e = *x as i64;
        }
        let parts = self.flow.values[out].parts.clone();
        let mut reads = Vec::with_capacity(s.reads.len());
        for r in &s.reads {
            let mut o = self.operand(r, &ext, n, 0, None, at)?;
            let plain = match &code {
                Some(_) => o.simple(&ext, n),
                None => {
                    let value = matches!(&o.pieces[..], [p] if matches!(p.from, Source::Value(_)));
                    value && o.simple(&ext, n) && o.dtype == dtype
                }
            };
            if !plain {
                o =
                    self.settle_parts(o, &ext, n, if code.is_none() { dtype } else { r.dtype.storage() }, r)?;
            }
            reads.push(o);
        }
        // an operand in parts has one more loop, over these; each rank takes its own
        let mut own: SmallVec<[(usize, DimLayout); 2]> = SmallVec::new();
        let mut loops = n;
        for o in &mut reads {
            let Some(p) = o.pieces.first_mut() else { continue };
            let Source::Value(v) = p.from else { continue };
            let v = &self.flow.values[v];
            if v.copies == 1 {
                continue;
            }
            let l = own.iter().find(|x| x.1 == v.parts).map_or(loops, |x| x.0);
            if l == loops {
                loops += 1;
                fits(loops)?;
                ext[l] = v.copies as i64;
                own.push((l, v.parts.clone()));
            }
            (p.st[l], p.along[0]) = (v.strides[0], l as u8);
        }
        for p in reads.iter_mut().flat_map(|o| &mut o.pieces) {
            p.hi[n..loops].copy_from_slice(&ext[n..loops]);
        }
        let copies = (0..parts.ways()).map(|c| {
            let place = parts.place(0, c);
            let mut b = RankBox { lo: [0; MAX], hi: ext };
            for l in s.rank..n {
                if let Some(d) = layout.get(l) {
                    (b.lo[l], b.hi[l]) = d.range(d.rank(place), s.extents[l]);
                }
            }
            for (l, parts) in &own {
                let r = parts.rank(place) as i64;
                (b.lo[*l], b.hi[*l]) = (r, r + 1);
            }
            vec![b]
        });
        let copies = copies.collect();
        let n = loops;
        let to = self.flow.values[out].dtype;
        let mut target = out;
        if to != dtype {
            let v = &self.flow.values[out];
            let shape = v.shape[usize::from(v.copies > 1)..].into();
            target = self.value(dtype, shape, parts)?;
            self.wide.push((out, target));
        }
        self.push(Item::Fold(Fold { out: target, dtype, n, rank: s.rank, ext, reads, code, copies }));
        if target != out {
            self.convert(target, out);
        }
        Ok(())
    }
    /// As `settle`, for operands that may be in parts: these are only changed in type, part by part.
    fn settle_parts(&mut self, o: Operand, ext: &Ix, n: usize, to: DType, r: &Read) -> Result<Operand> {
        let partial = o.pieces.iter().find_map(|p| match p.from {
            Source::Value(v) if self.flow.values[v].copies > 1 => Some(v),
            _ => None,
        });
        let Some(v) = partial else { return self.settle(o, ext, n, to) };
        if o.pieces.len() != 1 || !o.simple(ext, n) || !matches!(r.parts[..], [_]) {
            return Err(crate::Error::other("a value in parts is read by several parts of a sum"));
        }
        let src = &self.flow.values[v];
        let (shape, parts) = (src.shape[1..].into(), src.parts.clone());
        let tmp = self.value(to, shape, parts)?;
        self.convert(v, tmp);
        let mut o = o;
        o.dtype = to;
        o.pieces[0].from = Source::Value(tmp);
        Ok(o)
    }
    /// `out` is `src` in another element type.
    fn convert(&mut self, src: Slot, out: Slot) {
        let (v, o) = (&self.flow.values[src], &self.flow.values[out]);
        let n = v.shape.rank();
        let mut ext = [1; MAX];
        for (e, x) in ext.iter_mut().zip(v.shape.iter()) {
            *e = *x as i64;
        }
        let fun = if v.dtype == o.dtype { Fun::Copy } else { Fun::Convert };
        let code = Code::one(fun, v.dtype, o.dtype, &[Arg::Read(0)]);
        let dtype = v.dtype;
        let loops: Vec<usize> = (0..n - usize::from(v.copies > 1)).collect();
        let lead = usize::from(v.copies > 1);
        let read = self.whole(src, dtype, &loops, &ext, n, lead);
        self.push(Item::Map(Map { out, n, ext, reads: vec![read], code: Cow::Owned(code), lead }));
    }

    fn reduce(&mut self, src: Slot, out: Slot, combine: Combine) -> Result<()> {
        if let Some((_, wide)) = self.wide.iter().find(|w| w.0 == src).copied() {
            let (dtype, v) = (self.flow.values[wide].dtype, &self.flow.values[out]);
            let (shape, parts) = (v.shape[usize::from(v.copies > 1)..].into(), v.parts.clone());
            let tmp = self.value(dtype, shape, parts)?;
            self.wide.push((out, tmp));
            self.readers[wide] = self.readers[src];
            self.gather_parts(wide, tmp, combine)?;
            self.convert(tmp, out);
            return Ok(());
        }
        self.gather_parts(src, out, combine)
    }
    fn gather_parts(&mut self, src: Slot, out: Slot, combine: Combine) -> Result<()> {
        let (s, o) = (&self.flow.values[src], &self.flow.values[out]);
        // for each part of the result the parts that make it, in rank order
        let mut from: Vec<SmallVec<[usize; 8]>> = vec![SmallVec::new(); o.copies];
        for c in 0..s.copies {
            from[o.parts.rank(s.parts.place(0, c))].push(c);
        }
        let maker = self.maker[src];
        if self.readers[src] == 1
            && maker != u32::MAX
            && let Item::Fold(f) = &mut self.flow.items[maker as usize]
            && f.out == src
            && f.combine() == combine
            && f.copies.len() == s.copies
        {
            let mut old: Vec<Vec<RankBox>> = std::mem::take(&mut f.copies);
            f.copies =
                from.iter().map(|c| c.iter().flat_map(|c| std::mem::take(&mut old[*c])).collect()).collect();
            f.out = out;
            self.maker[out] = maker;
            return Ok(());
        }
        let rank = s.shape.rank() - usize::from(s.copies > 1);
        let narrow =
            matches!(s.dtype, DType::F16 | DType::BF16) && matches!(combine, Combine::Add | Combine::Mul);
        let dtype = if narrow { DType::F32 } else { s.dtype };
        let mut ext = [1; MAX];
        for (e, n) in ext.iter_mut().zip(s.shape.iter().skip(usize::from(s.copies > 1))) {
            *e = *n as i64;
        }
        let n = rank + 1;
        fits(n)?;
        ext[rank] = s.copies as i64;
        let mut p = Piece {
            from: Source::Value(src),
            lo: [0; MAX],
            hi: ext,
            off: 0,
            st: [0; MAX],
            along: [NONE; MAX],
            shift: [0; MAX],
            rank: s.shape.rank(),
        };
        if s.copies > 1 {
            (p.st[rank], p.along[0]) = (s.strides[0], rank as u8);
        }
        for d in 0..rank {
            let e = d + usize::from(s.copies > 1);
            (p.st[d], p.along[e]) = (s.strides[e], d as u8);
        }
        let copies = from
            .iter()
            .map(|list| {
                list.iter()
                    .map(|c| {
                        let (mut lo, mut hi) = ([0; MAX], ext);
                        (lo[rank], hi[rank]) = (*c as i64, *c as i64 + 1);
                        RankBox { lo, hi }
                    })
                    .collect()
            })
            .collect();
        let fun = if narrow { Fun::Convert } else { Fun::Copy };
        let code = Code::one(fun, s.dtype, dtype, &[Arg::Read(0)]);
        let reads = vec![Operand { dtype: s.dtype, fill: Scalar::zero(s.dtype), pieces: smallvec![p] }];
        let mut target = out;
        if narrow {
            let (shape, parts) = (o.shape[usize::from(o.copies > 1)..].into(), o.parts.clone());
            target = self.value(dtype, shape, parts)?;
        }
        let code = Some((combine, Cow::Owned(code)));
        self.push(Item::Fold(Fold { out: target, dtype, n, rank, ext, reads, code, copies }));
        if target != out {
            self.convert(target, out);
        }
        Ok(())
    }

    fn enter_loop(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } = step else {
            return Ok(());
        };
        let (nf, nc) = (fixed.len(), carry.len());
        let wanted = 1 + nf + nc + xs.len();
        if body.ins.len() != wanted || body.outs.len() != nc + ys.len() || out.len() != nc {
            return Err(crate::Error::other("a loop whose body does not fit its values"));
        }
        let mut flow = build(body, self.strides)?;
        let ins = flow.ins.clone();
        let mut item = LoopItem {
            step: ins[0],
            start: *start,
            length: *length,
            reverse: *reverse,
            fixed: fixed.iter().zip(&ins[1..]).map(|(o, i)| (*o + at, *i)).collect(),
            carry: Vec::new(),
            xs: xs.iter().zip(&ins[1 + nf + nc..]).map(|(o, i)| (*o + at, *i)).collect(),
            ys: Vec::new(),
            body: Box::default(),
        };
        for x in xs {
            if self.flow.values[*x + at].copies > 1 {
                return Err(crate::Error::other("a loop over slices of a value in parts"));
            }
        }
        let mut outs = Vec::new();
        for k in 0..nc {
            let (first, from, to, last) = (carry[k] + at, ins[1 + nf + k], flow.outs[k], out[k] + at);
            if to == from || *length == 0 {
                // the same at every step
                item.fixed.push((first, from));
                self.flow.values[last].alias = Some(first);
            } else {
                outs.push(to);
                item.carry.push(Carry { first, from, to, last });
            }
        }
        outs.extend(&flow.outs[nc..]);
        flow.outs = outs;
        flow.distinct_outs(self.strides);
        for (c, to) in item.carry.iter_mut().zip(&flow.outs) {
            c.to = *to;
        }
        item.ys = flow.outs[item.carry.len()..].iter().zip(ys).map(|(i, o)| (*i, *o + at)).collect();
        item.body = Box::new(flow);
        self.push(Item::Loop(item));
        Ok(())
    }
    fn enter_while(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::While { cond, body, cond_fixed, body_fixed, carry, out } = step else { return Ok(()) };
        let (nc, cf, bf) = (carry.len(), cond_fixed.len(), body_fixed.len());
        if cond.ins.len() != cf + nc
            || body.ins.len() != bf + nc
            || body.outs.len() != nc
            || cond.outs.len() != 1
        {
            return Err(crate::Error::other("a loop whose condition or body does not fit its values"));
        }
        let mut c = build(cond, self.strides)?;
        c.distinct_outs(self.strides);
        let mut b = build(body, self.strides)?;
        b.distinct_outs(self.strides);
        let carry = (0..nc)
            .map(|k| Carry { first: carry[k] + at, from: b.ins[bf + k], to: b.outs[k], last: out[k] + at })
            .collect();
        let pairs = |o: &[Slot], i: &[Slot]| o.iter().zip(i).map(|(o, i)| (*o + at, *i)).collect();
        self.push(Item::While(WhileItem {
            cond_fixed: pairs(cond_fixed, &c.ins),
            cond_carry: c.ins[cf..].to_vec(),
            body_fixed: pairs(body_fixed, &b.ins),
            carry,
            cond: Box::new(c),
            body: Box::new(b),
        }));
        Ok(())
    }
    fn enter_branch(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::Branch { which, branches, ins, out } = step else { return Ok(()) };
        let fits = |p: &SpmdProgram| p.ins.len() == ins.len() && p.outs.len() == out.len();
        if branches.is_empty() || !branches.iter().all(fits) {
            return Err(crate::Error::other("a choice whose branches do not fit its values"));
        }
        if self.flow.values[*which + at].shape.rank() > 0 {
            return self.select(step, at);
        }
        let mut arms = Vec::new();
        for p in branches {
            let mut f = build(p, self.strides)?;
            f.distinct_outs(self.strides);
            arms.push(f);
        }
        let shift = |v: &[Slot]| v.iter().map(|s| *s + at).collect();
        self.push(Item::Branch(BranchItem { which: *which + at, arms, ins: shift(ins), outs: shift(out) }));
        Ok(())
    }
    /// A choice that differs from device to device: all branches run, and each device takes the results of its own. They are pure.
    fn select(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        let Step::Branch { which, branches, ins, out } = step else { return Ok(()) };
        let mut ends: Vec<Vec<Slot>> = Vec::new();
        for p in branches {
            let base = self.flow.values.len();
            self.slots(p)?;
            for (i, o) in p.ins.iter().zip(ins) {
                self.flow.values[base + i].alias = Some(*o + at);
            }
            for s in &p.steps {
                self.count(s, base);
            }
            for o in &p.outs {
                self.readers[base + o] += 1;
            }
            for s in &p.steps {
                self.step(s, base)?;
            }
            ends.push(p.outs.iter().map(|o| *o + base).collect());
        }
        let which = *which + at;
        let hidden = self.flow.values[which].shape.rank();
        let bool = self.flow.values[which].dtype == DType::Bool;
        let from = self.flow.values[which].dtype;
        for (k, o) in out.iter().enumerate() {
            let o = *o + at;
            let v = self.flow.values[o].clone();
            let (n, mut ext) = (v.shape.rank(), [1; MAX]);
            for (e, x) in ext.iter_mut().zip(v.shape.iter()) {
                *e = *x as i64;
            }
            // where each axis of the choice is among the result's dimensions
            let place = |l: usize| {
                let of = |s: Slot| self.flow.values[s].layout.map_or(&[][..], |l| &l.dims[..]);
                let atoms = &of(which).get(l)?.atoms;
                of(o).iter().position(|d| d.atoms == *atoms)
            };
            let lead: Vec<usize> = (0..hidden).filter_map(place).collect();
            if v.copies > 1 || lead.len() != hidden {
                return Err(crate::Error::other(
                    "a choice by device whose results do not vary as the choice does",
                ));
            }
            let all: Vec<usize> = (0..n).collect();
            let mut reads = vec![self.whole(which, from, &lead, &ext, n, 0)];
            for e in &ends {
                reads.push(self.whole(e[k], v.dtype, &all, &ext, n, 0));
            }
            let mut code = Code { insts: Vec::new() };
            let mut last = Arg::Read(ends.len());
            for b in (0..ends.len() - 1).rev() {
                let take = match bool {
                    true => Arg::Read(0),
                    // clamped: 0 takes everything below
                    false => code.push(
                        Fun::Le,
                        from,
                        DType::Bool,
                        &[Arg::Read(0), Arg::Const(Scalar::Int(b as i128))],
                    ),
                };
                last = code.push(Fun::Select, v.dtype, v.dtype, &[take, Arg::Read(b + 1), last]);
            }
            if code.insts.is_empty() {
                code.insts.push(Inst {
                    fun: Fun::Copy,
                    from: v.dtype,
                    dtype: v.dtype,
                    args: SmallVec::from_slice(&[last]),
                });
            }
            self.push(Item::Map(Map { out: o, n, ext, reads, code: Cow::Owned(code), lead: 0 }));
        }
        Ok(())
    }

    /// Drops what nobody reads, and counts readers.
    fn finish(&mut self) {
        let f = &mut self.flow;
        f.count();
        let mut keep = vec![true; f.items.len()];
        for (k, item) in f.items.iter().enumerate().rev() {
            let dead =
                item.results().iter().all(|r| f.uses[f.root(*r)] == Uses::NONE && f.uses[*r] == Uses::NONE);
            if dead && !item.prints() {
                keep[k] = false;
                for s in item.sources() {
                    let root = f.root(s);
                    f.uses[root].readers -= 1;
                }
            }
        }
        let mut k = 0;
        f.items.retain(|_| {
            k += 1;
            keep[k - 1]
        });
    }
}
