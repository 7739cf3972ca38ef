//! Replaces calls of functions with derivative rules by plain calls, in programs that are not
//! differentiated any more.

use super::{CheckpointPolicy, Control, Equation, Op, Program};
use std::borrow::Cow;
use std::sync::Arc;

/// Returns the program with a plain call of the function for each call that has a rule.
///
/// It is for programs that are not differentiated any more.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::program::without_rules;
/// let sine = |x: &Array| custom_jvp(x, |x| x.sin(), |x, dx| (x.sin(), dx * x.cos()));
/// let traced = jit(sine).trace(&Array::ones([2]))?;
/// assert!(traced.program().to_string().contains("custom_jvp"));
/// assert!(!without_rules(traced.program()).to_string().contains("custom_jvp"));
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn without_rules(program: &Program) -> Cow<'_, Program> {
    if !has_rules(program) {
        return Cow::Borrowed(program);
    }
    let equations = program.equations.iter().map(|e| match &e.op {
        Op::Control(control) => Equation { op: Op::Control(plain_control(control)), ..e.clone() },
        Op::Prim(_) => e.clone(),
    });
    Cow::Owned(Program { equations: equations.collect(), ..program.clone() })
}

/// Returns the operation with a plain call for each call that has a rule.
fn plain_control(control: &Control) -> Control {
    let plain = |body: &Arc<Program>| match without_rules(body) {
        Cow::Borrowed(_) => body.clone(),
        Cow::Owned(program) => Arc::new(program),
    };
    if let Control::Custom(call) = control {
        return Control::call(plain(&call.body), CheckpointPolicy::SaveAll);
    }
    let mut control = control.clone();
    for body in control.bodies_mut() {
        *body = plain(body);
    }
    control
}

fn has_rules(program: &Program) -> bool {
    program.equations.iter().any(|e| match &e.op {
        Op::Control(Control::Custom(_)) => true,
        Op::Control(control) => control.bodies().into_iter().any(|b| has_rules(b)),
        Op::Prim(_) => false,
    })
}
