//! The IR: a typed program over global arrays, and the rules of its operations.
//!
//! Tracing builds programs, derivatives turn programs into programs, propagation chooses a
//! placement for every variable, and the partitioner turns placed programs into one program per
//! device.
//!
//! # Terms
//!
//! * **Program** ([`Program`]): a list of variables with their types, and a list of equations in
//!   execution order. Variables are global arrays: a program does not say which device computes
//!   which block.
//! * **Equation** ([`Equation`]): applies one operation to inputs (variables or literals) and binds
//!   its results to new variables. It records the source location of the user's call.
//! * **Operation** ([`Op`]): a [`Primitive`], a trait with all rules of the operation, or a
//!   [`Control`] operation, which contains nested programs.
//! * **Factors** ([`Factors`]): the loops of an equation, and which dimensions of its operands and
//!   results run over each loop (Shardy's `OpShardingRule`). Typing, propagation, partitioning and
//!   `vmap` are all based on this one description.
//! * **Loop nest** ([`LoopNest`](loop_nest::LoopNest)): the definition of one result, element by
//!   element (MLIR's `linalg.generic`): loops, an access for each operand, and a computation on the
//!   elements that the accesses read. Kernels are generated from loop nests.
//! * **Access** ([`Access`](loop_nest::Access)): how a loop nest reads one operand: disjoint
//!   pieces, each an affine map from loop indices to positions of a stored value.
//! * **Box**: a Cartesian product of index ranges, one for each loop or each dimension. The
//!   iteration space of a loop nest is a box, and so is the block of an array that a device holds.
//! * **Sub-axis** ([`SubAxis`](crate::core::sharding::SubAxis)): a mesh axis or a factor of one,
//!   given by its stride and size among device positions. A dimension that is split over an axis,
//!   over part of an axis, or over an axis of another mesh of the same devices, is split over
//!   sub-axes.
//! * **Placement** ([`Placement`]): the sub-axes that split each dimension of a variable, and those
//!   over which it is unreduced (a sum of partial values).
//! * **Slot**: the per-device counterpart of a variable. In a per-device program
//!   (`partition::SpmdProgram`) each device stores its block of a value in a slot, and accesses
//!   refer to slots instead of operands.

mod builder;
mod call_site;
mod compute;
mod control;
#[doc(hidden)]
pub mod dce;
mod device_groups;
mod dynamic_index;
mod env;
pub mod factors;
pub mod loop_nest;
mod named_op;
mod operand;
mod primitive;
mod print;
mod rewrite;
mod scope;
pub mod typing;
pub(crate) mod verify;
mod vmap_rule;
mod without_rules;

pub(crate) use crate::kernels::row_kernel::parallel_unless_wasm;
pub use crate::kernels::row_kernel::{
    ParallelRowKernel, RowInput, RowKernel, RowOutput, RowOutputs, RowSharding, SecondPass,
};
pub(crate) use builder::EquationContext;
pub use builder::{Builder, Value};
pub use call_site::{CallSite, UserOperand};
pub(crate) use control::collective_over;
pub use control::{CheckpointPolicy, Control, CustomCall, DerivativeRule, Loop, LoopOperands, ShardMapping};
pub(crate) use device_groups::AxisDigit;
pub use device_groups::DeviceGroups;
pub(crate) use env::{Env, FromLiteral};
pub use factors::{Dim, DimMap, ExplicitRule, FactorLoop, Factors, Linearity, Priority};
pub(crate) use factors::{FactorKind, LoopId};
pub(crate) use loop_nest::{
    Access, AccessPiece, AffineExpr, Compute, DynamicIndex, LoopNest, OutOfBounds, Reducer, RowKernelCall,
    ScalarArg, ScalarCode, ScalarInst, ScalarOp, Source, StridedRange,
};
pub use named_op::{ConvDim, FftType, NamedOp};
pub use operand::TypedOperand;
pub use primitive::{
    DynEqHash, JvpArgs, ManualCollective, Prim, Primitive, Remat, ShardingConstraint, Tangents, TransposeArgs,
};
pub use scope::ScopePath;
pub(crate) use verify::MAX_WINDOW_COPY_RATIO;
pub use vmap_rule::{BatchDim, BatchedOp, OperandBatching, VmapArgs, shifted_dims, with_inserted};
pub use without_rules::without_rules;

use crate::core::{ArrayType, DType, Mesh, Scalar, SourceLocation, SubAxes};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A variable of a program, identified by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

impl Var {
    /// Returns the index in the program's list of variables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A scalar constant in a program, with a fixed element type; it is not on a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    /// The element type.
    pub dtype: DType,
    /// The value.
    pub value: Scalar,
}

/// An input of an equation, or a result of a program: a variable or a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A variable: an input of the program or a result of an earlier equation.
    Var(Var),
    /// A scalar constant.
    Lit(Literal),
}

