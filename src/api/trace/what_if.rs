//! Trials: re-tracing a function as if the user had written one more resharding, for `explain`.
//!
//! While a trial is active on a thread, it reshards the results of one of the user's operations
//! (identified by name and source location), or changes the output sharding that the operation
//! requests.

use crate::core::{Result, SourceLocation, Spec};
use crate::ir::ops::sharding::{Constrain, Reshard};
use crate::ir::program::{Builder, Equation, Input, Op, Phase, Prim, Value};
use std::cell::RefCell;
use std::sync::Arc;

/// An operation of the user's program: its name and its source location.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    pub(crate) op: String,
    pub(crate) location: SourceLocation,
}

/// The edit that a trial applies to a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TrialEdit {
    /// A resharding over explicit axes.
    Reshard(Reshard),
    /// A sharding constraint over auto axes.
    Constrain(Constrain),
    /// A result sharding over explicit axes, requested of the operation itself.
    OutSharding(Spec),
}

impl TrialEdit {
    /// Returns the value with the edit applied.
    pub(crate) fn apply_to(&self, b: &mut Builder, x: &Value) -> Result<Value> {
        let prim: Prim = match self {
            TrialEdit::Reshard(r) => Arc::new(r.clone()),
            TrialEdit::Constrain(c) => Arc::new(c.clone()),
            TrialEdit::OutSharding(out) => return with_out_sharding(b, x, *out),
        };
        b.emit1(prim, std::slice::from_ref(x))
    }
}

/// Returns the equation that computes a value, if it is in this builder.
fn producer<'a>(b: &'a Builder, x: &Value) -> Option<&'a Equation> {
    let Input::Var(var) = x.input else { return None };
    b.program().equations.iter().rev().find(|e| e.outputs.contains(&var))
}

/// Recomputes the value with another requested result sharding.
/// Returns it unchanged if the operation does not take one.
fn with_out_sharding(b: &mut Builder, x: &Value, out: Spec) -> Result<Value> {
    let Some(e) = producer(b, x) else { return Ok(x.clone()) };
    let Op::Prim(prim) = &e.op else { return Ok(x.clone()) };
    let Some(prim) = prim.with_out_sharding(out) else { return Ok(x.clone()) };
    let value = |i: &Input| Value { input: *i, ty: b.program().input_type(i) };
    let inputs: Vec<Value> = e.inputs.iter().map(value).collect();
    b.emit1(prim, &inputs)
}

thread_local! {
    static ACTIVE_TRIAL: RefCell<Option<(Site, TrialEdit)>> = const { RefCell::new(None) };
}

/// Runs `f` while this trial is active.
pub(crate) fn with_trial<R>(site: &Site, ask: &TrialEdit, f: impl FnOnce() -> R) -> R {
    struct ClearOnDrop;
    impl Drop for ClearOnDrop {
        fn drop(&mut self) {
            ACTIVE_TRIAL.with_borrow_mut(|on| *on = None);
        }
    }
    ACTIVE_TRIAL.with_borrow_mut(|on| *on = Some((site.clone(), ask.clone())));
    let _off = ClearOnDrop;
    f()
}

/// Applies the active trial, if any, to the values just recorded.
pub(super) fn apply_trial(b: &mut Builder, out: &mut [Value]) -> Result<()> {
    // while a thread ends its trial no longer exists
    let on = ACTIVE_TRIAL.try_with(|on| on.borrow().clone()).ok().flatten();
    let Some((site, ask)) = on else { return Ok(()) };
    for value in out {
        let Some(e) = producer(b, value) else { continue };
        if e.phase == Phase::Forward && e.location == Some(site.location) && e.op.name() == site.op {
            *value = ask.apply_to(b, value)?;
        }
    }
    Ok(())
}
