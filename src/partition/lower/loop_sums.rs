//! Moves sums over devices out of loops.
//!
//! The gradient of a weight that the steps of a loop share is a carry to which each step adds a
//! product that is summed over devices. The sum of the partial products is the partial product of
//! the sum, so the carry is kept as partial values and summed over devices once, after the loop.
//! The same holds for each carry that a loop body changes only by linear operations and reads
//! nowhere else.

use crate::core::sharding::sub_axes::{in_device_order, intersection};
use crate::core::{ArrayType, DType, Shape, SubAxes};
use crate::ir::program::{
    Control, DimMap, Equation, FactorKind, Input, Linearity, Loop, Op, Placement, Prim, Program, Var,
};
use std::sync::Arc;

/// Returns the program with the carries of its loops as partial values where that moves a sum over
/// devices out of a loop.
///
/// `None` if there are none. Every variable must be placed. Bodies of `shard_map` are unchanged,
/// because their collectives are those that the user called.
pub(crate) fn defer_loop_sums(program: &Program) -> Option<Program> {
    if !has_control(program) {
        return None;
    }
    let mut changed = program.clone();
    defer_in(&mut changed).then_some(changed)
}

/// Returns true if an equation of the program has nested programs.
fn has_control(program: &Program) -> bool {
    program.equations.iter().any(|e| matches!(e.op, Op::Control(_)))
}

/// Changes the program, innermost loops first. Returns true if anything changed.
fn defer_in(program: &mut Program) -> bool {
    let mut any = false;
    for e in &mut program.equations {
        let Op::Control(control) = &mut e.op else { continue };
        if matches!(control, Control::ShardMap(_)) {
            continue;
        }
        for body in control.bodies_mut() {
            if has_control(body) {
                any |= defer_in(Arc::make_mut(body));
            }
        }
        any |= match control {
            Control::Loop(Loop { body, fixed, carry, .. }) => {
                let carries = 1 + *fixed..1 + *fixed + *carry;
                defer_carries(body, carries, |_| true)
            }
            Control::While { cond, body, cond_fixed, body_fixed } => {
                let carries = *body_fixed..body.inputs.len();
                let (uses, first) = (count_uses(cond), *cond_fixed);
                let unread = |k: usize| uses[cond.inputs[first + k].index()] == 0;
                defer_carries(body, carries, unread)
            }
            _ => false,
        };
    }
    any
}

/// Makes carries of a loop body partial where possible. The carries are these inputs, and the first
/// results. `may_defer` says whether a carry is unread outside of the body.
fn defer_carries(
    body: &mut Arc<Program>,
    carries: std::ops::Range<usize>,
    may_defer: impl Fn(usize) -> bool,
) -> bool {
    let mut deferred: Vec<(PartialValues, SubAxes)> = Vec::new();
    let mut finder = SumFinder::new(body);
    for (k, input) in carries.enumerate() {
        let (carry, Input::Var(next)) = (body.inputs[input], &body.outputs[k]) else { continue };
        if carry == *next || !may_defer(k) {
            continue;
        }
        finder.carry = Some(carry);
        let Some(mut found) = finder.partial_values(*next) else { continue };
        let Some(axes) = found.axes.take() else { continue };
        if found.vars.contains(&carry) && !found.is_split(body, &axes) {
            deferred.push((found, axes));
        }
    }
    for (found, axes) in &deferred {
        found.apply(Arc::make_mut(body), axes);
    }
    !deferred.is_empty()
}

/// The values of a program that become partial together.
#[derive(Default)]
struct PartialValues {
    /// The sub-axes over which they become partial. `None` if any would do.
    axes: Option<SubAxes>,
    /// The variables.
    vars: Vec<Var>,
    /// The calls among the equations, each with the values of its body.
    calls: Vec<(usize, PartialValues)>,
}

