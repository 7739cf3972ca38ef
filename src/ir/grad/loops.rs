//! Differentiates loops: `scan`, `fori_loop`, and `while_loop`.
//!
//! In reverse mode, a loop with a fixed trip count becomes a forward loop and a linear loop
//! (`while_loop` is differentiated in forward mode only). The forward loop stacks the residuals of
//! all iterations, and the linear loop reads one slice of them in each iteration, in the same
//! order. Residuals that depend only on loop-invariant operands are computed once, before the
//! linear loop. The iteration number and slices of operands are passed to the linear loop directly.
//! `backward_loop.rs` transposes the linear loop.
//!
//! A carry has a tangent (or cotangent) if its initial value or its next value has one. These
//! carries are found by differentiating the body repeatedly, until no carry is added.

use super::jvp::{JvpOp, PrimalsAndTangents, Style, jvp};
use super::linearize::{Linearized, linearize};
use super::util::{as_var, count_set, fill_missing_with_zeros, new_input, stacked_type};
use super::{Jvp, call::spread_tangents};
use crate::core::{ArrayType, DType, Error, Result};
use crate::ir::program::dce::{dce, select, used_inputs};
use crate::ir::program::{Builder, Control, Input, Loop, LoopOperands, Program, Tangents, Value, Var};
use std::sync::Arc;

/// Marks the loop-invariant operands, carries and slices that have tangents.
type ActiveParts = LoopOperands<bool>;

impl ActiveParts {
    /// Returns the flags of the body's inputs, in order.
    ///
    /// The iteration number has no tangent.
    fn body_inputs(&self) -> Vec<bool> {
        self.clone().into_body_inputs(false)
    }
    /// Splits a list of the tangents that exist by kind of operand.
    fn split_tangents<T: Clone>(&self, tangents: &[T]) -> LoopOperands<T> {
        let (fixed, rest) = tangents.split_at(count_set(&self.fixed));
        let (carry, xs) = rest.split_at(count_set(&self.carry));
        LoopOperands { fixed: fixed.to_vec(), carry: carry.to_vec(), xs: xs.to_vec() }
    }
    /// Marks the carries whose next value has a tangent, and returns true if this marked a new one.
    fn grow_carries(&mut self, next: &[bool]) -> bool {
        let mut grown = false;
        for (have, next) in self.carry.iter_mut().zip(next) {
            grown |= *next && !*have;
            *have |= next;
        }
        grown
    }
    /// Returns a flag for each result that is true if the result has a tangent.
    ///
    /// These are all active carries, whose next tangent may be zero, and the stacked results for
    /// which `has` is set.
    fn active_results(&self, has: &[bool]) -> Vec<bool> {
        [&self.carry, &has[self.carry.len()..]].concat()
    }
}

/// Returns the initial tangents of the active carries, with zeros where there is none.
fn initial_tangents(
    b: &mut Builder,
    l: &Loop,
    active: &ActiveParts,
    ins: &[Value],
    tangents: &[Option<Value>],
) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for (k, _) in active.carry.iter().enumerate().filter(|(_, a)| **a) {
        all.push(match &tangents[l.fixed + k] {
            Some(t) => t.clone(),
            None => b.zeros(&ins[l.fixed + k].ty)?,
        });
    }
    Ok(all)
}

/// Differentiates a loop with a known number of iterations.
pub(super) fn jvp_loop(b: &mut Builder, l: &Loop, op: JvpOp<'_>) -> Result<PrimalsAndTangents> {
    let JvpOp { tangents, style, .. } = op;
    let has: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let mut active = l.split_operands(&has);
    match style {
        Style::Fused => loop {
            let jvp = jvp(&l.body, &active.body_inputs(), style)?;
            if !active.grow_carries(&jvp.tangents[..l.carry]) {
                return jvp_fused(b, l, &active, jvp, op);
            }
        },
        Style::Split => loop {
            let lin = linearize(&l.body, &active.body_inputs())?;
            if !active.grow_carries(&lin.tangents[..l.carry]) {
                return jvp_split(b, l, &active, &lin, op);
            }
        },
    }
}

