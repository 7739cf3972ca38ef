//! The lock-step engine: the device programs are tasks on the process's workers; a small program runs inline on the caller's thread.

#[cfg(all(test, shuttle))]
mod orders;
mod run;
#[cfg(test)]
mod samples;
#[cfg(test)]
pub(crate) mod tests;
mod times;

use super::threads::{self, Devices};
use super::{Engine, Executable, Failure, Job, RunReport};
use crate::compile::plan::{Compiled, Gift, Memory, OutPlan, Use};
use crate::compile::{self, kernel};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::partition::{Slot, SpmdProgram};
use crate::plan::Timeline;
use crate::runtime::clock::nanoseconds;
use crate::runtime::prints::Prints;
use crate::runtime::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::runtime::wait::Signal;
use crate::runtime::workers::{Member, team};
use crate::runtime::{Buffer, Slab, fits};
use crate::types::{DType, Shape};
use run::{Mark, Runner};
use smallvec::SmallVec;
use std::fmt::Write;
use std::sync::Arc;

/// The lock-step engine.
#[derive(Debug)]
pub(crate) struct Lockstep;

/// Microseconds below which a program runs on the caller's thread.
const INLINE: f64 = 60.0;
/// Microseconds from which it runs on workers that still spin.
const SPINNING: f64 = 8.0;
/// Nanoseconds that workers spin.
const SPIN: usize = 100_000;

impl Engine for Lockstep {
    fn compile(&self, job: Job<'_>) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Ready::new(job.spmd, job.donated, None)?))
    }
}

/// What a value is: element type, shape, parts.
type Kind = (DType, Shape, usize);

/// A compiled program.
pub(super) struct Ready {
    compiled: Compiled,
    ins: Vec<Kind>,
    outs: Vec<Kind>,
    /// Bytes of one device's blocks of the inputs, and of each result.
    blocks: (usize, Vec<usize>),
    /// How many devices the program is for.
    shares: usize,
    /// Whether no level has more than one task.
    alone: bool,
    /// Inline or on workers whatever it costs; for tests.
    forced: Option<bool>,
    /// The devices that run it, each on a thread of its own; nobody: the process's workers.
    devices: Option<Devices>,
    /// When it was called last, in nanoseconds.
    last: AtomicUsize,
}

/// Where those that run a program leave what they did when, each with its number.
#[derive(Default)]
struct Clock(std::sync::Mutex<Vec<(usize, Vec<Mark>)>>);

/// Leaves a member's marks at the clock, if there is one.
fn leave(clock: Option<&Clock>, member: usize, marks: Option<Vec<Mark>>) {
    if let (Some(clock), Some(marks)) = (clock, marks) {
        clock.0.lock().unwrap_or_else(|e| e.into_inner()).push((member, marks));
    }
}

/// A table that all members of a job see.
struct Shared<'a>(&'a [*mut u8]);
// SAFETY: members write what the plan gives them: nobody else reads or writes it between two barriers
unsafe impl Sync for Shared<'_> {}

impl Ready {
    fn new(p: &SpmdProgram, donated: &[bool], forced: Option<bool>) -> Result<Ready> {
        let kind = |s: &Slot| {
            let v = &p.slots[*s];
            let copies = v.layout.partial.as_ref().map_or(1, |p| p.1.iter().map(|a| a.size).product());
            (v.dtype.storage(), v.shape.clone(), copies)
        };
        let block = |s: &Slot| p.slots[*s].block_bytes();
        let compiled = compile::compile(p, donated)?;
        Ok(Ready {
            alone: compiled.plan.alone(),
            compiled,
            ins: p.ins.iter().map(kind).collect(),
            outs: p.outs.iter().map(kind).collect(),
            blocks: (total(p.ins.iter().map(block)), p.outs.iter().map(block).collect()),
            shares: p.devices.max(1),
            forced,
            devices: None,
            last: AtomicUsize::new(0),
        })
    }
    /// A program that runs on a thread for each device.
    pub(super) fn on_devices(p: &SpmdProgram, donated: &[bool]) -> Result<Ready> {
        let mut ready = Ready::new(p, donated, Some(false))?;
        let devices = Devices::of(p);
        threads::spread(&mut ready.compiled.plan, devices.count);
        ready.devices = Some(devices);
        Ok(ready)
    }
    /// Whether this call runs on the caller's thread.
    fn inline(&self) -> bool {
        let cost = self.compiled.plan.cost;
        match self.forced {
            Some(inline) => inline,
            None if self.alone => true,
            None if cost >= INLINE => false,
            None if cost < SPINNING => true,
            None => {
                // called again soon: workers woken now will still spin
                let now = nanoseconds();
                now - self.last.swap(now, Relaxed).min(now) >= SPIN
            }
        }
    }
    fn check(&self, args: &[Slab]) -> Result<()> {
        if args.len() != self.ins.len() {
            let (got, want) = (args.len(), self.ins.len());
            return Err(Error::internal(format!("a program of {want} inputs was called with {got}")));
        }
        for (k, (a, (dtype, shape, copies))) in args.iter().zip(&self.ins).enumerate() {
            if a.dtype() != *dtype || a.shape() != shape || a.copies() != *copies {
                return Err(Error::internal(format!(
                    "input {k} is {}{} in {} parts, but the program takes {dtype}{shape} in {copies}",
                    a.dtype(),
                    a.shape(),
                    a.copies()
                )));
            }
        }
        Ok(())
    }
}

