//! Logical axes: names of a model's dimensions, and the mesh axes over which each is sharded.

use super::Mesh;
use crate::core::axes::{Axes, Axis, AxisType, Spec};
use crate::core::diagnostic::{Error, Fault, Result, SourceLocation};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// The logical axes of a mesh, each with the mesh axes over which it is sharded, sorted by name.
#[derive(Clone)]
pub(super) struct LogicalAxes {
    /// The mesh axes over which values are sharded.
    compute: Vec<(Axis, Axes)>,
    /// The mesh axes over which parameters are stored, where they differ.
    storage: Vec<(Axis, Axes)>,
    /// Resolves a spec.
    ///
    /// The code is reached through a pointer, so that a program without logical axes, such as the
    /// playground, does not contain it.
    resolve: fn(&Mesh, &LogicalAxes, Spec, AxisRules) -> Result<Spec, Fault>,
    /// Writes the rules after the axes of a printed mesh.
    pub(super) write: fn(&LogicalAxes, &mut fmt::Formatter<'_>) -> fmt::Result,
}

impl PartialEq for LogicalAxes {
    fn eq(&self, other: &LogicalAxes) -> bool {
        self.compute == other.compute && self.storage == other.storage
    }
}
impl Eq for LogicalAxes {}

/// Returns the axes of the rule for a name.
fn find_rule(rules: &[(Axis, Axes)], name: Axis) -> Option<&Axes> {
    rules.iter().find(|rule| rule.0 == name).map(|rule| &rule.1)
}

/// Replaces the rules for these names, or adds them.
fn extend_rules(rules: &mut Vec<(Axis, Axes)>, more: Vec<(Axis, Axes)>) {
    rules.retain(|rule| more.iter().all(|new| new.0 != rule.0));
    rules.extend(more);
    rules.sort_by_key(|rule| rule.0);
}

/// The rules by which a logical axis is resolved.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum AxisRules {
    /// Those of values.
    Compute,
    /// Those of stored parameters.
    Storage,
}

/// A spec in logical axes, split by the types of the mesh axes.
pub(crate) struct SplitSpec {
    /// The sharding over explicit axes: part of the type.
    pub(crate) explicit: Spec,
    /// The sharding over auto axes, for a constraint; `None` if the mesh has no auto axes.
    pub(crate) auto: Option<Spec>,
}

/// A mesh axis that a spec names, directly or through a logical axis.
struct NamedAxis {
    /// The mesh axis.
    axis: Axis,
    /// The name in the spec.
    name: Axis,
    /// The index of the entry: of a dimension, or one of the two sets.
    entry: usize,
}

