//! Kernels: which steps are computed together, and so which values are in memory.
//!
//! Steps are taken in order. An elementwise step joins the kernel of highest level that it reads in place, if everything else that it reads is
//! ready before that kernel; a fold takes over a kernel of elementwise steps that it alone reads; a product begins a kernel, which
//! elementwise steps on its result join. A kernel's level is the longest path to it. So this crate's engines do (`compile/group`), step by step, and
//! so, as far as is known, do compilers. What only the kernel that makes it reads, each element where it is made, is in no memory; nor are
//! rows of scores that stay in cache (`scores`).

mod scores;

use crate::partition::program::{Local, Need, Slot, SpmdProgram};
use crate::program::sentence::{Affine, Sentence, Source, Span};
use crate::sorted;
use std::cmp::Ordering;

/// Whether a sentence reads each element of this value where it makes one, and nothing else of it.
pub(super) fn in_place(s: &Sentence, of: Slot) -> bool {
    let whole = Span::whole(&s.extents);
    let mut parts = s.reads.iter().flat_map(|r| &r.parts).filter(|p| p.from == Source::Value(of));
    s.body.elementwise().is_some()
        && parts.all(|p| {
            p.span == whole && p.map.len() == s.extents.len() && p.map.iter().enumerate().all(follows)
        })
}

/// Whether a position is the index of this loop.
fn follows((d, m): (usize, &Affine)) -> bool {
    m.at == 0 && m.terms[..] == [(d, 1)]
}

/// For each value whether it is in memory.
pub(crate) fn stored(p: &SpmdProgram) -> Vec<bool> {
    let mut k = Kernels::of(p);
    for step in 0..p.steps.len() {
        k.place(step);
    }
    let mut stored = k.stored();
    // (on a page no product joins rows)
    if !on_a_page!() {
        scores::kept(p, &k.readers, &k.wanted, &mut stored);
    }
    stored
}

/// What a value is copied to and nothing else, if that is all that it is fetched for: what is received is there at once.
pub(crate) fn received(p: &SpmdProgram, slot: Slot, needs: &[Need]) -> Option<Slot> {
    let reader = needs.first()?.reader;
    let l = p.steps[reader].local().filter(|_| needs.iter().all(|n| n.reader == reader))?;
    (l.sentence.copied() == Some(slot) && in_place(l.sentence, slot)).then_some(l.out)
}

/// Most steps of a kernel, and most that a fold takes over: as of this crate's engines.
const STEPS: usize = 40;
const FOLDED: usize = 12;

/// What a kernel is around.
#[derive(Clone, Copy, PartialEq)]
enum Head {
    Elementwise,
    Product,
    /// Nothing joins it.
    Other,
}

struct Kernel {
    head: Head,
    level: usize,
    steps: Vec<usize>,
    makes: Vec<Slot>,
}

struct Kernels<'p> {
    p: &'p SpmdProgram,
    list: Vec<Kernel>,
    /// The kernel that makes each value; inputs have none.
    by: Vec<Option<usize>>,
    /// The kernel of each step.
    at: Vec<usize>,
    /// The steps that read each value.
    readers: Vec<Vec<usize>>,
    /// Whether other devices want it, or the caller.
    wanted: Vec<bool>,
}

