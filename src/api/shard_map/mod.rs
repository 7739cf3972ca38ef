//! Manual mode: the user's per-device code, traced.
//!
//! [`shard_map`] splits its arguments into blocks, traces the body on one block of each, and
//! assembles the results. Types in the body are those of one device's blocks, and say over which
//! axes the blocks differ between devices (`{V:X}`). Only collectives make a value equal on all
//! devices again. So if `out_specs` declare that a result is equal on all devices, types prove it.

mod boundary;
mod smap;

pub use smap::{SmapDims, smap};

use crate::api::array::Array;
use crate::api::trace::{OpenTrace, Setting, apply_control, apply1, setting};
use crate::api::transform::control::{RecordedClosure, tree_of};
use crate::api::transform::{
    Compiled, Jit, Lowered, OutputTree, Traced, WrapperMarker, boxed_body, check_arguments, check_errors,
};
use crate::api::tree::{CallArgs, Func, Output, Specs, Tree, collect};
use crate::core::{Axes, Axis, AxisType, Error, Mesh, Result, Spec};
use crate::exec::engine::EngineKind;
use crate::ir::ops::collective::{CollectiveGroup, Pcast, PcastTo};
use crate::ir::program::{CallSite, Control, ShardMapping};
use boundary::{Boundary, RegionResults as Outgoing};
use smap::BlockSpecs;
use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

/// Creates a program from per-device code over a mesh.
///
/// `in_specs` split the arguments into blocks, `f` is traced on one block of each, and `out_specs`
/// assemble the results. One spec applies to a whole subtree. With [`crate::Inferred`] as
/// `in_specs`, the specs are those of the arguments' types. The parameters are the same as those of
/// `spmd`.
/// The closure takes its blocks by reference or by value, with their types written out
/// ([closures and arguments](crate#closures-and-arguments)).
///
/// A value that the closure captures is the same on all devices: the whole array, not a block. On
/// an auto axis an array is gathered if devices hold blocks of it. On an explicit axis it is an
/// error if the type of a captured value shards a dimension over the axis: pass it as an argument.
/// A captured partial sum (`{U:X}`) keeps its type. [`type_of`](crate::type_of()) of a captured
/// value says, in the body, what the body's operations see.
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
///
/// // each device multiplies its block by the captured sum of all elements
/// let sum = a.sum(..);
/// let scaled = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x / &sum).call(&a)?;
/// assert_eq!(type_of(scaled), "float32[32@X]");
/// let captured = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x / a.sum(..)).call(&a);
/// assert!(captured.unwrap_err().to_string().contains("pass it as an argument"));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("local_map", "pmap"))]
#[track_caller]
pub fn shard_map<'f, M, F: Func<M, Ret: Output> + 'f>(
    mesh: &Mesh,
    in_specs: impl Specs,
    out_specs: impl Specs,
    f: F,
) -> ShardMap<'f, F::In, OutputTree<F, M>> {
    let settings = Settings {
        mesh: mesh.clone(),
        in_specs: BlockSpecs::Tree(in_specs.spec_tree()),
        out_specs: BlockSpecs::Tree(out_specs.spec_tree()),
        axes: None,
        checked: true,
        call: CallSite::new("shard_map", Location::caller()),
    };
    map_blocks(settings, f)
}

/// Creates a program from per-device code, with these settings.
fn map_blocks<'f, M, F: Func<M, Ret: Output> + 'f>(
    settings: Settings,
    f: F,
) -> ShardMap<'f, F::In, OutputTree<F, M>> {
    let settings = Rc::new(RefCell::new(settings));
    let arity = f.arity();
    let body = boxed_body(f);
    let shared = settings.clone();
    let jit =
        Jit::from_body(Box::new(move |input: &F::In| record_region(&shared.borrow(), &*body, input)), arity);
    ShardMap { settings, jit }
}

