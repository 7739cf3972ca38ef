//! Where an update is computed: the sharding of parameters, gradients and slots during a step.

use super::state::LeafSlot;
use crate::api::array::Array;
use crate::api::trace::{Repr, innermost};
use crate::api::tree::Args;
use crate::core::{ArrayType, Axes, AxisType, DType, Fault, Mesh, Spec};

/// The sharding of a parameter, its gradient and its slots while the update is computed.
///
/// It is that of the parameter, without unreduced and reduced axes, and over the additional axes of
/// the slots.
pub(super) struct WorkPlacement {
    mesh: Option<Mesh>,
    /// The spec over explicit axes.
    explicit: Spec,
    /// The additional axes that are auto axes, and the dimension that they shard. The partitioner
    /// gets them as constraints.
    auto: Option<(usize, Axes)>,
}

impl WorkPlacement {
    pub(super) fn new(param: &ArrayType, slot_axes: &Axes) -> Result<WorkPlacement, Fault> {
        let spec = param.spec.padded(param.rank());
        let mut work = WorkPlacement {
            mesh: param.mesh.clone(),
            explicit: Spec::from_dims(spec.dims().to_vec()),
            auto: None,
        };
        let Some(mesh) = &param.mesh else { return Ok(work) };
        if let Some(wrong) = slot_axes.iter().find(|a| mesh.find(*a).is_none()) {
            let axes: Vec<&str> = mesh.axis_names().iter().map(|a| a.name()).collect();
            return Err(fault!(Mesh, "slots are sharded over {wrong}, which is not an axis of {mesh}")
                .help(format!("its axes are {}", axes.join(", "))));
        }
        let used: Axes = spec.all_axes().collect();
        let more: Axes = slot_axes.iter().filter(|a| !used.contains(*a)).collect();
        let of = |ty: AxisType| -> Axes { more.iter().filter(|a| mesh.axis_type(*a) == Some(ty)).collect() };
        let (explicit, auto) = (of(AxisType::Explicit), of(AxisType::Auto));
        let num_shards = |axes: &[crate::core::Axis]| -> usize {
            axes.iter().map(|a| mesh.axis_size(*a).unwrap_or(1)).product()
        };
        let more = num_shards(explicit.as_slice()) * num_shards(auto.as_slice());
        let fits = |d: &usize| {
            let n = num_shards(spec.dim(*d)) * more;
            param.shape[*d] > 0 && param.shape[*d].is_multiple_of(n)
        };
        let dims = || (0..param.rank()).filter(fits);
        let Some(dim) = dims().find(|d| spec.dim(*d).is_empty()).or_else(|| dims().next()) else {
            return Ok(work);
        };
        let mut entries = work.explicit.dims().to_vec();
        entries[dim].extend_unique(&explicit);
        work.explicit = Spec::from_dims(entries);
        work.auto = (!auto.is_empty()).then_some((dim, auto));
        Ok(work)
    }
    /// Moves a parameter or a gradient to where the update is computed.
    pub(super) fn work(&self, x: &Array) -> Array {
        self.constrained(&reshard(x, self.explicit), self.auto.as_ref())
    }
    /// Moves a slot to where the update is computed.
    pub(super) fn slot(&self, x: &Array, slot: &LeafSlot) -> Array {
        self.constrained(&reshard(x, self.slot_spec(slot)), self.slot_auto(slot).as_ref())
    }
    /// Moves a new parameter, or the update of one, to where parameters of this type are stored.
    pub(super) fn restore(&self, x: &Array, ty: &ArrayType) -> Array {
        reshard(x, ty.spec.padded(ty.rank()))
    }
    /// Makes the slot of a parameter before the first step.
    ///
    /// The slot of an array that has a type only has a type only.
    pub(super) fn new_slot(&self, param: &Array, slot: &LeafSlot, dtype: DType) -> Array {
        if let (true, Ok(ty)) = (is_type_only(param), param.type_ref()) {
            let spec = self.slot_spec(slot);
            return ArrayType { dtype, shape: slot.shape(ty).into(), spec, ..ty.clone() }.into_tree();
        }
        let mut x = slot.fill.map_or_else(|| param.clone(), |value| param.full_like(value));
        if let Some(dim) = slot.without {
            x = x.max(dim as i32);
        }
        let x = reshard(&x.astype(dtype), self.slot_spec(slot));
        let (Some((dim, axes)), None) = (self.slot_auto(slot), innermost()) else {
            return self.constrained(&x, self.slot_auto(slot).as_ref());
        };
        // a concrete array is placed over the auto axes now, if its shards are divisible
        let (Ok(Some(sharding)), Ok(ty)) = (x.sharding(), x.type_ref()) else { return x };
        let mut entries = sharding.spec.padded(ty.rank()).dims().to_vec();
        entries[dim].extend_unique(&axes);
        let placed = x.put(&sharding.mesh, Spec::from_dims(entries));
        if placed.type_ref().is_ok() { placed } else { x }
    }
    fn slot_spec(&self, slot: &LeafSlot) -> Spec {
        let mut entries = self.explicit.dims().to_vec();
        if let Some(dim) = slot.without.filter(|d| *d < entries.len()) {
            entries.remove(dim);
        }
        Spec::from_dims(entries)
    }
    fn slot_auto(&self, slot: &LeafSlot) -> Option<(usize, Axes)> {
        let (dim, axes) = self.auto.clone()?;
        match slot.without {
            Some(without) if without == dim => None,
            Some(without) if without < dim => Some((dim - 1, axes)),
            _ => Some((dim, axes)),
        }
    }
    /// Asks the partitioner to shard a dimension over auto axes, and leaves the others open.
    fn constrained(&self, x: &Array, auto: Option<&(usize, Axes)>) -> Array {
        let (Some((dim, axes)), Some(_), Ok(ty)) = (auto, &self.mesh, x.type_ref()) else { return x.clone() };
        if innermost().is_none() {
            return x.clone();
        }
        let open = |d: usize| -> Axes {
            let own = ty.spec.dim(d).iter().copied();
            let more = if d == *dim { axes.iter().collect() } else { Vec::new() };
            own.chain(more).chain([crate::core::Axis::from("?")]).collect()
        };
        x.constrain(Spec::from_dims((0..ty.rank()).map(open).collect()))
    }
}

/// Returns true for an array without data, with which programs are traced and lowered.
pub(super) fn is_type_only(x: &Array) -> bool {
    matches!(x.repr(), Repr::Concrete(c) if c.is_type_only())
}

/// Changes the sharding over explicit axes, if it is another one.
fn reshard(x: &Array, spec: Spec) -> Array {
    match x.type_ref() {
        Ok(ty) if ty.spec.padded(ty.rank()) != spec.padded(ty.rank()) => x.reshard(spec),
        _ => x.clone(),
    }
}
