//! `while_loop_with`: loops that run while a condition holds, with a maximum number of steps.
//!
//! Such a loop runs as a `while` loop with a counter. Its rule for reverse mode is the same
//! function as two nested loops of about √n steps, in which branches leave out the steps after the
//! last one. The inner loop is a checkpoint, so the carries of √n steps are saved, and the others
//! are computed again.

use super::branch::{choose, predicate};
use super::branch_selector::BranchSelector;
use super::loops::fori_static;
use super::while_loops::{cast_varying, check_condition, run_while};
use super::{RecordedClosure, call_with_rule, poison_tree, tree_of, types_of};
use crate::api::array::{Array, Operand};
use crate::api::trace::{apply_control, build};
use crate::api::transform::jit::check_errors;
use crate::api::tree::{Args, NamedSizes, NextCarry, Output, Path, Tree, collect};
use crate::core::{ArrayType, DType, Result, Scalar};
use crate::ir::program::{CallSite, CheckpointPolicy, Control, DerivativeRule};
use std::sync::Arc;

/// The options of [`while_loop_with`].
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::{WhileOptions, while_loop_with};
/// let options = WhileOptions::default().max_steps(3);
/// let x = while_loop_with(Array::from(1), |x| x.lt(1000), |x| x * 2, options);
/// assert_eq!(x.item::<i32>()?, 8);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhileOptions {
    /// The maximum number of steps, after which the loop ends even if its condition still holds.
    /// Defaults to `None`: the loop ends by its condition only.
    pub max_steps: Option<usize>,
}

impl WhileOptions {
    setters! {
        /// Sets the maximum number of steps.
        ///
        /// ```
        /// let options = atmesh::WhileOptions::default().max_steps(100);
        /// assert_eq!(options.max_steps, Some(100));
        /// ```
        pub fn max_steps(steps: usize) = max_steps: Some(steps);
    }
}

/// Runs [`while_loop`](crate::while_loop) with options: a maximum number of steps.
///
/// A loop with a maximum has a gradient. It takes no more steps than its condition asks for, also
/// in the derivative, and saves the carries of about √n steps of a maximum of n; the backward pass
/// computes the others again. If the condition still holds after the last step, the result is the
/// carry of that step.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::{WhileOptions, while_loop_with};
/// // the square root by Newton's method
/// let sqrt = |a: &Array| while_loop_with(
///     a,
///     |x| (x.square() - a).abs().gt(1e-6),
///     |x| (&x + a / &x) / 2.0,
///     WhileOptions::default().max_steps(50),
/// );
/// let slope = grad(Array::from(4.0), |a| sqrt(&a));
/// assert!((slope.item::<f64>()? - 0.25).abs() < 1e-6);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// Under [`vmap`](crate::vmap), the derivative of every example takes as many steps as the maximum.
///
/// # Errors
/// The results carry an error if the maximum does not fit into an int32, and for the reasons of
/// [`while_loop`](crate::while_loop).
#[track_caller]
pub fn while_loop_with<A: Args, P: Operand, R: Output<Tree: NextCarry<A::Owned>>>(
    init: A,
    cond: impl Fn(&A::Owned) -> P,
    body: impl Fn(A::Owned) -> R,
    options: WhileOptions,
) -> A::Owned {
    let call = CallSite::here("while_loop_with");
    let init = init.into_tree();
    let cond = |x: &A::Owned| Ok(predicate(cond(x)));
    let body = |x| body(x).into_result().map(NextCarry::into_carry);
    let out = NamedSizes::of(&init, "carry").check(call);
    let out = out.and_then(|()| match options.max_steps {
        None => run_while(&init, &cond, &body, (call, None)),
        Some(max) => BoundedLoop { cond: &cond, body: &body, max, call }.run(&init),
    });
    out.unwrap_or_else(|e| poison_tree(&init, e))
}

/// A loop with a maximum number of steps.
struct BoundedLoop<'a, T> {
    cond: &'a dyn Fn(&T) -> Result<Array>,
    body: &'a dyn Fn(T) -> Result<T>,
    /// The maximum number of steps.
    max: usize,
    call: CallSite<'a>,
}

