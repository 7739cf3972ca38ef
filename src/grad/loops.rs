//! Derivatives of loops.
//!
//! The linear loop of a loop runs the same way over the residuals of each step, which the forward loop stacks. What depends on
//! nothing but fixed inputs is not stacked but computed once outside; what a step is given anyway (its number, a slice) is given
//! to the linear loop's step too. The transpose runs the other way: its carries are the carries' cotangents and the sums of those of
//! fixed inputs. Which carries have tangents (cotangents) at all is found by repeating from those that have one at first.

use super::Jvp;
use super::linearize::{Linearized, linearize};
use super::modes::placed;
use super::push::{Duals, Style, forward};
use super::surgery::{cotangent_types, filled, input_types, new_input, stacked, var};
use super::transpose::{Leave, Transposed, Turned, body, transpose};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::ops::build::cotangent_type;
use crate::program::dce::{chosen, dce, used};
use crate::program::{Builder, Control, Input, Loop, Parts, Program, Value, Var};
use crate::types::{ArrayType, DType};
use std::sync::Arc;

/// Which fixed inputs, carries and slices have tangents.
type Active = Parts<bool>;

impl Active {
    /// For the body's inputs: the step's number has none.
    fn inputs(&self) -> Vec<bool> {
        self.clone().step(false)
    }
    /// The tangents of those that have one, by kind.
    fn of_each<T: Clone>(&self, tangents: &[T]) -> Parts<T> {
        let (fixed, rest) = tangents.split_at(count(&self.fixed));
        let (carry, xs) = rest.split_at(count(&self.carry));
        Parts { fixed: fixed.to_vec(), carry: carry.to_vec(), xs: xs.to_vec() }
    }
    /// One more round: carries whose next value has a tangent have one. Whether any is new.
    fn grow(&mut self, next: &[bool]) -> bool {
        let mut grown = false;
        for (have, next) in self.carry.iter_mut().zip(next) {
            grown |= *next && !*have;
            *have |= next;
        }
        grown
    }
    /// The results that have tangents: all active carries (their next tangent may be zero), and what is stacked.
    fn results(&self, has: &[bool]) -> Vec<bool> {
        [&self.carry, &has[self.carry.len()..]].concat()
    }
}

/// The first tangents of the active carries: zeros where there is none at first.
fn first(
    b: &mut Builder,
    l: &Loop,
    active: &Active,
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

pub(super) fn run(
    b: &mut Builder,
    l: &Loop,
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
    style: Style,
) -> Result<Duals> {
    let has: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let mut active = l.parts(&has);
    match style {
        Style::Together => loop {
            let jvp = forward(&l.body, &active.inputs(), style)?;
            if !active.grow(&jvp.tangents[..l.carry]) {
                return together(b, l, &active, jvp, ins, tangents, types);
            }
        },
        Style::Apart => loop {
            let lin = linearize(&l.body, &active.inputs())?;
            if !active.grow(&lin.tangents[..l.carry]) {
                return apart(b, l, &active, &lin, ins, tangents, types);
            }
        },
    }
}

fn together(
    b: &mut Builder,
    l: &Loop,
    active: &Active,
    jvp: Jvp,
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
) -> Result<Duals> {
    let out_types = l.body.output_types();
    let has = active.results(&jvp.tangents);
    let all = [out_types.clone(), chosen(&out_types, &has)].concat();
    let there = [vec![true; out_types.len()], chosen(&jvp.tangents, &has)].concat();
    let mut program = filled(&jvp.program, &there, &all)?;
    // values and tangents of each kind are side by side
    let (values, tans) = program.inputs.split_at(l.body.inputs.len());
    let ((index, values), tans) = (l.step_parts(values), active.of_each(tans));
    let new = Loop { fixed: l.fixed + tans.fixed.len(), carry: l.carry + tans.carry.len(), ..l.clone() };
    let (outs, out_tans) = program.outputs.split_at(out_types.len());
    let (next_tans, ys_tans) = out_tans.split_at(tans.carry.len());
    program.outputs = [&outs[..l.carry], next_tans, &outs[l.carry..], ys_tans].concat();
    program.inputs = values.beside(tans).step(index);

    let there = |tangents: Vec<Option<Value>>| tangents.into_iter().flatten().collect();
    let given = l.parts(tangents);
    let carry = first(b, l, active, ins, tangents)?;
    let given = Parts { fixed: there(given.fixed), carry, xs: there(given.xs) };
    let operands = l.parts(ins).beside(given).join();
    let (carry_types, ys_types) = types.split_at(l.carry);
    let (has_carry, has_ys) = has.split_at(l.carry);
    let result_types =
        [carry_types, &chosen(carry_types, has_carry), ys_types, &chosen(ys_types, has_ys)].concat();
    let control = Control::Loop(Loop { body: Arc::new(program), ..new });
    let mut outs = b.control(control, &operands, result_types);
    let mut ys = outs.split_off(new.carry);
    let ys_tans = ys.split_off(ys_types.len());
    let carry_tans = outs.split_off(l.carry);
    outs.extend(ys);
    Ok((outs, placed(&has, carry_tans.into_iter().chain(ys_tans))))
}

/// What a residual of a loop's body is to the linear loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The step's number.
    Step,
    /// The same at every step: an operand of the loop.
    Fixed(usize),
    /// The same at every step: computed once, its number among these.
    Once(usize),
    /// A slice of an operand.
    Slice(usize),
    /// A slice of what the loop stacks anyway.
    Stacked(usize),
    /// A slice of what the loop stacks for this: its number among these.
    Own(usize),
}

