//! Writes shardings in Shardy's syntax.

use super::FaultResult;
use super::syntax::{list, quoted};
use super::writer::{Ssa, Writer};
use crate::core::{ArrayType, Axes, Axis, AxisType, ErrorKind, Fault, Mesh, Spec, SubAxis};
use crate::ir::program::{Placement, ShardingConstraint};

/// The values that get sharding annotations, besides arguments, results and requested shardings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Annotate {
    /// No other values: XLA decides their shardings.
    Requested,
    /// Every value over explicit axes, with the sharding of its type.
    #[default]
    Explicit,
    /// Every value, with the placement that this crate's propagation chose.
    All,
}

/// The treatment of a dimension that is not divisible by its number of shards.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum UnevenPolicy {
    /// The dimension is left open.
    Open,
    /// The dimension is an error.
    Reject,
}

pub(super) fn mesh_name(k: usize) -> String {
    if k == 0 { "mesh".into() } else { format!("mesh_{k}") }
}
fn names(axes: impl IntoIterator<Item = Axis>) -> Vec<String> {
    axes.into_iter().map(|a| quoted(a.name())).collect()
}

impl Writer {
    /// Returns the name of a mesh. Meshes that differ only in their axis types have the same name.
    pub(super) fn mesh(&mut self, mesh: &Mesh) -> String {
        let same = |m: &Mesh| m.axis_names() == mesh.axis_names() && m.axis_sizes() == mesh.axis_sizes();
        let k = self.meshes.iter().position(same).unwrap_or_else(|| {
            self.meshes.push(mesh.clone());
            self.meshes.len() - 1
        });
        mesh_name(k)
    }
    fn entry(&mut self, mesh: &Mesh, dims: Vec<String>, unreduced: Vec<String>) -> String {
        let set = match unreduced.is_empty() {
            true => String::new(),
            false => format!(", unreduced={{{}}}", unreduced.join(", ")),
        };
        format!("<@{}, {}{set}>", self.mesh(mesh), list(dims))
    }
    /// Formats a spec as `<@mesh, [{"x"}, {?}]>`. Dimensions in `open` may be sharded further.
    pub(super) fn spec(
        &mut self,
        mesh: &Mesh,
        spec: Spec,
        ty: &ArrayType,
        open: &[usize],
        uneven: UnevenPolicy,
    ) -> FaultResult<String> {
        let mut dims = Vec::new();
        for d in 0..ty.rank() {
            let axes = spec.dims().get(d).into_iter().flat_map(|a| a.iter());
            let axes: Vec<Axis> = axes.filter(|a| !self.manual.contains(a)).collect();
            let num_shards: usize = axes.iter().map(|a| mesh.extent(*a)).product();
            let mut entry = names(axes);
            if !ty.shape[d].is_multiple_of(num_shards) {
                reject_uneven(uneven, d, ty, num_shards)?;
                entry.clear();
            }
            if open.contains(&d) || !ty.shape[d].is_multiple_of(num_shards) {
                entry.push("?".into());
            }
            dims.push(format!("{{{}}}", entry.join(", ")));
        }
        let unreduced = names(spec.unreduced_axes().iter().filter(|a| !self.manual.contains(a)));
        Ok(self.entry(mesh, dims, unreduced))
    }
    /// Formats a placement in the syntax of [`spec`](Self::spec).
    pub(super) fn placement(
        &mut self,
        mesh: &Mesh,
        at: &Placement,
        ty: &ArrayType,
        uneven: UnevenPolicy,
    ) -> FaultResult<String> {
        let mut dims = Vec::new();
        let manual: Vec<String> = names(self.manual.iter().copied());
        let free = |t: &String| !manual.iter().any(|m| t.starts_with(m.as_str()));
        for d in 0..ty.rank() {
            let sub_axes = at.dims.get(d).map(|a| a.as_slice()).unwrap_or_default();
            let num_shards: usize = sub_axes.iter().map(|a| a.size).product();
            if !ty.shape[d].is_multiple_of(num_shards) {
                reject_uneven(uneven, d, ty, num_shards)?;
                dims.push("{?}".to_string());
                continue;
            }
            let axis_names: Vec<String> =
                sub_axes.iter().flat_map(|a| sub_axis_names(mesh, *a)).filter(free).collect();
            dims.push(format!("{{{}}}", axis_names.join(", ")));
        }
        let partial = at.partial.iter().flat_map(|a| sub_axis_names(mesh, *a)).filter(free).collect();
        Ok(self.entry(mesh, dims, partial))
    }
    /// Removes the unreduced axes over which XLA has already summed.
    /// Returns the spec, and its remaining unreduced axes.
    fn known_to_xla(&self, spec: Spec, sums: &[Axis]) -> (Spec, Vec<Axis>) {
        let kept: Vec<Axis> =
            spec.unreduced_axes().iter().filter(|a| sums.contains(a) && !self.manual.contains(a)).collect();
        (Spec::from_dims(spec.dims().to_vec()).unreduced(kept.iter().copied().collect::<Axes>()), kept)
    }
    /// Constrains a value to a sharding. On a mesh of one device, a constraint says nothing.
    pub(super) fn constrained(&mut self, x: &Ssa, mesh: &Mesh, at: &str) -> Ssa {
        if mesh.size() == 1 {
            return x.clone();
        }
        self.op(format!("sdy.sharding_constraint {} {at} : {}", x.name, x.ty()), x.dtype, &x.shape)
    }
    /// Constrains these dimensions to be unsharded, and leaves the others open.
    pub(super) fn unsharded(&mut self, x: &Ssa, mesh: &Mesh, dims: &[usize]) -> Ssa {
        if dims.is_empty() {
            return x.clone();
        }
        let entry = |d: usize| if dims.contains(&d) { "{}".to_string() } else { "{?}".to_string() };
        let at = self.entry(mesh, (0..x.shape.len()).map(entry).collect(), Vec::new());
        self.constrained(x, mesh, &at)
    }
    /// Returns all dimensions if some axes are auto axes, and none otherwise.
    pub(super) fn open_dims(&self, mesh: &Mesh, rank: usize) -> Vec<usize> {
        if self.has_free_axis(mesh, AxisType::Auto) { (0..rank).collect() } else { Vec::new() }
    }
    fn has_free_axis(&self, mesh: &Mesh, ty: AxisType) -> bool {
        mesh.axes_of(ty).iter().any(|a| !self.manual.contains(a))
    }
    /// Constrains a value to the sharding of its type or placement.
    /// It stays unreduced over those unreduced axes of its type that are in `sums`.
    pub(super) fn annotated(
        &mut self,
        x: Ssa,
        ty: &ArrayType,
        placement: Option<&Placement>,
        sums: &[Axis],
    ) -> FaultResult<Ssa> {
        let Some(mesh) = &ty.mesh else { return Ok(x) };
        let mut kept = Vec::new();
        let at = match (self.options.shardings, placement) {
            (Annotate::All, Some(at)) => {
                let full = Placement { partial: Default::default(), ..at.clone() };
                self.placement(mesh, &full, ty, UnevenPolicy::Open)?
            }
            (Annotate::Requested, _) => return Ok(x),
            _ if !self.has_free_axis(mesh, AxisType::Explicit) => return Ok(x),
            _ => {
                let open = self.open_dims(mesh, ty.rank());
                let (spec, unmade) = self.known_to_xla(ty.spec, sums);
                kept = unmade;
                self.spec(mesh, spec, ty, &open, UnevenPolicy::Open)?
            }
        };
        Ok(Ssa { unreduced: kept, ..self.constrained(&x, mesh, &at) })
    }
    /// Constrains a value to the sharding that the program requests for it.
    pub(super) fn with_constraint(
        &mut self,
        x: &Ssa,
        pin: &ShardingConstraint,
        ty: &ArrayType,
        from: &[Axis],
    ) -> FaultResult<Ssa> {
        let open = if pin.explicit_only { (0..ty.rank()).collect() } else { pin.open_dims.clone() };
        // the constraint moves data: the result is unreduced only where the operand was
        let (spec, unreduced) = self.known_to_xla(pin.spec, from);
        let at = self.spec(&pin.mesh, spec, ty, &open, UnevenPolicy::Open)?;
        Ok(Ssa { unreduced, ..self.constrained(x, &pin.mesh, &at) })
    }
}

