//! Collectives: what the per-device programs of manual mode do together.
//!
//! Their types are functions on the sets of axes over which values vary. None has a sentence: the partitioner reads
//! [`Primitive::collective`] and makes reads and folds over all devices' blocks of it. In unchecked regions types say nothing of what
//! varies; there every value counts as varying, and the transpose of a sum is a sum.

use super::view::{arity, list, shape_fault};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::program::sentence::{Combine, Sentence};
use crate::program::{Batch, Batched};
use crate::program::{
    Builder, Collective, Dim, Factors, Linearity, Operand, Prim, Primitive, Rank, Tangents, Value,
};
use crate::sharding::{Spec, check_parts};
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// The devices that take part: those along `axes`, the first named outermost.
#[derive(Clone, Debug, PartialEq)]
pub struct Along {
    /// The mesh as the body sees it: its manual axes are marked as such.
    pub mesh: Mesh,
    /// The manual axes.
    pub axes: Axes,
    /// Whether the region tracks what varies; if not, everything may.
    pub checked: bool,
}

/// Combines the blocks of all devices element by element: `psum`, `pmax`, `pmin`.
#[derive(Clone, Debug, PartialEq)]
pub struct Preduce {
    /// Among whom.
    pub along: Along,
    /// How: [`Combine::Add`], [`Combine::Max`] or [`Combine::Min`].
    pub combine: Combine,
}

/// What a gathered value is to the types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// It counts as varying, although all have the same.
    Varying,
    /// It is the same on all devices.
    Invarying,
    /// It is the same, and its cotangent is unreduced.
    Reduced,
}

/// The blocks of all devices joined.
#[derive(Clone, Debug, PartialEq)]
pub struct AllGather {
    /// Among whom.
    pub along: Along,
    /// Along which dimension of the result.
    pub dim: usize,
    /// Joined along a dimension that is there, or stacked along a new one.
    pub tiled: bool,
    /// What the result is to the types.
    pub to: Gathered,
}

/// The sum over devices, of which each keeps its part.
#[derive(Clone, Debug, PartialEq)]
pub struct PsumScatter {
    /// Among whom.
    pub along: Along,
    /// Which dimension is cut.
    pub dim: usize,
    /// Cut into blocks, or along a dimension of the axes' size, which goes.
    pub tiled: bool,
}

/// The device's own part of a value that is the same on all: the transpose of a gather to invarying.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnPart {
    /// Among whom.
    pub along: Along,
    /// Which dimension is cut.
    pub dim: usize,
    /// Cut into blocks, or along a dimension of the axes' size, which goes.
    pub tiled: bool,
}

/// Part i along one dimension goes to device i, which joins what it gets along another.
#[derive(Clone, Debug, PartialEq)]
pub struct AllToAll {
    /// Among whom.
    pub along: Along,
    /// Which dimension is cut.
    pub split: usize,
    /// Along which dimension of the result the parts are joined.
    pub concat: usize,
    /// Cut into blocks and joined, or dimensions of the axes' size that go and come.
    pub tiled: bool,
}

/// Blocks from device to device; zeros where none arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct Ppermute {
    /// Among whom.
    pub along: Along,
    /// (source, target), as positions along the axes.
    pub pairs: Vec<(usize, usize)>,
}

/// The device's position along the axes.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisIndex {
    /// Along which.
    pub along: Along,
}

/// What a cast makes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// To varying, from invarying or reduced.
    Varying,
    /// To reduced, from invarying.
    Reduced,
    /// To unreduced, from varying.
    Unreduced,
}

/// The same blocks with another type: `pvary`, `pcast`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pcast {
    /// Over which axes.
    pub along: Along,
    /// To what.
    pub to: Cast,
}

/// How a value stands to manual axes, all of them alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

fn without(set: &Axes, axes: &Axes) -> Axes {
    set.iter().filter(|a| !axes.contains(*a)).collect()
}