/// # Logical axes
///
/// A logical axis is the name of a dimension of a model, such as `batch`, `heads` or `embed`. A
/// mesh says over which of its axes each logical axis is sharded, and every spec that meets the
/// mesh may use these names. The model then names none of the mesh's axes, and runs under any
/// layout.
impl Mesh {
    /// Returns this mesh with logical axes: names that specs may use instead of its axes.
    ///
    /// A rule is a name with the mesh axes over which the dimensions of that name are sharded: one
    /// axis, several, or none, which is `()`. A rule for a name that has one already replaces it,
    /// so that a layout can be derived from another one.
    ///
    /// A spec may use the names wherever it meets the mesh, and follows the type of each mesh axis:
    ///
    /// | the name stands for | `put`, creation | `reshard`, `…_to`, `out_sharding` | `constrain` |
    /// |---|---|---|---|
    /// | an explicit axis | the type | the type | an assertion about the type |
    /// | an auto axis | the placement | a constraint of the result | a constraint |
    /// | no axis | unsharded | unsharded | unsharded |
    ///
    /// The same source is therefore a program with explicit and one with auto axes. Over auto axes,
    /// a spec that uses names also says which dimensions are unsharded. A spec without names is
    /// unchanged: over auto axes, `…_to` rejects it. Types contain mesh axes only.
    ///
    /// Meshes with different logical axes are different meshes. A compiled function is not reused
    /// for another one, and the operands of an operation must agree.
    ///
    /// # Errors
    /// Returns an error if a name is an axis of the mesh, or is listed twice, or if a rule names an
    /// axis that the mesh does not have, or one axis twice.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let grid = Mesh::new([("data", 2), ("model", 4)])?
    ///     .with_logical_axes([("batch", "data"), ("mlp", "model")])?
    ///     .with_logical_axes([("embed", ())])?;
    /// assert_eq!(
    ///     grid.to_string(),
    ///     "Mesh(data: 2, model: 4; batch = data, embed = _, mlp = model)"
    /// );
    /// let x = Array::ones([8, 16]).put(&grid, p!["batch", "embed"]);
    /// let w = Array::ones([16, 32]).put(&grid, p!["embed", "mlp"]);
    /// assert_eq!(type_of(x.dot_to(&w, p!["batch", "mlp"])), "float32[8@data,32@model]");
    ///
    /// // the same program under another layout, and with auto axes
    /// let line = Mesh::auto([("x", 8)])?
    ///     .with_logical_axes([("batch", "x")])?
    ///     .with_logical_axes([("embed", ()), ("mlp", ())])?;
    /// let (x, w) = (x.put(&line, p!["batch", "embed"]), w.put(&line, p!["embed", "mlp"]));
    /// let y = x.dot_to(&w, p!["batch", "mlp"]);
    /// assert_eq!(y.sharding()?.map(|s| s.spec), Some(p!["x", _]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("logical_axis_rules", "axis_rules", "ResourceMapping", "with_logical_constraint"))]
    #[track_caller]
    pub fn with_logical_axes<N: Into<Axis>, A: Into<Axes>>(
        &self,
        rules: impl IntoIterator<Item = (N, A)>,
    ) -> Result<Mesh> {
        let rules = rules.into_iter().map(|(name, axes)| (name.into(), axes.into())).collect();
        self.with_rules(rules, AxisRules::Compute, Location::caller())
    }
    /// Returns this mesh with other axes for the storage of parameters: FSDP, ZeRO.
    ///
    /// A rule is a logical axis with the mesh axes over which stored parameters are sharded in its
    /// dimensions. Logical axes without such a rule are stored as they are used.
    /// [`Array::put_stored`](crate::Array::put_stored) places a parameter in storage,
    /// [`Array::to_compute`](crate::Array::to_compute) gathers it for use, and its gradient arrives
    /// in storage.
    ///
    /// # Errors
    /// Returns an error if a name is not a logical axis of the mesh, or is listed twice, or if a
    /// rule names an axis that the mesh does not have, or one axis twice.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let fsdp = Mesh::new([("x", 8)])?
    ///     .with_logical_axes([("batch", "x")])?
    ///     .with_logical_axes([("embed", ()), ("mlp", ())])?
    ///     .with_storage_axes([("embed", "x")])?;
    /// assert_eq!(
    ///     fsdp.to_string(),
    ///     "Mesh(x: 8; batch = x, embed = _ stored x, mlp = _)"
    /// );
    /// let w = Array::ones([16, 32]).put_stored(&fsdp, p!["embed", "mlp"]);
    /// assert_eq!(type_of(&w), "float32[16@x,32]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("fsdp", "zero", "param_mapping", "parameter_axis_mapping"))]
    #[track_caller]
    pub fn with_storage_axes<N: Into<Axis>, A: Into<Axes>>(
        &self,
        rules: impl IntoIterator<Item = (N, A)>,
    ) -> Result<Mesh> {
        let rules = rules.into_iter().map(|(name, axes)| (name.into(), axes.into())).collect();
        self.with_rules(rules, AxisRules::Storage, Location::caller())
    }
    fn with_rules(&self, rules: Vec<(Axis, Axes)>, of: AxisRules, location: SourceLocation) -> Result<Mesh> {
        let op = if of == AxisRules::Compute { "with_logical_axes" } else { "with_storage_axes" };
        self.try_with_rules(rules, of).map_err(|fault| Error::new(fault, op, Vec::new(), Some(location)))
    }
    fn try_with_rules(&self, rules: Vec<(Axis, Axes)>, of: AxisRules) -> Result<Mesh, Fault> {
        let (resolve, write) = (resolve_spec as _, write_rules as _);
        let none = LogicalAxes { compute: Vec::new(), storage: Vec::new(), resolve, write };
        let mut all = self.0.logical.as_deref().cloned().unwrap_or(none);
        for (i, (name, axes)) in rules.iter().enumerate() {
            super::check_name(*name, "a logical axis")?;
            if self.find(*name).is_some() {
                return Err(fault!(
                    Mesh,
                    "{name} is an axis of the mesh {self}: a logical axis cannot have its name"
                )
                .help("give the logical axis another name: specs use both kinds of names"));
            }
            if rules[..i].iter().any(|rule| rule.0 == *name) {
                return Err(
                    fault!(Mesh, "the logical axis {name} is listed twice").help("list each name once")
                );
            }
            if of == AxisRules::Storage && find_rule(&all.compute, *name).is_none() {
                return Err(self.unknown_logical(*name));
            }
            for (k, axis) in axes.iter().enumerate() {
                if self.find(axis).is_none() {
                    let fault = self.unknown_axis(axis);
                    return Err(Fault {
                        message: format!("the logical axis {name}: {}", fault.message),
                        ..fault
                    });
                }
                if axes.as_slice()[..k].contains(&axis) {
                    return Err(fault!(Mesh, "the logical axis {name} names the axis {axis} twice")
                        .help("name each axis once"));
                }
            }
        }
        match of {
            AxisRules::Compute => extend_rules(&mut all.compute, rules),
            AxisRules::Storage => extend_rules(&mut all.storage, rules),
        }
        let logical = (!all.compute.is_empty()).then(|| Box::new(all));
        Ok(Mesh(Arc::new(super::MeshData { logical, ..(*self.0).clone() })))
    }
    /// Returns the logical axes with the mesh axes over which they are sharded, sorted by name.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("x", 8)])?.with_logical_axes([("seq", "x"), ("batch", "x")])?;
    /// let names: Vec<Axis> = mesh.logical_axes().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["batch".into(), "seq".into()]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn logical_axes(&self) -> impl Iterator<Item = (Axis, &Axes)> {
        self.0.logical.iter().flat_map(|l| l.compute.iter().map(|(name, axes)| (*name, axes)))
    }
    /// Returns a spec with its logical axes replaced by the mesh axes over which they are sharded.
    ///
    /// # Errors
    /// Returns an error if a name of the spec is neither an axis of the mesh nor a logical axis, or
    /// if an axis would be named twice.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("data", 2), ("model", 4)])?
    ///     .with_logical_axes([("batch", "data"), ("seq", "model"), ("heads", "model")])?
    ///     .with_logical_axes([("tokens", ("data", "model"))])?;
    /// assert_eq!(mesh.resolve(p!["batch", _, "heads"])?, p!["data", _, "model"]);
    /// assert_eq!(mesh.resolve(p!["tokens"])?, p![("data", "model")]);
    /// let error = mesh.resolve(p!["batch", "seq", "heads"]).unwrap_err().to_string();
    /// assert!(error.contains(r#""seq" and "heads" are both sharded over model"#));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn resolve(&self, spec: Spec) -> Result<Spec> {
        let location = Location::caller();
        self.try_resolve(spec, AxisRules::Compute)
            .map_err(|fault| Error::new(fault, "resolve", Vec::new(), Some(location)))
    }
    /// Returns a spec with its logical axes replaced by the mesh axes over which they are stored.
    ///
    /// # Errors
    /// Returns the errors of [`Mesh::resolve`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("x", 8)])?
    ///     .with_logical_axes([("embed", ())])?
    ///     .with_storage_axes([("embed", "x")])?;
    /// assert_eq!(mesh.resolve(p![_, "embed"])?, p![_, _]);
    /// assert_eq!(mesh.resolve_stored(p![_, "embed"])?, p![_, "x"]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn resolve_stored(&self, spec: Spec) -> Result<Spec> {
        let location = Location::caller();
        self.try_resolve(spec, AxisRules::Storage)
            .map_err(|fault| Error::new(fault, "resolve_stored", Vec::new(), Some(location)))
    }
    /// Returns true if the spec uses a logical axis, or a name that is unknown, on a mesh that has
    /// logical axes.
    pub(crate) fn uses_logical(&self, spec: Spec) -> bool {
        self.0.logical.is_some() && spec.all_axes().any(|name| !self.is_axis(name))
    }
    /// Returns true for an axis of the mesh, and for `"?"`.
    fn is_axis(&self, name: Axis) -> bool {
        self.find(name).is_some() || name.name() == Spec::OPEN
    }
    /// Replaces the logical axes of a spec.
    /// A mesh without logical axes leaves specs as they are.
    pub(crate) fn try_resolve(&self, spec: Spec, rules: AxisRules) -> Result<Spec, Fault> {
        match self.0.logical.as_deref() {
            Some(logical) if self.uses_logical(spec) => (logical.resolve)(self, logical, spec, rules),
            _ => Ok(spec),
        }
    }
    /// Splits a spec in logical axes by the types of the mesh axes.
    ///
    /// An auto axis that the spec names directly stays in the part for explicit axes, which is
    /// therefore rejected.
    pub(crate) fn split_by_type(&self, spec: Spec) -> Result<SplitSpec, Fault> {
        let resolved = self.try_resolve(spec, AxisRules::Compute)?;
        let is_auto = |a: Axis| self.axis_type(a) == Some(AxisType::Auto);
        let explicit = resolved.filter_axes(|a| !is_auto(a) || spec.all_axes().any(|name| name == a));
        let auto = self.axis_types().contains(&AxisType::Auto);
        let auto = auto.then(|| Spec::from_dims(resolved.filter_axes(is_auto).dims().to_vec()));
        Ok(SplitSpec { explicit, auto })
    }
    /// Returns the fault of a spec that names one mesh axis twice, at least once by a logical axis.
    fn repeated(&self, spec: Spec, named: &[NamedAxis], rules: AxisRules) -> Option<Fault> {
        let first = |k: usize| named[..k].iter().find(|n| n.axis == named[k].axis);
        let logical = |n: &NamedAxis| n.name != n.axis;
        let mut repeats = (0..named.len()).filter_map(|k| Some((first(k)?, &named[k])));
        let (a, b) = repeats.find(|(a, b)| logical(a) || logical(b))?;
        let (axis, is) = (b.axis, if rules == AxisRules::Storage { "stored" } else { "sharded" });
        let why = match (logical(a), logical(b)) {
            (true, true) if a.name == b.name => format!("\"{}\" is {is} over it", a.name),
            (true, true) => format!("\"{}\" and \"{}\" are both {is} over {axis}", a.name, b.name),
            (true, false) => format!("\"{}\" is {is} over it", a.name),
            _ => format!("\"{}\" is {is} over it", b.name),
        };
        let drop = |entry: usize, names: &Axes| -> Axes {
            names.iter().filter(|name| entry != b.entry || *name != b.name).collect()
        };
        let rank = spec.dims().len();
        let dims = spec.dims().iter().enumerate().map(|(d, names)| drop(d, names)).collect();
        let without = Spec::from_dims(dims)
            .unreduced(drop(rank, spec.unreduced_axes()))
            .reduced(drop(rank + 1, spec.reduced_axes()));
        let fault = fault!(Mesh, "the spec {spec} names the axis {axis} of {self} twice: {why}")
            .help(format!("name one of them only: `{without}`"));
        let other = if logical(b) { b.name } else { a.name };
        let setter = if rules == AxisRules::Storage { "with_storage_axes" } else { "with_logical_axes" };
        Some(
            fault.help(format!(
                "or shard {other} over other axes or none: `mesh.{setter}([(\"{other}\", ())])`"
            )),
        )
    }
    /// Returns the fault for a name that is neither an axis nor a logical axis.
    fn unknown_logical(&self, name: Axis) -> Fault {
        let names = || self.0.names.iter().copied().chain(self.logical_axes().map(|(name, _)| name));
        let near = names()
            .filter(|known| is_similar(known.name(), name.name()))
            .min_by_key(|known| known.name().len().abs_diff(name.name().len()));
        let fault = fault!(Mesh, "{name} is neither an axis nor a logical axis of the mesh {self}");
        let fault = match near {
            Some(near) => fault.help(format!("write {near}")),
            None => fault,
        };
        fault.help(format!(
            "say over which axes it is sharded: `mesh.with_logical_axes([(\"{name}\", ())])`, for none"
        ))
    }
    /// Adds the user's spec to a fault about the mesh axes that it resolves to.
    pub(crate) fn name_fault(&self, fault: Fault, spec: Spec) -> Fault {
        match self.try_resolve(spec, AxisRules::Compute) {
            Ok(resolved) if resolved != spec => {
                Fault { message: format!("{} ({spec} is {resolved} here)", fault.message), ..fault }
            }
            _ => fault,
        }
    }
    /// Returns the mesh axes of a logical axis, as text for a help, if the mesh has it.
    pub(super) fn describe_logical(&self, name: &str) -> Option<String> {
        let (_, axes) = self.logical_axes().find(|(known, _)| known.name() == name)?;
        Some(match axes.is_empty() {
            true => format!("{name} is a logical axis of the mesh, which is not sharded"),
            false => format!("{name} is a logical axis of the mesh: write {}", axes.quoted()),
        })
    }
    /// Returns true if a logical axis is sharded over this mesh axis, outside of storage.
    pub(crate) fn is_used_by_logical(&self, axis: Axis) -> bool {
        self.logical_axes().any(|(_, axes)| axes.contains(axis))
    }
}

