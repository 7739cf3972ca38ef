//! What would be if the user had written one thing more: while a trial is on, results of one operation on one line are moved as it says.

use crate::diagnostic::{Place, Result};
use crate::ops::sharding::{Constrain, Reshard};
use crate::program::{Builder, Equation, Input, Op, Phase, Prim, Value};
use crate::sharding::Spec;
use std::cell::RefCell;
use std::sync::Arc;

/// An operation of the user's: its name in programs, and its line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    pub(crate) op: String,
    pub(crate) place: Place,
}

/// How a value is to be sharded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ask {
    /// Over explicit axes.
    Reshard(Reshard),
    /// Over auto axes.
    Constrain(Constrain),
    /// Over explicit axes, by what the operation is asked for.
    Out(Spec),
}

impl Ask {
    /// The value, sharded so.
    pub(crate) fn of(&self, b: &mut Builder, x: &Value) -> Result<Value> {
        let prim: Prim = match self {
            Ask::Reshard(r) => Arc::new(r.clone()),
            Ask::Constrain(c) => Arc::new(c.clone()),
            Ask::Out(out) => return asked(b, x, *out),
        };
        b.emit1(prim, std::slice::from_ref(x))
    }
}

/// The equation that makes a value, if it is one of this builder's.
fn maker<'a>(b: &'a Builder, x: &Value) -> Option<&'a Equation> {
    let Input::Var(var) = x.input else { return None };
    b.program().equations.iter().rev().find(|e| e.outputs.contains(&var))
}

/// The value made once more, with another sharding asked for it; itself where none may be asked for.
fn asked(b: &mut Builder, x: &Value, out: Spec) -> Result<Value> {
    let Some(e) = maker(b, x) else { return Ok(x.clone()) };
    let Op::Prim(prim) = &e.op else { return Ok(x.clone()) };
    let Some(prim) = prim.with_out(out) else { return Ok(x.clone()) };
    let value = |i: &Input| Value { input: *i, ty: b.program().input_type(i) };
    let inputs: Vec<Value> = e.inputs.iter().map(value).collect();
    b.emit1(prim, &inputs)
}

thread_local! {
    static ON: RefCell<Option<(Site, Ask)>> = const { RefCell::new(None) };
}

/// Runs `f`, in which results of the operation are moved as asked.
pub(crate) fn during<R>(site: &Site, ask: &Ask, f: impl FnOnce() -> R) -> R {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            ON.with_borrow_mut(|on| *on = None);
        }
    }
    ON.with_borrow_mut(|on| *on = Some((site.clone(), ask.clone())));
    let _off = Off;
    f()
}

/// What was just recorded, moved if a trial says so.
pub(super) fn moved(b: &mut Builder, out: &mut [Value]) -> Result<()> {
    // a thread that ends has none
    let on = ON.try_with(|on| on.borrow().clone()).ok().flatten();
    let Some((site, ask)) = on else { return Ok(()) };
    for value in out {
        let Some(e) = maker(b, value) else { continue };
        if e.phase == Phase::Forward && e.place == Some(site.place) && e.op.name() == site.op {
            *value = ask.of(b, value)?;
        }
    }
    Ok(())
}
