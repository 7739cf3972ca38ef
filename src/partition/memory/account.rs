//! The values that a device holds at each level of its program.
//!
//! The program of one device is fused, and its values share memory, as in the compiler: the
//! lifetimes of values are those for which the compiler assigns memory. Arguments and results are
//! held from the beginning to the end.
//!
//! On a mesh of several devices, each level is one kernel.

use super::{MemoryClass, MemoryEntry, StepMemory};
use crate::partition::buffers::{BufferOp, BufferProgram, Carry, HalfMatmuls, lower::lower};
use crate::partition::fusion::device::{DeviceSlots, device_program};
use crate::partition::fusion::order::{delay_groups, run_in_program_order};
use crate::partition::fusion::reuse::{BufferReuse, CarryUpdate, assign_donated, in_place_carries};
use crate::partition::fusion::{FusionPlan, choose_views, fuse, lifetimes::value_lifetimes};
use crate::partition::fusion::{row_groups::RowConstraints, rows::fuse_rows};
use crate::partition::print;
use crate::partition::program::{Slot, SpmdProgram, StepOrigin};
use std::collections::{HashMap, HashSet};

/// The peak of a program.
#[derive(Default)]
pub(super) struct ProgramPeak {
    /// The bytes that a device holds.
    pub(super) bytes: u64,
    /// The operation that runs then.
    pub(super) origin: StepOrigin,
    /// The values that a device holds, if they are asked for.
    pub(super) entries: Vec<MemoryEntry>,
}

/// Returns the peak of an outermost program.
///
/// The inputs that are marked in `donated` may be overwritten. The result has entries if
/// `lists_entries` is true.
pub(super) fn program_peak(
    steps: &StepMemory,
    p: &SpmdProgram,
    donated: &[bool],
    lists_entries: bool,
) -> ProgramPeak {
    let (device, slots) = device_program(p);
    let Ok(buffers) = lower(&device, HalfMatmuls::Native) else {
        // (an operation has too many loops, and compilation returns the error)
        return ProgramPeak::default();
    };
    let mut plan = fuse(&buffers);
    let (outs, skipped) = choose_views(&plan, device.devices);
    let reuse = assign_donated(&mut plan, donated, &outs);
    let mut places = vec![ValuePlacement::Unassigned; buffers.values.len()];
    let fresh = buffers.outs.iter().zip(&outs).filter(|o| o.1.is_none());
    fresh.for_each(|(out, _)| places[buffers.alias_root(*out)] = ValuePlacement::Result);
    reuse.in_donated.iter().for_each(|(s, _)| places[*s] = ValuePlacement::Other);
    buffers.ins.iter().for_each(|s| places[*s] = ValuePlacement::Other);
    // (compilation rejects programs with more bytes)
    if buffers.is_countable() {
        let is_skipped = |k: usize| skipped.contains(&k);
        let merged: Vec<bool> = plan.groups.iter().map(|g| g.merged).collect();
        let constraints = RowConstraints {
            latest_levels: reuse.latest_levels(&plan),
            aliases: (0..plan.groups.len()).map(|k| reuse.matmul_alias(&plan, k)).collect(),
            is_excluded: &|k| merged[k] || is_skipped(k) || !reuse.overwrites[k].is_empty(),
            is_skipped: &is_skipped,
            is_in_own_memory: &|s| places[s] != ValuePlacement::Other,
            is_unplaced: &|s| places[s] == ValuePlacement::Unassigned,
            ..RowConstraints::of_unplaced_values(&plan)
        };
        fuse_rows(&mut plan, &constraints);
    }
    order_groups(&mut plan, &reuse, &slots, &places);
    let mut account = Account::new(&plan, &slots, steps, lists_entries);
    account.hold_arguments(&reuse);
    account.hold_results(&places);
    account.hold_values(&reuse, &skipped, &places);
    account.hold_nested(&reuse);
    account.peak()
}

