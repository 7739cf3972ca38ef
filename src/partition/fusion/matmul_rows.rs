//! Row fusion with matmuls, which compute the first rows of a chain or read its last ones.
//!
//! In attention, for example, one matmul computes the scores and another one reads the weights. The
//! matmuls run on a batch of rows, before and after the other stages. A value that only the chain
//! reads is therefore never in memory as a whole.

use super::matmul::MatmulSpace;
use super::plan::{FusionPlan, FusionRoot, MatmulNeighbours, RowDims};
use super::policy::{MAX_BATCH_BYTES, MIN_BATCHES, MIN_SHARED_US, choose_batch_rows};
use super::row_groups::{ChainBuilder, RowGroups};
use super::space::GroupSpace;
use crate::partition::Slot;
use std::collections::{BTreeSet, HashMap};

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

impl RowGroups<'_, '_> {
    /// Returns the index of the matmuls, for [`find_matmuls`](Self::find_matmuls).
    pub(super) fn index_matmuls(&self, g: &FusionPlan<'_, '_>) -> MatmulIndex {
        let mut index = MatmulIndex::default();
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
        let spaces = c.groups.iter().filter_map(|k| self.spaces[*k].as_ref());
        spaces.flat_map(GroupSpace::values).filter_map(|s| index.producers.get(&s)).copied().collect()
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
        if c.scatter.is_some() {
            return all;
        }
        let (mut rows_per_matrix, mut cost, mut widest) = (1, 0.0, 1);
        let mut seen = |all: &mut MatmulNeighbours, p: &MatmulSpace, along: &RowDims, s: Slot| {
            rows_per_matrix = p.rows_per_matrix(along);
            cost += p.product_us();
            widest = widest.max(g.program.value_bytes(s) as i64 / c.num_rows);
            all.batched.push(s);
        };
        for k in index.readers_of(&c.values) {
            let FusionRoot::Matmul(item) = g.groups[k].root else { continue };
            let reads =
                |s: &&Slot| g.program.ops[item].sources().iter().any(|x| g.program.alias_root(*x) == **s);
            let Some(s) = c.values.iter().find(reads).filter(|_| !not(k)) else { continue };
            if let Some((p, along)) = self.consumer_matmul(g, k, *s, c) {
                seen(&mut all, &p, &along, *s);
                all.after.push((k, along));
            }
        }
        for k in self.producers_for(index, c) {
            if g.groups[k].level < c.first_level && !not(k) {
                let Some((p, along, made)) = self.producer_matmul(g, k, c) else { continue };
                for s in &made {
                    seen(&mut all, &p, &along, *s);
                }
                all.before.push((k, along));
                all.produced.extend(made);
            }
        }
        all.batch_rows = choose_batch_rows(c.num_rows, rows_per_matrix, widest);
        let shared = cost < MIN_SHARED_US || c.num_rows / all.batch_rows >= MIN_BATCHES;
        if all.batch_rows * widest > MAX_BATCH_BYTES || !shared { MatmulNeighbours::default() } else { all }
    }
    /// Returns a matmul that reads value `s` of the chain by rows, if its other operands are ready.
    fn consumer_matmul(
        &self,
        g: &FusionPlan<'_, '_>,
        k: usize,
        s: Slot,
        c: &ChainBuilder,
    ) -> Option<(MatmulSpace, RowDims)> {
        let makes = self.matmul_results(g, k);
        if !makes.iter().all(|s| (self.constraints.is_in_own_memory)(*s)) {
            return None;
        }
        let p = MatmulSpace::new(g, k, self.constraints.aliases[k]);
        let row = g.program.values[s].shape.num_elements() as i64 / c.num_rows;
        let along = p.consumes_rows(s, c.num_rows, row)?;
        let ready = |s: Slot| makes.contains(&s) || g.value_level(s) < c.first_level;
        let read = p.operands[..2].iter().map(|x| x.value).filter(|x| *x != s);
        (read.into_iter().all(ready) && p.epilogue_values().all(ready)).then_some((p, along))
    }
    /// Returns a matmul that computes, row by row, values that only the chain reads.
    fn producer_matmul(
        &self,
        g: &FusionPlan<'_, '_>,
        k: usize,
        c: &ChainBuilder,
    ) -> Option<(MatmulSpace, RowDims, Vec<Slot>)> {
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
            alone && (self.constraints.is_unplaced)(*s) && size(*s) % c.num_rows == 0
        };
        let local = |k: &usize, s: &Slot| {
            !self.accesses_value(*k, *s) || self.is_row_local(*k, *s, c.num_rows, size(*s) / c.num_rows)
        };
        if !made.iter().all(|s| private(s) && c.groups.iter().all(|k| local(k, s))) {
            return None;
        }
        let p = MatmulSpace::new(g, k, self.constraints.aliases[k]);
        let row = |s: Slot| made.contains(&s).then(|| size(s) / c.num_rows);
        let elements = g.program.values[p.operands[2].value].shape.num_elements() as i64;
        let along = p.produces_rows((c.num_rows, elements / c.num_rows), row)?;
        Some((p, along, made))
    }
    /// Returns the values in memory that a matmul and its epilogue compute.
    fn matmul_results(&self, g: &FusionPlan<'_, '_>, k: usize) -> Vec<Slot> {
        let FusionRoot::Matmul(item) = g.groups[k].root else { return Vec::new() };
        let own = self.constraints.aliases[k].is_none().then(|| g.reduction_loops(item).out);
        own.into_iter().chain(g.stored_members(k)).collect()
    }
}
