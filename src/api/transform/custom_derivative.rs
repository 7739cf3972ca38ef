//! Functions with derivative rules of their own: `custom_vjp` and `custom_jvp`.
//!
//! The function and its rule are recorded as programs at the call
//! ([`CustomCall`](crate::program::CustomCall)), so that a program contains no closure. They share
//! their captured values, which are constants for the rule.

use super::control::{RecordedClosure, ReturnedTree, call_with_rule, tree_of};
use super::derivative::{AllowedCast, check_types};
use super::jit::check_arguments;
use crate::api::array::Array;
use crate::api::trace::build;
use crate::api::tree::{Args, Cotangents, NextCarry, Output, Path, Retype, Tree, collect, mismatch};
use crate::core::{ArrayType, DType, Result};
use crate::ir::program::dce::retain_outputs;
use crate::ir::program::{CallSite, DerivativeRule, Program, typing::cotangent_type};
use std::sync::Arc;

/// The tree of the cotangents of a tree.
type CotangentTree<T> = <T as Retype<Cotangents>>::Out;

/// Returns the result of `forward` at a point, with `backward` as its derivative.
///
/// `forward` takes a tree like the point, and returns the result and the residuals: a tree of the
/// values that the backward pass needs. `backward` takes the residuals and the cotangent of the
/// result, and returns the cotangent of the point. Without a derivative, the residuals are not
/// computed.
///
/// ```
/// use atmesh::prelude::*;
/// // log(1 + exp(x)), whose derivative does not overflow
/// let softplus = |x: &Array| custom_vjp(
///     x,
///     |x| (x.exp().log1p(), x),
///     |x, ct| ct * (1.0 - 1.0 / (1.0 + x.exp())),
/// );
/// let x = Array::from([0.0f32, 100.0]);
/// assert_eq!(grad(&x, |x| softplus(&x).sum(..)).to_vec::<f32>()?, [0.5, 1.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// The point, the result and the residuals are trees. A gradient is clipped on its way back by a
/// rule for the identity:
///
/// ```
/// use atmesh::prelude::*;
/// let clip_gradient = |x: &Array, max: f32| custom_vjp(
///     x,
///     |x| (x, ()),
///     |(), ct| ct.clamp(-max, max),
/// );
/// let x = Array::from([3.0f32, 0.25]);
/// let g = grad(&x, |x| clip_gradient(&x, 1.0).square().sum(..));
/// assert_eq!(g.to_vec::<f32>()?, [1.0, 0.5]);
///
/// let (x, w) = (Array::from([1.0f32, 2.0]), Array::from([3.0f32, 4.0]));
/// let scale = |x: Array, w: Array| custom_vjp(
///     (x, w),
///     |(x, w)| (&x * &w, (x, w)),
///     |(x, w), ct| (&ct * w, &ct * x * 10.0),
/// );
/// let (gx, gw) = grad((&x, &w), |(x, w)| scale(x, w).sum(..));
/// assert_eq!((gx.to_vec::<f32>()?, gw.to_vec::<f32>()?), (vec![3.0, 4.0], vec![10.0, 20.0]));
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// The rule holds in `jit`, `vmap`, loops, branches, [`checkpoint`](crate::checkpoint) and
/// [`shard_map`](crate::shard_map()). A second derivative is the derivative of `forward` and
/// `backward`. Forward mode ([`jvp`](crate::jvp)) transposes `backward`, which must then be linear
/// in the cotangent.
///
/// A cotangent has the type of its argument, with unreduced and reduced axes exchanged; it may vary
/// over fewer axes. An integer or a bool has no cotangent: `backward` gets zeros, and what it
/// returns there is ignored.
///
/// # Errors
/// The results carry an error if a cotangent does not fit its argument (this is found when a
/// derivative is taken), or if a derivative is taken by a captured value: pass it as an argument.
#[doc(alias("defvjp", "custom_gradient", "autograd.Function"))]
#[track_caller]
pub fn custom_vjp<A, R, S, F, B>(
    point: A,
    forward: impl Fn(A::Owned) -> F,
    backward: impl Fn(S, R::Out) -> B,
) -> R
where
    A: Args<Owned: Retype<Cotangents>>,
    R: Retype<Cotangents>,
    S: Tree,
    F: Output<Tree = (R, S)>,
    B: Output<Tree: NextCarry<CotangentTree<A::Owned>>>,
{
    let call = CallSite::here("custom_vjp");
    let forward = |x| forward(x).into_result();
    let backward = |s, ct| backward(s, ct).into_result().map(NextCarry::into_carry);
    run_vjp_rule(&point.into_tree(), None, &forward, &backward, call)
}