/// Returns the peak of a nested program with these carries, and which of them it updates in place.
fn nested_peak(
    steps: &StepMemory,
    buffers: &BufferProgram<'_>,
    slots: &DeviceSlots<'_>,
    carries: &[Carry],
    lists_entries: bool,
) -> (ProgramPeak, Vec<bool>) {
    let mut plan = fuse(buffers);
    let (updates, reuse) = in_place_carries(&mut plan, carries);
    let mut places = vec![ValuePlacement::Unassigned; buffers.values.len()];
    // control flow chooses where inputs and results are
    buffers.ins.iter().chain(&buffers.outs).for_each(|s| places[*s] = ValuePlacement::Other);
    order_groups(&mut plan, &reuse, slots, &places);
    let mut account = Account::new(&plan, slots, steps, lists_entries);
    account.hold_values(&reuse, &[], &places);
    account.hold_nested(&reuse);
    (account.peak(), updates.iter().map(|update| *update != CarryUpdate::Moved).collect())
}

/// Chooses the levels at which groups run.
///
/// On one device these are those of the compiled program. Devices with their own memory run one
/// kernel after another, in program order.
fn order_groups(
    plan: &mut FusionPlan<'_, '_>,
    reuse: &BufferReuse,
    slots: &DeviceSlots<'_>,
    places: &[ValuePlacement],
) {
    match slots.original.devices {
        0 | 1 => delay_groups(plan, reuse, &|s| places[s] != ValuePlacement::Unassigned),
        _ => run_in_program_order(plan, reuse),
    }
}

/// The memory of a value before its lifetime is known.
#[derive(Clone, Copy, PartialEq)]
enum ValuePlacement {
    /// The value has no memory yet.
    Unassigned,
    /// The value is in the fresh buffer of a result.
    Result,
    /// The value is in the memory of an argument, or control flow chooses its memory.
    Other,
}

/// A value that is held from one level to another.
struct HeldValue {
    value: Slot,
    class: MemoryClass,
    /// The index of the argument or the result.
    index: Option<usize>,
    /// The fetch step that receives the data; `None` for values that are not received.
    fetch: Option<usize>,
    bytes: u64,
    first_level: u32,
    last_level: u32,
}

/// The values that a program holds, by level.
struct Account<'a> {
    plan: &'a FusionPlan<'a, 'a>,
    slots: &'a DeviceSlots<'a>,
    steps: &'a StepMemory,
    lists_entries: bool,
    /// The last level.
    end: u32,
    held: Vec<HeldValue>,
    /// The peaks of nested programs, with their levels.
    nested: Vec<(u32, ProgramPeak)>,
}

