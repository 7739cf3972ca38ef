//! What devices hold while a program runs: the most bytes at once, when that is, and what they are.

use crate::diagnostic::Place;
use crate::partition::fused::{self, in_place};
use crate::partition::print;
use crate::partition::program::{Slot, SpmdProgram, Step, Why};
use crate::sorted;
use std::fmt;

/// What a value is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MemoryClass {
    /// An argument, or an array that the function captured: weights, what the optimizer keeps, the batch.
    Argument,
    /// A result, or what becomes one.
    Result,
    /// A value between arguments and results: activations, and cotangents that are not returned.
    Between,
    /// What was received from other devices, until its last reader has run.
    Communication,
}

/// One value that a device holds at the peak.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryEntry {
    /// What it is held for.
    pub class: MemoryClass,
    /// Of an argument or a result: its number among them, captured arrays last.
    pub number: Option<usize>,
    /// Of an argument: its path, as `1.layers.w`, or `captured 0`. Else empty.
    pub path: String,
    /// Its type, with the axes that split it, as per-device programs print it.
    pub ty: String,
    /// Bytes on the device that has most of it.
    pub bytes: u64,
    /// The operation that made it, or that asked for it.
    pub op: String,
    /// The user's line.
    pub source: Option<Place>,
}

/// What a device holds when it holds most: see [`Lowered::memory`](crate::Lowered::memory). It prints.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Memory {
    /// The most bytes that a device holds at once.
    pub peak_bytes: u64,
    /// Whether no figure in it is an estimate.
    pub exact: bool,
    /// The operation that runs then.
    pub op: String,
    /// The user's line of it.
    pub source: Option<Place>,
    /// What is held then, the largest first.
    pub entries: Vec<MemoryEntry>,
}

impl MemoryClass {
    /// All of them.
    pub const ALL: [MemoryClass; 4] =
        [MemoryClass::Argument, MemoryClass::Result, MemoryClass::Between, MemoryClass::Communication];
    /// Its name in words.
    pub fn name(self) -> &'static str {
        match self {
            MemoryClass::Argument => "arguments",
            MemoryClass::Result => "results",
            MemoryClass::Between => "values between",
            MemoryClass::Communication => "communication",
        }
    }
}

impl Memory {
    /// Bytes of one class at the peak.
    pub fn bytes(&self, class: MemoryClass) -> u64 {
        self.sum(|e| e.class == class)
    }
    /// Bytes of the arguments at the peak whose path is this one or begins with it: `under("0.layers")`.
    pub fn under(&self, path: &str) -> u64 {
        let below =
            |p: &str| p.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.sum(|e| e.class == MemoryClass::Argument && below(&e.path))
    }
    fn sum(&self, counts: impl Fn(&MemoryEntry) -> bool) -> u64 {
        self.entries.iter().filter(|e| counts(e)).fold(0, |sum, e| sum.saturating_add(e.bytes))
    }
}

/// How many of the largest values are printed.
const SHOWN: usize = 10;

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |p: Option<Place>| p.map_or(String::new(), |p| format!(" {}:{}", p.file(), p.line()));
        let mark = if self.exact { "" } else { "≈" };
        writeln!(
            f,
            "peak memory: {mark}{} bytes per device, at {}{}",
            self.peak_bytes,
            self.op,
            line(self.source)
        )?;
        let width = self.peak_bytes.to_string().len();
        for class in MemoryClass::ALL {
            writeln!(f, "{:>width$}  {}", self.bytes(class), class.name())?;
        }
        writeln!(f, "the largest:")?;
        for e in self.entries.iter().take(SHOWN) {
            let what = match (e.class, e.number) {
                (MemoryClass::Argument, _) if e.path.is_empty() => "the argument".to_string(),
                (MemoryClass::Argument, _) => format!("argument {}", e.path),
                (MemoryClass::Result, Some(k)) => format!("result {k} of {}", e.op),
                (MemoryClass::Communication, _) => format!("received for {}", e.op),
                (MemoryClass::Result | MemoryClass::Between, _) => e.op.clone(),
            };
            writeln!(f, "{:>width$}  {what}: {}{}", e.bytes, e.ty, line(e.source))?;
        }
        let rest = self.entries.len().saturating_sub(SHOWN);
        if rest > 0 {
            writeln!(f, "and {rest} more")?;
        }
        Ok(())
    }
}

