//! Type agreement of loop carries and branch results, with suggestions for fixing a mismatch.

use super::branch_selector::BranchSelector;
use crate::api::transform::stages::{first_difference, mark_difference};
use crate::api::tree::{Path, Tree};
use crate::core::{ArrayType, Axes, Error, ErrorKind, Fault, SourceLocation};
use crate::ir::program::{CallSite, Input, Program};
use std::ops::Deref;

/// Returns the common type of two values, or `None`.
/// An unplaced value agrees with a replicated one on any mesh.
pub(crate) fn unify(a: &ArrayType, b: &ArrayType) -> Option<ArrayType> {
    if a == b {
        return Some(a.clone());
    }
    let replicated = |t: &ArrayType| t.spec.is_replicated() && t.varying.is_empty();
    let alike = a.dtype == b.dtype && a.shape == b.shape && replicated(a) && replicated(b);
    match (&a.mesh, &b.mesh) {
        (None, Some(_)) if alike => Some(b.clone()),
        (Some(_), None) if alike => Some(a.clone()),
        _ => None,
    }
}

/// Returns the source location that gave a result the aspect of its type that `kind` names.
///
/// It is the last operation after which that aspect of the type did not change.
fn changed_at(body: &Program, result: usize, kind: ErrorKind) -> Option<SourceLocation> {
    let alike = |a: &ArrayType, b: &ArrayType| match kind {
        ErrorKind::Shape => a.shape == b.shape,
        ErrorKind::Dtype => a.dtype == b.dtype,
        ErrorKind::Varying => a.varying == b.varying,
        _ => a.shape == b.shape && a.spec == b.spec && a.mesh == b.mesh,
    };
    let maker = |input: &Input| match input {
        Input::Var(v) => body.equations.iter().find(|e| e.outputs.contains(v)),
        Input::Lit(_) => None,
    };
    let ty = body.input_type(&body.outputs[result]);
    let mut at = maker(&body.outputs[result])?;
    while let Some(before) = at.inputs.iter().filter(|i| alike(&body.input_type(i), &ty)).find_map(maker) {
        at = before;
    }
    at.location
}

/// The call of a loop, and the index of the leaf that the loop adds to the carry, such as its
/// counter. If it adds one, the carry is a pair of this leaf and the user's tree.
pub(crate) type CarryNames<'a> = (CallSite<'a>, Option<usize>);

/// Returns the name of a carry, as the user wrote it.
pub(super) fn carry_name(path: &Path, hidden: Option<usize>) -> String {
    let parts = path.parts();
    let own = match hidden {
        Some(first) if parts.first().is_some_and(|p| **p == first.to_string()) => {
            return "the counter".into();
        }
        Some(_) => &parts[1..],
        None => parts,
    };
    if own.is_empty() { "the carry".into() } else { format!("the carry `{}`", own.join(".")) }
}

/// Returns the types of a loop's carries. It is an error, with a source location, if the body
/// changes the type of a carry.
///
/// `again` returns the types that the body produces from given carry types.
pub(crate) fn carry_types<T: Tree>(
    (call, hidden): CarryNames<'_>,
    tree: &T,
    before: &[ArrayType],
    body: &Program,
    again: &dyn Fn(&[ArrayType]) -> Option<Vec<ArrayType>>,
) -> Result<Vec<ArrayType>, Error> {
    let after = body.output_types();
    // true if the body preserves the types that it produces, so that the initial value may have
    // these
    let keeps = std::cell::LazyCell::new(|| {
        let begin: Vec<ArrayType> =
            before.iter().zip(&after).map(|(was, is)| unify(was, is).unwrap_or(is.clone())).collect();
        again(&begin).is_some_and(|end| begin.iter().zip(&end).all(|(was, is)| unify(was, is).is_some()))
    });
    let mut types = Vec::new();
    let mut errors = Vec::new();
    let mut next = 0;
    tree.visit(&mut Path::named(), &mut |path, _| {
        let at = next;
        next += 1;
        let (was, is) = (&before[at], &after[at]);
        match unify(was, is) {
            Some(ty) => types.push(ty),
            None => {
                let kind = first_difference(was, is);
                let (name, what) = (carry_name(path, hidden), difference(kind));
                let message = format!(
                    "{name} is {was} before the body and {is} after it: {what} of a carry may not change"
                );
                let fault = suggest_carry_fixes(Fault::new(kind, message), was, is, &keeps);
                let fault = mark_difference(mark_difference(fault, 0, was, is), 1, is, was);
                let error = call.error(fault, || vec![was.to_string(), is.to_string()]);
                errors.push(match changed_at(body, at, kind) {
                    Some(line) => error.related(line, format!("becomes {is} here")),
                    None => error,
                });
            }
        }
    });
    if errors.is_empty() { Ok(types) } else { Err(Error::combine(errors)) }
}

fn difference(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Shape => "the shape",
        ErrorKind::Dtype => "the element type",
        ErrorKind::Varying => "the set of varying axes",
        _ => "the sharding",
    }
}

