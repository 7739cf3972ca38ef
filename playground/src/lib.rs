//! The playground of atmesh's book: a program that is a text, and what the crate says of it.
//!
//! A question has the fields that the page has: a mesh (`X=2, Y=4`), operands (`x: float32[8@X,4]`, a line each), a program (written as
//! the book's are: `x.dot(&w) + b`), a target (a spec to which the result is resharded) and whether to run it. The answer has types,
//! pictures, the report of collectives and values, or what is wrong, with helps that can be applied. Both are JSON; see [`answer`].
//!
//! For `wasm32-unknown-unknown` it is a module without imports, whose interface is that of [`abi`].

pub mod abi;
mod answer;
mod eval;
mod mend;
mod methods;
mod placed;
mod refusal;
mod syntax;
#[cfg(test)]
mod tests;

/// The answer to a question. Whatever the question is, there is one.
pub fn answer(question: &str) -> String {
    answer::answer(question).to_string()
}
