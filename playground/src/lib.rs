//! The playground of atmesh's book: evaluates a program that is given as text.
//!
//! A question has the fields of the page: a mesh (`X=2, Y=4`), operands (`x: float32[8@X,4]`, one
//! per line), a program (written as in the book: `x.dot(&w) + b`), a target (a spec to which the
//! result is resharded), and whether to run the program. The answer has types, pictures, the report
//! of collectives, and values, or an error with fixes that can be applied. Both are JSON; see
//! [`answer`].
//!
//! Compiled for `wasm32-unknown-unknown`, this is a module without imports, whose interface is
//! [`abi`].

pub mod abi;
#[macro_use]
mod error;
mod eval;
mod fixit;
mod format;
mod functions;
mod indexing;
mod library;
mod lines;
mod literal;
mod methods;
mod objects;
mod placement;
mod refuse;
mod respond;
mod syntax;
#[cfg(test)]
mod tests;
mod transform;
mod tree;
mod value;
mod whole;

/// Returns the answer to a question. Every question has an answer, even if it is not valid JSON.
pub fn answer(question: &str) -> String {
    respond::answer(question).to_string()
}
