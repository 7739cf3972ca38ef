//! `while_loop`: loops that run while a condition holds.
//!
//! In per-device code, devices may leave a loop at different iterations. Each of them runs its own
//! loop then, so the loop must not have collectives over the axes along which its condition varies.

use super::branch::{predicate, varying_with};
use super::unify::{CarryNames, carry_name, carry_types};
use super::{RecordedClosure, poison_tree, tree_of, types_of};
use crate::api::array::{Array, Operand};
use crate::api::trace::{apply_control, apply1};
use crate::api::transform::jit::check_errors;
use crate::api::tree::{Args, NamedSizes, NextCarry, Output, Path, Tree, collect, mismatch};
use crate::core::{ArrayType, Axes, DType, Error, ErrorKind, Fault, Result};
use crate::ir::ops::collective::{CollectiveGroup, Pcast, PcastTo};
use crate::ir::program::{CallSite, Control, collective_over};
use std::sync::Arc;

/// Runs `body(carry)` while `cond(&carry)` is true, and returns the last carry.
///
/// `body` takes the carry by value, `cond` by reference.
///
/// Forward mode ([`jvp`](crate::jvp)) goes through the loop. Reverse mode needs a maximum number of
/// steps: [`while_loop_with`](crate::while_loop_with).
///
/// In a `shard_map` body, devices may leave the loop at different iterations if the loop has no
/// collective over their axes. Each device then runs its own loop, without communication. If the
/// condition varies over an axis, the carries vary over it too, as the results of
/// [`cond`](crate::cond()) do.
///
/// ```
/// use atmesh::prelude::*;
/// let (_, n) = while_loop((Array::from(100), Array::from(0)), |(x, _)| x.gt(1),
///     |(x, n)| (x / 2, n + 1));
/// assert_eq!(n.item::<i32>()?, 6);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn while_loop<A: Args, P: Operand, R: Output<Tree: NextCarry<A::Owned>>>(
    init: A,
    cond: impl Fn(&A::Owned) -> P,
    body: impl Fn(A::Owned) -> R,
) -> A::Owned {
    let call = CallSite::here("while_loop");
    let init = init.into_tree();
    let cond = |x: &A::Owned| Ok(predicate(cond(x)));
    let body = |x| body(x).into_result().map(NextCarry::into_carry);
    let out = NamedSizes::of(&init, "carry").check(call);
    let out = out.and_then(|()| run_while(&init, &cond, &body, (call, None)));
    out.unwrap_or_else(|e| poison_tree(&init, e))
}

/// Runs a loop whose carry is a tree. `call` also says which leaves of the tree the user did not
/// write.
pub(super) fn run_while<T: Tree>(
    init: &T,
    cond: &dyn Fn(&T) -> Result<Array>,
    body: &dyn Fn(T) -> Result<T>,
    (call, hidden): CarryNames<'_>,
) -> Result<T> {
    check_errors(init)?;
    let mut before = types_of(init);
    let (test, holds) = loop {
        let test = RecordedClosure::record(call, &before, |leaves| cond(&tree_of(init, leaves)));
        let test = match test {
            Ok(test) => test,
            // trace the body too, so that its errors are also reported
            Err(e) => {
                let step = RecordedClosure::record(call, &before, |leaves| body(tree_of(init, leaves)));
                return Err(Error::combine(std::iter::once(e).chain(step.err())));
            }
        };
        let holds = test.program.output_types().swap_remove(0);
        check_condition(&holds, call)?;
        check_states(&holds, init, &before, (call, hidden))?;
        // devices that leave the loop at different iterations have different carries
        let varying: Vec<ArrayType> = before.iter().map(|ty| varying_with(ty.clone(), &holds)).collect();
        if varying == before {
            break (test, holds);
        }
        before = varying;
    };
    let next = |leaves: Vec<Array>| Ok(cast_varying(&body(tree_of(init, leaves))?, &holds, call));
    let step = RecordedClosure::record(call, &before, next)?;
    if let Some(how) = init.differs(&step.out, &mut Path::named()) {
        return Err(mismatch("the carry before the body and after it", &how, call));
    }
    let again =
        |types: &[ArrayType]| Some(RecordedClosure::record(call, types, next).ok()?.program.output_types());
    let types = carry_types((call, hidden), init, &before, &step.program, &again)?;
    let programs = [&test.program, &step.program];
    if let Some((name, axes)) = programs.into_iter().find_map(|p| collective_over(p, &holds.varying)) {
        let message = format!(
            "devices along {axes} may leave the loop at different steps, and it has {name} over {axes}"
        );
        let fault = Fault::new(ErrorKind::Varying, message)
            .help(format!("continue while any device does: `.pmax({})`", axes.quoted()));
        return Err(call.error(fault, || vec![holds.to_string()]));
    }
    let init = cast_varying(init, &holds, call);
    // loop-invariant inputs come first
    let (mut cond_program, mut body_program) = (test.program, step.program);
    cond_program.inputs.rotate_right(test.captures.len());
    body_program.inputs.rotate_right(step.captures.len());
    let control = Control::While {
        cond: Arc::new(cond_program),
        body: Arc::new(body_program),
        cond_fixed: test.captures.len(),
        body_fixed: step.captures.len(),
    };
    let inputs: Vec<Array> = test.captures.into_iter().chain(step.captures).chain(collect(&init)).collect();
    Ok(tree_of(&init, apply_control(control, &inputs, types, call)?))
}

