//! Nested programs: loops and choices with plans of their own, whose slots follow those of the plan around.

use super::schedule::{Planner, bytes};
use super::{BranchKernel, CarryKernel, Kernel, LoopKernel, Place, Plan, WhileKernel};
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
    /// A control item with its nested plans.
    pub(super) fn control(
        &mut self,
        flow: &Flow<'_>,
        item: &Item<'_>,
        base: usize,
    ) -> Result<Option<Nested>> {
        let outer = |s: Slot| (flow.root(s) + base) as u32;
        let begin = self.places.len();
        let (kernel, bytes) = match item {
            Item::Loop(l) => {
                let (body, at, mut size) = self.nested(&l.body)?;
                let slice = |s: Slot| bytes(flow, s) / l.length.max(1);
                let k = LoopKernel {
                    step: l.step as u32 + at,
                    start: l.start,
                    length: l.length,
                    reverse: l.reverse,
                    fixed: l.fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + at)).collect(),
                    carry: self.carries(flow, &l.carry, base, at, &mut size),
                    xs: l.xs.iter().map(|(o, i)| (outer(*o), *i as u32 + at, slice(*o))).collect(),
                    ys: l.ys.iter().map(|(i, o)| (*i as u32 + at, outer(*o), slice(*o))).collect(),
                    body,
                };
                (Kernel::Loop(Box::new(k)), size)
            }
            Item::While(w) => {
                let (cond, c, first) = self.nested(&w.cond)?;
                let after = self.places.len();
                let (body, b, second) = self.nested(&w.body)?;
                // both parts of the arena side by side
                self.slide(after..self.places.len(), first);
                let mut size = first + second;
                let fixed = w.cond_fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + c));
                let k = WhileKernel {
                    fixed: fixed
                        .chain(w.body_fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + b)))
                        .collect(),
                    cond_carry: w.cond_carry.iter().map(|s| *s as u32 + c).collect(),
                    carry: self.carries(flow, &w.carry, base, b, &mut size),
                    test: w.cond.outs[0] as u32 + c,
                    cond,
                    body,
                };
                self.places[k.test as usize] = Place::Arena(size);
                (Kernel::While(Box::new(k)), size + 64)
            }
            Item::Branch(b) => {
                let (mut arms, mut wires, mut size) = (Vec::new(), Vec::new(), 0);
                for arm in &b.arms {
                    let (plan, at, bytes) = self.nested(arm)?;
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
    /// The carries of a loop whose body's slots begin at `at`; their second places are behind `size` bytes of its arena.
    fn carries(
        &mut self,
        flow: &Flow<'_>,
        list: &[Carry],
        base: usize,
        at: u32,
        size: &mut usize,
    ) -> Vec<CarryKernel> {
        let one = |c: &Carry| {
            let bytes = bytes(flow, c.last);
            let other = self.room(Place::Arena(*size));
            *size += bytes.next_multiple_of(64);
            let outer = |s: Slot| (flow.root(s) + base) as u32;
            let (from, to) = (c.from as u32 + at, c.to as u32 + at);
            CarryKernel { first: outer(c.first), from, to, last: outer(c.last), other, bytes }
        };
        list.iter().map(one).collect()
    }
    /// The plan of a nested flow, its first slot, and the bytes of its arena, which begins at 0.
    fn nested(&mut self, flow: &Flow<'_>) -> Result<(Plan, u32, usize)> {
        let base = self.places.len();
        self.places.resize(base + flow.values.len(), Place::Nowhere);
        for s in flow.ins.iter().chain(&flow.outs) {
            self.places[base + s] = Place::Moving;
        }
        let (plan, arena) = self.plan(&group::group(flow), base, true, &[])?;
        Ok((plan, base as u32, arena))
    }
    /// Moves what lies in the arena.
    pub(super) fn slide(&mut self, slots: Range<usize>, by: usize) {
        for p in &mut self.places[slots] {
            if let Place::Arena(at) = p {
                *at += by;
            }
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
