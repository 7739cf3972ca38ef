//! The primitives for placement: `reshard`, `constrain`, and `copy`.
//!
//! Each element of the result is the operand's element at the same position; only the sharding may
//! differ.

use super::dim_check::{format_list, plain_view};
use super::structural::StructuralOp;
use crate::core::sharding::{check_divides, check_spec, check_unreduced_dtype};
use crate::core::{ArrayType, Axes, Axis, AxisType, ErrorKind, Fault, Mesh, Result, Shape, Spec};
use crate::ir::program::{
    Builder, CallSite, Dim, Factors, LoopNest, Prim, Priority, ShardingConstraint, TypedOperand, Value,
    VmapArgs, shifted_dims, typing::cotangent_type,
};
use std::sync::Arc;

/// A change of the sharding of a value, possibly to another mesh over the same devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reshard {
    /// The mesh of the result.
    pub mesh: Mesh,
    /// The sharding over explicit and auto axes, with unreduced and reduced sets.
    pub spec: Spec,
    /// The dimensions that may be sharded over further auto axes: batch dimensions of `vmap`.
    pub open_dims: Vec<usize>,
}

impl Reshard {
    /// Returns a reshard to `spec` on `mesh`, without open dimensions.
    pub fn new(mesh: Mesh, spec: Spec) -> Reshard {
        Reshard { mesh, spec, open_dims: Vec::new() }
    }
}

/// Asserts a sharding over explicit axes, and requests a sharding over auto axes.
///
/// The type does not change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constrain {
    /// The mesh that has the axes of the spec.
    pub mesh: Mesh,
    /// The asserted or requested sharding.
    pub spec: Spec,
    /// The dimensions that may also be sharded over further axes.
    /// They are those that the user leaves open, and batch dimensions of `vmap`.
    pub open_dims: Vec<usize>,
}

impl Constrain {
    /// Returns a constraint to `spec` on `mesh`, without open dimensions.
    pub fn new(mesh: Mesh, spec: Spec) -> Constrain {
        Constrain { mesh, spec, open_dims: Vec::new() }
    }
}

/// Formats a mesh, a spec and open dimensions as parameters.
fn format_sharding(mesh: &Mesh, spec: Spec, open: &[usize]) -> String {
    let open = if open.is_empty() { String::new() } else { format!(", open={}", format_list(open)) };
    format!("mesh={mesh}, spec={spec}{open}")
}

/// Returns the open dimensions for a batch of examples.
///
/// The batch dimension is open too, unless the spec shards it.
fn batched_open_dims(open: &[usize], spec: Spec) -> Vec<usize> {
    let own = spec.dim(0).is_empty().then_some(0);
    own.into_iter().chain(shifted_dims(open)).collect()
}

/// A copy of the operand as a separate value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Copy;

/// Defines the rules of primitives whose result has the operand's elements in the same positions.
macro_rules! identity_rules {
    () => {
        const PRIORITY: Priority = Priority::Elementwise;
        fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
            Ok(x.shape.clone())
        }
        /// Returns factors with one loop for each dimension.
        fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
            let dims = Dim::each(0..x.rank());
            Factors { operands: vec![dims.clone()], results: vec![dims], ..Factors::from_sizes(&x.shape) }
        }
        fn view_nests(&self, _x: &ArrayType, y: &ArrayType) -> Vec<LoopNest> {
            let loops: Vec<_> = (0..y.rank()).map(Some).collect();
            plain_view(y, &loops)
        }
    };
}

/// Returns an error if the mesh has other devices than the operand's mesh, or in another order.
fn check_same_devices(x: &ArrayType, mesh: &Mesh) -> Result<(), Fault> {
    let Some(from) = x.mesh.as_ref().filter(|from| *from != mesh) else { return Ok(()) };
    let known = !from.is_abstract() && !mesh.is_abstract();
    if from.size() != mesh.size() || known && from.devices() != mesh.devices() {
        return Err(fault!(Mesh, "the value is placed on {from}, whose devices are not those of {mesh}")
            .help("both meshes must be over the same devices in the same order"));
    }
    Ok(())
}

/// Returns true if an axis of the mesh is manual.
fn is_manual(mesh: &Mesh, axis: Axis) -> bool {
    mesh.axis_type(axis) == Some(AxisType::Manual)
}

