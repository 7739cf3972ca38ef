//! The boundary of a manual region: what blocks arguments are cut into, what results are outside, and what is refused.

use crate::diagnostic::{Error, ErrorKind, Fault, Result, counted};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::sharding::{Spec, check_parts, nearest_multiples};
use crate::trace::Enter;
use crate::tree::{Path, Tree};
use crate::types::{ArrayType, Shape};

/// The boundary of one region.
#[derive(Clone)]
pub(super) struct Boundary {
    outer: Mesh,
    inside: Mesh,
    axes: Axes,
    checked: bool,
}

/// What results are outside.
pub(super) struct Out {
    pub(super) types: Vec<ArrayType>,
}

fn fault(kind: ErrorKind, message: impl Into<String>) -> Fault {
    Fault::new(kind, message)
}

impl Boundary {
    /// The region over `axes` of the mesh; refuses axes that it does not have or that are manual already.
    pub(super) fn new(mesh: &Mesh, axes: &Axes, checked: bool) -> Result<Boundary, Fault> {
        for (i, axis) in axes.iter().enumerate() {
            match mesh.axis_type(axis) {
                None => return Err(mesh.unknown(axis)),
                Some(AxisType::Manual) => {
                    return Err(fault(ErrorKind::Mesh, format!("the axis {axis} is manual here already"))
                        .help("name the axes of the inner region only: `.over(…)`"));
                }
                Some(_) if axes.as_slice()[..i].contains(&axis) => {
                    return Err(fault(ErrorKind::Mesh, format!("the axis {axis} is named twice"))
                        .help("name each axis once"));
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
            .retyped(axes.clone(), AxisType::Manual)
            .map_err(|_| fault(ErrorKind::Mesh, "no such axis"))?;
        Ok(Boundary { outer: mesh.clone(), inside, axes, checked })
    }
    /// The mesh as the body sees it.
    pub(super) fn inside(&self) -> &Mesh {
        &self.inside
    }
    /// The axes that become manual, in the mesh's order.
    pub(super) fn axes(&self) -> &Axes {
        &self.axes
    }
    /// Whether types track what varies.
    pub(super) fn checked(&self) -> bool {
        self.checked
    }
    fn ways(&self, axes: &[Axis]) -> usize {
        axes.iter().map(|a| self.outer.extent(*a)).product()
    }
    /// Whether the region is manual over every axis, and all of them are explicit outside.
    fn full_explicit(&self) -> bool {
        self.outer.axis_types().iter().all(|t| *t == AxisType::Explicit)
            && self.axes.len() == self.outer.axis_names().len()
    }

    /// A spec at the boundary names axes that become manual here.
    fn names(&self, spec: Spec, what: &str, path: &Path) -> Result<(), Fault> {
        let place = if path.parts().is_empty() { what.to_string() } else { format!("{what} of `{path}`") };
        for axis in spec.all_axes() {
            if self.outer.find(axis).is_none() {
                return Err(self.outer.unknown(axis));
            }
            if !self.axes.contains(axis) {
                return Err(fault(
                    ErrorKind::Mesh,
                    format!(
                        "{place} names {axis}, which is not manual here: the region is manual over {}",
                        self.axes
                    ),
                )
                .help(format!("name it: `.over([.., {:?}])`", axis.name())));
            }
        }
        let sets = spec.unreduced_axes().iter().chain(spec.reduced_axes().iter());
        if sets.count() > 0 && !self.full_explicit() {
            return Err(fault(
                ErrorKind::Mesh,
                format!(
                    "{place} is {spec}: unreduced and reduced sets cross the boundary only where all axes are explicit and manual"
                ),
            )
            .help("sum before the boundary: `.reshard(…)` outside, `.psum(…)` inside"));
        }
        Ok(())
    }

    /// The spec by which each argument is cut: as given, or inferred from its type. Names are checked.
    pub(super) fn arguments<T: Tree>(&self, tree: &T, asked: &[Option<Spec>]) -> Result<Vec<Spec>> {
        self.each(tree, asked, |path, ty, asked| match asked {
            Some(spec) => {
                self.names(*spec, "in_specs", path)?;
                Ok(*spec)
            }
            None => {
                if let Some(auto) = self.axes.iter().find(|a| self.outer.axis_type(*a) != Some(AxisType::Explicit)) {
                    return Err(fault(
                        ErrorKind::Sharding,
                        format!("in_specs are inferred from types, which do not say how {auto} is used: it is not explicit"),
                    )
                    .help("give in_specs: `p![..]`"));
                }
                self.own(ty)
            }
        })
    }
    fn each<T: Tree, A, B>(
        &self,
        tree: &T,
        with: &[A],
        f: impl Fn(&Path, &ArrayType, &A) -> Result<B, Fault>,
    ) -> Result<Vec<B>> {
        let mut out = Vec::new();
        let mut refused = Vec::new();
        let mut with = with.iter();
        tree.visit(&mut Path::named(), &mut |path, a| {
            let (Some(x), Ok(ty)) = (with.next(), a.type_ref()) else { return };
            match f(path, ty, x) {
                Ok(b) => out.push(b),
                Err(f) => refused.push(Error::at(f, "", vec![ty.to_string()], None)),
            }
        });
        if refused.is_empty() { Ok(out) } else { Err(Error::all(refused)) }
    }

    /// A type's own spec over the region's axes: of a dimension the leading ones.
    fn own(&self, ty: &ArrayType) -> Result<Spec, Fault> {
        for (d, axes) in ty.spec.dims().iter().enumerate() {
            let mut rest = axes.iter().skip_while(|a| self.axes.contains(*a));
            if let Some(inner) = rest.find(|a| self.axes.contains(*a)) {
                return Err(fault(
                    ErrorKind::Sharding,
                    format!("dimension {d} of {ty} is sharded over {axes}: a region that is manual over {inner} and not over all axes before it cannot take its blocks"),
                )
                .help("reshard it first, with the manual axes in front"));
            }
        }
        Ok(ty.spec.only(|a| self.axes.contains(a)))
    }
    /// The spec by which a captured value enters: its own.
    pub(super) fn own_spec(&self, ty: &ArrayType) -> Result<Spec> {
        Ok(self.own(ty)?)
    }
    /// What captured values are inside.
    pub(super) fn entering(&self) -> Box<Enter> {
        let border = self.clone();
        Box::new(move |ty| {
            let spec = border.own(ty)?;
            border.block(ty, spec)
        })
    }

    /// The types of the blocks. Ranks and divisibility are checked.
    pub(super) fn blocks<T: Tree>(&self, tree: &T, specs: &[Spec]) -> Result<Vec<ArrayType>> {
        self.each(tree, specs, |path, ty, spec| {
            let name = path.or("the argument");
            if spec.dims().len() > ty.rank() {
                return Err(fault(
                    ErrorKind::Shape,
                    format!(
                        "in_specs has {} for {name}, which has {}: {spec} for {ty}",
                        counted(spec.dims().len(), "entry"),
                        counted(ty.rank(), "dimension")
                    ),
                )
                .help("each entry is for one dimension; dimensions without an entry are unsharded"));
            }
            for (d, axes) in spec.dims().iter().enumerate() {
                let (n, ways) = (ty.shape[d], self.ways(axes.as_slice()));
                if n % ways != 0 {
                    return Err(fault(
                        ErrorKind::Shape,
                        format!("dimension {d} of {name} has size {n}, which {axes} does not divide into {ways} equal blocks"),
                    )
                    .help(nearest_multiples(n, ways))
                    .dim(0, d));
                }
            }
            self.block(ty, *spec)
        })
    }
    fn block(&self, ty: &ArrayType, spec: Spec) -> Result<ArrayType, Fault> {
        if let Some(mesh) = ty.mesh.as_ref().filter(|m| **m != self.outer) {
            return Err(fault(
                ErrorKind::Mesh,
                format!("the argument is on {mesh}, the region on {}", self.outer),
            )
            .help("put it there first: `.put(&mesh, p![..])`"));
        }
        let parts = spec.unreduced_axes();
        if !self.checked && !parts.is_empty() {
            return Err(fault(
                ErrorKind::Sharding,
                format!("{ty} is unreduced over {parts}, which types of an unchecked region cannot say"),
            )
            .help(format!("sum it first: `.reshard({})`", ty.spec.unreduced(Axes::none())))
            .help("or leave out `.unchecked()`"));
        }
        let shape: Shape = ty.shape.iter().enumerate().map(|(d, n)| n / self.ways(spec.dim(d))).collect();
        let mut inner = ty.spec.padded(ty.rank()).only(|a| !self.axes.contains(a));
        let mut varying = ty.varying.clone();
        if self.checked {
            let both = |a: &Axes, b: &Axes| self.inside.in_order(a.iter().chain(b));
            varying = self.inside.in_order(spec.dims().iter().flatten().chain(&varying));
            inner = inner
                .unreduced(both(inner.unreduced_axes(), spec.unreduced_axes()))
                .reduced(both(inner.reduced_axes(), spec.reduced_axes()));
        }
        Ok(ArrayType { shape, mesh: Some(self.inside.clone()), spec: inner, varying, ..ty.clone() })
    }

    /// Refuses arguments that are sharded otherwise than `in_specs` says, where all axes are explicit and manual: nothing moves unasked.
    pub(super) fn lie_so<T: Tree>(&self, tree: &T, specs: &[Spec], asked: &[Option<Spec>]) -> Result<()> {
        let both: Vec<_> = specs.iter().zip(asked).collect();
        self.each(tree, &both, |path, ty, (spec, asked)| {
            let sets = |s: Spec| (s.unreduced_axes().clone(), s.reduced_axes().clone());
            let (is, wants) = (ty.spec.padded(ty.rank()), spec.padded(ty.rank()).in_order(&self.outer));
            let differs = if self.full_explicit() { is != wants } else { sets(is) != sets(wants) };
            // an array on no mesh is placed as asked, but for sets, which only its type could give it
            let placed = ty.mesh.is_some() || sets(is) != sets(wants);
            if asked.is_some() && placed && differs {
                return Err(fault(
                    ErrorKind::Sharding,
                    format!("{} is {ty}, but in_specs says {spec}", path.or("the argument")),
                )
                .help(format!("move it first: `.reshard({spec})`"))
                .help("or take its own: `Inferred` in place of in_specs"));
            }
            Ok(())
        })?;
        Ok(())
    }

    /// The spec of each result. Names and ranks are checked.
    pub(super) fn results<T: Tree>(&self, tree: &T, asked: &[Option<Spec>]) -> Result<Vec<Spec>> {
        self.each(tree, asked, |path, ty, asked| {
            let Some(spec) = *asked else {
                return Err(fault(
                    ErrorKind::Sharding,
                    "out_specs cannot be inferred: they say how each result is put together",
                )
                .help("give a spec for each result: `p![…]`"));
            };
            self.names(spec, "out_specs", path)?;
            if spec.dims().len() > ty.rank() {
                let f = fault(
                    ErrorKind::Shape,
                    format!(
                        "out_specs has {} for {}, which has {}: {spec} for {ty}",
                        counted(spec.dims().len(), "entry"),
                        path.or("the result"),
                        counted(ty.rank(), "dimension")
                    ),
                );
                return Err(match ty.rank() {
                    0 => f.help("for one number: `p![]`, or give it a dimension: `.reshape([1])`"),
                    _ => f.help("each entry is for one dimension; dimensions without an entry are unsharded"),
                });
            }
            Ok(spec)
        })
    }

    /// What results are outside, after the proof that those are the same on all devices which are promised to be.
    pub(super) fn proved<T: Tree>(&self, tree: &T, specs: &[Spec], types: &[ArrayType]) -> Result<Out> {
        let both: Vec<_> = specs.iter().zip(types).collect();
        let types = self.each(tree, &both, |path, _, (spec, ty)| {
            if self.checked {
                self.proof(path, ty, **spec)?;
            }
            check_parts(**spec, ty.dtype)?;
            Ok(self.outside(ty, **spec))
        })?;
        Ok(Out { types })
    }
    fn proof(&self, path: &Path, ty: &ArrayType, spec: Spec) -> Result<(), Fault> {
        let name = path.or("the result");
        let mentioned: Vec<Axis> = spec.all_axes().collect();
        let open: Axes =
            self.axes.iter().filter(|a| ty.varying.contains(*a) && !mentioned.contains(a)).collect();
        if !open.is_empty() {
            let list = open.quoted();
            return Err(fault(
                ErrorKind::Vma,
                format!("{name} is {ty}: devices along {open} may hold different values, but out_specs {spec} promises one for all"),
            )
            .help(format!("if each device has a part of a sum: `.psum({list})`; of a mean: `.pmean({list})`"))
            .help(format!("or put the devices' blocks together: name {open} in out_specs"))
            .help("or, if all are the same and types cannot know it: `.unchecked()`"));
        }
        let own = |set: &Axes| -> Axes { set.iter().filter(|a| self.axes.contains(*a)).collect() };
        let spec = spec.in_order(&self.outer);
        for (what, is, wants) in [
            ("unreduced", ty.spec.unreduced_axes(), spec.unreduced_axes()),
            ("reduced", ty.spec.reduced_axes(), spec.reduced_axes()),
        ] {
            if own(is) != *wants {
                let list = |a: &Axes| if a.is_empty() { "nothing".into() } else { a.to_string() };
                return Err(fault(
                    ErrorKind::Vma,
                    format!(
                        "{name} is {ty}: {what} over {}, but out_specs says {what} over {}",
                        list(&own(is)),
                        list(wants)
                    ),
                )
                .help("sum it (`.psum(..)`) or cast it (`.pcast(..)`), or name the same axes in out_specs"));
            }
        }
        Ok(())
    }
    /// The type outside: blocks put together, explicit axes in the spec.
    fn outside(&self, ty: &ArrayType, spec: Spec) -> ArrayType {
        let shape: Shape = ty.shape.iter().enumerate().map(|(d, n)| n * self.ways(spec.dim(d))).collect();
        let explicit = |a: &Axis| self.outer.axis_type(*a) == Some(AxisType::Explicit);
        let dims = (0..ty.rank())
            .map(|d| {
                spec.dim(d).iter().copied().filter(explicit).chain(ty.spec.dim(d).iter().copied()).collect()
            })
            .collect();
        let keep = |set: &Axes, out: &Axes| -> Axes {
            self.outer.in_order(set.without(&self.axes).iter().chain(out))
        };
        let outer = Spec::of(dims)
            .unreduced(keep(ty.spec.unreduced_axes(), spec.unreduced_axes()))
            .reduced(keep(ty.spec.reduced_axes(), spec.reduced_axes()));
        let varying = ty.varying.without(&self.axes);
        ArrayType { shape, mesh: Some(self.outer.clone()), spec: outer, varying, ..ty.clone() }
    }

    /// Refuses specs that name an axis twice.
    pub(super) fn repeats<'a>(&self, specs: impl Iterator<Item = &'a Spec>) -> Result<(), Fault> {
        for spec in specs {
            let all: Vec<Axis> = spec.all_axes().collect();
            if let Some((_, twice)) = all.iter().enumerate().find(|(i, a)| all[..*i].contains(a)) {
                return Err(fault(ErrorKind::Mesh, format!("the spec {spec} names the axis {twice} twice"))
                    .help("an axis can split one dimension only: name it once"));
            }
        }
        Ok(())
    }
}
