//! Control operations: operations with nested programs.

use super::{ManualCollective, Op, Program};
use crate::core::{Axes, Mesh, Spec};
use std::sync::Arc;

/// An operation that contains nested programs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// A call of a nested program.
    Jit {
        /// The nested program.
        body: Arc<Program>,
        /// The values inside `body` that derivatives save for the backward pass.
        policy: CheckpointPolicy,
        /// True for the backward pass of a checkpoint.
        /// What it fetches and computes again is not shared with the equations around it, so that
        /// nothing is held from the forward to the backward pass.
        recomputes: bool,
    },
    /// A loop with a fixed trip count: `scan`, and `fori_loop` with constant bounds.
    Loop(Loop),
    /// A loop that runs while a condition holds.
    /// Inputs: those that only the condition reads, those that only the body reads, the carries.
    While {
        /// The condition.
        /// Inputs: its fixed inputs, then the carries. Result: one bool.
        cond: Arc<Program>,
        /// The body.
        /// Inputs: its fixed inputs, then the carries. Results: the next carries.
        body: Arc<Program>,
        /// The number of fixed inputs of `cond`.
        cond_fixed: usize,
        /// The number of fixed inputs of `body`.
        body_fixed: usize,
    },
    /// A choice between several programs.
    /// Inputs: the index (a bool, where true selects branch 0, or an int32, clamped), then the
    /// inputs of all branches.
    Cond {
        /// The branches.
        /// With a bool index the first of the two is the true branch.
        branches: Vec<Arc<Program>>,
    },
    /// Per-device code over manual axes.
    ShardMap(ShardMapping),
    /// A program in which some axes have another [`AxisType`](crate::core::mesh::AxisType).
    AxisModes {
        /// The nested program.
        body: Arc<Program>,
        /// The output sharding requested for each result; `None` if none is requested.
        out_specs: Vec<Option<Spec>>,
    },
    /// A call of a function with a derivative rule of the user.
    Custom(CustomCall),
    /// A statement that prints its inputs, device after device, when it runs.
    /// It has no results and is never removed.
    Print {
        /// The text, with `{}` for each input.
        template: String,
    },
}

/// The values inside a function that derivatives save for the backward pass.
///
/// Every other value that the backward pass reads is recomputed from the arguments and the saved
/// values. See [`checkpoint_with`](crate::checkpoint_with).
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from(2.0f32);
/// // the backward pass computes the sine again instead of saving it
/// let g = grad(&x, |x| checkpoint_with(&x, CheckpointPolicy::SaveNothing, |x| x.sin().square()));
/// assert!(g.allclose(&(2.0 * x.sin() * x.cos()))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "checkpoint_policies")]
pub enum CheckpointPolicy {
    /// Saves everything that the backward pass reads, as without a checkpoint.
    /// This uses the most memory. Only cheap values, such as views and broadcasts, are recomputed.
    #[default]
    #[doc(alias("everything_saveable"))]
    SaveAll,
    /// Saves the arguments only.
    /// This uses the least memory, and everything is computed twice.
    #[doc(alias("nothing_saveable"))]
    SaveNothing,
    /// Saves everything that the backward pass reads, except gathered values.
    /// A value is gathered if it is the result of `all_gather`, or of a `reshard` after which some
    /// axis that split a dimension splits none. It stays one if its element type is converted. The
    /// backward pass gathers it again.
    SaveAllButGathers,
    /// Saves the results of matrix products (`dot` and similar functions), and recomputes all else.
    #[doc(alias("dots_saveable", "checkpoint_dots"))]
    SaveDots,
    /// Saves the results of matrix products without batch dimensions, and recomputes all else.
    /// In a transformer these are the products with weights, and not the attention scores.
    #[doc(alias("dots_with_no_batch_dims_saveable", "checkpoint_dots_with_no_batch_dims"))]
    SaveDotsWithoutBatchDims,
    /// Saves the values that have one of these names.
    /// [`Array::checkpoint_name`](crate::Array::checkpoint_name) gives a value its name.
    SaveNamed(Vec<String>),
}

impl CheckpointPolicy {
    /// Returns the policy that saves the values with these names.
    ///
    /// ```
    /// use atmesh::CheckpointPolicy;
    /// let policy = CheckpointPolicy::named(["scores"]);
    /// assert_eq!(policy, CheckpointPolicy::SaveNamed(vec!["scores".to_string()]));
    /// ```
    pub fn named<S: Into<String>>(names: impl IntoIterator<Item = S>) -> CheckpointPolicy {
        CheckpointPolicy::SaveNamed(names.into_iter().map(Into::into).collect())
    }
}