impl Along {
    /// How many devices there are along the axes.
    pub fn size(&self) -> usize {
        self.axes.iter().map(|a| self.mesh.axis_size(a)).product()
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
                        "collectives stand in the body of a shard_map".to_string()
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
            let ways: usize = entry.iter().map(|a| self.mesh.axis_size(a)).product();
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
            without(&x.varying, &self.axes),
            without(spec.unreduced_axes(), &self.axes),
            without(spec.reduced_axes(), &self.axes),
        );
        if self.checked {
            match state {
                State::Varying => v = v.iter().chain(self.axes.iter()).collect(),
                State::Unreduced => u = u.iter().chain(self.axes.iter()).collect(),
                State::Reduced => r = r.iter().chain(self.axes.iter()).collect(),
                State::Invarying => {}
            }
        }
        let mut varying: Vec<Axis> = v.iter().collect();
        varying.sort_by_key(|a| self.mesh.find(*a));
        let spec = Spec::of(dims).unreduced(u).reduced(r).in_order(&self.mesh);
        check_parts(spec, x.dtype)?;
        Ok(ArrayType { dtype: x.dtype, shape, mesh: Some(self.mesh.clone()), spec, varying: varying.into() })
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
                    "dimension {dim} of size {size} does not come apart into {n} equal parts"
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
                .help(format!("cut it into blocks: `tiled({dim})`"))
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

/// What all collectives answer alike.
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
        fn rank(&self) -> Rank {
            Rank::Plain
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

macro_rules! linear_collective {
    () => {
        super::moves::linear_jvp!();
        fn cost(&self) -> f64 {
            0.0
        }
    };
}

/// The transpose of a collective of one operand: another one on the cotangent.
macro_rules! transposed_by {
    (|$self:ident, $types:ident| $prim:expr) => {
        fn transpose(
            &$self,
            b: &mut Builder,
            _operands: &[Option<Value>],
            $types: &[ArrayType],
            cotangents: &[Option<Value>],
        ) -> Result<Tangents> {
            let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
            let prim: Option<Prim> = $prim;
            Ok(vec![Some(match prim {
                Some(prim) => b.emit1(prim, std::slice::from_ref(ct))?,
                None => ct.clone(),
            })])
        }
    };
}

impl Preduce {
    fn cast(&self, to: Cast) -> Option<Prim> {
        Some(Arc::new(Pcast { along: self.along.clone(), to }))
    }
}

impl Primitive for Preduce {
    fn name(&self) -> &'static str {
        match self.combine {
            Combine::Max => "pmax",
            Combine::Min => "pmin",
            _ => "psum",
        }
    }
    collective_common!();
    fn params(&self) -> String {
        self.along.print()
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        if self.combine == Combine::Add {
            if !x.dtype.is_number() {
                let message = format!("numbers are added, but the operand is {}", x.dtype);
                return Err(Fault::new(ErrorKind::Dtype, message).help("convert it to int32 first"));
            }
            if self.along.state("psum", x)? == State::Reduced {
                self.along.may_vary("psum", x)?;
            }
        } else {
            if x.dtype == DType::Key {
                return Err(Fault::new(ErrorKind::Dtype, "keys have no order")
                    .help("the two words of a key are numbers: `key.data()`"));
            }
            self.along.may_vary(self.name(), x)?;
        }
        Ok(vec![self.along.same(x, State::Invarying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, Some)
    }
    fn jvp(
        &self,
        b: &mut Builder,
        _operands: &[Value],
        tangents: &[Option<Value>],
        _outputs: &[Value],
    ) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        if self.combine != Combine::Add {
            let name = self.name();
            let fault = Fault::new(ErrorKind::Other, "it has no derivative")
                .help(format!("if it only scales, stop the derivative first: `x.stop_gradient().{name}(…)`"));
            return Err(b.refuse(fault, name, std::slice::from_ref(t)));
        }
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), std::slice::from_ref(t))?)])
    }
    transposed_by!(|self, types| match self.along.state("psum", &types[0])? {
        // without types of what varies a sum of sums is what the transpose is
        _ if !self.along.checked => Some(Arc::new(self.clone())),
        State::Unreduced => self.cast(Cast::Reduced),
        _ => self.cast(Cast::Varying),
    });
    fn cost(&self) -> f64 {
        1.0
    }
    fn collective(&self) -> Option<Collective> {
        Some(Collective::Reduce { axes: self.along.axes.clone(), combine: self.combine })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.clone()))
    }
}

