//! The operations that a thread ran lately, found without a lock and without a copy of what is asked for.

use super::core::Arg;
use super::stages::Ready;
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::digest::Digest;
use crate::engine::EngineKind;
use crate::program::{Input, Literal, Op, Prim, Primitive};
use crate::trace::{Placed, Repr};
use crate::types::DType;
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

/// What an operation at once is known by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) op: Op,
    pub(super) engine: EngineKind,
    pub(super) operands: Vec<OperandKey>,
}
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum OperandKey {
    Array(Arc<Placed>),
    Lit(Literal),
    /// Any number of the type.
    Number(DType),
}

/// What an argument is: an array of numbers, or a number.
pub(super) enum Asked<'a> {
    Array(&'a Arc<Placed>),
    Lit(Literal),
}

/// An argument of an operation that is not recorded. Values of a trace are refused, but for those that are numbers and belong to no trace.
pub(super) fn asked(arg: &Arg) -> Result<Asked<'_>> {
    match arg {
        Arg::Lit(l) => Ok(Asked::Lit(*l)),
        Arg::Array(a) => match a.repr() {
            Repr::Concrete(c) => Ok(Asked::Array(c)),
            Repr::Traced(t) => match t.value.input {
                Input::Lit(l) => Ok(Asked::Lit(l)),
                Input::Var(_) => Err(Fault::new(ErrorKind::Trace, "this value belongs to a program").into()),
            },
            Repr::Poisoned(e) => Err(e.clone()),
        },
    }
}

impl Key {
    /// That of an operation on these.
    pub(super) fn of(prim: &Prim, engine: EngineKind, inputs: &[Arg]) -> Result<Key> {
        let operand = |arg: &Arg| {
            asked(arg).map(|a| match a {
                Asked::Array(placed) => OperandKey::Array(placed.clone()),
                Asked::Lit(l) => OperandKey::Lit(l),
            })
        };
        let operands = inputs.iter().map(operand).collect::<Result<_>>()?;
        Ok(Key { op: Op::Prim(prim.clone()), engine, operands })
    }
    /// Whether the operation on these is known by it.
    fn is_of(&self, prim: &dyn Primitive, engine: EngineKind, inputs: &[Arg]) -> bool {
        let same = |(key, arg): (&OperandKey, &Arg)| match (key, asked(arg)) {
            // two of one program are one
            (OperandKey::Array(a), Ok(Asked::Array(b))) => Arc::ptr_eq(a, b) || a == b,
            (OperandKey::Lit(l), Ok(Asked::Lit(m))) => *l == m,
            (OperandKey::Number(dtype), Ok(Asked::Lit(m))) => *dtype == m.dtype,
            _ => false,
        };
        self.operands.len() == inputs.len()
            && self.engine == engine
            && matches!(&self.op, Op::Prim(own) if **own == *prim)
            && self.operands.iter().zip(inputs).all(same)
    }
}

/// Keys of one digest are in one set, of so many.
const WAYS: usize = 4;
const SETS: usize = 64;

/// What a thread ran lately. What was compiled is kept elsewhere, by all threads: it is not kept longer for being known here.
struct Recent {
    /// Set by set; empty before the first operation.
    known: Vec<Option<Known>>,
    /// Where the next one goes within its set.
    next: usize,
}
struct Known {
    key: Key,
    ready: Weak<Ready>,
    /// Whether numbers are inputs of it.
    numbers: bool,
}

thread_local! {
    static RECENT: RefCell<Recent> = const { RefCell::new(Recent { known: Vec::new(), next: 0 }) };
}

/// What was compiled for this operation, if this thread ran it lately; and whether numbers are inputs of it.
pub(super) fn find(prim: &dyn Primitive, engine: EngineKind, inputs: &[Arg]) -> Option<(Arc<Ready>, bool)> {
    let found = |recent: &RefCell<Recent>| {
        let recent = recent.try_borrow().ok()?;
        let set = set(prim, inputs);
        let known = recent.known.get(set..set + WAYS)?.iter().flatten();
        let known = known.into_iter().find(|k| k.key.is_of(prim, engine, inputs))?;
        Some((known.ready.upgrade()?, known.numbers))
    };
    RECENT.try_with(found).ok().flatten()
}

/// Notes that this thread ran it.
pub(super) fn note(prim: &dyn Primitive, key: Key, inputs: &[Arg], ready: &Arc<Ready>, numbers: bool) {
    let note = |recent: &RefCell<Recent>| {
        let Ok(mut recent) = recent.try_borrow_mut() else { return };
        let set = set(prim, inputs);
        if recent.known.is_empty() {
            recent.known.resize_with(SETS * WAYS, || None);
        }
        recent.next = (recent.next + 1) % WAYS;
        let at = set + recent.next;
        recent.known[at] = Some(Known { key, ready: Arc::downgrade(ready), numbers });
    };
    // a thread that ends notes nothing
    let _ = RECENT.try_with(note);
}

/// Where the set begins in which this operation is looked for, whatever its numbers are.
fn set(prim: &dyn Primitive, inputs: &[Arg]) -> usize {
    let mut digest = Digest::of(inputs.len() as u64);
    prim.digest(&mut digest);
    for arg in inputs {
        match asked(arg) {
            Ok(Asked::Array(placed)) => {
                placed.ty.dtype.hash(&mut digest);
                placed.ty.shape.iter().for_each(|n| digest.write_usize(*n));
            }
            Ok(Asked::Lit(l)) => l.dtype.hash(&mut digest),
            Err(_) => {}
        }
    }
    (digest.finish() >> 32) as usize % SETS * WAYS
}
