//! Manual mode: the user's per-device code, traced.
//!
//! [`shard_map`] cuts its arguments into blocks, traces the body on one block of each, and puts the results together. Types in the body are
//! those of one device's blocks and say over which axes the devices' blocks differ (`{V:X}`); only collectives make a value the
//! same on all devices again, so a result that is promised to be the same is proved to be.

mod boundary;

use crate::array::Array;
use crate::diagnostic::{Error, Place, Result};
use crate::engine::EngineKind;
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::ops::collective::{Along, Cast, Pcast};
use crate::program::{Call, Control, ShardMapping};
use crate::sharding::Spec;
use crate::trace::{Open, Setting, apply_control, apply1, setting};
use crate::transform::control::{Piece, tree_of};
use crate::transform::{Compiled, Jit, Lowered, Made, Out, Traced, body, no_error};
use crate::tree::{Args, Func, Output, SpecTree, Specs, Tree, collect, resolve};
use boundary::{Boundary, Out as Outgoing};
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

/// Per-device code over a mesh: `in_specs` cut the arguments into blocks, `f` is traced on one block of each, `out_specs` put the
/// results together.
///
/// One spec is for a whole subtree; [`crate::Inferred`] in place of `in_specs` takes the arguments' own types. The same
/// arguments, in the same order, as `spmd` takes.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 8)])?;
/// let a = Array::arange(0.0..32.0f32).put(&mesh, p!["X"]);
/// let total = shard_map(&mesh, p!["X"], p![], |x: &Array| {
///     assert_eq!(type_of(x), "float32[4]{V:X}"); // one device's block
///     x.sum(..).psum("X")
/// });
/// assert_eq!(total.call(&a)?.item::<f32>()?, 496.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn shard_map<'f, M, F: Func<M, Ret: Output> + 'f>(
    mesh: &Mesh,
    in_specs: impl Specs,
    out_specs: impl Specs,
    f: F,
) -> ShardMap<'f, F::In, Out<F, M>> {
    let settings = Rc::new(RefCell::new(Settings {
        mesh: mesh.clone(),
        in_specs: in_specs.spec_tree(),
        out_specs: out_specs.spec_tree(),
        axes: None,
        checked: true,
        place: Location::caller(),
    }));
    let body = body(f);
    let shared = settings.clone();
    let jit = Jit::of(Box::new(move |input: &F::In| apply(&shared.borrow(), &*body, input)), F::ARITY);
    ShardMap { settings, jit }
}

/// Per-device code, made by [`shard_map`]. Called by itself it is compiled once for each set of argument types; inside
/// another traced function it is one equation of that.
#[must_use = "per-device code does nothing until it is called"]
pub struct ShardMap<'f, I, O> {
    settings: Rc<RefCell<Settings>>,
    jit: Jit<'f, I, O>,
}

impl<I, O> std::fmt::Debug for ShardMap<'_, I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Settings { mesh, in_specs, out_specs, axes, checked, .. } = &*self.settings.borrow();
        let mut told = f.debug_struct("ShardMap");
        told.field("mesh", mesh).field("in_specs", in_specs).field("out_specs", out_specs);
        told.field("axes", axes).field("checked", checked).finish_non_exhaustive()
    }
}
// as of the `Jit` that it is made of
impl<I, O> std::panic::UnwindSafe for ShardMap<'_, I, O> {}
impl<I, O> std::panic::RefUnwindSafe for ShardMap<'_, I, O> {}

#[derive(Clone)]
struct Settings {
    mesh: Mesh,
    in_specs: SpecTree,
    out_specs: SpecTree,
    axes: Option<Axes>,
    checked: bool,
    place: Place,
}

impl<I: Tree, O: Tree> ShardMap<'_, I, O> {
    /// Manual over these axes only; the others stay as they are.
    pub fn over(self, axes: impl Into<Axes>) -> Self {
        self.with(|s| s.axes = Some(axes.into()))
    }
    /// Believes `out_specs`: types do not track what varies. A result that is the same on all devices along an axis, as `out_specs` says, is on
    /// each its own: nothing is moved. (Where it is not the same, engines of this crate give that of the first device along the axis.)
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// // a sum by recursive doubling: two exchanges, after which all four have it
    /// let sum = |x: &Array| {
    ///     let x = x + x.ppermute("X", [(0, 1), (1, 0), (2, 3), (3, 2)]);
    ///     &x + x.ppermute("X", [(0, 2), (1, 3), (2, 0), (3, 1)])
    /// };
    /// let f = shard_map(&mesh, p!["X"], p![], sum).unchecked();
    /// let x = Array::from([1, 2, 3, 4]);
    /// assert_eq!(f.call(&x)?.to_vec::<i32>()?, [10]);
    /// assert_collectives!(f.lower(&x)?, Permute("X") x 2);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn unchecked(self) -> Self {
        self.with(|s| s.checked = false)
    }
    fn with(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(&mut self.settings.borrow_mut());
        self.jit = self.jit.anew();
        self
    }
    /// The engine that runs it, in place of the process's default.
    pub fn engine(mut self, engine: EngineKind) -> Self {
        self.jit = self.jit.engine(engine);
        self
    }
    /// Runs it on every device.
    #[track_caller]
    pub fn call<A: Args<Owned = I>>(&self, args: A) -> Result<O> {
        self.jit.call_inline(args.into_tree(), Location::caller())
    }
    /// Records it for arguments like these: a typed program.
    #[track_caller]
    pub fn trace<A: Args<Owned = I>>(&self, args: A) -> Result<Traced<I, O>> {
        self.jit.trace(args)
    }
    /// All stages up to the per-device program.
    #[track_caller]
    pub fn lower<A: Args<Owned = I>>(&self, args: A) -> Result<Lowered<I, O>> {
        self.jit.lower(args)
    }
    /// All stages.
    #[track_caller]
    pub fn compile<A: Args<Owned = I>>(&self, args: A) -> Result<Compiled<I, O>> {
        self.jit.lower(args)?.compile()
    }
}

