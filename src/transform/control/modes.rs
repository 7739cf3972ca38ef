//! Regions in which axes are of another type.

use super::{Piece, Returned, tree_of};
use crate::array::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::program::{Call, Control};
use crate::sharding::{Sharding, Spec, check_spec, of_result};
use crate::trace::{Open, Setting, apply_control, setting};
use crate::transform::jit::no_error;
use crate::tree::{Args, Output, Specs, Tree, collect, resolve};
use crate::types::ArrayType;
use std::sync::Arc;

/// Inside, the explicit axes are auto; the results come out as `out` says.
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
    auto(None, args.into_tree(), out, &|x| f(x).into_result(), Call::here("auto_axes"))
}

/// [`auto_axes`] of these axes only.
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
    auto(Some(axes.into()), args.into_tree(), out, &|x| f(x).into_result(), Call::here("auto_axes"))
}

/// Inside, the auto axes are explicit and the arguments sharded as `specs` says; the results come out with these axes auto again.
/// What the closure captures is unsharded over these axes inside: what should be sharded is passed as an argument.
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
#[track_caller]
pub fn explicit_axes<A: Args, R: Output>(args: A, specs: impl Specs, f: impl Fn(A::Owned) -> R) -> R::Tree {
    explicit(None, args.into_tree(), specs, &|x| f(x).into_result(), Call::here("explicit_axes"))
}

/// [`explicit_axes`] of these axes only.
#[track_caller]
pub fn explicit_axes_over<A: Args, R: Output>(
    axes: impl Into<Axes>,
    args: A,
    specs: impl Specs,
    f: impl Fn(A::Owned) -> R,
) -> R::Tree {
    explicit(Some(axes.into()), args.into_tree(), specs, &|x| f(x).into_result(), Call::here("explicit_axes"))
}

/// The region: where it begins, what it is called, the mesh outside and inside.
struct Region {
    call: Call<'static>,
    outer: Mesh,
    inside: Mesh,
    axes: Axes,
}

