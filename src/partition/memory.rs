//! Peak memory: the maximum number of bytes that a device holds, and the operation and values
//! there.

use crate::core::diagnostic::SourceLocation;
use crate::core::util::small_sort;
use crate::ir::program::ScopePath;
use crate::partition::fused::{self, reads_elementwise};
use crate::partition::nested::{InputBinding, NestedProgram, ResultBinding};
use crate::partition::print;
use crate::partition::program::{Slot, SpmdProgram, Step, StepOrigin};
use std::fmt;

/// The purpose of a value that a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MemoryClass {
    /// An argument, or an array that the function captured: weights, optimizer state, the batch.
    Argument,
    /// A result, or a value that becomes one.
    Result,
    /// An intermediate value: activations, and cotangents that are not returned.
    Intermediate,
    /// A block received from other devices, until its last consumer has run.
    Communication,
}

/// A value that a device holds at the peak.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryEntry {
    /// The purpose of the value.
    pub class: MemoryClass,
    /// The index of the argument or the result.
    /// Captured arrays come after the arguments. `None` for other values.
    pub index: Option<usize>,
    /// The path of the argument, such as `1.layers.w` or `captured 0`.
    /// Empty for other values.
    pub path: String,
    /// The type, with the axes that shard it, as per-device programs print it.
    pub ty: String,
    /// The size in bytes, on the device that holds the largest block.
    pub bytes: u64,
    /// The operation that computed the value, or that needed the communication.
    pub op: String,
    /// The source location of that operation.
    /// `None` if it is unknown.
    pub location: Option<SourceLocation>,
    /// The named scopes around that operation ([`named_scope`](crate::named_scope)).
    pub scope: ScopePath,
}

/// The memory that a device holds at the peak.
/// Returned by [`Lowered::memory`](crate::Lowered::memory); implements `Display`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Memory {
    /// The peak, in bytes per device.
    pub peak_bytes: u64,
    /// True if no figure is an estimate.
    pub exact: bool,
    /// The operation that runs at the peak.
    pub op: String,
    /// The source location of that operation.
    /// `None` if it is unknown.
    pub location: Option<SourceLocation>,
    /// The values held at the peak, largest first.
    pub entries: Vec<MemoryEntry>,
}

impl MemoryClass {
    /// All classes, in the order in which they are printed.
    pub const ALL: [MemoryClass; 4] =
        [MemoryClass::Argument, MemoryClass::Result, MemoryClass::Intermediate, MemoryClass::Communication];
    /// Returns the label of the class in reports.
    pub fn name(self) -> &'static str {
        match self {
            MemoryClass::Argument => "arguments",
            MemoryClass::Result => "results",
            MemoryClass::Intermediate => "intermediate values",
            MemoryClass::Communication => "communication",
        }
    }
}

impl Memory {
    /// Returns the bytes of one class at the peak.
    pub fn bytes(&self, class: MemoryClass) -> u64 {
        self.sum(|e| e.class == class)
    }
    /// Returns the bytes at the peak of arguments under a path, as in `under("0.layers")`.
    /// These are the arguments whose path is `path` or starts with it.
    pub fn under(&self, path: &str) -> u64 {
        let below =
            |p: &str| p.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.sum(|e| e.class == MemoryClass::Argument && below(&e.path))
    }
    fn sum(&self, counts: impl Fn(&MemoryEntry) -> bool) -> u64 {
        self.entries.iter().filter(|e| counts(e)).fold(0, |sum, e| sum.saturating_add(e.bytes))
    }
}