/// Returns the result of `f` at a point, with the derivative that `forward` and `backward` say.
///
/// It is [`custom_vjp`] with another program for the result without a derivative: `forward` runs
/// instead of `f` where a derivative is taken. Both return the same types.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::custom_vjp_with;
/// let root = |a: &Array| custom_vjp_with(
///     a,
///     |a| a.sqrt(),
///     |a| { let x = a.sqrt(); (x.clone(), x) },
///     |x, ct| ct / (x * 2.0),
/// );
/// assert_eq!(grad(Array::from(4.0f32), |a| root(&a)).item::<f32>()?, 0.25);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn custom_vjp_with<A, P, R, S, F, B>(
    point: A,
    f: impl Fn(A::Owned) -> P,
    forward: impl Fn(A::Owned) -> F,
    backward: impl Fn(S, R::Out) -> B,
) -> R
where
    A: Args<Owned: Retype<Cotangents>>,
    P: Output<Tree = R>,
    R: Retype<Cotangents>,
    S: Tree,
    F: Output<Tree = (R, S)>,
    B: Output<Tree: NextCarry<CotangentTree<A::Owned>>>,
{
    let call = CallSite::here("custom_vjp_with");
    let f = |x| f(x).into_result();
    let forward = |x| forward(x).into_result();
    let backward = |s, ct| backward(s, ct).into_result().map(NextCarry::into_carry);
    run_vjp_rule(&point.into_tree(), Some(&f), &forward, &backward, call)
}

/// Returns the result of `f` at a point, with `rule` as its derivative.
///
/// `rule` takes a point and its tangent, both trees like `point`. It returns the result and its
/// tangent, and runs instead of `f` where a derivative is taken. It must be linear in the tangent:
/// a sum of tangents, each multiplied by values that do not depend on tangents. Reverse mode
/// transposes it.
///
/// ```
/// use atmesh::prelude::*;
/// // sqrt, whose derivative at 0 is 0 instead of infinite
/// let sqrt = |x: &Array| custom_jvp(
///     x,
///     |x| x.sqrt(),
///     |x, dx| {
///         let y = x.sqrt();
///         let slope = y.gt(0.0).select(0.5 / &y, 0.0);
///         (y, dx * slope)
///     },
/// );
/// let x = Array::from([0.0f32, 4.0]);
/// assert_eq!(grad(&x, |x| sqrt(&x).sum(..)).to_vec::<f32>()?, [0.0, 0.25]);
/// assert_eq!(jvp(&x, &x, |x| sqrt(&x)).1.to_vec::<f32>()?, [0.0, 1.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// The rule holds in `jit`, `vmap`, loops, branches, [`checkpoint`](crate::checkpoint) and
/// [`shard_map`](crate::shard_map()). A second derivative is the derivative of the rule. Integers
/// and bools have no tangents: `rule` gets zeros, and what it returns there is ignored.
///
/// # Errors
/// The results carry an error if the rule returns other types than `f`, if it is not linear in the
/// tangent, or if a derivative is taken by a captured value: pass it as an argument.
#[doc(alias = "defjvp")]
#[track_caller]
pub fn custom_jvp<A, P, R, F>(
    point: A,
    f: impl Fn(A::Owned) -> P,
    rule: impl Fn(A::Owned, A::Owned) -> F,
) -> R
where
    A: Args,
    P: Output<Tree = R>,
    R: Tree,
    F: Output<Tree: NextCarry<(R, R)>>,
{
    let call = CallSite::here("custom_jvp");
    let f = |x| f(x).into_result();
    let rule = |x, dx| rule(x, dx).into_result().map(NextCarry::into_carry);
    run_jvp_rule(&point.into_tree(), &f, &rule, call)
}

/// A function of a tree, without the type of its closure.
type TreeFn<'a, A, R> = &'a dyn Fn(A) -> Result<R>;

/// The leaves of a point.
struct Point {
    leaves: Vec<Array>,
    types: Vec<ArrayType>,
    /// The name of each leaf in errors.
    names: Vec<String>,
}

