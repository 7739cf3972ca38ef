//! Methods of lists, iterators and texts.

use super::{integer, iterate, whole};
use crate::eval::{Eval, Interp, operator};
use crate::format::plain;
use crate::syntax::NumType;
use crate::value::Value;
use std::cmp::Ordering;
use std::rc::Rc;

/// Changes a list.
pub(super) fn mutate(interp: &Rc<Interp>, list: &mut Vec<Value>, name: &str, args: &[Value]) -> Eval {
    match (name, args) {
        ("push", [v]) => list.push(v.clone()),
        ("extend" | "append" | "extend_from_slice", [more]) => list.extend(iterate(more)?),
        ("insert", [at, v]) => {
            let at = whole(at)?.min(list.len());
            list.insert(at, v.clone());
        }
        ("pop", []) => return Ok(Value::option(list.pop())),
        ("clear", []) => list.clear(),
        ("reverse", []) => list.reverse(),
        ("truncate", [n]) => list.truncate(whole(n)?),
        ("fill", [v]) => list.fill(v.clone()),
        ("remove" | "swap_remove", [at]) => {
            let at = whole(at)?;
            if at >= list.len() {
                return Err(syntax_error!("the index {at} is out of bounds").into());
            }
            return Ok(if name == "remove" { list.remove(at) } else { list.swap_remove(at) });
        }
        ("swap", [a, b]) => {
            let (a, b) = (whole(a)?, whole(b)?);
            if a.max(b) >= list.len() {
                return Err(syntax_error!("the index {} is out of bounds", a.max(b)).into());
            }
            list.swap(a, b);
        }
        ("resize", [n, v]) => list.resize(whole(n)?.min(1 << 20), v.clone()),
        ("dedup", []) => list.dedup_by(|a, b| operator::equal(a, b)),
        ("retain", [f]) => {
            let mut kept = Vec::new();
            for v in list.iter() {
                if holds(interp.apply(f, vec![v.clone()])?) {
                    kept.push(v.clone());
                }
            }
            *list = kept;
        }
        ("sort" | "sort_unstable", []) => sort(list, &mut |a, b| Ok(operator::compare(a, b)?))?,
        ("sort_by_key", [f]) => {
            sort(list, &mut |a, b| {
                Ok(operator::compare(&interp.apply(f, vec![a.clone()])?, &interp.apply(f, vec![b.clone()])?)?)
            })?;
        }
        _ => return Err(syntax_error!("a list has no method `{name}` here").into()),
    }
    Ok(Value::Unit)
}

fn sort(list: &mut [Value], compare: &mut dyn FnMut(&Value, &Value) -> Eval<Ordering>) -> Eval<()> {
    let mut failed = None;
    list.sort_by(|a, b| {
        compare(a, b).unwrap_or_else(|stop| {
            failed.get_or_insert(stop);
            Ordering::Equal
        })
    });
    failed.map_or(Ok(()), Err)
}

fn holds(value: Value) -> bool {
    matches!(value, Value::Bool(true))
}

/// Evaluates a method of a list; `None` if there is none of this name.
pub(super) fn method(
    interp: &Rc<Interp>,
    list: &[Value],
    name: &str,
    generics: Option<&str>,
    args: &[Value],
) -> Eval<Option<Value>> {
    if let Some(made) = with_closure(interp, list, name, args)? {
        return Ok(Some(made));
    }
    let option = |v: Option<&Value>| Value::option(v.cloned());
    Ok(Some(match (name, args) {
        ("len" | "count", []) => Value::count(list.len()),
        ("is_empty", []) => Value::Bool(list.is_empty()),
        ("first" | "next", []) => option(list.first()),
        ("last", []) => option(list.last()),
        ("get" | "nth", [i]) => option(list.get(whole(i)?)),
        ("rev", []) => Value::list(list.iter().rev().cloned()),
        ("enumerate", []) => {
            Value::list(list.iter().enumerate().map(|(i, v)| Value::tuple([Value::count(i), v.clone()])))
        }
        ("zip", [other]) => {
            Value::list(list.iter().zip(iterate(other)?).map(|(a, b)| Value::tuple([a.clone(), b])))
        }
        ("chain", [other]) => Value::list(list.iter().cloned().chain(iterate(other)?)),
        ("take", [n]) => Value::list(list.iter().take(whole(n)?).cloned()),
        ("skip", [n]) => Value::list(list.iter().skip(whole(n)?).cloned()),
        ("step_by", [n]) => Value::list(list.iter().step_by(whole(n)?.max(1)).cloned()),
        ("chunks" | "chunks_exact", [n]) => {
            Value::list(list.chunks(whole(n)?.max(1)).map(|c| Value::list(c.iter().cloned())))
        }
        ("windows", [n]) => {
            Value::list(list.windows(whole(n)?.max(1)).map(|c| Value::list(c.iter().cloned())))
        }
        ("contains", [x]) => Value::Bool(list.iter().any(|v| operator::equal(v, x))),
        ("concat" | "flatten", []) => {
            let mut all = Vec::new();
            for v in list {
                match v {
                    Value::Option(None) => {}
                    Value::Option(Some(v)) => all.push((**v).clone()),
                    v => all.extend(iterate(v)?),
                }
            }
            Value::list(all)
        }
        ("join", [separator]) => {
            let parts: Vec<String> = list.iter().map(plain).collect();
            Value::text(parts.join(&plain(separator)))
        }
        ("sum" | "product", []) => {
            let op = if name == "sum" { "+" } else { "*" };
            let ty = generics.and_then(NumType::named).unwrap_or(NumType::Open);
            let start = match list.first() {
                Some(Value::Float(..)) => Value::Float(f64::from(u8::from(name != "sum")), ty),
                _ => Value::Int(i128::from(name != "sum"), ty),
            };
            let mut total = start;
            for v in list {
                total = operator::binary(op, &total, v)?;
            }
            total
        }
        ("max" | "min", []) => extreme(list, name == "max")?,
        ("unzip", []) => {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for v in list {
                a.push(crate::eval::field(v, "0")?);
                b.push(crate::eval::field(v, "1")?);
            }
            Value::tuple([Value::list(a), Value::list(b)])
        }
        ("collect", []) => collect(list, generics),
        ("peekable" | "into_vec", []) => Value::list(list.iter().cloned()),
        _ => return Ok(None),
    }))
}

