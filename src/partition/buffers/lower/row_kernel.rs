//! Lowers row kernels: one affine map per operand, and one operation for all results of a call.

use super::ProgramLowering;
use crate::core::diagnostic::{Error, Result};
use crate::ir::program::loop_nest::{Access, AccessPiece, AffineExpr, LoopNest, RowKernelCall, Source};
use crate::partition::Slot;
use crate::partition::buffers::index::{check_num_loops, extents};
use crate::partition::buffers::{BufferOp, OperandAccess, RowKernelOp, RowKernelOut};

impl ProgramLowering<'_> {
    /// Lowers a call of a row kernel, or adds its result to an equal call.
    pub(super) fn lower_row_kernel(
        &mut self,
        out: Slot,
        s: &LoopNest,
        l: &RowKernelCall,
        at: Slot,
    ) -> Result<()> {
        let lead = usize::from(self.program.values[out].num_partials > 1);
        let over: Vec<usize> = (0..s.rank).filter(|k| !l.row_loops.contains(k)).collect();
        // no access depends on the loops along the row of the result
        let loops: Vec<usize> = over.iter().copied().chain(s.rank..s.extents.len()).collect();
        let parts = (lead > 0).then_some(self.program.values[out].num_partials);
        let sizes: Vec<usize> = parts.into_iter().chain(loops.iter().map(|k| s.extents[*k])).collect();
        let n = sizes.len();
        check_num_loops(n)?;
        let ext = extents(&sizes);
        let mut asked = Vec::with_capacity(s.accesses.len());
        for r in &s.accesses {
            let mut operand = self.lower_access(&restrict_loops(r, &loops), &ext, n, lead, Some(out), at)?;
            let partly = |o: &OperandAccess| o.boxes.len() > 1 || o.boxes.iter().any(|p| !p.covers(&ext, n));
            if lead == 0 && partly(&operand) {
                operand = self.materialize(operand, &ext, n, r.dtype.storage())?;
            }
            if partly(&operand) {
                return Err(Error::internal("an operand of a row kernel is read from several values"));
            }
            operand.boxes.retain(|_| ext[..n].iter().all(|e| *e > 0));
            asked.push(operand);
        }
        let dims = (0..lead).chain(over.iter().chain(&l.row_loops).map(|k| k + lead)).collect();
        let made = RowKernelOut { result: l.result_index, out, dims };
        let (key, lines) = (l.kernel.key(), lead + over.len());
        let alike = |item: &BufferOp<'_>| match item {
            BufferOp::RowKernel(o) => {
                (o.num_row_loops, o.num_loops, o.ext) == (lines, n, ext)
                    && o.requested == asked
                    && o.kernel.key() == key
            }
            _ => false,
        };
        let sibling = self.program.ops.iter().rposition(alike);
        if let Some(k) = sibling
            && let BufferOp::RowKernel(o) = &mut self.program.ops[k]
            && o.outs.iter().all(|o| o.result != l.result_index)
        {
            o.outs.push(made);
            self.producers[out] = k as u32;
            return Ok(());
        }
        let mut reads = Vec::with_capacity(asked.len());
        for o in &asked {
            let view = |o: &OperandAccess| matches!(&o.boxes[..], [p] if matches!(p.source, Source::Value(_)) && p.strides.iter().all(|s| *s >= 0));
            let storage = o.dtype.storage();
            reads.push(if view(o) { o.clone() } else { self.materialize(o.clone(), &ext, n, storage)? });
        }
        let item = RowKernelOp {
            kernel: l.kernel.clone(),
            num_row_loops: lines,
            num_loops: n,
            ext,
            reads,
            requested: asked,
            outs: vec![made],
        };
        self.push(BufferOp::RowKernel(item));
        Ok(())
    }
}

/// Restricts an access to these of its loops.
fn restrict_loops(r: &Access, loops: &[usize]) -> Access {
    let position = |l: usize| loops.iter().position(|k| *k == l).unwrap_or(0);
    let moved = |m: &AffineExpr| AffineExpr {
        constant: m.constant,
        terms: m.terms.iter().map(|t| (position(t.0), t.1)).collect(),
    };
    let part = |p: &AccessPiece| AccessPiece {
        source: p.source,
        ranges: loops.iter().map(|l| p.ranges[*l]).collect(),
        map: p.map.iter().map(moved).collect(),
    };
    Access { pieces: r.pieces.iter().map(part).collect(), ..r.clone() }
}
