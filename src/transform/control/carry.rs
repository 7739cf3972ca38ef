//! Carries and branches: what must be of one type, and what to write where it is not.

use crate::diagnostic::{Error, ErrorKind, Fault, Place};
use crate::transform::compiled::{differing, marked};
use crate::tree::{Path, Tree};
use crate::types::ArrayType;

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

/// The types of a loop's carries, or a refusal of each that the body changes.
pub(crate) fn carries<T: Tree>(
    op: &str,
    tree: &T,
    before: &[ArrayType],
    after: &[ArrayType],
    place: Place,
) -> Result<Vec<ArrayType>, Error> {
    let mut types = Vec::new();
    let mut errors = Vec::new();
    let mut at = 0;
    tree.visit(&mut Path::named(), &mut |path, _| {
        let (was, is) = (&before[at], &after[at]);
        at += 1;
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
                let fault = mends(Fault::new(kind, message), was, is);
                let fault = marked(marked(fault, 0, was, is), 1, is, was);
                errors.push(Error::at(fault, op, vec![was.to_string(), is.to_string()], Some(place)));
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

fn mends(fault: Fault, was: &ArrayType, is: &ArrayType) -> Fault {
    match fault.kind {
        ErrorKind::Dtype => {
            let (from, to) = (was.dtype, is.dtype);
            fault
                .help(format!(
                    "begin with the type that the body makes: `.astype({to:?})` on the first value"
                ))
                .help(format!("or convert at the end of the body: `.astype({from:?})`"))
        }
        ErrorKind::Vma => {
            let more = is.varying.without(&was.varying);
            match more.is_empty() {
                true => fault.help("the body makes it the same on all devices: make it vary again at its end by `pvary`"),
                false => fault.help(format!("begin with a value that varies: `.pvary({})` on the first value", more.quoted())),
            }
        }
        ErrorKind::Sharding => fault
            .help(format!("begin with that sharding: `{}` on the first value", move_to(was, is)))
            .help(format!("or move it back at the end of the body: `{}`", move_to(is, was))),
        _ => fault
            .help(format!("bring it back to {} at the end of the body: `reshape`, `slice`, a reduction", was.shape))
            .help("or, if it grows with each step, return it as the second result of a `scan`, which stacks them"),
    }
}

/// What shards a value like another: one on no mesh is put there.
fn move_to(from: &ArrayType, to: &ArrayType) -> String {
    match (&from.mesh, &to.mesh) {
        (None, Some(_)) => format!(".put(&mesh, {})", to.spec),
        _ => format!(".reshard({})", to.spec.padded(to.rank())),
    }
}

/// The fault with what brings a value to the type that is wanted.
pub(crate) fn brought(fault: Fault, is: &ArrayType, want: &ArrayType) -> Fault {
    match fault.kind {
        ErrorKind::Sharding => fault.help(format!("move it: `{}`", move_to(is, want))),
        ErrorKind::Dtype => fault.help(format!("convert it: `.astype({:?})`", want.dtype)),
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

/// The types that all branches return, or a refusal of each result that differs.
pub(crate) fn branches<T: Tree>(
    op: &str,
    tree: &T,
    results: &[Vec<ArrayType>],
    place: Place,
) -> Result<Vec<ArrayType>, Error> {
    let mut types = Vec::new();
    let mut errors = Vec::new();
    let mut at = 0;
    tree.visit(&mut Path::named(), &mut |path, _| {
        let mut ty = results[0][at].clone();
        for (n, other) in results.iter().enumerate().skip(1) {
            let other = &other[at];
            match joined(&ty, other) {
                Some(both) => ty = both,
                None => {
                    let kind = differing(&ty, other);
                    let name = if path.parts().is_empty() {
                        "the result".into()
                    } else {
                        format!("result `{path}`")
                    };
                    let (first, nth) = match (op, n) {
                        ("cond", _) => ("where it holds".to_string(), "where it does not".to_string()),
                        _ => ("of branch 0".into(), format!("of branch {n}")),
                    };
                    let message = format!(
                        "{name} is {ty} {first} and {other} {nth}: {} of all branches must agree",
                        difference(kind)
                    );
                    let fault = Fault::new(kind, message);
                    // the one that varies less can be made to vary more
                    let fault = match (kind, ty.varying.within(&other.varying)) {
                        (ErrorKind::Vma, true) => brought(fault, &ty, other),
                        _ => brought(fault, other, &ty),
                    };
                    let fault = marked(marked(fault, 0, &ty, other), 1, other, &ty);
                    errors.push(Error::at(fault, op, vec![ty.to_string(), other.to_string()], Some(place)));
                    break;
                }
            }
        }
        types.push(ty);
        at += 1;
    });
    if errors.is_empty() { Ok(types) } else { Err(Error::all(errors)) }
}
