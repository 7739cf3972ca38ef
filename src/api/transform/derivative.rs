//! Derivatives: `grad`, `value_and_grad`, `jvp`, `vjp` and `checkpoint`.
//!
//! Each takes the point first and the closure last, and evaluates at that point instead of
//! returning a transformed function; `vjp` also returns the pullback. Arrays that the closure
//! captures are constants. On concrete arrays they run eagerly: the closure is traced at every
//! call, and the executable of an equal program is reused.

use super::control::{RecordedClosure, ReturnedTree, poisoned_tree, tree_of, unify};
use super::jit::{check_arguments, check_errors};
use super::stages::mark_difference;
use crate::api::array::Array;
use crate::api::trace::{build, in_call, poison};
use crate::api::tree::{Args, CallArgs, Loss, Output, Path, Tree, collect, mismatch};
use crate::core::{ArrayType, Axes, AxisType, Error, ErrorKind, Fault, Result, TypePart, util::small_sort};
use crate::ir::grad::{jvp_program, vjp_program, vjp_program_for_results};
use crate::ir::program::{
    Builder, CallSite, CheckpointPolicy, Control, Op, Program, Value, typing::cotangent_type,
};
use std::fmt;
use std::sync::Arc;

/// Returns the gradient of `f` at a point, as a tree like the point.
///
/// `f` returns a scalar loss, or a tuple of a scalar loss and auxiliary values. It takes a tree
/// like `at` by value, and rustc infers the type: `|x|`, `|(w, b)|`
/// ([closures and arguments](crate#closures-and-arguments)).
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 2.0]);
/// let g = grad(&x, |x| x.square().sum(..));
/// assert_eq!(g.to_vec::<f32>()?, [2.0, 4.0]);
/// let (gx, gy) = grad((&x, Array::from(3.0f32)), |(x, y)| (x * y).sum(..));
/// assert_eq!(gx.to_vec::<f32>()?, [3.0, 3.0]);
/// assert_eq!(gy.item::<f32>()?, 3.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn grad<A: Args, R: Output<Tree: Loss>>(point: A, f: impl Fn(A::Owned) -> R) -> A::Owned {
    let (call, at) = (CallSite::here("grad"), point.into_tree());
    match loss_and_cotangents(&at, &|x| f(x).into_result(), call) {
        Ok((_, g)) => in_call(call.location, || tree_of(&at, g)),
        Err(e) => {
            let _ = poison(e.clone());
            poisoned_tree(&at, &e)
        }
    }
}

/// Returns the result of `f`, and the gradient of its scalar loss (the first element of a tuple).
///
/// `f` takes a tree like `point` by value, as in [`grad`].
///
/// ```
/// use atmesh::prelude::*;
/// let ((loss, double), g) = value_and_grad(Array::from(3.0f32), |x| (x.square(), &x * 2.0));
/// assert_eq!((loss.item::<f32>()?, double.item::<f32>()?, g.item::<f32>()?), (9.0, 6.0, 6.0));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn value_and_grad<A: Args, R: Output<Tree: Loss>>(
    point: A,
    f: impl Fn(A::Owned) -> R,
) -> (R::Tree, A::Owned) {
    let (call, at) = (CallSite::here("value_and_grad"), point.into_tree());
    let returned = ReturnedTree::new();
    let f = |x| returned.remember(f(x).into_result());
    match loss_and_cotangents(&at, &f, call) {
        Ok((out, g)) => (out, in_call(call.location, || tree_of(&at, g))),
        Err(e) => (returned.poisoned(&e), poisoned_tree(&at, &e)),
    }
}

/// Records the closure as a program whose inputs are the leaves of `at`. Returns the program, its
/// inputs (leaves, then captures) and its result tree.
fn record<A: Tree, R: Tree>(
    at: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: CallSite<'_>,
) -> Result<(Program, Vec<Array>, R)> {
    check_arguments(at, call)?;
    let leaves = collect(at);
    let types: Vec<ArrayType> = leaves.iter().map(Array::ty).collect::<Result<_>>()?;
    let mut errors = Vec::new();
    at.visit(&mut Path::named(), &mut |path, a| {
        let Ok(ty) = a.type_ref() else { return };
        if !ty.dtype.is_float() {
            let name = path.name_or("the argument");
            let message =
                format!("cannot differentiate with respect to {name}: {ty} is not a floating-point type");
            let fault = Fault::new(ErrorKind::Dtype, message)
                .help("convert it first: `.astype(F32)`")
                .help("or capture it: captured values are constants")
                .highlight(0, TypePart::Dtype);
            errors.push(call.error(fault, || vec![ty.to_string()]));
        }
    });
    if !errors.is_empty() {
        return Err(Error::combine(errors));
    }
    let piece = RecordedClosure::record(call, &types, |xs| f(tree_of(at, xs)))?;
    Ok((piece.program, leaves.into_iter().chain(piece.captures).collect(), piece.out))
}

