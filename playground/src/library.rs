//! Methods of numbers, texts, lists and `Option`s, as in Rust's standard library.
//!
//! Iterators are lists: every adapter is evaluated at once.

mod lists;
mod numbers;

use crate::error::ErrorResponse;
use crate::eval::{Eval, Interp, operator};
use crate::syntax::NumType;
use crate::value::Value;
use std::rc::Rc;

pub(crate) use numbers::constant;

/// Returns a whole number.
pub(crate) fn integer(value: &Value) -> Result<i128, ErrorResponse> {
    match value.inner() {
        Value::Int(n, _) => Ok(*n),
        other => Err(syntax_error!("a whole number is expected, not {}", other.what())),
    }
}
/// Returns a count or an index.
pub(crate) fn whole(value: &Value) -> Result<usize, ErrorResponse> {
    let n = integer(value)?;
    usize::try_from(n).map_err(|_| syntax_error!("{n} is not a count"))
}

/// Returns the values of a list, a range or a report, one by one.
pub(crate) fn iterate(value: &Value) -> Result<Vec<Value>, ErrorResponse> {
    Ok(match value {
        Value::List(list) => list.to_vec(),
        Value::Range(range) => {
            let (start, end) = (
                integer(&range.0)?,
                integer(&range.1).map_err(|_| {
                    syntax_error!("a range without an end is not read here")
                        .help("write its end: `0..n`", None)
                })?,
            );
            let end = end + i128::from(range.2);
            if end - start > 1 << 20 {
                return Err(syntax_error!("a range of {} steps is too long here", end - start));
            }
            let ty = match (&range.0, &range.1) {
                (Value::Int(_, NumType::Open), Value::Int(_, ty)) | (Value::Int(_, ty), _) => *ty,
                _ => NumType::Open,
            };
            (start..end).map(|n| Value::Int(n, ty)).collect()
        }
        Value::Option(v) => v.iter().map(|v| (**v).clone()).collect(),
        Value::Collectives(report) => crate::objects::collectives(report),
        Value::Result(Ok(v)) => iterate(v)?,
        other => return Err(syntax_error!("{} is not a list or a range", other.what())),
    })
}

/// Returns an element or a part of a list or text.
pub(crate) fn element(of: &Value, at: &Value) -> Result<Value, ErrorResponse> {
    match (of.inner(), at) {
        (Value::List(list), Value::Range(range)) => {
            let (from, to) = ends(range, list.len())?;
            Ok(Value::list(list[from..to].iter().cloned()))
        }
        (Value::List(list), at) => {
            let i = whole(at)?;
            list.get(i)
                .cloned()
                .ok_or_else(|| syntax_error!("the index {i} is out of bounds: there are {}", list.len()))
        }
        (Value::Text(text), Value::Range(range)) => {
            let (from, to) = ends(range, text.len())?;
            text.get(from..to).map(Value::text).ok_or_else(|| syntax_error!("the range cuts a character"))
        }
        (Value::Collectives(report), at) => {
            let i = whole(at)?;
            let list = crate::objects::collectives(report);
            list.get(i).cloned().ok_or_else(|| syntax_error!("there are {} collectives", report.len()))
        }
        (Value::Struct(_), Value::Text(key)) => crate::eval::field(of, key),
        (Value::Array(_), _) => Err(syntax_error!("an array is indexed by a method")
            .help("write `x.slice(ix![0])`, or `x.to_vec::<f32>()?[0]` on the host", None)),
        (other, _) => Err(syntax_error!("{} has no elements", other.what())),
    }
}

fn ends(range: &(Value, Value, bool), len: usize) -> Result<(usize, usize), ErrorResponse> {
    let from = if matches!(range.0, Value::Unit) { 0 } else { whole(&range.0)? };
    let to = if matches!(range.1, Value::Unit) { len } else { whole(&range.1)? + usize::from(range.2) };
    if from > to || to > len {
        return Err(syntax_error!("the range {from}..{to} is out of bounds: there are {len}"));
    }
    Ok((from, to))
}

/// Returns true for methods that change a list or a text.
pub(crate) fn is_mutating(name: &str) -> bool {
    matches!(
        name,
        "push"
            | "push_str"
            | "extend"
            | "insert"
            | "pop"
            | "clear"
            | "sort"
            | "sort_unstable"
            | "sort_by"
            | "sort_by_key"
            | "reverse"
            | "dedup"
            | "truncate"
            | "remove"
            | "swap"
            | "append"
            | "retain"
            | "resize"
            | "swap_remove"
            | "take"
            | "fill"
            | "extend_from_slice"
    )
}