/// The buffers of results: new ones, and those of donated arguments.
type Made = [SmallVec<[Arc<Buffer>; 2]>; 2];

impl Ready {
    /// Runs it; with a clock each that runs it leaves there what it did when.
    fn run(&self, args: &mut [Slab], clock: Option<&Clock>) -> Result<Made, Failure> {
        self.check(args)?;
        let c = &self.compiled;
        fits(c.fresh.iter().fold(c.arena, |sum, n| sum.saturating_add(*n)))?;
        let mut fresh: SmallVec<[Arc<Buffer>; 2]> = SmallVec::new();
        for n in &c.fresh {
            fresh.push(Arc::new(Buffer::asked(*n)?));
        }
        // a donated argument that somebody still holds stays as it is
        let own = |g: &Gift, args: &mut [Slab]| match args[g.arg].sole() {
            Some(own) => Ok(own),
            None => Buffer::asked(g.bytes).map(Arc::new),
        };
        let mut given: SmallVec<[Arc<Buffer>; 2]> = SmallVec::new();
        for g in &c.gifts {
            given.push(own(g, args)?);
        }
        let mut arena = if c.arena > 0 { Some(Buffer::asked(c.arena)?) } else { None };
        if !c.plan.levels.is_empty() {
            // where each slot is
            let mut base: SmallVec<[*mut u8; 16]> = SmallVec::with_capacity(c.places.len());
            let arena = arena.as_mut().map_or(std::ptr::null_mut(), Buffer::as_mut_ptr);
            for place in &c.places {
                base.push(match *place {
                    Memory::Arg(i) => args[i].dense()?.as_ptr().cast_mut(),
                    Memory::Out(i) => fresh[i].as_ptr().cast_mut(),
                    Memory::Arena(at) => arena.wrapping_add(at),
                    Memory::Given(gift, at) => given[gift].as_ptr().cast_mut().wrapping_add(at),
                    Memory::Nowhere | Memory::Moving => std::ptr::null_mut(),
                });
            }
            let bell = self.devices.as_ref().map(|_| Arc::<Signal>::default());
            let prints = bell.clone().map_or_else(Prints::default, Prints::with_bell);
            if self.devices.is_none() && self.inline() {
                let ran = Failure::caught(|| {
                    kernel::with_scratch(|scratch| {
                        let (counters, rounds) = (&[][..], Vec::new());
                        let marks = clock.map(|_| Vec::new());
                        let mut r =
                            Runner { member: None, counters, rounds, prints: &prints, scratch, marks };
                        // SAFETY: the table points to buffers of the sizes that the plan wants; no argument is written but those to
                        // which nobody else has a handle, behind their last reads
                        let ran = unsafe { r.plan(&c.plan, &mut base) };
                        leave(clock, 0, r.marks);
                        ran
                    })
                })?;
                debug_assert!(ran.is_ok(), "nobody else takes part");
            } else {
                // devices have fixed shares
                let dynamic = if self.devices.is_none() { c.levels } else { 0 };
                let counters: Vec<AtomicUsize> = (0..dynamic).map(|_| AtomicUsize::new(0)).collect();
                let shared = Shared(&base);
                let job = |m: &Member| {
                    let Shared(base) = &shared;
                    let mut base = base.to_vec();
                    kernel::with_scratch(|scratch| {
                        let rounds = vec![0; c.levels];
                        let (member, counters, prints) = (Some(m), &counters[..], &prints);
                        let marks = clock.map(|_| Vec::new());
                        let mut r = Runner { member, counters, rounds, prints, scratch, marks };
                        // SAFETY: as above; every member has an equal table of its own. An error means that another member
                        // panicked, which `run` reports
                        let _ = unsafe { r.plan(&c.plan, &mut base) };
                        leave(clock, m.index(), r.marks);
                    });
                };
                match (&self.devices, bell) {
                    (Some(devices), Some(bell)) => {
                        devices.run(bell, &prints, &job).map_err(|error| Failure { error, before: false })?
                    }
                    _ => {
                        let ran = team().run(&job);
                        prints.write();
                        ran.map_err(Failure::unwound)?;
                    }
                }
            }
        }
        Ok([fresh, given])
    }
    /// All results, after the run.
    fn results(&self, args: &[Slab], made: &Made) -> Result<Vec<Slab>, Failure> {
        (0..self.outs.len()).map(|k| self.result(k, args, made)).collect()
    }
    /// One of them.
    fn result(&self, k: usize, args: &[Slab], [fresh, given]: &Made) -> Result<Slab, Failure> {
        let (dtype, shape, copies) = &self.outs[k];
        Ok(match &self.compiled.outs[k] {
            OutPlan::Fresh(i) => Slab::new(*dtype, shape.clone(), *copies, fresh[*i].clone()),
            OutPlan::Given(i) => Slab::new(*dtype, shape.clone(), *copies, given[*i].clone()),
            OutPlan::Arg(i) => args[*i].reshaped(*dtype, shape.clone(), *copies).map_err(ended)?,
            OutPlan::View { arg, block, blocks } => {
                args[*arg].select(*dtype, shape.clone(), *block, blocks).map_err(ended)?
            }
        })
    }
}