/// What the steps of a program hold besides its values. Programs inside have theirs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    /// Bytes that each step brings to the busiest device; they stay until the last reader of what they are of.
    pub(crate) fetched: Vec<u64>,
    /// Of each step's programs inside, as they are nested.
    inside: Vec<Vec<Nested>>,
    /// Whether no figure is an estimate.
    exact: bool,
}

#[derive(Clone, Debug)]
struct Nested {
    holds: Holds,
    /// The most that it holds besides what it borrows of the program around it.
    most: u64,
}

/// Whose memory an input's is.
#[derive(Clone, Copy, PartialEq)]
enum Owner {
    /// It is held to the end.
    Caller,
    /// Nobody needs it behind its last reader.
    Donated,
    /// It is counted by the program around this one.
    Outer,
}

/// When a value is held: from one step up to another, which is not included.
struct Life {
    slot: Slot,
    /// The step that brings it, if it is what was received: of the slot, or of what it is a copy of.
    fetch: Option<usize>,
    bytes: u64,
    from: usize,
    to: usize,
}

/// The most that is held at once, at which step, and all lives.
struct Course {
    lives: Vec<Life>,
    most: u64,
    at: usize,
}

/// The programs inside a step, and which of their inputs are values of the program around them.
fn nested(step: &Step) -> Vec<(&SpmdProgram, std::ops::Range<usize>)> {
    match step {
        // the first input of a body is the number of the step
        Step::Loop { body, fixed, .. } => vec![(body, 1..1 + fixed.len())],
        Step::While { cond, body, cond_fixed, body_fixed, .. } => {
            vec![(cond, 0..cond_fixed.len()), (body, 0..body_fixed.len())]
        }
        Step::Branch { branches, ins, .. } => branches.iter().map(|b| (b, 0..ins.len())).collect(),
        Step::Fetch { .. } | Step::Local { .. } | Step::Reduce { .. } | Step::Print { .. } => Vec::new(),
    }
}

fn owners(p: &SpmdProgram, outer: &std::ops::Range<usize>) -> Vec<Owner> {
    (0..p.ins.len()).map(|k| if outer.contains(&k) { Owner::Outer } else { Owner::Caller }).collect()
}

/// Whether a value is no value in memory.
fn inline(p: &SpmdProgram) -> Vec<bool> {
    let stored = fused::stored(p);
    let mut inline = vec![false; p.slots.len()];
    for made in p.steps.iter().filter_map(Step::local) {
        inline[made.out] = !stored[made.out];
    }
    inline
}

impl Holds {
    /// `fetched` as in the result; `inside` are the programs inside of each step.
    pub(crate) fn new(p: &SpmdProgram, fetched: Vec<u64>, inside: Vec<Vec<Holds>>, exact: bool) -> Holds {
        let exact = exact && inside.iter().flatten().all(|h| h.exact);
        let nest = |(step, list): (&Step, Vec<Holds>)| {
            let one = |(holds, (body, outer)): (Holds, (&SpmdProgram, _))| {
                let most = holds.course(body, &owners(body, &outer)).most;
                Nested { holds, most }
            };
            list.into_iter().zip(nested(step)).map(one).collect()
        };
        let inside = p.steps.iter().zip(inside).map(nest).collect();
        Holds { fetched, inside, exact }
    }

    /// The most bytes that a device holds at once, and whether that is exact. Of the inputs those that are `donated` are free behind
    /// their last readers.
    pub(crate) fn peak(&self, p: &SpmdProgram, donated: &[bool]) -> (u64, bool) {
        (self.course(p, &given(p, donated)).most, self.exact)
    }

    /// What is held at the peak. Arguments have no path yet.
    pub(crate) fn memory(&self, p: &SpmdProgram, donated: &[bool]) -> Memory {
        let mut entries = Vec::new();
        let (most, why) = self.list(p, &given(p, donated), true, &mut entries);
        sorted::sort_by_key(&mut entries, |e| std::cmp::Reverse(e.bytes));
        Memory { peak_bytes: most, exact: self.exact, op: why.op, source: why.place, entries }
    }