/// Changes a list or a text.
pub(crate) fn mutate(interp: &Rc<Interp>, value: &mut Value, name: &str, args: &[Value]) -> Eval {
    if let (Value::Option(option), "take") = (&mut *value, name) {
        return Ok(Value::Option(option.take()));
    }
    if let Value::Text(text) = value {
        let mut new = text.to_string();
        match (name, args) {
            ("push" | "push_str" | "extend", [more]) => new += &crate::format::plain(more),
            ("clear", _) => new.clear(),
            _ => return Err(crate::objects::no_method(value, name).into()),
        }
        *value = Value::text(new);
        return Ok(Value::Unit);
    }
    let Value::List(list) = value else { return Err(crate::objects::no_method(value, name).into()) };
    lists::mutate(interp, Rc::make_mut(list), name, args)
}

/// Evaluates a method of a value of the standard library; `None` if it is one of the crate.
pub(crate) fn method(
    interp: &Rc<Interp>,
    of: &Value,
    name: &str,
    generics: Option<&str>,
    args: &[Value],
) -> Eval<Option<Value>> {
    if let Some(made) = option(interp, of, name, args)? {
        return Ok(Some(made));
    }
    let of = of.inner();
    // texts and copies of any value
    match (name, args) {
        ("to_string", []) => return Ok(Some(Value::text(crate::format::display(interp, of)?))),
        (
            "clone" | "to_owned" | "into" | "as_ref" | "as_mut" | "borrow" | "as_str" | "iter" | "into_iter"
            | "copied" | "cloned" | "to_vec" | "as_slice" | "into_boxed_slice" | "by_ref" | "as_deref"
            | "into_owned",
            [],
        ) if !matches!(of, Value::Array(_) | Value::Key(_) | Value::Jit(_) | Value::Mapped(_)) => {
            return Ok(Some(match of {
                Value::Collectives(_) | Value::Range(_) => {
                    if matches!(name, "iter" | "into_iter" | "to_vec") {
                        Value::list(iterate(of)?)
                    } else {
                        of.clone()
                    }
                }
                _ => of.clone(),
            }));
        }
        ("clone", []) => return Ok(Some(of.clone())),
        _ => {}
    }
    Ok(match of {
        Value::List(list) => lists::method(interp, list, name, generics, args)?,
        Value::Range(range) => match (name, args) {
            ("contains", [x]) => Some(Value::Bool(
                operator::compare(&range.0, x)? != std::cmp::Ordering::Greater
                    && operator::compare(x, &range.1)?.then(if range.2 {
                        std::cmp::Ordering::Less
                    } else {
                        std::cmp::Ordering::Equal
                    }) == std::cmp::Ordering::Less,
            )),
            ("start" | "end", []) => Some(if name == "start" { range.0.clone() } else { range.1.clone() }),
            _ => lists::method(interp, &iterate(of)?, name, generics, args)?,
        },
        Value::Collectives(_)
            if !matches!(name, "bytes" | "total_bytes" | "peak_bytes" | "len" | "is_empty") =>
        {
            lists::method(interp, &iterate(of)?, name, generics, args)?
        }
        Value::Text(text) => lists::text(interp, text, name, generics, args)?,
        Value::Char(c) => match name {
            "is_ascii_digit" => Some(Value::Bool(c.is_ascii_digit())),
            "is_alphabetic" => Some(Value::Bool(c.is_alphabetic())),
            "is_whitespace" => Some(Value::Bool(c.is_whitespace())),
            _ => None,
        },
        Value::Int(..) | Value::Float(..) => numbers::method(of, name, args)?,
        Value::Bool(b) => match (name, args) {
            ("then", [f]) => Some(Value::option(if *b { Some(interp.apply(f, Vec::new())?) } else { None })),
            ("then_some", [v]) => Some(Value::option(b.then(|| v.clone()))),
            _ => None,
        },
        Value::Error(e) => match name {
            "kind" => Some(Value::text(format!("{:?}", e.kind()))),
            _ => None,
        },
        Value::Cell(cell) => match (name, args) {
            ("get" | "borrow" | "borrow_mut" | "take" | "into_inner", []) => Some(cell.borrow().clone()),
            ("lock", []) => Some(Value::result(Ok(of.clone()))),
            ("set", [v]) => {
                *cell.borrow_mut() = v.clone();
                Some(Value::Unit)
            }
            ("replace", [v]) => Some(cell.replace(v.clone())),
            _ => None,
        },
        _ => None,
    })
}