impl<'a> Account<'a> {
    fn new(
        plan: &'a FusionPlan<'a, 'a>,
        slots: &'a DeviceSlots<'a>,
        steps: &'a StepMemory,
        lists_entries: bool,
    ) -> Account<'a> {
        let end = plan.groups.iter().map(|g| g.level).max().unwrap_or(0).max(1);
        Account { plan, slots, steps, lists_entries, end, held: Vec::new(), nested: Vec::new() }
    }

    /// Adds the arguments.
    /// A donated argument in which no result or carry is stored is free after its last read.
    fn hold_arguments(&mut self, reuse: &BufferReuse) {
        let mut last_levels = HashMap::new();
        for (k, block) in reuse.free_blocks(self.plan) {
            last_levels.insert(reuse.donated[k].arg, block.free_after_level);
        }
        let (buffers, mut seen) = (self.plan.program, HashSet::new());
        for (k, value) in buffers.ins.iter().enumerate().filter(|(_, s)| seen.insert(**s)) {
            self.held.push(HeldValue {
                value: *value,
                class: MemoryClass::Argument,
                index: Some(k),
                fetch: None,
                bytes: buffers.value_bytes(*value) as u64,
                first_level: 1,
                last_level: last_levels.get(&k).copied().unwrap_or(self.end),
            });
        }
    }

    /// Adds the results that are not in the memory of arguments.
    fn hold_results(&mut self, places: &[ValuePlacement]) {
        let (buffers, fetches, mut seen) = (self.plan.program, self.fetches(), HashSet::new());
        for (k, out) in buffers.outs.iter().enumerate() {
            let value = buffers.alias_root(*out);
            if places[value] != ValuePlacement::Result || !seen.insert(value) {
                continue;
            }
            self.held.push(HeldValue {
                value,
                class: MemoryClass::Result,
                index: Some(k),
                fetch: fetches.get(&value).copied(),
                bytes: buffers.value_bytes(value) as u64,
                first_level: 1,
                last_level: self.end,
            });
        }
    }

    /// Adds the values for which the compiler assigns memory.
    fn hold_values(&mut self, reuse: &BufferReuse, skipped: &[usize], places: &[ValuePlacement]) {
        let fetches = self.fetches();
        let is_placed = |s: Slot| places[s] != ValuePlacement::Unassigned;
        // what one fetch brings is one block, whichever accesses read it
        let mut blocks: HashMap<usize, usize> = HashMap::new();
        for l in value_lifetimes(self.plan, reuse, |k| skipped.contains(&k), is_placed) {
            let fetch = fetches.get(&l.value).copied();
            let mut bytes = l.bytes as u64;
            if let Some(step) = fetch.filter(|_| self.is_added(l.value)) {
                if let Some(k) = blocks.get(&step) {
                    let block: &mut HeldValue = &mut self.held[*k];
                    block.first_level = block.first_level.min(l.first_level);
                    block.last_level = block.last_level.max(l.last_level);
                    continue;
                }
                blocks.insert(step, self.held.len());
                bytes = self.steps.fetched_bytes.get(step).copied().unwrap_or(0);
            }
            self.held.push(HeldValue {
                value: l.value,
                class: fetch.map_or(MemoryClass::Intermediate, |_| MemoryClass::Communication),
                index: None,
                fetch,
                bytes,
                first_level: l.first_level,
                last_level: l.last_level,
            });
        }
    }

    /// Adds what control flow needs: the peaks of nested programs, and second buffers of carries.
    fn hold_nested(&mut self, reuse: &BufferReuse) {
        let (plan, unknown) = (self.plan, SpmdProgram::default());
        let (no_slots, no_steps) = (DeviceSlots::new(&unknown), StepMemory::default());
        for (k, op) in plan.program.ops.iter().enumerate() {
            let carries: &[Carry] = match op {
                BufferOp::Loop(l) => &l.carry,
                BufferOp::While(w) => &w.carry,
                _ => &[],
            };
            let (programs, level) = (op.nested_programs(), plan.op_level(k));
            let found = op.results().first().and_then(|s| self.slots.nested.get(s));
            let mut peaks = Vec::with_capacity(programs.len());
            for (n, program) in programs.iter().enumerate() {
                let slots = found.and_then(|f| f.1.get(n)).unwrap_or(&no_slots);
                let steps = found.and_then(|f| self.steps.nested.get(f.0)?.get(n)).unwrap_or(&no_steps);
                // (the condition of a loop comes before its body)
                let carries = if n + 1 == programs.len() { carries } else { &[] };
                let (peak, in_place) = nested_peak(steps, program, slots, carries, self.lists_entries);
                peaks.push(peak);
                let alternates = carries
                    .iter()
                    .enumerate()
                    .filter(|(c, _)| !in_place[*c] && reuse.alternates.iter().all(|a| (a.0, a.1) != (k, *c)));
                self.held.extend(alternates.map(|(_, carry)| HeldValue {
                    value: carry.result,
                    class: MemoryClass::Intermediate,
                    index: None,
                    fetch: None,
                    bytes: plan.program.value_bytes(carry.result) as u64,
                    first_level: level,
                    last_level: level,
                }));
            }
            if let BufferOp::Branch(_) = op {
                // one of the branches runs
                let largest = peaks.into_iter().reduce(|a, b| if b.bytes > a.bytes { b } else { a });
                peaks = largest.into_iter().collect();
            }
            self.nested.extend(peaks.into_iter().map(|peak| (level, peak)));
        }
    }

    /// Returns the received values, each with the fetch step that brings it.
    fn fetches(&self) -> HashMap<Slot, usize> {
        self.slots.received.iter().copied().collect()
    }

    /// Returns true if a value is not one of the partitioned program.
    fn is_added(&self, value: Slot) -> bool {
        value >= self.slots.original.slots.len()
    }

    /// Returns the peak, at the first level that has the maximum.
    fn peak(self) -> ProgramPeak {
        let mut change = vec![0i128; self.end as usize + 2];
        let held = self.held.iter().map(|h| (h.first_level, h.last_level, h.bytes));
        for (first, last, bytes) in held.chain(self.nested.iter().map(|(l, peak)| (*l, *l, peak.bytes))) {
            if first <= last {
                change[first as usize] += i128::from(bytes);
                change[last as usize + 1] -= i128::from(bytes);
            }
        }
        let (mut now, mut most, mut level) = (0, 0, 1);
        for (k, c) in change.iter().enumerate().take(self.end as usize + 1) {
            now += c;
            if now > most {
                (most, level) = (now, k as u32);
            }
        }
        let origin = self.origin_at(level);
        let bytes = u64::try_from(most).unwrap_or(u64::MAX);
        let mut entries = Vec::new();
        if self.lists_entries {
            let held = self.held.iter().filter(|h| h.first_level <= level && level <= h.last_level);
            entries.extend(held.filter(|h| h.bytes > 0).map(|h| self.entry(h)));
            let nested = self.nested.into_iter().filter(|(at, _)| *at == level);
            entries.extend(nested.flat_map(|(_, peak)| peak.entries));
        }
        ProgramPeak { bytes, origin, entries }
    }

    /// Returns the origin of the last operation of a level, or of one nested in it.
    fn origin_at(&self, level: u32) -> StepOrigin {
        let nested = self.nested.iter().filter(|(at, _)| *at == level).max_by_key(|(_, peak)| peak.bytes);
        if let Some((_, peak)) = nested.filter(|(_, peak)| !peak.origin.op.is_empty()) {
            return peak.origin.clone();
        }
        let buffers = self.plan.program;
        let ops = buffers.ops.iter().enumerate().rev().filter(|(k, _)| self.plan.op_level(*k) == level);
        let origin = |op: &BufferOp<'a>| op.results().iter().find_map(|s| buffers.values[*s].origin);
        ops.filter_map(|(_, op)| origin(op)).next().map(|o| o.0.clone()).unwrap_or_default()
    }

    /// Returns the entry of a value.
    fn entry(&self, held: &HeldValue) -> MemoryEntry {
        let (original, buffer) = (self.slots.original, &self.plan.program.values[held.value]);
        let fetched = held.fetch.filter(|_| self.is_added(held.value));
        let ty = match fetched.and_then(|step| original.steps[step].fetches()) {
            Some((source, _)) => print::type_text(original, source),
            None if self.is_added(held.value) => print::buffer_type_text(buffer.dtype, &buffer.shape),
            None => print::type_text(original, held.value),
        };
        let origin = match held.fetch {
            Some(step) => original.origins.get(step).cloned(),
            None => buffer.origin.map(|o| o.0.clone()),
        };
        let StepOrigin { op, location, scope, .. } = origin.unwrap_or_default();
        MemoryEntry {
            class: held.class,
            index: held.index,
            path: String::new(),
            ty,
            bytes: held.bytes,
            op,
            location,
            scope,
        }
    }
}