impl StructuralOp for Reshard {
    const NAME: &'static str = "reshard";
    identity_rules!();
    fn format_params(&self) -> String {
        format_sharding(&self.mesh, self.spec, &self.open_dims)
    }
    fn result_type(&self, x: &TypedOperand) -> Result<ArrayType, Fault> {
        let x = &x.ty;
        check_same_devices(x, &self.mesh)?;
        let spec = check_spec(&self.mesh, self.spec, x.rank(), &[AxisType::Explicit, AxisType::Auto])?;
        check_divides(&self.mesh, spec, &x.shape)?;
        check_unreduced_dtype(spec, x.dtype)?;
        if x.mesh.as_ref().is_some_and(|m| *m != self.mesh && !m.axes_of(AxisType::Manual).is_empty()) {
            let message = "inside shard_map a value stays on the body's mesh";
            return Err(Fault::new(ErrorKind::Mesh, message));
        }
        let explicit = spec.filter_axes(|a| self.mesh.axis_type(a) == Some(AxisType::Explicit));
        // sets over manual axes are part of types inside the body, so a reshard over other axes
        // keeps them
        let keep = |set: &Axes, own: &Axes| -> Axes {
            own.iter().chain(set.iter().filter(|a| is_manual(&self.mesh, *a))).collect()
        };
        let spec = explicit
            .unreduced(keep(x.spec.unreduced_axes(), explicit.unreduced_axes()))
            .reduced(keep(x.spec.reduced_axes(), explicit.reduced_axes()))
            .in_order(&self.mesh);
        Ok(ArrayType { mesh: Some(self.mesh.clone()), spec, ..x.clone() })
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        b.reshard_to(ct, &cotangent_type(x))
    }
    fn sharding_constraint(&self) -> Option<ShardingConstraint> {
        // a spec without auto axes constrains only explicit axes, if there are any; auto axes
        // remain open
        let is = |ty| move |a: &Axis| self.mesh.axis_type(*a) == Some(ty);
        let names_auto = self.spec.all_axes().any(|a| is(AxisType::Auto)(&a));
        let has_explicit = self.mesh.axis_names().iter().any(is(AxisType::Explicit));
        let only_explicit = has_explicit && !names_auto;
        Some(ShardingConstraint {
            mesh: self.mesh.clone(),
            spec: self.spec,
            open_dims: self.open_dims.clone(),
            explicit_only: only_explicit,
        })
    }
    fn with_batch_dim(&self, batch: &VmapArgs<'_>) -> Self {
        let spec = batch.batch_dim.spec(self.spec, batch.operands[0].rank(), 0);
        Reshard { mesh: self.mesh.clone(), spec, open_dims: batched_open_dims(&self.open_dims, spec) }
    }
}

impl StructuralOp for Constrain {
    const NAME: &'static str = "constrain";
    identity_rules!();
    fn format_params(&self) -> String {
        format_sharding(&self.mesh, self.spec, &self.open_dims)
    }
    fn result_type(&self, x: &TypedOperand) -> Result<ArrayType, Fault> {
        let x = &x.ty;
        check_same_devices(x, &self.mesh)?;
        let mixed = self.mesh.axis_types().iter().any(|t| *t != AxisType::Explicit);
        let kinds: &[AxisType] = if mixed { &[AxisType::Auto] } else { &[AxisType::Explicit] };
        let spec = check_spec(&self.mesh, self.spec, x.rank(), kinds)?;
        check_divides(&self.mesh, spec, &x.shape)?;
        // In an open dimension, only the first axes are asserted.
        let holds = |d: usize| match self.open_dims.contains(&d) {
            true => x.spec.dim(d).starts_with(spec.dim(d)),
            false => x.spec.dim(d) == spec.dim(d),
        };
        let sets = |s: Spec| (s.unreduced_axes(), s.reduced_axes());
        let asserted = (0..x.rank()).all(holds) && sets(spec) == sets(x.spec);
        if !mixed && !asserted {
            return Err(fault!(Sharding, "the value is sharded as {}, not as {spec}", x.spec).help(format!(
                "over explicit axes a constraint is an assertion; to move the value: `x.reshard({spec})`"
            )));
        }
        let mesh = x.mesh.clone().or_else(|| Some(self.mesh.clone()));
        Ok(ArrayType { mesh, ..x.clone() })
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        // an assertion about a value says nothing about the sets of its cotangent
        if self.sharding_constraint().is_none() {
            return Ok(ct.clone());
        }
        b.emit1(Arc::new(self.clone()), std::slice::from_ref(ct))
    }
    fn sharding_constraint(&self) -> Option<ShardingConstraint> {
        let mixed = self.mesh.axis_types().iter().any(|t| *t != AxisType::Explicit);
        mixed.then(|| ShardingConstraint {
            mesh: self.mesh.clone(),
            spec: self.spec,
            open_dims: self.open_dims.clone(),
            explicit_only: false,
        })
    }
    fn with_batch_dim(&self, batch: &VmapArgs<'_>) -> Self {
        let spec = batch.batch_dim.constraint(&self.mesh, self.spec, batch.operands[0].rank());
        Constrain { mesh: self.mesh.clone(), spec, open_dims: batched_open_dims(&self.open_dims, spec) }
    }
}