/// Evaluates a method of an `Option` or a `Result`.
fn option(interp: &Rc<Interp>, of: &Value, name: &str, args: &[Value]) -> Eval<Option<Value>> {
    let (inner, error): (Option<Value>, Option<Value>) = match of {
        Value::Option(v) => (v.as_ref().map(|v| (**v).clone()), None),
        Value::Result(Ok(v)) => (Some((**v).clone()), None),
        Value::Result(Err(e)) => (None, Some(Value::Error(e.clone()))),
        _ => return Ok(None),
    };
    let is_option = matches!(of, Value::Option(_));
    let apply = |f: &Value, v: Value| interp.apply(f, vec![v]);
    let wrap = |v: Value| if is_option { Value::some(v) } else { Value::result(Ok(v)) };
    let missing = |what: &str| -> ErrorResponse {
        match of {
            Value::Result(Err(e)) => interp.response(e),
            _ => syntax_error!("{what}"),
        }
    };
    Ok(Some(match (name, args) {
        ("unwrap", []) => inner.ok_or_else(|| missing("`unwrap` of `None`"))?,
        ("expect", [text]) => inner.ok_or_else(|| missing(&crate::format::plain(text)))?,
        ("unwrap_or", [other]) => inner.unwrap_or_else(|| other.clone()),
        ("unwrap_or_else", [f]) => match (inner, error) {
            (Some(v), _) => v,
            (None, Some(e)) => apply(f, e)?,
            (None, None) => interp.apply(f, Vec::new())?,
        },
        ("unwrap_or_default", []) => inner.unwrap_or_else(|| Value::text("")),
        ("unwrap_err", []) => error.ok_or_else(|| syntax_error!("`unwrap_err` of `Ok`"))?,
        ("expect_err", [text]) => error.ok_or_else(|| syntax_error!("{}", crate::format::plain(text)))?,
        ("is_some" | "is_ok", []) => Value::Bool(inner.is_some()),
        ("is_none" | "is_err", []) => Value::Bool(inner.is_none()),
        ("ok", []) => Value::option(inner),
        ("err", []) => Value::option(error),
        ("map", [f]) => match inner {
            Some(v) => wrap(apply(f, v)?),
            None => of.clone(),
        },
        ("map_err", [f]) => match error {
            Some(e) => match apply(f, e)? {
                Value::Error(e) => Value::result(Err(e)),
                other => Value::result(Err(atmesh::Error::other(crate::format::plain(&other)))),
            },
            None => of.clone(),
        },
        ("map_or", [other, f]) => match inner {
            Some(v) => apply(f, v)?,
            None => other.clone(),
        },
        ("map_or_else", [other, f]) => match (inner, error) {
            (Some(v), _) => apply(f, v)?,
            (None, Some(e)) => apply(other, e)?,
            (None, None) => interp.apply(other, Vec::new())?,
        },
        ("and_then", [f]) => match inner {
            Some(v) => apply(f, v)?,
            None => of.clone(),
        },
        ("is_some_and" | "is_ok_and", [f]) => match inner {
            Some(v) => apply(f, v)?,
            None => Value::Bool(false),
        },
        ("is_none_or", [f]) => match inner {
            Some(v) => apply(f, v)?,
            None => Value::Bool(true),
        },
        ("ok_or" | "ok_or_else", [f]) => match (inner, f) {
            (Some(v), _) => Value::result(Ok(v)),
            (None, Value::Error(e)) => Value::result(Err(e.clone())),
            (None, f) => match interp.apply(f, Vec::new())? {
                Value::Error(e) => Value::result(Err(e)),
                _ => Value::Option(None),
            },
        },
        ("or_else" | "or", [f]) if inner.is_none() => match f {
            Value::Closure(_) => interp.apply(f, error.into_iter().collect())?,
            other => other.clone(),
        },
        ("filter", [f]) => match inner {
            Some(v) => match apply(f, v.clone())? {
                Value::Bool(true) => Value::some(v),
                _ => Value::Option(None),
            },
            None => of.clone(),
        },
        ("clone" | "as_ref" | "as_mut" | "as_deref" | "copied" | "cloned" | "iter" | "into_iter", []) => {
            of.clone()
        }
        _ => return Ok(None),
    }))
}