/// Returns the result of `f`, and the cotangents of the leaves of `at`.
pub(crate) fn loss_and_cotangents<A: Tree, R: Tree>(
    at: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: CallSite<'_>,
) -> Result<(R, Vec<Array>)> {
    let (program, inputs, out) = record(at, f, call)?;
    let types = program.output_types();
    let Some(loss) = types.first() else {
        let fault = fault!(Shape, "the function returns no array to differentiate")
            .help("return the loss first: one float");
        return Err(call.error(fault, Vec::new));
    };
    let rejection = if loss.rank() != 0 {
        Some(
            fault!(Shape, "`grad` needs a scalar loss, but the function returns {loss}")
                .help("sum it: `.sum(..)`")
                .help("or take `vjp`, with a cotangent of that shape"),
        )
    } else if !loss.dtype.is_float() {
        Some(
            fault!(Dtype, "the loss must be a float, but the function returns {loss}")
                .help("convert it: `.astype(F32)`")
                .highlight(0, TypePart::Dtype),
        )
    } else {
        None
    };
    if let Some(fault) = rejection {
        return Err(call.error(fault, || vec![loss.to_string()]));
    }
    let n = collect(at).len();
    let wrt: Vec<usize> = (0..n).collect();
    // auxiliary results are not differentiated
    let results = types.len();
    let first: Vec<bool> = (0..results).map(|i| i == 0).collect();
    let vjp = vjp_program_for_results(&program, &wrt, &first).map_err(|e| call.locate(e))?;
    let mut all = build(&inputs, call, |b, values| {
        let mut values = b.inline(&vjp.forward, values);
        let mut back = values.split_off(results);
        if vjp.depends[0] {
            back.push(constant_cotangent(b, &types[0], 1.0)?);
        }
        values.extend(b.inline(&vjp.backward, &back));
        Ok(values)
    })?;
    let grads = all.split_off(results);
    Ok((tree_of(&out, all), grads))
}

/// Builds the cotangent of a value of type `ty` that equals `value` everywhere.
fn constant_cotangent(b: &mut Builder, ty: &ArrayType, value: f64) -> Result<Value> {
    let expected = cotangent_type(ty);
    // a constant must be counted once: if the cotangent is unreduced over explicit axes, only the
    // first partial value is non-zero
    let manual = |a| ty.mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Manual));
    let unreduced: Axes = expected.spec.unreduced_axes().iter().filter(|a| manual(*a)).collect();
    let number =
        b.full(&ArrayType { spec: expected.spec.unreduced(unreduced), ..expected.clone() }, value)?;
    b.reshard_to(&number, &expected)
}

/// Returns the value of `f` at a point, and its directional derivative along `tangent`.
///
/// `tangent` is a tree like the point. `f` takes the point by value, as in [`grad`].
///
/// ```
/// use atmesh::prelude::*;
/// let (y, dy) = jvp(Array::from(2.0f32), 1.0, |x| &x * &x * &x);
/// assert_eq!((y.item::<f32>()?, dy.item::<f32>()?), (8.0, 12.0));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn jvp<A: Args, R: Output>(
    point: A,
    tangent: impl CallArgs<A::Owned>,
    f: impl Fn(A::Owned) -> R,
) -> (R::Tree, R::Tree) {
    let call = CallSite::here("jvp");
    let (at, tangent) = (point.into_tree(), tangent.into_tree());
    let returned = ReturnedTree::new();
    let f = |x| returned.remember(f(x).into_result());
    run_jvp(&at, &tangent, &f, call).unwrap_or_else(|e| (returned.poisoned(&e), returned.poisoned(&e)))
}

