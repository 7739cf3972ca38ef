//! Loops, branches, modes and prints of traced programs: closures that become programs within a program.
//!
//! All of them take their arguments first and the closure last, and give their result at once; an error flows in the result, as it
//! does for other operations. They work on numbers as well, where they run at once:
//! traced at every call, compiled at the first.

mod branch;
pub(super) mod carry;
mod loops;
mod modes;
mod print;

pub use branch::{cond, switch};
pub use loops::{ScanOptions, fori_loop, map, scan, scan_with, while_loop};
pub use modes::{auto_axes, auto_axes_over, explicit_axes, explicit_axes_over};
pub use print::debug_print_values;

use super::jit::record_body;
use crate::array::Array;
use crate::diagnostic::{Error, Result};
use crate::program::{Call, Program, Var, VarInfo};
use crate::trace::{Open, Recorded, build, poison};
use crate::tree::{Path, Tree, collect};
use crate::types::{ArrayType, DType};
use std::cell::RefCell;

/// A closure as a program: what is asked for comes first among its inputs, then its captures.
pub(crate) struct Piece<O> {
    /// The program.
    pub(crate) program: Program,
    /// What the captures are outside.
    pub(crate) captures: Vec<Array>,
    /// The tree of its results.
    pub(crate) out: O,
}

impl<O: Tree> Piece<O> {
    /// Records a closure on inputs of these types.
    pub(crate) fn record(types: &[ArrayType], f: impl FnOnce(Vec<Array>) -> Result<O>) -> Result<Piece<O>> {
        Piece::record_in(Open::new()?, types, f)
    }
    /// Its results of these inputs, in the trace that is open now: the closure is not called again.
    fn applied(&self, inputs: &[Array], call: Call<'_>) -> Result<Vec<Array>> {
        let inputs: Vec<Array> = inputs.iter().chain(&self.captures).cloned().collect();
        build(&inputs, call, |b, values| Ok(b.inline(&self.program, values)))
    }
    /// Records a closure in a trace that was opened for it.
    pub(crate) fn record_in(
        open: Open,
        types: &[ArrayType],
        f: impl FnOnce(Vec<Array>) -> Result<O>,
    ) -> Result<Piece<O>> {
        let inputs = types.iter().map(|ty| open.input(ty.clone(), None)).collect();
        let (Recorded { mut program, captures }, out) = record_body(open, || f(inputs))?;
        // where its inputs are placed is for the program around it to say
        for v in program.inputs.clone() {
            program.vars[v.index()].placement = None;
        }
        Ok(Piece { program, captures, out })
    }
}

/// The tree like `like` with these leaves.
pub(crate) fn tree_of<T: Tree>(like: &T, leaves: Vec<Array>) -> T {
    let mut leaves = leaves.into_iter();
    like.rebuild(&mut Path::unnamed(), &mut |_, _| leaves.next().expect("one for each leaf"))
}

/// The tree like `like`, each leaf carrying the error.
pub(crate) fn tree_failed<T: Tree>(like: &T, error: &Error) -> T {
    like.rebuild(&mut Path::unnamed(), &mut |_, _| Array::poisoned(error.clone()))
}

/// The tree that a traced closure returned, where it did: the results are like it, also those that carry an error.
pub(crate) struct Returned<T>(RefCell<Option<T>>);

impl<T: Tree> Returned<T> {
    pub(crate) fn new() -> Returned<T> {
        Returned(RefCell::new(None))
    }
    /// Notes what the closure returns.
    pub(crate) fn note(&self, out: Result<T>) -> Result<T> {
        if let Ok(out) = &out {
            self.0.borrow_mut().get_or_insert_with(|| tree_of(out, collect(out)));
        }
        out
    }
    /// The results of what was refused; the trace around is told.
    pub(crate) fn failed(&self, error: &Error) -> T {
        let _ = poison(error.clone());
        match &*self.0.borrow() {
            Some(like) => tree_failed(like, error),
            None => T::filled_with(error),
        }
    }
}

/// Makes programs of several closures read the same captures, in the same order: the captures, and for each program its variables for them.
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
                    let ty = a.type_ref().cloned().unwrap_or_else(|_| DType::F32.of([]));
                    program.vars.push(VarInfo { ty, placement: None });
                    Var(program.vars.len() as u32 - 1)
                }
            };
            program.inputs.push(var);
        }
    }
    all
}

fn same_value(a: &Array, b: &Array) -> bool {
    use crate::trace::Repr::Traced;
    match (a.repr(), b.repr()) {
        (Traced(x), Traced(y)) => {
            std::sync::Arc::ptr_eq(&x.trace, &y.trace) && x.value.input == y.value.input
        }
        _ => a.same(b),
    }
}
