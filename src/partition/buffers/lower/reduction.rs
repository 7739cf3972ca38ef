//! Lowers reductions, contractions, and reductions over the partials of a value.

use super::ProgramLowering;
use crate::core::diagnostic::Result;
use crate::core::types::{DType, Scalar};
use crate::ir::program::loop_nest::{LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp, Source};
use crate::partition::buffers::index::{LoopVec, MAX_LOOPS, check_num_loops, extents};
use crate::partition::buffers::{
    AccessBox, BufferOp, HalfMatmuls, OperandAccess, ReductionLoops, ReductionOp, ShardBox,
};
use crate::partition::{DimLayout, Slot};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

/// Replaces `AssumeEqual` with a reducer that leaves a single element unchanged.
/// This is `or` for bools and `max` for real numbers. Other reducers are returned unchanged.
fn one_element_reducer(combine: Reducer, dtype: DType) -> Reducer {
    match combine {
        Reducer::AssumeEqual if dtype == DType::Bool => Reducer::Or,
        // complex numbers have no order: there is a kernel for `AssumeEqual`
        Reducer::AssumeEqual if !dtype.is_complex() => Reducer::Max,
        combine => combine,
    }
}

impl<'p> ProgramLowering<'p> {
    /// Lowers a reduction, or a contraction if there is no code, that accumulates in `dtype`.
    pub(super) fn lower_reduction(
        &mut self,
        out: Slot,
        s: &'p LoopNest,
        layout: &[DimLayout],
        mut code: Option<(Reducer, Cow<'p, ScalarCode>)>,
        dtype: DType,
        at: Slot,
    ) -> Result<()> {
        let n = s.extents.len();
        let same = code.as_ref().is_some_and(|c| c.0 == Reducer::AssumeEqual);
        code.iter_mut().for_each(|c| c.0 = one_element_reducer(c.0, dtype));
        check_num_loops(n)?;
        let mut ext = extents(&s.extents);
        let partial_layout = self.program.values[out].partial_layout.clone();
        let mut reads = Vec::with_capacity(s.accesses.len());
        for r in &s.accesses {
            let spread = self.spread_windows(r, &s.extents, at)?;
            let r = spread.as_ref().unwrap_or(r);
            let mut o = self.lower_access(r, &ext, n, 0, None, at)?;
            let plain = match &code {
                Some(_) => o.is_single_box(&ext, n),
                None => {
                    let value = matches!(&o.boxes[..], [p] if matches!(p.source, Source::Value(_)));
                    let fits = o.dtype == dtype || self.program.half_matmuls == HalfMatmuls::Native;
                    value && o.is_single_box(&ext, n) && fits
                }
            };
            if !plain {
                let to = if code.is_none() { dtype } else { r.dtype.storage() };
                o = self.materialize_partial(o, &ext, n, to, (r, at))?;
            }
            reads.push(o);
        }
        let own = self.loop_over_partials(&mut reads, &mut ext, n)?;
        let copies = (0..partial_layout.num_shards()).map(|c| {
            let position = partial_layout.nearest_position(0, c);
            let mut b = ShardBox { lo: [0; MAX_LOOPS], hi: ext };
            for l in s.rank..n {
                if let Some(d) = layout.get(l) {
                    (b.lo[l], b.hi[l]) = d.range(d.rank(position), s.extents[l]);
                }
                if same {
                    b.hi[l] = b.hi[l].min(b.lo[l] + 1);
                }
            }
            for (l, partial_layout) in &own {
                let r = partial_layout.rank(position) as i64;
                (b.lo[*l], b.hi[*l]) = (r, r + 1);
            }
            vec![b]
        });
        let copies = copies.collect();
        let target = self.accumulator(out, dtype)?;
        let (num_loops, rank, partials) = (n + own.len(), s.rank, copies);
        let loops = ReductionLoops { out: target, dtype, num_loops, rank, ext, reads, partials };
        self.push(match code {
            Some((reducer, code)) => BufferOp::Reduction(ReductionOp { loops, reducer, code }),
            None => BufferOp::Contraction(loops),
        });
        if target != out {
            self.convert(target, out);
        }
        Ok(())
    }
    /// Adds a loop over the partials of each partial operand, of which each shard takes one index.
    /// The loops follow the first `n`. Operands with the same partials share one.
    fn loop_over_partials(
        &self,
        reads: &mut [OperandAccess],
        ext: &mut LoopVec,
        n: usize,
    ) -> Result<SmallVec<[(usize, DimLayout); 2]>> {
        let mut own: SmallVec<[(usize, DimLayout); 2]> = SmallVec::new();
        for o in reads.iter_mut() {
            let Some(p) = o.boxes.first_mut() else { continue };
            let Source::Value(v) = p.source else { continue };
            let v = &self.program.values[v];
            if v.num_partials == 1 {
                continue;
            }
            let next = n + own.len();
            let l = own.iter().find(|x| x.1 == v.partial_layout).map_or(next, |x| x.0);
            if l == next {
                check_num_loops(l + 1)?;
                ext[l] = v.num_partials as i64;
                own.push((l, v.partial_layout.clone()));
            }
            (p.strides[l], p.dim_loops[0]) = (v.strides[0], l as u8);
        }
        let loops = n + own.len();
        for p in reads.iter_mut().flat_map(|o| &mut o.boxes) {
            p.hi[n..loops].copy_from_slice(&ext[n..loops]);
        }
        Ok(own)
    }
    /// Returns the value in which a result accumulates in `dtype`.
    /// It is the result, or a value of this type, which is converted to the result later.
    pub(super) fn accumulator(&mut self, out: Slot, dtype: DType) -> Result<Slot> {
        let v = &self.program.values[out];
        if v.dtype == dtype {
            return Ok(out);
        }
        let shape = v.shape[usize::from(v.num_partials > 1)..].into();
        let target = self.add_value(dtype, shape, v.partial_layout.clone())?;
        self.widened.push((out, target));
        Ok(target)
    }
    /// Lowers a step that reduces the partials of `src`.
    ///
    /// If `src` was rounded from a wider type, the wider value is reduced, and the sum is rounded
    /// once.
    pub(super) fn lower_reduce_step(&mut self, src: Slot, out: Slot, combine: Reducer) -> Result<()> {
        if let Some((_, wide)) = self.widened.iter().find(|w| w.0 == src).copied() {
            let (dtype, v) = (self.program.values[wide].dtype, &self.program.values[out]);
            let (shape, partial_layout) =
                (v.shape[usize::from(v.num_partials > 1)..].into(), v.partial_layout.clone());
            let tmp = self.add_value(dtype, shape, partial_layout)?;
            self.widened.push((out, tmp));
            self.num_readers[wide] = self.num_readers[src];
            self.combine_partials(wide, tmp, combine)?;
            self.convert(tmp, out);
            return Ok(());
        }
        self.combine_partials(src, out, combine)
    }
    /// Reduces the partials of `src` into `out`.
    ///
    /// If `src` has no other consumer, its producer reduces the partials itself, and `src` is not
    /// stored.
    pub(super) fn combine_partials(&mut self, src: Slot, out: Slot, combine: Reducer) -> Result<()> {
        let (s, o) = (&self.program.values[src], &self.program.values[out]);
        // for each partial of the result, the partials that are combined in it, in shard order
        let mut from: Vec<SmallVec<[usize; 8]>> = vec![SmallVec::new(); o.num_partials];
        for c in 0..s.num_partials {
            let parts = &mut from[o.partial_layout.rank(s.partial_layout.nearest_position(0, c))];
            if parts.is_empty() || combine != Reducer::AssumeEqual {
                parts.push(c);
            }
        }
        let (maker, combine) = (self.producers[src], one_element_reducer(combine, s.dtype));
        if self.num_readers[src] == 1
            && maker != u32::MAX
            && let Some((f, reducer)) = self.program.ops[maker as usize].reduction_loops()
            && f.out == src
            && reducer == combine
            && f.partials.len() == s.num_partials
            && let Some(f) = self.program.ops[maker as usize].reduction_loops_mut()
        {
            let mut old: Vec<Vec<ShardBox>> = std::mem::take(&mut f.partials);
            f.partials =
                from.iter().map(|c| c.iter().flat_map(|c| std::mem::take(&mut old[*c])).collect()).collect();
            f.out = out;
            self.producers[out] = maker;
            return Ok(());
        }
        if self.merge_partials(src, out, &from, combine) {
            return Ok(());
        }
        let (s, o) = (&self.program.values[src], &self.program.values[out]);
        let rank = s.shape.rank() - usize::from(s.num_partials > 1);
        let narrow =
            matches!(s.dtype, DType::F16 | DType::BF16) && matches!(combine, Reducer::Add | Reducer::Mul);
        let dtype = if narrow { DType::F32 } else { s.dtype };
        let mut ext = extents(&s.shape[usize::from(s.num_partials > 1)..]);
        let n = rank + 1;
        check_num_loops(n)?;
        ext[rank] = s.num_partials as i64;
        let mut p = AccessBox::broadcast(Source::Value(src), &ext, s.shape.rank());
        if s.num_partials > 1 {
            (p.strides[rank], p.dim_loops[0]) = (s.strides[0], rank as u8);
        }
        for d in 0..rank {
            let e = d + usize::from(s.num_partials > 1);
            (p.strides[d], p.dim_loops[e]) = (s.strides[e], d as u8);
        }
        let copies = from
            .iter()
            .map(|list| {
                list.iter()
                    .map(|c| {
                        let (mut lo, mut hi) = ([0; MAX_LOOPS], ext);
                        (lo[rank], hi[rank]) = (*c as i64, *c as i64 + 1);
                        ShardBox { lo, hi }
                    })
                    .collect()
            })
            .collect();
        let fun = if narrow { ScalarOp::Convert } else { ScalarOp::Copy };
        let code = ScalarCode::single(fun, s.dtype, dtype, &[ScalarArg::Access(0)]);
        let reads = vec![OperandAccess { dtype: s.dtype, fill: Scalar::zero(s.dtype), boxes: smallvec![p] }];
        let mut target = out;
        if narrow {
            let (shape, partial_layout) =
                (o.shape[usize::from(o.num_partials > 1)..].into(), o.partial_layout.clone());
            target = self.add_value(dtype, shape, partial_layout)?;
        }
        let loops = ReductionLoops { out: target, dtype, num_loops: n, rank, ext, reads, partials: copies };
        let code = Cow::Owned(code);
        self.push(BufferOp::Reduction(ReductionOp { loops, reducer: combine, code }));
        if target != out {
            self.convert(target, out);
        }
        Ok(())
    }
}
