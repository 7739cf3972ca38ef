//! A per-thread cache of recently run eager operations. A lookup takes no lock and copies nothing.

use super::pipeline::CompiledProgram;
use super::record::ArrayOrLiteral;
use crate::api::trace::{PlacedType, Repr};
use crate::core::diagnostic::{ErrorKind, Fault, Result};
use crate::core::types::DType;
use crate::core::util::fast_hash::FastHasher;
use crate::exec::engine::EngineConfig;
use crate::ir::program::{Input, Literal, Op, Prim, Primitive};
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

/// The cache key of an eager operation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct OpKey {
    /// The operation.
    pub(super) op: Op,
    /// The engine that runs it, with its options.
    pub(super) engine: EngineConfig,
    /// The operands, in order.
    pub(super) operands: Vec<OperandKey>,
}
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum OperandKey {
    /// An array of this type and sharding.
    Array(Arc<PlacedType>),
    Lit(Literal),
    /// Any literal of this element type.
    AnyLiteral(DType),
}

/// An operand of an eager operation: a concrete array, by type and sharding, or a literal.
pub(super) enum EagerOperand<'a> {
    /// An array of this type and sharding.
    Array(&'a Arc<PlacedType>),
    Lit(Literal),
}

/// Returns the operand as the cache compares it. A traced value is an error, unless it is a
/// literal, which belongs to no trace.
pub(super) fn eager_operand(arg: &ArrayOrLiteral) -> Result<EagerOperand<'_>> {
    match arg {
        ArrayOrLiteral::Lit(l) => Ok(EagerOperand::Lit(*l)),
        ArrayOrLiteral::Array(a) => match a.repr() {
            Repr::Concrete(c) => Ok(EagerOperand::Array(c)),
            Repr::Traced(t) => match t.value.input {
                Input::Lit(l) => Ok(EagerOperand::Lit(l)),
                Input::Var(_) => Err(Fault::new(ErrorKind::Trace, "this value belongs to a program").into()),
            },
            Repr::Poisoned(e) => Err(e.clone()),
        },
    }
}

impl OpKey {
    /// Creates the key of an operation on these operands.
    pub(super) fn new(prim: &Prim, engine: EngineConfig, inputs: &[ArrayOrLiteral]) -> Result<OpKey> {
        let operand = |arg: &ArrayOrLiteral| {
            eager_operand(arg).map(|a| match a {
                EagerOperand::Array(placed) => OperandKey::Array(placed.clone()),
                EagerOperand::Lit(l) => OperandKey::Lit(l),
            })
        };
        let operands = inputs.iter().map(operand).collect::<Result<_>>()?;
        Ok(OpKey { op: Op::Prim(prim.clone()), engine, operands })
    }
    /// Returns true if this is the key of the operation on these operands.
    fn matches(&self, prim: &dyn Primitive, engine: EngineConfig, inputs: &[ArrayOrLiteral]) -> bool {
        let same = |(key, arg): (&OperandKey, &ArrayOrLiteral)| match (key, eager_operand(arg)) {
            // operands from the same program share their `Arc`
            (OperandKey::Array(a), Ok(EagerOperand::Array(b))) => Arc::ptr_eq(a, b) || a == b,
            (OperandKey::Lit(l), Ok(EagerOperand::Lit(m))) => *l == m,
            (OperandKey::AnyLiteral(dtype), Ok(EagerOperand::Lit(m))) => *dtype == m.dtype,
            _ => false,
        };
        self.operands.len() == inputs.len()
            && self.engine == engine
            && matches!(&self.op, Op::Prim(own) if **own == *prim)
            && self.operands.iter().zip(inputs).all(same)
    }
}

/// The number of entries in a set (the associativity). Keys with equal hash bits share a set.
const SLOTS_PER_SET: usize = 4;
const NUM_SETS: usize = 64;

/// The operations that a thread ran recently.
/// Entries are weak: the process-wide caches own the compiled programs.
struct RecentOps {
    /// The slots of all sets, one set after the other. Empty before the first operation.
    slots: Vec<Option<RecentOp>>,
    /// The position within a set at which the next entry goes.
    next: usize,
}
struct RecentOp {
    key: OpKey,
    program: Weak<CompiledProgram>,
    /// True if literals are inputs of the program.
    literals_are_inputs: bool,
}

thread_local! {
    static RECENT: RefCell<RecentOps> = const { RefCell::new(RecentOps { slots: Vec::new(), next: 0 }) };
}

/// Returns the compiled program of an operation that this thread ran recently.
///
/// The flag is true if literals are inputs of the program.
pub(super) fn find(
    prim: &dyn Primitive,
    engine: EngineConfig,
    inputs: &[ArrayOrLiteral],
) -> Option<(Arc<CompiledProgram>, bool)> {
    let found = |recent: &RefCell<RecentOps>| {
        let recent = recent.try_borrow().ok()?;
        let set = set_start(prim, inputs);
        let known = recent.slots.get(set..set + SLOTS_PER_SET)?.iter().flatten();
        let known = known.into_iter().find(|k| k.key.matches(prim, engine, inputs))?;
        Some((known.program.upgrade()?, known.literals_are_inputs))
    };
    RECENT.try_with(found).ok().flatten()
}

/// Records that this thread ran the operation.
pub(super) fn insert(
    prim: &dyn Primitive,
    key: OpKey,
    inputs: &[ArrayOrLiteral],
    ready: &Arc<CompiledProgram>,
    numbers: bool,
) {
    let note = |recent: &RefCell<RecentOps>| {
        let Ok(mut recent) = recent.try_borrow_mut() else { return };
        let set = set_start(prim, inputs);
        if recent.slots.is_empty() {
            recent.slots.resize_with(NUM_SETS * SLOTS_PER_SET, || None);
        }
        recent.next = (recent.next + 1) % SLOTS_PER_SET;
        let at = set + recent.next;
        recent.slots[at] =
            Some(RecentOp { key, program: Arc::downgrade(ready), literals_are_inputs: numbers });
    };
    // while a thread ends its cache no longer exists, so nothing is inserted
    let _ = RECENT.try_with(note);
}

/// Returns the index of the first slot of the operation's set. Values of literals are not hashed.
fn set_start(prim: &dyn Primitive, inputs: &[ArrayOrLiteral]) -> usize {
    let mut digest = FastHasher::from_u64(inputs.len() as u64);
    prim.dyn_hash(&mut digest);
    for arg in inputs {
        match eager_operand(arg) {
            Ok(EagerOperand::Array(placed)) => {
                placed.ty.dtype.hash(&mut digest);
                placed.ty.shape.iter().for_each(|n| digest.write_usize(*n));
            }
            Ok(EagerOperand::Lit(l)) => l.dtype.hash(&mut digest),
            Err(_) => {}
        }
    }
    (digest.finish() >> 32) as usize % NUM_SETS * SLOTS_PER_SET
}