/// The sharding of a variable over all axes, explicit and auto.
/// Propagation chooses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Placement {
    /// The sub-axes that split each dimension, major first.
    /// A dimension of size N split n ways is held in blocks of ⌈N/n⌉.
    pub dims: Vec<SubAxes>,
    /// The sub-axes over which the value is unreduced.
    /// The value is the sum of the partial values along them.
    pub partial: SubAxes,
}

/// The type and placement of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VarInfo {
    /// The type.
    pub ty: ArrayType,
    /// The placement.
    /// Inputs may have one before propagation; all variables have one after it. `None` until then.
    pub placement: Option<Placement>,
}

/// The operation of an equation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A primitive operation.
    Prim(Prim),
    /// An operation with nested programs.
    Control(Control),
}

impl Op {
    /// Returns the operation's name, such as `dot_general` or `scan`.
    pub fn name(&self) -> &str {
        match self {
            Op::Prim(prim) => prim.name(),
            Op::Control(c) => c.name(),
        }
    }
}

/// One operation applied to inputs.
/// Equality ignores source locations, phases, scopes and names, so that equal work compares equal.
#[derive(Clone, Debug)]
pub struct Equation {
    /// The operation.
    pub op: Op,
    /// The operands.
    pub inputs: Vec<Input>,
    /// The variables bound to the results.
    pub outputs: Vec<Var>,
    /// The source location of the user's call, if known.
    pub location: Option<SourceLocation>,
    /// The phase of a derivative that the equation belongs to.
    /// Defaults to forward.
    pub phase: Phase,
    /// The named scopes around the user's call, within this program.
    pub scope: ScopePath,
    /// The user's name for the results, for [`CheckpointPolicy::SaveNamed`].
    /// `None` if unnamed.
    pub name: Option<Arc<str>>,
}

/// The phase of a derivative that an equation or step belongs to.
///
/// Derivatives mark the equations that they add; a program without derivatives is all forward.
/// Phases appear in reports only: programs that differ only in phases are equal.
///
/// ```
/// use atmesh::{Phase, prelude::*};
/// let mesh = Mesh::without_devices([("X", 4)])?;
/// let (w, x) = (F32.array_type([8]), F32.array_type([4, 8]));
/// let (w, x) = (w.on(&mesh, p![]), x.on(&mesh, p!["X"]));
/// let step = jit(|w: &Array, x: &Array| grad(w, |w| x.dot(w).square().sum(..)));
/// let report = step.lower((w, x))?;
/// // the sum of the gradients over the devices is part of the backward pass
/// assert!(report.collectives().iter().all(|c| c.phase == Phase::Backward));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// The original program.
    #[default]
    Forward,
    /// Part of the original program that is computed again in the backward pass.
    /// It was not saved ([`checkpoint`](crate::checkpoint)).
    Recomputed,
    /// The backward pass, from the cotangents of results to those of operands.
    Backward,
}

impl Phase {
    /// Returns the name in words, such as `backward`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Recomputed => "recomputed",
            Phase::Backward => "backward",
        }
    }
    /// Returns the phase of an item that is nested in an item of phase `outer`.
    /// It is the item's own phase, or `outer` if that is `Forward`.
    pub(crate) fn within(self, outer: Phase) -> Phase {
        if self == Phase::Forward { outer } else { self }
    }
}

impl PartialEq for Equation {
    fn eq(&self, other: &Equation) -> bool {
        self.op == other.op && self.inputs == other.inputs && self.outputs == other.outputs
    }
}
impl Eq for Equation {}
impl Hash for Equation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.op.hash(state);
        self.inputs.hash(state);
        self.outputs.hash(state);
    }
}

/// A typed program over global arrays.
/// Equal programs have the same operations, types and placements, so one compiled program serves
/// all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Program {
    /// All variables, indexed by [`Var`].
    pub vars: Vec<VarInfo>,
    /// The inputs, in order.
    pub inputs: Vec<Var>,
    /// The equations, in order.
    /// Each reads inputs of the program and results of earlier equations.
    pub equations: Vec<Equation>,
    /// The results, in order.
    pub outputs: Vec<Input>,
    /// The mesh of the values; `None` if no value is on a mesh.
    pub mesh: Option<Mesh>,
}

impl Program {
    /// Returns the number of equations, including those of nested programs.
    pub fn num_equations(&self) -> usize {
        let nested = |e: &Equation| match &e.op {
            Op::Prim(_) => 0,
            Op::Control(c) => c.bodies().into_iter().map(|b| b.num_equations()).sum(),
        };
        self.equations.iter().map(|e| 1 + nested(e)).sum()
    }
    /// Returns the type of a variable.
    pub fn ty(&self, v: Var) -> &ArrayType {
        &self.vars[v.index()].ty
    }
    /// Returns the type of an input.
    /// A literal has the type of a scalar.
    pub fn input_type(&self, input: &Input) -> ArrayType {
        match input {
            Input::Var(v) => self.ty(*v).clone(),
            Input::Lit(l) => l.dtype.array_type([]),
        }
    }
    /// Returns the types of the results.
    pub fn output_types(&self) -> Vec<ArrayType> {
        self.outputs.iter().map(|o| self.input_type(o)).collect()
    }
}