impl StructuralOp for Copy {
    const NAME: &'static str = "copy";
    identity_rules!();
    fn format_params(&self) -> String {
        String::new()
    }
    fn operand_cotangent(&self, _b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        Ok(ct.clone())
    }
    fn with_batch_dim(&self, _: &VmapArgs<'_>) -> Self {
        Copy
    }
}

impl Builder {
    /// Applies a primitive on behalf of the user's call, like [`Builder::emit_for`].
    ///
    /// A requested sharding in logical axes is requested over explicit axes, and constrains the
    /// first result over auto axes.
    pub(crate) fn apply_for(
        &mut self,
        prim: &Prim,
        inputs: &[Value],
        call: CallSite<'_>,
    ) -> Result<Vec<Value>> {
        let mesh = inputs.iter().find_map(|v| v.ty.mesh.as_ref());
        let (Some(spec), Some(mesh)) = (prim.out_sharding(), mesh) else {
            return self.emit_for(prim.clone(), inputs, call);
        };
        if !mesh.uses_logical(spec) {
            return self.emit_for(prim.clone(), inputs, call);
        }
        let types = || inputs.iter().map(|v| v.ty.to_string()).collect();
        let parts = mesh.split_by_type(spec).map_err(|fault| call.error(fault, types))?;
        let resolved = prim.with_out_sharding(parts.explicit).unwrap_or_else(|| prim.clone());
        let mut results = self.emit_for(resolved, inputs, call)?;
        if let Some(auto) = parts.auto {
            let constraint = Constrain::new(mesh.clone(), auto);
            let call = CallSite::new(call.op, call.location);
            let constrained = self.emit_for(Arc::new(constraint), &results[..1], call)?;
            results.splice(..1, constrained);
        }
        Ok(results)
    }
    /// Emits a reshard of `x` to `spec` on `mesh`.
    pub fn reshard(&mut self, x: &Value, mesh: &Mesh, spec: Spec) -> Result<Value> {
        self.emit1(Arc::new(Reshard::new(mesh.clone(), spec)), std::slice::from_ref(x))
    }
    /// Reshards `x` to the sharding of type `want`; returns `x` unchanged if it has that sharding.
    pub fn reshard_to(&mut self, x: &Value, want: &ArrayType) -> Result<Value> {
        let mesh = want.mesh.as_ref().or(x.ty.mesh.as_ref());
        let Some(mesh) = mesh else { return Ok(x.clone()) };
        let same_mesh = x.ty.mesh.is_none() || x.ty.mesh.as_ref() == Some(mesh);
        if same_mesh && x.ty.spec == want.spec {
            return Ok(x.clone());
        }
        let (mesh, spec) = (mesh.clone(), want.spec.filter_axes(|a| !is_manual(mesh, a)));
        self.reshard(x, &mesh, spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        copy_is_another_value: Copy, ["float32[4@X]"] => "
            (a: float32[4@X]) {
              b: float32[4@X] = copy a
              return b
            }
            tangents: (a: float32[4@X], b: float32[4@X]) {
              c: float32[4@X] = copy a
              d: float32[4@X] = copy b
              return c, d
            }
            cotangents: (a: float32[4@X]) {
              return a
            }
        ";
    }
}
