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

use super::BufferLocation;
use super::bind::{BoundGroup, GroupKernel};
use super::matmul_fusion::{MatmulIndex, MatmulNeighbours};
use super::row_exec::{all_accesses, memory_accesses};
use super::scatter_chains::ScatterChains;
use crate::exec::compile::codegen::tile_program::TileProgram;
use crate::exec::compile::elementwise::stored_values;
use crate::exec::compile::fusion::{FusionPlan, FusionRoot};
use crate::exec::compile::gather_scatter::GatherScatterKernel;
use crate::exec::compile::index::MAX_LOOPS;
use crate::exec::compile::ir::{AccessBox, BufferOp};
use crate::exec::compile::matmul::MatmulKernel;
use crate::exec::compile::reduction::ReductionKernel;
use crate::exec::compile::task_kernel::TaskKernel;
use crate::ir::program::loop_nest::Source;
use crate::partition::Slot;
use crate::partition::fusion::policy::{MAX_PULL_DEPTH, MAX_ROW_BYTES, MIN_ROWS};
use std::collections::{BTreeSet, HashMap};

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
    pub(super) num_rows: i64,
    /// The values in scratch buffers, with the bytes of a row.
    pub(super) scratch: Vec<(Slot, i64)>,
    /// The bytes of a row of all values.
    pub(super) row_bytes: i64,
    /// The fused matmuls, which are the first and the last groups.
    pub(super) matmuls: MatmulNeighbours,
    /// True if rows may run in any order, because each row is either in scratch or found by a
    /// gather.
    pub(super) any_order: bool,
}

/// The groups of a program, bound to memory.
pub(super) struct BoundGroups<'b> {
    /// The groups; `None` for those that do not run.
    pub(super) groups: &'b [Option<BoundGroup>],
    /// The first slot of the program.
    pub(super) base: usize,
    /// The location of each slot.
    pub(super) locations: &'b [BufferLocation],
    /// The scatters that share memory.
    pub(super) scatter_chains: &'b ScatterChains,
}

impl<'b> BoundGroups<'b> {
    /// Returns the kernel of a group.
    fn kernel(&self, k: usize) -> Option<&'b GroupKernel> {
        self.groups[k].as_ref().map(|group| &group.kernel)
    }
    /// Returns the matmul of a group.
    pub(super) fn matmul(&self, k: usize) -> Option<&'b MatmulKernel> {
        if let Some(GroupKernel::Matmul(p)) = self.kernel(k) { Some(p) } else { None }
    }
    /// Returns the reduction of a group.
    fn reduction(&self, k: usize) -> Option<&'b ReductionKernel> {
        if let Some(GroupKernel::Reduction(f)) = self.kernel(k) { Some(f) } else { None }
    }
    /// Returns the gather of a group.
    fn gather(&self, k: usize) -> Option<&'b GatherScatterKernel> {
        match self.kernel(k) {
            Some(GroupKernel::GatherScatter(t)) if !t.is_scatter() => Some(t),
            _ => None,
        }
    }
    /// Returns the scatter of a group, if it can apply a batch of updates at a time.
    ///
    /// A scatter that does not sort its updates must be one task, because each of several tasks
    /// would have to compute all updates. So it must be small, or there is one worker.
    fn scatter(&self, g: &FusionPlan<'_, '_>, k: usize) -> Option<&'b GatherScatterKernel> {
        let (FusionRoot::Standalone(item), false) = (g.groups[k].root, size_optimized!()) else {
            return None;
        };
        let (BufferOp::GatherScatter(s), Some(GroupKernel::GatherScatter(t))) =
            (&g.program.ops[item], self.kernel(k))
        else {
            return None;
        };
        let puts = self.scatter_chains;
        let alone = |s: Slot| puts.last_value(s) == s && puts.first_value(s) == s;
        let own = t.is_scatter() && s.scatter_init_value(g.program).into_iter().chain([s.out]).all(alone);
        let batched = (t.num_tasks() == 1 || t.sorts_updates()) && t.num_batched_updates().is_some();
        (own && batched).then_some(&**t)
    }
    /// Returns the tile program of a group, if it can run by rows.
    pub(super) fn tile_program(&self, k: usize) -> Option<&'b TileProgram> {
        match self.kernel(k)? {
            GroupKernel::Elementwise(e) => Some(&e.tiles),
            GroupKernel::Reduction(f) => f.can_run_by_rows().then_some(&f.input),
            _ => None,
        }
    }
    /// Returns the values of a group, if no other value has their memory.
    fn exclusive_results(&self, g: &FusionPlan<'_, '_>, k: usize) -> Option<Vec<Slot>> {
        let makes: Vec<Slot> = match self.kernel(k)? {
            GroupKernel::Reduction(f) => vec![f.out as usize - self.base],
            GroupKernel::Elementwise(_) => stored_values(g, k),
            GroupKernel::GatherScatter(t) if !t.is_scatter() => vec![t.result_slot() as usize - self.base],
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
        if let Some(t) = self.gather(k) {
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
        let written = self.reduction(k).filter(|f| f.out == slot);
        memory_accesses(t)
            .filter(|m| m.slot == slot)
            .all(|m| inside(&m.strides, m.offset, i64::from(m.element_bytes)))
            && written.is_none_or(|f| inside(f.result_strides(), 0, f.result_element_bytes()))
    }

    /// Finds the chains of a program, and moves their groups to the level of the first one.
    pub(super) fn find_chains(
        &self,
        g: &mut FusionPlan<'_, '_>,
        over: impl Fn(usize) -> bool,
    ) -> Vec<RowFusion> {
        let mut readers: HashMap<u32, Vec<usize>> = HashMap::new();
        let takes = (0..g.groups.len()).filter(|k| self.gather(*k).is_some());
        let folds =
            (0..g.groups.len()).filter(|k| self.reduction(*k).is_some_and(ReductionKernel::can_run_by_rows));
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
        for k in 0..g.groups.len() {
            if let Some(scatter) = self.scatter(g, k) {
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
        let (rows, bytes) = match self.gather(seed) {
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
        let many = |put: usize| self.scatter(g, put).is_some_and(|p| p.num_tasks() > 1);
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
        let row = |s: Slot| g.program.value_bytes(s) as i64 / rows;
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
        let free = |k: &usize| match (self.gather(*k), self.tile_program(*k)) {
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
        if let Some(scatter) = self.scatter(g, k) {
            // (no group of the chain reads its result)
            if deep == MAX_PULL_DEPTH && !not(k) && self.can_end_chain(g, k, scatter, c) {
                c.scatter = Some(k);
            }
            return false;
        }
        let Some(makes) = self.exclusive_results(g, k) else { return false };
        let size = |s: Slot| g.program.value_bytes(s) as i64;
        let local = |s: &Slot| self.is_row_local(k, *s, c.num_rows, size(*s) / c.num_rows);
        if not(k) || !makes.iter().all(|s| size(*s) % c.num_rows == 0 && local(s)) {
            return false;
        }
        let Some(t) = self.tile_program(k) else {
            // a gather can only start a chain
            let begins = c.groups.is_empty() && self.gather(k).is_some();
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
