//! Row fusion with matmuls, which compute the first rows of a chain or read its last ones.
//!
//! In attention, for example, one matmul computes the scores and another one reads the weights. The
//! matmuls run on a batch of rows, before and after the other stages. A value that only the chain
//! reads is therefore never in memory as a whole.

use super::BufferLocation;
use super::row_exec::memory_accesses;
use super::row_fusion::{BoundGroups, ChainBuilder};
use crate::exec::compile::elementwise::stored_values;
use crate::exec::compile::fusion::{FusionPlan, FusionRoot};
use crate::exec::compile::matmul::{MatmulKernel, RowDims};
use crate::exec::compile::task_kernel::TaskKernel;
use crate::partition::Slot;
use crate::partition::fusion::policy::{MAX_BATCH_BYTES, MIN_BATCHES, MIN_SHARED_US, choose_batch_rows};
use std::collections::{BTreeSet, HashMap};

/// The matmuls of a chain.
#[derive(Debug, Default)]
pub(super) struct MatmulNeighbours {
    /// The groups that run before the other stages, with their row dimensions.
    pub(super) before: Vec<(usize, RowDims)>,
    /// The groups that run after the other stages, with their row dimensions.
    pub(super) after: Vec<(usize, RowDims)>,
    /// The values of the matmuls before the other stages.
    pub(super) produced: Vec<Slot>,
    /// The values that matmuls compute or read, of which a batch of rows is in memory.
    pub(super) batched: Vec<Slot>,
    /// The number of rows of a batch.
    pub(super) batch_rows: i64,
}

/// The matmuls of a program by the values that they read and compute.
#[derive(Default)]
pub(super) struct MatmulIndex {
    /// The groups that read each value, in order.
    readers: HashMap<Slot, Vec<usize>>,
    /// The group that computes each value.
    producers: HashMap<Slot, usize>,
}

impl MatmulIndex {
    /// Returns the groups that read one of the values, each once, in order.
    fn readers_of(&self, values: &[Slot]) -> BTreeSet<usize> {
        values.iter().filter_map(|s| self.readers.get(s)).flatten().copied().collect()
    }
}

