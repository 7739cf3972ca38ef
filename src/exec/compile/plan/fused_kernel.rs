//! Combines the kernels of a chain's groups to one kernel, which runs a batch of rows at a time.

use super::NodeInfo;
use super::bind::{BoundGroup, GroupKernel};
use super::row_exec::{FusedStage, MatmulStages, RowFusionKernel, ScratchBuffer, pack_scratch};
use crate::exec::compile::row_program::RowProgram;
use crate::partition::fusion::{MatmulNeighbours, RowFusion};
use crate::partition::{Slot, fusion::policy::BATCH_CACHE_BYTES};

impl RowFusion {
    /// Returns the row program of these stages, if possible; `strip` says which slots are scratch.
    fn row_program(&self, stages: &[FusedStage], is_scratch: impl Fn(u32) -> bool) -> Option<RowProgram> {
        let mut wise = RowProgram::default();
        let all = stages.iter().all(|p| match p {
            FusedStage::Tiles(t) => wise.push_stage(t, self.num_rows, None, &is_scratch),
            FusedStage::Reduction(f) => f.push_onto(&mut wise, self.num_rows, &is_scratch),
            FusedStage::Gather(_) | FusedStage::Scatter(_) => false,
        });
        all.then(|| wise.finish(self.num_rows))
    }
    /// Fuses the kernels of the chain's groups, given in its order.
    pub(super) fn fused_kernel(&self, parts: Vec<BoundGroup>, base: usize) -> (RowFusionKernel, NodeInfo) {
        let cost_us: f64 = parts.iter().filter_map(|p| Some(p.kernel.task()?.cost_us())).sum();
        let is_scratch = |slot: u32| self.scratch.iter().any(|x| (base + x.0) as u32 == slot);
        let batched = |slot: u32| self.matmuls.batched.contains(&(slot as usize - base));
        let info = self.describe(&parts);
        let (before, stages, after) = self.split_stages(parts);
        let row_program = self.row_program(&stages, |slot| is_scratch(slot) && !batched(slot));
        let batch_rows = match row_program {
            _ if self.has_matmuls() => self.matmuls.batch_rows,
            Some(_) => self.num_rows,
            None => (BATCH_CACHE_BYTES / self.row_bytes.max(1)).clamp(1, self.num_rows),
        };
        let sorts_updates =
            self.any_order && matches!(stages.last(), Some(FusedStage::Scatter(p)) if p.sorts_updates());
        let mut kernel = RowFusionKernel {
            num_rows: self.num_rows,
            batch_rows,
            stages,
            before,
            after,
            scratch: Vec::new(),
            scratch_bytes: 0,
            row_program,
            sorts_updates,
            num_tasks: 1,
            cost_us,
        };
        self.assign_scratch(&mut kernel, base, batched);
        kernel.num_tasks = ((cost_us / 20.0) as i64).clamp(1, kernel.max_tasks().min(512));
        (kernel, info)
    }
    /// Returns true if matmuls run before or after the other stages.
    fn has_matmuls(&self) -> bool {
        !(self.matmuls.before.is_empty() && self.matmuls.after.is_empty())
    }
    /// Describes the node of these groups.
    fn describe(&self, parts: &[BoundGroup]) -> NodeInfo {
        let in_scratch = |s: &Slot| self.scratch.iter().any(|x| x.0 == *s);
        // (only the chain reads the values of the matmuls before it)
        let others = &parts[self.matmuls.before.len()..];
        let results = others.iter().flat_map(|p| &p.info.results).filter(|m| !in_scratch(&m.0));
        NodeInfo {
            name: if self.has_matmuls() { "products of rows" } else { "rows" },
            results: results.cloned().collect(),
            num_maps: parts.iter().map(|p| p.info.num_maps).sum(),
            origin: parts.iter().rev().find_map(|p| p.info.origin.clone()),
        }
    }
    /// Returns the matmuls before the other stages, these stages, and the matmuls after them.
    fn split_stages(&self, parts: Vec<BoundGroup>) -> (MatmulStages, Vec<FusedStage>, MatmulStages) {
        let MatmulNeighbours { before, after, .. } = &self.matmuls;
        let dims = before.iter().chain(after).map(|(_, along)| along.clone());
        let (mut dims, mut matmuls, mut stages) = (dims, Vec::new(), Vec::new());
        for part in parts {
            match part.kernel {
                GroupKernel::Matmul(p) => matmuls.extend(dims.next().map(|d| (p, d))),
                GroupKernel::Elementwise(e) => stages.push(FusedStage::Tiles(Box::new(e.tiles))),
                GroupKernel::Reduction(f) => stages.push(FusedStage::Reduction(f)),
                GroupKernel::GatherScatter(t) if t.num_batched_updates().is_some() => {
                    stages.push(FusedStage::Scatter(t))
                }
                GroupKernel::GatherScatter(t) => stages.push(FusedStage::Gather(t)),
                _ => {}
            }
        }
        let after = matmuls.split_off(before.len().min(matmuls.len()));
        (matmuls, stages, after)
    }
    /// Assigns scratch buffers to the values of which only some rows are in memory.
    /// `batched` says which slots matmuls compute or read.
    fn assign_scratch(&self, kernel: &mut RowFusionKernel, base: usize, batched: impl Fn(u32) -> bool) {
        let program = kernel.row_program.as_ref();
        // a row program needs only a block of rows of each value that no matmul computes or reads
        let block = kernel.row_program.as_ref().map(RowProgram::rows_per_block);
        let scratch_buffer = |(s, row): &(Slot, i64)| {
            let slot = (base + s) as u32;
            let block = block.filter(|_| !batched(slot));
            let used_by_matmuls = [
                self.matmuls.produced.contains(s),
                kernel.after.iter().any(|p| p.0.operand_slots().contains(&slot)),
            ];
            ScratchBuffer {
                slot,
                bytes: row * block.unwrap_or(kernel.batch_rows),
                row_stride: if block.is_some() { 0 } else { *row },
                used_by_matmuls,
                offset: 0,
            }
        };
        let (mut blocks, mut rows): (Vec<ScratchBuffer>, Vec<ScratchBuffer>) =
            self.scratch.iter().map(scratch_buffer).partition(|s| s.row_stride == 0);
        let stage = |part: usize| program.map_or(part, |w| w.tile_group_of(part));
        let over = |was: u32, is: u32| program.is_some_and(|w| w.can_replace(was, is));
        let block_bytes = pack_scratch(&mut blocks, &kernel.stages, false, stage, over);
        let row_bytes = pack_scratch(&mut rows, &kernel.stages, block.is_some(), stage, over);
        blocks.iter_mut().for_each(|s| s.offset += row_bytes);
        rows.extend(blocks);
        (kernel.scratch, kernel.scratch_bytes) = (rows, block_bytes + row_bytes);
    }
}
