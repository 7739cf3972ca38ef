//! Per-device programs as text: a line for each step.

use crate::mesh::Mesh;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, SpmdProgram, Step};
use crate::program::sentence::{Affine, Arg, Body, Bound, Code, Combine, Part, Read, Sentence, Source, Span};
use crate::sharding::{Atom, atoms};
use std::fmt::{self, Write};

/// Values are `%0: f32[13·8@X]`-like: sizes with the axes that split them, `{+X}` where they are partial over X.
impl fmt::Display for SpmdProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let _ = print(self, &mut text, 0);
        f.write_str(&text)
    }
}

fn print(p: &SpmdProgram, f: &mut String, depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    let list = |slots: &[Slot]| slots.iter().map(|s| value(p, *s)).collect::<Vec<_>>().join(", ");
    let names = |slots: &[Slot]| slots.iter().map(|s| format!("%{s}")).collect::<Vec<_>>().join(", ");
    writeln!(f, "{pad}({}) {{", list(&p.ins))?;
    for (step, why) in p.steps.iter().zip(&p.whys) {
        let line = why.place.map(|p| format!("{}:{}", p.file(), p.line())).unwrap_or_default();
        let note = format!("  // {} {line}", why.op);
        let note = note.trim_end();
        match step {
            Step::Fetch { src, needs } => {
                let readers: Vec<_> = needs.iter().map(|n| reader(p, n.reader)).collect();
                writeln!(f, "{pad}  fetch %{src} for {}{note}", readers.join(", "))?;
            }
            Step::Local { out, sentence, layout } => {
                let loops = loops(sentence, layout, p.mesh.as_ref());
                writeln!(f, "{pad}  {} = {} over {loops}{note}", value(p, *out), body(sentence))?;
            }
            Step::Reduce { src, out, combine } => {
                writeln!(f, "{pad}  {} = {} of the parts of %{src}{note}", value(p, *out), folded(*combine))?;
            }
            Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } => {
                let way = if *reverse { " from the last" } else { "" };
                writeln!(
                    f,
                    "{pad}  {}; {} = loop {length} from {start}{way}, fixed {}; carry {}; over {}{note}",
                    list(out),
                    list(ys),
                    names(fixed),
                    names(carry),
                    names(xs)
                )?;
                print(body, f, depth + 2)?;
            }
            Step::While { cond, body, cond_fixed, body_fixed, carry, out } => {
                writeln!(
                    f,
                    "{pad}  {} = while, fixed {}; {}; carry {}{note}",
                    list(out),
                    names(cond_fixed),
                    names(body_fixed),
                    names(carry)
                )?;
                print(cond, f, depth + 2)?;
                print(body, f, depth + 2)?;
            }
            Step::Branch { which, branches, ins, out } => {
                writeln!(f, "{pad}  {} = branch %{which} of {}{note}", list(out), names(ins))?;
                branches.iter().try_for_each(|b| print(b, f, depth + 2))?;
            }
            Step::Print { template, values, .. } => {
                let slots: Vec<Slot> = values.iter().map(|v| v.slot).collect();
                writeln!(f, "{pad}  print {template:?} {}{note}", names(&slots))?;
            }
        }
    }
    writeln!(f, "{pad}  return {}\n{pad}}}", names(&p.outs))
}

/// A reader, by what it makes.
fn reader(p: &SpmdProgram, k: usize) -> String {
    match &p.steps[k] {
        Step::Local { out, .. } => format!("%{out}"),
        _ => format!("step {k}"),
    }
}

fn value(p: &SpmdProgram, s: Slot) -> String {
    format!("%{s}: {}", of(p, s))
}

/// The type of a value, with the axes that split it.
pub(super) fn of(p: &SpmdProgram, s: Slot) -> String {
    let stored = &p.slots[s];
    let Layout { dims, partial } = &stored.layout;
    let mesh = p.mesh.as_ref();
    let dims: Vec<String> = dims.iter().zip(&stored.shape[..]).map(|(l, n)| dim(l, *n, mesh)).collect();
    let parts = partial.as_ref().map(|(_, a)| format!("{{+{}}}", axes(a, mesh))).unwrap_or_default();
    format!("{}[{}]{parts}", stored.dtype.short(), dims.join(","))
}

/// `102@X`, with `-1` behind it if blocks begin 1 before their multiples.
fn dim(l: &DimLayout, n: usize, mesh: Option<&Mesh>) -> String {
    let mut text = n.to_string();
    if !l.atoms.is_empty() {
        let _ = write!(text, "@{}", axes(&l.atoms, mesh));
    }
    if l.origin != 0 {
        let _ = write!(text, "{:+}", -l.origin);
    }
    text
}

fn axes(atoms: &[Atom], mesh: Option<&Mesh>) -> String {
    mesh.map_or_else(|| format!("{atoms:?}"), |mesh| atoms::name(mesh, atoms))
}

fn loops(s: &Sentence, layout: &[DimLayout], mesh: Option<&Mesh>) -> String {
    let one = |(l, n): (&DimLayout, &usize)| dim(l, *n, mesh);
    let all: Vec<String> = layout.iter().zip(&s.extents).map(one).collect();
    let (result, folded) = all.split_at(s.rank.min(all.len()));
    if folded.is_empty() {
        format!("[{}]", result.join(","))
    } else {
        format!("[{}; {}]", result.join(","), folded.join(","))
    }
}

