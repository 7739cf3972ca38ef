//! Placement of arrays: put, reshard, constrain, and looking at it.

use super::{Array, prims};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::{AxisType, DeviceId, Mesh, first};
use crate::program::Call;
use crate::sharding::{Sharding, Spec, blocks_of, check_divides, check_spec};
use crate::show::Picture;
use crate::trace::{Repr, apply1, innermost, setting};
use crate::types::{ArrayType, DType, Shape};
use std::panic::Location;

/// # Placing and seeing
impl Array {
    /// The same value on a mesh, sharded as `spec` says (over explicit and auto axes): from no mesh, from another sharding,
    /// from another mesh.
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
    #[doc(alias("device_put"))]
    #[track_caller]
    pub fn put(&self, mesh: &Mesh, spec: Spec) -> Array {
        self.put_at(mesh, spec, Call::here("put"))
    }
    pub(crate) fn put_at(&self, mesh: &Mesh, spec: Spec, call: Call<'_>) -> Array {
        let kinds = [AxisType::Explicit, AxisType::Auto];
        self.move_to(mesh, spec, &kinds, call)
    }
    /// The same value with another sharding of the mesh that it is on.
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
    #[track_caller]
    pub fn reshard(&self, spec: Spec) -> Array {
        self.reshard_at(spec, Call::here("reshard"))
    }
    pub(crate) fn reshard_at(&self, spec: Spec, call: Call<'_>) -> Array {
        let rank = self.type_ref().map_or(0, |t| t.rank());
        match self.mesh_of(spec, rank) {
            Ok(Some(mesh)) => self.move_to(&mesh, spec, &[AxisType::Explicit], call),
            Ok(None) => self.clone(),
            Err(fault) => self.refuse(fault, call),
        }
    }
    /// The mesh whose axes a spec for this array, or one of this rank made of it, names: its own, or that of the program around it;
    /// none for an array on no mesh.
    pub(crate) fn mesh_of(&self, spec: Spec, rank: usize) -> Result<Option<Mesh>, Fault> {
        let Ok(ty) = self.type_ref() else { return Ok(None) };
        match ty.mesh.clone().or_else(|| setting().map(|s| s.mesh)) {
            None if !spec.is_whole() || spec.dims().len() > rank => {
                let fault =
                    Fault::new(ErrorKind::Mesh, format!("{spec} names axes, but the array is on no mesh"));
                Err(fault.help("put it on one: `x.put(&mesh, p![..])`"))
            }
            mesh => Ok(mesh),
        }
    }
    fn move_to(&self, mesh: &Mesh, spec: Spec, kinds: &[AxisType], call: Call<'_>) -> Array {
        let ty = match self.type_ref() {
            Ok(ty) => ty,
            Err(_) => return self.clone(),
        };
        let checked = check_spec(mesh, spec, ty.rank(), kinds)
            .and_then(|spec| check_divides(mesh, spec, &ty.shape).map(|()| spec));
        let spec = match checked {
            Ok(spec) => spec,
            Err(fault) => return self.refuse(fault, call),
        };
        match self.repr() {
            // nothing moves: it is the type of what would be there
            Repr::Concrete(c) if c.is_type() && innermost().is_none() => {
                let sharding = Sharding { mesh: mesh.clone(), spec };
                Array::type_only(placed(ty.dtype, &ty.shape, &sharding), Some(sharding))
            }
            Repr::Concrete(_) if mesh.is_abstract() && innermost().is_none() => {
                self.refuse(no_devices(mesh), call)
            }
            Repr::Concrete(c) => {
                let in_parts = |s: Spec| !s.unreduced_axes().is_empty();
                let parts = c.sharding.as_ref().is_some_and(|s| in_parts(s.spec)) || in_parts(c.ty.spec);
                if parts || in_parts(spec) {
                    return self.move_parts(mesh, spec, call);
                }
                // a whole value is stored in global order, whatever its sharding: only the type changes
                match c.slab(call.op, call.place) {
                    Ok(slab) => {
                        let sharding = Sharding { mesh: mesh.clone(), spec };
                        let ty = placed(ty.dtype, &ty.shape, &sharding);
                        Array::concrete(slab, ty, Some(sharding))
                    }
                    Err(e) => Array::poisoned(e),
                }
            }
            _ => apply1(prims::reshard(mesh, spec), &[self.into()], call),
        }
    }
    /// A partial value (or to become one): summed first where the mesh changes.
    fn move_parts(&self, mesh: &Mesh, spec: Spec, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match &ty.mesh {
            Some(own) if own != mesh => {
                let kinds = [AxisType::Explicit, AxisType::Auto];
                let whole = apply1(prims::reshard(own, Spec::whole(ty.rank())), &[self.into()], call);
                let there = whole.move_to(mesh, Spec::whole(ty.rank()), &kinds, call);
                there.move_to(mesh, spec, &kinds, call)
            }
            Some(_) => apply1(prims::reshard(mesh, spec), &[self.into()], call),
            None => {
                let whole = self.move_to(mesh, Spec::whole(ty.rank()), &[AxisType::Explicit], call);
                apply1(prims::reshard(mesh, spec), &[whole.into()], call)
            }
        }
    }
    /// Over auto axes: a wish that the partitioner grants. On a mesh whose axes are all explicit: an error unless it is sharded so.
    /// A dimension with `"?"` in its entry may be split over further axes: `p!["X", "?"]` speaks of dimension 0 only, where `p!["X", _]` also says that
    /// dimension 1 is whole.
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
    /// // the rows are as they come
    /// let open = jit(|x: &Array| (x * 2.0).constrain(p!["?", _]));
    /// let x = Array::ones([4, 2]).put(&auto, p!["X"]);
    /// assert_eq!(open.call(&x)?.sharding()?.map(|s| s.spec), Some(p!["X", _]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("with_sharding_constraint"))]
    #[track_caller]
    pub fn constrain(&self, spec: Spec) -> Array {
        let call = Call::here("constrain");
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match ty.mesh.clone().or_else(|| setting().map(|s| s.mesh)) {
            Some(mesh) => self.constrain_at(&mesh, spec, call),
            None => {
                let fault =
                    Fault::new(ErrorKind::Mesh, "a constraint needs a mesh, and the array is on none")
                        .help("put it on one: `x.put(&mesh, p![..])`")
                        .help("or say which: `x.constrain_on(&mesh, ..)`, `jit(f).on(&mesh)`");
                self.refuse(fault, call)
            }
        }
    }
    /// [`Array::constrain`] by a spec over the axes of another mesh over the same devices.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::auto([("X", 2)])?;
    /// let x = Array::ones([4]).constrain_on(&mesh, p!["X"]);
    /// assert_eq!(x.shards()?[1].index, [2..4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn constrain_on(&self, mesh: &Mesh, spec: Spec) -> Array {
        self.constrain_at(mesh, spec, Call::here("constrain_on"))
    }
    fn constrain_at(&self, mesh: &Mesh, spec: Spec, call: Call<'_>) -> Array {
        let (spec, open) = spec.opened();
        apply1(prims::constrain(mesh, spec, open), &[self.into()], call)
    }
    /// The same value, which [`Keep::Named`](crate::Keep::Named) may name: inside [`checkpoint_with`](crate::checkpoint_with) derivatives keep it for the
    /// way back. It says nothing elsewhere; an argument of the function that is recorded is kept anyway.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([2]).named("h").to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("checkpoint_name"))]
    pub fn named(&self, name: &str) -> Array {
        crate::trace::name(self, name);
        self.clone()
    }
    /// The mesh and spec over explicit and auto axes; `None` for an array on no mesh. Of a traced value: what its type says.
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
        Ok(self.placed().cloned().or_else(|| ty.mesh.map(|mesh| Sharding { mesh, spec: ty.spec })))
    }
    /// A picture of who holds what: of an array its blocks, of a traced value what its type says, of a value that carries an error
    /// the error.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// println!("{}", Array::arange(0..4).put(&mesh, p!["X"]).visualize());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn visualize(&self) -> Picture {
        match (self.ty(), self.placed()) {
            (Err(e), _) => Picture::of_error(&e),
            (Ok(ty), Some(sharding)) => Picture::of(ty.shape, sharding),
            (Ok(ty), None) => Picture::of_type(&ty),
        }
    }
    /// The devices that hold it, in mesh order; an array on no mesh is on device 0.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// assert_eq!(Array::ones([4]).put(&mesh, p!["X"]).devices()?, mesh.devices());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn devices(&self) -> Result<Vec<DeviceId>> {
        Ok(self.sharding()?.map_or_else(|| first(1), |s| s.mesh.devices().to_vec()))
    }
    /// What each device holds, in mesh order.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let a = Array::arange(0..4).put(&mesh, p!["X"]);
    /// let shards = a.shards()?;
    /// assert_eq!(shards[1].index, [2..4]);
    /// assert_eq!(shards[1].data.to_vec::<i32>()?, [2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn shards(&self) -> Result<Vec<Shard>> {
        let place = Location::caller();
        let slab = self.slab("shards", place)?;
        let ty = self.ty()?;
        let Some(sharding) = self.sharding()? else {
            let index = ty.shape.iter().map(|n| 0..*n).collect();
            return Ok(vec![Shard { device: first(1)[0], index, replica: 0, data: self.clone() }]);
        };
        let mesh = &sharding.mesh;
        let held = blocks_of(&sharding, &ty.shape).into_iter().zip(mesh.devices()).enumerate();
        held.map(|(position, (block, device))| {
            // copies of an unreduced value are told apart by the coordinates along its axes
            let copy = mesh.rank_along(sharding.spec.unreduced_axes(), &mesh.coordinates(position));
            let data = crate::runtime::host::block(&slab, copy, &block.index)
                .map_err(|fault| Error::at(fault, "shards", vec![ty.to_string()], Some(place)))?;
            let local = ty.dtype.of(block.index.iter().map(|r| r.len()).collect::<Vec<_>>());
            let data = Array::concrete(data, local, None);
            Ok(Shard { device: *device, index: block.index, replica: block.replica, data })
        })
        .collect()
    }
}

/// What one device holds of an array.
#[derive(Clone, Debug)]
pub struct Shard {
    /// The device.
    pub device: DeviceId,
    /// The position of the part, in each dimension.
    pub index: Vec<std::ops::Range<usize>>,
    /// How many devices before this one hold the same part.
    pub replica: usize,
    /// The part, on no mesh.
    pub data: Array,
}

/// Why nothing can be placed on an abstract mesh.
pub(super) fn no_devices(mesh: &Mesh) -> Fault {
    Fault::new(ErrorKind::Mesh, format!("{mesh} is abstract: it has no devices that could hold numbers"))
        .help("trace with a type in place of the array: `F32.of([8]).on(&mesh, p![…])`")
        .help("or make a mesh of devices: `Mesh::new`")
}

/// The type of an array of numbers with this sharding.
pub(crate) fn placed(dtype: DType, shape: &Shape, sharding: &Sharding) -> ArrayType {
    ArrayType {
        mesh: Some(sharding.mesh.clone()),
        spec: sharding.explicit().padded(shape.rank()),
        ..dtype.of(shape)
    }
}
