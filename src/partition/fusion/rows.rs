//! Row fusion: finds chains of groups that run on a batch of rows at a time, in cache.
//!
//! A chain grows from a reduction or a gather of rows. Each further group reads, for its row r, row
//! r of the values of earlier groups. Matmuls may come before and after these groups
//! (`matmul_rows`); without matmuls, a scatter of the rows may be the last one. Whether a group can
//! join follows from the affine maps of its accesses: it must write row r of a value to the r-th
//! part of that value's memory, and read only that part of the values of the chain's other groups.
//! The tasks of a chain therefore need no barrier between groups, and a value that only the chain
//! reads needs scratch for only a few rows per worker. Fusion changes no bit: every group computes
//! the same as it would alone.

use super::matmul_rows::MatmulIndex;
use super::plan::{FusionPlan, FusionRoot, MatmulNeighbours, RowFusion};
use super::policy::{MAX_PULL_DEPTH, MAX_ROW_BYTES, MIN_ROWS};
use super::row_groups::{ChainBuilder, RowConstraints, RowGroups, ScatterRows};
use super::space::GroupSpace;
use crate::ir::program::loop_nest::{ScalarOp, Source};
use crate::kernels;
use crate::partition::Slot;
use crate::partition::buffers::{AccessBox, BufferOp, ReductionLoops, ShardBox};
use std::collections::{BTreeSet, HashMap};

/// Finds the chains of a program, and moves their groups to the level of the first one.
pub(crate) fn fuse_rows(g: &mut FusionPlan<'_, '_>, constraints: &RowConstraints<'_>) {
    let gathers = (0..g.groups.len()).filter(|k| constraints.gathers[*k].is_some());
    let reductions = (0..g.groups.len()).filter(|k| matches!(g.groups[*k].root, FusionRoot::Reduction(_)));
    // gathers come first, because the rows they gather may be reduced
    let mut seeds: Vec<usize> = gathers.chain(reductions).collect();
    if seeds.is_empty() {
        return;
    }
    let spaces = (0..g.groups.len()).map(|k| space_of_rows(g, k, constraints)).collect();
    let rows = RowGroups { spaces, constraints };
    seeds.retain(|k| constraints.gathers[*k].is_some() || rows.spaces[*k].is_some());
    if seeds.is_empty() {
        return;
    }
    let mut readers: HashMap<Slot, Vec<usize>> = HashMap::new();
    for (k, space) in rows.spaces.iter().enumerate() {
        for s in space.iter().flat_map(GroupSpace::values) {
            let list = readers.entry(s).or_default();
            if list.last() != Some(&k) {
                list.push(k);
            }
        }
    }
    for (k, scatter) in constraints.scatters.iter().enumerate() {
        if let Some(scatter) = scatter {
            readers.entry(scatter.updates).or_default().push(k);
        }
    }
    let matmuls = rows.index_matmuls(g);
    let mut taken = vec![false; g.groups.len()];
    for seed in seeds {
        if taken[seed] {
            continue;
        }
        let level = g.groups[seed].level;
        let late = |k: usize| constraints.latest_levels[k] < level;
        let not = |k: usize| taken[k] || (constraints.is_excluded)(k) || late(k);
        let Some(chain) = rows.grow_chain(g, seed, (&readers, &matmuls), not) else { continue };
        for k in &chain.groups {
            g.groups[*k].level = level;
            taken[*k] = true;
        }
        g.chains.push(chain);
    }
}

/// Returns the space of a group, if it can run by rows.
fn space_of_rows(g: &FusionPlan<'_, '_>, k: usize, c: &RowConstraints<'_>) -> Option<GroupSpace> {
    match g.groups[k].root {
        FusionRoot::Elementwise if !g.groups[k].merged && !(c.is_skipped)(k) => {
            Some(GroupSpace::of_elementwise(g, k))
        }
        FusionRoot::Reduction(item) => {
            let f = g.reduction_loops(item);
            if f.partials.len() != 1 {
                return None;
            }
            let space = GroupSpace::of_reduction(g, k, item);
            // (a reduction of several rows is one kernel, which runs on all of them)
            let apart = adds_eight_rows(g, k, item, f, &space);
            (space.rank > 1 && !space.reduced[0] && !apart).then_some(space)
        }
        _ => None,
    }
}