impl Point {
    fn of<A: Tree>(at: &A, call: CallSite<'_>) -> Result<Point> {
        check_arguments(at, call)?;
        let leaves = collect(at);
        let types = leaves.iter().map(Array::ty).collect::<Result<_>>()?;
        let mut names = Vec::with_capacity(leaves.len());
        at.visit(&mut Path::named(), &mut |path, _| names.push(path.name_or("the argument")));
        Ok(Point { leaves, types, names })
    }
    /// Calls the function of this point that has a rule.
    fn call(
        self,
        programs: Vec<(Program, Vec<Array>)>,
        rule: impl FnOnce(Vec<Arc<Program>>) -> DerivativeRule,
        call: CallSite<'_>,
    ) -> Result<Vec<Array>> {
        call_with_rule((self.leaves, self.names), programs, rule, call)
    }
}

/// Returns the types of the values that have tangents.
fn inexact(types: &[ArrayType]) -> impl Iterator<Item = &ArrayType> {
    types.iter().filter(|ty| ty.dtype.is_inexact())
}

/// Returns an array for each type: those of `given` where a value has a tangent, else zeros.
fn with_zeros(
    types: &[ArrayType],
    given: impl IntoIterator<Item = Array>,
    call: CallSite<'_>,
) -> Result<Vec<Array>> {
    let mut given = given.into_iter();
    let each = types.iter().map(|ty| {
        if ty.dtype.is_inexact() {
            return Ok(given.next().expect("one for each that has a tangent"));
        }
        // a key has no zero
        let dtype = if ty.dtype == DType::Key { DType::U32 } else { ty.dtype };
        let ty = ArrayType { dtype, ..ty.clone() };
        Ok(build(&[], call, |b, _| Ok(vec![b.zeros(&ty)?]))?.swap_remove(0))
    });
    each.collect()
}

/// Returns the leaves of what a rule returns, of the given types.
///
/// A leaf may be unplaced or vary over fewer axes. `what` names a leaf in errors. A leaf for which
/// `is_used` is false may have any type.
fn fitted<T: Tree>(
    what: &str,
    tree: &T,
    like: &T,
    (types, is_used): (&[ArrayType], fn(DType) -> bool),
    call: CallSite<'_>,
) -> Result<Vec<Array>> {
    if let Some(how) = like.differs(tree, &mut Path::named()) {
        return Err(mismatch(&format!("the result of the function and {what}"), &how, call));
    }
    let leaves = collect(tree);
    let mut wanted = Vec::with_capacity(types.len());
    for (leaf, ty) in leaves.iter().zip(types) {
        wanted.push(if is_used(ty.dtype) { ty.clone() } else { leaf.ty()? });
    }
    check_types(what, tree, &wanted, AllowedCast::Varying, call)?;
    let fit = |(leaf, ty): (Array, &ArrayType)| match leaf.type_ref() {
        Ok(is) if is == ty => Ok(leaf),
        _ => Ok(build(&[leaf], call, |b, v| Ok(vec![b.fit_to_type(&v[0], ty)?]))?.swap_remove(0)),
    };
    leaves.into_iter().zip(&wanted).map(fit).collect()
}

/// Implements [`custom_vjp`] and [`custom_vjp_with`].
///
/// `f` is `None` if `forward` computes the result.
fn run_vjp_rule<A: Retype<Cotangents>, R: Retype<Cotangents>, S: Tree>(
    at: &A,
    f: Option<TreeFn<'_, A, R>>,
    forward: TreeFn<'_, A, (R, S)>,
    backward: &dyn Fn(S, R::Out) -> Result<A::Out>,
    call: CallSite<'_>,
) -> R {
    let returned = ReturnedTree::new();
    let run = || -> Result<R> {
        let point = Point::of(at, call)?;
        let record = |f: TreeFn<'_, A, R>| {
            RecordedClosure::record(call, &point.types, |xs| returned.remember(f(tree_of(at, xs))))
        };
        let body = f.map(record).transpose()?;
        let forward = RecordedClosure::record(call, &point.types, |xs| {
            let (result, residuals) = forward(tree_of(at, xs))?;
            let Some(body) = &body else { return Ok((returned.remember(Ok(result))?, residuals)) };
            let types = (&body.program.output_types()[..], (|_| true) as fn(DType) -> bool);
            let leaves = fitted("result of the forward rule", &result, &body.out, types, call)?;
            Ok((tree_of(&result, leaves), residuals))
        })?;
        let (result, residuals) = &forward.out;
        let mut result_types = forward.program.output_types();
        let residual_types = result_types.split_off(collect(result).len());
        let backward =
            record_backward(at, (result, &result_types), (residuals, &residual_types), backward, call)?;
        let body = match body {
            Some(body) => (body.program, body.captures),
            None => {
                let is_result = (0..forward.program.outputs.len()).map(|k| k < result_types.len());
                let is_result: Vec<bool> = is_result.collect();
                (retain_outputs(&forward.program, &is_result), forward.captures.clone())
            }
        };
        let programs = vec![body, (forward.program, forward.captures), backward];
        let rule = |programs: Vec<Arc<Program>>| {
            let [forward, backward] = <[_; 2]>::try_from(programs).expect("the rule has two programs");
            DerivativeRule::Vjp { forward, backward }
        };
        Ok(tree_of(&forward.out.0, point.call(programs, rule, call)?))
    };
    run().unwrap_or_else(|e| returned.poisoned(&e))
}