impl Primitive for AllGather {
    collective_common!("all_gather");
    fn params(&self) -> String {
        let to = match self.to {
            Gathered::Varying => "",
            Gathered::Invarying => ", to=invarying",
            Gathered::Reduced => ", to=reduced",
        };
        format!("{}, dim={}, tiled={}{to}", self.along.print(), self.dim, self.tiled)
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        self.along.may_vary(self.name(), x)?;
        if self.to == Gathered::Reduced
            && self.along.checked
            && let Some(axis) = self.along.axes.iter().find(|a| !x.varying.contains(*a))
        {
            return Err(vma(format!(
                "all_gather to reduced takes varying values, but the operand does not vary over {axis}"
            ))
            .help(format!("cast it first: `x.pcast({:?}, Cast::Varying)`", axis.name())));
        }
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.along.join(&mut shape, &mut dims, self.dim, self.tiled)?;
        let state = match self.to {
            Gathered::Varying => State::Varying,
            Gathered::Invarying => State::Invarying,
            Gathered::Reduced => State::Reduced,
        };
        Ok(vec![self.along.result(x, shape, dims, state)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let at = |d: usize| if self.tiled || d < self.dim { d } else { d + 1 };
        passing(&operands[0], &results[0].1, |d| Some(at(d)).filter(|_| !(self.tiled && d == self.dim)))
    }
    linear_collective!();
    transposed_by!(|self, _types| {
        let (along, dim, tiled) = (self.along.clone(), self.dim, self.tiled);
        Some(if self.to == Gathered::Invarying && along.checked {
            Arc::new(OwnPart { along, dim, tiled })
        } else {
            Arc::new(PsumScatter { along, dim, tiled })
        })
    });
    fn collective(&self) -> Option<Collective> {
        let (axes, dim, tiled) = (self.along.axes.clone(), self.dim, self.tiled);
        Some(Collective::AllGather { axes, dim, tiled })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(AllGather { dim: self.dim + 1, ..self.clone() }))
    }
}

impl Primitive for PsumScatter {
    collective_common!("psum_scatter");
    fn params(&self) -> String {
        format!("{}, dim={}, tiled={}", self.along.print(), self.dim, self.tiled)
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        if self.along.state(self.name(), x)? == State::Reduced {
            self.along.may_vary(self.name(), x)?;
        }
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.along.cut(&mut shape, &mut dims, self.dim, self.tiled)?;
        if !x.dtype.is_number() {
            let message = format!("numbers are added, but the operand is {}", x.dtype);
            return Err(Fault::new(ErrorKind::Dtype, message).help("convert it to int32 first"));
        }
        Ok(vec![self.along.result(x, shape, dims, State::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, |d| after_cut(d, self.dim, self.tiled))
    }
    super::moves::linear_jvp!();
    fn cost(&self) -> f64 {
        1.0
    }
    transposed_by!(|self, types| {
        let to = match self.along.state(self.name(), &types[0])? {
            State::Unreduced => Gathered::Reduced,
            _ => Gathered::Varying,
        };
        let (along, dim, tiled) = (self.along.clone(), self.dim, self.tiled);
        Some(Arc::new(AllGather { along, dim, tiled, to }))
    });
    fn collective(&self) -> Option<Collective> {
        let (axes, dim, tiled) = (self.along.axes.clone(), self.dim, self.tiled);
        Some(Collective::ReduceScatter { axes, dim, tiled })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(PsumScatter { dim: self.dim + 1, ..self.clone() }))
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

impl Primitive for OwnPart {
    collective_common!("own_part");
    fn params(&self) -> String {
        format!("{}, dim={}, tiled={}", self.along.print(), self.dim, self.tiled)
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        let state = self.along.state(self.name(), x)?;
        if self.along.checked && state != State::Invarying && !self.along.axes.is_empty() {
            return Err(vma(format!(
                "own_part takes a value that is the same on all devices, but the operand is {} over {}",
                state.name(),
                self.along.axes
            )));
        }
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.along.cut(&mut shape, &mut dims, self.dim, self.tiled)?;
        Ok(vec![self.along.result(x, shape, dims, State::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, |d| after_cut(d, self.dim, self.tiled))
    }
    linear_collective!();
    transposed_by!(|self, _types| {
        let (along, dim, tiled) = (self.along.clone(), self.dim, self.tiled);
        Some(Arc::new(AllGather { along, dim, tiled, to: Gathered::Invarying }))
    });
    fn collective(&self) -> Option<Collective> {
        let (axes, dim, tiled) = (self.along.axes.clone(), self.dim, self.tiled);
        Some(Collective::OwnPart { axes, dim, tiled })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(OwnPart { dim: self.dim + 1, ..self.clone() }))
    }
}

impl Primitive for AllToAll {
    collective_common!("all_to_all");
    fn params(&self) -> String {
        let (split, concat) = (self.split, self.concat);
        format!("{}, split={split}, concat={concat}, tiled={}", self.along.print(), self.tiled)
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        self.along.may_vary(self.name(), x)?;
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.along.cut(&mut shape, &mut dims, self.split, self.tiled)?;
        self.along.join(&mut shape, &mut dims, self.concat, self.tiled)?;
        Ok(vec![self.along.result(x, shape, dims, State::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, |d| {
            let d = after_cut(d, self.split, self.tiled)?;
            match self.tiled {
                true => Some(d).filter(|d| *d != self.concat),
                false => Some(if d < self.concat { d } else { d + 1 }),
            }
        })
    }
    linear_collective!();
    transposed_by!(|self, _types| {
        let (split, concat) = (self.concat, self.split);
        Some(Arc::new(AllToAll { split, concat, ..self.clone() }))
    });
    fn collective(&self) -> Option<Collective> {
        let AllToAll { split, concat, tiled, .. } = *self;
        Some(Collective::AllToAll { axes: self.along.axes.clone(), split, concat, tiled })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        let (split, concat) = (self.split + 1, self.concat + 1);
        Batched::of(Arc::new(AllToAll { split, concat, ..self.clone() }))
    }
}

impl Primitive for Ppermute {
    collective_common!("ppermute");
    fn params(&self) -> String {
        let pairs: Vec<_> = self.pairs.iter().map(|(s, t)| format!("{s}->{t}")).collect();
        format!("{}, pairs={}", self.along.print(), list(&pairs))
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        let n = self.along.size();
        for (i, &(source, target)) in self.pairs.iter().enumerate() {
            if let Some(p) = [source, target].into_iter().find(|p| *p >= n) {
                let message = format!("there is no device {p} along {}, which has {n}", self.along.axes);
                return Err(Fault::new(ErrorKind::Mesh, message)
                    .help(format!("they are counted along the axes, from 0 to {}", n - 1)));
            }
            let twice = |what, p| {
                let message = format!("device {p} is a {what} twice");
                Err(Fault::new(ErrorKind::Mesh, message)
                    .help("each device sends once and receives once at most"))
            };
            if self.pairs[..i].iter().any(|p| p.0 == source) {
                return twice("source", source);
            }
            if self.pairs[..i].iter().any(|p| p.1 == target) {
                return twice("target", target);
            }
        }
        self.along.may_vary(self.name(), x)?;
        Ok(vec![self.along.same(x, State::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, Some)
    }
    linear_collective!();
    transposed_by!(|self, _types| {
        let pairs = self.pairs.iter().map(|&(s, t)| (t, s)).collect();
        Some(Arc::new(Ppermute { pairs, along: self.along.clone() }))
    });
    fn collective(&self) -> Option<Collective> {
        Some(Collective::Permute { axes: self.along.axes.clone(), pairs: self.pairs.clone() })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.clone()))
    }
}

impl Primitive for AxisIndex {
    collective_common!("axis_index");
    fn params(&self) -> String {
        self.along.print()
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        arity(self.name(), operands, 0)?;
        self.along.check()?;
        Ok(vec![self.along.same(&DType::I32.of([]), State::Varying)?])
    }
    fn factors(&self, _operands: &[ArrayType], _results: &[(DType, Shape)]) -> Factors {
        Factors { results: vec![Vec::new()], ..Factors::default() }
    }
    fn jvp(
        &self,
        _b: &mut Builder,
        _operands: &[Value],
        _tangents: &[Option<Value>],
        _outputs: &[Value],
    ) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(
        &self,
        _b: &mut Builder,
        _operands: &[Option<Value>],
        _types: &[ArrayType],
        _cotangents: &[Option<Value>],
    ) -> Result<Tangents> {
        Ok(Vec::new())
    }
    fn cost(&self) -> f64 {
        0.0
    }
    fn collective(&self) -> Option<Collective> {
        Some(Collective::AxisIndex { axes: self.along.axes.clone() })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.clone()))
    }
}

impl Primitive for Pcast {
    fn name(&self) -> &'static str {
        match self.to {
            Cast::Varying => "pvary",
            _ => "pcast",
        }
    }
    collective_common!();
    fn params(&self) -> String {
        let to = match self.to {
            Cast::Varying => "",
            Cast::Reduced => ", to=reduced",
            Cast::Unreduced => ", to=unreduced",
        };
        format!("{}{to}", self.along.print())
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        if !self.along.checked || self.along.axes.is_empty() {
            return Ok(vec![x.clone()]);
        }
        let from = self.along.state(self.name(), x)?;
        let to = match (from, self.to) {
            (State::Invarying | State::Reduced, Cast::Varying) => State::Varying,
            (State::Invarying, Cast::Reduced) => State::Reduced,
            (State::Varying, Cast::Unreduced) => State::Unreduced,
            (from, to) => {
                let to = match to {
                    Cast::Varying => "varying",
                    Cast::Reduced => "reduced",
                    Cast::Unreduced => "unreduced",
                };
                let axes = &self.along.axes;
                return Err(vma(format!("there is no cast from {} to {to} over {axes}", from.name()))
                    .help("casts go from invarying to varying or reduced, from reduced to varying, from varying to unreduced"));
            }
        };
        Ok(vec![self.along.same(x, to)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, Some)
    }
    linear_collective!();
    transposed_by!(|self, types| {
        let along = self.along.clone();
        let cast = |to| Some(Arc::new(Pcast { along: along.clone(), to }) as Prim);
        match (self.along.state(self.name(), &types[0])?, self.to) {
            _ if !self.along.checked => None,
            (State::Reduced, Cast::Varying) => cast(Cast::Unreduced),
            (_, Cast::Unreduced) => cast(Cast::Varying),
            _ => Some(Arc::new(Preduce { along, combine: Combine::Add })),
        }
    });
    fn collective(&self) -> Option<Collective> {
        Some(Collective::Cast { axes: self.along.axes.as_slice().to_vec() })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.clone()))
    }
}

/// An instance of each, with types of operands that it takes.
pub(super) mod examples {
    use super::*;
    use crate::program::Prim;

    type Example = (Prim, Vec<ArrayType>);
    fn of(prim: impl Primitive, operands: impl IntoIterator<Item = ArrayType>) -> Example {
        (Arc::new(prim), operands.into_iter().collect())
    }

    fn along() -> Along {
        let mesh = Mesh::with_types([("X", 2, AxisType::Manual)]).expect("one axis of size 2 makes a mesh");
        Along { mesh, axes: "X".into(), checked: true }
    }
    fn blocks(varying: bool) -> [ArrayType; 1] {
        let along = along();
        let varying = if varying { along.axes } else { Axes::none() };
        [ArrayType { mesh: Some(along.mesh), varying, ..DType::F32.of([2, 4]) }]
    }
    fn reduce(combine: Combine) -> Example {
        of(Preduce { along: along(), combine }, blocks(true))
    }
    pub(in crate::ops) fn psum() -> Example {
        reduce(Combine::Add)
    }
    pub(in crate::ops) fn pmax() -> Example {
        reduce(Combine::Max)
    }
    pub(in crate::ops) fn pmin() -> Example {
        reduce(Combine::Min)
    }
    pub(in crate::ops) fn all_gather() -> Example {
        of(AllGather { along: along(), dim: 1, tiled: true, to: Gathered::Varying }, blocks(true))
    }
    pub(in crate::ops) fn psum_scatter() -> Example {
        of(PsumScatter { along: along(), dim: 1, tiled: true }, blocks(true))
    }
    pub(in crate::ops) fn own_part() -> Example {
        of(OwnPart { along: along(), dim: 0, tiled: false }, blocks(false))
    }
    pub(in crate::ops) fn all_to_all() -> Example {
        of(AllToAll { along: along(), split: 1, concat: 0, tiled: true }, blocks(true))
    }
    pub(in crate::ops) fn ppermute() -> Example {
        of(Ppermute { along: along(), pairs: vec![(0, 1), (1, 0)] }, blocks(true))
    }
    pub(in crate::ops) fn axis_index() -> Example {
        of(AxisIndex { along: along() }, [])
    }
    pub(in crate::ops) fn pvary() -> Example {
        of(Pcast { along: along(), to: Cast::Varying }, blocks(false))
    }
    pub(in crate::ops) fn pcast() -> Example {
        of(Pcast { along: along(), to: Cast::Unreduced }, blocks(true))
    }
}
