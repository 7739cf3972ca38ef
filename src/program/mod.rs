//! The IR: a typed program over global arrays. Every equation knows the user's line.
//!
//! A program is a list of equations in order; each applies a primitive, or a control operation with nested
//! programs, to variables and literals. Tracing makes programs, derivatives turn programs into programs, propagation places
//! every variable, and the partitioner reads placed programs.

mod batched;
mod bound;
mod builder;
mod call;
mod combine;
mod control;
pub mod dce;
mod env;
pub mod factors;
mod familiar;
pub(crate) mod line;
mod primitive;
mod print;
mod rewrite;
pub mod sentence;
pub(crate) mod sound;
pub mod typing;

pub use batched::{Align, Batch, Batched, Examples, behind, inserted};
pub use builder::{Builder, Value};
pub use call::{Call, Source};
pub use control::{Control, Keep, Loop, Parts, ShardMapping};
pub(crate) use env::{Env, Known};
pub use factors::{At, Dim, FactorLoop, Factors, Join, Linearity, Priority};
pub use familiar::{Familiar, Fourier, Of};
pub(crate) use line::staged;
pub use line::{Cut, In, Line, Made, Out, Outs, Stages};
pub use primitive::{Again, Back, Collective, Forward, Identity, Operand, Pin, Prim, Primitive, Tangents};

use crate::diagnostic::Place;
use crate::mesh::Mesh;
use crate::sharding::Atoms;
use crate::types::{ArrayType, DType, Scalar};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A variable of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

impl Var {
    /// Its place in the program's list of variables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A number in a program: a scalar of a fixed element type, on no mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    /// Its element type.
    pub dtype: DType,
    /// Its value.
    pub value: Scalar,
}

/// What an equation reads: a variable or a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// An input of the program or the result of an earlier equation.
    Var(Var),
    /// A number.
    Lit(Literal),
}

/// The placement of a variable over all axes, explicit and auto; made by propagation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Placement {
    /// The digits that split each dimension. A dimension of size N over n parts is held in blocks of ⌈N/n⌉.
    pub dims: Vec<Atoms>,
    /// The digits over which it is partial: the sum over them is the value (its unreduced axes).
    pub partial: Atoms,
}

/// What is known of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VarInfo {
    /// Its type.
    pub ty: ArrayType,
    /// Its placement; an input's is known before propagation, others' after it.
    pub placement: Option<Placement>,
}

/// What an equation does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A primitive.
    Prim(Prim),
    /// An operation with nested programs.
    Control(Control),
}

impl Op {
    /// Its name: `dot_general`, `scan`.
    pub fn name(&self) -> &str {
        match self {
            Op::Prim(prim) => prim.name(),
            Op::Control(c) => c.name(),
        }
    }
}

/// One operation of a program. Two are equal that do the same, whichever lines asked for them, and in whichever phase.
#[derive(Clone, Debug)]
pub struct Equation {
    /// What it does.
    pub op: Op,
    /// What it reads.
    pub inputs: Vec<Input>,
    /// What it binds.
    pub outputs: Vec<Var>,
    /// The user's line that asked for it.
    pub place: Option<Place>,
    /// Whether derivatives put it there.
    pub phase: Phase,
    /// What the user named its results, for [`Keep::Named`].
    pub name: Option<Arc<str>>,
}

/// Which part of a derivative something belongs to. Derivatives mark the equations that they add; a program without any is all forward.
///
/// It is told, and decides nothing: programs that differ in marks only are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// What the program says.
    #[default]
    Forward,
    /// What the program says, computed once more on the way back, since it was not kept ([`checkpoint`](crate::checkpoint)).
    Recomputed,
    /// The way from a result's cotangent to those of operands.
    Backward,
}

impl Phase {
    /// Its name in words: `backward`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Recomputed => "recomputed",
            Phase::Backward => "backward",
        }
    }
    /// Of what is inside something of the phase `outer`: its own mark, or else that of what is around it.
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

/// A typed program. Equal programs do the same on the same types and placements: what was compiled for one serves the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Program {
    /// All variables, by number.
    pub vars: Vec<VarInfo>,
    /// Its inputs, in order.
    pub inputs: Vec<Var>,
    /// Its equations, in order: each reads inputs and earlier results.
    pub equations: Vec<Equation>,
    /// Its results, in order.
    pub outputs: Vec<Input>,
    /// The mesh of its values, where any is on one.
    pub mesh: Option<Mesh>,
}

impl Program {
    /// How many equations it has, those of nested programs counted in.
    pub fn size(&self) -> usize {
        let nested = |e: &Equation| match &e.op {
            Op::Prim(_) => 0,
            Op::Control(c) => c.bodies().into_iter().map(|b| b.size()).sum(),
        };
        self.equations.iter().map(|e| 1 + nested(e)).sum()
    }
    /// The type of a variable.
    pub fn ty(&self, v: Var) -> &ArrayType {
        &self.vars[v.index()].ty
    }
    /// The type of an input: a literal's is a scalar's.
    pub fn input_type(&self, input: &Input) -> ArrayType {
        match input {
            Input::Var(v) => self.ty(*v).clone(),
            Input::Lit(l) => l.dtype.of([]),
        }
    }
    /// The types of its results.
    pub fn output_types(&self) -> Vec<ArrayType> {
        self.outputs.iter().map(|o| self.input_type(o)).collect()
    }
}
