//! Whole lines: their operands as one map of one value each, and the results of one function as one item.

use super::Building;
use crate::compile::flow::{Item, LinesItem, LinesOut, Operand};
use crate::compile::index::{extents, fits};
use crate::diagnostic::{Error, Result};
use crate::partition::Slot;
use crate::program::sentence::{Affine, Lines, Part, Read, Sentence, Source};

impl Building<'_, '_> {
    pub(super) fn lines(&mut self, out: Slot, s: &Sentence, l: &Lines, at: Slot) -> Result<()> {
        let lead = usize::from(self.flow.values[out].copies > 1);
        let over: Vec<usize> = (0..s.rank).filter(|k| !l.along.contains(k)).collect();
        // loops without those along the result, which no read depends on
        let loops: Vec<usize> = over.iter().copied().chain(s.rank..s.extents.len()).collect();
        let parts = (lead > 0).then_some(self.flow.values[out].copies);
        let sizes: Vec<usize> = parts.into_iter().chain(loops.iter().map(|k| s.extents[*k])).collect();
        let n = sizes.len();
        fits(n)?;
        let ext = extents(&sizes);
        let mut asked = Vec::with_capacity(s.reads.len());
        for r in &s.reads {
            let mut operand = self.operand(&within(r, &loops), &ext, n, lead, Some(out), at)?;
            let partly = |o: &Operand| o.pieces.len() > 1 || o.pieces.iter().any(|p| !p.covers(&ext, n));
            if lead == 0 && partly(&operand) {
                operand = self.settle(operand, &ext, n, r.dtype.storage())?;
            }
            if partly(&operand) {
                return Err(Error::internal("lines are read from several values"));
            }
            operand.pieces.retain(|_| ext[..n].iter().all(|e| *e > 0));
            asked.push(operand);
        }
        let dims = (0..lead).chain(over.iter().chain(&l.along).map(|k| k + lead)).collect();
        let made = LinesOut { result: l.result, out, dims };
        let (key, lines) = (l.of.key(), lead + over.len());
        let alike = |item: &Item<'_>| match item {
            Item::Lines(o) => {
                (o.over, o.n, o.ext) == (lines, n, ext) && o.asked == asked && o.of.key() == key
            }
            _ => false,
        };
        let sibling = self.flow.items.iter().rposition(alike);
        if let Some(k) = sibling
            && let Item::Lines(o) = &mut self.flow.items[k]
            && o.outs.iter().all(|o| o.result != l.result)
        {
            o.outs.push(made);
            self.maker[out] = k as u32;
            return Ok(());
        }
        let mut reads = Vec::with_capacity(asked.len());
        for o in &asked {
            let view = |o: &Operand| matches!(&o.pieces[..], [p] if matches!(p.from, Source::Value(_)) && p.st.iter().all(|s| *s >= 0));
            let storage = o.dtype.storage();
            reads.push(if view(o) { o.clone() } else { self.settle(o.clone(), &ext, n, storage)? });
        }
        let item = LinesItem { of: l.of.clone(), over: lines, n, ext, reads, asked, outs: vec![made] };
        self.push(Item::Lines(item));
        Ok(())
    }
}

/// A read over these of its loops only.
fn within(r: &Read, loops: &[usize]) -> Read {
    let place = |l: usize| loops.iter().position(|k| *k == l).unwrap_or(0);
    let moved = |m: &Affine| Affine { at: m.at, terms: m.terms.iter().map(|t| (place(t.0), t.1)).collect() };
    let part = |p: &Part| Part {
        from: p.from,
        span: loops.iter().map(|l| p.span[*l]).collect(),
        map: p.map.iter().map(moved).collect(),
    };
    Read { parts: r.parts.iter().map(part).collect(), ..r.clone() }
}
