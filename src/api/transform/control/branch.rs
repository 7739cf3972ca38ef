//! Branches: `cond` and `switch`.

use super::branch_selector::BranchSelector;
use super::unify::branch_types;
use super::{RecordedClosure, ReturnedTree, share_captures, tree_of};
use crate::api::array::{Array, Operand, Term};
use crate::api::trace::build;
use crate::api::tree::{Args, NamedSizes, Output, Path, Tree, mismatch};
use crate::core::{ArrayType, Axes, Error, Fault, Result, Scalar};
use crate::ir::ops::retype::{varying_branch, varying_over};
use crate::ir::program::{CallSite, Control, Program, collective_over};
use std::sync::Arc;

/// Runs `then()` if `pred` is true, otherwise `other()`.
///
/// The branches capture the values that they read.
///
/// Both branches are traced and must return equal types. Only one runs.
///
/// In a [`shard_map`](crate::shard_map()) body, `pred` may vary over manual axes. What the branches
/// read and return then varies over these axes too, and the branches have no collective over them.
/// The gradient of a value that all devices share is the sum over the devices' branches.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 4.0]);
/// let y = cond(x.sum(..).gt(3.0), || x.sqrt(), || x.clone());
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn cond<R: Output>(pred: impl Operand, then: impl Fn() -> R, other: impl Fn() -> R) -> R::Tree {
    choose(
        BranchSelector::Cond,
        CallSite::here("cond"),
        predicate(pred),
        &[&|| then().into_result(), &|| other().into_result()],
    )
}

/// Converts a predicate to an array.
pub(super) fn predicate(pred: impl Operand) -> Array {
    match pred.term() {
        Term::Array(a) => a,
        Term::Number(Scalar::Bool(b)) => b.into_tree(),
        Term::Number(x) => (x.to_f64() != 0.0).into_tree(),
    }
}

/// Runs branch `index`, counted from 0.
///
/// An index out of range is clamped to the first or last branch.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([0.0f32]);
/// let y = switch(1, &[&|| x.sin(), &|| x.cos(), &|| x.clone()]);
/// assert_eq!(y.to_vec::<f32>()?, [1.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn switch<R: Output>(index: impl Operand, branches: &[&dyn Fn() -> R]) -> R::Tree {
    let which = match index.term() {
        Term::Array(a) => a,
        Term::Number(x) => (x.to_i128().clamp(0, i32::MAX.into()) as i32).into_tree(),
    };
    let results: Vec<_> = branches.iter().map(|b| move || b().into_result()).collect();
    let results: Vec<&dyn Fn() -> Result<R::Tree>> = results.iter().map(|b| b as &dyn Fn() -> _).collect();
    choose(BranchSelector::Switch, CallSite::here("switch"), which, &results)
}

pub(super) fn choose<T: Tree>(
    chooser: BranchSelector,
    call: CallSite<'_>,
    which: Array,
    bodies: &[&dyn Fn() -> Result<T>],
) -> T {
    // all branches are traced, so that the errors of each are found
    let returned = ReturnedTree::new();
    let mut pieces = Vec::new();
    let mut errors = Vec::new();
    if let Err(e) = which.type_ref() {
        errors.push(e.clone());
    }
    for body in bodies {
        match RecordedClosure::record(call, &[], |_| returned.remember(body())) {
            Ok(piece) => pieces.push(piece),
            Err(e) => errors.push(e),
        }
    }
    let out = if errors.is_empty() { run(chooser, call, which, pieces) } else { Err(Error::combine(errors)) };
    out.unwrap_or_else(|e| returned.poisoned(&e))
}