impl<T: Tree> BoundedLoop<'_, T> {
    fn run(&self, init: &T) -> Result<T> {
        let (max, call) = (self.max, self.call);
        if i32::try_from(max).is_err() {
            let fault = fault!(Dtype, "the maximum of {max} steps does not fit into int32")
                .help("loop counters are int32: nest two loops");
            return Err(call.error(fault, Vec::new));
        }
        check_errors(init)?;
        let types = types_of(init);
        let plain = RecordedClosure::record(call, &types, |xs| self.counted(tree_of(init, xs)))?;
        let results = plain.program.output_types();
        let nested =
            RecordedClosure::record(call, &types, |xs| self.in_segments(tree_of(init, xs), &results))?;
        let mut names = Vec::new();
        init.visit(&mut Path::named(), &mut |path, _| names.push(path.name_or("the carry")));
        let programs = vec![(plain.program, plain.captures), (nested.program, nested.captures)];
        let rule = |mut programs: Vec<_>| DerivativeRule::Reversible(programs.remove(0));
        Ok(tree_of(init, call_with_rule((collect(init), names), programs, rule, call)?))
    }

    /// Returns true if the loop goes on after `steps` steps.
    fn goes_on(&self, steps: &Array, carry: &T) -> Result<Array> {
        let holds = (self.cond)(carry)?;
        check_condition(&holds.ty()?, self.call)?;
        Ok(holds & steps.lt(self.max))
    }

    /// Returns the number of steps at the beginning, in the open trace.
    fn no_steps(&self) -> Result<Array> {
        let zero = DType::I32.array_type([]);
        Ok(build(&[], self.call, |b, _| Ok(vec![b.zeros(&zero)?]))?.swap_remove(0))
    }

    /// Runs the loop as a `while` loop with a counter.
    fn counted(&self, init: T) -> Result<T> {
        let cond = |(steps, carry): &(Array, T)| self.goes_on(steps, carry);
        let body = |(steps, carry): (Array, T)| Ok((steps + 1, (self.body)(carry)?));
        Ok(run_while(&(self.no_steps()?, init), &cond, &body, (self.call, Some(0)))?.1)
    }

    /// Runs the loop as nested loops of a fixed number of steps. `types` are those of its results.
    fn in_segments(&self, init: T, types: &[ArrayType]) -> Result<T> {
        let call = self.call;
        let fit = |(leaf, ty): (Array, &ArrayType)| {
            Ok(build(&[leaf], call, |b, v| Ok(vec![b.fit_to_type(&v[0], ty)?]))?.swap_remove(0))
        };
        let leaves: Result<Vec<Array>> = collect(&init).into_iter().zip(types).map(fit).collect();
        let carry = tree_of(&init, leaves?);
        let steps = self.no_steps()?;
        let alive = self.goes_on(&steps, &carry)?;
        let alive_type = alive.ty()?;
        let state = cast_varying(&(alive, steps, carry), &alive_type, call);
        let length = (self.max as f64).sqrt().ceil().max(1.0) as usize;
        let count = self.max.div_ceil(length);
        let outer = |_: Array, state: LoopState<T>| self.if_alive(state, &|s| self.segment(s, length));
        Ok(repeat(count, &state, &outer, call)?.2)
    }

    /// Runs `f` on the state if the loop goes on, and returns the state unchanged otherwise.
    fn if_alive(
        &self,
        state: LoopState<T>,
        f: &dyn Fn(LoopState<T>) -> Result<LoopState<T>>,
    ) -> Result<LoopState<T>> {
        let same = || Ok(tree_of(&state, collect(&state)));
        let next = || f(same()?);
        Ok(choose(BranchSelector::Cond, self.call, state.0.clone(), &[&next, &same]))
    }

    /// Runs up to `length` steps, of which derivatives save the first state only.
    fn segment(&self, state: LoopState<T>, length: usize) -> Result<LoopState<T>> {
        let step = |(_, steps, carry): LoopState<T>| {
            let (steps, carry) = (steps + 1, (self.body)(carry)?);
            Ok((self.goes_on(&steps, &carry)?, steps, carry))
        };
        let one = |_: Array, state: LoopState<T>| self.if_alive(state, &step);
        let run = |xs| repeat(length, &tree_of(&state, xs), &one, self.call);
        let recorded = RecordedClosure::record(self.call, &types_of(&state), run)?;
        let types = recorded.program.output_types();
        let control = Control::call(Arc::new(recorded.program), CheckpointPolicy::SaveNothing);
        let inputs: Vec<Array> = collect(&state).into_iter().chain(recorded.captures).collect();
        Ok(tree_of(&state, apply_control(control, &inputs, types, self.call)?))
    }
}

/// The state of the nested loops: true if the loop goes on, the number of steps, and the carry.
type LoopState<T> = (Array, Array, T);

fn repeat<S: Tree>(
    count: usize,
    state: &S,
    step: &dyn Fn(Array, S) -> Result<S>,
    call: CallSite<'_>,
) -> Result<S> {
    fori_static(Scalar::Int(0), Scalar::Int(count as i128), state, step, call)
}
