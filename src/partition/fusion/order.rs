//! The order in which groups run.
//!
//! A group has the first level at which its operands are ready. A value that is needed much later,
//! such as a recomputed activation, would be in memory for all levels in between. So a group moves
//! to the last level that delays no other group, unless this keeps operands in memory that are
//! larger than its values. The groups of a chain of rows move together.

use super::plan::{FusionPlan, FusionRoot};
use super::reuse::{BufferReuse, group_successors};
use crate::core::util::small_sort;
use crate::partition::Slot;
use crate::partition::buffers::BufferOp;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

/// The groups that run together, and what must run after them.
struct Units {
    /// The groups of each unit.
    groups: Vec<Vec<usize>>,
    /// The unit of each group.
    of_group: Vec<usize>,
    /// For each unit, the units that must run later. A unit may be listed several times.
    successors: Vec<Vec<usize>>,
}

impl Units {
    fn new(plan: &FusionPlan<'_, '_>, reuse: &BufferReuse) -> Units {
        let mut groups: Vec<Vec<usize>> = plan.chains.iter().map(|c| c.groups.clone()).collect();
        let mut of_group = vec![usize::MAX; plan.groups.len()];
        for (unit, members) in groups.iter().enumerate() {
            members.iter().for_each(|k| of_group[*k] = unit);
        }
        for k in (0..plan.groups.len()).filter(|k| !plan.groups[*k].merged) {
            if of_group[k] == usize::MAX {
                of_group[k] = groups.len();
                groups.push(vec![k]);
            }
        }
        let own = reuse.successors.is_empty().then(|| group_successors(plan));
        let of = own.as_ref().unwrap_or(&reuse.successors);
        let later = |(unit, members): (usize, &Vec<usize>)| {
            let next = members.iter().flat_map(|k| &of[*k]).map(|k| of_group[*k]);
            next.filter(|next| *next != unit).collect()
        };
        let successors = groups.iter().enumerate().map(later).collect();
        Units { groups, of_group, successors }
    }
    /// Returns the operations of a unit.
    fn ops(&self, plan: &FusionPlan<'_, '_>, unit: usize) -> impl Iterator<Item = usize> {
        self.groups[unit].iter().flat_map(|k| plan.group_ops(*k)).collect::<Vec<_>>().into_iter()
    }
}

/// Gives each group, or chain of rows, a separate level, in the order of the last operations.
pub(crate) fn run_in_program_order(plan: &mut FusionPlan<'_, '_>, reuse: &BufferReuse) {
    let units = Units::new(plan, reuse);
    let mut waits = vec![0; units.groups.len()];
    units.successors.iter().flatten().for_each(|unit| waits[*unit] += 1);
    let entry = |plan: &FusionPlan<'_, '_>, unit: usize| Reverse((units.ops(plan, unit).max(), unit));
    let mut ready: BinaryHeap<_> =
        (0..waits.len()).filter(|unit| waits[*unit] == 0).map(|unit| entry(plan, unit)).collect();
    let mut level = 0;
    while let Some(Reverse((_, unit))) = ready.pop() {
        level += 1;
        units.groups[unit].iter().for_each(|k| plan.groups[*k].level = level);
        for next in &units.successors[unit] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.push(entry(plan, *next));
            }
        }
    }
}

/// Moves groups to later levels. `is_placed` says which values have memory already.
pub(crate) fn delay_groups(
    plan: &mut FusionPlan<'_, '_>,
    reuse: &BufferReuse,
    is_placed: &dyn Fn(Slot) -> bool,
) {
    if plan.groups.len() < 2 {
        return;
    }
    let units = Units::new(plan, reuse);
    let mut order: Vec<usize> = (0..units.groups.len()).collect();
    small_sort::sort_by_key(&mut order, |u| Reverse(plan.groups[units.groups[*u][0]].level));
    let in_cache: HashSet<Slot> = plan.chains.iter().flat_map(|c| &c.scratch).map(|s| s.0).collect();
    let freed: HashSet<Slot> =
        reuse.scratch.iter().map(|k| plan.program.ins[reuse.donated[*k].arg]).collect();
    let mut delay = Delay {
        readers: readers(plan),
        plan,
        reuse,
        units,
        occupies: &|s| freed.contains(&s) || !is_placed(s) && !in_cache.contains(&s),
    };
    for unit in order {
        let later = delay.units.successors[unit].iter().map(|next| delay.level(*next));
        let Some(next) = later.min() else { continue };
        if delay.pays_off(unit, next.saturating_sub(1)) {
            let Delay { plan, units, .. } = &mut delay;
            units.groups[unit].iter().for_each(|k| plan.groups[*k].level = next - 1);
        }
    }
}

/// Returns the operations that read each value.
fn readers(plan: &FusionPlan<'_, '_>) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); plan.program.values.len()];
    for (k, op) in plan.program.ops.iter().enumerate() {
        op.sources().into_iter().for_each(|s| readers[plan.program.alias_root(s)].push(k));
    }
    readers
}

/// The maximum number of producers in a row that are assumed to be delayed too.
const MAX_DELAYED_PRODUCERS: usize = 4;
/// The maximum number of kept operands of a unit whose producers are assumed to be delayed too.
const MAX_KEPT_OPERANDS: usize = 8;
/// The maximum number of readers of a value that are searched.
const MAX_SEARCHED_READERS: usize = 1024;