/// Checks the type of the value that selects the branch.
fn check_selector(chooser: BranchSelector, ty: &ArrayType) -> Result<(), Fault> {
    let wanted = chooser.dtype();
    if ty.rank() != 0 {
        let fault = fault!(Shape, "the value that selects the branch is {ty}: it must be one {wanted}");
        return Err(fault
            .help("reduce it to one: `.all(..)`, `.any(..)`; or choose each element: `pred.select(a, b)`"));
    }
    if ty.dtype != wanted {
        let fault = fault!(Dtype, "the value that selects the branch is {ty}: it must be {wanted}[]");
        return Err(fault.help(match chooser {
            BranchSelector::Cond => "compare it: `.gt(0)`, `.ne(0)`",
            BranchSelector::Switch => "convert it: `.astype(I32)`",
        }));
    }
    let parts = ty.spec.unreduced_axes();
    if !parts.is_empty() {
        let summed = ty.spec.unreduced(Axes::none());
        return Err(fault!(
            Sharding,
            "the value that selects the branch is {ty}, unreduced over {parts}: only its sum can select"
        )
        .help(format!("sum it first: `.reshard({summed})`")));
    }
    Ok(())
}

fn run<T: Tree>(
    chooser: BranchSelector,
    call: CallSite<'_>,
    which: Array,
    mut pieces: Vec<RecordedClosure<T>>,
) -> Result<T> {
    let ty = which.ty()?;
    let error = |fault| call.error(fault, || vec![ty.to_string()]);
    check_selector(chooser, &ty).map_err(error)?;
    let Some(first) = pieces.first() else {
        return Err(error(fault!(Shape, "there is no branch to choose").help("give at least one branch")));
    };
    for piece in &pieces[1..] {
        if let Some(how) = first.out.differs(&piece.out, &mut Path::named()) {
            return Err(mismatch("the results of the branches", &how, call));
        }
    }
    NamedSizes::of(&first.out, "result").check(call)?;
    // devices that take different branches would wait for each other
    if let Some((name, axes)) = pieces.iter().find_map(|p| collective_over(&p.program, &ty.varying)) {
        let fault = fault!(
            Varying,
            "devices along {axes} may take different branches, and one of them has {name} over {axes}"
        );
        return Err(error(
            fault
                .help(format!("do the {name} before the branches"))
                .help("or choose by a value that is the same on all of these devices"),
        ));
    }
    let bodies: Vec<&Program> = pieces.iter().map(|p| &p.program).collect();
    let mut types = branch_types(chooser, call, &pieces[0].out, &bodies)?;
    let mut programs: Vec<_> =
        pieces.iter_mut().map(|p| (&mut p.program, std::mem::take(&mut p.captures))).collect();
    let captures = share_captures(&mut programs);
    let mut programs: Vec<Program> = pieces.iter_mut().map(|p| std::mem::take(&mut p.program)).collect();
    // if devices choose differently, what the branches read and return differs between them
    if let (Some(mesh), false) = (&ty.mesh, ty.varying.is_empty()) {
        for program in &mut programs {
            *program = varying_branch(program, &ty.varying, mesh).map_err(|e| call.locate(e))?;
        }
        types = types.iter().map(|t| varying_over(t, &ty.varying, mesh)).collect();
    }
    let control = Control::Cond { branches: programs.into_iter().map(Arc::new).collect() };
    let inputs: Vec<Array> = std::iter::once(which).chain(captures).collect();
    let results = build(&inputs, call, |b, values| {
        let mut operands = values[..1].to_vec();
        for v in &values[1..] {
            operands.push(match &ty.mesh {
                Some(mesh) => b.vary(v, mesh, &ty.varying)?,
                None => v.clone(),
            });
        }
        Ok(b.control(control, &operands, types))
    })?;
    Ok(tree_of(&pieces[0].out, results))
}

/// Adds the axes over which the selecting operand varies to the varying axes of a type.
pub(super) fn varying_with(mut ty: ArrayType, which: &ArrayType) -> ArrayType {
    if which.varying.iter().all(|a| ty.varying.contains(a)) {
        return ty;
    }
    let mesh = ty.mesh.get_or_insert_with(|| which.mesh.clone().expect("what varies is on a mesh"));
    ty.varying = mesh.in_order(ty.varying.iter().chain(&which.varying));
    ty
}
