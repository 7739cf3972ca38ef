//! `einsum!("bsd,dh->bsh", x, w)`: finds the operands and dims of every letter.

use crate::tokens::{Code, Input, Result, code, code_with, fail};
use proc_macro::{Span, TokenTree};
use std::fmt::Write;

const WANTED: &str = "expected subscripts such as \"mk,kn->mn\", then one or two operands, then a spec if the result's sharding is stated";

struct Subscripts {
    at: Span,
    text: String,
    operands: Vec<String>,
    out: String,
}

fn subscripts(it: &mut Input) -> Result<Subscripts> {
    let at = it.here();
    let Some(TokenTree::Literal(l)) = it.next() else { return fail(at, WANTED) };
    let text = l.to_string().replace(' ', "");
    let Some(text) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) else {
        return fail(at, WANTED);
    };
    let Some((operands, out)) = text.split_once("->") else {
        return fail(at, "expected `->` and the letters of the result: \"mk,kn->mn\"");
    };
    let operands: Vec<String> = operands.split(',').map(String::from).collect();
    for letters in operands.iter().map(String::as_str).chain([out]) {
        for (i, c) in letters.char_indices() {
            if !c.is_ascii_alphabetic() {
                return fail(at, format!("`{c}` is not a letter: each dim is named by one"));
            }
            if letters[..i].contains(c) {
                return fail(
                    at,
                    format!("`{c}` names two dims of one array: take the diagonal in the dynamic layer"),
                );
            }
        }
    }
    if operands.len() > 2 {
        return fail(at, "`einsum!` takes one operand or two: contract more of them pair by pair");
    }
    if let Some(c) = out.chars().find(|c| !operands.iter().any(|o| o.contains(*c))) {
        return fail(at, format!("`{c}` is in the result but in no operand"));
    }
    Ok(Subscripts { at, text: text.to_string(), operands, out: out.to_string() })
}

/// Sums away the dims whose letters appear nowhere else.
/// Returns the operand, by reference, and the letters that are left.
fn summed(operand: Code, letters: &str, keep: impl Fn(char) -> bool) -> (Code, String) {
    let mut text = format!("(&(OPERAND).with_letters::<LIB::shape::D<{}>>()", letters.len());
    for (i, _) in letters.char_indices().rev().filter(|(_, c)| !keep(*c)) {
        let _ = write!(text, ".sum(LIB::shape::D::<{i}>)");
    }
    text.push(')');
    let out = code_with(&text, &[("OPERAND", &operand)]);
    (out, letters.chars().filter(|c| keep(*c)).collect())
}

pub(crate) fn einsum(it: &mut Input) -> Result<Code> {
    let Subscripts { at, text, operands, out } = subscripts(it)?;
    let at_end = it.here();
    it.comma("`,` and the operands")?;
    let mut arguments = Vec::new();
    while !it.is_empty() {
        arguments.push(it.until(',').0.rest());
    }
    let spec = match arguments.len().checked_sub(operands.len()) {
        Some(0) => None,
        Some(1) if operands.len() == 2 => arguments.pop(),
        _ => {
            return fail(
                at_end,
                format!("the subscripts {text:?} are for {} operands; {WANTED}", operands.len()),
            );
        }
    };
    let mut arguments = arguments.into_iter();
    let (Some(x), a) = (arguments.next(), &operands[0]) else { return fail(at, WANTED) };
    let Some(w) = arguments.next() else {
        let (x, a) = summed(x, a, |c| out.contains(c));
        let order: String =
            out.chars().map(|c| format!("LIB::shape::D<{}>,", a.find(c).unwrap_or(0))).collect();
        return Ok(x.then(code(&format!(".permuted::<({order})>()"))));
    };
    let b = &operands[1];
    let (x, a) = summed(x, a, |c| out.contains(c) || b.contains(c));
    let (w, b) = summed(w, b, |c| out.contains(c) || operands[0].contains(c));
    // batch dims take the left operand's sharding; if the dims are in the order of the result only
    // after exchanging the operands, the second operand counts as the left one
    let together = out.chars().filter(|c| a.contains(*c) && b.contains(*c));
    let alone = a.chars().filter(|c| !b.contains(*c)).chain(b.chars().filter(|c| !a.contains(*c)));
    let turned = !together.chain(alone).eq(out.chars());
    let both = if turned && spec.is_none() { "SwappedDim" } else { "PairedDim" };
    let (mut outs, mut over) = (String::new(), String::new());
    for c in out.chars() {
        let _ = match (a.find(c), b.find(c)) {
            (Some(i), Some(j)) => write!(outs, "LIB::rules::einsum::{both}<{i}, {j}>,"),
            (Some(i), None) => write!(outs, "LIB::rules::einsum::LeftDim<{i}>,"),
            (_, j) => write!(outs, "LIB::rules::einsum::RightDim<{}>,", j.unwrap_or(0)),
        };
    }
    for (i, c) in a.char_indices().filter(|(_, c)| !out.contains(*c)) {
        if let Some(j) = b.find(c) {
            let _ = write!(over, "LIB::rules::einsum::PairedDim<{i}, {j}>,");
        }
    }
    let text = format!("{a},{b}->{out}");
    let names = [("LEFT", &x), ("RIGHT", &w)];
    Ok(match spec {
        None => code_with(&format!("LEFT.einsum_by::<({outs}), ({over}), _>({text:?}, RIGHT)"), &names),
        Some(spec) => code_with(
            &format!("LEFT.einsum_to_by::<({outs}), ({over}), _, _>({text:?}, RIGHT, SPEC)"),
            &[&names[..], &[("SPEC", &spec)]].concat(),
        ),
    })
}