/// Replaces the logical axes of a spec.
fn resolve_spec(mesh: &Mesh, logical: &LogicalAxes, spec: Spec, rules: AxisRules) -> Result<Spec, Fault> {
    let mut named: Vec<NamedAxis> = Vec::new();
    let mut expand = |entry: usize, names: &Axes| -> Result<Axes, Fault> {
        let before = named.len();
        for name in names {
            if mesh.is_axis(name) {
                named.push(NamedAxis { axis: name, name, entry });
                continue;
            }
            let stored = find_rule(&logical.storage, name).filter(|_| rules == AxisRules::Storage);
            let axes = stored.or_else(|| find_rule(&logical.compute, name));
            let axes = axes.ok_or_else(|| mesh.unknown_logical(name))?;
            named.extend(axes.iter().map(|axis| NamedAxis { axis, name, entry }));
        }
        Ok(named[before..].iter().map(|n| n.axis).collect())
    };
    let rank = spec.dims().len();
    let dims = spec.dims().iter().enumerate().map(|(d, names)| expand(d, names));
    let dims = dims.collect::<Result<Vec<Axes>, Fault>>()?;
    let unreduced = expand(rank, spec.unreduced_axes())?;
    let reduced = expand(rank + 1, spec.reduced_axes())?;
    match mesh.repeated(spec, &named, rules) {
        Some(fault) => Err(fault),
        None => Ok(Spec::from_dims(dims).unreduced(unreduced).reduced(reduced)),
    }
}

/// Writes the rules after the axes of a printed mesh.
fn write_rules(logical: &LogicalAxes, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let show = |axes: &Axes| if axes.is_empty() { "_".into() } else { axes.to_string() };
    for (i, (name, axes)) in logical.compute.iter().enumerate() {
        let separator = if i == 0 { "; " } else { ", " };
        write!(f, "{separator}{name} = {}", show(axes))?;
        if let Some(stored) = find_rule(&logical.storage, *name).filter(|stored| *stored != axes) {
            write!(f, " stored {}", show(stored))?;
        }
    }
    Ok(())
}

/// Returns true if two names differ in case, or by at most one character in three.
fn is_similar(a: &str, b: &str) -> bool {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let b: Vec<char> = b.chars().collect();
    // the edit distances between a prefix of `a` and each prefix of `b`
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()] * 3 <= a.chars().count().max(b.len())
}