/// Where the linear loop has each residual from; the residuals that are the same at every step; those that are stacked.
fn kept(l: &Loop, lin: &Linearized) -> (Vec<Kept>, Vec<Input>, Vec<Input>) {
    let program = &lin.forward;
    let mut constant = vec![false; program.vars.len()];
    program.inputs[1..1 + l.fixed].iter().for_each(|v| constant[v.index()] = true);
    for e in &program.equations {
        if e.inputs.iter().filter_map(var).all(|v| constant[v.index()]) {
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
            Some(0) => Kept::Step,
            Some(i) if i <= l.fixed => Kept::Fixed(i - 1),
            Some(i) if i > l.fixed + l.carry => Kept::Slice(i - 1),
            _ if var(r).is_some_and(|v| constant[v.index()]) => Kept::Once(number(&mut once, *r)),
            _ => match ys.iter().position(|y| y == r) {
                Some(k) => Kept::Stacked(k),
                None => Kept::Own(number(&mut own, *r)),
            },
        }
    });
    (kept.collect(), once, own)
}

fn apart(
    b: &mut Builder,
    l: &Loop,
    active: &Active,
    lin: &Linearized,
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
) -> Result<Duals> {
    let n = l.body.outputs.len();
    let out_types = l.body.output_types();
    let (kept, once, own) = kept(l, lin);
    let results = &lin.forward.outputs[..n];

    // the values, and the residuals of each step stacked
    let own_types: Vec<ArrayType> =
        own.iter().map(|r| stacked(&lin.forward.input_type(r), l.length)).collect();
    let outputs = [results, &own].concat();
    let steps = dce(&Program { outputs, ..lin.forward.clone() });
    let control = Control::Loop(Loop { body: Arc::new(steps), ..l.clone() });
    let mut outs = b.control(control, ins, [types, &own_types].concat());
    let own = outs.split_off(n);

    // what is the same at every step
    let mut quiet = lin.forward.clone();
    // what has no results prints, once at each step
    quiet.equations.retain(|e| !e.outputs.is_empty());
    let before = dce(&Program { outputs: once, ..quiet });
    debug_assert!(used(&before).iter().enumerate().all(|(i, used)| !used || (1..=l.fixed).contains(&i)));
    let nothing = Value::literal(DType::I32, 0);
    let fixed_only: Vec<Value> = (0..before.inputs.len())
        .map(|i| if (1..=l.fixed).contains(&i) { ins[i - 1].clone() } else { nothing.clone() })
        .collect();
    let once = b.inline(&before, &fixed_only);

    // the linear loop: residuals and tangents of each kind are side by side
    let has = active.results(&lin.tangents);
    let tangent_types = chosen(&out_types, &has);
    let mut program = filled(&lin.linear, &chosen(&lin.tangents, &has), &tangent_types)?;
    let (residuals, tans) = program.inputs.split_at(lin.residuals);
    let (residuals, tans) = (residuals.to_vec(), tans.to_vec());
    let mut tans = tans.into_iter();
    let step = kept.iter().position(|k| *k == Kept::Step).map(|k| residuals[k]);
    let step = step.unwrap_or_else(|| new_input(&mut program, DType::I32.of([])));
    let mut fixed: Vec<(Var, Value)> = Vec::new();
    let mut xs: Vec<(Var, Value)> = Vec::new();
    for (k, v) in kept.iter().zip(&residuals) {
        match k {
            Kept::Step => {}
            Kept::Fixed(i) => fixed.push((*v, ins[*i].clone())),
            Kept::Once(i) => fixed.push((*v, once[*i].clone())),
            Kept::Slice(i) => xs.push((*v, ins[*i].clone())),
            Kept::Stacked(i) => xs.push((*v, outs[l.carry + i].clone())),
            Kept::Own(i) => xs.push((*v, own[*i].clone())),
        }
    }
    let fixed_tans: Vec<Var> = tans.by_ref().take(count(&active.fixed)).collect();
    fixed.extend(fixed_tans.into_iter().zip(tangents[..l.fixed].iter().flatten().cloned()));
    let carry: Vec<(Var, Value)> =
        tans.by_ref().take(count(&active.carry)).zip(first(b, l, active, ins, tangents)?).collect();
    xs.extend(tans.zip(tangents[l.fixed + l.carry..].iter().flatten().cloned()));
    let new = Loop { fixed: fixed.len(), carry: carry.len(), ..l.clone() };
    let (vars, operands): (Vec<Var>, Vec<Value>) = fixed.into_iter().chain(carry).chain(xs).unzip();
    program.inputs = std::iter::once(step).chain(vars).collect();
    let control = Control::Loop(Loop { body: Arc::new(program), ..new });
    let tans = b.control(control, &operands, chosen(types, &has));
    Ok((outs, placed(&has, tans)))
}