/// Records a backward rule: from residuals and the cotangents of the results that have one to the
/// cotangents of the leaves of `at` that have one.
fn record_backward<A: Retype<Cotangents>, R: Retype<Cotangents>, S: Tree>(
    at: &A,
    (result, result_types): (&R, &[ArrayType]),
    (residuals, residual_types): (&S, &[ArrayType]),
    backward: &dyn Fn(S, R::Out) -> Result<A::Out>,
    call: CallSite<'_>,
) -> Result<(Program, Vec<Array>)> {
    let cotangents = inexact(result_types).map(cotangent_type);
    let types: Vec<ArrayType> = residual_types.iter().cloned().chain(cotangents).collect();
    let leaves = collect(at);
    let recorded = RecordedClosure::record(call, &types, |mut xs| {
        let cotangents = with_zeros(result_types, xs.split_off(residual_types.len()), call)?;
        let mut cotangents = cotangents.into_iter();
        let ct = result.retype(&mut || cotangents.next().expect("one for each result"));
        let back = backward(tree_of(residuals, xs), ct)?;
        let mut points = leaves.iter();
        let like = at.retype(&mut || points.next().expect("one for each leaf").clone());
        if let Some(how) = like.differs(&back, &mut Path::named()) {
            return Err(mismatch("the point and the cotangent that the backward rule returns", &how, call));
        }
        let has = |a: &Array| a.type_ref().is_ok_and(|ty| ty.dtype.is_inexact());
        let back = collect(&back).into_iter().zip(&leaves).filter(|(_, of)| has(of));
        Ok(back.map(|(ct, _)| ct).collect::<Vec<Array>>())
    })?;
    Ok((recorded.program, recorded.captures))
}

/// Implements [`custom_jvp`].
fn run_jvp_rule<A: Tree, R: Tree>(
    at: &A,
    f: TreeFn<'_, A, R>,
    rule: &dyn Fn(A, A) -> Result<(R, R)>,
    call: CallSite<'_>,
) -> R {
    let returned = ReturnedTree::new();
    let run = || -> Result<R> {
        let point = Point::of(at, call)?;
        let body = RecordedClosure::record(call, &point.types, |xs| returned.remember(f(tree_of(at, xs))))?;
        let result_types = body.program.output_types();
        let types: Vec<ArrayType> = point.types.iter().chain(inexact(&point.types)).cloned().collect();
        let rule = RecordedClosure::record(call, &types, |mut xs| {
            let tangents = with_zeros(&point.types, xs.split_off(point.types.len()), call)?;
            let (result, tangent) = rule(tree_of(at, xs), tree_of(at, tangents))?;
            let types = (&result_types[..], (|_| true) as fn(DType) -> bool);
            let mut leaves = fitted("result of the rule", &result, &body.out, types, call)?;
            let types = (&result_types[..], DType::is_inexact as fn(DType) -> bool);
            let tangents = fitted("tangent that the rule returns", &tangent, &body.out, types, call)?;
            let has = tangents.into_iter().zip(&result_types).filter(|(_, ty)| ty.dtype.is_inexact());
            leaves.extend(has.map(|(t, _)| t));
            Ok(leaves)
        })?;
        let programs = vec![(body.program, body.captures), (rule.program, rule.captures)];
        let made = point.call(programs, |mut rule| DerivativeRule::Jvp(rule.remove(0)), call)?;
        Ok(tree_of(&body.out, made))
    };
    run().unwrap_or_else(|e| returned.poisoned(&e))
}
