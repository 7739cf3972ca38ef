//! Turns the helps of an error into fixes.
//!
//! If a help gives code, its fix is the whole program with that code inserted.

use crate::error::ErrorResponse;
use crate::syntax::{Kind, Node};
use atmesh::Error;

/// Returns the error of an operation, which is the expression `node`, with its fixes.
pub(crate) fn error_response(error: &Error, text: &str, node: &Node, operands: &[&Node]) -> ErrorResponse {
    let span = underlined(node);
    // a help that names no operand refers to the only one
    let alone = error.diagnostics().first().is_some_and(|d| d.operands.len() == 1);
    helped(error, |help| replaced(help, alone, text, node, operands)).at(span.0, span.1)
}

/// Returns the error with its helps as text only.
pub(crate) fn without_source(error: &Error) -> ErrorResponse {
    helped(error, |_| None)
}

fn helped(error: &Error, source: impl Fn(&str) -> Option<String>) -> ErrorResponse {
    let mut response = ErrorResponse::from_error(error);
    let Some(d) = error.diagnostics().first() else { return response };
    for (what, out) in &d.fault.out_shardings {
        let out = out.to_string();
        let call = d.explicit_form.as_ref().map_or_else(|| out.clone(), |twin| twin.replace("{}", &out));
        let help = format!("{what}: `{call}`");
        let source = source(&help);
        response = response.help(help, source);
    }
    for help in &d.fault.help {
        response = response.help(help.clone(), source(help));
    }
    response
}

/// Returns the part of an expression to underline: a method's name, or all of an operation.
fn underlined(node: &Node) -> (usize, usize) {
    match &node.kind {
        Kind::Method(call) => (call.at, call.at + call.name.len()),
        Kind::Call(callee, _) => (node.from, callee.to),
        _ => (node.from, node.to),
    }
}

/// Returns the program after applying a help, if it gives code.
/// Examples are `…operand 1: `.reshard(p![_])`` and `…: `x.dot_to(&w, p![_])``.
fn replaced(help: &str, alone: bool, text: &str, node: &Node, operands: &[&Node]) -> Option<String> {
    let codes: Vec<(usize, &str)> = quoted(help);
    let (_, code) = codes.first()?;
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    if code.starts_with('.') {
        for (at, code) in &codes {
            let after_name =
                help[..*at].rsplit("operand ").next().filter(|_| help[..*at].contains("operand "));
            let number =
                after_name.and_then(|t| t.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok());
            // the operands that are arrays; for a method, first its object and then its arguments
            let operand = match number {
                Some(n) => operands.get(n)?,
                None if alone => operands.first()?,
                None => return None,
            };
            // a code with an ellipsis leaves a choice to the user
            if code.contains('…') {
                return None;
            }
            let bare = matches!(operand.kind, Kind::Name(..) | Kind::Method(_) | Kind::Call(..));
            let source = &text[operand.from..operand.to];
            let source = if bare { source.to_string() } else { format!("({})", unbracketed(source)) };
            edits.push((operand.from, operand.to, source + code));
        }
    } else {
        // the explicit form of a call takes the sharding of the result as its last argument
        let spec = &code[code.rfind("p![")?..code.rfind(']')? + 1];
        if spec.contains('…') {
            return None;
        }
        let (name, at, close, args) = match &node.kind {
            Kind::Method(call) => (call.name.as_str(), call.at, call.close, call.args.len()),
            Kind::Call(callee, args) => match &callee.kind {
                Kind::Name(name, _) => (&**name, node.from, node.to - 1, args.len()),
                _ => return None,
            },
            _ => return None,
        };
        code.strip_prefix("x.").unwrap_or(code).strip_prefix(&format!("{name}_to("))?;
        edits.push((at, at + name.len(), format!("{name}_to")));
        edits.push((close, close, format!("{}{spec}", if args == 0 { "" } else { ", " })));
    }
    let mut out = text.to_string();
    // edit from the end, so that earlier positions stay valid
    while let Some(last) = (0..edits.len()).rev().max_by_key(|e| edits[*e].0) {
        let (from, to, source) = edits.remove(last);
        out.replace_range(from..to, &source);
    }
    Some(out)
}

/// Removes a pair of brackets that encloses a source text.
fn unbracketed(source: &str) -> &str {
    let Some(inner) = source.strip_prefix('(').and_then(|s| s.strip_suffix(')')) else { return source };
    let mut depth = 0i32;
    let closed = inner.chars().any(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth < 0
    });
    if closed { source } else { inner }
}

/// Returns the texts in backquotes, with their positions.
fn quoted(help: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    help.split('`')
        .enumerate()
        .filter_map(|(k, part)| {
            let here = at;
            at += part.len() + 1;
            (k % 2 == 1).then_some((here, part))
        })
        .collect()
}
