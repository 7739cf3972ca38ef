//! Lowers operands to boxes with one affine map each; copies operands for which this fails.

use super::ProgramLowering;
use crate::core::diagnostic::{Error, Result};
use crate::core::types::{DType, Scalar};
use crate::core::util::small_sort;
use crate::ir::program::loop_nest::{
    Access, AccessPiece, ScalarArg, ScalarCode, ScalarOp, Source, StridedRange,
};
use crate::partition::buffers::index::{LoopVec, MAX_LOOPS, NO_LOOP, extents};
use crate::partition::buffers::{AccessBox, BufferOp, BufferValue, CopyBox, ElementwiseOp, OperandAccess};
use crate::partition::{DimLayout, Slot};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::cmp::Reverse;

impl ProgramLowering<'_> {
    /// Lowers an access over loops `lead..n`.
    /// If `lead` is 1, loop 0 runs over the partials of `out`. `at` is the first slot of the
    /// program that the access belongs to.
    pub(super) fn lower_access(
        &mut self,
        r: &Access,
        ext: &LoopVec,
        n: usize,
        lead: usize,
        out: Option<Slot>,
        at: Slot,
    ) -> Result<OperandAccess> {
        let padded = self.pad_windows(r, at)?;
        let r = padded.as_ref().unwrap_or(r);
        if r.pieces.iter().any(|p| p.ranges.iter().any(|s| s.step != 1 && s.len() > 1)) {
            return self.pack_strided(r, ext, n, lead, out, at);
        }
        let mut pieces = SmallVec::with_capacity(r.pieces.len());
        for part in &r.pieces {
            if part.ranges.iter().any(StridedRange::is_empty) {
                continue;
            }
            let (mut lo, mut hi) = ([0; MAX_LOOPS], *ext);
            for (l, s) in part.ranges.iter().enumerate() {
                (lo[lead + l], hi[lead + l]) =
                    (s.lo.max(0), s.hi.min(s.lo + (s.len() - 1) * s.step + 1).min(ext[lead + l]));
            }
            let mut p = AccessBox { lo, ..AccessBox::broadcast(part.source, &hi, 0) };
            let Source::Value(k) = part.source else {
                pieces.push(p);
                continue;
            };
            // read through aliases of equal shape, so that the consumer can be fused with the
            // producer
            let mut k = k + at;
            while let Some(a) = self.program.values[k].alias.filter(|a| self.has_same_layout(*a, k)) {
                k = a;
            }
            let v = &self.program.values[k];
            p.source = Source::Value(k);
            p.rank = v.shape.rank();
            let own = usize::from(v.num_partials > 1);
            for (d, a) in part.map.iter().enumerate() {
                let (d, mut pos) = (d + own, a.constant);
                for (l, c) in &a.terms {
                    // iteration `k` of the range has index `lo + k`
                    pos -= c * part.ranges[*l].lo;
                    p.strides[lead + l] += c * v.strides[d];
                }
                p.offset += pos * v.strides[d];
                if let [(l, 1)] = a.terms[..] {
                    (p.dim_loops[d], p.dim_shifts[d]) = ((lead + l) as u8, pos);
                }
            }
            if own == 0 {
                pieces.push(p);
                continue;
            }
            match out.map(|o| &self.program.values[o].partial_layout) {
                None => pieces.push(p), // the caller adds a loop over the partials
                Some(_) if lead == 0 => {
                    return Err(Error::internal("a partial value is read as if it were fully reduced"));
                }
                Some(partials) if *partials == v.partial_layout => {
                    p.strides[0] += v.strides[0];
                    p.dim_loops[0] = 0;
                    pieces.push(p);
                }
                Some(partials) => {
                    for c in 0..partials.num_shards() {
                        let q = v.partial_layout.rank(partials.nearest_position(0, c)) as i64 * v.strides[0];
                        let mut p = AccessBox { offset: p.offset + q, ..p.clone() };
                        (p.lo[0], p.hi[0]) = (c as i64, c as i64 + 1);
                        pieces.push(p);
                    }
                }
            }
        }
        Ok(OperandAccess { dtype: r.dtype.storage(), fill: r.fill, boxes: pieces })
    }
    /// Copies the values whose windows leave their bounds to values that are padded with the fill.
    /// Returns the access with these copies as its sources, or `None` if no window leaves its
    /// source.
    fn pad_windows(&mut self, r: &Access, at: Slot) -> Result<Option<Access>> {
        let inner = |v: &BufferValue<'_>| v.shape[usize::from(v.num_partials > 1)..].to_vec();
        let mut copies: Vec<(Slot, Vec<(i64, i64)>)> = Vec::new();
        let mut leaving = Vec::new();
        for (k, p) in r.pieces.iter().enumerate() {
            let Source::Value(slot) = p.source else { continue };
            let shape = inner(&self.program.values[slot + at]);
            if !(0..shape.len()).any(|d| p.may_leave_bounds(d, shape[d])) {
                continue;
            }
            // a piece that, once it is clipped, has all windows in bounds needs no copy
            let p = p.clipped_to(&shape);
            if !(0..shape.len()).any(|d| p.may_leave_bounds(d, shape[d])) {
                leaving.push((k, p, false));
                continue;
            }
            let hull = p.map.iter().map(|m| m.bounds(&p.ranges)).map(|(lo, hi)| (lo, hi + 1));
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
            let partial_layout = self.program.values[slot + at].partial_layout.clone();
            let tmp = self.add_value(r.dtype.storage(), shape, partial_layout)?;
            let producer = self.producers.get(self.program.alias_root(slot + at));
            let partial = self.program.values[slot + at].num_partials > 1;
            if producer.is_none_or(|p| *p == u32::MAX) && !partial {
                // no operation can be fused with the copy: lines are copied as they are
                let parts = self.padded_box(slot + at, tmp, hull).into_iter().collect();
                self.push(BufferOp::Pack { out: tmp, fill: r.fill, parts });
                made.push(tmp);
                continue;
            }
            let (v, to) = (&self.program.values[slot + at], &self.program.values[tmp]);
            let (own, n, ext) = (usize::from(v.num_partials > 1), to.shape.rank(), extents(&to.shape));
            let mut p =
                AccessBox { strides: v.strides, ..AccessBox::broadcast(Source::Value(slot + at), &ext, n) };
            for (d, h) in hull.iter().enumerate() {
                let (e, size) = (d + own, v.shape[d + own] as i64);
                (p.lo[e], p.hi[e]) = ((-h.0).max(0), (size - h.0).min(h.1 - h.0));
                p.offset += h.0 * v.strides[e];
                (p.dim_loops[e], p.dim_shifts[e]) = (e as u8, h.0);
            }
            if own > 0 {
                p.dim_loops[0] = 0;
            }
            let pieces = if (0..n).any(|d| p.lo[d] >= p.hi[d]) { smallvec![] } else { smallvec![p] };
            let dtype = r.dtype.storage();
            let read = OperandAccess { dtype, fill: r.fill, boxes: pieces };
            let code = Cow::Owned(ScalarCode::copy(dtype));
            self.push(BufferOp::Elementwise(ElementwiseOp {
                out: tmp,
                num_loops: n,
                ext,
                reads: vec![read],
                code,
                code_loop_base: own,
            }));
            made.push(tmp);
        }
        let mut read = r.clone();
        for (k, cut, copied) in leaving {
            let p = &mut read.pieces[k];
            *p = cut;
            if !copied {
                continue;
            }
            let Some(c) = copies.iter().position(|c| p.source == Source::Value(c.0)) else { continue };
            p.source = Source::Value(made[c] - at);
            p.map.iter_mut().zip(&copies[c].1).for_each(|(m, h)| m.constant -= h.0);
        }
        Ok(Some(read))
    }
    /// Returns the copy of the positions `hull` of value `from` to value `to`.
    /// Returns `None` if it has no element.
    fn padded_box(&self, from: Slot, to: Slot, hull: &[(i64, i64)]) -> Option<CopyBox> {
        let (v, to) = (&self.program.values[from], &self.program.values[to]);
        let mut copy = CopyBox {
            from: Source::Value(from),
            ext: [1; MAX_LOOPS],
            src: (0, v.strides),
            dst: (0, to.strides),
        };
        for (d, (lo, hi)) in hull.iter().enumerate() {
            let (first, end) = ((*lo).max(0), (v.shape[d] as i64).min(*hi));
            copy.ext[d] = end - first;
            copy.src.0 += first * v.strides[d];
            copy.dst.0 += (first - lo) * to.strides[d];
        }
        copy.ext.iter().all(|n| *n > 0).then_some(copy)
    }
    /// Copies a strided access to a dense value over the loops that it depends on.
    pub(super) fn pack_strided(
        &mut self,
        r: &Access,
        ext: &LoopVec,
        n: usize,
        lead: usize,
        out: Option<Slot>,
        at: Slot,
    ) -> Result<OperandAccess> {
        let depends = |l: usize| {
            r.pieces.iter().any(|p| {
                let s = p.ranges[l];
                s.lo > 0
                    || s.hi < ext[lead + l]
                    || s.step != 1
                    || p.map.iter().any(|a| a.terms.iter().any(|t| t.0 == l))
            })
        };
        // (the dimensions of the copy are in the order of the source's)
        let dim = |l: usize| {
            let of = |p: &AccessPiece| p.map.iter().position(|a| a.terms.iter().any(|t| t.0 == l));
            r.pieces.iter().find_map(of)
        };
        let mut used: Vec<usize> = (0..n - lead).filter(|l| depends(*l)).collect();
        small_sort::sort_by_key(&mut used, |l| dim(*l));
        // unless there is a loop over partials, the copy has the partials of its source
        let copies = |p: &AccessPiece| match p.source {
            Source::Value(s) => self.program.values[s + at].num_partials,
            Source::Const(_) => 1,
        };
        let own = r.sources().into_iter().map(|s| &self.program.values[s + at]).find(|v| v.num_partials > 1);
        let partial_layout = match lead {
            0 => own.map(|v| v.partial_layout.clone()),
            _ => out.map(|o| self.program.values[o].partial_layout.clone()),
        };
        if lead == 0 && own.is_some() && r.pieces.iter().any(|p| copies(p) == 1) {
            return Err(Error::internal(
                "a reduction reads a fully reduced value together with a partial one",
            ));
        }
        let empty = DimLayout { sub_axes: SmallVec::new(), block: 1, origin: 0 };
        let dtype = r.dtype.storage();
        let shape = used.iter().map(|l| ext[lead + l] as usize).collect();
        let tmp = self.add_value(dtype, shape, partial_layout.clone().unwrap_or(empty))?;
        let mut list = Vec::new();
        for c in 0..self.program.values[tmp].num_partials {
            for p in r.pieces.iter().filter(|p| !p.ranges.iter().any(StridedRange::is_empty)) {
                list.push(self.copy_box(p, &used, (tmp, c), partial_layout.as_ref(), at));
            }
        }
        self.push(BufferOp::Pack { out: tmp, fill: r.fill, parts: list });
        Ok(self.full_access(tmp, dtype, &used, ext, n, lead))
    }
    /// Returns the copy of a piece to partial `c` of the value `to`, whose dimensions are the loops
    /// `used`.
    fn copy_box(
        &self,
        p: &AccessPiece,
        used: &[usize],
        (to, c): (Slot, usize),
        partial_layout: Option<&DimLayout>,
        at: Slot,
    ) -> CopyBox {
        let (mut ext, mut src, mut dst) = ([1; MAX_LOOPS], (0, [0; MAX_LOOPS]), (0, [0; MAX_LOOPS]));
        let to = &self.program.values[to];
        let front = usize::from(to.num_partials > 1);
        if front > 0 {
            dst.0 += c as i64 * to.strides[0];
        }
        for (j, l) in used.iter().enumerate() {
            let (s, w) = (p.ranges[*l], to.strides[j + front]);
            ext[j] = s.len();
            dst.0 += s.lo * w;
            dst.1[j] = s.step * w;
        }
        let Source::Value(k) = p.source else { return CopyBox { from: p.source, ext, src, dst } };
        let v = &self.program.values[k + at];
        let own = usize::from(v.num_partials > 1);
        if let Some(partials) = partial_layout.filter(|_| own > 0) {
            src.0 += v.partial_layout.rank(partials.nearest_position(0, c)) as i64 * v.strides[0];
        }
        for (d, a) in p.map.iter().enumerate() {
            src.0 += a.constant * v.strides[d + own];
            for (l, k) in &a.terms {
                if let Some(j) = used.iter().position(|u| u == l) {
                    src.1[j] += k * v.strides[d + own];
                }
            }
        }
        CopyBox { from: Source::Value(k + at), ext, src, dst }
    }
    /// Returns an access that reads all of value `tmp`, whose dimensions are the loops `used`.
    pub(super) fn full_access(
        &self,
        tmp: Slot,
        dtype: DType,
        used: &[usize],
        ext: &LoopVec,
        n: usize,
        lead: usize,
    ) -> OperandAccess {
        let v = &self.program.values[tmp];
        let mut p = AccessBox::broadcast(Source::Value(tmp), ext, v.shape.rank());
        let own = usize::from(v.num_partials > 1);
        // a reduction adds its own loop over the partials
        if own > 0 && lead > 0 {
            (p.strides[0], p.dim_loops[0]) = (v.strides[0], 0);
        }
        for (d, l) in used.iter().enumerate() {
            (p.strides[lead + l], p.dim_loops[d + own]) = (v.strides[d + own], (lead + l) as u8);
        }
        debug_assert!(used.iter().all(|l| lead + l < n));
        OperandAccess { dtype, fill: Scalar::zero(dtype), boxes: smallvec![p] }
    }
    /// Copies an operand to a value of type `to`, over the loops that it depends on.
    ///
    /// The dimensions of the copy are in the order of the source's, and not of the loops, so that a
    /// sum adds the elements in the order in which it adds those of a stored value.
    pub(super) fn materialize(
        &mut self,
        o: OperandAccess,
        ext: &LoopVec,
        n: usize,
        to: DType,
    ) -> Result<OperandAccess> {
        let depends = |l: usize| {
            o.boxes.iter().any(|p| {
                p.lo[l] > 0 || p.hi[l] < ext[l] || p.strides[l] != 0 || p.dim_loops.contains(&(l as u8))
            })
        };
        let step = |l: usize| o.boxes.iter().map(|p| p.strides[l].abs()).max().unwrap_or(0);
        let dim = |l: usize| {
            o.boxes.iter().find_map(|p| p.dim_loops[..p.rank].iter().position(|x| usize::from(*x) == l))
        };
        let mut used: Vec<usize> = (0..n).filter(|l| depends(*l)).collect();
        // (equal strides are those of dimensions of size 1)
        small_sort::sort_by_key(&mut used, |l| (step(*l) != 0, Reverse(step(*l)), dim(*l)));
        let shape = used.iter().map(|l| ext[*l] as usize).collect();
        let tmp = self.add_value(to, shape, DimLayout { sub_axes: SmallVec::new(), block: 1, origin: 0 })?;
        let mut e = [1; MAX_LOOPS];
        for (d, l) in used.iter().enumerate() {
            e[d] = ext[*l];
        }
        let pieces = o.boxes.iter().map(|p| {
            let mut q = AccessBox {
                lo: [0; MAX_LOOPS],
                hi: e,
                strides: [0; MAX_LOOPS],
                dim_loops: [NO_LOOP; MAX_LOOPS],
                ..p.clone()
            };
            for (d, l) in used.iter().enumerate() {
                (q.lo[d], q.hi[d], q.strides[d]) = (p.lo[*l], p.hi[*l], p.strides[*l]);
            }
            for d in 0..p.rank {
                if let Some(k) = used.iter().position(|l| *l == p.dim_loops[d] as usize) {
                    q.dim_loops[d] = k as u8;
                }
            }
            q
        });
        let read = OperandAccess { dtype: o.dtype, fill: o.fill, boxes: pieces.collect() };
        let fun = if o.dtype == to { ScalarOp::Copy } else { ScalarOp::Convert };
        let code = ScalarCode::single(fun, o.dtype, to, &[ScalarArg::Access(0)]);
        self.push(BufferOp::Elementwise(ElementwiseOp {
            out: tmp,
            num_loops: used.len(),
            ext: e,
            reads: vec![read],
            code: Cow::Owned(code),
            code_loop_base: 0,
        }));
        Ok(self.full_access(tmp, to, &used, ext, n, 0))
    }
    /// Copies an operand that may be partial to a value of type `to`.
    /// A partial operand is packed and converted partial by partial; others go through
    /// `materialize`.
    pub(super) fn materialize_partial(
        &mut self,
        o: OperandAccess,
        ext: &LoopVec,
        n: usize,
        to: DType,
        (r, at): (&Access, Slot),
    ) -> Result<OperandAccess> {
        let values = &self.program.values;
        let partial = |p: &AccessBox| matches!(p.source, Source::Value(v) if values[v].num_partials > 1);
        if !o.boxes.iter().any(partial) {
            return self.materialize(o, ext, n, to);
        }
        let mut o = o;
        if !o.is_single_box(ext, n) || !matches!(r.pieces[..], [_]) {
            let padded = self.pad_windows(r, at)?;
            o = self.pack_strided(padded.as_ref().unwrap_or(r), ext, n, 0, None, at)?;
        }
        let [AccessBox { source: Source::Value(v), .. }] = o.boxes[..] else {
            return Err(Error::internal("a reduction reads a partial value in several boxes"));
        };
        if o.dtype != to {
            let src = &self.program.values[v];
            let (shape, partial_layout) = (src.shape[1..].into(), src.partial_layout.clone());
            let tmp = self.add_value(to, shape, partial_layout)?;
            self.convert(v, tmp);
            o.dtype = to;
            o.boxes[0].source = Source::Value(tmp);
        }
        Ok(o)
    }
    /// Converts value `src` to value `out`, which may have another element type.
    pub(super) fn convert(&mut self, src: Slot, out: Slot) {
        let (v, o) = (&self.program.values[src], &self.program.values[out]);
        let (n, ext) = (v.shape.rank(), extents(&v.shape));
        let fun = if v.dtype == o.dtype { ScalarOp::Copy } else { ScalarOp::Convert };
        let code = ScalarCode::single(fun, v.dtype, o.dtype, &[ScalarArg::Access(0)]);
        let dtype = v.dtype;
        let loops: Vec<usize> = (0..n - usize::from(v.num_partials > 1)).collect();
        let lead = usize::from(v.num_partials > 1);
        let read = self.full_access(src, dtype, &loops, &ext, n, lead);
        self.push(BufferOp::Elementwise(ElementwiseOp {
            out,
            num_loops: n,
            ext,
            reads: vec![read],
            code: Cow::Owned(code),
            code_loop_base: lead,
        }));
    }
}