impl PartialValues {
    /// Adds the values that another operand depends on. `None` if the sub-axes differ.
    fn join(mut self, other: PartialValues) -> Option<PartialValues> {
        self.axes = match (self.axes, other.axes) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.or(b),
        };
        self.vars.extend(other.vars);
        self.calls.extend(other.calls);
        Some(self)
    }
    /// Adds a variable. `None` if it is unreduced.
    fn with(mut self, program: &Program, v: Var) -> Option<PartialValues> {
        let placement = program.vars[v.index()].placement.as_ref();
        placement.is_none_or(|p| p.partial.is_empty()).then(|| self.vars.push(v))?;
        Some(self)
    }
    /// Returns true if a dimension of one of the values is split over any of these sub-axes.
    fn is_split(&self, program: &Program, axes: &SubAxes) -> bool {
        let split = |v: &Var| {
            let placement = program.vars[v.index()].placement.as_ref();
            placement.is_some_and(|p| p.dims.iter().any(|d| !intersection(d, axes).is_empty()))
        };
        let split_in_call = |(k, inner): &(usize, PartialValues)| match &program.equations[*k].op {
            Op::Control(Control::Jit { body, .. }) => inner.is_split(body, axes),
            _ => false,
        };
        self.vars.iter().any(split) || self.calls.iter().any(split_in_call)
    }
    /// Makes the values partial over these sub-axes.
    fn apply(&self, program: &mut Program, axes: &SubAxes) {
        for v in &self.vars {
            let info = &mut program.vars[v.index()];
            let rank = info.ty.shape.len();
            let own = info.placement.get_or_insert_with(|| Placement {
                dims: vec![SubAxes::new(); rank],
                partial: SubAxes::new(),
            });
            own.partial = axes.clone();
        }
        for (k, inner) in &self.calls {
            let Op::Control(Control::Jit { body, .. }) = &mut program.equations[*k].op else { continue };
            inner.apply(Arc::make_mut(body), axes);
        }
    }
}

/// Finds the sums over devices that a value is computed from by linear operations.
struct SumFinder<'a> {
    program: &'a Program,
    /// The carry, which may become partial. `None` in the body of a call.
    carry: Option<Var>,
    /// The equation that computes each variable.
    producers: Vec<Option<usize>>,
    /// The number of times that each variable is read.
    uses: Vec<usize>,
}

