//! What would be if the user had written one thing more: while a trial is on, results of one operation on one line are moved as it says.

use crate::diagnostic::{Place, Result};
use crate::ops::sharding::{Constrain, Reshard};
use crate::program::{Builder, Input, Phase, Prim, Value};
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
}

impl Ask {
    /// The value, sharded so.
    pub(crate) fn of(&self, b: &mut Builder, x: &Value) -> Result<Value> {
        let prim: Prim = match self {
            Ask::Reshard(r) => Arc::new(r.clone()),
            Ask::Constrain(c) => Arc::new(c.clone()),
        };
        b.emit1(prim, std::slice::from_ref(x))
    }
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
        let Input::Var(var) = value.input else { continue };
        let made = b.program().equations.iter().rev().find(|e| e.outputs.contains(&var));
        let Some(e) = made else { continue };
        if e.phase == Phase::Forward && e.place == Some(site.place) && e.op.name() == site.op {
            *value = ask.of(b, value)?;
        }
    }
    Ok(())
}
