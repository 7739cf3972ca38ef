//! Collectives: what the per-device programs of manual mode do together.
//!
//! Their types are functions on the sets of axes over which values vary. None has a sentence: the partitioner reads
//! [`Primitive::collective`](crate::program::Primitive::collective) and makes reads and folds over all devices' blocks of it. In unchecked regions types say nothing of what
//! varies; there every value counts as varying, and the transpose of a sum is a sum.

mod cast;
mod exchange;
mod gather;
mod index;
mod reduce;

pub use cast::{Cast, Pcast};
pub use exchange::{AllToAll, Ppermute};
pub use gather::{AllGather, Gathered, OwnPart, PsumScatter};
pub use index::AxisIndex;
pub use reduce::Preduce;

use super::view::{arity, shape_fault};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::program::{Dim, Factors, Operand};
use crate::sharding::{Spec, check_parts};
use crate::types::{ArrayType, Shape};

/// The devices that take part: those along `axes`, the first named outermost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Along {
    /// The mesh as the body sees it: its manual axes are marked as such.
    pub mesh: Mesh,
    /// The manual axes.
    pub axes: Axes,
    /// Whether the region tracks what varies; if not, everything may.
    pub checked: bool,
}

/// How a value relates to manual axes, to all of them in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Varying,
    Invarying,
    Unreduced,
    Reduced,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Varying => "varying",
            State::Invarying => "invarying",
            State::Unreduced => "unreduced",
            State::Reduced => "reduced",
        }
    }
}

fn vma(message: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Vma, message)
}

impl Along {
    /// How many devices there are along the axes.
    pub fn size(&self) -> usize {
        self.axes.iter().map(|a| self.mesh.extent(a)).product()
    }
    fn print(&self) -> String {
        if self.checked { format!("axes={}", self.axes) } else { format!("axes={}, unchecked", self.axes) }
    }
    /// Refuses axes that are not manual here, and repeated ones.
    fn check(&self) -> Result<(), Fault> {
        for (i, axis) in self.axes.iter().enumerate() {
            match self.mesh.axis_type(axis) {
                None => return Err(self.mesh.unknown(axis)),
                Some(AxisType::Manual) => {}
                Some(_) => {
                    let message = format!("{axis} is not manual here, so devices cannot meet along it");
                    let manual = self.mesh.axes_of(AxisType::Manual);
                    let help = if manual.is_empty() {
                        "collectives are for the body of a shard_map".to_string()
                    } else {
                        format!("the manual axes are {}", Axes::from(manual))
                    };
                    return Err(Fault::new(ErrorKind::Mesh, message).help(help));
                }
            }
            if self.axes.as_slice()[..i].contains(&axis) {
                return Err(Fault::new(ErrorKind::Mesh, format!("the axis {axis} is named twice"))
                    .help("name each axis once"));
            }
        }
        Ok(())
    }
    /// The operand, which must be on this mesh or on none.
    fn operand<'a>(&self, name: &str, operands: &'a [Operand]) -> Result<&'a ArrayType, Fault> {
        let x = arity(name, operands, 1)?[0];
        self.check()?;
        match &x.mesh {
            Some(mesh) if *mesh != self.mesh => Err(Fault::new(
                ErrorKind::Mesh,
                format!("the operand is on {mesh}, but here the mesh is {}", self.mesh),
            )
            .help("pass it to `shard_map` as an argument")),
            _ => Ok(x),
        }
    }
    fn state_of(x: &ArrayType, axis: Axis) -> State {
        if x.varying.contains(axis) {
            State::Varying
        } else if x.spec.unreduced_axes().contains(axis) {
            State::Unreduced
        } else if x.spec.reduced_axes().contains(axis) {
            State::Reduced
        } else {
            State::Invarying
        }
    }
    /// The one state that the value has over all axes, else a refusal.
    fn state(&self, name: &str, x: &ArrayType) -> Result<State, Fault> {
        let mut states = self.axes.iter().map(|a| (a, Along::state_of(x, a)));
        let Some((first, state)) = states.next() else { return Ok(State::Varying) };
        match states.find(|s| s.1 != state) {
            None => Ok(state),
            Some((other, differs)) => Err(vma(format!(
                "{name} over {} needs one state over all of them, but the operand is {} over {first} and {} over {other}",
                self.axes,
                state.name(),
                differs.name()
            ))
            .help("cast it over the axis that differs first, or name the axes one by one")),
        }
    }
    /// Refuses values that cannot be cast to varying over the axes.
    fn may_vary(&self, name: &str, x: &ArrayType) -> Result<(), Fault> {
        for axis in self.axes.iter() {
            let mend = match Along::state_of(x, axis) {
                State::Unreduced => format!("sum it first: `x.psum({:?})`", axis.name()),
                State::Reduced => format!("cast it first: `x.pcast({:?}, Cast::Varying)`", axis.name()),
                _ => continue,
            };
            let state = Along::state_of(x, axis).name();
            return Err(vma(format!("{name} takes varying values, but the operand is {state} over {axis}"))
                .help(mend));
        }
        Ok(())
    }
    /// The result's type: of this shape and these entries, in the given state over the axes.
    fn result(&self, x: &ArrayType, shape: Shape, dims: Vec<Axes>, state: State) -> Result<ArrayType, Fault> {
        for (d, (entry, n)) in dims.iter().zip(&*shape).enumerate() {
            let ways: usize = entry.iter().map(|a| self.mesh.extent(a)).product();
            if n % ways != 0 {
                return Err(Fault::new(
                    ErrorKind::Sharding,
                    format!(
                        "dimension {d} of the result has size {n}, which {entry} does not divide into {ways} equal parts"
                    ),
                ));
            }
        }
        let spec = x.spec;
        let (mut v, mut u, mut r) = (
            x.varying.without(&self.axes),
            spec.unreduced_axes().without(&self.axes),
            spec.reduced_axes().without(&self.axes),
        );
        if self.checked {
            match state {
                State::Varying => v.extend(&self.axes),
                State::Unreduced => u.extend(&self.axes),
                State::Reduced => r.extend(&self.axes),
                State::Invarying => {}
            }
        }
        let varying = self.mesh.in_order(&v);
        let spec = Spec::of(dims).unreduced(u).reduced(r).in_order(&self.mesh);
        check_parts(spec, x.dtype)?;
        Ok(ArrayType { dtype: x.dtype, shape, mesh: Some(self.mesh.clone()), spec, varying })
    }
    fn same(&self, x: &ArrayType, state: State) -> Result<ArrayType, Fault> {
        self.result(x, x.shape.clone(), x.spec.dims().to_vec(), state)
    }
    fn check_dim(what: &str, dim: usize, rank: usize) -> Result<(), Fault> {
        if dim < rank {
            return Ok(());
        }
        Err(shape_fault(format!("there is no {what} {dim} among {rank} dimensions"))
            .help("dimensions are counted from 0"))
    }
    /// Shape and entries after dimension `dim` was cut into as many parts as there are devices.
    fn cut(&self, shape: &mut Shape, dims: &mut Vec<Axes>, dim: usize, tiled: bool) -> Result<(), Fault> {
        let n = self.size();
        Along::check_dim("dimension", dim, shape.rank())?;
        let size = shape[dim];
        if tiled {
            if !size.is_multiple_of(n) {
                return Err(shape_fault(format!(
                    "dimension {dim} of size {size} is not divisible into {n} equal parts"
                ))
                .help(format!(
                    "the size must be a multiple of {n}, the number of devices along {}",
                    self.axes
                ))
                .dim(0, dim));
            }
            shape.sizes_mut()[dim] = size / n;
        } else {
            if size != n {
                return Err(shape_fault(format!(
                    "dimension {dim} is taken apart over {n} devices, but its size is {size}"
                ))
                .help(format!("cut it into blocks: `Gather::tiled({dim})`"))
                .dim(0, dim));
            }
            shape.sizes_mut().remove(dim);
            dims.remove(dim);
        }
        Ok(())
    }
    /// Shape and entries after the devices' parts were joined along `dim`.
    fn join(&self, shape: &mut Shape, dims: &mut Vec<Axes>, dim: usize, tiled: bool) -> Result<(), Fault> {
        let n = self.size();
        if tiled {
            Along::check_dim("dimension", dim, shape.rank())?;
            shape.sizes_mut()[dim] = shape[dim].saturating_mul(n);
        } else {
            Along::check_dim("new dimension", dim, shape.rank() + 1)?;
            shape.sizes_mut().insert(dim, n);
            dims.insert(dim, Axes::none());
        }
        Ok(())
    }
}

