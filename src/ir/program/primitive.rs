//! The [`Primitive`] trait, whose methods are all rules of an operation.

use super::factors::{Factors, Linearity, Priority};
use super::{
    BatchedOp, Builder, DeviceGroups, NamedOp, TypedOperand, Value, VmapArgs, loop_nest::LoopNest, typing,
};
use crate::core::{ArrayType, Axes, Axis, DType, Fault, Result, Shape, Spec};
use std::any::{Any, TypeId};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A primitive with its parameters.
pub type Prim = Arc<dyn Primitive>;

/// The tangents of a primitive's results.
/// `None` is zero.
pub type Tangents = Vec<Option<Value>>;

/// The arguments of [`Primitive::jvp`]: a primitive applied at a point, and tangents there.
#[derive(Debug)]
pub struct JvpArgs<'a> {
    /// The program that receives the computed equations.
    pub builder: &'a mut Builder,
    /// The values of the operands.
    pub operands: &'a [Value],
    /// The tangents of the operands.
    /// `None` is zero.
    pub tangents: &'a [Option<Value>],
    /// The values of the results.
    pub outputs: &'a [Value],
}

/// The arguments of [`Primitive::transpose`]: cotangents of the results of a linear primitive.
#[derive(Debug)]
pub struct TransposeArgs<'a> {
    /// The program that receives the computed equations.
    pub builder: &'a mut Builder,
    /// The values of the operands that do not depend on tangents.
    /// `None` for the operands whose cotangents are computed.
    pub operands: &'a [Option<Value>],
    /// The types of all operands.
    pub types: &'a [ArrayType],
    /// The cotangents of the results.
    /// `None` is zero.
    pub cotangents: &'a [Option<Value>],
}