    /// What is held at the peak of a program, with what is held inside of the step that runs then.
    fn list(
        &self,
        p: &SpmdProgram,
        owners: &[Owner],
        outermost: bool,
        all: &mut Vec<MemoryEntry>,
    ) -> (u64, Why) {
        let Course { lives, most, at } = self.course(p, owners);
        // results keep their class where they have another name
        let mut result: Vec<Option<usize>> = vec![None; p.slots.len()];
        p.outs.iter().enumerate().rev().for_each(|(k, s)| result[*s] = Some(k));
        for (s, of) in renamed(p).into_iter().rev() {
            result[of] = result[of].or(result[s]);
        }
        let mut maker: Vec<Option<usize>> = vec![None; p.slots.len()];
        for (k, step) in p.steps.iter().enumerate() {
            step.outputs().iter().for_each(|s| maker[*s] = Some(k));
        }
        for l in lives.iter().filter(|l| l.from <= at && at < l.to && l.bytes > 0) {
            let input = p.ins.iter().position(|s| *s == l.slot);
            // what was received where it is to be is a result like others
            let apart = |k: usize| p.steps[k].fetches().is_some_and(|(src, _)| src == l.slot);
            let (class, number) = match (l.fetch, input, result[l.slot]) {
                (Some(f), None, Some(k)) if outermost && !apart(f) => (MemoryClass::Result, Some(k)),
                (Some(_), _, _) => (MemoryClass::Communication, None),
                (None, Some(k), _) if outermost => (MemoryClass::Argument, Some(k)),
                (None, None, Some(k)) if outermost => (MemoryClass::Result, Some(k)),
                (None, _, _) => (MemoryClass::Between, None),
            };
            let why = l.fetch.or(maker[l.slot]).map(|k| p.whys[k].clone()).unwrap_or_default();
            let op =
                if input.is_some() && !outermost && why.op.is_empty() { "input of a loop" } else { &why.op };
            all.push(MemoryEntry {
                class,
                number,
                path: String::new(),
                ty: print::of(p, l.slot),
                bytes: l.bytes,
                op: op.to_string(),
                source: why.place,
            });
        }
        let why = p.whys.get(at).cloned().unwrap_or_default();
        let Some(step) = p.steps.get(at) else { return (most, why) };
        let inner = self.inside[at].iter().zip(nested(step)).max_by_key(|(n, _)| n.most);
        let Some((n, (body, outer))) = inner else { return (most, why) };
        let (_, inner) = n.holds.list(body, &self::owners(body, &outer), false, all);
        (most, if inner.op.is_empty() { why } else { inner })
    }