/// The groups, some of which are delayed.
struct Delay<'d, 'f, 'p> {
    plan: &'d mut FusionPlan<'f, 'p>,
    reuse: &'d BufferReuse,
    /// The operations that read each value.
    readers: Vec<Vec<usize>>,
    units: Units,
    /// Returns true if the memory of a value is free for others after its last read.
    occupies: &'d dyn Fn(Slot) -> bool,
}

impl Delay<'_, '_, '_> {
    /// Returns the level of a unit.
    fn level(&self, unit: usize) -> u32 {
        self.plan.groups[self.units.groups[unit][0]].level
    }
    /// Returns true if a unit should move to the level `latest`.
    fn pays_off(&self, unit: usize, latest: u32) -> bool {
        if latest <= self.level(unit) || self.is_fixed(unit) {
            return false;
        }
        let made = self.values(unit);
        let bytes: usize = made.iter().map(|s| self.plan.program.value_bytes(*s)).sum();
        !made.is_empty() && self.kept_bytes(&mut vec![unit], latest) <= bytes
    }
    /// Returns the values in memory that a unit computes.
    fn values(&self, unit: usize) -> HashSet<Slot> {
        let made = self.units.ops(self.plan, unit).flat_map(|k| self.plan.program.ops[k].results());
        made.filter(|s| self.is_in_memory(*s)).collect()
    }
    /// Returns true if an operation outside of these units reads the value at a level for which
    /// `at` is true. It is `None` if the value has too many readers.
    fn is_read_by_others(&self, s: Slot, units: &[usize], at: impl Fn(u32) -> bool) -> Option<bool> {
        let readers = &self.readers[s];
        let groups = readers.iter().map(|k| self.plan.op_groups[*k]);
        let mut others = groups.filter(|k| !units.contains(&self.units.of_group[*k]));
        (readers.len() <= MAX_SEARCHED_READERS).then(|| others.any(|k| at(self.plan.groups[k].level)))
    }
    /// Returns the bytes of the operands that are in memory for longer if the last of these units
    /// moves to the level `latest`. The units before it read its values, and move too.
    fn kept_bytes(&self, units: &mut Vec<usize>, latest: u32) -> usize {
        let Some(unit) = units.last().copied() else { return 0 };
        let program = self.plan.program;
        let made = self.values(unit);
        let sources = self
            .units
            .ops(self.plan, unit)
            .flat_map(|k| program.ops[k].sources())
            .map(|s| program.alias_root(s));
        let kept: HashSet<Slot> = sources
            .filter(|s| self.is_in_memory(*s) && !made.contains(s))
            .filter(|s| self.is_read_by_others(*s, units, |level| level >= latest) != Some(true))
            .collect();
        let few = kept.len() <= MAX_KEPT_OPERANDS && units.len() <= MAX_DELAYED_PRODUCERS;
        let cost = |s: Slot| match few {
            true => self.keeping_cost(s, units, latest),
            false => program.value_bytes(s),
        };
        kept.into_iter().map(cost).fold(0, usize::saturating_add)
    }
    /// Returns the bytes of a kept operand, or those of the operands of its producer, if these are
    /// fewer and the producer can be delayed as well.
    fn keeping_cost(&self, s: Slot, units: &mut Vec<usize>, latest: u32) -> usize {
        let bytes = self.plan.program.value_bytes(s);
        let Some(def) = self.plan.defs[s] else { return bytes };
        let producer = self.units.of_group[def.group];
        let all = [&units[..], &[producer]].concat();
        let is_needed = |s: &Slot| self.is_read_by_others(*s, &all, |level| level < latest) != Some(false);
        if self.is_fixed(producer) || self.values(producer).iter().any(is_needed) {
            return bytes;
        }
        units.push(producer);
        let cost = self.kept_bytes(units, latest.saturating_sub(1));
        units.pop();
        cost.min(bytes)
    }
    /// Returns true if a value is in memory that others can use before and after it.
    fn is_in_memory(&self, s: Slot) -> bool {
        (self.plan.materialized[s] || self.plan.defs[s].is_none()) && (self.occupies)(s)
    }
    /// Returns true if a unit must not move.
    ///
    /// These are units that store values over others, and control flow: two loops of one level
    /// would need memory at the same time.
    fn is_fixed(&self, unit: usize) -> bool {
        let (plan, chains) = (&*self.plan, &self.reuse.scatter_chains);
        let shares = |s: &Slot| chains.last_value(*s) != *s || chains.first_value(*s) != *s;
        let fixed = |op: &BufferOp<'_>| {
            op.has_print() || !op.nested_programs().is_empty() || op.results().iter().any(shares)
        };
        let is_fixed = |k: &usize| {
            let standalone = match plan.groups[*k].root {
                FusionRoot::Standalone(op) => fixed(&plan.program.ops[op]),
                FusionRoot::Elementwise | FusionRoot::Matmul(_) | FusionRoot::Reduction(_) => false,
            };
            standalone || self.reuse.overwrites.get(*k).is_some_and(|o| !o.is_empty())
        };
        self.units.groups[unit].iter().any(is_fixed)
    }
}
