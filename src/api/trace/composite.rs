//! Functions that are composed of operations: errors of these operations name the function.

use super::Array;
use crate::core::{Diagnostic, Error, Fault, SourceLocation};
use std::cell::{Cell, RefCell};

/// A composed function that runs on this thread.
struct Composite {
    /// The function, as the user knows it.
    op: &'static str,
    /// The source location of its call, which is that of the operations that it applies.
    location: SourceLocation,
    /// The user's operands.
    operands: Vec<Array>,
}

/// A function that restates an error of an operation.
type RestateError = fn(Error) -> Error;

thread_local! {
    static OPEN: RefCell<Option<Composite>> = const { RefCell::new(None) };
    // A function pointer, so that programs without composed functions do not link the code.
    static RESTATE: Cell<Option<RestateError>> = const { Cell::new(None) };
}

/// A composed function is open while this value lives.
pub(crate) struct CompositeGuard {
    /// False inside of another composed function, which errors name instead.
    outermost: bool,
}

impl CompositeGuard {
    /// Opens a composed function.
    pub(crate) fn open(op: &'static str, location: SourceLocation, operands: &[&Array]) -> CompositeGuard {
        let opened = OPEN.try_with(|open| {
            let mut open = open.borrow_mut();
            let outermost = open.is_none();
            if outermost {
                *open = Some(Composite {
                    op,
                    location,
                    operands: operands.iter().map(|a| (*a).clone()).collect(),
                });
            }
            outermost
        });
        let outermost = opened.unwrap_or(false);
        if outermost {
            let _ = RESTATE.try_with(|f| f.set(Some(restate_in_composite)));
        }
        CompositeGuard { outermost }
    }
}

impl Drop for CompositeGuard {
    fn drop(&mut self) {
        if self.outermost {
            let _ = OPEN.try_with(|open| open.borrow_mut().take());
            let _ = RESTATE.try_with(|f| f.set(None));
        }
    }
}

/// Returns the source location of the composed function that runs, if any.
pub(super) fn location() -> Option<SourceLocation> {
    OPEN.try_with(|open| open.borrow().as_ref().map(|c| c.location)).ok().flatten()
}

/// Restates an error of an operation as one of the composed function that applied it, if any.
pub(super) fn restate(error: Error) -> Error {
    match RESTATE.try_with(Cell::get) {
        Ok(Some(restate)) => restate(error),
        _ => error,
    }
}

fn restate_in_composite(error: Error) -> Error {
    let restated = OPEN.try_with(|open| {
        let open = open.borrow();
        let Some(composite) = &*open else { return error.clone() };
        Error::combine(error.diagnostics().iter().map(|d| composite.restate(d)))
    });
    restated.unwrap_or(error)
}

impl Composite {
    /// Restates the error of an operation that this function applied.
    ///
    /// No operand carries an error, so that every error comes from such an operation.
    fn restate(&self, d: &Diagnostic) -> Error {
        if d.op == self.op {
            return Error::from(d.clone());
        }
        let of =
            if d.operands.is_empty() { String::new() } else { format!(" of {}", d.operands.join(" and ")) };
        let message = format!("its `{}`{of}: {}", d.op, d.fault.message);
        let (out_shardings, highlights) = (Vec::new(), Vec::new());
        let fault = Fault { message, out_shardings, highlights, ..d.fault.clone() };
        let operands = self.operands.iter().filter_map(|a| Some(a.type_ref().ok()?.to_string())).collect();
        let location = Some(self.location);
        Error::from(Diagnostic {
            fault,
            op: self.op.into(),
            operands,
            location,
            explicit_form: None,
            ..d.clone()
        })
    }
}