/// The number of values that `Display` prints.
const MAX_PRINTED_ENTRIES: usize = 10;

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line =
            |p: Option<SourceLocation>| p.map_or(String::new(), |p| format!(" {}:{}", p.file(), p.line()));
        let mark = if self.exact { "" } else { "≈" };
        writeln!(
            f,
            "peak memory: {mark}{} bytes per device, at {}{}",
            self.peak_bytes,
            self.op,
            line(self.location)
        )?;
        let width = self.peak_bytes.to_string().len();
        for class in MemoryClass::ALL {
            writeln!(f, "{:>width$}  {}", self.bytes(class), class.name())?;
        }
        writeln!(f, "the largest:")?;
        for e in self.entries.iter().take(MAX_PRINTED_ENTRIES) {
            let what = match (e.class, e.index) {
                (MemoryClass::Argument, _) if e.path.is_empty() => "the argument".to_string(),
                (MemoryClass::Argument, _) => format!("argument {}", e.path),
                (MemoryClass::Result, Some(k)) => format!("result {k} of {}", e.op),
                (MemoryClass::Communication, _) => format!("received for {}", e.op),
                (MemoryClass::Result | MemoryClass::Intermediate, _) => e.op.clone(),
            };
            let scope = e.scope.name().map(|s| format!(" in {s}")).unwrap_or_default();
            writeln!(f, "{:>width$}  {what}: {}{}{scope}", e.bytes, e.ty, line(e.location))?;
        }
        let rest = self.entries.len().saturating_sub(MAX_PRINTED_ENTRIES);
        if rest > 0 {
            writeln!(f, "and {rest} more")?;
        }
        Ok(())
    }
}

/// The memory that steps use in addition to stored values.
///
/// The memory of nested programs is listed separately.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepMemory {
    /// The bytes that each step brings to the busiest device.
    /// They are held until the last consumer of the fetched value has run.
    pub(crate) fetched_bytes: Vec<u64>,
    /// For each step, the memory of its nested programs.
    nested: Vec<Vec<NestedMemory>>,
    /// True if no figure is an estimate.
    exact: bool,
}

/// The memory of a nested program.
#[derive(Clone, Debug)]
struct NestedMemory {
    memory: StepMemory,
    /// The peak in bytes, without what the nested program borrows from the program around it.
    peak_bytes: u64,
}

/// The owner of an input's memory.
#[derive(Clone, Copy, PartialEq)]
enum InputOwner {
    /// The caller holds the input until the program ends.
    Caller,
    /// The input is donated: its memory is free after its last consumer.
    Donated,
    /// The program around this one counts the input.
    OuterProgram,
}

/// The half-open range of steps during which a value is held.
struct SlotLifetime {
    slot: Slot,
    /// The fetch step that receives the data.
    ///
    /// For a copy that is received directly, this is the fetch of its source. `None` for values
    /// that are not received.
    fetch: Option<usize>,
    bytes: u64,
    first_step: usize,
    end_step: usize,
}

/// The peak in bytes, the step at which it occurs, and the lifetimes of all values.
struct MemoryProfile {
    lifetimes: Vec<SlotLifetime>,
    peak_bytes: u64,
    peak_step: usize,
}

/// Returns the owners of a nested program's inputs: fixed inputs are values of the outer program.
fn nested_owners(nested: &NestedProgram<'_>) -> Vec<InputOwner> {
    let owner = |input: &InputBinding| match input {
        InputBinding::Fixed(_) => InputOwner::OuterProgram,
        InputBinding::Iteration | InputBinding::Carry(_) | InputBinding::Slice(_) => InputOwner::Caller,
    };
    nested.inputs.iter().map(owner).collect()
}

/// Returns, for each slot, whether fusion removes it so that it is never in memory.
fn fused_slots(p: &SpmdProgram) -> Vec<bool> {
    let stored = fused::materialized_slots(p);
    let mut inline = vec![false; p.slots.len()];
    for made in p.steps.iter().filter_map(Step::local) {
        inline[made.out] = !stored[made.out];
    }
    inline
}

impl StepMemory {
    /// Creates the memory account of a program.
    /// `fetched` has the bytes that each step fetches, `inside` the accounts of its nested
    /// programs.
    pub(crate) fn new(
        p: &SpmdProgram,
        fetched_bytes: Vec<u64>,
        inside: Vec<Vec<StepMemory>>,
        exact: bool,
    ) -> StepMemory {
        let exact = exact && inside.iter().flatten().all(|h| h.exact);
        let nest = |(step, list): (&Step, Vec<StepMemory>)| {
            let one = |(memory, nested): (StepMemory, NestedProgram<'_>)| {
                let peak_bytes = memory.profile(nested.program, &nested_owners(&nested)).peak_bytes;
                NestedMemory { memory, peak_bytes }
            };
            list.into_iter().zip(step.nested_programs()).map(one).collect()
        };
        let nested = p.steps.iter().zip(inside).map(nest).collect();
        StepMemory { fetched_bytes, nested, exact }
    }

