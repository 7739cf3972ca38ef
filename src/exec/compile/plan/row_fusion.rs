//! Pass 7, row fusion: finds chains of groups that run on a batch of rows at a time, in cache.
//!
//! A chain grows from a reduction or a gather of rows. Each further group reads, for its row r, row
//! r of the values of earlier groups. Matmuls may come before and after these groups; without
//! matmuls, a scatter of the rows may be the last one. Whether a group can join follows from the
//! memory accesses of its generated code: it must write row r of a value to the r-th part of that
//! value's memory, and read only that part of the values of the chain's other groups. The tasks of
//! a chain therefore need no barrier between groups, and a value that only the chain reads needs
//! scratch for only a few rows per worker. Fusion changes no bit: every group computes the same as
//! it would alone.

use super::matmul_fusion::{MatmulIndex, MatmulNeighbours};
use super::row_exec::{
    FusedStage, RowFusionKernel, ScratchBuffer, all_accesses, memory_accesses, pack_scratch,
};
use super::scatter_chains::ScatterChains;
use super::{BufferLocation, NodeInfo, NodeKernel, PlanNode};
use crate::exec::compile::codegen::tile_program::TileProgram;
use crate::exec::compile::fusion::{FusionGroup, FusionPlan, FusionRoot};
use crate::exec::compile::gather_scatter;
use crate::exec::compile::gather_scatter::GatherScatterKernel;
use crate::exec::compile::index::MAX_LOOPS;
use crate::exec::compile::ir::{AccessBox, BufferOp};
use crate::exec::compile::matmul::{MatmulKernel, RowDims};
use crate::exec::compile::reduction::ReductionKernel;
use crate::exec::compile::row_program::RowProgram;
use crate::ir::program::loop_nest::Source;
use crate::partition::Slot;
use crate::partition::fusion::policy::{BATCH_CACHE_BYTES, MAX_PULL_DEPTH, MAX_ROW_BYTES, MIN_ROWS};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A chain that is still growing.
#[derive(Clone)]
pub(super) struct ChainBuilder {
    /// The number of rows.
    pub(super) num_rows: i64,
    /// The level of the first group.
    pub(super) first_level: u32,
    /// The groups, in order.
    pub(super) groups: Vec<usize>,
    /// The values of these groups.
    pub(super) values: Vec<Slot>,
    /// The scatter that runs last, whose result no group of the chain reads.
    pub(super) scatter: Option<usize>,
}

/// Groups that run as one node.
#[derive(Debug)]
pub(super) struct RowFusion {
    /// The groups, in the order in which they run.
    pub(super) groups: Vec<usize>,
    /// The number of rows.
    num_rows: i64,
    /// The values in scratch buffers, with the bytes of a row.
    pub(super) scratch: Vec<(Slot, i64)>,
    /// The bytes of a row of all values.
    row_bytes: i64,
    /// The fused matmuls, which are the first and the last groups.
    matmuls: MatmulNeighbours,
    /// True if rows may run in any order, because each row is either in scratch or found by a
    /// gather.
    any_order: bool,
}

/// Binds the gathers among the groups.
pub(super) fn bind_gathers(
    g: &FusionPlan<'_, '_>,
    base: u32,
    puts: &ScatterChains,
) -> Vec<Option<GatherScatterKernel>> {
    let slot_index = |s: Slot| puts.last_value(g.program.alias_root(s)) as u32 + base;
    let take = |group: &FusionGroup| match group.root {
        FusionRoot::Standalone(item) => match &g.program.ops[item] {
            BufferOp::GatherScatter(s) if s.scatter.is_none() => {
                Some(gather_scatter::bind(g.program, s, &slot_index, false, 1))
            }
            _ => None,
        },
        _ => None,
    };
    g.groups.iter().map(take).collect()
}

