//! Operations with nested programs.

use super::Program;
use crate::mesh::{Axes, Mesh};
use crate::sharding::Spec;
use std::sync::Arc;

/// An operation with nested programs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// A program as one equation.
    Jit {
        /// What runs.
        body: Arc<Program>,
        /// What derivatives keep of its inner values for the way back.
        keep: Keep,
    },
    /// A loop of known length: `fori_loop` with fixed bounds, `scan`.
    Loop(Loop),
    /// A loop while a condition holds. Inputs: what the condition alone reads, what the body alone reads, the carries.
    While {
        /// Reads its fixed inputs, then the carries; one bool result.
        cond: Arc<Program>,
        /// Reads its fixed inputs, then the carries; returns the carries.
        body: Arc<Program>,
        /// How many fixed inputs `cond` has.
        cond_fixed: usize,
        /// How many fixed inputs `body` has.
        body_fixed: usize,
    },
    /// One of several programs. Inputs: which (bool: 0 is true's; or int32, clamped), then what all of them read.
    Cond {
        /// The programs; of two by a bool the first is the true one.
        branches: Vec<Arc<Program>>,
    },
    /// Per-device code over the manual axes.
    ShardMap(ShardMapping),
    /// A program in which axes are of another type.
    Modes {
        /// What runs inside.
        body: Arc<Program>,
        /// The shardings asked for the results.
        out_specs: Vec<Option<Spec>>,
    },
    /// Prints its inputs on every device in turn, when it runs. It has no results and is never removed.
    Print {
        /// The text, with `{}` for each input.
        template: String,
    },
}

/// What derivatives keep of the values inside a function for the way back; all else that is read there they compute again, from its arguments and
/// from what is kept. See [`checkpoint_with`](crate::checkpoint_with).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keep {
    /// All that the way back reads, as without a checkpoint: most memory, nothing is computed twice.
    #[default]
    All,
    /// Nothing but the arguments: least memory, all is computed twice.
    Nothing,
    /// All but what is gathered: results of `reshard` by which a dimension is less split than before. These are gathered once more.
    AllButGathers,
    /// What was given one of these names by [`Array::named`](crate::Array::named).
    Named(Vec<String>),
}

impl Keep {
    /// What was given one of these names.
    ///
    /// ```
    /// use atmesh::Keep;
    /// assert_eq!(Keep::named(["scores"]), Keep::Named(vec!["scores".to_string()]));
    /// ```
    pub fn named<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Keep {
        Keep::Named(names.into_iter().map(Into::into).collect())
    }
}

/// A loop of known length.
///
/// Inputs: `fixed` values, then `carry` values, then arrays whose leading dimension is run over. The body's inputs: the step's
/// number (int32, from `start`), the fixed, the carries, a slice of each array; its outputs: the next carries, then what is stacked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// What runs at each step.
    pub body: Arc<Program>,
    /// The number of the step that takes the first slices: the step of slice k has the number start + k, in either direction.
    pub start: i64,
    /// How many steps.
    pub length: usize,
    /// From the last slice to the first; the steps' numbers fall likewise.
    pub reverse: bool,
    /// How many inputs are the same at every step.
    pub fixed: usize,
    /// How many carries.
    pub carry: usize,
}

/// Per-device code: how global arrays become blocks and blocks global arrays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardMapping {
    /// The per-device program, typed with varying axes.
    pub body: Arc<Program>,
    /// The mesh of the global values.
    pub mesh: Mesh,
    /// The axes that are manual inside.
    pub axes: Axes,
    /// How each input is cut over manual axes.
    pub in_specs: Vec<Spec>,
    /// How each result is put together over manual axes.
    pub out_specs: Vec<Spec>,
    /// Whether types track what varies.
    pub checked: bool,
}

/// What a loop takes, by kind; or something known of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<T> {
    /// Of what is the same at every step.
    pub fixed: Vec<T>,
    /// Of the carries.
    pub carry: Vec<T>,
    /// Of the arrays that are run over; in a step, of a slice of each.
    pub xs: Vec<T>,
}

impl<T> Parts<T> {
    /// In the order in which the loop takes them.
    pub fn join(self) -> Vec<T> {
        self.fixed.into_iter().chain(self.carry).chain(self.xs).collect()
    }
    /// In the order in which the body takes them: the step's number first.
    pub fn step(self, index: T) -> Vec<T> {
        std::iter::once(index).chain(self.join()).collect()
    }
    /// These and others, by kind: of each kind these first.
    #[must_use]
    pub fn beside(mut self, others: Parts<T>) -> Parts<T> {
        self.fixed.extend(others.fixed);
        self.carry.extend(others.carry);
        self.xs.extend(others.xs);
        self
    }
}

impl Loop {
    /// What the loop takes, by kind.
    pub fn parts<T: Clone>(&self, operands: &[T]) -> Parts<T> {
        let (fixed, rest) = operands.split_at(self.fixed);
        let (carry, xs) = rest.split_at(self.carry);
        Parts { fixed: fixed.to_vec(), carry: carry.to_vec(), xs: xs.to_vec() }
    }
    /// What the body takes, by kind, behind the step's number.
    pub fn step_parts<T: Clone>(&self, inputs: &[T]) -> (T, Parts<T>) {
        (inputs[0].clone(), self.parts(&inputs[1..]))
    }
}

impl Control {
    /// Its name, as programs print it.
    pub fn name(&self) -> &'static str {
        match self {
            Control::Jit { keep: Keep::All, .. } => "jit",
            Control::Jit { .. } => "checkpoint",
            Control::Loop(_) => "loop",
            Control::While { .. } => "while_loop",
            Control::Cond { .. } => "cond",
            Control::ShardMap(_) => "shard_map",
            Control::Modes { .. } => "modes",
            Control::Print { .. } => "debug_print",
        }
    }
    /// Whether it does something by itself, beside making its results: then it is never removed, nor differentiated.
    pub(crate) fn has_effect(&self) -> bool {
        match self {
            Control::Print { .. } => true,
            Control::Jit { .. }
            | Control::Loop(_)
            | Control::While { .. }
            | Control::Cond { .. }
            | Control::ShardMap(_)
            | Control::Modes { .. } => false,
        }
    }
    /// The nested programs.
    pub fn bodies(&self) -> Vec<&Arc<Program>> {
        match self {
            Control::Jit { body, .. } | Control::Modes { body, .. } => vec![body],
            Control::Loop(l) => vec![&l.body],
            Control::While { cond, body, .. } => vec![cond, body],
            Control::Cond { branches } => branches.iter().collect(),
            Control::ShardMap(s) => vec![&s.body],
            Control::Print { .. } => Vec::new(),
        }
    }
    /// The nested programs, to replace them; in the order of [`Control::bodies`].
    pub fn bodies_mut(&mut self) -> Vec<&mut Arc<Program>> {
        match self {
            Control::Jit { body, .. } | Control::Modes { body, .. } => vec![body],
            Control::Loop(l) => vec![&mut l.body],
            Control::While { cond, body, .. } => vec![cond, body],
            Control::Cond { branches } => branches.iter_mut().collect(),
            Control::ShardMap(s) => vec![&mut s.body],
            Control::Print { .. } => Vec::new(),
        }
    }
}