impl Region {
    fn new<T: Tree>(call: Call<'static>, axes: Option<Axes>, args: &T, to: AxisType) -> Result<Region> {
        let refuse = |f: Fault| call.error(f, Vec::new);
        no_error(args)?;
        let mesh = collect(args).iter().find_map(|a| a.type_ref().ok().and_then(|t| t.mesh.clone()));
        let Some(outer) = mesh.or_else(|| setting().map(|s| s.mesh)) else {
            let fault = Fault::new(ErrorKind::Mesh, "no argument is on a mesh, so there are no axes")
                .help("put one there first: `.put(&mesh, p![..])`");
            return Err(refuse(fault));
        };
        let from = if to == AxisType::Auto { AxisType::Explicit } else { AxisType::Auto };
        let axes: Axes = match axes {
            None => outer.axes_of(from).into(),
            Some(axes) => {
                for a in axes.iter() {
                    match outer.axis_type(a) {
                        None => return Err(refuse(outer.unknown(a))),
                        Some(AxisType::Manual) => {
                            let message = format!("{a} is manual here: it stays so to the end of the region");
                            return Err(refuse(Fault::new(ErrorKind::Mesh, message).help("name other axes")));
                        }
                        Some(_) => {}
                    }
                }
                axes.iter().filter(|a| outer.axis_type(*a) == Some(from)).collect()
            }
        };
        let inside = outer.retyped(axes.clone(), to).map_err(|e| call.locate(e))?;
        Ok(Region { call, outer, inside, axes })
    }
    fn refuse(&self, fault: Fault, ty: &ArrayType) -> Error {
        self.call.error(fault, || vec![ty.to_string()])
    }
    fn at(&self, e: Error) -> Error {
        self.call.locate(e)
    }
    /// The spec without the region's axes.
    fn others(&self, spec: Spec) -> Spec {
        spec.only(|a| !self.axes.contains(a))
    }
    fn sets_without(&self, spec: Spec) -> Spec {
        let (u, r) = (spec.unreduced_axes(), spec.reduced_axes());
        spec.unreduced(u.without(&self.axes)).reduced(r.without(&self.axes))
    }
    /// The argument with nothing unreduced or reduced over the region's axes.
    fn summed(&self, a: &Array) -> Array {
        match a.type_ref() {
            Ok(ty) if self.sets_without(ty.spec) != ty.spec => {
                a.put_at(&self.outer, self.sets_without(ty.spec), self.call)
            }
            _ => a.clone(),
        }
    }
    /// A trace of the region's body.
    fn open(&self) -> Result<Open, Fault> {
        let (inside, outer, axes) = (self.inside.clone(), self.outer.clone(), self.axes.clone());
        let checked = setting().is_none_or(|s| s.checked);
        let open = Open::within(Box::new(move |ty| {
            if ty.mesh.as_ref().is_some_and(|m| *m != outer) {
                return Err(Fault::new(
                    ErrorKind::Mesh,
                    format!("a captured value is on another mesh than {outer}"),
                )
                .help("put it there first: `.put(&mesh, p![…])`"));
            }
            let named = |set: &Axes| set.iter().any(|a| axes.contains(a));
            if named(ty.spec.unreduced_axes()) || named(ty.spec.reduced_axes()) {
                return Err(Fault::new(
                    ErrorKind::Sharding,
                    format!("a captured value is {ty}: it cannot be unreduced or reduced over axes that change their type"),
                )
                .help("pass it as an argument, or reshard it first"));
            }
            Ok(ArrayType {
                mesh: Some(inside.clone()),
                spec: ty.spec.only(|a| !axes.contains(a)),
                ..ty.clone()
            })
        }))?;
        open.set(Setting { mesh: self.inside.clone(), checked });
        Ok(open)
    }
    fn emit<O: Tree>(
        &self,
        args: Vec<Array>,
        piece: Piece<O>,
        out_specs: Vec<Option<Spec>>,
        types: Vec<ArrayType>,
    ) -> Result<O> {
        let inputs: Vec<Array> = args.into_iter().chain(piece.captures).collect();
        let control = Control::Modes { body: Arc::new(piece.program), out_specs };
        Ok(tree_of(&piece.out, apply_control(control, &inputs, types, self.call)?))
    }
}

fn auto<T: Tree, O: Tree>(
    axes: Option<Axes>,
    args: T,
    out: impl Specs,
    f: &dyn Fn(T) -> Result<O>,
    call: Call<'static>,
) -> O {
    let specs = out.spec_tree();
    let returned = Returned::new();
    let run = || -> Result<O> {
        let r = Region::new(call, axes, &args, AxisType::Auto)?;
        let leaves: Vec<Array> = collect(&args).iter().map(|a| r.summed(a)).collect();
        let types: Vec<ArrayType> = leaves
            .iter()
            .map(|a| {
                let ty = a.ty()?;
                Ok(ArrayType { mesh: Some(r.inside.clone()), spec: r.others(ty.spec), ..ty })
            })
            .collect::<Result<_>>()?;
        let mut wanted: Vec<Spec> = Vec::new();
        let piece = Piece::record_in(r.open()?, &types, |xs| {
            let out = returned.note(f(tree_of(&args, xs)))?;
            no_error(&out)?;
            let asked = resolve(&specs, &out, "`out`").map_err(|e| r.at(e))?;
            let mut results = Vec::new();
            for (a, spec) in collect(&out).iter().zip(asked) {
                let ty = a.ty()?;
                let Some(spec) = spec else {
                    let fault = Fault::new(
                        ErrorKind::Sharding,
                        "the caller says how results over auto axes are sharded",
                    )
                    .help("give a spec for each result: `p![..]`");
                    return Err(r.refuse(fault, &ty));
                };
                let sharding = Sharding::checked(&r.outer, spec, &ty.shape)
                    .map_err(|f| r.refuse(of_result(f, spec, ty.rank()), &ty))?;
                // it is sharded so inside already; sets over the region's axes are made outside
                results.push(a.put_at(&r.inside, r.sets_without(sharding.spec), r.call));
                wanted.push(sharding.spec);
            }
            Ok(tree_of(&out, results))
        })?;
        let explicit = |a: Axis| r.outer.axis_type(a) == Some(AxisType::Explicit);
        let types: Vec<ArrayType> = (piece.program.output_types().into_iter().zip(&wanted))
            .map(|(ty, spec)| ArrayType {
                mesh: Some(r.outer.clone()),
                spec: r.sets_without(*spec).only(explicit),
                ..ty
            })
            .collect();
        let out_specs = wanted.iter().map(|s| Some(r.sets_without(*s))).collect();
        let out = r.emit(leaves, piece, out_specs, types)?;
        let moved = collect(&out).into_iter().zip(&wanted).map(|(a, spec)| {
            if r.sets_without(*spec) == *spec { a } else { a.put_at(&r.outer, *spec, r.call) }
        });
        Ok(tree_of(&out, moved.collect()))
    };
    run().unwrap_or_else(|e| returned.failed(&e))
}