/// Returns the axes over which a result may be unreduced.
/// These are the axes that shard the reduced dimensions of a contraction, and those over which all
/// unreduced operands are partial sums for XLA too. Other reductions do not qualify: XLA computes
/// their full sum, and would then add up the sums of the devices. If a replicated value were
/// annotated as unreduced, XLA would add it up once per device.
pub(super) fn unmade_sum_axes(operands: &[ArrayType], ins: &[Ssa], product: bool) -> Vec<Axis> {
    let mut found = Vec::new();
    for ty in operands {
        let contracted = ty.spec.dims().iter().flat_map(|a| a.iter()).filter(|_| product);
        found.extend(contracted.chain(ty.spec.unreduced_axes().iter()));
    }
    found.retain(|a| {
        operands
            .iter()
            .zip(ins)
            .all(|(ty, x)| !ty.spec.unreduced_axes().contains(*a) || x.unreduced.contains(a))
    });
    found
}

fn reject_uneven(uneven: UnevenPolicy, d: usize, ty: &ArrayType, ways: usize) -> FaultResult<()> {
    if uneven == UnevenPolicy::Open {
        return Ok(());
    }
    let text = format!("dimension {d} of {ty} is sharded into {ways} uneven blocks: XLA needs even ones");
    let n = ty.shape[d].next_multiple_of(ways);
    Err(Fault::new(ErrorKind::Unsupported, text)
        .help(format!("pad it to {n}, or leave it unsharded where the program begins and ends")))
}

/// Formats a sub-axis as axes or as sub-axes such as `"x":(2)4`.
/// This example has size 4 and comes after a sub-axis of size 2.
fn sub_axis_names(mesh: &Mesh, sub_axis: SubAxis) -> Vec<String> {
    let (mut top, mut out) = (sub_axis.stride * sub_axis.size, Vec::new());
    while top > sub_axis.stride {
        let holds = |a: &&Axis| {
            let (step, n) = (mesh.stride_of(**a), mesh.extent(**a));
            n > 1 && step < top && top <= step * n
        };
        let Some(a) = mesh.axis_names().iter().find(holds) else { break };
        let (step, n) = (mesh.stride_of(*a), mesh.extent(*a));
        let low = step.max(sub_axis.stride);
        let (before, size) = (step * n / top, top / low);
        let name = quoted(a.name());
        out.push(if size == n { name } else { format!("{name}:({before}){size}") });
        top = low;
    }
    out
}
