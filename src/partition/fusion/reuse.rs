//! Reuse of memory, by donated arguments and by values that are updated in place.
//!
//! The memory of a donated argument becomes that of a result, one of the two buffers of a carry, or
//! scratch for intermediate values.
//!
//! A new value may overwrite an old one if each consumer of the old value either runs before the
//! group that computes the new value, or is an elementwise operation of that group that reads each
//! old element at the index where the new one is stored. In the second case the group defers its
//! stores: each tile is read before it is written. If a consumer does not depend on the group but
//! would run at the same level or later, the group is moved to a later level. A scatter overwrites
//! its initial value, if it has no other operand in that memory; all results of a chain of scatters
//! are in the memory of the last.

use super::plan::{FusionGroup, FusionPlan, FusionRoot};
pub(crate) use super::scatter_chains::CarryUpdate;
use super::scatter_chains::{ScatterChains, can_scatter_in_place, chainable_scatters, is_scatter_over};
use super::{addresses, group::fuse, result_views::ResultPlan};
use crate::core::util::small_sort;
use crate::ir::program::Source;
use crate::partition::Slot;
use crate::partition::buffers::{AccessBox, BufferOp, BufferProgram, Carry};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt;

/// The minimum size, in bytes, of a carry that is updated in place even at a cost.
///
/// The cost is that stores are deferred, or that there is one more level. Two large buffers would
/// cost more, since they fill the caches.
const MIN_IN_PLACE_BYTES: usize = 1 << 18;

/// A donated argument whose memory is written.
/// A fresh buffer is used instead if the caller still holds the argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DonatedBuffer {
    /// The number of the argument.
    pub(crate) arg: usize,
    /// The size, in bytes.
    pub(crate) bytes: usize,
    /// The use of its memory.
    pub(crate) purpose: DonationPurpose,
}

/// The use of the memory of a donated argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DonationPurpose {
    /// The memory of a result.
    Result,
    /// One of the two buffers of a loop-carried value.
    Carry,
    /// Scratch for intermediate values.
    Scratch,
}

impl fmt::Display for DonationPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DonationPurpose::Result => "a result",
            DonationPurpose::Carry => "a buffer of a loop's carry",
            DonationPurpose::Scratch => "scratch for intermediate values",
        })
    }
}

/// A block of memory outside the arena, such as a donated argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeBlock {
    /// The size, in bytes.
    pub(crate) bytes: usize,
    /// The last level that needs its old contents; later levels may use it.
    pub(crate) free_after_level: u32,
}

/// The values that share the memory of another value.
#[derive(Debug, Default)]
pub(crate) struct BufferReuse {
    /// For each group, the values that it stores over its operands, as (value, operand).
    pub(crate) overwrites: Vec<SmallVec<[(Slot, Slot); 1]>>,
    /// The donated arguments.
    pub(crate) donated: Vec<DonatedBuffer>,
    /// The values in donated arguments, as (value, index into `donated`).
    pub(crate) in_donated: Vec<(Slot, usize)>,
    /// The carries whose alternate buffer is donated, as (operation, carry, index into `donated`).
    pub(crate) alternates: Vec<(usize, usize, usize)>,
    /// The scatters that share memory.
    pub(crate) scatter_chains: ScatterChains,
    /// The donated arguments that are scratch after their last read, as indices into `donated`.
    pub(crate) scratch: Vec<usize>,
    /// For each group, the groups that must run later. Empty if no memory is shared.
    pub(crate) successors: Vec<Vec<usize>>,
    /// The part of this order that does not follow from operands, as (earlier, later): later groups
    /// overwrite what earlier ones read.
    pub(crate) run_before: Vec<(usize, usize)>,
}

impl BufferReuse {
    /// Returns the last level at which each group may run, because a later one overwrites what it
    /// reads. Groups that others do not limit have `u32::MAX`.
    pub(crate) fn latest_levels(&self, g: &FusionPlan<'_, '_>) -> Vec<u32> {
        let mut latest = vec![u32::MAX; g.groups.len()];
        for (earlier, later) in &self.run_before {
            latest[*earlier] = latest[*earlier].min(g.groups[*later].level - 1);
        }
        latest
    }
    /// Returns the donated arguments that are scratch, as (index into `donated`, its memory).
    pub(crate) fn free_blocks(&self, g: &FusionPlan<'_, '_>) -> Vec<(usize, FreeBlock)> {
        if self.scratch.is_empty() {
            return Vec::new();
        }
        let last_reads = g.last_read_levels();
        let block = |k: &usize| {
            let donated = &self.donated[*k];
            let free_after_level = last_reads[g.program.ins[donated.arg]];
            (*k, FreeBlock { bytes: donated.bytes, free_after_level })
        };
        self.scratch.iter().map(block).collect()
    }
}