fn count(flags: &[bool]) -> usize {
    flags.iter().filter(|f| **f).count()
}

/// The transpose of a linear loop: all its carries are tangents.
pub(super) fn turn(b: &mut Builder, l: &Loop, turned: &Turned<'_>) -> Result<Vec<Option<Value>>> {
    let mut is_linear = turned.is_linear();
    is_linear[l.fixed..l.fixed + l.carry].fill(true);
    let of_body = [&[false][..], &is_linear].concat();
    let given = turned.given();
    let mut carries = given[..l.carry].to_vec();
    let body_types = input_types(&l.body);
    let (fixed_linear, xs_linear) = (&is_linear[..l.fixed], &is_linear[l.fixed + l.carry..]);
    let n_fixed = count(fixed_linear);
    let back = loop {
        // sums for fixed inputs run as they come, and are made to fit once, behind the loop
        let leave = |i| if i <= l.fixed { Leave::AsTheyAre } else { Leave::Fitted };
        let back = transpose(&l.body, &of_body, &[&carries, &given[l.carry..]].concat(), leave)?;
        let reached = &back.reached[n_fixed..n_fixed + l.carry];
        if reached.iter().zip(&carries).all(|(r, c)| *c || !*r) {
            break back;
        }
        carries.iter_mut().zip(reached).for_each(|(c, r)| *c |= r);
    };
    let Transposed { program, reached } = back;
    let (fixed_reached, rest) = reached.split_at(n_fixed);
    let (carry_reached, xs_reached) = rest.split_at(l.carry);

    // the body: the step's number, known fixed inputs, cotangents of carries, sums for fixed inputs, known slices, slices of what
    // comes back for the stacked results
    let known = |flags: &[bool]| flags.iter().map(|f| !f).collect::<Vec<_>>();
    let fixed_known = chosen(&body_types[1..1 + l.fixed], &known(fixed_linear));
    let xs_known = chosen(&body_types[1 + l.fixed + l.carry..], &known(xs_linear));
    let carry_types = cotangent_types(&chosen(&body_types[1 + l.fixed..1 + l.fixed + l.carry], &carries));
    let sum_types = program.output_types()[..count(fixed_reached)].to_vec();
    let ys_types = cotangent_types(&chosen(&l.body.output_types()[l.carry..], &given[l.carry..]));
    let step_type = std::slice::from_ref(&body_types[0]);
    let (mut inner, ins) =
        body(&[step_type, &fixed_known, &carry_types, &sum_types, &xs_known, &ys_types].concat());
    let mut rest = ins.clone().into_iter();
    let mut take = |n: usize| rest.by_ref().take(n).collect::<Vec<Value>>();
    let (step, fixed_in, carry_in) = (take(1), take(fixed_known.len()), take(carry_types.len()));
    let (sums_in, xs_in, ys_in) = (take(sum_types.len()), take(xs_known.len()), take(ys_types.len()));
    // the transposed program reads its known inputs in the body's order, then the cotangents
    let outs = inner.inline(&program, &[step, fixed_in, xs_in, carry_in, ys_in].concat());
    let mut outs = outs.into_iter();
    let mut results = Vec::new();
    let fixed_cts: Vec<Value> = outs.by_ref().take(count(fixed_reached)).collect();
    let mut carry_cts = outs.by_ref().take(count(carry_reached));
    for ((has, ty), reached) in carries.iter().zip(&body_types[1 + l.fixed..]).zip(carry_reached) {
        let ct = if *reached { carry_cts.next() } else { None };
        if *has {
            results.push(match ct {
                Some(ct) => ct,
                None => inner.zeros(&cotangent_type(ty))?,
            });
        }
    }
    drop(carry_cts);
    for (sum, ct) in sums_in.iter().zip(&fixed_cts) {
        results.push(inner.accumulated(sum, ct)?);
    }
    let (n_carry, n_sums) = (carry_types.len(), sum_types.len());
    results.extend(outs);
    let new = Loop {
        body: Arc::new(dce(&inner.finish(&results))),
        reverse: !l.reverse,
        fixed: fixed_known.len(),
        carry: n_carry + n_sums,
        ..l.clone()
    };

    // its operands, in the same order
    let of = |range: std::ops::Range<usize>| turned.operands[range].iter().flatten().cloned();
    let mut operands: Vec<Value> = of(0..l.fixed).collect();
    for ((has, ct), ty) in carries.iter().zip(turned.cts).zip(&body_types[1 + l.fixed..]) {
        if *has {
            operands.push(match ct {
                Some(ct) => ct.clone(),
                None => b.zeros(&cotangent_type(ty))?,
            });
        }
    }
    for ty in &sum_types {
        operands.push(b.zeros(ty)?);
    }
    operands.extend(of(l.fixed + l.carry..turned.operands.len()));
    operands.extend(turned.cts[l.carry..].iter().flatten().cloned());
    let xs_types = chosen(&chosen(&turned.types[l.fixed + l.carry..], xs_linear), xs_reached);
    let types = [carry_types, sum_types, cotangent_types(&xs_types)].concat();
    let mut outs = b.control(Control::Loop(new), &operands, types);
    let of_xs = outs.split_off(n_carry + n_sums);
    let of_fixed = outs.split_off(n_carry);

    // back to the operands
    let mut of_fixed = placed(fixed_reached, of_fixed).into_iter();
    let of_carry = placed(&carries, outs);
    let mut of_xs = placed(xs_reached, of_xs).into_iter();
    let next = |linear: &bool, list: &mut dyn Iterator<Item = Option<Value>>| {
        if *linear { list.next().flatten() } else { None }
    };
    let mut all: Vec<Option<Value>> = fixed_linear.iter().map(|f| next(f, &mut of_fixed)).collect();
    all.extend(of_carry);
    all.extend(xs_linear.iter().map(|f| next(f, &mut of_xs)));
    Ok(all)
}