fn folded(c: Combine) -> &'static str {
    match c {
        Combine::Add => "sum",
        Combine::Mul => "product",
        Combine::Max => "max",
        Combine::Min => "min",
        Combine::And => "all",
        Combine::Or => "any",
        Combine::Same => "one",
    }
}

fn body(s: &Sentence) -> String {
    let reads: Vec<String> = s.reads.iter().map(|r| read(r, &s.extents)).collect();
    match &s.body {
        Body::Map(c) => code(c, &reads),
        Body::Fold { combine, code: c } => format!("{} of {}", folded(*combine), code(c, &reads)),
        Body::Product { .. } => format!("sum of {}", reads.join(" · ")),
        Body::Lines(lines) => match lines.result {
            0 => format!("{} of {}", lines.of.key(), reads.join(", ")),
            k => format!("result {k} of {} of {}", lines.of.key(), reads.join(", ")),
        },
        Body::Take { at } => format!("{} where {}", reads.first().map_or("", |r| r), places(at, &reads)),
        Body::Put { at, combine } => {
            let (was, new) = (reads.first().map_or("", |r| r), reads.get(1).map_or("", |r| r));
            let how = combine.map_or("put over".into(), |c| format!("put by {} into", folded(c)));
            format!("{new} {how} {was} where {}", places(at, &reads))
        }
        Body::Reshape => match s.reads.first().and_then(|r| r.parts.first()).map(|p| p.from) {
            Some(Source::Value(v)) => format!("reshape %{v}"),
            _ => "reshape".into(),
        },
    }
}

/// Which step each bound loop has.
fn places(at: &[Bound], reads: &[String]) -> String {
    let one = |b: &Bound| {
        let window = b.window.map_or(String::new(), |w| format!("+{}", index(w)));
        let by = reads.get(b.by).map_or("?", |r| r);
        format!("{} = {by}{window}", index(b.index))
    };
    at.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The last instruction, with the earlier ones where they are used.
fn code(c: &Code, reads: &[String]) -> String {
    let mut made: Vec<String> = Vec::new();
    for i in &c.insts {
        let arg = |a: &Arg| match a {
            Arg::Read(k) => reads.get(*k).cloned().unwrap_or_else(|| "?".into()),
            Arg::Inst(k) => made.get(*k).cloned().unwrap_or_else(|| "?".into()),
            Arg::Const(c) => c.to_string(),
            Arg::Index(l) => index(*l),
        };
        let args: Vec<String> = i.args.iter().map(arg).collect();
        let name = format!("{:?}", i.fun).to_lowercase();
        made.push(if name == "copy" { args.join(", ") } else { format!("{name}({})", args.join(", ")) });
    }
    let text = made.pop().unwrap_or_default();
    // long code says little
    if text.len() > 240 {
        format!("code of {} instructions on {}", c.insts.len(), reads.join(", "))
    } else {
        text
    }
}

fn index(l: usize) -> String {
    match "ijklmnopqrstuvw".chars().nth(l) {
        Some(c) => c.to_string(),
        None => format!("i{l}"),
    }
}

fn read(r: &Read, extents: &[usize]) -> String {
    let parts: Vec<String> = r.parts.iter().map(|p| part(p, extents)).collect();
    let steps = |p: &Part| p.span.iter().map(|s| s.len() as u128).fold(1, u128::saturating_mul);
    let covered = r.parts.iter().map(steps).fold(0, u128::saturating_add);
    let fill = if covered < extents.iter().map(|n| *n as u128).fold(1, u128::saturating_mul) {
        format!(" else {}", r.fill)
    } else {
        String::new()
    };
    if parts.len() == 1 && fill.is_empty() {
        parts.join("")
    } else {
        format!("{{{}{fill}}}", parts.join("; "))
    }
}

fn part(p: &Part, extents: &[usize]) -> String {
    let from = match p.from {
        Source::Const(c) => c.to_string(),
        Source::Value(v) => {
            let at: Vec<String> = p.map.iter().map(|m| position(m, &p.span)).collect();
            if at.is_empty() { format!("%{v}") } else { format!("%{v}[{}]", at.join(",")) }
        }
    };
    let cut: Vec<String> = (p.span.iter().zip(extents).enumerate())
        .filter(|(_, (s, n))| **s != Span::all(**n))
        .map(|(l, (s, _))| {
            let step = if s.step == 1 { String::new() } else { format!(" by {}", s.step) };
            format!("{} in {}..{}{step}", index(l), s.lo, s.hi)
        })
        .collect();
    if cut.is_empty() { from } else { format!("{from} for {}", cut.join(", ")) }
}

/// The position in terms of indices, where a part covers every step of its loops.
fn position(m: &Affine, span: &[Span]) -> String {
    let mut text = String::new();
    let mut at = m.at;
    for (l, c) in &m.terms {
        let s = span[*l];
        let name = if s.step == 1 {
            at -= c * s.lo;
            index(*l)
        } else {
            format!("({}-{})/{}", index(*l), s.lo, s.step)
        };
        let plus = if text.is_empty() { "" } else { "+" };
        let _ = match c {
            1 => write!(text, "{plus}{name}"),
            -1 => write!(text, "-{name}"),
            c if *c < 0 => write!(text, "{c}{name}"),
            c => write!(text, "{plus}{c}{name}"),
        };
    }
    if text.is_empty() {
        return at.to_string();
    }
    if at != 0 {
        let _ = write!(text, "{at:+}");
    }
    text
}
