//! The boundary of a manual region: the blocks of arguments, the types of results, and the checks.

use crate::api::trace::CaptureTypeFn;
use crate::api::tree::{Path, Tree};
use crate::core::mesh::AxisRules;
use crate::core::sharding::{check_unreduced_dtype, nearest_multiples};
use crate::core::{
    ArrayType, Axes, Axis, AxisType, Error, ErrorKind, Fault, Mesh, Result, Shape, Spec,
    diagnostic::pluralize,
};

/// The boundary of one manual region: its meshes outside and inside, and its manual axes.
#[derive(Clone)]
pub(super) struct Boundary {
    outer: Mesh,
    inner: Mesh,
    axes: Axes,
    checked: bool,
}

/// The types of a region's results, as the surrounding program sees them.
pub(super) struct RegionResults {
    pub(super) types: Vec<ArrayType>,
}

fn fault(kind: ErrorKind, message: impl Into<String>) -> Fault {
    Fault::new(kind, message)
}

impl Boundary {
    /// Creates the region over `axes`. It is an error if an axis is not in the mesh or is manual
    /// already.
    pub(super) fn new(mesh: &Mesh, axes: &Axes, checked: bool) -> Result<Boundary, Fault> {
        for (i, axis) in axes.iter().enumerate() {
            match mesh.axis_type(axis) {
                None => return Err(mesh.unknown_axis(axis)),
                Some(AxisType::Manual) => {
                    return Err(fault!(Mesh, "the axis {axis} is manual here already")
                        .help("name the axes of the inner region only: `.over(…)`"));
                }
                Some(_) if axes.as_slice()[..i].contains(&axis) => {
                    return Err(fault!(Mesh, "the axis {axis} is named twice").help("name each axis once"));
                }
                Some(_) => {}
            }
        }
        if axes.is_empty() {
            let message = "there is no axis left to be manual over".to_string();
            return Err(fault(ErrorKind::Mesh, message)
                .help("all axes are manual here already: call the closure itself"));
        }
        let axes = mesh.in_order(axes);
        let inside = mesh
            .with_axis_types(axes.clone(), AxisType::Manual)
            .map_err(|_| fault(ErrorKind::Mesh, "no such axis"))?;
        Ok(Boundary { outer: mesh.clone(), inner: inside, axes, checked })
    }
    /// Returns the mesh as the body sees it.
    pub(super) fn inner_mesh(&self) -> &Mesh {
        &self.inner
    }
    /// Returns the axes that become manual, in mesh order.
    pub(super) fn axes(&self) -> &Axes {
        &self.axes
    }
    /// Returns true if types track varying axes.
    pub(super) fn checked(&self) -> bool {
        self.checked
    }
    fn num_shards(&self, axes: &[Axis]) -> usize {
        axes.iter().map(|a| self.outer.extent(*a)).product()
    }
    /// Returns true if the region is manual over every axis, and all of them are explicit outside.
    fn is_fully_explicit(&self) -> bool {
        self.outer.axis_types().iter().all(|t| *t == AxisType::Explicit)
            && self.axes.len() == self.outer.axis_names().len()
    }

    /// Checks that a spec at the boundary names only axes that become manual.
    fn check_names(&self, spec: Spec, what: &str, path: &Path) -> Result<(), Fault> {
        let place = if path.parts().is_empty() { what.to_string() } else { format!("{what} of `{path}`") };
        for axis in spec.all_axes() {
            if self.outer.find(axis).is_none() {
                return Err(self.outer.unknown_axis(axis));
            }
            if !self.axes.contains(axis) {
                return Err(fault!(
                    Mesh,
                    "{place} names {axis}, which is not manual here: the region is manual over {}",
                    self.axes
                )
                .help(format!("name it: `.over([.., {:?}])`", axis.name())));
            }
        }
        let sets = spec.unreduced_axes().iter().chain(spec.reduced_axes().iter());
        if sets.count() > 0 && !self.is_fully_explicit() {
            return Err(fault!(
                Mesh,
                "{place} is {spec}: unreduced and reduced sets cross the boundary only where all axes are explicit and manual"
            )
            .help("sum before the boundary: `.reshard(…)` outside, `.psum(…)` inside"));
        }
        Ok(())
    }

