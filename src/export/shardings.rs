//! Where values are, in Shardy's words.

use super::Out;
use super::text::{list, quoted};
use super::writer::{Ssa, Writer};
use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::program::{Pin, Placement};
use crate::sharding::{Atom, Spec};
use crate::types::ArrayType;

/// Which values say where they are, beside arguments, results and what the program asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shardings {
    /// No others: all is left to XLA.
    Asked,
    /// Every value on explicit axes, as its type says.
    #[default]
    Types,
    /// Every value, as our own propagation placed it.
    Placed,
}

/// What a dimension that does not divide becomes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Uneven {
    /// Nothing is said of it.
    Open,
    /// It is refused.
    Refused,
}

pub(super) fn mesh_name(k: usize) -> String {
    if k == 0 { "mesh".into() } else { format!("mesh_{k}") }
}
fn names(axes: impl IntoIterator<Item = Axis>) -> Vec<String> {
    axes.into_iter().map(|a| quoted(a.name())).collect()
}

impl Writer {
    /// The name of a mesh. Axis types are of no matter here.
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
    /// A spec: `<@mesh, [{"x"}, {?}]>`. Open dimensions may be split further.
    pub(super) fn spec(
        &mut self,
        mesh: &Mesh,
        spec: Spec,
        ty: &ArrayType,
        open: &[usize],
        uneven: Uneven,
    ) -> Out<String> {
        let mut dims = Vec::new();
        for d in 0..ty.rank() {
            let axes = spec.dims().get(d).into_iter().flat_map(|a| a.iter());
            let axes: Vec<Axis> = axes.filter(|a| !self.manual.contains(a)).collect();
            let ways: usize = axes.iter().map(|a| mesh.extent(*a)).product();
            let mut entry = names(axes);
            if !ty.shape[d].is_multiple_of(ways) {
                refuse(uneven, d, ty, ways)?;
                entry.clear();
            }
            if open.contains(&d) || !ty.shape[d].is_multiple_of(ways) {
                entry.push("?".into());
            }
            dims.push(format!("{{{}}}", entry.join(", ")));
        }
        let parts = names(spec.unreduced_axes().iter().filter(|a| !self.manual.contains(a)));
        Ok(self.entry(mesh, dims, parts))
    }
    /// A placement in the same words.
    pub(super) fn placement(
        &mut self,
        mesh: &Mesh,
        at: &Placement,
        ty: &ArrayType,
        uneven: Uneven,
    ) -> Out<String> {
        let mut dims = Vec::new();
        let manual: Vec<String> = names(self.manual.iter().copied());
        let free = |t: &String| !manual.iter().any(|m| t.starts_with(m.as_str()));
        for d in 0..ty.rank() {
            let atoms = at.dims.get(d).map(|a| a.as_slice()).unwrap_or_default();
            let ways: usize = atoms.iter().map(|a| a.size).product();
            if !ty.shape[d].is_multiple_of(ways) {
                refuse(uneven, d, ty, ways)?;
                dims.push("{?}".to_string());
                continue;
            }
            let digits: Vec<String> = atoms.iter().flat_map(|a| pieces(mesh, *a)).filter(free).collect();
            dims.push(format!("{{{}}}", digits.join(", ")));
        }
        let parts = at.partial.iter().flat_map(|a| pieces(mesh, *a)).filter(free).collect();
        Ok(self.entry(mesh, dims, parts))
    }
    /// The spec without the sums that XLA knows as made; what is unreduced there.
    fn known(&self, spec: Spec, sums: &[Axis]) -> (Spec, Vec<Axis>) {
        let kept: Vec<Axis> =
            spec.unreduced_axes().iter().filter(|a| sums.contains(a) && !self.manual.contains(a)).collect();
        (Spec::of(spec.dims().to_vec()).unreduced(kept.iter().copied().collect::<Axes>()), kept)
    }
    pub(super) fn constrained(&mut self, x: &Ssa, at: &str) -> Ssa {
        self.op(format!("sdy.sharding_constraint {} {at} : {}", x.name, x.ty()), x.dtype, &x.shape)
    }
    /// The value with these dimensions whole on each device; the others are left open.
    pub(super) fn whole(&mut self, x: &Ssa, mesh: &Mesh, dims: &[usize]) -> Ssa {
        if dims.is_empty() {
            return x.clone();
        }
        let entry = |d: usize| if dims.contains(&d) { "{}".to_string() } else { "{?}".to_string() };
        let at = self.entry(mesh, (0..x.shape.len()).map(entry).collect(), Vec::new());
        self.constrained(x, &at)
    }
    /// All dimensions, where some axes decide by themselves.
    pub(super) fn open(&self, mesh: &Mesh, rank: usize) -> Vec<usize> {
        if self.has(mesh, AxisType::Auto) { (0..rank).collect() } else { Vec::new() }
    }
    fn has(&self, mesh: &Mesh, ty: AxisType) -> bool {
        mesh.axes_of(ty).iter().any(|a| !self.manual.contains(a))
    }
    /// The value, said to be where its type (or its placement) has it, and a sum that is not made over those of `sums` that its type says.
    pub(super) fn said(
        &mut self,
        x: Ssa,
        ty: &ArrayType,
        placement: Option<&Placement>,
        sums: &[Axis],
    ) -> Out<Ssa> {
        let Some(mesh) = &ty.mesh else { return Ok(x) };
        let mut kept = Vec::new();
        let at = match (self.options.shardings, placement) {
            (Shardings::Placed, Some(at)) => {
                let whole = Placement { partial: Default::default(), ..at.clone() };
                self.placement(mesh, &whole, ty, Uneven::Open)?
            }
            (Shardings::Asked, _) => return Ok(x),
            _ if !self.has(mesh, AxisType::Explicit) => return Ok(x),
            _ => {
                let open = self.open(mesh, ty.rank());
                let (spec, unmade) = self.known(ty.spec, sums);
                kept = unmade;
                self.spec(mesh, spec, ty, &open, Uneven::Open)?
            }
        };
        Ok(Ssa { unreduced: kept, ..self.constrained(&x, &at) })
    }
    /// The value where the program asked for it to be.
    pub(super) fn pinned(&mut self, x: &Ssa, pin: &Pin, ty: &ArrayType, from: &[Axis]) -> Out<Ssa> {
        let open = match pin.loose {
            true => (0..ty.rank()).collect(),
            false => pin.open.clone(),
        };
        // it moves the value: only what was a sum before is one
        let (spec, unreduced) = self.known(pin.spec, from);
        let at = self.spec(&pin.mesh, spec, ty, &open, Uneven::Open)?;
        Ok(Ssa { unreduced, ..self.constrained(x, &at) })
    }
}

