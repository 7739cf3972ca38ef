//! `auto_axes` and `explicit_axes`: regions that change the type of mesh axes.

use super::{RecordedClosure, ReturnedTree, tree_of};
use crate::api::array::Array;
use crate::api::trace::{OpenTrace, Setting, apply_control, setting};
use crate::api::transform::jit::{check_arguments, check_errors};
use crate::api::tree::{Args, Output, Specs, Tree, collect, resolve};
use crate::core::sharding::{check_spec, for_result};
use crate::core::{ArrayType, Axes, Axis, AxisType, Error, ErrorKind, Fault, Mesh, Result, Sharding, Spec};
use crate::ir::program::{CallSite, Control};
use std::sync::Arc;

/// Runs `f` in a region where explicit axes are auto; `out` gives the results' shardings outside.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
/// let x = Array::ones([8, 8]).put(&mesh, p!["X", "Y"]);
/// let y = auto_axes(&x, p!["X", _], |x| {
///     assert_eq!(type_of(&x), "float32[8,8]");
///     x.t().dot(&x)
/// });
/// assert_eq!(type_of(&y), "float32[8@X,8]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn auto_axes<A: Args, R: Output>(args: A, out: impl Specs, f: impl Fn(A::Owned) -> R) -> R::Tree {
    auto(None, args.into_tree(), out, &|x| f(x).into_result(), CallSite::here("auto_axes"))
}

/// Runs [`auto_axes`] for the given axes only.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::auto_axes_over;
/// let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
/// let x = Array::ones([4, 4]).put(&mesh, p!["X", "Y"]);
/// let y = auto_axes_over("Y", &x, p!["X"], |x| x.sum(1));
/// assert_eq!(type_of(y), "float32[4@X]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn auto_axes_over<A: Args, R: Output>(
    axes: impl Into<Axes>,
    args: A,
    out: impl Specs,
    f: impl Fn(A::Owned) -> R,
) -> R::Tree {
    auto(Some(axes.into()), args.into_tree(), out, &|x| f(x).into_result(), CallSite::here("auto_axes"))
}

/// Runs `f` in a region where auto axes are explicit.
///
/// `specs` gives the shardings of the arguments in the region.
///
/// Outside of the region the axes are auto again. Captured values are unsharded over these axes
/// inside; pass a value as an argument to shard it.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::auto([("Y", 4)])?;
/// let x = Array::ones([8]).put(&mesh, p![]);
/// let y = explicit_axes(&x, p!["Y"], |x| {
///     assert_eq!(type_of(&x), "float32[8@Y]");
///     x * 2.0
/// });
/// assert_eq!(type_of(&y), "float32[8]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "in_sharding")]
#[track_caller]
pub fn explicit_axes<A: Args, R: Output>(args: A, specs: impl Specs, f: impl Fn(A::Owned) -> R) -> R::Tree {
    explicit(None, args.into_tree(), specs, &|x| f(x).into_result(), CallSite::here("explicit_axes"))
}

/// Runs [`explicit_axes`] for the given axes only.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::auto([("X", 2), ("Y", 4)])?;
/// let x = Array::ones([8]).put(&mesh, p![]);
/// explicit_axes_over("Y", &x, p!["Y"], |x| {
///     assert_eq!(type_of(&x), "float32[8@Y]"); // over `X` the partitioner decides
///     x
/// })
/// .ty()?;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn explicit_axes_over<A: Args, R: Output>(
    axes: impl Into<Axes>,
    args: A,
    specs: impl Specs,
    f: impl Fn(A::Owned) -> R,
) -> R::Tree {
    explicit(
        Some(axes.into()),
        args.into_tree(),
        specs,
        &|x| f(x).into_result(),
        CallSite::here("explicit_axes"),
    )
}

/// A region: its call site, the outer and the inner mesh, and the axes whose type changes.
struct AxisModeRegion {
    call: CallSite<'static>,
    outer: Mesh,
    inside: Mesh,
    axes: Axes,
}