    /// Returns the peak in bytes per device, and whether it is exact.
    ///
    /// Inputs marked in `donated` are free after their last consumers.
    pub(crate) fn peak(&self, p: &SpmdProgram, donated: &[bool]) -> (u64, bool) {
        (self.profile(p, &argument_owners(p, donated)).peak_bytes, self.exact)
    }

    /// Returns the values held at the peak.
    /// The paths of arguments are left empty.
    pub(crate) fn memory(&self, p: &SpmdProgram, donated: &[bool]) -> Memory {
        let mut entries = Vec::new();
        let (most, why) = self.collect_entries(p, &argument_owners(p, donated), true, &mut entries);
        small_sort::sort_by_key(&mut entries, |e| std::cmp::Reverse(e.bytes));
        Memory { peak_bytes: most, exact: self.exact, op: why.op, location: why.location, entries }
    }

    /// Collects the values held at the peak of a program and of the nested program that runs then.
    fn collect_entries(
        &self,
        p: &SpmdProgram,
        owners: &[InputOwner],
        outermost: bool,
        all: &mut Vec<MemoryEntry>,
    ) -> (u64, StepOrigin) {
        let MemoryProfile { lifetimes: lives, peak_bytes: most, peak_step: at } = self.profile(p, owners);
        // a value counts as a result if an alias of it is a result
        let mut result: Vec<Option<usize>> = vec![None; p.slots.len()];
        p.outs.iter().enumerate().rev().for_each(|(k, s)| result[*s] = Some(k));
        for (s, of) in reshape_aliases(p).into_iter().rev() {
            result[of] = result[of].or(result[s]);
        }
        let mut maker: Vec<Option<usize>> = vec![None; p.slots.len()];
        for (k, step) in p.steps.iter().enumerate() {
            step.outputs().iter().for_each(|s| maker[*s] = Some(k));
        }
        for l in lives.iter().filter(|l| l.first_step <= at && at < l.end_step && l.bytes > 0) {
            let input = p.ins.iter().position(|s| *s == l.slot);
            // data received directly into a result counts as a result
            let apart = |k: usize| p.steps[k].fetches().is_some_and(|(src, _)| src == l.slot);
            let (class, number) = match (l.fetch, input, result[l.slot]) {
                (Some(f), None, Some(k)) if outermost && !apart(f) => (MemoryClass::Result, Some(k)),
                (Some(_), _, _) => (MemoryClass::Communication, None),
                (None, Some(k), _) if outermost => (MemoryClass::Argument, Some(k)),
                (None, None, Some(k)) if outermost => (MemoryClass::Result, Some(k)),
                (None, _, _) => (MemoryClass::Intermediate, None),
            };
            let why = l.fetch.or(maker[l.slot]).map(|k| p.origins[k].clone()).unwrap_or_default();
            let op =
                if input.is_some() && !outermost && why.op.is_empty() { "input of a loop" } else { &why.op };
            all.push(MemoryEntry {
                class,
                index: number,
                path: String::new(),
                ty: print::type_text(p, l.slot),
                bytes: l.bytes,
                op: op.to_string(),
                location: why.location,
                scope: why.scope,
            });
        }
        let why = p.origins.get(at).cloned().unwrap_or_default();
        let Some(step) = p.steps.get(at) else { return (most, why) };
        let inner = self.nested[at].iter().zip(step.nested_programs()).max_by_key(|(n, _)| n.peak_bytes);
        let Some((n, nested)) = inner else { return (most, why) };
        let (_, inner) = n.memory.collect_entries(nested.program, &nested_owners(&nested), false, all);
        (most, if inner.op.is_empty() { why } else { inner })
    }

