//! Conversions of tangents and cotangents to the types that their primals require.
//!
//! The varying states and shardings of the values that derivative rules compute may differ from
//! those of the primal. The conversions insert casts, sums over devices and reshards, which are
//! implicit in the primal program.

use super::collective::{CollectiveGroup, Pcast, PcastTo, Preduce};
use crate::core::{ArrayType, Axes, Axis, AxisType, ErrorKind, Fault, Mesh, Result};
use crate::ir::program::{Builder, Reducer, Value, typing::cotangent_type};
use std::sync::Arc;

/// Returns the group of devices along `axes` in a checked region.
fn collective_group(mesh: &Mesh, axes: impl Into<Axes>) -> CollectiveGroup {
    CollectiveGroup::new(mesh.clone(), axes.into(), true)
}

impl Builder {
    /// Emits a cast of the varying state over manual axes of a checked region.
    ///
    /// Returns `x` unchanged if there are no axes.
    pub fn pcast(&mut self, x: &Value, mesh: &Mesh, axes: impl Into<Axes>, to: PcastTo) -> Result<Value> {
        let along = collective_group(mesh, axes);
        if along.axes.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Pcast { group: along, to }), std::slice::from_ref(x))
    }
    /// Emits the sum over manual axes of a checked region.
    ///
    /// Returns `x` unchanged if there are no axes.
    pub fn psum(&mut self, x: &Value, mesh: &Mesh, axes: impl Into<Axes>) -> Result<Value> {
        let along = collective_group(mesh, axes);
        if along.axes.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Preduce { group: along, reducer: Reducer::Add }), std::slice::from_ref(x))
    }
    /// Converts a tangent to the type of its primal.
    ///
    /// The tangent is cast over the manual axes over which only the primal varies or is reduced,
    /// then resharded.
    pub fn fit_to_type(&mut self, x: &Value, want: &ArrayType) -> Result<Value> {
        let mut x = x.clone();
        if let Some(mesh) = &want.mesh {
            x = self.vary(&x, mesh, &want.varying)?;
            let manual = |a: &Axis| mesh.axis_type(*a) == Some(AxisType::Manual);
            let become_reduced: Vec<Axis> = (want.spec.reduced_axes().iter())
                .filter(|a| manual(a) && !x.ty.spec.reduced_axes().contains(*a))
                .collect();
            x = self.pcast(&x, mesh, become_reduced, PcastTo::Reduced)?;
        }
        let x = self.reshard_to(&x, want)?;
        self.check_states(&x, want)?;
        Ok(x)
    }
    /// Returns an error if the states of a value over manual axes are not those of `want`.
    ///
    /// No cast makes a varying or an invarying value reduced, or an unreduced value complete.
    fn check_states(&self, x: &Value, want: &ArrayType) -> Result<()> {
        let Some(mesh) = &want.mesh else { return Ok(()) };
        let manual = |axes: &Axes| -> Axes {
            axes.iter().filter(|a| mesh.axis_type(*a) == Some(AxisType::Manual)).collect()
        };
        let states =
            |ty: &ArrayType| [&ty.varying, ty.spec.unreduced_axes(), ty.spec.reduced_axes()].map(manual);
        if states(&x.ty).iter().zip(&states(want)).all(|(is, want)| is.same_set(want)) {
            return Ok(());
        }
        let message =
            format!("a derivative is {}, and must be {want}: no cast leads from one to the other", x.ty);
        let help = "cast the values that it is computed from to one state: `.pcast(…)`, `.psum(…)`";
        Err(self.error(Fault::new(ErrorKind::Varying, message).help(help), "", &[]))
    }
    /// Converts a cotangent to the cotangent type of a primal of the given type.
    ///
    /// The cotangent is summed over the manual axes over which the primal does not vary, or cast to
    /// unreduced if the primal is reduced over them. It is cast to varying over the axes over which
    /// only the primal varies, then resharded.
    pub fn fit_cotangent(&mut self, ct: &Value, primal_ty: &ArrayType) -> Result<Value> {
        let expected = cotangent_type(primal_ty);
        let mut ct = ct.clone();
        if let Some(mesh) = ct.ty.mesh.clone().or_else(|| expected.mesh.clone()) {
            let more: Vec<Axis> = ct.ty.varying.iter().filter(|a| !expected.varying.contains(*a)).collect();
            let (unreduced, sums): (Vec<_>, Vec<_>) =
                more.into_iter().partition(|a| expected.spec.unreduced_axes().contains(*a));
            ct = self.pcast(&ct, &mesh, unreduced, PcastTo::Unreduced)?;
            ct = self.psum(&ct, &mesh, sums)?;
        }
        self.fit_to_type(&ct, &expected)
    }
}
