//! Placement of values: reshard, constrain, copy.

use super::build::cotangent_type;
use super::moves::Move;
use super::view::{list, plain_view};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::program::sentence::Sentence;
use crate::program::{Batch, behind};
use crate::program::{Builder, Dim, Factors, Operand, Pin, Priority, Value};
use crate::sharding::{Spec, check_divides, check_parts, check_spec};
use crate::types::{ArrayType, Shape};
use std::sync::Arc;

/// The same value with another sharding: any sharding to any other, also on another mesh over the same devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reshard {
    /// The mesh that it is moved to.
    pub mesh: Mesh,
    /// How: over explicit and auto axes, and the unreduced and reduced sets.
    pub spec: Spec,
    /// Dimensions that may be split further over auto axes: those of `vmap`'s examples.
    pub open: Vec<usize>,
}

impl Reshard {
    /// The sharding asked for.
    pub fn new(mesh: Mesh, spec: Spec) -> Reshard {
        Reshard { mesh, spec, open: Vec::new() }
    }
}

/// Asserts a sharding over explicit axes, asks propagation for one over auto axes. The type stays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constrain {
    /// The mesh of the spec's axes.
    pub mesh: Mesh,
    /// The sharding.
    pub spec: Spec,
    /// Dimensions that may be split further: those that the user leaves open, and of `vmap`'s examples.
    pub open: Vec<usize>,
}

impl Constrain {
    /// The sharding asked for.
    pub fn new(mesh: Mesh, spec: Spec) -> Constrain {
        Constrain { mesh, spec, open: Vec::new() }
    }
}

fn params(mesh: &Mesh, spec: Spec, open: &[usize]) -> String {
    let open = if open.is_empty() { String::new() } else { format!(", open={}", list(open)) };
    format!("mesh={mesh}, spec={spec}{open}")
}

/// The open dimensions of all examples; the examples' own is, unless a sharding is asked for.
fn opened(open: &[usize], spec: Spec) -> Vec<usize> {
    let own = spec.dim(0).is_empty().then_some(0);
    own.into_iter().chain(behind(open)).collect()
}

/// The value itself, as a value of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Copy;

fn sharding(message: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Sharding, message)
}

/// What is true of all of these: each element of the result is that of the operand at the same place.
macro_rules! stays {
    () => {
        const PRIORITY: Priority = Priority::Elementwise;
        fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
            Ok(x.shape.clone())
        }
        /// One a dimension.
        fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
            let dims = Dim::each(0..x.rank());
            Factors { operands: vec![dims.clone()], results: vec![dims], ..Factors::over(&x.shape) }
        }
        fn reads(&self, _x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
            let loops: Vec<_> = (0..y.rank()).map(Some).collect();
            plain_view(y, &loops)
        }
    };
}

/// Refuses a mesh over other devices than the operand's, or over the same in another order.
fn same_devices(x: &ArrayType, mesh: &Mesh) -> Result<(), Fault> {
    let Some(from) = x.mesh.as_ref().filter(|from| *from != mesh) else { return Ok(()) };
    let known = !from.is_abstract() && !mesh.is_abstract();
    if from.size() != mesh.size() || known && from.devices() != mesh.devices() {
        let message = format!("the value is placed on {from}, whose devices are not those of {mesh}");
        return Err(Fault::new(ErrorKind::Mesh, message)
            .help("both meshes must be over the same devices in the same order"));
    }
    Ok(())
}

fn manual(mesh: &Mesh, axis: Axis) -> bool {
    mesh.axis_type(axis) == Some(AxisType::Manual)
}

impl Move for Reshard {
    const NAME: &'static str = "reshard";
    stays!();
    fn text(&self) -> String {
        params(&self.mesh, self.spec, &self.open)
    }
    fn typed(&self, x: &Operand) -> Result<ArrayType, Fault> {
        let x = &x.ty;
        same_devices(x, &self.mesh)?;
        let spec = check_spec(&self.mesh, self.spec, x.rank(), &[AxisType::Explicit, AxisType::Auto])?;
        check_divides(&self.mesh, spec, &x.shape)?;
        check_parts(spec, x.dtype)?;
        if x.mesh.as_ref().is_some_and(|m| *m != self.mesh && !m.axes_of(AxisType::Manual).is_empty()) {
            let message = "inside shard_map a value stays on the body's mesh";
            return Err(Fault::new(ErrorKind::Mesh, message));
        }
        let explicit = spec.only(|a| self.mesh.axis_type(a) == Some(AxisType::Explicit));
        // sets over manual axes are the body's own; a reshard over other axes leaves them
        let keep = |set: &Axes, own: &Axes| -> Axes {
            own.iter().chain(set.iter().filter(|a| manual(&self.mesh, *a))).collect()
        };
        let spec = explicit
            .unreduced(keep(x.spec.unreduced_axes(), explicit.unreduced_axes()))
            .reduced(keep(x.spec.reduced_axes(), explicit.reduced_axes()))
            .in_order(&self.mesh);
        Ok(ArrayType { mesh: Some(self.mesh.clone()), spec, ..x.clone() })
    }
    fn back(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        b.reshard_to(ct, &cotangent_type(x))
    }
    fn pin(&self) -> Option<Pin> {
        // it speaks of explicit axes, and leaves auto ones open where it names none
        let is = |ty| move |a: &Axis| self.mesh.axis_type(*a) == Some(ty);
        let names_auto = self.spec.all_axes().any(|a| is(AxisType::Auto)(&a));
        let has_explicit = self.mesh.axis_names().iter().any(is(AxisType::Explicit));
        let loose = has_explicit && !names_auto;
        Some(Pin { mesh: self.mesh.clone(), spec: self.spec, open: self.open.clone(), loose })
    }
    fn for_examples(&self, batch: &Batch<'_>) -> Self {
        let spec = batch.examples.spec(self.spec, batch.operands[0].rank(), 0);
        Reshard { mesh: self.mesh.clone(), spec, open: opened(&self.open, spec) }
    }
}

