//! Carries and branches: what must be of one type, and what to write where it is not.

use super::branch::Chooser;
use crate::diagnostic::{Error, ErrorKind, Fault, Place};
use crate::program::{Call, Input, Program};
use crate::transform::compiled::{differing, marked};
use crate::tree::{Path, Tree};
use crate::types::ArrayType;
use std::ops::Deref;

/// The type of both, where they are of one type; a value on no mesh is like a replicated one on any.
pub(crate) fn joined(a: &ArrayType, b: &ArrayType) -> Option<ArrayType> {
    if a == b {
        return Some(a.clone());
    }
    let whole = |t: &ArrayType| t.spec.is_whole() && t.varying.is_empty();
    let alike = a.dtype == b.dtype && a.shape == b.shape && whole(a) && whole(b);
    match (&a.mesh, &b.mesh) {
        (None, Some(_)) if alike => Some(b.clone()),
        (Some(_), None) if alike => Some(a.clone()),
        _ => None,
    }
}

/// The line that made a result what it is in this respect: the last one behind which nothing changed it.
fn made(body: &Program, result: usize, kind: ErrorKind) -> Option<Place> {
    let alike = |a: &ArrayType, b: &ArrayType| match kind {
        ErrorKind::Shape => a.shape == b.shape,
        ErrorKind::Dtype => a.dtype == b.dtype,
        ErrorKind::Vma => a.varying == b.varying,
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
    at.place
}

/// The types of a loop's carries, or a refusal of each that the body changes, with the line that did. `again` gives the types that the
/// body makes of others.
pub(crate) fn carries<T: Tree>(
    call: Call<'_>,
    tree: &T,
    before: &[ArrayType],
    body: &Program,
    again: &dyn Fn(&[ArrayType]) -> Option<Vec<ArrayType>>,
) -> Result<Vec<ArrayType>, Error> {
    let after = body.output_types();
    // whether the body keeps the types that it makes, so that one may begin with them
    let keeps = std::cell::LazyCell::new(|| {
        let begin: Vec<ArrayType> =
            before.iter().zip(&after).map(|(was, is)| joined(was, is).unwrap_or(is.clone())).collect();
        again(&begin).is_some_and(|end| begin.iter().zip(&end).all(|(was, is)| joined(was, is).is_some()))
    });
    let mut types = Vec::new();
    let mut errors = Vec::new();
    let mut next = 0;
    tree.visit(&mut Path::named(), &mut |path, _| {
        let at = next;
        next += 1;
        let (was, is) = (&before[at], &after[at]);
        match joined(was, is) {
            Some(ty) => types.push(ty),
            None => {
                let kind = differing(was, is);
                let name =
                    if path.parts().is_empty() { "the carry".into() } else { format!("the carry `{path}`") };
                let what = difference(kind);
                let message = format!(
                    "{name} is {was} before the body and {is} after it: {what} of a carry may not change"
                );
                let fault = mends(Fault::new(kind, message), was, is, &keeps);
                let fault = marked(marked(fault, 0, was, is), 1, is, was);
                let error = call.error(fault, || vec![was.to_string(), is.to_string()]);
                errors.push(match made(body, at, kind) {
                    Some(line) => error.related(line, format!("becomes {is} here")),
                    None => error,
                });
            }
        }
    });
    if errors.is_empty() { Ok(types) } else { Err(Error::all(errors)) }
}

fn difference(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Shape => "the shape",
        ErrorKind::Dtype => "the element type",
        ErrorKind::Vma => "what varies over manual axes",
        _ => "the sharding",
    }
}

fn mends(fault: Fault, was: &ArrayType, is: &ArrayType, keeps: &dyn Deref<Target = bool>) -> Fault {
    let (begin, back) = (bring(was, is), bring(is, was));
    match fault.kind {
        ErrorKind::Dtype if **keeps => fault
            .help(format!("begin with the type that the body makes: `{begin}` on the first value"))
            .help(format!("or convert at the end of the body: `{back}`")),
        ErrorKind::Dtype => fault.help(format!("convert at the end of the body: `{back}`")),
        ErrorKind::Vma => {
            let more = is.varying.without(&was.varying);
            match more.is_empty() {
                true => fault.help("the body makes it the same on all devices: make it vary again at its end by `pvary`"),
                false => fault.help(format!("begin with a value that varies: `.pvary({})` on the first value", more.quoted())),
            }
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

/// What converts a value and shards it like another: one on no mesh is put there.
fn bring(from: &ArrayType, to: &ArrayType) -> String {
    let convert = if from.dtype == to.dtype { String::new() } else { format!(".astype({:?})", to.dtype) };
    let converted = ArrayType { dtype: to.dtype, ..from.clone() };
    let moved = match (&from.mesh, &to.mesh) {
        _ if joined(&converted, to).is_some() => String::new(),
        (None, Some(_)) => format!(".put(&mesh, {})", to.spec),
        _ => format!(".reshard({})", to.spec.padded(to.rank())),
    };
    // a sum is rounded once: it is made before it is converted
    if from.spec.unreduced_axes().is_empty() { convert + &moved } else { moved + &convert }
}

/// The fault with what brings a value to the type that is wanted.
pub(crate) fn brought(fault: Fault, is: &ArrayType, want: &ArrayType) -> Fault {
    match fault.kind {
        ErrorKind::Sharding => fault.help(format!("move it: `{}`", bring(is, want))),
        ErrorKind::Dtype => fault.help(format!("convert it: `{}`", bring(is, want))),
        ErrorKind::Vma => match want.varying.without(&is.varying) {
            more if more.is_empty() => {
                fault.help("make it the same on all devices: by `psum`, or outside of the branches")
            }
            more => fault.help(format!("make it vary: `.pvary({})`", more.quoted())),
        },
        _ => fault.help(format!(
            "bring it to the shape {}: `reshape`, `slice`, `broadcast_to`, a reduction",
            want.shape
        )),
    }
}

/// The types that all branches return, or a refusal of each result that differs, with the lines that made both.
pub(super) fn branches<T: Tree>(
    chooser: Chooser,
    call: Call<'_>,
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
        // the type so far, and the branch that it is of
        let (mut ty, mut of) = (results[0][at].clone(), 0);
        for (n, other) in results.iter().enumerate().skip(1) {
            let other = &other[at];
            if let Some(both) = joined(&ty, other) {
                if both != ty {
                    (ty, of) = (both, n);
                }
                continue;
            }
            let kind = differing(&ty, other);
            let name = if path.parts().is_empty() { "the result".into() } else { format!("result `{path}`") };
            let message = format!(
                "{name} is {ty} {} and {other} {}: {} of all branches must agree",
                chooser.branch(of),
                chooser.branch(n),
                difference(kind)
            );
            let fault = Fault::new(kind, message);
            // the one that varies less can be made to vary more
            let fault = match (kind, ty.varying.within(&other.varying)) {
                (ErrorKind::Vma, true) => brought(fault, &ty, other),
                _ => brought(fault, other, &ty),
            };
            let fault = marked(marked(fault, 0, &ty, other), 1, other, &ty);
            let mut error = call.error(fault, || vec![ty.to_string(), other.to_string()]);
            for (n, ty) in [(of, &ty), (n, other)] {
                if let Some(line) = made(bodies[n], at, kind) {
                    error = error.related(line, format!("{ty} {}", chooser.branch(n)));
                }
            }
            errors.push(error);
            break;
        }
        types.push(ty);
    });
    if errors.is_empty() { Ok(types) } else { Err(Error::all(errors)) }
}
