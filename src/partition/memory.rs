//! Peak memory: the maximum number of bytes that a device holds, and the operation and values
//! there.

use crate::core::diagnostic::SourceLocation;
use crate::core::util::small_sort;
use crate::ir::program::ScopePath;
use crate::partition::fused::{self, reads_elementwise};
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

/// Returns the programs nested in a step, each with the range of its borrowed inputs.
/// Borrowed inputs are values of the program around it.
fn nested_programs(step: &Step) -> Vec<(&SpmdProgram, std::ops::Range<usize>)> {
    match step {
        // the first input of a loop body is the iteration index
        Step::Loop { body, fixed, .. } => vec![(body, 1..1 + fixed.len())],
        Step::While { cond, body, cond_fixed, body_fixed, .. } => {
            vec![(cond, 0..cond_fixed.len()), (body, 0..body_fixed.len())]
        }
        Step::Branch { branches, ins, .. } => branches.iter().map(|b| (b, 0..ins.len())).collect(),
        Step::Fetch { .. } | Step::Local { .. } | Step::Reduce { .. } | Step::Print { .. } => Vec::new(),
    }
}

fn input_owners(p: &SpmdProgram, outer: &std::ops::Range<usize>) -> Vec<InputOwner> {
    (0..p.ins.len())
        .map(|k| if outer.contains(&k) { InputOwner::OuterProgram } else { InputOwner::Caller })
        .collect()
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
            let one = |(holds, (body, outer)): (StepMemory, (&SpmdProgram, _))| {
                let most = holds.profile(body, &input_owners(body, &outer)).peak_bytes;
                NestedMemory { memory: holds, peak_bytes: most }
            };
            list.into_iter().zip(nested_programs(step)).map(one).collect()
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
        let inner = self.nested[at].iter().zip(nested_programs(step)).max_by_key(|(n, _)| n.peak_bytes);
        let Some((n, (body, outer))) = inner else { return (most, why) };
        let (_, inner) = n.memory.collect_entries(body, &self::input_owners(body, &outer), false, all);
        (most, if inner.op.is_empty() { why } else { inner })
    }

    fn profile(&self, p: &SpmdProgram, owners: &[InputOwner]) -> MemoryProfile {
        let end = p.steps.len();
        let mut first = vec![usize::MAX; p.slots.len()];
        // for each value, the step after its last consumer
        let mut last = vec![0; p.slots.len()];
        for (k, step) in p.steps.iter().enumerate() {
            step.inputs().iter().for_each(|s| last[*s] = k + 1);
            step.outputs().iter().for_each(|s| (first[*s], last[*s]) = (k, last[*s].max(k + 1)));
            // the final carries are computed by the last iteration of the body and counted there
            if let Step::Loop { out, .. } | Step::While { out, .. } = step {
                out.iter().for_each(|s| first[*s] = k + 1);
            }
        }
        p.outs.iter().for_each(|s| last[*s] = end + 1);
        let bytes = |s: Slot| p.slots[s].block_bytes() as u64;
        // a value computed inside its consumer keeps its operands until then; an operand read at
        // other indices must not be overwritten
        let inline = fused_slots(p);
        let mut counted = vec![true; p.slots.len()];
        let mut elsewhere = vec![false; p.slots.len()];
        let mut stays = vec![false; p.slots.len()];
        p.ins.iter().zip(owners).for_each(|(s, owner)| stays[*s] = *owner != InputOwner::Donated);
        for (k, l) in p.steps.iter().enumerate().rev().filter_map(|(k, s)| Some((k, s.local()?))) {
            let (to, mut sources) = (last[l.out], p.steps[k].inputs());
            small_sort::sort(&mut sources);
            sources.dedup();
            // a value that is computed long before its consumer can be computed early if that frees
            // more memory than it takes
            let ends = |s: &&Slot| !stays[**s] && !inline[**s] && last[**s] < to;
            let freed = sources.iter().filter(ends).map(|s| bytes(*s));
            if !inline[l.out] || to > k + 2 && freed.fold(0, u64::saturating_add) > bytes(l.out) {
                continue;
            }
            counted[l.out] = false;
            for s in sources {
                last[s] = last[s].max(to);
                elsewhere[s] |= !reads_elementwise(l.nest, s);
            }
        }
        // a value is held as long as any of its aliases is read
        let names = reshape_aliases(p);
        for (s, of) in names.into_iter().rev() {
            last[of] = last[of].max(last[s]);
            counted[s] = false;
        }
        let mut fetched = vec![false; p.slots.len()];
        p.steps.iter().filter_map(Step::fetches).for_each(|(s, _)| fetched[s] = true);
        let mut written: Vec<bool> = vec![false; end];
        for (s, owner) in p.ins.iter().zip(owners) {
            first[*s] = 0;
            counted[*s] = *owner != InputOwner::OuterProgram;
            if *owner != InputOwner::Donated {
                last[*s] = end + 1;
                continue;
            }
            // the last consumer may overwrite the value element by element
            let Some(k) = last[*s].checked_sub(1).filter(|k| *k < end) else { continue };
            let stored = &p.slots[*s];
            if let Some(l) = p.steps[k].local()
                && !written[k]
                && !fetched[*s]
                && !elsewhere[*s]
                && reads_elementwise(l.nest, *s)
                && l.layout == &stored.layout.dims[..]
                && p.slots[l.out].dtype.size() == stored.dtype.size()
            {
                written[k] = true;
                last[*s] = k;
            }
        }
        let mut lives: Vec<SlotLifetime> = (0..p.slots.len())
            .filter(|s| counted[*s] && first[*s] != usize::MAX)
            .map(|s| SlotLifetime {
                slot: s,
                fetch: None,
                bytes: bytes(s),
                first_step: first[s],
                end_step: last[s],
            })
            .collect();
        let values = lives.len();
        for (k, step) in p.steps.iter().enumerate() {
            if let Some((slot, needs)) = step.fetches() {
                if let Some(full) =
                    fused::fetch_target(p, slot, needs).filter(|s| self.fetched_bytes[k] <= bytes(*s))
                {
                    // the data is received directly into the copy
                    if let Ok(own) = lives[..values].binary_search_by_key(&full, |l| l.slot) {
                        (lives[own].fetch, lives[own].first_step) = (Some(k), lives[own].first_step.min(k));
                        continue;
                    }
                }
                // an inline consumer runs where its own consumers do
                let ends = needs.iter().map(|n| match p.steps[n.consumer_step].local() {
                    Some(l) if !counted[l.out] => last[l.out],
                    _ => n.consumer_step + 1,
                });
                let to = ends.max().unwrap_or(0).min(end).max(k + 1);
                lives.push(SlotLifetime {
                    slot,
                    fetch: Some(k),
                    bytes: self.fetched_bytes[k],
                    first_step: k,
                    end_step: to,
                });
            }
        }
        let mut change = vec![0i128; end + 2];
        for l in &lives {
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
        MemoryProfile { lifetimes: lives, peak_bytes: most, peak_step: at }
    }
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
