//! What a primitive is: all its rules, as required methods of one trait.

use super::factors::{Factors, Linearity, Rank};
use super::sentence::Sentence;
use super::{Batch, Batched, Builder, Value, typing};
use crate::diagnostic::{Fault, Result};
use crate::mesh::{Axes, Axis};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A primitive with its parameters.
pub type Prim = Arc<dyn Primitive>;

/// An operand as typing sees it.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Its type.
    pub ty: ArrayType,
    /// Whether it is a number written by the user: it joins any sharding and any set.
    pub literal: bool,
}

/// The tangents of a primitive's results; `None` is zero.
pub type Tangents = Vec<Option<Value>>;

/// An operation with all its rules. A missing rule does not compile.
pub trait Primitive: fmt::Debug + Send + Sync + 'static {
    /// Its name, as programs print it.
    fn name(&self) -> &'static str;
    /// Its parameters as text, `axes=[0]`: with the name they are its identity.
    fn params(&self) -> String;
    /// Element types and shapes of the results; refuses operands of wrong rank, size or element type.
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault>;
    /// Its loops. Called after `shapes` accepted the operands.
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors;
    /// How it treats sums that are still in parts.
    fn linearity(&self) -> Linearity;
    /// When auto propagation lets it speak.
    fn rank(&self) -> Rank;
    /// The sharding asked for the first result.
    fn out(&self) -> Option<Spec>;
    /// The tangents of the results, from those of the operands (`None` is zero). `outputs` are the results at the point.
    fn jvp(
        &self,
        b: &mut Builder,
        operands: &[Value],
        tangents: &[Option<Value>],
        outputs: &[Value],
    ) -> Result<Tangents>;
    /// The cotangents of the operands that it is linear in. `operands` holds `None` for these, the values of the others;
    /// `types` are all operands' types. Called with at least one cotangent of a result.
    fn transpose(
        &self,
        b: &mut Builder,
        operands: &[Option<Value>],
        types: &[ArrayType],
        cotangents: &[Option<Value>],
    ) -> Result<Tangents>;
    /// The operation on all examples of `vmap` at once: mapped operands have one more dimension, in front.
    fn batched(&self, batch: &Batch<'_>) -> Batched;
    /// What each result is, element by element.
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence>;
    /// Floating-point operations a step of its loops.
    fn cost(&self) -> f64;

    /// The results' types. From the factors, but for operations that are functions on types.
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        typing::by_factors(self, operands)
    }
    /// What it is among devices, for the operations of manual mode.
    fn collective(&self) -> Option<Collective> {
        None
    }
    /// Whether its result is asked to lie as given (reshard, constraints): propagation pins it, and it is a value of its own.
    fn pins(&self) -> Option<Pin> {
        None
    }
}

/// A placement that the user asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pin {
    /// The mesh of the spec, which may be another one over the same devices.
    pub mesh: crate::mesh::Mesh,
    /// The spec over all axes that it speaks of.
    pub spec: Spec,
    /// Dimensions that may be split over further auto axes.
    pub open: Vec<usize>,
}

/// What a primitive of manual mode does among the devices along its axes. Dimensions are of one device's block.
#[derive(Clone, Debug, PartialEq)]
pub enum Collective {
    /// Combined over the axes, the same on all.
    Reduce {
        /// Over which.
        axes: Axes,
        /// How.
        combine: super::sentence::Combine,
    },
    /// The blocks of all, joined along `dim` (`tiled`) or along a new dimension there.
    AllGather {
        /// Over which.
        axes: Axes,
        /// Where.
        dim: usize,
        /// Joined, or along a new dimension.
        tiled: bool,
    },
    /// Summed over the axes, each device keeping its part of `dim`.
    ReduceScatter {
        /// Over which.
        axes: Axes,
        /// Which dimension is cut.
        dim: usize,
        /// Cut into blocks, or along a dimension of the axes' size, which goes.
        tiled: bool,
    },
    /// Each device keeps its part of `dim` of a value that is the same on all: nothing is communicated.
    OwnPart {
        /// Over which.
        axes: Axes,
        /// Which dimension is cut.
        dim: usize,
        /// Cut into blocks, or along a dimension of the axes' size, which goes.
        tiled: bool,
    },
    /// Dimension `split` cut, its parts exchanged and joined along `concat`.
    AllToAll {
        /// Over which.
        axes: Axes,
        /// Which dimension is cut.
        split: usize,
        /// Along which the parts are joined.
        concat: usize,
        /// Cut and joined, or dimensions of the axes' size that go and come.
        tiled: bool,
    },
    /// The block of the source of each pair; zeros for devices that are no target.
    Permute {
        /// Along which.
        axes: Axes,
        /// (source, target), as positions along the axes.
        pairs: Vec<(usize, usize)>,
    },
    /// The device's position along the axes.
    AxisIndex {
        /// Along which.
        axes: Axes,
    },
    /// The value as it is, with another type (pvary and pcast).
    Cast {
        /// Which axes change.
        axes: Vec<Axis>,
    },
}

impl dyn Primitive {
    /// Name and parameters: `reduce_sum[axes=[0]]`.
    pub fn key(&self) -> String {
        let params = self.params();
        if params.is_empty() { self.name().to_string() } else { format!("{}[{params}]", self.name()) }
    }
}

// Name and parameters are a primitive's identity; but parameters name a mesh by its axes only, where it may be another one over the same
// axes (a pin's), or one that no operand is on (a creation's, which is its result's).
impl PartialEq for dyn Primitive {
    fn eq(&self, other: &dyn Primitive) -> bool {
        self.name() == other.name() && self.params() == other.params() && self.pins() == other.pins()
    }
}
impl Eq for dyn Primitive {}
impl Hash for dyn Primitive {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
        self.params().hash(state);
    }
}
