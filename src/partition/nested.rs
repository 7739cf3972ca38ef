//! The programs nested in a step, with the values that they exchange with the program around it.
//!
//! Passes that treat all nested programs alike read them from here. A new control step needs
//! changes here, in `program.rs`, and otherwise only where it is lowered, printed or executed.

use crate::partition::program::{Slot, SpmdProgram, Step};

/// A program nested in a step.
pub(crate) struct NestedProgram<'a> {
    /// The program.
    pub(crate) program: &'a SpmdProgram,
    /// The value that each input stands for.
    pub(crate) inputs: Vec<InputBinding>,
    /// The value that each result becomes.
    pub(crate) results: Vec<ResultBinding>,
}

/// The value of the outer program that an input of a nested program stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum InputBinding {
    /// The iteration index, which is no value of the outer program.
    Iteration,
    /// A value that the nested program reads as it is.
    Fixed(Slot),
    /// The initial value of a carry.
    Carry(Slot),
    /// An array that the loop slices along its leading dimension.
    Slice(Slot),
}

/// The value of the outer program that a result of a nested program becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ResultBinding {
    /// The condition of a loop, which is no value of the outer program.
    Condition,
    /// A result of a branch.
    Value(Slot),
    /// A final carry.
    Carry(Slot),
    /// An array in which the loop stacks such results along a new leading dimension.
    Stack(Slot),
}

impl InputBinding {
    /// Returns the value of the outer program.
    /// The flag is true if the input is a slice of it.
    pub(crate) fn outer_value(self) -> Option<(Slot, bool)> {
        match self {
            InputBinding::Iteration => None,
            InputBinding::Fixed(slot) | InputBinding::Carry(slot) => Some((slot, false)),
            InputBinding::Slice(slot) => Some((slot, true)),
        }
    }
}

impl ResultBinding {
    /// Returns the value of the outer program.
    /// The flag is true if the value is a stack of such results.
    pub(crate) fn outer_value(self) -> Option<(Slot, bool)> {
        match self {
            ResultBinding::Condition => None,
            ResultBinding::Value(slot) | ResultBinding::Carry(slot) => Some((slot, false)),
            ResultBinding::Stack(slot) => Some((slot, true)),
        }
    }
}

impl Step {
    /// Returns the programs nested in the step, in the order in which paths number them.
    pub(crate) fn nested_programs(&self) -> Vec<NestedProgram<'_>> {
        let fixed = |slots: &[Slot]| slots.iter().copied().map(InputBinding::Fixed).collect::<Vec<_>>();
        let with_carry = |slots: &[Slot], carry: &[Slot]| {
            fixed(slots).into_iter().chain(carry.iter().copied().map(InputBinding::Carry)).collect::<Vec<_>>()
        };
        match self {
            Step::Fetch { .. } | Step::Local { .. } | Step::Reduce { .. } | Step::Print { .. } => Vec::new(),
            Step::Loop { body, fixed, carry, xs, out, ys, .. } => {
                let mut inputs = vec![InputBinding::Iteration];
                inputs.extend(with_carry(fixed, carry));
                inputs.extend(xs.iter().copied().map(InputBinding::Slice));
                let carries = out.iter().copied().map(ResultBinding::Carry);
                let results = carries.chain(ys.iter().copied().map(ResultBinding::Stack)).collect();
                vec![NestedProgram { program: body, inputs, results }]
            }
            Step::While { cond, body, cond_fixed, body_fixed, carry, out } => {
                let results = out.iter().copied().map(ResultBinding::Carry).collect();
                vec![
                    NestedProgram {
                        program: cond,
                        inputs: with_carry(cond_fixed, carry),
                        results: vec![ResultBinding::Condition],
                    },
                    NestedProgram { program: body, inputs: with_carry(body_fixed, carry), results },
                ]
            }
            Step::Branch { branches, ins, out, .. } => {
                let branch = |program| NestedProgram {
                    program,
                    inputs: fixed(ins),
                    results: out.iter().copied().map(ResultBinding::Value).collect(),
                };
                branches.iter().map(branch).collect()
            }
        }
    }
    /// Returns the programs nested in the step, in the order of [`Step::nested_programs`].
    pub(crate) fn nested_programs_mut(&mut self) -> Vec<&mut SpmdProgram> {
        match self {
            Step::Fetch { .. } | Step::Local { .. } | Step::Reduce { .. } | Step::Print { .. } => Vec::new(),
            Step::Loop { body, .. } => vec![&mut **body],
            Step::While { cond, body, .. } => vec![&mut **cond, &mut **body],
            Step::Branch { branches, .. } => branches.iter_mut().collect(),
        }
    }
    /// Returns true if the step, or a program nested in it, prints.
    pub(crate) fn has_prints(&self) -> bool {
        let within = |nested: NestedProgram<'_>| nested.program.steps.iter().any(Step::has_prints);
        matches!(self, Step::Print { .. }) || self.nested_programs().into_iter().any(within)
    }
}
