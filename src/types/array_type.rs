//! `ArrayType`: `int32[4@X,2]{V:Y}`.

use crate::diagnostic::{ErrorKind, Fault};
use crate::elements::{DType, Shape};
use crate::mesh::{Axes, Mesh};
use crate::sharding::Spec;
use std::fmt;

/// The type of an array: `int32[4@X,2]`.
///
/// `spec` has an entry for each dimension and names explicit axes only; its sharding over auto axes is not part of
/// its type. A value on no mesh has a whole spec and joins any mesh as replicated.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ArrayType {
    /// The element type.
    pub dtype: DType,
    /// The sizes of the dimensions (inside `shard_map`: of one device's block).
    pub shape: Shape,
    /// The mesh that it is on; inside `shard_map` with its manual axes marked as such.
    pub mesh: Option<Mesh>,
    /// How it is split over explicit axes, and its unreduced and reduced sets.
    pub spec: Spec,
    /// The manual axes over which it varies, in mesh order.
    pub varying: Axes,
}

/// Most dimensions of an array, and most indices that an operation runs over: its result's and those that it sums.
pub(crate) const MOST_INDICES: usize = 12;

/// The refusal of an operation that runs over more indices.
pub(crate) fn too_many(n: usize) -> Fault {
    let message = format!(
        "this runs over {n} indices, those of its result and those that it sums: at most {MOST_INDICES} are supported"
    );
    Fault::new(ErrorKind::Unsupported, message).help("make one dimension of several: `.reshape(..)`")
}

impl DType {
    /// The type of a whole array, not on a mesh: `I32.of([8, 2])`.
    pub fn of(self, shape: impl Into<Shape>) -> ArrayType {
        let shape = shape.into();
        let spec = Spec::whole(shape.rank());
        ArrayType { dtype: self, shape, mesh: None, spec, varying: Axes::none() }
    }
}

impl ArrayType {
    /// The same on a mesh, sharded as `spec` says (checked where an array of it is made): `F32.of([8, 2]).on(&mesh, p!["X", _])`.
    pub fn on(self, mesh: &Mesh, spec: Spec) -> ArrayType {
        ArrayType { mesh: Some(mesh.clone()), spec: spec.padded(self.rank()), ..self }
    }
    /// How many dimensions.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }
    /// Bytes of the whole array; where they are more than can be counted, the greatest number.
    pub fn nbytes(&self) -> usize {
        self.shape.elements().saturating_mul(self.dtype.size())
    }
    /// Refuses arrays of more dimensions than are supported, and of more bytes than can be addressed. Types of results are checked, so
    /// that later stages may count in `usize` and `i64`.
    pub(crate) fn addressable(&self) -> Result<(), Fault> {
        if self.rank() > MOST_INDICES {
            let message =
                format!("{self} has {} dimensions: at most {MOST_INDICES} are supported", self.rank());
            let fault = Fault::new(ErrorKind::Unsupported, message);
            return Err(fault.help("make one dimension of several: `.reshape(..)`"));
        }
        // as much as is addressed, or more; sums of a few such counts still fit. Strides are counted also where another dimension is empty
        const MOST: usize = 1 << (usize::BITS - 4);
        let sizes = self.shape.iter().filter(|n| **n != 0);
        if sizes.fold(self.dtype.size(), |n, size| n.saturating_mul(*size)) <= MOST {
            return Ok(());
        }
        Err(Fault::new(ErrorKind::Shape, format!("{self} is of more bytes than can be addressed")))
    }
    /// The type as printed, with short names of element types: `i32[4@X,2]`.
    pub fn short(&self) -> String {
        self.print(self.dtype.short())
    }
    fn print(&self, dtype: &str) -> String {
        let dims: Vec<_> = (self.shape.iter().enumerate())
            .map(|(d, n)| match self.spec.dims().get(d) {
                Some(axes) if !axes.is_empty() => format!("{n}@{axes}"),
                _ => n.to_string(),
            })
            .collect();
        let sets = [("V", &self.varying), ("U", self.spec.unreduced_axes()), ("R", self.spec.reduced_axes())];
        let sets: Vec<_> = sets.iter().filter(|s| !s.1.is_empty()).map(|(n, a)| format!("{n}:{a}")).collect();
        let sets = if sets.is_empty() { String::new() } else { format!("{{{}}}", sets.join(", ")) };
        format!("{dtype}[{}]{sets}", dims.join(","))
    }
}
/// A bare shape is float32, unsharded.
impl<S: Into<Shape>> From<S> for ArrayType {
    fn from(shape: S) -> ArrayType {
        DType::F32.of(shape)
    }
}
impl fmt::Display for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.print(self.dtype.name()))
    }
}
impl fmt::Debug for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