/// Per-device code, created by [`shard_map`] and [`smap`].
///
/// A call from ordinary code compiles it once for each set of argument types. A call inside another
/// traced function becomes one equation of that function's program.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let sum = |x: &Array| x.sum(0).psum("X");
/// let sums: ShardMap<Array, Array> = shard_map(&mesh, p!["X"], p![], sum);
/// assert_eq!(sums.call(Array::arange(0..4))?.item::<i32>()?, 6);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[must_use = "per-device code does nothing until it is called"]
pub struct ShardMap<'f, I, O> {
    settings: Rc<RefCell<Settings>>,
    jit: Jit<'f, I, O>,
}

impl<I, O> std::fmt::Debug for ShardMap<'_, I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Settings { mesh, in_specs, out_specs, axes, checked, .. } = &*self.settings.borrow();
        let mut debug = f.debug_struct("ShardMap");
        debug.field("mesh", mesh).field("in_specs", in_specs).field("out_specs", out_specs);
        debug.field("axes", axes).field("checked", checked).finish_non_exhaustive()
    }
}
// sound for the same reason as for the `Jit` that it contains
impl<I, O> std::panic::UnwindSafe for ShardMap<'_, I, O> {}
impl<I, O> std::panic::RefUnwindSafe for ShardMap<'_, I, O> {}

#[derive(Clone)]
struct Settings {
    mesh: Mesh,
    in_specs: BlockSpecs,
    out_specs: BlockSpecs,
    axes: Option<Axes>,
    checked: bool,
    call: CallSite<'static>,
}

impl<I: Tree, O: Tree> ShardMap<'_, I, O> {
    /// Makes the region manual over these axes only; other axes keep their axis types.
    pub fn over(self, axes: impl Into<Axes>) -> Self {
        self.update_settings(|s| s.axes = Some(axes.into()))
    }
    /// Trusts `out_specs`: types do not track varying axes.
    ///
    /// A result that `out_specs` declare equal on all devices along an axis is used as it is on
    /// each of them, without communication. (If it is not equal, this crate's engines return the
    /// value of the first device along the axis.)
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// // a sum by recursive doubling: after two exchanges all four devices have it
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
    #[doc(alias("check_vma", "check_rep"))]
    pub fn unchecked(self) -> Self {
        self.update_settings(|s| s.checked = false)
    }
    fn update_settings(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(&mut self.settings.borrow_mut());
        self.jit = self.jit.with_empty_cache();
        self
    }
    /// Sets the engine that runs the code.
    ///
    /// Defaults to the process's default engine.
    pub fn engine(mut self, engine: EngineKind) -> Self {
        self.jit = self.jit.engine(engine);
        self
    }
    /// Runs the code on every device.
    #[track_caller]
    pub fn call<A: CallArgs<I>>(&self, args: A) -> Result<O> {
        self.jit.call_inline(args.into_tree(), Location::caller())
    }
    /// Records the code as a typed program for arguments like these.
    #[track_caller]
    pub fn trace<A: CallArgs<I>>(&self, args: A) -> Result<Traced<I, O>> {
        self.jit.trace(args)
    }
    /// Traces and lowers the code to a per-device program.
    #[track_caller]
    pub fn lower<A: CallArgs<I>>(&self, args: A) -> Result<Lowered<I, O>> {
        self.jit.lower(args)
    }
    /// Compiles the code for arguments of these types.
    #[track_caller]
    pub fn compile<A: CallArgs<I>>(&self, args: A) -> Result<Compiled<I, O>> {
        self.jit.lower(args)?.compile()
    }
}

macro_rules! impl_func { ($($t:ty),*) => {$(
    #[diagnostic::do_not_recommend]
    impl<I: Tree, O: Tree> Func<WrapperMarker> for $t {
        type In = I;
        type Ret = Result<O>;
        fn arity(&self) -> usize {
            self.jit.num_parameters()
        }
        fn apply(&self, input: &I) -> Result<O> {
            self.jit.run_body(input)
        }
    }
)*} }
impl_func!(ShardMap<'_, I, O>, &ShardMap<'_, I, O>);