impl AxisModeRegion {
    fn new<T: Tree>(
        call: CallSite<'static>,
        axes: Option<Axes>,
        args: &T,
        to: AxisType,
    ) -> Result<AxisModeRegion> {
        let reject = |f: Fault| call.error(f, Vec::new);
        check_arguments(args, call)?;
        let mesh = collect(args).iter().find_map(|a| a.type_ref().ok().and_then(|t| t.mesh.clone()));
        let Some(outer) = mesh.or_else(|| setting().map(|s| s.mesh)) else {
            let fault = fault!(Mesh, "no argument is on a mesh, so there are no axes")
                .help("put one there first: `.put(&mesh, p![..])`");
            return Err(reject(fault));
        };
        let from = if to == AxisType::Auto { AxisType::Explicit } else { AxisType::Auto };
        let axes: Axes = match axes {
            None => outer.axes_of(from).into(),
            Some(axes) => {
                for a in axes.iter() {
                    match outer.axis_type(a) {
                        None => return Err(reject(outer.unknown_axis(a))),
                        Some(AxisType::Manual) => {
                            let message = format!("{a} is manual here: it stays so to the end of the region");
                            return Err(reject(Fault::new(ErrorKind::Mesh, message).help("name other axes")));
                        }
                        Some(_) => {}
                    }
                }
                axes.iter().filter(|a| outer.axis_type(*a) == Some(from)).collect()
            }
        };
        let inside = outer.with_axis_types(axes.clone(), to).map_err(|e| call.locate(e))?;
        Ok(AxisModeRegion { call, outer, inside, axes })
    }
    fn type_error(&self, fault: Fault, ty: &ArrayType) -> Error {
        self.call.error(fault, || vec![ty.to_string()])
    }
    fn locate(&self, e: Error) -> Error {
        self.call.locate(e)
    }
    /// Removes the region's axes from the spec.
    fn without_axes(&self, spec: Spec) -> Spec {
        spec.filter_axes(|a| !self.axes.contains(a))
    }
    fn sets_without(&self, spec: Spec) -> Spec {
        let (u, r) = (spec.unreduced_axes(), spec.reduced_axes());
        spec.unreduced(u.without(&self.axes)).reduced(r.without(&self.axes))
    }
    /// Reshards the argument so that it is not unreduced or reduced over the region's axes.
    fn summed(&self, a: &Array) -> Array {
        match a.type_ref() {
            Ok(ty) if self.sets_without(ty.spec) != ty.spec => {
                a.put_at(&self.outer, self.sets_without(ty.spec), self.call)
            }
            _ => a.clone(),
        }
    }
    /// Opens a trace for the region's body.
    fn open(&self) -> Result<OpenTrace, Fault> {
        let (inside, outer, axes) = (self.inside.clone(), self.outer.clone(), self.axes.clone());
        let untracked = setting().map_or(Axes::none(), |s| s.untracked);
        let open = OpenTrace::with_capture_type(
            Some(self.call.location),
            Box::new(move |ty| {
                if ty.mesh.as_ref().is_some_and(|m| *m != outer) {
                    return Err(fault!(Mesh, "a captured value is on another mesh than {outer}")
                        .help("put it there first: `.put(&mesh, p![…])`"));
                }
                let named = |set: &Axes| set.iter().any(|a| axes.contains(a));
                if named(ty.spec.unreduced_axes()) || named(ty.spec.reduced_axes()) {
                    let axes = "it cannot be unreduced or reduced over axes that change their type";
                    return Err(fault!(Sharding, "a captured value is {ty}: {axes}")
                        .help("pass it as an argument, or reshard it first"));
                }
                Ok(ArrayType {
                    mesh: Some(inside.clone()),
                    spec: ty.spec.filter_axes(|a| !axes.contains(a)),
                    ..ty.clone()
                })
            }),
        )?;
        open.set(Setting { mesh: self.inside.clone(), untracked });
        Ok(open)
    }
    fn emit<O: Tree>(
        &self,
        args: Vec<Array>,
        piece: RecordedClosure<O>,
        out_specs: Vec<Option<Spec>>,
        types: Vec<ArrayType>,
    ) -> Result<O> {
        let inputs: Vec<Array> = args.into_iter().chain(piece.captures).collect();
        let control = Control::AxisModes { body: Arc::new(piece.program), out_specs };
        Ok(tree_of(&piece.out, apply_control(control, &inputs, types, self.call)?))
    }
}