fn run_jvp<A: Tree, R: Tree>(
    at: &A,
    tangent: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: CallSite<'_>,
) -> Result<(R, R)> {
    if let Some(how) = at.differs(tangent, &mut Path::named()) {
        return Err(mismatch("the point and its tangent", &how, call));
    }
    let (program, mut inputs, out) = record(at, f, call)?;
    let leaves = collect(at);
    let tangents = collect(tangent);
    let expected: Vec<ArrayType> = leaves.iter().map(Array::ty).collect::<Result<_>>()?;
    check_types("tangent", tangent, &expected, AllowedCast::Varying, call)?;
    let active: Vec<bool> = (0..inputs.len()).map(|i| i < leaves.len()).collect();
    let jvp = jvp_program(&program, &active).map_err(|e| call.locate(e))?;
    let types = program.output_types();
    let count = inputs.len();
    inputs.extend(tangents);
    let mut all = build(&inputs, call, |b, values| {
        let mut ins = values[..count].to_vec();
        for (t, ty) in values[count..].iter().zip(&expected) {
            ins.push(b.fit_to_type(t, ty)?);
        }
        let mut values = b.inline(&jvp.program, &ins);
        let mut found = values.split_off(types.len()).into_iter();
        for (ty, has) in types.iter().zip(&jvp.tangents) {
            values.push(match (has, ty.dtype.is_inexact()) {
                (true, _) => found.next().expect("one for each that has one"),
                // a result that is constant or not a float has a zero tangent
                (false, _) => b.zeros(ty)?,
            });
        }
        Ok(values)
    })?;
    let dots = all.split_off(types.len());
    Ok((tree_of(&out, all), tree_of(&out, dots)))
}

/// Returns the value of `f` at a point, and its pullback.
///
/// The pullback maps a cotangent of the result to a cotangent of the point. `f` takes the point by
/// value, as in [`grad`].
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 2.0]);
/// let (y, pull) = vjp(&x, |x| x.sin());
/// let dx = pull.call(Array::from([1.0f32, 0.0]));
/// assert_eq!(dx.to_vec::<f32>()?[1], 0.0);
/// # let _ = y;
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn vjp<A: Args, R: Output>(
    point: A,
    f: impl Fn(A::Owned) -> R,
) -> (R::Tree, Pullback<R::Tree, A::Owned>) {
    let (call, at) = (CallSite::here("vjp"), point.into_tree());
    let returned = ReturnedTree::new();
    run_vjp(&at, &|x| returned.remember(f(x).into_result()), call).unwrap_or_else(|e| {
        let (out, at) = (returned.poisoned(&e), poisoned_tree(&at, &e));
        (returned.poisoned(&e), Pullback { state: Err(e), result: out, point: at })
    })
}

/// The pullback made by [`vjp`], which maps a cotangent of the result to one of the argument. It
/// may be called many times.
#[must_use = "it does nothing until it is called"]
pub struct Pullback<R, A> {
    state: Result<PullbackProgram>,
    /// The result. Cotangents must have its tree and types.
    result: R,
    /// The point at which the derivative was taken.
    point: A,
}

/// Prints the types of the result.
impl<R: Tree, A> fmt::Debug for Pullback<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<String> = collect(&self.result)
            .iter()
            .map(|a| a.ty().map_or_else(|_| "an error".into(), |t| t.to_string()))
            .collect();
        write!(f, "Pullback(of {})", types.join(", "))
    }
}

struct PullbackProgram {
    program: Program,
    /// The values saved for the backward pass, which are inputs of the program.
    residuals: Vec<Array>,
    /// For each leaf of the result, true if it depends on the point. Only these have a cotangent
    /// input.
    depends: Vec<bool>,
}

fn run_vjp<A: Tree, R: Tree>(
    at: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: CallSite<'_>,
) -> Result<(R, Pullback<R, A>)> {
    let (program, inputs, out) = record(at, f, call)?;
    let wrt: Vec<usize> = (0..collect(at).len()).collect();
    let vjp = vjp_program(&program, &wrt).map_err(|e| call.locate(e))?;
    let mut values = build(&inputs, call, |b, values| Ok(b.inline(&vjp.forward, values)))?;
    let residuals = values.split_off(program.outputs.len());
    let out = tree_of(&out, values);
    let backward = PullbackProgram { program: vjp.backward, residuals, depends: vjp.depends };
    let same = |t: &R| tree_of(t, collect(t));
    let pull = Pullback { state: Ok(backward), result: same(&out), point: tree_of(at, collect(at)) };
    Ok((out, pull))
}

