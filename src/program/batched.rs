//! One more loop around an operation: what `vmap` makes of it.

use super::Prim;
use crate::mesh::{Axes, AxisType, Mesh};
use crate::sharding::Spec;
use crate::types::{ArrayType, Shape};

/// The loop that `vmap` puts around operations: mapped values have one more dimension, in front.
#[derive(Clone, Debug)]
pub struct Examples {
    /// How many examples there are.
    pub size: usize,
    /// The explicit axes over which they are split.
    pub axes: Axes,
    /// Further axes over which constraints inside ask them to be split.
    pub constrained: Axes,
    /// The mesh of the values that are mapped.
    pub mesh: Option<Mesh>,
}

/// An operation on one example as [`Primitive::batched`](super::Primitive::batched) sees it.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The loop.
    pub examples: &'a Examples,
    /// Which operands are mapped; at least one is.
    pub mapped: &'a [bool],
    /// The operands' types in one example.
    pub operands: &'a [ArrayType],
    /// The results' types in one example.
    pub results: &'a [ArrayType],
}

/// The same operation on all examples.
#[derive(Clone, Debug)]
pub struct Batched {
    /// With parameters for operands of one more dimension.
    pub prim: Prim,
    /// What is done with operands first.
    pub align: Align,
    /// Where the loop is in the results; it is moved to the front.
    pub at: usize,
}

/// What is done with the operands of an operation on all examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Nothing: parameters say where the loop is.
    Kept,
    /// They broadcast: mapped ones of fewer dimensions than the result get dimensions of size 1 behind the loop's.
    Broadcast,
    /// The first so many must have the loop; the others are numbers that say where: scalars stay, others have it if one of them has.
    Placed(usize),
    /// The operands from this one on are numbers that say where, each of which has the loop or is repeated: they become one array, of a
    /// vector of them for each example.
    Vectors(usize),
    /// All must have the loop: others are repeated, scalars beside larger ones stay or are repeated to the result's shape.
    All {
        /// Whether numbers written by the user stay.
        numbers: bool,
    },
}

impl Batched {
    /// The loop is the first dimension of mapped operands and of results; nothing is done with operands.
    pub fn of(prim: Prim) -> Batched {
        Batched { prim, align: Align::Kept, at: 0 }
    }
    /// Of an operation whose operands broadcast.
    pub fn broadcasting(prim: Prim) -> Batched {
        Batched { align: Align::Broadcast, ..Batched::of(prim) }
    }
    /// Of an operation whose operands must all have the loop.
    pub fn alike(prim: Prim, numbers: bool) -> Batched {
        Batched { align: Align::All { numbers }, ..Batched::of(prim) }
    }
}

/// The list with an entry more, at `at`.
pub fn inserted<T: Clone>(list: &[T], at: usize, entry: T) -> Vec<T> {
    let mut list = list.to_vec();
    list.insert(at.min(list.len()), entry);
    list
}

/// Dimensions behind a new first one.
pub fn behind(dims: &[usize]) -> Vec<usize> {
    dims.iter().map(|d| d + 1).collect()
}

impl Examples {
    /// The shape of all examples.
    pub fn shape(&self, shape: &Shape) -> Shape {
        inserted(shape, 0, self.size).into()
    }
    /// The type of all examples of a value.
    pub fn ty(&self, ty: &ArrayType) -> ArrayType {
        let mesh = ty.mesh.clone().or_else(|| self.mesh.clone());
        let spec = ty.spec.with_dims(inserted(ty.spec.padded(ty.rank()).dims(), 0, self.axes.clone()));
        ArrayType { shape: self.shape(&ty.shape), spec, mesh, ..ty.clone() }
    }
    /// A spec asked for one example of this rank as one for all examples, the loop at dimension `at`.
    pub fn spec(&self, spec: Spec, rank: usize, at: usize) -> Spec {
        spec.with_dims(inserted(spec.padded(rank).dims(), at, self.axes.clone()))
    }
    /// The same of a spec over the axes of this mesh of which constraints speak: auto ones, unless all are explicit.
    pub fn constraint(&self, mesh: &Mesh, spec: Spec, rank: usize) -> Spec {
        let mixed = mesh.axis_types().iter().any(|t| *t != AxisType::Explicit);
        let entry = if mixed {
            self.constrained.iter().filter(|a| mesh.axis_type(*a) == Some(AxisType::Auto)).collect()
        } else {
            self.axes.clone()
        };
        spec.with_dims(inserted(spec.padded(rank).dims(), 0, entry))
    }
}

impl Batch<'_> {
    /// The sharding asked for the result, if any, as one of all examples; the loop is at dimension `at` of it.
    pub fn out(&self, out: Option<Spec>, at: usize) -> Option<Spec> {
        out.map(|spec| self.examples.spec(spec, self.results[0].rank(), at))
    }
}
