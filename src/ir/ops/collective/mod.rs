//! Collectives of per-device code, such as `psum` and `all_gather`.
//!
//! The types of their operands and results depend on the sets of manual axes over which a value
//! varies, is unreduced, or is reduced. Collectives have no loop nests: the partitioner lowers
//! [`Primitive::collective`](crate::ir::program::Primitive::collective) to accesses and reductions
//! of all devices' blocks. In unchecked regions, types do not have these sets: every value counts
//! as varying, and the transpose of a sum is a sum.

mod cast;
mod exchange;
mod gather;
mod index;
mod reduce;

pub use cast::{Pcast, PcastTo};
pub use exchange::{AllToAllPrim, Pbroadcast, Ppermute};
pub use gather::{AllGather, AllGatherTo, OwnPart, PsumScatter};
pub use index::AxisIndex;
pub use reduce::Preduce;

use super::dim_check::{arity, shape_fault};
use crate::core::{
    ArrayType, Axes, Axis, AxisType, ErrorKind, Fault, Mesh, Result, Shape, Spec,
    sharding::check_unreduced_dtype,
};
use crate::ir::program::{DeviceGroups, Dim, Factors, TypedOperand};

/// The devices that take part in a collective: those along `axes`, the first axis being major.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CollectiveGroup {
    /// The mesh inside the body of `shard_map`, in which manual axes have the type `Manual`.
    pub mesh: Mesh,
    /// The manual axes along which devices take part.
    pub axes: Axes,
    /// True if types track the axes over which values vary; otherwise any value may vary.
    pub checked: bool,
    /// The groups that communicate, each by itself. `None` if all these devices are one group.
    pub groups: Option<DeviceGroups>,
}

/// The state of a value with respect to manual axes, equal for all axes of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum VaryingState {
    /// The value may differ between devices.
    Varying,
    /// The value is equal on all devices.
    Invarying,
    /// The value is the sum of the devices' values.
    Unreduced,
    /// The value is equal on all devices, and its cotangent is unreduced.
    Reduced,
}

impl VaryingState {
    /// Returns the name of the state, for messages.
    fn name(self) -> &'static str {
        match self {
            VaryingState::Varying => "varying",
            VaryingState::Invarying => "invarying",
            VaryingState::Unreduced => "unreduced",
            VaryingState::Reduced => "reduced",
        }
    }
}

/// Returns an error of kind `Varying`.
fn varying_fault(message: impl Into<String>) -> Fault {
    Fault::new(ErrorKind::Varying, message)
}