impl<R: Tree, A: Tree> Pullback<R, A> {
    /// Returns the cotangent of the argument for a cotangent of the result.
    ///
    /// A cotangent has the tree and types of the value, with unreduced and reduced axes exchanged.
    #[track_caller]
    pub fn call<C: CallArgs<R>>(&self, cotangent: C) -> A {
        let call = CallSite::here("vjp");
        let cotangent = cotangent.into_tree();
        match self.pull(&cotangent, self.result.differs(&cotangent, &mut Path::named()), call) {
            Ok(all) => in_call(call.location, || tree_of(&self.point, all)),
            Err(e) => {
                let _ = poison(e.clone());
                poisoned_tree(&self.point, &e)
            }
        }
    }
    /// Returns the result of the function.
    #[cfg(feature = "typed")]
    pub(crate) fn result(&self) -> &R {
        &self.result
    }
    /// Returns the point at which the derivative was taken.
    #[cfg(feature = "typed")]
    pub(crate) fn point(&self) -> &A {
        &self.point
    }
    /// Returns the cotangents of the leaves of the argument. `differs` is the first difference in
    /// structure between the result and its cotangent.
    pub(crate) fn pull<C: Tree>(
        &self,
        cotangent: &C,
        differs: Option<String>,
        call: CallSite<'_>,
    ) -> Result<Vec<Array>> {
        let back = self.state.as_ref().map_err(Error::clone)?;
        if let Some(how) = differs {
            return Err(mismatch("the result and its cotangent", &how, call));
        }
        let expected: Vec<ArrayType> =
            collect(&self.result).iter().map(|y| Ok(cotangent_type(&y.ty()?))).collect::<Result<_>>()?;
        check_errors(cotangent)?;
        let given = collect(cotangent);
        for (ct, (ty, depends)) in given.iter().zip(expected.iter().zip(&back.depends)) {
            if *depends {
                check_types("cotangent", ct, std::slice::from_ref(ty), AllowedCast::NoCast, call)?;
            }
        }
        let cts = given.iter().zip(&back.depends).filter(|(_, d)| **d).map(|(ct, _)| ct.clone());
        let inputs: Vec<Array> = back.residuals.iter().cloned().chain(cts).collect();
        build(&inputs, call, |b, values| Ok(b.inline(&back.program, values)))
    }
}

/// The difference from the required type that [`check_types`] permits, because the caller casts.
#[derive(Clone, Copy, PartialEq)]
enum AllowedCast {
    /// The value may vary over fewer axes than required.
    Varying,
    /// The types must agree.
    NoCast,
}

/// Returns an error if a tangent or cotangent does not have the required type.
fn check_types<T: Tree>(
    what: &str,
    tree: &T,
    expected: &[ArrayType],
    widen: AllowedCast,
    call: CallSite<'_>,
) -> Result<()> {
    check_errors(tree)?;
    let mut errors = Vec::new();
    let mut expected = expected.iter();
    tree.visit(&mut Path::named(), &mut |path, a| {
        let (Ok(ty), Some(want)) = (a.type_ref(), expected.next()) else { return };
        let mut ty = ty.clone();
        if widen == AllowedCast::Varying && ty.varying.iter().all(|x| want.varying.contains(x)) {
            ty.varying = want.varying.clone();
            ty.mesh = ty.mesh.or_else(|| want.mesh.clone());
        }
        if unify::unify(&ty, want).is_none() {
            let kind = super::stages::first_difference(&ty, want);
            let name =
                if path.parts().is_empty() { format!("the {what}") } else { format!("the {what} `{path}`") };
            let fault = Fault::new(kind, format!("{name} is {ty}, but must be {want}"));
            let more = ty.varying.without(&want.varying);
            let fault = match kind {
                ErrorKind::Varying if !more.is_empty() => {
                    let of = if what == "tangent" { "value" } else { "function's result" };
                    fault.help(format!("make the {of} vary too: `.pvary({})` on it", more.quoted()))
                }
                _ => unify::suggest_conversion(fault, &ty, want),
            };
            let fault = mark_difference(fault, 0, &ty, want);
            errors.push(call.error(fault, || vec![ty.to_string()]));
        }
    });
    if errors.is_empty() { Ok(()) } else { Err(Error::combine(errors)) }
}