fn auto<T: Tree, O: Tree>(
    axes: Option<Axes>,
    args: T,
    out: impl Specs,
    f: &dyn Fn(T) -> Result<O>,
    call: CallSite<'static>,
) -> O {
    let specs = out.spec_tree();
    let returned = ReturnedTree::new();
    let run = || -> Result<O> {
        let r = AxisModeRegion::new(call, axes, &args, AxisType::Auto)?;
        let leaves: Vec<Array> = collect(&args).iter().map(|a| r.summed(a)).collect();
        let types: Vec<ArrayType> = leaves
            .iter()
            .map(|a| {
                let ty = a.ty()?;
                Ok(ArrayType { mesh: Some(r.inside.clone()), spec: r.without_axes(ty.spec), ..ty })
            })
            .collect::<Result<_>>()?;
        let mut requested: Vec<Spec> = Vec::new();
        let piece = RecordedClosure::record_in(r.open()?, &types, |xs| {
            let out = returned.remember(f(tree_of(&args, xs)))?;
            check_errors(&out)?;
            let asked = resolve(&specs, &out, "`out`").map_err(|e| r.locate(e))?;
            let mut results = Vec::new();
            for (a, spec) in collect(&out).iter().zip(asked) {
                let ty = a.ty()?;
                let Some(spec) = spec else {
                    let fault = fault!(Sharding, "the sharding of results over auto axes cannot be inferred")
                        .help("give a spec for each result: `p![..]`");
                    return Err(r.type_error(fault, &ty));
                };
                let sharding = Sharding::try_new(&r.outer, spec, &ty.shape)
                    .map_err(|f| r.type_error(for_result(f, spec, ty.rank()), &ty))?;
                // shard the value inside as requested; it becomes unreduced or reduced over the
                // region's axes only outside
                results.push(a.put_at(&r.inside, r.sets_without(sharding.spec), r.call));
                requested.push(sharding.spec);
            }
            Ok(tree_of(&out, results))
        })?;
        let explicit = |a: Axis| r.outer.axis_type(a) == Some(AxisType::Explicit);
        let types: Vec<ArrayType> = (piece.program.output_types().into_iter().zip(&requested))
            .map(|(ty, spec)| ArrayType {
                mesh: Some(r.outer.clone()),
                spec: r.sets_without(*spec).filter_axes(explicit),
                ..ty
            })
            .collect();
        let out_specs = requested.iter().map(|s| Some(r.sets_without(*s))).collect();
        let out = r.emit(leaves, piece, out_specs, types)?;
        let moved = collect(&out).into_iter().zip(&requested).map(|(a, spec)| {
            if r.sets_without(*spec) == *spec { a } else { a.put_at(&r.outer, *spec, r.call) }
        });
        Ok(tree_of(&out, moved.collect()))
    };
    run().unwrap_or_else(|e| returned.poisoned(&e))
}

fn explicit<T: Tree, O: Tree>(
    axes: Option<Axes>,
    args: T,
    specs: impl Specs,
    f: &dyn Fn(T) -> Result<O>,
    call: CallSite<'static>,
) -> O {
    let specs = specs.spec_tree();
    let returned = ReturnedTree::new();
    let run = || -> Result<O> {
        let r = AxisModeRegion::new(call, axes, &args, AxisType::Explicit)?;
        let asked = resolve(&specs, &args, "`specs`").map_err(|e| r.locate(e))?;
        let mut leaves = Vec::new();
        let mut types = Vec::new();
        for (a, spec) in collect(&args).iter().zip(asked) {
            let ty = a.ty()?;
            let spec = spec.unwrap_or(ty.spec);
            let spec = match r.inside.uses_logical(spec) {
                true => r.inside.split_by_type(spec).map_err(|f| r.type_error(f, &ty))?.explicit,
                false => spec,
            };
            // the spec may name explicit axes only: over axes that stay auto it would only be a
            // hint
            check_spec(&r.inside, spec, ty.rank(), &[AxisType::Explicit])
                .map_err(|f| r.type_error(f, &ty))?;
            let sharding = Sharding::try_new(&r.inside, spec, &ty.shape).map_err(|f| r.type_error(f, &ty))?;
            // the spec repeats the sharding over axes that are explicit outside, and may change it
            let before = r.without_axes(sharding.explicit());
            let moved = if before == ty.spec.padded(ty.rank()) {
                a.clone()
            } else {
                a.put_at(&r.outer, before, r.call)
            };
            // unreduced and reduced axes that are auto outside are introduced inside
            let enters = r.sets_without(sharding.explicit());
            types.push(ArrayType { mesh: Some(r.inside.clone()), spec: enters, ..moved.ty()? });
            leaves.push((moved, sharding.explicit()));
        }
        let piece = RecordedClosure::record_in(r.open()?, &types, |xs| {
            let xs = xs.iter().zip(&leaves).map(|(x, (_, spec))| {
                if r.sets_without(*spec) == *spec { x.clone() } else { x.put_at(&r.inside, *spec, r.call) }
            });
            let out = returned.remember(f(tree_of(&args, xs.collect())))?;
            check_errors(&out)?;
            let summed = collect(&out).into_iter().map(|a| match a.type_ref() {
                Ok(ty) if r.sets_without(ty.spec) != ty.spec => {
                    a.put_at(&r.inside, r.sets_without(ty.spec), r.call)
                }
                _ => a,
            });
            Ok(tree_of(&out, summed.collect()))
        })?;
        let types: Vec<ArrayType> = (piece.program.output_types().into_iter())
            .map(|ty| ArrayType { mesh: Some(r.outer.clone()), spec: r.without_axes(ty.spec), ..ty })
            .collect();
        let out_specs = vec![None; types.len()];
        r.emit(leaves.into_iter().map(|l| l.0).collect(), piece, out_specs, types)
    };
    run().unwrap_or_else(|e| returned.poisoned(&e))
}
