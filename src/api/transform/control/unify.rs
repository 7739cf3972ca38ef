//! Type agreement of loop carries and branch results, with suggestions for fixing a mismatch.

use super::branch_selector::BranchSelector;
use crate::api::tree::{Path, Tree};
use crate::core::{ArrayType, Axes, Error, ErrorKind, Fault};
use crate::ir::program::typing::agree::{
    changed_at, conversion, first_difference, mark_difference, suggest_conversion, unify,
};
use crate::ir::program::{CallSite, Program};
use std::ops::Deref;

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