/// The axes over which a result may be a sum that is not made: those that shard what a product sums over (XLA adds up a fold that is said to be
/// unreduced, and then adds up what the devices have), and those over which all operands
/// that are unreduced by their types are sums for XLA too. A whole value that is called unreduced would be added up as often as there are devices.
pub(super) fn sums(operands: &[ArrayType], ins: &[Ssa], product: bool) -> Vec<Axis> {
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

fn refuse(uneven: Uneven, d: usize, ty: &ArrayType, ways: usize) -> Out<()> {
    if uneven == Uneven::Open {
        return Ok(());
    }
    let text = format!("dimension {d} of {ty} is in {ways} uneven parts: XLA splits evenly");
    let n = ty.shape[d].next_multiple_of(ways);
    Err(Fault::new(ErrorKind::Unsupported, text)
        .help(format!("pad it to {n}, or leave it unsharded where the program begins and ends")))
}

/// A digit as axes, or as pieces of axes `"x":(2)4`: the digit of size 4 behind the first 2 values.
fn pieces(mesh: &Mesh, atom: Atom) -> Vec<String> {
    let (mut top, mut out) = (atom.stride * atom.size, Vec::new());
    while top > atom.stride {
        let holds = |a: &&Axis| {
            let (step, n) = (mesh.step(**a), mesh.extent(**a));
            n > 1 && step < top && top <= step * n
        };
        let Some(a) = mesh.axis_names().iter().find(holds) else { break };
        let (step, n) = (mesh.step(*a), mesh.extent(*a));
        let low = step.max(atom.stride);
        let (before, size) = (step * n / top, top / low);
        let name = quoted(a.name());
        out.push(if size == n { name } else { format!("{name}:({before}){size}") });
        top = low;
    }
    out
}
