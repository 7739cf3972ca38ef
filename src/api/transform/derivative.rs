//! Derivatives: `grad`, `value_and_grad`, `jvp` and `vjp`.
//!
//! Each takes the point first and the closure last, and evaluates at that point instead of
//! returning a transformed function; `vjp` also returns the pullback. Arrays that the closure
//! captures are constants. On concrete arrays they run eagerly: the closure is traced at every
//! call, and the executable of an equal program is reused.

use super::control::{RecordedClosure, ReturnedTree, poisoned_tree, tree_of};
use super::jit::{check_arguments, check_errors};
use crate::api::array::Array;
use crate::api::trace::{build, in_call, poison};
use crate::api::tree::{Args, CallArgs, Loss, Output, Path, Tree, collect, mismatch};
use crate::core::{ArrayType, Axes, AxisType, Error, ErrorKind, Fault, Result, TypePart};
use crate::ir::grad::{jvp_program, vjp_program, vjp_program_for_results};
use crate::ir::program::typing::agree::{first_difference, mark_difference, suggest_conversion, unify};
use crate::ir::program::{Builder, CallSite, Input, Program, Value, typing::cotangent_type};
use std::fmt;

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
#[doc(alias("zero_grad", "backward"))]
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
pub(super) fn record<A: Tree, R: Tree>(
    at: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: CallSite<'_>,
) -> Result<(Program, Vec<Array>, R)> {
    check_arguments(at, call)?;
    let leaves = collect(at);
    let types: Vec<ArrayType> = leaves.iter().map(Array::ty).collect::<Result<_>>()?;
    reject_integers(at, call)?;
    let piece = RecordedClosure::record(call, &types, |xs| f(tree_of(at, xs)))?;
    Ok((piece.program, leaves.into_iter().chain(piece.captures).collect(), piece.out))
}

/// Returns an error if an array of the point is not a float.
pub(super) fn reject_integers<A: Tree>(at: &A, call: CallSite<'_>) -> Result<()> {
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
    if errors.is_empty() { Ok(()) } else { Err(Error::combine(errors)) }
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

pub(super) fn run_jvp<A: Tree, R: Tree>(
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
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 2.0]);
/// let (y, pullback) = vjp(&x, |x| x.square());
/// let cotangent = Array::ones([2]);
/// assert_eq!(pullback.call(&cotangent).to_vec::<f32>()?, [2.0, 4.0]);
/// # let _ = y;
/// # Ok::<(), atmesh::Error>(())
/// ```
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
    /// For each residual, true if it is an array of the point.
    from_point: Vec<bool>,
    /// For each leaf of the result, true if it depends on the point. Only these have a cotangent
    /// input.
    depends: Vec<bool>,
}

pub(super) fn run_vjp<A: Tree, R: Tree>(
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
    let is_point = |o: &Input| vjp.forward.inputs[..wrt.len()].iter().any(|v| Input::Var(*v) == *o);
    let from_point = vjp.forward.outputs[program.outputs.len()..].iter().map(is_point).collect();
    let backward = PullbackProgram { program: vjp.backward, residuals, from_point, depends: vjp.depends };
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
    /// Returns the types of the values that are saved for the backward pass, without the arrays of
    /// the point.
    ///
    /// [`checkpoint`](crate::checkpoint) and its policies choose these values.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::ones([4, 8]);
    /// let layer = |x: Array| x.sin().sum(..);
    /// assert_eq!(vjp(&x, layer).1.residuals().len(), 1);
    /// assert!(vjp(&x, |x| checkpoint(x, layer)).1.residuals().is_empty());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("saved_residuals", "print_saved_residuals"))]
    pub fn residuals(&self) -> Vec<ArrayType> {
        let Ok(program) = &self.state else { return Vec::new() };
        let types = program.residuals.iter().zip(&program.from_point).filter(|(_, from_point)| !**from_point);
        types.filter_map(|(a, _)| a.ty().ok()).collect()
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
pub(super) enum AllowedCast {
    /// The value may vary over fewer axes than required.
    Varying,
    /// The types must agree.
    NoCast,
}

/// Returns an error if a tangent or cotangent does not have the required type.
pub(super) fn check_types<T: Tree>(
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
        if unify(&ty, want).is_none() {
            let kind = first_difference(&ty, want);
            let name =
                if path.parts().is_empty() { format!("the {what}") } else { format!("the {what} `{path}`") };
            let fault = Fault::new(kind, format!("{name} is {ty}, but must be {want}"));
            let more = ty.varying.without(&want.varying);
            let fault = match kind {
                ErrorKind::Varying if !more.is_empty() => {
                    let of = if what == "tangent" { "value" } else { "function's result" };
                    fault.help(format!("make the {of} vary too: `.pvary({})` on it", more.quoted()))
                }
                _ => suggest_conversion(fault, &ty, want),
            };
            let fault = mark_difference(fault, 0, &ty, want);
            errors.push(call.error(fault, || vec![ty.to_string()]));
        }
    });
    if errors.is_empty() { Ok(()) } else { Err(Error::combine(errors)) }
}