impl Move for Constrain {
    const NAME: &'static str = "constrain";
    stays!();
    fn text(&self) -> String {
        params(&self.mesh, self.spec, &self.open)
    }
    fn typed(&self, x: &Operand) -> Result<ArrayType, Fault> {
        let x = &x.ty;
        same_devices(x, &self.mesh)?;
        let mixed = self.mesh.axis_types().iter().any(|t| *t != AxisType::Explicit);
        let kinds: &[AxisType] = if mixed { &[AxisType::Auto] } else { &[AxisType::Explicit] };
        let spec = check_spec(&self.mesh, self.spec, x.rank(), kinds)?;
        check_divides(&self.mesh, spec, &x.shape)?;
        // of an open dimension only the first axes are asserted
        let holds = |d: usize| match self.open.contains(&d) {
            true => x.spec.dim(d).starts_with(spec.dim(d)),
            false => x.spec.dim(d) == spec.dim(d),
        };
        let sets = |s: Spec| (s.unreduced_axes(), s.reduced_axes());
        let asserted = (0..x.rank()).all(holds) && sets(spec) == sets(x.spec);
        if !mixed && !asserted {
            return Err(sharding(format!("the value is sharded as {}, not as {spec}", x.spec)).help(
                format!(
                    "over explicit axes a constraint is an assertion; to move the value: `x.reshard({spec})`"
                ),
            ));
        }
        let mesh = x.mesh.clone().or_else(|| Some(self.mesh.clone()));
        Ok(ArrayType { mesh, ..x.clone() })
    }
    fn back(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        // an assertion on the value says nothing of its cotangent's sets
        if self.pin().is_none() {
            return Ok(ct.clone());
        }
        b.emit1(Arc::new(self.clone()), std::slice::from_ref(ct))
    }
    fn pin(&self) -> Option<Pin> {
        let mixed = self.mesh.axis_types().iter().any(|t| *t != AxisType::Explicit);
        mixed.then(|| Pin { mesh: self.mesh.clone(), spec: self.spec, open: self.open.clone(), loose: false })
    }
    fn for_examples(&self, batch: &Batch<'_>) -> Self {
        let spec = batch.examples.constraint(&self.mesh, self.spec, batch.operands[0].rank());
        Constrain { mesh: self.mesh.clone(), spec, open: opened(&self.open, spec) }
    }
}

impl Move for Copy {
    const NAME: &'static str = "copy";
    stays!();
    fn text(&self) -> String {
        String::new()
    }
    fn back(&self, _b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        Ok(ct.clone())
    }
    fn for_examples(&self, _: &Batch<'_>) -> Self {
        Copy
    }
}

impl Builder {
    /// `x` on `mesh`, sharded as `spec` says.
    pub fn reshard(&mut self, x: &Value, mesh: &Mesh, spec: Spec) -> Result<Value> {
        self.emit1(Arc::new(Reshard::new(mesh.clone(), spec)), std::slice::from_ref(x))
    }
    /// `x` sharded as a value of type `want` over explicit axes; itself where it is.
    pub fn reshard_to(&mut self, x: &Value, want: &ArrayType) -> Result<Value> {
        let mesh = want.mesh.as_ref().or(x.ty.mesh.as_ref());
        let Some(mesh) = mesh else { return Ok(x.clone()) };
        let lies = x.ty.mesh.is_none() || x.ty.mesh.as_ref() == Some(mesh);
        if lies && x.ty.spec == want.spec {
            return Ok(x.clone());
        }
        let (mesh, spec) = (mesh.clone(), want.spec.only(|a| !manual(mesh, a)));
        self.reshard(x, &mesh, spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

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
