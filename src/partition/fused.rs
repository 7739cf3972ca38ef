//! Predicts fusion: which steps form one kernel, and so which values exist in memory.
//!
//! Steps are visited in order. An elementwise step joins the kernel of the highest level that it
//! reads element by element, if everything else it reads is ready before that kernel. A reduction
//! absorbs a kernel of elementwise steps that has no other consumer. A matrix product starts a
//! kernel, which elementwise steps on its result may join. The level of a kernel is the length of
//! the longest chain of dependencies that leads to it.
//!
//! The compiler of the lock-step and threads engines fuses by the same rules. A value is not in
//! memory if only the kernel that computes it reads it, at the index where each element is
//! computed. Rows that stay in cache, such as attention scores, are not in memory either
//! (`scores`).

mod scores;

use crate::core::util::small_sort;
use crate::ir::program::loop_nest::{AffineExpr, LoopNest, Source, StridedRange};
use crate::partition::fusion::policy::{MAX_ABSORBED_MEMBERS, MAX_MEMBERS};
use crate::partition::program::{LocalStep, Slot, SpmdProgram};
use std::cmp::Ordering;

/// The maximum number of pieces of an access that are searched for one that covers all indices.
const MAX_SEARCHED_PIECES: usize = 16;

/// Returns true if the loop nest reads only the element of `of` at the index that it computes.
fn reads_elementwise(s: &LoopNest, of: Slot) -> bool {
    // pieces are disjoint, so that none of many covers all indices
    if matches!(&s.accesses[..], [joined] if joined.pieces.len() > MAX_SEARCHED_PIECES) {
        return false;
    }
    let full = StridedRange::full_box(&s.extents);
    let mut pieces = s.accesses.iter().flat_map(|r| &r.pieces).filter(|p| p.source == Source::Value(of));
    s.compute.elementwise().is_some()
        && pieces.all(|p| {
            p.ranges == full && p.map.len() == s.extents.len() && p.map.iter().enumerate().all(is_loop_index)
        })
}

/// Returns true if the index expression is the plain index of loop `d`.
fn is_loop_index((d, m): (usize, &AffineExpr)) -> bool {
    m.constant == 0 && m.terms[..] == [(d, 1)]
}

/// Returns, for each value, whether it is in memory.
pub(crate) fn materialized_slots(p: &SpmdProgram) -> Vec<bool> {
    let mut k = KernelBuilder::new(p);
    for step in 0..p.steps.len() {
        k.add_step(step);
    }
    let mut stored = k.materialized_slots();
    scores::drop_cached_rows(p, &k.readers, &k.wanted, &mut stored);
    stored
}

/// The root operation of a kernel.
#[derive(Clone, Copy, PartialEq)]
enum KernelRoot {
    /// Elementwise steps only.
    Elementwise,
    /// A matrix product.
    Product,
    /// Any other step.
    /// No step joins it.
    Other,
}

/// A set of fused steps.
struct FusedKernel {
    /// The operation that the kernel is built around.
    root: KernelRoot,
    /// The length of the longest chain of dependencies that leads to the kernel.
    level: usize,
    /// The indices of the steps.
    steps: Vec<usize>,
    /// The values that the steps compute.
    outputs: Vec<Slot>,
}

/// The state of the fusion pass, with the kernels formed so far.
struct KernelBuilder<'p> {
    p: &'p SpmdProgram,
    kernels: Vec<FusedKernel>,
    /// The kernel that computes each value.
    /// `None` for inputs.
    producer: Vec<Option<usize>>,
    /// The kernel of each step.
    kernel_of_step: Vec<usize>,
    /// The steps that read each value.
    readers: Vec<Vec<usize>>,
    /// For each value, true if other devices or the caller need it.
    wanted: Vec<bool>,
}

