//! What a primitive is: all its rules, as required methods of one trait.

use super::factors::{Factors, Linearity, Priority};
use super::sentence::Sentence;
use super::{Batch, Batched, Builder, Familiar, Source, Value, typing};
use crate::diagnostic::{Fault, Result};
use crate::mesh::{Axes, Axis};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::any::{Any, TypeId};
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
    /// What it is to the user, where that is not itself.
    known: Option<Arc<Known>>,
}

/// What the user knows an operand as.
#[derive(Clone, Debug)]
struct Known {
    number: usize,
    ty: ArrayType,
    dims: Option<Vec<usize>>,
}

impl From<ArrayType> for Operand {
    fn from(ty: ArrayType) -> Operand {
        Operand::new(ty, false)
    }
}

impl Operand {
    /// An operand of this type, which may be a number written by the user.
    pub fn new(ty: ArrayType, literal: bool) -> Operand {
        Operand { ty, literal, known: None }
    }
    /// The same as the user knows it.
    pub(super) fn named(&self, source: Option<&Source<'_>>) -> Operand {
        let known = |s: &Source<'_>| Known {
            number: s.number,
            ty: s.ty.unwrap_or(&self.ty).clone(),
            dims: s.dims.map(Into::into),
        };
        Operand { known: source.map(known).map(Arc::new), ..self.clone() }
    }
    /// The number that messages give it, where it is the k-th.
    pub(crate) fn number(&self, k: usize) -> usize {
        self.known.as_ref().map_or(k, |known| known.number)
    }
    /// The user's dimension that its dimension `d` is.
    pub(crate) fn dim(&self, d: usize) -> usize {
        self.known.as_ref().and_then(|known| known.dims.as_ref()).map_or(d, |dims| dims[d])
    }
    /// The type that the user knows it by.
    pub(crate) fn told(&self) -> &ArrayType {
        self.known.as_ref().map_or(&self.ty, |known| &known.ty)
    }
    /// `dimension 1 of operand 0`, where it is the k-th.
    pub(crate) fn dimension(&self, k: usize, d: usize) -> String {
        format!("dimension {} of operand {}", self.dim(d), self.number(k))
    }
}

/// The tangents of a primitive's results; `None` is zero.
pub type Tangents = Vec<Option<Value>>;

/// A primitive at a point, and tangents there, as [`Primitive::jvp`] sees them.
#[derive(Debug)]
pub struct Forward<'a> {
    /// The program that what is computed is added to.
    pub b: &'a mut Builder,
    /// The operands at the point.
    pub operands: &'a [Value],
    /// Their tangents; `None` is zero.
    pub tangents: &'a [Option<Value>],
    /// The results at the point.
    pub outputs: &'a [Value],
}

/// A primitive that is linear in some operands, and cotangents of its results, as [`Primitive::transpose`] sees them.
#[derive(Debug)]
pub struct Back<'a> {
    /// The program that what is computed is added to.
    pub b: &'a mut Builder,
    /// The values of operands that it is not linear in here; `None` for the others.
    pub operands: &'a [Option<Value>],
    /// The types of all operands.
    pub types: &'a [ArrayType],
    /// The cotangents of the results; `None` is zero.
    pub cotangents: &'a [Option<Value>],
}

