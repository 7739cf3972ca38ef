//! `checkpoint`: functions of which derivatives save only some values.

use super::control::{RecordedClosure, ReturnedTree, tree_of};
use super::jit::check_arguments;
use crate::api::array::Array;
use crate::api::trace::apply_control;
use crate::api::tree::{Args, Output, Tree, collect};
use crate::core::{ArrayType, ErrorKind, Fault, Result, util::small_sort};
use crate::ir::program::{CallSite, CheckpointPolicy, Control, Op, Program};
use std::sync::Arc;

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
        Ok(tree_of(&piece.out, apply_control(control, &inputs, types, call)?))
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