    /// Returns the spec that splits each argument, as given or inferred from its type.
    /// Axis names are checked.
    pub(super) fn argument_specs<T: Tree>(&self, tree: &T, asked: &[Option<Spec>]) -> Result<Vec<Spec>> {
        self.map_leaves(tree, asked, |path, ty, asked| match asked {
            Some(spec) => {
                let spec = self.outer.try_resolve(*spec, AxisRules::Compute)?;
                self.check_names(spec, "in_specs", path)?;
                Ok(spec)
            }
            None => {
                if let Some(auto) = self.axes.iter().find(|a| self.outer.axis_type(*a) != Some(AxisType::Explicit)) {
                    return Err(fault!(
                        Sharding,
                        "in_specs are inferred from types, which do not say how {auto} is used: it is not explicit"
                    )
                    .help("give in_specs: `p![..]`"));
                }
                self.inherited_spec(ty)
            }
        })
    }
    fn map_leaves<T: Tree, A, B>(
        &self,
        tree: &T,
        with: &[A],
        f: impl Fn(&Path, &ArrayType, &A) -> Result<B, Fault>,
    ) -> Result<Vec<B>> {
        let mut out = Vec::new();
        let mut errors = Vec::new();
        let mut with = with.iter();
        tree.visit(&mut Path::named(), &mut |path, a| {
            let (Some(x), Ok(ty)) = (with.next(), a.type_ref()) else { return };
            let b =
                ok_or_return!(f(path, ty, x), |f| errors.push(Error::new(f, "", vec![ty.to_string()], None)));
            out.push(b)
        });
        if errors.is_empty() { Ok(out) } else { Err(Error::combine(errors)) }
    }

    /// Restricts a type's spec to the region's axes, which must be the leading axes of each
    /// dimension.
    fn inherited_spec(&self, ty: &ArrayType) -> Result<Spec, Fault> {
        for (d, axes) in ty.spec.dims().iter().enumerate() {
            let mut rest = axes.iter().skip_while(|a| self.axes.contains(*a));
            if let Some(inner) = rest.find(|a| self.axes.contains(*a)) {
                return Err(fault!(
                    Sharding,
                    "dimension {d} of {ty} is sharded over {axes}: a region that is manual over {inner} and not over all axes before it cannot take its blocks"
                )
                .help("reshard it first, with the manual axes in front"));
            }
        }
        Ok(ty.spec.filter_axes(|a| self.axes.contains(a)))
    }
    /// Returns the spec of a captured value: it enters the region as a whole, with its unreduced
    /// and reduced axes. It is an error if its type shards a dimension over an axis of the region.
    pub(super) fn captured_spec(&self, ty: &ArrayType) -> Result<Spec, Fault> {
        let own = ty.spec.filter_axes(|a| self.axes.contains(a));
        let Some(d) = own.dims().iter().position(|axes| !axes.is_empty()) else { return Ok(own) };
        let (axes, whole) = (own.dim(d), ty.spec.filter_dim_axes(&|a| !self.axes.contains(a)));
        let list: Axes = axes.iter().copied().collect();
        Err(fault!(
            Sharding,
            "the body of a `shard_map` over {} captures {ty}, whose dimension {d} is sharded over {list}: a captured value is the same on all devices",
            self.axes
        )
            .help(format!("to use each device's block, pass it as an argument with the spec `{own}`"))
            .help(format!("to use all of it, gather it before the `shard_map`: `.reshard({whole})`")))
    }
    /// Returns the function that maps a captured value's type to its type inside the region.
    pub(super) fn capture_rule(&self) -> Box<CaptureTypeFn> {
        let border = self.clone();
        Box::new(move |ty| {
            let spec = border.captured_spec(ty)?;
            border.block_type(ty, spec)
        })
    }

