//! Running plans: level by level, inline on the caller or on all workers.

use crate::compile::index::{Ix, MAX};
use crate::compile::kernel::{self, Scratch};
use crate::compile::plan::{
    BranchKernel, Kernel, Level, LoopKernel, Node, PackFrom, PackKernel, Plan, PrintKernel, WhileKernel,
};
use crate::runtime::clock::nanoseconds;
use crate::runtime::prints::Prints;
use crate::runtime::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::runtime::workers::Member;
use crate::runtime::{Buffer, Slab};
use crate::show::print::{Shown, text_of};
use crate::types::DType;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// One of those that run a plan.
pub(super) struct Runner<'a> {
    /// Which, and among whom; nobody: it runs alone.
    pub(super) member: Option<&'a Member<'a>>,
    /// A counter of tasks for each level. They are never reset: round t of a level begins at t·(tasks + members), since each
    /// member overshoots once. Without counters each member has a fixed share of each level.
    pub(super) counters: &'a [AtomicUsize],
    /// How often each level has run.
    pub(super) rounds: Vec<usize>,
    /// What it prints.
    pub(super) prints: &'a Prints,
    /// This thread's own.
    pub(super) scratch: &'a mut Scratch,
    /// What it did when, if that is asked for.
    pub(super) marks: Option<Vec<Mark>>,
}

/// That a member ran a task of a node, or waited, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The level's number, and which of its nodes; nothing: it waited for the others.
    pub(super) node: Option<(u32, u32)>,
    /// In nanoseconds.
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Of one member no more than these are kept.
pub(super) const MOST_MARKS: usize = 1 << 20;

/// A member of the team panicked.
pub(super) struct Broken;

type Ran = Result<(), Broken>;

