//! Functions that apply a closure to slices, to other axes, or to the arrays of a tree.

use super::applied;
use crate::eval::{Eval, Interp, Stop};
use crate::methods::Args;
use crate::tree::{Arrays, specs};
use crate::value::Value;
use atmesh::Array;
use std::rc::Rc;

#[track_caller]
pub(super) fn regions(interp: &Rc<Interp>, name: &str, args: &mut Args<'_>) -> Eval {
    let over = if name.ends_with("_over") { Some(args.axes()?) } else { None };
    let point = args.tree()?;
    let out = match name {
        "auto_axes" | "auto_axes_over" | "explicit_axes" | "explicit_axes_over" => {
            Some(specs(args.any("specs")?)?)
        }
        _ => None,
    };
    let policy = if name == "checkpoint_with" { Some(args.checkpoint_policy()?) } else { None };
    let f = args.function("of the arrays")?;
    let body = |x: Arrays| applied(interp, f, x);
    let made = match (name, over, out) {
        ("auto_axes", _, Some(out)) => atmesh::auto_axes(point, out, body),
        ("explicit_axes", _, Some(specs)) => atmesh::explicit_axes(point, specs, body),
        ("auto_axes_over", Some(axes), Some(out)) => atmesh::auto_axes_over(axes, point, out, body),
        ("explicit_axes_over", Some(axes), Some(specs)) => {
            atmesh::explicit_axes_over(axes, point, specs, body)
        }
        ("vmap_with", ..) => {
            let options = args.vmap_options()?;
            atmesh::vmap_with(point, body, options)
        }
        ("vmap", ..) => atmesh::vmap(point, body),
        ("map", ..) => atmesh::map(point, body),
        _ => match policy {
            Some(policy) => atmesh::checkpoint_with(point, policy, body),
            None => atmesh::checkpoint(point, body),
        },
    };
    Ok(made.value())
}

#[track_caller]
pub(super) fn trees(interp: &Rc<Interp>, name: &str, args: &mut Args<'_>) -> Eval {
    let tree = args.tree()?;
    let mut failed: Option<Stop> = None;
    let mut one = |made: Eval, or: &Array| match made {
        Ok(value) => match crate::value::array(&value) {
            Ok(x) => x,
            Err(r) => {
                failed.get_or_insert(r.into());
                or.clone()
            }
        },
        Err(stop) => {
            failed.get_or_insert(stop);
            or.clone()
        }
    };
    let made = match name {
        "tree::map2" => {
            let other = args.tree()?;
            let f = args.function("of two arrays")?;
            let f = |a: &Array, b: &Array| {
                one(interp.apply(f, vec![Value::Array(a.clone()), Value::Array(b.clone())]), a)
            };
            atmesh::tree::map2(&tree, &other, f).value()
        }
        _ => {
            let f = args.function("of an array")?;
            atmesh::tree::map(&tree, |a: &Array| one(interp.apply(f, vec![Value::Array(a.clone())]), a))
                .value()
        }
    };
    match failed {
        Some(stop) => Err(stop),
        None => Ok(made),
    }
}
