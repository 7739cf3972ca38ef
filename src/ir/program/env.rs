//! A table of information about each variable, for passes that walk a program.

use super::{Input, Literal, Program, Var};

/// Information that a pass keeps about a value.
pub(crate) trait FromLiteral: Clone {
    /// Returns the information about a literal.
    fn from_literal(literal: Literal) -> Self;
}

/// The information that a pass has about each variable of one program.
pub(crate) struct Env<T>(Vec<Option<T>>);

impl<T: FromLiteral> Env<T> {
    /// Creates an environment with information about the program's inputs only.
    pub(crate) fn new(program: &Program, inputs: impl IntoIterator<Item = T>) -> Env<T> {
        let mut env = Env(vec![None; program.vars.len()]);
        env.bind(&program.inputs, inputs);
        env
    }
    /// Binds information to variables, one item for each.
    pub(crate) fn bind(&mut self, vars: &[Var], known: impl IntoIterator<Item = T>) {
        for (var, known) in vars.iter().zip(known) {
            self.0[var.index()] = Some(known);
        }
    }
    /// Returns the information about an input of an equation or a result of the program.
    pub(crate) fn get(&self, input: &Input) -> T {
        self.try_get(input).expect("equations read earlier results only")
    }
    /// Returns the information about each of these inputs.
    pub(crate) fn get_all(&self, inputs: &[Input]) -> Vec<T> {
        inputs.iter().map(|i| self.get(i)).collect()
    }
    /// Returns the information about an input, or `None` if the pass has not reached it.
    pub(crate) fn try_get(&self, input: &Input) -> Option<T> {
        match input {
            Input::Lit(l) => Some(T::from_literal(*l)),
            Input::Var(v) => self.0[v.index()].clone(),
        }
    }
}
