//! Nested programs: loops and choices with plans of their own, whose slots follow those of the plan around.

use super::reuse::{self, Reuse};
use super::schedule::{Planner, bytes};
use super::{BranchKernel, CarryKernel, Kernel, LoopKernel, Memory, Plan, WhileKernel};
use crate::compile::flow::{Carry, Flow, Item};
use crate::compile::group;
use crate::diagnostic::Result;
use crate::partition::Slot;
use std::ops::Range;

/// A control item with its nested plans.
pub(super) struct Nested {
    pub(super) kernel: Kernel,
    /// Its slots.
    pub(super) slots: Range<usize>,
    /// Bytes that it wants in the arena.
    pub(super) bytes: usize,
}

impl Planner {
    /// Item `k`, if it is one of control, with its nested plans.
    pub(super) fn control(
        &mut self,
        flow: &Flow<'_>,
        k: usize,
        base: usize,
        reuse: &Reuse,
    ) -> Result<Option<Nested>> {
        let outer = |s: Slot| (flow.root(s) + base) as u32;
        let begin = self.places.len();
        let others: Vec<_> = reuse.others.iter().filter(|o| o.0 == k).map(|o| (o.1, o.2)).collect();
        let (kernel, bytes) = match &flow.items[k] {
            Item::Loop(l) => {
                let (body, at, mut size, alone) = self.nested(&l.body, &l.carry)?;
                let slice = |s: Slot| bytes(flow, s) / l.length.max(1);
                let k = LoopKernel {
                    step: l.step as u32 + at,
                    start: l.start,
                    length: l.length,
                    reverse: l.reverse,
                    fixed: l.fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + at)).collect(),
                    carry: self.carries(flow, &l.carry, (base, at), &alone, &others, &mut size),
                    xs: l.xs.iter().map(|(o, i)| (outer(*o), *i as u32 + at, slice(*o))).collect(),
                    ys: l.ys.iter().map(|(i, o)| (*i as u32 + at, outer(*o), slice(*o))).collect(),
                    body,
                };
                (Kernel::Loop(Box::new(k)), size)
            }
            Item::While(w) => {
                let (cond, c, first, _) = self.nested(&w.cond, &[])?;
                let after = self.places.len();
                let (body, b, second, alone) = self.nested(&w.body, &w.carry)?;
                // both parts of the arena side by side
                self.slide(after..self.places.len(), Memory::Arena(first));
                let mut size = first + second;
                let fixed = w.cond_fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + c));
                let k = WhileKernel {
                    fixed: fixed
                        .chain(w.body_fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + b)))
                        .collect(),
                    cond_carry: w.cond_carry.iter().map(|s| *s as u32 + c).collect(),
                    carry: self.carries(flow, &w.carry, (base, b), &alone, &others, &mut size),
                    test: w.cond.outs[0] as u32 + c,
                    cond,
                    body,
                };
                self.places[k.test as usize] = Memory::Arena(size);
                (Kernel::While(Box::new(k)), size + 64)
            }
            Item::Branch(b) => {
                let (mut arms, mut wires, mut size) = (Vec::new(), Vec::new(), 0);
                for arm in &b.arms {
                    let (plan, at, bytes, _) = self.nested(arm, &[])?;
                    size = size.max(bytes);
                    let pairs = b.ins.iter().zip(&arm.ins).chain(b.outs.iter().zip(&arm.outs));
                    wires.push(pairs.map(|(o, i)| (outer(*o), *i as u32 + at)).collect());
                    arms.push(plan);
                }
                let k =
                    BranchKernel { which: outer(b.which), dtype: flow.values[b.which].dtype, arms, wires };
                (Kernel::Branch(Box::new(k)), size)
            }
            _ => return Ok(None),
        };
        Ok(Some(Nested { kernel, slots: begin..self.places.len(), bytes }))
    }
    /// The carries of a loop, whose slots begin at `base` outside and `at` inside. Those that are not updated in place have a second
    /// one in a donated argument, or behind `size` bytes of the loop's arena.
    fn carries(
        &mut self,
        flow: &Flow<'_>,
        list: &[Carry],
        (base, at): (usize, u32),
        alone: &[bool],
        others: &[(usize, usize)],
        size: &mut usize,
    ) -> Vec<CarryKernel> {
        let outer = |s: Slot| (flow.root(s) + base) as u32;
        let mut made = Vec::with_capacity(list.len());
        for (k, c) in list.iter().enumerate() {
            let bytes = bytes(flow, c.last);
            let other = match others.iter().find(|o| o.0 == k) {
                _ if alone[k] => None,
                Some((_, gift)) => Some(self.room(Memory::Given(*gift, 0))),
                None => {
                    *size += bytes.next_multiple_of(64);
                    Some(self.room(Memory::Arena(*size - bytes.next_multiple_of(64))))
                }
            };
            let (from, to) = (c.from as u32 + at, c.to as u32 + at);
            made.push(CarryKernel { first: outer(c.first), from, to, last: outer(c.last), other, bytes });
        }
        made
    }
    /// The plan of a nested flow, its first slot, the bytes of its arena, which begins at 0, and which carries it updates in place.
    fn nested(&mut self, flow: &Flow<'_>, carry: &[Carry]) -> Result<(Plan, u32, usize, Vec<bool>)> {
        let base = self.places.len();
        self.places.resize(base + flow.values.len(), Memory::Nowhere);
        for s in flow.ins.iter().chain(&flow.outs) {
            self.places[base + s] = Memory::Moving;
        }
        let mut groups = group::group(flow);
        let (alone, reuse) = reuse::carries(&mut groups, carry);
        let (plan, arena) = self.plan(&mut groups, base, true, &[], &reuse)?;
        Ok((plan, base as u32, arena, alone))
    }
    /// Moves what is in the arena of a nested program to where that has its room.
    pub(super) fn slide(&mut self, slots: Range<usize>, to: Memory) {
        for p in &mut self.places[slots] {
            *p = match (*p, to) {
                (Memory::Arena(at), Memory::Arena(by)) => Memory::Arena(at + by),
                (Memory::Arena(at), Memory::Given(gift, by)) => Memory::Given(gift, at + by),
                (p, _) => p,
            };
        }
    }
}

/// Microseconds of a nested program, roughly, and what it is.
pub(super) fn cost(k: &Kernel) -> (f64, &'static str) {
    match k {
        Kernel::Loop(l) => (l.body.cost * l.length as f64 + 0.1, "loop"),
        // as if it ran some dozen steps
        Kernel::While(w) => ((w.body.cost + w.cond.cost) * 50.0, "loop while a condition holds"),
        Kernel::Branch(b) => (b.arms.iter().map(|a| a.cost).fold(0.0, f64::max), "one of several branches"),
        _ => (0.0, ""),
    }
}
