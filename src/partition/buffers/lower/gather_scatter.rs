//! Lowers gathers and scatters, and finds the updates and indices of each partial of the result.

use super::ProgramLowering;
use crate::core::diagnostic::Result;
use crate::core::types::DType;
use crate::ir::program::loop_nest::{DynamicIndex, LoopNest, Reducer, Source};
use crate::ir::program::loop_nest::{ScalarArg, ScalarInst, ScalarOp};
use crate::partition::buffers::ElementwiseOp;
use crate::partition::buffers::index::{MAX_LOOPS, check_num_loops, extents};
use crate::partition::buffers::{
    AccessBox, BufferOp, GatherScatterOp, GatherScatterPartial, OperandAccess, ShardBox,
};
use crate::partition::{DimLayout, Slot};

impl ProgramLowering<'_> {
    /// Lowers a gather, or a scatter if `put` holds its reducer.
    /// `at` has the dynamic indices, and `first` is the first slot of the program.
    pub(super) fn lower_gather_scatter(
        &mut self,
        out: Slot,
        s: &LoopNest,
        layout: &[DimLayout],
        (at, put): (&[DynamicIndex], Option<Option<Reducer>>),
        first: Slot,
    ) -> Result<()> {
        let n = s.extents.len();
        check_num_loops(n)?;
        let ext = extents(&s.extents);
        let v = &self.program.values[out];
        let (dtype, partial_layout, summed) =
            (v.dtype, v.partial_layout.clone(), v.layout.and_then(|l| l.partial.as_ref()));
        let neutral = summed.map_or(Reducer::Add, |p| p.0).neutral(dtype);
        // sums of 16-bit floats are computed in float32, so that they are rounded once
        let rounds = put.flatten().is_some_and(|c| matches!(c, Reducer::Add | Reducer::Mul));
        let wide = rounds && matches!(dtype, DType::F16 | DType::BF16) && may_repeat_elements(s, at);
        let to = if wide { DType::F32 } else { dtype };
        let mut reads = Vec::with_capacity(s.accesses.len());
        let mut back = [0; MAX_LOOPS];
        for (k, r) in s.accesses.iter().enumerate() {
            let number = at.iter().any(|b| b.operand == k);
            let dtype = if number { r.dtype.storage() } else { to };
            let mut o = self.lower_access(r, &ext, n, 0, None, first)?;
            let value = |p: &AccessBox| matches!(p.source, Source::Value(_));
            let plain =
                o.is_single_box(&ext, n) && o.dtype == dtype && matches!(&o.boxes[..], [p] if value(p));
            // a scatter may start from a constant
            let constant = put.is_some() && k == 0 && o.is_single_box(&ext, n) && !o.boxes.iter().any(value);
            if !plain && !constant {
                o = self.materialize_partial(o, &ext, n, dtype, (r, first))?;
            }
            if number && let Some((from, n)) = self.wrapped_index_source(&o) {
                o.boxes[0].source = Source::Value(from);
                at.iter().zip(&mut back).filter(|(b, _)| b.operand == k).for_each(|(_, back)| *back = n);
            }
            // a gather keeps its fill for out-of-bounds indices, which a copy of the operand has
            // lost
            if put.is_none() && k == 0 {
                o.fill = r.fill;
            }
            reads.push(o);
        }
        let part =
            |c: usize| self.gather_scatter_partial(s, layout, (&partial_layout, c), &reads, put.is_some());
        let partials = (0..partial_layout.num_shards()).map(part).collect();
        let target = self.accumulator(out, to)?;
        self.push(BufferOp::GatherScatter(GatherScatterOp {
            out: target,
            num_loops: n,
            rank: s.rank,
            ext,
            reads,
            indices: at.to_vec(),
            negative_offsets: back,
            scatter: put,
            partials,
            neutral,
        }));
        if wide {
            self.convert(target, out);
        }
        Ok(())
    }
    /// Returns partial `c` of the result of a gather or a scatter.
    fn gather_scatter_partial(
        &self,
        s: &LoopNest,
        layout: &[DimLayout],
        (partial_layout, c): (&DimLayout, usize),
        reads: &[OperandAccess],
        is_scatter: bool,
    ) -> GatherScatterPartial {
        let position = partial_layout.nearest_position(0, c);
        let mut b = ShardBox { lo: [0; MAX_LOOPS], hi: extents(&s.extents) };
        let mut split = false;
        for (l, size) in s.extents.iter().enumerate().skip(s.rank) {
            if let Some(d) = layout.get(l).filter(|_| partial_layout.num_shards() > 1) {
                (b.lo[l], b.hi[l]) = d.range(d.rank(position), *size);
                split |= !d.sub_axes.is_empty();
            }
        }
        let ahead = |k: usize| match reads.get(k).and_then(|o| o.boxes.first()).map(|p| p.source) {
            Some(Source::Value(v)) if self.program.values[v].num_partials > 1 => {
                let v = &self.program.values[v];
                v.partial_layout.rank(position) as i64 * v.strides[0]
            }
            _ => 0,
        };
        let boxes = if split || is_scatter { vec![b] } else { Vec::new() };
        GatherScatterPartial { boxes, operand_offsets: [ahead(0), ahead(1)] }
    }
    /// Returns the value i and the size n if an index operand is `if i < 0 { i + n } else { i }`.
    /// The kernel then reads i and adds n itself, so that the wrapped index is never stored.
    fn wrapped_index_source(&self, o: &OperandAccess) -> Option<(Slot, i64)> {
        if !matches!(o.dtype, DType::I32 | DType::I64) {
            return None;
        }
        let read = |m: &ElementwiseOp<'_>, a: &ScalarArg| match a {
            ScalarArg::Access(k) => self.identity_read(&m.reads[*k], m).map(|s| self.program.alias_root(s)),
            _ => None,
        };
        let number = |m: &ElementwiseOp<'_>, a: &ScalarArg| match a {
            ScalarArg::Const(c) => Some(*c),
            ScalarArg::Access(k) => self.constant_read(&m.reads[*k], m),
            _ => None,
        };
        let [AccessBox { source: Source::Value(x), .. }] = o.boxes[..] else { return None };
        let select = self.elementwise_producer(x)?;
        let [ScalarInst { op: ScalarOp::Select, args, .. }] = &select.code.insts[..] else { return None };
        let [which, on, i] = [0, 1, 2].map(|k| read(select, &args[k]));
        let (which, on, i) = (self.elementwise_producer(which?)?, self.elementwise_producer(on?)?, i?);
        let (
            [ScalarInst { op: ScalarOp::Lt, args: below, .. }],
            [ScalarInst { op: ScalarOp::Add, args: sum, .. }],
        ) = (&which.code.insts[..], &on.code.insts[..])
        else {
            return None;
        };
        let zero = number(which, &below[1])?.to_i128() == 0;
        let most = if o.dtype == DType::I32 { i64::from(i32::MAX) } else { i64::MAX };
        let n = i64::try_from(number(on, &sum[1])?.to_i128()).ok().filter(|n| (0..=most).contains(n))?;
        let same = read(which, &below[0]) == Some(i) && read(on, &sum[0]) == Some(i);
        (zero && same && self.program.values[i].dtype == o.dtype).then_some((i, n))
    }
    /// Reduces partials in the gather or scatter that computes them, if that is possible.
    /// `from` lists the partials of `src` that are combined in each partial of `out`.
    pub(super) fn merge_partials(
        &mut self,
        src: Slot,
        out: Slot,
        from: &[impl AsRef<[usize]>],
        combine: Reducer,
    ) -> bool {
        let maker = self.producers[src];
        if self.num_readers[src] != 1 || maker == u32::MAX {
            return false;
        }
        let BufferOp::GatherScatter(t) = &mut self.program.ops[maker as usize] else { return false };
        let onto = match t.scatter {
            // exactly one partial of a gather has the element, and the others are neutral, so their
            // reduction is a selection; sums are excluded, because they really add the zeros
            None => combine != Reducer::Add,
            Some(how) => {
                how == Some(combine) && !t.reads[0].boxes.iter().any(|p| matches!(p.source, Source::Value(_)))
            }
        };
        if !onto || t.out != src || t.partials.iter().any(|p| p.operand_offsets != [0, 0]) {
            return false;
        }
        let old = std::mem::take(&mut t.partials);
        let together = |list: &[usize]| {
            // together the partials have all elements, so no box is needed
            let all = t.scatter.is_none() && list.len() == old.len();
            let boxes = list.iter().filter(|_| !all).flat_map(|c| old[*c].boxes.iter().cloned()).collect();
            GatherScatterPartial { boxes, operand_offsets: [0, 0] }
        };
        t.partials = from.iter().map(|list| together(list.as_ref())).collect();
        t.out = out;
        self.producers[out] = maker;
        true
    }
}

/// Returns true if a scatter may update an element more than once.
///
/// This is possible if some loop of the updates is not a window, or if an index depends on a window
/// loop.
fn may_repeat_elements(s: &LoopNest, at: &[DynamicIndex]) -> bool {
    let says = |b: &DynamicIndex, l: usize| {
        s.accesses[b.operand].pieces.iter().any(|p| p.map.iter().any(|m| m.terms.iter().any(|t| t.0 == l)))
    };
    (s.rank..s.extents.len()).any(|l| {
        s.extents[l] > 1 && (at.iter().all(|b| b.window != Some(l)) || at.iter().any(|b| says(b, l)))
    })
}