/// Returns the value of `f` at a point; derivatives recompute `f` in the backward pass.
///
/// Only the point is saved for the backward pass.
///
/// ```
/// use atmesh::prelude::*;
/// let g = grad(Array::from(0.5f32), |x| checkpoint(&x, |x| x.sin().exp()));
/// assert!((g.item::<f32>()? - 1.4174).abs() < 1e-3);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// [`checkpoint_with`] can save more values.
#[doc(alias("remat"))]
#[track_caller]
pub fn checkpoint<A: Args, R: Output>(point: A, f: impl Fn(A::Owned) -> R) -> R::Tree {
    run_checkpoint(
        point.into_tree(),
        CheckpointPolicy::SaveNothing,
        &|x| f(x).into_result(),
        CallSite::here("checkpoint"),
    )
}

/// Runs [`checkpoint`] with a policy that decides which values of `f` are saved.
///
/// The point is always saved. A saved value takes memory until the backward pass, but need not be
/// computed or gathered again. [`Lowered::memory`](crate::Lowered::memory) and
/// [`Lowered::plan`](crate::Lowered::plan) show the cost of each policy; rows of the plan are
/// marked if they are recomputed.
///
/// # Errors
/// Returns an error if the policy names a value that `f` does not name.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::{CheckpointPolicy, checkpoint_with};
/// let layer = |x: Array| {
///     let h = x.sin().checkpoint_name("h");
///     h.exp()
/// };
/// let g = |keep: CheckpointPolicy| grad(Array::from(0.5f32),
///     |x| checkpoint_with(x, keep.clone(), layer));
/// let all = g(CheckpointPolicy::SaveAll);
/// for keep in [CheckpointPolicy::SaveNothing, CheckpointPolicy::SaveAllButGathers,
///     CheckpointPolicy::named(["h"])] {
///     assert_eq!(g(keep).item::<f32>()?, all.item::<f32>()?);
/// }
/// assert!(g(CheckpointPolicy::named(["k"])).ty().is_err());
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("remat"))]
#[track_caller]
pub fn checkpoint_with<A: Args, R: Output>(
    point: A,
    keep: CheckpointPolicy,
    f: impl Fn(A::Owned) -> R,
) -> R::Tree {
    run_checkpoint(point.into_tree(), keep, &|x| f(x).into_result(), CallSite::here("checkpoint_with"))
}

fn run_checkpoint<A: Tree, R: Tree>(
    at: A,
    keep: CheckpointPolicy,
    f: &dyn Fn(A) -> Result<R>,
    call: CallSite<'_>,
) -> R {
    let returned = ReturnedTree::new();
    let run = || -> Result<R> {
        check_arguments(&at, call)?;
        let leaves = collect(&at);
        let types: Vec<ArrayType> = leaves.iter().map(Array::ty).collect::<Result<_>>()?;
        let piece = RecordedClosure::record(call, &types, |xs| returned.remember(f(tree_of(&at, xs))))?;
        check_saved_names(&keep, &piece.program, call)?;
        let types = piece.program.output_types();
        let inputs: Vec<Array> = leaves.into_iter().chain(piece.captures).collect();
        let control = Control::call(Arc::new(piece.program), keep.clone());
        Ok(tree_of(&piece.out, crate::api::trace::apply_control(control, &inputs, types, call)?))
    };
    run().unwrap_or_else(|e| returned.poisoned(&e))
}

/// Returns an error if the policy names a value that does not exist.
fn check_saved_names(keep: &CheckpointPolicy, program: &Program, call: CallSite<'_>) -> Result<()> {
    fn names(program: &Program, all: &mut Vec<String>) {
        for e in &program.equations {
            all.extend(e.name.iter().map(|n| n.to_string()));
            if let Op::Control(c) = &e.op {
                c.bodies().into_iter().for_each(|b| names(b, all));
            }
        }
    }
    let CheckpointPolicy::SaveNamed(requested) = keep else { return Ok(()) };
    let mut all = Vec::new();
    names(program, &mut all);
    small_sort::sort(&mut all);
    all.dedup();
    let Some(none) = requested.iter().find(|n| !all.contains(n)) else { return Ok(()) };
    let message = format!("the policy saves values named {none:?}, but the function names no value so");
    let help = match all.is_empty() {
        true => format!("name one where it is made: `.checkpoint_name({none:?})`"),
        false => format!("its names are {}", all.join(", ")),
    };
    Err(call.error(Fault::new(ErrorKind::Trace, message).help(help), Vec::new))
}
