//! `smap`: manual mode over one axis, with a dimension for each argument and result.

use super::{Settings, ShardMap, map_blocks};
use crate::api::array::resolve_dim;
use crate::api::transform::{MapDims, OutputTree, leaf_dims};
use crate::api::tree::{Func, Inferred, Output, Path, SpecTree, Tree, resolve};
use crate::core::{Axes, Axis, Error, Fault, Mesh, Result, Spec};
use crate::ir::program::CallSite;
use std::panic::Location;

/// Creates a program from per-device code over one axis of a mesh.
///
/// This is [`shard_map`](crate::shard_map()) over `axis` alone: `in_dims` has the dimension of each
/// argument that the axis splits, and `out_dims` the dimension of each result along which blocks
/// are joined. `0` or `-1` is for all arrays, `[Some(0), None]` for each component of a tuple;
/// `None` is an argument that all devices have, or a result that is equal on all. With
/// [`Inferred`] as `in_dims`, an argument is split as its type says (explicit axes only).
///
/// Other axes of the mesh keep their axis types, so calls over different axes nest. An array that
/// is sharded otherwise is resharded, unless the mesh has no other axis and it is explicit: then
/// that is an error.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::smap;
/// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
/// let total = |x: &Array, w: &Array| (x * w).sum(..).psum("X");
/// let f = smap(&mesh, "X", [Some(0), None], None, total);
/// assert_eq!(f.call((Array::arange(0..4), Array::from(10)))?.item::<i32>()?, 60);
///
/// // one axis at a time: the inner region is manual over Y too
/// let columns = |x: &Array| smap(&mesh, "Y", 1, 1, |x: &Array| x * axis_index("Y")).call(x);
/// let g = smap(&mesh, "X", 0, 0, |x: &Array| Ok(columns(x)? + axis_index("X")));
/// assert_eq!(g.call(Array::from([[1, 1], [1, 1]]))?.to_vec::<i32>()?, [0, 1, 1, 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("in_axes", "out_axes", "axis_name"))]
#[track_caller]
pub fn smap<'f, M, F: Func<M, Ret: Output> + 'f>(
    mesh: &Mesh,
    axis: impl Into<Axis>,
    in_dims: impl Into<SmapDims>,
    out_dims: impl Into<MapDims>,
    f: F,
) -> ShardMap<'f, F::In, OutputTree<F, M>> {
    let axis = axis.into();
    let in_specs = match in_dims.into().0 {
        None => BlockSpecs::Tree(SpecTree::Inferred),
        Some(dims) => BlockSpecs::Dims(dims, axis),
    };
    let settings = Settings {
        mesh: mesh.clone(),
        in_specs,
        out_specs: BlockSpecs::Dims(out_dims.into(), axis),
        axes: Some(Axes::from(axis)),
        checked: true,
        call: CallSite::new("smap", Location::caller()),
    };
    map_blocks(settings, f)
}

/// The dimensions of the arguments that the axis of [`smap`] splits.
///
/// Everything that converts to [`MapDims`] converts to it too, and so does [`Inferred`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::smap;
/// let mesh = Mesh::new([("X", 2)])?;
/// let x = Array::arange(0..4).put(&mesh, p!["X"]);
/// // the dimension as a number, or that of the argument's type
/// let f = smap(&mesh, "X", 0, 0, |x: &Array| x + axis_index("X"));
/// let g = smap(&mesh, "X", Inferred, 0, |x: &Array| x + axis_index("X"));
/// assert_eq!(f.call(&x)?.to_vec::<i32>()?, [0, 1, 3, 4]);
/// assert_eq!(g.call(&x)?.to_vec::<i32>()?, [0, 1, 3, 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SmapDims(Option<MapDims>);
impl<D: Into<MapDims>> From<D> for SmapDims {
    fn from(dims: D) -> SmapDims {
        SmapDims(Some(dims.into()))
    }
}
impl From<Inferred> for SmapDims {
    fn from(_: Inferred) -> SmapDims {
        SmapDims(None)
    }
}

/// The way in which a region splits its arguments or joins its results.
#[derive(Clone, Debug)]
pub(super) enum BlockSpecs {
    /// By specs.
    Tree(SpecTree),
    /// By an axis, along one dimension of each array.
    Dims(MapDims, Axis),
}
impl BlockSpecs {
    /// Returns true if all specs are those of the arrays' types.
    pub(super) fn is_inferred(&self) -> bool {
        matches!(self, BlockSpecs::Tree(SpecTree::Inferred))
    }
    /// Returns the spec of each array; `None` if its type has it. `side` is `in` or `out`.
    pub(super) fn resolve<T: Tree>(&self, tree: &T, side: &str) -> Result<Vec<Option<Spec>>> {
        let (dims, axis) = match self {
            BlockSpecs::Tree(specs) => return resolve(specs, tree, &format!("{side}_specs")),
            BlockSpecs::Dims(dims, axis) => (leaf_dims(dims, tree, &format!("{side}_dims"))?, axis),
        };
        let (mut dims, mut specs) = (dims.into_iter(), Vec::new());
        tree.visit(&mut Path::named(), &mut |path, a| {
            let (Some(d), Ok(ty)) = (dims.next(), a.type_ref()) else { return };
            let spec = |d| -> Result<Spec, Fault> {
                let d = resolve_dim(d, ty.rank())?;
                let before = (0..d).map(|_| Axes::none());
                Ok(Spec::from_dims(before.chain([Axes::from(*axis)]).collect()))
            };
            let what = || format!("{side}_dims of {}", path.name_or("the only array"));
            let named = |fault: Fault| Fault { message: format!("{}: {}", what(), fault.message), ..fault };
            let spec = d.map_or(Ok(Spec::from_dims(Vec::new())), spec).map_err(named);
            specs.push(spec.map(Some).map_err(|f| Error::new(f, "", vec![ty.to_string()], None)));
        });
        specs.into_iter().collect()
    }
}