fn extreme(list: &[Value], is_max: bool) -> Eval {
    let mut best: Option<&Value> = None;
    for v in list {
        let replaces = match best {
            None => true,
            Some(b) => {
                let order = operator::compare(v, b)?;
                if is_max { order != Ordering::Less } else { order == Ordering::Less }
            }
        };
        if replaces {
            best = Some(v);
        }
    }
    Ok(Value::option(best.cloned()))
}

/// Collects a list: into a text, or into a `Result` or `Option` if its values are some.
fn collect(list: &[Value], generics: Option<&str>) -> Value {
    let into = generics.unwrap_or("");
    if into.contains("String") && !into.contains("Vec") {
        return Value::text(list.iter().map(plain).collect::<String>());
    }
    if let Some(Value::Result(_)) = list.first()
        && !into.starts_with("Vec<Result")
    {
        let mut all = Vec::new();
        for v in list {
            match v {
                Value::Result(Err(e)) => return Value::result(Err(e.clone())),
                Value::Result(Ok(v)) => all.push((**v).clone()),
                other => all.push(other.clone()),
            }
        }
        return Value::result(Ok(Value::list(all)));
    }
    Value::list(list.iter().cloned())
}

/// Evaluates a method that takes a closure.
fn with_closure(interp: &Rc<Interp>, list: &[Value], name: &str, args: &[Value]) -> Eval<Option<Value>> {
    let apply = |f: &Value, v: &Value| interp.apply(f, vec![v.clone()]);
    let mut out = Vec::new();
    Ok(Some(match (name, args) {
        ("map" | "for_each" | "inspect", [f]) => {
            for v in list {
                let made = apply(f, v)?;
                out.push(if name == "inspect" { v.clone() } else { made });
            }
            if name == "for_each" { Value::Unit } else { Value::list(out) }
        }
        ("try_for_each", [f]) => {
            for v in list {
                if let Value::Result(Err(e)) = apply(f, v)? {
                    return Ok(Some(Value::result(Err(e))));
                }
            }
            Value::result(Ok(Value::Unit))
        }
        ("filter" | "take_while" | "skip_while", [f]) => {
            let mut taking = name == "take_while";
            let mut skipping = name == "skip_while";
            for v in list {
                let fits = holds(apply(f, v)?);
                taking &= fits;
                skipping &= fits;
                let keep = match name {
                    "filter" => fits,
                    "take_while" => taking,
                    _ => !skipping,
                };
                if keep {
                    out.push(v.clone());
                }
            }
            Value::list(out)
        }
        ("filter_map", [f]) => {
            for v in list {
                if let Value::Option(Some(v)) | Value::Result(Ok(v)) = apply(f, v)? {
                    out.push((*v).clone());
                }
            }
            Value::list(out)
        }
        ("flat_map", [f]) => {
            for v in list {
                out.extend(iterate(&apply(f, v)?)?);
            }
            Value::list(out)
        }
        ("fold", [start, f]) => {
            let mut total = start.clone();
            for v in list {
                total = interp.apply(f, vec![total, v.clone()])?;
            }
            total
        }
        ("reduce", [f]) => {
            let mut all = list.iter().cloned();
            let Some(mut total) = all.next() else { return Ok(Some(Value::Option(None))) };
            for v in all {
                total = interp.apply(f, vec![total, v])?;
            }
            Value::some(total)
        }
        ("any" | "all", [f]) => {
            let any = name == "any";
            for v in list {
                if holds(apply(f, v)?) == any {
                    return Ok(Some(Value::Bool(any)));
                }
            }
            Value::Bool(!any)
        }
        ("find" | "position" | "find_map", [f]) => {
            for (i, v) in list.iter().enumerate() {
                match apply(f, v)? {
                    Value::Option(Some(v)) if name == "find_map" => return Ok(Some(Value::Option(Some(v)))),
                    Value::Bool(true) if name == "find" => return Ok(Some(Value::some(v.clone()))),
                    Value::Bool(true) => return Ok(Some(Value::some(Value::count(i)))),
                    _ => {}
                }
            }
            Value::Option(None)
        }
        ("max_by_key" | "min_by_key", [f]) => {
            let mut keys = Vec::new();
            for v in list {
                keys.push(Value::tuple([apply(f, v)?, v.clone()]));
            }
            let mut best: Option<Value> = None;
            for pair in keys {
                let better = match &best {
                    None => true,
                    Some(b) => {
                        let order = operator::compare(
                            &crate::eval::field(&pair, "0")?,
                            &crate::eval::field(b, "0")?,
                        )?;
                        if name == "max_by_key" { order != Ordering::Less } else { order == Ordering::Less }
                    }
                };
                if better {
                    best = Some(pair);
                }
            }
            match best {
                Some(pair) => Value::some(crate::eval::field(&pair, "1")?),
                None => Value::Option(None),
            }
        }
        ("max_by" | "min_by", [_]) => extreme(list, name == "max_by")?,
        _ => return Ok(None),
    }))
}

