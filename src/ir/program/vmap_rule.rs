//! The `vmap` rule of primitives, which turns an operation on one example into one on all examples.

use super::Prim;
use crate::core::{ArrayType, Axes, AxisType, Mesh, Shape, Spec};

/// The batch dimension, which `vmap` adds to the operations of a program.
/// It is the first dimension of all mapped values.
#[derive(Clone, Debug)]
pub struct BatchDim {
    /// The number of examples.
    pub size: usize,
    /// The explicit axes that split the examples.
    pub axes: Axes,
    /// The axes over which constraints inside the function keep the batch dimension sharded.
    pub constrained_axes: Axes,
    /// The mesh of the mapped values; `None` if they are not on a mesh.
    pub mesh: Option<Mesh>,
}

/// The arguments of [`Primitive::vmap`](super::Primitive::vmap): an operation on one example.
#[derive(Clone, Copy, Debug)]
pub struct VmapArgs<'a> {
    /// The batch dimension.
    pub batch_dim: &'a BatchDim,
    /// True for each operand that is mapped.
    /// At least one operand is mapped.
    pub mapped: &'a [bool],
    /// The types of the operands in one example.
    pub operands: &'a [ArrayType],
    /// The types of the results in one example.
    pub results: &'a [ArrayType],
}

/// An operation on all examples, as returned by [`Primitive::vmap`](super::Primitive::vmap).
#[derive(Clone, Debug)]
pub struct BatchedOp {
    /// The primitive, with parameters for operands that have one more dimension.
    pub prim: Prim,
    /// The way in which the operands are adapted before the operation.
    pub operand_batching: OperandBatching,
    /// The batch dimension of the results.
    /// It is moved to the front after the operation.
    pub out_dim: usize,
}

/// The way in which operands are adapted to an operation on all examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandBatching {
    /// Operands are not adapted: the primitive's parameters account for the batch dimension.
    Unchanged,
    /// Operands broadcast.
    /// A mapped operand with fewer dimensions than the result gets dimensions of size 1 after the
    /// batch dimension.
    Broadcast,
    /// The first n operands are repeated along the batch dimension if they lack it.
    /// The others are indices. Scalar indices stay as they are. Index arrays are repeated if they
    /// lack the batch dimension and some index has it.
    WithIndices(usize),
    /// The operands from the n-th on are indices.
    /// They are scalars in one example. Those without the batch dimension are repeated along it,
    /// and all are concatenated into one array with an index vector for each example.
    IndexVectors(usize),
    /// Operands of the result's rank are repeated along the batch dimension if they lack it.
    /// Operands of lower rank are scalars: one that has the batch dimension is broadcast to the
    /// result's shape, any other stays as it is.
    AllBatched {
        /// True if literals written by the user stay as they are.
        keep_literals: bool,
    },
}

impl BatchedOp {
    /// Returns an operation whose mapped operands and results have the batch dimension first.
    pub fn new(prim: Prim) -> BatchedOp {
        BatchedOp { prim, operand_batching: OperandBatching::Unchanged, out_dim: 0 }
    }
    /// Returns an operation whose operands broadcast.
    pub fn broadcasting(prim: Prim) -> BatchedOp {
        BatchedOp { operand_batching: OperandBatching::Broadcast, ..BatchedOp::new(prim) }
    }
    /// Returns an operation whose operands must all have the batch dimension.
    pub fn all_batched(prim: Prim, keep_literals: bool) -> BatchedOp {
        BatchedOp { operand_batching: OperandBatching::AllBatched { keep_literals }, ..BatchedOp::new(prim) }
    }
}

/// Returns the list with `entry` inserted at index `at`.
pub fn with_inserted<T: Clone>(list: &[T], at: usize, entry: T) -> Vec<T> {
    let mut list = list.to_vec();
    list.insert(at.min(list.len()), entry);
    list
}

/// Returns the dimensions after a new first dimension was added: each is increased by 1.
pub fn shifted_dims(dims: &[usize]) -> Vec<usize> {
    dims.iter().map(|d| d + 1).collect()
}

impl BatchDim {
    /// Returns the shape of all examples, given the shape of one.
    pub fn shape(&self, shape: &Shape) -> Shape {
        with_inserted(shape, 0, self.size).into()
    }
    /// Returns the type of all examples, given the type of one.
    pub fn ty(&self, ty: &ArrayType) -> ArrayType {
        let mesh = ty.mesh.clone().or_else(|| self.mesh.clone());
        let spec = ty.spec.with_dims(with_inserted(ty.spec.padded(ty.rank()).dims(), 0, self.axes.clone()));
        ArrayType { shape: self.shape(&ty.shape), spec, mesh, ..ty.clone() }
    }
    /// Returns a spec requested for one example with the batch dimension inserted.
    pub fn spec(&self, spec: Spec, rank: usize, dim: usize) -> Spec {
        spec.with_dims(with_inserted(spec.padded(rank).dims(), dim, self.axes.clone()))
    }
    /// Returns the spec of a constraint on one example as a spec for all examples.
    /// The batch dimension is split over those of `constrained_axes` that are auto axes of `mesh`,
    /// or over `axes` if all axes of `mesh` are explicit.
    pub fn constraint(&self, mesh: &Mesh, spec: Spec, rank: usize) -> Spec {
        let mixed = mesh.axis_types().iter().any(|t| *t != AxisType::Explicit);
        let entry = if mixed {
            self.constrained_axes.iter().filter(|a| mesh.axis_type(*a) == Some(AxisType::Auto)).collect()
        } else {
            self.axes.clone()
        };
        spec.with_dims(with_inserted(spec.padded(rank).dims(), 0, entry))
    }
}

impl VmapArgs<'_> {
    /// Returns a requested output sharding for one example, if any, as one for all examples.
    /// The batch dimension of the result is inserted at the given index.
    pub fn out_sharding(&self, out: Option<Spec>, dim: usize) -> Option<Spec> {
        out.map(|spec| self.batch_dim.spec(spec, self.results[0].rank(), dim))
    }
}