    fn course(&self, p: &SpmdProgram, owners: &[Owner]) -> Course {
        let end = p.steps.len();
        let mut first = vec![usize::MAX; p.slots.len()];
        // the step behind the last reader
        let mut last = vec![0; p.slots.len()];
        for (k, step) in p.steps.iter().enumerate() {
            step.inputs().iter().for_each(|s| last[*s] = k + 1);
            step.outputs().iter().for_each(|s| (first[*s], last[*s]) = (k, last[*s].max(k + 1)));
            // what a loop carries last is what its body makes last, which is counted inside
            if let Step::Loop { out, .. } | Step::While { out, .. } = step {
                out.iter().for_each(|s| first[*s] = k + 1);
            }
        }
        p.outs.iter().for_each(|s| last[*s] = end + 1);
        let bytes = |s: Slot| p.slots[s].block_bytes() as u64;
        // what is computed where it is read needs until then what it reads, which may not be written over where that is elsewhere
        let inline = inline(p);
        let mut counted = vec![true; p.slots.len()];
        let mut elsewhere = vec![false; p.slots.len()];
        let mut stays = vec![false; p.slots.len()];
        p.ins.iter().zip(owners).for_each(|(s, owner)| stays[*s] = *owner != Owner::Donated);
        for (k, l) in p.steps.iter().enumerate().rev().filter_map(|(k, s)| Some((k, s.local()?))) {
            let (to, mut sources) = (last[l.out], p.steps[k].inputs());
            sorted::sort(&mut sources);
            sources.dedup();
            // far from its reader it is made at once where that frees more than it takes
            let ends = |s: &&Slot| !stays[**s] && !inline[**s] && last[**s] < to;
            let freed = sources.iter().filter(ends).map(|s| bytes(*s));
            if !inline[l.out] || to > k + 2 && freed.fold(0, u64::saturating_add) > bytes(l.out) {
                continue;
            }
            counted[l.out] = false;
            for s in sources {
                last[s] = last[s].max(to);
                elsewhere[s] |= !in_place(l.sentence, s);
            }
        }
        // what another name is read by keeps the value
        let names = renamed(p);
        for (s, of) in names.into_iter().rev() {
            last[of] = last[of].max(last[s]);
            counted[s] = false;
        }
        let mut fetched = vec![false; p.slots.len()];
        p.steps.iter().filter_map(Step::fetches).for_each(|(s, _)| fetched[s] = true);
        let mut written: Vec<bool> = vec![false; end];
        for (s, owner) in p.ins.iter().zip(owners) {
            first[*s] = 0;
            counted[*s] = *owner != Owner::Outer;
            if *owner != Owner::Donated {
                last[*s] = end + 1;
                continue;
            }
            // its last reader may write over it, element by element
            let Some(k) = last[*s].checked_sub(1).filter(|k| *k < end) else { continue };
            let stored = &p.slots[*s];
            if let Some(l) = p.steps[k].local()
                && !written[k]
                && !fetched[*s]
                && !elsewhere[*s]
                && in_place(l.sentence, *s)
                && l.layout == &stored.layout.dims[..]
                && p.slots[l.out].dtype.size() == stored.dtype.size()
            {
                written[k] = true;
                last[*s] = k;
            }
        }
        let mut lives: Vec<Life> = (0..p.slots.len())
            .filter(|s| counted[*s] && first[*s] != usize::MAX)
            .map(|s| Life { slot: s, fetch: None, bytes: bytes(s), from: first[s], to: last[s] })
            .collect();
        let values = lives.len();
        for (k, step) in p.steps.iter().enumerate() {
            if let Some((slot, needs)) = step.fetches() {
                if let Some(whole) = fused::received(p, slot, needs).filter(|s| self.fetched[k] <= bytes(*s))
                {
                    // pieces are received where they are to be
                    if let Ok(own) = lives[..values].binary_search_by_key(&whole, |l| l.slot) {
                        (lives[own].fetch, lives[own].from) = (Some(k), lives[own].from.min(k));
                        continue;
                    }
                }
                let to = last[slot].min(end).max(k + 1);
                lives.push(Life { slot, fetch: Some(k), bytes: self.fetched[k], from: k, to });
            }
        }
        let mut change = vec![0i128; end + 2];
        for l in &lives {
            change[l.from] += i128::from(l.bytes);
            change[l.to.max(l.from)] -= i128::from(l.bytes);
        }
        let (mut now, mut most, mut at) = (0i128, 0, 0);
        for (k, c) in change.iter().enumerate().take(end + 1) {
            now += c;
            let inner = self.inside.get(k).and_then(|list| list.iter().map(|n| n.most).max()).unwrap_or(0);
            let here = u64::try_from(now).unwrap_or(u64::MAX).saturating_add(inner);
            if here > most {
                (most, at) = (here, k);
            }
        }
        Course { lives, most, at }
    }
}

/// Of the inputs of a whole program.
fn given(p: &SpmdProgram, donated: &[bool]) -> Vec<Owner> {
    let owner = |k| if donated.get(k) == Some(&true) { Owner::Donated } else { Owner::Caller };
    (0..p.ins.len()).map(owner).collect()
}

/// Reshapes are other names of what they read: pairs of the new name and the old one, in order.
fn renamed(p: &SpmdProgram) -> Vec<(Slot, Slot)> {
    let name = |step: &Step| {
        let l = step.local().filter(|l| l.sentence.body.renames())?;
        Some((l.out, *step.inputs().first()?))
    };
    p.steps.iter().filter_map(name).collect()
}