/// Where a dimension goes when dimension `cut` is cut (`tiled`) or taken apart.
fn after_cut(d: usize, cut: usize, tiled: bool) -> Option<usize> {
    if d == cut {
        None
    } else if tiled || d < cut {
        Some(d)
    } else {
        Some(d - 1)
    }
}

/// Factors of a collective for axes that are not manual: dimensions pass, but for those that are cut or joined.
fn passing(x: &ArrayType, result: &Shape, map: impl Fn(usize) -> Option<usize>) -> Factors {
    let mut f = Factors::default();
    let mut results: Vec<Option<usize>> = vec![None; result.rank()];
    let operand = x.shape.iter().enumerate().map(|(d, &n)| {
        let to = map(d).filter(|to| result.get(*to) == Some(&n));
        let l = f.add(n);
        match to {
            Some(to) => results[to] = Some(l),
            None => f.loops[l].whole = true,
        }
        Dim::same(l)
    });
    f.operands = vec![operand.collect()];
    f.results = vec![
        results
            .into_iter()
            .enumerate()
            .map(|(d, l)| Dim::same(l.unwrap_or_else(|| f.add(result[d]))))
            .collect(),
    ];
    f
}

/// What all collectives have in common.
macro_rules! collective_common {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }
        collective_common!();
    };
    () => {
        fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
            Ok(self.types(operands)?.into_iter().map(|t| (t.dtype, t.shape)).collect())
        }
        fn linearity(&self) -> Linearity {
            Linearity::Joint
        }
        fn priority(&self) -> Priority {
            Priority::Plain
        }
        fn out(&self) -> Option<Spec> {
            None
        }
        /// None: the partitioner makes reads and folds of [`Primitive::collective`].
        fn sentences(&self, _operands: &[ArrayType], _results: &[ArrayType]) -> Vec<Sentence> {
            Vec::new()
        }
    };
}
use collective_common;

/// The transpose of a collective of one operand: another one on the cotangent.
macro_rules! transposed_by {
    (|$self:ident, $types:ident| $prim:expr) => {
        fn transpose(&$self, crate::program::Back { b, types: $types, cotangents, .. }: crate::program::Back<'_>) -> Result<Tangents> {
            let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
            let prim: Option<Prim> = $prim;
            Ok(vec![Some(match prim {
                Some(prim) => b.emit1(prim, std::slice::from_ref(ct))?,
                None => ct.clone(),
            })])
        }
    };
}
use transposed_by;
