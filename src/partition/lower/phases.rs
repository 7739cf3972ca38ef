//! Lines whose blocks are on several devices, in two phases: each device does its blocks, and what all must know of them is little.
//!
//! A scan tells each block's total; the k greatest elements are among the k greatest of the blocks. Where that is more than
//! moving or gathering the lines, they are left whole: where they are is chosen with all other steps.

use crate::partition::draft;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::Lower;
use crate::partition::program::{Slot, Why};
use crate::program::sentence::{Affine, Arg, Body, Code, Fun, Lines, Part, Read, Sentence, Source, Span};
use crate::program::{Cut, Line};
use crate::types::{DType, Scalar};
use std::sync::Arc;

/// Lines of one value along one dimension of it, of which each device has blocks of the same size.
struct Blocks {
    /// The value.
    slot: Slot,
    dtype: DType,
    /// Its shape, with the number of blocks in place of the line's size.
    shape: Vec<usize>,
    /// Along which dimension.
    axis: usize,
    /// Elements of a block.
    each: usize,
    /// How dimensions are sharded; of the line's the blocks.
    dims: Vec<DimLayout>,
}

impl Lower {
    /// The results of lines in two phases; `None` where they are not cut, or where that would tell more.
    pub(crate) fn phases(&mut self, list: &[Sentence], layouts: &[Layout], why: &Why) -> Option<Vec<Slot>> {
        let Body::Lines(lines) = &list.first()?.body else { return None };
        let blocks = self.blocks(&list[0], lines, layouts)?;
        let (n, size) = (blocks.shape[blocks.axis], blocks.each * blocks.shape[blocks.axis]);
        match lines.of.cut(blocks.dtype) {
            Cut::Scan { total, dtype, before, block } => {
                // the result is sharded as the operand; to move lines and back takes 2·size/n of each device
                let alike =
                    layouts[0].dims[blocks.axis] == self.draft.slots[blocks.slot].layout.dims[blocks.axis];
                if list.len() != 1 || !alike || n * n >= 2 * size {
                    return None;
                }
                let totals = self.totals(&blocks, total, dtype, why);
                let sums = self.before(&blocks, totals, before, dtype, why);
                Some(vec![self.onward(&blocks, sums, block, dtype, &layouts[0], why)])
            }
            Cut::Best { k, block, of } => {
                // values and places
                if 2 * n * k >= size || k > blocks.each {
                    return None;
                }
                let found = self.candidates(&blocks, k, block, list, why);
                Some(
                    list.iter()
                        .zip(layouts)
                        .map(|(s, to)| self.best(&blocks, k, &of, found, s, to, why))
                        .collect(),
                )
            }
            Cut::Whole => None,
        }
    }

    /// The blocks of a sentence of lines.
    fn blocks(&self, s: &Sentence, lines: &Lines, layouts: &[Layout]) -> Option<Blocks> {
        let ([axis], [read]) = (&lines.along[..], &s.reads[..]) else { return None };
        let (axis, [part]) = (*axis, &read.parts[..]) else { return None };
        let Source::Value(slot) = part.from else { return None };
        let stored = &self.draft.slots[slot];
        let at = |d| Affine::of(0, if d == axis { s.rank } else { d }, 1);
        let plain = s.extents.len() == s.rank + 1
            && stored.shape.rank() == s.rank
            && part.map.iter().enumerate().all(|(d, m)| *m == at(d));
        let whole = stored.layout.partial.is_none() && layouts.iter().all(|l| l.partial.is_none());
        if !plain || !whole {
            return None;
        }
        let (held, size) = (&stored.layout.dims[axis], stored.shape[axis]);
        let n = held.ways();
        if n == 1 || size == 0 || size % n != 0 || *held != DimLayout::new(size, held.atoms.clone()) {
            return None;
        }
        let mut shape = stored.shape.to_vec();
        shape[axis] = n;
        let mut dims = stored.layout.dims.clone();
        dims[axis] = DimLayout::new(n, held.atoms.clone());
        Some(Blocks { slot, dtype: stored.dtype, shape, axis, each: size / n, dims })
    }

    /// What each block adds up to.
    fn totals(&mut self, b: &Blocks, of: Arc<dyn Line>, dtype: DType, why: &Why) -> Slot {
        let rank = b.shape.len();
        let extents: Vec<usize> = b.shape.iter().copied().chain([b.each]).collect();
        let body = Body::Lines(Lines { of, result: 0, along: Default::default() });
        let reads = vec![b.read(&extents, |d| d, rank)];
        let s = Sentence { extents, rank, dtype, reads, body };
        self.draft.local(s, Layout { dims: b.dims.clone(), partial: None }, why)
    }
    /// For each block what those before it add up to.
    fn before(&mut self, b: &Blocks, totals: Slot, of: Arc<dyn Line>, dtype: DType, why: &Why) -> Slot {
        let rank = b.shape.len();
        let extents: Vec<usize> = b.shape.iter().copied().chain([b.shape[b.axis]]).collect();
        let loops: Vec<_> = (0..rank).map(|d| Some(if d == b.axis { rank } else { d })).collect();
        let reads = vec![Read::plain(totals, dtype, &extents, &loops)];
        let body = Body::Lines(Lines { of, result: 0, along: std::iter::once(b.axis).collect() });
        let s = Sentence { extents, rank, dtype, reads, body };
        self.draft.local(s, Layout { dims: b.dims.clone(), partial: None }, why)
    }
    /// The blocks of the result, put together.
    fn onward(
        &mut self,
        b: &Blocks,
        sums: Slot,
        of: Arc<dyn Line>,
        dtype: DType,
        to: &Layout,
        why: &Why,
    ) -> Slot {
        let (shape, dims) = b.with(b.each);
        let rank = shape.len();
        let extents: Vec<usize> = shape.iter().copied().chain([b.each]).collect();
        let loops: Vec<_> = (0..b.shape.len()).map(|d| Some(b.place(d))).collect();
        let reads = vec![b.read(&extents, |d| b.place(d), rank), Read::plain(sums, dtype, &extents, &loops)];
        let body = Body::Lines(Lines { of, result: 0, along: std::iter::once(b.axis + 1).collect() });
        let s = Sentence { extents, rank, dtype: b.dtype, reads, body };
        let parts = self.draft.local(s, Layout { dims, partial: None }, why);
        let mut whole = b.shape.clone();
        whole[b.axis] *= b.each;
        let s = draft::reshape(parts, b.dtype, &shape, &whole);
        self.draft.local(s, to.clone(), why)
    }

