//! Control flow in traced programs: loops, branches, axis modes and prints.
//!
//! Loops, branches and axis modes take their closures as the last arguments, and record each
//! closure as a nested program. They return trees of arrays, not a `Result`: an error is carried by
//! these arrays, as for other operations. On concrete arrays they run eagerly: the closures are
//! traced at every call, and equal programs are compiled once.

mod axis_modes;
mod batched_map;
mod bounded_while;
mod branch;
mod branch_selector;
mod loops;
mod print;
mod unify;
mod while_loops;

pub use axis_modes::{auto_axes, auto_axes_over, explicit_axes, explicit_axes_over};
pub use batched_map::{MapOptions, map_with};
pub use bounded_while::{WhileOptions, while_loop_with};
pub use branch::{cond, switch};
#[cfg(feature = "typed")]
pub(crate) use loops::scan_at;
pub(crate) use loops::slice_type;
pub use loops::{ScanOptions, fori_loop, map, scan, scan_with};
pub use print::debug_print_values;
pub use while_loops::while_loop;

use super::jit::record_body;
use crate::api::array::Array;
use crate::api::trace::{OpenTrace, RecordedProgram, apply_control, poison};
use crate::api::tree::{Path, Tree, collect};
use crate::core::{ArrayType, DType, Error, Result};
use crate::ir::program::{CallSite, Control, CustomCall, DerivativeRule, Program, Var, VarInfo};
use std::cell::RefCell;
use std::sync::Arc;

/// A closure recorded as a program. Its inputs are the declared ones, then the captures.
pub(crate) struct RecordedClosure<O> {
    /// The program.
    pub(crate) program: Program,
    /// The outer values that are passed for the captures.
    pub(crate) captures: Vec<Array>,
    /// The tree of the results.
    pub(crate) out: O,
}

impl<O: Tree> RecordedClosure<O> {
    /// Records a closure, which the user passed to a call, on inputs of these types.
    pub(crate) fn record(
        call: CallSite<'_>,
        types: &[ArrayType],
        f: impl FnOnce(Vec<Array>) -> Result<O>,
    ) -> Result<RecordedClosure<O>> {
        RecordedClosure::record_in(OpenTrace::new(Some(call.location))?, types, f)
    }
    /// Records a closure in a trace that was opened for it.
    pub(crate) fn record_in(
        open: OpenTrace,
        types: &[ArrayType],
        f: impl FnOnce(Vec<Array>) -> Result<O>,
    ) -> Result<RecordedClosure<O>> {
        let inputs = types.iter().map(|ty| open.input(ty.clone(), None)).collect();
        let (RecordedProgram { mut program, captures }, out) = record_body(open, || f(inputs))?;
        // the surrounding program decides the placement of the inputs
        for v in program.inputs.clone() {
            program.vars[v.index()].placement = None;
        }
        Ok(RecordedClosure { program, captures, out })
    }
}

/// Rebuilds a tree like `like` from these leaves.
pub(crate) fn tree_of<T: Tree>(like: &T, leaves: Vec<Array>) -> T {
    let mut leaves = leaves.into_iter();
    like.rebuild(&mut Path::unnamed(), &mut |_, _| leaves.next().expect("one for each leaf"))
}

/// Rebuilds a tree like `like` in which each leaf carries the error.
pub(crate) fn poisoned_tree<T: Tree>(like: &T, error: &Error) -> T {
    like.rebuild(&mut Path::unnamed(), &mut |_, _| Array::poisoned(error.clone()))
}

/// The tree that a traced closure returned, once it has returned. The result of a failed operation
/// gets the structure of this tree.
pub(crate) struct ReturnedTree<T>(RefCell<Option<T>>);

impl<T: Tree> ReturnedTree<T> {
    pub(crate) fn new() -> ReturnedTree<T> {
        ReturnedTree(RefCell::new(None))
    }
    /// Stores the tree that the closure returned.
    pub(crate) fn remember(&self, out: Result<T>) -> Result<T> {
        if let Ok(out) = &out {
            self.0.borrow_mut().get_or_insert_with(|| tree_of(out, collect(out)));
        }
        out
    }
    /// Returns a result tree that carries the error.
    ///
    /// The error is also recorded in the surrounding trace.
    pub(crate) fn poisoned(&self, error: &Error) -> T {
        let _ = poison(error.clone());
        let Some(like) = &*self.0.borrow() else { return T::filled_with(error) };
        poisoned_tree(like, error)
    }
}

/// Gives the programs of several closures the same captures, in the same order, and returns the
/// captures.
pub(crate) fn share_captures(programs: &mut [(&mut Program, Vec<Array>)]) -> Vec<Array> {
    let mut all: Vec<Array> = Vec::new();
    for (_, captures) in programs.iter() {
        for c in captures {
            if !all.iter().any(|a| same_value(a, c)) {
                all.push(c.clone());
            }
        }
    }
    for (program, captures) in programs {
        let asked = program.inputs.len() - captures.len();
        let own = program.inputs.split_off(asked);
        for a in &all {
            let var = match captures.iter().position(|c| same_value(a, c)) {
                Some(i) => own[i],
                None => {
                    let ty = a.type_ref().cloned().unwrap_or_else(|_| DType::F32.array_type([]));
                    program.vars.push(VarInfo { ty, placement: None });
                    Var(program.vars.len() as u32 - 1)
                }
            };
            program.inputs.push(var);
        }
    }
    all
}

/// Calls a function that has a derivative rule, on the leaves and names of its arguments.
///
/// `programs` has the function, then the programs of its rule, each with its captured values.
pub(crate) fn call_with_rule(
    (mut inputs, arguments): (Vec<Array>, Vec<String>),
    programs: Vec<(Program, Vec<Array>)>,
    rule: impl FnOnce(Vec<Arc<Program>>) -> DerivativeRule,
    call: CallSite<'_>,
) -> Result<Vec<Array>> {
    let (mut programs, captures): (Vec<Program>, Vec<Vec<Array>>) = programs.into_iter().unzip();
    let mut with_captures: Vec<(&mut Program, Vec<Array>)> = programs.iter_mut().zip(captures).collect();
    inputs.extend(share_captures(&mut with_captures));
    let types = programs[0].output_types();
    let mut programs: Vec<Arc<Program>> = programs.into_iter().map(Arc::new).collect();
    let body = programs.remove(0);
    let control = Control::Custom(CustomCall { body, arguments, rule: rule(programs) });
    apply_control(control, &inputs, types, call)
}

fn same_value(a: &Array, b: &Array) -> bool {
    use crate::api::trace::Repr::Traced;
    match (a.repr(), b.repr()) {
        (Traced(x), Traced(y)) => Arc::ptr_eq(&x.trace, &y.trace) && x.value.input == y.value.input,
        _ => a.is_same_handle(b),
    }
}

/// Returns a tree like `like` that carries the error, which the open trace reports.
fn poison_tree<T: Tree>(like: &T, error: Error) -> T {
    let _ = poison(error.clone());
    poisoned_tree(like, &error)
}

/// Returns the types of the leaves of a tree.
fn types_of<T: Tree>(tree: &T) -> Vec<ArrayType> {
    collect(tree).iter().filter_map(|a| a.type_ref().ok().cloned()).collect()
}