fn explicit<T: Tree, O: Tree>(
    axes: Option<Axes>,
    args: T,
    specs: impl Specs,
    f: &dyn Fn(T) -> Result<O>,
    call: Call<'static>,
) -> O {
    let specs = specs.spec_tree();
    let returned = Returned::new();
    let run = || -> Result<O> {
        let r = Region::new(call, axes, &args, AxisType::Explicit)?;
        let asked = resolve(&specs, &args, "`specs`").map_err(|e| r.at(e))?;
        let mut leaves = Vec::new();
        let mut types = Vec::new();
        for (a, spec) in collect(&args).iter().zip(asked) {
            let ty = a.ty()?;
            let spec = spec.unwrap_or(ty.spec);
            // over axes that stay auto the spec would be no more than a wish
            check_spec(&r.inside, spec, ty.rank(), &[AxisType::Explicit]).map_err(|f| r.refuse(f, &ty))?;
            let sharding = Sharding::checked(&r.inside, spec, &ty.shape).map_err(|f| r.refuse(f, &ty))?;
            // what the type says already of explicit axes is said again, and may be said otherwise
            let before = r.others(sharding.explicit());
            let moved = if before == ty.spec.padded(ty.rank()) {
                a.clone()
            } else {
                a.put_at(&r.outer, before, r.call)
            };
            // sets over axes that are auto outside are made inside
            let enters = r.sets_without(sharding.explicit());
            types.push(ArrayType { mesh: Some(r.inside.clone()), spec: enters, ..moved.ty()? });
            leaves.push((moved, sharding.explicit()));
        }
        let piece = Piece::record_in(r.open()?, &types, |xs| {
            let xs = xs.iter().zip(&leaves).map(|(x, (_, spec))| {
                if r.sets_without(*spec) == *spec { x.clone() } else { x.put_at(&r.inside, *spec, r.call) }
            });
            let out = returned.note(f(tree_of(&args, xs.collect())))?;
            no_error(&out)?;
            let summed = collect(&out).into_iter().map(|a| match a.type_ref() {
                Ok(ty) if r.sets_without(ty.spec) != ty.spec => {
                    a.put_at(&r.inside, r.sets_without(ty.spec), r.call)
                }
                _ => a,
            });
            Ok(tree_of(&out, summed.collect()))
        })?;
        let types: Vec<ArrayType> = (piece.program.output_types().into_iter())
            .map(|ty| ArrayType { mesh: Some(r.outer.clone()), spec: r.others(ty.spec), ..ty })
            .collect();
        let out_specs = vec![None; types.len()];
        r.emit(leaves.into_iter().map(|l| l.0).collect(), piece, out_specs, types)
    };
    run().unwrap_or_else(|e| returned.failed(&e))
}