/// Evaluates a method of a text.
pub(super) fn text(
    interp: &Rc<Interp>,
    text: &str,
    name: &str,
    generics: Option<&str>,
    args: &[Value],
) -> Eval<Option<Value>> {
    let pieces = |list: Vec<&str>| Value::list(list.into_iter().map(Value::text));
    let first = || args.first().map(plain).unwrap_or_default();
    Ok(Some(match (name, args) {
        ("len", []) => Value::count(text.len()),
        ("is_empty", []) => Value::Bool(text.is_empty()),
        ("contains", [_]) => Value::Bool(text.contains(&first())),
        ("starts_with", [_]) => Value::Bool(text.starts_with(&first())),
        ("ends_with", [_]) => Value::Bool(text.ends_with(&first())),
        ("lines", []) => pieces(text.lines().collect()),
        ("split", [_]) => pieces(text.split(&first()).collect()),
        ("split_whitespace", []) => pieces(text.split_whitespace().collect()),
        ("trim", []) => Value::text(text.trim()),
        ("trim_end", []) => Value::text(text.trim_end()),
        ("trim_start", []) => Value::text(text.trim_start()),
        ("chars", []) => Value::list(text.chars().map(Value::Char)),
        ("bytes", []) => Value::list(text.bytes().map(|b| Value::Int(b.into(), NumType::U8))),
        ("to_uppercase", []) => Value::text(text.to_uppercase()),
        ("to_lowercase", []) => Value::text(text.to_lowercase()),
        ("replace", [a, b]) => Value::text(text.replace(&plain(a), &plain(b))),
        ("repeat", [n]) => Value::text(text.repeat(usize::try_from(integer(n)?).unwrap_or(0).min(1 << 16))),
        ("name" | "text" | "as_bytes", []) => Value::text(text),
        ("matches", [_]) => pieces(text.matches(&first()).collect()),
        ("to_svg", []) => Value::text(text),
        ("parse", []) => match (text.trim().parse::<i64>(), text.trim().parse::<f64>()) {
            (Ok(n), _) => Value::result(Ok(Value::Int(
                n.into(),
                generics.and_then(NumType::named).unwrap_or(NumType::Open),
            ))),
            (_, Ok(x)) => {
                Value::result(Ok(Value::Float(x, generics.and_then(NumType::named).unwrap_or(NumType::Open))))
            }
            _ => Value::result(Err(atmesh::Error::other(format!("`{text}` is not a number")))),
        },
        ("find", [_]) => Value::option(text.find(&first()).map(Value::count)),
        ("split_once", [_]) => Value::option(
            text.split_once(&first()).map(|(a, b)| Value::tuple([Value::text(a), Value::text(b)])),
        ),
        ("map" | "filter" | "all" | "any" | "position", [_]) => {
            let chars: Vec<Value> = text.chars().map(Value::Char).collect();
            return method(interp, &chars, name, generics, args);
        }
        _ => return Ok(None),
    }))
}
