//! Prints per-device programs as text, one line per step.

use crate::core::{DType, Mesh, SubAxis, sharding::sub_axes};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, DynamicIndex, LoopNest, Reducer, ScalarArg, ScalarCode, Source,
    StridedRange,
};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, SpmdProgram, Step};
use std::fmt::{self, Write};

/// Prints values as `%0: f32[13·8@X]`: sizes with the axes that shard them.
/// A value that is partial over X has the suffix `{+X}`.
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
    for (step, why) in p.steps.iter().zip(&p.origins) {
        let line = why.location.map(|p| format!("{}:{}", p.file(), p.line())).unwrap_or_default();
        let note = format!("  // {} {line}", why.op);
        let note = note.trim_end();
        match step {
            Step::Fetch { src, requests: needs } => {
                let readers: Vec<_> = needs.iter().map(|n| reader(p, n.consumer_step)).collect();
                writeln!(f, "{pad}  fetch %{src} for {}{note}", readers.join(", "))?;
            }
            Step::Local { out, nest: loop_nest, layout } => {
                let loops = loops(loop_nest, layout, p.mesh.as_ref());
                writeln!(f, "{pad}  {} = {} over {loops}{note}", value(p, *out), body(loop_nest))?;
            }
            Step::Reduce { src, out, combine } => {
                writeln!(
                    f,
                    "{pad}  {} = {} of the partial values of %{src}{note}",
                    value(p, *out),
                    reducer_name(*combine)
                )?;
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
            Step::Branch { selector: which, branches, ins, out } => {
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

/// Returns the name of a step that reads a value: that of its result.
fn reader(p: &SpmdProgram, k: usize) -> String {
    match &p.steps[k] {
        Step::Local { out, .. } => format!("%{out}"),
        _ => format!("step {k}"),
    }
}

fn value(p: &SpmdProgram, s: Slot) -> String {
    format!("%{s}: {}", type_text(p, s))
}

/// Returns the type of a value, with the axes that shard it.
pub(super) fn type_text(p: &SpmdProgram, s: Slot) -> String {
    let stored = &p.slots[s];
    let Layout { dims, partial } = &stored.layout;
    let mesh = p.mesh.as_ref();
    let dims: Vec<String> = dims.iter().zip(&stored.shape[..]).map(|(l, n)| dim(l, *n, mesh)).collect();
    let parts = partial.as_ref().map(|(_, a)| format!("{{+{}}}", axes(a, mesh))).unwrap_or_default();
    format!("{}[{}]{parts}", stored.dtype.short_name(), dims.join(","))
}

/// Formats the type of a value that the compiler adds, such as `f32[4,2]`.
pub(super) fn buffer_type_text(dtype: DType, shape: &[usize]) -> String {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("{}[{}]", dtype.short_name(), dims.join(","))
}

/// Formats a dimension as `102@X`, followed by `-1` if blocks start 1 before their multiples.
fn dim(l: &DimLayout, n: usize, mesh: Option<&Mesh>) -> String {
    let mut text = n.to_string();
    if !l.sub_axes.is_empty() {
        let _ = write!(text, "@{}", axes(&l.sub_axes, mesh));
    }
    if l.origin != 0 {
        let _ = write!(text, "{:+}", -l.origin);
    }
    text
}

fn axes(atoms: &[SubAxis], mesh: Option<&Mesh>) -> String {
    mesh.map_or_else(|| format!("{atoms:?}"), |mesh| sub_axes::name(mesh, atoms))
}

fn loops(s: &LoopNest, layout: &[DimLayout], mesh: Option<&Mesh>) -> String {
    let one = |(l, n): (&DimLayout, &usize)| dim(l, *n, mesh);
    let all: Vec<String> = layout.iter().zip(&s.extents).map(one).collect();
    let (result, folded) = all.split_at(s.rank.min(all.len()));
    if folded.is_empty() {
        format!("[{}]", result.join(","))
    } else {
        format!("[{}; {}]", result.join(","), folded.join(","))
    }
}

/// Returns the name of a reduction.
pub(crate) fn reducer_name(c: Reducer) -> &'static str {
    match c {
        Reducer::Add => "sum",
        Reducer::Mul => "product",
        Reducer::Max => "max",
        Reducer::Min => "min",
        Reducer::And => "all",
        Reducer::Or => "any",
        Reducer::AssumeEqual => "one",
    }
}

fn body(s: &LoopNest) -> String {
    let reads: Vec<String> = s.accesses.iter().map(|r| read(r, &s.extents)).collect();
    match &s.compute {
        Compute::Map(c) => code(c, &reads),
        Compute::Reduce { reducer: combine, code: c } => {
            format!("{} of {}", reducer_name(*combine), code(c, &reads))
        }
        Compute::Contract { .. } => format!("sum of {}", reads.join(" · ")),
        Compute::RowKernel(row_kernel) => match row_kernel.result_index {
            0 => format!("{} of {}", row_kernel.kernel.key(), reads.join(", ")),
            k => format!("result {k} of {} of {}", row_kernel.kernel.key(), reads.join(", ")),
        },
        Compute::Gather { indices: at } => {
            format!("{} where {}", reads.first().map_or("", |r| r), index_bindings(at, &reads))
        }
        Compute::Scatter { indices: at, reducer: combine } => {
            let (was, new) = (reads.first().map_or("", |r| r), reads.get(1).map_or("", |r| r));
            let how =
                combine.map_or("scattered over".into(), |c| format!("scattered by {} into", reducer_name(c)));
            format!("{new} {how} {was} where {}", index_bindings(at, &reads))
        }
        Compute::Reshape => match s.accesses.first().and_then(|r| r.pieces.first()).map(|p| p.source) {
            Some(Source::Value(v)) => format!("reshape %{v}"),
            _ => "reshape".into(),
        },
    }
}

/// Formats the index at which each dynamically indexed loop runs.
fn index_bindings(at: &[DynamicIndex], reads: &[String]) -> String {
    let one = |b: &DynamicIndex| {
        let window = b.window.map_or(String::new(), |w| format!("+{}", index(w)));
        let by = reads.get(b.operand).map_or("?", |r| r);
        format!("{} = {by}{window}", index(b.loop_id))
    };
    at.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Formats the last instruction, with earlier ones inlined where they are used.
fn code(c: &ScalarCode, reads: &[String]) -> String {
    let mut made: Vec<String> = Vec::new();
    for i in &c.insts {
        let arg = |a: &ScalarArg| match a {
            ScalarArg::Access(k) => reads.get(*k).cloned().unwrap_or_else(|| "?".into()),
            ScalarArg::Inst(k) => made.get(*k).cloned().unwrap_or_else(|| "?".into()),
            ScalarArg::Const(c) => c.to_string(),
            ScalarArg::Index(l) => index(*l),
        };
        let args: Vec<String> = i.args.iter().map(arg).collect();
        let name = format!("{:?}", i.op).to_lowercase();
        made.push(if name == "copy" { args.join(", ") } else { format!("{name}({})", args.join(", ")) });
    }
    let text = made.pop().unwrap_or_default();
    // long code is abbreviated
    if text.len() > 240 {
        format!("code of {} instructions on {}", c.insts.len(), reads.join(", "))
    } else {
        text
    }
}

fn index(l: usize) -> String {
    let Some(c) = "ijklmnopqrstuvw".chars().nth(l) else { return format!("i{l}") };
    c.to_string()
}

fn read(r: &Access, extents: &[usize]) -> String {
    let pieces: Vec<String> = r.pieces.iter().map(|p| piece(p, extents)).collect();
    let steps = |p: &AccessPiece| p.ranges.iter().map(|s| s.len() as u128).fold(1, u128::saturating_mul);
    let covered = r.pieces.iter().map(steps).fold(0, u128::saturating_add);
    let fill = if covered < extents.iter().map(|n| *n as u128).fold(1, u128::saturating_mul) {
        format!(" else {}", r.fill)
    } else {
        String::new()
    };
    if pieces.len() == 1 && fill.is_empty() {
        pieces.join("")
    } else {
        format!("{{{}{fill}}}", pieces.join("; "))
    }
}

fn piece(p: &AccessPiece, extents: &[usize]) -> String {
    let from = match p.source {
        Source::Const(c) => c.to_string(),
        Source::Value(v) => {
            let at: Vec<String> = p.map.iter().map(|m| index_text(m, &p.ranges)).collect();
            if at.is_empty() { format!("%{v}") } else { format!("%{v}[{}]", at.join(",")) }
        }
    };
    let cut: Vec<String> = (p.ranges.iter().zip(extents).enumerate())
        .filter(|(_, (s, n))| **s != StridedRange::full(**n))
        .map(|(l, (s, _))| {
            let step = if s.step == 1 { String::new() } else { format!(" by {}", s.step) };
            format!("{} in {}..{}{step}", index(l), s.lo, s.hi)
        })
        .collect();
    if cut.is_empty() { from } else { format!("{from} for {}", cut.join(", ")) }
}

/// Formats an index expression in terms of loop indices.
/// The piece must cover every step of its loops.
fn index_text(m: &AffineExpr, span: &[StridedRange]) -> String {
    let mut text = String::new();
    let mut at = m.constant;
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