    fn profile(&self, p: &SpmdProgram, owners: &[InputOwner]) -> MemoryProfile {
        let spans = SlotSpans::new(p, owners);
        let mut lifetimes: Vec<SlotLifetime> = (0..p.slots.len())
            .filter(|s| spans.counted[*s] && spans.first[*s] != usize::MAX)
            .map(|s| SlotLifetime {
                slot: s,
                fetch: None,
                bytes: slot_bytes(p, s),
                first_step: spans.first[s],
                end_step: spans.last[s],
            })
            .collect();
        self.add_fetches(p, &spans, &mut lifetimes);
        let (peak_bytes, peak_step) = self.peak_step(p, &lifetimes);
        MemoryProfile { lifetimes, peak_bytes, peak_step }
    }

    /// Adds the lifetimes of received data.
    fn add_fetches(&self, p: &SpmdProgram, spans: &SlotSpans, lives: &mut Vec<SlotLifetime>) {
        let values = lives.len();
        for (k, step) in p.steps.iter().enumerate() {
            let Some((slot, needs)) = step.fetches() else { continue };
            let target = fused::fetch_target(p, slot, needs);
            if let Some(full) = target.filter(|s| self.fetched_bytes[k] <= slot_bytes(p, *s)) {
                // the data is received directly into the copy
                if let Ok(own) = lives[..values].binary_search_by_key(&full, |l| l.slot) {
                    (lives[own].fetch, lives[own].first_step) = (Some(k), lives[own].first_step.min(k));
                    continue;
                }
            }
            // an inline consumer runs where its own consumers do
            let ends = needs.iter().map(|n| match p.steps[n.consumer_step].local() {
                Some(l) if !spans.counted[l.out] => spans.last[l.out],
                _ => n.consumer_step + 1,
            });
            let end_step = ends.max().unwrap_or(0).min(p.steps.len()).max(k + 1);
            let bytes = self.fetched_bytes[k];
            lives.push(SlotLifetime { slot, fetch: Some(k), bytes, first_step: k, end_step });
        }
    }

    /// Returns the peak in bytes, and the step at which it occurs.
    fn peak_step(&self, p: &SpmdProgram, lives: &[SlotLifetime]) -> (u64, usize) {
        let end = p.steps.len();
        let mut change = vec![0i128; end + 2];
        for l in lives {
            change[l.first_step] += i128::from(l.bytes);
            change[l.end_step.max(l.first_step)] -= i128::from(l.bytes);
        }
        let (mut now, mut most, mut at) = (0i128, 0, 0);
        for (k, c) in change.iter().enumerate().take(end + 1) {
            now += c;
            let inner =
                self.nested.get(k).and_then(|list| list.iter().map(|n| n.peak_bytes).max()).unwrap_or(0);
            let here = u64::try_from(now).unwrap_or(u64::MAX).saturating_add(inner);
            if here > most {
                (most, at) = (here, k);
            }
        }
        (most, at)
    }
}

/// The steps during which each value is held.
struct SlotSpans {
    /// The step that computes the value; `usize::MAX` if none does.
    first: Vec<usize>,
    /// The step after the last consumer.
    last: Vec<usize>,
    /// True if the value takes memory of the program.
    counted: Vec<bool>,
    /// True if a consumer reads the value at other indices than those it computes.
    /// The value must then not be overwritten.
    elsewhere: Vec<bool>,
}

impl SlotSpans {
    fn new(p: &SpmdProgram, owners: &[InputOwner]) -> SlotSpans {
        let (n, end) = (p.slots.len(), p.steps.len());
        let mut spans = SlotSpans {
            first: vec![usize::MAX; n],
            last: vec![0; n],
            counted: vec![true; n],
            elsewhere: vec![false; n],
        };
        for (k, step) in p.steps.iter().enumerate() {
            step.inputs().iter().for_each(|s| spans.last[*s] = k + 1);
            step.outputs()
                .iter()
                .for_each(|s| (spans.first[*s], spans.last[*s]) = (k, spans.last[*s].max(k + 1)));
            // the final carries are computed by the last iteration of the body and counted there
            for result in step.nested_programs().iter().flat_map(|nested| &nested.results) {
                if let ResultBinding::Carry(s) = result {
                    spans.first[*s] = k + 1;
                }
            }
        }
        p.outs.iter().for_each(|s| spans.last[*s] = end + 1);
        spans.inline_fused(p, owners);
        // a value is held as long as any of its aliases is read
        for (s, of) in reshape_aliases(p).into_iter().rev() {
            spans.last[of] = spans.last[of].max(spans.last[s]);
            spans.counted[s] = false;
        }
        spans.hold_inputs(p, owners);
        spans
    }

