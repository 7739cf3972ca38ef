//! Placement of arrays on meshes, resharding, and inspection of shards.
//!
//! An eager array that is not unreduced is stored in global order, so that placing it changes only
//! its type. If there are several processes, placing it copies the blocks of this process to its
//! devices. Unreduced and traced values are resharded by a primitive.

use super::{Array, prims};
use crate::api::display::Picture;
use crate::api::trace::{Repr, apply1, build, innermost, input_placement, setting};
use crate::core::sharding::{check_divides, check_spec};
use crate::core::{
    ArrayType, AxisType, DType, DeviceId, Fault, Mesh, Result, Shape, Sharding, Spec, mesh::default_device,
};
use crate::exec::runtime::parallel_copy::extract_block;
use crate::exec::runtime::{ArrayData, ProcessDevices, compares_replicas, process_devices, stable_hash};
use crate::ir::program::CallSite;
use std::ops::Range;

/// # Placement and inspection
impl Array {
    forward! {
        /// Places the array on `mesh` with sharding `spec`, over explicit and auto axes.
        ///
        /// `mesh` is a [`Mesh`] or a typed mesh. The array may be on no mesh, sharded differently,
        /// or on another mesh. It is an error if the sharded dimensions are not divisible by the
        /// size of their axes, or, outside of a trace, if the mesh is abstract.
        ///
        #[cfg_attr(doc, doc = picture!("put"))]
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
        /// let a = Array::arange(0..8).reshape([4, 2]).put(&mesh, p!["X", _]);
        /// assert_eq!(type_of(&a), "int32[4@X,2]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("device_put", "distribute_tensor"))]
        pub fn put(mesh: &impl AsRef<Mesh>, spec: Spec) = put_at(mesh.as_ref(), spec);
        /// Changes the sharding of the array to `spec`, over the explicit axes of its mesh.
        ///
        /// The collectives that the two shardings require move the data, for example an all-gather.
        /// It is an error if `spec` names axes that are not explicit, or if the array is on no mesh
        /// and `spec` names any axes. A spec in [logical axes](Mesh::with_logical_axes) may stand
        /// for auto axes, over which it constrains the result.
        ///
        #[cfg_attr(doc, doc = picture!("moves-turn"))]
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let a = Array::arange(0..8).put(&mesh, p!["X"]);
        /// assert_eq!(type_of(&a.reshard(p![])), "int32[8]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias = "redistribute")]
        pub fn reshard(spec: Spec) = reshard_at(spec);
        /// Constrains the sharding by a spec over the axes of `mesh`, which has the same devices.
        ///
        /// In all other respects this is [`Array::constrain`].
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::auto([("X", 2)])?;
        /// let x = Array::ones([4]).constrain_on(&mesh, p!["X"]);
        /// assert_eq!(x.shards()?[1].index, [2..4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn constrain_on(mesh: &Mesh, spec: Spec) = constrain_at(mesh, spec);
    }
    /// Implements [`Array::put`].
    pub(crate) fn put_at(&self, mesh: &Mesh, spec: Spec, call: CallSite<'_>) -> Array {
        let kinds = [AxisType::Explicit, AxisType::Auto];
        self.move_to(mesh, spec, &kinds, call)
    }
    /// Implements [`Array::reshard`].
    pub(crate) fn reshard_at(&self, spec: Spec, call: CallSite<'_>) -> Array {
        let rank = self.type_ref().map_or(0, |t| t.rank());
        match self.mesh_for(spec, rank) {
            Ok(Some(mesh)) if mesh.uses_logical(spec) => self.reshard_logical(&mesh, spec, call),
            Ok(Some(mesh)) => self.move_to(&mesh, spec, &[AxisType::Explicit], call),
            Ok(None) => self.clone(),
            Err(fault) => self.reject(fault, call),
        }
    }
    /// Returns the mesh that the axes of `spec` refer to: the array's, or the enclosing program's.
    ///
    /// `rank` is the rank of the array to be sharded. Returns `None` if the array is on no mesh; it
    /// is an error if `spec` then names axes.
    pub(crate) fn mesh_for(&self, spec: Spec, rank: usize) -> Result<Option<Mesh>, Fault> {
        let Ok(ty) = self.type_ref() else { return Ok(None) };
        match ty.mesh.clone().or_else(|| setting().map(|s| s.mesh)) {
            None if !spec.is_replicated() || spec.dims().len() > rank => {
                let fault = fault!(Mesh, "{spec} names axes, but the array is on no mesh");
                Err(fault.help("put it on one: `x.put(&mesh, p![..])`"))
            }
            mesh => Ok(mesh),
        }
    }
    /// Places the array on a mesh; `kinds` are the types of axes that `spec` may name.
    pub(super) fn move_to(&self, mesh: &Mesh, spec: Spec, kinds: &[AxisType], call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let checked = check_spec(mesh, spec, ty.rank(), kinds).and_then(|resolved| {
            check_divides(mesh, resolved, &ty.shape).map_err(|fault| mesh.name_fault(fault, spec))?;
            Ok(resolved)
        });
        let spec = ok_or_return!(checked, |fault| self.reject(fault, call));
        match self.repr() {
            // a value without data only changes its type
            Repr::Concrete(c) if c.is_type_only() && innermost().is_none() => {
                let sharding = Sharding { mesh: mesh.clone(), spec };
                Array::type_only(placed_type(ty.dtype, &ty.shape, &sharding), Some(sharding))
            }
            Repr::Concrete(_) if mesh.is_abstract() && innermost().is_none() => {
                self.reject(abstract_mesh_error(mesh), call)
            }
            Repr::Concrete(c) => {
                let in_parts = |s: Spec| !s.unreduced_axes().is_empty();
                let partial = c.sharding.as_ref().is_some_and(|s| in_parts(s.spec)) || in_parts(c.ty.spec);
                if partial || in_parts(spec) {
                    return self.move_partial(mesh, spec, call);
                }
                let slab = ok_or_return!(c.array_data(call.op, call.location), |e| Array::poisoned(e));
                let sharding = Sharding { mesh: mesh.clone(), spec };
                if let Some(devices) = process_devices() {
                    return self.move_to_devices(slab, sharding, devices, call);
                }
                // an array that is not unreduced is stored in global order for every sharding: only
                // its type changes
                let ty = placed_type(ty.dtype, &ty.shape, &sharding);
                Array::concrete(slab, ty, Some(sharding))
            }
            _ => apply1(prims::reshard(mesh, spec), &[self.into()], call),
        }
    }
    /// Places an array that is not unreduced on the devices of several processes.
    ///
    /// Each process takes the blocks of its devices from the elements that it has. If it does not
    /// have them all, a program moves the blocks, in which all processes take part.
    fn move_to_devices(
        &self,
        slab: ArrayData,
        sharding: Sharding,
        devices: &dyn ProcessDevices,
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        ok_or_return!(check_even(&sharding, &ty.shape), |fault| self.reject(fault, call));
        let at = input_placement(ty.rank(), Some(&sharding));
        let placed = placed_type(ty.dtype, &ty.shape, &sharding);
        match (slab.foreign(), self.concrete_sharding()) {
            (Some(foreign), _) if foreign.has_blocks_of(&placed, &at) => {
                return Array::concrete(slab, placed, Some(sharding));
            }
            (Some(_), Some(own)) if own.mesh == sharding.mesh => {
                return self.reshard_over_all(&sharding, call);
            }
            // the blocks on one mesh are those of no program on the other one
            (Some(foreign), Some(own)) if !foreign.is_local() => {
                let whole = self.replicate(&own.mesh, call);
                let slab = ok_or_return!(whole.array_data(call.op, call.location), |e| Array::poisoned(e));
                return whole.move_to_devices(slab, sharding, devices, call);
            }
            _ => {}
        }
        if compares_replicas() && slab.foreign().is_none() {
            let hash = slab.bytes().map(stable_hash);
            let hash = ok_or_return!(hash, |fault| self.reject(fault, call));
            let what = format!("an array {ty} to be placed");
            let compared = devices.check_equal(&what, &hash, call.location);
            ok_or_return!(compared, |e| Array::poisoned(e));
        }
        let cut = |_: usize, index: &[Range<usize>]| Ok(extract_block(&slab, 0, index)?);
        match devices.place(&placed, &at, &mut { cut }) {
            Ok(slab) => Array::concrete(slab, placed, Some(sharding)),
            Err(e) => Array::poisoned(call.locate(e)),
        }
    }
    /// Runs a program that shards an array of several processes in this way, over explicit and auto
    /// axes.
    fn reshard_over_all(&self, sharding: &Sharding, call: CallSite<'_>) -> Array {
        let Sharding { mesh, spec } = sharding;
        let is_auto = |axis| mesh.axis_type(axis) == Some(AxisType::Auto);
        let is_mixed = mesh.axis_names().iter().any(|axis| is_auto(*axis))
            && mesh.axis_types().contains(&AxisType::Explicit);
        let moved = build(std::slice::from_ref(self), call, |b, values| {
            let moved = b.apply_for(&prims::reshard(mesh, *spec), values, call)?;
            // otherwise the reshard leaves the auto axes open
            if !is_mixed || spec.all_axes().any(is_auto) {
                return Ok(moved);
            }
            let replicated = Spec::replicated(spec.dims().len());
            b.apply_for(&prims::constrain(mesh, replicated, Vec::new()), &moved, call)
        });
        moved.map_or_else(Array::poisoned, |mut moved| moved.swap_remove(0))
    }
    /// Runs a program that replicates an array of several processes on all devices of its mesh.
    pub(super) fn replicate(&self, mesh: &Mesh, call: CallSite<'_>) -> Array {
        let rank = self.type_ref().map_or(0, |ty| ty.rank());
        self.reshard_over_all(&Sharding { mesh: mesh.clone(), spec: Spec::replicated(rank) }, call)
    }
    /// Moves an array that is or becomes unreduced; it is summed if the mesh changes.
    fn move_partial(&self, mesh: &Mesh, spec: Spec, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match &ty.mesh {
            Some(own) if own != mesh => {
                let kinds = [AxisType::Explicit, AxisType::Auto];
                let replicated =
                    apply1(prims::reshard(own, Spec::replicated(ty.rank())), &[self.into()], call);
                let there = replicated.move_to(mesh, Spec::replicated(ty.rank()), &kinds, call);
                there.move_to(mesh, spec, &kinds, call)
            }
            Some(_) => apply1(prims::reshard(mesh, spec), &[self.into()], call),
            None => {
                let replicated = self.move_to(mesh, Spec::replicated(ty.rank()), &[AxisType::Explicit], call);
                apply1(prims::reshard(mesh, spec), &[replicated.into()], call)
            }
        }
    }
    /// Constrains the sharding of this value.
    ///
    /// Over auto axes the partitioner honours the constraint. On a mesh with only explicit axes it
    /// is an error unless the value already has this sharding. A spec in
    /// [logical axes](Mesh::with_logical_axes) constrains auto axes and asserts explicit ones.
    ///
    /// A `"?"` in an entry lets that dimension be sharded over further axes: `p!["X", "?"]`
    /// constrains dimension 0 only, while `p!["X", _]` also requires dimension 1 to be unsharded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let a = Array::ones([8]).put(&mesh, p!["X"]);
    /// assert!(a.constrain(p!["X"]).ty().is_ok());
    /// assert!(a.constrain(p![]).ty().is_err());
    ///
    /// let auto = Mesh::auto([("X", 2)])?;
    /// let f = jit(|x: &Array| (x * 2.0).constrain(p!["X"]));
    /// assert_eq!(f.call(Array::ones([4]).put(&auto, p![]))?.shards()?[1].index, [2..4]);
    ///
    /// // the rows may be sharded in any way
    /// let open = jit(|x: &Array| (x * 2.0).constrain(p!["?", _]));
    /// let x = Array::ones([4, 2]).put(&auto, p!["X"]);
    /// assert_eq!(open.call(&x)?.sharding()?.map(|s| s.spec), Some(p!["X", _]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("with_sharding_constraint"))]
    #[track_caller]
    pub fn constrain(&self, spec: Spec) -> Array {
        let call = CallSite::here("constrain");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match ty.mesh.clone().or_else(|| setting().map(|s| s.mesh)) {
            Some(mesh) => self.constrain_at(&mesh, spec, call),
            None => {
                let fault = fault!(Mesh, "a constraint needs a mesh, and the array is on none")
                    .help("put it on one: `x.put(&mesh, p![..])`")
                    .help("or say which: `x.constrain_on(&mesh, ..)`, `jit(f).on(&mesh)`");
                self.reject(fault, call)
            }
        }
    }
    /// Implements [`Array::constrain`].
    pub(super) fn constrain_at(&self, mesh: &Mesh, spec: Spec, call: CallSite<'_>) -> Array {
        let (spec, open) = spec.split_open_dims();
        let spec =
            ok_or_return!(self.resolve_constraint(mesh, spec, &open), |fault| self.reject(fault, call));
        apply1(prims::constrain(mesh, spec, open), &[self.into()], call)
    }
    /// Names the value for checkpoint policies, and returns it unchanged.
    ///
    /// Inside of [`checkpoint_with`](crate::checkpoint_with) and
    /// [`CheckpointPolicy::SaveNamed`](crate::CheckpointPolicy::SaveNamed), values with a listed
    /// name are saved for the backward pass instead of being recomputed. Elsewhere the name has no
    /// effect.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([2]).checkpoint_name("h").to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn checkpoint_name(&self, name: &str) -> Array {
        crate::api::trace::name_equation(self, name);
        self.clone()
    }
    /// Returns the mesh and the spec over explicit and auto axes; `None` for an array on no mesh.
    ///
    /// For a traced value this is the sharding of its type.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::ones([4]).put(&mesh, p!["X"]);
    /// assert_eq!(x.sharding()?.map(|s| s.spec), Some(p!["X"]));
    /// assert!(Array::ones([4]).sharding()?.is_none());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn sharding(&self) -> Result<Option<Sharding>> {
        let ty = self.ty()?;
        Ok(self.concrete_sharding().cloned().or_else(|| ty.mesh.map(|mesh| Sharding { mesh, spec: ty.spec })))
    }
    /// Returns a picture of which device holds which block.
    ///
    /// The picture shows the blocks of an array, the type of a traced value, or the error that the
    /// array carries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// println!("{}", Array::arange(0..4).put(&mesh, p!["X"]).visualize());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "visualize_array_sharding")]
    pub fn visualize(&self) -> Picture {
        match (self.ty(), self.concrete_sharding()) {
            (Err(e), _) => Picture::from_error(&e),
            (Ok(ty), Some(sharding)) => Picture::new(ty.shape, sharding),
            (Ok(ty), None) => Picture::from_type(&ty),
        }
    }
    /// Returns the devices that hold the array, in mesh order; for an array on no mesh, the first
    /// device of this process.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// assert_eq!(Array::ones([4]).put(&mesh, p!["X"]).devices()?, mesh.devices());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn devices(&self) -> Result<Vec<DeviceId>> {
        Ok(self.sharding()?.map_or_else(|| vec![default_device()], |s| s.mesh.devices().to_vec()))
    }
}

/// Returns the error for data on an abstract mesh, which has no devices to hold it.
pub(super) fn abstract_mesh_error(mesh: &Mesh) -> Fault {
    fault!(Mesh, "{mesh} is abstract: it has no devices that could hold data")
        .help("trace with a type instead of the array: `F32.array_type([8]).on(&mesh, p![…])`")
        .help("or make a mesh of devices: `Mesh::new`")
}

/// Returns the type of an array with this sharding, which names explicit axes only.
pub(crate) fn placed_type(dtype: DType, shape: &Shape, sharding: &Sharding) -> ArrayType {
    ArrayType {
        mesh: Some(sharding.mesh.clone()),
        spec: sharding.explicit().padded(shape.rank()),
        ..dtype.array_type(shape)
    }
}

/// Returns an error if the blocks of the devices differ in shape.
pub(super) fn check_even(sharding: &Sharding, shape: &Shape) -> Result<(), Fault> {
    sharding.try_shard_shape(shape).map(drop).map_err(|fault| {
        fault.help("arrays of several processes have equal blocks: pad the dimension, or leave it unsharded")
    })
}