impl BoundGroups<'_> {
    /// Returns the index of the matmuls, for [`find_matmuls`](Self::find_matmuls).
    pub(super) fn index_matmuls(&self, g: &FusionPlan<'_, '_>) -> MatmulIndex {
        let mut index = MatmulIndex::default();
        if size_optimized!() {
            return index;
        }
        for (k, group) in g.groups.iter().enumerate() {
            let FusionRoot::Matmul(item) = group.root else { continue };
            for s in g.program.ops[item].sources() {
                index.readers.entry(g.program.alias_root(s)).or_default().push(k);
            }
            index.producers.extend(self.matmul_results(g, k).into_iter().map(|s| (s, k)));
        }
        index
    }
    /// Returns the matmuls that compute a value that the groups of a chain read.
    fn producers_for(&self, index: &MatmulIndex, c: &ChainBuilder) -> BTreeSet<usize> {
        let tiles = c.groups.iter().filter_map(|k| self.tile_program(*k));
        let slots = tiles.flat_map(memory_accesses).map(|m| m.slot as usize);
        let values = slots.filter_map(|s| s.checked_sub(self.base));
        values.filter_map(|s| index.producers.get(&s)).copied().collect()
    }
    /// Finds the matmuls that can join a chain.
    pub(super) fn find_matmuls(
        &self,
        g: &FusionPlan<'_, '_>,
        index: &MatmulIndex,
        c: &ChainBuilder,
        not: &dyn Fn(usize) -> bool,
    ) -> MatmulNeighbours {
        let mut all = MatmulNeighbours::default();
        if size_optimized!() || c.scatter.is_some() {
            return all;
        }
        let (mut beside, mut cost, mut widest) = (1, 0.0, 1);
        let mut seen = |all: &mut MatmulNeighbours, p: &MatmulKernel, along: &RowDims, s: Slot| {
            beside = p.rows_per_matrix(along);
            cost += p.cost_us();
            widest = widest.max(g.program.value_bytes(s) as i64 / c.num_rows);
            all.batched.push(s);
        };
        for k in index.readers_of(&c.values) {
            let FusionRoot::Matmul(item) = g.groups[k].root else { continue };
            let reads =
                |s: &&Slot| g.program.ops[item].sources().iter().any(|x| g.program.alias_root(*x) == **s);
            let Some(s) = c.values.iter().find(reads).filter(|_| !not(k)) else { continue };
            if let Some((p, along)) = self.consumer_matmul(g, k, *s, c) {
                seen(&mut all, p, &along, *s);
                all.after.push((k, along));
            }
        }
        for k in self.producers_for(index, c) {
            if g.groups[k].level < c.first_level && !not(k) {
                let Some((p, along, made)) = self.producer_matmul(g, k, c) else { continue };
                for s in &made {
                    seen(&mut all, p, &along, *s);
                }
                all.before.push((k, along));
                all.produced.extend(made);
            }
        }
        all.batch_rows = choose_batch_rows(c.num_rows, beside, widest);
        let shared = cost < MIN_SHARED_US || c.num_rows / all.batch_rows >= MIN_BATCHES;
        if all.batch_rows * widest > MAX_BATCH_BYTES || !shared { MatmulNeighbours::default() } else { all }
    }
    /// Binds a matmul that reads value `s` of the chain by rows, if its other operands are ready.
    fn consumer_matmul(
        &self,
        g: &FusionPlan<'_, '_>,
        k: usize,
        s: Slot,
        c: &ChainBuilder,
    ) -> Option<(&MatmulKernel, RowDims)> {
        if !self.matmul_results(g, k).iter().all(|s| self.is_in_own_memory(*s)) {
            return None;
        }
        let p = self.matmul(k)?;
        let slot = (self.base + s) as u32;
        let along =
            p.consumes_rows(slot, c.num_rows, g.program.values[s].shape.num_elements() as i64 / c.num_rows)?;
        let makes = self.matmul_results(g, k);
        let ready = |x: u32| {
            let s = x as usize - self.base;
            makes.contains(&s) || g.value_level(s) < c.first_level
        };
        let known = |x: u32| x == crate::exec::compile::codegen::values::POSITION_SLOT || ready(x);
        let ready = p.operand_slots().into_iter().filter(|x| *x != slot).all(ready);
        (ready && p.epilogue_accesses().all(|m| known(m.slot))).then_some((p, along))
    }
    /// Binds a matmul that computes, row by row, values that only the chain reads.
    fn producer_matmul(
        &self,
        g: &FusionPlan<'_, '_>,
        k: usize,
        c: &ChainBuilder,
    ) -> Option<(&MatmulKernel, RowDims, Vec<Slot>)> {
        let made = self.matmul_results(g, k);
        let mut inner: HashMap<Slot, u32> = HashMap::new();
        for k in c.groups.iter().chain([&k]) {
            for s in g.group_ops(*k).flat_map(|i| g.program.ops[i].sources()) {
                *inner.entry(g.program.alias_root(s)).or_default() += 1;
            }
        }
        let size = |s: Slot| g.program.value_bytes(s) as i64;
        let private = |s: &Slot| {
            let uses = g.program.uses[*s];
            let alone = !uses.result && inner.get(s).copied().unwrap_or(0) == uses.readers;
            alone && self.locations[self.base + s] == BufferLocation::None && size(*s) % c.num_rows == 0
        };
        let local = |k: &usize, s: &Slot| {
            !self.reads_slot(*k, *s) || self.is_row_local(*k, *s, c.num_rows, size(*s) / c.num_rows)
        };
        if !made.iter().all(|s| private(s) && c.groups.iter().all(|k| local(k, s))) {
            return None;
        }
        let p = self.matmul(k)?;
        let row = |x: u32| {
            let s = (x as usize).checked_sub(self.base).filter(|s| made.contains(s))?;
            Some(size(s) / c.num_rows)
        };
        let slot = p.result_slot();
        let elements = g.program.values[slot as usize - self.base].shape.num_elements() as i64;
        let along = p.produces_rows(slot, (c.num_rows, elements / c.num_rows), row)?;
        Some((p, along, made))
    }
    /// Returns the values in memory that a matmul and its epilogue compute.
    fn matmul_results(&self, g: &FusionPlan<'_, '_>, k: usize) -> Vec<Slot> {
        let FusionRoot::Matmul(item) = g.groups[k].root else { return Vec::new() };
        let alias = self.groups[k].as_ref().and_then(|b| b.matmul_alias);
        let own = alias.is_none().then(|| g.reduction_loops(item).out);
        own.into_iter().chain(stored_values(g, k)).collect()
    }
}