impl Runner<'_> {
    fn meet(&mut self) -> Ran {
        if self.index() == 0 && self.prints.caller_runs() {
            self.prints.write();
        }
        let Some(m) = self.member else { return Ok(()) };
        let from = self.now();
        let met = m.barrier();
        self.mark(None, from);
        if met { Ok(()) } else { Err(Broken) }
    }
    /// The time, if marks are kept.
    fn now(&self) -> usize {
        if self.marks.is_some() { nanoseconds() } else { 0 }
    }
    /// Marks what began then and ends now, if marks are kept.
    fn mark(&mut self, node: Option<(usize, usize)>, from: usize) {
        if let Some(marks) = self.marks.as_mut().filter(|m| m.len() < MOST_MARKS) {
            let node = node.map(|(level, k)| (level as u32, k as u32));
            marks.push(Mark { node, from, to: nanoseconds() });
        }
    }
    fn count(&self) -> usize {
        self.member.map_or(1, Member::count)
    }
    fn index(&self) -> usize {
        self.member.map_or(0, Member::index)
    }

    /// Runs all levels of a plan.
    ///
    /// # Safety
    /// `base` has a pointer for each slot: to memory as large as the slot's value, which no one else writes; all members call this
    /// with equal tables, but for the numbers of steps, which are each member's own.
    pub(super) unsafe fn plan(&mut self, p: &Plan, base: &mut [*mut u8]) -> Ran {
        for (k, level) in p.levels.iter().enumerate() {
            // SAFETY: the caller's; nodes of a level are independent, and levels are apart
            unsafe {
                match &level.nodes[..] {
                    [n] if n.kernel.control() => self.control(n, base)?,
                    nodes if self.count() == 1 => {
                        for (k, n) in nodes.iter().enumerate() {
                            let from = self.now();
                            self.whole(n, base);
                            self.mark(Some((level.id, k)), from);
                        }
                    }
                    _ => {
                        self.share(level, p.in_loop, base);
                        if p.in_loop || k + 1 < p.levels.len() {
                            self.meet()?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs a share of a level's tasks.
    ///
    /// # Safety
    /// As for [`Runner::plan`].
    unsafe fn share(&mut self, level: &Level, in_loop: bool, base: &mut [*mut u8]) {
        let (total, count) = (level.chunks as usize, self.count());
        if self.counters.is_empty() || in_loop && total <= count {
            // the same tasks for the same member at every step: its cache has their data
            let (a, b) = (total * self.index() / count, total * (self.index() + 1) / count);
            for i in a..b {
                // SAFETY: the caller's
                unsafe { self.task(level, i as i64, base) }
            }
            return;
        }
        let start = self.rounds[level.id] * (total + count);
        self.rounds[level.id] += 1;
        loop {
            let i = self.counters[level.id].fetch_add(1, Relaxed) - start;
            if i >= total {
                return;
            }
            // SAFETY: the caller's
            unsafe { self.task(level, i as i64, base) }
        }
    }

    /// # Safety
    /// As for [`Runner::plan`].
    unsafe fn task(&mut self, level: &Level, mut i: i64, base: &mut [*mut u8]) {
        for (k, n) in level.nodes.iter().enumerate() {
            if i < n.chunks {
                let from = self.now();
                // SAFETY: the caller's
                unsafe { self.chunk(n, i, n.chunks, base) };
                return self.mark(Some((level.id, k)), from);
            }
            i -= n.chunks;
        }
    }

    /// # Safety
    /// As for [`Runner::plan`].
    unsafe fn whole(&mut self, n: &Node, base: &mut [*mut u8]) {
        // SAFETY: the caller's
        unsafe {
            match &n.kernel {
                Kernel::Tiles { tiles, .. } => kernel::run(tiles, base, &[0; MAX], &tiles.ext, self.scratch),
                // by itself a worker needs no stages
                Kernel::Lines(l, _) => l.run(0, 1, base),
                Kernel::LinesEnd(..) => {}
                Kernel::Fold(f, _) if f.staged() => {
                    for i in 0..n.chunks {
                        self.chunk(n, i, n.chunks, base);
                    }
                }
                _ => self.chunk(n, 0, 1, base),
            }
        }
    }

    /// Task i of a node.
    ///
    /// # Safety
    /// As for [`Runner::plan`].
    unsafe fn chunk(&mut self, n: &Node, i: i64, chunks: i64, base: &mut [*mut u8]) {
        // SAFETY: the caller's
        unsafe {
            match &n.kernel {
                Kernel::Tiles { tiles, split, step } => {
                    let (mut lo, mut hi) = ([0; MAX], tiles.ext);
                    lo[*split] = i * step;
                    hi[*split] = (lo[*split] + step).min(tiles.ext[*split]);
                    kernel::run(tiles, base, &lo, &hi, self.scratch);
                }
                Kernel::Rows(r) => r.run(i, chunks, base, self.scratch),
                Kernel::Product(p) => p.run(i, chunks, base, self.scratch),
                Kernel::Fold(f, spans) => {
                    let spans = spans.map_or(std::ptr::null_mut(), |s| base[s as usize]);
                    f.run(i, chunks, base, spans, self.scratch);
                }
                Kernel::FoldEnd(f, spans) => f.end(i, chunks, base, base[*spans as usize], self.scratch),
                Kernel::Pack(p) => pack(p, base),
                Kernel::Lines(l, None) => l.run(i, chunks, base),
                Kernel::Lines(l, Some(room)) => l.first(i, base, base[*room as usize]),
                Kernel::LinesEnd(l, room) => l.then(i, base, base[*room as usize]),
                Kernel::Seek(s) => s.run(i, chunks, base, self.scratch),
                Kernel::Print(p) => {
                    self.prints.say(print(p, base));
                    if self.member.is_none() {
                        self.prints.write();
                    }
                }
                Kernel::Loop(_) | Kernel::While(_) | Kernel::Branch(_) => {}
            }
        }
    }

    /// A node that all members enter.
    ///
    /// # Safety
    /// As for [`Runner::plan`].
    unsafe fn control(&mut self, n: &Node, base: &mut [*mut u8]) -> Ran {
        // SAFETY: the caller's
        unsafe {
            match &n.kernel {
                Kernel::Loop(l) => self.steps(l, base),
                Kernel::While(w) => self.while_true(w, base),
                Kernel::Branch(b) => self.branch(b, base),
                _ => Ok(()),
            }
        }
    }

    /// # Safety
    /// As for [`Runner::plan`].
    unsafe fn steps(&mut self, l: &LoopKernel, base: &mut [*mut u8]) -> Ran {
        for (outer, inner) in &l.fixed {
            base[*inner as usize] = base[*outer as usize];
        }
        let mut number = 0i32;
        let number = &raw mut number;
        base[l.step as usize] = number.cast();
        for t in 0..l.length {
            let k = if l.reverse { l.length - 1 - t } else { t };
            // SAFETY: a local of this call, which outlives the step
            unsafe { number.write((l.start + k as i64) as i32) }
            for c in &l.carry {
                base[c.from as usize] = base[if t == 0 { c.first } else { c.to } as usize];
                // alternates so that the last step writes where the result shall be
                base[c.to as usize] = base[match c.other {
                    Some(other) if (l.length - 1 - t) % 2 == 1 => other,
                    _ => c.last,
                } as usize];
            }
            for (outer, inner, bytes) in &l.xs {
                base[*inner as usize] = base[*outer as usize].wrapping_add(k * bytes);
            }
            for (inner, outer, bytes) in &l.ys {
                base[*inner as usize] = base[*outer as usize].wrapping_add(k * bytes);
            }
            // SAFETY: the caller's; what a step writes is read by later steps only, which begin when all members have ended it
            unsafe { self.plan(&l.body, base)? }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Runner::plan`].
    unsafe fn while_true(&mut self, w: &WhileKernel, base: &mut [*mut u8]) -> Ran {
        for (outer, inner) in &w.fixed {
            base[*inner as usize] = base[*outer as usize];
        }
        for c in &w.carry {
            base[c.to as usize] = base[c.first as usize];
        }
        let mut odd = false;
        loop {
            for (c, inner) in w.carry.iter().zip(&w.cond_carry) {
                base[*inner as usize] = base[c.to as usize];
            }
            // SAFETY: the caller's; the condition is a bool, and is written again only after a barrier
            let go = unsafe {
                self.plan(&w.cond, base)?;
                *base[w.test as usize] != 0
            };
            if !go {
                break;
            }
            if !w.body.meets() {
                self.meet()?;
            }
            for c in &w.carry {
                base[c.from as usize] = base[c.to as usize];
                base[c.to as usize] = base[c.other.filter(|_| odd).unwrap_or(c.last) as usize];
            }
            odd = !odd;
            // SAFETY: the caller's
            unsafe { self.plan(&w.body, base)? }
        }
        self.meet()?;
        if self.index() == 0 {
            for c in &w.carry {
                let (from, to) = (base[c.to as usize], base[c.last as usize]);
                if from != to {
                    // SAFETY: two values of this many bytes
                    unsafe { std::ptr::copy_nonoverlapping(from, to, c.bytes) }
                }
            }
        }
        self.meet()
    }

    /// # Safety
    /// As for [`Runner::plan`].
    unsafe fn branch(&mut self, b: &BranchKernel, base: &mut [*mut u8]) -> Ran {
        let p = base[b.which as usize];
        // SAFETY: the caller's: a scalar of this type
        let which = unsafe {
            match b.dtype {
                DType::Bool => i64::from(*p == 0),
                DType::I8 => i64::from(*p.cast::<i8>()),
                DType::I16 => i64::from(*p.cast::<i16>()),
                DType::I64 => *p.cast::<i64>(),
                DType::U8 => i64::from(*p),
                DType::U16 => i64::from(*p.cast::<u16>()),
                DType::U32 => i64::from(*p.cast::<u32>()),
                DType::U64 => (*p.cast::<u64>()).min(i64::MAX as u64) as i64,
                _ => i64::from(*p.cast::<i32>()),
            }
        };
        let k = which.clamp(0, b.arms.len() as i64 - 1) as usize;
        // behind an arm without a barrier a member could go on, and the number be another one, before all have read it
        if !b.arms.iter().all(Plan::meets) {
            self.meet()?;
        }
        for (outer, inner) in &b.wires[k] {
            base[*inner as usize] = base[*outer as usize];
        }
        // SAFETY: the caller's
        unsafe { self.plan(&b.arms[k], base) }
    }
}

/// # Safety
/// As for [`Runner::plan`].
unsafe fn pack(p: &PackKernel, base: &[*mut u8]) {
    let out = base[p.out as usize];
    // SAFETY: the caller's; parts are within both values
    unsafe {
        match p.size {
            1 => copy::<u8>(p, base, out, |b| b as u8),
            2 => copy::<u16>(p, base, out, |b| b as u16),
            4 => copy::<u32>(p, base, out, |b| b as u32),
            8 => copy::<u64>(p, base, out, |b| b as u64),
            _ => copy::<u128>(p, base, out, |b| b),
        }
    }
}

/// # Safety
/// As for [`pack`].
unsafe fn copy<T: Copy>(p: &PackKernel, base: &[*mut u8], out: *mut u8, bits: impl Fn(u128) -> T) {
    let at = |x: &Ix, (off, st): &(i64, Ix)| off + (0..MAX).map(|d| x[d] * st[d]).sum::<i64>();
    // SAFETY: the caller's
    unsafe { std::slice::from_raw_parts_mut(out.cast(), p.elements).fill(MaybeUninit::new(bits(p.fill))) }
    for part in &p.parts {
        let n: i64 = part.ext.iter().product();
        let mut x = [0; MAX];
        for _ in 0..n {
            // SAFETY: the caller's
            unsafe {
                let to = out.wrapping_offset(at(&x, &part.dst) as isize).cast::<T>();
                to.write(match part.from {
                    PackFrom::Slot(s) => {
                        *base[s as usize].wrapping_offset(at(&x, &part.src) as isize).cast::<T>()
                    }
                    PackFrom::Bits(b) => bits(b),
                });
            }
            for d in (0..MAX).rev() {
                x[d] += 1;
                if x[d] < part.ext[d] {
                    break;
                }
                x[d] = 0;
            }
        }
    }
}

/// # Safety
/// As for [`Runner::plan`].
unsafe fn print(p: &PrintKernel, base: &[*mut u8]) -> String {
    let values = (p.values.iter())
        .map(|v| {
            let bytes = v.shape.elements() * v.dtype.size();
            let mut copy = Buffer::asked(bytes)?;
            // SAFETY: the caller's: the value is at its slot
            unsafe { std::ptr::copy_nonoverlapping(base[v.slot as usize], copy.as_mut_ptr(), bytes) };
            let slab = Slab::new(v.dtype.storage(), v.shape.clone(), 1, Arc::new(copy));
            Ok(Shown { slab, dtype: v.dtype, hidden: v.hidden.clone() })
        })
        .collect();
    text_of(&p.template, values, &p.manual, p.mesh.as_ref())
}