    /// The best of each block, and their places in the line.
    fn candidates(
        &mut self,
        b: &Blocks,
        k: usize,
        of: Arc<dyn Line>,
        list: &[Sentence],
        why: &Why,
    ) -> [Slot; 2] {
        let (shape, dims) = b.with(k);
        let rank = shape.len();
        let extents: Vec<usize> = shape.iter().copied().chain([b.each]).collect();
        let layout = Layout { dims, partial: None };
        let [values, places] = [0, 1].map(|result| {
            let along = std::iter::once(b.axis + 1).collect();
            let body = Body::Lines(Lines { of: of.clone(), result, along });
            let reads = vec![b.read(&extents, |d| b.place(d), rank)];
            let dtype = [b.dtype, DType::I32][result];
            let s = Sentence { extents: extents.clone(), rank, dtype, reads, body };
            self.draft.local(s, layout.clone(), why)
        });
        debug_assert!(list.len() <= 2, "values and places");
        let mut code = Code { insts: Vec::new() };
        let block = code.push(Fun::Convert, DType::I64, DType::I32, &[Arg::Index(b.axis)]);
        let each = Arg::Const(Scalar::Int(b.each as i128));
        let begin = code.push(Fun::Mul, DType::I32, DType::I32, &[block, each]);
        code.push(Fun::Add, DType::I32, DType::I32, &[Arg::Read(0), begin]);
        let loops: Vec<_> = (0..rank).map(Some).collect();
        let reads = vec![Read::plain(places, DType::I32, &shape, &loops)];
        let s = Sentence { extents: shape, rank, dtype: DType::I32, reads, body: Body::Map(code) };
        [values, self.draft.local(s, layout, why)]
    }
    /// A result of the candidates.
    #[expect(clippy::too_many_arguments, reason = "what it is, of what, and where it is")]
    fn best(
        &mut self,
        b: &Blocks,
        k: usize,
        of: &Arc<dyn Line>,
        found: [Slot; 2],
        s: &Sentence,
        to: &Layout,
        why: &Why,
    ) -> Slot {
        let Body::Lines(lines) = &s.body else { unreachable!("its lines were cut") };
        let rank = s.rank;
        let extents: Vec<usize> = s.extents[..rank].iter().copied().chain([b.shape[b.axis], k]).collect();
        // blocks, then their candidates
        let at = |d: usize| match d {
            d if d < b.axis => d,
            d if d == b.axis => rank,
            d if d == b.axis + 1 => rank + 1,
            d => d - 1,
        };
        let loops: Vec<_> = (0..=rank).map(|d| Some(at(d))).collect();
        let read = |(slot, dtype)| Read::plain(slot, dtype, &extents, &loops);
        let reads = found.into_iter().zip([b.dtype, DType::I32]).map(read).collect();
        let body = Body::Lines(Lines { of: of.clone(), ..lines.clone() });
        let s = Sentence { extents, rank, dtype: s.dtype, reads, body };
        self.draft.local(s, to.clone(), why)
    }
}

impl Blocks {
    /// The dimension that d is behind that of the blocks, where a block's own comes next.
    fn place(&self, d: usize) -> usize {
        if d > self.axis { d + 1 } else { d }
    }
    /// Shape and layout with a dimension of this size behind that of the blocks.
    fn with(&self, size: usize) -> (Vec<usize>, Vec<DimLayout>) {
        let (mut shape, mut dims) = (self.shape.clone(), self.dims.clone());
        shape.insert(self.axis + 1, size);
        dims.insert(self.axis + 1, DimLayout::new(size, []));
        (shape, dims)
    }
    /// The value by blocks: its dimension d at the loop `place(d)`, the elements of a block at the loop `along`.
    fn read(&self, extents: &[usize], place: impl Fn(usize) -> usize, along: usize) -> Read {
        let at = |d: usize| {
            let mut m = Affine::of(0, place(d), if d == self.axis { self.each as i64 } else { 1 });
            if d == self.axis {
                m.terms.push((along, 1));
            }
            m
        };
        let map = (0..self.shape.len()).map(at).collect();
        let part = Part { from: Source::Value(self.slot), span: Span::whole(extents), map };
        Read { dtype: self.dtype, parts: vec![part], fill: Scalar::zero(self.dtype) }
    }
}