/// Returns true if a reduction adds eight shards of one row each, for which there is a kernel.
fn adds_eight_rows(
    g: &FusionPlan<'_, '_>,
    group: usize,
    item: usize,
    f: &ReductionLoops,
    space: &GroupSpace,
) -> bool {
    let last = space.rank - 1;
    let op = g.reduction_op(item);
    let is_row = |s: &ShardBox| (f.rank..f.num_loops).map(|l| s.hi[l] - s.lo[l]).product::<i64>() == 1;
    let is_copy = matches!(&op.code.insts[..], [i] if i.op == ScalarOp::Copy);
    !space.reduced[last]
        && g.groups[group].members.is_empty()
        && is_copy
        && space.reduced[..=last].iter().filter(|r| **r).count() == 1
        && f.filled_boxes().count() == 8
        && f.filled_boxes().all(is_row)
        && kernels::combine_rows8(op.reducer, f.dtype, false).is_some()
}

impl RowGroups<'_, '_> {
    /// Returns the values of a group, if no other value has their memory.
    fn exclusive_results(&self, g: &FusionPlan<'_, '_>, k: usize) -> Option<Vec<Slot>> {
        let makes: Vec<Slot> = match g.groups[k].root {
            FusionRoot::Reduction(item) => vec![g.reduction_loops(item).out],
            FusionRoot::Elementwise if self.spaces[k].is_some() => g.stored_members(k).collect(),
            FusionRoot::Standalone(item) if self.constraints.gathers[k].is_some() => {
                g.program.ops[item].results().to_vec()
            }
            _ => return None,
        };
        makes.iter().all(|s| (self.constraints.is_in_own_memory)(*s)).then_some(makes)
    }
    /// Grows a chain from group `seed`; groups for which `not` is true stay out.
    fn grow_chain(
        &self,
        g: &FusionPlan<'_, '_>,
        seed: usize,
        (readers, index): (&HashMap<Slot, Vec<usize>>, &MatmulIndex),
        not: impl Fn(usize) -> bool,
    ) -> Option<RowFusion> {
        let (first, space) = (g.groups[seed].level, self.spaces[seed].as_ref());
        // the number of rows, and the bytes of a row that the seed computes in scratch
        let (rows, bytes) = match &self.constraints.gathers[seed] {
            Some(take) => (take.num_rows?, 0),
            None => {
                let t = space?;
                (t.ext[0], t.elements() / t.ext[0].max(1) * g.reduction_element_bytes(seed)?)
            }
        };
        if rows < MIN_ROWS || space.is_some_and(|t| t.elements() == 0) || not(seed) {
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
                let next = readers.get(s).into_iter().flatten();
                open.extend(next.filter(|r| !grown.groups.contains(r)).map(|r| (g.groups[*r].level, *r)));
            }
        }
        if grown.groups.len() + usize::from(grown.scatter.is_some()) < 2 {
            return None;
        }
        let many = |put: usize| self.constraints.scatters[put].is_some_and(|p| p.num_tasks > 1);
        let many = grown.scatter.is_some_and(many);
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
            !uses.result && (self.constraints.is_unplaced)(*s) && inner.get(s) == Some(&uses.readers)
        };
        let scratch: Vec<(Slot, i64)> = made.iter().copied().filter(private).map(|s| (s, row(s))).collect();
        let in_scratch = |value: Slot| scratch.iter().any(|s| s.0 == value);
        let free = |k: &usize| match (&self.constraints.gathers[*k], &self.spaces[*k]) {
            (Some(take), _) => take.any_order,
            (None, Some(t)) => {
                t.accesses.iter().all(|m| m.strides[0] == 0 || m.value.is_some_and(in_scratch))
            }
            (None, None) => true,
        };
        let products = !(matmuls.before.is_empty() && matmuls.after.is_empty());
        let any_order = !products && scratch.len() == made.len() && groups.iter().all(free);
        Some(RowFusion { groups, num_rows: rows, scratch, row_bytes: bytes, matmuls, any_order })
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
        if let Some(scatter) = self.constraints.scatters[k].as_ref() {
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
        let Some(t) = &self.spaces[k] else {
            // a gather can only start a chain
            let begins = c.groups.is_empty() && self.constraints.gathers[k].is_some();
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
        for s in t.values() {
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
            .filter(|s| self.accesses_value(k, **s))
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
        scatter: &ScatterRows,
        c: &ChainBuilder,
    ) -> bool {
        let FusionRoot::Standalone(item) = g.groups[k].root else { return false };
        let BufferOp::GatherScatter(s) = &g.program.ops[item] else { return false };
        let others = s.reads.iter().enumerate().filter(|(k, _)| *k != 1).flat_map(|(_, o)| &o.boxes);
        let ready = |p: &AccessBox| match p.source {
            Source::Value(s) => {
                g.program.alias_root(s) != scatter.updates && g.value_level(s) < c.first_level
            }
            Source::Const(_) => true,
        };
        c.scatter.is_none()
            && (self.constraints.is_in_own_memory)(s.out)
            && scatter.num_updates == c.num_rows
            && c.values.contains(&scatter.updates)
            && others.into_iter().all(ready)
    }
}
