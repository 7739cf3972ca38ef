//! [`ArrayType`]: `int32[4@X,2]{V:Y}`.

use crate::core::diagnostic::{ErrorKind, Fault};
use crate::core::dtype::{DType, Shape};
use crate::core::mesh::{Axes, AxisRules, Mesh};
use crate::core::sharding::Spec;
use std::fmt;

/// The type of an array: `int32[4@X,2]`.
///
/// `spec` has an entry for each dimension and names explicit axes only: shardings over auto axes
/// are not part of the type. A value that is not on a mesh has a replicated spec, and adapts to any
/// mesh as replicated.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let ty = F32.array_type([4, 2]).on(&mesh, p!["X"]);
/// assert_eq!((ty.to_string().as_str(), ty.rank(), ty.nbytes()), ("float32[4@X,2]", 2, 32));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ArrayType {
    /// The element type.
    pub dtype: DType,
    /// The sizes of the dimensions.
    /// Inside `shard_map`, those of one device's block.
    pub shape: Shape,
    /// The mesh; `None` if the value is not on a mesh.
    /// Inside `shard_map`, with its manual axes marked.
    pub mesh: Option<Mesh>,
    /// The sharding over explicit axes, and the unreduced and reduced sets.
    pub spec: Spec,
    /// The manual axes over which the value varies, in mesh order.
    pub varying: Axes,
}

/// The maximum number of dimensions of an array, and of loops of an operation.
/// The loops are the dimensions of its result and the loops that it sums over.
pub(crate) const MAX_INDICES: usize = 12;

/// Returns the fault of an operation with more loop indices than supported.
pub(crate) fn too_many_indices(n: usize) -> Fault {
    fault!(Unsupported, "this runs over {n} indices, those of its result and those that it sums: at most {MAX_INDICES} are supported").help("make one dimension of several: `.reshape(..)`")
}

impl DType {
    /// Returns the type of an unsharded array that is not on a mesh: `I32.array_type([8, 2])`.
    pub fn array_type(self, shape: impl Into<Shape>) -> ArrayType {
        let shape = shape.into();
        let spec = Spec::replicated(shape.rank());
        ArrayType { dtype: self, shape, mesh: None, spec, varying: Axes::none() }
    }
}

impl ArrayType {
    /// Returns this type on a mesh: `F32.array_type([8, 2]).on(&mesh, p!["X", _])`.
    ///
    /// The spec may use the mesh's logical axes. It is checked later, when an array of this type is
    /// created.
    pub fn on(self, mesh: &Mesh, spec: Spec) -> ArrayType {
        self.on_with(mesh, spec, AxisRules::Compute)
    }
    /// Returns this type in the storage of a mesh, like [`Array::put_stored`].
    ///
    /// The spec is checked later, when an array of this type is created.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("x", 8)])?
    ///     .with_logical_axes([("embed", ())])?
    ///     .with_storage_axes([("embed", "x")])?;
    /// let of = || F32.array_type([16, 4]);
    /// assert_eq!(of().on(&mesh, p!["embed", _]).to_string(), "float32[16,4]");
    /// assert_eq!(of().stored_on(&mesh, p!["embed", _]).to_string(), "float32[16@x,4]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// [`Array::put_stored`]: crate::Array::put_stored
    pub fn stored_on(self, mesh: &Mesh, spec: Spec) -> ArrayType {
        self.on_with(mesh, spec, AxisRules::Storage)
    }
    fn on_with(self, mesh: &Mesh, spec: Spec, rules: AxisRules) -> ArrayType {
        // what cannot be resolved is an error of the check
        let spec = mesh.try_resolve(spec, rules).unwrap_or(spec);
        ArrayType { mesh: Some(mesh.clone()), spec: spec.padded(self.rank()), ..self }
    }
    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }
    /// Returns the size of the full array in bytes, saturating at `usize::MAX`.
    pub fn nbytes(&self) -> usize {
        self.shape.num_elements().saturating_mul(self.dtype.size())
    }
    /// Returns an error for arrays with too many dimensions, or more bytes than can be addressed.
    ///
    /// Types of results are checked, so that later stages can compute sizes in `usize` and `i64`.
    pub(crate) fn check_addressable(&self) -> Result<(), Fault> {
        if self.rank() > MAX_INDICES {
            let message =
                format!("{self} has {} dimensions: at most {MAX_INDICES} are supported", self.rank());
            let fault = Fault::new(ErrorKind::Unsupported, message);
            return Err(fault.help("make one dimension of several: `.reshape(..)`"));
        }
        // at least the addressable size, and small enough that sums of a few such sizes do not
        // overflow; dimensions of size 0 are ignored, since strides are computed for empty arrays
        // too
        const MAX_BYTES: usize = 1 << (usize::BITS - 4);
        let sizes = self.shape.iter().filter(|n| **n != 0);
        if sizes.fold(self.dtype.size(), |n, size| n.saturating_mul(*size)) <= MAX_BYTES {
            return Ok(());
        }
        Err(fault!(Shape, "{self} is of more bytes than can be addressed"))
    }
    /// Returns the printed type with the short name of the element type: `i32[4@X,2]`.
    pub fn short_text(&self) -> String {
        self.text_with_dtype(self.dtype.short_name())
    }
    fn text_with_dtype(&self, dtype: &str) -> String {
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
/// A bare shape stands for an unsharded float32 array.
impl<S: Into<Shape>> From<S> for ArrayType {
    fn from(shape: S) -> ArrayType {
        DType::F32.array_type(shape)
    }
}
impl fmt::Display for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text_with_dtype(self.dtype.name()))
    }
}
debug_as_display! { [] ArrayType }