/// Emits one loop for primals and tangents.
fn jvp_fused(
    b: &mut Builder,
    l: &Loop,
    active: &ActiveParts,
    jvp: Jvp,
    op: JvpOp<'_>,
) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, types, .. } = op;
    let out_types = l.body.output_types();
    let has = active.active_results(&jvp.tangents);
    let all = [out_types.clone(), select(&out_types, &has)].concat();
    let there = [vec![true; out_types.len()], select(&jvp.tangents, &has)].concat();
    let mut program = fill_missing_with_zeros(&jvp.program, &there, &all)?;
    // Inputs and results are ordered by kind, with the primals of each kind before the tangents.
    let (values, tans) = program.inputs.split_at(l.body.inputs.len());
    let ((index, values), tans) = (l.split_body_inputs(values), active.split_tangents(tans));
    let new = Loop { fixed: l.fixed + tans.fixed.len(), carry: l.carry + tans.carry.len(), ..l.clone() };
    let (outs, out_tans) = program.outputs.split_at(out_types.len());
    let (next_tans, ys_tans) = out_tans.split_at(tans.carry.len());
    program.outputs = [&outs[..l.carry], next_tans, &outs[l.carry..], ys_tans].concat();
    program.inputs = values.concat(tans).into_body_inputs(index);

    let there = |tangents: Tangents| tangents.into_iter().flatten().collect();
    let given = l.split_operands(tangents);
    let carry = initial_tangents(b, l, active, ins, tangents)?;
    let given = LoopOperands { fixed: there(given.fixed), carry, xs: there(given.xs) };
    let operands = l.split_operands(ins).concat(given).into_vec();
    let (carry_types, ys_types) = types.split_at(l.carry);
    let (has_carry, has_ys) = has.split_at(l.carry);
    let result_types =
        [carry_types, &select(carry_types, has_carry), ys_types, &select(ys_types, has_ys)].concat();
    let control = Control::Loop(Loop { body: Arc::new(program), ..new });
    let mut outs = b.control(control, &operands, result_types);
    let mut ys = outs.split_off(new.carry);
    let ys_tans = ys.split_off(ys_types.len());
    let carry_tans = outs.split_off(l.carry);
    outs.extend(ys);
    Ok((outs, spread_tangents(&has, carry_tans.into_iter().chain(ys_tans))))
}

/// The source of a residual of the loop body in the linear loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopResidual {
    /// The residual is the iteration number.
    Step,
    /// The residual is this loop-invariant operand.
    Fixed(usize),
    /// The residual is loop-invariant, and has this index among those that are computed once.
    Invariant(usize),
    /// The residual is a slice of this operand.
    Slice(usize),
    /// The residual is a slice of this stacked result.
    Stacked(usize),
    /// The residual is stacked in addition to the results, at this index among the extra ones.
    Extra(usize),
}

/// Returns the source of each residual, the loop-invariant residuals, and the stacked ones.
fn classify_residuals(l: &Loop, lin: &Linearized) -> (Vec<LoopResidual>, Vec<Input>, Vec<Input>) {
    let program = &lin.forward;
    let mut constant = vec![false; program.vars.len()];
    program.inputs[1..1 + l.fixed].iter().for_each(|v| constant[v.index()] = true);
    for e in &program.equations {
        if e.inputs.iter().filter_map(as_var).all(|v| constant[v.index()]) {
            e.outputs.iter().for_each(|v| constant[v.index()] = true);
        }
    }
    let ys = &program.outputs[l.carry..l.body.outputs.len()];
    let (mut once, mut own) = (Vec::new(), Vec::new());
    let number = |list: &mut Vec<Input>, r: Input| {
        list.push(r);
        list.len() - 1
    };
    let kept = lin.residuals().iter().map(|r| {
        let at = program.inputs.iter().position(|v| Input::Var(*v) == *r);
        match at {
            Some(0) => LoopResidual::Step,
            Some(i) if i <= l.fixed => LoopResidual::Fixed(i - 1),
            Some(i) if i > l.fixed + l.carry => LoopResidual::Slice(i - 1),
            _ if as_var(r).is_some_and(|v| constant[v.index()]) => {
                LoopResidual::Invariant(number(&mut once, *r))
            }
            _ => match ys.iter().position(|y| y == r) {
                Some(k) => LoopResidual::Stacked(k),
                None => LoopResidual::Extra(number(&mut own, *r)),
            },
        }
    });
    (kept.collect(), once, own)
}