/// A way to store a value in the memory of another one.
struct SharingCandidate {
    /// The group that computes the value.
    producer: usize,
    /// True if that group reads the other value.
    overwrites_read: bool,
    /// True if that group must defer its stores.
    stores_deferred: bool,
    /// The groups that must run before.
    predecessors: SmallVec<[usize; 4]>,
}

/// Returns, for each group, the groups that must run later because of their operands.
pub(super) fn group_successors(plan: &FusionPlan<'_, '_>) -> Vec<Vec<usize>> {
    let flow = plan.program;
    let mut successors = vec![Vec::new(); plan.groups.len()];
    let mut printed = None;
    for (item, own) in flow.ops.iter().zip(&plan.op_groups) {
        let made = item.sources().into_iter().filter_map(|s| Some(plan.defs[flow.alias_root(s)]?.group));
        // prints keep their order
        let before = printed.filter(|_| item.has_print());
        for k in made.chain(before).filter(|k| k != own) {
            if successors[k].last() != Some(own) {
                successors[k].push(*own);
            }
        }
        if item.has_print() {
            printed = Some(*own);
        }
    }
    successors
}

/// The order of groups.
struct GroupOrder<'g, 'f, 'p> {
    /// The fusion plan, whose levels are changed.
    plan: &'g mut FusionPlan<'f, 'p>,
    /// For each group, the groups that must run later.
    successors: Vec<Vec<usize>>,
    /// The part of this order that does not follow from operands, as (earlier, later).
    added: Vec<(usize, usize)>,
    /// True if the levels of groups may not satisfy the order yet.
    changed: bool,
}