impl<'p> Kernels<'p> {
    fn of(p: &'p SpmdProgram) -> Kernels<'p> {
        let n = p.slots.len();
        let (mut readers, mut wanted) = (vec![Vec::new(); n], vec![false; n]);
        for (k, step) in p.steps.iter().enumerate() {
            for s in step.inputs() {
                if readers[s].last() != Some(&k) {
                    readers[s].push(k);
                }
            }
            step.fetches().into_iter().for_each(|(s, _)| wanted[s] = true);
        }
        p.ins.iter().chain(&p.outs).for_each(|s| wanted[*s] = true);
        Kernels {
            p,
            list: Vec::new(),
            by: vec![None; n],
            at: Vec::with_capacity(p.steps.len()),
            readers,
            wanted,
        }
    }
    fn level(&self, s: Slot) -> usize {
        self.by[s].map_or(0, |g| self.list[g].level)
    }
    /// Whether a step reads each element of a value where that is made.
    fn within(&self, l: &Local<'_>, s: Slot) -> bool {
        in_place(l.sentence, s) && l.layout == &self.p.slots[s].layout.dims[..]
    }
    fn open(&mut self, head: Head, level: usize) -> usize {
        self.list.push(Kernel { head, level, steps: Vec::new(), makes: Vec::new() });
        self.list.len() - 1
    }
    fn place(&mut self, k: usize) {
        let step = &self.p.steps[k];
        let mut sources = step.inputs();
        sorted::sort(&mut sources);
        sources.dedup();
        let next = 1 + sources.iter().map(|s| self.level(*s)).max().unwrap_or(0);
        let g = match step.local() {
            Some(l) if l.sentence.body.elementwise().is_some() => {
                self.joined(&l, &sources).unwrap_or_else(|| self.open(Head::Elementwise, next))
            }
            Some(l) if l.sentence.body.contracts() => self.open(Head::Product, next),
            Some(l) if !l.sentence.body.reads_blocks() && !l.sentence.body.renames() => self.fold(&sources),
            _ => self.open(Head::Other, next),
        };
        self.at.push(g);
        self.list[g].steps.push(k);
        for s in step.outputs() {
            self.by[s] = Some(g);
            self.list[g].makes.push(s);
        }
    }
    /// The kernel that an elementwise step joins.
    fn joined(&mut self, l: &Local<'_>, sources: &[Slot]) -> Option<usize> {
        let within: Vec<bool> = sources.iter().map(|s| self.within(l, *s)).collect();
        let kernels =
            sources.iter().zip(&within).filter(|x| *x.1).filter_map(|x| Some((*x.0, self.by[*x.0]?)));
        let open =
            kernels.filter(|(_, g)| self.list[*g].head != Head::Other && self.list[*g].steps.len() < STEPS);
        let far = |(s, g): &(Slot, usize)| {
            let k = &self.list[*g];
            (k.level, k.head == Head::Product, self.p.slots[*s].block_bytes(), *s)
        };
        let g = open.max_by_key(far)?.1;
        // of several products that it reads it joins the one with the largest result, behind the others
        let product = |h: &usize| {
            *h != g && self.list[*h].head == Head::Product && self.list[*h].level == self.list[g].level
        };
        if self.list[g].head == Head::Product
            && sources.iter().filter_map(|s| self.by[*s]).any(|h| product(&h))
            && self.last(g)
        {
            self.list[g].level += 1;
        }
        let level = self.list[g].level;
        let mut merged = Vec::new();
        for (s, within) in sources.iter().zip(within) {
            let Some(h) = self.by[*s] else { continue };
            let steps = self.list[g].steps.len() + self.list[h].steps.len();
            let like = within && self.list[h].head == Head::Elementwise && steps < STEPS;
            match self.list[h].level.cmp(&level) {
                _ if h == g && within => {}
                Ordering::Less => merged.extend((like && self.alone(*s, h)).then_some(h)),
                Ordering::Equal if like && h != g => merged.push(h),
                Ordering::Equal | Ordering::Greater => return None,
            }
        }
        merged.into_iter().for_each(|h| self.absorb(h, g));
        Some(g)
    }
    /// The kernel of a fold, with those elementwise ones that it alone reads.
    fn fold(&mut self, sources: &[Slot]) -> usize {
        let (mut taken, mut level) = (Vec::new(), 1);
        for s in sources {
            let alone = |h: &usize| {
                let k = &self.list[*h];
                k.head == Head::Elementwise && k.steps.len() <= FOLDED && self.alone(*s, *h)
            };
            match self.by[*s].filter(alone) {
                Some(h) => {
                    level = level.max(self.list[h].level);
                    taken.push(h);
                }
                None => level = level.max(1 + self.level(*s)),
            }
        }
        let g = self.open(Head::Other, level);
        taken.into_iter().for_each(|h| self.absorb(h, g));
        g
    }
    /// Whether all that a kernel makes is read by itself, but for this value, which one step reads.
    fn alone(&self, s: Slot, g: usize) -> bool {
        let others = self.list[g].makes.iter().filter(|o| **o != s);
        !self.wanted[s] && self.readers[s].len() == 1 && others.into_iter().all(|o| self.inner(*o, g))
    }
    /// Whether no other kernel reads what this one makes, so far.
    fn last(&self, g: usize) -> bool {
        let read = |s: &Slot| self.readers[*s].iter().filter_map(|k| self.at.get(*k)).any(|at| *at != g);
        !self.list[g].makes.iter().any(read)
    }
    /// Whether only this kernel reads a value.
    fn inner(&self, s: Slot, g: usize) -> bool {
        !self.wanted[s] && self.readers[s].iter().all(|k| self.at.get(*k) == Some(&g))
    }
    fn absorb(&mut self, h: usize, g: usize) {
        let (steps, makes) =
            (std::mem::take(&mut self.list[h].steps), std::mem::take(&mut self.list[h].makes));
        makes.iter().for_each(|s| self.by[*s] = Some(g));
        steps.iter().for_each(|k| self.at[*k] = g);
        self.list[g].makes.extend(makes);
        self.list[g].steps.extend(steps);
    }
    /// Results, what other devices want, and what a kernel reads of another one, or not where it is made.
    fn stored(&self) -> Vec<bool> {
        let mut stored = self.wanted.clone();
        for (k, step) in self.p.steps.iter().enumerate() {
            let l = step.local();
            let elementwise = l.as_ref().is_some_and(|l| l.sentence.body.elementwise().is_some());
            for s in step.inputs() {
                let own = self.by[s] == Some(self.at[k]);
                // (a fold reads what it has taken over)
                let within = l.as_ref().is_some_and(|l| !elementwise || self.within(l, s));
                stored[s] |= !(own && within);
            }
            for s in step.outputs() {
                let made = l.as_ref().map(|l| &l.sentence.body);
                stored[s] |= !made.is_some_and(|b| b.elementwise().is_some() || b.contracts());
            }
        }
        stored
    }
}