/// An operation with all its rules. A missing rule does not compile.
///
/// A primitive is a struct with its parameters, which derives `Clone, Debug, PartialEq, Eq, Hash`: two that differ in one field are two,
/// in programs and in what is kept of compiled ones ([`Identity`]). The rules answer, in the order of the stages: what the result is
/// ([`shapes`](Primitive::shapes)); which loops run over which dimensions ([`factors`](Primitive::factors)), from which come explicit
/// typing, auto propagation and partitioning; what derivatives are ([`jvp`](Primitive::jvp), [`transpose`](Primitive::transpose)); what
/// `vmap` makes of it ([`batched`](Primitive::batched)); and what each element is ([`sentences`](Primitive::sentences)), from which both
/// engines make kernels. `types`, `collective`, `familiar`, `pins` and `again` have defaults.
///
/// The completeness tests want of each line of [`PRIMITIVES`](crate::ops::PRIMITIVES): a conformance case with the reference's answers;
/// derivatives that agree with differences, of unsharded and of sharded operands; the same result for many examples as for each; another
/// value of each field that makes another program; a row of the book's table.
///
/// The smallest one written out, with `vmap` and gradients, on any sharding:
///
/// ```
/// use atmesh::diagnostic::Fault;
/// use atmesh::prelude::*;
/// use atmesh::program::sentence::{Arg, Body, Code, Fun, Read, Sentence};
/// use atmesh::program::{
///     Back, Batch, Batched, Dim, Factors, Forward, Linearity, Operand, Primitive, Priority, Tangents,
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
///     fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
///         let x = &operands[0].ty;
///         Ok(vec![(x.dtype, x.shape.clone())])
///     }
///     /// A loop for each dimension, the same of operand and result.
///     fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
///         let dims = Dim::each(0..operands[0].rank());
///         Factors { operands: vec![dims.clone()], results: vec![dims], ..Factors::over(&operands[0].shape) }
///     }
///     fn linearity(&self) -> Linearity {
///         Linearity::Joint
///     }
///     fn priority(&self) -> Priority {
///         Priority::Elementwise
///     }
///     fn out(&self) -> Option<Spec> {
///         None
///     }
///     fn jvp(&self, at: Forward<'_>) -> Result<Tangents> {
///         at.tangents.iter().map(|t| t.as_ref().map(|t| at.b.neg(t)).transpose()).collect()
///     }
///     fn transpose(&self, at: Back<'_>) -> Result<Tangents> {
///         at.cotangents.iter().map(|ct| ct.as_ref().map(|ct| at.b.neg(ct)).transpose()).collect()
///     }
///     fn batched(&self, _: &Batch<'_>) -> Batched {
///         Batched::of(Arc::new(self.clone()))
///     }
///     fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
///         let (dtype, y) = (operands[0].dtype, &results[0]);
///         let loops: Vec<_> = (0..y.rank()).map(Some).collect();
///         vec![Sentence {
///             extents: y.shape.to_vec(),
///             rank: y.rank(),
///             dtype,
///             reads: vec![Read::plain(0, dtype, &y.shape, &loops)],
///             body: Body::Map(Code::one(Fun::Neg, dtype, dtype, &[Arg::Read(0)])),
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
pub trait Primitive: Identity + fmt::Debug + Send + Sync {
    /// Its name, as programs print it.
    fn name(&self) -> &'static str;
    /// Its parameters, as programs print them: `axes=[0]`. Text is for reading: what it leaves out is compared all the same.
    fn params(&self) -> String;
    /// Element types and shapes of the results; refuses operands of wrong rank, size or element type.
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault>;
    /// Its loops. Called after `shapes` accepted the operands.
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors;
    /// How it treats unreduced operands.
    fn linearity(&self) -> Linearity;
    /// When auto propagation lets it speak.
    fn priority(&self) -> Priority;
    /// The sharding asked for the first result.
    fn out(&self) -> Option<Spec>;
    /// The tangents of the results, from those of the operands.
    fn jvp(&self, at: Forward<'_>) -> Result<Tangents>;
    /// The cotangents of the operands that it is linear in. Called with at least one cotangent of a result.
    fn transpose(&self, at: Back<'_>) -> Result<Tangents>;
    /// The operation on all examples of `vmap` at once: mapped operands have one more dimension, in front.
    fn batched(&self, batch: &Batch<'_>) -> Batched;
    /// What each result is, element by element.
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence>;

    /// The results' types. From the factors, but for operations that are functions on types.
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        typing::by_factors(self, operands)
    }
    /// What it is among devices, for the operations of manual mode.
    fn collective(&self) -> Option<Collective> {
        None
    }
    /// What it is in words of other array languages, where its sentences say it less well or not at all, for operands of these types.
    fn familiar(&self, operands: &[ArrayType]) -> Option<Familiar> {
        let _ = operands;
        None
    }
    /// The same with this sharding asked for the first result, where its user may ask for one.
    fn with_out(&self, out: Spec) -> Option<Prim> {
        let _ = out;
        None
    }
    /// Whether its result is asked to be sharded as given (reshard, constraints): propagation pins it, and it is a value of its own.
    fn pins(&self) -> Option<Pin> {
        None
    }
    /// When derivatives compute its result again rather than keep it.
    fn again(&self) -> Again {
        Again::by_priority(self.priority())
    }
}

/// What a primitive is, to compare: its type and all its fields. Every type that has `Eq` and `Hash` has it. Floats are not keys: hold
/// them as [`Scalar`](crate::types::Scalar)s, which are equal when their bits are.
pub trait Identity: Any {
    /// Whether the other is of the same type with equal fields.
    fn same(&self, other: &dyn Any) -> bool;
    /// Hashes the type and all fields.
    fn digest(&self, state: &mut dyn Hasher);
    /// The path of the type: who wrote it, for messages.
    fn type_path(&self) -> &'static str;
}
impl<T: Any + Eq + Hash> Identity for T {
    fn same(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }
    fn digest(&self, mut state: &mut dyn Hasher) {
        TypeId::of::<T>().hash(&mut state);
        self.hash(&mut state);
    }
    fn type_path(&self) -> &'static str {
        std::any::type_name::<T>()
    }
}

/// When derivatives compute a value that they need again, rather than keep it from the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It is kept.
    Never,
    /// Where its operands are kept anyway: it is smaller than they are.
    AtHand,
    /// Always: it is a view of its operands, or larger than they are.
    Always,
}