/// A loop with a fixed trip count.
///
/// Inputs: `fixed` values, then `carry` values, then arrays that the loop iterates over along their
/// leading dimension. The body's inputs: the index of the iteration (an int32, from `start` on),
/// the fixed values, the carries, and a slice of each array. Its outputs: the next carries, then
/// the values that are stacked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// The body of the loop.
    pub body: Arc<Program>,
    /// The index of the iteration that reads the first slices.
    /// The iteration that reads slice k has index start + k, in either direction.
    pub start: i64,
    /// The number of iterations.
    pub length: usize,
    /// True if the loop runs from the last slice to the first.
    /// The iteration indices then decrease.
    pub reverse: bool,
    /// The number of loop-invariant inputs.
    pub fixed: usize,
    /// The number of carries.
    pub carry: usize,
}

/// Per-device code (`shard_map`), with the specs by which global arrays become blocks and back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardMapping {
    /// The per-device program; its types are those of one device's blocks.
    pub body: Arc<Program>,
    /// The mesh of the global values.
    pub mesh: Mesh,
    /// The axes that are manual in the body.
    pub axes: Axes,
    /// The spec that splits each input over the manual axes.
    pub in_specs: Vec<Spec>,
    /// The spec that assembles each result over the manual axes.
    pub out_specs: Vec<Spec>,
    /// True if types track the axes over which values vary.
    pub checked: bool,
}

/// A call of a function with a derivative rule of the user.
///
/// The function and its rule are programs, which are recorded at the call. A derivative replaces
/// the call by the programs of the rule. A program that is not differentiated any more runs the
/// function, as a call of [`body`](CustomCall::body).
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::program::{Control, Op};
/// let sine = |x: &Array| custom_jvp(x, |x| x.sin(), |x, dx| (x.sin(), dx * x.cos()));
/// let traced = jit(sine).trace(&Array::ones([2]))?;
/// let Op::Control(Control::Custom(call)) = &traced.program().equations[0].op else { panic!() };
/// assert_eq!((call.name(), call.body.equations[0].op.name()), ("custom_jvp", "sin"));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CustomCall {
    /// The function.
    /// Inputs: the arguments, then captured values.
    pub body: Arc<Program>,
    /// The name of each argument, as errors print it: `` `w` ``.
    /// The other inputs are captured values, which have no derivative.
    pub arguments: Vec<String>,
    /// The rule.
    pub rule: DerivativeRule,
}

/// The rule by which a [`CustomCall`] is differentiated.
///
/// Only floating-point and complex values have tangents and cotangents. Every program of a rule
/// takes the captured values of the call last.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::program::{Control, DerivativeRule, Op};
/// let sine = |x: &Array| custom_jvp(x, |x| x.sin(), |x, dx| (x.sin(), dx * x.cos()));
/// let traced = jit(sine).trace(&Array::ones([2]))?;
/// let Op::Control(Control::Custom(call)) = &traced.program().equations[0].op else { panic!() };
/// let DerivativeRule::Jvp(rule) = &call.rule else { panic!() };
/// assert_eq!((rule.inputs.len(), rule.outputs.len()), (2, 2));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DerivativeRule {
    /// The rule of `custom_jvp`.
    /// Inputs: the arguments, then their tangents. Results: those of the function, then their
    /// tangents.
    Jvp(Arc<Program>),
    /// The rule of `custom_vjp`.
    Vjp {
        /// The function with residuals.
        /// Inputs: the arguments. Results: those of the function, then the residuals.
        forward: Arc<Program>,
        /// The program from cotangents of the results to cotangents of the arguments.
        /// Inputs: the residuals, then the cotangents. Its results are compared with the types of
        /// the arguments when a derivative is taken.
        backward: Arc<Program>,
    },
    /// The same function as a program that reverse mode differentiates; forward mode differentiates
    /// the function itself.
    /// A `while_loop` with a maximum number of steps has this rule.
    Reversible(Arc<Program>),
}

impl CustomCall {
    /// Returns the name, as programs print it and errors name it.
    pub fn name(&self) -> &'static str {
        match &self.rule {
            DerivativeRule::Jvp(_) => "custom_jvp",
            DerivativeRule::Vjp { .. } => "custom_vjp",
            DerivativeRule::Reversible(_) => "while_loop",
        }
    }
    /// Returns the function, then the programs of the rule.
    fn bodies(&self) -> Vec<&Arc<Program>> {
        let rule = match &self.rule {
            DerivativeRule::Jvp(program) | DerivativeRule::Reversible(program) => vec![program],
            DerivativeRule::Vjp { forward, backward } => vec![forward, backward],
        };
        std::iter::once(&self.body).chain(rule).collect()
    }
    /// Returns the programs as mutable references, in the order of [`CustomCall::bodies`].
    fn bodies_mut(&mut self) -> Vec<&mut Arc<Program>> {
        let rule = match &mut self.rule {
            DerivativeRule::Jvp(program) | DerivativeRule::Reversible(program) => vec![program],
            DerivativeRule::Vjp { forward, backward } => vec![forward, backward],
        };
        std::iter::once(&mut self.body).chain(rule).collect()
    }
}