impl<'a> SumFinder<'a> {
    fn new(program: &'a Program) -> SumFinder<'a> {
        let mut producers = vec![None; program.vars.len()];
        for (k, e) in program.equations.iter().enumerate() {
            e.outputs.iter().for_each(|v| producers[v.index()] = Some(k));
        }
        SumFinder { program, carry: None, producers, uses: count_uses(program) }
    }

    /// Returns the values that become partial if `v` does.
    ///
    /// `None` if `v` is no sum of the carry and of sums over devices, or if something else reads
    /// one of the values.
    fn partial_values(&self, v: Var) -> Option<PartialValues> {
        if self.uses[v.index()] != 1 {
            return None;
        }
        if self.carry == Some(v) {
            return PartialValues::default().with(self.program, v);
        }
        let k = self.producers[v.index()]?;
        let e = &self.program.equations[k];
        let found = match &e.op {
            Op::Prim(prim) => self.of_primitive(e, prim, v)?,
            Op::Control(Control::Jit { body, .. }) => {
                let result = e.outputs.iter().position(|o| *o == v)?;
                let Input::Var(inner) = body.outputs[result] else { return None };
                let inner = SumFinder::new(body).partial_values(inner)?;
                PartialValues { axes: inner.axes.clone(), vars: Vec::new(), calls: vec![(k, inner)] }
            }
            Op::Control(Control::Loop(l)) => {
                let result = e.outputs[..l.carry].iter().position(|o| *o == v)?;
                let inner = l.body.inputs[1 + l.fixed + result];
                let axes = l.body.vars[inner.index()].placement.as_ref().map(|p| p.partial.clone())?;
                if axes.is_empty() {
                    return None;
                }
                let before = match &e.inputs[l.fixed + result] {
                    Input::Var(init) => self.partial_values(*init),
                    Input::Lit(_) => None,
                };
                PartialValues { axes: Some(axes), ..Default::default() }.join(before.unwrap_or_default())?
            }
            Op::Control(_) => return None,
        };
        found.with(self.program, v)
    }

    /// Returns the values that become partial if the result `v` of a primitive does, without `v`.
    fn of_primitive(&self, e: &Equation, prim: &Prim, v: Var) -> Option<PartialValues> {
        let [_] = e.outputs[..] else { return None };
        let types: Vec<ArrayType> = e.inputs.iter().map(|i| self.program.input_type(i)).collect();
        let result = self.program.ty(v);
        if types.iter().any(|ty| ty.dtype != result.dtype) {
            return None;
        }
        if prim.constraint().is_some() {
            return self.of_change_of_sharding(&e.inputs[0], v);
        }
        match prim.linearity() {
            Linearity::Joint => match self.summed_axes(e, prim, &types, result)? {
                axes if axes.is_empty() => e.inputs.iter().try_fold(PartialValues::default(), |all, i| {
                    let Input::Var(v) = i else { return None };
                    all.join(self.partial_values(*v)?)
                }),
                axes => Some(PartialValues { axes: Some(axes), ..PartialValues::default() }),
            },
            Linearity::Contraction => {
                let axes = self.summed_axes(e, prim, &types, result)?;
                (!axes.is_empty()).then(|| PartialValues { axes: Some(axes), ..PartialValues::default() })
            }
            Linearity::Product => {
                let ([Input::Var(x), Input::Lit(_)] | [Input::Lit(_), Input::Var(x)]) = e.inputs[..] else {
                    return None;
                };
                self.partial_values(x)
            }
            _ => None,
        }
    }

    /// Returns the values that become partial if `v` does, which is `x` in another sharding.
    fn of_change_of_sharding(&self, x: &Input, v: Var) -> Option<PartialValues> {
        let Input::Var(x) = x else { return None };
        let [from, to] = [*x, v].map(|v| self.program.vars[v.index()].placement.as_ref());
        let (from, to) = (from?, to?);
        if from.dims != to.dims {
            return None;
        }
        if from.partial.is_empty() {
            return self.partial_values(*x);
        }
        Some(PartialValues { axes: Some(from.partial.clone()), ..PartialValues::default() })
    }

    /// Returns the sub-axes over which the equation sums. Empty if its loops are not summed or not
    /// split; `None` if its operands are split differently.
    fn summed_axes(
        &self,
        e: &Equation,
        prim: &Prim,
        types: &[ArrayType],
        result: &ArrayType,
    ) -> Option<SubAxes> {
        let results: [(DType, Shape); 1] = [(result.dtype, result.shape.clone())];
        let factors = prim.factors(types, &results);
        let mut axes = SubAxes::new();
        for l in (0..factors.loops.len()).filter(|l| factors.kind(*l) == FactorKind::Reduction) {
            let mut split: Option<SubAxes> = None;
            for (input, dims) in e.inputs.iter().zip(&factors.operands) {
                let Some(d) = dims.iter().position(|d| d.loops.contains(&l)) else { continue };
                let Input::Var(x) = input else { continue };
                if dims[d].loops.len() > 1 || dims[d].map != DimMap::Identity {
                    return None;
                }
                let own = self.program.vars[x.index()].placement.as_ref();
                let own = own.and_then(|p| p.dims.get(d)).cloned().unwrap_or_default();
                if split.as_ref().is_some_and(|other| *other != own) {
                    return None;
                }
                split = Some(own);
            }
            axes.extend(split.unwrap_or_default());
        }
        Some(in_device_order(axes))
    }
}

/// Returns the number of times that equations and results read each variable.
fn count_uses(program: &Program) -> Vec<usize> {
    let mut uses = vec![0; program.vars.len()];
    let inputs = program.equations.iter().flat_map(|e| &e.inputs).chain(&program.outputs);
    for input in inputs {
        if let Input::Var(v) = input {
            uses[v.index()] += 1;
        }
    }
    uses
}
