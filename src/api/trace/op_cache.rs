//! The cache of eager operations: the programs that a thread ran recently, by primitive and operand
//! types.
//!
//! A lookup takes no lock and copies nothing. Programs that are dropped here are still found in the
//! cache of all compiled programs.
//!
//! Operations that several processes run together are kept apart from those of this process alone,
//! and their positions do not depend on addresses. So all of these processes keep the same
//! programs, and choose the same ones for the values of literals.

use super::{operand::ArrayOrLiteral, pipeline::CompiledProgram};
use crate::api::trace::PlacedType;
use crate::core::DType;
use crate::exec::engine::{self, EngineConfig};
use crate::exec::runtime::process_devices;
use crate::ir::program::{Literal, Prim, Primitive};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An eager operation: a primitive, the engine that runs it, and its operands.
pub(super) struct OpKey<'a> {
    /// The primitive.
    pub(super) prim: &'a dyn Primitive,
    /// The engine that runs it, with its options.
    pub(super) engine: EngineConfig,
    /// The operands, in order.
    pub(super) inputs: &'a [ArrayOrLiteral],
}

/// The compiled program of an operation.
#[derive(Clone)]
pub(super) struct OpProgram {
    /// The program.
    pub(super) program: Arc<CompiledProgram>,
    /// True if literals are inputs of the program, false if their values are built in.
    pub(super) literals_are_inputs: bool,
}

/// The maximum number of programs of one operation with the values of its literals built in.
///
/// Later literals are inputs of a shared program, so that a scalar operand that varies between
/// calls does not compile a new program each time.
const MAX_LITERAL_VARIANTS: usize = 8;
/// The number of operations in a set (the associativity).
/// Operations with equal hash bits share a set.
const SLOTS_PER_SET: usize = 4;
const NUM_SETS: usize = 64;

/// The operations that a thread ran recently.
struct RecentOps {
    /// The slots of all sets, one set after the other. Empty before the first operation.
    slots: Vec<Option<RecentOp>>,
    /// The position within a set at which the next operation goes.
    next: usize,
}

/// The programs of one primitive on operands of given types.
struct RecentOp {
    prim: Prim,
    engine: EngineConfig,
    operands: Vec<OperandType>,
    /// The programs with the values of literals built in.
    variants: Vec<LiteralVariant>,
    /// The program that takes the literals as inputs.
    generic: GenericProgram,
}

/// The program of an operation that takes literals as inputs.
enum GenericProgram {
    /// It is compiled when too many values of literals have been built into programs.
    NotCompiled,
    /// The operation has none: literals are always built in.
    Unsupported,
    Compiled(Arc<CompiledProgram>),
}

/// A program with the values of literals built in.
struct LiteralVariant {
    /// The hash of the literals, which lookups compare first.
    hash: u64,
    literals: SmallVec<[Literal; 2]>,
    program: Arc<CompiledProgram>,
}

/// The type of an operand.
#[derive(PartialEq)]
enum OperandType {
    /// An array of this type and sharding.
    Array(Arc<PlacedType>),
    /// A literal of this element type.
    Literal(DType),
}

/// The operations of this process, and those that it runs together with other processes.
struct RecentTables {
    own: RefCell<RecentOps>,
    shared: RefCell<RecentOps>,
}

thread_local! {
    static RECENT: RecentTables = const {
        RecentTables {
            own: RefCell::new(RecentOps { slots: Vec::new(), next: 0 }),
            shared: RefCell::new(RecentOps { slots: Vec::new(), next: 0 }),
        }
    };
}

impl RecentTables {
    /// Returns the table of an operation. `None` if there are several processes and no operand,
    /// because only the operands tell whether the processes run the operation together.
    fn table(&self, key: &OpKey<'_>) -> Option<&RefCell<RecentOps>> {
        if process_devices().is_none() {
            return Some(&self.own);
        }
        let mut types = key.inputs.iter().filter_map(ArrayOrLiteral::concrete_type).peekable();
        types.peek()?;
        let is_shared = types.any(|placed| engine::is_run_by_processes(placed.ty.mesh.as_ref()));
        Some(if is_shared { &self.shared } else { &self.own })
    }
}

impl OpKey<'_> {
    /// Returns the literals among the operands.
    fn literals(&self) -> impl Iterator<Item = Literal> {
        self.inputs.iter().filter_map(ArrayOrLiteral::literal)
    }
    /// Returns the hash of the literals.
    fn hash_of_literals(&self) -> u64 {
        let mut digest = FxHasher::default();
        self.literals().for_each(|l| l.value.hash(&mut digest));
        digest.finish()
    }
    /// Returns the index of the first slot of the operation's set. Values of literals are not
    /// hashed.
    fn set_start(&self) -> usize {
        let mut digest = FxHasher::default();
        digest.write_usize(self.inputs.len());
        self.prim.dyn_hash(&mut digest);
        for arg in self.inputs {
            if let Some(placed) = arg.concrete_type() {
                placed.ty.dtype.hash(&mut digest);
                placed.ty.shape.iter().for_each(|n| digest.write_usize(*n));
            } else if let Some(l) = arg.literal() {
                l.dtype.hash(&mut digest);
            }
        }
        (digest.finish() >> 32) as usize % NUM_SETS * SLOTS_PER_SET
    }
}