impl CollectiveGroup {
    /// Creates the group of all devices along the axes.
    pub fn new(mesh: Mesh, axes: Axes, checked: bool) -> CollectiveGroup {
        CollectiveGroup { mesh, axes, checked, groups: None }
    }
    /// Returns the number of devices that communicate: those of a group, or all along the axes.
    pub fn size(&self) -> usize {
        self.groups.as_ref().map_or_else(|| self.num_devices(), DeviceGroups::max_size)
    }
    /// Returns the number of devices along the axes.
    fn num_devices(&self) -> usize {
        self.axes.iter().map(|a| self.mesh.extent(a)).product()
    }
    /// Formats the axes and groups as a parameter.
    fn format_axes(&self) -> String {
        let groups = self.groups.as_ref().map_or(String::new(), |groups| format!(", groups={groups}"));
        let unchecked = if self.checked { "" } else { ", unchecked" };
        format!("axes={}{groups}{unchecked}", self.axes)
    }
    /// Returns an error if the groups have different sizes.
    fn check_equal_groups(&self, name: &str) -> Result<(), Fault> {
        match &self.groups {
            Some(groups) if !groups.have_one_size() => Err(fault!(
                Mesh,
                "the groups {groups} have different sizes, and {name} is for groups of one size"
            )
            .help("groups of different sizes are for `psum`, `pmax` and `pmin`")),
            _ => Ok(()),
        }
    }
    /// Returns an error if an axis is not manual here, or is repeated.
    fn check(&self) -> Result<(), Fault> {
        for (i, axis) in self.axes.iter().enumerate() {
            match self.mesh.axis_type(axis) {
                None => return Err(self.mesh.unknown_axis(axis)),
                Some(AxisType::Manual) => {}
                Some(_) => {
                    let message =
                        format!("{axis} is not manual here, so devices cannot communicate along it");
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
                return Err(fault!(Mesh, "the axis {axis} is named twice").help("name each axis once"));
            }
        }
        self.groups.as_ref().map_or(Ok(()), |groups| groups.check(self.num_devices(), &self.axes))
    }
    /// Returns an error if there is no device of this index.
    fn check_device(&self, device: usize) -> Result<(), Fault> {
        let n = self.size();
        if device < n {
            return Ok(());
        }
        Err(fault!(Mesh, "there is no device {device} along {}, which has {n}", self.axes)
            .help(format!("they are counted along the axes, from 0 to {}", n - 1)))
    }
    /// Returns the single operand, or an error if it is on another mesh.
    fn check_operand<'a>(&self, name: &str, operands: &'a [TypedOperand]) -> Result<&'a ArrayType, Fault> {
        let x = arity(name, operands, 1)?[0];
        self.check()?;
        match &x.mesh {
            Some(mesh) if *mesh != self.mesh => {
                Err(fault!(Mesh, "the operand is on {mesh}, but here the mesh is {}", self.mesh)
                    .help("pass it to `shard_map` as an argument"))
            }
            _ => Ok(x),
        }
    }
    /// Returns the state of a value with respect to one axis.
    fn state_of(x: &ArrayType, axis: Axis) -> VaryingState {
        if x.varying.contains(axis) {
            VaryingState::Varying
        } else if x.spec.unreduced_axes().contains(axis) {
            VaryingState::Unreduced
        } else if x.spec.reduced_axes().contains(axis) {
            VaryingState::Reduced
        } else {
            VaryingState::Invarying
        }
    }
    /// Returns the state of a value over all axes, or an error if it differs between axes.
    fn common_state(&self, name: &str, x: &ArrayType) -> Result<VaryingState, Fault> {
        let mut states = self.axes.iter().map(|a| (a, CollectiveGroup::state_of(x, a)));
        let Some((first, state)) = states.next() else { return Ok(VaryingState::Varying) };
        let Some((other, differs)) = states.find(|s| s.1 != state) else { return Ok(state) };
        Err(fault!(Varying, "{name} over {} needs one state over all of them, but the operand is {} over {first} and {} over {other}",
                self.axes,
                state.name(),
                differs.name())
            .help("cast it over the axis that differs first, or name the axes one by one"))
    }
    /// Returns an error if the value cannot be cast to varying over the axes.
    fn check_may_vary(&self, name: &str, x: &ArrayType) -> Result<(), Fault> {
        for axis in self.axes.iter() {
            let help = match CollectiveGroup::state_of(x, axis) {
                VaryingState::Unreduced => format!("sum it first: `x.psum({:?})`", axis.name()),
                VaryingState::Reduced => {
                    format!("cast it first: `x.pcast({:?}, PcastTo::Varying)`", axis.name())
                }
                _ => continue,
            };
            let state = CollectiveGroup::state_of(x, axis).name();
            return Err(varying_fault(format!(
                "{name} takes varying values, but the operand is {state} over {axis}"
            ))
            .help(help));
        }
        Ok(())
    }
    /// Returns the result type with this shape, these dimension entries and this state over `axes`.
    fn result_type(
        &self,
        x: &ArrayType,
        shape: Shape,
        dims: Vec<Axes>,
        state: VaryingState,
    ) -> Result<ArrayType, Fault> {
        for (d, (entry, n)) in dims.iter().zip(&*shape).enumerate() {
            let ways: usize = entry.iter().map(|a| self.mesh.extent(a)).product();
            if n % ways != 0 {
                return Err(fault!(
                    Sharding,
                    "dimension {d} of the result has size {n}, which {entry} does not divide into {ways} equal parts"
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
                VaryingState::Varying => v.extend_unique(&self.axes),
                VaryingState::Unreduced => u.extend_unique(&self.axes),
                VaryingState::Reduced => r.extend_unique(&self.axes),
                VaryingState::Invarying => {}
            }
        }
        let varying = self.mesh.in_order(&v);
        let spec = Spec::from_dims(dims).unreduced(u).reduced(r).in_order(&self.mesh);
        check_unreduced_dtype(spec, x.dtype)?;
        Ok(ArrayType { dtype: x.dtype, shape, mesh: Some(self.mesh.clone()), spec, varying })
    }
    /// Returns the type of `x` in another state over the axes.
    fn same_shape_type(&self, x: &ArrayType, state: VaryingState) -> Result<ArrayType, Fault> {
        self.result_type(x, x.shape.clone(), x.spec.dims().to_vec(), state)
    }
    /// Returns an error if a dimension is not below the rank.
    fn check_dim(what: &str, dim: usize, rank: usize) -> Result<(), Fault> {
        if dim < rank {
            return Ok(());
        }
        Err(fault!(Shape, "there is no {what} {dim} among {rank} dimensions")
            .help("dimensions are counted from 0"))
    }
    /// Updates shape and entries for a dimension that is split over the devices of the group.
    fn split_dim(
        &self,
        shape: &mut Shape,
        dims: &mut Vec<Axes>,
        dim: usize,
        tiled: bool,
    ) -> Result<(), Fault> {
        let n = self.size();
        CollectiveGroup::check_dim("dimension", dim, shape.rank())?;
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
                .highlight_dim(0, dim));
            }
            shape.sizes_mut()[dim] = size / n;
        } else {
            if size != n {
                return Err(shape_fault(format!(
                    "dimension {dim} must have size {n}, one index for each device, but its size is {size}"
                ))
                .help(format!("split it into blocks: `CollectiveDim::tiled({dim})`"))
                .highlight_dim(0, dim));
            }
            shape.sizes_mut().remove(dim);
            dims.remove(dim);
        }
        Ok(())
    }
    /// Updates shape and entries for the concatenation of all devices' blocks along `dim`.
    fn concat_dim(
        &self,
        shape: &mut Shape,
        dims: &mut Vec<Axes>,
        dim: usize,
        tiled: bool,
    ) -> Result<(), Fault> {
        let n = self.size();
        if tiled {
            CollectiveGroup::check_dim("dimension", dim, shape.rank())?;
            shape.sizes_mut()[dim] = shape[dim].saturating_mul(n);
        } else {
            CollectiveGroup::check_dim("new dimension", dim, shape.rank() + 1)?;
            shape.sizes_mut().insert(dim, n);
            dims.insert(dim, Axes::none());
        }
        Ok(())
    }
}