/// Binds the scatters among the groups that can apply a batch of updates at a time.
///
/// A scatter that does not sort its updates must be one task, because each of several tasks would
/// have to compute all updates. So it is bound only if it is small or there is one worker.
pub(super) fn bind_scatters(
    g: &FusionPlan<'_, '_>,
    base: u32,
    puts: &ScatterChains,
    workers: i64,
) -> Vec<Option<GatherScatterKernel>> {
    let slot_index = |s: Slot| puts.last_value(g.program.alias_root(s)) as u32 + base;
    let alone = |s: Slot| puts.last_value(s) == s && puts.first_value(s) == s;
    let scatter = |group: &FusionGroup| {
        if size_optimized!() {
            return None;
        }
        let FusionRoot::Standalone(item) = group.root else { return None };
        let BufferOp::GatherScatter(s) = &g.program.ops[item] else { return None };
        let own =
            s.scatter.is_some() && s.scatter_init_value(g.program).into_iter().chain([s.out]).all(alone);
        own.then(|| gather_scatter::bind(g.program, s, &slot_index, false, workers))
            .filter(|k| (k.num_tasks == 1 || k.sorts_updates()) && k.num_batched_updates().is_some())
    };
    g.groups.iter().map(scatter).collect()
}

/// A function that binds the matmul of a group.
type MatmulBinder<'b> = dyn Fn(&FusionPlan<'_, '_>, usize) -> Option<MatmulKernel> + 'b;

/// The groups of a program, bound to memory.
pub(super) struct BoundGroups<'b> {
    /// The elementwise groups.
    pub(super) maps: &'b [Option<PlanNode>],
    /// The reductions.
    pub(super) reductions: &'b [Option<(Arc<ReductionKernel>, Option<u32>)>],
    /// The gathers.
    pub(super) gathers: &'b [Option<GatherScatterKernel>],
    /// The scatters that may end a chain.
    pub(super) scatters: &'b [Option<GatherScatterKernel>],
    /// The values in whose memory matmuls are computed.
    pub(super) aliases: &'b [Option<Slot>],
    /// The function that binds a matmul.
    pub(super) bind_matmul: &'b MatmulBinder<'b>,
    /// The first slot of the program.
    pub(super) base: usize,
    /// The location of each slot.
    pub(super) locations: &'b [BufferLocation],
}