/// The refusal of reverse mode for loops whose number of steps is not known beforehand.
pub(super) fn no_way_back(b: &Builder) -> Error {
    let fault = Fault::new(
        ErrorKind::Unsupported,
        "the gradient of a loop needs the number of its steps beforehand, which a while loop does not have",
    )
    .help("use fori_loop with fixed bounds, or scan")
    .help("forward mode (jvp) goes through while loops");
    b.refuse(fault, "while_loop", &[])
}

pub(super) fn run_while(
    b: &mut Builder,
    control: &Control,
    ins: &[Value],
    tangents: &[Option<Value>],
    types: &[ArrayType],
    style: Style,
) -> Result<Duals> {
    let Control::While { cond, body, cond_fixed, body_fixed } = control else {
        unreachable!("called for while loops only")
    };
    // only the body's own inputs and the carries lead to results that have tangents
    let (cf, start) = (*cond_fixed, cond_fixed + body_fixed);
    let fixed: Vec<bool> = tangents[cf..start].iter().map(Option::is_some).collect();
    let mut carry: Vec<bool> = tangents[start..].iter().map(Option::is_some).collect();
    if !fixed.iter().chain(&carry).any(|a| *a) {
        let outs = b.control(control.clone(), ins, types.to_vec());
        return Ok((outs, vec![None; types.len()]));
    }
    if style == Style::Apart {
        return Err(no_way_back(b));
    }
    let jvp = loop {
        let jvp = forward(body, &[&fixed[..], &carry].concat(), style)?;
        let more: Vec<bool> = carry.iter().zip(&jvp.tangents).map(|(a, b)| *a || *b).collect();
        if more == carry {
            break jvp;
        }
        carry = more;
    };
    let out_types = body.output_types();
    let there = [vec![true; out_types.len()], chosen(&jvp.tangents, &carry)].concat();
    let all = [out_types.clone(), chosen(&out_types, &carry)].concat();
    let mut program = filled(&jvp.program, &there, &all)?;
    let (values, tans) = program.inputs.split_at(body.inputs.len());
    let (fixed_tans, carry_tans) = tans.split_at(count(&fixed));
    let inputs = [&values[..*body_fixed], fixed_tans, &values[*body_fixed..], carry_tans].concat();
    let n_fixed = body_fixed + fixed_tans.len();
    program.inputs = inputs;
    // the condition is handed the tangents too, and reads none
    let mut test = Program::clone(cond);
    for ty in chosen(&out_types, &carry) {
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
    let mut outs = b.control(new, &operands, [types, &chosen(types, &carry)].concat());
    let tans = outs.split_off(types.len());
    Ok((outs, placed(&carry, tans)))
}
