//! Lines whose blocks are on several devices, in two phases: each device does its blocks, and what all must know of them is little.
//!
//! A scan tells each block's total; the k greatest elements are among the k greatest of the blocks. Where that is more than
//! moving or gathering the lines, they are left whole: where they are is chosen with all other steps.

use crate::partition::draft;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::Lower;
use crate::partition::program::{Slot, Stored, Why};
use crate::program::sentence::{Affine, Arg, Body, Code, Fun, Lines, Part, Read, Sentence, Source, Span};
use crate::program::{Cut, Line};
use crate::types::{DType, Scalar};
use std::sync::Arc;

/// Lines of values that are sharded the same way, along one dimension, of which each device has a block.
struct Blocks {
    /// The values, of one shape, with their element types.
    reads: Vec<(Slot, DType)>,
    /// Their shape, with the number of blocks in place of the line's size.
    shape: Vec<usize>,
    /// Along which dimension.
    axis: usize,
    /// Elements of a line.
    size: usize,
    /// Elements of a block; the last ones may have fewer.
    each: usize,
    /// How dimensions are sharded; of the line's the blocks.
    dims: Vec<DimLayout>,
}

impl Lower {
    /// The results of lines in two phases; `None` where they are not cut, or where that would tell more.
    pub(crate) fn phases(&mut self, list: &[Sentence], layouts: &[Layout], why: &Why) -> Option<Vec<Slot>> {
        let Body::Lines(lines) = &list.first()?.body else { return None };
        let dtypes: Vec<DType> = list[0].reads.iter().map(|r| r.dtype).collect();
        let cut = lines.of.cut(&dtypes);
        if let Cut::Sum { over } = &cut {
            return self.sums(list, over, layouts, why);
        }
        let mut blocks = self.blocks(&list[0], lines, layouts)?;
        let (n, size) = (blocks.shape[blocks.axis], blocks.size);
        match cut {
            Cut::Scan { totals, told, before, state, block, neutral } => {
                // the result is sharded as the operands; to move one and the result takes 2·size/n of each device
                let alike = layouts[0].dims[blocks.axis]
                    == self.draft.slots[blocks.reads[0].0].layout.dims[blocks.axis];
                if list.len() != 1 || !alike || told.len() * n * n >= (1 + blocks.reads.len()) * size {
                    return None;
                }
                self.even(&mut blocks, &neutral, why);
                let totals = self.totals(&blocks, &totals, &told, why);
                let states = self.before(&blocks, totals, before, state, why);
                Some(vec![self.onward(&blocks, states, block, (list[0].dtype, state), &layouts[0], why)])
            }
            Cut::Best { k, block, of, neutral } => {
                // values and places
                if 2 * n * k >= size || k > blocks.each {
                    return None;
                }
                self.even(&mut blocks, &[neutral], why);
                let found = self.candidates(&blocks, k, block, list, why);
                Some(
                    list.iter()
                        .zip(layouts)
                        .map(|(s, to)| self.best(&blocks, k, &of, found, s, to, why))
                        .collect(),
                )
            }
            Cut::Sum { .. } | Cut::Whole => None,
        }
    }

    /// The blocks of a sentence of lines.
    fn blocks(&self, s: &Sentence, lines: &Lines, layouts: &[Layout]) -> Option<Blocks> {
        let [axis] = lines.along[..] else { return None };
        if s.extents.len() != s.rank + 1 || layouts.iter().any(|l| l.partial.is_some()) {
            return None;
        }
        let at = |d| Affine::of(0, if d == axis { s.rank } else { d }, 1);
        let read = |read: &Read| {
            let [part] = &read.parts[..] else { return None };
            let Source::Value(slot) = part.from else { return None };
            let stored = &self.draft.slots[slot];
            let plain =
                stored.shape.rank() == s.rank && part.map.iter().enumerate().all(|(d, m)| *m == at(d));
            (plain && stored.layout.partial.is_none()).then_some((slot, stored.dtype))
        };
        let reads: Vec<_> = s.reads.iter().map(read).collect::<Option<_>>()?;
        let first = &self.draft.slots[reads.first()?.0];
        let (held, size) = (&first.layout.dims[axis], first.shape[axis]);
        let alike = reads.iter().all(|(slot, _)| {
            let other = &self.draft.slots[*slot];
            other.shape == first.shape && other.layout.dims[axis] == *held
        });
        let n = held.ways();
        if !alike || n == 1 || size == 0 || *held != DimLayout::new(size, held.atoms.clone()) {
            return None;
        }
        let mut shape = first.shape.to_vec();
        shape[axis] = n;
        let mut dims = first.layout.dims.clone();
        dims[axis] = DimLayout::new(n, held.atoms.clone());
        Some(Blocks { reads, shape, axis, size, each: size.div_ceil(n), dims })
    }
    /// Makes all blocks of one size: beyond the end are numbers that change nothing.
    fn even(&mut self, b: &mut Blocks, neutral: &[Scalar], why: &Why) {
        let n = b.shape[b.axis];
        if b.size == n * b.each {
            return;
        }
        for ((slot, dtype), fill) in b.reads.iter_mut().zip(neutral) {
            let Stored { shape, mut layout, .. } = self.draft.slots[*slot].clone();
            let mut extents = shape.to_vec();
            extents[b.axis] = n * b.each;
            let loops: Vec<_> = (0..extents.len()).map(Some).collect();
            let mut read = Read { fill: *fill, ..Read::plain(*slot, *dtype, &extents, &loops) };
            read.parts[0].span[b.axis] = Span::all(b.size);
            layout.dims[b.axis] = DimLayout::new(n * b.each, layout.dims[b.axis].atoms.clone());
            *slot = self.draft.local(draft::mapped(read, &extents), layout, why);
        }
    }

