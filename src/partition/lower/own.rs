//! A sharded value as a partial one: each device keeps what it holds, in its place, and has zeros elsewhere. Nothing moves.

use crate::partition::draft;
use crate::partition::draft::Item;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::Lower;
use crate::partition::program::{Slot, Step, Why};
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Fun, Part, Read, Sentence, Source, Span};
use crate::sharding::atoms::sorted;
use crate::sharding::atoms::{Atoms, common, ways, without};
use crate::types::{DType, Scalar};

impl Lower {
    /// `src` in the parts of `to`, where it is split over digits of these; `None` where it is not, or not evenly.
    pub(crate) fn own_parts(&mut self, src: Slot, to: &Layout, why: &Why) -> Option<Slot> {
        let from = self.draft.slots[src].clone();
        let parts_of = |l: &Layout| l.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
        let (before, after) = (parts_of(&from.layout), parts_of(to));
        let stay = common(&before, &after);
        let made = without(&after, &stay)?;
        // the digits that split a dimension now and tell parts apart then
        let digits: Vec<Atoms> = from.layout.dims.iter().map(|l| common(&l.atoms, &made)).collect();
        if digits.iter().all(|d| d.is_empty()) {
            return None;
        }
        // as the result, and within its blocks by these digits
        let mut split = Vec::new();
        for ((l, d), n) in to.dims.iter().zip(&digits).zip(&from.shape[..]) {
            if !d.is_empty() && (*n == 0 || n % (l.ways() * ways(d)) != 0) {
                return None;
            }
            split.push(if d.is_empty() {
                l.clone()
            } else {
                DimLayout::new(*n, l.atoms.iter().chain(d).copied())
            });
        }
        let partial = (!stay.is_empty()).then(|| (Combine::Add, sorted(stay)));
        let src = self.draft.laid(src, Layout { dims: split, partial }, why);

        // a dimension in these digits: the result's blocks, blocks of devices in them, elements
        let (mut extents, mut dims, mut map) = (Vec::new(), Vec::new(), Vec::new());
        let mut blocks = Vec::new();
        for (d, n) in from.shape.iter().enumerate() {
            let at = extents.len();
            if digits[d].is_empty() {
                map.push(Affine::of(0, at, 1));
                extents.push(*n);
                dims.push(to.dims[d].clone());
                continue;
            }
            let (outer, inner) = (to.dims[d].ways(), ways(&digits[d]));
            let each = n / outer / inner;
            extents.extend([outer, inner, each]);
            dims.push(DimLayout::new(outer, to.dims[d].atoms.clone()));
            dims.extend([inner, each].map(|size| DimLayout::new(size, [])));
            let mut position = Affine::of(0, at, (inner * each) as i64);
            position.terms.push((at + 2, 1));
            map.push(position);
            blocks.push((d, at + 1, each));
        }
        let rank = extents.len();
        let parted = extents.clone();
        // loops over the parts: the block's own among those that split a dimension, the first among others
        let mut code = Code { insts: Vec::new() };
        let mut mine: Option<Arg> = None;
        let mut folded = Vec::new();
        let mut only = |code: &mut Code, is: [Arg; 2]| {
            let here = code.push(Fun::Eq, DType::I64, DType::Bool, &is);
            mine = Some(match mine {
                Some(others) => code.push(Fun::And, DType::Bool, DType::Bool, &[others, here]),
                None => here,
            });
        };
        for (d, block, each) in blocks {
            let part = extents.len();
            extents.push(parted[block]);
            folded.push(DimLayout::new(parted[block], digits[d].clone()));
            map[d].terms.push((part, each as i64));
            only(&mut code, [Arg::Index(block), Arg::Index(part)]);
        }
        let rest = digits.iter().try_fold(made, |left, d| without(&left, d))?;
        if !rest.is_empty() {
            only(&mut code, [Arg::Index(extents.len()), Arg::Const(Scalar::Int(0))]);
            extents.push(ways(&rest));
            folded.push(DimLayout::new(ways(&rest), sorted(rest)));
        }
        let zero = Scalar::zero(from.dtype);
        code.push(Fun::Select, from.dtype, from.dtype, &[mine?, Arg::Read(0), Arg::Const(zero)]);
        let span = extents.iter().map(|n| Span::all(*n)).collect();
        let part = Part { from: Source::Value(src), span, map };
        let reads = vec![Read { dtype: from.dtype, parts: vec![part], fill: zero }];
        let body = Body::Fold { combine: Combine::Add, code };
        let s = Sentence { extents, rank, dtype: from.dtype, reads, body };
        let there = self.draft.local(s, Layout { dims, partial: to.partial.clone() }, why);
        if let Some(Item { step: Step::Local { layout, .. }, .. }) = self.draft.last() {
            *layout = folded;
        }
        let s = draft::reshape(there, from.dtype, &parted, &from.shape);
        Some(self.emit(s, to.clone(), why, true))
    }
}