/// An operation with all its rules.
/// A missing rule without a default is a compile error.
///
/// A primitive is a struct of its parameters that derives `Clone, Debug, PartialEq, Eq, Hash`. Two
/// primitives that differ in one field are different, in programs and in the caches of compiled
/// programs ([`DynEqHash`]). The rules follow the order of the stages: the result's element types
/// and shapes ([`shapes`](Primitive::shapes)); the loops and the dimensions that run over them
/// ([`factors`](Primitive::factors)), from which explicit typing, auto propagation and partitioning
/// follow; the derivatives ([`jvp`](Primitive::jvp), [`transpose`](Primitive::transpose)); the rule
/// for `vmap` ([`vmap`](Primitive::vmap)); and the definition of each element
/// ([`loop_nests`](Primitive::loop_nests)), from which all engines generate kernels. `types`,
/// `priority`, `collective`, `named_op`, `out_sharding`, `with_out_sharding`, `constraint` and
/// `remat` have defaults.
///
/// For each entry of [`PRIMITIVES`](crate::ir::ops::PRIMITIVES), tests require a conformance case
/// with the reference's results; derivatives that agree with finite differences, for unsharded and
/// for sharded operands; results under `vmap` that equal those of each example by itself; a
/// different program for a different value of each field; and a row in the book's table.
///
/// This is the smallest primitive, with `vmap` and gradients, for any sharding:
///
/// ```
/// use atmesh::diagnostic::Fault;
/// use atmesh::prelude::*;
/// use atmesh::program::loop_nest::{Access, Compute, LoopNest, ScalarArg, ScalarCode, ScalarOp};
/// use atmesh::program::{
///     BatchedOp, Dim, Factors, JvpArgs, Linearity, Primitive, Priority, Tangents, TransposeArgs,
///     TypedOperand, VmapArgs,
/// };
/// use atmesh::types::Shape;
/// use std::sync::Arc;
///
/// /// −x
/// #[derive(Clone, Debug, PartialEq, Eq, Hash)]
/// struct Negative;
///
/// impl Primitive for Negative {
///     fn name(&self) -> &'static str {
///         "negative"
///     }
///     fn params(&self) -> String {
///         String::new()
///     }
///     fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
///         let x = &operands[0].ty;
///         Ok(vec![(x.dtype, x.shape.clone())])
///     }
///     /// One loop for each dimension, shared by operand and result.
///     fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
///         let dims = Dim::each(0..operands[0].rank());
///         let results = vec![dims.clone()];
///         Factors { operands: vec![dims], results, ..Factors::from_sizes(&operands[0].shape) }
///     }
///     fn linearity(&self) -> Linearity {
///         Linearity::Joint
///     }
///     fn priority(&self) -> Priority {
///         Priority::Elementwise
///     }
///     fn jvp(&self, at: JvpArgs<'_>) -> Result<Tangents> {
///         at.tangents.iter().map(|t| t.as_ref().map(|t| at.builder.neg(t)).transpose()).collect()
///     }
///     fn transpose(&self, at: TransposeArgs<'_>) -> Result<Tangents> {
///         let cts = at.cotangents.iter();
///         cts.map(|ct| ct.as_ref().map(|ct| at.builder.neg(ct)).transpose()).collect()
///     }
///     fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
///         BatchedOp::new(Arc::new(self.clone()))
///     }
///     fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
///         let (dtype, y) = (operands[0].dtype, &results[0]);
///         let loops: Vec<_> = (0..y.rank()).map(Some).collect();
///         vec![LoopNest {
///             extents: y.shape.to_vec(),
///             rank: y.rank(),
///             dtype,
///             accesses: vec![Access::from_loops(0, dtype, &y.shape, &loops)],
///             compute: Compute::Map(ScalarCode::single(
///                 ScalarOp::Neg,
///                 dtype,
///                 dtype,
///                 &[ScalarArg::Access(0)],
///             )),
///         }]
///     }
/// }
///
/// let negative = |x: &Array| Array::apply(Arc::new(Negative), &[x.into()]).swap_remove(0);
/// let mesh = Mesh::new([("X", 2)])?;
/// let x = Array::from([1.0, -2.0]).put(&mesh, p!["X"]);
/// assert_eq!(negative(&x).to_vec::<f64>()?, [-1.0, 2.0]);
/// assert_eq!(type_of(negative(&x)).to_string(), "float64[2@X]");
/// assert_eq!(grad(&x, |x| negative(&x).sum(..)).to_vec::<f64>()?, [-1.0; 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub trait Primitive: DynEqHash + fmt::Debug + Send + Sync {
    /// Returns the name, as programs print it.
    fn name(&self) -> &'static str;
    /// Returns the element types and shapes of the results.
    /// Returns an error for operands of wrong rank, size or element type.
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault>;
    /// Returns the loops of the operation.
    /// It is called after `shapes` has accepted the operands.
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors;
    /// Returns the linearity, which determines how unreduced operands are treated.
    fn linearity(&self) -> Linearity;
    /// Returns the tangents of the results, computed from those of the operands.
    fn jvp(&self, args: JvpArgs<'_>) -> Result<Tangents>;
    /// Returns the cotangents of the operands in which the primitive is linear.
    /// It is called only if the cotangent of some result is not zero.
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents>;
    /// Returns the operation on all examples of `vmap`.
    /// Operands that are mapped have one more dimension, in front.
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp;
    /// Returns the definition of each result, element by element.
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest>;

    /// Returns the parameters, as programs print them: `axes=[0]`.
    /// The text is for readers only. Parameters that it leaves out still make primitives different.
    /// Defaults to no text.
    fn params(&self) -> String {
        String::new()
    }
    /// Returns the types of the results.
    /// The default infers them from the factors. Operations whose result types do not follow from
    /// factors override this method.
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        typing::by_factors(self, operands)
    }
    /// Returns the priority in auto propagation.
    /// Defaults to [`Priority::Plain`].
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    /// Returns the communication between devices, for operations of manual mode.
    /// Defaults to `None`.
    fn collective(&self) -> Option<ManualCollective> {
        None
    }
    /// Returns the named operation of other array languages, for operands of these types.
    /// It is used if loop nests express the operation badly or not at all. Defaults to `None`.
    fn named_op(&self, operands: &[ArrayType]) -> Option<NamedOp> {
        let _ = operands;
        None
    }
    /// Returns the sharding that the user requested for the first result.
    /// Defaults to `None`.
    fn out_sharding(&self) -> Option<Spec> {
        None
    }
    /// Returns this primitive with `out` as the requested sharding of the first result.
    /// Defaults to `None`, which means that users cannot request one.
    fn with_out_sharding(&self, out: Spec) -> Option<Prim> {
        let _ = out;
        None
    }
    /// Returns the sharding that the operation imposes on its result.
    /// Reshards and constraints impose one. Propagation places the result as requested, and stores
    /// it separately from the operand. Defaults to `None`.
    fn constraint(&self) -> Option<ShardingConstraint> {
        None
    }
    /// Returns when derivatives recompute the result instead of saving it.
    /// The default depends on the priority.
    fn remat(&self) -> Remat {
        Remat::for_priority(self.priority())
    }
}