impl BoundGroups<'_> {
    /// Returns the tile program of a group, if it can run by rows.
    pub(super) fn tile_program(&self, k: usize) -> Option<&TileProgram> {
        match (&self.maps[k], &self.reductions[k]) {
            (Some(PlanNode { kernel: NodeKernel::Tiles { tiles, .. }, .. }), _) => Some(tiles),
            (_, Some((f, _))) => f.can_run_by_rows().then_some(&f.input),
            _ => None,
        }
    }
    /// Returns the values of a group, if no other value has their memory.
    fn exclusive_results(&self, g: &FusionPlan<'_, '_>, k: usize) -> Option<Vec<Slot>> {
        let makes: Vec<Slot> = match (g.groups[k].root, &self.maps[k], &self.gathers[k]) {
            (FusionRoot::Reduction(item), ..) => vec![g.reduction_loops(item).out],
            (_, Some(node), _) => node.info.results.iter().map(|m| m.0).collect(),
            (.., Some(take)) => vec![take.result_slot() as usize - self.base],
            _ => return None,
        };
        makes.iter().all(|s| self.is_in_own_memory(*s)).then_some(makes)
    }
    /// Returns true if a value is in memory that no other value has.
    ///
    /// A chain runs at the level of its first group. So it must not compute a value in the memory
    /// of a donated argument, which may be written only after its last reader.
    pub(super) fn is_in_own_memory(&self, s: Slot) -> bool {
        matches!(self.locations[self.base + s], BufferLocation::None | BufferLocation::Result(_))
    }
    /// Returns true if group `k` accesses, for its row r, only the r-th row of the value.
    pub(super) fn is_row_local(&self, k: usize, s: Slot, rows: i64, row: i64) -> bool {
        if let Some(t) = &self.gathers[k] {
            return t.num_gather_rows() == Some(rows);
        }
        let Some(t) = self.tile_program(k) else { return false };
        let inside = |st: &[i64; MAX_LOOPS], off: i64, size: i64| {
            let each = t.ext[0] / rows;
            let ext = |d: usize| if d == 0 { each } else { t.ext[d] };
            let far = |d: usize| st[d] * (ext(d) - 1);
            let low: i64 = off + (0..t.rank).map(|d| far(d).min(0)).sum::<i64>();
            let high: i64 = off + (0..t.rank).map(|d| far(d).max(0)).sum::<i64>();
            st[0] * each == row && low >= 0 && high + size <= row
        };
        let slot = (self.base + s) as u32;
        let written = self.reductions[k].as_ref().filter(|(f, _)| f.out == slot);
        memory_accesses(t)
            .filter(|m| m.slot == slot)
            .all(|m| inside(&m.strides, m.offset, i64::from(m.element_bytes)))
            && written.is_none_or(|(f, _)| inside(f.result_strides(), 0, f.result_element_bytes()))
    }

    /// Finds the chains of a program, and moves their groups to the level of the first one.
    pub(super) fn find_chains(
        &self,
        g: &mut FusionPlan<'_, '_>,
        over: impl Fn(usize) -> bool,
    ) -> Vec<RowFusion> {
        let mut readers: HashMap<u32, Vec<usize>> = HashMap::new();
        let takes = (0..g.groups.len()).filter(|k| self.gathers[*k].is_some());
        let folds = (0..g.groups.len())
            .filter(|k| matches!(&self.reductions[*k], Some((f, _)) if f.can_run_by_rows()));
        // gathers come first, because the rows they gather may be reduced
        let seeds: Vec<usize> = takes.chain(folds).collect();
        if seeds.is_empty() {
            return Vec::new();
        }
        for k in 0..g.groups.len() {
            let Some(t) = self.tile_program(k) else { continue };
            for m in memory_accesses(t) {
                let list = readers.entry(m.slot).or_default();
                if list.last() != Some(&k) {
                    list.push(k);
                }
            }
        }
        for (k, scatter) in self.scatters.iter().enumerate().filter(|_| !size_optimized!()) {
            if let Some(scatter) = scatter {
                readers.entry(scatter.source_slot()).or_default().push(k);
            }
        }
        let matmuls = self.index_matmuls(g);
        let (mut chains, mut taken) = (Vec::new(), vec![false; g.groups.len()]);
        for seed in seeds {
            if taken[seed] {
                continue;
            }
            let not = |k: usize| taken[k] || over(k);
            let Some(chain) = self.grow_chain(g, seed, (&readers, &matmuls), not) else { continue };
            let level = g.groups[seed].level;
            for k in &chain.groups {
                g.groups[*k].level = level;
                taken[*k] = true;
            }
            chains.push(chain);
        }
        chains
    }
    /// Grows a chain from group `seed`; groups for which `not` is true stay out.
    fn grow_chain(
        &self,
        g: &FusionPlan<'_, '_>,
        seed: usize,
        (readers, index): (&HashMap<u32, Vec<usize>>, &MatmulIndex),
        not: impl Fn(usize) -> bool,
    ) -> Option<RowFusion> {
        let first = g.groups[seed].level;
        // the number of rows, and the bytes of a row that the seed computes in scratch
        let (rows, bytes) = match &self.gathers[seed] {
            Some(take) => (take.num_gather_rows()?, 0),
            None => {
                let t = self.tile_program(seed)?;
                (t.ext[0], t.elements() / t.ext[0].max(1) * g.reduction_element_bytes(seed)?)
            }
        };
        let empty = self.tile_program(seed).is_some_and(|t| t.elements() == 0);
        if rows < MIN_ROWS || empty || not(seed) {
            return None;
        }
        let mut grown = ChainBuilder {
            num_rows: rows,
            first_level: first,
            groups: Vec::new(),
            values: Vec::new(),
            scatter: None,
        };
        // by level, so that the operands of a group are visited before it
        let mut open = BTreeSet::new();
        open.insert((first, seed));
        while let Some((level, k)) = open.pop_first() {
            let from = grown.values.len();
            if k != seed && level <= first || !self.try_add(g, k, &mut grown, &not, MAX_PULL_DEPTH) {
                continue;
            }
            for s in &grown.values[from..] {
                let next = readers.get(&((self.base + s) as u32)).into_iter().flatten();
                open.extend(next.filter(|r| !grown.groups.contains(r)).map(|r| (g.groups[*r].level, *r)));
            }
        }
        if grown.groups.len() + usize::from(grown.scatter.is_some()) < 2 {
            return None;
        }
        let many = |put: usize| self.scatters[put].as_ref().is_some_and(|p| p.num_tasks > 1);
        let many = !size_optimized!() && grown.scatter.is_some_and(many);
        let without = many.then(|| ChainBuilder { scatter: None, ..grown.clone() });
        let matmuls = self.find_matmuls(g, index, &grown, &not);
        let full = self.finish_chain(g, grown, matmuls, bytes)?;
        match without {
            // leave out a scatter that runs as several tasks, if the rows cannot run in the order
            // that it needs
            Some(without) if !full.any_order => {
                let matmuls = self.find_matmuls(g, index, &without, &not);
                if without.groups.len() < 2 { None } else { self.finish_chain(g, without, matmuls, bytes) }
            }
            _ => Some(full),
        }
    }
    /// Completes a chain with its matmuls; `bytes` are the bytes of a row in scratch.
    /// The result is `None` if a row of all values is too large.
    fn finish_chain(
        &self,
        g: &FusionPlan<'_, '_>,
        grown: ChainBuilder,
        matmuls: MatmulNeighbours,
        mut bytes: i64,
    ) -> Option<RowFusion> {
        let ChainBuilder { num_rows: rows, groups, values: mut made, scatter: scatter_op, .. } = grown;
        let groups: Vec<usize> = (matmuls.before.iter().map(|b| b.0))
            .chain(groups)
            .chain(scatter_op)
            .chain(matmuls.after.iter().map(|b| b.0))
            .collect();
        made.extend(&matmuls.produced);
        let row = |s: Slot| super::build::value_bytes(g.program, s) as i64 / rows;
        bytes += made.iter().map(|s| row(*s)).sum::<i64>();
        if bytes > MAX_ROW_BYTES {
            return None;
        }
        let items = groups.iter().flat_map(|k| g.group_ops(*k));
        let mut inner: HashMap<Slot, u32> = HashMap::new();
        for s in items.flat_map(|i| g.program.ops[i].sources()) {
            *inner.entry(g.program.alias_root(s)).or_default() += 1;
        }
        let private = |s: &Slot| {
            let uses = g.program.uses[*s];
            !uses.result
                && self.locations[self.base + s] == BufferLocation::None
                && inner.get(s) == Some(&uses.readers)
        };
        let scratch_buffers: Vec<(Slot, i64)> =
            made.iter().copied().filter(private).map(|s| (s, row(s))).collect();
        let in_scratch = |slot: u32| scratch_buffers.iter().any(|s| (self.base + s.0) as u32 == slot);
        let free = |k: &usize| match (&self.gathers[*k], self.tile_program(*k)) {
            (Some(take), _) => take.allows_any_order(),
            (None, Some(t)) => all_accesses(t).all(|m| m.strides[0] == 0 || in_scratch(m.slot)),
            (None, None) => true,
        };
        let products = !(matmuls.before.is_empty() && matmuls.after.is_empty());
        let free =
            !size_optimized!() && !products && scratch_buffers.len() == made.len() && groups.iter().all(free);
        Some(RowFusion {
            groups,
            num_rows: rows,
            scratch: scratch_buffers,
            row_bytes: bytes,
            matmuls,
            any_order: free,
        })
    }
    /// Adds a group to the chain, if it has the same rows and its operands are in the chain or
    /// ready.
    ///
    /// The producer of another operand is added first if possible, up to `deep` producers in a row.
    /// Such a producer need not read any value of the chain.
    fn try_add(
        &self,
        g: &FusionPlan<'_, '_>,
        k: usize,
        c: &mut ChainBuilder,
        not: &dyn Fn(usize) -> bool,
        deep: usize,
    ) -> bool {
        if c.groups.contains(&k) {
            return true;
        }
        if let Some(scatter) = self.scatters[k].as_ref().filter(|_| !size_optimized!()) {
            // (no group of the chain reads its result)
            if deep == MAX_PULL_DEPTH && !not(k) && self.can_end_chain(g, k, scatter, c) {
                c.scatter = Some(k);
            }
            return false;
        }
        let Some(makes) = self.exclusive_results(g, k) else { return false };
        let size = |s: Slot| super::build::value_bytes(g.program, s) as i64;
        let local = |s: &Slot| self.is_row_local(k, *s, c.num_rows, size(*s) / c.num_rows);
        if not(k) || !makes.iter().all(|s| size(*s) % c.num_rows == 0 && local(s)) {
            return false;
        }
        let Some(t) = self.tile_program(k) else {
            // a gather can only start a chain
            let begins = c.groups.is_empty() && self.gathers[k].is_some();
            if begins {
                c.groups.push(k);
                c.values.extend(makes);
            }
            return begins;
        };
        if t.ext[0] % c.num_rows != 0 || t.elements() == 0 {
            return false;
        }
        let before = (c.groups.len(), c.values.len());
        for m in memory_accesses(t) {
            let s = m.slot as usize - self.base;
            if makes.contains(&s) || c.values.contains(&s) || g.value_level(s) < c.first_level {
                continue;
            }
            let by = g.defs[g.program.alias_root(s)].map(|d| d.group);
            let pulled = deep > 0 && by.is_some_and(|by| by != k && self.try_add(g, by, c, not, deep - 1));
            if !pulled || !c.values.contains(&s) {
                c.groups.truncate(before.0);
                c.values.truncate(before.1);
                return false;
            }
        }
        let fine = c
            .values
            .iter()
            .filter(|s| self.reads_slot(k, **s))
            .all(|s| self.is_row_local(k, *s, c.num_rows, size(*s) / c.num_rows));
        if fine {
            c.groups.push(k);
            c.values.extend(makes);
        } else {
            c.groups.truncate(before.0);
            c.values.truncate(before.1);
        }
        fine
    }
    /// Returns true if a scatter may end the chain.
    ///
    /// It must apply the rows of the chain one after another, its other operands must be ready
    /// before the chain starts, and its result must be in memory that no other value has.
    fn can_end_chain(
        &self,
        g: &FusionPlan<'_, '_>,
        k: usize,
        scatter: &GatherScatterKernel,
        c: &ChainBuilder,
    ) -> bool {
        let from = scatter.source_slot() as usize - self.base;
        let FusionRoot::Standalone(item) = g.groups[k].root else { return false };
        let BufferOp::GatherScatter(s) = &g.program.ops[item] else { return false };
        let others = s.reads.iter().enumerate().filter(|(k, _)| *k != 1).flat_map(|(_, o)| &o.boxes);
        let ready = |p: &AccessBox| match p.source {
            Source::Value(s) => g.program.alias_root(s) != from && g.value_level(s) < c.first_level,
            Source::Const(_) => true,
        };
        c.scatter.is_none()
            && self.is_in_own_memory(s.out)
            && scatter.num_batched_updates() == Some(c.num_rows)
            && c.values.contains(&from)
            && others.into_iter().all(ready)
    }
    /// Returns true if the tile program of group `k` accesses value `s`.
    pub(super) fn reads_slot(&self, k: usize, s: Slot) -> bool {
        let slot = (self.base + s) as u32;
        self.tile_program(k).is_some_and(|t| memory_accesses(t).any(|m| m.slot == slot))
    }
}