impl Again {
    /// Views and broadcasts are computed again, everything else is kept.
    pub fn by_priority(priority: Priority) -> Again {
        match priority {
            Priority::Alias | Priority::Broadcast => Again::Always,
            Priority::Elementwise | Priority::DynamicSlice | Priority::Plain => Again::Never,
        }
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
    /// Whether all dimensions may: it speaks of explicit axes only.
    pub loose: bool,
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
    /// The block of the source of each pair; zeros for devices that are not a target.
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

impl Collective {
    /// The axes along which devices take part.
    pub fn axes(&self) -> &[Axis] {
        match self {
            Collective::Reduce { axes, .. }
            | Collective::AllGather { axes, .. }
            | Collective::ReduceScatter { axes, .. }
            | Collective::OwnPart { axes, .. }
            | Collective::AllToAll { axes, .. }
            | Collective::Permute { axes, .. }
            | Collective::AxisIndex { axes } => axes.as_slice(),
            Collective::Cast { axes } => axes,
        }
    }
    /// Whether devices wait for one another in it: all along the axes must then reach it.
    pub fn communicates(&self) -> bool {
        match self {
            Collective::Reduce { .. }
            | Collective::AllGather { .. }
            | Collective::ReduceScatter { .. }
            | Collective::AllToAll { .. }
            | Collective::Permute { .. } => true,
            Collective::OwnPart { .. } | Collective::AxisIndex { .. } | Collective::Cast { .. } => false,
        }
    }
}

impl dyn Primitive {
    /// It as a primitive of this type, if it is one.
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
    /// Name and parameters, as programs print it: `reduce_sum[axes=[0]]`.
    pub fn key(&self) -> String {
        let params = self.params();
        if params.is_empty() { self.name().to_string() } else { format!("{}[{params}]", self.name()) }
    }
}

impl PartialEq for dyn Primitive {
    fn eq(&self, other: &dyn Primitive) -> bool {
        self.same(other)
    }
}
impl Eq for dyn Primitive {}
impl Hash for dyn Primitive {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest(state);
    }
}