/// Equality and hashing of trait objects, by the primitive's type and all its fields.
///
/// It is implemented for every type with `Eq` and `Hash`. Floats have neither: store them as
/// [`Scalar`](crate::core::types::Scalar)s, which are equal if their bits are equal.
pub trait DynEqHash: Any {
    /// Returns true if `other` has the same type and equal fields.
    fn dyn_eq(&self, other: &dyn Any) -> bool;
    /// Hashes the type and all fields.
    fn dyn_hash(&self, state: &mut dyn Hasher);
    /// Returns the path of the type, which names its crate in messages.
    fn type_path(&self) -> &'static str;
}
impl<T: Any + Eq + Hash> DynEqHash for T {
    fn dyn_eq(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }
    fn dyn_hash(&self, mut state: &mut dyn Hasher) {
        TypeId::of::<T>().hash(&mut state);
        self.hash(&mut state);
    }
    fn type_path(&self) -> &'static str {
        std::any::type_name::<T>()
    }
}

/// When the backward pass recomputes a value that it needs instead of saving it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remat {
    /// The value is always saved.
    Never,
    /// The value is recomputed if its operands are available in the backward pass anyway.
    /// This is for values that are smaller than their operands, such as slices.
    IfOperandsSaved,
    /// The value is always recomputed.
    /// This is for values that are views of their operands, or larger than their operands.
    Always,
}

impl Remat {
    /// Returns the default for a priority: views and broadcasts are recomputed, all else is saved.
    pub fn for_priority(priority: Priority) -> Remat {
        match priority {
            Priority::Alias | Priority::Broadcast => Remat::Always,
            Priority::Elementwise | Priority::DynamicSlice | Priority::Plain => Remat::Never,
        }
    }
}

/// A placement that the user requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardingConstraint {
    /// The mesh that has the axes of the spec.
    /// It may differ from the mesh of the value's type; both have the same devices.
    pub mesh: crate::core::mesh::Mesh,
    /// The requested spec, which may mention explicit and auto axes.
    pub spec: Spec,
    /// The dimensions that may be split over further auto axes.
    pub open_dims: Vec<usize>,
    /// True if the spec mentions explicit axes only, so that it leaves auto axes open.
    /// All dimensions may then be split over further auto axes.
    pub explicit_only: bool,
}

/// The communication of a collective among the devices along its axes.
/// Dimensions are those of one device's block.
#[derive(Clone, Debug, PartialEq)]
pub enum ManualCollective {
    /// The values of all devices are reduced; every device gets the result.
    AllReduce {
        /// The axes of the collective.
        axes: Axes,
        /// The groups that communicate; `None` if all devices along the axes are one group.
        groups: Option<DeviceGroups>,
        /// The reduction operation.
        reducer: super::loop_nest::Reducer,
    },
    /// The blocks of all devices are concatenated along `dim`, or stacked along a new dimension.
    AllGather {
        /// The axes of the collective.
        axes: Axes,
        /// The groups that communicate; `None` if all devices along the axes are one group.
        groups: Option<DeviceGroups>,
        /// The dimension of the result along which blocks are concatenated or stacked.
        dim: usize,
        /// True to concatenate along `dim`, false to stack along a new dimension there.
        tiled: bool,
    },
    /// The values of all devices are summed; each device keeps its shard along `dim`.
    ReduceScatter {
        /// The axes of the collective.
        axes: Axes,
        /// The groups that communicate; `None` if all devices along the axes are one group.
        groups: Option<DeviceGroups>,
        /// The dimension that is split.
        dim: usize,
        /// True to split `dim` into blocks.
        /// False to index and remove `dim`, whose size is that of the axes.
        tiled: bool,
    },
    /// Each device keeps its shard along `dim` of a value that is equal on all devices.
    /// This needs no communication.
    KeepShard {
        /// The axes of the collective.
        axes: Axes,
        /// The dimension that is split.
        dim: usize,
        /// True to split `dim` into blocks.
        /// False to index and remove `dim`, whose size is that of the axes.
        tiled: bool,
    },
    /// Dimension `split` is split over devices; received blocks are concatenated along `concat`.
    AllToAll {
        /// The axes of the collective.
        axes: Axes,
        /// The groups that communicate; `None` if all devices along the axes are one group.
        groups: Option<DeviceGroups>,
        /// The dimension that is split.
        split: usize,
        /// The dimension of the result along which the received blocks are concatenated.
        concat: usize,
        /// True to split and concatenate blocks.
        /// False to remove `split` and insert `concat`, dimensions of the axes' size.
        tiled: bool,
    },
    /// Each source device sends its block to its target device.
    /// Devices that are not a target get zeros.
    Permute {
        /// The axes of the collective.
        axes: Axes,
        /// Pairs (source, target) of device positions along the axes.
        pairs: Vec<(usize, usize)>,
    },
    /// Every device gets the block of one device.
    Broadcast {
        /// The axes of the collective.
        axes: Axes,
        /// The position along the axes of the device whose block is copied.
        source: usize,
    },
    /// The position of the device along the axes.
    AxisIndex {
        /// The axes.
        axes: Axes,
    },
    /// The value gets another type (pvary and pcast).
    /// This needs no communication.
    Pcast {
        /// The axes over which the varying state changes.
        axes: Vec<Axis>,
    },
}