impl<'p> KernelBuilder<'p> {
    fn new(p: &'p SpmdProgram) -> KernelBuilder<'p> {
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
        KernelBuilder {
            p,
            kernels: Vec::new(),
            producer: vec![None; n],
            kernel_of_step: Vec::with_capacity(p.steps.len()),
            readers,
            wanted,
        }
    }
    fn level(&self, s: Slot) -> usize {
        self.producer[s].map_or(0, |g| self.kernels[g].level)
    }
    /// Returns true if the step reads each element of a value where it is computed.
    /// Both the device and the index must be the same.
    fn reads_where_made(&self, l: &LocalStep<'_>, s: Slot) -> bool {
        reads_elementwise(l.nest, s) && l.layout == &self.p.slots[s].layout.dims[..]
    }
    fn new_kernel(&mut self, head: KernelRoot, level: usize) -> usize {
        self.kernels.push(FusedKernel { root: head, level, steps: Vec::new(), outputs: Vec::new() });
        self.kernels.len() - 1
    }
    fn add_step(&mut self, k: usize) {
        let step = &self.p.steps[k];
        let mut sources = step.inputs();
        small_sort::sort(&mut sources);
        sources.dedup();
        let next = 1 + sources.iter().map(|s| self.level(*s)).max().unwrap_or(0);
        let g = match step.local() {
            Some(l) if l.nest.compute.elementwise().is_some() => self
                .join_elementwise(&l, &sources)
                .unwrap_or_else(|| self.new_kernel(KernelRoot::Elementwise, next)),
            Some(l) if l.nest.compute.contracts() => self.new_kernel(KernelRoot::Product, next),
            Some(l) if !l.nest.compute.needs_whole_blocks() && !l.nest.compute.is_alias() => {
                self.open_reduction(&sources)
            }
            _ => self.new_kernel(KernelRoot::Other, next),
        };
        self.kernel_of_step.push(g);
        self.kernels[g].steps.push(k);
        for s in step.outputs() {
            self.producer[s] = Some(g);
            self.kernels[g].outputs.push(s);
        }
    }
    /// Returns the kernel that an elementwise step joins, `None` if it joins none.
    fn join_elementwise(&mut self, l: &LocalStep<'_>, sources: &[Slot]) -> Option<usize> {
        let within: Vec<bool> = sources.iter().map(|s| self.reads_where_made(l, *s)).collect();
        let kernels =
            sources.iter().zip(&within).filter(|x| *x.1).filter_map(|x| Some((*x.0, self.producer[*x.0]?)));
        let open = kernels.filter(|(_, g)| {
            self.kernels[*g].root != KernelRoot::Other && self.kernels[*g].steps.len() < MAX_MEMBERS
        });
        let far = |(s, g): &(Slot, usize)| {
            let k = &self.kernels[*g];
            (k.level, k.root == KernelRoot::Product, self.p.slots[*s].block_bytes(), *s)
        };
        let g = open.max_by_key(far)?.1;
        // if the step reads several products, it joins the one with the largest result, which is
        // scheduled after the others
        let product = |h: &usize| {
            *h != g
                && self.kernels[*h].root == KernelRoot::Product
                && self.kernels[*h].level == self.kernels[g].level
        };
        if self.kernels[g].root == KernelRoot::Product
            && sources.iter().filter_map(|s| self.producer[*s]).any(|h| product(&h))
            && self.is_unread_elsewhere(g)
        {
            self.kernels[g].level += 1;
        }
        let level = self.kernels[g].level;
        let mut merged = Vec::new();
        for (s, within) in sources.iter().zip(within) {
            let Some(h) = self.producer[*s] else { continue };
            let steps = self.kernels[g].steps.len() + self.kernels[h].steps.len();
            let like = within && self.kernels[h].root == KernelRoot::Elementwise && steps < MAX_MEMBERS;
            match self.kernels[h].level.cmp(&level) {
                _ if h == g && within => {}
                Ordering::Less => merged.extend((like && self.has_only_reader(*s, h)).then_some(h)),
                Ordering::Equal if like && h != g => merged.push(h),
                Ordering::Equal | Ordering::Greater => return None,
            }
        }
        merged.into_iter().for_each(|h| self.merge(h, g));
        Some(g)
    }
    /// Starts a kernel for a reduction and merges elementwise kernels that only it reads.
    fn open_reduction(&mut self, sources: &[Slot]) -> usize {
        let (mut taken, mut level) = (Vec::new(), 1);
        for s in sources {
            let alone = |h: &usize| {
                let k = &self.kernels[*h];
                k.root == KernelRoot::Elementwise
                    && k.steps.len() <= MAX_ABSORBED_MEMBERS
                    && self.has_only_reader(*s, *h)
            };
            match self.producer[*s].filter(alone) {
                Some(h) => {
                    level = level.max(self.kernels[h].level);
                    taken.push(h);
                }
                None => level = level.max(1 + self.level(*s)),
            }
        }
        let g = self.new_kernel(KernelRoot::Other, level);
        taken.into_iter().for_each(|h| self.merge(h, g));
        g
    }
    /// Returns true if kernel `g` has one consumer.
    /// One step reads its result `s`, and only the kernel itself reads its other results.
    fn has_only_reader(&self, s: Slot, g: usize) -> bool {
        let others = self.kernels[g].outputs.iter().filter(|o| **o != s);
        !self.wanted[s] && self.readers[s].len() == 1 && others.into_iter().all(|o| self.is_internal(*o, g))
    }
    /// Returns true if no other kernel reads results of this one so far.
    fn is_unread_elsewhere(&self, g: usize) -> bool {
        let read =
            |s: &Slot| self.readers[*s].iter().filter_map(|k| self.kernel_of_step.get(*k)).any(|at| *at != g);
        !self.kernels[g].outputs.iter().any(read)
    }
    /// Returns true if only this kernel reads a value.
    fn is_internal(&self, s: Slot, g: usize) -> bool {
        !self.wanted[s] && self.readers[s].iter().all(|k| self.kernel_of_step.get(*k) == Some(&g))
    }
    fn merge(&mut self, h: usize, g: usize) {
        let (steps, makes) =
            (std::mem::take(&mut self.kernels[h].steps), std::mem::take(&mut self.kernels[h].outputs));
        makes.iter().for_each(|s| self.producer[*s] = Some(g));
        steps.iter().for_each(|k| self.kernel_of_step[*k] = g);
        self.kernels[g].outputs.extend(makes);
        self.kernels[g].steps.extend(steps);
    }
    /// Returns, for each value, whether it is in memory.
    /// These are results, values that other devices need, and values that another kernel reads or
    /// that are read at other indices.
    fn materialized_slots(&self) -> Vec<bool> {
        let mut stored = self.wanted.clone();
        for (k, step) in self.p.steps.iter().enumerate() {
            let l = step.local();
            let elementwise = l.as_ref().is_some_and(|l| l.nest.compute.elementwise().is_some());
            for s in step.inputs() {
                let own = self.producer[s] == Some(self.kernel_of_step[k]);
                // a reduction may read the kernels that it absorbed at other indices
                let within = || l.as_ref().is_some_and(|l| !elementwise || self.reads_where_made(l, s));
                stored[s] |= !(own && within());
            }
            for s in step.outputs() {
                let made = l.as_ref().map(|l| &l.nest.compute);
                stored[s] |= !made.is_some_and(|b| b.elementwise().is_some() || b.contracts());
            }
        }
        stored
    }
}