/// Emits a loop for primals and residuals, and a linear loop for tangents.
fn jvp_split(
    b: &mut Builder,
    l: &Loop,
    active: &ActiveParts,
    lin: &Linearized,
    op: JvpOp<'_>,
) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, types, .. } = op;
    let n = l.body.outputs.len();
    let out_types = l.body.output_types();
    let (kept, once, own) = classify_residuals(l, lin);
    let results = &lin.forward.outputs[..n];

    // The forward loop computes the results and stacks the extra residuals.
    let own_types: Vec<ArrayType> =
        own.iter().map(|r| stacked_type(&lin.forward.input_type(r), l.length)).collect();
    let outputs = [results, &own].concat();
    let steps = dce(&Program { outputs, ..lin.forward.clone() });
    let control = Control::Loop(Loop { body: Arc::new(steps), ..l.clone() });
    let mut outs = b.control(control, ins, [types, &own_types].concat());
    let own = outs.split_off(n);

    // Loop-invariant residuals are computed once.
    let mut without_effects = lin.forward.clone();
    // Equations without results print, which must happen in each iteration.
    without_effects.equations.retain(|e| !e.outputs.is_empty());
    let before = dce(&Program { outputs: once, ..without_effects });
    debug_assert!(
        used_inputs(&before).iter().enumerate().all(|(i, used)| !used || (1..=l.fixed).contains(&i))
    );
    let nothing = Value::literal(DType::I32, 0);
    let fixed_only: Vec<Value> = (0..before.inputs.len())
        .map(|i| if (1..=l.fixed).contains(&i) { ins[i - 1].clone() } else { nothing.clone() })
        .collect();
    let once = b.inline(&before, &fixed_only);

    // Inputs of the linear loop are ordered by kind, with the residuals of each kind before the
    // tangents.
    let has = active.active_results(&lin.tangents);
    let tangent_types = select(&out_types, &has);
    let mut program = fill_missing_with_zeros(&lin.linear, &select(&lin.tangents, &has), &tangent_types)?;
    let (residuals, tans) = program.inputs.split_at(lin.residuals);
    let (residuals, tans) = (residuals.to_vec(), tans.to_vec());
    let mut tans = tans.into_iter();
    let step = kept.iter().position(|k| *k == LoopResidual::Step).map(|k| residuals[k]);
    let step = step.unwrap_or_else(|| new_input(&mut program, DType::I32.array_type([])));
    let mut fixed: Vec<(Var, Value)> = Vec::new();
    let mut xs: Vec<(Var, Value)> = Vec::new();
    for (k, v) in kept.iter().zip(&residuals) {
        match k {
            LoopResidual::Step => {}
            LoopResidual::Fixed(i) => fixed.push((*v, ins[*i].clone())),
            LoopResidual::Invariant(i) => fixed.push((*v, once[*i].clone())),
            LoopResidual::Slice(i) => xs.push((*v, ins[*i].clone())),
            LoopResidual::Stacked(i) => xs.push((*v, outs[l.carry + i].clone())),
            LoopResidual::Extra(i) => xs.push((*v, own[*i].clone())),
        }
    }
    let fixed_tans: Vec<Var> = tans.by_ref().take(count_set(&active.fixed)).collect();
    fixed.extend(fixed_tans.into_iter().zip(tangents[..l.fixed].iter().flatten().cloned()));
    let carry: Vec<(Var, Value)> = tans
        .by_ref()
        .take(count_set(&active.carry))
        .zip(initial_tangents(b, l, active, ins, tangents)?)
        .collect();
    xs.extend(tans.zip(tangents[l.fixed + l.carry..].iter().flatten().cloned()));
    let new = Loop { fixed: fixed.len(), carry: carry.len(), ..l.clone() };
    let (vars, operands): (Vec<Var>, Vec<Value>) = fixed.into_iter().chain(carry).chain(xs).unzip();
    program.inputs = std::iter::once(step).chain(vars).collect();
    let control = Control::Loop(Loop { body: Arc::new(program), ..new });
    let tans = b.control(control, &operands, select(types, &has));
    Ok((outs, spread_tangents(&has, tans)))
}