impl RecentOp {
    /// Returns true if these are the programs of the operation.
    fn matches(&self, key: &OpKey<'_>) -> bool {
        let same = |(own, arg): (&OperandType, &ArrayOrLiteral)| match own {
            // operands from the same program share their `Arc`
            OperandType::Array(a) => arg.concrete_type().is_some_and(|b| Arc::ptr_eq(a, b) || a == b),
            OperandType::Literal(dtype) => arg.literal().is_some_and(|l| l.dtype == *dtype),
        };
        self.operands.len() == key.inputs.len()
            && self.engine == key.engine
            && *self.prim == *key.prim
            && self.operands.iter().zip(key.inputs).all(same)
    }
    /// Returns the program for these operands.
    fn program(&self, key: &OpKey<'_>) -> Option<OpProgram> {
        let hash = key.hash_of_literals();
        let same = |v: &&LiteralVariant| v.hash == hash && v.literals.iter().copied().eq(key.literals());
        match (self.variants.iter().find(same), &self.generic) {
            (Some(v), _) => Some(OpProgram { program: v.program.clone(), literals_are_inputs: false }),
            (None, GenericProgram::Compiled(p)) => {
                Some(OpProgram { program: p.clone(), literals_are_inputs: true })
            }
            (None, GenericProgram::NotCompiled | GenericProgram::Unsupported) => None,
        }
    }
    /// Adds a program.
    fn insert(&mut self, key: &OpKey<'_>, added: &OpProgram) {
        let program = added.program.clone();
        if added.literals_are_inputs {
            self.generic = GenericProgram::Compiled(program);
            return;
        }
        if self.variants.len() == MAX_LITERAL_VARIANTS {
            // no program takes literals as inputs
            self.generic = GenericProgram::Unsupported;
            self.variants.clear();
        }
        let (hash, literals) = (key.hash_of_literals(), key.literals().collect());
        self.variants.push(LiteralVariant { hash, literals, program });
    }
}

impl RecentOps {
    /// Returns the programs of the operation on operands of the same types.
    fn get(&self, key: &OpKey<'_>) -> Option<&RecentOp> {
        let set = key.set_start();
        self.slots.get(set..set + SLOTS_PER_SET)?.iter().flatten().find(|op| op.matches(key))
    }
    /// Returns the programs of the operation on operands of the same types, which it adds if there
    /// are none.
    fn get_or_insert(&mut self, key: &OpKey<'_>, prim: &Prim) -> &mut RecentOp {
        let set = key.set_start();
        if self.slots.is_empty() {
            self.slots.resize_with(NUM_SETS * SLOTS_PER_SET, || None);
        }
        let known = self.slots[set..set + SLOTS_PER_SET]
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|op| op.matches(key)));
        let at = known.unwrap_or_else(|| {
            self.next = (self.next + 1) % SLOTS_PER_SET;
            self.slots[set + self.next] = None;
            self.next
        });
        self.slots[set + at].get_or_insert_with(|| RecentOp {
            prim: prim.clone(),
            engine: key.engine,
            operands: key.inputs.iter().filter_map(OperandType::of).collect(),
            variants: Vec::new(),
            generic: GenericProgram::NotCompiled,
        })
    }
}

impl OperandType {
    /// Returns the type of an operand.
    fn of(operand: &ArrayOrLiteral) -> Option<OperandType> {
        let literal = || operand.literal().map(|l| OperandType::Literal(l.dtype));
        operand.concrete_type().cloned().map(OperandType::Array).or_else(literal)
    }
}

/// Returns the compiled program of an operation that this thread ran recently.
pub(super) fn find(key: &OpKey<'_>) -> Option<OpProgram> {
    let find = |recent: &RecentTables| recent.table(key)?.try_borrow().ok()?.get(key)?.program(key);
    RECENT.try_with(find).ok().flatten()
}

/// Returns true if the next values of literals should be inputs, because enough values have been
/// built into programs of the operation.
pub(super) fn has_many_variants(key: &OpKey<'_>) -> bool {
    let many = |op: &RecentOp| {
        op.variants.len() >= MAX_LITERAL_VARIANTS && matches!(op.generic, GenericProgram::NotCompiled)
    };
    let find = |recent: &RecentTables| recent.table(key)?.try_borrow().ok()?.get(key).map(many);
    RECENT.try_with(find).ok().flatten().unwrap_or(false)
}

/// Records a program of an operation, and returns it.
pub(super) fn insert(key: &OpKey<'_>, prim: &Prim, added: OpProgram) -> OpProgram {
    let note = |recent: &RecentTables| {
        if let Some(Ok(mut recent)) = recent.table(key).map(RefCell::try_borrow_mut) {
            recent.get_or_insert(key, prim).insert(key, &added);
        }
    };
    // while a thread ends its cache no longer exists, so nothing is inserted
    let _ = RECENT.try_with(note);
    added
}
