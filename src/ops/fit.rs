//! Values made to fit a type: tangents and cotangents of the type that they must have.

use super::build::cotangent_type;
use super::collective::{Along, Cast, Pcast, Preduce};
use crate::diagnostic::Result;
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::program::sentence::Combine;
use crate::program::{Builder, Value};
use crate::types::ArrayType;
use std::sync::Arc;

fn along(mesh: &Mesh, axes: impl Into<Axes>) -> Along {
    Along { mesh: mesh.clone(), axes: axes.into(), checked: true }
}

impl Builder {
    /// A cast over manual axes of a region that tracks what varies; `x` itself where there are none.
    pub fn pcast(&mut self, x: &Value, mesh: &Mesh, axes: impl Into<Axes>, to: Cast) -> Result<Value> {
        let along = along(mesh, axes);
        if along.axes.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Pcast { along, to }), std::slice::from_ref(x))
    }
    /// The sum over manual axes of a region that tracks what varies; `x` itself where there are none.
    pub fn psum(&mut self, x: &Value, mesh: &Mesh, axes: impl Into<Axes>) -> Result<Value> {
        let along = along(mesh, axes);
        if along.axes.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Preduce { along, combine: Combine::Add }), std::slice::from_ref(x))
    }
    /// A tangent made to be of its value's type: cast over the axes over which only the value varies, and resharded.
    pub fn fit(&mut self, x: &Value, want: &ArrayType) -> Result<Value> {
        let mut x = x.clone();
        if let Some(mesh) = &want.mesh {
            let lacks: Vec<Axis> = want.varying.iter().filter(|a| !x.ty.varying.contains(*a)).collect();
            let (reduced, plain): (Vec<_>, Vec<_>) =
                lacks.into_iter().partition(|a| x.ty.spec.reduced_axes().contains(*a));
            x = self.pcast(&x, mesh, reduced, Cast::Varying)?;
            x = self.pcast(&x, mesh, plain, Cast::Varying)?;
            let manual = |a: &Axis| mesh.axis_type(*a) == Some(AxisType::Manual);
            let become_reduced: Vec<Axis> = (want.spec.reduced_axes().iter())
                .filter(|a| manual(a) && !x.ty.spec.reduced_axes().contains(*a))
                .collect();
            x = self.pcast(&x, mesh, become_reduced, Cast::Reduced)?;
        }
        self.reshard_to(&x, want)
    }
    /// A cotangent made to be of the type that the cotangent of a value of type `of` has: summed over manual axes over which the
    /// value does not vary (cast to unreduced where it is reduced), cast to varying where only the value varies, and resharded.
    pub fn fit_cotangent(&mut self, ct: &Value, of: &ArrayType) -> Result<Value> {
        let want = cotangent_type(of);
        let mut ct = ct.clone();
        if let Some(mesh) = ct.ty.mesh.clone().or_else(|| want.mesh.clone()) {
            let more: Vec<Axis> = ct.ty.varying.iter().filter(|a| !want.varying.contains(*a)).collect();
            let (parts, sums): (Vec<_>, Vec<_>) =
                more.into_iter().partition(|a| want.spec.unreduced_axes().contains(*a));
            ct = self.pcast(&ct, &mesh, parts, Cast::Unreduced)?;
            ct = self.psum(&ct, &mesh, sums)?;
        }
        self.fit(&ct, &want)
    }
}