    /// Extends the spans of the operands of values that fusion computes inside their consumers.
    fn inline_fused(&mut self, p: &SpmdProgram, owners: &[InputOwner]) {
        let inline = fused_slots(p);
        let mut stays = vec![false; p.slots.len()];
        p.ins.iter().zip(owners).for_each(|(s, owner)| stays[*s] = *owner != InputOwner::Donated);
        for (k, l) in p.steps.iter().enumerate().rev().filter_map(|(k, s)| Some((k, s.local()?))) {
            let (to, mut sources) = (self.last[l.out], p.steps[k].inputs());
            small_sort::sort(&mut sources);
            sources.dedup();
            // a value that is computed long before its consumer can be computed early if that frees
            // more memory than it takes
            let ends = |s: &&Slot| !stays[**s] && !inline[**s] && self.last[**s] < to;
            let freed = sources.iter().filter(ends).map(|s| slot_bytes(p, *s));
            if !inline[l.out] || to > k + 2 && freed.fold(0, u64::saturating_add) > slot_bytes(p, l.out) {
                continue;
            }
            self.counted[l.out] = false;
            for s in sources {
                self.last[s] = self.last[s].max(to);
                self.elsewhere[s] |= !reads_elementwise(l.nest, s);
            }
        }
    }

    /// Sets the spans of the inputs, according to their owners.
    fn hold_inputs(&mut self, p: &SpmdProgram, owners: &[InputOwner]) {
        let end = p.steps.len();
        let mut fetched = vec![false; p.slots.len()];
        p.steps.iter().filter_map(Step::fetches).for_each(|(s, _)| fetched[s] = true);
        let mut written: Vec<bool> = vec![false; end];
        for (s, owner) in p.ins.iter().zip(owners) {
            self.first[*s] = 0;
            self.counted[*s] = *owner != InputOwner::OuterProgram;
            if *owner != InputOwner::Donated {
                self.last[*s] = end + 1;
                continue;
            }
            // the last consumer may overwrite the value element by element
            let Some(k) = self.last[*s].checked_sub(1).filter(|k| *k < end) else { continue };
            let stored = &p.slots[*s];
            if let Some(l) = p.steps[k].local()
                && !written[k]
                && !fetched[*s]
                && !self.elsewhere[*s]
                && reads_elementwise(l.nest, *s)
                && l.layout == &stored.layout.dims[..]
                && p.slots[l.out].dtype.size() == stored.dtype.size()
            {
                written[k] = true;
                self.last[*s] = k;
            }
        }
    }
}

/// Returns the bytes of a value on the device that holds the largest block.
fn slot_bytes(p: &SpmdProgram, slot: Slot) -> u64 {
    p.slots[slot].block_bytes() as u64
}

/// Returns the owners of the inputs of an outermost program.
fn argument_owners(p: &SpmdProgram, donated: &[bool]) -> Vec<InputOwner> {
    let owner = |k| if donated.get(k) == Some(&true) { InputOwner::Donated } else { InputOwner::Caller };
    (0..p.ins.len()).map(owner).collect()
}

/// Returns the reshapes of a program as pairs (alias, source), in order.
/// A reshape is an alias of its source.
fn reshape_aliases(p: &SpmdProgram) -> Vec<(Slot, Slot)> {
    let name = |step: &Step| {
        let l = step.local().filter(|l| l.nest.compute.is_alias())?;
        Some((l.out, *step.inputs().first()?))
    };
    p.steps.iter().filter_map(name).collect()
}
