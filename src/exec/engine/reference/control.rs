//! Control steps of the reference engine.

use super::{Values, num_partials, ravel, run, slot_value, slot_values, unravel, value::ReferenceValue};
use crate::core::{DType, Scalar, SubAxes};
use crate::partition::{Slot, SpmdProgram, Step};
use std::rc::Rc;

/// The results of a step, with their slots.
type StepResults = Vec<(Slot, Rc<ReferenceValue>)>;

/// Runs a loop with a known trip count.
pub(super) fn run_loop(program: &SpmdProgram, step: &Step, values: &Values, flushes: bool) -> StepResults {
    let Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } = step else {
        return Vec::new();
    };
    let mut carries = slot_values(values, carry);
    let (fixed, xs) = (slot_values(values, fixed), slot_values(values, xs));
    let mut stacks: Vec<Vec<Rc<ReferenceValue>>> = vec![Vec::new(); ys.len()];
    for k in 0..*length {
        let k = if *reverse { length - 1 - k } else { k };
        let number = Rc::new(ReferenceValue::scalar(DType::I32, Scalar::Int((start + k as i64).into())));
        let mut args = vec![number];
        args.extend(fixed.iter().cloned());
        args.append(&mut carries);
        args.extend(xs.iter().map(|x| Rc::new(x.slice(k))));
        carries = run(body, args, flushes);
        for (stack, y) in stacks.iter_mut().zip(carries.split_off(out.len())) {
            stack.push(y);
        }
    }
    let stacked = stacks.into_iter().zip(ys).map(|(mut s, slot)| {
        if *reverse {
            s.reverse();
        }
        let stored = &program.slots[*slot];
        (*slot, Rc::new(ReferenceValue::stack(stored.dtype, stored.shape.clone(), num_partials(stored), &s)))
    });
    let stacked: Vec<_> = stacked.collect();
    out.iter().copied().zip(carries).chain(stacked).collect()
}

/// Runs a loop that goes on while a condition holds.
pub(super) fn run_while(step: &Step, values: &Values, flushes: bool) -> StepResults {
    let Step::While { cond, body, cond_fixed, body_fixed, carry, out } = step else { return Vec::new() };
    let mut carries = slot_values(values, carry);
    let with = |fixed: &[Slot], carries: &[Rc<ReferenceValue>]| {
        slot_values(values, fixed).into_iter().chain(carries.iter().cloned()).collect::<Vec<_>>()
    };
    let goes_on =
        |test: &ReferenceValue| (0..test.shape.num_elements()).any(|k| test.element(k).to_i128() != 0);
    while goes_on(&run(cond, with(cond_fixed, &carries), flushes)[0]) {
        carries = run(body, with(body_fixed, &carries), flushes);
    }
    out.iter().copied().zip(carries).collect()
}

/// Runs the branch that a selector chooses.
pub(super) fn run_branch(program: &SpmdProgram, step: &Step, values: &Values, flushes: bool) -> StepResults {
    let Step::Branch { selector: which, branches, ins, out } = step else { return Vec::new() };
    let choice = slot_value(values, *which);
    let last = branches.len() as i128 - 1;
    let number = |x: Scalar| match x {
        Scalar::Bool(b) => usize::from(!b),
        x => x.to_i128().clamp(0, last) as usize,
    };
    let args = slot_values(values, ins);
    if choice.shape.rank() == 0 {
        let made = run(&branches[number(choice.element(0))], args, flushes);
        return out.iter().copied().zip(made).collect();
    }
    // each device chooses its own branch: run all branches, then take each device's block
    // of the results of its branch
    let results: Vec<_> = branches.iter().map(|b| run(b, args.clone(), flushes)).collect();
    let axes: Vec<SubAxes> = program.slots[*which].layout.dims.iter().map(|d| d.sub_axes.clone()).collect();
    out.iter()
        .enumerate()
        .map(|(r, slot)| {
            let stored = &program.slots[*slot];
            // the dimension of the result that each axis of the selector shards
            let places: Vec<usize> = axes
                .iter()
                .map(|a| stored.layout.dims.iter().position(|d| d.sub_axes == *a).unwrap_or(0))
                .collect();
            let mut made = ReferenceValue::empty(stored.dtype, stored.shape.clone());
            let n = stored.shape.num_elements();
            for k in 0..n * num_partials(stored) {
                let index = unravel(k % n, &stored.shape);
                let at = ravel(places.iter().map(|d| index[*d]), &choice.shape);
                made.push(results[number(choice.element(at))][r].element(k));
            }
            (*slot, Rc::new(made))
        })
        .collect()
}
