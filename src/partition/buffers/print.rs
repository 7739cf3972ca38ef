//! Prints operations over buffers.

use super::{BufferOp, BufferProgram};
use crate::partition::Slot;
use std::fmt::{self, Write};

/// Formats slots as `%2, %5`.
pub(crate) fn names(slots: &[Slot]) -> String {
    slots.iter().map(|s| format!("%{s}")).collect::<Vec<_>>().join(", ")
}

/// Formats values as `%2 f32[4,8], %5 i32[8]`.
fn values(p: &BufferProgram<'_>, slots: &[Slot]) -> String {
    let value = |s: &Slot| format!("%{s} {}{}", p.values[*s].dtype.short_name(), p.values[*s].shape);
    slots.iter().map(value).collect::<Vec<_>>().join(", ")
}

impl BufferOp<'_> {
    /// Describes the operation, without its operands.
    pub(crate) fn kind(&self) -> String {
        match self {
            BufferOp::Elementwise(m) => {
                let code: Vec<_> = m.code.insts.iter().map(|i| i.op.info().name).collect();
                format!("map ({})", code.join(", "))
            }
            BufferOp::Contraction(l) => format!("contraction over {:?}", &l.ext[..l.num_loops]),
            BufferOp::Reduction(r) => {
                format!("reduction {:?} over {:?}", r.reducer, &r.loops.ext[..r.loops.num_loops])
            }
            BufferOp::RowKernel(r) => format!("row kernel {}", r.kernel.key()),
            BufferOp::GatherScatter(g) => if g.scatter.is_some() { "scatter" } else { "gather" }.into(),
            BufferOp::Pack { parts, .. } => format!("pack of {} boxes", parts.len()),
            BufferOp::Window(w) => w.kind.name().into(),
            BufferOp::Loop(l) => format!("loop of {} iterations", l.length),
            BufferOp::While(_) => "while loop".into(),
            BufferOp::Branch(b) => format!("branch of {} programs", b.arms.len()),
            BufferOp::Print { .. } => "print".into(),
        }
    }
}

impl BufferProgram<'_> {
    fn write(&self, f: &mut String, indent: usize) -> fmt::Result {
        writeln!(f, "{:indent$}({}) {{", "", values(self, &self.ins))?;
        for op in &self.ops {
            let (results, sources) = (values(self, &op.results()), names(&op.sources()));
            writeln!(f, "{:indent$}  {results} = {} of {sources}", "", op.kind())?;
            op.nested_programs().into_iter().try_for_each(|nested| nested.write(f, indent + 4))?;
        }
        writeln!(f, "{:indent$}  return {}", "", names(&self.outs))?;
        writeln!(f, "{:indent$}}}", "")
    }
}

/// Prints operations as `%3 f32[4] = map (mul, add) of %0, %1`.
impl fmt::Display for BufferProgram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text, 0)?;
        f.write_str(&text)
    }
}