fn suggest_carry_fixes(
    fault: Fault,
    was: &ArrayType,
    is: &ArrayType,
    keeps: &dyn Deref<Target = bool>,
) -> Fault {
    let (begin, back) = (conversion(was, is), conversion(is, was));
    match fault.kind {
        ErrorKind::Dtype if **keeps => fault
            .help(format!("begin with the type that the body makes: `{begin}` on the first value"))
            .help(format!("or convert at the end of the body: `{back}`")),
        ErrorKind::Dtype => fault.help(format!("convert at the end of the body: `{back}`")),
        ErrorKind::Varying => {
            let more = is.varying.without(&was.varying);
            if more.is_empty() {
                    let fewer = was.varying.without(&is.varying).quoted();
                    fault.help(format!(
                        "the body makes it the same on all devices: at its end, make it vary again: `.pvary({fewer})`"
                    ))
                } else { fault.help(format!("begin with a value that varies: `.pvary({})` on the first value", more.quoted())) }
        }
        ErrorKind::Sharding if **keeps => fault
            .help(format!("begin with that sharding: `{begin}` on the first value"))
            .help(format!("or move it back at the end of the body: `{back}`")),
        ErrorKind::Sharding => fault.help(format!("move it back at the end of the body: `{back}`")),
        _ => fault
            .help(format!("bring it back to {} at the end of the body: `reshape`, `slice`, a reduction", was.shape))
            .help("or, if it grows with each step, return it as the second result of a `scan`, which stacks them"),
    }
}

/// Returns the method calls that convert a value to the type and sharding of another. An unplaced
/// value is placed on the mesh.
fn conversion(from: &ArrayType, to: &ArrayType) -> String {
    let convert = if from.dtype == to.dtype { String::new() } else { format!(".astype({:?})", to.dtype) };
    let converted = ArrayType { dtype: to.dtype, ..from.clone() };
    let moved = match (&from.mesh, &to.mesh) {
        _ if unify(&converted, to).is_some() => String::new(),
        (None, Some(_)) => format!(".put(&mesh, {})", to.spec),
        _ => format!(".reshard({})", to.spec.padded(to.rank())),
    };
    // an unreduced sum is resharded before the conversion, so that it is rounded once
    if from.spec.unreduced_axes().is_empty() { convert + &moved } else { moved + &convert }
}

/// Adds a help that converts a value to the required type.
pub(crate) fn suggest_conversion(fault: Fault, is: &ArrayType, expected: &ArrayType) -> Fault {
    match fault.kind {
        ErrorKind::Sharding => fault.help(format!("move it: `{}`", conversion(is, expected))),
        ErrorKind::Dtype => fault.help(format!("convert it: `{}`", conversion(is, expected))),
        ErrorKind::Varying => {
            let more = expected.varying.without(&is.varying);
            fault.help(format!("make it vary: `.pvary({})`", more.quoted()))
        }
        _ => fault.help(format!(
            "bring it to the shape {}: `reshape`, `slice`, `broadcast_to`, a reduction",
            expected.shape
        )),
    }
}

/// Adds a help that makes a result vary over the same axes in all branches.
fn suggest_varying_results(
    fault: Fault,
    selector: BranchSelector,
    results: &[Vec<ArrayType>],
    at: usize,
) -> Fault {
    let mut all = Axes::none();
    results.iter().for_each(|types| all.extend_unique(&types[at].varying));
    let casts: Vec<String> = (results.iter().enumerate())
        .filter_map(|(n, types)| {
            let more = all.without(&types[at].varying);
            let branch = selector.describe_branch(n);
            (!more.is_empty()).then(|| format!("`.pvary({})` on the result {branch}", more.quoted()))
        })
        .collect();
    fault.help(format!("make it vary: {}", casts.join(", and ")))
}

/// Returns the types that all branches return. It is an error, with both source locations, if a
/// result has different types.
pub(super) fn branch_types<T: Tree>(
    selector: BranchSelector,
    call: CallSite<'_>,
    tree: &T,
    bodies: &[&Program],
) -> Result<Vec<ArrayType>, Error> {
    let results: Vec<Vec<ArrayType>> = bodies.iter().map(|b| b.output_types()).collect();
    let mut types = Vec::new();
    let mut errors = Vec::new();
    let mut next = 0;
    tree.visit(&mut Path::named(), &mut |path, _| {
        let at = next;
        next += 1;
        // the common type so far, and the branch that it comes from
        let (mut ty, mut of) = (results[0][at].clone(), 0);
        for (n, other) in results.iter().enumerate().skip(1) {
            let other = &other[at];
            if let Some(both) = unify(&ty, other) {
                if both != ty {
                    (ty, of) = (both, n);
                }
                continue;
            }
            let kind = first_difference(&ty, other);
            let name = if path.parts().is_empty() { "the result".into() } else { format!("result `{path}`") };
            let message = format!(
                "{name} is {ty} {} and {other} {}: {} of all branches must agree",
                selector.describe_branch(of),
                selector.describe_branch(n),
                difference(kind)
            );
            let fault = Fault::new(kind, message);
            let fault = match kind {
                ErrorKind::Varying => suggest_varying_results(fault, selector, &results, at),
                _ => suggest_conversion(fault, other, &ty),
            };
            let fault = mark_difference(mark_difference(fault, 0, &ty, other), 1, other, &ty);
            let mut error = call.error(fault, || vec![ty.to_string(), other.to_string()]);
            for (n, ty) in [(of, &ty), (n, other)] {
                if let Some(line) = changed_at(bodies[n], at, kind) {
                    error = error.related(line, format!("{ty} {}", selector.describe_branch(n)));
                }
            }
            errors.push(error);
            break;
        }
        types.push(ty);
    });
    if errors.is_empty() { Ok(types) } else { Err(Error::combine(errors)) }
}