macro_rules! made { ($($t:ty),*) => {$(
    #[diagnostic::do_not_recommend]
    impl<I: Tree, O: Tree> Func<Made> for $t {
        type In = I;
        type Ret = Result<O>;
        const ARITY: Option<usize> = None;
        fn apply(&self, input: &I) -> Result<O> {
            self.jit.run_body(input)
        }
    }
)*} }
made!(ShardMap<'_, I, O>, &ShardMap<'_, I, O>);

/// Records the body as one equation of the open trace.
fn apply<I: Tree, O: Tree>(s: &Settings, body: &dyn Fn(&I) -> Result<O>, input: &I) -> Result<O> {
    let call = Call::new("shard_map", s.place);
    let at = |e: Error| call.locate(e);
    no_error(input)?;
    let mesh = around(&s.mesh);
    let axes = s.axes.clone().unwrap_or_else(|| {
        let open = |a: &Axis| mesh.axis_type(*a) != Some(AxisType::Manual);
        mesh.axis_names().iter().copied().filter(open).collect()
    });
    let border = Boundary::new(&mesh, &axes, s.checked).map_err(|f| at(f.into()))?;
    let args = collect(input);
    let asked = resolve(&s.in_specs, input, "in_specs").map_err(at)?;
    let in_specs = border.arguments(input, &asked).map_err(at)?;
    let types = border.blocks(input, &in_specs).map_err(at)?;
    if s.in_specs != SpecTree::Inferred {
        border.lie_so(input, &in_specs, &asked).map_err(at)?;
    }

    let open = Open::within(border.entering()).map_err(|f| at(f.into()))?;
    open.set(Setting { mesh: border.inside().clone(), checked: s.checked });
    let mut out_specs = Vec::new();
    let piece = Piece::record_in(open, &types, |blocks| {
        let out = body(&tree_of(input, blocks))?;
        no_error(&out)?;
        let specs = resolve(&s.out_specs, &out, "out_specs").map_err(at)?;
        let specs = border.results(&out, &specs).map_err(at)?;
        // what is the same on all devices may be put together like what is not
        let leaves = collect(&out);
        let cast = leaves.iter().zip(&specs).map(|(a, spec)| cast(a, &border, *spec, call)).collect();
        let out = tree_of(&out, cast);
        out_specs = specs;
        Ok(out)
    })?;
    let out = piece.out;
    let body_types = piece.program.output_types();
    let checks = border.proved(&out, &out_specs, &body_types).map_err(at)?;
    border.repeats(in_specs.iter().chain(&out_specs)).map_err(|f| at(f.into()))?;
    let Outgoing { types } = checks;

    let captured = piece.captures.iter().map(|c| border.own_spec(&c.ty()?)).collect::<Result<Vec<Spec>>>()?;
    let inputs: Vec<Array> = args.into_iter().chain(piece.captures).collect();
    let control = Control::ShardMap(ShardMapping {
        body: Arc::new(piece.program),
        mesh,
        axes: border.axes().clone(),
        in_specs: in_specs.into_iter().chain(captured).collect(),
        out_specs,
        checked: s.checked,
    });
    Ok(tree_of(&out, apply_control(control, &inputs, types, call)?))
}

/// The mesh as the values around see it: with the axes marked that are manual there already.
fn around(mesh: &Mesh) -> Mesh {
    let plain =
        |m: &Mesh| m.retyped(m.axis_names().to_vec(), AxisType::Explicit).unwrap_or_else(|_| m.clone());
    match setting() {
        Some(here) if plain(&here.mesh) == plain(mesh) => here.mesh,
        _ => mesh.clone(),
    }
}

/// The result as its spec wants it: varying over the axes that it is put together over, unreduced where the spec says so.
fn cast(a: &Array, border: &Boundary, spec: Spec, call: Call<'_>) -> Array {
    let Ok(ty) = a.type_ref() else { return a.clone() };
    if !border.checked() {
        return a.clone();
    }
    let along = |axes: Axes| Along { mesh: border.inside().clone(), axes, checked: true };
    let state = |axis| {
        ty.varying.contains(axis)
            || ty.spec.unreduced_axes().contains(axis)
            || ty.spec.reduced_axes().contains(axis)
    };
    let mut out = a.clone();
    let missing: Axes = spec.dims().iter().flat_map(Axes::iter).filter(|axis| !state(*axis)).collect();
    if !missing.is_empty() {
        out = apply1(Arc::new(Pcast { along: along(missing), to: Cast::Varying }), &[(&out).into()], call);
    }
    let parts: Axes = spec.unreduced_axes().iter().filter(|axis| ty.varying.contains(*axis)).collect();
    if !parts.is_empty() {
        out = apply1(Arc::new(Pcast { along: along(parts), to: Cast::Unreduced }), &[(&out).into()], call);
    }
    out
}
