//! A walk over a program: what is known of each variable.

use super::{Input, Literal, Program, Var};

/// What a walk knows of a value.
pub(crate) trait Known: Clone {
    /// What it knows of a number.
    fn number(literal: Literal) -> Self;
}

/// What is known of each variable of one program.
pub(crate) struct Env<T>(Vec<Option<T>>);

impl<T: Known> Env<T> {
    /// This is known of the program's inputs, nothing of its other variables.
    pub(crate) fn new(program: &Program, inputs: impl IntoIterator<Item = T>) -> Env<T> {
        let mut env = Env(vec![None; program.vars.len()]);
        env.bind(&program.inputs, inputs);
        env
    }
    /// One thing for each of these variables.
    pub(crate) fn bind(&mut self, vars: &[Var], known: impl IntoIterator<Item = T>) {
        for (var, known) in vars.iter().zip(known) {
            self.0[var.index()] = Some(known);
        }
    }
    /// What is known of what an equation reads, or the program returns.
    pub(crate) fn get(&self, input: &Input) -> T {
        self.find(input).expect("equations read earlier results only")
    }
    /// The same of each.
    pub(crate) fn all(&self, inputs: &[Input]) -> Vec<T> {
        inputs.iter().map(|i| self.get(i)).collect()
    }
    /// The same of a walk that does not reach every variable.
    pub(crate) fn find(&self, input: &Input) -> Option<T> {
        match input {
            Input::Lit(l) => Some(T::number(*l)),
            Input::Var(v) => self.0[v.index()].clone(),
        }
    }
}
