//! Plans nested programs (loops and branches), whose slots follow those of the program around them.

use super::planner::{PlanScope, Planner};
use super::{
    BranchKernel, BufferLocation, CarryBuffers, ControlKernel, ExecutionPlan, LoopKernel, WhileKernel,
};
use crate::core::Result;
use crate::exec::compile::ir::{BranchOp, BufferOp, BufferProgram, Carry, LoopOp, WhileOp};
use crate::exec::{
    compile::arena, compile::fusion, compile::fusion::reuse, compile::fusion::reuse::CarryUpdate,
};
use crate::partition::Slot;
use std::ops::Range;

/// A control-flow operation with its nested plans.
#[derive(Debug)]
pub(super) struct NestedPlan {
    /// The kernel.
    pub(super) kernel: ControlKernel,
    /// The range of its slots.
    pub(super) slots: Range<usize>,
    /// The bytes that it needs in the arena.
    pub(super) arena_bytes: usize,
    /// The location of these bytes; `None` until memory is allocated.
    pub(super) location: Option<BufferLocation>,
}

impl Planner {
    /// Plans operation `k`, if it is control flow.
    pub(super) fn plan_control(
        &mut self,
        flow: &BufferProgram<'_>,
        k: usize,
        scope: &PlanScope<'_>,
    ) -> Result<Option<NestedPlan>> {
        let begin = self.locations.len();
        let reuse = scope.reuse;
        let others: Vec<_> = reuse.alternates.iter().filter(|o| o.0 == k).map(|o| (o.1, o.2)).collect();
        let (kernel, arena_bytes) = match &flow.ops[k] {
            BufferOp::Loop(l) => self.plan_loop(flow, l, scope.base, &others)?,
            BufferOp::While(w) => self.plan_while(flow, w, scope.base, &others)?,
            BufferOp::Branch(b) => self.plan_branch(flow, b, scope.base)?,
            _ => return Ok(None),
        };
        let slots = begin..self.locations.len();
        Ok(Some(NestedPlan { kernel, slots, arena_bytes, location: None }))
    }
    /// Plans a loop with a known trip count, and returns the bytes of its arena.
    /// `others` has the carries whose alternate buffer is donated.
    fn plan_loop(
        &mut self,
        flow: &BufferProgram<'_>,
        l: &LoopOp<'_>,
        base: usize,
        others: &[(usize, usize)],
    ) -> Result<(ControlKernel, usize)> {
        let outer = |s: Slot| (flow.alias_root(s) + base) as u32;
        let (body, at, mut size, updates) = self.plan_nested(&l.body, &l.carry)?;
        let slice = |s: Slot| flow.value_bytes(s) / l.length.max(1);
        let kernel = LoopKernel {
            iteration: l.iteration as u32 + at,
            start: l.start,
            length: l.length,
            reverse: l.reverse,
            fixed: l.fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + at)).collect(),
            carry: self.plan_carries(flow, &l.carry, (base, at), &updates, others, &mut size),
            xs: l.xs.iter().map(|(o, i)| (outer(*o), *i as u32 + at, slice(*o))).collect(),
            ys: l.ys.iter().map(|(i, o)| (*i as u32 + at, outer(*o), slice(*o))).collect(),
            body,
        };
        Ok((ControlKernel::Loop(kernel), size))
    }
    /// Plans a loop that runs while a condition holds, and returns the bytes of its arena.
    /// `others` has the carries whose alternate buffer is donated.
    fn plan_while(
        &mut self,
        flow: &BufferProgram<'_>,
        w: &WhileOp<'_>,
        base: usize,
        others: &[(usize, usize)],
    ) -> Result<(ControlKernel, usize)> {
        let outer = |s: Slot| (flow.alias_root(s) + base) as u32;
        let (cond, c, first, _) = self.plan_nested(&w.cond, &[])?;
        let after = self.locations.len();
        let (body, b, second, updates) = self.plan_nested(&w.body, &w.carry)?;
        // the arenas of condition and body do not overlap
        self.relocate(after..self.locations.len(), BufferLocation::Arena(first));
        let mut size = first + second;
        let fixed = w.cond_fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + c));
        let kernel = WhileKernel {
            fixed: fixed.chain(w.body_fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + b))).collect(),
            cond_carry: w.cond_carry.iter().map(|s| *s as u32 + c).collect(),
            carry: self.plan_carries(flow, &w.carry, (base, b), &updates, others, &mut size),
            test: w.cond.outs[0] as u32 + c,
            test_elements: w.cond.value_bytes(w.cond.outs[0]),
            cond,
            body,
        };
        self.locations[kernel.test as usize] = BufferLocation::Arena(size);
        let size = size + kernel.test_elements.next_multiple_of(64);
        Ok((ControlKernel::While(kernel), size))
    }
    /// Plans a choice among several programs, and returns the bytes of its arena.
    fn plan_branch(
        &mut self,
        flow: &BufferProgram<'_>,
        b: &BranchOp<'_>,
        base: usize,
    ) -> Result<(ControlKernel, usize)> {
        let outer = |s: Slot| (flow.alias_root(s) + base) as u32;
        let (mut arms, mut wires, mut size) = (Vec::new(), Vec::new(), 0);
        for arm in &b.arms {
            let begin = self.locations.len();
            let (plan, at, bytes, _) = self.plan_nested(arm, &[])?;
            if arena::HAS_GUARDS {
                // the guards of one arm are not in the memory of another
                self.relocate(begin..self.locations.len(), BufferLocation::Arena(size));
                size += bytes;
            }
            size = size.max(bytes);
            let pairs = b.ins.iter().zip(&arm.ins).chain(b.outs.iter().zip(&arm.outs));
            wires.push(pairs.map(|(o, i)| (outer(*o), *i as u32 + at)).collect());
            arms.push(plan);
        }
        let dtype = flow.values[b.selector].dtype;
        let kernel = BranchKernel { selector: outer(b.selector), dtype, arms, wires };
        Ok((ControlKernel::Branch(kernel), size))
    }
    /// Returns the buffers of carries, whose slots start at `base` outside and at `at` inside.
    /// A carry that is not updated in place has an alternate buffer: a donated argument, or new
    /// memory at the end of the loop's arena, whose size is `size`.
    fn plan_carries(
        &mut self,
        flow: &BufferProgram<'_>,
        list: &[Carry],
        (base, at): (usize, u32),
        updates: &[CarryUpdate],
        others: &[(usize, usize)],
        size: &mut usize,
    ) -> Vec<CarryBuffers> {
        let outer = |s: Slot| (flow.alias_root(s) + base) as u32;
        let mut made = Vec::with_capacity(list.len());
        for (k, c) in list.iter().enumerate() {
            let bytes = flow.value_bytes(c.result);
            let other = match others.iter().find(|o| o.0 == k) {
                _ if updates[k] != CarryUpdate::Moved => None,
                Some((_, donation)) => Some(self.add_slot(BufferLocation::Donated(*donation, 0))),
                None => {
                    *size += bytes.next_multiple_of(64);
                    Some(self.add_slot(BufferLocation::Arena(*size - bytes.next_multiple_of(64))))
                }
            };
            let (from, to) = (c.body_in as u32 + at, c.body_out as u32 + at);
            made.push(CarryBuffers {
                init: outer(c.init),
                body_in: from,
                body_out: to,
                result: outer(c.result),
                alternate: other,
                starts_from_copy: updates[k] == CarryUpdate::Partial,
                bytes,
            });
        }
        made
    }
    /// Plans a nested program, whose arena starts at offset 0.
    /// Returns the plan, its first slot, the bytes of its arena, and how it updates the carries.
    fn plan_nested(
        &mut self,
        flow: &BufferProgram<'_>,
        carry: &[Carry],
    ) -> Result<(ExecutionPlan, u32, usize, Vec<CarryUpdate>)> {
        let base = self.locations.len();
        self.locations.resize(base + flow.values.len(), BufferLocation::None);
        for s in flow.ins.iter().chain(&flow.outs) {
            self.locations[base + s] = BufferLocation::LoopControlled;
        }
        let mut groups = fusion::fuse(flow);
        let (updates, reuse) = reuse::in_place_carries(&mut groups, carry);
        let scope = PlanScope { base, in_loop: true, skip: &[], reuse: &reuse };
        let (plan, arena) = self.plan(&mut groups, &scope)?;
        Ok((plan, base as u32, arena, updates))
    }
    /// Moves the arena of a nested program to the memory that it was given.
    pub(super) fn relocate(&mut self, slots: Range<usize>, to: BufferLocation) {
        for p in &mut self.locations[slots] {
            *p = match (*p, to) {
                (BufferLocation::Arena(at), BufferLocation::Arena(by)) => BufferLocation::Arena(at + by),
                (BufferLocation::Arena(at), BufferLocation::Donated(donation, by)) => {
                    BufferLocation::Donated(donation, at + by)
                }
                (p, _) => p,
            };
        }
    }
}

impl ControlKernel {
    /// Returns the name in reports.
    pub(super) fn name(&self) -> &'static str {
        match self {
            ControlKernel::Loop(_) => "loop",
            ControlKernel::While(_) => "loop while a condition holds",
            ControlKernel::Branch(_) => "one of several branches",
        }
    }
    /// Returns the approximate cost, in microseconds.
    pub(super) fn cost_us(&self) -> f64 {
        match self {
            ControlKernel::Loop(l) => l.body.cost_us * l.length as f64 + 0.1,
            // assume 50 iterations
            ControlKernel::While(w) => (w.body.cost_us + w.cond.cost_us) * 50.0,
            ControlKernel::Branch(b) => b.arms.iter().map(|a| a.cost_us).fold(0.0, f64::max),
        }
    }
}