/// Returns the chain of each group, and its position there.
pub(super) fn chain_positions(chains: &[RowFusion]) -> HashMap<usize, (usize, usize)> {
    let of = |(c, chain): (usize, &RowFusion)| {
        chain.groups.iter().enumerate().map(|(at, k)| (*k, (c, at))).collect::<Vec<_>>()
    };
    chains.iter().enumerate().flat_map(of).collect()
}

impl RowFusion {
    /// Returns the row program of these stages, if possible; `strip` says which slots are scratch.
    fn row_program(&self, stages: &[FusedStage], is_scratch: impl Fn(u32) -> bool) -> Option<RowProgram> {
        if size_optimized!() {
            return None;
        }
        let mut wise = RowProgram::default();
        let all = stages.iter().all(|p| match p {
            FusedStage::Tiles(t) => wise.push_stage(t, self.num_rows, None, &is_scratch),
            FusedStage::Reduction(f) => f.push_onto(&mut wise, self.num_rows, &is_scratch),
            FusedStage::Gather(_) | FusedStage::Scatter(_) => false,
        });
        all.then(|| wise.finish(self.num_rows))
    }
    /// Fuses the nodes of the chain's groups, given in its order.
    pub(super) fn fused_node(&self, mut nodes: Vec<PlanNode>, base: usize) -> PlanNode {
        let cost: f64 = nodes.iter().map(|n| n.cost_us).sum();
        let gone = |s: &Slot| self.scratch.iter().any(|x| x.0 == *s);
        // (only the chain reads the values of the matmuls before it)
        let others = &nodes[self.matmuls.before.len()..];
        let makes = others.iter().flat_map(|n| &n.info.results).filter(|m| !gone(&m.0)).cloned().collect();
        let maps = nodes.iter().map(|n| n.info.num_maps).sum();
        let step = nodes.iter().rev().find_map(|n| n.info.origin.clone());
        let product = |(n, (_, along)): (PlanNode, &(usize, RowDims))| match n.kernel {
            NodeKernel::Matmul(p) => Some((p, along.clone())),
            _ => None,
        };
        let MatmulNeighbours { before, after, batched: held, batch_rows: turn, .. } = &self.matmuls;
        let left = nodes.len() - before.len();
        let mut apart = |from: usize, list: &[(usize, RowDims)]| -> Vec<_> {
            // (no matmul is fused in WebAssembly)
            let own =
                if size_optimized!() { Vec::new() } else { nodes.drain(from..from + list.len()).collect() };
            own.into_iter().zip(list).filter_map(product).collect()
        };
        let before = apart(0, before);
        let after = apart(left - after.len(), after);
        let parts = nodes.into_iter().filter_map(|n| match n.kernel {
            NodeKernel::Tiles { tiles, .. } => Some(FusedStage::Tiles(tiles)),
            NodeKernel::Reduction(f, _) => Some(FusedStage::Reduction(f)),
            NodeKernel::GatherScatter(t) if t.num_batched_updates().is_some() => Some(FusedStage::Scatter(t)),
            NodeKernel::GatherScatter(t) => Some(FusedStage::Gather(t)),
            _ => None,
        });
        let parts: Vec<FusedStage> = parts.collect();
        let held = |slot: u32| held.contains(&(slot as usize - base));
        let products = !(size_optimized!() || before.is_empty() && after.is_empty());
        let wise = self.row_program(&parts, |slot| gone(&(slot as usize - base)) && !held(slot));
        let turn = match wise {
            _ if products => *turn,
            Some(_) => self.num_rows,
            None => (BATCH_CACHE_BYTES / self.row_bytes.max(1)).clamp(1, self.num_rows),
        };
        // a row program needs only a block of rows of each value that no matmul computes or reads
        let block = wise.as_ref().map(RowProgram::rows_per_block);
        let scratch_buffer = |(s, row): &(Slot, i64)| {
            let slot = (base + s) as u32;
            let alone = block.filter(|_| !held(slot));
            let bytes = row * alone.unwrap_or(turn);
            let held = [
                self.matmuls.produced.contains(s),
                after.iter().any(|p| p.0.operand_slots().contains(&slot)),
            ];
            ScratchBuffer {
                slot,
                bytes,
                row_stride: if alone.is_some() { 0 } else { *row },
                used_by_matmuls: held,
                offset: 0,
            }
        };
        let (mut few, mut scratch_buffers): (Vec<ScratchBuffer>, Vec<ScratchBuffer>) =
            self.scratch.iter().map(scratch_buffer).partition(|s| s.row_stride == 0);
        let of_rows = wise.as_ref().filter(|_| !size_optimized!());
        let stage = |part: usize| of_rows.map_or(part, |w| w.tile_group_of(part));
        let over = |was: u32, is: u32| of_rows.is_some_and(|w| w.can_replace(was, is));
        let below = pack_scratch(&mut few, &parts, false, stage, over);
        let all = pack_scratch(&mut scratch_buffers, &parts, block.is_some(), stage, over);
        for s in &mut few {
            s.offset += all;
        }
        scratch_buffers.extend(few);
        let bytes = below + all;
        let sorted =
            self.any_order && matches!(parts.last(), Some(FusedStage::Scatter(p)) if p.sorts_updates());
        let kernel = RowFusionKernel {
            num_rows: self.num_rows,
            batch_rows: turn,
            stages: parts,
            before,
            after,
            scratch: scratch_buffers,
            scratch_bytes: bytes,
            row_program: wise,
            sorts_updates: sorted,
        };
        let chunks = ((cost / 20.0) as i64).clamp(1, kernel.max_tasks().min(512));
        let name = if products { "products of rows" } else { "rows" };
        let what = NodeInfo { name, results: makes, num_maps: maps, origin: step };
        PlanNode {
            kernel: NodeKernel::RowFusion(Box::new(kernel)),
            num_tasks: chunks,
            cost_us: cost,
            info: what,
        }
    }
}