impl Executable for Ready {
    fn call(&self, args: &mut [Slab]) -> Result<Vec<Slab>, Failure> {
        let made = self.run(args, None)?;
        self.results(args, &made)
    }
    fn call_one(&self, args: &mut [Slab]) -> Result<Slab, Failure> {
        if self.outs.is_empty() {
            return Err(Error::internal("a program without results was asked for one").into());
        }
        let made = self.run(args, None)?;
        self.result(0, args, &made)
    }
    fn call_timed(&self, args: &mut [Slab]) -> Result<(Vec<Slab>, Timeline), Failure> {
        // a page looks at no clock
        if cfg!(target_family = "wasm") {
            let fault =
                Fault::new(ErrorKind::Unsupported, "the engine lockstep keeps no times on WebAssembly");
            return Err(fault.help("run it by `call`").into());
        }
        let (clock, begin) = (Clock::default(), nanoseconds());
        let made = self.run(args, Some(&clock))?;
        let outs = self.results(args, &made)?;
        let end = nanoseconds();
        let marks = clock.0.into_inner().unwrap_or_else(|e| e.into_inner());
        let RunReport { engine, .. } = self.report();
        Ok((outs, times::timeline(engine, &self.compiled.plan, marks, begin, end)))
    }
    fn report(&self) -> RunReport {
        let c = &self.compiled;
        let mut text = String::new();
        print(&c.plan, 0, &mut text);
        for (k, o) in c.outs.iter().enumerate() {
            let _ = match o {
                OutPlan::Fresh(_) => Ok(()),
                OutPlan::Arg(arg) => writeln!(text, "result {k}: argument {arg}, not copied"),
                OutPlan::Given(gift) => {
                    writeln!(text, "result {k}: in the memory of donated argument {}", c.gifts[*gift].arg)
                }
                OutPlan::View { arg, block, blocks } => {
                    let n = blocks.len();
                    writeln!(text, "result {k}: {n} blocks of {block} bytes of argument {arg}, not copied")
                }
            };
        }
        for g in c.gifts.iter().filter(|g| g.purpose != Use::Result) {
            let _ = writeln!(text, "donated argument {}: {}", g.arg, g.purpose);
        }
        let bytes = |(dtype, shape, copies): &Kind| shape.elements().saturating_mul(dtype.size() * copies);
        let given = |k: &usize| c.outs.iter().any(|o| matches!(o, OutPlan::Given(g) if g == k));
        let donated = total((0..c.gifts.len()).filter(given).map(|k| c.gifts[k].bytes));
        let first = |i: usize| c.outs.iter().position(|o| matches!(o, OutPlan::Fresh(k) if *k == i));
        let blocks = total((0..c.fresh.len()).filter_map(first).map(|k| self.blocks.1[k]));
        let inline = self.forced.unwrap_or(c.plan.cost < INLINE);
        let (engine, workers) = match &self.devices {
            Some(devices) => ("threads", devices.count),
            None => ("lockstep", if inline { 1 } else { team().workers() }),
        };
        RunReport {
            engine,
            workers,
            inline,
            arguments: total(self.ins.iter().map(bytes)),
            results: total(c.fresh.iter().copied().chain([donated])),
            donated,
            arena: c.arena,
            device_bytes: total([self.blocks.0, blocks, c.arena.div_ceil(self.shares)]),
            collectives: String::new(),
            text,
        }
    }
}

/// A refusal behind which donated arguments are written over.
fn ended(refused: Fault) -> Failure {
    Failure { error: refused.into(), before: false }
}

/// Their sum; where it is more than can be counted, the greatest number.
fn total(bytes: impl IntoIterator<Item = usize>) -> usize {
    bytes.into_iter().fold(0, usize::saturating_add)
}

/// A plan as text: a line for each node, levels apart.
fn print(p: &compile::plan::Plan, indent: usize, text: &mut String) {
    use compile::plan::Kernel;
    for l in &p.levels {
        for (k, n) in l.nodes.iter().enumerate() {
            let head = if k == 0 { format!("{:>3}", l.id) } else { "   ".into() };
            let tasks = if n.chunks == 1 { "1 task".into() } else { format!("{} tasks", n.chunks) };
            let _ = writeln!(text, "{:indent$}{head}  {}; {tasks}, about {:.1} us", "", n.what, n.cost);
            match &n.kernel {
                Kernel::Loop(l) => print(&l.body, indent + 4, text),
                Kernel::While(w) => {
                    print(&w.cond, indent + 4, text);
                    print(&w.body, indent + 4, text);
                }
                Kernel::Branch(b) => b.arms.iter().for_each(|a| print(a, indent + 4, text)),
                _ => {}
            }
        }
    }
}