/// Checks that a condition is one bool.
pub(super) fn check_condition(holds: &ArrayType, call: CallSite<'_>) -> Result<()> {
    let fault = if holds.rank() != 0 {
        fault!(Shape, "the condition is {holds}: it must be one bool")
            .help("reduce it to one: `.all(..)`, `.any(..)`")
    } else if holds.dtype != DType::Bool {
        fault!(Dtype, "the condition is {holds}: it must be bool[]").help("compare it: `.gt(0)`, `.ne(0)`")
    } else {
        return Ok(());
    };
    Err(call.error(fault, || vec![holds.to_string()]))
}

/// Checks that no carry is unreduced or reduced over an axis along which the condition varies.
fn check_states<T: Tree>(
    holds: &ArrayType,
    init: &T,
    before: &[ArrayType],
    (call, hidden): CarryNames<'_>,
) -> Result<()> {
    let mut errors = Vec::new();
    let mut types = before.iter();
    init.visit(&mut Path::named(), &mut |path, _| {
        let Some(ty) = types.next() else { return };
        let common = |set: &Axes| -> Axes { set.iter().filter(|a| holds.varying.contains(*a)).collect() };
        let (parts, reduced) = (common(ty.spec.unreduced_axes()), common(ty.spec.reduced_axes()));
        let (axes, help) = if !parts.is_empty() {
            let help = format!("sum it before the loop: `.psum({})`", parts.quoted());
            (parts, help)
        } else if !reduced.is_empty() {
            let help = format!("make it vary before the loop: `.pvary({})`", reduced.quoted());
            (reduced, help)
        } else {
            return;
        };
        let message = format!(
            "{} is {ty}, and devices along {axes} may leave the loop at different steps",
            carry_name(path, hidden)
        );
        let fault = Fault::new(ErrorKind::Varying, message).help(help);
        errors.push(call.error(fault, || vec![ty.to_string(), holds.to_string()]));
    });
    if errors.is_empty() { Ok(()) } else { Err(Error::combine(errors)) }
}

/// Casts the leaves of a carry so that they vary over the axes along which the condition varies.
pub(super) fn cast_varying<T: Tree>(tree: &T, holds: &ArrayType, call: CallSite<'_>) -> T {
    tree.rebuild(&mut Path::unnamed(), &mut |_, a| {
        let (Ok(ty), Some(mesh)) = (a.type_ref(), &holds.mesh) else { return a.clone() };
        let axes = holds.varying.without(&ty.varying);
        if axes.is_empty() {
            return a.clone();
        }
        let group = CollectiveGroup::new(mesh.clone(), axes, true);
        apply1(Arc::new(Pcast { group, to: PcastTo::Varying }), &[a.into()], call)
    })
}