impl<'g, 'f, 'p> GroupOrder<'g, 'f, 'p> {
    /// Collects the order that follows from the operands of a program.
    fn from_plan(plan: &'g mut FusionPlan<'f, 'p>) -> Self {
        let successors = group_successors(plan);
        GroupOrder { plan, successors, added: Vec::new(), changed: false }
    }
    /// Returns true if group `a` is group `b`, or must run before it.
    fn reaches(&self, a: usize, b: usize) -> bool {
        let (mut open, mut seen) = (vec![a], vec![false; self.successors.len()]);
        while let Some(k) = open.pop() {
            if k == b {
                return true;
            }
            if !std::mem::replace(&mut seen[k], true) {
                open.extend(&self.successors[k]);
            }
        }
        false
    }
    /// Returns the operations that read each of these values.
    fn reader_ops(&self, of: &[Slot]) -> Vec<Vec<usize>> {
        let flow = self.plan.program;
        // (a value may be listed twice)
        let mut readers: HashMap<Slot, Vec<usize>> = of.iter().map(|s| (*s, Vec::new())).collect();
        for (i, item) in flow.ops.iter().enumerate() {
            for s in item.sources() {
                if let Some(list) = readers.get_mut(&flow.alias_root(s))
                    && list.last() != Some(&i)
                {
                    list.push(i);
                }
            }
        }
        of.iter().map(|s| readers[s].clone()).collect()
    }
    /// Returns how to store `to` in the memory of `from`, which the operations `readers` read.
    fn find_sharing(&self, from: Slot, to: Slot, readers: &[usize]) -> Option<SharingCandidate> {
        let maker = self.plan.defs[to]?.group;
        let inside = |i: &&usize| self.plan.op_groups[**i] == maker;
        if readers.iter().filter(inside).any(|i| !self.reads_in_place(*i, from, to)) {
            return None;
        }
        let over = readers.iter().any(|i| self.plan.op_groups[*i] == maker);
        // a scatter writes its initial value in place, so its stores need not be deferred
        let late = readers
            .iter()
            .filter(inside)
            .any(|i| !matches!(self.plan.program.ops[*i], BufferOp::GatherScatter(_)));
        self.required_predecessors(maker, readers).map(|before| SharingCandidate {
            producer: maker,
            overwrites_read: over,
            stores_deferred: late,
            predecessors: before,
        })
    }
    /// Returns the groups of these operations, without `maker`, if none of them must run after it.
    fn required_predecessors(&self, maker: usize, readers: &[usize]) -> Option<SmallVec<[usize; 4]>> {
        let mut before: SmallVec<[usize; 4]> =
            readers.iter().map(|i| self.plan.op_groups[*i]).filter(|r| *r != maker).collect();
        small_sort::sort(&mut before);
        before.dedup();
        before.iter().all(|r| !self.reaches(maker, *r)).then_some(before)
    }
    /// Chains scatters that may be computed over the results of others, after all gathers of these.
    fn share_scatter_chains(&mut self) -> ScatterChains {
        let flow = self.plan.program;
        let mut list = chainable_scatters(flow);
        let slots: Vec<Slot> = list.iter().map(|x| x.1).collect();
        let mut readers = self.reader_ops(&slots).into_iter();
        list.retain(|(k, was, is)| {
            let readers = readers.next().unwrap_or_default();
            // only gathers and scatters are bound to the shared memory
            if readers.iter().any(|i| !matches!(flow.ops[*i], BufferOp::GatherScatter(_))) {
                return false;
            }
            let fit = self.find_sharing(*was, *is, &readers);
            let Some(fit) =
                fit.filter(|f| flow.value_bytes(*is) >= MIN_IN_PLACE_BYTES || self.costs_nothing(f))
            else {
                return false;
            };
            debug_assert_eq!(fit.producer, self.plan.op_groups[*k], "the group computes its value");
            self.add_dependencies(&fit.predecessors, fit.producer);
            true
        });
        ScatterChains::from_pairs(list.into_iter().map(|(_, was, is)| (was, is)))
    }
    /// Returns true if an operation of the group of `to` reads `from` only where it stores `to`.
    fn reads_in_place(&self, item: usize, from: Slot, to: Slot) -> bool {
        let (g, flow) = (&self.plan, self.plan.program);
        let Some(made) = g.defs[to] else { return false };
        if let BufferOp::GatherScatter(s) = &flow.ops[item] {
            return s.out == to && can_scatter_in_place(flow, s, from);
        }
        let group: &FusionGroup = &g.groups[made.group];
        let member = |k: usize| group.members.iter().find(|m| m.op == k);
        let (Some(reads), Some(makes)) = (member(item), member(made.op)) else { return false };
        let (a, b) = (g.elementwise_op(reads.op), g.elementwise_op(makes.op));
        let (was, is) = (&flow.values[from], &flow.values[to]);
        let store = (&is.strides, b.num_loops);
        let same = |p: &AccessBox| match p.source {
            Source::Value(s) if flow.alias_root(s) == from => {
                addresses::same_address(reads, (p.offset, &p.strides, a.num_loops), makes, store, &a.ext)
            }
            _ => true,
        };
        matches!(group.root, FusionRoot::Elementwise | FusionRoot::Matmul(_))
            && was.dtype.size() == is.dtype.size()
            && addresses::is_within(reads, (&a.ext, a.num_loops), makes, (&b.ext, b.num_loops))
            && a.reads.iter().flat_map(|r| &r.boxes).all(same)
    }
    /// Returns true if the sharing costs no time.
    fn costs_nothing(&self, fit: &SharingCandidate) -> bool {
        let level = |k: usize| self.plan.groups[k].level;
        !fit.stores_deferred && fit.predecessors.iter().all(|r| level(*r) < level(fit.producer))
    }
    /// Makes these groups run before `maker`.
    fn add_dependencies(&mut self, before: &[usize], maker: usize) {
        for r in before {
            self.changed |= self.plan.groups[*r].level >= self.plan.groups[maker].level;
            self.successors[*r].push(maker);
            self.added.push((*r, maker));
        }
    }
    /// Raises the levels of groups to satisfy the order.
    fn update_levels(&mut self) {
        if !self.changed {
            return;
        }
        let mut waits = vec![0; self.successors.len()];
        self.successors.iter().flatten().for_each(|k| waits[*k] += 1);
        let mut open: Vec<usize> = (0..waits.len()).filter(|k| waits[*k] == 0).collect();
        while let Some(k) = open.pop() {
            for &l in &self.successors[k] {
                self.plan.groups[l].level = self.plan.groups[l].level.max(self.plan.groups[k].level + 1);
                waits[l] -= 1;
                if waits[l] == 0 {
                    open.push(l);
                }
            }
        }
    }
}

