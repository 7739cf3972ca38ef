//! Programs as text.

use super::{Input, Op, Program};
use std::fmt;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self, f, 0)
    }
}

fn name(n: u32) -> String {
    let letter = (b'a' + (n % 26) as u8) as char;
    if n < 26 { letter.to_string() } else { format!("{letter}{}", n / 26) }
}
fn operand(i: &Input) -> String {
    match i {
        Input::Var(v) => name(v.0),
        Input::Lit(l) => l.value.to_string(),
    }
}

fn print(p: &Program, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    let ins: Vec<_> = p.inputs.iter().map(|v| format!("{}: {}", name(v.0), p.ty(*v))).collect();
    writeln!(f, "{pad}({}) {{", ins.join(", "))?;
    for e in &p.equations {
        let outs: Vec<_> = e.outputs.iter().map(|v| format!("{}: {}", name(v.0), p.ty(*v))).collect();
        let ins: Vec<_> = e.inputs.iter().map(operand).collect();
        let place = e.place.map(|p| format!("  // {}:{}", p.file(), p.line())).unwrap_or_default();
        match &e.op {
            Op::Prim(prim) => {
                writeln!(f, "{pad}  {} = {} {}{place}", outs.join(", "), prim.key(), ins.join(" "))?
            }
            Op::Control(c) => {
                writeln!(f, "{pad}  {} = {} {}{place}", outs.join(", "), c.name(), ins.join(" "))?;
                for body in c.bodies() {
                    print(body, f, depth + 2)?;
                }
            }
        }
    }
    let outs: Vec<_> = p.outputs.iter().map(operand).collect();
    writeln!(f, "{pad}  return {}\n{pad}}}", outs.join(", "))
}