    /// What each block adds up to.
    fn totals(&mut self, b: &Blocks, of: &Arc<dyn Line>, told: &[DType], why: &Why) -> Vec<(Slot, DType)> {
        let rank = b.shape.len();
        let extents: Vec<usize> = b.shape.iter().copied().chain([b.each]).collect();
        let reads = b.reads(&extents, |d| d, rank);
        let one = |(result, dtype): (usize, &DType)| {
            let body = Body::Lines(Lines { of: of.clone(), result, along: Default::default() });
            let s = Sentence { extents: extents.clone(), rank, dtype: *dtype, reads: reads.clone(), body };
            (self.draft.local(s, Layout { dims: b.dims.clone(), partial: None }, why), *dtype)
        };
        told.iter().enumerate().map(one).collect()
    }
    /// For each block what those before it add up to.
    fn before(
        &mut self,
        b: &Blocks,
        totals: Vec<(Slot, DType)>,
        of: Arc<dyn Line>,
        dtype: DType,
        why: &Why,
    ) -> Slot {
        let rank = b.shape.len();
        let extents: Vec<usize> = b.shape.iter().copied().chain([b.shape[b.axis]]).collect();
        let loops: Vec<_> = (0..rank).map(|d| Some(if d == b.axis { rank } else { d })).collect();
        let reads = totals.into_iter().map(|(slot, dtype)| Read::plain(slot, dtype, &extents, &loops));
        let reads = reads.collect();
        let body = Body::Lines(Lines { of, result: 0, along: std::iter::once(b.axis).collect() });
        let s = Sentence { extents, rank, dtype, reads, body };
        self.draft.local(s, Layout { dims: b.dims.clone(), partial: None }, why)
    }
    /// The blocks of the result, put together.
    fn onward(
        &mut self,
        b: &Blocks,
        states: Slot,
        of: Arc<dyn Line>,
        (dtype, state): (DType, DType),
        to: &Layout,
        why: &Why,
    ) -> Slot {
        let (shape, dims) = b.with(b.each);
        let rank = shape.len();
        let extents: Vec<usize> = shape.iter().copied().chain([b.each]).collect();
        let loops: Vec<_> = (0..b.shape.len()).map(|d| Some(b.place(d))).collect();
        let mut reads = b.reads(&extents, |d| b.place(d), rank);
        reads.push(Read::plain(states, state, &extents, &loops));
        let body = Body::Lines(Lines { of, result: 0, along: std::iter::once(b.axis + 1).collect() });
        let s = Sentence { extents, rank, dtype, reads, body };
        let parts = self.draft.local(s, Layout { dims, partial: None }, why);
        let mut whole = b.shape.clone();
        whole[b.axis] *= b.each;
        let s = draft::reshape(parts, dtype, &shape, &whole);
        let mut layout = to.clone();
        layout.dims[b.axis] = DimLayout::new(whole[b.axis], to.dims[b.axis].atoms.clone());
        let all = self.draft.local(s, layout, why);
        if whole[b.axis] == b.size {
            return all;
        }
        whole[b.axis] = b.size;
        self.draft.local(draft::copy(all, dtype, &whole), to.clone(), why)
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
            let reads = b.reads(&extents, |d| b.place(d), rank);
            let dtype = [b.reads[0].1, DType::I32][result];
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
        let reads = found.into_iter().zip([b.reads[0].1, DType::I32]).map(read).collect();
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
    /// The values by blocks: their dimension d at the loop `place(d)`, the elements of a block at the loop `along`.
    fn reads(&self, extents: &[usize], place: impl Fn(usize) -> usize, along: usize) -> Vec<Read> {
        let at = |d: usize| {
            let mut m = Affine::of(0, place(d), if d == self.axis { self.each as i64 } else { 1 });
            if d == self.axis {
                m.terms.push((along, 1));
            }
            m
        };
        let map: Vec<Affine> = (0..self.shape.len()).map(at).collect();
        let read = |(slot, dtype): &(Slot, DType)| {
            let part = Part { from: Source::Value(*slot), span: Span::whole(extents), map: map.clone() };
            Read { dtype: *dtype, parts: vec![part], fill: Scalar::zero(*dtype) }
        };
        self.reads.iter().map(read).collect()
    }
}
