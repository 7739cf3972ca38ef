//! Answers questions with a whole program: runs it, and returns what it prints.

use crate::error::ErrorResponse;
use crate::eval::{Interp, Stop};
use crate::syntax;
use crate::value::{Scope, Value};
use atmesh::Array;
use serde_json::{Value as Json, json};
use std::rc::Rc;

/// The maximum number of pictures, and the size of one in pixels.
const MAX_PICTURES: usize = 6;
const SIDE_PX: f64 = 168.0;

/// A program: the part that is shown, with the hidden lines around it.
pub(crate) struct Source<'a> {
    pub(crate) before: String,
    pub(crate) shown: &'a str,
    pub(crate) after: &'a str,
    /// The earlier programs of the page, which may define names of this one.
    pub(crate) context: Vec<&'a str>,
}

/// The result of a run.
struct Ran {
    interp: Rc<Interp>,
    text: String,
    value: Result<Value, ErrorResponse>,
}

/// Runs a program, and returns the answer.
pub(crate) fn answer(source: &Source<'_>) -> Json {
    let mut ran = run(&source.before, source.shown, source.after);
    if ran.value.as_ref().is_err_and(ErrorResponse::is_missing) && !source.context.is_empty() {
        // the nearest programs first: a page need not be one program
        for count in 1..=source.context.len() {
            let context = &source.context[source.context.len() - count..];
            // a program may end in an expression
            let before = format!("{}\n;\n{}", context.join("\n;\n"), source.before);
            let again = run(&before, source.shown, source.after);
            if again.value.is_ok() {
                ran = again;
                break;
            }
        }
    }
    described(ran, source)
}

fn run(before: &str, shown: &str, after: &str) -> Ran {
    let text = format!("{before}{shown}{after}");
    let is_part = !before.trim().is_empty() || !after.trim().is_empty();
    let range = if is_part { before.len()..before.len() + shown.len() } else { 0..0 };
    let value = interpreted(&text, range.clone());
    // a part that only defines functions: the whole program shows what they do
    match value {
        (interp, Ok(_)) if is_part && interp.printed.borrow().is_empty() => {
            let (whole, value) = interpreted(&text, 0..0);
            Ran { interp: whole, text, value }
        }
        (interp, value) => Ran { interp, text, value },
    }
}

fn interpreted(text: &str, shown: std::ops::Range<usize>) -> (Rc<Interp>, Result<Value, ErrorResponse>) {
    let interp = Interp::new(text, shown, false, None);
    let value = syntax::parse(text).and_then(|program| {
        let value = match interp.program(&program, &Scope::default()) {
            Ok(value) => value,
            Err(Stop::Return(value)) => *value,
            Err(Stop::Error(r)) => return Err(r),
            Err(_) => return Err(syntax_error!("`break` is outside of a loop")),
        };
        match value {
            Value::Result(Err(e)) => Err(interp.response(&e)),
            value => Ok(value),
        }
    });
    (interp, value)
}

fn described(ran: Ran, source: &Source<'_>) -> Json {
    let mut answer = json!({ "printed": *ran.interp.printed.borrow() });
    let fields = answer.as_object_mut();
    let Some(fields) = fields else { return answer };
    match &ran.value {
        Err(response) => {
            let mut error = response.json(&ran.text);
            // a fix replaces the part that is shown
            for help in error["helps"].as_array_mut().into_iter().flatten() {
                help["source"] = match help["source"].as_str().and_then(|s| part(s, &ran.text, source)) {
                    Some(part) => part.into(),
                    None => Json::Null,
                };
            }
            fields.insert("error".into(), error);
        }
        Ok(value) => {
            if let Some(text) = shown_value(value) {
                fields.insert("value".into(), text.into());
            }
        }
    }
    let mut drawn: Vec<(String, Array)> = ran.interp.pictures.borrow().clone();
    // a name that was given several values is drawn with its last one
    let mut seen = Vec::new();
    drawn.reverse();
    drawn.retain(|(name, _)| !seen.contains(name) && (seen.push(name.clone()), true).1);
    drawn.reverse();
    let pictures = drawn.iter().take(MAX_PICTURES).map(|(name, x)| {
        let ty = x.ty().map(|t| t.to_string()).unwrap_or_default();
        json!({ "name": name, "type": ty, "picture": x.visualize().to_svg_sized(SIDE_PX) })
    });
    fields.insert("pictures".into(), pictures.collect());
    answer
}

/// Returns the last value of a program, if it is worth showing.
fn shown_value(value: &Value) -> Option<String> {
    match value {
        Value::Array(x) => x.ty().ok().map(|ty| format!("{ty}\n{x}")),
        Value::Text(text) => Some(text.to_string()),
        Value::Collectives(report) => Some(crate::lines::located(&report.to_string())),
        Value::Int(..) | Value::Float(..) => Some(crate::format::plain(value)),
        _ => None,
    }
}

/// Returns the shown part of an edited program.
fn part(edited: &str, text: &str, source: &Source<'_>) -> Option<String> {
    let before = text.len() - source.shown.len() - source.after.len();
    let rest = edited.strip_prefix(&text[..before])?;
    rest.strip_suffix(source.after).map(str::to_string)
}
