//! Helps of an error as source: those that can be are the whole program with the mend in its place.

use crate::refusal::Refusal;
use crate::syntax::{Kind, Node};
use atmesh::Error;

/// The refusal of an operation, which is this part of the text, with these operands.
pub(crate) fn refusal(error: &Error, text: &str, node: &Node, operands: &[&Node]) -> Refusal {
    let span = underlined(node);
    // a help that names no operand is about the only one
    let alone = error.diagnostics().first().is_some_and(|d| d.operands.len() == 1);
    helped(error, |help| replaced(help, alone, text, node, operands)).at(span.0, span.1)
}

/// The refusal with its helps as they are.
pub(crate) fn told(error: &Error) -> Refusal {
    helped(error, |_| None)
}

fn helped(error: &Error, source: impl Fn(&str) -> Option<String>) -> Refusal {
    let mut refusal = Refusal::of(error);
    let Some(d) = error.diagnostics().first() else { return refusal };
    for (what, out) in &d.fault.choices {
        let out = out.to_string();
        let call = d.twin.as_ref().map_or_else(|| out.clone(), |twin| twin.replace("{}", &out));
        let help = format!("{what}: `{call}`");
        let source = source(&help);
        refusal = refusal.help(help, source);
    }
    for help in &d.fault.help {
        refusal = refusal.help(help.clone(), source(help));
    }
    refusal
}

/// What is underlined: of a method its name, of an operator all of it.
fn underlined(node: &Node) -> (usize, usize) {
    match &node.kind {
        Kind::Method { name, at, .. } => (*at, at + name.len()),
        Kind::Call(name, _) => (node.from, node.from + name.len()),
        _ => (node.from, node.to),
    }
}

/// The program after this help, where it says a change of source: `…operand 1: `.reshard(p![_])``, `…: `x.dot_to(&w, p![_])``.
fn replaced(help: &str, alone: bool, text: &str, node: &Node, operands: &[&Node]) -> Option<String> {
    let codes: Vec<(usize, &str)> = quoted(help);
    let (_, code) = codes.first()?;
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    if code.starts_with('.') {
        for (at, code) in &codes {
            let told = help[..*at].rsplit("operand ").next().filter(|_| help[..*at].contains("operand "));
            let number =
                told.and_then(|t| t.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok());
            // operands that are arrays: of a method the first are what it is of and its arguments
            let operand = match number {
                Some(n) => operands.get(n)?,
                None if alone => operands.first()?,
                None => return None,
            };
            // a text with an ellipsis says that something is left to choose
            if code.contains('…') {
                return None;
            }
            let bare = matches!(operand.kind, Kind::Name(_) | Kind::Method { .. } | Kind::Call(..));
            let source = &text[operand.from..operand.to];
            let source = if bare { source.to_string() } else { format!("({})", unbracketed(source)) };
            edits.push((operand.from, operand.to, source + code));
        }
    } else {
        // the sharding of the result, by the twin of the call: its last argument
        let spec = &code[code.rfind("p![")?..code.rfind(']')? + 1];
        if spec.contains('…') {
            return None;
        }
        let (name, at, close, args) = match &node.kind {
            Kind::Method { name, at, close, args, .. } => (name, *at, *close, args.len()),
            Kind::Call(name, args) => (name, node.from, node.to - 1, args.len()),
            _ => return None,
        };
        code.strip_prefix("x.").unwrap_or(code).strip_prefix(&format!("{name}_to("))?;
        edits.push((at, at + name.len(), format!("{name}_to")));
        edits.push((close, close, format!("{}{spec}", if args == 0 { "" } else { ", " })));
    }
    let mut out = text.to_string();
    // from the end, so that what is before stays where it is
    while let Some(last) = (0..edits.len()).rev().max_by_key(|e| edits[*e].0) {
        let (from, to, source) = edits.remove(last);
        out.replace_range(from..to, &source);
    }
    Some(out)
}

/// A source without the brackets around all of it.
fn unbracketed(source: &str) -> &str {
    let Some(inner) = source.strip_prefix('(').and_then(|s| s.strip_suffix(')')) else { return source };
    let mut depth = 0i32;
    let closed = inner.chars().any(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth < 0
    });
    if closed { source } else { inner }
}

/// What stands between backquotes, and where.
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