/// Returns the new index of dimension `d` after dimension `cut` was split.
///
/// A dimension that is split without `tiled` is removed. Returns `None` for `cut` itself.
fn dim_after_split(d: usize, cut: usize, tiled: bool) -> Option<usize> {
    if d == cut {
        None
    } else if tiled || d < cut {
        Some(d)
    } else {
        Some(d - 1)
    }
}

/// Returns the factors of a collective for the axes that are not manual.
///
/// `map` returns the result dimension of each operand dimension, or `None` for a dimension that is
/// split or concatenated and must be unsharded.
fn passthrough_factors(x: &ArrayType, result: &Shape, map: &dyn Fn(usize) -> Option<usize>) -> Factors {
    let mut f = Factors::default();
    let mut results: Vec<Option<usize>> = vec![None; result.rank()];
    let operand = x.shape.iter().enumerate().map(|(d, &n)| {
        let to = map(d).filter(|to| result.get(*to) == Some(&n));
        let l = f.add_loop(n);
        match to {
            Some(to) => results[to] = Some(l),
            None => f.loops[l].need_replication = true,
        }
        Dim::identity(l)
    });
    f.operands = vec![operand.collect()];
    f.results = vec![
        results
            .into_iter()
            .enumerate()
            .map(|(d, l)| Dim::identity(l.unwrap_or_else(|| f.add_loop(result[d]))))
            .collect(),
    ];
    f
}

/// Defines the rules that are the same for all collectives.
macro_rules! collective_common {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }
        collective_common!();
    };
    () => {
        fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
            Ok(self.types(operands)?.into_iter().map(|t| (t.dtype, t.shape)).collect())
        }
        fn linearity(&self) -> Linearity {
            Linearity::Joint
        }
        /// Returns no loop nests; the partitioner lowers [`Primitive::collective`] instead.
        fn loop_nests(&self, _operands: &[ArrayType], _results: &[ArrayType]) -> Vec<LoopNest> {
            Vec::new()
        }
    };
}
use collective_common;

/// Defines the transpose of a collective with one operand: a collective applied to the cotangent.
macro_rules! transpose_rule {
    (|$self:ident, $types:ident| $prim:expr) => {
        fn transpose(&$self, crate::ir::program::TransposeArgs { builder: b, types: $types, cotangents, .. }: crate::ir::program::TransposeArgs<'_>) -> Result<Tangents> {
            let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
            let prim: Option<Prim> = $prim;
            Ok(vec![Some(match prim {
                Some(prim) => b.emit1(prim, std::slice::from_ref(ct))?,
                None => ct.clone(),
            })])
        }
    };
}
use transpose_rule;
