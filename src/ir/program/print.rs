//! Printing of programs.
//!
//! Each equation is one line: the variables that it binds with their types, the operation, the
//! inputs, and the source location. Nested programs are printed, indented, after their equation.
//! If the placement of a value splits its dimensions differently from its type, the axes of each
//! dimension are printed after the type: `float32[102] over [x]`.

use super::{Control, Input, Op, Program, Var};
use crate::core::{LineLabels, sharding::sub_axes};
use std::fmt;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self, f, 0, &LineLabels::new())
    }
}

/// Returns the printed name of a variable: `a` … `z`, `aa`, `ab`, ….
fn name(v: Var) -> String {
    let (mut n, mut letters) = (v.index() + 1, Vec::new());
    while n > 0 {
        letters.push((b'a' + ((n - 1) % 26) as u8) as char);
        n = (n - 1) / 26;
    }
    letters.iter().rev().collect()
}

fn operand(i: &Input) -> String {
    match i {
        Input::Var(v) => name(*v),
        Input::Lit(l) => l.value.to_string(),
    }
}

fn binding(p: &Program, v: Var) -> String {
    let info = &p.vars[v.index()];
    let mut text = format!("{}: {}", name(v), info.ty);
    if let (Some(mesh), Some(placement)) = (&p.mesh, &info.placement) {
        let typed = sub_axes::from_spec(info.ty.mesh.as_ref().unwrap_or(mesh), info.ty.spec);
        let differs = placement.dims.iter().zip(&typed).any(|(placed, typed)| placed != typed);
        if differs {
            let dims: Vec<_> = placement.dims.iter().map(|d| sub_axes::name(mesh, d)).collect();
            text += &format!(" over [{}]", dims.join(","));
        }
    }
    text
}

fn bindings(p: &Program, vars: &[Var]) -> String {
    vars.iter().map(|v| binding(p, *v)).collect::<Vec<_>>().join(", ")
}

/// Returns the name and parameters of a control operation.
fn control(c: &Control) -> String {
    match c {
        Control::Loop(l) => {
            let way = if l.reverse { ", reverse" } else { "" };
            let end = l.start + l.length as i64;
            format!("{}[{}..{end}, fixed={}, carry={}{way}]", c.name(), l.start, l.fixed, l.carry)
        }
        Control::ShardMap(s) => {
            format!("{}[over={}, in={:?}, out={:?}]", c.name(), s.axes, s.in_specs, s.out_specs)
        }
        Control::Print { template } => format!("{}[{template:?}]", c.name()),
        _ => c.name().to_string(),
    }
}

fn print(p: &Program, f: &mut fmt::Formatter<'_>, depth: usize, lines: &LineLabels) -> fmt::Result {
    let pad = "  ".repeat(depth);
    writeln!(f, "{pad}({}) {{", bindings(p, &p.inputs))?;
    for e in &p.equations {
        let what = match &e.op {
            Op::Prim(prim) => prim.key(),
            Op::Control(c) => control(c),
        };
        let ins: Vec<_> = e.inputs.iter().map(operand).collect();
        let bound =
            if e.outputs.is_empty() { String::new() } else { format!("{} = ", bindings(p, &e.outputs)) };
        let place = e.location.map(|p| format!("  // {}", lines.label(Some(p)))).unwrap_or_default();
        writeln!(f, "{pad}  {bound}{what} {}{place}", ins.join(" "))?;
        if let Op::Control(c) = &e.op {
            for body in c.bodies() {
                print(body, f, depth + 2, lines)?;
            }
        }
    }
    let outs: Vec<_> = p.outputs.iter().map(operand).collect();
    writeln!(f, "{pad}  return {}\n{pad}}}", outs.join(", "))
}