/// The operands of a loop by kind, or a list of the same structure with an item for each operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopOperands<T> {
    /// The loop-invariant operands.
    pub fixed: Vec<T>,
    /// The carries.
    pub carry: Vec<T>,
    /// The arrays that are iterated over; inside the body, one slice of each.
    pub xs: Vec<T>,
}

impl<T> LoopOperands<T> {
    /// Returns all items in the order of the loop's inputs.
    pub fn into_vec(self) -> Vec<T> {
        self.fixed.into_iter().chain(self.carry).chain(self.xs).collect()
    }
    /// Returns all items in the order of the body's inputs: the iteration index comes first.
    pub fn into_body_inputs(self, index: T) -> Vec<T> {
        std::iter::once(index).chain(self.into_vec()).collect()
    }
    /// Appends the items of `others`, kind by kind.
    #[must_use]
    pub fn concat(mut self, others: LoopOperands<T>) -> LoopOperands<T> {
        self.fixed.extend(others.fixed);
        self.carry.extend(others.carry);
        self.xs.extend(others.xs);
        self
    }
}

impl Loop {
    /// Splits the loop's operands by kind.
    pub fn split_operands<T: Clone>(&self, operands: &[T]) -> LoopOperands<T> {
        let (fixed, rest) = operands.split_at(self.fixed);
        let (carry, xs) = rest.split_at(self.carry);
        LoopOperands { fixed: fixed.to_vec(), carry: carry.to_vec(), xs: xs.to_vec() }
    }
    /// Splits the body's inputs into the iteration index and the operands by kind.
    pub fn split_body_inputs<T: Clone>(&self, inputs: &[T]) -> (T, LoopOperands<T>) {
        (inputs[0].clone(), self.split_operands(&inputs[1..]))
    }
}

impl Control {
    /// Returns a call of a program, of which derivatives save what the policy says.
    pub fn call(body: Arc<Program>, policy: CheckpointPolicy) -> Control {
        Control::Jit { body, policy, recomputes: false }
    }
    /// Returns the name, as programs print it.
    pub fn name(&self) -> &'static str {
        match self {
            Control::Jit { policy: CheckpointPolicy::SaveAll, recomputes: false, .. } => "jit",
            Control::Jit { .. } => "checkpoint",
            Control::Loop(_) => "loop",
            Control::While { .. } => "while_loop",
            Control::Cond { .. } => "cond",
            Control::ShardMap(_) => "shard_map",
            Control::AxisModes { .. } => "modes",
            Control::Custom(call) => call.name(),
            Control::Print { .. } => "debug_print",
        }
    }
    /// Returns true if the operation has a side effect.
    /// It is then never removed or differentiated.
    pub(crate) fn has_effect(&self) -> bool {
        match self {
            Control::Print { .. } => true,
            Control::Jit { .. }
            | Control::Loop(_)
            | Control::While { .. }
            | Control::Cond { .. }
            | Control::ShardMap(_)
            | Control::AxisModes { .. }
            | Control::Custom(_) => false,
        }
    }
    /// Returns the nested programs.
    pub fn bodies(&self) -> Vec<&Arc<Program>> {
        match self {
            Control::Jit { body, .. } | Control::AxisModes { body, .. } => vec![body],
            Control::Loop(l) => vec![&l.body],
            Control::While { cond, body, .. } => vec![cond, body],
            Control::Cond { branches } => branches.iter().collect(),
            Control::ShardMap(s) => vec![&s.body],
            Control::Custom(call) => call.bodies(),
            Control::Print { .. } => Vec::new(),
        }
    }
    /// Returns the nested programs as mutable references, in the order of [`Control::bodies`].
    pub fn bodies_mut(&mut self) -> Vec<&mut Arc<Program>> {
        match self {
            Control::Jit { body, .. } | Control::AxisModes { body, .. } => vec![body],
            Control::Loop(l) => vec![&mut l.body],
            Control::While { cond, body, .. } => vec![cond, body],
            Control::Cond { branches } => branches.iter_mut().collect(),
            Control::ShardMap(s) => vec![&mut s.body],
            Control::Custom(call) => call.bodies_mut(),
            Control::Print { .. } => Vec::new(),
        }
    }
}

/// Finds a collective of the program over any of these axes.
pub(crate) fn collective_over(program: &Program, axes: &Axes) -> Option<(&'static str, Axes)> {
    if axes.is_empty() {
        return None;
    }
    program.equations.iter().find_map(|e| match &e.op {
        Op::Prim(prim) => {
            let collective = prim.collective().filter(ManualCollective::communicates)?;
            let common: Axes = collective.axes().iter().copied().filter(|a| axes.contains(*a)).collect();
            (!common.is_empty()).then(|| (prim.name(), common))
        }
        Op::Control(control) => control.bodies().into_iter().find_map(|body| collective_over(body, axes)),
    })
}
