//! Diagnostics as text, with the user's source line where the file can be read.

use super::Diagnostic;
use std::fmt;

/// Writes each diagnostic: the sentence, the source line, operand types, and what to write instead.
pub(super) fn render(list: &[Diagnostic], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, d) in list.iter().enumerate() {
        if i > 0 {
            writeln!(f)?;
        }
        write!(f, "error[{}]: {}: {}", d.fault.kind.name(), d.op, d.fault.message)?;
        if let Some(place) = d.place {
            write!(f, "\n  --> {place}")?;
        }
        if !d.operands.is_empty() {
            write!(f, "\n  operands: {}", d.operands.join(", "))?;
        }
        for h in &d.fault.help {
            write!(f, "\n  help: {h}")?;
        }
    }
    Ok(())
}