/// Returns how a body updates the carries, and what its groups store over their operands.
pub(crate) fn in_place_carries(
    g: &mut FusionPlan<'_, '_>,
    list: &[Carry],
) -> (Vec<CarryUpdate>, BufferReuse) {
    let (flow, n) = (g.program, g.groups.len());
    let mut reuse = BufferReuse { overwrites: vec![SmallVec::new(); n], ..BufferReuse::default() };
    let mut order = GroupOrder::from_plan(g);
    let from: Vec<Slot> = list.iter().map(|c| c.body_in).collect();
    let (readers, puts) = (order.reader_ops(&from), order.share_scatter_chains());
    let mut updates = Vec::with_capacity(list.len());
    for (c, readers) in list.iter().zip(&readers) {
        let to = puts.first_value(flow.alias_root(c.body_out));
        let fit = order
            .find_sharing(c.body_in, to, readers)
            .filter(|f| flow.value_bytes(to) >= MIN_IN_PLACE_BYTES || order.costs_nothing(f));
        updates.push(match &fit {
            None => CarryUpdate::Moved,
            Some(_) if is_scatter_over(flow, c.body_in, to) => CarryUpdate::Partial,
            Some(_) => CarryUpdate::InPlace,
        });
        if let Some(fit) = fit {
            order.add_dependencies(&fit.predecessors, fit.producer);
            if fit.overwrites_read {
                reuse.overwrites[fit.producer].push((to, c.body_in));
            }
        }
    }
    order.update_levels();
    (reuse.scatter_chains, reuse.successors) = (puts, order.successors);
    (updates, reuse)
}

/// Decides the use of the memory of donated inputs.
/// `outs` has the results that are arguments, or blocks of one.
pub(crate) fn assign_donated(
    g: &mut FusionPlan<'_, '_>,
    donated: &[bool],
    outs: &[Option<ResultPlan>],
) -> BufferReuse {
    let (flow, n) = (g.program, g.groups.len());
    let mut reuse = BufferReuse { overwrites: vec![SmallVec::new(); n], ..BufferReuse::default() };
    let args = usable_arguments(flow, donated, outs);
    if args.is_empty() && chainable_scatters(flow).is_empty() {
        return reuse;
    }
    let slots: Vec<Slot> = args.iter().map(|i| flow.ins[*i]).collect();
    let mut order = GroupOrder::from_plan(g);
    let readers = order.reader_ops(&slots);
    reuse.scatter_chains = order.share_scatter_chains();
    let taken = vec![false; args.len()];
    let mut donations = DonationAssigner { flow, args, slots, readers, taken, order, reuse };
    // carries first, because a loop needs a second buffer otherwise
    donations.assign_carries();
    // then results that are stored over operands of their group, and then results that are computed
    // after all reads of the argument
    donations.assign_results(outs, true);
    donations.assign_results(outs, false);
    donations.order.update_levels();
    donations.assign_scratch();
    let GroupOrder { successors, added, .. } = donations.order;
    BufferReuse { successors, run_before: added, ..donations.reuse }
}

/// Returns the donated arguments whose memory may be written, by number.
fn usable_arguments(flow: &BufferProgram<'_>, donated: &[bool], outs: &[Option<ResultPlan>]) -> Vec<usize> {
    let returned = |i: usize| {
        let is = |o: &ResultPlan| matches!(o, ResultPlan::Argument(a) | ResultPlan::View { arg: a, .. } if *a == i);
        outs.iter().flatten().any(is)
    };
    let given = donated.iter().enumerate().filter(|(_, d)| **d).map(|(i, _)| i);
    let mut args: Vec<usize> = given
        .filter(|i| flow.ins.get(*i).is_some_and(|s| flow.value_bytes(*s) > 0) && !returned(*i))
        .collect();
    args.dedup_by_key(|i| flow.ins[*i]);
    args
}

/// Assigns uses to the memory of donated arguments.
struct DonationAssigner<'g, 'f, 'p> {
    /// The program.
    flow: &'f BufferProgram<'p>,
    /// The arguments, by number.
    args: Vec<usize>,
    /// Their values.
    slots: Vec<Slot>,
    /// The operations that read each of them.
    readers: Vec<Vec<usize>>,
    /// True for each argument that has a use.
    taken: Vec<bool>,
    /// The order of groups.
    order: GroupOrder<'g, 'f, 'p>,
    /// The uses so far.
    reuse: BufferReuse,
}