/// Records the body as one equation of the open trace.
fn record_region<I: Tree, O: Tree>(s: &Settings, body: &dyn Fn(&I) -> Result<O>, input: &I) -> Result<O> {
    let call = s.call;
    let at = |e: Error| call.locate(e);
    check_arguments(input, call)?;
    let mesh = enclosing_mesh(&s.mesh);
    let axes = s.axes.clone().unwrap_or_else(|| {
        let open = |a: &Axis| mesh.axis_type(*a) != Some(AxisType::Manual);
        mesh.axis_names().iter().copied().filter(open).collect()
    });
    let border = Boundary::new(&mesh, &axes, s.checked).map_err(|f| at(f.into()))?;
    let args = collect(input);
    let asked = s.in_specs.resolve(input, "in").map_err(at)?;
    let in_specs = border.argument_specs(input, &asked).map_err(at)?;
    let types = border.block_types(input, &in_specs).map_err(at)?;
    if !s.in_specs.is_inferred() {
        border.check_argument_shardings(input, &in_specs, &asked).map_err(at)?;
    }

    let open =
        OpenTrace::with_capture_type(Some(call.location), border.capture_rule()).map_err(|f| at(f.into()))?;
    let outer = setting().map_or(Axes::none(), |s| s.untracked);
    let untracked = if s.checked { outer } else { outer.iter().chain(&axes).collect() };
    open.set(Setting { mesh: border.inner_mesh().clone(), untracked });
    let mut out_specs = Vec::new();
    let piece = RecordedClosure::record_in(open, &types, |blocks| {
        let out = body(&tree_of(input, blocks))?;
        check_errors(&out)?;
        let specs = s.out_specs.resolve(&out, "out").map_err(at)?;
        let specs = border.result_specs(&out, &specs).map_err(at)?;
        // a spec may also assemble blocks of a result that is equal on all devices: cast such a
        // result to varying
        let leaves = collect(&out);
        let cast = leaves.iter().zip(&specs).map(|(a, spec)| cast_result(a, &border, *spec, call)).collect();
        let out = tree_of(&out, cast);
        out_specs = specs;
        Ok(out)
    })?;
    let out = piece.out;
    let body_types = piece.program.output_types();
    let checks = border.check_results(&out, &out_specs, &body_types).map_err(at)?;
    border.check_no_repeats(in_specs.iter().chain(&out_specs)).map_err(|f| at(f.into()))?;
    let Outgoing { types } = checks;

    let captured = piece.captures.iter().map(|c| Ok(border.captured_spec(&c.ty()?)?));
    let captured = captured.collect::<Result<Vec<Spec>>>()?;
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

/// Returns the mesh as enclosing regions see it, with their manual axes marked.
fn enclosing_mesh(mesh: &Mesh) -> Mesh {
    let plain = |m: &Mesh| {
        m.with_axis_types(m.axis_names().to_vec(), AxisType::Explicit).unwrap_or_else(|_| m.clone())
    };
    match setting() {
        Some(here) if plain(&here.mesh) == plain(mesh) => here.mesh,
        _ => mesh.clone(),
    }
}

/// Casts a result to the type that its spec requires.
/// It varies over the axes that assemble it, and is unreduced over the spec's unreduced axes.
fn cast_result(a: &Array, border: &Boundary, spec: Spec, call: CallSite<'_>) -> Array {
    let Ok(ty) = a.type_ref() else { return a.clone() };
    if !border.checked() {
        return a.clone();
    }
    let along = |axes: Axes| CollectiveGroup::new(border.inner_mesh().clone(), axes, true);
    let state = |axis| {
        ty.varying.contains(axis)
            || ty.spec.unreduced_axes().contains(axis)
            || ty.spec.reduced_axes().contains(axis)
    };
    let mut out = a.clone();
    let missing: Axes = spec.dims().iter().flat_map(Axes::iter).filter(|axis| !state(*axis)).collect();
    if !missing.is_empty() {
        out = apply1(Arc::new(Pcast { group: along(missing), to: PcastTo::Varying }), &[(&out).into()], call);
    }
    let unreduced: Axes = spec.unreduced_axes().iter().filter(|axis| ty.varying.contains(*axis)).collect();
    if !unreduced.is_empty() {
        out = apply1(
            Arc::new(Pcast { group: along(unreduced), to: PcastTo::Unreduced }),
            &[(&out).into()],
            call,
        );
    }
    out
}
