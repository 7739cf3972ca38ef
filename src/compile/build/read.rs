//! Reads as operands: boxes with one affine map each, and values of their own for those that are none.

use super::Building;
use crate::compile::flow::{Item, Map, Operand, PackPart, Piece, Value};
use crate::compile::index::{Ix, MAX, NONE, extents};
use crate::diagnostic::{Error, Result};
use crate::partition::{DimLayout, Slot};
use crate::program::sentence::{Arg, Code, Fun, Part, Read, Source, Span};
use crate::types::{DType, Scalar};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

impl Building<'_, '_> {
    /// A read in loops `lead..n`; loop 0 is that over the parts of `out` if `lead` is 1.
    pub(super) fn operand(
        &mut self,
        r: &Read,
        ext: &Ix,
        n: usize,
        lead: usize,
        out: Option<Slot>,
        at: Slot,
    ) -> Result<Operand> {
        let padded = self.padded(r, at)?;
        let r = padded.as_ref().unwrap_or(r);
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
            let mut p = Piece { lo, ..Piece::over(part.from, &hi, 0) };
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
                    return Err(Error::internal("a partial value is read as if it were whole"));
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
    /// A read some of whose windows leave what they read, as one of copies with the fill around them: none leaves these.
    fn padded(&mut self, r: &Read, at: Slot) -> Result<Option<Read>> {
        let inner = |v: &Value<'_>| v.shape[usize::from(v.copies > 1)..].to_vec();
        let mut copies: Vec<(Slot, Vec<(i64, i64)>)> = Vec::new();
        let mut leaving = Vec::new();
        for (k, p) in r.parts.iter().enumerate() {
            let Source::Value(slot) = p.from else { continue };
            let shape = inner(&self.flow.values[slot + at]);
            if !(0..shape.len()).any(|d| p.leaves(d, shape[d])) {
                continue;
            }
            // windows of which nothing is inside need no copy: the part is not there
            let p = p.inside(&shape);
            if !(0..shape.len()).any(|d| p.leaves(d, shape[d])) {
                leaving.push((k, p, false));
                continue;
            }
            let hull = p.map.iter().map(|m| m.bounds(&p.span)).map(|(lo, hi)| (lo, hi + 1));
            match copies.iter_mut().find(|c| c.0 == slot) {
                Some((_, old)) => {
                    old.iter_mut().zip(hull).for_each(|(a, b)| *a = (a.0.min(b.0), a.1.max(b.1)))
                }
                None => copies.push((slot, hull.collect())),
            }
            leaving.push((k, p, true));
        }
        if leaving.is_empty() {
            return Ok(None);
        }
        let mut made = Vec::with_capacity(copies.len());
        for (slot, hull) in &copies {
            let shape = hull.iter().map(|h| (h.1 - h.0) as usize).collect();
            let parts = self.flow.values[slot + at].parts.clone();
            let tmp = self.value(r.dtype.storage(), shape, parts)?;
            let (v, to) = (&self.flow.values[slot + at], &self.flow.values[tmp]);
            let (own, n, ext) = (usize::from(v.copies > 1), to.shape.rank(), extents(&to.shape));
            let mut p = Piece { st: v.strides, ..Piece::over(Source::Value(slot + at), &ext, n) };
            for (d, h) in hull.iter().enumerate() {
                let (e, size) = (d + own, v.shape[d + own] as i64);
                (p.lo[e], p.hi[e]) = ((-h.0).max(0), (size - h.0).min(h.1 - h.0));
                p.off += h.0 * v.strides[e];
                (p.along[e], p.shift[e]) = (e as u8, h.0);
            }
            if own > 0 {
                p.along[0] = 0;
            }
            let pieces = if (0..n).any(|d| p.lo[d] >= p.hi[d]) { smallvec![] } else { smallvec![p] };
            let dtype = r.dtype.storage();
            let read = Operand { dtype, fill: r.fill, pieces };
            let code = Cow::Owned(Code::copy(dtype));
            self.push(Item::Map(Map { out: tmp, n, ext, reads: vec![read], code, lead: own }));
            made.push(tmp);
        }
        let mut read = r.clone();
        for (k, cut, copied) in leaving {
            let p = &mut read.parts[k];
            *p = cut;
            if !copied {
                continue;
            }
            let Some(c) = copies.iter().position(|c| p.from == Source::Value(c.0)) else { continue };
            p.from = Source::Value(made[c] - at);
            p.map.iter_mut().zip(&copies[c].1).for_each(|(m, h)| m.at -= h.0);
        }
        Ok(Some(read))
    }
    /// A read with steps as a value of its own, over the loops it depends on.
    pub(super) fn pack(
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
        // where the loops have none over parts, the parts are those of what is read
        let copies = |p: &Part| match p.from {
            Source::Value(s) => self.flow.values[s + at].copies,
            Source::Const(_) => 1,
        };
        let own = r.sources().into_iter().map(|s| &self.flow.values[s + at]).find(|v| v.copies > 1);
        let parts = match lead {
            0 => own.map(|v| v.parts.clone()),
            _ => out.map(|o| self.flow.values[o].parts.clone()),
        };
        if lead == 0 && own.is_some() && r.parts.iter().any(|p| copies(p) == 1) {
            return Err(Error::internal("a whole value is read with a partial one by a sum"));
        }
        let empty = DimLayout { atoms: SmallVec::new(), block: 1, origin: 0 };
        let dtype = r.dtype.storage();
        let shape = used.iter().map(|l| ext[lead + l] as usize).collect();
        let tmp = self.value(dtype, shape, parts.clone().unwrap_or(empty))?;
        let to = self.flow.values[tmp].clone();
        let front = usize::from(to.copies > 1);
        let mut list = Vec::new();
        for c in 0..to.copies {
            for p in r.parts.iter().filter(|p| !p.span.iter().any(Span::is_empty)) {
                let (mut e, mut src, mut dst) = ([1; MAX], (0, [0; MAX]), (0, [0; MAX]));
                if to.copies > 1 {
                    dst.0 += c as i64 * to.strides[0];
                }
                for (j, l) in used.iter().enumerate() {
                    let (s, w) = (p.span[*l], to.strides[j + front]);
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
    pub(super) fn whole(
        &self,
        tmp: Slot,
        dtype: DType,
        used: &[usize],
        ext: &Ix,
        n: usize,
        lead: usize,
    ) -> Operand {
        let v = &self.flow.values[tmp];
        let mut p = Piece::over(Source::Value(tmp), ext, v.shape.rank());
        let own = usize::from(v.copies > 1);
        // a fold adds a loop over the parts itself
        if own > 0 && lead > 0 {
            (p.st[0], p.along[0]) = (v.strides[0], 0);
        }
        for (d, l) in used.iter().enumerate() {
            (p.st[lead + l], p.along[d + own]) = (v.strides[d + own], (lead + l) as u8);
        }
        debug_assert!(used.iter().all(|l| lead + l < n));
        Operand { dtype, fill: Scalar::zero(dtype), pieces: smallvec![p] }
    }
    /// An operand as a plain value of element type `to`, over the loops it depends on.
    pub(super) fn settle(&mut self, o: Operand, ext: &Ix, n: usize, to: DType) -> Result<Operand> {
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
    /// As `settle`, for operands that may be partial: these are packed and changed in type part by part.
    pub(super) fn settle_parts(
        &mut self,
        o: Operand,
        ext: &Ix,
        n: usize,
        to: DType,
        (r, at): (&Read, Slot),
    ) -> Result<Operand> {
        let values = &self.flow.values;
        let partial = |p: &Piece| matches!(p.from, Source::Value(v) if values[v].copies > 1);
        if !o.pieces.iter().any(partial) {
            return self.settle(o, ext, n, to);
        }
        let mut o = o;
        if !o.simple(ext, n) || !matches!(r.parts[..], [_]) {
            let padded = self.padded(r, at)?;
            o = self.pack(padded.as_ref().unwrap_or(r), ext, n, 0, None, at)?;
        }
        let [Piece { from: Source::Value(v), .. }] = o.pieces[..] else {
            return Err(Error::internal("a partial value is read by several parts of a sum"));
        };
        if o.dtype != to {
            let src = &self.flow.values[v];
            let (shape, parts) = (src.shape[1..].into(), src.parts.clone());
            let tmp = self.value(to, shape, parts)?;
            self.convert(v, tmp);
            o.dtype = to;
            o.pieces[0].from = Source::Value(tmp);
        }
        Ok(o)
    }
    /// `out` is `src` in another element type.
    pub(super) fn convert(&mut self, src: Slot, out: Slot) {
        let (v, o) = (&self.flow.values[src], &self.flow.values[out]);
        let (n, ext) = (v.shape.rank(), extents(&v.shape));
        let fun = if v.dtype == o.dtype { Fun::Copy } else { Fun::Convert };
        let code = Code::one(fun, v.dtype, o.dtype, &[Arg::Read(0)]);
        let dtype = v.dtype;
        let loops: Vec<usize> = (0..n - usize::from(v.copies > 1)).collect();
        let lead = usize::from(v.copies > 1);
        let read = self.whole(src, dtype, &loops, &ext, n, lead);
        self.push(Item::Map(Map { out, n, ext, reads: vec![read], code: Cow::Owned(code), lead }));
    }
}