    /// Returns the types of the arguments' blocks. Checks ranks and divisibility.
    pub(super) fn block_types<T: Tree>(&self, tree: &T, specs: &[Spec]) -> Result<Vec<ArrayType>> {
        self.map_leaves(tree, specs, |path, ty, spec| {
            let name = path.name_or("the argument");
            if spec.dims().len() > ty.rank() {
                return Err(fault!(
                    Shape,
                    "in_specs has {} for {name}, which has {}: {spec} for {ty}",
                    pluralize(spec.dims().len(), "entry"),
                    pluralize(ty.rank(), "dimension")
                )
                .help("each entry is for one dimension; dimensions without an entry are unsharded"));
            }
            for (d, axes) in spec.dims().iter().enumerate() {
                let (n, ways) = (ty.shape[d], self.num_shards(axes.as_slice()));
                if n % ways != 0 {
                    return Err(fault!(
                        Shape,
                        "dimension {d} of {name} has size {n}, which {axes} does not divide into {ways} equal blocks"
                    )
                    .help(nearest_multiples(n, ways))
                    .highlight_dim(0, d));
                }
            }
            self.block_type(ty, *spec)
        })
    }
    fn block_type(&self, ty: &ArrayType, spec: Spec) -> Result<ArrayType, Fault> {
        if let Some(mesh) = ty.mesh.as_ref().filter(|m| **m != self.outer) {
            return Err(fault!(Mesh, "the argument is on {mesh}, the region on {}", self.outer)
                .help("put it there first: `.put(&mesh, p![..])`"));
        }
        let parts = spec.unreduced_axes();
        if !self.checked && !parts.is_empty() {
            return Err(fault!(
                Sharding,
                "{ty} is unreduced over {parts}, which types in an unchecked region cannot express"
            )
            .help(format!("sum it first: `.reshard({})`", ty.spec.unreduced(Axes::none())))
            .help("or leave out `.unchecked()`"));
        }
        let shape: Shape =
            ty.shape.iter().enumerate().map(|(d, n)| n / self.num_shards(spec.dim(d))).collect();
        let mut inner = ty.spec.padded(ty.rank()).filter_axes(|a| !self.axes.contains(a));
        let mut varying = ty.varying.clone();
        if self.checked {
            let both = |a: &Axes, b: &Axes| self.inner.in_order(a.iter().chain(b));
            varying = self.inner.in_order(spec.dims().iter().flatten().chain(&varying));
            inner = inner
                .unreduced(both(inner.unreduced_axes(), spec.unreduced_axes()))
                .reduced(both(inner.reduced_axes(), spec.reduced_axes()));
        }
        Ok(ArrayType { shape, mesh: Some(self.inner.clone()), spec: inner, varying, ..ty.clone() })
    }

