//! Takes and puts: their operands as one map of one value each, and which steps each part of the result is made of.

use super::Building;
#[cfg(not(target_family = "wasm"))]
use crate::compile::flow::Map;
use crate::compile::flow::{Item, Operand, Piece, RankBox, Seek, SeekPart};
use crate::compile::index::{MAX, extents, fits};
use crate::diagnostic::Result;
use crate::partition::{DimLayout, Slot};
#[cfg(not(target_family = "wasm"))]
use crate::program::sentence::{Arg, Fun, Inst};
use crate::program::sentence::{Bound, Combine, Sentence, Source};
use crate::types::DType;

impl Building<'_, '_> {
    /// A take, or a put with its way to combine.
    pub(super) fn seek(
        &mut self,
        out: Slot,
        s: &Sentence,
        layout: &[DimLayout],
        (at, put): (&[Bound], Option<Option<Combine>>),
        first: Slot,
    ) -> Result<()> {
        let n = s.extents.len();
        fits(n)?;
        let ext = extents(&s.extents);
        let v = &self.flow.values[out];
        let (dtype, parts, summed) = (v.dtype, v.parts.clone(), v.layout.and_then(|l| l.partial.as_ref()));
        let neutral = summed.map_or(Combine::Add, |p| p.0).neutral(dtype);
        // sums of 16-bit floats are rounded once
        let rounds = put.flatten().is_some_and(|c| matches!(c, Combine::Add | Combine::Mul));
        let wide = rounds && matches!(dtype, DType::F16 | DType::BF16) && twice(s, at);
        let to = if wide { DType::F32 } else { dtype };
        let mut reads = Vec::with_capacity(s.reads.len());
        #[cfg(not(target_family = "wasm"))]
        let mut back = [0; MAX];
        for (k, r) in s.reads.iter().enumerate() {
            let number = at.iter().any(|b| b.by == k);
            let dtype = if number { r.dtype.storage() } else { to };
            let mut o = self.operand(r, &ext, n, 0, None, first)?;
            let value = |p: &Piece| matches!(p.from, Source::Value(_));
            let plain = o.simple(&ext, n) && o.dtype == dtype && matches!(&o.pieces[..], [p] if value(p));
            // a put begins from a number as well as from a value
            let constant = put.is_some() && k == 0 && o.simple(&ext, n) && !o.pieces.iter().any(value);
            if !plain && !constant {
                o = self.settle_parts(o, &ext, n, dtype, (r, first))?;
            }
            #[cfg(not(target_family = "wasm"))]
            if number && let Some((from, n)) = self.counted_back(&o) {
                o.pieces[0].from = Source::Value(from);
                at.iter().zip(&mut back).filter(|(b, _)| b.by == k).for_each(|(_, back)| *back = n);
            }
            // what a take finds where nothing is: a value that was made for it does not know
            if put.is_none() && k == 0 {
                o.fill = r.fill;
            }
            reads.push(o);
        }
        let part = |c: usize| {
            let place = parts.place(0, c);
            let mut b = RankBox { lo: [0; MAX], hi: ext };
            let mut split = false;
            for (l, size) in s.extents.iter().enumerate().skip(s.rank) {
                if let Some(d) = layout.get(l).filter(|_| parts.ways() > 1) {
                    (b.lo[l], b.hi[l]) = d.range(d.rank(place), *size);
                    split |= !d.atoms.is_empty();
                }
            }
            let ahead = |k: usize| match reads.get(k).and_then(|o: &Operand| o.pieces.first()).map(|p| p.from)
            {
                Some(Source::Value(v)) if self.flow.values[v].copies > 1 => {
                    let v = &self.flow.values[v];
                    v.parts.rank(place) as i64 * v.strides[0]
                }
                _ => 0,
            };
            let boxes = if split || put.is_some() { vec![b] } else { Vec::new() };
            SeekPart { boxes, ahead: [ahead(0), ahead(1)] }
        };
        let parts_made: Vec<SeekPart> = (0..parts.ways()).map(part).collect();
        let mut target = out;
        if wide {
            let v = &self.flow.values[out];
            let shape = v.shape[usize::from(v.copies > 1)..].into();
            target = self.value(to, shape, parts)?;
            self.wide.push((out, target));
        }
        let (at, rank) = (at.to_vec(), s.rank);
        let parts = parts_made;
        self.push(Item::Seek(Seek {
            out: target,
            n,
            rank,
            ext,
            reads,
            at,
            #[cfg(not(target_family = "wasm"))]
            back,
            put,
            parts,
            neutral,
        }));
        if wide {
            self.convert(target, out);
        }
        Ok(())
    }
    /// Of numbers x that are i, or i + n where i is negative: i, and n. So what finds rows reads i, and no pass makes x before it.
    #[cfg(not(target_family = "wasm"))]
    fn counted_back(&self, o: &Operand) -> Option<(Slot, i64)> {
        if !matches!(o.dtype, DType::I32 | DType::I64) {
            return None;
        }
        let read = |m: &Map<'_>, a: &Arg| match a {
            Arg::Read(k) => self.in_step(&m.reads[*k], m).map(|s| self.flow.root(s)),
            _ => None,
        };
        let number = |m: &Map<'_>, a: &Arg| match a {
            Arg::Const(c) => Some(*c),
            Arg::Read(k) => self.number(&m.reads[*k], m),
            _ => None,
        };
        let [Piece { from: Source::Value(x), .. }] = o.pieces[..] else { return None };
        let select = self.map_of(x)?;
        let [Inst { fun: Fun::Select, args, .. }] = &select.code.insts[..] else { return None };
        let [which, on, i] = [0, 1, 2].map(|k| read(select, &args[k]));
        let (which, on, i) = (self.map_of(which?)?, self.map_of(on?)?, i?);
        let ([Inst { fun: Fun::Lt, args: below, .. }], [Inst { fun: Fun::Add, args: sum, .. }]) =
            (&which.code.insts[..], &on.code.insts[..])
        else {
            return None;
        };
        let zero = number(which, &below[1])?.to_i128() == 0;
        let most = if o.dtype == DType::I32 { i64::from(i32::MAX) } else { i64::MAX };
        let n = i64::try_from(number(on, &sum[1])?.to_i128()).ok().filter(|n| (0..=most).contains(n))?;
        let same = read(which, &below[0]) == Some(i) && read(on, &sum[0]) == Some(i);
        (zero && same && self.flow.values[i].dtype == o.dtype).then_some((i, n))
    }
    /// Makes what a take or a put makes as parts at once as the parts `from` of each part of `out` together, if it can.
    pub(super) fn sought(
        &mut self,
        src: Slot,
        out: Slot,
        from: &[impl AsRef<[usize]>],
        combine: Combine,
    ) -> bool {
        let maker = self.maker[src];
        if self.readers[src] != 1 || maker == u32::MAX {
            return false;
        }
        let Item::Seek(t) = &mut self.flow.items[maker as usize] else { return false };
        let onto = match t.put {
            // what is taken has one part that is there, the others are nothing; parts of a type are added to 0
            None => combine != Combine::Add,
            Some(how) => {
                how == Some(combine) && !t.reads[0].pieces.iter().any(|p| matches!(p.from, Source::Value(_)))
            }
        };
        if !onto || t.out != src || t.parts.iter().any(|p| p.ahead != [0, 0]) {
            return false;
        }
        let old = std::mem::take(&mut t.parts);
        let together = |list: &[usize]| {
            // all that there is: nothing is left out
            let all = t.put.is_none() && list.len() == old.len();
            let boxes = list.iter().filter(|_| !all).flat_map(|c| old[*c].boxes.iter().cloned()).collect();
            SeekPart { boxes, ahead: [0, 0] }
        };
        t.parts = from.iter().map(|list| together(list.as_ref())).collect();
        t.out = out;
        self.maker[out] = maker;
        true
    }
}

/// Whether an element may be met twice: some loop of the updates is no window's, or says where.
fn twice(s: &Sentence, at: &[Bound]) -> bool {
    let says = |b: &Bound, l: usize| {
        s.reads[b.by].parts.iter().any(|p| p.map.iter().any(|m| m.terms.iter().any(|t| t.0 == l)))
    };
    (s.rank..s.extents.len()).any(|l| {
        s.extents[l] > 1 && (at.iter().all(|b| b.window != Some(l)) || at.iter().any(|b| says(b, l)))
    })
}
