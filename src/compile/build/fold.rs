//! Folds, products, and reductions over the parts of a value.

use super::Building;
use crate::compile::flow::{Fold, Item, Operand, Piece, RankBox};
use crate::compile::index::{MAX, extents, fits};
use crate::diagnostic::Result;
use crate::partition::{DimLayout, Slot};
use crate::program::sentence::{Arg, Code, Combine, Fun, Sentence, Source};
use crate::types::{DType, Scalar};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

/// How a fold of one element leaves it as it is, where any would do.
fn of_one(combine: Combine, dtype: DType) -> Combine {
    match combine {
        Combine::Same if dtype == DType::Bool => Combine::Or,
        // (complex numbers have no order: a kernel of their own)
        Combine::Same if !dtype.is_complex() => Combine::Max,
        combine => combine,
    }
}

impl<'p> Building<'p, '_> {
    /// A fold, or a product if there is no code, computed in `dtype`.
    pub(super) fn fold(
        &mut self,
        out: Slot,
        s: &'p Sentence,
        layout: &[DimLayout],
        mut code: Option<(Combine, Cow<'p, Code>)>,
        dtype: DType,
        at: Slot,
    ) -> Result<()> {
        let n = s.extents.len();
        let same = code.as_ref().is_some_and(|c| c.0 == Combine::Same);
        code.iter_mut().for_each(|c| c.0 = of_one(c.0, dtype));
        fits(n)?;
        let mut ext = extents(&s.extents);
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
                let to = if code.is_none() { dtype } else { r.dtype.storage() };
                o = self.settle_parts(o, &ext, n, to, (r, at))?;
            }
            reads.push(o);
        }
        // a partial operand has one more loop, over these; each rank takes its own
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
                if same {
                    b.hi[l] = b.hi[l].min(b.lo[l] + 1);
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
    pub(super) fn reduce(&mut self, src: Slot, out: Slot, combine: Combine) -> Result<()> {
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
    pub(super) fn gather_parts(&mut self, src: Slot, out: Slot, combine: Combine) -> Result<()> {
        let (s, o) = (&self.flow.values[src], &self.flow.values[out]);
        // for each part of the result the parts that make it, in rank order
        let mut from: Vec<SmallVec<[usize; 8]>> = vec![SmallVec::new(); o.copies];
        for c in 0..s.copies {
            let parts = &mut from[o.parts.rank(s.parts.place(0, c))];
            if parts.is_empty() || combine != Combine::Same {
                parts.push(c);
            }
        }
        let (maker, combine) = (self.maker[src], of_one(combine, s.dtype));
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
        if self.sought(src, out, &from, combine) {
            return Ok(());
        }
        let (s, o) = (&self.flow.values[src], &self.flow.values[out]);
        let rank = s.shape.rank() - usize::from(s.copies > 1);
        let narrow =
            matches!(s.dtype, DType::F16 | DType::BF16) && matches!(combine, Combine::Add | Combine::Mul);
        let dtype = if narrow { DType::F32 } else { s.dtype };
        let mut ext = extents(&s.shape[usize::from(s.copies > 1)..]);
        let n = rank + 1;
        fits(n)?;
        ext[rank] = s.copies as i64;
        let mut p = Piece::over(Source::Value(src), &ext, s.shape.rank());
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
}