impl ManualCollective {
    /// Returns the groups of the collective; `None` if all devices along its axes are one group.
    ///
    /// ```
    /// use atmesh::program::{DeviceGroups, ManualCollective};
    /// let groups = Some(DeviceGroups::new(vec![vec![0, 1], vec![2, 3]]));
    /// let pairs = ManualCollective::AllGather { axes: "X".into(), groups, dim: 0, tiled: true };
    /// assert_eq!(pairs.groups().map(DeviceGroups::max_size), Some(2));
    /// ```
    pub fn groups(&self) -> Option<&DeviceGroups> {
        match self {
            ManualCollective::AllReduce { groups, .. }
            | ManualCollective::AllGather { groups, .. }
            | ManualCollective::ReduceScatter { groups, .. }
            | ManualCollective::AllToAll { groups, .. } => groups.as_ref(),
            _ => None,
        }
    }
    /// Returns the axes of the collective.
    pub fn axes(&self) -> &[Axis] {
        match self {
            ManualCollective::AllReduce { axes, .. }
            | ManualCollective::AllGather { axes, .. }
            | ManualCollective::ReduceScatter { axes, .. }
            | ManualCollective::KeepShard { axes, .. }
            | ManualCollective::AllToAll { axes, .. }
            | ManualCollective::Permute { axes, .. }
            | ManualCollective::Broadcast { axes, .. }
            | ManualCollective::AxisIndex { axes } => axes.as_slice(),
            ManualCollective::Pcast { axes } => axes,
        }
    }
    /// Returns true if the operation makes devices wait for each other.
    /// All devices along the axes must then reach it.
    pub fn communicates(&self) -> bool {
        match self {
            ManualCollective::AllReduce { .. }
            | ManualCollective::AllGather { .. }
            | ManualCollective::ReduceScatter { .. }
            | ManualCollective::AllToAll { .. }
            | ManualCollective::Permute { .. }
            | ManualCollective::Broadcast { .. } => true,
            ManualCollective::KeepShard { .. }
            | ManualCollective::AxisIndex { .. }
            | ManualCollective::Pcast { .. } => false,
        }
    }
}

impl dyn Primitive {
    /// Returns this primitive as a `T`, if it is one.
    ///
    /// ```
    /// use atmesh::ops::reduce::{Reduce, Reduction};
    /// use atmesh::program::Prim;
    /// use std::sync::Arc;
    /// let prim: Prim = Arc::new(Reduce::new(Reduction::Sum, &[1], None));
    /// assert_eq!(prim.downcast_ref::<Reduce>().map(|r| &r.axes[..]), Some(&[1][..]));
    /// ```
    pub fn downcast_ref<T: Primitive>(&self) -> Option<&T> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
    /// Returns name and parameters, as programs print them: `reduce_sum[axes=[0]]`.
    pub fn key(&self) -> String {
        let params = self.params();
        if params.is_empty() { self.name().to_string() } else { format!("{}[{params}]", self.name()) }
    }
}

impl PartialEq for dyn Primitive {
    fn eq(&self, other: &dyn Primitive) -> bool {
        self.dyn_eq(other)
    }
}
impl Eq for dyn Primitive {}
impl Hash for dyn Primitive {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dyn_hash(state);
    }
}