impl DonationAssigner<'_, '_, '_> {
    /// Records the use of argument `k`, and returns its index among the donated buffers.
    fn take(&mut self, k: usize, purpose: DonationPurpose) -> usize {
        let bytes = self.flow.value_bytes(self.slots[k]);
        self.taken[k] = true;
        self.reuse.donated.push(DonatedBuffer { arg: self.args[k], bytes, purpose });
        self.reuse.donated.len() - 1
    }
    /// Gives arguments to the buffers of carries that start from them.
    fn assign_carries(&mut self) {
        let flow = self.flow;
        for (item, what) in flow.ops.iter().enumerate() {
            let group = self.order.plan.op_groups[item];
            for (c, carry, over) in donatable_carries(flow, what) {
                let init = flow.alias_root(carry.init);
                let Some(k) = self.slots.iter().position(|s| *s == init) else { continue };
                let before = self.order.required_predecessors(group, &self.readers[k]);
                let Some(before) = before.filter(|_| !self.taken[k]) else { continue };
                self.order.add_dependencies(&before, group);
                let donation = self.take(k, DonationPurpose::Carry);
                match over {
                    true => self.reuse.in_donated.push((carry.result, donation)),
                    false => self.reuse.alternates.push((item, c, donation)),
                }
            }
        }
    }
    /// Gives arguments to results of the same size: those that are stored over an operand of their
    /// group, if `over` is true, and otherwise those that are computed after all reads.
    fn assign_results(&mut self, outs: &[Option<ResultPlan>], over: bool) {
        let flow = self.flow;
        for (o, out) in flow.outs.iter().zip(outs) {
            let o = flow.alias_root(*o);
            if out.is_some() || self.reuse.in_donated.iter().any(|x| x.0 == o) {
                continue;
            }
            let begun = self.reuse.scatter_chains.first_value(o);
            let Some(maker) = self.order.plan.defs[begun].map(|d| d.group) else { continue };
            let fits = |k: usize| {
                let readers = &self.readers[k];
                let reads = readers.iter().any(|i| self.order.plan.op_groups[*i] == maker);
                let fit =
                    if reads == over { self.order.find_sharing(self.slots[k], begun, readers) } else { None };
                Some((k, fit?))
            };
            let size = flow.value_bytes(o);
            let free = |k: &usize| !self.taken[*k] && flow.value_bytes(self.slots[*k]) == size;
            let Some((k, fit)) = (0..self.args.len()).filter(free).find_map(fits) else { continue };
            self.order.add_dependencies(&fit.predecessors, fit.producer);
            if fit.overwrites_read {
                self.reuse.overwrites[fit.producer].push((begun, self.slots[k]));
            }
            let donation = self.take(k, DonationPurpose::Result);
            self.reuse.in_donated.push((o, donation));
        }
    }
    /// Makes the other arguments scratch after their last read.
    fn assign_scratch(&mut self) {
        for k in (0..self.args.len()).filter(|k| !self.taken[*k]).collect::<Vec<usize>>() {
            let donation = self.take(k, DonationPurpose::Scratch);
            self.reuse.scratch.push(donation);
        }
    }
}

/// Returns the carries whose initial values the operation does not read in any other way.
/// Each comes with its number, and true if its final value may be stored over the initial one;
/// otherwise its alternate buffer may.
fn donatable_carries<'i>(flow: &BufferProgram<'_>, item: &'i BufferOp<'_>) -> Vec<(usize, &'i Carry, bool)> {
    let (list, body, fixed, steps) = match item {
        BufferOp::Loop(l) => {
            (&l.carry, &l.body, l.fixed.iter().chain(&l.xs).map(|p| p.0).collect::<Vec<_>>(), Some(l.length))
        }
        BufferOp::While(w) => {
            (&w.carry, &w.body, w.cond_fixed.iter().chain(&w.body_fixed).map(|p| p.0).collect(), None)
        }
        _ => return Vec::new(),
    };
    let (updates, _) = in_place_carries(&mut fuse(body), list);
    let first = |c: &Carry| flow.alias_root(c.init);
    let once = |c: &Carry| {
        let times = list.iter().filter(|d| first(d) == first(c)).count();
        times == 1 && fixed.iter().all(|s| flow.alias_root(*s) != first(c))
    };
    let each = list.iter().enumerate().filter(|(_, c)| once(c));
    each.filter_map(|(k, c)| {
        // an iteration writes the buffer of the final value if an even number of iterations follow
        let over = updates[k] != CarryUpdate::Moved || steps.is_some_and(|n| n % 2 == 0);
        (over || steps != Some(1)).then_some((k, c, over))
    })
    .collect()
}