    /// Checks that arguments are sharded as `in_specs` say, since explicit axes allow no implicit
    /// resharding.
    pub(super) fn check_argument_shardings<T: Tree>(
        &self,
        tree: &T,
        specs: &[Spec],
        asked: &[Option<Spec>],
    ) -> Result<()> {
        let both: Vec<_> = specs.iter().zip(asked).collect();
        self.map_leaves(tree, &both, |path, ty, (spec, asked)| {
            let sets = |s: Spec| (s.unreduced_axes().clone(), s.reduced_axes().clone());
            let (is, expected) = (ty.spec.padded(ty.rank()), spec.padded(ty.rank()).in_order(&self.outer));
            let differs = if self.is_fully_explicit() { is != expected } else { sets(is) != sets(expected) };
            // an array on no mesh is placed as requested, but it cannot become unreduced or reduced
            // by that
            let placed = ty.mesh.is_some() || sets(is) != sets(expected);
            if asked.is_some() && placed && differs {
                return Err(fault!(
                    Sharding,
                    "{} is {ty}, but in_specs says {spec}",
                    path.name_or("the argument")
                )
                .help(format!("move it first: `.reshard({spec})`"))
                .help("or use its own sharding: `Inferred` instead of in_specs"));
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Returns the out spec of each result. Checks axis names and ranks.
    pub(super) fn result_specs<T: Tree>(&self, tree: &T, asked: &[Option<Spec>]) -> Result<Vec<Spec>> {
        self.map_leaves(tree, asked, |path, ty, asked| {
            let Some(spec) = *asked else {
                return Err(fault(
                    ErrorKind::Sharding,
                    "out_specs cannot be inferred: they say how each result is assembled",
                )
                .help("give a spec for each result: `p![…]`"));
            };
            let spec = self.outer.try_resolve(spec, AxisRules::Compute)?;
            self.check_names(spec, "out_specs", path)?;
            if spec.dims().len() > ty.rank() {
                let f = fault!(
                    Shape,
                    "out_specs has {} for {}, which has {}: {spec} for {ty}",
                    pluralize(spec.dims().len(), "entry"),
                    path.name_or("the result"),
                    pluralize(ty.rank(), "dimension")
                );
                return Err(match ty.rank() {
                    0 => f.help("for a scalar: `p![]`, or give it a dimension: `.reshape([1])`"),
                    _ => f.help("each entry is for one dimension; dimensions without an entry are unsharded"),
                });
            }
            Ok(spec)
        })
    }

    /// Checks results against `out_specs`, and returns their types outside of the region. A result
    /// must be equal on all devices along each axis that its spec does not name.
    pub(super) fn check_results<T: Tree>(
        &self,
        tree: &T,
        specs: &[Spec],
        types: &[ArrayType],
    ) -> Result<RegionResults> {
        let both: Vec<_> = specs.iter().zip(types).collect();
        let types = self.map_leaves(tree, &both, |path, _, (spec, ty)| {
            if self.checked {
                self.check_invariant(path, ty, **spec)?;
            }
            check_unreduced_dtype(**spec, ty.dtype)?;
            Ok(self.outer_type(ty, **spec))
        })?;
        Ok(RegionResults { types })
    }
    fn check_invariant(&self, path: &Path, ty: &ArrayType, spec: Spec) -> Result<(), Fault> {
        let name = path.name_or("the result");
        let mentioned: Vec<Axis> = spec.all_axes().collect();
        let open: Axes =
            self.axes.iter().filter(|a| ty.varying.contains(*a) && !mentioned.contains(a)).collect();
        if !open.is_empty() {
            let list = open.quoted();
            return Err(fault!(
                Varying,
                "{name} is {ty}: devices along {open} may hold different values, but out_specs {spec} promises one for all"
            )
            .help(format!("if each device has a partial sum: `.psum({list})`; of a mean: `.pmean({list})`"))
            .help(format!("or assemble the devices' blocks: name {open} in out_specs"))
            .help("or, if all are the same and types cannot know it: `.unchecked()`"));
        }
        let own = |set: &Axes| -> Axes { set.iter().filter(|a| self.axes.contains(*a)).collect() };
        let spec = spec.in_order(&self.outer);
        for (what, is, expected) in [
            ("unreduced", ty.spec.unreduced_axes(), spec.unreduced_axes()),
            ("reduced", ty.spec.reduced_axes(), spec.reduced_axes()),
        ] {
            if own(is) != *expected {
                let list = |a: &Axes| if a.is_empty() { "nothing".into() } else { a.to_string() };
                return Err(fault!(
                    Varying,
                    "{name} is {ty}: {what} over {}, but out_specs says {what} over {}",
                    list(&own(is)),
                    list(expected)
                )
                .help("sum it (`.psum(..)`) or cast it (`.pcast(..)`), or name the same axes in out_specs"));
            }
        }
        Ok(())
    }
    /// Returns the type of a result outside of the region: the blocks assembled, with explicit axes
    /// in the spec.
    fn outer_type(&self, ty: &ArrayType, spec: Spec) -> ArrayType {
        let shape: Shape =
            ty.shape.iter().enumerate().map(|(d, n)| n * self.num_shards(spec.dim(d))).collect();
        let explicit = |a: &Axis| self.outer.axis_type(*a) == Some(AxisType::Explicit);
        let dims = (0..ty.rank())
            .map(|d| {
                spec.dim(d).iter().copied().filter(explicit).chain(ty.spec.dim(d).iter().copied()).collect()
            })
            .collect();
        let keep = |set: &Axes, out: &Axes| -> Axes {
            self.outer.in_order(set.without(&self.axes).iter().chain(out))
        };
        let outer = Spec::from_dims(dims)
            .unreduced(keep(ty.spec.unreduced_axes(), spec.unreduced_axes()))
            .reduced(keep(ty.spec.reduced_axes(), spec.reduced_axes()));
        let varying = ty.varying.without(&self.axes);
        ArrayType { shape, mesh: Some(self.outer.clone()), spec: outer, varying, ..ty.clone() }
    }

    /// Checks that no spec names an axis twice.
    pub(super) fn check_no_repeats<'a>(&self, specs: impl Iterator<Item = &'a Spec>) -> Result<(), Fault> {
        for spec in specs {
            let all: Vec<Axis> = spec.all_axes().collect();
            if let Some((_, twice)) = all.iter().enumerate().find(|(i, a)| all[..*i].contains(a)) {
                return Err(fault!(Mesh, "the spec {spec} names the axis {twice} twice")
                    .help("an axis can split one dimension only: name it once"));
            }
        }
        Ok(())
    }
}
