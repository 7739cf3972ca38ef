//! Specs in logical axes, and parameters that are stored otherwise than they are used.

use super::Array;
use crate::api::trace::setting;
use crate::core::mesh::AxisRules;
use crate::core::sharding::check_spec;
use crate::core::{Axes, Axis, AxisType, DType, Fault, Mesh, Spec};
use crate::ir::program::CallSite;

/// # Storage of parameters
///
/// A parameter may be stored otherwise than it is used: under FSDP, each device stores a part and
/// gathers the parameter for use. The mesh says where each dimension is stored
/// ([`Mesh::with_storage_axes`]), and the model says which dimensions a parameter has.
impl Array {
    forward! {
        /// Places a parameter on `mesh` as it is stored.
        ///
        /// This is [`Array::put`], with the [storage axes](Mesh::with_storage_axes) of the mesh for
        /// the logical axes of `spec`. For a tree of parameters see
        /// [`tree::put_stored`](crate::tree::put_stored).
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("x", 8)])?
        ///     .with_logical_axes([("embed", ())])?
        ///     .with_storage_axes([("embed", "x")])?;
        /// let w = Array::ones([16, 4]).put_stored(&mesh, p!["embed", _]);
        /// assert_eq!(type_of(&w), "float32[16@x,4]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn put_stored(mesh: &impl AsRef<Mesh>, spec: Spec) = put_stored_at(mesh.as_ref(), spec);
        /// Gathers a stored parameter for use.
        ///
        /// The result is sharded as `spec` says, like the values of the model. Its gradient arrives
        /// where the parameter is stored:
        ///
        /// | layout | use | gradient |
        /// |---|---|---|
        /// | data parallelism: stored as used | nothing | an all-reduce |
        /// | FSDP: stored over the axis that shards the batch | an all-gather | a reduce-scatter |
        /// | tensor parallelism: sharded over its own axis | nothing | nothing |
        ///
        /// Over explicit axes the result is reduced (`{R:x}`) over the axes from which it was
        /// gathered and that shard other values, so that its uses add up before the one
        /// reduce-scatter. A set in the spec adds axes: with `p!["embed", "mlp"; R: "batch"]` the
        /// gradients of all uses are summed once under data parallelism, too. Axes that shard a
        /// dimension of the result have no effect there. Over auto axes the sharding is a
        /// constraint.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("x", 8)])?
        ///     .with_logical_axes([("batch", "x")])?
        ///     .with_logical_axes([("embed", ()), ("mlp", ())])?
        ///     .with_storage_axes([("embed", "x")])?;
        /// let w = Array::ones([16, 32]).put_stored(&mesh, p!["embed", "mlp"]);
        /// let x = Array::ones([8, 16]).put(&mesh, p!["batch", "embed"]);
        /// let g = jit(|w: &Array, x: &Array| {
        ///     grad(w, |w| x.dot(w.to_compute(p!["embed", "mlp"])).sum(..))
        /// });
        /// assert_eq!(type_of(g.call((&w, &x))?), "float32[16@x,32]");
        /// assert_collectives!(g.lower((&w, &x))?, ReduceScatter("x") x 1);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("unshard", "gather", "fsdp", "zero"))]
        pub fn to_compute(spec: Spec) = to_compute_at(spec);
        /// Moves a value to where a parameter with these dimensions is stored.
        ///
        /// It is the reverse of [`Array::to_compute`]: for the gradient of a parameter that is
        /// stored as it is used, it shards the update of an optimizer (ZeRO-1), and for a new
        /// parameter, it releases the parts that other devices store.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("x", 8)])?
        ///     .with_logical_axes([("embed", ())])?
        ///     .with_storage_axes([("embed", "x")])?;
        /// let g = Array::ones([16, 4]).put(&mesh, p!["embed", _]);
        /// assert_eq!(type_of(&g), "float32[16,4]");
        /// assert_eq!(type_of(g.to_storage(p!["embed", _])), "float32[16@x,4]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn to_storage(spec: Spec) = to_storage_at(spec);
    }
    /// Converts a stored parameter to a compute type, and gathers it for use.
    ///
    /// The parameter is converted before it moves, so that a parameter of float32 that is used in
    /// bfloat16 moves half the bytes. Its gradient is summed in the compute type, and arrives in
    /// the type and the storage of the parameter. Integers and booleans keep their type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("x", 8)])?
    ///     .with_logical_axes([("embed", ())])?
    ///     .with_storage_axes([("embed", "x")])?;
    /// let w = Array::ones([16, 4]).put_stored(&mesh, p!["embed", _]);
    /// assert_eq!(type_of(w.to_compute_as(BF16, p!["embed", _])), "bfloat16[16,4]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn to_compute_as(&self, dtype: DType, spec: Spec) -> Array {
        self.to_compute_as_at(dtype, spec, CallSite::here("to_compute_as"))
    }
    /// Implements [`Array::put_stored`].
    pub(crate) fn put_stored_at(&self, mesh: &Mesh, spec: Spec, call: CallSite<'_>) -> Array {
        let spec =
            ok_or_return!(mesh.try_resolve(spec, AxisRules::Storage), |fault| self.reject(fault, call));
        self.put_at(mesh, spec, call)
    }
    /// Implements [`Array::to_compute_as`].
    pub(crate) fn to_compute_as_at(&self, dtype: DType, spec: Spec, call: CallSite<'_>) -> Array {
        let converts = self.type_ref().is_ok_and(|ty| ty.dtype.is_inexact());
        let x = if converts { self.astype_at(dtype, call) } else { self.clone() };
        x.to_compute_at(spec, call)
    }
    /// Implements [`Array::to_compute`].
    pub(crate) fn to_compute_at(&self, spec: Spec, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let mesh = ok_or_return!(self.mesh_for(spec, ty.rank()), |fault| self.reject(fault, call));
        let Some(mesh) = mesh else { return self.clone() };
        let dims = Spec::from_dims(spec.dims().to_vec());
        let sets = Spec::from_dims(vec![spec.reduced_axes().clone()]);
        let resolved = mesh
            .try_resolve(dims, AxisRules::Compute)
            .and_then(|dims| Ok((dims, mesh.try_resolve(sets, AxisRules::Compute)?)));
        let (dims, sets) = ok_or_return!(resolved, |fault| self.reject(fault, call));
        let explicit = |a: &Axis| mesh.axis_type(*a) == Some(AxisType::Explicit);
        let kept: Axes = dims.all_axes().collect();
        let gathered = ty.spec.dims().iter().flatten().filter(|a| mesh.is_used_by_logical(*a));
        let mut reduced = Axes::none();
        for axis in gathered.chain(sets.all_axes()).filter(|a| explicit(a) && !kept.contains(*a)) {
            if !reduced.contains(axis) {
                reduced.push(axis);
            }
        }
        self.move_parameter(&mesh, dims.unreduced(spec.unreduced_axes()).reduced(reduced), call)
    }
    /// Implements [`Array::to_storage`].
    pub(crate) fn to_storage_at(&self, spec: Spec, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let mesh = ok_or_return!(self.mesh_for(spec, ty.rank()), |fault| self.reject(fault, call));
        let Some(mesh) = mesh else { return self.clone() };
        let spec =
            ok_or_return!(mesh.try_resolve(spec, AxisRules::Storage), |fault| self.reject(fault, call));
        self.move_parameter(&mesh, spec, call)
    }
    /// Reshards a parameter over explicit and auto axes, unless it has this sharding.
    fn move_parameter(&self, mesh: &Mesh, spec: Spec, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let kinds = [AxisType::Explicit, AxisType::Auto];
        let same = |spec: Spec| mesh.axes_of(AxisType::Auto).is_empty() && spec == ty.spec;
        match check_spec(mesh, spec, ty.rank(), &kinds) {
            Ok(spec) if same(spec) && ty.mesh.as_ref() == Some(mesh) => self.clone(),
            _ => self.move_over_all(mesh, spec, call),
        }
    }
    /// Reshards over explicit and auto axes.
    ///
    /// A spec that names no auto axis replicates the value over them.
    fn move_over_all(&self, mesh: &Mesh, spec: Spec, call: CallSite<'_>) -> Array {
        let moved = self.move_to(mesh, spec, &[AxisType::Explicit, AxisType::Auto], call);
        let is = |ty: AxisType| move |a: Axis| mesh.axis_type(a) == Some(ty);
        let has_explicit = mesh.axis_types().contains(&AxisType::Explicit);
        let has_auto = mesh.axis_types().contains(&AxisType::Auto);
        match has_explicit && has_auto && !spec.all_axes().any(is(AxisType::Auto)) {
            true => moved.constrain_at(mesh, Spec::replicated(spec.dims().len()), call),
            false => moved,
        }
    }
    /// Implements [`Array::reshard`] for a spec in logical axes.
    pub(super) fn reshard_logical(&self, mesh: &Mesh, spec: Spec, call: CallSite<'_>) -> Array {
        let rank = self.type_ref().map_or(0, |ty| ty.rank());
        let parts = mesh.split_by_type(spec).and_then(|parts| {
            check_spec(mesh, parts.explicit, rank, &[AxisType::Explicit])?;
            Ok((mesh.try_resolve(spec, AxisRules::Compute)?, parts))
        });
        let (resolved, parts) = ok_or_return!(parts, |fault| self.reject(fault, call));
        let sets = [parts.explicit.unreduced_axes(), parts.explicit.reduced_axes()];
        self.move_over_all(mesh, resolved.with_sets(sets[0].clone(), sets[1].clone()), call)
    }
    /// Returns the spec of a constraint in mesh axes: only auto axes, on a mesh that has some.
    ///
    /// It is an error if a spec in logical axes differs from the type over explicit axes.
    pub(super) fn resolve_constraint(&self, mesh: &Mesh, spec: Spec, open: &[usize]) -> Result<Spec, Fault> {
        if !mesh.uses_logical(spec) {
            return Ok(spec);
        }
        let parts = mesh.split_by_type(spec)?;
        let Ok(ty) = self.type_ref() else { return Ok(parts.explicit) };
        let explicit = parts.explicit.filter_axes(|a| mesh.axis_type(a) != Some(AxisType::Auto));
        let has_explicit = mesh.axis_types().contains(&AxisType::Explicit);
        let holds = |d: usize| match open.contains(&d) {
            true => ty.spec.dim(d).starts_with(explicit.dim(d)),
            false => ty.spec.dim(d) == explicit.dim(d),
        };
        if has_explicit && !(0..ty.rank()).all(holds) {
            return Err(fault!(Sharding, "the value is sharded as {}, not as {explicit}", ty.spec).help(
                format!(
                    "over explicit axes a constraint is an assertion; to move the value: `x.reshard({spec})`"
                ),
            ));
        }
        Ok(parts.auto.unwrap_or(parts.explicit))
    }
    /// Calls `make` with the requested sharding in mesh axes.
    ///
    /// The result of a request in logical axes is constrained over auto axes.
    pub(super) fn with_resolved_out(
        &self,
        out: Option<Spec>,
        call: CallSite<'_>,
        make: impl FnOnce(Option<Spec>) -> Array,
    ) -> Array {
        let own = self.type_ref().ok().and_then(|ty| ty.mesh.clone());
        let mesh = || own.or_else(|| setting().map(|s| s.mesh));
        let logical = out.and_then(|spec| Some((mesh().filter(|m| m.uses_logical(spec))?, spec)));
        let Some((mesh, spec)) = logical else { return make(out) };
        let parts = ok_or_return!(mesh.split_by_type(spec), |fault| self.reject(fault, call));
        let result = make(Some(parts.explicit));
        match parts.auto {
            Some(auto) => result.constrain_at(&mesh, auto, call),
            None => result,
        }
    }
}