/// Returns the error for reverse mode through a loop whose number of iterations is unknown.
pub(super) fn while_not_reversible(b: &Builder) -> Error {
    let fault = fault!(
        Unsupported,
        "the gradient of a loop needs the number of its steps beforehand, which a while loop does not have"
    )
    .help("give a maximum: `while_loop_with(init, cond, body, WhileOptions::default().max_steps(100))`")
    .help("or use fori_loop with fixed bounds, or scan")
    .help("forward mode (jvp) goes through while loops");
    b.error(fault, "while_loop", &[])
}

/// Differentiates a `while` loop, in forward mode only.
pub(super) fn jvp_while(b: &mut Builder, control: &Control, op: JvpOp<'_>) -> Result<PrimalsAndTangents> {
    let JvpOp { ins, tangents, types, style } = op;
    let Control::While { cond, body, cond_fixed, body_fixed } = control else {
        unreachable!("called for while loops only")
    };
    // only the loop-invariant operands of the body and the carries affect the results
    let (cf, start) = (*cond_fixed, cond_fixed + body_fixed);
    let fixed: Vec<bool> = tangents[cf..start].iter().map(Option::is_some).collect();
    let mut carry: Vec<bool> = tangents[start..].iter().map(Option::is_some).collect();
    if !fixed.iter().chain(&carry).any(|a| *a) {
        let outs = b.control(control.clone(), ins, types.to_vec());
        return Ok((outs, vec![None; types.len()]));
    }
    if style == Style::Split {
        return Err(while_not_reversible(b));
    }
    let jvp = loop {
        let jvp = jvp(body, &[&fixed[..], &carry].concat(), style)?;
        let more: Vec<bool> = carry.iter().zip(&jvp.tangents).map(|(a, b)| *a || *b).collect();
        if more == carry {
            break jvp;
        }
        carry = more;
    };
    let out_types = body.output_types();
    let there = [vec![true; out_types.len()], select(&jvp.tangents, &carry)].concat();
    let all = [out_types.clone(), select(&out_types, &carry)].concat();
    let mut program = fill_missing_with_zeros(&jvp.program, &there, &all)?;
    let (values, tans) = program.inputs.split_at(body.inputs.len());
    let (fixed_tans, carry_tans) = tans.split_at(count_set(&fixed));
    let inputs = [&values[..*body_fixed], fixed_tans, &values[*body_fixed..], carry_tans].concat();
    let n_fixed = body_fixed + fixed_tans.len();
    program.inputs = inputs;
    // The condition takes the tangents too, but does not read them.
    let mut test = Program::clone(cond);
    for ty in select(&out_types, &carry) {
        let v = new_input(&mut test, ty);
        test.inputs.push(v);
    }
    let mut operands: Vec<Value> = ins[..start].to_vec();
    operands.extend(tangents[cf..start].iter().flatten().cloned());
    operands.extend(ins[start..].iter().cloned());
    for (k, _) in carry.iter().enumerate().filter(|(_, a)| **a) {
        operands.push(match &tangents[start + k] {
            Some(t) => t.clone(),
            None => b.zeros(&ins[start + k].ty)?,
        });
    }
    let new =
        Control::While { cond: Arc::new(test), body: Arc::new(program), cond_fixed: cf, body_fixed: n_fixed };
    let mut outs = b.control(new, &operands, [types, &select(types, &carry)].concat());
    let tans = outs.split_off(types.len());
    Ok((outs, spread_tangents(&carry, tans)))
}
